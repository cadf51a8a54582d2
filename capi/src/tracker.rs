// SPDX-License-Identifier: MPL-2.0
//! `GstTrtTracker`: ids for the objects of results.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gsttrt_core::error::Result;
use gsttrt_core::track::{TrackOptions, Tracker, options};
use gsttrt_core::vector::normalise;

use crate::error::{contained, done};
use crate::handles::Handles;
use crate::memory::{array, give, text};
use crate::results::{GstTrtResults, RESULTS, Results};

/// Opaque: only pointers to it exist.
pub enum GstTrtTracker {}

static TRACKERS: Handles<Mutex<Following>> = Handles::new("tracker", "gst_trt_tracker_new");

/// The object of a handle.
struct Following {
    tracker: Tracker,
    options: TrackOptions,
}

impl Following {
    /// Gives the objects ids. `vectors` is as of [`Results::set_track_ids`].
    fn update(&mut self, results: &Results, vectors: &[f32], time: u64, frame_duration: u64) -> Result<()> {
        let Following { tracker, options } = self;
        results.set_track_ids(vectors, |detections| {
            let objects = tracker.update(options, detections, time, frame_duration);
            objects.iter().map(|object| object.map_or(0, |object| object.id)).collect()
        })
    }
}

fn locked(following: &Mutex<Following>) -> MutexGuard<'_, Following> {
    following.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See `gsttrt.h`.
///
/// # Safety
/// * `options` is NULL or an array of C strings with NULL at its end, which stay until this returns.
/// * `tracker` is NULL or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_tracker_new(options: *const *const c_char, tracker: *mut *mut GstTrtTracker) -> c_int {
    done(contained(|| {
        // SAFETY: `give` and `text` refuse NULL, so there is room for a pointer, and the texts are C strings. The loop
        // ends at the NULL that ends `options`. All stays until this function returns.
        unsafe {
            give("tracker", tracker, ptr::null_mut())?;
            let mut texts = Vec::new();
            if !options.is_null() {
                for index in 0.. {
                    let option = *options.add(index);
                    if option.is_null() {
                        break;
                    }
                    texts.push(text("options", option)?);
                }
            }
            let (kind, options) = options::parse(texts)?;
            let following = Following { tracker: Tracker::new(kind), options };
            give("tracker", tracker, TRACKERS.add(Mutex::new(following)))
        }
    }))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_tracker_free(tracker: *mut GstTrtTracker) {
    let _ = contained(|| {
        drop(TRACKERS.remove(tracker));
        Ok(())
    });
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_tracker_reset(tracker: *mut GstTrtTracker) -> c_int {
    done(contained(|| {
        locked(&*TRACKERS.find(tracker)?).tracker.reset();
        Ok(())
    }))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_tracker_update(
    tracker: *mut GstTrtTracker,
    results: *mut GstTrtResults,
    time: u64,
    frame_duration: u64,
) -> c_int {
    done(contained(|| {
        let (following, results) = (TRACKERS.find(tracker)?, RESULTS.find(results)?);
        locked(&following).update(&results, &[], time, frame_duration)
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// `vectors` is NULL or `dims` numbers for each object of the results, which stay until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_tracker_update_with_vectors(
    tracker: *mut GstTrtTracker,
    results: *mut GstTrtResults,
    time: u64,
    frame_duration: u64,
    vectors: *const f32,
    dims: usize,
) -> c_int {
    done(contained(|| {
        let (following, results) = (TRACKERS.find(tracker)?, RESULTS.find(results)?);
        let count = results.count().saturating_mul(dims);
        // SAFETY: `vectors` is NULL, which `array` refuses, or has so many numbers, which stay until this function returns.
        let mut vectors = unsafe { array("vectors", vectors, count) }?.to_vec();
        for vector in vectors.chunks_exact_mut(dims.max(1)) {
            if !normalise(vector) {
                vector.fill(0.0);
            }
        }
        locked(&following).update(&results, &vectors, time, frame_duration)
    }))
}
