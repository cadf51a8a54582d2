// SPDX-License-Identifier: MPL-2.0
//! Models on a server that answers right, late, never, or something else.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gsttrt_core::backends::log;
use gsttrt_core::backends::options::Options;
use gsttrt_core::backends::{BackendPreference, LoadContext, LoadRequest, ModelInstance, all_options};
use gsttrt_core::error::{ErrorKind, Result};
use gsttrt_core::tensor::{Tensor, Tensors};
use prost::Message;

use crate::common::wait::{LIMIT, wait_until};
use crate::kserve_server::messages::*;
use crate::kserve_server::*;

mod shared_memory;
#[path = "common/kserve_silent.rs"]
mod silent;
mod wrong;

use silent::SilentServer;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/shapes.onnx");
/// Width and height of the pictures.
const SIZE: u32 = 64;

pub fn options(texts: &[(&str, &str)]) -> Options {
    let mut options = Options::default();
    for (name, value) in texts {
        let option = all_options().find(|option| option.spec.name == *name).unwrap();
        options.set(option, option.spec.parse(value).unwrap());
    }
    options
}

/// The model of an address or a file, for so many pictures at once.
fn request(path: &str, batch: usize, set: &[(&str, &str)]) -> Result<LoadRequest> {
    LoadRequest::new(Path::new(path), BackendPreference::Auto, None, batch, options(set), || {
        unreachable!("it is no GPU")
    })
}

fn open(path: &str, batch: usize, set: &[(&str, &str)]) -> Result<Box<dyn ModelInstance>> {
    request(path, batch, set)?.load(&LoadContext::silent())
}

pub fn picture(seed: usize) -> Arc<Tensors> {
    picture_of(SIZE as usize, seed)
}

pub fn picture_of(side: usize, seed: usize) -> Arc<Tensors> {
    let values: Vec<f32> = (0..3 * side * side).map(|at| ((at * (seed + 7)) % 251) as f32 / 251.0).collect();
    let tensor = Tensor::from_slice("images", &[1, 3, side as i64, side as i64], &values);
    Arc::new(Tensors::new(vec![tensor], None, None))
}

/// With that limit, however slow the machine is when the model is described.
fn open_in_time(address: &str, milliseconds: &str) -> Box<dyn ModelInstance> {
    let mut model = None;
    wait_until("a description within the limit", LIMIT, || {
        model = open(address, 1, &[("request-timeout", milliseconds)]).ok();
        model.is_some()
    });
    model.unwrap()
}

/// A model whose output has known sizes, of what its input has in front.
pub fn small() -> FakeModel {
    let side = i64::from(SIZE);
    let metadata =
        |name: &str, shape: &[i64]| TensorMetadata { name: name.into(), datatype: "FP32".into(), shape: shape.into() };
    let run = |inputs: &[PlainTensor]| {
        let rows = inputs[0].shape[0];
        let rows_of_bytes = inputs[0].bytes.chunks(inputs[0].bytes.len() / rows as usize);
        let bytes = rows_of_bytes.flat_map(|row| row[..16].to_vec()).collect();
        vec![PlainTensor { name: "scores".into(), datatype: "FP32".into(), shape: vec![rows, 4], bytes }]
    };
    FakeModel {
        name: "small",
        inputs: vec![metadata("images", &[-1, 3, side, side])],
        outputs: vec![metadata("scores", &[-1, 4])],
        parameters: Vec::new(),
        max_batch_size: 8,
        extensions: &["system_shared_memory"],
        run: Arc::new(run),
    }
}

pub fn small_output(seed: usize) -> Vec<u8> {
    plain(&picture(seed))[0].bytes[..16].to_vec()
}

/// Answers as a model does, but for some of the calls.
pub fn but(model: FakeModel, other: impl Fn(&str, &[u8]) -> Option<Reply> + Send + Sync + 'static) -> Handler {
    let usual = answers(model);
    Arc::new(move |method, message| other(method, message).unwrap_or_else(|| usual(method, message)))
}

