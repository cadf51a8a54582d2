// SPDX-License-Identifier: MPL-2.0
mod busy;
mod failures;
mod gathering;
mod values;

use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::*;
use crate::tensor::Tensor;
use crate::test::{LIMIT, wait_until};

const LONG: Duration = Duration::from_secs(600);

/// Returns its pictures as outputs and sends the size of each batch. Waits for a permit before each. Fails or panics at negative
/// pictures.
struct Fake {
    batches: Sender<Vec<f32>>,
    go: Option<Receiver<()>>,
    others: Vec<Fake>,
    /// Whether runs count as queued on a GPU.
    queues: bool,
}

impl ModelInstance for Fake {
    fn only_queues(&self) -> bool {
        self.queues
    }

    fn take_others(&mut self) -> Vec<Box<dyn ModelInstance>> {
        self.others.drain(..).map(|other| Box::new(other) as Box<dyn ModelInstance>).collect()
    }

    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        let values: Vec<f32> = pictures.iter().map(|picture| value(picture)).collect();
        self.batches.send(values.clone()).unwrap();
        if let Some(go) = &self.go {
            go.recv().unwrap();
        }
        match values.iter().copied().fold(0.0, f32::min) {
            -1.0 => Err(Error::new(ErrorKind::Run, "It fails")),
            -2.0 => panic!("It panics"),
            _ => Ok(values.into_iter().map(tensors).collect()),
        }
    }
}

fn tensors(value: f32) -> Tensors {
    Tensors::new(vec![Tensor::from_slice("t", &[1], &[value])], None, None)
}

fn value(tensors: &Tensors) -> f32 {
    tensors[0].as_slice::<f32>().unwrap()[0]
}

struct Bench {
    batcher: Arc<Batcher>,
    batches: Receiver<Vec<f32>>,
    /// Kept for a backend that waits for it.
    go: Sender<()>,
}

impl Bench {
    /// Returns once so many frames wait in the queue.
    #[track_caller]
    fn wait_for_waiting(&self, count: usize) {
        let waiting = || self.batcher.queue.state.lock().unwrap().waiting.len();
        wait_until("frames in the queue", LIMIT, || waiting() >= count);
    }

    fn new(size: usize, batch_timeout: Duration) -> Self {
        Bench::with(size, batch_timeout, false)
    }

    fn with(size: usize, batch_timeout: Duration, waits: bool) -> Self {
        Bench::of(size, batch_timeout, waits, false)
    }

    /// Whose runs are on the calling thread.
    fn queuing(size: usize, batch_timeout: Duration, waits: bool) -> Self {
        Bench::of(size, batch_timeout, waits, true)
    }

    fn of(size: usize, batch_timeout: impl Into<BatchTimeout>, waits: bool, queues: bool) -> Self {
        let ((sender, batches), (go, let_go)) = (channel(), channel());
        let fake = Fake { batches: sender, go: waits.then_some(let_go), others: Vec::new(), queues };
        Bench { batcher: Arc::new(Batcher::new(Box::new(fake), size, batch_timeout).unwrap()), batches, go }
    }

    /// As many runners as permits, which each wait for theirs.
    fn parallel<const N: usize>(size: usize) -> (Self, [Sender<()>; N]) {
        let (sender, batches) = channel();
        let (gos, let_go): (Vec<_>, Vec<_>) = (0..N).map(|_| channel()).unzip();
        let fake = |go| Fake { batches: sender.clone(), go: Some(go), others: Vec::new(), queues: false };
        let mut fakes = let_go.into_iter().map(fake);
        let first = fakes.next().unwrap();
        let model = Box::new(Fake { others: fakes.collect(), ..first });
        let batcher = Arc::new(Batcher::new(model, size, LONG).unwrap());
        (Bench { batcher, batches, go: channel().0 }, gos.try_into().unwrap())
    }

    fn submit(&self, stream: u64, value: f32) -> PendingOutput {
        submit(&self.batcher, stream, value)
    }

