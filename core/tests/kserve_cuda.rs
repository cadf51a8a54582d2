// SPDX-License-Identifier: MPL-2.0
//! Tensors that stay on the GPU for a model on a server. The GPU is the stand-in of tests/fakes, whose memory is the host's, and the
//! server is in the same process: it opens regions by their handles as another process would.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::{ptr, thread};

use gsttrt_core::backends::options::Options;
use gsttrt_core::backends::{BackendPreference, LoadContext, LoadRequest, ModelInstance, Placement};
use gsttrt_core::cuda::driver::Stream;
use gsttrt_core::device::Device;
use gsttrt_core::error::{Error, Result};
use gsttrt_core::memory::DevicePool;
use gsttrt_core::session::{Session, parse_options};
use gsttrt_core::tensor::{Tensor, Tensors};
use prost::Message;

use crate::common::wait::{LIMIT, wait_until};
use crate::fakes::Fakes;
use crate::kserve::{but, options, picture, picture_of, small, small_output};
use crate::kserve_server::messages::*;
use crate::kserve_server::*;
use crate::server_memory::ServerMemory;

/// [`small`] on a server with a GPU.
fn on_gpu() -> FakeModel {
    FakeModel { extensions: &["system_shared_memory", "cuda_shared_memory"], ..small() }
}

/// Answers with a GPU, but for some of the calls.
fn gpu_but(
    model: FakeModel,
    memory: &Arc<ServerMemory>,
    other: impl Fn(&str, &[u8]) -> Option<Reply> + Send + Sync + 'static,
) -> Handler {
    let usual = answers_with(model, Some(memory.clone()));
    Arc::new(move |method, message| other(method, message).unwrap_or_else(|| usual(method, message)))
}

fn request(fakes: &Fakes, address: &str, batch: usize, more: &[(&str, &str)]) -> Result<LoadRequest> {
    let set = [&[("shared-memory", "cuda")], more].concat();
    let context = fakes.context();
    LoadRequest::new(Path::new(address), BackendPreference::Auto, None, batch, options(&set), || Ok(context))
}

fn open(fakes: &Fakes, address: &str, batch: usize) -> Result<Box<dyn ModelInstance>> {
    request(fakes, address, batch, &[])?.load(&LoadContext::silent())
}

/// The picture of that number in GPU memory.
fn gpu_picture(fakes: &Fakes, seed: usize) -> Result<Arc<Tensors>> {
    uploaded(fakes, &picture(seed))
}

/// A picture in GPU memory, behind a fence.
fn uploaded(fakes: &Fakes, picture: &Tensors) -> Result<Arc<Tensors>> {
    let context = fakes.context();
    let bytes = picture[0].bytes().unwrap();
    let mut block = DevicePool::new(&context).take(bytes.len())?;
    block.write(bytes)?;
    let ready = Stream::new(&context)?.record()?;
    let tensor = Tensor::on_device(picture[0].desc().clone(), block);
    Ok(Arc::new(Tensors::new(vec![tensor], Some(ready), None)))
}

/// The bytes of the one output, which is on the GPU.
fn output(outputs: Tensors) -> Result<Vec<u8>> {
    let outputs = outputs.into_ready()?;
    outputs[0].device().expect("it stays there").read()
}

fn run(fakes: &Fakes, model: &mut dyn ModelInstance, seeds: &[usize]) -> Result<Vec<Vec<u8>>> {
    let pictures = seeds.iter().map(|&seed| gpu_picture(fakes, seed)).collect::<Result<Vec<_>>>()?;
    model.run(&pictures)?.into_iter().map(output).collect()
}

fn outputs_of(seeds: &[usize]) -> Vec<Vec<u8>> {
    seeds.iter().map(|&seed| small_output(seed)).collect()
}

