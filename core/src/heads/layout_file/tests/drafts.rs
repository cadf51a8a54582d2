// SPDX-License-Identifier: MPL-2.0
//! What `gst-trt info --explain-layout` writes of a model is a file that reads it, or says what is guessed.

use super::*;

/// What `gst-trt info --explain-layout` writes of a model that is known is a file that reads it.
#[test]
fn drafts_of_known_models_are_layout_files() {
    let keypoints = small().keypoints;
    for (outputs, hints) in [
        (&["output0 f32 1x84x8400"][..], at(640)),
        (&["output0 f32 1x25200x85"], at(640)),
        (&["output0 f32 1x300x6"], at(640)),
        (&["output f32 1x8400x85"], at(640)),
        (&["output0 f32 ?x84x?"], ModelHints { ultralytics: true, ..at(640) }),
        (&["num_dets i32 1x1", "det_boxes f32 1x100x4", "det_scores f32 1x100", "det_classes i32 1x100"], at(640)),
        (&["labels i64 1x300", "boxes f32 1x300x4", "scores f32 1x300"], at(640)),
        (&["output0 f32 1x116x8400", "output1 f32 1x32x160x160"], ModelHints { task: "segment".into(), ..at(640) }),
        (&["output0 f32 1x11x8400"], ModelHints { task: "pose".into(), keypoints, ..at(640) }),
        (&["output f32 1x2125x112"], ModelHints { classes: Some(80), ..at(320) }),
        (&["output0 f32 1x1000"], ModelHints { task: "classify".into(), ..at(224) }),
    ] {
        let outputs = model(outputs);
        let found = recognise(None, &outputs, &hints).unwrap_or_else(|error| panic!("{error}"));
        let text = draft(&outputs, &hints).unwrap();
        assert!(text.starts_with(&format!("# As the layout {found}: ")), "{text}");
        let head = of_text("draft", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(recognise(Some(head), &outputs, &hints).unwrap_or_else(|error| panic!("{error}\n{text}")), head);
        assert_eq!((head.kernel(), head.input, head.suppress()), (found.kernel(), found.input, found.suppress()));
    }
}

#[test]
fn drafts_of_unknown_models_are_toml_and_say_what_is_guessed() {
    for (outputs, says) in [
        (
            &["x f32 1x7x5000"][..],
            &["dims = [\"batch\", \"columns\", \"rows\"]", "shape = [1, 7, 5000]", "\"classes\""][..],
        ),
        (&["a f32 1x5000x4", "b f32 1x5000x9", "c f32 1x5000x10"], &["encoding = \"corners\"", "name = \"c\""]),
        (
            &["n i32 1", "b f32 1x50x4", "s f32 1x50", "c i64 1x50"],
            &["\"count\"", "type = \"number\"", "\"class-id\"", "\"score\""],
        ),
        (&["v f32 1x2x2x2x2"], &["No head has an output with so many dimensions"]),
        (&["m f32 1x5x64x64", "x f32 1x0x9"], &["prototypes"]),
        (&["e\"\\ f32 1x128"], &["name = \"e\\\"\\\\\"", "a vector that is no classes"]),
    ] {
        let outputs = model(outputs);
        let text = draft(&outputs, &at(640)).unwrap();
        assert!(text.starts_with("# ") && text.contains("guessed from dimensions alone"), "{text}");
        toml::de::DeTable::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        for part in says {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

/// What is left of dimensions of 1 is rows of columns, and the draft is a file that reads them.
#[test]
fn drafts_of_rows_with_a_dimension_of_1_can_be_used() {
    let hints = ModelHints { batch: Some(1), ..at(640) };
    for (output, dims) in [
        ("x f32 1x6300x1x8", "dims = [\"batch\", \"rows\", \"one\", \"columns\"]\nshape = [1, 6300, 1, 8]"),
        ("x f32 1x1x6300x8", "dims = [\"batch\", \"one\", \"rows\", \"columns\"]\nshape = [1, 1, 6300, 8]"),
        ("x f32 1x6300x8x1", "dims = [\"batch\", \"rows\", \"columns\"]\nshape = [1, 6300, 8]"),
        ("x f32 1x8x6300x1", "dims = [\"batch\", \"columns\", \"rows\"]\nshape = [1, 8, 6300]"),
        ("x f32 1x5000x1x6", "\"score\", \"class-id\"]"),
        ("x f32 6300x6", "dims = [\"rows\", \"columns\"]\nshape = [6300, 6]"),
        ("x f32 6300x7", "columns = [\"picture\", { column = \"box\""),
    ] {
        let outputs = model(&[output]);
        let text = draft(&outputs, &hints).unwrap();
        assert!(text.contains(dims), "{output}: {text}");
        let head = of_text("draft", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(recognise(Some(head), &outputs, &hints).unwrap_or_else(|error| panic!("{error}\n{text}")), head);
    }
    // A map stays a map.
    assert!(draft(&model(&["x f32 1x1x640x600"]), &hints).unwrap().contains("\"prototypes\""));
}

#[test]
fn what_no_file_can_describe_is_no_draft() {
    let batches = [Some(1), None];
    for (output, says, remedy) in [
        ("x f32 6300x8", "its first dimension, 6300, is not that of a batch", "1x6300x8"),
        ("x f32 6300x85", "a box, a score and a class id", "1x6300x85"),
        ("x f32 1x8x1x6300", "a dimension of 1 between columns and rows", "1x8x6300"),
        ("x f32 1x1x8x6300", "a dimension of 1 before columns and rows", "1x8x6300"),
    ] {
        for batch in batches {
            let error = draft(&model(&[output]), &ModelHints { batch, ..at(640) }).unwrap_err();
            let message = error.message();
            assert!(message.starts_with(&format!("Cannot draft a layout for the output {output}: ")), "{message}");
            assert!(message.contains(says) && message.contains(remedy), "{message}");
        }
    }
    // A batch that the input has, too.
    let hints = ModelHints { batch: Some(16), ..at(224) };
    assert!(draft(&model(&["x f32 16x1000"]), &hints).unwrap().contains("task = \"classify\""));
}
