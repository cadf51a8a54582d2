// SPDX-License-Identifier: MPL-2.0
//! A session on memory that stays: its own buffers, or a caller's on the GPU.

use std::ffi::c_void;
use std::sync::Arc;

use super::{Session, wrong};
use crate::cuda::driver::{Context, Fence};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{BatchPool, Buffer};
use crate::tensor::{Element, TensorDesc, Tensors, list};

/// The memory that [`Session::run_buffers`] uses: on the GPU if the model runs there, else on the host.
#[derive(Debug)]
pub struct Buffers {
    /// For [`Session::input`].
    pub input: Buffer,
    /// For [`Session::outputs`], in the same order.
    pub outputs: Vec<Buffer>,
    /// Passed when the last run that used them is done.
    last: Option<Fence>,
}

impl Session {
    /// The session's own input and output buffers, allocated at the first call. If the model runs on a GPU,
    /// [`Buffer::address`] is the memory that TensorRT reads and writes. Waits for the last run, so that they can be read.
    ///
    /// ```
    /// use gsttrt_core::session::{Session, SessionOptions};
    ///
    /// # fn main() -> gsttrt_core::error::Result<()> {
    /// let mut session = Session::open("../tests/models/shapes.onnx", &SessionOptions::default())?;
    /// session.copy_input_to_device(&vec![0.5f32; 3 * 512 * 512])?;
    /// session.run_buffers()?;
    /// let mut rows = vec![0f32; 16128 * 7];
    /// session.copy_output_to_host(0, &mut rows)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Run`, if the GPU has no memory left, or the last run failed.
    pub fn buffers(&mut self) -> Result<&Buffers> {
        let buffers = self.own_buffers()?;
        buffers.wait()?;
        Ok(buffers)
    }

    fn own_buffers(&mut self) -> Result<&mut Buffers> {
        if self.buffers.is_none() {
            let new = |desc: &TensorDesc| {
                let bytes = desc.bytes().expect("a session's tensors have fixed dimensions");
                self.request.cuda.as_ref().map_or_else(|| Ok(Buffer::host(bytes)), |cuda| Buffer::device(cuda, bytes))
            };
            let outputs = self.outputs.iter().map(new).collect::<Result<_>>()?;
            self.buffers = Some(Buffers { input: new(self.input())?, outputs, last: None });
        }
        Ok(self.buffers.as_mut().expect("just made"))
    }

    /// Writes the input of [`Session::buffers`], after the last run has read it.
    ///
    /// # Errors
    /// `WrongType`, if type or number of elements differ from the input's; `Run`, if the GPU fails.
    pub fn copy_input_to_device<T: Element>(&mut self, input: &[T]) -> Result<()> {
        self.check_type::<T>()?;
        self.copy_bytes_to_device(bytemuck::cast_slice(input))
    }

    /// The same with bytes, which need no alignment.
    ///
    /// # Errors
    /// As [`Session::copy_input_to_device`].
    #[doc(hidden)]
    pub fn copy_bytes_to_device(&mut self, input: &[u8]) -> Result<()> {
        self.check_input(input.len())?;
        let buffers = self.own_buffers()?;
        buffers.wait()?;
        buffers.input.write(0, input)
    }

    /// Runs the model on [`Session::buffers`]. On a GPU this returns when the run is enqueued, and the fence is passed
    /// when it is done. On the CPU it returns when the run is done.
    ///
    /// # Errors
    /// `Run`, if running failed.
    pub fn run_buffers(&mut self) -> Result<Option<Fence>> {
        self.own_buffers()?;
        let mut buffers = self.buffers.take().expect("just made");
        let done = self.run_on(&mut buffers);
        self.buffers = Some(buffers);
        done
    }

