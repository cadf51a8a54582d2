// SPDX-License-Identifier: MPL-2.0
//! Types of elements as the protocol calls them.

use crate::tensor::DType;

/// `datatype` of tensors.
pub fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "FP32",
        DType::F16 => "FP16",
        DType::U8 => "UINT8",
        DType::I8 => "INT8",
        DType::I32 => "INT32",
        DType::I64 => "INT64",
        DType::Bool => "BOOL",
    }
}

/// `None` for those that models here do not have.
pub fn of_name(text: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|&dtype| name(dtype) == text)
}
