// SPDX-License-Identifier: MPL-2.0
//! All sources and models, and what can be done to them while they run.
//!
//! The lock holds the table alone: what it costs to start something is the cost of a thread. Disks, models and cameras are
//! waited for in threads of their own, and files are checked before the lock is taken.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gsttrt_core::cuda::driver;
use gsttrt_core::gallery::GalleryEntry;
use tokio::sync::watch;

use super::archive::{Archives, FoundRecording, Recording};
use super::ask::{Asks, SourceAsks};
use super::changes::Stamp;
use super::config::{Config, ModelConfig, SourceConfig, check_files, check_folders};
use super::control::{
    Control, EnrolledVector, GalleryStatus, ModelStatus, OutputControl, RecordingFilter, Refused, SourceStatus,
};
use super::galleries;
use super::gpus::Gpus;
use super::identities::ServedIdentities;
use super::log::log;
use super::model::{Model, ServedModel, ServedModels};
use super::output::Output;
use super::snapshot::SourceSnapshots;
use super::stream::meter::Meter;
use super::stream::{LastFrames, SourceStream};
use super::tiles::TileOutputs;
use super::view;
use crate::failure::Failure;
use crate::model_options::check_model;
use crate::threads::Threads;

/// The time that all sources together have to end, with recordings and publishing, from the moment on at which it was asked for. A
/// service manager is to see the end of the program within 5 s, also on a machine that is busy, and what is left then is told: behind
/// this come the last request to a collector and the last threads.
pub const END: Duration = Duration::from_millis(3900);
/// Of the time that all sources together have to end, what is for more than frames that are under way and messages: elements that
/// do not stop, whose connections are cut, and recordings.
const STOPPING: Duration = Duration::from_millis(1900);
/// How long frames that are under way may take of a source that is removed while the service goes on.
const LAST_FRAMES_OF_ONE: Duration = Duration::from_secs(10);

/// The end of a source that is removed.
fn removed() -> LastFrames {
    LastFrames { until: Instant::now() + LAST_FRAMES_OF_ONE, is_last: false, ends_process: false }
}

pub struct Service {
    state: Mutex<ServiceState>,
    archives: Archives,
    threads: Threads,
    /// The file has a mistake since it was read again.
    is_outdated: AtomicBool,
}

struct ServiceState {
    config: Arc<Config>,
    models: Vec<Model>,
    streams: Vec<SourceStream>,
    tiles: TileOutputs,
    identities: ServedIdentities,
    /// Of the model that was started last.
    number: u64,
    is_ending: bool,
    archives: Archives,
    asks: Asks,
    gpus: Gpus,
}

impl Service {
    pub fn start(config: Config, gpus: Gpus, threads: &Threads) -> Result<Self, Failure> {
        let archives = Archives::new(threads);
        let state = ServiceState {
            archives: archives.clone(),
            asks: Asks::default(),
            gpus,
            config: Arc::new(config.without_sources()),
            models: Vec::new(),
            streams: Vec::new(),
            tiles: TileOutputs::default(),
            identities: ServedIdentities::default(),
            number: 0,
            is_ending: false,
        };
        let is_outdated = AtomicBool::new(false);
        let service = Service { state: Mutex::new(state), archives, threads: threads.clone(), is_outdated };
        service.reload(config)?;
        Ok(service)
    }

