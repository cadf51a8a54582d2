// SPDX-License-Identifier: MPL-2.0
//! What rows tell of frames: the columns of the Python package's `gsttrt.ray`, by its names.

use std::collections::{BTreeMap, HashMap};

use gsttrt_core::image::keypoints::ObjectKeypoints;
use gsttrt_core::image::overlay::Attribute;
use gsttrt_core::vector::of_text;
use gsttrt_publish::record::{FrameRecord, ObjectRecord};
use serde_json::Value;

use super::columns::{Cell, CellType, ColumnName};

/// What a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RowSubject {
    Objects,
    Frames,
    Tracks,
}

use CellType::{Float32, Float64, Floats, Int32, Int32s, Int64, Structures, Text, Texts};

/// The columns of an object, which are also those of the structures in rows of frames.
macro_rules! object_columns {
    ([$($before:expr),*], [$($after:expr),*]) => {
        &[
            $($before,)*
            ("label", Text),
            ("class_id", Int32),
            ("confidence", Float32),
            ("x", Float32),
            ("y", Float32),
            ("w", Float32),
            ("h", Float32),
            ("track_id", Int64),
            ("angle", Float32),
            ("corners", Floats),
            ("keypoints", Floats),
            ("mask_x", Int32),
            ("mask_y", Int32),
            ("mask_width", Int32),
            ("mask_height", Int32),
            ("mask_counts", Text),
            ATTRIBUTES[0],
            ATTRIBUTES[1],
            ATTRIBUTES[2],
            ("vector", Floats),
            $($after,)*
        ]
    };
}

const SOURCE: ColumnName = ("source", Text);
const FRAME: ColumnName = ("frame", Int64);
const TIME: ColumnName = ("time", Float64);
const WIDTH: ColumnName = ("width", Int32);
const HEIGHT: ColumnName = ("height", Int32);
const ERROR: ColumnName = ("error", Text);
/// What models on objects say of an object, in the same order in each list.
const ATTRIBUTES: [ColumnName; 3] =
    [("attributes", Texts), ("attribute_class_ids", Int32s), ("attribute_confidences", Floats)];

const OF_OBJECT: &[ColumnName] = object_columns!([], []);
const OF_OBJECT_ROW: &[ColumnName] = object_columns!([SOURCE, FRAME, TIME, WIDTH, HEIGHT], [ERROR]);
const OF_FRAME_ROW: &[ColumnName] =
    &[SOURCE, FRAME, TIME, WIDTH, HEIGHT, ("count", Int32), ("objects", Structures(OF_OBJECT)), ERROR];
const OF_TRACK_ROW: &[ColumnName] = &[
    SOURCE,
    ("track_id", Int64),
    ("label", Text),
    ("class_id", Int32),
    ("first_frame", Int64),
    ("last_frame", Int64),
    ("first_time", Float64),
    ("last_time", Float64),
    ("frames", Int64),
    ("mean_confidence", Float32),
    ("best_frame", Int64),
    ("best_time", Float64),
    ("confidence", Float32),
    ("x", Float32),
    ("y", Float32),
    ("w", Float32),
    ("h", Float32),
    WIDTH,
    HEIGHT,
    ATTRIBUTES[0],
    ATTRIBUTES[1],
    ATTRIBUTES[2],
    ERROR,
];

impl RowSubject {
    pub fn columns(self) -> &'static [ColumnName] {
        match self {
            RowSubject::Objects => OF_OBJECT_ROW,
            RowSubject::Frames => OF_FRAME_ROW,
            RowSubject::Tracks => OF_TRACK_ROW,
        }
    }
}

/// Makes rows, and keeps what is known of tracks until their source ends.
pub struct RowMaker {
    subject: RowSubject,
    /// By the source and the id.
    tracks: BTreeMap<(String, u64), TrackSummary>,
}

impl RowMaker {
    pub fn new(subject: RowSubject) -> Self {
        RowMaker { subject, tracks: BTreeMap::new() }
    }

    pub fn subject(&self) -> RowSubject {
        self.subject
    }

    /// The rows of a frame.
    pub fn of_frame(&mut self, source: &str, frame: &FrameRecord) -> Vec<Vec<Cell>> {
        let objects = objects(frame);
        let place = FramePlace {
            number: frame.number as i64,
            time: frame.times.stream_time.map(|time| time as f64 / 1e9),
            size: [frame.size.0 as i32, frame.size.1 as i32],
        };
        let start = || {
            let [width, height] = place.size;
            vec![source.to_string().into(), place.number.into(), place.time.into(), width.into(), height.into()]
        };
        match self.subject {
            RowSubject::Objects => {
                objects.into_iter().map(|object| [start(), object, vec![Cell::Null]].concat()).collect()
            }
            RowSubject::Frames => {
                let count = objects.len() as i32;
                vec![[start(), vec![count.into(), Cell::Structures(objects), Cell::Null]].concat()]
            }
            RowSubject::Tracks => {
                for object in &frame.objects {
                    self.see(source, place, object);
                }
                Vec::new()
            }
        }
    }

