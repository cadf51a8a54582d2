// SPDX-License-Identifier: MPL-2.0
//! Which rotated boxes are near enough to repeat each other: a few are compared, in place of all pairs.
//!
//! Each box reaches so far from its centre that two whose reaches do not overlap repeat each other in no case. Grids have the boxes by
//! their centres: a fine one the small boxes, coarser ones the larger boxes, so that a few large ones do not make the search for the
//! others long.

use super::rotated::{Gaussian, farthest};

/// Grids. Each has half as many cells in a direction as the one before; the last one is a single cell.
const LEVELS: usize = 6;
/// Layers of a grid, over which classes are spread.
const LAYERS: u32 = 16;
/// The end of a chain.
const NONE: u32 = u32::MAX;

/// Boxes by their centres, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct ExtentGrid {
    x: CellAxis,
    y: CellAxis,
    /// How far a box reaches, in standard deviations.
    farthest: f32,
    layers: u32,
    /// The last box of each cell, grid by grid.
    cells: Vec<u32>,
    /// The box before it in the same cell, of each box.
    before: Vec<u32>,
    /// Those whose reach is not known: they may repeat any, and any may repeat them.
    unbounded: Vec<u32>,
}

/// From a coordinate to a cell of each grid. It is monotonic also after rounding.
#[derive(Clone, Copy, Debug, Default)]
struct CellAxis {
    origin: f32,
    /// The width of a cell of the finest grid.
    cell: f32,
}

/// Cells of a grid in each direction.
fn side(level: usize) -> usize {
    1 << (LEVELS - 1 - level)
}

impl ExtentGrid {
    /// Empty, for boxes with these centres that are compared with that reach of their distance.
    pub fn begin(&mut self, centers: impl Iterator<Item = (f32, f32)>, reach: f32, class_agnostic: bool) {
        let none = [f32::INFINITY, f32::NEG_INFINITY];
        let wider =
            |[low, high]: [f32; 2], at: f32| if at.is_finite() { [at.min(low), at.max(high)] } else { [low, high] };
        let [x, y] = centers.fold([none; 2], |[x, y], (x_at, y_at)| [wider(x, x_at), wider(y, y_at)]);
        // One size for both, so that boxes in a row or in a column are spread as well.
        let cell = (x[1] - x[0]).max(y[1] - y[0]) / side(0) as f32;
        [self.x, self.y] = [x, y].map(|[low, _]| CellAxis { origin: low, cell });
        self.farthest = farthest(reach);
        self.layers = if class_agnostic { 1 } else { LAYERS };
        self.cells.clear();
        self.cells.resize(self.first(LEVELS, 0), NONE);
        self.before.clear();
        self.unbounded.clear();
    }

    /// The first cell of a class in a grid.
    fn first(&self, level: usize, class: u32) -> usize {
        let finer: usize = (0..level).map(|level| side(level) * side(level)).sum();
        let layer = if level < LEVELS { (class % self.layers) as usize * side(level) * side(level) } else { 0 };
        finer * self.layers as usize + layer
    }

    /// Adds the next box.
    pub fn insert(&mut self, class: u32, gaussian: &Gaussian) {
        let number = self.before.len() as u32;
        if !gaussian.is_bounded() {
            self.unbounded.push(number);
            self.before.push(NONE);
            return;
        }
        let (width, height) = gaussian.extents(self.farthest);
        // The finest grid in whose cells it reaches no farther than the next one.
        let is_in = |level: &usize| self.x.is_within(*level, width) && self.y.is_within(*level, height);
        let level = (0..LEVELS - 1).find(is_in).unwrap_or(LEVELS - 1);
        let (x, y) = gaussian.center();
        let cell = self.first(level, class) + self.y.cell(level, y) * side(level) + self.x.cell(level, x);
        self.before.push(self.cells[cell]);
        self.cells[cell] = number;
    }

    /// Whether `is_it` says so of one of the boxes that may repeat this one. Others may be among them, also of other classes.
    pub fn any_near(&self, class: u32, gaussian: &Gaussian, mut is_it: impl FnMut(u32) -> bool) -> bool {
        if !gaussian.is_bounded() {
            return (0..self.before.len() as u32).any(is_it);
        }
        let ((x, y), (width, height)) = (gaussian.center(), gaussian.extents(self.farthest));
        for level in 0..LEVELS {
            let (first, columns) = (self.first(level, class), self.x.near(level, x, width));
            for row in self.y.near(level, y, height) {
                let start = first + row * side(level);
                for &last in &self.cells[start + columns.start..start + columns.end] {
                    let mut number = last;
                    while let Some(&before) = self.before.get(number as usize) {
                        if is_it(number) {
                            return true;
                        }
                        number = before;
                    }
                }
            }
        }
        self.unbounded.iter().any(|&number| is_it(number))
    }
}

