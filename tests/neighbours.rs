// SPDX-License-Identifier: MPL-2.0
//! Every neighbour at every position of the chain: boxes are right, or an error has the position where the neighbour
//! belongs.

use std::sync::mpsc::channel;

use crate::common::boxes::{Found, GREY, found, model};
use crate::common::gpu::setting;
use crate::common::{Outcome, gpu_chain_or_skip, has_element_or_skip, path, run, scratch, shapes};
use gst::prelude::*;

/// Left, top, right and bottom in 0..1 of the picture.
type Corners = [f64; 4];

/// What an element does to the picture.
enum Effect {
    /// The picture is the same, or wholly scaled: boxes stay where they are in 0..1 of it.
    Follows,
    /// How boxes move, in 0..1 of the picture. Between our elements it is an error that contains the text.
    Moves(fn(Corners) -> Corners, &'static str),
    /// A new frame without metas.
    Composes,
}
use Effect::{Composes, Follows, Moves};

/// The sample is 640x360.
const SIZE: (f64, f64) = (640.0, 360.0);

const NEIGHBOURS: &[(&str, Effect)] = &[
    ("videoconvert ! video/x-raw,format=BGRx", Follows),
    ("videoscale ! video/x-raw,width=320,height=180", Follows),
    ("videoscale ! video/x-raw,width=480,height=360", Follows), // the pixels' aspect ratio changes
    ("videoscale add-borders=false ! video/x-raw,width=640,height=320,pixel-aspect-ratio=1/1", Follows),
    ("videoscale ! video/x-raw,width=1280,height=360,pixel-aspect-ratio=1/1", Moves(bordered, "borders")),
    // Twice scaled, and it is the size of before.
    ("videoscale ! video/x-raw,width=320,height=180 ! videoscale ! video/x-raw,width=640,height=360", Follows),
    ("videocrop", Follows), // nothing
    ("videocrop left=100", Moves(|b| within(b, (100.0, 0.0, 640.0, 360.0)), "videocrop")),
    ("videocrop right=100", Moves(|b| within(b, (0.0, 0.0, 540.0, 360.0)), "videocrop")),
    ("videocrop bottom=60", Moves(|b| within(b, (0.0, 0.0, 640.0, 300.0)), "videocrop")),
    (
        "videocrop left=64 top=36 ! videoscale ! video/x-raw,width=640,height=360",
        Moves(|b| within(b, (64.0, 36.0, 640.0, 360.0)), "videocrop"),
    ),
    ("aspectratiocrop aspect-ratio=1/1", Moves(|b| within(b, (140.0, 0.0, 500.0, 360.0)), "crop")),
    ("videobox left=-100", Moves(|b| within(b, (-100.0, 0.0, 640.0, 360.0)), "videobox")),
    ("videobox left=50 right=-50", Moves(|b| within(b, (50.0, 0.0, 690.0, 360.0)), "videobox")),
    ("videoflip video-direction=identity", Follows),
    ("videoflip video-direction=90r", Moves(|[l, t, r, b]| [1.0 - b, l, 1.0 - t, r], "videoflip")),
    ("videoflip video-direction=180", Moves(|[l, t, r, b]| [1.0 - r, 1.0 - b, 1.0 - l, 1.0 - t], "videoflip")),
    ("videoflip video-direction=90l", Moves(|[l, t, r, b]| [t, 1.0 - r, b, 1.0 - l], "videoflip")),
    ("videoflip video-direction=horiz", Moves(|[l, t, r, b]| [1.0 - r, t, 1.0 - l, b], "videoflip")),
    ("videoflip video-direction=vert", Moves(|[l, t, r, b]| [l, 1.0 - b, r, 1.0 - t], "videoflip")),
    ("videoflip video-direction=ul-lr", Moves(|[l, t, r, b]| [t, l, b, r], "videoflip")),
    ("videoflip video-direction=ur-ll", Moves(|[l, t, r, b]| [1.0 - b, 1.0 - r, 1.0 - t, 1.0 - l], "videoflip")),
    // Without that time it would repeat the last frame until the end of the clip.
    ("videorate max-duplication-time=50000000 ! video/x-raw,framerate=60/1", Follows),
    ("tee ! queue", Follows),
    ("queue", Follows),
    ("gamma gamma=1.1", Follows),
    ("identity", Follows),
    ("videoconvert ! gamma gamma=1.1 ! videoconvert ! videobalance contrast=1.05", Follows),
    ("videoconvert ! rotate angle=0.01 ! videoconvert", Moves(|b| b, "rotate")),
    (
        "videocrop right=100 ! queue ! videoscale ! video/x-raw,width=640,height=360",
        Moves(|b| within(b, (0.0, 0.0, 540.0, 360.0)), "videocrop"),
    ),
    ("compositor", Composes),
];

/// The same for frames in GPU memory.
const CUDA_NEIGHBOURS: &[(&str, &str, Effect)] = &[
    ("", "cudaupload", Follows),
    ("cudaupload !", "cudadownload", Follows),
    ("cudaupload !", "cudaconvert ! video/x-raw(memory:CUDAMemory),format=RGBA", Follows),
    ("cudaupload !", "cudascale ! video/x-raw(memory:CUDAMemory),width=320,height=180", Follows),
    (
        "cudaupload !",
        "cudadownload ! videoflip video-direction=180 ! cudaupload",
        Moves(|[l, t, r, b]| [1.0 - r, 1.0 - b, 1.0 - l, 1.0 - t], "videoflip"),
    ),
];

/// A box in the rectangle that is left of the picture, in pixels.
fn within([l, t, r, b]: Corners, (left, top, right, bottom): (f64, f64, f64, f64)) -> Corners {
    let across = |at: f64| ((at * SIZE.0 - left) / (right - left)).clamp(0.0, 1.0);
    let down = |at: f64| ((at * SIZE.1 - top) / (bottom - top)).clamp(0.0, 1.0);
    [across(l), down(t), across(r), down(b)]
}

/// Half of the width is border, in equal parts at both sides.
fn bordered([l, t, r, b]: Corners) -> Corners {
    [0.25 + l / 2.0, t, 0.25 + r / 2.0, b]
}

/// What trtnms found in each frame, and how the pipeline ended, with these elements before trtpreprocess, trtinfer and
/// trtnms and behind it.
fn detect(source: &str, infer: &str, [first, second, third, last]: [&str; 4]) -> (Vec<Vec<Found>>, Outcome) {
    crate::common::init();
    // H.264 has one right picture, so any decoder will do.
    let decoder = match gst::ElementFactory::find("avdec_h264") {
        Some(_) => "avdec_h264",
        None => "nvh264dec ! cudadownload",
    };
    let line = format!(
        "filesrc location={} ! qtdemux ! h264parse ! {decoder} ! identity eos-after=3 ! {source} {first} trtpreprocess \
         ! {second} trtinfer {infer} ! {third} trtnms name=nms draw=false ! {last} fakesink sync=false",
        setting("GPU_CLIP").unwrap_or_else(|| path("tests/data/sample.mp4")),
    );
    let pipeline: gst::Pipeline = gst::parse::launch(&line).expect(&line).downcast().unwrap();
    let (send, receive) = channel();
    let pad = pipeline.by_name("nms").unwrap().static_pad("src").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let _ = send.send(found(info.buffer().unwrap()));
        gst::PadProbeReturn::Ok
    });
    let outcome = run(&pipeline);
    (receive.try_iter().collect(), outcome)
}

