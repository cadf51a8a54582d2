// SPDX-License-Identifier: MPL-2.0
//! Whether an encrypted connection to a server comes about, for those whose own client does not tell why it does not.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::connection::connect;
use super::options::PublishOptions;
use super::tls;

/// Connects, greets by TLS with the authorities in a file, or with those of the system, and closes.
///
/// # Errors
/// The server cannot be reached, speaks no TLS, or its certificate is not trusted.
pub fn check(host: &str, port: u16, ca_file: Option<&Path>, timeout: Duration) -> io::Result<()> {
    let options = PublishOptions { ca_file: ca_file.map(Path::to_path_buf), ..PublishOptions::default() };
    let config = tls::client(&options).map_err(|error| io::Error::other(error.message()))?;
    connect(host, port, timeout)?.encrypt(host, &config).map(drop)
}
