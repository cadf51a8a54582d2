// SPDX-License-Identifier: MPL-2.0
//! Boxes and labels on a frame, in place: `kernels/plan.cu`, `kernels/overlay.cu`, `kernels/strokes.cu`, `kernels/tint.cu`
//! and `kernels/map_tint.cu`. The reference implementation is the rest of [`overlay`](crate::image::overlay).
//!
//! Detections need not be on the host: boxes are planned on the GPU too, so that painting is queued behind NMS.

mod maps;
mod strokes;
mod tints;

use std::sync::Arc;

use crate::cuda::kernels::{OVERLAY, PLAN, STROKES};
use bytemuck::cast_slice;

use crate::image::detections::{DeviceDetections, found_bytes};
use crate::image::device::{DevicePlane, check_planes};

use crate::counters;
use crate::cuda::driver::{Context, Function, Launch, Stream};
use crate::error::Result;
use crate::image::Candidate;
use crate::image::frame::PixelFormat;
use crate::image::geometry::Letterbox;
use crate::image::keypoints::{KeypointModel, Keypoints};
use crate::image::masks::Mask;
use crate::image::overlay::{Font, LabeledBox, MapTint, Plan, Sample, Stroke, Style, Target};
use crate::memory::{DeviceBlock, DevicePool, Mapped};
use maps::Maps;
use strokes::{Outlines, Planned, Skeletons};
use tints::{PlannedBoxes, Tints};

/// Threads of a block, as in the kernels, and of a warp.
const THREADS: u32 = 128;
const WARP: u32 = 32;
/// Blocks that paint: for this many boxes at a time, four sides and a tag of each, and pieces of each of these. So a block has
/// one box, unless there are very many: they are cheap to start in vain, and a second box takes as long as the first.
const GRID: (u32, u32, u32) = (512, 5, 2);
/// The index of a box's tag among its parts, after its sides.
const TAG: u32 = 4;
/// Cells that a block of strokes paints, across and down.
const TILE: (u32, u32) = (16, THREADS / 16);
/// The header before the boxes: their count, and the count of strokes of a plan.
const HEADER: usize = 64;
/// The offset of the count of strokes.
const STROKE_COUNT: usize = 16;
/// " 100%", and "#" with the greatest class.
const PERCENT: usize = 5;
const NUMBER: usize = 11;

/// Paints detections on frames of one format and size. It keeps its memory, so that nothing is allocated once the
/// maximum number of boxes is known.
pub struct OverlayKernel {
    plan: Function,
    plan_rotated: Function,
    paint: Function,
    paint_tags: Function,
    paint_strokes: Function,
    target: Target,
    plan_parameters: PlanParameters,
    parameters: Parameters,
    pool: DevicePool,
    /// The names of the classes and the font; the parameters hold their addresses.
    _tables: DeviceBlock,
    /// The count of planned boxes, the boxes and their texts.
    planned: Option<DeviceBlock>,
    /// Detections or a plan of the host.
    staging: Option<Mapped>,
    outlines: Outlines,
    skeletons: Option<Skeletons>,
    tints: Tints,
    maps: Maps,
}

/// `Parameters` of `plan.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct PlanParameters {
    found: u64,
    count: u64,
    boxes: u64,
    text: u64,
    names: u64,
    limit: u32,
    name_count: u32,
    name_stride: u32,
    text_stride: u32,
    room: u32,
    line: u32,
    glyph_width: u32,
    glyph_height: u32,
    width: u32,
    height: u32,
    in_tensor: u32,
    left: f32,
    top: f32,
    scale_x: f32,
    scale_y: f32,
    is_rgb: u32,
    rgb: [u32; 3],
    is_gray: u32,
    kr_kb: [f32; 2],
    black: f32,
    luma_range: f32,
    chroma_range: f32,
}

/// `Parameters` of `overlay.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Parameters {
    planes: [u64; 3],
    count: u64,
    boxes: u64,
    text: u64,
    coverage: u64,
    strides: [u32; 3],
    glyph_width: u32,
    glyph_height: u32,
}

