// SPDX-License-Identifier: MPL-2.0
//! Caps of frames, and of frames with a tensor: which ones the elements take, and what is asked for by them.

use std::sync::LazyLock;

use gst::prelude::*;
use gst_video::VideoFormat;
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::image::frame::PixelFormat;
use gsttrt_core::image::transform::InputSpec;

use crate::gst::cuda;
use crate::gst::cuda::MEMORY_FEATURE as CUDA_MEMORY;
use crate::gst::memory::nvmm::MEMORY_FEATURE as NVMM_MEMORY;

/// Caps field that carries the [`InputSpec`] from trtinfer to trtpreprocess.
pub const TENSOR_FIELD: &str = "tensor";

/// Caps field of GStreamer 1.28 that names the tensors in a GstTensorMeta.
pub const TENSORS_FIELD: &str = "tensors";

/// Field of a RECONFIGURE event that asks for other tensors of the same frames.
const OTHER_TENSORS: &str = "other-tensors";

/// Formats in CUDA memory, best first; NVMM memory and system memory have [`PixelFormat::ALL`].
const CUDA_FORMATS: [VideoFormat; 7] = [
    VideoFormat::Nv12,
    VideoFormat::P01010le,
    VideoFormat::I420,
    VideoFormat::Rgba,
    VideoFormat::Bgra,
    VideoFormat::Rgb,
    VideoFormat::Bgr,
];

/// Caps of every pad of the three elements: CUDA memory first, then NVIDIA's own, then system memory.
pub fn template_caps() -> gst::Caps {
    static CAPS: LazyLock<gst::Caps> = LazyLock::new(|| {
        let all = PixelFormat::ALL.map(|format| VideoFormat::from_string(format.name()));
        let mut caps = gst_video::VideoCapsBuilder::new().features([CUDA_MEMORY]).format_list(CUDA_FORMATS).build();
        caps.merge(gst_video::VideoCapsBuilder::new().features([NVMM_MEMORY]).format_list(all).build());
        caps.merge(gst_video::VideoCapsBuilder::new().format_list(all).build());
        caps
    });
    CAPS.clone()
}

/// Asks for other tensors from now on: with the next frame trtpreprocess asks for its caps again. It keeps the event to itself, for
/// a decoder would allocate all its frames again, and hold up other streams of that GPU for tens of milliseconds.
pub fn ask_for_other_tensors(sink: &gst::Pad) {
    // Without a trtpreprocess there is no tensor to be changed.
    let _ = sink.push_event(gst::event::Reconfigure::builder().other_field(OTHER_TENSORS, true).build());
}

/// Whether that is what an event asks for.
pub fn asks_for_other_tensors(event: &gst::EventRef) -> bool {
    event.type_() == gst::EventType::Reconfigure
        && event.structure().is_some_and(|structure| structure.has_field(OTHER_TENSORS))
}

/// One always-present pad of each direction, both with [`template_caps`].
pub fn pad_templates() -> &'static [gst::PadTemplate] {
    static TEMPLATES: LazyLock<[gst::PadTemplate; 2]> = LazyLock::new(|| {
        [("sink", gst::PadDirection::Sink), ("src", gst::PadDirection::Src)].map(|(name, direction)| {
            gst::PadTemplate::new(name, direction, gst::PadPresence::Always, &template_caps()).expect("valid template")
        })
    });
    &*TEMPLATES
}

/// The structures of `caps` whose memory can be used on this machine. NVMM memory is one of them: where it is, its library
/// is, which is opened for frames in it only.
pub fn usable(caps: &gst::Caps) -> gst::Caps {
    match cuda::available() {
        Ok(()) => caps.clone(),
        Err(_) => without_cuda(caps),
    }
}

/// The structures of `caps` that are not of CUDA memory.
pub fn without_cuda(caps: &gst::Caps) -> gst::Caps {
    without(caps, CUDA_MEMORY)
}

/// The structures of `caps` whose frames can be drawn on: those that are not of NVMM memory.
pub fn drawable(caps: &gst::Caps) -> gst::Caps {
    without(caps, NVMM_MEMORY)
}

fn without(caps: &gst::Caps, feature: &str) -> gst::Caps {
    caps.iter_with_features()
        .filter(|(_, features)| !features.contains(feature) || features.is_any())
        .map(|(structure, features)| (structure.to_owned(), features.to_owned()))
        .collect()
}

/// The caps that upstream offers with a query; nothing for other queries.
pub fn offered(query: &gst::QueryRef) -> Option<&gst::CapsRef> {
    match query.view() {
        gst::QueryView::Caps(query) => query.filter(),
        gst::QueryView::AcceptCaps(query) => Some(query.caps()),
        _ => None,
    }
}

/// Whether frames of these caps lie in CUDA memory.
pub fn is_cuda(caps: &gst::CapsRef) -> bool {
    has_feature(caps, CUDA_MEMORY)
}

/// Whether frames of these caps lie in NVMM memory.
pub fn is_nvmm(caps: &gst::CapsRef) -> bool {
    has_feature(caps, NVMM_MEMORY)
}

fn has_feature(caps: &gst::CapsRef, feature: &str) -> bool {
    caps.features(0).is_some_and(|features| !features.is_any() && features.contains(feature))
}

