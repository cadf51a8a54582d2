// SPDX-License-Identifier: MPL-2.0
//! Numbers beyond the range of a property are an error where the pipeline starts, and a warning while it plays. GObject alone
//! would go on with the former value.

use gst::glib;
use gst::prelude::*;

use crate::common::boxes::{Line, model};
use crate::common::elements::{factories, properties};
use crate::common::{init, launch, scratch};

/// Values next to the range of a property, as a launch line has them.
fn beyond(property: &glib::ParamSpec) -> Vec<String> {
    let mut values = Vec::new();
    if let Some(spec) = property.downcast_ref::<glib::ParamSpecInt>() {
        values.extend(spec.minimum().checked_sub(1).map(|below| below.to_string()));
        values.extend(spec.maximum().checked_add(1).map(|above| above.to_string()));
    } else if let Some(spec) = property.downcast_ref::<glib::ParamSpecUInt>() {
        values.extend(spec.minimum().checked_sub(1).map(|below| below.to_string()));
        values.extend(spec.maximum().checked_add(1).map(|above| above.to_string()));
    } else if let Some(spec) = property.downcast_ref::<glib::ParamSpecFloat>() {
        values
            .extend(Some(spec.minimum() - 0.5).filter(|below| *below < spec.minimum()).map(|below| below.to_string()));
        values
            .extend(Some(spec.maximum() + 0.5).filter(|above| *above > spec.maximum()).map(|above| above.to_string()));
        values.push("nan".into());
    }
    values
}

/// The text of the next error on a bus.
fn error(bus: &gst::Bus) -> Option<String> {
    let message = bus.pop_filtered(&[gst::MessageType::Error])?;
    let gst::MessageView::Error(error) = message.view() else { unreachable!("filtered") };
    Some(error.error().message().to_string())
}

#[test]
fn no_element_starts_with_a_number_beyond_a_range() {
    let mut texts = Vec::new();
    for factory in factories() {
        for property in
            properties(&factory).iter().filter(|property| property.flags().contains(glib::ParamFlags::WRITABLE))
        {
            let name = property.name();
            for value in beyond(property) {
                let element = factory.create().build().unwrap();
                let bus = gst::Bus::new();
                element.set_bus(Some(&bus));
                let before = format!("{:?}", element.property_value(name));
                element.set_property_from_str(name, &value);
                assert_eq!(format!("{:?}", element.property_value(name)), before, "{name}={value}");
                assert!(element.set_state(gst::State::Paused).is_err(), "{name}={value}");
                let said = error(&bus).unwrap_or_else(|| panic!("{name}={value}"));
                assert!(said.starts_with(&format!("{name} cannot be ")), "{said}");
                assert!(said.contains(&format!(". Set {name} to a number from ")), "{said}");
                assert_eq!(error(&bus), None, "{name}={value}");
                element.set_state(gst::State::Null).unwrap();
                texts.push(said);
            }
        }
    }
    assert!(texts.len() > 60, "{}", texts.len());
    assert!(texts.contains(&"score-threshold cannot be 1.5. Set score-threshold to a number from 0 to 1.".to_string()));
}

#[test]
fn a_launch_line_ends_with_the_error() {
    let file = model(&scratch("ranges-line"), &[[8.0, 8.0, 24.0, 24.0, 0.9, 0.0]]);
    let line = |nms: &str| {
        launch(&format!(
            "videotestsrc num-buffers=1 ! video/x-raw,width=64,height=64 ! trtpreprocess ! trtinfer model-file={file} ! \
             trtnms {nms} ! fakesink"
        ))
    };
    line("score-threshold=1.5")
        .expect_error("ResourceError::Settings", &["score-threshold cannot be 1.5", "from 0 to 1"]);
    line("max-detections=0")
        .expect_error("ResourceError::Settings", &["max-detections cannot be 0", "from 1 to 65536"]);
    line("max-detections=-1").expect_error("ResourceError::Settings", &["max-detections cannot be 4294967295"]);
    line("score-threshold=1.5 score-threshold=0.5").expect_success();
}

#[test]
fn a_number_beyond_the_range_changes_nothing_while_playing() {
    let file = model(&scratch("ranges-playing"), &[[8.0, 8.0, 24.0, 24.0, 0.9, 0.0]]);
    init();
    let mut line = Line::new(&file, "");
    assert_eq!(line.labels(), ["a"]);
    line.nms().set_property("score-threshold", 1.5f32);
    let said = line.said();
    assert!(said.len() == 1 && said[0].starts_with("score-threshold cannot be 1.5."), "{said:?}");
    assert!(said[0].ends_with("It stays as it was."), "{said:?}");
    assert_eq!(line.nms().property::<f32>("score-threshold"), 0.25);
    assert_eq!(line.labels(), ["a"]);
    line.nms().set_property("score-threshold", 1.0f32);
    assert_eq!(line.labels(), [""; 0]);
}
