// SPDX-License-Identifier: MPL-2.0
//! Frames as they come to trtpreprocess: any layout that a GstVideoMeta describes, buffers that contradict their caps, and
//! caps that it cannot take.

use crate::common::launch;
use crate::common::preprocess::*;
use gst::prelude::*;
use gst_video::{VideoFormat, VideoMeta};

/// NV12 7x3 with a gradient in luma, in layouts that only a GstVideoMeta can describe.
#[test]
fn strides_and_offsets_come_from_the_meta() {
    crate::common::init();
    let caps = video("NV12", 7, 3, ",colorimetry=1:4:0:0");
    let luma = |x: usize, y: usize| (10 * x + 60 * y) as u8;
    // A buffer of `size` bytes full of 255, with the picture where offsets and strides say.
    let picture = |offsets: [usize; 2], strides: [i32; 2], size: usize| {
        let mut bytes = vec![255; size];
        for y in 0..3 {
            (0..7).for_each(|x| bytes[offsets[0] + y * strides[0] as usize + x] = luma(x, y));
        }
        for y in 0..2 {
            bytes[offsets[1] + y * strides[1] as usize..][..8].fill(128);
        }
        bytes
    };
    let whole = |bytes: Vec<u8>| gst::Buffer::from_mut_slice(bytes);
    let split = |bytes: Vec<u8>, at: usize| {
        let mut buffer = gst::Buffer::from_mut_slice(bytes[..at].to_vec());
        buffer.get_mut().unwrap().append_memory(gst::Memory::from_mut_slice(bytes[at..].to_vec()));
        buffer
    };
    for (what, mut buffer, offsets, strides) in [
        ("wide strides, far offsets", whole(picture([100, 300], [64, 32], 1000)), [100, 300], [64, 32]),
        ("chroma first", whole(picture([64, 0], [16, 16], 200)), [64, 0], [16, 16]),
        ("nothing behind the last pixel", whole(picture([0, 30], [10, 13], 51)), [0, 30], [10, 13]),
        ("a memory for each plane", split(picture([0, 48], [16, 16], 80), 48), [0, 48], [16, 16]),
        ("a plane in two memories", split(picture([0, 48], [16, 16], 80), 20), [0, 48], [16, 16]),
    ] {
        set_meta(&mut buffer, VideoFormat::Nv12, (7, 3), &offsets, &strides);
        let input = Bench::with_caps("tensor-size=7x3 scale=1", &caps).tensor(buffer);
        for (x, y) in (0..21).map(|i| (i % 7, i / 7)) {
            assert_near(&input.pixel(x, y), &[luma(x, y).into(); 3], 1e-3, what);
        }
    }
    // A picture of which the caps show the upper left part.
    let mut buffer = whole(picture([0, 64], [16, 16], 200));
    set_meta(&mut buffer, VideoFormat::Nv12, (16, 4), &[0, 64], &[16, 16]);
    let input = Bench::with_caps("tensor-size=7x3 scale=1", &caps).tensor(buffer);
    assert_near(&input.pixel(6, 2), &[luma(6, 2).into(); 3], 1e-3, "cropped");
}

#[test]
fn buffers_that_contradict_the_caps() {
    crate::common::init();
    use VideoFormat::{I420, Nv12};
    let caps = video("NV12", 8, 4, "");
    let bytes = |size: usize| gst::Buffer::from_mut_slice(vec![0u8; size]);
    type Meta = (VideoFormat, (u32, u32), &'static [usize], &'static [i32]);
    let none: Option<Meta> = None;
    for (what, mut buffer, meta) in [
        ("empty", gst::Buffer::new(), none),
        ("too small", bytes(47), none),
        ("too small with meta", bytes(47), Some((Nv12, (8, 4), &[0, 32], &[8, 8]))),
        ("negative stride", bytes(48), Some((Nv12, (8, 4), &[24, 32], &[-8, 8]))),
        ("stride 0", bytes(48), Some((Nv12, (8, 4), &[0, 32], &[0, 8]))),
        ("stride below the row", bytes(48), Some((Nv12, (8, 4), &[0, 32], &[8, 7]))),
        ("absurd stride", bytes(48), Some((Nv12, (8, 4), &[0, 32], &[i32::MAX, 8]))),
        ("smallest stride", bytes(48), Some((Nv12, (8, 4), &[0, 32], &[i32::MIN, 8]))),
        ("offset at the end", bytes(48), Some((Nv12, (8, 4), &[0, 48], &[8, 8]))),
        ("absurd offset", bytes(48), Some((Nv12, (8, 4), &[usize::MAX, 32], &[8, 8]))),
        ("last row beyond the end", bytes(48), Some((Nv12, (8, 4), &[0, 33], &[8, 8]))),
        ("plane missing", bytes(48), Some((Nv12, (8, 4), &[0], &[8]))),
        ("other format", bytes(48), Some((I420, (8, 4), &[0, 32, 40], &[8, 4, 4]))),
        ("smaller picture", bytes(48), Some((Nv12, (8, 3), &[0, 32], &[8, 8]))),
    ] {
        let another = meta.is_some_and(|(format, size, ..)| (format, size) != (Nv12, (8, 4)));
        if let Some((format, size, offsets, strides)) = meta {
            set_meta(&mut buffer, format, size, offsets, strides);
        }
        let mut bench = Bench::with_caps("tensor-size=8x8", &caps);
        assert_eq!(bench.harness.push(buffer), Err(gst::FlowError::Error), "{what}");
        let said = bench.said();
        assert_eq!(said.len(), 1, "{what}: {said:?}");
        assert_eq!(said[0].0, "StreamError::WrongType", "{what}");
        assert!(said[0].1.contains("upstream"), "{what}: {}", said[0].1);
        // Found before the buffer is read, which would find it too.
        assert!(another || said[0].1.contains("bytes do not hold NV12 8x4"), "{what}: {}", said[0].1);
    }
}

