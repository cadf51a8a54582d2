// SPDX-License-Identifier: MPL-2.0
//! What is watched in the elements that read a source, as it may be hostile or damaged: how large its frames are, and
//! where a source of the network leads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gst::glib::translate::FromGlibPtrBorrow;
use gst::prelude::*;
use gsttrt_core::redact::redacted;

use super::damage::count_damaged;
use super::{jpeg, soup};

/// The bytes that one picture of a camera over HTTP may have.
const PICTURE_LIMIT: u64 = 16 << 20;

/// The pixels that a frame may have. Those of files are the user's own choice.
const FRAME_LIMIT_OF_NETWORK: u64 = 8192 * 8192;
const FRAME_LIMIT_OF_FILE: u64 = 32768 * 32768;

/// Between two pictures of such a camera, at least. Files of videos count no smaller times.
const SHORTEST_STEP: gst::ClockTime = gst::ClockTime::from_mseconds(1);

/// Of HTTP: cameras that send picture after picture give each at once, with the time at which it came, and are live. A
/// playlist leads only to addresses of HTTP, and not to files of this machine.
pub fn look_after_http(decode: &gst::Bin, sink: &gst::Pad) {
    let frames = sink.parent_element().map(|queue| queue.downgrade());
    decode.connect_deep_element_added(move |decode, _, element| {
        if element.factory().is_some_and(|factory| factory.name() == "multipartdemux") {
            // Old frames make room for new ones, as those of other cameras.
            if let Some(queue) = frames.as_ref().and_then(|queue| queue.upgrade()) {
                queue.set_property_from_str("leaky", "downstream");
            }
            take_pictures(decode, element);
        }
        let handler = element.dynamic_cast_ref::<gst::URIHandler>();
        let Some(handler) = handler.filter(|handler| handler.uri_type() == gst::URIType::Src) else { return };
        let uri = handler.uri().unwrap_or_default();
        if super::is_http(&uri) {
            return;
        }
        element.src_pads().iter().for_each(|pad| {
            pad.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST, |_, _| gst::PadProbeReturn::Drop);
        });
        gst::element_error!(
            decode,
            gst::ResourceError::Settings,
            ("it leads to {}, and what comes over the network may lead only to http:// and https://.", redacted(&uri))
        );
    });
}

/// Lets the demuxer of a camera over HTTP give its pictures without waiting for further streams.
fn take_pictures(decode: &gst::Bin, demuxer: &gst::Element) {
    demuxer.set_property("single-stream", true);
    let bytes = Arc::new(AtomicU64::new(0));
    let (read, decode) = (bytes.clone(), decode.downgrade());
    let input = demuxer.static_pad("sink").expect("an always pad");
    input.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let size = info.buffer().map_or(0, |buffer| buffer.size() as u64);
        let before = read.fetch_add(size, Ordering::Relaxed);
        if before + size <= PICTURE_LIMIT {
            return gst::PadProbeReturn::Ok;
        }
        if let Some(decode) = decode.upgrade() {
            let limit = PICTURE_LIMIT >> 20;
            gst::element_error!(decode, gst::StreamError::Demux, ("a picture of it has more than {limit} MiB."));
        }
        info.flow_res = Err(gst::FlowError::Error); // no more of it is read
        gst::PadProbeReturn::Handled
    });
    demuxer.connect_pad_added(move |demuxer, pad| {
        let (bytes, demuxer) = (bytes.clone(), demuxer.downgrade());
        let next = AtomicU64::new(0);
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            bytes.store(0, Ordering::Relaxed);
            // Before the clock runs they are the pictures that the pipeline starts with. No two have the same time, which
            // encoders do not take.
            let playing = demuxer.upgrade().filter(|demuxer| demuxer.current_state() == gst::State::Playing);
            let now = playing.and_then(|demuxer| demuxer.current_running_time()).unwrap_or_default();
            let time = now.max(gst::ClockTime::from_nseconds(next.load(Ordering::Relaxed)));
            let earliest = next.swap((time + SHORTEST_STEP).nseconds(), Ordering::Relaxed);
            if let Some(buffer) = info.buffer_mut() {
                let picture = buffer.make_mut();
                picture.set_pts(time);
                // As long as the one before; without a duration, the last picture of a file would not be shown.
                let since = time.saturating_sub(gst::ClockTime::from_nseconds(earliest));
                picture.set_duration(since + SHORTEST_STEP);
            }
            gst::PadProbeReturn::Ok
        });
    });
}

