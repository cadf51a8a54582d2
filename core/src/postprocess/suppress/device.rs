// SPDX-License-Identifier: MPL-2.0
//! From a head's outputs to boxes, on the GPU: `kernels/decode.cu` with `kernels/nms.cu` or, for rotated boxes,
//! `rotated.cu`.
//!
//! The reference implementation is [`Decoder::decode`] with [`Nms::run`]. Both give the same candidates, in the same
//! order, with the same bits.

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;

use super::Nms;
use super::join::{DeviceJoin, JoinParams};
use super::params::{CandidateArrays, DecodeParams, DecodeSource, GAUSSIAN, NmsParams, RotatedParams, needs_general};
use super::rotated::reach;
use super::sizes::{FILLED, LIST, LISTED, WINDOW, compared, margin, matrix_bytes, matrix_rows};
use crate::counters;
use crate::cuda::driver::{Context, Fence, Function, Launch, Stream, WaitHistory};
use crate::cuda::graph::{KernelNode, LaunchList};
use crate::cuda::kernels::{DECODE, NMS, ROTATED};
use crate::error::{Error, ErrorKind, Result};
use crate::heads::{
    Column, DecodeKernel, Decoder, ID_COLUMNS, Lost, Suppress, TensorView, Thresholds, is_count, least_logit,
};
use crate::image::Candidate;
use crate::image::detections::{DeviceDetections, HEADER, found_size};
use crate::image::masks::Masks;
use crate::memory::{DeviceBlock, DevicePool, Mapped};
use crate::postprocess::cells::priors;
use crate::postprocess::masks::{DeviceMaskFinder, MaskParams};
use crate::postprocess::refine::{DeviceGather, GatherParams};
use crate::tensor::{DType, Tensor};

/// Threads of a block, as in the kernels' launch bounds.
const DECODE_THREADS: usize = 128;
const NMS_THREADS: usize = 512;
/// Threads for each row of a head whose columns are rows.
const SLICES: usize = 8;
/// Candidates that a block ranks at a time.
const RANKED: usize = 16;
/// Candidates that the kernel reads before it knows how many there are.
const READ_AHEAD: usize = 128;
/// Blocks of a launch whose work is known on the GPU only. They share it: enough for any GPU, and cheap to start in vain.
const MAX_BLOCKS: usize = 264;

/// Decodes and suppresses, for one head. It owns its scratch memory; nothing is allocated from frame to frame.
///
/// Work on one frame at a time: [`DeviceDecoder::launch`], then [`DeviceDecoder::detections`]. Work that is queued on
/// the same stream in between may read the [detections](DeviceDecoder::found) in GPU memory, and is done by then too.
pub struct DeviceDecoder {
    /// Where outputs come once for each stride.
    join: Option<DeviceJoin>,
    decode: Kernel,
    /// Orders the candidates, and suppresses those that repeat a better one.
    rank: Kernel,
    /// For rotated boxes: those have been ordered only.
    suppress: Option<Kernel>,
    /// Where rows hold more than their boxes.
    gather: Option<DeviceGather>,
    /// Where objects have masks.
    masks: Option<DeviceMaskFinder>,
    /// Whether the host wants them too.
    pub wants_masks: bool,
    views: [Option<TensorView>; 4],
    decode_params: DecodeParams,
    /// Where the angles of rotated boxes lie.
    angles: Option<TensorView>,
    params: RotatedParams,
    /// The counters at the start of the scratch memory are ready for a frame.
    is_clean: bool,
    /// The counters of candidates, which frames use in turn: each clears the other's for the next.
    counts: [u64; 2],
    thresholds: Option<ThresholdTable>,
    results: Mapped,
    /// The kernels as they were launched for the last even frame and the last odd one, which differ in their counters.
    chains: [Option<FrameKernels>; 2],
    /// Where the last work was queued, until it has been waited for.
    pending: Option<Arc<Stream>>,
    /// Where that ends in the stream, if something else is queued behind it.
    marked: Option<Fence>,
    history: WaitHistory,
    scratch: DeviceBlock,
    /// Sides of prior boxes, where there are some.
    _priors: Option<DeviceBlock>,
    pool: DevicePool,
}

struct Kernel {
    function: Function,
    blocks: usize,
    threads: usize,
}

