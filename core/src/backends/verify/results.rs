// SPDX-License-Identifier: MPL-2.0
//! What a model's outputs mean, and how much of it is the same in other outputs.

use std::sync::Arc;

use super::Tolerance;
use crate::image::Candidate;
use crate::image::geometry::Letterbox;
use crate::image::map::{MapKind, PixelMap};
use crate::image::masks::Mask;
use crate::model::ModelInfo;
use crate::postprocess::{Instances, PostprocessOptions, Postprocessor};
use crate::tensor::{Tensor, Tensors};

/// So many of the best results of a picture are looked for.
const BEST: usize = 50;
/// Of so many, the masks too.
const WITH_MASKS: usize = 10;
/// Others are none.
const LEAST_SCORE: f32 = 1e-4;
/// Fewer say nothing.
const FEWEST: usize = 8;

/// Results that were looked for, and those that were found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recall {
    pub sought: usize,
    pub found: usize,
}

impl Recall {
    pub fn plus(self, other: Self) -> Self {
        Recall { sought: self.sought + other.sought, found: self.found + other.found }
    }

    /// The part that was found, where there is something to say.
    pub fn share(&self) -> Option<f32> {
        (self.sought >= FEWEST).then(|| self.found as f32 / self.sought as f32)
    }
}

/// Reads outputs of one model.
pub struct Reader {
    processor: Postprocessor,
    letterbox: Letterbox,
}

impl Reader {
    /// `None` where the head is not known, or guessed: then only the numbers can be compared.
    pub fn new(model: &Arc<ModelInfo>, outputs: &[Tensor], letterbox: &Letterbox) -> Option<Self> {
        // Without suppression: of boxes that are nearly as good as each other, it keeps one by the last bit of a score.
        let options = PostprocessOptions {
            score_threshold: LEAST_SCORE,
            iou_threshold: 1.0,
            max_detections: 4 * BEST as u32,
            top_k: BEST as u32,
            ..PostprocessOptions::default()
        };
        let processor = Postprocessor::new(options, model, outputs, letterbox).ok()?;
        let is_certain = processor.decoder.doubt().is_none();
        is_certain.then_some(Reader { processor, letterbox: *letterbox })
    }

    /// `None` where these outputs cannot be read, such as of other dimensions.
    pub fn read(&mut self, outputs: &Tensors) -> Option<Instances> {
        self.processor.find(outputs, &self.letterbox).ok()?;
        Some(self.processor.instances().clone())
    }
}

/// What is found again of the results of a picture.
pub fn compare(found: &Instances, wanted: &Instances, tolerance: &Tolerance) -> Recall {
    if let (Some(classes), Some(wanted)) = (&found.classes, &wanted.classes) {
        let is_found = |wanted: &&crate::postprocess::RankedClass| {
            classes.iter().any(|class| class.class == wanted.class && is_near(class.score, wanted.score, tolerance))
        };
        let certain = wanted.iter().filter(|class| class.score > Tolerance::SMALL_SCORE / 10.0);
        return Recall { sought: certain.clone().count(), found: certain.filter(is_found).count() };
    }
    if let (Some(map), Some(wanted)) = (&found.map, &wanted.map) {
        return compare_maps(map, wanted, tolerance);
    }
    let wanted_count = wanted.len().min(BEST);
    let again = again(found, wanted, tolerance, wanted_count);
    Recall { sought: wanted_count, found: again.into_iter().filter(|again| *again).count() }
}

/// Whether each of the first objects is found again.
pub fn again(found: &Instances, wanted: &Instances, tolerance: &Tolerance, count: usize) -> Vec<bool> {
    let mut taken = vec![false; found.len()];
    let again = (0..count).map(|index| {
        let other = &wanted.boxes[index];
        let is_it = |at: &usize| {
            let candidate = &found.boxes[*at];
            !taken[*at]
                && candidate.class == other.class
                && is_near(candidate.score, other.score, tolerance)
                && overlap(candidate, other) >= tolerance.overlap
                && has_same_parts((found, *at), (wanted, index), tolerance)
        };
        let at = (0..found.len()).find(is_it);
        at.inspect(|&at| taken[at] = true).is_some()
    });
    again.collect()
}

fn is_near(score: f32, other: f32, tolerance: &Tolerance) -> bool {
    (score - other).abs() <= tolerance.score * other.max(Tolerance::SMALL_SCORE)
}

fn overlap(one: &Candidate, other: &Candidate) -> f32 {
    // A box without an area is where it is.
    if one.bbox == other.bbox { 1.0 } else { one.bbox.iou(&other.bbox) }
}

/// Keypoints and masks of two objects that have the same box.
fn has_same_parts(
    (found, at): (&Instances, usize),
    (wanted, index): (&Instances, usize),
    tolerance: &Tolerance,
) -> bool {
    let side = (wanted.boxes[index].bbox.width() + wanted.boxes[index].bbox.height()) / 2.0;
    let points = match (&found.keypoints, &wanted.keypoints) {
        (Some(points), Some(others)) => {
            let dims = usize::from(others.model.shape.dims);
            let pairs = points.of(at).chunks_exact(dims).zip(others.of(index).chunks_exact(dims));
            let distances = pairs.map(|(point, other)| (point[0] - other[0]).hypot(point[1] - other[1]));
            let count = others.model.shape.count.max(1);
            distances.sum::<f32>() / f32::from(count) <= (1.0 - tolerance.overlap) * side.max(1.0)
        }
        _ => true,
    };
    let masks = match (&found.masks, &wanted.masks) {
        (Some(masks), Some(others)) if index < WITH_MASKS => {
            mask_overlap(&masks.on_frame(at), &others.on_frame(index)) >= tolerance.overlap
        }
        _ => true,
    };
    points && masks
}

fn mask_overlap(mask: &Mask, other: &Mask) -> f32 {
    let (rect, both) = (mask.rect(), |x, y| mask.contains(x, y) && other.contains(x, y));
    let rows = rect.top..rect.bottom;
    let common: usize = rows.map(|y| (rect.left..rect.right).filter(|&x| both(x, y)).count()).sum();
    let all = mask.area() + other.area() - common as u64;
    if all == 0 { 1.0 } else { common as f32 / all as f32 }
}

/// Each pixel is a result.
pub fn compare_maps(map: &PixelMap, wanted: &PixelMap, tolerance: &Tolerance) -> Recall {
    let (values, others) = (map.values(), wanted.values());
    if values.len() != others.len() {
        return Recall { sought: others.len().max(FEWEST), found: 0 };
    }
    let found = match (map.kind(), wanted.kind()) {
        (MapKind::Depth { minimum, maximum }, MapKind::Depth { minimum: lowest, maximum: highest }) => {
            let depth = |value: u16, low: f32, high: f32| low + f32::from(value) / 65535.0 * (high - low);
            let near = tolerance.outputs * (highest - lowest).max(f32::MIN_POSITIVE);
            let is_near = |&(&value, &other): &(&u16, &u16)| {
                (depth(value, minimum, maximum) - depth(other, lowest, highest)).abs() <= near
            };
            values.iter().zip(others).filter(is_near).count()
        }
        _ => values.iter().zip(others).filter(|(value, other)| value == other).count(),
    };
    Recall { sought: others.len(), found }
}
