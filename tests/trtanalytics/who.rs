// SPDX-License-Identifier: MPL-2.0
//! Who the object of an event is.

use super::*;

/// Somebody with a name by a gallery and an id over cameras, as trtmatch writes them; without the id where it is 0, and without a name
/// where it is empty.
fn known(seen: Seen, identity: u64, name: &str) -> gst::Buffer {
    let mut buffer = frame(&[seen]);
    let mut region = buffer.get_mut().unwrap().iter_meta_mut::<VideoRegionOfInterestMeta>().next().unwrap();
    if identity > 0 {
        region.add_param(gst::Structure::builder("identity").field("id", identity).field("identities", "site").build());
    }
    if !name.is_empty() {
        let param = gst::Structure::builder("classification").field("label", name).field("label_id", 3i32);
        region.add_param(param.field("confidence", 0.75f64).field("model", "people").build());
    }
    buffer
}

/// The kind of each event with the id over cameras and the names of its object.
fn told(events: &[gst::Structure]) -> Vec<(String, Option<u64>, Vec<String>)> {
    let name = |attribute: gst::Structure| {
        assert_eq!((attribute.get::<u32>("class-id"), attribute.get::<f64>("confidence")), (Ok(3), Ok(0.75)));
        attribute.get::<String>("label").unwrap()
    };
    let told = |event: &gst::Structure| {
        let names = if event.has_field("attributes") { structures(event, "attributes") } else { Vec::new() };
        (event.get("event").unwrap(), event.get("identity").ok(), names.into_iter().map(name).collect())
    };
    events.iter().map(told).collect()
}

#[test]
fn events_say_who_their_object_is() {
    let mut clip = Clip::new("who", BOTH, "lost-after=300000000");
    let seen = (7, [200.0, 200.0]);
    // It is known some frames after it was seen first, and before it has entered.
    clip.hold(3, &[seen]);
    let frames: Vec<gst::Buffer> = (0..7).map(|_| clip.push(known(seen, 5, "Ada"))).collect();
    let posted = clip.events();
    let attached: Vec<gst::Structure> = frames.iter().flat_map(|frame| attached(frame)).collect();
    let ada = || vec!["Ada".to_string()];
    for events in [&posted, &attached] {
        assert_eq!(told(events), [("entered".to_string(), Some(5), ada())]);
    }
    // What was corrected since, or is no longer known.
    (0..10).for_each(|_| drop(clip.push(known(seen, 6, ""))));
    assert_eq!(told(&clip.events()), [("dwelled".to_string(), Some(6), vec![])]);
    // It leaves when it was out of sight for long.
    clip.push(known(seen, 0, "Ada"));
    clip.hold(30, &[]);
    assert_eq!(told(&clip.events()), [("left".to_string(), None, ada())]);
    // The next one with this id is somebody else.
    clip.hold(10, &[seen]);
    assert_eq!(told(&clip.events()), [("entered".to_string(), None, vec![])]);
    assert_eq!(clip.line.said(), [""; 0]);
}

/// A line that was crossed counts there, too.
#[test]
fn the_end_of_the_stream_knows_who_it_was() {
    let mut clip = Clip::new("who-eos", BOTH, "");
    (0..3).for_each(|_| drop(clip.push(known((7, [400.0, 400.0]), 5, "Ada"))));
    (0..3).for_each(|_| drop(clip.push(known((7, [300.0, 400.0]), 5, "Ada"))));
    clip.line.push_event(gst::event::Eos::new());
    assert_eq!(told(&clip.events()), [("crossed".to_string(), Some(5), vec!["Ada".to_string()])]);
}
