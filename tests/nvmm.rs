// SPDX-License-Identifier: MPL-2.0
//! Frames in NVMM memory on the CPU, by a stand-in for NVIDIA's library that counts what is mapped.

use std::sync::{Arc, Mutex};

use crate::common::boxes::{Found, Line, found};
use crate::common::nvmm::*;
use crate::common::{path, shapes};
use gst::prelude::*;
use gst_video::VideoInfo;

/// The first frames of the sample clip in that format.
fn decoded(format: &str, count: usize) -> (gst::Caps, Vec<gst::Buffer>) {
    crate::common::init();
    let line = format!(
        "filesrc location={} ! qtdemux ! h264parse ! avdec_h264 ! videoconvert ! video/x-raw,format={format} \
         ! appsink name=out sync=false max-buffers=4",
        path("tests/data/sample.mp4")
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let out = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let samples: Vec<gst::Sample> = (0..count).map(|_| out.pull_sample().unwrap()).collect();
    pipeline.set_state(gst::State::Null).unwrap();
    (samples[0].caps_owned().unwrap(), samples.iter().map(|sample| sample.buffer_owned().unwrap()).collect())
}

/// Pushes frames through a detector on the CPU.
fn detector(caps: &gst::Caps, nms: &str) -> Line {
    let line = format!("trtpreprocess ! trtinfer backend=rten model-file={} ! trtnms {nms}", shapes());
    let mut line = Line::parse(&line);
    line.set_caps(caps);
    line
}

/// What is found in frames in that kind of memory, each of which must come out as it went in.
fn found_in(memory: i32, caps: &gst::Caps, frames: &[gst::Buffer]) -> Vec<Vec<Found>> {
    let info = VideoInfo::from_caps(caps).unwrap();
    let mut line = detector(&in_nvmm(caps), "draw=false");
    let push = |frame: &gst::Buffer| {
        let buffer = NvmmPicture::of(memory, &info, frame).into_buffer();
        let surface = buffer.peek_memory(0).as_ptr();
        let out = line.push(buffer);
        assert_eq!((out.n_memory(), out.peek_memory(0).as_ptr()), (1, surface));
        expect_nothing_open("a frame that came out");
        found(&out)
    };
    let all = frames.iter().map(push).collect();
    assert_eq!(line.said(), [""; 0]);
    all
}

fn same_boxes(formats: &[&str], memories: &[i32]) {
    for format in formats {
        let (caps, frames) = decoded(format, 2);
        let mut line = detector(&caps, "draw=false");
        let expected: Vec<_> = frames.iter().map(|frame| found(&line.push(frame.copy()))).collect();
        assert!(expected.iter().all(|found| !found.is_empty()), "{format}");
        for &memory in memories {
            assert_eq!(found_in(memory, &caps, &frames), expected, "{format} in memory {memory}");
        }
    }
}

#[test]
fn boxes_are_those_of_system_memory_in_each_format() {
    same_boxes(&["NV12", "P010_10LE", "I420", "RGB", "BGR", "RGBA", "BGRA", "RGBx", "BGRx", "GRAY8"], &[SURFACE_ARRAY]);
    let (maps, syncs, images) = counts();
    assert_eq!((maps, syncs, images), (20, 20, 0), "once for each frame");
}

#[test]
fn boxes_are_those_of_system_memory_in_each_memory() {
    same_boxes(&["NV12"], &[PINNED, UNIFIED, SURFACE_ARRAY, HANDLE, SYSTEM]);
    let (maps, syncs, _) = counts();
    assert_eq!((maps, syncs), (6, 4), "where they are needed");
}

/// NV12 64x48, and the message about a frame of it that cannot be used.
struct Refusals {
    caps: gst::Caps,
    info: VideoInfo,
}

impl Refusals {
    fn new() -> Self {
        crate::common::init();
        let caps: gst::Caps = crate::common::preprocess::video("NV12", 64, 48, "").parse().unwrap();
        Refusals { info: VideoInfo::from_caps(&caps).unwrap(), caps: in_nvmm(&caps) }
    }

    fn picture(&self, memory: i32) -> NvmmPicture {
        NvmmPicture::new(memory, &self.info)
    }

    #[track_caller]
    fn expect(&self, what: &str, buffer: gst::Buffer, parts: &[&str]) {
        let mut line = detector(&self.caps, "draw=false");
        assert_eq!(line.try_push(buffer), Err(gst::FlowError::Error), "{what}");
        let said = line.said();
        let is_told = said.len() == 1 && parts.iter().all(|part| said[0].contains(part));
        assert!(is_told, "{what}: {said:?}");
        expect_nothing_open(what);
    }
}

#[test]
fn surfaces_that_contradict_their_caps_are_refused() {
    let refusals = Refusals::new();
    for (field, value, parts) in [
        ("batchSize", 0, ["room for 0 frames", "nvstreamdemux"]),
        ("batchSize", 4, ["room for 4 frames", "nvstreamdemux"]),
        ("batchSize", u32::MAX.into(), ["room for 4294967295 frames", "nvstreamdemux"]),
        ("numFilled", 2, ["2 are in it", "nvstreamdemux"]),
        ("surfaceList", 0, ["list of pictures is missing", "upstream"]),
        ("surfaceList", 3, ["list of pictures is missing", "upstream"]),
        ("memType", 7, ["NvBufSurfaceMemType 7", "upstream"]),
        ("layout", 1, ["block-linear", "nvvidconv bl-output=false"]),
        ("layout", 9, ["block-linear", "nvvideoconvert bl-output=false"]),
        ("colorFormat", 19, ["NvBufSurfaceColorFormat is 19", "NV12"]),
        ("colorFormat", 0, ["NvBufSurfaceColorFormat is 0", "NV12"]),
        ("width", 63, ["63x48 pixels", "64x48"]),
        ("height", 47, ["64x47 pixels", "64x48"]),
        ("num_planes", 1, ["1 planes", "2"]),
        ("num_planes", u32::MAX.into(), ["4294967295 planes", "2"]),
        ("width[]", 31, ["plane 1 has 31x24 pixels", "24 rows of 64 bytes"]),
        ("height[]", 23, ["plane 1 has 32x23 pixels", "24 rows of 64 bytes"]),
        ("bytesPerPix[]", 1, ["of 1 bytes", "24 rows of 64 bytes"]),
        ("pitch[]", 63, ["rows of 63 bytes", "24 rows of 64 bytes"]),
        ("pitch[]", u32::MAX.into(), ["rows of 4294967295 bytes", "24 rows of 64 bytes"]),
        ("psize[]", 23 * 256 + 63, ["5951 bytes", "24 rows of 64 bytes"]),
    ] {
        let buffer = refusals.picture(SURFACE_ARRAY).with(field, value).into_buffer();
        refusals.expect(&format!("{field}={value}"), buffer, &parts);
    }
    for (field, value, parts) in [
        ("dataPtr", 0, ["no address", "upstream"]),
        ("dataSize", 256 * 48 + 23 * 256 + 63, ["24 rows of 64 bytes", "upstream"]),
        ("offset[]", u32::MAX.into(), ["at 4294967295", "24 rows of 64 bytes"]),
    ] {
        let buffer = refusals.picture(SYSTEM).with(field, value).into_buffer();
        refusals.expect(&format!("{field}={value}"), buffer, &parts);
    }
    assert_eq!(counts(), (0, 0, 0), "nothing of them is mapped");
}

/// What the headers allow is read: a batch of one that is not marked as filled, other colorimetry, larger pictures.
#[test]
fn surfaces_that_their_caps_allow_are_read() {
    let refusals = Refusals::new();
    let mut line = detector(&refusals.caps, "draw=false");
    for (field, value) in [("numFilled", 0), ("colorFormat", 34), ("width", 80), ("gpuId", 7), ("pitch[]", 64)] {
        line.push(refusals.picture(SURFACE_ARRAY).with(field, value).into_buffer());
        expect_nothing_open(field);
    }
}

#[test]
fn buffers_that_hold_no_surface_are_refused() {
    let refusals = Refusals::new();
    refusals.expect("nothing", gst::Buffer::new(), &["0 memories", "upstream"]);
    refusals.expect("few bytes", gst::Buffer::from_slice([0u8; 31]), &["31 bytes", "NvBufSurface"]);
    let mut two = refusals.picture(SYSTEM).into_buffer();
    two.get_mut().unwrap().append_memory(gst::Memory::from_slice([0u8; 8]));
    refusals.expect("two memories", two, &["2 memories", "upstream"]);
}

#[test]
fn calls_that_fail_leave_nothing_mapped() {
    let refusals = Refusals::new();
    for (what, call, parts) in [
        (MAP, "NvBufSurfaceMap", ["NvBufSurfaceMap failed", "nvvideoconvert"]),
        (SYNC, "NvBufSurfaceSyncForCpu", ["NvBufSurfaceSyncForCpu failed", "nvvideoconvert"]),
        (NO_ADDRESS, "an address", ["no address for plane 1", "upstream"]),
    ] {
        fail(what);
        refusals.expect(call, refusals.picture(SURFACE_ARRAY).into_buffer(), &parts);
        fail(NOTHING);
    }
    detector(&refusals.caps, "draw=false").push(refusals.picture(SURFACE_ARRAY).into_buffer());
}

#[test]
fn memory_of_a_gpu_is_not_for_the_cpu() {
    let refusals = Refusals::new();
    let parts = ["memory of a GPU", "nvvideoconvert ! video/x-raw", "backend=tensorrt"];
    refusals.expect("device", refusals.picture(DEVICE).into_buffer(), &parts);
    // The usual memory of a machine: a GPU's where it has an address, else that of the video hardware.
    refusals.expect("default", refusals.picture(DEVICE).with("memType", 0).into_buffer(), &parts);
    detector(&refusals.caps, "draw=false").push(refusals.picture(SURFACE_ARRAY).into_buffer());
}

#[test]
fn nothing_is_drawn_on_them() {
    let refusals = Refusals::new();
    let detector_that_draws = format!("trtpreprocess ! trtinfer backend=rten model-file={} ! trtnms", shapes());
    for elements in [&detector_that_draws, "trtpreprocess tensor-size=64x64 ! trtoverlay"] {
        let mut line = Line::parse(elements);
        line.set_caps(&refusals.caps);
        assert!(line.try_push(refusals.picture(SYSTEM).into_buffer()).is_err());
        let said = line.said();
        assert!(said.iter().all(|said| said.contains("Cannot draw on frames in NVMM memory")), "{said:?}");
        assert!(said[0].contains("nvvideoconvert") && said[0].contains("draw=false"), "{said:?}");
    }
    // What can convert them is asked for others: they are not among what is offered.
    for (factory, draws) in [("trtnms", true), ("trtnms", false), ("trtoverlay", true)] {
        let element = gst::ElementFactory::make(factory).build().unwrap();
        if factory == "trtnms" {
            element.set_property("draw", draws);
        }
        for pad in element.pads() {
            let caps = pad.query_caps(None);
            let offers = caps.iter_with_features().any(|(_, features)| features.contains("memory:NVMM"));
            assert_eq!(offers, !draws, "{factory}: {caps}");
        }
    }
    // Where drawing is only switched on while frames come.
    let (caps, frames) = decoded("NV12", 1);
    let mut line = detector(&in_nvmm(&caps), "draw=false");
    line.nms().set_property("draw", true);
    let info = VideoInfo::from_caps(&caps).unwrap();
    let pushed = line.try_push(NvmmPicture::of(SURFACE_ARRAY, &info, &frames[0]).into_buffer());
    assert!(pushed.is_err(), "upstream is asked for others, and has none");
    assert!(line.said()[0].contains("Cannot draw on frames in NVMM memory"));
    expect_nothing_open("a frame that is not drawn on");
}

/// Any program may ask what an element takes, and goes on with other frames.
#[test]
fn a_question_is_no_error() {
    let refusals = Refusals::new();
    let mut harness = gst_check::Harness::new("trtoverlay");
    let (element, bus) = (harness.element().unwrap(), gst::Bus::new());
    let sink = element.static_pad("sink").unwrap();
    element.set_bus(Some(&bus));
    harness.set_src_caps(crate::common::preprocess::video("NV12", 64, 48, "").parse().unwrap());
    assert!(!sink.query_accept_caps(&refusals.caps));
    assert!(bus.pop_filtered(&[gst::MessageType::Error]).is_none());
    let stopped = gst::ElementFactory::make("trtoverlay").build().unwrap();
    stopped.set_bus(Some(&bus));
    assert!(!stopped.static_pad("sink").unwrap().query_accept_caps(&refusals.caps));
    assert!(bus.pop_filtered(&[gst::MessageType::Error]).is_none());
}

/// Elements that only read metas pass them on.
#[test]
fn the_other_elements_pass_them() {
    let (caps, frames) = decoded("NV12", 2);
    let folder = crate::common::scratch("nvmm-passes");
    let (zones, results) = (folder.join("zones.json"), folder.join("results.jsonl"));
    std::fs::write(&zones, r#"{"zones": [{"id": "all", "points": [[0, 0], [99, 0], [99, 99]]}]}"#).unwrap();
    let line = format!(
        "trtpreprocess ! trtinfer backend=rten model-file={} ! trtnms draw=false ! trttrack \
         ! trtanalytics config-file={} ! trtpublish location={}",
        shapes(),
        zones.display(),
        results.display()
    );
    let mut line = Line::parse(&line);
    line.set_caps(&in_nvmm(&caps));
    let info = VideoInfo::from_caps(&caps).unwrap();
    for frame in &frames {
        assert!(!rectangles(&line.push(NvmmPicture::of(HANDLE, &info, frame).into_buffer())).is_empty());
    }
    assert_eq!(counts().0, 2, "by trtpreprocess alone");
    expect_nothing_open("the chain");
}

fn rectangles(buffer: &gst::BufferRef) -> Vec<(u32, u32, u32, u32)> {
    buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>().map(|meta| meta.rect()).collect()
}

/// Two threads have the same surfaces at a time. There are flushes between frames, a stop without EOS, and EOS.
#[test]
fn branches_share_a_mapping_and_flushes_leave_none() {
    let (caps, frames) = decoded("NV12", 4);
    let branch = |name: &str| {
        format!(
            "queue ! trtpreprocess ! trtinfer backend=rten model-file={} ! trtnms draw=false ! fakesink name={name} \
             sync=false async=false",
            shapes()
        )
    };
    let line = format!("appsrc name=in format=time ! tee name=t ! {}  t. ! {}", branch("first"), branch("second"));
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let seen = ["first", "second"].map(|name| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = seen.clone();
        let pad = pipeline.by_name(name).unwrap().static_pad("sink").unwrap();
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            all.lock().unwrap().push(found(info.buffer().unwrap()));
            gst::PadProbeReturn::Ok
        });
        seen
    });
    let source = pipeline.by_name("in").unwrap().downcast::<gst_app::AppSrc>().unwrap();
    source.set_caps(Some(&in_nvmm(&caps)));
    let info = VideoInfo::from_caps(&caps).unwrap();
    let push = |number: usize| {
        let mut buffer = NvmmPicture::of(SURFACE_ARRAY, &info, &frames[number % frames.len()]).into_buffer();
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(40 * number as u64));
        source.push_buffer(buffer).unwrap();
    };
    pipeline.set_state(gst::State::Playing).unwrap();
    for _ in 0..3 {
        (0..4).for_each(push);
        assert!(source.send_event(gst::event::FlushStart::new()));
        expect_nothing_open("a flush");
        assert!(source.send_event(gst::event::FlushStop::new(true)));
    }
    (0..4).for_each(push);
    pipeline.set_state(gst::State::Null).unwrap();
    expect_nothing_open("a stop");

    seen.iter().for_each(|seen| seen.lock().unwrap().clear());
    pipeline.set_state(gst::State::Playing).unwrap();
    (0..12).for_each(push);
    source.end_of_stream().unwrap();
    let bus = pipeline.bus().unwrap();
    let end = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = bus.timed_pop_filtered(gst::ClockTime::from_seconds(60), &end).unwrap();
    assert_eq!(end.type_(), gst::MessageType::Eos, "{end:?}");
    expect_nothing_open("EOS");
    let [first, second] = seen.map(|seen| std::mem::take(&mut *seen.lock().unwrap()));
    assert!(first.len() == 12 && first == second && first.iter().all(|found| !found.is_empty()));
    pipeline.set_state(gst::State::Null).unwrap();
}
