// SPDX-License-Identifier: MPL-2.0
//! Runs of an engine, one at a time and in order, on tensors in GPU memory. Nothing here waits for the GPU once it is open.

use std::ffi::c_void;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::graph_cache::GraphCache;
use super::{GraphMode, with_rows};
use crate::backends::tensorrt::engine::{Engine, ExecutionContext, TensorBinding};
use crate::backends::tensorrt::interfaces;
use crate::backends::{LoadContext, LoadRequest, ModelInstance, check_rows};
use crate::cuda::driver::{Context, Fence, Stream};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{BatchPool, DeviceBlock, DevicePool};
use crate::model::{InputValues, ModelInfo};
use crate::tensor::{Dims, Tensor, TensorDesc, Tensors};

const ON_HOST: &str = "side inputs are made on the host";

/// An engine with all that its runs need.
pub struct TrtExecutor {
    /// Others may queue what is done with the outputs here.
    stream: Arc<Stream>,
    /// Passed when the last run is done, where that was queued for a caller's stream.
    elsewhere: Option<Fence>,
    /// The stream that runs are captured on. It is separate, as work that others queue meanwhile must not be captured.
    capture_stream: Stream,
    graphs: Option<GraphCache>,
    /// Why a run could not be captured, until the error is returned.
    refused: Option<Error>,
    context: ExecutionContext,
    pool: DevicePool,
    /// The tensors of a run, in the order of the pictures and the outputs.
    addresses: Vec<u64>,
    /// Which of the engine's inputs takes the pictures, and what each of them is: of lines of text of the width of the last ones.
    image: TensorBinding,
    wanted: TensorDesc,
    /// Minimum and maximum pictures of a run, and how many the context is prepared for.
    rows: RangeInclusive<usize>,
    prepared: usize,
    /// As large as a full batch makes them.
    outputs: Vec<(TensorBinding, TensorDesc)>,
    /// What goes in, in addition to the pictures, with values of this request.
    side_inputs: Vec<SideInput>,
    request: LoadRequest,
    /// Where pictures that are not in one block are copied together. One such block will do: the next batch is copied behind the
    /// run that reads this one.
    gather_block: Option<DeviceBlock>,
}

/// An input besides the pictures. The context has the address of its block.
struct SideInput {
    io: TensorBinding,
    /// For a full batch.
    dims: Dims,
    block: DeviceBlock,
}

impl TrtExecutor {
    /// Prepares an engine for the pictures of a request, and captures its first runs.
    pub fn open(
        request: &LoadRequest,
        engine: &Arc<Engine>,
        cuda: &Context,
        graphs: GraphMode,
        loading: &LoadContext,
        what: &str,
    ) -> Result<Self> {
        let mut backend = TrtExecutor::prepare(request, engine.clone(), cuda).map_err(|error| error.about(what))?;
        match backend.try_capture(graphs, loading) {
            Err(error) if graphs == GraphMode::On => {
                Err(error.about(what).remedy("Set cuda-graph=auto, which then runs it without"))
            }
            // It runs all the same, only less fast.
            Err(error) => {
                interfaces::log(interfaces::Level::Warning, &format!("{what} as a CUDA graph: {}", error.as_clause()));
                Ok(backend)
            }
            Ok(()) => Ok(backend),
        }
    }