/// `StrokeParameters` of `overlay.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct StrokeParameters {
    planes: [u64; 3],
    count: u64,
    strokes: u64,
    strides: [u32; 3],
    each: u32,
    width: u32,
    height: u32,
}

const _: () = assert!(size_of::<Stroke>() == 32 && size_of::<StrokeParameters>() == 64);
const _: () =
    assert!(size_of::<LabeledBox>() == 64 && size_of::<PlanParameters>() == 144 && size_of::<Parameters>() == 80);

impl OverlayKernel {
    /// For frames like `target`; `labels` by class, as for the reference implementation; `keypoints` are those of the
    /// model, if it finds any.
    ///
    /// # Errors
    /// `Run`, where the GPU has no memory left or cannot load the kernels.
    pub fn new(
        context: &Context,
        target: Target,
        labels: &[String],
        keypoints: Option<&KeypointModel>,
    ) -> Result<Self> {
        let name = match target.format {
            PixelFormat::Nv12 => "nv12",
            PixelFormat::P010 => "p010",
            PixelFormat::I420 => "i420",
            PixelFormat::Gray8 => "packed1",
            PixelFormat::Rgb | PixelFormat::Bgr => "packed3",
            PixelFormat::Rgba | PixelFormat::Bgra | PixelFormat::Rgbx | PixelFormat::Bgrx => "packed4",
        };
        let mut font = None;
        let font = Font::for_frame(&mut font, target.width, target.height);
        // Letters beyond those that fit in the frame are never written.
        let room = font.room(&target).min(usize::from(u16::MAX));
        let length = |label: &String| label.chars().count().min(room);
        let longest = labels.iter().map(length).max().unwrap_or_default();
        let mut names = vec![0; labels.len() * (1 + longest)];
        for (name, label) in names.chunks_exact_mut(1 + longest).zip(labels) {
            name[0] = length(label) as u16;
            name[1..].iter_mut().zip(label.chars()).for_each(|(glyph, letter)| *glyph = Font::glyph(letter));
        }

        let pool = DevicePool::new(context);
        let tables = [cast_slice(&names), font.coverage].concat();
        let mut block = pool.take(tables.len())?;
        block.write(&tables)?;

        let rgb = target.format.rgb_offsets();
        let (kr, kb) = target.color.matrix.kr_kb();
        let (black, luma_range, chroma_range) = target.color.ranges();
        let plan_parameters = PlanParameters {
            names: block.address(),
            name_count: labels.len() as u32,
            name_stride: 1 + longest as u32,
            text_stride: room.min(longest.max(NUMBER) + PERCENT) as u32,
            glyph_width: font.width,
            glyph_height: font.height,
            width: target.width,
            height: target.height,
            is_rgb: rgb.is_some().into(),
            rgb: rgb.unwrap_or_default().map(|offset| offset as u32),
            is_gray: (target.format == PixelFormat::Gray8).into(),
            kr_kb: [kr, kb],
            black,
            luma_range,
            chroma_range,
            ..PlanParameters::default()
        };
        let parameters = Parameters {
            coverage: block.address() + size_of_val(&names[..]) as u64,
            glyph_width: font.width,
            glyph_height: font.height,
            ..Parameters::default()
        };
        Ok(OverlayKernel {
            outlines: Outlines::new(context)?,
            tints: Tints::new(context, target, name)?,
            maps: Maps::new(context, target, name)?,
            skeletons: keypoints.map(|model| Skeletons::new(context, &pool, model)).transpose()?,
            plan: context.module(PLAN)?.function("plan_boxes")?,
            plan_rotated: context.module(PLAN)?.function("plan_rotated_boxes")?,
            paint: context.module(OVERLAY)?.function(&format!("overlay_{name}"))?,
            paint_tags: context.module(STROKES)?.function(&format!("tags_{name}"))?,
            paint_strokes: context.module(STROKES)?.function(&format!("strokes_{name}"))?,
            target,
            plan_parameters,
            parameters,
            pool,
            _tables: block,
            planned: None,
            staging: None,
        })
    }

