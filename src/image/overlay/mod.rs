// SPDX-License-Identifier: MPL-2.0
//! Boxes and labels on a frame, in place.
//!
//! In two steps. [`Overlay::plan`] turns detections into [`Mark`]s: rectangles clipped to the frame, bytes ready to be
//! stored, glyphs to look up; all that needs floats or strings happens there. [`paint()`] then only fills and blends bytes.
//! The CUDA kernels take the same two steps and are compared with both bit by bit, which is easy to hold because **no mark
//! reads the frame: every sample takes the value of the last mark that touches it**, whoever computes it in which order.
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
mod trails;

pub use annotation::Annotation;
pub use color::{Sample, class_color};
pub use font::Font;
pub use paint::paint;
pub use plan::{Mark, Plan, Target};
pub use strokes::Stroke;
pub(crate) use strokes::widths;
pub use trails::Trails;

use super::Candidate;
use super::frame::FrameMut;
use super::keypoints::Keypoints;

/// What to draw of each detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Write class and score in a tag at each box.
    pub labels: bool,
    /// Pixels; 0 takes 1/360 of the frame's shorter side, at least 2: 2 at 720p, 3 at 1080p, 6 at 2160p.
    pub line_width: u32,
}

impl Default for Style {
    fn default() -> Self {
        Style { labels: true, line_width: 0 }
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
    /// Drawn behind the objects that have one.
    pub trails: Trails,
    /// Whether the numbers of objects are left out of their tags.
    pub hides_ids: bool,
}

impl Overlay {
    /// `detections` in pixels of the frame, the best score first; `labels` by class, `#7` where there is none.
    pub fn draw(
        &mut self,
        frame: &mut FrameMut,
        detections: &[Candidate],
        keypoints: Option<&Keypoints>,
        labels: &[String],
        style: &Style,
    ) {
        paint(frame, &self.plan(Target::of(frame), detections, keypoints, labels, style));
    }

    /// Draws what anybody says about the objects in a frame, the most important first.
    pub fn annotate<'a>(
        &mut self,
        frame: &mut FrameMut,
        annotations: impl DoubleEndedIterator<Item = Annotation<'a>>,
        style: &Style,
    ) {
        paint(frame, &self.plan_annotations(Target::of(frame), annotations, style));
    }
}
