// SPDX-License-Identifier: MPL-2.0
//! Engines are deserialised in the background, however long that takes. The driver and TensorRT are those of
//! tests/fakes, and need no GPU.

use std::ffi::c_long;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gst::prelude::*;
use gst::subclass::prelude::*;

use super::{TrtInfer, sharing};
use crate::fakes::Fakes;
use crate::test::npy::save_floats;
use crate::test::{LIMIT, wait_until};

mod kserve;
#[path = "../../core/tests/common/kserve_server.rs"]
mod kserve_server;
#[path = "../../core/tests/common/server_memory.rs"]
mod server_memory;

/// Far longer than anything here takes; whatever waits so long hangs.
const HANG: Duration = Duration::from_secs(30);

#[track_caller]
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    done.recv_timeout(HANG).expect("it hangs")
}

impl Fakes {
    /// Returns once so many engines have been asked for.
    #[track_caller]
    fn wait_for_engines(&'static self, count: c_long) {
        in_time(move || self.engines(count));
    }
}

/// The fakes, with which deserialising waits.
fn held(test: &str) -> Option<&'static Fakes> {
    let fakes = Box::leak(Box::new(Fakes::of(module_path!(), test)?));
    gst::init().unwrap();
    crate::plugin_register_static().unwrap();
    fakes.hold(true);
    Some(fakes)
}

/// A pipeline with an engine.
struct Stream {
    pipeline: gst::Pipeline,
    infer: TrtInfer,
}

impl Stream {
    fn new(fakes: &Fakes, source: &str, infer: &str) -> Self {
        Stream::with(fakes, source, "trtpreprocess", infer)
    }

    fn with(fakes: &Fakes, source: &str, before: &str, infer: &str) -> Self {
        let line = format!(
            "videotestsrc name=source {source} ! video/x-raw,format=RGB,width=8,height=8 ! {before} \
             ! trtinfer name=infer model-file={} {infer} ! fakesink",
            fakes.engine().display()
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let infer = pipeline.by_name("infer").unwrap().downcast().unwrap();
        Stream { pipeline, infer }
    }

    #[track_caller]
    fn set_state(&self, state: gst::State) -> gst::StateChangeSuccess {
        let pipeline = self.pipeline.clone();
        in_time(move || pipeline.set_state(state)).unwrap()
    }

    /// Returns once a streaming thread waits for the engine.
    #[track_caller]
    fn wait_for_waiters(&self) {
        let infer = self.infer.clone();
        in_time(move || infer.imp().life.waiters.wait_for(1));
    }

    fn info(&self) -> Option<gst::Structure> {
        self.infer.property("model-info")
    }

    /// Waits for the end of the stream or an error, and gives the names of elements that have posted errors, with the texts.
    #[track_caller]
    fn end(&self) -> Vec<(String, String)> {
        let bus = self.pipeline.bus().unwrap();
        let patience = gst::ClockTime::try_from(HANG).unwrap();
        let mut errors = Vec::new();
        loop {
            let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
            let message = bus.timed_pop_filtered(patience, &kinds).expect("it hangs");
            let gst::MessageView::Error(error) = message.view() else { return errors };
            let name = message.src().unwrap().name().to_string();
            let is_last = name == "source"; // once the frame has come back to it
            errors.push((name, error.error().to_string()));
            if is_last {
                return errors;
            }
        }
    }

    fn frames(&self) -> u64 {
        self.infer.property::<gst::Structure>("stats").get("inferred").unwrap()
    }

    fn has_errors(&self) -> bool {
        self.pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Error]).is_some()
    }
}

#[test]
fn a_pipeline_pauses_at_once_and_goes_on_when_its_engine_is_there() {
    let Some(fakes) = held("a_pipeline_pauses_at_once_and_goes_on_when_its_engine_is_there") else { return };
    let stream = Stream::new(fakes, "num-buffers=3", "");
    let (sender, notified) = mpsc::channel();
    stream.infer.connect_notify(Some("model-info"), move |infer, _| {
        let _ = sender.send(infer.property::<Option<gst::Structure>>("model-info").is_some());
    });
    assert_eq!(stream.set_state(gst::State::Paused), gst::StateChangeSuccess::Async);
    fakes.wait_for_engines(1);
    stream.wait_for_waiters();
    assert!(stream.info().is_none() && stream.frames() == 0, "they are read without a wait");
    stream.set_state(gst::State::Playing);
    fakes.hold(false);
    assert_eq!(notified.recv_timeout(HANG), Ok(true));
    assert_eq!(stream.end(), []);
    assert_eq!((stream.frames(), fakes.engines(0)), (3, 1));
    let tensor: String = stream.info().unwrap().get("tensor").unwrap();
    assert!(tensor.contains("images") && tensor.contains("1x3x8x8"), "{tensor}");
    stream.set_state(gst::State::Null);
    assert!(stream.info().is_none());
}

