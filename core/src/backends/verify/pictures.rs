// SPDX-License-Identifier: MPL-2.0
//! The pictures that engines are tried on: scenes of shaded and patterned shapes before a gradient, the same on every machine.
//! Noise alone would excite no feature of a trained model. For models of sequences they are vectors of the length 1.

use std::sync::Arc;

use smallvec::smallvec;

use crate::error::Result;
use crate::image::clip::maker::ClipMaker;
use crate::image::clip::vector_tensor;
use crate::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use crate::image::geometry::{Letterbox, ResizeMode};
use crate::image::preprocess::Preprocessor;
use crate::image::transform::InputSpec;
use crate::tensor::{Tensor, Tensors};
use crate::vector::normalise;

/// How many there are.
pub const COUNT: usize = 4;
const WIDTH: usize = 640;
const HEIGHT: usize = 480;
const SHAPES: usize = 14;

/// The tensors that the model gets of them, in host memory, and where the pictures are in those.
pub fn tensors(spec: &InputSpec) -> Result<(Vec<Tensor>, Letterbox)> {
    if spec.is_of_vectors() {
        let made = vectors(&spec.of_frame())?;
        return Ok((clips(made, spec)?, Letterbox::new((1u32, 1u32), (1, 1), ResizeMode::Stretch)));
    }
    let color = Colorimetry::default();
    let mut preprocessor = Preprocessor::new(None, PixelFormat::Rgb, (WIDTH, HEIGHT), color, &spec.of_frame())?;
    let mut made = Vec::with_capacity(COUNT);
    for number in 0..COUNT {
        let pixels = scene(number as u32);
        let planes = smallvec![Plane { data: &pixels, stride: 3 * WIDTH }];
        let frame = Frame { format: PixelFormat::Rgb, width: WIDTH, height: HEIGHT, planes };
        made.push(Arc::new(preprocessor.of_host(&frame)?));
    }
    Ok((clips(made, spec)?, *preprocessor.letterbox()))
}

/// Vectors of the length 1 that point in all directions.
fn vectors(spec: &InputSpec) -> Result<Vec<Arc<Tensors>>> {
    let (length, _, _) = spec.chw();
    let vector = |number: usize| {
        let mut numbers = Numbers(0x9e37_79b9 ^ (number as u32 + 1).wrapping_mul(0x85eb_ca6b));
        let mut values: Vec<f32> = (0..length).map(|_| (numbers.below(2001) - 1000) as f32).collect();
        normalise(&mut values);
        vector_tensor(&values, &spec.desc).map(|tensor| Arc::new(Tensors::new(vec![tensor], None, None)))
    };
    (0..COUNT).map(vector).collect()
}

/// The tensors of scenes, or of a model that sees clips those of the scenes one after the other, beginning with each of them.
fn clips(scenes: Vec<Arc<Tensors>>, spec: &InputSpec) -> Result<Vec<Tensor>> {
    let Some(frames) = spec.frames() else {
        return Ok(scenes.iter().flat_map(|scene| scene.iter().map(Tensor::share)).collect());
    };
    let maker = ClipMaker::new(None, spec)?;
    let mut made = Vec::with_capacity(COUNT);
    for first in 0..scenes.len() {
        let all = scenes.iter().cycle().skip(first);
        let frames: Vec<Arc<Tensors>> = all.take(usize::try_from(frames).unwrap_or(0)).cloned().collect();
        made.extend(maker.make(&frames)?.into_ready()?);
    }
    Ok(made)
}

/// Numbers that look random, by xorshift.
struct Numbers(u32);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    fn below(&mut self, limit: usize) -> i32 {
        (self.next() as usize % limit) as i32
    }
}

struct DrawnShape {
    is_disc: bool,
    centre: (i32, i32),
    radii: (i32, i32),
    color: [i32; 3],
    /// Width of its stripes, and whether they cross.
    stripe: i32,
    is_checked: bool,
}

impl DrawnShape {
    fn of(numbers: &mut Numbers) -> Self {
        DrawnShape {
            is_disc: numbers.below(2) == 0,
            centre: (numbers.below(WIDTH), numbers.below(HEIGHT)),
            radii: (12 + numbers.below(110), 12 + numbers.below(90)),
            color: [(); 3].map(|()| 20 + numbers.below(216)),
            stripe: 3 + numbers.below(24),
            is_checked: numbers.below(3) == 0,
        }
    }

