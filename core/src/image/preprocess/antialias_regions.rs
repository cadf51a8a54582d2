// SPDX-License-Identifier: MPL-2.0
//! Rectangles of a frame to tensors with antialiasing: `kernels/antialias_regions.cu`. One launch makes the tables of all
//! rectangles, the next one their tensors, each equal in every bit to that of [`HostPreprocessor::of_region`].

use super::HostPreprocessor;
use super::host::{Samplers, check_source};
use super::kernel::{Conversion, THREADS, Taps, samples_one_by_one, siting_code, three_planes};
use super::sampler::SampledPlane;
use crate::cuda::driver::{Context, Function, Launch, Stream};
use crate::cuda::kernels::ANTIALIAS_REGIONS;
use crate::error::Result;
use crate::image::device::{DevicePlane, check_planes};
use crate::image::frame::{Colorimetry, PixelFormat};
use crate::image::geometry::{Letterbox, Rect};
use crate::image::slices::MAX_REGIONS;
use crate::image::transform::InputSpec;
use crate::memory::{DeviceBlock, DevicePool};

/// Threads of a block that makes tables, as in the kernel.
const TABLE_THREADS: u32 = 64;

/// Turns rectangles of frames of one format and size into tensors of one kind, on one stream.
pub struct AntialiasedRegionKernel {
    tables_function: Function,
    function: Function,
    parameters: AntialiasedRegionParams,
    format: PixelFormat,
    /// Width and height of the frames.
    size: (usize, usize),
    spec: InputSpec,
    pool: DevicePool,
    /// One will do: the next tables are written behind the kernel that reads these.
    tables: Option<DeviceBlock>,
}

/// `Region` of the kernel.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct AntialiasedRegionView {
    tensor: u64,
    tables: u64,
    source: [u32; 4],
    whole: [u32; 2],
    offset: [u32; 2],
    /// Weights of a column and of a row, in plane 0 and as many in the others.
    room: [u32; 2],
}

/// `Parameters` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct AntialiasedRegionParams {
    conversion: Conversion,
    sitings: [u32; 2],
    strides: [u32; 3],
    planes: [u64; 3],
    regions: [AntialiasedRegionView; MAX_REGIONS],
}

const _: () = assert!(size_of::<AntialiasedRegionView>() == 56);
const _: () = assert!(size_of::<AntialiasedRegionParams>() == 136 + MAX_REGIONS * 56);
// All that a kernel may get.
const _: () = assert!(size_of::<AntialiasedRegionParams>() <= 4096);

impl AntialiasedRegionKernel {
    /// For frames of `size`, width and height. `color` matters to YUV and gray formats. `None` where tensors are made without
    /// antialiasing.
    ///
    /// # Errors
    /// As [`HostPreprocessor::new`]; `Run`, where the GPU fails.
    pub fn new(
        context: &Context,
        format: PixelFormat,
        size: (usize, usize),
        color: Colorimetry,
        spec: &InputSpec,
    ) -> Result<Option<Self>> {
        let reference = HostPreprocessor::new(format, size.0, size.1, color, spec)?;
        let Samplers::Antialiased(samplers) = &reference.samplers else { return Ok(None) };
        let (first, others) = (&samplers[0], samplers.last().expect("a frame has a plane"));
        let sitings = SampledPlane::all(format, size, color, &spec.transform).last().expect("as above").sitings;
        let steps = [first.pixel as u32, others.pixel as u32];
        let samples = samples_one_by_one(format, samplers.len(), first.channels());
        let module = context.module(ANTIALIAS_REGIONS)?;
        Ok(Some(AntialiasedRegionKernel {
            tables_function: module.function("antialias_tables")?,
            function: module.function(&format!("antialias_regions_{samples}"))?,
            parameters: AntialiasedRegionParams {
                conversion: Conversion::new(&reference, spec, steps, 0),
                sitings: sitings.map(siting_code),
                strides: [0; 3],
                planes: [0; 3],
                regions: [AntialiasedRegionView::default(); MAX_REGIONS],
            },
            format,
            size,
            spec: spec.clone(),
            pool: DevicePool::new(context),
            tables: None,
        }))
    }

