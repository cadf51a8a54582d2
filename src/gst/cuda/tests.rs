// SPDX-License-Identifier: MPL-2.0
//! One CUDA context for each GPU of the process, whoever comes first. The driver and TensorRT are those of tests/fakes,
//! GStreamer's CUDA library is the real one, and the decoder does with it what those of nvcodec do.

use std::sync::{Arc, Barrier};
use std::thread;

use gst::prelude::*;
use gsttrt_core::cuda::driver::Context;

use super::{available, memory, registry};
use crate::fakes::Fakes;
use crate::test::{LIMIT, wait_until};

mod decoder;

const HANG: gst::ClockTime = gst::ClockTime::from_seconds(30);

fn fakes(test: &str, gpus: u32) -> Option<&'static Fakes> {
    let fakes = Box::leak(Box::new(Fakes::for_gstreamer(module_path!(), test, gpus)?));
    gst::init().unwrap();
    crate::plugin_register_static().unwrap();
    decoder::register();
    // SAFETY: GStreamer's own library, which registers types when loaded and no more; it stays.
    let library = unsafe { libloading::Library::new("libgstcuda-1.0.so.0") };
    match library {
        Ok(library) => std::mem::forget(library),
        Err(error) => {
            crate::test::skip(&error);
            return None;
        }
    }
    if let Err(error) = available() {
        let (major, minor, ..) = gst::version();
        assert!((major, minor) > (1, 22), "it takes the driver of tests/fakes: {error}");
        crate::test::skip(&format!("GStreamer {major}.{minor} takes more of a driver than tests/fakes has: {error}"));
        return None;
    }
    Some(fakes)
}

impl Fakes {
    fn created(&self) -> i64 {
        self.count(c"fake_contexts_created")
    }

    /// How often work of one context was given what is of another one.
    fn mixed(&self) -> i64 {
        self.count(c"fake_mixed")
    }

    fn infer(&self, properties: &str) -> String {
        format!("trtinfer name=infer model-file={} {properties}", self.engine().display())
    }
}

/// A pipeline that plays one frame.
struct Line {
    pipeline: gst::Pipeline,
    out: gst_app::AppSink,
}

const STREAM: &str = "appsrc name=in caps=video/x-fake format=time";
const DECODED: &str = "decodebin name=decode ! trtpreprocess name=preprocess";

impl Line {
    fn new(line: &str) -> Self {
        let line = format!("{STREAM} ! {line} ! appsink name=out sync=false");
        let pipeline: gst::Pipeline = gst::parse::launch(&line).unwrap().downcast().unwrap();
        let out = pipeline.by_name("out").unwrap().downcast().unwrap();
        Line { pipeline, out }
    }

    fn element(&self, name: &str) -> gst::Element {
        self.pipeline.by_name(name).unwrap()
    }

    fn start(&self) {
        let started = self.pipeline.set_state(gst::State::Playing);
        assert!(started.is_ok(), "{:?}", self.pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Error]));
    }

    /// Pushes a frame and returns it as it comes out.
    fn frame(&self) -> gst::Buffer {
        let input = self.element("in").downcast::<gst_app::AppSrc>().unwrap();
        input.push_buffer(gst::Buffer::new()).unwrap();
        let Some(sample) = self.out.try_pull_sample(HANG) else {
            let error = self.pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Error]);
            panic!("no frame: {error:?}");
        };
        sample.buffer_owned().unwrap()
    }

    fn contexts(&self, element: &str) -> u64 {
        self.element(element).property::<gst::Structure>("stats").get("cuda-contexts").unwrap()
    }

    /// The context that the application finds.
    fn shared(&self, element: &str) -> Option<Context> {
        self.element(element).context("gst.cuda.context").and_then(|context| registry::shared(&context))
    }

    fn has_warned(&self) -> bool {
        self.pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Warning]).is_some()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}

fn context_of(frame: &gst::Buffer) -> Context {
    memory(frame).expect("CUDA memory").context().unwrap()
}

