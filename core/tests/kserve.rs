// SPDX-License-Identifier: MPL-2.0
//! Models on a server that answers right, late, never, or something else.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gsttrt_core::backends::log;
use gsttrt_core::backends::options::Options;
use gsttrt_core::backends::{BackendPreference, LoadContext, LoadRequest, ModelInstance, all_options};
use gsttrt_core::error::{ErrorKind, Result};
use gsttrt_core::tensor::{Tensor, Tensors};
use proptest::prelude::*;
use prost::Message;

use crate::cases::cases;
use crate::common::wait::{LIMIT, wait_until};
use crate::kserve_server::messages::*;
use crate::kserve_server::*;

#[path = "common/kserve_silent.rs"]
mod silent;

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
fn outputs_of_known_sizes_come_by_shared_memory() {
    let raw = Arc::new(AtomicUsize::new(0));
    let counted = raw.clone();
    let server = FakeServer::start(but(small(), move |method, message| {
        if method == "ModelInfer" {
            let request = WholeInferRequest::decode(message).unwrap();
            let outputs = request.outputs.iter().filter(|output| output.parameters.is_empty()).count();
            counted.fetch_add(request.raw.len() + outputs, Ordering::Relaxed);
        }
        None
    }));
    for (set, expected) in [("on", 0), ("auto", 0), ("off", 2)] {
        let mut model = open(&server.address("small/1"), 4, &[("shared-memory", set)]).unwrap();
        raw.store(0, Ordering::Relaxed);
        let outputs = model.run(&[picture(1), picture(2)]).unwrap();
        assert_eq!(raw.load(Ordering::Relaxed), expected, "{set}");
        let outputs: Vec<_> = outputs.iter().map(|tensors| plain(tensors)[0].bytes.clone()).collect();
        assert_eq!(outputs, [small_output(1), small_output(2)], "{set}");
        // More than the memory is for.
        assert_eq!(model.run(&[3, 4, 5, 6].map(picture)).unwrap().len(), 4, "{set}");
    }
}

