// SPDX-License-Identifier: MPL-2.0
//! Which head is found for a model's outputs, and which columns.

use super::*;
use crate::image::masks::PrototypeShape;

/// As by paddle2onnx: the scores of four strides, then the distributions, whose names say nothing.
const PICODET: [&str; 8] = [
    "transpose_0.tmp_0 f32 1x1600x80",
    "transpose_2.tmp_0 f32 1x400x80",
    "transpose_4.tmp_0 f32 1x100x80",
    "transpose_6.tmp_0 f32 1x25x80",
    "transpose_1.tmp_0 f32 1x1600x32",
    "transpose_3.tmp_0 f32 1x400x32",
    "transpose_5.tmp_0 f32 1x100x32",
    "transpose_7.tmp_0 f32 1x25x32",
];

/// In the order in which mmdet's head gives them.
const RTMDET: [&str; 6] = [
    "cls0 f32 1x80x48x80",
    "cls1 f32 1x80x24x40",
    "cls2 f32 1x80x12x20",
    "reg0 f32 1x4x48x80",
    "reg1 f32 1x4x24x40",
    "reg2 f32 1x4x12x20",
];

#[test]
fn models_are_recognised() {
    let e2e = ModelHints { end_to_end: true, ..ultralytics(80, "v10Detect") };
    let old_rtdetr = |classes| ModelHints { head: String::new(), ..ultralytics(classes, "RTDETRDecoder") };
    let wide = ModelHints { input: Some((448, 256)), ..ultralytics(80, "Detect") };
    let open = ModelHints { input: None, ..ultralytics(80, "Detect") };
    let table: &[(&'static HeadFormat, &[&str], ModelHints)] = &[
        // Ultralytics, as exported by 8.4.190 and (without head) 8.4.0.
        (&yolov8::HEAD, &["output0 f32 1x84x2100"], ultralytics(80, "Detect")),
        (&yolov8::HEAD, &["output0 f16 1x84x2100"], ultralytics(80, "")),
        (&yolov8::HEAD, &["output0 f32 1x5x2100"], ultralytics(1, "Detect")),
        (&yolov8::HEAD, &["output0 f32 1x6x2100"], ultralytics(2, "Detect")),
        (&yolov8::HEAD, &["output0 f32 1x84x2352"], wide),
        (&yolov8::HEAD, &["output0 f32 ?x84x?"], ultralytics(80, "Detect")),
        (&yolov8::HEAD, &["output0 f32 ?x84x?"], open),
        (&yolov8::HEAD, &["output0 f32 1x84x84"], ModelHints { input: Some((64, 64)), ..ultralytics(80, "Detect") }),
        (&end_to_end::HEAD, &["output0 f32 1x300x6"], ultralytics(80, "Detect")), // args.nms alone
        (&end_to_end::HEAD, &["output0 f32 1x300x6"], e2e.clone()),
        (&end_to_end::HEAD, &["output0 f32 1x2100x6"], e2e),
        (&detr_topk::HEAD, &["output0 f32 1x300x6"], ultralytics(80, "RTDETRDecoder")),
        (&detr_topk::HEAD, &["output0 f32 1x300x6"], ultralytics(2, "RTDETRDecoder")),
        (&detr_ultralytics::HEAD, &["output0 f32 1x300x84"], old_rtdetr(80)),
        (&detr_ultralytics::HEAD, &["output0 f32 1x300x6"], old_rtdetr(2)),
        // Classifiers: Ultralytics, torchvision and timm, which write no metadata.
        (
            &classify::HEAD,
            &["output0 f32 1x1000"],
            ModelHints { task: "classify".into(), ..ultralytics(1000, "Classify") },
        ),
        (&classify::HEAD, &["output0 f32 ?x1"], ModelHints { task: "classify".into(), ..ultralytics(1, "Classify") }),
        (&classify::HEAD, &["output f32 ?x1000"], at(224)),
        (&classify::HEAD, &["output f16 1x1000x1x1"], labelled(1000, 224)),
        (&embed::HEAD, &["features f32 ?x512"], ModelHints { task: "embed".into(), ..at(224) }),
        (&embed::HEAD, &["features f16 1x100x1x1"], ModelHints { task: "embed".into(), ..labelled(3, 224) }),
        (&ctc::HEAD, &["softmax_2.tmp_0 f32 ?x?x6625"], ModelHints { has_dictionary: true, ..labelled(6623, 48) }),
        (&ctc::HEAD, &["softmax_2.tmp_0 f32 1x40x97"], ModelHints { has_dictionary: true, ..labelled(95, 320) }),
        // The same without metadata, as in an engine by trtexec.
        (&yolov8::HEAD, &["output0 f32 1x84x8400"], at(640)),
        (&yolov8::HEAD, &["output0 f32 1x84x8400"], ModelHints::default()),
        (&yolov8::HEAD, &["output0 f32 1x84x34000"], at(640)), // strides from 4
        (&end_to_end::HEAD, &["output0 f32 1x300x6"], at(640)),
        (&detr_ultralytics::HEAD, &["output0 f32 1x300x84"], at(640)),
        (&yolov8_transposed::HEAD, &["output0 f32 1x8400x84"], labelled(80, 640)),
        (&yolov8_transposed::HEAD, &["output f32 1x8400x84"], labelled(80, 640)),
        // Originals.
        (&yolov5::HEAD, &["output0 f32 1x25200x85"], at(640)),
        (&yolov5::HEAD, &["output f32 1x25200x85"], at(640)),
        (&yolov5::HEAD, &["output0 f32 1x16128x7"], at(512)),
        (&yolov5::HEAD, &["output0 f32 1x16128x7"], labelled(2, 512)),
        (&yolov5::HEAD, &["output0 f32 1x102000x85"], at(1280)), // strides to 64
        (
            &yolov5::HEAD,
            &["output f32 1x25200x85", "340 f32 1x3x80x80x85", "378 f32 1x3x40x40x85", "416 f32 1x3x20x20x85"],
            at(640),
        ),
        (&yolov5::HEAD, &["outputs f32 1x8400x85"], at(640)), // YOLOv6
        (&yolov5::HEAD, &["output0 f32 1x8400x85"], labelled(80, 640)),
        (&yolov5::HEAD, &["output0 f32 1x25200x6"], labelled(1, 640)),
        (&yolov8::HEAD, &["output0 f32 1x84x8400", "3547 f32 1x84x8400"], at(640)), // YOLOv9, two heads
        (&yolox::HEAD, &["output f32 1x8400x85"], at(640)),
        (&yolox::HEAD, &["output f32 1x3549x85"], at(416)),
        (&yolox_decoded::HEAD, &["output f32 1x8400x85"], ModelHints { takes_exponentials: true, ..at(640) }),
        (&deepstream_yolo::HEAD, &["output f32 1x8400x6"], labelled(80, 640)),
        (&deepstream_yolo::HEAD, &["output f32 1x25200x6"], labelled(80, 640)),
        // Pose.
        (&pose::HEAD, &["output0 f32 1x56x2100"], pose_model(17, 3, false)),
        (&pose::HEAD, &["output0 f16 1x56x2100"], pose_model(17, 3, false)),
        (&pose::HEAD, &["output0 f32 1x39x2100"], pose_model(17, 2, false)),
        (&pose::HEAD, &["output0 f32 ?x56x?"], pose_model(17, 3, false)),
        (&pose_end_to_end::HEAD, &["output0 f32 1x300x57"], pose_model(17, 3, true)),
        (&pose_end_to_end::HEAD, &["output0 f32 1x300x57"], pose_model(17, 3, false)),
        (&pose_end_to_end::HEAD, &["output0 f32 1x2100x57"], pose_model(17, 3, true)),
        // Rotated boxes.
        (&obb::HEAD, &["output0 f32 1x20x2100"], obb_model(15, false)),
        (&obb::HEAD, &["output0 f16 ?x20x?"], obb_model(15, false)),
        (&obb::HEAD, &["output0 f32 1x6x2100"], obb_model(1, false)),
        (&obb_end_to_end::HEAD, &["output0 f32 1x300x7"], obb_model(15, true)),
        (&obb_end_to_end::HEAD, &["output0 f32 1x300x7"], obb_model(15, false)), // args.nms alone
        (&obb_end_to_end::HEAD, &["output0 f32 ?x?x7"], obb_model(15, true)),
        (&obb_end_to_end::HEAD, &["output0 f32 1x2100x7"], obb_model(2, true)),
        // Masks.
        (&segment::HEAD, &["output0 f32 1x116x2100", "output1 f32 1x32x80x80"], segment_model(80, false)),
        (&segment::HEAD, &["output0 f16 1x37x2100", "output1 f16 1x32x80x80"], segment_model(1, false)),
        (&segment::HEAD, &["output0 f32 ?x116x?", "output1 f32 ?x32x?x?"], segment_model(80, false)),
        (&segment::HEAD, &["proto f32 1x32x80x80", "boxes f32 1x116x2100"], segment_model(80, false)),
        (&segment_end_to_end::HEAD, &["output0 f32 1x300x38", "output1 f32 1x32x80x80"], segment_model(80, true)),
        (&segment_end_to_end::HEAD, &["output0 f32 1x300x38", "output1 f32 1x32x80x80"], segment_model(80, false)),
        (&segment_end_to_end::HEAD, &["output0 f32 ?x300x38", "output1 f32 ?x32x?x?"], segment_model(80, true)),
        // The same without metadata.
        (&segment::HEAD, &["output0 f32 1x116x8400", "output1 f32 1x32x160x160"], at(640)),
        (&segment::HEAD, &["output0 f32 1x116x8400", "output1 f32 1x32x160x160"], labelled(80, 640)),
        (&segment_end_to_end::HEAD, &["output0 f32 1x300x38", "output1 f32 1x32x160x160"], at(640)),
        // YOLOv7 with its own suppression: as declared, and as it comes with 3 objects, with 1 and with none; with 7 labels too.
        (&yolov7_end_to_end::HEAD, &["output f32 ?x7"], chooses(at(640))),
        (&yolov7_end_to_end::HEAD, &["output f32 ?x7"], chooses(labelled(7, 640))),
        (&yolov7_end_to_end::HEAD, &["output f32 3x7"], chooses(at(640))),
        (&yolov7_end_to_end::HEAD, &["output f32 3x7"], ModelHints { batch: Some(1), ..labelled(80, 640) }),
        (&yolov7_end_to_end::HEAD, &["output f32 1x7"], chooses(labelled(7, 640))),
        (&yolov7_end_to_end::HEAD, &["output f32 0x7"], chooses(labelled(80, 640))),
        (&openvino_ssd::HEAD, &["detection_out f32 1x1x200x7"], at(300)),
        (&openvino_ssd::HEAD, &["boxes f32 1x1x?x7"], at(300)),
        (&torchvision::HEAD, &["boxes f32 ?x4", "labels i64 ?", "scores f32 ?"], at(640)),
        (&torchvision::HEAD, &["boxes f32 0x4", "labels i64 0", "scores f32 0"], at(640)),
        (&torchvision::HEAD, &["boxes f32 3x4", "labels i64 3", "scores f32 3", "masks f32 3x1x28x28"], at(640)),
        (&mmdeploy::HEAD, &["dets f32 1x100x5", "labels i64 1x100"], at(640)),
        (&mmdeploy::HEAD, &["dets f32 ?x?x5", "labels i64 ?x?"], labelled(80, 640)),
        (&picodet::HEAD, &PICODET, at(320)),
        (&picodet::HEAD, &PICODET, labelled(80, 320)),
        (&rtmdet::HEAD, &RTMDET, ModelHints { input: Some((640, 384)), ..ModelHints::default() }),
        // No object in this frame.
        (&end_to_end::HEAD, &["output0 f32 1x0x6"], ultralytics(80, "Detect")),
        // By their names.
        (
            &efficientnms::HEAD,
            &["num_dets i32 1x1", "det_boxes f32 1x100x4", "det_scores f32 1x100", "det_classes i32 1x100"],
            at(640),
        ),
        (
            &efficientnms::HEAD,
            &["det_classes i32 ?x?", "det_scores f16 ?x?", "det_boxes f16 ?x?x4", "num_dets i32 ?x1"],
            ModelHints::default(),
        ),
        (&detr::HEAD, &["labels i64 1x300", "boxes f32 1x300x4", "scores f32 1x300"], at(640)),
        (&rf_detr::HEAD, &["dets f32 1x300x4", "labels f32 1x300x91"], at(384)),
        (&rf_detr::HEAD, &["dets f32 1x300x4", "labels f32 1x300x91"], labelled(90, 384)),
        (&rf_detr::HEAD, &["dets f32 ?x300x4", "labels f32 ?x300x4"], labelled(4, 384)),
        (&rf_detr_seg::HEAD, &["dets f32 1x100x4", "labels f32 1x100x91", "masks f32 1x100x78x78"], at(312)),
        (
            &deepstream_yolo_seg::HEAD,
            &["boxes f32 ?x100x4", "scores f32 ?x100x1", "classes f32 ?x100x1", "masks f32 ?x100x160x160"],
            at(640),
        ),
        (&yolo_nas::HEAD, &["904 f32 1x8400x4", "913 f32 1x8400x80"], at(640)),
        (&yolo_nas::HEAD, &["913 f32 1x8400x4", "904 f32 1x8400x4"], labelled(4, 640)),
        (&pp_yoloe::HEAD, &["tmp_16 f32 1x8400x4", "concat_14.tmp_0 f32 1x80x8400"], at(640)),
        (&pp_yoloe::HEAD, &["concat_14.tmp_0 f32 ?x80x8400", "tmp_16 f32 ?x8400x4"], labelled(80, 640)),
        (&pp_yoloe_concat::HEAD, &["concat_15.tmp_0 f32 1x8400x84"], labelled(80, 640)),
        (&pp_yoloe_concat::HEAD, &["fetch_name_0 f32 1x8400x6"], at(640)),
        // pytorch-YOLOv4, and NanoDet next to YOLOX.
        (&yolov4::HEAD, &["boxes f32 1x6300x1x4", "confs f32 1x6300x80"], at(320)),
        (&yolov4::HEAD, &["boxes f32 ?x6300x1x4", "confs f32 ?x6300x4"], labelled(4, 320)),
        (&nanodet_plus::HEAD, &["output f32 1x2125x112"], at(320)),
        (&nanodet_plus::HEAD, &["output f32 1x3598x112"], at(416)),
        (&nanodet_plus::HEAD, &["output f32 1x2125x37"], labelled(5, 320)),
        (&nanodet_plus::HEAD, &["904 f32 1x2125x37"], at(320)),
        (&nanodet::HEAD, &["output f32 1x2100x112"], at(320)),
        (&nanodet::HEAD, &["output f32 1x3549x112"], at(416)),
        (&nanodet::HEAD, &["output f32 1x3549x33"], labelled(1, 416)),
        (&yolox::HEAD, &["output f32 1x3549x33"], labelled(28, 416)),
        (&yolox::HEAD, &["output f32 1x2100x112"], labelled(107, 320)),
        (&yolox::HEAD, &["output f32 1x8400x45"], labelled(40, 640)),
        // Classifiers without metadata: by ImageNet's number, labels, or a softmax.
        (&classify::HEAD, &["output f32 1x7"], labelled(7, 224)),
        (&classify::HEAD, &["output f32 1x128"], ModelHints { has_probabilities: true, ..at(224) }),
        (&detr_logits::HEAD, &["pred_logits f32 1x300x80", "pred_boxes f32 1x300x4"], sampling(at(640))),
        (&detr_logits::HEAD, &["logits f32 ?x300x4", "pred_boxes f32 ?x300x4"], sampling(labelled(4, 640))),
        (&detr_logits::HEAD, &["904 f32 1x300x4", "913 f32 1x300x80"], sampling(at(640))),
        // As many as Grounding DINO has of tokens, but with names.
        (&detr_logits::HEAD, &["logits f32 1x900x256", "pred_boxes f32 1x900x4"], sampling(labelled(256, 800))),
        (&detr_logits::HEAD, &["logits f32 ?x?x80", "pred_boxes f32 ?x?x4"], sampling(at(320))), // D-FINE's queries are open
        // Anomalib.
        (
            &anomaly::HEAD,
            &["pred_score f32 1", "pred_label bool 1", "anomaly_map f32 1x1x256x256", "pred_mask bool 1x1x256x256"],
            at(256),
        ),
        (&anomaly::HEAD, &["pred_score f16 ?x1", "anomaly_map f16 ?x1x?x?"], ModelHints::default()),
        (&anomaly_score::HEAD, &["pred_score f32 1", "pred_label bool 1"], at(256)),
        (&anomaly_score::HEAD, &["pred_score f16 ?x1"], ModelHints::default()),
        (
            &ssd::HEAD,
            &[
                "detection_boxes:0 f32 1x100x4",
                "detection_classes:0 f32 1x100",
                "detection_scores:0 f32 1x100",
                "num_detections:0 f32 1",
                "raw_detection_boxes:0 f32 1x1917x4",
            ],
            at(300),
        ),
    ];
    for (layout, outputs, hints) in table {
        assert_eq!(recognise(None, &model(outputs), hints), Ok(*layout), "{outputs:?} {hints:?}");
    }
}

/// Of exports that do not name their outputs as Anomalib does.
#[test]
fn a_score_and_a_map_are_told_apart_by_their_dimensions() {
    for outputs in [["output f32 1x1x32x64", "565 f32 1"], ["565 f32 1x1", "output f32 1x32x64"]] {
        let decoder = Decoder::new(Some(&anomaly::HEAD), &model(&outputs), &at(64)).unwrap();
        assert_eq!(decoder.map_shape(), Some([1, 64, 32]), "{outputs:?}");
    }
    // The score alone, if the user asks for that.
    for outputs in [&["label bool 1", "565 f32 1x1"][..], &["output f32 1x1x32x64", "565 f32 1"]] {
        let decoder = Decoder::new(Some(&anomaly_score::HEAD), &model(outputs), &at(64)).unwrap();
        assert_eq!((decoder.map_shape(), decoder.first_output().name.as_str()), (None, "565"), "{outputs:?}");
    }
    let error = recognise(Some(&anomaly_score::HEAD), &model(&["output f32 1x1x64x64"]), &at(64)).unwrap_err();
    assert!(error.message().contains("The model's outputs do not fit layout=anomaly-score"), "{error}");
    let error = recognise(Some(&anomaly::HEAD), &model(&["output f32 1x1x64x64"]), &at(64)).unwrap_err();
    assert!(error.message().contains("The model's outputs do not fit layout=anomaly"), "{error}");
}

/// The second head of YOLOv9 is the main one.
#[test]
fn of_two_heads_the_last_is_read() {
    let tensors = [
        columns(f32s, 21, &[(0, &[10.0, 10.0, 4.0, 4.0, 0.5])]),
        columns(f32s, 21, &[(1, &[10.0, 10.0, 4.0, 4.0, 0.5])]),
    ];
    let decoder = Decoder::new(None, &descs(&tensors), &labelled(1, 32)).unwrap();
    let mut out = Vec::new();
    decoder.decode(&tensors, &Thresholds::uniform(ALL_PASS), &mut out).unwrap();
    assert_eq!(out.iter().map(|d| d.row).collect::<Vec<_>>(), [1]);
}

/// What is ambiguous or impossible. Each error contains what would help.
#[test]
fn models_that_are_not_recognised() {
    let task = |task: &str| ModelHints { task: task.into(), ..ultralytics(80, "Classify") };
    let table: &[(&[&str], ModelHints, &str)] = &[
        (
            &["output0 f32 1x8400x6"],
            at(640),
            "Output output0 f32 1x8400x6 fits two layouts: yolov5 with 1 class and yolov8-transposed with 2 classes. \
             Set layout=yolov5 or layout=yolov8-transposed on trtnms.",
        ),
        (
            &["output f32 1x8400x6"],
            at(640),
            "Output output f32 1x8400x6 fits two layouts: yolox with 1 class and deepstream-yolo. Set layout=yolox or \
             layout=deepstream-yolo on trtnms.",
        ),
        (
            &["output f32 1x25200x6"],
            labelled(1, 640),
            "fits two layouts: yolov5 with 1 class and deepstream-yolo, for 1 label.",
        ),
        (&["output0 f32 1x8400x85"], labelled(3, 640), "yolov8-transposed with 81 classes, for 3 labels."),
        (&["output0 f32 1x84x8400"], labelled(91, 640), "has 80 classes as yolov8, against 91 labels."),
        (
            &["output0 f32 1x1000"],
            task("caption"),
            "Its task is “caption”, and only “detect”, “pose”, “obb”, “segment”, “classify”, “semantic”, “depth”, “anomaly”, “embed”, “text-detect” and “text” are supported.",
        ),
        (&[], at(640), "No layout fits"),
        (
            &["output0 f32 1x1000x20x20"],
            at(640),
            "No layout fits the model's outputs output0 f32 1x1000x20x20 for an input of 640x640.",
        ),
        (&["output0 f32 ?x?x?"], at(640), "set it as layout on trtnms: yolov5, yolov8, yolov8-transposed,"),
        (&["output0 i64 1x84x8400"], at(640), "No layout fits"),
        (&["output0 f32 1x84x8000"], at(640), "No layout fits"), // no such grid
        (&["output0 f32 1x8000x6"], at(640), "No layout fits"),
        (&["output0 f32 1x25200x85"], at(320), "No layout fits"),
        // Boxes and scores in separate outputs, which no head here reads: Hugging Face's DETR, MMDetection.
        (
            &["logits f32 1x100x92", "pred_boxes f32 1x100x4"],
            at(640),
            "pred_boxes f32 1x100x4 for an input of 640x640. For RT-DETR, D-FINE, DEIM and DEIMv2 set layout=detr-logits on trtnms; \
             the scores of DETR and YOLOS are a softmax, which is not supported.",
        ),
        (&["graph2_flat_predictions f32 ?x7"], at(640), "Export YOLO-NAS with postprocessing=False."),
        (&["dets f32 1x100x6", "labels i64 1x100"], at(640), "No layout fits"),
        // Of one picture, by names of no meaning.
        (&["2628 f32 ?x4", "2631 i64 ?", "2630 f32 ?"], at(640), "set layout=torchvision on trtnms"),
        (&["batchno_classid_score_x1y1x2y2 f32 ?x7"], at(640), "without it"),
        // NanoDet's demo for one class, or YOLOX.
        (
            &["output f32 1x3549x33"],
            at(416),
            "fits two layouts: yolox with 28 classes and nanodet with 1 class. Set layout=yolox or layout=nanodet on trtnms.",
        ),
        (&PICODET[..7], at(320), "No layout fits"),
        (&PICODET, at(416), "No layout fits"),
        (&RTMDET, at(640), "No layout fits"),
        (&RTMDET[..5], ModelHints { input: Some((640, 384)), ..ModelHints::default() }, "No layout fits"),
        (
            &PICODET,
            labelled(3, 320),
            "Output transpose_0.tmp_0 f32 1x1600x80 has 80 classes as picodet, against 3 labels.",
        ),
        (
            &["pred_score f32 1x2", "pred_label bool 1"],
            at(256),
            "Anomalib 2 gives pred_score as one number of each picture",
        ),
        (&["pred_score f32 1", "anomaly_map f32 1x3x64x64"], at(64), "set layout=anomaly-score on trtnms"),
        // It may be YOLOv7 with its own suppression, but nothing else speaks for it.
        (
            &["output f32 ?x7"],
            at(640),
            "--end2end for ONNX Runtime, whose rows are as many as objects, set layout=yolov7-end-to-end",
        ),
        (
            &["output f32 1x7"],
            ModelHints { batch: Some(1), ..labelled(80, 640) },
            "set layout=yolov7-end-to-end on trtnms",
        ),
        // Darknet's maps, with their channels first and last, and the anchors apart.
        (
            &["082 f32 1x255x19x19", "094 f32 1x255x38x38", "106 f32 1x255x76x76"],
            at(608),
            "describe them in a layout file with the anchors of the .cfg",
        ),
        (
            &["a f32 1x26x26x255", "b f32 1x13x13x255"],
            at(416),
            "If these are YOLOv3's or YOLOv4's maps as darknet has them",
        ),
        (
            &["a f32 1x13x13x3x6", "b f32 1x26x26x3x6"],
            at(416),
            "If these are YOLOv3's or YOLOv4's maps as darknet has them",
        ),
        (&["a f32 1x255x19x19", "b f32 1x255x30x38"], at(608), "If it has one of these"),
        // Grounding DINO samples at points as RT-DETR does.
        (
            &["logits f32 1x900x256", "pred_boxes f32 1x900x4"],
            sampling(at(800)),
            "If this is Grounding DINO, no layout reads it",
        ),
        // MTCNN: each of its networks, in both orders of dimensions, and the points that no other has.
        (&["dense_2 f32 ?x4", "softmax_1 f32 ?x2"], at(24), "one of MTCNN's three networks, no layout reads it"),
        (&["dense_5 f32 ?x4", "dense_6 f32 ?x10", "softmax_2 f32 ?x2"], at(48), "one of MTCNN's three networks"),
        (&["conv2d_4 f32 ?x?x?x4", "softmax f32 ?x?x?x2"], at(64), "one of MTCNN's three networks"),
        (&["prob1 f32 1x2x27x27", "conv4-2 f32 1x4x27x27"], at(64), "one of MTCNN's three networks"),
        (&["a f32 ?x4", "b f32 ?x3"], at(24), "If it has one of these"),
        // The same in an order of their own.
        (&["batchno_classid_score_x1y1x2y2 f32 ?x7"], chooses(at(640)), "No layout fits"),
        // Embeddings.
        (&["output f32 1x128"], at(112), "set layout=classify on trtnms, or a label file with a line for each."),
        (&["features f32 ?x512"], at(112), "an embedding, set layout=embed."),
        (&["output f32 1x512"], labelled(80, 112), "an embedding, set layout=embed."),
        // As few rows as of a head that chooses its boxes, but of none that is known.
        (&["output f32 1x100x9"], at(640), "No layout fits"),
        // Boxes and scores of different numbers of rows, of the wrong width, and as chosen by Paddle's own suppression.
        (&["904 f32 1x8400x4", "913 f32 1x8000x80"], at(640), "No layout fits"),
        (&["904 f32 1x8400x5", "913 f32 1x8400x80"], at(640), "No layout fits"),
        (
            &["multiclass_nms3_0.tmp_0 f32 ?x6", "multiclass_nms3_0.tmp_2 i32 1"],
            at(640),
            "export the model with exclude_nms=True.",
        ),
        // RF-DETR with boxes of another width, fewer of them than logits, and other labels.
        (&["dets f32 1x300x5", "labels f32 1x300x91"], at(560), "No layout fits"),
        (&["dets f32 1x200x4", "labels f32 1x300x91"], at(560), "No layout fits"),
        (
            &["dets f32 1x300x4", "labels f32 1x300x91"],
            labelled(80, 560),
            "Output labels f32 1x300x91 has 90 classes and the background as rf-detr, against 80 labels. Set label-file on trtnms \
             (labels in gst-trt serve) to the file that belongs to the model, one line for each class, or background-class if it has \
             one, or set layout to the one that the model has.",
        ),
        (
            &["dets f32 1x300x4", "labels f32 1x300x1"],
            ModelHints { background: BackgroundClass::Last, ..at(560) },
            "background-class=last leaves no class of 1 logit a row. Set background-class=none on trtnms.",
        ),
        // Keypoints that the outputs have no room for, or that no metadata describe.
        (&["output0 f32 1x56x2100"], pose_model(20, 3, false), "with kpt_shape [20, 3] in the model's metadata."),
        (&["output0 f32 1x56x2100"], pose_model(10, 3, false), "has 22 classes as pose, against 1 label."),
        (&["output0 f32 1x300x57"], pose_model(16, 3, true), "with kpt_shape [16, 3] in the model's metadata."),
        (
            &["output0 f32 1x56x2100"],
            ModelHints { keypoints: None, ..pose_model(17, 3, false) },
            "without kpt_shape in the model's metadata.",
        ),
        // Rotated boxes without a column for the angle, and with one too many.
        (&["output0 f32 1x19x2100"], obb_model(15, false), "has 14 classes as obb, against 15 labels."),
        (&["output0 f32 1x5x2100"], obb_model(1, false), "No layout fits"),
        (&["output0 f32 1x300x6"], obb_model(15, true), "No layout fits"),
        (&["output0 f32 1x300x8"], obb_model(15, true), "No layout fits"),
        // Masks without prototypes, and with another number of coefficients than these need.
        (
            &["output0 f32 1x116x2100"],
            segment_model(80, false),
            "without prototypes of masks, which are an output of four",
        ),
        (
            &["output0 f32 1x115x2100", "output1 f32 1x32x80x80"],
            segment_model(80, false),
            "has 79 classes and 32 mask coefficients as segment, against 80 labels.",
        ),
        (
            &["output0 f32 1x300x37", "output1 f32 1x32x80x80"],
            segment_model(80, true),
            "with output1 f32 1x32x80x80 as the prototypes of its masks, one for each coefficient",
        ),
        // Names without the dimensions that go with them.
        (&["labels i64 300", "boxes f32 200x4", "scores f32 300"], at(640), "No layout fits"),
        (&["labels i64 1x300", "boxes f32 1x200x4", "scores f32 1x300"], at(640), "No layout fits"),
    ];
    for (outputs, hints, wanted) in table {
        let error = recognise(None, &model(outputs), hints).expect_err(&format!("{outputs:?}"));
        assert!(error.message().contains(wanted), "{outputs:?}: {error}");
    }
}

#[test]
fn a_choice_must_fit() {
    let table: &[(&'static HeadFormat, &[&str], bool)] = &[
        (&yolov5::HEAD, &["output0 f32 1x8400x6"], true),
        (&yolov8::HEAD, &["output0 f32 ?x?x?"], true),
        (&detr_ultralytics::HEAD, &["a f32 1x300x4", "b f32 1x300x84"], true),
        // Other names are accepted, in the order of the layout.
        (&detr::HEAD, &["a i64 1x300", "b f32 1x300x4", "c f32 1x300"], true),
        (&detr::HEAD, &["b f32 1x300x4", "a i64 1x300", "c f32 1x300"], false),
        (&detr::HEAD, &["a i64 1x300"], false),
        (&yolov5::HEAD, &["output0 f32 1x8400x5"], false), // no class
        (&yolov5::HEAD, &["output0 f32 1x0x7"], false),    // no row
        (&embed::HEAD, &["output f32 ?x512"], true),
        (&embed::HEAD, &["hidden f32 1x50x768", "output f32 1x512"], true),
        (&embed::HEAD, &["output f32 1x50x768"], false),
        (&end_to_end::HEAD, &["output0 f32 1x300x7"], false),
        (&end_to_end::HEAD, &["output0 bool 1x300x6"], false),
        (&ssd::HEAD, &[], false),
    ];
    for (layout, outputs, fits) in table {
        let outputs = model(outputs);
        match recognise(Some(*layout), &outputs, &at(640)) {
            Ok(found) => assert!(*fits && found == *layout, "{layout} {outputs:?}"),
            Err(error) => {
                assert!(!fits, "{layout} {outputs:?} {error}");
                assert!(error.message().contains(&layout.expects()), "{error}");
                assert!(error.message().contains(&crate::tensor::list(&outputs)), "{error}");
            }
        }
    }
}

/// What the rows of a text are, its file has to say.
#[test]
fn texts_are_not_guessed() {
    let rows = model(&["output f32 1x9x37"]);
    let task = ModelHints { task: "text".into(), ..at(128) };
    let error = recognise(None, &rows, &task).unwrap_err().message();
    assert!(error.contains("Set layout=ctc or layout=slots on trtnms"), "{error}");
    assert_eq!(recognise(Some(&slots::HEAD), &rows, &task), Ok(&slots::HEAD));
    let steps = model(&["output f32 40x1x97"]);
    assert_eq!(recognise(Some(&ctc_time_first::HEAD), &steps, &at(32)), Ok(&ctc_time_first::HEAD));
    let hints = ModelHints { has_dictionary: true, batch: Some(1), ..labelled(96, 32) };
    assert!(recognise(None, &steps, &hints).is_err(), "40 pictures of one step");
    assert!(ctc::HEAD.expects().starts_with("f32 or f16 NxAxcharacters: for each step"), "{}", ctc::HEAD.expects());
}

#[test]
fn a_head_is_for_one_task() {
    let error =
        recognise(Some(&yolov8::HEAD), &model(&["output0 f32 1x56x2100"]), &pose_model(17, 3, false)).unwrap_err();
    assert!(error.message().contains("layout=yolov8 is for the task “detect”, and the model's is “pose”"), "{error}");
    // Without metadata the user may choose; the shape of the keypoints is still needed.
    let outputs = model(&["output0 f32 1x56x2100"]);
    let bare = ModelHints { keypoints: keypoints(17, 3), ..at(320) };
    assert_eq!(recognise(Some(&pose::HEAD), &outputs, &bare), Ok(&pose::HEAD));
    let error = recognise(Some(&pose::HEAD), &outputs, &at(320)).unwrap_err();
    assert!(error.message().contains("without kpt_shape"), "{error}");
}

#[test]
fn angles_lie_behind_the_classes_and_may_be_any() {
    let outputs = model(&["output0 f32 1x20x2100"]);
    let dense = Decoder::new(None, &outputs, &obb_model(15, false)).unwrap();
    let view = dense.angles().unwrap();
    assert_eq!((view.first, view.row_stride, view.count), (19 * 2100, 1, 1));
    assert_eq!((dense.format().suppress(), dense.needs_nms()), (Suppress::RotatedIou, true));
    let rows = Decoder::new(None, &model(&["output0 f32 1x300x7"]), &obb_model(15, true)).unwrap();
    assert_eq!((rows.angles().unwrap().first, rows.format().suppress()), (6, Suppress::None));
    // Without metadata only the user can set it: it looks like boxes of 16 classes.
    assert_eq!(recognise(None, &outputs, &at(320)), Ok(&yolov8::HEAD));
    assert_eq!(recognise(Some(&obb::HEAD), &outputs, &at(320)), Ok(&obb::HEAD));

    let (nan, infinity) = (f32::NAN, f32::INFINITY);
    let row = |angle| [10.0, 10.0, 8.0, 12.0, 0.5, angle];
    let given = [row(nan), row(infinity), row(-infinity), row(1e30), row(-9.0)];
    let given: Vec<(usize, &[f32])> = given.iter().enumerate().map(|(at, row)| (at, &row[..])).collect();
    let found = decoded(&obb::HEAD, &[columns(f32s, 21, &given)], &small(), &Thresholds::uniform(ALL_PASS));
    assert_eq!(found.iter().map(|found| found.angle).collect::<Vec<_>>(), [1e30, -9.0]);
}

#[test]
fn keypoints_lie_behind_the_classes() {
    let view = |outputs: &[&str], hints: &ModelHints| {
        Decoder::new(None, &model(outputs), hints).unwrap().keypoints().unwrap().1
    };
    let dense = view(&["output0 f32 1x56x2100"], &pose_model(17, 3, false));
    assert_eq!((dense.first, dense.row_stride, dense.column_stride, dense.count), (5 * 2100, 1, 2100, 51));
    let rows = view(&["output0 f32 1x300x57"], &pose_model(17, 3, true));
    assert_eq!((rows.first, rows.row_stride, rows.column_stride, rows.count), (6, 57, 1, 51));
    let boxes = Decoder::new(None, &model(&["output0 f32 1x84x8400"]), &at(640)).unwrap();
    assert_eq!(boxes.keypoints(), None);
}

#[test]
fn coefficients_lie_behind_the_classes() {
    let view = |outputs: &[&str], hints: &ModelHints| {
        let masks = Decoder::new(None, &model(outputs), hints).unwrap().masks().unwrap();
        let MaskParts::Prototypes(view) = masks.parts else { panic!("{masks:?}") };
        (masks.shape, masks.output, view)
    };
    let outputs = ["output1 f32 1x32x80x96", "output0 f32 1x34x2100"];
    assert!(Decoder::new(None, &model(&outputs), &segment_model(80, false)).is_err());
    let outputs = ["output1 f32 1x16x80x96", "output0 f32 1x23x2100"];
    let (shape, place, dense) = view(&outputs, &segment_model(3, false));
    assert_eq!((shape, place), (PrototypeShape { count: 16, width: 96, height: 80 }, 1), "in the order of the head");
    assert_eq!((dense.first, dense.row_stride, dense.column_stride, dense.count), (7 * 2100, 1, 2100, 16));
    let (_, _, rows) = view(&["output0 f32 1x300x38", "output1 f32 1x32x80x80"], &segment_model(80, true));
    assert_eq!((rows.first, rows.row_stride, rows.column_stride, rows.count), (6, 38, 1, 32));
    let both = "f32 or f16 NxAx6+coefficients, f32 or f16 NxcoefficientsxHxW: left, top, right";
    assert!(segment_end_to_end::HEAD.expects().starts_with(both), "{}", segment_end_to_end::HEAD.expects());
}

/// What nothing but dimensions tells is said, with what it may be as well; what metadata or labels tell is not.
#[test]
fn dimensions_alone_leave_a_doubt() {
    let table: &[(&[&str], ModelHints, Option<&str>)] = &[
        (&["output0 f32 1x84x2100"], ultralytics(80, "Detect"), None),
        (&["output0 f32 1x300x84"], labelled(80, 640), None),
        (&["output f32 1x8400x85"], labelled(80, 640), None),
        (&["output f32 1x8400x85"], at(640), Some("yolov8-transposed nanodet")),
        (&["output f32 1x84x8400", "3547 f32 1x84x8400"], labelled(80, 640), None),
        (&["output0 f32 1x300x84"], at(640), Some("")),
        (&["output f32 1x1000"], at(224), Some("")),
        (&["boxes f32 1x6300x1x4", "confs f32 1x6300x80"], at(320), None),
    ];
    for (outputs, hints, wanted) in table {
        let decoder = Decoder::new(None, &model(outputs), hints).unwrap();
        let names = decoder.doubt().map(|others| others.iter().map(|format| format.name).collect::<Vec<_>>().join(" "));
        assert_eq!(names.as_deref(), *wanted, "{outputs:?} {hints:?}");
    }
}
