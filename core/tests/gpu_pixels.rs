// SPDX-License-Identifier: MPL-2.0
//! The kernels that touch pixels against the reference implementations on the CPU, bit by bit: preprocessing, and
//! drawing in place.
//!
//! Needs a GPU; prints SKIP where there is none, and fails instead with `REQUIRE_GPU=1`.

use std::f32::consts::{FRAC_PI_2, PI};
use std::sync::Arc;

use gsttrt_core::cuda::driver::{Context, Stream};
use gsttrt_core::device::Device;
use gsttrt_core::error::ErrorKind;
use gsttrt_core::image::Candidate;
use gsttrt_core::image::detections::{DeviceDetections, DeviceMasks, found_bytes};
use gsttrt_core::image::device::{DevicePlane, DevicePlanes};
use gsttrt_core::image::frame::{Colorimetry, Frame, FrameMut, Matrix, PixelFormat, Plane, PlaneMut};
use gsttrt_core::image::geometry::{BBox, Letterbox, ResizeMode};
use gsttrt_core::image::keypoints::{KeypointModel, KeypointShape, Keypoints};
use gsttrt_core::image::masks::{Masks, PrototypeShape, Prototypes};
use gsttrt_core::image::overlay::kernel::OverlayKernel;
use gsttrt_core::image::overlay::{self, Annotation, Style, Target};
use gsttrt_core::image::preprocess::kernel::{MAX_BATCH, PreprocessKernel};
use gsttrt_core::image::preprocess::{self, MAX_SIDE};
use gsttrt_core::image::transform::{Chroma, Colors, InputSpec, InputTransform, TensorLayout};
use gsttrt_core::memory::{DeviceBlock, DevicePool};
use gsttrt_core::postprocess::Instances;
use gsttrt_core::tensor::{DType, Tensor, TensorDesc};

use crate::common::gpu;
use crate::common::random::Random;

const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::U8];
/// Bytes around tensors and planes, which nothing may touch.
const POISON: u8 = 0xa5;

fn gpu_or_skip() -> Option<Gpu> {
    let context = gpu::context()?;
    let (stream, pool) = (Stream::new(&context).unwrap(), DevicePool::new(&context));
    Some(Gpu { stream, pool, random: Random(1), context })
}

/// What can be chosen of a frame and its tensor.
trait Choose {
    fn colorimetry(&mut self) -> Colorimetry;
    fn transform(&mut self, colors: Colors) -> InputTransform;
}

impl Choose for Random {
    fn colorimetry(&mut self) -> Colorimetry {
        Colorimetry {
            matrix: self.one_of(&[Matrix::Bt601, Matrix::Bt709, Matrix::Bt2020]),
            full_range: self.one_of(&[false, true]),
            chroma_left: self.one_of(&[false, true]),
            chroma_top: self.one_of(&[false, true]),
        }
    }

    fn transform(&mut self, colors: Colors) -> InputTransform {
        let fit = self.one_of(&ResizeMode::ALL);
        InputTransform {
            colors,
            chroma: self.one_of(&Chroma::ALL),
            fit,
            shortest_edge: 0,
            pad: self.next() as u8,
            scale: self.one_of(&[1.0, 1.0 / 255.0, -0.3]),
            mean: [0; 3].map(|_| self.one_of(&[0.0, 0.456, 17.0])),
            std: [0; 3].map(|_| self.one_of(&[1.0, 0.225, 58.0])),
        }
    }
}

fn spec(dtype: DType, order: TensorLayout, width: usize, height: usize, transform: InputTransform) -> InputSpec {
    let (c, h, w) = (transform.colors.channels() as i64, height as i64, width as i64);
    let dims = if order == TensorLayout::Nchw { [1, c, h, w] } else { [1, h, w, c] };
    InputSpec { device: Device::Cuda, desc: TensorDesc::new("images", dtype, &dims), order, transform, widest: 0 }
}

