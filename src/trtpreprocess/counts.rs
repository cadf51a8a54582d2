// SPDX-License-Identifier: MPL-2.0
//! How many objects and clips there were, and what to say where there were none.

use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::image::clip::tracks::GivenUpClips;

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
    /// The most pictures that one of those had.
    longest: usize,
    /// Where clips are of objects: those that were looked at, and those of them that have an id.
    objects: u64,
    with_id: u64,
    has_told: bool,
    has_told_of_ids: bool,
    vectors: VectorCounts,
}

/// Of sequences: which vectors there were.
#[derive(Debug, Default)]
struct VectorCounts {
    /// How many numbers the model takes.
    wanted: usize,
    /// Frames or objects with such a vector, and without.
    found: u64,
    lacking: u64,
    /// How many numbers another vector had.
    other: Option<usize>,
    has_told: bool,
}

/// What there is of clips where a stream ends, or another part of it follows.
#[derive(Clone, Copy, Debug)]
pub struct EndedClips {
    /// Frames of the clip that is not full, of objects those of the longest one.
    pub kept: usize,
    /// Frames of a whole one.
    pub frames: usize,
    pub are_of_objects: bool,
    /// They are sequences of vectors.
    pub are_of_vectors: bool,
}

impl ClipCounts {
    /// Counts clips that were given up.
    pub fn note_given_up(&mut self, given_up: GivenUpClips) {
        self.unfinished += given_up.clips as u64;
        self.longest = self.longest.max(given_up.longest);
    }

    /// Counts the objects of a frame, and returns whether it is time to say that none has an id.
    pub fn note_objects(&mut self, selection: &ObjectSelection) -> bool {
        let before = self.objects;
        // Without clips no object lacks an id.
        if selection.without_id > 0 || !selection.pictures.is_empty() {
            self.objects += (selection.objects.list.len() + selection.without_id) as u64;
            self.with_id += selection.objects.list.len() as u64;
        }
        before < MANY && self.objects >= MANY && self.with_id == 0
    }

    /// Once, if clips are of objects, and none so far had an id.
    pub fn lack_of_ids(&mut self) -> Option<Error> {
        let is_told = self.with_id > 0 || self.objects == 0 || std::mem::replace(&mut self.has_told_of_ids, true);
        (!is_told).then(|| {
            Error::new(ErrorKind::Settings, "trtpreprocess regions=objects makes no clips: no object has an id")
                .cause("a clip is of the last pictures of an object, and ids tell which ones are of the same object")
                .remedy("Put trttrack before it, behind the trtnms of the first model")
        })
    }

    /// Counts a frame or an object that has a vector of so many numbers, or has not; `other` is how many its last vector has. Returns
    /// whether it is time to say that there are none.
    pub fn note_vectors(&mut self, wanted: usize, is_there: bool, other: Option<usize>) -> bool {
        let counts = &mut self.vectors;
        counts.wanted = wanted;
        counts.found += u64::from(is_there);
        counts.lacking += u64::from(!is_there);
        counts.other = counts.other.or(other.filter(|_| !is_there));
        counts.found == 0 && counts.lacking == MANY
    }

    /// Once, if a model takes sequences of vectors, and there was no such vector so far.
    pub fn lack_of_vectors(&mut self) -> Option<Error> {
        let VectorCounts { wanted, found, lacking, other, has_told } = &mut self.vectors;
        let is_told = *found > 0 || *lacking == 0 || std::mem::replace(has_told, true);
        (!is_told).then(|| {
            let cause = other.map_or("there are none".into(), |other| format!("those that come have {other}"));
            Error::new(ErrorKind::Settings, format!("trtpreprocess has seen no vectors of {wanted} numbers"))
                .cause(format!("the model takes sequences of such vectors, and {cause}"))
                .remedy(
                    "Put the model that makes them before it: … ! trtpreprocess ! trtinfer ! trtnms layout=embed ! trtpreprocess ! \
                     trtinfer ! …, both with regions=objects where they are of objects",
                )
        })
    }

    /// Once, where the stream ends and there was no whole clip, but frames of one.
    pub fn lack_of_frames(&mut self, ended: EndedClips) -> Option<Error> {
        let EndedClips { kept, frames, are_of_objects, are_of_vectors } = ended;
        let kept = if are_of_objects { self.longest.max(kept) } else { kept };
        let is_told = self.full > 0 || kept == 0 || std::mem::replace(&mut self.has_told, true);
        let warning = Error::new(ErrorKind::Settings, "The model has seen nothing of the stream");
        let whole = match (are_of_vectors, are_of_objects) {
            (true, _) => format!("sequences of {frames} vectors"),
            (false, true) => format!("clips of {frames} pictures"),
            (false, false) => format!("clips of {frames} frames"),
        };
        (!is_told).then(|| match are_of_objects {
            true => warning
                .cause(format!("it sees {whole} of an object, and none had more than {kept} of them"))
                .remedy(
                    "Set frame-step lower, or frames, if the model takes shorter clips; where ids change, see what trttrack can do",
                ),
            false => warning
                .cause(format!("it sees {whole}, and the stream has ended after {kept} of them"))
                .remedy("Give it a longer stream, or set frame-step lower, or frames, if the model takes shorter clips"),
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
        self.objects += (selection.objects.list.len() + selection.left_out + selection.without_id) as u64;
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
