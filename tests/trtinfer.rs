//! trtinfer: properties, what is read from model files, and models that cannot be used.

mod common;

use common::onnx::{F32, Graph};
use common::{launch, scratch, shapes};

#[test]
fn runs_the_model() {
    let outcome = launch(&format!(
        "videotestsrc num-buffers=3 ! video/x-raw,format=RGB,width=64,height=48 ! trtpreprocess ! trtinfer model-file={} ! fakesink",
        shapes()
    ));
    outcome.expect_success();
    assert!(outcome.progress.iter().any(|text| text.starts_with("Loaded shapes.onnx")), "{outcome:?}");
}

#[test]
fn a_constant_head_is_found() {
    let folder = scratch("constant-head");
    let model = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, 2, 6], &[8.0, 8.0, 24.0, 24.0, 0.9, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
        .metadata("names", "{0: 'a', 1: 'b'}")
        .save(&folder.join("constant.onnx"));
    let outcome = launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess ! trtinfer model-file={model} ! trtnms post-messages=true ! fakesink"
    ));
    outcome.expect_success();
    let detections = outcome.elements.iter().find(|s| s.name() == "trt-detections").unwrap();
    assert_eq!(detections.get::<gst::ArrayRef>("detections").unwrap().len(), 1);
}

#[test]
fn a_missing_file_is_named() {
    launch("videotestsrc ! trtpreprocess ! trtinfer model-file=/nowhere/x.onnx ! fakesink")
        .expect_error("ResourceError::NotFound", &["/nowhere/x.onnx", "model-file"]);
}