/// A frame of noise in one piece of memory: planes behind one another, with poison between rows and planes.
#[derive(Clone, PartialEq)]
struct Picture {
    format: PixelFormat,
    width: usize,
    height: usize,
    bytes: Vec<u8>,
    /// First byte and stride.
    planes: Vec<(usize, usize)>,
}

impl Picture {
    /// Planes begin at bytes that `align` divides and no greater power of two.
    fn noise(
        random: &mut Random,
        (format, width, height): (PixelFormat, usize, usize),
        slack: usize,
        align: usize,
    ) -> Self {
        let (mut bytes, mut planes) = (Vec::new(), Vec::new());
        for (row, rows) in format.planes(width, height) {
            let (start, stride) = (bytes.len().next_multiple_of(2 * align) + align, row + slack);
            bytes.resize(start + stride * rows, POISON);
            for y in 0..rows {
                bytes[start + y * stride..][..row].iter_mut().for_each(|byte| *byte = random.next() as u8);
            }
            planes.push((start, stride));
        }
        bytes.resize(bytes.len() + 64, POISON);
        Picture { format, width, height, bytes, planes }
    }

    fn frame(&self) -> Frame<'_> {
        let sizes = self.format.planes(self.width, self.height);
        let plane = |(&(start, stride), (_, rows)): (&(usize, usize), (usize, usize))| Plane {
            data: &self.bytes[start..][..stride * rows],
            stride,
        };
        let planes = self.planes.iter().zip(sizes).map(plane).collect();
        Frame { format: self.format, width: self.width, height: self.height, planes }
    }

    fn target(&self, color: Colorimetry) -> Target {
        Target { format: self.format, width: self.width as u32, height: self.height as u32, color }
    }

    fn draw(&mut self, color: Colorimetry, draw: impl FnOnce(&mut FrameMut)) {
        let sizes = self.format.planes(self.width, self.height);
        let (mut rest, mut taken, mut planes) = (&mut self.bytes[..], 0, smallvec::SmallVec::new());
        for (&(start, stride), (_, rows)) in self.planes.iter().zip(sizes) {
            let (data, after) = rest[start - taken..].split_at_mut(stride * rows);
            (rest, taken) = (after, start + stride * rows);
            planes.push(PlaneMut { data, stride });
        }
        draw(&mut FrameMut { format: self.format, width: self.width, height: self.height, color, planes });
    }

    fn on_device(&self, block: &DeviceBlock) -> DevicePlanes {
        let plane = |&(start, stride): &(usize, usize)| DevicePlane { address: block.address() + start as u64, stride };
        self.planes.iter().map(plane).collect()
    }
}

struct Gpu {
    context: Context,
    stream: Stream,
    pool: DevicePool,
    random: Random,
}

impl Gpu {
    fn upload(&self, bytes: &[u8]) -> DeviceBlock {
        let mut block = self.pool.take(bytes.len()).unwrap();
        block.write(bytes).unwrap();
        block
    }

    /// The tensor begins `offset` bytes behind the start of a block.
    #[track_caller]
    fn compare_tensor(&self, picture: &Picture, color: Colorimetry, spec: &InputSpec, offset: usize) {
        let Picture { format, width, height, .. } = *picture;
        let bytes = spec.desc.bytes().unwrap();
        let mut wanted = vec![POISON; offset + bytes + 64];
        let mut reference = preprocess::HostPreprocessor::new(format, width, height, color, spec).unwrap();
        reference.run(&picture.frame(), &mut wanted[offset..][..bytes]).unwrap();

        let kernel = PreprocessKernel::new(&self.context, format, (width, height), color, spec).unwrap();
        let (frame, tensor) = (self.upload(&picture.bytes), self.upload(&vec![POISON; wanted.len()]));
        // SAFETY: both have the size, and live until the work is done.
        unsafe { kernel.launch(&self.stream, &picture.on_device(&frame), tensor.address() + offset as u64) }.unwrap();
        self.stream.synchronize().unwrap();
        self.check(&tensor.read().unwrap(), &wanted, || {
            format!("{} {width}x{height}, {color:?}, strides {:?}, {spec}", format.name(), picture.planes)
        });
        assert_eq!(kernel.letterbox(), reference.letterbox());
    }

