// SPDX-License-Identifier: MPL-2.0
//! Rectangles of a frame to tensors in one launch: `kernels/regions.cu`. Each tensor is equal in every bit to the one that
//! [`HostPreprocessor::of_region`] makes.

use super::HostPreprocessor;
use super::host::{Samplers, check_source};
use super::kernel::{
    Conversion, Sampling, THREADS, ViewPlacement, are_together, blocks, has_pairs, samples_of, step, three_planes,
};
use crate::cuda::driver::{Context, Function, Launch, Stream};
use crate::cuda::kernels::REGIONS;
use crate::error::Result;
use crate::image::device::{DevicePlane, check_planes};
use crate::image::frame::{Colorimetry, PixelFormat};
use crate::image::geometry::Rect;
use crate::image::slices::MAX_REGIONS;
use crate::image::transform::InputSpec;

/// Columns and rows of the scaled rectangle for a thread, as in the kernel.
const COLUMNS: u32 = 2;
const ROWS: u32 = 2;

/// Turns rectangles of frames of one format and size into tensors of one kind.
pub struct RegionKernel {
    function: Function,
    /// For chroma in pairs that are not aligned to both samples.
    one_by_one: Option<Function>,
    parameters: RegionParams,
    format: PixelFormat,
    /// Width and height of the frames.
    size: (usize, usize),
    spec: InputSpec,
}

/// `Region` of the kernel.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct RegionView {
    tensor: u64,
    placement: ViewPlacement,
    together: u32,
    unused: u32,
}

/// `Parameters` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct RegionParams {
    conversion: Conversion,
    sampling: Sampling,
    strides: [u32; 3],
    planes: [u64; 3],
    regions: [RegionView; MAX_REGIONS],
}

const _: () = assert!(size_of::<RegionView>() == 48 && size_of::<RegionParams>() == 144 + MAX_REGIONS * 48);
// All that a kernel may get.
const _: () = assert!(size_of::<RegionParams>() <= 4096);

impl RegionKernel {
    /// For frames of `size`, width and height. `color` matters to YUV and gray formats. `None` where tensors are made with
    /// antialiasing, as by [`AntialiasedRegionKernel`](super::antialias_regions::AntialiasedRegionKernel).
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
        let Samplers::Bilinear(samplers) = &reference.samplers else { return Ok(None) };
        let (first, others) = (&samplers[0], samplers.last().expect("a frame has a plane"));
        let parameters = RegionParams {
            conversion: Conversion::new(&reference, spec, [step(first), step(others)], 0),
            sampling: Sampling::new(samplers, format, size, color, spec),
            strides: [0; 3],
            planes: [0; 3],
            regions: [RegionView::default(); MAX_REGIONS],
        };
        let module = context.module(REGIONS)?;
        let function = |samples: &str| module.function(&format!("regions_{samples}"));
        let (samples, one_by_one) = samples_of(format, samplers);
        Ok(Some(RegionKernel {
            function: function(samples)?,
            one_by_one: one_by_one.map(function).transpose()?,
            parameters,
            format,
            size,
            spec: spec.clone(),
        }))
    }

    /// Queues the making of a tensor for each of these rectangles, of which every element is written: by one launch for each
    /// [`MAX_REGIONS`] of them.
    ///
    /// # Errors
    /// `WrongType`, if these are not the planes of such a frame; `Negotiation`, where a rectangle is empty or not in
    /// the frame; `Run`, where the GPU fails.
    ///
    /// # Safety
    /// The planes have the rows of a frame as given to [`RegionKernel::new`], each tensor the bytes of one and the
    /// alignment of its elements, and all stay so until the work is done.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        planes: &[DevicePlane],
        regions: impl Iterator<Item = (Rect, u64)>,
    ) -> Result<()> {
        check_planes(planes, self.format, self.size.0, self.size.1)?;
        let one_by_one = self.one_by_one.as_ref().filter(|_| !has_pairs(self.format, planes));
        let function = one_by_one.unwrap_or(&self.function);
        let all = three_planes(self.format, planes);
        let mut parameters = self.parameters;
        parameters.planes = all.map(|plane| plane.address);
        parameters.strides = all.map(|plane| plane.stride as u32);
        let (mut count, mut down) = (0, 0);
        let (width, height) = parameters.conversion.tensor_size();
        let launch = |parameters: &RegionParams, count: usize, down: u32| {
            let grid = (width.div_ceil(THREADS.0 * COLUMNS), down, count as u32);
            let shape = Launch { grid, block: (THREADS.0, THREADS.1, 1), shared: 0 };
            // SAFETY: the kernel takes these parameters. The planes were checked, and stay with the tensors until the
            // work is done.
            unsafe { stream.launch(function, shape, parameters) }
        };
        for (source, tensor) in regions {
            check_source(&source, self.size.0, self.size.1)?;
            let letterbox = self.spec.letterbox(source);
            parameters.regions[count] = RegionView {
                tensor,
                placement: ViewPlacement::new(&source, &letterbox),
                together: are_together(&letterbox, tensor, self.spec.desc.dtype.size(), COLUMNS).into(),
                unused: 0,
            };
            (count, down) = (count + 1, down.max(blocks(letterbox.height, height, ROWS)));
            if count == MAX_REGIONS {
                launch(&parameters, count, down)?;
                (count, down) = (0, 0);
            }
        }
        if count > 0 { launch(&parameters, count, down) } else { Ok(()) }
    }
}