/// Starts them at the same time, and returns the contexts of their frames.
fn play(lines: &[Line]) -> Vec<Context> {
    let barrier = Arc::new(Barrier::new(lines.len()));
    thread::scope(|scope| {
        let threads: Vec<_> = lines
            .iter()
            .map(|line| {
                let barrier = barrier.clone();
                scope.spawn(move || {
                    barrier.wait();
                    line.start();
                    context_of(&line.frame())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn pipelines_that_share_a_model_have_one_context() {
    let Some(fakes) = fakes("pipelines_that_share_a_model_have_one_context", 1) else { return };
    let infer = fakes.infer("shared-model=m batch-size=2 batch-timeout=1000");
    let lines: Vec<Line> = (0..8).map(|_| Line::new(&format!("{DECODED} ! {infer}"))).collect();
    let contexts = play(&lines);
    assert!(contexts.iter().all(|context| *context == contexts[0]), "{contexts:?}");
    assert_eq!(fakes.created(), 1);
    for line in &lines {
        assert_eq!(["preprocess", "infer"].map(|name| line.contexts(name)), [1, 1]);
        assert_eq!(line.shared("infer").as_ref(), Some(&contexts[0]), "for applications, and for other pipelines");
        assert!(!line.has_warned());
    }
    assert_eq!(fakes.engines(1), 1);
}

#[test]
fn pipelines_with_models_of_their_own_have_one_context() {
    let Some(fakes) = fakes("pipelines_with_models_of_their_own_have_one_context", 1) else { return };
    let lines: Vec<Line> = (0..4).map(|_| Line::new(&format!("{DECODED} ! {}", fakes.infer("")))).collect();
    let contexts = play(&lines);
    assert!(contexts.iter().all(|context| *context == contexts[0]), "{contexts:?}");
    assert_eq!((fakes.created(), lines[0].contexts("infer")), (1, 1));
    drop((lines, contexts));
    // A thread that has loaded a model may still be about to say so.
    wait_until("the end of the context, in which nobody works any more", LIMIT, || fakes.count(c"fake_contexts") == 0);
}

#[test]
fn a_pipeline_that_starts_again_has_its_context_again() {
    let Some(fakes) = fakes("a_pipeline_that_starts_again_has_its_context_again", 1) else { return };
    // A launch line links decodebin once.
    let line = Line::new(&format!("fakecudadec ! trtpreprocess ! {}", fakes.infer("")));
    for _ in 0..3 {
        line.start();
        assert_eq!(Some(context_of(&line.frame())), line.shared("infer"));
        line.pipeline.set_state(gst::State::Null).unwrap();
    }
    assert_eq!(fakes.created(), 1);
}

#[test]
fn the_context_of_a_decoder_that_came_first_is_everyones() {
    let Some(fakes) = fakes("the_context_of_a_decoder_that_came_first_is_everyones", 1) else { return };
    let first = Line::new("decodebin ! trtoverlay name=overlay");
    first.start();
    let context = context_of(&first.frame());
    let second = Line::new(&format!("{DECODED} ! {}", fakes.infer("")));
    second.start();
    assert_eq!(context_of(&second.frame()), context);
    assert_eq!((fakes.created(), first.contexts("overlay")), (1, 1));
    assert_eq!(Context::of_process(0).unwrap(), context, "a session's too");
}

#[test]
fn the_context_of_a_session_that_came_first_is_everyones() {
    let Some(fakes) = fakes("the_context_of_a_session_that_came_first_is_everyones", 1) else { return };
    let session = Context::of_process(0).unwrap();
    assert!(session.is_primary());
    let line = Line::new(&format!("{DECODED} ! {}", fakes.infer("")));
    line.start();
    assert_eq!(context_of(&line.frame()), session);
    drop(session); // GStreamer keeps it
    assert_eq!(context_of(&line.frame()), Context::primary(0).unwrap());
    assert_eq!((fakes.created(), line.contexts("infer")), (0, 1));
}

#[test]
fn the_context_of_a_session_is_that_of_its_own_gpu() {
    let Some(fakes) = fakes("the_context_of_a_session_is_that_of_its_own_gpu", 2) else { return };
    let session = Context::of_process(0).unwrap();
    let infer = fakes.infer("cuda-device-id=1");
    let line = Line::new(&format!("fakecudadec cuda-device-id=1 ! trtpreprocess ! {infer}"));
    line.start();
    let context = context_of(&line.frame());
    assert_eq!((session.device(), context.device(), context.is_primary()), (0, 1, false));
    assert_eq!(fakes.created(), 1);
}

#[test]
fn an_application_gives_it_to_pipelines_without_our_elements() {
    let Some(fakes) = fakes("an_application_gives_it_to_pipelines_without_our_elements", 1) else { return };
    let ours = Line::new(&format!("{DECODED} ! {}", fakes.infer("")));
    ours.pipeline.set_state(gst::State::Ready).unwrap();
    let shared = ours.element("infer").context("gst.cuda.context").expect("handed out before the frames come");
    let [theirs, asked] = [(); 2].map(|()| Line::new("decodebin ! identity"));
    theirs.pipeline.set_context(&shared);
    asked.pipeline.bus().unwrap().set_sync_handler(|_, message| {
        registry::answer_message(message, 0);
        gst::BusSyncReply::Pass
    });
    let contexts = play(&[theirs, asked, ours]);
    assert!(contexts.iter().all(|context| Some(context) == registry::shared(&shared).as_ref()), "{contexts:?}");
    let rust = crate::cuda_context(0).unwrap();
    assert_eq!(registry::shared(&rust).as_ref(), Some(&contexts[0]));
    assert_eq!(fakes.created(), 1);
    let error = crate::cuda_context(7).unwrap_err();
    assert!(error.message().starts_with("There is no CUDA device 7. "), "{error}");
}

#[test]
fn no_context_is_made_where_frames_stay_on_the_host() {
    let Some(fakes) = fakes("no_context_is_made_where_frames_stay_on_the_host", 1) else { return };
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/shapes.onnx");
    let source = "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64";
    for infer in ["backend=rten", "backend=cpu"] {
        let line = format!("{source} ! trtpreprocess ! trtinfer model-file={model} {infer} ! trtnms ! fakesink");
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
        let end = pipeline.bus().unwrap().timed_pop_filtered(HANG, &kinds).expect("it hangs");
        assert_eq!(end.type_(), gst::MessageType::Eos, "{end:?}");
        pipeline.set_state(gst::State::Null).unwrap();
    }
    // Elements that do not know yet whether frames will be on a GPU make none.
    for element in ["trtpreprocess", "trtnms", "trtoverlay", "trtinfer"] {
        let element = gst::ElementFactory::make(element).build().unwrap();
        element.set_state(gst::State::Ready).unwrap();
        assert!(element.context("gst.cuda.context").is_none());
        element.set_state(gst::State::Null).unwrap();
    }
    assert_eq!((fakes.created(), registry::count()), (0, 0));
}

#[test]
fn a_shared_model_follows_its_frames_to_their_gpus() {
    let Some(fakes) = fakes("a_shared_model_follows_its_frames_to_their_gpus", 2) else { return };
    let infer = fakes.infer("shared-model=m batch-size=2 batch-timeout=1000");
    // Where frames come from is known with them only, where decodebin plugs the decoder in.
    let [first, second] = [(); 2].map(|()| Line::new(&format!("{DECODED} ! {infer}")));
    second.pipeline.connect_deep_element_added(|_, _, element| {
        if element.find_property("cuda-device-id").is_some_and(|property| property.value_type() == u32::static_type()) {
            element.set_property("cuda-device-id", 1u32);
        }
    });
    let third = Line::new(&format!("fakecudadec cuda-device-id=1 ! trtpreprocess ! {infer}"));
    let lines = [first, second, third];
    let devices = |contexts: &[Context]| contexts.iter().map(Context::device).collect::<Vec<_>>();
    let contexts: Vec<Context> = lines
        .iter()
        .map(|line| {
            line.start();
            context_of(&line.frame())
        })
        .collect();
    assert_eq!(devices(&contexts), [0, 1, 1]);
    assert_eq!(fakes.engines(2), 2, "an instance for each GPU");
    assert_eq!((fakes.created(), lines[0].contexts("infer")), (2, 2));
    let more: Vec<Context> = lines.iter().map(|line| context_of(&line.frame())).collect();
    assert_eq!(devices(&more), [0, 1, 1]);
    assert!(!lines.iter().any(Line::has_warned));
    assert_eq!(fakes.mixed(), 0);
}

/// Streams, events, pools, kernels and engines are of the context that the frames are in, in each thread and in each batch, also
/// where batches are run in other threads and one of the GPUs joins later.
#[test]
fn nothing_of_one_gpu_is_used_on_another() {
    let Some(fakes) = fakes("nothing_of_one_gpu_is_used_on_another", 2) else { return };
    let line = |device: i32| {
        Line::new(&format!(
            "fakecudadec cuda-device-id={device} ! queue ! trtpreprocess name=preprocess \
             ! {} ! queue",
            fakes.infer("shared-model=m batch-size=2 batch-timeout=1000")
        ))
    };
    let lines: Vec<Line> = [0, 1, 0, 1, 1, 0].map(line).into();
    let contexts = play(&lines);
    let devices: Vec<i32> = contexts.iter().map(Context::device).collect();
    assert_eq!(devices, [0, 1, 0, 1, 1, 0]);
    for _ in 0..20 {
        thread::scope(|scope| lines.iter().for_each(|line| drop(scope.spawn(|| line.frame()))));
    }
    assert_eq!((fakes.created(), fakes.engines(2)), (2, 2), "a context and an instance for each GPU");
    for line in &lines {
        let inferred: u64 = line.element("infer").property::<gst::Structure>("stats").get("inferred").unwrap();
        assert_eq!((inferred, ["preprocess", "infer"].map(|name| line.contexts(name))), (21, [2; 2]));
        assert!(!line.has_warned());
    }
    drop((lines, contexts));
    wait_until("the end of both contexts", LIMIT, || fakes.count(c"fake_contexts") == 0);
    assert_eq!((fakes.mixed(), fakes.count(c"fake_pending")), (0, 0));
}

#[test]
fn a_decoder_of_another_gpu_is_followed_from_the_start() {
    let Some(fakes) = fakes("a_decoder_of_another_gpu_is_followed_from_the_start", 2) else { return };
    let line = Line::new(&format!(
        "fakecudadec cuda-device-id=1 ! queue ! trtpreprocess ! queue ! {}",
        fakes.infer("shared-model=m")
    ));
    line.start();
    let context = context_of(&line.frame());
    assert_eq!((context.device(), line.shared("infer")), (1, Some(context)));
    assert_eq!((fakes.created(), fakes.engines(1)), (1, 1), "nothing is made on the first GPU");
}
