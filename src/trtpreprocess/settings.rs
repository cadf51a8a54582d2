//! What the user says instead of the model: each property of trtpreprocess, unset by default.

use super::{Resize, TensorColors, TensorOrder, TensorType};
use crate::error::{Error, Kind, Result};
use crate::tensor::{DType, TensorDesc};
use crate::vision::recipe::{Colors, InputSpec, Order, Recipe, parse_size, parse_triple};

#[derive(Clone, Debug)]
pub struct Overrides {
    pub resize: Resize,
    /// -1 is unset.
    pub pad_value: i32,
    pub colors: TensorColors,
    /// 0 is unset.
    pub scale: f64,
    pub mean: String,
    pub std: String,
    pub order: TensorOrder,
    pub dtype: TensorType,
    pub size: String,
}

impl Default for Overrides {
    fn default() -> Self {
        Overrides {
            resize: Resize::Auto,
            pad_value: -1,
            colors: TensorColors::Auto,
            scale: 0.0,
            mean: String::new(),
            std: String::new(),
            order: TensorOrder::Auto,
            dtype: TensorType::Auto,
            size: String::new(),
        }
    }
}

impl Overrides {
    /// The tensor to make: what trtinfer wants where there is one, changed by what the user says.
    pub fn apply(&self, wanted: Option<&InputSpec>) -> Result<InputSpec> {
        let size = parse_size("tensor-size", &self.size)?;
        let mut spec = match (wanted, size) {
            (Some(wanted), _) => wanted.clone(),
            (None, Some(_)) => InputSpec {
                place: "cpu".into(),
                desc: TensorDesc::new("images", DType::F32, &[1, 3, 0, 0]),
                order: Order::Nchw,
                recipe: Recipe::default(),
            },
            (None, None) => {
                return Err(Error::new(Kind::Settings, "trtpreprocess does not know which tensor to make")
                    .remedy("Put trtinfer behind it, which knows from the model, or set tensor-size"));
            }
        };

        let (_, height, width) = spec.chw();
        let (width, height) = size.unwrap_or((width as u32, height as u32));
        let recipe = &mut spec.recipe;
        recipe.colors = Option::from(self.colors).unwrap_or(recipe.colors);
        recipe.fit = Option::from(self.resize).unwrap_or(recipe.fit);
        recipe.pad = u8::try_from(self.pad_value).unwrap_or(recipe.pad);
        if self.scale != 0.0 {
            recipe.scale = self.scale as f32;
        }
        recipe.mean = triple("mean", &self.mean)?.unwrap_or(recipe.mean);
        recipe.std = triple("std", &self.std)?.unwrap_or(recipe.std);
        if recipe.std.contains(&0.0) {
            return Err(Error::new(Kind::Settings, "std divides, so it cannot be 0").remedy("Use 1 for no effect"));
        }
        spec.order = Option::from(self.order).unwrap_or(spec.order);
        spec.desc.dtype = Option::from(self.dtype).unwrap_or(spec.desc.dtype);

        // A model with one channel wants luma; asking for gray makes one channel.
        let channels = match spec.recipe.colors {
            Colors::Gray => 1,
            Colors::Rgb | Colors::Bgr => 3,
        };
        let (width, height) = (width.into(), height.into());
        let dims = match spec.order {
            Order::Nchw => [1, channels, height, width],
            Order::Nhwc => [1, height, width, channels],
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
        Error::new(Kind::Settings, format!("{property}={text} cannot be read"))
            .remedy("Write one number, or one for each channel like 0.485,0.456,0.406")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vision::geometry::Fit;

    #[test]
    fn each_override_shows() {
        let wanted: InputSpec = "cpu f32 1x3x32x64 nchw rgb letterbox:114 scale:0.003921569 images".parse().unwrap();
        assert_eq!(Overrides::default().apply(Some(&wanted)).unwrap(), wanted);
        let all = Overrides {
            resize: Resize::Stretch,
            pad_value: 0,
            colors: TensorColors::Bgr,
            scale: 1.0,
            mean: "1,2,3".into(),
            std: "2".into(),
            order: TensorOrder::Nhwc,
            dtype: TensorType::F16,
            size: "128x96".into(),
        };
        let spec = all.apply(Some(&wanted)).unwrap();
        assert_eq!(spec.to_string(), "cpu f16 1x96x128x3 nhwc bgr stretch:0 scale:1 mean:1/2/3 std:2/2/2 images");
    }

    #[test]
    fn without_trtinfer_a_size_is_enough() {
        let overrides = Overrides { size: "64x32".into(), ..Overrides::default() };
        let spec = overrides.apply(None).unwrap();
        assert_eq!(spec.desc.to_string(), "images f32 1x3x32x64");
        assert_eq!(spec.recipe.fit, Fit::Letterbox);
        assert!(Overrides::default().apply(None).unwrap_err().message().contains("trtinfer"));
    }

    #[test]
    fn nonsense_is_refused() {
        for overrides in [
            Overrides { size: "640".into(), ..Overrides::default() },
            Overrides { size: "0x640".into(), ..Overrides::default() },
            Overrides { size: "64x64".into(), mean: "a".into(), ..Overrides::default() },
            Overrides { size: "64x64".into(), std: "0".into(), ..Overrides::default() },
        ] {
            assert_eq!(overrides.apply(None).unwrap_err().kind(), Kind::Settings, "{overrides:?}");
        }
    }
}
