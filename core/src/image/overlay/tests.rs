// SPDX-License-Identifier: MPL-2.0
//! Whole pictures: small ones by hand, random ones against a slow painter that works as the kernel does.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::image::frame::{Colorimetry, Matrix, PixelFormat, PlaneMut};
use crate::image::geometry::{BBox, Rect};
use crate::image::keypoints::{KeypointModel, KeypointShape};

const PADDING: [u8; 5] = [0xA5; 5];

/// A frame whose rows end in padding.
#[derive(Clone, Debug, PartialEq)]
struct Picture {
    target: Target,
    /// Bytes and stride.
    planes: Vec<(Vec<u8>, usize)>,
}

impl Picture {
    /// Every sample is 7, which is no component of any colour drawn.
    fn new(format: PixelFormat, width: u32, height: u32) -> Self {
        let planes = format.planes(width as usize, height as usize);
        let plane =
            |&(width, height): &(usize, usize)| ([&vec![7; width][..], &PADDING].concat().repeat(height), width + 5);
        Picture {
            target: Target { format, width, height, color: Colorimetry::default() },
            planes: planes.iter().map(plane).collect(),
        }
    }

    fn frame(&mut self) -> FrameMut<'_> {
        let Target { format, width, height, color } = self.target;
        let planes = self.planes.iter_mut().map(|(data, stride)| PlaneMut { data, stride: *stride }).collect();
        FrameMut { format, width: width as usize, height: height as usize, color, planes }
    }

    fn draw(&mut self, detections: &[Candidate], labels: &[String], style: &Style) {
        self.draw_poses(detections, None, labels, style);
    }

    fn draw_poses(
        &mut self,
        detections: &[Candidate],
        keypoints: Option<&Keypoints>,
        labels: &[String],
        style: &Style,
    ) {
        Overlay::default().draw(&mut self.frame(), detections, keypoints, None, labels, style);
    }

    /// Sample `x`, `y` of a plane, in bytes.
    fn sample(&mut self, plane: usize, x: u32, y: u32) -> &mut [u8] {
        let part = self.part(plane);
        let (data, stride) = &mut self.planes[plane];
        &mut data[y as usize * *stride + x as usize * part.len()..][..part.len()]
    }

    /// Which bytes of a [`Sample`] each byte of a plane's samples holds; `None` where it is 0.
    fn part(&self, plane: usize) -> &'static [Option<usize>] {
        match (self.target.format, plane) {
            (PixelFormat::Nv12, 1) => &[Some(1), Some(2)],
            (PixelFormat::P010, 0) => &[None, Some(0)],
            (PixelFormat::P010, _) => &[None, Some(1), None, Some(2)],
            (PixelFormat::I420, 1) => &[Some(1)],
            (PixelFormat::I420, 2) => &[Some(2)],
            (format, _) => &[Some(0), Some(1), Some(2), Some(3)][..format.pixel_bytes()],
        }
    }

    /// The bytes of a plane where a colour is stored.
    fn bytes_of(&self, plane: usize, sample: impl Fn(usize) -> u8) -> Vec<u8> {
        self.part(plane).iter().map(|&i| i.map_or(0, &sample)).collect()
    }

    /// Width and height of a plane, and pixels that a sample spans in each direction.
    fn grid(&self, plane: usize) -> (u32, u32, u32) {
        let Target { width, height, .. } = self.target;
        if plane == 0 { (width, height, 1) } else { (width.div_ceil(2), height.div_ceil(2), 2) }
    }

    /// Every sample alone takes the value of the last box that touches it.
    fn paint_by_sample(&mut self, plan: &Plan) {
        for plane in 0..self.planes.len() {
            let (width, height, span) = self.grid(plane);
            for (x, y) in (0..height).flat_map(|y| (0..width).map(move |x| (x, y))) {
                let pixels = Rect {
                    left: x * span,
                    top: y * span,
                    right: ((x + 1) * span).min(self.target.width),
                    bottom: ((y + 1) * span).min(self.target.height),
                };
                let tag = plan.boxes.iter().rfind(|labeled| any_pixel(&pixels, |x, y| holds(&labeled.tag, x, y)));
                let outline = plan.boxes.iter().rfind(|labeled| {
                    any_pixel(&pixels, |x, y| holds(&labeled.outer, x, y) && !holds(&labeled.inner, x, y))
                });
                let stroke =
                    plan.strokes.iter().rfind(|stroke| any_pixel(&pixels, |x, y| stroke.touches(x as i32, y as i32)));
                if let (None, Some(stroke)) = (tag, stroke) {
                    let bytes = self.bytes_of(plane, |i| stroke.color[i]);
                    self.sample(plane, x, y).copy_from_slice(&bytes);
                    continue;
                }
                let Some(labeled) = tag.or(outline) else { continue };
                let coverage = if tag.is_some() && plane == 0 { coverage(plan, labeled, x, y) } else { 0.0 };
                let mix = |i: usize| {
                    f32::from(labeled.color[i]) * (1.0 - coverage) + f32::from(labeled.text_color[i]) * coverage
                };
                let bytes = self.bytes_of(plane, |i| mix(i).round() as u8);
                self.sample(plane, x, y).copy_from_slice(&bytes);
            }
        }
    }
}

