// SPDX-License-Identifier: MPL-2.0
//! A model: an element without a pipeline shares it, so that it is loaded before the first frame, stays loaded while
//! sources come and go, and can be replaced whether or not a source runs.

mod checks;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gst::prelude::*;
use gsttrt::gst::cuda::registry;
use gsttrt::gst::model_check::ModelCheck;
use gsttrt_publish::backoff::Backoff;

use super::changes::Stamp;
use super::config::{ModelConfig, SourceConfig};
use super::control::{Batches, ModelStatus};
use super::identities::ServedIdentities;
use super::log::{log, log_error, warn};
use crate::bus;
use crate::chain::{self, InferenceElements};
use crate::failure::Failure;
use crate::threads::Threads;

const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Warnings that are kept; those with other numbers in them are others.
pub const MAX_WARNED: usize = 32;

/// What sources know of their model.
pub struct ServedModel {
    /// `shared-model` of the elements. With other settings it is another model, so it has a number.
    name: String,
    state: Mutex<ModelState>,
    events: Mutex<Sender<ModelEvent>>,
}

/// The models of a source: the one that sees its frames, and those that see objects.
pub type ServedModels = Vec<Arc<ServedModel>>;

/// A file, and what it was when it was asked for: it may have another content since.
#[derive(Clone, Debug, PartialEq)]
struct StampedFile {
    path: PathBuf,
    stamp: Option<Stamp>,
}

struct ModelState {
    /// With the file that is in use.
    config: ModelConfig,
    /// The file that was asked for and is to take over.
    wanted: Option<StampedFile>,
    backend: Option<String>,
    is_loaded: bool,
    is_verified: Option<bool>,
    progress: Option<f64>,
    /// What is wrong, and with which file.
    error: Option<(PathBuf, String)>,
    /// Numbers of a vector of the file whose description was read last.
    vector_length: Option<(PathBuf, usize)>,
    /// Called once the model's own element was started; `None` since then.
    waiting: Option<Vec<Wake>>,
    /// What an element said last.
    told: Option<String>,
    /// What was warned of.
    warned: BTreeSet<String>,
    /// Its own elements, one for each GPU, which know what is run.
    elements: Vec<gst::glib::WeakRef<gst::Element>>,
    /// What it must find things for.
    sources: Vec<Arc<SourceConfig>>,
    /// Those that have its vectors.
    identities: ServedIdentities,
}

type Wake = Box<dyn FnOnce() + Send>;

enum ModelEvent {
    Message(gst::Message),
    /// Whichever element came first has loaded this file.
    Loaded(PathBuf),
    /// `model-file` of the element has changed.
    File(Option<PathBuf>),
    Replace(StampedFile),
    /// Sources are on that GPU.
    KeepOn(i32),
    Stop,
}

/// A model, and what can be done with it.
pub struct Model {
    pub shared: Arc<ServedModel>,
    _check: ModelCheck,
}

impl StampedFile {
    fn of(config: &ModelConfig) -> Self {
        StampedFile { path: config.file.clone(), stamp: config.stamp.clone() }
    }
}

impl ModelState {
    /// That file has taken over, or does not. One that was asked for since is still to do so.
    fn settle(&mut self, file: &StampedFile) {
        self.wanted.take_if(|wanted| wanted == file);
    }

    /// That file is in use from now on. Returns the one that was until now.
    fn put(&mut self, file: StampedFile) -> StampedFile {
        if self.identities.counts().is_some_and(|counts| counts.known > 0) {
            let text = "All objects of [identities] are forgotten: vectors of two models cannot be compared.";
            log(&self.config.name, text);
        }
        self.identities.forget_all(); // also what objects look like that have no id yet
        let former = StampedFile::of(&self.config);
        (self.config.file, self.config.stamp) = (file.path, file.stamp);
        former
    }
}

impl ServedModel {
    fn lock(&self) -> MutexGuard<'_, ModelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With the file that is in use.
    pub fn config(&self) -> ModelConfig {
        self.lock().config.clone()
    }

