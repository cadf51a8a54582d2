// SPDX-License-Identifier: MPL-2.0
//! What a model's outputs mean, and how much of it is the same in other outputs.

use std::sync::Arc;

use super::Tolerance;
use crate::image::Candidate;
use crate::image::geometry::{BBox, Letterbox};
use crate::image::map::{MapKind, PixelMap};
use crate::image::masks::Mask;
use crate::image::rotated::RotatedBox;
use crate::model::ModelInfo;
use crate::postprocess::{Instances, PostprocessOptions, Postprocessor, RankedClass};
use crate::tensor::{DType, Tensor, Tensors};

/// So many of the best results of a picture are looked for.
const BEST: usize = 50;
/// Of so many, the masks too.
const WITH_MASKS: usize = 10;
/// Others are none.
const LEAST_SCORE: f32 = 1e-4;
/// Models that leave out weak objects by themselves do so below this, or lower.
const OWN_THRESHOLD: f32 = 0.25;
/// Fewer say nothing.
pub const FEWEST: usize = 8;

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

/// What outputs mean, and which ones say so.
pub struct Meaning {
    pub results: Instances,
    /// Their names.
    pub outputs: Vec<String>,
    /// They are class ids of pixels.
    pub are_ids: bool,
}

/// Reads outputs of one model.
pub struct Reader {
    processor: Postprocessor,
    letterbox: Letterbox,
}

impl Reader {
    /// `None` where the head is not known or guessed, and for vectors and texts: then only the numbers can be compared.
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
        let has_results = !processor.is_embedding() && !processor.reads_text();
        let is_certain = processor.decoder.doubt().is_none() && has_results;
        is_certain.then_some(Reader { processor, letterbox: *letterbox })
    }

    /// `None` where these outputs cannot be read, such as of other dimensions.
    pub fn read(&mut self, outputs: &Tensors) -> Option<Meaning> {
        self.processor.find(outputs, &self.letterbox).ok()?;
        let results = self.processor.instances().clone();
        let read = self.processor.decoder.pick(outputs).ok()?;
        let are_integers = read.iter().all(|output| !matches!(output.desc().dtype, DType::F32 | DType::F16));
        let is_of_classes = results.map.as_ref().is_some_and(|map| map.kind() == MapKind::Classes);
        let outputs = read.iter().map(|output| output.desc().name.clone()).collect();
        Some(Meaning { results, outputs, are_ids: are_integers && is_of_classes })
    }
}

/// What is found again of the results of a picture. Or what was wanted of those that were found, where that is less: results
/// that should not be there are as wrong as those that are lost.
pub fn compare(found: &Instances, wanted: &Instances, tolerance: &Tolerance) -> Recall {
    if let (Some(map), Some(wanted_map)) = (&found.map, &wanted.map) {
        let maps = compare_maps(map, wanted_map, tolerance);
        // A score of the frame next to its map counts as much as all pixels.
        let score = |of: &Instances| of.frame_classes().first().map_or(0.0, |class| class.score);
        return if is_near(score(found), score(wanted), tolerance) { maps } else { Recall { found: 0, ..maps } };
    }
    let again = recall(found, wanted, tolerance, |_| false);
    // One with about the score of the last wanted result may have been left out there: by the number of results, by the threshold or
    // by the model. One with a higher score is new.
    let last = match &wanted.classes {
        Some(classes) => classes.last().map(|class| class.score),
        None => wanted.boxes.last().map(|object| object.score),
    };
    let least = last.unwrap_or(LEAST_SCORE).min(OWN_THRESHOLD);
    let is_weak = |score: f32| score <= least || is_near(score, least, tolerance);
    let known = recall(wanted, found, tolerance, is_weak);
    match (again.share(), known.share()) {
        (Some(share), Some(other)) if other < share => known,
        _ => again,
    }
}

