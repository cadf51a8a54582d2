// SPDX-License-Identifier: MPL-2.0
//! Files that are wrong, and files for another model.

use super::*;
use crate::heads::Column;

#[test]
fn what_is_wrong_has_its_line_and_the_nearest_word() {
    for (old, new, says) in [
        ("name = \"own\"", "nane = \"own\"", "line 1: there is no key “nane”; did you mean “name”?"),
        ("name = \"own\"", "name = own", "line 1: "),
        ("name = \"own\"", "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a = 1", "line 1: a key has more parts than any here"),
        ("name = \"own\"", "name = \"yolov8\"", "line 1: “yolov8” is the name of a layout that there is"),
        ("name = \"own\"", "name = \"My Head\"", "line 1: name is one word"),
        ("name = \"own\"\n", "", "the key name is missing"),
        ("task = \"detect\"", "task = \"detct\"", "line 2: there is no task word “detct”; did you mean “detect”?"),
        ("task = \"detect\"", "task = 3", "line 2: task is 3, and must be a text in quotes"),
        ("task = \"detect\"", r#"task = "det\u0000ect""#, "line 2: task has a NUL character"),
        ("task = \"detect\"", "task = \"pose\"", "line 2: the task “pose” needs keypoints"),
        ("task = \"detect\"", "task = \"obb\"", "needs an angle"),
        ("task = \"detect\"", "task = \"segment\"", "needs masks, or coefficients and prototypes"),
        ("task = \"detect\"", "task = \"classify\"", "the task “classify” needs one output of the dims batch columns"),
        ("suppression = \"iou\"", "suppression = \"iuo\"", "line 3: there is no suppression word “iuo”"),
        ("suppression = \"iou\"\n", "", "the key suppression is missing"),
        (
            "suppression = \"iou\"",
            "suppression = \"rotated-iou\"",
            "line 3: suppression = \"rotated-iou\" is for boxes",
        ),
        (
            "\"columns\", \"rows\"]",
            "\"colums\", \"rows\"]",
            "line 7: there is no dims word “colums”; did you mean “columns”?",
        ),
        ("\"columns\", \"rows\"]", "\"rows\", \"rows\"]", "line 7: “rows” is there twice in dims"),
        ("\"columns\", \"rows\"]", "\"columns\", \"width\"]", "line 5: no head has an output of these dims"),
        ("[1, 84, 8400]", "[1, 84]", "line 8: shape has 2 dimensions, and dims has 3"),
        ("[1, 84, 8400]", "[1, 0, 8400]", "line 8: a dimension of 0"),
        ("[1, 84, 8400]", "[1, -2, 8400]", "line 8: a dimension of shape is -2, and must be a whole number from -1"),
        ("[1, 84, 8400]", "[1, 99999999999999999999, 8400]", "line 8: a dimension of shape is 99999999999999999999"),
        ("[1, 84, 8400]", "[1, 1000000000, 8400]", "line 8: a row may have 1048576 numbers"),
        ("[1, 84, 8400]", "[1, 4, 8400]", "with “classes” a row has more than 4 numbers, and a row has 4"),
        ("\"classes\"]", "\"clases\"]", "line 9: there is no column word “clases”; did you mean “classes”?"),
        (
            "\"classes\"]",
            "{ column = \"classes\", count = 79 }]",
            "line 9: the columns are 83 numbers of a row, and by its shape it has 84. Add",
        ),
        (
            "\"classes\"]",
            "{ column = \"classes\", count = 81 }]",
            "line 9: “classes” ends behind number 85 of a row, and a row has 84",
        ),
        (
            "\"classes\"]",
            "{ column = \"classes\", at = 3, count = 80 }]",
            "line 9: “classes” begins at 3, and overlaps “box”",
        ),
        (
            "\"classes\"]",
            "{ column = \"classes\", at = 80 }, { column = \"ignored\", at = 81, count = 3 }]",
            "Give those their count",
        ),
        ("\"classes\"]", "{ column = \"classes\", count = 0 }]", "count is 0, and must be a whole number from 1"),
        ("\"classes\"]", "{ column = \"classes\", first = 1 }]", "line 9: first does not belong to “classes”"),
        ("\"classes\"]", "\"classes\", \"classes\"]", "“classes” is there twice in columns"),
        ("\"classes\"]", "\"logits\"]", "“logits” needs background"),
        ("\"classes\"]", "{ column = \"logits\", background = false }]", "logits have an output to themselves"),
        ("\"classes\"]", "\"objectness\", \"classes\"]", "objectness lies in the rows of the classes"),
        (
            "\"classes\"]",
            "\"count\", { column = \"ignored\", count = 79 }]",
            "an output of these dims has columns of a row",
        ),
        ("\"classes\"]", "{ column = \"ignored\", count = 80 }]", "classes, or logits, or score and class-id"),
        ("\"classes\"]", "7]", "line 9: a column is 7, and must be a word or a table"),
        ("\"classes\"]", "\"classes\", \"angle\"]", "an angle: only with the task “obb”"),
        (
            "encoding = \"center\"",
            "encoding = \"centre\"",
            "line 9: there is no encoding word “centre”; did you mean “center”?",
        ),
        ("encoding = \"center\"", "encoding = \"center-cells\"", "line 5: boxes in cells need [grid]"),
        ("{ column = \"box\", encoding = \"center\" }", "\"box\"", "line 9: “box” needs encoding"),
        ("columns = [", "type = \"number\"\ncolumns = [", "“classes” is read from floats alone"),
        ("[[output]]", "[output]", "line 5: output is a table, and must be a list"),
        ("[[output]]", "[grid]\nstrides = []\n[[output]]", "line 6: strides is empty"),
        ("[[output]]", "[grid]\nstrides = [8, 8]\n[[output]]", "the stride 8 is there twice"),
        ("[[output]]", "[grid]\nstrides = [0]\n[[output]]", "a stride is 0, and must be a whole number from 1"),
        (
            "[[output]]",
            "[grid]\nstrides = [8, 16, 32, 64, 128, 256]\n[[output]]",
            "strides has 6 entries, and may have 5",
        ),
        ("[[output]]", "[keypoints]\ncount = 17\nnumbers = 3\n[[output]]", "line 5: keypoints are for the task “pose”"),
        ("[[output]]", "[input]\nstd = [1, 0, 1]\n[[output]]", "line 6: std has a 0"),
        ("[[output]]", "[input]\nstd = [1, 1e-60, 1]\n[[output]]", "line 6: std has a 0"),
        ("[[output]]", "[input]\nscale = inf\n[[output]]", "scale is inf, and must be a finite number"),
        ("[[output]]", "[input]\nscale = nan\n[[output]]", "line 6: scale is nan, and must be a finite number"),
        ("[[output]]", "[input]\nscale = 0\n[[output]]", "line 6: scale is 0, and all pixels would be the same"),
        ("[[output]]", "[input]\nscale = -0.0\n[[output]]", "line 6: scale is 0, and all pixels would be the same"),
        ("[[output]]", "[input]\nscale = 1e-60\n[[output]]", "line 6: scale is 0, and all pixels would be the same"),
        (
            "[[output]]",
            "[input]\nscale = 1e39\n[[output]]",
            "line 6: scale is 1e39, and must be a number from -3.4e38 to 3.4e38",
        ),
        (
            "[[output]]",
            "[input]\nmean = [0, nan, 0]\n[[output]]",
            "line 6: a number of mean is nan, and must be a finite",
        ),
        ("[[output]]", "[input]\npad = 1\nscale = 3e38\n[[output]]", "line 7: a pixel of 255 becomes no finite number"),
        ("[[output]]", "[input]\nstd = [1, 1, 1e-40]\n[[output]]", "line 6: a pixel of 255 becomes no finite number"),
        (
            "[[output]]",
            "[input]\nscale = 1e308\n[[output]]",
            "line 6: scale is 1e308, and must be a number from -3.4e38",
        ),
        ("[[output]]", "[input]\nscale = \"1\"\n[[output]]", "line 6: scale is the text “1”, and must be a number"),
        ("[[output]]", "[input]\nmean = [0, 0]\n[[output]]", "line 6: mean is a list, and must be three numbers, like"),
        (
            "[[output]]",
            "[input]\nmean = [\n0,\n1e308, 0]\n[[output]]",
            "line 8: a number of mean is 1e308, and must be a number from -3.4e38",
        ),
        (
            "[[output]]",
            "[grid]\nstrides = [2048]\n[[output]]",
            "line 6: a stride is 2048, and must be a whole number from 1 to 1024",
        ),
        (
            "[[output]]",
            "[grid]\nstrides = [8, 99999999999999]\n[[output]]",
            "line 6: a stride is 99999999999999, and must be a whole number from 1 to 1024",
        ),
        (
            "[[output]]",
            "[input]\nmean = [3e38, 0, 0]\nstd = [0.1, 1, 1]\n[[output]]",
            "line 7: a pixel of 255 becomes no",
        ),
        ("[[output]]", "[input]\ncolours = \"bgr\"\n[[output]]", "there is no key “colours”; did you mean “colors”?"),
        ("[[output]]", "[input]\nshortest-edge = 256\n[[output]]", "shortest-edge is for fit"),
        ("name = \"output0\"", "name = \"\"", "line 6: name is that of an output of the model"),
    ] {
        assert!(YOLOV8.contains(old), "{old}");
        let error = of_text("the layout file a.toml", &YOLOV8.replacen(old, new, 1)).unwrap_err();
        let message = error.message();
        assert!(message.starts_with("Cannot use the layout file a.toml: line "), "{message}");
        assert!(message.contains(says), "{new}: {message}");
        assert_eq!(error.kind(), ErrorKind::Settings);
    }
    assert!(of_text("a", YOLOV8).is_ok());
}

#[test]
fn a_text_says_where_its_blank_is() {
    let head = |task: &str, columns: &str| {
        let dims = "dims = [\"batch\", \"rows\", \"columns\"]";
        of_text("a", &format!("name = \"own\"\ntask = \"{task}\"\n[[output]]\n{dims}\ncolumns = [{columns}]\n"))
    };
    for (columns, wanted) in [
        ("{ column = \"characters\", blank = \"last\" }", Column::Characters { is_blank_last: true, has_space: false }),
        (
            "{ column = \"characters\", blank = \"first\", space = true }",
            Column::Characters { is_blank_last: false, has_space: true },
        ),
        ("{ column = \"slots\", pad = \"-\" }", Column::Slots { pad: '-' }),
    ] {
        assert_eq!(head("text", columns).unwrap().outputs[0].columns, [wanted], "{columns}");
    }
    for (task, columns, says) in [
        ("text", "\"characters\"", "“characters” needs blank"),
        ("text", "{ column = \"characters\", blank = \"middle\" }", "There are: first, last"),
        ("text", "{ column = \"slots\", pad = \"--\" }", "“slots” needs pad"),
        ("text", "{ column = \"slots\", pad = \"-\", space = true }", "space does not belong to “slots”"),
        ("text", "\"classes\"", "with characters or slots"),
        ("text", "\"score\", { column = \"slots\", pad = \"-\" }", "or characters alone"),
        ("detect", "{ column = \"slots\", pad = \"-\" }", "characters are for the task “text”"),
    ] {
        let error = head(task, columns).unwrap_err().message();
        assert!(error.contains(says), "{columns}: {error}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let head = |text: &str| {
        let text = format!("name = \"own\"\ntask = \"detect\"\nsuppression = \"none\"\n{text}");
        of_text("a", &text).map(|_| ()).map_err(|error| error.message()).unwrap_err()
    };
    let output = |name: &str, rest: &str| format!("[[output]]\n{name}\n{rest}\n");
    let boxes = "dims = [\"batch\", \"rows\", \"columns\"]\ncolumns = [{ column = \"box\", encoding = \"corners\" }]";
    let with = |columns: &str| format!("dims = [\"batch\", \"rows\", \"columns\"]\ncolumns = [{columns}]");
    let ids = with("{ column = \"box\", encoding = \"corners\" }, \"score\", \"class-id\"");
    let levels = "dims = [\"batch\", \"cells\", \"columns\"]\ncolumns = [{ column = \"box\", encoding = \"corners\" }, \"classes\"]";
    for (text, says) in [
        (output("", boxes), "classes, or logits, or score and class-id"),
        (output("name = \"a\"", boxes) + &output("", &with("\"classes\"")), "has no name, and others have"),
        (output("name = \"a\"", boxes) + &output("name = \"a\"", &with("\"classes\"")), "“a” is there twice"),
        (output("", boxes) + &output("", boxes), "“box” is in two outputs"),
        (
            output("", boxes)
                + &output("", &with("\"score\""))
                + &output("", &with("\"class-id\""))
                + &output("", &with("\"angle\"")),
            "more than three outputs",
        ),
        (output("", &with("\"classes\"")), "needs a box in a row"),
        (output("", &with("{ column = \"ignored\", count = 3 }")), "nothing is read of this output"),
        (output("", &ids) + &output("", &with("\"objectness\"")), "the score has it already"),
        (
            output("", &with("\"picture\", { column = \"box\", encoding = \"corners\" }, \"score\", \"class-id\"")),
            "picture is for rows of all",
        ),
        (
            output("", &with("\"picture\", { column = \"box\", encoding = \"corners\" }, \"classes\"")),
            "count and picture are for rows with",
        ),
        (
            output(
                "",
                "dims = [\"rows\", \"columns\"]\ncolumns = [{ column = \"box\", encoding = \"corners\" }, \"classes\"]",
            ),
            "begin with the dimension “batch”",
        ),
        (output("", levels), "outputs for each stride need [grid]"),
        (
            format!("[grid]\nstrides = [8]\npriors = [16]\n{}", output("", levels)).replace("corners", "corner-edges"),
            "line 6: priors are for boxes as prior-offsets or prior-logits. Leave",
        ),
        (
            format!("[grid]\nstrides = [8]\n{}", output("", levels)).replace("corners", "prior-offsets"),
            "like [16, 32]; there are none",
        ),
        (
            format!("[grid]\nstrides = [8]\npriors = [[16, 9]]\n{}", output("", levels))
                .replace("corners", "prior-offsets"),
            "line 6: boxes as prior-offsets need priors: the side of the square around each anchor, like [16, 32]; here they are width",
        ),
        (
            format!("[grid]\nstrides = [8]\nanchors = 2\npriors = [16]\n{}", output("", levels)),
            "line 7: priors has 1 entries, and needs 2: one for each anchor of each stride, and there are 1 strides with 2 anchors",
        ),
        (format!("[grid]\nstrides = [8]\npriors = [0]\n{}", output("", levels)), "the side of a prior box is 0"),
        (
            format!(
                "[grid]\nstrides = [8]\n{}",
                output("", &levels.replace("\"classes\"", "\"classes\", \"cell-keypoints\""))
            ),
            "go with a box that is told from its cell",
        ),
        (
            output(
                "",
                &with("\"root-objectness\", \"objectness\", \"classes\", { column = \"box\", encoding = \"center\" }"),
            ),
            "one of objectness, root-objectness and objectness-logit",
        ),
        (
            format!("[grid]\nstrides = [8]\npriors = [16]\n{}", output("", levels)).replace("corners", "prior-logits"),
            "line 6: boxes as prior-logits need priors: width and height of each anchor, like [[10, 13], [16, 30]]; here they are single",
        ),
        (
            format!("[grid]\nstrides = [8]\n{}", output("", levels)).replace("corners", "prior-logits"),
            "like [[10, 13], [16, 30]]; there are none",
        ),
        (
            format!("[grid]\nstrides = [8]\npriors = [[16]]\n{}", output("", levels)),
            "a prior box has one side, or its width and height",
        ),
        (format!("[grid]\nstrides = [8]\npriors = [[16, 0]]\n{}", output("", levels)), "the side of a prior box is 0"),
        (
            format!("[grid]\nstrides = [8]\nanchors = 2\npriors = [[16, 9], 8]\n{}", output("", levels)),
            "or width and height of each, not both",
        ),
        (
            format!("[grid]\nstrides = [8]\npriors = [16]\nscale-x-y = [1.1]\n{}", output("", levels)),
            "scale-x-y goes with priors that have width and height",
        ),
        (
            format!("[grid]\nstrides = [8]\npriors = [[16, 9]]\nscale-x-y = [1.1, 1]\n{}", output("", levels)),
            "scale-x-y has 2 numbers, and there are 1 strides",
        ),
        (
            format!("[grid]\nstrides = [8]\npriors = [[16, 9]]\nscale-x-y = [0.5]\n{}", output("", levels)),
            "a number of scale-x-y is 0.5, and must be a number from 1 to 10",
        ),
        (format!("[grid]\nstrides = [8]\n{}", output("shape = [1, 16, 6]", levels)), "Leave it out"),
        (
            format!("[grid]\nstrides = [8]\n{}{}", output("", levels), output("", &with("\"angle\""))),
            "all have the dimension “cells”",
        ),
        (
            output("", &with("{ column = \"box\", encoding = \"center-cells\" }, \"score\", \"class-id\"")),
            "boxes in cells go with classes",
        ),
        (
            output("", &ids) + &output("", "dims = [\"batch\", \"prototypes\", \"height\", \"width\"]"),
            "prototypes need coefficients",
        ),
        (
            output("shape = [1, 5, 4]", boxes) + &output("shape = [1, 6, 3]", &with("\"classes\"")),
            "has 6 rows by its shape, and another one 5",
        ),
        (
            output(
                "",
                "dims = [\"batch\", \"one\", \"height\", \"width\"]\ntype = \"integer\"\ncolumns = [\"class-id\"]",
            ),
            "has no boxes, as the task “detect” needs",
        ),
        (String::new(), "the key output is missing"),
        ("output = []\n".into(), "the key output is missing"),
    ] {
        let message = head(&text);
        assert!(message.contains(says), "{text}\n{message}");
    }
    let semantic = "name = \"own\"\ntask = \"semantic\"\n[[output]]\ndims = [\"batch\", \"one\", \"height\", \"width\"]\n\
                    columns = [\"class-id\"]\n";
    assert!(of_text("a", semantic).unwrap_err().message().contains("type = \"integer\""));
    let semantic = semantic.replace("columns =", "type = \"integer\"\ncolumns =");
    of_text("a", &semantic).unwrap();
    let text = semantic.replace("[[output]]", "[grid]\nstrides = [8]\n[[output]]");
    assert!(of_text("a", &text).unwrap_err().message().contains("grid is for boxes, and the task “semantic” has none"));
}

#[test]
fn an_anomaly_has_a_map_and_a_score() {
    let map = "[[output]]\ndims = [\"batch\", \"one\", \"height\", \"width\"]\ncolumns = [\"anomaly-score\"]\n";
    let score = "[[output]]\ndims = [\"batch\"]\ncolumns = [\"anomaly-score\"]\n";
    let head = |task: &str, outputs: &[&str]| {
        let text = format!("name = \"own\"\ntask = \"{task}\"\nsuppression = \"none\"\n{}", outputs.concat());
        let text = if task == "anomaly" { text.replace("suppression = \"none\"\n", "") } else { text };
        of_text("a", &text)
    };
    let outputs = model(&["map f32 1x1x8x8", "score f32 1", "mask bool 1x1x8x8", "label bool 1"]);
    let decoder = Decoder::new(Some(head("anomaly", &[map, score]).unwrap()), &outputs, &at(64)).unwrap();
    assert_eq!(decoder.map_shape(), Some([1, 8, 8]));
    // Without a map it may be alone.
    for outputs in [&["score f32 1", "label bool 1"][..], &["score f16 ?x1"]] {
        let head = head("anomaly", &[score]).unwrap();
        assert_eq!(recognise(Some(head), &model(outputs), &at(64)), Ok(head));
        assert!(head.is_score() && !head.is_map() && !head.has_boxes());
    }
    let boxes = "[[output]]\ndims = [\"batch\", \"rows\", \"columns\"]\n\
                 columns = [{ column = \"box\", encoding = \"corners\" }, \"classes\"]\n";
    let (count, in_a_row) = (score.replace("anomaly-score", "count"), boxes.replace("classes", "anomaly-score"));
    for (task, outputs, says) in [
        ("anomaly", &[map][..], "behind it one of the dims batch, both with anomaly-score"),
        ("anomaly", &[score, map], "the task “anomaly” needs an output of the dims batch one height width"),
        ("anomaly", &[map, score, score], "the task “anomaly” needs"),
        ("anomaly", &[map, &count], "the task “anomaly” needs"),
        ("depth", &[map], "the task “depth” needs one output"),
        ("detect", &[boxes, score], "an output of these dims has no boxes"),
        ("detect", &[&in_a_row], "has columns of a row"),
    ] {
        let error = head(task, outputs).unwrap_err().message();
        assert!(error.contains(says), "{task}: {error}");
    }
}

#[test]
fn raw_scores_have_thresholds_and_a_range() {
    let map = "[[output]]\ndims = [\"batch\", \"one\", \"height\", \"width\"]\ncolumns = [\"anomaly-score\"]\n";
    let score = "[[output]]\ndims = [\"batch\"]\ncolumns = [\"anomaly-score\"]\n";
    let text = |task: &str, keys: &str, outputs: &[&str]| {
        format!("name = \"own\"\ntask = \"{task}\"\n[anomaly]\n{keys}\n{}", outputs.concat())
    };
    let keys = "image-threshold = 12.5\nmin = 4.5\nmax = 20";
    let with_map = format!("{keys}\npixel-threshold = -3e-3");
    let with_map = with_map.as_str();
    for (keys, outputs) in [(keys, &[score][..]), (with_map, &[map, score])] {
        let head = of_text("a", &text("anomaly", keys, outputs)).unwrap();
        let range = head.anomaly_range().unwrap();
        assert_eq!((range.image_threshold, range.min, range.max), (12.5, 4.5, 20.0));
        assert_eq!(range.pixel_threshold, (outputs.len() == 2).then_some(-3e-3));
        let again = of_text("again", &to_toml(head, "written")).unwrap();
        assert_eq!(again.anomaly_range(), Some(range));
    }
    for (task, keys, outputs, says) in [
        (
            "anomaly",
            "min = 1\nmax = 2",
            &[score][..],
            "line 3: the key image-threshold is missing: image_threshold in the",
        ),
        (
            "anomaly",
            "image-threshold = 1\nmax = 2",
            &[score],
            "line 3: the key min is missing: min, or pred_scores.min,",
        ),
        ("anomaly", "image-threshold = 1\nmin = 2", &[score], "line 3: the key max is missing"),
        (
            "anomaly",
            "image-threshold = 1\nmin = 2\nmax = 2",
            &[score],
            "line 6: min is 2 and max 2: max must be greater",
        ),
        (
            "anomaly",
            "image-threshold = 1\nmin = -3e38\nmax = 3e38",
            &[score],
            "line 6: min is -3e38 and max 3e38: their difference must be a finite number",
        ),
        (
            "anomaly",
            "image-threshold = nan\nmin = 1\nmax = 2",
            &[score],
            "image-threshold is nan, and must be a finite",
        ),
        ("anomaly", "image_threshold = 1\nmin = 1\nmax = 2", &[score], "did you mean “image-threshold”?"),
        ("anomaly", keys, &[map, score], "line 3: [anomaly] needs pixel-threshold, from which on a pixel"),
        ("anomaly", with_map, &[score], "line 3: pixel-threshold is for a map, and there is a score alone"),
        ("depth", with_map, &[map], "line 3: [anomaly] is for the task “anomaly”, and here it is “depth”"),
    ] {
        let error = of_text("a", &text(task, keys, outputs)).unwrap_err().message();
        assert!(error.contains(says), "{keys}: {error}");
    }
}

#[test]
fn a_file_for_another_model_is_refused() {
    let head = of_text("the layout file a.toml", YOLOV8).unwrap();
    let refused = |outputs: &[&str], hints: &ModelHints| {
        let error = recognise(Some(head), &model(outputs), hints).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Settings);
        let message = error.message();
        assert!(message.starts_with("The model's outputs do not fit the layout file a.toml (own): "), "{message}");
        message
    };
    recognise(Some(head), &model(&["other f32 1x3", "output0 f16 1x84x8400"]), &at(640)).unwrap();
    recognise(Some(head), &model(&["output0 f32 ?x84x?"]), &at(640)).unwrap();
    for (output, says) in [
        ("output1 f32 1x84x8400", "has no output “output0”, but output1 f32 1x84x8400; did you mean “output1”?"),
        ("output0 f32 1x85x8400", "the output is output0 f32 1x85x8400, and its shape in the file 1x84x8400"),
        ("output0 f32 1x84x6300", "shape in the file"),
        ("output0 i32 1x84x8400", "is not f32 or f16"),
        ("output0 f32 1x84", "has 2 dimensions, and dims in the file 3"),
        ("output0 f32 1x84x8400x2", "has 4 dimensions, and dims in the file 3"),
    ] {
        let message = refused(&[output], &at(640));
        assert!(message.contains(says) && message.contains("--explain-layout"), "{message}");
    }
    let task = ModelHints { task: "pose".into(), ..at(640) };
    assert!(refused(&["output0 f32 1x84x8400"], &task).contains("for the task “detect”, and the model's is “pose”"));
    let labelled = ModelHints { classes: Some(3), ..at(640) };
    let error = recognise(Some(head), &model(&["output0 f32 1x84x8400"]), &labelled).unwrap_err();
    assert!(error.message().contains("has 80 classes as own, against 3 labels"), "{error}");

    // Rows of a grid, and no shape.
    let text = YOLOV8
        .replace("shape = [1, 84, 8400]\n", "")
        .replace("[[output]]", "[grid]\nstrides = [8, 16, 32]\n\n[[output]]");
    let grid = of_text("b", &text).unwrap();
    recognise(Some(grid), &model(&["output0 f32 1x84x8400"]), &at(640)).unwrap();
    let error = recognise(Some(grid), &model(&["output0 f32 1x84x8400"]), &at(320)).unwrap_err();
    let says =
        "the model has 8400 rows, and the strides 8, 16, 32 with 1 for each cell give 2100 over an input of 320x320";
    assert!(error.message().contains(says), "{error}");
    let three = of_text("b", &text.replace("32]\n", "32]\nanchors = 3\n")).unwrap();
    recognise(Some(three), &model(&["output0 f32 1x84x25200"]), &at(640)).unwrap();
    assert!(recognise(Some(three), &model(&["output0 f32 1x84x8400"]), &at(640)).is_err());
    let counted = of_text("b", &text.replace("\"classes\"]", "{ column = \"classes\", count = 79 }]")).unwrap();
    let error = recognise(Some(counted), &model(&["output0 f32 1x84x8400"]), &at(640)).unwrap_err();
    let says =
        "a row of the output output0 f32 1x84x8400 has 84 numbers, and the columns in the file 83 (box 4, classes 79)";
    assert!(error.message().contains(says), "{error}");
    assert!(error.message().contains("Add { column = \"ignored\", count = 1 }"), "{error}");
    // Without a name it is found by its dimensions, and what is wrong is the same.
    for (columns, says) in [
        ("{ column = \"classes\", count = 2 }]", "84 numbers, and the columns in the file 6 (box 4, classes 2). Add"),
        ("{ column = \"classes\", count = 99 }]", "84 numbers, and the columns in the file 103 (box 4, classes 99):"),
        (
            "{ column = \"classes\", count = 2 }, { column = \"ignored\", count = 7 }]",
            "84 numbers, and the columns in the file 13 (box 4, classes 2, ignored 7). Add",
        ),
    ] {
        let text = text.replace("name = \"output0\"\n", "").replace("\"classes\"]", columns);
        let error = recognise(Some(of_text("b", &text).unwrap()), &model(&["x f32 1x84x8400"]), &at(640)).unwrap_err();
        assert!(error.message().contains(&format!("a row of the output x f32 1x84x8400 has {says}")), "{error}");
    }
    // Scores in an output of their own.
    let apart = "name = \"own\"\ntask = \"detect\"\nsuppression = \"none\"\n[[output]]\ndims = [\"batch\", \"rows\", \"columns\"]\n\
                 columns = [{ column = \"box\", encoding = \"corners\" }]\n[[output]]\ndims = [\"batch\", \"rows\", \"columns\"]\n\
                 columns = [{ column = \"classes\", count = 2 }]\n";
    let outputs = model(&["boxes f32 1x100x4", "scores f32 1x100x3"]);
    let error = recognise(Some(of_text("b", apart).unwrap()), &outputs, &at(640)).unwrap_err();
    let says = "a row of the output scores f32 1x100x3 has 3 numbers, and the columns in the file 2 (classes 2). Add";
    assert!(error.message().contains(says), "{error}");
}

#[test]
fn outputs_of_another_grid_are_told_with_the_cells_of_the_file() {
    let text = "name = \"own\"\ntask = \"detect\"\nsuppression = \"iou\"\n[grid]\nstrides = [16, 32]\nanchors = 3\n\
                priors = [[10, 13], [16, 30], [33, 23], [30, 61], [62, 45], [59, 119]]\n[[output]]\n\
                dims = [\"batch\", \"columns\", \"cells\"]\n\
                columns = [{ column = \"box\", encoding = \"prior-logits\" }, \"objectness-logit\", \"classes\"]\n";
    let head = of_text("a", text).unwrap();
    recognise(Some(head), &model(&["a f32 1x21x4x4", "b f32 1x21x2x2"]), &at(64)).unwrap();
    for outputs in
        [&["a f32 1x21x8x8", "b f32 1x21x2x2"][..], &["b f32 1x21x2x2"], &["a f32 1x20x4x4", "b f32 1x20x2x2"]]
    {
        let message = recognise(Some(head), &model(outputs), &at(64)).unwrap_err().message();
        let says =
            "its input of 64x64 has 4x4 cells of the stride 16, 2x2 cells of the stride 32; anchors of each cell: 3";
        assert!(message.starts_with("The model's outputs do not fit a (own): ") && message.contains(says), "{message}");
    }
}

#[test]
fn which_output_is_meant_is_never_guessed() {
    let text = YOLOV8.replace("name = \"output0\"\n", "").replace("shape = [1, 84, 8400]\n", "");
    let head = of_text("b", &text).unwrap();
    recognise(Some(head), &model(&["a f32 1x84x8400"]), &at(640)).unwrap();
    let error = recognise(Some(head), &model(&["a f32 1x84x8400", "b f32 1x84x8400"]), &at(640)).unwrap_err();
    assert!(error.message().contains("“a” as well as “b” fit it. Give the outputs their names"), "{error}");
    let shaped = of_text("b", &text.replace("columns = [", "shape = [1, 84, 8400]\ncolumns = [")).unwrap();
    recognise(Some(shaped), &model(&["a f32 1x84x8400", "b f32 1x84x2100"]), &at(640)).unwrap();
}