/// Nothing was freed too early, and nothing stays with the server.
fn check_memory(fakes: &Fakes) {
    assert_eq!(fakes.count(c"fake_frees_of_opened"), 0, "memory was freed that the server had open");
    assert_eq!(fakes.count(c"fake_opened"), 0, "the server still has memory open");
    assert_eq!(fakes.count(c"fake_busy_frees"), 0, "memory was freed that queued work uses");
    assert_eq!(fakes.count(c"fake_pending"), 0, "work was queued that nothing waits for");
    assert_eq!(fakes.count(c"fake_mixed"), 0, "work of one context had memory of another");
}

/// The names of the regions in a request, and how many tensors are in none.
fn regions_of(message: &[u8]) -> (Vec<String>, usize) {
    let request = WholeInferRequest::decode(message).unwrap();
    let inputs = request.inputs.into_iter().map(|input| input.parameters);
    let all = inputs.chain(request.outputs.into_iter().map(|output| output.parameters));
    let names: Vec<Option<String>> =
        all.map(|parameters| parameters.get("shared_memory_region")?.string_param.clone()).collect();
    let sent = names.iter().filter(|name| name.is_none()).count() + request.raw.len();
    (names.into_iter().flatten().collect(), sent)
}

#[test]
fn tensors_stay_on_the_gpu() {
    let Some(fakes) = Fakes::of(module_path!(), "tensors_stay_on_the_gpu") else { return };
    let (memory, sent) = (ServerMemory::new(fakes.context()), Arc::new(AtomicUsize::new(0)));
    let counted = sent.clone();
    let server = FakeServer::start(gpu_but(on_gpu(), &memory, move |method, message| {
        assert!(!method.starts_with("SystemSharedMemory"), "{method}");
        if method == "ModelInfer" {
            counted.fetch_add(regions_of(message).1, Ordering::SeqCst);
        }
        None
    }));
    let address = server.address("small");
    for batch in [1, 4] {
        let mut model = open(&fakes, &address, batch).unwrap();
        for seeds in [&[1][..], &[2, 3, 4, 5][..batch], &[6, 7][..batch.min(2)]] {
            assert_eq!(run(&fakes, &mut *model, seeds).unwrap(), outputs_of(seeds));
        }
        assert_eq!(fakes.count(c"fake_opened"), 1, "one region is used again");
        // Outputs are kept while other requests use the region.
        let pictures = [8, 9].map(|seed| gpu_picture(&fakes, seed).unwrap());
        let [kept, _] = pictures.map(|picture| model.run(&[picture]).unwrap().remove(0));
        assert_eq!(output(kept).unwrap(), small_output(8));
        drop(model);
        check_memory(&fakes);
    }
    assert_eq!(sent.load(Ordering::SeqCst), 0, "no tensor was sent");
}

#[test]
fn memory_grows_with_the_pictures() {
    let Some(fakes) = Fakes::of(module_path!(), "memory_grows_with_the_pictures") else { return };
    let images = TensorMetadata { name: "images".into(), datatype: "FP32".into(), shape: vec![-1, 3, -1, -1] };
    let of_any_size = FakeModel { inputs: vec![images], ..on_gpu() };
    let server = FakeServer::start(answers_with(of_any_size, Some(ServerMemory::new(fakes.context()))));
    let (address, context) = (server.address("small"), fakes.context());
    let (cuda, size) = (options(&[("shared-memory", "cuda")]), Some((64, 64)));
    let request = LoadRequest::new(Path::new(&address), BackendPreference::Auto, size, 1, cuda, || Ok(context));
    let mut model = request.unwrap().load(&LoadContext::silent()).unwrap();
    let (mut bytes, mut kept) = (Vec::new(), Vec::new());
    for side in [64, 1024, 32] {
        let picture = picture_of(side, 5);
        // Nothing waits for its outputs before the next one is sent.
        kept.push(model.run(&[uploaded(&fakes, &picture).unwrap()]).unwrap().remove(0));
        bytes.push(model.working_bytes());
        assert_eq!(fakes.count(c"fake_opened"), 1, "what was too small is freed");
    }
    assert!(bytes[0] < bytes[1] && bytes[1] - bytes[0] > 9 << 20 && bytes[2] - bytes[1] < 1 << 20, "{bytes:?}");
    let first = picture_of(64, 5)[0].bytes().unwrap()[..16].to_vec();
    assert!(kept.into_iter().all(|outputs| output(outputs).unwrap() == first));
    drop(model);
    check_memory(&fakes);
}

