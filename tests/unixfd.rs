// SPDX-License-Identifier: MPL-2.0
//! Frames that go to another process by unixfdsink keep their results: the launch lines of docs/metas.md, the first in a process
//! of its own. What is published there and here is compared.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::wait::{LIMIT, wait_until};
use crate::common::{launch, path, registry, scratch};
use gst::prelude::*;
use gsttrt::gst::meta::read;
use serde_json::Value;

/// The two lines of the page.
fn documented() -> [String; 2] {
    let page = std::fs::read_to_string(path("docs/metas.md")).unwrap().replace("\\\n", " ");
    let lines: Vec<String> = page
        .lines()
        .filter(|line| line.contains("unixfd"))
        .filter_map(|line| line.strip_prefix("gst-launch-1.0 ").map(str::to_string))
        .collect();
    lines.try_into().expect("a line that sends, and one that receives")
}

/// Of processes, which end with their test.
struct Sender(Child);

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

fn send(line: &str) -> Sender {
    let target = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf();
    let mut command = Command::new("gst-launch-1.0");
    command.env("GST_PLUGIN_PATH", &target).env("GST_REGISTRY", registry()).stdout(Stdio::null());
    Sender(command.args(gst::glib::shell_parse_argv(line).unwrap()).spawn().unwrap())
}

/// Until it takes connections, which it does not yet when its file is there.
fn wait_for_socket(path: &str) {
    const LISTENS: &str = " 00010000 ";
    let is_it = |line: &str| line.ends_with(path) && line.contains(LISTENS);
    wait_until("the socket listens", LIMIT, || std::fs::read_to_string("/proc/net/unix").unwrap().lines().any(is_it));
}

fn lines(file: &Path) -> Vec<Value> {
    std::fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What both processes publish of a clip, and the first frame that this one has.
fn both(name: &str, clip: &str, model: &str, tracker: &str) -> (Vec<Value>, Vec<Value>) {
    let folder = scratch(&format!("unixfd-{name}"));
    let [sends, receives] = documented();
    let replace = |line: &str, parts: &[(&str, String)]| {
        parts.iter().fold(line.to_string(), |line, (from, to)| {
            assert!(line.contains(from), "{from}: {line}");
            line.replace(from, to)
        })
    };
    let socket = folder.join("s").display().to_string();
    let sent = folder.join("sent.jsonl");
    let sends = replace(
        &sends,
        &[
            (
                "rtspsrc location=rtsp://camera.local/stream",
                format!("filesrc location={}", path(&format!("tests/data/{clip}.mp4"))),
            ),
            ("trtpreprocess", "identity eos-after=6 ! trtpreprocess".into()),
            (
                "model-file=yolo11n.onnx",
                format!("backend=rten model-file={}", path(&format!("tests/models/{model}.onnx"))),
            ),
            ("trttrack", tracker.into()),
            ("unixfdsink", format!("trtpublish location={} ! unixfdsink wait-for-connection=true", sent.display())),
            ("/tmp/found", socket.clone()),
        ],
    );
    let received = folder.join("received.jsonl");
    let receives = replace(
        &receives,
        &[
            ("/tmp/found", socket.clone()),
            ("trtoverlay", format!("trtpublish location={} ! trtoverlay", received.display())),
            ("autovideosink", "fakesink".into()),
        ],
    );
    let _sender = send(&sends);
    wait_for_socket(&socket);
    launch(&receives).expect_success();
    (lines(&sent), lines(&received))
}

#[test]
fn results_are_the_same_in_another_process() {
    crate::common::init();
    if gst::ElementFactory::find("unixfdsink").is_none() {
        return println!("SKIP: there is no unixfdsink before GStreamer 1.24");
    }
    for (name, clip, model, tracker, field) in [
        ("ids", "sample", "shapes-320", "trttrack", "track-id"),
        ("masks", "shapes", "shapes-seg", "identity", "mask-counts"),
        ("rotated", "shapes", "shapes-obb", "trttrack", "corners"),
        ("poses", "pose", "figures-pose", "identity", "keypoints"),
        ("classes", "classes", "shapes-cls", "identity", "classes"),
        ("maps", "rooms", "shapes-sem", "identity", "maps"),
    ] {
        let (sent, received) = both(name, clip, model, tracker);
        assert!(received.len() >= 4, "{name}: {received:?}");
        // Which frame is first may differ, and times are those of the process.
        let results = |line: &Value| ["held", "detections", "classes", "maps"].map(|name| line[name].clone());
        let sent: Vec<_> = sent.iter().map(results).collect();
        let received: Vec<_> = received.iter().map(results).collect();
        assert!(sent.ends_with(&received) || sent.starts_with(&received), "{name}:\n{sent:?}\n{received:?}");
        let is_there = |line: &[Value; 4]| format!("{line:?}").contains(field) || ["classes", "maps"].contains(&field);
        assert!(received.iter().any(is_there), "{name}: {received:?}");
    }
}

/// GStreamer's own analytics metas, for its own elements.
#[test]
fn analytics_metas_are_there_too() {
    crate::common::init();
    if gst::ElementFactory::find("unixfdsink").is_none() {
        return println!("SKIP: there is no unixfdsink before GStreamer 1.24");
    }
    let folder = scratch("unixfd-analytics");
    let socket = folder.join("s").display().to_string();
    let chain = format!(
        "filesrc location={} ! decodebin ! identity eos-after=6 ! trtpreprocess ! trtinfer backend=rten model-file={} \
         ! trtnms draw=false ! trttrack",
        path("tests/data/sample.mp4"),
        path("tests/models/shapes-320.onnx")
    );
    let _sender = send(&format!("{chain} ! unixfdsink socket-path={socket} wait-for-connection=true"));
    wait_for_socket(&socket);
    let [here, there] = [chain, format!("unixfdsrc socket-path={socket}")].map(|source| {
        let pipeline = gst::parse::launch(&format!("{source} ! appsink name=out sync=false")).unwrap();
        let out = pipeline.downcast_ref::<gst::Bin>().unwrap().by_name("out").unwrap();
        let out = out.downcast::<gst_app::AppSink>().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        let samples = [out.pull_sample().unwrap(), out.pull_sample().unwrap()];
        pipeline.set_state(gst::State::Null).unwrap();
        samples
    });
    // Without GStreamer's analytics library, neither has such metas.
    let objects = |sample: &gst::Sample| read::objects(sample.buffer().unwrap(), (640, 360));
    let here = here.each_ref().map(objects).map(|objects| (objects.annotations, objects.regions, objects.analytics));
    for sample in &there {
        let found = objects(sample);
        let found = (found.annotations, found.regions, found.analytics);
        assert!(found.1 > 3 && found.0.iter().all(|object| object.track_id.is_some()), "{found:?}");
        assert!(here.contains(&found), "{here:?}\n{found:?}");
    }
}
