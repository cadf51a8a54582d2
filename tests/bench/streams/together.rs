// SPDX-License-Identifier: MPL-2.0
//! Decoding and the engine at the same time, without our elements: on one GPU either may be slower than alone.

use std::error::Error;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use serde_json::json;

use crate::arguments::Arguments;
use crate::engine::Engine;
use crate::pipeline::{Setup, run};
use crate::{Bench, Decoding, median};

#[derive(Default)]
struct State {
    decoded: usize,
    /// Frames whose run was queued, and those whose run has ended.
    begun: usize,
    ended: usize,
    is_over: bool,
}

/// Between decoders and the engine, which stand for a pipeline: neither is ahead of the other by more than queues would hold.
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    room: usize,
}

impl Gate {
    fn new(room: usize) -> Self {
        Gate { state: Mutex::default(), changed: Condvar::new(), room }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// Waits as long as `is_early` says so, but not beyond the end.
    fn wait(&self, is_early: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let state = self.state.lock().unwrap();
        self.changed.wait_while(state, |state| !state.is_over && is_early(state)).unwrap()
    }

    /// A frame has come from a decoder, which waits while the engine is behind.
    pub fn frame(&self) {
        self.change(|state| state.decoded += 1);
        drop(self.wait(|state| state.decoded > state.ended + self.room));
    }

    /// Waits for the frames of a run; false at the end.
    fn begin(&self, batch: usize) -> bool {
        let mut state = self.wait(|state| state.decoded < state.begun + batch);
        state.begun += batch;
        !state.is_over
    }

    fn end(&self, batch: usize) {
        self.change(|state| state.ended += batch);
    }

    pub fn close(&self) {
        self.change(|state| state.is_over = true);
    }
}

impl Bench {
    /// Of 1 and 2 threads for the engine, the better one.
    pub fn together(&self, streams: usize, batch: usize, decoding: &Decoding) -> Result<(), Box<dyn Error>> {
        let Arguments { model, options, length, repeats, properties, .. } = &self.arguments;
        let engine = Engine::new(model, options, batch, &self.pictures[model])?;
        let once = |threads: usize| -> Result<f64, Box<dyn Error>> {
            // Each thread has a run that is under way and one that is queued, and frames of as many more are there.
            let gate = Arc::new(Gate::new(4 * threads * batch));
            let ready = engine.ready(threads)?;
            let clip = &self.clip;
            let setup = Setup { clip, streams, gpus: 1, elements: "", pace: 0, length: *length, gate: Some(&gate) };
            thread::scope(|scope| {
                let inference = scope.spawn(|| {
                    let outcome = engine.drive(ready, 1, &|| gate.begin(batch), &|| gate.end(batch));
                    gate.close(); // after an error nobody takes frames
                    outcome
                });
                let figures = run(setup);
                gate.close();
                inference.join().expect("it does not panic")?;
                Ok(figures?.fps)
            })
        };
        let of_threads = [1, 2].map(|threads| (0..*repeats).map(|_| once(threads)).collect::<Result<Vec<_>, _>>());
        let [one, two] = of_threads.map(|fps| fps.map(median));
        let (fps, ceiling) = (one?.max(two?), decoding.fps.min(self.engines[&batch].fps));
        println!("{streams:>7}{:>7}{fps:>9.0}{ceiling:>9.0}{:>8.3}  batches of {batch}", "both", fps / ceiling);
        self.arguments.note(json!({
            "row": "together", "model": model, "properties": properties, "streams": streams, "batch": batch, "fps": fps,
            "decode_fps": decoding.fps, "engine_fps": self.engines[&batch].fps, "of_ceiling": fps / ceiling,
        }));
        Ok(())
    }
}
