// SPDX-License-Identifier: MPL-2.0
//! `GstTrtFrame`.

use std::ffi::{c_char, c_void};
use std::slice;

use gsttrt_core::error::Result;
use gsttrt_core::image::device::DevicePlane;
use gsttrt_core::image::frame::{Colorimetry, Frame, FrameMut, Matrix, PixelFormat, Plane, PlaneMut};
use gsttrt_core::image::preprocess::MAX_SIDE;
use gsttrt_core::session::DeviceFrame;

use crate::error::{null, wrong};
use crate::input::Input;
use crate::memory::{array, text};

const MAX_PLANES: usize = 3;

/// See `gsttrt.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GstTrtFrame {
    pub struct_size: usize,
    pub format: *const c_char,
    pub width: u32,
    pub height: u32,
    pub color: u32,
    /// Instead of padding; must be 0.
    pub reserved: u32,
    pub planes: [*const c_void; MAX_PLANES],
    pub strides: [usize; MAX_PLANES],
    pub bytes: [usize; MAX_PLANES],
}

// SAFETY: it is `repr(C)` and begins with `struct_size`. All fields are numbers and pointers, for which zeros are
// valid. The four `u32` fill two words, so that there is no padding.
unsafe impl Input for GstTrtFrame {
    const NAME: &'static str = "GstTrtFrame";
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Flags of [`GstTrtFrame::color`].
const BT709: u32 = 1;
const BT2020: u32 = 2;
const FULL_RANGE: u32 = 4;
const CHROMA_LEFT: u32 = 8;
const CHROMA_TOP: u32 = 16;

impl GstTrtFrame {
    /// The same as a [`Frame`]. Preprocessing checks that the planes hold the rows.
    ///
    /// # Safety
    /// `format` is NULL or a C string. Each plane is NULL or as many initialised bytes as its entry in `bytes`,
    /// which stay unwritten for `'a`.
    pub(crate) unsafe fn on_host<'a>(&self) -> Result<(Frame<'a>, Colorimetry)> {
        let (width, height) = (self.width as usize, self.height as usize);
        // SAFETY: `format` is NULL or a C string: this function requires that.
        let format = unsafe { self.pixels() }?;
        let planes = self.planes_of(format).map(|plane| {
            let (i, address) = plane?;
            // SAFETY: `planes_of` gives no NULL, so that many initialised bytes exist for `'a`.
            let data = unsafe { array("frame->planes", address.cast::<u8>(), self.bytes[i]) }?;
            Ok(Plane { data, stride: self.strides[i] })
        });
        Ok((Frame { format, width, height, planes: planes.collect::<Result<_>>()? }, self.colorimetry()?))
    }

    /// The same to draw on. Its planes hold the rows.
    ///
    /// # Safety
    /// As for [`GstTrtFrame::on_host`]; and nothing else reads or writes the planes for `'a`, and no two overlap.
    pub(crate) unsafe fn drawable<'a>(&self) -> Result<FrameMut<'a>> {
        // SAFETY: this function requires the same.
        let (frame, color) = unsafe { self.on_host() }?;
        let Frame { format, width, height, .. } = frame;
        if width == 0 || height == 0 || width > MAX_SIDE || height > MAX_SIDE {
            return Err(wrong(format!("A frame of {width}x{height} pixels cannot be drawn on"))
                .remedy(format!("Give one of 1 to {MAX_SIDE} pixels a side")));
        }
        frame.check(format, width, height)?;
        drop(frame);
        let planes = self.planes_of(format).map(|plane| {
            let (i, address) = plane?;
            // SAFETY: `on_host` has read these bytes as slices, so that many exist; they are gone. Nothing else uses the
            // plane for `'a`, and no two overlap: this function requires that.
            let data = unsafe { slice::from_raw_parts_mut(address.cast::<u8>().cast_mut(), self.bytes[i]) };
            Ok(PlaneMut { data, stride: self.strides[i] })
        });
        Ok(FrameMut { format, width, height, color, planes: planes.collect::<Result<_>>()? })
    }

    /// The same as a [`DeviceFrame`]. The session checks its addresses.
    ///
    /// # Safety
    /// `format` is NULL or a C string.
    pub(crate) unsafe fn on_device(&self) -> Result<(DeviceFrame, Colorimetry)> {
        let (width, height) = (self.width as usize, self.height as usize);
        // SAFETY: `format` is NULL or a C string: this function requires that.
        let format = unsafe { self.pixels() }?;
        let planes = self.planes_of(format).map(|plane| {
            let (i, address) = plane?;
            Ok(DevicePlane { address: address.addr() as u64, stride: self.strides[i] })
        });
        Ok((DeviceFrame { format, width, height, planes: planes.collect::<Result<_>>()? }, self.colorimetry()?))
    }

    /// # Safety
    /// `format` is NULL or a C string.
    unsafe fn pixels(&self) -> Result<PixelFormat> {
        // SAFETY: `format` is NULL, which `text` refuses, or a C string. The name is used here only, while the caller
        // keeps the frame.
        let name = unsafe { text("frame->format", self.format) }?;
        PixelFormat::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
            wrong(format!("Frames of {name} cannot be used"))
                .remedy(format!("Convert them to one of {}", PixelFormat::ALL.map(PixelFormat::name).join(", ")))
        })
    }

    /// The planes that the format has, with their indices.
    fn planes_of(&self, format: PixelFormat) -> impl Iterator<Item = Result<(usize, *const c_void)>> {
        let count = format.planes(self.width as usize, self.height as usize).len();
        self.planes
            .into_iter()
            .take(count)
            .enumerate()
            .map(|(i, plane)| if plane.is_null() { Err(null(&format!("frame->planes[{i}]"))) } else { Ok((i, plane)) })
    }

    fn colorimetry(&self) -> Result<Colorimetry> {
        let has = |flag: u32| self.color & flag != 0;
        if self.reserved != 0 {
            return Err(
                wrong(format!("frame->reserved is {}, not 0", self.reserved)).remedy("Set all bytes to 0 first")
            );
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those of `gsttrt.h`.
    #[test]
    fn flags_are_colours() {
        let color = |color: u32| {
            let frame = GstTrtFrame {
                struct_size: size_of::<GstTrtFrame>(),
                format: c"NV12".as_ptr(),
                width: 2,
                height: 2,
                color,
                reserved: 0,
                planes: [std::ptr::null(); MAX_PLANES],
                strides: [0; MAX_PLANES],
                bytes: [0; MAX_PLANES],
            };
            frame.colorimetry().unwrap()
        };
        let matrix = |matrix| Colorimetry { matrix, ..Colorimetry::default() };
        for (flags, expected) in [
            (0, matrix(Matrix::Bt601)),
            (1, matrix(Matrix::Bt709)),
            (2, matrix(Matrix::Bt2020)),
            (4, Colorimetry { full_range: true, ..matrix(Matrix::Bt601) }),
            (1 | 8, Colorimetry { chroma_left: true, ..matrix(Matrix::Bt709) }),
            (2 | 16, Colorimetry { chroma_top: true, ..matrix(Matrix::Bt2020) }),
        ] {
            assert_eq!(color(flags), expected, "{flags}");
        }
    }
}
