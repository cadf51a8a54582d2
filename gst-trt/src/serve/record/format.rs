// SPDX-License-Identifier: MPL-2.0
//! What a recording consists of: its container, and the streams in it.

use crate::serve::config::Container;

impl Container {
    pub fn ending(self) -> &'static str {
        match self {
            Container::Mp4 => "mp4",
            Container::Mkv => "mkv",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Container::Mp4 => "MP4",
            Container::Mkv => "Matroska",
        }
    }

    /// The element that writes it. What was begun is rewritten at the end as one that can be searched. Nothing here is live, so that
    /// `latency` only says how much waits before mp4mux: with 0 its thread wakes up for each packet.
    pub fn muxer(self) -> &'static str {
        match self {
            Container::Mp4 => {
                "mp4mux name=mux latency=500000000 fragment-duration=500 fragment-mode=first-moov-then-finalise"
            }
            Container::Mkv => "matroskamux name=mux",
        }
    }
}

/// A format of encoded video or sound that is recorded as it is.
#[derive(Clone, Copy)]
struct Codec {
    caps: &'static str,
    /// Of MPEG sound, the versions of it.
    mpeg: &'static [i32],
    /// What gives it the form that containers take.
    parser: &'static str,
    /// Whether MP4 takes it, as Matroska does.
    in_mp4: bool,
}

const CODECS: [Codec; 9] = [
    Codec {
        caps: "video/x-h264",
        mpeg: &[],
        parser: "h264parse ! video/x-h264,stream-format=avc,alignment=au",
        in_mp4: true,
    },
    Codec {
        caps: "video/x-h265",
        mpeg: &[],
        parser: "h265parse ! video/x-h265,stream-format=hvc1,alignment=au",
        in_mp4: true,
    },
    Codec {
        caps: "video/x-av1",
        mpeg: &[],
        parser: "av1parse ! video/x-av1,stream-format=obu-stream,alignment=tu",
        in_mp4: true,
    },
    Codec { caps: "image/jpeg", mpeg: &[], parser: "jpegparse", in_mp4: false },
    Codec { caps: "audio/mpeg", mpeg: &[1], parser: "mpegaudioparse", in_mp4: true },
    Codec {
        caps: "audio/mpeg",
        mpeg: &[2, 4],
        parser: "aacparse ! audio/mpeg,mpegversion=4,stream-format=raw",
        in_mp4: true,
    },
    Codec { caps: "audio/x-opus", mpeg: &[], parser: "opusparse", in_mp4: true },
    Codec { caps: "audio/x-alaw", mpeg: &[], parser: "identity silent=true", in_mp4: false },
    Codec { caps: "audio/x-mulaw", mpeg: &[], parser: "identity silent=true", in_mp4: false },
];

fn codec(caps: &gst::CapsRef) -> Option<Codec> {
    let caps = caps.structure(0)?;
    let is_version = |codec: &Codec| caps.get("mpegversion").is_ok_and(|version: i32| codec.mpeg.contains(&version));
    let mut named = CODECS.into_iter().filter(|codec| codec.caps == caps.name().as_str());
    named.find(|codec| codec.mpeg.is_empty() || is_version(codec))
}

/// The elements between a stream and its container. RTSP does not tell when frames are decoded, which is not the order in which
/// they are shown where a camera sends B-frames: without `has_dts` their times are found from that order.
pub fn parser(caps: &gst::CapsRef, has_dts: bool) -> String {
    let Some(codec) = codec(caps) else { return "identity silent=true".into() };
    let timestamper = match codec.caps {
        "video/x-h264" => "h264timestamper",
        "video/x-h265" => "h265timestamper",
        _ => "",
    };
    let parser = codec.parser;
    // It came with GStreamer 1.22.
    if has_dts || timestamper.is_empty() || gst::ElementFactory::find(timestamper).is_none() {
        return parser.into();
    }
    format!("{parser} ! {timestamper}")
}

/// The container for a video: the wanted one, or another where that does not take it. `None` where it cannot be copied, as its
/// format is unknown, or GStreamer lacks the parser.
pub fn container_for(video: &gst::CapsRef, wanted: Container) -> Option<Container> {
    let codec = codec(video)?;
    let parser = codec.parser.split(' ').next().unwrap_or_default();
    gst::ElementFactory::find(parser)?;
    Some(if codec.in_mp4 { wanted } else { Container::Mkv })
}

pub fn is_known(caps: &gst::CapsRef) -> bool {
    codec(caps).is_some()
}

pub fn takes_sound(container: Container, sound: &gst::CapsRef) -> bool {
    codec(sound).is_some_and(|codec| codec.in_mp4 || container == Container::Mkv)
}

/// The format in a sentence.
pub fn shown(caps: &gst::CapsRef) -> String {
    caps.structure(0).map_or_else(String::new, |caps| caps.name().to_string())
}

/// The streams of a file.
#[derive(Clone, Debug)]
pub struct FileFormat {
    pub container: Container,
    pub video: gst::Caps,
    pub audio: Option<gst::Caps>,
}
