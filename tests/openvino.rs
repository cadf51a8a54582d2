// SPDX-License-Identifier: MPL-2.0
//! OpenVINO compared with rten: the same outputs, what is computed in 16 bits, what is kept, and what runs a model that it
//! does not.

use gsttrt_core::error::ErrorKind;
use gsttrt_core::session::{Session, parse_options};

use crate::common::compared::{load, request, run};
use crate::common::onnx::{F32, Graph};
use crate::common::{libraries, openvino, path, scratch, shapes};

/// Options with others, and 32 bits whatever the CPU prefers.
fn exact(options: &[String], more: &[&str]) -> Vec<String> {
    let more = more.iter().map(|text| text.to_string());
    options.iter().cloned().chain(["precision=fp32".to_string()]).chain(more).collect()
}

#[test]
fn both_backends_compute_the_same() {
    let options = |library| Some((library, exact(&openvino::options(library)?, &[])));
    let found: Vec<_> = [openvino::NEWEST, openvino::OLDEST].into_iter().map_while(options).collect();
    libraries::models_are_computed_like_by_rten(&found, 1e-4);
}

/// In what the CPU prefers, and in 32 bits.
#[test]
fn verified_models_are_right() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    let files = ["shapes-320", "shapes-e2e", "shapes-seg", "rooms-depth"];
    for file in files.map(|name| path(&format!("tests/models/{name}.onnx"))) {
        for precision in ["precision=auto", "precision=fp32"] {
            let texts = options.iter().map(String::as_str).chain(["verify=always", precision]);
            let (options, _) = parse_options(texts).unwrap();
            let session = Session::open(&file, &options).unwrap();
            let verdict = session.verdict().unwrap();
            println!("{file} {precision}: {verdict}");
            assert!(verdict.passed(), "{file}: {verdict}");
            assert_eq!(verdict.reference.as_deref(), Ok("the CPU (rten)"));
            assert!(verdict.results.is_some_and(|(sought, _)| sought > 0), "{file}: {verdict}");
            if precision == "precision=fp32" {
                assert!(verdict.worst().is_some_and(|(_, error)| error < 1e-3), "{file}: {verdict}");
            }
        }
    }
}

/// Compiled models, and the verdict on what is computed in 16 bits, which is found out once.
#[test]
fn what_was_compiled_and_found_out_is_kept() {
    let Some([backend, library, _]) = openvino::options(openvino::NEWEST) else { return };
    let folder = scratch("openvino-kept");
    let cache = format!("engine-cache={}", folder.display());
    let names = |of: &std::path::Path| -> Vec<String> {
        let entries = std::fs::read_dir(of).into_iter().flatten().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect()
    };
    let open = |more: &str| {
        let (options, _) = parse_options([backend.as_str(), library.as_str(), cache.as_str(), more]).unwrap();
        Session::open(shapes(), &options).unwrap()
    };
    assert!(open("precision=fp32").verdict().is_none(), "32 bits are not verified unasked");
    assert_eq!(names(&folder.join("openvino")).iter().filter(|name| name.ends_with(".blob")).count(), 1);
    let first = open("precision=auto").verdict().cloned();
    let Some(first) = first else {
        println!("SKIP: this CPU has no BF16");
        return;
    };
    assert_eq!(names(&folder).iter().filter(|name| name.ends_with(".verdict")).count(), 1);
    assert_eq!(open("precision=auto").verdict(), Some(&first), "as it was kept, with its time");
}

#[test]
fn outputs_stay() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    libraries::outputs_stay(&scratch("openvino-outputs"), &exact(&options, &[]), &["Identity"]);
}

/// OpenVINO fills such outputs with zeros, and its input too.
#[test]
fn inputs_that_are_outputs_are_for_others() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    let folder = scratch("openvino-inputs");
    let dims = &["1", "3", "2", "4"];
    let graph = Graph::new().input("images", F32, dims).output("images", F32, dims).output("other", F32, dims);
    let model = graph.node("Relu", &["images"], &["other"], vec![]).save(&folder.join("direct.onnx"));
    let error = run(&model, &options).unwrap_err();
    assert!(error.kind() == ErrorKind::Model && error.message().contains("images is an input"), "{error}");
    // Where it is not named, the next one runs the model, and says so once.
    let (cpu, _) = parse_options(["backend=cpu", options[1].as_str(), options[2].as_str()]).unwrap();
    let session = Session::open(&model, &cpu).unwrap();
    assert_eq!(session.backend(), "rten");
    let [warning] = session.warnings() else { panic!("{:?}", session.warnings()) };
    assert!(warning.message().contains("in place of OpenVINO"), "{warning}");
}

#[test]
fn batches_and_open_sizes_are_taken() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    libraries::batches_and_open_sizes_are_taken(&scratch("openvino-batches"), &exact(&options, &[]));
}

#[test]
fn weights_in_other_files_are_read_here() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    libraries::weights_in_other_files_are_read_here(&scratch("openvino-external"), &exact(&options, &[]));
}

#[test]
fn models_that_cannot_be_used_are_refused() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    libraries::models_that_cannot_be_used_are_refused(&scratch("openvino-refused"), &options, Vec::new());
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    let error = run(&shapes(), &exact(&options, &["openvino-device=fpga"])).unwrap_err();
    assert!(error.kind() == ErrorKind::Library && error.message().contains("there is no FPGA"), "{error}");
    assert!(error.message().contains("CPU"), "{error}");
    assert!(run(&shapes(), &exact(&options, &["openvino-device=cpu"])).is_ok());
}

#[test]
fn a_missing_library_says_what_to_install() {
    let wrong = ["backend=openvino", "openvino-library=/nowhere/libopenvino_c.so"];
    let error = run(&shapes(), &wrong).unwrap_err();
    assert!(error.kind() == ErrorKind::Library && error.message().contains("pip install openvino"), "{error}");
    let backend = |options: &[&str]| {
        let (options, _) = parse_options(options.iter().copied()).unwrap();
        Session::open(shapes(), &options).map(|session| session.backend())
    };
    assert_eq!(backend(&["backend=cpu", wrong[1]]).unwrap(), "rten");
    let Some([_, library, cache]) = openvino::options(openvino::NEWEST) else { return };
    assert_eq!(backend(&["backend=cpu", &library, &cache]).unwrap(), "openvino");
}

/// One network, compiled once, in several threads.
#[test]
fn runs_at_the_same_time_compute_the_same() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    let request = request(&shapes(), &exact(&options, &["threads=2"]), 1).unwrap();
    let (alone, _) = load(&shapes(), &exact(&options, &["threads=1"])).unwrap();
    libraries::runs_at_the_same_time_compute_the_same(&request, alone, 1e-5);
}

#[test]
fn messages_and_model_info_name_it() {
    let Some(options) = openvino::options(openvino::NEWEST) else { return };
    libraries::messages_and_model_info_name_it("openvino", &exact(&options, &[]));
}

/// Types that tensors of models have.
#[test]
fn types_pass() {
    for library in [openvino::NEWEST, openvino::OLDEST] {
        let Some(options) = openvino::options(library) else { return };
        libraries::types_pass(library, &scratch("openvino-types"), &exact(&options, &[]));
    }
}
