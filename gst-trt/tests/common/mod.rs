// SPDX-License-Identifier: MPL-2.0
//! What the tests of the program share: running it, and what it is run on.
#![allow(dead_code)] // each test binary uses a part

pub mod chat_server;
#[path = "../../../core/tests/common/compiled.rs"]
pub mod compiled;
#[path = "../../../core/tests/common/endless.rs"]
pub mod endless;
pub mod fakes;
pub mod hostile_cameras;
#[path = "../../../tests/common/hostile_peer.rs"]
pub mod hostile_peer;
pub mod jpeg;
#[path = "../../../core/tests/common/kserve_server.rs"]
pub mod kserve_server;
pub mod models;
#[path = "../../../core/tests/common/npy.rs"]
pub mod npy;
#[path = "../../../core/tests/common/onnx.rs"]
pub mod onnx;
#[path = "../../../core/tests/common/port.rs"]
pub mod port;
pub mod service;
pub mod terminal;
pub mod wait;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;

use gst::prelude::*;

/// A file of the project, by its path from the root.
pub fn path(relative: &str) -> String {
    format!("{}/../{relative}", env!("CARGO_MANIFEST_DIR"))
}

/// The trained detector of discs and boxes, for tiny pictures: it sees two of three, in a quarter of the time. Services run it all the
/// time.
pub fn shapes() -> String {
    path("tests/models/shapes-160.onnx")
}

pub fn sample() -> String {
    path("tests/data/sample.mp4")
}

/// A folder of its own for a test, empty, under target/.
pub fn scratch(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The program, without a plugin of the environment.
pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gst-trt"));
    command.current_dir(folder).env_remove("GST_PLUGIN_PATH").env_remove("GST_PLUGIN_PATH_1_0");
    command
}

/// Runs it in that folder.
pub fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder).args(args).output().unwrap()
}

/// `detect SOURCE --model MODEL …` in that folder, where it must work.
pub fn succeed(folder: &Path, args: &[&str]) -> Output {
    let output = run(folder, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    output
}

/// It fails with one sentence that says all that.
pub fn expect_failure(output: &Output, args: &[&str], parts: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    let errors: Vec<_> = stderr.lines().filter(|line| line.starts_with("Error: ")).collect();
    assert!(matches!(errors[..], [error] if parts.iter().all(|part| error.contains(part))), "{args:?}: {stderr}");
    assert!(!stderr.contains("panicked") && !stderr.contains("CRITICAL"), "{args:?}: {stderr}");
    assert!(stderr.ends_with(&format!("{}\n", errors[0])), "{args:?}: it is the last word: {stderr}");
}

/// Writes a program in the place of Python, whose quantizer makes that file of any model.
pub fn quantizer(program: &Path, made: &str) {
    use std::os::unix::fs::PermissionsExt;
    let script = format!(
        "#!/usr/bin/python3\nimport json, shutil, sys\nshutil.copy({made:?}, json.loads(sys.argv[-1])['output'])\n\
         print(json.dumps({{'quantized': 3, 'products': 5}}))\n"
    );
    std::fs::write(program, script).unwrap();
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The names in a folder.
pub fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The objects of a file of JSON lines.
pub fn lines(file: &Path) -> Vec<serde_json::Value> {
    let lines = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        gst::init().unwrap();
        gsttrt::plugin_register_static().unwrap();
    });
}

/// Runs a launch line to its end, and returns the messages of elements.
pub fn launch(line: &str) -> Vec<gst::Structure> {
    init();
    let pipeline = gst::parse::launch(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let bus = pipeline.bus().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut found = Vec::new();
    loop {
        let message = bus.timed_pop(gst::ClockTime::from_seconds(60)).unwrap_or_else(|| panic!("{line}: hangs"));
        match message.view() {
            gst::MessageView::Eos(_) => break,
            gst::MessageView::Error(error) => panic!("{line}: {}", error.error()),
            gst::MessageView::Element(_) => found.extend(message.structure().map(ToOwned::to_owned)),
            _ => {}
        }
    }
    pipeline.set_state(gst::State::Null).unwrap();
    found
}

/// The number of packets of a stream in a recording, "video" or "audio", up to where it is cut off.
pub fn packets(file: &Path, stream: &str) -> usize {
    packet_times(file, stream).len()
}

/// When each of them is shown and decoded, in their order in the file.
pub fn packet_times(file: &Path, stream: &str) -> Vec<(gst::ClockTime, gst::ClockTime)> {
    init();
    let demuxer = if file.to_string_lossy().contains(".mp4") { "qtdemux" } else { "matroskademux" };
    // An appsink that waits at the end until all is taken holds a lock that its start needs, and a short file may end before that.
    let line = format!(
        "filesrc location={} ! {demuxer} name=demux demux.{stream}_0 ! queue \
         ! appsink name=out sync=false async=false wait-on-eos=false",
        file.display()
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let out = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    let bus = pipeline.bus().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let (mut times, mut wait) = (Vec::new(), gst::ClockTime::from_mseconds(20));
    loop {
        if let Some(sample) = out.try_pull_sample(wait) {
            let buffer = sample.buffer().expect("a packet");
            let pts = buffer.pts().expect("it has a time");
            times.push((pts, buffer.dts().unwrap_or(pts)));
        } else if out.is_eos() || wait >= gst::ClockTime::SECOND {
            break;
        } else if bus.pop_filtered(&[gst::MessageType::Error]).is_some() {
            wait = gst::ClockTime::SECOND; // for what is still under way
        }
    }
    pipeline.set_state(gst::State::Null).unwrap();
    times
}

/// Width, height, and the pixels of a PNG file as RGB.
pub fn pixels(file: &Path) -> (usize, usize, Vec<u8>) {
    init();
    let line = format!(
        "filesrc location={} ! pngdec ! videoconvert ! appsink name=out caps=video/x-raw,format=RGB",
        file.display()
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let out = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    let sample = out.try_pull_sample(gst::ClockTime::from_seconds(60)).unwrap();
    pipeline.set_state(gst::State::Null).unwrap();
    let size = sample.caps().unwrap().structure(0).unwrap();
    let side = |name| size.get::<i32>(name).unwrap() as usize;
    (side("width"), side("height"), sample.buffer().unwrap().map_readable().unwrap().to_vec())
}

/// A picture of that size, in a format by its ending.
pub fn picture(file: &Path, width: u32, height: u32) {
    let encoder = match file.extension().unwrap().to_str().unwrap() {
        "png" => "pngenc",
        "ppm" => "pnmenc",
        _ => "jpegenc",
    };
    launch(&format!(
        "filesrc location={} ! decodebin ! identity eos-after=2 ! videoconvert ! videoscale \
         ! video/x-raw,width={width},height={height} ! {encoder} ! filesink location={}",
        sample(),
        file.display()
    ));
}
