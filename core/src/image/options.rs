// SPDX-License-Identifier: MPL-2.0
//! How tensors are made of frames, as options: those that elements and sessions have in common.

use super::transform::{parse_size, parse_triple};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::image::clip::MAX_FRAMES;
use crate::image::geometry::ResizeMode;
use crate::image::preprocess::device::Upload;
use crate::image::transform::{Chroma, Colors, TensorLayout};
use crate::options::{Choices, OptionKind, OptionSpec, OptionValue, SettingField, choices};

choices! {
    Option<ResizeMode>, "GstTrtResize":
    None => "auto" "As the model wants it"
    Some(ResizeMode::Letterbox) => "letterbox" "Keep the aspect, frame in the middle"
    Some(ResizeMode::LetterboxTopLeft) => "letterbox-top-left" "Keep the aspect, frame at the top left"
    Some(ResizeMode::Stretch) => "stretch" "Fill the tensor, without keeping the aspect"
    Some(ResizeMode::CenterCrop) => "center-crop" "Keep the aspect, antialiased, and cut out the middle, as torchvision does"
}

choices! {
    Option<Colors>, "GstTrtTensorColors":
    None => "auto" "As the model wants it"
    Some(Colors::Rgb) => "rgb" "Red, green, blue"
    Some(Colors::Bgr) => "bgr" "Blue, green, red"
    Some(Colors::Gray) => "gray" "Luma only"
}

choices! {
    Option<TensorLayout>, "GstTrtTensorOrder":
    None => "auto" "As the model wants it"
    Some(TensorLayout::Nchw) => "nchw" "Batch, channels, height, width"
    Some(TensorLayout::Nhwc) => "nhwc" "Batch, height, width, channels"
    Some(TensorLayout::Ncthw) => "ncthw" "Of clips: batch, channels, frames, height, width"
    Some(TensorLayout::Ntchw) => "ntchw" "Of clips: batch, frames, channels, height, width"
    Some(TensorLayout::Nthwc) => "nthwc" "Of clips: batch, frames, height, width, channels"
}

choices! {
    Option<DType>, "GstTrtTensorType":
    None => "auto" "As the model wants it"
    Some(DType::F32) => "f32" "32-bit float"
    Some(DType::F16) => "f16" "16-bit float"
    Some(DType::U8) => "u8" "Unsigned byte"
}

pub static INPUT_SIZE: OptionSpec = OptionSpec {
    name: "input-size",
    nick: "Input size",
    blurb: "Width and height like 640x640, for models that leave them open; auto takes the smallest rectangle that \
            frames need within the size in the file, or that size with shared-model (unset = auto)",
    kind: OptionKind::Text,
};

pub static RESIZE: OptionSpec = OptionSpec {
    name: "resize",
    nick: "Resize",
    blurb: "How the frame is laid into the tensor",
    kind: <Option<ResizeMode>>::KIND,
};

pub static PAD_VALUE: OptionSpec = OptionSpec {
    name: "pad-value",
    nick: "Padding value",
    blurb: "Sample value of the letterbox padding (-1 = as the model wants it)",
    kind: OptionKind::Int(-1..=255),
};

pub static TENSOR_COLORS: OptionSpec = OptionSpec {
    name: "tensor-colors",
    nick: "Tensor colors",
    blurb: "Colors in the channels of the tensor",
    kind: <Option<Colors>>::KIND,
};

pub static SCALE: OptionSpec = OptionSpec {
    name: "scale",
    nick: "Scale",
    blurb: "Factor of the samples: tensor = (sample * scale - mean) / std, with samples of 0..255 (0 = as the model wants it)",
    kind: OptionKind::Float(0.0..=f32::MAX),
};

pub static SHORTEST_EDGE: OptionSpec = OptionSpec {
    name: "shortest-edge",
    nick: "Shortest edge",
    blurb: "With resize=center-crop: pixels of the frame's shorter edge before the middle is cut out, 256 for many \
            inputs of 224 (0 = as the model wants it, else as many as the tensor has)",
    kind: OptionKind::UInt(0..=16384),
};

pub static CHROMA_SAMPLING: OptionSpec = OptionSpec {
    name: "chroma-sampling",
    nick: "Chroma sampling",
    blurb: "Which chroma goes with each luma sample of NV12, P010_10LE and I420 frames",
    kind: Chroma::KIND,
};

pub static MEAN: OptionSpec = OptionSpec {
    name: "mean",
    nick: "Mean",
    blurb: "Mean to subtract: tensor = (sample * scale - mean) / std; one number, or one per channel like 0.485,0.456,0.406 \
            (unset = as the model wants it)",
    kind: OptionKind::Text,
};

pub static STD: OptionSpec = OptionSpec {
    name: "std",
    nick: "Standard deviation",
    blurb: "Standard deviation to divide by: tensor = (sample * scale - mean) / std; one number, or one per channel like \
            0.229,0.224,0.225 (unset = as the model wants it)",
    kind: OptionKind::Text,
};

pub static FRAMES: OptionSpec = OptionSpec {
    name: "frames",
    nick: "Frames",
    blurb: "Frames of a clip, for models that see several frames of a stream at once, such as classifiers of actions (0 = as many as \
            the model takes, else 16)",
    kind: OptionKind::UInt(0..=MAX_FRAMES as u32),
};

pub static FRAME_STEP: OptionSpec = OptionSpec {
    name: "frame-step",
    nick: "Frame step",
    blurb: "With clips: every n-th frame of the stream is one of a clip",
    kind: OptionKind::UInt(1..=1024),
};

pub static UPLOAD: OptionSpec = OptionSpec {
    name: "upload",
    nick: "Upload",
    blurb: "How frames in system memory come to the GPU",
    kind: Upload::KIND,
};

/// The option input-size: width and height, or `None` from `auto`, as from nothing.
pub fn parse_input_size(text: &str) -> Result<Option<(u32, u32)>> {
    parse_size(INPUT_SIZE.name, if text == "auto" { "" } else { text })
}

/// The options mean and std: a number for each channel, or one for all; `None` from nothing.
pub fn parse_channels(name: &str, text: &str) -> Result<Option<[f32; 3]>> {
    if text.is_empty() {
        return Ok(None);
    }
    parse_triple(text, ',').map(Some).ok_or_else(|| {
        Error::new(ErrorKind::Settings, format!("{name}={text} cannot be read"))
            .remedy("Write one number, or one for each channel like 0.485,0.456,0.406")
    })
}

/// The option std: it divides.
pub fn check_std(std: Option<[f32; 3]>) -> Result<()> {
    if std.is_some_and(|std| std.contains(&0.0)) {
        return Err(Error::new(ErrorKind::Settings, "std divides, so it cannot be 0").remedy("Use 1 for no effect"));
    }
    Ok(())
}

impl SettingField for Option<(u32, u32)> {
    fn value(&self) -> OptionValue {
        OptionValue::Text(self.map_or(String::new(), |(width, height)| format!("{width}x{height}")))
    }

    fn set(&mut self, _name: &str, value: OptionValue) -> Result<()> {
        *self = parse_input_size(&value.to_string())?;
        Ok(())
    }
}

impl SettingField for Option<[f32; 3]> {
    fn value(&self) -> OptionValue {
        OptionValue::Text(self.map_or(String::new(), |values| values.map(|value| value.to_string()).join(",")))
    }

    fn set(&mut self, name: &str, value: OptionValue) -> Result<()> {
        *self = parse_channels(name, &value.to_string())?;
        Ok(())
    }
}
