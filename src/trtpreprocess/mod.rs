// SPDX-License-Identifier: MPL-2.0
//! `trtpreprocess`: makes the model's input tensor from each frame.
//!
//! The frame itself passes unchanged; the tensor is attached to it as a [`TensorMeta`](crate::gst::meta::tensor::TensorMeta). Size,
//! element type, colours, normalisation and letterbox come from the trtinfer downstream through the caps field `tensor`;
//! each can be overridden by a property.
//!
//! ```text
//! gst-launch-1.0 filesrc location=street.mp4 ! decodebin ! videoconvert ! trtpreprocess ! trtinfer model-file=yolo11n.onnx ! trtnms ! videoconvert ! autovideosink
//! ```

mod imp;
mod objects;
mod overrides;
mod settings;

use gst::glib;
use gst::prelude::*;

use crate::core::tensor::DType;
use crate::image::geometry::ResizeMode;
use crate::image::transform::{Chroma, Colors, TensorLayout};

glib::wrapper! {
    pub struct TrtPreprocess(ObjectSubclass<imp::TrtPreprocess>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

/// The enum of a property: `auto`, which is `None`, and the values of another enum by the same names.
macro_rules! auto_enum {
    ($(#[$doc:meta])* $name:ident $type_name:literal of $target:ident {
        $($variant:ident $nick:literal $text:literal)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
        #[enum_type(name = $type_name)]
        pub enum $name {
            #[default]
            #[enum_value(name = "As the model wants it", nick = "auto")]
            Auto,
            $(#[enum_value(name = $text, nick = $nick)] $variant,)*
        }

        impl From<$name> for Option<$target> {
            fn from(value: $name) -> Self {
                match value {
                    $name::Auto => None,
                    $($name::$variant => Some($target::$variant),)*
                }
            }
        }
    };
}

auto_enum! {
    /// How the frame is laid into the tensor.
    Resize "GstTrtResize" of ResizeMode {
        Letterbox "letterbox" "Keep the aspect, frame in the middle"
        LetterboxTopLeft "letterbox-top-left" "Keep the aspect, frame at the top left"
        Stretch "stretch" "Fill the tensor, without keeping the aspect"
        CenterCrop "center-crop" "Keep the aspect, antialiased, and cut out the middle, as torchvision does"
    }
}

auto_enum! {
    /// Which colours the channels of the tensor hold.
    TensorColors "GstTrtTensorColors" of Colors {
        Rgb "rgb" "Red, green, blue"
        Bgr "bgr" "Blue, green, red"
        Gray "gray" "Luma only"
    }
}

auto_enum! {
    /// Order of the tensor's dimensions.
    TensorOrder "GstTrtTensorOrder" of TensorLayout {
        Nchw "nchw" "Batch, channels, height, width"
        Nhwc "nhwc" "Batch, height, width, channels"
    }
}

auto_enum! {
    /// Type of the tensor's elements.
    TensorType "GstTrtTensorType" of DType {
        F32 "f32" "32-bit float"
        F16 "f16" "16-bit float"
        U8 "u8" "Unsigned byte"
    }
}

/// Which parts of a frame become tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtRegions")]
pub enum Regions {
    #[default]
    #[enum_value(name = "The whole frame, or slices of it", nick = "frame")]
    Frame,
    #[enum_value(name = "Objects of a first model", nick = "objects")]
    Objects,
    #[enum_value(name = "The rectangles of region-list", nick = "list")]
    List,
}

/// Which chroma goes with a luma sample of NV12, P010_10LE and I420.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtChromaSampling")]
pub enum ChromaSampling {
    #[default]
    #[enum_value(
        name = "The sample of its own block of 2x2 pixels, as OpenCV, swscale and videoconvert read frames",
        nick = "nearest"
    )]
    Nearest,
    #[enum_value(name = "Interpolated between samples at the chroma-site of the caps", nick = "sited")]
    Sited,
}

impl From<ChromaSampling> for Chroma {
    fn from(value: ChromaSampling) -> Self {
        match value {
            ChromaSampling::Nearest => Chroma::Nearest,
            ChromaSampling::Sited => Chroma::Sited,
        }
    }
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtpreprocess", gst::Rank::NONE, TrtPreprocess::static_type())
}
