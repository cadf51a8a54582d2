// SPDX-License-Identifier: MPL-2.0
//! What was found on a frame.

use crate::image::Candidate;
use crate::image::geometry::Letterbox;
use crate::image::keypoints::Keypoints;

/// The objects of a frame, the best score first. What every model tells of an object is in one array, as GPUs write it; what only
/// some tell is in an array of its own, as long.
#[derive(Clone, Debug, Default)]
pub struct Instances {
    pub boxes: Vec<Candidate>,
    pub keypoints: Option<Keypoints>,
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
        if let Some(keypoints) = &mut self.keypoints {
            keypoints.values.clear();
        }
    }

    /// From pixels of the model's input to pixels of the frame. What lies in the padding alone is no object of it.
    pub fn map_to_frame(&mut self, letterbox: &Letterbox) {
        let Instances { boxes, keypoints } = self;
        let mut kept = 0;
        for object in 0..boxes.len() {
            let bbox = letterbox.to_frame(&boxes[object].bbox);
            if !bbox.is_valid() {
                continue;
            }
            boxes[kept] = Candidate { bbox, ..boxes[object] };
            if let Some(keypoints) = keypoints {
                keypoints.map_to_frame(object, kept, letterbox);
            }
            kept += 1;
        }
        boxes.truncate(kept);
        if let Some(keypoints) = keypoints {
            keypoints.values.truncate(kept * keypoints.model.shape.numbers());
        }
    }
}
