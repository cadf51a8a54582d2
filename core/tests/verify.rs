// SPDX-License-Identifier: MPL-2.0
//! Engines that compute something else than their models are found, and those that are right are not accused.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gsttrt_core::backends::options::Options;
use gsttrt_core::backends::verify::{ClassDrift, Drift, Reference, Tolerance, Verdict, drift, verify, watch_by};
use gsttrt_core::backends::{BackendPreference, LoadContext, LoadRequest, ModelInstance};
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::tensor::{Tensor, Tensors};
use half::f16;

use crate::common::onnx::{F32, Graph};
use crate::common::wait::wait_until;
use crate::common::{path, scratch, shapes};

fn request(model: &str, batch: usize) -> LoadRequest {
    let cpu = BackendPreference::Named("rten");
    LoadRequest::new(Path::new(model), cpu, None, batch, Options::default(), || unreachable!("it is no GPU")).unwrap()
}

/// The pictures of a run, and what is known of earlier ones.
struct Run<'a> {
    /// How many pictures the runs before had.
    former: &'a [usize],
    /// The same batch again, so often.
    repeat: usize,
    number: usize,
}

type Change = fn(&mut [Vec<Vec<f32>>], &Run, &[Vec<Vec<f32>>]);

/// Name, dimensions and numbers of an output.
type Output = (String, Vec<i64>, Vec<f32>);

/// All of a picture.
type Outputs = Arc<Vec<Output>>;

/// What models have computed, by their file and the digest of the picture. The pictures are always the same, and each is computed once
/// for all that spoils its outputs.
static COMPUTED: Mutex<BTreeMap<(String, u64), Outputs>> = Mutex::new(BTreeMap::new());

/// A model that is right, and what spoils it: its outputs, in f32, by picture and output. It gets those of the run before too.
struct Spoiled {
    file: String,
    batch: usize,
    /// Loaded for the first picture that is not known.
    model: Option<Box<dyn ModelInstance>>,
    known: HashMap<*const Tensors, Outputs>,
    change: Change,
    sizes: Vec<usize>,
    last: (Vec<*const Tensors>, usize),
    before: Vec<Vec<Vec<f32>>>,
}

// SAFETY: the addresses are compared only.
unsafe impl Send for Spoiled {}

impl Spoiled {
    fn compute(&mut self, picture: &Arc<Tensors>) -> Result<Outputs> {
        let mut digest = DefaultHasher::new();
        picture.iter().for_each(|tensor| digest.write(tensor.bytes().unwrap()));
        let key = (self.file.clone(), digest.finish());
        if let Some(outputs) = COMPUTED.lock().unwrap().get(&key) {
            return Ok(outputs.clone());
        }
        let load = || request(&self.file, self.batch).load(&LoadContext::silent()).unwrap();
        let computed = self.model.get_or_insert_with(load).run(std::slice::from_ref(picture))?.remove(0);
        let output = |output: &Tensor| {
            (output.desc().name.to_string(), output.desc().dims.to_vec(), output.as_slice::<f32>().unwrap().to_vec())
        };
        let outputs = Arc::new(computed.iter().map(output).collect::<Vec<_>>());
        COMPUTED.lock().unwrap().insert(key, outputs.clone());
        Ok(outputs)
    }
}

impl ModelInstance for Spoiled {
    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        for picture in pictures {
            let outputs = match self.known.get(&Arc::as_ptr(picture)) {
                Some(outputs) => outputs.clone(),
                None => self.compute(picture)?,
            };
            self.known.insert(Arc::as_ptr(picture), outputs);
        }
        let outputs: Vec<&Outputs> = pictures.iter().map(|picture| &self.known[&Arc::as_ptr(picture)]).collect();
        let mut found: Vec<Vec<Vec<f32>>> =
            outputs.iter().map(|outputs| outputs.iter().map(|(_, _, numbers)| numbers.clone()).collect()).collect();
        let right = found.clone();
        let addresses: Vec<_> = pictures.iter().map(Arc::as_ptr).collect();
        let repeat = if self.last.0 == addresses { self.last.1 + 1 } else { 0 };
        self.last = (addresses, repeat);
        (self.change)(&mut found, &Run { former: &self.sizes, repeat, number: self.sizes.len() }, &self.before);
        self.sizes.push(pictures.len());
        self.before = right;
        let tensors = outputs.iter().zip(found).map(|(outputs, found)| {
            let tensor = |((name, dims, right), numbers): (&Output, Vec<f32>)| {
                let other = [1, numbers.len() as i64];
                let dims = if numbers.len() == right.len() { &dims[..] } else { &other[..] };
                Tensor::from_slice(name, dims, &numbers)
            };
            Tensors::new(outputs.iter().zip(found).map(tensor).collect(), None, None)
        });
        Ok(tensors.collect())
    }
}