fn any_pixel(rect: &Rect, touched: impl Fn(u32, u32) -> bool) -> bool {
    (rect.top..rect.bottom).any(|y| (rect.left..rect.right).any(|x| touched(x, y)))
}

fn holds(rect: &Rect, x: u32, y: u32) -> bool {
    (rect.left..rect.right).contains(&x) && (rect.top..rect.bottom).contains(&y)
}

fn coverage(plan: &Plan, labeled: &LabeledBox, x: u32, y: u32) -> f32 {
    let (left, top) = labeled.text_origin(plan.font);
    let Some(column) = x.checked_sub(left).filter(|column| column / plan.font.width < labeled.text_len) else {
        return 0.0;
    };
    let glyph = plan.text[(labeled.text_start + column / plan.font.width) as usize];
    let row = plan.font.rows(glyph).nth((y - top) as usize).unwrap();
    f32::from(row[(column % plan.font.width) as usize]) / 255.0
}

fn detection(class: u32, score: f32, [x1, y1, x2, y2]: [f32; 4]) -> Candidate {
    Candidate { bbox: BBox::new(x1, y1, x2, y2), score, class, row: 0, angle: 0.0 }
}

fn lines(line_width: u32) -> Style {
    Style { labels: false, line_width, ..Style::default() }
}

#[test]
fn a_ring_in_every_format() {
    const PIXELS: [&str; 5] = [".....", ".###.", ".#.#.", ".###.", "....."];
    // The hole shares its sample with three pixels of the ring.
    const HALVED: [&str; 3] = ["##.", "##.", "..."];
    for format in PixelFormat::ALL {
        let mut picture = Picture::new(format, 5, 5);
        let mut expected = picture.clone();
        let sample = color::sample(class_color(3), &picture.target);
        for plane in 0..picture.planes.len() {
            let part = picture.bytes_of(plane, |i| sample[i]);
            let rows: &[&str] = if plane == 0 { &PIXELS } else { &HALVED };
            for (y, row) in (0..).zip(rows) {
                for (x, _) in row.match_indices('#') {
                    expected.sample(plane, x as u32, y).copy_from_slice(&part);
                }
            }
        }
        picture.draw(&[detection(3, 0.9, [0.8, 1.4, 4.2, 3.9])], &[], &lines(1));
        assert_eq!(picture, expected, "{}", format.name());
    }
}

#[test]
fn stronger_boxes_lie_on_weaker_ones() {
    let mut picture = Picture::new(PixelFormat::Rgb, 4, 1);
    picture.draw(&[detection(1, 0.9, [1.0, 0.0, 3.0, 1.0]), detection(2, 0.8, [0.0, 0.0, 2.0, 1.0])], &[], &lines(1));
    let [strong, weak] = [1, 2].map(class_color);
    assert_eq!(picture.planes[0].0, [&weak[..], &strong, &strong, &[7; 3], &PADDING].concat());
}

#[test]
fn what_is_no_box_or_outside_leaves_the_frame_alone() {
    let nowhere = [
        [2.0, 2.0, 2.0, 6.0],
        [6.0, 2.0, 2.0, 6.0],
        [f32::NAN, 2.0, 6.0, 6.0],
        [0.0, 0.0, f32::INFINITY, 6.0],
        [-9.0, 2.0, -1.0, 6.0],
        [2.0, 20.0, 6.0, 30.0],
        [1e30, 2.0, 2e30, 6.0],
    ];
    for bbox in nowhere {
        let mut picture = Picture::new(PixelFormat::Nv12, 80, 20);
        picture.draw(&[detection(0, 0.5, bbox)], &[], &Style::default());
        assert_eq!(picture, Picture::new(PixelFormat::Nv12, 80, 20), "{bbox:?}");
    }
}

