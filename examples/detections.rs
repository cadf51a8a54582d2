// SPDX-License-Identifier: MPL-2.0
//! Prints the objects in a video: label, confidence and box of each, as trtnms attaches them to the frames.
//!
//! `cargo run --example detections tests/data/sample.mp4 tests/models/shapes.onnx`

use std::process::ExitCode;

use gst::prelude::*;

fn detections(video: &str, model: &str) -> Result<(), Box<dyn std::error::Error>> {
    // README: begin
    gst::init()?;
    gsttrt::plugin_register_static()?; // the plugin is in this program: GST_PLUGIN_PATH is not needed
    let pipeline = gst::parse::launch(&format!(
        "filesrc location=\"{video}\" ! decodebin ! videoconvert ! trtpreprocess ! trtinfer model-file=\"{model}\" \
         ! trtnms draw=false ! appsink name=out sync=false"
    ))?;
    let pipeline = pipeline.downcast::<gst::Pipeline>().expect("several elements");
    let out = pipeline.by_name("out").and_downcast::<gst_app::AppSink>().expect("named above");
    let bus = pipeline.bus().expect("a pipeline has a bus");
    let started = pipeline.set_state(gst::State::Playing).is_ok();
    let kinds = [gst::MessageType::Warning, gst::MessageType::Error, gst::MessageType::Eos];
    let end = loop {
        let message = bus.pop_filtered(&kinds);
        if let Some(gst::MessageView::Warning(warning)) = message.as_ref().map(|message| message.view()) {
            eprintln!("Warning: {}", warning.error());
            continue;
        }
        if message.is_some() || !started {
            break message;
        }
        let Some(sample) = out.try_pull_sample(gst::ClockTime::from_mseconds(100)) else { continue };
        for roi in sample.buffer().expect("of a frame").iter_meta::<gst_video::VideoRegionOfInterestMeta>() {
            // Missing where a converter behind trtnms has dropped it.
            let confidence = roi.param("detection").and_then(|detection| detection.get::<f64>("confidence").ok());
            let confidence = confidence.map_or("?".to_string(), |confidence| format!("{confidence:.2}"));
            println!("{} {confidence} {:?}", roi.roi_type(), roi.rect());
        }
    };
    pipeline.set_state(gst::State::Null)?;
    match end.as_ref().map(|message| message.view()) {
        Some(gst::MessageView::Eos(_)) => Ok(()),
        Some(gst::MessageView::Error(error)) => {
            let debug = error.debug().unwrap_or_default();
            let detail = debug.split_once('\n').map_or("", |(_, detail)| detail); // such as which file is not there
            Err(format!("{} {detail}", error.error()).into())
        }
        _ => Err("The pipeline does not start.".into()),
    }
    // README: end
}

fn main() -> ExitCode {
    // `| head` may end the program.
    // SAFETY: no other thread runs yet, and it is what C programs have.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &arguments[..] {
        [video, model] => detections(video, model),
        _ => Err("Usage: detections VIDEO MODEL".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}