fn spoiled(subject: &LoadRequest, change: Change) -> Spoiled {
    let file = subject.model().path.display().to_string();
    let (model, known, sizes, last, before) = Default::default();
    Spoiled { file, batch: subject.batch, model, known, change, sizes, last, before }
}

fn verdict(model: &str, batch: usize, change: Change, tolerance: &Tolerance) -> Verdict {
    let subject = request(model, batch);
    let silent = LoadContext::silent();
    let mut spoiled = spoiled(&subject, change);
    let reference = request(&subject.model().path.display().to_string(), 1);
    verify(&subject, &mut spoiled, Ok(reference), tolerance, &silent).unwrap()
}

fn batched(test: &str) -> String {
    Graph::load(&shapes()).with_batch("n").save(&scratch(test).join("shapes.onnx"))
}

/// Rows of the detector: cx, cy, w, h, objectness, two scores.
fn rows(outputs: &mut [Vec<f32>]) -> impl Iterator<Item = &mut [f32]> {
    outputs[0].chunks_exact_mut(7)
}

const KINDS: &[(&str, Change)] = &[
    ("the last place of a batch is empty", |found, _, _| {
        if found.len() > 1 {
            found.last_mut().unwrap()[0].fill(0.0);
        }
    }),
    ("two places are exchanged", |found, _, _| {
        if found.len() > 2 {
            found.swap(1, 2);
        }
    }),
    ("one place has the outputs of the run before", |found, run, before| {
        if run.number > 0 && found.len() > 1 {
            found[1] = before[0].clone();
        }
    }),
    ("batches of three are wrong", |found, _, _| {
        if found.len() == 3 {
            found.iter_mut().for_each(|outputs| outputs[0].rotate_left(7 * 40 + 2));
        }
    }),
    ("batches above one are wrong", |found, _, _| {
        if found.len() > 1 {
            found.iter_mut().for_each(|outputs| outputs[0].iter_mut().for_each(|number| *number *= 0.5));
        }
    }),
    ("the largest batch is wrong in its last place", |found, _, _| {
        if found.len() == 5 {
            found[4] = found[0].clone();
        }
    }),
    ("scores have four steps", |found, _, _| {
        found.iter_mut().flat_map(|outputs| rows(outputs)).for_each(|row| row[4] = (row[4] * 4.0).round() / 4.0);
    }),
    ("boxes are shifted", |found, _, _| {
        found.iter_mut().flat_map(|outputs| rows(outputs)).for_each(|row| row[0] += 12.0);
    }),
    ("boxes are too small", |found, _, _| {
        found.iter_mut().flat_map(|outputs| rows(outputs)).for_each(|row| row[2] *= 0.6);
    }),
    ("classes are exchanged", |found, _, _| {
        found.iter_mut().flat_map(|outputs| rows(outputs)).for_each(|row| row.swap(5, 6));
    }),
    ("one kind of numbers is zero", |found, _, _| {
        found.iter_mut().flat_map(|outputs| rows(outputs)).for_each(|row| row[6] = 0.0);
    }),
    ("a number is none", |found, _, _| found[0][0][4000] = f32::NAN),
    ("a number is infinite in a large batch", |found, _, _| {
        if found.len() == 4 {
            found[3][0][11] = f32::INFINITY;
        }
    }),
    ("the replay of a graph has what the run before had", |found, run, before| {
        if run.repeat >= 2 {
            found.clone_from_slice(before);
            found.iter_mut().for_each(|outputs| outputs[0].rotate_right(1));
        }
    }),
    ("the replay of a graph computes nothing", |found, run, _| {
        if run.repeat >= 2 {
            found.iter_mut().for_each(|outputs| outputs[0].fill(0.0));
        }
    }),
    ("one picture is wrong after a larger batch", |found, run, _| {
        if found.len() == 1 && run.former.iter().any(|&size| size > 1) {
            found[0][0].iter_mut().for_each(|number| *number *= 0.7);
        }
    }),
    ("a place has something of its neighbour", |found, _, _| {
        if found.len() > 1 {
            let other = found[1][0].clone();
            found[0][0].iter_mut().zip(other).for_each(|(number, other)| *number = 0.8 * *number + 0.2 * other);
        }
    }),
    ("each run has other noise", |found, run, _| {
        for (index, number) in found.iter_mut().flat_map(|outputs| &mut outputs[0]).enumerate() {
            let noise = ((index * 7919 + run.number * 104_729) % 1000) as f32 / 1000.0 - 0.5;
            *number *= 1.0 + 0.4 * noise;
        }
    }),
    ("all is zero", |found, _, _| found.iter_mut().for_each(|outputs| outputs[0].fill(0.0))),
    ("scores are all 1", |found, _, _| {
        found.iter_mut().flat_map(|outputs| rows(outputs)).for_each(|row| row[4..].fill(1.0));
    }),
    ("every tenth row is lost", |found, _, _| {
        found.iter_mut().flat_map(|outputs| rows(outputs).step_by(10)).for_each(|row| row[4] = 0.0);
    }),
    ("objects are found that are not there", |found, _, _| {
        for outputs in found {
            // Away from the padding, where nothing is found.
            let mut weakest: Vec<&mut [f32]> = rows(outputs).filter(|row| (120.0..200.0).contains(&row[1])).collect();
            weakest.sort_by(|one, other| one[4].total_cmp(&other[4]));
            weakest[..100].iter_mut().for_each(|row| row[4..].fill(0.9));
        }
    }),
    ("it has other dimensions", |found, _, _| found.iter_mut().for_each(|outputs| outputs[0].truncate(7 * 100))),
];

