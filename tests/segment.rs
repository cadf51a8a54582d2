// SPDX-License-Identifier: MPL-2.0
//! Masks: their pixels, their boxes, their position on the frame, and where they can be read.

use std::path::Path;

use gst::meta::CustomMeta;
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::Candidate;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::image::geometry::{BBox, Letterbox, Rect, ResizeMode};
use gsttrt_core::image::masks::{Mask, Masks, PrototypeShape, Prototypes};
use gsttrt_core::session::{Detector, PostprocessOptions, SessionOptions};
use gsttrt_core::tensor::Tensor;
use proptest::prelude::*;

use crate::common::boxes::{GREY, Line, SIDE, drawn, found, grey};
use crate::common::onnx::{F32, Graph};
use crate::common::{launch, path, scratch};

/// Rows of a grid over 64x64.
const CELLS: usize = 84;
/// Prototypes are a quarter as wide and high as the input.
const MASK_SIDE: usize = 16;

/// A row: centre and size of a box, a score for each of two classes, and two coefficients.
type Row = [f32; 8];

/// The first prototype is 1 in the left half and -1 in the right one, the second 1 above and -1 below.
fn prototypes() -> Vec<f32> {
    let half = |at: usize| if at < MASK_SIDE / 2 { 1.0 } else { -1.0 };
    let places = || (0..MASK_SIDE).flat_map(|y| (0..MASK_SIDE).map(move |x| (x, y)));
    places().map(|(x, _)| half(x)).chain(places().map(|(_, y)| half(y))).collect()
}

/// A cat with a mask in its left half; a weaker one that repeats it, whose mask must not be taken; a dog with a mask in
/// its lower half; and one with an empty mask, since its box lies in the right half.
const ROWS: [(usize, Row); 4] = [
    (3, [33.0, 32.0, 32.0, 32.0, 0.7, 0.0, -1.0, 0.0]),
    (40, [32.0, 32.0, 32.0, 32.0, 0.9, 0.1, 1.0, 0.0]),
    (60, [48.0, 16.0, 16.0, 16.0, 0.0, 0.8, 1.0, 0.0]),
    (77, [40.0, 32.0, 16.0, 8.0, 0.0, 0.5, 0.0, -2.0]),
];

fn graph(dims: &[i64], values: &[f32]) -> Graph {
    let side = MASK_SIDE as i64;
    Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", dims, values)
        .constant("output1", &[1, 2, side, side], &prototypes())
        .metadata("task", "segment")
        .metadata("names", "{0: 'cat', 1: 'dog'}")
}

/// Columns, as Ultralytics exports them.
fn plain(folder: &Path, rows: &[(usize, Row)]) -> String {
    let mut values = vec![0.0; 8 * CELLS];
    for (at, row) in rows {
        row.iter().enumerate().for_each(|(column, &value)| values[column * CELLS + at] = value);
    }
    graph(&[1, 8, CELLS as i64], &values).save(&folder.join("plain.onnx"))
}

/// The same, suppressed by the model itself.
fn end_to_end(folder: &Path, rows: &[(usize, Row)]) -> String {
    let mut values = vec![0.0; 8 * 300];
    for (to, (_, [cx, cy, w, h, cat, dog, coefficients @ ..])) in values.chunks_exact_mut(8).zip(rows) {
        let (score, class) = if cat >= dog { (*cat, 0.0) } else { (*dog, 1.0) };
        to[..6].copy_from_slice(&[cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0, score, class]);
        to[6..].copy_from_slice(coefficients);
    }
    graph(&[1, 300, 8], &values).save(&folder.join("end-to-end.onnx"))
}

/// The mask of a structure, and the rectangle of its set pixels.
fn mask(params: &gst::StructureRef) -> Mask {
    let [left, top, width, height] =
        ["mask-x", "mask-y", "mask-width", "mask-height"].map(|name| params.get(name).unwrap());
    let rect = Rect { left, top, right: left + width, bottom: top + height };
    Mask::from_counts(rect, params.get("mask-counts").unwrap()).expect("run lengths of that rectangle")
}