/// Of a file of the web that is kept on the disk: qtdemux jumps to its tables, which may be at its end, and a server that gives
/// no parts of files has only its beginning. Of such a server nothing is read before the file is here to its end.
pub fn read_whole(decode: &gst::Bin) {
    let gives_parts = Arc::new(AtomicBool::new(false));
    decode.connect_deep_element_added(move |_, _, element| {
        if element.is::<gst::URIHandler>() {
            element.src_pads().iter().for_each(|pad| read_headers(pad, gives_parts.clone()));
        }
        let is_kept = element.factory().is_some_and(|factory| factory.name() == "downloadbuffer");
        if is_kept && !gives_parts.load(Ordering::Relaxed) {
            hold_until_end(element);
        }
    });
}

/// Of an answer of HTTP, which comes before its first byte.
fn read_headers(source: &gst::Pad, gives_parts: Arc<AtomicBool>) {
    source.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        let headers =
            info.event().and_then(|event| event.structure()).filter(|headers| headers.has_name("http-headers"));
        if let Some(answer) = headers.and_then(|headers| headers.get::<gst::Structure>("response-headers").ok()) {
            let gives = answer.iter().any(|(name, value)| {
                name.eq_ignore_ascii_case("accept-ranges")
                    && value.get::<String>().is_ok_and(|unit| unit.trim().eq_ignore_ascii_case("bytes"))
            });
            gives_parts.store(gives, Ordering::Relaxed);
        }
        gst::PadProbeReturn::Ok
    });
}

/// Who pulls from the queue waits until its input has ended. The end of the pipeline ends the wait, too.
fn hold_until_end(queue: &gst::Element) {
    let (Some(input), Some(output)) = (queue.static_pad("sink"), queue.static_pad("src")) else { return };
    let pulls = gst::PadProbeType::PULL | gst::PadProbeType::BLOCK;
    let hold = output.add_probe(pulls, |_, _| gst::PadProbeReturn::Ok);
    let (hold, output) = (Mutex::new(hold), output.downgrade());
    input.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        if info.event().is_some_and(|event| event.type_() == gst::EventType::Eos)
            && let Some(output) = output.upgrade()
            && let Some(hold) = hold.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            output.remove_probe(hold);
        }
        gst::PadProbeReturn::Ok
    });
}

/// Says it once the file is open.
pub fn warn_of_missing(decode: &gst::Element, text: String) {
    decode.connect_no_more_pads(move |decode| {
        gst::element_warning!(decode, gst::ResourceError::Read, ("{text}"));
    });
}

/// Of an MP4 that is read from its beginning to its end only, as from a pipe, qtdemux of GStreamer 1.22 loses the last frames.
pub fn warn_of_lost_frames(decode: &gst::Bin, shown: &str) {
    let shown = shown.to_string();
    decode.connect_no_more_pads(move |decode| {
        let is_pushed = |element: &gst::Element| {
            element.factory().is_some_and(|factory| factory.name() == "qtdemux")
                && element.static_pad("sink").is_some_and(|pad| pad.mode() == gst::PadMode::Push)
        };
        let bin = decode.downcast_ref::<gst::Bin>().expect("it is a bin");
        if bin.iterate_recurse().into_iter().flatten().any(|element| is_pushed(&element)) {
            gst::element_warning!(
                decode,
                gst::ResourceError::Read,
                ("{shown} is an MP4 that cannot be read twice: its last frames may be missing. Give it as a file.")
            );
        }
    });
}

/// The videos that a source may have at a time. Each takes a decoder and threads, and the first is read.
const MOST_VIDEOS: usize = 16;

pub fn decodes_video(element: &gst::Element) -> bool {
    let kind = element.metadata("klass").unwrap_or_default();
    kind.contains("Decoder") && (kind.contains("Video") || kind.contains("Image"))
}

/// Watches the decoders that come into the bin.
pub fn look_after_frames(decode: &gst::Bin, shown: &str, is_remote: bool) {
    let shown = shown.to_string();
    decode.connect_deep_element_added(move |decode, _, element| {
        if decodes_video(element) {
            let videos = decode.iterate_recurse().into_iter().flatten().filter(decodes_video).count();
            if videos > MOST_VIDEOS {
                gst::element_error!(decode, gst::StreamError::Demux, ("it has more than {MOST_VIDEOS} videos."));
            }
            refuse_large(decode.upcast_ref(), element, is_remote);
            count_damaged(decode, element, &shown);
        }
        match element.factory().map(|factory| factory.name()).as_deref() {
            Some("avdemux_gif") => end_with_file(element),
            Some("avdec_gif") => count_time(element),
            Some("souphttpsrc") => soup::guard_answers(),
            _ => {}
        }
    });
}

