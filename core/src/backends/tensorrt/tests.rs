// SPDX-License-Identifier: MPL-2.0
//! Engines and what is found out about them. The driver and TensorRT are those of tests/fakes, and need no GPU. They build nothing:
//! the engines of ONNX files are in the cache before.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::backends::BackendPreference;
use crate::fakes::Fakes;
use crate::onnx_files::{F32, Graph};
use crate::options::OptionValue;
use crate::test::npy::save_floats;

#[test]
fn an_engine_is_deserialised_once_for_all_that_use_it() {
    let Some(fakes) = Fakes::of(module_path!(), "an_engine_is_deserialised_once_for_all_that_use_it") else { return };
    let context = fakes.context();
    let bytes = fs::read(fakes.engine()).unwrap();
    let library = Library::open(None, Some(&Header::read(&bytes).unwrap())).unwrap();
    let mut other = bytes.clone();
    other.push(0);
    let [file, other] = [bytes, other].map(EngineFile::new);
    let get = |file| engine_in_use(file, library, RuntimeOptions::default(), &context).unwrap();
    let [first, second] = [get(&file), get(&file)];
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(fakes.engines(0), 1);
    let longer = get(&other);
    assert_eq!(fakes.engines(0), 2, "another file");
    drop([first, second, longer]);
    get(&file);
    assert_eq!(fakes.engines(0), 3, "nothing used it any more");
    let keeper = EngineKeeper::new();
    get(&file);
    get(&file);
    assert_eq!(fakes.engines(0), 4, "it is kept between two users");
    drop(keeper);
    get(&file);
    assert_eq!(fakes.engines(0), 5);
}

/// What was found out about an engine while its model was loaded, and whether it was run for that.
fn verified(
    load: impl FnOnce(&LoadContext) -> Result<Box<dyn ModelInstance>>,
    hear: impl Fn(&LoadEvent<'_>) + Send + Sync,
) -> (bool, Verdict) {
    let found = Mutex::new((false, None));
    let report = |event: LoadEvent<'_>| {
        hear(&event);
        let mut found = found.lock().unwrap();
        match event {
            LoadEvent::Progress(step, _) => found.0 |= step.contains("its runs"),
            LoadEvent::Verified(verdict) => found.1 = Some(verdict.clone()),
            LoadEvent::Warning(_) => {}
        }
    };
    let cancelled = AtomicBool::new(false);
    load(&LoadContext { report: &report, cancelled: &cancelled, slots: None, contexts: 1 }).unwrap();
    let (is_tried, verdict) = found.into_inner().unwrap();
    (is_tried, verdict.unwrap())
}

#[test]
fn a_verdict_on_an_engine_file_is_of_the_runs_that_were_tried() {
    let Some(fakes) = Fakes::of(module_path!(), "a_verdict_on_an_engine_file_is_of_the_runs_that_were_tried") else {
        return;
    };
    let passes = |file: &Path, size, batch, graphs| {
        let mut options = Options::default();
        let option = TensorRt.options().iter().find(|option| option.spec.name == "cuda-graph").unwrap();
        options.set(option, OptionValue::Choice(graphs));
        let tensorrt = BackendPreference::Named("tensorrt");
        let request = LoadRequest::new(file, tensorrt, size, batch, options, || Ok(fakes.context())).unwrap();
        let (is_tried, verdict) = verified(|loading| request.load(loading), |_| ());
        (is_tried, verdict.passed())
    };
    fakes.wrong(1); // the second picture of a batch
    let file = fakes.engine();
    let of = |batch| passes(&file, None, batch, "auto");
    assert_eq!([of(1), of(1)], [(true, true), (false, true)]);
    assert_eq!([of(2), of(2)], [(true, false), (false, false)]);
    assert_eq!(of(1), (false, true), "a batch does not accuse pictures that are run alone");
    fakes.wrong(3); // a graph's run
    let file = fakes.engine_named("other.engine", true);
    let of = |graphs| passes(&file, None, 2, graphs);
    assert_eq!([of("off"), of("auto"), of("off")], [(true, true), (true, false), (false, true)]);
    fakes.wrong(0);
    let file = fakes.open_engine();
    let of = |side| passes(&file, Some((side, side)), 1, "auto");
    assert_eq!([of(32), of(64), of(32)], [(true, true), (true, true), (false, true)]);
}

