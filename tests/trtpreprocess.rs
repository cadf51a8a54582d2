// SPDX-License-Identifier: MPL-2.0
//! trtpreprocess: each property, formats and colorimetry, odd sizes, changes in mid-stream. Frames that lie are in
//! frames.rs.

use gst::prelude::*;
use gsttrt::gst::meta::tensor::TensorMeta;

use crate::common::onnx::{F32, Graph};
use crate::common::preprocess::*;
use crate::common::{launch, scratch};

const GREY: f32 = 114.0 / 255.0;

#[test]
fn each_property_shows() {
    let caps = video("RGB", 4, 2, "");
    let (pad, red) = ([GREY; 3], [1.0, 0.0, 0.4]);
    // Name and dimensions of the tensor; its pixels at the top left, in the middle, and at the bottom right.
    for (properties, desc, top, middle, bottom) in [
        ("", "f32 1x3x4x4", &pad[..], &red[..], &pad[..]),
        ("resize=letterbox", "f32 1x3x4x4", &pad, &red, &pad),
        ("resize=letterbox-top-left", "f32 1x3x4x4", &red, &red, &pad),
        ("resize=stretch", "f32 1x3x4x4", &red, &red, &red),
        ("pad-value=0", "f32 1x3x4x4", &[0.0; 3], &red, &[0.0; 3]),
        ("pad-value=255", "f32 1x3x4x4", &[1.0; 3], &red, &[1.0; 3]),
        ("tensor-colors=rgb", "f32 1x3x4x4", &pad, &red, &pad),
        ("tensor-colors=bgr", "f32 1x3x4x4", &pad, &[0.4, 0.0, 1.0], &pad),
        ("tensor-colors=gray", "f32 1x1x4x4", &pad[..1], &[0.299 + 0.4 * 0.114], &pad[..1]),
        ("scale=1", "f32 1x3x4x4", &[114.0; 3], &[255.0, 0.0, 102.0], &[114.0; 3]),
        ("mean=0.5", "f32 1x3x4x4", &[GREY - 0.5; 3], &[0.5, -0.5, -0.1], &[GREY - 0.5; 3]),
        ("mean=0,1,0.4 pad-value=0", "f32 1x3x4x4", &[0.0, -1.0, -0.4], &[1.0, -1.0, 0.0], &[0.0, -1.0, -0.4]),
        ("std=0.5", "f32 1x3x4x4", &[GREY * 2.0; 3], &[2.0, 0.0, 0.8], &[GREY * 2.0; 3]),
        (
            "mean=1,1,1 std=1,2,0.5 pad-value=0",
            "f32 1x3x4x4",
            &[-1.0, -0.5, -2.0],
            &[0.0, -0.5, -1.2],
            &[-1.0, -0.5, -2.0],
        ),
        ("tensor-order=nchw", "f32 1x3x4x4", &pad, &red, &pad),
        ("tensor-order=nhwc", "f32 1x4x4x3", &pad, &red, &pad),
        ("tensor-type=f32", "f32 1x3x4x4", &pad, &red, &pad),
        ("tensor-type=f16", "f16 1x3x4x4", &pad, &red, &pad),
        ("tensor-type=u8 scale=1", "u8 1x3x4x4", &[114.0; 3], &[255.0, 0.0, 102.0], &[114.0; 3]),
    ] {
        let mut bench = Bench::with_caps(&format!("tensor-size=4x4 {properties}"), &caps);
        let input = bench.tensor(solid(&caps, &[&[255, 0, 102]]));
        assert_eq!(input.desc(), format!("images {desc}"), "{properties}");
        for ((x, y), expected) in [((0, 0), top), ((2, 1), middle), ((3, 3), bottom)] {
            assert_near(&input.pixel(x, y), expected, 4e-4, &format!("{properties} at {x},{y}"));
        }
    }
    let mut bench = Bench::with_caps("tensor-size=6x4", &caps);
    assert_eq!(bench.tensor(solid(&caps, &[&[0; 3]])).desc(), "images f32 1x3x4x6");
}