#[test]
fn outputs_are_those_of_our_own_backends() {
    let server = FakeServer::start(answers(served("shapes", MODEL)));
    let address = server.address("shapes");
    let mut own = open(MODEL, 1, &[("threads", "1")]).unwrap();
    let pictures = [1, 2].map(|seed| picture_of(512, seed));
    let wanted = pictures.clone().map(|picture| plain(&own.run(&[picture]).unwrap()[0]));
    assert!(wanted[0] != wanted[1] && !wanted[0][0].bytes.is_empty());
    for shared_memory in ["off", "on"] {
        let mut model = open(&address, 1, &[("shared-memory", shared_memory)]).unwrap();
        let outputs = pictures.clone().map(|picture| plain(&model.run(&[picture]).unwrap()[0]));
        assert!(outputs == wanted, "{shared_memory}");
    }
    let [file, served] = [MODEL, &address].map(|path| request(path, 1, &[]).unwrap());
    let (file, served) = (file.model(), served.model());
    assert_eq!((&served.inputs, &served.outputs, &served.labels), (&file.inputs, &file.outputs, &file.labels));
    assert_eq!((&served.task, served.stride, &served.metadata), (&file.task, file.stride, &file.metadata));
    assert_eq!(served.path, Path::new(&address));
}

#[test]
fn requests_are_in_flight_at_the_same_time() {
    let running = Arc::new(AtomicUsize::new(0));
    let seen = running.clone();
    let server = FakeServer::start(but(small(), move |method, _| {
        if method == "ModelInfer" {
            seen.fetch_add(1, Ordering::SeqCst);
            wait_until("all requests", LIMIT, || seen.load(Ordering::SeqCst) >= 3);
        }
        None
    }));
    let request = request(&server.address("small"), 1, &[("shared-memory", "off")]).unwrap();
    let mut model = request.with_parallel_runs(3).load(&LoadContext::silent()).unwrap();
    let mut all = model.take_others();
    all.push(model);
    assert_eq!(all.len(), 3);
    let run = |(seed, mut model): (usize, Box<dyn ModelInstance>)| {
        thread::spawn(move || plain(&model.run(&[picture(seed)]).unwrap()[0])[0].bytes == small_output(seed))
    };
    let threads: Vec<_> = all.into_iter().enumerate().map(run).collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    let as_many_as_help = request.with_parallel_runs(0).load(&LoadContext::silent()).unwrap().take_others().len();
    assert_eq!(as_many_as_help, 7);
}

#[test]
fn an_answer_that_is_late_is_an_error() {
    for reply in [|| Reply::Never, || Reply::Status(4, "Deadline Exceeded")] {
        let server = FakeServer::start(but(small(), move |method, _| (method == "ModelInfer").then(reply)));
        let mut model = open_in_time(&server.address("small"), "150");
        let error = model.run(&[picture(1)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Run);
        let text = error.message();
        assert!(text.contains("/small has not answered within 0.15 s") && text.contains("request-timeout"), "{text}");
    }
}

#[test]
fn a_run_can_be_interrupted() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let server = FakeServer::start(but(small(), move |method, _| {
        let is_first = method == "ModelInfer" && counted.fetch_add(1, Ordering::SeqCst) == 0;
        is_first.then_some(Reply::Never)
    }));
    let mut model = open(&server.address("small"), 1, &[("request-timeout", "3600000")]).unwrap();
    let interrupt = model.interrupter().unwrap();
    interrupt(); // nothing runs
    let thread = thread::spawn(move || (model.run(&[picture(1)]).unwrap_err().message(), model));
    wait_until("the request", LIMIT, || calls.load(Ordering::SeqCst) == 1);
    interrupt();
    let (text, mut model) = thread.join().unwrap();
    assert!(text.contains("was given up: its stream has stopped"), "{text}");
    assert_eq!(plain(&model.run(&[picture(2)]).unwrap()[0])[0].bytes, small_output(2), "the next one");
    // While it waits for a server that is not there.
    drop(server);
    let waiting = thread::spawn(move || model.run(&[picture(1)]).unwrap_err().message());
    wait_until("the end of the wait", LIMIT, || {
        interrupt();
        waiting.is_finished()
    });
    assert!(waiting.join().unwrap().contains("was given up"));
}

