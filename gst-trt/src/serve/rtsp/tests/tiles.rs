// SPDX-License-Identifier: MPL-2.0
//! Many sources in one picture, as players see it.

use super::*;
use crate::serve::output::TilesConfig;

/// Two columns of 160x120 each, as cameras of 320x240 have it.
const SIZE: (u32, u32) = (320, 240);
/// Where no box is drawn, in pixels of a place.
const CORNER: (usize, usize) = (10, 10);

fn config(sources: Option<&[&str]>) -> TilesConfig {
    let sources = sources.map(|names| names.iter().map(|name| name.to_string()).collect());
    TilesConfig { name: "wall".into(), sources, columns: Some(2), size: SIZE, framerate: 10 }
}

/// How bright a place is, in its corner.
fn brightness(picture: &[u8], (column, row): (usize, usize)) -> u8 {
    let (width, height) = (SIZE.0 as usize, SIZE.1 as usize);
    assert_eq!(picture.len(), width * height, "the picture has the size that was asked for");
    picture[(row * height / 2 + CORNER.1) * width + column * width / 2 + CORNER.0]
}

fn is_bright(picture: &[u8], place: (usize, usize)) -> bool {
    brightness(picture, place) > 200
}

fn is_dark(picture: &[u8], place: (usize, usize)) -> bool {
    brightness(picture, place) < 40
}

/// Waits for a picture like that.
#[track_caller]
fn wait_for(player: &Player, what: &str, is_it: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut last = None;
    wait_until(what, LIMIT, || {
        let picture = player.picture();
        let is_it = is_it(&picture);
        last = Some(picture);
        is_it
    });
    last.unwrap()
}

#[test]
fn each_source_has_its_place_and_nothing_is_composed_for_nobody() {
    let outputs = FakeOutputs::new(&[]);
    // One that is named and not there, and one that gives nothing, hold up nothing.
    outputs.set(&[config(Some(&["yard", "gate", "street", "none"]))]);
    outputs.add("gate", "white");
    outputs.add("street", "white");
    outputs.add("yard", "white");
    outputs.cameras.lock().unwrap()["yard"].pipeline.set_state(gst::State::Paused).unwrap();
    let server = serve(RtspLimits::default(), None, &outputs);
    assert_eq!((outputs.receivers("gate"), outputs.receivers("street")), (0, 0));
    let player = Player::new(&server, "wall", "");
    let picture = wait_for(&player, "two sources", |picture| is_bright(picture, (1, 0)) && is_bright(picture, (0, 1)));
    assert!(is_dark(&picture, (0, 0)) && is_dark(&picture, (1, 1)));
    // The box around the object is drawn, and is where the object is in that place: its left side, at a quarter of the width.
    let row = &picture[60 * 320 + 160..60 * 320 + 320];
    assert!((36..46).any(|column| row[column] < 200), "{row:?}");
    assert!(row[10] > 200 && row[80] > 200, "{row:?}");
    assert_eq!((outputs.receivers("gate"), outputs.receivers("street")), (1, 1));
    // Who watches a source alone takes nothing from it.
    Player::new(&server, "gate", "").picture();
    drop(player);
    wait_until("nobody watches", LIMIT, || outputs.receivers("gate") + outputs.receivers("street") == 0);
    drop(server);
    outputs.end();
}

