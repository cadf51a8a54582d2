// SPDX-License-Identifier: MPL-2.0
//! Rotated boxes of texts, from a map of probabilities, on the host: as PP-OCR makes them of DBNet's map.
//!
//! Pixels above a threshold that touch, also at corners, are a region. Around its pixels lies a [rectangle](super::text_rect). Its score
//! is the mean probability inside. As the network is trained on shrunk texts, the rectangle grows.
//!
//! PP-OCR counts from the middle of the first pixel, and takes such places for pixels of the frame. So do we: a box is half a pixel
//! higher and further to the left than the pixels of its region, times the scale of the frame.

use super::text::{host_copy, take_floats};
use super::text_rect::TextRect;
use crate::error::Result;
use crate::heads::{Decoder, Thresholds};
use crate::image::Candidate;
use crate::memory::Pool;
use crate::tensor::Tensor;

/// The probability above which a pixel belongs to a text, if the user sets none.
pub(super) const USUAL_PIXEL: f32 = 0.3;

/// The score from which on a box is one, if the user sets none.
pub(super) const USUAL_SCORE: f32 = 0.6;

/// The least shorter side of a rectangle in pixels of the map, before it grows; 2 more after that.
const LEAST_SIDE: f64 = 3.0;

/// What makes boxes of a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextBoxRules {
    /// Pixels above this belong to a text.
    pub pixel: f32,
    /// How far a rectangle grows: PP-OCR's `unclip_ratio`.
    pub growth: f32,
    /// Each pixel of a text takes its neighbours to the right and below: PP-OCR's `use_dilation`.
    pub dilates: bool,
}

/// Finds the texts in the maps of one model.
pub(super) struct TextBoxFinder {
    width: usize,
    height: usize,
    /// Pixels of the model's input for one of the map.
    scale: [f64; 2],
    /// The map, and which of its pixels are still to be seen.
    values: Vec<f32>,
    is_open: Vec<bool>,
    region: TextRegion,
    /// For outputs in GPU memory.
    pool: Pool,
}

/// The pixels of a text: the first and the last of each row from `top` on, as far as they are needed for its hull.
#[derive(Default)]
struct TextRegion {
    top: usize,
    rows: Vec<[usize; 2]>,
    /// Pixels whose neighbours are still to be seen.
    next: Vec<[usize; 2]>,
}

impl TextBoxFinder {
    /// `None` for models of other results. `input` is width and height of the model's input.
    pub fn new(decoder: &Decoder, input: (u32, u32)) -> Option<Self> {
        let [width, height] = decoder.text_map_size()?;
        let scale = [f64::from(input.0) / width as f64, f64::from(input.1) / height as f64];
        let (values, is_open, region, pool) = Default::default();
        Some(TextBoxFinder { width, height, scale, values, is_open, region, pool })
    }

    /// Appends the boxes of an output that is there, in pixels of the model's input, and returns how many of its numbers are not finite.
    ///
    /// # Errors
    /// `Run`, where CUDA fails.
    pub fn find(
        &mut self,
        output: &Tensor,
        rules: &TextBoxRules,
        thresholds: &Thresholds,
        out: &mut Vec<Candidate>,
    ) -> Result<usize> {
        let copy = host_copy(output, &self.pool)?;
        let (width, height) = (self.width, self.height);
        take_floats(copy.as_ref().unwrap_or(output), 0..width * height, &mut self.values);
        self.is_open.clear();
        self.is_open.extend(self.values.iter().map(|&value| value > rules.pixel));
        if rules.dilates {
            dilate(&mut self.is_open, width);
        }
        // As it was written: 1.6 is no number of 32 bits.
        let growth = (f64::from(rules.growth) * 1e6).round() / 1e6;
        let mut row = 0;
        for start in 0..width * height {
            if !self.is_open[start] {
                continue;
            }
            self.region.fill(&mut self.is_open, (width, height), [start % width, start / width]);
            let rect = self.region.rect().filter(|rect| rect.shorter_side() >= LEAST_SIDE);
            let Some(rect) = rect else { continue };
            let score = rect.mean(&self.values, (width, height));
            if score < thresholds.of(0) {
                continue;
            }
            if let Some(grown) = rect.grown(growth).filter(|grown| grown.shorter_side() >= LEAST_SIDE + 2.0) {
                out.push(grown.candidate(self.scale, score, row));
                row += 1;
            }
        }
        Ok(self.values.iter().filter(|value| !value.is_finite()).count())
    }
}

