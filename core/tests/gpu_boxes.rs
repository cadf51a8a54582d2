// SPDX-License-Identifier: MPL-2.0
//! Decoding and suppression on the GPU against the reference implementations on the CPU: the same detections, in the
//! same order, bit for bit.
//!
//! Needs a GPU; prints SKIP where there is none, and fails instead with `REQUIRE_GPU=1`.

use std::sync::Arc;

use gsttrt_core::cuda::driver::{Context, Stream};
use gsttrt_core::error::ErrorKind;
use gsttrt_core::heads::{
    BackgroundClass, Decoder, HEADS, HeadFormat, MaskParts, MaskSource, ModelHints, Thresholds, deepstream_yolo,
    detr_logits, end_to_end, layout_file, mmdeploy, rf_detr, yolox,
};
use gsttrt_core::image::Candidate;
use gsttrt_core::image::keypoints::KeypointModel;
use gsttrt_core::image::masks::{Masks, Prototypes};
use gsttrt_core::memory::DevicePool;
use gsttrt_core::postprocess::gather;
use gsttrt_core::postprocess::suppress::Nms;
use gsttrt_core::postprocess::suppress::device::DeviceDecoder;
use gsttrt_core::tensor::{DType, Tensor};
use half::f16;

use crate::common::random::Random;
use crate::common::{gpu, path};

mod cells;
mod ids;
mod outputs;

use outputs::{KEYPOINTS, classes_of, head};

/// The GPU's way and the CPU's, side by side.
struct Pair {
    stream: Arc<Stream>,
    pool: DevicePool,
    decoder: Decoder,
    boxes: DeviceDecoder,
    /// Width and height of the model's input.
    input: (u32, u32),
}

impl Pair {
    fn new(context: &Context, layout: &'static HeadFormat, tensors: &[Tensor], hints: &ModelHints) -> Self {
        let descs: Vec<_> = tensors.iter().map(|tensor| tensor.desc().clone()).collect();
        let decoder = Decoder::new(Some(layout), &descs, hints).unwrap();
        let boxes = DeviceDecoder::new(context, &decoder).unwrap();
        let (stream, pool) = (Arc::new(Stream::new(context).unwrap()), DevicePool::new(context));
        Pair { stream, pool, decoder, boxes, input: hints.input.unwrap() }
    }

    fn upload(&self, tensors: &[Tensor]) -> Vec<Tensor> {
        let upload = |tensor: &Tensor| {
            let bytes = tensor.bytes().unwrap();
            let mut block = self.pool.take(bytes.len()).unwrap();
            block.write(bytes).unwrap();
            assert_eq!(block.read().unwrap(), bytes); // and so it has arrived
            Tensor::on_device(tensor.desc().clone(), block)
        };
        tensors.iter().map(upload).collect()
    }

