// SPDX-License-Identifier: MPL-2.0
//! Models that are cast to 16 bits compute what they computed before, by ONNX Runtime, which checks each type.
//!
//! `HALF_MODELS=FOLDER cargo nextest run half::` casts all models of a folder too, and has TensorRT-RTX build them.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use gsttrt_core::backends::tensorrt::builder::{self, BuildOptions, ExactLayers, Half, Precision};
use gsttrt_core::backends::tensorrt::onnx::{Onnx, WeightType};
use gsttrt_core::backends::verify::{Tolerance, verify};
use gsttrt_core::backends::{LoadContext, LoadRequest};
use gsttrt_core::error::Result;
use gsttrt_core::session::parse_options;

use crate::common::{ort, path, scratch};

fn request(model: &Path, options: &[String]) -> Result<LoadRequest> {
    let (options, _) = parse_options(options.iter().map(String::as_str))?;
    let no_gpu = || unreachable!("it is no GPU");
    LoadRequest::new(model, options.backend, options.input_size, 1, options.options, no_gpu)
}

/// Models in f32, in a folder.
fn models(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_single = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "onnx")
            && Onnx::read(path).is_ok_and(|onnx| onnx.numbers() == WeightType::F32)
    };
    let mut files: Vec<PathBuf> = files.filter(is_single).collect();
    files.sort();
    files
}

/// What is different between a model and its cast; nothing, where it cannot be cast.
fn compare(model: &Path, half: Half, exact: ExactLayers, folder: &Path, options: &[String]) -> Result<Option<String>> {
    let go_on = AtomicBool::new(false);
    let single = std::fs::metadata(model).unwrap().len();
    let Some(cast) = Onnx::read(model)?.cast(half, exact, &go_on)? else { return Ok(None) };
    let file = folder.join(format!("{exact:?}-{}", model.file_name().unwrap().display()));
    std::fs::write(&file, &cast).unwrap();
    let silent = LoadContext::silent();
    let subject = request(&file, options)?;
    let mut loaded = subject.load(&silent)?;
    let verdict = verify(&subject, loaded.as_mut(), request(model, options), &Tolerance::HALF, &silent)?;
    let size = cast.len() as f64 / single as f64;
    let line = format!("{} {exact:?}: {:.2} of its size, {verdict}", model.file_name().unwrap().display(), size);
    assert!(verdict.reference.is_ok(), "{line}");
    Ok(Some(format!("{}{line}", if verdict.passed() { "" } else { "FAILED: " })))
}

fn compare_all(folder: &Path, name: &str) -> usize {
    let Some(options) = ort::options(ort::NEWEST) else { return usize::MAX };
    let (scratch, mut failed, mut count) = (scratch(name), Vec::new(), 0);
    for model in models(folder) {
        for exact in [ExactLayers::Head, ExactLayers::AllButWeighted] {
            let line = match compare(&model, Half::F16, exact, &scratch, &options) {
                Ok(Some(line)) => line,
                Ok(None) => format!("{}: nothing is cast", model.display()),
                Err(error) => format!("FAILED: {}: {error}", model.display()),
            };
            println!("{line}");
            count += 1;
            failed.extend(line.starts_with("FAILED").then_some(line));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    count
}

#[test]
fn all_models_compute_the_same_in_half() {
    let count = compare_all(Path::new(&path("tests/models")), "half-models");
    assert!(count >= 2 * 9, "{count}");
}

/// TensorRT-RTX needs no GPU to build, and checks all types that ONNX Runtime does not have, such as bf16.
#[test]
fn engines_of_models_named_in_the_environment_are_built() {
    let Some(folder) = std::env::var_os("HALF_MODELS") else { return };
    let mut failed = Vec::new();
    for library in crate::tensorrt_build::libraries() {
        for (model, half) in
            models(Path::new(&folder)).iter().flat_map(|model| [(model, Half::F16), (model, Half::Bf16)])
        {
            let build = |precision| {
                let options = BuildOptions { precision, half, ..crate::tensorrt_build::options(library) };
                let onnx = Onnx::read(model)?;
                builder::build(library, &onnx, &options, None, &|_| (), &AtomicBool::new(false))
            };
            let of = format!("{} {} in {}", library.name(), model.display(), half.name());
            match build(Precision::Fp16) {
                Ok(built) => println!("{of}: {} KiB", built.engine.len() >> 10),
                // What it cannot build in f32 either is no fault of the cast.
                Err(error) => match build(Precision::Fp32) {
                    Ok(_) => failed.push(format!("{of}: {error}")),
                    Err(error) => println!("{of}: not even in fp32: {error}"),
                },
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn models_named_in_the_environment_compute_the_same_in_half() {
    if let Some(folder) = std::env::var_os("HALF_MODELS") {
        compare_all(Path::new(&folder), "half-others");
    }
}
