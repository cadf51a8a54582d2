// SPDX-License-Identifier: MPL-2.0
//! Sizes as people write them: `"500MB"`, `"20GiB"`.

use gst::glib;

/// How a size may be written, for errors.
pub const FORM: &str = "write it with its unit, such as \"500MB\" or \"20GiB\"";

/// Units with their bytes.
const UNITS: [(&str, f64); 9] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("TiB", 1099511627776.0),
];

/// A number and a unit; `None` where it is something else.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let (_, bytes) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    let bytes = number.parse::<f64>().ok()? * bytes;
    (bytes < i64::MAX as f64).then_some(bytes.round() as u64)
}

/// Whether a property is a number of bytes.
pub fn is_of_bytes(spec: &glib::ParamSpec) -> bool {
    let is_whole = [glib::Type::U64, glib::Type::U32].contains(&spec.value_type());
    is_whole && spec.blurb().is_some_and(|blurb| blurb.starts_with("Bytes "))
}

/// The value of such a property as the number that it takes; the text itself where it is none with a unit.
pub fn in_bytes(text: &str) -> String {
    parse(text).map_or_else(|| text.into(), |bytes| bytes.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_number_and_a_unit() {
        for (text, expected) in [
            ("500MB", Some(500_000_000)),
            ("20 GiB", Some(20 << 30)),
            ("1.5kb", Some(1500)),
            ("7B", Some(7)),
            ("2tib", Some(2 << 40)),
            ("10", None),
            ("MB", None),
            ("-1MB", None),
            ("1.2.3MB", None),
            ("99999999TiB", None),
            ("", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
