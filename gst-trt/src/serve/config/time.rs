// SPDX-License-Identifier: MPL-2.0
//! Times as people write them: `"2s"`, `"500ms"`.

use std::time::Duration;

use gst::glib;

/// How a time may be written, for errors.
pub const FORM: &str = "write it with its unit, such as \"2s\", \"500ms\" or \"1.5min\"";

/// Shorter ones are most likely a number of another unit.
pub const SHORTEST: Duration = Duration::from_millis(1);

/// Units with their nanoseconds.
const UNITS: [(&str, f64); 7] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)];

/// A number and a unit; `None` where it is something else.
pub fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let (_, nanoseconds) = UNITS.iter().find(|(name, _)| *name == unit.trim())?;
    let nanoseconds = number.parse::<f64>().ok()? * nanoseconds;
    (nanoseconds < u64::MAX as f64).then(|| Duration::from_nanos(nanoseconds.round() as u64))
}

/// A property that is a time: its unit.
pub fn unit(spec: &glib::ParamSpec) -> Option<Duration> {
    let is_whole = [glib::Type::U64, glib::Type::U32, glib::Type::I32].contains(&spec.value_type());
    let blurb = spec.blurb().filter(|_| is_whole)?;
    let units = [("nanoseconds", Duration::from_nanos(1)), ("microseconds", Duration::from_micros(1))];
    units.into_iter().find(|(name, _)| blurb.contains(name)).map(|(_, unit)| unit)
}

/// The value of such a property as the number that it takes; the text itself where it is none with a unit.
pub fn in_unit(text: &str, unit: Duration) -> String {
    parse(text).map_or_else(|| text.into(), |time| (time.as_nanos() / unit.as_nanos()).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_number_and_a_unit() {
        for (text, expected) in [
            ("2s", Some(Duration::from_secs(2))),
            (" 1.5 s ", Some(Duration::from_millis(1500))),
            ("500ms", Some(Duration::from_millis(500))),
            ("250us", Some(Duration::from_micros(250))),
            ("250µs", Some(Duration::from_micros(250))),
            ("7ns", Some(Duration::from_nanos(7))),
            ("0.5min", Some(Duration::from_secs(30))),
            ("2h", Some(Duration::from_secs(7200))),
            ("10", None),
            ("s", None),
            ("-2s", None),
            ("2 seconds", None),
            ("1.2.3s", None),
            ("99999999999999999999h", None),
            ("", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
