// SPDX-License-Identifier: MPL-2.0
//! What the elements say where a wish cannot be met: settings that come too late or have no effect, models that are
//! swapped, formats that cannot be used, results that nothing reads, frames that were skipped.

use std::collections::BTreeSet;

use crate::common::boxes::{Line, SIDE, found, grey, model};
use crate::common::onnx::{F32, Graph};
use crate::common::{init, launch, scratch};
use gst::prelude::*;

const ROW: [[f32; 6]; 1] = [[8.0, 8.0, 24.0, 24.0, 0.9, 0.0]];
const FRAMES: &str = "videotestsrc num-buffers=3 ! video/x-raw,format=RGB,width=64,height=64";

/// The texts of the warnings on a bus so far.
fn warnings(bus: &gst::Bus) -> Vec<String> {
    std::iter::from_fn(|| bus.pop_filtered(&[gst::MessageType::Warning]))
        .map(|message| match message.view() {
            gst::MessageView::Warning(warning) => warning.error().message().to_string(),
            _ => unreachable!("filtered"),
        })
        .collect()
}

/// A value that a property does not have yet.
fn other_value(element: &gst::Element, property: &gst::glib::ParamSpec) -> gst::glib::Value {
    let value = element.property_value(property.name());
    if let Ok(text) = value.get::<Option<String>>() {
        return format!("{}1", text.unwrap_or_default()).to_value();
    }
    if let Ok(flag) = value.get::<bool>() {
        return (!flag).to_value();
    }
    if let Ok(number) = value.get::<i32>() {
        return (number + 1).to_value();
    }
    if let Ok(number) = value.get::<u32>() {
        return if number > 1 { number - 1 } else { number + 1 }.to_value();
    }
    if let Ok(number) = value.get::<u64>() {
        return number.wrapping_sub(1).to_value();
    }
    if let Ok(number) = value.get::<f32>() {
        return (number + 0.5).to_value();
    }
    let class = gst::glib::EnumClass::with_type(property.value_type()).expect("the other properties are enums");
    let (_, now) = gst::glib::EnumValue::from_value(&value).unwrap();
    let other = class.values().iter().find(|other| other.value() != now.value()).expect("another one");
    other.to_value(&class)
}

