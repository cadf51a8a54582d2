// SPDX-License-Identifier: MPL-2.0
//! Another model takes the place of the one in use, while frames pass.
//!
//! It is read and loaded in a thread of its own. Once it is loaded, each element that has the former one switches to it
//! between two frames: at once where both want the same tensors, else with the first caps for its tensors, which
//! upstream is asked for. That thread frees the former one when all have left it. A model that cannot be loaded changes
//! nothing.

use std::sync::{Arc, Weak};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gsttrt_core::backends::LoadRequest;
use gsttrt_core::backends::loader::ModelHandle;
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::device::Device;
use gsttrt_core::error::Result;

use super::life::Replacement;
use super::loading::{self, Loading};
use super::model::SharedModel;
use super::settings::Settings;
use super::sharing;
use super::started;
use super::{TrtInfer, messages};
use crate::gst::caps;

/// What is to take the place of a model.
pub struct ReplaceRequest {
    /// Of the element, with the new model.
    pub settings: Settings,
    /// The model in use. A load that never ends does not keep it.
    pub former: Weak<SharedModel>,
    /// Of that one; `None` on the CPU.
    pub gpu: Option<i32>,
    /// Width and height of the frames that tensors were last asked for.
    pub frame: Option<(u32, u32)>,
}

/// Begins to load another model.
///
/// # Errors
/// `Library`, where a thread cannot be started.
pub fn begin(element: &TrtInfer, request: ReplaceRequest) -> Result<Replacement> {
    let replacement = Replacement::default();
    let (wanted, element) = (Arc::downgrade(&replacement), element.downgrade());
    let work = move || {
        let outcome = request.load_request(&element).and_then(|load_request| {
            let Some(former) = request.former(&element) else { return Ok(None) };
            let model = Arc::new(former.another(load_request, &request.settings));
            drop(former);
            let handle = ModelHandle::take(&model.loader).expect("it is new");
            // Held only for a moment: the element may cancel it while the model is loaded.
            let Some(replacement) = wanted.upgrade() else { return Ok(None) };
            *replacement.lock().unwrap() = Some(handle);
            drop(replacement);
            model.loader.begin();
            let loading = Loading::new(element.clone(), &model);
            Ok(loading.run(&model, true)?.then_some((model, loading)))
        });
        let Some(handle) = wanted.upgrade().map(|replacement| replacement.lock().unwrap().take()) else { return };
        let Some((former, element)) = request.former(&element).zip(element.upgrade()) else { return };
        match outcome {
            Ok(Some((model, loading))) => {
                element.imp().report_backend(&model.request);
                let handle = handle.expect("only this thread takes it");
                let replaced = element.imp().set_successor(&former, model, handle);
                // A former model owns what keeps the one loaded that takes its place, so only its loader stays here.
                let replaced = replaced.map(|replaced| replaced.loader.clone());
                drop(former);
                drop(wanted); // it is in its place
                loading.complete();
                drop(element);
                // Freed here: TensorRT takes some 40 ms to free an engine, in which a streaming thread would hold its frame back,
                // and with it the first batch of the new model.
                drop(replaced.and_then(|loader| loader.take_once_left()));
            }
            Ok(None) => {}
            Err(error) => element.imp().keep_former(&request, &error),
        }
    };
    loading::spawn("trt-replace", work).map(|()| replacement)
}

impl ReplaceRequest {
    /// The model in use; another one, where that has taken its place in the meantime. Nothing, where nobody has it any more.
    fn former(&self, element: &glib::WeakRef<TrtInfer>) -> Option<Arc<SharedModel>> {
        let latest = || match self.settings.shared_model.is_empty() {
            true => element.upgrade()?.imp().model(),
            false => sharing::find(&self.settings, self.gpu),
        };
        self.former.upgrade().or_else(latest)
    }

    /// Reads the description, and checks what can be checked before the model is loaded.
    fn load_request(&self, element: &glib::WeakRef<TrtInfer>) -> Result<LoadRequest> {
        let cuda = || -> Result<Context> {
            let in_use = self.former.upgrade().and_then(|former| former.request.cuda.clone());
            in_use.map_or_else(|| element.upgrade().ok_or_else(messages::gone)?.imp().context(), Ok)
        };
        let request = started::describe(&self.settings, started::place(&self.settings, cuda)?)?;
        self.settings.without_effect(request.backend)?;
        // Nothing between would download them.
        let caps = element.upgrade().and_then(|element| element.sink_pad().current_caps());
        if request.device() == Device::Host && caps.is_some_and(|caps| caps::is_cuda(&caps)) {
            return Err(messages::frames_in_cuda_memory(request.backend, request.reason.as_deref()));
        }
        let Some(frame) = self.frame.filter(|_| request.waits_for_frames()) else { return Ok(request) };
        let former = self.former.upgrade();
        Ok(request.in_place_of(former.as_ref().map(|former| &former.request), frame))
    }
}
