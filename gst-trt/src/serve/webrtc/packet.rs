// SPDX-License-Identifier: MPL-2.0
//! The packets of an output, taken apart: those of each viewer have numbers of their own.

/// Bytes of a packet before its payload.
const HEADER: usize = 12;

/// A packet without what numbers it.
pub struct RtpPart<'a> {
    pub timestamp: u32,
    /// Whether it is the last one of a frame.
    pub marker: bool,
    pub payload: &'a [u8],
}

impl<'a> RtpPart<'a> {
    /// What payloaders write: a header of a fixed length, and no padding.
    pub fn of(packet: &'a [u8]) -> Option<Self> {
        let (&[first, second, _, _, t0, t1, t2, t3, ..], payload) = packet.split_at_checked(HEADER)? else {
            return None;
        };
        let has_nothing_more = first & 0x3f == 0;
        has_nothing_more.then(|| RtpPart {
            timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
            marker: second & 0x80 != 0,
            payload,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_taken_apart() {
        let packet = [0x80, 0xe0, 0, 7, 1, 2, 3, 4, 9, 9, 9, 9, 0x65, 0x88];
        let part = RtpPart::of(&packet).unwrap();
        assert_eq!((part.timestamp, part.marker, part.payload), (0x0102_0304, true, &[0x65, 0x88][..]));
        assert!(!RtpPart::of(&[0x80, 0x60, 0, 7, 1, 2, 3, 4, 9, 9, 9, 9]).unwrap().marker);
        assert!(RtpPart::of(&packet[..11]).is_none());
        assert!(RtpPart::of(&[0x90; 20]).is_none(), "it has an extension of its header");
    }
}
