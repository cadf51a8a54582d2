// SPDX-License-Identifier: MPL-2.0
//! `gst-trt import`, of DeepStream's files.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use crate::common::{command, expect_failure, path, run, sample, scratch, shapes, succeed, text};

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
classifier-threshold=0.6
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
             # What nvinfer's file does not say is as nvinfer has it.\n\
             preprocess = \"scale=1 resize=stretch min-object-size=24 reclassify-interval=30\"\nnms = \"score-threshold=0.6\"\n",
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
        "Set elsewhere: app.txt:2 [application] enable-perf-measurement: figures are in /metrics",
        "Changes results: app.txt:102 [tracker] ll-config-file: ",
        "No effect here: app.txt:85 [primary-gie] bbox-border-color0: ",
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
        let (_, in_file) = key.split_once("app.txt:").unwrap_or(("", key));
        assert!(said.contains(key) && written.contains(in_file), "{key}\nis not in\n{said}");
    }
    // What matters most comes first, on the terminal and in the file.
    let order = ["Changes results:", "Set elsewhere:", "No effect here:"];
    for text in [said, written.as_str()] {
        let places = order.map(|heading| text.find(heading).unwrap_or_else(|| panic!("{heading}: {text}")));
        assert!(places.is_sorted(), "{text}");
    }
    let kinds = said.lines().map(|line| order.iter().position(|heading| line.starts_with(heading)));
    assert!(kinds.clone().is_sorted() && kinds.flatten().count() == said.lines().count(), "{said}");
    assert!(!said.contains("sh@"), "{said}");
    // Nobody else reads the passwords that may be in it.
    assert_eq!(folder.join("config.toml").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    succeed(&folder, &["serve", "--check", "config.toml"]);
    let again = ["import", "app.txt", "--output", "config.toml"];
    expect_failure(&run(&folder, &again), &again, &["config.toml is there already"]);

    // Without a file there is nothing to loop.
    let app = APP.replace("file://CLIP", "rtsp://camera/1").replace("sync=0", "sync=1");
    std::fs::write(folder.join("cameras.txt"), app).unwrap();
    let said = text(&succeed(&folder, &["import", "cameras.txt"]).stderr).to_string();
    assert!(said.contains("[tests] file-loop: no source is a file"), "{said}");
    assert!(said.contains("Set elsewhere: cameras.txt [sink0] sync: with sync = true"), "{said}");
}

#[test]
fn a_model_of_nvinfer_becomes_a_configuration_that_is_right() {
    let folder = scratch("import-infer");
    furnish(&folder);
    let output = succeed(&folder, &["import", "infer/config_infer_primary.txt"]);
    std::fs::write(folder.join("config.toml"), &output.stdout).unwrap();
    assert!(text(&output.stdout).contains("[http]"), "{}", text(&output.stdout));
    succeed(&folder, &["serve", "--check", "config.toml"]);

    // What its file does not say is as nvinfer has it, not as it is here.
    std::fs::write(folder.join("infer/bare.txt"), "[property]\nonnx-file=../model.onnx\n").unwrap();
    let output = succeed(&folder, &["import", "infer/bare.txt"]);
    let (written, said) = (text(&output.stdout), text(&output.stderr));
    assert!(written.contains("preprocess = \"scale=1 resize=stretch\"\n"), "{written}");
    assert!(written.contains("nms = \"score-threshold=0.2 iou-threshold=0.3\"\n"), "{written}");
    for key in ["network-mode (0, as it is not set): precision stays auto", "cluster-mode (0, as it is not set): boxes"]
    {
        assert!(said.contains(&format!("Changes results: bare.txt [property] {key}")), "{said}");
    }
    std::fs::write(folder.join("config.toml"), &output.stdout).unwrap();
    succeed(&folder, &["serve", "--check", "config.toml"]);

    // Without a table of calibration, INT8 is an error for most models.
    std::fs::write(folder.join("infer/eight.txt"), "[property]\nonnx-file=../model.onnx\nnetwork-mode=1\n").unwrap();
    let said = text(&succeed(&folder, &["import", "infer/eight.txt"]).stderr).to_string();
    assert!(said.contains("Changes results: eight.txt [property] network-mode=1: without int8-calib-file"), "{said}");

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
        ("y.txt", Some("[primary-gie]\nconfig-file=infer.yml\n"), "line 2: config-file: YAML is not read"),
        ("a.txt", Some("hello"), "line 1 is before the first group"),
        ("h.txt", Some("[source0\nenable=1\n"), "line 1 begins a group, and its ] is missing"),
        ("b.txt", Some("[other]\na=1\n"), "neither the groups of deepstream-app nor [property]"),
        (
            "zones.txt",
            Some("[property]\nenable=1\n[line-crossing-stream-0]\nenable=1\nline-crossing-Exit=1;2;3;4;5;6;7;8\n"),
            "zones and lines of nvdsanalytics, and no model. They are read as they are: import the file of deepstream-app",
        ),
        ("only.txt", Some("[roi-filtering-stream-0]\nenable=1\n"), "[analytics] with config-file = \"only.txt\""),
        ("c.txt", Some("[property]\nuff-file=a.uff\n"), "neither onnx-file nor model-engine-file"),
        ("d.txt", Some("[property]\nonnx-file=a.onnx\ninterval=often\n"), "line 3: interval is “often”"),
        ("e.txt", Some("[source0]\nuri=a\n"), "has no [primary-gie] that is enabled"),
        ("f.txt", Some("[primary-gie]\nplugin-type=1\nconfig-file=x\n"), "is Triton's"),
        (
            "g.txt",
            Some("[primary-gie]\nconfig-file=gone.txt\n[source0]\nuri=a\n"),
            "g.txt: line 2: config-file: cannot read ",
        ),
        // A line is one of the file that is named last.
        ("i.txt", Some("[property]\nonnx-file=a.onnx\nbatch-size=many\n"), "i.txt: line 3: batch-size is “many”"),
        ("j.txt", Some("[primary-gie]\nconfig-file=i.txt\n[source0]\nuri=a\n"), "/i.txt: line 3: batch-size is “many”"),
        ("k.txt", Some("[primary-gie]\nconfig-file=h.txt\n[source0]\nuri=a\n"), "/h.txt: line 1 begins a group"),
    ] {
        if let Some(contents) = contents {
            std::fs::write(folder.join(name), contents).unwrap();
        }
        let args = ["import", name];
        expect_failure(&run(&folder, &args), &args, &["Cannot import ", said]);
    }
}

