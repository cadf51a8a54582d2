// SPDX-License-Identifier: MPL-2.0
mod texts;

use super::engine::AnalyticsOptions;
use super::parse::parse;
use super::*;
use crate::image::geometry::BBox;
use crate::image::overlay::Attribute;

pub(super) const FRAME: u64 = 33_333_333;
pub(super) const SIZE: (u32, u32) = (200, 100);

/// One after another the frames of a stream of 200x100 pixels.
struct Scene {
    analytics: Analytics,
    options: AnalyticsOptions,
    frames: u64,
    /// Events so far, with the frame.
    events: Vec<(u64, AnalyticsEvent)>,
}

impl Scene {
    fn new(config: &str) -> Self {
        let mut analytics = Analytics::new(parse(config, 0).unwrap());
        assert_eq!(analytics.set_size(SIZE), [""; 0]);
        Scene { analytics, options: AnalyticsOptions::default(), frames: 0, events: Vec::new() }
    }

    /// Objects by their ids, and where their lower edges are; they are 10 pixels wide and 20 high.
    fn push(&mut self, objects: &[(u64, [f32; 2])]) {
        self.push_of("person", 0, objects);
    }

    fn push_of(&mut self, label: &str, class: u32, objects: &[(u64, [f32; 2])]) {
        let input = |&(id, [x, y]): &(u64, [f32; 2])| {
            let bbox = BBox::new(x - 5.0, y - 20.0, x + 5.0, y);
            AnalyticsInput { id, bbox, label, class: Some(class), confidence: None, attributes: &[] }
        };
        let events = self.analytics.update(&self.options, objects.iter().map(input), self.frames * FRAME);
        self.events.extend(events.iter().map(|event| (self.frames, *event)));
        self.frames += 1;
    }

    fn hold(&mut self, frames: u64, id: u64, at: [f32; 2]) {
        (0..frames).for_each(|_| self.push(&[(id, at)]));
    }

    fn nothing(&mut self, frames: u64) {
        (0..frames).for_each(|_| self.push(&[]));
    }

    /// The names of the events so far, and of their directions.
    fn names(&self) -> Vec<String> {
        let name = |(_, event): &(u64, AnalyticsEvent)| match event.kind {
            AnalyticsEventKind::Crossed { direction, .. } => format!("{direction:?}"),
            kind => kind.name().into(),
        };
        self.events.iter().map(name).collect()
    }
}

pub(super) const DOOR: &str = r#"{"tripwires": [{"id": "door", "points": [[100, 20], [100, 80]]}]}"#;
pub(super) const ROOM: &str = r#"{"zones": [{"id": "room", "points": [[50, 20], [150, 20], [150, 80], [50, 80]]}]}"#;

/// A zone, a line and a direction for two number plates.
pub(super) const GATE: &str = r#"{
    "zones": [{"id": "yard", "points": [[50, 20], [150, 20], [150, 80], [50, 80]], "text-matches": "^(AB ?12|CD34)$"}],
    "tripwires": [{"id": "gate", "points": [[100, 20], [100, 80]], "text-matches": "^(AB ?12|CD34)$"}],
    "directions": [{"id": "in", "points": [[0, 0], [1, 0]], "text-matches": "^AB"}]}"#;

/// A text that was read on an object.
pub(super) fn plate(text: &str) -> Attribute {
    Attribute { label: text.into(), class: None, confidence: Some(0.9), is_text: true, span: None }
}

// ------------------------------------------------------------------------------------------- tripwires

#[test]
fn a_crossing_counts_once_it_is_certain() {
    let mut scene = Scene::new(DOOR);
    for at in 0..20 {
        scene.push(&[(1, [80.0 + 2.0 * at as f32, 50.0])]);
    }
    assert!(scene.names().is_empty());
    scene.hold(20, 1, [120.0, 50.0]);
    assert_eq!(scene.names(), ["Forward"]);
    let (frame, event) = scene.events[0];
    assert_eq!(event.happened, 11 * FRAME, "100 is still on the line");
    assert_eq!(frame, 27, "half a second later");
    assert_eq!((event.count, event.object.unwrap().id), (1, 1));
    assert_eq!(scene.analytics.tripwires[0].total().forward, 1);
}

