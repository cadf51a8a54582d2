//! Reads detections in an application: the labels, scores and boxes that trtnms hangs on each buffer.
//!
//! `cargo run --example detections tests/data/sample.mp4 tests/models/shapes.onnx`

use gst::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (video, model) = (std::env::args().nth(1).ok_or("no video")?, std::env::args().nth(2).ok_or("no model")?);
    gst::init()?;
    gsttrt::plugin_register_static()?; // or GST_PLUGIN_PATH
    // README: begin
    let line = format!(
        "filesrc location={video} ! decodebin ! videoconvert ! trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false ! appsink name=out sync=false"
    );
    let pipeline = gst::parse::launch(&line)?.downcast::<gst::Pipeline>().unwrap();
    let out = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing)?;
    while let Ok(sample) = out.pull_sample() {
        for roi in sample.buffer().unwrap().iter_meta::<gst_video::VideoRegionOfInterestMeta>() {
            let confidence = roi.param("detection").and_then(|detection| detection.get::<f64>("confidence").ok());
            println!("{} {:.2} {:?}", roi.roi_type(), confidence.unwrap_or(0.0), roi.rect());
        }
    }
    // README: end
    pipeline.set_state(gst::State::Null)?;
    Ok(())
}