/// A frame's kernels, and the parameters that they were recorded with.
struct FrameKernels {
    chain: LaunchList,
    join: Option<JoinParams>,
    decode: DecodeParams,
    params: RotatedParams,
    gather: Option<GatherParams>,
    masks: Option<MaskParams>,
}

/// `per_class` of thresholds, on the GPU.
struct ThresholdTable {
    of: Thresholds,
    staging: Mapped,
    device: DeviceBlock,
}

/// Enough for the usual limit; more is allocated when asked for.
const USUAL_DETECTIONS: usize = 300;

impl DeviceDecoder {
    /// For the tensors that `decoder` reads.
    ///
    /// # Errors
    /// `Run`, where the GPU has no memory left or cannot load the kernels; `Settings`, for layouts of the CPU alone.
    pub fn new(context: &Context, decoder: &Decoder) -> Result<Self> {
        let head = decoder.head();
        let format = decoder.format();
        if format.is_for_host() {
            let what = format!("The layout {format} is decoded on the CPU only, and the model runs on a GPU");
            return Err(Error::new(ErrorKind::Settings, what).remedy("Set backend=cpu on trtinfer"));
        }
        let kernel = format.kernel();
        let dtypes: Vec<DType> = decoder.dtypes().collect();
        // Rows with many scores are read by several threads.
        let lanes = (head.classes / 8).next_power_of_two().min(32);
        let [boxes, scores, classes] = ID_COLUMNS.map(|is_it| head.view(is_it));
        let dense = [boxes, head.view(Column::are_scores), head.view(Column::is_objectness), None];
        let suffix = match dense[1] {
            Some(view) if dtypes[view.output] == DType::F16 => "f16",
            _ => "f32",
        };
        let general = if needs_general(format) { "general_" } else { "" };
        let (name, views, threads_per_row, threads) = match kernel {
            DecodeKernel::Rows { .. } => (format!("decode_rows_{general}{suffix}"), dense, lanes, DECODE_THREADS),
            DecodeKernel::Columns => (format!("decode_columns_{general}{suffix}"), dense, SLICES, SLICES * 32),
            DecodeKernel::Logits => (format!("decode_logits_{general}{suffix}"), dense, head.classes, DECODE_THREADS),
            DecodeKernel::Ids => {
                ("decode_ids".to_string(), [boxes, scores, classes, head.view(is_count)], 1, DECODE_THREADS)
            }
        };
        let decode = Kernel {
            function: context.module(DECODE)?.function(&name)?,
            blocks: (head.rows * threads_per_row).div_ceil(threads),
            threads,
        };

        let (angles, capacity) = (decoder.angles(), head.candidates());
        let window = capacity.min(WINDOW);
        let blocks = capacity.div_ceil(RANKED).min(MAX_BLOCKS);
        let words = (window.div_ceil(4) * window.div_ceil(64)).div_ceil(FILLED).min(MAX_BLOCKS);
        let multiprocessors = context.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let compared = compared(multiprocessors.try_into().unwrap_or(0)).min(capacity);
        let lists = compared.div_ceil(LISTED).min(MAX_BLOCKS);
        let (module, rank, suppress) = match (&angles, format.suppress()) {
            (None, Suppress::None) => (NMS, ("rank_detections", blocks), None),
            (None, _) => (NMS, ("suppress", words.max(lists)), None),
            (Some(_), Suppress::None) => (ROTATED, ("rank_rotated", blocks), Some(("keep_rotated", 1))),
            (Some(_), _) => (ROTATED, ("rank_rotated", blocks), Some(("suppress_rotated", blocks))),
        };
        let module = context.module(module)?;
        let kernel = |(name, blocks)| Ok(Kernel { function: module.function(name)?, blocks, threads: NMS_THREADS });
        let rank = kernel(rank)?;
        let suppress = suppress.map(kernel).transpose()?;

        // One allocation for all scratch memory.
        let mut bytes = 0;
        let mut room = |size: usize| {
            bytes += size.next_multiple_of(256);
            (bytes - size.next_multiple_of(256)) as u64
        };
        let counters = room(COUNTERS.len());
        let mut candidates =
            || CandidateArrays { keys: room(capacity * 8), boxes: room(capacity * 16), classes: room(capacity * 4) };
        let from = candidates();
        let of_row = (capacity / head.rows.max(1)) as u32;
        let mut nms_params = NmsParams { from, capacity: capacity as u32, of_row, ..NmsParams::default() };
        if angles.is_some() || format.suppress() != Suppress::None {
            nms_params.sorted = candidates();
            nms_params.kept = room(capacity * 4);
        }
        if format.suppress() == Suppress::Iou {
            nms_params.matrix = room(matrix_bytes(window).max(compared * LIST));
            nms_params.compared = compared as u32;
        }
        let gaussians = if angles.is_some() { room(capacity * GAUSSIAN) } else { 0 };
        nms_params.found = room(found_size(head.rows));
        let pool = DevicePool::new(context);
        let scratch = pool.take(bytes)?;
        let base = scratch.address();
        for candidates in [&mut nms_params.from, &mut nms_params.sorted] {
            candidates.keys += base;
            candidates.boxes += base;
            candidates.classes += base;
        }
        nms_params.found += base;
        nms_params.kept += base;
        nms_params.matrix += base;
        nms_params.blocks_done = base + counters + 8;

        let mut decode_params = DecodeParams::new(decoder, nms_params.from, &views, lanes);
        let priors = priors(&pool, decoder)?;
        decode_params.grid.priors = priors.as_ref().map_or(0, DeviceBlock::address);
        let angles_at = DecodeSource::new(angles, &dtypes);
        let params = RotatedParams { nms: nms_params, angles: angles_at, gaussians: base + gaussians };
        let limit = USUAL_DETECTIONS.min(head.rows);
        let gather = DeviceGather::new(context, &pool, decoder, decode_params.grid, nms_params.found, limit)?;
        Ok(DeviceDecoder {
            masks: DeviceMaskFinder::new(context, &pool, decoder, nms_params.found, limit)?,
            wants_masks: true,
            join: DeviceJoin::new(context, &pool, decoder)?,
            gather,
            decode,
            rank,
            suppress,
            views,
            decode_params,
            angles,
            params,
            is_clean: false,
            counts: [base + counters, base + counters + 4],
            thresholds: None,
            results: Mapped::new(context, found_size(limit))?,
            chains: [None, None],
            pending: None,
            marked: None,
            history: WaitHistory::default(),
            scratch,
            _priors: priors,
            pool,
        })
    }

