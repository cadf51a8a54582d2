//! Keypoints of objects, such as the joints of a body.

/// How many keypoints an object has, and how many numbers each of them: x and y, or those and its visibility.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeypointShape {
    pub count: u16,
    pub dims: u8,
}

impl KeypointShape {
    /// Numbers of an object.
    pub fn numbers(self) -> usize {
        usize::from(self.count) * usize::from(self.dims)
    }
}

/// The keypoints that a model finds.
#[derive(Clone, Debug, PartialEq)]
pub struct KeypointModel {
    pub shape: KeypointShape,
    /// Empty where the model does not name them.
    pub names: Vec<String>,
}
