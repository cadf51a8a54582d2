// SPDX-License-Identifier: MPL-2.0
use half::f16;

use super::*;
use crate::image::geometry::ResizeMode;
use proptest::prelude::*;

fn object(bbox: [f32; 4]) -> Candidate {
    let [x1, y1, x2, y2] = bbox;
    Candidate { bbox: BBox::new(x1, y1, x2, y2), score: 0.5, class: 0, row: 0, angle: 0.0 }
}

/// What a slow reading of the formula says of each pixel of the model's input.
fn slow(
    shape: PrototypeShape,
    values: &[f32],
    coefficients: &[f32],
    bbox: &BBox,
    (width, height): (u32, u32),
) -> Vec<bool> {
    let plane = shape.width * shape.height;
    let sum = |x: usize, y: usize| {
        let of = |(k, c): (usize, &f32)| f64::from(*c) * f64::from(values[k * plane + y * shape.width + x]);
        coefficients.iter().enumerate().map(of).sum::<f64>()
    };
    let along = |at: u32, from: usize, to: u32| {
        let place = ((f64::from(at) + 0.5) * from as f64 / f64::from(to) - 0.5).max(0.0);
        (place as usize, (place as usize + 1).min(from - 1), place.fract())
    };
    let pixel = |at: u32| {
        let (x, y) = (at % width, at / width);
        let ((x0, x1, u), (y0, y1, v)) = (along(x, shape.width, width), along(y, shape.height, height));
        let value =
            (1.0 - v) * ((1.0 - u) * sum(x0, y0) + u * sum(x1, y0)) + v * ((1.0 - u) * sum(x0, y1) + u * sum(x1, y1));
        let (x, y) = (x as f32, y as f32);
        value > 0.0 && x >= bbox.x1 && x < bbox.x2 && y >= bbox.y1 && y < bbox.y2
    };
    (0..width * height).map(pixel).collect()
}

#[test]
fn pixels_on_the_frame_are_those_of_the_input() {
    // A frame of 8x4 in the middle of an input of 4x4: each pixel of the input is two by two of the frame.
    let shape = PrototypeShape { count: 1, width: 4, height: 4 };
    let mut values = [-1.0f32; 16];
    for at in [5, 6, 10] {
        values[at] = 1.0;
    }
    let mut masks = Masks::default();
    let prototypes = Tensor::from_slice("output1", &[1, 1, 4, 4], &values);
    let prototypes = Prototypes::new(shape, &prototypes).unwrap();
    masks.find(&prototypes, &[2.0, -3.0, 0.0], &[[0.0, 0.0, 4.0, 4.0]; 3].map(object), (4, 4));
    assert_eq!([0, 1, 2].map(|object| masks.is_empty(object)), [false, false, true]);
    masks.keep(1, 1);
    masks.map_to_frame(2, &Letterbox::new((8, 4), (4, 4), ResizeMode::Letterbox));
    let found = masks.on_frame(0);
    assert_eq!(found.rect(), Rect::from((8, 4)), "the padding is none of it");
    let text: Vec<u8> = found.to_bytes().iter().map(|&byte| if byte == 255 { b'x' } else { b'.' }).collect();
    assert_eq!(std::str::from_utf8(&text).unwrap(), "..xxxx....xxxx......xx......xx..");
    assert_eq!(found.area() + masks.on_frame(1).area(), 32);
    assert!(found.contains(2, 0) && !found.contains(1, 0) && !found.contains(8, 0) && !found.contains(2, 4));
}

#[test]
fn what_is_odd_has_an_empty_mask() {
    let shape = PrototypeShape { count: 2, width: 1, height: 1 };
    let prototypes = Tensor::from_slice("output1", &[1, 2, 1, 1], &[1.0f32, f32::NAN]);
    let prototypes = Prototypes::new(shape, &prototypes).unwrap();
    let whole = [0.0, 0.0, 32.0, 32.0];
    for (bbox, coefficients, is_empty) in [
        (whole, [1.0, 0.0], true), // 0 times NaN
        (whole, [f32::NAN, 1.0], true),
        ([-9.0, -9.0, -1.0, 40.0], [1.0, 1.0], true),
        ([3.25, 3.25, 3.75, 9.0], [1.0, 1.0], true), // no pixel begins there
        ([1e30, 0.0, 3e30, 9.0], [1.0, 1.0], true),
    ] {
        let mut masks = Masks::default();
        masks.find(&prototypes, &coefficients, &[object(bbox)], (32, 32));
        assert_eq!(masks.is_empty(0), is_empty, "{bbox:?}");
    }
    // One prototype of one pixel: all of the box, or nothing.
    let one = Tensor::from_slice("output1", &[1, 1, 1, 1], &[f16::ONE]);
    let one = Prototypes::new(PrototypeShape { count: 1, ..shape }, &one).unwrap();
    let mut masks = Masks::default();
    masks.find(&one, &[0.5, -0.5], &[object(whole), object(whole)], (32, 32));
    assert_eq!([masks.is_empty(0), masks.is_empty(1)], [false, true]);
    assert!(Prototypes::new(PrototypeShape { count: 3, ..shape }, &Tensor::from_slice("a", &[1], &[0f32])).is_none());
}

