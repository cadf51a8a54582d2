// SPDX-License-Identifier: MPL-2.0
//! Heads whose outputs come once for each stride, whose boxes or points count from cells or prior boxes, and whose objectness
//! lies apart; and files that describe such heads.

use super::outputs::head_over;
use super::*;

/// Layout files that describe heads again, and heads that are not among those of this crate.
const FILES: [&str; 11] = [
    include_str!("../../../tests/layouts/scrfd.toml"),
    include_str!("../../../tests/layouts/yunet.toml"),
    include_str!("../../../tests/layouts/retinaface.toml"),
    include_str!("../../../tests/layouts/picodet.toml"),
    include_str!("../../../tests/layouts/rtmdet.toml"),
    include_str!("../../../tests/layouts/nanodet.toml"),
    include_str!("../../../tests/layouts/yolox.toml"),
    OBJECTNESS_FIRST,
    ROOT_IN_A_ROW,
    ANCHOR_MAPS,
    ANCHORS_WITH_POINTS,
];

const OBJECTNESS_FIRST: &str = r#"
name = "objectness-first"
task = "detect"
suppression = "iou"
[[output]]
name = "scores"
dims = ["batch", "rows", "columns"]
columns = ["objectness", { column = "ignored", count = 2 }, "classes"]
[[output]]
name = "boxes"
dims = ["batch", "rows", "columns"]
columns = [{ column = "box", encoding = "corners" }]
"#;

/// Five strides, three rows for each cell, and points with a third number that count from the middle.
const ROOT_IN_A_ROW: &str = r#"
name = "root-in-a-row"
task = "pose"
suppression = "iou"
[grid]
strides = [64, 8, 128, 32, 16]
anchors = 3
[keypoints]
count = 4
numbers = 3
[[output]]
dims = ["batch", "rows", "columns"]
columns = ["classes", "root-objectness", { column = "box", encoding = "middle-distances" }, "cell-keypoints"]
"#;

/// As darknet has YOLOv4: maps of three anchors, with centres that are stretched.
const ANCHOR_MAPS: &str = r#"
name = "anchor-maps"
task = "detect"
suppression = "iou"
[grid]
strides = [8, 16, 32]
anchors = 3
priors = [[12, 16], [19, 36], [40, 28], [36, 75], [76, 55], [72, 146], [142, 110], [192, 243], [459, 401]]
scale-x-y = [1.2, 1.1, 1.05]
[[output]]
dims = ["batch", "columns", "cells"]
columns = [{ column = "box", encoding = "prior-logits" }, "objectness-logit", "classes"]
"#;

/// Maps of two anchors, each with points.
const ANCHORS_WITH_POINTS: &str = r#"
name = "anchors-with-points"
task = "pose"
suppression = "iou"
[grid]
strides = [16, 32]
anchors = 2
priors = [[23, 27], [37, 58], [81, 82], [135, 169]]
[keypoints]
count = 2
numbers = 2
[[output]]
dims = ["batch", "columns", "cells"]
columns = [{ column = "box", encoding = "prior-logits" }, "cell-keypoints", "objectness-logit", "classes"]
"#;

/// Heads by stride and of cells, and those of the files.
fn formats() -> Vec<&'static HeadFormat> {
    let own = ["scrfd", "scrfd-boxes", "yunet", "retinaface", "picodet", "rtmdet"];
    own.into_iter().chain(FILES).map(|name| HeadFormat::of_name(name).unwrap()).collect()
}

/// How many boxes were left of so many frames of each, whose tensors lie elsewhere each time.
fn compare(context: &Context, inputs: &[(u32, u32)], types: &[(DType, DType)], frames: usize) -> usize {
    let (mut random, mut left) = (Random(9), 0);
    for format in formats() {
        for &input in inputs {
            for &(even, odd) in types {
                let rows = [8, 16, 32].map(|stride: u32| input.0.div_ceil(stride) * input.1.div_ceil(stride));
                let classes = classes_of(format, 3);
                let shape = (rows.iter().sum::<u32>() as usize, classes, input);
                // Types of outputs next to each other differ; those of an output's strides do not.
                let outputs = |random: &mut Random| -> Vec<Tensor> {
                    let [even, odd] = [even, odd].map(|dtype| head_over(format, random, shape, (dtype, dtype), 50));
                    let levels = even.len() / format.outputs.len();
                    let pairs = even.into_iter().zip(odd).enumerate();
                    pairs.map(|(at, (even, odd))| if at / levels % 2 == 0 { even } else { odd }).collect()
                };
                let hints = ModelHints { input: Some(input), classes: Some(classes), ..ModelHints::default() };
                let mut pair = Pair::new(context, format, &outputs(&mut random), &hints);
                for frame in 0..frames {
                    let thresholds = [Thresholds::uniform(0.25), Thresholds::new(vec![0.6, 0.1], 0.3)];
                    let (iou, limit, agnostic) = random.one_of(&SETTINGS);
                    let mut nms = Nms::new(iou, limit, agnostic);
                    let tensors = outputs(&mut random);
                    left += pair.compare("cells", &tensors, &thresholds[frame % 2], &mut nms);
                }
            }
        }
    }
    left
}

const SAME: [(DType, DType); 2] = [(DType::F32, DType::F32), (DType::F16, DType::F16)];
const MIXED: [(DType, DType); 2] = [(DType::F16, DType::F32), (DType::F32, DType::F16)];

#[test]
fn every_layout_of_cells() {
    let Some(context) = gpu::context() else { return };
    // The second and third have an odd number of cells.
    let left = compare(&context, &[(640, 640), (72, 72), (200, 104)], &SAME, 6);
    assert!(left > 10_000, "{left} boxes are too few to have compared anything");
}

#[test]
fn outputs_of_several_types() {
    let Some(context) = gpu::context() else { return };
    let left = compare(&context, &[(320, 320), (72, 72)], &MIXED, 3);
    assert!(left > 1_000, "{left} boxes are too few to have compared anything");
}

/// The outputs that are compared have objects in them. Needs no GPU.
#[test]
fn hosts_find_boxes_in_them() {
    let mut random = Random(3);
    for format in formats().into_iter().chain(all_layouts()) {
        let classes = classes_of(format, 3);
        let mut outputs = || head(format, &mut random, (84, classes, 64), (DType::F32, DType::I32), 50);
        let descs: Vec<_> = outputs().iter().map(|tensor| tensor.desc().clone()).collect();
        let keypoints = Some(KeypointModel { shape: KEYPOINTS, names: Vec::new() });
        let hints = ModelHints { input: Some((64, 64)), classes: Some(classes), keypoints, ..ModelHints::default() };
        let decoder = Decoder::new(Some(format), &descs, &hints).unwrap();
        let mut found = Vec::new();
        // Of some heads an output says how many rows count, which may be none.
        (0..8).for_each(|_| decoder.decode(&outputs(), &Thresholds::uniform(0.0), &mut found).unwrap());
        assert!(found.len() > 20, "{format}: {}", found.len());
    }
}

/// For tools that make kernels a thousand times slower.
#[test]
fn each_in_short() {
    let Some(context) = gpu::context() else { return };
    let left = compare(&context, &[(72, 104)], &[MIXED[0]], 2);
    assert!(left > 100, "{left} boxes are too few to have compared anything");
}