#[test]
fn the_device_is_that_of_the_option() {
    let Some(fakes) = Fakes::of(module_path!(), "the_device_is_that_of_the_option") else { return };
    let server = FakeServer::start(answers_with(on_gpu(), Some(ServerMemory::new(fakes.context()))));
    let address = server.address("small");
    let path = Path::new(&address);
    for (value, device) in [("auto", Device::Host), ("off", Device::Host), ("on", Device::Host), ("cuda", Device::Cuda)]
    {
        let options = options(&[("shared-memory", value)]);
        let context = fakes.context();
        for preference in [BackendPreference::Auto, BackendPreference::Named("kserve")] {
            assert_eq!(Placement::is_for_gpu(path, preference, &options), device == Device::Cuda, "{value}");
            let place = Placement::new(path, preference, options.clone(), || Ok(context.clone())).unwrap();
            assert_eq!(place.gpu(), (device == Device::Cuda).then_some(0), "{value}");
            let request = place.describe(None, 1).unwrap();
            assert_eq!((request.device(), request.spec.device), (device, device), "{value}");
        }
        // It is for tensors of the host.
        let on_cpu = Placement::new(path, BackendPreference::Named("cpu"), options, || Ok(context));
        assert_eq!(on_cpu.is_ok(), device == Device::Host, "{value}");
    }
}

#[test]
fn a_session_runs_on_memory_of_the_gpu() {
    let Some(fakes) = Fakes::of(module_path!(), "a_session_runs_on_memory_of_the_gpu") else { return };
    let memory = ServerMemory::new(fakes.context());
    let server = FakeServer::start(answers_with(on_gpu(), Some(memory)));
    let (options, _) = parse_options(["shared-memory=cuda", "cuda-device-id=0"]).unwrap();
    let mut session = Session::open(server.address("small"), &options).unwrap();
    assert_eq!((session.backend(), session.warnings()), ("kserve", &[][..]));
    assert!(session.cuda().is_ok());
    let input = picture(3)[0].bytes().unwrap().to_vec();
    assert_eq!(session.run_bytes(&input).unwrap()[0].bytes().unwrap(), small_output(3));
    // Its own buffers.
    session.copy_bytes_to_device(&input).unwrap();
    let mut scores = [0; 16];
    session.run_buffers().unwrap().expect("a fence").wait().unwrap();
    session.copy_bytes_to_host(0, &mut scores).unwrap();
    assert_eq!(scores[..], small_output(3));
    // A caller's.
    let input = picture(4)[0].bytes().unwrap().to_vec();
    let room = input.len().next_multiple_of(256);
    let mut block = DevicePool::new(&fakes.context()).take(room + 16).unwrap();
    block.write(&input).unwrap();
    fakes.memory(block.address() as *const u8, block.bytes(), 0, false);
    let stream = Stream::new(&fakes.context()).unwrap();
    for callers in [ptr::null_mut(), stream.raw()] {
        // SAFETY: stream and memory stay until the fence is passed.
        let done = unsafe { session.run_device(block.address(), &[block.address() + room as u64], callers) };
        done.unwrap().wait().unwrap();
        assert_eq!(block.part(room, 16).read().unwrap(), small_output(4));
        block.part(room, 16).write(&[0; 16]).unwrap();
    }
    drop((session, stream));
    check_memory(&fakes);
}

