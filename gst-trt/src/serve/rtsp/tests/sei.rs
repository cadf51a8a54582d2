// SPDX-License-Identifier: MPL-2.0
//! Results that come with the video, as a client finds them there.

use serde_json::{Value, json};

use super::*;

/// As docs/serve.md has it.
const UUID: [u8; 16] = [0x5b, 0x1f, 0x3c, 0x6e, 0x0a, 0x7d, 0x4e, 0x52, 0x9d, 0x63, 0x27, 0xc1, 0x84, 0xee, 0x1a, 0x90];

/// Frames of H.264 as a player gets them.
fn frames(server: &RtspServer, path: &str) -> (gst::Pipeline, Receiver<Vec<u8>>) {
    let line = format!(
        "rtspsrc location=rtsp://{}/{path} latency=0 ! rtph264depay ! video/x-h264,stream-format=byte-stream,alignment=au \
         ! appsink name=out sync=false",
        server.address()
    );
    let pipeline = chain::parse(&line).unwrap();
    let (sender, frames) = channel();
    let take = move |sink: &gst_app::AppSink| {
        let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
        let _ = sender.send(sample.buffer().unwrap().map_readable().unwrap().to_vec());
        Ok(gst::FlowSuccess::Ok)
    };
    let sink = chain::element(&pipeline, "out").downcast::<gst_app::AppSink>().unwrap();
    sink.set_callbacks(gst_app::AppSinkCallbacks::builder().new_sample(take).build());
    pipeline.set_state(gst::State::Playing).unwrap();
    (pipeline, frames)
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
    let (pipeline, frames_of_gate) = frames(&server, "gate");
    let mut numbers = Vec::new();
    for number in 0..40 {
        let frame = frames_of_gate.recv_timeout(LIMIT).unwrap();
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
    pipeline.set_state(gst::State::Null).unwrap();
    // A player that knows nothing of it shows the picture.
    Player::new(&server, "gate", "").picture();
    // The other one has none.
    let (pipeline, frames_of_street) = frames(&server, "street");
    for _ in 0..5 {
        assert_eq!(message(&frames_of_street.recv_timeout(LIMIT).unwrap()), None);
    }
    pipeline.set_state(gst::State::Null).unwrap();
    outputs.cameras.lock().unwrap()["gate"].output.close();
    drop(server);
    outputs.end();
}