/// Tag and text of a box, letters 7 pixels wide and 16 high.
fn tag_of(width: u32, height: u32, bbox: [f32; 4], label: &str) -> ([u32; 4], usize) {
    let mut overlay = Overlay::default();
    let target = Picture::new(PixelFormat::Gray8, width, height).target;
    let plan = overlay.plan(target, &[detection(0, 0.874, bbox)], None, &[label.into()], &Style::default());
    let Rect { left, top, right, bottom } = plan.boxes[0].tag;
    ([left, top, right, bottom], plan.text.len())
}

#[test]
fn tags_lie_above_the_box_or_where_there_is_room() {
    // "cat 87%" is 7 letters and 2 x 3 pixels of margin.
    assert_eq!(tag_of(200, 100, [20.0, 30.0, 90.0, 80.0], "cat"), ([20, 14, 75, 30], 7));
    assert_eq!(tag_of(200, 100, [20.0, 15.0, 90.0, 80.0], "cat"), ([20, 15, 75, 31], 7), "inside");
    assert_eq!(tag_of(200, 100, [170.0, 30.0, 190.0, 80.0], "cat"), ([145, 14, 200, 30], 7), "moved left");
    assert_eq!(tag_of(200, 100, [-20.0, -30.0, 90.0, 80.0], "cat"), ([0, 0, 55, 16], 7), "moved in");
    assert_eq!(tag_of(200, 20, [20.0, 10.0, 90.0, 20.0], "cat"), ([20, 4, 75, 20], 7), "moved up");
    assert_eq!(tag_of(30, 100, [20.0, 30.0, 25.0, 80.0], "cat"), ([3, 14, 30, 30], 3), "cut");
    assert_eq!(tag_of(12, 100, [2.0, 30.0, 9.0, 80.0], "cat"), ([0, 0, 0, 0], 0), "too narrow");
    assert_eq!(tag_of(200, 15, [2.0, 3.0, 90.0, 12.0], "cat"), ([0, 0, 0, 0], 0), "too low");
}

#[test]
fn labels_are_name_and_percent() {
    let labels = ["cat".to_string(), String::new()];
    let text = |class, score| {
        let mut overlay = Overlay::default();
        let target = Picture::new(PixelFormat::Gray8, 200, 100).target;
        overlay.plan(target, &[detection(class, score, [0.0, 50.0, 9.0, 60.0])], None, &labels, &Style::default());
        overlay.label
    };
    assert_eq!(text(0, 0.874), "cat 87%");
    assert_eq!(text(1, 1.5), "#1 100%");
    assert_eq!(text(7, f32::NAN), "#7 0%");
}

#[test]
fn lines_suit_the_frame() {
    let line = |width, height| {
        let mut overlay = Overlay::default();
        let bbox = [0.0, 0.0, width as f32, height as f32];
        let target = Target { width, height, ..Picture::new(PixelFormat::Gray8, 1, 1).target };
        let plan = overlay.plan(target, &[detection(0, 0.5, bbox)], None, &[], &Style::default());
        plan.boxes[0].inner.left
    };
    assert_eq!([line(1, 1), line(640, 360), line(1920, 1080), line(2160, 3840), line(8192, 8192)], [1, 2, 3, 6, 22]);
}

#[test]
fn a_skeleton_is_lines_and_points() {
    let shape = KeypointShape { count: 17, dims: 3 };
    let model = Arc::new(KeypointModel { shape, names: Vec::new() });
    let mut values = vec![0.0; shape.numbers()];
    // The left knee and ankle, joined by a line; an eye that is not visible, and an ear beyond the edge.
    for (point, numbers) in
        [(13, [5.5, 5.5, 1.0]), (15, [5.5, 15.5, 0.25]), (1, [9.5, 9.5, 0.24]), (3, [0.0, 9.5, 1.0])]
    {
        values[point * 3..][..3].copy_from_slice(&numbers);
    }
    let keypoints = Keypoints { model, values };
    let mut picture = Picture::new(PixelFormat::Gray8, 20, 20);
    let target = picture.target;
    picture.draw_poses(&[detection(2, 0.9, [0.0, 0.0, 20.0, 20.0])], Some(&keypoints), &[], &lines(1));
    let [line, knee, ankle] = [2, 13, 15].map(|color| color::sample(class_color(color), &target)[0]);
    let mut column = |x: u32| (3..18).map(|y| picture.sample(0, x, y)[0]).collect::<Vec<_>>();
    let points = [vec![7], vec![knee; 3], vec![line; 7], vec![ankle; 3], vec![7]].concat();
    assert_eq!(column(5), points);
    let expected = [vec![7], vec![knee; 3], vec![7; 7], vec![ankle; 3], vec![7]].concat();
    assert_eq!((column(4), column(6)), (expected.clone(), expected));
    assert_eq!((column(9), column(1)), (vec![7; 15], vec![7; 15]), "what is not seen is not drawn");
}