/// The label and mask of each region.
fn regions(buffer: &gst::BufferRef) -> Vec<(String, Mask)> {
    let read = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
        let params = meta.param("mask").expect("a structure called mask");
        (meta.roi_type().to_string(), mask(params))
    };
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(read).collect()
}

/// A label, and a rectangle whose pixels all belong to the object.
fn filled(label: &str, rect: [u32; 4], seen: [u32; 4]) -> (String, Mask) {
    let rect_of = |[left, top, right, bottom]: [u32; 4]| Rect { left, top, right, bottom };
    let (rect, seen) = (rect_of(rect), rect_of(seen));
    let places = (rect.top..rect.bottom).flat_map(|y| (rect.left..rect.right).map(move |x| (x, y)));
    let is_seen = |(x, y)| (seen.left..seen.right).contains(&x) && (seen.top..seen.bottom).contains(&y);
    (label.into(), Mask::of(rect, &places.map(is_seen).collect::<Vec<_>>()))
}

/// The objects kept of [`ROWS`] on a frame as large as the input.
fn expected() -> Vec<(String, Mask)> {
    vec![filled("cat", [16, 16, 48, 48], [16, 16, 32, 48]), filled("dog", [32, 28, 48, 36], [32, 32, 48, 36])]
}

#[test]
fn masks_belong_to_the_boxes_that_are_kept() {
    let folder = scratch("segment-kept");
    for model in [plain(&folder, &ROWS), end_to_end(&folder, &ROWS[1..])] {
        let mut line = Line::new(&model, "draw=false post-messages=true");
        let buffer = line.push(grey(SIDE * SIDE * 3));
        assert_eq!(regions(&buffer), expected(), "{model}");
        assert_eq!(found(&buffer).len(), 2, "an object without a pixel is none");
        let messages = line.messages();
        let objects = messages[0].get::<gst::Array>("detections").unwrap();
        let found: Vec<_> = objects
            .iter()
            .map(|object| {
                let object = object.get::<gst::Structure>().unwrap();
                (object.get("label").unwrap(), mask(&object))
            })
            .collect();
        assert_eq!(found, expected(), "{model}");
        let text = messages[0].to_string();
        assert_eq!(text.parse::<gst::Structure>().unwrap(), messages[0], "its text can be read back");
    }
}

#[test]
fn masks_follow_the_letterbox() {
    // Twice as wide as the input: 32 of its rows are the frame, below 16 rows of padding.
    let mut line = Line::new(&plain(&scratch("segment-letterbox"), &ROWS[1..2]), "draw=false");
    line.caps("RGB", 128, 64);
    let buffer = line.push(grey(128 * 64 * 3));
    assert_eq!(regions(&buffer), [filled("cat", [32, 0, 96, 64], [32, 0, 64, 64])]);
    // Half as wide: the frame lies between 16 columns of padding on either side.
    line.caps("RGB", 32, 64);
    let buffer = line.push(grey(32 * 64 * 3));
    assert_eq!(regions(&buffer), [filled("cat", [0, 16, 32, 48], [0, 16, 16, 48])]);
}

#[test]
fn without_objects_there_are_no_masks() {
    let folder = scratch("segment-none");
    for rows in [&[][..], &ROWS[2..3]] {
        let mut line = Line::new(&plain(&folder, rows), "draw=true");
        assert_eq!(regions(&line.push(grey(SIDE * SIDE * 3))), []);
    }
}

#[test]
fn many_objects_that_fill_the_frame() {
    let rows: Vec<(usize, Row)> = (0..300).map(|at| (at, [32.0, 32.0, 200.0, 200.0, 0.9, 0.0, 1.0, 0.0])).collect();
    let model = end_to_end(&scratch("segment-many"), &rows);
    let found = regions(&Line::new(&model, "draw=true").push(grey(SIDE * SIDE * 3)));
    assert!(found == vec![filled("cat", [0, 0, 64, 64], [0, 0, 32, 64]); 300], "{} objects", found.len());
}

