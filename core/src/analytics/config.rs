// SPDX-License-Identifier: MPL-2.0
//! What is watched, as the user has configured it.

use super::geometry::{Area, Point, Segment};
use super::text::TextPattern;
use crate::error::{Error, ErrorKind, Result};

/// Zones, tripwires and directions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnalyticsConfig {
    /// The size of the frame that pixels are of; that of the stream where there is none.
    pub frame: Option<(u32, u32)>,
    pub zones: Vec<ZoneConfig>,
    pub tripwires: Vec<TripwireConfig>,
    pub directions: Vec<DirectionConfig>,
    /// Each different one, for the numbers in `text_matches` of the others.
    pub text_patterns: Vec<TextPattern>,
}

/// An area whose objects are counted.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneConfig {
    pub name: String,
    pub area: ZoneArea,
    /// All that is outside the area.
    pub is_inverse: bool,
    pub classes: WatchedClasses,
    /// The number of the pattern that a text of an object must match.
    pub text_matches: Option<usize>,
    /// Nanoseconds for which an object must be inside before it has entered.
    pub hysteresis: u64,
    /// Nanoseconds for which an object must be outside before it has left.
    pub object_retention: u64,
    /// Whether objects have the time that they have been inside in their metas.
    pub track_dwell_time: bool,
    /// Nanoseconds inside after which an object has dwelled.
    pub dwell_time: Option<u64>,
    pub crowd: Option<CrowdConfig>,
    pub look: BoundaryLook,
}

/// As it is configured: in parts of the frame or in pixels.
#[derive(Clone, Debug, PartialEq)]
pub enum ZoneArea {
    Polygon(Vec<[f64; 2]>),
    Circle { center: [f64; 2], radius: f64 },
}

/// From how many objects on a zone is crowded, if they stay for so many nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrowdConfig {
    pub threshold: u32,
    pub time: u64,
}

/// A line whose crossings are counted.
#[derive(Clone, Debug, PartialEq)]
pub struct TripwireConfig {
    pub name: String,
    pub points: [[f64; 2]; 2],
    /// The line goes on beyond its points.
    pub is_extended: bool,
    pub wanted: WantedDirection,
    pub classes: WatchedClasses,
    /// The number of the pattern that a text of an object must match.
    pub text_matches: Option<usize>,
    /// Nanoseconds for which an object must not come back before it has crossed.
    pub hysteresis: u64,
    /// The direction in which an object must move.
    pub motion: Option<Motion>,
    pub look: BoundaryLook,
}

/// The crossings that are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WantedDirection {
    #[default]
    Both,
    Forward,
    Backward,
    /// Forward or backward, whichever is along its [`Motion`].
    AlongMotion,
}

/// A direction in which objects are seen to move.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionConfig {
    pub name: String,
    pub motion: Motion,
    pub classes: WatchedClasses,
    /// The number of the pattern that a text of an object must match.
    pub text_matches: Option<usize>,
}

/// The direction from one point to another, and how near to it an object must move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Motion {
    pub points: [[f64; 2]; 2],
    /// Of the largest angle between both.
    pub min_cosine: f32,
}

/// How it is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoundaryLook {
    /// Red, green, blue.
    pub color: Option<[u8; 3]>,
    /// Pixels; 0 for that of the drawing element.
    pub thickness: u32,
}

/// Names or ids of classes; empty for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedClasses(pub Vec<String>);

impl WatchedClasses {
    pub fn wants(&self, label: &str, class: Option<u32>) -> bool {
        let is_it = |word: &String| word == label || class.is_some_and(|class| word.parse() == Ok(class));
        self.0.is_empty() || self.0.iter().any(is_it)
    }
}

/// DeepStream's names for how near to a direction an object must move: the cosine of the largest angle.
pub const MODES: [(&str, f32); 3] = [("loose", 0.1), ("balanced", 0.5), ("strict", 0.8)];

/// # Panics
/// If there is no such mode.
pub fn min_cosine(mode: &str) -> f32 {
    MODES.iter().find(|(name, _)| *name == mode).expect("it is one of them").1
}

pub const DEFAULT_ZONE_HYSTERESIS: u64 = 200_000_000;
pub const DEFAULT_TRIPWIRE_HYSTERESIS: u64 = 500_000_000;
/// As DL Streamer has it.
pub const DEFAULT_OBJECT_RETENTION: u64 = 500_000_000;
/// Limits of a configuration.
pub const MAX_SHAPES: usize = 256;
pub const MAX_POINTS: usize = 1024;
pub const MAX_NAME: usize = 128;
/// Pixels.
const MAX_COORDINATE: f64 = 1e5;
/// What is smaller, and no part of the frame, is no shape either.
const FEWEST_PIXELS: f64 = 2.0;

