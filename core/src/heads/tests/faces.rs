// SPDX-License-Identifier: MPL-2.0
//! Heads for faces: which outputs are which, points that count from cells, and what is nearly such a head.

use super::*;

/// As InsightFace's det_10g.onnx over 640x640: by part, without the batch, under names that say nothing.
const SCRFD: [&str; 9] = [
    "448 f32 12800x1",
    "471 f32 3200x1",
    "494 f32 800x1",
    "451 f32 12800x4",
    "474 f32 3200x4",
    "497 f32 800x4",
    "454 f32 12800x10",
    "477 f32 3200x10",
    "500 f32 800x10",
];

/// As face_detection_yunet_2023mar.onnx of OpenCV's zoo.
const YUNET: [&str; 12] = [
    "cls_8 f32 1x6400x1",
    "cls_16 f32 1x1600x1",
    "cls_32 f32 1x400x1",
    "obj_8 f32 1x6400x1",
    "obj_16 f32 1x1600x1",
    "obj_32 f32 1x400x1",
    "bbox_8 f32 1x6400x4",
    "bbox_16 f32 1x1600x4",
    "bbox_32 f32 1x400x4",
    "kps_8 f32 1x6400x10",
    "kps_16 f32 1x1600x10",
    "kps_32 f32 1x400x10",
];

/// As the export of Pytorch_Retinaface, whose first output alone has a name.
const RETINAFACE: [&str; 3] = ["output0 f32 1x16800x4", "593 f32 1x16800x2", "592 f32 1x16800x10"];

fn changed(outputs: &[&'static str], from: &str, to: &str) -> Vec<String> {
    outputs.iter().map(|output| output.replace(from, to)).collect()
}

fn of(outputs: &[String], hints: &ModelHints) -> Result<&'static HeadFormat, Error> {
    recognise(None, &model(&outputs.iter().map(String::as_str).collect::<Vec<_>>()), hints)
}

