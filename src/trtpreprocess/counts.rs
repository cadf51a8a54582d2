// SPDX-License-Identifier: MPL-2.0
//! How many objects and clips there were, and what to say where there were none.

use gsttrt_core::error::{Error, ErrorKind};

use super::objects::{ObjectOptions, ObjectSelection};

/// Of objects as regions.
#[derive(Debug, Default)]
pub struct ObjectCounts {
    frames: u64,
    pub objects: u64,
    /// Objects that were too many.
    pub left_out: u64,
    /// Objects that were to be cut by their landmarks, and those of them that had some.
    faces: u64,
    aligned: u64,
    has_told_of_objects: bool,
    has_told_of_landmarks: bool,
}

/// Of clips.
#[derive(Debug, Default)]
pub struct ClipCounts {
    /// Those of which all frames came.
    pub full: u64,
    /// Those that were begun and given up before there was a whole one.
    pub unfinished: u64,
    has_told: bool,
}

impl ClipCounts {
    /// Once, where the stream ends after so many frames of a clip, and there was no whole one.
    pub fn lack_of_frames(&mut self, (kept, wanted): (usize, usize)) -> Option<Error> {
        let is_told = self.full > 0 || std::mem::replace(&mut self.has_told, true);
        (!is_told).then(|| {
            Error::new(ErrorKind::Settings, "The model has seen nothing of the stream")
                .cause(format!("it sees clips of {wanted} frames, and the stream has ended after {kept} of them"))
                .remedy("Give it a longer stream, or set frame-step lower, or frames, if the model takes shorter clips")
        })
    }
}

/// After so many frames without an object it is likely that there is no first model, and after so many objects without landmarks that
/// it finds none.
const MANY: u64 = 100;

impl ObjectCounts {
    /// Counts the objects of a frame, and returns whether it is time to look for what is missing.
    pub fn note(&mut self, selection: &ObjectSelection, options: &ObjectOptions) -> bool {
        let before = (self.frames, self.faces);
        self.frames += 1;
        self.objects += (selection.objects.list.len() + selection.left_out) as u64;
        self.left_out += selection.left_out as u64;
        if options.aligns_faces() {
            self.faces += selection.sources.len() as u64;
            self.aligned += selection.sources.iter().filter(|crop| crop.shape.is_some()).count() as u64;
        }
        (before.0 < MANY && self.frames >= MANY) || (before.1 < MANY && self.faces >= MANY)
    }

    /// Once, if no frame so far had an object. It is no fault where a trtnms before this looks for some.
    pub fn lack_of_objects(&mut self) -> Option<Error> {
        let is_told = self.objects > 0 || self.frames == 0 || std::mem::replace(&mut self.has_told_of_objects, true);
        (!is_told).then(|| {
            Error::new(ErrorKind::Settings, "trtpreprocess regions=objects has seen no objects")
                .cause("there is no trtnms before it, whose model would find them")
                .remedy(
                    "The order is … ! trtpreprocess ! trtinfer ! trtnms ! trtpreprocess regions=objects ! \
                     trtinfer ! trtnms ! …",
                )
        })
    }

    /// Once, if no object so far had the landmarks that it was to be cut by.
    pub fn lack_of_landmarks(&mut self) -> Option<Error> {
        let is_told = self.aligned > 0 || self.faces == 0 || std::mem::replace(&mut self.has_told_of_landmarks, true);
        (!is_told).then(|| {
            Error::new(ErrorKind::Settings, "trtpreprocess align=face has seen no landmarks")
                .cause("no object has five keypoints that are all known, so all are cut by their boxes")
                .remedy(
                    "Put a detector of faces first that gives landmarks, such as SCRFD, YuNet or RetinaFace, or leave \
                     align unset",
                )
        })
    }
}