    fn run_on(&mut self, buffers: &mut Buffers) -> Result<Option<Fence>> {
        let Buffers { input, outputs, last } = buffers;
        if let Some(input) = input.address() {
            let outputs: Vec<u64> = outputs.iter().filter_map(Buffer::address).collect();
            // SAFETY: the buffers have the tensors' sizes, and `Drop` waits for the last run before it frees them.
            let fence = unsafe { self.backend.run_at(input, &outputs, None) }?;
            *last = Some(fence.clone());
            return Ok(Some(fence));
        }
        let computed = self.run_bytes(input.as_bytes().unwrap_or_default())?;
        for (tensor, output) in computed.iter().zip(outputs) {
            let bytes = tensor.bytes().unwrap_or_default();
            if bytes.len() != output.bytes() {
                return Err(wrong(format!(
                    "the output {} has {} bytes this time, not {}",
                    tensor.desc(),
                    bytes.len(),
                    output.bytes()
                ))
                .remedy("Use run_bytes, which returns outputs of any size"));
            }
            output.write(0, bytes)?;
        }
        Ok(None)
    }

    /// Reads an output of [`Session::buffers`], after the last run has written it.
    ///
    /// # Errors
    /// `WrongType`, if there is no such output, or its type or number of elements differ; `Run`, if the GPU failed.
    pub fn copy_output_to_host<T: Element>(&mut self, index: usize, output: &mut [T]) -> Result<()> {
        match self.outputs.get(index) {
            Some(desc) if desc.dtype == T::DTYPE => self.copy_bytes_to_host(index, bytemuck::cast_slice_mut(output)),
            Some(desc) => Err(wrong(format!("the output {desc} is asked for as {}", T::DTYPE))),
            None => Err(self.no_output(index)),
        }
    }

    /// The same with bytes, which need no alignment.
    ///
    /// # Errors
    /// As [`Session::copy_output_to_host`].
    #[doc(hidden)]
    pub fn copy_bytes_to_host(&mut self, index: usize, output: &mut [u8]) -> Result<()> {
        self.check_output(index, output.len())?;
        let buffers = self.own_buffers()?;
        buffers.wait()?;
        buffers.outputs[index].read(0, output)
    }

    /// Checks the size of an output in bytes.
    ///
    /// # Errors
    /// `WrongType`, if it differs, or there is no such output.
    #[doc(hidden)]
    pub fn check_output(&self, index: usize, given: usize) -> Result<()> {
        let Some(desc) = self.outputs.get(index) else { return Err(self.no_output(index)) };
        let has = desc.bytes().expect("a session's tensors have fixed dimensions");
        if has == given {
            Ok(())
        } else {
            Err(wrong(format!("the output {desc} has {has} bytes, and there is room for {given}")))
        }
    }

    /// Runs the model on the caller's tensors in GPU memory, without a copy, in the order of `stream`: after the work
    /// enqueued so far, before later work. `stream` is a `CUstream` or `cudaStream_t` of the GPU's primary context, or
    /// NULL for the default stream. Returns when the run is enqueued; the fence is passed when it is done.
    ///
    /// Where GStreamer pipelines of the process, with the elements of this project in the same program, have used the
    /// GPU before the session was opened, the session works in their context, and memory of the primary one is refused.
    ///
    /// # Safety
    /// `stream` stays until this returns. The memory stays until the fence is passed. Until then nothing writes the
    /// input, and nothing uses the outputs, except behind the run on `stream`.
    ///
    /// # Errors
    /// * `Library`: the model does not run on a GPU.
    /// * `WrongType`: the number of outputs differs from the model's, or memory is not this GPU's, too small, or not
    ///   aligned to 256 bytes.
    /// * `Run`: running failed.
    ///
    /// The session stays usable.
    pub unsafe fn run_device(&mut self, input: u64, outputs: &[u64], stream: *mut c_void) -> Result<Fence> {
        let cuda = self.cuda()?;
        if outputs.len() != self.outputs.len() {
            let (has, given) = (self.outputs.len(), outputs.len());
            return Err(wrong(format!("it has {has} outputs, {}, and {given} are given", list(&self.outputs))));
        }
        let descs = std::iter::once(self.input()).chain(&self.outputs);
        let addresses = std::iter::once(&input).chain(outputs);
        // Addresses of the last run are not checked again: that takes longer than enqueuing a run.
        if !addresses.clone().eq(&self.checked) {
            for (desc, &address) in descs.zip(addresses.clone()) {
                let bytes = desc.bytes().expect("a session's tensors have fixed dimensions");
                if address == 0 || !address.is_multiple_of(BatchPool::ALIGN as u64) {
                    return Err(wrong(format!(
                        "the memory for {desc} is at {address:#x}, no multiple of {}",
                        BatchPool::ALIGN
                    )));
                }
                let about = |error: Error| error.about(&format!("Cannot use the memory for {desc}"));
                cuda.check_memory(address, bytes).map_err(about)?;
                if !cuda.is_primary() && cuda.is_of_another(address)? {
                    return Err(about(of_another_context()));
                }
            }
            self.checked = addresses.copied().collect();
        }
        // SAFETY: the addresses were checked. That the stream stays, and the memory until the fence is passed, this
        // function asks for.
        unsafe { self.backend.run_at(input, outputs, Some(stream)) }
    }