    #[track_caller]
    fn check(&self, have: &[u8], wanted: &[u8], about: impl Fn() -> String) {
        if have != wanted {
            let differ = have.iter().zip(wanted).filter(|(have, wanted)| have != wanted).count();
            let at = have.iter().zip(wanted).position(|(have, wanted)| have != wanted);
            panic!("{differ} of {} bytes differ, the first at {at:?}: {}", wanted.len(), about());
        }
    }
}

#[test]
fn every_format_and_transform_makes_the_reference_tensor() {
    let Some(mut gpu) = gpu_or_skip() else { return };
    let sizes = [((1, 1), (1, 1)), ((1, 1), (9, 4)), ((7, 3), (64, 33)), ((2, 1), (5, 5)), ((61, 90), (34, 70))];
    for format in PixelFormat::ALL {
        for colors in Colors::ALL {
            for dtype in DTYPES {
                for order in TensorLayout::OF_PICTURES {
                    for ((width, height), (tensor_width, tensor_height)) in sizes {
                        let color = gpu.random.colorimetry();
                        let transform = gpu.random.transform(colors);
                        let slack = 2 * gpu.random.below(3);
                        let picture = Picture::noise(&mut gpu.random, (format, width, height), slack, 2);
                        let spec = spec(dtype, order, tensor_width, tensor_height, transform);
                        gpu.compare_tensor(&picture, color, &spec, 0);
                    }
                }
            }
        }
    }
}

#[test]
fn random_frames_make_the_reference_tensors() {
    let Some(mut gpu) = gpu_or_skip() else { return };
    for _ in 0..400 {
        let random = &mut gpu.random;
        let format = random.one_of(&PixelFormat::ALL);
        let mut side = || 1 + random.below(150);
        let (width, height, tensor_width, tensor_height) = (side(), side(), side(), side());
        // Words lie at even addresses, bytes anywhere.
        let words = if format == PixelFormat::P010 { 2 } else { 1 };
        let (slack, align) = (words * random.below(20), words << random.below(6));
        let picture = Picture::noise(random, (format, width, height), slack, align);
        let (dtype, order, colors) =
            (random.one_of(&DTYPES), random.one_of(&TensorLayout::OF_PICTURES), random.one_of(&Colors::ALL));
        let (color, transform) = (random.colorimetry(), random.transform(colors));
        let offset = dtype.size() * random.below(4);
        gpu.compare_tensor(&picture, color, &spec(dtype, order, tensor_width, tensor_height, transform), offset);
    }
}

#[test]
fn great_frames_make_the_reference_tensors() {
    let Some(mut gpu) = gpu_or_skip() else { return };
    let color = Colorimetry { matrix: Matrix::Bt709, chroma_left: true, ..Colorimetry::default() };
    let cases = [
        (PixelFormat::Nv12, (1920, 1080), (640, 640)),
        (PixelFormat::P010, (1920, 1080), (640, 640)),
        (PixelFormat::I420, (1280, 720), (1919, 1081)),
        (PixelFormat::Bgra, (1920, 1080), (640, 384)),
        (PixelFormat::Rgb, (8192, 1), (64, 48)),
        (PixelFormat::Nv12, (3, 8192), (64, 48)),
        (PixelFormat::Gray8, (MAX_SIDE, 2), (640, 2)),
        (PixelFormat::Rgba, (2, MAX_SIDE), (3, 640)),
        (PixelFormat::Nv12, (5, 5), (MAX_SIDE, 2)),
        (PixelFormat::Nv12, (8192, 4096), (64, 48)),
    ];
    for (format, (width, height), (tensor_width, tensor_height)) in cases {
        let picture = Picture::noise(&mut gpu.random, (format, width, height), 64, 256);
        for (dtype, order) in
            [(DType::F16, TensorLayout::Nchw), (DType::F32, TensorLayout::Nhwc), (DType::U8, TensorLayout::Nchw)]
        {
            for chroma in Chroma::ALL {
                let transform = InputTransform { chroma, ..InputTransform::default() };
                gpu.compare_tensor(&picture, color, &spec(dtype, order, tensor_width, tensor_height, transform), 0);
            }
        }
    }
}

