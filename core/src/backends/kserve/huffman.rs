// SPDX-License-Identifier: MPL-2.0
//! Huffman's code of headers (RFC 7541, appendix B). It is canonical: the codes follow from their lengths.

use std::sync::LazyLock;

/// Bits of the code of each byte, and of the end.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28,
    28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6,
    12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15,
    5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20,
    22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22,
    23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26,
    27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

const LONGEST: usize = 30;

/// The symbols of each length: the first code, and the symbols from that on.
struct CodeTable([(u32, Vec<u16>); LONGEST + 1]);

static CODES: LazyLock<CodeTable> = LazyLock::new(|| {
    let mut code = 0;
    CodeTable(std::array::from_fn(|length| {
        let of_length = (0..).zip(&LENGTHS).filter(|(_, bits)| usize::from(**bits) == length);
        let symbols: Vec<u16> = of_length.map(|(symbol, _)| symbol).collect();
        code <<= 1;
        let first = code;
        code += symbols.len() as u32;
        (first, symbols)
    }))
});

/// The bytes; `None` where it is no such code.
pub fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(bytes.len() * 8 / 5);
    let (mut code, mut length) = (0u32, 0);
    for bit in bytes.iter().flat_map(|byte| (0..8).rev().map(move |shift| byte >> shift & 1)) {
        code = code << 1 | u32::from(bit);
        length += 1;
        let (first, symbols) = CODES.0.get(length)?;
        let at = code.checked_sub(*first).and_then(|at| usize::try_from(at).ok());
        if let Some(symbol) = at.and_then(|at| symbols.get(at)) {
            decoded.push(u8::try_from(*symbol).ok()?); // the end is never sent
            (code, length) = (0, 0);
        }
    }
    // The last byte is filled with ones, which are the beginning of the end.
    (length < 8 && code == (1 << length) - 1).then_some(decoded)
}
