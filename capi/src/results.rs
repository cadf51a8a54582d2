// SPDX-License-Identifier: MPL-2.0
//! `GstTrtResults`: the objects of a frame.

mod objects;

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gsttrt_core::error::Result;
use gsttrt_core::image::Candidate;
use gsttrt_core::image::frame::FrameMut;
use gsttrt_core::image::keypoints::Keypoints;
use gsttrt_core::image::label_text;
use gsttrt_core::image::map::{MapKind, MapRegion, PixelMap};
use gsttrt_core::image::masks::Mask;
use gsttrt_core::image::overlay::{Annotation, MapTint, Overlay, Style, Target};
use gsttrt_core::image::rotated::{Corners, RotatedBox};
use gsttrt_core::postprocess::{Instances, RankedClass, fields};
use gsttrt_core::session::Detections;
use gsttrt_core::track::{ObjectVector, TrackInput};

use crate::error::{c_string, contained, done, wrong};
use crate::frame::GstTrtFrame;
use crate::handles::Handles;
use crate::input;
use crate::memory::{array, give};
pub use objects::*;

/// Opaque: only pointers to it exist.
pub enum GstTrtResults {}

pub(crate) static RESULTS: Handles<Results> = Handles::new("results", "gst_trt_session_detect");

/// The object of a handle.
pub(crate) struct Results {
    instances: Instances,
    /// For each object.
    labels: Vec<CString>,
    keypoint_names: Vec<CString>,
    /// For each object; created at the first call.
    json: Vec<OnceLock<CString>>,
    /// The same.
    masks: Vec<OnceLock<Option<MaskPixels>>>,
    class_labels: Vec<String>,
    /// For each class of the frame, with its fields as JSON.
    frame_classes: Vec<(CString, CString)>,
    /// The text of the frame, if the model reads text.
    text: Option<CString>,
    /// The fields of the map of the frame as JSON, if there is one.
    map_json: Option<CString>,
    /// The label of each of its regions.
    region_labels: Vec<CString>,
    /// The id of each object, once a tracker has seen them; 0 is none.
    track_ids: OnceLock<Vec<u64>>,
    /// Held while a tracker looks at the objects.
    tracking: Mutex<()>,
}

/// The mask of an object.
struct MaskPixels {
    /// Left, top, width and height.
    rect: [u32; 4],
    /// A byte for each pixel of the rectangle.
    pixels: Vec<u8>,
}

impl Results {
    pub fn new(found: Detections) -> Self {
        let Detections { instances, labels } = found;
        let names = instances.keypoints.as_ref().map_or(&[][..], |points| &points.model.names);
        let label = |object: &Candidate| c_string(&label_text(labels, object.class));
        let frame_class = |(rank, found): (usize, &RankedClass)| {
            let json = fields::class_json(instances, rank, labels).to_string();
            (c_string(&label_text(labels, found.class)), c_string(&json))
        };
        let map = instances.frame_map();
        let region_label = |region: &MapRegion| c_string(&label_text(labels, region.class));
        Results {
            map_json: map.map(|map| c_string(&fields::map_json(map, labels).to_string())),
            region_labels: map.map_or(&[][..], |map| map.regions()).iter().map(region_label).collect(),
            labels: instances.boxes.iter().map(label).collect(),
            keypoint_names: names.iter().map(|name| c_string(name)).collect(),
            json: vec![OnceLock::new(); instances.len()],
            masks: std::iter::repeat_with(OnceLock::new).take(instances.len()).collect(),
            class_labels: labels.to_vec(),
            frame_classes: instances.frame_classes().iter().enumerate().map(frame_class).collect(),
            text: instances.text.as_ref().map(|found| c_string(&found.text)),
            track_ids: OnceLock::new(),
            tracking: Mutex::new(()),
            instances: instances.clone(),
        }
    }

    /// Flags of `gsttrt.h`.
    fn kinds(&self) -> u32 {
        let Instances { rotated, keypoints, classes, vector, text, .. } = &self.instances;
        let all = [
            rotated.is_some(),
            keypoints.is_some(),
            self.instances.has_masks(),
            classes.is_some(),
            self.map().is_some(),
            vector.is_some(),
            text.is_some(),
        ];
        all.into_iter().enumerate().map(|(bit, given)| u32::from(given) << bit).sum()
    }

