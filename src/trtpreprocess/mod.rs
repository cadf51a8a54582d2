//! `trtpreprocess`: makes the model's input tensor from each frame.
//!
//! The frame itself passes unchanged; the tensor rides on it as a [`TensorMeta`](crate::meta::tensor::TensorMeta). Size,
//! element type, colours, normalisation and letterbox come from the trtinfer downstream through the caps field `tensor`;
//! each can be overridden by a property.
//!
//! ```text
//! gst-launch-1.0 filesrc location=street.mp4 ! decodebin ! videoconvert ! trtpreprocess ! trtinfer model-file=yolo11n.onnx ! trtnms ! videoconvert ! autovideosink
//! ```

mod imp;
mod overrides;

use gst::glib;
use gst::prelude::*;

use crate::vision::geometry::Fit;
use crate::vision::recipe::{Colors, Order};

glib::wrapper! {
    pub struct TrtPreprocess(ObjectSubclass<imp::TrtPreprocess>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

/// How the frame is laid into the tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtResize")]
pub enum Resize {
    #[default]
    #[enum_value(name = "As the model wants it", nick = "auto")]
    Auto,
    #[enum_value(name = "Keep the aspect, frame in the middle", nick = "letterbox")]
    Letterbox,
    #[enum_value(name = "Keep the aspect, frame at the top left", nick = "letterbox-top-left")]
    LetterboxTopLeft,
    #[enum_value(name = "Fill the tensor, whatever the aspect", nick = "stretch")]
    Stretch,
}

impl From<Resize> for Option<Fit> {
    fn from(resize: Resize) -> Self {
        match resize {
            Resize::Auto => None,
            Resize::Letterbox => Some(Fit::Letterbox),
            Resize::LetterboxTopLeft => Some(Fit::LetterboxTopLeft),
            Resize::Stretch => Some(Fit::Stretch),
        }
    }
}

/// Which colours the channels of the tensor hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtColors")]
pub enum TensorColors {
    #[default]
    #[enum_value(name = "As the model wants them", nick = "auto")]
    Auto,
    #[enum_value(name = "Red, green, blue", nick = "rgb")]
    Rgb,
    #[enum_value(name = "Blue, green, red", nick = "bgr")]
    Bgr,
    #[enum_value(name = "Luma only", nick = "gray")]
    Gray,
}

impl From<TensorColors> for Option<Colors> {
    fn from(colors: TensorColors) -> Self {
        match colors {
            TensorColors::Auto => None,
            TensorColors::Rgb => Some(Colors::Rgb),
            TensorColors::Bgr => Some(Colors::Bgr),
            TensorColors::Gray => Some(Colors::Gray),
        }
    }
}

/// Order of the tensor's dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtTensorOrder")]
pub enum TensorOrder {
    #[default]
    #[enum_value(name = "As the model wants it", nick = "auto")]
    Auto,
    #[enum_value(name = "Batch, channels, height, width", nick = "nchw")]
    Nchw,
    #[enum_value(name = "Batch, height, width, channels", nick = "nhwc")]
    Nhwc,
}

impl From<TensorOrder> for Option<Order> {
    fn from(order: TensorOrder) -> Self {
        match order {
            TensorOrder::Auto => None,
            TensorOrder::Nchw => Some(Order::Nchw),
            TensorOrder::Nhwc => Some(Order::Nhwc),
        }
    }
}

/// Element type of the tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtTensorType")]
pub enum TensorType {
    #[default]
    #[enum_value(name = "As the model wants it", nick = "auto")]
    Auto,
    #[enum_value(name = "32-bit float", nick = "f32")]
    F32,
    #[enum_value(name = "16-bit float", nick = "f16")]
    F16,
    #[enum_value(name = "Unsigned byte", nick = "u8")]
    U8,
}

impl From<TensorType> for Option<crate::tensor::DType> {
    fn from(kind: TensorType) -> Self {
        use crate::tensor::DType;
        match kind {
            TensorType::Auto => None,
            TensorType::F32 => Some(DType::F32),
            TensorType::F16 => Some(DType::F16),
            TensorType::U8 => Some(DType::U8),
        }
    }
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtpreprocess", gst::Rank::NONE, TrtPreprocess::static_type())
}
