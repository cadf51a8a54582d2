// SPDX-License-Identifier: MPL-2.0
//! First configurations: `gst-trt init`, by answers, and `gst-trt import`, of DeepStream's files.

mod common;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use common::{command, expect_failure, files, path, run, sample, scratch, shapes, succeed, text};

/// An application in the form that deepstream-app documents.
const APP: &str = "\
[application]
enable-perf-measurement=1
perf-measurement-interval-sec=5

[tiled-display]
enable=1
rows=2
columns=2
width=1281
height=720

[source0]
enable=1
#Type - 1=CameraV4L2 2=URI 3=MultiURI 4=RTSP
type=3
uri=file://CLIP
num-sources=2
gpu-id=0
cudadec-memtype=0

[source1]
enable=1
type=4
uri=rtsp://me:h${u}sh@127.0.0.1:PORT/stream
select-rtp-protocol=4
latency=200
rtsp-reconnect-interval-sec=20
smart-record=2
smart-rec-dir-path=clips
smart-rec-cache=20
smart-rec-start-time=3
smart-rec-duration=8

[source2]
enable=0
type=1
camera-v4l2-dev-node=3

[sink0]
enable=1
type=2
sync=0

[sink1]
enable=1
type=6
msg-conv-payload-type=1
msg-broker-proto-lib=/opt/nvidia/deepstream/lib/libnvds_mqtt_proto.so
msg-broker-conn-str=127.0.0.1;1883
topic=objects

[sink2]
enable=1
type=6
msg-broker-proto-lib=/opt/nvidia/deepstream/lib/libnvds_amqp_proto.so
msg-broker-conn-str=127.0.0.1;5672;guest

[sink4]
enable=1
type=6
msg-broker-proto-lib=/opt/nvidia/deepstream/lib/libnvds_azure_proto.so

[sink3]
enable=1
type=4
codec=1
rtsp-port=8555

[osd]
enable=1
border-width=2

[streammux]
gpu-id=0
batch-size=3
batched-push-timeout=40000
width=1920
height=1080

[primary-gie]
enable=1
gpu-id=0
batch-size=1
interval=4
bbox-border-color0=1;0;0;1
gie-unique-id=1
config-file=infer/config_infer_primary.txt

[secondary-gie0]
enable=1
operate-on-class-ids=0;1;
bbox-border-color0=1;0;0;1
config-file=infer/config_infer_secondary.txt

[secondary-gie1]
enable=0
config-file=none.txt

[tracker]
enable=1
tracker-width=640
ll-config-file=config_tracker_NvDCF_perf.yml

[nvds-analytics]
enable=1
config-file=config_nvdsanalytics.txt

[tests]
file-loop=1
";

/// A model in the form that nvinfer documents.
const INFER: &str = "\
[property]
gpu-id=0
net-scale-factor=0.0039215697906911373
offsets=10;20;30
model-color-format=1
onnx-file=../model.onnx
model-engine-file=model.onnx_b3_gpu0_fp16.engine
labelfile-path=labels.txt
batch-size=1
network-mode=2
num-detected-classes=2
filter-out-class-ids=1
interval=0
gie-unique-id=1
maintain-aspect-ratio=1
symmetric-padding=1
cluster-mode=2
parse-bbox-func-name=NvDsInferParseYolo
custom-lib-path=libnvdsinfer_custom_impl_Yolo.so
made-up-key=7

[class-attrs-all]
pre-cluster-threshold=0.4
nms-iou-threshold=0.5
topk=200
detected-min-w=4

[class-attrs-1]
pre-cluster-threshold=0.6
";

/// One that sees the objects of the other.
const SECONDARY: &str = "\
[property]
onnx-file=../classes.onnx
process-mode=2
network-type=1
operate-on-gie-id=1
operate-on-class-ids=5
secondary-reinfer-interval=30
input-object-min-width=24
input-object-min-height=16
classifier-async-mode=1
";

const ZONES: &str = "\
[property]
config-width=640
config-height=360
[roi-filtering-stream-2]
enable=1
roi-all=0;0;640;0;640;360;0;360
class-id=-1
";

fn furnish(folder: &Path) {
    std::fs::create_dir(folder.join("infer")).unwrap();
    std::os::unix::fs::symlink(shapes(), folder.join("model.onnx")).unwrap();
    std::os::unix::fs::symlink(sample(), folder.join("clip.mp4")).unwrap();
    let app = APP.replace("CLIP", "clip.mp4").replace("PORT", "554");
    std::fs::write(folder.join("app.txt"), app).unwrap();
    std::fs::write(folder.join("infer/config_infer_primary.txt"), INFER).unwrap();
    std::fs::write(folder.join("infer/labels.txt"), "disc\nbox\n").unwrap();
    std::fs::write(folder.join("infer/config_infer_secondary.txt"), SECONDARY).unwrap();
    std::os::unix::fs::symlink(path("tests/models/shapes-cls.onnx"), folder.join("classes.onnx")).unwrap();
    std::fs::write(folder.join("config_nvdsanalytics.txt"), ZONES).unwrap();
}

