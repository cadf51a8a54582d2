// SPDX-License-Identifier: MPL-2.0
//! DTLS by dimpl, for str0m.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use dimpl::{Config, Dtls, DtlsCertificate, crypto};
use str0m::crypto::CryptoError;
use str0m::crypto::dtls::{
    DtlsCert, DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, DtlsVersion, ProtocolVersion,
};

use super::certificate::OwnCertificate;
use super::keys::{CURVES, RingKeys};
use super::records::Aes128Gcm;

#[derive(Debug)]
pub struct RingDtls;

fn primitives() -> crypto::CryptoProvider {
    crypto::CryptoProvider {
        kx_groups: &CURVES,
        signature_verification: &RingKeys,
        key_provider: &RingKeys,
        secure_random: &RingKeys,
        hash_provider: &RingKeys,
        hmac_provider: &RingKeys,
        cipher_suites: &[&Aes128Gcm],
        dtls13_cipher_suites: &[&Aes128Gcm],
    }
}

/// Settings for packets of that length. What they are made of is compared with test vectors each time, so the last ones are kept.
fn config(mtu: Option<usize>) -> Result<Arc<Config>, CryptoError> {
    static LAST: Mutex<Option<(Option<usize>, Arc<Config>)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, config)) = last.as_ref().filter(|(length, _)| *length == mtu) {
        return Ok(config.clone());
    }
    // ICE has made sure before that the peer is where it says.
    let config = Config::builder().with_crypto_provider(primitives()).use_server_cookie(false);
    let config = mtu.into_iter().fold(config, |config, mtu| config.mtu(mtu));
    let config = Arc::new(config.build().map_err(CryptoError::DtlsImpl)?);
    *last = Some((mtu, config.clone()));
    Ok(config)
}

impl DtlsProvider for RingDtls {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        let OwnCertificate { certificate, private_key } = OwnCertificate::new().ok()?;
        Some(DtlsCertificate { certificate, private_key })
    }

    fn new_dtls(
        &self,
        certificate: &DtlsCert,
        now: Instant,
        version: DtlsVersion,
        mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        let config = config(mtu)?;
        let certificate = certificate.clone();
        let dtls = match version {
            DtlsVersion::Dtls12 => Dtls::new_12(config, certificate, now),
            DtlsVersion::Dtls13 => Dtls::new_13(config, certificate, now),
            _ => Dtls::new_auto(config, certificate, now),
        };
        Ok(Box::new(DtlsEnd(dtls)))
    }
}

/// One end of a connection.
struct DtlsEnd(Dtls);

impl fmt::Debug for DtlsEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DtlsEnd")
    }
}

impl DtlsInstance for DtlsEnd {
    fn set_active(&mut self, active: bool) {
        self.0.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.0.handle_packet(packet)
    }

    fn poll_output<'a>(&mut self, buffer: &'a mut [u8]) -> DtlsOutput<'a> {
        self.0.poll_output(buffer)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.0.handle_timeout(now)
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<(), DtlsImplError> {
        self.0.send_application_data(data)
    }

    fn is_active(&self) -> bool {
        self.0.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.0.protocol_version()
    }

    fn is_closing(&self) -> bool {
        self.0.is_closing()
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.0.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// dimpl compares what they compute with vectors of its own.
    #[test]
    fn the_primitives_are_right() {
        primitives().validate().unwrap();
    }
}