const PLACES: [&str; 4] = ["before trtpreprocess", "before trtinfer", "before trtnms", "behind trtnms"];

/// A model, and what is found with it where there is no neighbour.
struct WithoutNeighbour {
    infer: String,
    reference: Vec<Vec<Found>>,
}

impl WithoutNeighbour {
    fn new(source: &str, infer: String) -> Self {
        let (reference, outcome) = detect(source, &infer, [""; 4]);
        outcome.expect_success();
        WithoutNeighbour { infer, reference }
    }
}

/// The neighbour at each position in turn: with the first model, where that sees what the neighbour has made of the picture, else with
/// the other one.
fn try_everywhere(source: &str, seen: [&WithoutNeighbour; 2], neighbour: &str, effect: &Effect) {
    for (place, place_name) in PLACES.iter().enumerate() {
        let elements = format!("{neighbour} !");
        let mut elements_at = [""; 4];
        elements_at[place] = &elements;
        let WithoutNeighbour { infer, reference } = seen[usize::from(place > 0)];
        let (frames, outcome) = detect(source, infer, elements_at);
        let case = format!("{neighbour}, {place_name}");
        println!("{case}: {:?}", outcome.error.as_ref().map(|(_, text, _)| text));
        let expected = match (effect, place) {
            (Moves(_, names), 1 | 2) => Err(vec![*names, "before trtpreprocess or behind trtnms"]),
            (Composes, 1 | 2) => Err(vec!["compositor", "before trtpreprocess or behind trtnms"]),
            (Moves(map, _), 0) => Ok(*map),
            _ => Ok((|corners| corners) as fn(Corners) -> Corners),
        };
        match expected {
            Err(parts) => {
                let domain =
                    if matches!(effect, Composes) { "StreamError::WrongType" } else { "CoreError::Negotiation" };
                outcome.expect_error(domain, &parts);
                assert_eq!(frames.len(), 0, "{case}: no frame with wrong boxes goes on");
            }
            Ok(map) => {
                assert!(outcome.error.is_none(), "{case}: {:?}", outcome.error);
                assert!(frames.len() >= 2, "{case}: {} frames", frames.len());
                let exact = place > 0;
                for frame in &frames {
                    let is_this = |reference: &Vec<Found>| matches(frame, reference, map, exact);
                    assert!(reference.iter().any(is_this), "{case}: {frame:#?}, expected one of {reference:#?}");
                }
            }
        }
    }
}

