// SPDX-License-Identifier: MPL-2.0
//! trtpreprocess by itself: frames for it, and a look at what it makes of them.

use std::sync::{Arc, Mutex};

use gst::prelude::*;
use gst_check::Harness;
use gst_video::{VideoFormat, VideoFrameFlags, VideoInfo, VideoMeta};
use gsttrt::gst::meta::tensor::{Payload, TensorMeta};
use gsttrt_core::tensor::Tensor;

use super::Outcome;

/// trtpreprocess alone, and its messages.
pub struct Bench {
    pub harness: Harness,
    bus: gst::Bus,
}

impl Bench {
    pub fn new(properties: &str) -> Self {
        super::init();
        let element = gst::parse::launch(&format!("trtpreprocess {properties}")).unwrap();
        let bus = gst::Bus::new();
        element.set_bus(Some(&bus));
        Bench { harness: Harness::with_element(&element, Some("sink"), Some("src")), bus }
    }

    /// With caps set, which it takes.
    pub fn with_caps(properties: &str, caps: &str) -> Self {
        let mut bench = Bench::new(properties);
        bench.harness.set_src_caps_str(caps);
        bench
    }

    /// Sends a frame with caps that it refuses.
    #[track_caller]
    pub fn expect_refusal(&mut self, caps: &str) {
        self.harness.push_event(gst::event::StreamStart::new("test"));
        self.harness.push_event(gst::event::Caps::new(&caps.parse().unwrap()));
        self.harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
        for _ in 0..2 {
            let pushed = self.harness.push(gst::Buffer::from_mut_slice(vec![0; 64]));
            assert_eq!(pushed, Err(gst::FlowError::NotNegotiated), "{caps}");
        }
    }

    #[track_caller]
    pub fn tensor(&mut self, frame: gst::Buffer) -> Input {
        let pushed = self.harness.push(frame);
        assert_eq!(pushed, Ok(gst::FlowSuccess::Ok), "{:?}", self.said());
        input(&self.harness.pull().unwrap())
    }

    /// Errors and warnings, with their domains.
    pub fn said(&self) -> Vec<(String, String)> {
        let messages = self.bus.iter_filtered(&[gst::MessageType::Error, gst::MessageType::Warning]);
        let errors = messages.map(|message| match message.view() {
            gst::MessageView::Error(message) => message.error(),
            gst::MessageView::Warning(message) => message.error(),
            _ => unreachable!(),
        });
        errors.map(|error| (super::domain(&error), error.to_string())).collect()
    }
}

/// A tensor that trtpreprocess made.
pub struct Input(pub Arc<Payload>);

#[track_caller]
pub fn input(buffer: &gst::BufferRef) -> Input {
    assert_eq!(buffer.iter_meta::<TensorMeta>().count(), 1);
    Input(TensorMeta::get(buffer).unwrap())
}

impl Input {
    pub fn tensor(&self) -> &Tensor {
        assert!(matches!(*self.0, Payload::Input(_)), "{:?}", self.0);
        &self.0.inputs().list[0].tensors[0]
    }

    pub fn desc(&self) -> String {
        self.tensor().desc().to_string()
    }

    /// Channels of a pixel; of an f32, f16 or u8 tensor in either order.
    pub fn pixel(&self, x: usize, y: usize) -> Vec<f32> {
        let tensor = self.tensor();
        let values: Vec<f32> = None
            .or_else(|| tensor.as_slice::<f32>().map(<[f32]>::to_vec))
            .or_else(|| tensor.as_slice::<half::f16>().map(|values| values.iter().map(|v| v.to_f32()).collect()))
            .or_else(|| tensor.as_slice::<u8>().map(|values| values.iter().map(|&v| v.into()).collect()))
            .unwrap();
        match tensor.desc().dims.iter().map(|&dim| dim as usize).collect::<Vec<_>>()[..] {
            [1, c @ (1 | 3), h, w] => (0..c).map(|c| values[(c * h + y) * w + x]).collect(),
            [1, _, w, c] => values[(y * w + x) * c..][..c].to_vec(),
            ref dims => panic!("{dims:?}"),
        }
    }
}

#[track_caller]
pub fn assert_near(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    let near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= tolerance);
    assert!(near && found.len() == expected.len(), "{what}: {found:?}, not {expected:?}");
}

pub fn video(format: &str, width: u32, height: u32, more: &str) -> String {
    format!("video/x-raw,format={format},width={width},height={height},framerate=30/1{more}")
}

pub fn info(caps: &str) -> VideoInfo {
    super::init();
    VideoInfo::from_caps(&caps.parse::<gst::Caps>().unwrap()).unwrap()
}

/// A frame that has the same pixel everywhere, given as its bytes in each plane.
pub fn solid(caps: &str, pixel: &[&[u8]]) -> gst::Buffer {
    let info = info(caps);
    let mut bytes = vec![0; info.size()];
    for (plane, pixel) in pixel.iter().enumerate() {
        let end = info.offset().get(plane + 1).copied().unwrap_or(info.size());
        let stride = info.stride()[plane] as usize;
        let mut line = pixel.repeat(stride / pixel.len());
        line.resize(stride, 0);
        for row in bytes[info.offset()[plane]..end].chunks_mut(stride) {
            row.copy_from_slice(&line[..row.len()]);
        }
    }
    gst::Buffer::from_mut_slice(bytes)
}

pub fn set_meta(buffer: &mut gst::Buffer, format: VideoFormat, size: (u32, u32), offsets: &[usize], strides: &[i32]) {
    let buffer = buffer.get_mut().unwrap();
    VideoMeta::add_full(buffer, VideoFrameFlags::empty(), format, size.0, size.1, offsets, strides).unwrap();
}

/// Runs a launch line and collects the tensors that leave its trtpreprocess named p.
pub fn tensors(line: &str) -> (Outcome, Vec<Input>) {
    super::init();
    let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let collected = collect(&pipeline);
    let outcome = super::run(&pipeline);
    (outcome, std::mem::take(&mut collected.lock().unwrap()))
}

pub fn collect(pipeline: &gst::Pipeline) -> Arc<Mutex<Vec<Input>>> {
    let collected = Arc::new(Mutex::new(Vec::new()));
    let pad = pipeline.by_name("p").unwrap().static_pad("src").unwrap();
    let theirs = collected.clone();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        theirs.lock().unwrap().push(input(info.buffer().unwrap()));
        gst::PadProbeReturn::Ok
    });
    collected
}
