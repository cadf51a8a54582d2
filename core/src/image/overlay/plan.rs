// SPDX-License-Identifier: MPL-2.0
//! From detections to labelled boxes and strokes.

use bytemuck::{Pod, Zeroable};
use smallvec::SmallVec;

use super::color::{Sample, sample, text_color_on};
use super::{Annotation, Font, Overlay, Stroke, Style, strokes};
use crate::image::Candidate;
use crate::image::frame::{Colorimetry, FrameMut, PixelFormat};
use crate::image::geometry::{BBox, Rect};
use crate::image::keypoints::Keypoints;
use crate::image::rotated;

/// The properties of a frame that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    pub format: PixelFormat,
    pub width: u32,
    pub height: u32,
    pub color: Colorimetry,
}

impl Target {
    pub fn of(frame: &FrameMut) -> Self {
        let (width, height) = (frame.width as u32, frame.height as u32);
        Target { format: frame.format, width, height, color: frame.color }
    }
}

/// One detection, ready to be painted: 64 bytes, the same for the kernel. All rectangles lie in the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct LabeledBox {
    /// The outline is the area in `outer` and not in `inner`, which lies within `outer`. The outline of a rotated box
    /// is strokes; then both are the upright box around it.
    pub outer: Rect,
    pub inner: Rect,
    /// Filled with `color`; empty where there is no label.
    pub tag: Rect,
    /// The colour of the class, for outline and tag.
    pub color: Sample,
    /// The colour of the text.
    pub text_color: Sample,
    /// Its glyphs are `text[text_start..text_start + text_len]`, side by side in the middle of the tag.
    pub text_start: u32,
    pub text_len: u32,
}

impl LabeledBox {
    /// The outline as rectangles that do not overlap; some may be empty.
    pub fn sides(&self) -> [Rect; 4] {
        let LabeledBox { outer, inner, .. } = *self;
        [
            Rect { bottom: inner.top, ..outer },
            Rect { top: inner.bottom, ..outer },
            Rect { right: inner.left, top: inner.top, bottom: inner.bottom, ..outer },
            Rect { left: inner.right, top: inner.top, bottom: inner.bottom, ..outer },
        ]
    }

    /// Where the first glyph has its left upper pixel.
    pub fn text_origin(&self, font: &Font) -> (u32, u32) {
        (self.tag.left + margin(font), self.tag.top)
    }
}

/// All that is painted on one frame, in the order of painting: all outlines, then all strokes, then all tags.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub boxes: &'a [LabeledBox],
    pub strokes: &'a [Stroke],
    /// Glyphs of all tags, as indices of [`Font::glyph`].
    pub text: &'a [u16],
    pub font: &'a Font,
}

/// Beyond any frame and any line, and so small that sums of two fit an i32.
const FAR: i32 = 1 << 24;

impl Style {
    /// Pixels of an outline on such frames.
    pub(crate) fn line(&self, target: &Target) -> u32 {
        let line = match self.line_width {
            0 => (target.width.min(target.height) / 360).max(2),
            width => width,
        };
        line.min(FAR as u32)
    }
}

impl Font {
    /// The number of characters that fit in a tag, which must fit in the frame.
    pub(crate) fn room(&self, target: &Target) -> usize {
        if target.height < self.height {
            return 0;
        }
        (target.width.saturating_sub(2 * margin(self)) / self.width) as usize
    }
}

/// Pixels of a tag left and right of its text.
fn margin(font: &Font) -> u32 {
    font.width / 2
}

