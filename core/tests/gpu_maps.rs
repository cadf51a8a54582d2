// SPDX-License-Identifier: MPL-2.0
//! Maps on the GPU against the reference implementations on the CPU, bit for bit: found and drawn.
//!
//! Needs a GPU; prints SKIP where there is none, and fails instead with `REQUIRE_GPU=1`.

use std::sync::Arc;

use gsttrt_core::cuda::driver::{Context, Stream};
use gsttrt_core::image::device::DevicePlane;
use gsttrt_core::image::frame::{Colorimetry, FrameMut, PixelFormat, PlaneMut};
use gsttrt_core::image::geometry::{BBox, Letterbox, ResizeMode};
use gsttrt_core::image::map::{MapKind, MapRegion, PixelMap};
use gsttrt_core::image::masks::MaskOutput;
use gsttrt_core::image::overlay::kernel::OverlayKernel;
use gsttrt_core::image::overlay::{MapTint, Style, Target};
use gsttrt_core::memory::DevicePool;
use gsttrt_core::model::ModelInfo;
use gsttrt_core::postprocess::{PostprocessOptions, Postprocessor};
use gsttrt_core::tensor::{Tensor, Tensors};
use half::f16;

use crate::common::onnx::{F32, Graph};
use crate::common::random::Random;
use crate::common::{gpu, scratch, with};

/// A model of that task; what it gives is not from this file.
fn model(task: &str, labels: usize) -> Arc<ModelInfo> {
    let names: Vec<String> = (0..labels).map(|class| format!("{class}: 'c{class}'")).collect();
    let graph =
        Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("output0", &[1, 1, 8, 8], &[0.0; 64]);
    let graph = graph.metadata("task", task).metadata("names", &format!("{{{}}}", names.join(", ")));
    let path = graph.save(&scratch(&format!("gpu-maps-{task}-{labels}")).join("model.onnx"));
    Arc::new(ModelInfo::read(path.as_ref()).unwrap())
}

/// Numbers as heads write them, and a few that they should not.
fn value(random: &mut Random) -> f32 {
    const ODD: [f32; 9] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::MAX, f32::MIN, 1e-40, 65504.0];
    match random.below(40) {
        0 => random.one_of(&ODD),
        // Of few different values, so that there are ties.
        1..20 => random.below(5) as f32 - 2.0,
        _ => random.between(-6.0, 6.0),
    }
}

/// The output of a model: ids or scores of so many classes, or depths.
fn output(random: &mut Random, task: &str, classes: usize, (width, height): (usize, usize)) -> Tensor {
    let pixels = width * height;
    let (h, w) = (height as i64, width as i64);
    let dims = [1, classes as i64, h, w];
    let floats: Vec<f32> = (0..classes * pixels).map(|_| value(random)).collect();
    match (task, random.below(5)) {
        ("depth", 0..3) | ("semantic", 0) => Tensor::from_slice("output0", &dims, &floats),
        ("depth", _) | ("semantic", 1) => {
            Tensor::from_slice("output0", &dims, &floats.iter().map(|&value| f16::from_f32(value)).collect::<Vec<_>>())
        }
        (_, kind) => {
            let mut id = || random.below(classes + 3) as i64 - 1;
            let ids: Vec<i64> = (0..pixels).map(|_| id()).collect();
            let dims = [1, h, w];
            match kind {
                2 => Tensor::from_slice("output0", &dims, &ids.iter().map(|&id| id as u8).collect::<Vec<_>>()),
                3 => Tensor::from_slice("output0", &dims, &ids.iter().map(|&id| id as i32).collect::<Vec<_>>()),
                _ => Tensor::from_slice("output0", &dims, &ids),
            }
        }
    }
}

/// The map that is found in these tensors, also after those of other frames.
fn find(
    postprocessor: &mut Option<Postprocessor>,
    options: &PostprocessOptions,
    model: &Arc<ModelInfo>,
    tensors: Tensors,
    letterbox: &Letterbox,
) -> PixelMap {
    let fits = |made: &Postprocessor| made.matches(model, &tensors, letterbox);
    let made = match postprocessor.take().filter(fits) {
        Some(made) => made,
        None => Postprocessor::new(options.clone(), model, &tensors, letterbox).unwrap(),
    };
    let made = postprocessor.insert(made);
    made.adjust(options.clone()).unwrap();
    made.find(&tensors, letterbox).unwrap();
    made.fetch_masks().unwrap();
    made.instances().map.clone().unwrap()
}