#[test]
fn frames_beyond_what_can_be_preprocessed() {
    let mut bench = Bench::new("tensor-size=8x8");
    bench.expect_refusal(&video("GRAY8", 40000, 8, ""));
    let said = bench.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].0 == "CoreError::Negotiation" && said[0].1.contains("40000x8"), "{said:?}");
}

#[test]
fn unusable_frames_are_explained() {
    for (caps, parts) in [
        ("video/x-raw,format=YUY2", ["YUY2", "P010_10LE, I420", "videoconvert"]),
        ("video/x-raw,format={YUY2,UYVY}", ["{ YUY2, UYVY }", "P010_10LE, I420", "videoconvert"]),
        ("video/x-raw(memory:GLMemory),format=RGBA", ["RGBA (memory:GLMemory)", "system memory", "gldownload"]),
        ("video/x-raw(memory:CUDAMemory),format=NV12", ["NV12 (memory:CUDAMemory)", "system memory", "cudadownload"]),
        ("video/x-raw(memory:NVMM),format=YUY2", ["YUY2 (memory:NVMM)", "system memory", "nvvideoconvert"]),
        ("video/x-h264", ["video/x-h264", "system memory", "decodebin"]),
    ] {
        let mut bench = Bench::new("tensor-size=8x8");
        let caps: gst::Caps = caps.parse().unwrap();
        let pad = bench.harness.element().unwrap().static_pad("sink").unwrap();
        assert!(pad.query_caps(Some(&caps)).is_empty());
        if caps.is_fixed() {
            bench.expect_refusal(&format!("{caps},width=8,height=8,framerate=1/1"));
        }
        let said = bench.said();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(parts.iter().all(|part| said[0].1.contains(part)), "{said:?}");
    }
    // Formats that are only known once the pipeline runs, as a camera's.
    let line = "videotestsrc ! capsfilter name=camera ! trtpreprocess tensor-size=8x8 ! fakesink";
    let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.by_name("camera").unwrap().set_property_from_str("caps", "video/x-raw,format=YUY2");
    let outcome = crate::common::run(&pipeline);
    assert!(outcome.warnings.len() == 1 && outcome.warnings[0].contains("videoconvert"), "{outcome:?}");
    assert!(outcome.error.is_some());
    // Where something can be found, nothing is said.
    let outcome = launch("videotestsrc num-buffers=1 ! videoconvert ! trtpreprocess tensor-size=8x8 ! fakesink");
    outcome.expect_success();
    assert_eq!(outcome.warnings, [""; 0]);
}

#[test]
fn upstream_may_use_any_layout_but_must_crop() {
    use gst_video::VideoCropMeta;
    let caps = video("NV12", 64, 48, "");
    let mut bench = Bench::with_caps("tensor-size=8x8", &caps);
    bench.harness.add_propose_allocation_meta(VideoMeta::meta_api(), None);
    bench.harness.add_propose_allocation_meta(VideoCropMeta::meta_api(), None);
    let mut query = gst::query::Allocation::new(Some(&caps.parse().unwrap()), true);
    assert!(bench.harness.element().unwrap().static_pad("sink").unwrap().query(&mut query));
    assert!(query.find_allocation_meta::<VideoMeta>().is_some());
    assert!(query.find_allocation_meta::<VideoCropMeta>().is_none());
}

/// In this process nothing has loaded NVIDIA's library, or a stand-in for it.
#[test]
fn frames_in_nvmm_memory_need_a_library() {
    if gsttrt::gst::memory::nvmm::available().is_ok() {
        return println!("SKIP: libnvbufsurface.so is on this machine");
    }
    let mut bench = Bench::new("tensor-size=8x8");
    let caps = "video/x-raw(memory:NVMM),format=NV12,width=8,height=8,framerate=1/1";
    bench.expect_refusal(caps);
    let said = bench.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(said[0].0, "LibraryError::Init");
    for part in ["NvBufSurface", "libnvbufsurface.so", "DeepStream", "nvidia-l4t-multimedia", "LD_LIBRARY_PATH"] {
        assert!(said[0].1.contains(part), "{part}: {said:?}");
    }
}
