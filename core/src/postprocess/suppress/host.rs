// SPDX-License-Identifier: MPL-2.0
//! Suppression of boxes that repeat a better one.

use std::mem;
use std::ops::Range;

use super::extents::ExtentGrid;
use super::rotated::{Gaussian, reach};
use crate::heads::Suppress;
use crate::image::Candidate;

/// The maximum number of cells of the grid in each direction.
const CELLS: usize = 32;
/// Layers of the grid, over which classes are spread.
const LAYERS: u32 = 16;
/// The end of a chain.
const NONE: u32 = u32::MAX;

/// Greedy, class-aware non-maximum suppression, with its scratch memory.
///
/// Detections are taken by score, the greatest first (`f32::total_cmp`), equals by row, then by class, then in the
/// order of the input. One is dropped when its IoU with one already kept is **above** the threshold, of the same class
/// unless `class_agnostic`. The result is in that order, and exactly what comparing all pairs gives.
///
/// It is faster than that because only kept boxes whose centre is near are compared: each kept box is in the cell of
/// a grid that its centre falls in. How near follows from the threshold. Along one axis two boxes of sizes a and b whose
/// centres are d apart share at most s = (a + b) / 2 − d of a + b − s, and their IoU is never above that ratio. For it to
/// exceed t, b must be below a / t and d below (a + b) / 2 × (1 − t) / (1 + t), so below a × (1 − t) / 2t.
#[derive(Clone, Debug)]
pub struct Nms {
    pub iou_threshold: f32,
    pub max_detections: usize,
    pub class_agnostic: bool,
    /// Score, row, class and index, packed so that ascending is the order of the result.
    order: Vec<u128>,
    kept: Vec<Candidate>,
    /// The previous kept box of the same cell.
    next: Vec<u32>,
    /// The last kept box of each cell.
    cells: Vec<u32>,
    /// The classes and normal distributions of rotated boxes, the best first.
    gaussians: Vec<(u32, Gaussian)>,
    /// Where they are.
    extents: ExtentGrid,
}

impl Nms {
    pub fn new(iou_threshold: f32, max_detections: usize, class_agnostic: bool) -> Self {
        Nms {
            iou_threshold,
            max_detections,
            class_agnostic,
            order: Vec::new(),
            kept: Vec::new(),
            next: Vec::new(),
            cells: Vec::new(),
            gaussians: Vec::new(),
            extents: ExtentGrid::default(),
        }
    }

    /// Orders, drops boxes that repeat a better one by this `suppress`, and stops at the limit.
    pub fn run(&mut self, suppress: Suppress, detections: &mut Vec<Candidate>) {
        match suppress {
            Suppress::None => self.rank(detections),
            Suppress::Iou => self.suppress(detections),
            Suppress::RotatedIou => self.suppress_rotated(detections),
        }
    }

    /// Orders, drops boxes that repeat a better one, and stops at the limit.
    pub fn suppress(&mut self, detections: &mut Vec<Candidate>) {
        self.sort(detections);
        let grid = CenterGrid::new(detections, self.iou_threshold, self.class_agnostic);
        self.kept.clear();
        self.next.clear();
        self.cells.clear();
        self.cells.resize(grid.cells(), NONE);
        for &key in &self.order {
            if self.kept.len() >= self.max_detections {
                break;
            }
            let candidate = &detections[key as u32 as usize];
            if !self.repeats(candidate, &grid) {
                let cell = grid.cell(candidate);
                self.next.push(self.cells[cell]);
                self.cells[cell] = self.kept.len() as u32;
                self.kept.push(*candidate);
            }
        }
        mem::swap(detections, &mut self.kept);
    }

    /// The same for rotated boxes, by their probabilistic IoU and as in Ultralytics: a box that repeats a better one is
    /// dropped, whether that one is kept or not (Fast NMS, arXiv 1904.02689). Only boxes that are near are compared.
    pub fn suppress_rotated(&mut self, detections: &mut Vec<Candidate>) {
        self.sort(detections);
        let Nms { iou_threshold, max_detections, class_agnostic, order, kept, gaussians, extents, .. } = self;
        let reach = reach(*iou_threshold);
        extents.begin(detections.iter().map(center), reach, *class_agnostic);
        kept.clear();
        gaussians.clear();
        for &key in &*order {
            if kept.len() >= *max_detections {
                break;
            }
            let candidate = &detections[key as u32 as usize];
            let gaussian = Gaussian::of(candidate);
            let repeats = |better: u32| {
                let (class, better) = &gaussians[better as usize];
                (*class_agnostic || *class == candidate.class) && gaussian.repeats(better, reach)
            };
            if !extents.any_near(candidate.class, &gaussian, repeats) {
                kept.push(*candidate);
            }
            extents.insert(candidate.class, &gaussian);
            gaussians.push((candidate.class, gaussian));
        }
        mem::swap(detections, kept);
    }

