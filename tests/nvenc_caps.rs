// SPDX-License-Identifier: MPL-2.0
//! The encoder leg by its caps: what NVIDIA's encoder elements take is what trtnms offers, in CUDA memory.
//!
//! The encoders are played by pads with their templates, as GStreamer's documentation gives them. The NVENC hardware
//! itself is not part of this.

use crate::common::init;
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

/// All that trtnms may put out.
fn offered() -> gst::Caps {
    init();
    let factory = gst::ElementFactory::find("trtnms").unwrap();
    let template =
        factory.static_pad_templates().into_iter().find(|template| template.direction() == gst::PadDirection::Src);
    template.unwrap().caps()
}

fn in_cuda_memory(caps: &gst::CapsRef) -> bool {
    caps.features(0).is_some_and(|features| features.contains("memory:CUDAMemory"))
}

#[test]
fn decoded_frames_suit_the_encoder_in_cuda_memory() {
    let decoded = caps(DECODED);
    assert!(decoded.is_subset(&offered()));
    for (name, encoder) in ENCODERS {
        assert!(decoded.is_subset(&caps(encoder)), "{name}");
        assert!(decoded.is_subset(&offered().intersect(&caps(encoder))), "{name}");
    }
}

/// A decoder that may choose takes what comes first.
#[test]
fn cuda_memory_comes_before_system_memory() {
    for (name, encoder) in ENCODERS {
        let common = offered().intersect_with_mode(&caps(encoder), gst::CapsIntersectMode::First);
        assert!(in_cuda_memory(&common), "{name}: {common}");
    }
}

/// The same asked at the pads, which offer CUDA memory only where there is a GPU; what holds of sizes and formats holds
/// of both.
#[test]
fn the_encoders_limits_reach_the_decoder() {
    for (name, encoder) in ENCODERS {
        let encoder = caps(encoder);
        let nms = gst::ElementFactory::make("trtnms").build().unwrap();
        let template =
            gst::PadTemplate::new("sink", gst::PadDirection::Sink, gst::PadPresence::Always, &encoder).unwrap();
        let pad = gst::Pad::from_template(&template);
        let sink = nms.static_pad("sink").unwrap();
        let feature = if in_cuda_memory(&sink.query_caps(None)) { "(memory:CUDAMemory)" } else { "" };
        if feature.is_empty() && encoder.size() == 1 {
            crate::common::gpu::skip(format!("{name}: this machine has no CUDA memory"));
            continue;
        }
        nms.static_pad("src").unwrap().link(&pad).expect("an encoder can be linked behind trtnms");
        let takes = |from: &str, to: &str| {
            let frames = caps(&DECODED.replace("(memory:CUDAMemory)", feature).replace(from, to));
            frames.is_subset(&sink.query_caps(Some(&frames)))
        };
        assert!(takes("", ""), "{name}");
        assert!(takes("(int)1920", "(int)160"), "{name}");
        assert!(!takes("(int)1920", "(int)128"), "{name}: narrower than it can");
        assert!(!takes("(int)1080", "(int)10000"), "{name}: higher than it can");
        assert!(!takes("progressive", "interleaved"), "{name}: interlaced");
        assert!(!takes("NV12", "RGB"), "{name}: a format that it does not know");
    }
}