#[test]
fn each_kind_of_wrongness_is_found() {
    assert!(KINDS.len() >= 20);
    let model = batched("verify-kinds");
    for (kind, change) in KINDS {
        let found = verdict(&model, 5, *change, &Tolerance::HALF);
        println!("{kind}: {found}");
        assert!(!found.passed(), "{kind}: {found:?}");
    }
}

/// In the numbers of the precision that it has.
fn halved(found: &mut [Vec<Vec<f32>>], _: &Run, _: &[Vec<Vec<f32>>]) {
    let round = |number: &mut f32| *number = f16::from_f32(*number).to_f32();
    found.iter_mut().flatten().flatten().for_each(round);
}

#[test]
fn what_is_right_passes() {
    let files = ["", "-v8", "-e2e", "-seg", "-obb", "-cls", "-sem"].map(|kind| format!("shapes{kind}.onnx"));
    let files = files.into_iter().chain(["figures-pose.onnx".into(), "rooms-depth.onnx".into()]);
    for file in files {
        let model = path(&format!("tests/models/{file}"));
        let exact = verdict(&model, 1, |_, _, _| (), &Tolerance::SINGLE);
        println!("{file}: {exact}");
        assert!(exact.passed() && exact.worst().is_some_and(|(_, error)| error == 0.0), "{file}: {exact:?}");
        assert!(exact.results.is_none_or(|(sought, found)| sought == found), "{file}: {exact:?}");
        let half = verdict(&model, 1, halved, &Tolerance::HALF);
        println!("{file} in f16: {half}");
        assert!(half.passed() && half.worst().is_some_and(|(_, error)| error > 0.0), "{file}: {half:?}");
    }
    let batches = verdict(&batched("verify-right"), 5, |_, _, _| (), &Tolerance::SINGLE);
    assert!(batches.passed() && batches.largest_batch == 5 && batches.runs == 3 * 10, "{batches:?}");
}