    /// Queues the painting of the detections, which are in pixels of the tensor of `letterbox`, or else of the frame.
    ///
    /// # Errors
    /// `WrongType`, if these are not the planes of such a frame; `Run`, where the GPU fails.
    ///
    /// # Safety
    /// The planes have the rows of a frame as given to [`OverlayKernel::new`], and nothing else accesses them until the
    /// work is done. `self` lives until then too, and earlier launches are done or on the same stream.
    pub unsafe fn launch(
        &mut self,
        stream: &Stream,
        planes: &[DevicePlane],
        found: DeviceDetections,
        letterbox: Option<&Letterbox>,
        style: &Style,
    ) -> Result<()> {
        let Target { format, width, height, .. } = self.target;
        check_planes(planes, format, width as usize, height as usize)?;
        if found.limit == 0 {
            return Ok(());
        }
        let stride = self.plan_parameters.text_stride;
        let boxes = found.limit * size_of::<LabeledBox>();
        let planned = self.planned(HEADER + boxes + found.limit * stride as usize * size_of::<u16>())?;
        let to_frame = letterbox.map(Letterbox::scale);
        let plan = PlanParameters {
            found: found.address,
            count: planned,
            boxes: planned + HEADER as u64,
            text: planned + (HEADER + boxes) as u64,
            limit: found.limit as u32,
            room: if style.labels { stride } else { 0 },
            line: style.line(&self.target),
            in_tensor: to_frame.is_some().into(),
            left: letterbox.map_or(0.0, |letterbox| letterbox.x as f32),
            top: letterbox.map_or(0.0, |letterbox| letterbox.y as f32),
            scale_x: to_frame.map_or(1.0, |(x, _)| x),
            scale_y: to_frame.map_or(1.0, |(_, y)| y),
            ..self.plan_parameters
        };
        let paint = self.painting(planes, planned, found.limit);
        let launch = Launch { grid: (plan.limit.div_ceil(THREADS / WARP), 1, 1), block: (THREADS, 1, 1), shared: 0 };
        // SAFETY: the kernels take these parameters. The memory at their addresses lives as long as `self`. The planes
        // have the rows of a frame, and the detections are valid on this stream: this function requires both.
        unsafe {
            stream.launch(if found.are_rotated { &self.plan_rotated } else { &self.plan }, launch, &plan)?;
            if let (Some(masks), Some(letterbox), weight @ 1..) = (found.masks, letterbox, style.mask_weight()) {
                let boxes = PlannedBoxes { count: plan.count, boxes: plan.boxes, limit: plan.limit };
                self.tints.queue(
                    stream,
                    &self.pool,
                    planes,
                    masks,
                    &boxes,
                    (&letterbox.finer(masks.detail), weight),
                )?;
            }
            let outlines = if found.are_rotated { Some(self.outlines.plan(stream, &self.pool, &plan)?) } else { None };
            let skeletons = match (&mut self.skeletons, found.gathered) {
                (Some(skeletons), Some(keypoints)) => Some(skeletons.plan(stream, &self.pool, &plan, keypoints)?),
                _ => None,
            };
            let painting =
                |Planned { strokes, each }| StrokeParameters { strokes, each, ..self.stroke_painting(&paint) };
            self.paint(stream, plan.limit, &paint, [outlines, skeletons].map(|planned| planned.map(painting)))
        }
    }

