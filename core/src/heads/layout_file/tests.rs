// SPDX-License-Identifier: MPL-2.0
use std::fs;
use std::path::PathBuf;

use super::*;
use crate::heads::tests::{MakeTensor, f16s, f32s, small};
use crate::heads::{Column, Decoder, HEADS, ModelHints, Thresholds, recognise};
use crate::image::Candidate;
use crate::image::keypoints::KeypointShape;
use crate::tensor::{DType, Tensor, TensorDesc};
use crate::test::scratch;

/// The files of `tests/layouts` by the names of the heads that they describe again.
fn twins() -> Vec<(&'static HeadFormat, &'static HeadFormat)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/layouts");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let twin = |path: &PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        (HeadFormat::of_name(name).unwrap(), of_file(path).unwrap())
    };
    files.iter().map(twin).collect()
}

fn descs(tensors: &[Tensor]) -> Vec<TensorDesc> {
    tensors.iter().map(|tensor| tensor.desc().clone()).collect()
}

fn decoded(head: &'static HeadFormat, tensors: &[Tensor], hints: &ModelHints) -> (Vec<Candidate>, usize) {
    let decoder = Decoder::new(Some(head), &descs(tensors), hints).unwrap_or_else(|error| panic!("{head}: {error}"));
    let mut found = Vec::new();
    let lost = decoder.decode_counted(tensors, &Thresholds::uniform(0.05), &mut found).unwrap();
    (found, lost)
}

/// Tensors like these with other numbers: of boxes and of scores, some of which pass.
fn like(tensors: &[Tensor], seed: u64, make: MakeTensor) -> Vec<Tensor> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = |range: f32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 * range
    };
    let one = |tensor: &Tensor| {
        let TensorDesc { name, dtype, dims } = tensor.desc();
        let count = dims.iter().product::<i64>() as usize;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            let range = [1.0, 1.0, 2.0, 32.0][next(4.0) as usize % 4];
            values.push(next(range));
        }
        match dtype {
            DType::I32 => Tensor::from_slice(name, dims, &values.iter().map(|&value| value as i32).collect::<Vec<_>>()),
            DType::I64 => Tensor::from_slice(name, dims, &values.iter().map(|&value| value as i64).collect::<Vec<_>>()),
            DType::U8 => Tensor::from_slice(name, dims, &values.iter().map(|&value| value as u8).collect::<Vec<_>>()),
            _ => make(name, dims, &values),
        }
    };
    tensors.iter().map(one).collect()
}

fn same_results(built_in: &'static HeadFormat, twin: &'static HeadFormat) {
    assert_eq!((twin.task, twin.needs_nms, twin.input), (built_in.task, built_in.needs_nms, built_in.input), "{twin}");
    assert_eq!((twin.kernel(), twin.is_for_host()), (built_in.kernel(), built_in.is_for_host()), "{twin}");
    for make in [f32s as MakeTensor, f16s] {
        let (gold, wanted) = (built_in.gold)(make);
        let made = |head| Decoder::new(Some(head), &descs(&gold), &small()).unwrap();
        let (own, other) = (made(built_in), made(twin));
        assert_eq!((own.classes(), own.rows(), own.map_shape()), (other.classes(), other.rows(), other.map_shape()));
        assert_eq!((own.angles(), own.keypoints(), own.masks()), (other.angles(), other.keypoints(), other.masks()));
        assert_eq!(decoded(twin, &gold, &small()).0, wanted, "{twin}");
        let mut passed = 0;
        for seed in 0..20 {
            let tensors = like(&gold, seed, make);
            let own = decoded(built_in, &tensors, &small());
            assert_eq!(decoded(twin, &tensors, &small()), own, "{twin} {seed}");
            passed += own.0.len();
        }
        assert!(passed > 0 || !built_in.has_rows(), "{twin} finds nothing in numbers by chance");
    }
}

#[test]
fn files_give_the_results_of_the_heads_that_they_describe() {
    let twins = twins();
    assert!(twins.len() >= 10);
    for (built_in, twin) in twins {
        assert_ne!(built_in, twin);
        same_results(built_in, twin);
    }
}

