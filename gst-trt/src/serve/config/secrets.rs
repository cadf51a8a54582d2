// SPDX-License-Identifier: MPL-2.0
//! What does not stand in the file: `${VARIABLE}` of the environment, and files with a password or a token, as systemd's
//! LoadCredential gives them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use gsttrt_core::files::read_regular;

/// Bytes of a file with a password.
const MAX_LENGTH: u64 = 64 << 10;
/// Of a file of certificates. Longer ones are refused.
const MAX_CERTIFICATES: u64 = 16 << 20;

/// The text with the values of the variables in it. `$${` is `${`.
pub fn expand(text: &str) -> Result<String, String> {
    expand_with(text, |_, value| value)
}

/// The same for an address: in user and password a value is written as addresses have it.
pub fn expand_address(text: &str) -> Result<String, String> {
    expand_with(text, |begin, value| if is_in_userinfo(text, begin) { encoded(&value) } else { value })
}

fn expand_with(text: &str, write: impl Fn(usize, String) -> String) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(begin) = text[at..].find("${").map(|found| at + found) {
        if text[at..begin].ends_with('$') {
            expanded.push_str(&text[at..begin - 1]);
            expanded.push_str("${");
            at = begin + 2;
            continue;
        }
        let end = text[begin..].find('}').map(|found| begin + found);
        let name = end.map(|end| &text[begin + 2..end]);
        let name = name.filter(|name| {
            !name.is_empty()
                && name.len() <= 64
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        });
        let (Some(name), Some(end)) = (name, end) else {
            return Err("${ begins the name of a variable, which ends with }. Write $${ for ${ itself".into());
        };
        let value = std::env::var(name)
            .map_err(|_| format!("the environment has no variable {name}. Set it, or write $${{ for ${{ itself"))?;
        expanded.push_str(&text[at..begin]);
        expanded.push_str(&write(begin, value));
        at = end + 1;
    }
    expanded.push_str(&text[at..]);
    Ok(expanded)
}

/// Whether that byte of an address is before its `@`.
fn is_in_userinfo(text: &str, byte: usize) -> bool {
    let Some(begin) = text.find("://").map(|found| found + 3).filter(|begin| byte >= *begin) else { return false };
    let end = text[begin..].find(['/', '?', '#']).map_or(text.len(), |found| begin + found);
    text[byte..end.max(byte)].contains('@')
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let write = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(write).collect()
}

/// The text of a file, without its last line break.
pub fn read(path: &Path) -> Result<String, String> {
    let text = read_regular(path, MAX_LENGTH)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| std::io::Error::other("it is not a text in UTF-8")))
        .map_err(|error| format!("cannot read {}: {error}. Check its path and permissions", path.display()))?;
    Ok(text.trim_end_matches(['\n', '\r']).into())
}

/// What tells one content of a file with a password or certificates from another. The same content may come again as another file:
/// volumes of Kubernetes make all of their files again where one of them changes. `None` where it cannot be read.
pub fn content_of(path: &Path) -> Option<u64> {
    let bytes = read_regular(path, MAX_CERTIFICATES).ok()?;
    let mut content = DefaultHasher::new();
    bytes.hash(&mut content);
    Some(content.finish())
}

/// The address with the password of a file. It has a user, and no password.
pub fn with_password(address: &str, password: &str) -> Result<String, String> {
    let wrong =
        || "password-file needs a user without a password in address, such as rtsp://admin@camera/1".to_string();
    let (scheme, rest) = address.split_once("://").ok_or_else(wrong)?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (user, host) = rest[..end].rsplit_once('@').ok_or_else(wrong)?;
    if user.is_empty() || user.contains(':') {
        return Err(wrong());
    }
    Ok(format!("{scheme}://{user}:{}@{host}{}", encoded(password), &rest[end..]))
}

/// The address with a user. It has none.
pub fn with_user(address: &str, user: &str) -> Result<String, String> {
    let wrong = || "user needs an address without one, such as rtsp://camera/1".to_string();
    let (scheme, rest) = address.split_once("://").ok_or_else(wrong)?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    if user.is_empty() || rest[..end].contains('@') {
        return Err(wrong());
    }
    Ok(format!("{scheme}://{}@{rest}", encoded(user)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced() {
        let home = std::env::var("PATH").unwrap();
        assert_eq!(expand("a ${PATH} b"), Ok(format!("a {home} b")));
        assert_eq!(expand("$${PATH} $ {x}"), Ok("${PATH} $ {x}".into()));
        for wrong in ["${", "${}", "${a b}", "${NO_SUCH_VARIABLE}"] {
            assert!(expand(wrong).is_err(), "{wrong}");
        }
        assert!(is_in_userinfo("rtsp://me:${A}@host/1", 10) && !is_in_userinfo("rtsp://${A}:554/a@b", 7));
        assert!(!is_in_userinfo("${A}", 0));
        assert_eq!(expand_address("rtsp://me:${PATH}@h/${PATH}"), Ok(format!("rtsp://me:{}@h/{home}", encoded(&home))));
    }

    #[test]
    fn a_user_is_written_into_the_address() {
        assert_eq!(with_user("rtsp://host:554/a@b", "me@site"), Ok("rtsp://me%40site@host:554/a@b".into()));
        let both = with_user("rtsp://host/", "me").and_then(|address| with_password(&address, "pw"));
        assert_eq!(both, Ok("rtsp://me:pw@host/".into()));
        for (address, user) in [("rtsp://you@host/", "me"), ("video.mp4", "me"), ("rtsp://host/", "")] {
            assert!(with_user(address, user).is_err(), "{address}");
        }
    }

    #[test]
    fn a_password_is_written_into_the_address() {
        assert_eq!(with_password("rtsp://me@host:554/a@b", "p@ß/"), Ok("rtsp://me:p%40%C3%9F%2F@host:554/a@b".into()));
        for wrong in ["rtsp://host/", "rtsp://me:pw@host/", "rtsp://@host/", "video.mp4"] {
            assert!(with_password(wrong, "x").is_err(), "{wrong}");
        }
    }
}