/// supervision#2598 and #1540: one frame on the other side is no crossing, in neither direction.
#[test]
fn flicker_across_a_line_counts_nothing() {
    let mut scene = Scene::new(DOOR);
    for at in 0..100 {
        let x = if at % 10 == 3 { 103.0 } else { 97.0 };
        scene.push(&[(1, [x, 50.0])]);
    }
    scene.nothing(60);
    assert_eq!(scene.names(), [""; 0]);
    // An object that stands on the line, and goes on.
    let mut scene = Scene::new(DOOR);
    for at in 0..100 {
        scene.push(&[(1, [100.0 + if at % 3 == 1 { 2.0 } else { -2.0 }, 50.0])]);
    }
    scene.hold(30, 1, [110.0, 50.0]);
    assert_eq!(scene.names(), ["Forward"]);
}

/// supervision#1838: the corners of the box need not be on one side.
#[test]
fn a_box_that_is_wider_than_the_line_crosses_it() {
    let mut scene = Scene::new(DOOR);
    for x in [90.0, 95.0, 99.0, 101.0, 104.0, 104.0] {
        scene.push(&[(1, [x, 50.0])]);
    }
    scene.hold(20, 1, [104.0, 50.0]);
    assert_eq!(scene.names(), ["Forward"]);
}

#[test]
fn who_walks_round_the_line_has_not_crossed_it() {
    let mut scene = Scene::new(DOOR);
    for x in 0..40 {
        scene.push(&[(1, [80.0 + x as f32, 90.0])]);
    }
    // Back through the door.
    for x in 0..40 {
        scene.push(&[(1, [120.0 - x as f32, 60.0])]);
    }
    scene.hold(20, 1, [80.0, 60.0]);
    assert_eq!(scene.names(), ["Backward"]);
    let mut scene = Scene::new(&DOOR.replace("\"id\"", "\"extended\": true, \"id\""));
    for x in 0..60 {
        scene.push(&[(1, [80.0 + x as f32, 90.0])]);
    }
    assert_eq!(scene.names(), ["Forward"]);
}

#[test]
fn a_crossing_counts_though_it_is_not_seen() {
    let mut scene = Scene::new(DOOR);
    scene.hold(5, 1, [80.0, 50.0]);
    scene.nothing(20);
    scene.hold(5, 1, [120.0, 50.0]);
    scene.nothing(30);
    assert_eq!(scene.names(), ["Forward"], "and its object was lost soon after");
}

#[test]
fn each_way_counts_if_it_is_wanted() {
    for (wanted, expected) in
        [("both", &["Forward", "Backward"][..]), ("forward", &["Forward"]), ("backward", &["Backward"])]
    {
        let mut scene = Scene::new(&DOOR.replace("\"id\"", &format!("\"direction\": \"{wanted}\", \"id\"")));
        scene.hold(20, 1, [80.0, 50.0]);
        scene.hold(20, 1, [120.0, 50.0]);
        scene.hold(20, 1, [80.0, 50.0]);
        assert_eq!(scene.names(), expected);
    }
}

#[test]
fn the_end_of_the_stream_makes_crossings_certain() {
    let mut scene = Scene::new(DOOR);
    scene.hold(5, 1, [80.0, 50.0]);
    scene.hold(5, 1, [120.0, 50.0]);
    assert_eq!(scene.names(), [""; 0]);
    assert_eq!(scene.analytics.finish().len(), 1);
    assert_eq!(scene.analytics.finish().len(), 0);
    assert_eq!(scene.analytics.tripwires[0].total().forward, 1);
}

#[test]
fn hysteresis_is_configured() {
    let mut scene = Scene::new(&DOOR.replace("\"id\"", "\"hysteresis\": 0, \"id\""));
    scene.hold(1, 1, [80.0, 50.0]);
    scene.hold(1, 1, [120.0, 50.0]);
    scene.hold(1, 1, [80.0, 50.0]);
    assert_eq!(scene.names(), ["Forward", "Backward"]);
}

