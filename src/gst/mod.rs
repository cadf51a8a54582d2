// SPDX-License-Identifier: MPL-2.0
//! GStreamer's side: the only code besides the elements that knows it.

pub(crate) mod analytics;
pub mod batch_pool;
pub mod caps;
pub(crate) mod classes_event;
pub mod cuda;
pub mod element;
pub mod export;
pub mod held_frame;
pub(crate) mod layout_query;
pub mod log;
pub mod memory;
pub mod memory_wait;
pub mod meta;
pub mod meta_filter;
pub mod model_check;
pub(crate) mod model_query;
pub mod options;
pub mod overlay;
pub(crate) mod path;
pub mod property;
pub mod report;
pub mod sei;
pub mod stats;
pub mod stream;
pub mod video;
