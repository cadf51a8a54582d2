//! Runs that are on the GPU side by side.

use std::sync::Arc;

use super::Backend;
use crate::cuda::driver::Fence;
use crate::error::Result;
use crate::tensor::Tensors;

/// Backends of one model that take turns. What each is given only queues behind what it was given before, so runs of different
/// ones overlap, and share a GPU that one alone leaves half idle.
pub struct Lanes<B> {
    all: Vec<B>,
    next: usize,
}

impl<B: Backend + 'static> Lanes<B> {
    /// # Panics
    /// If there is none.
    pub fn of(mut all: Vec<B>) -> Box<dyn Backend> {
        match all.len() {
            1 => Box::new(all.remove(0)),
            _ => Box::new(Lanes { all, next: 0 }),
        }
    }

    fn turn(&mut self) -> &mut B {
        let turn = self.next;
        self.next = (turn + 1) % self.all.len();
        &mut self.all[turn]
    }
}

impl<B: Backend + 'static> Backend for Lanes<B> {
    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        self.turn().run(pictures)
    }

    unsafe fn run_at(&mut self, picture: u64, outputs: &[u64], after: Option<&Fence>) -> Result<Fence> {
        // SAFETY: as the caller says.
        unsafe { self.turn().run_at(picture, outputs, after) }
    }

    fn working_bytes(&self) -> u64 {
        self.all.iter().map(B::working_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Kind};

    /// Counts its runs, and fails at one.
    struct Counting(Arc<std::sync::Mutex<Vec<usize>>>, usize);

    impl Backend for Counting {
        fn run(&mut self, _pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
            let mut runs = self.0.lock().unwrap();
            runs.push(self.1);
            if runs.len() == 2 { Err(Error::new(Kind::Run, "It fails")) } else { Ok(Vec::new()) }
        }

        fn working_bytes(&self) -> u64 {
            10 + self.1 as u64
        }
    }

    #[test]
    fn take_turns_whatever_comes_of_it() {
        let runs = Arc::default();
        let mut lanes = Lanes::of((0..3).map(|number| Counting(Arc::clone(&runs), number)).collect());
        let outcomes: Vec<bool> = (0..5).map(|_| lanes.run(&[]).is_ok()).collect();
        assert_eq!(*runs.lock().unwrap(), [0, 1, 2, 0, 1]);
        assert_eq!(outcomes, [true, false, true, true, true]);
        assert_eq!(lanes.working_bytes(), 33, "that of all of them");
    }
}
