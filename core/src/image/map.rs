// SPDX-License-Identifier: MPL-2.0
//! Maps: a value for each pixel of a frame. Its class, its depth, or the object that it belongs to.
//!
//! A map has the resolution of the model's input, without the padding around the frame. Scores and depths of a lower
//! resolution are scaled to that by bilinear interpolation ([`bilinear`](super::bilinear)), class ids take the nearest.
//! Each pixel of the frame has the value of the pixel of the map that covers it.

use super::bilinear::{Floats, Scaler};
use super::geometry::{BBox, Letterbox, Rect};
use super::masks::{Masks, NEVER, column_edge, covering, row_edge};

/// What the values of a map are.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum MapKind {
    /// Class ids, or [`PixelMap::NO_CLASS`].
    Classes,
    /// Depths: 0 is the minimum, 65535 the maximum, and those between lie evenly. The model decides on the unit, and
    /// whether greater ones are nearer or farther.
    Depth { minimum: f32, maximum: f32 },
    /// Objects, from 1 on in the order of the results; 0 where there is none.
    Objects,
}

/// All pixels of a map with the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRegion {
    /// The value of its pixels.
    pub id: u16,
    pub class: u32,
    /// How many there are.
    pub pixels: u32,
}

/// A value for each pixel of a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct PixelMap {
    kind: MapKind,
    /// Those that have pixels, in the order of their ids.
    regions: Vec<MapRegion>,
    width: u32,
    height: u32,
    /// In rows; empty where the host did not want them.
    values: Vec<u16>,
    /// Where the map lies on the frame.
    place: BBox,
    /// Values are less than this; [`PixelMap::NO_CLASS`] is no value.
    limit: u32,
    /// Scores, or depths, that are not finite.
    not_finite: usize,
    /// Whether the values are only drawn.
    #[doc(hidden)]
    pub is_hidden: bool,
}

/// How class ids of a model become classes.
#[derive(Clone, Debug, Default)]
pub struct ClassFilter {
    /// What class 0 is called.
    pub first: u32,
    /// The number of classes.
    pub count: u32,
    /// Classes that are kept, by id; those beyond the list as `beyond`.
    pub kept: Vec<bool>,
    pub beyond: bool,
    /// Above which the score of a single class must be.
    pub threshold: f32,
}

impl ClassFilter {
    pub(crate) fn keeps(&self, class: u32) -> bool {
        class < self.count && self.kept.get(class as usize).copied().unwrap_or(self.beyond)
    }

    fn class(&self, id: i64) -> u16 {
        let class = id.checked_sub(self.first.into()).and_then(|class| u32::try_from(class).ok());
        let class = class.filter(|&class| self.keeps(class));
        class.map_or(PixelMap::NO_CLASS, |class| class as u16)
    }
}

/// Depths beyond these count as infinite: differences of others are finite.
const MAX_DEPTH: f32 = 1e37;

impl PixelMap {
    /// In maps of classes: the pixel has none.
    #[doc(hidden)]
    pub const NO_CLASS: u16 = u16::MAX;
    /// The maximum number of classes: [`PixelMap::NO_CLASS`] is none.
    #[doc(hidden)]
    pub const MAX_CLASSES: u32 = u16::MAX as u32;

    /// Without a pixel.
    #[doc(hidden)]
    pub fn new(kind: MapKind) -> Self {
        let place = BBox::new(0.0, 0.0, 0.0, 0.0);
        let (regions, values) = (Vec::new(), Vec::new());
        PixelMap { kind, regions, width: 0, height: 0, values, place, limit: 0, not_finite: 0, is_hidden: false }
    }

    /// Of values that lie there on the frame; `None` where they are not as many. Regions are those that the values have.
    #[doc(hidden)]
    pub fn of(
        kind: MapKind,
        (width, height): (u32, u32),
        values: Vec<u16>,
        place: BBox,
        regions: Vec<MapRegion>,
    ) -> Option<Self> {
        let is_whole = u64::from(width) * u64::from(height) == values.len() as u64 && !values.is_empty();
        let limit = regions.iter().map(|region| u32::from(region.id) + 1).max().unwrap_or(0);
        is_whole.then_some(PixelMap {
            kind,
            regions,
            width,
            height,
            values,
            place,
            limit,
            not_finite: 0,
            is_hidden: false,
        })
    }

    pub fn kind(&self) -> MapKind {
        self.kind
    }

    /// The values that the map has, in the order of their ids, except depths and those that stand for nothing.
    pub fn regions(&self) -> &[MapRegion] {
        &self.regions
    }

    pub fn width(&self) -> u32 {
        self.width
    }

    pub fn height(&self) -> u32 {
        self.height
    }

    /// Row by row.
    pub fn values(&self) -> &[u16] {
        &self.values
    }

