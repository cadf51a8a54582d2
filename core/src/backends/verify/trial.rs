// SPDX-License-Identifier: MPL-2.0
//! The runs of an engine that is tried.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::judge::{Judge, on_host};
use super::results::{Meaning, Reader};
use super::{Tolerance, Verdict, pictures};
use crate::backends::{LoadContext, LoadEvent, LoadRequest, ModelInstance};
use crate::error::{Error, ErrorKind, Result};
use crate::image::geometry::Letterbox;
use crate::memory::{DevicePool, Pool};
use crate::tensor::{Tensor, Tensors};

/// Runs of one batch: a CUDA graph is captured in the second one, and launched from the third one on.
const REPEATS: usize = 3;
/// The same behind a change of the size, after which more runs are left alone.
const REPEATS_UNTIL_CAPTURED: usize = 20;
/// Of batches up to this size each is tried, of larger ones some.
const EACH_SIZE: usize = 16;
/// The reference computes one picture in any case, and the next ones for so long.
const REFERENCE_TIME: Duration = Duration::from_secs(2);
/// Pictures alone and the largest batch are tried in any case, and the sizes between for so long.
const SIZES_TIME: Duration = Duration::from_secs(3);

/// Tries a model that is loaded for a request. `reference` makes the outputs that it is compared with; where it cannot, its
/// runs are compared with each other.
///
/// # Errors
/// `Run`, where a run failed, or where it was cancelled. What is wrong with the outputs is in the verdict.
pub fn verify(
    request: &LoadRequest,
    candidate: &mut dyn ModelInstance,
    reference: Result<LoadRequest>,
    tolerance: &Tolerance,
    loading: &LoadContext,
) -> Result<Verdict> {
    let begin = Instant::now();
    let step = |what: &str, percent| (loading.report)(LoadEvent::Progress(what, Some(percent)));
    step("verifying the engine: the model on the CPU", 0);
    let (inputs, letterbox) = pictures::tensors(&request.spec_on_host())?;
    let (title, wanted) = match reference.and_then(|reference| wanted_of(&reference, &inputs, loading)) {
        Ok((title, wanted)) => (Ok(title), wanted),
        Err(error) if loading.is_cancelled() => return Err(error),
        Err(error) => (Err(error.as_clause()), Vec::new()),
    };
    let mut trial = Trial {
        candidate,
        pool: Pool::default(),
        inputs: inputs.iter().map(|input| input_of(request, input)).collect::<Result<_>>()?,
        first: inputs.iter().map(|_| None).collect(),
        reader: None,
        judge: Judge::new(tolerance),
        wanted: wanted.into_iter().map(|outputs| (outputs, None)).collect(),
        runs: 0,
    };
    if let Some((outputs, _)) = trial.wanted.first() {
        trial.reader = Reader::new(request.model(), outputs, &letterbox);
    }
    let batches = batches(request.batch, trial.inputs.len());
    let begin_of_runs = Instant::now();
    for (at, batch) in batches.iter().enumerate() {
        if ![1, request.batch].contains(&batch.len()) && begin_of_runs.elapsed() > SIZES_TIME {
            continue;
        }
        step("verifying the engine: its runs", (10 + 90 * at / batches.len()) as u32);
        let is_captured = [1, request.batch].contains(&batch.len()) && trial.candidate.only_queues();
        trial.run((request, loading), &letterbox, batch, if is_captured { REPEATS_UNTIL_CAPTURED } else { REPEATS })?;
    }
    let compared = trial.wanted.len();
    let Trial { judge, runs, .. } = trial;
    Ok(Verdict {
        faults: judge.faults,
        reference: title,
        precision: tolerance.precision.into(),
        pictures: compared,
        runs,
        largest_batch: request.batch,
        outputs: judge.outputs,
        results: judge.results.map(|found| (found.sought, found.found)),
        repair: None,
        milliseconds: begin.elapsed().as_millis() as u64,
    })
}

fn go_on(request: &LoadRequest, loading: &LoadContext) -> Result<()> {
    let what = || format!("Verifying the engine of {} was cancelled", request.model().path.display());
    if loading.is_cancelled() { Err(Error::new(ErrorKind::Run, what())) } else { Ok(()) }
}

/// The batches that are tried, by the numbers of their pictures: each alone, then the largest size, the first picture again behind
/// that, and the sizes between. In some run of the largest size, any two places have other pictures.
fn batches(largest: usize, count: usize) -> Vec<Vec<usize>> {
    let is_tried = |size: &usize| largest <= EACH_SIZE || size.is_power_of_two() || *size + 1 == largest;
    let digits = (0..).scan(1, |weight, _| Some(std::mem::replace(weight, *weight * count)));
    let digits: Vec<usize> = digits.take_while(|&weight| weight < largest).collect();
    let sum = |place: usize| digits.iter().map(|weight| place / weight).sum::<usize>() % count;
    let alone = (0..count).map(|number| vec![number]);
    let sizes = (2..largest).filter(is_tried).map(|size| (0..size).map(sum).collect());
    let full = digits.iter().map(|weight| (0..largest).map(|place| place / weight % count).collect());
    let again = (largest > 1).then(|| vec![0]);
    alone.chain(full).chain(again).chain(sizes).collect()
}