    /// Where its memory is.
    pub fn context(&self) -> &Context {
        self.pool.context()
    }

    /// Queues all work on a frame. `outputs` are what the decoder [picked](Decoder::pick); of `nms` only the settings count.
    ///
    /// The host waits only if [`DeviceDecoder::detections`] was not asked for the frame before. The outputs must stay
    /// as they are until the work is done.
    ///
    /// # Errors
    /// `WrongType` for tensors that are not on this GPU, `Run` where CUDA fails.
    pub fn launch(
        &mut self,
        stream: &Arc<Stream>,
        outputs: &[&Tensor],
        thresholds: &Thresholds,
        nms: &Nms,
    ) -> Result<()> {
        self.finish()?;
        let rows = self.decode_params.rows as usize;
        let limit = nms.max_detections.min(rows);
        if self.results.bytes() < found_size(limit) {
            self.results = Mapped::new(stream.context(), found_size(limit))?;
        }
        if let Some(join) = &mut self.join {
            join.prepare(outputs.iter().map(|output| address(output, stream.context())))?;
        }
        // Where each of the head's own outputs is.
        let address = |output: usize| match &self.join {
            Some(join) => Ok(join.joined()[output]),
            None => address(outputs[output], stream.context()),
        };
        for (source, view) in self.decode_params.sources.iter_mut().zip(&self.views) {
            if let Some(view) = view {
                source.data = address(view.output)?;
            }
        }
        if let Some(view) = &self.angles {
            self.params.angles.data = address(view.output)?;
        }
        if let Some(gather) = &mut self.gather {
            let data = address(gather.view.output)?;
            gather.prepare(stream.context(), &self.pool, data, limit)?;
        }
        if let Some(masks) = &mut self.masks {
            let coefficients = self.gather.as_ref().map_or(0, DeviceGather::address);
            let sources = [address(masks.output)?, coefficients];
            masks.prepare(stream.context(), &self.pool, sources, limit, self.wants_masks)?;
        }
        // Before anything is enqueued: if that fails, the next call or the drop waits for the work that was.
        self.pending = Some(stream.clone());
        if self.thresholds.as_ref().is_none_or(|table| table.of != *thresholds) {
            self.upload(stream, thresholds)?;
        }
        let [count, next_count] = self.counts;
        self.decode_params.count = count;
        self.params.nms = NmsParams {
            count,
            next_count,
            results: self.results.address(),
            limit: limit as u32,
            matrix_rows: matrix_rows(limit) as u32,
            agnostic: nms.class_agnostic.into(),
            threshold: if self.angles.is_some() { reach(nms.iou_threshold) } else { nms.iou_threshold },
            margin: margin(nms.iou_threshold),
            ..self.params.nms
        };
        if !self.is_clean {
            self.clear(stream)?;
        }
        self.is_clean = false;
        // SAFETY: every address is of memory that `self` keeps until the work is done, or of a tensor that the caller keeps.
        unsafe { self.start(stream) }?;
        self.is_clean = true;
        self.counts = [next_count, count];
        Ok(())
    }

