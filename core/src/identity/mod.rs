// SPDX-License-Identifier: MPL-2.0
//! One id for the same object on several cameras.
//!
//! A tracker gives ids within one camera. [`Identities`] is a table in memory that cameras share. Each of them tells it which
//! tracks are in a frame and what these look like, and is told which object each track is: one that was seen before, or a new one.
//!
//! | file | |
//! |---|---|
//! | [`options`] | when two tracks are one object, and how much is kept |
//! | [`links`] | which cameras see the same place, and how long objects take from one to another |
//! | `looks` | the best vectors of a track |
//! | `known` | an object, and where it was seen |
//! | `table` | all of them, and which one a track is |
//!
//! The rules:
//!
//! * A track is asked about once it has so many vectors. It is the object that the mean of its best ones is most like, if these are
//!   similar enough and no other object is nearly as similar. Else it is a new one.
//! * Two tracks of a camera that are in sight at the same time are two objects. So are two tracks of two cameras, unless these overlap.
//! * The time from one camera to another is as the links say.
//! * An id stays for the life of a track. The one exception: a track was out of sight, and comes back while another one is its
//!   object, which by the rules above it cannot be then. The one that comes back loses the id, and is asked about again.

mod known;
pub mod links;
mod looks;
pub mod options;
mod table;
#[cfg(test)]
mod tests;

pub use links::{CameraLink, CameraPassage};
pub use options::IdentityOptions;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::error::{Error, Result};
use links::CameraPassages;
use table::IdentityTable;

/// An object of a frame that has an id of its camera's tracker.
#[derive(Clone, Copy, Debug)]
pub struct SeenObject<'a> {
    /// That id. Of several objects with one id in a frame the first one counts.
    pub track: u64,
    /// The name of its class.
    pub label: &'a str,
    /// The vectors of the highest quality count.
    pub quality: f32,
    /// What it looks like, by the models that have looked at it in this frame, in their order. Of several the last one counts
    /// whose vectors the table has.
    pub looks: &'a [ObjectLook<'a>],
}

/// A vector of an object, of any length. One with a number that is not finite, or of zeros, is none.
#[derive(Clone, Copy, Debug)]
pub struct ObjectLook<'a> {
    pub values: &'a [f32],
    /// The name of the model that gave it; empty where that is not known.
    pub model: &'a str,
}

/// What is known of the objects of a frame.
#[derive(Clone, Debug, Default)]
pub struct SeenFrame {
    /// The id of each object, where it has one.
    pub ids: Vec<Option<u64>>,
    pub changes: Vec<IdentityChange>,
    /// Why objects of this camera get no ids; said once.
    pub warning: Option<Error>,
}

/// An object has another id than before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdentityChange {
    /// Its number in the frame.
    pub object: usize,
    pub id: Option<u64>,
    pub before: Option<u64>,
    /// The cosine to the object that was seen before, where it was recognised.
    pub similarity: Option<f32>,
}

/// Since the table was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdentityCounts {
    /// Objects that are known now.
    pub known: u64,
    /// Ids that were given: the last one of them.
    pub given: u64,
    /// Tracks that were recognised as an object that was seen before.
    pub matched: u64,
    /// Tracks that have lost their id, because another one is that object.
    pub corrected: u64,
    /// Objects that were forgotten: because no camera saw them for so long,
    pub aged: u64,
    /// for newer ones,
    pub crowded_out: u64,
    /// because somebody asked for it,
    pub deleted: u64,
    /// and because all cameras have another model now.
    pub replaced: u64,
    /// Times that a track got no id, as there was no room for one more object.
    pub refused_for_room: u64,
    /// Frames with vectors of another model than those of the table.
    pub refused_for_model: u64,
}

impl IdentityCounts {
    /// Objects that were forgotten, for whatever reason.
    pub fn forgotten(&self) -> u64 {
        self.aged + self.crowded_out + self.deleted + self.replaced
    }
}

/// An object that is known.
#[derive(Clone, Debug)]
pub struct IdentityEntry {
    pub id: u64,
    /// The class of the track that it was first seen as.
    pub label: String,
    /// The cameras that have seen it last, the last one first.
    pub cameras: Vec<String>,
    pub is_in_sight: bool,
    pub first_seen: Instant,
    pub last_seen: Instant,
}

/// The objects that several cameras see.
pub struct Identities {
    table: Mutex<IdentityTable>,
}

/// Without what is in it: vectors of people belong in no log.
impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identities").finish_non_exhaustive()
    }
}

impl Identities {
    /// # Errors
    /// `Settings`, where the links contradict each other.
    pub fn new(options: IdentityOptions) -> Result<Arc<Identities>> {
        Ok(Arc::new(Identities { table: Mutex::new(IdentityTable::new(options)?) }))
    }

    /// A call that panics takes its stream out of the table, and leaves all else whole.
    fn lock(&self) -> MutexGuard<'_, IdentityTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn options(&self) -> IdentityOptions {
        self.lock().options().clone()
    }

    /// Goes on with other options. Ids that were given stay.
    ///
    /// # Errors
    /// As [`Identities::new`]; the options are as they were then.
    pub fn set_options(&self, options: IdentityOptions) -> Result<()> {
        // Many links take a while, and cameras are not to wait for them.
        let passages = CameraPassages::new(&options.links, links::CAMERAS)?;
        self.lock().set_options(options, passages);
        Ok(())
    }

    /// A stream of a camera begins. The name is that of the camera in links.
    pub fn join(self: &Arc<Self>, camera: &str) -> JoinedCamera {
        JoinedCamera { stream: self.lock().join(camera), identities: self.clone() }
    }

    /// Of those that are known, as many as that, the last seen ones first.
    pub fn list(&self, most: usize, now: Instant) -> Vec<IdentityEntry> {
        self.lock().list(most, now)
    }

    /// Removes an object with all of its vectors, and returns whether it was there. A track that is this object is another one when
    /// it has enough vectors again. The id is not given to another object.
    pub fn forget(&self, id: u64) -> bool {
        self.lock().forget(id)
    }

    /// The same of all objects. Returns how many.
    pub fn forget_all(&self) -> usize {
        self.lock().forget_all()
    }

    pub fn counts(&self) -> IdentityCounts {
        self.lock().counts()
    }
}

/// A stream of a camera that shares a table. It leaves the table when it is dropped; what was seen stays known.
#[derive(Debug)]
pub struct JoinedCamera {
    identities: Arc<Identities>,
    stream: u64,
}

impl JoinedCamera {
    /// Takes in the objects of a frame. `now` is the time of the frame in nanoseconds, on a clock that all cameras have in common;
    /// `arrived` is the time of this call.
    pub fn see(&mut self, objects: &[SeenObject], now: u64, arrived: Instant) -> SeenFrame {
        self.identities.lock().see(self.stream, objects, now, arrived)
    }

    /// Another part of the stream follows, with tracks of its own.
    pub fn cut(&mut self) {
        self.identities.lock().end_tracks(self.stream);
    }
}

impl Drop for JoinedCamera {
    fn drop(&mut self) {
        self.identities.lock().leave(self.stream);
    }
}
