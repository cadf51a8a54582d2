// SPDX-License-Identifier: MPL-2.0
//! Models that elements share: those with the same `shared-model`, anywhere in the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use gsttrt_core::backends::LoadRequest;
use gsttrt_core::backends::loader::{ModelHandle, ModelLoader};
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::memory::BatchPool;

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
    loading: AtomicBool,
    /// The same for this model made again: for frames of another size, or in another CUDA context.
    successor: Arc<OnceLock<Arc<Successor>>>,
}

/// A loaded model that takes the place of another.
pub struct Successor {
    pub model: Arc<SharedModel>,
    /// Keeps it loaded until each element that has the former model has switched to it.
    _handle: ModelHandle,
}

impl Successor {
    pub fn new(model: Arc<SharedModel>, handle: ModelHandle) -> Self {
        Successor { model, _handle: handle }
    }
}

/// A model by its name and the GPU that it is on.
struct Shared {
    /// Of the element that came first.
    settings: Settings,
    /// Those of models whose place it took. An element that was made with them, and starts after the change, is not in error.
    former: Vec<Settings>,
    /// `None` on the CPU.
    gpu: Option<i32>,
    model: Weak<SharedModel>,
}

impl Shared {
    fn new(settings: &Settings, model: &Arc<SharedModel>) -> Self {
        Shared { settings: settings.clone(), former: Vec::new(), gpu: model.gpu(), model: Arc::downgrade(model) }
    }

    /// `gpu` is where the frames are, as far as that is known and matters.
    fn is_named(&self, settings: &Settings, gpu: Option<i32>) -> bool {
        self.settings.names_the_same(settings) && (gpu.is_none() || self.gpu.is_none() || self.gpu == gpu)
    }
}

static SHARED: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

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
            loading: AtomicBool::new(false),
            successor: Arc::default(),
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

    /// The same model made again has the same successor.
    pub fn inherit(self, former: &SharedModel) -> Self {
        SharedModel { successor: former.successor.clone(), ..self }
    }

    /// The model that is to take the place of this one, else this one.
    pub fn latest(&self) -> &SharedModel {
        self.successor().map_or(self, |successor| &successor.model)
    }

    /// The model that is to take the place of this one.
    pub fn successor(&self) -> Option<&Arc<Successor>> {
        self.successors().last()
    }

    /// All models that were to take the place of this one, the latest last.
    pub fn successors(&self) -> impl Iterator<Item = &Arc<Successor>> {
        std::iter::successors(self.successor.get(), |successor| successor.model.successor.get())
    }

    /// How long a frame may wait for others to fill its batch.
    pub fn latency(&self) -> Duration {
        self.settings.latency()
    }

    /// The GPU that it is on; `None` on the CPU.
    pub fn gpu(&self) -> Option<i32> {
        self.request.cuda.as_ref().map(Context::device)
    }

    /// Whether the caller is the one to load it. This need not be the element that read it, which may have stopped since.
    pub fn begin_loading(&self) -> bool {
        !self.loading.swap(true, Ordering::Relaxed)
    }
}

impl Settings {
    fn names_the_same(&self, other: &Settings) -> bool {
        (&self.shared_model, self.cuda_device_id) == (&other.shared_model, other.cuda_device_id)
    }
}

/// The model that these settings name, if some element has it; the one on that GPU, where one is given.
pub fn find(settings: &Settings, gpu: Option<i32>) -> Option<Arc<SharedModel>> {
    let shared = SHARED.lock().unwrap();
    shared.iter().filter(|shared| shared.is_named(settings, gpu)).find_map(|shared| shared.model.upgrade())
}

/// The same model on other GPUs than this one.
pub fn on_other_gpus(settings: &Settings, model: &SharedModel) -> Vec<Arc<SharedModel>> {
    if settings.shared_model.is_empty() {
        return Vec::new();
    }
    let shared = SHARED.lock().unwrap();
    let others = shared.iter().filter(|shared| shared.is_named(settings, None) && shared.gpu != model.gpu());
    others.filter_map(|shared| shared.model.upgrade()).collect()
}

/// A model, an element's handle in it, and whether this element is the first to have one.
pub type SharedHandle = (Arc<SharedModel>, ModelHandle, bool);

/// A handle in the model that these settings name, where another element has it.
///
/// # Errors
/// `Settings`, where the first one's settings are others.
pub fn join(settings: &Settings, gpu: Option<i32>) -> Result<Option<SharedHandle>> {
    // The lock is released before a model is, which may wait for the GPU.
    let there = handle(&SHARED.lock().unwrap(), settings, gpu);
    there.map(|there| there.agree(settings)).transpose()
}

