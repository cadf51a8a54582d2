// SPDX-License-Identifier: MPL-2.0
//! Around the decoder of a video: the pipe before it, the stream that is asked for, and what is behind it.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gst::prelude::*;
use gsttrt::gst::cuda::registry;
use gsttrt_core::redact::printable;

use super::guard::decodes_video;
use super::options::StreamOptions;
use super::tap::VideoTap;
use crate::failure::Failure;

/// The name of what an rtspsrc has with it: the first video that its camera has offered.
const OFFERED: &str = "gst-trt-offered-video";
/// Characters of a name that a camera gives a format.
const LONGEST: usize = 40;

/// What an rtspsrc has with it.
type OfferedVideo = Arc<Mutex<Option<VideoOffer>>>;

/// What a camera offers of videos.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VideoOffer {
    /// None among its streams.
    Nothing,
    /// In a format that no element reads here.
    Unreadable(String),
    /// The stream of that number.
    Stream(u32),
}

/// The first format of videos or pictures among those that decodebin has listed. It wants none for sounds, and lists them
/// too.
pub fn missing_decoder(listed: &str) -> Option<&str> {
    let missing = listed.lines().filter_map(|line| line.strip_prefix("Missing decoder: ")?.rsplit_once(" ("));
    let mut seen = missing.filter_map(|(format, caps)| match caps {
        _ if caps.starts_with("video/") || caps.starts_with("image/") => Some(format),
        // Of a camera with RTSP: its packets are not understood.
        _ if caps.starts_with("application/x-rtp") && caps.contains("media=(string)video") => {
            let name = caps.split_once("encoding-name=(string)").map(|(_, rest)| rest);
            Some(name.and_then(|rest| rest.split([',', ';', ')']).next()).unwrap_or(format))
        }
        _ => None,
    });
    seen.next()
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
pub(super) fn look_after_source(decode: &gst::Element, options: &StreamOptions, has_audio: bool) {
    let options = options.clone();
    decode.connect("source-setup", false, move |values| {
        let source = values.get(1)?.get::<gst::Element>().ok()?;
        options.configure_source(&source);
        if source.factory().is_some_and(|factory| factory.name() == "rtspsrc") {
            let (video, audio) = (OfferedVideo::default(), Mutex::new(None));
            // SAFETY: data of that name is set here alone, once for each element and before it connects, and read with this type.
            unsafe { source.set_data(OFFERED, video.clone()) };
            let number_of_video = Mutex::new(None);
            source.connect("select-stream", false, move |values| {
                let (number, caps) = (values.get(1)?.get::<u32>().ok()?, values.get(2)?.get::<gst::Caps>().ok()?);
                let stream = caps.structure(0);
                let first = match stream.and_then(|stream| stream.get("media").ok()) {
                    Some("video") => {
                        let offer =
                            || stream.and_then(unreadable).map_or(VideoOffer::Stream(number), VideoOffer::Unreadable);
                        lock(&video).get_or_insert_with(offer);
                        &number_of_video
                    }
                    Some("audio") if has_audio => &audio,
                    _ => return Some(false.to_value()),
                };
                Some((*lock(first).get_or_insert(number) == number).to_value())
            });
        }
        // From GStreamer 1.22 on.
        if source.find_property("add-reference-timestamp-meta").is_some() {
            source.set_property("add-reference-timestamp-meta", true);
        }
        None
    });
}

/// The format of a video as a camera describes it, where no element takes its packets here.
fn unreadable(described: &gst::StructureRef) -> Option<String> {
    let name = printable(described.get("encoding-name").ok()?, LONGEST);
    let mut packets = described.to_owned();
    packets.set_name("application/x-rtp");
    let packets = gst::Caps::from(packets);
    // Those that decodebin tries.
    let mut readers =
        gst::ElementFactory::factories_with_type(gst::ElementFactoryType::DECODABLE, gst::Rank::MARGINAL).into_iter();
    (!readers.any(|reader| reader.can_sink_any_caps(&packets))).then_some(name)
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first video that its camera has offered to an rtspsrc, which has seen all of the streams once it has opened it. `None` of
/// other elements.
pub fn video_offer(source: &gst::Object) -> Option<VideoOffer> {
    // SAFETY: data of that name has this type, and is there as long as the element, which lives during the call.
    let offered = unsafe { source.data::<OfferedVideo>(OFFERED).map(|data| data.as_ref().clone()) }?;
    let first = lock(&offered).clone();
    Some(first.unwrap_or(VideoOffer::Nothing))
}

/// Sets decoders up as they come into the bin. A live stream that is joined between two key frames is asked for another.
pub(super) fn look_after_decoders(decode: &gst::Bin, options: &StreamOptions, is_live: bool) {
    let options = options.clone();
    decode.connect_deep_element_added(move |_, _, element| {
        if decodes_video(element) {
            options.configure_decoder(element);
            if is_live {
                ask_for_key_frame(element);
            }
        }
    });
}

/// Of NVIDIA's decoders, which are there once for each GPU, leaves those of other GPUs out.
pub(super) fn keep_to_gpu(decode: &gst::Element, gpu: i32) {
    decode.connect("autoplug-select", false, move |values| {
        const TRY: i32 = 0;
        const SKIP: i32 = 2;
        let factory = values.last()?.get::<gst::ElementFactory>().ok()?;
        let is_elsewhere = registry::device_of_decoder(&factory).is_some_and(|device| device != gpu);
        // The type is that of the plugin which has made the element.
        let kind = gst::glib::Type::from_name("GstAutoplugSelectResult").and_then(gst::glib::EnumClass::with_type)?;
        kind.to_value(if is_elsewhere { SKIP } else { TRY })
    });
}

/// Of a stream that a decoder can only show from the next key frame on, which may be seconds away: asks whoever sends it for
/// one, at once and from time to time, until it comes.
fn ask_for_key_frame(decoder: &gst::Element) {
    /// A request gets lost, or comes while the sender cannot follow it.
    const FRAMES: u32 = 30;
    let Some(input) = decoder.static_pad("sink") else { return };
    let missed = AtomicU32::new(0);
    input.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        let Some(buffer) = info.buffer() else { return gst::PadProbeReturn::Ok };
        if !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT) {
            return gst::PadProbeReturn::Remove;
        }
        if missed.fetch_add(1, Ordering::Relaxed).is_multiple_of(FRAMES) {
            pad.push_event(gst_video::UpstreamForceKeyUnitEvent::builder().all_headers(true).build());
        }
        gst::PadProbeReturn::Ok
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_camera_offers_of_videos_is_known() {
        gst::init().unwrap();
        let make = |factory: &str| gst::ElementFactory::make(factory).build().unwrap();
        let decode = make("uridecodebin");
        look_after_source(&decode, &StreamOptions::default(), true);
        let camera = || {
            let source = make("rtspsrc");
            decode.emit_by_name::<()>("source-setup", &[&source]);
            source
        };
        let is_taken = |source: &gst::Element, number: u32, media: &str, encoding: &str| {
            let caps = gst::Caps::builder("application/x-unknown").field("media", media).field("clock-rate", 90_000);
            // Without a dynamic number, depayloaders of formats with a number of their own take any encoding.
            let caps = caps.field("payload", 96).field("encoding-name", encoding).build();
            source.emit_by_name::<bool>("select-stream", &[&number, &caps])
        };
        let offer = |source: &gst::Element| video_offer(source.upcast_ref());
        let source = camera();
        assert!(is_taken(&source, 0, "audio", "PCMU") && !is_taken(&source, 1, "audio", "PCMU"));
        assert!(!is_taken(&source, 2, "application", "VND.ONVIF.METADATA"));
        assert_eq!((offer(&source), offer(&decode)), (Some(VideoOffer::Nothing), None));
        assert!(is_taken(&source, 3, "video", "H264") && !is_taken(&source, 4, "video", "H265"));
        assert_eq!(offer(&source), Some(VideoOffer::Stream(3)));
        let source = camera();
        assert!(is_taken(&source, 0, "video", "ODD") && !is_taken(&source, 1, "video", "H264"));
        assert_eq!(offer(&source), Some(VideoOffer::Unreadable("ODD".into())));
    }

    #[test]
    fn a_stream_that_begins_between_key_frames_is_asked_for_one() {
        gst::init().unwrap();
        let line = "appsrc name=camera format=time caps=video/x-h264 ! identity name=decoder ! fakesink sync=false async=false";
        let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Pipeline>().unwrap();
        ask_for_key_frame(&pipeline.by_name("decoder").unwrap());
        let camera = pipeline.by_name("camera").and_downcast::<gst_app::AppSrc>().unwrap();
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        camera.static_pad("src").unwrap().add_probe(gst::PadProbeType::EVENT_UPSTREAM, move |_, info| {
            let is_asked = info.event().is_some_and(|event| gst_video::UpstreamForceKeyUnitEvent::parse(event).is_ok());
            count.fetch_add(u32::from(is_asked), Ordering::Relaxed);
            gst::PadProbeReturn::Ok
        });
        pipeline.set_state(gst::State::Playing).unwrap();
        // Two requests for 31 frames without one; none once it has come.
        for number in 0..100 {
            let mut buffer = gst::Buffer::with_size(1).unwrap();
            if number != 31 {
                buffer.make_mut().set_flags(gst::BufferFlags::DELTA_UNIT);
            }
            camera.push_buffer(buffer).unwrap();
        }
        camera.end_of_stream().unwrap();
        let end =
            pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &[gst::MessageType::Eos]);
        assert!(end.is_some());
        pipeline.set_state(gst::State::Null).unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
