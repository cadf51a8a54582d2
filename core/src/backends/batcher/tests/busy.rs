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

#[test]
fn frames_gather_while_the_gpu_is_busy() {
    let Some(fakes) = Fakes::of(module_path!(), "frames_gather_while_the_gpu_is_busy") else { return };
    let context = fakes.context();
    for at_once in [1, 2] {
        let (sender, run) = channel();
        let memory = DevicePool::new(&context).take(64).unwrap();
        let model = Queuing { batches: sender, stream: Stream::new(&context).unwrap(), memory, at_once };
        let batcher = Arc::new(Batcher::new(Box::new(model), 8, Duration::ZERO).unwrap());
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
