//! From a head's rows to the objects of a frame: thresholds, suppression, mapping.

mod classes;
mod finder;
pub mod kernel;
pub mod nms;

pub(crate) use classes::read_labels;
pub(crate) use finder::Finder;
pub use finder::Wishes;