/// What a head says can be written, and is the same when it is read.
#[test]
fn each_head_can_be_written_as_a_file() {
    for &head in HEADS {
        let mut text = to_toml(head, "written");
        if head.sizes.grid.is_none() && (head.has_levels() || head.has_rows() && head.encoding().is_of_cells()) {
            let strides: &[u32] = match head.name {
                "picodet" => &[8, 16, 32, 64],
                _ => &[8, 16, 32],
            };
            text += &format!("\n[grid]\nstrides = {strides:?}\n");
        }
        let read = of_text(head.name, &text).unwrap_or_else(|error| panic!("{head}: {error}\n{text}"));
        for (own, other) in head.outputs.iter().zip(read.outputs) {
            assert_eq!((own.name, own.class, own.dims), (other.name, other.class, other.dims), "{text}");
            assert_eq!(own.columns, other.columns, "{text}");
        }
        assert_eq!((head.outputs.len(), head.about), (read.outputs.len(), read.about));
        same_results(head, read);
        let again = to_toml(read, "written");
        assert_eq!(to_toml(of_text("again", &again).unwrap(), "written"), again, "{head}");
    }
}

const YOLOV8: &str = "name = \"own\"\ntask = \"detect\"\nsuppression = \"iou\"\n\n[[output]]\nname = \"output0\"\n\
                      dims = [\"batch\", \"columns\", \"rows\"]\nshape = [1, 84, 8400]\n\
                      columns = [{ column = \"box\", encoding = \"center\" }, \"classes\"]\n";

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
        ("[[output]]", "[input]\nscale = 1e39\n[[output]]", "line 6: scale is 1e39, and must be a finite number"),
        ("[[output]]", "[input]\nmean = [0, nan, 0]\n[[output]]", "line 6: mean is a list, and must be three numbers"),
        ("[[output]]", "[input]\npad = 1\nscale = 3e38\n[[output]]", "line 7: a pixel of 255 becomes no finite number"),
        ("[[output]]", "[input]\nstd = [1, 1, 1e-40]\n[[output]]", "line 6: a pixel of 255 becomes no finite number"),
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
            "and no others, need priors",
        ),
        (
            format!("[grid]\nstrides = [8]\n{}", output("", levels)).replace("corners", "prior-offsets"),
            "and no others, need priors",
        ),
        (
            format!("[grid]\nstrides = [8]\nanchors = 2\npriors = [16]\n{}", output("", levels)),
            "and there are 2: one for",
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
            "not both",
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

fn model(outputs: &[&str]) -> Vec<TensorDesc> {
    let parse = |text: &&str| {
        let mut words = text.split(' ');
        let mut next = || words.next().unwrap();
        let (name, dtype, dims) = (next(), next(), next());
        TensorDesc { name: name.into(), dtype: dtype.parse().unwrap(), dims: dims.parse().unwrap() }
    };
    outputs.iter().map(parse).collect()
}

fn at(size: u32) -> ModelHints {
    ModelHints { input: Some((size, size)), ..ModelHints::default() }
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
fn which_output_is_meant_is_never_guessed() {
    let text = YOLOV8.replace("name = \"output0\"\n", "").replace("shape = [1, 84, 8400]\n", "");
    let head = of_text("b", &text).unwrap();
    recognise(Some(head), &model(&["a f32 1x84x8400"]), &at(640)).unwrap();
    let error = recognise(Some(head), &model(&["a f32 1x84x8400", "b f32 1x84x8400"]), &at(640)).unwrap_err();
    assert!(error.message().contains("“a” as well as “b” fit it. Give the outputs their names"), "{error}");
    let shaped = of_text("b", &text.replace("columns = [", "shape = [1, 84, 8400]\ncolumns = [")).unwrap();
    recognise(Some(shaped), &model(&["a f32 1x84x8400", "b f32 1x84x2100"]), &at(640)).unwrap();
}

/// Columns in any order, with numbers between them that are not read.
#[test]
fn columns_lie_where_the_file_says() {
    let text = "name = \"own\"\ntask = \"detect\"\nsuppression = \"iou\"\n[[output]]\n\
                dims = [\"batch\", \"rows\", \"columns\"]\n\
                columns = [\"objectness\", { column = \"classes\", count = 2 }, { column = \"box\", encoding = \"corners\", at = 5 }, \
                { column = \"ignored\", count = 1 }]\n";
    let head = of_text("a", text).unwrap();
    assert_eq!(head.outputs[0].columns[2], crate::heads::Column::Ignored { count: 2 });
    let row = |objectness: f32, left: f32| [objectness, 0.25, 0.5, 9.0, 9.0, left, 4.0, 14.0, 16.0, 9.0];
    let tensors = [f32s("output0", &[1, 2, 10], [row(0.0, 1.0), row(0.5, 6.0)].as_flattened())];
    let found = decoded(head, &tensors, &small());
    assert_eq!(found.0, [crate::heads::tests::candidate(1, 1, 0.25, [6.0, 4.0, 14.0, 16.0])]);
    // Classes in the first of two outputs, boxes in the second, which is narrower.
    let text = "name = \"own\"\ntask = \"detect\"\nsuppression = \"iou\"\n[[output]]\nname = \"s\"\n\
                dims = [\"batch\", \"rows\", \"columns\"]\ncolumns = [\"classes\"]\n[[output]]\nname = \"b\"\n\
                dims = [\"batch\", \"rows\", \"columns\"]\ncolumns = [{ column = \"box\", encoding = \"corners\" }]\n";
    let head = of_text("a", text).unwrap();
    let boxes = f32s("b", &[1, 2, 4], &[1.0, 1.0, 2.0, 2.0, 6.0, 4.0, 14.0, 16.0]);
    let scores = f32s("s", &[1, 2, 6], &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5]);
    let found = decoded(head, &[boxes, scores], &small());
    assert_eq!(found.0, [crate::heads::tests::candidate(1, 5, 0.5, [6.0, 4.0, 14.0, 16.0])]);
}

#[test]
fn rows_without_a_batch_are_read_to_the_end() {
    let text = "name = \"own\"\ntask = \"detect\"\nsuppression = \"none\"\n[[output]]\ndims = [\"rows\", \"columns\"]\n\
                columns = [{ column = \"box\", encoding = \"corners\" }, \"score\", \"class-id\"]\n";
    let head = of_text("a", text).unwrap();
    let rows = [[1.0, 1.0, 2.0, 2.0, 0.0, 0.0], [6.0, 4.0, 14.0, 16.0, 0.375, 1.0]];
    let found = decoded(head, &[f32s("output0", &[2, 6], rows.as_flattened())], &small());
    assert_eq!(found.0, [crate::heads::tests::centered(1)]);
}

/// Whether its boxes, scores and classes share a row or not.
#[test]
fn so_many_rows_count_as_an_output_says() {
    let text = "name = \"own\"\ntask = \"detect\"\nsuppression = \"none\"\n[[output]]\nname = \"r\"\n\
                dims = [\"batch\", \"rows\", \"columns\"]\n\
                columns = [{ column = \"box\", encoding = \"corners\" }, \"score\", \"class-id\"]\n\
                [[output]]\nname = \"n\"\ndims = [\"batch\"]\ncolumns = [\"count\"]\ntype = \"number\"\n";
    let head = of_text("a", text).unwrap();
    let row = [6.0, 4.0, 14.0, 16.0, 0.375, 1.0];
    for count in [0, 1, 2] {
        let tensors = [f32s("r", &[1, 2, 6], [row, row].as_flattened()), f32s("n", &[1], &[count as f32])];
        assert_eq!(decoded(head, &tensors, &small()).0.len(), count);
    }
}

#[test]
fn keypoints_of_a_file_count_before_those_of_the_model() {
    let text = "name = \"own\"\ntask = \"pose\"\nsuppression = \"none\"\n[keypoints]\ncount = 3\nnumbers = 2\n\
                names = [\"a\", \"b\", \"c\"]\n[[output]]\ndims = [\"batch\", \"rows\", \"columns\"]\n\
                columns = [{ column = \"box\", encoding = \"corners\" }, \"score\", \"class-id\", \"keypoints\"]\n";
    let head = of_text("a", text).unwrap();
    let decoder = Decoder::new(Some(head), &model(&["x f32 1x10x12"]), &small()).unwrap();
    let (shape, view) = decoder.keypoints().unwrap();
    assert_eq!((shape, view.first, view.count), (KeypointShape { count: 3, dims: 2 }, 6, 6));
    let names = &head.keypoints_of(None).unwrap().names;
    assert_eq!(names[..], ["a", "b", "c"]);
    let without = text.split("[keypoints]").next().unwrap().to_string() + &text[text.find("[[output]]").unwrap()..];
    let head = of_text("a", &without).unwrap();
    let error = recognise(Some(head), &model(&["x f32 1x10x12"]), &at(64)).unwrap_err();
    assert!(error.message().contains("without kpt_shape in the model's metadata"), "{error}");
}

#[test]
fn the_metadata_of_a_model_may_have_its_layout() {
    let own = of_text(OF_METADATA, YOLOV8);
    let hints = ModelHints { own: Some(own.clone()), ..at(640) };
    let outputs = model(&["output0 f32 1x84x8400"]);
    assert_eq!(recognise(None, &outputs, &hints).unwrap(), own.unwrap());
    let explained = crate::heads::explain(&outputs, &hints).unwrap();
    assert!(explained.reason.contains("the model's metadata (key gsttrt)"), "{}", explained.reason);
    let chosen = HeadFormat::of_name("yolov8").unwrap();
    assert_eq!(recognise(Some(chosen), &outputs, &hints).unwrap(), chosen, "the user decides");
    let wrong = ModelHints { own: Some(of_text(OF_METADATA, "name = 3")), ..at(640) };
    let error = recognise(None, &outputs, &wrong).unwrap_err();
    assert!(error.message().starts_with("Cannot use the model's metadata (key gsttrt): line 1: "), "{error}");
    assert!(recognise(Some(chosen), &outputs, &wrong).is_ok());
}

#[test]
fn a_text_is_one_head() {
    let first = of_text("one", YOLOV8).unwrap();
    assert_eq!(of_text("one", YOLOV8).unwrap(), first);
    let other = of_text("two", YOLOV8).unwrap();
    assert_ne!(first, other, "errors name another file");
    assert_eq!((of_key(&key_of(first)), of_key(&key_of(other))), (Some(first), Some(other)));
    let built_in = HeadFormat::of_name("ssd").unwrap();
    assert_eq!((key_of(built_in), of_key("ssd")), ("ssd".to_string(), Some(built_in)));
    assert_eq!((of_key("#99999999"), of_key("#x"), of_key("nothing")), (None, None, None));
    assert_eq!(HeadFormat::of_name(YOLOV8).unwrap().name, "own", "the text is given for the name");
    let error = HeadFormat::of_name("name = \"a\"").unwrap_err();
    assert!(error.message().starts_with("Cannot use the text in layout: line 1: the key task is missing"), "{error}");
}

#[test]
fn files_are_read_or_refused() {
    let folder = scratch("layout-files");
    let file = folder.join("head.toml");
    let refused = |what: &[u8]| {
        fs::write(&file, what).unwrap();
        of_file(&file).unwrap_err()
    };
    assert!(refused(b"name = \"a\"\n\xff").message().contains("line 2 is not UTF-8"));
    assert!(refused(b"").message().contains("the key name is missing"));
    let large = refused(&[b'#'; (64 << 10) + 1]).message();
    assert!(large.contains("it is larger than 64 KiB") && large.contains("Is it a model"), "{large}");
    assert!(!large.contains("may read"), "it can be read: {large}");
    let large = of_text("a", &"#".repeat((64 << 10) + 1)).unwrap_err().message();
    assert!(large.contains("it is larger than 64 KiB") && large.contains("comments"), "{large}");
    assert!(refused(b"a = [[[[").message().contains("line 1: "));
    let deep = [vec![b'['; 30_000], vec![b']'; 30_000]].concat();
    assert!(refused(&[b"a = ".to_vec(), deep].concat()).message().contains("line 1: "));
    assert!(refused(&b"a.".repeat(20_000)).message().contains("line 1: "));
    for (path, kind) in [(folder.join("none.toml"), ErrorKind::NotFound), (folder.clone(), ErrorKind::Read)] {
        assert_eq!(of_file(&path).unwrap_err().kind(), kind, "{}", path.display());
    }
    fs::write(&file, YOLOV8).unwrap();
    let head = of_file(&file).unwrap();
    assert_eq!(of_file(&file).unwrap(), head);
    fs::write(&file, YOLOV8.replace("iou", "none")).unwrap();
    assert_ne!(of_file(&file).unwrap(), head, "it is read again");
}

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
