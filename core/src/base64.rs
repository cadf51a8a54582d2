// SPDX-License-Identifier: MPL-2.0
//! Bytes as text: base64 of RFC 4648, with its padding.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0, |number, &byte| number << 8 | usize::from(byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = char::from(DIGITS[number >> (18 - 6 * place) & 63]);
            text.push(if place <= three.len() { digit } else { '=' });
        }
    }
    text
}

/// `None` where the text is none of these.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (fours, []) = text.as_bytes().as_chunks::<4>() else { return None };
    let mut bytes = Vec::with_capacity(fours.len() * 3);
    for (at, four) in fours.iter().enumerate() {
        let padding = four.iter().rev().take_while(|&&digit| digit == b'=').count();
        if padding > 2 || padding > 0 && at + 1 < fours.len() {
            return None;
        }
        let mut number = 0u32;
        for &digit in &four[..4 - padding] {
            number = number << 6 | value(digit)?;
        }
        number <<= 6 * padding;
        bytes.extend_from_slice(&number.to_be_bytes()[1..4 - padding]);
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_rfc_4648() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        assert_eq!(encode(&[0xFB, 0xFF]), "+/8=");
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
        for wrong in ["Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Z=g=", "Zm9\n", "Zm9é"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
