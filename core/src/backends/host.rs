// SPDX-License-Identifier: MPL-2.0
//! Models whose library computes in the host's memory: batches are put together and divided here.

use std::num::NonZero;
use std::sync::Arc;
use std::{env, thread};

use smallvec::SmallVec;

use super::options::{BackendOption, Options};
use super::{Interrupter, LoadRequest, ModelInstance, check_rows};
use crate::error::{Error, Result};
use crate::heads::PictureRows;
use crate::image::transform::InputSpec;
use crate::memory::Pool;
use crate::model::{InputValues, ModelInfo};
use crate::options::{OptionKind, OptionSpec, OptionValue};
use crate::tensor::{Dims, Tensor, Tensors};

/// Threads of a run.
pub static THREADS: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "threads",
        nick: "Threads",
        blurb: "Threads that a run on the CPU computes with (0 = as many as the process has cores, divided by parallel-runs)",
        kind: OptionKind::UInt(0..=1024),
    },
    default: OptionValue::UInt(0),
    is_in_key: false,
    insists: &[],
};

/// How many threads the user asks for; `None` for as many as there are.
pub fn wanted_threads(options: &Options) -> Option<usize> {
    let own = usize::try_from(options.number(&THREADS)).ok();
    // rten's own, which held for this plugin before it had the option.
    let of_rten = || env::var("RTEN_NUM_THREADS").ok()?.parse().ok();
    bounded(own.filter(|&count| count > 0).or_else(of_rten))
}

/// Hundreds on a few cores wait for each other and end nothing.
fn bounded(threads: Option<usize>) -> Option<usize> {
    const MOST_ON_A_CORE: usize = 4;
    threads.filter(|&count| count > 0).map(|count| count.min(MOST_ON_A_CORE * usual_threads()))
}

/// As many as the process has cores.
pub fn usual_threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// More runs than that wait for memory, and gain little.
const MAX_USEFUL_RUNS: usize = 8;

/// How many runs at the same time that request is for.
pub fn parallel_runs(request: &LoadRequest) -> usize {
    match request.parallel_runs {
        0 => usual_threads().min(MAX_USEFUL_RUNS),
        runs => runs,
    }
}

/// How many threads each of so many runs at the same time computes with: what the user asks for, or its share of the cores.
pub fn threads_of_a_run(wanted: Option<usize>, runs: usize) -> usize {
    wanted.unwrap_or((usual_threads() / runs).max(1))
}

/// A loaded network.
pub trait HostNet: Send + Sized {
    /// The outputs, in the model's order, of a tensor for each of its inputs, in their order.
    fn infer(&mut self, inputs: &[&Tensor]) -> Result<Vec<Tensor>>;

    /// The same network, loaded once, for runs at the same time as those of this one.
    ///
    /// # Errors
    /// Where the library cannot make what a run needs.
    fn another(&self) -> Result<Self>;

    /// As [`ModelInstance::interrupter`].
    fn interrupter(&self) -> Option<Interrupter> {
        None
    }
}

/// A network that takes pictures one by one.
pub struct HostModel<N> {
    model: Arc<ModelInfo>,
    spec: InputSpec,
    net: N,
    /// Pictures of a batch, where the file fixes that.
    fixed: Option<usize>,
    /// What goes in in addition to the pictures, and for how many of them.
    sides: (usize, Vec<Option<Tensor>>),
    values: Arc<InputValues>,
    /// Which output has the rows of all pictures of a batch.
    mixed: Option<PictureRows>,
    pool: Pool,
    /// For runs at the same time.
    others: Vec<HostModel<N>>,
}

impl<N: HostNet> HostModel<N> {
    /// As the request says, with as many others as there are to be runs at the same time.
    pub fn new(net: N, request: &LoadRequest) -> Result<Self> {
        let LoadRequest { spec, batch, values, .. } = request;
        let model = request.model();
        let fixed = (model.image_input().dims[0] != Dims::DYNAMIC).then_some(*batch);
        let rows = fixed.unwrap_or(1);
        let (_, height, width) = spec.chw();
        let mixed = PictureRows::find(&model.outputs, &model.hints((width as u32, height as u32)), *batch)?;
        let of = |net| {
            let sides = (rows, model.side_inputs(spec, rows, values)?);
            let (model, spec, values, pool) = (model.clone(), spec.clone(), values.clone(), Pool::default());
            Ok(HostModel { model, spec, net, fixed, sides, values, mixed, pool, others: Vec::new() })
        };
        let others = (1..parallel_runs(request)).map(|_| of(net.another()?)).collect::<Result<_>>()?;
        Ok(HostModel { others, ..of(net)? })
    }

    fn infer(&mut self, batch: &Tensor, rows: usize) -> Result<Vec<Tensor>> {
        if self.sides.0 != rows {
            self.sides = (rows, self.model.side_inputs(&self.spec, rows, &self.values)?);
        }
        let inputs: SmallVec<[&Tensor; 4]> = self.sides.1.iter().map(|side| side.as_ref().unwrap_or(batch)).collect();
        self.net.infer(&inputs)
    }
}

impl<N: HostNet + 'static> ModelInstance for HostModel<N> {
    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        let rows = self.fixed.unwrap_or(pictures.len());
        if let ([picture], 1) = (pictures, rows) {
            return Ok(vec![Tensors::new(self.infer(&picture[0], 1)?, None, None)]);
        }
        // All have one size, which may be another than that of the batch before.
        let mut desc = pictures[0][0].desc().clone();
        desc.dims.0[0] = rows as i64;
        let batch = Tensor::fill(&self.pool, desc, |bytes| {
            let size = bytes.len() / rows;
            for (row, picture) in bytes.chunks_mut(size).zip(pictures) {
                row.copy_from_slice(picture[0].bytes().unwrap_or_default());
            }
            bytes[size * pictures.len()..].fill(0);
            Ok::<_, Error>(())
        })?;
        let outputs = self.infer(&batch, rows)?;
        let part = |output: &Tensor, index, picture| match self.mixed.filter(|mixed| mixed.output == index) {
            Some(mixed) => mixed.of_picture(output, picture, &self.pool),
            None => check_rows(output.desc(), rows).map(|()| output.row(picture)),
        };
        let of_picture = |picture| -> Result<Tensors> {
            let parts = outputs.iter().enumerate().map(|(index, output)| part(output, index, picture));
            Ok(Tensors::new(parts.collect::<Result<_>>()?, None, None))
        };
        (0..pictures.len()).map(of_picture).collect()
    }

    fn set_values(&mut self, values: &Arc<InputValues>) -> Result<()> {
        if !Arc::ptr_eq(&self.values, values) {
            self.sides.1 = self.model.side_inputs(&self.spec, self.sides.0, values)?;
            self.values = values.clone();
        }
        Ok(())
    }

    fn interrupter(&self) -> Option<Interrupter> {
        self.net.interrupter()
    }

    fn take_others(&mut self) -> Vec<Box<dyn ModelInstance>> {
        let boxed = |other| Box::new(other) as Box<dyn ModelInstance>;
        self.others.drain(..).map(boxed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_bounded_wherever_they_are_asked_for() {
        assert_eq!([bounded(None), bounded(Some(0)), bounded(Some(1))], [None, None, Some(1)]);
        assert_eq!(bounded(Some(usize::MAX)), Some(4 * usual_threads()));
    }
}