    /// Runs the model on a tensor, such as one of another framework with [`dlpack`](crate::dlpack). It is copied
    /// only if it is on the host and the model on a GPU. On a GPU this returns when the run is enqueued, and the
    /// outputs have a fence.
    ///
    /// ```
    /// use gsttrt_core::session::{Session, SessionOptions};
    /// use gsttrt_core::tensor::{Tensor, Tensors};
    ///
    /// # fn main() -> gsttrt_core::error::Result<()> {
    /// let mut session = Session::open("../tests/models/shapes.onnx", &SessionOptions::default())?;
    /// let picture = Tensor::from_slice("picture", &[1, 3, 512, 512], &vec![0.5f32; 3 * 512 * 512]);
    /// let outputs = session.run_tensor(Tensors::new(vec![picture], None, None))?;
    /// assert_eq!(outputs[0].desc().to_string(), "output0 f32 1x16128x7");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `WrongType`, if it is not one tensor of the input's type and dimensions, or not on the model's GPU; `Run`, if
    /// running failed.
    pub fn run_tensor(&mut self, picture: Tensors) -> Result<Tensors> {
        let [tensor] = &picture[..] else {
            return Err(wrong(format!("it takes one tensor, and {} are given", picture.len())));
        };
        let (desc, given) = (self.input(), tensor.desc());
        if (given.dtype, &given.dims) != (desc.dtype, &desc.dims) {
            return Err(wrong(format!("the input {desc} is given as {} {}", given.dtype, given.dims)));
        }
        let picture = match (&self.device, tensor.bytes()) {
            (Some(_), Some(bytes)) => self.picture(bytes)?,
            (None, None) => return Err(wrong("the input is on a GPU, and the model on the CPU".into())),
            _ => Arc::new(picture),
        };
        self.infer(&[picture]).map(|mut outputs| outputs.remove(0))
    }

    /// The CUDA context that the model runs in.
    ///
    /// # Errors
    /// `Library`, if the model does not run on a GPU.
    #[doc(hidden)]
    pub fn cuda(&self) -> Result<&Context> {
        self.request.cuda.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Library, "The model does not run on a GPU")
                .cause(self.request.reason.as_deref().unwrap_or("it was opened for the CPU"))
                .remedy("Use host memory, or open it where there are a GPU and TensorRT")
        })
    }

    fn no_output(&self, index: usize) -> Error {
        wrong(format!("there is no output {index}, of {}", self.outputs.len()))
    }
}

pub(super) fn of_another_context() -> Error {
    Error::new(ErrorKind::WrongType, "It was allocated in another CUDA context than the session's")
        .cause("GStreamer pipelines of this process have used the GPU before, and the session shares their context")
        .remedy("Open the session before the pipelines start, which then take the primary context too")
}

impl Buffers {
    /// Waits until the last run is done.
    fn wait(&mut self) -> Result<()> {
        self.last.take().map_or(Ok(()), |last| last.wait())
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        let _ = self.wait(); // drop cannot return an error
    }
}
