// SPDX-License-Identifier: MPL-2.0
//! The properties of trtpreprocess. Those that are unset, which is the default, are the model's.

use super::{ChromaSampling, Resize, TensorColors, TensorOrder, TensorType};
use crate::core::device::Device;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::tensor::{DType, TensorDesc};
use crate::image::geometry::ResizeMode;
use crate::image::preprocess::device::Upload;
use crate::image::transform::{Chroma, Colors, InputSpec, InputTransform, TensorLayout, parse_size, parse_triple};

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
    pub upload: Upload,
    /// -1 follows the pipeline.
    pub cuda_device_id: i32,
    /// Takes the GPU's time for each frame.
    pub measure: bool,
}

/// What that means; `None` is left to the model.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    fit: Option<ResizeMode>,
    shortest_edge: Option<u32>,
    pad: Option<u8>,
    colors: Option<Colors>,
    chroma: Chroma,
    scale: Option<f32>,
    mean: Option<[f32; 3]>,
    std: Option<[f32; 3]>,
    order: Option<TensorLayout>,
    dtype: Option<DType>,
    size: Option<(u32, u32)>,
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
            upload: Upload::Auto,
            cuda_device_id: -1,
            measure: false,
        }
    }
}

impl PreprocessSettings {
    pub fn read(&self) -> Result<Overrides> {
        let std = triple("std", &self.std)?;
        if std.is_some_and(|std| std.contains(&0.0)) {
            return Err(Error::new(ErrorKind::Settings, "std divides, so it cannot be 0").remedy("Use 1 for no effect"));
        }
        Ok(Overrides {
            fit: self.resize.into(),
            shortest_edge: (self.shortest_edge != 0).then_some(self.shortest_edge),
            pad: u8::try_from(self.pad_value).ok(),
            colors: self.colors.into(),
            chroma: self.chroma_sampling.into(),
            scale: (self.scale != 0.0).then_some(self.scale),
            mean: triple("mean", &self.mean)?,
            std,
            order: self.order.into(),
            dtype: self.dtype.into(),
            size: parse_size("tensor-size", &self.size)?,
        })
    }
}

impl Overrides {
    /// The tensor to make: what trtinfer wants where there is one, changed by the user's properties. Without trtinfer it is made
    /// on that device.
    pub fn apply(&self, wanted: Option<&InputSpec>, device: Device) -> Result<InputSpec> {
        let mut spec = match (wanted, self.size) {
            (Some(wanted), _) => wanted.clone(),
            (None, Some(_)) => InputSpec {
                device,
                desc: TensorDesc::new("images", DType::F32, &[1, 3, 0, 0]),
                order: TensorLayout::Nchw,
                transform: InputTransform::default(),
            },
            (None, None) => {
                return Err(Error::new(ErrorKind::Settings, "trtpreprocess does not know which tensor to make")
                    .remedy("Put trtinfer behind it, which knows from the model, or set tensor-size"));
            }
        };

        let (_, height, width) = spec.chw();
        let (width, height) = self.size.unwrap_or((width as u32, height as u32));
        let transform = &mut spec.transform;
        transform.colors = self.colors.unwrap_or(transform.colors);
        transform.chroma = self.chroma;
        transform.fit = self.fit.unwrap_or(transform.fit);
        transform.shortest_edge = self.shortest_edge.unwrap_or(transform.shortest_edge);
        transform.pad = self.pad.unwrap_or(transform.pad);
        transform.scale = self.scale.unwrap_or(transform.scale);
        transform.mean = self.mean.unwrap_or(transform.mean);
        transform.std = self.std.unwrap_or(transform.std);
        spec.order = self.order.unwrap_or(spec.order);
        spec.desc.dtype = self.dtype.unwrap_or(spec.desc.dtype);

        // A model with one channel wants luma; asking for gray makes one channel.
        let (channels, width, height) = (transform.colors.channels() as i64, width.into(), height.into());
        let dims = match spec.order {
            TensorLayout::Nchw => [1, channels, height, width],
            TensorLayout::Nhwc => [1, height, width, channels],
        };
        spec.desc = TensorDesc::new(spec.desc.name, spec.desc.dtype, &dims);
        Ok(spec)
    }
}

fn triple(property: &str, text: &str) -> Result<Option<[f32; 3]>> {
    if text.is_empty() {
        return Ok(None);
    }
    parse_triple(text, ',').map(Some).ok_or_else(|| {
        Error::new(ErrorKind::Settings, format!("{property}={text} cannot be read"))
            .remedy("Write one number, or one for each channel like 0.485,0.456,0.406")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_override_shows() {
        let wanted: InputSpec = "cpu f32 1x3x32x64 nchw rgb letterbox:114 scale:0.003921569 images".parse().unwrap();
        assert_eq!(PreprocessSettings::default().read().unwrap().apply(Some(&wanted), Device::Host).unwrap(), wanted);
        let all = PreprocessSettings {
            resize: Resize::CenterCrop,
            shortest_edge: 150,
            pad_value: 0,
            colors: TensorColors::Bgr,
            chroma_sampling: ChromaSampling::Sited,
            scale: 1.0,
            mean: "1,2,3".into(),
            std: "2".into(),
            order: TensorOrder::Nhwc,
            dtype: TensorType::F16,
            size: "128x96".into(),
            upload: Upload::Auto,
            cuda_device_id: -1,
            measure: false,
        };
        let spec = all.read().unwrap().apply(Some(&wanted), Device::Host).unwrap();
        assert_eq!(
            spec.to_string(),
            "cpu f16 1x96x128x3 nhwc bgr center-crop:0 scale:1 chroma:sited shortest-edge:150 mean:1/2/3 std:2/2/2 images"
        );
    }

    #[test]
    fn without_trtinfer_a_size_is_enough() {
        let settings = PreprocessSettings { size: "64x32".into(), ..PreprocessSettings::default() };
        let spec = settings.read().unwrap().apply(None, Device::Host).unwrap();
        assert_eq!(spec.desc.to_string(), "images f32 1x3x32x64");
        assert_eq!(spec.transform.fit, ResizeMode::Letterbox);
        let error = PreprocessSettings::default().read().unwrap().apply(None, Device::Host).unwrap_err();
        assert!(error.message().contains("trtinfer"), "{error}");
    }

    #[test]
    fn nonsense_is_refused() {
        for settings in [
            PreprocessSettings { size: "640".into(), ..PreprocessSettings::default() },
            PreprocessSettings { size: "0x640".into(), ..PreprocessSettings::default() },
            PreprocessSettings { size: "640x16385".into(), ..PreprocessSettings::default() },
            PreprocessSettings { mean: "a".into(), ..PreprocessSettings::default() },
            PreprocessSettings { std: "0".into(), ..PreprocessSettings::default() },
            PreprocessSettings { std: "1,2".into(), ..PreprocessSettings::default() },
        ] {
            assert_eq!(settings.read().unwrap_err().kind(), ErrorKind::Settings, "{settings:?}");
        }
    }
}