#[test]
fn null_is_reached_and_the_element_is_freed_while_its_engine_is_deserialised() {
    let Some(fakes) = held("null_is_reached_and_the_element_is_freed_while_its_engine_is_deserialised") else {
        return;
    };
    let mut engines = 0;
    // The latency of live sources is asked for in the change to PLAYING.
    let cases = [
        ("", "trtpreprocess", ""),
        ("", "queue ! trtpreprocess ! queue", ""),
        ("is-live=true", "trtpreprocess", ""),
        ("is-live=true", "trtpreprocess ! tee ! queue", "batch-size=2"),
    ];
    for (source, before, infer) in cases {
        let stream = Stream::with(fakes, source, before, infer);
        for state in [gst::State::Ready, gst::State::Null] {
            stream.set_state(gst::State::Playing);
            engines += 1;
            fakes.wait_for_engines(engines);
            stream.wait_for_waiters();
            stream.set_state(state);
        }
        assert!(!stream.has_errors());
        let gone = stream.infer.downgrade();
        drop(stream);
        wait_until("the end of the element", LIMIT, || gone.upgrade().is_none());
    }
    fakes.hold(false); // those that were given up do not disturb the next one
    let stream = Stream::new(fakes, "num-buffers=3", "");
    stream.set_state(gst::State::Playing);
    assert_eq!(stream.end(), []);
    stream.set_state(gst::State::Null);
}

#[test]
fn a_flush_ends_the_wait_for_an_engine_and_frames_after_it_are_inferred() {
    let Some(fakes) = held("a_flush_ends_the_wait_for_an_engine_and_frames_after_it_are_inferred") else { return };
    for before in ["trtpreprocess", "trtpreprocess ! queue", "queue ! trtpreprocess ! queue"] {
        fakes.hold(true);
        // Each flush discards the frames on their way, with a queue some 200.
        let stream = Stream::with(fakes, "num-buffers=1000", before, "");
        stream.set_state(gst::State::Playing);
        for _ in 0..3 {
            stream.wait_for_waiters();
            let pipeline = stream.pipeline.clone();
            in_time(move || pipeline.seek_simple(gst::SeekFlags::FLUSH, gst::ClockTime::ZERO)).unwrap();
        }
        fakes.hold(false);
        assert_eq!(stream.end(), []);
        assert!(stream.frames() > 0);
        stream.set_state(gst::State::Null);
    }
}

#[test]
fn an_engine_that_cannot_be_deserialised_is_an_error_on_the_bus() {
    let Some(fakes) = held("an_engine_that_cannot_be_deserialised_is_an_error_on_the_bus") else { return };
    fakes.refuse(true);
    let stream = Stream::new(fakes, "num-buffers=3", "");
    for wait in [true, false] {
        fakes.hold(wait);
        stream.set_state(gst::State::Playing);
        if wait {
            stream.wait_for_waiters();
            fakes.hold(false);
        }
        let errors = stream.end();
        let names: Vec<&str> = errors.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["infer", "source"], "{errors:?}");
        assert!(errors[0].1.starts_with("Cannot load the engine ") && errors[0].1.contains("any.engine"), "{errors:?}");
        assert!(stream.info().is_none());
        stream.set_state(gst::State::Null);
    }
    fakes.refuse(false);
    stream.set_state(gst::State::Playing);
    assert_eq!(stream.end(), []);
    stream.set_state(gst::State::Null);
}

#[test]
fn elements_that_share_an_engine_have_it_deserialised_once() {
    let Some(fakes) = held("elements_that_share_an_engine_have_it_deserialised_once") else { return };
    let streams = [(); 3].map(|()| Stream::new(fakes, "num-buffers=3", "shared-model=one"));
    for stream in &streams {
        stream.set_state(gst::State::Playing);
        stream.wait_for_waiters();
    }
    fakes.wait_for_engines(1);
    fakes.hold(false);
    for stream in &streams {
        assert_eq!(stream.end(), []);
        assert_eq!(stream.frames(), 3);
    }
    assert_eq!(fakes.engines(1), 1);
    for stream in &streams {
        stream.set_state(gst::State::Null);
    }
}