/// Whether these are the boxes of that frame. Where the model saw other pixels, only certain boxes must be there again,
/// nearly.
fn matches(frame: &[Found], reference: &[Found], map: fn(Corners) -> Corners, exact: bool) -> bool {
    let near = |a: Corners, b: Corners| a.into_iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4);
    if exact {
        return frame.len() == reference.len()
            && frame.iter().zip(reference).all(|(a, b)| a.label == b.label && near(a.corners, map(b.corners)));
    }
    // Those that are whole in the picture, and large enough to be found when it is small.
    let certain = |found: &&Found| {
        let [l, t, r, b] = map(found.corners);
        found.confidence > 0.8 && r - l > 0.05 && b - t > 0.05 && l > 0.01 && t > 0.01 && r < 0.99 && b < 0.99
    };
    let mut sought = reference.iter().filter(certain).peekable();
    sought.peek().is_some()
        && sought.all(|sought| {
            let is_it = |found: &Found| found.label == sought.label && iou(found.corners, map(sought.corners)) > 0.7;
            frame.iter().any(is_it)
        })
}

fn iou(a: Corners, b: Corners) -> f64 {
    let area = |[l, t, r, b]: Corners| (r - l).max(0.0) * (b - t).max(0.0);
    let both = [a[0].max(b[0]), a[1].max(b[1]), a[2].min(b[2]), a[3].min(b[3])];
    let both = if both[2] > both[0] && both[3] > both[1] { area(both) } else { 0.0 };
    both / (area(a) + area(b) - both)
}

