// SPDX-License-Identifier: MPL-2.0
//! Frame to tensor: on the host, and on a GPU with the same result in every bit.

pub mod align_kernel;
pub mod aligned;
pub(crate) mod antialias;
pub mod antialias_regions;
pub mod color;
pub mod device;
pub mod host;
pub mod kernel;
pub mod region_kernel;
mod regions;
pub(crate) mod sampler;

use crate::cuda::driver::Context;
use crate::error::Result;
use crate::image::align::Crop;
use crate::image::frame::{Colorimetry, Frame, PixelFormat};
use crate::image::geometry::Letterbox;
use crate::image::transform::InputSpec;
use crate::memory::{BatchPool, Pool};
use crate::tensor::{Tensor, TensorDesc, Tensors};
use aligned::HostAligner;
use device::DevicePreprocessor;
pub use host::{HostPreprocessor, MAX_SIDE};
use regions::ByRegion;

/// Makes tensors of frames of one kind, on the host or the GPU as the model needs them.
pub enum Preprocessor {
    Host { preprocess: Box<HostPreprocessor>, regions: Box<HostRegions>, desc: TensorDesc, pool: Pool },
    Device(Box<DevicePreprocessor>),
}

/// Makes the tensors of parts of a frame on the host.
pub struct HostRegions {
    color: Colorimetry,
    spec: InputSpec,
    of: ByRegion<HostPreprocessor>,
    /// For those that are turned upright: one for each size of their tensors, made with the first one of it.
    aligners: Vec<((u32, u32), HostAligner)>,
}

impl Preprocessor {
    /// For frames of `size`, width and height; on the GPU of that context, if any. `color` matters to YUV and gray formats.
    ///
    /// # Errors
    /// As [`HostPreprocessor::new`] and [`DevicePreprocessor::new`].
    pub fn new(
        context: Option<&Context>,
        pixels: PixelFormat,
        size: (usize, usize),
        color: Colorimetry,
        spec: &InputSpec,
    ) -> Result<Self> {
        Ok(match context {
            Some(context) => {
                Preprocessor::Device(Box::new(DevicePreprocessor::new(context, pixels, size, color, spec)?))
            }
            None => {
                let preprocess = Box::new(HostPreprocessor::new(pixels, size.0, size.1, color, spec)?);
                let regions = Box::new(HostRegions::new(color, spec));
                Preprocessor::Host { preprocess, regions, desc: spec.desc.clone(), pool: Pool::default() }
            }
        })
    }

    /// Of the GPU, if it is one.
    pub fn context(&self) -> Option<&Context> {
        match self {
            Preprocessor::Host { .. } => None,
            Preprocessor::Device(device) => Some(device.context()),
        }
    }

    /// The tensor of a frame in host memory, whose bytes are read when this returns.
    ///
    /// # Errors
    /// As [`HostPreprocessor::run`] and [`DevicePreprocessor::of_host`].
    pub fn of_host(&mut self, frame: &Frame) -> Result<Tensors> {
        match self {
            Preprocessor::Host { preprocess, desc, pool, .. } => {
                let tensor = Tensor::fill(pool, desc.clone(), |bytes| preprocess.run(frame, bytes))?;
                Ok(Tensors::new(vec![tensor], None, None))
            }
            Preprocessor::Device(device) => device.of_host(frame),
        }
    }

    /// Makes the tensors of whole frames in these slots of a batch from now on, on a GPU; without, where it made them before.
    pub fn set_row(&mut self, row: Option<BatchPool>) {
        if let Preprocessor::Device(device) = self {
            device.set_row(row);
        }
    }

    /// The tensors of parts of such a frame.
    ///
    /// # Errors
    /// As [`Preprocessor::of_host`]; `Negotiation`, where a part is empty or not in the frame.
    pub fn regions_of_host(&mut self, frame: &Frame, crops: &[Crop]) -> Result<Vec<Tensors>> {
        match self {
            Preprocessor::Host { preprocess, regions, desc, pool } => {
                let (kind, mut upright) = ((preprocess.format, preprocess.size), 0);
                let tensor = |crop: &Crop| {
                    let desc = if crop.width.is_none() {
                        desc.clone()
                    } else {
                        regions.spec.resized(crop.size(&regions.spec)).desc
                    };
                    let run = |bytes: &mut [u8]| regions.run(kind, frame, crop, &mut upright, bytes);
                    Ok(Tensors::new(vec![Tensor::fill(pool, desc, run)?], None, None))
                };
                crops.iter().map(tensor).collect()
            }
            Preprocessor::Device(device) => device.regions_of_host(frame, crops),
        }
    }

    pub fn letterbox(&self) -> &Letterbox {
        match self {
            Preprocessor::Host { preprocess, .. } => preprocess.letterbox(),
            Preprocessor::Device(device) => device.letterbox(),
        }
    }
}

impl HostRegions {
    fn new(color: Colorimetry, spec: &InputSpec) -> Self {
        HostRegions { color, spec: spec.clone(), of: ByRegion::default(), aligners: Vec::new() }
    }

    /// Writes the tensor of a part of a frame of that format and size. `upright` counts the parts of the frame that are cut by their
    /// rectangles.
    fn run(
        &mut self,
        (format, size): (PixelFormat, (usize, usize)),
        frame: &Frame,
        crop: &Crop,
        upright: &mut usize,
        tensor: &mut [u8],
    ) -> Result<()> {
        let HostRegions { color, spec, of, aligners } = self;
        if let Some(there) = crop.alignment(spec) {
            let of_tensor = crop.size(spec);
            let place = match aligners.iter().position(|(made_for, _)| *made_for == of_tensor) {
                Some(place) => place,
                None => {
                    let spec = spec.resized(of_tensor);
                    aligners.push((of_tensor, HostAligner::new(format, size, *color, &spec)?));
                    aligners.len() - 1
                }
            };
            return aligners[place].1.run(frame, &there, tensor);
        }
        let make = || HostPreprocessor::of_region(format, size, crop.source, *color, spec);
        let preprocess = of.of(*upright, crop.source, make)?;
        *upright += 1;
        preprocess.run(frame, tensor)
    }
}