#[test]
fn a_run_can_be_interrupted_while_it_connects() {
    let server = FakeServer::start(answers(small()));
    let port = server.port;
    let mut model = open(&server.address("small"), 1, &[("request-timeout", "3600000")]).unwrap();
    drop(server);
    let _silent = SilentServer::at(port);
    let interrupt = model.interrupter().unwrap();
    let waiting = thread::spawn(move || model.run(&[picture(1)]).unwrap_err().message());
    wait_until("the end of the attempt", LIMIT, || {
        interrupt();
        waiting.is_finished()
    });
    assert!(waiting.join().unwrap().contains("was given up"));
}

#[test]
fn a_server_that_comes_back_is_found_again() {
    let server = FakeServer::start(answers(small()));
    let (port, address) = (server.port, server.address("small"));
    for shared_memory in ["off", "on"] {
        let mut model = open(&address, 1, &[("shared-memory", shared_memory), ("request-timeout", "60000")]).unwrap();
        model.run(&[picture(1)]).unwrap();
        // It ends in the middle of a request, in each of the ways that there are, and is there again.
        for reply in [|| Reply::Close, || Reply::GoAway, || Reply::Status(14, "unavailable"), || Reply::Http("503")] {
            let calls = Arc::new(AtomicUsize::new(0));
            let counted = calls.clone();
            let failing = but(small(), move |method, _| {
                (method == "ModelInfer" && counted.fetch_add(1, Ordering::SeqCst) < 2).then(reply)
            });
            let other = FakeServer::start(failing);
            let path = other.address("small");
            let mut model = open(&path, 1, &[("shared-memory", shared_memory)]).unwrap();
            assert_eq!(plain(&model.run(&[picture(2)]).unwrap()[0])[0].bytes, small_output(2));
            assert_eq!(calls.load(Ordering::SeqCst), 3);
        }
        assert_eq!(plain(&model.run(&[picture(3)]).unwrap()[0])[0].bytes, small_output(3));
    }
    let mut model = open(&address, 1, &[("request-timeout", "60000")]).unwrap();
    model.run(&[picture(1)]).unwrap();
    drop(server);
    let waiting = thread::spawn(move || plain(&model.run(&[picture(4)]).unwrap()[0])[0].bytes == small_output(4));
    let again = FakeServer::at(port, answers(small()));
    assert!(waiting.join().unwrap());
    assert!(again.connections() > 0);
}

/// As MLServer does.
#[test]
fn a_server_that_still_loads_its_models_is_waited_for() {
    let server = FakeServer::start(answers(small()));
    let (port, address) = (server.port, server.address("small"));
    let mut model = open(&address, 1, &[("request-timeout", "60000")]).unwrap();
    model.run(&[picture(1)]).unwrap();
    drop(server);
    let calls = AtomicUsize::new(0);
    let loading = but(small(), move |method, _| match method {
        "ModelInfer" if calls.fetch_add(1, Ordering::SeqCst) < 2 => Some(Reply::Status(5, "no such model")),
        "ModelReady" => Some(Reply::Message(ModelReadyResponse { ready: false }.encode_to_vec())),
        _ => None,
    });
    let _again = FakeServer::at(port, loading);
    assert_eq!(plain(&model.run(&[picture(2)]).unwrap()[0])[0].bytes, small_output(2));
}

#[test]
fn the_last_attempt_is_shortly_before_the_end() {
    let begun = Arc::new(Mutex::new(Instant::now()));
    let since = begun.clone();
    let server = FakeServer::start(but(small(), move |method, _| {
        let is_away = method == "ModelInfer" && since.lock().unwrap().elapsed() < Duration::from_millis(350);
        is_away.then_some(Reply::Status(14, "unavailable"))
    }));
    let mut model = open_in_time(&server.address("small"), "500");
    // Attempts are after 0, 100, 300 and 450 ms. On a slow machine the last one may find no time for its answer.
    wait_until("an answer", LIMIT, || {
        *begun.lock().unwrap() = Instant::now();
        model.run(&[picture(1)]).is_ok()
    });
}

