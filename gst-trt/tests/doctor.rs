// SPDX-License-Identifier: MPL-2.0
//! `gst-trt doctor`: what it reports, and the model that it tries.

mod common;

use common::onnx::{F32, Graph, int, ints};
use common::{command, path, scratch, text};
use serde_json::Value;

/// The model of the trial: `UPDATE_SNAPSHOT=1` writes it.
#[test]
fn the_model_is_made_here() {
    let model = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .node("ReduceMean", &["images"], &["means"], vec![ints("axes", &[2, 3]), int("keepdims", 0)])
        .node("Softmax", &["means"], &["output0"], vec![int("axis", 1)])
        .output("output0", F32, &["1", "3"])
        .metadata("task", "classify")
        .metadata("names", "{0: 'red', 1: 'green', 2: 'blue'}");
    let file = path("gst-trt/src/doctor/colors.onnx");
    if std::env::var_os("UPDATE_SNAPSHOT").is_some() {
        std::fs::write(&file, model.bytes()).unwrap();
    }
    assert_eq!(std::fs::read(&file).unwrap(), model.bytes());
}

fn doctor(name: &str, args: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let output = command(&scratch(name)).arg("doctor").args(args).envs(environment.iter().copied()).output().unwrap();
    (output.status.code(), text(&output.stdout).to_string(), text(&output.stderr).to_string())
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

#[test]
fn the_chain_is_tried_on_the_cpu() {
    let (status, shown, stderr) = doctor("doctor-text", &[], &[]);
    assert_eq!(status, Some(0), "{shown}{stderr}");
    for part in [
        "GStreamer",
        "ok  decodebin",
        "ok  H.264 encoder",
        "ok  backend=rten",
        "ok  backend=kserve",
        "NVDEC",
        "\ncameras\n",
        "TensorRT",
        "it finds a red picture red",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let (status, shown, _) = doctor("doctor-json", &["--json"], &[]);
    let report: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((status, &report["works"]), (Some(0), &true.into()));
    let encoder = check(&report, "H.264 encoder");
    assert_eq!(
        (&encoder["there"], &encoder["found"], &encoder["costs"]),
        (&true.into(), &"x264enc".into(), &Value::Null)
    );
}

#[test]
fn what_is_missing_has_its_price() {
    let folder = scratch("doctor-bare");
    let plugins = folder.join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    let environment = [
        ("GST_PLUGIN_SYSTEM_PATH_1_0", plugins.to_str().unwrap().to_string()),
        ("GST_REGISTRY", folder.join("registry").to_str().unwrap().to_string()),
    ];
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (status, shown, stderr) = doctor("doctor-bare-run", &["--json"], &environment);
    let report: Value = serde_json::from_str(&shown).unwrap_or_else(|error| panic!("{error}: {shown}{stderr}"));
    assert_eq!((status, &report["works"]), (Some(1), &false.into()), "{shown}");
    for (name, costs) in
        [("decodebin", "install gstreamer1.0-plugins-base"), ("H.264 encoder", "--no-video"), ("RTSP", "rtsp://")]
    {
        let check = check(&report, name);
        assert!(check["there"] == false && check["costs"].as_str().unwrap().contains(costs), "{check}");
    }
    assert!(check(&report, "chain on the CPU")["found"].as_str().unwrap().contains("videotestsrc"), "{shown}");
}

/// A machine with a GPU is for tests/gpu.
#[test]
fn without_a_gpu_its_trial_fails_and_says_why() {
    let (status, shown, _) = doctor("doctor-gpu", &["--gpu", "--json"], &[("CUDA_VISIBLE_DEVICES", "")]);
    let report: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((status, &report["works"]), (Some(1), &false.into()));
    for name in ["NVIDIA driver", "chain on the GPU"] {
        let check = check(&report, name);
        assert!(
            check["there"] == false && check["costs"].as_str().unwrap().contains("models run on the CPU"),
            "{check}"
        );
    }
    assert_eq!(check(&report, "chain on the CPU")["there"], true);
}
