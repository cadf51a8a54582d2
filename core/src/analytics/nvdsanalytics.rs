// SPDX-License-Identifier: MPL-2.0
//! A configuration as DeepStream's nvdsanalytics reads it: `config_nvdsanalytics.txt`.
//!
//! | group | becomes |
//! |---|---|
//! | `roi-filtering-stream-N` | zones |
//! | `overcrowding-stream-N` | zones with a crowd threshold; `time-threshold` counts |
//! | `line-crossing-stream-N` | tripwires that count crossings along their direction |
//! | `direction-detection-stream-N` | directions |

use super::config::*;
use crate::error::{Error, Result};
use crate::words::nearest;

const GROUPS: [(&str, &[&str]); 5] = [
    (
        "property",
        &[
            "enable",
            "config-width",
            "config-height",
            "osd-mode",
            "display-font-size",
            "obj-cnt-win-in-ms",
            "display-obj-cnt",
        ],
    ),
    ("roi-filtering-stream-", &["enable", "roi-", "inverse-roi", "class-id"]),
    ("overcrowding-stream-", &["enable", "roi-", "object-threshold", "time-threshold", "class-id"]),
    ("line-crossing-stream-", &["enable", "line-crossing-", "class-id", "extended", "mode"]),
    ("direction-detection-stream-", &["enable", "direction-", "class-id", "mode"]),
];

/// A group of the file: its kind, its stream, and its lines.
struct Group<'a> {
    kind: &'static str,
    keys: &'static [&'static str],
    stream: Option<u32>,
    lines: Vec<KeyLine<'a>>,
}

/// A key with its value.
#[derive(Clone, Copy)]
struct KeyLine<'a> {
    number: usize,
    key: &'a str,
    value: &'a str,
}

pub(super) fn parse(text: &str, stream: u32) -> Result<AnalyticsConfig> {
    let groups = groups(text)?;
    let property = groups.iter().find(|group| group.kind == "property");
    let property = property
        .ok_or_else(|| unusable("it has no group [property]").remedy("Write config-width and config-height there"))?;
    let mut config = AnalyticsConfig {
        frame: Some((property.count("config-width", 1 << 16)?, property.count("config-height", 1 << 16)?)),
        ..AnalyticsConfig::default()
    };
    // All are read, so that a mistake is found in any stream.
    let mut streams = Vec::new();
    for group in groups.iter().filter(|group| group.kind != "property") {
        let mut found = AnalyticsConfig::default();
        group.read(&mut found)?;
        if group.stream == Some(stream) && group.flag("enable", false)? {
            config.zones.append(&mut found.zones);
            config.tripwires.append(&mut found.tripwires);
            config.directions.append(&mut found.directions);
        }
        streams.extend(group.stream.filter(|stream| !streams.contains(stream)));
    }
    if !property.flag("enable", true)? {
        return Err(unusable("its group [property] has enable=0").remedy("Write enable=1, or leave the element out"));
    }
    if config.zones.is_empty() && config.tripwires.is_empty() && config.directions.is_empty() {
        streams.sort();
        let streams: Vec<String> = streams.iter().map(u32::to_string).collect();
        return Err(unusable(format!("it has nothing that is enabled for stream {stream}"))
            .remedy(format!("Set config-stream to one that it has: {}", streams.join(", "))));
    }
    rename_twins(&mut config.zones);
    Ok(config)
}

/// Zones of the groups for filtering and for crowds may have the same label.
fn rename_twins(zones: &mut [ZoneConfig]) {
    for at in 1..zones.len() {
        let (before, rest) = zones.split_at_mut(at);
        if before.iter().any(|zone| zone.name == rest[0].name) {
            rest[0].name.push_str(" crowd");
        }
    }
}

fn groups(text: &str) -> Result<Vec<Group<'_>>> {
    let mut groups: Vec<Group> = Vec::new();
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            groups.push(Group::named(name, number)?);
            continue;
        }
        let no_key =
            || at(number, format!("\"{line}\" is neither a group nor a key")).remedy("Write [group] or key=value");
        let (key, value) = line.split_once('=').ok_or_else(no_key)?;
        let group = groups.last_mut().ok_or_else(|| at(number, "a key stands before the first group".into()))?;
        let line = KeyLine { number, key: key.trim(), value: value.trim() };
        group.check_key(&line)?;
        group.lines.push(line);
    }
    Ok(groups)
}

