// SPDX-License-Identifier: MPL-2.0
//! Results, and what a tracker adds to them.

use super::*;

#[test]
fn results_stay_until_they_are_freed() {
    let session = open(&one_box("capi-results"), &["backend=rten"]).unwrap();
    let pixels = vec![0; SIDE * SIDE * 3];
    let first = detect(session, &frame(&pixels)).unwrap();
    let second = detect(session, &frame(&pixels)).unwrap();
    gst_trt_session_close(session);
    gst_trt_results_free(second);
    let label = gst_trt_results_label(first, 0);
    assert_eq!(text(label), Some("dog"));
    let json = gst_trt_results_json(first, 0);
    assert_eq!(gst_trt_results_json(first, 0), json, "it is written once");
    let json: serde_json::Value = serde_json::from_str(text(json).unwrap()).unwrap();
    let dog = r#"{"label":"dog","class-id":1,"confidence":0.8999999761581421,"x":0.0,"y":0.0,"w":32.0,"h":32.0}"#;
    assert_eq!(json, serde_json::from_str::<serde_json::Value>(dog).unwrap());

    // What this model does not find.
    assert_eq!((gst_trt_results_keypoint_count(first), gst_trt_results_keypoint_name(first, 0)), (0, ptr::null()));
    let expect = |is_error: bool, expected_text: &str| {
        assert!(is_error && last_error().contains(expected_text), "{}", last_error())
    };
    unsafe {
        let (mut point, mut bbox) = ([7.0; 3], [7.0; 4]);
        expect(gst_trt_results_keypoint(first, 0, 0, &mut point) == 7, "no keypoint 0: an object has 0");
        expect(gst_trt_results_box(first, 0, ptr::null_mut()) == 7, "box is NULL");
        expect(gst_trt_results_corners(first, 0, ptr::null_mut()) == 7, "corners is NULL");
        // What is not there.
        expect(gst_trt_results_box(first, 1, &mut bbox) == 7, "no object 1: 1 were found");
        let mut corners = [[7.0; 2]; 4];
        expect(gst_trt_results_corners(first, 1, &mut corners) == 7, "no object 1: 1 were found");
        assert_eq!(corners, [[7.0; 2]; 4], "nothing was written");
        expect(gst_trt_results_keypoint(first, 1, 0, &mut point) == 7, "no object 1: 1 were found");
        assert_eq!((point, bbox), ([7.0; 3], [7.0; 4]), "nothing was written");
        let (mut boxes, mut confidences, mut class_ids) = ([[7.0; 4]; 2], [7.0; 2], [7; 2]);
        let all = |count, boxes: &mut [[f32; 4]; 2], confidences: &mut [f32; 2], class_ids: &mut [u32; 2]| {
            let (boxes, confidences) = (boxes.as_mut_ptr(), confidences.as_mut_ptr());
            gst_trt_results_objects(first, count, boxes, confidences, class_ids.as_mut_ptr())
        };
        for count in [0, 2, usize::MAX] {
            expect(all(count, &mut boxes, &mut confidences, &mut class_ids) == 7, "objects, and 1 were found");
        }
        assert_eq!((boxes, confidences, class_ids), ([[7.0; 4]; 2], [7.0; 2], [7; 2]), "nothing was written");
        assert_eq!(all(1, &mut boxes, &mut confidences, &mut class_ids), 0);
        assert_eq!(boxes, [[0.0, 0.0, 32.0, 32.0], [7.0; 4]]);
        assert_eq!((confidences, class_ids), ([0.9, 7.0], [1, 7]));
        assert_eq!(gst_trt_results_objects(first, 1, ptr::null_mut(), ptr::null_mut(), ptr::null_mut()), 0);
        let mut rect = [7; 4];
        assert!(gst_trt_results_mask(first, 0, &mut rect).is_null(), "this model gives no masks");
        expect(gst_trt_results_mask(first, 1, &mut rect).is_null(), "no object 1: 1 were found");
        assert_eq!(rect, [7; 4], "nothing was written");
    }
    expect(gst_trt_results_label(first, 1).is_null(), "no object 1");
    expect(gst_trt_results_json(first, usize::MAX).is_null(), "no object");
    expect(gst_trt_results_confidence(first, 1).is_nan(), "no object 1");
    expect(gst_trt_results_angle(first, 1).is_nan(), "no object 1");
    expect(gst_trt_results_class_id(first, 1) == 0, "no object 1");

    gst_trt_results_free(first);
    gst_trt_results_free(first);
    gst_trt_results_free(ptr::null_mut());
    for (results, expected_text) in
        [(first, "closed already"), (ptr::null_mut(), "it is NULL"), (session.cast(), "closed already")]
    {
        let mut point = [0.0; 3];
        expect(gst_trt_results_count(results) == 0, expected_text);
        expect(gst_trt_results_label(results, 0).is_null(), expected_text);
        expect(gst_trt_results_confidence(results, 0).is_nan(), expected_text);
        let none = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        expect(unsafe { gst_trt_results_objects(results, 0, none.0, none.1, none.2) } == 7, expected_text);
        expect(gst_trt_results_json(results, 0).is_null(), expected_text);
        expect(unsafe { gst_trt_results_box(results, 0, &mut [0.0; 4]) } == 7, expected_text);
        expect(gst_trt_results_angle(results, 0).is_nan(), expected_text);
        expect(unsafe { gst_trt_results_corners(results, 0, &mut [[0.0; 2]; 4]) } == 7, expected_text);
        expect(unsafe { gst_trt_results_keypoint(results, 0, 0, &mut point) } == 7, expected_text);
        expect(gst_trt_results_keypoint_name(results, 0).is_null(), expected_text);
        expect(unsafe { gst_trt_results_mask(results, 0, &mut [0; 4]) }.is_null(), expected_text);
    }
}

