// SPDX-License-Identifier: MPL-2.0
//! Runs that try a model out while it plays. They are of no frame: nothing of them is in `stats`, and they join no batch.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::cancel::CancelToken;
use super::queue::{BatchQueueState, Request};
use super::{BatchRunner, Batcher, Interrupted};
use crate::model::InputValues;
use crate::tensor::Tensors;

impl Batcher {
    /// Runs the model once on a picture with these values, between two batches, and waits until that is done. The next batch has its
    /// own values again. The stream is the caller's own, and has no frames.
    ///
    /// # Errors
    /// As [`ModelInstance::run`](crate::backends::ModelInstance::run). It does not wait for memory, as frames do. `Flushing`, where
    /// the one who asks may not wait.
    pub fn try_values(
        &self,
        stream: u64,
        picture: Arc<Tensors>,
        values: &Arc<InputValues>,
        token: &CancelToken,
    ) -> std::result::Result<(), Interrupted> {
        let (values, outcome) = (values.clone(), OnceLock::new());
        let request = Request { stream, frame: 0, submitted: Instant::now(), picture, values, is_trial: true, outcome };
        let request = Arc::new(request);
        match &self.runner {
            BatchRunner::Caller(model) => {
                let mut model = model.lock().unwrap();
                let batch = self.queue.state.lock().unwrap().begin_trial(0, &request)?;
                let outcome = self.queue.execute(&mut **model, batch);
                let ended = self.queue.complete(0, outcome);
                drop(model); // as for frames
                drop(ended);
                self.queue.tell();
            }
            BatchRunner::Threads(threads) => {
                let _wait = token.waits_at(self.queue.clone());
                let waits = |queue: &BatchQueueState| queue.given_up.is_none() && !token.is_cancelled();
                let mut queue = self.queue.wait_while(|queue| queue.free_runner().is_none() && waits(queue));
                let Some(runner) = queue.free_runner().filter(|_| !token.is_cancelled()) else {
                    return Err(queue.given_up.clone().map_or(Interrupted::Flushing, Interrupted::Failed));
                };
                let batch = queue.begin_trial(runner, &request)?;
                drop(queue);
                threads[runner].batches.send(batch).expect("it goes on as long as this sender is there");
                drop(self.queue.wait_while(|_| request.outcome.get().is_none() && !token.is_cancelled()));
            }
        }
        match request.outcome.get() {
            Some(Ok(outputs)) => Ok(outputs.wait()?),
            Some(Err(why)) => Err(why.clone()),
            None => Err(Interrupted::Flushing),
        }
    }
}
