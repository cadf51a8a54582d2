// SPDX-License-Identifier: MPL-2.0
use half::f16;
use proptest::prelude::*;

use super::*;
use crate::image::geometry::ResizeMode;

const NONE: u16 = PixelMap::NO_CLASS;

fn all(count: u32) -> ClassFilter {
    ClassFilter { count, beyond: true, ..ClassFilter::default() }
}

/// A frame as large as the input.
fn plain(width: u32, height: u32) -> Letterbox {
    Letterbox::new((width, height), (width, height), ResizeMode::Letterbox)
}

fn classes(scores: &[f32], planes: [usize; 3], letterbox: &Letterbox) -> PixelMap {
    let mut map = PixelMap::new(MapKind::Classes);
    map.find_greatest(&Floats::Full(scores), planes, letterbox, &all(planes[0] as u32));
    map
}

fn depths(values: &[f32], width: usize, letterbox: &Letterbox) -> PixelMap {
    let mut map = PixelMap::new(MapKind::Depth { minimum: 0.0, maximum: 0.0 });
    map.find_depths(&Floats::Full(values), [width, values.len() / width], letterbox);
    map
}

fn region(id: u16, pixels: u32) -> MapRegion {
    MapRegion { id, class: id.into(), pixels }
}

#[test]
fn the_greatest_score_is_the_class() {
    let scores = [0.0, 1.0, 5.0, -1.0, /**/ 0.0, 2.0, -5.0, f32::NAN, /**/ 0.0, 3.0, f32::INFINITY, -0.5];
    let map = classes(&scores, [3, 2, 2], &plain(2, 2));
    assert_eq!(map.values(), [0, 2, 2, 2], "the first of equals; NaN is never the greatest");
    assert_eq!(map.regions(), [region(0, 1), region(2, 3)]);
    assert_eq!(map.not_finite(), 2);
    assert_eq!((map.share(&map.regions()[1]), map.has_bytes()), (0.75, true));
    let map = classes(&[f32::NAN, f32::NEG_INFINITY], [2, 1, 1], &plain(1, 1));
    assert_eq!((map.values(), map.regions()), (&[NONE][..], &[][..]), "there is none");
}

#[test]
fn a_single_class_is_where_its_score_is_positive() {
    let map = classes(&[0.5, 0.0, -1.0, f32::NAN], [1, 2, 2], &plain(2, 2));
    assert_eq!(map.values(), [0, NONE, NONE, NONE]);
    assert_eq!(map.regions(), [region(0, 1)]);
}

#[test]
fn a_single_class_may_have_a_threshold() {
    let mut map = PixelMap::new(MapKind::Classes);
    let filter = ClassFilter { threshold: 0.5, ..all(1) };
    map.find_greatest(&Floats::Full(&[0.5, 0.75, 0.25, f32::NAN]), [1, 2, 2], &plain(2, 2), &filter);
    assert_eq!(map.values(), [NONE, 0, NONE, NONE]);
    // Of several classes the greatest counts, whatever it is.
    map.find_greatest(
        &Floats::Full(&[0.25, 0.125]),
        [2, 1, 1],
        &plain(1, 1),
        &ClassFilter { threshold: 0.5, ..all(2) },
    );
    assert_eq!(map.values(), [0]);
}

#[test]
fn filtered_classes_are_none() {
    let mut map = PixelMap::new(MapKind::Classes);
    let filter = ClassFilter { kept: vec![false, true], beyond: false, ..all(3) };
    map.find_greatest(&Floats::Full(&[3.0, 0.0, 0.0, 3.0]), [2, 2, 1], &plain(2, 1), &filter);
    assert_eq!(map.values(), [NONE, 1], "not the second best class");
}

#[test]
fn ids_beyond_the_classes_are_none() {
    let mut map = PixelMap::new(MapKind::Classes);
    let ids = [0i64, 2, 3, -1, 255, i64::MAX];
    map.take_ids(|at| ids[at], [3, 2], &plain(3, 2), &all(3));
    assert_eq!(map.values(), [0, 2, NONE, NONE, NONE, NONE]);
    let binary = ClassFilter { first: 1, ..all(1) };
    map.take_ids(|at| ids[at] - 1, [3, 2], &plain(3, 2), &binary);
    assert_eq!(map.values(), [NONE, 0, NONE, NONE, NONE, NONE], "1 is where the only class is");
    map.take_ids(|_| i64::MIN, [3, 2], &plain(3, 2), &binary);
    assert_eq!(map.regions(), []);
}

#[test]
fn a_map_may_have_as_many_classes_as_there_are_ids() {
    let mut map = PixelMap::new(MapKind::Classes);
    let ids = [65534i64, 65535];
    map.take_ids(|at| ids[at], [2, 1], &plain(2, 1), &all(PixelMap::MAX_CLASSES));
    assert_eq!(map.regions(), [region(65534, 1)]);
}

#[test]
fn padding_is_cut_off() {
    // 4 rows of padding above and below.
    let letterbox = Letterbox::new((32, 16), (16, 16), ResizeMode::Letterbox);
    let mut map = PixelMap::new(MapKind::Classes);
    map.take_ids(|at| if (16..48).contains(&at) { 1 } else { 7 }, [8, 8], &letterbox, &all(9));
    assert_eq!((map.width(), map.height()), (16, 8));
    assert_eq!(map.regions(), [region(1, 128)], "twice as coarse as the input");
    assert_eq!(map.on_frame((32, 16)), vec![1; 32 * 16]);
    assert_eq!(map.place(), BBox::new(0.0, 0.0, 32.0, 16.0));
}

