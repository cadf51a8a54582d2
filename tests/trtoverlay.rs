// SPDX-License-Identifier: MPL-2.0
//! trtoverlay: it draws what trtnms draws, and the objects of other elements' metas, and drops no frame.

use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo, VideoRegionOfInterestMeta};
use gsttrt_core::image::frame::PixelFormat;
use gsttrt_core::image::geometry;
use gsttrt_core::image::masks::Mask;

use crate::common::boxes::{GREY, Line, SIDE, address, grey, model};
use crate::common::onnx::{F32, Graph};
use crate::common::scratch;

/// Boxes between pixels that overlap, of several classes.
const ROWS: [[f32; 6]; 3] =
    [[8.3, 20.6, 40.5, 60.2, 0.9, 0.0], [20.7, 24.5, 56.5, 52.4, 0.7, 2.0], [30.5, 2.5, 63.5, 33.3, 0.3, 1.0]];

/// Left, top, width and height.
type Rect = (u32, u32, u32, u32);

fn bytes(buffer: &gst::BufferRef) -> Vec<u8> {
    buffer.map_readable().unwrap().to_vec()
}

/// A line of trtoverlay alone, for GRAY8 frames of 64x64.
fn overlay(properties: &str) -> Line {
    let mut line = Line::parse(&format!("trtoverlay {properties}"));
    line.caps("GRAY8", SIDE, SIDE);
    line
}

/// A model that finds one body of 17 points.
fn body(folder: &std::path::Path) -> String {
    let points = (0..17).flat_map(|i| [10.0 + 3.0 * i as f32, 12.0 + (i * i % 40) as f32, 0.9]);
    let row: Vec<f32> = [30.5, 32.0, 40.0, 44.0, 0.8].into_iter().chain(points).collect();
    // One cell of the grid over 64x64 has an object.
    const CELLS: usize = 84;
    let values: Vec<f32> =
        row.iter().flat_map(|&value| (0..CELLS).map(move |cell| if cell == 7 { value } else { 0.0 })).collect();
    Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, row.len() as i64, CELLS as i64], &values)
        .metadata("task", "pose")
        .metadata("names", "{0: 'person'}")
        .metadata("kpt_shape", "[17, 3]")
        .save(&folder.join("body.onnx"))
}

/// A grey frame with regions of those labels and rectangles.
fn frame(regions: &[(&str, Rect)]) -> gst::Buffer {
    let mut buffer = grey(SIDE * SIDE);
    for (label, rect) in regions {
        VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), label, *rect);
    }
    buffer
}

/// The same of one region with a parameter.
fn with_param(label: &str, rect: Rect, param: gst::Structure) -> gst::Buffer {
    let mut buffer = grey(SIDE * SIDE);
    VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), label, rect).add_param(param);
    buffer
}

/// Which pixels differ from those of an empty frame.
fn drawn(buffer: &gst::BufferRef) -> Vec<(u32, u32)> {
    let changed = bytes(buffer).into_iter().zip(0..).filter(|(byte, _)| *byte != GREY).map(|(_, place)| place);
    changed.map(|place: u32| (place % SIDE, place / SIDE)).collect()
}

/// Pixels on an outline of that width.
fn ring((x, y, width, height): Rect, line: u32) -> Vec<(u32, u32)> {
    let all = (0..SIDE * SIDE).map(|place| (place % SIDE, place / SIDE));
    let inside =
        |by: u32, px: u32, py: u32| (x + by..x + width - by).contains(&px) && (y + by..y + height - by).contains(&py);
    all.filter(|&(px, py)| inside(0, px, py) && !inside(line, px, py)).collect()
}

// ------------------------------------------------------------------------------------------- the same as trtnms

#[test]
fn it_draws_what_trtnms_draws_in_every_format() {
    crate::common::init();
    let model = model(&scratch("overlay-same"), &ROWS);
    for format in PixelFormat::ALL.map(PixelFormat::name) {
        for style in ["", "draw-labels=false line-width=3"] {
            let infer = format!("trtpreprocess ! trtinfer model-file={model}");
            let (width, height) = (128, 96);
            let info = VideoInfo::builder(VideoFormat::from_string(format), width, height).build().unwrap();
            let mut pictures = [
                format!("{infer} ! trtnms {style}"),
                format!("{infer} ! trtnms draw=false ! trtoverlay {style}"),
                format!("{infer} ! trtnms draw=false ! identity ! trtoverlay {style}"),
            ]
            .map(|elements| {
                let mut line = Line::parse(&elements);
                line.caps(format, width, height);
                let picture = bytes(&line.push(grey(info.size() as u32)));
                assert_eq!(line.said(), [""; 0]);
                picture
            })
            .into_iter();
            let expected = pictures.next().unwrap();
            assert!(expected.iter().any(|&byte| byte != GREY), "{format} {style}");
            assert!(pictures.all(|picture| picture == expected), "{format} {style}");
        }
    }
}

