// SPDX-License-Identifier: MPL-2.0
//! Runs of an engine that were captured as CUDA graphs, each with the addresses of its tensors.
//!
//! Tensors come from pools that hand out the same few blocks again and again, so a pipeline soon runs on captured
//! graphs only. A capture costs as much as ten runs or more: it is made when addresses come for the second time, and
//! kept as long as they come at all. Each graph keeps the blocks of its outputs. So there is one graph for each input
//! block, not one for each pair of input and output blocks.
//!
//! Other runs go through a [`StagedGraph`], if there is one: copies on the GPU take a few microseconds, a hundred
//! kernels queued one by one take a hundred. With several execution contexts all runs do: otherwise each context would
//! have to capture a graph for each block while frames wait.

use crate::backends::tensorrt::engine::ExecutionContext;
use crate::backends::tensorrt::interfaces;
use crate::cuda::driver::Stream;
use crate::cuda::graph::Graph;
use crate::error::Result;
use crate::memory::DeviceBlock;

/// Maximum number of graphs: more than there are pictures under way in a stream. Where addresses never come again, this
/// many are kept for nothing.
const MAX_GRAPHS: usize = 16;

/// Where more are under way, graphs that were used within so many runs stay, and other addresses get no graph: each
/// would only replace another one. Addresses come in no order, so one may well not be used for a while.
const RECENT: u64 = 64 * MAX_GRAPHS as u64;

#[derive(Default)]
pub struct GraphCache {
    runs: Vec<Run>,
    common: Option<StagedGraph>,
    /// Runs so far, captured or not.
    count: u64,
    /// How many of them are left alone.
    first: u64,
}

struct Run {
    /// The picture's, then those of the outputs.
    addresses: Vec<u64>,
    /// Of the outputs; none where they are the caller's.
    outputs: Vec<DeviceBlock>,
    /// `None` where the addresses came once.
    graph: Option<Graph>,
    /// Which of all runs was the last one with these addresses.
    last: u64,
}

/// A captured run on tensors of its own. One does for all: the next input is copied in behind the run that reads the
/// last one.
struct StagedGraph {
    picture: DeviceBlock,
    outputs: Vec<DeviceBlock>,
    graph: Graph,
}

impl GraphCache {
    /// Makes the run that was captured with these addresses the common one; `picture` is the block of its picture.
    pub fn share(&mut self, addresses: &[u64], picture: DeviceBlock) {
        let Some(at) = self.runs.iter().position(|run| run.addresses == addresses && run.graph.is_some()) else {
            return;
        };
        let Run { outputs, graph, .. } = self.runs.swap_remove(at);
        self.common = graph.map(|graph| StagedGraph { picture, outputs, graph });
    }

    /// What is allocated here.
    pub fn bytes(&self) -> usize {
        self.common.as_ref().map_or(0, |common| common.picture.bytes())
    }

    /// From now on all runs that are not captured yet go through the common graph.
    pub fn stop_capturing(&mut self) {
        self.first = u64::MAX;
    }

    /// After a change of the runs, which may soon change again: the next few are not captured.
    pub fn after_a_change() -> Self {
        GraphCache { first: 16, ..GraphCache::default() }
    }

    /// The blocks of the outputs of an earlier run on that picture, if they are no longer in use.
    pub fn outputs(&mut self, picture: u64) -> Option<Vec<DeviceBlock>> {
        let mut known = self.runs.iter_mut().filter(|run| run.addresses[0] == picture && !run.outputs.is_empty());
        let free =
            known.find_map(|run| run.outputs.iter_mut().all(DeviceBlock::is_only_one).then_some(&run.outputs))?;
        Some(free.iter().map(DeviceBlock::share).collect())
    }

    /// The graph of the next run, if it was captured with these addresses.
    pub fn next(&mut self, addresses: &[u64]) -> Option<&mut Graph> {
        self.count += 1;
        let run = self.runs.iter_mut().find(|run| run.addresses == addresses)?;
        run.last = self.count;
        run.graph.as_mut()
    }

    /// Queues the common run on these addresses, if there is one.
    ///
    /// # Safety
    /// They have the sizes of its own, and stay until the run is done.
    pub unsafe fn launch_common(&mut self, addresses: &[u64], stream: &Stream) -> Option<Result<()>> {
        let StagedGraph { picture, outputs, graph } = self.common.as_mut()?;
        let context = stream.context();
        // SAFETY: the blocks stay with the graph, whose last run was queued before. The caller's have the same sizes,
        // and stay.
        let mut queue = || unsafe {
            stream.copy((context, addresses[0]), picture.address(), picture.bytes())?;
            graph.launch(stream)?;
            let mut both = outputs.iter().zip(&addresses[1..]);
            both.try_for_each(|(from, &to)| stream.copy((context, from.address()), to, from.bytes()))
        };
        Some(queue())
    }

    /// Whether the run with these addresses, which has no graph, is to be captured: they came before. `outputs` are
    /// blocks to be kept for the next time.
    pub fn note(&mut self, addresses: &[u64], outputs: &[DeviceBlock]) -> bool {
        if self.runs.iter().any(|run| run.addresses == addresses) {
            return true;
        }
        if self.count <= self.first {
            return false;
        }
        if self.runs.len() >= MAX_GRAPHS {
            let (oldest, run) = self.runs.iter().enumerate().min_by_key(|(_, run)| run.last).expect("there are some");
            if self.count - run.last < RECENT {
                return false;
            }
            self.runs.swap_remove(oldest); // what is queued of it runs on, though it is destroyed
        }
        let outputs = outputs.iter().map(DeviceBlock::share).collect();
        self.runs.push(Run { addresses: addresses.to_vec(), outputs, graph: None, last: self.count });
        false
    }

    /// Captures a run with these addresses, for which [`GraphCache::note`] returned true, and which are set on the context.
    ///
    /// # Safety
    /// As for [`ExecutionContext::capture`].
    pub unsafe fn capture(&mut self, addresses: &[u64], context: &mut ExecutionContext, stream: &Stream) -> Result<()> {
        let Some(run) = self.runs.iter_mut().find(|run| run.addresses == addresses) else { return Ok(()) };
        // SAFETY: the context has these addresses, whose memory stays for each launch; its runs are launched one at a time.
        run.graph = Some(unsafe { context.capture(stream) }?);
        let count = self.runs.iter().filter(|run| run.graph.is_some()).count();
        interfaces::log(
            interfaces::Level::Info,
            &format!("a run is captured as a CUDA graph, the {count}. of this model"),
        );
        Ok(())
    }
}
