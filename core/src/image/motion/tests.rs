// SPDX-License-Identifier: MPL-2.0
//! Scenes: what is motion in them, and what is not.

use proptest::prelude::*;

use super::*;
use crate::image::frame::Plane;

const WIDTH: usize = 320;
const HEIGHT: usize = 184;
const OPTIONS: MotionOptions = MotionOptions { gate: 0.0005, threshold: 12, refresh: 0 };

/// A scene in luma, with noise.
struct Scene {
    pixels: Vec<f32>,
    /// About those of a normal distribution, of deviation 1.
    noise: Vec<f32>,
    random: u64,
}

impl Scene {
    /// Edges and slopes.
    fn new() -> Self {
        let pixel = |at: usize| {
            let (x, y) = (at % WIDTH, at / WIDTH);
            40.0 + (x / 40 * 53 % 150) as f32 + y as f32 / 6.0
        };
        let mut scene = Scene { pixels: (0..WIDTH * HEIGHT).map(pixel).collect(), noise: Vec::new(), random: 1 };
        let mut sum_of_four = || (0..4).map(|_| (scene.next() >> 40) as f32 / (1 << 24) as f32 - 0.5).sum::<f32>();
        scene.noise = (0..3 * WIDTH * HEIGHT).map(|_| sum_of_four() * 3f32.sqrt()).collect();
        scene
    }

    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.random
    }

    /// A frame: the light times a factor, noise, and an object of that brightness at a place and of a size.
    fn frame(&mut self, light: f32, deviation: f32, object: Option<([f32; 2], [f32; 2], f32)>) -> Vec<u8> {
        let mut values = self.pixels.clone();
        if let Some(([left, top], [width, height], brightness)) = object {
            // Of a pixel that it covers in part, that part.
            let part = |from: f32, to: f32, at: usize| (to.min(at as f32 + 1.0) - from.max(at as f32)).clamp(0.0, 1.0);
            for y in top as usize..HEIGHT.min((top + height) as usize + 1) {
                for x in left as usize..WIDTH.min((left + width) as usize + 1) {
                    let value = &mut values[y * WIDTH + x];
                    *value += (brightness - *value) * part(left, left + width, x) * part(top, top + height, y);
                }
            }
        }
        let from = self.next() as usize % (2 * WIDTH * HEIGHT);
        let noise = &self.noise[from..];
        values.iter().zip(noise).map(|(value, noise)| (value * light + noise * deviation + 0.5) as u8).collect()
    }
}

fn opens(gate: &mut MotionGate, bytes: &[u8]) -> bool {
    let planes = [Plane { data: bytes, stride: WIDTH }].into_iter().collect();
    gate.opens_for(&Frame { format: PixelFormat::Gray8, width: WIDTH, height: HEIGHT, planes })
}

#[test]
fn a_still_scene_opens_for_its_first_frame_only() {
    for deviation in [0.0, 3.0, 10.0] {
        let (mut scene, mut gate) = (Scene::new(), MotionGate::new(OPTIONS));
        let opened = (0..100).filter(|_| opens(&mut gate, &scene.frame(1.0, deviation, None))).count();
        assert_eq!(opened, 1, "noise of {deviation}");
    }
}

#[test]
fn a_light_that_flickers_or_fades_is_no_motion() {
    let (mut scene, mut gate) = (Scene::new(), MotionGate::new(OPTIONS));
    // A tube of 50 Hz in a camera of 25 frames: 4 % from frame to frame. And clouds: 6 % in 12 seconds.
    for number in 0..300 {
        let light = (1.0 + 0.04 * (number as f32 * 2.1).sin()) * (1.0 - 0.06 * number as f32 / 300.0);
        assert_eq!(opens(&mut gate, &scene.frame(light, 3.0, None)), number == 0, "frame {number}");
    }
}

#[test]
fn the_first_frame_of_a_motion_is_never_missed() {
    let mut scene = Scene::new();
    for (size, brightness) in [([12.0, 24.0], 10.0), ([16.0, 16.0], 250.0), ([160.0, 90.0], 100.0)] {
        for number in 0..15u32 {
            let mut gate = MotionGate::new(OPTIONS);
            for _ in 0..5 {
                opens(&mut gate, &scene.frame(1.0, 3.0, None));
            }
            let place = [(number * 37 % 150) as f32 + 0.3, (number * 23 % 90) as f32 + 0.6];
            assert!(opens(&mut gate, &scene.frame(1.0, 3.0, Some((place, size, brightness)))), "{size:?} {place:?}");
        }
    }
}

