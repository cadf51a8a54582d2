// SPDX-License-Identifier: MPL-2.0
//! Certificates for encrypted connections: the system's, or those of the options' files.

use std::path::Path;
use std::sync::{Arc, Once};

use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::files::read_regular;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::options::PublishOptions;

/// Certificates and keys as files have them, checked.
pub struct Certificates {
    /// The authorities that may sign the server's certificate; the system's where it is `None`.
    pub authorities: Option<Vec<u8>>,
    /// The client's certificates, and its key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

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

impl Certificates {
    pub fn read(options: &PublishOptions) -> Result<Self> {
        let mut found = Certificates { authorities: None, client: None };
        if let Some(path) = &options.ca_file {
            let pem = read("ca-file", path)?;
            certificates("ca-file", path, &pem)?;
            found.authorities = Some(pem);
        }
        if let (Some(cert_file), Some(key_file)) = (&options.cert_file, &options.key_file) {
            let (chain, secret) = (read("cert-file", cert_file)?, read("key-file", key_file)?);
            certificates("cert-file", cert_file, &chain)?;
            key(key_file, &secret)?;
            found.client = Some((chain, secret));
        }
        Ok(found)
    }
}

/// All authorities that may sign the server's certificate.
pub fn authorities(options: &PublishOptions) -> Result<Vec<CertificateDer<'static>>> {
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
    install_provider();
    let mut roots = RootCertStore::empty();
    // Stores of systems have some that cannot be used.
    roots.add_parsable_certificates(authorities(options)?);
    let config = ClientConfig::builder().with_root_certificates(roots);
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

/// Chooses the cryptography for the clients that look for it in the process, unless the program has chosen another.
pub fn install_provider() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
}