impl AnalyticsConfig {
    /// The classes that are watched, with the name of what watches them.
    pub fn classes(&self) -> impl Iterator<Item = (&str, &str)> {
        let zones = self.zones.iter().map(|zone| (&zone.name, &zone.classes));
        let tripwires = self.tripwires.iter().map(|tripwire| (&tripwire.name, &tripwire.classes));
        let directions = self.directions.iter().map(|direction| (&direction.name, &direction.classes));
        let all = zones.chain(tripwires).chain(directions);
        all.flat_map(|(name, classes)| classes.0.iter().map(|class| (name.as_str(), class.as_str())))
    }

    /// Whether something watches that class and not all.
    pub fn names(&self, label: &str, class: Option<u32>) -> bool {
        let zones = self.zones.iter().map(|zone| &zone.classes);
        let tripwires = self.tripwires.iter().map(|tripwire| &tripwire.classes);
        let directions = self.directions.iter().map(|direction| &direction.classes);
        let mut all = zones.chain(tripwires).chain(directions);
        all.any(|classes| !classes.0.is_empty() && classes.wants(label, class))
    }

    /// What must hold in any format.
    ///
    /// # Errors
    /// `Settings`: what cannot be used, and what can be written there.
    pub fn check(&self) -> Result<()> {
        let names = [
            ("zones", self.zones.iter().map(|zone| &zone.name).collect::<Vec<_>>()),
            ("tripwires", self.tripwires.iter().map(|tripwire| &tripwire.name).collect()),
            ("directions", self.directions.iter().map(|direction| &direction.name).collect()),
        ];
        for (kind, names) in &names {
            if names.len() > MAX_SHAPES {
                return Err(unusable(format!("it has {} {kind}", names.len())).remedy(format!("{MAX_SHAPES} at most")));
            }
            for (number, name) in names.iter().enumerate() {
                if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
                    return Err(unusable(format!("{kind}[{number}] has the id \"{name}\""))
                        .remedy(format!("Write 1 to {MAX_NAME} characters")));
                }
                if names[..number].contains(name) {
                    return Err(unusable(format!("two of the {kind} have the id \"{name}\""))
                        .remedy("Give each an id of its own"));
                }
            }
        }
        if names.iter().all(|(_, names)| names.is_empty()) {
            return Err(unusable("it has no zones, no tripwires and no directions").remedy("Write at least one"));
        }
        self.zones.iter().try_for_each(ZoneConfig::check)?;
        self.check_units()?;
        let lines = self.tripwires.iter().map(|tripwire| ("tripwire", &tripwire.name, &tripwire.points));
        let motions = self.tripwires.iter().filter_map(|tripwire| Some((&tripwire.name, tripwire.motion.as_ref()?)));
        let directions = self.directions.iter().map(|direction| (&direction.name, &direction.motion));
        let motions = motions.chain(directions).map(|(name, motion)| ("direction", name, &motion.points));
        for (kind, name, points) in lines.chain(motions) {
            points.iter().try_for_each(|point| check_point(kind, name, *point))?;
            if points[0] == points[1] {
                return Err(unusable(format!("both points of the {kind} \"{name}\" are the same"))
                    .remedy("Write two different points"));
            }
        }
        Ok(())
    }

    /// Parts of the frame of which one is a little above 1, or below -1, would be pixels: a shape in the corner of the frame that nobody
    /// reaches.
    fn check_units(&self) -> Result<()> {
        let zones = self.zones.iter().map(|zone| ("zone", &zone.name, zone.area.coordinates()));
        let lines = self.tripwires.iter();
        let lines = lines.map(|tripwire| ("tripwire", &tripwire.name, tripwire.points.as_flattened().to_vec()));
        for (kind, name, coordinates) in zones.chain(lines).filter(|_| self.frame.is_none()) {
            let greatest = coordinates.iter().copied().fold(0.0, f64::max);
            let least = coordinates.iter().copied().fold(0.0, f64::min);
            if !are_parts(&coordinates) && greatest < FEWEST_PIXELS {
                let (which, number) = if greatest > 1.0 { ("greatest", greatest) } else { ("least", least) };
                return Err(unusable(format!("the {which} number of the {kind} \"{name}\" is {number}"))
                    .remedy("Write parts of the frame from 0 to 1, or pixels, of which one is 2 or more"));
            }
        }
        Ok(())
    }

    /// Points on a frame of that size.
    pub fn place(&self, points: &[[f64; 2]], size: (u32, u32)) -> Vec<Point> {
        let scale = self.scale(points.as_flattened(), size);
        points.iter().map(|point| [0, 1].map(|axis| (point[axis] * scale[axis]) as f32)).collect()
    }

    /// Pixels for each unit of these coordinates, across and down.
    fn scale(&self, coordinates: &[f64], (width, height): (u32, u32)) -> [f64; 2] {
        let size = [f64::from(width), f64::from(height)];
        match self.frame {
            Some((width, height)) => [size[0] / f64::from(width), size[1] / f64::from(height)],
            None if are_parts(coordinates) => size,
            None => [1.0; 2],
        }
    }

    /// The area of a zone on a frame of that size.
    pub fn area(&self, zone: &ZoneConfig, size: (u32, u32)) -> Area {
        match &zone.area {
            ZoneArea::Polygon(points) => Area::polygon(self.place(points, size)),
            ZoneArea::Circle { center, radius } => {
                let scale = self.scale(&[center[0], center[1], *radius], size);
                // A part of the frame would be an ellipse.
                let radii = if self.frame.is_none() && scale[0] != 1.0 {
                    [radius * scale[0]; 2]
                } else {
                    scale.map(|scale| radius * scale)
                };
                let center = [0, 1].map(|axis| (center[axis] * scale[axis]) as f32);
                Area::Ellipse { center, radii: radii.map(|radius| radius as f32) }
            }
        }
    }

    /// The line of a tripwire on a frame of that size, as far as it is configured.
    pub fn segment(&self, tripwire: &TripwireConfig, size: (u32, u32)) -> Segment {
        let points = self.place(&tripwire.points, size);
        Segment { from: points[0], to: points[1] }
    }

    /// The unit vector of a direction on a frame of that size.
    pub fn vector(&self, motion: &Motion, size: (u32, u32)) -> Point {
        let points = self.place(&motion.points, size);
        let [x, y] = [0, 1].map(|axis| points[1][axis] - points[0][axis]);
        let length = x.hypot(y).max(f32::MIN_POSITIVE);
        [x / length, y / length]
    }
}

