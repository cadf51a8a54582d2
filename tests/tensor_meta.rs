//! Outputs as GstTensorMeta, which GStreamer has since 1.26; before, that it is not there.

mod common;

use common::onnx::{F32, Graph, I64, int};
use common::scratch;

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

#[cfg(not(feature = "v1_26"))]
#[test]
fn without_gstreamer_1_26_it_is_refused() {
    let line = format!("trtpreprocess ! trtinfer model-file={} tensor-meta=true", model());
    let outcome = common::launch(&format!("videotestsrc num-buffers=1 ! {line} ! fakesink"));
    outcome.expect_error("ResourceError::Settings", &["built without GstTensorMeta", "--features v1_26"]);
}

#[cfg(feature = "v1_26")]
#[test]
fn outputs_are_published_with_names_types_and_dimensions() {
    use gst_analytics::{TensorDataType, TensorDimOrder, TensorMeta};

    common::init();
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

/// GStreamer's decoder of SSD's outputs, which it knows by the ids in the model's metadata.
#[cfg(feature = "v1_26")]
#[test]
fn decoders_of_gstreamer_find_the_objects() {
    use gst_analytics::{AnalyticsMetaRefExt, AnalyticsODMtd, AnalyticsRelationMeta};

    // What 1.26 calls them.
    let id = |part: &str| format!("Gst.Model.ObjectDetector.{part}");
    let outputs: [(&str, &str, &[i64], &[f32]); 4] = [
        // Top, left, bottom and right, as shares of the frame.
        ("detection_boxes:0", "Boxes", &[1, 2, 4], &[0.25, 0.5, 0.75, 1.0, 0.0, 0.0, 0.5, 0.5]),
        ("detection_classes:0", "Classes", &[1, 2], &[1.0, 2.0]),
        ("detection_scores:0", "Scores", &[1, 2], &[0.875, 0.125]),
        ("num_detections:0", "NumDetections", &[1], &[2.0]),
    ];
    let graph = Graph::new().input("images", F32, &["1", "3", "32", "64"]);
    let graph = outputs
        .iter()
        .fold(graph, |graph, (name, part, dims, values)| graph.constant(name, dims, values).metadata(name, &id(part)));
    let model = graph.save(&scratch("tensor-meta-decoder").join("ssd.onnx"));

    common::init();
    let mut harness = gst_check::Harness::new_parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} tensor-meta=true ! ssdobjectdetector score-threshold=0.5"
    ));
    harness.set_src_caps_str("video/x-raw,format=RGB,width=64,height=32,framerate=1/1");
    harness.push(gst::Buffer::from_slice([255u8; 64 * 32 * 3])).unwrap();
    let buffer = harness.pull().unwrap();
    let meta = buffer.meta::<AnalyticsRelationMeta>().expect("objects");
    let found: Vec<_> = meta.iter::<AnalyticsODMtd>().map(|object| object.location().unwrap()).collect();
    let [object] = &found[..] else { panic!("one object, not {found:?}") };
    assert_eq!([object.x, object.y, object.w, object.h], [32, 8, 32, 16]);
    assert_eq!(object.loc_conf_lvl, 0.875);
}