/// A coefficient that is no number has no pixel above 0, nor has a box without an area.
#[test]
fn objects_without_a_mask_or_an_area_are_none() {
    let folder = scratch("segment-odd");
    let object = |size: [f32; 2], first: f32| [32.0, 32.0, size[0], size[1], 0.9, 0.0, first, 0.0];
    let rows = [
        (0, object([0.0, 16.0], 1.0)),
        (1, object([16.0, 0.0], 1.0)),
        (2, object([16.0, -16.0], 1.0)),
        (3, object([16.0, 16.0], f32::NAN)),
    ];
    for model in [plain(&folder, &rows), end_to_end(&folder, &rows)] {
        let buffer = Line::new(&model, "draw=true").push(grey(SIDE * SIDE * 3));
        assert_eq!(regions(&buffer), [], "{model}");
        assert!(buffer.map_readable().unwrap().iter().all(|&byte| byte == GREY));
    }
}

/// The only pixel of the prototypes covers the frame: masks are as large as their boxes, or empty.
#[test]
fn prototypes_of_one_pixel() {
    let mut values = vec![0.0; 8 * CELLS];
    for (at, row) in &ROWS {
        row.iter().enumerate().for_each(|(column, &value)| values[column * CELLS + at] = value);
    }
    let model = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, 8, CELLS as i64], &values)
        .constant("output1", &[1, 2, 1, 1], &[1.0, 1.0])
        .metadata("task", "segment")
        .metadata("names", "{0: 'cat', 1: 'dog'}")
        .save(&scratch("segment-one-pixel").join("model.onnx"));
    let found = regions(&Line::new(&model, "draw=true").push(grey(SIDE * SIDE * 3)));
    // The last of the rows has the sum -2.
    let whole = |label: &str, rect: [u32; 4]| filled(label, rect, rect);
    assert_eq!(found, [whole("cat", [16, 16, 48, 48]), whole("dog", [40, 8, 56, 24])]);
}

#[test]
fn masks_are_given_or_only_drawn() {
    let model = plain(&scratch("segment-given"), &ROWS);
    let mut line = Line::new(&model, "draw-labels=false post-messages=true mask-output=none");
    let picture = |buffer: &gst::BufferRef| buffer.map_readable().unwrap().to_vec();
    let hidden = line.push(grey(SIDE * SIDE * 3));
    assert_eq!(found(&hidden).len(), 2, "an object without a pixel is none, whatever is given");
    let mut regions_without = hidden.iter_meta::<VideoRegionOfInterestMeta>();
    assert!(regions_without.all(|region| region.param("mask").is_none()));
    let message = line.messages().remove(0).to_string();
    assert!(!message.contains("mask-"), "{message}");
    line.nms().set_property_from_str("mask-output", "objects");
    let given = line.push(grey(SIDE * SIDE * 3));
    assert_eq!(regions(&given), expected());
    assert!(picture(&given) == picture(&hidden), "both are drawn");
    // Only masks are drawn inside the outlines.
    let inside = |picture: &[u8], x: u32, y: u32| picture[((y * SIDE + x) * 3) as usize..][..3].to_vec();
    let half = picture(&given);
    assert_ne!(inside(&half, 24, 24), [GREY; 3], "the left half of the cat");
    assert_eq!(inside(&half, 40, 20), [GREY; 3], "its right half");
    line.nms().set_property("mask-alpha", 0.0f32);
    let none = picture(&line.push(grey(SIDE * SIDE * 3)));
    assert_eq!(inside(&none, 24, 24), [GREY; 3]);
    line.nms().set_property("mask-alpha", 1.0f32);
    let full = picture(&line.push(grey(SIDE * SIDE * 3)));
    let (half, full) = (inside(&half, 24, 24), inside(&full, 24, 24));
    let outline = inside(&none, 16, 16);
    assert_eq!(full, outline, "the colour of the class");
    for ((half, full), grey) in half.into_iter().zip(full).zip([GREY; 3]) {
        assert!(half.abs_diff(grey).abs_diff(half.abs_diff(full)) <= 1, "{half} is between {full} and {grey}");
    }
}

