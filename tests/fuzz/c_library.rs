// SPDX-License-Identifier: MPL-2.0
//! The C library, called in any order and with anything that its header allows: handles that are closed or never were,
//! frames whose numbers contradict each other, options of any text.

#![allow(clippy::undocumented_unsafe_blocks, reason = "pointers are NULL, or to as many bytes as the numbers say")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use gsttrt_capi::*;
use gsttrt_core::dlpack::exporter::PANIC;

use super::common::random::Random;
use super::common::scratch;
use super::hostile::{picture, text};
use super::repeat;

const SIDES: [u32; 10] = [0, 1, 2, 3, 7, 8, 64, 1 << 15, 1 << 31, u32::MAX];
const SIZES: [usize; 10] = [0, 1, 8, 23, 24, 25, 192, 767, 768, 769];
const STRIDES: [usize; 8] = [0, 1, 8, 24, 32, 1 << 20, isize::MAX as usize, usize::MAX];
const INDICES: [usize; 4] = [0, 1, 7, usize::MAX];
const FORMATS: [&CStr; 8] = [c"RGB", c"NV12", c"I420", c"P010_10LE", c"GRAY8", c"BGRx", c"nonsense", c"\xff"];
const OPTIONS: [&str; 16] = [
    "tracker=",
    "track-thresh=",
    "lost-after=",
    "classes=",
    "score-threshold=",
    "layout=",
    "max-detections=",
    "iou",
    "ocsort",
    "0.5",
    "-1",
    "nan",
    "1e39",
    "18446744073709551615",
    "=",
    ",",
];

/// Larger than any structure of the header, and than what any size here says.
const ROOM: usize = 8192;

/// What was made, with what is closed already, and numbers that were never given.
struct Made<T> {
    known: Vec<*mut T>,
    open: Vec<*mut T>,
}

impl<T> Made<T> {
    fn new() -> Self {
        let never = [0, 1 << 40, usize::MAX].map(ptr::without_provenance_mut);
        Made { known: never.into(), open: Vec::new() }
    }

    fn add(&mut self, handle: *mut T) {
        assert!(!handle.is_null() && !self.known.contains(&handle), "a handle is given once");
        self.known.push(handle);
        self.open.push(handle);
    }

    /// Mostly an open one.
    fn any(&self, random: &mut Random) -> *mut T {
        if self.open.is_empty() || random.below(4) == 0 {
            random.one_of(&self.known)
        } else {
            random.one_of(&self.open)
        }
    }

    /// Closes one, which may be closed already.
    fn close(&mut self, random: &mut Random, close: impl Fn(*mut T)) {
        let handle = self.any(random);
        close(handle);
        self.open.retain(|&open| open != handle);
    }
}

/// The status is one of the header, and an error has a text.
fn check(status: c_int) -> bool {
    assert!((0..PANIC).contains(&status), "{status}: {:?}", last_error());
    assert!(status == 0 || !last_error().is_empty());
    status == 0
}

fn last_error() -> &'static str {
    let text = unsafe { CStr::from_ptr(gst_trt_last_error()) }.to_str().unwrap();
    assert!(text.len() < 10_000);
    text
}

fn check_text(text: *const c_char) {
    assert!(text.is_null() || unsafe { CStr::from_ptr(text) }.to_str().is_ok());
}

/// Calls with a list of options.
fn with_options<R>(texts: &[String], call: impl FnOnce(*const *const c_char) -> R) -> R {
    let texts: Vec<CString> = texts.iter().map(|text| CString::new(text.replace('\0', "")).unwrap()).collect();
    let pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
    call(pointers.as_ptr())
}

/// A frame within as many bytes as its `struct_size` says. Its planes are in `pixels`.
fn frame(random: &mut Random, pixels: &[u8], to: &mut [usize; ROOM / size_of::<usize>()]) {
    let whole = random.below(3) == 0;
    let plane = |random: &mut Random| if random.below(6) == 0 { ptr::null() } else { pixels.as_ptr().cast::<c_void>() };
    let mut made = GstTrtFrame {
        struct_size: size_of::<GstTrtFrame>(),
        format: if whole { c"RGB".as_ptr() } else { random.one_of(&FORMATS).as_ptr() },
        width: random.one_of(&SIDES),
        height: random.one_of(&SIDES),
        color: random.one_of(&[0, 0, 1, 2, 3, 4, 8, 16, 31, u32::MAX]),
        reserved: random.one_of(&[0, 0, 0, 1]),
        planes: [(); 3].map(|()| plane(random)),
        strides: [(); 3].map(|()| random.one_of(&STRIDES)),
        bytes: [(); 3].map(|()| random.below(pixels.len() + 1)),
    };
    if whole {
        (made.width, made.height, made.color, made.reserved) = (8, 8, 0, 0);
        (made.strides[0], made.bytes[0], made.planes[0]) = (24, pixels.len(), pixels.as_ptr().cast());
    } else if random.below(8) == 0 {
        made.struct_size = random.one_of(&[0, 8, size_of::<GstTrtFrame>() - 1, ROOM / 4, ROOM, usize::MAX]);
        made.format = random.one_of(&[made.format, ptr::null()]);
    }
    to.fill(0);
    if random.below(8) == 0 {
        to[size_of::<GstTrtFrame>() / size_of::<usize>()] = 1; // a field of a later version
    }
    unsafe { to.as_mut_ptr().cast::<GstTrtFrame>().write(made) };
}

