// SPDX-License-Identifier: MPL-2.0
//! The names and values of results, defined once for all that writes them: bus message, JSON, metas, C.

use serde_json::{Map, Value};

use super::{ClipSpan, Instances};
use crate::image::label_text;
use crate::image::map::{MapKind, MapRegion, PixelMap};

/// Writes the fields of an object somewhere.
pub trait FieldVisitor {
    fn text(&mut self, name: &'static str, value: &str);
    fn integer(&mut self, name: &'static str, value: u32);
    /// In nanoseconds.
    fn time(&mut self, name: &'static str, value: u64);
    fn number(&mut self, name: &'static str, value: f32);
    fn numbers(&mut self, name: &'static str, values: &[f32]);
    fn texts(&mut self, name: &'static str, values: &[String]);
}

/// All fields of an object: `label`, `class-id`, `confidence`, the upright box as `x`, `y`, `w` and `h` in pixels of
/// the frame, then those that only some models give.
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
    // Without a region there is no id.
    let parent = instances.parents.as_ref().and_then(|parents| u32::try_from(parents[object]).ok());
    parent.into_iter().for_each(|parent| visitor.integer("parent", parent));
    visit_rotation(instances, object, visitor);
    visit_keypoints(instances, object, visitor);
    visit_mask(instances, object, visitor);
}

/// All fields of a class of the whole frame: `label`, `class-id` and `confidence`; of a clip also `start-stream-time`, that of its
/// first frame, and `end-stream-time`, the end of its last one.
pub fn visit_class(instances: &Instances, rank: usize, labels: &[String], visitor: &mut impl FieldVisitor) {
    let found = &instances.frame_classes()[rank];
    visitor.text("label", &label_text(labels, found.class));
    visitor.integer("class-id", found.class);
    visitor.number("confidence", found.score);
    if let Some(ClipSpan { start, end }) = instances.span {
        visitor.time("start-stream-time", start);
        visitor.time("end-stream-time", end);
    }
}

/// Of models with rotated boxes: `angle` in radians, clockwise, and `corners`, x and y of each in pixels of the frame,
/// around the box.
pub fn visit_rotation(instances: &Instances, object: usize, visitor: &mut impl FieldVisitor) {
    if let Some(rotated) = instances.rotated_box(object) {
        visitor.number("angle", rotated.angle);
        visitor.numbers("corners", rotated.corners().as_flattened());
    }
}

/// Of models that find keypoints: `keypoints`, `keypoint-dims` and, where they have names, `keypoint-names`.
pub fn visit_keypoints(instances: &Instances, object: usize, visitor: &mut impl FieldVisitor) {
    if let Some(keypoints) = &instances.keypoints {
        visitor.numbers("keypoints", keypoints.of(object));
        visitor.integer("keypoint-dims", keypoints.model.shape.dims.into());
        if !keypoints.model.names.is_empty() {
            visitor.texts("keypoint-names", &keypoints.model.names);
        }
    }
}

/// Of models that give masks: `mask-x`, `mask-y`, `mask-width` and `mask-height`, a rectangle in pixels of the frame
/// outside which no pixel is the object's, and `mask-counts`, the run lengths of its pixels column by column, as COCO
/// compresses them to text.
pub fn visit_mask(instances: &Instances, object: usize, visitor: &mut impl FieldVisitor) {
    if let Some(mask) = instances.mask(object) {
        let rect = mask.rect();
        visitor.integer("mask-x", rect.left);
        visitor.integer("mask-y", rect.top);
        visitor.integer("mask-width", rect.width());
        visitor.integer("mask-height", rect.height());
        visitor.text("mask-counts", &mask.counts());
    }
}

/// All fields of the map of the frame but its regions and pixels: `kind` (`classes`, `depth` or `objects`), `map-width` and
/// `map-height` in pixels of the map, the box on the frame that it fills as `x`, `y`, `w` and `h`, and of depths
/// `minimum` and `maximum`.
pub fn visit_map(map: &PixelMap, visitor: &mut impl FieldVisitor) {
    visitor.text(
        "kind",
        match map.kind() {
            MapKind::Classes => "classes",
            MapKind::Depth { .. } => "depth",
            MapKind::Objects => "objects",
        },
    );
    visitor.integer("map-width", map.width());
    visitor.integer("map-height", map.height());
    let place = map.place();
    visitor.number("x", place.x1);
    visitor.number("y", place.y1);
    visitor.number("w", place.width());
    visitor.number("h", place.height());
    if let MapKind::Depth { minimum, maximum } = map.kind() {
        visitor.number("minimum", minimum);
        visitor.number("maximum", maximum);
    }
}

/// All fields of a region of a map: `id`, the value of its pixels, `label`, `class-id`, and `share`, that of the map's
/// pixels.
pub fn visit_region(map: &PixelMap, region: &MapRegion, labels: &[String], visitor: &mut impl FieldVisitor) {
    visitor.integer("id", region.id.into());
    visitor.text("label", &label_text(labels, region.class));
    visitor.integer("class-id", region.class);
    visitor.number("share", map.share(region));
}

/// The fields of the map of the frame as JSON, with `regions` where it is not of depths.
pub fn map_json(map: &PixelMap, labels: &[String]) -> Value {
    let mut fields = Map::new();
    visit_map(map, &mut fields);
    if !matches!(map.kind(), MapKind::Depth { .. }) {
        let region = |region: &MapRegion| {
            let mut fields = Map::new();
            visit_region(map, region, labels, &mut fields);
            Value::Object(fields)
        };
        fields.insert("regions".into(), map.regions().iter().map(region).collect());
    }
    Value::Object(fields)
}

/// The fields of an object as JSON.
pub fn json(instances: &Instances, object: usize, labels: &[String]) -> Value {
    let mut fields = Map::new();
    visit(instances, object, labels, &mut fields);
    Value::Object(fields)
}

/// The same of a class of the whole frame.
pub fn class_json(instances: &Instances, rank: usize, labels: &[String]) -> Value {
    let mut fields = Map::new();
    visit_class(instances, rank, labels, &mut fields);
    Value::Object(fields)
}

impl FieldVisitor for Map<String, Value> {
    fn text(&mut self, name: &'static str, value: &str) {
        self.insert(name.into(), value.into());
    }

    fn integer(&mut self, name: &'static str, value: u32) {
        self.insert(name.into(), value.into());
    }

    fn time(&mut self, name: &'static str, value: u64) {
        self.insert(name.into(), value.into());
    }

    fn number(&mut self, name: &'static str, value: f32) {
        self.insert(name.into(), value.into());
    }

    fn numbers(&mut self, name: &'static str, values: &[f32]) {
        self.insert(name.into(), values.into());
    }

    fn texts(&mut self, name: &'static str, values: &[String]) {
        self.insert(name.into(), values.into());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::image::Candidate;
    use crate::image::geometry::BBox;
    use crate::image::keypoints::{KeypointModel, KeypointShape, Keypoints};
    use crate::postprocess::RankedClass;

    #[test]
    fn json_has_what_the_model_gives() {
        let bbox = BBox::new(1.0, 2.0, 4.0, 6.5);
        let boxes = vec![Candidate { bbox, score: 0.5, class: 1, row: 7, angle: 0.0 }];
        let mut instances = Instances { boxes, ..Instances::default() };
        let bare = r##"{"label":"#1","class-id":1,"confidence":0.5,"x":1.0,"y":2.0,"w":3.0,"h":4.5}"##;
        assert_eq!(json(&instances, 0, &["a".into()]).to_string(), bare);
        let shape = KeypointShape { count: 2, dims: 3 };
        let mut model = KeypointModel { shape, names: Vec::new() };
        let values = vec![1.0, 2.0, 0.5, 3.0, 4.0, 1.0];
        instances.keypoints = Some(Keypoints { model: Arc::new(model.clone()), values: values.clone() });
        let points = r#","keypoints":[1.0,2.0,0.5,3.0,4.0,1.0],"keypoint-dims":3}"#;
        assert_eq!(json(&instances, 0, &[]).to_string(), format!("{}{points}", &bare[..bare.len() - 1]));
        model.names = vec!["nose".into(), "tail".into()];
        instances.keypoints = Some(Keypoints { model: Arc::new(model), values });
        assert_eq!(json(&instances, 0, &[])["keypoint-names"], serde_json::json!(["nose", "tail"]));
    }

    #[test]
    fn classes_of_clips_have_a_time_span() {
        let found = RankedClass { class: 2, score: 0.5 };
        let mut instances = Instances { classes: Some(vec![found]), ..Instances::default() };
        let bare = r##"{"label":"#2","class-id":2,"confidence":0.5"##;
        assert_eq!(class_json(&instances, 0, &[]).to_string(), format!("{bare}}}"));
        instances.span = Some(ClipSpan { start: 40_000_000, end: 680_000_000 });
        let span = r#","start-stream-time":40000000,"end-stream-time":680000000}"#;
        assert_eq!(class_json(&instances, 0, &[]).to_string(), format!("{bare}{span}"));
        instances.clear();
        assert_eq!(instances.span, None);
    }

    #[test]
    fn json_has_angles_and_corners() {
        let upright = Candidate { bbox: BBox::new(2.0, 4.0, 10.0, 12.0), score: 0.5, class: 0, row: 0, angle: 0.0 };
        let mut instances = Instances { boxes: vec![upright], rotated: Some(vec![upright]), ..Instances::default() };
        let fields = json(&instances, 0, &[]);
        assert_eq!(fields["angle"], 0.0);
        assert_eq!(fields["corners"], serde_json::json!([10.0, 12.0, 10.0, 4.0, 2.0, 4.0, 2.0, 12.0]));
        instances.rotated = None;
        assert!(json(&instances, 0, &[]).get("angle").is_none());
    }
}
