// SPDX-License-Identifier: MPL-2.0
mod cost;
mod given;
mod odd;
mod sound;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::file::RecordingFile;
use super::*;
use crate::chain;
use crate::serve::archive::{Archives, KeepLimits, Kind};
use gsttrt::gst::meta::events;

use crate::scratch::scratch;
use crate::source::{ReadOptions, VideoAddress};
use crate::threads::Threads;
use crate::wait::{LIMIT, wait_until};

/// Each 30th frame is a key frame, and 25 frames are a second.
const H264: &str = "x264enc speed-preset=ultrafast tune=zerolatency key-int-max=30 ! h264parse";
const AAC: &str = "audiotestsrc num-buffers=345 ! audio/x-raw,rate=44100,channels=1 ! avenc_aac ! aacparse";

/// To its end.
fn run(pipeline: &gst::Pipeline) {
    pipeline.set_state(gst::State::Playing).unwrap();
    let wanted = [gst::MessageType::Eos, gst::MessageType::Error];
    let last = pipeline.bus().unwrap().timed_pop_filtered(ClockTime::from_seconds(60), &wanted).expect("it ends");
    assert_eq!(last.type_(), gst::MessageType::Eos, "{last:?}");
}

fn run_to_end(pipeline: &gst::Pipeline) {
    run(pipeline);
    pipeline.set_state(gst::State::Null).unwrap();
}

fn config(test: &str, pre_roll: f64, post_roll: f64) -> RecordConfig {
    chain::start_gstreamer().unwrap();
    events::register();
    RecordConfig {
        // It is made with the first file.
        folder: scratch(&format!("record-{test}")).join("files"),
        events: Some(vec!["entered".into()]),
        segment: None,
        keep: KeepLimits::default(),
        pre_roll: Duration::from_secs_f64(pre_roll),
        post_roll: Duration::from_secs_f64(post_roll),
        pre_roll_bytes: 32 << 20,
        max_length: Duration::from_secs(60),
        container: Container::Mp4,
        audio: true,
        draw: false,
        copies: true,
    }
}

/// A clip of that many frames, next to the folder of the recordings.
fn clip(config: &RecordConfig, frames: u32, video: &str, sound: &str, muxer: &str) -> PathBuf {
    let file = config.folder.with_file_name(if muxer == "mp4mux" { "clip.mp4" } else { "clip.mkv" });
    let sound = if sound.is_empty() { String::new() } else { format!("{sound} ! queue ! mux.") };
    let pipeline = chain::parse(&format!(
        "{muxer} name=mux ! filesink location={} {sound} videotestsrc num-buffers={frames} \
         ! video/x-raw,format=I420,width=64,height=48,framerate=25/1 ! {video} ! queue ! mux.",
        file.display()
    ));
    let pipeline = pipeline.unwrap();
    run(&pipeline);
    pipeline.set_state(gst::State::Null).unwrap();
    file
}

/// The clip as a source, of whose frames these have events.
fn play(clip: &Path, recorder: &Recorder, happen: &'static [u64]) {
    play_times(1, clip, recorder, happen, true);
}

fn play_times(times: usize, clip: &Path, recorder: &Recorder, happen: &'static [u64], has_times: bool) {
    let pipeline = chain::parse("queue name=frames max-size-buffers=4 ! tee name=out out. ! fakesink").unwrap();
    recorder.connect(&pipeline).unwrap();
    let number = AtomicU64::new(0);
    let frames = element(&pipeline, "frames");
    frames.static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        if happen.contains(&number.fetch_add(1, Ordering::Relaxed)) {
            let happened = gst::Structure::builder(events::MESSAGE).field("event", "entered").build();
            let buffer = info.buffer_mut().unwrap().make_mut();
            let mut meta = gst::meta::CustomMeta::add(buffer, events::NAME).unwrap();
            meta.mut_structure().set("events", gst::Array::new([happened]));
        }
        if !has_times {
            info.buffer_mut().unwrap().make_mut().set_pts(None);
        }
        gst::PadProbeReturn::Ok
    });
    let address = VideoAddress::parse(clip.to_str().unwrap(), Path::new("/")).unwrap();
    let options = ReadOptions { tap: Some(recorder.tap()), ..ReadOptions::default() };
    address.connect(&pipeline, frames.static_pad("sink").unwrap(), &options).unwrap();
    run(&pipeline);
    for _ in 1..times {
        pipeline.seek_simple(gst::SeekFlags::FLUSH, ClockTime::ZERO).unwrap();
        run(&pipeline);
    }
    pipeline.set_state(gst::State::Null).unwrap();
    recorder.finish();
}

