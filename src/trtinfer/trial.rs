// SPDX-License-Identifier: MPL-2.0
//! A run that tries a loaded model out with values for its inputs besides the picture, before frames go in with them: what fits the
//! dimensions of the inputs may still be nothing that the model can compute.

use std::sync::Arc;
use std::time::Duration;

use gsttrt_core::backends::Interrupted;
use gsttrt_core::backends::batcher::{Batcher, CancelToken};
use gsttrt_core::error::{ErrorKind, Result};
use gsttrt_core::memory::{BatchPool, Pool};
use gsttrt_core::model::InputValues;
use gsttrt_core::tensor::{Tensor, TensorDesc, Tensors};

use super::model::SharedModel;

/// How long a run that was told to end is waited for: the time of a node of the graph.
pub const INTERRUPT_LIMIT: Duration = Duration::from_secs(2);

/// Runs it once on a black picture like those of frames. The stream has no frames. False, where the token ends the wait.
///
/// # Errors
/// As the run, with the values.
pub fn run(
    batcher: &Batcher,
    model: &SharedModel,
    frames: &TensorDesc,
    values: &Arc<InputValues>,
    (stream, token): (u64, &CancelToken),
) -> Result<bool> {
    let what = format!("The model does not run with input-values={}", values.text());
    let picture = black_picture(model, frames).map_err(|error| error.about(&what))?;
    match batcher.try_values(stream, picture, values, token) {
        Ok(()) => Ok(true),
        Err(Interrupted::Flushing) => Ok(false),
        // What to do was said.
        Err(Interrupted::Failed(error)) if error.is_out_of_memory() || error.kind() == ErrorKind::Settings => {
            Err(error.about(&what))
        }
        Err(Interrupted::Failed(error)) => Err(error
            .about(&what)
            .remedy("Give arrays whose sizes and numbers go together, as those that the model was exported with")),
    }
}

/// The wait for it has ended: a run that these values may have made endless is given up, if it does not end within the limit.
pub fn end(batcher: &Batcher, model: &SharedModel, stream: u64, limit: Duration) {
    if !batcher.is_idle_within(stream, limit) && !batcher.interrupt_within(stream, INTERRUPT_LIMIT) {
        model.request.running().run_was_abandoned();
    }
}

/// A picture of zeros, where the model takes pictures.
fn black_picture(model: &SharedModel, frames: &TensorDesc) -> Result<Arc<Tensors>> {
    let request = &model.request;
    // How many frames a clip has may not be known yet.
    let desc = if frames.dims.is_static() { frames } else { &request.spec.desc };
    let Some(cuda) = &request.cuda else {
        let picture = Tensor::fill(&Pool::default(), desc.clone(), |bytes| {
            bytes.fill(0);
            Ok(())
        })?;
        return Ok(Arc::new(Tensors::new(vec![picture], None, None)));
    };
    let bytes = desc.bytes().expect("its dimensions are fixed");
    // Where frames' pictures lie: for other memory another run might be captured.
    let slots = model.slots.clone().filter(|slots| slots.bytes() == bytes);
    let mut block = slots.unwrap_or_else(|| BatchPool::new(cuda, bytes, 1)).take()?;
    block.write(&vec![0; bytes])?;
    Ok(Arc::new(Tensors::new(vec![Tensor::on_device(desc.clone(), block)], None, None)))
}
