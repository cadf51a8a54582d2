// SPDX-License-Identifier: MPL-2.0
//! Hidden pictures against a slow painter that looks at each sample alone, and what is left of a picture.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::image::frame::{Colorimetry, FrameMut, PlaneMut};
use crate::image::masks::Mask;

/// A frame whose rows end in padding.
#[derive(Clone, Debug, PartialEq)]
struct Picture {
    target: Target,
    /// Bytes and stride.
    planes: Vec<(Vec<u8>, usize)>,
}

impl Picture {
    fn noise(format: PixelFormat, (width, height): (u32, u32), seed: u64) -> Self {
        let mut state = seed;
        let mut noise = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        let plane = |&(row, rows): &(usize, usize)| {
            let stride = row + 4;
            ((0..stride * rows).map(|_| noise()).collect(), stride)
        };
        let planes = format.planes(width as usize, height as usize).iter().map(plane).collect();
        Picture { target: Target { format, width, height, color: Colorimetry::default() }, planes }
    }

    fn hide(&mut self, areas: &[HiddenArea], mask: Option<&QuadMask>) {
        let Target { format, width, height, color } = self.target;
        let planes = self.planes.iter_mut().map(|(data, stride)| PlaneMut { data, stride: *stride }).collect();
        let (width, height) = (width as usize, height as usize);
        hide(&mut FrameMut { format, width, height, color, planes }, areas, mask);
    }

    /// The numbers of a sample, as they are shown.
    fn sample(&self, plane: usize, channels: usize, x: u32, y: u32) -> Vec<u32> {
        let (data, stride) = &self.planes[plane];
        let row = &data[y as usize * stride..];
        match self.target.format {
            PixelFormat::P010 => {
                let word = |at: usize| u32::from(u16::from_le_bytes([row[2 * at], row[2 * at + 1]])) >> 6;
                (0..channels).map(|c| word(x as usize * channels + c)).collect()
            }
            _ => row[x as usize * channels..][..channels].iter().map(|&byte| byte.into()).collect(),
        }
    }

    /// The samples of a plane: places and numbers.
    fn samples(&self, plane: usize) -> Vec<((u32, u32), Vec<u32>)> {
        let shape = &PlaneShape::all(&self.target)[plane];
        let places = (0..shape.height).flat_map(|y| (0..shape.width).map(move |x| (x, y)));
        places.map(|(x, y)| ((x, y), self.sample(plane, shape.channels, x, y))).collect()
    }
}

fn holds(rect: &Rect, x: u32, y: u32) -> bool {
    (rect.left..rect.right).contains(&x) && (rect.top..rect.bottom).contains(&y)
}

/// What a sample is to become: the mean of a cell, or a mean of the means of four, in floats.
fn expected(picture: &Picture, plane: usize, area: &HiddenArea, (x, y): (u32, u32)) -> Vec<f64> {
    let shape = &PlaneShape::all(&picture.target)[plane];
    let (whole, side) = (shape.samples(&area.quads), area.cell * shape.per_quad);
    let mean = |column: u32, row: u32| -> Vec<f64> {
        let (left, top) = (whole.left + column * side, whole.top + row * side);
        let cell = Rect { left, top, right: whole.right.min(left + side), bottom: whole.bottom.min(top + side) };
        let places = (cell.top..cell.bottom).flat_map(|y| (cell.left..cell.right).map(move |x| (x, y)));
        let all: Vec<_> = places.map(|(x, y)| picture.sample(plane, shape.channels, x, y)).collect();
        (0..shape.channels)
            .map(|c| (all.iter().map(|s| f64::from(s[c])).sum::<f64>() / all.len() as f64 + 0.5).floor())
            .collect()
    };
    let (across, down) = (x - whole.left, y - whole.top);
    if area.is_smooth == 0 {
        return mean(across / side, down / side);
    }
    let between = |at: u32, cells: u32| {
        let from_middle = ((f64::from(at) + 0.5) / f64::from(side) - 0.5).clamp(0.0, f64::from(cells - 1));
        let first = (from_middle.floor() as u32).min(cells - 1);
        (first, (first + 1).min(cells - 1), from_middle - f64::from(first))
    };
    let cells = |quads: u32| quads.div_ceil(area.cell);
    let (left, right, to_right) = between(across, cells(area.quads.width()));
    let (upper, lower, to_lower) = between(down, cells(area.quads.height()));
    let [a, b, c, d] = [mean(left, upper), mean(right, upper), mean(left, lower), mean(right, lower)];
    (0..shape.channels)
        .map(|i| {
            let mix = |a: f64, b: f64, weight: f64| a * (1.0 - weight) + b * weight;
            mix(mix(a[i], b[i], to_right), mix(c[i], d[i], to_right), to_lower)
        })
        .collect()
}