impl ZoneArea {
    fn coordinates(&self) -> Vec<f64> {
        match self {
            ZoneArea::Polygon(points) => points.as_flattened().to_vec(),
            ZoneArea::Circle { center: [x, y], radius } => vec![*x, *y, *radius],
        }
    }
}

impl ZoneConfig {
    fn check(&self) -> Result<()> {
        let name = &self.name;
        match &self.area {
            ZoneArea::Polygon(points) => {
                if !(3..=MAX_POINTS).contains(&points.len()) {
                    return Err(unusable(format!("the zone \"{name}\" has {} points", points.len()))
                        .remedy(format!("Write 3 to {MAX_POINTS} points")));
                }
                points.iter().try_for_each(|point| check_point("zone", name, *point))?;
                if !is_spread(points) {
                    return Err(unusable(format!("all points of the zone \"{name}\" are on one line"))
                        .remedy("Write the corners of an area"));
                }
            }
            ZoneArea::Circle { center, radius } => {
                check_point("zone", name, *center)?;
                if !(radius.is_finite() && *radius > 0.0 && *radius <= MAX_COORDINATE) {
                    return Err(unusable(format!("the radius of the zone \"{name}\" is {radius}"))
                        .remedy("Write a number above 0"));
                }
            }
        }
        match self.crowd {
            Some(CrowdConfig { threshold: 0, .. }) => Err(unusable(format!("the crowd threshold of \"{name}\" is 0"))
                .remedy("Write how many objects are a crowd: 1 or more")),
            _ => Ok(()),
        }
    }
}

/// Whether coordinates are parts of the frame. A zone may begin a little outside of it.
fn are_parts(coordinates: &[f64]) -> bool {
    coordinates.iter().all(|at| (-1.0..=1.0).contains(at))
}

/// Whether points are not all on one line. Those that are written as if they were may be off it by what rounding takes.
fn is_spread(points: &[[f64; 2]]) -> bool {
    const ROUNDING: f64 = 1e-9;
    let first = points[0];
    let by = |point: &[f64; 2]| [point[0] - first[0], point[1] - first[1]];
    let square = |[x, y]: [f64; 2]| x * x + y * y;
    let farthest = points.iter().map(by).max_by(|a, b| square(*a).total_cmp(&square(*b)));
    let along = farthest.unwrap_or_default();
    // Twice the area of a triangle: at most the square of its longest side.
    let least = square(along) * ROUNDING;
    points.iter().map(by).any(|by| (along[0] * by[1] - along[1] * by[0]).abs() > least)
}

fn check_point(kind: &str, name: &str, point: [f64; 2]) -> Result<()> {
    if point.iter().all(|at| at.abs() <= MAX_COORDINATE) {
        Ok(())
    } else {
        Err(unusable(format!("a point of the {kind} \"{name}\" is {}, {}", point[0], point[1]))
            .remedy("Write pixels, or parts of the frame from 0 to 1"))
    }
}

/// The error that says so.
#[track_caller]
pub(super) fn unusable(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Settings, "The configuration of zones and tripwires cannot be used").cause(cause.into())
}
