// SPDX-License-Identifier: MPL-2.0
//! Masks as text: the run lengths of [COCO](https://github.com/cocodataset/cocoapi), compressed as its `counts`.

use super::Mask;
use super::bits::words;
use crate::image::geometry::Rect;

impl Mask {
    /// The run lengths of the rectangle's pixels, column by column, as COCO compresses them to text.
    #[doc(hidden)]
    pub fn counts(&self) -> String {
        let (width, height) = (self.rect.width() as usize, self.rect.height());
        // The rows at which the pixels of each column change, above the first of which they are not set: how many, and
        // then which, one column behind the other.
        let mut ends = vec![0u32; width + 1];
        self.changes(|x, _| ends[x + 1] += 1);
        for x in 0..width {
            ends[x + 1] += ends[x];
        }
        let mut rows = vec![0u32; ends[width] as usize];
        self.changes(|x, y| {
            rows[ends[x] as usize] = y;
            ends[x] += 1;
        });
        // The ranges of set pixels, counted down the columns.
        let all = u64::from(height) * width as u64;
        let mut edges: Vec<u64> = Vec::with_capacity(rows.len() + 2);
        let mut begin = 0;
        for (x, &end) in ends[..width].iter().enumerate() {
            let first = x as u64 * u64::from(height);
            let rows = &rows[std::mem::replace(&mut begin, end as usize)..end as usize];
            let last = (rows.len() % 2 == 1).then_some(height);
            for at in rows.iter().copied().chain(last).map(|y| first + u64::from(y)) {
                // A range that ends at the bottom of a column may continue at the top of the next one.
                if edges.last() == Some(&at) {
                    edges.pop();
                } else {
                    edges.push(at);
                }
            }
        }
        if edges.last() != Some(&all) {
            edges.push(all);
        }
        let starts = std::iter::once(&0).chain(&edges);
        compress(edges.iter().zip(starts).map(|(end, start)| (end - start) as i64))
    }

    /// Calls `found` with the column and the row of each pixel that differs from the one above it, row by row.
    fn changes(&self, mut found: impl FnMut(usize, u32)) {
        let nothing = vec![0; words(self.rect.width())];
        let mut above = &nothing[..];
        for y in 0..self.rect.height() {
            let row = self.row(y);
            for (word, (a, b)) in above.iter().zip(row).enumerate() {
                let mut differ = a ^ b;
                while differ != 0 {
                    found(word * u32::BITS as usize + differ.trailing_zeros() as usize, y);
                    differ &= differ - 1;
                }
            }
            above = row;
        }
    }

    /// The mask of a rectangle with those run lengths; `None` if their sum is not the number of pixels.
    #[doc(hidden)]
    pub fn from_counts(rect: Rect, counts: &str) -> Option<Self> {
        if rect.left > rect.right || rect.top > rect.bottom {
            return None;
        }
        let (width, height) = (u64::from(rect.width()), u64::from(rect.height()));
        let lengths = decompress(counts)?;
        let mut end = 0u64;
        for &length in &lengths {
            end = end.checked_add(u64::try_from(length).ok()?)?;
        }
        if end != width * height {
            return None;
        }
        let mut mask = Mask::new(rect);
        let stride = words(rect.width());
        let mut at = 0;
        for (i, &length) in lengths.iter().enumerate() {
            let end = at + length as u64;
            if i % 2 == 1 {
                for at in at..end {
                    let (x, y) = ((at / height) as usize, (at % height) as usize);
                    mask.bits[y * stride + x / 32] |= 1 << (x % 32);
                }
            }
            at = end;
        }
        Some(mask)
    }
}

/// Numbers as text: each is the difference from that two before it, from the fourth on, in groups of five bits, the
/// lowest first. A character is its group plus 48; bit 5 is set if more groups follow.
fn compress(numbers: impl Iterator<Item = i64>) -> String {
    let mut text = String::with_capacity(2 * numbers.size_hint().0);
    // The last number, and the one before it.
    let mut before = [0; 2];
    for (i, number) in numbers.enumerate() {
        let mut rest = if i > 2 { number - before[1] } else { number };
        before = [number, before[0]];
        loop {
            let group = (rest & 0x1f) as u8;
            rest >>= 5;
            let is_last = rest == if group & 0x10 != 0 { -1 } else { 0 };
            text.push(char::from(48 + group + if is_last { 0 } else { 0x20 }));
            if is_last {
                break;
            }
        }
    }
    text
}

/// The reverse; `None` for any other text.
fn decompress(text: &str) -> Option<Vec<i64>> {
    let mut numbers: Vec<i64> = Vec::new();
    let (mut number, mut shift) = (0i64, 0);
    for byte in text.bytes() {
        let group = byte.checked_sub(48).filter(|group| group >> 6 == 0 && shift < 60)?;
        number |= i64::from(group & 0x1f) << shift;
        shift += 5;
        if group & 0x20 != 0 {
            continue;
        }
        if group & 0x10 != 0 {
            number |= -1 << shift;
        }
        let before = if numbers.len() > 2 { numbers[numbers.len() - 2] } else { 0 };
        numbers.push(number.checked_add(before)?);
        (number, shift) = (0, 0);
    }
    (shift == 0).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_lengths_are_those_of_coco() {
        // Computed apart, by a script of another language.
        let square = Rect { left: 0, top: 0, right: 4, bottom: 3 };
        let counts = |text: &str| Mask::of(square, &text.bytes().map(|byte| byte == b'x').collect::<Vec<_>>()).counts();
        assert_eq!(counts("............"), "<");
        assert_eq!(counts("xxxxxxxxxxxx"), "0<");
        assert_eq!(counts("x..........."), "01;");
        assert_eq!(counts(".....x......"), "417");
        assert_eq!(counts("....xx...xx."), "11210O1");
        assert_eq!(compress([0, 1, 2, 40, 100, 3].into_iter()), "012W1R3kN");
        assert_eq!(decompress("012W1R3kN"), Some(vec![0, 1, 2, 40, 100, 3]));
    }

    #[test]
    fn texts_that_are_no_run_lengths_are_refused() {
        let square = Rect { left: 0, top: 0, right: 4, bottom: 3 };
        for text in ["", "=", "0=", "P", "\u{e9}", "oooooooooooooooooooooo0", "<0<", "-", "0N"] {
            assert_eq!(Mask::from_counts(square, text), None, "{text}");
        }
        assert_eq!(Mask::from_counts(Rect { left: 3, ..Rect::default() }, ""), None);
        assert_eq!(Mask::from_counts(Rect::default(), ""), Some(Mask::default()));
    }
}
