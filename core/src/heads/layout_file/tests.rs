// SPDX-License-Identifier: MPL-2.0
mod drafts;
mod refused;

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::heads::tests::{MakeTensor, f16s, f32s, small};
use crate::heads::{Decoder, HEADS, ModelHints, Thresholds, recognise};
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
    (found, lost.not_finite)
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
