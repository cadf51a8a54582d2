// SPDX-License-Identifier: MPL-2.0
//! Frames that go into the model with other values than those before them.

use super::*;

/// Sends the pictures of each batch, with the text of the values that they went in with.
struct Prompted {
    batches: Sender<(Vec<f32>, String)>,
    text: String,
    /// How often it finds no memory for new values.
    lacks: usize,
    others: Vec<Prompted>,
    queues: bool,
}

impl ModelInstance for Prompted {
    fn only_queues(&self) -> bool {
        self.queues
    }

    fn take_others(&mut self) -> Vec<Box<dyn ModelInstance>> {
        self.others.drain(..).map(|other| Box::new(other) as Box<dyn ModelInstance>).collect()
    }

    fn set_values(&mut self, values: &Arc<InputValues>) -> Result<()> {
        if self.lacks > 0 {
            self.lacks -= 1;
            return Err(Error::new(ErrorKind::Run, "Cannot allocate 9 MiB").cause("there is none").out_of_memory(true));
        }
        self.text = values.text().into();
        Ok(())
    }

    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        let values: Vec<f32> = pictures.iter().map(|picture| value(picture)).collect();
        self.batches.send((values.clone(), self.text.clone())).unwrap();
        Ok(values.into_iter().map(tensors).collect())
    }
}

fn prompted(batches: &Sender<(Vec<f32>, String)>, queues: bool) -> Prompted {
    Prompted { batches: batches.clone(), text: String::new(), lacks: 0, others: Vec::new(), queues }
}

/// Two of the same kind, which name no files.
fn two() -> [Arc<InputValues>; 2] {
    [",", ",,"].map(|text| Arc::new(InputValues::read(text).unwrap()))
}

#[test]
fn a_batch_has_frames_with_the_same_values() {
    for queues in [true, false] {
        let (sender, batches) = channel();
        let batcher = Arc::new(Batcher::new(Box::new(prompted(&sender, queues)), 4, LONG).unwrap());
        let [old, new] = two();
        let submit = |stream, picture, values| submit_with(&batcher, stream, &[picture], values).unwrap().remove(0);
        let tickets = [submit(0, 1.0, &old), submit(1, 2.0, &old), submit(0, 3.0, &new), submit(1, 4.0, &new)];
        batcher.flush(0);
        assert_eq!([0, 1, 2, 3].map(|at| outcome(&tickets[at])), [Ok(1.0), Ok(2.0), Ok(3.0), Ok(4.0)]);
        let batches: Vec<_> = batches.try_iter().collect();
        assert_eq!(batches, [(vec![1.0, 2.0], ",".to_string()), (vec![3.0, 4.0], ",,".to_string())], "{queues}");
    }
}

#[test]
fn a_batch_has_pictures_of_one_size() {
    let (sender, batches) = channel();
    let batcher = Arc::new(Batcher::new(Box::new(prompted(&sender, false)), 4, LONG).unwrap());
    let picture = |(value, width): (f32, usize)| {
        let tensor = Tensor::from_slice("t", &[1, width as i64], &vec![value; width]);
        Arc::new(Tensors::new(vec![tensor], None, None))
    };
    let pictures = [(1.0, 8), (2.0, 4), (3.0, 8), (4.0, 4), (5.0, 2)].map(picture);
    let token = CancelToken::default();
    let tickets = batcher.submit(0, pictures.into_iter(), &Arc::default(), &Arc::default(), &token).unwrap();
    batcher.flush(0);
    let outcomes: Vec<_> = tickets.iter().map(outcome).collect();
    assert_eq!(outcomes, [1.0, 2.0, 3.0, 4.0, 5.0].map(Ok));
    let batches: Vec<Vec<f32>> = batches.try_iter().map(|(values, _)| values).collect();
    assert_eq!(batches, [vec![1.0, 3.0], vec![2.0, 4.0], vec![5.0]]);
}

#[test]
fn each_of_several_runs_has_the_values_of_its_frames() {
    let (sender, batches) = channel();
    let model = Prompted { others: vec![prompted(&sender, false)], ..prompted(&sender, false) };
    let batcher = Arc::new(Batcher::new(Box::new(model), 1, LONG).unwrap());
    let both = two();
    let tickets: Vec<PendingOutput> = (0..40)
        .map(|frame| submit_with(&batcher, 0, &[frame as f32], &both[frame / 3 % 2]).unwrap().remove(0))
        .collect();
    for (frame, ticket) in tickets.iter().enumerate() {
        assert_eq!(outcome(ticket), Ok(frame as f32));
    }
    let batches: Vec<_> = batches.try_iter().collect();
    assert_eq!(batches.len(), 40);
    for (pictures, text) in batches {
        assert_eq!(text, both[pictures[0] as usize / 3 % 2].text(), "{pictures:?}");
    }
}

