// SPDX-License-Identifier: MPL-2.0
//! Models that elements share: those with the same `shared-model`, anywhere in the process.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use gsttrt_core::backends::LoadRequest;
use gsttrt_core::backends::loader::{ModelHandle, ModelLoader};
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::memory::BatchPool;

use super::life::OpeningTicket;
use super::settings::Settings;

/// A model and the state of its loading, of one element or of several.
pub struct SharedModel {
    pub request: LoadRequest,
    /// With which it is loaded. What is an element's own does not count.
    pub settings: Settings,
    /// Where pictures lie, those of a batch side by side.
    pub slots: Option<BatchPool>,
    pub loader: Arc<ModelLoader>,
    /// As for [`LoadContext`](gsttrt_core::backends::LoadContext).
    pub contexts: usize,
    /// The model that takes its place. The same for this model made again: for frames of another size, or in another CUDA context.
    successor: Arc<OnceLock<Arc<SharedModel>>>,
    /// Keeps one that takes the place of another loaded until each element has switched to it, or another one takes its own place:
    /// an element without frames would keep all of them loaded.
    kept: Mutex<Option<ModelHandle>>,
}

/// A model that an element is to switch to, and its handle in it.
#[derive(Clone)]
pub struct NextModel {
    pub model: Arc<SharedModel>,
    pub handle: Arc<ModelHandle>,
}

impl SharedModel {
    /// Of one element.
    pub fn new(request: LoadRequest, settings: &Settings) -> Self {
        let contexts = request.contexts(false);
        let slots = request.cuda.as_ref().map(|cuda| {
            let bytes = request.spec.desc.bytes().expect("the specification has fixed dimensions");
            BatchPool::new(cuda, bytes, request.batch)
        });
        SharedModel {
            request,
            settings: settings.clone(),
            slots,
            loader: Arc::default(),
            contexts,
            successor: Arc::default(),
            kept: Mutex::default(),
        }
    }

    /// Of all that name it.
    fn shared(request: LoadRequest, settings: &Settings) -> Self {
        let contexts = request.contexts(true);
        SharedModel { contexts, ..SharedModel::new(request, settings) }
    }

    /// One that is to take the place of this one.
    pub fn another(&self, request: LoadRequest, settings: &Settings) -> Self {
        let another = match settings.shared_model.is_empty() {
            true => SharedModel::new(request, settings),
            false => SharedModel::shared(request, settings),
        };
        // Tensors that are made already lie in these.
        let slots = self.slots.clone().filter(|slots| another.slots.as_ref().is_some_and(|new| new.is_like(slots)));
        SharedModel { slots: slots.or(another.slots), ..another }
    }

    /// The same to be loaded, without what takes its place: a load that never ends must keep no other model.
    pub fn to_load(&self) -> Self {
        let SharedModel { request, settings, slots, loader, contexts, .. } = self;
        let (request, settings, slots, loader) = (request.clone(), settings.clone(), slots.clone(), loader.clone());
        SharedModel {
            request,
            settings,
            slots,
            loader,
            contexts: *contexts,
            successor: Arc::default(),
            kept: Mutex::default(),
        }
    }

    /// The same model made again has the same successor.
    pub fn inherit(self, former: &SharedModel) -> Self {
        SharedModel { successor: former.successor.clone(), ..self }
    }

    /// The model that is to take the place of this one, else this one.
    pub fn latest(&self) -> &SharedModel {
        self.successor().map_or(self, |successor| successor)
    }

    /// The model that is to take the place of this one.
    fn successor(&self) -> Option<&Arc<SharedModel>> {
        std::iter::successors(self.successor.get(), |successor| successor.successor.get()).last()
    }

    /// The same, with a handle in it.
    pub fn next(&self) -> Option<NextModel> {
        loop {
            let model = self.successor()?.clone();
            // Else another has taken its place in the meantime.
            if let Some(handle) = ModelHandle::take(&model.loader) {
                return Some(NextModel { model, handle: Arc::new(handle) });
            }
        }
    }

    fn keep(&self, handle: Option<ModelHandle>) {
        let former = std::mem::replace(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner), handle);
        drop(former); // not under the lock: it may be the last one
    }

    /// How long a frame may wait for others to fill its batch.
    pub fn latency(&self) -> Duration {
        self.settings.latency()
    }

    /// The GPU that it is on; `None` on the CPU.
    pub fn gpu(&self) -> Option<i32> {
        self.request.cuda.as_ref().map(Context::device)
    }
}

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
    /// Of the one whose thread reads it.
    reader: Option<OpeningTicket>,
}

