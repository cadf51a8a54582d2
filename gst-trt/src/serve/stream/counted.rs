// SPDX-License-Identifier: MPL-2.0
//! What trtanalytics has counted.

use std::collections::BTreeMap;

/// The structures in a list of a structure.
pub fn structures(structure: &gst::StructureRef, list: &str) -> Vec<gst::Structure> {
    let list = structure.get::<gst::Array>(list).unwrap_or_default();
    list.iter().filter_map(|value| value.get().ok()).collect()
}

/// The objects that are in a zone now, by their label: several classes may have one, such as those of two models.
pub fn objects_in(zone: &gst::StructureRef) -> BTreeMap<String, u32> {
    let mut objects = BTreeMap::new();
    for class in structures(zone, "classes") {
        if let (Ok(label), Ok(current)) = (class.get::<String>("label"), class.get::<u32>("current")) {
            *objects.entry(label).or_insert(0) += current;
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain;

    #[test]
    fn objects_of_classes_with_one_label_are_counted_together() {
        chain::start_gstreamer().unwrap();
        let class = |label: &str, id: u32, current: u32| {
            gst::Structure::builder("class")
                .field("current", current)
                .field("label", label)
                .field("class-id", id)
                .build()
        };
        let classes = gst::Array::new([class("person", 0, 2), class("car", 2, 1), class("person", 7, 0)]);
        let zone = gst::Structure::builder("zone").field("classes", classes).build();
        assert_eq!(objects_in(&zone), BTreeMap::from([("person".into(), 2), ("car".into(), 1)]));
    }
}