    /// Only the order and the limit, for heads whose boxes do not repeat.
    pub fn rank(&mut self, detections: &mut Vec<Candidate>) {
        self.sort(detections);
        self.kept.clear();
        let best = self.order.iter().take(self.max_detections);
        self.kept.extend(best.map(|&key| detections[key as u32 as usize]));
        mem::swap(detections, &mut self.kept);
    }

    fn sort(&mut self, detections: &[Candidate]) {
        self.order.clear();
        self.order.extend(detections.iter().enumerate().map(|(index, detection)| {
            let Candidate { score, class, row, .. } = *detection;
            [descending(score), row, class, index as u32].iter().fold(0, |key, &part| key << 32 | u128::from(part))
        }));
        self.order.sort_unstable();
    }

    /// Whether a kept box covers the candidate.
    fn repeats(&self, candidate: &Candidate, grid: &CenterGrid) -> bool {
        grid.near(candidate).flatten().any(|cell| {
            let mut index = self.cells[cell];
            while let Some(kept) = self.kept.get(index as usize) {
                let rivals = self.class_agnostic || kept.class == candidate.class;
                if rivals && candidate.bbox.iou(&kept.bbox) > self.iou_threshold {
                    return true;
                }
                index = self.next[index as usize];
            }
            false
        })
    }
}

/// Greater scores become smaller numbers, in `f32::total_cmp`'s order.
fn descending(score: f32) -> u32 {
    let bits = score.to_bits();
    // All bits of a negative number are inverted twice, once for the sign and once for the direction.
    if bits >> 31 == 0 { !bits & 0x7fff_ffff } else { bits }
}

/// Cells over the centres of all detections, one layer of them for every few classes.
struct CenterGrid {
    x: Axis,
    y: Axis,
    /// Distance to the farthest centre that matters, in sizes of the box.
    reach: f32,
    layers: u32,
}

/// From a coordinate to a cell. It is monotonic also after rounding.
struct Axis {
    origin: f32,
    cells_per_pixel: f32,
    cells: usize,
}

impl CenterGrid {
    fn new(detections: &[Candidate], iou_threshold: f32, class_agnostic: bool) -> Self {
        // The error of a computed IoU is less than this.
        let iou = iou_threshold - 1e-5;
        let reach = if iou > 0.0 { (1.0 - iou) / (2.0 * iou) } else { f32::INFINITY };
        CenterGrid {
            x: Axis::over(detections.iter().map(|d| (center(d).0, d.bbox.width() * reach))),
            y: Axis::over(detections.iter().map(|d| (center(d).1, d.bbox.height() * reach))),
            reach,
            layers: if class_agnostic { 1 } else { LAYERS },
        }
    }

    fn cells(&self) -> usize {
        self.x.cells * self.y.cells * self.layers as usize
    }

    fn row(&self, class: u32, row: usize) -> usize {
        ((class % self.layers) as usize * self.y.cells + row) * self.x.cells
    }

    fn cell(&self, detection: &Candidate) -> usize {
        let (x, y) = center(detection);
        self.row(detection.class, self.y.cell(y)) + self.x.cell(x)
    }

    /// Cells in which a kept box may cover this one, by rows.
    fn near(&self, detection: &Candidate) -> impl Iterator<Item = Range<usize>> {
        let Candidate { bbox, class, .. } = *detection;
        let (x, y) = center(detection);
        // An area close to 0 has lost its precision.
        let reach = if bbox.area() > 1e-30 { self.reach } else { f32::INFINITY };
        let columns = self.x.near(x, bbox.width() * reach);
        self.y.near(y, bbox.height() * reach).map(move |row| {
            let start = self.row(class, row);
            start + columns.start..start + columns.end
        })
    }
}

impl Axis {
    /// `boxes` are centres, and the distances to the farthest centres that matter to them.
    fn over(boxes: impl ExactSizeIterator<Item = (f32, f32)>) -> Self {
        let count = boxes.len() as f32;
        let (low, high, sum) = boxes
            .fold((f32::INFINITY, f32::NEG_INFINITY, 0.0), |(low, high, sum), (at, distance)| {
                (at.min(low), at.max(high), sum + distance)
            });
        // Half the usual distance is a good size for a cell: fewer boxes are looked at, and few empty cells.
        let cells = (((high - low) / (sum / count) * 2.0) as usize).clamp(1, CELLS);
        Axis { origin: low, cells_per_pixel: cells as f32 / (high - low), cells }
    }

    fn cell(&self, at: f32) -> usize {
        // The cast maps values below the first cell, and NaN, to 0.
        (((at - self.origin) * self.cells_per_pixel) as usize).min(self.cells - 1)
    }

    fn near(&self, at: f32, distance: f32) -> Range<usize> {
        // Centres are rounded too. NaN, from a size of 0, becomes all cells.
        let distance = (distance + at.abs() * 1e-6).min(f32::INFINITY);
        self.cell(at - distance)..self.cell(at + distance) + 1
    }
}

fn center(detection: &Candidate) -> (f32, f32) {
    detection.bbox.center()
}