    fn see(&mut self, source: &str, place: FramePlace, object: &ObjectRecord) {
        let annotation = &object.annotation;
        let Some(id) = annotation.track_id else { return };
        let seen = TrackSight { place, confidence: annotation.confidence.unwrap_or(0.0), box_cells: box_cells(object) };
        let class = (annotation.class, annotation.label.to_string());
        let track = self.tracks.entry((source.into(), id)).or_insert_with(|| TrackSummary::new(seen.clone()));
        track.add(seen, class);
        // Where a frame that no model has seen has none, those of before stay.
        if !object.is_predicted || !annotation.attributes.is_empty() {
            track.attributes.clone_from(&annotation.attributes);
        }
    }

    /// The rows of a source that has ended, or of all, with those of its tracks.
    pub fn of_tracks(&mut self, source: Option<&str>) -> Vec<Vec<Cell>> {
        let is_of = |key: &(String, u64)| source.is_none_or(|source| key.0 == source);
        let ended: Vec<_> = self.tracks.extract_if(.., |key, _| is_of(key)).collect();
        ended.into_iter().map(|((source, id), track)| track.row(source, id)).collect()
    }

    /// The row of a source that could not be read, or not to its end.
    pub fn of_error(&self, source: &str, error: &str) -> Vec<Cell> {
        let mut row = vec![Cell::Null; self.subject.columns().len()];
        row[0] = source.to_string().into();
        *row.last_mut().expect("there are columns") = error.to_string().into();
        row
    }
}

#[derive(Clone, Copy)]
struct FramePlace {
    number: i64,
    time: Option<f64>,
    /// Width and height.
    size: [i32; 2],
}

/// The columns of the objects of a frame; of a classifier those of its classes, of a reader that of its text, and that of the frame's
/// vector. These have no box.
fn objects(frame: &FrameRecord) -> Vec<Vec<Cell>> {
    let of_frame = |found: &Value, label: &str| {
        let mut cells = vec![Cell::Null; OF_OBJECT.len()];
        cells[0] = found[label].as_str().map(str::to_string).into();
        cells[1] = found["class-id"].as_i64().map(|id| id as i32).into();
        cells[2] = found["confidence"].as_f64().map(|confidence| confidence as f32).into();
        cells
    };
    let classes = frame.classes.iter().flatten().map(|class| of_frame(class, "label"));
    let texts = frame.texts.iter().map(|text| of_frame(text, "text"));
    let vectors = frame.vectors.iter().map(|text| {
        let mut cells = vec![Cell::Null; OF_OBJECT.len()];
        *cells.last_mut().expect("there are columns") = of_text(text).into();
        cells
    });
    frame.objects.iter().map(object).chain(classes).chain(texts).chain(vectors).collect()
}

fn object(object: &ObjectRecord) -> Vec<Cell> {
    let annotation = &object.annotation;
    let floats = |numbers: &[f64]| numbers.iter().map(|&number| number as f32).collect::<Vec<f32>>();
    let mut cells = vec![
        annotation.label.to_string().into(),
        annotation.class.map(|class| class as i32).into(),
        annotation.confidence.into(),
    ];
    cells.extend(box_cells(object));
    cells.extend([
        annotation.track_id.map(|id| id as i64).into(),
        object.rotation.as_ref().map(|(angle, _)| *angle as f32).into(),
        object.rotation.as_ref().map(|(_, corners)| floats(corners)).into(),
        annotation.keypoints.as_ref().map(keypoints).into(),
    ]);
    match &annotation.mask {
        Some(mask) => {
            let rect = mask.rect();
            let sides = [rect.left, rect.top, rect.width(), rect.height()];
            cells.extend(sides.map(|side| Cell::from(side as i32)));
            cells.push(mask.counts().into());
        }
        None => cells.extend(vec![Cell::Null; 5]),
    }
    cells.extend(attributes(&annotation.attributes));
    cells.push(object.vectors.first().and_then(|text| of_text(text)).into());
    cells
}

/// Their labels, class ids and confidences, of which NaN is an unknown one; null where there are none.
fn attributes(attributes: &[Attribute]) -> [Cell; 3] {
    if attributes.is_empty() {
        return [Cell::Null, Cell::Null, Cell::Null];
    }
    let labels: Vec<String> = attributes.iter().map(|attribute| attribute.label.clone()).collect();
    let classes: Vec<Option<i32>> = attributes.iter().map(|attribute| attribute.class.map(|id| id as i32)).collect();
    let confidences: Vec<f32> = attributes.iter().map(|attribute| attribute.confidence.unwrap_or(f32::NAN)).collect();
    [labels.into(), classes.into(), confidences.into()]
}

