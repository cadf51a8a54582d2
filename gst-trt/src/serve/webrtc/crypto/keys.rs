// SPDX-License-Identifier: MPL-2.0
//! Random numbers, the exchange of keys, signatures and digests, as dimpl asks for them.

use std::fmt;

use dimpl::crypto::{
    ActiveKeyExchange, Buf, HashAlgorithm, HashContext, HashProvider, HmacProvider, KeyProvider, NamedGroup,
    SecureRandom as DtlsRandom, SignatureAlgorithm, SignatureVerifier, SigningKey, SupportedKxGroup,
};
use dimpl::{CryptoError, CryptoOperation};
use ring::agreement::{self, EphemeralPrivateKey, UnparsedPublicKey};
use ring::signature::{
    self, ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1,
    ECDSA_P384_SHA384_ASN1, EcdsaKeyPair,
};
use ring::{digest, hmac};

use super::certificate::{KeyCurve, public_key};
use super::random::{fill, random};

#[derive(Debug)]
pub struct RingKeys;

impl DtlsRandom for RingKeys {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), CryptoError> {
        fill(bytes).map_err(|_| CryptoError::OperationFailed(CryptoOperation::FillRandom))
    }
}

// ------------------------------------------------------------------------------------------- exchange

/// A curve on which keys are exchanged.
pub struct ExchangeCurve(NamedGroup, &'static agreement::Algorithm);

pub static CURVES: [&dyn SupportedKxGroup; 3] = [
    &ExchangeCurve(NamedGroup::X25519, &agreement::X25519),
    &ExchangeCurve(NamedGroup::Secp256r1, &agreement::ECDH_P256),
    &ExchangeCurve(NamedGroup::Secp384r1, &agreement::ECDH_P384),
];

impl fmt::Debug for ExchangeCurve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl SupportedKxGroup for ExchangeCurve {
    fn name(&self) -> NamedGroup {
        self.0
    }

    fn start_exchange(&self, mut buffer: Buf) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        let failed = |_| CryptoError::OperationFailed(CryptoOperation::StartKeyExchange);
        let own = EphemeralPrivateKey::generate(self.1, random()).map_err(failed)?;
        buffer.clear();
        buffer.extend_from_slice(own.compute_public_key().map_err(failed)?.as_ref());
        Ok(Box::new(KeyExchange { group: self.0, own, public: buffer }))
    }
}

struct KeyExchange {
    group: NamedGroup,
    own: EphemeralPrivateKey,
    public: Buf,
}

impl fmt::Debug for KeyExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyExchange({:?})", self.group)
    }
}

impl ActiveKeyExchange for KeyExchange {
    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn complete(self: Box<Self>, peer: &[u8], out: &mut Buf) -> Result<(), CryptoError> {
        let KeyExchange { group, own, .. } = *self;
        let peer = UnparsedPublicKey::new(own.algorithm(), peer);
        // ring refuses points that are not on the curve, and secrets of nothing but zeros.
        agreement::agree_ephemeral(own, &peer, |secret| {
            out.clear();
            out.extend_from_slice(secret);
        })
        .map_err(|_| CryptoError::InvalidPublicKey(group))
    }

    fn group(&self) -> NamedGroup {
        self.group
    }
}

// ------------------------------------------------------------------------------------------- signatures

struct OwnKey(EcdsaKeyPair);

impl fmt::Debug for OwnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnKey")
    }
}

impl KeyProvider for RingKeys {
    fn load_private_key(&self, key: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key, random());
        Ok(Box::new(OwnKey(pair.map_err(|_| CryptoError::InvalidPrivateKey)?)))
    }
}

impl SigningKey for OwnKey {
    fn sign(&mut self, data: &[u8], hash: HashAlgorithm, out: &mut Buf) -> Result<(), CryptoError> {
        if hash != HashAlgorithm::SHA256 {
            return Err(CryptoError::SigningKeyUnsupportedHash { group: NamedGroup::Secp256r1, hash });
        }
        let signature = self.0.sign(random(), data);
        let signature = signature.map_err(|_| CryptoError::OperationFailed(CryptoOperation::Sign))?;
        out.clear();
        out.extend_from_slice(signature.as_ref());
        Ok(())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        HashAlgorithm::SHA256
    }

    fn supported_hash_algorithms(&self) -> &[HashAlgorithm] {
        &[HashAlgorithm::SHA256]
    }
}

impl SignatureVerifier for RingKeys {
    fn verify_signature(
        &self,
        certificate: &[u8],
        data: &[u8],
        signature: &[u8],
        hash: HashAlgorithm,
        algorithm: SignatureAlgorithm,
    ) -> Result<(), CryptoError> {
        if algorithm != SignatureAlgorithm::ECDSA {
            return Err(CryptoError::UnsupportedSignatureAlgorithm(algorithm));
        }
        let (curve, key) = public_key(certificate).ok_or(CryptoError::CertificateParseFailed)?;
        let group = match curve {
            KeyCurve::P256 => NamedGroup::Secp256r1,
            KeyCurve::P384 => NamedGroup::Secp384r1,
        };
        let scheme: &dyn signature::VerificationAlgorithm = match (curve, hash) {
            (KeyCurve::P256, HashAlgorithm::SHA256) => &ECDSA_P256_SHA256_ASN1,
            (KeyCurve::P256, HashAlgorithm::SHA384) => &ECDSA_P256_SHA384_ASN1,
            (KeyCurve::P384, HashAlgorithm::SHA256) => &ECDSA_P384_SHA256_ASN1,
            (KeyCurve::P384, HashAlgorithm::SHA384) => &ECDSA_P384_SHA384_ASN1,
            _ => return Err(CryptoError::UnsupportedSignatureVerification { signature: algorithm, hash, group }),
        };
        let verified = signature::UnparsedPublicKey::new(scheme, key).verify(data, signature);
        verified.map_err(|_| CryptoError::SignatureVerificationFailed { signature: algorithm, hash, group })
    }
}

// ------------------------------------------------------------------------------------------- digests

#[derive(Clone)]
struct RunningDigest(digest::Context);

impl fmt::Debug for RunningDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunningDigest")
    }
}

impl HashContext for RunningDigest {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn clone_and_finalize(&self, out: &mut Buf) {
        out.clear();
        out.extend_from_slice(self.0.clone().finish().as_ref());
    }
}

impl HashProvider for RingKeys {
    fn create_hash(&self, hash: HashAlgorithm) -> Box<dyn HashContext> {
        // The suites of `records` have SHA-256 alone.
        let algorithm = if hash == HashAlgorithm::SHA384 { &digest::SHA384 } else { &digest::SHA256 };
        Box::new(RunningDigest(digest::Context::new(algorithm)))
    }
}

impl HmacProvider for RingKeys {
    fn hmac(&self, hash: HashAlgorithm, key: &[u8], data: &[u8], out: &mut [u8]) -> Result<usize, CryptoError> {
        let algorithm = match hash {
            HashAlgorithm::SHA256 => hmac::HMAC_SHA256,
            HashAlgorithm::SHA384 => hmac::HMAC_SHA384,
            _ => return Err(CryptoError::UnsupportedHmacHash(hash)),
        };
        let tag = hmac::sign(&hmac::Key::new(algorithm, key), data);
        let room = out.get_mut(..tag.as_ref().len());
        room.ok_or(CryptoError::OperationFailed(CryptoOperation::ComputeHmac))?.copy_from_slice(tag.as_ref());
        Ok(tag.as_ref().len())
    }
}