#[test]
fn requests_at_the_same_time_tell_once_that_the_server_is_away() {
    const RUNS: usize = 3;
    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    log::set_hook(|_, line| LINES.lock().unwrap().push(line.into()));
    let calls = AtomicUsize::new(0);
    let server = FakeServer::start(but(small(), move |method, _| {
        if method != "ModelInfer" {
            return None;
        }
        // All fail before one is tried again, and all are tried again before one is answered.
        let before = calls.fetch_add(1, Ordering::SeqCst) / RUNS * RUNS;
        wait_until("all requests", LIMIT, || calls.load(Ordering::SeqCst) >= before + RUNS);
        (before == 0).then_some(Reply::Status(14, "unavailable"))
    }));
    let address = server.address("small");
    let request = request(&address, 1, &[("request-timeout", "60000")]).unwrap();
    let mut model = request.with_parallel_runs(RUNS).load(&LoadContext::silent()).unwrap();
    let mut all = model.take_others();
    all.push(model);
    let run = |mut model: Box<dyn ModelInstance>| thread::spawn(move || model.run(&[picture(1)]).is_ok());
    let threads: Vec<_> = all.into_iter().map(run).collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    let lines = LINES.lock().unwrap();
    for said in ["is not there, and is tried again: unavailable", "answers again"] {
        let count = lines.iter().filter(|line| line.starts_with(&address) && line.contains(said)).count();
        assert_eq!(count, 1, "{said}: {lines:?}");
    }
}

#[test]
fn a_server_that_stays_away_is_an_error() {
    let server = FakeServer::start(answers(small()));
    let mut model = open_in_time(&server.address("small"), "300");
    drop(server);
    let text = model.run(&[picture(1)]).unwrap_err().message();
    assert!(text.contains("has not answered within 0.3 s"), "{text}");
}

#[test]
fn a_refusal_is_told_with_the_servers_words() {
    let server = FakeServer::start(but(small(), |method, _| {
        (method == "ModelInfer").then_some(Reply::Status(3, "unexpected shape%0A%C3%A4"))
    }));
    let text = open(&server.address("small"), 1, &[]).unwrap().run(&[picture(1)]).unwrap_err().message();
    assert!(text.contains("refuses a request: unexpected shape ä. Check the model on the server"), "{text}");
}

#[test]
fn a_server_without_the_model_is_named() {
    let side = i64::from(SIZE);
    let tensor = |name: &str, datatype: &str, shape: &[i64]| TensorMetadata {
        name: name.into(),
        datatype: datatype.into(),
        shape: shape.into(),
    };
    let with =
        |inputs: Vec<TensorMetadata>, outputs: Vec<TensorMetadata>| answers(FakeModel { inputs, outputs, ..small() });
    let images = || vec![tensor("images", "FP32", &[-1, 3, side, side])];
    let on = |method: &'static str, reply: fn() -> Reply| but(small(), move |called, _| (called == method).then(reply));
    for (handler, says) in [
        (
            answers(FakeModel { name: "other", ..small() }),
            "does not serve the model small: it is not ready. Check the model's name",
        ),
        (on("ModelReady", || Reply::Status(5, "unknown model")), "does not serve the model small: unknown model"),
        (
            on("ModelReady", || Reply::Status(14, "no available versions")),
            "does not serve the model small: no available versions",
        ),
        (on("ModelReady", || Reply::Message(vec![0xff])), "does not speak KServe v2 by gRPC: its answer to ModelReady"),
        (on("ModelReady", || Reply::Http("404")), "does not speak KServe v2 by gRPC: it answers with HTTP 404"),
        (
            on("ModelReady", || Reply::Bytes(b"HTTP/1.1 400 Bad Request".to_vec())),
            "so this is its port for HTTP. Check the port",
        ),
        (on("ModelReady", || Reply::Close), "no answer of a server at 127.0.0.1"),
        (on("ModelMetadata", || Reply::Message(vec![0x22; 2 << 20])), "the answer has more than"),
        (on("ModelMetadata", || Reply::Status(5, "gone")), "does not serve the model small: gone"),
        (with(images(), vec![]), "it says nothing of its outputs"),
        (with(vec![], vec![tensor("scores", "FP32", &[-1, 4])]), "it has no input for a picture"),
        (
            with(images(), vec![tensor("words", "BYTES", &[-1])]),
            "its tensor words are of the type BYTES. Serve it with FP32",
        ),
        (with(images(), vec![tensor("deep", "FP32", &[1; 17])]), "“deep” of 17 dimensions"),
        (with(vec![tensor("i", "FP32", &[1, 3, side, side]); 1025], vec![]), "nothing of its outputs"),
        (with(vec![tensor("i", "FP32", &[1, 3, side, side]); 1025], images()), "it has 1025 inputs or outputs"),
        (with(vec![tensor("i", "FP32", &[1, 3, 0, 9])], images()), "has no elements"),
    ] {
        let server = FakeServer::start(handler);
        let text = request(&server.address("small"), 1, &[]).err().expect(says).message();
        assert!(text.contains(says), "{says}: {text}");
    }
    let server = FakeServer::start(on("ModelReady", || Reply::Never));
    let text = request(&server.address("small"), 1, &[("request-timeout", "100")]).err().unwrap().message();
    assert!(text.contains("has not answered within 0.1 s"), "{text}");
    let nowhere = server.address("small");
    drop(server);
    let text = request(&nowhere, 1, &[]).err().unwrap().message();
    assert!(
        text.contains("There is no answer of a server at 127.0.0.1") && text.contains("Start the server"),
        "{text}"
    );
}