// ------------------------------------------------------------------------------------------- zones

#[test]
fn objects_enter_dwell_and_leave() {
    let mut scene = Scene::new(&ROOM.replace("\"id\"", "\"dwell-time\": 1, \"id\""));
    scene.hold(10, 1, [40.0, 50.0]);
    scene.hold(61, 1, [60.0, 50.0]);
    scene.hold(20, 1, [160.0, 50.0]);
    assert_eq!(scene.names(), ["entered", "dwelled", "left"]);
    let events: Vec<_> =
        scene.events.iter().map(|(frame, event)| (*frame, event.happened / FRAME, event.dwell)).collect();
    assert_eq!(events[0], (17, 10, None), "after 0.2 s");
    assert_eq!((events[1].0, events[1].2), (41, Some(31 * FRAME)));
    assert_eq!(events[2], (86, 70, Some(60 * FRAME)), "after 0.5 s outside; the dwell time is that inside");
    let total = scene.analytics.zones[0].total();
    assert_eq!((total.current, total.entered, total.left), (0, 1, 1));
}

#[test]
fn flicker_at_the_edge_is_neither_entering_nor_leaving() {
    let mut scene = Scene::new(ROOM);
    for at in 0..90 {
        scene.push(&[(1, [if at % 5 == 0 { 51.0 } else { 49.0 }, 50.0])]);
    }
    assert_eq!(scene.names(), [""; 0]);
    let mut scene = Scene::new(ROOM);
    for at in 0..90 {
        scene.push(&[(1, [if at > 20 && at % 5 == 0 { 49.0 } else { 51.0 }, 50.0])]);
    }
    assert_eq!(scene.names(), ["entered"]);
}

#[test]
fn missing_detections_end_no_visit() {
    let mut scene = Scene::new(ROOM);
    for _ in 0..5 {
        scene.hold(3, 1, [100.0, 50.0]);
        scene.nothing(25);
    }
    assert_eq!(scene.names(), ["entered"]);
    scene.nothing(10);
    assert_eq!(scene.names(), ["entered", "left"], "it is lost");
    let dwell = scene.events[1].1.dwell.unwrap();
    assert_eq!(dwell, (4 * 28 + 2) * FRAME, "until it was last seen");
    // The same id again is another visit.
    scene.hold(10, 1, [100.0, 50.0]);
    assert_eq!(scene.analytics.zones[0].total().entered, 2);
}

#[test]
fn retention_hysteresis_and_loss_are_configured() {
    let mut scene = Scene::new(&ROOM.replace("\"id\"", "\"hysteresis\": 0, \"object-retention\": 0, \"id\""));
    scene.hold(1, 1, [100.0, 50.0]);
    scene.hold(1, 1, [10.0, 50.0]);
    assert_eq!(scene.names(), ["entered", "left"]);
    scene.options.lost_after = 0;
    scene.hold(1, 1, [100.0, 50.0]);
    scene.nothing(1);
    assert_eq!(scene.names()[2..], ["entered", "left"]);
}

#[test]
fn the_evaluation_point_decides() {
    for (point, expected) in [(EvaluationPoint::BottomCenter, 0), (EvaluationPoint::Center, 1)] {
        let mut scene = Scene::new(ROOM);
        scene.options.evaluation_point = point;
        scene.hold(10, 1, [100.0, 85.0]);
        assert_eq!(scene.analytics.zones[0].total().current, expected);
    }
}

#[test]
fn a_zone_may_be_a_circle_or_what_is_outside() {
    let circle = r#"{"zones": [{"id": "c", "type": "circle", "center": {"x": 100, "y": 50}, "radius": 20}]}"#;
    for (config, expected) in
        [(circle.to_string(), [1, 0]), (circle.replace("\"id\"", "\"inverse\": true, \"id\""), [0, 1])]
    {
        for (place, expected) in [[115.0, 50.0], [115.0, 66.0]].into_iter().zip(expected) {
            let mut scene = Scene::new(&config);
            scene.hold(10, 1, place);
            assert_eq!(scene.analytics.zones[0].total().current, expected, "{place:?}");
        }
    }
}

