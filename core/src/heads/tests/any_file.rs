// SPDX-License-Identifier: MPL-2.0
//! Arbitrary layout files, and outputs that have their dimensions: what is accepted can be decoded, and nothing outside of the
//! outputs is read.

use std::cell::Cell;

use super::*;
use crate::memory::Pool;
use crate::test::cases;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

const DIMS: [&str; 13] = [
    "'batch', 'rows', 'columns'",
    "'batch', 'columns', 'rows'",
    "'batch', 'rows', 'one', 'columns'",
    "'one', 'one', 'rows', 'columns'",
    "'rows', 'columns'",
    "'batch', 'rows'",
    "'batch'",
    "'batch', 'cells', 'columns'",
    "'batch', 'columns'",
    "'batch', 'prototypes', 'height', 'width'",
    "'batch', 'rows', 'height', 'width'",
    "'batch', 'one', 'height', 'width'",
    "'batch', 'columns', 'cells'",
];

const COLUMNS: [&str; 29] = [
    "{ column = 'box', encoding = 'corners' }",
    "{ column = 'box', encoding = 'center' }",
    "{ column = 'box', encoding = 'center' }, 'objectness', 'classes'",
    "{ column = 'box', encoding = 'center-cells' }, 'classes'",
    "{ column = 'box', encoding = 'middle-distances' }, 'classes'",
    "{ column = 'box', encoding = 'corners' }, 'score', 'class-id'",
    "'picture', 'score', 'class-id', { column = 'box', encoding = 'corners-shares' }",
    "'objectness'",
    "'classes'",
    "{ column = 'logits', background = true }",
    "'score'",
    "{ column = 'class-id', first = 1 }",
    "'keypoints'",
    "'angle'",
    "'coefficients'",
    "{ column = 'mask', over = 'box' }",
    "'count'",
    "'depth'",
    "{ column = 'ignored', count = 3 }",
    "{ column = 'classes', count = 2 }",
    "{ column = 'box', encoding = 'corner-edges' }, 'classes'",
    "{ column = 'box', encoding = 'prior-offsets' }, 'classes'",
    "{ column = 'box', encoding = 'center-cells' }, 'root-objectness', 'classes'",
    "'root-objectness'",
    "'cell-keypoints'",
    "{ column = 'box', encoding = 'corner-pixels' }, 'classes'",
    "'vector'",
    "'anomaly-score'",
    "{ column = 'box', encoding = 'prior-logits' }, 'objectness-logit', 'classes'",
];

/// An output: its dimensions, columns and type.
type AnyOutput = (usize, Vec<usize>, bool);

fn output() -> impl Strategy<Value = AnyOutput> {
    (0..DIMS.len(), prop::collection::vec(0..COLUMNS.len(), 0..4), any::<bool>())
}

/// What rows have besides box and classes, with the task that goes with it: nothing, numbers that are not read, an angle, keypoints,
/// or coefficients of masks.
const EXTRAS: [(&[usize], &str); 6] =
    [(&[], "detect"), (&[18], "detect"), (&[13], "obb"), (&[12], "pose"), (&[24], "pose"), (&[14], "segment")];

/// Outputs and their task. Most arbitrary outputs are refused; these begin with rows of boxes, and most belong together.
fn outputs() -> impl Strategy<Value = (Vec<AnyOutput>, &'static str)> {
    let noise = prop_oneof![5 => Just(Vec::new()), 1 => prop::collection::vec(output(), 1..3)];
    let main = prop::sample::select(vec![2usize, 3, 4, 5, 5, 6, 20, 21, 22, 25, 28]);
    let dims = prop_oneof![3 => 0..5usize, 1 => Just(7), 1 => Just(12)];
    (dims, main, prop::sample::select(EXTRAS.to_vec()), any::<bool>(), noise).prop_map(
        |(dims, main, (extra, task), is_first, noise)| {
            let columns = if is_first { [extra, &[main]].concat() } else { [&[main], extra].concat() };
            let prototypes = (task == "segment").then(|| (9, Vec::new(), false));
            ([(dims, columns, false)].into_iter().chain(prototypes).chain(noise).collect(), task)
        },
    )
}

fn text(outputs: &[AnyOutput], task: &str, suppression: &str, named: bool, tables: (bool, bool)) -> String {
    let mut text = format!("name = 'any'\ntask = '{task}'\nsuppression = '{suppression}'\n");
    if tables.0 {
        text += "[grid]\nstrides = [8, 16, 32]\n";
        let has = |column: usize| outputs.iter().any(|(_, columns, _)| columns.contains(&column));
        match (has(21), has(20)) {
            _ if has(28) => {
                text += "anchors = 2\npriors = [[10, 13], [16, 30], [33, 23], [30, 61], [62, 45], [59, 119]]\n";
                text += "scale-x-y = [1.2, 1.1, 1.05]\n";
            }
            (true, _) => text += "anchors = 2\npriors = [16, 32, 64, 128, 256, 512]\n",
            (false, true) => text += "anchors = 2\n",
            _ => {}
        }
    }
    if tables.1 {
        text += "[keypoints]\ncount = 2\nnumbers = 3\n";
    }
    for (i, (dims, columns, whole)) in outputs.iter().enumerate() {
        text += &format!("[[output]]\ndims = [{}]\n", DIMS[*dims]);
        if named {
            text += &format!("name = 'o{i}'\n");
        }
        if *whole {
            text += "type = 'number'\n";
        }
        let columns: Vec<&str> = columns.iter().map(|&column| COLUMNS[column]).collect();
        text += &format!("columns = [{}]\n", columns.join(", "));
    }
    text
}