/// The map of a frame: its values, and the label, class and number of pixels of each object.
fn map(buffer: &gst::BufferRef) -> (Vec<u8>, Vec<(String, u32, f64)>) {
    let meta = CustomMeta::from_buffer(buffer, "GstTrtMapMeta").unwrap();
    let maps = meta.structure().get::<gst::Array>("maps").unwrap();
    let map = maps[0].get::<gst::Structure>().unwrap();
    assert_eq!((maps.len(), map.get::<&str>("kind").unwrap()), (1, "objects"));
    let picture = map.get::<gst::Buffer>("picture").unwrap();
    let region = |value: &gst::glib::SendValue| {
        let region = value.get::<gst::Structure>().unwrap();
        let share: f64 = region.get("share").unwrap();
        (region.get("label").unwrap(), region.get("class-id").unwrap(), share * f64::from(SIDE * SIDE))
    };
    let regions = map.get::<gst::Array>("regions").unwrap_or_default();
    (picture.map_readable().unwrap().to_vec(), regions.iter().map(region).collect())
}

#[test]
fn one_map_has_all_objects() {
    let folder = scratch("segment-map");
    let mut line = Line::new(&plain(&folder, &ROWS), "draw=false mask-output=map post-messages=true");
    let buffer = line.push(grey(SIDE * SIDE * 3));
    assert!(buffer.iter_meta::<VideoRegionOfInterestMeta>().all(|region| region.param("mask").is_none()));
    let object = |at: u32| {
        let (x, y) = (at % SIDE, at / SIDE);
        expected().iter().position(|(_, mask)| mask.contains(x, y)).map_or(0, |object| object as u8 + 1)
    };
    let (values, regions) = map(&buffer);
    assert!(values == (0..SIDE * SIDE).map(object).collect::<Vec<_>>());
    assert_eq!(regions, [("cat".to_string(), 0, 512.0), ("dog".to_string(), 1, 64.0)]);
    let message = line.messages().remove(0);
    assert_eq!(message.get::<gst::Structure>("map").unwrap().get::<&str>("kind").unwrap(), "objects");
    assert!(!message.to_string().contains("mask-"), "{message}");
    line.nms().set_property_from_str("mask-output", "objects");
    let buffer = line.push(grey(SIDE * SIDE * 3));
    assert!(CustomMeta::from_buffer(&buffer, "GstTrtMapMeta").is_err());
    assert_eq!(self::regions(&buffer), expected());
    // Without objects, and with objects above each other: the better one.
    let mut line = Line::new(&plain(&folder, &[]), "mask-output=map");
    assert_eq!(map(&line.push(grey(SIDE * SIDE * 3))), (vec![0; 64 * 64], Vec::new()));
    let rows = [(40, ROWS[1].1), (60, [32.0, 32.0, 64.0, 64.0, 0.0, 0.5, 1.0, 0.0])];
    let mut line = Line::new(&plain(&folder, &rows), "mask-output=map");
    let (values, regions) = map(&line.push(grey(SIDE * SIDE * 3)));
    assert_eq!(regions, [("cat".to_string(), 0, 512.0), ("dog".to_string(), 1, 32.0 * 64.0 - 512.0)]);
    assert_eq!([0, 32 * 64 + 20, 32 * 64 + 40].map(|at| values[at]), [2, 1, 0]);
}

