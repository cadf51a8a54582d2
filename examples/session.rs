// SPDX-License-Identifier: MPL-2.0
//! Detects objects in a picture, without a pipeline: session MODEL PICTURE.ppm
//!
//! Any picture becomes a PPM by:
//! `gst-launch-1.0 filesrc location=a.jpg ! decodebin ! videoconvert ! pnmenc ! filesink location=a.ppm`

use std::error::Error;
use std::process::ExitCode;

use gsttrt_core::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::session::{Detector, parse_options};

fn detect(model: &str, pixels: &[u8], width: usize, height: usize) -> Result<(), Box<dyn Error>> {
    // README: begin
    let (options, postprocess) = parse_options(["score-threshold=0.5"])?;
    let mut detector = Detector::open(model, &options, postprocess)?;
    let planes = [Plane { data: pixels, stride: width * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width, height, planes };
    for object in detector.detect(&frame, Colorimetry::default())? {
        let (label, bbox) = (&object.label, object.bbox);
        let (x, y, w, h) = (bbox.x1, bbox.y1, bbox.width(), bbox.height());
        println!("{label} {:.2} ({x:.1}, {y:.1}, {w:.1}, {h:.1})", object.confidence);
    }
    // README: end
    Ok(())
}

/// Width, height and pixels of a binary PPM picture.
fn read(picture: &str) -> Result<(usize, usize, Vec<u8>), Box<dyn Error>> {
    let bytes = std::fs::read(picture).map_err(|error| format!("Cannot read {picture}: {error}."))?;
    let wrong = || format!("{picture} is no binary PPM picture (P6) with 8 bits a sample.");
    // Four words with blanks and comments between them, and one blank after the last.
    let (mut words, mut rest) = (Vec::new(), &bytes[..]);
    while words.len() < 4 {
        rest = rest.trim_ascii_start();
        let end = match rest.first() {
            Some(b'#') => rest.iter().position(|&byte| byte == b'\n'),
            _ => rest.iter().position(u8::is_ascii_whitespace),
        };
        let (word, behind) = rest.split_at(end.ok_or_else(wrong)?);
        if !word.starts_with(b"#") {
            words.push(std::str::from_utf8(word)?);
        }
        rest = behind;
    }
    let ["P6", width, height, "255"] = words[..] else { return Err(wrong().into()) };
    Ok((width.parse()?, height.parse()?, rest[1..].to_vec()))
}

fn main() -> ExitCode {
    // `| head` may end the program.
    // SAFETY: no other thread runs yet, and it is what C programs have.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &arguments[..] {
        [model, picture] => read(picture).and_then(|(width, height, pixels)| detect(model, &pixels, width, height)),
        _ => Err("Usage: session MODEL PICTURE.ppm".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}