#[test]
fn the_middle_is_cut_out_of_the_resized_frame() {
    // Four columns of red and four of blue; the tensor shows both, and the edge between them in its middle.
    let caps = video("RGB", 8, 4, "");
    let mut frame = solid(&caps, &[&[255, 0, 0]]);
    let mut map = frame.get_mut().unwrap().map_writable().unwrap();
    for row in map.chunks_exact_mut(24) {
        row[12..].chunks_exact_mut(3).for_each(|pixel| pixel.copy_from_slice(&[0, 0, 255]));
    }
    drop(map);
    let of = |properties: &str| {
        let input = Bench::with_caps(&format!("tensor-size=4x4 {properties}"), &caps).tensor(frame.clone());
        [0, 1, 2, 3].map(|x| (input.pixel(x, 1)[0] * 8.0).round())
    };
    assert_eq!(of("resize=center-crop"), [8.0, 8.0, 0.0, 0.0]);
    // Of 14x7 pixels made of 8x4 the middle four; and all of the frame, shrunk without antialiasing.
    assert_eq!(of("resize=center-crop shortest-edge=7"), [8.0, 6.0, 2.0, 0.0]);
    assert_eq!(of("resize=stretch"), [8.0, 8.0, 0.0, 0.0]);
    let line = "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=8,height=4 ! trtpreprocess tensor-size=4x4";
    launch(&format!("{line} resize=center-crop shortest-edge=3 ! fakesink"))
        .expect_error("CoreError::Negotiation", &["shortest-edge=3 makes it 6x3"]);
}

