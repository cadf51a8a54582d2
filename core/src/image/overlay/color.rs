// SPDX-License-Identifier: MPL-2.0
//! A colour for each class, and the bytes it has in a frame.

use super::Target;
use crate::image::frame::PixelFormat;

/// Red, green and blue, full range.
pub type Rgb = [u8; 3];

/// A colour as a frame stores it: the bytes of one pixel in memory order, or Y, U, V; bytes that the format lacks are 255.
/// P010 takes the codes of 8 bits, four times as great in 10: at full range its white is 1020 of 1023.
pub type Sample = [u8; 4];

const BLACK: Rgb = [0; 3];
const WHITE: Rgb = [255; 3];

/// The colour of a class, the same in every stream and run.
///
/// Hues advance by the golden ratio of a turn: as by the phyllotaxis of leaves, each new one falls into the widest gap
/// that the classes before it left. In units of 2⁻³² turns that is a wrapping product, exact for any class.
pub fn class_color(class: u32) -> Rgb {
    const GOLDEN: u32 = 0x9E37_79B9; // 2³² / φ
    const START: u32 = 0x9400_0000; // class 0, mostly people, is azure, not an alarming red
    // Not fully saturated: text on a YUV tag keeps the tag's chroma, and on stronger colours it would fade into the tag.
    const LOW: u32 = 88;
    const HIGH: u32 = 255;

    // Six sides of the RGB hexagon, 256 steps each, on which one component rises or falls.
    let turn = u64::from(class.wrapping_mul(GOLDEN).wrapping_add(START));
    let step = ((6 * turn) >> 24) as u32;
    let slope = (HIGH - LOW) * (step % 256) / 256;
    let (low, high, rise, fall) = (LOW as u8, HIGH as u8, (LOW + slope) as u8, (HIGH - slope) as u8);
    match step / 256 {
        0 => [high, rise, low],
        1 => [fall, high, low],
        2 => [low, high, rise],
        3 => [low, fall, high],
        4 => [rise, low, high],
        _ => [high, low, fall],
    }
}

/// Black or white, whichever is further from a colour in luma (BT.601): in YUV frames, text differs only in luma.
pub fn text_color_on([r, g, b]: Rgb) -> Rgb {
    let luma = (299 * u32::from(r) + 587 * u32::from(g) + 114 * u32::from(b)) / 1000;
    if luma < 128 { WHITE } else { BLACK }
}

/// Y'CbCr as ITU-R BT.601 and BT.709 define it: Y' = Kr·R + Kg·G + Kb·B, Cb = (B − Y')/(2 − 2Kb), Cr = (R − Y')/(2 − 2Kr).
pub fn sample(rgb: Rgb, target: &Target) -> Sample {
    if let Some([r, g, b]) = target.format.rgb_offsets() {
        let mut bytes = [255; 4];
        [bytes[r], bytes[g], bytes[b]] = rgb;
        return bytes;
    }
    let (kr, kb) = target.color.matrix.kr_kb();
    let [r, g, b] = rgb.map(|component| f32::from(component) / 255.0);
    let luma = kr * r + (1.0 - kr - kb) * g + kb * b;
    let (black, luma_range, chroma_range) = target.color.ranges();
    // `as` saturates: full-range blue and red would be 255.5.
    let y = (black + luma_range * luma).round() as u8;
    let u = (128.0 + chroma_range * (b - luma) / (2.0 - 2.0 * kb)).round() as u8;
    let v = (128.0 + chroma_range * (r - luma) / (2.0 - 2.0 * kr)).round() as u8;
    match target.format {
        PixelFormat::Gray8 => [y, 255, 255, 255],
        _ => [y, u, v, 255],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::frame::{Colorimetry, Matrix};

    const RED: Rgb = [255, 0, 0];

    fn yuv(rgb: Rgb, matrix: Matrix, full_range: bool) -> [u8; 3] {
        let color = Colorimetry { matrix, full_range, ..Colorimetry::default() };
        let [y, u, v, _] = sample(rgb, &Target { format: PixelFormat::Nv12, width: 1, height: 1, color });
        [y, u, v]
    }

    #[test]
    fn yuv_follows_matrix_and_range() {
        assert_eq!(yuv(WHITE, Matrix::Bt601, false), [235, 128, 128]);
        assert_eq!(yuv(BLACK, Matrix::Bt709, true), [0, 128, 128]);
        assert_eq!(yuv(RED, Matrix::Bt601, false), [81, 90, 240]);
        assert_eq!(yuv(RED, Matrix::Bt709, false), [63, 102, 240]);
        assert_eq!(yuv(RED, Matrix::Bt601, true), [76, 85, 255]);
    }

    #[test]
    fn rgb_follows_the_byte_order() {
        let bytes = |format| sample([1, 2, 3], &Target { format, width: 1, height: 1, color: Colorimetry::default() });
        assert_eq!(bytes(PixelFormat::Rgb), [1, 2, 3, 255]);
        assert_eq!(bytes(PixelFormat::Bgra), [3, 2, 1, 255]);
    }

    #[test]
    fn the_first_colors_are_far_apart() {
        let colors: Vec<_> = (0..8).map(class_color).collect();
        for (i, a) in colors.iter().enumerate() {
            for b in &colors[..i] {
                let distance: u32 = a.iter().zip(b).map(|(&a, &b)| u32::from(a.abs_diff(b))).sum();
                assert!(distance >= 80, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn ink_contrasts_with_every_class() {
        for color in (0..1000).map(class_color) {
            let [y, ..] = yuv(color, Matrix::Bt601, true);
            let [text, ..] = text_color_on(color);
            assert!(y.abs_diff(text) >= 127, "{color:?}");
        }
    }
}