fn at(number: usize, cause: String) -> Error {
    unusable(format!("line {number}: {cause}"))
}

impl<'a> Group<'a> {
    fn named(name: &str, number: usize) -> Result<Self> {
        for (kind, keys) in GROUPS {
            let rest = name.strip_prefix(kind);
            match rest.map(|rest| (rest, rest.parse::<u32>())) {
                Some(("", _)) if kind == "property" => {
                    return Ok(Group { kind, keys, stream: None, lines: Vec::new() });
                }
                Some((_, Ok(stream))) if kind != "property" => {
                    return Ok(Group { kind, keys, stream: Some(stream), lines: Vec::new() });
                }
                _ => {}
            }
        }
        let kinds = GROUPS.map(|(kind, _)| kind);
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let remedy = match nearest(stem, &kinds) {
            Some("property") => "Write [property]".into(),
            Some(near) => format!("Write [{near}0], with the number of the stream"),
            None => format!("The groups are {}, with the number of a stream", kinds.join(", ")),
        };
        Err(at(number, format!("the group [{name}] is unknown")).remedy(remedy))
    }

    fn check_key(&self, line: &KeyLine) -> Result<()> {
        let is_it = |known: &&str| if known.ends_with('-') { line.key.starts_with(known) } else { line.key == *known };
        if self.keys.iter().any(is_it) {
            return Ok(());
        }
        let hint = match nearest(line.key, self.keys) {
            Some(near) if near.ends_with('-') => format!("Write {near} and a label"),
            Some(near) => format!("Write {near}"),
            None => format!("The keys are {}", self.keys.join(", ")),
        };
        Err(at(line.number, format!("the key \"{}\" is unknown", line.key)).remedy(hint))
    }

    /// The last line with that key, as in GLib's key files.
    fn line(&self, key: &str) -> Option<KeyLine<'a>> {
        self.lines.iter().rev().find(|line| line.key == key).copied()
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool> {
        self.line(key).map_or(Ok(default), |line| match line.value {
            "1" | "true" => Ok(true),
            "0" | "false" => Ok(false),
            value => Err(at(line.number, format!("{key} is \"{value}\"")).remedy("Write 0 or 1")),
        })
    }

    fn count(&self, key: &str, maximum: u32) -> Result<u32> {
        let line = self.line(key).ok_or_else(|| {
            unusable(format!("its group [{}] has no {key}", self.kind))
                .remedy("Write the size of the frame that its points are in pixels of")
        })?;
        let count = line.value.parse().ok().filter(|count| (1..=maximum).contains(count));
        count.ok_or_else(|| {
            at(line.number, format!("{key} is \"{}\"", line.value))
                .remedy(format!("Write a number from 1 to {maximum}"))
        })
    }

    fn classes(&self) -> Result<WatchedClasses> {
        let Some(line) = self.line("class-id") else { return Ok(WatchedClasses::default()) };
        let ids = numbers(&line)?;
        let all = ids.contains(&-1.0);
        Ok(WatchedClasses(if all { Vec::new() } else { ids.iter().map(f64::to_string).collect() }))
    }

    fn mode(&self, default: &'static str) -> Result<f32> {
        let Some(line) = self.line("mode") else { return Ok(min_cosine(default)) };
        match MODES.iter().find(|(name, _)| *name == line.value) {
            Some((name, _)) => Ok(min_cosine(name)),
            None => {
                Err(at(line.number, format!("mode is \"{}\"", line.value)).remedy("Write loose, balanced or strict"))
            }
        }
    }

    /// The lines whose keys begin so, by what follows; of two with one label the last counts.
    fn labelled(&self, prefix: &str) -> Result<Vec<(&'a str, KeyLine<'a>)>> {
        let mut found: Vec<(&str, KeyLine)> = Vec::new();
        for line in &self.lines {
            let Some(label) = line.key.strip_prefix(prefix) else { continue };
            match found.iter_mut().find(|(known, _)| *known == label) {
                Some(known) => known.1 = *line,
                None => found.push((label, *line)),
            }
        }
        if found.is_empty() {
            let stream = self.stream.unwrap_or_default();
            return Err(unusable(format!("its group [{}{stream}] has no {prefix}", self.kind))
                .remedy(format!("Write {prefix} and a label")));
        }
        Ok(found)
    }