/// Left, top, width and height.
fn box_cells(object: &ObjectRecord) -> [Cell; 4] {
    let bbox = &object.annotation.bbox;
    [bbox.x1, bbox.y1, bbox.width(), bbox.height()].map(Cell::from)
}

/// Three numbers a point; the visibility is NaN where the model has none.
fn keypoints(keypoints: &ObjectKeypoints) -> Vec<f32> {
    let points = keypoints.values.chunks_exact(usize::from(keypoints.shape.dims));
    points.flat_map(|point| [point[0], point[1], point.get(2).copied().unwrap_or(f32::NAN)]).collect()
}

/// An object with an id in a frame.
#[derive(Clone)]
struct TrackSight {
    place: FramePlace,
    confidence: f32,
    box_cells: [Cell; 4],
}

/// What is kept of a track.
struct TrackSummary {
    first: TrackSight,
    last: TrackSight,
    best: TrackSight,
    /// How often it had each class, and in which order they came.
    classes: HashMap<(Option<u32>, String), (u64, usize)>,
    /// As it was last seen.
    attributes: Vec<Attribute>,
    frames: u64,
    /// The sum.
    confidence: f64,
}

impl TrackSummary {
    fn new(first: TrackSight) -> Self {
        TrackSummary {
            last: first.clone(),
            best: first.clone(),
            first,
            classes: HashMap::new(),
            attributes: Vec::new(),
            frames: 0,
            confidence: 0.0,
        }
    }

    fn add(&mut self, seen: TrackSight, class: (Option<u32>, String)) {
        let number = self.classes.len();
        self.classes.entry(class).or_insert((0, number)).0 += 1;
        self.frames += 1;
        self.confidence += f64::from(seen.confidence);
        if seen.confidence > self.best.confidence {
            self.best = seen.clone();
        }
        self.last = seen;
    }

    fn row(self, source: String, id: u64) -> Vec<Cell> {
        // Of two that are as frequent, the one that came first.
        let most = self.classes.into_iter().max_by_key(|(_, (count, number))| (*count, std::cmp::Reverse(*number)));
        let (class, label) = most.map(|(class, _)| class).unwrap_or_default();
        let (first, last, best) = (&self.first.place, &self.last.place, &self.best.place);
        let mut row = vec![
            source.into(),
            (id as i64).into(),
            label.into(),
            class.map(|class| class as i32).into(),
            first.number.into(),
            last.number.into(),
            first.time.into(),
            last.time.into(),
            (self.frames as i64).into(),
            ((self.confidence / self.frames as f64) as f32).into(),
            best.number.into(),
            best.time.into(),
            self.best.confidence.into(),
        ];
        row.extend(self.best.box_cells.clone());
        row.extend(best.size.map(Cell::from));
        row.extend(attributes(&self.attributes));
        row.push(Cell::Null);
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the Python package's source says.
    #[test]
    fn columns_are_those_of_the_python_package() {
        let source = include_str!("../../../../python/gsttrt/_rows.py");
        let table = |name: &str| {
            let (_, rest) = source.split_once(&format!("\n{name} = {{")).unwrap();
            let entries = rest.split_once('}').unwrap().0.split(',').map(str::trim).filter(|entry| !entry.is_empty());
            let entry = |entry: &str| {
                let (name, kind) = entry.split_once(':').unwrap();
                (name.trim().trim_matches('"').to_string(), kind.trim().to_string())
            };
            entries.map(entry).collect::<Vec<_>>()
        };
        let ours = |columns: &[ColumnName]| {
            let kind = |kind| match kind {
                Text => "TEXT",
                Int64 => "NUMBER",
                Int32 => "COUNT",
                Float32 => "FLOAT",
                Float64 => "SECONDS",
                Floats => "FLOATS",
                Texts => "TEXTS",
                Int32s => "COUNTS",
                Structures(_) => "structures",
            };
            columns.iter().map(|(name, of)| (name.to_string(), kind(*of).to_string())).collect::<Vec<_>>()
        };
        let (object, frame, track, error) = (table("OBJECT"), table("FRAME"), table("TRACK"), table("ERROR"));
        assert_eq!(ours(OF_OBJECT), object);
        assert_eq!(ours(RowSubject::Objects.columns()), [frame.clone(), object, error.clone()].concat());
        assert_eq!(ours(RowSubject::Tracks.columns()), [track, error.clone()].concat());
        let own = [("count", "COUNT"), ("objects", "structures")].map(|(name, kind)| (name.into(), kind.into()));
        assert_eq!(ours(RowSubject::Frames.columns()), [frame, own.to_vec(), error].concat());
    }
}
