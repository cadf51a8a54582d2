// SPDX-License-Identifier: MPL-2.0
//! Kernels that a C++ compiler takes for functions (tests/fakes/kernels.cuh), called thread by thread, against the reference
//! implementations: the same arithmetic, where there is no GPU. What threads do together, a GPU alone shows: tests/gpu_boxes.rs.

use std::path::Path;
use std::process::Command;

use half::f16;
use libloading::Library;

use super::params::{CandidateArrays, DecodeParams, DecodeSource, needs_general};
use super::{Nms, join::JoinParams, join::JoinPlan, sizes::margin};
use crate::heads::{
    BoxEncoding, Column, DecodeKernel, Decoder, Dim, HeadFormat, ID_COLUMNS, Lost, ModelHints, OutputSpec, Thresholds,
    is_count, least_logit, mmdeploy,
};
use crate::image::Candidate;
use crate::image::detections::found_bytes;
use crate::image::geometry::BBox;
use crate::image::keypoints::{KeypointModel, KeypointShape};
use crate::postprocess::cells::prior_numbers;
use crate::postprocess::gather;
use crate::postprocess::refine::GatherParams;
use crate::tensor::{DType, Tensor, TensorDesc};
use crate::test::{random::Random, scratch};

/// The kernels as functions, each with its parameters by value.
struct Kernels(Library);

impl Kernels {
    /// `None` where there is no C++ compiler.
    fn compile(test: &str) -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = scratch(test);
        std::fs::copy(root.join("../tests/fakes/kernels.cuh"), folder.join("common.cuh")).unwrap();
        // An include is looked for in the folder of the file that has it.
        for file in ["boxes.cuh", "grid.cuh", "iou.cuh", "join.cu", "decode.cu", "gather.cu"] {
            std::fs::copy(root.join("kernels").join(file), folder.join(file)).unwrap();
        }
        let all = "#include \"join.cu\"\n#include \"decode.cu\"\n#include \"gather.cu\"\n#include \"iou.cuh\"\n";
        std::fs::write(folder.join("all.cpp"), format!("{all}{COMPARE_PAIRS}")).unwrap();
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-w", "all.cpp", "-o", "all.so"]);
        match compiler.current_dir(&folder).status() {
            Ok(status) => assert!(status.success(), "{status}"),
            Err(error) => {
                println!("SKIP: the C++ compiler c++ cannot be started: {error}");
                return None;
            }
        }
        // SAFETY: it has nothing but the functions.
        Some(Kernels(unsafe { Library::new(folder.join("all.so")) }.unwrap()))
    }

    /// # Safety
    /// The kernel takes such parameters, and the addresses in them are of memory that is there.
    unsafe fn run<P: Copy>(&self, name: &str, params: &P, threads: usize, part: usize) {
        // SAFETY: these are their types.
        let (set_thread, kernel) = unsafe {
            let set_thread = self.0.get::<extern "C" fn(u32, u32)>("set_thread").unwrap();
            (set_thread, self.0.get::<extern "C" fn(P)>(name).unwrap())
        };
        for thread in 0..threads {
            set_thread(thread as u32, part as u32);
            kernel(*params);
        }
    }
}

/// A kernel for [`Pairs`], of which a thread compares one.
const COMPARE_PAIRS: &str = "
struct Pairs {
    const float4* boxes;
    u32* repeated;
    u32 agnostic;
    float threshold, margin;
};
extern \"C\" void compare_pairs(Pairs p) {
    const u32 at = threadIdx.x;
    p.repeated[at] = repeats(p, p.boxes[2 * at], 0, p.boxes[2 * at + 1], 0);
}
";

#[derive(Clone, Copy)]
#[repr(C)]
struct Pairs {
    boxes: u64,
    repeated: u64,
    agnostic: u32,
    threshold: f32,
    margin: f32,
}

fn address<T>(of: &[T]) -> u64 {
    of.as_ptr() as u64
}

/// Of memory that a kernel writes.
fn place<T>(of: &mut [T]) -> u64 {
    of.as_mut_ptr() as u64
}

/// What both give for a frame.
#[derive(Debug, Default)]
struct Found {
    candidates: Vec<Candidate>,
    lost: Lost,
    /// Of the candidates that are kept.
    points: Vec<f32>,
}

