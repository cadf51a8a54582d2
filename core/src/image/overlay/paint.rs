// SPDX-License-Identifier: MPL-2.0
//! From a plan to bytes. Integers only, so that the kernel gives exactly the same.

use std::array;

use super::color::Sample;
use super::{LabeledBox, Plan, Target};
use crate::image::frame::{FrameMut, PixelFormat, PlaneMut};
use crate::image::geometry::Rect;

/// Paints a plan that was made for this frame's format and size. Bytes beyond a row's width are not changed.
pub fn paint(frame: &mut FrameMut, plan: &Plan) {
    for labeled in plan.boxes {
        for side in labeled.sides() {
            fill(frame, &side, &labeled.color);
        }
    }
    let target = Target::of(frame);
    for stroke in plan.strokes {
        for row in stroke.rows(&target) {
            fill(frame, &row, &stroke.color);
        }
    }
    for labeled in plan.boxes.iter().filter(|labeled| !labeled.tag.is_empty()) {
        fill(frame, &labeled.tag, &labeled.color);
        let luma = &mut frame.planes[0];
        let (background, text) = (labeled.color, labeled.text_color);
        match frame.format {
            PixelFormat::P010 => write(luma, labeled, plan, [0, background[0]], [0, text[0]]),
            PixelFormat::Nv12 | PixelFormat::I420 | PixelFormat::Gray8 => {
                write(luma, labeled, plan, [background[0]], [text[0]]);
            }
            PixelFormat::Rgb | PixelFormat::Bgr => {
                write(luma, labeled, plan, [0, 1, 2].map(|i| background[i]), [0, 1, 2].map(|i| text[i]));
            }
            _ => write(luma, labeled, plan, background, text),
        }
    }
}

fn fill(frame: &mut FrameMut, rect: &Rect, &[a, b, c, d]: &Sample) {
    // An empty rectangle at an odd position would not be empty when halved.
    if rect.is_empty() {
        return;
    }
    match (frame.format, &mut frame.planes[..]) {
        (PixelFormat::Nv12, [y, uv]) => {
            fill_plane(y, rect, [a]);
            fill_plane(uv, &rect.halved(), [b, c]);
        }
        (PixelFormat::P010, [y, uv]) => {
            fill_plane(y, rect, [0, a]);
            fill_plane(uv, &rect.halved(), [0, b, 0, c]);
        }
        (PixelFormat::I420, [y, u, v]) => {
            fill_plane(y, rect, [a]);
            fill_plane(u, &rect.halved(), [b]);
            fill_plane(v, &rect.halved(), [c]);
        }
        (PixelFormat::Gray8, [plane]) => fill_plane(plane, rect, [a]),
        (PixelFormat::Rgb | PixelFormat::Bgr, [plane]) => fill_plane(plane, rect, [a, b, c]),
        (PixelFormat::Rgba | PixelFormat::Bgra | PixelFormat::Rgbx | PixelFormat::Bgrx, [plane]) => {
            fill_plane(plane, rect, [a, b, c, d]);
        }
        (format, planes) => unreachable!("{} has not {} planes", format.name(), planes.len()),
    }
}

fn fill_plane<const N: usize>(plane: &mut PlaneMut, rect: &Rect, pixel: [u8; N]) {
    let width = (rect.right - rect.left) as usize;
    for y in rect.top..rect.bottom {
        row(plane, rect.left, y, width).fill(pixel);
    }
}

/// The text of a tag. In YUV only luma is blended: the chroma of the tag stays.
fn write<const N: usize>(plane: &mut PlaneMut, labeled: &LabeledBox, plan: &Plan, background: [u8; N], text: [u8; N]) {
    // A look-up table is twice as fast as blending each pixel; most texts have more pixels than the table has entries.
    let ramp: [[u8; N]; 256] = array::from_fn(|c| array::from_fn(|i| blend(background[i], text[i], c as u32)));
    let (mut x, top) = labeled.text_origin(plan.font);
    for &glyph in &plan.text[labeled.text_start as usize..][..labeled.text_len as usize] {
        for (y, coverage) in (top..).zip(plan.font.rows(glyph)) {
            for (pixel, &coverage) in row(plane, x, y, coverage.len()).iter_mut().zip(coverage) {
                *pixel = ramp[usize::from(coverage)];
            }
        }
        x += plan.font.width;
    }
}

/// `width` pixels of N bytes in row `y` from `x` on.
pub(super) fn row<'a, const N: usize>(plane: &'a mut PlaneMut, x: u32, y: u32, width: usize) -> &'a mut [[u8; N]] {
    let start = y as usize * plane.stride + x as usize * N;
    plane.data[start..][..width * N].as_chunks_mut().0
}

/// The mean of background and text by coverage of 0..=255, rounded to the nearest.
pub(super) fn blend(background: u8, text: u8, coverage: u32) -> u8 {
    ((u32::from(background) * (255 - coverage) + u32::from(text) * coverage + 127) / 255) as u8
}