#[test]
fn requests_at_the_same_time_have_memory_of_their_own() {
    let Some(fakes) = Fakes::of(module_path!(), "requests_at_the_same_time_have_memory_of_their_own") else { return };
    let (memory, names) = (ServerMemory::new(fakes.context()), Arc::<Mutex<Vec<String>>>::default());
    let seen = names.clone();
    let server = FakeServer::start(gpu_but(on_gpu(), &memory, move |method, message| {
        if method == "ModelInfer" {
            seen.lock().unwrap().push(regions_of(message).0.remove(0));
            wait_until("all requests", LIMIT, || seen.lock().unwrap().len() >= 3);
        }
        None
    }));
    let request = request(&fakes, &server.address("small"), 1, &[]).unwrap();
    let mut model = request.with_parallel_runs(3).load(&LoadContext::silent()).unwrap();
    let mut all = model.take_others();
    all.push(model);
    let pictures: Vec<_> = (0..3).map(|seed| gpu_picture(&fakes, seed).unwrap()).collect();
    let run = |((seed, mut model), picture): ((usize, Box<dyn ModelInstance>), Arc<Tensors>)| {
        thread::spawn(move || output(model.run(&[picture]).unwrap().remove(0)).unwrap() == small_output(seed))
    };
    let threads: Vec<_> = all.into_iter().enumerate().zip(pictures).map(run).collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    let mut names = names.lock().unwrap().clone();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3, "{names:?}");
    check_memory(&fakes);
}

/// A model that takes four pictures, and two tensors for each.
#[test]
fn a_batch_that_is_not_full_has_zeros() {
    let Some(fakes) = Fakes::of(module_path!(), "a_batch_that_is_not_full_has_zeros") else { return };
    let metadata = |name: &str, datatype: &str, shape: &[i64]| TensorMetadata {
        name: name.into(),
        datatype: datatype.into(),
        shape: shape.into(),
    };
    let inputs = vec![metadata("orig_target_sizes", "INT64", &[4, 2]), metadata("images", "FP32", &[4, 3, 64, 64])];
    let outputs = vec![metadata("scores", "FP32", &[4, 4])];
    let run = |inputs: &[PlainTensor]| {
        let sizes: Vec<i64> =
            inputs[0].bytes.chunks(8).map(|size| i64::from_le_bytes(size.try_into().unwrap())).collect();
        assert_eq!(
            (sizes, &inputs[0].shape[..], &inputs[1].shape[..]),
            (vec![64; 8], &[4, 2][..], &[4, 3, 64, 64][..])
        );
        let rows = inputs[1].bytes.chunks(inputs[1].bytes.len() / 4);
        let bytes: Vec<u8> = rows.clone().flat_map(|row| row[..16].to_vec()).collect();
        assert!(rows.clone().any(|row| row.iter().any(|&byte| byte != 0)));
        assert!(rows.last().unwrap().iter().all(|&byte| byte == 0), "of no picture");
        vec![PlainTensor { name: "scores".into(), datatype: "FP32".into(), shape: vec![4, 4], bytes }]
    };
    let fixed = FakeModel { inputs, outputs, max_batch_size: 0, run: Arc::new(run), ..on_gpu() };
    let server = FakeServer::start(answers_with(fixed, Some(ServerMemory::new(fakes.context()))));
    let mut model = open(&fakes, &server.address("small"), 4).unwrap();
    for seeds in [&[1, 2, 3][..], &[4], &[5, 6]] {
        assert_eq!(self::run(&fakes, &mut *model, seeds).unwrap(), outputs_of(seeds));
    }
    drop(model);
    check_memory(&fakes);
}

