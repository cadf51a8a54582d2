//! Structures of `gsttrt.h`, member by member.

use std::ffi::{CStr, CString, c_char, c_void};

use super::{null, text, wrong};
use crate::core::error::Result;
use crate::core::tensor::{DType, TensorDesc};
use crate::image::device::DevicePlane;
use crate::image::frame::{self, Colorimetry, Matrix, PixelFormat, Plane};
use crate::session;

const MAX_RANK: usize = 8;
const MAX_PLANES: usize = 3;

/// `GstTrtTensor`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Tensor {
    pub name: *const c_char,
    pub dtype: i32,
    pub rank: u32,
    pub dims: [i64; MAX_RANK],
    pub bytes: usize,
}

/// `GstTrtFrame`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Frame {
    pub format: *const c_char,
    pub width: u32,
    pub height: u32,
    pub color: u32,
    pub planes: [*const c_void; MAX_PLANES],
    pub strides: [usize; MAX_PLANES],
    pub bytes: [usize; MAX_PLANES],
}

/// `GstTrtObject`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Object {
    pub label: *const c_char,
    pub class_id: u32,
    pub confidence: f32,
    pub x: f32,
    pub y: f32,
    pub width: f32,
    pub height: f32,
}

/// Flags of [`Frame::color`].
const BT709: u32 = 1;
const BT2020: u32 = 2;
const FULL_RANGE: u32 = 4;
const CHROMA_LEFT: u32 = 8;
const CHROMA_TOP: u32 = 16;

/// `count` values that C has.
///
/// # Safety
/// A pointer that is not NULL is to so many initialised values, which stay for `'a`.
pub unsafe fn array<'a, T>(name: &str, pointer: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(null(name));
    }
    if !pointer.is_aligned() || count.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(wrong(format!("The argument {name} is no array of {count}")));
    }
    // SAFETY: there are so many initialised values for `'a`; NULL, alignment and size were checked.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

impl Tensor {
    pub(super) fn new((name, desc): &(CString, TensorDesc)) -> Result<Self> {
        let rank = desc.dims.len();
        if rank > MAX_RANK {
            return Err(wrong(format!("{desc} has {rank} dimensions, and GstTrtTensor has room for {MAX_RANK}")));
        }
        let mut dims = [0; MAX_RANK];
        dims[..rank].copy_from_slice(&desc.dims);
        Ok(Tensor {
            name: name.as_ptr(),
            dtype: DType::ALL.iter().position(|&dtype| dtype == desc.dtype).expect("all are there") as i32,
            rank: rank as u32,
            dims,
            bytes: desc.bytes().unwrap_or(0),
        })
    }
}

impl Frame {
    /// The same in our words; planes are checked by whoever reads them.
    ///
    /// # Safety
    /// Pointers that are not NULL are to as much memory as the numbers say, which stays for `'a`.
    pub(super) unsafe fn read<'a>(&self) -> Result<(frame::Frame<'a>, Colorimetry)> {
        let (width, height) = (self.width as usize, self.height as usize);
        // SAFETY: `format` is NULL or a C string.
        let format = unsafe { self.pixels() }?;
        let planes = self.planes_of(format).map(|plane| {
            let (i, address) = plane?;
            // SAFETY: the plane has so many bytes, which stay for `'a`, or is NULL.
            let data = unsafe { array("frame->planes", address.cast::<u8>(), self.bytes[i]) }?;
            Ok(Plane { data, stride: self.strides[i] })
        });
        Ok((frame::Frame { format, width, height, planes: planes.collect::<Result<_>>()? }, self.colorimetry()?))
    }

    /// The same of a frame in GPU memory, whose addresses are checked by whoever reads it.
    ///
    /// # Safety
    /// `format`, if not NULL, is a text that ends with zero.
    pub(super) unsafe fn on_device(&self) -> Result<(session::DeviceFrame, Colorimetry)> {
        let (width, height) = (self.width as usize, self.height as usize);
        // SAFETY: `format` is NULL or a C string.
        let format = unsafe { self.pixels() }?;
        let planes = self.planes_of(format).map(|plane| {
            let (i, address) = plane?;
            Ok(DevicePlane { address: address.addr() as u64, stride: self.strides[i] })
        });
        Ok((
            session::DeviceFrame { format, width, height, planes: planes.collect::<Result<_>>()? },
            self.colorimetry()?,
        ))
    }

    /// # Safety
    /// `format`, if not NULL, is a text that ends with zero.
    unsafe fn pixels(&self) -> Result<PixelFormat> {
        // SAFETY: `format` is NULL or a C string, which stays during the call.
        let name = unsafe { text("frame->format", self.format) }?;
        PixelFormat::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
            wrong(format!("Frames of {name} cannot be used"))
                .remedy(format!("Convert them to one of {}", PixelFormat::ALL.map(PixelFormat::name).join(", ")))
        })
    }

    /// As many as the format has, with their numbers.
    fn planes_of(&self, format: PixelFormat) -> impl Iterator<Item = Result<(usize, *const c_void)>> {
        let count = format.planes(self.width as usize, self.height as usize).len();
        self.planes.into_iter().take(count).enumerate().map(|(i, plane)| match plane.is_null() {
            true => Err(null(&format!("frame->planes[{i}]"))),
            false => Ok((i, plane)),
        })
    }

    fn colorimetry(&self) -> Result<Colorimetry> {
        let has = |flag: u32| self.color & flag != 0;
        if self.color >= 2 * CHROMA_TOP || has(BT709) && has(BT2020) {
            return Err(wrong(format!("frame->color {} is none", self.color)).remedy("Combine flags of gsttrt.h"));
        }
        let matrix = match self.color & (BT709 | BT2020) {
            BT709 => Matrix::Bt709,
            BT2020 => Matrix::Bt2020,
            _ => Matrix::Bt601,
        };
        Ok(Colorimetry {
            matrix,
            full_range: has(FULL_RANGE),
            chroma_left: has(CHROMA_LEFT),
            chroma_top: has(CHROMA_TOP),
        })
    }
}

impl Object {
    pub(super) fn new(object: &session::Object, label: &CStr) -> Self {
        let session::Object { class_id, confidence, bbox, .. } = *object;
        Object {
            label: label.as_ptr(),
            class_id,
            confidence,
            x: bbox.x1,
            y: bbox.y1,
            width: bbox.width(),
            height: bbox.height(),
        }
    }
}