impl TextRegion {
    /// Takes the pixels that touch `start`, the first of them in the order of the rows, and closes them.
    fn fill(&mut self, is_open: &mut [bool], (width, height): (usize, usize), start: [usize; 2]) {
        let [x, y] = start;
        (self.top, is_open[y * width + x]) = (y, false);
        self.rows.clear();
        self.next.clear();
        self.next.push(start);
        while let Some([x, y]) = self.next.pop() {
            // No pixel lies above the first one.
            let row = y - self.top;
            if row >= self.rows.len() {
                self.rows.resize(row + 1, [usize::MAX, 0]);
            }
            let [first, last] = &mut self.rows[row];
            (*first, *last) = ((*first).min(x), (*last).max(x));
            for near_y in y.saturating_sub(1)..(y + 2).min(height) {
                for near_x in x.saturating_sub(1)..(x + 2).min(width) {
                    if std::mem::take(&mut is_open[near_y * width + near_x]) {
                        self.next.push([near_x, near_y]);
                    }
                }
            }
        }
    }

    /// The rectangle of the smallest area around its pixels; `None` where these lie on a line.
    fn rect(&self) -> Option<TextRect> {
        let point = |x: usize, row: usize| [x as f64, (self.top + row) as f64];
        let ends = self.rows.iter().enumerate();
        let points: Vec<[f64; 2]> =
            ends.flat_map(|(row, &[first, last])| [point(first, row), point(last, row)]).collect();
        TextRect::around(&points)
    }
}

