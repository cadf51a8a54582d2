// SPDX-License-Identifier: MPL-2.0
//! A session on persistent memory: its own, or the caller's on the GPU.

use std::ffi::{c_int, c_void};
use std::ptr;

use gsttrt_core::cuda::driver::{GpuStatus, available};
use gsttrt_core::memory::Buffer;

use crate::error::{contained, done, null};
use crate::frame::GstTrtFrame;
use crate::input;
use crate::memory::{array, give};
use crate::results::GstTrtResults;
use crate::session::{GstTrtSession, SESSIONS, detect, read_frames};

/// See `gsttrt.h`.
///
/// # Safety
/// `count` is NULL or room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_gpu_count(count: *mut u32) -> c_int {
    done(contained(|| {
        // SAFETY: `count` is NULL, which `give` refuses, or room for a number.
        unsafe { give("count", count, 0)? };
        available()?;
        let GpuStatus::Available(found) = GpuStatus::detect() else { unreachable!("available") };
        // SAFETY: as above; it is not NULL.
        unsafe { give("count", count, found) }
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// `input` is NULL or room for a pointer, `outputs` NULL or room for `count` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_buffers(
    session: *mut GstTrtSession,
    input: *mut *mut c_void,
    outputs: *mut *mut c_void,
    count: usize,
) -> c_int {
    done(contained(|| {
        let open = SESSIONS.find(session)?;
        open.check_count(count)?;
        if outputs.is_null() {
            return Err(null("outputs"));
        }
        let mut detector = open.detector()?;
        let session = detector.session_mut();
        session.cuda()?;
        let buffers = session.buffers()?;
        let pointer = |buffer: &Buffer| ptr::with_exposed_provenance_mut(buffer.address().unwrap_or(0) as usize);
        // SAFETY: `input` is NULL, which `give` refuses, or room for a pointer. `outputs` is not NULL, so it has room
        // for `count` pointers, and `check_count` made sure that `count` is the number of outputs.
        unsafe {
            give("input", input, pointer(&buffers.input))?;
            for (i, buffer) in buffers.outputs.iter().enumerate() {
                outputs.add(i).write(pointer(buffer));
            }
        }
        Ok(())
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// `input` is NULL or `bytes` initialised bytes, which nothing writes until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_copy_input(
    session: *mut GstTrtSession,
    input: *const c_void,
    bytes: usize,
) -> c_int {
    done(contained(|| {
        let open = SESSIONS.find(session)?;
        let mut detector = open.detector()?;
        let session = detector.session_mut();
        session.check_input(bytes)?;
        // SAFETY: `input` is NULL, which `array` refuses, or `bytes` initialised bytes. The copy has read them when it
        // returns.
        session.copy_bytes_to_device(unsafe { array("input", input.cast(), bytes)? })
    }))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_run_buffers(session: *mut GstTrtSession) -> c_int {
    done(contained(|| SESSIONS.find(session)?.detector()?.session_mut().run_buffers().map(drop)))
}

/// See `gsttrt.h`.
///
/// # Safety
/// `output` is NULL or room for `bytes` bytes, which nothing else uses until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_copy_output(
    session: *mut GstTrtSession,
    index: usize,
    output: *mut c_void,
    bytes: usize,
) -> c_int {
    done(contained(|| {
        let open = SESSIONS.find(session)?;
        if output.is_null() {
            return Err(null("output"));
        }
        let mut detector = open.detector()?;
        let session = detector.session_mut();
        session.check_output(index, bytes)?;
        // SAFETY: `output` is not NULL, so it has room for `bytes` bytes that nothing else uses. They may be
        // uninitialised, so they are zeroed before they become a slice.
        let output = unsafe {
            ptr::write_bytes(output.cast::<u8>(), 0, bytes);
            std::slice::from_raw_parts_mut(output.cast::<u8>(), bytes)
        };
        session.copy_bytes_to_host(index, output)
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// * `outputs` is NULL or `count` pointers.
/// * `input` and `outputs` point to memory of the GPU's primary context that stays until the run is done. Until then
///   nothing writes the input, and nothing uses the outputs, except after the run on `stream`.
/// * `stream` is NULL or a stream of that context, and stays until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_run_device(
    session: *mut GstTrtSession,
    input: *mut c_void,
    outputs: *const *mut c_void,
    count: usize,
    stream: *mut c_void,
) -> c_int {
    done(contained(|| {
        let open = SESSIONS.find(session)?;
        open.check_count(count)?;
        // SAFETY: `outputs` is NULL, which `array` refuses, or `count` pointers, which stay until this returns.
        let outputs: Vec<u64> =
            unsafe { array("outputs", outputs, count)? }.iter().map(|output| output.addr() as u64).collect();
        let mut detector = open.detector()?;
        // SAFETY: this function requires the same of memory and stream as `run_device` does. That checks the addresses.
        unsafe { detector.session_mut().run_device(input.addr() as u64, &outputs, stream) }.map(drop)
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// * `frame` is NULL or a `GstTrtFrame` of `struct_size` bytes, whose `format` is NULL or a C string.
/// * Nothing writes the planes until this returns, except the work that `stream` already has.
/// * `stream` is NULL or a stream of the GPU's primary context, and stays until this returns.
/// * `results` is NULL or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_detect_device(
    session: *mut GstTrtSession,
    frame: *const GstTrtFrame,
    stream: *mut c_void,
    results: *mut *mut GstTrtResults,
) -> c_int {
    // SAFETY: `frame` is NULL, which `read` refuses, or as many bytes as its `struct_size`, and its `format` NULL or a
    // C string. `detect_device_instances` checks the planes, and the host waits in it for the boxes, so all is read
    // when it returns; until then the stream stays. `results` is NULL, which `detect` refuses, or room for a pointer.
    unsafe {
        detect(session, results, 1, |detector, found| {
            let (frame, color) = input::read("frame", frame)?.on_device()?;
            detector.detect_device_instances(&frame, color, stream).map(|detections| found(0, detections))
        })
    }
}

/// See `gsttrt.h`.
///
/// # Safety
/// * `frames` is NULL or `count` pointers, each as for [`gst_trt_session_detect_device`].
/// * `stream` as there.
/// * `results` is NULL or room for `count` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_detect_device_batch(
    session: *mut GstTrtSession,
    frames: *const *const GstTrtFrame,
    count: usize,
    stream: *mut c_void,
    results: *mut *mut GstTrtResults,
) -> c_int {
    // SAFETY: as above, for each frame.
    unsafe {
        detect(session, results, count, |detector, found| {
            let frames = read_frames(frames, count, |frame| frame.on_device())?;
            detector.detect_device_batch_instances(&frames, stream, found)
        })
    }
}