    /// Queues the kernels by one call. Usually only the tensor's address has changed since the frame before the last one.
    ///
    /// # Safety
    /// The addresses in the parameters stay valid until the kernels are done.
    unsafe fn start(&mut self, stream: &Stream) -> Result<()> {
        let DeviceDecoder { join, decode, rank, suppress, gather, masks, decode_params, params, chains, .. } = self;
        let (join, gather, masks) = (join.as_ref(), gather.as_ref(), masks.as_ref());
        let first = decode.call(decode_params);
        let before = usize::from(join.is_some());
        let others = || [Some(&*rank), suppress.as_ref()].into_iter().flatten().map(|kernel| kernel.call(params));
        chains.swap(0, 1);
        let recorded = match &mut chains[0] {
            // SAFETY: the kernels take these structures; their sizes are asserted on both sides.
            Some(recorded) => unsafe {
                if let Some(join) = join.filter(|join| recorded.join.as_ref() != Some(join.params())) {
                    recorded.chain.set_params(0, &join.call())?;
                    recorded.join = Some(*join.params());
                }
                if recorded.decode != *decode_params {
                    recorded.chain.set_params(before, &first)?;
                    recorded.decode = *decode_params;
                }
                let before = before + 1;
                if recorded.params != *params {
                    others().enumerate().try_for_each(|(i, call)| recorded.chain.set_params(before + i, &call))?;
                    recorded.params = *params;
                }
                let before = before + others().count();
                if let Some(gather) = gather.filter(|gather| recorded.gather.as_ref() != Some(gather.params())) {
                    recorded.chain.set_params(before, &gather.call())?;
                    recorded.gather = Some(*gather.params());
                }
                if let Some(masks) = masks.filter(|masks| recorded.masks.as_ref() != Some(masks.params())) {
                    let before = before + usize::from(gather.is_some());
                    let calls = masks.calls();
                    calls.iter().enumerate().try_for_each(|(i, call)| recorded.chain.set_params(before + i, call))?;
                    recorded.masks = Some(*masks.params());
                }
                recorded
            },
            none => {
                let calls = join.map(DeviceJoin::call).into_iter().chain([first]).chain(others());
                let calls = calls.chain(gather.map(DeviceGather::call));
                let calls = calls.chain(masks.into_iter().flat_map(DeviceMaskFinder::calls));
                // SAFETY: as above.
                let chain = unsafe { LaunchList::new(stream, calls) }?;
                let join = join.map(|join| *join.params());
                let gather = gather.map(|gather| *gather.params());
                let masks = masks.map(|masks| *masks.params());
                none.insert(FrameKernels { chain, join, decode: *decode_params, params: *params, gather, masks })
            }
        };
        // SAFETY: the addresses in the parameters stay valid until the kernels are done.
        unsafe { recorded.chain.launch(stream) }
    }

    /// Where the detections of the last frame are once the stream has come so far, until the next one is launched.
    pub fn found(&self) -> DeviceDetections {
        let gathered = self.gather.as_ref().map(DeviceGather::address);
        let NmsParams { found, limit, .. } = self.params.nms;
        let masks = self.masks.as_ref().map(DeviceMaskFinder::found);
        let are_rotated = self.angles.is_some();
        DeviceDetections { address: found, limit: limit as usize, gathered, are_rotated, masks }
    }

    /// The detections of the last frame, in pixels of the model's input. Waits for them, and for all that was queued since.
    ///
    /// # Errors
    /// `Run`, where work on the GPU failed.
    pub fn detections(&mut self) -> Result<&[Candidate]> {
        self.finish()?;
        let detections = self.kept();
        counters::downloaded(HEADER + size_of_val(detections));
        Ok(detections)
    }