/// A tracker with these options; `status` otherwise.
fn tracker(options: &[&str]) -> Result<*mut GstTrtTracker, c_int> {
    let texts: Vec<CString> = options.iter().map(|option| CString::new(*option).unwrap()).collect();
    let pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
    let mut tracker = ptr::dangling_mut();
    match unsafe { gst_trt_tracker_new(pointers.as_ptr(), &mut tracker) } {
        0 => Ok(tracker),
        status => {
            assert!(tracker.is_null(), "no handle comes with an error");
            Err(status)
        }
    }
}

#[test]
fn objects_are_numbered_by_a_tracker() {
    let session = open(&one_box("capi-tracker"), &["backend=rten"]).unwrap();
    let pixels = vec![0; SIDE * SIDE * 3];
    let follow = |tracker, at: u64| {
        let results = detect(session, &frame(&pixels)).unwrap();
        assert_eq!(gst_trt_results_track_id(results, 0), 0, "not yet");
        assert_eq!(gst_trt_tracker_update(tracker, results, at * 40_000_000, 40_000_000), 0, "{}", last_error());
        (results, gst_trt_results_track_id(results, 0))
    };
    for algorithm in ["bytetrack", "botsort-iou", "ocsort", "iou", "boosttrack"] {
        let tracker = tracker(&[&format!("tracker={algorithm}"), "lost-after=1000000000"]).unwrap();
        for at in 0..3 {
            let (results, id) = follow(tracker, at);
            assert_eq!(id, 1, "{algorithm}");
            let json = text(gst_trt_results_json(results, 0)).unwrap();
            assert!(json.contains(r#""track-id":1"#), "{json}");
            assert_eq!(gst_trt_results_track_id(results, 1), 0);
            assert!(last_error().contains("no object 1"), "{}", last_error());
            assert_eq!(gst_trt_tracker_update(tracker, results, 0, 0), 7);
            assert!(last_error().contains("have ids already"), "{}", last_error());
            gst_trt_results_free(results);
            assert_eq!(gst_trt_tracker_update(tracker, results, 0, 0), 7);
            assert!(last_error().contains("results is not open"), "{}", last_error());
        }
        assert_eq!(gst_trt_tracker_reset(tracker), 0);
        let (results, id) = follow(tracker, 0);
        assert_eq!(id, 2, "{algorithm}");
        gst_trt_tracker_free(tracker);
        gst_trt_tracker_free(tracker);
        assert_eq!(gst_trt_tracker_reset(tracker), 7);
        assert!(last_error().contains("tracker is not open"), "{}", last_error());
        gst_trt_results_free(results);
    }
    gst_trt_session_close(session);
    let mut made = ptr::dangling_mut();
    assert_eq!(unsafe { gst_trt_tracker_new(ptr::null(), &mut made) }, 0);
    gst_trt_tracker_free(made);
    assert_eq!(unsafe { gst_trt_tracker_new(ptr::null(), ptr::null_mut()) }, 7);
    assert!(tracker(&["tracker=none"]).is_err());
    assert!(last_error().contains("bytetrack, botsort-iou"), "{}", last_error());
}

#[test]
fn objects_are_told_apart_by_vectors() {
    // Two boxes that overlap by two thirds.
    let rows = [[0.0, 0.0, 32.0, 32.0, 0.9, 0.0], [6.0, 0.0, 38.0, 32.0, 0.9, 1.0]];
    let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]);
    let graph = graph.constant("output0", &[1, 2, 6], rows.as_flattened()).metadata("end2end", "True");
    let model = graph.metadata("names", "{0: 'cat', 1: 'dog'}").save(&scratch("capi-looks").join("boxes.onnx"));
    let session = open(&model, &["backend=rten"]).unwrap();
    let ids = |tracker: *mut GstTrtTracker, at: u64, vectors: &[f32]| {
        let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap();
        let (time, dims) = (at * 40_000_000, vectors.len() / 2);
        // SAFETY: there are two objects, with so many numbers each.
        let status =
            unsafe { gst_trt_tracker_update_with_vectors(tracker, results, time, 40_000_000, vectors.as_ptr(), dims) };
        assert_eq!(status, 0, "{}", last_error());
        let ids = [0, 1].map(|object| gst_trt_results_track_id(results, object));
        gst_trt_results_free(results);
        ids
    };
    for (algorithm, second) in
        [("botsort", [2, 1]), ("deepocsort", [2, 1]), ("boosttrack", [2, 1]), ("bytetrack", [1, 2])]
    {
        let tracker = tracker(&[&format!("tracker={algorithm}"), "per-class=false"]).unwrap();
        assert_eq!(ids(tracker, 0, &[1.0, 0.0, 0.0, 2.0]), [1, 2], "{algorithm}");
        assert_eq!(ids(tracker, 1, &[0.0, 3.0, 1.0, 0.0]), second, "{algorithm}");
        assert_eq!(ids(tracker, 2, &[0.0, 0.0, f32::NAN, 1.0]), second, "{algorithm}: no vectors");
        assert_eq!(ids(tracker, 3, &[]), second, "{algorithm}: none at all");
        let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap();
        // SAFETY: NULL is allowed.
        let refused =
            |dims: usize| unsafe { gst_trt_tracker_update_with_vectors(tracker, results, 0, 0, ptr::null(), dims) };
        assert_eq!(refused(2), 7);
        assert!(last_error().contains("vectors is NULL"), "{}", last_error());
        assert_eq!(refused(usize::MAX), 7);
        assert_eq!(refused(0), 0, "{}", last_error());
        gst_trt_results_free(results);
        gst_trt_tracker_free(tracker);
    }
    gst_trt_session_close(session);
}