#[test]
fn points_are_pixels_or_parts_of_the_frame() {
    let parts = r#"{"zones": [{"id": "room", "points": [[0.25, 0.2], [0.75, 0.2], [0.75, 0.8], [0.25, 0.8]]}]}"#;
    let other = ROOM.replacen('{', r#"{"frame-width": 400, "frame-height": 50, "#, 1);
    for (config, inside, outside) in [
        (ROOM, [149.0, 79.0], [151.0, 50.0]),
        (parts, [149.0, 79.0], [151.0, 50.0]),
        (&other, [74.0, 90.0], [76.0, 90.0]),
    ] {
        for (place, expected) in [(inside, 1), (outside, 0)] {
            let mut scene = Scene::new(config);
            scene.hold(10, 1, place);
            assert_eq!(scene.analytics.zones[0].total().current, expected, "{config} {place:?}");
        }
    }
    let circle = r#"{"zones": [{"id": "c", "type": "circle", "center": [0.5, 0.5], "radius": 0.1}]}"#;
    let scene = Scene::new(circle);
    assert_eq!(scene.analytics.zones[0].area, geometry::Area::Ellipse { center: [100.0, 50.0], radii: [20.0; 2] });
}

#[test]
fn crowds_need_objects_and_time() {
    let mut scene = Scene::new(&ROOM.replace("\"id\"", "\"crowd-threshold\": 3, \"crowd-time\": 1, \"id\""));
    // So many of four are inside.
    let at = |count: u64| {
        (1..=4).map(|id| (id, [60.0 + 10.0 * id as f32, if id <= count { 50.0 } else { 95.0 }])).collect::<Vec<_>>()
    };
    (0..30).for_each(|_| scene.push(&at(2)));
    (0..20).for_each(|_| scene.push(&at(3)));
    (0..60).for_each(|_| scene.push(&at(2)));
    assert_eq!(scene.names(), ["entered", "entered", "entered", "left"], "too short");
    (0..60).for_each(|_| scene.push(&at(4)));
    assert!(scene.analytics.zones[0].is_crowded());
    (0..60).for_each(|_| scene.push(&at(2)));
    assert_eq!(scene.names()[4..], ["entered", "entered", "crowded", "left", "left", "uncrowded"]);
    let crowd = |name: usize| scene.events[name].1;
    assert_eq!((crowd(6).count, crowd(6).object, crowd(6).dwell), (4, None, None));
    assert_eq!(crowd(9).count, 2);
    assert!(crowd(9).dwell.unwrap() > 60 * FRAME);
}

#[test]
fn a_crowd_ends_with_its_part_of_the_stream() {
    let mut scene = Scene::new(&ROOM.replace("\"id\"", "\"crowd-threshold\": 1, \"crowd-time\": 1, \"id\""));
    scene.hold(60, 1, [100.0, 50.0]);
    assert_eq!(scene.names(), ["entered", "crowded"]);
    scene.analytics.reset();
    assert!(!scene.analytics.zones[0].is_crowded());
    scene.nothing(60);
    assert_eq!(scene.names().len(), 2, "without events");
}

// ------------------------------------------------------------------------------------------- directions

#[test]
fn objects_head_in_a_direction() {
    let config = r#"{"directions": [{"id": "east", "points": [[0, 0], [1, 0]]}, {"id": "south", "points": [[10, 10], [10, 90]]}]}"#;
    let mut scene = Scene::new(config);
    for at in 0..60 {
        scene.push(&[
            (1, [20.0 + at as f32, 50.0 + 0.2 * at as f32]),
            (2, [20.0, 50.0 + if at % 2 == 0 { 1.0 } else { -1.0 }]),
        ]);
    }
    assert_eq!(scene.names(), ["headed"], "the other one stands");
    assert_eq!(scene.analytics.name_of(&scene.events[0].1.kind), "east");
    assert_eq!(scene.analytics.heading_of(0).unwrap().config.name, "east");
    assert!(scene.analytics.heading_of(1).is_none());
    for at in 0..60 {
        scene.push(&[(1, [80.0, 62.0 + at as f32])]);
    }
    assert_eq!(scene.names(), ["headed", "headed"]);
    assert_eq!(scene.analytics.headings.iter().map(|heading| heading.counts[0]).collect::<Vec<_>>(), [1, 1]);
}

// ------------------------------------------------------------------------------------------- counts

#[test]
fn classes_are_counted_apart_and_filtered() {
    let config = r#"{"zones": [{"id": "all", "points": [[0, 0], [1, 0], [1, 1], [0, 1]]},
        {"id": "cars", "classes": ["car", 7], "points": [[0, 0], [1, 0], [1, 1], [0, 1]]}],
        "tripwires": [{"id": "door", "classes": "bus", "points": [[0.5, 0], [0.5, 1]]}]}"#;
    let mut scene = Scene::new(config);
    for at in 0..60 {
        let x = 70.0 + at as f32;
        for (label, class, id) in [("person", 0, 1), ("car", 2, 2), ("bus", 7, 3)] {
            let bbox = BBox::new(x - 5.0, 30.0, x + 5.0, 50.0);
            let now = at * FRAME + id;
            let input = AnalyticsInput { id, bbox, label, class: Some(class), confidence: None, attributes: &[] };
            scene.analytics.update(&scene.options, [input].into_iter(), now);
        }
    }
    let entered =
        |zone: usize| scene.analytics.zones[zone].counts.iter().map(|count| count.entered).collect::<Vec<_>>();
    assert_eq!([entered(0), entered(1)], [[1, 1, 1], [0, 1, 1]]);
    let crossed: Vec<u64> = scene.analytics.tripwires[0].counts.iter().map(|count| count.forward).collect();
    assert_eq!(crossed, [0, 0, 1]);
    let labels: Vec<_> = scene.analytics.classes().iter().map(|class| class.label.as_str()).collect();
    assert_eq!(labels, ["person", "car", "bus"]);
}

