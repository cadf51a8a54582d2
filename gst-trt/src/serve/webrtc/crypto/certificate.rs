// SPDX-License-Identifier: MPL-2.0
//! Certificates as WebRTC has them: each signs itself, and is known by its digest in the session description. So of what is in
//! them only the key counts.

use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

use super::random::{self, Unusable};

/// Of X.509 and its encoding, ASN.1 DER.
const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
const OBJECT: u8 = 0x06;
const UTF8: u8 = 0x0c;
const TIME: u8 = 0x17;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;

const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// A certificate with its private key, in PKCS #8.
pub struct OwnCertificate {
    pub certificate: Vec<u8>,
    pub private_key: Vec<u8>,
}

/// The curve of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCurve {
    P256,
    P384,
}

impl OwnCertificate {
    pub fn new() -> Result<Self, Unusable> {
        let system = random::random();
        let private_key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, system)?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, private_key.as_ref(), system)?;
        let mut serial = [0; 16];
        random::fill(&mut serial)?;
        serial[0] = serial[0] & 0x3f | 0x40; // positive, and not shorter
        let algorithm = encode(SEQUENCE, &[&encode(OBJECT, &[ECDSA_WITH_SHA256])]);
        let name = encode(SEQUENCE, &[&encode(OBJECT, &[COMMON_NAME]), &encode(UTF8, &[b"gst-trt"])]);
        let name = encode(SEQUENCE, &[&encode(SET, &[&name])]);
        // Browsers look at the digest alone, and a service may run longer than its machine's clock is right.
        let times = encode(SEQUENCE, &[&encode(TIME, &[b"200101000000Z"]), &encode(TIME, &[b"491231235959Z"])]);
        let curve = encode(SEQUENCE, &[&encode(OBJECT, &[EC_PUBLIC_KEY]), &encode(OBJECT, &[P256])]);
        let key = encode(SEQUENCE, &[&curve, &encode(BITS, &[&[0], pair.public_key().as_ref()])]);
        let version = encode(VERSION, &[&encode(INTEGER, &[&[2]])]);
        let serial = encode(INTEGER, &[&serial]);
        let signed = encode(SEQUENCE, &[&version, &serial, &algorithm, &name, &times, &name, &key]);
        let signature = pair.sign(system, &signed)?;
        let signature = encode(BITS, &[&[0], signature.as_ref()]);
        let certificate = encode(SEQUENCE, &[&signed, &algorithm, &signature]);
        Ok(OwnCertificate { certificate, private_key: private_key.as_ref().to_vec() })
    }
}

/// The key in a certificate, where it is one that is known here.
pub fn public_key(certificate: &[u8]) -> Option<(KeyCurve, &[u8])> {
    let mut signed = inside(inside(certificate, SEQUENCE)?, SEQUENCE)?;
    if signed.first() == Some(&VERSION) {
        next(&mut signed)?;
    }
    // Serial number, algorithm, issuer, times, subject.
    for _ in 0..5 {
        next(&mut signed)?;
    }
    let mut key = inside(signed, SEQUENCE)?;
    let (SEQUENCE, mut algorithm) = next(&mut key)? else { return None };
    if next(&mut algorithm)? != (OBJECT, EC_PUBLIC_KEY) {
        return None;
    }
    let curve = match next(&mut algorithm)? {
        (OBJECT, P256) => KeyCurve::P256,
        (OBJECT, P384) => KeyCurve::P384,
        _ => return None,
    };
    Some((curve, inside(key, BITS)?.strip_prefix(&[0])?))
}

fn encode(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut encoded = vec![tag];
    match length {
        0..=0x7f => encoded.push(length as u8),
        0x80..=0xff => encoded.extend([0x81, length as u8]),
        _ => encoded.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    encoded.extend(parts.concat());
    encoded
}

/// The first element's tag and content. What follows it is left.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), &rest[2..]),
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some((tag, content))
}

/// The content of the first element, which has that tag.
fn inside(mut bytes: &[u8], tag: u8) -> Option<&[u8]> {
    next(&mut bytes).filter(|(found, _)| *found == tag).map(|(_, content)| content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_an_own_certificate_is_found() {
        let own = OwnCertificate::new().unwrap();
        let (curve, key) = public_key(&own.certificate).unwrap();
        assert!(curve == KeyCurve::P256 && key.len() == 65 && key[0] == 4, "{key:?}");
        assert!(OwnCertificate::new().unwrap().certificate != own.certificate);
        // As much of it as there is.
        let whole = &own.certificate;
        for end in 0..whole.len() {
            assert!(public_key(&whole[..end]).is_none(), "{end}");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x30, 0x7f, 0x80, 0x81, 0x82, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                public_key(&changed);
            }
        }
    }

    /// What OpenSSL makes of it, where that is installed.
    #[test]
    fn a_certificate_is_one_for_others_too() {
        let own = OwnCertificate::new().unwrap();
        let folder = crate::scratch::scratch("webrtc-certificate");
        let file = folder.join("own.der");
        std::fs::write(&file, &own.certificate).unwrap();
        let show = std::process::Command::new("openssl")
            .args(["x509", "-inform", "DER", "-noout", "-subject", "-text", "-in"])
            .arg(&file)
            .output();
        let Ok(shown) = show else {
            println!("SKIP: openssl is not installed.");
            return;
        };
        let text = String::from_utf8_lossy(&shown.stdout).replace(' ', "");
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        for part in ["CN=gst-trt", "Version:3", "ecdsa-with-SHA256", "prime256v1"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
