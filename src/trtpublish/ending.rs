// SPDX-License-Identifier: MPL-2.0
//! The end of a stream, and of a pipeline: all trtpublish in it have one time together to send what is queued.

use std::time::{Duration, Instant};

use gst::prelude::*;

use super::TrtPublish;

/// The time that is left for what is queued.
#[derive(Clone, Copy, Debug)]
pub struct LastMessages {
    pub until: Instant,
    flush_timeout: Duration,
    /// Whether the program gives less than `flush-timeout`.
    is_limited: bool,
}

impl LastMessages {
    pub fn new(flush_timeout: Duration) -> Self {
        LastMessages { until: Instant::now() + flush_timeout, flush_timeout, is_limited: false }
    }

    pub fn limit(&mut self, limit: Duration) {
        let until = Instant::now() + limit.min(Duration::from_secs(1 << 20));
        if until < self.until {
            (self.until, self.is_limited) = (until, true);
        }
    }

    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Why it is over. How much the program gave is not known here: what came last is what was left of that.
    pub fn cause(&self) -> String {
        if self.is_limited {
            "the time that the program has at its end is over".into()
        } else {
            format!("flush-timeout, {:.1} s, is over", self.flush_timeout.as_secs_f64())
        }
    }

    /// What helps.
    pub fn remedy(&self) -> &'static str {
        if self.is_limited { "Check the connection" } else { "Check the connection, or set a longer flush-timeout" }
    }
}

/// The trtpublish that are stopped together with this one. Bins stop one element after the other.
pub fn stopped_with(element: &TrtPublish) -> Vec<TrtPublish> {
    let Some(bin) = whole_pipeline(element) else { return Vec::new() };
    // Alone it may be stopped while the others go on.
    if ![gst::State::Null, gst::State::Ready].contains(&bin.pending_state()) {
        return Vec::new();
    }
    let all = bin.iterate_all_by_element_factory_name("trtpublish");
    all.into_iter().flatten().filter_map(|element| element.downcast().ok()).collect()
}

/// The bin that is in no other one; `None` where the element is alone.
pub fn whole_pipeline(element: &TrtPublish) -> Option<gst::Bin> {
    let mut top = element.clone().upcast::<gst::Object>();
    while let Some(parent) = top.parent() {
        top = parent;
    }
    top.downcast().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_is_named_with_what_helps() {
        let mut last = LastMessages::new(Duration::from_secs(10));
        assert_eq!(last.cause(), "flush-timeout, 10.0 s, is over");
        assert!(last.remedy().contains("flush-timeout"));
        // A longer one would not help where the program ends.
        last.limit(Duration::from_millis(700));
        assert_eq!(last.cause(), "the time that the program has at its end is over");
        assert!(!last.remedy().contains("flush-timeout") && last.left() <= Duration::from_millis(700));
    }
}