#[test]
fn a_camera_that_is_gone_leaves_its_place_dark() {
    let outputs = FakeOutputs::new(&[]);
    outputs.set(&[config(Some(&["gate", "street"]))]);
    outputs.add("gate", "white");
    outputs.add("street", "white");
    let server = serve(RtspLimits::default(), None, &outputs);
    let player = Player::new(&server, "wall", "");
    // The places are higher than the frames, which are in their middle.
    let middle = |picture: &[u8], column: usize| picture[80 * 320 + column * 160 + CORNER.0];
    let both = |picture: &[u8]| middle(picture, 0) > 200 && middle(picture, 1) > 200;
    let without_first = |picture: &[u8]| middle(picture, 0) < 40 && middle(picture, 1) > 200;
    let picture = wait_for(&player, "both", both);
    assert!(is_dark(&picture, (0, 0)) && is_dark(&picture, (1, 0)), "what is above them is empty");
    // It hangs, and is there again.
    let gate = outputs.cameras.lock().unwrap()["gate"].pipeline.clone();
    gate.set_state(gst::State::Paused).unwrap();
    wait_for(&player, "its place is dark", without_first);
    gate.set_state(gst::State::Playing).unwrap();
    wait_for(&player, "it is there again", both);
    // It is removed, and comes back as another one.
    outputs.remove("gate");
    wait_for(&player, "its place is dark", without_first);
    outputs.add("gate", "white");
    wait_for(&player, "another one is there", both);
    drop(server);
    outputs.end();
}

/// Its frames are of a format that no element here takes.
#[test]
fn a_camera_that_cannot_be_shown_stops_no_other() {
    let outputs = FakeOutputs::new(&[]);
    outputs.set(&[config(Some(&["odd", "gate", "street"]))]);
    outputs.add("gate", "white");
    let odd = FakeCamera::with("odd", "white", "ARGB64_LE", &outputs.threads);
    outputs.cameras.lock().unwrap().insert("odd".into(), odd);
    outputs.show();
    let server = serve(RtspLimits::default(), None, &outputs);
    let player = Player::new(&server, "wall", "");
    wait_until("it is given no frames any more", LIMIT, || {
        let picture = player.picture();
        is_bright(&picture, (1, 0)) && is_dark(&picture, (0, 0)) && outputs.receivers("odd") == 0
    });
    // Another one in its place is seen.
    outputs.remove("odd");
    outputs.add("odd", "white");
    outputs.add("street", "white");
    wait_for(&player, "three", |picture| [(0, 0), (1, 0), (0, 1)].iter().all(|place| is_bright(picture, *place)));
    drop(server);
    outputs.end();
}

#[test]
fn who_watches_all_sources_sees_those_that_come() {
    let outputs = FakeOutputs::new(&[]);
    outputs.set(&[TilesConfig { columns: None, ..config(None) }]);
    let server = serve(RtspLimits::default(), None, &outputs);
    let player = Player::new(&server, "wall", "");
    let first = player.picture();
    assert!(first.iter().all(|pixel| *pixel < 40), "there is no source");
    outputs.add("a", "white");
    wait_for(&player, "one, over all", |picture| is_bright(picture, (0, 0)) && is_bright(picture, (1, 1)));
    for name in ["b", "c"] {
        outputs.add(name, "white");
    }
    let places = [(0, 0), (1, 0), (0, 1)];
    wait_for(&player, "three", |picture| {
        places.iter().all(|place| is_bright(picture, *place)) && is_dark(picture, (1, 1))
    });
    // What is the same goes on, what is not ends.
    outputs.set(&[TilesConfig { columns: None, ..config(None) }]);
    player.picture();
    outputs.set(&[TilesConfig { framerate: 5, ..config(None) }]);
    assert!(player.error().is_none(), "it is the end of a stream");
    drop(server);
    outputs.end();
}

/// Pictures come at the rate that was asked for, with and without a source.
#[test]
fn pictures_have_a_rate() {
    let outputs = FakeOutputs::new(&[]);
    outputs.set(&[TilesConfig { framerate: 7, ..config(None) }]);
    let server = serve(RtspLimits::default(), None, &outputs);
    let player = Player::new(&server, "wall", "");
    player.picture();
    let sink = chain::element(&player.pipeline, "out").static_pad("sink").unwrap();
    let rate = sink.current_caps().unwrap().structure(0).unwrap().get::<gst::Fraction>("framerate").unwrap();
    assert_eq!(rate, gst::Fraction::new(7, 1));
    drop(server);
    outputs.end();
}