    /// Queues the painting of at most `limit` boxes: outlines, then strokes in their order, then tags.
    ///
    /// # Safety
    /// As [`OverlayKernel::launch`]; the boxes and strokes are written before on the same stream.
    unsafe fn paint(
        &self,
        stream: &Stream,
        limit: u32,
        boxes: &Parameters,
        strokes: [Option<StrokeParameters>; 2],
    ) -> Result<()> {
        let block = (THREADS, 1, 1);
        let shape = |parts| Launch { grid: (GRID.0.min(limit), parts, GRID.2), block, shared: 0 };
        if strokes.iter().all(Option::is_none) {
            // SAFETY: planes, boxes and texts are valid on this stream until the work is done: this function requires that.
            return unsafe { stream.launch(&self.paint, shape(GRID.1), boxes) };
        }
        // Cells of chroma, where there are any.
        let cell = if self.plan_parameters.is_rgb == 1 || self.plan_parameters.is_gray == 1 { 1 } else { 2 };
        let tiles = (self.target.width.div_ceil(TILE.0 * cell), self.target.height.div_ceil(TILE.1 * cell), 1);
        // SAFETY: as above; the strokes are valid too.
        unsafe {
            stream.launch(&self.paint, shape(TAG), boxes)?;
            for strokes in strokes.iter().flatten() {
                stream.launch(&self.paint_strokes, Launch { grid: tiles, block, shared: 0 }, strokes)?;
            }
            stream.launch(&self.paint_tags, shape(GRID.1 - TAG), boxes)
        }
    }

    /// The parameters of strokes on the frame of those boxes, without address and count of the strokes.
    fn stroke_painting(&self, &Parameters { planes, count, strides, .. }: &Parameters) -> StrokeParameters {
        let Target { width, height, .. } = self.target;
        StrokeParameters { planes, count, strides, width, height, ..StrokeParameters::default() }
    }

    /// The parameters for the boxes at `planned`: their count, room for `limit` of them, and their texts.
    fn painting(&self, planes: &[DevicePlane], planned: u64, limit: usize) -> Parameters {
        let plane = |i: usize| planes.get(i).copied().unwrap_or_default();
        Parameters {
            planes: [0, 1, 2].map(|i| plane(i).address),
            count: planned,
            boxes: planned + HEADER as u64,
            text: planned + (HEADER + limit * size_of::<LabeledBox>()) as u64,
            strides: [0, 1, 2].map(|i| plane(i).stride as u32),
            ..self.parameters
        }
    }

    /// The same for detections on the host, in pixels of the frame.
    ///
    /// # Errors
    /// As [`OverlayKernel::launch`].
    ///
    /// # Safety
    /// As [`OverlayKernel::launch`], but earlier launches are done, not only on the same stream.
    pub unsafe fn launch_for(
        &mut self,
        stream: &Stream,
        planes: &[DevicePlane],
        detections: &[Candidate],
        keypoints: Option<&Keypoints>,
        style: &Style,
    ) -> Result<()> {
        let mut bytes = found_bytes(detections);
        let points = bytes.len();
        bytes.extend_from_slice(keypoints.map_or(&[], |keypoints| cast_slice(&keypoints.values)));
        let address = self.stage(stream, &[&bytes])?.address();
        counters::uploaded(bytes.len());
        let gathered = keypoints.map(|_| address + points as u64);
        let are_rotated = detections.iter().any(|detection| detection.angle != 0.0);
        let found = DeviceDetections { address, limit: detections.len(), gathered, are_rotated, masks: None };
        // SAFETY: this function requires of planes and `self` what `launch` does. The staging memory holds the
        // detections; earlier launches, which read it, are done.
        unsafe { self.launch(stream, planes, found, None, style) }
    }