    /// Returns how many boxes were left.
    #[track_caller]
    fn compare(&mut self, what: &str, tensors: &[Tensor], thresholds: &Thresholds, nms: &mut Nms) -> usize {
        let mut wanted = Vec::new();
        let lost = self.decoder.decode_counted(tensors, thresholds, &mut wanted).unwrap();
        let candidates = wanted.len();
        nms.run(self.decoder.format().suppress(), &mut wanted);
        wanted.truncate(self.decoder.rows().unwrap_or(wanted.len()));
        let uploaded = self.upload(tensors);
        let read = self.decoder.pick(&uploaded).unwrap();
        self.boxes.launch(&self.stream, &read, thresholds, nms).unwrap();
        assert_eq!(self.boxes.lost().unwrap(), lost, "{what}: what is left out");
        let have = self.boxes.detections().unwrap();
        let about = || {
            let (iou_threshold, max_detections, class_agnostic) =
                (nms.iou_threshold, nms.max_detections, nms.class_agnostic);
            let settings = format!("iou {iou_threshold}, at most {max_detections}, agnostic {class_agnostic}");
            format!("{what}: {} {}, {candidates} candidates, {settings}", self.decoder.format(), tensors[0].desc())
        };
        assert_eq!(have.len(), wanted.len(), "{}", about());
        for (place, (have, wanted)) in have.iter().zip(&wanted).enumerate() {
            let same = bytemuck::bytes_of(have) == bytemuck::bytes_of(wanted);
            assert!(same, "{}: box {place} is {have:?} instead of {wanted:?}", about());
        }
        if let Some(view) = self.decoder.gather_view() {
            let mut expected = Vec::new();
            match self.decoder.has_cell_keypoints() {
                true => self.decoder.cell_keypoints(tensors, &wanted, &mut expected).unwrap(),
                false => gather(&view, self.decoder.pick(tensors).unwrap()[view.output], &wanted, &mut expected),
            }
            let have = self.boxes.gathered().unwrap();
            let same =
                |(have, wanted): (&f32, &f32)| have.to_bits() == wanted.to_bits() || have.is_nan() && wanted.is_nan();
            assert!(
                have.len() == expected.len() && have.iter().zip(&expected).all(same),
                "{}: what is gathered",
                about()
            );
        }
        if let Some(MaskSource { shape, output, parts }) = self.decoder.masks() {
            let (picked, mut coefficients) = (self.decoder.pick(tensors).unwrap(), Vec::new());
            let (mut expected, mut have) = (Masks::default(), Masks::default());
            let prototypes = Prototypes::new(shape, picked[output]).unwrap();
            match parts {
                MaskParts::Prototypes(view) => {
                    gather(&view, picked[view.output], &wanted, &mut coefficients);
                    expected.find(&prototypes, &coefficients, &wanted, self.input);
                }
                MaskParts::Maps(over) => expected.find_maps(over, &prototypes, &wanted, self.input),
            }
            self.boxes.masks(&mut have).unwrap();
            assert!(have == expected, "{}: masks", about());
        }
        wanted.len()
    }
}

const SETTINGS: [(f32, usize, bool); 5] =
    [(0.45, 300, false), (0.45, usize::MAX, true), (0.0, 20, false), (1.0, usize::MAX, false), (0.7, 1, true)];

/// All layouts that kernels decode, and the files that describe some of them again.
fn all_layouts() -> impl Iterator<Item = &'static HeadFormat> {
    let folder = std::fs::read_dir(path("tests/layouts")).unwrap();
    let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 19, "{files:?}");
    let files = files.into_iter().map(|file| layout_file::of_file(&file).unwrap());
    HEADS.iter().copied().chain(files).filter(|layout| layout.has_boxes() && !layout.is_for_host())
}

/// Random heads of all layouts with so many rows, classes and pixels a side; how many boxes they left.
fn layouts(context: &Context, shapes: &[(usize, usize, u32)], types: &[DType], all_ids: &[DType]) -> usize {
    let mut random = Random(1);
    let mut left = 0;
    for layout in all_layouts() {
        let ids = if layout.outputs.len() > 1 && !layout.has_prototypes() { all_ids } else { &[DType::F32] };
        // Masks of a map each take memory for as many masks as rows; real models have a few hundred.
        let shapes = shapes.iter().filter(|(rows, ..)| layout.maps().is_none() || *rows < 1000);
        for &(rows, classes, size) in shapes {
            let classes = classes_of(layout, classes);
            for &floats in types {
                for &ids in ids {
                    let shape = (rows, classes, size);
                    let keypoints = Some(KeypointModel { shape: KEYPOINTS, names: Vec::new() });
                    let hints = ModelHints {
                        input: Some((size, size)),
                        classes: Some(classes),
                        keypoints,
                        ..ModelHints::default()
                    };
                    let first = head(layout, &mut random, shape, (floats, ids), 50);
                    let mut pair = Pair::new(context, layout, &first, &hints);
                    let per_class =
                        (0..classes / 2).map(|class| [0.3, Thresholds::NEVER, -1.0, 0.9][class % 4]).collect();
                    for (i, thresholds) in
                        [Thresholds::uniform(0.25), Thresholds::new(per_class, 0.5), Thresholds::uniform(0.0)]
                            .iter()
                            .enumerate()
                    {
                        let tensors = head(layout, &mut random, shape, (floats, ids), [1000, 50, 7][i]);
                        let (iou, limit, agnostic) = random.one_of(&SETTINGS);
                        left += pair.compare("random", &tensors, thresholds, &mut Nms::new(iou, limit, agnostic));
                    }
                }
            }
        }
    }
    left
}

