// SPDX-License-Identifier: MPL-2.0
//! Outputs as GstTensorMeta, which GStreamer has since 1.26; before, that it is not there.

use crate::common::onnx::{F32, Graph, I64, int};
use crate::common::scratch;
#[cfg(feature = "v1_26")]
use gst::prelude::*;

fn model() -> String {
    let dims = &["1", "3", "2", "4"];
    Graph::new()
        .input("images", F32, dims)
        .node("Identity", &["images"], &["same"], Vec::new())
        .node("Cast", &["images"], &["whole"], vec![int("to", I64.into())])
        .output("same", F32, dims)
        .output("whole", I64, dims)
        .save(&scratch("tensor-meta").join("two.onnx"))
}

#[test]
fn without_gstreamer_1_26_it_is_refused() {
    crate::common::init();
    let (major, minor, ..) = gst::version();
    if (major, minor) >= (1, 26) {
        return println!("SKIP GStreamer {major}.{minor} has GstTensorMeta.");
    }
    let line = format!("trtpreprocess ! trtinfer model-file={} tensor-meta=true", model());
    let outcome = crate::common::launch(&format!("videotestsrc num-buffers=1 ! {line} ! fakesink"));
    outcome.expect_error("ResourceError::Settings", &["has no GstTensorMeta", "GStreamer 1.26 or later"]);
}

#[cfg(feature = "v1_26")]
#[test]
fn outputs_are_published_with_names_types_and_dimensions() {
    use gst_analytics::{TensorDataType, TensorDimOrder, TensorMeta};

    crate::common::init();
    for (property, count) in [("tensor-meta=true", 1), ("", 0)] {
        let line = format!("trtpreprocess ! trtinfer model-file={} {property}", model());
        let mut harness = gst_check::Harness::new_parse(&line);
        harness.set_src_caps_str("video/x-raw,format=RGB,width=4,height=2,framerate=1/1");
        harness.push(gst::Buffer::from_slice([255u8; 24])).unwrap();
        let buffer = harness.pull().unwrap();
        assert_eq!(buffer.iter_meta::<TensorMeta>().count(), count);
        let Some(meta) = buffer.meta::<TensorMeta>() else { continue };
        let [same, whole] = meta.as_slice() else { panic!("two outputs") };
        assert_eq!([same.id().as_str(), whole.id().as_str()].map(|name| name.as_str()), ["same", "whole"]);
        assert_eq!((same.data_type(), whole.data_type()), (TensorDataType::Float32, TensorDataType::Int64));
        assert_eq!((same.dims(), same.dims_order()), (&[1, 3, 2, 4][..], TensorDimOrder::RowMajor));
        let bytes = |tensor: &gst_analytics::Tensor| tensor.data().map_readable().unwrap().to_vec();
        assert_eq!(bytes(same), 1f32.to_le_bytes().repeat(24));
        assert_eq!(bytes(whole), 1i64.to_le_bytes().repeat(24));
        let index = meta.index_from_id(gst::glib::Quark::from_str("whole"));
        assert_eq!(index, 1);
    }
}

#[cfg(feature = "v1_26")]
use gst_analytics::{AnalyticsMetaRefExt, AnalyticsODMtd, AnalyticsRelationMeta};

/// Left, top, width, height and confidence of the objects that GStreamer's analytics have.
#[cfg(feature = "v1_26")]
fn objects(buffer: &gst::BufferRef) -> Vec<([i32; 4], f32)> {
    let meta = buffer.meta::<AnalyticsRelationMeta>().expect("objects");
    let places = meta.iter::<AnalyticsODMtd>().map(|object| object.location().unwrap());
    places.map(|place| ([place.x, place.y, place.w, place.h], place.loc_conf_lvl)).collect()
}

/// A line of RGB frames of that size.
#[cfg(feature = "v1_26")]
fn harness(line: &str, (width, height): (i32, i32)) -> gst_check::Harness {
    crate::common::init();
    let mut harness = gst_check::Harness::new_parse(line);
    harness.set_src_caps_str(&format!("video/x-raw,format=RGB,width={width},height={height},framerate=1/1"));
    harness
}

