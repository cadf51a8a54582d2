//! Runs of an engine that were recorded as CUDA graphs, each with the addresses of its tensors.
//!
//! Tensors come from pools that hand out the same few blocks again and again, so a pipeline soon runs on recordings only. A
//! recording costs about as much as some runs: it is made when addresses come for the second time.

use std::collections::VecDeque;

use crate::cuda::driver::Stream;
use crate::cuda::graph::Graph;
use crate::error::Result;
use crate::tensorrt::engine::Context;
use crate::tensorrt::interfaces;

/// More than pools come to in a pipeline; where tensors never lie in the same place again, this many are kept for nothing.
const MOST: usize = 32;

#[derive(Default)]
pub struct Recordings {
    /// The latest last, `None` where addresses came once.
    runs: VecDeque<(Vec<u64>, Option<Graph>)>,
}

impl Recordings {
    /// Queues the run that was recorded with these addresses, if there is one.
    ///
    /// # Safety
    /// As for [`Context::enqueue`].
    pub unsafe fn launch(&mut self, addresses: &[u64], stream: &Stream) -> Option<Result<()>> {
        let (_, graph) = self.runs.iter_mut().rfind(|(known, _)| known == addresses)?;
        // SAFETY: the addresses are those that it was recorded with; the rest says the caller.
        graph.as_mut().map(|graph| unsafe { graph.launch(stream) })
    }

    /// Records a run with these addresses, which the context has, if they came before.
    ///
    /// # Safety
    /// As for [`Context::record`].
    pub unsafe fn note(&mut self, addresses: &[u64], context: &mut Context, stream: &Stream) -> Result<()> {
        if let Some((_, graph)) = self.runs.iter_mut().rfind(|(known, _)| known == addresses) {
            // SAFETY: as the caller says.
            *graph = Some(unsafe { context.record(stream) }?);
            let count = self.runs.iter().filter(|(_, graph)| graph.is_some()).count();
            interfaces::log(
                interfaces::Level::Info,
                &format!("a run is recorded as a CUDA graph, the {count}. of this model"),
            );
            return Ok(());
        }
        // What is queued of the oldest runs on, though it is destroyed.
        self.runs.drain(..(self.runs.len() + 1).saturating_sub(MOST));
        self.runs.push_back((addresses.to_vec(), None));
        Ok(())
    }
}