    fn prepare(request: &LoadRequest, engine: Arc<Engine>, cuda: &Context) -> Result<Self> {
        let LoadRequest { spec, batch, values, .. } = request;
        let batch = *batch;
        let stream = if batch == 1 { Stream::new(cuda) } else { Stream::of_batches(cuda) };
        let (stream, pool) = (Arc::new(stream?), DevicePool::new(cuda));
        let mut context = engine.context()?;
        let image = input(&engine, &spec.desc)?.clone();
        let full = with_rows(&spec.desc.dims, batch);
        let largest = with_rows(&spec.largest_dims(), batch);
        let given = request.model().side_inputs(spec, batch, values)?;
        let mut sides = Vec::new();
        for side in given.iter().flatten() {
            sides.push((input(&engine, side.desc())?.clone(), side));
        }
        let takes = |profile: i32, dims: &Dims| engine.takes(&image, profile, dims);
        let takes_pictures =
            |profile: &i32| takes(*profile, &full) && (!spec.has_widths() || takes(*profile, &largest));
        let fitting: Vec<i32> = (0..engine.profiles()).filter(takes_pictures).collect();
        let takes_all = |profile: &&i32| sides.iter().all(|(io, side)| engine.takes(io, **profile, &side.desc().dims));
        // Where none takes the others, TensorRT says so.
        let profile = fitting.iter().find(takes_all).or(fitting.first()).copied();
        let unfit = if engine.profile_for(&image, &full).is_none() { &full } else { &largest };
        let profile = profile.ok_or_else(|| no_profile(&engine, &image, unfit, &spec.desc))?;
        if engine.inputs().iter().any(|input| !input.desc.dims.is_static()) {
            context.use_profile(profile, &stream)?;
        }
        let fewest = engine.profile(&image, profile).and_then(|[least, ..]| usize::try_from(least[0]).ok());
        context.set_input(&image, &full)?;
        let mut side_inputs = Vec::new();
        for (io, side) in sides {
            let dims = side.desc().dims.clone();
            let bytes = side.bytes().expect(ON_HOST);
            let mut block = pool.take(bytes.len())?;
            block.write(bytes)?;
            context.set_input(&io, &dims)?;
            // SAFETY: the block is large enough, and stays as long as the context.
            unsafe { context.set_address(&io, block.address()) }?;
            side_inputs.push(SideInput { io, dims, block });
        }
        let outputs = outputs(&context, &engine, batch)?;
        let mut backend = TrtExecutor {
            context,
            stream,
            elsewhere: None,
            capture_stream: Stream::new(cuda)?,
            graphs: None,
            refused: None,
            pool,
            addresses: Vec::new(),
            image,
            wanted: spec.desc.clone(),
            rows: fewest.unwrap_or(batch).clamp(1, batch)..=batch,
            prepared: batch,
            outputs,
            side_inputs,
            request: request.clone(),
            gather_block: None,
        };
        // Kernels are loaded at their first use; and what fails should fail before the first frame.
        let zeros = backend.zeros(&BatchPool::new(cuda, backend.picture_bytes(), batch))?;
        backend.run_to_end(&zeros[..1])?;
        backend.run_to_end(&zeros)?;
        Ok(backend)
    }

    fn picture_bytes(&self) -> usize {
        self.wanted.bytes().expect("the specification has fixed dimensions")
    }

    /// A batch to try out the engine with.
    fn zeros(&self, slots: &BatchPool) -> Result<Vec<Arc<Tensors>>> {
        let blocks = (0..*self.rows.end()).map(|_| slots.take()).collect::<Result<Vec<_>>>()?;
        let queued = self.stream.queuing();
        for block in &blocks {
            // SAFETY: the blocks are as large, are used by nobody else, and stay until the fence that is recorded next has passed.
            unsafe { self.stream.clear(block.address(), slots.bytes()) }?;
        }
        let ready = queued.record()?;
        let picture = |block| {
            let picture = Tensor::on_device(self.wanted.clone(), block);
            Arc::new(Tensors::new(vec![picture], Some(ready.clone()), None))
        };
        Ok(blocks.into_iter().map(picture).collect())
    }

    /// Runs, and waits until it is done.
    fn run_to_end(&mut self, pictures: &[Arc<Tensors>]) -> Result<()> {
        self.run(pictures)?.into_iter().try_for_each(|outputs| outputs.into_ready().map(drop))
    }

    /// Captures a run and launches the graph, so that an engine that cannot be captured is known now and not at some frame.
    /// Capturing takes milliseconds. So if the memory of pictures is known, it is done for as many batches as are usually under way.
    fn try_capture(&mut self, graphs: GraphMode, loading: &LoadContext) -> Result<()> {
        if graphs == GraphMode::Off {
            return Ok(());
        }
        self.graphs = Some(GraphCache::default());
        let tried = self.capture_known_buffers(loading);
        if tried.is_err() {
            self.graphs = None;
        }
        tried
    }

