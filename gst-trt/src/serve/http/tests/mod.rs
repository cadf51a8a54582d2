// SPDX-License-Identifier: MPL-2.0
//! Requests over real sockets, answered from a service that is made up.

mod access;
mod bad_input;
mod browser;
mod endpoints;
mod limits;
mod metrics;
mod page;
mod pages;
mod pictures;
mod recordings;
#[cfg(feature = "webrtc")]
mod video;
mod whep;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gsttrt_core::gallery::GalleryEntry;
use serde_json::Value;
use tokio::sync::watch;

use super::{ClientLimits, HttpServer, HttpSettings, listen};
use crate::cause::Cause;
use crate::serve::archive::{Recording, RecordingEntry};
use crate::serve::config::RunsOn;
use crate::serve::control::*;
use crate::serve::histogram::{Histogram, LATENCIES, STAYS};
use crate::serve::identities::ServedIdentities;

const TOKEN: &str = "0123456789abcdef-test";
/// After this something hangs.
const LIMIT: Duration = Duration::from_secs(60);

// ------------------------------------------------------------------------------------------- service

pub struct FakeSource {
    pub status: SourceStatus,
    pub frames: Arc<watch::Sender<Option<Bytes>>>,
}

/// A service that does what it is asked in its tables alone.
#[derive(Default)]
pub struct FakeService {
    pub sources: Mutex<Vec<FakeSource>>,
    pub models: Mutex<Vec<ModelStatus>>,
    /// Names in the gallery of the model “faces”.
    pub people: Mutex<Vec<String>>,
    pub identities: Mutex<ServedIdentities>,
    /// The folder with recordings, and what is in it.
    pub recorded: Mutex<(PathBuf, Vec<Recording>)>,
    pub is_unready: AtomicBool,
    /// Waited for, once, by what looks at files.
    pub disk: Mutex<Option<Receiver<()>>>,
}

impl FakeService {
    pub fn new(names: &[&str]) -> Arc<Self> {
        let service = FakeService::default();
        let model = ModelStatus {
            name: "yolo".into(),
            file: "yolo11n.onnx".into(),
            on: RunsOn::Frames,
            backend: Some("tensorrt".into()),
            loaded: true,
            verified: Some(true),
            progress: None,
            batches: Some(Batches { size: 8, runs: 100, frames: 650, late: 40 }),
            error: None,
        };
        service.models.lock().unwrap().push(model);
        service.sources.lock().unwrap().extend(names.iter().map(|name| entry(name)));
        Arc::new(service)
    }

    pub fn change(&self, name: &str, change: impl FnOnce(&mut SourceStatus)) {
        let mut sources = self.sources.lock().unwrap();
        change(&mut sources.iter_mut().find(|entry| entry.status.name == name).unwrap().status);
    }

    pub fn frames(&self, name: &str) -> Arc<watch::Sender<Option<Bytes>>> {
        let sources = self.sources.lock().unwrap();
        sources.iter().find(|entry| entry.status.name == name).unwrap().frames.clone()
    }

    pub fn names(&self) -> Vec<String> {
        self.sources.lock().unwrap().iter().map(|entry| entry.status.name.clone()).collect()
    }
}

fn entry(name: &str) -> FakeSource {
    let times = |p50| {
        let mut all = Histogram::new(LATENCIES);
        [1.0 / 128.0, 1.0 / 64.0, 1.0 / 32.0, 16.0].into_iter().for_each(|time| all.add(time));
        Summary { newest: Quantiles { p50, p95: 0.02, p99: 0.031 }, all }
    };
    let mut dwell = Histogram::new(STAYS);
    dwell.add(7.5);
    let status = SourceStatus {
        name: name.into(),
        address: format!("rtsp://{name}/stream"),
        model: "yolo".into(),
        on_objects: Vec::new(),
        cuda_device_id: Some(1),
        state: State::Running,
        error: None,
        cause: None,
        failures: BTreeMap::from([(Cause::Unreachable, 4)]),
        restarts: 1,
        left_behind: 0,
        recording: false,
        failed_recordings: 2,
        frames: 12_345,
        dropped: 6,
        queued: 2,
        fps: 29.97,
        last_frame: Some(Duration::from_millis(1_700_000_000_250)),
        latency: Some(times(0.012)),
        latency_from_camera: Some(times(0.112)),
        gpu: Some(Quantiles { p50: 0.0021, p95: 0.02, p99: 0.031 }),
        objects: 3,
        events: BTreeMap::from([("crossed".into(), 17), ("entered".into(), 4)]),
        zones: vec![ZoneStatus {
            name: "hall".into(),
            objects: BTreeMap::from([("disc".into(), 3)]),
            entered: 4,
            left: 1,
            dwell,
        }],
        lines: vec![LineStatus { name: "gate".into(), forward: 5, backward: 2 }],
        published: vec![published(None, "mqtt://broker/t")],
        asks: Vec::new(),
        snapshots: SnapshotCounts { written: 7, dropped: 2, limited: 1 },
        folders: Vec::new(),
    };
    FakeSource { status, frames: Arc::new(watch::Sender::new(None)) }
}

