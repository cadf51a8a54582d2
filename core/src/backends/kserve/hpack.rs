// SPDX-License-Identifier: MPL-2.0
//! Headers of HTTP/2 as bytes (RFC 7541). What is sent are literals. What comes may be an entry of the static table, a literal,
//! or in Huffman's code; no dynamic table is kept, as this side has asked for.

use super::huffman;

/// A name and a value.
pub type HeaderPair = (String, String);

/// Bytes of all names and values of a block. Those of gRPC have some hundred.
const MAX_HEADERS: usize = 64 << 10;

/// The names and values that have a number (appendix A), from 1 on.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// A block of these headers.
pub fn encode<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0); // a literal that is not to be kept, with a name of its own
        for text in [name, value] {
            put_number(&mut block, 7, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// A number in the last `bits` of a byte of zeros, and in more bytes where it does not fit.
fn put_number(block: &mut Vec<u8>, bits: u32, number: usize) {
    let most = (1 << bits) - 1;
    if number < most {
        return block.push(number as u8);
    }
    block.push(most as u8);
    let mut rest = number - most;
    while rest >= 0x80 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// The headers of a block; `None` where it is none, or too large.
pub fn decode(block: &[u8]) -> Option<Vec<HeaderPair>> {
    let (mut rest, mut headers, mut bytes) = (block, Vec::new(), 0);
    while let Some(&first) = rest.first() {
        let header = if first & 0x80 != 0 {
            let (name, value) = entry(take_number(&mut rest, 7)?)?;
            (name.to_string(), value.to_string())
        } else if first & 0xe0 == 0x20 {
            // The size of the table that is not there.
            if take_number(&mut rest, 5)? > 0 {
                return None;
            }
            continue;
        } else {
            // With a table of no bytes, what is to be kept is dropped at once.
            let bits = if first & 0x40 != 0 { 6 } else { 4 };
            let name = match take_number(&mut rest, bits)? {
                0 => take_text(&mut rest)?,
                number => entry(number)?.0.to_string(),
            };
            (name, take_text(&mut rest)?)
        };
        bytes += header.0.len() + header.1.len() + 32;
        if bytes > MAX_HEADERS {
            return None;
        }
        headers.push(header);
    }
    Some(headers)
}

fn entry(number: usize) -> Option<(&'static str, &'static str)> {
    STATIC.get(number.checked_sub(1)?).copied()
}

fn take_byte(rest: &mut &[u8]) -> Option<u8> {
    let (&first, behind) = rest.split_first()?;
    *rest = behind;
    Some(first)
}

fn take_number(rest: &mut &[u8], bits: u32) -> Option<usize> {
    let most = (1usize << bits) - 1;
    let mut number = usize::from(take_byte(rest)?) & most;
    if number < most {
        return Some(number);
    }
    // Nothing here is longer than 28 bits say.
    for shift in [0, 7, 14, 21] {
        let byte = take_byte(rest)?;
        number += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    let is_huffman = rest.first()? & 0x80 != 0;
    let length = take_number(rest, 7)?;
    let (bytes, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    let bytes = if is_huffman { huffman::decode(bytes)? } else { bytes.to_vec() };
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of_hex(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    fn pairs(headers: &[(&str, &str)]) -> Vec<HeaderPair> {
        headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    /// The first of each group in appendix C of the RFC.
    #[test]
    fn blocks_of_the_standard_are_read() {
        let request = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];
        let response = [
            (":status", "302"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
            ("location", "https://www.example.com"),
        ];
        for (hex, headers) in [
            (
                "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
                &[("custom-key", "custom-header")][..],
            ),
            ("040c 2f73 616d 706c 652f 7061 7468", &[(":path", "/sample/path")]),
            ("1008 7061 7373 776f 7264 0673 6563 7265 74", &[("password", "secret")]),
            ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", &request),
            ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", &request),
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 \
                 63c7 8f0b 97c8 e9ae 82ae 43d3",
                &response,
            ),
            ("20", &[]),
        ] {
            assert_eq!(decode(&of_hex(hex)), Some(pairs(headers)), "{hex}");
        }
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let huge = [&[0u8, 0x7f, 0xff, 0xff, 0xff][..], &[0x7f]].concat();
        let many = [0x88u8].repeat(MAX_HEADERS);
        for block in ["80", "be", "00", "0005", "41", "3f e1 1f", "00 82 ff ff 00", "ff ff ff ff ff ff ff 0f"] {
            assert_eq!(decode(&of_hex(block)), None, "{block}");
        }
        assert_eq!([decode(&huge), decode(&many)], [None, None]);
    }

    /// Texts of a pattern, which is read once for all of them.
    fn text(pattern: &str) -> prop::string::RegexGeneratorStrategy<String> {
        prop::string::string_regex(pattern).unwrap()
    }

    proptest! {
        #![proptest_config(crate::test::cases(200))]
        #[test]
        fn what_is_written_is_read(headers in prop::collection::vec((text("[a-z-]{0,300}"), text("[ -~]{0,300}")), 0..9)) {
            let block = encode(headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            prop_assert_eq!(decode(&block), Some(headers));
        }

        #[test]
        fn any_bytes_end(block in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&block);
        }
    }
}