#[test]
fn a_batch_is_its_frames() {
    let Some(mut gpu) = gpu_or_skip() else { return };
    let count = MAX_BATCH + 5;
    // An odd number of elements: every other image begins at an address where two cannot be written at once. A multiple of four: all
    // are written at once, by a block and by several.
    let shapes =
        [(21, TensorLayout::Nchw), (24, TensorLayout::Nchw), (24, TensorLayout::Nhwc), (300, TensorLayout::Nchw)];
    // Pairs of chroma at odd addresses, all at even ones, and both in one batch.
    for (dtype, aligns) in DTYPES.into_iter().flat_map(|dtype| [[1, 1], [2, 2], [2, 1]].map(|aligns| (dtype, aligns))) {
        for (width, order) in shapes {
            let spec = spec(dtype, order, width, 15, InputTransform::default());
            let (bytes, color) = (spec.desc.bytes().unwrap(), Colorimetry::default());
            let mut reference = preprocess::HostPreprocessor::new(PixelFormat::Nv12, 30, 20, color, &spec).unwrap();
            let kernel = PreprocessKernel::new(&gpu.context, PixelFormat::Nv12, (30, 20), color, &spec).unwrap();
            let mut wanted = vec![POISON; bytes * count];
            let tensors = gpu.upload(&wanted);
            let (mut blocks, mut frames) = (Vec::new(), Vec::new());
            for (i, tensor) in wanted.chunks_exact_mut(bytes).enumerate() {
                let align = aligns[i % 2];
                let picture = Picture::noise(&mut gpu.random, (PixelFormat::Nv12, 30, 20), align * i, align);
                reference.run(&picture.frame(), tensor).unwrap();
                let block = gpu.upload(&picture.bytes);
                frames.push((picture.on_device(&block), tensors.address() + (i * bytes) as u64));
                blocks.push(block);
            }
            // SAFETY: all have the size, and live until the work is done.
            unsafe { kernel.launch_batch(&gpu.stream, &frames) }.unwrap();
            gpu.stream.synchronize().unwrap();
            gpu.check(&tensors.read().unwrap(), &wanted, || format!("{spec}"));
        }
    }
}