    fn batches(&self) -> Vec<Vec<f32>> {
        self.batches.try_iter().collect()
    }
}

fn submit(batcher: &Arc<Batcher>, stream: u64, value: f32) -> PendingOutput {
    submit_frame(batcher, stream, &[value]).unwrap().remove(0)
}

fn submit_frame(batcher: &Arc<Batcher>, stream: u64, values: &[f32]) -> Result<SmallVec<[PendingOutput; 1]>> {
    static NONE: LazyLock<Arc<InputValues>> = LazyLock::new(Arc::default);
    submit_with(batcher, stream, values, &NONE)
}

/// The same with values for other inputs.
fn submit_with(
    batcher: &Arc<Batcher>,
    stream: u64,
    pictures: &[f32],
    values: &Arc<InputValues>,
) -> Result<SmallVec<[PendingOutput; 1]>> {
    submit_for(batcher, stream, pictures, values, &CancelToken::default()).map_err(|why| match why {
        Interrupted::Failed(error) => error,
        Interrupted::Flushing => panic!("it may wait"),
    })
}

/// The same for the element that has that token.
fn submit_for(
    batcher: &Arc<Batcher>,
    stream: u64,
    pictures: &[f32],
    values: &Arc<InputValues>,
    token: &CancelToken,
) -> std::result::Result<SmallVec<[PendingOutput; 1]>, Interrupted> {
    let pictures = pictures.iter().map(|&picture| Arc::new(tensors(picture)));
    batcher.submit(stream, pictures, values, &Arc::default(), token)
}

fn outcome(ticket: &PendingOutput) -> std::result::Result<f32, String> {
    outcome_for(ticket, &CancelToken::default())
}

/// What the one with that token gets.
fn outcome_for(ticket: &PendingOutput, token: &CancelToken) -> std::result::Result<f32, String> {
    ticket.wait(token).map(value).map_err(|why| match why {
        Interrupted::Failed(error) => error.message(),
        Interrupted::Flushing => "left".into(),
    })
}

#[test]
fn full_batches_are_run_at_once_and_outputs_go_to_their_frames() {
    let bench = Bench::new(3, LONG);
    let tickets: Vec<PendingOutput> = (0..7).map(|i| bench.submit(i % 2, i as f32)).collect();
    assert_eq!(bench.batches(), [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]);
    for (i, ticket) in tickets[..6].iter().enumerate() {
        assert_eq!(outcome(ticket), Ok(i as f32));
    }
    assert_eq!(format!("{:?}", tickets[6]), "PendingOutput(waiting)");
    bench.batcher.flush(1);
    assert_eq!(bench.batches(), [[0.0; 0]; 0], "nothing of that stream waits");
    bench.batcher.flush(0);
    assert_eq!(outcome(&tickets[6]), Ok(6.0));
    assert_eq!(bench.batcher.counts(), Counts { batches: 3, frames: 7, late: 0, out_of_memory: 0 });
}

#[test]
fn a_batch_of_one_does_not_wait() {
    let bench = Bench::new(1, LONG);
    for i in 0..3 {
        assert_eq!(outcome(&bench.submit(0, i as f32)), Ok(i as f32));
    }
    assert_eq!(bench.batcher.counts(), Counts { batches: 3, frames: 3, late: 0, out_of_memory: 0 });
}

#[test]
fn a_timeout_runs_an_incomplete_batch() {
    let bench = Bench::new(4, Duration::from_millis(5));
    let (first, second) = (bench.submit(0, 1.0), bench.submit(1, 2.0));
    assert_eq!([outcome(&second), outcome(&first)], [Ok(2.0), Ok(1.0)]);
    assert_eq!(bench.batches(), [[1.0, 2.0]]);
    assert_eq!(bench.batcher.counts(), Counts { batches: 1, frames: 2, late: 1, out_of_memory: 0 });
}