/// Imports an application, with a part of it replaced. Returns what is written and what is said.
fn imported(folder: &Path, old: &str, new: &str) -> (String, String) {
    let app = APP.replace("CLIP", "clip.mp4").replace("PORT", "554");
    assert!(app.contains(old), "{old}");
    std::fs::write(folder.join("other.txt"), app.replace(old, new)).unwrap();
    let output = succeed(folder, &["import", "other.txt"]);
    std::fs::write(folder.join("other.toml"), &output.stdout).unwrap();
    // GPUs that are not here keep no configuration from being right.
    let checked = run(folder, &["serve", "--check", "other.toml"]);
    let said = text(&checked.stderr);
    let is_of_gpus = |line: &str| line.starts_with("Warning: gpus") || !line.starts_with("Warning: ");
    assert!(checked.status.success() || said.contains("can be used") && said.lines().all(is_of_gpus), "{said}");
    (text(&output.stdout).to_string(), text(&output.stderr).to_string())
}

/// All of `APP` between a line and the begin of another group.
fn part(begin: &str, end: &str) -> String {
    let app = APP.replace("CLIP", "clip.mp4").replace("PORT", "554");
    let begin = app.find(begin).unwrap();
    let end = app[begin..].find(end).unwrap() + begin;
    app[begin..end].into()
}

#[test]
fn a_list_of_sources_becomes_sources() {
    let folder = scratch("import-list");
    furnish(&folder);
    let sources = part("[source0]", "[sink0]");
    let attributes = "[source-attr-all]\nenable=1\ntype=3\nnum-sources=1\nlatency=100\nsmart-rec-file-prefix=a\n\
                      smart-record=2\nsmart-rec-dir-path=clips\nsmart-rec-cache=20\nsmart-rec-interval=3\n\n";
    let list = "[source-list]\nnum-source-bins=3\nuse-nvmultiurisrcbin=1\nmax-batch-size=4\nhttp-port=9000\n\
                list=rtsp://me:s3cret@127.0.0.1/1;file://clip.mp4;rtsp://127.0.0.1/3;rtsp://127.0.0.1/4;\n\
                sensor-id-list=a1;yard 2;a3\nsensor-name-list=gate;;\n\n";
    let (written, said) = imported(&folder, &sources, &format!("{list}{attributes}"));
    let clip = folder.join("clip.mp4").display().to_string();
    for part in [
        "name = \"gate\"\naddress = \"rtsp://me:s3cret@127.0.0.1/1\"\nlatency = \"100ms\"\n".to_string(),
        format!("name = \"source1\"\naddress = \"{clip}\"\nloop = true\n"),
        "name = \"a3\"\naddress = \"rtsp://127.0.0.1/3\"\n".into(),
        format!("record = {{folder = \"{}\", pre-roll = \"20s\"}}", folder.join("clips").display()),
    ] {
        assert!(written.contains(&part), "{part}\nis not in\n{written}");
    }
    assert!(!written.contains("127.0.0.1/4"), "{written}");
    for note in [
        "[source-list] num-source-bins: 3 of 4 addresses are taken",
        "[source-list] use-nvmultiurisrcbin: sources come and go over HTTP",
        "[source-list] sensor-id-list “yard 2”: a name is there once",
        "[source-list] http-port: listen of [http] counts",
        "[source-attr-all] smart-rec-file-prefix: recordings are named after the source and the time",
        "[source-attr-all] smart-rec-interval: recordings begin with events",
    ] {
        assert!(said.contains(note), "{note}\nis not in\n{said}");
    }
    assert!(!said.contains("s3cret"), "{said}");

    // A source of its own is added, and names are there once.
    let (written, _) = imported(&folder, &sources, &format!("{list}{attributes}{}", part("[source1]", "[source2]")));
    assert_eq!(written.matches("name = \"source1").count(), 2, "{written}");
    assert!(written.contains("name = \"source1-2\"") && written.contains("config-stream = 2"), "{written}");

    // What cannot be read is named.
    for (list, wanted) in [
        ("[source0]\nenable=1\ntype=5\ncamera-csi-sensor-id=0\n", "[source0] type=5: cameras by CSI"),
        ("[source-list]\nlist=\n", "no address in list of [source-list]"),
        ("[source0]\nenable=0\n", "has no [source0] that is enabled"),
    ] {
        let app = APP.replace("CLIP", "clip.mp4").replace("PORT", "554").replace(&sources, list);
        std::fs::write(folder.join("none.txt"), app).unwrap();
        let args = ["import", "none.txt"];
        expect_failure(&run(&folder, &args), &args, &["Cannot import ", wanted]);
    }
}

