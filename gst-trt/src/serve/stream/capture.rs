// SPDX-License-Identifier: MPL-2.0
//! When a camera captured a frame, where it says so: by the reports of its RTP session.

use std::time::{Duration, SystemTime};

/// From 1900, where NTP begins, to 1970.
const NTP_TO_UNIX: Duration = Duration::from_secs(2_208_988_800);

/// Longer than this no frame is under way: the clock of the camera, or this one, is wrong.
const LONGEST: Duration = Duration::from_secs(3600);

/// How long ago the frame was captured, by the clock of the camera.
pub fn since(buffer: &gst::BufferRef) -> Option<Duration> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let captured = buffer.iter_meta::<gst::ReferenceTimestampMeta>().find_map(|meta| {
        let time = Duration::from_nanos(meta.timestamp().nseconds());
        match meta.reference().structure(0)?.name().as_str() {
            "timestamp/x-ntp" => time.checked_sub(NTP_TO_UNIX),
            "timestamp/x-unix" => Some(time),
            _ => None,
        }
    })?;
    now.checked_sub(captured).filter(|ago| *ago < LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(reference: &str, time: Duration) -> gst::Buffer {
        let mut buffer = gst::Buffer::new();
        let time = gst::ClockTime::from_nseconds(time.as_nanos() as u64);
        let caps = reference.parse::<gst::Caps>().unwrap();
        gst::ReferenceTimestampMeta::add(buffer.get_mut().unwrap(), &caps, time, gst::ClockTime::NONE);
        buffer
    }

    #[test]
    fn the_time_of_capture_is_that_of_the_camera() {
        gst::init().unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let before = now - Duration::from_millis(80);
        for buffer in [frame("timestamp/x-ntp", before + NTP_TO_UNIX), frame("timestamp/x-unix", before)] {
            let ago = since(&buffer).unwrap();
            assert!((Duration::from_millis(80)..Duration::from_secs(60)).contains(&ago), "{ago:?}");
        }
        for buffer in [
            gst::Buffer::new(),
            frame("timestamp/x-ptp", before),
            frame("timestamp/x-unix", now + Duration::from_secs(3000)), // a clock that is ahead
            frame("timestamp/x-unix", Duration::from_secs(1)),          // one that was never set
            frame("timestamp/x-ntp", Duration::from_secs(1)),
        ] {
            assert_eq!(since(&buffer), None);
        }
    }
}
