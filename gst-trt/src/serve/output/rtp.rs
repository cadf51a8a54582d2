// SPDX-License-Identifier: MPL-2.0
//! RTP packets, and what makes those of pipelines that follow each other one stream: players that have seen one source of packets
//! take no other.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use gst::prelude::*;

/// The payload type of the packets.
pub const PAYLOAD_TYPE: u8 = 96;
/// Units of their times in a second.
const CLOCK_RATE: u64 = 90_000;

/// RTP packets that belong together: a frame, or a part of one.
pub struct RtpUnit {
    pub packets: Vec<Bytes>,
    /// Whether a decoder can begin with it.
    pub is_key: bool,
}

impl RtpUnit {
    pub fn of(sample: &gst::Sample) -> Option<Self> {
        let buffers: Vec<&gst::BufferRef> = match (sample.buffer_list(), sample.buffer()) {
            (Some(list), _) => list.iter().collect(),
            (None, buffer) => buffer.into_iter().collect(),
        };
        let is_key = !buffers.first()?.flags().contains(gst::BufferFlags::DELTA_UNIT);
        let packet = |buffer: &gst::BufferRef| buffer.map_readable().ok().map(|map| Bytes::copy_from_slice(&map));
        Some(RtpUnit { packets: buffers.into_iter().filter_map(packet).collect(), is_key })
    }
}

/// How far the packets of an output have come, over all its pipelines.
#[derive(Clone)]
pub struct RtpProgress(Arc<Mutex<LastPacket>>);

struct LastPacket {
    source: u32,
    sequence: u16,
    timestamp: u32,
    /// `None` before the first.
    sent: Option<Instant>,
}

impl RtpProgress {
    pub fn new() -> Self {
        // The standard library's hashers have random keys.
        let random = RandomState::new().hash_one(());
        let source = (random >> 32) as u32;
        RtpProgress(Arc::new(Mutex::new(LastPacket {
            source,
            sequence: random as u16,
            timestamp: random as u32,
            sent: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, LastPacket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A payloader goes on where the last one has ended.
    pub fn go_on(&self, payloader: &gst::Element) {
        let last = self.lock();
        let passed = last.sent.map_or(0, |sent| sent.elapsed().as_millis() as u64 * CLOCK_RATE / 1000);
        payloader.set_property("ssrc", last.source);
        payloader.set_property("seqnum-offset", i32::from(last.sequence.wrapping_add(1)));
        payloader.set_property("timestamp-offset", last.timestamp.wrapping_add(passed as u32));
    }

    pub fn has_sent(&self, unit: &RtpUnit) {
        let Some(&[_, _, s0, s1, t0, t1, t2, t3, ..]) = unit.packets.last().map(Bytes::as_ref) else { return };
        let mut last = self.lock();
        last.sequence = u16::from_be_bytes([s0, s1]);
        last.timestamp = u32::from_be_bytes([t0, t1, t2, t3]);
        last.sent = Some(Instant::now());
    }
}
