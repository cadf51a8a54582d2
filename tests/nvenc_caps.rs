//! The encoder leg by its caps: what NVIDIA's encoder elements take is what trtnms offers, in CUDA memory.
//!
//! The encoders are played by pads with their templates, as GStreamer's documentation gives them. The NVENC hardware itself is
//! not part of this.

mod common;

use common::init;
use gst::prelude::*;

/// Documented sink templates, without the memories that do not matter here.
const ENCODERS: [(&str, &str); 5] = [
    (
        "nvh264enc of GStreamer 1.22 and 1.24",
        "video/x-raw(memory:CUDAMemory), format=(string){ NV12, YV12, I420, BGRA, RGBA, Y444, VUYA }, \
         width=(int)[ 145, 4096 ], height=(int)[ 49, 4096 ], framerate=(fraction)[ 0/1, 2147483647/1 ], \
         interlace-mode=(string){ progressive }; \
         video/x-raw, format=(string){ NV12, YV12, I420, BGRA, RGBA, Y444, VUYA }, \
         width=(int)[ 145, 4096 ], height=(int)[ 49, 4096 ], framerate=(fraction)[ 0/1, 2147483647/1 ], \
         interlace-mode=(string){ progressive }",
    ),
    (
        "nvcudah264enc of GStreamer 1.22",
        "video/x-raw(memory:CUDAMemory), format=(string){ NV12, Y444 }, width=(int)[ 160, 4096 ], height=(int)[ 64, 4096 ], \
         interlace-mode=(string)progressive; \
         video/x-raw, format=(string){ NV12, Y444 }, width=(int)[ 160, 4096 ], height=(int)[ 64, 4096 ], \
         interlace-mode=(string)progressive",
    ),
    (
        "nvh264enc of GStreamer 1.26, which succeeds nvcudah264enc",
        "video/x-raw(memory:CUDAMemory), format=(string){ NV12, Y444, VUYA, RGBA, RGBx, BGRA, BGRx }, \
         width=(int)[ 160, 4096 ], height=(int)[ 64, 4096 ], interlace-mode=(string)progressive; \
         video/x-raw, format=(string){ NV12, Y444, VUYA, RGBA, RGBx, BGRA, BGRx }, \
         width=(int)[ 160, 4096 ], height=(int)[ 64, 4096 ], interlace-mode=(string)progressive",
    ),
    (
        "nvcudah265enc of GStreamer 1.22, nvh265enc of 1.26",
        "video/x-raw(memory:CUDAMemory), format=(string){ NV12, P010_10LE, Y444, Y444_16LE, GBR, GBR_16LE }, \
         width=(int)[ 144, 8192 ], height=(int)[ 48, 8192 ], interlace-mode=(string)progressive; \
         video/x-raw, format=(string){ NV12, P010_10LE, Y444, Y444_16LE, GBR, GBR_16LE }, \
         width=(int)[ 144, 8192 ], height=(int)[ 48, 8192 ], interlace-mode=(string)progressive",
    ),
    (
        "an encoder of CUDA memory only",
        "video/x-raw(memory:CUDAMemory), format=(string)NV12, width=(int)[ 160, 4096 ], height=(int)[ 64, 4096 ], \
         interlace-mode=(string)progressive",
    ),
];

/// What nvh264dec puts out.
const DECODED: &str = "video/x-raw(memory:CUDAMemory), format=(string)NV12, width=(int)1920, height=(int)1080, \
                       interlace-mode=(string)progressive, multiview-mode=(string)mono, pixel-aspect-ratio=(fraction)1/1, \
                       chroma-site=(string)mpeg2, colorimetry=(string)bt709, framerate=(fraction)30/1";

fn caps(text: &str) -> gst::Caps {
    init();
    text.parse().unwrap()
}

/// trtnms in front of such an encoder.
fn nms_before(encoder: &gst::Caps) -> (gst::Element, gst::Pad) {
    let nms = gst::ElementFactory::make("trtnms").build().unwrap();
    let template = gst::PadTemplate::new("sink", gst::PadDirection::Sink, gst::PadPresence::Always, encoder).unwrap();
    let pad = gst::Pad::from_template(&template);
    nms.static_pad("src").unwrap().link(&pad).expect("an encoder can be linked behind trtnms");
    (nms, pad)
}

/// Whether trtnms takes such frames while that encoder is behind it.
fn takes(nms: &gst::Element, frames: &gst::Caps) -> bool {
    let taken = nms.static_pad("sink").unwrap().query_caps(Some(frames));
    frames.is_subset(&taken)
}

#[test]
fn decoded_frames_go_to_the_encoder_in_cuda_memory() {
    for (name, template) in ENCODERS {
        let (nms, _encoder) = nms_before(&caps(template));
        assert!(takes(&nms, &caps(DECODED)), "{name}");
    }
}

/// Before caps are chosen, so that a decoder that asks what it may put out is told so.
#[test]
fn cuda_memory_comes_before_system_memory() {
    for (name, template) in ENCODERS {
        let (nms, _encoder) = nms_before(&caps(template));
        let offered = nms.static_pad("sink").unwrap().query_caps(None);
        let first = offered.features(0).unwrap_or_else(|| panic!("{name}: {offered}"));
        assert!(first.contains("memory:CUDAMemory"), "{name}: {offered}");
    }
}

#[test]
fn the_encoders_limits_reach_the_decoder() {
    let (nms, _encoder) = nms_before(&caps(ENCODERS[2].1));
    let but = |from: &str, to: &str| caps(&DECODED.replace(from, to));
    assert!(!takes(&nms, &but("width=(int)1920", "width=(int)128")), "narrower than the encoder can");
    assert!(!takes(&nms, &but("height=(int)1080", "height=(int)5000")), "higher than the encoder can");
    assert!(!takes(&nms, &but("format=(string)NV12", "format=(string)P010_10LE")), "10 bits in H.264");
    assert!(takes(&nms, &but("width=(int)1920", "width=(int)160")));
}
