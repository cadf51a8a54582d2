//! Runs of an engine that were recorded as CUDA graphs, each with the addresses of its tensors.
//!
//! Tensors come from pools that hand out the same few blocks again and again, so a pipeline soon runs on recordings only. A
//! recording costs about as much as some runs: it is made when addresses come for the second time. Each keeps the blocks that
//! its outputs go into, so that there is one for each place of a picture, and not for each pair of places that pools come to.

use std::collections::VecDeque;

use crate::cuda::driver::Stream;
use crate::cuda::graph::Graph;
use crate::error::Result;
use crate::memory::DeviceBlock;
use crate::tensorrt::engine::Context;
use crate::tensorrt::interfaces;

/// More pictures than are under way in a pipeline; where they never lie in the same place again, this many are kept for nothing.
const MOST: usize = 64;

#[derive(Default)]
pub struct Recordings {
    /// The latest last.
    runs: VecDeque<Run>,
}

struct Run {
    /// The picture's, then those of the outputs.
    addresses: Vec<u64>,
    /// Of the outputs; none where they are the caller's.
    outputs: Vec<DeviceBlock>,
    /// `None` where the addresses came once.
    graph: Option<Graph>,
}

impl Recordings {
    /// Where the outputs of a picture went before, if nobody uses them any more.
    pub fn outputs(&mut self, picture: u64) -> Option<Vec<DeviceBlock>> {
        let known = self.runs.iter_mut().filter(|run| run.addresses[0] == picture && !run.outputs.is_empty());
        let free =
            known.rev().find_map(|run| run.outputs.iter_mut().all(DeviceBlock::is_only_one).then_some(&run.outputs))?;
        Some(free.iter().map(DeviceBlock::again).collect())
    }

    /// Queues the run that was recorded with these addresses, if there is one.
    ///
    /// # Safety
    /// As for [`Context::enqueue`].
    pub unsafe fn launch(&mut self, addresses: &[u64], stream: &Stream) -> Option<Result<()>> {
        let run = self.runs.iter_mut().rfind(|run| run.addresses == addresses)?;
        // SAFETY: the addresses are those that it was recorded with; the rest says the caller.
        run.graph.as_mut().map(|graph| unsafe { graph.launch(stream) })
    }

    /// Records a run with these addresses, which the context has, if they came before. `outputs` are blocks to be kept.
    ///
    /// # Safety
    /// As for [`Context::record`].
    pub unsafe fn note(
        &mut self,
        addresses: &[u64],
        outputs: &[DeviceBlock],
        context: &mut Context,
        stream: &Stream,
    ) -> Result<()> {
        if let Some(run) = self.runs.iter_mut().rfind(|run| run.addresses == addresses) {
            // SAFETY: as the caller says.
            run.graph = Some(unsafe { context.record(stream) }?);
            let count = self.runs.iter().filter(|run| run.graph.is_some()).count();
            interfaces::log(
                interfaces::Level::Info,
                &format!("a run is recorded as a CUDA graph, the {count}. of this model"),
            );
            return Ok(());
        }
        // What is queued of the oldest runs on, though it is destroyed.
        self.runs.drain(..(self.runs.len() + 1).saturating_sub(MOST));
        let outputs = outputs.iter().map(DeviceBlock::again).collect();
        self.runs.push_back(Run { addresses: addresses.to_vec(), outputs, graph: None });
        Ok(())
    }
}
