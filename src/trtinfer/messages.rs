// SPDX-License-Identifier: MPL-2.0
//! trtinfer's error messages and warnings.

use std::path::Path;
use std::time::Duration;

use gsttrt_core::backends::Backend;
use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::tensor::{Dims, TensorDesc};

pub fn no_model() -> Error {
    Error::new(ErrorKind::Settings, "trtinfer has no model")
        .remedy("Set model-file to an ONNX file or a TensorRT engine of a detector")
}

pub fn gone() -> Error {
    Error::new(ErrorKind::Library, "The element is gone")
}

/// Another model would run on the CPU, and the frames of this stream are in CUDA memory.
pub fn frames_in_cuda_memory(backend: &dyn Backend, reason: Option<&str>) -> Error {
    let reason = reason.map_or(String::new(), |reason| format!(", since {reason}"));
    Error::new(ErrorKind::Negotiation, "Cannot use frames in CUDA memory")
        .cause(format!("the new model would run on {}{reason}", backend.title()))
        .remedy(
            "Put cudadownload before trtpreprocess, or give a model that TensorRT can run; for one on a server on this machine \
             set shared-memory=cuda",
        )
}

pub fn missing_tensor() -> Error {
    Error::new(ErrorKind::WrongType, "trtinfer got a frame without a tensor")
        .cause(
            "trtpreprocess is missing before it, or an element between them, such as compositor, makes new frames \
             without tensors",
        )
        .remedy(
            "The order is … ! trtpreprocess ! trtinfer ! trtnms ! …; put elements that make new frames before \
             trtpreprocess or behind trtnms",
        )
}

pub fn inferred_before() -> Error {
    Error::new(ErrorKind::WrongType, "trtinfer got a frame that another trtinfer has already handled")
        .cause("there is no trtpreprocess between the two")
        .remedy("The order is … ! trtpreprocess ! trtinfer ! trtnms ! …, once each for a model")
}

/// Outputs of regions cannot be published: nothing would say where in the frame they belong.
pub fn published_regions(regions: usize) -> Error {
    Error::new(
        ErrorKind::Settings,
        format!("tensor-meta needs one tensor of the whole frame, and this frame has {regions}"),
    )
    .cause("trtpreprocess makes tensors of slices or regions")
    .remedy("Set tensor-meta=false, or leave slices, slice-size and regions of trtpreprocess unset")
}

pub fn misfit(tensor: &TensorDesc, wanted: &TensorDesc) -> Error {
    let is_clip = [tensor, wanted].iter().any(|desc| desc.dims.len() == 5);
    Error::new(ErrorKind::WrongType, "The tensor does not fit the model")
        .cause(format!("it is {tensor}, and the model wants {wanted}"))
        .remedy(match is_clip {
            true => "Leave frames and the tensor-… properties of trtpreprocess unset",
            false => "Leave the tensor-… properties of trtpreprocess unset",
        })
}

/// All batches so far had a single frame.
pub fn starved() -> Error {
    Error::new(ErrorKind::Settings, "Batches are run with one frame each, after batch-timeout")
        .cause("frames come too slowly, or too few at once")
        .remedy(
            "Put a queue behind trtinfer that has room for batch-size frames (max-size-buffers, with max-size-bytes=0 \
             max-size-time=0), set a longer batch-timeout, or leave it out: then no frame waits in vain",
        )
}

/// Frames of another shape have come, and an engine is for one size.
pub fn loaded_again(former: &Dims, dims: &Dims) -> Error {
    Error::new(
        ErrorKind::Settings,
        format!("The model is loaded once more, for a tensor of {dims} in place of {former}"),
    )
    .cause("frames have another shape than the first ones, and an engine is built for one size")
    .remedy("Set input-size on trtinfer to have one size from the start; frames of any shape are scaled to it")
}

pub fn unread() -> Error {
    Error::new(ErrorKind::WrongType, "No element has read what the model found")
        .cause("trtnms is missing behind trtinfer in the launch line")
        .remedy("The order is … ! trtpreprocess ! trtinfer ! trtnms ! …")
}

pub fn copied() -> Error {
    Error::new(ErrorKind::Settings, "Frames are in another CUDA context than the shared model")
        .cause(
            "a decoder that is in no pipeline with a trtinfer made its own; each tensor is copied, and the GPU works for \
             one context at a time, which is slow",
        )
        .remedy(
            "Give that pipeline the context of this trtinfer before it goes to READY, with gst_element_get_context() \
             and gst_element_set_context() (gst.cuda.context)",
        )
}

pub fn unfinished(model: &Path, limit: Duration) -> Error {
    Error::new(ErrorKind::Run, format!("{} has not finished its run", model.display()))
        .cause(format!(
            "it was given {} s after the stream was stopped, and there is no way to end it; its thread and its memory \
             stay in use until it ends by itself or the process does",
            limit.as_secs()
        ))
        .remedy("A model with a loop may never end: check the model")
}
