// SPDX-License-Identifier: MPL-2.0
//! Rows of pixels as bits: whole words, the left pixel in the lowest bit.

/// The words of a row of that many pixels.
pub fn words(width: u32) -> usize {
    width.div_ceil(u32::BITS) as usize
}

/// Whether a pixel is set.
pub fn is_set(bits: &[u32], at: u32) -> bool {
    bits[(at / u32::BITS) as usize] >> (at % u32::BITS) & 1 == 1
}

/// The ranges of set pixels.
pub fn runs(bits: &[u32], width: u32) -> impl Iterator<Item = [u32; 2]> {
    let mut at = 0;
    // The first pixel from `at` on that is set, or not set.
    let next = move |mut at: u32, value: bool| {
        while at < width {
            let word = bits[(at / u32::BITS) as usize];
            let rest = (if value { word } else { !word }) >> (at % u32::BITS);
            if rest != 0 {
                return (at + rest.trailing_zeros()).min(width);
            }
            at = (at / u32::BITS + 1) * u32::BITS;
        }
        width
    };
    std::iter::from_fn(move || {
        let start = next(at, true);
        at = next(start, false);
        (start < width).then_some([start, at])
    })
}

/// Sets a range of pixels.
pub fn fill(bits: &mut [u32], [start, end]: [u32; 2]) {
    if start >= end {
        return;
    }
    let [first, last] = [start, end - 1].map(|at| (at / u32::BITS) as usize);
    let (from, to) = (u32::MAX << (start % u32::BITS), u32::MAX >> ((u32::BITS - end % u32::BITS) % u32::BITS));
    if first == last {
        bits[first] |= from & to;
        return;
    }
    bits[first] |= from;
    bits[first + 1..last].fill(u32::MAX);
    bits[last] |= to;
}
