// SPDX-License-Identifier: MPL-2.0
//! `GstTrtTracker`: ids for the objects of results.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gsttrt_core::error::Result;
use gsttrt_core::track::{TrackOptions, Tracker, options};

use crate::error::{contained, done};
use crate::handles::Handles;
use crate::memory::{give, text};
use crate::results::{GstTrtResults, RESULTS};

/// Opaque: only pointers to it exist.
pub enum GstTrtTracker {}

static TRACKERS: Handles<Mutex<Following>> = Handles::new("tracker", "gst_trt_tracker_new");

/// The object of a handle.
struct Following {
    tracker: Tracker,
    options: TrackOptions,
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
    let update = || -> Result<()> {
        let (following, results) = (TRACKERS.find(tracker)?, RESULTS.find(results)?);
        let mut following = locked(&following);
        let Following { tracker, options } = &mut *following;
        results.set_track_ids(|detections| {
            let objects = tracker.update(options, detections, time, frame_duration);
            objects.iter().map(|object| object.map_or(0, |object| object.id)).collect()
        })
    };
    done(contained(update))
}
