// SPDX-License-Identifier: MPL-2.0
//! A model on a server, with tensors that stay on the GPU: pictures are copied there into memory that the server has open, and
//! outputs out of it. So the memory is free for the next request, and outputs may be kept for as long as they are wanted. The copies
//! take microseconds, and a request some hundred.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use prost::Message;

use super::answer::InferAnswer;
use super::attempts::{Attempt, Caller, until_answered};
use super::client::{GrpcClient, PREFIX};
use super::kept::ServerRegion;
use super::layout::{Layout, TensorPlace};
use super::marks::Marks;
use super::regions::{CudaRegions, cannot_share};
use super::remote::RemoteModel;
use crate::backends::{Interrupter, LoadRequest, ModelInstance, check_rows};
use crate::cuda::driver::{Context, Fence, Stream};
use crate::error::{Error, ErrorKind, Result};
use crate::heads::PictureRows;
use crate::image::transform::InputSpec;
use crate::memory::{DeviceBlock, DevicePool};
use crate::model::InputValues;
use crate::tensor::{Dims, Tensor, TensorDesc, Tensors};

/// Bytes of tensors that a request may have.
const MOST: usize = 4 << 30;

/// The model, for one request at a time.
pub struct GpuModel {
    model: Arc<RemoteModel>,
    spec: InputSpec,
    client: GrpcClient,
    regions: CudaRegions,
    stream: Stream,
    pool: DevicePool,
    marks: Marks,
    /// Pictures of a batch, where the model fixes that.
    fixed: Option<usize>,
    /// What goes in in addition to the pictures, and for how many of them.
    sides: (usize, Vec<Option<Tensor>>),
    values: Arc<InputValues>,
    /// For requests at the same time.
    others: Vec<GpuModel>,
}

/// Pictures in GPU memory.
struct GpuBatch<'a> {
    /// The tensor that they are together.
    desc: TensorDesc,
    /// Contexts and addresses. There may be fewer than rows.
    pictures: Vec<(&'a Context, u64)>,
    ready: Vec<&'a Fence>,
}

/// An output that the server has made.
struct ServedOutput {
    desc: TensorDesc,
    bytes: usize,
    source: OutputSource,
}

enum OutputSource {
    /// At this address of the region.
    Region(u64),
    /// The answer had it.
    Sent(Vec<u8>),
}

impl GpuModel {
    /// For a request, with so many runs at the same time.
    ///
    /// # Errors
    /// `Settings`, where tensors cannot stay on the GPU; `Run`, where that has no memory left.
    pub fn new(model: &Arc<RemoteModel>, request: &LoadRequest, cuda: &Context, runs: usize) -> Result<Self> {
        check(model, request)?;
        let mut first = GpuModel::one(model, request, cuda)?;
        first.try_out()?;
        first.others = (1..runs).map(|_| GpuModel::one(model, request, cuda)).collect::<Result<_>>()?;
        Ok(first)
    }

    fn one(model: &Arc<RemoteModel>, request: &LoadRequest, cuda: &Context) -> Result<Self> {
        let LoadRequest { spec, batch, values, .. } = request;
        let fixed = (model.info.image_input().dims[0] != Dims::DYNAMIC).then_some(*batch);
        let rows = fixed.unwrap_or(*batch);
        Ok(GpuModel {
            client: GrpcClient::new(model.address.clone()),
            regions: CudaRegions::new(cuda),
            stream: Stream::new(cuda)?,
            pool: DevicePool::new(cuda),
            marks: Marks::new(cuda, model.info.outputs.len())?,
            fixed,
            sides: (rows, model.info.side_inputs(spec, rows, values)?),
            values: values.clone(),
            model: model.clone(),
            spec: spec.clone(),
            others: Vec::new(),
        })
    }

    /// Whether the server takes memory of the GPU, so that a refusal is known before the first frame.
    fn try_out(&mut self) -> Result<()> {
        let mut desc = self.spec.desc.clone();
        desc.dims.0[0] = self.sides.0 as i64;
        let layout = self.layout(&GpuBatch { desc, pictures: Vec::new(), ready: Vec::new() })?;
        let GpuModel { client, regions, model, .. } = self;
        let deadline = Instant::now() + model.timeout;
        match regions.register(client, &model.address, layout.bytes, deadline) {
            Ok(Err(error)) if error.kind() == ErrorKind::Settings => Err(error),
            _ => Ok(()), // the first request tries again
        }
    }

