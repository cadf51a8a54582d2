// SPDX-License-Identifier: MPL-2.0
//! The properties of trtpreprocess. Those that are unset, which is the default, are the model's.

use std::sync::LazyLock;

use gst::glib;
use gst::prelude::*;

use super::{ChromaSampling, Regions, Resize, TensorColors, TensorOrder, TensorType};
use crate::gst::property::{PropertyTable, property, text_property};
use crate::gst::{cuda, stats};
use crate::image::preprocess::device::Upload;

/// What the user typed.
#[derive(Clone, Debug)]
pub struct PreprocessSettings {
    pub resize: Resize,
    /// 0 is unset.
    pub shortest_edge: u32,
    /// -1 is unset.
    pub pad_value: i32,
    pub colors: TensorColors,
    pub chroma_sampling: ChromaSampling,
    /// 0 is unset.
    pub scale: f32,
    pub mean: String,
    pub std: String,
    pub order: TensorOrder,
    pub dtype: TensorType,
    pub size: String,
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
    pub upload: Upload,
    /// -1 follows the pipeline.
    pub cuda_device_id: i32,
    /// Takes the GPU's time for each frame.
    pub measure: bool,
}

impl Default for PreprocessSettings {
    fn default() -> Self {
        PreprocessSettings {
            resize: Resize::Auto,
            shortest_edge: 0,
            pad_value: -1,
            colors: TensorColors::Auto,
            chroma_sampling: ChromaSampling::default(),
            scale: 0.0,
            mean: String::new(),
            std: String::new(),
            order: TensorOrder::Auto,
            dtype: TensorType::Auto,
            size: String::new(),
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
            upload: Upload::Auto,
            cuda_device_id: -1,
            measure: false,
        }
    }
}