#[test]
fn a_rotated_box_is_four_lines_and_a_tag() {
    let mut picture = Picture::new(PixelFormat::Gray8, 60, 60);
    let target = picture.target;
    let rotated = Candidate { angle: std::f32::consts::FRAC_PI_4, ..detection(2, 0.9, [10.5, 20.5, 50.5, 40.5]) };
    let style = lines(2);
    let mut overlay = Overlay::default();
    let plan = overlay.plan(target, &[rotated], None, &[], &style);
    assert_eq!((plan.boxes.len(), plan.strokes.len()), (1, 4));
    assert!(plan.boxes[0].sides().iter().all(Rect::is_empty));
    picture.draw(&[rotated], &[], &style);
    let expected = color::sample(class_color(2), &target)[0];
    // Its corners are at most 21.2 to the side of the centre and above it: 30.5 ± (20 ± 10) × √½.
    for [x, y] in [[37, 51], [51, 37], [23, 9], [9, 23]] {
        assert_eq!(picture.sample(0, x, y), [expected], "{x} {y}");
    }
    for [x, y] in [[30, 30], [10, 20], [50, 40], [51, 51], [9, 9]] {
        assert_eq!(picture.sample(0, x, y), [7], "{x} {y}");
    }
    // The tag lies above the upright box around it.
    let target = Picture::new(PixelFormat::Gray8, 200, 100).target;
    let below = Candidate { angle: rotated.angle, ..detection(0, 0.5, [80.0, 60.0, 120.0, 80.0]) };
    let plan = overlay.plan(target, &[below], None, &[], &Style::default());
    assert_eq!((plan.boxes[0].tag.left, plan.boxes[0].tag.bottom), (79, 49));
}

#[test]
fn sides_that_lead_far_away_keep_their_slope() {
    // A bar from far left below to far right above, through the middle.
    let bar = |length: f32| {
        let bbox = BBox::from_center(50.0, 50.0, length, 9.0);
        let mut picture = Picture::new(PixelFormat::Gray8, 100, 100);
        let rotated = Candidate { bbox, angle: -std::f32::consts::FRAC_PI_4, ..detection(0, 0.5, [0.0; 4]) };
        picture.draw(&[rotated], &[], &lines(1));
        picture
    };
    // Its long sides cross each column 4.5 × √2 above and below the middle.
    for length in [600.0, 20_000.0, 300_000.0] {
        let mut picture = bar(length);
        for x in 0..100 {
            let painted: Vec<f32> = (0..100).filter(|&y| picture.sample(0, x, y) != [7]).map(|y| y as f32).collect();
            let sides = [-6.36f32, 6.36].map(|side| 99.0 - x as f32 + side);
            let near = |y: f32, side: f32| (y - side).abs() < 2.5;
            assert!(painted.iter().all(|&y| sides.iter().any(|&side| near(y, side))), "{length} {x} {painted:?}");
            let seen = sides.iter().filter(|side| (2.0..97.0).contains(*side));
            assert!(seen.into_iter().all(|&side| painted.iter().any(|&y| near(y, side))), "{length} {x} {painted:?}");
        }
    }
    // And nothing overflows at the limits of the numbers.
    bar(1e30);
    bar(f32::MAX);
}

proptest! {
    /// Rows of a stroke are all pixels that it touches, and no others.
    #[test]
    fn rows_of_strokes_are_what_they_touch(
        (from, to) in ((-20..60i32, -20..50i32), (-20..60i32, -20..50i32)),
        width in 0..12u32,
    ) {
        let stroke = Stroke { from: from.into(), to: to.into(), width, ..Stroke::default() };
        let target = Picture::new(PixelFormat::Gray8, 40, 30).target;
        let rows: Vec<Rect> = stroke.rows(&target).collect();
        for (x, y) in (0..30).flat_map(|y| (0..40).map(move |x| (x, y))) {
            let painted = rows.iter().any(|row| holds(row, x, y));
            prop_assert_eq!(painted, stroke.touches(x as i32, y as i32), "{} {}", x, y);
        }
    }
}