/// Everything that results have, at any index.
fn read(random: &mut Random, results: *const GstTrtResults) {
    let index = random.one_of(&INDICES);
    let point = random.one_of(&INDICES);
    let (mut bbox, mut corners, mut keypoint) = ([0.0; 4], [[0.0; 2]; 4], [0.0; 3]);
    let (mut rect, mut size, mut range, mut numbers, mut count) = ([0; 4], [0; 2], [0.0; 2], [0; 3], 0);
    gst_trt_results_kinds(results);
    gst_trt_results_class_id(results, index);
    gst_trt_results_confidence(results, index);
    gst_trt_results_angle(results, index);
    gst_trt_results_track_id(results, index);
    gst_trt_results_frame_class_id(results, index);
    gst_trt_results_frame_class_confidence(results, index);
    check_text(gst_trt_results_label(results, index));
    check_text(gst_trt_results_json(results, index));
    check_text(gst_trt_results_keypoint_name(results, point));
    check_text(gst_trt_results_frame_class_label(results, index));
    check_text(gst_trt_results_frame_class_json(results, index));
    check_text(gst_trt_results_map_json(results));
    check_text(gst_trt_results_map_region_label(results, index));
    unsafe {
        if check(gst_trt_results_box(results, index, &mut bbox)) {
            let [left, top, width, height] = bbox;
            assert!(left >= 0.0 && top >= 0.0 && width > 0.0 && height > 0.0, "{bbox:?}");
            assert!(index < gst_trt_results_count(results));
        }
        let (mut boxes, mut confidences, mut class_ids) = ([[0.0; 4]; 4], [0.0; 4], [0; 4]);
        let room = random.one_of(&[0, 1, 2, 4]);
        let confidences_at = if index == 0 { ptr::null_mut() } else { confidences.as_mut_ptr() };
        check(gst_trt_results_objects(results, room, boxes.as_mut_ptr(), confidences_at, class_ids.as_mut_ptr()));
        check(gst_trt_results_corners(results, index, &mut corners));
        check(gst_trt_results_keypoint(results, index, point, &mut keypoint));
        gst_trt_results_mask(results, index, &mut rect);
        gst_trt_results_vector(results, &mut count);
        gst_trt_results_text(results, &mut range[0]);
        gst_trt_results_map(results, &mut size);
        check(gst_trt_results_map_range(results, &mut range));
        check(gst_trt_results_map_region(results, index, &mut numbers));
        let none = random.below(2) == 0;
        check(gst_trt_results_box(results, 0, if none { ptr::null_mut() } else { &mut bbox }));
    }
}

