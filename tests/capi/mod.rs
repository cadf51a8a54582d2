// SPDX-License-Identifier: MPL-2.0
//! capi/include/gsttrt.h: it declares what the library exports, its examples run, and mistakes are errors that break
//! nothing.

#![allow(clippy::undocumented_unsafe_blocks, reason = "pointers are to locals, NULL, or as wrong as the test requires")]

mod gstreamer;
mod header;
mod programs;
mod results;
mod sessions;
mod tensors;

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use gsttrt_capi::*;
use gsttrt_core::dlpack;
use gsttrt_core::error::ErrorKind;
use gsttrt_core::tensor::{DType, Tensor};

use crate::common::onnx::{F32, Graph, U8, brightness};
use crate::common::{path, scratch, shapes};

/// Where the library that applications load was built, next to this test.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_path_buf()
}

/// That of the C library.
fn library() -> PathBuf {
    target().join("libgsttrt_capi.so")
}

fn compile(source: &Path, program: &Path) {
    let is_cpp = source.extension().is_some_and(|ending| ending == "cpp");
    let (compiler, standard) = if is_cpp { ("c++", "-std=c++17") } else { ("cc", "-std=c99") };
    let mut command = Command::new(compiler);
    command.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", &path("capi/include")]);
    assert!(command.arg(source).arg(library()).arg("-o").arg(program).status().unwrap().success());
}

/// What a program printed, which must have succeeded.
#[track_caller]
fn printed(output: Output) -> String {
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    stdout
}

fn open(model: &str, options: &[&str]) -> Result<*mut GstTrtSession, (c_int, String)> {
    let model = CString::new(model).unwrap();
    let texts: Vec<CString> = options.iter().map(|&text| CString::new(text).unwrap()).collect();
    let mut options: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
    options.push(ptr::null());
    let mut session = ptr::null_mut();
    match unsafe { gst_trt_session_open(model.as_ptr(), options.as_ptr(), &mut session) } {
        0 => Ok(session),
        code => {
            assert!(session.is_null());
            Err((code, last_error()))
        }
    }
}

fn last_error() -> String {
    unsafe { CStr::from_ptr(gst_trt_last_error()) }.to_str().unwrap().to_string()
}

/// One box over a quarter of a 64x64 input, for any picture.
fn one_box(test: &str) -> String {
    let row = [0.0, 0.0, 32.0, 32.0, 0.9, 1.0];
    let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("output0", &[1, 1, 6], &row);
    let graph = graph.metadata("names", "{0: 'cat', 1: 'dog'}").metadata("end2end", "True");
    graph.save(&scratch(test).join("box.onnx"))
}

const SIDE: usize = 64;

fn frame(pixels: &[u8]) -> GstTrtFrame {
    GstTrtFrame {
        struct_size: size_of::<GstTrtFrame>(),
        format: c"RGB".as_ptr(),
        width: SIDE as u32,
        height: SIDE as u32,
        color: 0,
        reserved: 0,
        planes: [pixels.as_ptr().cast(), ptr::null(), ptr::null()],
        strides: [SIDE * 3, 0, 0],
        bytes: [pixels.len(), 0, 0],
    }
}

/// What is found in a frame; `status` otherwise.
fn detect(session: *mut GstTrtSession, frame: *const GstTrtFrame) -> Result<*mut GstTrtResults, c_int> {
    let mut results = ptr::dangling_mut();
    match unsafe { gst_trt_session_detect(session, frame, &mut results) } {
        0 => Ok(results),
        status => {
            assert!(results.is_null(), "no handle comes with an error");
            Err(status)
        }
    }
}

fn text<'a>(pointer: *const std::ffi::c_char) -> Option<&'a str> {
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_str().unwrap())
}

/// Whether the session finds the dog.
fn finds(session: *mut GstTrtSession) -> bool {
    let pixels = vec![0; SIDE * SIDE * 3];
    let Ok(results) = detect(session, &frame(&pixels)) else { return false };
    let mut bbox = [f32::NAN; 4];
    let is_dog = unsafe {
        gst_trt_results_count(results) == 1
            && text(gst_trt_results_label(results, 0)) == Some("dog")
            && gst_trt_results_class_id(results, 0) == 1
            && gst_trt_results_confidence(results, 0) == 0.9
            && gst_trt_results_box(results, 0, &mut bbox) == 0
    };
    gst_trt_results_free(results);
    is_dog && bbox == [0.0, 0.0, 32.0, 32.0]
}
