// SPDX-License-Identifier: MPL-2.0
//! The properties of trtpreprocess. Those that are unset, which is the default, are the model's.

use std::sync::LazyLock;

use gsttrt_core::image::align::Align;
use gsttrt_core::image::geometry::ResizeMode;
use gsttrt_core::image::options::{
    CHROMA_SAMPLING, FRAME_STEP, FRAMES, MEAN, PAD_VALUE, RESIZE, SCALE, SHORTEST_EDGE, STD, TENSOR_COLORS, UPLOAD,
};
use gsttrt_core::image::preprocess::device::Upload;
use gsttrt_core::image::transform::{Chroma, Colors, TensorLayout};
use gsttrt_core::options::{Choices, OptionKind, Setting, choices, setting};
use gsttrt_core::tensor::DType;

use crate::gst::options::{self, MUTABLE_READY};
use crate::gst::property::{Property, PropertyTable, property};
use crate::gst::{cuda, stats};

/// Which parts of a frame become tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Regions {
    #[default]
    Frame,
    Objects,
    List,
}

choices! {
    Regions, "GstTrtRegions":
    Regions::Frame => "frame" "The whole frame, or slices of it"
    Regions::Objects => "objects" "Objects of a first model"
    Regions::List => "list" "The rectangles of region-list"
}

/// What the user typed.
#[derive(Clone, Debug)]
pub struct PreprocessSettings {
    /// `None` is left to the model, as of colors, order and type.
    pub resize: Option<ResizeMode>,
    /// 0 is unset.
    pub shortest_edge: u32,
    /// -1 is unset.
    pub pad_value: i32,
    pub colors: Option<Colors>,
    pub chroma_sampling: Chroma,
    /// 0 is unset.
    pub scale: f32,
    pub mean: String,
    pub std: String,
    pub order: Option<TensorLayout>,
    pub dtype: Option<DType>,
    pub size: String,
    /// 0 is unset.
    pub frames: u32,
    pub frame_step: u32,
    /// Columns and rows like 3x2.
    pub slices: String,
    pub slice_size: String,
    pub slice_overlap: f32,
    pub slice_frame: bool,
    pub regions: Regions,
    pub region_list: String,
    pub object_classes: String,
    pub min_object_size: u32,
    pub object_padding: f32,
    pub max_objects: u32,
    pub reclassify_interval: u32,
    pub align: Align,
    /// 0 is off.
    pub motion_gate: f32,
    pub motion_threshold: u32,
    pub motion_refresh: u32,
    pub upload: Upload,
    /// -1 follows the pipeline.
    pub cuda_device_id: i32,
    /// Takes the GPU's time for each frame.
    pub measure: bool,
}

impl Default for PreprocessSettings {
    fn default() -> Self {
        PreprocessSettings {
            resize: None,
            shortest_edge: 0,
            pad_value: -1,
            colors: None,
            chroma_sampling: Chroma::default(),
            scale: 0.0,
            mean: String::new(),
            std: String::new(),
            order: None,
            dtype: None,
            size: String::new(),
            frames: 0,
            frame_step: 1,
            slices: String::new(),
            slice_size: String::new(),
            slice_overlap: 0.2,
            slice_frame: true,
            regions: Regions::Frame,
            region_list: String::new(),
            object_classes: String::new(),
            min_object_size: 16,
            object_padding: 0.0,
            max_objects: 300,
            reclassify_interval: 1,
            align: Align::None,
            motion_gate: 0.0,
            motion_threshold: 12,
            motion_refresh: 250,
            upload: Upload::Auto,
            cuda_device_id: -1,
            measure: false,
        }
    }
}