/// Each of these is once in the way of giving memory back.
#[test]
fn no_shared_memory_stays_with_the_server() {
    type Failure = (&'static str, fn() -> Reply);
    const RUN: &str = "ModelInfer";
    const GIVE_BACK: &str = "SystemSharedMemoryUnregister";
    let failures: [Failure; 4] = [
        (RUN, || Reply::Close),
        (RUN, || Reply::Status(13, "the model fails")),
        (GIVE_BACK, || Reply::Close),
        (GIVE_BACK, || Reply::Status(13, "currently in use")),
    ];
    for (method, reply) in failures {
        let (calls, regions) = (Arc::new(AtomicUsize::new(0)), Arc::<Mutex<BTreeSet<String>>>::default());
        let (counted, known) = (calls.clone(), regions.clone());
        let server = FakeServer::start(but(small(), move |called, message| {
            if called == method && counted.fetch_add(1, Ordering::SeqCst) == 0 {
                return Some(reply());
            }
            note_region(&mut known.lock().unwrap(), called, message);
            None
        }));
        let mut model = open(&server.address("small"), 4, &[("shared-memory", "on")]).unwrap();
        let _ = model.run(&[picture(1)]); // the one that the model fails
        // The memory is too small, and is given back.
        assert_eq!(model.run(&[3, 4, 5, 6].map(picture)).unwrap().len(), 4);
        assert!(!regions.lock().unwrap().is_empty());
        drop(model);
        let calls = calls.load(Ordering::SeqCst);
        assert!(calls > 1 && regions.lock().unwrap().is_empty(), "{method}: {calls} calls");
    }
}

/// Which regions the server has, as it is told.
fn note_region(regions: &mut BTreeSet<String>, method: &str, message: &[u8]) {
    match method {
        "SystemSharedMemoryRegister" => {
            regions.insert(SystemSharedMemoryRegisterRequest::decode(message).unwrap().name);
        }
        "SystemSharedMemoryUnregister" => {
            regions.remove(&RegionName::decode(message).unwrap().name);
        }
        _ => {}
    }
}

/// A request was given up, so the server may still work on it, and keep its memory.
#[test]
fn shared_memory_of_a_request_without_an_answer_is_given_back() {
    for is_kept in [false, true] {
        let (calls, regions) = (Arc::new(AtomicUsize::new(0)), Arc::<Mutex<BTreeSet<String>>>::default());
        let keeps = Arc::new(AtomicBool::new(is_kept));
        let (counted, known, still) = (calls.clone(), regions.clone(), keeps.clone());
        let server = FakeServer::start(but(small(), move |method, message| {
            if method == "ModelInfer" && counted.fetch_add(1, Ordering::SeqCst) == 0 {
                return Some(Reply::Never);
            }
            if method == "SystemSharedMemoryUnregister" && still.load(Ordering::SeqCst) {
                return Some(Reply::Status(13, "currently in use"));
            }
            note_region(&mut known.lock().unwrap(), method, message);
            None
        }));
        let open = || open(&server.address("small"), 1, &[("shared-memory", "on"), ("request-timeout", "3600000")]);
        let mut model = open().unwrap();
        let interrupt = model.interrupter().unwrap();
        let waiting = thread::spawn(move || model.run(&[picture(1)]).unwrap_err().message());
        wait_until("the request", LIMIT, || calls.load(Ordering::SeqCst) == 1);
        interrupt();
        assert!(waiting.join().unwrap().contains("was given up"));
        assert_eq!(regions.lock().unwrap().len(), usize::from(is_kept), "the model is dropped");
        // Whoever comes next asks again.
        let mut model = open().unwrap();
        assert_eq!(plain(&model.run(&[picture(2)]).unwrap()[0])[0].bytes, small_output(2));
        keeps.store(false, Ordering::SeqCst);
        drop(model);
        assert!(regions.lock().unwrap().is_empty());
    }
}

#[test]
fn a_server_that_gives_up_no_shared_memory_is_named() {
    let server = FakeServer::start(but(small(), |method, _| match method {
        "ModelInfer" => Some(Reply::Status(13, "no")),
        "SystemSharedMemoryUnregister" => Some(Reply::Status(13, "never")),
        _ => None,
    }));
    let mut model = open(&server.address("small"), 1, &[("shared-memory", "on")]).unwrap();
    let texts: Vec<String> = (0..18).map(|_| model.run(&[picture(1)]).unwrap_err().message()).collect();
    assert!(texts[16].contains("refuses a request: no"), "{}", texts[16]);
    assert!(texts[17].contains("the server does not give up 17 parts of shared memory"), "{}", texts[17]);
}

/// As where another client has it give up all memory.
#[test]
fn shared_memory_that_a_server_forgets_is_registered_again() {
    let forgets = Arc::new(AtomicBool::new(false));
    let forgotten = forgets.clone();
    let server = FakeServer::start(but(small(), move |method, _| {
        let now = method == "ModelInfer" && forgotten.swap(false, Ordering::SeqCst);
        now.then_some(Reply::Status(5, "Unable to find shared memory region"))
    }));
    let mut model = open(&server.address("small"), 1, &[("shared-memory", "on")]).unwrap();
    model.run(&[picture(1)]).unwrap();
    forgets.store(true, Ordering::SeqCst);
    assert_eq!(plain(&model.run(&[picture(2)]).unwrap()[0])[0].bytes, small_output(2));
    assert!(!forgets.load(Ordering::SeqCst), "it was refused once");
}

#[test]
fn outputs_that_are_not_in_shared_memory_are_never_taken_from_there() {
    let next = Arc::<Mutex<Option<Vec<u8>>>>::default();
    let taken = next.clone();
    let server = FakeServer::start(but(small(), move |method, _| {
        if method == "ModelInfer" { taken.lock().unwrap().take().map(Reply::Message) } else { None }
    }));
    let mut model = open(&server.address("small"), 1, &[("shared-memory", "on")]).unwrap();
    model.run(&[picture(1)]).unwrap();
    for raw in [vec![Vec::new()], Vec::new()] {
        let (name, datatype) = ("scores".into(), "FP32".into());
        let outputs = vec![InferOutputTensor { name, datatype, shape: vec![1, 4], contents: None }];
        *next.lock().unwrap() = Some(WholeInferResponse { outputs, raw }.encode_to_vec());
        let text = model.run(&[picture(2)]).unwrap_err().message();
        assert!(text.contains("output scores f32 1x4 is neither in shared memory nor sent"), "{text}");
        assert_eq!(plain(&model.run(&[picture(3)]).unwrap()[0])[0].bytes, small_output(3), "the next one");
    }
}

/// In a container, on another machine, or by another server.
#[test]
fn without_shared_memory_tensors_are_sent() {
    let without = FakeModel { extensions: &[], ..small() };
    let refuses =
        but(small(), |method, _| (method == "SystemSharedMemoryRegister").then_some(Reply::Status(3, "no region")));
    for (handler, says) in [(answers(without), "does not have the extension"), (refuses, "no region")] {
        let server = FakeServer::start(handler);
        let address = server.address("small");
        assert_eq!(plain(&open(&address, 1, &[]).unwrap().run(&[picture(3)]).unwrap()[0])[0].bytes, small_output(3));
        let error = open(&address, 1, &[("shared-memory", "on")]).unwrap().run(&[picture(3)]).unwrap_err().message();
        assert!(error.contains(says), "{error}");
    }
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

/// What is answered to a run, and what is said of it.
fn wrong_answers() -> Vec<(Reply, &'static str)> {
    let right = (small().run)(&plain(&picture(1)));
    let [PlainTensor { name, datatype, shape, bytes }] = &right[..] else { panic!("one") };
    let answer = |name: &str, datatype: &str, shape: &[i64], raw: &[&[u8]]| {
        let output =
            InferOutputTensor { name: name.into(), datatype: datatype.into(), shape: shape.into(), contents: None };
        let raw = raw.iter().map(|raw| raw.to_vec()).collect();
        WholeInferResponse { outputs: vec![output], raw }.encode_to_vec()
    };
    let of =
        |name: &str, datatype: &str, shape: &[i64], raw: &[&[u8]]| Reply::Message(answer(name, datatype, shape, raw));
    let whole = answer(name, datatype, shape, &[bytes]);
    let headers = frame(1, 4, 1, &[0x88]);
    let huge = [&headers[..], &[0x10, 0, 1, 0, 0, 0, 0, 0, 1]].concat();
    vec![
        (of("other", datatype, shape, &[bytes]), "output scores is missing"),
        (Reply::Message(Vec::new()), "output scores is missing"),
        (of(name, "INT32", shape, &[bytes]), "output scores f32 ?x4 comes as INT32 1x4"),
        (of(name, "", shape, &[bytes]), "comes as"),
        (of(name, datatype, &[1, 5], &[bytes]), "comes as FP32 1x5"),
        (of(name, datatype, &[4], &[bytes]), "comes as FP32 4"),
        (of(name, datatype, &[-1, 4], &[bytes]), "comes as FP32 ?x4"),
        (of(name, datatype, &[i64::MAX, 4], &[bytes]), "is too large"),
        (of(name, datatype, &[1 << 40, 4], &[bytes]), "has 16 bytes in place of 17592186044416"),
        (of(name, datatype, shape, &[&bytes[..15]]), "has 15 bytes in place of 16"),
        (of(name, datatype, shape, &[&[&bytes[..], &[0]].concat()]), "has 17 bytes in place of 16"),
        (of(name, datatype, shape, &[]), "has no bytes"),
        (of(name, datatype, shape, &[bytes, bytes]), "not the protocol's"),
        (Reply::Message(whole[..whole.len() - 1].to_vec()), "was cut"),
        (Reply::Message(vec![0xff; 100]), "not the protocol's"),
        (Reply::Message([0x2a, 0, 0x2a, 0].repeat(600)), "not the protocol's"),
        (Reply::Message(vec![0; 3 << 20]), "the answer has more than"),
        (Reply::Http("404"), "HTTP 404, so it is no server of gRPC"),
        (Reply::Bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), "its port for HTTP"),
        (Reply::Bytes(vec![0x15, 3, 3, 0, 2, 2, 70, 0, 0]), "it speaks TLS"),
        (Reply::Bytes(vec![0xff; 100]), "longer than asked for"),
        (Reply::Bytes(huge), "longer than asked for"),
        (Reply::Bytes(frame(1, 4, 1, &[0xbe])), "its headers cannot be read"),
        (Reply::Bytes(frame(1, 8 | 4, 1, &[9, 0])), "padding is longer"),
        (Reply::Bytes(frame(0, 8, 1, &[9, 0])), "padding is longer"),
        (Reply::Bytes(frame(9, 4, 1, &[0x88])), "headers that nothing asked for"),
        (Reply::Bytes(frame(8, 0, 0, &[0; 4])), "no such size"),
        (Reply::Bytes(frame(4, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff])), "no such size"),
        (Reply::Bytes([frame(1, 0, 1, &[0x88]), frame(6, 0, 0, &[0; 8])].concat()), "headers do not go on"),
    ]
}