/// A model that computes what the stand-in does: its pictures, but for the first number. A part of it is in factor.data.
fn onnx_file(folder: &Path) -> PathBuf {
    let mask = [0f32].into_iter().chain([1.0; 3 * 8 * 8 - 1]).flat_map(f32::to_le_bytes).collect();
    let graph = Graph::new()
        .input("images", F32, &["n", "3", "8", "8"])
        .weight("mask", F32, &[1, 3, 8, 8], mask)
        .external_weight("factor", "factor.data")
        .node("Mul", &["images", "mask"], &["masked"], Vec::new())
        .node("Mul", &["masked", "factor"], &["output0"], Vec::new())
        .output("output0", F32, &["n", "3", "8", "8"]);
    fs::write(folder.join("factor.data"), 1f32.to_le_bytes()).unwrap();
    graph.save(&folder.join("model.onnx")).into()
}

/// The model of an ONNX file, of which these steps have an engine in the cache, and a request for it.
fn cached(fakes: &Fakes, file: &Path, steps: &[Step]) -> (TrtModel, LoadRequest) {
    let (rten, no_gpu) = (BackendPreference::Named("rten"), || unreachable!("it is no GPU"));
    let mut request = LoadRequest::new(file, rten, None, 1, Options::default(), no_gpu).unwrap();
    request.backend = &TensorRt;
    request.cuda = Some(fakes.context());
    request.spec.device = Device::Cuda;
    let engine = EngineFile::new(fs::read(fakes.engine()).unwrap());
    let library = Library::open(None, Some(&Header::read(&engine.bytes).unwrap())).unwrap();
    let (info, options) = (request.model().clone(), TrtOptions::default());
    let model = TrtModel { info, library, options, engine: None, sha256: None };
    let (onnx, gpu) = (Onnx::from(request.file.contents().unwrap()), gpu_name(&fakes.context()).unwrap());
    let (cache, cancelled) = (Cache::open(None).unwrap(), AtomicBool::new(false));
    for step in steps {
        let shapes = shapes(&request).unwrap();
        let build = BuildOptions { shapes, ..step.options(&model.options.build, WeightType::F32) };
        let key = build.key(library, &onnx, &gpu, &cancelled).unwrap();
        match cache.find(&key, &cancelled, || ()).unwrap() {
            Lookup::Miss(slot) => slot.store(&engine).unwrap(),
            Lookup::Hit(_) => panic!("{step:?} has one already"),
        }
    }
    (model, request)
}

#[test]
fn what_could_not_be_compared_is_compared_at_the_next_start() {
    let Some(fakes) = Fakes::of(module_path!(), "what_could_not_be_compared_is_compared_at_the_next_start") else {
        return;
    };
    let (model, request) = cached(&fakes, &onnx_file(&fakes.folder), &[Step::Wanted]);
    let [weights, away] = ["factor.data", "away.data"].map(|name| fakes.folder.join(name));
    let load = |is_lacking: bool| {
        let hear = |event: &LoadEvent<'_>| {
            // It was there for the engine's key.
            if is_lacking && matches!(event, LoadEvent::Progress(step, _) if step.contains("the model on the CPU")) {
                fs::rename(&weights, &away).unwrap();
            }
        };
        let (is_tried, verdict) = verified(|loading| model.load(&request, loading), hear);
        (is_tried, verdict.reference.map_err(|why| why.contains("factor.data")).map(drop))
    };
    assert_eq!(load(true), (true, Err(true)));
    fs::rename(&away, &weights).unwrap();
    assert_eq!([load(false), load(false)], [(true, Ok(())), (false, Ok(()))]);
}