#[test]
fn where_tensors_cannot_stay_there_is_an_error() {
    let Some(fakes) = Fakes::of(module_path!(), "where_tensors_cannot_stay_there_is_an_error") else { return };
    let memory = ServerMemory::new(fakes.context());
    let refuses = |method: &'static str| {
        gpu_but(on_gpu(), &memory, move |called, _| (called == method).then_some(Reply::Status(3, "invalid argument")))
    };
    let open_sizes = FakeModel { max_batch_size: 0, ..on_gpu() };
    for (handler, says) in [
        (answers(small()), "the server does not have the extension cuda_shared_memory"),
        (
            answers_with(open_sizes, Some(memory.clone())),
            "the sizes of the model's outputs are known only with the answer: scores f32 ?x4",
        ),
        (refuses("CudaSharedMemoryRegister"), "it refuses memory of GPU 0, invalid argument"),
    ] {
        let server = FakeServer::start(handler);
        let address = server.address("small");
        let text = open(&fakes, &address, 1).err().expect("before the first frame").message();
        assert!(
            text.contains(&format!("shared-memory=cuda cannot be with {address}: {says}. It needs a server")),
            "{text}"
        );
        assert!(text.contains("--ipc=host") && text.contains("or set shared-memory=auto"), "{text}");
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/shapes.onnx");
    let (cuda, _) = parse_options(["shared-memory=cuda", "backend=rten"]).unwrap();
    let text = Session::open(file, &cuda).unwrap_err().message();
    assert!(text.contains("shared-memory=cuda needs a server (KServe v2), and the model runs on the CPU"), "{text}");
    // Tensors of another GPU, or of the host.
    let server = FakeServer::start(answers_with(on_gpu(), Some(memory.clone())));
    let mut model = open(&fakes, &server.address("small"), 1).unwrap();
    let text = model.run(&[picture(1)]).unwrap_err().message();
    assert!(text.contains("The tensor is not one of images f32 1x3x64x64 in the memory of GPU 0"), "{text}");
    drop(model);
    check_memory(&fakes);
}

#[test]
fn a_server_that_goes_away_in_between_is_found_again() {
    let Some(fakes) = Fakes::of(module_path!(), "a_server_that_goes_away_in_between_is_found_again") else { return };
    let memory = ServerMemory::new(fakes.context());
    for reply in [|| Reply::Close, || Reply::GoAway, || Reply::Status(14, "unavailable"), || Reply::Http("503")] {
        for method in ["ModelInfer", "CudaSharedMemoryRegister"] {
            let calls = Arc::new(AtomicUsize::new(0));
            let counted = calls.clone();
            let server = FakeServer::start(gpu_but(on_gpu(), &memory, move |called, _| {
                (called == method && counted.fetch_add(1, Ordering::SeqCst) < 2).then(reply)
            }));
            let mut model = open(&fakes, &server.address("small"), 1).unwrap();
            assert_eq!(run(&fakes, &mut *model, &[2]).unwrap(), outputs_of(&[2]));
            assert_eq!(calls.load(Ordering::SeqCst), 3);
            drop(model);
            check_memory(&fakes);
        }
    }
    // It ends, and another one knows nothing of the region.
    let server = FakeServer::start(answers_with(on_gpu(), Some(memory.clone())));
    let (port, address) = (server.port, server.address("small"));
    let mut model = open(&fakes, &address, 1).unwrap();
    run(&fakes, &mut *model, &[1]).unwrap();
    drop(server);
    let picture = gpu_picture(&fakes, 3).unwrap();
    let waiting = thread::spawn(move || (output(model.run(&[picture]).unwrap().remove(0)).unwrap(), model));
    memory.close_all();
    let server = FakeServer::at(port, answers_with(on_gpu(), Some(memory.clone())));
    let (found, model) = waiting.join().unwrap();
    assert_eq!(found, small_output(3));
    // The memory is freed where the server has ended.
    drop(server);
    memory.close_all();
    drop(model);
    check_memory(&fakes);
}

/// As where another client has it give up all memory.
#[test]
fn memory_that_a_server_forgets_is_registered_again() {
    let Some(fakes) = Fakes::of(module_path!(), "memory_that_a_server_forgets_is_registered_again") else { return };
    let (memory, forgets) = (ServerMemory::new(fakes.context()), Arc::new(AtomicBool::new(false)));
    let (closed, forgotten) = (memory.clone(), forgets.clone());
    let server = FakeServer::start(gpu_but(on_gpu(), &memory, move |method, _| {
        let now = method == "ModelInfer" && forgotten.swap(false, Ordering::SeqCst);
        now.then(|| {
            closed.close_all();
            Reply::Status(3, "Unable to find shared memory region")
        })
    }));
    let mut model = open(&fakes, &server.address("small"), 1).unwrap();
    run(&fakes, &mut *model, &[1]).unwrap();
    forgets.store(true, Ordering::SeqCst);
    assert_eq!(run(&fakes, &mut *model, &[2]).unwrap(), outputs_of(&[2]));
    assert!(!forgets.load(Ordering::SeqCst), "it was refused once");
    drop(model);
    check_memory(&fakes);
}