/// A part of the table each, so that they run at the same time.
fn try_part(part: usize, parts: usize) {
    let detector = WithoutNeighbour::new("", format!("model-file={}", shapes()));
    // Behind trtpreprocess, the model sees the same picture whatever the neighbour does.
    let rows = [
        [2.0, 16.0, 20.0, 30.0, 0.9, 0.0],
        [30.0, 20.0, 40.0, 45.0, 0.875, 1.0],
        [44.0, 30.0, 62.0, 48.0, 0.75, 2.0],
        [8.0, 33.0, 26.0, 44.0, 0.625, 0.0],
        [24.0, 15.0, 29.0, 19.0, 0.5, 1.0],
        [50.0, 14.5, 63.0, 27.0, 0.375, 2.0],
        [0.0; 6], // as of a model that finds fewer than it can
        [0.0; 6],
        [0.0; 6],
    ];
    let boxes =
        WithoutNeighbour::new("", format!("model-file={}", model(&scratch(&format!("neighbours-{part}")), &rows)));
    for WithoutNeighbour { reference, .. } in [&detector, &boxes] {
        assert!(reference.len() >= 2 && reference.iter().all(|frame| frame.len() > 5));
    }
    for (neighbour, effect) in NEIGHBOURS.iter().skip(part).step_by(parts) {
        try_everywhere("", [&detector, &boxes], neighbour, effect);
    }
}

#[test]
fn neighbours_are_followed_or_refused_part_1() {
    try_part(0, 5);
}

#[test]
fn neighbours_are_followed_or_refused_part_2() {
    try_part(1, 5);
}

#[test]
fn neighbours_are_followed_or_refused_part_3() {
    try_part(2, 5);
}

#[test]
fn neighbours_are_followed_or_refused_part_4() {
    try_part(3, 5);
}

#[test]
fn neighbours_are_followed_or_refused_part_5() {
    try_part(4, 5);
}

#[test]
fn cuda_neighbours_are_followed_or_refused() {
    try_cuda_neighbours(&["cudaupload", "cudadownload"]);
}

#[test]
fn cuda_converters_are_followed_or_refused() {
    try_cuda_neighbours(&["cudaconvert", "cudascale"]);
}

fn try_cuda_neighbours(factories: &[&str]) {
    if !gpu_chain_or_skip() {
        return;
    }
    let model = setting("GPU_MODEL").unwrap_or_else(shapes);
    let infer = format!("model-file={model} backend=tensorrt {}", setting("TRT_PROPERTIES").unwrap_or_default());
    for (source, neighbour, effect) in CUDA_NEIGHBOURS {
        let factory = neighbour.split(' ').next().unwrap();
        if !factories.contains(&factory) || !has_element_or_skip(factory) {
            continue;
        }
        let seen = WithoutNeighbour::new(source, infer.clone());
        try_everywhere(source, [&seen; 2], neighbour, effect);
    }
}

/// The box is at 16..48 across and 8..24 down in a picture of 64x64, which becomes 128x32.
#[test]
fn messages_metas_and_drawings_agree_behind_scaling() {
    let model = model(&scratch("scaled"), &[[16.0, 8.0, 48.0, 24.0, 0.9, 0.0]]);
    for scale in [
        "trtinfer model-file=M ! videoscale ! video/x-raw,width=128,height=32",
        "videoscale ! video/x-raw,width=128,height=32 ! trtinfer model-file=M",
    ] {
        let mut line = crate::common::boxes::Line::parse(&format!(
            "trtpreprocess ! {} ! trtnms post-messages=true draw-labels=false line-width=2",
            scale.replace('M', &model)
        ));
        let frame = line.push(crate::common::boxes::grey(64 * 64 * 3));
        let boxes = found(&frame);
        assert_eq!(boxes.len(), 1, "{boxes:?}");
        assert_eq!(boxes[0].rect, (32, 4, 64, 8));
        assert_eq!(boxes[0].corners, [0.25, 0.125, 0.75, 0.375]);
        let messages = line.messages();
        let size = ["width", "height"].map(|field| messages[0].get::<u32>(field).unwrap());
        assert_eq!(size, [128, 32]);
        let detections = messages[0].get::<gst::Array>("detections").unwrap();
        let detection = detections[0].get::<gst::Structure>().unwrap();
        let sides = ["x", "y", "w", "h"].map(|field| detection.get::<f64>(field).unwrap());
        assert_eq!(sides, [32.0, 4.0, 64.0, 8.0]);
        // The outline is there, and nothing far from the box.
        let bytes = frame.map_readable().unwrap();
        let pixel = |x: usize, y: usize| &bytes[(y * 128 + x) * 3..][..3];
        assert_ne!(pixel(64, 4), [GREY; 3]);
        assert_ne!(pixel(32, 8), [GREY; 3]);
        for (x, y) in [(10, 8), (110, 8), (64, 20), (64, 8)] {
            assert_eq!(pixel(x, y), [GREY; 3], "{x},{y}");
        }
        assert_eq!(line.said(), [""; 0]);
    }
}

