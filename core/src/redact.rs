// SPDX-License-Identifier: MPL-2.0
//! Addresses and texts of others, as they may be shown.

/// Words of names whose values are nobody's business.
const SECRETS: [&str; 14] =
    ["pas", "pwd", "pw", "user", "usr", "login", "account", "token", "secret", "auth", "key", "cred", "sig", "session"];

/// An address as logs, errors and properties may show it: without user and password, and without what may be a secret
/// in its path and query. Where it is not clear where a secret ends, because it has unescaped characters, more is
/// hidden. Of what is no address only a part that looks like a password is hidden.
///
/// ```
/// use gsttrt_core::redact::redacted;
/// assert_eq!(redacted("rtsp://admin:se/cret@camera:554/live?x=1"), "rtsp://***@camera:554/live?x=1");
/// assert_eq!(redacted("rtsp://camera/user=admin&password=x&channel=1"), "rtsp://camera/user=***");
/// assert_eq!(redacted("https://hooks.example/services/T01/9fGh27KqLw83nBvX"), "https://hooks.example/services/T01/***");
/// ```
pub fn redacted(address: &str) -> String {
    let is_scheme =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (&address[..scheme.len() + 3], rest),
        _ => ("", address),
    };
    let has_userinfo = |before: &str| match scheme {
        "" => before.contains(':') || before.contains("//"),
        "file://" => !before.starts_with('/'),
        _ => true,
    };
    let userinfo = rest.rfind('@').filter(|&at| has_userinfo(&rest[..at]));
    let secret = secret_value(rest);
    match (userinfo, secret) {
        // The one may be a part of the other.
        (Some(at), Some(value)) if value <= at => format!("{scheme}***"),
        (at, _) => {
            let (hidden, shown) = at.map_or(("", rest), |at| ("***", &rest[at..]));
            let is_web = ["http://", "https://"].iter().any(|web| scheme.eq_ignore_ascii_case(web));
            format!("{scheme}{hidden}{}", without_values(shown, is_web))
        }
    }
}

/// A part of an address, its path behind the first slash, without what may be a secret. Of the web all queries are, and words of
/// the path that look drawn at random, as addresses of webhooks have them.
pub fn without_values(part: &str, is_web: bool) -> String {
    let query = part.find('?').filter(|&at| is_web && at + 1 < part.len()).map(|at| at + 1);
    let cut = secret_value(part).into_iter().chain(query).min();
    let (shown, hidden) = cut.map_or((part, ""), |at| (&part[..at], "***"));
    let (path, query) = shown.split_at(shown.find('?').unwrap_or(shown.len()));
    let words = path.split('/').enumerate();
    let words: Vec<&str> =
        words.map(|(at, word)| if is_web && at > 0 && is_token(word) { "***" } else { word }).collect();
    format!("{}{query}{hidden}", words.join("/"))
}

/// Whether a word of a path looks drawn at random: long, of letters and digits.
pub fn is_token(word: &str) -> bool {
    word.len() >= 16 && word.bytes().any(|b| b.is_ascii_digit()) && word.bytes().any(|b| b.is_ascii_alphabetic())
}

/// Where the first value begins that may be secret.
fn secret_value(text: &str) -> Option<usize> {
    text.match_indices('=').map(|(at, _)| at).find(|&at| is_secret(name_before(&text[..at]))).map(|at| at + 1)
}

fn name_before(text: &str) -> &str {
    text.rsplit(['/', '?', '&', ';', '#', ',', ':', '@', '=']).next().unwrap_or_default()
}

/// Whether the value of that name may be secret. A name with a percent sign could be any.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains('%') || SECRETS.iter().any(|word| name.contains(word))
}