#[test]
fn the_password_of_amqp_is_taken_over() {
    let folder = scratch("import-amqp");
    furnish(&folder);
    for (string, address) in [
        ("rabbit.local;5672;shop;top@s/${x}", "amqp://shop:top%40s%2F%24%7Bx%7D@rabbit.local:5672/"),
        ("rabbit.local;5672;;secret", "amqp://guest:secret@rabbit.local:5672/"),
        ("rabbit.local;5672;sh op;", "amqp://sh%20op@rabbit.local:5672/"),
        ("rabbit.local;5672;shop;secret;more-secret", "amqp://shop:secret@rabbit.local:5672/"),
    ] {
        let (written, said) = imported(&folder, "127.0.0.1;5672;guest", string);
        assert!(written.contains(&format!("location = \"{address}")), "{address}\nis not in\n{written}");
        assert!(!said.contains("secret") && !said.contains("top@s"), "{said}");
        assert_eq!(said.contains("msg-broker-conn-str: it is more than HOST"), string.contains("more"), "{said}");
    }
}

#[test]
fn the_gpus_are_those_of_the_service() {
    let folder = scratch("import-gpu");
    furnish(&folder);
    let infer = folder.join("infer/config_infer_primary.txt");
    std::fs::write(&infer, INFER.replace("gpu-id=0\n", "")).unwrap();
    let app = APP.replace("gpu-id=0", "gpu-id=1").replace("CLIP", "clip.mp4").replace("PORT", "554");
    std::fs::write(folder.join("one.txt"), app).unwrap();
    let output = succeed(&folder, &["import", "one.txt"]);
    let (written, said) = (text(&output.stdout), text(&output.stderr));
    assert!(written.contains("\ngpus = [1]\n") && !said.contains("gpu-id"), "{written}{said}");

    let (written, said) = imported(&folder, "[primary-gie]\nenable=1\ngpu-id=0", "[primary-gie]\nenable=1\ngpu-id=1");
    assert!(written.contains("\ngpus = [0, 1]\n") && !written.contains("cuda-device-id"), "{written}");
    assert!(said.contains("[primary-gie] gpu-id: sources are spread over these GPUs"), "{said}");
    let (written, said) = imported(&folder, "interval=4", "interval=4");
    assert!(!written.contains("gpus =") && !said.contains("gpu-id"), "{written}{said}");

    // A model alone.
    std::fs::write(&infer, INFER.replace("gpu-id=0", "gpu-id=1")).unwrap();
    let output = succeed(&folder, &["import", "infer/config_infer_primary.txt"]);
    let (written, said) = (text(&output.stdout), text(&output.stderr));
    assert!(written.contains("\ngpus = [1]\n"), "{written}{said}");
}