    /// With the file that is in use, and with the one that is to take over.
    pub fn configs(&self) -> Vec<ModelConfig> {
        let state = self.lock();
        let with = |StampedFile { path, stamp }| ModelConfig { file: path, stamp, ..state.config.clone() };
        let wanted = state.wanted.clone().map(with);
        std::iter::once(state.config.clone()).chain(wanted).collect()
    }

    /// The file that was asked for last: the one that is to take over or, where there is none, the one in use.
    fn wanted_file(&self) -> StampedFile {
        let state = self.lock();
        state.wanted.clone().unwrap_or_else(|| StampedFile::of(&state.config))
    }

    /// Whether that is another file than the one that was asked for last, or has another content since.
    pub fn is_other_file(&self, wanted: &ModelConfig) -> bool {
        self.wanted_file() != StampedFile::of(wanted)
    }

    /// It is kept on that GPU from now on, for a source there.
    pub fn keep_on(&self, gpu: i32) {
        self.send(ModelEvent::KeepOn(gpu));
    }

    /// They are emptied with another file. A model of the same name would be taken for the same one there.
    pub fn set_identities(&self, identities: ServedIdentities) {
        self.lock().identities = identities;
    }

    /// What it must find things for.
    pub fn sources(&self) -> Vec<Arc<SourceConfig>> {
        self.lock().sources.clone()
    }

    pub fn set_sources(&self, sources: Vec<Arc<SourceConfig>>) {
        self.lock().sources = sources;
    }

    pub fn shared_name(&self) -> &str {
        &self.name
    }

    pub fn status(&self) -> ModelStatus {
        // Its elements take locks of their own.
        let elements: Vec<_> = self.lock().elements.iter().filter_map(gst::glib::WeakRef::upgrade).collect();
        let batches = elements.iter().filter_map(batches).reduce(Batches::with);
        let ModelState { config, backend, is_loaded, is_verified, progress, error, .. } = &*self.lock();
        ModelStatus {
            name: config.name.clone(),
            file: config.file.clone(),
            on: config.on,
            backend: backend.clone(),
            loaded: *is_loaded,
            verified: *is_verified,
            progress: *progress,
            batches,
            error: error.as_ref().map(|(_, text)| text.clone()),
        }
    }

    pub fn is_loaded(&self) -> bool {
        self.lock().is_loaded
    }

    /// Whether its own element is still to be started, so that it is the first to have the model. What waits for that is
    /// woken then.
    pub fn is_to_start(&self, wake: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.lock();
        state.waiting.as_mut().map(|waiting| waiting.push(Box::new(wake))).is_some()
    }

    fn send(&self, event: ModelEvent) {
        let _ = self.events.lock().unwrap_or_else(PoisonError::into_inner).send(event); // its thread has ended
    }

    fn has_started(&self) {
        let waiting = self.lock().waiting.take();
        waiting.into_iter().flatten().for_each(|wake| wake());
    }

    /// What an element says about the model, once.
    pub fn tell(&self, text: &str) {
        let mut state = self.lock();
        if state.told.as_deref() != Some(text) {
            log(&state.config.name, text);
            state.told = Some(text.into());
        }
    }

    /// What is wrong with the model or its settings, once: elements of all its sources may say it.
    pub fn warn(&self, text: &str) {
        let mut state = self.lock();
        if state.warned.len() >= MAX_WARNED {
            state.warned.clear();
        }
        if state.warned.insert(text.into()) {
            warn(&state.config.name, text);
        }
    }

    /// A progress message of an element that loads it; whichever came first does.
    pub fn note(&self, message: &gst::message::Progress) {
        let Some((kind, text)) = bus::progress(message) else { return };
        let mut state = self.lock();
        match kind {
            gst::ProgressType::Continue => state.progress = percent(text).map(|percent| percent / 100.0),
            gst::ProgressType::Complete => {
                (state.is_loaded, state.progress) = (true, None);
                if let Some(file) = file_of(message) {
                    state.error.take_if(|(of, _)| *of == file); // it is tried again until it is there
                    self.send(ModelEvent::Loaded(file));
                }
            }
            gst::ProgressType::Error | gst::ProgressType::Canceled => state.progress = None,
            _ => {}
        }
        if kind != gst::ProgressType::Continue {
            let say = if kind == gst::ProgressType::Error { log_error } else { log };
            say(&state.config.name, &format!("{text}."));
        }
    }
}

