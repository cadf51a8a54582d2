// SPDX-License-Identifier: MPL-2.0
//! Tensors: arrays of the caller, buffers of the session, DLPack.

use super::*;

#[test]
fn wrong_arrays_are_errors_and_break_nothing() {
    let session = open(&one_box("capi-arrays"), &["backend=rten"]).unwrap();
    assert_eq!(unsafe { CStr::from_ptr(gst_trt_session_backend(session)) }, c"rten");
    assert!(gst_trt_session_reason(session).is_null());
    assert_eq!(gst_trt_session_output_count(session), 1);
    let picture = vec![0f32; 3 * SIDE * SIDE];
    let mut result = [7f32; 6];
    let (input, out) = (picture.as_ptr().cast::<c_void>(), result.as_mut_ptr().cast::<c_void>());
    let (bytes, none) = (size_of_val(&picture[..]), ptr::null_mut());
    let expect = |status: c_int, expected_text: &str| {
        assert!(
            status == 7 && last_error().contains(expected_text),
            "{status}: {} is not “{expected_text}”",
            last_error()
        );
        assert!(finds(session), "{expected_text}");
    };
    let none_of = |tensor: *const GstTrtTensorInfo| if tensor.is_null() { 7 } else { 0 };
    unsafe {
        let run = |input, bytes, out, size, count| gst_trt_session_run(session, input, bytes, &out, &size, count);
        expect(run(input, bytes - 4, out, 24, 1), "12288 elements, and 12287 are given");
        expect(run(input, bytes - 1, out, 24, 1), "49152 bytes, and 49151 are given");
        expect(run(ptr::null(), bytes, out, 24, 1), "input is NULL");
        expect(run(input, bytes, none, 24, 1), "outputs is NULL");
        expect(run(input, bytes, out, 23, 1), "24 bytes, and there is room for 23");
        expect(run(input, bytes, out, 25, 1), "24 bytes, and there is room for 25");
        expect(run(input, bytes, out, 24, 2), "1 outputs, and 2 are given");
        expect(gst_trt_session_run(session, input, bytes, ptr::null(), &24, 1), "outputs is NULL");
        expect(gst_trt_session_run(session, input, bytes, &out, ptr::null(), 1), "output_bytes is NULL");
        expect(none_of(gst_trt_session_output(session, 1)), "no output 1: the model has 1");
        assert_eq!(result, [7.0; 6], "nothing was written");
        assert_eq!(run(input, bytes, out, 24, 1), 0);
        assert_eq!(result, [0.0, 0.0, 32.0, 32.0, 0.9, 1.0]);
    }
    gst_trt_session_close(session);
}

#[test]
fn a_sessions_buffers_are_run_on() {
    let session = echo("capi-buffers");
    let picture: [u8; 12] = std::array::from_fn(|i| i as u8);
    let mut result = [99u8; 12];
    let (input, out, none) = (picture.as_ptr().cast::<c_void>(), result.as_mut_ptr().cast::<c_void>(), ptr::null_mut());
    let expect = |status: c_int, wanted: c_int, expected_text: &str| {
        assert!(
            status == wanted && last_error().contains(expected_text),
            "{status}: {} is not “{expected_text}”",
            last_error()
        );
    };
    unsafe {
        expect(gst_trt_session_copy_input(session, input, 11), 7, "12 elements, and 11 are given");
        expect(gst_trt_session_copy_input(session, ptr::null(), 12), 7, "input is NULL");
        expect(gst_trt_session_copy_output(session, 0, out, 11), 7, "12 bytes, and there is room for 11");
        expect(gst_trt_session_copy_output(session, 0, out, usize::MAX), 7, "12 bytes");
        expect(gst_trt_session_copy_output(session, 1, out, 12), 7, "no output 1");
        expect(gst_trt_session_copy_output(session, 0, none, 12), 7, "output is NULL");
        assert_eq!(result, [99; 12], "nothing was written");
        assert_eq!(gst_trt_session_copy_input(session, input, 12), 0);
        assert_eq!(gst_trt_session_run_buffers(session), 0);
        assert_eq!(gst_trt_session_copy_output(session, 0, out, 12), 0);
        assert_eq!(result, picture);

        // Functions that need a GPU return that as the error.
        let (mut at, mut outputs) = (none, [none]);
        expect(gst_trt_session_buffers(session, &mut at, outputs.as_mut_ptr(), 1), 5, "does not run on a GPU");
        expect(gst_trt_session_buffers(session, &mut at, outputs.as_mut_ptr(), 2), 7, "1 outputs, and 2 are given");
        expect(gst_trt_session_buffers(session, &mut at, ptr::null_mut(), 1), 7, "outputs is NULL");
        expect(gst_trt_session_run_device(session, none, outputs.as_ptr(), 1, none), 5, "does not run on a GPU");
        expect(gst_trt_session_run_device(session, none, ptr::null(), 1, none), 7, "outputs is NULL");
        expect(gst_trt_session_run_device(session, none, outputs.as_ptr(), 0, none), 7, "0 are given");
        gst_trt_session_close(session);
        expect(gst_trt_session_copy_input(session, input, 12), 7, "closed already");
        expect(gst_trt_session_run_buffers(session), 7, "closed already");
        expect(gst_trt_session_copy_output(session, 0, out, 12), 7, "closed already");
        expect(gst_trt_session_run_device(session, none, ptr::null(), 0, none), 7, "closed already");
    }
    let session = open(&one_box("capi-device"), &["backend=rten"]).unwrap();
    let frame = frame(&[0; SIDE * SIDE * 3]);
    let mut results = ptr::dangling_mut();
    unsafe {
        expect(gst_trt_session_detect_device(session, &frame, none, &mut results), 5, "GPU");
        expect(gst_trt_session_detect_device(session, ptr::null(), none, &mut results), 7, "frame is NULL");
        assert!(results.is_null());
        expect(gst_trt_session_detect_device(session, &frame, none, ptr::null_mut()), 7, "results is NULL");
    }
    assert!(finds(session));
    gst_trt_session_close(session);
}