fn any_edge() -> impl Strategy<Value = f32> {
    prop_oneof![9 => -20.0..90.0f32, 1 => proptest::num::f32::ANY]
}

proptest! {
    /// Of all samples, those of no area stay, and the others are as the last area wants them.
    #[test]
    fn each_sample_is_as_its_last_area_wants_it(
        format in prop::sample::select(&PixelFormat::ALL[..]),
        (width, height) in (1..70u32, 1..50u32),
        boxes in prop::collection::vec((any_edge(), any_edge(), any_edge(), any_edge(), any::<bool>()), 0..4),
        seed in any::<u64>(),
    ) {
        let before = Picture::noise(format, (width, height), seed);
        let areas: Vec<HiddenArea> = boxes.iter().filter_map(|&(x1, y1, x2, y2, blurs)| {
            let effect = if blurs { Effect::Blur } else { Effect::Pixelate };
            HiddenArea::new(BBox::new(x1, y1, x2, y2), effect, (width, height))
        }).collect();
        let mut after = before.clone();
        after.hide(&areas, None);
        for plane in 0..before.planes.len() {
            let per_quad = PlaneShape::all(&before.target)[plane].per_quad;
            for (((x, y), was), (_, is)) in before.samples(plane).into_iter().zip(after.samples(plane)) {
                match areas.iter().rfind(|area| holds(&area.quads, x / per_quad, y / per_quad)) {
                    None => prop_assert_eq!(was, is),
                    Some(area) => {
                        let wanted = expected(&before, plane, area, (x, y));
                        // Weights have 8 bits.
                        let most = if format == PixelFormat::P010 { 9.0 } else { 3.0 };
                        let near = is.iter().zip(&wanted).all(|(&is, wanted)| (f64::from(is) - wanted).abs() <= most);
                        prop_assert!(near, "{} {:?} {:?} {:?}", plane, (x, y), is, wanted);
                    }
                }
            }
            // Padding stays.
            let (row, _) = format.planes(width as usize, height as usize)[plane];
            let rows = before.planes[plane].0.chunks(row + 4).zip(after.planes[plane].0.chunks(row + 4));
            rows.for_each(|(was, is)| assert_eq!(was[row..], is[row..]));
        }
    }
}

#[test]
fn little_is_left_of_a_face_of_any_size() {
    for side in [9, 24, 100, 333, 1000] {
        let size = (side + 40, side + 40);
        let mut picture = Picture::noise(PixelFormat::Nv12, size, 7);
        let bbox = BBox::new(20.0, 20.0, 20.0 + side as f32, 20.0 + side as f32);
        picture.hide(&[HiddenArea::new(bbox, Effect::Pixelate, size).unwrap()], None);
        let luma = picture
            .samples(0)
            .into_iter()
            .filter(|&((x, y), _)| (20..20 + side).contains(&x) && (20..20 + side).contains(&y));
        // Each row of cells has one of 8 values or fewer at a time: so many changes along a row.
        let row: Vec<u32> = luma.take(side as usize).map(|(_, sample)| sample[0]).collect();
        let values: BTreeSet<u32> = row.iter().copied().collect();
        let changes = row.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes < CELLS as usize && values.len() <= CELLS as usize, "{side}: {changes}, {values:?}");
        // Small faces have cells of 8 pixels, not fewer.
        assert!(changes <= (side as usize).div_ceil(8), "{side}: {changes}");
    }
}

#[test]
fn chroma_is_hidden_where_luma_is() {
    // From odd pixels to odd ones: both samples of chroma at the edges show pixels of the box.
    let size = (64, 64);
    let area = HiddenArea::new(BBox::new(11.2, 13.0, 24.7, 27.0), Effect::Blur, size).unwrap();
    assert_eq!(area.quads, Rect { left: 5, top: 6, right: 13, bottom: 14 });
    let before = Picture::noise(PixelFormat::Nv12, size, 3);
    let mut after = before.clone();
    after.hide(&[area], None);
    let changed = |plane| {
        let samples = before.samples(plane).into_iter().zip(after.samples(plane));
        let places = samples.filter(|((_, was), (_, is))| was != is).map(|((place, _), _)| place);
        let (columns, rows): (BTreeSet<u32>, BTreeSet<u32>) = places.unzip();
        [columns.first(), columns.last(), rows.first(), rows.last()].map(|edge| *edge.unwrap())
    };
    assert_eq!((changed(0), changed(1)), ([10, 25, 12, 27], [5, 12, 6, 13]));
}

