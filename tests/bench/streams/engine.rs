// SPDX-License-Identifier: MPL-2.0
//! A model without streams: what its engine can do alone, batch after batch of pictures that are there already.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use gsttrt_core::backends::{LoadContext, LoadEvent, LoadRequest, ModelInstance};
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::error::Result;
use gsttrt_core::memory::{BatchPool, Pool};
use gsttrt_core::session::SessionOptions;
use gsttrt_core::tensor::{Tensor, Tensors};
use hdrhistogram::Histogram;

use crate::awake::wait_awake;
use crate::machine::gpu_mib;
use crate::pipeline::phase;

/// Microseconds up to a minute.
pub fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("these bounds are allowed")
}

/// A loaded model, and the batch that it runs on.
type Ready = (Box<dyn ModelInstance>, Vec<Arc<Tensors>>);

pub struct Engine<'a> {
    request: LoadRequest,
    batch: usize,
    /// What is in them, in turn.
    pictures: &'a [Vec<u8>],
}

impl<'a> Engine<'a> {
    pub fn new(model: &str, options: &SessionOptions, batch: usize, pictures: &'a [Vec<u8>]) -> Result<Self> {
        let SessionOptions { backend, input_size, cuda_device_id, options, .. } = options;
        let cuda = || Context::primary(cuda_device_id.unwrap_or_default());
        Ok(Engine {
            request: LoadRequest::new(Path::new(model), *backend, *input_size, batch, options.clone(), cuda)?,
            batch,
            pictures,
        })
    }

    fn load(&self, contexts: usize) -> Result<Box<dyn ModelInstance>> {
        let report = |event: LoadEvent<'_>| {
            if let LoadEvent::Warning(warning) = event {
                eprintln!("{warning}");
            }
        };
        self.request.load(&LoadContext { report: &report, cancelled: &AtomicBool::new(false), slots: None, contexts })
    }

    /// A batch of pictures, side by side as trtpreprocess puts them.
    fn pictures(&self) -> Result<Vec<Arc<Tensors>>> {
        let desc = &self.request.spec.desc;
        let bytes = desc.bytes().expect("fixed dimensions");
        let slots = self.request.cuda.as_ref().map(|cuda| BatchPool::new(cuda, bytes, self.batch));
        let picture = |picture: &Vec<u8>| {
            let tensor = match &slots {
                Some(slots) => {
                    let mut block = slots.take()?;
                    block.write(picture)?;
                    Tensor::on_device(desc.clone(), block)
                }
                None => Tensor::fill(&Pool::default(), desc.clone(), |bytes| {
                    bytes.copy_from_slice(picture);
                    Ok(())
                })?,
            };
            Ok(Arc::new(Tensors::new(vec![tensor], None, None)))
        };
        self.pictures.iter().cycle().take(self.batch).map(picture).collect()
    }

    /// One for each thread that is to run it.
    pub fn ready(&self, threads: usize) -> Result<Vec<Ready>> {
        (0..threads).map(|_| Ok((self.load(1)?, self.pictures()?))).collect()
    }

    /// Frames a second in some threads together, each with an execution context of its own and `ahead` runs queued
    /// before one is waited for; and how long a run takes from its queueing to its end, in µs.
    pub fn measure(&self, threads: usize, ahead: usize, length: Duration) -> Result<(f64, Histogram<u64>)> {
        let ready = self.ready(threads)?;
        let begun = Instant::now();
        self.drive(ready, ahead, &|| begun.elapsed() < length, &|| {})
    }

    /// The same for as long as `goes_on`, which is asked before each run; `ended` is told of its end.
    pub fn drive(
        &self,
        ready: Vec<Ready>,
        ahead: usize,
        goes_on: &(dyn Fn() -> bool + Sync),
        ended: &(dyn Fn() + Sync),
    ) -> Result<(f64, Histogram<u64>)> {
        let work = |(mut backend, pictures): Ready| -> Result<(f64, Histogram<u64>)> {
            let (mut frames, mut took) = (0, times());
            let mut queued = VecDeque::new();
            let begun = Instant::now();
            loop {
                let is_over = !goes_on();
                if !is_over {
                    queued.push_back((Instant::now(), backend.run(&pictures)?));
                }
                if is_over || queued.len() > ahead {
                    let Some((start, outputs)) = queued.pop_front() else { break };
                    outputs.iter().filter_map(Tensors::ready).try_for_each(wait_awake)?;
                    took.saturating_record(Instant::elapsed(&start).as_micros() as u64);
                    frames += self.batch;
                    ended();
                }
            }
            Ok((frames as f64 / begun.elapsed().as_secs_f64(), took))
        };
        let (mut fps, mut took) = (0.0, times());
        thread::scope(|scope| {
            let work = &work;
            let workers: Vec<_> = ready.into_iter().map(|own| scope.spawn(move || work(own))).collect();
            workers.into_iter().try_for_each(|worker| {
                let (more, theirs) = worker.join().expect("it does not panic")?;
                fps += more;
                took.add(theirs).expect("of the same bounds");
                Ok(())
            })
        })?;
        Ok((fps, took))
    }

    /// How long a run takes where so many engines get a frame each, at that pace and in the [phases](phase) that streams
    /// have; in µs.
    pub fn measure_live(&self, streams: usize, pace: u32, length: Duration) -> Result<Histogram<u64>> {
        let ready = self.ready(streams)?;
        let all_ready = Instant::now() + Duration::from_millis(500);
        let work = |stream, (mut backend, pictures): Ready| -> Result<Histogram<u64>> {
            // What is prepared at the first runs is no matter of later ones.
            for _ in 0..3 {
                backend.run(&pictures)?.into_iter().try_for_each(|outputs: Tensors| outputs.into_ready().map(drop))?;
            }
            let (mut took, begun) = (times(), all_ready + phase(stream, pace));
            let frames = (f64::from(pace) * length.as_secs_f64()) as u32;
            for frame in 0..frames {
                let due = begun + Duration::from_secs(1) * frame / pace;
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let start = Instant::now();
                backend.run(&pictures)?.iter().filter_map(Tensors::ready).try_for_each(wait_awake)?;
                took.saturating_record(start.elapsed().as_micros() as u64);
            }
            Ok(took)
        };
        thread::scope(|scope| {
            let start = |(stream, own)| scope.spawn(move || work(stream, own));
            let workers: Vec<_> = ready.into_iter().enumerate().map(start).collect();
            let mut all = times();
            for worker in workers {
                all.add(worker.join().expect("it does not panic")?).expect("of the same bounds");
            }
            Ok(all)
        })
    }

    /// MiB of GPU memory that `count` of it, with so many execution contexts each, take once they are loaded: the engines, and what they have
    /// to work in.
    pub fn loaded_mib(&self, count: usize, contexts: usize) -> Result<[f64; 2]> {
        drop(self.load(contexts)?); // the first one brings modules that stay
        let before = gpu_mib();
        let loaded = (0..count).map(|_| self.load(contexts)).collect::<Result<Vec<_>>>()?;
        let taken = gpu_mib() - before;
        let room = loaded.iter().map(|backend| backend.working_bytes()).sum::<u64>() as f64 / f64::from(1 << 20);
        Ok([taken - room, room])
    }
}
