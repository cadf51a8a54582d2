// SPDX-License-Identifier: MPL-2.0
//! What str0m and dimpl encrypt with: ring, which TLS brings anyway, and the block cipher that RTP's oldest profile needs.
//! So no other library of cryptography is built, and none of the system is needed.
//!
//! * `certificate`: the one of this service, and the keys in those of others. `keys`: how two agree on a key, and prove who they are; `random`.
//!   `records`: what DTLS encrypts. `media`: what RTP encrypts. `dtls`: both put together.

mod certificate;
mod dtls;
mod keys;
mod media;
mod random;
mod records;

use ring::{digest, hmac};
use str0m::crypto::{CryptoProvider, Sha1HmacProvider, Sha256Provider};

/// All that str0m needs.
pub fn provider() -> CryptoProvider {
    CryptoProvider {
        srtp_provider: &media::RtpCiphers,
        sha1_hmac_provider: &RingDigests,
        sha256_provider: &RingDigests,
        dtls_provider: &dtls::RingDtls,
    }
}

#[derive(Debug)]
struct RingDigests;

impl Sha1HmacProvider for RingDigests {
    fn sha1_hmac(&self, key: &[u8], payloads: &[&[u8]]) -> [u8; 20] {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key));
        payloads.iter().for_each(|payload| context.update(payload));
        context.sign().as_ref().try_into().expect("SHA-1 has 20 bytes")
    }
}

impl Sha256Provider for RingDigests {
    fn sha256(&self, data: &[u8]) -> [u8; 32] {
        digest::digest(&digest::SHA256, data).as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

/// Bytes that nobody can guess, in hexadecimal digits.
pub fn random_name() -> Option<String> {
    let mut bytes = [0; 16];
    random::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second test case of RFC 2202, and the first one of FIPS 180.
    #[test]
    fn digests_are_those_of_the_standards() {
        let parts: [&[u8]; 2] = [b"what do ya want ", b"for nothing?"];
        let sum = RingDigests.sha1_hmac(b"Jefe", &parts);
        assert_eq!(sum[..4], [0xef, 0xfc, 0xdf, 0x6a]);
        assert_eq!(RingDigests.sha256(b"abc")[..4], [0xba, 0x78, 0x16, 0xbf]);
    }

    #[test]
    fn names_differ() {
        let (one, other) = (random_name().unwrap(), random_name().unwrap());
        assert!(one != other && one.len() == 32, "{one} {other}");
    }
}
