// SPDX-License-Identifier: MPL-2.0
//! Numbers and structures that C++ functions take and return, and what they are to us.

use super::{AbiVersion, X, number, same};
use crate::onnx::exact::StepWork;
use crate::tensor::{DType, Dims};

/// Dims of 8.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Dims32 {
    count: i32,
    dims: [i32; MAX_DIMS],
}

/// Dims of 10 and later, and of RTX.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Dims64 {
    count: i32,
    dims: [i64; MAX_DIMS],
}

const MAX_DIMS: usize = 8;

/// Either. Both are too large to be returned in registers, so C++ writes them through a hidden pointer. A buffer of the
/// larger size does for both.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union RawDims {
    pub(super) narrow: Dims32,
    wide: Dims64,
}

const _: () = assert!(size_of::<Dims32>() == 36 && size_of::<Dims64>() == 72 && size_of::<RawDims>() == 72);

impl RawDims {
    /// `None` for more dimensions than TensorRT has, or ones that do not fit.
    pub(super) fn new(dims: &[i64], abi: AbiVersion) -> Option<Self> {
        let mut wide = Dims64 { count: i32::try_from(dims.len()).ok()?, dims: [0; MAX_DIMS] };
        wide.dims.get_mut(..dims.len())?.copy_from_slice(dims);
        if abi != AbiVersion::V8 {
            return Some(RawDims { wide });
        }
        let mut narrow = Dims32 { count: wide.count, dims: [0; MAX_DIMS] };
        for (narrow, &wide) in narrow.dims.iter_mut().zip(dims) {
            *narrow = i32::try_from(wide).ok()?;
        }
        Some(RawDims { narrow })
    }

    /// `None` where TensorRT has no such tensor, which a negative count means.
    ///
    /// # Safety
    /// It is what that ABI version wrote.
    pub(super) unsafe fn read(&self, abi: AbiVersion) -> Option<Dims> {
        // SAFETY: the ABI version determines which member of the union was written.
        unsafe {
            match abi {
                AbiVersion::V8 => {
                    let count = usize::try_from(self.narrow.count).ok()?;
                    Some(Dims(self.narrow.dims.get(..count)?.iter().map(|&dim| dim.into()).collect()))
                }
                _ => Some(Dims::new(self.wide.dims.get(..usize::try_from(self.wide.count).ok()?)?)),
            }
        }
    }
}

/// TensorRT's number of an element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataType(pub(super) i32);

impl DataType {
    /// By number.
    const ALL: [(&'static str, Option<DType>); 12] = [
        ("f32", Some(DType::F32)),
        ("f16", Some(DType::F16)),
        ("i8", Some(DType::I8)),
        ("i32", Some(DType::I32)),
        ("bool", Some(DType::Bool)),
        ("u8", Some(DType::U8)),
        ("fp8", None),
        ("bf16", None),
        ("i64", Some(DType::I64)),
        ("int4", None),
        ("fp4", None),
        ("e8m0", None),
    ];

    /// `None` for types that our tensors do not have.
    pub fn dtype(self) -> Option<DType> {
        DataType::ALL.get(usize::try_from(self.0).ok()?)?.1
    }

    pub fn name(self) -> String {
        let known = usize::try_from(self.0).ok().and_then(|number| DataType::ALL.get(number));
        known.map_or_else(|| format!("element type {}", self.0), |(name, _)| name.to_string())
    }
}

impl From<DType> for DataType {
    fn from(dtype: DType) -> Self {
        let number = DataType::ALL.iter().position(|(_, known)| *known == Some(dtype));
        DataType(number.expect("TensorRT has every type of ours") as i32)
    }
}

/// What a build may do. Every ABI version numbers them differently, and not all have all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuilderFlag {
    Fp16,
    Int8,
    GpuFallback,
    DisableTimingCache,
    Tf32,
    PreferPrecisionConstraints,
    DirectIo,
    VersionCompatible,
    ExcludeLeanRuntime,
}