    /// The outputs of a batch, which lie in the region until the next request.
    fn infer(&mut self, batch: &GpuBatch) -> Result<Vec<ServedOutput>> {
        self.stream.synchronize()?; // outputs may still be copied out of a region that is about to be freed
        let rows = batch.rows();
        if self.sides.0 != rows {
            self.sides = (rows, self.model.info.side_inputs(&self.spec, rows, &self.values)?);
        }
        until_answered(self, |model, deadline| model.attempt(batch, deadline))
    }

    fn attempt(&mut self, batch: &GpuBatch, deadline: Instant) -> Attempt<Vec<ServedOutput>> {
        let layout = match self.layout(batch) {
            Ok(layout) => layout,
            Err(error) => return Ok(Err(error)),
        };
        let GpuModel { client, regions, model, .. } = self;
        if let Err(error) = regions.register(client, &model.address, layout.bytes, deadline)? {
            return Ok(Err(error));
        }
        let region = self.regions.registered().expect("it was registered");
        let (name, address) = (region.name().to_string(), region.address());
        if let Err(error) = self.write_inputs(batch, &layout, address) {
            return Ok(Err(error));
        }
        let descs: Vec<&TensorDesc> =
            self.sides.1.iter().map(|side| side.as_ref().map_or(&batch.desc, Tensor::desc)).collect();
        let message = self.model.request(&descs, Some((&name, &layout))).encode_to_vec();
        let limit = self.model.answer_limit(batch.rows());
        let answer = self.client.call("ModelInfer", &[&message], limit, deadline)?;
        let answer = InferAnswer::of(&answer[PREFIX..])?;
        // SAFETY: the region is as large as the layout, and stays.
        let read = unsafe { self.marks.read(&self.stream, &layout, address) };
        Ok(read.and_then(|()| self.outputs(&answer, &layout, address)))
    }

    fn layout(&self, batch: &GpuBatch) -> Result<Layout> {
        let bytes = |side: &Option<Tensor>| side.as_ref().map_or(&batch.desc, Tensor::desc).bytes();
        let inputs: Option<Vec<usize>> = self.sides.1.iter().map(bytes).collect();
        let sizes = inputs.zip(self.model.output_sizes(batch.rows()));
        let layout = sizes.and_then(|(inputs, outputs)| Layout::new(inputs, outputs, MOST));
        layout.ok_or_else(|| cannot_share(&self.model.address, "the tensors of a request have more than 4 GiB"))
    }

    /// Puts into the region what the server reads, and waits until it is there.
    fn write_inputs(&mut self, batch: &GpuBatch, layout: &Layout, region: u64) -> Result<()> {
        let GpuModel { stream, sides, marks, .. } = self;
        stream.wait_for_all(batch.ready.iter().copied())?;
        let queued = stream.queuing();
        for (side, &(at, bytes)) in sides.1.iter().zip(&layout.inputs) {
            let to = region + at as u64;
            match side {
                // SAFETY: the layout has a place for it in the region, which stays until this has waited.
                Some(side) => unsafe { stream.upload(side.bytes().unwrap_or_default(), to) }?,
                // SAFETY: as above; so do the pictures, which are all of a row's size.
                None => unsafe { batch.copy(stream, to, bytes) }?,
            }
        }
        // SAFETY: as above.
        unsafe { marks.write(stream, layout, region) }?;
        queued.record()?.wait()
    }

    fn outputs(&self, answer: &InferAnswer, layout: &Layout, region: u64) -> Result<Vec<ServedOutput>> {
        let declared = self.model.info.outputs.iter().zip(&layout.outputs).enumerate();
        let output = |(index, (declared, &(at, bytes))): (usize, (&TensorDesc, &TensorPlace))| {
            let found = self.model.find(declared, answer)?;
            found.check_length(&self.model, bytes)?; // there is room for so many
            let source = if found.is_sent() {
                OutputSource::Sent(found.sent(&self.model)?.into_owned())
            } else if bytes > 0 && self.marks.is_unchanged(index, (at, bytes)) {
                return Err(self.model.wrong(format!("output {} is neither in the GPU's memory nor sent", found.desc)));
            } else {
                OutputSource::Region(region + at as u64)
            };
            Ok(ServedOutput { desc: found.desc, bytes, source })
        };
        declared.map(output).collect()
    }

