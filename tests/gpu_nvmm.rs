// SPDX-License-Identifier: MPL-2.0
//! Frames in NVMM memory of a GPU, read in place: their tensors are those of the same frames in system memory, bit by bit.
//! The surfaces are those of a stand-in for libnvbufsurface, and their pictures lie in real CUDA memory.
//!
//! Needs a GPU; prints SKIP where there is none, and fails instead with `REQUIRE_GPU=1`.

use cudarc::driver::sys;
use gst_video::VideoInfo;
use gsttrt_core::cuda::driver::{Context, Stream};
use gsttrt_core::memory::{DeviceBlock, DevicePool};

use crate::common::gpu;
use crate::common::nvmm::*;
use crate::common::preprocess::{Bench, Input, video};
use crate::common::random::Random;

const FORMATS: [&str; 10] = ["NV12", "P010_10LE", "I420", "RGB", "BGR", "RGBA", "BGRA", "RGBx", "BGRx", "GRAY8"];
const TENSOR: &str = "tensor-size=96x64";

struct Gpu {
    context: Context,
    stream: Stream,
    pool: DevicePool,
}

impl Gpu {
    fn or_skip() -> Option<Self> {
        let context = gpu::context()?;
        crate::common::init();
        let (stream, pool) = (Stream::new(&context).unwrap(), DevicePool::new(&context));
        Some(Gpu { context, stream, pool })
    }

    /// The bytes of a tensor on the GPU or on the host.
    fn bytes(&self, input: &Input) -> Vec<u8> {
        input.0.inputs().list[0].tensors.wait().unwrap();
        let tensor = input.tensor();
        if let Some(bytes) = tensor.bytes() {
            return bytes.to_vec();
        }
        let mut bytes = vec![0; tensor.desc().bytes().unwrap()];
        // SAFETY: the tensor has so many bytes, and stays until they are here.
        unsafe { self.stream.download(tensor.device().expect("on the GPU").address(), &mut bytes) }.unwrap();
        self.stream.synchronize().unwrap();
        bytes
    }

    /// A copy of a picture's memory on the GPU.
    fn upload(&self, picture: &NvmmPicture) -> DeviceBlock {
        let pixels = picture.pixels();
        let block = self.pool.take(pixels.len()).unwrap();
        // SAFETY: the block is large enough, and both stay until the copy is done.
        unsafe { self.stream.upload(pixels, block.address()) }.unwrap();
        self.stream.synchronize().unwrap();
        block
    }
}

fn noise(info: &VideoInfo) -> gst::Buffer {
    let mut random = Random(7);
    gst::Buffer::from_mut_slice((0..info.size()).map(|_| random.next() as u8).collect::<Vec<u8>>())
}

fn format(name: &str) -> (gst::Caps, VideoInfo) {
    let caps: gst::Caps = video(name, 150, 84, ",colorimetry=bt709").parse().unwrap();
    let info = VideoInfo::from_caps(&caps).unwrap();
    (caps, info)
}

fn bench(caps: &gst::Caps) -> Bench {
    Bench::with_caps(TENSOR, &caps.to_string())
}

#[test]
fn tensors_are_those_of_system_memory() {
    let Some(gpu) = Gpu::or_skip() else { return };
    for name in FORMATS {
        let (caps, info) = format(name);
        let frame = noise(&info);
        let expected = gpu.bytes(&bench(&caps).tensor(frame.copy()));
        let mut bench = bench(&in_nvmm(&caps));

        let picture = NvmmPicture::of(DEVICE, &info, &frame);
        let block = gpu.upload(&picture);
        let input = bench.tensor(picture.with("dataPtr", block.address()).into_buffer());
        assert!(input.tensor().device().is_some(), "it is made on the GPU");
        assert_eq!(gpu.bytes(&input), expected, "{name} in device memory");

        let input = bench.tensor(NvmmPicture::of(SYSTEM, &info, &frame).into_buffer());
        assert_eq!(gpu.bytes(&input), expected, "{name} in system memory");
        assert_eq!(counts(), (0, 0, 0), "nothing is mapped");
        expect_nothing_open(name);
    }
}

#[test]
fn memory_of_both_is_read_in_place() {
    let Some(gpu) = Gpu::or_skip() else { return };
    let (caps, info) = format("NV12");
    let frame = noise(&info);
    let expected = gpu.bytes(&bench(&caps).tensor(frame.copy()));
    for memory in [UNIFIED, PINNED] {
        let picture = NvmmPicture::of(memory, &info, &frame);
        let pixels = picture.pixels();
        let address = gpu
            .context
            .with(|| {
                let mut address = 0u64;
                // SAFETY: writes an address of so many bytes, which the host may write too; freed below.
                unsafe {
                    match memory {
                        UNIFIED => sys::cuMemAllocManaged(&mut address, pixels.len(), 1),
                        _ => sys::cuMemHostAlloc((&raw mut address).cast(), pixels.len(), 0),
                    }
                    .result()
                    .unwrap();
                    std::ptr::copy_nonoverlapping(pixels.as_ptr(), address as *mut u8, pixels.len());
                }
                address
            })
            .unwrap();
        let mut bench = bench(&in_nvmm(&caps));
        let input = bench.tensor(picture.with("dataPtr", address).into_buffer());
        assert_eq!(gpu.bytes(&input), expected, "{memory}");
        drop((input, bench));
        // SAFETY: what reads it is done.
        let freed = gpu.context.with(|| unsafe {
            match memory {
                UNIFIED => sys::cuMemFree_v2(address),
                _ => sys::cuMemFreeHost(address as *mut _),
            }
        });
        freed.unwrap().result().unwrap();
        assert_eq!(counts(), (0, 0, 0), "nothing is mapped");
    }
}

#[test]
fn memory_that_the_gpu_cannot_read_is_refused() {
    let Some(gpu) = Gpu::or_skip() else { return };
    let (caps, info) = format("NV12");
    let picture = || NvmmPicture::new(DEVICE, &info);
    // More than a pool takes from CUDA at a time.
    let huge = picture().with("dataSize", 1 << 30).with("pitch[]", 1 << 24);
    let small = gpu.pool.take(4096).unwrap();
    let mut other = std::ptr::null_mut();
    let mut foreign = 0u64;
    // SAFETY: makes a context of another kind and memory in it, which are freed below.
    unsafe {
        sys::cuCtxCreate_v2(&mut other, 0, gpu.context.device()).result().unwrap();
        sys::cuMemAlloc_v2(&mut foreign, picture().pixels().len()).result().unwrap();
        sys::cuCtxPopCurrent_v2(&mut other).result().unwrap();
    }
    for (what, picture, part) in [
        ("memory of the host", picture(), "Cannot use a frame in NVMM memory"),
        ("less memory", huge.with("dataPtr", small.address()), "Cannot use a frame in NVMM memory"),
        ("another context", picture().with("dataPtr", foreign), "another CUDA context"),
        ("another GPU", picture().with("gpuId", 77), "Frames come from GPU 77"),
    ] {
        let mut bench = bench(&in_nvmm(&caps));
        assert_eq!(bench.harness.push(picture.into_buffer()), Err(gst::FlowError::Error), "{what}");
        let said = bench.said();
        assert!(said.len() == 1 && said[0].1.contains(part), "{what}: {said:?}");
        expect_nothing_open(what);
    }
    // SAFETY: as above; nothing uses them.
    unsafe {
        sys::cuCtxPushCurrent_v2(other).result().unwrap();
        sys::cuMemFree_v2(foreign).result().unwrap();
        sys::cuCtxDestroy_v2(other).result().unwrap();
    }
}