/// Records the clip, and waits until the disk has all.
fn record(config: &RecordConfig, clip: &Path, happen: &'static [u64]) {
    let threads = Threads::default();
    let archives = Archives::new(&threads);
    let disk = Disk::new(&archives.at(&config.folder), "gate", &threads);
    play(clip, &Recorder::new(disk, config, false), happen);
    archives.close();
    assert!(threads.wait(LIMIT).is_empty());
}

/// The recordings in a folder, in their order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let all = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = all.filter(|path| path.extension().unwrap() != "jsonl").collect();
    files.sort();
    files
}

fn only_file(folder: &Path) -> PathBuf {
    let files = files(folder);
    let [file] = &files[..] else { panic!("{files:?}") };
    file.clone()
}

/// The caps, and the packets with whether they are key frames, of a stream of a file.
fn packets(file: &Path, stream: &str) -> (Option<String>, Vec<(bool, Vec<u8>)>) {
    let demuxer = if file.extension().unwrap() == "mp4" { "qtdemux" } else { "matroskademux" };
    // An appsink that waits at the end until all is taken holds a lock that its start needs, and a short file may end before that.
    let line = format!(
        "filesrc location={} ! {demuxer} name=demux demux.{stream}_0 ! queue \
         ! appsink name=out sync=false async=false wait-on-eos=false",
        file.display()
    );
    let reader = chain::parse(&line).unwrap();
    let out = element(&reader, "out").downcast::<gst_app::AppSink>().unwrap();
    reader.set_state(gst::State::Playing).unwrap();
    let (mut caps, mut found) = (None, Vec::new());
    // A demuxer fails where the stream that is linked is not there, or ends before the others.
    let has_failed = || reader.bus().unwrap().pop_filtered(&[gst::MessageType::Error]).is_some();
    let mut wait = ClockTime::from_mseconds(20);
    loop {
        match out.try_pull_sample(wait) {
            Some(sample) => {
                caps = sample.caps().map(|caps| caps.structure(0).unwrap().name().to_string());
                let buffer = sample.buffer().unwrap();
                let is_key = !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
                found.push((is_key, buffer.map_readable().unwrap().to_vec()));
            }
            None if out.is_eos() || wait >= ClockTime::SECOND => break,
            None if has_failed() => wait = ClockTime::SECOND, // for what is still under way
            None => {}
        }
    }
    reader.set_state(gst::State::Null).unwrap();
    (caps, found)
}

/// The number of frames in the only file.
fn frames_of_file(folder: &Path) -> usize {
    packets(&only_file(folder), "video").1.len()
}

/// The number of frames in the file of events, by rolls in seconds.
fn recorded(test: &str, happen: &'static [u64], pre_roll: f64, post_roll: f64) -> usize {
    let config = config(test, pre_roll, post_roll);
    record(&config, &clip(&config, 200, H264, "", "mp4mux"), happen);
    frames_of_file(&config.folder)
}

