//! Tensors of other frameworks, by DLPack.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::{SessionHandle, contained, done, find, give, null, wrong};
use crate::backends::Interrupted;
use crate::core::dlpack::{self, Consumer};
use crate::core::error::Result;
use crate::core::memory::Pool;
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
        // SAFETY: the header asks for a tensor that nothing else has consumed. It is consumed whatever happens.
        let input = unsafe { dlpack::import(input, "input").inspect_err(|_| dlpack::delete(input)) }?;
        let open = find(session)?;
        open.check_count(count)?;
        if outputs.is_null() {
            return Err(null("outputs"));
        }
        let cuda = input.device().map(|block| block.context().clone());
        let ready = match (&cuda, consumer(stream)) {
            // SAFETY: as the header says, the stream is of the tensor's context, and alive.
            (Some(cuda), Consumer::Stream(stream)) => Some(unsafe { cuda.fence_on(stream) }?),
            (Some(cuda), Consumer::Unknown) => {
                cuda.synchronize()?;
                None
            }
            (None, _) => None,
        };
        let made = open.working().detector.session_mut().run_tensor(Tensors::new(vec![input], ready, None))?;
        let made = Arc::new(made);
        // SAFETY: as the header says, the stream is of the tensors' context, and alive until their deleters have been called.
        unsafe { order(&made, consumer(stream)) }?;
        for (i, output) in made.iter().enumerate() {
            // Nobody else has this memory, so it may be written.
            // SAFETY: as above; there is room for `count`, as the header says.
            unsafe { outputs.add(i).write(dlpack::export(output, Box::new(made.clone()), consumer(stream)).as_ptr()) };
        }
        Ok(())
    }))
}

/// `GST_TRT_STREAM_UNKNOWN`, and what DLPack's protocol has for it.
const UNKNOWN: usize = usize::MAX;

fn consumer(stream: *mut c_void) -> Consumer {
    if stream.addr() == UNKNOWN { Consumer::Unknown } else { Consumer::Stream(stream) }
}

/// Lets what a consumer queues after this see the tensors.
///
/// # Safety
/// The stream is of the tensors' context, and alive, if they are on a GPU.
unsafe fn order(tensors: &Tensors, consumer: Consumer) -> Result<()> {
    match (tensors.ready(), tensors.first().and_then(Tensor::device), consumer) {
        // SAFETY: the stream is of this context, and alive.
        (Some(ready), Some(block), Consumer::Stream(stream)) => unsafe { block.context().hold(stream, ready) },
        (..) => match consumer {
            Consumer::Unknown => tensors.wait(),
            Consumer::Stream(_) => Ok(()),
        },
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
        // SAFETY: as the header says, there is room.
        unsafe { give("tensor", tensor, ptr::null_mut()) }?;
        // SAFETY: as the header says of buffer and stream.
        let (payload, index) = unsafe { of_buffer(buffer, index, stream) }?;
        let found = &tensors(&payload)?[index];
        let export = match found.bytes() {
            // The elements go on using the tensor, and this structure cannot say that it must not be written.
            Some(bytes) => {
                let copy = Tensor::fill(&Pool::default(), found.desc().clone(), |to| {
                    to.copy_from_slice(bytes);
                    Ok(())
                })?;
                let copy = Arc::new(copy);
                // SAFETY: it is on the host, where there is no stream.
                unsafe { dlpack::export(&copy, Box::new(copy.clone()), Consumer::Unknown) }
            }
            // SAFETY: as the header says, the stream is alive until the deleter has been called.
            None => unsafe { dlpack::export(found, Box::new(payload.clone()), consumer(stream)) },
        };
        // SAFETY: as the header says, there is room.
        unsafe { give("tensor", tensor, export.as_ptr()) }
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// As for [`gst_trt_buffer_tensor`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_buffer_tensor_versioned(
    buffer: *const gst::ffi::GstBuffer,
    index: usize,
    stream: *mut c_void,
    tensor: *mut *mut dlpack::DlManagedVersioned,
) -> c_int {
    done(contained(|| {
        // SAFETY: as the header says, there is room.
        unsafe { give("tensor", tensor, ptr::null_mut()) }?;
        // SAFETY: as the header says of buffer and stream.
        let (payload, index) = unsafe { of_buffer(buffer, index, stream) }?;
        let found = &tensors(&payload)?[index];
        // SAFETY: as the header says, the stream is alive until the deleter has been called.
        let export = unsafe { dlpack::export_versioned(found, Box::new(payload.clone()), consumer(stream), true) };
        // SAFETY: as the header says, there is room.
        unsafe { give("tensor", tensor, export.as_ptr()) }
    }))
}

/// What a buffer carries, whose tensor of that number is there for what is queued on the stream after this.
///
/// # Safety
/// `buffer`, if not NULL, is a buffer; the stream is of the tensors' context, and alive, if they are on a GPU.
unsafe fn of_buffer(
    buffer: *const gst::ffi::GstBuffer,
    index: usize,
    stream: *mut c_void,
) -> Result<(Arc<Payload>, usize)> {
    if buffer.is_null() {
        return Err(null("buffer"));
    }
    // SAFETY: it is not NULL, so it is a buffer.
    let payload = TensorMeta::get(unsafe { gst::BufferRef::from_ptr(buffer) }).ok_or_else(|| {
        wrong("The buffer has no tensors").remedy("Take it behind trtpreprocess or trtinfer, and before trtnms")
    })?;
    let there = tensors(&payload)?;
    if index >= there.len() {
        return Err(wrong(format!("There is no tensor {index}: {} are there", there.len())));
    }
    // SAFETY: the stream is of the tensors' context, and alive.
    unsafe { order(there, consumer(stream)) }?;
    Ok((payload.clone(), index))
}

fn tensors(payload: &Payload) -> Result<&Tensors> {
    match payload {
        Payload::Input { tensors, .. } => Ok(tensors),
        Payload::Output { outputs, .. } => outputs.wait().map_err(|why| match why {
            Interrupted::Failed(error) => error,
            Interrupted::Flushing => wrong("The frame's outputs are not computed: its stream was flushed or stopped"),
        }),
        Payload::Skipped { .. } => Err(wrong("The model did not see this frame: interval let it pass")),
    }
}