/// How many of the best wanted results are found, or need not be because of their score.
fn recall(found: &Instances, wanted: &Instances, tolerance: &Tolerance, is_excused: impl Fn(f32) -> bool) -> Recall {
    let (scores, again): (Vec<f32>, Vec<bool>) = match (&found.classes, &wanted.classes) {
        (Some(classes), Some(wanted)) => {
            let is_found = |wanted: &RankedClass| {
                classes.iter().any(|class| class.class == wanted.class && is_near(class.score, wanted.score, tolerance))
            };
            let certain = wanted.iter().filter(|class| class.score > Tolerance::SMALL_SCORE / 10.0);
            certain.map(|class| (class.score, is_found(class))).unzip()
        }
        _ => {
            let again = again(found, wanted, tolerance, wanted.len().min(BEST));
            (wanted.boxes.iter().map(|object| object.score).collect(), again)
        }
    };
    let found = scores.iter().zip(&again).filter(|&(&score, &is_found)| is_found || is_excused(score)).count();
    Recall { sought: again.len(), found }
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

/// Corners, keypoints and masks of two objects that have the same upright box.
fn has_same_parts(
    (found, at): (&Instances, usize),
    (wanted, index): (&Instances, usize),
    tolerance: &Tolerance,
) -> bool {
    let reach = |bbox: &BBox| (1.0 - tolerance.overlap) * ((bbox.width() + bbox.height()) / 2.0).max(1.0);
    let corners = match (found.rotated_box(at), wanted.rotated_box(index)) {
        (Some(rotated), Some(other)) => corners_apart(&rotated, &other) <= reach(&other.bbox),
        _ => true,
    };
    let points = match (&found.keypoints, &wanted.keypoints) {
        (Some(points), Some(others)) => {
            let dims = usize::from(others.model.shape.dims);
            let pairs = points.of(at).chunks_exact(dims).zip(others.of(index).chunks_exact(dims));
            let distances = pairs.clone().map(|(point, other)| (point[0] - other[0]).hypot(point[1] - other[1]));
            let visibilities = pairs.filter_map(|(point, other)| Some((point.get(2)? - other.get(2)?).abs()));
            let count = f32::from(others.model.shape.count.max(1));
            distances.sum::<f32>() / count <= reach(&wanted.boxes[index].bbox)
                && visibilities.sum::<f32>() / count <= tolerance.score
        }
        _ => true,
    };
    let masks = match (&found.masks, &wanted.masks) {
        (Some(masks), Some(others)) if index < WITH_MASKS => {
            mask_overlap(&masks.on_frame(at), &others.on_frame(index)) >= tolerance.overlap
        }
        _ => true,
    };
    corners && points && masks
}

/// How far the corners of two boxes are from each other, in the mean. Two angles may have the same upright box around them.
fn corners_apart(one: &RotatedBox, other: &RotatedBox) -> f32 {
    let (corners, others) = (one.corners(), other.corners());
    // A quarter turn makes another corner the first one.
    let from = |first: usize| {
        let pairs = corners.iter().cycle().skip(first).zip(&others);
        pairs.map(|([x, y], [other_x, other_y])| (x - other_x).hypot(y - other_y)).sum::<f32>() / 4.0
    };
    (0..4).map(from).fold(f32::INFINITY, f32::min)
}

fn mask_overlap(mask: &Mask, other: &Mask) -> f32 {
    let (rect, both) = (mask.rect(), |x, y| mask.contains(x, y) && other.contains(x, y));
    let rows = rect.top..rect.bottom;
    let common: usize = rows.map(|y| (rect.left..rect.right).filter(|&x| both(x, y)).count()).sum();
    let all = mask.area() + other.area() - common as u64;
    if all == 0 { 1.0 } else { common as f32 / all as f32 }
}

/// Each pixel is a result. But a class with one in a hundred of them or more counts alone where less than half of it is there
/// again: next to a large background, it could be lost whole. Smaller classes are mostly edges, which rounding moves.
pub fn compare_maps(map: &PixelMap, wanted: &PixelMap, tolerance: &Tolerance) -> Recall {
    let (values, others) = (map.values(), wanted.values());
    if values.len() != others.len() {
        return Recall { sought: others.len().max(FEWEST), found: 0 };
    }
    let pairs = values.iter().zip(others);
    if let (MapKind::Depth { minimum, maximum }, MapKind::Depth { minimum: lowest, maximum: highest }) =
        (map.kind(), wanted.kind())
    {
        let depth = |value: u16, low: f32, high: f32| low + f32::from(value) / 65535.0 * (high - low);
        let near = tolerance.outputs * (highest - lowest).max(f32::MIN_POSITIVE);
        let is_near = |&(&value, &other): &(&u16, &u16)| {
            (depth(value, minimum, maximum) - depth(other, lowest, highest)).abs() <= near
        };
        return Recall { sought: others.len(), found: pairs.filter(is_near).count() };
    }
    // Pixels that have a class in either map, and in both.
    let mut classes = vec![Recall::default(); usize::from(u16::MAX) + 1];
    for (&value, &other) in pairs {
        classes[usize::from(other)].sought += 1;
        if value == other {
            classes[usize::from(other)].found += 1;
        } else {
            classes[usize::from(value)].sought += 1;
        }
    }
    let all = Recall { sought: others.len(), found: classes.iter().map(|class| class.found).sum() };
    let is_lost = |class: &Recall| 100 * class.sought >= all.sought && 2 * class.found < class.sought;
    classes.into_iter().filter(is_lost).max_by_key(|class| class.sought).unwrap_or(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::keypoints::{KeypointModel, KeypointShape, Keypoints};

    /// Next to each other, all turned by this angle.
    fn objects(scores: &[f32], angle: f32) -> Instances {
        let object = |(&score, row): (&f32, u32)| {
            let bbox = BBox::from_center(60.0 * row as f32, 100.0, 40.0, 10.0);
            Candidate { bbox, score, class: 0, row, angle }
        };
        let rotated: Vec<Candidate> = scores.iter().zip(0..).map(object).collect();
        let upright = |object: &Candidate| Candidate { bbox: object.rotated().hull(), angle: 0.0, ..*object };
        Instances { boxes: rotated.iter().map(upright).collect(), rotated: Some(rotated), ..Instances::default() }
    }

    #[test]
    fn an_object_that_is_turned_is_another_one() {
        let found = |angle: f32, wanted: f32| {
            let [found, wanted] = [angle, wanted].map(|angle| objects(&[0.9; 10], angle));
            compare(&found, &wanted, &Tolerance::HALF).found
        };
        assert_eq!([found(0.5, 0.5), found(-0.5, 0.5)], [10, 0], "both have the same upright box around them");
        assert_eq!(found(-0.01, 0.01), 10, "width and height are exchanged between them");
    }

    #[test]
    fn an_object_whose_points_are_hidden_is_another_one() {
        let points = |visibility: f32| {
            let model = KeypointModel { shape: KeypointShape { count: 1, dims: 3 }, names: Vec::new() };
            let values = [5.0, 5.0, visibility].repeat(10);
            let keypoints = Some(Keypoints { model: Arc::new(model), values });
            Instances { keypoints, ..objects(&[0.9; 10], 0.0) }
        };
        let found = |visibility| compare(&points(visibility), &points(0.9), &Tolerance::HALF).found;
        assert_eq!([0.9, 0.8, 0.0].map(found), [10, 10, 0]);
    }

    #[test]
    fn an_object_that_is_new_is_wrong_unless_it_is_weak() {
        let strong = [0.9; 10];
        let compare = |found: &[f32], wanted: &[f32]| {
            let [found, wanted] = [found, wanted].map(|others| objects(&[&strong[..], others].concat(), 0.0));
            compare(&found, &wanted, &Tolerance::HALF)
        };
        assert_eq!(compare(&[0.8; 10], &[]), Recall { sought: 20, found: 10 });
        assert_eq!(compare(&[], &[0.8; 10]), Recall { sought: 20, found: 10 }, "lost ones");
        assert_eq!(compare(&[0.28; 10], &[]), Recall { sought: 10, found: 10 }, "the model left them out");
        assert_eq!(compare(&[0.005; 10], &[1e-4]), Recall { sought: 11, found: 11 }, "they have hardly a score");
        assert_eq!(compare(&[0.1; 10], &[1e-4]), Recall { sought: 20, found: 10 });
    }

    #[test]
    fn a_class_that_is_new_is_wrong() {
        let classes = |scores: &[f32]| {
            let class = |(&score, class): (&f32, u32)| RankedClass { class, score };
            Instances { classes: Some(scores.iter().zip(0..).map(class).collect()), ..Instances::default() }
        };
        let wanted = classes(&[&[0.1; 9][..], &[0.001]].concat());
        let compare = |scores: &[f32]| compare(&classes(scores), &wanted, &Tolerance::HALF);
        assert_eq!(compare(&[0.1; 9]), Recall { sought: 9, found: 9 });
        assert_eq!(compare(&[0.1; 18]), Recall { sought: 18, found: 9 });
    }

    #[test]
    fn a_score_next_to_a_map_is_a_result() {
        let map = PixelMap::of(MapKind::Classes, (10, 10), vec![0; 100], BBox::new(0.0, 0.0, 9.0, 9.0), Vec::new());
        let frame = |score: f32| {
            let classes = Some(vec![RankedClass { class: 0, score }]);
            Instances { map: map.clone(), classes, ..Instances::default() }
        };
        let found = |score| compare(&frame(score), &frame(0.75), &Tolerance::HALF).found;
        assert_eq!([0.75, 0.7, 0.5, 1.0].map(found), [100, 100, 0, 0]);
        let none = Instances { map: map.clone(), classes: Some(Vec::new()), ..Instances::default() };
        let found = |score| compare(&none, &frame(score), &Tolerance::HALF).found;
        assert_eq!([0.001, 0.5].map(found), [100, 0], "hardly a score is none");
    }

    #[test]
    fn a_class_that_a_map_has_lost_is_seen_next_to_a_large_background() {
        let map = |value: fn(usize) -> u16| {
            let (values, place) = ((0..10_000).map(value).collect(), BBox::new(0.0, 0.0, 100.0, 100.0));
            PixelMap::of(MapKind::Classes, (100, 100), values, place, Vec::new()).unwrap()
        };
        let wanted = map(|at| u16::from(at < 300));
        let found = |value: fn(usize) -> u16| compare_maps(&map(value), &wanted, &Tolerance::EIGHT);
        assert_eq!(found(|_| 0), Recall { sought: 300, found: 0 });
        assert_eq!(found(|at| u16::from(at < 800)), Recall { sought: 800, found: 300 }, "it is everywhere");
        assert_eq!(found(|at| u16::from((50..340).contains(&at))), Recall { sought: 10_000, found: 9_910 }, "its edge");
        let speck = |at: usize| if at < 9_950 { u16::from(at < 300) } else { 2 };
        assert_eq!(found(speck), Recall { sought: 10_000, found: 9_950 }, "few pixels are a class of their own");
    }
}
