// SPDX-License-Identifier: MPL-2.0
//! Rates as people write them: `"6/min"`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::de::{self, Deserialize, Deserializer};

const FORM: &str = "write it like \"6/min\", \"1/s\" or \"100/h\"";

/// So many in each time of that length, wherever it begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub number: u32,
    pub each: Duration,
}

fn parse(text: &str) -> Option<Rate> {
    let (number, unit) = text.split_once('/')?;
    let seconds = match unit.trim() {
        "s" => 1,
        "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    let number = number.trim().parse().ok().filter(|number| (1..=1000).contains(number))?;
    Some(Rate { number, each: Duration::from_secs(seconds) })
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Ok(text) = String::deserialize(deserializer) else {
            return Err(de::Error::custom(format!("a rate is a text: {FORM}")));
        };
        let shown: String = text.chars().take(64).collect();
        parse(&text).ok_or_else(|| de::Error::custom(format!("“{shown}” is no rate from 1 to 1000: {FORM}")))
    }
}

/// What has happened of late.
#[derive(Debug, Default)]
pub struct RateCount(VecDeque<Instant>);

impl RateCount {
    /// Whether one more may happen now. Then it counts.
    pub fn admit(&mut self, rate: Rate, now: Instant) -> bool {
        while self.0.front().is_some_and(|first| now.saturating_duration_since(*first) >= rate.each) {
            self.0.pop_front();
        }
        let is_admitted = self.0.len() < rate.number as usize;
        if is_admitted {
            self.0.push_back(now);
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_a_number_and_a_time() {
        let rate = |number, seconds| Some(Rate { number, each: Duration::from_secs(seconds) });
        for (text, expected) in [
            ("6/min", rate(6, 60)),
            (" 1 / s ", rate(1, 1)),
            ("1000/h", rate(1000, 3600)),
            ("3/d", rate(3, 86_400)),
            ("0/s", None),
            ("1001/s", None),
            ("-1/s", None),
            ("1.5/s", None),
            ("6/minute", None),
            ("6", None),
            ("6 per min", None),
            ("", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn no_more_than_that_happen_in_any_minute() {
        let (rate, begin) = (parse("2/min").unwrap(), Instant::now());
        let mut count = RateCount::default();
        let times = [0, 10, 20, 59, 60, 61, 69, 70, 119, 120];
        let admitted: Vec<u64> =
            times.into_iter().filter(|second| count.admit(rate, begin + Duration::from_secs(*second))).collect();
        assert_eq!(admitted, [0, 10, 60, 70, 120]);
    }
}
