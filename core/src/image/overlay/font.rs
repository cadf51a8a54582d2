// SPDX-License-Identifier: MPL-2.0
//! The letters of labels: Noto Sans Mono, rasterised by the crate `noto-sans-mono-bitmap` (font under the OFL 1.1).

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

/// Basic Latin, Latin-1 and Latin Extended-A: the letters of most languages in Latin script.
const CHARS: std::ops::RangeInclusive<char> = ' '..='\u{17f}';

/// The font in one size.
#[derive(Debug)]
pub struct Font {
    /// Pixels of every glyph. The height holds accents and descenders, so lines of text need no more space.
    pub width: u32,
    pub height: u32,
    /// `[glyph][height][width]`: 0 background … 255 text. One block of bytes, which is uploaded to a GPU unchanged.
    pub coverage: Vec<u8>,
}

impl Font {
    fn new(size: RasterHeight) -> Self {
        let raster = |c| get_raster(c, FontWeight::Bold, size);
        let rows = CHARS.filter_map(|c| raster(c).or_else(|| raster('?'))).flat_map(|glyph| glyph.raster());
        Font {
            width: get_raster_width(FontWeight::Bold, size) as u32,
            height: size.val() as u32,
            coverage: rows.flat_map(|row| *row).copied().collect(),
        }
    }

    /// The size for a frame, taken from `slot` if that holds it.
    pub fn for_frame(slot: &mut Option<Font>, width: u32, height: u32) -> &Font {
        let size = match width.min(height) {
            0..600 => RasterHeight::Size16,
            600..900 => RasterHeight::Size20,
            900..1300 => RasterHeight::Size24,
            _ => RasterHeight::Size32,
        };
        slot.take_if(|font| font.height != size.val() as u32);
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