/// A detector of TensorFlow's zoo that finds two objects in every picture.
#[cfg(feature = "v1_26")]
fn ssd(name: &str, ids: &[(&str, &str)]) -> String {
    let outputs: [(&str, &[i64], &[f32]); 4] = [
        // Top, left, bottom and right, as shares of the frame.
        ("detection_boxes:0", &[1, 2, 4], &[0.25, 0.5, 0.75, 1.0, 0.0, 0.0, 0.5, 0.5]),
        ("detection_classes:0", &[1, 2], &[1.0, 2.0]),
        ("detection_scores:0", &[1, 2], &[0.875, 0.125]),
        ("num_detections:0", &[1], &[2.0]),
    ];
    let graph = Graph::new().input("images", F32, &["1", "3", "32", "64"]);
    let graph = outputs.iter().fold(graph, |graph, (name, dims, values)| graph.constant(name, dims, values));
    let graph = ids.iter().fold(graph, |graph, (name, id)| graph.metadata(name, id));
    graph.save(&scratch(name).join("ssd.onnx"))
}

/// It knows them by ids that the version of GStreamer decides.
#[cfg(feature = "v1_26")]
#[test]
fn gstreamers_ssd_decoder_finds_the_objects() {
    let model = ssd("tensor-meta-ssd", &[]);
    let line =
        format!("trtpreprocess ! trtinfer model-file={model} tensor-meta=true ! ssdobjectdetector score-threshold=0.5");
    let mut harness = harness(&line, (64, 32));
    harness.push(gst::Buffer::from_slice([255u8; 64 * 32 * 3])).unwrap();
    assert_eq!(objects(&harness.pull().unwrap()), [([32, 8, 32, 16], 0.875)]);
}

#[cfg(feature = "v1_26")]
#[test]
fn ids_in_the_files_metadata_win() {
    use gst_analytics::TensorMeta;

    let model = ssd("tensor-meta-ids", &[("detection_boxes:0", "own-boxes")]);
    let mut harness = harness(&format!("trtpreprocess ! trtinfer model-file={model} tensor-meta=true"), (64, 32));
    harness.push(gst::Buffer::from_slice([255u8; 64 * 32 * 3])).unwrap();
    let buffer = harness.pull().unwrap();
    let ids: Vec<_> =
        buffer.meta::<TensorMeta>().unwrap().as_slice().iter().map(|tensor| tensor.id().as_str()).collect();
    assert_eq!(ids[0].as_str(), "own-boxes");
    assert!(ids[1].ends_with("lasses"), "the other ids are the decoder's: {ids:?}");
    // Caps must not promise a decoder what it does not find.
    let caps = harness.sinkpad().unwrap().current_caps().unwrap();
    assert!(!caps.structure(0).unwrap().has_field("tensors"), "{caps}");
}

#[cfg(feature = "v1_28")]
fn shapes(file: &str) -> String {
    format!("{}/tests/models/{file}", env!("CARGO_MANIFEST_DIR"))
}

/// A blue box and a yellow disc, as large as the test detector's input, where coordinates of the tensor are those of
/// the picture.
#[cfg(feature = "v1_28")]
fn scene() -> gst::Buffer {
    let pixel = |place: i32| -> [u8; 3] {
        let (x, y) = (place % 512, place / 512);
        if (80..220).contains(&x) && (100..200).contains(&y) {
            [30, 60, 200]
        } else if (x - 370).pow(2) + (y - 330).pow(2) < 70 * 70 {
            [220, 200, 40]
        } else {
            [110, 120, 115]
        }
    };
    gst::Buffer::from_slice((0..512 * 512).flat_map(pixel).collect::<Vec<u8>>())
}

