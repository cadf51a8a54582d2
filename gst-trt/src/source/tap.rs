// SPDX-License-Identifier: MPL-2.0
//! The encoded streams of a source on their way to its decoders, for those who keep them as they are: the video that is
//! looked at, and the first sound.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gst::prelude::*;
use gsttrt_publish::clock;

/// Bytes of a video that are kept until it is known which video is looked at, which a decoder tells with its first frame.
const MOST_PENDING: usize = 16 << 20;
/// Between packets, where the later one has no time: a parser takes it away where it is that of the one before. Nanoseconds.
const STEP: i64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    Video,
    Audio,
}

/// A frame, or a piece of sound, as it was sent.
#[derive(Clone, Debug)]
pub struct Packet {
    pub medium: Medium,
    /// Those of the pad and no copy, so that packets of one format are known by it.
    pub caps: gst::Caps,
    /// With memory of its own: that of a camera or of a file may be a part of something large, or be needed again.
    pub buffer: gst::Buffer,
    /// Running times in nanoseconds at which it is shown and decoded. Those before the beginning are negative.
    pub pts: i64,
    pub dts: Option<i64>,
    /// Whether it can be shown without those before.
    pub is_key: bool,
    /// Whether time does not go on from the one before.
    pub is_cut: bool,
    /// When it came, in nanoseconds since 1970 and by a clock that nobody sets.
    pub arrived: u64,
    pub came: Instant,
}

impl Packet {
    /// `None` for one without a time that follows none.
    pub fn new(
        medium: Medium,
        buffer: &gst::BufferRef,
        caps: gst::Caps,
        segment: &gst::Segment,
        before: Option<i64>,
    ) -> Option<Self> {
        let segment = segment.downcast_ref::<gst::ClockTime>()?;
        let running = |time: Option<gst::ClockTime>| {
            Some(match segment.to_running_time_full(time)? {
                gst::Signed::Positive(time) => time.nseconds() as i64,
                gst::Signed::Negative(time) => -(time.nseconds() as i64),
            })
        };
        let dts = running(buffer.dts());
        let pts = running(buffer.pts()).or(dts).or(before.map(|before| before + STEP))?;
        let is_key = medium == Medium::Audio || !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
        let bytes = buffer.map_readable().ok().filter(|bytes| !bytes.is_empty())?.to_vec();
        let mut own = gst::Buffer::from_mut_slice(bytes);
        let writable = own.get_mut().expect("it was just made");
        writable.set_duration(buffer.duration());
        if !is_key {
            writable.set_flags(gst::BufferFlags::DELTA_UNIT);
        }
        let (arrived, came) = (clock::now(), Instant::now());
        Some(Packet { medium, caps, buffer: own, pts, dts, is_key, is_cut: false, arrived, came })
    }

    /// By which packets of a stream are in their order.
    pub fn time(&self) -> i64 {
        self.dts.unwrap_or(self.pts)
    }
}

/// Where packets go, from the threads of the source.
pub trait PacketSink: Send + Sync {
    /// The video that is looked at was found, with the caps of what is decoded; without, where nothing is. Its packets come
    /// after that, if it returns true.
    fn found(&self, pipeline: &gst::Pipeline, encoded: Option<&gst::CapsRef>) -> bool;

    /// A sound was found, of that format. Returns whether it is wanted, of which the packets come then.
    fn heard(&self, sound: &gst::CapsRef) -> bool;

    fn take(&self, packet: Packet);
}

/// What of a source is wanted as it is.
#[derive(Clone)]
pub struct Tap {
    pub sink: Arc<dyn PacketSink>,
    pub video: bool,
    pub audio: bool,
}

fn is_sound(caps: &gst::CapsRef) -> bool {
    caps.structure(0).is_some_and(|caps| caps.name().starts_with("audio/"))
}

/// A pad by its address, as a reference would keep the pad alive that keeps this.
type PadId = usize;

fn id(pad: &gst::Pad) -> PadId {
    pad.as_ptr() as PadId
}

/// The decoders of a source's videos.
pub struct VideoTap {
    sink: Arc<dyn PacketSink>,
    state: Mutex<VideoState>,
}

enum VideoState {
    /// The packets of each video so far.
    Open(Vec<(PadId, Vec<Packet>)>),
    Chosen(Option<PadId>),
}

impl VideoTap {
    pub fn new(sink: &Arc<dyn PacketSink>) -> Arc<Self> {
        Arc::new(VideoTap { sink: sink.clone(), state: Mutex::new(VideoState::Open(Vec::new())) })
    }

    fn lock(&self) -> MutexGuard<'_, VideoState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what comes into a decoder.
    pub fn follow(self: &Arc<Self>, input: &gst::Pad) {
        let tap = self.clone();
        repeat_headers(input);
        tap_pad(input, Medium::Video, move |pad, packet| tap.take(id(pad), packet));
    }