    fn object(&self, index: usize) -> Result<&Candidate> {
        let count = self.instances.len();
        self.instances
            .boxes
            .get(index)
            .ok_or_else(|| wrong(format!("There is no object {index}: {count} were found")).remedy("Count from 0"))
    }

    fn frame_class(&self, rank: usize) -> Result<&RankedClass> {
        let classes = self.instances.frame_classes();
        let count = classes.len();
        classes.get(rank).ok_or_else(|| {
            wrong(format!("There is no class {rank} of the frame: there are {count}")).remedy("Count from 0")
        })
    }

    /// The map with its values, if these are given.
    fn map(&self) -> Option<&PixelMap> {
        self.instances.frame_map().filter(|map| !map.is_hidden)
    }

    fn region(&self, index: usize) -> Result<&MapRegion> {
        let regions = self.instances.frame_map().map_or(&[][..], |map| map.regions());
        let count = regions.len();
        regions.get(index).ok_or_else(|| {
            wrong(format!("There is no region {index} of the map: it has {count}")).remedy("Count from 0")
        })
    }

    /// How many objects there are.
    pub fn count(&self) -> usize {
        self.instances.len()
    }

    /// Keeps the ids that a tracker gives. Of several threads only one lets its tracker see the objects. `vectors` has as many
    /// numbers for each object, or none; where all of them are 0, that object has no vector.
    pub fn set_track_ids(&self, vectors: &[f32], track: impl FnOnce(&[TrackInput]) -> Vec<u64>) -> Result<()> {
        let _tracking = self.tracking.lock().unwrap_or_else(PoisonError::into_inner);
        let tracked = || wrong("The objects have ids already").remedy("Give each frame's results to one tracker, once");
        if self.track_ids.get().is_some() {
            return Err(tracked());
        }
        let dims = vectors.len().checked_div(self.count()).unwrap_or(0);
        let input = |(object, &Candidate { bbox, score, class, .. }): (usize, &Candidate)| {
            let values = &vectors[object * dims..][..dims];
            let has_length = values.iter().any(|&value| value != 0.0);
            TrackInput { bbox, score, class, vector: has_length.then_some(ObjectVector { values, model: 0 }) }
        };
        let inputs: Vec<TrackInput> = self.instances.boxes.iter().enumerate().map(input).collect();
        self.track_ids.set(track(&inputs)).map_err(|_| tracked())
    }

    fn track_id(&self, object: usize) -> u64 {
        self.track_ids.get().map_or(0, |ids| ids[object])
    }

    /// The rotated box; its angle may be 0.
    fn rotated(&self, object: usize) -> Result<RotatedBox> {
        let upright = RotatedBox { bbox: self.object(object)?.bbox, angle: 0.0 };
        Ok(self.instances.rotated_box(object).unwrap_or(upright))
    }

    /// If the model gives masks.
    fn mask(&self, object: usize) -> Result<Option<&MaskPixels>> {
        self.object(object)?;
        let pixels = |mask: Mask| {
            let (rect, pixels) = mask.pixels();
            MaskPixels { rect, pixels }
        };
        Ok(self.masks[object].get_or_init(|| self.instances.mask(object).map(pixels)).as_ref())
    }

