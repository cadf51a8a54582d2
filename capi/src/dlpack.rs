// SPDX-License-Identifier: MPL-2.0
//! A session on tensors of other frameworks, by DLPack.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use gsttrt_core::dlpack::{self, Consumer};
use gsttrt_core::tensor::Tensors;

use crate::error::{contained, done, null};
use crate::session::{GstTrtSession, SESSIONS};

/// See `gsttrt.h`.
///
/// # Safety
/// * `input` is NULL or a `DLManagedTensor` that nothing has consumed, and nothing writes its memory while this library
///   has it.
/// * `stream` is `GST_TRT_STREAM_UNKNOWN`, or a stream of the GPU's primary context that stays until the deleters of
///   all outputs have been called. Without a GPU it is not used.
/// * `outputs` is NULL or room for `count` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_run_dlpack(
    session: *mut GstTrtSession,
    input: *mut dlpack::Managed,
    stream: *mut c_void,
    outputs: *mut *mut dlpack::Managed,
    count: usize,
) -> c_int {
    done(contained(|| {
        let input = NonNull::new(input).ok_or_else(|| null("input"))?;
        // SAFETY: `input` is a tensor that nothing has consumed. Below, the run waits for the work that writes it.
        // Where `import` fails, it has not consumed the tensor, so deleting it here is its only deletion.
        let input = unsafe { dlpack::import(input, "input") }.inspect_err(|_| unsafe { dlpack::delete(input) })?;
        let open = SESSIONS.find(session)?;
        open.check_count(count)?;
        if outputs.is_null() {
            return Err(null("outputs"));
        }
        let consumer = Consumer::from_raw(stream);
        let cuda = input.device().map(|block| block.context().clone());
        let ready = match (&cuda, consumer) {
            // SAFETY: the stream is of the GPU's primary context, as the tensor is, and stays: this function requires both.
            (Some(cuda), Consumer::Stream(stream)) => Some(unsafe { cuda.fence_on(stream) }?),
            (Some(cuda), Consumer::Unknown) => {
                cuda.synchronize()?;
                None
            }
            (None, _) => None,
        };
        let made = open.detector()?.session_mut().run_tensor(Tensors::new(vec![input], ready, None))?;
        let made = Arc::new(made);
        // SAFETY: the outputs are in the GPU's primary context too, and the stream stays until their deleters have been
        // called.
        unsafe { consumer.wait_for(&made) }?;
        for (i, output) in made.iter().enumerate() {
            // Only the caller has this memory, so it may write it.
            // SAFETY: of the stream as above. `outputs` is not NULL, so it has room for `count` pointers, and
            // `check_count` made sure that `count` is the number of outputs.
            unsafe { outputs.add(i).write(dlpack::export(output, Box::new(made.clone()), consumer).as_ptr()) };
        }
        Ok(())
    }))
}
