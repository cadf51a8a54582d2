// SPDX-License-Identifier: MPL-2.0
//! The end of a stream with many destinations: they have one time together, and none waits for another.
#![cfg(feature = "mqtt")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gsttrt::gst::publish_end;

use crate::common::brokers::until;
use crate::common::hostile_peer::{Act, HostilePeer};
use crate::common::{init, scratch};
use crate::trtpublish::frame;

const HANGING: usize = 9;
/// Of each destination, in nanoseconds. One behind the other, they would take nine times as long.
const FLUSH_TIMEOUT: u64 = 2_000_000_000;
const TOGETHER: Duration = Duration::from_nanos(FLUSH_TIMEOUT * 4);

/// A file behind brokers that take connections and answer nothing.
struct ManyDestinations {
    pipeline: gst::Pipeline,
    source: gst_app::AppSrc,
    file: PathBuf,
    brokers: Vec<HostilePeer>,
}

impl ManyDestinations {
    fn new(name: &str, flush_timeout: u64) -> Self {
        init();
        let file = scratch(name).join("out.jsonl");
        let broker = |_| HostilePeer::new("hangs", "mqtt://127.0.0.1:PORT/t", vec![Act::Hear, Act::Hang]);
        let brokers: Vec<_> = (0..HANGING).map(broker).collect();
        let hanging: String = brokers
            .iter()
            .map(|broker| format!("! trtpublish location={} flush-timeout={flush_timeout} ", broker.location))
            .collect();
        let line = format!(
            "appsrc name=source format=time caps=video/x-raw,format=NV12,width=64,height=48,framerate=30/1 {hanging} \
             ! trtpublish location={} per=object ! fakesink sync=false async=false",
            file.display()
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let source = pipeline.by_name("source").unwrap().downcast::<gst_app::AppSrc>().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        ManyDestinations { pipeline, source, file, brokers }
    }

    /// A frame with an object that stays in sight.
    fn push(&self) {
        let mut frame = frame(&[1]);
        frame.get_mut().unwrap().set_pts(gst::ClockTime::ZERO);
        self.source.push_buffer(frame).unwrap();
        until("all are connected to", || self.brokers.iter().all(|broker| broker.connections() > 0));
    }

    #[track_caller]
    fn stop(&self) {
        let begun = Instant::now();
        self.pipeline.set_state(gst::State::Null).unwrap();
        assert!(begun.elapsed() < TOGETHER, "{:?}", begun.elapsed());
    }
}

fn has_a_line(file: &Path) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.lines().count() == 1)
}

#[test]
fn destinations_that_hang_have_one_time_together_at_the_end() {
    let many = ManyDestinations::new("publish-end-together", FLUSH_TIMEOUT);
    let bus = many.pipeline.bus().unwrap();
    let (file, was_written) = (many.file.clone(), Arc::new(AtomicBool::new(true)));
    let written = was_written.clone();
    bus.set_sync_handler(move |_, message| {
        if let gst::MessageView::Warning(warning) = message.view()
            && warning.error().message().contains("not sent at the end of the stream")
            && !has_a_line(&file)
        {
            written.store(false, Ordering::Relaxed);
        }
        gst::BusSyncReply::Pass
    });
    many.push();
    let begun = Instant::now();
    many.source.end_of_stream().unwrap();
    let end = bus.timed_pop_filtered(gst::ClockTime::from_seconds(120), &[gst::MessageType::Eos]);
    assert!(end.is_some() && begun.elapsed() < TOGETHER, "{:?}", begun.elapsed());
    assert!(was_written.load(Ordering::Relaxed), "the file has the end of the object before others are given up");
    let begun = Instant::now();
    many.stop();
    assert!(begun.elapsed() < Duration::from_nanos(FLUSH_TIMEOUT), "their time was over: {:?}", begun.elapsed());
}

#[test]
fn destinations_that_hang_have_one_time_together_when_they_are_stopped() {
    let many = ManyDestinations::new("publish-stop-together", FLUSH_TIMEOUT);
    many.push();
    many.stop();
    assert!(has_a_line(&many.file));
}

#[test]
fn an_end_that_has_begun_can_be_given_less_time() {
    const HOUR: u64 = 3_600_000_000_000;
    let many = ManyDestinations::new("publish-end-limited", HOUR);
    many.push();
    many.source.end_of_stream().unwrap();
    until("the others wait for their brokers", || has_a_line(&many.file));
    let first = many.source.static_pad("src").unwrap().peer().unwrap();
    assert!(first.send_event(publish_end::limit(Duration::ZERO)));
    many.stop();
}