#[test]
fn every_layout_and_type() {
    let Some(context) = gpu::context() else { return };
    // Rows of YOLOX are the cells of an input of that size.
    let shapes = [(84, 1, 64), (84, 2, 64), (3549, 80, 416), (189, 17, 96), (8400, 3, 640)];
    let ids = [DType::F32, DType::F16, DType::U8, DType::I32, DType::I64];
    let left = layouts(&context, &shapes, &[DType::F32, DType::F16], &ids);
    assert!(left > 10_000, "{left} boxes are too few to have compared anything");
}

/// Some of the same, few enough for a tool that makes kernels a thousand times slower.
#[test]
fn each_layout_with_few_rows() {
    let Some(context) = gpu::context() else { return };
    let left = layouts(&context, &[(84, 2, 64), (189, 17, 96)], &[DType::F16], &[DType::I32]);
    assert!(left > 100, "{left} boxes are too few to have compared anything");
}

/// Logits with and without a background, and a query for each of which several classes pass.
#[test]
fn logits_next_to_a_background() {
    let Some(context) = gpu::context() else { return };
    let (mut random, mut left) = (Random(5), 0);
    for layout in [&rf_detr::HEAD, &detr_logits::HEAD] {
        for background in [BackgroundClass::None, BackgroundClass::First, BackgroundClass::Last] {
            for (types, slots) in [(DType::F32, 2), (DType::F16, 91), (DType::F32, 91)] {
                let hints = ModelHints { input: Some((384, 384)), background, ..ModelHints::default() };
                let first = head(layout, &mut random, (300, slots, 384), (types, types), 50);
                let mut pair = Pair::new(&context, layout, &first, &hints);
                for least in [0.0, 0.25, 0.5, 0.9, 1.0] {
                    let tensors = head(layout, &mut random, (300, slots, 384), (types, types), 50);
                    let mut nms = Nms::new(0.5, 300, false);
                    left += pair.compare("logits", &tensors, &Thresholds::uniform(least), &mut nms);
                }
            }
        }
    }
    assert!(left > 1_000, "{left} boxes are too few to have compared anything");
}

/// Every f16 as a logit.
#[test]
fn sigmoids_of_all_sizes() {
    let Some(context) = gpu::context() else { return };
    let hints = ModelHints { input: Some((64, 64)), ..ModelHints::default() };
    let mut pair = None;
    for first in (0..=u16::MAX).step_by(256) {
        let logits: Vec<f32> = (0..256).map(|i| f16::from_bits(first + i).to_f32()).collect();
        let boxes = [0.5f32; 256 * 4];
        let tensors =
            [Tensor::from_slice("boxes", &[1, 256, 4], &boxes), Tensor::from_slice("logits", &[1, 256, 1], &logits)];
        let pair = pair.get_or_insert_with(|| Pair::new(&context, &detr_logits::HEAD, &tensors, &hints));
        pair.compare("sigmoid", &tensors, &Thresholds::uniform(0.0), &mut Nms::new(1.0, usize::MAX, false));
    }
}

#[test]
fn exp_of_all_sizes() {
    // Every f16 is a log of a width, and as many f32.
    let Some(context) = gpu::context() else { return };
    let mut random = Random(2);
    let hints = ModelHints { input: Some((256, 256)), ..ModelHints::default() };
    let rows = 32 * 32 + 16 * 16 + 8 * 8;
    let mut pair = None;
    for bits in (0..=u16::MAX).step_by(rows) {
        let values: Vec<f32> = (0..rows)
            .flat_map(|row| {
                let w = f16::from_bits(bits.wrapping_add(row as u16)).to_f32();
                [0.5, 0.5, w, random.between(-20.0, 20.0), 1.0, 1.0]
            })
            .collect();
        let tensors = [Tensor::from_slice("output", &[1, rows as i64, 6], &values)];
        let pair = pair.get_or_insert_with(|| Pair::new(&context, &yolox::HEAD, &tensors, &hints));
        pair.compare("exp", &tensors, &Thresholds::uniform(0.5), &mut Nms::new(1.0, usize::MAX, false));
    }
}

/// Any boxes at all, as a head that still needs suppression.
fn given(detections: &[Candidate], rows: usize) -> Tensor {
    let mut values = vec![0.0; rows * 6];
    for (row, d) in values.chunks_exact_mut(6).zip(detections) {
        row.copy_from_slice(&[d.bbox.x1, d.bbox.y1, d.bbox.x2, d.bbox.y2, d.score, d.class as f32]);
    }
    Tensor::from_slice("output", &[1, rows as i64, 6], &values)
}