fn reference(decoder: &Decoder, tensors: &[Tensor], thresholds: &Thresholds, kept: &mut Vec<Candidate>) -> Found {
    let mut found = Found::default();
    found.lost = decoder.decode_counted(tensors, thresholds, &mut found.candidates).unwrap();
    kept.clone_from(&found.candidates);
    Nms::new(0.5, 50, false).run(decoder.format().suppress(), kept);
    if decoder.has_cell_keypoints() {
        decoder.cell_keypoints(tensors, kept, &mut found.points).unwrap();
    } else if let Some(view) = decoder.gather_view() {
        gather(&view, decoder.pick(tensors).unwrap()[view.output], kept, &mut found.points);
    }
    found
}

fn by_kernels(
    kernels: &Kernels,
    decoder: &Decoder,
    tensors: &[Tensor],
    thresholds: &Thresholds,
    kept: &[Candidate],
) -> Found {
    let (head, picked) = (decoder.head(), decoder.pick(tensors).unwrap());
    let mut data: Vec<u64> = picked.iter().map(|tensor| address(tensor.bytes().unwrap())).collect();
    let mut joined: Vec<u64> = Vec::new();
    if let Some(mut plan) = JoinPlan::new(decoder) {
        joined.resize(plan.bytes.div_ceil(8), u64::MAX);
        plan.lies_at(place(&mut joined));
        plan.params.parts.iter_mut().zip(&data).for_each(|(part, &from)| part.from = from);
        // SAFETY: the parts lie in `joined`, and come from the tensors. A block has so many threads.
        (0..data.len()).for_each(|part| unsafe { kernels.run::<JoinParams>("join", &plan.params, 256, part) });
        data = plan.joined;
    }
    let are_ids = decoder.format().kernel() == DecodeKernel::Ids;
    let [corners, scores, ids] = ID_COLUMNS.map(|is_it| head.view(is_it));
    let views = match are_ids {
        true => [corners, scores, ids, head.view(is_count)],
        false => [corners, head.view(Column::are_scores), head.view(Column::is_objectness), None],
    };
    let (rows, all) = (head.rows, head.candidates());
    let (mut keys, mut boxes, mut classes) = (vec![0u64; all], vec![[0f32; 4]; all], vec![0u32; all]);
    let to = CandidateArrays { keys: place(&mut keys), boxes: place(&mut boxes), classes: place(&mut classes) };
    let mut params = DecodeParams::new(decoder, to, &views, 1);
    let priors = prior_numbers(decoder);
    params.grid.priors = if priors.is_empty() { 0 } else { address(priors) };
    let fill = |source: &mut DecodeSource, output: usize| source.data = data[output];
    params
        .sources
        .iter_mut()
        .zip(views)
        .for_each(|(source, view)| view.iter().for_each(|view| fill(source, view.output)));
    let mut count = [0u32; 10];
    params.count = place(&mut count);
    params.per_class = address(thresholds.per_class());
    params.listed = thresholds.per_class().len() as u32;
    (params.beyond, params.least) = (thresholds.beyond(), thresholds.least());
    params.least_logit = least_logit(thresholds.least());
    let scores = decoder.dtypes().nth(views[1].unwrap().output);
    let general = if needs_general(decoder.format()) { "general_" } else { "" };
    let kernel = if decoder.format().kernel() == DecodeKernel::Logits { "logits" } else { "rows" };
    let name = match are_ids {
        true => "decode_ids".to_string(),
        false => format!("decode_{kernel}_{general}{}", if scores == Some(DType::F16) { "f16" } else { "f32" }),
    };
    // SAFETY: all of it is there.
    unsafe { kernels.run(&name, &params, all, 0) };
    let candidate = |at: usize| {
        let [x1, y1, x2, y2] = boxes[at];
        let high = (keys[at] >> 32) as u32;
        let score = f32::from_bits(if high >> 31 == 1 { high } else { !high & 0x7fff_ffff });
        let row = keys[at] as u32 / (all / rows) as u32;
        Candidate { bbox: BBox::new(x1, y1, x2, y2), score, class: classes[at], row, angle: 0.0 }
    };
    let mut found = Found {
        candidates: (0..count[0] as usize).map(candidate).collect(),
        lost: Lost { not_finite: count[4] as usize, beyond: count[6] as usize, greatest: count[8] },
        points: Vec::new(),
    };
    found.candidates.sort_by_key(|candidate| (candidate.row, candidate.class));
    if let Some(view) = decoder.gather_view() {
        let kept = found_bytes(kept);
        found.points = vec![0.0; rows * view.count];
        let mut params = GatherParams::new(decoder, &view, params.grid, address(&kept));
        params.data = data[view.output];
        params.results = place(&mut found.points);
        params.copies = params.results;
        params.limit = rows as u32;
        // SAFETY: as above.
        unsafe { kernels.run("gather", &params, 128, 0) };
        found.points.truncate((kept.len() - 16) / 32 * view.count);
    }
    found
}

