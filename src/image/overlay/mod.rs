// SPDX-License-Identifier: MPL-2.0
//! Boxes and labels on a frame, in place.
//!
//! In two steps. [`Overlay::plan`] turns detections into [`Mark`]s: rectangles clipped to the frame, bytes ready to be
//! stored, glyphs to look up; all that needs floats or strings happens there. [`paint()`] then only fills and blends bytes.
//! The CUDA kernels take the same two steps and are compared with both bit by bit, which is easy to hold because **no mark
//! reads the frame: every sample takes the value of the last mark that touches it**, whoever computes it in which order.
//!
//! Masks are the exception ([`tint`]): below all marks they are mixed with the frame, each sample once.
//!
//! The order is: outlines from the weakest detection to the strongest, those of turned boxes likewise ([`Stroke`]s), then skeletons
//! ([`Stroke`]s too), then tags. So strong boxes lie on weak ones, and no outline ever crosses a text.

mod annotation;
mod color;
mod font;
pub mod kernel;
mod paint;
mod plan;
mod strokes;
#[cfg(test)]
mod tests;
mod tint;

pub use annotation::Annotation;
pub use color::{Sample, class_color};
pub use font::Font;
pub use paint::paint;
pub use plan::{Mark, Plan, Target};
pub use strokes::Stroke;
pub(crate) use strokes::widths;

use std::sync::Arc;

use super::Candidate;
use super::frame::FrameMut;
use super::geometry::BBox;
use super::keypoints::Keypoints;
use super::masks::{Mask, Masks};
use color::{Rgb, sample};
use plan::outline;
use tint::Tint;

/// What to draw of each detection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Style {
    /// Write class and score in a tag at each box.
    pub labels: bool,
    /// Pixels; 0 takes 1/360 of the frame's shorter side, at least 2: 2 at 720p, 3 at 1080p, 6 at 2160p.
    pub line_width: u32,
    /// How much masks cover the picture: 0 draws none, 1 hides what is below.
    pub mask_alpha: f32,
}

impl Default for Style {
    fn default() -> Self {
        Style { labels: true, line_width: 0, mask_alpha: 0.5 }
    }
}

impl Style {
    /// Parts of 255 that the colour of a mask is of a sample.
    pub(crate) fn mask_weight(&self) -> u32 {
        (self.mask_alpha.clamp(0.0, 1.0) * 255.0).round() as u32 // NaN becomes 0
    }
}

/// Draws detections; keeps its scratch, so that nothing is allocated once the busiest frame has passed.
#[derive(Debug, Default)]
pub struct Overlay {
    marks: Vec<Mark>,
    strokes: Vec<Stroke>,
    text: Vec<u16>,
    label: String,
    font: Option<Font>,
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
        if let Some(masks) = masks {
            let tint = |(object, &Candidate { bbox, class, .. }): (usize, &Candidate)| {
                (bbox, class_color(class), Arc::new(masks.on_frame(object)))
            };
            self.tint(frame, detections.iter().enumerate().map(tint), style);
        }
        paint(frame, &self.plan(Target::of(frame), detections, keypoints, labels, style));
    }

    /// Draws what anybody says about the objects in a frame, the most important first.
    pub fn annotate<'a>(
        &mut self,
        frame: &mut FrameMut,
        annotations: impl DoubleEndedIterator<Item = Annotation<'a>> + Clone,
        style: &Style,
    ) {
        let tint = |annotation: Annotation| Some((annotation.bbox, annotation.color(), annotation.mask.clone()?));
        self.tint(frame, annotations.clone().filter_map(tint), style);
        paint(frame, &self.plan_annotations(Target::of(frame), annotations, style));
    }

    /// Lays the masks of objects that have a mark over a frame, the most important first.
    fn tint(&mut self, frame: &mut FrameMut, masks: impl Iterator<Item = (BBox, Rgb, Arc<Mask>)>, style: &Style) {
        let (target, weight) = (Target::of(frame), style.mask_weight());
        if weight == 0 {
            return;
        }
        let mut is_new = true;
        for (_, color, mask) in masks.filter(|(bbox, ..)| outline(*bbox, &target, style).is_some()) {
            if std::mem::take(&mut is_new) {
                self.tint.begin(&target);
            }
            self.tint.lay(frame, &mask, &sample(color, &target), weight);
        }
    }
}
