// SPDX-License-Identifier: MPL-2.0
//! Lines of any direction, planned on the GPU: the sides of rotated boxes, and skeletons.

use bytemuck::cast_slice;

use super::{PlanParameters, THREADS};
use crate::cuda::driver::{Context, Function, Launch, Stream};
use crate::cuda::kernels::PLAN;
use crate::error::Result;
use crate::image::keypoints::{KeypointModel, KeypointShape};
use crate::image::overlay::{Stroke, widths};
use crate::memory::{DeviceBlock, DevicePool};

/// Sides of a rotated box.
const SIDES: u32 = 4;

/// The address of the strokes, and how many each object has.
pub(super) struct Planned {
    pub strokes: u64,
    pub each: u32,
}

/// Plans the outlines of rotated boxes.
pub(super) struct Outlines {
    plan: Function,
    /// The planned strokes.
    strokes: Option<DeviceBlock>,
}

/// Plans the skeletons of the objects.
pub(super) struct Skeletons {
    plan: Function,
    shape: KeypointShape,
    edges: &'static [[u16; 2]],
    /// The edges on the GPU.
    table: DeviceBlock,
    /// The planned strokes.
    strokes: Option<DeviceBlock>,
}

/// `OutlineParameters` of `plan.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct OutlineParameters {
    plan: PlanParameters,
    strokes: u64,
    line: u32,
    unused: u32,
}

/// `StrokeParameters` of `plan.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct SkeletonParameters {
    plan: PlanParameters,
    keypoints: u64,
    strokes: u64,
    edges: u64,
    edge_count: u32,
    point_count: u32,
    dims: u32,
    line: u32,
    point: u32,
    unused: u32,
}

const _: () = assert!(size_of::<SkeletonParameters>() == 192 && size_of::<OutlineParameters>() == 160);

impl Outlines {
    pub fn new(context: &Context) -> Result<Self> {
        Ok(Outlines { plan: context.module(PLAN)?.function("plan_outlines")?, strokes: None })
    }

    /// Queues planning, with the parameters of the boxes.
    ///
    /// # Safety
    /// As [`super::OverlayKernel::launch`].
    pub unsafe fn plan(&mut self, stream: &Stream, pool: &DevicePool, boxes: &PlanParameters) -> Result<Planned> {
        let all = boxes.limit * SIDES;
        let strokes = room(&mut self.strokes, pool, all)?;
        let plan = OutlineParameters { plan: *boxes, strokes, line: widths(boxes.line).0, unused: 0 };
        // SAFETY: the kernel takes these parameters. The detections are valid on this stream until the work is done:
        // this function requires that.
        unsafe { stream.launch(&self.plan, shape(all), &plan) }?;
        Ok(Planned { strokes, each: SIDES })
    }
}

impl Skeletons {
    pub fn new(context: &Context, pool: &DevicePool, model: &KeypointModel) -> Result<Self> {
        let edges = model.shape.edges();
        let mut table = pool.take(size_of_val(edges).max(1))?;
        if !edges.is_empty() {
            table.write(cast_slice(edges))?;
        }
        let plan = context.module(PLAN)?.function("plan_strokes")?;
        Ok(Skeletons { plan, shape: model.shape, edges, table, strokes: None })
    }

    /// Queues planning, with the parameters of the boxes and where the keypoints are.
    ///
    /// # Safety
    /// As [`super::OverlayKernel::launch`].
    pub unsafe fn plan(
        &mut self,
        stream: &Stream,
        pool: &DevicePool,
        boxes: &PlanParameters,
        keypoints: u64,
    ) -> Result<Planned> {
        let (edge_count, point_count) = (self.edges.len() as u32, u32::from(self.shape.count));
        let each = edge_count + point_count;
        let all = boxes.limit * each;
        let strokes = room(&mut self.strokes, pool, all)?;
        let (line, point) = widths(boxes.line);
        let plan = SkeletonParameters {
            plan: *boxes,
            keypoints,
            strokes,
            edges: self.table.address(),
            edge_count,
            point_count,
            dims: self.shape.dims.into(),
            line,
            point,
            unused: 0,
        };
        // SAFETY: the kernel takes these parameters. Detections and keypoints are valid on this stream until the work
        // is done: this function requires that.
        unsafe { stream.launch(&self.plan, shape(all), &plan) }?;
        Ok(Planned { strokes, each })
    }
}

/// The address of memory for at least that many strokes.
fn room(kept: &mut Option<DeviceBlock>, pool: &DevicePool, strokes: u32) -> Result<u64> {
    let bytes = strokes as usize * size_of::<Stroke>();
    let block = match kept.take_if(|block| block.bytes() >= bytes) {
        Some(block) => block,
        None => pool.take(bytes)?,
    };
    Ok(kept.insert(block).address())
}

/// A thread for each stroke.
fn shape(strokes: u32) -> Launch {
    Launch { grid: (strokes.div_ceil(THREADS), 1, 1), block: (THREADS, 1, 1), shared: 0 }
}
