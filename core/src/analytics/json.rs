// SPDX-License-Identifier: MPL-2.0
//! A configuration in JSON, with the words of DL Streamer's gvaanalytics and further ones.

use serde_json::{Map, Value};

use super::config::*;
use super::text::{MAX_PATTERNS, TextPattern};
use crate::error::{Error, Result};
use crate::json::{RepeatedKey, repeated_key};
use crate::words::nearest;

const TOP: [&str; 5] = ["zones", "tripwires", "directions", "frame-width", "frame-height"];
const ZONE: [&str; 16] = [
    "id",
    "type",
    "points",
    "center",
    "radius",
    "inverse",
    "classes",
    "text-matches",
    "hysteresis",
    "object-retention",
    "track-dwell-time",
    "dwell-time",
    "crowd-threshold",
    "crowd-time",
    "color",
    "thickness",
];
const TRIPWIRE: [&str; 9] =
    ["id", "points", "extended", "direction", "classes", "text-matches", "hysteresis", "color", "thickness"];
const DIRECTION: [&str; 5] = ["id", "points", "mode", "classes", "text-matches"];

pub(super) fn parse(text: &str) -> Result<AnalyticsConfig> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| unusable(format!("it is not JSON: {error}")).remedy("Correct it there"))?;
    if let Some(repeated) = repeated_key(text.as_bytes()) {
        return Err(unusable(repeated.to_string()).remedy(RepeatedKey::REMEDY));
    }
    let top = JsonPart { value: &value, path: String::new() }.object(&TOP)?;
    let frame = match (top.get("frame-width"), top.get("frame-height")) {
        (None, None) => None,
        (Some(width), Some(height)) => Some((width.count(1, 1 << 16)?, height.count(1, 1 << 16)?)),
        _ => {
            return Err(unusable("it has only one of frame-width and frame-height")
                .remedy("Write both: the size of the frame that the points are in pixels of"));
        }
    };
    let mut patterns = Vec::new();
    let zones = top.list("zones")?.iter().map(|part| zone(part, &mut patterns)).collect::<Result<Vec<_>>>()?;
    let tripwires =
        top.list("tripwires")?.iter().map(|part| tripwire(part, &mut patterns)).collect::<Result<Vec<_>>>()?;
    let directions =
        top.list("directions")?.iter().map(|part| direction(part, &mut patterns)).collect::<Result<Vec<_>>>()?;
    Ok(AnalyticsConfig { frame, zones, tripwires, directions, text_patterns: patterns })
}

fn zone(part: &JsonPart, patterns: &mut Vec<TextPattern>) -> Result<ZoneConfig> {
    let object = part.object(&ZONE)?;
    let kind = object.get("type").map_or(Ok("polygon"), |kind| kind.one_of(&["polygon", "circle"]))?;
    let area = match kind {
        "polygon" => {
            object.refuse(&["center", "radius"], "of circles")?;
            ZoneArea::Polygon(object.need("points")?.points()?)
        }
        _ => {
            object.refuse(&["points"], "of polygons")?;
            ZoneArea::Circle { center: object.need("center")?.point()?, radius: object.need("radius")?.number()? }
        }
    };
    let crowd = match object.get("crowd-threshold") {
        Some(threshold) => {
            let time = object.get("crowd-time").map_or(Ok(0), |time| time.seconds())?;
            Some(CrowdConfig { threshold: threshold.count(1, u32::MAX)?, time })
        }
        None => {
            object.refuse(&["crowd-time"], "with crowd-threshold")?;
            None
        }
    };
    let seconds = |key, default| object.get(key).map_or(Ok(default), |time| time.seconds());
    Ok(ZoneConfig {
        name: object.need("id")?.text()?.to_string(),
        area,
        is_inverse: object.flag("inverse", false)?,
        classes: object.classes()?,
        text_matches: object.text_matches(patterns)?,
        hysteresis: seconds("hysteresis", DEFAULT_ZONE_HYSTERESIS)?,
        object_retention: seconds("object-retention", DEFAULT_OBJECT_RETENTION)?,
        track_dwell_time: object.flag("track-dwell-time", true)?,
        dwell_time: object.get("dwell-time").map(|time| time.seconds()).transpose()?,
        crowd,
        look: object.look()?,
    })
}

