// SPDX-License-Identifier: MPL-2.0
//! Maps of anchors, as darknet's YOLOv3 and YOLOv4 have them: the arithmetic by hand, and the orders in which exporters leave them.

use super::*;

/// Two anchors for each cell of two strides.
const MAPS: &str = r#"
name = "maps"
task = "detect"
suppression = "iou"
[grid]
strides = [16, 32]
anchors = 2
priors = [[8, 16], [16, 8], [32, 32], [24, 20]]
scale-x-y = [1.5, 1]
[[output]]
dims = ["batch", "columns", "cells"]
columns = [{ column = "box", encoding = "prior-logits" }, "objectness-logit", "classes"]
"#;

/// Numbers of a row: a box, objectness and two classes.
const NUMBERS: usize = 7;

fn maps() -> &'static HeadFormat {
    HeadFormat::of_name(MAPS).unwrap()
}

/// The same with all numbers of a cell side by side.
fn rows_of_cells() -> &'static HeadFormat {
    HeadFormat::of_name(&MAPS.replace(r#""columns", "cells""#, r#""cells", "columns""#)).unwrap()
}

/// The numbers of each cell of a square of so many a side, those of one anchor after the other; nothing passes but what is given.
fn cells(side: usize, given: &[(usize, usize, [f32; NUMBERS])]) -> Vec<f32> {
    let mut values = vec![-20.0; side * side * 2 * NUMBERS];
    for (cell, anchor, numbers) in given {
        values[(cell * 2 + anchor) * NUMBERS..][..NUMBERS].copy_from_slice(numbers);
    }
    values
}

/// A map of each number.
fn as_maps(values: &[f32]) -> Vec<f32> {
    let columns = 2 * NUMBERS;
    (0..columns).flat_map(|column| values.iter().skip(column).step_by(columns)).copied().collect()
}

fn found(head: &'static HeadFormat, tensors: &[Tensor]) -> Vec<Candidate> {
    let decoder = Decoder::new(Some(head), &descs(tensors), &at(32)).unwrap();
    assert_eq!((decoder.classes(), decoder.rows()), (Some(2), Some(10)));
    let mut out = Vec::new();
    assert_eq!(decoder.decode_counted(tensors, &Thresholds::uniform(0.2), &mut out).unwrap(), Lost::default());
    out
}

#[test]
fn maps_of_anchors_come_in_several_orders() {
    let [log_3, log_half] = [3f32.ln(), 0.5f32.ln()];
    // A logit of 0 is a score of 0.5, and one of log 3 of 0.75. Of the first stride centres are stretched by 1.5: 0.75 is 0.875.
    let fine = cells(2, &[(1, 1, [log_3, 0.0, 0.0, 0.0, 0.0, -20.0, log_3])]);
    let coarse = cells(1, &[(0, 0, [0.0, 0.0, log_half, 0.0, 0.0, 0.0, -20.0])]);
    let wanted = [candidate(3, 1, 0.375, [22.0, 4.0, 38.0, 12.0]), candidate(8, 0, 0.25, [8.0, 0.0, 24.0, 32.0])];
    let (fine_maps, coarse_maps) = (as_maps(&fine), as_maps(&coarse));
    for (head, dims, values) in [
        (maps(), [&[1, 14, 2, 2][..], &[1, 14, 1, 1][..]], [&fine_maps, &coarse_maps]),
        (maps(), [&[1, 2, 7, 2, 2][..], &[1, 2, 7, 1, 1][..]], [&fine_maps, &coarse_maps]),
        (maps(), [&[1, 14, 4][..], &[1, 14, 1][..]], [&fine_maps, &coarse_maps]),
        (rows_of_cells(), [&[1, 2, 2, 14][..], &[1, 1, 1, 14][..]], [&fine, &coarse]),
        (rows_of_cells(), [&[1, 2, 2, 2, 7][..], &[1, 1, 1, 2, 7][..]], [&fine, &coarse]),
        (rows_of_cells(), [&[1, 4, 14][..], &[1, 1, 14][..]], [&fine, &coarse]),
        (rows_of_cells(), [&[1, 8, 7][..], &[1, 2, 7][..]], [&fine, &coarse]),
    ] {
        for make in [f32s as MakeTensor, f16s] {
            let tensors = [("a", 0), ("b", 1)].map(|(name, place)| make(name, dims[place], values[place]));
            let found = found(head, &tensors);
            let is_near = |(found, wanted): (&Candidate, &Candidate)| {
                let sides = |of: &Candidate| [of.bbox.x1, of.bbox.y1, of.bbox.x2, of.bbox.y2, of.score * 32.0];
                (found.row, found.class) == (wanted.row, wanted.class)
                    && sides(found).iter().zip(sides(wanted)).all(|(found, wanted)| (found - wanted).abs() < 0.02)
            };
            assert!(found.len() == 2 && found.iter().zip(&wanted).all(is_near), "{dims:?}: {found:?}");
            // Of f32 nothing is rounded here.
            assert!(found == wanted || tensors[0].desc().dtype == DType::F16, "{dims:?}: {found:?}");
            // The strides tell themselves by how many cells they have.
            let [fine, coarse] = tensors;
            assert_eq!(self::found(head, &[coarse, fine]), found, "{dims:?}");
        }
    }
}

/// Points of a row are found among the numbers of all anchors of its cell.
#[test]
fn points_of_anchors_lie_in_maps() {
    let text =
        MAPS.replace("\"detect\"", "\"pose\"").replace("[[output]]", "[keypoints]\ncount = 1\nnumbers = 2\n[[output]]");
    let text = text.replace("\"classes\"", "\"cell-keypoints\"");
    let text = text.replace("\"objectness-logit\",", "\"objectness-logit\", { column = \"classes\", count = 1 },");
    let columns = 2 * (NUMBERS + 1);
    let values =
        |side: usize| (0..side * side * columns).map(|at| (at * 37 % 64) as f32 / 16.0 - 1.5).collect::<Vec<f32>>();
    let read = |text: &str, are_maps: bool| {
        let head = HeadFormat::of_name(text).unwrap();
        let tensors = [2usize, 1].map(|side| {
            let (cells, count) = ((side * side) as i64, columns as i64);
            let values = values(side);
            match are_maps {
                true => {
                    let maps = (0..columns).flat_map(|column| values.iter().skip(column).step_by(columns)).copied();
                    f32s(&format!("o{side}"), &[1, count, side as i64, side as i64], &maps.collect::<Vec<f32>>())
                }
                false => f32s(&format!("o{side}"), &[1, cells * 2, count / 2], &values),
            }
        });
        let decoder = Decoder::new(Some(head), &descs(&tensors), &at(32)).unwrap();
        let (mut out, mut points) = (Vec::new(), Vec::new());
        decoder.decode(&tensors, &Thresholds::uniform(0.0), &mut out).unwrap();
        decoder.cell_keypoints(&tensors, &out, &mut points).unwrap();
        (out, points)
    };
    let (found, points) = read(&text, true);
    assert_eq!((found.len(), points.len()), (10, 20));
    assert_eq!(read(&text.replace(r#""columns", "cells""#, r#""cells", "columns""#), false), (found, points));
}
