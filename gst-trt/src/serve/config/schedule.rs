// SPDX-License-Identifier: MPL-2.0
//! The hours of a source, in local time: `Mo-Fr 07:00-19:00; Sa 09:00-12:00`. A part of what OpenStreetMap writes as
//! `opening_hours`.

use gst::glib;
use serde::de::{self, Deserialize, Deserializer};

const DAYS: [&str; 7] = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"];
const FORM: &str = "write days and hours such as \"Mo-Fr 07:00-19:00; Sa,Su 22:00-06:00\"";
const DAY: u32 = 24 * 60;

/// A time of the week: days since Monday, and minutes of the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeekTime {
    pub day: u32,
    pub minute: u32,
}

impl WeekTime {
    /// Now, in local time; `None` where the machine does not know.
    fn now() -> Option<Self> {
        let now = glib::DateTime::now_local().ok()?;
        Some(WeekTime { day: now.day_of_week() as u32 - 1, minute: (now.hour() * 60 + now.minute()) as u32 })
    }
}

/// When a source is on.
#[derive(Clone, Debug)]
pub struct Schedule {
    text: String,
    spans: Vec<HourSpan>,
    clock: fn() -> Option<WeekTime>,
}

/// As it is written: the same hours mean the same.
impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// Hours of some days. Those that end before they begin end on the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HourSpan {
    days: [bool; 7],
    from: u32,
    to: u32,
}

impl HourSpan {
    fn has(&self, time: WeekTime) -> bool {
        let WeekTime { day, minute } = time;
        let is_day = |day: u32| self.days[(day % 7) as usize];
        if self.from < self.to {
            return is_day(day) && (self.from..self.to).contains(&minute);
        }
        is_day(day) && minute >= self.from || is_day(day + 6) && minute < self.to
    }
}

impl Schedule {
    /// # Errors
    /// What cannot be read, and how to write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        let spans = parts.map(spans_of).collect::<Result<Vec<_>, _>>()?.concat();
        if spans.is_empty() {
            return Err(format!("there are no hours: {FORM}"));
        }
        Ok(Schedule { text: text.into(), spans, clock: WeekTime::now })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the source is on now. On a machine that does not know the time it is.
    pub fn is_on(&self) -> bool {
        (self.clock)().is_none_or(|time| self.is_on_at(time))
    }

    fn is_on_at(&self, time: WeekTime) -> bool {
        self.spans.iter().any(|span| span.has(time))
    }

    /// The same by another clock.
    #[cfg(test)]
    pub fn by(self, clock: fn() -> Option<WeekTime>) -> Self {
        Schedule { clock, ..self }
    }
}

/// Days, if there are some, and hours.
fn spans_of(part: &str) -> Result<Vec<HourSpan>, String> {
    let wrong = || format!("“{}” are no hours: {FORM}", part.chars().take(64).collect::<String>());
    let begins_with_digit = part.starts_with(|c: char| c.is_ascii_digit());
    let (days, hours) = match part.split_once(char::is_whitespace) {
        Some((days, hours)) if !begins_with_digit => (days_of(days).ok_or_else(wrong)?, hours),
        _ => ([true; 7], part),
    };
    let span = |hours: &str| {
        let (from, to) = hours.trim().split_once('-')?;
        let (from, to) = (minute_of(from)?, minute_of(to)?);
        (from < DAY && from != to).then_some(HourSpan { days, from, to })
    };
    hours.split(',').map(|hours| span(hours).ok_or_else(wrong)).collect()
}

/// `Mo-Fr`, `Mo,We` or `Fr-Mo`.
fn days_of(text: &str) -> Option<[bool; 7]> {
    let number = |name: &str| DAYS.iter().position(|day| day.eq_ignore_ascii_case(name.trim()));
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        (0..=(last + 7 - first) % 7).for_each(|after| days[(first + after) % 7] = true);
    }
    Some(days)
}