fn detection(x: f32, y: f32, width: f32, height: f32, score: f32, class: u32) -> Candidate {
    let bbox = gsttrt_core::image::geometry::BBox::new(x, y, x + width, y + height);
    Candidate { bbox, score, class, row: 0, angle: 0.0 }
}

/// More than twice the window.
const CROWD: usize = 18000;

fn anywhere(random: &mut Random, count: usize, classes: usize, equal: bool) -> Vec<Candidate> {
    let mut one = || {
        let (x, y) = (random.between(0.0, 640.0), random.between(0.0, 640.0));
        let (w, h) = (random.between(1.0, 120.0), random.between(1.0, 120.0));
        let score = if equal { 0.5 } else { random.between(0.01, 1.0) };
        detection(x, y, w, h, score, random.below(classes) as u32)
    };
    (0..count).map(|_| one()).collect()
}

/// For crowds, in addition to those for all heads.
const CROWD_SETTINGS: [(f32, usize, bool); 8] = [
    (0.5, 0, false),
    (0.5, 64, false),
    (0.5, 65, true),
    (0.3, 4096, true),
    (0.9, 5000, false),
    (0.9, 10000, false),
    (-1.0, 9, false),
    (f32::NAN, 9, false),
];
const ALL_SETTINGS: usize = SETTINGS.len() + CROWD_SETTINGS.len();

type Crowd = (String, Vec<Candidate>);

/// Each of them with so many settings, which take turns.
fn compare_crowds(context: &Context, crowds: &[Crowd], each: usize) {
    let hints = ModelHints { input: Some((640, 640)), classes: Some(80), ..ModelHints::default() };
    let rows = crowds.iter().map(|(_, crowd)| crowd.len()).max().unwrap();
    let mut pair = Pair::new(context, &deepstream_yolo::HEAD, &[given(&[], rows)], &hints);
    let mut settings = SETTINGS.into_iter().chain(CROWD_SETTINGS).cycle();
    for (what, crowd) in crowds {
        let tensors = [given(crowd, rows)];
        for (iou, limit, agnostic) in settings.by_ref().take(each) {
            pair.compare(what, &tensors, &Thresholds::uniform(0.001), &mut Nms::new(iou, limit, agnostic));
        }
    }
}

/// At borders of words, of what a block ranks alone, of what is compared without a matrix on a GPU with some multiprocessors, of steps, of
/// rows of the matrix, and of the window.
fn crowds_at_borders() -> Vec<Crowd> {
    let mut random = Random(3);
    let small = [0, 1, 2, 63, 64, 65, 127, 128, 129, 256, 257, 500, 512, 513, 1024, 1025, 1536, 1537, 2000, 2048, 2049];
    let more = [2560, 2561, 3072, 3073, 3584, 3585, 4095, 4096, 4097, 4160, 4161, 5120, 5121, 6144, 6145];
    let counts = small.into_iter().chain(more).chain([8191, 8192, 8193, 8256, 8257, CROWD]);
    counts.map(|count| (format!("{count} anywhere"), anywhere(&mut random, count, 80, false))).collect()
}