pub static SETTINGS: [Setting<PreprocessSettings>; 29] = [
    Setting { spec: &RESIZE, field: |settings| &mut settings.resize },
    Setting { spec: &SHORTEST_EDGE, field: |settings| &mut settings.shortest_edge },
    Setting { spec: &PAD_VALUE, field: |settings| &mut settings.pad_value },
    Setting { spec: &TENSOR_COLORS, field: |settings| &mut settings.colors },
    Setting { spec: &CHROMA_SAMPLING, field: |settings| &mut settings.chroma_sampling },
    Setting { spec: &SCALE, field: |settings| &mut settings.scale },
    Setting { spec: &MEAN, field: |settings| &mut settings.mean },
    Setting { spec: &STD, field: |settings| &mut settings.std },
    setting!("tensor-order", "Tensor order", "Order of the tensor's dimensions", <Option<TensorLayout>>::KIND, order),
    setting!("tensor-type", "Tensor type", "Type of the tensor's elements", <Option<DType>>::KIND, dtype),
    setting!(
        "tensor-size",
        "Tensor size",
        "Width and height of the tensor like 640x640 (unset = as the model wants it)",
        OptionKind::Text,
        size
    ),
    Setting { spec: &FRAMES, field: |settings| &mut settings.frames },
    Setting { spec: &FRAME_STEP, field: |settings| &mut settings.frame_step },
    setting!(
        "slices",
        "Slices",
        "Columns and rows of slices like 3x2: each is a tensor of its own, so that small objects of large frames are \
         found (unset = the frame is not sliced)",
        OptionKind::Text,
        slices
    ),
    setting!(
        "slice-size",
        "Slice size",
        "Width and height of slices like 640x640, in place of slices: as many as cover the frame (unset = the frame \
         is not sliced)",
        OptionKind::Text,
        slice_size
    ),
    setting!(
        "slice-overlap",
        "Slice overlap",
        "Part of a slice's width and height that it has in common with the next one, below 1",
        OptionKind::Float(0.0..=f32::MAX),
        slice_overlap
    ),
    setting!(
        "slice-frame",
        "Slice frame",
        "With slices: the whole frame is a tensor too, for large objects",
        OptionKind::Flag,
        slice_frame
    ),
    setting!("regions", "Regions", "Which parts of a frame become tensors", Regions::KIND, regions),
    setting!(
        "region-list",
        "Region list",
        "With regions=list: left, top, right and bottom of each rectangle, in pixels or in parts of the frame, like \
         0,0,640,360;0.5,0.5,1,1",
        OptionKind::Text,
        region_list
    ),
    setting!(
        "object-classes",
        "Object classes",
        "With regions=objects: names or ids of the classes to look at, like person,car (unset = all)",
        OptionKind::Text,
        object_classes
    ),
    setting!(
        "min-object-size",
        "Minimum object size",
        "With regions=objects: minimum width and height of objects in pixels of the frame",
        OptionKind::UInt(1..=16384),
        min_object_size
    ),
    setting!(
        "object-padding",
        "Object padding",
        "With regions=objects: part of the box's width and height to add on each side",
        OptionKind::Float(0.0..=4.0),
        object_padding
    ),
    setting!(
        "max-objects",
        "Maximum objects",
        "With regions=objects: maximum objects of a frame to look at, the largest first; stats count those left out",
        OptionKind::UInt(1..=65536),
        max_objects
    ),
    setting!(
        "reclassify-interval",
        "Reclassify interval",
        "With regions=objects: look at objects with ids (trttrack) in each n-th frame, and when their boxes have \
         grown by a fifth; their classes are kept in between (0 = once, 1 = each frame)",
        OptionKind::UInt(0..=u32::MAX),
        reclassify_interval
    ),
    setting!("align", "Align", "With regions=objects: how objects are cut out of the frame", Align::KIND, align),
    setting!(
        "motion-gate",
        "Motion gate",
        "Part of the picture that must have changed for a frame to be inferred, like 0.001; the others keep the last \
         results, marked as held (0 = all frames are inferred)",
        OptionKind::Float(0.0..=1.0),
        motion_gate
    ),
    setting!(
        "motion-threshold",
        "Motion threshold",
        "With motion-gate: steps of 255 by which the mean luma of 8x8 pixels must differ from that of the frames before",
        OptionKind::UInt(1..=255),
        motion_threshold
    ),
    setting!(
        "motion-refresh",
        "Motion refresh",
        "With motion-gate: after so many frames without motion one is inferred (0 = never)",
        OptionKind::UInt(0..=u32::MAX),
        motion_refresh
    ),
    Setting { spec: &UPLOAD, field: |settings| &mut settings.upload },
];

pub static PROPERTIES: LazyLock<PropertyTable<PreprocessSettings>> = LazyLock::new(|| {
    let mut properties: Vec<Property<PreprocessSettings>> =
        options::properties(&SETTINGS, MUTABLE_READY, |settings| settings).collect();
    properties.push(property!(cuda::device_id_property(), cuda_device_id));
    properties.push(property!(stats::measure_property(), measure));
    PropertyTable::new(properties)
});
