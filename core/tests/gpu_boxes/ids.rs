// SPDX-License-Identifier: MPL-2.0
//! Class ids of any number, and rotated boxes with a logit for each class.

use super::outputs::whole;
use super::*;

/// Below 0, of no number, at the limits of labels and of types, and far beyond.
const IDS: [f32; 28] = [
    f32::NEG_INFINITY,
    f32::MIN,
    -2_147_483_648.0,
    -1.0,
    -0.5,
    -0.0,
    0.0,
    0.9,
    1.0,
    2.0,
    2.9,
    3.0,
    79.0,
    80.0,
    255.0,
    256.0,
    2047.0,
    2048.0,
    2050.0,
    65_504.0,
    65_535.0,
    65_536.0,
    16_777_216.0,
    4_294_967_296.0,
    1e30,
    f32::MAX,
    f32::INFINITY,
    f32::NAN,
];

#[test]
fn ids_of_any_number() {
    let Some(context) = gpu::context() else { return };
    let rows = IDS.len() as i64;
    let boxes: Vec<f32> =
        (0..IDS.len()).flat_map(|row| [row as f32 * 9.0, 4.0, row as f32 * 9.0 + 8.0, 9.0, 0.5]).collect();
    let lists = [
        Thresholds::uniform(0.25),
        Thresholds::uniform(0.6),
        Thresholds::only(&[2, 79], 0.25),
        Thresholds::new(vec![0.6, 0.1, Thresholds::NEVER, 0.1], 0.4),
        // Longer than the classes mostly are.
        Thresholds::new((0..70_000).map(|class| (class % 3) as f32 * 0.3).collect(), 0.3),
    ];
    let mut left = 0;
    for dtype in [DType::F32, DType::F16, DType::U8, DType::I32, DType::I64] {
        for classes in [None, Some(1), Some(3), Some(80), Some(2048), Some(2049), Some(2050), Some(65_536)] {
            let hints = ModelHints { input: Some((640, 640)), classes, ..ModelHints::default() };
            let tensors = |ids: &[f32]| {
                [Tensor::from_slice("dets", &[1, rows, 5], &boxes), whole("labels", &[1, rows], dtype, ids)]
            };
            let mut pair = Pair::new(&context, &mmdeploy::HEAD, &tensors(&IDS), &hints);
            let mut nms = Nms::new(0.5, 300, false);
            for list in &lists {
                left += pair.compare("any id", &tensors(&IDS), list, &mut nms);
                // What was left out of one frame is not of the next ones.
                left += pair.compare("known ids", &tensors(&[0.0; IDS.len()]), list, &mut nms);
            }
        }
    }
    assert!(left > 1_000, "{left} boxes are too few to have compared anything");
}

/// Few boxes are suppressed by one block, and many by all blocks: both pass on what was counted.
#[test]
fn ids_beyond_the_labels_next_to_boxes_that_repeat() {
    let Some(context) = gpu::context() else { return };
    let hints = ModelHints { input: Some((640, 640)), classes: Some(2), ..ModelHints::default() };
    let mut random = Random(6);
    let mut pair = Pair::new(&context, &deepstream_yolo::HEAD, &[given(&[], 3000)], &hints);
    for count in [0, 1, 90, 500, 3000, 20, 0] {
        let tensors = [given(&anywhere(&mut random, count, 5, false), 3000)];
        for (iou, limit, agnostic) in SETTINGS {
            let mut nms = Nms::new(iou, limit, agnostic);
            pair.compare("five classes", &tensors, &Thresholds::uniform(0.1), &mut nms);
        }
    }
}

/// Each row has several candidates, all with its angle.
const TURNED_LOGITS: &str = r#"
name = "turned-logits"
task = "obb"
suppression = "rotated-iou"
[[output]]
name = "boxes"
dims = ["batch", "rows", "columns"]
columns = [{ column = "box", encoding = "center" }, "angle"]
[[output]]
name = "scores"
dims = ["batch", "rows", "columns"]
columns = [{ column = "logits", background = false }]
"#;

#[test]
fn angles_next_to_logits() {
    let Some(context) = gpu::context() else { return };
    let (mut random, mut left) = (Random(8), 0);
    for text in [TURNED_LOGITS, &TURNED_LOGITS.replace("rotated-iou", "none")] {
        let layout = HeadFormat::of_name(text).unwrap();
        for (types, rows, classes) in [(DType::F32, 84, 17), (DType::F16, 189, 3), (DType::F32, 300, 91)] {
            let hints = ModelHints { input: Some((640, 640)), classes: Some(classes), ..ModelHints::default() };
            let mut outputs = || head(layout, &mut random, (rows, classes, 640), (types, types), 50);
            let mut pair = Pair::new(&context, layout, &outputs(), &hints);
            for (iou, limit, agnostic) in SETTINGS {
                let mut nms = Nms::new(iou, limit, agnostic);
                left += pair.compare("turned", &outputs(), &Thresholds::uniform(0.25), &mut nms);
            }
        }
    }
    assert!(left > 500, "{left} boxes are too few to have compared anything");
}