impl CellAxis {
    fn width(&self, level: usize) -> f32 {
        self.cell * (1 << level) as f32
    }

    fn is_within(&self, level: usize, extent: f32) -> bool {
        extent <= self.width(level)
    }

    fn cell(&self, level: usize, at: f32) -> usize {
        // The cast maps values below the first cell, and NaN, to 0.
        (((at - self.origin) / self.width(level)) as usize).min(side(level) - 1)
    }

    /// The cells in which boxes may be whose reach overlaps that of a box.
    fn near(&self, level: usize, at: f32, extent: f32) -> std::ops::Range<usize> {
        // Centres are rounded too.
        let distance = (extent + self.width(level)) * 1.001 + at.abs() * 1e-6;
        self.cell(level, at - distance)..self.cell(level, at + distance) + 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Nms;
    use super::super::rotated::reach;
    use super::*;
    use crate::image::Candidate;
    use crate::image::geometry::BBox;

    fn rotated([x, y, width, height, angle]: [f32; 5]) -> Candidate {
        Candidate { bbox: BBox::from_center(x, y, width, height), score: 0.5, class: 0, row: 0, angle }
    }

    /// How many boxes are looked at for all of these.
    fn compared(boxes: &[Candidate], threshold: f32) -> usize {
        let (mut grid, mut count) = (ExtentGrid::default(), 0);
        grid.begin(boxes.iter().map(|candidate| candidate.bbox.center()), reach(threshold), false);
        for candidate in boxes {
            let gaussian = Gaussian::of(candidate);
            grid.any_near(candidate.class, &gaussian, |_| {
                count += 1;
                false
            });
            grid.insert(candidate.class, &gaussian);
        }
        count
    }

    #[test]
    fn few_of_many_boxes_are_compared() {
        // 128x128 places, as of a model of 1024x1024 pixels, and some large boxes among them.
        let places = (0..128 * 128).map(|at| (at, (at % 128) as f32 * 8.0, (at / 128) as f32 * 8.0));
        let boxes: Vec<Candidate> = places
            .map(|(at, x, y)| rotated([x, y, if at % 100 == 0 { 400.0 } else { 10.0 }, 6.0, at as f32]))
            .collect();
        let pairs = boxes.len() * (boxes.len() - 1) / 2;
        let compared = compared(&boxes, 0.5);
        assert!(compared > 0 && compared < pairs / 20, "{compared} of {pairs}");
    }

    /// What comparing all pairs leaves.
    fn left_of_all_pairs(boxes: &[Candidate], threshold: f32, agnostic: bool) -> Vec<u32> {
        let gaussians: Vec<Gaussian> = boxes.iter().map(Gaussian::of).collect();
        let is_repeated = |at: usize| {
            (0..at).any(|better| {
                (agnostic || boxes[better].class == boxes[at].class)
                    && gaussians[at].repeats(&gaussians[better], reach(threshold))
            })
        };
        (0..boxes.len()).filter(|&at| !is_repeated(at)).map(|at| boxes[at].row).collect()
    }

    proptest! {
        /// Whatever is not compared would not have been repeated: sides of all sizes, thin boxes, boxes of no area, and numbers that
        /// are none.
        #[test]
        fn what_is_left_is_that_of_all_pairs(
            boxes in prop::collection::vec((
                (
                    prop_oneof![9 => -50.0..600f32, 1 => -1e7..1e7f32, 1 => Just(f32::NAN)],
                    -50.0..600f32,
                    prop_oneof![6 => 1.0..80f32, 1 => 0.0..0.01f32, 1 => 100.0..3000f32, 1 => Just(f32::INFINITY)],
                    prop_oneof![6 => 1.0..80f32, 1 => 0.0..0.01f32, 1 => 100.0..3000f32],
                    -4.0..4f32,
                ),
                0..20u32,
            ), 0..120),
            threshold in prop_oneof![8 => 0.001..0.999f32, 1 => Just(0.0f32), 1 => Just(1.0f32), 1 => Just(-0.5f32)],
            agnostic in any::<bool>(),
        ) {
            let candidates: Vec<Candidate> = (boxes.iter().zip(0u32..))
                .map(|(&((x, y, width, height, angle), class), row)| {
                    Candidate { score: 1.0 - row as f32 / 200.0, class, row, ..rotated([x, y, width, height, angle]) }
                })
                .collect();
            let mut kept = candidates.clone();
            Nms::new(threshold, usize::MAX, agnostic).suppress_rotated(&mut kept);
            let kept: Vec<u32> = kept.iter().map(|candidate| candidate.row).collect();
            prop_assert_eq!(kept, left_of_all_pairs(&candidates, threshold, agnostic));
        }
    }
}