    /// The colour of a pixel inside it: striped, and darker towards the lower edge.
    fn pixel(&self, x: i32, y: i32) -> Option<[i32; 3]> {
        let (dx, dy) = (x - self.centre.0, y - self.centre.1);
        // Most pixels are far away from most shapes.
        if dx.abs() > self.radii.0 || dy.abs() > self.radii.1 {
            return None;
        }
        if self.is_disc && (dx * dx * 256 / self.radii.0.pow(2)) + (dy * dy * 256 / self.radii.1.pow(2)) > 256 {
            return None;
        }
        let row = if self.is_checked { y.div_euclid(self.stripe) } else { 0 };
        let is_dark = (x.div_euclid(self.stripe) + row) % 2 != 0;
        let shade = 256 - 70 * (dy + self.radii.1) / (2 * self.radii.1) - if is_dark { 60 } else { 0 };
        Some(self.color.map(|part| part * shade / 256))
    }
}

/// RGB, row by row.
fn scene(number: u32) -> Vec<u8> {
    let mut numbers = Numbers(0x9e37_79b9 ^ (number + 1).wrapping_mul(0x85eb_ca6b));
    let corners = [(); 2].map(|()| [(); 3].map(|()| numbers.below(256)));
    let shapes: Vec<DrawnShape> = (0..SHAPES).map(|_| DrawnShape::of(&mut numbers)).collect();
    let mut pixels = Vec::with_capacity(3 * WIDTH * HEIGHT);
    for y in 0..HEIGHT as i32 {
        for x in 0..WIDTH as i32 {
            let at = (x * 128 / WIDTH as i32) + (y * 128 / HEIGHT as i32);
            let ground = [0, 1, 2].map(|part| (corners[0][part] * (256 - at) + corners[1][part] * at) / 256);
            let color = shapes.iter().rev().find_map(|shape| shape.pixel(x, y)).unwrap_or(ground);
            let grain = numbers.below(9) - 4;
            pixels.extend(color.map(|part| (part + grain).clamp(0, 255) as u8));
        }
    }
    pixels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clips_are_of_all_pictures() {
        let spec: InputSpec = "cpu f32 1x6x3x8x8 ntchw rgb stretch:0 scale:1 clip".parse().unwrap();
        let (clips, letterbox) = tensors(&spec).unwrap();
        assert_eq!((clips.len(), letterbox.tensor_width), (COUNT, 8));
        let (pictures, _) = tensors(&spec.of_frame()).unwrap();
        for (first, clip) in clips.iter().enumerate() {
            assert_eq!(clip.desc(), &spec.desc);
            for (at, frame) in clip.bytes().unwrap().chunks(3 * 8 * 8 * 4).enumerate() {
                assert!(frame == pictures[(first + at) % COUNT].bytes().unwrap(), "{first} {at}");
            }
        }
    }

    #[test]
    fn sequences_are_of_vectors_of_the_length_1() {
        let spec: InputSpec = "cpu f32 1x6x5 ntd rgb stretch:0 scale:1 steps".parse().unwrap();
        let (sequences, letterbox) = tensors(&spec).unwrap();
        assert_eq!((sequences.len(), letterbox.tensor_width), (COUNT, 1));
        for sequence in &sequences {
            assert_eq!(sequence.desc(), &spec.desc);
            for vector in sequence.as_slice::<f32>().unwrap().chunks(5) {
                let length: f32 = vector.iter().map(|value| value * value).sum();
                assert!((length - 1.0).abs() < 1e-5, "{vector:?}");
            }
        }
        assert_ne!(sequences[0].bytes(), sequences[1].bytes());
    }

    #[test]
    fn pictures_are_always_the_same_and_differ_from_each_other() {
        let scenes: Vec<Vec<u8>> = (0..COUNT as u32).map(scene).collect();
        for (number, pixels) in scenes.iter().enumerate() {
            assert_eq!(*pixels, scene(number as u32));
            let (low, high) = (pixels.iter().min().unwrap(), pixels.iter().max().unwrap());
            assert!(high - low > 150, "{number}: {low} to {high}");
            for other in &scenes[..number] {
                let unlike = pixels.iter().zip(other).filter(|(a, b)| a.abs_diff(**b) > 16).count();
                assert!(unlike > pixels.len() / 2, "{unlike} of {}", pixels.len());
            }
        }
    }
}