#[test]
fn it_draws_the_same_behind_a_queue() {
    let model = model(&scratch("overlay-queue"), &ROWS);
    let pictures = ["", "draw=false ! queue ! trtoverlay"].map(|tail| {
        crate::common::init();
        let line = format!(
            "videotestsrc num-buffers=5 ! video/x-raw,format=NV12,width=128,height=96 \
             ! trtpreprocess ! trtinfer model-file={model} ! trtnms {tail} ! appsink name=sink sync=false"
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let sink = pipeline.by_name("sink").unwrap().downcast::<gst_app::AppSink>().unwrap();
        let pictures = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let kept = pictures.clone();
        let new_sample = move |sink: &gst_app::AppSink| {
            kept.lock().unwrap().push(bytes(sink.pull_sample().unwrap().buffer().unwrap()));
            Ok(gst::FlowSuccess::Ok)
        };
        sink.set_callbacks(gst_app::AppSinkCallbacks::builder().new_sample(new_sample).build());
        crate::common::run(&pipeline).expect_success();
        std::mem::take(&mut *pictures.lock().unwrap())
    });
    assert_eq!(pictures[0].len(), 5);
    assert!(pictures[0] == pictures[1]);
}

#[test]
fn boxes_survive_a_converter() {
    let model = model(&scratch("overlay-convert"), &[[20.0, 24.0, 44.0, 40.0, 0.9, 0.0]]);
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false ! videoconvert ! video/x-raw,format=GRAY8 \
         ! trtoverlay draw-labels=false line-width=2"
    ));
    line.caps("RGB", SIDE, SIDE);
    let converted = line.push(grey(SIDE * SIDE * 3));
    let background = bytes(&converted)[0];
    let places = bytes(&converted).into_iter().zip(0..).filter(|(byte, _)| *byte != background);
    let changed: Vec<(u32, u32)> = places.map(|(_, place)| (place % SIDE, place / SIDE)).collect();
    assert_eq!(changed, ring((20, 24, 24, 16), 2));
}

// ------------------------------------------------------------------------------------------- metas of others

#[test]
fn regions_of_others_are_drawn() {
    let mut line = overlay("draw-labels=false line-width=2");
    let (one, two) = ((4, 6, 20, 12), (30, 40, 30, 20));
    let mut expected = [ring(one, 2), ring(two, 2)].concat();
    expected.sort_by_key(|&(x, y)| (y, x));
    assert_eq!(drawn(&line.push(frame(&[("cat", one), ("dog", two)]))), expected);
    assert_eq!(drawn(&line.push(frame(&[]))), []);
}

#[test]
fn regions_that_were_moved_are_drawn_in_place() {
    let model = model(&scratch("overlay-moved"), &[[20.3, 24.2, 43.8, 39.9, 0.9, 0.0]]);
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false ! identity name=tracker \
         ! trtoverlay draw-labels=false line-width=2"
    ));
    line.caps("GRAY8", SIDE, SIDE);
    line.element("identity").static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, |_, info| {
        let buffer = info.buffer_mut().unwrap().make_mut();
        buffer.foreach_meta_mut(|mut meta| {
            if let Some(region) = meta.downcast_mut::<VideoRegionOfInterestMeta>() {
                region.set_rect((2, 4, 24, 16));
            }
            std::ops::ControlFlow::Continue(gst::buffer::BufferMetaForeachAction::Keep)
        });
        gst::PadProbeReturn::Ok
    });
    assert_eq!(drawn(&line.push(grey(SIDE * SIDE))), ring((2, 4, 24, 16), 2));
}

/// The parameter of a region with these corners in pixels of a frame of so many pixels across and down, as trtnms
/// attaches it.
fn rotation(angle: f64, corners: &[f64], (width, height): (u32, u32)) -> gst::Structure {
    gst::Structure::builder("rotation")
        .field("angle", angle)
        .field("corners", gst::Array::new(corners))
        .field("frame-width", width)
        .field("frame-height", height)
        .build()
}