#[test]
fn an_engine_to_share_is_deserialised_for_those_that_are_left() {
    let Some(fakes) = held("an_engine_to_share_is_deserialised_for_those_that_are_left") else { return };
    let [first, second, third] = [(); 3].map(|()| Stream::new(fakes, "num-buffers=3", "shared-model=one"));
    first.set_state(gst::State::Playing);
    fakes.wait_for_engines(1);
    for stream in [&second, &third] {
        stream.set_state(gst::State::Playing);
        stream.wait_for_waiters();
    }
    in_time(|| sharing::WAITING.wait_for(3));
    first.set_state(gst::State::Null);
    second.set_state(gst::State::Null);
    fakes.hold(false);
    assert_eq!(third.end(), []);
    assert_eq!(third.frames(), 3);
    assert_eq!(fakes.engines(1), 1, "that the one which came first has left changes nothing");
    third.set_state(gst::State::Null);
}

/// Whichever element is given the file, all of them come to it, also those that are made with the former file, and whatever
/// becomes of that.
#[test]
fn another_file_takes_the_place_of_a_shared_engine_that_is_still_read() {
    let Some(fakes) = held("another_file_takes_the_place_of_a_shared_engine_that_is_still_read") else { return };
    let mut engines = 0;
    for (by, fails) in [(0, false), (1, false), (0, true)] {
        fakes.hold(true);
        let other = fakes.engine_named("other.engine", fails);
        let stream = || {
            let stream = Stream::new(fakes, "num-buffers=3", &format!("shared-model=superseded-{by}-{fails}"));
            stream.set_state(gst::State::Playing);
            stream.wait_for_waiters();
            stream
        };
        let [first, second] = [stream(), stream()];
        engines += 1;
        fakes.wait_for_engines(engines);
        [&first, &second][by].infer.set_property("model-file", &other);
        engines += 1;
        fakes.wait_for_engines(engines);
        let late = Stream::new(fakes, "num-buffers=3", &format!("shared-model=superseded-{by}-{fails}"));
        late.set_state(gst::State::Playing);
        fakes.hold(false);
        for stream in [&first, &second, &late] {
            assert_eq!(stream.end(), []);
            assert_eq!(stream.frames(), 3);
            let file: String = stream.info().unwrap().get("file").unwrap();
            assert_eq!(file, other.display().to_string());
            wait_until("the property", LIMIT, || stream.infer.property::<String>("model-file") == file);
        }
        assert_eq!(fakes.engines(0), engines, "each is read once");
        for stream in [first, second, late] {
            stream.set_state(gst::State::Null);
        }
    }
}

/// The first engine is never read to its end. Whichever element is given another file, all of them go on with that.
#[test]
fn another_file_does_not_wait_for_a_shared_engine_that_is_never_read() {
    let Some(fakes) = held("another_file_does_not_wait_for_a_shared_engine_that_is_never_read") else { return };
    let other = fakes.engine_named("other.engine", true);
    let mut engines = 0;
    for by in 0..3 {
        let streams = [(); 3].map(|()| {
            let stream = Stream::new(fakes, "num-buffers=3", "shared-model=one");
            stream.set_state(gst::State::Playing);
            stream.wait_for_waiters();
            stream
        });
        engines += 1;
        fakes.wait_for_engines(engines);
        streams[by].infer.set_property("model-file", &other);
        for stream in &streams {
            assert_eq!(stream.end(), []);
            assert_eq!(stream.frames(), 3);
        }
        engines += 1;
        assert_eq!(fakes.engines(0), engines, "each is read once");
        for stream in &streams {
            stream.set_state(gst::State::Null);
        }
        // The name is free again, whatever its threads do.
        let another = Stream::new(fakes, "num-buffers=3", "shared-model=one batch-size=2");
        another.infer.set_property("model-file", &other);
        another.set_state(gst::State::Playing);
        assert_eq!(another.end(), []);
        another.set_state(gst::State::Null);
        engines += 1;
    }
    fakes.hold(false);
}