/// Kernels have ways of their own where positions fall on samples: at a third of the size all, at a half those of chroma, and as it is
/// the last ones, which begin a pair elsewhere.
#[test]
fn a_batch_of_each_format_and_scale_is_its_frames() {
    let Some(mut gpu) = gpu_or_skip() else { return };
    // Rows that are written four elements at a time, and not; several blocks of padding, one, and none; padding next to the picture.
    let scales = [
        ((96, 66), (32, 100)),
        ((90, 96), (40, 32)),
        ((60, 40), (30, 25)),
        ((32, 20), (32, 20)),
        ((31, 21), (31, 40)),
        ((44, 28), (30, 20)),
    ];
    for (format, (size, (width, height))) in
        PixelFormat::ALL.into_iter().flat_map(|format| scales.map(|scale| (format, scale)))
    {
        let word = if format == PixelFormat::P010 { 2 } else { 1 };
        for (dtype, order) in DTYPES.into_iter().flat_map(|dtype| TensorLayout::OF_PICTURES.map(|order| (dtype, order)))
        {
            // Chroma in pairs that can be read as one, and not.
            for (chroma, align) in
                Chroma::ALL.into_iter().flat_map(|chroma| [word, 2 * word].map(|align| (chroma, align)))
            {
                let transform = InputTransform { chroma, ..InputTransform::default() };
                let spec = spec(dtype, order, width, height, transform);
                let (bytes, color) = (spec.desc.bytes().unwrap(), gpu.random.colorimetry());
                let mut reference = preprocess::HostPreprocessor::new(format, size.0, size.1, color, &spec).unwrap();
                let kernel = PreprocessKernel::new(&gpu.context, format, size, color, &spec).unwrap();
                // Three are a batch, and the last one is launched alone.
                let mut wanted = vec![POISON; bytes * 4];
                let tensors = gpu.upload(&wanted);
                let (mut blocks, mut frames) = (Vec::new(), Vec::new());
                for (i, tensor) in wanted.chunks_exact_mut(bytes).enumerate() {
                    let picture = Picture::noise(&mut gpu.random, (format, size.0, size.1), align * i, align);
                    reference.run(&picture.frame(), tensor).unwrap();
                    let block = gpu.upload(&picture.bytes);
                    frames.push((picture.on_device(&block), tensors.address() + (i * bytes) as u64));
                    blocks.push(block);
                }
                for frames in frames.chunks(3) {
                    // SAFETY: all have the size, and live until the work is done.
                    unsafe { kernel.launch_batch(&gpu.stream, frames) }.unwrap();
                }
                gpu.stream.synchronize().unwrap();
                gpu.check(&tensors.read().unwrap(), &wanted, || format!("{} {size:?} {spec}", format.name()));
            }
        }
    }
}

#[test]
fn other_planes_are_refused() {
    let Some(gpu) = gpu_or_skip() else { return };
    let spec = spec(DType::F16, TensorLayout::Nchw, 8, 8, InputTransform::default());
    let plane = |address, stride| DevicePlane { address, stride };
    let table: [(PixelFormat, &[DevicePlane], &str); 5] = [
        (PixelFormat::Nv12, &[plane(256, 8)], "1 planes, not 2"),
        (PixelFormat::Nv12, &[plane(256, 8), plane(512, 7)], "rows of plane 1 have 8 bytes"),
        (PixelFormat::Nv12, &[plane(256, usize::MAX), plane(512, 8)], "rows of plane 0"),
        (PixelFormat::P010, &[plane(256, 16), plane(513, 16)], "plane 1 has words at odd addresses"),
        (PixelFormat::P010, &[plane(256, 17), plane(512, 16)], "plane 0 has words at odd addresses"),
    ];
    for (format, planes, cause) in table {
        let color = Colorimetry::default();
        let kernel = PreprocessKernel::new(&gpu.context, format, (8, 8), color, &spec).unwrap();
        let mut overlay =
            OverlayKernel::new(&gpu.context, Target { format, width: 8, height: 8, color }, &[], None).unwrap();
        let (found, style) = ([detection(0, 0.5, [1.0, 1.0, 5.0, 5.0])], Style::default());
        // SAFETY: nothing is launched.
        let errors = unsafe {
            [kernel.launch(&gpu.stream, planes, 4096), overlay.launch_for(&gpu.stream, planes, &found, None, &style)]
        };
        for error in errors.map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::WrongType);
            assert!(error.message().contains(cause), "“{}” does not say “{cause}”", error.message());
        }
    }
    let wrong = InputSpec { desc: TensorDesc::new("images", DType::I64, &[1, 3, 8, 8]), ..spec };
    let error =
        PreprocessKernel::new(&gpu.context, PixelFormat::Nv12, (8, 8), Colorimetry::default(), &wrong).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Negotiation);
}

fn detection(class: u32, score: f32, [x1, y1, x2, y2]: [f32; 4]) -> Candidate {
    Candidate { bbox: BBox::new(x1, y1, x2, y2), score, class, row: 0, angle: 0.0 }
}