/// Of a box of 20x10 around (32, 32), rotated by an eighth: it reaches 10.6 pixels up and down, left and right.
const EIGHTH: f64 = std::f64::consts::FRAC_PI_4;
const FRAME: (u32, u32) = (SIDE, SIDE);
const CORNERS: [f64; 8] = [35.54, 42.61, 42.61, 35.54, 28.46, 21.39, 21.39, 28.46];

#[test]
fn rotated_boxes_are_drawn_rotated() {
    let mut line = overlay("draw-labels=false line-width=2");
    let rotated = drawn(&line.push(with_param("x", (21, 21, 22, 22), rotation(EIGHTH, &CORNERS, FRAME))));
    for corner in CORNERS.chunks_exact(2) {
        assert!(rotated.contains(&(corner[0] as u32, corner[1] as u32)), "{corner:?} {rotated:?}");
    }
    assert!(
        [(22, 22), (41, 22), (22, 41), (41, 41), (32, 32)].iter().all(|place| !rotated.contains(place)),
        "{rotated:?}"
    );
    // What was moved, or has no box, is drawn as its rectangle.
    let moved = with_param("x", (1, 21, 22, 22), rotation(EIGHTH, &CORNERS, FRAME));
    assert_eq!(drawn(&line.push(moved)), ring((1, 21, 22, 22), 2));
    for (angle, corners, size) in [
        (EIGHTH, &CORNERS[..7], FRAME),
        (f64::NAN, &CORNERS, FRAME),
        (EIGHTH, &[f64::NAN; 8], FRAME),
        (EIGHTH, &[1e300; 8], FRAME),
        (EIGHTH, &[32.0; 8], FRAME),
        (1e300, &CORNERS, FRAME),
        (EIGHTH, &CORNERS, (32, 64)),
        (EIGHTH, &CORNERS, (0, 64)),
    ] {
        let picture = line.push(with_param("x", (21, 21, 22, 22), rotation(angle, corners, size)));
        assert_eq!(drawn(&picture), ring((21, 21, 22, 22), 2), "{angle} {corners:?}");
    }
    let texts = gst::Structure::builder("rotation").field("angle", "steep").field("corners", 7i32).build();
    assert_eq!(drawn(&line.push(with_param("x", (21, 21, 22, 22), texts))), ring((21, 21, 22, 22), 2));
    assert_eq!(line.said(), [""; 0]);
}

#[test]
fn rotated_boxes_of_a_scaled_frame_are_drawn_in_place() {
    let mut line = overlay("draw-labels=false line-width=2");
    let mut draw = |param, rect| drawn(&line.push(with_param("x", rect, param)));
    let expected = draw(rotation(EIGHTH, &CORNERS, FRAME), (21, 21, 22, 22));
    for factor in [0.5, 2.0] {
        let (corners, side) = (CORNERS.map(|at| at * factor), (f64::from(SIDE) * factor) as u32);
        assert_eq!(draw(rotation(EIGHTH, &corners, (side, side)), (21, 21, 22, 22)), expected, "{factor}");
    }
    // Scaled across only: what was a rectangle is none any more, and its corners are where they are seen.
    let seen = draw(rotation(EIGHTH, &CORNERS, (2 * SIDE, SIDE)), (10, 21, 12, 22));
    for corner in CORNERS.chunks_exact(2) {
        assert!(seen.contains(&((corner[0] / 2.0) as u32, corner[1] as u32)), "{corner:?} {seen:?}");
    }
    assert!([(11, 22), (20, 22), (11, 41), (20, 41), (16, 32)].iter().all(|place| !seen.contains(place)), "{seen:?}");
    let narrow: Vec<f64> = CORNERS.chunks_exact(2).flat_map(|corner| [corner[0] / 2.0, corner[1]]).collect();
    assert_eq!(draw(rotation(EIGHTH, &narrow, (SIDE / 2, SIDE)), (21, 21, 22, 22)), expected);
}

/// The parameter of a region with these points in pixels of a frame of so many pixels across and down.
fn keypoints(points: &[f64], dims: u32, size: u32) -> gst::Structure {
    gst::Structure::builder("keypoints")
        .field("keypoints", gst::Array::new(points))
        .field("keypoint-dims", dims)
        .field("frame-width", size)
        .field("frame-height", size)
        .build()
}