/// The properties of an element that are set in NULL or READY, as its page has it.
fn documented_for_start(element: &str) -> BTreeSet<String> {
    let page = format!("{}/docs/reference/{element}.md", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter(|row| row.contains("| NULL, READY |"));
    rows.map(|row| row.split('`').nth(1).unwrap().to_string()).collect()
}

#[test]
fn properties_of_ready_are_refused_while_playing() {
    init();
    let file = model(&scratch("refused"), &ROW);
    let line =
        format!("videotestsrc ! {} ! trtpreprocess ! trtinfer model-file={file} ! trtnms ! fakesink", &FRAMES[29..]);
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Paused).unwrap();
    pipeline.state(gst::ClockTime::from_seconds(30)).0.unwrap();
    let bus = pipeline.bus().unwrap();
    warnings(&bus);
    for name in ["trtpreprocess", "trtinfer", "trtnms"] {
        let element = pipeline.iterate_all_by_element_factory_name(name).next().unwrap().expect("it is in the line");
        let mut refused = BTreeSet::new();
        for property in element.list_properties() {
            let at_start = property.flags().contains(gst::PARAM_FLAG_MUTABLE_READY)
                && !property.flags().contains(gst::PARAM_FLAG_MUTABLE_PLAYING);
            if property.owner_type() != element.type_() || !at_start {
                continue;
            }
            let name = property.name();
            let before = format!("{:?}", element.property_value(name));
            element.set_property_from_value(name, &other_value(&element, &property));
            assert_eq!(format!("{:?}", element.property_value(name)), before, "{name}");
            let said = warnings(&bus);
            let [warning] = &said[..] else { panic!("{name}: {said:?}") };
            assert!(warning.starts_with(&format!("{name} stays as it is")), "{warning}");
            assert!(warning.contains("NULL or READY"), "{warning}");
            refused.insert(name.to_string());
        }
        assert_eq!(refused, documented_for_start(element.factory().unwrap().name().as_str()));
    }
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn a_restarted_trtinfer_negotiates_its_new_input_size() {
    let folder = scratch("restarted");
    let head = |side: &str| {
        let rows: Vec<f32> = ROW.concat();
        let graph = Graph::new().input("images", F32, &["1", "3", side, side]).constant("output0", &[1, 1, 6], &rows);
        graph
            .metadata("names", "{0: 'a', 1: 'b', 2: 'c'}")
            .metadata("task", "detect")
            .save(&folder.join(format!("{side}.onnx")))
    };
    let (small, large) = (head("32"), head("64"));
    init();
    let mut harness = gst_check::Harness::new_parse(&format!(
        "trtpreprocess ! trtinfer name=infer model-file={small} ! trtnms layout=end-to-end"
    ));
    harness.set_src_caps_str("video/x-raw,format=RGB,width=64,height=64,framerate=1/1");
    let frame = || gst::Buffer::from_slice(vec![0u8; 64 * 64 * 3]);
    let boxes = |buffer: gst::Buffer| -> Vec<_> {
        buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>().map(|region| region.rect()).collect()
    };
    assert_eq!(boxes(harness.push_and_pull(frame()).unwrap()), [(16, 16, 32, 32)]);

    let infer = harness.element().unwrap().downcast::<gst::Bin>().unwrap().by_name("infer").unwrap();
    infer.set_state(gst::State::Ready).unwrap();
    infer.set_property("model-file", &large);
    infer.sync_state_with_parent().unwrap();
    // Sticky events are gone with the pads' restart: upstream sends them again, as behind a blocked pad.
    assert_eq!(boxes(harness.push_and_pull(frame()).unwrap()), [(8, 8, 16, 16)]);
}

#[test]
fn properties_without_effect_on_the_cpu_are_named() {
    let file = model(&scratch("wishes"), &ROW);
    let run = |wishes: &str| {
        launch(&format!(
            "{FRAMES} ! trtpreprocess ! trtinfer model-file={file} backend=rten {wishes} ! trtnms ! fakesink"
        ))
    };
    for (wishes, named) in [
        ("precision=fp16", "precision has no effect: the model runs on the CPU"),
        ("trt-library=/nowhere dla-core=1", "trt-library, dla-core have no effect"),
        ("cuda-device-id=7 workspace-mib=64", "workspace-mib, cuda-device-id have no effect"),
        ("optimization-level=5 engine-build=never", "optimization-level, engine-build have no effect"),
    ] {
        let outcome = run(wishes);
        outcome.expect_success();
        let [warning] = &outcome.warnings[..] else { panic!("{wishes}: {:?}", outcome.warnings) };
        assert!(warning.contains(named) && warning.contains("backend=tensorrt"), "{warning}");
    }
    assert!(run("").warnings.is_empty());
    run("cuda-graph=on").expect_error("ResourceError::Settings", &["cuda-graph=on needs TensorRT"]);
}

#[test]
fn properties_without_effect_on_what_the_model_gives_are_named() {
    let boxes = model(&scratch("purposes"), &ROW);
    let scores = Graph::new()
        .input("images", F32, &["1", "3", "32", "32"])
        .constant("scores", &[1, 3], &[0.5, 0.25, 0.25])
        .metadata("task", "classify")
        .save(&scratch("purposes-classes").join("classes.onnx"));
    let run = |file: &str, pre: &str, nms: &str| {
        let preprocess = format!("{FRAMES} ! trtpreprocess {pre}");
        let outcome =
            launch(&format!("{preprocess} ! trtinfer model-file={file} backend=rten ! trtnms {nms} ! fakesink"));
        outcome.expect_success();
        outcome.warnings.clone()
    };
    for (file, pre, nms, named) in [
        (&boxes, "", "top-k=3", "top-k has no effect"),
        (&boxes, "", "iou-threshold=0.7", "iou-threshold has no effect"),
        (&boxes, "", "mask-output=none", "mask-output has no effect"),
        (&boxes, "", "merge=nms class-agnostic=true", "class-agnostic, merge have no effect"),
        (&boxes, "slices=2x1", "iou-threshold=0.7", "iou-threshold has no effect"),
        (&scores, "", "iou-threshold=0.7 max-detections=3", "iou-threshold, max-detections have no effect"),
        (&boxes, "upload=mapped", "", "upload has no effect: the model runs on the CPU"),
        (&boxes, "slice-overlap=0.3", "", "slice-overlap has no effect: slice-overlap needs slices or slice-size"),
        (&boxes, "slice-frame=false region-list=0,0,1,1", "", "slice-frame, region-list have no effect"),
        (&boxes, "slices=2x1 max-objects=3", "", "max-objects has no effect: max-objects needs regions=objects"),
        (&boxes, "object-classes=a min-object-size=3 object-padding=1", "", "object-padding have no effect"),
        (&boxes, "reclassify-interval=5", "", "reclassify-interval has no effect"),
        (&boxes, "align=face", "", "align has no effect: align needs regions=objects"),
        (&boxes, "shortest-edge=64", "", "shortest-edge has no effect: shortest-edge needs resize=center-crop"),
        (&boxes, "resize=stretch pad-value=0", "", "pad-value has no effect: pad-value needs resize=letterbox"),
    ] {
        let said = run(file, pre, nms);
        let [warning] = &said[..] else { panic!("{pre} {nms}: {said:?}") };
        assert!(warning.contains(named), "{warning}");
    }
    for (file, pre, nms) in [
        (&boxes, "upload=auto", "top-k=5 score-threshold=0.5 max-detections=3"),
        (&boxes, "slices=2x1", "merge=nms class-agnostic=true"),
        (&boxes, "slice-size=32x32 slice-overlap=0.3 slice-frame=false", ""),
        (&boxes, "regions=list region-list=0,0,1,1 pad-value=0", ""),
        (&boxes, "resize=center-crop shortest-edge=64", ""),
        (&scores, "", "top-k=1 score-threshold=0.1 class-scores=probabilities"),
    ] {
        assert_eq!(run(file, pre, nms), [""; 0], "{pre} {nms}");
    }
}

#[test]
fn properties_without_effect_where_messages_go_are_named() {
    let folder = scratch("publish-purposes");
    let file = folder.join("out.jsonl").display().to_string();
    let said = |properties: &str| {
        let outcome = launch(&format!("{FRAMES} ! trtpublish {properties} ! fakesink"));
        outcome.expect_success();
        outcome.warnings.clone()
    };
    for (properties, named) in [
        ("per=event publish-every=5", "publish-every has no effect: publish-every needs per=frame"),
        ("per=object add-empty-results=true", "add-empty-results has no effect"),
        ("gone-after=5", "gone-after has no effect: gone-after needs per=object"),
        ("vectors=true format=coco", "vectors has no effect: vectors needs per=frame and format=gst-trt"),
        ("max-files=3", "max-files has no effect: max-files needs a file as location, and max-file-size"),
        ("timeout=5 max-reconnect-interval=5", "timeout, max-reconnect-interval have no effect"),
    ] {
        let said = said(&format!("location={file} {properties}"));
        let [warning] = &said[..] else { panic!("{properties}: {said:?}") };
        assert!(warning.contains(named), "{warning}");
    }
    let said_of_output = said("location=- max-file-size=5");
    assert!(
        said_of_output[0].contains("max-file-size has no effect: max-file-size needs a file"),
        "{said_of_output:?}"
    );
    for properties in [
        "publish-every=5 add-empty-results=true vectors=true",
        "per=object gone-after=5",
        "max-file-size=500 max-files=3",
    ] {
        assert_eq!(said(&format!("location={file} {properties}")), [""; 0], "{properties}");
    }
}

#[test]
fn a_property_without_effect_is_told_when_it_is_set_and_once() {
    let mut line = Line::new(&model(&scratch("told-once"), &ROW), "");
    let mut push = |property: &str, value: &str| {
        line.nms().set_property_from_str(property, value);
        drop(line.push(grey(SIDE * SIDE * 3)));
        drop(line.push(grey(SIDE * SIDE * 3)));
        line.messages_of(gst::MessageType::Warning).len()
    };
    assert_eq!(push("score-threshold", "0.5"), 0);
    assert_eq!(push("top-k", "3"), 1);
    assert_eq!(push("score-threshold", "0.6"), 0);
    assert_eq!(push("top-k", "5"), 0);
    assert_eq!(push("mask-output", "none"), 1);
}

#[test]
fn frames_of_another_format_end_in_an_error_behind_decodebin_too() {
    init();
    let folder = scratch("formats");
    let (file, clip) = (model(&folder, &ROW), folder.join("y444.mkv"));
    launch(&format!(
        "videotestsrc num-buffers=3 ! video/x-raw,format=Y444,width=64,height=64 ! x264enc ! matroskamux ! filesink location={}",
        clip.display()
    ))
    .expect_success();
    let outcome = launch(&format!(
        "filesrc location={} ! decodebin ! trtpreprocess ! trtinfer model-file={file} ! trtnms ! fakesink",
        clip.display()
    ));
    outcome.expect_error("CoreError::Negotiation", &["Cannot use frames of Y444", "Put videoconvert before it"]);
}

#[test]
fn errors_for_other_frameworks_files_have_the_export_command() {
    let folder = scratch("others");
    let run = |file: &str| launch(&format!("{FRAMES} ! trtpreprocess ! trtinfer model-file={file} ! fakesink"));
    let file = |name: &str| {
        std::fs::write(folder.join(name), b"PK\x03\x04").unwrap();
        folder.join(name).display().to_string()
    };
    run(&file("yolo11n.pt")).expect_error("LibraryError::Init", &["yolo export model=FILE.pt format=onnx"]);
    run(&file("net.tflite")).expect_error("LibraryError::Init", &["tf2onnx"]);
    run("file:///models/a.onnx")
        .expect_error("ResourceError::NotFound", &["Give the path of a file, or the address of a model on a server"]);
    let here = std::env::current_dir().unwrap().display().to_string();
    run("nowhere.onnx").expect_error("ResourceError::NotFound", &["There is no model file nowhere.onnx", &here]);
}

#[test]
fn results_that_nothing_reads_are_reported() {
    let file = model(&scratch("unread"), &ROW);
    let run = |sink: &str| launch(&format!("{FRAMES} ! trtpreprocess ! trtinfer model-file={file} ! {sink}"));
    let outcome = run("fakesink");
    outcome.expect_success();
    let [warning] = &outcome.warnings[..] else { panic!("{:?}", outcome.warnings) };
    assert!(warning.contains("trtnms is missing behind trtinfer"), "{warning}");
    for sink in ["trtnms ! fakesink", "queue ! trtnms ! fakesink"] {
        assert!(run(sink).warnings.is_empty(), "{sink}");
    }
}

#[test]
fn skipped_frames_repeat_the_last_boxes_as_held() {
    let file = model(&scratch("held"), &ROW);
    let seen = |nms: &str| {
        let mut line = Line::new(&file, &format!("post-messages=true {nms}"));
        line.element("trtinfer").set_property("interval", 3u32);
        (0..4).for_each(|_| drop(line.push(grey(SIDE * SIDE * 3))));
        let said = line.messages();
        said.iter()
            .map(|message| (message.get::<bool>("held").unwrap(), message.get::<u32>("count").unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(seen(""), [(false, 1), (true, 1), (true, 1), (false, 1)]);
    assert_eq!(seen("hold-detections=false"), [(false, 1), (false, 1)]);
}

#[test]
fn held_boxes_end_with_their_part_of_the_stream() {
    let file = model(&scratch("held-flush"), &ROW);
    init();
    let mut harness = gst_check::Harness::new_parse(&format!(
        "trtpreprocess ! trtinfer model-file={file} interval=9 ! trtnms name=nms layout=end-to-end"
    ));
    harness.set_src_caps_str("video/x-raw,format=RGB,width=64,height=64,framerate=1/1");
    let held = |harness: &mut gst_check::Harness| {
        let buffer = harness.push_and_pull(gst::Buffer::from_slice(vec![0u8; 64 * 64 * 3])).unwrap();
        let regions = buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>();
        regions.map(|region| region.param("detection").unwrap().get::<bool>("held").is_ok()).collect::<Vec<_>>()
    };
    assert_eq!(held(&mut harness), [false]);
    assert_eq!(held(&mut harness), [true]);
    harness.push_event(gst::event::FlushStart::new());
    harness.push_event(gst::event::FlushStop::new(true));
    harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    // The frame that is inferred is lost on its way, as in a queue that is full.
    let bin = harness.element().unwrap().downcast::<gst::Bin>().unwrap();
    let input = bin.by_name("nms").unwrap().static_pad("sink").unwrap();
    let lost = input.add_probe(gst::PadProbeType::BUFFER, |_, _| gst::PadProbeReturn::Drop).unwrap();
    harness.push(gst::Buffer::from_slice(vec![0u8; 64 * 64 * 3])).unwrap();
    input.remove_probe(lost);
    assert!(held(&mut harness).is_empty());
}

/// trtnms has nothing to repeat on the frames behind it. As input-selector switches from one camera to another, the caps and the
/// segment stay.
#[test]
fn the_first_frame_of_another_part_of_the_stream_is_inferred() {
    init();
    let file = model(&scratch("inferred-first"), &ROW);
    let segment = || gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new());
    let flush = || vec![gst::event::FlushStart::new(), gst::event::FlushStop::new(true), segment()];
    let another = || vec![gst::event::StreamStart::new("another"), segment()];
    for (what, events, time, side) in [
        ("a seek back", flush(), 0, SIDE),
        ("a seek", flush(), 60_000, SIDE),
        ("another stream", another(), 120, SIDE),
        ("frames of another size", vec![], 120, 2 * SIDE),
    ] {
        let mut line =
            Line::parse(&format!("trtpreprocess ! trtinfer model-file={file} interval=9 ! trtnms draw=false"));
        let push = |line: &mut Line, time: u64, side: u32| {
            let mut buffer = grey(side * side * 3);
            buffer.get_mut().unwrap().set_pts(time * gst::ClockTime::MSECOND);
            found(&line.push(buffer)).len()
        };
        assert_eq!([0, 40, 80].map(|time| push(&mut line, time, SIDE)), [1; 3], "{what}");
        if side != SIDE {
            line.caps("RGB", side, side);
        }
        events.into_iter().for_each(|event| line.push_event(event));
        assert_eq!(push(&mut line, time, side), 1, "{what}");
        let stats: gst::Structure = line.element("trtinfer").property("stats");
        let counts = ["inferred", "skipped", "missing"].map(|name| stats.get::<u64>(name).unwrap());
        assert_eq!(counts, [2, 2, 0], "{what}");
    }
}