/// Those that are one kind of box have so many.
fn crowds_of_kinds(count: usize) -> Vec<Crowd> {
    let mut random = Random(4);
    let mut crowds: Vec<Crowd> = Vec::new();
    crowds.push(("one class".into(), anywhere(&mut random, 3000, 1, false)));
    crowds.push(("equal scores".into(), anywhere(&mut random, 5000, 3, true)));
    let apart = |i: usize, score| detection((i % 100) as f32 * 6.0, (i / 100) as f32 * 6.0, 5.0, 5.0, score, 0);
    crowds.push(("none overlap".into(), (0..count).map(|i| apart(i, 0.5)).collect()));
    crowds.push(("none overlap, worst first".into(), (0..count).map(|i| apart(i, 0.1 + i as f32 * 1e-5)).collect()));
    crowds.push(("all the same".into(), vec![detection(9.0, 9.0, 50.0, 50.0, 0.5, 7); count]));
    // Each repeats the next: which are kept depends on all before.
    let chain = |i: usize| detection(i as f32, 0.0, 3.0, 9.0, 1.0 - i as f32 * 1e-5, 0);
    crowds.push(("a chain".into(), (0..count).map(chain).collect()));
    crowds.push(("chains".into(), (0..count).map(|i| chain(i * 7 % 12000)).collect()));
    // As a head's: after the first ones few are undecided, anywhere among the others.
    for (objects, classes) in [(60, 2), (400, 1)] {
        let things = anywhere(&mut random, objects, classes, false);
        for count in [2000, count] {
            let one = |_| {
                let (thing, score) = (random.one_of(&things), random.between(0.01, 1.0));
                near(&mut random, &thing, score)
            };
            crowds.push((format!("{count} on {objects} objects"), (0..count).map(one).collect()));
        }
    }
    // Boxes that repeat about as many better ones as are listed, none of which is kept.
    for count in [60, 61, 62, 63, 64, 65, 130] {
        let mut crowd = vec![detection(0.0, 0.0, 100.0, 50.0, 1.0, 0)];
        crowd.extend(std::iter::repeat_n(detection(37.0, 0.0, 100.0, 50.0, 0.9, 0), count));
        crowd.extend((0..20).map(|i| detection(74.0 + i as f32 * 0.01, 0.0, 100.0, 50.0, 0.8 - i as f32 * 1e-3, 0)));
        crowd.extend((0..20).map(|i| detection(74.0, 0.0, 100.0 + i as f32 * 0.5, 50.0, 0.7, i % 2)));
        crowd.extend((0..100).map(|i| detection(300.0 + i as f32 * 3.0, 0.0, 2.5, 50.0, 0.6, 0)));
        crowds.push((format!("{count} dropped ones are repeated"), crowd));
    }
    // All of an object before any of the next: boxes are kept far behind the best ones.
    let things = anywhere(&mut random, count.div_ceil(40), 80, false);
    let one = |i: usize| near(&mut random, &things[i / 40], 1.0 - i as f32 * 5e-5);
    crowds.push(("one object after the other".into(), (0..count).map(one).collect()));
    crowds
}

/// A box on that object.
fn near(random: &mut Random, Candidate { bbox, class, .. }: &Candidate, score: f32) -> Candidate {
    let sides = [bbox.x2 - bbox.x1, bbox.y2 - bbox.y1];
    let [x, y] = sides.map(|side| side * random.between(-0.1, 0.1));
    let [width, height] = sides.map(|side| side * random.between(0.8, 1.2));
    detection(bbox.x1 + x, bbox.y1 + y, width, height, score, *class)
}

#[test]
fn crowds_of_all_sizes() {
    let Some(context) = gpu::context() else { return };
    compare_crowds(&context, &crowds_at_borders(), ALL_SETTINGS);
}

#[test]
fn crowds_of_every_kind() {
    let Some(context) = gpu::context() else { return };
    compare_crowds(&context, &crowds_of_kinds(CROWD), ALL_SETTINGS);
}

/// Each crowd once, for tools that are slow; the greatest ones just beyond the window.
#[test]
fn each_crowd_in_short() {
    let Some(context) = gpu::context() else { return };
    let mut crowds = crowds_at_borders();
    crowds.retain(|(_, crowd)| crowd.len() < CROWD);
    crowds.extend(crowds_of_kinds(8257));
    compare_crowds(&context, &crowds, 1);
}

/// Boxes that are kept on both sides of it.
#[test]
fn behind_the_window() {
    let Some(context) = gpu::context() else { return };
    const ROWS: usize = 8800;
    let hints = ModelHints { input: Some((640, 640)), ..ModelHints::default() };
    let mut random = Random(5);
    let crowd: Vec<Candidate> = (0..ROWS)
        .map(|_| {
            let (x, y) = (random.between(0.0, 640.0), random.between(0.0, 640.0));
            detection(x, y, random.between(1.0, 9.0), random.between(1.0, 9.0), random.between(0.1, 1.0), 0)
        })
        .collect();
    let tensors = [given(&crowd, ROWS)];
    let mut pair = Pair::new(&context, &deepstream_yolo::HEAD, &tensors, &hints);
    let left = pair.compare("a crowd", &tensors, &Thresholds::uniform(0.1), &mut Nms::new(0.3, usize::MAX, false));
    assert!(left > 3000, "{left}");
}