/// The same weights in f16, with all numbers in between in f32.
#[test]
fn an_engine_of_half_precision_passes_and_says_by_how_much_it_differs() {
    let subject = request(&path("tests/models/shapes-f16.onnx"), 1);
    let silent = LoadContext::silent();
    let mut model = subject.load(&silent).unwrap();
    let reference = request(&path("tests/models/shapes-f16.onnx"), 1);
    let found = verify(&subject, model.as_mut(), Ok(reference), &Tolerance::HALF, &silent).unwrap();
    assert!(found.passed() && found.precision == "fp16", "{found:?}");
}

#[test]
fn without_a_reference_an_engine_is_compared_with_itself() {
    let subject = request(&batched("verify-alone"), 5);
    let silent = LoadContext::silent();
    let alone = |change: Change| {
        let mut spoiled = spoiled(&subject, change);
        let none = Err(Error::new(ErrorKind::Model, "There is no ONNX file"));
        verify(&subject, &mut spoiled, none, &Tolerance::HALF, &silent).unwrap()
    };
    let right = alone(|_, _, _| ());
    assert!(right.passed() && right.reference == Err("There is no ONNX file".into()), "{right:?}");
    assert!(right.to_string().contains("but not compared: There is no ONNX file"), "{right}");
    let seen = KINDS.iter().filter(|(_, change)| !alone(*change).passed()).count();
    assert!(seen >= 12, "{seen} of {}: what differs from run to run, and what is not finite", KINDS.len());
}

#[test]
fn a_verdict_is_kept_as_json() {
    for change in [KINDS[0].1, |_: &mut [Vec<Vec<f32>>], _: &Run, _: &[Vec<Vec<f32>>]| ()] {
        let mut found = verdict(&batched("verify-json"), 2, change, &Tolerance::SINGLE);
        found.repair = Some("built in fp32".into());
        assert_eq!(Verdict::from_json(&found.to_json()).as_ref(), Some(&found));
        let mut damaged = found.to_json();
        damaged["passed"] = serde_json::json!(!found.passed());
        assert_eq!(Verdict::from_json(&damaged), None);
    }
    assert_eq!(Verdict::from_json(&serde_json::json!({"passed": true})), None);
}

/// What is read in outputs of each kind is compared by class; a copy that is the same loses nothing.
#[test]
fn a_copy_is_compared_by_what_its_results_are() {
    for file in ["shapes-320", "shapes-cls", "shapes-sem", "rooms-depth"] {
        let request = request(&path(&format!("tests/models/{file}.onnx")), 1);
        let letterbox = request.spec.letterbox((640, 480));
        let picture = |seed: usize| {
            let (_, height, width) = request.spec.chw();
            let numbers = (0..3 * height * width).map(|at| {
                let (y, x) = (at / width % height, at % width);
                if (x / 60 + y / 50 + seed).is_multiple_of(3) { 0.9 } else { 0.2 }
            });
            let dims = request.spec.desc.dims.to_vec();
            Ok((Tensor::from_slice("images", &dims, &numbers.collect::<Vec<f32>>()), letterbox))
        };
        let found = drift(&request, &request, (0..2).map(picture), &LoadContext::silent()).unwrap();
        println!("{file}: {found:?}");
        assert_eq!(
            (found.pictures, found.loss(), found.all().lost + found.all().new),
            (2, 0.0, 0),
            "{file}: {found:?}"
        );
        assert_eq!(found.all().wanted, found.all().found, "{file}");
        assert!(found.has_results() && found.outputs.values().all(|&error| error == 0.0), "{file}: {found:?}");
        assert_eq!(found.depths.is_some(), file == "rooms-depth", "{file}");
    }
}

#[test]
fn a_class_that_a_copy_has_lost_counts_alone() {
    let class = |wanted, lost, found, new| ClassDrift { wanted, lost, found, new };
    let of = |background, other| {
        let found = Drift { classes: BTreeMap::from([(0, background), (7, other)]), ..Drift::default() };
        (found.lost_class(), found.loss())
    };
    assert_eq!(of(class(9_700, 0, 10_000, 300), class(300, 300, 0, 0)), (Some((7, 1.0)), 1.0));
    assert_eq!(of(class(9_700, 100, 9_700, 100), class(300, 100, 300, 100)), (None, 0.02), "a third of it");
    assert_eq!(of(class(9_950, 0, 10_000, 50), class(50, 50, 0, 0)), (None, 0.005), "it is rare");
    assert_eq!(of(class(90, 0, 90, 0), class(7, 7, 0, 0)).0, None, "they are few");
}