fn compare_found(context: &Context, random: &mut Random) {
    let (pool, stream) = (DevicePool::new(context), Stream::new(context).unwrap());
    for case in 0..300 {
        let task = random.one_of(&["semantic", "semantic", "depth"]);
        let classes = if task == "depth" { 1 } else { random.one_of(&[1, 2, 3, 19, 300]) };
        let input = (1 + random.below(90) as u32, 1 + random.below(70) as u32);
        let frame = (1 + random.below(300) as u32, 1 + random.below(300) as u32);
        let size = match random.below(3) {
            0 => (input.0 as usize, input.1 as usize),
            1 => (1, 1),
            _ => (1 + random.below(60), 1 + random.below(60)),
        };
        let letterbox = Letterbox::new(frame, input, random.one_of(&ResizeMode::ALL));
        let model = model(task, classes);
        let mut processors = [None, None];
        for mask_output in [MaskOutput::Objects, MaskOutput::None] {
            let output = output(random, task, classes, size);
            let filter = if random.below(2) == 0 { "c0".to_string() } else { String::new() };
            let options = with(PostprocessOptions::default(), |options| {
                (options.mask_output, options.classes) = (mask_output, filter);
                options.map_threshold = random.one_of(&[0.0, 0.0, 0.5, -1.0]);
            });
            let mut block = pool.take(output.bytes().unwrap().len()).unwrap();
            block.write(output.bytes().unwrap()).unwrap();
            stream.synchronize().unwrap();
            let uploaded = Tensor::on_device(output.desc().clone(), block);
            let about = format!("case {case}: {} for {letterbox:?}, {options:?}", output.desc());
            let [host, device] = &mut processors;
            let wanted = find(host, &options, &model, Tensors::new(vec![output], None, None), &letterbox);
            let have = find(device, &options, &model, Tensors::new(vec![uploaded], None, None), &letterbox);
            // Of NaN and infinities there is no range.
            assert_eq!(have.kind(), wanted.kind(), "{about}");
            assert_eq!(have.regions(), wanted.regions(), "{about}");
            let wrong = have.values().iter().zip(wanted.values()).position(|(have, wanted)| have != wanted);
            assert_eq!(wrong, None, "{about}");
            assert_eq!(have, wanted, "{about}");
        }
    }
}

#[test]
fn maps_are_found_alike() {
    if let Some(context) = gpu::context() {
        compare_found(&context, &mut Random(11));
    }
}

/// The score of a frame next to its map.
fn compare_scores(context: &Context, random: &mut Random) {
    let (pool, stream) = (DevicePool::new(context), Stream::new(context).unwrap());
    let graph = Graph::new().input("input", F32, &["1", "3", "64", "64"]).constant("pred_score", &[1], &[0.0]);
    let graph = graph.constant("anomaly_map", &[1, 1, 8, 8], &[0.0; 64]);
    let path = graph.save(&scratch("gpu-maps-anomaly").join("model.onnx"));
    let model = Arc::new(ModelInfo::read(path.as_ref()).unwrap());
    let letterbox = Letterbox::new((100, 60), (64, 64), ResizeMode::Stretch);
    for is_half in [false, true] {
        let tensor = |name: &str, dims: &[i64], values: &[f32]| match is_half {
            true => {
                Tensor::from_slice(name, dims, &values.iter().map(|&value| f16::from_f32(value)).collect::<Vec<_>>())
            }
            false => Tensor::from_slice(name, dims, values),
        };
        let mut processors = [None, None];
        for score in [0.0, 0.5, 0.75, f32::NAN, 1.0, 0.25] {
            let map: Vec<f32> = (0..64).map(|_| random.between(0.0, 1.0)).collect();
            let outputs = [tensor("pred_score", &[1], &[score]), tensor("anomaly_map", &[1, 1, 8, 8], &map)];
            let upload = |tensor: &Tensor| {
                let mut block = pool.take(tensor.bytes().unwrap().len()).unwrap();
                block.write(tensor.bytes().unwrap()).unwrap();
                Tensor::on_device(tensor.desc().clone(), block)
            };
            let uploaded: Vec<Tensor> = outputs.iter().map(upload).collect();
            stream.synchronize().unwrap();
            let mut found = Vec::new();
            for (tensors, processor) in [Vec::from(outputs), uploaded].into_iter().zip(&mut processors) {
                let tensors = Tensors::new(tensors, None, None);
                let map = find(processor, &PostprocessOptions::default(), &model, tensors, &letterbox);
                let processor = processor.as_mut().unwrap();
                let is_finite = processor.not_finite().is_none();
                found.push((map, processor.instances().frame_classes().to_vec(), is_finite));
            }
            assert_eq!(found[1], found[0], "{score}, f16: {is_half}");
            assert_eq!((found[0].1.len(), found[0].2), (usize::from(score > 0.5), score.is_finite()));
        }
    }
}