    /// Queues the making of a tensor for each of these rectangles, of which every element is written: by two launches for each
    /// [`MAX_REGIONS`] of them. Always on the same stream.
    ///
    /// # Errors
    /// `WrongType`, if these are not the planes of such a frame; `Negotiation`, where a rectangle is empty or not in the frame;
    /// `Run`, where the GPU fails.
    ///
    /// # Safety
    /// The planes have the rows of a frame as given to [`AntialiasedRegionKernel::new`], each tensor the bytes of one and the
    /// alignment of its elements, and all stay so until the work is done. So does `self`.
    pub unsafe fn launch(&mut self, stream: &Stream, planes: &[DevicePlane], regions: &[(Rect, u64)]) -> Result<()> {
        check_planes(planes, self.format, self.size.0, self.size.1)?;
        regions.iter().try_for_each(|(source, _)| check_source(source, self.size.0, self.size.1))?;
        let all = three_planes(self.format, planes);
        self.parameters.planes = all.map(|plane| plane.address);
        self.parameters.strides = all.map(|plane| plane.stride as u32);
        let (_, tensor_height, tensor_width) = self.spec.chw();
        let [width, height] = [tensor_width as u32, tensor_height as u32];
        for regions in regions.chunks(MAX_REGIONS) {
            let mut bytes = 0;
            for (view, &(source, tensor)) in self.parameters.regions.iter_mut().zip(regions) {
                let letterbox = self.spec.letterbox(source);
                let (left, top) = letterbox.crop_offset();
                let room = room(&letterbox);
                *view = AntialiasedRegionView {
                    tensor,
                    tables: bytes as u64,
                    source: [source.left, source.top, source.width(), source.height()],
                    whole: [letterbox.whole.0, letterbox.whole.1],
                    offset: [left, top],
                    room,
                };
                bytes += tables_bytes([width, height], room);
            }
            let tables = self.room_for_tables(stream, bytes)?;
            self.parameters.regions[..regions.len()].iter_mut().for_each(|view| view.tables += tables);
            let count = regions.len() as u32;
            let grid = ((width + height).div_ceil(TABLE_THREADS), count, 1);
            let make_tables = Launch { grid, block: (TABLE_THREADS, 1, 1), shared: 0 };
            let grid = (width.div_ceil(THREADS.0), height.div_ceil(THREADS.1), count);
            let make_tensors = Launch { grid, block: (THREADS.0, THREADS.1, 1), shared: 0 };
            // SAFETY: the kernels take these parameters. The planes were checked, and stay with the tensors until the work is done; the
            // tables have the size that the kernels use, and stay with `self`.
            unsafe {
                stream.launch(&self.tables_function, make_tables, &self.parameters)?;
                stream.launch(&self.function, make_tensors, &self.parameters)?;
            }
        }
        Ok(())
    }

    /// The address of memory for so many bytes of tables.
    fn room_for_tables(&mut self, stream: &Stream, bytes: usize) -> Result<u64> {
        if let Some(tables) = self.tables.as_ref().filter(|tables| tables.bytes() >= bytes) {
            return Ok(tables.address());
        }
        stream.synchronize()?; // the smaller one is about to be freed
        self.tables = None;
        Ok(self.tables.insert(self.pool.take(bytes.next_power_of_two())?).address())
    }
}

/// Maximum number of weights of a column and of a row: a position reaches over so many pixels, and the last of them may lie between
/// two samples.
fn room(letterbox: &Letterbox) -> [u32; 2] {
    let Letterbox { source, whole, .. } = letterbox;
    let weights = |pixels: u32, scaled: u32| {
        let reach = (f64::from(pixels) / f64::from(scaled)).max(1.0);
        (2.0 * reach) as u32 + 3
    };
    [weights(source.width(), whole.0), weights(source.height(), whole.1)]
}

/// Of a rectangle: a multiple of the alignment of the tables.
fn tables_bytes(tensor: [u32; 2], room: [u32; 2]) -> usize {
    let of_axis =
        |positions: u32, room: u32| positions as usize * (size_of::<Taps>() + 2 * room as usize * size_of::<f32>());
    (of_axis(tensor[0], room[0]) + of_axis(tensor[1], room[1])).next_multiple_of(256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::preprocess::antialias::AntialiasSampler;

    /// No position has more weights than there is room for.
    #[test]
    fn the_tables_of_the_host_have_room() {
        for format in PixelFormat::ALL {
            for (source, tensor) in
                [((1, 1), (24, 40)), ((90, 3), (24, 40)), ((3, 1000), (5, 7)), ((640, 480), (7, 640))]
            {
                for start in 0..3 {
                    let source = Rect { left: start, top: start, right: start + source.0, bottom: start + source.1 };
                    for chroma in ["nearest", "sited"] {
                        let (height, width) = (tensor.1, tensor.0);
                        let spec: InputSpec = format!(
                            "cuda f32 1x3x{height}x{width} nchw rgb center-crop:0 scale:1 chroma:{chroma} images"
                        )
                        .parse()
                        .unwrap();
                        let size = (source.right as usize + 1, source.bottom as usize + 1);
                        let host = HostPreprocessor::of_region(format, size, source, Colorimetry::default(), &spec);
                        let host = host.unwrap();
                        let Samplers::Antialiased(samplers) = &host.samplers else { panic!("{spec}") };
                        let room = room(&host.letterbox);
                        let most = |sampler: &AntialiasSampler| [sampler.columns.longest(), sampler.rows.longest()];
                        for [columns, rows] in samplers.iter().map(most) {
                            assert!(columns <= room[0] as usize && rows <= room[1] as usize, "{source:?} {spec}");
                        }
                    }
                }
            }
        }
    }
}
