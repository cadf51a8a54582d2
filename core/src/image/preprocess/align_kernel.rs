// SPDX-License-Identifier: MPL-2.0
//! Faces and boxes of a frame to tensors in one launch: `kernels/align.cu`. Each tensor is equal in every bit to the one that [`HostAligner`]
//! makes.

use super::aligned::HostAligner;
use super::kernel::{Conversion, THREADS, samples_one_by_one, siting_code, three_planes};
use crate::cuda::driver::{Context, Function, Launch, Stream};
use crate::cuda::kernels::ALIGN;
use crate::error::Result;
use crate::image::align::Alignment;
use crate::image::device::{DevicePlane, check_planes};
use crate::image::frame::{Colorimetry, PixelFormat};
use crate::image::slices::MAX_REGIONS;
use crate::image::transform::InputSpec;

/// Turns faces and boxes in frames of one format and size into tensors of one kind.
pub struct AlignKernel {
    function: Function,
    parameters: AlignParams,
    format: PixelFormat,
    /// Width and height of the frames.
    size: (usize, usize),
}

/// `Crop` of the kernel.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct CropView {
    tensor: u64,
    across: [f32; 2],
    below: [f32; 2],
    origin: [f32; 2],
    extent: [u32; 2],
}

/// `Parameters` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct AlignParams {
    conversion: Conversion,
    size: [u32; 2],
    /// Samples of a row of the other planes, and their rows.
    others: [u32; 2],
    sitings: [u32; 2],
    strides: [u32; 3],
    planes: [u64; 3],
    crops: [CropView; MAX_REGIONS],
}

const _: () = assert!(size_of::<CropView>() == 40 && size_of::<AlignParams>() == 152 + MAX_REGIONS * 40);

impl AlignKernel {
    /// For frames of `size`, width and height. `color` matters to YUV and gray formats.
    ///
    /// # Errors
    /// As [`HostAligner::new`]; `Run`, where the GPU fails.
    pub fn new(
        context: &Context,
        format: PixelFormat,
        size: (usize, usize),
        color: Colorimetry,
        spec: &InputSpec,
    ) -> Result<Self> {
        let HostAligner { base, planes, .. } = HostAligner::new(format, size, color, spec)?;
        let (first, others) = (&planes[0], planes.last().expect("a frame has a plane"));
        let steps = [first.pixel as u32, others.pixel as u32];
        let samples = samples_one_by_one(format, planes.len(), first.offsets.len());
        Ok(AlignKernel {
            function: context.module(ALIGN)?.function(&format!("align_{samples}"))?,
            parameters: AlignParams {
                conversion: Conversion::new(&base, spec, steps, 0),
                size: [size.0 as u32, size.1 as u32],
                others: [(others.row_bytes / others.pixel) as u32, others.rows as u32],
                sitings: others.sitings.map(siting_code),
                strides: [0; 3],
                planes: [0; 3],
                crops: [CropView::default(); MAX_REGIONS],
            },
            format,
            size,
        })
    }

    /// Queues the making of a tensor for each of these faces and boxes, of which every element is written: by one launch for each
    /// [`MAX_REGIONS`] of them.
    ///
    /// # Errors
    /// `WrongType`, if these are not the planes of such a frame; `Run`, where the GPU fails.
    ///
    /// # Safety
    /// The planes have the rows of a frame as given to [`AlignKernel::new`], each tensor the bytes of one and the alignment of its
    /// elements, and all stay so until the work is done.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        planes: &[DevicePlane],
        mut crops: impl Iterator<Item = (Alignment, u64)>,
    ) -> Result<()> {
        check_planes(planes, self.format, self.size.0, self.size.1)?;
        let all = three_planes(self.format, planes);
        let mut parameters = self.parameters;
        parameters.planes = all.map(|plane| plane.address);
        parameters.strides = all.map(|plane| plane.stride as u32);
        let (width, height) = parameters.conversion.tensor_size();
        loop {
            let mut count = 0;
            for (view, (there, tensor)) in parameters.crops.iter_mut().zip(crops.by_ref()) {
                let Alignment { across, below, origin, extent } = there;
                *view = CropView { tensor, across, below, origin, extent };
                count += 1;
            }
            if count == 0 {
                return Ok(());
            }
            let grid = (width.div_ceil(THREADS.0), height.div_ceil(THREADS.1), count);
            let shape = Launch { grid, block: (THREADS.0, THREADS.1, 1), shared: 0 };
            // SAFETY: the kernel takes these parameters. The planes were checked, and stay with the tensors until the work is done.
            unsafe { stream.launch(&self.function, shape, &parameters) }?;
        }
    }
}