/// What the model has run so far, of all who share it.
fn batches(infer: &gst::Element) -> Option<Batches> {
    let stats = infer.property::<gst::Structure>("stats");
    let count = |name| stats.get::<u64>(name).ok();
    let (runs, frames, late) = (count("batches")?, count("batched")?, count("batches-late")?);
    (runs > 0).then(|| Batches { size: infer.property("batch-size"), runs, frames, late })
}

/// The file that is loaded.
fn file_of(message: &gst::message::Progress) -> Option<PathBuf> {
    message.structure()?.get::<&str>("file").ok().map(PathBuf::from)
}

/// The number in `… (42 %)`.
fn percent(text: &str) -> Option<f64> {
    text.strip_suffix(" %)")?.rsplit_once('(')?.1.parse().ok()
}

impl Model {
    /// Returns at once: a disk may take long to give its file, and a library to start.
    pub fn start(
        config: ModelConfig,
        number: u64,
        sources: Vec<Arc<SourceConfig>>,
        threads: &Threads,
    ) -> Result<Self, Failure> {
        let (subject, thread_name) = (format!("the model {}", config.name), format!("model-{}", config.name));
        let (model, events) = Self::new(config, number, sources);
        let shared = model.shared.clone();
        let thread = ModelThread {
            shared,
            events,
            gpus: BTreeSet::from([0]),
            replacing: None,
            former: None,
            has_loaded: false,
            again: None,
        };
        threads.spawn(thread_name, &subject, move || thread.work())?;
        Ok(model)
    }

    /// One without its thread, and what that is to do.
    fn new(config: ModelConfig, number: u64, sources: Vec<Arc<SourceConfig>>) -> (Self, Receiver<ModelEvent>) {
        let name = format!("{}#{number}", config.name);
        let state = ModelState {
            config,
            wanted: None,
            backend: None,
            is_loaded: false,
            is_verified: None,
            progress: None,
            error: None,
            vector_length: None,
            waiting: Some(Vec::new()),
            told: None,
            warned: BTreeSet::new(),
            elements: Vec::new(),
            sources,
            identities: ServedIdentities::default(),
        };
        let (sender, events) = channel();
        let shared = Arc::new(ServedModel { name, state: Mutex::new(state), events: Mutex::new(sender) });
        let checked = Arc::downgrade(&shared);
        let check = ModelCheck::new(shared.shared_name(), move |info| {
            checked.upgrade().map_or(Ok(()), |shared: Arc<ServedModel>| shared.check_info(info))
        });
        (Model { shared, _check: check }, events)
    }

    /// One that does nothing, and tells the files that it was asked for since it was looked at last.
    #[cfg(test)]
    pub fn idle(config: ModelConfig) -> (Self, impl Fn() -> Vec<PathBuf>) {
        let (model, events) = Self::new(config, 0, Vec::new());
        let file = |event: ModelEvent| if let ModelEvent::Replace(file) = event { Some(file.path) } else { None };
        (model, move || events.try_iter().filter_map(file).collect::<Vec<_>>())
    }

    /// With what the file is now.
    pub fn replace(&self, file: &Path, stamp: Option<Stamp>) {
        let wanted = StampedFile { path: file.into(), stamp };
        self.shared.lock().wanted = Some(wanted.clone());
        self.shared.send(ModelEvent::Replace(wanted));
    }

    pub fn stop(&self) {
        self.shared.send(ModelEvent::Stop);
    }
}

/// Elements that share the model, on each GPU that it is kept on. Dropping them stops them.
struct KeptElements(Vec<gst::Element>);

impl KeptElements {
    fn are_source_of(&self, message: &gst::Message) -> bool {
        self.0.iter().any(|element| message.src() == Some(element.upcast_ref()))
    }
}

impl Drop for KeptElements {
    fn drop(&mut self) {
        for element in &self.0 {
            let _ = element.set_state(gst::State::Null);
            element.set_bus(None);
        }
    }
}

