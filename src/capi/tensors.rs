//! Tensors of other frameworks, by DLPack.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::{SessionHandle, contained, done, find, give, null, wrong};
use crate::backends::batcher::Lost;
use crate::core::dlpack;
use crate::core::error::Result;
use crate::core::tensor::{Tensor, Tensors};
use crate::gst::meta::tensor::{Payload, TensorMeta};

/// See `gsttrt.h`.
///
/// # Safety
/// As the header says of tensor and stream; `outputs`, if not NULL, has room for `count` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_run_dlpack(
    session: *mut SessionHandle,
    input: *mut dlpack::Managed,
    stream: *mut c_void,
    outputs: *mut *mut dlpack::Managed,
    count: usize,
) -> c_int {
    done(contained(|| {
        let input = NonNull::new(input).ok_or_else(|| null("input"))?;
        // SAFETY: as the caller says. It is consumed whatever happens.
        let input = unsafe { dlpack::import(input, "input") }.inspect_err(|_| unsafe { dlpack::delete(input) })?;
        let open = find(session)?;
        open.check_count(count)?;
        if outputs.is_null() {
            return Err(null("outputs"));
        }
        let cuda = input.device().map(|block| block.context().clone());
        // SAFETY: as the caller says.
        let ready = cuda.as_ref().map(|cuda| unsafe { cuda.fence_on(stream) }).transpose()?;
        let made = open.working().detector.session_mut().run_tensor(Tensors::new(vec![input], ready, None))?;
        let made = Arc::new(made);
        // SAFETY: as the caller says.
        unsafe { order(&made, stream) }?;
        for (i, output) in made.iter().enumerate() {
            // SAFETY: there is room for `count`, as the caller says.
            unsafe { outputs.add(i).write(dlpack::export(output, Box::new(made.clone())).as_ptr()) };
        }
        Ok(())
    }))
}

/// Lets what is queued on `stream` after this see the tensors.
///
/// # Safety
/// The stream is alive, if the tensors are on a GPU.
unsafe fn order(tensors: &Tensors, stream: *mut c_void) -> Result<()> {
    match (tensors.ready(), tensors.first().and_then(Tensor::device)) {
        // SAFETY: as the caller says.
        (Some(ready), Some(block)) => unsafe { block.context().hold(stream, ready) },
        _ => Ok(()),
    }
}

/// See `gsttrt.h`.
///
/// # Safety
/// As the header says of buffer and stream; `tensor`, if not NULL, has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_buffer_tensor(
    buffer: *const gst::ffi::GstBuffer,
    index: usize,
    stream: *mut c_void,
    tensor: *mut *mut dlpack::Managed,
) -> c_int {
    done(contained(|| {
        // SAFETY: as the caller says.
        unsafe { give("tensor", tensor, ptr::null_mut()) }?;
        if buffer.is_null() {
            return Err(null("buffer"));
        }
        // SAFETY: as the caller says.
        let payload = TensorMeta::get(unsafe { gst::BufferRef::from_ptr(buffer) }).ok_or_else(|| {
            wrong("The buffer has no tensors").remedy("Take it behind trtpreprocess or trtinfer, and before trtnms")
        })?;
        let tensors = match &*payload {
            Payload::Input { tensors, .. } => tensors,
            Payload::Output { outputs, .. } => outputs.wait().map_err(|lost| match lost {
                Lost::Failed(error) => error,
                Lost::Left => wrong("The frame's outputs are not computed: its stream was flushed or stopped"),
            })?,
            Payload::Skipped { .. } => return Err(wrong("The model did not see this frame: interval let it pass")),
        };
        let found = tensors
            .get(index)
            .ok_or_else(|| wrong(format!("There is no tensor {index}: {} are there", tensors.len())))?;
        // SAFETY: as the caller says.
        unsafe { order(tensors, stream) }?;
        let export = dlpack::export(found, Box::new(payload.clone()));
        // SAFETY: as the caller says.
        unsafe { give("tensor", tensor, export.as_ptr()) }
    }))
}