const SQUARE: u32 = 72;

/// A number as such a column may have it, and now and then one that it should not have.
fn number(random: &mut Random, column: Column) -> f32 {
    if random.below(90) == 0 {
        return random.one_of(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, 7.0, -1.0]);
    }
    match column {
        Column::Box(BoxEncoding::PriorOffsets) => random.between(-9.0, 9.0),
        Column::Box(BoxEncoding::Corners) | Column::Keypoints => random.between(0.0, SQUARE as f32),
        Column::Box(_) | Column::CellKeypoints => random.between(-1.0, 6.0),
        Column::Logits { .. } | Column::ObjectnessLogit => random.between(-9.0, 3.0),
        _ => match random.below(3) {
            0 => random.below(4) as f32 * 0.25,
            _ => random.between(-0.1, 1.1),
        },
    }
}

/// Outputs of a head with random numbers, as many of each as there are strides where they come so. Their types take turns.
fn outputs(format: &HeadFormat, random: &mut Random, classes: usize, types: [DType; 2]) -> Vec<Tensor> {
    let strides = format.sizes.grid.as_ref().map_or(&[8, 16, 32][..], |grid| &grid.strides);
    let anchors = format.sizes.grid.as_ref().map_or(1, |grid| grid.anchors);
    let rows_of = |stride: u32| (SQUARE.div_ceil(stride).pow(2) * anchors) as usize;
    let mut made = Vec::new();
    for (place, spec) in format.outputs.iter().enumerate() {
        let OutputSpec { name, dims, columns, .. } = *spec;
        let levels: Vec<u32> = if dims.contains(&Dim::Cells) { strides.to_vec() } else { vec![0] };
        for stride in levels {
            let rows = if stride == 0 { strides.iter().map(|&stride| rows_of(stride)).sum() } else { rows_of(stride) };
            let mut values = Vec::new();
            for _ in 0..rows {
                for &column in columns {
                    let width = match column {
                        Column::Box(encoding) => encoding.width(),
                        Column::Classes | Column::Logits { .. } => classes,
                        Column::Keypoints | Column::CellKeypoints => 10,
                        Column::Ignored { count } => count as usize,
                        _ => 1,
                    };
                    values.extend((0..width).map(|_| number(random, column)));
                }
            }
            let columns = values.len() / rows;
            let dims = match dims.last() {
                Some(Dim::Cells) => {
                    // As maps, which are square here, with the numbers of all anchors of a cell.
                    let (columns, cells) = (columns * anchors as usize, rows / anchors as usize);
                    let maps = (0..columns).flat_map(|column| values.iter().skip(column).step_by(columns));
                    values = maps.copied().collect();
                    let side = cells.isqrt() as i64;
                    vec![1, columns as i64, side, side]
                }
                _ => vec![1, rows as i64, columns as i64],
            };
            let name = if stride == 0 { name.into() } else { format!("{name}_{stride}") };
            made.push(match types[place % 2] {
                DType::F16 => {
                    let halves: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
                    Tensor::from_slice(&name, &dims, &halves)
                }
                _ => Tensor::from_slice(&name, &dims, &values),
            });
        }
    }
    made
}

fn is_same(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan())
}

/// Objectness before the classes, and of both kinds.
fn with_objectness(kind: &str) -> String {
    format!(
        "name = \"own-{kind}\"\ntask = \"detect\"\nsuppression = \"iou\"\n[[output]]\nname = \"o\"\n\
         dims = [\"batch\", \"rows\", \"columns\"]\ncolumns = [\"{kind}\", {{ column = \"ignored\", count = 2 }}, \"classes\"]\n\
         [[output]]\nname = \"b\"\ndims = [\"batch\", \"rows\", \"columns\"]\ncolumns = [{{ column = \"box\", encoding = \"corners\" }}]\n"
    )
}

/// Maps of everything that an output for each stride may have.
const MAPS_OF_POINTS: &str = r#"
name = "maps-of-points"
task = "pose"
suppression = "iou"
[grid]
strides = [8, 16]
[keypoints]
count = 5
numbers = 2
[[output]]
name = "cls"
dims = ["batch", "columns", "cells"]
columns = ["classes"]
[[output]]
name = "reg"
dims = ["batch", "columns", "cells"]
columns = [{ column = "box", encoding = "corner-distances" }, "cell-keypoints"]
"#;

