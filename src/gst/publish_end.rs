// SPDX-License-Identifier: MPL-2.0
//! An event ahead of the end of a stream: all trtpublish that are behind each other learn of the end at once, and what is queued is
//! sent by all of them in the same time. By the end itself each would learn of it only once the one before has waited for its own
//! destination.

use std::time::Duration;

use gst::glib;

const NAME: &str = "trt-publish-end";
const FIELD: &str = "until";

/// The end is near. With a limit, nothing is sent longer than that, whatever `flush-timeout` says.
pub fn event(limit: Option<Duration>) -> gst::Event {
    gst::event::CustomDownstream::new(content(limit))
}

/// The limit of an end that has begun: overtakes the frames, which may wait for a destination.
pub fn limit(limit: Duration) -> gst::Event {
    gst::event::CustomDownstreamOob::new(content(Some(limit)))
}

fn content(limit: Option<Duration>) -> gst::Structure {
    let mut content = gst::Structure::new_empty(NAME);
    if let Some(limit) = limit {
        let limit = i64::try_from(limit.as_micros()).unwrap_or(i64::MAX);
        content.set(FIELD, glib::monotonic_time().saturating_add(limit)); // it may come late
    }
    content
}

/// The limit that an event has, if it is one of these.
pub(crate) fn of(event: &gst::EventRef) -> Option<Option<Duration>> {
    let content = event.structure().filter(|content| content.name() == NAME)?;
    let left = |until: i64| Duration::from_micros(until.saturating_sub(glib::monotonic_time()).max(0) as u64);
    Some(content.get::<i64>(FIELD).ok().map(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_moment() {
        gst::init().unwrap();
        assert_eq!(of(&event(None)), Some(None));
        assert_eq!(of(&event(Some(Duration::ZERO))), Some(Some(Duration::ZERO)));
        let left = of(&event(Some(Duration::from_secs(60)))).flatten().unwrap();
        assert!(left > Duration::ZERO && left <= Duration::from_secs(60), "{left:?}");
        assert!(of(&event(Some(Duration::MAX))).flatten().unwrap() > Duration::from_secs(60));
        assert_eq!(of(&limit(Duration::ZERO)), Some(Some(Duration::ZERO)));
        assert_eq!(of(&gst::event::Eos::new()), None);
        assert_eq!(of(&gst::event::CustomDownstream::new(gst::Structure::new_empty("other"))), None);
    }
}
