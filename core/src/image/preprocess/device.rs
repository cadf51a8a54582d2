// SPDX-License-Identifier: MPL-2.0
//! Frames to tensors in GPU memory: the kernel with the stream, the pool and the upload that it needs from frame to frame.

use super::align_kernel::AlignKernel;
use super::antialias_regions::AntialiasedRegionKernel;
use super::kernel::PreprocessKernel;
use super::region_kernel::RegionKernel;
use crate::cuda::driver::{Context, Fence, Stream, StreamRole, WaitHistory};
use crate::error::{Error, ErrorKind, Result};
use crate::image::align::Crop;
use crate::image::device::{DevicePlane, DevicePlanes};
use crate::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use crate::image::geometry::Letterbox;
use crate::image::transform::InputSpec;
use crate::memory::{BatchPool, DeviceBlock, DevicePool};
use crate::options::choices;
use crate::tensor::{Tensor, TensorDesc, Tensors};

/// How frames in host memory come to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upload {
    #[default]
    Auto,
    Copy,
    Mapped,
}

choices! {
    Upload, "GstTrtUpload":
    Upload::Auto => "auto" "Read in place where that is faster, else copied"
    Upload::Copy => "copy" "Copied to the GPU first"
    Upload::Mapped => "mapped" "Read in place, out of pinned memory"
}

/// What makes the tensors of parts of frames.
enum RegionMaker {
    Bilinear(Box<RegionKernel>),
    Antialiased(Box<AntialiasedRegionKernel>),
}

impl RegionMaker {
    fn new(
        context: &Context,
        pixels: PixelFormat,
        size: (usize, usize),
        color: Colorimetry,
        spec: &InputSpec,
    ) -> Result<Self> {
        if let Some(kernel) = RegionKernel::new(context, pixels, size, color, spec)? {
            return Ok(RegionMaker::Bilinear(Box::new(kernel)));
        }
        let kernel = AntialiasedRegionKernel::new(context, pixels, size, color, spec)?;
        Ok(RegionMaker::Antialiased(Box::new(kernel.expect("it is bilinear or antialiased"))))
    }
}

/// Planes begin at multiples of this in an upload.
const ALIGN: usize = 256;

/// Over PCIe a kernel takes longer to read a byte of host memory than a copy does (on an H200, by
/// tests/bench/memory.rs, 1.2 times where it skips rows, up to 1.9 where it needs every byte), but need not read all of
/// them.
const DETOUR: f64 = 1.4;

/// Up to so many bytes, starting a copy and waiting for it takes longer than reading them in place.
const SMALL: usize = 256 << 10;

/// Made for one format, one kind of tensor and one context.
pub struct DevicePreprocessor {
    // Drop order: the stream first, which waits for the work that uses the rest.
    stream: Stream,
    kernel: PreprocessKernel,
    /// For parts of frames, made with the first ones.
    regions: Option<RegionMaker>,
    /// For those that are turned upright, likewise: one for each size of their tensors.
    aligners: Vec<((u32, u32), AlignKernel)>,
    /// Where tensors are made.
    slots: BatchPool,
    /// Where those of whole frames are made meanwhile: the batches of a list.
    row: Option<BatchPool>,
    pool: DevicePool,
    how: Upload,
    /// The GPU reads host memory as fast as its own.
    shares_memory: bool,
    /// With the frames of the host.
    history: WaitHistory,
    /// Where frames from the host go. One will do: the next copy into it is queued behind the kernel that reads it.
    upload: Option<DeviceBlock>,
    spec: InputSpec,
    color: Colorimetry,
    pixels: PixelFormat,
    size: (usize, usize),
}

impl DevicePreprocessor {
    /// For frames of `size`, width and height. `color` matters to YUV and gray formats.
    ///
    /// # Errors
    /// As [`HostPreprocessor::new`](crate::image::preprocess::host::HostPreprocessor::new); `Run`, where the GPU fails.
    pub fn new(
        context: &Context,
        pixels: PixelFormat,
        size: (usize, usize),
        color: Colorimetry,
        spec: &InputSpec,
    ) -> Result<Self> {
        let bytes = spec.desc.bytes().expect("the specification has fixed dimensions");
        Ok(DevicePreprocessor {
            slots: BatchPool::new(context, bytes, 1),
            row: None,
            stream: Stream::of(context, StreamRole::Preprocess)?,
            kernel: PreprocessKernel::new(context, pixels, size, color, spec)?,
            pool: DevicePool::new(context),
            how: Upload::Copy,
            shares_memory: context.reads_host_memory_well()?,
            history: WaitHistory::default(),
            upload: None,
            regions: None,
            aligners: Vec::new(),
            spec: spec.clone(),
            color,
            pixels,
            size,
        })
    }