/// As darknet has YOLOv4-tiny: maps of three anchors.
const ANCHOR_MAPS: &str = r#"
name = "anchor-maps"
task = "detect"
suppression = "iou"
[grid]
strides = [16, 32]
anchors = 3
priors = [[23, 27], [37, 58], [81, 82], [81, 82], [135, 169], [344, 319]]
scale-x-y = [1.05, 1.2]
[[output]]
dims = ["batch", "columns", "cells"]
columns = [{ column = "box", encoding = "prior-logits" }, "objectness-logit", "classes"]
"#;

#[test]
fn arithmetic_of_kernels_is_that_of_the_host() {
    let Some(kernels) = Kernels::compile("arithmetic_of_kernels_is_that_of_the_host") else { return };
    let mut random = Random(7);
    let names = "scrfd scrfd-boxes yunet retinaface picodet rtmdet nanodet nanodet-plus yolox yolov5".split(' ');
    let mut formats: Vec<&HeadFormat> = names.map(|name| HeadFormat::of_name(name).unwrap()).collect();
    for text in [
        include_str!("../../../../tests/layouts/scrfd.toml"),
        include_str!("../../../../tests/layouts/yunet.toml"),
        include_str!("../../../../tests/layouts/retinaface.toml"),
        include_str!("../../../../tests/layouts/picodet.toml"),
        include_str!("../../../../tests/layouts/rtmdet.toml"),
        MAPS_OF_POINTS,
        ANCHOR_MAPS,
        &ANCHOR_MAPS.replace("\"columns\", \"cells\"", "\"cells\", \"columns\""),
        &with_objectness("objectness"),
        &with_objectness("root-objectness"),
        &with_objectness("objectness-logit"),
    ] {
        formats.push(HeadFormat::of_name(text).unwrap());
    }
    let keypoints = KeypointModel { shape: KeypointShape { count: 5, dims: 2 }, names: Vec::new() };
    let hints = ModelHints { input: Some((SQUARE, SQUARE)), keypoints: Some(keypoints), ..ModelHints::default() };
    for format in formats {
        let (mut left, mut points, mut lost) = (0, 0, 0);
        for (even, odd, classes) in [
            (DType::F32, DType::F32, 3),
            (DType::F16, DType::F16, 1),
            (DType::F16, DType::F32, 17),
            (DType::F32, DType::F16, 3),
        ] {
            let classes = format.sizes.classes.unwrap_or(classes);
            for thresholds in [Thresholds::uniform(0.3), Thresholds::new(vec![0.6, 0.1], 0.2), Thresholds::uniform(0.0)]
            {
                let tensors = outputs(format, &mut random, classes, [even, odd]);
                let descs: Vec<TensorDesc> = tensors.iter().map(|tensor| tensor.desc().clone()).collect();
                let decoder = Decoder::new(Some(format), &descs, &hints).unwrap();
                let mut kept = Vec::new();
                let wanted = reference(&decoder, &tensors, &thresholds, &mut kept);
                let have = by_kernels(&kernels, &decoder, &tensors, &thresholds, &kept);
                assert_eq!(have.candidates.len(), wanted.candidates.len(), "{format} {even} {odd}");
                for (have, wanted) in have.candidates.iter().zip(&wanted.candidates) {
                    assert_eq!(
                        bytemuck::bytes_of(have),
                        bytemuck::bytes_of(wanted),
                        "{have:?} {wanted:?} {format} {even} {odd}"
                    );
                }
                assert_eq!(have.lost, wanted.lost, "{format} {even} {odd}");
                assert!(is_same(&have.points, &wanted.points), "{format} {even} {odd}");
                left += wanted.candidates.len();
                points += wanted.points.len();
                lost += wanted.lost.not_finite;
            }
        }
        assert!(left > 100 && lost > 10, "{format}: {left} candidates, {lost} lost");
        assert_eq!(points > 0, format.sizes.keypoints.is_some(), "{format}: {points} numbers of points");
    }
}