    fn read(&self, config: &mut AnalyticsConfig) -> Result<()> {
        let classes = self.classes()?;
        self.flag("enable", false)?;
        match self.kind {
            "line-crossing-stream-" => self.tripwires(config, classes),
            "direction-detection-stream-" => {
                let min_cosine = self.mode("balanced")?;
                for (label, line) in self.labelled("direction-")? {
                    let [from, to] = corners(&line, 2, 2)?[..] else { unreachable!("two points") };
                    let motion = Motion { points: [from, to], min_cosine };
                    config.directions.push(DirectionConfig {
                        name: label.into(),
                        motion,
                        classes: classes.clone(),
                        text_matches: None,
                    });
                }
                Ok(())
            }
            _ => self.zones(config, classes),
        }
    }

    fn zones(&self, config: &mut AnalyticsConfig, classes: WatchedClasses) -> Result<()> {
        let is_inverse = self.flag("inverse-roi", false)?;
        let crowd = match self.kind {
            "overcrowding-stream-" => {
                let threshold =
                    self.line("object-threshold").map_or(Ok(1), |_| self.count("object-threshold", u32::MAX))?;
                let milliseconds = |line: KeyLine| {
                    line.value.parse::<u32>().map_err(|_| {
                        at(line.number, format!("time-threshold is \"{}\"", line.value)).remedy("Write milliseconds")
                    })
                };
                let time = self.line("time-threshold").map_or(Ok(0), milliseconds)?;
                Some(CrowdConfig { threshold, time: u64::from(time) * 1_000_000 })
            }
            _ => None,
        };
        for (label, line) in self.labelled("roi-")? {
            config.zones.push(ZoneConfig {
                name: label.into(),
                area: ZoneArea::Polygon(corners(&line, 3, MAX_POINTS)?),
                is_inverse,
                classes: classes.clone(),
                text_matches: None,
                hysteresis: DEFAULT_ZONE_HYSTERESIS,
                object_retention: DEFAULT_OBJECT_RETENTION,
                track_dwell_time: true,
                dwell_time: None,
                crowd,
                look: BoundaryLook::default(),
            });
        }
        Ok(())
    }

    fn tripwires(&self, config: &mut AnalyticsConfig, classes: WatchedClasses) -> Result<()> {
        let (is_extended, min_cosine) = (self.flag("extended", true)?, self.mode("loose")?);
        for (label, line) in self.labelled("line-crossing-")? {
            let [from, to, begin, end] = corners(&line, 4, 4)?[..] else { unreachable!("four points") };
            config.tripwires.push(TripwireConfig {
                name: label.into(),
                points: [begin, end],
                is_extended,
                wanted: WantedDirection::AlongMotion,
                classes: classes.clone(),
                text_matches: None,
                hysteresis: DEFAULT_TRIPWIRE_HYSTERESIS,
                motion: Some(Motion { points: [from, to], min_cosine }),
                look: BoundaryLook::default(),
            });
        }
        Ok(())
    }
}

fn numbers(line: &KeyLine) -> Result<Vec<f64>> {
    let words = line.value.split(';').map(str::trim).filter(|word| !word.is_empty());
    let number = |word: &str| word.parse::<i32>().ok().map(f64::from);
    words.map(number).collect::<Option<_>>().ok_or_else(|| {
        at(line.number, format!("{} is \"{}\"", line.key, line.value)).remedy("Write whole numbers with ; between them")
    })
}

/// Points, of which there must be so many.
fn corners(line: &KeyLine, minimum: usize, maximum: usize) -> Result<Vec<[f64; 2]>> {
    let numbers = numbers(line)?;
    let (pairs, rest) = numbers.as_chunks::<2>();
    if !rest.is_empty() || !(minimum..=maximum).contains(&pairs.len()) {
        let wanted = if minimum == maximum { minimum.to_string() } else { format!("{minimum} to {maximum}") };
        return Err(at(line.number, format!("{} has {} numbers", line.key, numbers.len()))
            .remedy(format!("Write x;y of {wanted} points")));
    }
    Ok(pairs.to_vec())
}
