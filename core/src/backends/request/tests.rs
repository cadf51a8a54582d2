// SPDX-License-Identifier: MPL-2.0
use std::sync::Mutex;

use super::*;
use crate::backends::onnxruntime::OnnxRuntime;
use crate::backends::rten::Rten;
use crate::backends::tensorrt::TensorRt;
use crate::backends::verify::{Reference, verify};
use crate::onnx_files::{F32, Graph, brightness, int, ints};
use crate::options::OptionValue;
use crate::tensor::{Tensor, Tensors};
use crate::test::npy::save_floats;
use crate::test::scratch;

/// A file that any size of input suits, and how it is loaded.
struct Opened(Arc<ModelInfo>, fn(&LoadRequest, &LoadContext) -> Result<Box<dyn ModelInstance>>);

impl OpenedModel for Opened {
    fn info(&self) -> &Arc<ModelInfo> {
        &self.0
    }

    fn load(&self, request: &LoadRequest, loading: &LoadContext) -> Result<Box<dyn ModelInstance>> {
        (self.1)(request, loading)
    }
}

const SHAPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/shapes.onnx");

fn by_rten(path: &Path, options: Options) -> LoadRequest {
    let cpu = BackendPreference::Named("rten");
    LoadRequest::new(path, cpu, None, 1, options, || unreachable!("it is no GPU")).unwrap()
}

#[test]
fn parallel_runs_are_execution_contexts_on_a_gpu() {
    let request = by_rten(SHAPES.as_ref(), Options::default());
    let contexts = |runs: usize, batch: usize| {
        let request = LoadRequest { batch, ..request.with_parallel_runs(runs) };
        [false, true].map(|is_shared| request.contexts(is_shared))
    };
    assert_eq!(contexts(1, 1), [1, 4], "streams that share a model give one picture each");
    assert_eq!(contexts(1, 16), [1, 1]);
    assert_eq!([contexts(0, 16), contexts(2, 1), contexts(3, 16)], [[4; 2], [2; 2], [3; 2]]);
}

/// A folder of mixed pictures does not build an engine for each size.
#[test]
fn a_backend_that_builds_for_one_size_builds_for_two_at_most() {
    let request = by_rten(SHAPES.as_ref(), Options::default());
    let sizes = [(640, 360), (360, 640), (640, 480), (1280, 720), (333, 500)];
    assert!(sizes.iter().all(|&size| request.next_spec_for(size) == request.spec_for(size)), "rten takes any size");
    let largest = (640, 640);
    let adaptive = Some(Adaptive { stride: 32, largest });
    let opened: Arc<dyn OpenedModel> =
        Arc::new(Opened(request.model().clone(), |_, _| unreachable!("it is not loaded here")));
    let mut loaded = LoadRequest { backend: &TensorRt, adaptive, opened, ..request.clone() };
    assert!(loaded.waits_for_frames() && loaded.spec_for(sizes[0]) != loaded.spec_for(sizes[1]));
    loaded = loaded.for_tensor(loaded.spec_for(sizes[0]));
    let first = loaded.spec.clone();
    let mut seen = vec![];
    for size in sizes {
        loaded = loaded.for_tensor(loaded.next_spec_for(size));
        seen.push(loaded.spec.chw());
    }
    assert_eq!(seen[0], first.chw());
    assert_eq!(seen[1..], [request.spec.resized(largest).chw(); 4]);
}

/// An engine for clips of another length would be built for nothing, and the right one while frames wait.
#[test]
fn in_the_place_of_another_model_clips_are_as_long_as_before() {
    let folder = scratch("clip-requests");
    let model = |name: &str, frames: &str| {
        let file = Graph::new()
            .input("clip", F32, &["1", "3", frames, "8", "8"])
            .node("ReduceMean", &["clip"], &["output0"], vec![ints("axes", &[1, 3, 4]), int("keepdims", 0)])
            .output("output0", F32, &["1", frames])
            .save(&folder.join(name));
        LoadRequest { backend: &TensorRt, ..by_rten(file.as_ref(), Options::default()) }
    };
    let (open, other, fixed) = (model("open.onnx", "t"), model("other.onnx", "t"), model("fixed.onnx", "8"));
    let used = open.for_tensor(open.spec.with_frames(5));
    let frames =
        |model: &LoadRequest, former: Option<&LoadRequest>| model.in_place_of(former, (64, 64)).spec.frames().unwrap();
    assert_eq!(frames(&other, Some(&used)), 5);
    assert_eq!([frames(&other, None), frames(&other, Some(&fixed))], [16; 2], "nobody knows yet");
    assert_eq!(frames(&fixed, Some(&used)), 8);
}