/// Opens the pixels to the right of open ones, below them, and at the corner between: OpenCV's dilation with a kernel of 2x2 ones.
fn dilate(is_open: &mut [bool], width: usize) {
    // From the end on, so that pixels that are opened here open no others.
    for at in (0..is_open.len()).rev() {
        let (left, above) = (!at.is_multiple_of(width), at >= width);
        is_open[at] |=
            left && is_open[at - 1] || above && is_open[at - width] || left && above && is_open[at - width - 1];
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_6};

    use super::*;
    use crate::heads::{ModelHints, text_detect};
    use crate::image::geometry::BBox;
    use crate::image::rotated::{self, RotatedBox};
    use crate::recorded;

    const SIDE: usize = 128;
    const GROWTH: f64 = 1.5;
    const RULES: TextBoxRules = TextBoxRules { pixel: USUAL_PIXEL, growth: GROWTH as f32, dilates: false };

    /// A map with this value in rectangles, each by centre, width, height and angle.
    fn map(rects: &[([f64; 2], f64, f64, f64)], value: f32) -> Vec<f32> {
        let mut map = vec![0.0; SIDE * SIDE];
        for &([x, y], width, height, angle) in rects {
            let (sin, cos) = angle.sin_cos();
            for (at, pixel) in map.iter_mut().enumerate() {
                let (dx, dy) = ((at % SIDE) as f64 + 0.5 - x, (at / SIDE) as f64 + 0.5 - y);
                if (dx * cos + dy * sin).abs() <= width / 2.0 && (dy * cos - dx * sin).abs() <= height / 2.0 {
                    *pixel = value;
                }
            }
        }
        map
    }

    fn found(map: &[f32], input: u32, score: f32) -> (Vec<Candidate>, usize) {
        found_by(&RULES, map, input, score)
    }

    fn found_by(rules: &TextBoxRules, map: &[f32], input: u32, score: f32) -> (Vec<Candidate>, usize) {
        let side = map.len().isqrt() as i64;
        let output = Tensor::from_slice("maps", &[1, 1, side, side], map);
        let hints = ModelHints { input: Some((input, input)), ..ModelHints::default() };
        let decoder = Decoder::new(Some(&text_detect::HEAD), &[output.desc().clone()], &hints).unwrap();
        let mut finder = TextBoxFinder::new(&decoder, (input, input)).unwrap();
        let mut out = Vec::new();
        let lost = finder.find(&output, rules, &Thresholds::uniform(score), &mut out).unwrap();
        (out, lost)
    }

    #[track_caller]
    fn assert_near(found: &Candidate, wanted: [f64; 5], tolerance: f64) {
        let RotatedBox { bbox, angle } = found.rotated().regular();
        let (x, y) = bbox.center();
        let have = [x, y, bbox.width(), bbox.height(), angle].map(f64::from);
        let is_near = have.iter().zip(wanted).all(|(have, wanted)| (have - wanted).abs() < tolerance);
        assert!(is_near, "{have:?} is not {wanted:?}");
    }

    #[test]
    fn upright_texts_grow_on_all_sides() {
        // 41 x 11 pixels, whose middles are 40 x 10 apart: 400 · 1.5 / 100 = 6 on each side. The first ones are 20 and 25.
        let values = map(&[([40.5, 30.5], 40.5, 10.5, 0.0)], 0.875);
        let (boxes, lost) = found(&values, SIDE as u32, USUAL_SCORE);
        assert_eq!((boxes.len(), boxes[0].score, lost), (1, 0.875, 0));
        assert_near(&boxes[0], [40.0, 30.0, 52.0, 22.0, 0.0], 1e-4);
        // A map of a quarter of the input.
        let (boxes, _) = found(&values, 4 * SIDE as u32, USUAL_SCORE);
        assert_near(&boxes[0], [160.0, 120.0, 208.0, 88.0, 0.0], 1e-3);
    }

    #[test]
    fn texts_grow_by_what_is_set_and_dilated_ones_by_a_pixel_more() {
        let values = map(&[([40.5, 30.5], 40.5, 10.5, 0.0)], 0.875);
        let size_of = |rules: TextBoxRules, values: &[f32]| {
            let (boxes, _) = found_by(&rules, values, SIDE as u32, 0.1);
            let RotatedBox { bbox, .. } = boxes[0].rotated().regular();
            [bbox.width(), bbox.height(), bbox.center().0, bbox.center().1].map(|number| (number * 64.0).round() / 64.0)
        };
        assert_eq!(size_of(TextBoxRules { growth: 0.0, ..RULES }, &values), [40.0, 10.0, 40.0, 30.0]);
        assert_eq!(size_of(TextBoxRules { growth: 3.0, ..RULES }, &values), [64.0, 34.0, 40.0, 30.0]);
        let dilated = TextBoxRules { growth: 0.0, dilates: true, ..RULES };
        let values = map(&[([40.0, 30.5], 39.5, 10.5, 0.0)], 0.875);
        assert_eq!(size_of(TextBoxRules { dilates: false, ..dilated }, &values), [39.0, 10.0, 39.5, 30.0]);
        assert_eq!(size_of(dilated, &values), [40.0, 11.0, 40.0, 30.5], "to the right and below");
        // Two texts with a pixel between them are one then, and nothing crosses the right edge of the map.
        let apart = [([20.5, 20.5], 9.0, 9.0, 0.0), ([30.5, 20.5], 9.0, 9.0, 0.0), ([125.5, 60.5], 5.0, 5.0, 0.0)];
        let count = |rules: TextBoxRules| found_by(&rules, &map(&apart, 0.75), SIDE as u32, 0.1).0.len();
        assert_eq!((count(RULES), count(TextBoxRules { dilates: true, ..RULES })), (3, 2));
    }

    #[test]
    fn rotated_texts_have_the_angle_that_they_have() {
        for angle in [FRAC_PI_6, 1.0, FRAC_PI_2 - 0.2] {
            let (boxes, _) = found(&map(&[([64.0, 64.0], 60.0, 14.0, angle)], 0.75), SIDE as u32, USUAL_SCORE);
            assert_eq!(boxes.len(), 1);
            let by = 60.0 * 14.0 * GROWTH / (2.0 * 74.0);
            assert_near(&boxes[0], [64.0, 64.0, 60.0 + 2.0 * by, 14.0 + 2.0 * by, angle], 2.5);
        }
        let (boxes, _) = found(&map(&[([64.0, 64.0], 60.0, 14.0, -0.5)], 0.75), SIDE as u32, USUAL_SCORE);
        assert!((boxes[0].rotated().regular().angle - (FRAC_PI_2 - 0.5) as f32).abs() < 0.05, "{boxes:?}");
    }

    #[test]
    fn what_touches_is_one_text() {
        let corner = [([20.5, 20.5], 9.0, 9.0, 0.0), ([29.5, 29.5], 9.0, 9.0, 0.0)];
        assert_eq!(found(&map(&corner, 0.75), SIDE as u32, 0.1).0.len(), 1, "at a corner");
        let apart = [([20.5, 20.5], 9.0, 9.0, 0.0), ([30.5, 20.5], 9.0, 9.0, 0.0), ([100.5, 100.5], 20.0, 8.0, 0.0)];
        assert_eq!(found(&map(&apart, 0.75), SIDE as u32, 0.1).0.len(), 3);
    }

    #[test]
    fn what_is_small_weak_or_no_number_is_left_out() {
        let sizes = |width: f64, height: f64, value: f32| {
            found(&map(&[([64.5, 64.5], width, height, 0.0)], value), SIDE as u32, USUAL_SCORE).0.len()
        };
        // One pixel, a line, and two pixels less than the least side and as much as that.
        let small =
            [(0.5, 0.5), (50.0, 0.5), (50.0, 2.5), (50.0, 4.5)].map(|(width, height)| sizes(width, height, 0.75));
        assert_eq!(small, [0, 0, 0, 1]);
        assert_eq!([sizes(50.0, 9.0, 0.5), sizes(50.0, 9.0, 0.25), sizes(50.0, 9.0, 0.625)], [0, 0, 1]);
        let mut values = map(&[([64.5, 64.5], 50.0, 9.0, 0.0)], 0.75);
        (values[0], values[1]) = (f32::NAN, f32::NEG_INFINITY);
        let (boxes, lost) = found(&values, SIDE as u32, USUAL_SCORE);
        assert_eq!((boxes.len(), lost), (1, 2));
        // All of the map, and each second pixel.
        assert_eq!(found(&[1.0; SIDE * SIDE], SIDE as u32, USUAL_SCORE).0.len(), 1);
        let dotted: Vec<f32> =
            (0..SIDE * SIDE).map(|at| f32::from(at.is_multiple_of(2) && (at / SIDE).is_multiple_of(2))).collect();
        assert_eq!(found(&dotted, SIDE as u32, 0.0).0.len(), 0);
    }

    /// RapidOCR reads the same map. It takes the middle of the first pixel for 0, moves corners to whole pixels before and after a box
    /// grows, and fills polygons of whole pixels for their scores, so that pixels next to a rotated text count.
    #[test]
    fn texts_are_those_of_rapidocr() {
        let recording = recorded::of("text-detect");
        let side = recording.lines("side")[0][0] as usize;
        let mut map = vec![0.0; side * side];
        // Halves and multiples of 1/256: nothing is rounded.
        for text in recording.lines("text") {
            let &[x, y, half_width, half_height, cos, sin, probability] = text else { panic!("{text:?}") };
            // No row beyond these has a pixel of it.
            let reach = half_width * sin.abs() + half_height * cos.abs() + 8.0;
            let (first, last) = ((y - reach).max(0.0) as usize, ((y + reach) as usize).min(side));
            for (at, pixel) in map.iter_mut().enumerate().take(last * side).skip(first * side) {
                let (dx, dy) = ((at % side) as f64 + 0.5 - x, (at / side) as f64 + 0.5 - y);
                if (dx * cos + dy * sin).abs() <= half_width && (dy * cos - dx * sin).abs() <= half_height {
                    *pixel = probability as f32;
                }
            }
        }
        let quads = recording.lines("quad");
        let (boxes, _) = found_by(&RULES, &map, side as u32, USUAL_SCORE);
        assert!(quads.len() > 2 && recording.lines("text").len() > quads.len(), "{quads:?}");
        assert_eq!(boxes.len(), quads.len());
        for one in boxes {
            let RotatedBox { bbox, angle } = one.rotated().regular();
            let (x, y) = bbox.center();
            let (sin, cos) = angle.sin_cos();
            // Their corners from our middle on, along our sides.
            let turned = |quad: &[f64]| {
                let corners = quad[..8].chunks(2).map(|corner| {
                    let (dx, dy) = (corner[0] as f32 + 0.5 - x, corner[1] as f32 + 0.5 - y);
                    [dx * cos + dy * sin, dy * cos - dx * sin]
                });
                corners.collect::<Vec<_>>()
            };
            let ours = BBox::from_center(0.0, 0.0, bbox.width(), bbox.height());
            let overlap = |quad: &[f64]| {
                let corners: [_; 4] = turned(quad).try_into().expect("four corners");
                ours.iou(&rotated::hull(&corners))
            };
            let best = quads.iter().max_by(|a, b| overlap(a).total_cmp(&overlap(b))).unwrap();
            assert!(overlap(best) >= 0.99, "{one:?} {best:?}: {}", overlap(best));
            let is_upright = angle.sin().abs() < 1e-3 || angle.cos().abs() < 1e-3;
            let tolerance = if is_upright { 1e-3 } else { 0.03 };
            assert!((one.score - best[8] as f32).abs() <= tolerance, "{one:?} {best:?}");
        }
    }
}
