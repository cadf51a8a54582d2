// SPDX-License-Identifier: MPL-2.0
//! Medians of decoding and suppression on one core, and the best, which a busy machine spoils less:
//!
//! `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo bench --profile dev --bench nms`

#[allow(dead_code)] // the tests use more of it
#[path = "../../core/tests/common/random.rs"]
mod random;

use std::hint::black_box;
use std::time::{Duration, Instant};

use gsttrt_core::heads::{
    DecodeKernel, Decoder, HeadFormat, ModelHints, Thresholds, yolov5, yolov8, yolov8_transposed,
};
use gsttrt_core::image::Candidate;
use gsttrt_core::image::geometry::BBox;
use gsttrt_core::postprocess::suppress::Nms;
use gsttrt_core::tensor::{Element, Tensor};
use half::f16;
use random::Random;

fn report(name: &str, mut run: impl FnMut() -> usize) {
    let mut left = 0;
    let mut times: Vec<Duration> = (0..51)
        .map(|_| {
            let start = Instant::now();
            left = black_box(run());
            start.elapsed()
        })
        .collect();
    times.sort();
    let [median, best] = [times[times.len() / 2], times[0]].map(|time| time.as_secs_f64() * 1e6);
    println!("{name:<60} {median:>9.1} µs, best {best:>9.1}; {left} boxes");
}

/// A head of random boxes, of which about `passing` rows score above 0.5.
fn head<T: Element>(
    layout: &'static HeadFormat,
    anchors: usize,
    classes: usize,
    passing: usize,
    from: fn(f32) -> T,
) -> (Decoder, Vec<Tensor>) {
    let mut random = Random(7);
    let columns = classes + if layout.kernel() == (DecodeKernel::Rows { objectness: true }) { 5 } else { 4 };
    let mut rows = vec![0.0f32; anchors * columns];
    for (anchor, row) in rows.chunks_exact_mut(columns).enumerate() {
        let passes = anchor * passing / anchors != (anchor + 1) * passing / anchors;
        row[..4].copy_from_slice(&[(); 4].map(|()| random.between(20.0, 500.0)));
        row[4..].iter_mut().for_each(|score| *score = random.between(0.0, 0.2));
        if passes {
            row[columns - 1] = random.between(0.75, 1.0);
            if layout.kernel() == (DecodeKernel::Rows { objectness: true }) {
                row[4] = random.between(0.75, 1.0);
            }
        }
    }
    let (dims, values) = match layout.kernel() {
        DecodeKernel::Columns => {
            let columns_first = (0..rows.len()).map(|i| rows[i % anchors * columns + i / anchors]);
            ([1, columns as i64, anchors as i64], columns_first.map(from).collect::<Vec<_>>())
        }
        _ => ([1, anchors as i64, columns as i64], rows.into_iter().map(from).collect()),
    };
    let tensors = vec![Tensor::from_slice("output0", &dims, &values)];
    let descs: Vec<_> = tensors.iter().map(|tensor| tensor.desc().clone()).collect();
    let hints = ModelHints { input: Some((512, 512)), ..ModelHints::default() };
    (Decoder::new(Some(layout), &descs, &hints).unwrap(), tensors)
}

fn decode<T: Element>(layout: &'static HeadFormat, anchors: usize, classes: usize, from: fn(f32) -> T) {
    for passing in [20, 2000] {
        let (decoder, tensors) = head(layout, anchors, classes, passing, from);
        let (thresholds, mut out) = (Thresholds::uniform(0.5), Vec::new());
        let name = format!("decode {layout}, {} {}, {passing} pass", tensors[0].desc().dtype, tensors[0].desc().dims);
        report(&name, || {
            out.clear();
            decoder.decode(&tensors, &thresholds, &mut out).unwrap();
            out.len()
        });
    }
}

/// `objects` things in a picture of 640x640, and their boxes as a dense head sees them: many, all a little off.
fn scene(boxes: usize, objects: usize, classes: u32, sizes: (f32, f32)) -> Vec<Candidate> {
    let mut random = Random(11);
    let things: Vec<_> = (0..objects)
        .map(|_| {
            let (width, height) = (random.between(sizes.0, sizes.1), random.between(sizes.0, sizes.1));
            let class = random.next() as u32 % classes;
            (random.between(0.0, 640.0), random.between(0.0, 640.0), width, height, class)
        })
        .collect();
    (0..boxes)
        .map(|row| {
            let (cx, cy, width, height, class) = things[row % objects];
            let mut off = |size: f32| size * random.between(-0.1, 0.1);
            let bbox = BBox::from_center(cx + off(width), cy + off(height), width + off(width), height + off(height));
            Candidate { bbox, score: random.unit(), class, row: row as u32, angle: 0.0 }
        })
        .collect()
}

fn suppress(name: &str, scene: impl Fn(usize) -> Vec<Candidate>, limit: usize) {
    for boxes in [500, 2000, 8000] {
        let (given, mut nms, mut detections) = (scene(boxes), Nms::new(0.45, limit, false), Vec::new());
        report(&format!("nms {boxes}: {name}"), || {
            detections.clear();
            detections.extend_from_slice(&given);
            nms.suppress(&mut detections);
            detections.len()
        });
    }
}

fn main() {
    decode(&yolov5::HEAD, 16128, 2, |v| v);
    decode(&yolov5::HEAD, 16128, 2, f16::from_f32);
    decode(&yolov5::HEAD, 16128, 80, |v| v);
    decode(&yolov8::HEAD, 8400, 80, |v| v);
    decode(&yolov8::HEAD, 8400, 80, f16::from_f32);
    decode(&yolov8_transposed::HEAD, 8400, 80, |v| v);
    decode(&yolov8_transposed::HEAD, 8400, 80, f16::from_f32);

    for (classes, of) in [(1, "1 class"), (80, "80 classes")] {
        suppress(&format!("60 objects, {of}, at most 300"), |n| scene(n, 60, classes, (20.0, 200.0)), 300);
        suppress(
            &format!("one object, {of}"),
            |n| {
                let mut random = Random(3);
                let mut boxes = scene(n, 1, 1, (200.0, 200.0));
                boxes.iter_mut().for_each(|detection| detection.class = random.next() as u32 % classes);
                boxes
            },
            usize::MAX,
        );
        suppress(
            &format!("none overlap, {of}"),
            |n| {
                let mut boxes = scene(n, n, classes, (3.0, 6.0));
                for (i, Candidate { bbox, .. }) in boxes.iter_mut().enumerate() {
                    *bbox =
                        BBox::from_center((i % 90) as f32 * 7.0, (i / 90) as f32 * 7.0, bbox.width(), bbox.height());
                }
                boxes
            },
            usize::MAX,
        );
        suppress(&format!("anything anywhere, {of}"), |n| scene(n, n, classes, (5.0, 300.0)), usize::MAX);
    }
}
