// SPDX-License-Identifier: MPL-2.0
//! Several frames in batches. On a GPU the next batch is queued before the host waits for the results of one, so the model runs
//! while results are read.

use std::ffi::c_void;
use std::sync::Arc;

use super::{Detections, Detector, DeviceFrame, Source};
use crate::cuda::driver::Context;
use crate::error::{Error, Result};
use crate::image::device::{DevicePlanes, check_planes};
use crate::image::frame::{Colorimetry, Frame};
use crate::image::geometry::Letterbox;
use crate::image::preprocess::Preprocessor;
use crate::memory::BatchPool;
use crate::session::device::of_another_context;
use crate::tensor::{Dims, Tensors};

/// A frame of a list that cannot be used.
pub(super) struct WrongFrame {
    number: usize,
    pub(super) error: Error,
}

/// The tensors of frames of one kind, in their order.
pub(super) type MadeTensors = std::result::Result<Vec<Tensors>, Box<WrongFrame>>;

/// Frames that are run together, with what the model gives for each; on a GPU it may not be there yet.
struct FrameBatch {
    numbers: Vec<usize>,
    outputs: Vec<Tensors>,
    letterboxes: Vec<Letterbox>,
}

impl WrongFrame {
    fn new(number: usize, error: Error) -> Box<Self> {
        Box::new(WrongFrame { number, error })
    }

    /// The error with the number of the frame.
    fn named(self) -> Error {
        self.error.about(&format!("frames[{}]", self.number))
    }
}