#[test]
fn values_that_find_no_memory_are_tried_again() {
    for queues in [true, false] {
        let (sender, batches) = channel();
        let model = Prompted { lacks: 1, ..prompted(&sender, queues) };
        let batcher = Arc::new(Batcher::new(Box::new(model), 1, Duration::from_millis(1)).unwrap());
        let [_, new] = two();
        let ticket = submit_with(&batcher, 0, &[1.0], &new).unwrap().remove(0);
        assert_eq!((outcome(&ticket), batcher.counts().out_of_memory), (Ok(1.0), 1));
        assert_eq!(batches.try_iter().collect::<Vec<_>>(), [(vec![1.0], ",,".to_string())]);
    }
}

/// Fails with the values of one comma, and finds no memory with those of two.
struct Picky(Prompted);

impl ModelInstance for Picky {
    fn only_queues(&self) -> bool {
        self.0.queues
    }

    fn set_values(&mut self, values: &Arc<InputValues>) -> Result<()> {
        self.0.set_values(values)
    }

    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        match &*self.0.text {
            "," => Err(Error::new(ErrorKind::Run, "It cannot compute with them")),
            ",," => Err(Error::new(ErrorKind::Run, "Cannot allocate 9 MiB").cause("there is none").out_of_memory(true)),
            _ => self.0.run(pictures),
        }
    }
}

/// The outcome of a trial with these values.
fn try_out(batcher: &Batcher, values: &Arc<InputValues>, token: &CancelToken) -> std::result::Result<(), String> {
    batcher.try_values(u64::MAX, Arc::new(tensors(9.0)), values, token).map_err(|why| match why {
        Interrupted::Failed(error) => error.message(),
        Interrupted::Flushing => "left".into(),
    })
}

/// Frames that wait for their batch go on waiting for it, with the values that they came with.
#[test]
fn values_are_tried_between_batches_and_do_not_count() {
    for queues in [true, false] {
        let (sender, batches) = channel();
        let batcher = Arc::new(Batcher::new(Box::new(Picky(prompted(&sender, queues))), 3, LONG).unwrap());
        let token = CancelToken::default();
        let [fails, lacks] = two();
        let works = Arc::new(InputValues::read(",,,").unwrap());
        let frames = [1.0, 2.0].map(|picture| submit(&batcher, 0, picture));
        assert_eq!(try_out(&batcher, &fails, &token), Err("It cannot compute with them.".into()));
        assert_eq!(try_out(&batcher, &lacks, &token), Err("Cannot allocate 9 MiB: there is none.".into()));
        assert_eq!(try_out(&batcher, &works, &token), Ok(()));
        assert_eq!(batches.try_iter().collect::<Vec<_>>(), [(vec![9.0], ",,,".to_string())]);
        assert_eq!(batcher.counts(), Counts::default());
        let third = submit(&batcher, 0, 3.0);
        assert_eq!([&frames[0], &frames[1], &third].map(outcome), [Ok(1.0), Ok(2.0), Ok(3.0)]);
        assert_eq!(batches.try_iter().collect::<Vec<_>>(), [(vec![1.0, 2.0, 3.0], String::new())]);
        assert_eq!(batcher.counts(), Counts { batches: 1, frames: 3, late: 0, out_of_memory: 0 });
        assert_eq!(batcher.stats().read().done, 1);
    }
}

#[test]
fn who_tries_values_may_leave() {
    let (bench, go) = Bench::parallel::<1>(1);
    let (batcher, token) = (&bench.batcher, CancelToken::default());
    let values = Arc::default();
    thread::scope(|scope| {
        let trial = scope.spawn(|| try_out(batcher, &values, &token));
        assert_eq!(bench.batches.recv().unwrap(), [9.0]);
        batcher.queue.waiters.wait_for(1);
        token.set_stopped(true);
        assert_eq!(trial.join().unwrap(), Err("left".into()));
        assert!(!batcher.is_idle_within(u64::MAX, Duration::ZERO), "the model still works on it");
        assert_eq!(try_out(batcher, &values, &token), Err("left".into()), "nor does it wait for its turn");
        go[0].send(()).unwrap();
        assert!(batcher.is_idle_within(u64::MAX, LONG));
    });
    batcher.limit_runs(Duration::from_millis(20));
    let error = try_out(batcher, &values, &CancelToken::default()).unwrap_err();
    assert!(error.starts_with("A run of the model has not ended within 0.02 s"), "{error}");
    assert_eq!(try_out(batcher, &values, &CancelToken::default()), Err(error), "it is given up");
    go[0].send(()).unwrap();
}
