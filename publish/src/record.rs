// SPDX-License-Identifier: MPL-2.0
//! What is published: a frame's results, an event, or an object that is gone.

use std::collections::HashMap;

use gsttrt_core::image::geometry::BBox;
use gsttrt_core::image::overlay::{Annotation, Attribute};
use serde_json::{Map, Value};

/// What is the same for all records of a stream.
#[derive(Clone, Debug, Default)]
pub struct PublishSource {
    pub id: Option<String>,
    pub tags: Map<String, Value>,
}

/// When something was, on several clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameTimes {
    pub stream_time: Option<u64>,
    /// Of this machine, since 1970, when the frame was published.
    pub wall_clock: Option<u64>,
    /// Of the camera, since 1970.
    pub ntp_time: Option<u64>,
}

/// A frame with its results.
#[derive(Clone, Debug, Default)]
pub struct FrameRecord {
    pub times: FrameTimes,
    pub number: u64,
    pub size: (u32, u32),
    /// The results are those of an earlier frame.
    pub is_held: bool,
    pub objects: Vec<ObjectRecord>,
    /// Classes of the whole frame, of classifiers.
    pub classes: Option<Vec<Value>>,
    /// Texts of the whole frame, of models that read text: one for each that has read something.
    pub texts: Vec<Value>,
    pub maps: Option<Vec<Value>>,
    /// Of the whole frame, as base64, where they are wanted: one for each model.
    pub vectors: Vec<String>,
    pub events: Vec<Map<String, Value>>,
}

impl FrameRecord {
    pub fn is_empty(&self) -> bool {
        let has_any = self.classes.is_some() || self.maps.is_some() || !self.vectors.is_empty();
        self.objects.is_empty() && self.texts.is_empty() && self.events.is_empty() && !has_any
    }
}

#[derive(Clone, Debug)]
pub struct ObjectRecord {
    pub annotation: Annotation<'static>,
    /// Of models with rotated boxes: radians, and x and y of the corners.
    pub rotation: Option<(f64, Vec<f64>)>,
    /// The number of its region, and of the region within which it was found.
    pub region: Option<i32>,
    pub parent: Option<i32>,
    /// No model has seen it in this frame.
    pub is_predicted: bool,
    /// Its id over several cameras.
    pub identity: Option<u64>,
    /// As base64, where they are wanted: one for each model.
    pub vectors: Vec<String>,
}

/// An object with an id, from the first to the last frame in which it was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackRecord {
    pub id: u64,
    /// Its last id over several cameras.
    pub identity: Option<u64>,
    /// As it was last seen. Where a frame that no model has seen has none, those of before stay.
    pub attributes: Vec<Attribute>,
    /// As it was with the highest confidence.
    pub label: String,
    pub class: Option<u32>,
    pub confidence: Option<f32>,
    pub first_box: BBox,
    pub last_box: BBox,
    pub first_times: FrameTimes,
    pub last_times: FrameTimes,
    /// In which it was seen.
    pub frames: u64,
    /// Time without jumps, by which it is found to be gone.
    last_seen: u64,
    /// The number of that frame, of all that were seen.
    last_frame: u64,
}

/// One message.
#[derive(Clone, Debug)]
pub enum Record {
    Frame(FrameRecord),
    Event { times: FrameTimes, number: u64, event: Map<String, Value> },
    Track(TrackRecord),
}

/// The objects with ids that are in sight, and how many frames were seen.
#[derive(Debug, Default)]
pub struct TracksInSight(HashMap<u64, TrackRecord>, u64);

impl TracksInSight {
    /// Takes the objects of a frame at `now`, and returns the tracks that were not seen for more than `gone_after`. Of several objects with
    /// one id the first counts.
    pub fn see(&mut self, frame: &FrameRecord, now: u64, gone_after: u64) -> Vec<TrackRecord> {
        let TracksInSight(tracks, frames) = self;
        *frames += 1;
        for object in &frame.objects {
            let annotation = &object.annotation;
            let Some(id) = annotation.track_id else { continue };
            let track = tracks.entry(id).or_insert_with(|| TrackRecord {
                id,
                identity: None,
                attributes: Vec::new(),
                label: annotation.label.to_string(),
                class: annotation.class,
                confidence: annotation.confidence,
                first_box: annotation.bbox,
                last_box: annotation.bbox,
                first_times: frame.times,
                last_times: frame.times,
                frames: 0,
                last_seen: now,
                last_frame: 0,
            });
            if std::mem::replace(&mut track.last_frame, *frames) == *frames {
                continue;
            }
            if annotation.confidence > track.confidence {
                track.label = annotation.label.to_string();
                (track.class, track.confidence) = (annotation.class, annotation.confidence);
            }
            (track.last_box, track.last_times, track.last_seen) = (annotation.bbox, frame.times, now);
            track.identity = object.identity.or(track.identity);
            if !object.is_predicted || !annotation.attributes.is_empty() {
                track.attributes.clone_from(&annotation.attributes);
            }
            track.frames += 1;
        }
        self.end(|track| now.saturating_sub(track.last_seen) > gone_after)
    }