/// MLServer and OpenVINO Model Server have no ModelConfig; some say what they know as properties of the metadata.
#[test]
fn a_server_without_a_configuration_is_used() {
    let server = FakeServer::start(but(small(), |method, _| match method {
        "ModelConfig" | "ServerMetadata" => Some(Reply::Status(12, "unimplemented")),
        "ModelMetadata" => {
            let FakeModel { inputs, outputs, .. } = small();
            let names =
                InferParameter { int64_param: None, string_param: Some("{0: 'a', 1: 'b', 2: 'c', 3: 'd'}".into()) };
            let properties = [("names".into(), names.encode_to_vec()), ("task".into(), b"classify".to_vec())].into();
            let answer =
                ModelMetadataResponse { name: "small".into(), platform: "x\ny".into(), inputs, outputs, properties };
            Some(Reply::Message(answer.encode_to_vec()))
        }
        _ => None,
    }));
    let request = request(&server.address("small"), 2, &[]).unwrap();
    let model = request.model().clone();
    assert_eq!(
        (&model.labels[..], model.task.as_deref(), model.producer.as_str()),
        (&["a", "b", "c", "d"].map(String::from)[..], Some("classify"), "x y")
    );
    let outputs = request.load(&LoadContext::silent()).unwrap().run(&[picture(1), picture(2)]).unwrap();
    assert_eq!(plain(&outputs[1])[0].bytes, small_output(2));
}

#[test]
fn a_batch_that_the_server_does_not_take_is_refused_before_it_is_sent() {
    let server = FakeServer::start(answers(small()));
    let text = open(&server.address("small"), 9, &[]).err().unwrap().message();
    assert!(
        text.contains("batch-size is 9, and grpc://127.0.0.1")
            && text.contains("takes 8 pictures at most. Set batch-size=8"),
        "{text}"
    );
}

#[test]
fn an_address_is_for_this_backend_alone() {
    let of = |path: &str, backend: &'static str| {
        let none = || unreachable!("no GPU is asked for");
        LoadRequest::new(Path::new(path), backend.into(), None, 1, Options::default(), none).err().unwrap().message()
    };
    for backend in ["tensorrt", "onnxruntime", "rten"] {
        let text = of("grpc://me:Zq9@host/m", backend);
        assert!(text.starts_with("grpc://***@host/m is on a server, and ") && !text.contains("Zq9"), "{text}");
    }
    for backend in ["auto", "cpu", "kserve"] {
        assert!(
            of("grpc://me:Zq9@host/m", backend).contains("Cannot use the address grpc://***@host/m: it has a user")
        );
    }
    let text = of(MODEL, "kserve");
    assert!(text.contains("shapes.onnx is a file, and backend=kserve runs models on a server"), "{text}");
}
