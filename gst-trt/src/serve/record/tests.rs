// SPDX-License-Identifier: MPL-2.0
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::file::RecordingFile;
use super::*;
use crate::chain;
use crate::scratch::scratch;
use crate::threads::Threads;

/// After this something hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// To its end.
fn run(pipeline: &gst::Pipeline) {
    pipeline.set_state(gst::State::Playing).unwrap();
    let wanted = [gst::MessageType::Eos, gst::MessageType::Error];
    let last = pipeline.bus().unwrap().timed_pop_filtered(ClockTime::from_seconds(60), &wanted).expect("it ends");
    assert_eq!(last.type_(), gst::MessageType::Eos, "{last:?}");
}

fn config(test: &str, pre_roll: f64, post_roll: f64) -> RecordConfig {
    chain::start_gstreamer().unwrap();
    events::register();
    RecordConfig {
        // It is made with the first file.
        folder: scratch(&format!("record-{test}")).join("files"),
        events: vec!["entered".into()],
        pre_roll: Duration::from_secs_f64(pre_roll),
        post_roll: Duration::from_secs_f64(post_roll),
        max_length: Duration::from_secs(60),
        draw: false,
    }
}

/// 200 frames, 30 a second, of which these have events.
fn play(config: &RecordConfig, recorder: &Recorder, happen: &'static [u64]) {
    let pipeline = chain::parse(&format!(
        "videotestsrc num-buffers=200 ! video/x-raw,width=64,height=48,framerate=30/1 ! identity name=frames ! tee name=out {}",
        launch_line(config, false, "")
    ))
    .unwrap();
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
}

/// The number of frames in the only file.
fn frames_of_file(folder: &Path) -> u64 {
    let files: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    assert_eq!(file.extension().unwrap(), "mp4");
    let reader = format!("filesrc location={} ! qtdemux ! h264parse ! fakesink name=end", file.display());
    let reader = chain::parse(&reader).unwrap();
    run(&reader);
    let frames = element(&reader, "end").property::<gst::Structure>("stats").get("rendered").unwrap();
    reader.set_state(gst::State::Null).unwrap();
    frames
}

/// The number of frames in the file of events, by rolls in seconds. Each 30th frame is a key frame.
fn recorded(test: &str, happen: &'static [u64], pre_roll: f64, post_roll: f64) -> u64 {
    let config = config(test, pre_roll, post_roll);
    let threads = Threads::default();
    play(&config, &Recorder::new(Disk::new(&config.folder, "gate", &threads), &config), happen);
    assert!(threads.wait(LIMIT).is_empty());
    frames_of_file(&config.folder)
}

/// The disk answers only when all frames have been. Until then each event opens a file, and each waits.
#[test]
fn a_disk_that_does_not_answer_holds_up_no_frame() {
    let config = config("disk", 0.0, 0.1);
    std::fs::create_dir_all(&config.folder).unwrap();
    let pipe = config.folder.with_file_name("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let threads = Threads::default();
    let disk = pipe.clone();
    let disk = Disk::by(&config.folder, "gate", &threads, move |folder, source, caps, first| {
        drop(std::fs::File::open(&disk).unwrap()); // returns once somebody writes to it
        RecordingFile::create(folder, source, caps, first)
    });
    let recorder = Recorder::new(disk, &config);
    play(&config, &recorder, &[60]);
    assert_eq!(threads.wait(Duration::ZERO), ["a recording of gate"]);
    assert!(config.folder.read_dir().unwrap().next().is_none());
    drop(std::fs::OpenOptions::new().write(true).open(&pipe).unwrap());
    assert!(threads.wait(LIMIT).is_empty());
    assert_eq!(frames_of_file(&config.folder), 4, "what was recorded meanwhile is not lost");
}

#[test]
fn no_more_files_are_opened_than_may_wait_for_the_disk() {
    let config = config("many", 0.0, 0.1);
    let threads = Threads::default();
    let (held, hold) = std::sync::mpsc::channel::<()>();
    let hold = Mutex::new(hold);
    let disk = Disk::by(&config.folder, "gate", &threads, move |_, _, _, _| {
        let _ = hold.lock().unwrap().recv();
        Err("Cannot write: the disk is gone.".into())
    });
    let frame = Encoded { buffer: gst::Buffer::new(), time: ClockTime::ZERO, is_key: true };
    let open = || disk.open(gst::Caps::new_empty(), ClockTime::ZERO);
    let files: Vec<_> = (0..10).filter_map(|_| open()).collect();
    assert_eq!(files.len(), 4);
    assert!(files.iter().all(|file| file.write(frame.clone())));
    let mut buffer = gst::Buffer::with_size(1 << 20).unwrap();
    buffer.make_mut().set_pts(ClockTime::ZERO);
    let large = Encoded { buffer, ..frame };
    assert_eq!((0..100).take_while(|_| files[0].write(large.clone())).count(), 64, "MiB wait at most");
    drop((held, files));
    assert!(threads.wait(LIMIT).is_empty());
    assert!(open().is_some(), "the next event tries again");
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