/// A request was given up, so the server may still write. It says that it gives the memory up, and keeps it until it is done.
#[test]
fn memory_that_a_server_still_uses_is_not_freed() {
    let Some(fakes) = Fakes::of(module_path!(), "memory_that_a_server_still_uses_is_not_freed") else { return };
    // Whether it has the memory it says, or does not.
    let statuses: [fn() -> Option<Reply>; 2] = [|| None, || Some(Reply::Status(13, "busy"))];
    for status in statuses {
        let (memory, is_busy) = (ServerMemory::new(fakes.context()), Arc::new(AtomicBool::new(true)));
        let (first, still) = (Arc::<Mutex<Option<String>>>::default(), is_busy.clone());
        let in_work = first.clone();
        let server = FakeServer::start(gpu_but(on_gpu(), &memory, move |method, message| {
            let mut first = first.lock().unwrap();
            let named = |name: &Option<String>| name.as_ref() == Some(&RegionName::decode(message).unwrap().name);
            match method {
                "ModelInfer" if first.is_none() => {
                    *first = Some(regions_of(message).0.remove(0));
                    Some(Reply::Never)
                }
                "CudaSharedMemoryUnregister" if still.load(Ordering::SeqCst) && named(&first) => {
                    Some(Reply::Message(Vec::new()))
                }
                "CudaSharedMemoryStatus" if still.load(Ordering::SeqCst) && named(&first) => status(),
                _ => None,
            }
        }));
        let address = server.address("small");
        let mut model = open(&fakes, &address, 1).unwrap();
        let (interrupt, picture) = (model.interrupter().unwrap(), gpu_picture(&fakes, 1).unwrap());
        let waiting = thread::spawn(move || model.run(&[picture]).unwrap_err().message());
        wait_until("the request", LIMIT, || in_work.lock().unwrap().is_some());
        interrupt();
        assert!(waiting.join().unwrap().contains("was given up"));
        assert_eq!((fakes.count(c"fake_opened"), fakes.count(c"fake_frees_of_opened")), (1, 0));
        // The next one has memory of its own, and frees the first once the server has given it up.
        let mut model = open(&fakes, &address, 1).unwrap();
        assert_eq!(run(&fakes, &mut *model, &[2]).unwrap(), outputs_of(&[2]));
        assert_eq!(fakes.count(c"fake_opened"), 2);
        is_busy.store(false, Ordering::SeqCst);
        drop(model);
        check_memory(&fakes);
    }
}

/// The server hangs with as many requests as a pipeline has at the same time.
#[test]
fn memory_that_others_have_left_does_not_keep_the_next_from_running() {
    let test = "memory_that_others_have_left_does_not_keep_the_next_from_running";
    let Some(fakes) = Fakes::of(module_path!(), test) else { return };
    const RUNS: usize = 20;
    let (memory, calls) = (ServerMemory::new(fakes.context()), Arc::new(AtomicUsize::new(0)));
    let keeps = Arc::new(AtomicBool::new(true));
    let (counted, still) = (calls.clone(), keeps.clone());
    let server = FakeServer::start(gpu_but(on_gpu(), &memory, move |method, _| match method {
        "ModelInfer" if counted.fetch_add(1, Ordering::SeqCst) < RUNS => Some(Reply::Never),
        "CudaSharedMemoryUnregister" if still.load(Ordering::SeqCst) => Some(Reply::Message(Vec::new())),
        _ => None,
    }));
    let address = server.address("small");
    let request = request(&fakes, &address, 1, &[("request-timeout", "3600000")]).unwrap();
    let mut model = request.with_parallel_runs(RUNS).load(&LoadContext::silent()).unwrap();
    let mut all = model.take_others();
    all.push(model);
    let interrupts: Vec<_> = all.iter().map(|model| model.interrupter().unwrap()).collect();
    let picture = gpu_picture(&fakes, 1).unwrap();
    let hang = |mut model: Box<dyn ModelInstance>| {
        let picture = picture.clone();
        thread::spawn(move || model.run(&[picture]).is_err())
    };
    let threads: Vec<_> = all.into_iter().map(hang).collect();
    wait_until("all requests", LIMIT, || calls.load(Ordering::SeqCst) == RUNS);
    interrupts.iter().for_each(|interrupt| interrupt());
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    assert_eq!(usize::try_from(fakes.count(c"fake_opened")), Ok(RUNS));
    let mut model = open(&fakes, &address, 1).unwrap();
    assert_eq!(run(&fakes, &mut *model, &[2]).unwrap(), outputs_of(&[2]));
    keeps.store(false, Ordering::SeqCst);
    drop(model);
    check_memory(&fakes);
}