    /// What is drawn of the objects, or of the classes of the frame.
    fn annotations(&self, objects: &[usize]) -> Result<Vec<Annotation<'_>>> {
        let label = |class: u32| self.class_labels.get(class as usize).map_or("", String::as_str).into();
        let of_class = |found: &RankedClass| Annotation {
            class: Some(found.class),
            confidence: Some(found.score),
            ..Annotation::of_frame(label(found.class))
        };
        let of_object = |&object: &usize| {
            let found = self.object(object)?;
            Ok(Annotation {
                bbox: found.bbox,
                corners: self.instances.rotated_box(object).map(|rotated| rotated.corners()),
                class: Some(found.class),
                label: label(found.class),
                confidence: Some(found.score),
                track_id: Some(self.track_id(object)).filter(|&id| id != 0),
                keypoints: self.instances.keypoints.as_ref().map(|keypoints| keypoints.object(object)),
                mask: self.instances.mask(object).map(Arc::new),
                of_frame: false,
                ..Annotation::of_frame("".into())
            })
        };
        let classes = self.instances.frame_classes().iter().map(|found| Ok(of_class(found)));
        classes.chain(objects.iter().map(of_object)).collect()
    }

    fn draw(&self, frame: &mut FrameMut, objects: &[usize]) -> Result<()> {
        let annotations = self.annotations(objects)?;
        let style = Style::default();
        if let Some(tint) = self.map().and_then(|map| MapTint::new(map, &Target::of(frame))) {
            tint.blend(frame, &style);
        }
        Overlay::default().annotate(frame, annotations.into_iter(), &style);
        Ok(())
    }

    fn keypoint_count(&self) -> usize {
        self.instances.keypoints.as_ref().map_or(0, |points| points.model.shape.count.into())
    }

    /// x and y, and visibility if the model reports it.
    fn keypoint(&self, object: usize, keypoint: usize) -> Result<&[f32]> {
        self.object(object)?;
        let of = |points: &'_ Keypoints| points.model.shape.dims.into();
        let found = self.instances.keypoints.as_ref();
        let found = found.and_then(|points| points.of(object).chunks_exact(of(points)).nth(keypoint));
        found.ok_or_else(|| wrong(format!("There is no keypoint {keypoint}: an object has {}", self.keypoint_count())))
    }
}

