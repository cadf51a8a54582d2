// SPDX-License-Identifier: MPL-2.0
//! How outputs differ, and whether that is too much.

use std::fmt::Display;

use super::results::{Meaning, Recall, compare};
use super::{Difference, OutputFigures, Tolerance};
use crate::error::{Error, Result};
use crate::memory::Pool;
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
        read: Option<(&Meaning, &Meaning)>,
        at: impl Display,
    ) {
        let differences = self.differences(outputs, wanted);
        let found = read.map(|(found, wanted)| (compare(&found.results, &wanted.results, self.tolerance), wanted));
        if let Some((found, _)) = found {
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
        read: Option<(&Meaning, &Meaning)>,
        at: impl Display,
    ) {
        let differences = self.differences(outputs, first);
        let found = read.map(|(found, first)| (compare(&found.results, &first.results, &self.of_runs), first));
        for (name, difference) in &differences {
            let figures = self.figures(name);
            figures.runs = figures.runs.max(difference.relative);
        }
        let is = |difference: f32| format!("differs by {} from the same picture's in another run", percent(difference));
        self.judge(&differences, found, self.of_runs.outputs, self.of_runs.results, at, is);
    }

    /// Numbers of a picture without a reference.
    pub fn finite(&mut self, outputs: &Tensors) {
        for output in outputs.iter() {
            let count = Difference::between(output, &zeros_like(output)).not_finite;
            if count > 0 {
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

    /// Wrong is what is neither near in its numbers nor in what is read in them. Outputs that nothing is read in have their numbers
    /// only. Of class ids few differ where a rare class is lost, so that they are never near.
    fn judge(
        &mut self,
        differences: &[(String, Difference)],
        found: Option<(Recall, &Meaning)>,
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
        let results = found.and_then(|(found, meaning)| Some((found, found.share()?, meaning)));
        let is_read = |name: &String| results.is_some_and(|(.., meaning)| meaning.outputs.contains(name));
        let are_ids = results.is_some_and(|(.., meaning)| meaning.are_ids);
        for has_results in [true, false] {
            let outputs = differences.iter().filter(|(name, _)| is_read(name) == has_results);
            let worst = outputs.max_by(|(_, one), (_, other)| one.relative.total_cmp(&other.relative));
            let near = if has_results && are_ids { 0.0 } else { near };
            let Some((name, worst)) = worst.filter(|(_, worst)| worst.relative > near) else { continue };
            match results.filter(|_| has_results) {
                Some((_, found, _)) if found >= share => {}
                Some((found, ..)) => self.fault(format!(
                    "{} of {} results are there again, and {name} {}, in {at}",
                    found.found,
                    found.sought,
                    is(worst.relative)
                )),
                None => self.fault(format!("{name} {}, in {at}", is(worst.relative))),
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Candidate;
    use crate::image::geometry::BBox;
    use crate::image::map::{MapKind, PixelMap};
    use crate::postprocess::Instances;
    use crate::tensor::Element;

    fn tensors<T: Element>(outputs: &[(&str, Vec<T>)]) -> Tensors {
        let tensor = |(name, numbers): &(&str, Vec<T>)| Tensor::from_slice(name, &[1, numbers.len() as i64], numbers);
        Tensors::new(outputs.iter().map(tensor).collect(), None, None)
    }

    /// What is wrong with outputs that are read so, and with those that should be there.
    fn faults(outputs: [&Tensors; 2], read: [&Meaning; 2]) -> Vec<String> {
        let mut judge = Judge::new(&Tolerance::HALF);
        judge.against_reference(outputs[0], outputs[1], Some((read[0], read[1])), "a picture");
        judge.faults
    }

    #[test]
    fn an_output_that_nothing_is_read_in_has_its_numbers_only() {
        let bbox = BBox::new(0.0, 0.0, 9.0, 9.0);
        let object = Candidate { bbox, score: 0.5, class: 0, row: 0, angle: 0.0 };
        let results = Instances { boxes: vec![object; 10], ..Instances::default() };
        let meaning = Meaning { results, outputs: vec!["rows".into()], are_ids: false };
        let outputs = |row: f32, embedding: f32| tensors(&[("rows", vec![row; 9]), ("embedding", vec![embedding; 9])]);
        let faults = |found: &Tensors| faults([found, &outputs(1.0, 1.0)], [&meaning, &meaning]);
        assert_eq!(faults(&outputs(2.0, 1.0)), Vec::<String>::new(), "the results are the same");
        let found = faults(&outputs(2.0, 0.0));
        assert!(found.len() == 1 && found[0].starts_with("embedding differs by 100.000 %"), "{found:?}");
    }

    #[test]
    fn a_class_that_is_lost_is_wrong_though_few_ids_differ() {
        let of = |class: u16| {
            let ids: Vec<u16> = (0..10_000).map(|at| if at < 300 { class } else { 0 }).collect();
            let tensors = tensors(&[("ids", ids.iter().map(|&id| i64::from(id)).collect())]);
            let map = PixelMap::of(MapKind::Classes, (100, 100), ids, BBox::new(0.0, 0.0, 9.0, 9.0), Vec::new());
            let results = Instances { map, ..Instances::default() };
            (tensors, Meaning { results, outputs: vec!["ids".into()], are_ids: true })
        };
        let ((right, read), (wrong, misread)) = (of(1), of(0));
        assert_eq!(faults([&right, &right], [&read, &read]), Vec::<String>::new());
        let found = faults([&wrong, &right], [&misread, &read]);
        assert!(found.len() == 1 && found[0].starts_with("0 of 300 results are there again"), "{found:?}");
    }

    #[test]
    fn numbers_are_finite_in_pictures_without_a_reference_too() {
        let mut judge = Judge::new(&Tolerance::HALF);
        let right = tensors(&[("rows", vec![1.0f32; 8])]);
        judge.against_reference(&right, &right, None, "a picture");
        judge.finite(&right);
        assert!(judge.faults.is_empty(), "{:?}", judge.faults);
        judge.finite(&tensors(&[("rows", vec![1.0, f32::NAN])]));
        assert_eq!(judge.faults, ["rows has 1 numbers that are not finite"]);
    }
}
