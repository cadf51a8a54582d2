//! What was found on a frame.

use std::sync::Arc;

use crate::vision::Candidate;
use crate::vision::geometry::Letterbox;
use crate::vision::keypoints::KeypointModel;

/// The objects of a frame, the best score first. What every model tells of an object is in one array, as GPUs write it; what only
/// some tell is in an array of its own, as long.
#[derive(Clone, Debug, Default)]
pub struct Instances {
    pub boxes: Vec<Candidate>,
    pub keypoints: Option<Keypoints>,
}

/// The keypoints of all objects of a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Keypoints {
    pub model: Arc<KeypointModel>,
    /// `[objects][count][dims]`, x and y in pixels of the frame, inside it.
    pub values: Vec<f32>,
}

impl Keypoints {
    /// Those of an object.
    pub fn of(&self, object: usize) -> &[f32] {
        let numbers = self.model.shape.numbers();
        &self.values[object * numbers..][..numbers]
    }
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
            if let Some(Keypoints { model, values }) = keypoints {
                let numbers = model.shape.numbers();
                values.copy_within(object * numbers..(object + 1) * numbers, kept * numbers);
                for point in values[kept * numbers..][..numbers].chunks_exact_mut(usize::from(model.shape.dims)) {
                    (point[0], point[1]) = letterbox.point_to_frame((point[0], point[1]));
                }
            }
            kept += 1;
        }
        boxes.truncate(kept);
        if let Some(Keypoints { model, values }) = keypoints {
            values.truncate(kept * model.shape.numbers());
        }
    }
}
