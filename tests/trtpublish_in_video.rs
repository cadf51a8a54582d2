// SPDX-License-Identifier: MPL-2.0
//! Results that travel in the video: `trtpublish location=sei:` before and behind an encoder, and a file that is read again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt::gst::sei::UUID;
use gsttrt::gst::user_data::UserDataMeta;
use serde_json::{Value, json};

use crate::common::{launch, scratch};

const FRAMES: u64 = 12;

/// A pipeline whose frames have an object at the left edge that is as wide as their number tells; every fourth has none.
fn run(line: &str) -> crate::common::Outcome {
    crate::common::init();
    let frames = "num-buffers=12 ! video/x-raw,format=I420,width=320,height=240,framerate=25/1 ! identity name=frames";
    let pipeline = gst::parse::launch(&format!("videotestsrc {frames} ! {line}")).unwrap();
    let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
    let pad = pipeline.by_name("frames").unwrap().static_pad("src").unwrap();
    let number = AtomicU32::new(0);
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        if let Some(gst::PadProbeData::Buffer(buffer)) = &mut info.data
            && number % 4 != 3
        {
            VideoRegionOfInterestMeta::add(buffer.make_mut(), "disc", (0, 0, 16 + number, 32));
        }
        gst::PadProbeReturn::Ok
    });
    crate::common::run(&pipeline)
}

/// The messages in a file, each with the time of its frame, as h264parse finds them.
fn read(file: &Path) -> BTreeMap<u64, Vec<Value>> {
    let line = format!(
        "filesrc location={} ! qtdemux ! h264parse ! video/x-h264,stream-format=byte-stream,alignment=au \
         ! appsink name=out sync=false",
        file.display()
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let sink = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut found = BTreeMap::new();
    while let Ok(sample) = sink.pull_sample() {
        let buffer = sample.buffer().unwrap();
        let metas = buffer.iter_meta::<UserDataMeta>().filter(|meta| meta.uuid() == UUID);
        let messages = metas.map(|meta| serde_json::from_slice(meta.data()).unwrap()).collect();
        found.insert(buffer.pts().unwrap().nseconds(), messages);
    }
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(found.len() as u64, FRAMES);
    found
}

/// What is in a file that is made with these properties of the first trtpublish, frame by frame.
fn published(name: &str, properties: &str) -> Vec<Vec<Value>> {
    let file = scratch(name).join("out.mp4");
    // B-frames come in another order than they are shown in, and the encoder keeps some for a while.
    run(&format!(
        "trtpublish location=sei: {properties} ! x264enc bframes=2 key-int-max=6 ! trtpublish location=sei: ! h264parse ! mp4mux \
         ! filesink location={}",
        file.display()
    ))
    .expect_success();
    read(&file).into_values().collect()
}

#[test]
fn each_frame_of_a_file_has_its_own_results() {
    let found = published("in-video-file", "source-id=gate");
    for (number, messages) in found.iter().enumerate() {
        if number % 4 == 3 {
            assert_eq!(messages, &[] as &[Value], "{number}: nothing is in it");
            continue;
        }
        let [message] = &messages[..] else { panic!("{number}: {messages:?}") };
        assert_eq!((&message["frame"], &message["source-id"]), (&json!(number), &json!("gate")), "{message}");
        let object = &message["detections"][0];
        assert_eq!((&object["label"], &object["w"]), (&json!("disc"), &json!(16.0 + number as f64)), "{message}");
    }
}

#[test]
fn properties_of_messages_count_as_elsewhere() {
    let found = published("in-video-all", "add-empty-results=true format=dlstreamer");
    let widths = |messages: &Vec<Value>| {
        let [message] = &messages[..] else { panic!("{messages:?}") };
        message["objects"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(found.iter().map(widths).collect::<Vec<_>>(), [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0]);
    let found = published("in-video-few", "publish-every=100000000");
    let numbers: Vec<u64> = found.iter().flatten().map(|message| message["frame"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [0, 4, 8], "three frames of 40 ms are 120 ms, and the third behind has nothing in it");
}

#[test]
fn a_picture_is_the_same_with_results_in_it() {
    let folder = scratch("in-video-picture");
    let decoded = |name: &str, publish: &str| {
        let file = folder.join(name);
        run(&format!(
            "{publish} ! x264enc ! {publish} ! h264parse ! avdec_h264 ! video/x-raw,format=I420 ! filesink location={}",
            file.display()
        ))
        .expect_success();
        std::fs::read(file).unwrap()
    };
    let frames = decoded("with.yuv", "trtpublish location=sei:");
    assert_eq!(frames.len(), FRAMES as usize * 320 * 240 * 3 / 2);
    assert!(frames == decoded("without.yuv", "identity"));
}

#[test]
fn what_has_no_place_in_the_video_is_told() {
    let file = scratch("in-video-told").join("out.jsonl").display().to_string();
    for (line, parts) in [
        ("trtpublish location=sei: per=object ! fakesink".to_string(), ["per=object", "per=event"]),
        ("trtpublish location=sei: password=x ! fakesink".into(), ["is no server", "Leave password"]),
        (format!("x264enc ! trtpublish location={file} ! fakesink"), ["The frames are H.264", "before the encoder"]),
    ] {
        let outcome = run(&line);
        let text = outcome.error_text();
        assert!(parts.iter().all(|part| text.contains(part)), "{line}: {text}");
    }
    let long = "x".repeat(64 << 10);
    let outcome = run(&format!("trtpublish location=sei: source-id={long} timeout=1000000000 drop=block ! fakesink"));
    let warnings = &outcome.warnings;
    let has = |part: &str| warnings.iter().filter(|warning| warning.contains(part)).count();
    assert_eq!(
        (has("drop, timeout have no effect") + has("timeout, drop have no effect"), has("64 KiB")),
        (1, 1),
        "{warnings:?}"
    );
    // Nothing to write, nothing to say.
    launch("videotestsrc num-buffers=3 ! x264enc ! trtpublish location=sei: ! fakesink").expect_success();
}