/// `07:00`, up to `24:00`.
fn minute_of(text: &str) -> Option<u32> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let number =
        |text: &str| (text.len() <= 2 && text.bytes().all(|c| c.is_ascii_digit())).then(|| text.parse().ok())?;
    let (hours, minutes): (u32, u32) = (number(hours)?, number(minutes)?);
    (minutes < 60 && hours * 60 + minutes <= DAY).then_some(hours * 60 + minutes)
}

impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Schedule::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn at(day: &str, hours: u32, minutes: u32) -> WeekTime {
        let day = DAYS.iter().position(|name| *name == day).unwrap() as u32;
        WeekTime { day, minute: hours * 60 + minutes }
    }

    #[test]
    fn hours_are_on_their_days() {
        for (text, on, off) in [
            (
                "Mo-Fr 07:00-19:00",
                vec![at("Mo", 7, 0), at("Fr", 18, 59)],
                vec![at("Mo", 6, 59), at("Fr", 19, 0), at("Sa", 12, 0)],
            ),
            (
                "08:00-12:00, 13:00-17:00",
                vec![at("Su", 8, 0), at("We", 16, 0)],
                vec![at("Su", 12, 30), at("We", 17, 0)],
            ),
            (
                "Mo,We 10:00-11:00; su 0:00-24:00",
                vec![at("We", 10, 30), at("Su", 0, 0), at("Su", 23, 59)],
                vec![at("Tu", 10, 30), at("Mo", 0, 0)],
            ),
            // Beyond midnight, they are of the day on which they begin.
            (
                "Fr,Sa 22:00-06:00",
                vec![at("Fr", 22, 0), at("Sa", 5, 59), at("Su", 5, 59)],
                vec![at("Fr", 5, 0), at("Su", 6, 0), at("Su", 22, 0)],
            ),
            ("Su 22:00-06:00", vec![at("Mo", 3, 0)], vec![at("Su", 3, 0)]),
            (
                "Sa-Mo 12:00-13:00",
                vec![at("Sa", 12, 0), at("Su", 12, 0), at("Mo", 12, 0)],
                vec![at("Tu", 12, 0), at("Fr", 12, 0)],
            ),
            ("20:00-24:00", vec![at("Mo", 23, 59)], vec![at("Mo", 19, 0), at("Tu", 0, 0)]),
        ] {
            let schedule = Schedule::parse(text).unwrap();
            for time in on {
                assert!(schedule.is_on_at(time), "{text} at {time:?}");
            }
            for time in off {
                assert!(!schedule.is_on_at(time), "{text} at {time:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for text in [
            "",
            ";",
            "Mo",
            "Mo-Fr",
            "Mo-Fr 07:00",
            "Mo-Fr 7-19",
            "Mo-Xx 07:00-19:00",
            "07:00-25:00",
            "07:60-09:00",
            "24:00-06:00",
            "07:00-07:00",
            "Mo-Fr 07:00-19:00 CET",
            "-07:00-19:00",
            "07:00-+9:00",
            "Mo-Fr-Sa 07:00-19:00",
            "always",
        ] {
            let error = Schedule::parse(text).unwrap_err();
            assert!(error.contains("Mo-Fr 07:00-19:00; Sa,Su 22:00-06:00"), "{text}: {error}");
        }
    }

    #[test]
    fn a_source_is_on_by_its_clock() {
        static MINUTE: AtomicU32 = AtomicU32::new(0);
        let now = || Some(WeekTime { day: 0, minute: MINUTE.load(Ordering::Relaxed) });
        let schedule = Schedule::parse("Mo 07:00-19:00").unwrap().by(now);
        let on: Vec<bool> = [419, 420, 1139, 1140]
            .map(|minute| {
                MINUTE.store(minute, Ordering::Relaxed);
                schedule.is_on()
            })
            .into();
        assert_eq!(on, [false, true, true, false]);
        assert!(Schedule::parse("Mo 07:00-19:00").unwrap().by(|| None).is_on(), "rather on than off");
        assert!(WeekTime::now().is_some_and(|time| time.day < 7 && time.minute < DAY));
    }
}