#[test]
fn an_application_of_deepstream_becomes_a_configuration_that_is_right() {
    let folder = scratch("import-app");
    furnish(&folder);
    let output = succeed(&folder, &["import", "app.txt", "--output", "config.toml"]);
    let written = std::fs::read_to_string(folder.join("config.toml")).unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    for part in [
        format!("[[model]]\nname = \"primary\"\nfile = \"{}\"", at("infer/../model.onnx")),
        format!("labels = \"{}\"\n", at("infer/labels.txt")),
        "preprocess = \"tensor-colors=bgr scale=0.003921569790691137 mean=0.03921569790691137,".into(),
        "resize=letterbox pad-value=0\"".into(),
        "infer = \"interval=5 precision=fp16\"".into(),
        "nms = \"score-threshold=0.4 iou-threshold=0.5 max-detections=200 class-thresholds=1=0.6 classes=0\"".into(),
        format!(
            "[[model]]\nname = \"secondary-gie0\"\nfile = \"{}\"\non = \"objects\"\nclasses = [\"0\",\"1\"]\n\
             preprocess = \"min-object-size=24 reclassify-interval=30\"\n",
            at("infer/../classes.onnx")
        ),
        "\n[track]\n".into(),
        "[[publish]]\nname = \"sink1\"\nlocation = \"mqtt://127.0.0.1:1883/objects\"\nformat = \"deepstream-minimal\""
            .into(),
        "[[publish]]\nname = \"sink2\"\nlocation = \"amqp://guest@127.0.0.1:5672/gst-trt?exchange=amq.topic\"".into(),
        "listen = \"127.0.0.1:8555\"\n".into(),
        "[[rtsp.tiles]]\nname = \"tiles\"\ncolumns = 2\nsize = \"1280x720\"\n".into(),
        format!("name = \"source0-1\"\naddress = \"{}\"\nloop = true\n", at("clip.mp4")),
        "name = \"source1\"\naddress = \"rtspt://me:h$${u}sh@127.0.0.1:554/stream\"\ntimeout = \"20s\"\nlatency = \"200ms\"\n".into(),
        format!("analytics = {{config-file = \"{}\", config-stream = 2}}", at("config_nvdsanalytics.txt")),
        format!("record = {{folder = \"{}\", pre-roll = \"3s\", post-roll = \"8s\"}}", at("clips")),
    ] {
        assert!(written.contains(&part), "{part}\nis not in\n{written}");
    }
    assert!(
        !written.contains("source2") && !written.contains("secondary-gie1") && !written.contains("video3"),
        "{written}"
    );
    // Each key that is not taken over is listed, with its line.
    let said = text(&output.stderr);
    for key in [
        "app.txt [application] all keys: figures are in /metrics",
        "app.txt:19 [source0] cudadec-memtype: ",
        "[source0] zones: config_nvdsanalytics.txt has none for stream 0",
        "[sink0] type=2: ",
        "[sink4] msg-broker-proto-lib: Azure",
        "[sink3] codec: videos are H.264",
        "[streammux] batched-push-timeout: set batch-timeout",
        "[tiled-display] rows: there are as many as the sources need",
        "[streammux] width: there is no muxer",
        "[primary-gie] bbox-border-color0: ",
        "[secondary-gie0] bbox-border-color0: ",
        "[property] operate-on-gie-id: a model sees the objects of all models before it",
        "[tracker] ll-config-file: ",
        "[property] model-engine-file: model.onnx_b3_gpu0_fp16.engine is not used",
        "[property] custom-lib-path: the layout of the outputs is recognised",
        "config_infer_primary.txt:20 [property] made-up-key: is not known here",
        "[class-attrs-all] detected-min-w: ",
    ] {
        assert!(said.contains(key) && written.contains(key), "{key}\nis not in\n{said}");
    }
    assert!(!said.contains("sh@"), "{said}");
    // Nobody else reads the passwords that may be in it.
    assert_eq!(folder.join("config.toml").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    succeed(&folder, &["serve", "--check", "config.toml"]);
    let again = ["import", "app.txt", "--output", "config.toml"];
    expect_failure(&run(&folder, &again), &again, &["config.toml is there already"]);

    // Without a file there is nothing to loop.
    std::fs::write(folder.join("cameras.txt"), APP.replace("file://CLIP", "rtsp://camera/1")).unwrap();
    let said = text(&succeed(&folder, &["import", "cameras.txt"]).stderr).to_string();
    assert!(said.contains("[tests] file-loop: no source is a file"), "{said}");
}

#[test]
fn a_model_of_nvinfer_becomes_a_configuration_that_is_right() {
    let folder = scratch("import-infer");
    furnish(&folder);
    let output = succeed(&folder, &["import", "infer/config_infer_primary.txt"]);
    std::fs::write(folder.join("config.toml"), &output.stdout).unwrap();
    assert!(text(&output.stdout).contains("[http]"), "{}", text(&output.stdout));
    succeed(&folder, &["serve", "--check", "config.toml"]);

    // One that sees objects, with labels as DeepStream has them.
    std::fs::write(folder.join("infer/kinds.txt"), "disc;box;star\n").unwrap();
    std::fs::write(folder.join("infer/second.txt"), SECONDARY.to_string() + "labelfile-path=kinds.txt\n").unwrap();
    let output = succeed(&folder, &["import", "infer/second.txt"]);
    for part in ["on = \"objects\"\n", "classes = [\"5\"]\n", "# It sees the objects of another [[model]]"] {
        assert!(text(&output.stdout).contains(part), "{part}: {}", text(&output.stdout));
    }
    let said = text(&output.stderr);
    assert!(said.contains("[property] labelfile-path: classes are one a line here"), "{said}");
}

#[test]
fn what_cannot_be_imported_is_said() {
    let folder = scratch("import-wrong");
    for (name, contents, said) in [
        ("no.txt", None, "cannot read no.txt"),
        ("a.yml", Some("property:"), "YAML is not read"),
        ("a.txt", Some("hello"), "line 1 is before the first group"),
        ("b.txt", Some("[other]\na=1\n"), "neither the groups of deepstream-app nor [property]"),
        ("c.txt", Some("[property]\nuff-file=a.uff\n"), "neither onnx-file nor model-engine-file"),
        ("d.txt", Some("[property]\nonnx-file=a.onnx\ninterval=often\n"), "line 3: interval is “often”"),
        ("e.txt", Some("[source0]\nuri=a\n"), "has no [primary-gie] that is enabled"),
        ("f.txt", Some("[primary-gie]\nplugin-type=1\nconfig-file=x\n"), "is Triton's"),
        ("g.txt", Some("[primary-gie]\nconfig-file=gone.txt\n[source0]\nuri=a\n"), "cannot read "),
    ] {
        if let Some(contents) = contents {
            std::fs::write(folder.join(name), contents).unwrap();
        }
        let args = ["import", name];
        expect_failure(&run(&folder, &args), &args, &["Cannot import ", said]);
    }
}

/// Runs `init`, with these lines as answers.
fn answered(folder: &Path, args: &[&str], answers: &str) -> std::process::Output {
    let mut command = command(folder);
    command.arg("init").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(answers.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn three_answers_make_a_configuration_that_is_right() {
    let folder = scratch("init");
    std::os::unix::fs::symlink(shapes(), folder.join("m.onnx")).unwrap();
    std::os::unix::fs::symlink(sample(), folder.join("clip.mp4")).unwrap();
    // A wrong answer is asked for again, and none takes what is proposed.
    let output = answered(&folder, &[], "rtsp//camera\nclip.mp4\nno.onnx\nm.onnx\n\n");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("begins with rtsp://") && said.contains("There is no file no.onnx."), "{said}");
    assert!(text(&output.stdout).contains("Wrote config.toml."), "{}", text(&output.stdout));
    let written = std::fs::read_to_string(folder.join("config.toml")).unwrap();
    assert!(written.contains(&format!("location = \"{}\"", folder.join("{source}.jsonl").display())), "{written}");
    succeed(&folder, &["serve", "--check", "config.toml"]);
    // All that it proposes is right, too.
    let proposed: String = written
        .lines()
        .map(|line| {
            line.strip_prefix("# ").filter(|rest| rest.starts_with('[') || rest.contains(" = ")).unwrap_or(line)
        })
        .filter(|line| ["password-file", "token-file", "batch-size"].iter().all(|key| !line.contains(key)))
        .map(|line| line.to_string() + "\n")
        .collect();
    let zones = r#"{"tripwires": [{"id": "gate", "points": [[0.5, 0], [0.5, 1]]}]}"#;
    std::fs::write(folder.join("zones.json"), zones).unwrap();
    std::fs::write(folder.join("all.toml"), &proposed).unwrap();
    succeed(&folder, &["serve", "--check", "all.toml"]);
    // For scripts.
    let args = [
        "--source",
        "rtsp://me:h${u}sh@camera/1",
        "--source",
        "clip.mp4",
        "--model",
        "m.onnx",
        "--results",
        "-",
        "--output",
        "b.toml",
    ];
    let output = answered(&folder, &args, "");
    assert!(output.status.success() && !text(&output.stderr).contains('?'), "{}", text(&output.stderr));
    succeed(&folder, &["serve", "--check", "b.toml"]);
    assert_eq!(folder.join("b.toml").metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn without_an_answer_nothing_is_written() {
    let folder = scratch("init-none");
    std::os::unix::fs::symlink(shapes(), folder.join("m.onnx")).unwrap();
    for (args, answers, said) in [
        (&[][..], "", "There is no answer. Give it with --source."),
        (&["--source", "a.mp4"], "\n", "There is no answer. Give it with --model."),
        (&["--source", "xyz://a", "--model", "m.onnx", "--results", "-"], "", "no element here for such an address"),
        (&["--source", "a.mp4", "--model", "m.onnx", "--results", "mqt://h/t"], "", "nothing is known about mqt://"),
    ] {
        let output = answered(&folder, args, answers);
        let stderr = text(&output.stderr);
        assert!(output.status.code() == Some(1) && stderr.contains(said), "{args:?}: {stderr}");
        assert_eq!(files(&folder), ["m.onnx"]);
    }
}
