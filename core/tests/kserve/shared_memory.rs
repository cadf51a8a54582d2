// SPDX-License-Identifier: MPL-2.0
//! Tensors that a server on this machine has in shared memory, and those that it cannot have there.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use super::*;

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