#[test]
fn skeletons_are_those_of_trtnms_in_every_format() {
    crate::common::init();
    let model = body(&scratch("overlay-body"));
    for format in PixelFormat::ALL.map(PixelFormat::name) {
        let (width, height) = (128, 96);
        let info = VideoInfo::builder(VideoFormat::from_string(format), width, height).build().unwrap();
        let draw = |elements: &str| {
            let mut line = Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} ! {elements}"));
            line.caps(format, width, height);
            bytes(&line.push(grey(info.size() as u32)))
        };
        let expected = draw("trtnms");
        assert!(draw("trtnms draw=false ! trtoverlay") == expected, "{format}");
        assert!(draw("trtnms draw=false") != expected, "{format}");
    }
}

/// A mask that fills a rectangle of a frame of that size.
fn mask(rect: [u32; 4], size: u32) -> gst::Structure {
    let [left, top, width, height] = rect;
    let whole = geometry::Rect { left, top, right: left + width, bottom: top + height };
    let mask = Mask::of(whole, &vec![true; (width * height) as usize]);
    let fields = ["mask-x", "mask-y", "mask-width", "mask-height"].into_iter().zip(rect);
    let builder = gst::Structure::builder("mask").field("frame-width", size).field("frame-height", size);
    fields
        .fold(builder, |builder, (name, value)| builder.field(name, value))
        .field("mask-counts", mask.counts())
        .build()
}

#[test]
fn masks_of_a_scaled_frame_are_drawn_in_place() {
    crate::common::init();
    let region = |param: gst::Structure| {
        drawn(&overlay("draw-labels=false line-width=1").push(with_param("x", (4, 4, 56, 56), param)))
    };
    let expected = region(mask([16, 20, 8, 12], 64));
    assert_eq!(expected.len(), ring((4, 4, 56, 56), 1).len() + 8 * 12);
    assert_eq!(region(mask([8, 10, 4, 6], 32)), expected);
    assert_eq!(region(mask([32, 40, 16, 24], 128)), expected);
    let without = region(mask([0, 0, 0, 0], 64));
    for (field, value) in [("frame-width", 0), ("frame-width", u32::MAX), ("mask-width", 65), ("mask-x", u32::MAX)] {
        let mut wrong = mask([16, 20, 8, 12], 64);
        wrong.set(field, value);
        assert_eq!(region(wrong.clone()), without, "{wrong}");
    }
}

#[test]
fn points_of_a_scaled_frame_are_drawn_in_place() {
    crate::common::init();
    let region = |param: gst::Structure, fractions: [f64; 4]| {
        let mut buffer = with_param("x", (4, 4, 56, 56), param);
        let mut detection = gst::Structure::builder("detection");
        for (name, edge) in ["x_min", "y_min", "x_max", "y_max"].into_iter().zip(fractions) {
            detection = detection.field(name, edge);
        }
        let detection = detection.field("confidence", 0.5).field("label_id", 0).build();
        buffer.get_mut().unwrap().meta_mut::<VideoRegionOfInterestMeta>().unwrap().add_param(detection);
        drawn(&overlay("draw-labels=false").push(buffer))
    };
    let here = [0.0625, 0.0625, 0.9375, 0.9375];
    let (outline, point) = (ring((4, 4, 56, 56), 2), (40, 20));
    let around = |(x, y)| [(x, y), (x - 2, y), (x + 2, y), (x, y - 2), (x, y + 2)];
    for (points, dims, size) in
        [(&[40.5, 20.5][..], 2, 64), (&[40.5, 20.5, 0.9], 3, 64), (&[20.25, 10.25], 2, 32), (&[81.0, 41.0], 2, 128)]
    {
        let seen = region(keypoints(points, dims, size), here);
        assert!(around(point).iter().all(|place| seen.contains(place)), "{points:?} of {size}");
    }
    // A point that is not seen; one of a region that has been moved; and what is none.
    for (param, fractions) in [
        (keypoints(&[40.5, 20.5, 0.1], 3, 64), here),
        (keypoints(&[40.5, 20.5], 2, 64), [0.5, 0.5, 0.9375, 0.9375]),
        (keypoints(&[40.5, 20.5], 3, 64), here),
        (keypoints(&[40.5, 20.5], 0, 64), here),
        (keypoints(&[40.5, 20.5], 2, 0), here),
        (keypoints(&[f64::NAN, f64::INFINITY], 2, 64), here),
        (keypoints(&[1e300, -1e300], 2, 64), here),
        (keypoints(&[], 2, 64), here),
    ] {
        assert_eq!(region(param.clone(), fractions), outline, "{param}");
    }
}

