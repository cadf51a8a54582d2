//! Models that elements have in common: those with the same `shared-model`, anywhere in the process.

use std::sync::{Arc, Mutex, Weak};

use super::opening::{ModelHandle, ModelLoader};
use super::settings::Settings;
use crate::backends::{LoadContext, LoadRequest};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::memory::BatchPool;

/// A model and how its loading goes, of one element or of several.
pub struct SharedModel {
    pub plan: LoadRequest,
    /// Where pictures lie, those of a batch side by side.
    pub slots: Option<BatchPool>,
    pub opening: Arc<ModelLoader>,
    /// As for [`LoadContext`].
    pub lanes: usize,
}

struct Shared {
    /// Of the element that came first.
    settings: Settings,
    model: Weak<SharedModel>,
}

static SHARED: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

impl SharedModel {
    /// Of one element.
    pub fn new(plan: LoadRequest) -> Self {
        let slots = plan.cuda.as_ref().map(|cuda| {
            let bytes = plan.spec.desc.bytes().expect("the specification has fixed dimensions");
            BatchPool::new(cuda, bytes, plan.batch)
        });
        SharedModel { plan, slots, opening: Arc::default(), lanes: 1 }
    }

    /// Of all that name it.
    fn shared(plan: LoadRequest) -> Self {
        let lanes = if plan.batch == 1 { LoadContext::SHARED_LANES } else { 1 };
        SharedModel { lanes, ..SharedModel::new(plan) }
    }
}

impl Settings {
    fn names_the_same(&self, other: &Settings) -> bool {
        (&self.shared_model, self.cuda_device_id) == (&other.shared_model, other.cuda_device_id)
    }
}

/// The model that these settings name, if some element has it.
pub fn find(settings: &Settings) -> Option<Arc<SharedModel>> {
    let shared = SHARED.lock().unwrap();
    shared.iter().find(|shared| shared.settings.names_the_same(settings))?.model.upgrade()
}

/// A seat in the model that these settings name, and whether this element is the first to have one, and so the one to load it.
///
/// # Errors
/// `Settings`, where the first one's settings are others; else as `open`.
pub fn join(
    settings: &Settings,
    open: impl FnOnce() -> Result<LoadRequest>,
) -> Result<(Arc<SharedModel>, ModelHandle, bool)> {
    let first = |model: SharedModel| {
        let model = Arc::new(model);
        let seat = ModelHandle::take(&model.opening).expect("nobody has left it");
        (model, seat, true)
    };
    if settings.shared_model.is_empty() {
        return Ok(first(SharedModel::new(open()?)));
    }
    // Locked while the model's description is read, or two elements that start together would both be first.
    let mut all = SHARED.lock().unwrap();
    let found = all.iter().find(|shared| shared.settings.names_the_same(settings));
    let joined = found.and_then(|shared| {
        let model = shared.model.upgrade()?;
        let seat = ModelHandle::take(&model.opening)?;
        Some((shared.settings.difference(settings), model, seat))
    });
    match joined {
        Some((None, model, seat)) => Ok((model, seat, false)),
        Some((Some((property, first, this)), ..)) => Err(Error::new(
            ErrorKind::Settings,
            format!("The shared model “{}” is in use with {property}={first}, not {this}", settings.shared_model),
        )
        .remedy("Give elements that share a model the same properties, or another name in shared-model")),
        None => {
            let joined = first(SharedModel::shared(open()?));
            all.retain(|shared| shared.model.strong_count() > 0 && !shared.settings.names_the_same(settings));
            all.push(Shared { settings: settings.clone(), model: Arc::downgrade(&joined.0) });
            Ok(joined)
        }
    }
}
