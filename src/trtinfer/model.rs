// SPDX-License-Identifier: MPL-2.0
//! A model as elements have it, and the one that takes its place.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gsttrt_core::backends::LoadRequest;
use gsttrt_core::backends::loader::{ModelHandle, ModelLoader};
use gsttrt_core::backends::options::INPUT_VALUES;
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::error::Result;
use gsttrt_core::memory::BatchPool;
use gsttrt_core::model::InputValues;
use gsttrt_core::options::OptionValue;

use super::settings::Settings;

/// A model and the state of its loading, of one element or of several.
#[derive(Clone)]
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
    kept: Arc<Mutex<Option<ModelHandle>>>,
}

/// A model, and an element's handle in it.
#[derive(Clone)]
pub struct SharedHandle {
    pub model: Arc<SharedModel>,
    pub handle: Arc<ModelHandle>,
    /// Whether the element reports where the model runs: one of those that have it does.
    pub is_reporter: bool,
}

impl SharedHandle {
    /// Nothing, where all others have left the model.
    pub fn take(model: &Arc<SharedModel>, is_reporter: bool) -> Option<Self> {
        let handle = Arc::new(ModelHandle::take(&model.loader)?);
        Some(SharedHandle { model: model.clone(), handle, is_reporter })
    }

    /// In a model that nobody has yet.
    pub fn first(model: SharedModel) -> Self {
        SharedHandle::take(&Arc::new(model), true).expect("it is new")
    }
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
            kept: Arc::default(),
        }
    }

    /// Of all that name it.
    pub fn shared(request: LoadRequest, settings: &Settings) -> Self {
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

    /// The same model, as it is loaded, with other values for its inputs; nothing, where it has to be loaded for them.
    ///
    /// # Errors
    /// As [`LoadRequest::with_values`].
    pub fn with_values(&self, values: &Arc<InputValues>) -> Result<Option<Self>> {
        let Some(request) = self.request.with_values(values)? else { return Ok(None) };
        let mut settings = self.settings.clone();
        settings.options.set(&INPUT_VALUES, OptionValue::Text(values.text().into()));
        Ok(Some(SharedModel { request, settings, ..self.to_load() }))
    }

    /// Whether that is the same model as it is loaded, whatever the values for its inputs are.
    pub fn is_same_loaded(&self, other: &SharedModel) -> bool {
        Arc::ptr_eq(&self.loader, &other.loader)
    }

    /// The same to be loaded, without what takes its place: a load that never ends must keep no other model.
    pub fn to_load(&self) -> Self {
        SharedModel { successor: Arc::default(), kept: Arc::default(), ..self.clone() }
    }

    /// The same model made again has the same successor.
    pub fn inherit(self, former: &SharedModel) -> Self {
        SharedModel { successor: former.successor.clone(), ..self }
    }

    /// The model that is to take the place of this one, else this one.
    pub fn latest(self: &Arc<Self>) -> &Arc<Self> {
        self.successor().unwrap_or(self)
    }

    /// The model that is to take the place of this one.
    fn successor(&self) -> Option<&Arc<SharedModel>> {
        std::iter::successors(self.successor.get(), |successor| successor.successor.get()).last()
    }

    /// The same, with a handle in it.
    pub fn next(&self) -> Option<SharedHandle> {
        loop {
            // Else another has taken its place in the meantime.
            if let Some(next) = SharedHandle::take(self.successor()?, false) {
                return Some(next);
            }
        }
    }

    /// A loaded model takes the place of this one, which has no successor yet.
    pub fn succeed(&self, by: Arc<SharedModel>, handle: ModelHandle) {
        *by.kept() = Some(handle);
        let is_another = !self.is_same_loaded(&by);
        let taken = self.successor.set(by);
        debug_assert!(taken.is_ok(), "the last one has none, and the list is locked");
        if is_another {
            self.loader.supersede();
        }
    }

    /// It stays loaded for those only that have it.
    pub fn let_go(&self) {
        let kept = self.kept().take();
        drop(kept); // not under the lock: it may be the last one
    }

    fn kept(&self) -> MutexGuard<'_, Option<ModelHandle>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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
