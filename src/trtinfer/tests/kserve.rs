// SPDX-License-Identifier: MPL-2.0
//! Pipelines with a model on a server, whose tensors stay on the GPU. Its kernels do nothing here, so what the server gets are zeros.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use gst::prelude::*;
use prost::Message;

use super::kserve_server::*;
use super::server_memory::ServerMemory;
use crate::fakes::Fakes;

const SIDE: i64 = 64;

/// A detector with no open size.
fn detector(extensions: &'static [&'static str]) -> FakeModel {
    let metadata = |name: &str, shape: &[i64]| messages::TensorMetadata {
        name: name.into(),
        datatype: "FP32".into(),
        shape: shape.into(),
    };
    let run = |inputs: &[PlainTensor]| {
        let (name, datatype) = ("output0".into(), "FP32".into());
        assert_eq!(inputs[0].bytes.len(), 4 * 3 * (SIDE * SIDE) as usize * inputs[0].shape[0] as usize);
        vec![PlainTensor {
            name,
            datatype,
            shape: vec![inputs[0].shape[0], 6, 84],
            bytes: vec![0; 4 * 6 * 84 * inputs[0].shape[0] as usize],
        }]
    };
    FakeModel {
        name: "detector",
        inputs: vec![metadata("images", &[-1, 3, SIDE, SIDE])],
        outputs: vec![metadata("output0", &[-1, 6, 84])],
        parameters: Vec::new(),
        max_batch_size: 8,
        extensions,
        run: Arc::new(run),
    }
}

/// Plays some frames, and gives the text of an error and the tensors that were agreed on.
fn play(infer: &str) -> (Option<String>, Option<String>) {
    let line = format!(
        "videotestsrc num-buffers=3 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess name=preprocess \
         ! trtinfer name=infer {infer} ! queue ! trtnms ! fakesink"
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let agreed = Arc::<Mutex<Option<String>>>::default();
    let seen = agreed.clone();
    let pad = pipeline.by_name("preprocess").unwrap().static_pad("src").unwrap();
    pad.connect_notify(Some("caps"), move |pad, _| {
        let caps = pad.current_caps();
        let tensor = caps.and_then(|caps| caps.structure(0)?.get::<String>("tensor").ok());
        if tensor.is_some() {
            *seen.lock().unwrap() = tensor;
        }
    });
    let _ = pipeline.set_state(gst::State::Playing); // what fails is on the bus
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let patience = gst::ClockTime::try_from(super::HANG).unwrap();
    let message = pipeline.bus().unwrap().timed_pop_filtered(patience, &kinds).expect("it hangs");
    pipeline.set_state(gst::State::Null).unwrap();
    let error = match message.view() {
        gst::MessageView::Error(error) => Some(error.error().to_string()),
        _ => None,
    };
    let agreed = agreed.lock().unwrap().take();
    (error, agreed)
}

#[test]
fn the_tensors_of_a_pipeline_are_where_the_option_says() {
    let test = "the_tensors_of_a_pipeline_are_where_the_option_says";
    let Some(fakes) = Fakes::of(module_path!(), test) else { return };
    gst::init().unwrap();
    crate::plugin_register_static().unwrap();
    let memory = ServerMemory::new(fakes.context());
    let (requests, on_gpu) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let usual = answers_with(detector(&["system_shared_memory", "cuda_shared_memory"]), Some(memory));
    let (all, there) = (requests.clone(), on_gpu.clone());
    let server = FakeServer::start(Arc::new(move |method, message| {
        if method == "ModelInfer" {
            let request = WholeInferRequest::decode(message).unwrap();
            all.fetch_add(1, Ordering::SeqCst);
            let is_shared =
                |parameters: &std::collections::HashMap<String, _>| parameters.contains_key("shared_memory_region");
            assert!(request.raw.is_empty() == is_shared(&request.inputs[0].parameters));
        }
        there.fetch_add(usize::from(method == "CudaSharedMemoryRegister"), Ordering::SeqCst);
        usual(method, message)
    }));
    let address = server.address("detector");
    for (infer, device) in [
        ("shared-memory=cuda", "cuda"),
        ("backend=kserve shared-memory=cuda batch-size=2 parallel-runs=2", "cuda"),
        ("shared-memory=on", "cpu"),
        ("", "cpu"),
    ] {
        let before = on_gpu.load(Ordering::SeqCst);
        let (error, tensor) = play(&format!("model-file={address} {infer}"));
        assert_eq!(error, None, "{infer}");
        assert!(tensor.as_ref().is_some_and(|tensor| tensor.starts_with(device)), "{infer}: {tensor:?}");
        assert_eq!(on_gpu.load(Ordering::SeqCst) > before, device == "cuda", "{infer}");
    }
    assert!(requests.load(Ordering::SeqCst) >= 3 + 2 + 3 + 3);
    for (counted, what) in
        [(c"fake_frees_of_opened", "freed too early"), (c"fake_opened", "left open"), (c"fake_mixed", "mixed")]
    {
        assert_eq!(fakes.count(counted), 0, "{what}");
    }
    // A server without the extension.
    let server = FakeServer::start(answers(detector(&["system_shared_memory"])));
    let (error, _) = play(&format!("model-file={} shared-memory=cuda", server.address("detector")));
    assert!(error.as_ref().is_some_and(|text| text.contains("shared-memory=cuda cannot be with")), "{error:?}");
}
