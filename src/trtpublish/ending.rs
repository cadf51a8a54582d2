// SPDX-License-Identifier: MPL-2.0
//! The end of a stream, and of a pipeline: all trtpublish in it have one time together to send what is queued.

use std::time::{Duration, Instant};

use gst::prelude::*;

use super::TrtPublish;

/// The time that is left for what is queued.
#[derive(Clone, Copy, Debug)]
pub struct LastMessages {
    pub until: Instant,
    /// How long that was.
    within: Duration,
    /// Whether it is not `flush-timeout`, but less.
    is_limited: bool,
}

impl LastMessages {
    pub fn new(flush_timeout: Duration) -> Self {
        LastMessages { until: Instant::now() + flush_timeout, within: flush_timeout, is_limited: false }
    }

    pub fn limit(&mut self, limit: Duration) {
        let until = Instant::now() + limit.min(Duration::from_secs(1 << 20));
        if until < self.until {
            *self = LastMessages { until, within: limit, is_limited: true };
        }
    }

    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Why it is over.
    pub fn cause(&self) -> String {
        let seconds = self.within.as_secs_f64();
        if self.is_limited {
            format!("the {seconds:.1} s that the program gives at its end are over")
        } else {
            format!("flush-timeout, {seconds:.1} s, is over")
        }
    }
}

/// The trtpublish that are stopped together with this one. Bins stop one element after the other.
pub fn stopped_with(element: &TrtPublish) -> Vec<TrtPublish> {
    let mut top = element.clone().upcast::<gst::Object>();
    while let Some(parent) = top.parent() {
        top = parent;
    }
    let Ok(bin) = top.downcast::<gst::Bin>() else { return Vec::new() };
    // Alone it may be stopped while the others go on.
    if ![gst::State::Null, gst::State::Ready].contains(&bin.pending_state()) {
        return Vec::new();
    }
    let all = bin.iterate_all_by_element_factory_name("trtpublish");
    all.into_iter().flatten().filter_map(|element| element.downcast().ok()).collect()
}