#[test]
fn a_full_batch_wakes_its_waiters() {
    let bench = Bench::new(2, LONG);
    let ticket = bench.submit(0, 1.0);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| outcome(&ticket));
        bench.batcher.queue.waiters.wait_for(1);
        bench.submit(1, 2.0);
        assert_eq!(waiting.join().unwrap(), Ok(1.0));
    });
}

#[test]
fn a_late_frame_waits_for_the_running_batch() {
    let bench = Bench::with(2, Duration::from_millis(1), true);
    let batcher = &bench.batcher;
    thread::scope(|scope| {
        let first = scope.spawn(|| outcome(&submit(batcher, 0, 1.0)));
        assert_eq!(bench.batches.recv().unwrap(), [1.0], "it was late");
        let second = scope.spawn(|| outcome(&submit(batcher, 1, 2.0)));
        bench.wait_for_waiting(1); // the backend is busy while it joins
        bench.go.send(()).unwrap();
        bench.go.send(()).unwrap();
        assert_eq!([first.join().unwrap(), second.join().unwrap()], [Ok(1.0), Ok(2.0)]);
    });
    assert_eq!(bench.batches(), [[2.0]]);
}

/// It waited for a free runner together with the frame that its batch was run for.
#[test]
fn a_late_frame_that_has_its_outcome_runs_no_other_frames() {
    let bench = Bench::with(3, Duration::from_millis(1), true);
    let late = submit_frame(&bench.batcher, 0, &[1.0, 2.0]).unwrap();
    let waiters = &bench.batcher.queue.waiters;
    thread::scope(|scope| {
        let first = scope.spawn(|| outcome(&late[0]));
        assert_eq!(bench.batches.recv().unwrap(), [1.0, 2.0], "it was late");
        waiters.wait_for(1);
        let early = bench.submit(1, 3.0);
        let second = scope.spawn(|| outcome(&late[1]));
        waiters.wait_for(2);
        (0..3).for_each(|_| bench.go.send(()).unwrap());
        assert_eq!([first.join().unwrap(), second.join().unwrap()], [Ok(1.0), Ok(2.0)]);
        let others = [4.0, 5.0].map(|value| bench.submit(1, value));
        assert_eq!([&early, &others[0], &others[1]].map(outcome), [Ok(3.0), Ok(4.0), Ok(5.0)]);
    });
    assert_eq!(bench.batches(), [[3.0, 4.0, 5.0]]);
}

#[test]
fn a_fast_stream_does_not_delay_others() {
    let bench = Bench::with(4, LONG, true);
    let batcher = &bench.batcher;
    thread::scope(|scope| {
        let mut tickets: Vec<PendingOutput> = (0..3).map(|i| bench.submit(0, i as f32)).collect();
        let full = scope.spawn(|| submit(batcher, 0, 3.0));
        assert_eq!(bench.batches.recv().unwrap(), [0.0, 1.0, 2.0, 3.0]);
        // The backend is busy while the queue grows: ten of the fast stream, then one of two others, the last of them full.
        let waiting = |count: usize| bench.wait_for_waiting(count);
        let order = [(0, 10.0), (0, 11.0), (0, 12.0), (0, 13.0), (0, 14.0), (1, 20.0), (2, 30.0)];
        let mut joined = Vec::new();
        for (i, (stream, value)) in order.into_iter().enumerate() {
            joined.push(scope.spawn(move || submit(batcher, stream, value)));
            waiting(i + 1);
        }
        (0..3).for_each(|_| bench.go.send(()).unwrap());
        tickets.push(full.join().unwrap());
        tickets.extend(joined.into_iter().map(|joined| joined.join().unwrap()));
        bench.batcher.flush(0);
        assert_eq!(bench.batches(), [vec![10.0, 20.0, 30.0, 11.0], vec![12.0, 13.0, 14.0]]);
        let outcomes: Vec<f32> = tickets.iter().map(|ticket| outcome(ticket).unwrap()).collect();
        assert_eq!(outcomes[4..], order.map(|(_, value)| value));
    });
}