#[test]
fn the_text_has_label_score_and_track() {
    // Wide enough that no text is cut.
    let mut line = Line::parse("trtoverlay");
    line.caps("GRAY8", 256, 64);
    let mut drawn = |label: &str, params: &[gst::Structure]| {
        let mut buffer = grey(256 * 64);
        let mut region = VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), label, (4, 30, 100, 20));
        params.iter().for_each(|param| region.add_param(param.clone()));
        bytes(&line.push(buffer))
    };
    let detection = |class: i32| gst::Structure::builder("detection").field("label_id", class);
    let track = gst::Structure::builder("object_id").field("id", 12i32).build();
    let bare = drawn("cat", &[detection(1).build()]);
    let sure = drawn("cat", &[detection(1).field("confidence", 0.87f64).build()]);
    let tracked = drawn("cat", &[detection(1).field("confidence", 0.87f64).build(), track.clone()]);
    // The same text as one label looks the same.
    assert!(sure == drawn("cat 87%", &[detection(1).build()]));
    assert!(tracked == drawn("cat 87% #12", &[detection(1).build()]));
    assert!(drawn("", &[detection(1).build()]) == drawn("#1", &[detection(1).build()]));
    assert!(bare != sure && sure != tracked);
    // The colour is the class's, else the label's.
    assert!(bare != drawn("cat", &[detection(2).build()]));
    assert!(drawn("cat", &[]) == drawn("cat", &[]) && drawn("cat", &[]) != drawn("cow", &[]));
}

/// A frame of 256x64 with an object of that number whose lower edge is at that place.
fn numbered(id: i32, x: u32) -> gst::Buffer {
    let mut buffer = grey(256 * 64);
    let mut region = VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "cat", (x - 5, 40, 10, 10));
    region.add_param(gst::Structure::builder("object_id").field("id", id).build());
    buffer
}

#[test]
fn numbers_are_written_if_wanted() {
    crate::common::init();
    let drawn = |properties: &str, buffer: gst::Buffer| {
        let mut line = Line::parse(&format!("trtoverlay {properties}"));
        line.caps("GRAY8", 256, 64);
        bytes(&line.push(buffer))
    };
    let mut bare = grey(256 * 64);
    VideoRegionOfInterestMeta::add(bare.get_mut().unwrap(), "cat", (95, 40, 10, 10));
    let bare = drawn("", bare);
    assert!(drawn("", numbered(12, 100)) != bare);
    assert!(drawn("draw-ids=false", numbered(12, 100)) == bare);
}

#[test]
fn trails_are_as_long_as_wanted() {
    let mut line = Line::parse("trtoverlay draw-labels=false line-width=2 trail-length=3");
    line.caps("GRAY8", 256, 64);
    line.push(numbered(1, 20));
    let mut leftmost = |buffer: gst::Buffer, wanted: usize, what: &str| {
        let picture = bytes(&line.push(buffer));
        // Below the box, where the trail is half as thick as the line.
        let row = &picture[50 * 256..51 * 256];
        let found = row.iter().position(|&byte| byte != GREY);
        assert!(found.is_some_and(|found| found.abs_diff(wanted) <= 1), "{what}: {found:?}, not {wanted}");
    };
    for step in 1..8u32 {
        leftmost(numbered(1, 20 + 10 * step), 20 + 10 * step.saturating_sub(3) as usize, "it grows, and stays as long");
    }
    assert_eq!(line.said(), [""; 0]);
    line.push_event(gst::event::FlushStart::new());
    line.push_event(gst::event::FlushStop::new(true));
    line.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    let mut row = |buffer: gst::Buffer| bytes(&line.push(buffer))[50 * 256..51 * 256].iter().any(|&byte| byte != GREY);
    row(numbered(1, 200));
    assert!(row(numbered(1, 210)), "a new one");
    // Those of another stream have numbers of their own.
    line.push_event(gst::event::StreamStart::new("another"));
    let picture = bytes(&line.push(numbered(1, 100)));
    assert_eq!(picture[50 * 256 + 160], GREY, "none between their places");
    // Without a number, or of no length, there is none.
    line.element("trtoverlay").set_property("trail-length", 0u32);
    let mut row = |buffer: gst::Buffer| bytes(&line.push(buffer))[50 * 256..51 * 256].iter().any(|&byte| byte != GREY);
    assert!(!row(numbered(1, 220)));
}

// ------------------------------------------------------------------------------------------- properties