#[test]
fn boxes_beyond_the_frame_end_at_its_edge() {
    let size = (33, 17);
    let quads = |x1, y1, x2, y2| HiddenArea::new(BBox::new(x1, y1, x2, y2), Effect::Blur, size).map(|area| area.quads);
    let rect = |left, top, right, bottom| Some(Rect { left, top, right, bottom });
    assert_eq!(quads(-50.0, -1e30, 4.0, 4.0), rect(0, 0, 2, 2));
    assert_eq!(quads(31.0, 15.0, 1e30, f32::INFINITY), rect(15, 7, 17, 9));
    // Rather too much than too little.
    assert_eq!(quads(f32::NAN, 2.0, 4.0, f32::NAN), rect(0, 1, 2, 9));
    for (x1, y1, x2, y2) in [(-9.0, 0.0, -1.0, 9.0), (40.0, 0.0, 50.0, 9.0), (4.0, 4.0, 4.0, 9.0), (9.0, 0.0, 4.0, 9.0)]
    {
        assert_eq!(quads(x1, y1, x2, y2), None, "{x1} {y1} {x2} {y2}");
    }
}

#[test]
fn an_object_is_hidden_with_its_mask_and_corners() {
    let annotation = |corners, mask| Annotation {
        bbox: BBox::new(20.0, 20.0, 30.0, 30.0),
        corners,
        mask,
        of_frame: false,
        ..Annotation::of_frame("face".into())
    };
    let quads = |annotation: &Annotation| HiddenArea::of(annotation, Effect::Blur, (64, 64)).unwrap().quads;
    let rect = |left, top, right, bottom| Rect { left, top, right, bottom };
    assert_eq!(quads(&annotation(None, None)), rect(10, 10, 15, 15));
    let corners = [[25.0, 10.0], [40.0, 25.0], [25.0, 40.0], [10.0, 25.0]];
    assert_eq!(quads(&annotation(Some(corners), None)), rect(5, 5, 20, 20));
    let wide = std::sync::Arc::new(Mask::of(rect(0, 22, 40, 24), &[true; 80]));
    assert_eq!(quads(&annotation(None, Some(wide))), rect(0, 10, 20, 15));
    let empty = std::sync::Arc::new(Mask::default());
    assert_eq!(quads(&annotation(None, Some(empty))), rect(10, 10, 15, 15));
}

#[test]
fn texts_are_polygons_or_names() {
    for (text, is_meant) in [
        ("0,0,1,0,1,1", true),
        ("0,0,1;", true),
        ("5", true),
        ("", false),
        (" ; ", false),
        ("door", false),
        ("1,yard", false),
    ] {
        assert_eq!(PolygonList::is_meant(text), is_meant, "{text}");
    }
    let list = PolygonList::parse(" 0,0,0.5,0,0.5,0.25; 10,20,90,20,90,80,50,99;").unwrap();
    let [first, second] = &list.of((100, 200))[..] else { panic!("{list:?}") };
    assert_eq!(*first, [[0.0, 0.0], [50.0, 0.0], [50.0, 50.0]]);
    assert_eq!(*second, [[10.0, 20.0], [90.0, 20.0], [90.0, 80.0], [50.0, 99.0]]);
    let many = "0,0,1,0,1,1;".repeat(65);
    for text in ["", "0,0,1,0", "0,0,1,0,1", "0,0,nan,1,1,1", "0,0,inf,1,1,1", "a,0,1,1,0,1", &many] {
        let error = PolygonList::parse(text).unwrap_err();
        assert!(error.message().contains("mask="), "{text}: {error}");
    }
    for (text, said) in [
        ("0,0,1.01,0,1,1", "corner 2, 1.01,0, is beyond 1, the edge of the frame"),
        ("0,0,0.5,0,90,80", "corner 2, 0.5,0, is in parts of the frame, and corner 3, 90,80, in pixels"),
        (
            "0,0,1,0,1,1;10,20,90,20,90,0.8",
            "corner 3, 90,0.8, is in parts of the frame, and corner 1, 10,20, in pixels",
        ),
        ("-1,0,0,0,-0.5,1", "all corners are at the edge of the frame or outside"),
        ("0,1,0.5,1,0.7,1", "at the edge of the frame or outside"),
        ("0,0,0.5,0.5,1,1", "all corners are on one line"),
        ("10,10,10,10,10,10", "all corners are on one line"),
    ] {
        let error = PolygonList::parse(text).unwrap_err().message();
        assert!(error.contains(said), "{text}: {error}");
    }
    for text in ["0,0,1,0,1,1", "-1,-1,2,-1,2,2.5", "0,0,3,0,3,3", "-0.5,0.2,0.5,0.2,0.5,0.9", "10,1,20,1,20,50.5"] {
        assert!(PolygonList::parse(text).is_ok(), "{text}");
    }
}

