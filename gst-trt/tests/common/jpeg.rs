// SPDX-License-Identifier: MPL-2.0
//! Pictures that are made and changed byte by byte.

use std::path::Path;

use gst::prelude::*;

use super::{init, picture};

/// A JPEG picture of that size.
pub fn of(folder: &Path, width: u32, height: u32) -> Vec<u8> {
    let file = folder.join("made.jpg");
    picture(&file, width, height);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    bytes
}

/// The same with another size in its header.
pub fn of_size(mut picture: Vec<u8>, width: u16, height: u16) -> Vec<u8> {
    let frame = picture.windows(2).position(|two| two == [0xFF, 0xC0]).expect("a baseline picture has this marker");
    picture[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    picture[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    picture
}

/// The width and the height of a picture, and its mean luma.
pub fn picture_of(jpeg: &[u8]) -> (i32, i32, f64) {
    init();
    let line = "appsrc name=in ! jpegdec ! videoconvert ! video/x-raw,format=GRAY8 ! appsink name=out sync=false";
    let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let input = pipeline.by_name("in").unwrap().downcast::<gst_app::AppSrc>().unwrap();
    let output = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    input.set_caps(Some(&gst::Caps::builder("image/jpeg").build()));
    pipeline.set_state(gst::State::Playing).unwrap();
    input.push_buffer(gst::Buffer::from_slice(jpeg.to_vec())).unwrap();
    input.end_of_stream().unwrap();
    let sample = output.try_pull_sample(gst::ClockTime::from_seconds(60)).expect("a picture");
    pipeline.set_state(gst::State::Null).unwrap();
    let size = sample.caps().unwrap().structure(0).unwrap();
    let (width, height) = (size.get("width").unwrap(), size.get("height").unwrap());
    let map = sample.buffer().unwrap().map_readable().unwrap();
    let mean = map.iter().map(|&byte| f64::from(byte)).sum::<f64>() / map.len() as f64;
    (width, height, mean)
}
