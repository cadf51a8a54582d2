// SPDX-License-Identifier: MPL-2.0
//! A GPU that is busy.

use super::*;
use crate::cuda::driver::Stream;
use crate::fakes::Fakes;
use crate::memory::{DeviceBlock, DevicePool};

/// Queues its runs on a stream of the GPU, so many of which can be there at the same time.
struct Queuing {
    batches: Sender<Vec<f32>>,
    stream: Stream,
    memory: DeviceBlock,
    at_once: usize,
}

impl ModelInstance for Queuing {
    fn only_queues(&self) -> bool {
        true
    }

    fn runs_at_once(&self) -> usize {
        self.at_once
    }

    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        // SAFETY: the block has as many bytes, and nothing else uses it.
        unsafe { self.stream.clear(self.memory.address(), 64) }?;
        let done = self.stream.record()?;
        let values: Vec<f32> = pictures.iter().map(|picture| value(picture)).collect();
        self.batches.send(values.clone()).unwrap();
        let output = |value: f32| vec![Tensor::from_slice("t", &[1], &[value])];
        Ok(values.into_iter().map(|value| Tensors::new(output(value), Some(done.clone()), None)).collect())
    }
}

/// With which frames that come while the GPU is busy are run together.
const TIMEOUTS: [BatchTimeout; 2] = [BatchTimeout::Fixed(Duration::ZERO), BatchTimeout::Auto];

#[test]
fn frames_gather_while_the_gpu_is_busy() {
    let Some(fakes) = Fakes::of(module_path!(), "frames_gather_while_the_gpu_is_busy") else { return };
    let context = fakes.context();
    for (at_once, timeout) in [1, 2].into_iter().flat_map(|at_once| TIMEOUTS.map(|timeout| (at_once, timeout))) {
        let (sender, run) = channel();
        let memory = DevicePool::new(&context).take(64).unwrap();
        let model = Queuing { batches: sender, stream: Stream::new(&context).unwrap(), memory, at_once };
        let batcher = Arc::new(Batcher::new(Box::new(model), 8, timeout).unwrap());
        let batches = || run.try_iter().collect::<Vec<Vec<f32>>>();
        fakes.stick(true);
        let mut kept = Vec::new();
        for value in [1.0, 2.0].into_iter().take(at_once) {
            kept.push(submit(&batcher, 0, value));
            assert_eq!(outcome(&kept[kept.len() - 1]), Ok(value));
        }
        assert_eq!(batches().len(), at_once, "the GPU takes as many at once");
        let frames = [10.0, 11.0].map(|value| submit(&batcher, 1, value));
        thread::scope(|scope| {
            let waiting = frames.each_ref().map(|frame| scope.spawn(move || outcome(frame)));
            batcher.queue.waiters.wait_for(2);
            assert_eq!(batches().len(), 0, "it is busy");
            fakes.stick(false);
            assert_eq!(waiting.map(|waiting| waiting.join().unwrap()), [Ok(10.0), Ok(11.0)]);
        });
        assert_eq!(batches(), [[10.0, 11.0]]);
        frames.iter().for_each(|frame| frame.wait(&CancelToken::default()).unwrap().wait().unwrap());

        // Half a batch is queued behind a run, so that the GPU goes on with it at once; more of them only if they are full.
        fakes.stick(true);
        kept.push(submit(&batcher, 0, 3.0));
        assert_eq!(outcome(&kept[kept.len() - 1]), Ok(3.0));
        kept.extend((0..12).map(|at| submit(&batcher, 2, at as f32)));
        let sizes = batches().iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes, if at_once == 1 { [1, 4, 8] } else { [1, 4, 4] });
        fakes.stick(false);
    }
}

/// Decoders that a run has held up give their frames once it has ended, and so the other half of a batch comes then. Few streams may have
/// no room for more frames until some are done.
#[test]
fn half_a_batch_waits_for_the_other_half_where_many_streams_come_in_bursts() {
    const NAME: &str = "half_a_batch_waits_for_the_other_half_where_many_streams_come_in_bursts";
    let Some(fakes) = Fakes::of(module_path!(), NAME) else { return };
    let context = fakes.context();
    let sizes_of: [(u64, &[usize]); 2] = [(8, &[1, 8]), (2, &[1, 4, 8])];
    for (streams, sizes) in sizes_of {
        let (sender, run) = channel();
        let memory = DevicePool::new(&context).take(64).unwrap();
        let model = Queuing { batches: sender, stream: Stream::new(&context).unwrap(), memory, at_once: 1 };
        let batcher = Arc::new(Batcher::new(Box::new(model), 8, BatchTimeout::Auto).unwrap());
        let mut queue = batcher.queue.state.lock().unwrap();
        let (pace, mut now) = (queue.pace.as_mut().unwrap(), Instant::now());
        for at in 0..160 {
            now += Duration::from_micros(if at % 16 == 0 { 2500 } else { 20 });
            pace.came(now, 1, true);
        }
        assert!(pace.comes_in_bursts());
        drop(queue);
        fakes.stick(true);
        let first = submit(&batcher, 0, 1.0);
        assert_eq!(outcome(&first), Ok(1.0));
        let kept: Vec<PendingOutput> = (0..12).map(|at| submit(&batcher, at % streams, at as f32)).collect();
        assert_eq!(run.try_iter().map(|batch| batch.len()).collect::<Vec<_>>(), sizes, "{streams} streams");
        fakes.stick(false);
        assert!(kept.iter().all(|frame| outcome(frame).is_ok()));
    }
}

/// How long it takes is known only where no other run was before it.
#[test]
fn a_run_on_the_gpu_is_timed_if_it_is_alone() {
    let Some(fakes) = Fakes::of(module_path!(), "a_run_on_the_gpu_is_timed_if_it_is_alone") else { return };
    let context = fakes.context();
    let (sender, run) = channel();
    let memory = DevicePool::new(&context).take(64).unwrap();
    let model = Queuing { batches: sender, stream: Stream::new(&context).unwrap(), memory, at_once: 1 };
    let batcher = Arc::new(Batcher::new(Box::new(model), 4, BatchTimeout::Auto).unwrap());
    let timed = || [1, 2, 3].map(|frames| batcher.queue.state.lock().unwrap().pace.as_ref().unwrap().has_timed(frames));
    fakes.stick(true);
    let first = submit(&batcher, 0, 1.0);
    assert_eq!(outcome(&first), Ok(1.0));
    let next = [2.0, 3.0].map(|value| submit(&batcher, 0, value)); // half a batch, which is queued behind it
    assert_eq!(run.try_iter().collect::<Vec<_>>(), [vec![1.0], vec![2.0, 3.0]]);
    let last = submit(&batcher, 0, 4.0);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| outcome(&last));
        batcher.queue.waiters.wait_for(1); // for the end of both
        fakes.stick(false);
        assert_eq!(waiting.join().unwrap(), Ok(4.0));
    });
    assert_eq!(timed(), [false; 3]);

    let alone = submit(&batcher, 0, 5.0);
    assert_eq!(outcome(&alone), Ok(5.0));
    fakes.stick(true);
    let behind = submit(&batcher, 0, 6.0);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| outcome(&behind));
        batcher.queue.waiters.wait_for(1);
        fakes.stick(false);
        assert_eq!(waiting.join().unwrap(), Ok(6.0));
    });
    assert_eq!(timed(), [true, false, false]);
    assert_eq!(next.each_ref().map(outcome), [Ok(2.0), Ok(3.0)]);
}