#[test]
fn counts_begin_at_0_again() {
    let both = format!("{}, {}", &ROOM[..ROOM.len() - 1], &DOOR[1..]);
    let mut scene = Scene::new(&both);
    scene.hold(20, 1, [90.0, 50.0]);
    scene.hold(20, 1, [110.0, 50.0]);
    let counts = |scene: &Scene| {
        let zone = scene.analytics.zones[0].total();
        (zone.current, zone.entered, scene.analytics.tripwires[0].total().forward)
    };
    assert_eq!(counts(&scene), (1, 1, 1));
    assert!(!scene.analytics.reset_counts(Some("none")));
    assert!(scene.analytics.reset_counts(Some("door")));
    assert_eq!(counts(&scene), (1, 1, 0));
    assert!(scene.analytics.reset_counts(None));
    assert_eq!(counts(&scene), (1, 0, 0));
    scene.hold(30, 1, [10.0, 50.0]);
    assert_eq!(counts(&scene), (0, 0, 0));
    assert_eq!(scene.analytics.zones[0].total().left, 1);
}

#[test]
fn another_part_of_the_stream_begins_with_nobody() {
    let mut scene = Scene::new(ROOM);
    scene.hold(20, 1, [100.0, 50.0]);
    scene.analytics.reset();
    assert_eq!(scene.analytics.zones[0].total().current, 0);
    scene.hold(20, 1, [100.0, 50.0]);
    let total = scene.analytics.zones[0].total();
    assert_eq!((total.current, total.entered, total.left), (1, 2, 0));
    // Another size: what is configured in pixels stays there.
    scene.analytics.set_size((400, 200));
    scene.hold(20, 1, [100.0, 50.0]);
    assert_eq!(scene.analytics.zones[0].total().entered, 3);
    assert_eq!(scene.analytics.set_size((40, 200)), ["room"]);
}

