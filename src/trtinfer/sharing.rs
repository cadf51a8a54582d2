// SPDX-License-Identifier: MPL-2.0
//! Models that elements share: those with the same `shared-model`, anywhere in the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use gsttrt_core::backends::LoadRequest;
use gsttrt_core::backends::loader::ModelHandle;
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::model::InputValues;

use super::life::OpeningTicket;
use super::loading;
use super::model::{SharedHandle, SharedModel};
use super::settings::Settings;
use crate::gst::model_check;

/// What a name stands for, as long as an element has such a model or waits for it to be read.
struct SharedName {
    /// Of the element that came first, or of the model that took the place of the one before.
    settings: Settings,
    /// Those whose place it took. An element that was made with them, and starts after the change, is not in error.
    former: Vec<Settings>,
    /// One for each GPU that frames come from.
    models: Vec<Weak<SharedModel>>,
    /// Of elements that wait for the model to be read.
    wanted: Vec<OpeningTicket>,
    /// Those that are being read, by the GPU that they are to be on.
    readings: Vec<(Option<i32>, Weak<SharedReading>)>,
}

static NAMES: Mutex<Vec<SharedName>> = Mutex::new(Vec::new());
/// A model is read, a name stands for another one, or an element does not wait any more.
static CHANGED: Condvar = Condvar::new();
/// Elements whose threads wait for a model that is read.
#[cfg(test)]
pub static WAITING: std::sync::LazyLock<crate::test::Waiters> = std::sync::LazyLock::new(Default::default);

/// All names, and models that were looked at: these are released after the lock, since that may wait for the GPU.
struct Names {
    all: MutexGuard<'static, Vec<SharedName>>,
    seen: Vec<Arc<SharedModel>>,
}

impl Settings {
    fn names_the_same(&self, other: &Settings) -> bool {
        (&self.shared_model, self.cuda_device_id) == (&other.shared_model, other.cuda_device_id)
    }
}

impl SharedName {
    fn new(settings: &Settings) -> Self {
        let (former, models, wanted, readings) = Default::default();
        SharedName { settings: settings.clone(), former, models, wanted, readings }
    }

    fn is_in_use(&mut self, seen: &mut Vec<Arc<SharedModel>>) -> bool {
        self.wanted.retain(OpeningTicket::is_wanted);
        self.readings.retain(|(_, reading)| reading.strong_count() > 0);
        self.models.retain(|model| {
            model.upgrade().is_some_and(|model| {
                // One that has failed has done so for all that come while an element has it: it is said once.
                // One of which a run does not end is loaded again for those who come.
                let is_wanted = !model.loader.is_cancelled() && !model.loader.is_given_up();
                seen.push(model);
                is_wanted
            })
        });
        !self.models.is_empty() || !self.wanted.is_empty()
    }

    /// `gpu` is where the frames are, as far as that is known and matters.
    fn model(&self, gpu: Option<i32>) -> Option<Arc<SharedModel>> {
        let is_there = |model: &SharedModel| gpu.is_none() || model.gpu().is_none() || model.gpu() == gpu;
        self.models.iter().filter_map(Weak::upgrade).find(|model| is_there(model))
    }

    /// A handle in the model.
    fn handle(&self, gpu: Option<i32>, seen: &mut Vec<Arc<SharedModel>>) -> Option<SharedHandle> {
        let model = self.model(gpu)?;
        seen.push(model.clone());
        SharedHandle::take(&model, false)
    }

    /// The name stands for another model since.
    fn is_former(&self, settings: &Settings) -> bool {
        self.settings.difference(settings).is_some() && self.former.iter().any(|of| of.difference(settings).is_none())
    }

    fn check(&self, settings: &Settings) -> Result<()> {
        let difference = self.settings.difference(settings).filter(|_| !self.is_former(settings));
        let Some((property, first, this)) = difference else { return Ok(()) };
        Err(Error::new(
            ErrorKind::Settings,
            format!("The shared model “{}” is in use with {property}={first}, not {this}", settings.shared_model),
        )
        .remedy("Give elements that share a model the same properties, or another name in shared-model"))
    }