#[test]
fn a_file_is_read_once_for_description_and_load_and_not_kept() {
    let path = scratch("request").join("model.onnx");
    std::fs::copy(SHAPES, &path).unwrap();
    let request = by_rten(&path, Options::default());
    std::fs::remove_file(&path).unwrap();
    assert!(request.load(&LoadContext::silent()).is_ok());
    let again = request.load(&LoadContext::silent()).err().map(|error| error.kind());
    assert_eq!(again, Some(ErrorKind::NotFound));
}

/// An engine that is wrong is built from it once more, after minutes, in which it may have become another one.
#[test]
fn a_file_is_kept_while_its_model_is_compared() {
    fn load(request: &LoadRequest, loading: &LoadContext) -> Result<Box<dyn ModelInstance>> {
        std::fs::remove_file(request.file.path()).unwrap();
        let reference = request.on_cpu()?;
        let model = reference.load(loading)?;
        Reference::load(request, reference, loading)?;
        request.file.contents()?;
        Ok(model)
    }
    let path = scratch("request-compared").join("model.onnx");
    std::fs::copy(SHAPES, &path).unwrap();
    let request = by_rten(&path, Options::default());
    let opened: Arc<dyn OpenedModel> = Arc::new(Opened(request.model().clone(), load));
    let request = LoadRequest { backend: &TensorRt, opened, ..request };
    request.load(&LoadContext::silent()).unwrap();
    assert_eq!(request.file.contents().err().map(|error| error.kind()), Some(ErrorKind::NotFound));
}

/// A backend that is there may lack an operator that the next one has.
#[test]
fn where_a_backend_fails_on_the_cpu_the_next_one_is_compared_with() {
    let path = brightness("n").save(&scratch("request-next").join("model.onnx"));
    let (request, silent) = (by_rten(path.as_ref(), Options::default()), LoadContext::silent());
    let fails = Opened(request.model().clone(), |_, _| Err(Error::new(ErrorKind::Model, "It has no such operator")));
    let opened: Arc<dyn OpenedModel> = Arc::new(fails);
    let alone = LoadRequest { opened, ..request.clone() };
    let reference = LoadRequest { others: vec![request.clone()], ..alone.clone() };
    assert!(Reference::load(&request, reference.clone(), &silent).is_ok());
    let mut model = request.load(&silent).unwrap();
    let mut of = |reference| verify(&request, model.as_mut(), Ok(reference), &Tolerance::SINGLE, &silent).unwrap();
    assert_eq!(of(reference).reference, Ok("the CPU (rten)".into()));
    assert_eq!(of(alone).reference, Err("It has no such operator".into()));
}

/// A model that takes the place of another one is not given lines that it was not loaded for.
#[test]
fn lines_have_the_height_and_a_width_of_the_model() {
    let model = Graph::new()
        .input("images", F32, &["n", "3", "16", "w"])
        .node("Identity", &["images"], &["output0"], Vec::new())
        .output("output0", F32, &["n", "3", "16", "w"])
        .save(&scratch("request-widths").join("model.onnx"));
    let mut options = Options::default();
    options.set(&MAX_INPUT_WIDTH, OptionValue::UInt(200));
    let (cpu, size) = (BackendPreference::Named("rten"), Some((64, 16)));
    let request = LoadRequest::new(model.as_ref(), cpu, size, 1, options, || unreachable!("it is no GPU")).unwrap();
    let wants = |size: (u32, u32)| request.wants(&request.spec.resized(size));
    let wanted = [(64, 16), (128, 16), (200, 16), (32, 16), (232, 16), (64, 32)].map(wants);
    assert_eq!(wanted, [true, true, true, false, false, false]);
}