pub fn asked(last_answer: &str) -> AskStatus {
    AskStatus {
        name: "what".into(),
        url: "http://localhost:11434/v1/chat/completions".into(),
        model: "seer".into(),
        counts: AskCounts { asked: 9, answered: 5, failed: 2, dropped: 1, limited: 30 },
        error: None,
        last_answer: Some(last_answer.into()),
    }
}

pub fn published(name: Option<&str>, location: &str) -> Published {
    Published { name: name.map(String::from), location: location.into(), sent: 99, dropped: 1, connected: true }
}

fn unknown(what: &str, name: &str) -> Refused {
    Refused::Unknown(format!("There is no {what} “{name}”. GET /{what}s lists them."))
}

impl Control for FakeService {
    fn sources(&self) -> Vec<SourceStatus> {
        self.sources.lock().unwrap().iter().map(|entry| entry.status.clone()).collect()
    }

    fn add_source(&self, source: &Value) -> Result<(), Refused> {
        let disk = self.disk.lock().unwrap().take();
        if let Some(disk) = disk {
            let _ = disk.recv();
        }
        let known = ["name", "address", "model", "timeout"];
        if let Some(key) = source.as_object().unwrap().keys().find(|key| !known.contains(&key.as_str())) {
            return Err(Refused::Invalid(format!("A source has no key “{key}”. It has {}.", known.join(", "))));
        }
        let (Some(name), Some(address)) = (source["name"].as_str(), source["address"].as_str()) else {
            return Err(Refused::Invalid("A source needs the texts name and address. Add them.".into()));
        };
        if self.names().iter().any(|taken| taken == name) {
            return Err(Refused::Exists(format!("There is a source “{name}” already. Choose another name.")));
        }
        let mut entry = entry(name);
        entry.status.address = address.into();
        self.sources.lock().unwrap().push(entry);
        Ok(())
    }

    fn remove_source(&self, name: &str) -> Result<(), Refused> {
        let mut sources = self.sources.lock().unwrap();
        let place =
            sources.iter().position(|entry| entry.status.name == name).ok_or_else(|| unknown("source", name))?;
        sources.remove(place);
        Ok(())
    }

    fn models(&self) -> Vec<ModelStatus> {
        self.models.lock().unwrap().clone()
    }

    fn replace_model(&self, name: &str, file: &Path) -> Result<(), Refused> {
        let mut models = self.models.lock().unwrap();
        let model = models.iter_mut().find(|model| model.name == name).ok_or_else(|| unknown("model", name))?;
        if file.extension().is_none() {
            return Err(Refused::Invalid(format!("{} is no model file. Give an .onnx or .engine.", file.display())));
        }
        model.file = file.into();
        Ok(())
    }

    fn galleries(&self) -> Vec<GalleryStatus> {
        let names = self.people.lock().unwrap().clone();
        let vectors = 2 * names.len();
        vec![GalleryStatus { name: "faces".into(), file: "people.jsonl".into(), names, vectors, error: None }]
    }

    fn enrol(&self, gallery: &str, entry: &GalleryEntry) -> Result<EnrolledVector, Refused> {
        if gallery != "faces" {
            return Err(Refused::Unknown(format!("There is no gallery “{gallery}”. GET /galleries lists them.")));
        }
        if entry.vector.len() != 3 {
            return Err(Refused::Invalid("The vectors of the gallery have 3 numbers. Use its model.".into()));
        }
        self.people.lock().unwrap().push(entry.name.clone());
        let warning = Some(format!("{:?}", entry.vector));
        Ok(EnrolledVector { name: entry.name.clone(), vectors: 1, warning })
    }

    fn forget(&self, gallery: &str, name: &str) -> Result<(), Refused> {
        if gallery != "faces" {
            return Err(Refused::Unknown(format!("There is no gallery “{gallery}”. GET /galleries lists them.")));
        }
        let mut people = self.people.lock().unwrap();
        let Some(place) = people.iter().position(|known| known == name) else {
            return Err(Refused::Unknown(format!("There is no “{name}” in the gallery “{gallery}”.")));
        };
        people.remove(place);
        Ok(())
    }

    fn identities(&self) -> ServedIdentities {
        self.identities.lock().unwrap().clone()
    }

    fn watch(&self, source: &str) -> Result<watch::Receiver<Option<Bytes>>, Refused> {
        if self.names().iter().any(|name| name == source) {
            Ok(self.frames(source).subscribe())
        } else {
            Err(unknown("source", source))
        }
    }