/// Somebody near the camera: the frame has 100 rows, and the box ends where it does.
#[test]
fn what_the_lower_edge_cuts_off_is_in_zones_that_reach_there() {
    let whole = "[[0, 0], [1, 0], [1, 1], [0, 1]]";
    let pixels = "[[0, 0], [199, 0], [199, 99], [0, 99]]";
    let upper = "[[0, 0], [1, 0], [1, 0.5], [0, 0.5]]";
    for (points, y, wanted) in
        [(whole, 100.0, 1), (pixels, 100.0, 1), (whole, 99.5, 1), (upper, 100.0, 0), (whole, 130.0, 0)]
    {
        let mut scene = Scene::new(&format!(r#"{{"zones": [{{"id": "all", "points": {points}}}]}}"#));
        scene.hold(20, 1, [100.0, y]);
        assert_eq!(scene.analytics.zones[0].total().entered, wanted, "{points} {y}");
    }
}

#[test]
fn of_two_objects_with_one_id_the_first_counts() {
    let mut scene = Scene::new(ROOM);
    for _ in 0..20 {
        scene.push(&[(1, [100.0, 50.0]), (1, [10.0, 50.0])]);
    }
    assert_eq!(scene.names(), ["entered"]);
    assert_eq!((scene.analytics.zones_of(0).count(), scene.analytics.zones_of(1).count()), (1, 0));
}

#[test]
fn boxes_that_are_none_count_nothing() {
    let mut scene = Scene::new(ROOM);
    for edges in [[f32::NAN; 4], [f32::INFINITY; 4], [10.0, 10.0, 10.0, 10.0], [20.0, 20.0, 10.0, 10.0]] {
        let [x1, y1, x2, y2] = edges;
        for id in 0..5 {
            let bbox = BBox::new(x1, y1, x2, y2);
            let input = AnalyticsInput { id, bbox, label: "", class: None, confidence: None, attributes: &[] };
            scene.analytics.update(&scene.options, [input].into_iter(), id);
        }
    }
    assert_eq!(scene.analytics.classes().len(), 0);
}

#[test]
fn labels_without_end_are_counted_together() {
    let mut scene = Scene::new(ROOM);
    scene.options.lost_after = 0;
    for id in 0..1000u64 {
        for _ in 0..8 {
            scene.push_of(&format!("label {id}"), 0, &[(id, [100.0, 50.0])]);
        }
    }
    assert_eq!(scene.analytics.classes().len(), tally::MAX_CLASSES);
    assert_eq!(scene.analytics.zones[0].total().entered, 1000);
}

/// Models of hundreds of classes show the one that is watched after all others.
#[test]
fn a_class_that_is_watched_is_counted_behind_many_others() {
    let zone = |id: &str, classes: &str| {
        format!(r#"{{"id": "{id}", "points": [[50, 20], [150, 20], [150, 80], [50, 80]], "classes": [{classes}]}}"#)
    };
    let config = format!(r#"{{"zones": [{}, {}]}}"#, zone("all", ""), zone("people", r#""person""#));
    let mut scene = Scene::new(&config);
    for id in 0..300u64 {
        for _ in 0..8 {
            scene.push_of(&format!("label {id}"), 1 + id as u32, &[(id, [100.0, 50.0])]);
        }
    }
    for _ in 0..8 {
        scene.push_of("person", 0, &[(1000, [100.0, 50.0])]);
    }
    let label = |event: &AnalyticsEvent| {
        let object = event.object.unwrap();
        scene.analytics.classes()[usize::from(object.class)].label.as_str()
    };
    let entered = |zone: usize| {
        let wanted = AnalyticsEventKind::Entered { zone };
        let events = scene.events.iter().map(|(_, event)| event).filter(|event| event.kind == wanted);
        events.map(label).collect::<Vec<_>>()
    };
    assert_eq!((entered(0).len(), entered(1)), (301, vec!["person"]));
    assert_eq!(entered(0)[254..257], ["label 254", tally::OTHERS, tally::OTHERS]);
    assert_eq!(scene.analytics.zones[1].total().entered, 1);
}
