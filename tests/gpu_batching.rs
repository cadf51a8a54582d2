// SPDX-License-Identifier: MPL-2.0
//! Batches on a GPU: streams that share a model find what each finds alone, wherever their frames lie.
//!
//! Needs a GPU, GStreamer's nvcodec and TensorRT with its builder; prints SKIP where one is missing, and fails instead with
//! `REQUIRE_GPU=1`. `GPU_CLIP` and `TRT_PROPERTIES` are as in tests/gpu_chain.rs; the engine is built from shapes.onnx, or
//! `GPU_ONNX`, with an open batch, at the lowest level.

use std::sync::mpsc::{Receiver, channel};

use gst::prelude::*;
use gsttrt::gst::meta::tensor::{Payload, TensorMeta};
use gsttrt_core::memory::DeviceBlock;

use crate::common::boxes::{Found, found};
use crate::common::gpu::setting;
use crate::common::onnx::Graph;
use crate::common::{gpu_chain_or_skip, path, scratch, shapes};

const ROOM: &str = "queue max-size-buffers=0 max-size-bytes=0 max-size-time=0";
/// Of the clip.
const FRAMES: u32 = 40;

/// `shapes.onnx` for batches, in one place, so that its engine is built once.
fn model() -> String {
    let folder = scratch("gpu-batching");
    Graph::load(&setting("GPU_ONNX").unwrap_or_else(shapes)).with_batch("n").save(&folder.join("shapes.onnx"))
}

/// A stream from the decoder to a sink, with its elements named by a number.
fn stream(number: usize, model: &str, infer: &str) -> String {
    let clip = setting("GPU_CLIP").unwrap_or_else(|| path("tests/data/sample.mp4"));
    let more = setting("TRT_PROPERTIES").unwrap_or_default().replace("precision=fp16", "");
    format!(
        "filesrc location={clip} ! qtdemux ! h264parse ! nvh264dec ! trtpreprocess name=pre{number} measure=true \
         ! trtinfer name=infer{number} measure=true backend=tensorrt model-file={model} {more} precision=fp32 \
         optimization-level=0 {infer} ! {ROOM} ! trtnms name=nms{number} measure=true \
         ! fakesink name=sink{number} num-buffers={FRAMES} sync=false async=false "
    )
}

type Frames = Receiver<(Option<gst::ClockTime>, Vec<Found>)>;

/// The objects that come to a sink.
fn objects(pipeline: &gst::Pipeline, number: usize) -> Frames {
    let (send, out) = channel();
    let pad = pipeline.by_name(&format!("sink{number}")).unwrap().static_pad("sink").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let buffer = info.buffer().unwrap();
        let _ = send.send((buffer.pts(), found(buffer)));
        gst::PadProbeReturn::Ok
    });
    out
}

fn launch(line: &str) -> gst::Pipeline {
    gst::parse::launch(line).unwrap().downcast().unwrap()
}

/// To its end, which takes minutes where an engine is built.
fn wait(pipeline: &gst::Pipeline) {
    let wanted = [gst::MessageType::Eos, gst::MessageType::Error];
    let message = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(400), &wanted);
    let message = message.expect("an end");
    assert_eq!(message.type_(), gst::MessageType::Eos, "{message:?}");
}

#[track_caller]
fn assert_same(found: &Frames, expected: &[(Option<gst::ClockTime>, Vec<Found>)]) {
    let found: Vec<_> = found.try_iter().collect();
    assert_eq!(found.len(), expected.len());
    for ((at, found), (expected_at, expected)) in found.iter().zip(expected) {
        assert_eq!((at, found.len()), (expected_at, expected.len()));
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.class, expected.class);
            assert!((found.confidence - expected.confidence).abs() < 1e-3, "{found:?}, {expected:?}");
            let near = |(a, b): (f64, f64)| (a - b).abs() < 1e-3;
            assert!(found.corners.into_iter().zip(expected.corners).all(near), "{found:?}, {expected:?}");
        }
    }
}

fn stats(pipeline: &gst::Pipeline, element: &str) -> gst::Structure {
    pipeline.by_name(element).unwrap().property("stats")
}

