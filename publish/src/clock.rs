// SPDX-License-Identifier: MPL-2.0
//! Times of the day as text.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970-01-01, UTC.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos() as u64
}

/// RFC 3339 in UTC: `2026-11-24T03:48:01.123456Z`, with that many digits of a second.
pub fn rfc3339(unix: u64, digits: usize) -> String {
    let (seconds, nanoseconds) = (unix / 1_000_000_000, unix % 1_000_000_000);
    let (days, seconds) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let fraction = &format!("{nanoseconds:09}")[..digits.min(9)];
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction}Z")
}

/// Seconds since 1970 of a date as headers of HTTP have it: `Wed, 21 Oct 2015 07:28:00 GMT`.
pub fn of_http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = words[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let (day, year) = (day.parse::<u64>().ok()?, year.parse::<u64>().ok()?);
    let time: Option<Vec<u64>> = time.split(':').map(|part| part.parse().ok()).collect();
    let time = time?;
    let [hour, minute, second] = time[..] else { return None };
    let is_date = (1970..=9999).contains(&year) && (1..=31).contains(&day);
    let is_time = hour < 24 && minute < 60 && second <= 60; // a leap second has 60
    // None of these years is before 1970.
    let days = || days(year as i64, month as i64, day as i64) as u64;
    (is_date && is_time).then(|| days() * 86_400 + hour * 3600 + minute * 60 + second)
}

/// The days from 1970-01-01 to a date in the Gregorian calendar, negative before that. Years are counted from March on, so that the
/// leap day is the last one.
#[doc(hidden)]
pub fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Year, month and day, so many days after 1970-01-01, as [`days`] counts them.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_headers_are_read() {
        // date -u -d @N '+%a, %d %b %Y %T GMT'
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Tue, 29 Feb 2000 00:00:00 GMT", 951_782_400),
            ("Wed, 21 Oct 2015 07:28:00 GMT", 1_445_412_480),
            ("Thu, 29 Feb 2024 23:59:59 GMT", 1_709_251_199),
        ] {
            assert_eq!(of_http_date(text), Some(seconds), "{text}");
        }
        for days_since in (0..60_000).step_by(7) {
            let (year, month, day) = civil(days_since);
            assert_eq!(days(year as i64, month as i64, day as i64), days_since as i64);
        }
        // date -u -d DATE +%s
        for ((year, month, day), days_since) in
            [((1969, 12, 31), -1), ((1900, 3, 1), -25_508), ((1600, 2, 29), -135_081), ((1, 1, 1), -719_162)]
        {
            assert_eq!(days(year, month, day), days_since, "{year}-{month}-{day}");
        }
        assert_eq!(days(0, 2, 29) + 1, days(0, 3, 1), "the year 0 is a leap year");
        for text in ["", "120", "Wed, 21 Oct 2015 07:28:00", "Wed, 21 Okt 2015 07:28:00 GMT", "a, 0 Jan 0 0:0:0 GMT"] {
            assert_eq!(of_http_date(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_those_of_date() {
        // date -u -d @N +%FT%T
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000000Z"),
            (1_709_251_200, "2024-03-01T00:00:00.000000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc3339(seconds * 1_000_000_000, 6), text);
        }
        assert_eq!(rfc3339(1_523_422_799_828_765_432, 3), "2018-04-11T04:59:59.828Z");
    }
}