#[test]
fn a_slow_object_is_seen_all_the_way() {
    let (mut scene, mut gate) = (Scene::new(), MotionGate::new(OPTIONS));
    for _ in 0..30 {
        opens(&mut gate, &scene.frame(1.0, 2.0, None));
    }
    // A pixel in 10 frames.
    let missed: Vec<u32> = (0..400)
        .filter(|&number| {
            let place = [100.0 + number as f32 * 0.1, 60.0];
            !opens(&mut gate, &scene.frame(1.0, 2.0, Some((place, [24.0, 60.0], 20.0))))
        })
        .collect();
    assert!(missed.is_empty(), "{missed:?}");
    // It stops, and is a part of the scene after some seconds.
    let place = [140.0, 60.0];
    let mut rest = || opens(&mut gate, &scene.frame(1.0, 2.0, Some((place, [24.0, 60.0], 20.0))));
    assert!(rest(), "it has only just stopped");
    let open: Vec<bool> = (0..240).map(|_| rest()).collect();
    assert!(open[..50].iter().all(|&open| open) && open[200..].iter().all(|&open| !open), "{open:?}");
}

#[test]
fn a_cut_is_motion_also_between_plain_scenes() {
    let (mut scene, mut gate) = (Scene::new(), MotionGate::new(OPTIONS));
    for _ in 0..20 {
        opens(&mut gate, &scene.frame(1.0, 3.0, None));
    }
    let plain = |value: u8| vec![value; WIDTH * HEIGHT];
    assert!(opens(&mut gate, &plain(128)));
    let mut gate = MotionGate::new(OPTIONS);
    assert!(opens(&mut gate, &plain(20)) && !opens(&mut gate, &plain(20)));
    assert!(opens(&mut gate, &plain(200)), "more than light changes");
}

#[test]
fn still_frames_are_refreshed() {
    let mut gate = MotionGate::new(MotionOptions { refresh: 5, ..OPTIONS });
    let plain = vec![90; WIDTH * HEIGHT];
    let open: Vec<bool> = (0..13).map(|_| opens(&mut gate, &plain)).collect();
    let open: Vec<usize> = (0..13).filter(|&number| open[number]).collect();
    assert_eq!(open, [0, 6, 12]);
    gate.reset();
    assert!(opens(&mut gate, &plain), "what comes next is another stream");
}

#[test]
fn the_gate_is_a_part_of_the_picture() {
    // 40 x 23 cells; one of them has changed, or two.
    let cells = |count: usize| {
        let mut bytes = vec![90; WIDTH * HEIGHT];
        (0..8).for_each(|y| bytes[y * WIDTH..][..8 * count].fill(200));
        bytes
    };
    for (gate, count, expected) in
        [(1e-9, 1, true), (1.0 / 920.0, 1, true), (1.5 / 920.0, 1, false), (1.5 / 920.0, 2, true), (1.0, 2, false)]
    {
        let mut gate = MotionGate::new(MotionOptions { gate, ..OPTIONS });
        opens(&mut gate, &cells(0));
        assert_eq!(opens(&mut gate, &cells(count)), expected, "{count}");
    }
    for (threshold, expected) in [(109, true), (111, false)] {
        let mut gate = MotionGate::new(MotionOptions { threshold, ..OPTIONS });
        opens(&mut gate, &cells(0));
        assert_eq!(opens(&mut gate, &cells(1)), expected, "{threshold}");
    }
}

proptest! {
    /// A frame is the same motion in each format: the luma of grey is its value.
    #[test]
    fn each_format_has_the_same_luma(
        (width, height) in (1..40usize, 1..30usize),
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 1200), 2..5),
        slack in 0..4usize,
    ) {
        let seen = |format: PixelFormat| {
            let mut motion = HostMotion::new((width, height));
            frames.iter().map(|values| {
                let planes: Vec<(Vec<u8>, usize)> = format.planes(width, height).into_iter().map(|(row, rows)| {
                    let stride = row + 2 * slack;
                    let mut bytes = vec![170; stride * rows];
                    for (y, x) in (0..rows).flat_map(|y| (0..width).map(move |x| (y, x))) {
                        let value = values[(y * width + x) % values.len()];
                        let size = format.pixel_bytes();
                        if (x + 1) * size <= row {
                            bytes[y * stride + x * size..][..size].fill(value);
                        }
                    }
                    (bytes, stride)
                }).collect();
                let planes = planes.iter().map(|(data, stride)| Plane { data, stride: *stride }).collect();
                motion.changed(&Frame { format, width, height, planes }, 5)
            }).collect::<Vec<_>>()
        };
        let grey = seen(PixelFormat::Gray8);
        for format in PixelFormat::ALL {
            prop_assert_eq!(seen(format), grey.clone(), "{}", format.name());
        }
    }
}