    /// Queues copies of the outputs to these addresses. The next request waits for them.
    ///
    /// # Safety
    /// There is room for them until the fence is passed, or until this has returned an error, and nothing else uses it.
    unsafe fn copy_outputs(&self, outputs: &[ServedOutput], to: impl Iterator<Item = u64>) -> Result<Fence> {
        let queued = self.stream.queuing();
        for (ServedOutput { bytes, source, .. }, to) in outputs.iter().zip(to) {
            match source {
                // SAFETY: the region has so many bytes, and stays as long as the stream; of `to` the caller says so.
                OutputSource::Region(from) => unsafe { self.stream.copy((self.stream.context(), *from), to, *bytes) }?,
                // SAFETY: as above. Pageable memory is read during the call.
                OutputSource::Sent(sent) => unsafe { self.stream.upload(sent, to) }?,
            }
        }
        queued.record()
    }

    /// The memory of a picture, which is like the first one of its batch.
    fn memory<'a>(&self, picture: &'a Tensor, wanted: &TensorDesc) -> Result<&'a DeviceBlock> {
        let device = self.stream.context().device();
        let desc = picture.desc();
        let memory = picture.device().filter(|memory| memory.context().device() == device);
        memory.filter(|_| (desc.dtype, &desc.dims) == (wanted.dtype, &wanted.dims)).ok_or_else(|| {
            Error::new(ErrorKind::WrongType, format!("The tensor is not one of {wanted} in the memory of GPU {device}"))
                .cause(format!("it is {picture:?}"))
                .remedy("Set the same cuda-device-id on trtpreprocess and trtinfer")
        })
    }
}

/// Whether tensors of that request can stay on the GPU, as far as is known before it is sent.
fn check(model: &RemoteModel, request: &LoadRequest) -> Result<()> {
    let LoadRequest { spec, batch, .. } = request;
    let cannot = |why: String| Err(cannot_share(&model.address, why));
    if !model.extensions.cuda_shared_memory {
        return cannot("the server does not have the extension cuda_shared_memory".into());
    }
    if spec.has_widths() {
        return cannot("with max-input-width, tensors have several sizes".into());
    }
    if model.output_sizes(*batch).is_none() {
        let outputs = crate::tensor::list(&model.info.outputs);
        return cannot(format!("the sizes of the model's outputs are known only with the answer: {outputs}"));
    }
    let (_, height, width) = spec.chw();
    let hints = request.model().hints((width as u32, height as u32));
    if *batch > 1 && PictureRows::find(&model.info.outputs, &hints, *batch)?.is_some() {
        return cannot(format!(
            "batch-size is {batch}, and an output has the rows of all pictures, which the host divides"
        ));
    }
    Ok(())
}

impl GpuBatch<'_> {
    fn rows(&self) -> usize {
        self.desc.dims.first().map_or(1, |&rows| rows as usize)
    }

    /// Queues copies of the pictures, and zeros for those that are missing.
    ///
    /// # Safety
    /// There are so many bytes at `to`. They and the pictures stay until the work is done.
    unsafe fn copy(&self, stream: &Stream, to: u64, bytes: usize) -> Result<()> {
        let size = bytes / self.rows().max(1);
        for (row, &picture) in self.pictures.iter().enumerate() {
            // SAFETY: there is a row for each picture, and the caller keeps both.
            unsafe { stream.copy(picture, to + (row * size) as u64, size) }?;
        }
        match bytes - self.pictures.len() * size {
            0 => Ok(()),
            // SAFETY: the rows behind those of the pictures.
            rest => unsafe { stream.clear(to + (bytes - rest) as u64, rest) },
        }
    }
}

impl Caller for GpuModel {
    fn model(&self) -> &Arc<RemoteModel> {
        &self.model
    }