    fn lock(&self) -> MutexGuard<'_, ServiceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn model_configs(&self) -> Vec<ModelConfig> {
        self.lock().models.iter().map(|model| model.shared.config()).collect()
    }

    /// Applies another configuration: all of it or, on an error, nothing. What is the same in both goes on without a break.
    pub fn reload(&self, config: Config) -> Result<(), Failure> {
        self.lock().apply(config, &self.threads)
    }

    /// Looks whether a model can have another file, as all is now. That may take long.
    fn check_other_file(&self, name: &str, file: &Path) -> Result<CheckedFile, Refused> {
        let (config, model) = {
            let state = self.lock();
            (state.config.clone(), state.model(name).map_err(unlisted_model)?)
        };
        let sources = model.sources();
        let path = config.path(file);
        let stamp = Stamp::of(&path);
        check_model(&path).and_then(|()| model.check_file(&path)).map_err(invalid)?;
        Ok(CheckedFile { path, stamp, config, model, sources })
    }

    /// Lets it take over where all is still as it was checked for. Returns whether that is so.
    fn put_file(&self, name: &str, checked: &CheckedFile) -> Result<bool, Refused> {
        let state = self.lock();
        state.check_goes_on().map_err(invalid)?;
        let model = find(&state.models, name).ok_or_else(|| unlisted_model(unknown_model(name)))?;
        let is_same = checked.is_for(&state.config, &model.shared);
        if is_same {
            model.replace(&checked.path, checked.stamp.clone());
            retry(&state.streams, name);
        }
        Ok(is_same)
    }

    /// Whether another configuration was refused.
    pub fn set_outdated(&self, is_outdated: bool) {
        self.is_outdated.store(is_outdated, Ordering::Relaxed);
    }

    /// What each source's frames have taken since then.
    pub fn latencies_since(&self, since: Instant) -> Vec<Vec<f64>> {
        let meters: Vec<_> = self.lock().streams.iter().map(|stream| stream.meter.clone()).collect();
        meters.iter().map(|meter| meter.latencies_since(since)).collect()
    }

    /// Ends everything, until then: returns what does not end in time, and is left behind.
    pub fn stop(&self, until: Instant) -> Vec<String> {
        let until_stopping = until.checked_sub(STOPPING).unwrap_or(until);
        let last = LastFrames { until: until_stopping, is_last: true, ends_process: true };
        {
            let mut state = self.lock();
            state.is_ending = true;
            state.streams.drain(..).for_each(|stream| stream.stop(last));
            state.tiles.close();
            // They are released by the last source that has them.
            state.models.drain(..).for_each(|model| model.stop());
        }
        self.archives.close();
        self.threads.wait(until.saturating_duration_since(Instant::now()))
    }
}

/// A file that a model may have, and for what that was checked.
struct CheckedFile {
    path: PathBuf,
    stamp: Option<Stamp>,
    config: Arc<Config>,
    model: Arc<ServedModel>,
    sources: Vec<Arc<SourceConfig>>,
}

impl CheckedFile {
    fn is_for(&self, config: &Arc<Config>, model: &Arc<ServedModel>) -> bool {
        let sources = model.sources();
        let are_same = || self.sources.iter().zip(&sources).all(|(source, now)| Arc::ptr_eq(source, now));
        Arc::ptr_eq(&self.config, config)
            && Arc::ptr_eq(&self.model, model)
            && self.sources.len() == sources.len()
            && are_same()
    }
}

/// What a configuration starts, before it takes effect.
#[derive(Default)]
struct Started {
    models: Vec<Model>,
    streams: Vec<SourceStream>,
}

impl Started {
    fn begin(&mut self, state: &mut ServiceState, config: &Config, threads: &Threads) -> Result<(), Failure> {
        for model in &config.models {
            if !state.models.iter().any(|there| becomes(there, model)) {
                state.number += 1;
                let sources = sources_of(config, &model.name);
                self.models.push(Model::start(model.clone(), state.number, sources, threads)?);
            }
        }
        let names: BTreeSet<&str> = config.sources.iter().map(|source| source.name.as_str()).collect();
        let running: BTreeSet<String> = state.streams.iter().map(|stream| stream.config.name.clone()).collect();
        for source in &config.sources {
            if !running.contains(&source.name) {
                // Of those of the same name, the new one.
                let models = models(source, |name| find(&self.models, name).or_else(|| find(&state.models, name)))?;
                // Those that go leave their place.
                let stays = |stream: &&SourceStream| names.contains(stream.config.name.as_str());
                let there = state.streams.iter().filter(stays).chain(&self.streams);
                let gpu = state.gpus.place(there.filter_map(|stream| stream.gpu));
                let (archives, asks) = (&state.archives, &state.asks);
                self.streams.push(SourceStream::start(source.clone(), models, archives, asks, gpu, threads)?);
            }
        }
        Ok(())
    }

