// SPDX-License-Identifier: MPL-2.0
//! Zones and lines that are drawn on each frame.

use super::color::{Rgb, sample, text_color_on};
use super::plan::tag;
use super::{Font, LabeledBox, Stroke, Style, Target, strokes};
use crate::image::geometry::Rect;

/// The edge of a zone, or a line, with a text at its first point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Boundary {
    /// Pixels of the frame.
    pub points: Vec<[f32; 2]>,
    /// Whether the last point is joined to the first one.
    pub is_closed: bool,
    pub text: String,
    pub color: Option<Rgb>,
    /// Pixels; 0 for that of the style.
    pub thickness: u32,
}

/// Yellow, which no class among the first has.
const COLOR: Rgb = [255, 214, 0];

impl Boundary {
    /// Adds its lines to the strokes, and a labelled box for its text.
    pub(super) fn plan(
        &self,
        (boxes, strokes, text): (&mut Vec<LabeledBox>, &mut Vec<Stroke>, &mut Vec<u16>),
        font: &Font,
        target: &Target,
        style: &Style,
    ) {
        let rgb = self.color.unwrap_or(COLOR);
        let color = sample(rgb, target);
        let style = match self.thickness {
            0 => *style,
            thickness => Style { line_width: thickness, ..*style },
        };
        let joined = if self.is_closed { self.points.len() } else { self.points.len().saturating_sub(1) };
        for (&from, &to) in self.points.iter().zip(self.points.iter().cycle().skip(1)).take(joined) {
            strokes::line(strokes, target, from, to, &style, color);
        }
        let Some(&[x, y]) = self.points.first().filter(|_| style.labels && !self.text.is_empty()) else { return };
        let text_start = text.len() as u32;
        text.extend(self.text.chars().take(font.room(target)).map(Font::glyph));
        let text_len = text.len() as u32 - text_start;
        // NaN becomes 0.
        let pixel = |at: f32, size: u32| (at as u32).min(size.saturating_sub(1));
        let (left, top) = (pixel(x, target.width), pixel(y, target.height));
        let corner = Rect { left, top, right: left + 1, bottom: top + 1 };
        let tag = tag(&corner, text_len, font, target);
        boxes.push(LabeledBox {
            tag,
            color,
            text_color: sample(text_color_on(rgb), target),
            text_start,
            text_len,
            ..LabeledBox::default()
        });
    }
}