static NAMES: Mutex<Vec<SharedName>> = Mutex::new(Vec::new());
/// A thread no longer reads the model of a name, or it is another one.
static CHANGED: Condvar = Condvar::new();

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
        let (former, models, wanted, reader) = Default::default();
        SharedName { settings: settings.clone(), former, models, wanted, reader }
    }

    fn is_in_use(&mut self, seen: &mut Vec<Arc<SharedModel>>) -> bool {
        self.wanted.retain(OpeningTicket::is_wanted);
        self.models.retain(|model| {
            model.upgrade().is_some_and(|model| {
                // One that has failed has done so for all that come while an element has it: it is said once.
                let is_wanted = !model.loader.is_cancelled();
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
        let handle = ModelHandle::take(&model.loader)?;
        Some((model, Arc::new(handle), false))
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
        self.reader = None;
        CHANGED.notify_all();
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

    fn find_or_add(&mut self, settings: &Settings) -> &mut SharedName {
        if self.find(settings).is_none() {
            self.all.push(SharedName::new(settings));
        }
        self.named(settings).expect("it was found or added")
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

/// A model, an element's handle in it, and whether this element is the first to have one.
pub type SharedHandle = (Arc<SharedModel>, Arc<ModelHandle>, bool);

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
    let first = |model: SharedModel| {
        let model = Arc::new(model);
        let handle = ModelHandle::take(&model.loader).expect("it is new");
        (model, Arc::new(handle), true)
    };
    if settings.shared_model.is_empty() {
        return Ok(Some(first(SharedModel::new(open()?, settings))));
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
    let joined = first(SharedModel::shared(opened?, settings));
    names.find_or_add(settings).models.push(Arc::downgrade(&joined.0));
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
    if settings.shared_model.is_empty() {
        return Ok(());
    }
    let mut names = Names::lock();
    let name = names.find_or_add(settings);
    name.check(settings)?;
    name.wanted.push(ticket.clone());
    Ok(())
}

/// Another file was set on an element for which the model is still to be read: the name stands for that one from now on. Gives
/// the model that others have already, if there is one, whose place is to be taken as that of any model.
pub fn supersede(settings: &Settings, ticket: &OpeningTicket) -> Option<SharedHandle> {
    if settings.shared_model.is_empty() {
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
    let last = former.successor().unwrap_or(former).clone();
    if !model.settings.shared_model.is_empty() {
        let name = names.find_or_add(&model.settings);
        name.models.retain(|model| !std::ptr::eq(model.as_ptr(), &*last));
        name.models.push(Arc::downgrade(&model));
        if name.settings.difference(&model.settings).is_some() {
            name.change(&model.settings);
        }
    }
    model.keep(Some(handle));
    let taken = last.successor.set(model);
    debug_assert!(taken.is_ok(), "the last one has none, and the list is locked");
    last.loader.supersede();
    drop(names);
    last.keep(None);
    last
}

/// An element reads a model that takes long to read: others that are to share it wait, each in a thread of its own, and find it
/// read.
pub struct ReadingTurn<'a> {
    settings: &'a Settings,
    ticket: &'a OpeningTicket,
}

impl<'a> ReadingTurn<'a> {
    /// Waits until no other element reads the model; nothing, where this one does not want it any more. With other settings it
    /// cannot be shared: another file does not wait for one that never ends.
    pub fn wait(settings: &'a Settings, ticket: &'a OpeningTicket) -> Option<Self> {
        let turn = ReadingTurn { settings, ticket };
        if settings.shared_model.is_empty() {
            return ticket.is_wanted().then_some(turn);
        }
        let mut names = Names::lock().all;
        loop {
            if !ticket.is_wanted() {
                return None;
            }
            let name = names.iter_mut().find(|name| name.settings.names_the_same(settings));
            // Only the reader of these settings is waited for.
            let Some(name) = name.filter(|name| name.settings.difference(settings).is_none()) else {
                return Some(turn);
            };
            if !name.reader.as_ref().is_some_and(OpeningTicket::is_wanted) {
                name.reader = Some(ticket.clone());
                return Some(turn);
            }
            names = CHANGED.wait(names).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for ReadingTurn<'_> {
    fn drop(&mut self) {
        let mut names = Names::lock();
        if let Some(name) = names.named(self.settings)
            && name.reader.as_ref().is_some_and(|reader| reader.is(self.ticket))
        {
            name.reader = None;
        }
        drop(names);
        CHANGED.notify_all();
    }
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