#[test]
fn calls_of_the_c_library() {
    let graph = picture().constant("output0", &[1, 1, 6], &[1.0, 1.0, 6.0, 6.0, 0.9, 1.0]);
    let graph = graph.metadata("names", "{0: 'cat', 1: 'dog'}").metadata("end2end", "True");
    let model = CString::new(graph.save(&scratch("fuzz-c").join("box.onnx"))).unwrap();
    let pixels = [128u8; 8 * 8 * 3];
    let input = [0u8; ROOM];
    let (mut sessions, mut results, mut trackers) = (Made::new(), Made::new(), Made::new());
    let mut room = [0usize; ROOM / size_of::<usize>()];
    let (mut found, mut tracked) = (0, 0);
    repeat(2, |random| {
        let (session, result, tracker) = (sessions.any(random), results.any(random), trackers.any(random));
        match random.below(16) {
            0 if sessions.open.len() < 3 => {
                let mut options = vec!["backend=rten".to_string()];
                options.extend((random.below(4) == 0).then(|| text(random, &OPTIONS)));
                let mut opened = ptr::null_mut();
                let open = |options| unsafe { gst_trt_session_open(model.as_ptr(), options, &mut opened) };
                if check(with_options(&options, open)) {
                    sessions.add(opened);
                }
            }
            1 => sessions.close(random, |session| gst_trt_session_close(session)),
            2 | 3 => results.close(random, |results| gst_trt_results_free(results)),
            4 => {
                let options: Vec<String> = (0..random.below(3)).map(|_| text(random, &OPTIONS)).collect();
                let mut made = ptr::null_mut();
                if check(with_options(&options, |options| unsafe { gst_trt_tracker_new(options, &mut made) })) {
                    trackers.add(made);
                }
            }
            5 => trackers.close(random, |tracker| gst_trt_tracker_free(tracker)),
            6 => {
                check(gst_trt_tracker_reset(tracker));
            }
            7 => {
                let time = random.one_of(&[0, 40_000_000, u64::MAX, u64::MAX - 1, 1 << 63]);
                let length = random.one_of(&[0, 1, 40_000_000, u64::MAX]);
                tracked += u32::from(check(gst_trt_tracker_update(tracker, result, time, length)));
            }
            8 => {
                let (bytes, size, count) =
                    (random.one_of(&SIZES), random.one_of(&SIZES), random.one_of(&[1, 1, 1, 0, 2]));
                let from = random.one_of(&[ptr::null(), input.as_ptr(), input[1..].as_ptr()]);
                let outputs =
                    [room.as_mut_ptr().cast(), if count == 2 { ptr::null_mut() } else { room.as_mut_ptr().cast() }];
                unsafe {
                    check(gst_trt_session_run(
                        session,
                        from.cast(),
                        bytes,
                        outputs.as_ptr(),
                        [size; 2].as_ptr(),
                        count,
                    ));
                    check(gst_trt_session_copy_input(session, from.cast(), bytes));
                    check(gst_trt_session_run_buffers(session));
                    check(gst_trt_session_copy_output(session, random.one_of(&INDICES), outputs[0], size));
                    check(gst_trt_session_buffers(session, ptr::null_mut(), ptr::null_mut(), count));
                    check(gst_trt_session_run_dlpack(
                        session,
                        ptr::null_mut(),
                        ptr::null_mut(),
                        ptr::null_mut(),
                        count,
                    ));
                }
            }
            9 => {
                check_text(gst_trt_session_backend(session));
                check_text(gst_trt_session_reason(session));
                check_text(gst_trt_session_warning(session, random.one_of(&INDICES)));
                check_text(gst_trt_session_note(session, random.one_of(&INDICES)));
                gst_trt_session_batch_size(session);
                check(gst_trt_session_begin_clip(session));
                let mut size = [0; 2];
                let sides = [random.one_of(&SIDES), random.one_of(&SIDES)];
                let [width, height] = &mut size;
                unsafe { gst_trt_session_input_size(session, sides[0], sides[1], width, height) };
                check_text(gst_trt_session_class_label(session, random.one_of(&SIDES)));
                let tensor = gst_trt_session_output(session, random.one_of(&INDICES));
                for tensor in [tensor, gst_trt_session_input(session), ptr::without_provenance(3)] {
                    check_text(gst_trt_tensor_info_name(tensor));
                    gst_trt_tensor_info_dim(tensor, random.one_of(&INDICES));
                    gst_trt_tensor_info_bytes(tensor);
                }
            }
            10..13 => read(random, result),
            _ => {
                frame(random, &pixels, &mut room);
                let frame = if random.below(20) == 0 { ptr::null() } else { room.as_ptr().cast() };
                let mut given = ptr::null_mut();
                unsafe { check(gst_trt_session_detect_device(session, frame, ptr::null_mut(), &mut given)) };
                if unsafe { check(gst_trt_session_detect(session, frame, &mut given)) } {
                    found += gst_trt_results_count(given);
                    results.add(given);
                }
                let (frames, count) = ([frame; 3], random.one_of(&[3, 2, 0, usize::MAX]));
                let mut list = [ptr::null_mut(); 3];
                unsafe {
                    let device = gst_trt_session_detect_device_batch;
                    check(device(session, frames.as_ptr(), count, ptr::null_mut(), list.as_mut_ptr()));
                    if check(gst_trt_session_detect_batch(session, frames.as_ptr(), count, list.as_mut_ptr())) {
                        list.into_iter().take(count).for_each(|given| results.add(given));
                    }
                }
            }
        }
    });
    println!("{found} objects, {tracked} frames tracked");
    assert!(found > 0 && tracked > 0);
}
