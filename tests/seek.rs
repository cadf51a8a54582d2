// SPDX-License-Identifier: MPL-2.0
//! Flushing seeks and flushes return while the streaming thread waits: for a sink that has its frame, for room in a queue,
//! for a broker.

use std::sync::mpsc::channel;
use std::thread;

use crate::common::boxes::model;
use crate::common::elements::ELEMENTS;
use crate::common::wait::{LIMIT, wait_until};
use crate::common::{init, scratch};
use gst::prelude::*;

/// Each element with what it needs around it.
fn line_of(element: &str, folder: &std::path::Path) -> String {
    let infer = || {
        format!(
            "trtpreprocess name=p ! trtinfer name=i model-file={}",
            model(folder, &[[8.0, 8.0, 40.0, 40.0, 0.9, 0.0]])
        )
    };
    match element {
        "trtpreprocess" => "trtpreprocess tensor-size=64x64".into(),
        "trtinfer" => infer(),
        "trtnms" => format!("{} ! trtnms", infer()),
        "trtanalytics" => r#"trtanalytics config="{\"zones\":[{\"id\":\"z\",\"points\":[[0,0],[9,0],[9,9]]}]}""#.into(),
        "trtmatch" => {
            let gallery = folder.join("people.jsonl");
            std::fs::write(&gallery, "{\"name\": \"Ada\", \"vector\": [1, 0]}\n").unwrap();
            format!("trtmatch gallery={}", gallery.display())
        }
        "trtpublish" => format!("trtpublish location={}", folder.join("out.jsonl").display()),
        other => other.into(),
    }
}

struct Paused {
    pipeline: gst::Pipeline,
}

impl Paused {
    fn new(line: &str) -> Self {
        init();
        let line = format!("videotestsrc ! video/x-raw,format=RGB,width=64,height=64 ! {line}");
        let pipeline = gst::parse::launch(&line).expect(&line).downcast::<gst::Pipeline>().unwrap();
        pipeline.set_state(gst::State::Paused).unwrap();
        Paused { pipeline }
    }

    fn is_prerolled(&self) {
        let (result, state, _) = self.pipeline.state(gst::ClockTime::from_seconds(60));
        assert_eq!((result.unwrap(), state), (gst::StateChangeSuccess::Success, gst::State::Paused));
    }

    fn by_name(&self, name: &str) -> gst::Element {
        self.pipeline.by_name(name).unwrap()
    }

    /// Does it in a thread of its own, which must return.
    fn returns(&self, what: &str, act: impl FnOnce(gst::Pipeline) + Send + 'static) {
        let (done, is_done) = channel();
        let pipeline = self.pipeline.clone();
        thread::spawn(move || {
            act(pipeline);
            done.send(()).unwrap();
        });
        if is_done.recv_timeout(LIMIT).is_err() {
            std::mem::forget(self.pipeline.clone()); // not to be freed while its threads wait
            panic!("{what}: it never returns");
        }
    }

    fn seek(&self, what: &str) {
        self.returns(what, |pipeline| pipeline.seek_simple(gst::SeekFlags::FLUSH, gst::ClockTime::ZERO).unwrap());
    }

    fn stop(self) {
        self.pipeline.set_state(gst::State::Null).unwrap();
    }
}

#[test]
fn each_element_lets_a_paused_pipeline_be_sought() {
    for element in ELEMENTS {
        let folder = scratch(&format!("seek-{element}"));
        let paused = Paused::new(&format!("{} ! fakesink", line_of(element, &folder)));
        for _ in 0..3 {
            paused.is_prerolled();
            paused.seek(element);
        }
        paused.is_prerolled();
        paused.stop();
    }
}

/// The queue before the sink has no room, and the element waits for some with a frame in its hands.
#[test]
fn each_element_lets_a_full_queue_be_flushed() {
    for element in ELEMENTS {
        let folder = scratch(&format!("flush-{element}"));
        let line = line_of(element, &folder);
        let paused = Paused::new(&format!(
            "identity name=before ! {line} ! queue name=full max-size-buffers=1 max-size-bytes=0 max-size-time=0 ! fakesink"
        ));
        let queue = paused.by_name("full");
        let is_full = || queue.property::<u32>("current-level-buffers") == 1;
        for _ in 0..3 {
            paused.is_prerolled();
            wait_until("the queue is full", LIMIT, is_full);
            paused.seek(element);
        }
        paused.is_prerolled();
        wait_until("the queue is full", LIMIT, is_full);
        // The same by events alone, from another thread.
        let before = paused.by_name("before").static_pad("src").unwrap();
        paused.returns(element, move |_| {
            before.push_event(gst::event::FlushStart::new());
            before.push_event(gst::event::FlushStop::new(true));
        });
        paused.stop();
    }
}

/// With drop=block the element waits for room among the messages, and nobody takes them.
#[test]
fn a_broker_that_is_away_does_not_hold_a_seek_up() {
    let socket = scratch("seek-broker").join("socket");
    let paused = Paused::new(&format!(
        "trtpublish name=publish location=unix:{} max-queued=2 drop=block add-empty-results=true ! fakesink sync=false",
        socket.display()
    ));
    let publish = paused.by_name("publish");
    let queued = || publish.property::<gst::Structure>("stats").get::<u64>("queued").unwrap();
    paused.pipeline.set_state(gst::State::Playing).unwrap();
    for _ in 0..3 {
        wait_until("the messages wait", LIMIT, || queued() == 2);
        paused.seek("trtpublish");
    }
    paused.stop();
}

/// Each query and each event of an application returns too.
#[test]
fn each_element_answers_while_its_streaming_thread_waits() {
    for element in ELEMENTS {
        let folder = scratch(&format!("query-{element}"));
        let paused = Paused::new(&format!("{} ! fakesink name=sink", line_of(element, &folder)));
        paused.is_prerolled();
        let sink = paused.by_name("sink").static_pad("sink").unwrap();
        paused.returns(element, move |pipeline| {
            let peer = sink.peer().unwrap();
            let mut queries: [gst::Query; 5] = [
                gst::query::Latency::new().into(),
                gst::query::Position::new(gst::Format::Time).into(),
                gst::query::Segment::new(gst::Format::Time).into(),
                gst::query::Caps::new(None).into(),
                gst::query::Context::new("gst.cuda.context").into(),
            ];
            for query in &mut queries {
                peer.query(query.make_mut());
            }
            let custom = gst::Structure::new_empty("application/x-custom");
            for event in
                [gst::event::CustomDownstreamOob::new(custom.clone()), gst::event::CustomBothOob::new(custom.clone())]
            {
                pipeline.send_event(event);
            }
            sink.push_event(gst::event::CustomUpstream::new(custom));
            sink.push_event(gst::event::Reconfigure::new());
            sink.push_event(gst::event::Qos::new(gst::QOSType::Underflow, 1.0, 0, gst::ClockTime::ZERO));
        });
        paused.stop();
    }
}
