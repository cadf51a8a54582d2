// SPDX-License-Identifier: MPL-2.0
//! What a layout that the user has chosen changes of the input: in pipelines, and in sessions.

use gsttrt_core::image::geometry::ResizeMode;
use gsttrt_core::image::transform::{Colors, InputTransform};
use gsttrt_core::session::{Detector, SessionOptions, parse_options};

use crate::common::boxes::model;
use crate::common::onnx::{F32, Graph, U8};
use crate::common::{launch, scratch, with};

/// Models of another layout want another input, and trtinfer knows the file alone.
#[test]
fn trtpreprocess_makes_what_a_forced_layout_wants() {
    let folder = scratch("doubt");
    let model = model(&folder, &[[8.0, 8.0, 24.0, 24.0, 0.9, 0.0]]);
    let bytes = Graph::new()
        .input("images", U8, &["1", "1", "64", "64"])
        .constant("output0", &[1, 1, 6], &[0.0; 6])
        .save(&folder.join("bytes.onnx"));
    let cells = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output", &[1, 84, 6], &[0.0; 84 * 6])
        .save(&folder.join("cells.onnx"));
    let warnings = |settings: &str, model: &str, nms: &str| {
        let line = format!("trtpreprocess {settings} ! trtinfer model-file={model} ! queue ! trtnms {nms} ! fakesink");
        let outcome =
            launch(&format!("videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=32 ! {line}"));
        outcome.expect_success();
        outcome.warnings
    };
    for (model, nms) in [
        (&model, "layout=auto"),
        (&model, "layout=end-to-end"),
        (&model, "layout=detr-topk"),  // stretched, where others are letterboxed
        (&cells, "layout=yolox"),      // BGR up to 255, at the top left
        (&bytes, "layout=end-to-end"), // grey bytes are this model's own wish
    ] {
        assert_eq!(warnings("", model, nms), [""; 0], "{nms}");
    }
    // What the user sets for trtpreprocess holds, and is doubted. The properties that the warning names are those to set.
    let settings = "tensor-colors=bgr scale=1 resize=letterbox-top-left";
    let said = warnings("tensor-colors=rgb scale=0.5 resize=letterbox", &cells, "layout=yolox");
    assert!(said.len() == 1 && said[0].contains(&format!("set {settings} on trtpreprocess")), "{said:?}");
    assert_eq!(warnings(settings, &cells, "layout=yolox"), [""; 0]);
    assert!(warnings("resize=letterbox", &cells, "layout=yolox")[0].contains("set resize=letterbox-top-left on"));
    // Only the first trtnms behind it is asked.
    let chain = format!("layout=auto ! trtpreprocess ! trtinfer model-file={cells} ! trtnms layout=yolox");
    assert_eq!(warnings("", &model, &chain), [""; 0]);
    let stretched = format!("layout=detr-topk ! trtpreprocess ! trtinfer model-file={model} ! trtnms");
    assert!(warnings("resize=letterbox", &model, &stretched)[0].contains("detr-topk"));
}

/// As trtpreprocess does for a layout that trtnms has.
#[test]
fn a_layout_brings_the_input_that_its_models_want() {
    let folder = scratch("session-layout");
    let cells =
        Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("output", &[1, 84, 6], &[0.0; 84 * 6]);
    let cells = cells.save(&folder.join("cells.onnx"));
    let options = |layout: &str| parse_options([format!("layout={layout}").as_str()]).unwrap().1;
    let wanted = |detector: &Detector| {
        let InputTransform { colors, fit, scale, mean, .. } = *detector.transform();
        (colors, fit, scale, mean)
    };
    let yolox = (Colors::Bgr, ResizeMode::LetterboxTopLeft, 1.0, [0.5; 3]);
    let yolov8 = (Colors::Rgb, ResizeMode::Letterbox, 1.0 / 255.0, [0.5; 3]);
    let own = with(SessionOptions::default(), |options| options.mean = Some([0.5; 3]));
    let mut detector = Detector::open(&cells, &own, options("yolox")).unwrap();
    assert_eq!(wanted(&detector), yolox, "and the mean is the user's");
    detector.set_options(options("yolov8-transposed"));
    assert_eq!(wanted(&detector), yolov8);
    let changed = InputTransform { scale: 2.0, ..*detector.transform() };
    detector.set_transform(changed);
    detector.set_options(with(options("yolov8-transposed"), |options| options.score_threshold = 0.5));
    assert_eq!(*detector.transform(), changed, "the same layout changes nothing");
}
