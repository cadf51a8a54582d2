// SPDX-License-Identifier: MPL-2.0
//! The reference implementation, in system memory. The kernel computes the same.

use super::{CELL, MAX_SHIFT, STEP};
use crate::image::frame::{Frame, PixelFormat};

/// The background of frames of one size.
pub struct HostMotion {
    size: (usize, usize),
    /// Of each cell, row by row; empty before the first frame.
    background: Vec<u16>,
    means: Vec<u16>,
    /// Luma of the columns of a row of cells.
    sums: Vec<u32>,
}

impl HostMotion {
    pub fn new(size: (usize, usize)) -> Self {
        HostMotion { size, background: Vec::new(), means: Vec::new(), sums: Vec::new() }
    }

    pub fn size(&self) -> (usize, usize) {
        self.size
    }

    pub fn cells(&self) -> usize {
        self.size.0.div_ceil(CELL) * self.size.1.div_ceil(CELL)
    }

    /// How many cells of the next frame differ from the background by more than so many luma steps; `None` for the first
    /// frame.
    pub fn changed(&mut self, frame: &Frame, threshold: u32) -> Option<u32> {
        self.find_means(frame);
        let HostMotion { background, means, .. } = self;
        if background.len() != means.len() {
            background.clone_from(means);
            return None;
        }
        let differences = || means.iter().zip(&*background).map(|(&mean, &before)| i32::from(mean) - i32::from(before));
        let total: i64 = differences().map(i64::from).sum();
        let shift = (total / means.len() as i64).clamp((-MAX_SHIFT).into(), MAX_SHIFT.into()) as i32;
        let least = threshold as i32 * STEP;
        let changed = differences().filter(|difference| (difference - shift).abs() > least).count();
        for (before, &mean) in background.iter_mut().zip(&*means) {
            let difference = i32::from(mean) - i32::from(*before);
            *before = (i32::from(*before) + ((difference + 32) >> 6)) as u16;
        }
        Some(changed as u32)
    }

    fn find_means(&mut self, frame: &Frame) {
        let (width, height) = self.size;
        self.means.clear();
        for top in (0..height).step_by(CELL) {
            let rows = top..height.min(top + CELL);
            self.sums.clear();
            self.sums.resize(width, 0);
            rows.clone().for_each(|y| add_luma(frame, y, &mut self.sums));
            let mean = |columns: &[u32]| {
                let (sum, pixels) = (columns.iter().sum::<u32>(), (columns.len() * rows.len()) as u32);
                ((sum * STEP as u32 + pixels / 2) / pixels) as u16
            };
            self.means.extend(self.sums.chunks(CELL).map(mean));
        }
    }
}

/// Adds the luma of a row to sums of its columns.
fn add_luma(frame: &Frame, y: usize, sums: &mut [u32]) {
    let plane = &frame.planes[0];
    let row = &plane.data[y * plane.stride..];
    match (frame.format, frame.format.rgb_offsets()) {
        (format, Some(offsets)) => {
            let pixels = row.chunks_exact(format.pixel_bytes());
            sums.iter_mut().zip(pixels).for_each(|(sum, pixel)| *sum += luma(offsets.map(|at| pixel[at])));
        }
        // The words' upper bytes.
        (PixelFormat::P010, None) => {
            sums.iter_mut().zip(row.chunks_exact(2)).for_each(|(sum, word)| *sum += u32::from(word[1]));
        }
        (_, None) => sums.iter_mut().zip(row).for_each(|(sum, &byte)| *sum += u32::from(byte)),
    }
}

fn luma([red, green, blue]: [u8; 3]) -> u32 {
    (77 * u32::from(red) + 150 * u32::from(green) + 29 * u32::from(blue) + 128) >> 8
}