#[test]
fn masks_of_skipped_frames_are_those_of_the_last() {
    let model = plain(&scratch("segment-held"), &ROWS);
    for (properties, has_masks) in [("mask-output=none", false), ("mask-output=objects", true)] {
        let infer = format!("trtpreprocess ! trtinfer model-file={model} interval=3");
        let mut line = Line::parse(&format!("{infer} ! trtnms draw-labels=false {properties}"));
        let drawn: Vec<Vec<u8>> = (0..6)
            .map(|frame| {
                let buffer = line.push(grey(SIDE * SIDE * 3));
                assert_eq!(found(&buffer).len(), 2);
                for region in buffer.iter_meta::<VideoRegionOfInterestMeta>() {
                    let is_held = region.param("detection").unwrap().get::<bool>("held").is_ok();
                    assert_eq!((is_held, region.param("mask").is_some()), (frame % 3 != 0, has_masks));
                }
                buffer.map_readable().unwrap().to_vec()
            })
            .collect();
        let at = (24 * SIDE + 24) as usize * 3;
        assert_ne!(drawn[0][at..at + 3], [GREY; 3], "the left half of the cat");
        assert!(drawn.iter().all(|picture| *picture == drawn[0]), "{properties}");
        // Frames that hold nothing show nothing.
        let mut line = Line::parse(&format!("{infer} ! trtnms hold-detections=false {properties}"));
        line.push(grey(SIDE * SIDE * 3));
        let buffer = line.push(grey(SIDE * SIDE * 3));
        assert!(buffer.map_readable().unwrap().iter().all(|&sample| sample == GREY), "{properties}");
    }
}

#[test]
fn masks_look_the_same_whoever_draws_them() {
    crate::common::init();
    let model = plain(&scratch("segment-drawn"), &ROWS);
    let infer = format!("trtpreprocess ! trtinfer model-file={model}");
    for format in PixelFormat::ALL.map(PixelFormat::name) {
        for (style, size) in [("", (64, 64)), ("mask-alpha=0.8 draw-labels=false", (130, 51))] {
            let drawn = |elements: String| drawn(&elements, format, size);
            let fused = drawn(format!("{infer} ! trtnms draw=true {style}"));
            let apart = drawn(format!("{infer} ! trtnms draw=false ! trtoverlay {style}"));
            let boxes = drawn(format!("{infer} ! trtnms draw=false ! trtoverlay {style} mask-alpha=0"));
            assert!(fused == apart && apart != boxes, "{format} {style}");
            let map = drawn(format!("{infer} ! trtnms draw=false mask-output=map ! trtoverlay {style}"));
            assert!(fused == map, "{format} {style}");
        }
    }
}

