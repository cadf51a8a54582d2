//! A session on memory that stays: its own, or a caller's on the GPU.

use std::ffi::{c_int, c_void};
use std::ptr;

use gsttrt::core::cuda::driver::{GpuStatus, available};
use gsttrt::core::memory::Buffer;

use crate::error::{contained, done, null};
use crate::frame::GstTrtFrame;
use crate::input;
use crate::memory::{array, give};
use crate::results::GstTrtResults;
use crate::session::{GstTrtSession, SESSIONS, detect};

/// See `gsttrt.h`.
///
/// # Safety
/// `count`, if not NULL, has room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_gpu_count(count: *mut u32) -> c_int {
    done(contained(|| {
        // SAFETY: as the caller says.
        unsafe { give("count", count, 0)? };
        available()?;
        let GpuStatus::Available(found) = GpuStatus::detect() else { unreachable!("available") };
        // SAFETY: as the caller says.
        unsafe { give("count", count, found) }
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// Pointers that are not NULL are to as much memory as the numbers say.
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
        let mut detector = open.detector();
        let session = detector.session_mut();
        session.cuda()?;
        let buffers = session.buffers()?;
        let pointer = |buffer: &Buffer| ptr::with_exposed_provenance_mut(buffer.address().unwrap_or(0) as usize);
        // SAFETY: as the caller says.
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
/// Pointers that are not NULL are to as much memory as the numbers say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_copy_input(
    session: *mut GstTrtSession,
    input: *const c_void,
    bytes: usize,
) -> c_int {
    done(contained(|| {
        let open = SESSIONS.find(session)?;
        let mut detector = open.detector();
        let session = detector.session_mut();
        session.check_input(bytes)?;
        // SAFETY: as the caller says.
        session.copy_bytes_to_device(unsafe { array("input", input.cast(), bytes)? })
    }))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_run_buffers(session: *mut GstTrtSession) -> c_int {
    done(contained(|| SESSIONS.find(session)?.detector().session_mut().run_buffers().map(drop)))
}

/// See `gsttrt.h`.
///
/// # Safety
/// Pointers that are not NULL are to as much memory as the numbers say.
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
        let mut detector = open.detector();
        let session = detector.session_mut();
        session.check_output(index, bytes)?;
        // SAFETY: as the caller says; what is to be a slice has to be initialised.
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
/// As the header says of memory and stream.
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
        // SAFETY: as the caller says.
        let outputs: Vec<u64> =
            unsafe { array("outputs", outputs, count)? }.iter().map(|output| output.addr() as u64).collect();
        let mut detector = open.detector();
        // SAFETY: as the caller says.
        unsafe { detector.session_mut().run_device(input.addr() as u64, &outputs, stream) }.map(drop)
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// As the header says of memory and stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_detect_device(
    session: *mut GstTrtSession,
    frame: *const GstTrtFrame,
    stream: *mut c_void,
    results: *mut *mut GstTrtResults,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        detect(session, results, |detector| {
            let (frame, color) = input::read("frame", frame)?.on_device()?;
            detector.detect_device_instances(&frame, color, stream)
        })
    }
}