impl Detector {
    /// What is in several frames. `make` makes the tensors of frames of one kind, of those with these numbers.
    pub(super) fn find_all(
        &mut self,
        sources: &[Source],
        mut make: impl FnMut(&mut Preprocessor, &[usize]) -> MadeTensors,
        mut found: impl FnMut(usize, Detections<'_>),
    ) -> Result<()> {
        if self.sees_clips() {
            for (number, source) in sources.iter().enumerate() {
                let results = self.find_one(*source, |preprocessor| {
                    make(preprocessor, &[number]).map(|mut made| made.remove(0)).map_err(|wrong| wrong.error)
                });
                found(number, results.map_err(|error| WrongFrame::new(number, error).named())?);
            }
            return Ok(());
        }
        let (order, sizes) = self.order(sources);
        let size = self.session.batch_size();
        let batches = order.chunk_by(|&one, &next| sizes[one] == sizes[next]).flat_map(|group| group.chunks(size));
        let mut queued: Option<FrameBatch> = None;
        for numbers in batches {
            let batch = self.queue_batch(numbers, sources, &mut make)?;
            // One that has been computed already gains nothing by waiting.
            let due = if self.running().only_queues() { queued.replace(batch) } else { Some(batch) };
            due.map_or(Ok(()), |batch| self.find_batch(&batch, &mut found))?;
        }
        queued.map_or(Ok(()), |batch| self.find_batch(&batch, &mut found))
    }

    /// The numbers of the frames in the order in which they are run, and the dimensions of their tensors: those of one size
    /// side by side, for they can be run together, and among them those of one kind, for which one preprocessor does.
    fn order(&mut self, sources: &[Source]) -> (Vec<usize>, Vec<Dims>) {
        let sizes: Vec<Dims> = sources.iter().map(|source| self.spec_for(source.size).desc.dims).collect();
        let first = |index: &usize| {
            let of_size = sizes.iter().position(|size| *size == sizes[*index]);
            (of_size, sources.iter().position(|source| *source == sources[*index]))
        };
        let mut order: Vec<usize> = (0..sources.len()).collect();
        order.sort_by_cached_key(first);
        (order, sizes)
    }

    /// Runs the model on the frames with these numbers, which come to one size of its input. On a GPU that is queued.
    fn queue_batch(
        &mut self,
        numbers: &[usize],
        sources: &[Source],
        make: &mut impl FnMut(&mut Preprocessor, &[usize]) -> MadeTensors,
    ) -> Result<FrameBatch> {
        let row = self.row(sources[numbers[0]].size, numbers.len());
        let (mut tensors, mut letterboxes) = (Vec::with_capacity(numbers.len()), Vec::with_capacity(numbers.len()));
        for alike in numbers.chunk_by(|&one, &next| sources[one] == sources[next]) {
            let preprocessor = self.preprocessor(sources[alike[0]]);
            let preprocessor = preprocessor.map_err(|error| WrongFrame::new(alike[0], error).named())?;
            preprocessor.set_row(row.clone());
            letterboxes.resize(letterboxes.len() + alike.len(), *preprocessor.letterbox());
            let made = make(preprocessor, alike).map_err(|wrong| wrong.named())?;
            tensors.extend(made.into_iter().map(Arc::new));
        }
        let outputs = self.infer(&tensors)?.into_iter().map(Tensors::without_stream).collect();
        Ok(FrameBatch { numbers: numbers.to_vec(), outputs, letterboxes })
    }

    /// Where the tensors of so many frames of that size are neighbours, if the model runs on a GPU: then they need not be copied together.
    fn row(&mut self, size: (usize, usize), count: usize) -> Option<BatchPool> {
        let batch = self.session.batch_size();
        if batch == 1 {
            return None;
        }
        let bytes = self.spec_for(size).desc.bytes()?;
        let cuda = self.session.request.cuda.as_ref()?;
        let rows = self.rows.take().filter(|rows| rows.context() == cuda && rows.bytes() == bytes);
        let rows = rows.unwrap_or_else(|| BatchPool::new(cuda, bytes, batch));
        rows.begin_row(count);
        Some(self.rows.insert(rows).clone())
    }

    /// Calls `found` with what is in each frame of a batch. Where that fails, nothing uses the outputs any more.
    fn find_batch(&mut self, batch: &FrameBatch, found: &mut impl FnMut(usize, Detections<'_>)) -> Result<()> {
        let model = self.session.request.model().clone();
        let frames: Vec<(&Tensors, &Letterbox)> = batch.outputs.iter().zip(&batch.letterboxes).collect();
        let mut rest = &frames[..];
        while let Some(&(outputs, letterbox)) = rest.first() {
            let first = frames.len() - rest.len();
            let mut processor = self.take_postprocessor(outputs, letterbox)?;
            // All of them, unless the sizes of the outputs depend on what is in the frames.
            let fits = |frame: &&(&Tensors, &Letterbox)| processor.matches(&model, frame.0, frame.1);
            let (alike, others) = rest.split_at(1 + rest[1..].iter().take_while(fits).count());
            let outcome = processor.find_each(alike, |processor, number| {
                self.watch_scores(processor);
                let found_here = Detections { instances: processor.instances(), labels: &processor.labels };
                found(batch.numbers[first + number], found_here);
            });
            self.postprocessor = Some(processor);
            outcome?;
            rest = others;
        }
        Ok(())
    }
}

/// The tensors of frames of one kind in host memory, of those with these numbers.
pub(super) fn of_host(
    preprocessor: &mut Preprocessor,
    frames: &[(Frame, Colorimetry)],
    numbers: &[usize],
) -> MadeTensors {
    let tensors = |&number: &usize| preprocessor.of_host(&frames[number].0).map_err(|e| WrongFrame::new(number, e));
    numbers.iter().map(tensors).collect()
}

/// The tensors of frames of one kind in GPU memory, with their numbers, made after the work enqueued on `stream` so far.
///
/// # Safety
/// The stream stays until this returns; nothing writes the frames until the tensors are ready, except the work that `stream`
/// already has.
pub(super) unsafe fn of_device(
    preprocessor: &mut Preprocessor,
    cuda: &Context,
    frames: &[(usize, &DeviceFrame)],
    stream: *mut c_void,
) -> MadeTensors {
    let Preprocessor::Device(preprocessor) = preprocessor else { unreachable!("there is a context") };
    for &(number, frame) in frames {
        check(cuda, frame).map_err(|error| WrongFrame::new(number, error))?;
    }
    let planes: Vec<DevicePlanes> = frames.iter().map(|(_, frame)| frame.planes.clone()).collect();
    // SAFETY: the stream is of this context, and stays: this function asks for both. The driver knows the planes as
    // memory of this context. They are read once the tensors are ready; their drop waits for that.
    let made = unsafe {
        let waits = preprocessor.stream().wait_for(stream);
        waits.and_then(|()| preprocessor.batch_of_gpu(&planes))
    };
    made.map_err(|error| WrongFrame::new(frames.first().map_or(0, |(number, _)| *number), error))
}

/// Checks that the planes of a frame are memory of the GPU, of such a frame.
fn check(cuda: &Context, DeviceFrame { format, width, height, planes }: &DeviceFrame) -> Result<()> {
    for (plane, (row, rows)) in planes.iter().zip(format.planes(*width, *height)) {
        let bytes = plane.stride.saturating_mul(rows.saturating_sub(1)).saturating_add(row);
        cuda.check_memory(plane.address, bytes)?;
        // To read it would end the use of the GPU in this process.
        if !cuda.is_primary() && cuda.is_of_another(plane.address)? {
            return Err(of_another_context().about("Cannot use the frame"));
        }
    }
    check_planes(planes, *format, *width, *height)
}