/// Why a frame of none of the `offered` caps can be used; nothing where one can.
pub fn refusal(offered: &gst::CapsRef) -> Option<Error> {
    let taken = usable(&template_caps());
    let (first, features) = offered.iter_with_features().next()?;
    if without_tensor(&offered.to_owned()).can_intersect(&taken) {
        return None;
    }
    let remedy = match features {
        _ if first.name() != "video/x-raw" => "Put a decoder like decodebin before it",
        features if features.contains(CUDA_MEMORY) => "Put cudadownload before it",
        features if features.contains(NVMM_MEMORY) => "Put nvvideoconvert before it",
        features if !features.is_equal(&gst::CAPS_FEATURES_MEMORY_SYSTEM_MEMORY) => {
            "Put an element before it that downloads such memory, like gldownload"
        }
        _ => "Put videoconvert before it",
    };
    let mut kinds: Vec<String> = offered.iter_with_features().map(|(caps, features)| kind(caps, features)).collect();
    kinds.dedup();
    kinds.truncate(8);
    let formats = PixelFormat::ALL.map(PixelFormat::name).join(", ");
    let what = format!("Cannot use frames of {}", kinds.join(", "));
    Some(
        Error::new(ErrorKind::Negotiation, what)
            .cause(format!("formats are {formats} in system memory"))
            .remedy(remedy),
    )
}

/// What frames are, for people: format and memory, or the name of other caps.
fn kind(caps: &gst::StructureRef, features: &gst::CapsFeaturesRef) -> String {
    let format = caps.value("format").ok().and_then(|format| format.serialize().ok());
    let format = format.map_or(caps.name().to_string(), |format| format.replace("(string)", ""));
    if features.is_equal(&gst::CAPS_FEATURES_MEMORY_SYSTEM_MEMORY) { format } else { format!("{format} ({features})") }
}

/// What a caps query with that filter leaves of `caps`, in the filter's order.
pub fn filtered(caps: gst::Caps, filter: Option<&gst::Caps>) -> gst::Caps {
    match filter {
        Some(filter) => filter.intersect_with_mode(&caps, gst::CapsIntersectMode::First),
        None => caps,
    }
}

/// `caps` as they are without a tensor: neither the model's input nor the outputs of one before.
pub fn without_tensor(caps: &gst::Caps) -> gst::Caps {
    let mut caps = caps.clone();
    for structure in caps.make_mut().iter_mut() {
        structure.remove_fields([TENSOR_FIELD, TENSORS_FIELD]);
    }
    caps
}

/// `caps` with the tensor of `spec` for frames of a width and height, in place of any tensor in them. Where the
/// caps leave the size open, it is that of `filter`, which the answer is for.
pub fn with_tensor(
    caps: &gst::Caps,
    filter: Option<&gst::Caps>,
    spec: impl Fn(Option<(u32, u32)>) -> InputSpec,
) -> gst::Caps {
    let asked = filter.and_then(|caps| frame_size(caps.structure(0)?));
    let mut caps = caps.clone();
    for structure in caps.make_mut().iter_mut() {
        let size = frame_size(structure).or(asked);
        structure.set(TENSOR_FIELD, spec(size).to_string());
    }
    caps
}

/// What caps name in place of a tensor while there is no model that would say which one: frames are to come without.
const NO_TENSOR: &str = "none";

/// `caps` for frames without tensors.
pub fn with_no_tensor(caps: &gst::Caps) -> gst::Caps {
    let mut caps = caps.clone();
    caps.make_mut().set(TENSOR_FIELD, NO_TENSOR);
    caps
}

/// Whether fixed caps are of frames that come without tensors.
pub fn has_no_tensor(caps: &gst::CapsRef) -> bool {
    let tensor = caps.structure(0).and_then(|structure| structure.get::<&str>(TENSOR_FIELD).ok());
    tensor == Some(NO_TENSOR)
}

/// Width and height, where they are fixed.
fn frame_size(caps: &gst::StructureRef) -> Option<(u32, u32)> {
    let side = |name| caps.get::<i32>(name).ok().and_then(|side| u32::try_from(side).ok()).filter(|&side| side > 0);
    Some((side("width")?, side("height")?))
}

/// The tensor that fixed caps name.
pub fn tensor_of(caps: &gst::CapsRef) -> Result<Option<InputSpec>> {
    let text = caps.structure(0).and_then(|structure| structure.get::<&str>(TENSOR_FIELD).ok());
    text.filter(|&text| text != NO_TENSOR).map(str::parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuda_memory_is_listed_first_and_used_where_it_can_be() {
        gst::init().unwrap();
        let caps = template_caps();
        assert!(caps.features(0).unwrap().contains(CUDA_MEMORY));
        let usable = usable(&caps);
        // All where CUDA memory can be used here, else without it.
        let has_cuda = cuda::available().is_ok();
        assert_eq!(usable.size(), if has_cuda { 3 } else { 2 });
        assert_eq!(usable.features(0).unwrap().contains(CUDA_MEMORY), has_cuda);
        assert!(usable.features(usable.size() - 2).unwrap().contains(NVMM_MEMORY));
        assert!(usable.features(usable.size() - 1).unwrap().is_equal(&gst::CAPS_FEATURES_MEMORY_SYSTEM_MEMORY));
    }
}