proptest! {
    /// A quad with a point inside is in the mask, and one without any is not: looked at by 6 x 6 points of it.
    #[test]
    fn a_mask_has_the_quads_that_its_polygon_touches(
        corners in prop::collection::vec((-10.0..50.0f32, -10.0..40.0f32), 3..7),
        (width, height) in (1..40u32, 1..30u32),
    ) {
        let corners: Vec<[f32; 2]> = corners.into_iter().map(|(x, y)| [x, y]).collect();
        let inside = |x: f64, y: f64| {
            let edges = corners.iter().zip(corners.iter().cycle().skip(1));
            let crossed = edges.filter(|([ax, ay], [bx, by])| {
                let [ax, ay, bx, by] = [*ax, *ay, *bx, *by].map(f64::from);
                (ay <= y) != (by <= y) && ax + (bx - ax) * ((y - ay) / (by - ay)) > x
            });
            crossed.count() % 2 == 1
        };
        let rect = Rect::from((width, height)).halved();
        let mask = QuadMask::new(std::slice::from_ref(&corners), (width, height)).unwrap_or_default();
        let set: BTreeSet<(u32, u32)> =
            mask.rows().flat_map(|(y, runs)| runs.into_iter().flat_map(move |[a, b]| (a..b).map(move |x| (x, y)))).collect();
        for (x, y) in (0..rect.bottom).flat_map(|y| (0..rect.right).map(move |x| (x, y))) {
            let points = (0..36u32).map(|i| (f64::from(x * 2) + f64::from(i % 6) / 3.0 + 0.166, f64::from(y * 2) + f64::from(i / 6) / 3.0 + 0.166));
            let is_touched = points.filter(|&(px, py)| inside(px, py)).count() > 0;
            // An edge may touch a quad between the points.
            let crosses = corners.iter().zip(corners.iter().cycle().skip(1)).any(|([ax, ay], [bx, by])| {
                let low = |a: f32, b: f32, at: u32| f64::from(a.min(b)) <= f64::from(at * 2 + 2);
                let high = |a: f32, b: f32, at: u32| f64::from(a.max(b)) >= f64::from(at * 2);
                low(*ax, *bx, x) && high(*ax, *bx, x) && low(*ay, *by, y) && high(*ay, *by, y)
            });
            prop_assert!(!is_touched || set.contains(&(x, y)), "{:?} is not masked", (x, y));
            prop_assert!(is_touched || crosses || !set.contains(&(x, y)), "{:?} is masked", (x, y));
        }
    }
}

#[test]
fn a_mask_is_black_in_each_format() {
    for format in PixelFormat::ALL {
        let before = Picture::noise(format, (33, 17), 9);
        let mut after = before.clone();
        let polygon = vec![[4.0, 2.0], [12.0, 2.0], [12.0, 8.0], [4.0, 8.0]];
        after.hide(&[], Some(&QuadMask::new(&[polygon], (33, 17)).unwrap()));
        for plane in 0..before.planes.len() {
            let shape = &PlaneShape::all(&before.target)[plane];
            let black: Vec<u32> = match (format, plane) {
                (PixelFormat::P010, 0) => vec![64],
                (PixelFormat::P010, _) => vec![512; 2],
                (PixelFormat::Nv12 | PixelFormat::I420 | PixelFormat::Gray8, 0) => vec![16],
                (PixelFormat::Nv12 | PixelFormat::I420, _) => vec![128; shape.channels],
                (PixelFormat::Rgb | PixelFormat::Bgr, _) => vec![0; 3],
                _ => vec![0, 0, 0, 255],
            };
            for (((x, y), was), (_, is)) in before.samples(plane).into_iter().zip(after.samples(plane)) {
                let is_masked =
                    holds(&Rect { left: 2, top: 1, right: 6, bottom: 4 }, x / shape.per_quad, y / shape.per_quad);
                assert_eq!(is, if is_masked { black.clone() } else { was }, "{} {plane} {x} {y}", format.name());
            }
        }
    }
}

#[test]
fn polygons_that_hide_nothing_are_refused() {
    for (polygon, cause) in [
        (vec![[50.0, 0.0], [90.0, 0.0], [90.0, 9.0]], "is not in the frame of 40x30"),
        (vec![[0.0, -9.0], [9.0, -9.0], [9.0, -1.0]], "is not in the frame"),
        (vec![[0.0, f32::NAN], [9.0, 0.0], [9.0, 9.0]], "a corner is no number"),
    ] {
        let error = QuadMask::new(&[polygon], (40, 30)).unwrap_err();
        assert!(error.message().contains(cause), "{error}");
    }
}