    fn stop(self) {
        self.streams.iter().for_each(|stream| stream.stop(LastFrames::none()));
        self.models.iter().for_each(Model::stop);
    }
}

/// Whether that model sees the frames of a source.
fn is_of(source: &SourceConfig, model: &str) -> bool {
    source.model == model
}

fn sources_of(config: &Config, model: &str) -> Vec<Arc<SourceConfig>> {
    config.sources.iter().filter(|source| is_of(source, model)).map(|source| Arc::new(source.clone())).collect()
}

fn find<'a>(models: &'a [Model], name: &str) -> Option<&'a Model> {
    models.iter().find(|model| model.shared.config().name == name)
}

/// The models of a source, by their names.
fn models<'a>(source: &SourceConfig, find: impl Fn(&str) -> Option<&'a Model>) -> Result<ServedModels, Failure> {
    let shared = |name| find(name).map(|model| model.shared.clone()).ok_or_else(|| unknown_model(name));
    source.models().map(shared).collect()
}

fn unknown_model(name: &str) -> Failure {
    format!("There is no model “{name}”.").into()
}

/// Whether a model goes on as that one, at most with another file or another content of it. Sources that come or go do not disturb the
/// others: it runs as it was started.
fn becomes(model: &Model, wanted: &ModelConfig) -> bool {
    let ModelConfig { file, stamp, has_several, .. } = wanted.clone();
    ModelConfig { file, stamp, has_several, ..model.shared.config() } == *wanted
}

impl ServiceState {
    fn apply(&mut self, mut config: Config, threads: &Threads) -> Result<(), Failure> {
        self.check_goes_on()?;
        // HTTP and RTSP stay as they were at the start, and so do the branches for them.
        config.keep_servers(&self.config);
        // First all that can fail: until then nothing that runs is touched.
        let mut started = Started::default();
        let before = self.identities.begin(config.identities.as_ref())?;
        if let Err(failure) = started.begin(self, &config, threads) {
            started.stop();
            before.into_iter().for_each(|before| self.identities.go_back(before));
            return Err(failure);
        }
        before.iter().for_each(ServedIdentities::forget_all);
        self.identities.change(config.identities.as_ref());
        // What a replacement must find things for.
        for model in &self.models {
            model.shared.set_sources(sources_of(&config, &model.shared.config().name));
        }
        self.set_models(&config, &mut started);
        for model in &self.models {
            model.shared.set_identities(self.identities.of(&model.shared.config().name));
        }
        self.set_streams(&config, started);
        self.tiles.set(&config.tiles, threads);
        self.config = Arc::new(config);
        self.streams_changed();
        Ok(())
    }

    /// Tells what of the files of sources is kept, and which of them are seen together.
    fn streams_changed(&self) {
        self.archives.keep(self.config.kept(self.streams.iter().map(|stream| &*stream.config)));
        self.tiles.show(self.streams.iter().map(|stream| (stream.config.name.as_str(), &stream.frames)));
    }

    fn set_models(&mut self, config: &Config, started: &mut Started) {
        let wanted = |model: &Model| config.models.iter().find(|wanted| becomes(model, wanted));
        let (stay, go): (Vec<_>, Vec<_>) = self.models.drain(..).partition(|model| wanted(model).is_some());
        for model in &stay {
            if let Some(wanted) = wanted(model).filter(|wanted| model.shared.is_other_file(wanted)) {
                model.replace(&wanted.file, wanted.stamp.clone());
                retry(&self.streams, &wanted.name);
            }
        }
        self.models = stay;
        for source in &config.sources {
            // Of a model with other settings.
            let is_new = source.models().any(|name| find(&started.models, name).is_some());
            let of_name = |name: &str| find(&started.models, name).or_else(|| find(&self.models, name));
            if let (true, Ok(models), Some(stream)) =
                (is_new, models(source, of_name), stream(&mut self.streams, &source.name))
            {
                stream.change(source.clone(), models);
            }
        }
        go.iter().for_each(Model::stop);
        self.models.append(&mut started.models);
        let order = |model: &Model| config.models.iter().position(|wanted| wanted.name == model.shared.config().name);
        self.models.sort_by_key(order);
    }