/// videoflip's direction may change at any time, and caps stay the same.
#[test]
fn neighbours_that_start_while_playing_are_noticed() {
    let model = model(&scratch("rotated"), &[[16.0, 8.0, 48.0, 24.0, 0.9, 0.0]]);
    let mut line = crate::common::boxes::Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} ! videoflip name=flip ! trtnms draw=false"
    ));
    assert_eq!(line.found().len(), 1);
    line.element("videoflip").set_property_from_str("video-direction", "vert");
    // GStreamer 1.28 still tells of this frame that it was not turned.
    assert_eq!(line.try_push(crate::common::boxes::grey(64 * 64 * 3)), Err(gst::FlowError::Error));
    let said = line.said();
    assert!(said.len() == 1 && said[0].contains("flip (videoflip)"), "{said:?}");
}

/// Events of navigation go their way.
#[test]
fn navigation_events_pass_our_elements() {
    crate::common::init();
    let model = model(&scratch("pointer"), &[[16.0, 8.0, 48.0, 24.0, 0.9, 0.0]]);
    let mut line = crate::common::boxes::Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} ! trtnms"));
    line.found();
    assert_eq!(line.upstream_events("navigation"), 0, "there are none of ours");
    let event = gst::Structure::builder("application/x-gst-navigation")
        .field("event", "mouse-move")
        .field("pointer_x", 3.0)
        .field("pointer_y", 4.0)
        .build();
    line.nms().static_pad("src").unwrap().send_event(gst::event::Navigation::new(event));
    assert_eq!(line.upstream_events("navigation"), 1);
}

/// The size changes while a queue still holds frames of the old one.
#[test]
fn sizes_may_change_while_frames_wait() {
    crate::common::init();
    let model = model(&scratch("resized"), &[[16.0, 8.0, 48.0, 24.0, 0.9, 0.0]]);
    let pipeline: gst::Pipeline = gst::parse::launch(&format!(
        "videotestsrc num-buffers=400 ! video/x-raw,width=64,height=64 ! trtpreprocess ! trtinfer model-file={model} \
         ! videoscale ! capsfilter name=filter caps=video/x-raw,width=64,height=64 ! queue ! trtnms name=nms draw=false ! fakesink"
    ))
    .unwrap()
    .downcast()
    .unwrap();
    let (filter, mut frames) = (pipeline.by_name("filter").unwrap(), 0);
    let changed = std::sync::Mutex::new(move || {
        frames += 1;
        let width = [64, 32, 128, 96][frames / 10 % 4];
        filter.set_property_from_str("caps", &format!("video/x-raw,width={width},height=64"));
    });
    pipeline.by_name("filter").unwrap().static_pad("sink").unwrap().add_probe(
        gst::PadProbeType::BUFFER,
        move |_, _| {
            (changed.lock().unwrap())();
            gst::PadProbeReturn::Ok
        },
    );
    let (send, receive) = channel();
    pipeline.by_name("nms").unwrap().static_pad("src").unwrap().add_probe(
        gst::PadProbeType::BUFFER,
        move |pad, info| {
            let width = pad.current_caps().unwrap().structure(0).unwrap().get::<i32>("width").unwrap();
            let _ = send.send((width, found(info.buffer().unwrap())[0].rect));
            gst::PadProbeReturn::Ok
        },
    );
    run(&pipeline).expect_success();
    let frames: Vec<(i32, (u32, u32, u32, u32))> = receive.try_iter().collect();
    assert_eq!(frames.len(), 400);
    for (width, rect) in frames {
        assert_eq!((rect.0, rect.2), (width as u32 / 4, width as u32 / 2));
    }
}