    /// It stands for a model with these settings from now on.
    fn change(&mut self, settings: &Settings) {
        let former = std::mem::replace(&mut self.settings, settings.clone());
        self.former.retain(|other| other.difference(&former).is_some());
        self.former.push(former);
        self.readings.clear();
        CHANGED.notify_all();
    }

    /// Whether that model is still read for this name.
    fn reads(&self, reading: &Weak<SharedReading>) -> bool {
        self.readings.iter().any(|(_, other)| other.ptr_eq(reading))
    }
}

impl Names {
    fn lock() -> Self {
        Names { all: NAMES.lock().unwrap_or_else(PoisonError::into_inner), seen: Vec::new() }
    }

    fn find(&mut self, settings: &Settings) -> Option<(&mut SharedName, &mut Vec<Arc<SharedModel>>)> {
        self.all.retain_mut(|name| name.is_in_use(&mut self.seen));
        let name = self.all.iter_mut().find(|name| name.settings.names_the_same(settings))?;
        Some((name, &mut self.seen))
    }

    fn find_or_add(&mut self, settings: &Settings) -> (&mut SharedName, &mut Vec<Arc<SharedModel>>) {
        if self.find(settings).is_none() {
            self.all.push(SharedName::new(settings));
        }
        let name = self.all.iter_mut().find(|name| name.settings.names_the_same(settings));
        (name.expect("it was found or added"), &mut self.seen)
    }

    /// Lets a model take the place of another, the last one in its place. The handle is in the new one.
    fn replace(&mut self, last: &Arc<SharedModel>, model: Arc<SharedModel>, handle: ModelHandle) {
        if model.settings.is_shared() {
            let (name, _) = self.find_or_add(&model.settings);
            name.models.retain(|model| !std::ptr::eq(model.as_ptr(), &**last));
            name.models.push(Arc::downgrade(&model));
            if name.settings.difference(&model.settings).is_some() {
                name.change(&model.settings);
            }
        }
        last.succeed(model, handle);
    }

    /// The name, whether or not it is in use.
    fn named(&mut self, settings: &Settings) -> Option<&mut SharedName> {
        self.all.iter_mut().find(|name| name.settings.names_the_same(settings))
    }
}

/// The model that these settings name, if some element has it; the one on that GPU, where one is given.
pub fn find(settings: &Settings, gpu: Option<i32>) -> Option<Arc<SharedModel>> {
    let mut names = Names::lock();
    let (name, _) = names.find(settings)?;
    name.model(gpu)
}

/// The same model on other GPUs than this one.
pub fn on_other_gpus(settings: &Settings, model: &SharedModel) -> Vec<Arc<SharedModel>> {
    let mut names = Names::lock();
    let name = names.find(settings).map(|(name, _)| name);
    let models = name.iter().flat_map(|name| &name.models).filter_map(Weak::upgrade);
    models.filter(|other| other.gpu() != model.gpu()).collect()
}

/// A handle in the model that these settings name, where another element has it.
///
/// # Errors
/// `Settings`, where the name is in use with other settings.
pub fn join(settings: &Settings, gpu: Option<i32>) -> Result<Option<SharedHandle>> {
    let mut names = Names::lock();
    let Some((name, seen)) = names.find(settings) else { return Ok(None) };
    name.check(settings)?;
    Ok(name.handle(gpu, seen))
}

/// The same, or a handle in a new model. Nothing, where the name has come to stand for another model, or the element does not
/// want it any more.
///
/// # Errors
/// As [`join`], or as `open`.
pub fn join_or_open(
    settings: &Settings,
    gpu: Option<i32>,
    ticket: &OpeningTicket,
    open: impl FnOnce() -> Result<LoadRequest>,
) -> Result<Option<SharedHandle>> {
    if !settings.is_shared() {
        return Ok(Some(SharedHandle::first(SharedModel::new(open()?, settings))));
    }
    // Reading the file may take long and must not hold up other models. Of two elements that start together, both read
    // it then, unless they take turns.
    if let Some(joined) = join(settings, gpu)? {
        return Ok(Some(joined));
    }
    if current(settings).difference(settings).is_some() {
        return Ok(None);
    }
    let opened = open();
    let mut names = Names::lock();
    if let Some((name, seen)) = names.find(settings) {
        if name.is_former(settings) || !ticket.is_wanted() {
            return Ok(None);
        }
        name.check(settings)?;
        if let Some(joined) = name.handle(gpu, seen) {
            return Ok(Some(joined));
        }
    }
    let joined = SharedHandle::first(SharedModel::shared(opened?, settings));
    names.find_or_add(settings).0.models.push(Arc::downgrade(&joined.model));
    Ok(Some(joined))
}