fn tripwire(part: &JsonPart, patterns: &mut Vec<TextPattern>) -> Result<TripwireConfig> {
    let object = part.object(&TRIPWIRE)?;
    let wanted = match object.get("direction") {
        None => WantedDirection::Both,
        Some(direction) => match direction.one_of(&["both", "forward", "backward"])? {
            "forward" => WantedDirection::Forward,
            "backward" => WantedDirection::Backward,
            _ => WantedDirection::Both,
        },
    };
    Ok(TripwireConfig {
        name: object.need("id")?.text()?.to_string(),
        points: object.need("points")?.two_points()?,
        is_extended: object.flag("extended", false)?,
        wanted,
        classes: object.classes()?,
        text_matches: object.text_matches(patterns)?,
        hysteresis: object.get("hysteresis").map_or(Ok(DEFAULT_TRIPWIRE_HYSTERESIS), |time| time.seconds())?,
        motion: None,
        look: object.look()?,
    })
}

fn direction(part: &JsonPart, patterns: &mut Vec<TextPattern>) -> Result<DirectionConfig> {
    let object = part.object(&DIRECTION)?;
    let mode = object.get("mode").map_or(Ok("balanced"), |mode| mode.one_of(&MODES.map(|(name, _)| name)))?;
    Ok(DirectionConfig {
        name: object.need("id")?.text()?.to_string(),
        motion: Motion { points: object.need("points")?.two_points()?, min_cosine: min_cosine(mode) },
        classes: object.classes()?,
        text_matches: object.text_matches(patterns)?,
    })
}

/// A value, and where it is.
struct JsonPart<'a> {
    value: &'a Value,
    path: String,
}

/// An object whose keys are all known.
struct JsonObject<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

impl<'a> JsonPart<'a> {
    fn wrong(&self, wanted: &str) -> Error {
        unusable(self.shown()).remedy(format!("Write {wanted}"))
    }

    /// Its place and its value, as far as that fits into a message.
    fn shown(&self) -> String {
        let mut value = self.value.to_string();
        if value.chars().count() > 40 {
            value = value.chars().take(40).chain(['…']).collect();
        }
        let place = if self.path.is_empty() { "it" } else { &self.path };
        format!("{place} is {value}")
    }

    fn object(&self, keys: &[&str]) -> Result<JsonObject<'a>> {
        let map = self.value.as_object().ok_or_else(|| self.wrong("an object in braces"))?;
        let place = if self.path.is_empty() { "it".into() } else { self.path.clone() };
        if let Some(unknown) = map.keys().find(|key| !keys.contains(&key.as_str())) {
            let hint = match nearest(unknown, keys) {
                Some(near) => format!("Write {near}"),
                None => format!("The keys are {}", keys.join(", ")),
            };
            return Err(unusable(format!("{place} has the unknown key \"{unknown}\"")).remedy(hint));
        }
        Ok(JsonObject { map, path: self.path.clone() })
    }

    fn text(&self) -> Result<&'a str> {
        let text = self.value.as_str().filter(|text| !text.contains('\0'));
        text.ok_or_else(|| self.wrong("a text in quotes without NUL characters"))
    }

    fn one_of<'b>(&self, choices: &[&'b str]) -> Result<&'b str> {
        let text = self.text()?;
        let found = choices.iter().find(|choice| **choice == text);
        found.copied().ok_or_else(|| self.wrong(&choices.join(" or ")))
    }

    fn number(&self) -> Result<f64> {
        self.value.as_f64().filter(|number| number.is_finite()).ok_or_else(|| self.wrong("a number"))
    }

    fn count(&self, minimum: u32, maximum: u32) -> Result<u32> {
        let count = self.value.as_u64().and_then(|count| u32::try_from(count).ok());
        let count = count.filter(|count| (minimum..=maximum).contains(count));
        count.ok_or_else(|| self.wrong(&format!("a whole number from {minimum} to {maximum}")))
    }

    /// As nanoseconds.
    fn seconds(&self) -> Result<u64> {
        const MAXIMUM: f64 = 1e9;
        let seconds = self.number()?;
        match (0.0..=MAXIMUM).contains(&seconds) {
            true => Ok((seconds * 1e9).round() as u64),
            false => Err(self.wrong("seconds, 0 or more")),
        }
    }

    fn list(&self) -> Result<Vec<JsonPart<'a>>> {
        let values = self.value.as_array().ok_or_else(|| self.wrong("a list in brackets"))?;
        let part = |(number, value)| JsonPart { value, path: format!("{}[{number}]", self.path) };
        Ok(values.iter().enumerate().map(part).collect())
    }

    /// `{"x": 1, "y": 2}`, or `[1, 2]`.
    fn point(&self) -> Result<[f64; 2]> {
        if self.value.is_array() {
            let [x, y] = &self.list()?[..] else { return Err(self.wrong("a point like {\"x\": 1, \"y\": 2}")) };
            return Ok([x.number()?, y.number()?]);
        }
        let object = self.object(&["x", "y"])?;
        Ok([object.need("x")?.number()?, object.need("y")?.number()?])
    }

    fn points(&self) -> Result<Vec<[f64; 2]>> {
        let points = self.list()?;
        if points.len() > MAX_POINTS {
            return Err(unusable(format!("{} has {} points", self.path, points.len()))
                .remedy(format!("Write {MAX_POINTS} at most")));
        }
        points.iter().map(JsonPart::point).collect()
    }

    fn two_points(&self) -> Result<[[f64; 2]; 2]> {
        let points = self.points()?;
        let count = points.len();
        points.try_into().map_err(|_| unusable(format!("{} has {count} points", self.path)).remedy("Write two points"))
    }
}

