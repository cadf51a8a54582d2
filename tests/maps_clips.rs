// SPDX-License-Identifier: MPL-2.0
//! Our trained models of maps on clips after H.264, each pixel of each frame against the truth that the clip was
//! rendered with.

use std::sync::{Arc, Mutex};

use gst::meta::CustomMeta;
use gst::prelude::*;
use gsttrt_core::image::geometry::Rect;
use gsttrt_core::image::masks::Mask;
use serde_json::Value;

use crate::common::path;
use crate::common::pipeline::{init, run};

/// A map of a frame as the plugin attaches it.
struct Found {
    size: [usize; 2],
    /// Bytes of the pixels: one each of classes, two each of depths.
    picture: Vec<u8>,
    /// Of depths.
    range: [f64; 2],
}

impl Found {
    fn of(buffer: &gst::BufferRef) -> Self {
        let maps = CustomMeta::from_buffer(buffer, "GstTrtMapMeta").unwrap();
        let maps = maps.structure().get::<gst::Array>("maps").unwrap();
        let [map] = maps.as_slice() else { panic!("{maps:?}") };
        let map = map.get::<gst::Structure>().unwrap();
        let size = ["map-width", "map-height"].map(|name| map.get::<u32>(name).unwrap() as usize);
        let range = ["minimum", "maximum"].map(|name| map.get(name).unwrap_or_default());
        let picture = map.get::<gst::Buffer>("picture").unwrap().map_readable().unwrap().to_vec();
        Found { size, picture, range }
    }

    fn depth(&self, at: usize) -> f64 {
        let value = u16::from_le_bytes([self.picture[2 * at], self.picture[2 * at + 1]]);
        self.range[0] + (self.range[1] - self.range[0]) * f64::from(value) / 65535.0
    }
}

/// The truth of a clip, and what the model finds in its frames.
fn play(clip: &str, model: &str) -> (Value, Vec<Found>) {
    init();
    let line = format!(
        "filesrc location={} ! decodebin ! trtpreprocess ! trtinfer model-file={} backend=cpu ! trtnms draw=false \
         ! fakesink name=sink",
        path(&format!("tests/data/{clip}.mp4")),
        path(&format!("tests/models/{model}.onnx"))
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let found = Arc::new(Mutex::new(Vec::new()));
    let collected = found.clone();
    let pad = pipeline.by_name("sink").unwrap().static_pad("sink").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        collected.lock().unwrap().push(Found::of(info.buffer().unwrap()));
        gst::PadProbeReturn::Ok
    });
    run(&pipeline).expect_success();
    let truth: Value =
        serde_json::from_str(&std::fs::read_to_string(path(&format!("tests/data/{clip}.json"))).unwrap()).unwrap();
    let found = std::mem::take(&mut *found.lock().unwrap());
    assert_eq!(found.len(), truth["frames"].as_array().unwrap().len());
    (truth, found)
}

fn frame_of(truth: &Value) -> [usize; 2] {
    ["width", "height"].map(|name| truth[name].as_u64().unwrap() as usize)
}

/// For each pixel of a frame, the index of the one of the maps that covers it. All maps have the same size.
fn covering(found: &[Found], frame: [usize; 2]) -> Vec<usize> {
    let size = found[0].size;
    assert!(found.iter().all(|found| found.size == size));
    let of_row = |y: usize| (0..frame[0]).map(move |x| y * size[1] / frame[1] * size[0] + x * size[0] / frame[0]);
    (0..frame[1]).flat_map(of_row).collect()
}

/// Writes a value to all pixels of an object's mask.
fn fill<T: Copy>(pixels: &mut [T], width: usize, object: &Value, value: T) {
    let number = |name: &str| object[name].as_u64().unwrap() as u32;
    let (left, top) = (number("mask-x"), number("mask-y"));
    let rect = Rect { left, top, right: left + number("mask-width"), bottom: top + number("mask-height") };
    let mask = Mask::from_counts(rect, object["mask-counts"].as_str().unwrap()).unwrap();
    for y in rect.top..rect.bottom {
        for x in (rect.left..rect.right).filter(|&x| mask.contains(x, y)) {
            pixels[y as usize * width + x as usize] = value;
        }
    }
}

#[test]
fn classes_are_those_of_the_scenes() {
    let (truth, found) = play("shapes", "shapes-sem");
    let frame = frame_of(&truth);
    let covering = covering(&found, frame);
    // How often a pixel of a class (rows) was found to be of a class: background, disc, box, star.
    let mut pairs = [[0u64; 4]; 4];
    for (objects, found) in truth["frames"].as_array().unwrap().iter().zip(&found) {
        let mut classes = vec![0; frame[0] * frame[1]];
        for object in objects.as_array().unwrap() {
            fill(&mut classes, frame[0], object, object["class_id"].as_u64().unwrap() as usize + 1);
        }
        for (class, at) in classes.into_iter().zip(&covering) {
            pairs[class][usize::from(found.picture[*at])] += 1;
        }
    }
    let iou = [0, 1, 2, 3].map(|class: usize| {
        let either =
            pairs[class].iter().sum::<u64>() + pairs.iter().map(|row| row[class]).sum::<u64>() - pairs[class][class];
        pairs[class][class] as f64 / either as f64
    });
    let mean = iou.iter().sum::<f64>() / 4.0;
    println!("mIoU {mean:.4}, of background, disc, box and star {iou:.4?}");
    assert!(mean >= 0.8, "{mean}: {iou:?}");
}

#[test]
fn depths_are_those_of_the_rooms() {
    // As tests/models/rooms.py has them: metres of the camera above the floor, heights of the frame in its focal length.
    const EYE: f64 = 1.6;
    const FOCUS: f64 = 0.9;
    let (truth, found) = play("rooms", "rooms-depth");
    let frame = frame_of(&truth);
    let covering = covering(&found, frame);
    let (mut errors, mut near, mut count) = (0.0, 0u64, 0u64);
    for (room, found) in truth["frames"].as_array().unwrap().iter().zip(&found) {
        let number = |name: &str| room[name].as_f64().unwrap();
        let floor = |y: usize| match y as f64 + 0.5 - number("horizon") {
            below if below > 0.0 => FOCUS * EYE * frame[1] as f64 / below,
            _ => f64::INFINITY,
        };
        let mut depths = Vec::with_capacity(frame[0] * frame[1]);
        (0..frame[1]).for_each(|y| depths.extend(vec![floor(y).min(number("wall")); frame[0]]));
        for object in room["objects"].as_array().unwrap() {
            fill(&mut depths, frame[0], object, object["depth"].as_f64().unwrap());
        }
        for (depth, at) in depths.into_iter().zip(&covering) {
            let have = found.depth(*at);
            errors += (have - depth).abs() / depth;
            near += u64::from((have / depth).max(depth / have) < 1.25);
            count += 1;
        }
    }
    let (relative, near) = (errors / count as f64, near as f64 / count as f64);
    println!("mean relative error {relative:.4}, within a factor of 1.25 {near:.4}");
    assert!(relative <= 0.115 && near >= 0.85, "{relative} {near}");
}