/// The settings of the model that the name stands for now, where these are of one whose place it took.
pub fn current(settings: &Settings) -> Settings {
    let mut names = Names::lock();
    match names.find(settings) {
        Some((name, _)) if name.is_former(settings) => Settings { own: settings.own.clone(), ..name.settings.clone() },
        _ => settings.clone(),
    }
}

/// The element waits for the model to be read.
///
/// # Errors
/// As [`join`].
pub fn want(settings: &Settings, ticket: &OpeningTicket) -> Result<()> {
    if !settings.is_shared() {
        return Ok(());
    }
    let mut names = Names::lock();
    let (name, _) = names.find_or_add(settings);
    name.check(settings)?;
    name.wanted.push(ticket.clone());
    Ok(())
}

/// Another file was set on an element for which the model is still to be read: the name stands for that one from now on. Gives
/// the model that others have already, if there is one, whose place is to be taken as that of any model.
pub fn supersede(settings: &Settings, ticket: &OpeningTicket) -> Option<SharedHandle> {
    if !settings.is_shared() {
        return None;
    }
    let mut names = Names::lock();
    // Also of a name that nobody but this element has waited for: others may be made with the former settings already.
    if names.named(settings).is_none() {
        names.all.push(SharedName::new(settings));
    }
    let Names { all, seen } = &mut names;
    let name = all.iter_mut().find(|name| name.settings.names_the_same(settings)).expect("it was found or added");
    name.is_in_use(seen);
    let there = name.handle(None, seen);
    if there.is_none() {
        if name.settings.difference(settings).is_some() {
            name.change(settings);
        }
        name.wanted.push(ticket.clone());
    }
    there
}

/// Lets a loaded model take the place of another: each element that has the former one switches to it with its next frame,
/// and those that join later have it from the start. Gives the one whose place it has taken, which may have taken that of the
/// former one before. The handle is in the new one.
pub fn succeed(former: &Arc<SharedModel>, model: Arc<SharedModel>, handle: ModelHandle) -> Arc<SharedModel> {
    let mut names = Names::lock();
    let last = former.latest().clone();
    names.replace(&last, model, handle);
    drop(names);
    last.let_go();
    last
}

/// The model goes on with other values for its inputs: each element that has it does so with its next frame, and those that join
/// later have them from the start. False, where it has to be loaded for them.
///
/// # Errors
/// As [`LoadRequest::with_values`], and where a program does not want such classes.
pub fn change_values(former: &Arc<SharedModel>, values: &Arc<InputValues>) -> Result<bool> {
    if values.is_empty() && former.latest().request.values().is_empty() {
        return Ok(true); // it is as it was
    }
    // Not under the lock, since the program may do anything then.
    if let Some(model) = former.latest().with_values(values)? {
        model_check::check(&model.settings.shared_model, model.request.model())?;
    }
    let mut names = Names::lock();
    let last = former.latest().clone();
    let Some(model) = last.with_values(values)? else { return Ok(false) };
    // All have left a model that is just being read again.
    let Some(handle) = ModelHandle::take(&model.loader) else { return Ok(false) };
    names.replace(&last, Arc::new(model), handle);
    drop(names);
    last.let_go();
    Ok(true)
}

/// A model that takes long to read, in a thread that is of no element: whichever of those that wait for it leaves, the others get
/// it, and where the name comes to stand for another file, none of them waits for this one.
#[derive(Default)]
struct SharedReading {
    /// The handle keeps the model until each of them has its own.
    outcome: OnceLock<Result<SharedHandle>>,
    has_reporter: AtomicBool,
}