/// A frame with several pictures waits for the last of them.
#[test]
fn pictures_of_a_frame_stay_together() {
    let bench = Bench::new(5, LONG);
    let first = submit_frame(&bench.batcher, 0, &[0.0, 1.0]).unwrap();
    let second = submit_frame(&bench.batcher, 0, &[2.0, 3.0]).unwrap();
    let other = submit_frame(&bench.batcher, 1, &[4.0, 5.0]).unwrap();
    assert_eq!(bench.batches(), [[0.0, 1.0, 4.0, 5.0, 2.0]]);
    bench.batcher.flush(0);
    assert_eq!(bench.batches(), [[3.0]]);
    let outcomes: [Vec<f32>; 3] =
        [first, second, other].map(|frame| frame.iter().map(|picture| outcome(picture).unwrap()).collect());
    assert_eq!(outcomes, [vec![0.0, 1.0], vec![2.0, 3.0], vec![4.0, 5.0]]);
    let many = submit_frame(&bench.batcher, 0, &[0.0; 12]).unwrap();
    assert_eq!(bench.batches(), [[0.0; 5]; 2]);
    bench.batcher.flush(0);
    assert!(many.iter().all(|picture| picture.wait(&CancelToken::default()).is_ok()));
    assert_eq!(submit_frame(&bench.batcher, 0, &[]).unwrap().len(), 0);
    assert_eq!(bench.batcher.counts(), Counts { batches: 5, frames: 18, late: 0, out_of_memory: 0 });
}

/// It is about to leave for another model, and would lose them.
#[test]
fn a_stream_that_finishes_waits_for_frames_that_another_thread_runs() {
    let bench = Bench::with(2, LONG, true);
    let ticket = bench.submit(0, 1.0);
    thread::scope(|scope| {
        let other = scope.spawn(|| outcome(&submit(&bench.batcher, 1, 2.0)));
        assert_eq!(bench.batches.recv().unwrap(), [1.0, 2.0]);
        bench.batcher.queue.waiters.wait_for(1);
        let finishing = scope.spawn(|| {
            bench.batcher.flush(0);
            ticket.request.outcome.get().is_some()
        });
        // It waits too, or has not waited.
        wait_until("the end, or a second waiter", LIMIT, || {
            finishing.is_finished() || bench.batcher.queue.waiters.count() >= 2
        });
        bench.go.send(()).unwrap();
        assert!(finishing.join().unwrap());
        assert_eq!(other.join().unwrap(), Ok(2.0));
    });
    assert_eq!(outcome(&ticket), Ok(1.0));
}

#[test]
fn dropped_frames_are_not_run() {
    let bench = Bench::new(3, LONG);
    let kept = bench.submit(0, 1.0);
    drop(bench.submit(0, 2.0));
    let also = bench.submit(0, 3.0);
    assert_eq!(bench.batches(), [[0.0; 0]; 0], "two are left");
    bench.batcher.flush(0);
    assert_eq!(bench.batches(), [[1.0, 3.0]]);
    assert_eq!([outcome(&kept), outcome(&also)], [Ok(1.0), Ok(3.0)]);
}

#[test]
fn a_stream_that_leaves_wakes_only_its_own_waiters() {
    let bench = Bench::new(3, LONG);
    let (mine, other) = (bench.submit(0, 1.0), bench.submit(1, 2.0));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| outcome(&mine));
        bench.batcher.queue.waiters.wait_for(1);
        bench.batcher.leave(0);
        assert_eq!(waiting.join().unwrap(), Err("left".into()));
    });
    bench.batcher.flush(1);
    assert_eq!(bench.batches(), [[2.0]]);
    assert_eq!(outcome(&other), Ok(2.0));
}

