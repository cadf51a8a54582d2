//! The names and values of results, said once for everything that writes them: bus message, JSON, metas, C.

use super::Instances;
use crate::vision::label_text;

/// Writes the fields of an object somewhere.
pub trait FieldVisitor {
    fn text(&mut self, name: &'static str, value: &str);
    fn integer(&mut self, name: &'static str, value: u32);
    fn number(&mut self, name: &'static str, value: f32);
    fn numbers(&mut self, name: &'static str, values: &[f32]);
    fn texts(&mut self, name: &'static str, values: &[String]);
}

/// All fields of an object: `label`, `class-id`, `confidence`, the box as `x`, `y`, `w` and `h` in pixels of the frame, then those
/// that its model gives beside.
pub fn visit(instances: &Instances, object: usize, labels: &[String], visitor: &mut impl FieldVisitor) {
    let candidate = &instances.boxes[object];
    let bbox = &candidate.bbox;
    visitor.text("label", &label_text(labels, candidate.class));
    visitor.integer("class-id", candidate.class);
    visitor.number("confidence", candidate.score);
    visitor.number("x", bbox.x1);
    visitor.number("y", bbox.y1);
    visitor.number("w", bbox.width());
    visitor.number("h", bbox.height());
    visit_optional(instances, object, visitor);
}

/// Only the fields that some models give.
pub fn visit_optional(instances: &Instances, object: usize, visitor: &mut impl FieldVisitor) {
    if let Some(keypoints) = &instances.keypoints {
        visitor.numbers("keypoints", keypoints.of(object));
        visitor.integer("keypoint-dims", keypoints.model.shape.dims.into());
        if !keypoints.model.names.is_empty() {
            visitor.texts("keypoint-names", &keypoints.model.names);
        }
    }
}