    fn set_streams(&mut self, config: &Config, started: Started) {
        self.streams.retain(|stream| {
            let stays = config.sources.iter().any(|source| source.name == stream.config.name);
            if !stays {
                log(&stream.config.name, "Removed.");
                stream.stop(removed());
            }
            stays
        });
        for source in &config.sources {
            let Some(stream) = stream(&mut self.streams, &source.name) else { continue };
            if *stream.config != *source
                && let Ok(models) = models(source, |name| find(&self.models, name))
            {
                stream.change(source.clone(), models);
            }
        }
        self.streams.extend(started.streams);
        let order = |stream: &SourceStream| config.sources.iter().position(|source| source.name == stream.config.name);
        self.streams.sort_by_cached_key(order);
    }

    /// Tells each model what it must find things for.
    fn tell_models(&self) {
        for model in &self.models {
            let name = model.shared.config().name;
            let streams = self.streams.iter().filter(|stream| is_of(&stream.config, &name));
            model.shared.set_sources(streams.map(|stream| stream.config.clone()).collect());
        }
    }

    fn check_goes_on(&self) -> Result<(), Failure> {
        if self.is_ending { Err("The service ends.".into()) } else { Ok(()) }
    }

    /// The models as they are, and as they are about to be.
    fn running(&self) -> Vec<ModelConfig> {
        self.models.iter().flat_map(|model| model.shared.configs()).collect()
    }

    fn model(&self, name: &str) -> Result<Arc<ServedModel>, Failure> {
        find(&self.models, name).map(|model| model.shared.clone()).ok_or_else(|| unknown_model(name))
    }

    fn find(&self, name: &str) -> Result<usize, Refused> {
        let position = self.streams.iter().position(|stream| stream.config.name == name);
        position.ok_or_else(|| Refused::Unknown(format!("There is no source “{name}”. GET /sources lists them.")))
    }
}

fn stream<'a>(streams: &'a mut [SourceStream], name: &str) -> Option<&'a mut SourceStream> {
    streams.iter_mut().find(|stream| stream.config.name == name)
}

/// Sources that wait because of their model need not do so any longer.
fn retry(streams: &[SourceStream], model: &str) {
    let has_it = |stream: &&SourceStream| stream.config.models().any(|name| name == model);
    streams.iter().filter(has_it).for_each(SourceStream::retry);
}

fn unlisted_model(failure: Failure) -> Refused {
    Refused::Unknown(format!("{failure} GET /models lists them."))
}

fn invalid(failure: Failure) -> Refused {
    Refused::Invalid(failure.to_string())
}

impl Control for Service {
    fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    fn sources(&self) -> Vec<SourceStatus> {
        let parts = |stream: &SourceStream| {
            let (asks, snapshots) = (stream.asks.clone(), stream.snapshots.clone());
            (stream.config.clone(), stream.meter.clone(), stream.gpu, asks, snapshots)
        };
        let streams: Vec<_> = self.lock().streams.iter().map(parts).collect();
        type Parts = (Arc<SourceConfig>, Arc<Meter>, Option<i32>, Arc<SourceAsks>, Arc<SourceSnapshots>);
        let status = |(config, meter, gpu, asks, snapshots): Parts| SourceStatus {
            cuda_device_id: gpu,
            asks: asks.status(),
            snapshots: snapshots.counts(),
            ..meter.status(&config)
        };
        streams.into_iter().map(status).collect()
    }