/// A text of somebody else, such as a server: in one line, without control characters, and not longer than that.
pub fn printable(text: &str, characters: usize) -> String {
    let shown: String = text.chars().take(characters).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let end = if text.chars().nth(characters).is_some() { "…" } else { "" };
    format!("{}{end}", shown.trim())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_shown_has_no_secret() {
        for (address, shown) in [
            ("out.jsonl", "out.jsonl"),
            ("me@home.jsonl", "me@home.jsonl"),
            ("file:///a@b/c.jsonl", "file:///a@b/c.jsonl"),
            ("mqtt://host/t", "mqtt://host/t"),
            ("mqtt://host/t?qos=1", "mqtt://host/t?qos=1"),
            ("mqtt://me@host/t", "mqtt://***@host/t"),
            ("mqtt://me:secret@host/t?qos=1", "mqtt://***@host/t?qos=1"),
            ("mqtt://me:se@cr/et@host/t", "mqtt://***@host/t"),
            ("mqtt://me:se?cr#@host/t", "mqtt://***@host/t"),
            ("rtsp://admin:12/34@host/t", "rtsp://***@host/t"),
            ("nats://token@host/t", "nats://***@host/t"),
            ("http://host/hook?b&key=secret", "http://host/hook?***"),
            ("http://host/hook?", "http://host/hook?"),
            ("https://host:1/services/T01/9fGh27KqLw83nBvX?x", "https://host:1/services/T01/***?***"),
            (
                "http://camera-0123456789abcdef/axis-cgi/mjpg/video.cgi",
                "http://camera-0123456789abcdef/axis-cgi/mjpg/video.cgi",
            ),
            ("rtsp://host/9fGh27KqLw83nBvX", "rtsp://host/9fGh27KqLw83nBvX"),
            ("HTTPS://host/hook?b", "HTTPS://host/hook?***"),
            ("mqtt://host/t?Password=secret&qos=1", "mqtt://host/t?Password=***"),
            ("rtsp://host/?pwd=a@b", "rtsp://***"),
            ("rtsp://u:p?token=x@host/", "rtsp://***"),
            ("rtsp://host/user=admin&password=x&channel=1", "rtsp://host/user=***"),
            ("rtsp://host/p%61ssword=x", "rtsp://host/p%61ssword=***"),
            ("mqtt//me:secret@host/t", "***@host/t"),
            ("mqtt:/me:secret@host/t", "***@host/t"),
            ("x://a:secret@", "x://***@"),
        ] {
            assert_eq!(redacted(address), shown, "{address}");
            assert_eq!(redacted(shown), shown, "it stays as it is");
        }
    }

    #[test]
    fn texts_of_others_are_short_and_in_one_line() {
        assert_eq!(printable(" a\u{1b}[31mb\nc\0 ", 99), "a [31mb c");
        assert_eq!(printable(&"ä".repeat(1_000_000), 3), "äää…");
    }

    /// Texts of a pattern, which is read once for all of them.
    fn text(pattern: &str) -> prop::string::RegexGeneratorStrategy<String> {
        prop::string::string_regex(pattern).unwrap()
    }

    proptest! {
        #![proptest_config(crate::test::cases(10_000))]
        #[test]
        fn no_character_of_a_secret_is_shown(
            // Each part of it can be found again.
            gaps in prop::collection::vec(text("[ -~äß€]{0,3}"), 1..5),
            user in text("[a-z]{0,3}"),
            scheme in text("rtsp|mqtt|http|ws|redis|nats|x-y|RTSP|file"),
            end in text("/live|/a/b.mp4|\\?x=1|"),
            name in text("password|pwd|token|user|PassWord|api_key|loginpas"),
            form in 0..7,
        ) {
            let secret = format!("Zq9{}Zq9", gaps.join("Zq9"));
            let address = match form {
                0 => format!("{scheme}://{user}:{secret}@host:1{end}"),
                1 => format!("{scheme}://{secret}@host{end}"),
                2 => format!("{scheme}://host{end}/?{name}={secret}"),
                3 => format!("{scheme}://host/user={secret}&password={secret}&channel=1"),
                4 => format!("{scheme}://{user}:{secret}@host/{name}={secret}"),
                5 => format!("{scheme}//{user}:{secret}@host{end}"),
                _ => format!("{scheme}://host{end}/?x=1&{name}={secret}&y=2"),
            };
            let shown = redacted(&address);
            prop_assert!(!shown.contains("Zq9"), "{address}: {shown}");
            prop_assert_eq!(redacted(&shown), shown.clone(), "{}", address);
        }
    }
}
