// SPDX-License-Identifier: MPL-2.0
//! What a viewer offers to take, and what it is answered: one video in H.264, and nothing else of the offer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use str0m::change::{SdpAnswer, SdpOffer};
use str0m::crypto::CryptoProvider;
use str0m::crypto::dtls::DtlsCert;
use str0m::format::{Codec, PayloadParams};
use str0m::media::{Mid, Pt};
use str0m::rtp::{Extension, ExtensionMap};
use str0m::{Candidate, Rtc, RtcConfig};

use super::crypto;
use crate::failure::contain;
use crate::serve::control::OfferRefused;

/// Profiles of H.264, as RFC 6184 writes them with level 3.1. Who decodes one of them decodes those after it, too: an encoder gives
/// any of them, which is known when it runs, and levels are taken as the video has them.
const PROFILES: [u32; 5] = [0x64001f, 0x640c1f, 0x4d001f, 0x42e01f, 0x42001f];
/// Payload types before there is an offer, whose own ones are taken then. Each is followed by that of what is sent again.
const FIRST_TYPE: u8 = 96;
/// Packets of a viewer that are kept for being sent again: a second and more of them.
const KEPT_PACKETS: usize = 500;

/// Makes sessions, all with one certificate.
pub struct RtcFactory {
    provider: Arc<CryptoProvider>,
    certificate: DtlsCert,
}

/// A viewer that can be sent packets once it has connected.
pub struct OfferedSession {
    pub rtc: Rtc,
    /// The part of the offer that is answered with video.
    pub mid: Mid,
    pub payload_type: Pt,
}

impl RtcFactory {
    pub fn new() -> Option<Self> {
        let provider = Arc::new(crypto::provider());
        let certificate = provider.dtls_provider.generate_certificate()?;
        Some(RtcFactory { provider, certificate })
    }

    /// Settings of either end.
    pub fn config(&self) -> RtcConfig {
        let mut extensions = ExtensionMap::empty();
        extensions.set(4, Extension::RtpMid);
        let mut config = RtcConfig::new()
            .set_crypto_provider(self.provider.clone())
            .set_dtls_cert(self.certificate.clone())
            .set_extension_map(extensions)
            .set_send_buffer_video(KEPT_PACKETS)
            .set_rtp_mode(true)
            .clear_codecs();
        for (number, profile) in (0..).zip(PROFILES) {
            let of_video = FIRST_TYPE + 2 * number;
            config.codec_config().add_h264(of_video.into(), Some((of_video + 1).into()), true, profile);
        }
        config
    }

    /// The session, and the answer.
    pub fn accept(&self, offer: &str, candidates: &[SocketAddr]) -> Result<(OfferedSession, String), OfferRefused> {
        let malformed = |why: &dyn std::fmt::Display| {
            // What the parser says behind its first line has addresses of this process.
            let why = why.to_string();
            let why = why.lines().next().unwrap_or_default().split(" at Pointer").next().unwrap_or_default();
            let text = format!("The offer cannot be read: {why}. Send an SDP offer, as RTCPeerConnection makes it.");
            OfferRefused::Malformed(text)
        };
        let offer = SdpOffer::from_sdp_string(offer).map_err(|error| malformed(&error))?;
        let accepted = contain(|| {
            let mut rtc = self.config().set_ice_lite(true).build(Instant::now());
            for address in candidates {
                // One that browsers take nothing from, such as of a link, is left out.
                if let Ok(candidate) = Candidate::host(*address, "udp") {
                    rtc.add_local_candidate(candidate);
                }
            }
            let answer = rtc.sdp_api().accept_offer(offer).map_err(|error| error.to_string())?;
            Ok((rtc, answer))
        });
        let (rtc, answer): (Rtc, SdpAnswer) = accepted.map_err(|failure| malformed(&failure))?;
        let answer = answer.to_sdp_string();
        let (mid, payload_type) = video(&rtc, &answer).ok_or_else(|| {
            let text = "The video is refused: the offer has no part that receives video in H.264 with packetization-mode=1. \
                        Take a browser that decodes H.264, or ask for live.mjpeg.";
            OfferRefused::Unsupported(text.into())
        })?;
        Ok((OfferedSession { rtc, mid, payload_type }, answer))
    }
}

/// The part of the offer that takes video, and its payload type of the best profile.
fn video(rtc: &Rtc, answer: &str) -> Option<(Mid, Pt)> {
    // str0m names its parts when the session has connected, which is too late.
    let parts = answer.split("\r\nm=").filter(|part| part.starts_with("video "));
    let mids = parts.filter_map(|part| part.lines().find_map(|line| line.strip_prefix("a=mid:")).map(Mid::from));
    let rank = |params: &PayloadParams| {
        let format = params.spec().format;
        let profile = PROFILES.iter().position(|known| Some(known >> 8) == format.profile_level_id.map(|id| id >> 8));
        (params.spec().codec == Codec::H264 && format.packetization_mode == Some(1))
            .then_some(profile.unwrap_or(PROFILES.len()))
    };
    let mut sent = mids.filter(|mid| rtc.media(*mid).is_some_and(|media| media.direction().is_sending()));
    sent.find_map(|mid| {
        let offered = rtc.media(mid)?.remote_pts();
        let known = rtc.codec_config().params().iter().filter(|params| offered.contains(&params.pt()));
        let best = known.filter_map(|params| Some((rank(params)?, params.pt()))).min_by_key(|(rank, _)| *rank)?;
        Some((mid, best.1))
    })
}