    /// The box on the frame that the map fills.
    #[doc(hidden)]
    pub fn place(&self) -> BBox {
        self.place
    }

    /// The share of the map's pixels that a region has.
    #[doc(hidden)]
    pub fn share(&self, region: &MapRegion) -> f32 {
        (f64::from(region.pixels) / (f64::from(self.width) * f64::from(self.height))) as f32
    }

    /// Whether values fit in 8 bits; 255 is then that of no class.
    #[doc(hidden)]
    pub fn has_bytes(&self) -> bool {
        !matches!(self.kind, MapKind::Depth { .. }) && self.limit <= u32::from(u8::MAX)
    }

    /// The values of the frame's pixels, row by row, for a frame of that size. Beyond the map it is that of no class,
    /// the minimum of depths, and no object.
    pub fn on_frame(&self, (width, height): (u32, u32)) -> Vec<u16> {
        let [columns, rows] = self.covering((width, height));
        let nothing = if self.kind == MapKind::Classes { Self::NO_CLASS } else { 0 };
        let mut pixels = vec![nothing; width as usize * height as usize];
        for (to, &y) in pixels.chunks_exact_mut(width.max(1) as usize).zip(&rows) {
            let row = self.values.get(y as usize * self.width as usize..).filter(|_| y != NEVER).unwrap_or_default();
            for (to, &x) in to.iter_mut().zip(&columns) {
                *to = row.get(x as usize).copied().filter(|_| x != NEVER).unwrap_or(nothing);
            }
        }
        pixels
    }

    /// For each column and each row of a frame of that size that of the map, or [`NEVER`].
    pub(crate) fn covering(&self, frame: (u32, u32)) -> [Vec<u32>; 2] {
        let &PixelMap { width, height, place, .. } = self;
        if width == 0 || height == 0 {
            return [vec![NEVER; frame.0 as usize], vec![NEVER; frame.1 as usize]];
        }
        let letterbox = Letterbox {
            place,
            ..Letterbox::new((width, height), (width, height), super::geometry::ResizeMode::Stretch)
        };
        [
            covering(frame.0, 0..width, |at| column_edge(&letterbox, at)),
            covering(frame.1, 0..height, |at| row_edge(&letterbox, at)),
        ]
    }

    #[doc(hidden)]
    pub fn clear(&mut self) {
        (self.width, self.height, self.not_finite) = (0, 0, 0);
        self.values.clear();
        self.regions.clear();
    }

    /// The number of its pixels, whose values may not be there.
    pub(crate) fn pixels(&self) -> usize {
        self.width as usize * self.height as usize
    }

    /// Takes the size and the place of the part of the model's input that shows the frame, and returns that part.
    pub(crate) fn begin(&mut self, letterbox: &Letterbox) -> [u32; 4] {
        self.clear();
        let &Letterbox { x, y, width, height, place, .. } = letterbox;
        (self.width, self.height, self.place) = (width, height, place);
        [x, y, x + width, y + height]
    }

    /// Of how many pixels a score is not finite, for each class; or of how many the depth is not, as far as it is known.
    pub(crate) fn not_finite(&self) -> usize {
        self.not_finite
    }

    pub(crate) fn note_not_finite(&mut self, scores: usize) {
        self.not_finite = scores;
    }

    /// The class with the greatest score at each pixel, the first of equals. Of a single class a score must be above the threshold.
    /// A pixel without a score that is a number above minus infinity has none.
    ///
    /// `planes` is the number of classes, width and height of the scores.
    #[doc(hidden)]
    pub fn find_greatest(&mut self, scores: &Floats, planes: [usize; 3], letterbox: &Letterbox, filter: &ClassFilter) {
        let part = self.begin(letterbox);
        let [classes, width, height] = planes;
        let least = if classes == 1 { filter.threshold } else { f32::NEG_INFINITY };
        let pixels = self.width as usize * self.height as usize;
        let mut best = vec![least; pixels];
        self.values.resize(pixels, Self::NO_CLASS);
        let scaler = Scaler::new([width, height], (letterbox.tensor_width, letterbox.tensor_height), part);
        let stride = self.width as usize;
        for class in 0..classes {
            scaler.scale(scores, class, |y, row| {
                let mut lost = 0u32;
                let best = &mut best[y * stride..][..stride];
                let ids = &mut self.values[y * stride..][..stride];
                for ((best, id), &score) in best.iter_mut().zip(ids).zip(row) {
                    // Without a branch, so that it runs on several pixels at once.
                    let is_greater = score > *best;
                    *best = if is_greater { score } else { *best };
                    *id = if is_greater { class as u16 } else { *id };
                    lost += u32::from(!score.is_finite());
                }
                self.not_finite += lost as usize;
            });
        }
        for value in &mut self.values {
            *value = filter.class(i64::from(*value));
        }
        self.count_classes(filter);
    }