/// A model that returns its input of 12 bytes.
fn echo(test: &str) -> *mut GstTrtSession {
    let dims = &["1", "3", "2", "2"];
    let graph = Graph::new().input("images", U8, dims).output("same", U8, dims);
    let graph = graph.node("Identity", &["images"], &["same"], Vec::new());
    open(&graph.save(&scratch(test).join("echo.onnx")), &["backend=rten"]).unwrap()
}

#[test]
fn dlpack_tensors_are_run_and_outlive_the_session() {
    let session = echo("capi-dlpack");
    let picture = Arc::new(Vec::from_iter(0..12u8));
    let tensor = Tensor::from_slice("any", &[1, 3, 2, 2], &picture);
    // SAFETY: it is on the host, where there is no stream.
    let give = |tensor: &Tensor| {
        unsafe { dlpack::export(tensor, Box::new(picture.clone()), dlpack::Consumer::Unknown) }.as_ptr()
    };
    let (mut outputs, none) = ([ptr::null_mut()], ptr::null_mut());
    let expect = |status: c_int, expected_text: &str| {
        assert!(
            status == 7 && last_error().contains(expected_text),
            "{status}: {} is not “{expected_text}”",
            last_error()
        );
        assert_eq!(Arc::strong_count(&picture), 1, "the input is consumed: {expected_text}");
    };
    unsafe {
        let out = outputs.as_mut_ptr();
        expect(gst_trt_session_run_dlpack(session, ptr::null_mut(), none, out, 1), "input is NULL");
        expect(gst_trt_session_run_dlpack(session, give(&tensor), none, ptr::null_mut(), 1), "outputs is NULL");
        expect(gst_trt_session_run_dlpack(session, give(&tensor), none, out, 2), "1 outputs, and 2 are given");
        expect(gst_trt_session_run_dlpack(ptr::null_mut(), give(&tensor), none, out, 1), "session is not open");
        let other = Tensor::from_slice("any", &[1, 12], &picture);
        expect(gst_trt_session_run_dlpack(session, give(&other), none, out, 1), "u8 1x3x2x2 is given as u8 1x12");
        let floats = Tensor::from_slice("any", &[1, 3, 2, 2], &[0f32; 12]);
        expect(gst_trt_session_run_dlpack(session, give(&floats), none, out, 1), "given as f32 1x3x2x2");

        assert_eq!(gst_trt_session_run_dlpack(session, give(&tensor), none, out, 1), 0);
        gst_trt_session_close(session);
        let output = dlpack::import(NonNull::new(outputs[0]).unwrap(), "same").unwrap();
        assert_eq!(output.as_slice::<u8>().unwrap(), &picture[..]);
    }
}

#[test]
fn tensors_are_described_until_the_session_is_closed() {
    let session = open(&shapes(), &["backend=rten"]).unwrap();
    let (input, output) = (gst_trt_session_input(session), gst_trt_session_output(session, 0));
    assert_eq!((text(gst_trt_tensor_info_name(input)), gst_trt_tensor_info_type(input)), (Some("images"), 0));
    let dims = |tensor| {
        let dim = |axis| gst_trt_tensor_info_dim(tensor, axis);
        (0..gst_trt_tensor_info_rank(tensor)).map(dim).collect::<Vec<_>>()
    };
    assert_eq!((dims(input), dims(output)), (vec![1, 3, 320, 320], vec![1, 6300, 7]));
    assert_eq!((gst_trt_tensor_info_bytes(input), gst_trt_tensor_info_bytes(output)), (1228800, 176400));
    assert_eq!(gst_trt_tensor_info_dim(input, 4), 0);
    assert!(last_error().contains("no axis 4: images f32 1x3x320x320 has 4"), "{}", last_error());
    gst_trt_session_close(session);
    for tensor in [input, output, ptr::null(), session.cast_const().cast()] {
        assert!(gst_trt_tensor_info_name(tensor).is_null());
        assert!(last_error().contains("tensor is not open"), "{}", last_error());
        assert_eq!((gst_trt_tensor_info_type(tensor), gst_trt_tensor_info_rank(tensor)), (-1, 0));
        assert_eq!((gst_trt_tensor_info_dim(tensor, 0), gst_trt_tensor_info_bytes(tensor)), (0, 0));
    }
}