#[test]
fn results_are_drawn_on_a_frame() {
    let session = open(&one_box("capi-draw"), &["backend=rten"]).unwrap();
    let mut pixels = vec![0; SIDE * SIDE * 3];
    let results = detect(session, &frame(&pixels)).unwrap();
    let drawn = frame(&pixels);
    let draw = |frame: &GstTrtFrame| unsafe { gst_trt_results_draw(results, frame, ptr::null(), 0) };
    let planes = [pixels.as_mut_ptr().cast_const().cast(), ptr::null(), ptr::null()];
    assert_eq!(unsafe { gst_trt_results_draw(results, &GstTrtFrame { planes, ..drawn }, [0].as_ptr(), 0) }, 0);
    assert!(pixels.iter().all(|&byte| byte == 0), "no object is drawn");
    assert_eq!(unsafe { gst_trt_results_draw(results, &GstTrtFrame { planes, ..drawn }, [1].as_ptr(), 1) }, 7);
    assert!(last_error().contains("no object 1"), "{}", last_error());
    assert_eq!(draw(&GstTrtFrame { planes, ..drawn }), 0, "{}", last_error());
    let pixel = |x: usize, y: usize| pixels[(y * SIDE + x) * 3..][..3].iter().any(|&byte| byte != 0);
    assert!(pixel(0, 20) && pixel(31, 20) && pixel(20, 31), "the outline");
    assert!(!pixel(16, 26) && !pixel(50, 50), "nothing else");
    for (wrong, text) in [
        (GstTrtFrame { planes, width: 0, ..drawn }, "0x64"),
        (GstTrtFrame { planes, bytes: [7; 3], ..drawn }, "too few"),
        (GstTrtFrame { planes: [ptr::null(); 3], ..drawn }, "is NULL"),
    ] {
        assert_eq!(draw(&wrong), 7);
        assert!(last_error().contains(text), "{}", last_error());
    }
    gst_trt_results_free(results);
    assert_eq!(draw(&GstTrtFrame { planes, ..drawn }), 7);
    assert!(last_error().contains("closed already"), "{}", last_error());
    gst_trt_session_close(session);
}