#[test]
fn what_is_no_answer_is_an_error_and_the_next_frame_goes_on() {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let next = answers.clone();
    let server =
        FakeServer::start(but(
            small(),
            move |method, _| {
                if method == "ModelInfer" { next.lock().unwrap().pop() } else { None }
            },
        ));
    let mut model = open(&server.address("small"), 1, &[("shared-memory", "off")]).unwrap();
    for (reply, says) in wrong_answers() {
        answers.lock().unwrap().push(reply);
        // On a connection of its own, so that the numbers in the frames are right.
        let mut other = open(&server.address("small"), 1, &[("shared-memory", "off")]).unwrap();
        let error = other.run(&[picture(1)]).unwrap_err();
        let text = error.message();
        assert!(error.kind() == ErrorKind::Run && text.contains(says), "{says}: {text}");
        assert!(text.contains("127.0.0.1") && text.contains("Check "), "{text}");
        assert_eq!(plain(&other.run(&[picture(2)]).unwrap()[0])[0].bytes, small_output(2), "{says}");
    }
    // Numbers that are none are numbers.
    let nan = [f32::NAN; 4].map(f32::to_le_bytes).concat();
    let output =
        InferOutputTensor { name: "scores".into(), datatype: "FP32".into(), shape: vec![1, 4], contents: None };
    let contents = InferOutputTensor { contents: Some([&[0x32, 16], &nan[..]].concat()), ..output.clone() };
    for (output, raw) in [(output, vec![nan.clone()]), (contents, Vec::new())] {
        let answer = WholeInferResponse { outputs: vec![output], raw }.encode_to_vec();
        answers.lock().unwrap().push(Reply::Message(answer));
        assert_eq!(plain(&model.run(&[picture(1)]).unwrap()[0])[0].bytes, nan);
    }
}

proptest! {
    #![proptest_config(cases(60))]
    #[test]
    fn any_answer_ends(
        begin in 0usize..4,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        kind in 0u8..11, flags in any::<u8>(), length in 0usize..40,
    ) {
        // Frames with any content, or no frames.
        let bytes = match begin {
            0 => bytes,
            1 => [frame(1, 4, 1, &[0x88]), bytes].concat(),
            2 => frame(kind, flags, 1, &bytes[..length.min(bytes.len())]),
            _ => [frame(1, 4, 1, &[0x88]), frame(kind, flags, 1, &bytes[..length.min(bytes.len())])].concat(),
        };
        let reply = Mutex::new(Some(Reply::Bytes(bytes)));
        let handler = but(small(), move |method, _| if method == "ModelInfer" { reply.lock().unwrap().take() } else { None });
        let server = FakeServer::start(handler);
        let mut model = open(&server.address("small"), 1, &[("shared-memory", "off")]).unwrap();
        // The connection ends behind it: then it is tried again.
        if let Ok(outputs) = model.run(&[picture(1)]) {
            prop_assert_eq!(&plain(&outputs[0])[0].bytes, &small_output(1));
        }
    }
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