/// All of them say so, and it is read once; a later one reads it again.
#[test]
fn a_shared_engine_that_cannot_be_read_is_tried_once() {
    let Some(fakes) = held("a_shared_engine_that_cannot_be_read_is_tried_once") else { return };
    fakes.refuse(true);
    let streams = [(); 3].map(|()| Stream::new(fakes, "num-buffers=3", "shared-model=one"));
    for stream in &streams {
        stream.set_state(gst::State::Playing);
        stream.wait_for_waiters();
    }
    in_time(|| sharing::WAITING.wait_for(3));
    fakes.wait_for_engines(1);
    fakes.hold(false);
    for stream in &streams {
        let errors = stream.end();
        assert!(errors[0].1.starts_with("Cannot load the engine "), "{errors:?}");
        stream.set_state(gst::State::Null);
    }
    assert_eq!(fakes.engines(1), 1);
    fakes.refuse(false);
    streams[1].set_state(gst::State::Playing);
    assert_eq!(streams[1].end(), []);
    assert_eq!(fakes.engines(1), 2);
    streams[1].set_state(gst::State::Null);
}

/// An engine for each shape of a folder of pictures would take minutes each time: there are two, and the second one is said.
#[test]
fn a_model_is_loaded_for_two_sizes_at_most_and_the_second_one_is_said() {
    let Some(fakes) = held("a_model_is_loaded_for_two_sizes_at_most_and_the_second_one_is_said") else { return };
    fakes.hold(false);
    let pictures = |width: u32, height: u32| {
        format!(
            "videotestsrc num-buffers=2 ! video/x-raw,format=RGB,width={width},height={height},framerate=30/1 ! all. "
        )
    };
    let line = format!(
        "{} {} {} {} concat name=all ! trtpreprocess ! trtinfer name=infer model-file={} ! fakesink name=source",
        pictures(64, 32),
        pictures(32, 64),
        pictures(640, 480),
        pictures(64, 32),
        fakes.open_engine().display()
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let infer = pipeline.by_name("infer").unwrap().downcast().unwrap();
    let stream = Stream { pipeline, infer };
    let (sender, said) = mpsc::channel();
    stream.pipeline.bus().unwrap().set_sync_handler(move |_, message| {
        if let gst::MessageView::Warning(warning) = message.view() {
            let _ = sender.send(warning.error().to_string());
        }
        gst::BusSyncReply::Pass
    });
    stream.set_state(gst::State::Playing);
    assert_eq!(stream.end(), []);
    assert_eq!(stream.frames(), 8);
    let warnings: Vec<String> = said.try_iter().filter(|text| text.contains("is loaded once more")).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("1x3x64x64 in place of 1x3x32x64") && warnings[0].contains("input-size"),
        "{warnings:?}"
    );
    stream.set_state(gst::State::Null);
}

/// An application may ask for caps, and set another file, at any time.
#[test]
fn an_application_does_not_wait_while_an_engine_is_read() {
    let Some(fakes) = held("an_application_does_not_wait_while_an_engine_is_read") else { return };
    let stream = Stream::new(fakes, "num-buffers=3", "");
    stream.set_state(gst::State::Paused);
    fakes.wait_for_engines(1);
    stream.wait_for_waiters();
    for name in ["sink", "src"] {
        let pad = stream.infer.static_pad(name).unwrap();
        assert!(!in_time(move || pad.query_caps(None)).is_empty());
    }
    let (infer, engine) = (stream.infer.clone(), fakes.engine());
    in_time(move || infer.set_property("model-file", engine));
    fakes.wait_for_engines(2);
    stream.set_state(gst::State::Playing);
    fakes.hold(false);
    assert_eq!(stream.end(), []);
    assert_eq!(stream.frames(), 3);
    stream.set_state(gst::State::Null);
}

