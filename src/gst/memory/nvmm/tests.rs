// SPDX-License-Identifier: MPL-2.0
#[path = "../../../../tests/common/nvmm.rs"]
#[allow(dead_code)] // the integration tests use the rest
mod stand_in;

use gst::prelude::*;
use gst_video::VideoInfo;

use super::*;
use crate::fakes::Fakes;
use stand_in::*;

/// NV12 64x48
fn caps_and_info() -> (gst::Caps, VideoInfo) {
    gst::init().unwrap();
    let caps: gst::Caps = "video/x-raw,format=NV12,width=64,height=48,framerate=30/1".parse().unwrap();
    let info = VideoInfo::from_caps(&caps).unwrap();
    (in_nvmm(&caps), info)
}

fn frame(buffer: &gst::BufferRef) -> NvmmFrame<'_> {
    NvmmFrame::of(buffer, PixelFormat::Nv12, (64, 48)).unwrap()
}

/// Its planes.
fn planes_of(picture: &NvmmPicture) -> DevicePlanes {
    let plane = |(start, stride): (*mut u8, usize)| DevicePlane { address: start as u64, stride };
    [0, 1].map(|index| plane(picture.plane(index))).into_iter().collect()
}

#[test]
fn planes_on_a_gpu() {
    let Some(fakes) = Fakes::of(module_path!(), "planes_on_a_gpu") else { return };
    let (context, (_, info)) = (fakes.context(), caps_and_info());
    let on_gpu = |picture: NvmmPicture| {
        let buffer = picture.into_buffer();
        let planes = frame(&buffer).on_gpu(&context).map(|mapped| mapped.map(|mapped| mapped.planes.clone()));
        assert_eq!(fakes.count(c"fake_registered"), 0);
        expect_nothing_open("a frame");
        planes
    };
    for memory in [SURFACE_ARRAY, DEVICE, PINNED, UNIFIED] {
        let picture = NvmmPicture::new(memory, &info);
        let planes = planes_of(&picture);
        let (start, bytes) = (planes[0].address as *const u8, 256 * (48 + 24));
        fakes.memory(start, bytes, 0, false);
        assert_eq!(on_gpu(picture).unwrap(), Some(planes), "{memory}");
    }
    assert_eq!(on_gpu(NvmmPicture::new(SYSTEM, &info)).unwrap(), None, "it is uploaded");

    let picture = || {
        let picture = NvmmPicture::new(DEVICE, &info);
        let start = planes_of(&picture)[0].address as *const u8;
        (picture, start)
    };
    let refused = |picture: NvmmPicture, part: &str| {
        let error = on_gpu(picture).unwrap_err();
        assert!(error.kind() == ErrorKind::WrongType && error.message().contains(part), "{part}: {error}");
    };
    let (other, start) = picture();
    fakes.memory(start, 256 * (48 + 24), 3, false);
    refused(other, "memory of GPU 3, not of GPU 0");
    let (other, start) = picture();
    fakes.memory(start, 256 * (48 + 24), 0, true);
    refused(other, "another CUDA context");
    let (short, start) = picture();
    fakes.memory(start, 256 * (48 + 23), 0, false);
    assert!(on_gpu(short).is_err(), "memory that ends before the picture");
    fakes.memory(start, 0, 0, false);
    refused(NvmmPicture::new(UNIFIED, &info), "does not know the address");

    let_images_be_block_linear(true);
    refused(NvmmPicture::new(SURFACE_ARRAY, &info), "bl-output=false");
    let_images_be_block_linear(false);
}

/// As a Jetson has them, through the whole element; each call of the driver fails once, then those of the library.
#[test]
fn frames_of_the_video_hardware() {
    let Some(fakes) = Fakes::of(module_path!(), "frames_of_the_video_hardware") else { return };
    let (caps, info) = caps_and_info();
    crate::plugin_register_static().unwrap();
    let mut harness = gst_check::Harness::new_parse("trtpreprocess tensor-size=32x32");
    harness.set_src_caps(caps);
    let mut push = || {
        let pushed = harness.push(NvmmPicture::new(SURFACE_ARRAY, &info).into_buffer());
        expect_nothing_open("a frame that was pushed");
        assert_eq!(fakes.count(c"fake_registered"), 0);
        assert_eq!(fakes.count(c"fake_pending"), 0, "the picture is gone, so it was waited for");
        let pushed = pushed.map_err(|flow| Error::new(ErrorKind::Run, flow.to_string()));
        pushed.map(|_| drop(harness.pull().unwrap()))
    };
    push().unwrap();
    fakes.each_call_fails("a frame of the video hardware", &mut push);
    for what in [EGL, NO_IMAGE] {
        fail(what);
        push().unwrap_err();
        fail(NOTHING);
    }
    push().unwrap();
    let (maps, _, images) = counts();
    assert!(maps == 0 && images > 4, "{maps} {images}");
}

/// The memory stays with the buffer, which waits for the GPU.
#[test]
fn frames_in_memory_of_a_gpu_are_not_waited_for() {
    let Some(fakes) = Fakes::of(module_path!(), "frames_in_memory_of_a_gpu_are_not_waited_for") else { return };
    let (caps, info) = caps_and_info();
    crate::plugin_register_static().unwrap();
    let mut harness = gst_check::Harness::new_parse("trtpreprocess tensor-size=32x32");
    harness.set_src_caps(caps);
    let picture = NvmmPicture::new(DEVICE, &info);
    fakes.memory(planes_of(&picture)[0].address as *const u8, 256 * (48 + 24), 0, false);
    harness.push(picture.into_buffer()).unwrap();
    assert!(fakes.count(c"fake_pending") > 0);
    drop(harness.pull().unwrap());
    assert_eq!(fakes.count(c"fake_pending"), 0);
    assert_eq!(counts(), (0, 0, 0), "it has an address");
    for (gpu, part) in [(1, "GPU 1, and this process sees 1"), (u32::MAX.into(), "this process sees 1")] {
        let bus = gst::Bus::new();
        harness.element().unwrap().set_bus(Some(&bus));
        let picture = NvmmPicture::new(DEVICE, &info).with("gpuId", gpu);
        assert_eq!(harness.push(picture.into_buffer()), Err(gst::FlowError::Error));
        let message = bus.pop_filtered(&[gst::MessageType::Error]).unwrap();
        let gst::MessageView::Error(error) = message.view() else { unreachable!("filtered") };
        assert!(error.error().to_string().contains(part), "{error:?}");
    }
    expect_nothing_open("memory of a GPU");
}