struct ModelThread {
    shared: Arc<ServedModel>,
    events: Receiver<ModelEvent>,
    /// Where it is kept.
    gpus: BTreeSet<i32>,
    /// The file that is to take over, and the last warning about it.
    replacing: Option<(StampedFile, Option<String>)>,
    /// The file to go back to, where the one that is tried fails.
    former: Option<StampedFile>,
    /// Whether a file was loaded since the last failure.
    has_loaded: bool,
    /// Another content at the path of the file that is still loaded. It comes once that is done: by the path alone, nobody could
    /// tell which of both has taken over.
    again: Option<StampedFile>,
}

impl ModelThread {
    fn work(mut self) {
        let mut elements = self.start_elements();
        // While the model is loaded, and before there are frames that would wait. What fails is said by those who need it.
        registry::alive().iter().for_each(|context| drop(context.load_kernels()));
        self.shared.has_started();
        let mut backoff = Backoff::between(RETRY.0, RETRY.1);
        loop {
            let event = match &elements {
                Some(_) => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                None => self.events.recv_timeout(backoff.wait()),
            };
            match event {
                // Of one that is stopped already.
                Ok(ModelEvent::Message(message))
                    if !elements.as_ref().is_some_and(|elements| elements.are_source_of(&message)) => {}
                Ok(ModelEvent::Message(message)) => {
                    if self.is_failure(&message) {
                        drop(elements.take());
                        elements = self.other_file().and_then(|()| self.start_elements());
                    }
                }
                Ok(ModelEvent::Loaded(file)) => {
                    backoff = Backoff::between(RETRY.0, RETRY.1);
                    elements = self.loaded(&file, elements);
                }
                Ok(ModelEvent::File(file)) => self.file_changed(file),
                Ok(ModelEvent::Replace(file)) => elements = self.replace(file, elements),
                Ok(ModelEvent::KeepOn(gpu)) => {
                    if self.gpus.insert(gpu)
                        && let Some(elements) = &mut elements
                    {
                        elements.0.extend(self.start_element(gpu));
                    }
                }
                Ok(ModelEvent::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => elements = self.start_elements(),
            }
        }
    }

    /// Begins to put that file in the place of the one in use. Returns the elements that there are then.
    fn replace(&mut self, file: StampedFile, elements: Option<KeptElements>) -> Option<KeptElements> {
        let Some(elements) = elements else {
            let mut state = self.shared.lock();
            state.settle(&file);
            state.put(file);
            drop(state);
            return self.start_elements();
        };
        let mut state = self.shared.lock();
        self.again = None;
        if !self.has_loaded && state.config.file == file.path {
            self.again = Some(file);
        } else {
            state.warned.clear(); // of another attempt
            state.error = None;
            drop(state);
            self.replacing = Some((file.clone(), None));
            // It takes over on all GPUs.
            elements.0[0].set_property("model-file", file.path);
        }
        Some(elements)
    }

    /// An element has loaded that file. Returns the elements that there are then.
    fn loaded(&mut self, file: &Path, mut elements: Option<KeptElements>) -> Option<KeptElements> {
        if self.has_taken_over(file) {
            // Those that take their place have the new model alone, and let the former one go.
            let next = self.start_elements();
            elements = next;
        }
        self.has_loaded = true;
        match self.again.take() {
            Some(again) => self.replace(again, elements),
            None => elements,
        }
    }

    /// Elements that have the model, where that does not fail at once.
    fn start_elements(&self) -> Option<KeptElements> {
        self.shared.lock().elements.clear();
        let elements: Vec<_> = self.gpus.iter().filter_map(|gpu| self.start_element(*gpu)).collect();
        Some(KeptElements(elements)).filter(|elements| !elements.0.is_empty())
    }

    fn start_element(&self, gpu: i32) -> Option<gst::Element> {
        let config = self.shared.config();
        // Set as in each source, and taken out of the launch line.
        let elements = InferenceElements { first: config.elements(), ..InferenceElements::default() };
        let made = chain::parse(&elements.launch_line(false)).and_then(|pipeline| {
            elements.configure(&pipeline);
            let infer = chain::element(&pipeline, "infer");
            pipeline.remove(&infer)?;
            Ok(infer)
        });
        let infer = made.inspect_err(|failure| self.fail(self.shared.config().file, &failure.to_string())).ok()?;
        infer.set_property("shared-model", self.shared.shared_name());
        let bus = gst::Bus::new();
        let (messages, files) = (self.shared.clone(), self.shared.clone());
        bus.set_sync_handler(move |_, message| {
            messages.send(ModelEvent::Message(message.clone()));
            gst::BusSyncReply::Drop
        });
        infer.set_bus(Some(&bus));
        infer.connect_notify(Some("model-file"), move |infer, _| {
            files.send(ModelEvent::File(infer.property("model-file")));
        });
        // On the first one by itself.
        if gpu > 0
            && let Ok(context) = gsttrt::cuda_context(gpu as u32)
        {
            infer.set_context(&context);
        }
        self.shared.lock().elements.push(infer.downgrade());
        // What is wrong is on the bus.
        let _ = infer.set_state(gst::State::Paused);
        Some(infer)
    }

    fn fail(&self, file: PathBuf, error: &str) {
        let mut state = self.shared.lock();
        log_error(&state.config.name, error);
        (state.is_loaded, state.progress) = (false, None);
        state.error = Some((file, error.into()));
    }

    /// Another file was to take over when the element failed: that one is tried, unless it is what has failed, and then the former
    /// one again.
    fn other_file(&mut self) -> Option<()> {
        let mut state = self.shared.lock();
        self.has_loaded = false;
        if let Some(again) = self.again.take() {
            self.replacing = None;
            state.settle(&again);
            state.put(again); // it is what is read now
            return Some(());
        }
        let Some((wanted, _)) = self.replacing.take() else {
            state.put(self.former.take()?);
            return Some(());
        };
        state.settle(&wanted);
        if wanted.path == state.config.file {
            state.put(wanted); // it is read again, whichever of its contents has failed
        } else if state.error.as_ref().is_none_or(|(file, _)| *file != wanted.path) {
            self.former = Some(state.put(wanted));
        }
        Some(())
    }

    /// Whether the element can do no more.
    fn is_failure(&mut self, message: &gst::Message) -> bool {
        match message.view() {
            gst::MessageView::Error(error) => {
                let of = error.details().and_then(|details| details.get::<&str>("file").ok()).map(PathBuf::from);
                self.fail(of.unwrap_or_else(|| self.shared.config().file), &error.error().to_string());
                return true;
            }
            gst::MessageView::Warning(warning) => {
                let text = warning.error().to_string();
                self.shared.warn(&text);
                if let Some((_, last)) = &mut self.replacing {
                    *last = Some(text);
                }
            }
            gst::MessageView::Info(info) => self.shared.tell(&info.error().to_string()),
            gst::MessageView::Progress(progress) => self.shared.note(progress),
            _ => {}
        }
        if let Some(source) = message.src().and_then(|source| source.downcast_ref::<gst::Element>())
            && let Some(info) = source.property::<Option<gst::Structure>>("model-info")
        {
            let mut state = self.shared.lock();
            state.backend = info.get("backend").ok();
            let verified =
                info.get::<gst::Structure>("verified").ok().filter(|verified| verified.has_field("reference"));
            state.is_verified = verified.and_then(|verified| verified.get("passed").ok());
        }
        false
    }

    /// Whether this is the file that is to take over. The one that was there before may be loaded only now.
    fn has_taken_over(&mut self, file: &Path) -> bool {
        self.former = None;
        let Some((wanted, _)) = self.replacing.take_if(|(wanted, _)| wanted.path == file) else { return false };
        let mut state = self.shared.lock();
        state.settle(&wanted);
        state.put(wanted);
        state.error = None;
        true
    }

    /// An element that keeps its model sets its file back.
    fn file_changed(&mut self, file: Option<PathBuf>) {
        let Some((wanted, Some(_))) = &self.replacing else { return };
        let mut state = self.shared.lock();
        // With another content at the same path, there is no other name to go back to.
        let is_same = state.config.file == wanted.path;
        let Some(kept) = file.filter(|file| is_same || *file != wanted.path) else { return };
        state.settle(wanted);
        state.config.file = kept;
        state.error = self.replacing.take().and_then(|(wanted, problem)| Some((wanted.path, problem?)));
    }
}
