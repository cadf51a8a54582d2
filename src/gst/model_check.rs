// SPDX-License-Identifier: MPL-2.0
//! What a program wants of the models that its elements share, by the name of each in `shared-model`. A model is checked once its
//! description is read, before it is loaded: one that takes the place of another then changes nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gsttrt_core::error::Result;
use gsttrt_core::model::ModelInfo;

type Check = Arc<dyn Fn(&ModelInfo) -> Result<()> + Send + Sync>;

static CHECKS: Mutex<Vec<(String, Check)>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<(String, Check)>> {
    CHECKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A check of the models of a name, as long as this is there.
pub struct ModelCheck(String);

impl ModelCheck {
    pub fn new(shared_model: &str, check: impl Fn(&ModelInfo) -> Result<()> + Send + Sync + 'static) -> Self {
        all().push((shared_model.into(), Arc::new(check)));
        ModelCheck(shared_model.into())
    }
}

impl Drop for ModelCheck {
    fn drop(&mut self) {
        let mut all = all();
        let place = all.iter().position(|(name, _)| *name == self.0);
        let check = place.map(|place| all.remove(place));
        drop(all); // what it holds is not dropped under the lock
        drop(check);
    }
}

/// # Errors
/// Those of the checks for that name.
pub(crate) fn check(shared_model: &str, model: &ModelInfo) -> Result<()> {
    let wanted: Vec<Check> =
        all().iter().filter(|(name, _)| name == shared_model).map(|(_, check)| check.clone()).collect();
    wanted.iter().try_for_each(|check| check(model))
}