/// There is no ONNX file to compare with; but its runs can be compared with each other. The second time the verdict is known.
#[test]
fn an_engine_that_is_wrong_by_itself_is_told() {
    let Some(fakes) = held("an_engine_that_is_wrong_by_itself_is_told") else { return };
    fakes.hold(false);
    let kinds = [None, Some("in picture 2 of"), Some("not finite"), Some("a later run"), Some("in another run")];
    for (kind, fault) in kinds.into_iter().enumerate() {
        for (verify, is_tried) in [("auto", true), ("auto", false), ("always", true), ("off", false)] {
            let case = format!("{kind}, {verify}");
            fakes.wrong(kind as c_long);
            let cache = fakes.folder.join(format!("cache-{kind}"));
            let infer = format!("batch-size=2 verify={verify} engine-cache={}", cache.display());
            let stream = Stream::new(fakes, "num-buffers=4", &infer);
            stream.set_state(gst::State::Playing);
            let (patience, bus) = (gst::ClockTime::try_from(HANG).unwrap(), stream.pipeline.bus().unwrap());
            let (mut warnings, mut steps) = (Vec::new(), Vec::new());
            loop {
                let message = bus.timed_pop(patience).expect("it hangs");
                match message.view() {
                    gst::MessageView::Warning(warning) => warnings.push(warning.error().to_string()),
                    gst::MessageView::Progress(progress) => steps.push(progress.get().2.to_string()),
                    gst::MessageView::Eos(_) => break,
                    gst::MessageView::Error(_) => panic!("{message:?}"),
                    _ => {}
                }
            }
            assert_eq!(steps.iter().any(|step| step.contains("verifying the engine")), is_tried, "{case}: {steps:?}");
            warnings.retain(|warning| warning.contains("computes something else than the model"));
            match fault.filter(|_| verify != "off") {
                Some(fault) => {
                    assert!(warnings.len() == 1 && warnings[0].contains(fault), "{case}: {warnings:?}");
                    assert!(warnings[0].contains("verify=off"), "{case}: {warnings:?}");
                }
                None => assert_eq!(warnings, [""; 0], "{case}"),
            }
            let verdict = stream.info().unwrap().get::<gst::Structure>("verified").ok();
            assert_eq!(verdict.is_some(), verify != "off", "{case}");
            if let Some(verdict) = verdict {
                assert_eq!(verdict.get::<bool>("passed").unwrap(), fault.is_none(), "{case}: {verdict:?}");
                assert!(verdict.get::<&str>("not-compared").unwrap().contains("engine"), "{verdict:?}");
                assert_eq!(verdict.get::<u32>("largest-batch").unwrap(), 2);
            }
            stream.set_state(gst::State::Null);
        }
    }
}

/// What the model cannot compute with would end the pipeline with the next frame. A trial is in no count.
#[test]
fn other_values_are_tried_on_the_gpu_before_they_take_over() {
    let Some(fakes) = held("other_values_are_tried_on_the_gpu_before_they_take_over") else { return };
    fakes.hold(false);
    let values = |name: &str, first: f32| {
        format!("values={}", save_floats(&fakes.folder.join(name).with_extension("npy"), &[4], &[first; 4]))
    };
    let [good, bad, other] = [("good", 1.0), ("bad", -1.0), ("other", 2.0)].map(|(name, first)| values(name, first));
    let stream = Stream::new(fakes, "", &format!("cuda-graph=off verify=off input-values={good}"));
    stream.infer.set_property("model-file", fakes.engine_with_values(4));
    let bus = stream.pipeline.bus().unwrap();
    let frames_pass = || {
        let before = stream.frames();
        wait_until("frames", LIMIT, || stream.frames() > before + 1);
    };
    let set = |text: &str| {
        stream.infer.set_property("input-values", text);
        stream.infer.property::<String>("input-values")
    };
    stream.set_state(gst::State::Playing);
    frames_pass();
    assert_eq!(set(&bad), good);
    let patience = gst::ClockTime::try_from(HANG).unwrap();
    let kinds = [gst::MessageType::Warning, gst::MessageType::Error];
    let message = bus.timed_pop_filtered(patience, &kinds).expect("it never comes");
    let gst::MessageView::Warning(warning) = message.view() else { panic!("{message:?}") };
    let text = warning.error().to_string();
    assert!(text.contains("does not run with input-values=values=") && text.contains("bad.npy"), "{text}");
    assert!(text.ends_with("The values in use stay."), "{text}");
    frames_pass();
    assert_eq!(set(&other), other);
    frames_pass();
    assert!(bus.pop_filtered(&kinds).is_none());
    stream.pipeline.send_event(gst::event::Eos::new());
    assert_eq!(stream.end(), []);
    let stats: gst::Structure = stream.infer.property("stats");
    let [batches, frames] = ["batches", "inferred"].map(|name| stats.get::<u64>(name).unwrap());
    assert_eq!(batches, frames);
    stream.set_state(gst::State::Null);
}