#[test]
fn properties_change_while_playing() {
    let mut line = overlay("draw-labels=false line-width=2");
    let rect = (20, 24, 24, 16);
    let mut count = |property: &str, value: &str| {
        line.element("trtoverlay").set_property_from_str(property, value);
        drawn(&line.push(frame(&[("cat", rect)]))).len()
    };
    assert_eq!(count("line-width", "3"), ring(rect, 3).len());
    assert_eq!(count("line-width", "0"), ring(rect, 2).len());
    assert!(count("draw-labels", "true") > ring(rect, 2).len() + 50);
    assert_eq!(count("draw-labels", "false"), ring(rect, 2).len());
    // They are for frames on a GPU.
    assert_eq!(count("measure", "true"), ring(rect, 2).len());
    assert_eq!(line.element("trtoverlay").property::<i32>("cuda-device-id"), -1);
}

#[test]
fn stats_count_frames_and_objects() {
    let mut line = overlay("");
    for regions in [&[][..], &[("cat", (1, 2, 3, 4))], &[("cat", (1, 2, 3, 4)), ("dog", (30, 30, 9, 9))]] {
        line.push(frame(regions));
    }
    let stats = line.element("trtoverlay").property::<gst::Structure>("stats");
    assert_eq!(["frames", "objects"].map(|name| stats.get::<u64>(name).unwrap()), [3, 3]);
}

// ------------------------------------------------------------------------------------------- what goes wrong

#[test]
fn hostile_metas_end_nothing() {
    let mut line = overlay("");
    const MAX: u32 = u32::MAX;
    for rect in [(0, 0, 0, 0), (5, 5, 0, 9), (MAX, MAX, MAX, MAX), (0, 0, MAX, MAX), (63, 63, MAX, 1), (MAX, 0, 1, 1)] {
        for label in ["", "x", &"long".repeat(100_000)] {
            line.push(frame(&[(label, rect)]));
        }
    }
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e300, 1e300, 0.0] {
        let detection = gst::Structure::builder("detection").field("label_id", i32::MIN).field("confidence", value);
        let detection =
            ["x_min", "y_min", "x_max", "y_max"].into_iter().fold(detection, |d, edge| d.field(edge, value));
        let picture = line.push(with_param("x", (10, 30, 20, 20), detection.build()));
        assert!(ring((10, 30, 20, 20), 2).iter().all(|place| drawn(&picture).contains(place)), "{value}");
    }
    // Fields of other types, and a parameter twice.
    let detection = gst::Structure::builder("detection").field("label_id", "one").field("confidence", "sure").build();
    line.push(with_param("x", (10, 30, 20, 20), detection));
    line.push(with_param("x", (10, 30, 20, 20), gst::Structure::builder("object_id").field("id", -1i32).build()));
    let many: Vec<_> = (0..2000).map(|i| ("x", (i % 64, i % 61, 9, 9))).collect();
    line.push(frame(&many));
    assert_eq!(line.said(), [""; 0]);
}

#[test]
fn frames_that_cannot_be_written_pass_with_one_warning() {
    let mut line = overlay("");
    for _ in 0..3 {
        let mut short = gst::Buffer::from_mut_slice(vec![GREY; 100]);
        VideoRegionOfInterestMeta::add(short.get_mut().unwrap(), "cat", (4, 6, 20, 12));
        assert_eq!(bytes(&line.push(short)), [GREY; 100]);
    }
    let said = line.said();
    assert!(said.len() == 1 && said[0].contains("pass as they are"), "{said:?}");
    assert!(!drawn(&line.push(frame(&[("cat", (4, 6, 20, 12))]))).is_empty());
}

// ------------------------------------------------------------------------------------------- what is copied

#[test]
fn only_shared_frames_are_copied_and_only_for_drawing() {
    let mut line = overlay("");
    let ours = frame(&[("cat", (4, 6, 20, 12))]);
    let place = address(&ours);
    assert_eq!(address(&line.push(ours)), place, "nothing else references it");

    let theirs = frame(&[("cat", (4, 6, 20, 12))]);
    for ours in [theirs.clone(), theirs.copy()] {
        let ours = line.push(ours);
        assert_ne!(address(&ours), address(&theirs));
        assert!(!drawn(&ours).is_empty() && drawn(&theirs).is_empty());
        assert_eq!(ours.iter_meta::<VideoRegionOfInterestMeta>().count(), 1, "metas go on");
    }
    let empty = frame(&[]);
    assert_eq!(address(&line.push(empty.clone())), address(&empty));
}