impl Gpu {
    /// Boxes over and beyond the frame, some of them no boxes.
    fn detections(&mut self, count: usize, width: usize, height: usize) -> Vec<Candidate> {
        let random = &mut self.random;
        let mut edge = |size: usize| match random.below(40) {
            0 => random.one_of(&[f32::NAN, f32::INFINITY, -1e30, 0.0]),
            _ => random.between(-0.2 * size as f32, 1.2 * size as f32),
        };
        let edges: Vec<_> = (0..count).map(|_| [edge(width), edge(height), edge(width), edge(height)]).collect();
        let ordered = |[a, b, c, d]: [f32; 4]| [a.min(c), b.min(d), a.max(c), b.max(d)];
        let mut odd = |usual: f32, odd: &[f32]| if random.below(20) == 0 { random.one_of(odd) } else { usual };
        let scores: Vec<f32> =
            (0..count).map(|i| odd(i as f32 / count as f32, &[f32::NAN, -1.0, 1.5, 0.995])).collect();
        let mut class = || if random.below(20) == 0 { random.next() as u32 } else { random.below(99) as u32 };
        edges.into_iter().zip(scores).map(|(e, score)| detection(class(), score, ordered(e))).collect()
    }

    /// What the host found in pixels of the frame, and the same found on the GPU in pixels of some tensor.
    #[track_caller]
    fn compare_drawing(&mut self, picture: &Picture, detections: &[Candidate], style: &Style) {
        let labels =
            ["person", "ünïcödé 犬", "", "a label that is longer than the narrowest of frames"].map(String::from);
        let color = self.random.colorimetry();
        // Skeletons, points without lines, or neither.
        let shape = self.random.one_of(&[None, Some((17, 3)), Some((5, 2))]);
        let model = shape
            .map(|(count, dims)| Arc::new(KeypointModel { shape: KeypointShape { count, dims }, names: Vec::new() }));
        let mut kernel = OverlayKernel::new(&self.context, picture.target(color), &labels, model.as_deref()).unwrap();
        let side = 8 + self.random.below(700) as u32;
        let frame = (picture.width as u32, picture.height as u32);
        // What paints there takes boxes of the whole frame.
        let fit = self.random.one_of(&[ResizeMode::Letterbox, ResizeMode::LetterboxTopLeft, ResizeMode::Stretch]);
        let letterbox = Letterbox::new(frame, (side, 8 + side / 2), fit);
        // Models that find keypoints turn no boxes.
        let are_rotated = model.is_none() && self.random.below(2) == 0;
        let mut angle = || match self.random.below(8) {
            _ if !are_rotated => 0.0,
            0 => self.random.one_of(&[0.0, -0.0, FRAC_PI_2, PI, -PI, -1e-30, 1e30]),
            _ => self.random.between(-4.0, 4.0),
        };
        let detections: Vec<_> = detections.iter().map(|found| Candidate { angle: angle(), ..*found }).collect();
        // One painter for all, as in a stream whose frames have more and fewer objects.
        for count in [detections.len() / 2, detections.len(), 0] {
            let detections = &detections[..count];
            let keypoints = model.clone().map(|model| {
                let random = &mut self.random;
                let mut number = |i: usize| match random.below(30) {
                    0 => random.one_of(&[f32::NAN, f32::INFINITY, -1e30, 0.0]),
                    _ if i % usize::from(model.shape.dims) == 2 => random.between(0.0, 1.0),
                    _ => random.between(-0.1, 1.1) * side as f32,
                };
                let values = (0..count * model.shape.numbers()).map(&mut number).collect();
                Keypoints { model, values }
            });
            // Models that give masks neither find keypoints nor turn boxes.
            let has_masks = keypoints.is_none() && !are_rotated;
            let numbers: Vec<f32> = (0..count.max(81)).map(|_| self.random.between(-1.0, 1.0)).collect();
            let prototypes = Tensor::from_slice("output1", &[1, 1, 9, 9], &numbers[..81]);
            let shape = PrototypeShape { count: 1, width: 9, height: 9 };
            let masks_in = |size| {
                let mut masks = Masks::default();
                masks.find(&Prototypes::new(shape, &prototypes).unwrap(), &numbers[..count], detections, size);
                has_masks.then_some(masks)
            };
            let boxes = detections.to_vec();
            let rotated = are_rotated.then(Vec::new);
            let mut in_tensor = Instances { boxes, rotated, keypoints, masks: masks_in(frame), ..Instances::default() };
            let mut of_frame = in_tensor.clone();
            of_frame.masks = masks_in((letterbox.tensor_width, letterbox.tensor_height));
            // Objects without a pixel are not drawn, as the search leaves them.
            let (entries, bits) = of_frame.masks.as_ref().map_or_else(Default::default, |masks| {
                let (entries, bits) = masks.for_device();
                (entries, bits.to_vec())
            });
            let mut on_device = detections.to_vec();
            for (detection, _) in on_device.iter_mut().zip(&entries).filter(|(_, entry)| entry.is_seen == 0) {
                detection.bbox.x2 = detection.bbox.x1;
            }
            if let Some(masks) = &mut in_tensor.masks {
                masks.map_to_frame(count, &Letterbox::new(frame, frame, ResizeMode::Stretch));
            }
            of_frame.map_to_frame(&letterbox);
            // More may be found than is.
            let room = 3;
            let on_gpu = self.upload(&[found_bytes(&on_device), vec![0; room * size_of::<Candidate>()]].concat());
            let values = in_tensor.keypoints.as_ref().map_or(&[][..], |keypoints| &keypoints.values);
            let points = self.upload(&[bytemuck::cast_slice(values), &[0; 4]].concat());
            let entries = self.upload(&[bytemuck::cast_slice(&entries), &[0; 32 * 3][..]].concat());
            let bits = self.upload(&[bytemuck::cast_slice(&bits), &[0; 4][..]].concat());
            let masks = has_masks.then(|| DeviceMasks { entries: entries.address(), bits: bits.address(), detail: 0 });
            for (what, in_frame, drawn) in [
                ("the host", &in_tensor, detections),
                ("a plan", &in_tensor, detections),
                ("the GPU", &of_frame, of_frame.drawn()),
            ] {
                let (mut wanted, mut reference) = (picture.clone(), overlay::Overlay::default());
                let points_in_frame = in_frame.keypoints.as_ref();
                wanted.draw(color, |frame| {
                    reference.draw(frame, drawn, points_in_frame, in_frame.masks.as_ref(), &labels, style)
                });

                let block = self.upload(&picture.bytes);
                let planes = picture.on_device(&block);
                let gathered = model.as_ref().map(|_| points.address());
                let (address, limit) = (on_gpu.address(), detections.len() + room);
                let found = DeviceDetections { address, limit, gathered, are_rotated, masks };
                let target = picture.target(color);
                let tints =
                    overlay::found_tints(&target, detections, in_tensor.masks.as_ref(), style).collect::<Vec<_>>();
                // SAFETY: the block has the picture, and lives until the work is done, as do the detections.
                unsafe {
                    if what != "the GPU" {
                        kernel.launch_tints(&self.stream, &planes, &tints, style).unwrap();
                    }
                    match what {
                        "the host" => {
                            kernel.launch_for(&self.stream, &planes, detections, in_tensor.keypoints.as_ref(), style)
                        }
                        "a plan" => {
                            let mut host = overlay::Overlay::default();
                            kernel.launch_plan(
                                &self.stream,
                                &planes,
                                &host.plan(
                                    picture.target(color),
                                    detections,
                                    in_tensor.keypoints.as_ref(),
                                    &labels,
                                    style,
                                ),
                            )
                        }
                        _ => kernel.launch(&self.stream, &planes, found, Some(&letterbox), style),
                    }
                }
                .unwrap();
                self.stream.synchronize().unwrap();
                self.check(&block.read().unwrap(), &wanted.bytes, || {
                    let Picture { format, width, height, .. } = picture;
                    format!("{} {width}x{height}, {style:?}, {count} boxes that {what} found", format.name())
                });
            }
        }
    }
}