#[test]
fn properties_override_what_trtinfer_asks_for() {
    let model = Graph::new()
        .input("picture", F32, &["1", "3", "32", "64"])
        .constant("output0", &[1, 1, 6], &[0.0; 6])
        .save(&scratch("overrides").join("constant.onnx"));
    let line = |properties: &str| {
        let caps = video("RGB", 8, 8, "");
        tensors(&format!(
            "videotestsrc num-buffers=2 pattern=red ! {caps} ! trtpreprocess name=p {properties} ! trtinfer model-file={model} ! fakesink"
        ))
    };
    for (properties, corner, middle) in [
        ("", [GREY; 3], [1.0, 0.0, 0.0]),
        ("resize=stretch", [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
        ("pad-value=0", [0.0; 3], [1.0, 0.0, 0.0]),
        ("tensor-colors=bgr", [GREY; 3], [0.0, 0.0, 1.0]),
        ("scale=1", [114.0; 3], [255.0, 0.0, 0.0]),
        ("mean=0,0,1 std=1,1,2", [GREY, GREY, (GREY - 1.0) / 2.0], [1.0, 0.0, -0.5]),
        // Setting the model's own values changes nothing.
        ("tensor-size=64x32 tensor-order=nchw tensor-type=f32", [GREY; 3], [1.0, 0.0, 0.0]),
    ] {
        let (outcome, inputs) = line(properties);
        outcome.expect_success();
        assert_eq!(inputs.len(), 2);
        assert_eq!(inputs[0].desc(), "picture f32 1x3x32x64", "{properties}");
        assert_near(&inputs[0].pixel(0, 0), &corner, 1e-4, properties);
        assert_near(&inputs[0].pixel(32, 16), &middle, 1e-4, properties);
    }
    // A tensor that the model does not take.
    for properties in ["tensor-size=32x32", "tensor-order=nhwc", "tensor-type=f16", "tensor-colors=gray"] {
        line(properties).0.expect_error("StreamError::WrongType", &["picture f32 1x3x32x64", "tensor-"]);
    }
}

#[test]
fn formats_agree() {
    // Y, U and V of the same orange in full range BT.601, rounded.
    let (y, u, v) = (124, 86, 182);
    let orange = [200.0, 100.0, 50.0];
    for (format, pixel, expected) in [
        ("NV12", &[&[y][..], &[u, v]][..], orange),
        // 498, 344 and 729 of 10 bits.
        ("P010_10LE", &[&[0x80, 0x7c], &[0x00, 0x56, 0x40, 0xb6]], orange),
        ("I420", &[&[y], &[u], &[v]], orange),
        ("RGB", &[&[200, 100, 50]], orange),
        ("BGR", &[&[50, 100, 200]], orange),
        ("RGBA", &[&[200, 100, 50, 0]], orange),
        ("BGRA", &[&[50, 100, 200, 0]], orange),
        ("RGBx", &[&[200, 100, 50, 7]], orange),
        ("BGRx", &[&[50, 100, 200, 7]], orange),
        ("GRAY8", &[&[y]], [124.0; 3]),
    ] {
        let colorimetry = if pixel.len() > 1 { ",colorimetry=1:4:0:0" } else { "" };
        let caps = video(format, 6, 4, colorimetry);
        let input = Bench::with_caps("tensor-size=6x4 scale=1", &caps).tensor(solid(&caps, pixel));
        for (x, y) in [(0, 0), (3, 1), (5, 3)] {
            assert_near(&input.pixel(x, y), &expected, 0.75, format);
        }
    }
}

#[test]
fn colorimetry_comes_from_the_caps() {
    let (y, u, v) = (120u8, 96u8, 150u8);
    for (colorimetry, kr, kb, full) in [
        ("bt601", 0.299, 0.114, false),
        ("bt709", 0.2126, 0.0722, false),
        ("bt2020", 0.2627, 0.0593, false),
        ("1:4:5:1", 0.299, 0.114, true),
        ("1:3:5:1", 0.2126, 0.0722, true),
        ("1:6:13:7", 0.2627, 0.0593, true),
        // Unset, a small picture is BT.601 and one of more than 576 rows BT.709.
        ("", 0.299, 0.114, false),
        ("unset, high", 0.2126, 0.0722, false),
    ] {
        let (black, gain, chroma) = if full { (0.0, 1.0, 1.0) } else { (16.0, 255.0 / 219.0, 255.0 / 224.0) };
        let (luma, cb, cr) =
            ((f32::from(y) - black) * gain, (f32::from(u) - 128.0) * chroma, (f32::from(v) - 128.0) * chroma);
        let (red, blue) = (luma + 2.0 * (1.0 - kr) * cr, luma + 2.0 * (1.0 - kb) * cb);
        let green = (luma - kr * red - kb * blue) / (1.0 - kr - kb);

        let caps = match colorimetry {
            "" => video("NV12", 4, 4, ""),
            "unset, high" => video("NV12", 720, 720, ""),
            text => video("NV12", 4, 4, &format!(",colorimetry={text}")),
        };
        let input = Bench::with_caps("tensor-size=4x4 scale=1", &caps).tensor(solid(&caps, &[&[y], &[u, v]]));
        assert_near(&input.pixel(1, 2), &[red, green, blue], 1e-2, colorimetry);
    }
}

#[test]
fn chroma_is_nearest_or_sited_by_the_caps() {
    // Four columns, two of chroma: red is 128 + 1.402·(V − 128).
    let red = |v: [f32; 4]| v.map(|v| 128.0 + 1.402 * (v - 128.0));
    let own = [100.0, 100.0, 156.0, 156.0];
    for (site, sampling, v) in [
        ("mpeg2", "", own),
        ("jpeg", "chroma-sampling=nearest", own),
        ("mpeg2", "chroma-sampling=sited", [100.0, 128.0, 156.0, 156.0]),
        ("jpeg", "chroma-sampling=sited", [100.0, 114.0, 142.0, 156.0]),
    ] {
        let caps = video("I420", 4, 2, &format!(",colorimetry=1:4:0:0,chroma-site={site}"));
        let mut frame = solid(&caps, &[&[128], &[128], &[100]]);
        let offset = info(&caps).offset()[2] + 1;
        frame.get_mut().unwrap().copy_from_slice(offset, &[156]).unwrap();
        let input = Bench::with_caps(&format!("tensor-size=4x2 scale=1 {sampling}"), &caps).tensor(frame);
        let found: Vec<f32> = (0..4).map(|x| input.pixel(x, 1)[0]).collect();
        assert_near(&found, &red(v), 1e-2, &format!("{site} {sampling}"));
    }
}

#[test]
fn any_size_of_frame() {
    for (width, height) in [(1, 1), (7, 3), (3, 7), (33, 1), (1, 33), (641, 479), (8192, 8192)] {
        for (format, pixel) in
            [("NV12", &[&[90][..], &[128, 128]][..]), ("I420", &[&[90], &[128], &[128]]), ("BGR", &[&[90; 3]])]
        {
            if (width, format) == (8192, "I420") {
                continue;
            }
            let more = if format == "BGR" { "" } else { ",colorimetry=1:4:0:0" };
            let caps = video(format, width, height, more);
            let input = Bench::with_caps("tensor-size=9x9 scale=1 pad-value=0", &caps).tensor(solid(&caps, pixel));
            let letterbox = &input.0.inputs().list[0].letterbox;
            assert_eq!(letterbox.source, (width, height).into());
            for (x, y) in (0..81).map(|i| (i % 9, i / 9)) {
                let across = (letterbox.x..letterbox.x + letterbox.width).contains(&x);
                let down = (letterbox.y..letterbox.y + letterbox.height).contains(&y);
                let expected = if across && down { 90.0 } else { 0.0 };
                let found = input.pixel(x as usize, y as usize);
                assert_near(&found, &[expected; 3], 1e-3, &format!("{format} {width}x{height} at {x},{y}"));
            }
        }
    }
}

#[test]
fn caps_change_in_mid_stream() {
    let mut bench = Bench::new("tensor-size=4x4 scale=1 pad-value=0");
    for (caps, pixel, top, middle) in [
        (video("RGB", 8, 4, ""), &[&[9, 8, 7][..]][..], [0.0; 3], [9.0, 8.0, 7.0]),
        (video("RGB", 4, 4, ""), &[&[9, 8, 7]], [9.0, 8.0, 7.0], [9.0, 8.0, 7.0]),
        (video("BGR", 4, 4, ""), &[&[9, 8, 7]], [7.0, 8.0, 9.0], [7.0, 8.0, 9.0]),
        (video("NV12", 4, 4, ",colorimetry=1:4:0:0"), &[&[100], &[128, 128]], [100.0; 3], [100.0; 3]),
        (video("NV12", 4, 4, ",colorimetry=bt601"), &[&[126], &[128, 128]], [128.08; 3], [128.08; 3]),
    ] {
        bench.harness.set_src_caps_str(&caps);
        let input = bench.tensor(solid(&caps, pixel));
        assert_near(&input.pixel(0, 0), &top, 1e-2, &caps);
        assert_near(&input.pixel(2, 2), &middle, 1e-2, &caps);
    }
    assert_eq!(bench.said(), []);
}

#[test]
fn flushes_and_seeks() {
    let caps = video("GRAY8", 4, 4, "");
    let mut bench = Bench::with_caps("tensor-size=4x4", &caps);
    bench.tensor(solid(&caps, &[&[1]]));
    bench.harness.push_event(gst::event::FlushStart::new());
    assert_eq!(bench.harness.push(solid(&caps, &[&[2]])), Err(gst::FlowError::Flushing));
    bench.harness.push_event(gst::event::FlushStop::new(true));
    bench.harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    let input = bench.tensor(solid(&caps, &[&[255]]));
    assert_near(&input.pixel(0, 0), &[1.0; 3], 1e-6, "after the flush");

    let line = "videotestsrc num-buffers=20 ! video/x-raw,format=GRAY8,width=8,height=8,framerate=10/1 \
                ! trtpreprocess name=p tensor-size=8x8 ! fakesink";
    let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let collected = collect(&pipeline);
    pipeline.set_state(gst::State::Paused).unwrap();
    pipeline.state(gst::ClockTime::from_seconds(60)).0.unwrap();
    pipeline.seek_simple(gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE, gst::ClockTime::SECOND).unwrap();
    crate::common::run(&pipeline).expect_success();
    assert!(collected.lock().unwrap().len() > 1);
}

#[test]
fn wrong_properties_prevent_the_start() {
    for (property, expected_text) in [
        ("tensor-size=640", "640x640"),
        ("tensor-size=0x640", "from 1 to"),
        ("tensor-size=640x640x3", "tensor-size=640x640x3"),
        ("mean=a", "0.485,0.456,0.406"),
        ("mean=1,2", "mean=1,2"),
        ("std=0", "cannot be 0"),
        ("std=1,0,1", "cannot be 0"),
        ("std=inf", "std=inf"),
    ] {
        let errors = errors(&format!("videotestsrc ! trtpreprocess tensor-size=64x64 {property} ! fakesink"));
        assert_eq!(errors.len(), 1, "{errors:?}");
        let (domain, text) = &errors[0];
        assert_eq!(domain, "ResourceError::Settings", "{text}");
        assert!(text.contains(expected_text), "{text}");
    }
}

/// All errors on the bus of a pipeline that does not start.
fn errors(line: &str) -> Vec<(String, String)> {
    crate::common::init();
    let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let bus = pipeline.bus().unwrap();
    let started = pipeline.set_state(gst::State::Paused);
    assert!(started.is_err(), "{line}");
    let errors = bus.iter_filtered(&[gst::MessageType::Error]).map(|message| match message.view() {
        gst::MessageView::Error(message) => (crate::common::domain(&message.error()), message.error().to_string()),
        _ => unreachable!(),
    });
    let errors = errors.collect();
    pipeline.set_state(gst::State::Null).unwrap();
    errors
}

#[test]
fn without_size_and_without_trtinfer() {
    launch("videotestsrc num-buffers=1 ! trtpreprocess ! fakesink")
        .expect_error("ResourceError::Settings", &["trtinfer", "tensor-size"]);

    // Once, although the caps come again with each event and frame.
    let mut bench = Bench::new("");
    bench.expect_refusal(&video("RGB", 4, 4, ""));
    assert_eq!(bench.said().len(), 1, "{:?}", bench.said());
}

#[test]
fn frames_pass_untouched_and_uncopied() {
    let caps = video("RGB", 16, 8, "");
    let frame = solid(&caps, &[&[1, 2, 3]]);
    let bytes = frame.map_readable().unwrap().to_vec();
    let memory = |buffer: &gst::Buffer| buffer.peek_memory(0).as_ptr();
    let mut bench = Bench::with_caps("tensor-size=8x8", &caps);
    // Shared, as after tee: both see the same memory, and only one the tensor.
    bench.harness.push(frame.clone()).unwrap();
    let out = bench.harness.pull().unwrap();
    input(&out);
    assert_eq!(memory(&out), memory(&frame));
    assert_eq!(out.map_readable().unwrap().to_vec(), bytes);
    assert!(TensorMeta::get(&frame).is_none());
    // Alone: the very same buffer.
    drop(out);
    let (own, at) = (frame.as_ptr(), memory(&frame));
    bench.harness.push(frame).unwrap();
    let out = bench.harness.pull().unwrap();
    assert_eq!((out.as_ptr(), memory(&out)), (own, at));

    let (outcome, inputs) = tensors(
        "videotestsrc num-buffers=5 ! video/x-raw,format=NV12,width=64,height=48 ! tee name=t \
         t. ! queue ! trtpreprocess name=p tensor-size=8x8 ! fakesink t. ! queue ! fakesink",
    );
    outcome.expect_success();
    assert_eq!(inputs.len(), 5);
}

#[test]
fn tensor_memory_is_used_again() {
    let caps = video("RGB", 16, 8, "");
    let mut bench = Bench::with_caps("tensor-size=8x8", &caps);
    let at = |input: &Input| input.tensor().bytes().unwrap().as_ptr();
    let first = at(&bench.tensor(solid(&caps, &[&[0; 3]])));
    let second = bench.tensor(solid(&caps, &[&[0; 3]]));
    assert_eq!(at(&second), first);
    let third = bench.tensor(solid(&caps, &[&[0; 3]]));
    assert_ne!(at(&third), first, "the second is still in use");
    drop(second);
    assert_eq!(at(&bench.tensor(solid(&caps, &[&[0; 3]]))), first);
}

#[test]
fn a_second_trtpreprocess_replaces_the_tensor() {
    let (outcome, inputs) = tensors(
        "videotestsrc num-buffers=2 ! trtpreprocess tensor-size=8x8 ! trtpreprocess name=p tensor-size=16x16 ! fakesink",
    );
    outcome.expect_success();
    assert!(inputs.iter().all(|input| input.desc() == "images f32 1x3x16x16"));
    assert_eq!(inputs.len(), 2);
}

#[test]
fn properties_set_while_playing_stay_as_they_are() {
    let line = "videotestsrc num-buffers=3 ! trtpreprocess name=p tensor-size=8x8 ! fakesink";
    crate::common::init();
    let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let preprocess = pipeline.by_name("p").unwrap();
    let collected = collect(&pipeline);
    let (sink, element) = (preprocess.static_pad("sink").unwrap(), preprocess.clone());
    sink.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        element.set_property("tensor-size", "16x4");
        element.set_property_from_str("tensor-order", "nhwc");
        // Caps are negotiated again, with the same tensor.
        element.static_pad("src").unwrap().mark_reconfigure();
        gst::PadProbeReturn::Ok
    });
    let outcome = crate::common::run(&pipeline);
    outcome.expect_success();
    assert!(outcome.warnings.iter().any(|warning| warning.starts_with("tensor-size stays as it is")), "{outcome:?}");
    let inputs = std::mem::take(&mut *collected.lock().unwrap());
    assert_eq!(inputs.iter().map(Input::desc).collect::<Vec<_>>(), ["images f32 1x3x8x8"; 3]);
    assert_eq!(preprocess.property::<String>("tensor-size"), "8x8");
}