#[test]
fn streams_that_share_a_model_find_what_one_finds_alone() {
    if !gpu_chain_or_skip() {
        return;
    }
    let model = model();
    // One at a time, by the same engine.
    let one = stream(0, &model, "batch-size=4 batch-timeout=0");
    // On a new machine the driver compiles the kernels first, which takes seconds.
    let first = launch(&one);
    first.set_state(gst::State::Playing).unwrap();
    wait(&first);
    first.set_state(gst::State::Null).unwrap();
    let alone = launch(&one);
    let frames = objects(&alone, 0);
    alone.set_state(gst::State::Playing).unwrap();
    wait(&alone);
    for element in ["pre0", "infer0", "nms0"] {
        let stats = stats(&alone, element);
        let gpu = ["gpu-p50-ms", "gpu-p99-ms", "gpu-mean-ms"].map(|field| stats.get::<f64>(field).unwrap());
        println!("{element}: {stats}");
        assert!(gpu.iter().all(|&ms| ms > 0.0 && ms < 1000.0), "{stats}");
    }
    alone.set_state(gst::State::Null).unwrap();
    let expected: Vec<_> = frames.try_iter().collect();
    assert_eq!(expected.len(), FRAMES as usize);

    // A batch of neighbours, of one stream.
    let single = launch(&stream(0, &model, "batch-size=4 batch-timeout=100000"));
    let frames = objects(&single, 0);
    let (send, places) = channel();
    let pad = single.by_name("pre0").unwrap().static_pad("src").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let payload = TensorMeta::get(info.buffer().unwrap()).unwrap();
        assert!(matches!(*payload, Payload::Input(_)), "{payload:?}");
        let block = payload.inputs().list[0].tensors[0].device().unwrap();
        let _ = send.send(block.part(0, block.bytes()));
        gst::PadProbeReturn::Ok
    });
    single.set_state(gst::State::Playing).unwrap();
    wait(&single);
    let counts = stats(&single, "infer0");
    single.set_state(gst::State::Null).unwrap();
    assert_same(&frames, &expected);
    println!("one stream: {counts}");
    let places: Vec<DeviceBlock> = places.try_iter().collect();
    let neighbours = places.windows(2).filter(|pair| pair[1].address() == pair[0].address() + pair[0].bytes() as u64);
    assert!(neighbours.count() > places.len() / 2, "tensors are made where the batch is");
    drop(places);

    // Three of one pipeline, which has one CUDA context: in batches, and without, when several runs are on the GPU side
    // by side, as those of batches are with parallel-runs.
    let shared = "batch-size=4 batch-timeout=20000 shared-model=gpu";
    let in_parallel = format!("{shared} parallel-runs=3");
    let ways = [
        (shared, "three streams of a pipeline"),
        ("batch-size=4 shared-model=gpu", "three, and batches that wait where it pays"),
        (&in_parallel, "three, and runs in parallel"),
        ("shared-model=gpu", "three without batches"),
    ];
    for (infer, what) in ways {
        let line: String = (0..3).map(|number| stream(number, &model, infer)).collect();
        let pipeline = launch(&line);
        let frames: Vec<Frames> = (0..3).map(|number| objects(&pipeline, number)).collect();
        pipeline.set_state(gst::State::Playing).unwrap();
        wait(&pipeline);
        println!("{what}: {}", stats(&pipeline, "infer0"));
        pipeline.set_state(gst::State::Null).unwrap();
        frames.iter().for_each(|frames| assert_same(frames, &expected));
    }

    // Three pipelines, which may have one each.
    let pipelines: Vec<gst::Pipeline> = (0..3).map(|number| launch(&stream(number, &model, shared))).collect();
    let frames: Vec<Frames> = pipelines.iter().enumerate().map(|(i, pipeline)| objects(pipeline, i)).collect();
    let set = |state: gst::State| pipelines.iter().for_each(|pipeline| assert!(pipeline.set_state(state).is_ok()));
    set(gst::State::Playing);
    pipelines.iter().for_each(wait);
    println!("three pipelines: {}", stats(&pipelines[2], "infer2"));
    set(gst::State::Null);
    frames.iter().for_each(|frames| assert_same(frames, &expected));
}