#[test]
fn random_boxes_look_like_the_reference() {
    let Some(mut gpu) = gpu_or_skip() else { return };
    for format in PixelFormat::ALL {
        for _ in 0..40 {
            let (width, height) = (1 + gpu.random.below(260), 1 + gpu.random.below(180));
            let words = if format == PixelFormat::P010 { 2 } else { 1 };
            let (slack, align) = (words * gpu.random.below(9), words << gpu.random.below(4));
            let picture = Picture::noise(&mut gpu.random, (format, width, height), slack, align);
            let count = gpu.random.below(12);
            let detections = gpu.detections(count, width, height);
            let style = Style {
                labels: gpu.random.one_of(&[true, true, false]),
                line_width: gpu.random.one_of(&[0, 1, 2, 3, 7, 64, u32::MAX]),
                ..Style::default()
            };
            gpu.compare_drawing(&picture, &detections, &style);
        }
    }
}

#[test]
fn many_and_great_boxes_look_like_the_reference() {
    let Some(mut gpu) = gpu_or_skip() else { return };
    let cases = [
        (PixelFormat::Nv12, (1920, 1080), 20),
        (PixelFormat::P010, (1279, 719), 100),
        (PixelFormat::I420, (641, 361), 700),
        (PixelFormat::Bgra, (320, 180), 300),
        (PixelFormat::Nv12, (7680, 4320), 5),
        (PixelFormat::Gray8, (MAX_SIDE, 40), 9),
    ];
    for (format, (width, height), count) in cases {
        let picture = Picture::noise(&mut gpu.random, (format, width, height), 32, 256);
        let detections = gpu.detections(count, width, height);
        for line_width in [0, 5, 64] {
            gpu.compare_drawing(&picture, &detections, &Style { line_width, ..Style::default() });
        }
    }
}