    fn capture_known_buffers(&mut self, loading: &LoadContext) -> Result<()> {
        let batch = *self.rows.end();
        let own = BatchPool::new(self.stream.context(), self.picture_bytes(), batch);
        let zeros = self.zeros(&own)?;
        self.run_and_capture(&zeros)?;
        // Batches differ in their rows, and soon have the addresses of earlier ones.
        if batch == 1
            && let Some(graphs) = &mut self.graphs
        {
            let memory = zeros[0][0].device().expect("it was made there");
            graphs.share(&self.addresses, memory.share());
            if loading.contexts > 1 {
                graphs.stop_capturing();
                return Ok(());
            }
        }
        let batches = if batch == 1 { 4 } else { 2 };
        let zeros = loading.slots.into_iter().flat_map(|slots| (0..batches).map(|_| self.zeros(slots)));
        let zeros = zeros.collect::<Result<Vec<_>>>()?;
        zeros.iter().try_for_each(|batch| self.run_and_capture(batch))
    }

    /// The first run is counted, the second one captured, the third one launched.
    fn run_and_capture(&mut self, pictures: &[Arc<Tensors>]) -> Result<()> {
        (0..3).try_for_each(|_| {
            self.run_to_end(pictures)?;
            self.refused.take().map_or(Ok(()), Err)
        })
    }

    /// Prepares for runs on that many pictures of these dimensions.
    fn prepare_for(&mut self, rows: usize, dims: &Dims) -> Result<()> {
        if self.prepared != rows || self.wanted.dims != *dims {
            // Graphs may read dimensions that TensorRT keeps on the GPU and is about to change.
            self.graphs = self.graphs.take().map(|_| GraphCache::after_a_change());
            if self.wanted.dims != *dims {
                self.prepared = 0; // should this fail
                let batch = *self.rows.end();
                self.context.set_input(&self.image, &with_rows(dims, batch))?;
                self.outputs = outputs(&self.context, self.context.engine(), batch)?;
                self.wanted.dims = dims.clone();
            }
            self.context.set_input(&self.image, &with_rows(&self.wanted.dims, rows))?;
            for SideInput { io, dims, .. } in &self.side_inputs {
                if ModelInfo::follows_batch(&io.desc) {
                    self.context.set_input(io, &with_rows(dims, rows))?;
                }
            }
            self.prepared = rows;
        }
        Ok(())
    }

    /// What is queued next is behind the last run, also where that was queued for a caller's stream.
    fn wait_for_elsewhere(&mut self) -> Result<()> {
        if let Some(last) = &self.elsewhere {
            self.stream.wait(last)?; // should this fail, the next run has to wait all the same
            self.elsewhere = None;
        }
        Ok(())
    }

    /// Queues a run on the tensors of `addresses`; `blocks` are those of the outputs, if they are ours.
    ///
    /// # Safety
    /// They have the tensors' sizes, and stay until the run is done.
    unsafe fn start(&mut self, blocks: &[DeviceBlock]) -> Result<()> {
        self.wait_for_elsewhere()?;
        match self.graphs.as_mut().and_then(|runs| runs.next(&self.addresses)) {
            // SAFETY: it was captured with these addresses, whose memory stays until the run is done.
            Some(graph) => unsafe { graph.launch(&self.stream) },
            // SAFETY: the memory at the addresses is large enough, and stays until the run is done.
            None => unsafe { self.enqueue(blocks) },
        }
    }

    /// The same on a caller's stream, in order with its other work. A captured run is queued directly on it: two events and two
    /// waits between streams would take microseconds.
    ///
    /// # Safety
    /// As for [`TrtExecutor::start`]; the stream is of our context, and alive.
    unsafe fn start_on(&mut self, callers: *mut c_void) -> Result<Fence> {
        let TrtExecutor { stream, elsewhere, graphs, addresses, .. } = self;
        let context = stream.context().clone();
        // Runs share the memory that they work in.
        let last = elsewhere.clone().map_or_else(|| stream.record(), Ok)?;
        // SAFETY: as above.
        unsafe {
            context.hold(callers, &last)?;
            let queued = context.queuing_on(callers);
            match graphs.as_mut().and_then(|runs| runs.next(addresses)) {
                Some(graph) => graph.launch_on(callers)?,
                None => {
                    stream.wait_for(callers)?;
                    let queued = stream.queuing();
                    self.enqueue(&[])?;
                    let run = queued.record()?;
                    if let Err(error) = context.hold(callers, &run) {
                        let _ = run.wait(); // what the caller frees next is in use until then
                        return Err(error);
                    }
                }
            }
            let done = queued.record()?;
            self.elsewhere = Some(done.clone());
            Ok(done)
        }
    }