#[test]
fn rotated_boxes_have_angles_and_corners() {
    let rotation = |results| {
        let mut corners = [[0.0; 2]; 4];
        assert_eq!(unsafe { gst_trt_results_corners(results, 0, &mut corners) }, 0, "{}", last_error());
        (gst_trt_results_angle(results, 0), corners)
    };
    let upright = [[32.0, 32.0], [32.0, 0.0], [0.0, 0.0], [0.0, 32.0]];
    let found = |path: &str| {
        let session = open(path, &["backend=rten"]).unwrap();
        let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap_or_else(|_| panic!("{}", last_error()));
        gst_trt_session_close(session);
        results
    };
    let results = found(&one_box("capi-upright"));
    assert_eq!(rotation(results), (0.0, upright), "this model has no rotated boxes");
    assert_eq!(gst_trt_results_kinds(results), 0);
    gst_trt_results_free(results);

    // Of 16x8 around (28, 28), by an eighth of a turn clockwise: the lower right corner comes straight down or so.
    let angle = std::f32::consts::FRAC_PI_4;
    let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]).metadata("task", "obb");
    let graph = graph.constant("output0", &[1, 1, 7], &[28.0, 28.0, 16.0, 8.0, 0.9, 0.0, angle]);
    let graph = graph.metadata("end2end", "True").metadata("names", "{0: 'ship'}");
    let results = found(&graph.save(&scratch("capi-obb").join("obb.onnx")));
    let (read, corners) = rotation(results);
    assert_eq!((read, gst_trt_results_kinds(results)), (angle, 1));
    let (far, near) = (12.0 * 0.5f32.sqrt(), 4.0 * 0.5f32.sqrt());
    let wanted = [[near, far], [far, near], [-near, -far], [-far, -near]].map(|corner| corner.map(|at| at + 28.0));
    let apart = corners.iter().flatten().zip(wanted.iter().flatten()).map(|(a, b)| (a - b).abs());
    assert!(apart.fold(0.0, f32::max) < 1e-4, "{corners:?} is not {wanted:?}");
    let mut bbox = [0.0; 4];
    assert_eq!(unsafe { gst_trt_results_box(results, 0, &mut bbox) }, 0);
    assert!((bbox[0] - (28.0 - far)).abs() < 1e-4 && (bbox[2] - 2.0 * far).abs() < 1e-4, "{bbox:?} is not around it");
    let json = text(gst_trt_results_json(results, 0)).unwrap();
    assert!(json.contains(r#""angle":0.785"#) && json.contains(r#""corners":["#), "{json}");
    gst_trt_results_free(results);
}

#[test]
fn masks_are_read() {
    // The left half of the box, which is the left upper quarter of the frame.
    let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]).metadata("task", "segment");
    let graph =
        graph.constant("output0", &[1, 1, 7], &[0.0, 0.0, 32.0, 32.0, 0.9, 0.0, 2.0]).metadata("end2end", "True");
    let graph = graph.constant("output1", &[1, 1, 1, 4], &[1.0, -1.0, -1.0, -1.0]).metadata("names", "{0: 'cat'}");
    let session = open(&graph.save(&scratch("capi-segment").join("segment.onnx")), &["backend=rten"]).unwrap();
    let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap_or_else(|_| panic!("{}", last_error()));
    gst_trt_session_close(session);
    assert_eq!(gst_trt_results_kinds(results), 4);
    let mut rect = [0; 4];
    let mask = unsafe { gst_trt_results_mask(results, 0, &mut rect) };
    assert_eq!(rect, [0, 0, 32, 32], "{}", last_error());
    assert_eq!(unsafe { gst_trt_results_mask(results, 0, &mut rect) }, mask, "it is written once");
    // SAFETY: a byte for each pixel, until the results are freed.
    let pixels = unsafe { std::slice::from_raw_parts(mask, 32 * 32) };
    let row: Vec<u8> = [[255; 16], [0; 16]].concat();
    assert!(pixels.chunks_exact(32).all(|pixels| pixels == row), "{:?}", &pixels[..32]);
    assert!(unsafe { gst_trt_results_mask(results, 0, ptr::null_mut()) }.is_null());
    assert!(last_error().contains("rect is NULL"), "{}", last_error());
    let json = text(gst_trt_results_json(results, 0)).unwrap();
    let mask = r#""mask-x":0,"mask-y":0,"mask-width":32,"mask-height":32,"mask-counts":"0PP""#;
    assert!(json.contains(&mask[..mask.len() - 5]), "{json}");
    gst_trt_results_free(results);
}

