// SPDX-License-Identifier: MPL-2.0
//! The colours of a map, mixed into a frame on the GPU: `kernels/map_tint.cu`. The reference implementation is
//! [`MapTint::blend`].

use bytemuck::cast_slice;

use super::{THREADS, TILE};
use crate::counters;
use crate::cuda::driver::{Context, Function, Launch, Stream};
use crate::cuda::kernels::MAP_TINT;
use crate::error::Result;
use crate::image::device::DevicePlane;
use crate::image::overlay::{MapTint, Target};
use crate::memory::{DeviceBlock, DevicePool, Mapped};

/// Of `map_tint.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct MapTintParameters {
    planes: [u64; 3],
    values: u64,
    columns: u64,
    rows: u64,
    palette: u64,
    strides: [u32; 3],
    width: u32,
    height: u32,
    map_width: u32,
    first: u32,
    shift: u32,
    entries: u32,
    weight: u32,
}

const _: () = assert!(size_of::<MapTintParameters>() == 96);

/// Mixes maps into frames of one format and size. It keeps its memory.
pub(super) struct Maps {
    paint: Function,
    target: Target,
    /// Tables, palette and values, on the host and on the GPU.
    staging: Option<(Mapped, DeviceBlock)>,
}

impl Maps {
    /// `format` is the suffix of the kernels for such frames.
    pub fn new(context: &Context, target: Target, format: &str) -> Result<Self> {
        let paint = context.module(MAP_TINT)?.function(&format!("map_tint_{format}"))?;
        Ok(Maps { paint, target, staging: None })
    }

    /// Queues it. The values are those of the tint, or lie at `values` in GPU memory.
    ///
    /// # Safety
    /// As [`super::OverlayKernel::launch_for`]; what lies at `values` is written before on the same stream.
    pub unsafe fn launch(
        &mut self,
        stream: &Stream,
        pool: &DevicePool,
        planes: &[DevicePlane],
        (tint, values, weight): (&MapTint, Option<u64>, u32),
    ) -> Result<()> {
        let Target { format, width, height, .. } = self.target;
        let [columns, rows] = &tint.tables;
        let own: &[u16] = if values.is_some() { &[] } else { tint.values };
        let parts: [&[u8]; 4] = [cast_slice(columns), cast_slice(rows), cast_slice(&tint.palette), cast_slice(own)];
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.staging.take_if(|(staging, _)| staging.bytes() < bytes);
        let (staging, block) = match &mut self.staging {
            Some(staging) => staging,
            none => {
                let size = bytes.next_power_of_two();
                none.insert((Mapped::new(stream.context(), size)?, pool.take(size)?))
            }
        };
        let mut addresses = [block.address(); 4];
        let mut at = 0;
        for (part, address) in parts.iter().zip(&mut addresses) {
            staging.host_mut()[at..at + part.len()].copy_from_slice(part);
            *address += at as u64;
            at += part.len();
        }
        counters::uploaded(bytes);
        let plane = |i: usize| planes.get(i).copied().unwrap_or_default();
        let [columns, rows, palette, own] = addresses;
        let parameters = MapTintParameters {
            planes: [0, 1, 2].map(|i| plane(i).address),
            strides: [0, 1, 2].map(|i| plane(i).stride as u32),
            values: values.unwrap_or(own),
            columns,
            rows,
            palette,
            width,
            height,
            map_width: tint.width,
            first: tint.first.into(),
            shift: tint.shift.into(),
            entries: tint.palette.len() as u32,
            weight,
        };
        // Cells of chroma, where there are any.
        let cell = if format.planes(1, 1).len() > 1 { 2 } else { 1 };
        let grid = (width.div_ceil(TILE.0 * cell), height.div_ceil(TILE.1 * cell), 1);
        // SAFETY: both sides have that many bytes and live as long as `self`; earlier launches, which use them, are
        // done. The kernel takes these parameters, and the planes are valid until the work is done: this function
        // requires that.
        unsafe {
            stream.upload(&staging.host()[..bytes], block.address())?;
            stream.launch(&self.paint, Launch { grid, block: (THREADS, 1, 1), shared: 0 }, &parameters)
        }
    }
}
