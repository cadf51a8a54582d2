// SPDX-License-Identifier: MPL-2.0
//! Objects that are turned upright: which picture the second model sees of them.

use crate::common::boxes::{Line, SIDE, classifier};
use crate::common::onnx::{F32, Graph};
use crate::common::scratch;
use gst_video::VideoRegionOfInterestMeta;

/// Bright at the upper left, dark elsewhere.
fn frame() -> gst::Buffer {
    let side = SIDE as usize;
    let pixels = (0..side * side).flat_map(|at| [if at % side < 32 && at / side < 32 { 230 } else { 20 }; 3]);
    gst::Buffer::from_mut_slice(pixels.collect::<Vec<u8>>())
}

/// Eyes, nose and mouth of a face, whose upright picture is the square of `side` pixels at that place.
fn landmarks([left, top]: [f64; 2], side: f64) -> Vec<f64> {
    let points = [38.2946, 51.6963, 73.5318, 51.5014, 56.0252, 71.7366, 41.5493, 92.3655, 70.7299, 92.2041];
    points.iter().enumerate().map(|(at, point)| point * side / 112.0 + if at % 2 == 0 { left } else { top }).collect()
}

/// A frame with a face whose box is in the dark.
fn with_face(points: &[f64]) -> gst::Buffer {
    let mut buffer = frame();
    let keypoints = gst::Structure::builder("keypoints")
        .field("keypoints", gst::Array::new(points))
        .field("keypoint-dims", 2u32)
        .field("frame-width", SIDE)
        .field("frame-height", SIDE)
        .build();
    VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "face", (36, 36, 24, 24)).add_param(keypoints);
    buffer
}

/// The class of the face.
fn class(line: &mut Line, points: &[f64]) -> String {
    class_of(&line.push(with_face(points)))
}

fn class_of(buffer: &gst::BufferRef) -> String {
    let meta = buffer.meta::<VideoRegionOfInterestMeta>().unwrap();
    meta.param("classification").unwrap().get("label").unwrap()
}

fn line(model: &str, preprocess: &str) -> Line {
    Line::parse(&format!(
        "trtpreprocess regions=objects {preprocess} ! trtinfer model-file={model} ! trtnms draw=false"
    ))
}

#[test]
fn landmarks_say_which_part_is_seen() {
    let model = classifier(&scratch("align-part"), "1");
    let bright = landmarks([2.0, 2.0], 28.0);
    for (preprocess, points, wanted) in [
        ("align=face", &bright[..], "bright"),
        ("", &bright[..], "dark"),
        ("align=none", &bright[..], "dark"),
        ("align=face resize=center-crop", &bright[..], "bright"),
        ("align=face", &landmarks([34.0, 2.0], 28.0)[..], "dark"),
    ] {
        assert_eq!(class(&mut line(&model, preprocess), points), wanted, "{preprocess}");
    }
}

/// The landmarks are those that trtnms attaches.
#[test]
fn a_detector_of_faces_gives_landmarks() {
    let folder = scratch("align-chain");
    let points = landmarks([2.0, 2.0], 28.0).into_iter().map(|at| at as f32);
    let row: Vec<f32> = [34.0, 34.0, 60.0, 60.0, 0.9, 0.0].into_iter().chain(points).collect();
    let faces = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, 1, 16], &row)
        .metadata("task", "pose")
        .metadata("kpt_shape", "[5, 2]")
        .metadata("names", "{0: 'face'}")
        .save(&folder.join("faces.onnx"));
    let second = classifier(&folder, "1");
    for (align, wanted) in [("face", "bright"), ("none", "dark")] {
        let mut line = Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={faces} ! trtnms draw=false layout=pose-end-to-end \
             ! trtpreprocess regions=objects align={align} ! trtinfer model-file={second} ! trtnms draw=false"
        ));
        assert_eq!(class_of(&line.push(frame())), wanted, "{align}");
        assert_eq!(line.said(), [""; 0], "{align}");
    }
}

#[test]
fn what_is_outside_the_frame_is_padding() {
    let model = classifier(&scratch("align-padding"), "1");
    let outside = landmarks([-60.0, 2.0], 28.0);
    for (pad, wanted) in [("pad-value=255", "bright"), ("pad-value=0", "dark")] {
        assert_eq!(class(&mut line(&model, &format!("align=face {pad}")), &outside), wanted, "{pad}");
    }
}

/// They are cut by their boxes, and that is said once.
#[test]
fn objects_without_landmarks_are_cut_by_their_boxes() {
    let model = classifier(&scratch("align-without"), "1");
    let mut line = line(&model, "align=face");
    let bright = landmarks([2.0, 2.0], 28.0);
    assert_eq!(class(&mut line, &bright[..8]), "dark");
    line.push_event(gst::event::Eos::new());
    let said = line.said();
    assert!(said.len() == 1 && said[0].contains("align=face has seen no landmarks"), "{said:?}");
}

/// A bright stripe in the dark, turned by half a radian, with its box.
fn with_stripe() -> gst::Buffer {
    let (side, (sin, cos)) = (SIDE as usize, 0.5_f64.sin_cos());
    let pixels = (0..side * side).flat_map(|at| {
        let (x, y) = ((at % side) as f64 - 31.5, (at / side) as f64 - 31.5);
        let is_bright = (x * cos + y * sin).abs() <= 21.0 && (y * cos - x * sin).abs() <= 4.0;
        [if is_bright { 230 } else { 20 }; 3]
    });
    let mut buffer = gst::Buffer::from_mut_slice(pixels.collect::<Vec<u8>>());
    let corner = |(across, down): (f64, f64)| [32.0 + across * cos - down * sin, 32.0 + across * sin + down * cos];
    let corners = [(20.0, 3.0), (20.0, -3.0), (-20.0, -3.0), (-20.0, 3.0)].map(corner);
    let rotation = gst::Structure::builder("rotation")
        .field("angle", 0.5f64)
        .field("corners", gst::Array::new(corners.as_flattened()))
        .field("frame-width", SIDE)
        .field("frame-height", SIDE)
        .build();
    VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "text", (13, 20, 38, 24)).add_param(rotation);
    buffer
}

#[test]
fn rotated_boxes_are_turned_and_fill_the_left() {
    let model = classifier(&scratch("align-box"), "1");
    for (preprocess, wanted) in [
        ("align=box pad-value=255", "bright"),
        ("align=box pad-value=0", "dark"),
        ("align=line pad-value=0", "bright"),
        ("align=none resize=stretch", "dark"),
        ("align=face resize=stretch", "dark"),
    ] {
        assert_eq!(class_of(&line(&model, preprocess).push(with_stripe())), wanted, "{preprocess}");
    }
}

#[test]
fn a_detector_on_turned_faces_is_refused() {
    let folder = scratch("align-detector");
    let detector = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, 1, 6], &[16.0, 16.0, 48.0, 48.0, 0.75, 0.0])
        .metadata("names", "{0: 'eye'}")
        .save(&folder.join("eyes.onnx"));
    let mut line = line(&detector, "align=face");
    assert_eq!(line.try_push(with_face(&landmarks([2.0, 2.0], 28.0))), Err(gst::FlowError::Error));
    let said = line.said();
    assert!(said.iter().any(|text| text.contains("has no place in the frame")), "{said:?}");
}
