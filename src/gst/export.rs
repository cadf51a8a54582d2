// SPDX-License-Identifier: MPL-2.0
//! Tensors of frames for other frameworks, as the C library asks for them.

use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use gst::glib;
use gst::glib::translate::*;
use gst::prelude::*;
use gsttrt_core::backends::Interrupted;
use gsttrt_core::backends::batcher::CancelToken;
use gsttrt_core::dlpack::exporter::{DATA, ExportTensor, PANIC};
use gsttrt_core::dlpack::{self, Consumer};
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::memory::Pool;
use gsttrt_core::tensor::{Tensor, Tensors};

use super::meta::clip_input::ClipInput;
use super::meta::tensor::{Payload, TensorMeta, Tiles};

/// Lets the C library find the function that exports tensors.
pub fn register() {
    let function: ExportTensor = export;
    // SAFETY: the type is registered, and the function stays, because GStreamer never unloads plugins.
    unsafe {
        let name = glib::ffi::g_quark_from_static_string(DATA.as_ptr());
        glib::gobject_ffi::g_type_set_qdata(TensorMeta::meta_api().into_glib(), name, function as *mut c_void);
    }
}

/// # Safety
/// * `buffer` is a `GstBuffer` that stays, and is not changed, until this returns.
/// * `stream` is as for [`tensor_of`].
/// * `tensor` and `error` have room for a pointer.
unsafe extern "C" fn export(
    buffer: *const c_void,
    index: usize,
    stream: *mut c_void,
    versioned: c_int,
    tensor: *mut *mut c_void,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: `buffer` is a `GstBuffer` that stays until this function returns, so the reference does not outlive it.
    // Of the stream this function asks what `tensor_of` does.
    let exported = catch_unwind(AssertUnwindSafe(|| unsafe {
        tensor_of(gst::BufferRef::from_ptr(buffer.cast()), index, Consumer::from_raw(stream), versioned != 0)
    }));
    let (code, text) = match exported {
        Ok(Ok(exported)) => {
            // SAFETY: `tensor` has room for a pointer.
            unsafe { tensor.write(exported.as_ptr()) };
            return 0;
        }
        Ok(Err(failed)) => (failed.kind() as c_int, failed.message()),
        Err(_) => (PANIC, "This is a bug of the plugin: the export of a tensor panicked.".into()),
    };
    let text = CString::new(text.replace('\0', " ")).expect("there are no zeros");
    // SAFETY: `error` has room for a pointer; the text is a C string, which the library frees with `free`.
    unsafe { error.write(libc::strdup(text.as_ptr())) };
    code
}

/// # Safety
/// If the tensors are on a GPU, the consumer's stream is of their context, and stays until the deleter of the
/// export has been called.
unsafe fn tensor_of(
    buffer: &gst::BufferRef,
    index: usize,
    consumer: Consumer,
    versioned: bool,
) -> Result<NonNull<c_void>> {
    let payload = TensorMeta::get(buffer).ok_or_else(|| {
        wrong("The buffer has no tensors").remedy("Take it behind trtpreprocess or trtinfer, and before trtnms")
    })?;
    let tensors = tensors(&payload)?;
    let Some(tensor) = tensors.get(index) else {
        return Err(wrong(format!("There is no tensor {index}: {} are there", tensors.len())));
    };
    // SAFETY: the stream is of the tensors' context, and stays until the deleter has been called: this function asks
    // for both. The export keeps the payload, and with it the tensor's memory.
    unsafe {
        consumer.wait_for(tensors)?;
        if versioned {
            return Ok(dlpack::export_versioned(tensor, Box::new(payload.clone()), consumer, true).cast());
        }
    }
    // The elements go on using the tensor, and this structure cannot say that it must not be written.
    if let Some(bytes) = tensor.bytes() {
        let copy = Tensor::fill(&Pool::default(), tensor.desc().clone(), |to| {
            to.copy_from_slice(bytes);
            Ok::<_, Error>(())
        })?;
        let copy = Arc::new(copy);
        // SAFETY: the copy is on the host, where no stream is used.
        return Ok(unsafe { dlpack::export(&copy, Box::new(copy.clone()), Consumer::Unknown) }.cast());
    }
    // SAFETY: as above, of the stream and the payload.
    Ok(unsafe { dlpack::export(tensor, Box::new(payload.clone()), consumer) }.cast())
}

fn tensors(payload: &Payload) -> Result<&Tensors> {
    let [input] = &payload.inputs().list[..] else {
        if payload.inputs().clip.is_some() && !matches!(payload.inputs().tiles, Tiles::Objects(_)) {
            return Err(no_clip());
        }
        return Err(wrong("The tensors are those of regions, not one of the whole frame")
            .remedy("Leave slices, slice-size and regions of trtpreprocess unset"));
    };
    match payload {
        Payload::Input(inputs) => match &inputs.clip {
            None => Ok(&input.tensors),
            Some(ClipInput { full, .. }) => match &full[..] {
                [full] => full.clip.tensors().map(|tensors| &**tensors),
                _ => Err(no_clip()),
            },
        },
        Payload::Output { outputs, .. } => {
            let outputs = outputs.first().ok_or_else(no_clip)?;
            outputs.wait(&CancelToken::default()).map_err(|why| match why {
                Interrupted::Failed(error) => error,
                Interrupted::Flushing => {
                    wrong("The frame's outputs are not computed: its stream was flushed or stopped")
                }
            })
        }
        Payload::Skipped { inputs, .. } if !inputs.is_complete() => Err(no_clip()),
        Payload::Skipped { .. } => Err(wrong("The model did not see this frame: interval let it pass")),
    }
}

fn no_clip() -> Error {
    wrong("No clip ends with this frame").remedy(
        "Read those of a frame with which one does: the first frames only begin one, and frame-step leaves frames out",
    )
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::WrongType, what)
}

#[cfg(test)]
mod tests {
    use gsttrt_core::dtype::DType;
    use gsttrt_core::image::transform::InputTransform;
    use gsttrt_core::tensor::TensorDesc;
    use smallvec::SmallVec;

    use super::*;
    use crate::gst::meta::geometry::TensorSource;
    use crate::gst::meta::tensor::{ModelInputs, ObjectRegions};

    /// What is said of a frame with which no clip ends.
    fn said(tiles: Tiles) -> String {
        gst::init().unwrap();
        let info = gst_video::VideoInfo::builder(gst_video::VideoFormat::Rgb, 4, 4).build().unwrap();
        let clip = ClipInput { desc: TensorDesc::new("clip", DType::F32, &[1, 3, 2, 4, 4]), full: SmallVec::new() };
        let none = ModelInputs::none(tiles, TensorSource::new(1, &info), InputTransform::default(), None);
        let payload = Payload::Input(Arc::new(ModelInputs { clip: Some(clip), ..none }));
        tensors(&payload).err().unwrap().message()
    }

    #[test]
    fn clips_of_objects_are_those_of_regions() {
        assert!(said(Tiles::Frame).contains("No clip ends with this frame"));
        let of_objects = said(Tiles::Objects(ObjectRegions::default()));
        assert!(of_objects.contains("those of regions") && of_objects.contains("regions of trtpreprocess unset"));
    }
}