impl Overlay {
    /// Invalid boxes, and those wholly outside the frame, are left out.
    pub fn plan(
        &mut self,
        target: Target,
        detections: &[Candidate],
        keypoints: Option<&Keypoints>,
        labels: &[String],
        style: &Style,
    ) -> Plan<'_> {
        let annotation = |(object, detection): (usize, &Candidate)| Annotation {
            bbox: detection.bbox,
            corners: (detection.angle != 0.0).then(|| detection.rotated().corners()),
            class: Some(detection.class),
            label: labels.get(detection.class as usize).map_or("", String::as_str).into(),
            confidence: Some(detection.score),
            track_id: None,
            keypoints: keypoints.map(|keypoints| keypoints.object(object)),
            mask: None,
            attributes: Vec::new(),
            notes: Vec::new(),
            of_frame: false,
        };
        self.plan_annotations(target, detections.iter().enumerate().map(annotation), style)
    }

    /// The same for the annotations of a frame's metas, the most important first.
    pub fn plan_annotations<'a>(
        &mut self,
        target: Target,
        annotations: impl DoubleEndedIterator<Item = Annotation<'a>>,
        style: &Style,
    ) -> Plan<'_> {
        let Overlay { boxes, strokes, text, label, font, trails, boundaries, hides_ids, .. } = self;
        let font = Font::for_frame(font, target.width, target.height);
        boxes.clear();
        strokes.clear();
        text.clear();
        for boundary in &*boundaries {
            boundary.plan((boxes, strokes, text), font, &target, style);
        }
        let mut of_frame: SmallVec<[usize; 8]> = SmallVec::new();
        for annotation in annotations.rev() {
            let rgb = annotation.color();
            let color = sample(rgb, &target);
            if annotation.of_frame {
                if style.labels {
                    of_frame.push(boxes.len());
                    let (text_color, text_start) = (sample(text_color_on(rgb), &target), text.len() as u32);
                    annotation.describe(label, true);
                    text.extend(label.chars().take(font.room(&target)).map(Font::glyph));
                    let text_len = text.len() as u32 - text_start;
                    boxes.push(LabeledBox { color, text_color, text_start, text_len, ..LabeledBox::default() });
                }
                continue;
            }
            let around = |corners| rotated::hull(corners).clip(&Rect::from((target.width, target.height)).into());
            let bbox = annotation.corners.as_ref().map_or(annotation.bbox, around);
            for [from, to] in trails.pieces(annotation.track_id) {
                strokes::line(strokes, &target, from, to, style, color);
            }
            let edges = outline(bbox, &target, style);
            if let (Some(corners), Some(_)) = (&annotation.corners, edges) {
                strokes::outline(strokes, &target, corners, style, color);
            }
            if let (Some(keypoints), true) = (&annotation.keypoints, annotation.bbox.is_valid()) {
                strokes::plan(strokes, &target, keypoints, rgb, style);
            }
            let Some((outer, inner)) = edges else { continue };
            // The outline of a rotated box is strokes.
            let inner = if annotation.corners.is_some() { outer } else { inner };
            let text_color = sample(text_color_on(rgb), &target);
            let mut labeled =
                LabeledBox { outer, inner, color, text_color, text_start: text.len() as u32, ..LabeledBox::default() };
            if style.labels {
                annotation.describe(label, !*hides_ids);
                text.extend(label.chars().take(font.room(&target)).map(Font::glyph));
                labeled.text_len = text.len() as u32 - labeled.text_start;
                labeled.tag = tag(&outer, labeled.text_len, font, &target);
            }
            boxes.push(labeled);
        }
        // The most important at the top, as many as fit in the frame.
        for (line, &labeled) in of_frame.iter().rev().enumerate() {
            let labeled = &mut boxes[labeled];
            let top = line as u32 * font.height;
            if labeled.text_len > 0 && top + font.height <= target.height {
                labeled.tag = tag(&Rect { top, ..Rect::default() }, labeled.text_len, font, &target);
                (labeled.tag.top, labeled.tag.bottom) = (top, top + font.height);
            }
        }
        Plan { boxes, strokes, text, font }
    }
}

/// Outer and inner edge of the outline, which lies inside the box, so that boxes at the frame's edge show all their sides.
///
/// Edges are rounded to the nearest pixel in every format: on 4:2:0 the luma is as exact as RGB. Chroma then takes every
/// sample that the outline touches ([`Rect::halved`]), because otherwise parts of a line would keep the frame's colour.
/// The price is a tint, at most one pixel wide, next to lines on odd pixels.
pub(super) fn outline(bbox: BBox, target: &Target, style: &Style) -> Option<(Rect, Rect)> {
    if !bbox.is_valid() {
        return None;
    }
    let line = style.line(target) as i32;
    let edge = |position: f32| position.round().clamp(-FAR as f32, FAR as f32) as i32;
    // Of one axis: outer start, inner start, inner end, outer end. The smallest object is one pixel.
    let edges = |from: f32, to: f32, size: u32| {
        let (start, end) = (edge(from), edge(to).max(edge(from) + 1));
        let inner_start = (start + line).min(end);
        let inner_end = (end - line).max(inner_start);
        [start, inner_start, inner_end, end].map(|edge| edge.clamp(0, size.min(FAR as u32) as i32) as u32)
    };
    let [left, inner_left, inner_right, right] = edges(bbox.x1, bbox.x2, target.width);
    let [top, inner_top, inner_bottom, bottom] = edges(bbox.y1, bbox.y2, target.height);
    let outer = Rect { left, top, right, bottom };
    let inner = Rect { left: inner_left, top: inner_top, right: inner_right, bottom: inner_bottom };
    (!outer.is_empty()).then_some((outer, inner))
}

/// Above the box, or in its corner where there is no room; moved left or up to stay in the frame.
pub(super) fn tag(outer: &Rect, text_len: u32, font: &Font, target: &Target) -> Rect {
    if text_len == 0 {
        return Rect::default();
    }
    let (width, height) = (text_len * font.width + 2 * margin(font), font.height);
    let left = outer.left.min(target.width - width);
    let top = outer.top.checked_sub(height).unwrap_or(outer.top.min(target.height - height));
    Rect { left, top, right: left + width, bottom: top + height }
}
