// SPDX-License-Identifier: MPL-2.0
//! The results of a frame.

use super::{FoundText, RankedClass};
use crate::image::Candidate;
use crate::image::geometry::Letterbox;
use crate::image::keypoints::Keypoints;
use crate::image::map::PixelMap;
use crate::image::masks::{Mask, Masks};
use crate::image::rotated::RotatedBox;

/// The objects of a frame, the best score first. What every model gives is in one array, as GPUs write it. What only
/// some models give is in an array of its own, of the same length.
#[derive(Clone, Debug, Default)]
pub struct Instances {
    /// Upright boxes, inside the frame. For rotated boxes, the smallest upright ones around them.
    pub boxes: Vec<Candidate>,
    /// Of models with rotated boxes: the rotated boxes of the same objects, also where they reach beyond the frame.
    pub rotated: Option<Vec<Candidate>>,
    pub keypoints: Option<Keypoints>,
    pub masks: Option<Masks>,
    /// Of models that look at objects of another model: the ids of the regions of those.
    pub parents: Option<Vec<i32>>,
    /// Of classifiers: the best classes of the whole frame, the most probable first. They find no boxes.
    pub classes: Option<Vec<RankedClass>>,
    /// Of models that give vectors: that of the whole frame, of the length 1. They find no boxes.
    pub vector: Option<Vec<f32>>,
    /// Of models that read text: that of the whole frame. They find no boxes.
    pub text: Option<FoundText>,
    /// A value for each pixel: of models for semantic segmentation or depth, which find no boxes, and of those with
    /// masks where one map of all objects is wanted.
    pub map: Option<PixelMap>,
    /// Of models that see clips, where the time of frames is known.
    pub span: Option<ClipSpan>,
}

/// From the first frame of a clip to the end of its last one, in nanoseconds of stream time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClipSpan {
    pub start: u64,
    pub end: u64,
}

impl Instances {
    pub fn len(&self) -> usize {
        self.boxes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.boxes.is_empty()
    }

    pub fn clear(&mut self) {
        self.boxes.clear();
        if let Some(rotated) = &mut self.rotated {
            rotated.clear();
        }
        if let Some(keypoints) = &mut self.keypoints {
            keypoints.values.clear();
        }
        if let Some(masks) = &mut self.masks {
            masks.clear();
        }
        if let Some(classes) = &mut self.classes {
            classes.clear();
        }
        if let Some(vector) = &mut self.vector {
            vector.clear();
        }
        if let Some(text) = &mut self.text {
            *text = FoundText::default();
        }
        if let Some(map) = &mut self.map {
            map.clear();
        }
        (self.parents, self.span) = (None, None);
    }

    /// Appends the objects of another region of the frame, found by the same model.
    pub(super) fn append(&mut self, other: &Instances) {
        self.boxes.extend_from_slice(&other.boxes);
        if let (Some(rotated), Some(others)) = (&mut self.rotated, &other.rotated) {
            rotated.extend_from_slice(others);
        }
        if let (Some(keypoints), Some(others)) = (&mut self.keypoints, &other.keypoints) {
            keypoints.values.extend_from_slice(&others.values);
        }
        if let (Some(masks), Some(others)) = (&mut self.masks, &other.masks) {
            masks.append(others);
        }
    }

    /// Keeps these objects, in this order.
    pub(super) fn select(&mut self, objects: &[u32]) {
        let of = |all: &[Candidate]| objects.iter().map(|&object| all[object as usize]).collect();
        self.boxes = of(&self.boxes);
        if let Some(rotated) = &mut self.rotated {
            *rotated = of(rotated);
        }
        if let Some(keypoints) = &mut self.keypoints {
            keypoints.values = objects.iter().flat_map(|&object| keypoints.of(object as usize)).copied().collect();
        }
        if let Some(masks) = &mut self.masks {
            masks.select(objects);
        }
    }

    /// Classes of the whole frame; none where the model finds objects.
    pub fn frame_classes(&self) -> &[RankedClass] {
        self.classes.as_deref().unwrap_or_default()
    }

    /// The vector of the whole frame, if there is one.
    pub fn frame_vector(&self) -> Option<&[f32]> {
        // Of none the length is 0. By `filter` the compiler looks at the length of a vector that is not there first, which gives the
        // same, but is not initialized, as valgrind says.
        let vector = self.vector.as_deref().unwrap_or_default();
        (!vector.is_empty()).then_some(vector)
    }

    /// The text of the whole frame, if something was read.
    pub fn frame_text(&self) -> Option<&FoundText> {
        self.text.as_ref().filter(|found| !found.text.is_empty())
    }

    /// The map of the frame, if there is one and it has a pixel.
    pub fn frame_map(&self) -> Option<&PixelMap> {
        self.map.as_ref().filter(|map| map.width() > 0)
    }

    /// The objects on the frame with the boxes that are drawn: rotated ones where there are such.
    pub fn drawn(&self) -> &[Candidate] {
        self.rotated.as_ref().unwrap_or(&self.boxes)
    }

    /// The rotated box of an object, if the model has such.
    pub fn rotated_box(&self, object: usize) -> Option<RotatedBox> {
        Some(self.rotated.as_ref()?[object].rotated())
    }

    /// The mask of an object on the frame, if masks are given.
    pub fn mask(&self, object: usize) -> Option<Mask> {
        self.has_masks().then(|| self.masks.as_ref().map(|masks| masks.on_frame(object)))?
    }

    /// Whether the masks are part of the results, not only drawn.
    pub fn has_masks(&self) -> bool {
        self.masks.as_ref().is_some_and(|masks| !masks.is_hidden)
    }

    /// From pixels of the model's input to pixels of the frame. An object with an empty mask is left
    /// out, as in Ultralytics; so is one that lies in the padding alone.
    pub fn map_to_frame(&mut self, letterbox: &Letterbox) {
        let Instances { boxes, rotated, keypoints, masks, .. } = self;
        if let Some(rotated) = rotated {
            rotated.clear();
        }
        let mut kept = 0;
        for object in 0..boxes.len() {
            let candidate = boxes[object];
            let on_frame = rotated.as_ref().map(|_| candidate.rotated().to_frame(letterbox));
            let bbox = match &on_frame {
                Some(on_frame) => on_frame.hull().clip(&letterbox.place),
                None => letterbox.to_frame(&candidate.bbox),
            };
            if !bbox.is_valid() || masks.as_ref().is_some_and(|masks| masks.is_empty(object)) {
                continue;
            }
            if let (Some(rotated), Some(RotatedBox { bbox, angle })) = (rotated.as_mut(), on_frame) {
                rotated.push(Candidate { bbox, angle, ..candidate });
            }
            boxes[kept] = Candidate { bbox, angle: 0.0, ..candidate };
            if let Some(keypoints) = keypoints {
                keypoints.map_to_frame(object, kept, letterbox);
            }
            if let Some(masks) = masks {
                masks.keep(object, kept);
            }
            kept += 1;
        }
        boxes.truncate(kept);
        if let Some(keypoints) = keypoints {
            keypoints.values.truncate(kept * keypoints.model.shape.numbers());
        }
        if let Some(masks) = masks {
            masks.map_to_frame(kept, letterbox);
        }
    }
}
