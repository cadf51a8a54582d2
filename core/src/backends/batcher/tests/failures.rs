// SPDX-License-Identifier: MPL-2.0
//! Runs that find no memory, and runs that do not end.

use super::*;

/// Finds no memory for its first runs.
struct Lacking {
    left: usize,
    queues: bool,
}

impl ModelInstance for Lacking {
    fn only_queues(&self) -> bool {
        self.queues
    }

    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        if self.left > 0 {
            self.left -= 1;
            return Err(Error::new(ErrorKind::Run, "Cannot allocate 9 MiB").cause("there is none").out_of_memory(true));
        }
        Ok(pictures.iter().map(|picture| tensors(value(picture))).collect())
    }
}

/// What is told, and a batcher whose first runs find no memory.
fn lacking(left: usize, queues: bool) -> (Arc<Batcher>, Receiver<String>) {
    let (sender, told) = channel();
    let sender = Mutex::new(sender);
    let batcher = Batcher::new(Box::new(Lacking { left, queues }), 2, Duration::from_millis(1)).unwrap();
    let tell = move |error: &Error| sender.lock().unwrap().send(error.message()).unwrap();
    (Arc::new(batcher.with_owner("m.onnx".into(), tell)), told)
}

#[test]
fn a_run_that_finds_no_memory_is_tried_again() {
    for queues in [true, false] {
        let (batcher, told) = lacking(2, queues);
        let tickets = [submit(&batcher, 0, 1.0), submit(&batcher, 1, 2.0), submit(&batcher, 1, 3.0)];
        assert_eq!([0, 1, 2].map(|at| outcome(&tickets[at])), [Ok(1.0), Ok(2.0), Ok(3.0)]);
        let counts = batcher.counts();
        assert_eq!((counts.batches, counts.frames, counts.out_of_memory), (2, 3, 2));
        let told: Vec<String> = told.try_iter().collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("Frames wait until the GPU has memory for a run of the model: Cannot allocate 9 MiB")
        );
    }
}

#[test]
fn who_waits_for_memory_leaves_at_once_and_alone() {
    for queues in [true, false] {
        let (batcher, _told) = lacking(usize::MAX, queues);
        let tickets = [submit(&batcher, 0, 1.0), submit(&batcher, 1, 2.0)];
        let token = CancelToken::default();
        thread::scope(|scope| {
            let one = scope.spawn(|| outcome_for(&tickets[0], &token));
            let other = scope.spawn(|| outcome(&tickets[1]));
            batcher.queue.waiters.wait_for(2);
            token.set_flushing(true);
            assert_eq!(one.join().unwrap(), Err("left".into()));
            assert!(!token.pause(LONG), "nor does it begin to wait");
            batcher.leave(1);
            assert_eq!(other.join().unwrap(), Err("left".into()));
        });
        drop(tickets);
        batcher.flush(0);
    }
}

#[test]
fn frames_that_found_no_memory_are_run_before_their_model_is_let_go() {
    for queues in [true, false] {
        let (batcher, _told) = lacking(2, queues);
        let ticket = submit(&batcher, 0, 1.0);
        batcher.flush(0);
        batcher.leave(0);
        assert_eq!(outcome(&ticket), Ok(1.0));
        assert_eq!(batcher.counts().out_of_memory, 2);
    }
}

#[test]
fn a_model_of_which_a_run_takes_too_long_is_given_up() {
    let (bench, go) = Bench::parallel::<1>(1);
    bench.batcher.limit_runs(LONG);
    bench.batcher.limit_runs(Duration::from_millis(20));
    bench.batcher.limit_runs(LONG);
    let error = submit_frame(&bench.batcher, 0, &[1.0]).unwrap_err();
    let text = error.message();
    assert!(text.starts_with("A run of the model has not ended within 0.02 s: the model is given up"), "{text}");
    assert!(text.contains("run-timeout"), "{text}");
    assert_eq!(submit_frame(&bench.batcher, 1, &[2.0]).unwrap_err().id(), error.id(), "for all streams");
    assert_eq!(bench.batcher.given_up().map(|error| error.id()), Some(error.id()));
    assert!(!bench.batcher.is_idle_within(0, Duration::ZERO));
    go[0].send(()).unwrap();
    assert!(bench.batcher.is_idle_within(0, LONG), "where it ends after all");
}
