// SPDX-License-Identifier: MPL-2.0
//! The letters of labels: Noto Sans Mono, bold (under the OFL 1.1). `font.bin` holds the glyphs of [`CHARS`] in each of
//! [`SIZES`], as the crate noto-sans-mono-bitmap 0.3.2 rasterises them; that crate is 16 MB of source for these 350 kB.

/// Basic Latin, Latin-1 and Latin Extended-A: the letters of most languages in Latin script.
const CHARS: std::ops::RangeInclusive<char> = ' '..='\u{17f}';

/// Width and height of the glyphs in pixels, in the order of the atlas.
const SIZES: [(u32, u32); 4] = [(7, 16), (9, 20), (11, 24), (14, 32)];

static ATLAS: &[u8] = include_bytes!("font.bin");

/// The font in one size.
#[derive(Debug)]
pub struct Font {
    /// Pixels of every glyph. The height holds accents and descenders, so lines of text need no more space.
    pub width: u32,
    pub height: u32,
    /// `[glyph][height][width]`: 0 background … 255 text. One block of bytes, which is uploaded to a GPU unchanged.
    pub coverage: &'static [u8],
}

impl Font {
    /// The size of that index.
    fn new(size: usize) -> Self {
        let bytes = |(width, height)| CHARS.clone().count() * (width * height) as usize;
        let begin = SIZES[..size].iter().copied().map(bytes).sum::<usize>();
        let (width, height) = SIZES[size];
        Font { width, height, coverage: &ATLAS[begin..][..bytes(SIZES[size])] }
    }

    /// The size for a frame, taken from `slot` if that holds it.
    pub fn for_frame(slot: &mut Option<Font>, width: u32, height: u32) -> &Font {
        let size = match width.min(height) {
            0..600 => 0,
            600..900 => 1,
            900..1300 => 2,
            _ => 3,
        };
        slot.take_if(|font| font.height != SIZES[size].1);
        slot.get_or_insert_with(|| Font::new(size))
    }

    /// The index of a character's glyph in `coverage`; that of `?` for characters that the font lacks.
    pub fn glyph(c: char) -> u16 {
        let c = if CHARS.contains(&c) { c } else { '?' };
        (c as u32 - *CHARS.start() as u32) as u16
    }

    /// The rows of a glyph.
    pub fn rows(&self, glyph: u16) -> impl Iterator<Item = &[u8]> {
        let area = (self.width * self.height) as usize;
        self.coverage[usize::from(glyph) * area..][..area].chunks_exact(self.width as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_atlas_has_each_size() {
        let last = Font::new(SIZES.len() - 1);
        assert_eq!(last.coverage.as_ptr_range().end, ATLAS.as_ptr_range().end);
    }

    #[test]
    fn unknown_characters_are_question_marks() {
        let mut slot = None;
        let font = Font::for_frame(&mut slot, 640, 360);
        let same = |a: char, b: char| font.rows(Font::glyph(a)).eq(font.rows(Font::glyph(b)));
        assert!(same('犬', '?') && same('\n', '?') && same('\u{80}', '?'));
        assert!(!same('ä', '?') && !same('ł', '?') && !same('~', '?'));
    }

    #[test]
    fn the_size_follows_the_shorter_side() {
        let mut slot = None;
        let mut height = |w, h| Font::for_frame(&mut slot, w, h).height;
        assert_eq!([height(640, 360), height(1280, 720), height(1080, 1920), height(3840, 2160)], [16, 20, 24, 32]);
    }
}