#[test]
fn ious_at_the_threshold_and_boxes_of_any_size() {
    let Some(context) = gpu::context() else { return };
    const ROWS: usize = 600;
    let hints = ModelHints { input: Some((640, 640)), classes: Some(3), ..ModelHints::default() };
    let mut pair = Pair::new(&context, &deepstream_yolo::HEAD, &[given(&[], ROWS)], &hints);
    let mut random = Random(4);
    for round in 0..300 {
        let iou = random.one_of(&[0.5, 0.25, 1.0 / 3.0, 0.45, 0.0]);
        let crowd: Vec<Candidate> = (0..ROWS)
            .map(|_| {
                let score = random.below(4) as f32 * 0.25;
                let class = random.below(3) as u32;
                if round % 2 == 0 {
                    // Few different coordinates.
                    let [x, y, w, h] = [8, 8, 6, 6].map(|limit| random.below(limit) as f32 * 10.0);
                    detection(x, y, w, h, score, class)
                } else {
                    // Any bits, most of them small enough for a box to come out.
                    let mut wild = || match random.below(4) {
                        0 => f32::from_bits(random.next() as u32),
                        1 => random.one_of(&[0.0, -0.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-38, 1e19]),
                        _ => random.between(-4.0, 4.0),
                    };
                    let bbox = gsttrt_core::image::geometry::BBox::new(wild(), wild(), wild(), wild());
                    Candidate { bbox, score: wild(), class, row: 0, angle: 0.0 }
                }
            })
            .collect();
        let tensors = [given(&crowd, ROWS)];
        let mut nms = Nms::new(iou, usize::MAX, random.below(2) == 0);
        pair.compare("wild", &tensors, &Thresholds::uniform(-1.0), &mut nms);
    }
}

#[test]
fn frames_do_not_disturb_each_other() {
    let Some(context) = gpu::context() else { return };
    let hints = ModelHints { input: Some((640, 640)), ..ModelHints::default() };
    let crowd: Vec<Candidate> = (0..100).map(|i| detection(i as f32 * 6.0, 0.0, 5.0, 5.0, 0.5, i % 3)).collect();
    let tensors = [given(&crowd, 400)];
    for layout in [&deepstream_yolo::HEAD, &end_to_end::HEAD] {
        let mut pair = Pair::new(&context, layout, &tensors, &hints);
        let mut nms = Nms::new(0.5, 300, false);
        let lists = [
            Thresholds::uniform(0.1),
            Thresholds::uniform(0.6),
            Thresholds::only(&[1], 0.1),
            Thresholds::new(vec![0.1, 0.6, 0.6], 0.1),
            Thresholds::new(vec![0.6, 0.1], 0.1),
            Thresholds::new((0..5000).map(|class| class as f32).collect(), 0.1),
        ];
        let left: Vec<usize> = lists.iter().map(|list| pair.compare("a list", &tensors, list, &mut nms)).collect();
        assert_eq!(left, [100, 0, 33, 34, 66, 34]);
        // A limit that grows while playing.
        for limit in [1, 300, 65_536, 2] {
            nms.max_detections = limit;
            assert_eq!(pair.compare("a limit", &tensors, &lists[0], &mut nms), limit.min(100));
        }
        // Frames whose boxes are not read.
        let uploaded = pair.upload(&tensors);
        for _ in 0..50 {
            let read = pair.decoder.pick(&uploaded).unwrap();
            pair.boxes.launch(&pair.stream, &read, &lists[1], &nms).unwrap();
        }
        assert_eq!(pair.boxes.detections().unwrap(), []);
    }
}

#[test]
fn tensors_elsewhere_are_refused() {
    let Some(context) = gpu::context() else { return };
    let hints = ModelHints { input: Some((640, 640)), ..ModelHints::default() };
    let tensors = [given(&[], 10)];
    let mut pair = Pair::new(&context, &end_to_end::HEAD, &tensors, &hints);
    let read = pair.decoder.pick(&tensors).unwrap();
    let thresholds = Thresholds::uniform(0.5);
    let error = pair.boxes.launch(&pair.stream, &read, &thresholds, &Nms::new(0.5, 300, false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    assert!(error.message().contains("output f32 1x10x6 is not on this GPU"), "{error}");
}