#[test]
fn outputs_that_do_not_fit_are_an_error() {
    let folder = scratch("segment-outputs");
    let input = || Graph::new().input("images", F32, &["1", "3", "64", "64"]).metadata("task", "segment");
    let model = |dims: &[i64], prototypes: Option<&[i64]>| {
        let zeros = |dims: &[i64]| vec![0.0; dims.iter().product::<i64>() as usize];
        let mut graph = input().metadata("names", "{0: 'cat', 1: 'dog'}").constant("output0", dims, &zeros(dims));
        if let Some(dims) = prototypes {
            graph = graph.constant("output1", dims, &zeros(dims));
        }
        graph.save(&folder.join("model.onnx"))
    };
    for (dims, prototypes, parts) in [
        (&[1, 8, 84][..], None, &["No layout fits", "output0 f32 1x8x84", "without prototypes of masks"][..]),
        (&[1, 9, 84], Some(&[1, 2, 16, 16][..]), &["3 classes and 2 mask coefficients as segment", "2 labels"]),
        (&[1, 8, 84], Some(&[1, 1, 16, 16]), &["3 classes and 1 mask coefficient", "2 labels"]),
        (&[1, 8, 84], Some(&[1, 32, 16, 16]), &["No layout fits", "output1 f32 1x32x16x16 as the prototypes"]),
        (&[1, 300, 8], Some(&[1, 3, 16, 16]), &["No layout fits", "output1 f32 1x3x16x16 as the prototypes"]),
        (&[1, 300, 8], Some(&[1, 2, 16]), &["No layout fits", "without prototypes of masks"]),
    ] {
        let model = model(dims, prototypes);
        let outcome = launch(&format!(
            "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
             ! trtinfer model-file={model} ! trtnms ! fakesink"
        ));
        let text = outcome.error_text();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn a_detector_gives_masks() {
    let pixels = vec![77; (SIDE * SIDE * 3) as usize];
    let planes = [Plane { data: &pixels[..], stride: SIDE as usize * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width: SIDE as usize, height: SIDE as usize, planes };
    let model = plain(&scratch("segment-detector"), &ROWS);
    let mut detector = Detector::open(model, &SessionOptions::default(), PostprocessOptions::default()).unwrap();
    let objects = detector.detect(&frame, Colorimetry::default()).unwrap();
    let masks: Vec<_> = objects.into_iter().map(|object| (object.label, object.mask.unwrap())).collect();
    assert_eq!(masks, expected());
    assert_eq!(masks[0].1.area(), 16 * 32);
}

/// tests/gold/masks.py computed these.
#[test]
fn masks_are_those_of_the_formula() {
    let folder = path("tests/gold/masks");
    let index = std::fs::read_to_string(format!("{folder}/index.txt")).unwrap();
    for case in index.lines() {
        let (name, numbers) = case.split_once(' ').unwrap();
        let numbers: Vec<usize> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let &[count, width, height, input_width, input_height, objects] = &numbers[..] else { panic!("{case}") };
        let read = |kind: &str| std::fs::read(format!("{folder}/{name}.{kind}")).unwrap();
        let floats = |kind: &str| -> Vec<f32> {
            read(kind).as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
        };
        let input = (input_width as u32, input_height as u32);
        let dims = [1, count as i64, height as i64, width as i64];
        let prototypes = Tensor::from_slice("output1", &dims, &floats("prototypes"));
        let prototypes = Prototypes::new(PrototypeShape { count, width, height }, &prototypes).unwrap();
        let (mut boxes, mut coefficients) = (Vec::new(), Vec::new());
        for row in floats("objects").chunks_exact(4 + count) {
            let bbox = BBox::new(row[0], row[1], row[2], row[3]);
            boxes.push(Candidate { bbox, score: 0.5, class: 0, row: 0, angle: 0.0 });
            coefficients.extend_from_slice(&row[4..]);
        }
        let mut masks = Masks::default();
        masks.find(&prototypes, &coefficients, &boxes, input);
        let mut instances =
            gsttrt_core::postprocess::Instances { masks: Some(masks.clone()), boxes, ..Default::default() };
        instances.map_to_frame(&Letterbox::new(input, input, ResizeMode::Letterbox));
        let gold = read("masks");
        let mut kept = 0;
        for (object, gold) in gold.chunks_exact(input_width * input_height).enumerate() {
            if masks.is_empty(object) {
                assert!(!gold.contains(&1), "{case}: {object}");
                continue;
            }
            let found = instances.mask(kept).unwrap();
            kept += 1;
            let pixel = |at: usize| found.contains((at % input_width) as u32, (at / input_width) as u32);
            let wrong = (0..gold.len()).filter(|&at| gold[at] < 2 && pixel(at) != (gold[at] == 1)).count();
            assert_eq!(wrong, 0, "{case}: {object}");
        }
        assert_eq!((kept, instances.len()), (instances.len(), kept), "{objects}");
    }
}

proptest! {
    #![proptest_config(crate::common::cases(60))]

    /// For any rows, drawn or not: a mask for each kept object, inside its box.
    #[test]
    fn any_rows(
        rows in prop::collection::vec(prop::array::uniform8(prop_oneof![
            6 => 0.0..64.0f32, 3 => -1.0..1.0f32, 1 => proptest::num::f32::ANY]), 0..CELLS),
    ) {
        let rows: Vec<(usize, Row)> = rows.into_iter().enumerate().collect();
        let mut line = Line::new(&plain(&scratch("segment-any"), &rows), "draw=true score-threshold=0.2");
        let buffer = line.push(grey(SIDE * SIDE * 3));
        for (region, (_, mask)) in found(&buffer).iter().zip(regions(&buffer)) {
            prop_assert!(mask.area() > 0);
            let [left, top, right, bottom] = region.corners.map(|share| share * f64::from(SIDE));
            let Rect { left: x, top: y, right: x2, bottom: y2 } = mask.rect();
            prop_assert!(f64::from(x) >= left && f64::from(y) >= top, "{:?} {:?}", region, mask.rect());
            prop_assert!(f64::from(x2) <= right + 1.0 && f64::from(y2) <= bottom + 1.0, "{:?} {:?}", region, mask.rect());
        }
    }
}