proptest! {
    #[test]
    fn run_lengths_are_read_back(
        (width, height) in (1..70u32, 1..12u32),
        (left, top) in (0..9u32, 0..9u32),
        seed in prop::collection::vec(0..9u8, 840),
    ) {
        let rect = Rect { left, top, right: left + width, bottom: top + height };
        let pixels: Vec<bool> = seed.iter().take((width * height) as usize).map(|&byte| byte > 6).collect();
        let mask = Mask::of(rect, &pixels);
        prop_assert_eq!(Mask::from_counts(rect, &mask.counts()), Some(mask.clone()));
        let bytes: Vec<bool> = mask.to_bytes().iter().map(|&byte| byte == 255).collect();
        prop_assert_eq!(bytes, pixels);
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,12}", (width, height) in (0..40u32, 0..40u32)) {
        let rect = Rect::from((width, height));
        if let Some(mask) = Mask::from_counts(rect, &text) {
            prop_assert_eq!(Mask::from_counts(rect, &mask.counts()), Some(mask));
        }
    }

    /// Small whole numbers and scales that are powers of two, so that f32 is exact.
    #[test]
    fn masks_are_those_of_the_formula(
        (count, width, height) in (1..5usize, 1..9usize, 1..9usize),
        scale in prop::sample::select(vec![1u32, 2, 4]),
        numbers in prop::collection::vec(-4..5i8, 4 * 64 + 4),
        (x, y, wide, high) in (-8.0..40f32, -8.0..40f32, 0.1..40f32, 0.1..40f32),
        is_half in any::<bool>(),
    ) {
        let shape = PrototypeShape { count, width, height };
        let numbers: Vec<f32> = numbers.iter().map(|&number| number.into()).collect();
        let (coefficients, values) = numbers.split_at(count);
        let values = &values[..count * width * height];
        let input = (width as u32 * scale, height as u32 * scale);
        let dims = [1, count as i64, height as i64, width as i64];
        let halves: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
        let tensor =
            if is_half { Tensor::from_slice("a", &dims, &halves) } else { Tensor::from_slice("a", &dims, values) };
        let object = object([x, y, x + wide, y + high]);
        let mut masks = Masks::default();
        masks.find(&Prototypes::new(shape, &tensor).unwrap(), coefficients, &[object], input);
        let wanted = slow(shape, values, coefficients, &object.bbox, input);
        prop_assert_eq!(masks.is_empty(0), !wanted.contains(&true));
        masks.map_to_frame(1, &Letterbox::new(input, input, ResizeMode::Letterbox));
        let found = masks.on_frame(0);
        let have: Vec<bool> = (0..input.0 * input.1).map(|at| found.contains(at % input.0, at / input.0)).collect();
        prop_assert_eq!(have, wanted);
    }

    /// However frames are laid into the input, each pixel of the frame shows the pixel of the input that its middle lies in.
    #[test]
    fn frames_of_any_size(
        (frame_width, frame_height, side) in (1..90u32, 1..90u32, 8..40u32),
        fit in prop::sample::select(vec![ResizeMode::Letterbox, ResizeMode::LetterboxTopLeft, ResizeMode::Stretch]),
        numbers in prop::collection::vec(-4..5i8, 64),
    ) {
        let letterbox = Letterbox::new((frame_width, frame_height), (side, side), fit);
        let values: Vec<f32> = numbers.iter().map(|&number| number.into()).collect();
        let tensor = Tensor::from_slice("a", &[1, 1, 8, 8], &values);
        let shape = PrototypeShape { count: 1, width: 8, height: 8 };
        let mut masks = Masks::default();
        masks.find(&Prototypes::new(shape, &tensor).unwrap(), &[1.0], &[object([0.0, 0.0, 99.0, 99.0])], (side, side));
        let mut input = masks.clone();
        input.map_to_frame(1, &Letterbox::new((side, side), (side, side), fit));
        let input = input.on_frame(0);
        masks.map_to_frame(1, &letterbox);
        let found = masks.on_frame(0);
        prop_assert_eq!(found.rect(), Rect::from((frame_width, frame_height)));
        let middle = |at: u32, first: u32, inside: u32, frame: u32| {
            f64::from(first) + (f64::from(at) + 0.5) * f64::from(inside) / f64::from(frame)
        };
        for y in 0..frame_height {
            for x in 0..frame_width {
                let u = middle(x, letterbox.x, letterbox.width, frame_width);
                let v = middle(y, letterbox.y, letterbox.height, frame_height);
                // Middles on an edge may be rounded to either side.
                let near = |at: f64| [(at - 1e-4).floor(), (at + 1e-4).floor()].map(|at| at.clamp(0.0, f64::from(side - 1)) as u32);
                let seen = near(u).into_iter().flat_map(|x| near(v).map(|y| input.contains(x, y)));
                prop_assert!(seen.into_iter().any(|pixel| pixel == found.contains(x, y)), "{} {}", x, y);
            }
        }
    }
}

#[test]
fn a_mask_is_scaled_with_its_picture() {
    let rect = |left, top, right, bottom| Rect { left, top, right, bottom };
    let mask = Mask::of(rect(1, 1, 3, 3), &[true, false, false, true]);
    let whole = |width, height| BBox::from(Rect::from((width, height)));
    assert_eq!(mask.placed((4, 4), &whole(4, 4), (4, 4)), mask);
    let double = mask.placed((4, 4), &whole(8, 8), (8, 8));
    assert_eq!((double.rect(), double.area()), (rect(2, 2, 6, 6), 8));
    assert!(double.contains(2, 3) && double.contains(5, 4) && !double.contains(4, 3));
    let half = double.placed((8, 8), &whole(4, 4), (4, 4));
    assert_eq!(half, mask);
    // On a box that reaches beyond the frame.
    let moved = mask.placed((4, 4), &BBox::new(-2.0, 6.0, 6.0, 14.0), (8, 9));
    assert_eq!((moved.rect(), moved.area()), (rect(0, 8, 4, 9), 2));
    assert_eq!(Mask::default().placed((1, 1), &whole(4, 4), (4, 4)).area(), 0);
}