impl<'a> JsonObject<'a> {
    fn get(&self, key: &str) -> Option<JsonPart<'a>> {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.map.get(key).map(|value| JsonPart { value, path: format!("{}{dot}{key}", self.path) })
    }

    fn need(&self, key: &str) -> Result<JsonPart<'a>> {
        self.get(key)
            .ok_or_else(|| unusable(format!("{} has no {key}", self.path)).remedy(format!("Write {key} there")))
    }

    fn list(&self, key: &str) -> Result<Vec<JsonPart<'a>>> {
        self.get(key).map_or(Ok(Vec::new()), |part| part.list())
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool> {
        let flag = |part: JsonPart| part.value.as_bool().ok_or_else(|| part.wrong("true or false"));
        self.get(key).map_or(Ok(default), flag)
    }

    /// Keys that have no meaning here.
    fn refuse(&self, keys: &[&str], place: &str) -> Result<()> {
        match keys.iter().find(|key| self.map.contains_key(**key)) {
            Some(key) => Err(unusable(format!("{} has {key}, which is a key {place} only", self.path))
                .remedy(format!("Remove {key}"))),
            None => Ok(()),
        }
    }

    /// `["person", 2]`, or `"person,car"`.
    fn classes(&self) -> Result<WatchedClasses> {
        let Some(part) = self.get("classes") else { return Ok(WatchedClasses::default()) };
        if let Some(text) = part.value.as_str() {
            let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
            return Ok(WatchedClasses(words.map(String::from).collect()));
        }
        let word = |part: &JsonPart| match part.value {
            Value::String(label) => Ok(label.clone()),
            Value::Number(id) if id.is_u64() => Ok(id.to_string()),
            _ => Err(part.wrong("the label or the id of a class")),
        };
        part.list()?.iter().map(word).collect::<Result<_>>().map(WatchedClasses)
    }

    /// The number of its regular expression among those of the configuration.
    fn text_matches(&self, patterns: &mut Vec<TextPattern>) -> Result<Option<usize>> {
        let Some(part) = self.get("text-matches") else { return Ok(None) };
        let text = part.text()?;
        if let Some(known) = patterns.iter().position(|pattern| pattern.as_str() == text) {
            return Ok(Some(known));
        }
        let unusable_here = |cause: &str| unusable(format!("{}: {cause}", part.shown()));
        let pattern = TextPattern::new(text).map_err(|fault| unusable_here(&fault.cause).remedy(fault.remedy))?;
        if patterns.len() == MAX_PATTERNS {
            return Err(unusable_here(&format!("there are {MAX_PATTERNS} other ones before it"))
                .remedy(format!("Write {MAX_PATTERNS} different ones at most; (A|B) is what matches A or B")));
        }
        patterns.push(pattern);
        Ok(Some(patterns.len() - 1))
    }

    fn look(&self) -> Result<BoundaryLook> {
        let thickness = self.get("thickness").map_or(Ok(0), |thickness| thickness.count(1, 64))?;
        let Some(color) = self.get("color") else { return Ok(BoundaryLook { color: None, thickness }) };
        let color = color.object(&["r", "g", "b"])?;
        let mut rgb = [0; 3];
        for (value, key) in rgb.iter_mut().zip(["r", "g", "b"]) {
            *value = color.need(key)?.count(0, 255)? as u8;
        }
        Ok(BoundaryLook { color: Some(rgb), thickness })
    }
}
