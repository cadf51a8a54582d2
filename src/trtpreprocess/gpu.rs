//! Tensors made on the GPU, from frames that are there or that are brought there.

use crate::cuda::driver::{Context, Fence, Stream};
use crate::cuda::kernels::preprocess::Preprocess;
use crate::cuda::kernels::{DevicePlane, DevicePlanes};
use crate::cuda::memory::{DeviceBlock, DevicePool};
use crate::error::Result;
use crate::tensor::Tensor;
use crate::video::Format;
use crate::vision::frame::Frame;
use crate::vision::geometry::Letterbox;
use crate::vision::recipe::InputSpec;

/// Planes begin at multiples of this in an upload.
const ALIGN: usize = 256;

/// Made for one format, one kind of tensor and one context.
pub struct Gpu {
    // Drop order: the stream first, which waits for the work that uses the rest.
    stream: Stream,
    kernel: Preprocess,
    pool: DevicePool,
    /// Where frames from the host go. One will do: the next copy into it is queued behind the kernel that reads it.
    upload: Option<DeviceBlock>,
}

impl Gpu {
    pub fn new(context: &Context, format: &Format, spec: &InputSpec) -> Result<Self> {
        let size = (format.info.width() as usize, format.info.height() as usize);
        Ok(Gpu {
            stream: Stream::new(context)?,
            kernel: Preprocess::new(context, format.pixels, size, format.color, spec)?,
            pool: DevicePool::new(context),
            upload: None,
        })
    }

    pub fn context(&self) -> &Context {
        self.stream.context()
    }

    pub fn letterbox(&self) -> &Letterbox {
        self.kernel.letterbox()
    }

    /// Queues the making of the frame's tensor, which is there once the fence is passed. Until then the frame must stay.
    pub fn tensor(&mut self, format: &Format, spec: &InputSpec, buffer: &gst::BufferRef) -> Result<(Tensor, Fence)> {
        let block = self.pool.take(spec.desc.bytes().expect("checked by the kernel"))?;
        match format.on_gpu(buffer, false)? {
            Some(frame) => {
                frame.order(&self.stream)?;
                self.launch(&frame.planes, &block)?;
            }
            None => {
                let planes = format.read(buffer, |frame| self.bring(frame))?;
                let brought = self.stream.record()?;
                let launched = self.launch(&planes, &block);
                // Whoever is downstream may write to the frame, and a copy out of pinned memory is not done when queued.
                brought.wait()?;
                launched?;
            }
        }
        Ok((Tensor::on_device(spec.desc.clone(), block), self.stream.record()?))
    }

    fn launch(&self, planes: &[DevicePlane], tensor: &DeviceBlock) -> Result<()> {
        // SAFETY: the planes were checked against their memory by `Format`, which stays by the caller's promise or is
        // `upload`; the block has the tensor's size, and returns to the pool after the fence.
        unsafe { self.kernel.launch(&self.stream, planes, tensor.address()) }
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
        let upload = |(plane, offset): (&crate::vision::frame::Plane, usize)| {
            let to = address + offset as u64;
            // SAFETY: the block is large enough, and stays with `self`. The bytes are the buffer's, which the caller keeps.
            unsafe { self.stream.upload(plane.data, to) }?;
            Ok(DevicePlane { address: to, stride: plane.stride })
        };
        frame.planes.iter().zip(offsets).map(upload).collect()
    }
}