/// Two branches of a tee wait for the same frame, and one of them stops or is flushed: while the batch waits for its timeout, and
/// while it is run.
#[test]
fn a_waiter_that_may_not_wait_leaves_the_outputs_to_the_others() {
    for cancel in [CancelToken::set_stopped, CancelToken::set_flushing] {
        for is_run in [false, true] {
            let bench = Bench::with(2, if is_run { Duration::ZERO } else { LONG }, true);
            let ticket = bench.submit(0, 1.0);
            let [leaving, staying] = [(); 2].map(|()| CancelToken::default());
            thread::scope(|scope| {
                let stays = scope.spawn(|| outcome_for(&ticket, &staying));
                let leaves = scope.spawn(|| outcome_for(&ticket, &leaving));
                if is_run {
                    assert_eq!(bench.batches.recv().unwrap(), [1.0]);
                }
                bench.batcher.queue.waiters.wait_for(2);
                cancel(&leaving, true);
                assert_eq!(leaves.join().unwrap(), Err("left".into()));
                assert!(!stays.is_finished());
                assert_eq!(outcome_for(&ticket, &leaving), Err("left".into()), "nor may it wait again");
                bench.go.send(()).unwrap();
                bench.batcher.flush(0);
                assert_eq!(stays.join().unwrap(), Ok(1.0));
                assert_eq!(outcome_for(&ticket, &leaving), Ok(1.0), "what is there needs no wait");
            });
            assert!(!leaving.is_waiting() && !staying.is_waiting());
        }
    }
}

/// The thread of a stream may have been about to submit a frame when its element was stopped or flushed, and the model may be
/// in a run that never ends.
#[test]
fn a_frame_that_comes_after_its_stream_has_left_is_not_waited_for() {
    for cancel in [CancelToken::set_stopped, CancelToken::set_flushing] {
        let (bench, token) = (Bench::with(1, LONG, true), CancelToken::default());
        let submit = |value| submit_for(&bench.batcher, 0, &[value], &Arc::default(), &token);
        thread::scope(|scope| {
            let runs = scope.spawn(|| submit(1.0));
            assert_eq!(bench.batches.recv().unwrap(), [1.0]);
            cancel(&token, true);
            bench.batcher.leave(0);
            assert_eq!(outcome(&runs.join().unwrap().unwrap()[0]), Err("left".into()));
            assert!(matches!(submit(2.0), Err(Interrupted::Flushing)));
            cancel(&token, false);
            (0..2).for_each(|_| bench.go.send(()).unwrap());
            assert_eq!(outcome(&submit(3.0).unwrap()[0]), Ok(3.0));
        });
    }
}

/// Neither the model's thread nor those of other streams may keep a frame that goes on: its tensors return to their pools with it.
#[test]
fn a_finished_frame_owns_its_tensors() {
    let bench = Bench::new(2, Duration::from_micros(20));
    thread::scope(|scope| {
        for stream in 0..2 {
            let batcher = &bench.batcher;
            scope.spawn(move || {
                for _ in 0..2000 {
                    let ticket = submit(batcher, stream, 1.0);
                    outcome(&ticket).unwrap();
                    let kept = [Arc::strong_count(&ticket.request), Arc::strong_count(&ticket.request.picture)];
                    assert_eq!(kept, [1, 1]);
                }
            });
        }
    });
}

#[test]
fn a_failure_reaches_the_whole_batch_and_the_next_one_runs() {
    for (value, expected_text) in
        [(-1.0, "It fails."), (-2.0, "Running the model failed: the library panicked, It panics.")]
    {
        let bench = Bench::new(2, LONG);
        let first = bench.submit(0, value);
        let error = submit_frame(&bench.batcher, 1, &[5.0]).unwrap_err();
        assert!(error.message().starts_with(expected_text), "{error}");
        assert!(outcome(&first).unwrap_err().starts_with(expected_text));
        assert_eq!([bench.submit(0, 1.0), bench.submit(1, 2.0)].each_ref().map(outcome), [Ok(1.0), Ok(2.0)]);
    }
}

#[test]
fn a_frame_does_not_keep_the_model_loaded() {
    let Bench { batcher, batches, .. } = Bench::new(2, LONG);
    let done = [1.0, 2.0].map(|value| submit(&batcher, 0, value));
    let waits = submit(&batcher, 0, 3.0);
    drop(batcher);
    assert!(batches.into_iter().count() == 1, "the backend is gone, or this would not end");
    assert_eq!(done.each_ref().map(outcome), [Ok(1.0), Ok(2.0)]);
    assert_eq!(outcome(&waits), Err("left".into()));
}

