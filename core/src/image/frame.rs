// SPDX-License-Identifier: MPL-2.0
//! One decoded picture in host memory: pixel format, planes with strides, colorimetry.

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind, Result};

/// Pixel formats that frames come in, named as GStreamer names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PixelFormat {
    Nv12,
    /// NV12 with samples of 16 bits, little-endian, of which the upper 10 count.
    P010,
    I420,
    Rgb,
    Bgr,
    Rgba,
    Bgra,
    Rgbx,
    Bgrx,
    Gray8,
}

impl PixelFormat {
    #[doc(hidden)]
    pub const ALL: [PixelFormat; 10] = [
        PixelFormat::Nv12,
        PixelFormat::P010,
        PixelFormat::I420,
        PixelFormat::Rgb,
        PixelFormat::Bgr,
        PixelFormat::Rgba,
        PixelFormat::Bgra,
        PixelFormat::Rgbx,
        PixelFormat::Bgrx,
        PixelFormat::Gray8,
    ];

    #[doc(hidden)]
    pub const fn name(self) -> &'static str {
        match self {
            PixelFormat::Nv12 => "NV12",
            PixelFormat::P010 => "P010_10LE",
            PixelFormat::I420 => "I420",
            PixelFormat::Rgb => "RGB",
            PixelFormat::Bgr => "BGR",
            PixelFormat::Rgba => "RGBA",
            PixelFormat::Bgra => "BGRA",
            PixelFormat::Rgbx => "RGBx",
            PixelFormat::Bgrx => "BGRx",
            PixelFormat::Gray8 => "GRAY8",
        }
    }

    /// Bytes of one pixel in the first plane.
    #[doc(hidden)]
    pub const fn pixel_bytes(self) -> usize {
        match self {
            PixelFormat::Nv12 | PixelFormat::I420 | PixelFormat::Gray8 => 1,
            PixelFormat::P010 => 2,
            PixelFormat::Rgb | PixelFormat::Bgr => 3,
            PixelFormat::Rgba | PixelFormat::Bgra | PixelFormat::Rgbx | PixelFormat::Bgrx => 4,
        }
    }

    /// Byte offsets of red, green and blue in a pixel of the packed RGB formats.
    #[doc(hidden)]
    pub const fn rgb_offsets(self) -> Option<[usize; 3]> {
        match self {
            PixelFormat::Rgb | PixelFormat::Rgba | PixelFormat::Rgbx => Some([0, 1, 2]),
            PixelFormat::Bgr | PixelFormat::Bgra | PixelFormat::Bgrx => Some([2, 1, 0]),
            PixelFormat::Nv12 | PixelFormat::P010 | PixelFormat::I420 | PixelFormat::Gray8 => None,
        }
    }

    /// Width in bytes and height in rows of each plane of a `width` × `height` picture.
    #[doc(hidden)]
    pub fn planes(self, width: usize, height: usize) -> SmallVec<[(usize, usize); 3]> {
        let (half_width, half_height) = (width.div_ceil(2), height.div_ceil(2));
        let mut planes = SmallVec::from_slice(&[(width * self.pixel_bytes(), height)]);
        match self {
            PixelFormat::Nv12 | PixelFormat::P010 => planes.push((half_width * 2 * self.pixel_bytes(), half_height)),
            PixelFormat::I420 => planes.extend([(half_width, half_height); 2]),
            _ => {}
        }
        planes
    }
}

/// Which weights of red and blue make luma.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Matrix {
    #[default]
    Bt601,
    Bt709,
    Bt2020,
}

impl Matrix {
    /// Kr and Kb of ITU-R BT.601, BT.709 and BT.2020 (non-constant luminance).
    #[doc(hidden)]
    pub const fn kr_kb(self) -> (f32, f32) {
        match self {
            Matrix::Bt601 => (0.299, 0.114),
            Matrix::Bt709 => (0.2126, 0.0722),
            Matrix::Bt2020 => (0.2627, 0.0593),
        }
    }
}

/// How sample values of a frame become colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Colorimetry {
    pub matrix: Matrix,
    /// 0..255 for luma and chroma; otherwise 16..235 and 16..240.
    pub full_range: bool,
    /// Chroma samples sit on the left luma column of their pair (MPEG-2, H.264's default), not between the two (JPEG).
    /// This and the next count where chroma is interpolated: `Chroma::Sited`.
    pub chroma_left: bool,
    /// Chroma samples sit on the upper luma row of their pair, not between the two.
    pub chroma_top: bool,
}

impl Colorimetry {
    /// Where black lies, and how far luma and chroma reach from there and from the middle.
    pub(crate) const fn ranges(&self) -> (f32, f32, f32) {
        if self.full_range { (0.0, 255.0, 255.0) } else { (16.0, 219.0, 224.0) }
    }
}

/// A plane to read: bytes, and bytes from one row to the next.
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a> {
    pub data: &'a [u8],
    pub stride: usize,
}

/// A plane to draw on.
#[derive(Debug)]
pub struct PlaneMut<'a> {
    pub data: &'a mut [u8],
    pub stride: usize,
}

/// A picture to read.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    pub format: PixelFormat,
    pub width: usize,
    pub height: usize,
    pub planes: SmallVec<[Plane<'a>; 3]>,
}

impl Frame<'_> {
    /// # Errors
    /// `WrongType`, if it is not of this format and size, or if a plane is missing or shorter than its stride requires.
    #[doc(hidden)]
    pub fn check(&self, format: PixelFormat, width: usize, height: usize) -> Result<()> {
        let wrong = |cause: String| Err(Error::new(ErrorKind::WrongType, "Cannot read the frame").cause(cause));
        if (self.format, self.width, self.height) != (format, width, height) {
            let (is, wanted) = (self.format.name(), format.name());
            return wrong(format!("it is {is} {}x{}, not {wanted} {width}x{height}", self.width, self.height));
        }
        let wanted = format.planes(width, height);
        if self.planes.len() != wanted.len() {
            return wrong(format!("it has {} planes, not {}", self.planes.len(), wanted.len()));
        }
        for (i, (plane, (row, rows))) in self.planes.iter().zip(wanted).enumerate() {
            let needed = plane.stride.checked_mul(rows - 1).and_then(|bytes| bytes.checked_add(row));
            if plane.stride < row || needed.is_none_or(|needed| plane.data.len() < needed) {
                return wrong(format!(
                    "plane {i} has {} bytes at stride {}, too few for {rows} rows of {row}",
                    plane.data.len(),
                    plane.stride
                ));
            }
        }
        Ok(())
    }
}

/// A picture to draw on.
#[derive(Debug)]
pub struct FrameMut<'a> {
    pub format: PixelFormat,
    pub width: usize,
    pub height: usize,
    pub color: Colorimetry,
    pub planes: SmallVec<[PlaneMut<'a>; 3]>,
}
