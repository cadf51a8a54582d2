// SPDX-License-Identifier: MPL-2.0
//! The detections of a frame, by what trackers do with them.

use super::overlap::Edges;
use super::{TrackInput, TrackOptions};

/// It keeps its memory.
#[derive(Debug, Default)]
pub struct FrameDetections {
    /// Those of all detections.
    pub edges: Vec<Edges>,
    /// Indices of valid boxes with at least `track_thresh`, which are matched first.
    pub columns: Vec<u32>,
    /// The same of those below it, with more than `low_thresh`.
    pub low: Vec<u32>,
}

impl FrameDetections {
    pub fn fill(&mut self, options: &TrackOptions, detections: &[TrackInput]) {
        self.edges.clear();
        self.columns.clear();
        self.low.clear();
        for (number, TrackInput { bbox, score, .. }) in (0..).zip(detections) {
            self.edges.push([bbox.x1, bbox.y1, bbox.x2, bbox.y2].map(f64::from));
            if !bbox.is_valid() {
                continue;
            }
            if *score >= options.track_thresh {
                self.columns.push(number);
            } else if *score > options.low_thresh {
                self.low.push(number);
            }
        }
    }
}