/// GStreamer 1.22 gives FFmpeg nothing at the end of a file, and its demuxer of GIF reads that again and again. A failure
/// behind the last byte is an end to both.
fn end_with_file(demuxer: &gst::Element) {
    unsafe extern "C" fn fail_at_end(
        pad: *mut gst::ffi::GstPad,
        info: *mut gst::ffi::GstPadProbeInfo,
        _: gst::glib::ffi::gpointer,
    ) -> gst::ffi::GstPadProbeReturn {
        // SAFETY: GStreamer calls it with a pad and a structure that live during the call.
        let (pad, offset) = unsafe { (gst::Pad::from_glib_borrow(pad), (*info).offset) };
        match pad.peer_query_duration::<gst::format::Bytes>() {
            Some(length) if offset >= *length => gst::ffi::GST_PAD_PROBE_HANDLED,
            _ => gst::ffi::GST_PAD_PROBE_PASS,
        }
    }
    let Some(input) = demuxer.static_pad("sink") else { return };
    let pulls = gst::ffi::GST_PAD_PROBE_TYPE_PULL | gst::ffi::GST_PAD_PROBE_TYPE_BLOCK;
    // SAFETY: the pad is one, and the callback has no data that could end before it. The safe call refuses to answer a
    // pull, which has no data yet.
    unsafe { gst::ffi::gst_pad_add_probe(input.as_ptr(), pulls, Some(fail_at_end), std::ptr::null_mut(), None) };
}

/// The frames of a GIF file have their durations, and all of them the same time.
fn count_time(decoder: &gst::Element) {
    /// Of frames without a duration, as browsers have it.
    const DURATION: gst::ClockTime = gst::ClockTime::from_mseconds(100);
    let Some(output) = decoder.static_pad("src") else { return };
    let next = AtomicU64::new(0);
    output.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        if let Some(buffer) = info.buffer_mut().map(|buffer| buffer.make_mut()) {
            let duration = buffer.duration().filter(|duration| !duration.is_zero()).unwrap_or(DURATION);
            let time = next.fetch_add(duration.nseconds(), Ordering::Relaxed);
            buffer.set_pts(gst::ClockTime::from_nseconds(time));
        }
        gst::PadProbeReturn::Ok
    });
}

/// Ends the source before memory is taken for frames that are too large.
pub fn refuse_large(decode: &gst::Element, decoder: &gst::Element, is_remote: bool) {
    let limit = if is_remote { FRAME_LIMIT_OF_NETWORK } else { FRAME_LIMIT_OF_FILE };
    let is_refused = AtomicBool::new(false);
    let decode = decode.downgrade();
    let Some(input) = decoder.static_pad("sink") else { return };
    let mask = gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM;
    input.add_probe(mask, move |_, info| {
        let size = match &info.data {
            Some(gst::PadProbeData::Event(event)) => match event.view() {
                gst::EventView::Caps(caps) => size_of_caps(caps.caps()),
                _ => None,
            },
            Some(gst::PadProbeData::Buffer(buffer)) => size_of_picture(buffer),
            _ => None,
        };
        let is_large = size.is_some_and(|(width, height)| width * height > limit);
        if is_large
            && !is_refused.swap(true, Ordering::Relaxed)
            && let (Some(decode), Some((width, height))) = (decode.upgrade(), size)
        {
            gst::element_error!(
                decode,
                gst::StreamError::Decode,
                ("its frames have {width}x{height} pixels, and at most {limit} are read.")
            );
        }
        if info.buffer().is_none() || !is_refused.load(Ordering::Relaxed) {
            return gst::PadProbeReturn::Ok;
        }
        info.flow_res = Err(gst::FlowError::Error);
        gst::PadProbeReturn::Handled
    });
}

fn size_of_caps(caps: &gst::CapsRef) -> Option<(u64, u64)> {
    let caps = caps.structure(0)?;
    let side = |name| u64::try_from(caps.get::<i32>(name).ok()?).ok();
    Some((side("width")?, side("height")?))
}

/// Of JPEG.
fn size_of_picture(buffer: &gst::BufferRef) -> Option<(u64, u64)> {
    let header = jpeg::read(&buffer.map_readable().ok()?)?;
    Some((header.width.into(), header.height.into()))
}