/// Class ids of any number, as floats and as integers.
#[test]
fn ids_of_kernels_are_those_of_the_host() {
    let Some(kernels) = Kernels::compile("ids_of_kernels_are_those_of_the_host") else { return };
    let ids = [
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
    let rows = ids.len() as i64;
    let boxes: Vec<f32> = (0..ids.len()).flat_map(|row| [row as f32, 4.0, row as f32 + 8.0, 9.0, 0.5]).collect();
    let labels = [
        Tensor::from_slice("labels", &[1, rows], &ids),
        Tensor::from_slice("labels", &[1, rows], &ids.map(f16::from_f32)),
        Tensor::from_slice("labels", &[1, rows], &ids.map(|id| id as u8)),
        Tensor::from_slice("labels", &[1, rows], &ids.map(|id| id as i32)),
        Tensor::from_slice("labels", &[1, rows], &ids.map(|id| id as i64)),
    ];
    let (mut left, mut lost) = (0, Lost::default());
    for labels in labels {
        let tensors = [Tensor::from_slice("dets", &[1, rows, 5], &boxes), labels];
        let descs: Vec<TensorDesc> = tensors.iter().map(|tensor| tensor.desc().clone()).collect();
        for classes in [None, Some(1), Some(3), Some(80), Some(2049), Some(2050), Some(65_536)] {
            let hints = ModelHints { input: Some((SQUARE, SQUARE)), classes, ..ModelHints::default() };
            let decoder = Decoder::new(Some(&mmdeploy::HEAD), &descs, &hints).unwrap();
            // The second list is longer than the classes.
            for thresholds in [Thresholds::uniform(0.3), Thresholds::new(vec![0.6, 0.1, 0.1, 0.1], 0.6)] {
                let wanted = reference(&decoder, &tensors, &thresholds, &mut Vec::new());
                let have = by_kernels(&kernels, &decoder, &tensors, &thresholds, &[]);
                let about = format!("{}, {classes:?}, {thresholds:?}", descs[1]);
                assert_eq!((have.candidates, have.lost), (wanted.candidates.clone(), wanted.lost), "{about}");
                left += wanted.candidates.len();
                lost += wanted.lost;
            }
        }
    }
    assert!(left > 100 && lost.not_finite > 20 && lost.beyond > 100, "{left} {lost:?}");
}

/// Two boxes: with few coordinates, with an IoU more or less near the threshold, and of any bits.
fn pair(random: &mut Random, threshold: f32) -> [BBox; 2] {
    let of = |random: &mut Random, number: fn(&mut Random) -> f32| {
        let [x1, y1, x2, y2] = [0; 4].map(|_| number(random));
        BBox::new(x1, y1, x2, y2)
    };
    match random.below(3) {
        0 => [0; 2].map(|_| of(random, |random| random.below(9) as f32 * 10.0)),
        1 => {
            // One is the other, moved along its width.
            let scale = 2f32.powi(random.below(120) as i32 - 60);
            let [width, height] = [0; 2].map(|_| random.between(1.0, 100.0) * scale);
            let moved = width * (1.0 - threshold) / (1.0 + threshold);
            let moved = moved * (1.0 + random.between(-1.0, 1.0) * random.one_of(&[0.0, 1e-7, 1e-6, 1e-5, 1e-4, 0.1]));
            let [x, y] = [0; 2].map(|_| random.one_of(&[0.0, 0.0, 8.0, -300.0]) * scale);
            [BBox::new(x, y, x + width, y + height), BBox::new(x + moved, y, x + moved + width, y + height)]
        }
        _ => [0; 2].map(|_| {
            of(random, |random| match random.below(4) {
                0 => f32::from_bits(random.next() as u32),
                1 => random.one_of(&[0.0, -0.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-38, 1e-20, 1e19]),
                _ => random.between(-4.0, 4.0),
            })
        }),
    }
}

/// Where the quotient is not needed, too.
#[test]
fn ious_of_kernels_are_those_of_the_host() {
    let Some(kernels) = Kernels::compile("ious_of_kernels_are_those_of_the_host") else { return };
    let (mut random, mut above) = (Random(5), 0);
    let usual = [1e-3, 0.1, 0.25, 1.0 / 3.0, 0.45, 0.5, 0.6, 0.7, 0.9, 0.999, 1.0];
    for threshold in usual.into_iter().chain([-1.0, 0.0, 1e-4, 1.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]) {
        let pairs = std::iter::repeat_with(|| pair(&mut random, threshold));
        let boxes: Vec<[BBox; 2]> = pairs.filter(|pair| pair.iter().all(BBox::is_valid)).take(20_000).collect();
        let mut repeated = vec![u32::MAX; boxes.len()];
        let (boxes_at, repeated_at) = (address(&boxes), place(&mut repeated));
        let margin = margin(threshold);
        let params = Pairs { boxes: boxes_at, repeated: repeated_at, agnostic: 0, threshold, margin };
        // SAFETY: all of it is there.
        unsafe { kernels.run("compare_pairs", &params, boxes.len(), 0) };
        for ([one, better], repeated) in boxes.iter().zip(repeated) {
            assert_eq!(repeated == 1, one.iou(better) > threshold, "{one:?} {better:?} {threshold}");
            above += repeated as usize;
        }
    }
    assert!(above > 50_000, "{above}");
}
