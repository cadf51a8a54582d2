// SPDX-License-Identifier: MPL-2.0
//! From a model's outputs to results on the frame: [`Postprocessor`] decodes them by the model's [head](crate::heads),
//! drops boxes that repeat better ones ([`suppress`]), and maps the rest to the frame as [`Instances`]. [`fields`] has
//! the names of results wherever they are written.

mod anomaly;
mod beam;
mod cells;
mod classes;
mod classify;
mod effect;
pub mod fields;
mod map;
mod masks;
mod merge;
pub mod options;
mod orientation;
mod processor;
mod refine;
mod results;
pub mod suppress;
mod text;
mod text_boxes;
mod text_rect;
mod vectors;

pub use classes::{KnownClasses, read_class_thresholds};
pub use classify::{ClassScores, RankedClass};
pub use merge::{MergeMethod, MergeMetric, MergeOptions};
pub use options::PostprocessOptions;
pub use processor::Postprocessor;
pub use refine::gather;
pub use results::{ClipSpan, Instances};
pub use text::FoundText;