fn get<T>(results: *const GstTrtResults, what: impl FnOnce(&Results) -> Result<T>) -> Option<T> {
    contained(|| what(&*RESULTS.find(results)?)).ok()
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_free(results: *mut GstTrtResults) {
    let _ = contained(|| {
        drop(RESULTS.remove(results));
        Ok(())
    });
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_kinds(results: *const GstTrtResults) -> u32 {
    get(results, |results| Ok(results.kinds())).unwrap_or(0)
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_count(results: *const GstTrtResults) -> usize {
    get(results, |results| Ok(results.instances.len())).unwrap_or(0)
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_label(results: *const GstTrtResults, object: usize) -> *const c_char {
    let label = |results: &Results| results.object(object).map(|_| results.labels[object].as_ptr());
    get(results, label).unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_class_id(results: *const GstTrtResults, object: usize) -> u32 {
    get(results, |results| Ok(results.object(object)?.class)).unwrap_or(0)
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_confidence(results: *const GstTrtResults, object: usize) -> f32 {
    get(results, |results| Ok(results.object(object)?.score)).unwrap_or(f32::NAN)
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_track_id(results: *const GstTrtResults, object: usize) -> u64 {
    get(results, |results| results.object(object).map(|_| results.track_id(object))).unwrap_or(0)
}

/// See `gsttrt.h`.
///
/// # Safety
/// `bbox` is NULL or room for four numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_results_box(
    results: *const GstTrtResults,
    object: usize,
    bbox: *mut [f32; 4],
) -> c_int {
    done(contained(|| {
        let results = RESULTS.find(results)?;
        let found = results.object(object)?.bbox;
        // SAFETY: `bbox` is NULL, which `give` refuses, or room for four numbers.
        unsafe { give("box", bbox, [found.x1, found.y1, found.width(), found.height()]) }
    }))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_angle(results: *const GstTrtResults, object: usize) -> f32 {
    get(results, |results| Ok(results.rotated(object)?.angle)).unwrap_or(f32::NAN)
}

/// See `gsttrt.h`.
///
/// # Safety
/// `corners`, if not NULL, has room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_results_corners(
    results: *const GstTrtResults,
    object: usize,
    corners: *mut Corners,
) -> c_int {
    done(contained(|| {
        let found = RESULTS.find(results)?.rotated(object)?.corners();
        // SAFETY: `corners` is NULL, which `give` refuses, or has room.
        unsafe { give("corners", corners, found) }
    }))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_keypoint_count(results: *const GstTrtResults) -> usize {
    get(results, |results| Ok(results.keypoint_count())).unwrap_or(0)
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_keypoint_name(results: *const GstTrtResults, keypoint: usize) -> *const c_char {
    let name = |results: &Results| Ok(results.keypoint_names.get(keypoint).map(|name| name.as_ptr()));
    get(results, name).flatten().unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
///
/// # Safety
/// `point` is NULL or room for three numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_results_keypoint(
    results: *const GstTrtResults,
    object: usize,
    keypoint: usize,
    point: *mut [f32; 3],
) -> c_int {
    done(contained(|| {
        let results = RESULTS.find(results)?;
        let found = results.keypoint(object, keypoint)?;
        // SAFETY: `point` is NULL, which `give` refuses, or room for three numbers.
        unsafe { give("point", point, [found[0], found[1], found.get(2).copied().unwrap_or(f32::NAN)]) }
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// `rect` is NULL or room for four numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_results_mask(
    results: *const GstTrtResults,
    object: usize,
    rect: *mut [u32; 4],
) -> *const u8 {
    let mask = || {
        let results = RESULTS.find(results)?;
        let Some(MaskPixels { rect: found, pixels }) = results.mask(object)? else { return Ok(ptr::null()) };
        // SAFETY: `rect` is NULL, which `give` refuses, or room for four numbers.
        unsafe { give("rect", rect, *found) }?;
        Ok(pixels.as_ptr())
    };
    contained(mask).unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_json(results: *const GstTrtResults, object: usize) -> *const c_char {
    let json = |results: &Results| {
        results.object(object)?;
        let write = || {
            let mut fields = fields::json(&results.instances, object, &results.class_labels);
            let id = Some(results.track_id(object)).filter(|&id| id != 0);
            id.into_iter().for_each(|id| fields["track-id"] = id.into());
            c_string(&fields.to_string())
        };
        Ok(results.json[object].get_or_init(write).as_ptr())
    };
    get(results, json).unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
///
/// # Safety
/// * `frame` is NULL or a `GstTrtFrame` of `struct_size` bytes, whose `format` is NULL or a C string.
/// * Each plane is NULL or as many initialised bytes as its entry in the frame's `bytes`, which nothing else reads or
///   writes until this returns. No two planes overlap.
/// * `objects` is NULL or `count` numbers, which stay until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_results_draw(
    results: *const GstTrtResults,
    frame: *const GstTrtFrame,
    objects: *const usize,
    count: usize,
) -> c_int {
    done(contained(|| {
        let results = RESULTS.find(results)?;
        let all: Vec<usize> = (0..results.instances.len()).collect();
        // SAFETY: `frame` is NULL, which `read` refuses, or as many bytes as its `struct_size`. Its format and planes are
        // as `drawable` requires, and stay until this function returns. `objects` is not NULL where it is read, so it has
        // `count` numbers.
        unsafe {
            let objects = if objects.is_null() { &all } else { array("objects", objects, count)? };
            results.draw(&mut input::read("frame", frame)?.drawable()?, objects)
        }
    }))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_frame_class_count(results: *const GstTrtResults) -> usize {
    get(results, |results| Ok(results.frame_classes.len())).unwrap_or(0)
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_frame_class_label(results: *const GstTrtResults, rank: usize) -> *const c_char {
    let label = |results: &Results| results.frame_class(rank).map(|_| results.frame_classes[rank].0.as_ptr());
    get(results, label).unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_frame_class_id(results: *const GstTrtResults, rank: usize) -> u32 {
    get(results, |results| Ok(results.frame_class(rank)?.class)).unwrap_or(0)
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_frame_class_confidence(results: *const GstTrtResults, rank: usize) -> f32 {
    get(results, |results| Ok(results.frame_class(rank)?.score)).unwrap_or(f32::NAN)
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_frame_class_json(results: *const GstTrtResults, rank: usize) -> *const c_char {
    let json = |results: &Results| results.frame_class(rank).map(|_| results.frame_classes[rank].1.as_ptr());
    get(results, json).unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
///
/// # Safety
/// `count` is NULL or room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_results_vector(results: *const GstTrtResults, count: *mut usize) -> *const f32 {
    let vector = || {
        let results = RESULTS.find(results)?;
        let Some(vector) = results.instances.frame_vector() else { return Ok(ptr::null()) };
        // SAFETY: `count` is NULL, which `give` refuses, or room for a number.
        unsafe { give("count", count, vector.len()) }?;
        Ok(vector.as_ptr())
    };
    contained(vector).unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
///
/// # Safety
/// `confidence` is NULL or room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_results_text(results: *const GstTrtResults, confidence: *mut f32) -> *const c_char {
    let text = || {
        let results = RESULTS.find(results)?;
        let (Some(text), Some(found)) = (&results.text, &results.instances.text) else { return Ok(ptr::null()) };
        // SAFETY: `confidence` is NULL, which `give` refuses, or room for a number.
        unsafe { give("confidence", confidence, found.confidence) }?;
        Ok(text.as_ptr())
    };
    contained(text).unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
///
/// # Safety
/// `size` is NULL or room for two numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_results_map(results: *const GstTrtResults, size: *mut [u32; 2]) -> *const u16 {
    let map = || {
        let results = RESULTS.find(results)?;
        let Some(map) = results.map() else {
            return Ok(ptr::null());
        };
        // SAFETY: `size` is NULL, which `give` refuses, or room for two numbers.
        unsafe { give("size", size, [map.width(), map.height()]) }?;
        Ok(map.values().as_ptr())
    };
    contained(map).unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
///
/// # Safety
/// `range` is NULL or room for two numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_results_map_range(results: *const GstTrtResults, range: *mut [f32; 2]) -> c_int {
    done(contained(|| {
        let results = RESULTS.find(results)?;
        let Some(MapKind::Depth { minimum, maximum }) = results.instances.frame_map().map(|map| map.kind()) else {
            return Err(wrong("There is no map of depths").remedy("Use a model for depth"));
        };
        // SAFETY: `range` is NULL, which `give` refuses, or room for two numbers.
        unsafe { give("range", range, [minimum, maximum]) }
    }))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_map_json(results: *const GstTrtResults) -> *const c_char {
    let json = |results: &Results| Ok(results.map_json.as_ref().map_or(ptr::null(), |json| json.as_ptr()));
    get(results, json).unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_map_region_count(results: *const GstTrtResults) -> usize {
    get(results, |results| Ok(results.region_labels.len())).unwrap_or(0)
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_results_map_region_label(results: *const GstTrtResults, region: usize) -> *const c_char {
    let label = |results: &Results| results.region(region).map(|_| results.region_labels[region].as_ptr());
    get(results, label).unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
///
/// # Safety
/// `numbers` is NULL or room for three numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_results_map_region(
    results: *const GstTrtResults,
    region: usize,
    numbers: *mut [u32; 3],
) -> c_int {
    done(contained(|| {
        let results = RESULTS.find(results)?;
        let &MapRegion { id, class, pixels } = results.region(region)?;
        // SAFETY: `numbers` is NULL, which `give` refuses, or room for three numbers.
        unsafe { give("numbers", numbers, [id.into(), class, pixels]) }
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn only_one_of_several_trackers_sees_the_objects() {
        for _ in 0..200 {
            let instances = Instances::default();
            let results = Results::new(Detections { instances: &instances, labels: &[] });
            let (seen, start) = (AtomicUsize::new(0), Barrier::new(2));
            let follow = || {
                start.wait();
                let track = |_: &[TrackInput]| {
                    seen.fetch_add(1, Ordering::Relaxed);
                    thread::yield_now(); // to the other one
                    Vec::new()
                };
                results.set_track_ids(&[], track).is_ok()
            };
            let followed = thread::scope(|scope| {
                let other = scope.spawn(follow);
                (follow(), other.join().unwrap())
            });
            assert_ne!(followed.0, followed.1);
            assert_eq!(seen.into_inner(), 1, "a tracker that is refused must not have seen the frame");
        }
    }
}
