//! A session on memory that stays: its own, or a caller's on the GPU.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::types::{Frame, Object, array};
use super::{SessionHandle, contained, detect, done, find, give, null};
use crate::core::cuda::driver::{GpuStatus, available};
use crate::core::memory::Buffer;

/// See `gsttrt.h`.
///
/// # Safety
/// `count`, if not NULL, has room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_gpu_count(count: *mut u32) -> c_int {
    done(contained(|| {
        // SAFETY: `count` is NULL or has room for a number.
        unsafe { give("count", count, 0)? };
        available()?;
        let GpuStatus::Available(found) = GpuStatus::detect() else { unreachable!("available") };
        // SAFETY: `count` is NULL or has room for a number.
        unsafe { give("count", count, found) }
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// Pointers that are not NULL are to as much memory as the numbers say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_buffers(
    session: *mut SessionHandle,
    input: *mut *mut c_void,
    outputs: *mut *mut c_void,
    count: usize,
) -> c_int {
    done(contained(|| {
        let open = find(session)?;
        open.check_count(count)?;
        if outputs.is_null() {
            return Err(null("outputs"));
        }
        let mut working = open.working();
        let session = working.detector.session_mut();
        session.cuda()?;
        let buffers = session.buffers()?;
        let pointer = |buffer: &Buffer| ptr::with_exposed_provenance_mut(buffer.address().unwrap_or(0) as usize);
        // SAFETY: `input` is NULL or has room for a pointer. `outputs` has room for `count`, and so many buffers there are.
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
    session: *mut SessionHandle,
    input: *const c_void,
    bytes: usize,
) -> c_int {
    done(contained(|| {
        let open = find(session)?;
        let mut working = open.working();
        let session = working.detector.session_mut();
        session.check(bytes)?;
        // SAFETY: `input` is NULL or points to so many bytes, which stay during the call.
        session.copy_bytes_to_device(unsafe { array("input", input.cast(), bytes)? })
    }))
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_session_run_buffers(session: *mut SessionHandle) -> c_int {
    done(contained(|| find(session)?.working().detector.session_mut().run_buffers().map(drop)))
}

/// See `gsttrt.h`.
///
/// # Safety
/// Pointers that are not NULL are to as much memory as the numbers say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_copy_output(
    session: *mut SessionHandle,
    index: usize,
    output: *mut c_void,
    bytes: usize,
) -> c_int {
    done(contained(|| {
        let open = find(session)?;
        if output.is_null() {
            return Err(null("output"));
        }
        let mut working = open.working();
        let session = working.detector.session_mut();
        session.check_output(index, bytes)?;
        // SAFETY: so many bytes are there, and ours during the call. They are set first: a slice must be initialised.
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
    session: *mut SessionHandle,
    input: *mut c_void,
    outputs: *const *mut c_void,
    count: usize,
    stream: *mut c_void,
) -> c_int {
    done(contained(|| {
        let open = find(session)?;
        open.check_count(count)?;
        // SAFETY: `outputs` is NULL or points to `count` pointers.
        let outputs: Vec<u64> =
            unsafe { array("outputs", outputs, count)? }.iter().map(|output| output.addr() as u64).collect();
        let mut working = open.working();
        // SAFETY: the stream is alive, and the memory stays until the run is done. `run_device` checks its size.
        unsafe { working.detector.session_mut().run_device(input.addr() as u64, &outputs, stream) }.map(drop)
    }))
}

/// See `gsttrt.h`.
///
/// # Safety
/// As the header says of memory and stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_session_detect_device(
    session: *mut SessionHandle,
    frame: *const Frame,
    stream: *mut c_void,
    objects: *mut Object,
    capacity: usize,
    found: *mut usize,
) -> c_int {
    // SAFETY: `frame` is NULL or a frame, whose format is NULL or a C string. There is room for `capacity` objects and their
    // number. The stream is alive.
    unsafe {
        detect(session, objects, capacity, found, |detector| {
            let (frame, color) = frame.as_ref().ok_or_else(|| null("frame"))?.on_device()?;
            detector.detect_device(&frame, color, stream)
        })
    }
}
