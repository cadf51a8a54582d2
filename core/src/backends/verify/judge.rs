// SPDX-License-Identifier: MPL-2.0
//! How outputs differ, and whether that is too much.

use std::fmt::Display;

use super::results::{Recall, compare};
use super::{Difference, OutputFigures, Tolerance};
use crate::error::{Error, Result};
use crate::memory::Pool;
use crate::postprocess::Instances;
use crate::tensor::{Tensor, Tensors};

/// Collects how outputs differ, and what of that is wrong.
pub struct Judge<'a> {
    tolerance: &'a Tolerance,
    of_runs: Tolerance,
    pub outputs: Vec<OutputFigures>,
    pub results: Option<Recall>,
    pub faults: Vec<String>,
}

impl<'a> Judge<'a> {
    pub fn new(tolerance: &'a Tolerance) -> Self {
        Judge { tolerance, of_runs: tolerance.of_runs(), outputs: Vec::new(), results: None, faults: Vec::new() }
    }

    /// Outputs with those of another backend, and what is read in both, if they can be read. `at` says whose they are.
    pub fn against_reference(
        &mut self,
        outputs: &Tensors,
        wanted: &Tensors,
        read: Option<(&Instances, &Instances)>,
        at: impl Display,
    ) {
        let differences = self.differences(outputs, wanted);
        let found = read.map(|(found, wanted)| compare(found, wanted, self.tolerance));
        if let Some(found) = found {
            self.results = Some(self.results.unwrap_or_default().plus(found));
        }
        for (name, difference) in &differences {
            let figures = self.figures(name);
            let error = figures.error.unwrap_or(0.0).max(difference.relative);
            figures.error = Some(error);
        }
        let is = |difference: f32| format!("differs by {} from the CPU's", percent(difference));
        self.judge(&differences, found, self.tolerance.outputs, self.tolerance.results, at, is);
    }

    /// The same with those of another run.
    pub fn against_itself(
        &mut self,
        outputs: &Tensors,
        first: &Tensors,
        read: Option<(&Instances, &Instances)>,
        at: impl Display,
    ) {
        let differences = self.differences(outputs, first);
        let found = read.map(|(found, first)| compare(found, first, &self.of_runs));
        for (name, difference) in &differences {
            let figures = self.figures(name);
            figures.runs = figures.runs.max(difference.relative);
        }
        let is = |difference: f32| format!("differs by {} from the same picture's in another run", percent(difference));
        self.judge(&differences, found, self.of_runs.outputs, self.of_runs.results, at, is);
    }

    /// Numbers of an engine without a reference.
    pub fn finite(&mut self, outputs: &Tensors) {
        for output in outputs.iter() {
            let count = Difference::between(output, &zeros_like(output)).not_finite;
            if count > 0 && self.outputs.iter().all(|figures| figures.error.is_none()) {
                self.fault(format!("{} has {count} numbers that are not finite", output.desc().name));
            }
        }
    }

    /// By the name of the output.
    fn differences(&self, outputs: &Tensors, wanted: &Tensors) -> Vec<(String, Difference)> {
        let difference = |wanted: &Tensor| {
            let name = &wanted.desc().name;
            let output = outputs.iter().find(|output| output.desc().name == *name);
            let missing = Difference { relative: f32::INFINITY, not_finite: 0 };
            (name.clone(), output.map_or(missing, |output| Difference::between(output, wanted)))
        };
        wanted.iter().map(difference).collect()
    }

    /// Wrong is what is neither near in its numbers nor in what is read in them.
    fn judge(
        &mut self,
        differences: &[(String, Difference)],
        found: Option<Recall>,
        near: f32,
        share: f32,
        at: impl Display,
        is: impl Fn(f32) -> String,
    ) {
        for (name, difference) in differences.iter().filter(|(_, difference)| difference.not_finite > 0) {
            let count = difference.not_finite;
            self.fault(format!(
                "{name} has {count} numbers that are not finite and should be, or the reverse, in {at}"
            ));
        }
        let worst = differences.iter().max_by(|(_, one), (_, other)| one.relative.total_cmp(&other.relative));
        let Some((name, worst)) = worst.filter(|(_, worst)| worst.relative > near) else { return };
        let is_same = found.and_then(|found| Some((found, found.share()?)));
        match is_same {
            Some((_, found)) if found >= share => {}
            Some((found, _)) => self.fault(format!(
                "{} of {} results are there again, and {name} {}, in {at}",
                found.found,
                found.sought,
                is(worst.relative)
            )),
            None => self.fault(format!("{name} {}, in {at}", is(worst.relative))),
        }
    }

    fn figures(&mut self, name: &str) -> &mut OutputFigures {
        let at = self.outputs.iter().position(|figures| figures.name == name).unwrap_or_else(|| {
            self.outputs.push(OutputFigures { name: name.into(), error: None, runs: 0.0 });
            self.outputs.len() - 1
        });
        &mut self.outputs[at]
    }

    /// The first ones say enough.
    fn fault(&mut self, fault: String) {
        const MOST: usize = 4;
        if self.faults.len() < MOST && !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }
}

fn percent(part: f32) -> String {
    if part.is_finite() { format!("{:.3} %", 100.0 * part) } else { "its dimensions".into() }
}

fn zeros_like(tensor: &Tensor) -> Tensor {
    let fill = |bytes: &mut [u8]| {
        bytes.fill(0);
        Ok::<_, Error>(())
    };
    Tensor::fill(&Pool::default(), tensor.desc().clone(), fill).expect("as large as one that is there")
}

/// The same in host memory. Waits for them.
pub fn on_host(pool: &Pool, outputs: Tensors) -> Result<Tensors> {
    let on_host = |tensor: Tensor| match tensor.device() {
        Some(block) => Tensor::fill(pool, tensor.desc().clone(), |bytes| block.read_into(bytes)),
        None => Ok(tensor),
    };
    Ok(Tensors::new(outputs.into_ready()?.into_iter().map(on_host).collect::<Result<_>>()?, None, None))
}