/// The disk answers only when all frames have been. Until then each event opens a file, and each waits.
#[test]
fn a_disk_that_does_not_answer_holds_up_no_frame() {
    let config = config("disk", 0.0, 0.1);
    std::fs::create_dir_all(&config.folder).unwrap();
    let clip = clip(&config, 200, H264, "", "mp4mux");
    let pipe = config.folder.with_file_name("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let threads = Threads::default();
    let archives = Archives::new(&threads);
    let disk = pipe.clone();
    let disk = Disk::by(&archives.at(&config.folder), "gate", &threads, move |folder, source, kind, format, first| {
        drop(std::fs::File::open(&disk).unwrap()); // returns once somebody writes to it
        RecordingFile::create(folder, source, kind, format, first)
    });
    play(&clip, &Recorder::new(disk, &config, false), &[60]);
    archives.close();
    wait_until("the rest has ended", LIMIT, || threads.wait(Duration::ZERO).len() == 1);
    assert_eq!(threads.wait(Duration::ZERO), ["a recording of gate"]);
    assert!(config.folder.read_dir().unwrap().next().is_none());
    drop(std::fs::OpenOptions::new().write(true).open(&pipe).unwrap());
    assert!(threads.wait(LIMIT).is_empty());
    assert_eq!(frames_of_file(&config.folder), 3, "what was recorded meanwhile is not lost");
}

#[test]
fn no_more_files_are_opened_than_may_wait_for_the_disk() {
    let config = config("many", 0.0, 0.1);
    let threads = Threads::default();
    let (held, hold) = std::sync::mpsc::channel::<()>();
    let hold = Mutex::new(hold);
    let archives = Archives::new(&threads);
    let disk = Disk::by(&archives.at(&config.folder), "gate", &threads, move |_, _, _, _, _| {
        let _ = hold.lock().unwrap().recv();
        Err("Cannot write: the disk is gone.".into())
    });
    let packet = |size: usize| Packet {
        medium: Medium::Video,
        caps: gst::Caps::new_empty(),
        buffer: gst::Buffer::with_size(size).unwrap(),
        pts: 0,
        dts: None,
        is_key: true,
        is_cut: false,
        arrived: 0,
        came: std::time::Instant::now(),
    };
    let format = FileFormat { container: Container::Mp4, video: gst::Caps::new_empty(), audio: None };
    let open = || disk.open(format.clone(), Kind::Event, 0);
    let files: Vec<_> = (0..10).filter_map(|_| open()).collect();
    assert_eq!(files.len(), 6);
    assert!(files.iter().all(|file| file.write(vec![packet(1)])));
    assert_eq!((0..100).take_while(|_| files[0].write(vec![packet(1 << 20)])).count(), 63, "MiB wait at most");
    drop((held, files));
    archives.close();
    assert!(threads.wait(LIMIT).is_empty());
    assert!(open().is_some(), "the next event tries again");
}

#[test]
fn a_file_begins_with_the_key_frame_before_the_pre_roll() {
    // Frame 75 is a second before the event, frame 112 half a second after it.
    assert_eq!(recorded("second", &[100], 1.0, 0.5), 112 - 60 + 1);
    // The pre-roll begins with a key frame.
    assert_eq!(recorded("whole", &[120], 2.4, 0.0), 120 - 60 + 1);
    // There is less than the pre-roll, and the clip ends within the post-roll.
    assert_eq!(recorded("all", &[50], 5.0, 60.0), 200);
    assert_eq!(recorded("none", &[150], 0.0, 1.0), 175 - 150 + 1);
}

#[test]
fn another_event_prolongs_the_file() {
    assert_eq!(recorded("another", &[100, 110], 1.0, 0.5), 122 - 60 + 1);
}

/// The stream in a file is that of the source, byte by byte, from a key frame on.
#[test]
fn each_format_is_copied_as_it_is() {
    const H265: &str = "x265enc speed-preset=ultrafast tune=zerolatency key-int-max=30 ! h265parse";
    const AV1: &str = "av1enc cpu-used=8 keyframe-max-dist=30 usage-profile=realtime ! av1parse";
    for (name, video, muxer, container, ending) in [
        ("video/x-h264", H264, "mp4mux", Container::Mp4, "mp4"),
        ("video/x-h264", H264, "mp4mux", Container::Mkv, "mkv"),
        ("video/x-h265", H265, "mp4mux", Container::Mp4, "mp4"),
        ("video/x-av1", AV1, "mp4mux", Container::Mp4, "mp4"),
        // MP4 takes none of these.
        ("image/jpeg", "jpegenc", "matroskamux", Container::Mp4, "mkv"),
    ] {
        let test = format!("copy-{}-{container:?}", name.rsplit('/').next().unwrap());
        let config = RecordConfig { container, ..config(&test, 0.5, 0.2) };
        let encoder = video.split(' ').next().unwrap();
        let decoder = if name == "video/x-av1" { "av1dec" } else { encoder };
        if [encoder, decoder].into_iter().any(|element| gst::ElementFactory::find(element).is_none()) {
            eprintln!("SKIP: no {encoder} or {decoder} here");
            continue;
        }
        let clip = clip(&config, 60, video, "", muxer);
        record(&config, &clip, &[50]);
        let file = only_file(&config.folder);
        assert_eq!(file.extension().unwrap(), ending, "{name}");
        let (_, sent) = packets(&clip, "video");
        let (caps, written) = packets(&file, "video");
        assert_eq!(caps.as_deref(), Some(name));
        assert!(written[0].0, "{name} begins with a key frame");
        let begin = sent.iter().position(|packet| *packet == written[0]).unwrap_or_else(|| panic!("{name} is encoded"));
        assert!(sent[begin..].starts_with(&written) && written.len() > 15, "{name}: {begin}, {}", written.len());
    }
}

/// What has no encoded stream is encoded, and what is drawn on.
#[test]
fn frames_are_encoded_where_nothing_can_be_copied() {
    let raw = config("encode-raw", 1.0, 0.5);
    let plain = clip(&raw, 200, "identity", "", "matroskamux");
    record(&raw, &plain, &[100]);
    let (caps, written) = packets(&only_file(&raw.folder), "video");
    assert_eq!((caps.as_deref(), written.len()), (Some("video/x-h264"), 112 - 60 + 1));

    let drawn = RecordConfig { draw: true, copies: false, ..config("encode-draw", 1.0, 0.5) };
    let encoded = clip(&drawn, 200, H264, AAC, "matroskamux");
    record(&drawn, &encoded, &[100]);
    let file = only_file(&drawn.folder);
    let (caps, written) = packets(&file, "video");
    assert_eq!((caps.as_deref(), written.len()), (Some("video/x-h264"), 112 - 60 + 1));
    assert!(!packets(&encoded, "video").1.contains(&written[0]), "it is encoded again");
    assert!(!packets(&file, "audio").1.is_empty(), "with its sound");
}

/// One file, as of a stream that is copied: nothing of the source's own stream comes between the frames that are encoded.
#[test]
fn a_stream_that_no_container_takes_is_encoded() {
    chain::start_gstreamer().unwrap();
    for (name, encoder, decoder) in [
        ("vp8", "vp8enc deadline=1 keyframe-max-dist=30", "vp8dec"),
        ("mpeg4", "avenc_mpeg4 gop-size=30", "avdec_mpeg4"),
    ] {
        let elements = encoder.split(" ! ").map(|element| element.split(' ').next().unwrap()).chain([decoder]);
        if elements.into_iter().any(|element| gst::ElementFactory::find(element).is_none()) {
            eprintln!("SKIP: no {encoder} or {decoder} here");
            continue;
        }
        let config = RecordConfig { segment: Some(Duration::from_secs(60)), ..config(&format!("no-{name}"), 1.0, 0.5) };
        let clip = clip(&config, 200, encoder, "", "matroskamux");
        record(&config, &clip, &[100]);
        let counts: Vec<_> = files(&config.folder).iter().map(|file| packets(file, "video")).collect();
        let counts: Vec<_> = counts.iter().map(|(caps, frames)| (caps.as_deref().unwrap(), frames.len())).collect();
        assert_eq!(counts, [("video/x-h264", 200), ("video/x-h264", 112 - 60 + 1)], "{name}");
    }
}

/// As decoders of GPUs take it: a stream of bytes, in which the camera tells once what a decoder has to know. Each file can
/// be read all the same.
#[test]
fn each_file_of_a_stream_of_bytes_can_be_read() {
    chain::start_gstreamer().unwrap();
    for (name, encoder, parser) in [
        (
            "h264",
            &*H264.replace("key-int", "option-string=repeat-headers=0 key-int"),
            "h264parse ! video/x-h264,stream-format=byte-stream,alignment=au",
        ),
        (
            "h265",
            "x265enc speed-preset=ultrafast tune=zerolatency option-string=repeat-headers=0 key-int-max=30 ! h265parse",
            "h265parse ! video/x-h265,stream-format=byte-stream,alignment=au",
        ),
    ] {
        if gst::ElementFactory::find(encoder.split(' ').next().unwrap()).is_none() {
            eprintln!("SKIP: no {encoder} here");
            continue;
        }
        let config = RecordConfig {
            events: None,
            segment: Some(Duration::from_secs(2)),
            ..config(&format!("bytes-{name}"), 0.0, 0.0)
        };
        let clip = clip(&config, 200, encoder, "", "mp4mux");
        let threads = Threads::default();
        let archives = Archives::new(&threads);
        let recorder = Recorder::new(Disk::new(&archives.at(&config.folder), "gate", &threads), &config, false);
        let line = format!(
            "filesrc location={} ! qtdemux ! {parser} ! identity name=decoder silent=true ! fakesink",
            clip.display()
        );
        let pipeline = chain::parse(&line).unwrap();
        let tap = crate::source::tap::VideoTap::new(&recorder.tap().sink);
        let decoder = element(&pipeline, "decoder");
        tap.follow(&decoder.static_pad("sink").unwrap());
        pipeline.set_state(gst::State::Paused).unwrap();
        pipeline.state(ClockTime::from_seconds(60)).0.unwrap();
        tap.choose(&pipeline, Some(&decoder));
        run(&pipeline);
        recorder.finish();
        // What still comes is of no file, and the end may come twice.
        pipeline.seek_simple(gst::SeekFlags::FLUSH, ClockTime::ZERO).unwrap();
        run_to_end(&pipeline);
        recorder.finish();
        archives.close();
        assert!(threads.wait(LIMIT).is_empty());
        let mut counts: Vec<_> = files(&config.folder).iter().map(|file| packets(file, "video").1.len()).collect();
        counts.sort(); // those of the same millisecond have numbers
        assert_eq!(counts, [20, 60, 60, 60], "{name}");
    }
}

/// Where a file cannot be read, it is none, and the next one is tried.
#[test]
fn a_recording_that_fails_is_followed_by_the_next() {
    let config = config("fails", 0.0, 0.2);
    let clip = clip(&config, 200, H264, "", "mp4mux");
    let threads = Threads::default();
    let archives = Archives::new(&threads);
    let number = AtomicU64::new(0);
    let disk = Disk::by(&archives.at(&config.folder), "gate", &threads, move |folder, source, kind, format, first| {
        std::fs::create_dir_all(folder).unwrap();
        match number.fetch_add(1, Ordering::Relaxed) {
            0 => Err("Cannot write: the disk is gone.".into()),
            1 => {
                // Of which its parser makes no frame.
                let video = gst::Caps::builder("video/x-h264").field("stream-format", "byte-stream").build();
                let format = FileFormat { video, ..format.clone() };
                RecordingFile::create(folder, source, kind, &format, first)
            }
            _ => RecordingFile::create(folder, source, kind, format, first),
        }
    });
    let failed = disk.clone();
    // Before the first frame has come, and three times more.
    let recorder = Recorder::new(disk, &config, false);
    let event = Map::from_iter([("event".to_string(), "entered".into())]);
    recorder.lock().frame_done(Some(ClockTime::ZERO), vec![event]);
    play(&clip, &recorder, &[60, 120, 180]);
    archives.close();
    assert!(threads.wait(LIMIT).is_empty());
    let counts: Vec<_> = files(&config.folder).iter().map(|file| packets(file, "video").1.len()).collect();
    assert_eq!(counts, [6, 6]);
    assert_eq!(failed.failed(), 2);
}

/// Of a camera whose packets were late: its times go back, and two frames have the same.
#[test]
fn two_frames_may_have_the_same_time() {
    let config = config("same-time", 0.0, 0.2);
    let clip = clip(&config, 30, H264, "", "mp4mux");
    let reader =
        format!("filesrc location={} ! qtdemux ! appsink name=out sync=false wait-on-eos=false", clip.display());
    let reader = chain::parse(&reader).unwrap();
    let out = element(&reader, "out").downcast::<gst_app::AppSink>().unwrap();
    reader.set_state(gst::State::Playing).unwrap();
    let mut packets: Vec<Packet> = (0..30)
        .map(|_| {
            let sample = out.try_pull_sample(ClockTime::from_seconds(60)).expect("a frame");
            let (buffer, caps) = (sample.buffer().unwrap(), sample.caps_owned().unwrap());
            Packet { dts: None, ..Packet::new(Medium::Video, buffer, caps, sample.segment().unwrap(), None).unwrap() }
        })
        .collect();
    reader.set_state(gst::State::Null).unwrap();
    (packets[10].pts, packets[11].pts, packets[12].pts) = (packets[9].pts, packets[9].pts, packets[9].pts);
    packets[20].pts = packets[18].pts;
    let format = FileFormat { container: Container::Mp4, video: packets[0].caps.clone(), audio: None };
    std::fs::create_dir_all(&config.folder).unwrap();
    let mut file = RecordingFile::create(&config.folder, "gate", Kind::Event, &format, &packets[0]).unwrap();
    packets.iter().for_each(|packet| file.write(packet).unwrap());
    file.complete().unwrap();
    assert_eq!(frames_of_file(&config.folder), 30);
}

/// The end of a recording is by its length: somebody may set the clock while it is written.
#[test]
fn a_clock_that_is_set_makes_no_recording_longer() {
    let config = config("clock", 0.0, 0.0);
    std::fs::create_dir_all(&config.folder).unwrap();
    let (begin, came) = (1_700_000_000_000_000_000, std::time::Instant::now());
    let picture = packets(&clip(&config, 1, "jpegenc", "", "matroskamux"), "video").1.remove(0).1;
    let packet = |second: u64, arrived: u64| Packet {
        medium: Medium::Video,
        caps: gst::Caps::new_empty_simple("image/jpeg"),
        buffer: gst::Buffer::from_slice(picture.clone()),
        pts: second as i64 * 1_000_000_000,
        dts: None,
        is_key: true,
        is_cut: false,
        arrived,
        came: came + Duration::from_secs(second),
    };
    let format =
        FileFormat { container: Container::Mkv, video: gst::Caps::new_empty_simple("image/jpeg"), audio: None };
    let first = packet(0, begin);
    let mut file = RecordingFile::create(&config.folder, "gate", Kind::Event, &format, &first).unwrap();
    for packet in [first, packet(1, begin + 40 * 86_400_000_000_000), packet(2, 5)] {
        file.write(&packet).unwrap();
    }
    let recording = file.complete().unwrap();
    assert_eq!((recording.begin.0, recording.end.0), (begin, begin + 2_000_000_000));
}

/// The bound is for what is kept in memory before an event: a file that is being written gets each frame. The encoder has no
/// further key frame here, and gives some 500 KB.
#[test]
fn a_group_that_is_larger_than_the_pre_roll_has_no_hole() {
    const LONG: &str = "x264enc speed-preset=ultrafast tune=zerolatency key-int-max=1000 bitrate=600 \
                        option-string=nal-hrd=cbr:filler=1:scenecut=0 ! h264parse";
    let all = RecordConfig {
        segment: Some(Duration::from_secs(60)),
        pre_roll_bytes: 50_000,
        ..config("large-group", 1.0, 0.5)
    };
    let clip = clip(&all, 200, LONG, AAC, "mp4mux");
    assert!(std::fs::metadata(&clip).unwrap().len() > 4 * all.pre_roll_bytes as u64);
    // The first event is in a file that goes on for half a second; there is nothing to begin with for the others.
    record(&all, &clip, &[0, 100, 150]);
    let counts: Vec<_> = files(&all.folder).iter().map(|file| packets(file, "video").1.len()).collect();
    assert_eq!(counts, [200, 12 + 1]);
    let sound: Vec<_> = files(&all.folder).iter().map(|file| packets(file, "audio").1.len()).collect();
    assert!(sound[0] > 300, "{sound:?}");
}

/// It goes on in the next one without losing a frame.
#[test]
fn a_long_recording_is_cut_at_a_key_frame() {
    let config = RecordConfig { max_length: Duration::from_secs(2), ..config("long", 0.0, 60.0) };
    record(&config, &clip(&config, 200, H264, AAC, "mp4mux"), &[0]);
    let counts: Vec<_> = files(&config.folder).iter().map(|file| packets(file, "video").1).collect();
    assert!(counts.iter().all(|frames| frames[0].0), "each begins with a key frame");
    assert_eq!(counts.iter().map(Vec::len).collect::<Vec<_>>(), [60, 60, 60, 20]);
}

/// Segments next to the files of events: each frame is in one of them, and the index has what happened in it.
#[test]
fn all_is_recorded_in_segments_next_to_events() {
    let config = RecordConfig { segment: Some(Duration::from_secs(2)), ..config("segments", 1.0, 0.5) };
    record(&config, &clip(&config, 200, H264, AAC, "mp4mux"), &[100]);
    let is_segment = |file: &PathBuf| file.to_str().unwrap().ends_with("-continuous.mp4");
    let (segments, events): (Vec<_>, Vec<_>) = files(&config.folder).into_iter().partition(is_segment);
    let counts: Vec<_> = segments.iter().map(|file| packets(file, "video").1.len()).collect();
    assert_eq!((counts, events.len()), (vec![60, 60, 60, 20], 1));
    assert_eq!(packets(&events[0], "video").1.len(), 112 - 60 + 1);
    let threads = Threads::default();
    let archives = Archives::new(&threads);
    archives.at(&config.folder);
    wait_until("the index is read", LIMIT, || archives.recordings().len() == 5);
    for recording in archives.recordings() {
        let happened = recording.events.iter().map(|event| event["event"].as_str().unwrap()).collect::<Vec<_>>();
        let is_event = recording.kind == Kind::Event;
        assert_eq!(recording.bytes, std::fs::metadata(config.folder.join(&recording.file)).unwrap().len());
        assert!(!is_event || happened == ["entered"], "{recording:?}");
    }
    let segments = archives.recordings().into_iter().filter(|recording| recording.kind == Kind::Continuous);
    assert_eq!(segments.map(|recording| recording.events.len()).sum::<usize>(), 1);
    archives.close();
    assert!(threads.wait(LIMIT).is_empty());
}

/// No events are needed for that.
#[test]
fn all_is_recorded_without_events() {
    let all = RecordConfig { events: None, segment: Some(Duration::from_secs(60)), ..config("all-alone", 1.0, 0.5) };
    record(&all, &clip(&all, 200, H264, "", "mp4mux"), &[100]);
    assert_eq!(frames_of_file(&all.folder), 200);
}