/// The same, or a handle in a new model.
///
/// # Errors
/// As [`join`], or as `open`.
pub fn join_or_open(
    settings: &Settings,
    gpu: Option<i32>,
    open: impl FnOnce() -> Result<LoadRequest>,
) -> Result<SharedHandle> {
    let first = |model: SharedModel| {
        let model = Arc::new(model);
        let handle = ModelHandle::take(&model.loader).expect("it is new");
        (model, handle, true)
    };
    if settings.shared_model.is_empty() {
        return Ok(first(SharedModel::new(open()?, settings)));
    }
    // Reading the file may take long and must not hold up other models. Of two elements that start together, both read
    // it then, unless they take turns.
    if let Some(joined) = join(settings, gpu)? {
        return Ok(joined);
    }
    let model = SharedModel::shared(open()?, settings);
    let mut all = SHARED.lock().unwrap();
    if let Some(there) = handle(&all, settings, gpu) {
        drop(all); // a model that is released may wait for the GPU
        return there.agree(settings);
    }
    let joined = first(model);
    let added = Shared::new(settings, &joined.0);
    all.retain(|shared| shared.model.strong_count() > 0 && !shared.is_named(settings, added.gpu));
    all.push(added);
    Ok(joined)
}

/// Lets a loaded model take the place of another: each element that has the former one switches to it with its next frame,
/// and those that join later have it from the start.
pub fn succeed(former: &SharedModel, successor: Successor) {
    let mut all = SHARED.lock().unwrap();
    let last = former.successor().map_or(former, |successor| &successor.model);
    if let Some(shared) = all.iter_mut().find(|shared| std::ptr::eq(shared.model.as_ptr(), last)) {
        let next = Shared::new(&successor.model.settings, &successor.model);
        let replaced = std::mem::replace(shared, next);
        shared.former = replaced.former;
        shared.former.retain(|former| former.difference(&replaced.settings).is_some());
        shared.former.push(replaced.settings);
    }
    let taken = last.successor.set(Arc::new(successor));
    debug_assert!(taken.is_ok(), "the last one has none, and the list is locked");
}

/// What an element locks while it reads a model that takes long to read: others that are to share it wait, each in a
/// thread of its own, and find it read. Of a model that is not shared, nothing else locks it.
pub fn turn(settings: &Settings) -> Arc<Mutex<()>> {
    static TURNS: Mutex<Vec<(Settings, Weak<Mutex<()>>)>> = Mutex::new(Vec::new());
    let turn = Arc::default();
    if settings.shared_model.is_empty() {
        return turn;
    }
    let mut all = TURNS.lock().unwrap();
    all.retain(|(_, turn)| turn.strong_count() > 0);
    // With other settings it cannot be shared: another file does not wait for one that never ends.
    let same = |(of, _): &&(Settings, _)| of.names_the_same(settings) && of.difference(settings).is_none();
    if let Some(turn) = all.iter().find(same).and_then(|(_, turn)| turn.upgrade()) {
        return turn;
    }
    all.push((settings.clone(), Arc::downgrade(&turn)));
    turn
}

/// A handle in a model that another element has loaded or is loading.
struct FoundModel {
    model: Arc<SharedModel>,
    handle: ModelHandle,
    /// The first property by which the settings are not the same, with both values.
    difference: Option<(&'static str, String, String)>,
}

fn handle(all: &[Shared], settings: &Settings, gpu: Option<i32>) -> Option<FoundModel> {
    let shared = all.iter().find(|shared| shared.is_named(settings, gpu) && shared.model.strong_count() > 0)?;
    let model = shared.model.upgrade()?;
    let handle = ModelHandle::take(&model.loader)?;
    let is_former = shared.former.iter().any(|former| former.difference(settings).is_none());
    let difference = shared.settings.difference(settings).filter(|_| !is_former);
    Some(FoundModel { model, handle, difference })
}

impl FoundModel {
    fn agree(self, settings: &Settings) -> Result<SharedHandle> {
        let Some((property, first, this)) = self.difference else { return Ok((self.model, self.handle, false)) };
        Err(Error::new(
            ErrorKind::Settings,
            format!("The shared model “{}” is in use with {property}={first}, not {this}", settings.shared_model),
        )
        .remedy("Give elements that share a model the same properties, or another name in shared-model"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A file that is never read to its end must not hold up elements with other models.
    #[test]
    fn reading_a_model_locks_no_other() {
        let named = |name: &str| Settings { shared_model: name.into(), ..Settings::default() };
        let (sender, done) = mpsc::channel();
        thread::spawn(move || {
            let joined = join_or_open(&named("sharing-slow"), None, || {
                assert!(find(&named("sharing-other"), None).is_none());
                Err(Error::new(ErrorKind::Model, "It cannot be read"))
            });
            sender.send(joined.is_err())
        });
        assert!(done.recv_timeout(Duration::from_secs(30)).expect("it hangs"));
    }
}
