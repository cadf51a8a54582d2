// SPDX-License-Identifier: MPL-2.0
//! Slices: overlapping rectangles that cover a frame, so that a model sees small objects of a large frame at their full
//! size.
//!
//! As in SAHI (arXiv 2202.06934), all slices have one size: those at the right and the bottom edge are moved inside,
//! not cut.

use super::geometry::Rect;
use crate::error::{Error, ErrorKind, Result};

/// Maximum number of rectangles of a frame.
pub const MAX_REGIONS: usize = 64;

/// How a frame is sliced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slices {
    pub division: Division,
    /// The part of a slice's width and height that it has in common with the next one: 0 to less than 1.
    pub overlap: f32,
    /// Whether the whole frame follows the slices.
    pub with_frame: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Division {
    /// So many slices across and down.
    Count(u32, u32),
    /// Slices of that width and height.
    Size(u32, u32),
}

impl Slices {
    /// The rectangles of a frame of that width and height: row by row, then the whole frame.
    ///
    /// # Errors
    /// `Settings`, if slices are larger than the frame, or there are more than [`MAX_REGIONS`] rectangles.
    pub fn of(&self, frame: (u32, u32)) -> Result<Vec<Rect>> {
        let (width, height) = self.size(frame);
        if width > frame.0 || height > frame.1 {
            return Err(Error::new(ErrorKind::Settings, "Slices are larger than the frame")
                .cause(format!("slices have {width}x{height} pixels, the frame {}x{}", frame.0, frame.1))
                .remedy(
                    "Set slice-size on trtpreprocess to less, or slices to how many there are to be, such as 2x2",
                ));
        }
        let step = |size: u32| size - (f64::from(self.overlap) * f64::from(size)) as u32;
        let (columns, rows) = match self.division {
            Division::Count(columns, rows) => (spread(frame.0, width, columns), spread(frame.1, height, rows)),
            Division::Size(..) => (advance(frame.0, width, step(width)), advance(frame.1, height, step(height))),
        };
        let count = columns.len() * rows.len() + usize::from(self.with_frame);
        if count > MAX_REGIONS {
            let whole = if self.with_frame { ", the whole frame included" } else { "" };
            return Err(Error::new(ErrorKind::Settings, format!("A frame has at most {MAX_REGIONS} slices"))
                .cause(format!("{}x{} pixels in slices of {width}x{height} are {count}{whole}", frame.0, frame.1))
                .remedy("Set slices to fewer, slice-size to more, or slice-overlap to less on trtpreprocess"));
        }
        let slices = rows.iter().flat_map(|&top| {
            columns.iter().map(move |&left| Rect { left, top, right: left + width, bottom: top + height })
        });
        Ok(slices.chain(self.with_frame.then(|| frame.into())).collect())
    }

    /// Width and height of a slice of a frame of that size.
    pub fn size(&self, (width, height): (u32, u32)) -> (u32, u32) {
        match self.division {
            Division::Size(width, height) => (width, height),
            Division::Count(columns, rows) => (share(width, columns, self.overlap), share(height, rows, self.overlap)),
        }
    }
}

/// The length of each of so many slices that overlap by that part of it and cover `whole`.
fn share(whole: u32, count: u32, overlap: f32) -> u32 {
    let lengths = f64::from(count) - f64::from(count - 1) * f64::from(overlap);
    ((f64::from(whole) / lengths).ceil() as u32).clamp(1, whole)
}

/// Starts of so many slices from one edge to the other; no more than are too many.
fn spread(whole: u32, length: u32, count: u32) -> Vec<u32> {
    let room = u64::from(whole - length);
    (0..count).take(MAX_REGIONS + 1).map(|i| (room * u64::from(i) / u64::from((count - 1).max(1))) as u32).collect()
}

/// Starts of slices that are `step` apart, the last one moved inside; no more than are too many.
fn advance(whole: u32, length: u32, step: u32) -> Vec<u32> {
    let last = whole - length;
    let inside = (0..last).step_by(step.max(1) as usize);
    inside.chain([last]).take(MAX_REGIONS + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slices(division: Division, overlap: f32, with_frame: bool) -> Slices {
        Slices { division, overlap, with_frame }
    }

    /// What SAHI 0.11 gives for slices of a size (`get_slice_bboxes`).
    #[test]
    fn slices_of_a_size_are_those_of_sahi() {
        let of = |size: (u32, u32), overlap, frame| -> Vec<[u32; 4]> {
            let rects = slices(Division::Size(size.0, size.1), overlap, false).of(frame).unwrap();
            rects.iter().map(|rect| [rect.left, rect.top, rect.right, rect.bottom]).collect()
        };
        let starts = |rects: &[[u32; 4]], edge: usize| {
            let mut starts: Vec<u32> = rects.iter().map(|rect| rect[edge]).collect();
            starts.sort_unstable();
            starts.dedup();
            starts
        };
        let rects = of((512, 512), 0.2, (1920, 1080));
        assert_eq!(starts(&rects, 0), [0, 410, 820, 1230, 1408]);
        assert_eq!(starts(&rects, 1), [0, 410, 568]);
        assert_eq!(rects[4], [1408, 0, 1920, 512], "moved inside, not cut");
        assert_eq!(of((640, 480), 0.5, (640, 480)), [[0, 0, 640, 480]]);
        assert_eq!(of((320, 480), 0.0, (640, 480)), [[0, 0, 320, 480], [320, 0, 640, 480]]);
    }

    #[test]
    fn mistakes_are_named() {
        for (division, overlap, with_frame, part) in [
            (Division::Size(641, 480), 0.2, true, "slices have 641x480 pixels, the frame 640x480"),
            (Division::Size(64, 64), 0.2, false, "are 117"),
            (Division::Size(64, 480), 0.9999, false, "are 65"),
            (Division::Count(8, 8), 0.2, true, "are 65, the whole frame included"),
            (Division::Count(4294967295, 1), 0.2, false, "are"),
        ] {
            let error = slices(division, overlap, with_frame).of((640, 480)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Settings);
            assert!(error.message().contains(part), "{error}");
        }
        assert_eq!(slices(Division::Count(8, 8), 0.0, false).of((640, 480)).unwrap().len(), 64);
    }

    proptest! {
        /// All pixels are in a slice, all slices have one size, and neighbours have the wanted part in common.
        #[test]
        fn slices_cover_the_frame(
            (width, height, columns, rows) in (64..9000u32, 64..9000u32, 1..9u32, 1..8u32),
            overlap in 0.0..0.95f32,
        ) {
            let slices = slices(Division::Count(columns, rows), overlap, true);
            let rects = slices.of((width, height)).unwrap();
            prop_assert_eq!(rects.len() as u32, columns * rows + 1);
            prop_assert_eq!(rects.last().copied(), Some((width, height).into()));
            let across = &rects[..columns as usize];
            prop_assert!(across[0].left == 0 && across[across.len() - 1].right == width);
            prop_assert_eq!(rects[rects.len() - 2].bottom, height);
            let size = slices.size((width, height));
            prop_assert!(rects[..rects.len() - 1].iter().all(|rect| (rect.width(), rect.height()) == size));
            for pair in across.windows(2) {
                prop_assert!(pair[1].left <= pair[0].right);
                let common = f64::from(pair[0].right - pair[1].left) / f64::from(size.0);
                prop_assert!((common - f64::from(overlap)).abs() < 2.0 * f64::from(columns) / f64::from(size.0) + 1e-3, "{}", common);
            }
        }
    }
}