    /// Queues a run that has no graph, and captures one where that is due.
    ///
    /// # Safety
    /// As for [`TrtExecutor::start`].
    unsafe fn enqueue(&mut self, blocks: &[DeviceBlock]) -> Result<()> {
        let TrtExecutor { stream, capture_stream, graphs, refused, context, addresses, image, outputs, .. } = self;
        if let Some(error) = refused.take() {
            let what = format!("Runs are no longer captured as CUDA graphs: {}", error.as_clause());
            interfaces::log(interfaces::Level::Warning, &what);
        }
        // SAFETY: `prepare` gave all inputs their dimensions. The memory is large enough, and stays until the run is done.
        unsafe {
            let to_capture = graphs.as_mut().is_some_and(|runs| runs.note(addresses, blocks));
            if !to_capture && let Some(done) = graphs.as_mut().and_then(|runs| runs.launch_common(addresses, stream)) {
                return done;
            }
            let tensors = [&*image].into_iter().chain(outputs.iter().map(|(io, _)| io));
            tensors.zip(&*addresses).try_for_each(|(io, &address)| context.set_address(io, address))?;
            context.enqueue(stream)?;
            let Some(runs) = graphs.as_mut().filter(|_| to_capture) else { return Ok(()) };
            if let Err(error) = runs.capture(addresses, context, capture_stream) {
                // This run is queued all the same, and so can the next ones be. The graphs have memory that an earlier run may
                // still use.
                let _ = stream.synchronize();
                *graphs = None;
                *refused = Some(error);
            }
            Ok(())
        }
    }

    /// The dimensions of a picture that can be run on: of lines of text with any width that the engine was prepared for.
    fn dims_of(&self, picture: &Tensor) -> Dims {
        let spec = &self.request.spec;
        let (dims, Some((_, w))) = (&picture.desc().dims, spec.order.sides()) else { return spec.desc.dims.clone() };
        let widths = spec.desc.dims[w]..=spec.largest_dims()[w];
        let mut wanted = spec.desc.dims.clone();
        if let Some(width) = dims.get(w).filter(|width| widths.contains(*width)) {
            wanted.0[w] = *width;
        }
        wanted
    }

    /// The memory of a picture of these dimensions.
    fn memory<'a>(&self, picture: &'a Tensor, dims: &Dims) -> Result<&'a DeviceBlock> {
        let device = self.stream.context().device();
        let Some(memory) = picture.device().filter(|memory| memory.context().device() == device) else {
            return Err(Error::new(
                ErrorKind::WrongType,
                "The tensor is not in the memory of the GPU that the model runs on",
            )
            .cause(format!("it is {picture:?}"))
            .remedy("Set the same cuda-device-id on trtpreprocess and trtinfer"));
        };
        let desc = picture.desc();
        if (desc.dtype, &desc.dims) != (self.wanted.dtype, dims) {
            let wanted = TensorDesc { dims: dims.clone(), ..self.wanted.clone() };
            return Err(Error::new(ErrorKind::WrongType, "The tensor does not fit the engine")
                .cause(format!("it is {desc}, and the engine was prepared for {wanted}"))
                .remedy("Leave the tensor-… properties of trtpreprocess unset, and set input-size on trtinfer"));
        }
        Ok(memory)
    }

    /// Where the pictures lie as one batch of so many rows, and the row of each. They are copied there unless they are parts of
    /// one block, in any order, as those from a [`BatchPool`](crate::memory::BatchPool) usually are.
    fn gather(&mut self, pictures: &[&DeviceBlock], rows: usize) -> Result<(u64, Vec<usize>)> {
        let size = self.picture_bytes();
        let first = pictures.iter().map(|memory| memory.address()).min().unwrap_or_default();
        let row = |memory: &&DeviceBlock| (memory.address() - first) as usize / size;
        let mut seen = vec![false; rows];
        let lie_together = pictures.len() == rows
            && first.is_multiple_of(BatchPool::ALIGN as u64)
            && pictures[0].context() == self.stream.context()
            && pictures.iter().all(|memory| {
                let row = row(memory);
                memory.shares_block_with(pictures[0])
                    && memory.address() == first + (row * size) as u64
                    && seen.get_mut(row).is_some_and(|seen| !std::mem::replace(seen, true))
            });
        if lie_together {
            return Ok((first, pictures.iter().map(row).collect()));
        }
        let block = match &self.gather_block {
            Some(block) => block,
            None => {
                // For the widest ones.
                let largest = TensorDesc { dims: self.request.spec.largest_dims(), ..self.wanted.clone() };
                let bytes = largest.bytes().unwrap_or(size);
                self.gather_block.insert(self.pool.take(bytes * self.rows.end())?)
            }
        };
        let mut row = 0;
        while let [memory, others @ ..] = &pictures[row..] {
            // Those of a frame are neighbours, so they are one copy.
            let is_next = |(at, other): &(usize, &&DeviceBlock)| memory.is_followed_by(other, (at + 1) * size);
            let count = 1 + others.iter().enumerate().take_while(is_next).count();
            let from = (memory.context(), memory.address());
            // SAFETY: both have so many pictures; they stay until the outputs are dropped, and with `self`.
            unsafe { self.stream.copy(from, block.address() + (row * size) as u64, count * size) }?;
            row += count;
        }
        Ok((block.address(), (0..pictures.len()).collect()))
    }
}