    /// The class that the nearest of `ids` names; `id_at` gives the id at an index.
    #[doc(hidden)]
    pub fn take_ids(
        &mut self,
        id_at: impl Fn(usize) -> i64,
        [width, height]: [usize; 2],
        letterbox: &Letterbox,
        filter: &ClassFilter,
    ) {
        let [left, top, right, bottom] = self.begin(letterbox);
        let nearest =
            |at: u32, from: usize, to: u32| ((2 * u64::from(at) + 1) * from as u64 / (2 * u64::from(to))) as usize;
        let columns: Vec<usize> = (left..right).map(|at| nearest(at, width, letterbox.tensor_width)).collect();
        for at in top..bottom {
            let start = nearest(at, height, letterbox.tensor_height) * width;
            self.values.extend(columns.iter().map(|column| filter.class(id_at(start + column))));
        }
        self.count_classes(filter);
    }

    fn count_classes(&mut self, filter: &ClassFilter) {
        let mut counts = vec![0u32; filter.count as usize];
        for &value in self.values.iter().filter(|&&value| value != Self::NO_CLASS) {
            counts[usize::from(value)] += 1;
        }
        self.take_counts(&counts);
    }

    /// The regions of a map of classes: how many pixels each class has.
    pub(crate) fn take_counts(&mut self, counts: &[u32]) {
        self.limit = counts.len() as u32;
        let regions = counts.iter().zip(0..).filter(|(pixels, _)| **pixels > 0);
        self.regions.clear();
        self.regions.extend(regions.map(|(&pixels, id)| MapRegion { id, class: id.into(), pixels }));
    }

    /// The range of a map of depths.
    pub(crate) fn take_range(&mut self, [minimum, maximum]: [f32; 2]) {
        self.kind = MapKind::Depth { minimum, maximum };
    }

    /// As many as the map has pixels, or none.
    pub(crate) fn take_values(&mut self, values: &[u16]) {
        self.values.clear();
        self.values.extend_from_slice(values);
    }

    /// The depth of each pixel. What is not a number counts as the minimum, and so do all where none is finite.
    ///
    /// `planes` is the width and height of the depths.
    #[doc(hidden)]
    pub fn find_depths(&mut self, depths: &Floats, planes: [usize; 2], letterbox: &Letterbox) {
        let part = self.begin(letterbox);
        let scaler = Scaler::new(planes, (letterbox.tensor_width, letterbox.tensor_height), part);
        let mut found: Vec<f32> = Vec::with_capacity(self.width as usize * self.height as usize);
        scaler.scale(depths, 0, |_, row| found.extend_from_slice(row));
        let (mut minimum, mut maximum) = (f32::INFINITY, f32::NEG_INFINITY);
        // No zero is negative: which of both is less is open.
        for depth in found.iter().map(|depth| depth + 0.0).filter(|depth| depth.abs() <= MAX_DEPTH) {
            (minimum, maximum) = (minimum.min(depth), maximum.max(depth));
        }
        if minimum > maximum {
            (minimum, maximum) = (0.0, 0.0);
        }
        self.not_finite = found.len() - found.iter().filter(|depth| depth.abs() <= MAX_DEPTH).count();
        let range = maximum - minimum;
        self.values.extend(found.iter().map(|depth| {
            if range > 0.0 { ((depth.max(minimum).min(maximum) - minimum) / range * 65535.0 + 0.5) as u16 } else { 0 }
        }));
        self.take_range([minimum, maximum]);
    }

    /// The objects, with these classes; where masks overlap, the first.
    #[doc(hidden)]
    pub fn find_objects(&mut self, masks: &Masks, classes: impl ExactSizeIterator<Item = u32>, letterbox: &Letterbox) {
        let [left, top, right, bottom] = self.begin(letterbox);
        let stride = self.width as usize;
        self.values.resize(stride * self.height as usize, 0);
        let classes: Vec<u32> = classes.take(usize::from(u16::MAX)).collect();
        for object in (0..classes.len()).rev() {
            masks.runs(object, Rect { left, top, right, bottom }, |y, [start, end]| {
                let row = &mut self.values[(y - top) as usize * stride..][..stride];
                row[(start - left) as usize..(end - left) as usize].fill(object as u16 + 1);
            });
        }
        self.take_objects(&classes);
    }

    /// The regions of a map of objects with these classes, whose values are there.
    pub(crate) fn take_objects(&mut self, classes: &[u32]) {
        let mut counts = vec![0; classes.len() + 1];
        for &value in &self.values {
            counts[usize::from(value)] += 1;
        }
        self.limit = counts.len() as u32;
        let regions = (1..).zip(classes).zip(&counts[1..]);
        self.regions.clear();
        self.regions.extend(regions.map(|((id, &class), &pixels)| MapRegion { id, class, pixels }));
    }
}

#[cfg(test)]
mod tests;
