// SPDX-License-Identifier: MPL-2.0
//! Certificates for encrypted connections: the system's, or those of the options' files.

use std::io;
use std::path::Path;
use std::sync::Arc;

use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::files::read_regular;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::options::PublishOptions;

/// Bytes of a file of certificates; all authorities of a system have less than 1 MiB.
const MAX_FILE: u64 = 16 << 20;

fn read(name: &str, path: &Path) -> Result<Vec<u8>> {
    read_regular(path, MAX_FILE).map_err(|error| {
        Error::new(ErrorKind::Read, format!("Cannot read the {name} {}", path.display()))
            .cause(error)
            .remedy("Check its path and permissions")
    })
}

fn certificates(name: &str, path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<std::result::Result<Vec<_>, _>>();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| {
        Error::new(ErrorKind::Settings, format!("There is no certificate in the {name} {}", path.display()))
            .remedy("Give a file in PEM, with BEGIN CERTIFICATE in it")
    })
}

fn key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>> {
    // The cause may quote the file, so it is not told.
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        Error::new(ErrorKind::Settings, format!("There is no private key in the key-file {}", path.display()))
            .remedy("Give a file in PEM, with BEGIN PRIVATE KEY in it, without a password")
    })
}

/// All authorities that may sign the server's certificate.
fn authorities(options: &PublishOptions) -> Result<Vec<CertificateDer<'static>>> {
    match &options.ca_file {
        Some(path) => certificates("ca-file", path, &read("ca-file", path)?),
        None => {
            let found = rustls_native_certs::load_native_certs();
            if found.certs.is_empty() {
                return Err(Error::new(ErrorKind::NotFound, "The system has no certificates to check servers with")
                    .remedy("Install ca-certificates, or set ca-file"));
            }
            Ok(found.certs)
        }
    }
}

/// The configuration of a TLS client by these options.
pub fn client(options: &PublishOptions) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let authorities = authorities(options)?;
    // Stores of systems have some that cannot be used.
    roots.add_parsable_certificates(authorities.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone()).build().map_err(|error| {
            Error::new(ErrorKind::Settings, "The certificates of authorities cannot be used")
                .cause(error)
                .remedy("Check ca-file")
        })?;
    let own = if options.ca_file.is_some() { authorities } else { Vec::new() };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has what the protocols need")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OrItself { verifier, own }));
    let config = match (&options.cert_file, &options.key_file) {
        (Some(cert_file), Some(key_file)) => {
            let chain = certificates("cert-file", cert_file, &read("cert-file", cert_file)?)?;
            let secret = key(key_file, &read("key-file", key_file)?)?;
            config.with_client_auth_cert(chain, secret).map_err(|error| {
                Error::new(ErrorKind::Settings, "cert-file and key-file do not fit together")
                    .cause(error)
                    .remedy("Give the key that the certificate was made with")
            })?
        }
        _ => config.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

/// Takes servers whose certificate an authority has signed, and those whose certificate is itself in the ca-file, as
/// OpenSSL does: `openssl req -x509` makes certificates of authorities, which a server should not have.
#[derive(Debug)]
struct OrItself {
    verifier: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for OrItself {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        match self.verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            // Dates were found right before that.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(error)))
                if error.to_string().contains(CA_AS_SERVER) && self.own.contains(end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Says in words what rustls names by a type.
pub fn in_words(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(inner)))
            if inner.to_string().contains(CA_AS_SERVER) =>
        {
            io::Error::new(error.kind(), "its certificate is one that has signed itself, and is not known here")
        }
        _ => error,
    }
}

/// What rustls calls a server that has the certificate of an authority.
const CA_AS_SERVER: &str = "CaUsedAsEndEntity";