#[test]
fn faces_are_recognised() {
    let batched: Vec<String> = SCRFD.iter().map(|output| output.replace("f32 ", "f32 1x")).collect();
    let mut turned: Vec<String> = SCRFD.iter().map(|output| output.to_string()).collect();
    turned.reverse();
    let plain: Vec<String> = SCRFD[..6].iter().map(|output| output.to_string()).collect();
    let open = SCRFD.iter().map(|output| {
        let (name, columns) = (output.split(' ').next().unwrap(), output.rsplit('x').next().unwrap());
        format!("{name} f32 ?x{columns}")
    });
    let retina = || changed(&RETINAFACE, "", "");
    let mut mixed = retina();
    mixed.rotate_left(1);
    let table: [(&'static HeadFormat, Vec<String>); 10] = [
        (&scrfd::HEAD, changed(&SCRFD, "x1", "x1")),
        (&scrfd::HEAD, batched),
        (&scrfd::HEAD, turned),
        (&scrfd::HEAD, open.collect()),
        (&scrfd::HEAD, changed(&SCRFD, "f32", "f16")),
        (&scrfd_boxes::HEAD, plain),
        (&yunet::HEAD, changed(&YUNET, "f32", "f32")),
        (&retinaface::HEAD, changed(&RETINAFACE, "f32", "f32")),
        (&retinaface::HEAD, mixed),
        (&retinaface::HEAD, changed(&RETINAFACE, "1x16800", "?x16800")),
    ];
    for (layout, outputs) in table {
        for hints in [at(640), labelled(1, 640)] {
            assert_eq!(of(&outputs, &hints), Ok(layout), "{outputs:?}");
        }
        assert!(of(&outputs, &labelled(80, 640)).is_err(), "a model for 80 classes finds no faces");
    }
}

#[test]
fn what_is_nearly_a_face_detector_is_none() {
    for outputs in [
        changed(&SCRFD, "x10", "x8"),  // four points
        changed(&SCRFD, "x10", "x15"), // each with a third number
        changed(&SCRFD, "12800x1", "12800x2"),
        changed(&SCRFD, "800x", "801x"), // of another grid
        changed(&SCRFD, "f32", "i64"),
        changed(&SCRFD[..8], "", ""), // one is missing
        changed(
            &["448 f32 6400x1", "471 f32 1600x1", "494 f32 400x1", "451 f32 6400x4", "474 f32 1600x4", "497 f32 400x4"],
            "",
            "",
        ),
        changed(&YUNET, "obj_", "objectness_"), // names that are not OpenCV's
        changed(&YUNET, "x4", "x5"),
        changed(&YUNET[..9], "", ""),
        changed(&RETINAFACE, "x2", "x3"), // a third class
        changed(&RETINAFACE, "x10", "x8"),
        changed(&RETINAFACE, "16800", "25200"), // three prior boxes for each cell
        changed(&RETINAFACE, "592 f32 1x16800", "592 f32 1x8400"),
    ] {
        let found = of(&outputs, &at(640));
        let is_of_faces = |head: &&HeadFormat| ["scrfd", "scrfd-boxes", "yunet", "retinaface"].contains(&head.name);
        assert!(!found.as_ref().is_ok_and(is_of_faces), "{outputs:?} {found:?}");
    }
    assert!(of(&changed(&SCRFD, "", ""), &at(320)).is_err(), "for an input of another size");
    assert!(of(&changed(&RETINAFACE, "", ""), &at(320)).is_err());
}

/// Others keep their layout.
#[test]
fn other_heads_by_stride_and_others_with_boxes_apart_stay_what_they_are() {
    let nas = changed(&["904 f32 1x8400x4", "913 f32 1x8400x80"], "", "");
    assert_eq!(of(&nas, &at(640)), Ok(&yolo_nas::HEAD));
    let logits = changed(&["904 f32 1x300x4", "913 f32 1x300x2", "aux f32 1x300x10"], "", "");
    assert!(!of(&logits, &sampling(at(640))).is_ok_and(|head| head == &retinaface::HEAD));
}

/// Points that lie where the gold case says, in pixels.
#[test]
fn points_count_from_the_cell_or_the_prior_box() {
    let half: f32 = 12.0 + 0.5 * 0.1 * 32.0;
    for make in [f32s as MakeTensor, f16s] {
        for (format, fill, wanted) in [
            (&scrfd::HEAD, None, vec![24.0, 8.0]),
            (&yunet::HEAD, None, vec![12.0, 12.0, 8.0, 8.0]),
            (&retinaface::HEAD, Some(0.5f32), vec![half + 8.0, half]),
        ] {
            let (mut tensors, found) = (format.gold)(make);
            if let Some(value) = fill {
                tensors[2] = rows(make, 42, &[(13, &[value; 10])]);
            }
            let decoder = Decoder::new(Some(format), &descs(&tensors), &small()).unwrap();
            assert!(decoder.has_cell_keypoints() && !decoder.format().is_for_host());
            let mut values = vec![7.0];
            decoder.cell_keypoints(&tensors, &found, &mut values).unwrap();
            let wanted: Vec<f32> = wanted.chunks(2).flat_map(|point| point.repeat(5)).collect();
            assert_eq!(values, wanted, "{format}");
        }
    }
}

/// A score that is not a number passes nowhere, and is counted.
#[test]
fn parts_of_a_score_that_are_not_finite_are_counted() {
    let count = |part: usize, value: f32| {
        let (mut tensors, _) = (yunet::HEAD.gold)(f32s);
        let desc = tensors[part].desc().clone();
        let size = desc.dims.iter().product::<i64>() as usize;
        tensors[part] = f32s(&desc.name, &desc.dims, &vec![value; size]);
        let decoder = Decoder::new(None, &descs(&tensors), &small()).unwrap();
        let mut out = Vec::new();
        let lost = decoder.decode_counted(&tensors, &Thresholds::uniform(0.1), &mut out).unwrap().not_finite;
        assert!(out.iter().all(|found| found.score.is_finite() && found.bbox.is_valid()));
        (lost, out.len())
    };
    // Outputs of the coarsest stride come first: one cell, of which a face of two is.
    assert_eq!(count(0, f32::NAN), (1, 1));
    assert_eq!(count(3, f32::INFINITY), (1, 2));
    assert_eq!(count(6, f32::NAN), (1, 1), "a box whose score passes");
    assert_eq!(count(5, -1.0), (0, 1), "held in 0..1");
}

/// SCRFD with five strides has one row for each cell, and is none of the heads of this crate: a file describes it. Its formulas:
/// left = (column − distance) × stride, and so on; points likewise.
#[test]
fn a_file_describes_scrfd_with_five_strides() {
    let text = include_str!("../../../../tests/layouts/scrfd.toml");
    let text = text.replace("strides = [8, 16, 32]\nanchors = 2", "strides = [8, 16, 32, 64, 128]");
    let head = HeadFormat::of_name(&text).unwrap();
    let strides = [8, 16, 32, 64, 128];
    let cells = strides.map(|stride: i64| (256 / stride).pow(2));
    let mut tensors = Vec::new();
    for (part, row) in [("score", &[0.75f32][..]), ("bbox", &[1.0, 0.5, 0.25, 0.75]), ("kps", &[0.5; 10])] {
        for (&count, stride) in cells.iter().zip(strides) {
            let mut values = vec![0.0; count as usize * row.len()];
            // The last cell of the last two strides: (3, 3) of 64 and (1, 1) of 128.
            if stride >= 64 {
                values[(count as usize - 1) * row.len()..].copy_from_slice(row);
            }
            tensors.push(f32s(&format!("{part}{stride}"), &[count, row.len() as i64], &values));
        }
    }
    let decoder = Decoder::new(Some(head), &descs(&tensors), &at(256)).unwrap();
    let mut found = Vec::new();
    decoder.decode(&tensors, &Thresholds::uniform(0.5), &mut found).unwrap();
    let rows = cells.iter().sum::<i64>() as u32;
    let wanted = [(rows - cells[4] as u32 - 1, 3.0, 64.0), (rows - 1, 1.0, 128.0)].map(
        |(row, cell, stride): (u32, f32, f32)| {
            candidate(row, 0, 0.75, [cell - 1.0, cell - 0.5, cell + 0.25, cell + 0.75].map(|edge| edge * stride))
        },
    );
    assert_eq!(found, wanted);
    let mut points = Vec::new();
    decoder.cell_keypoints(&tensors, &found, &mut points).unwrap();
    assert_eq!(points, [[3.5 * 64.0; 10], [1.5 * 128.0; 10]].concat());
}

/// A row counts as one whose objectness lies next to its classes does.
#[test]
fn a_row_is_read_from_the_least_objectness_on() {
    let found = |kind: &str, objectness: f32, score: f32, least: f32| {
        let output = |name: &str, column: &str| {
            format!("[[output]]\nname = \"{name}\"\ndims = [\"batch\", \"cells\", \"columns\"]\ncolumns = [{column}]\n")
        };
        let text = [
            "name = \"own\"\ntask = \"detect\"\nsuppression = \"iou\"\n[grid]\nstrides = [32]\n",
            &output("o", &format!("\"{kind}\"")),
            &output("s", "\"classes\""),
            &output("b", "{ column = \"box\", encoding = \"corner-edges\" }"),
        ];
        let head = HeadFormat::of_name(&text.concat()).unwrap();
        let tensors = [("o_32", 1, objectness), ("s_32", 2, score), ("b_32", 4, 0.5)]
            .map(|(name, count, value)| f32s(name, &[1, 1, count], &vec![value; count as usize]));
        let decoder = Decoder::new(Some(head), &descs(&tensors), &at(32)).unwrap();
        let mut out = Vec::new();
        let lost = decoder.decode_counted(&tensors, &Thresholds::uniform(least), &mut out).unwrap().not_finite;
        (out.first().map(|found| found.score), lost)
    };
    assert_eq!(found("objectness", 0.5, 0.75, 0.25), (Some(0.375), 0));
    assert_eq!(found("objectness", 0.25, 3.0, 0.5), (None, 0), "the product would pass");
    assert_eq!(found("objectness", 0.25, f32::NAN, 0.5), (None, 0), "the scores are not read");
    assert_eq!(found("objectness", 0.75, f32::NAN, 0.5), (None, 1));
    assert_eq!(found("objectness", f32::NAN, 0.75, 0.5), (None, 1));
    assert_eq!(found("root-objectness", 0.25, 9.0, 0.5), (Some(0.5), 0));
    assert_eq!(found("root-objectness", 0.5, f32::NEG_INFINITY, 0.0), (None, 1), "there is no best class");
    assert_eq!(found("objectness-logit", 0.0, 3f32.ln(), 0.25), (Some(0.375), 0));
    assert_eq!(found("objectness-logit", -3.0, f32::NAN, 0.5), (None, 0), "the scores are not read");
    assert_eq!(found("objectness-logit", 0.0, f32::NAN, 0.5), (None, 1));
    assert_eq!(found("objectness-logit", f32::NAN, 0.0, 0.0), (None, 1));
}

/// Of a batch the first picture is read, also where its rows come by stride.
#[test]
fn only_the_first_picture_of_outputs_by_stride_is_read() {
    let (tensors, wanted) = (yunet::HEAD.gold)(f32s);
    let doubled: Vec<Tensor> = tensors
        .iter()
        .map(|tensor| {
            let TensorDesc { name, dims, .. } = tensor.desc();
            let values = tensor.as_slice::<f32>().unwrap();
            f32s(name, &[2, dims[1], dims[2]], &[values, &vec![0.9; values.len()]].concat())
        })
        .collect();
    assert_eq!(decoded(&yunet::HEAD, &doubled, &small(), &Thresholds::uniform(0.2)), wanted);
}
