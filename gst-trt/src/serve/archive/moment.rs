// SPDX-License-Identifier: MPL-2.0
//! A time of the day, in UTC: as RFC 3339 has it, and in the names of files.

use gsttrt_publish::clock::{self, days};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// In nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UtcTime(pub u64);

impl UtcTime {
    /// `2026-11-24T09:44:13.911Z`, without the fraction, or with another offset than `Z`; or `20261124T094413.911Z`, as in the
    /// names of files; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, time) = text.split_once(['T', 't', ' '])?;
        let digits = |text: &str, count: usize| -> Option<i64> {
            (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
        };
        let date: String = date.chars().filter(|c| *c != '-').collect();
        let (year, month, day) = (digits(date.get(..4)?, 4)?, digits(date.get(4..6)?, 2)?, digits(date.get(6..)?, 2)?);
        let zone = time.find(['Z', 'z', '+', '-'])?;
        let (time, zone) = time.split_at(zone);
        let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let time: String = time.chars().filter(|c| *c != ':').collect();
        let (hour, minute, second) =
            (digits(time.get(..2)?, 2)?, digits(time.get(2..4)?, 2)?, digits(time.get(4..)?, 2)?);
        let fraction = digits(fraction, fraction.len())? as f64 / 10f64.powi(fraction.len() as i32);
        let offset = match zone {
            "Z" | "z" => 0,
            _ => {
                let (hours, minutes) = zone[1..].split_once(':')?;
                let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
                if hours > 23 || minutes > 59 {
                    return None;
                }
                let offset = hours * 60 + minutes;
                if zone.starts_with('-') { -offset } else { offset }
            }
        };
        if !(1..=12).contains(&month) || day < 1 || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let next_month = if month < 12 { days(year, month + 1, 1) } else { days(year + 1, 1, 1) };
        if days(year, month, day) >= next_month {
            return None;
        }
        let seconds = days(year, month, day) * 86_400 + (hour * 60 + minute - offset) * 60 + second;
        let whole = u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?;
        whole.checked_add((fraction * 1e3).round() as u64 * 1_000_000).map(UtcTime)
    }

    pub fn text(self) -> String {
        clock::rfc3339(self.0, 3)
    }
}

impl Serialize for UtcTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for UtcTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        UtcTime::parse(&text).ok_or_else(|| D::Error::custom("no time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for milliseconds in [0, 951_782_399_000, 951_782_400_001, 1_709_251_200_911, 4_107_542_399_999u64] {
            let moment = UtcTime(milliseconds * 1_000_000);
            let text = moment.text();
            assert_eq!(UtcTime::parse(&text), Some(moment), "{text}");
            let name: String = text.chars().filter(|c| !"-:".contains(*c)).collect();
            assert_eq!(UtcTime::parse(&name), Some(moment), "{name}");
        }
        let noon = UtcTime::parse("2026-11-24T12:00:00Z");
        for text in [
            "2026-11-24T12:00:00.000Z",
            "2026-11-24 12:00:00Z",
            "2026-11-24T13:30:00+01:30",
            "2026-11-24T07:00:00-05:00",
        ] {
            assert_eq!(UtcTime::parse(text), noon, "{text}");
        }
        for text in [
            "",
            "T",
            "2026-11-24",
            "2026-13-24T12:00:00Z",
            "2026-11-00T12:00:00Z",
            "2026-11-31T12:00:00Z",
            "2026-02-29T12:00:00Z",
            "2026-12-32T12:00:00Z",
            "2026-11-24T12:00:00+24:00",
            "2026-11-24T12:00:00-01:60",
            "2026-11-24T24:00:00Z",
            "2026-11-24T12:00:00",
            "äöüäö-1T1Z",
            "2554-07-21T23:34:33.9Z", // in nanoseconds
        ] {
            assert_eq!(UtcTime::parse(text), None, "{text}");
        }
    }
}
