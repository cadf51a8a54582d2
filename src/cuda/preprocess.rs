//! Frames to tensors in GPU memory: the kernel with the stream, the pool and the upload that it needs from frame to frame.

use super::driver::{Context, Stream};
use super::kernels::preprocess::Preprocess;
use super::kernels::{DevicePlane, DevicePlanes};
use crate::error::Result;
use crate::memory::{DeviceBlock, DevicePool, Slots};
use crate::tensor::{Tensor, TensorDesc, Tensors};
use crate::vision::frame::{Colorimetry, Frame, PixelFormat, Plane};
use crate::vision::geometry::Letterbox;
use crate::vision::recipe::InputSpec;

/// Planes begin at multiples of this in an upload.
const ALIGN: usize = 256;

/// Made for one format, one kind of tensor and one context.
pub struct TensorMaker {
    // Drop order: the stream first, which waits for the work that uses the rest.
    stream: Stream,
    kernel: Preprocess,
    /// Where tensors are made.
    slots: Slots,
    pool: DevicePool,
    /// Where frames from the host go. One will do: the next copy into it is queued behind the kernel that reads it.
    upload: Option<DeviceBlock>,
    desc: TensorDesc,
    pixels: PixelFormat,
    size: (usize, usize),
}

impl TensorMaker {
    /// For frames of `size`, width and height. `color` matters to YUV and gray formats.
    ///
    /// # Errors
    /// As [`vision::preprocess`](crate::vision::preprocess)' own; `Run`, where the GPU fails.
    pub fn new(
        context: &Context,
        pixels: PixelFormat,
        size: (usize, usize),
        color: Colorimetry,
        spec: &InputSpec,
    ) -> Result<Self> {
        let bytes = spec.desc.bytes().expect("the specification has fixed dimensions");
        Ok(TensorMaker {
            slots: Slots::new(context, bytes, 1),
            stream: Stream::new(context)?,
            kernel: Preprocess::new(context, pixels, size, color, spec)?,
            pool: DevicePool::new(context),
            upload: None,
            desc: spec.desc.clone(),
            pixels,
            size,
        })
    }

    /// Makes tensors in these slots from now on, if they have the size and the context.
    pub fn use_slots(&mut self, slots: Slots) {
        if slots.context() == self.context() && slots.bytes() == self.slots.bytes() {
            self.slots = slots;
        }
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
    /// `WrongType`, if it is another frame than [`TensorMaker::new`] was told; `Run`, where the GPU fails.
    pub fn of_host(&mut self, frame: &Frame) -> Result<Tensors> {
        frame.check(self.pixels, self.size.0, self.size.1)?;
        let planes = self.bring(frame)?;
        let brought = self.stream.record()?;
        // SAFETY: they are copies of the frame's, which was checked, in `upload`, which stays with the stream.
        let made = unsafe { self.of_gpu(&planes) };
        // Whoever owns the frame may write to it, and a copy out of pinned memory is not done when queued.
        brought.wait()?;
        made
    }

    /// Queues the making of the tensor of a frame in GPU memory, which is there once the fence is passed.
    ///
    /// # Safety
    /// The planes are there, of the format and size given to [`TensorMaker::new`], until the fence is passed.
    pub unsafe fn of_gpu(&mut self, planes: &[DevicePlane]) -> Result<Tensors> {
        let block = self.slots.take()?;
        // SAFETY: the planes by the caller's promise; the block has the tensor's size, and returns to the pool after the fence.
        unsafe { self.kernel.launch(&self.stream, planes, block.address()) }?;
        Ok(Tensors::new(vec![Tensor::on_device(self.desc.clone(), block)], Some(self.stream.record()?), None))
    }

    /// Queues the copies of a frame's planes to the GPU, as they lie: rows with what is between them.
    fn bring(&mut self, frame: &Frame) -> Result<DevicePlanes> {
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