/// The outputs of pictures by another backend, and its name: the first one that can compute them.
fn wanted_of(reference: &LoadRequest, inputs: &[Tensor], loading: &LoadContext) -> Result<(String, Vec<Tensors>)> {
    let loading = LoadContext { report: &|_| {}, slots: None, contexts: 1, ..*loading };
    reference.or_others(&loading, |reference| {
        let mut model = reference.load(&loading)?;
        let begin = Instant::now();
        let mut wanted = Vec::new();
        for pictures in inputs.chunks(reference.batch) {
            if !wanted.is_empty() && begin.elapsed() > REFERENCE_TIME {
                break;
            }
            go_on(reference, &loading)?;
            // A model that fixes its batch gets a whole one.
            let pictures: Vec<_> = (0..reference.batch).map(|at| &pictures[at % pictures.len()]).collect();
            let share = |picture: &&Tensor| Arc::new(Tensors::new(vec![picture.row(0)], None, None));
            wanted.extend(model.run(&pictures.iter().map(share).collect::<Vec<_>>())?);
        }
        wanted.truncate(inputs.len());
        Ok((reference.backend.title().to_string(), wanted))
    })
}

/// A picture where the backend takes it.
fn input_of(request: &LoadRequest, picture: &Tensor) -> Result<Arc<Tensors>> {
    let tensor = match &request.cuda {
        Some(cuda) => {
            let bytes = picture.bytes().expect("it was made on the host");
            let mut block = DevicePool::new(cuda).take(bytes.len())?;
            block.write(bytes)?;
            Tensor::on_device(picture.desc().clone(), block)
        }
        None => picture.row(0),
    };
    Ok(Arc::new(Tensors::new(vec![tensor], None, None)))
}

struct Trial<'a> {
    candidate: &'a mut dyn ModelInstance,
    pool: Pool,
    inputs: Vec<Arc<Tensors>>,
    /// The outputs of the first run of each picture, and what is read in them.
    first: Vec<Option<(Tensors, Option<Meaning>)>>,
    wanted: Vec<(Tensors, Option<Meaning>)>,
    reader: Option<Reader>,
    judge: Judge<'a>,
    runs: usize,
}

impl Trial<'_> {
    /// Runs a batch of these pictures several times.
    fn run(
        &mut self,
        (request, loading): (&LoadRequest, &LoadContext),
        letterbox: &Letterbox,
        numbers: &[usize],
        repeats: usize,
    ) -> Result<()> {
        let size = numbers.len();
        let batch: Vec<Arc<Tensors>> = numbers.iter().map(|&number| self.inputs[number].clone()).collect();
        for repeat in 0..repeats {
            go_on(request, loading)?;
            let outputs = self.candidate.run(&batch)?;
            self.runs += 1;
            // Those between compute as the first one or the last one.
            if repeat > 0 && repeat + 1 < repeats {
                continue;
            }
            for (place, (outputs, &number)) in outputs.into_iter().zip(numbers).enumerate() {
                let outputs = on_host(&self.pool, outputs)?;
                if self.reader.is_none() && self.first.iter().all(Option::is_none) {
                    self.reader = Reader::new(request.model(), &outputs, letterbox);
                }
                let read = self.reader.as_mut().and_then(|reader| reader.read(&outputs));
                let at = Place { size, place, is_first: repeat == 0 };
                if let Some((wanted, expected)) = self.wanted.get_mut(number) {
                    if expected.is_none() {
                        *expected = self.reader.as_mut().and_then(|reader| reader.read(wanted));
                    }
                    self.judge.against_reference(&outputs, wanted, read.as_ref().zip(expected.as_ref()), at);
                }
                match &self.first[number] {
                    Some((first, expected)) => {
                        self.judge.against_itself(&outputs, first, read.as_ref().zip(expected.as_ref()), at);
                    }
                    None => {
                        if self.wanted.get(number).is_none() {
                            self.judge.finite(&outputs);
                        }
                        self.first[number] = Some((outputs, read));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Which picture of which run.
#[derive(Clone, Copy)]
struct Place {
    size: usize,
    place: usize,
    is_first: bool,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Place { size, place, is_first } = self;
        let run = if *is_first { "the first run" } else { "a later run" };
        match size {
            1 => write!(f, "{run} of one picture"),
            _ => write!(f, "picture {} of {run} of a batch of {size}", place + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_places_of_the_largest_batch_have_other_pictures_in_some_run() {
        for largest in [1, 2, 4, 5, 16, 17, 64] {
            let batches = batches(largest, 4);
            let full: Vec<_> = batches.iter().filter(|batch| batch.len() == largest).collect();
            for place in 0..largest {
                for other in 0..place {
                    assert!(full.iter().any(|batch| batch[place] != batch[other]), "{place} and {other} of {largest}");
                }
            }
            let sizes: Vec<usize> = batches.iter().map(Vec::len).collect();
            assert!((1..=largest.min(EACH_SIZE)).all(|size| largest > EACH_SIZE || sizes.contains(&size)), "{sizes:?}");
            assert_eq!(sizes[..4], [1; 4]);
            assert!(batches.iter().flatten().all(|&number| number < 4) && batches.len() < 24, "{sizes:?}");
        }
    }
}