impl BuilderFlag {
    pub(super) fn number(self, abi: AbiVersion) -> Option<i32> {
        let numbers = match self {
            // RTX 1.3 and 1.4 have these two, but their networks are strongly typed all the same.
            BuilderFlag::Fp16 => [0, 0, X, X, X],
            BuilderFlag::Int8 => [1, 1, X, X, X],
            BuilderFlag::GpuFallback => same(3),
            BuilderFlag::DisableTimingCache => [6, 5, 5, 5, 5],
            BuilderFlag::Tf32 => [7, 6, 6, 6, 6],
            BuilderFlag::PreferPrecisionConstraints => [11, 10, X, X, X],
            BuilderFlag::DirectIo => [12, 11, 11, 11, 11],
            BuilderFlag::VersionCompatible => [15, 13, 12, 13, 12],
            BuilderFlag::ExcludeLeanRuntime => [16, 14, 13, 14, 13],
        };
        number(numbers, abi).map(i32::from)
    }
}

/// What layers of a weakly typed family do, by `LayerType` of NvInfer.h 8.6 and 10.0 to 10.16.
pub(super) fn work_of_layer(number: i32, abi: AbiVersion) -> StepWork {
    const SOFTMAX: i32 = 6;
    const UNARY: i32 = 11;
    const REDUCE: i32 = 14;
    let (slice, normalization) = if abi == AbiVersion::V8 { (23, 46) } else { (22, 45) };
    match number {
        // Convolution, deconvolution, matrix multiplication; 1 is fully connected in 8, and a cast in 10. Which of them have weights
        // is not looked at.
        0 | 7 | 17 => StepWork::Product,
        1 if abi == AbiVersion::V8 => StepWork::Product,
        SOFTMAX | UNARY | REDUCE => StepWork::Sensitive,
        // Activation, scale, concatenation, elementwise, shuffle.
        2 | 5 | 8 | 9 | 13 => StepWork::Light,
        number if number == slice => StepWork::Light,
        number if number == normalization => StepWork::Sensitive,
        _ => StepWork::Other,
    }
}

/// On which other GPUs an engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hardware {
    /// The one that it was built on.
    Same = 0,
    AmperePlus = 1,
    /// From 10.9.
    SameComputeCapability = 2,
}

/// Which of a profile's dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptProfileSelector {
    Smallest = 0,
    Usual = 1,
    Largest = 2,
}

/// Memory for the builder's temporary results.
pub(super) const WORKSPACE: i32 = 0;
/// The format of tensors that lie as their dimensions say, and its bit in a mask.
pub(super) const LINEAR: i32 = 0;
pub(super) const LINEAR_BIT: u32 = 1;

/// How a tensor is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    None,
    Input,
    Output,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_round_trip() {
        for abi in AbiVersion::ALL {
            let raw = RawDims::new(&[1, 3, -1, 640], abi).unwrap();
            // SAFETY: made for that ABI version just above.
            assert_eq!(unsafe { raw.read(abi) }, Some(Dims::new(&[1, 3, -1, 640])));
            assert!(RawDims::new(&[1; 9], abi).is_none());
        }
        assert!(RawDims::new(&[1 << 40], AbiVersion::V8).is_none());
        let none = RawDims { wide: Dims64 { count: -1, dims: [0; 8] } };
        // SAFETY: as above.
        assert_eq!(unsafe { none.read(AbiVersion::V10) }, None);
    }

    #[test]
    fn types_have_numbers_and_names() {
        for dtype in DType::ALL {
            assert_eq!(DataType::from(dtype).dtype(), Some(dtype));
            assert_eq!(DataType::from(dtype).name(), dtype.name());
        }
        assert_eq!(DataType(7).dtype(), None);
        assert_eq!(DataType(7).name(), "bf16");
        assert_eq!(DataType(99).name(), "element type 99");
    }
}
