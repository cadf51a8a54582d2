// SPDX-License-Identifier: MPL-2.0
//! Whether the time of the day can be relied on: what is removed by its age does not come back.

use std::time::{Duration, Instant};

use super::moment::UtcTime;

/// A clock that goes on by so much more or less than time does was set.
const JUMP: Duration = Duration::from_secs(3600);
/// It is relied on again once it has gone on for so long.
const STEADY: Duration = Duration::from_secs(3600);

pub struct SteadyClock {
    last: (UtcTime, Instant),
    /// Since when it is to go on; `None` where it is relied on.
    since: Option<Instant>,
}

fn is_near(a: UtcTime, b: UtcTime) -> bool {
    u128::from(a.0.abs_diff(b.0)) <= JUMP.as_nanos()
}

impl SteadyClock {
    /// At the beginning it is relied on if the newest recording is of about that time.
    pub fn new(newest: Option<UtcTime>, now: UtcTime, at: Instant) -> Self {
        let since = newest.filter(|newest| !is_near(*newest, now)).map(|_| at);
        SteadyClock { last: (now, at), since }
    }

    /// The time that it shows, if it is relied on.
    pub fn read(&mut self, now: UtcTime, at: Instant) -> Option<UtcTime> {
        let (last, before) = self.last;
        let expected = UtcTime(last.0.saturating_add((at - before).as_nanos() as u64));
        if !is_near(expected, now) {
            self.since = Some(at);
        }
        self.last = (now, at);
        self.since = self.since.filter(|since| at - *since < STEADY);
        self.since.is_none().then_some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000_000;
    const DAY: u64 = 1440 * MINUTE;

    #[test]
    fn a_clock_that_was_set_is_not_relied_on_for_an_hour() {
        let begin = Instant::now();
        let after = |minutes: u64| begin + Duration::from_nanos(minutes * MINUTE);
        let time = |minutes: u64| UtcTime(20_000 * DAY + minutes * MINUTE);
        let mut clock = SteadyClock::new(Some(time(0)), time(5), after(5));
        // It may be corrected.
        for (minutes, shown) in [(5, 5), (6, 6), (7, 9), (8, 8)] {
            assert_eq!(clock.read(time(shown), after(minutes)), Some(time(shown)));
        }
        let future = |minutes: u64| UtcTime(time(minutes).0 + 40 * DAY);
        assert_eq!(clock.read(future(10), after(10)), None);
        assert_eq!(clock.read(future(69), after(69)), None);
        assert_eq!(clock.read(time(69), after(69)), None, "it was set back");
        assert_eq!(clock.read(time(128), after(128)), None);
        assert_eq!(clock.read(time(129), after(129)), Some(time(129)));
        // Into the past.
        assert_eq!(clock.read(UtcTime(0), after(130)), None);
    }

    #[test]
    fn at_the_start_the_newest_recording_tells() {
        let begin = Instant::now();
        let now = UtcTime(20_000 * DAY);
        for (newest, is_right) in [
            (None, true),
            (Some(now), true),
            (Some(UtcTime(now.0 - 40 * DAY)), false),
            (Some(UtcTime(now.0 + 40 * DAY)), false),
        ] {
            let mut clock = SteadyClock::new(newest, now, begin);
            assert_eq!(clock.read(now, begin).is_some(), is_right, "{newest:?}");
            let later = UtcTime(now.0 + 61 * MINUTE);
            assert_eq!(clock.read(later, begin + Duration::from_nanos(61 * MINUTE)), Some(later));
        }
    }
}
