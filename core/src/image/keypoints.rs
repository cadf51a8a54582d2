// SPDX-License-Identifier: MPL-2.0
//! Keypoints of objects, such as the joints of a body.

use std::borrow::Cow;
use std::sync::Arc;

use super::geometry::Letterbox;

/// How many keypoints an object has, and how many numbers each of them: x and y, or those and its visibility.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeypointShape {
    pub count: u16,
    pub dims: u8,
}

impl KeypointShape {
    /// Numbers of an object.
    #[doc(hidden)]
    pub fn numbers(self) -> usize {
        usize::from(self.count) * usize::from(self.dims)
    }

    /// The lines of the skeleton, as pairs of points; none where it is not known which there are.
    #[doc(hidden)]
    pub fn edges(self) -> &'static [[u16; 2]] {
        if self.count == 17 { &COCO } else { &[] }
    }
}

/// The keypoints that a model finds.
#[derive(Clone, Debug, PartialEq)]
pub struct KeypointModel {
    pub shape: KeypointShape,
    /// Empty where the model does not name them.
    pub names: Vec<String>,
}

/// The pairs of points that lines join in a body of COCO's 17 points.
static COCO: [[u16; 2]; 19] = [
    [15, 13],
    [13, 11],
    [16, 14],
    [14, 12],
    [11, 12],
    [5, 11],
    [6, 12],
    [5, 6],
    [5, 7],
    [6, 8],
    [7, 9],
    [8, 10],
    [1, 2],
    [0, 1],
    [0, 2],
    [1, 3],
    [2, 4],
    [3, 5],
    [4, 6],
];

/// The keypoints of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectKeypoints<'a> {
    pub shape: KeypointShape,
    /// `[count][dims]`, as those of [`Keypoints`].
    pub values: Cow<'a, [f32]>,
}

/// The keypoints of all objects of a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Keypoints {
    pub model: Arc<KeypointModel>,
    /// `[objects][count][dims]`, x and y in pixels, then visibility in 0..1 where a point has three numbers. A point
    /// that is not known is all zeros.
    pub values: Vec<f32>,
}

impl Keypoints {
    /// Those of an object.
    pub fn of(&self, object: usize) -> &[f32] {
        let numbers = self.model.shape.numbers();
        &self.values[object * numbers..][..numbers]
    }

    /// Those of an object, with their shape.
    pub fn object(&self, object: usize) -> ObjectKeypoints<'_> {
        ObjectKeypoints { shape: self.model.shape, values: self.of(object).into() }
    }

    /// From pixels of the model's input to pixels of the frame, inside it; those of object `from` become those of
    /// object `to`.
    pub(crate) fn map_to_frame(&mut self, from: usize, to: usize, letterbox: &Letterbox) {
        let KeypointShape { dims, .. } = self.model.shape;
        let numbers = self.model.shape.numbers();
        self.values.copy_within(from * numbers..(from + 1) * numbers, to * numbers);
        for point in self.values[to * numbers..][..numbers].chunks_exact_mut(dims.into()) {
            if point.iter().all(|number| number.is_finite()) {
                (point[0], point[1]) = letterbox.point_to_frame((point[0], point[1]));
            } else {
                point.fill(0.0);
            }
        }
    }
}
