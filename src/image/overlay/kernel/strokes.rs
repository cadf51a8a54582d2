//! Lines that are not upright, on the GPU: the sides of turned boxes, skeletons, and what the host has planned.

use bytemuck::cast_slice;

use super::{OVERLAY, PLAN, Parameters, PlanParameters, THREADS};
use crate::core::cuda::driver::{Context, Function, Launch, Stream};
use crate::core::error::Result;
use crate::core::memory::{DeviceBlock, DevicePool};
use crate::image::keypoints::{KeypointModel, KeypointShape};
use crate::image::overlay::{Stroke, widths};

/// Cells that a block of strokes paints, across and down.
const TILE: (u32, u32) = (16, THREADS / 16);
/// Of a turned box.
const SIDES: u32 = 4;

/// Draws strokes.
pub(super) struct Strokes {
    plan_outlines: Function,
    paint: Function,
    skeletons: Option<Skeletons>,
    /// What is planned: of outlines, and once these are painted of skeletons.
    planned: Option<DeviceBlock>,
}

struct Skeletons {
    plan: Function,
    shape: KeypointShape,
    edges: &'static [[u16; 2]],
    /// The edges on the GPU.
    table: DeviceBlock,
}

/// `StrokeParameters` of `plan.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct PlanStrokeParameters {
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

/// `OutlineParameters` of `plan.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct OutlineParameters {
    plan: PlanParameters,
    strokes: u64,
    line: u32,
    unused: u32,
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
const _: () = assert!(size_of::<PlanStrokeParameters>() == 192 && size_of::<OutlineParameters>() == 160);

impl Strokes {
    /// For frames of a format that the kernels call `name`.
    pub fn new(context: &Context, pool: &DevicePool, name: &str, keypoints: Option<&KeypointModel>) -> Result<Self> {
        let skeletons = |model: &KeypointModel| {
            let edges = model.edges();
            let mut table = pool.take(size_of_val(edges).max(1))?;
            if !edges.is_empty() {
                table.write(cast_slice(edges))?;
            }
            let plan = context.module(PLAN)?.function("plan_strokes")?;
            Ok(Skeletons { plan, shape: model.shape, edges, table })
        };
        Ok(Strokes {
            plan_outlines: context.module(PLAN)?.function("plan_outlines")?,
            paint: context.module(OVERLAY)?.function(&format!("strokes_{name}"))?,
            skeletons: keypoints.map(skeletons).transpose()?,
            planned: None,
        })
    }

    pub fn have_skeletons(&self) -> bool {
        self.skeletons.is_some()
    }

    /// Queues planning and painting of the outlines of turned boxes, with the parameters of the marks.
    ///
    /// # Safety
    /// As [`super::Overlay::launch`].
    pub unsafe fn launch_outlines(
        &mut self,
        stream: &Stream,
        pool: &DevicePool,
        marks: &PlanParameters,
        paint: &Parameters,
    ) -> Result<()> {
        let strokes = self.room(pool, marks.limit * SIDES)?;
        let plan = OutlineParameters { plan: *marks, strokes, line: widths(marks.line).0, unused: 0 };
        // SAFETY: the kernel takes these parameters; the rest as the caller says.
        unsafe {
            stream.launch(&self.plan_outlines, shape(marks.limit * SIDES), &plan)?;
            self.paint(stream, marks, &painting(paint, marks, paint.count, strokes, SIDES))
        }
    }

    /// The same of skeletons, whose keypoints are at that address.
    ///
    /// # Safety
    /// As [`super::Overlay::launch`].
    pub unsafe fn launch_skeletons(
        &mut self,
        stream: &Stream,
        pool: &DevicePool,
        marks: &PlanParameters,
        paint: &Parameters,
        keypoints: u64,
    ) -> Result<()> {
        let Some(Skeletons { shape: model, edges, .. }) = &self.skeletons else { return Ok(()) };
        let (edge_count, point_count, dims) = (edges.len() as u32, u32::from(model.count), model.dims.into());
        let each = edge_count + point_count;
        let strokes = self.room(pool, marks.limit * each)?;
        let Some(Skeletons { plan, table, .. }) = &self.skeletons else { return Ok(()) };
        let (line, point) = widths(marks.line);
        let parameters = PlanStrokeParameters {
            plan: *marks,
            keypoints,
            strokes,
            edges: table.address(),
            edge_count,
            point_count,
            dims,
            line,
            point,
            unused: 0,
        };
        // SAFETY: the kernel takes these parameters; the rest as the caller says.
        unsafe {
            stream.launch(plan, shape(marks.limit * each), &parameters)?;
            self.paint(stream, marks, &painting(paint, marks, paint.count, strokes, each))
        }
    }

    /// Queues the painting of strokes that the host has planned; they and their number are at these addresses.
    ///
    /// # Safety
    /// As [`super::Overlay::launch`].
    pub unsafe fn launch_planned(
        &self,
        stream: &Stream,
        marks: &PlanParameters,
        paint: &Parameters,
        (count, strokes): (u64, u64),
    ) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.paint(stream, marks, &painting(paint, marks, count, strokes, 1)) }
    }

    /// # Safety
    /// As [`super::Overlay::launch`].
    unsafe fn paint(&self, stream: &Stream, marks: &PlanParameters, paint: &StrokeParameters) -> Result<()> {
        // Cells of chroma, where there are any.
        let cell = if marks.is_rgb == 1 || marks.is_gray == 1 { 1 } else { 2 };
        let tiles = (paint.width.div_ceil(TILE.0 * cell), paint.height.div_ceil(TILE.1 * cell), 1);
        // SAFETY: the kernel takes these parameters; the rest as the caller says.
        unsafe { stream.launch(&self.paint, Launch { grid: tiles, block: (THREADS, 1, 1), shared: 0 }, paint) }
    }

    /// Where there is memory for so many strokes and more.
    fn room(&mut self, pool: &DevicePool, strokes: u32) -> Result<u64> {
        let bytes = strokes as usize * size_of::<Stroke>();
        let block = match self.planned.take_if(|block| block.bytes() >= bytes) {
            Some(block) => block,
            None => pool.take(bytes)?,
        };
        Ok(self.planned.insert(block).address())
    }
}

/// A thread for each.
fn shape(strokes: u32) -> Launch {
    Launch { grid: (strokes.div_ceil(THREADS), 1, 1), block: (THREADS, 1, 1), shared: 0 }
}

fn painting(paint: &Parameters, marks: &PlanParameters, count: u64, strokes: u64, each: u32) -> StrokeParameters {
    let (Parameters { planes, strides, .. }, PlanParameters { width, height, .. }) = (*paint, *marks);
    StrokeParameters { planes, count, strokes, strides, each, width, height }
}
