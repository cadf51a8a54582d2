//! Detects objects in a picture, without a pipeline: session MODEL PICTURE.ppm

use std::error::Error;
use std::io::{BufRead, Read};

use gsttrt::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt::session::{Detector, PostprocessOptions, SessionOptions};

fn detect(model: &str, pixels: &[u8], width: usize, height: usize) -> Result<(), Box<dyn Error>> {
    // README: begin
    let options = PostprocessOptions { score_threshold: 0.5, ..PostprocessOptions::default() };
    let mut detector = Detector::open(model, &SessionOptions::default(), options)?;
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

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, picture] = &arguments[..] else { return Err("Usage: session MODEL PICTURE.ppm".into()) };
    let mut file = std::io::BufReader::new(std::fs::File::open(picture)?);
    let mut header = String::new();
    file.read_line(&mut header)?;
    let fields: Vec<&str> = header.split_whitespace().collect();
    let ["P6", width, height, "255"] = fields[..] else {
        return Err("The picture must begin with a line “P6 width height 255”".into());
    };
    let mut pixels = Vec::new();
    file.read_to_end(&mut pixels)?;
    detect(model, &pixels, width.parse()?, height.parse()?)
}