    fn add_source(&self, source: &serde_json::Value) -> Result<(), Refused> {
        loop {
            let (known, running) = {
                let state = self.lock();
                (state.config.clone(), state.running())
            };
            // Looks at files, which may take long.
            let config = known
                .source(source, &running)
                .map_err(|problem| Refused::Invalid(format!("Cannot add it: {problem}")))?;
            let mut state = self.lock();
            state.check_goes_on().map_err(invalid)?;
            if !Arc::ptr_eq(&known, &state.config) || state.running() != running {
                continue; // another configuration or model came meanwhile
            }
            if state.find(&config.name).is_ok() {
                return Err(Refused::Exists(format!("There is a source “{}” already.", config.name)));
            }
            if state.tiles.output(&config.name).is_some() {
                let text = format!("There is a picture of many sources “{}” already, in [[rtsp.tiles]].", config.name);
                return Err(Refused::Exists(text));
            }
            let all = || state.streams.iter().map(|stream| &*stream.config).chain([&config]);
            check_files(all())
                .and_then(|()| check_folders(all()))
                .map_err(|problem| Refused::Invalid(format!("Cannot add it: {}.", problem.text)))?;
            let models = models(&config, |name| find(&state.models, name)).map_err(invalid)?;
            let gpu = state.gpus.place(state.streams.iter().filter_map(|stream| stream.gpu));
            let stream = SourceStream::start(config, models, &self.archives, &state.asks, gpu, &self.threads);
            let stream = stream.map_err(invalid)?;
            state.streams.push(stream);
            state.streams_changed();
            state.tell_models();
            return Ok(());
        }
    }

    fn remove_source(&self, name: &str) -> Result<(), Refused> {
        let mut state = self.lock();
        let position = state.find(name)?;
        state.streams.remove(position).stop(removed());
        state.streams_changed();
        state.tell_models();
        log(name, "Removed.");
        Ok(())
    }

    fn models(&self) -> Vec<ModelStatus> {
        self.lock().models.iter().map(|model| model.shared.status()).collect()
    }

    fn galleries(&self) -> Vec<GalleryStatus> {
        galleries::all(&self.model_configs())
    }

    fn enrol(&self, gallery: &str, entry: &GalleryEntry) -> Result<EnrolledVector, Refused> {
        let length = self.lock().model(gallery).ok().and_then(|model| model.vector_length());
        galleries::enrol(&self.model_configs(), gallery, length, entry)
    }

    fn forget(&self, gallery: &str, name: &str) -> Result<(), Refused> {
        galleries::forget(&self.model_configs(), gallery, name)
    }

    fn identities(&self) -> ServedIdentities {
        self.lock().identities.clone()
    }

    fn replace_model(&self, name: &str, file: &Path) -> Result<(), Refused> {
        // Another source, configuration or model may come meanwhile, which was not looked at.
        while !self.put_file(name, &self.check_other_file(name, file)?)? {}
        Ok(())
    }

    fn watch(&self, source: &str) -> Result<watch::Receiver<Option<Bytes>>, Refused> {
        let state = self.lock();
        let stream = &state.streams[state.find(source)?];
        if stream.config.has_view {
            Ok(view::receive(&stream.pictures))
        } else {
            Err(Refused::Invalid("Pictures need [http] in the configuration.".into()))
        }
    }

    fn recordings(&self, filter: &RecordingFilter) -> Vec<Recording> {
        let found = self.archives.find(|entry| filter.is_wanted(entry));
        filter.newest(found, |found| &found.entry).iter().map(FoundRecording::read).collect()
    }

    fn recording(&self, file: &str) -> Result<PathBuf, Refused> {
        let unknown = || {
            let what = if file.ends_with(".jpg") { "snapshot" } else { "recording" };
            Refused::Unknown(format!("There is no {what} “{file}”. GET /{what}s lists them."))
        };
        self.archives.path(file).ok_or_else(unknown)
    }

    fn is_ready(&self) -> bool {
        let state = self.lock();
        state.models.iter().all(|model| model.shared.status().loaded)
            && state.streams.iter().all(|stream| stream.meter.is_settled())
            && self.lost_gpu().is_none()
    }

    fn lost_gpu(&self) -> Option<String> {
        driver::lost().map(|error| error.message())
    }
}

impl OutputControl for Service {
    fn output(&self, name: &str) -> Option<Output> {
        let state = self.lock();
        match state.find(name) {
            Ok(position) => Some(state.streams[position].output.clone()),
            Err(_) => state.tiles.output(name),
        }
    }
}