#[test]
fn many_threads_get_their_own_outputs() {
    let timeout = Duration::from_micros(200);
    for (size, queues) in [(5, false), (5, true), (1, true)] {
        let bench = Bench::of(size, timeout, false, queues);
        thread::scope(|scope| {
            for stream in 0..8u64 {
                let bench = &bench.batcher;
                scope.spawn(move || {
                    for i in 0..200 {
                        let value = (stream * 1000 + i) as f32;
                        assert_eq!(outcome(&submit(bench, stream, value)), Ok(value));
                    }
                });
            }
        });
        let mut last = [-1.0f32; 8];
        for value in bench.batches().concat() {
            let last = &mut last[(value / 1000.0) as usize];
            assert!(value > *last, "each stream in its order");
            *last = value;
        }
        assert_eq!(bench.batcher.counts().frames, 1600);
    }
}

/// Else each run of a model that many streams share wakes all of their threads.
#[test]
fn threads_that_want_to_queue_a_run_are_not_woken_by_other_runs() {
    let bench = Bench::queuing(1, LONG, true);
    thread::scope(|scope| {
        let joined = [0.0, 1.0, 2.0].map(|value| {
            let batcher = &bench.batcher;
            let other = scope.spawn(move || outcome(&submit(batcher, value as u64, value)));
            match value {
                0.0 => assert_eq!(bench.batches.recv().unwrap(), [0.0]),
                _ => bench.wait_for_waiting(value as usize),
            }
            other
        });
        assert_eq!(bench.batcher.queue.waiters.count(), 0, "they wait for the model itself");
        (0..3).for_each(|_| bench.go.send(()).unwrap());
        for (other, value) in joined.into_iter().zip([0.0, 1.0, 2.0]) {
            assert_eq!(other.join().unwrap(), Ok(value));
        }
    });
    assert_eq!(bench.batcher.counts(), Counts { batches: 3, frames: 3, late: 0, out_of_memory: 0 });
}

#[test]
fn frames_that_leave_while_a_run_is_queued_are_left_out_of_the_next() {
    let bench = Bench::queuing(1, LONG, true);
    thread::scope(|scope| {
        let first = scope.spawn(|| outcome(&submit(&bench.batcher, 0, 1.0)));
        assert_eq!(bench.batches.recv().unwrap(), [1.0]);
        let second = scope.spawn(|| submit_frame(&bench.batcher, 1, &[2.0]).map(|pending| outcome(&pending[0])));
        bench.wait_for_waiting(1);
        bench.batcher.leave(1);
        bench.go.send(()).unwrap();
        assert_eq!(first.join().unwrap(), Ok(1.0));
        assert_eq!(second.join().unwrap().unwrap(), Err("left".to_string()));
    });
    assert_eq!(bench.batches(), [[0.0; 0]; 0]);
}

/// The frames of a stream that leaves are not waited for while they are run, nor does a frame of it that waits for its turn, nor
/// its end.
#[test]
fn a_run_that_never_ends_does_not_block_leaving_streams() {
    let bench = Bench::with(1, LONG, true);
    let batcher = &bench.batcher;
    thread::scope(|scope| {
        let run = scope.spawn(|| outcome(&submit(batcher, 0, 1.0)));
        assert_eq!(bench.batches.recv().unwrap(), [1.0]);
        let next = scope.spawn(|| outcome(&submit(batcher, 1, 2.0)));
        let end = scope.spawn(|| batcher.flush(1));
        bench.wait_for_waiting(1);
        assert!(!batcher.is_idle_within(0, Duration::ZERO) && batcher.is_idle_within(1, Duration::ZERO));
        batcher.leave(1);
        assert_eq!(next.join().unwrap(), Err("left".into()));
        end.join().unwrap();
        batcher.leave(0);
        assert_eq!(run.join().unwrap(), Err("left".into()));
        assert!(!batcher.is_idle_within(0, Duration::ZERO));
        bench.go.send(()).unwrap();
        assert!(batcher.is_idle_within(0, LONG));
    });
    assert_eq!(bench.batcher.counts().batches, 1, "what has left is not run");
}