/// The engine's input of that name and type.
fn input<'a>(engine: &'a Engine, desc: &TensorDesc) -> Result<&'a TensorBinding> {
    let found = engine.inputs().iter().find(|io| io.desc.name == desc.name);
    found.filter(|io| io.desc.dtype == desc.dtype && desc.dims.fits(&io.desc.dims)).ok_or_else(|| {
        let has = found.map_or("no such input".to_string(), |io| io.desc.to_string());
        Error::new(ErrorKind::Model, "The engine does not fit its model")
            .cause(format!("it has {has}, and the model {desc}"))
            .remedy("Delete the engine, or build it again")
    })
}

/// The outputs of a full batch, once every input has its dimensions.
fn outputs(context: &ExecutionContext, engine: &Engine, batch: usize) -> Result<Vec<(TensorBinding, TensorDesc)>> {
    let output = |io: &TensorBinding| {
        let desc = TensorDesc { dims: context.output_dims(io)?, ..io.desc.clone() };
        check_rows(&desc, batch)?;
        Ok((io.clone(), desc))
    };
    engine.outputs().iter().map(output).collect()
}

/// The engine does not take a full batch of these dimensions.
fn no_profile(engine: &Engine, image: &TensorBinding, dims: &Dims, picture: &TensorDesc) -> Error {
    let ranges: Vec<String> = (0..engine.profiles())
        .filter_map(|profile| engine.profile(image, profile))
        .map(|[min, _, max]| format!("{min} to {max}"))
        .collect();
    let wanted = TensorDesc { dims: dims.clone(), ..picture.clone() };
    Error::new(ErrorKind::Settings, format!("The engine does not take an input of {wanted}"))
        .cause(format!("it was built for {}", ranges.join(", and ")))
        .remedy("Set batch-size, input-size and max-input-width to what is in that range, or build the engine for it")
}

impl Drop for TrtExecutor {
    fn drop(&mut self) {
        // Runs use what is about to be freed.
        let _ = self.elsewhere.take().map_or(Ok(()), |last| last.wait());
        let _ = self.stream.synchronize();
    }
}

impl ModelInstance for TrtExecutor {
    fn only_queues(&self) -> bool {
        true
    }

