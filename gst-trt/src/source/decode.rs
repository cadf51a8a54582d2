// SPDX-License-Identifier: MPL-2.0
//! Around the decoder of a video: the pipe before it, the stream that is asked for, and what is behind it.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use gst::prelude::*;

use super::guard::decodes_video;
use super::tap::VideoTap;
use crate::failure::Failure;

/// The first format of videos or pictures among those that decodebin has listed. It wants none for sounds, and lists them
/// too.
pub(super) fn missing_decoder(listed: &str) -> Option<&str> {
    let missing = listed.lines().filter_map(|line| line.strip_prefix("Missing decoder: ")?.rsplit_once(" ("));
    let mut seen = missing.filter(|(_, caps)| caps.starts_with("video/") || caps.starts_with("image/"));
    seen.next().map(|(format, _)| format)
}

/// Lets an fdsrc read from a named pipe, which is opened here, once, and closed with the element: filesrc opens a file for
/// each way in which it could be read, and what a writer has given to a pipe before is lost. It does not wait for a writer.
pub(super) fn read_pipe(source: &gst::Element, path: &Path) -> io::Result<()> {
    let pipe = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    source.set_property("fd", pipe.as_raw_fd());
    source.add_weak_ref_notify(move || drop(pipe));
    Ok(())
}

/// Whether a thread streams through the pad. A source pauses its task before it pushes the end of the stream, with which
/// decoders may only begin.
pub(super) fn is_streaming(pad: &gst::Pad) -> bool {
    // SAFETY: the pad and its lock live during the calls, and the lock is given back by the thread that has taken it.
    unsafe {
        let lock = &raw mut (*pad.as_ptr()).stream_rec_lock;
        let is_free = gst::glib::ffi::g_rec_mutex_trylock(lock) != 0;
        if is_free {
            gst::glib::ffi::g_rec_mutex_unlock(lock);
        }
        !is_free
    }
}

/// Links the first video stream that the decoder finds. It is an error if there is none.
///
/// Frames go straight in, so that those in CUDA memory stay there, unless they lie where the model does not run, are of a
/// format that needs conversion, or have to be rotated, as those of phones.
pub(super) fn take_video(pipeline: &gst::Pipeline, decode: &gst::Element, sink: gst::Pad, tap: Option<Arc<VideoTap>>) {
    let (link, pipeline) = (sink.clone(), pipeline.downgrade());
    if let Some(tap) = tap.clone() {
        let decode = decode.downcast_ref::<gst::Bin>().expect("it is a bin");
        decode.connect_deep_element_added(move |_, _, element| {
            if let Some(input) = element.static_pad("sink").filter(|_| decodes_video(element)) {
                tap.follow(&input);
            }
        });
    }
    decode.connect_pad_added(move |decode, pad| {
        let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
        if link.is_linked() || !caps.structure(0).is_some_and(|caps| caps.name().starts_with("video/")) {
            return;
        }
        let (fits, rotated) = (link.query_caps(None).can_intersect(&caps), is_rotated(pad));
        if let (Some(tap), Some(pipeline)) = (&tap, pipeline.upgrade()) {
            tap.choose(&pipeline, element_of(pad).filter(decodes_video).as_ref());
        }
        let linked = match pipeline.upgrade() {
            Some(pipeline) if rotated || !fits => convert(&pipeline, pad, &link, rotated),
            _ => pad.link(&link).map(drop).map_err(|error| Failure::from(error.to_string())),
        };
        if let Err(error) = linked {
            gst::element_error!(decode, gst::StreamError::Format, ("its video cannot be used: {}", error));
        }
    });
    decode.connect_no_more_pads(move |decode| {
        if !sink.is_linked() {
            gst::element_error!(decode, gst::StreamError::WrongType, ("there is no video in it."));
        }
    });
}

/// Of RTSP: the time of capture, as the reports of the camera have it, is noted on frames. Of all streams only the first video
/// is asked for, which is the one that cameras have in full size, and the first sound where it is wanted: each stream takes a
/// thread, and a camera may have any number.
pub(super) fn look_after_rtsp(decode: &gst::Element, has_audio: bool) {
    decode.connect("source-setup", false, move |values| {
        let source = values.get(1)?.get::<gst::Element>().ok()?;
        if source.factory().is_some_and(|factory| factory.name() == "rtspsrc") {
            let first = [Mutex::new(None), Mutex::new(None)];
            source.connect("select-stream", false, move |values| {
                let (number, caps) = (values.get(1)?.get::<u32>().ok()?, values.get(2)?.get::<gst::Caps>().ok()?);
                let first = match caps.structure(0).and_then(|caps| caps.get("media").ok()) {
                    Some("video") => &first[0],
                    Some("audio") if has_audio => &first[1],
                    _ => return Some(false.to_value()),
                };
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                Some((*first.get_or_insert(number) == number).to_value())
            });
        }
        // From GStreamer 1.22 on.
        if source.find_property("add-reference-timestamp-meta").is_some() {
            source.set_property("add-reference-timestamp-meta", true);
        }
        None
    });
}

/// Whether a tag asks for the picture to be rotated or mirrored. decodebin shows a pad as soon as its caps are known, and
/// decoders pass tags on after the caps, so the tags are looked for where they enter the decoder.
fn is_rotated(pad: &gst::Pad) -> bool {
    let pads = element_of(pad).into_iter().flat_map(|decoder| decoder.sink_pads());
    let mut tags = pads.flat_map(|pad| (0..).map_while(move |index| pad.sticky_event::<gst::event::Tag>(index)));
    tags.any(|event| {
        let orientation = event.tag().get::<gst::tags::ImageOrientation>();
        orientation.is_some_and(|orientation| orientation.get() != "rotate-0")
    })
}

/// The element in decodebin that gives what the pad gives.
fn element_of(pad: &gst::Pad) -> Option<gst::Element> {
    let mut target = Some(pad.clone());
    while let Some(inner) = target.as_ref().and_then(|pad| pad.downcast_ref::<gst::GhostPad>()?.target()) {
        target = Some(inner);
    }
    target.and_then(|pad| pad.parent_element())
}

/// Links with a conversion in between, from CUDA memory too where it exists, that turns frames upright where they are not.
pub(super) fn convert(pipeline: &gst::Pipeline, pad: &gst::Pad, sink: &gst::Pad, rotated: bool) -> Result<(), Failure> {
    let download = gst::ElementFactory::find("cudadownload").map_or("", |_| "cudadownload !");
    let flip = if rotated { "! videoflip video-direction=auto" } else { "" };
    let convert = gst::parse::bin_from_description(&format!("{download} videoconvert {flip}"), true)?;
    pipeline.add(&convert)?;
    let end = |name| convert.static_pad(name).expect("asked for");
    end("src").link(sink).map_err(|error| error.to_string())?;
    pad.link(&end("sink")).map_err(|error| error.to_string())?;
    convert.sync_state_with_parent()?;
    Ok(())
}
