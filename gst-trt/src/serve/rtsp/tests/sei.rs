// SPDX-License-Identifier: MPL-2.0
//! Results that come with the video, as a client finds them there.

use serde_json::{Value, json};

use super::*;
use crate::serve::output::Output;

/// As docs/videos.md has it.
const UUID: [u8; 16] = [0x5b, 0x1f, 0x3c, 0x6e, 0x0a, 0x7d, 0x4e, 0x52, 0x9d, 0x63, 0x27, 0xc1, 0x84, 0xee, 0x1a, 0x90];

/// Gives frames of H.264 as they are sent.
fn receiver(server: &RtspServer, path: &str) -> Player {
    Player::of(server, path, "", "video/x-h264,stream-format=byte-stream,alignment=au")
}

/// The kinds of the units of a frame, in their order.
fn kinds(frame: &[u8]) -> Vec<u8> {
    frame.windows(4).filter(|four| four[..3] == [0, 0, 1]).map(|four| four[3] & 0x1f).collect()
}

fn message(frame: &[u8]) -> Option<Value> {
    let begin = frame.windows(UUID.len()).position(|bytes| bytes == UUID)? + UUID.len();
    let text = &frame[begin..];
    serde_json::Deserializer::from_slice(text).into_iter::<Value>().next()?.ok()
}

#[test]
fn each_frame_has_what_was_found_in_it() {
    let outputs = FakeOutputs::new(&["gate", "street"]);
    {
        let mut cameras = outputs.cameras.lock().unwrap();
        let gate = cameras.get_mut("gate").unwrap();
        gate.output = Output::new("gate", gate.frames.clone(), true, &outputs.threads);
    }
    let server = serve(RtspLimits::default(), None, &outputs);
    let gate = receiver(&server, "gate");
    let mut numbers = Vec::new();
    for number in 0..40 {
        let frame = gate.picture();
        let message = message(&frame).unwrap_or_else(|| panic!("{number}: {:?}", kinds(&frame)));
        assert_eq!(message["source-id"], "gate", "{message}");
        let object = &message["detections"][0];
        assert_eq!((&object["label"], &object["x"], &object["w"]), (&json!("disc"), &json!(80.0), &json!(160.0)));
        // After the parameter sets, before the picture.
        let kinds = kinds(&frame);
        let position = |kind: fn(&u8) -> bool| kinds.iter().position(kind);
        let (sei, slice) = (position(|kind| *kind == 6), position(|kind| (1..=5).contains(kind)));
        assert!(sei < slice && position(|kind| *kind == 8) < sei, "{kinds:?}");
        numbers.push(message["frame"].as_u64().unwrap());
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    drop(gate);
    // A player that knows nothing of it shows the picture.
    Player::new(&server, "gate", "").picture();
    // The other one has none.
    let street = receiver(&server, "street");
    (0..5).for_each(|_| assert_eq!(message(&street.picture()), None));
    drop(street);
    outputs.cameras.lock().unwrap()["gate"].output.close();
    drop(server);
    outputs.end();
}