    fn take(&self, from: PadId, packet: Packet) {
        let mut state = self.lock();
        match &mut *state {
            VideoState::Chosen(chosen) => {
                let is_wanted = *chosen == Some(from);
                drop(state);
                if is_wanted {
                    self.sink.take(packet);
                }
            }
            VideoState::Open(videos) => {
                let position = videos.iter().position(|(pad, _)| *pad == from).unwrap_or_else(|| {
                    videos.push((from, Vec::new()));
                    videos.len() - 1
                });
                let pending = &mut videos[position].1;
                if pending.iter().map(|packet| packet.buffer.size()).sum::<usize>() > MOST_PENDING {
                    pending.clear();
                }
                pending.push(packet);
            }
        }
    }

    /// The video that is looked at comes from that decoder, or from none.
    pub fn choose(&self, pipeline: &gst::Pipeline, decoder: Option<&gst::Element>) {
        let input = decoder.and_then(|decoder| decoder.static_pad("sink"));
        let caps = input.as_ref().and_then(|input| input.current_caps());
        let is_wanted = self.sink.found(pipeline, caps.as_deref());
        let chosen = input.as_ref().filter(|_| is_wanted).map(id);
        // Locked until the earlier packets are there, so that they come first.
        let mut state = self.lock();
        if let VideoState::Open(videos) = std::mem::replace(&mut *state, VideoState::Chosen(chosen)) {
            let pending = videos.into_iter().filter(|(pad, _)| Some(*pad) == chosen).flat_map(|(_, packets)| packets);
            pending.for_each(|packet| self.sink.take(packet));
        }
    }
}

/// In H.264 and H.265 as a stream of bytes, which decoders of GPUs take, what a decoder has to know may come once, before the
/// first frame. The parser before the decoder is told to repeat it: whoever takes the stream later begins with a key frame.
fn repeat_headers(input: &gst::Pad) {
    input.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, |pad, info| {
        if let Some(gst::EventView::Caps(caps)) = info.event().map(|event| event.view())
            && caps.caps().structure(0).and_then(|caps| caps.get("stream-format").ok()) == Some("byte-stream")
        {
            // A filter is between them.
            let before = |pad: &gst::Pad| pad.peer()?.parent_element();
            let elements = std::iter::successors(before(pad), |element| before(&element.static_pad("sink")?));
            if let Some(parser) = elements.take(3).find(|element| element.has_property("config-interval")) {
                parser.set_property("config-interval", -1);
            }
        }
        gst::PadProbeReturn::Ok
    });
}

/// Hands on what passes a pad.
fn tap_pad(pad: &gst::Pad, medium: Medium, take: impl Fn(&gst::Pad, Packet) + Send + Sync + 'static) {
    let (is_cut, last) = (AtomicBool::new(false), Mutex::new(None));
    let mask = gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST | gst::PadProbeType::EVENT_FLUSH;
    pad.add_probe(mask, move |pad, info| {
        let take_one = |buffer: &gst::BufferRef| {
            let packet = pad.sticky_event::<gst::event::Segment>(0).zip(pad.current_caps());
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            let packet = packet.and_then(|(event, caps)| Packet::new(medium, buffer, caps, event.segment(), *last));
            if let Some(packet) = packet {
                *last = Some(packet.pts);
                drop(last);
                take(pad, Packet { is_cut: is_cut.swap(false, Ordering::Relaxed), ..packet });
            }
        };
        match &info.data {
            Some(gst::PadProbeData::Buffer(buffer)) => take_one(buffer),
            Some(gst::PadProbeData::BufferList(list)) => list.iter().for_each(take_one),
            Some(gst::PadProbeData::Event(_)) => is_cut.store(true, Ordering::Relaxed),
            _ => {}
        }
        gst::PadProbeReturn::Ok
    });
}

/// Takes the first sound of a source that is wanted, which is not decoded: `decode` gives it as it is. The others stay where
/// they are, as each takes a thread.
pub fn follow_audio(pipeline: &gst::Pipeline, decode: &gst::Element, sink: &Arc<dyn PacketSink>) {
    let (is_found, asked) = (AtomicBool::new(false), sink.clone());
    decode.connect("autoplug-continue", false, move |values| {
        let caps = values.get(2).and_then(|caps| caps.get::<gst::Caps>().ok()).filter(|caps| is_sound(caps));
        let is_wanted = caps.is_some_and(|caps| !is_found.load(Ordering::Relaxed) && asked.heard(&caps))
            && !is_found.swap(true, Ordering::Relaxed);
        Some((!is_wanted).to_value())
    });
    let (pipeline, sink) = (pipeline.downgrade(), sink.clone());
    decode.connect_pad_added(move |_, pad| {
        let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
        let Some(pipeline) = pipeline.upgrade().filter(|_| is_sound(&caps)) else { return };
        let end = gst::ElementFactory::make("fakesink")
            .property("sync", false)
            .property("async", false)
            .property("enable-last-sample", false)
            .build();
        let Ok(end) = end else { return };
        // It is not what the end of the pipeline waits for, nor what a seek goes to.
        end.unset_element_flags(gst::ElementFlags::SINK);
        let sink = sink.clone();
        let input = end.static_pad("sink").expect("an always pad");
        tap_pad(&input, Medium::Audio, move |_, packet| sink.take(packet));
        if pipeline.add(&end).is_ok() && end.sync_state_with_parent().is_ok() {
            let _ = pad.link(&input); // without it there is no sound, and the video goes on
        }
    });
}