/// Outputs as such a head reads them, over an input of 32x32.
fn descs_of(head: &HeadFormat, rows: usize, classes: usize, type_of: DType) -> Vec<TensorDesc> {
    let mut found = Vec::new();
    let sizes = ColumnSizes { classes, keypoints: Some(KeypointShape { count: 2, dims: 3 }), coefficients: Some(3) };
    for (i, spec) in head.outputs.iter().enumerate() {
        let columns: usize = spec.columns.iter().filter_map(|column| column.width(&sizes)).sum();
        let anchors = head.sizes.grid.as_ref().map_or(1, |grid| i64::from(grid.anchors));
        let levels: &[(i64, i64)] =
            if spec.dims.contains(&Dim::Cells) { &[(8, 16), (16, 4), (32, 1)] } else { &[(0, 0)] };
        for (stride, cells) in levels {
            let size = |dim: &Dim| match dim {
                Dim::Batch | Dim::One => 1,
                Dim::Rows => rows as i64,
                Dim::Cells => *cells * anchors,
                Dim::Columns => columns as i64,
                Dim::Prototypes => 3,
                Dim::Height => 8,
                Dim::Width => 4,
            };
            let dims: Vec<i64> = spec.dims.iter().map(size).collect();
            let name = match (spec.name, stride) {
                ("", _) => format!("x{i}-{cells}"),
                (name, 0) => name.to_string(),
                (name, stride) => format!("{name}_{stride}"),
            };
            let dtype = if spec.class == ElementClass::Float { type_of } else { DType::I32 };
            found.push(desc(&name, dtype, &dims));
        }
    }
    found
}

/// Whether all numbers of a view lie in its output.
fn lies_inside(view: &TensorView, outputs: &[&Tensor], rows: usize) -> bool {
    let count: i64 = outputs[view.output].desc().dims.iter().product();
    let last =
        view.first + rows.saturating_sub(1) * view.row_stride + view.count.saturating_sub(1) * view.column_stride;
    last < count as usize
}

#[test]
fn never_reads_outside() {
    let strategy = (
        outputs(),
        prop::sample::select(vec!["none", "iou", "rotated-iou"]),
        any::<bool>(),
        any::<(bool, bool)>(),
        prop::sample::select(vec![1usize, 5, 21, 42, 42]),
        1..4usize,
        any::<bool>(),
        prop::collection::vec(any::<u8>(), 64),
    );
    let (decoded, by_cells) = (Cell::new(0), Cell::new(0));
    let config = cases(6_000);
    let cases = config.cases;
    let outcome = TestRunner::new(config).run(
        &strategy,
        |((outputs, task), suppression, named, tables, rows, classes, half, bytes)| {
            let tables = (tables.0, tables.1 && task == "pose");
            let text = text(&outputs, task, suppression, named, tables);
            let Ok(head) = layout_file::of_text("any", &text) else { return Ok(()) };
            let descs = descs_of(head, rows, classes, if half { DType::F16 } else { DType::F32 });
            let Ok(decoder) = Decoder::new(Some(head), &descs, &small()) else { return Ok(()) };
            decoded.set(decoded.get() + 1);
            let tensor = |desc: &TensorDesc| {
                let fill = |block: &mut [u8]| {
                    block.iter_mut().zip(bytes.iter().cycle()).for_each(|(to, from)| *to = *from);
                    Ok::<_, Error>(())
                };
                Tensor::fill(&Pool::default(), desc.clone(), fill).unwrap()
            };
            let tensors: Vec<Tensor> = descs.iter().map(tensor).collect();
            let mut out = Vec::new();
            decoder.decode_counted(&tensors, &Thresholds::uniform(0.0), &mut out).unwrap();
            let mut values = Vec::new();
            if decoder.has_cell_keypoints() {
                decoder.cell_keypoints(&tensors, &out, &mut values).unwrap();
                prop_assert_eq!(values.len(), out.len() * 6);
                by_cells.set(by_cells.get() + u32::from(!out.is_empty()));
            }
            for detection in out {
                prop_assert!(detection.bbox.is_valid() && detection.score.is_finite() && detection.angle.is_finite());
                prop_assert!((detection.class as usize) < decoder.classes().unwrap_or(usize::MAX));
            }
            if !head.has_boxes() || head.has_levels() {
                return Ok(());
            }
            let picked = decoder.pick(&tensors).unwrap();
            let of_head = |is_it: fn(Column) -> bool| decoder.head().view(is_it);
            let [boxes, scores, ids] = ID_COLUMNS;
            let all = [boxes, scores, ids, Column::are_scores, |column| column == Column::Objectness];
            let views = all.into_iter().filter_map(of_head).chain(decoder.angles()).chain(decoder.gather_view());
            for view in views {
                prop_assert!(lies_inside(&view, &picked, rows), "{view:?} {text}");
            }
            Ok(())
        },
    );
    outcome.unwrap();
    // Of few cases, such as valgrind and QEMU run, there may be none.
    assert!(by_cells.get() >= cases / 1_000, "the points of only {} files were read", by_cells.get());
    assert!(decoded.get() >= cases / 60, "only {} files were accepted, and fitted", decoded.get());
}