impl SharedReading {
    /// Begins to read a model for all that name it.
    fn begin(settings: &Settings, open: impl FnOnce() -> Result<LoadRequest> + Send + 'static) -> Result<Arc<Self>> {
        let reading = Arc::new(SharedReading::default());
        let (settings, wanted) = (settings.clone(), Arc::downgrade(&reading));
        loading::spawn("trt-read", move || {
            let outcome = open().map(|request| SharedHandle::first(SharedModel::shared(request, &settings)));
            let mut names = Names::lock();
            let name = names.named(&settings).filter(|name| name.reads(&wanted));
            // What nobody waits for is released after the lock.
            let Some((name, reading)) = name.zip(wanted.upgrade()) else { return };
            if let Ok(first) = &outcome {
                name.models.push(Arc::downgrade(&first.model));
            }
            let _ = reading.outcome.set(outcome); // it has none yet: only this thread sets it
            drop(names);
            CHANGED.notify_all();
        })?;
        Ok(reading)
    }

    /// Waits for the model; nothing, where the name comes to stand for another one, or the element does not want it any more.
    fn wait(self: &Arc<Self>, settings: &Settings, ticket: &OpeningTicket) -> Result<Option<SharedHandle>> {
        let this = Arc::downgrade(self);
        let mut names = Names::lock().all;
        #[cfg(test)]
        let _waiting = WAITING.enter();
        let outcome = loop {
            if !ticket.is_wanted() {
                return Ok(None);
            }
            if let Some(outcome) = self.outcome.get() {
                break outcome;
            }
            if !names.iter().any(|name| name.settings.names_the_same(settings) && name.reads(&this)) {
                return Ok(None);
            }
            names = CHANGED.wait(names).unwrap_or_else(PoisonError::into_inner);
        };
        drop(names);
        let first = outcome.as_ref().map_err(Error::clone)?;
        let is_reporter = !self.has_reporter.swap(true, Ordering::Relaxed);
        Ok(SharedHandle::take(&first.model, is_reporter)) // there is another one, so it is not cancelled
    }
}

/// The same for a model that takes long to read, for the thread of an element that is there for that.
///
/// # Errors
/// As [`join_or_open`], and `Library`, where a thread cannot be started.
pub fn join_or_read(
    settings: &Settings,
    gpu: Option<i32>,
    ticket: &OpeningTicket,
    open: impl FnOnce() -> Result<LoadRequest> + Send + 'static,
) -> Result<Option<SharedHandle>> {
    if !settings.is_shared() {
        return join_or_open(settings, gpu, ticket, open);
    }
    let mut names = Names::lock();
    let (name, seen) = names.find_or_add(settings);
    if name.is_former(settings) || !ticket.is_wanted() {
        return Ok(None);
    }
    name.check(settings)?;
    if let Some(joined) = name.handle(gpu, seen) {
        return Ok(Some(joined));
    }
    let there = name.readings.iter().find(|(of, _)| *of == gpu).and_then(|(_, reading)| reading.upgrade());
    let reading = match there {
        Some(reading) => reading,
        None => {
            let reading = SharedReading::begin(settings, open)?;
            name.readings.push((gpu, Arc::downgrade(&reading)));
            reading
        }
    };
    name.wanted.push(ticket.clone());
    drop(names);
    reading.wait(settings, ticket)
}

/// An element does not want its model any more: threads that wait for it to be read look again.
pub fn left() {
    drop(Names::lock());
    CHANGED.notify_all();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::super::life::ModelLife;
    use super::super::started::StartedModel;
    use super::*;

    /// A file that is never read to its end must not hold up elements with other models.
    #[test]
    fn reading_a_model_locks_no_other() {
        gst::init().unwrap();
        let named = |name: &str| Settings { shared_model: name.into(), ..Settings::default() };
        let (sender, done) = mpsc::channel();
        thread::spawn(move || {
            let life = ModelLife::<StartedModel>::default();
            let joined = join_or_open(&named("sharing-slow"), None, &life.start(), || {
                assert!(find(&named("sharing-other"), None).is_none());
                Err(Error::new(ErrorKind::Model, "It cannot be read"))
            });
            sender.send(joined.is_err())
        });
        assert!(done.recv_timeout(Duration::from_secs(30)).expect("it hangs"));
    }
}