#[test]
fn a_threshold_above_all_scores_switches_a_class_off() {
    let folder = scratch("import-off");
    furnish(&folder);
    let attributes = |text: &str| {
        let (property, _) = INFER.split_once("[class-attrs-all]").unwrap();
        format!("{}{text}", property.replace("filter-out-class-ids=1\n", "").replace("labelfile-path=labels.txt\n", ""))
    };
    let import = |name: &str, config: String| {
        std::fs::write(folder.join("infer").join(name), config).unwrap();
        let output = succeed(&folder, &["import", &format!("infer/{name}")]);
        std::fs::write(folder.join("config.toml"), &output.stdout).unwrap();
        succeed(&folder, &["serve", "--check", "config.toml"]);
        (text(&output.stdout).to_string(), text(&output.stderr).to_string())
    };
    let off = "[class-attrs-0]\npre-cluster-threshold=0.5\n[class-attrs-1]\npre-cluster-threshold=1.1\n";
    let (written, _) = import("a.txt", attributes(off));
    let nms = "nms = \"score-threshold=0.2 iou-threshold=0.3 class-thresholds=0=0.5 classes=0\"";
    assert!(written.contains(nms), "{written}");
    // The model tells how many there are, too.
    let without = attributes(off).replace("num-detected-classes=2\n", "");
    let (written, _) = import("b.txt", without.clone());
    assert!(written.contains(nms), "{written}");
    // Without a limit on the number of objects, as nvinfer writes it.
    let (written, said) = import("g.txt", attributes("[class-attrs-all]\ntopk=-1\n"));
    assert!(written.contains("nms = \"score-threshold=0.2 iou-threshold=0.3\"") && !said.contains("topk"), "{written}");
    // All but one.
    let only = "[class-attrs-all]\nthreshold=1.1\n[class-attrs-1]\nthreshold=0.4\n";
    let (written, _) = import("c.txt", attributes(only));
    assert!(written.contains("nms = \"iou-threshold=0.3 class-thresholds=1=0.4 classes=1\""), "{written}");
    let (written, said) = import("d.txt", attributes("[class-attrs-all]\nthreshold=2\n"));
    assert!(written.contains("nms = \"iou-threshold=0.3 score-threshold=1\""), "{written}");
    assert!(said.contains("no class is left"), "{said}");
    let (_, said) = import("e.txt", attributes("[class-attrs-7]\nthreshold=0.4\nnms-iou-threshold=0.3\n"));
    assert!(said.contains("[class-attrs-7] all keys: there is no such class: there are 2"), "{said}");
    assert!(said.contains("nms-iou-threshold: iou-threshold in nms is that of all classes"), "{said}");
    // Where nothing tells how many there are.
    let unknown = without.replace("onnx-file=../model.onnx", "onnx-file=../gone.onnx");
    std::fs::write(folder.join("infer/f.txt"), unknown).unwrap();
    let output = succeed(&folder, &["import", "infer/f.txt"]);
    let (written, said) = (text(&output.stdout), text(&output.stderr));
    assert!(written.contains("iou-threshold=0.3 class-thresholds=0=0.5,1=1\""), "{written}");
    assert!(said.contains("[class-attrs-1] pre-cluster-threshold=1.1: it is not known how many classes"), "{said}");
}

/// As on a disk that is full: half of a file could be a configuration, too.
#[test]
fn what_cannot_be_written_wholly_is_not_there() {
    let folder = scratch("import-full");
    furnish(&folder);
    let args = ["import", "app.txt", "--output", "config.toml"];
    let mut program = command(&folder);
    let limit = || {
        let limit = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
        // SAFETY: it is a system call, which takes what is here.
        let is_set = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
        if is_set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: it allocates nothing, and takes no lock.
    unsafe { program.pre_exec(limit) };
    let output = program.args(args).output().unwrap();
    expect_failure(&output, &args, &["Cannot write config.toml: File too large"]);
    assert!(!folder.join("config.toml").exists());
}

#[test]
fn reasons_are_true() {
    let folder = scratch("import-reasons");
    furnish(&folder);
    let keys = "[application]\ngie-kitti-output-dir=kitti";
    let (_, said) = imported(&folder, "[application]", keys);
    assert!(said.contains("[application] gie-kitti-output-dir: results are JSON lines, by [[publish]]"), "{said}");
    let (_, said) = imported(&folder, "smart-record=2", "smart-record=2\nsmart-rec-file-prefix=a");
    assert!(said.contains("smart-rec-file-prefix: recordings are named after the source and the time"), "{said}");
    let (written, said) = imported(&folder, "smart-record=2", "smart-record=1");
    assert!(said.contains("[source1] smart-record=1: there messages of a broker begin a recording"), "{said}");
    assert!(written.contains("record = {folder = "), "{written}");
    let (_, said) = imported(&folder, "smart-record=2", "smart-record=2");
    assert!(!said.contains("smart-record"), "{said}");
    std::fs::write(folder.join("infer/mode.txt"), INFER.replace("interval=0", "mode=3")).unwrap();
    let said = text(&succeed(&folder, &["import", "infer/mode.txt"]).stderr).to_string();
    assert!(said.contains("[property] mode: nvinfer's documentation has no such key"), "{said}");
}
