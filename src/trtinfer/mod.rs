//! `trtinfer`: runs a model on the tensor that trtpreprocess made of each frame.
//!
//! The model's own description decides which tensor that is; it travels upstream in the caps field `tensor`. The outputs
//! ride on the frame as a [`TensorMeta`](crate::gst::meta::tensor::TensorMeta) to trtnms.
//!
//! Only the description is read while the element starts. The model itself is loaded beside, with `progress` messages on the
//! bus, and the first frame waits for it.
//!
//! ```text
//! gst-launch-1.0 videotestsrc ! trtpreprocess ! trtinfer model-file=yolo11n.onnx interval=2 ! trtnms ! videoconvert ! autovideosink
//! ```

mod imp;
mod opening;
mod settings;
mod sharing;

use gst::glib;
use gst::prelude::*;

use crate::backends::tensorrt::GraphMode;
use crate::backends::tensorrt::builder;

glib::wrapper! {
    pub struct TrtInfer(ObjectSubclass<imp::TrtInfer>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

/// Precision of engines that are built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtPrecision")]
pub enum Precision {
    #[default]
    #[enum_value(
        name = "FP16 where TensorRT may choose and the GPU is fast at it, else as the file says",
        nick = "auto"
    )]
    Auto,
    #[enum_value(name = "32-bit float", nick = "fp32")]
    Fp32,
    #[enum_value(name = "16-bit float where it is faster", nick = "fp16")]
    Fp16,
    #[enum_value(name = "8-bit integers where they are faster, by a calibration cache", nick = "int8")]
    Int8,
}

impl From<Precision> for builder::Precision {
    fn from(value: Precision) -> Self {
        match value {
            Precision::Auto => builder::Precision::Auto,
            Precision::Fp32 => builder::Precision::Fp32,
            Precision::Fp16 => builder::Precision::Fp16,
            Precision::Int8 => builder::Precision::Int8,
        }
    }
}

/// Whether engines are built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtEngineBuild")]
pub enum EngineBuild {
    #[default]
    #[enum_value(name = "Build what the cache does not have", nick = "auto")]
    Auto,
    #[enum_value(name = "Fail instead; for machines that must not spend minutes on it", nick = "never")]
    Never,
}

/// Whether runs are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtCudaGraph")]
pub enum CudaGraph {
    #[default]
    #[enum_value(name = "Record runs where the engine allows it", nick = "auto")]
    Auto,
    #[enum_value(name = "Record runs, and fail where that is impossible", nick = "on")]
    On,
    #[enum_value(name = "Queue the kernels of each run one by one", nick = "off")]
    Off,
}

impl From<CudaGraph> for GraphMode {
    fn from(value: CudaGraph) -> Self {
        match value {
            CudaGraph::Auto => GraphMode::Auto,
            CudaGraph::On => GraphMode::On,
            CudaGraph::Off => GraphMode::Off,
        }
    }
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtinfer", gst::Rank::NONE, TrtInfer::static_type())
}
