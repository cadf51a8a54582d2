// SPDX-License-Identifier: MPL-2.0
//! `gst-trt serve` over HTTP: pictures, changes and metrics of a service that runs.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use common::service::{ask, free_address};
use common::wait::wait_until;
use common::{command, path, sample, scratch, shapes};
use gst::prelude::*;
use serde_json::{Value, json};

const TOKEN: &str = "0123456789abcdef-test";
/// After this something hangs.
const LIMIT: Duration = Duration::from_secs(60);

struct Service {
    child: Child,
    address: String,
    journal: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Service {
    fn start(configuration: &str, test: &str) -> Self {
        let folder = scratch(test);
        std::fs::write(folder.join("serve.toml"), configuration).unwrap();
        let mut child = command(&folder).args(["serve", "serve.toml"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut read = String::new();
        let address = loop {
            let Some(line) = lines.next() else { panic!("it did not start: {read}") };
            read += &format!("{line}\n");
            if let Some((_, address)) = line.split_once("Started. http://") {
                break address.trim_end_matches('/').to_string();
            }
        };
        let journal = Arc::new(Mutex::new(read));
        let more = journal.clone();
        let reader = std::thread::spawn(move || lines.for_each(|line| *more.lock().unwrap() += &format!("{line}\n")));
        Service { child, address, journal, reader: Some(reader) }
    }

    fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        let token = format!("Authorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all([&head, &token, body].concat().as_bytes()).unwrap();
        stream
    }

    /// The status and the body.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Vec<u8>) {
        let mut answer = Vec::new();
        self.send(method, path, body).read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        (std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap(), answer.split_off(end + 4))
    }

    fn json(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, "");
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    /// Tries until the condition holds.
    #[track_caller]
    fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        // What the service has said so far belongs to a failure.
        struct Journal<'a>(&'a Mutex<String>);
        impl Drop for Journal<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    eprintln!("{}", self.0.lock().unwrap());
                }
            }
        }
        let _journal = Journal(&self.journal);
        wait_until(what, LIMIT, || is_so(self));
    }

    /// By SIGTERM, cleanly. What it wrote.
    fn end(mut self) -> String {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{}", self.journal.lock().unwrap());
        self.reader.take().unwrap().join().unwrap();
        std::mem::take(&mut self.journal.lock().unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_running_service_is_watched_and_changed() {
    let configuration = format!(
        "[[model]]\nname = \"shapes\"\nfile = {:?}\nbackend = \"rten\"\n\
         [[source]]\nname = \"door\"\naddress = {:?}\nloop = true\nsync = true\n\
         [http]\nlisten = \"127.0.0.1:0\"\ntoken = \"{TOKEN}\"\n",
        shapes(),
        sample()
    );
    let service = Service::start(&configuration, "serve-http");
    service.until("ready", |service| service.ask("GET", "/readyz", "").0 == 200);
    let door = service.json("/sources/door");
    assert_eq!(
        (&door["state"], &door["model"], &door["error"]),
        (&json!("running"), &json!("shapes"), &json!(null)),
        "{door}"
    );
    service.until("frames", |service| service.json("/sources/door")["frames"].as_u64().unwrap() > 5);
    assert_eq!(service.json("/models")[0]["backend"], "rten");

    // JPEG begins with ff d8, and ends with ff d9.
    let (status, picture) = service.ask("GET", "/sources/door/snapshot.jpg", "");
    assert!(status == 200 && picture.starts_with(&[0xff, 0xd8]) && picture.ends_with(&[0xff, 0xd9]), "{status}");
    let mut live = service.send("GET", "/sources/door/live.mjpeg", "");
    let (mut read, mut part) = (Vec::new(), [0; 1 << 16]);
    while read.windows(4).filter(|window| window == b"\xff\xd9\r\n").count() < 3 {
        let length = live.read(&mut part).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&read));
        read.extend(&part[..length]);
    }
    drop(live);

    // A source that cannot be read is added, and told of without its password.
    let gate = json!({"name": "gate", "address": "rtsp://user:hush@127.0.0.1:1/gate", "backoff-min": 0.1}).to_string();
    assert_eq!(service.ask("POST", "/sources", &gate).0, 201);
    assert_eq!(service.ask("POST", "/sources", &gate).0, 409);
    service.until("failed", |service| service.json("/sources/gate")["error"].is_string());
    let mut told = String::new();
    for path in ["/sources", "/sources/gate", "/metrics", "/readyz"] {
        told += &String::from_utf8(service.ask("GET", path, "").1).unwrap();
    }
    let (status, wrong) = service.ask("POST", "/sources", r#"{"name": "x", "adress": "rtsp://user:hush@host/"}"#);
    let wrong = String::from_utf8(wrong).unwrap();
    assert!(status == 400 && wrong.contains("adress") && wrong.contains("address"), "{wrong}");
    told += &wrong;
    assert_eq!(service.ask("DELETE", "/sources/gate", "").0, 204);
    assert_eq!(service.ask("GET", "/sources/gate", "").0, 404);

    // Another file for the model, while the source goes on.
    let other = scratch("serve-http-model").join("other.onnx");
    std::fs::copy(shapes(), &other).unwrap();
    assert_eq!(service.ask("PUT", "/models/shapes", &json!({"file": other}).to_string()).0, 202);
    service.until("replaced", |service| {
        let model = &service.json("/models")[0];
        assert_eq!(model["error"], json!(null));
        model["file"] == json!(other) && model["progress"].is_null()
    });
    assert_eq!(service.ask("PUT", "/models/shapes", r#"{"file": "/nowhere.onnx"}"#).0, 400);
    let frames = service.json("/sources/door")["frames"].as_u64().unwrap();
    service.until("frames", |service| service.json("/sources/door")["frames"].as_u64().unwrap() > frames);
    assert_eq!(service.json("/sources/door")["restarts"], 0);
    let metrics = String::from_utf8(service.ask("GET", "/metrics", "").1).unwrap();
    assert!(metrics.contains("gst_trt_source_state{source=\"door\",state=\"running\"} 1\n"), "{metrics}");

    told += &service.end();
    assert!(!told.contains("hush") && !told.contains(TOKEN), "{told}");
}

/// Mean luma of a JPEG picture.
fn luma(picture: &[u8], test: &str) -> f64 {
    let file = scratch(test).join("picture.jpg");
    std::fs::write(&file, picture).unwrap();
    luma_of(&file)
}

/// Mean luma of the first picture of a file.
fn luma_of(file: &std::path::Path) -> f64 {
    gst::init().unwrap();
    let line = format!(
        "filesrc location={} ! decodebin ! videoconvert ! video/x-raw,format=GRAY8 ! appsink name=out sync=false",
        file.display()
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let sink = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    let sample = sink.pull_sample().unwrap();
    let bytes = sample.buffer().unwrap().map_readable().unwrap();
    let mean = bytes.iter().map(|&byte| f64::from(byte)).sum::<f64>() / bytes.len() as f64;
    pipeline.set_state(gst::State::Null).unwrap();
    mean
}

#[test]
fn pictures_hide_what_they_are_to_hide() {
    let source = |name: &str, more: &str| {
        format!("[[source]]\nname = \"{name}\"\naddress = {:?}\nloop = true\nsync = true\n{more}\n", sample())
    };
    let configuration = format!(
        "[[model]]\nname = \"shapes\"\nfile = {:?}\nbackend = \"rten\"\n{}{}[privacy]\nmask = \"0,0,1,0,1,1,0,1\"\n\
         [http]\nlisten = \"127.0.0.1:0\"\n",
        shapes(),
        source("hidden", "motion-gate = 0.001"),
        source("seen", "privacy = false"),
    );
    let service = Service::start(&configuration, "serve-privacy");
    service.until("ready", |service| service.ask("GET", "/readyz", "").0 == 200);
    let [hidden, seen] = ["hidden", "seen"].map(|name| {
        let (status, picture) = service.ask("GET", &format!("/sources/{name}/snapshot.jpg"), "");
        assert_eq!(status, 200, "{name}: {}", String::from_utf8_lossy(&picture));
        luma(&picture, &format!("serve-privacy-{name}"))
    });
    // Boxes are drawn on the black: the model sees the picture.
    assert!(hidden < 40.0 && hidden * 2.0 < seen, "{hidden} and {seen}");
    service.end();
}

/// Else its sources would fail one after the other.
#[test]
fn a_model_without_the_classes_that_nms_is_told_takes_no_place() {
    let source = format!("[[source]]\nname = \"seen\"\naddress = {:?}\nloop = true\nsync = true\n", sample());
    for nms in ["classes=disc", "class-thresholds=disc=0.4"] {
        let configuration = format!(
            "[[model]]\nname = \"shapes\"\nfile = {:?}\nbackend = \"rten\"\nnms = \"{nms}\"\n{source}\
             [http]\nlisten = \"127.0.0.1:0\"\ntoken = \"{TOKEN}\"\n",
            shapes(),
        );
        let service = Service::start(&configuration, "serve-nms-classes");
        service.until("ready", |service| service.ask("GET", "/readyz", "").0 == 200);
        let other = json!({"file": path("tests/models/figures-pose.onnx")}).to_string();
        let (status, said) = service.ask("PUT", "/models/shapes", &other);
        let said = String::from_utf8(said).unwrap();
        assert!(status == 400 && said.contains("the model has no class “disc”"), "{status} {said}");
        assert_eq!(service.json("/models")[0]["file"], json!(shapes()));
        assert_eq!(service.json("/sources/seen")["restarts"], 0);
        service.end();
    }
}

/// Not while anything of the former one is changed.
#[test]
fn a_model_that_does_not_find_what_is_hidden_takes_no_place() {
    let source = |name: &str, more: &str| {
        format!("[[source]]\nname = \"{name}\"\naddress = {:?}\nloop = true\nsync = true\n{more}\n", sample())
    };
    let configuration = format!(
        "[[model]]\nname = \"shapes\"\nfile = {:?}\nbackend = \"rten\"\n{}{}[privacy]\nblur = \"disc\"\n\
         [http]\nlisten = \"127.0.0.1:0\"\ntoken = \"{TOKEN}\"\n",
        shapes(),
        source("hidden", ""),
        source("seen", "privacy = false"),
    );
    let service = Service::start(&configuration, "serve-privacy-model");
    service.until("ready", |service| service.ask("GET", "/readyz", "").0 == 200);
    let put = |file: &str| {
        let (status, said) = service.ask("PUT", "/models/shapes", &json!({"file": file}).to_string());
        (status, String::from_utf8(said).unwrap())
    };
    let (status, said) = put(&path("tests/models/shapes-cls.onnx"));
    assert!(
        status == 400 && said.contains("source “hidden”, blur: model “shapes”: it has no boxes"),
        "{status} {said}"
    );
    let figures = path("tests/models/figures-pose.onnx");
    let (status, said) = put(&figures);
    assert!(status == 400 && said.contains("there is no class “disc”"), "{status} {said}");
    let model = &service.json("/models")[0];
    assert_eq!((&model["file"], &model["error"]), (&json!(shapes()), &json!(null)));
    assert_eq!(service.json("/sources/hidden")["restarts"], 0);

    // Of a source that is gone nothing is to be hidden; and what comes is checked with the model as it is now.
    assert_eq!(service.ask("DELETE", "/sources/hidden", "").0, 204);
    assert_eq!(put(&figures).0, 202);
    service.until("replaced", |service| service.json("/models")[0]["file"] == json!(figures));
    let new = |blur: &str| json!({"name": "new", "address": sample(), "privacy": {"blur": blur}}).to_string();
    let (status, said) = service.ask("POST", "/sources", &new("disc"));
    let said = String::from_utf8(said).unwrap();
    assert!(status == 400 && said.contains("there is no class “disc”"), "{status} {said}");
    assert_eq!(service.ask("POST", "/sources", &new("0")).0, 201);
    service.end();
}

/// The camera's own stream is not what is written.
#[test]
fn recordings_hide_what_they_are_to_hide() {
    let folder = scratch("serve-privacy-recordings");
    let configuration = format!(
        "[[model]]\nname = \"shapes\"\nfile = {:?}\nbackend = \"rten\"\n[track]\n[analytics]\n\
         config = '{{\"zones\": [{{\"id\": \"all\", \"points\": [[0, 0], [1, 0], [1, 1], [0, 1]]}}]}}'\n\
         [privacy]\nmask = \"all\"\n[record]\nfolder = {:?}\nevents = [\"entered\"]\npre-roll = 0.5\npost-roll = 0.2\n\
         [[source]]\nname = \"door\"\naddress = {:?}\nloop = true\nsync = true\n[http]\nlisten = \"127.0.0.1:0\"\n",
        shapes(),
        folder,
        sample()
    );
    let service = Service::start(&configuration, "serve-privacy-record");
    let recording = || {
        let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        files.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "mp4"))
    };
    service.until("a recording", |_| recording().is_some());
    service.end();
    let luma = luma_of(&recording().unwrap());
    assert!(luma < 20.0, "{luma}");
}

#[test]
fn a_source_rests_outside_its_hours() {
    gst::init().unwrap();
    let hour = gst::glib::DateTime::now_local().unwrap().hour();
    let later = format!("{:02}:00-{:02}:00", (hour + 2) % 24, (hour + 3) % 24);
    let configuration = format!(
        "[[model]]\nname = \"shapes\"\nfile = {:?}\nbackend = \"rten\"\n\
         [[source]]\nname = \"night\"\naddress = {:?}\nloop = true\nsync = true\nschedule = \"{later}\"\n\
         [http]\nlisten = \"127.0.0.1:0\"\ntoken = \"{TOKEN}\"\n",
        shapes(),
        sample()
    );
    let service = Service::start(&configuration, "serve-hours");
    service.until("resting", |service| service.json("/sources/night")["state"] == "resting");
    service.until("ready", |service| service.ask("GET", "/readyz", "").0 == 200);
    assert_eq!(service.json("/sources/night")["frames"], 0);
    let metrics = String::from_utf8(service.ask("GET", "/metrics", "").1).unwrap();
    assert!(metrics.contains("gst_trt_source_state{source=\"night\",state=\"resting\"} 1\n"), "{metrics}");
    let (status, said) = service.ask("GET", "/sources/night/snapshot.jpg", "");
    assert!(status == 409 && String::from_utf8_lossy(&said).contains("the source rests"), "{status}");
    // Another one has other hours.
    let day = json!({"name": "day", "address": sample(), "loop": true, "sync": true, "schedule": "00:00-24:00"});
    assert_eq!(service.ask("POST", "/sources", &day.to_string()).0, 201);
    service.until("frames", |service| service.json("/sources/day")["frames"].as_u64().unwrap() > 3);
    let wrong = json!({"name": "x", "address": sample(), "schedule": "daily"});
    let (status, said) = service.ask("POST", "/sources", &wrong.to_string());
    assert!(status == 400 && String::from_utf8_lossy(&said).contains("are no hours"), "{status}");
    assert_eq!(service.ask("DELETE", "/sources/night", "").0, 204);
    let journal = service.end();
    assert!(journal.contains(&format!("rests outside its hours, {later}.")), "{journal}");
}

/// The driver's library, or what stands in its place, is found at run time.
#[test]
fn figures_of_gpus_are_those_of_the_library_of_the_driver() {
    let folder = scratch("serve-nvml");
    let source = std::fs::canonicalize(path("tests/fakes/nvml.c")).unwrap();
    common::compiled::library(&folder, "libnvidia-ml.so.1", &[source], &[]);
    let address = free_address();
    let config = format!("[http]\nlisten = \"{address}\"\n");
    let service = common::service::Service::with(&folder, &config, &[("LD_LIBRARY_PATH", folder.to_str().unwrap())]);
    service.said("Started.");
    let metrics = String::from_utf8(ask(&address, "GET", "/metrics", "", "").1).unwrap();
    let found: Vec<_> = metrics.lines().filter(|line| line.starts_with("gst_trt_gpu_")).collect();
    let expected = [
        "gst_trt_gpu_info{gpu=\"0\",name=\"Made \\\"up\\\"\",uuid=\"GPU-7\"} 1",
        "gst_trt_gpu_info{gpu=\"1\",name=\"Quiet\",uuid=\"GPU-8\"} 1",
        "gst_trt_gpu_busy_ratio{gpu=\"0\"} 0.42",
        "gst_trt_gpu_decoder_busy_ratio{gpu=\"0\"} 0.8",
        "gst_trt_gpu_encoder_busy_ratio{gpu=\"0\"} 0.05",
        "gst_trt_gpu_memory_used_bytes{gpu=\"0\"} 20000000000",
        "gst_trt_gpu_memory_used_bytes{gpu=\"1\"} 20000000000",
        "gst_trt_gpu_memory_size_bytes{gpu=\"0\"} 80000000000",
        "gst_trt_gpu_memory_size_bytes{gpu=\"1\"} 80000000000",
        "gst_trt_gpu_temperature_celsius{gpu=\"0\"} 61",
        "gst_trt_gpu_power_watts{gpu=\"0\"} 312.5",
    ];
    assert_eq!(found, expected);
    assert_eq!(service.end().0.code(), Some(0));
}