    fn recordings(&self, filter: &RecordingFilter) -> Vec<Recording> {
        let recorded = &self.recorded.lock().unwrap().1;
        let all = recorded.iter().map(|recording| (RecordingEntry::waiting(recording.clone(), 0), recording.clone()));
        let found = all.filter(|(entry, _)| filter.is_wanted(entry)).collect();
        filter.newest(found, |(entry, _)| entry).into_iter().map(|(_, recording)| recording).collect()
    }

    fn recording(&self, file: &str) -> Result<PathBuf, Refused> {
        let (folder, recordings) = &*self.recorded.lock().unwrap();
        let found = recordings.iter().find(|recording| recording.file == file);
        found.map(|recording| folder.join(&recording.file)).ok_or_else(|| unknown("recording", file))
    }

    fn is_ready(&self) -> bool {
        !self.is_unready.load(Ordering::Relaxed)
    }

    fn lost_gpu(&self) -> Option<String> {
        None
    }
}

/// Gives frames until it is dropped, each another picture.
pub struct Camera {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Camera {
    pub fn new(frames: Arc<watch::Sender<Option<Bytes>>>, picture: impl Fn(u64) -> Bytes + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let work = move || {
            for number in (0..).take_while(|_| !ends.load(Ordering::Relaxed)) {
                frames.send_replace(Some(picture(number)));
                thread::park_timeout(Duration::from_millis(5)); // the time between two frames
            }
        };
        Camera { is_over, thread: Some(thread::spawn(work)) }
    }
}

impl Drop for Camera {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Tries until the condition holds.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

// ------------------------------------------------------------------------------------------- requests

pub fn settings(listen: &str, token: Option<&str>) -> HttpSettings {
    HttpSettings { listen: listen.parse().unwrap(), token: token.map(String::from) }
}

pub fn serve(service: &Arc<FakeService>) -> HttpServer {
    serve_within(ClientLimits::default(), service)
}

pub fn serve_within(limits: ClientLimits, service: &Arc<FakeService>) -> HttpServer {
    start_within(limits, &settings("127.0.0.1:0", Some(TOKEN)), service.clone()).unwrap()
}

/// With videos for browsers.
pub fn serve_videos(settings: &HttpSettings, service: &Arc<FakeService>, videos: Arc<dyn VideoControl>) -> HttpServer {
    let listener = listen(settings).unwrap();
    super::start_within(ClientLimits::default(), settings, listener, service.clone(), Some(videos)).unwrap()
}

#[derive(Debug)]
pub struct HttpAnswer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl HttpAnswer {
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
        let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        Some(HttpAnswer { status, head: head.to_lowercase(), body: bytes[end + 4..].to_vec() })
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}\n{}", self.head, String::from_utf8_lossy(&self.body));
        self
    }

    /// Whether it has the text of an error, and nothing that breaks JSON.
    pub fn is_error(&self) -> bool {
        let value: Result<Value, _> = serde_json::from_slice(&self.body);
        value.is_ok_and(|value| value["error"].as_str().is_some_and(|text| text.ends_with('.')))
    }

    /// It is refused with one text that says all that.
    #[track_caller]
    pub fn expect_error(self, status: u16, parts: &[&str]) {
        let answer = self.expect(status);
        let text = answer.json()["error"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_string();
        assert!(parts.iter().all(|part| text.contains(part)) && text.ends_with('.'), "{text}");
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// What comes back for some bytes until the server ends the connection. It may do so before it has read all of them.
pub fn exchange(address: SocketAddr, bytes: &[u8], ends: bool) -> Vec<u8> {
    let mut stream = connect(address);
    let _ = stream.write_all(bytes);
    if ends {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the server hangs: {error}");
    }
    answer
}

/// A request with these headers, which may replace `Host`.
pub fn request(server: &HttpServer, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> HttpAnswer {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        text += &format!("Host: {}\r\n", server.address());
    }
    text.extend(headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")));
    let answer = exchange(server.address(), format!("{text}\r\n{body}").as_bytes(), false);
    HttpAnswer::parse(&answer).unwrap_or_else(|| panic!("{method} {path}: {}", String::from_utf8_lossy(&answer)))
}

pub fn get(server: &HttpServer, path: &str) -> HttpAnswer {
    request(server, "GET", path, &[], "")
}

/// With the token.
pub fn change(server: &HttpServer, method: &str, path: &str, body: &str) -> HttpAnswer {
    request(server, method, path, &[("Authorization", &format!("Bearer {TOKEN}"))], body)
}

fn start_within(
    limits: ClientLimits,
    settings: &HttpSettings,
    service: Arc<dyn Control>,
) -> Result<HttpServer, crate::failure::Failure> {
    super::start_within(limits, settings, listen(settings)?, service, None)
}
