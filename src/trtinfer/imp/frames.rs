// SPDX-License-Identifier: MPL-2.0
//! How a model follows its frames: to tensors of another size, and to another CUDA context.

use gst::subclass::prelude::*;
use gsttrt_core::backends::Interrupted;
use gsttrt_core::tensor::{Dims, Tensor};

use super::super::life::Reading;
use super::super::started::ReadOutcome;
use super::super::{loading, messages};
use super::{CAT, TrtInfer};
use crate::gst::report::Report;

impl TrtInfer {
    /// Where the tensor lies in another CUDA context than the model, the model is loaded there: that context is the
    /// decoder's, and the others must follow. To a model that others use too, the tensor is copied.
    ///
    /// # Errors
    /// [`Interrupted::Flushing`], where the wait for it ends early.
    pub(super) fn follow(&self, tensor: &Tensor) -> std::result::Result<(), Interrupted> {
        let Some(session) = self.session() else { return Ok(()) };
        let (Some(have), Some(memory)) = (&session.model.request.cuda, tensor.device()) else { return Ok(()) };
        let settings = self.settings.lock().unwrap().clone();
        if have == memory.context() {
            return Ok(());
        }
        let is_shared = settings.is_shared();
        if is_shared && have.device() == memory.context().device() {
            let has_warned = std::mem::replace(&mut self.running.lock().unwrap().warned_copied, true);
            if !has_warned {
                self.obj().post_warning(&messages::copied());
            }
            return Ok(());
        }
        self.cuda.follow(memory.context(), settings.cuda_device_id)?;
        gst::info!(CAT, imp = self, "going on with the model in the context of its tensors");
        self.running.lock().unwrap().let_go(&session);
        let ticket = self.life.reopen().ok_or(Interrupted::Flushing)?;
        // An engine is deserialised there again.
        let context = memory.context().clone();
        let file = session.model.request.model().path.clone();
        self.read(ticket, Reading::Again, file, move |ticket| match is_shared {
            true => session.shared_on_gpu_of(&context, &settings, ticket),
            false => session.in_context(&context).map(ReadOutcome::Read),
        })?;
        self.life.wait().map(drop)
    }

    /// Loads the model for tensors of that size, where that was left to the frames.
    pub(super) fn fit(&self, dims: &Dims) {
        let Some(former) = self.session() else { return };
        let Some(fitted) = former.fitted(dims) else { return };
        gst::info!(CAT, imp = self, "loading the model for {dims}");
        if !former.waits {
            self.obj().post_warning(&messages::loaded_again(&former.tensor.desc.dims, dims));
        }
        // While it is the one that a flush or a change of state leaves: its last run may never end.
        self.running.lock().unwrap().let_go(&former);
        self.life.replace(|_| Some(fitted.clone()));
        former.handle.leave();
        loading::load(&self.obj(), &fitted.model);
    }
}