#[test]
fn nv12_shows_what_rgb_shows() {
    let detections = [detection(4, 0.9, [3.0, 5.0, 22.0, 17.0]), detection(5, 0.8, [10.0, 19.0, 31.0, 28.0])];
    for (matrix, full_range) in [(Matrix::Bt601, false), (Matrix::Bt709, false), (Matrix::Bt2020, true)] {
        let mut rgb = Picture::new(PixelFormat::Rgb, 33, 29);
        let mut nv12 = Picture::new(PixelFormat::Nv12, 33, 29);
        nv12.target.color = Colorimetry { matrix, full_range, ..Colorimetry::default() };
        rgb.draw(&detections, &[], &lines(2));
        nv12.draw(&detections, &[], &lines(2));

        let (kr, kb) = matrix.kr_kb();
        let (black, luma_range, chroma_range) = if full_range { (0.0, 255.0, 255.0) } else { (16.0, 219.0, 224.0) };
        for (x, y) in (0..29).flat_map(|y| (0..33).map(move |x| (x, y))) {
            let luma = (f32::from(nv12.sample(0, x, y)[0]) - black) / luma_range;
            let [u, v] = [0, 1].map(|i| (f32::from(nv12.sample(1, x / 2, y / 2)[i]) - 128.0) / chroma_range);
            let (r, b) = (luma + v * (2.0 - 2.0 * kr), luma + u * (2.0 - 2.0 * kb));
            let g = (luma - kr * r - kb * b) / (1.0 - kr - kb);
            let drawn = rgb.sample(0, x, y);
            let agree = [r, g, b].iter().zip(&*drawn).all(|(yuv, &rgb)| (yuv * 255.0 - f32::from(rgb)).abs() <= 3.0);
            assert!(drawn == [7; 3] || agree, "{drawn:?} at {x},{y} with {matrix:?}");
        }
    }
}

#[test]
fn the_same_frame_again_allocates_nothing() {
    let mut overlay = Overlay::default();
    let mut picture = Picture::new(PixelFormat::I420, 99, 77);
    let detections = [detection(0, 0.5, [10.0, 30.0, 60.0, 70.0]); 9];
    let mut addresses = || {
        overlay.draw(&mut picture.frame(), &detections, None, None, &[], &Style::default());
        let font = overlay.font.as_ref().unwrap();
        (overlay.boxes.as_ptr(), overlay.text.as_ptr(), overlay.label.as_ptr(), font.coverage.as_ptr())
    };
    assert_eq!(addresses(), addresses());
}

fn any_edge() -> impl Strategy<Value = f32> {
    prop_oneof![8 => -30.0..130.0f32, 1 => proptest::num::f32::ANY]
}

fn any_detection() -> impl Strategy<Value = Candidate> {
    let edges = (any_edge(), any_edge(), any_edge(), any_edge());
    (any::<u32>(), proptest::num::f32::ANY, edges).prop_map(|(class, score, (a, b, c, d))| {
        // Most boxes have their corners in order.
        let bbox = if class % 8 == 0 { [a, b, c, d] } else { [a.min(c), b.min(d), a.max(c), b.max(d)] };
        detection(class % 40, score, bbox)
    })
}

proptest! {
    /// No plan panics or writes padding.
    #[test]
    fn any_boxes_look_as_painted_by_sample(
        format in prop::sample::select(&PixelFormat::ALL[..]),
        (width, height) in (1..100u32, 1..60u32),
        detections in prop::collection::vec(any_detection(), 0..6),
        style in (any::<bool>(), prop_oneof![0..9u32, any::<u32>()]),
        labels in prop::collection::vec(".{0,9}", 0..40),
        shape in prop::option::of((prop_oneof![Just(17u16), 1..5u16], 2..4u8)),
        angles in prop::collection::vec(prop_oneof![2 => Just(0.0), 3 => -4.0..4.0f32, 1 => proptest::num::f32::ANY], 6),
        numbers in prop::collection::vec(prop_oneof![9 => -9.0..110.0f32, 1 => 0.0..1.0f32, 1 => any_edge()], 6 * 17 * 3),
    ) {
        let rotated = |(found, &angle): (&Candidate, &f32)| Candidate { angle, ..*found };
        let detections: Vec<Candidate> = detections.iter().zip(&angles).map(rotated).collect();
        let keypoints = shape.map(|(count, dims)| {
            let shape = KeypointShape { count, dims };
            let mut values = numbers[..shape.numbers() * detections.len()].to_vec();
            if dims == 3 {
                values.iter_mut().skip(2).step_by(3).for_each(|visibility| *visibility /= 50.0);
            }
            Keypoints { model: Arc::new(KeypointModel { shape, names: Vec::new() }), values }
        });
        let style = Style { labels: style.0, line_width: style.1, ..Style::default() };
        let mut picture = Picture::new(format, width, height);
        let mut expected = picture.clone();
        picture.draw_poses(&detections, keypoints.as_ref(), &labels, &style);
        expected.paint_by_sample(&Overlay::default().plan(expected.target, &detections, keypoints.as_ref(), &labels, &style));
        prop_assert_eq!(picture, expected);
    }
}