#[test]
fn keypoints_are_read_and_may_lack_names_and_visibility() {
    let model = |dims: usize, row: &[f32]| {
        let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]).metadata("task", "pose");
        let graph = graph.constant("output0", &[1, 1, row.len() as i64], row).metadata("end2end", "True");
        graph.metadata("kpt_shape", &format!("[2, {dims}]")).metadata("names", "{0: 'cat'}")
    };
    let found = |graph: Graph| {
        let path = graph.save(&scratch("capi-pose").join("pose.onnx"));
        let session = open(&path, &["backend=rten"]).unwrap();
        let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap_or_else(|_| panic!("{}", last_error()));
        gst_trt_session_close(session);
        assert_eq!((gst_trt_results_count(results), gst_trt_results_keypoint_count(results)), (1, 2));
        assert_eq!(gst_trt_results_kinds(results), 2);
        results
    };
    let point = |results, keypoint| {
        let mut point = [0.0; 3];
        assert_eq!(unsafe { gst_trt_results_keypoint(results, 0, keypoint, &mut point) }, 0, "{}", last_error());
        point
    };
    let with_visibility = model(3, &[0.0, 0.0, 32.0, 32.0, 0.9, 0.0, 4.0, 5.0, 0.75, 6.0, 7.0, 0.25]);
    let results = found(with_visibility.metadata("kpt_names", "{0: ['nose', 'tail']}"));
    assert_eq!([point(results, 0), point(results, 1)], [[4.0, 5.0, 0.75], [6.0, 7.0, 0.25]]);
    let name = |keypoint| text(gst_trt_results_keypoint_name(results, keypoint));
    assert_eq!([name(0), name(1), name(2)], [Some("nose"), Some("tail"), None]);
    assert_eq!(unsafe { gst_trt_results_keypoint(results, 0, 2, &mut [0.0; 3]) }, 7);
    assert!(last_error().contains("no keypoint 2: an object has 2"), "{}", last_error());
    assert_eq!(unsafe { gst_trt_results_keypoint(results, 0, 0, ptr::null_mut()) }, 7);
    assert!(text(gst_trt_results_json(results, 0)).unwrap().contains(r#""keypoint-names":["nose","tail"]"#));
    gst_trt_results_free(results);

    let results = found(model(2, &[0.0, 0.0, 32.0, 32.0, 0.9, 0.0, 4.0, 5.0, 6.0, 7.0]));
    let points = [point(results, 0), point(results, 1)];
    assert_eq!(points.map(|point| (point[0], point[1])), [(4.0, 5.0), (6.0, 7.0)]);
    assert!(points.iter().all(|point| point[2].is_nan()));
    assert!(gst_trt_results_keypoint_name(results, 0).is_null());
    gst_trt_results_free(results);
}

#[test]
fn classes_of_the_frame_are_told() {
    let graph =
        Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("scores", &[1, 3], &[-9.0, 0.0, 9.0]);
    let graph = graph.metadata("task", "classify").metadata("names", "{0: 'cat', 1: 'dog', 2: 'bird'}");
    let model = graph.save(&scratch("capi-classes").join("classify.onnx"));
    let session = open(&model, &["backend=rten", "top-k=2", "score-threshold=0"]).unwrap();
    let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap();
    gst_trt_session_close(session);
    assert_eq!((gst_trt_results_count(results), gst_trt_results_frame_class_count(results)), (0, 2));
    assert_eq!(gst_trt_results_kinds(results), 8);
    assert_eq!(text(gst_trt_results_frame_class_label(results, 0)), Some("bird"));
    assert_eq!([0, 1].map(|rank| gst_trt_results_frame_class_id(results, rank)), [2, 1]);
    let confidence = gst_trt_results_frame_class_confidence(results, 0);
    assert!((confidence - 0.999_876_6).abs() < 1e-6, "{confidence}");
    let json = text(gst_trt_results_frame_class_json(results, 1)).unwrap();
    assert!(json.starts_with(r#"{"label":"dog","class-id":1,"confidence":0.000123"#), "{json}");
    assert!(gst_trt_results_frame_class_confidence(results, 2).is_nan());
    assert!(last_error().contains("no class 2 of the frame: there are 2"), "{}", last_error());
    assert!(gst_trt_results_frame_class_label(results, 2).is_null());
    assert!(gst_trt_results_frame_class_json(results, 2).is_null());
    assert_eq!(gst_trt_results_frame_class_id(results, 2), 0);
    gst_trt_results_free(results);
    assert_eq!(gst_trt_results_frame_class_count(results), 0);
    let model = one_box("capi-no-classes");
    let session = open(&model, &["backend=rten"]).unwrap();
    let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap();
    assert_eq!(gst_trt_results_frame_class_count(results), 0, "it finds objects");
    gst_trt_results_free(results);
    gst_trt_session_close(session);
}

#[test]
fn the_vector_of_the_frame_is_given() {
    let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("v", &[1, 2], &[3.0, -4.0]);
    let model = graph.metadata("task", "embed").save(&scratch("capi-vector").join("embed.onnx"));
    let session = open(&model, &["backend=rten"]).unwrap();
    let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap();
    gst_trt_session_close(session);
    assert_eq!((gst_trt_results_count(results), gst_trt_results_kinds(results)), (0, 32));
    let mut count = 0;
    // SAFETY: there is room for the count; the numbers are as many, and the results are not freed before they are read.
    unsafe {
        let vector = gst_trt_results_vector(results, &mut count);
        assert_eq!(std::slice::from_raw_parts(vector, count), [0.6, -0.8]);
        assert!(gst_trt_results_vector(results, ptr::null_mut()).is_null());
        assert!(last_error().contains("count is NULL"), "{}", last_error());
    }
    gst_trt_results_free(results);
    let session = open(&one_box("capi-no-vector"), &["backend=rten"]).unwrap();
    let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap();
    // SAFETY: there is room for the count.
    assert!(unsafe { gst_trt_results_vector(results, &mut count) }.is_null(), "it finds objects");
    gst_trt_results_free(results);
    gst_trt_session_close(session);
}

#[test]
fn the_text_of_the_frame_is_given() {
    // The blank, H, i and a space.
    let steps: [[f32; 4]; 4] = [[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.0, 1.0]];
    let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]);
    let graph = graph.constant("text", &[1, 4, 4], steps.as_flattened()).metadata("character", "H\ni");
    let session = open(&graph.save(&scratch("capi-text").join("reader.onnx")), &["backend=rten"]).unwrap();
    let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap();
    gst_trt_session_close(session);
    assert_eq!((gst_trt_results_count(results), gst_trt_results_kinds(results)), (0, 64));
    let mut confidence = 0.0;
    // SAFETY: there is room for the confidence; the text is not freed before it is read.
    unsafe {
        let text = gst_trt_results_text(results, &mut confidence);
        assert_eq!(std::ffi::CStr::from_ptr(text).to_str().unwrap(), "Hi ");
        assert!(gst_trt_results_text(results, ptr::null_mut()).is_null());
        assert!(last_error().contains("confidence is NULL"), "{}", last_error());
    }
    assert!((confidence - 2.5 / 3.0).abs() < 1e-6, "{confidence}");
    gst_trt_results_free(results);
    let session = open(&one_box("capi-no-text"), &["backend=rten"]).unwrap();
    let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap();
    // SAFETY: there is room for the confidence.
    assert!(unsafe { gst_trt_results_text(results, &mut confidence) }.is_null(), "it finds objects");
    gst_trt_results_free(results);
    gst_trt_session_close(session);
}

#[test]
fn maps_of_the_frame_are_given() {
    let folder = scratch("capi-maps");
    let graph = |dims: &[i64], values: &[f32], task: &str| {
        let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("output0", dims, values);
        graph.metadata("task", task).metadata("names", "{0: 'road', 1: 'car'}")
    };
    let results = |graph: Graph, options: &[&str]| {
        let model = graph.save(&folder.join("model.onnx"));
        let session = open(&model, &[&["backend=rten"], options].concat()).unwrap();
        let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap();
        gst_trt_session_close(session);
        results
    };
    let values = |results: *const GstTrtResults| {
        let mut size = [0; 2];
        // SAFETY: there is room for the size; the values are as many, and the results are not freed before they are copied.
        unsafe {
            let values = gst_trt_results_map(results, &raw mut size);
            (!values.is_null()).then(|| std::slice::from_raw_parts(values, (size[0] * size[1]) as usize).to_vec())
        }
    };
    // A car in the upper half.
    let found = results(graph(&[1, 2, 2, 1], &[0.0, 1.0, 1.0, 0.0], "semantic"), &[]);
    let half = SIDE * SIDE / 2;
    assert_eq!(gst_trt_results_kinds(found), 16);
    assert_eq!(values(found), Some([vec![1; half], vec![0; half]].concat()));
    assert_eq!(gst_trt_results_map_region_count(found), 2);
    assert_eq!(text(gst_trt_results_map_region_label(found, 1)), Some("car"));
    let mut numbers = [0; 3];
    // SAFETY: there is room for three numbers, and for two.
    unsafe {
        assert_eq!(gst_trt_results_map_region(found, 1, &raw mut numbers), 0);
        assert_eq!(numbers, [1, 1, half as u32]);
        assert_ne!(gst_trt_results_map_region(found, 2, &raw mut numbers), 0);
        assert!(last_error().contains("no region 2 of the map: it has 2"), "{}", last_error());
        let mut range = [0.0; 2];
        assert_ne!(gst_trt_results_map_range(found, &raw mut range), 0);
    }
    let json = text(gst_trt_results_map_json(found)).unwrap();
    let region = r#"{"id":1,"label":"car","class-id":1,"share":0.5}"#;
    assert!(json.contains(r#""kind":"classes""#) && json.contains(region), "{json}");
    gst_trt_results_free(found);
    assert_eq!(values(found), None);
    let found = results(graph(&[1, 1, 1, 2], &[2.0, 4.0], "depth"), &[]);
    let mut range = [0.0; 2];
    // SAFETY: there is room for two numbers.
    assert_eq!(unsafe { gst_trt_results_map_range(found, &raw mut range) }, 0);
    assert_eq!((range, values(found).unwrap()[0]), ([2.0, 4.0], 0));
    assert_eq!(gst_trt_results_map_region_count(found), 0);
    gst_trt_results_free(found);
    let found = results(graph(&[1, 1, 1, 2], &[2.0, 4.0], "depth"), &["mask-output=none"]);
    assert_eq!(values(found), None);
    gst_trt_results_free(found);
    let session = open(&one_box("capi-no-map"), &["backend=rten"]).unwrap();
    let found = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap();
    assert_eq!((values(found), text(gst_trt_results_map_json(found))), (None, None));
    gst_trt_results_free(found);
    gst_trt_session_close(session);
}