#[cfg(feature = "v1_28")]
#[test]
fn gstreamers_yolo_decoder_finds_the_boxes_of_trtnms() {
    let found_by = |decoder: &str| {
        let model = shapes("shapes-v8.onnx");
        let line = format!("trtpreprocess ! trtinfer model-file={model} tensor-meta=true ! {decoder}");
        let mut harness = harness(&line, (512, 512));
        harness.push(scene()).unwrap();
        let mut objects = objects(&harness.pull().unwrap());
        objects.sort_by_key(|(place, _)| *place);
        objects
    };
    let theirs = found_by("yolov8tensordec class-confidence-threshold=0.25 iou-threshold=0.45");
    let ours = found_by("trtnms score-threshold=0.25 iou-threshold=0.45");
    assert!(ours.len() >= 2, "the box and the disc: {ours:?}");
    assert_eq!(theirs.len(), ours.len(), "{theirs:?} {ours:?}");
    for ((their_place, their_score), (our_place, our_score)) in theirs.iter().zip(&ours) {
        assert_eq!(their_score, our_score);
        // It cuts off fractions of left and top, and rounds width and height.
        let near = their_place.iter().zip(our_place).all(|(theirs, ours)| (theirs - ours).abs() <= 1);
        assert!(near, "{theirs:?} {ours:?}");
    }
}

#[cfg(feature = "v1_28")]
#[test]
fn caps_name_the_tensors_from_trtinfer_to_the_next_of_our_elements() {
    let caps_of = |line: &str| {
        let mut harness = harness(line, (512, 512));
        harness.push(scene()).unwrap();
        harness.pull().unwrap();
        harness.sinkpad().unwrap().current_caps().unwrap()
    };
    let tensors = |file: &str, rest: &str| {
        let caps = caps_of(&format!("trtpreprocess ! trtinfer model-file={} {rest}", shapes(file)));
        // One backslash for each level of nesting, and more of them.
        let text = |tensors: &gst::glib::SendValue| tensors.serialize().unwrap().replace('\\', "");
        caps.structure(0).unwrap().value("tensors").ok().map(text)
    };
    let v8 = tensors("shapes-v8.onnx", "tensor-meta=true").unwrap();
    for part in ["yolo-v8-out=", "tensor/strided", "< 1, 6, 16128 >", "col-major", "float32"] {
        assert!(v8.contains(part), "{part} in {v8}");
    }
    let end_to_end = tensors("shapes-e2e.onnx", "tensor-meta=true").unwrap();
    assert!(end_to_end.contains("yolo-26-end2end-out=") && end_to_end.contains("row-major"), "{end_to_end}");
    assert_eq!(tensors("shapes.onnx", "tensor-meta=true"), None, "no decoder of GStreamer's knows YOLOv5");
    assert_eq!(tensors("shapes-v8.onnx", ""), None);
    assert_eq!(tensors("shapes-v8.onnx", "tensor-meta=true ! trtnms"), None);
    let again = format!("tensor-meta=true ! trtnms ! trtpreprocess ! trtinfer model-file={}", shapes("shapes.onnx"));
    assert_eq!(tensors("shapes-v8.onnx", &again), None);
}

/// Decoders pass over what is not float32 without a word on the bus.
#[cfg(feature = "v1_26")]
#[test]
fn half_outputs_that_a_decoder_knows_bring_a_warning() {
    use crate::common::onnx::F16;

    let model = |elem_type: i32| {
        let dims = &["1", "300", "6"];
        Graph::new()
            .input("images", F32, &["1", "3", "64", "64"])
            .constant("same", &[1, 300, 6], &[0.0; 1800])
            .node("Identity", &["same"], &["output0"], Vec::new())
            .output("output0", elem_type, dims)
            .save(&scratch("tensor-meta-half").join(format!("{elem_type}.onnx")))
    };
    for (elem_type, count) in [(F16, 1), (F32, 0)] {
        let line = format!("trtpreprocess ! trtinfer model-file={} tensor-meta=true", model(elem_type));
        let outcome = crate::common::launch(&format!("videotestsrc num-buffers=2 ! {line} ! fakesink"));
        outcome.expect_success();
        let warnings = outcome.warnings.iter().filter(|text| text.contains("output0 f16 1x300x6"));
        assert_eq!(warnings.count(), count, "{:?}", outcome.warnings);
    }
}