    /// Ends all tracks.
    pub fn end_all(&mut self) -> Vec<TrackRecord> {
        self.end(|_| true)
    }

    fn end(&mut self, is_gone: impl Fn(&TrackRecord) -> bool) -> Vec<TrackRecord> {
        let mut gone: Vec<_> = self.0.extract_if(|_, track| is_gone(track)).map(|(_, track)| track).collect();
        gone.sort_by_key(|track| (track.last_seen, track.id));
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(objects: &[(u64, f32, f32)]) -> FrameRecord {
        let object = |&(id, x, confidence): &(u64, f32, f32)| ObjectRecord {
            annotation: Annotation {
                bbox: BBox::new(x, 0.0, x + 10.0, 10.0),
                track_id: Some(id).filter(|id| *id > 0),
                confidence: Some(confidence),
                of_frame: false,
                ..Annotation::of_frame(format!("of {confidence}").into())
            },
            rotation: None,
            region: None,
            parent: None,
            is_predicted: false,
            identity: None,
            vectors: Vec::new(),
        };
        FrameRecord { objects: objects.iter().map(object).collect(), ..FrameRecord::default() }
    }

    #[test]
    fn tracks_end_once() {
        let mut tracks = TracksInSight::default();
        assert!(tracks.see(&frame(&[(1, 0.0, 0.5), (2, 50.0, 0.5), (0, 9.0, 0.9)]), 0, 10).is_empty());
        assert!(tracks.see(&frame(&[(1, 5.0, 0.9)]), 5, 10).is_empty());
        assert!(tracks.see(&frame(&[(1, 7.0, 0.7)]), 10, 10).is_empty(), "it may be back");
        let gone = tracks.see(&frame(&[]), 11, 10);
        assert_eq!(gone.iter().map(|track| track.id).collect::<Vec<_>>(), [2]);
        let [track] = &tracks.end_all()[..] else { panic!() };
        assert_eq!((track.id, track.frames, track.label.as_str(), track.confidence), (1, 3, "of 0.9", Some(0.9)));
        assert_eq!((track.first_box.x1, track.last_box.x1), (0.0, 7.0));
        assert!(tracks.end_all().is_empty());
    }

    /// A tracker may give one id twice, and an object may be in two kinds of metas that do not agree.
    #[test]
    fn a_track_is_in_a_frame_once() {
        let mut tracks = TracksInSight::default();
        for x in [0.0, 5.0] {
            tracks.see(&frame(&[(1, x, 0.5), (1, 90.0, 0.9)]), 0, 10);
        }
        let [track] = &tracks.end_all()[..] else { panic!() };
        assert_eq!((track.frames, track.last_box.x1, track.confidence), (2, 5.0, Some(0.5)));
    }

    #[test]
    fn tracks_have_the_attributes_of_the_last_sight() {
        let mut tracks = TracksInSight::default();
        let mut see = |names: &[&str], is_predicted: bool| {
            let mut seen = frame(&[(1, 0.0, 0.5)]);
            let attribute = |name: &&str| Attribute {
                label: name.to_string(),
                class: None,
                confidence: None,
                is_text: false,
                span: None,
            };
            seen.objects[0].annotation.attributes = names.iter().map(attribute).collect();
            seen.objects[0].is_predicted = is_predicted;
            tracks.see(&seen, 0, 10);
            let attributes = &tracks.0[&1].attributes;
            attributes.iter().map(|attribute| attribute.label.clone()).collect::<Vec<_>>()
        };
        assert_eq!(see(&["Ada", "red"], false), ["Ada", "red"]);
        assert_eq!(see(&[], true), ["Ada", "red"], "nobody has looked");
        assert_eq!(see(&["Bob"], true), ["Bob"]);
        assert_eq!(see(&[], false), [""; 0], "a name that was removed is not kept");
    }
}