    /// What of the last frame is left out, as [`Decoder::decode_counted`] counts it. Waits too.
    ///
    /// # Errors
    /// As [`DeviceDecoder::detections`].
    pub fn lost(&mut self) -> Result<Lost> {
        self.finish()?;
        let [not_finite, beyond, greatest]: [u32; 3] = bytemuck::pod_read_unaligned(&self.results.host()[4..HEADER]);
        Ok(Lost { not_finite: not_finite as usize, beyond: beyond as usize, greatest })
    }

    fn kept(&self) -> &[Candidate] {
        let (header, detections) = self.results.host().split_at(HEADER);
        let count: u32 = bytemuck::pod_read_unaligned(&header[..4]);
        let detections = &detections[..count as usize * size_of::<Candidate>()];
        bytemuck::cast_slice(detections)
    }

    /// The numbers gathered for them: of each all that its row has besides the box. Waits too.
    ///
    /// # Errors
    /// As [`DeviceDecoder::detections`].
    pub fn gathered(&mut self) -> Result<&[f32]> {
        self.finish()?;
        let kept = self.kept().len();
        let Some(gather) = &self.gather else { return Ok(&[]) };
        let numbers = gather.numbers(kept);
        counters::downloaded(size_of_val(numbers));
        Ok(numbers)
    }

    /// Appends their masks, with pixels if these are [wanted](DeviceDecoder::wants_masks). Waits too.
    ///
    /// # Errors
    /// As [`DeviceDecoder::detections`].
    pub fn masks(&mut self, to: &mut Masks) -> Result<()> {
        self.finish()?;
        let kept = self.kept().len();
        self.masks.iter().for_each(|masks| masks.take(kept, to));
        Ok(())
    }

    /// Reads the pixels of masks that were not wanted when they were found.
    ///
    /// # Errors
    /// As [`DeviceDecoder::detections`].
    pub fn read_masks(&mut self, to: &mut Masks) -> Result<()> {
        self.finish()?;
        let kept = self.kept().len();
        self.masks.as_ref().map_or(Ok(()), |masks| masks.read(kept, to))
    }

    /// What is queued behind the last frame from now on is not waited for.
    ///
    /// # Errors
    /// `Run`, where work on the GPU failed.
    pub fn mark(&mut self) -> Result<()> {
        if let Some(stream) = &self.pending {
            self.marked = Some(stream.queuing().record_awaited(&self.history)?);
        }
        Ok(())
    }

    /// Waits for the last frame.
    ///
    /// # Errors
    /// As [`DeviceDecoder::detections`].
    pub fn finish(&mut self) -> Result<()> {
        let Some(stream) = self.pending.take() else { return Ok(()) };
        // Where there is no fence to wait for, this waits for the stream: the memory may be used again then.
        let done = self.marked.take().map_or_else(|| stream.queuing().record_awaited(&self.history), Ok)?;
        done.wait_again(&mut self.history)
    }

    /// Queues the upload of thresholds that changed.
    fn upload(&mut self, stream: &Stream, thresholds: &Thresholds) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(thresholds.per_class());
        let mut table = match self.thresholds.take() {
            Some(table) if table.staging.bytes() >= bytes.len() => table,
            _ => ThresholdTable {
                of: thresholds.clone(),
                staging: Mapped::new(stream.context(), bytes.len())?,
                device: self.pool.take(bytes.len())?,
            },
        };
        table.of.clone_from(thresholds);
        if !bytes.is_empty() {
            // No copy is pending that reads it: the frame before is done.
            table.staging.host_mut()[..bytes.len()].copy_from_slice(bytes);
            // SAFETY: both are as large, and stay until `self` has waited for the stream.
            unsafe { stream.upload(&table.staging.host()[..bytes.len()], table.device.address()) }?;
        }
        self.decode_params.per_class = table.device.address();
        self.decode_params.listed = thresholds.per_class().len() as u32;
        self.decode_params.beyond = thresholds.beyond();
        self.decode_params.least = thresholds.least();
        self.decode_params.least_logit = least_logit(thresholds.least());
        self.thresholds = Some(table);
        Ok(())
    }

    /// Queues setting the counters to 0: before the first frame, and after one that could not be launched wholly. Also
    /// clears the detections and the first candidates, because kernels that read them may read more than there are.
    fn clear(&self, stream: &Stream) -> Result<()> {
        let NmsParams { from, capacity, found, .. } = self.params.nms;
        let candidates = READ_AHEAD.min(capacity as usize);
        // SAFETY: the scratch memory starts with the counters, and has as much room for candidates and detections.
        unsafe {
            stream.clear(self.scratch.address(), COUNTERS.len())?;
            stream.clear(found, found_size(self.decode_params.rows as usize))?;
            stream.clear(from.keys, candidates * 8)?;
            stream.clear(from.boxes, candidates * 16)?;
            stream.clear(from.classes, candidates * 4)
        }
    }
}

