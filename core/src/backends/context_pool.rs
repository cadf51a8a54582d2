// SPDX-License-Identifier: MPL-2.0
//! Execution contexts of one model, whose runs are on the GPU side by side.

use std::ffi::c_void;
use std::sync::Arc;

use super::ModelInstance;
use crate::cuda::driver::Fence;
use crate::error::Result;
use crate::model::InputValues;
use crate::tensor::Tensors;

/// Execution contexts of one model that share its work. Each queues a run behind its own earlier runs, so runs of different
/// contexts overlap, and share a GPU that one alone leaves half idle.
pub struct ContextPool<B> {
    all: Vec<PooledContext<B>>,
    runs: u64,
    /// With which the next run is, if they are not those that all were loaded with.
    values: Option<Arc<InputValues>>,
}

struct PooledContext<B> {
    backend: B,
    /// Which of all runs was its last one, and what is passed when that is done.
    run: u64,
    done: Option<Fence>,
}

impl<B: ModelInstance + 'static> ContextPool<B> {
    /// # Panics
    /// If there is none.
    pub fn of(mut all: Vec<B>) -> Box<dyn ModelInstance> {
        let context = |backend| PooledContext { backend, run: 0, done: None };
        match all.len() {
            1 => Box::new(all.remove(0)),
            _ => Box::new(ContextPool { all: all.into_iter().map(context).collect(), runs: 0, values: None }),
        }
    }

    fn next(&mut self) -> Result<&mut PooledContext<B>> {
        let is_idle = |context: &PooledContext<B>| context.done.as_ref().is_none_or(Fence::is_passed);
        let next = choose(self.all.iter().map(|context| (is_idle(context), context.run)));
        let context = &mut self.all[next];
        self.runs += 1;
        context.run = self.runs;
        self.values.as_ref().map_or(Ok(()), |values| context.backend.set_values(values))?;
        Ok(context)
    }
}

/// The first context that is idle, else the one whose last run is the oldest. So few contexts are used where there is little to
/// do, and their memory stays in the caches.
fn choose(contexts: impl Iterator<Item = (bool, u64)>) -> usize {
    let preferred = contexts.enumerate().min_by_key(|&(number, (is_idle, run))| match is_idle {
        true => (false, number as u64),
        false => (true, run),
    });
    preferred.expect("there are some").0
}

impl<B: ModelInstance + 'static> ModelInstance for ContextPool<B> {
    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        let context = self.next()?;
        let outputs = context.backend.run(pictures)?;
        context.done = outputs.last().and_then(Tensors::ready).cloned();
        Ok(outputs)
    }

    /// Each context takes them with its next run.
    fn set_values(&mut self, values: &Arc<InputValues>) -> Result<()> {
        self.values = Some(values.clone());
        Ok(())
    }

    fn only_queues(&self) -> bool {
        self.all.iter().all(|context| context.backend.only_queues())
    }

    fn runs_at_once(&self) -> usize {
        self.all.len()
    }

    unsafe fn run_at(&mut self, picture: u64, outputs: &[u64], stream: Option<*mut c_void>) -> Result<Fence> {
        let context = self.next()?;
        // SAFETY: the caller keeps memory and stream as `run_at` asks, and the contexts of the pool take the same.
        let done = unsafe { context.backend.run_at(picture, outputs, stream) }?;
        context.done = Some(done.clone());
        Ok(done)
    }

    fn working_bytes(&self) -> u64 {
        self.all.iter().map(|context| context.backend.working_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind};

    #[test]
    fn the_first_idle_context_is_next_else_the_one_that_began_first() {
        let choices = [
            ([(true, 0), (true, 0), (true, 0)], 0),
            ([(false, 1), (true, 0), (true, 0)], 1),
            ([(false, 1), (false, 2), (true, 0)], 2),
            ([(false, 1), (false, 2), (false, 3)], 0),
            ([(false, 4), (false, 2), (false, 3)], 1),
            ([(false, 4), (false, 5), (true, 3)], 2),
            ([(true, 4), (false, 5), (true, 3)], 0),
        ];
        for (contexts, next) in choices {
            assert_eq!(choose(contexts.into_iter()), next, "{contexts:?}");
        }
    }

    /// Has outputs at once, but fails at 2.
    struct Immediate(u64);

    impl ModelInstance for Immediate {
        fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
            match pictures.len() {
                2 => Err(Error::new(ErrorKind::Run, "It fails")),
                count => Ok((0..count).map(|_| Tensors::new(Vec::new(), None, None)).collect()),
            }
        }

        fn working_bytes(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn a_pool_is_one_backend() {
        let mut contexts = ContextPool::of((1..4).map(Immediate).collect());
        let picture = Arc::new(Tensors::new(Vec::new(), None, None));
        let counts =
            [1, 2, 3].map(|count| contexts.run(&vec![picture.clone(); count]).map(|outputs| outputs.len()).ok());
        assert_eq!(counts, [Some(1), None, Some(3)]);
        assert_eq!(contexts.working_bytes(), 1 + 2 + 3);
    }
}