/// An image restored, normals, features: what looks like a map of classes may be anything, and small or without numbers in places.
#[test]
fn numbers_count_where_the_head_is_guessed() {
    let model = |name: &str, factor: f32, operator: &str| {
        let graph = Graph::new().input("images", F32, &["n", "3", "32", "32"]);
        let graph = graph.weight("factor", F32, &[1], factor.to_le_bytes().to_vec());
        let graph = graph.node("Mul", &["images", "factor"], &["scaled"], vec![]);
        let graph = graph.node(operator, &["scaled"], &["output0"], vec![]);
        graph.output("output0", F32, &["n", "3", "32", "32"]).save(&scratch(name).join("m.onnx"))
    };
    let scaled: Change = |found, _, _| {
        if found.len() > 1 {
            found.iter_mut().flat_map(|outputs| &mut outputs[0]).for_each(|number| *number *= 3.0);
        }
    };
    let finite: Change = |found, _, _| {
        let numbers = found.iter_mut().flat_map(|outputs| &mut outputs[0]);
        numbers.filter(|number| number.is_nan()).for_each(|number| *number = 0.0);
    };
    for (name, factor, operator, change) in [
        ("verify-picture", 1.0, "Identity", scaled),
        ("verify-small", 1e-4, "Identity", scaled),
        ("verify-none", -1.0, "Log", finite),
    ] {
        let file = model(name, factor, operator);
        let right = verdict(&file, 4, |_, _, _| (), &Tolerance::HALF);
        assert!(right.passed() && right.results.is_none(), "{name}: {right:?}");
        let wrong = verdict(&file, 4, change, &Tolerance::HALF);
        assert!(!wrong.passed(), "{name}: {wrong:?}");
    }
}

/// A wave for each seed.
fn picture(request: &LoadRequest, seed: usize) -> Arc<Tensors> {
    let desc = &request.spec.desc;
    let wave = |at: usize| 0.5 + 0.5 * (at as f32 / (31.0 + 7.0 * seed as f32)).sin();
    let values: Vec<f32> = (0..desc.bytes().unwrap() / 4).map(wave).collect();
    Arc::new(Tensors::new(vec![Tensor::from_slice(&desc.name, &desc.dims, &values)], None, None))
}

/// The outputs of each run are compared with the CPU's, one picture of a batch after the other.
fn watched(model: &str, batch: usize, change: Change, runs: u64) -> (u64, Option<Error>) {
    let subject = request(model, batch);
    let reference = request(&subject.model().path.display().to_string(), 1);
    let reference = Reference::load(&subject, reference, &LoadContext::silent()).unwrap();
    let mut model = watch_by(Box::new(spoiled(&subject, change)), reference, Duration::ZERO).unwrap();
    let watch = model.watch().unwrap().clone();
    let pictures: Vec<Arc<Tensors>> = (0..batch).map(|seed| picture(&subject, seed)).collect();
    for run in 1..=runs {
        drop(model.run(&pictures).unwrap());
        wait_until("the frame is compared", Duration::from_secs(60), || watch.compared() == run);
    }
    (watch.differing(), watch.take_warning())
}

#[test]
fn what_is_wrong_once_in_many_runs_is_seen_while_it_plays() {
    let (differing, warning) = watched(&shapes(), 1, |_, _, _| {}, 5);
    assert!(differing == 0 && warning.is_none(), "{warning:?}");
    let once: Change = |found, run, _| {
        if run.number == 20 {
            found[0][0].fill(0.0);
        }
    };
    let (differing, warning) = watched(&shapes(), 1, once, 25);
    let text = warning.unwrap().message();
    assert!(
        differing == 1 && text.contains("while it plays") && text.contains("gst-trt verify"),
        "{differing}: {text}"
    );
    let place: Change = |found, _, _| found[1][0].fill(f32::NAN);
    let (differing, warning) = watched(&batched("watched"), 3, place, 6);
    assert!(
        differing == 2 && warning.unwrap().message().contains("not finite"),
        "each place has its turn: {differing}"
    );
}
