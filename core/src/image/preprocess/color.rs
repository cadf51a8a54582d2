// SPDX-License-Identifier: MPL-2.0
//! Colours of the resampled planes: YUV to RGB, luma, gray.

use crate::image::frame::{Colorimetry, PixelFormat};
use crate::image::transform::Colors;

/// Weights of red, green and blue in gray: BT.601's, as OpenCV's `cvtColor` has them.
pub const GRAY: [f32; 3] = [0.299, 0.587, 0.114];

/// Numbers that take YUV in 0..255 to RGB in 0..255, from the definitions of ITU-R BT.601, BT.709 and BT.2020:
/// `R − Y = 2(1 − Kr)·Cr`, `B − Y = 2(1 − Kb)·Cb`, `Y = Kr·R + Kg·G + Kb·B`; limited range has 219 steps of luma above 16
/// and 224 steps of chroma about 128. Full range ends at the greatest code: at 255, and in P010 at 1023, which is
/// 255.75 here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YuvToRgb {
    pub black: f32,
    pub gain: f32,
    pub r_cr: f32,
    pub g_cb: f32,
    pub g_cr: f32,
    pub b_cb: f32,
}

impl YuvToRgb {
    pub fn new(format: PixelFormat, color: Colorimetry) -> Self {
        let (kr, kb) = color.matrix.kr_kb();
        let kg = 1.0 - kr - kb;
        let (black, gain, chroma) = match (color.full_range, format) {
            (true, PixelFormat::P010) => (0.0, 255.0 / 255.75, 255.0 / 255.75),
            (true, _) => (0.0, 1.0, 1.0),
            (false, _) => (16.0, 255.0 / 219.0, 255.0 / 224.0),
        };
        let (r_cr, b_cb) = (2.0 * (1.0 - kr) * chroma, 2.0 * (1.0 - kb) * chroma);
        YuvToRgb { black, gain, r_cr, g_cb: -b_cb * kb / kg, g_cr: -r_cr * kr / kg, b_cb }
    }

    #[inline(always)]
    pub fn luma(&self, y: f32) -> f32 {
        (y - self.black) * self.gain
    }

    #[inline(always)]
    pub fn rgb(&self, y: f32, u: f32, v: f32) -> [f32; 3] {
        let (l, cb, cr) = (self.luma(y), u - 128.0, v - 128.0);
        [l + cr * self.r_cr, (l + cb * self.g_cb) + cr * self.g_cr, l + cb * self.b_cb]
    }
}

/// What must happen to a format's samples to become a tensor's colours.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Convert {
    /// Three lines, RGB already.
    Rgb,
    /// Three lines, RGB; the first becomes gray.
    RgbToGray,
    /// Three lines, YUV; they become RGB.
    YuvToRgb(YuvToRgb),
    /// One line of luma; it becomes gray.
    Luma(YuvToRgb),
}

impl Convert {
    pub fn new(format: PixelFormat, color: Colorimetry, colors: Colors) -> Self {
        let matrix = YuvToRgb::new(format, color);
        match (format.rgb_offsets(), colors) {
            (Some(_), Colors::Gray) => Convert::RgbToGray,
            (Some(_), _) => Convert::Rgb,
            (None, Colors::Gray) => Convert::Luma(matrix),
            (None, _) if format == PixelFormat::Gray8 => Convert::Luma(matrix),
            (None, _) => Convert::YuvToRgb(matrix),
        }
    }

    /// The line that each channel of the tensor takes after [`Convert::apply`].
    pub fn lines(&self, colors: Colors) -> &'static [usize] {
        match (self, colors) {
            (_, Colors::Gray) => &[0],
            (Convert::Luma(_), _) => &[0, 0, 0],
            (_, Colors::Rgb) => &[0, 1, 2],
            (_, Colors::Bgr) => &[2, 1, 0],
        }
    }

    /// On lines of `width` samples that follow one another.
    #[inline(always)]
    pub fn apply(&self, samples: &mut [f32], width: usize) {
        let (first, rest) = samples.split_at_mut(width);
        let (second, third) = rest.split_at_mut(width);
        let pixels = first.iter_mut().zip(second).zip(third);
        match self {
            Convert::Rgb => {}
            Convert::RgbToGray => {
                let [r, g, b] = GRAY;
                pixels.for_each(|((x, y), z)| *x = (*x * r + *y * g) + *z * b);
            }
            Convert::YuvToRgb(matrix) => pixels.for_each(|((x, y), z)| [*x, *y, *z] = matrix.rgb(*x, *y, *z)),
            Convert::Luma(range) => pixels.for_each(|((x, _), _)| *x = range.luma(*x)),
        }
    }
}
