// SPDX-License-Identifier: MPL-2.0
//! Boxes and labels on a frame, in place.
//!
//! In two steps. [`Overlay::plan`] turns detections into [`LabeledBox`]es: rectangles clipped to the frame, bytes ready
//! to be stored, glyphs to look up; all work with floats or strings happens there. [`paint()`] then only fills and
//! blends bytes. The CUDA kernels take the same two steps and give the same bits. That is simple because **no labelled
//! box reads the frame: every sample takes the value of the last box that touches it**, in any order of computation.
//!
//! Masks are the exception (`tint`): below all labelled boxes they are mixed with the frame, each sample once. Below
//! them are maps ([`MapTint`]).
//!
//! The order is: outlines from the weakest detection to the strongest, [`Boundary`]s ([`Stroke`]s), the outlines of
//! rotated boxes and skeletons (also [`Stroke`]s), then tags. So strong boxes lie on weak ones, and no outline ever
//! crosses a text.

mod annotation;
mod boundary;
mod color;
mod font;
pub mod kernel;
mod map;
mod paint;
mod plan;
mod strokes;
#[cfg(test)]
mod tests;
mod tint;
mod trails;

pub use annotation::{Annotation, Attribute};
pub use boundary::Boundary;
pub(crate) use color::sample;
pub use color::{Sample, class_color};
pub use font::Font;
pub use map::MapTint;
pub use paint::paint;
pub use plan::{LabeledBox, Plan, Target};
pub use strokes::Stroke;
pub(crate) use strokes::widths;
pub use trails::Trails;

use std::sync::Arc;

use super::Candidate;
use super::frame::FrameMut;
use super::geometry::BBox;
use super::keypoints::Keypoints;
use super::masks::{Mask, Masks};
use plan::outline;
use tint::Tint;

/// What to draw of each detection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Style {
    /// Write class and score in a tag at each box.
    pub labels: bool,
    /// Pixels; 0 takes 1/360 of the frame's shorter side, at least 2: 2 at 720p, 3 at 1080p, 6 at 2160p.
    pub line_width: u32,
    /// How much masks cover the picture: 0 draws none, 1 hides the picture below.
    pub mask_alpha: f32,
}

impl Default for Style {
    fn default() -> Self {
        Style { labels: true, line_width: 0, mask_alpha: 0.5 }
    }
}

impl Style {
    /// The weight of a mask's colour in a sample, in parts of 255.
    pub fn mask_weight(&self) -> u32 {
        (self.mask_alpha.clamp(0.0, 1.0) * 255.0).round() as u32 // NaN becomes 0
    }
}

/// Draws detections. It keeps its scratch memory, so that nothing is allocated once the busiest frame has passed.
#[derive(Debug, Default)]
pub struct Overlay {
    boxes: Vec<LabeledBox>,
    strokes: Vec<Stroke>,
    text: Vec<u16>,
    label: String,
    font: Option<Font>,
    /// Drawn behind the objects that have one.
    pub trails: Trails,
    /// Drawn below the strokes of objects.
    pub boundaries: Vec<Boundary>,
    /// Whether the ids of objects are left out of their tags.
    pub hides_ids: bool,
    tint: Tint,
}

impl Overlay {
    /// `detections` in pixels of the frame, the best score first; `labels` by class, `#7` where there is none.
    pub fn draw(
        &mut self,
        frame: &mut FrameMut,
        detections: &[Candidate],
        keypoints: Option<&Keypoints>,
        masks: Option<&Masks>,
        labels: &[String],
        style: &Style,
    ) {
        let target = Target::of(frame);
        self.tint(frame, found_tints(&target, detections, masks, style), style);
        paint(frame, &self.plan(Target::of(frame), detections, keypoints, labels, style));
    }

    /// Draws the annotations of a frame's metas, the most important first.
    pub fn annotate<'a>(
        &mut self,
        frame: &mut FrameMut,
        annotations: impl DoubleEndedIterator<Item = Annotation<'a>> + Clone,
        style: &Style,
    ) {
        let target = Target::of(frame);
        self.tint(frame, annotated_tints(&target, annotations.clone(), style), style);
        paint(frame, &self.plan_annotations(Target::of(frame), annotations, style));
    }

    /// Mixes masks into a frame.
    fn tint(&mut self, frame: &mut FrameMut, tints: impl Iterator<Item = (Arc<Mask>, Sample)>, style: &Style) {
        let mut is_new = true;
        for (mask, color) in tints {
            if std::mem::take(&mut is_new) {
                self.tint.begin(&Target::of(frame));
            }
            self.tint.blend(frame, &mask, &color, style.mask_weight());
        }
    }
}

/// The masks that are mixed into a frame, and their colours, the most important first: of objects that have a box.
pub fn found_tints(
    target: &Target,
    detections: &[Candidate],
    masks: Option<&Masks>,
    style: &Style,
) -> impl Iterator<Item = (Arc<Mask>, Sample)> {
    let is_drawn = move |(_, detection): &(usize, &Candidate)| has_tint(target, detection.bbox, style);
    let detections = detections.iter().enumerate().filter(is_drawn);
    let tint = move |(object, detection): (usize, &Candidate)| {
        Some((Arc::new(masks?.on_frame(object)), sample(class_color(detection.class), target)))
    };
    detections.filter_map(tint)
}

/// The same for the annotations of a frame's metas.
pub fn annotated_tints<'a>(
    target: &Target,
    annotations: impl Iterator<Item = Annotation<'a>>,
    style: &Style,
) -> impl Iterator<Item = (Arc<Mask>, Sample)> {
    let annotations = annotations.filter(move |annotation| has_tint(target, annotation.bbox, style));
    annotations.filter_map(move |annotation| Some((annotation.mask.clone()?, sample(annotation.color(), target))))
}

fn has_tint(target: &Target, bbox: BBox, style: &Style) -> bool {
    style.mask_weight() > 0 && outline(bbox, target, style).is_some()
}