/// Engines are built for minutes, in which the file may have become another one.
#[test]
fn a_wrong_engine_is_built_again_from_what_was_read_at_first() {
    let Some(fakes) = Fakes::of(module_path!(), "a_wrong_engine_is_built_again_from_what_was_read_at_first") else {
        return;
    };
    let file = onnx_file(&fakes.folder);
    let (model, request) = cached(&fakes, &file, &[Step::Wanted, Step::SensitiveInSingle]);
    fakes.wrong(2); // a number that is none
    let hear = |event: &LoadEvent<'_>| {
        if matches!(event, LoadEvent::Warning(_)) {
            fs::remove_file(&file).unwrap();
            fakes.wrong(0);
        }
    };
    let (_, verdict) = verified(|loading| model.load(&request, loading), hear);
    assert!(verdict.passed() && verdict.reference.is_ok(), "{verdict}");
    assert_eq!(verdict.repair.as_deref(), Step::SensitiveInSingle.repair());
}

/// What is missing, such as a library of plugins, may come back. The engine would not: nothing builds it again.
#[test]
fn an_engine_that_does_not_load_is_kept_where_none_is_built() {
    let Some(fakes) = Fakes::of(module_path!(), "an_engine_that_does_not_load_is_kept_where_none_is_built") else {
        return;
    };
    let (mut model, request) = cached(&fakes, &onnx_file(&fakes.folder), &[Step::Wanted]);
    model.options.never_build = true;
    fakes.refuse(true);
    let error = model.load(&request, &LoadContext::silent()).map(drop).unwrap_err().message();
    assert!(error.starts_with("Cannot load the engine of ") && error.contains("engine-build=auto"), "{error}");
    fakes.refuse(false);
    model.load(&request, &LoadContext::silent()).map(drop).unwrap();
}

/// The next engine with the first table would be that of the second one.
#[test]
fn an_engine_is_not_kept_as_that_of_a_calibration_that_was_changed_meanwhile() {
    let name = "an_engine_is_not_kept_as_that_of_a_calibration_that_was_changed_meanwhile";
    let Some(fakes) = Fakes::of(module_path!(), name) else { return };
    let (model, request) = cached(&fakes, &onnx_file(&fakes.folder), &[]);
    let table = fakes.folder.join("table");
    fs::write(&table, "TRT-101600-EntropyCalibration2\nimages: 3c010a14\n").unwrap();
    let build =
        BuildOptions { precision: Precision::Int8, calibration: Some(table.clone()), ..BuildOptions::default() };
    let (onnx, cancelled) = (Onnx::from(request.file.contents().unwrap()), AtomicBool::new(false));
    let key = build.key(model.library, &onnx, "a GPU", &cancelled).unwrap();
    let check = || build.check_unchanged(&key, model.library, &onnx);
    check().unwrap();
    fs::write(&table, "TRT-101600-EntropyCalibration2\nimages: 3c010a15\n").unwrap();
    let error = check().unwrap_err().message();
    assert!(error.contains("table was changed while an engine was built with it"), "{error}");
}

#[test]
fn the_profile_takes_all_inputs() {
    let Some(fakes) = Fakes::of(module_path!(), "the_profile_takes_all_inputs") else { return };
    let numbers = save_floats(&fakes.folder.join("numbers.npy"), &[4], &[0.5; 4]);
    let mut options = Options::default();
    let option = TensorRt.options().iter().find(|option| option.spec.name == "input-values").unwrap();
    options.set(option, OptionValue::Text(format!("values={numbers}")));
    let (file, tensorrt) = (fakes.engine_with_profiles(4), BackendPreference::Named("tensorrt"));
    let request = LoadRequest::new(&file, tensorrt, None, 1, options, || Ok(fakes.context())).unwrap();
    request.load(&LoadContext::silent()).map(drop).unwrap();
}