#[test]
fn a_server_that_gives_up_nothing_is_named() {
    let Some(fakes) = Fakes::of(module_path!(), "a_server_that_gives_up_nothing_is_named") else { return };
    let memory = ServerMemory::new(fakes.context());
    let server = FakeServer::start(gpu_but(on_gpu(), &memory, |method, _| match method {
        "ModelInfer" => Some(Reply::Status(13, "no")),
        "CudaSharedMemoryUnregister" => Some(Reply::Status(13, "never")),
        _ => None,
    }));
    let mut model = open(&fakes, &server.address("small"), 1).unwrap();
    // The first request has the memory of the start, and then other memory.
    let texts: Vec<String> = (0..17).map(|_| run(&fakes, &mut *model, &[1]).unwrap_err().message()).collect();
    assert!(texts[15].contains("refuses a request: no"), "{}", texts[15]);
    assert!(texts[16].contains("does not give up 17 parts of the GPU's memory"), "{}", texts[16]);
    drop(model);
    assert_eq!((fakes.count(c"fake_opened"), fakes.count(c"fake_frees_of_opened")), (17, 0));
}

/// What the server says of the outputs, and what is made of it.
#[test]
fn outputs_that_are_not_in_the_memory_are_never_taken_from_there() {
    let Some(fakes) = Fakes::of(module_path!(), "outputs_that_are_not_in_the_memory_are_never_taken_from_there") else {
        return;
    };
    let (memory, next) = (ServerMemory::new(fakes.context()), Arc::<Mutex<Option<Vec<u8>>>>::default());
    let taken = next.clone();
    let server = FakeServer::start(gpu_but(on_gpu(), &memory, move |method, _| {
        if method == "ModelInfer" { taken.lock().unwrap().take().map(Reply::Message) } else { None }
    }));
    let mut model = open(&fakes, &server.address("small"), 4).unwrap();
    run(&fakes, &mut *model, &[1]).unwrap();
    let answer = |shape: &[i64], raw: &[&[u8]], contents: Option<Vec<u8>>| {
        let (name, datatype) = ("scores".into(), "FP32".into());
        let outputs = vec![InferOutputTensor { name, datatype, shape: shape.into(), contents }];
        WholeInferResponse { outputs, raw: raw.iter().map(|raw| raw.to_vec()).collect() }.encode_to_vec()
    };
    let wanted = small_output(2);
    let contents = [&[0x32, 16][..], &wanted].concat();
    // Sent in spite of the memory.
    for sent in [answer(&[1, 4], &[&wanted], None), answer(&[1, 4], &[], Some(contents))] {
        *next.lock().unwrap() = Some(sent);
        assert_eq!(run(&fakes, &mut *model, &[2]).unwrap(), outputs_of(&[2]));
    }
    for (wrong, says) in [
        (answer(&[1, 4], &[&[]], None), "output scores f32 1x4 is neither in the GPU's memory nor sent"),
        (answer(&[1, 4], &[], None), "output scores f32 1x4 is neither in the GPU's memory nor sent"),
        (answer(&[1, 4], &[&wanted[..15]], None), "has 15 bytes in place of 16"),
        (answer(&[2, 4], &[&[0; 32]], None), "has 16 bytes in place of 32"),
        (answer(&[2, 4], &[&[]], None), "has 16 bytes in place of 32"),
        (answer(&[1, 5], &[&[]], None), "comes as FP32 1x5"),
        (Vec::new(), "output scores is missing"),
    ] {
        *next.lock().unwrap() = Some(wrong);
        let text = run(&fakes, &mut *model, &[2]).unwrap_err().message();
        assert!(text.contains(says), "{says}: {text}");
        assert_eq!(run(&fakes, &mut *model, &[3]).unwrap(), outputs_of(&[3]), "the next one");
    }
    drop(model);
    check_memory(&fakes);
}

