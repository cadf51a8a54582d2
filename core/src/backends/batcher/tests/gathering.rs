// SPDX-License-Identifier: MPL-2.0
//! Batches that wait for more frames where that pays.

use super::*;

/// Batches of up to eight. Its frames have come at once, and it has learned what runs cost: they take very long, however many frames
/// they have.
fn gathering(queues: bool, limit: Duration) -> Bench {
    let bench = Bench::of(8, BatchTimeout::Auto, false, queues);
    let mut queue = bench.batcher.queue.state.lock().unwrap();
    let (pace, now) = (queue.pace.as_mut().unwrap(), Instant::now());
    pace.limit = limit;
    (1..=4).for_each(|frames| pace.ran(frames, LONG));
    for frames in 1..8 {
        let _ = pace.wait(now, frames, Duration::ZERO);
        pace.came(now, 1, true);
    }
    drop(queue);
    bench
}

#[test]
fn frames_run_as_soon_as_the_model_is_free_until_more_is_known() {
    for queues in [true, false] {
        let bench = Bench::of(4, BatchTimeout::Auto, false, queues);
        for value in [1.0, 2.0, 3.0] {
            assert_eq!(outcome(&bench.submit(0, value)), Ok(value));
        }
        assert_eq!(bench.batches(), [[1.0], [2.0], [3.0]]);
    }
}

#[test]
fn a_batch_waits_for_frames_while_that_pays() {
    for queues in [true, false] {
        let bench = gathering(queues, LONG);
        let first = bench.submit(0, 1.0);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| outcome(&first));
            bench.batcher.queue.waiters.wait_for(1);
            // Nor is half of it queued on a GPU that does nothing else.
            let others = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0].map(|value| bench.submit(1, value));
            assert_eq!(waiting.join().unwrap(), Ok(1.0));
            assert!(others.iter().all(|other| outcome(other).is_ok()));
        });
        assert_eq!(bench.batches(), [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]], "{queues}");
    }
}

#[test]
fn a_batch_is_run_where_no_frame_comes() {
    for queues in [true, false] {
        let bench = gathering(queues, Duration::from_millis(1));
        let tickets = [1.0, 2.0].map(|value| bench.submit(0, value));
        assert_eq!(tickets.each_ref().map(outcome), [Ok(1.0), Ok(2.0)]);
        assert_eq!(bench.batches(), [[1.0, 2.0]], "{queues}");
        assert_eq!(bench.batcher.counts().late, 1);
    }
}

#[test]
fn frames_that_cannot_be_in_one_batch_do_not_wait_for_each_other() {
    for queues in [true, false] {
        let bench = gathering(queues, LONG);
        let [one, other] = [(); 2].map(|()| Arc::<InputValues>::default());
        let submit =
            |stream, picture, values| submit_with(&bench.batcher, stream, &[picture], values).unwrap().remove(0);
        let first = submit(0, 1.0, &one);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| outcome(&first));
            bench.batcher.queue.waiters.wait_for(1);
            let second = submit(1, 2.0, &other);
            assert_eq!(waiting.join().unwrap(), Ok(1.0), "what came cannot join it");
            bench.batcher.flush(1);
            assert_eq!(outcome(&second), Ok(2.0));
        });
        assert_eq!(bench.batches(), [[1.0], [2.0]], "{queues}");
    }
}

#[test]
fn what_ends_a_wait_ends_one_for_more_frames() {
    for queues in [true, false] {
        let bench = gathering(queues, LONG);
        let tickets = [1.0, 2.0].map(|value| bench.submit(value as u64, value));
        let token = CancelToken::default();
        thread::scope(|scope| {
            let leaves = scope.spawn(|| outcome_for(&tickets[0], &token));
            let stays = scope.spawn(|| outcome(&tickets[1]));
            bench.batcher.queue.waiters.wait_for(2);
            token.set_flushing(true);
            assert_eq!(leaves.join().unwrap(), Err("left".into()));
            bench.batcher.flush(2); // nothing more comes of that stream
            assert_eq!(stays.join().unwrap(), Ok(2.0));
        });
        assert_eq!(bench.batches(), [[1.0, 2.0]], "its outputs may still be asked for");
        let last = bench.submit(3, 3.0);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| outcome(&last));
            bench.batcher.queue.waiters.wait_for(1);
            bench.batcher.leave(3);
            assert_eq!(waiting.join().unwrap(), Err("left".into()));
        });
    }
}

#[test]
fn runs_on_the_cpu_are_timed() {
    let bench = Bench::of(4, BatchTimeout::Auto, false, false);
    let has_timed =
        || [1, 2].map(|frames| bench.batcher.queue.state.lock().unwrap().pace.as_ref().unwrap().has_timed(frames));
    assert_eq!(has_timed(), [false, false]);
    assert_eq!(outcome(&bench.submit(0, 1.0)), Ok(1.0));
    assert_eq!(has_timed(), [true, false]);
    let both = submit_frame(&bench.batcher, 0, &[2.0, 3.0]).unwrap();
    assert_eq!(both.iter().map(outcome).collect::<Vec<_>>(), [Ok(2.0), Ok(3.0)]);
    assert_eq!(has_timed(), [true, true]);
}

/// Nor do batches of one frame.
#[test]
fn several_runs_at_the_same_time_wait_for_no_frames() {
    let (sender, _batches) = channel();
    let fake = |others| Fake { batches: sender.clone(), go: None, others, queues: false };
    for (size, others) in [(4, vec![fake(Vec::new())]), (1, Vec::new())] {
        let batcher = Batcher::new(Box::new(fake(others)), size, BatchTimeout::Auto).unwrap();
        assert!(batcher.queue.state.lock().unwrap().pace.is_none(), "{size}");
    }
}

#[test]
fn many_threads_get_their_own_outputs_from_batches_that_wait() {
    for queues in [true, false] {
        let bench = gathering(queues, Duration::from_micros(200));
        thread::scope(|scope| {
            for stream in 0..8u64 {
                let batcher = &bench.batcher;
                scope.spawn(move || {
                    for i in 0..200 {
                        let value = (stream * 1000 + i) as f32;
                        assert_eq!(outcome(&submit(batcher, stream, value)), Ok(value));
                    }
                });
            }
        });
        assert_eq!(bench.batches().concat().len(), 1600);
        assert_eq!(bench.batcher.counts().frames, 1600);
    }
}