    /// Makes tensors in these slots from now on, if they have the size and the context.
    pub fn use_slots(&mut self, slots: BatchPool) {
        if slots.context() == self.context() && slots.bytes() == self.slots.bytes() {
            self.slots = slots;
        }
    }

    /// Makes the tensors of whole frames in these slots from now on, if they have the size and the context; without, where they were
    /// made before.
    pub fn set_row(&mut self, row: Option<BatchPool>) {
        self.row = row.filter(|row| row.context() == self.context() && row.bytes() == self.slots.bytes());
    }

    /// How frames in host memory come to the kernel from now on; they are copied at first.
    pub fn set_upload(&mut self, upload: Upload) {
        let (read, all) = self.kernel.bytes_read();
        let little = all <= SMALL || read as f64 * DETOUR < all as f64;
        self.how = match upload {
            Upload::Auto if !self.shares_memory && !little => Upload::Copy,
            how => how,
        };
    }

    pub fn context(&self) -> &Context {
        self.stream.context()
    }

    pub fn letterbox(&self) -> &Letterbox {
        self.kernel.letterbox()
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Queues the making of the tensor of a frame in host memory, which is there once the fence is passed. The frame's bytes
    /// are read when this returns.
    ///
    /// # Errors
    /// `WrongType`, if the frame is not of the format and size given to [`DevicePreprocessor::new`], or is to be read
    /// in place and the GPU does not see it; `Run`, where the GPU fails.
    pub fn of_host(&mut self, frame: &Frame) -> Result<Tensors> {
        // SAFETY: `upload_and_convert` passes the planes of such a frame, which stay until the kernel has read them.
        self.upload_and_convert(frame, |this, planes| unsafe { this.of_gpu(planes) })
    }

    /// The same for parts of the frame, each with a tensor of its own and all with one fence.
    ///
    /// # Errors
    /// As [`DevicePreprocessor::of_host`]; `Negotiation`, where a part is empty or not in the frame.
    pub fn regions_of_host(&mut self, frame: &Frame, crops: &[Crop]) -> Result<Vec<Tensors>> {
        if crops.is_empty() {
            return Ok(Vec::new());
        }
        // SAFETY: as above.
        self.upload_and_convert(frame, |this, planes| unsafe { this.regions_of_gpu(planes, crops) })
    }

    /// Makes tensors of a frame in host memory, whose bytes are read when this returns.
    fn upload_and_convert<T: AsTensors>(
        &mut self,
        frame: &Frame,
        make: impl FnOnce(&mut Self, &[DevicePlane]) -> Result<T>,
    ) -> Result<T> {
        frame.check(self.pixels, self.size.0, self.size.1)?;
        if self.how != Upload::Copy
            && let Some(planes) = self.mapped(frame)?
        {
            let made = make(self, &planes)?;
            made.fence().map_or(Ok(()), |read| read.wait_again(&mut self.history))?;
            return Ok(made);
        }
        let queued = self.stream.queuing();
        let begin = self.stream.begin_timing();
        let planes = self.upload(frame)?;
        self.stream.end_timing(begin);
        let uploaded = queued.record_awaited(&self.history)?;
        // They are copies of the frame's, which was checked, in `upload`, which stays with the stream.
        let made = make(self, &planes);
        // The frame's owner may write to it after this, and a copy out of pinned memory is not done when queued.
        uploaded.wait_again(&mut self.history)?;
        made
    }

    /// Queues the making of the tensor of a frame in GPU memory, which is there once the fence is passed.
    ///
    /// # Safety
    /// The planes are there, of the format and size given to [`DevicePreprocessor::new`], until the fence is passed.
    pub unsafe fn of_gpu(&mut self, planes: &[DevicePlane]) -> Result<Tensors> {
        let block = self.row.as_ref().unwrap_or(&self.slots).take()?;
        let queued = self.stream.queuing();
        let begin = self.stream.begin_timing();
        // SAFETY: the planes by the caller's promise; the block has the tensor's size, and returns to the pool after
        // the fence.
        unsafe { self.kernel.launch(&self.stream, planes, block.address()) }?;
        self.stream.end_timing(begin);
        let ready = queued.record()?;
        Ok(Tensors::new(vec![Tensor::on_device(self.spec.desc.clone(), block)], Some(ready), None))
    }

    /// The same for several frames, each with a tensor of its own and all with one fence.
    ///
    /// # Safety
    /// As for [`DevicePreprocessor::of_gpu`], for each frame.
    pub unsafe fn batch_of_gpu(&mut self, frames: &[DevicePlanes]) -> Result<Vec<Tensors>> {
        let blocks = self.row.as_ref().unwrap_or(&self.slots).take_many(frames.len())?;
        let frames: Vec<(DevicePlanes, u64)> =
            frames.iter().cloned().zip(blocks.iter().map(DeviceBlock::address)).collect();
        let queued = self.stream.queuing();
        let begin = self.stream.begin_timing();
        // SAFETY: the planes by the caller's promise; the blocks have the tensor's size, and return to the pool after the fence.
        unsafe { self.kernel.launch_batch(&self.stream, &frames) }?;
        self.stream.end_timing(begin);
        let ready = queued.record()?;
        let desc = &self.spec.desc;
        let tensors = |block| Tensors::new(vec![Tensor::on_device(desc.clone(), block)], Some(ready.clone()), None);
        Ok(blocks.into_iter().map(tensors).collect())
    }

    /// The same for parts of the frame, each with a tensor of its own and all with one fence.
    ///
    /// # Safety
    /// As for [`DevicePreprocessor::of_gpu`].
    ///
    /// # Errors
    /// As [`DevicePreprocessor::of_gpu`]; `Negotiation`, where a part is empty or not in the frame.
    pub unsafe fn regions_of_gpu(&mut self, planes: &[DevicePlane], crops: &[Crop]) -> Result<Vec<Tensors>> {
        let (blocks, descs) = self.take_tensors(crops)?;
        let DevicePreprocessor { stream, regions, aligners, spec, color, pixels, size, .. } = self;
        let spec = &*spec;
        let tensors = || crops.iter().zip(blocks.iter().map(DeviceBlock::address));
        let upright = || {
            let upright = tensors().filter(move |(crop, _)| crop.alignment(spec).is_none());
            upright.map(|(crop, tensor)| (crop.source, tensor))
        };
        // Those whose tensors have that size.
        let aligned = |of_tensor: (u32, u32)| {
            let of_size = tensors().filter(move |(crop, _)| crop.size(spec) == of_tensor);
            of_size.filter_map(move |(crop, tensor)| Some((crop.alignment(spec)?, tensor)))
        };
        let mut sizes: Vec<(u32, u32)> =
            crops.iter().filter(|crop| crop.alignment(spec).is_some()).map(|crop| crop.size(spec)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if regions.is_none() && upright().next().is_some() {
            *regions = Some(RegionMaker::new(stream.context(), *pixels, *size, *color, spec)?);
        }
        for &of_tensor in &sizes {
            if !aligners.iter().any(|(made_for, _)| *made_for == of_tensor) {
                let spec = spec.resized(of_tensor);
                aligners.push((of_tensor, AlignKernel::new(stream.context(), *pixels, *size, *color, &spec)?));
            }
        }
        let queued = stream.queuing();
        let begin = stream.begin_timing();
        // SAFETY: the planes by the caller's promise; each block has the tensor's size, and returns to the pool after the fence. What
        // makes the tensors stays with `self`, which waits for the stream.
        unsafe {
            match regions {
                Some(RegionMaker::Bilinear(kernel)) => kernel.launch(stream, planes, upright())?,
                Some(RegionMaker::Antialiased(kernel)) => {
                    kernel.launch(stream, planes, &upright().collect::<Vec<_>>())?;
                }
                None => {}
            }
            for (of_tensor, kernel) in aligners.iter().filter(|(made_for, _)| sizes.contains(made_for)) {
                kernel.launch(stream, planes, aligned(*of_tensor))?;
            }
        }
        stream.end_timing(begin);
        let ready = queued.record()?;
        let tensors = |(block, desc)| Tensors::new(vec![Tensor::on_device(desc, block)], Some(ready.clone()), None);
        Ok(blocks.into_iter().zip(descs).map(tensors).collect())
    }

    /// Memory for the tensors of parts of a frame, and what these are: in the slots of batches, where all have the size of those.
    fn take_tensors(&self, crops: &[Crop]) -> Result<(Vec<DeviceBlock>, Vec<TensorDesc>)> {
        let DevicePreprocessor { slots, pool, spec, .. } = self;
        if crops.iter().all(|crop| crop.width.is_none()) {
            return Ok((slots.take_many(crops.len())?, vec![spec.desc.clone(); crops.len()]));
        }
        let descs: Vec<TensorDesc> = crops.iter().map(|crop| spec.resized(crop.size(spec)).desc).collect();
        let block = |desc: &TensorDesc| pool.take(desc.bytes().expect("the specification has fixed dimensions"));
        Ok((descs.iter().map(block).collect::<Result<_>>()?, descs))
    }

    /// The device addresses of a frame's planes in host memory; `None` where the GPU cannot access them, and need not.
    fn mapped(&self, frame: &Frame) -> Result<Option<DevicePlanes>> {
        let see = |plane: &Plane| {
            let at = plane.data.as_ptr();
            // Ordinary memory comes page by page, which pays only where nothing has to be uploaded.
            let address = if self.how == Upload::Auto && !self.shares_memory {
                self.context().address_of_pinned(at)?
            } else {
                self.context().address_of(at)?
            };
            Ok(address.map(|address| DevicePlane { address, stride: plane.stride }))
        };
        let planes = frame.planes.iter().map(see).collect::<Result<Option<DevicePlanes>>>()?;
        match planes {
            None if self.how == Upload::Mapped => {
                Err(Error::new(ErrorKind::WrongType, "The GPU cannot read the frame in place")
                    .cause("it is in ordinary memory, not in the pinned memory that was offered for it")
                    .remedy(
                        "Set upload=auto or copy on trtpreprocess, or take out the element between it and the decoder",
                    ))
            }
            planes => Ok(planes),
        }
    }

    /// Queues the copies of a frame's planes to the GPU, as they lie: rows with what is between them.
    fn upload(&mut self, frame: &Frame) -> Result<DevicePlanes> {
        let mut bytes = 0;
        let offsets: Vec<usize> = (frame.planes.iter())
            .map(|plane| {
                let offset = bytes;
                bytes += plane.data.len().next_multiple_of(ALIGN);
                offset
            })
            .collect();
        let block = match self.upload.take().filter(|block| block.bytes() >= bytes) {
            Some(block) => block,
            None => {
                self.stream.synchronize()?; // the smaller one is about to be used by others
                self.pool.take(bytes)?
            }
        };
        let address = block.address();
        self.upload = Some(block);
        let upload = |(plane, offset): (&Plane, usize)| {
            let to = address + offset as u64;
            // SAFETY: the block is large enough, and stays with `self`. The bytes are the buffer's, which the caller keeps.
            unsafe { self.stream.upload(plane.data, to) }?;
            Ok(DevicePlane { address: to, stride: plane.stride })
        };
        frame.planes.iter().zip(offsets).map(upload).collect()
    }
}

/// What a call makes of a frame, behind one fence.
trait AsTensors {
    fn fence(&self) -> Option<&Fence>;
}

impl AsTensors for Tensors {
    fn fence(&self) -> Option<&Fence> {
        self.ready()
    }
}

impl AsTensors for Vec<Tensors> {
    fn fence(&self) -> Option<&Fence> {
        self.first()?.ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::driver::faults;

    #[test]
    fn work_of_a_frame_that_fails_is_waited_for() {
        let Some(context) = crate::test::gpu() else { return };
        let spec: InputSpec = "cuda f32 1x3x32x32 nchw rgb letterbox:114 scale:0.003921569 images".parse().unwrap();
        let color = Colorimetry::default();
        let mut preprocessor = DevicePreprocessor::new(&context, PixelFormat::Nv12, (64, 48), color, &spec).unwrap();
        let bytes = vec![128; 64 * 48 * 3 / 2];
        let (luma, chroma) = bytes.split_at(64 * 48);
        let planes = [luma, chroma].map(|data| Plane { data, stride: 64 });
        let frame = Frame { format: PixelFormat::Nv12, width: 64, height: 48, planes: planes.into_iter().collect() };
        preprocessor.of_host(&frame).unwrap();
        assert_eq!(faults::take_synchronized(), 0);
        // The copy of the second plane; the fence of the copies; the kernel; its fence.
        for (call, after) in [("upload", 1), ("record", 0), ("launch", 0), ("record", 1)] {
            faults::fail(call, after);
            let error = preprocessor.of_host(&frame).err().unwrap();
            assert!(error.message().contains("The test lets"), "{error}");
            assert_eq!(faults::take_synchronized(), 1, "{call} {after}");
            preprocessor.of_host(&frame).unwrap();
        }
    }
}