#[test]
fn calls_of_the_driver_may_fail() {
    let Some(fakes) = Fakes::of(module_path!(), "calls_of_the_driver_may_fail") else { return };
    let memory = ServerMemory::new(fakes.context());
    let server = FakeServer::start(answers_with(on_gpu(), Some(memory)));
    let address = server.address("small");
    let pictures = [1, 2].map(|seed| gpu_picture(&fakes, seed).unwrap());
    fakes.each_call_fails("two requests", || {
        let mut model = open(&fakes, &address, 2)?;
        let first = model.run(&pictures)?;
        let second = model.run(&pictures[..1])?;
        first.into_iter().chain(second).try_for_each(|outputs| outputs.into_ready().map(drop))
    });
    check_memory(&fakes);
    // A request waits for memory, and is tried again by who sent it.
    let mut model = open(&fakes, &address, 1).unwrap();
    fakes.lack(1);
    assert!(model.run(&pictures[..1]).is_err_and(|error: Error| error.is_out_of_memory()));
    assert_eq!(output(model.run(&pictures[..1]).unwrap().remove(0)).unwrap(), small_output(1));
    drop(model);
    check_memory(&fakes);
}

#[test]
fn a_request_can_be_interrupted() {
    let Some(fakes) = Fakes::of(module_path!(), "a_request_can_be_interrupted") else { return };
    let (memory, calls) = (ServerMemory::new(fakes.context()), Arc::new(AtomicUsize::new(0)));
    let counted = calls.clone();
    let server = FakeServer::start(gpu_but(on_gpu(), &memory, move |method, _| {
        let is_first = method == "ModelInfer" && counted.fetch_add(1, Ordering::SeqCst) == 0;
        is_first.then_some(Reply::Never)
    }));
    let request = request(&fakes, &server.address("small"), 1, &[("request-timeout", "3600000")]).unwrap();
    let mut model = request.load(&LoadContext::silent()).unwrap();
    let (interrupt, picture) = (model.interrupter().unwrap(), gpu_picture(&fakes, 1).unwrap());
    let thread = thread::spawn(move || (model.run(&[picture]).unwrap_err().message(), model));
    wait_until("the request", LIMIT, || calls.load(Ordering::SeqCst) == 1);
    interrupt();
    let (text, mut model) = thread.join().unwrap();
    assert!(text.contains("was given up: its stream has stopped"), "{text}");
    assert_eq!(run(&fakes, &mut *model, &[2]).unwrap(), outputs_of(&[2]), "the next one");
    drop(model);
    check_memory(&fakes);
}

/// Without that value all is as before, where the server has a GPU, too.
#[test]
fn other_values_use_the_hosts_memory() {
    let Some(fakes) = Fakes::of(module_path!(), "other_values_use_the_hosts_memory") else { return };
    let server = FakeServer::start(but(on_gpu(), |method, _| {
        assert!(!method.starts_with("Cuda"), "{method}");
        None
    }));
    for value in ["auto", "off", "on"] {
        let none = || unreachable!("no GPU is asked for");
        let options: Options = options(&[("shared-memory", value)]);
        let address = server.address("small");
        let request = LoadRequest::new(Path::new(&address), BackendPreference::Auto, None, 1, options, none).unwrap();
        let mut model = request.load(&LoadContext::silent()).unwrap();
        assert_eq!(plain(&model.run(&[picture(1)]).unwrap()[0])[0].bytes, small_output(1), "{value}");
    }
    assert_eq!(fakes.count(c"fake_opened"), 0);
}