#[test]
fn as_many_batches_are_run_at_once_as_there_are_runners() {
    let (bench, go) = Bench::parallel::<2>(1);
    let batcher = &bench.batcher;
    let first = bench.submit(0, 1.0);
    assert_eq!(bench.batches.recv().unwrap(), [1.0]);
    let second = bench.submit(0, 2.0);
    assert_eq!(bench.batches.recv().unwrap(), [2.0]);
    thread::scope(|scope| {
        let third = scope.spawn(|| submit(batcher, 0, 3.0));
        batcher.queue.waiters.wait_for(1);
        go[1].send(()).unwrap();
        assert_eq!(bench.batches.recv().unwrap(), [3.0]);
        let third = third.join().unwrap();
        assert_eq!(outcome(&second), Ok(2.0));
        assert_eq!([&first, &third].map(|ticket| ticket.request.outcome.get().is_some()), [false; 2]);
        go.iter().for_each(|go| go.send(()).unwrap());
        assert_eq!([&first, &third].map(outcome), [Ok(1.0), Ok(3.0)]);
    });
    assert_eq!(batcher.counts(), Counts { batches: 3, frames: 3, late: 0, out_of_memory: 0 });
}

/// Its failure is that of its frames; those of another batch have their outputs.
#[test]
fn a_batch_fails_alone_among_those_that_are_run_at_once() {
    let (bench, go) = Bench::parallel::<2>(2);
    let mut tickets = Vec::new();
    for value in [-1.0, 1.0, 2.0, 3.0] {
        tickets.push(bench.submit(0, value));
    }
    go.iter().for_each(|go| go.send(()).unwrap());
    assert!(tickets[..2].iter().all(|ticket| outcome(ticket).unwrap_err().starts_with("It fails.")));
    assert_eq!([outcome(&tickets[2]), outcome(&tickets[3])], [Ok(2.0), Ok(3.0)]);
}

#[test]
fn a_run_that_never_ends_leaves_the_other_runners_to_other_streams() {
    let (bench, go) = Bench::parallel::<2>(1);
    let endless = bench.submit(0, 1.0);
    assert_eq!(bench.batches.recv().unwrap(), [1.0]);
    for value in [2.0, 3.0] {
        let ticket = bench.submit(1, value);
        assert_eq!(bench.batches.recv().unwrap(), [value]);
        go[1].send(()).unwrap();
        assert_eq!(outcome(&ticket), Ok(value));
    }
    bench.batcher.flush(1);
    assert!(!bench.batcher.is_idle_within(0, Duration::ZERO) && bench.batcher.is_idle_within(1, Duration::ZERO));
    bench.batcher.leave(0);
    assert_eq!(outcome(&endless), Err("left".into()));
    go[0].send(()).unwrap();
    assert!(bench.batcher.is_idle_within(0, LONG));
}

#[test]
fn a_late_batch_is_waited_for_where_others_are_run_at_once() {
    let (sender, batches) = channel();
    let fake = |others| Fake { batches: sender.clone(), go: None, others, queues: false };
    let model = Box::new(fake(vec![fake(Vec::new()), fake(Vec::new())]));
    let batcher = Arc::new(Batcher::new(model, 4, Duration::from_micros(200)).unwrap());
    thread::scope(|scope| {
        for stream in 0..8u64 {
            let batcher = &batcher;
            scope.spawn(move || {
                for i in 0..200 {
                    let value = (stream * 1000 + i) as f32;
                    assert_eq!(outcome(&submit(batcher, stream, value)), Ok(value));
                }
            });
        }
    });
    assert_eq!(batcher.counts().frames, 1600);
    assert_eq!(batches.try_iter().flatten().count(), 1600);
}
