// SPDX-License-Identifier: MPL-2.0
//! Pictures of a clip as trtpreprocess makes them. Of zeros alone an engine would take less power, and so run faster than it does
//! in a pipeline.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_app::AppSrc;
use gsttrt::gst::meta::tensor::TensorMeta;
use gsttrt_core::error::Result;
use gsttrt_core::tensor::Tensors;

use crate::clip::Clip;

/// How many: as many as in a large batch.
const COUNT: usize = 16;

/// An engine may have to be built.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// The tensors of the first frames for a model; `preprocess` and `infer` are properties of trtpreprocess and trtinfer.
pub fn of(clip: &Clip, preprocess: &str, infer: &str) -> std::result::Result<Vec<Vec<u8>>, String> {
    let elements = format!("! trtpreprocess name=pictures {preprocess} ! trtinfer {infer}");
    let line = clip.branch(0, 0, false, &elements);
    let pipeline = gst::parse::launch(&line).map_err(|error| format!("{line}: {error}"))?;
    let pipeline = pipeline.downcast::<gst::Pipeline>().expect("several elements");
    clip.context().into_iter().for_each(|context| pipeline.set_context(context));
    let (sender, pictures) = sync_channel(COUNT);
    let made = pipeline.by_name("pictures").unwrap().static_pad("src").unwrap();
    made.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let payload = info.buffer().and_then(|buffer| TensorMeta::input(buffer));
        // What is beyond the count is not taken.
        let all = payload.iter().flat_map(|payload| &payload.inputs().list);
        all.for_each(|picture| drop(sender.try_send(bytes(&picture.tensors))));
        gst::PadProbeReturn::Ok
    });
    let (bus, is_over) = (pipeline.bus().expect("a pipeline has one"), AtomicBool::new(false));
    thread::scope(|scope| {
        let source = pipeline.by_name("source0").unwrap().downcast::<AppSrc>().unwrap();
        let goes_on = || !is_over.load(Ordering::Relaxed);
        scope.spawn(move || clip.feed(&source, 0, Duration::ZERO, goes_on));
        let _ = pipeline.set_state(gst::State::Playing); // what fails is on the bus
        let taken = take(&pictures, &bus);
        is_over.store(true, Ordering::Relaxed);
        let _ = pipeline.set_state(gst::State::Null);
        taken
    })
}

/// As many as are wanted, or what is wrong.
fn take(pictures: &Receiver<Result<Vec<u8>>>, bus: &gst::Bus) -> std::result::Result<Vec<Vec<u8>>, String> {
    let (mut taken, begun) = (Vec::new(), Instant::now());
    while taken.len() < COUNT {
        match pictures.recv_timeout(Duration::from_millis(20)) {
            Ok(picture) => taken.push(picture.map_err(|error| error.to_string())?),
            Err(_) if begun.elapsed() > TIMEOUT => {
                return Err(format!("{COUNT} frames have not come from trtpreprocess within {} s", TIMEOUT.as_secs()));
            }
            Err(_) => {}
        }
        let error = bus.pop_filtered(&[gst::MessageType::Error]);
        if let Some(gst::MessageView::Error(error)) = error.as_ref().map(|error| error.view()) {
            return Err(format!("{} ({:?})", error.error(), error.debug()));
        }
    }
    Ok(taken)
}

/// Those of the one tensor.
fn bytes(tensors: &Tensors) -> Result<Vec<u8>> {
    tensors.wait()?;
    match tensors[0].device() {
        Some(memory) => memory.read(),
        None => Ok(tensors[0].bytes().expect("it is on the host").to_vec()),
    }
}