pub static PROPERTIES: LazyLock<PropertyTable<PreprocessSettings>> = LazyLock::new(|| {
    let default = PreprocessSettings::default();
    PropertyTable::new(vec![
        property!(
            glib::ParamSpecEnum::builder_with_default("resize", default.resize)
                .nick("Resize")
                .blurb("How the frame is laid into the tensor")
                .mutable_ready()
                .build(),
            resize
        ),
        property!(
            glib::ParamSpecUInt::builder("shortest-edge")
                .nick("Shortest edge")
                .blurb("With resize=center-crop: pixels of the frame's shorter edge before the middle is cut out, 256 for many inputs of 224 (0 = as the model wants it, else as many as the tensor has)")
                .maximum(16384)
                .default_value(default.shortest_edge)
                .mutable_ready()
                .build(),
            shortest_edge
        ),
        property!(
            glib::ParamSpecInt::builder("pad-value")
                .nick("Padding value")
                .blurb("Sample value of the letterbox padding (-1 = as the model wants it)")
                .minimum(-1)
                .maximum(255)
                .default_value(default.pad_value)
                .mutable_ready()
                .build(),
            pad_value
        ),
        property!(
            glib::ParamSpecEnum::builder_with_default("tensor-colors", default.colors)
                .nick("Tensor colors")
                .blurb("Colors in the channels of the tensor")
                .mutable_ready()
                .build(),
            colors
        ),
        property!(
            glib::ParamSpecEnum::builder_with_default("chroma-sampling", default.chroma_sampling)
                .nick("Chroma sampling")
                .blurb("Which chroma goes with each luma sample of NV12, P010_10LE and I420 frames")
                .mutable_ready()
                .build(),
            chroma_sampling
        ),
        property!(
            glib::ParamSpecFloat::builder("scale")
                .nick("Scale")
                .blurb("Factor of the samples: tensor = (sample * scale - mean) / std, with samples of 0..255 (0 = as the model wants it)")
                .minimum(0.0)
                .maximum(f32::MAX)
                .default_value(default.scale)
                .mutable_ready()
                .build(),
            scale
        ),
        text_property!(
            glib::ParamSpecString::builder("mean")
                .nick("Mean")
                .blurb("Mean to subtract: tensor = (sample * scale - mean) / std; one number, or one per channel like 0.485,0.456,0.406 (unset = as the model wants it)")
                .mutable_ready()
                .build(),
            mean
        ),
        text_property!(
            glib::ParamSpecString::builder("std")
                .nick("Standard deviation")
                .blurb("Standard deviation to divide by: tensor = (sample * scale - mean) / std; one number, or one per channel like 0.229,0.224,0.225 (unset = as the model wants it)")
                .mutable_ready()
                .build(),
            std
        ),
        property!(
            glib::ParamSpecEnum::builder_with_default("tensor-order", default.order)
                .nick("Tensor order")
                .blurb("Order of the tensor's dimensions")
                .mutable_ready()
                .build(),
            order
        ),
        property!(
            glib::ParamSpecEnum::builder_with_default("tensor-type", default.dtype)
                .nick("Tensor type")
                .blurb("Type of the tensor's elements")
                .mutable_ready()
                .build(),
            dtype
        ),
        text_property!(
            glib::ParamSpecString::builder("tensor-size")
                .nick("Tensor size")
                .blurb("Width and height of the tensor like 640x640 (unset = as the model wants it)")
                .mutable_ready()
                .build(),
            size
        ),
        text_property!(
            glib::ParamSpecString::builder("slices")
                .nick("Slices")
                .blurb("Columns and rows of slices like 3x2: each is a tensor of its own, so that small objects of large frames are found (unset = the frame is not sliced)")
                .mutable_ready()
                .build(),
            slices
        ),
        text_property!(
            glib::ParamSpecString::builder("slice-size")
                .nick("Slice size")
                .blurb("Width and height of slices like 640x640, in place of slices: as many as cover the frame (unset = the frame is not sliced)")
                .mutable_ready()
                .build(),
            slice_size
        ),
        property!(
            glib::ParamSpecFloat::builder("slice-overlap")
                .nick("Slice overlap")
                .blurb("Part of a slice's width and height that it has in common with the next one, below 1")
                .minimum(0.0)
                .maximum(f32::MAX)
                .default_value(default.slice_overlap)
                .mutable_ready()
                .build(),
            slice_overlap
        ),
        property!(
            glib::ParamSpecBoolean::builder("slice-frame")
                .nick("Slice frame")
                .blurb("With slices: the whole frame is a tensor too, for large objects")
                .default_value(default.slice_frame)
                .mutable_ready()
                .build(),
            slice_frame
        ),
        property!(
            glib::ParamSpecEnum::builder_with_default("regions", default.regions)
                .nick("Regions")
                .blurb("Which parts of a frame become tensors")
                .mutable_ready()
                .build(),
            regions
        ),
        text_property!(
            glib::ParamSpecString::builder("region-list")
                .nick("Region list")
                .blurb("With regions=list: left, top, right and bottom of each rectangle, in pixels or in parts of the frame, like 0,0,640,360;0.5,0.5,1,1")
                .mutable_ready()
                .build(),
            region_list
        ),
        text_property!(
            glib::ParamSpecString::builder("object-classes")
                .nick("Object classes")
                .blurb("With regions=objects: names or ids of the classes to look at, like person,car (unset = all)")
                .mutable_ready()
                .build(),
            object_classes
        ),
        property!(
            glib::ParamSpecUInt::builder("min-object-size")
                .nick("Minimum object size")
                .blurb("With regions=objects: minimum width and height of objects in pixels of the frame")
                .minimum(1)
                .maximum(16384)
                .default_value(default.min_object_size)
                .mutable_ready()
                .build(),
            min_object_size
        ),
        property!(
            glib::ParamSpecFloat::builder("object-padding")
                .nick("Object padding")
                .blurb("With regions=objects: part of the box's width and height to add on each side")
                .minimum(0.0)
                .maximum(4.0)
                .default_value(default.object_padding)
                .mutable_ready()
                .build(),
            object_padding
        ),
        property!(
            glib::ParamSpecUInt::builder("max-objects")
                .nick("Maximum objects")
                .blurb("With regions=objects: maximum objects of a frame to look at, the largest first; stats count those left out")
                .minimum(1)
                .maximum(65536)
                .default_value(default.max_objects)
                .mutable_ready()
                .build(),
            max_objects
        ),
        property!(
            glib::ParamSpecUInt::builder("reclassify-interval")
                .nick("Reclassify interval")
                .blurb("With regions=objects: look at objects with ids (trttrack) in each n-th frame, and when their boxes have grown by a fifth; their classes are kept in between (0 = once, 1 = each frame)")
                .default_value(default.reclassify_interval)
                .mutable_ready()
                .build(),
            reclassify_interval
        ),
        property!(
            glib::ParamSpecEnum::builder_with_default("upload", default.upload)
                .nick("Upload")
                .blurb("How frames in system memory come to the GPU")
                .mutable_ready()
                .build(),
            upload
        ),
        property!(cuda::device_id_property(), cuda_device_id),
        property!(stats::measure_property(), measure),
    ])
});
