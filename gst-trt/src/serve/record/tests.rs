// SPDX-License-Identifier: MPL-2.0
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::*;
use crate::chain;

/// To its end.
fn run(pipeline: &gst::Pipeline) {
    pipeline.set_state(gst::State::Playing).unwrap();
    let wanted = [gst::MessageType::Eos, gst::MessageType::Error];
    let last = pipeline.bus().unwrap().timed_pop_filtered(ClockTime::from_seconds(60), &wanted).expect("it ends");
    assert_eq!(last.type_(), gst::MessageType::Eos, "{last:?}");
}

/// The number of frames in the file of events, by rolls in seconds. There are 30 frames a second and 200 in all, and
/// each 30th is a key frame.
fn recorded(test: &str, happen: &'static [u64], pre_roll: f64, post_roll: f64) -> u64 {
    chain::start_gstreamer().unwrap();
    events::register();
    let folder = std::env::temp_dir().join(format!("gst-trt-record-{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let config = RecordConfig {
        folder: folder.clone(),
        events: vec!["entered".into()],
        pre_roll: Duration::from_secs_f64(pre_roll),
        post_roll: Duration::from_secs_f64(post_roll),
        max_length: Duration::from_secs(60),
        draw: false,
    };
    let pipeline = chain::parse(&format!(
        "videotestsrc num-buffers=200 ! video/x-raw,width=64,height=48,framerate=30/1 ! identity name=frames ! tee name=out {}",
        launch_line(&config, false, "")
    ))
    .unwrap();
    let recorder = Recorder::new(&config, "gate").unwrap();
    recorder.connect(&pipeline);
    let number = AtomicU64::new(0);
    let pad = element(&pipeline, "frames").static_pad("src").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        if happen.contains(&number.fetch_add(1, Ordering::Relaxed)) {
            let happened = gst::Structure::builder(events::MESSAGE).field("event", "entered").build();
            let buffer = info.buffer_mut().unwrap().make_mut();
            let mut meta = gst::meta::CustomMeta::add(buffer, events::NAME).unwrap();
            meta.mut_structure().set("events", gst::Array::new([happened]));
        }
        gst::PadProbeReturn::Ok
    });
    run(&pipeline);
    pipeline.set_state(gst::State::Null).unwrap();
    recorder.finish();
    let files: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let reader = format!("filesrc location={} ! qtdemux ! h264parse ! fakesink name=end", file.display());
    let reader = chain::parse(&reader).unwrap();
    run(&reader);
    let frames = element(&reader, "end").property::<gst::Structure>("stats").get("rendered").unwrap();
    reader.set_state(gst::State::Null).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    frames
}

#[test]
fn a_file_begins_with_the_key_frame_before_the_pre_roll() {
    // Frame 70 is a second before the event, frame 115 half a second after it.
    assert_eq!(recorded("second", &[100], 1.0, 0.5), 115 - 60 + 1);
    // The pre-roll begins with a key frame.
    assert_eq!(recorded("whole", &[120], 2.0, 0.0), 120 - 60 + 1);
    // There is less than the pre-roll, and the clip ends within the post-roll.
    assert_eq!(recorded("all", &[50], 5.0, 60.0), 200);
    assert_eq!(recorded("none", &[150], 0.0, 1.0), 180 - 150 + 1);
}

#[test]
fn another_event_prolongs_the_file() {
    assert_eq!(recorded("another", &[100, 110], 1.0, 0.5), 125 - 60 + 1);
}