/// As cudascale, and all of GStreamer's GPU elements: they drop the metas that ask where the picture is.
#[test]
fn scalers_that_tell_nothing_are_followed() {
    let model = model(&scratch("silent"), &[[16.0, 8.0, 48.0, 24.0, 0.9, 0.0]]);
    for (elements, rect) in [
        ("videoscale ! video/x-raw,width=128,height=32", Some((32, 4, 64, 8))),
        (
            "videoscale add-borders=false ! video/x-raw,width=128,height=64,pixel-aspect-ratio=1/1",
            Some((32, 8, 64, 16)),
        ),
        ("videoscale add-borders=true ! video/x-raw,width=128,height=64,pixel-aspect-ratio=1/1", None),
        // The scaler makes up for the size that the crop took away.
        ("videocrop right=16 ! videoscale ! video/x-raw,width=64,height=64", None),
    ] {
        let mut line = crate::common::boxes::Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={model} ! {elements} ! trtnms draw=false"
        ));
        forget_geometry(&line.element("videoscale").static_pad("src").unwrap());
        match rect {
            Some(rect) => assert_eq!(line.found().iter().map(|found| found.rect).collect::<Vec<_>>(), [rect]),
            None => {
                assert_eq!(
                    line.try_push(crate::common::boxes::grey(64 * 64 * 3)),
                    Err(gst::FlowError::Error),
                    "{elements}"
                );
                assert!(line.said()[0].contains("before trtpreprocess or behind trtnms"), "{elements}");
            }
        }
    }
}

/// Lets frames go on from that pad as from an element that knows nothing of our metas.
fn forget_geometry(pad: &gst::Pad) {
    pad.add_probe(gst::PadProbeType::BUFFER, |_, info| {
        use gst::buffer::BufferMetaForeachAction::{Keep, Remove};
        let frame = info.buffer_mut().unwrap().make_mut();
        frame.foreach_meta_mut(|meta| {
            let is_it = meta.api().name() == "GstTrtGeometryMetaAPI";
            std::ops::ControlFlow::Continue(if is_it { Remove } else { Keep })
        });
        gst::PadProbeReturn::Ok
    });
}

/// Where an element before it has told nothing, the others are still watched.
#[test]
fn flips_behind_silent_elements_are_noticed() {
    let model = model(&scratch("silent-flip"), &[[16.0, 8.0, 48.0, 24.0, 0.9, 0.0]]);
    let mut line = crate::common::boxes::Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} ! identity ! videoflip name=flip ! trtnms draw=false"
    ));
    forget_geometry(&line.element("identity").static_pad("src").unwrap());
    assert_eq!(line.found().len(), 1);
    line.element("videoflip").set_property_from_str("video-direction", "180");
    assert_eq!(line.try_push(crate::common::boxes::grey(64 * 64 * 3)), Err(gst::FlowError::Error));
    let said = line.said();
    assert!(said.len() == 1 && said[0].contains("flip (videoflip)"), "{said:?}");
}

/// Once the first frame has come, nothing is asked any more: neither events nor queries go through the chain.
#[test]
fn frames_cost_no_events_and_no_queries() {
    let model = model(&scratch("quiet"), &[[16.0, 8.0, 48.0, 24.0, 0.9, 0.0]]);
    for between in [
        "identity",
        "capsfilter caps=video/x-raw",
        "videoscale ! video/x-raw,width=128,height=32",
        "identity name=silent ! videoconvert ! video/x-raw,format=BGRx",
    ] {
        let mut line = crate::common::boxes::Line::parse(&format!(
            "trtpreprocess ! {between} ! trtinfer model-file={model} ! trttrack ! trtnms draw=false"
        ));
        if between.contains("silent") {
            forget_geometry(&line.by_name("silent").static_pad("src").unwrap());
        }
        line.found();
        let (send, receive) = channel();
        for element in ["trtnms", "trttrack", "trtinfer", "trtpreprocess"] {
            for pad in line.element(element).pads() {
                let send = send.clone();
                let both = gst::PadProbeType::EVENT_BOTH | gst::PadProbeType::QUERY_BOTH;
                pad.add_probe(both, move |pad, info| {
                    let _ = send.send(format!("{}: {:?}", pad.name(), info.data));
                    gst::PadProbeReturn::Ok
                });
            }
        }
        for _ in 0..10 {
            assert_eq!(line.found().len(), 1);
        }
        assert_eq!(receive.try_iter().collect::<Vec<_>>(), [""; 0], "{between}");
    }
}

