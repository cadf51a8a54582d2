// SPDX-License-Identifier: MPL-2.0
//! Counts objects with ids in zones and across lines, by their boxes, and by what is written on them.
//!
//! | file | |
//! |---|---|
//! | [`config`], [`parse`] | what is watched; read from JSON or from a file for DeepStream's nvdsanalytics |
//! | [`geometry`] | areas and segments |
//! | [`text`] | texts of objects, and the regular expressions that they must match |
//! | [`rules`] | when an object is in a zone, has crossed a line, moves in a direction |
//! | [`tally`] | counts by class |
//! | `tracks` | the state of each object |
//! | [`watched`] | zones, tripwires and directions with their counts |
//! | [`engine`] | a frame's objects in, its events out |
//!
//! Once the busiest frame has passed, nothing is allocated.

pub mod config;
pub mod engine;
pub mod geometry;
mod json;
mod nvdsanalytics;
pub mod parse;
pub mod rules;
pub mod tally;
pub mod text;
mod tracks;
pub mod watched;

pub use config::AnalyticsConfig;
pub use engine::{Analytics, AnalyticsInput, AnalyticsOptions, EvaluationPoint};
pub use tracks::EventObject;

use geometry::CrossingDirection;

/// What has happened, at a zone, a tripwire or a direction, which is given by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnalyticsEventKind {
    Crossed {
        tripwire: usize,
        direction: CrossingDirection,
    },
    Entered {
        zone: usize,
    },
    Left {
        zone: usize,
    },
    /// It has been inside for the dwell time.
    Dwelled {
        zone: usize,
    },
    Crowded {
        zone: usize,
    },
    Uncrowded {
        zone: usize,
    },
    /// It moves in a direction.
    Headed {
        direction: usize,
    },
}

impl AnalyticsEventKind {
    pub fn name(&self) -> &'static str {
        match self {
            AnalyticsEventKind::Crossed { .. } => "crossed",
            AnalyticsEventKind::Entered { .. } => "entered",
            AnalyticsEventKind::Left { .. } => "left",
            AnalyticsEventKind::Dwelled { .. } => "dwelled",
            AnalyticsEventKind::Crowded { .. } => "crowded",
            AnalyticsEventKind::Uncrowded { .. } => "uncrowded",
            AnalyticsEventKind::Headed { .. } => "headed",
        }
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnalyticsEvent {
    pub kind: AnalyticsEventKind,
    /// Nanoseconds, like the times of the frames. Most events are known some time after they have happened.
    pub happened: u64,
    /// Of zones the objects inside; of tripwires and directions the objects so far, since the last reset.
    pub count: u64,
    /// Nanoseconds inside, or for which it was crowded.
    pub dwell: Option<u64>,
    /// The object; none for crowds.
    pub object: Option<EventObject>,
}

#[cfg(test)]
mod tests;
