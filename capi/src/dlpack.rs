//! A session on tensors of other frameworks, by DLPack.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use gsttrt::core::dlpack::{self, Consumer};
use gsttrt::core::tensor::Tensors;

use crate::error::{contained, done, null};
use crate::session::{GstTrtSession, SESSIONS};

/// See `gsttrt.h`.
///
/// # Safety
/// As the header says of tensor and stream; `outputs`, if not NULL, has room for `count` pointers.
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
        // SAFETY: as the caller says. It is consumed whatever happens.
        let input = unsafe { dlpack::import(input, "input") }.inspect_err(|_| unsafe { dlpack::delete(input) })?;
        let open = SESSIONS.find(session)?;
        open.check_count(count)?;
        if outputs.is_null() {
            return Err(null("outputs"));
        }
        let consumer = Consumer::from_raw(stream);
        let cuda = input.device().map(|block| block.context().clone());
        let ready = match (&cuda, consumer) {
            // SAFETY: as the header says, the stream is of the tensor's context, and alive.
            (Some(cuda), Consumer::Stream(stream)) => Some(unsafe { cuda.fence_on(stream) }?),
            (Some(cuda), Consumer::Unknown) => {
                cuda.synchronize()?;
                None
            }
            (None, _) => None,
        };
        let made = open.detector().session_mut().run_tensor(Tensors::new(vec![input], ready, None))?;
        let made = Arc::new(made);
        // SAFETY: as the header says, the stream is of the tensors' context, and alive until their deleters have been called.
        unsafe { consumer.wait_for(&made) }?;
        for (i, output) in made.iter().enumerate() {
            // The caller alone has this memory, and may write it.
            // SAFETY: as above; there is room for `count`, as the header says.
            unsafe { outputs.add(i).write(dlpack::export(output, Box::new(made.clone()), consumer).as_ptr()) };
        }
        Ok(())
    }))
}