/// An element that drops the tensors is named, as far as that can be seen.
#[test]
fn elements_that_drop_tensors_are_named() {
    let model = model(&scratch("dropped"), &[[16.0, 8.0, 48.0, 24.0, 0.9, 0.0]]);
    let mut line = crate::common::boxes::Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} ! identity name=thief ! trtnms draw=false"
    ));
    line.by_name("thief").static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, |_, info| {
        let pixels = info.buffer().unwrap().map_readable().unwrap().to_vec();
        info.data = Some(gst::PadProbeData::Buffer(gst::Buffer::from_mut_slice(pixels)));
        gst::PadProbeReturn::Ok
    });
    assert_eq!(line.try_push(crate::common::boxes::grey(64 * 64 * 3)), Err(gst::FlowError::Error));
    let said = line.said();
    let parts = ["frame without tensors", "thief (identity)", "before trtpreprocess or behind trtnms"];
    assert!(said.len() == 1 && parts.iter().all(|part| said[0].contains(part)), "{said:?}");
}

/// As from 1.28 on: the tensors of an input are on what was composed.
#[test]
fn compositors_that_keep_tensors_are_refused() {
    let model = model(&scratch("composed"), &[[16.0, 8.0, 48.0, 24.0, 0.9, 0.0]]);
    for between in ["trtinfer model-file=M ! compositor name=c", "compositor name=c ! trtinfer model-file=M"] {
        let source = "videotestsrc num-buffers=3 ! video/x-raw,width=64,height=64 ! trtpreprocess name=p";
        let line = format!("{source} ! {} ! trtnms ! fakesink", between.replace('M', &model));
        crate::common::init();
        let pipeline: gst::Pipeline = gst::parse::launch(&line).unwrap().downcast().unwrap();
        let (send, receive) = channel();
        let compositor = pipeline.by_name("c").unwrap();
        // The base class takes its frames in another thread.
        compositor.static_pad("sink_0").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            let _ = send.send(info.buffer().unwrap().clone());
            gst::PadProbeReturn::Ok
        });
        let receive = std::sync::Mutex::new(receive);
        compositor.static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            let input: gst::Buffer = receive.lock().unwrap().recv().unwrap();
            let composed = info.buffer_mut().unwrap().make_mut();
            input.copy_into(composed, gst::BufferCopyFlags::META | gst::BufferCopyFlags::DEEP, ..).unwrap();
            gst::PadProbeReturn::Ok
        });
        run(&pipeline)
            .expect_error("StreamError::WrongType", &["c (compositor)", "before trtpreprocess or behind trtnms"]);
    }
}

/// An application may carry frames from one pipeline to another.
#[test]
fn frames_that_come_another_way_must_have_the_same_size() {
    let model = model(&scratch("carried"), &[[16.0, 8.0, 48.0, 24.0, 0.9, 0.0]]);
    let mut first = crate::common::boxes::Line::parse(&format!("trtpreprocess ! trtinfer model-file={model}"));
    let mut second = crate::common::boxes::Line::parse("trtnms draw=false");
    let mut frame = || first.push(crate::common::boxes::grey(64 * 64 * 3));
    assert_eq!(found(&second.push(frame()))[0].rect, (16, 8, 32, 16));
    second.caps("RGB", 32, 32);
    assert_eq!(second.try_push(frame()), Err(gst::FlowError::Error));
    let said = second.said();
    assert!(said[0].contains("saw a picture of 64x64, trtnms gets one of 32x32"), "{said:?}");
}