#[test]
fn a_map_of_a_part_covers_that_part() {
    let letterbox = Letterbox::new(Rect { left: 1, top: 2, right: 3, bottom: 4 }, (2, 2), ResizeMode::Letterbox);
    let map = classes(&[1.0, 2.0, 3.0, -1.0], [1, 2, 2], &letterbox);
    let mut expected = vec![NONE; 4 * 5];
    for at in [9, 10, 13] {
        expected[at] = 0;
    }
    assert_eq!(map.on_frame((4, 5)), expected);
}

#[test]
fn depths_can_be_had_back() {
    let values = [1.0, 2.0, 3.0, 5.0];
    let map = depths(&values, 2, &plain(2, 2));
    assert_eq!(map.kind(), MapKind::Depth { minimum: 1.0, maximum: 5.0 });
    assert_eq!((map.values(), map.has_bytes()), (&[0, 16384, 32768, 65535][..], false));
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2.0, 4.0, -0.0];
    let map = depths(&odd, 3, &plain(3, 2));
    assert_eq!(map.kind(), MapKind::Depth { minimum: 0.0, maximum: 4.0 });
    assert_eq!((map.values(), map.not_finite()), (&[0, 65535, 0, 32768, 65535, 0][..], 3));
    for (values, constant) in [([3.5; 4], 3.5), ([f32::NAN; 4], 0.0), ([f32::INFINITY; 4], 0.0)] {
        let map = depths(&values, 2, &plain(2, 2));
        assert_eq!(map.kind(), MapKind::Depth { minimum: constant, maximum: constant });
        assert_eq!(map.values(), [0; 4]);
    }
    let map = depths(&[-1e37, 1e37], 2, &plain(2, 1));
    assert_eq!(map.values(), [0, 65535], "the range is finite");
}

#[test]
fn coarse_maps_are_scaled_to_the_input() {
    // One pixel fills the input.
    assert_eq!(classes(&[0.0, 1.0], [2, 1, 1], &plain(5, 3)).values(), [1; 15]);
    assert_eq!(depths(&[7.0], 1, &plain(3, 3)).values(), [0; 9]);
    // PyTorch's interpolate(mode="bilinear", align_corners=False) of [0, 4] to four: 0, 1, 3, 4.
    assert_eq!(depths(&[0.0, 4.0], 2, &plain(4, 1)).values(), [0, 16384, 49151, 65535]);
    let scores = [0.0, 4.0, 3.0, 1.0]; // they cross at 0.5, between the second and the third
    assert_eq!(classes(&scores, [2, 2, 1], &plain(4, 1)).values(), [1, 1, 0, 0]);
}

#[test]
fn objects_are_numbered_and_the_first_lies_above() {
    let mut map = PixelMap::new(MapKind::Objects);
    let mut masks = Masks::default();
    let rect = |left, right| Rect { left, top: 0, right, bottom: 1 };
    masks.adopt([(rect(0, 2), 0, true), (rect(1, 4), 1, true)].into_iter(), &[0b11, 0b111], 0);
    map.find_objects(&masks, [5, 5].into_iter(), &plain(4, 1));
    assert_eq!(map.values(), [1, 1, 2, 2]);
    let region = |id, pixels| MapRegion { id, class: 5, pixels };
    assert_eq!(map.regions(), [region(1, 2), region(2, 2)]);
    map.find_objects(&Masks::default(), [].into_iter(), &plain(4, 1));
    assert_eq!((map.values(), map.regions()), (&[0; 4][..], &[][..]));
}

proptest! {
    /// Of any scores, in either precision, the class is that with the greatest interpolated score.
    #[test]
    fn any_scores(
        (classes, width, height) in (1..4usize, 1..5usize, 1..5usize),
        (frame, input) in ((1..20u32, 1..20u32), (1..12u32, 1..12u32)),
        values in prop::collection::vec((-8..8i32).prop_map(|value| value as f32 / 4.0), 64),
    ) {
        let letterbox = Letterbox::new(frame, input, ResizeMode::Letterbox);
        let values = &values[..classes * width * height];
        let halves: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
        let mut map = PixelMap::new(MapKind::Classes);
        map.find_greatest(&Floats::Half(&halves), [classes, width, height], &letterbox, &all(classes as u32));
        prop_assert_eq!(&map, &super::tests::classes(values, [classes, width, height], &letterbox));
        prop_assert_eq!((map.width(), map.height()), (letterbox.width, letterbox.height));
        let at = |class: usize, x: usize, y: usize| f64::from(values[(class * height + y) * width + x]);
        let between = |at: u32, from: usize, to: u32| {
            let place = ((f64::from(at) + 0.5) * from as f64 / f64::from(to) - 0.5).max(0.0);
            let low = (place as usize).min(from - 1);
            (low, (low + 1).min(from - 1), place - low as f64)
        };
        for (index, &value) in map.values().iter().enumerate() {
            let (x, y) = (index as u32 % map.width() + letterbox.x, index as u32 / map.width() + letterbox.y);
            let ((x0, x1, wx), (y0, y1, wy)) = (between(x, width, input.0), between(y, height, input.1));
            let score = |class: usize| {
                let row = |y| at(class, x0, y) * (1.0 - wx) + at(class, x1, y) * wx;
                row(y0) * (1.0 - wy) + row(y1) * wy
            };
            let best = (0..classes).map(score).fold(f64::MIN, f64::max);
            match value {
                NONE => prop_assert!(classes == 1 && best < 1e-5),
                class => prop_assert!(score(class.into()) > best - 1e-5 && (classes > 1 || best > -1e-5)),
            }
        }
    }
}
