// SPDX-License-Identifier: MPL-2.0
//! Addresses of web servers that this program sends requests to.

use super::wording::{KeyError, problem};

/// The scheme and the host, such as `http://localhost:4318`, and the path behind them. What is secret belongs into those other
/// keys.
pub fn split<'a>(
    key: &'static str,
    address: &'a str,
    secrets: &str,
    example: &str,
) -> Result<(&'a str, &'a str), KeyError> {
    let wrong = |text: String| problem(key, text);
    let is_web = |address: &&str| ["http://", "https://"].iter().any(|scheme| address.starts_with(scheme));
    let Some((scheme, rest)) = Some(address).filter(is_web).and_then(|address| address.split_once("://")) else {
        return Err(wrong(format!("it is no web address. Write it like {example}")));
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if host.contains('@') {
        return Err(wrong(format!("it has a user or a password. Write {secrets} instead")));
    }
    if rest.contains(['?', '#']) || rest.chars().any(|c| c.is_control() || c == ' ') {
        return Err(wrong(format!("an address has no spaces, and no ? and # here. Write it like {example}")));
    }
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if host.is_empty() || host.starts_with(':') || !host.chars().all(is_host) {
        return Err(wrong(format!("there is no host in it. Write it like {example}")));
    }
    Ok((&address[..scheme.len() + 3 + host.len()], path))
}