#[test]
fn scores_of_anomalies_are_read_alike() {
    if let Some(context) = gpu::context() {
        compare_scores(&context, &mut Random(13));
    }
}

fn map(random: &mut Random, kind: MapKind, size: (u32, u32), frame: (u32, u32)) -> PixelMap {
    let pixels = (size.0 * size.1) as usize;
    let values: Vec<u16> = match kind {
        MapKind::Depth { .. } => (0..pixels).map(|_| random.next() as u16).collect(),
        _ => (0..pixels).map(|_| random.one_of(&[0, 1, 2, 300, PixelMap::NO_CLASS])).collect(),
    };
    let region = |id: u16| MapRegion { id, class: u32::from(id) + 5, pixels: 1 };
    let regions = match kind {
        MapKind::Depth { .. } => Vec::new(),
        _ => [1, 2, 300].map(region).to_vec(),
    };
    let place = match random.below(2) {
        0 => BBox::new(0.0, 0.0, frame.0 as f32, frame.1 as f32),
        _ => BBox::new(
            random.between(-3.0, 9.0),
            random.between(-3.0, 9.0),
            random.between(9.5, 90.0),
            random.between(9.5, 90.0),
        ),
    };
    PixelMap::of(kind, size, values, place, regions).unwrap()
}

fn compare_drawn(context: &Context, random: &mut Random) {
    let (pool, stream) = (DevicePool::new(context), Stream::new(context).unwrap());
    for format in PixelFormat::ALL {
        for (width, height) in [(1, 1), (33, 17), (64, 48), (130, 51), (257, 3)] {
            let target = Target { format, width, height, color: Colorimetry::default() };
            let mut kernel = OverlayKernel::new(context, target, &[], None).unwrap();
            for kind in [MapKind::Classes, MapKind::Objects, MapKind::Depth { minimum: 0.0, maximum: 1.0 }] {
                let size = (1 + random.below(70) as u32, 1 + random.below(70) as u32);
                let map = map(random, kind, size, (width, height));
                let style = Style { mask_alpha: random.one_of(&[0.01, 0.5, 1.0]), ..Style::default() };
                let tint = MapTint::new(&map, &target).unwrap();
                let (mut bytes, mut planes) = (Vec::new(), Vec::new());
                for (row, rows) in format.planes(width as usize, height as usize) {
                    let stride = (row + 5).next_multiple_of(2);
                    planes.push((bytes.len(), stride));
                    bytes.extend((0..stride * rows).map(|_| random.next() as u8));
                }
                let mut wanted = bytes.clone();
                let (mut rest, mut views) = (&mut wanted[..], smallvec::SmallVec::new());
                for (place, &(start, stride)) in planes.iter().enumerate() {
                    let end = planes.get(place + 1).map_or(bytes.len(), |plane| plane.0);
                    let (data, after) = rest.split_at_mut(end - start);
                    rest = after;
                    views.push(PlaneMut { data, stride });
                }
                let color = target.color;
                let (frame_width, frame_height) = (width as usize, height as usize);
                tint.blend(
                    &mut FrameMut { format, width: frame_width, height: frame_height, color, planes: views },
                    &style,
                );
                let values: &[u8] = bytemuck::cast_slice(map.values());
                let mut on_device = pool.take(values.len()).unwrap();
                on_device.write(values).unwrap();
                for values in [None, Some(on_device.address())] {
                    let mut block = pool.take(bytes.len()).unwrap();
                    block.write(&bytes).unwrap();
                    let plane = |&(start, stride): &(usize, usize)| DevicePlane {
                        address: block.address() + start as u64,
                        stride,
                    };
                    let planes: Vec<DevicePlane> = planes.iter().map(plane).collect();
                    // SAFETY: the block has the picture and lives until the work is done, as do the values.
                    unsafe { kernel.launch_map(&stream, &planes, &tint, values, &style) }.unwrap();
                    stream.synchronize().unwrap();
                    assert!(
                        block.read().unwrap() == wanted,
                        "{} {width}x{height}, {kind:?}, {style:?}, values on the GPU: {}",
                        format.name(),
                        values.is_some()
                    );
                }
            }
        }
    }
}

#[test]
fn maps_are_drawn_alike() {
    if let Some(context) = gpu::context() {
        compare_drawn(&context, &mut Random(12));
    }
}