#[test]
fn classes_of_the_frame_look_like_the_reference() {
    let Some(mut gpu) = gpu_or_skip() else { return };
    for format in PixelFormat::ALL {
        for (width, height) in [(320, 180), (101, 47), (16, 200), (9, 5)] {
            let picture = Picture::noise(&mut gpu.random, (format, width, height), 0, 16);
            let (color, style) = (gpu.random.colorimetry(), Style::default());
            let class = |class| Annotation {
                class: Some(class),
                confidence: Some(0.5),
                ..Annotation::of_frame("tabby".into())
            };
            let boxed = Annotation { bbox: BBox::new(2.0, 2.0, 30.0, 20.0), of_frame: false, ..class(3) };
            let annotations = [class(0), boxed, class(1), class(2)];
            let (mut wanted, mut reference) = (picture.clone(), overlay::Overlay::default());
            wanted.draw(color, |frame| reference.annotate(frame, annotations.iter().cloned(), &style));

            let mut kernel = OverlayKernel::new(&gpu.context, picture.target(color), &[], None).unwrap();
            let block = gpu.upload(&picture.bytes);
            let planes = picture.on_device(&block);
            let plan = reference.plan_annotations(picture.target(color), annotations.iter().cloned(), &style);
            // SAFETY: the block has the picture, and lives until the work is done.
            unsafe { kernel.launch_plan(&gpu.stream, &planes, &plan) }.unwrap();
            gpu.stream.synchronize().unwrap();
            gpu.check(&block.read().unwrap(), &wanted.bytes, || format!("{} {width}x{height}", format.name()));
        }
    }
}