    /// Queues the painting of a plan of the host for such a frame.
    ///
    /// # Errors
    /// As [`OverlayKernel::launch`].
    ///
    /// # Safety
    /// As [`OverlayKernel::launch_for`].
    pub unsafe fn launch_plan(&mut self, stream: &Stream, planes: &[DevicePlane], plan: &Plan) -> Result<()> {
        let Target { format, width, height, .. } = self.target;
        check_planes(planes, format, width as usize, height as usize)?;
        if plan.boxes.is_empty() && plan.strokes.is_empty() {
            return Ok(());
        }
        let mut header = [0; HEADER];
        for (at, count) in [(0, plan.boxes.len()), (STROKE_COUNT, plan.strokes.len())] {
            header[at..at + size_of::<u32>()].copy_from_slice(&(count as u32).to_ne_bytes());
        }
        // At least one box, which may be empty, since no grid is empty. Strokes are aligned so that the kernel can load
        // them.
        let boxes = if plan.boxes.is_empty() { &[LabeledBox::default()] } else { plan.boxes };
        let text: &[u8] = cast_slice(plan.text);
        let padding = &[0; size_of::<Stroke>()][..text.len().next_multiple_of(size_of::<Stroke>()) - text.len()];
        let parts: [&[u8]; 5] = [&header, cast_slice(boxes), text, padding, cast_slice(plan.strokes)];
        let bytes = parts.iter().map(|part| part.len()).sum();
        let planned = self.planned(bytes)?;
        let staging = self.stage(stream, &parts)?;
        // SAFETY: both sides have that many bytes and live as long as `self`. Earlier launches are done, and the next
        // call comes after this work is done: this function requires that. The boxes lie in the frame, because they
        // were planned for it.
        unsafe {
            stream.upload(&staging.host()[..bytes], planned)?;
            let paint = self.painting(planes, planned, boxes.len());
            let strokes = StrokeParameters {
                count: planned + STROKE_COUNT as u64,
                strokes: planned + (bytes - size_of_val(plan.strokes)) as u64,
                each: 1,
                ..self.stroke_painting(&paint)
            };
            self.paint(stream, boxes.len() as u32, &paint, [(!plan.strokes.is_empty()).then_some(strokes), None])
        }
    }

    /// Queues mixing masks into a frame, the most important first, below all that is painted later.
    ///
    /// # Errors
    /// As [`OverlayKernel::launch`].
    ///
    /// # Safety
    /// As [`OverlayKernel::launch_for`].
    pub unsafe fn launch_tints(
        &mut self,
        stream: &Stream,
        planes: &[DevicePlane],
        tints: &[(Arc<Mask>, Sample)],
        style: &Style,
    ) -> Result<()> {
        let Target { format, width, height, .. } = self.target;
        check_planes(planes, format, width as usize, height as usize)?;
        let tints = tints.iter().map(|(mask, color)| (&**mask, *color));
        // SAFETY: the planes have the rows of a frame, and earlier launches are done: this function requires both.
        unsafe { self.tints.launch(stream, &self.pool, planes, tints, style.mask_weight()) }
    }

    /// Queues mixing a map into a frame, below all that is painted later. Its values are on the host, or lie at
    /// `values` in GPU memory.
    ///
    /// # Errors
    /// As [`OverlayKernel::launch`].
    ///
    /// # Safety
    /// As [`OverlayKernel::launch_for`]; what lies at `values` is written before on the same stream.
    pub unsafe fn launch_map(
        &mut self,
        stream: &Stream,
        planes: &[DevicePlane],
        tint: &MapTint,
        values: Option<u64>,
        style: &Style,
    ) -> Result<()> {
        let Target { format, width, height, .. } = self.target;
        check_planes(planes, format, width as usize, height as usize)?;
        // SAFETY: the planes have the rows of a frame, earlier launches are done, and the values are there: this
        // function requires all of it.
        unsafe { self.maps.launch(stream, &self.pool, planes, (tint, values, style.mask_weight())) }
    }

    /// Memory that the GPU can read, with those bytes at its beginning.
    fn stage(&mut self, stream: &Stream, parts: &[&[u8]]) -> Result<&Mapped> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.staging.take_if(|staging| staging.bytes() < bytes);
        if self.staging.is_none() {
            self.staging = Some(Mapped::new(stream.context(), bytes.next_power_of_two().max(4096))?);
        }
        let staging = self.staging.as_mut().expect("just put there");
        let mut at = 0;
        for part in parts {
            staging.host_mut()[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Ok(staging)
    }

    /// The address of memory for at least that many bytes.
    fn planned(&mut self, bytes: usize) -> Result<u64> {
        self.planned.take_if(|block| block.bytes() < bytes);
        if self.planned.is_none() {
            self.planned = Some(self.pool.take(bytes)?);
        }
        Ok(self.planned.as_ref().expect("just put there").address())
    }
}