    /// Behind the runs that are queued, which read the former ones. The memory stays where it is, so captured runs read the new ones.
    fn set_values(&mut self, values: &Arc<InputValues>) -> Result<()> {
        if Arc::ptr_eq(&self.request.values, values) {
            return Ok(());
        }
        let sides = self.request.model().side_inputs(&self.request.spec, *self.rows.end(), values)?;
        let sides = sides.iter().flatten();
        let mut pairs = self.side_inputs.iter().zip(sides.clone());
        if let Some((have, given)) = pairs.find(|(have, given)| have.dims != given.desc().dims) {
            return Err(Error::new(ErrorKind::Settings, format!("The engine does not take {}", given.desc()))
                .cause(format!("it was prepared for {} {}", given.desc().name, have.dims))
                .remedy("Load the model again for it"));
        }
        self.wait_for_elsewhere()?;
        self.request.values = Arc::default(); // until all are there
        for (SideInput { block, .. }, given) in self.side_inputs.iter().zip(sides) {
            // SAFETY: the block is as large, and stays with the context. Runs use it in the order of the stream.
            unsafe { self.stream.upload(given.bytes().expect(ON_HOST), block.address()) }?;
        }
        self.request.values = values.clone();
        Ok(())
    }

    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        let dims = self.dims_of(&pictures[0][0]);
        let memories = pictures.iter().map(|picture| self.memory(&picture[0], &dims)).collect::<Result<Vec<_>>>()?;
        let rows = pictures.len().max(*self.rows.start());
        self.prepare_for(rows, &dims)?;
        self.stream.wait_for_all(pictures.iter().filter_map(|picture| picture.ready()))?;
        let blocks: Vec<DeviceBlock>; // declared before what waits for the work on them, so dropped after it
        let queued = self.stream.queuing();
        let begin = self.stream.begin_timing();
        let (address, row_of) = self.gather(&memories, rows)?;
        let one = |(_, full): &(TensorBinding, TensorDesc)| match *self.rows.end() {
            1 => full.clone(),
            _ => TensorDesc { dims: with_rows(&full.dims, rows), ..full.clone() },
        };
        let descs: Vec<TensorDesc> = self.outputs.iter().map(one).collect();
        let take = |desc: &TensorDesc| self.pool.take(desc.bytes().expect("checked by output_dims"));
        blocks = match self.graphs.as_mut().and_then(|graphs| graphs.outputs(address)) {
            Some(blocks) => blocks,
            None => descs.iter().map(take).collect::<Result<_>>()?,
        };
        self.addresses.clear();
        self.addresses.push(address);
        self.addresses.extend(blocks.iter().map(DeviceBlock::address));
        // SAFETY: the pictures' sizes were just checked, and they stay until the outputs are dropped, which keep them; their
        // blocks are large enough, and return to the pool when they are dropped, after their fence.
        unsafe { self.start(&blocks) }?;
        self.stream.end_timing(begin);
        let ready = queued.record()?;
        let tensors: Vec<Tensor> =
            descs.into_iter().zip(blocks).map(|(desc, block)| Tensor::on_device(desc, block)).collect();
        if *self.rows.end() == 1 {
            let outputs = Tensors::new(tensors, Some(ready), Some(pictures[0].clone()));
            return Ok(vec![outputs.on(self.stream.clone())]);
        }
        // What is done with the pictures of a batch is done side by side, so not here.
        let frame = |(picture, &row): (&Arc<Tensors>, &usize)| {
            let rows = tensors.iter().map(|tensor| tensor.row(row)).collect();
            Tensors::new(rows, Some(ready.clone()), Some(picture.clone()))
        };
        Ok(pictures.iter().zip(&row_of).map(frame).collect())
    }

    unsafe fn run_at(&mut self, picture: u64, outputs: &[u64], stream: Option<*mut c_void>) -> Result<Fence> {
        let fewest = *self.rows.start();
        if fewest > 1 {
            return Err(Error::new(ErrorKind::Settings, "Cannot run the engine on the memory of one picture")
                .cause(format!("it takes {fewest} pictures at once"))
                .remedy(
                    "Give the pictures in host memory, or export the model with a dynamic batch or a batch of one",
                ));
        }
        let dims = self.request.spec.desc.dims.clone();
        self.prepare_for(1, &dims)?;
        self.addresses.clear();
        self.addresses.push(picture);
        self.addresses.extend_from_slice(outputs);
        let Some(stream) = stream else {
            let queued = self.stream.queuing();
            // SAFETY: the memory at the addresses just set stays until the fence that is recorded next is passed.
            unsafe { self.start(&[]) }?;
            return queued.record();
        };
        // SAFETY: the addresses just set stay until the returned fence has passed, and the stream is alive.
        unsafe { self.start_on(stream) }
    }

    fn working_bytes(&self) -> u64 {
        let tensors = self.pool.bytes() + self.graphs.as_ref().map_or(0, GraphCache::bytes);
        self.context.engine().device_memory() + tensors as u64
    }
}
