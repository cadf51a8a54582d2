// SPDX-License-Identifier: MPL-2.0
//! A `ModelInferResponse`, read where it lies. Messages in it are not made into structures: an answer of some MiB could have
//! millions of empty ones.

use super::client::CallError;
use crate::tensor::{DType, TensorDesc};

/// An output of an answer.
pub struct AnswerOutput<'a> {
    pub name: &'a str,
    pub datatype: &'a str,
    pub shape: Vec<i64>,
    /// `InferTensorContents`: elements as numbers of protobuf, where they are not bytes at the end of the answer.
    pub contents: Option<&'a [u8]>,
}

pub struct InferAnswer<'a> {
    pub outputs: Vec<AnswerOutput<'a>>,
    /// Bytes of the outputs, in their order.
    pub raw: Vec<&'a [u8]>,
}

/// More outputs than any model has, and more dimensions.
const MAX_OUTPUTS: usize = 1024;
const MAX_RANK: usize = 16;

/// The fields of a message.
struct WireFields<'a>(&'a [u8]);

#[derive(Clone, Copy)]
enum FieldValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

impl<'a> WireFields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn read(&mut self) -> Option<(u64, FieldValue<'a>)> {
        let key = varint(&mut self.0)?;
        let value = match key & 7 {
            0 => FieldValue::Number(varint(&mut self.0)?),
            1 => FieldValue::Number(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = varint(&mut self.0)?;
                FieldValue::Bytes(self.take(usize::try_from(length).ok()?)?)
            }
            5 => FieldValue::Number(u32::from_le_bytes(self.take(4)?.try_into().ok()?).into()),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

/// The field's number and value, or `None` where the message is cut or broken there.
impl<'a> Iterator for WireFields<'a> {
    type Item = Option<(u64, FieldValue<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> InferAnswer<'a> {
    /// The answer to a call.
    pub fn of(message: &'a [u8]) -> Result<Self, CallError> {
        let garbage = || CallError::Garbage("its answer is not the protocol's, or was cut".into());
        InferAnswer::read(message).ok_or_else(garbage)
    }

    /// `None` where it is no such message.
    fn read(message: &'a [u8]) -> Option<Self> {
        let mut answer = InferAnswer { outputs: Vec::new(), raw: Vec::new() };
        for field in WireFields(message) {
            match field? {
                (5, FieldValue::Bytes(output)) if answer.outputs.len() < MAX_OUTPUTS => {
                    answer.outputs.push(AnswerOutput::read(output)?);
                }
                (6, FieldValue::Bytes(raw)) if answer.raw.len() < MAX_OUTPUTS => answer.raw.push(raw),
                (5 | 6, _) => return None,
                _ => {}
            }
        }
        // Bytes are of the output that has the same place.
        (answer.raw.is_empty() || answer.raw.len() == answer.outputs.len()).then_some(answer)
    }
}

impl<'a> AnswerOutput<'a> {
    fn read(message: &'a [u8]) -> Option<Self> {
        let mut output = AnswerOutput { name: "", datatype: "", shape: Vec::new(), contents: None };
        for field in WireFields(message) {
            match field? {
                (1, FieldValue::Bytes(name)) => output.name = std::str::from_utf8(name).ok()?,
                (2, FieldValue::Bytes(datatype)) => output.datatype = std::str::from_utf8(datatype).ok()?,
                (3, FieldValue::Number(dim)) => output.shape.push(dim as i64),
                (3, FieldValue::Bytes(mut dims)) => {
                    while !dims.is_empty() && output.shape.len() <= MAX_RANK {
                        output.shape.push(varint(&mut dims)? as i64);
                    }
                }
                (5, FieldValue::Bytes(contents)) => output.contents = Some(contents),
                _ => {}
            }
            if output.shape.len() > MAX_RANK {
                return None;
            }
        }
        Some(output)
    }
}

/// The elements of `InferTensorContents` as a tensor's bytes; `None` where they are not as many, or of another type.
pub fn elements(contents: &[u8], desc: &TensorDesc) -> Option<Vec<u8>> {
    const BOOL: u64 = 1;
    const INT: u64 = 2;
    const INT64: u64 = 3;
    const UINT: u64 = 4;
    const FP32: u64 = 6;
    let (wanted, size) = (desc.bytes()?, desc.dtype.size());
    let kind = match desc.dtype {
        DType::F32 => FP32,
        DType::I32 | DType::I8 => INT,
        DType::I64 => INT64,
        DType::U8 => UINT,
        DType::Bool => BOOL,
        DType::F16 => return None, // the protocol has no numbers of them
    };
    let mut bytes = Vec::new();
    let mut push = |number: u64| {
        bytes.extend_from_slice(&number.to_le_bytes()[..size]);
        (bytes.len() <= wanted).then_some(())
    };
    for field in WireFields(contents) {
        match field? {
            (field, FieldValue::Number(number)) if field == kind => push(number)?,
            (field, FieldValue::Bytes(mut packed)) if field == kind => {
                if kind == FP32 {
                    let (chunks, rest) = packed.as_chunks::<4>();
                    if !rest.is_empty() {
                        return None;
                    }
                    chunks.iter().try_for_each(|chunk| push(u32::from_le_bytes(*chunk).into()))?;
                } else {
                    while !packed.is_empty() {
                        push(varint(&mut packed)?)?;
                    }
                }
            }
            _ => return None,
        }
    }
    (bytes.len() == wanted).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_become_elements() {
        let of = |contents: &[u8], dtype| elements(contents, &TensorDesc::new("t", dtype, &[2]));
        let floats = [&[0x32, 8][..], &1.5f32.to_le_bytes(), &f32::NAN.to_le_bytes()].concat();
        assert_eq!(of(&floats, DType::F32).unwrap(), floats[2..]);
        let apart = [&[0x35][..], &1.5f32.to_le_bytes(), &[0x35], &2f32.to_le_bytes()].concat();
        assert_eq!(of(&apart, DType::F32).unwrap(), [1.5f32, 2.0].map(f32::to_le_bytes).concat());
        assert_eq!(
            of(&[0x12, 11, 7, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], DType::I32).unwrap(),
            [7, 0, 0, 0, 255, 255, 255, 255]
        );
        assert_eq!(of(&[0x22, 3, 0xff, 1, 3], DType::U8).unwrap(), [255, 3]);
        assert_eq!(of(&[0x0a, 2, 1, 0], DType::Bool).unwrap(), [1, 0]);
        assert_eq!(of(&[0x1a, 2, 1, 2], DType::I64).unwrap(), [1i64, 2].map(i64::to_le_bytes).concat());
        for (contents, dtype) in [
            (&[0x22, 2, 1][..], DType::U8),
            (&[0x22, 1, 1], DType::U8),
            (&[0x22, 3, 1, 2, 3], DType::U8),
            (&[0x12, 2, 1, 2], DType::U8),
            (&[0x32, 7, 0, 0, 0, 0, 0, 0, 0], DType::F32),
            (&[0x32, 4, 0, 0, 0, 0], DType::F16),
            (&[], DType::F32),
        ] {
            assert_eq!(of(contents, dtype), None, "{contents:?} {dtype}");
        }
    }

    #[test]
    fn a_message_of_millions_is_refused() {
        for field in [0x2a, 0x32] {
            assert!(InferAnswer::read(&[field, 0].repeat(1 << 20)).is_none());
        }
        let dims = [&[0x2a, 0x82, 0x80, 0x40, 0x1a, 0xfe, 0xff, 0x3f][..], &vec![1; (1 << 20) - 2]].concat();
        assert!(InferAnswer::read(&dims).is_none());
    }

    proptest! {
        #![proptest_config(crate::test::cases(500))]
        #[test]
        fn any_bytes_end(message in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = InferAnswer::read(&message);
            let _ = elements(&message, &TensorDesc::new("t", DType::I32, &[3]));
        }
    }
}