    fn client(&mut self) -> &mut GrpcClient {
        &mut self.client
    }

    fn has_region(&self) -> bool {
        self.regions.registered().is_some()
    }

    fn forget(&mut self) {
        self.regions.forget();
    }
}

impl ModelInstance for GpuModel {
    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        let rows = self.fixed.unwrap_or(pictures.len());
        // All have one size, which may be another than that of the batch before.
        let first = pictures[0][0].desc();
        let memories = pictures.iter().map(|picture| self.memory(&picture[0], first));
        let memories = memories.map(|memory| memory.map(|memory| (memory.context(), memory.address())));
        let pictures_at = memories.collect::<Result<_>>()?;
        let mut desc = first.clone();
        desc.dims.0[0] = rows as i64;
        let ready = pictures.iter().filter_map(|picture| picture.ready()).collect();
        let outputs = self.infer(&GpuBatch { desc, pictures: pictures_at, ready })?;
        outputs.iter().try_for_each(|output| check_rows(&output.desc, rows))?;
        let blocks = outputs.iter().map(|output| self.pool.take(output.bytes)).collect::<Result<Vec<_>>>()?;
        // SAFETY: the blocks are large enough, and return to the pool when they are dropped, after their fence.
        let ready = unsafe { self.copy_outputs(&outputs, blocks.iter().map(DeviceBlock::address)) }?;
        let tensors: Vec<Tensor> =
            outputs.into_iter().zip(blocks).map(|(output, block)| Tensor::on_device(output.desc, block)).collect();
        if rows == 1 {
            return Ok(vec![Tensors::new(tensors, Some(ready), None)]);
        }
        let of_picture = |picture| {
            let rows = tensors.iter().map(|tensor| tensor.row(picture)).collect();
            Tensors::new(rows, Some(ready.clone()), None)
        };
        Ok((0..pictures.len()).map(of_picture).collect())
    }

    fn set_values(&mut self, values: &Arc<InputValues>) -> Result<()> {
        if !Arc::ptr_eq(&self.values, values) {
            self.sides.1 = self.model.info.side_inputs(&self.spec, self.sides.0, values)?;
            self.values = values.clone();
        }
        Ok(())
    }

    /// Waits for the answer, unlike backends of this process.
    unsafe fn run_at(&mut self, picture: u64, outputs: &[u64], stream: Option<*mut c_void>) -> Result<Fence> {
        if let Some(count) = self.fixed.filter(|&count| count > 1) {
            return Err(Error::new(ErrorKind::Settings, "Cannot run the model on the memory of one picture")
                .cause(format!("it takes {count} pictures at once"))
                .remedy("Give the pictures in host memory, or let the server have a model with a dynamic batch"));
        }
        if let Some(callers) = stream {
            // SAFETY: the caller's stream is of this context, and alive.
            unsafe { self.stream.wait_for(callers) }?;
        }
        let context = self.stream.context().clone();
        let batch = GpuBatch { desc: self.spec.desc.clone(), pictures: vec![(&context, picture)], ready: Vec::new() };
        let served = self.infer(&batch)?;
        // SAFETY: the caller has room for each output until the fence is passed.
        let done = unsafe { self.copy_outputs(&served, outputs.iter().copied()) }?;
        if let Some(callers) = stream {
            // SAFETY: as above.
            if let Err(error) = unsafe { context.hold(callers, &done) } {
                let _ = done.wait(); // what the caller frees next is in use until then
                return Err(error);
            }
        }
        Ok(done)
    }

    fn working_bytes(&self) -> u64 {
        (self.regions.bytes() + self.pool.bytes()) as u64
    }

    fn interrupter(&self) -> Option<Interrupter> {
        Some(self.client.interrupter())
    }

    fn take_others(&mut self) -> Vec<Box<dyn ModelInstance>> {
        let boxed = |other| Box::new(other) as Box<dyn ModelInstance>;
        self.others.drain(..).map(boxed).collect()
    }
}

impl Drop for GpuModel {
    fn drop(&mut self) {
        let _ = self.stream.synchronize(); // outputs are copied out of what is about to be freed
        self.regions.end(&mut self.client);
    }
}
