// SPDX-License-Identifier: MPL-2.0
//! The reference implementation, in system memory. The kernel computes the same.

use super::{CELLS, HiddenArea, PlaneShape, QuadMask};
use crate::image::frame::{FrameMut, PixelFormat, PlaneMut};
use crate::image::overlay::Target;

/// Hides areas, the last one on top of all, and blackens a mask.
pub fn hide(frame: &mut FrameMut, areas: &[HiddenArea], mask: Option<&QuadMask>) {
    let target = Target::of(frame);
    let is_wide = frame.format == PixelFormat::P010;
    for (plane, shape) in frame.planes.iter_mut().zip(PlaneShape::all(&target)) {
        match is_wide {
            true => hide_in_plane::<Ten>(plane, &shape, areas, mask),
            false => hide_in_plane::<Eight>(plane, &shape, areas, mask),
        }
    }
}

fn hide_in_plane<W: Word>(plane: &mut PlaneMut, shape: &PlaneShape, areas: &[HiddenArea], mask: Option<&QuadMask>) {
    let means: Vec<CellMeans> = areas.iter().map(|area| means::<W>(plane, shape, area)).collect();
    for (area, means) in areas.iter().zip(&means) {
        paint::<W>(plane, shape, area, means);
    }
    mask.into_iter().for_each(|mask| blacken::<W>(plane, shape, mask));
}

/// How a number of a sample is stored.
trait Word {
    const BYTES: usize;
    fn read(bytes: &[u8]) -> u32;
    fn write(value: u32, to: &mut [u8]);
    /// The number for one of 8 bits.
    fn of_byte(byte: u8) -> u32;
}

struct Eight;

impl Word for Eight {
    const BYTES: usize = 1;

    fn read(bytes: &[u8]) -> u32 {
        bytes[0].into()
    }

    fn write(value: u32, to: &mut [u8]) {
        to[0] = value as u8;
    }

    fn of_byte(byte: u8) -> u32 {
        byte.into()
    }
}

/// Of P010: the upper bits of 16.
struct Ten;

impl Word for Ten {
    const BYTES: usize = 2;

    fn read(bytes: &[u8]) -> u32 {
        u32::from(u16::from_le_bytes([bytes[0], bytes[1]]) >> 6)
    }

    fn write(value: u32, to: &mut [u8]) {
        to.copy_from_slice(&((value << 6) as u16).to_le_bytes());
    }

    fn of_byte(byte: u8) -> u32 {
        u32::from(byte) << 2
    }
}

/// For each cell the mean of each number of its samples.
type CellMeans = [[u32; 4]; (CELLS * CELLS) as usize];

/// The bytes of samples from one to before another in a row.
fn row<'a, W: Word>(plane: &'a mut PlaneMut, shape: &PlaneShape, y: u32, [from, to]: [u32; 2]) -> &'a mut [u8] {
    let (start, sample) = (y as usize * plane.stride, shape.channels * W::BYTES);
    &mut plane.data[start + from as usize * sample..start + to as usize * sample]
}

fn means<W: Word>(plane: &mut PlaneMut, shape: &PlaneShape, area: &HiddenArea) -> CellMeans {
    let (whole, side) = (shape.samples(&area.quads), area.cell * shape.per_quad);
    let mut means: CellMeans = [[0; 4]; (CELLS * CELLS) as usize];
    for (top, means) in (whole.top..whole.bottom).step_by(side as usize).zip(means.chunks_mut(CELLS as usize)) {
        let bottom = whole.bottom.min(top + side);
        for (left, mean) in (whole.left..whole.right).step_by(side as usize).zip(means) {
            let right = whole.right.min(left + side);
            let mut sums = [0u64; 4];
            for y in top..bottom {
                for sample in row::<W>(plane, shape, y, [left, right]).chunks_exact(shape.channels * W::BYTES) {
                    for (sum, word) in sums.iter_mut().zip(sample.chunks_exact(W::BYTES)) {
                        *sum += u64::from(W::read(word));
                    }
                }
            }
            let count = u64::from(right - left) * u64::from(bottom - top);
            *mean = sums.map(|sum| ((sum + count / 2) / count) as u32);
        }
    }
    means
}

/// Between which two cells a sample lies, and how near to the second, in parts of 256.
struct CellPlace {
    first: usize,
    second: usize,
    weight: u32,
}

fn place(at: u32, side: u32, cells: u32, is_smooth: bool) -> CellPlace {
    if !is_smooth {
        let cell = (at / side) as usize;
        return CellPlace { first: cell, second: cell, weight: 0 };
    }
    // From the middle of the first cell on, in halves of samples.
    let Some(from_middle) = (2 * at + 1).checked_sub(side) else { return CellPlace { first: 0, second: 0, weight: 0 } };
    let first = from_middle / (2 * side);
    let weight = from_middle % (2 * side) * 128 / side;
    CellPlace { first: first as usize, second: (first + 1).min(cells - 1) as usize, weight }
}

fn paint<W: Word>(plane: &mut PlaneMut, shape: &PlaneShape, area: &HiddenArea, means: &CellMeans) {
    let (whole, side) = (shape.samples(&area.quads), area.cell * shape.per_quad);
    let cells = |quads: u32| quads.div_ceil(area.cell);
    let places =
        |samples: u32, quads: u32| (0..samples).map(move |at| place(at, side, cells(quads), area.is_smooth == 1));
    let columns: Vec<CellPlace> = places(whole.width(), area.quads.width()).collect();
    for (y, down) in (whole.top..whole.bottom).zip(places(whole.height(), area.quads.height())) {
        let upper = &means[down.first * CELLS as usize..];
        let lower = &means[down.second * CELLS as usize..];
        let samples = row::<W>(plane, shape, y, [whole.left, whole.right]);
        for (sample, across) in samples.chunks_exact_mut(shape.channels * W::BYTES).zip(&columns) {
            for (part, word) in sample.chunks_exact_mut(W::BYTES).enumerate() {
                let between = |row: &[[u32; 4]]| {
                    row[across.first][part] * (256 - across.weight) + row[across.second][part] * across.weight
                };
                let value = between(upper) * (256 - down.weight) + between(lower) * down.weight;
                W::write((value + 32768) >> 16, word);
            }
        }
    }
}

fn blacken<W: Word>(plane: &mut PlaneMut, shape: &PlaneShape, mask: &QuadMask) {
    for (top, runs) in mask.rows() {
        for [left, right] in runs {
            let part = shape.samples(&crate::image::geometry::Rect { left, top, right, bottom: top + 1 });
            for y in part.top..part.bottom {
                let samples = row::<W>(plane, shape, y, [part.left, part.right]);
                for sample in samples.chunks_exact_mut(shape.channels * W::BYTES) {
                    for (word, &black) in sample.chunks_exact_mut(W::BYTES).zip(&shape.black) {
                        W::write(W::of_byte(black), word);
                    }
                }
            }
        }
    }
}