/// An engine is for as many words as it was built for.
#[test]
fn a_loaded_model_takes_other_values_of_the_same_size_or_of_any() {
    let folder = scratch("request-values");
    let model = Graph::new()
        .input("images", F32, &["n", "3", "8", "8"])
        .input("tpe", F32, &["n", "words", "2"])
        .node("Identity", &["tpe"], &["output0"], Vec::new())
        .output("output0", F32, &["n", "words", "2"])
        .save(&folder.join("model.onnx"));
    let values = |name: &str, words: usize| {
        std::fs::write(folder.join(name).with_extension("txt"), format!("{name}\n").repeat(words)).unwrap();
        let numbers: Vec<f32> = (0..2 * words).map(|number| number as f32).collect();
        let file = save_floats(&folder.join(name).with_extension("npy"), &[words, 2], &numbers);
        format!("tpe={file}")
    };
    let read = |text: &str| Arc::new(InputValues::read(text).unwrap());
    let mut options = Options::default();
    options.set(&INPUT_VALUES, OptionValue::Text(values("cat", 2)));
    let request = by_rten(model.as_ref(), options);
    let (other, more) = (read(&values("dog", 2)), read(&values("bird", 3)));
    let built = LoadRequest { backend: &TensorRt, ..request.clone() };
    for (request, takes_more) in [(&request, true), (&built, false)] {
        let changed = request.with_values(&other).unwrap().expect("they are alike");
        assert_eq!(changed.model().labels, ["dog", "dog"]);
        assert_eq!(request.with_values(&more).unwrap().is_some(), takes_more);
    }

    let picture = Tensor::from_slice("images", &[1, 3, 8, 8], &[0f32; 3 * 8 * 8]);
    let picture = Arc::new(Tensors::new(vec![picture], None, None));
    let mut loaded = request.load(&LoadContext::silent()).unwrap();
    let mut run = |values: &Arc<InputValues>, pictures: usize| -> Vec<Vec<f32>> {
        loaded.set_values(values).unwrap();
        let outputs = loaded.run(&vec![picture.clone(); pictures]).unwrap();
        outputs.iter().map(|outputs| outputs[0].as_slice::<f32>().unwrap().to_vec()).collect()
    };
    for pictures in [1, 2] {
        assert_eq!(run(&request.values, pictures), vec![[0f32, 1.0, 2.0, 3.0]; pictures]);
        assert_eq!(run(&more, pictures), vec![[0f32, 1.0, 2.0, 3.0, 4.0, 5.0]; pictures]);
    }
}

/// With a warning, once; one that the user has named stays.
#[test]
fn where_a_backend_cannot_load_a_model_the_next_one_runs_it() {
    let request = by_rten(SHAPES.as_ref(), Options::default());
    let load: fn(&LoadRequest, &LoadContext) -> Result<Box<dyn ModelInstance>> =
        |_, _| Err(Error::new(ErrorKind::Model, "It has no such operator"));
    let opened: Arc<dyn OpenedModel> = Arc::new(Opened(request.model().clone(), load));
    let named = LoadRequest { backend: &OnnxRuntime, opened, ..request.clone() };
    let warnings = Mutex::new(Vec::new());
    let report = |event: LoadEvent<'_>| {
        if let LoadEvent::Warning(warning) = event {
            warnings.lock().unwrap().push(warning.message());
        }
    };
    let loading = LoadContext { report: &report, ..LoadContext::silent() };
    assert_eq!(named.load(&loading).err().map(|error| error.message()).unwrap(), "It has no such operator.");
    let automatic = LoadRequest { alternatives: vec![&Rten], ..named };
    let copy = automatic.for_tensor(automatic.spec.clone());
    assert_eq!(copy.running().name(), "onnxruntime");
    assert!(automatic.load(&loading).is_ok() && copy.load(&loading).is_ok());
    assert_eq!([automatic.running().name(), copy.running().name()], ["rten"; 2]);
    let said = warnings.lock().unwrap();
    assert!(said.len() == 1 && said[0].contains("on the CPU (rten) in place of ONNX Runtime"), "{said:?}");
}

#[test]
fn a_reference_computes_on_the_cpu() {
    let mut options = Options::default();
    options.set(&PROVIDERS, OptionValue::Text("openvino:device_type=GPU".into()));
    let request = LoadRequest { backend: &TensorRt, ..by_rten(SHAPES.as_ref(), options) };
    assert!(!request.on_cpu().unwrap().options.has(&PROVIDERS));
}
