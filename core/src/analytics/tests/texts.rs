// SPDX-License-Identifier: MPL-2.0
//! Objects that count only if what is written on them matches.

use super::*;

impl Scene {
    /// An object on which these texts are read, in so many frames.
    fn read(&mut self, frames: u64, [x, y]: [f32; 2], attributes: &[Attribute]) {
        for _ in 0..frames {
            let bbox = BBox::new(x - 5.0, y - 20.0, x + 5.0, y);
            let input = AnalyticsInput { id: 1, bbox, label: "plate", class: Some(0), confidence: None, attributes };
            let events = self.analytics.update(&self.options, [input].into_iter(), self.frames * FRAME);
            self.events.extend(events.iter().map(|event| (self.frames, *event)));
            self.frames += 1;
        }
    }
}

/// The zone alone.
fn yard() -> Scene {
    Scene::new(&ROOM.replace("\"id\"", r#""text-matches": "^(AB ?12|CD34)$", "id""#))
}

/// The tripwire alone.
fn gate(more: &str) -> Scene {
    Scene::new(&DOOR.replace("\"id\"", &format!(r#"{more} "text-matches": "^AB", "id""#)))
}

const LEFT: [f32; 2] = [80.0, 50.0];
const RIGHT: [f32; 2] = [120.0, 50.0];

#[test]
fn only_objects_whose_text_matches_are_in_a_zone() {
    let class = Attribute { is_text: false, ..plate("AB12") };
    let long = format!("{}AB12", "x".repeat(text::MAX_TEXT));
    for (attributes, expected) in [
        (&[][..], 0),
        (&[plate("AB12")], 1),
        (&[plate("AB 12")], 1),
        (&[plate("XAB12")], 0),
        (&[plate("AB123")], 0),
        (&[plate("")], 0),
        (&[plate("XY"), plate("CD34")], 1),
        (&[class], 0),
        (&[plate(&long)], 0),
    ] {
        let mut scene = yard();
        scene.read(10, RIGHT, attributes);
        assert_eq!(scene.analytics.zones[0].total().current, expected, "{attributes:?}");
        assert_eq!(scene.names().len(), expected as usize, "{attributes:?}");
    }
    // A part of the text is enough without ^ and $, in any script.
    for (pattern, text, expected) in [
        ("B1", "AB12", 1),
        ("b1", "AB12", 0),
        ("(?i)b1", "AB12", 1),
        ("^[京沪][A-Z]", "沪A 12345", 1),
        ("^京", "沪A", 0),
    ] {
        let mut scene = Scene::new(&ROOM.replace("\"id\"", &format!(r#""text-matches": "{pattern}", "id""#)));
        scene.read(10, RIGHT, &[plate(text)]);
        assert_eq!(scene.analytics.zones[0].total().current, expected, "{pattern} {text}");
    }
}

#[test]
fn an_object_enters_once_its_text_is_known() {
    let mut scene = yard();
    scene.read(30, RIGHT, &[]);
    scene.read(5, RIGHT, &[plate("A812")]);
    assert!(scene.names().is_empty());
    scene.read(10, RIGHT, &[plate("AB12")]);
    let (frame, entered) = scene.events[0];
    assert_eq!((frame, entered.happened), (42, 35 * FRAME), "after 0.2 s");
    // It is not read in each frame.
    scene.read(60, RIGHT, &[]);
    assert_eq!(scene.names(), ["entered"]);
    // With another text it is another object.
    scene.read(30, RIGHT, &[plate("A812")]);
    assert_eq!(scene.names(), ["entered", "left"]);
    assert_eq!(scene.events[1].1.dwell, Some(69 * FRAME));
    let total = scene.analytics.zones[0].total();
    assert_eq!((total.current, total.entered, total.left), (0, 1, 1));
}

/// The plate of a car is often read only behind the line.
#[test]
fn a_crossing_waits_for_its_text() {
    let mut scene = gate("");
    scene.read(20, LEFT, &[]);
    scene.read(60, RIGHT, &[]);
    scene.read(10, RIGHT, &[plate("XY99")]);
    assert_eq!(scene.names(), [""; 0]);
    scene.read(10, RIGHT, &[plate("AB12")]);
    assert_eq!(scene.names(), ["Forward"]);
    let (frame, event) = scene.events[0];
    assert_eq!((frame, event.happened, event.count), (90, 20 * FRAME, 1), "it tells when it crossed");
    scene.read(30, LEFT, &[]);
    assert_eq!(scene.names(), ["Forward", "Backward"], "its text is known");
}

#[test]
fn a_crossing_without_its_text_is_none() {
    for attributes in [&[][..], &[plate("XY99")]] {
        let mut scene = gate("");
        scene.read(20, LEFT, attributes);
        scene.read(40, RIGHT, attributes);
        assert!(scene.analytics.finish().is_empty());
        let mut scene = gate("");
        scene.read(20, LEFT, attributes);
        scene.read(40, RIGHT, attributes);
        scene.nothing(60);
        // The same id again is another object, and so is its text.
        scene.read(20, RIGHT, &[]);
        scene.read(20, RIGHT, &[plate("AB12")]);
        assert_eq!(scene.names(), [""; 0], "{attributes:?}");
        assert_eq!(scene.analytics.tripwires[0].total(), tally::CrossingCount::default());
    }
    let mut scene = gate("");
    scene.read(20, LEFT, &[plate("AB12")]);
    scene.nothing(60);
    scene.read(20, LEFT, &[]);
    scene.read(40, RIGHT, &[]);
    assert_eq!(scene.names(), [""; 0], "a text is not that of another object with the same id");
}

/// As of a line that asks for no text.
#[test]
fn each_crossing_waits_for_its_text() {
    let mut scene = gate("");
    scene.read(20, LEFT, &[]);
    scene.read(20, RIGHT, &[]);
    scene.read(20, LEFT, &[plate("XY99")]);
    scene.read(20, RIGHT, &[]);
    assert_eq!(scene.names(), [""; 0]);
    scene.read(1, RIGHT, &[plate("AB12")]);
    assert_eq!(scene.names(), ["Forward", "Backward", "Forward"]);
    let told: Vec<_> = scene.events.iter().map(|(_, event)| (event.happened / FRAME, event.count)).collect();
    assert_eq!(told, [(20, 1), (40, 1), (60, 2)]);
    // Round the end of the line, and through it again.
    let mut scene = gate("");
    for _ in 0..3 {
        scene.read(20, LEFT, &[]);
        scene.read(20, RIGHT, &[]);
        scene.read(1, [120.0, 90.0], &[]);
        scene.read(1, [80.0, 90.0], &[]);
    }
    scene.read(1, LEFT, &[plate("AB12")]);
    assert_eq!(scene.names(), ["Forward"; 3]);
    // One that is not certain when the text comes still is undone.
    let mut scene = gate("");
    scene.read(20, LEFT, &[]);
    scene.read(20, RIGHT, &[]);
    scene.read(1, LEFT, &[plate("AB12")]);
    scene.read(20, RIGHT, &[]);
    assert_eq!(scene.names(), ["Forward"]);
    assert!(scene.analytics.finish().is_empty());
}

#[test]
fn of_many_crossings_the_latest_wait() {
    let mut scene = gate("\"hysteresis\": 0,");
    let turns = rules::MAX_WAITING as u64 + 5;
    (0..=turns).for_each(|turn| scene.read(2, if turn % 2 == 0 { LEFT } else { RIGHT }, &[]));
    scene.read(1, if turns.is_multiple_of(2) { LEFT } else { RIGHT }, &[plate("AB12")]);
    assert_eq!(scene.names().len(), rules::MAX_WAITING);
    let happened = scene.events.iter().map(|(_, event)| event.happened / FRAME);
    assert!(happened.eq((6..=turns).map(|turn| 2 * turn)), "{:?}", scene.events);
    scene.read(30, if turns.is_multiple_of(2) { LEFT } else { RIGHT }, &[plate("AB12")]);
    assert_eq!(scene.names().len(), rules::MAX_WAITING, "they wait no more");
}

#[test]
fn the_wrong_way_does_not_wait() {
    let mut scene = gate("\"direction\": \"backward\",");
    scene.read(20, LEFT, &[]);
    scene.read(20, RIGHT, &[]);
    scene.read(20, LEFT, &[]);
    assert_eq!(scene.names(), [""; 0]);
    scene.read(1, LEFT, &[plate("AB12")]);
    assert_eq!(scene.names(), ["Backward"], "forward does not take it back");
}

#[test]
fn an_object_heads_in_a_direction_once_its_text_is_known() {
    let config = r#"{"directions": [{"id": "in", "points": [[0, 0], [1, 0]], "text-matches": "^AB"}]}"#;
    let mut scene = Scene::new(config);
    for at in 0..120 {
        let attributes = [plate(if at < 60 { "XY99" } else { "AB12" })];
        scene.read(1, [20.0 + at as f32, 50.0], &attributes);
    }
    assert_eq!(scene.names(), ["headed"]);
    assert_eq!(scene.events[0].1.happened, 60 * FRAME);
}

#[test]
fn crowds_are_of_objects_whose_text_matches() {
    let mut scene = Scene::new(&ROOM.replace("\"id\"", r#""crowd-threshold": 2, "text-matches": "^AB", "id""#));
    let see = |scene: &mut Scene, texts: [&str; 3]| {
        let attributes = texts.map(|text| [plate(text)]);
        let bbox = BBox::new(95.0, 30.0, 105.0, 50.0);
        let input = |(id, attributes)| AnalyticsInput {
            id,
            bbox,
            label: "plate",
            class: Some(0),
            confidence: None,
            attributes,
        };
        let objects = (1..).zip(attributes.iter().map(|attributes| &attributes[..])).map(input);
        scene.analytics.update(&scene.options, objects, scene.frames * FRAME);
        scene.frames += 1;
    };
    (0..30).for_each(|_| see(&mut scene, ["AB1", "XY2", "XY3"]));
    assert!(!scene.analytics.zones[0].is_crowded());
    (0..30).for_each(|_| see(&mut scene, ["AB1", "XY2", "AB3"]));
    assert!(scene.analytics.zones[0].is_crowded());
    assert_eq!(scene.analytics.zones[0].total().current, 2);
}