impl Drop for DeviceDecoder {
    fn drop(&mut self) {
        // Kernels may still write memory that is about to be freed. There is no caller to return their errors to.
        let _ = self.finish();
    }
}

impl Kernel {
    fn call<'a, P: Copy>(&'a self, params: &'a P) -> KernelNode<'a> {
        let shape = Launch { grid: (self.blocks as u32, 1, 1), block: (self.threads as u32, 1, 1), shared: 0 };
        KernelNode::new(&self.function, shape, params)
    }
}

/// Bytes of the counters: candidates of even frames, candidates of odd ones, blocks that are done. Then, of even frames and of odd
/// ones each: numbers that are not finite, boxes whose class ids are beyond the classes, and the greatest of these ids. Then, each
/// pair in a line of the cache of its own, jobs that blocks have claimed, jobs that are done, and blocks that are done, as
/// `kernels/rank.cuh` has them.
const COUNTERS: Range<usize> = 0..392;

/// Where a tensor begins in the memory of that context.
pub(crate) fn address(tensor: &Tensor, context: &Context) -> Result<u64> {
    let block = tensor.device().filter(|block| block.context() == context);
    let block =
        block.ok_or_else(|| Error::new(ErrorKind::WrongType, format!("{} is not on this GPU", tensor.desc())))?;
    Ok(block.address())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::driver::faults;
    use crate::heads::{ModelHints, end_to_end};
    use crate::tensor::TensorDesc;

    /// Rows of an end-to-end head in GPU memory, of which one is a box.
    fn output(context: &Context) -> Tensor {
        let mut rows = [0f32; 8 * 6];
        rows[12..18].copy_from_slice(&[6.0, 4.0, 14.0, 16.0, 0.75, 1.0]);
        let mut block = DevicePool::new(context).take(size_of_val(&rows)).unwrap();
        block.write(bytemuck::cast_slice(&rows)).unwrap();
        Tensor::on_device(TensorDesc::new("output0", DType::F32, &[1, 8, 6]), block)
    }

    #[test]
    fn work_of_a_frame_that_fails_is_waited_for() {
        let Some(context) = crate::test::gpu() else { return };
        let output = output(&context);
        let hints = ModelHints { input: Some((64, 64)), classes: Some(2), ..ModelHints::default() };
        let decoder = Decoder::new(Some(&end_to_end::HEAD), &[output.desc().clone()], &hints).unwrap();
        let (stream, nms) = (Arc::new(Stream::new(&context).unwrap()), Nms::new(0.5, 8, false));
        // The upload of thresholds; the first and the second memset; the kernels; the fence of all of it.
        for (call, after) in [("upload", 0), ("clear", 0), ("clear", 1), ("launch", 0), ("record", 0)] {
            let mut device = DeviceDecoder::new(&context, &decoder).unwrap();
            let thresholds = Thresholds::new(vec![0.5, 0.5], 0.5);
            let find = |device: &mut DeviceDecoder| {
                device.launch(&stream, &[&output], &thresholds, &nms)?;
                device.detections().map(<[Candidate]>::len)
            };
            faults::take_synchronized();
            faults::fail(call, after);
            let error = find(&mut device).err().unwrap();
            assert!(error.message().contains("The test lets"), "{error}");
            // Without a fence the stream itself is waited for; else the fence is, before memory is used again.
            assert_eq!(faults::take_synchronized(), u32::from(call == "record"), "{call} {after}");
            assert_eq!(device.pending.is_some(), call != "record", "{call} {after}");
            assert_eq!(find(&mut device).unwrap(), 1, "{call} {after}: the next frame is whole");
            assert!(device.pending.is_none());
        }
    }
}
