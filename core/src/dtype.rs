// SPDX-License-Identifier: MPL-2.0
//! Element types, dimensions and descriptions of tensors.
//!
//! [`TensorDesc`] has a text form (`images f32 1x3x640x640`) that logs, errors and caps share.

use std::fmt;
use std::str::FromStr;

use half::f16;
use smallvec::SmallVec;

use crate::error::{Error, ErrorKind, Result};

/// Type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    F32,
    F16,
    U8,
    I8,
    I32,
    I64,
    Bool,
}

impl DType {
    #[doc(hidden)]
    pub const ALL: [DType; 7] = [DType::F32, DType::F16, DType::U8, DType::I8, DType::I32, DType::I64, DType::Bool];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::U8 | DType::I8 | DType::Bool => 1,
            DType::F16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::I64 => 8,
        }
    }

    #[doc(hidden)]
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        DType::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| Error::new(ErrorKind::Settings, format!("Unknown element type “{text}”")))
    }
}

/// A Rust type that tensors hold.
pub trait Element: bytemuck::Pod {
    const DTYPE: DType;
    #[doc(hidden)]
    fn to_f32(self) -> f32;
}

macro_rules! element {
    ($($rust:ty => $dtype:ident, $self:ident $to_f32:expr;)*) => {$(
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
            #[inline(always)]
            fn to_f32($self) -> f32 {
                $to_f32
            }
        }
    )*};
}

element! {
    f32 => F32, self self;
    f16 => F16, self f16::to_f32(self);
    u8 => U8, self self as f32;
    i8 => I8, self self as f32;
    i32 => I32, self self as f32;
    i64 => I64, self self as f32;
}

/// Dimensions of a tensor, outermost first; [`Dims::DYNAMIC`] where the model leaves one open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dims(pub SmallVec<[i64; 6]>);

impl Dims {
    pub const DYNAMIC: i64 = -1;

    pub fn new(dims: &[i64]) -> Self {
        Dims(SmallVec::from_slice(dims))
    }

    #[doc(hidden)]
    pub fn is_static(&self) -> bool {
        self.0.iter().all(|&dim| dim >= 0)
    }

    /// Number of elements; `None` where a dimension is open or the product does not fit.
    #[doc(hidden)]
    pub fn elements(&self) -> Option<usize> {
        self.0.iter().try_fold(1usize, |product, &dim| product.checked_mul(usize::try_from(dim).ok()?))
    }

    /// Whether a tensor of these dimensions may be given where `wanted` is asked for: same rank, open ones take anything.
    #[doc(hidden)]
    pub fn fits(&self, wanted: &Dims) -> bool {
        self.0.len() == wanted.0.len()
            && self.0.iter().zip(&wanted.0).all(|(have, want)| *want == Dims::DYNAMIC || have == want)
    }
}

impl std::ops::Deref for Dims {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        &self.0
    }
}

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("scalar");
        }
        for (i, &dim) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "x" };
            match dim {
                Dims::DYNAMIC => write!(f, "{separator}?")?,
                dim => write!(f, "{separator}{dim}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Dims {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "scalar" {
            return Ok(Dims::default());
        }
        text.split('x')
            .map(|dim| match dim {
                "?" => Some(Dims::DYNAMIC),
                dim => dim.parse().ok().filter(|&dim: &i64| dim >= 0),
            })
            .collect::<Option<_>>()
            .map(Dims)
            .ok_or_else(|| {
                Error::new(ErrorKind::Settings, format!("Invalid dimensions “{text}”; expected e.g. 1x3x640x640"))
            })
    }
}

/// Name, element type and dimensions of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorDesc {
    pub name: String,
    pub dtype: DType,
    pub dims: Dims,
}

impl TensorDesc {
    pub fn new(name: impl Into<String>, dtype: DType, dims: &[i64]) -> Self {
        TensorDesc { name: name.into(), dtype, dims: Dims::new(dims) }
    }

    /// Bytes of the whole tensor; `None` where a dimension is open or the size does not fit.
    pub fn bytes(&self) -> Option<usize> {
        self.dims.elements()?.checked_mul(self.dtype.size())
    }
}

impl fmt::Display for TensorDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.dtype, self.dims)
    }
}

/// A list of descriptions, as errors and `model-info` print it.
pub fn list(descs: &[TensorDesc]) -> String {
    descs.iter().map(TensorDesc::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_round_trip() {
        for text in ["1x3x640x640", "?x3x?x?", "scalar", "0x6"] {
            assert_eq!(text.parse::<Dims>().unwrap().to_string(), text);
        }
        for text in ["", "1x", "x1", "-1x3", "1×3", "axb"] {
            assert!(text.parse::<Dims>().is_err(), "{text}");
        }
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
        }
    }

    #[test]
    fn open_dimensions_take_anything() {
        let wanted: Dims = "?x3x?x?".parse().unwrap();
        assert!("1x3x64x32".parse::<Dims>().unwrap().fits(&wanted));
        assert!(!"1x4x64x32".parse::<Dims>().unwrap().fits(&wanted));
        assert!(!"3x64x32".parse::<Dims>().unwrap().fits(&wanted));
        for text in ["1x3", "1x3x64x32x1", "scalar"] {
            assert!(!text.parse::<Dims>().unwrap().fits(&wanted), "{text}");
        }
    }
}
