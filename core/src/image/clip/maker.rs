// SPDX-License-Identifier: MPL-2.0
//! The tensors of several frames as the tensor of a clip: on the host, and on a GPU with the same result in every bit, by
//! `kernels/clip.cu`.

use std::sync::Arc;

use super::MAX_FRAMES;
use crate::cuda::driver::{Context, Function, Launch, Stream, StreamRole};
use crate::cuda::kernels::CLIP;
use crate::error::{Error, ErrorKind, Result};
use crate::image::transform::{InputSpec, TensorLayout};
use crate::memory::{BatchPool, Pool};
use crate::tensor::{Tensor, TensorDesc, Tensors};

/// Threads of a block, as in the kernel.
const THREADS: u32 = 256;
/// More blocks of a chunk than this do not copy faster.
const MAX_BLOCKS: u32 = 256;

/// Bytes that a thread copies at once, the most first: there is a kernel for each.
const UNITS: [u64; 3] = [16, 4, 1];

/// Puts clips together; made for one kind of them, and one context.
pub struct ClipMaker {
    /// Of a clip, and of a frame.
    desc: TensorDesc,
    frame: TensorDesc,
    layout: ClipLayout,
    memory: ClipMemory,
}

/// How frames lie in a clip: a chunk of each frame is followed by that of the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClipLayout {
    frames: usize,
    /// Of a frame: one of each channel, or one of all.
    chunks: usize,
    /// Bytes of a chunk.
    bytes: usize,
}

/// Where clips are made.
enum ClipMemory {
    Host(Pool),
    Device(Box<ClipKernel>),
}

struct ClipKernel {
    // Drop order: the stream first, which waits for the work that uses the rest.
    stream: Stream,
    /// By the bytes that a thread copies at once.
    functions: [(u64, Function); UNITS.len()],
    slots: BatchPool,
}

/// `ClipParams` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct ClipParams {
    frames: [u64; MAX_FRAMES],
    clip: u64,
    /// Of a chunk: what a thread copies at once.
    units: u32,
    count: u32,
}

const _: () = assert!(size_of::<ClipParams>() == 2064);

impl ClipMaker {
    /// For clips of `spec`; on the GPU of that context, if any.
    ///
    /// # Errors
    /// `Negotiation`, where it is of no clip, or of one with too many frames; `Run`, where the GPU fails.
    pub fn new(context: Option<&Context>, spec: &InputSpec) -> Result<Self> {
        let (desc, frame) = (spec.desc.clone(), spec.of_frame().desc);
        let count = spec.frames().and_then(|frames| usize::try_from(frames).ok());
        let count = count.filter(|count| (1..=MAX_FRAMES).contains(count));
        let (Some(frames), Some(all), Some(bytes)) = (count, desc.bytes(), frame.bytes()) else {
            return Err(Error::new(ErrorKind::Negotiation, format!("Cannot make the tensor {desc} of several frames"))
                .cause(format!("a clip has from 1 to {MAX_FRAMES} frames"))
                .remedy("Set frames on trtpreprocess to as many as the model was trained with"));
        };
        let chunks = if spec.order == TensorLayout::Ncthw { spec.chw().0.max(1) } else { 1 };
        let layout = ClipLayout { frames, chunks, bytes: bytes / chunks };
        let memory = match context {
            Some(context) => ClipMemory::Device(Box::new(ClipKernel::new(context, all)?)),
            None => ClipMemory::Host(Pool::default()),
        };
        Ok(ClipMaker { desc, frame, layout, memory })
    }

    /// Makes clips in these slots from now on, if they have the size and the context.
    pub fn use_slots(&mut self, slots: BatchPool) {
        if let ClipMemory::Device(kernel) = &mut self.memory
            && slots.context() == kernel.slots.context()
            && slots.bytes() == kernel.slots.bytes()
        {
            kernel.slots = slots;
        }
    }

    /// The tensor of a clip of these frames, the oldest first. On a GPU the work is queued, and the clip keeps what it reads.
    ///
    /// # Errors
    /// `WrongType`, where they are not the frames of such a clip, or lie elsewhere; `Run`, where there is no memory, or the GPU fails.
    pub fn make(&self, frames: &[Arc<Tensors>]) -> Result<Tensors> {
        let ClipMaker { desc, frame, layout, memory } = self;
        let is_one = |tensors: &Arc<Tensors>| {
            let [tensor] = &tensors[..] else { return false };
            (tensor.desc().dtype, &tensor.desc().dims) == (frame.dtype, &frame.dims)
        };
        if frames.len() != layout.frames || !frames.iter().all(is_one) {
            let (wanted, given) = (layout.frames, frames.len());
            return Err(wrong(format!("it is made of {wanted} frames of {frame}, and {given} are given")));
        }
        match memory {
            ClipMemory::Host(pool) => {
                let tensor = Tensor::fill(pool, desc.clone(), |bytes| layout.fill(frames, bytes))?;
                Ok(Tensors::new(vec![tensor], None, None))
            }
            ClipMemory::Device(kernel) => kernel.make(desc, layout, frames),
        }
    }
}

impl ClipLayout {
    /// On the host.
    fn fill(&self, frames: &[Arc<Tensors>], clip: &mut [u8]) -> Result<()> {
        let ClipLayout { bytes, chunks, frames: count } = *self;
        for (number, frame) in frames.iter().enumerate() {
            let from = frame[0].bytes().ok_or_else(|| wrong("a frame is in GPU memory, and the clip is not".into()))?;
            for chunk in 0..chunks {
                let to = (chunk * count + number) * bytes;
                clip[to..][..bytes].copy_from_slice(&from[chunk * bytes..][..bytes]);
            }
        }
        Ok(())
    }
}

impl ClipParams {
    /// For the kernel of the most bytes that all chunks begin with a multiple of; says how many these are.
    fn new(layout: &ClipLayout, frames: [u64; MAX_FRAMES], clip: u64) -> (u64, Self) {
        let bytes = layout.bytes as u64;
        let all = frames.iter().fold(bytes | clip, |all, address| all | address);
        let unit = UNITS.into_iter().find(|unit| all.is_multiple_of(*unit)).unwrap_or(1);
        (unit, ClipParams { frames, clip, units: (bytes / unit) as u32, count: layout.frames as u32 })
    }
}

impl ClipKernel {
    fn new(context: &Context, bytes: usize) -> Result<Self> {
        let module = context.module(CLIP)?;
        Ok(ClipKernel {
            stream: Stream::of(context, StreamRole::Preprocess)?,
            functions: [
                (UNITS[0], module.function("clip_16")?),
                (UNITS[1], module.function("clip_4")?),
                (UNITS[2], module.function("clip_1")?),
            ],
            slots: BatchPool::new(context, bytes, 1),
        })
    }

    fn make(&self, desc: &TensorDesc, layout: &ClipLayout, frames: &[Arc<Tensors>]) -> Result<Tensors> {
        let ClipKernel { stream, functions, slots } = self;
        let clip = slots.take()?;
        let mut addresses = [0; MAX_FRAMES];
        for (address, frame) in addresses.iter_mut().zip(frames) {
            let memory = frame[0].device().filter(|memory| memory.context() == stream.context());
            let memory =
                memory.ok_or_else(|| wrong("a frame is not in the memory of the clip's GPU context".into()))?;
            *address = memory.address();
        }
        let (unit, params) = ClipParams::new(layout, addresses, clip.address());
        let (_, function) = functions.iter().find(|(of, _)| *of == unit).expect("there is one for each");
        let blocks = params.units.div_ceil(THREADS).clamp(1, MAX_BLOCKS);
        let shape =
            Launch { grid: (blocks, (layout.chunks * layout.frames) as u32, 1), block: (THREADS, 1, 1), shared: 0 };

        // The clip keeps what it is made of.
        let kept: Vec<Tensor> = frames.iter().flat_map(|frame| frame.iter().map(Tensor::share)).collect();
        let queued = stream.queuing();
        stream.wait_for_all(frames.iter().filter_map(|frame| frame.ready()))?;
        let begin = stream.begin_timing();
        // SAFETY: the kernel takes these parameters. Each frame has the bytes of its description, which the caller compared, and the
        // slot those of the clip; both stay until the fence is passed.
        unsafe { stream.launch(function, shape, &params) }?;
        stream.end_timing(begin);
        let ready = queued.record()?;
        let kept = Arc::new(Tensors::new(kept, Some(ready.clone()), None));
        Ok(Tensors::new(vec![Tensor::on_device(desc.clone(), clip)], Some(ready), Some(kept)))
    }
}

fn wrong(cause: String) -> Error {
    Error::new(ErrorKind::WrongType, "Cannot put a clip together").cause(cause)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use libloading::Library;

    use super::*;
    use crate::dtype::DType;
    use crate::fakes::Fakes;
    use crate::memory::DevicePool;
    use crate::tensor::Dims;
    use crate::test::scratch;

    fn spec(text: &str) -> InputSpec {
        format!("cpu {text} rgb stretch:0 scale:1 clip").parse().unwrap()
    }

    fn of_bytes(desc: &TensorDesc, bytes: &[u8]) -> Arc<Tensors> {
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(bytes);
            Ok(())
        };
        Arc::new(Tensors::new(vec![Tensor::fill(&Pool::default(), desc.clone(), fill).unwrap()], None, None))
    }

    /// Two frames of 2x1 pixels, whose elements are 10 and more, and 20 and more, in their order.
    fn two(spec: &InputSpec) -> [Arc<Tensors>; 2] {
        let desc = spec.of_frame().desc;
        [10, 20].map(|first| of_bytes(&desc, &[0, 1, 2, 3, 4, 5].map(|element| first + element)))
    }

    #[test]
    fn frames_lie_as_the_order_says() {
        for (text, wanted) in [
            ("u8 1x3x2x1x2 ncthw", [10, 11, 20, 21, 12, 13, 22, 23, 14, 15, 24, 25]),
            ("u8 1x2x3x1x2 ntchw", [10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25]),
            ("u8 1x2x1x2x3 nthwc", [10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25]),
        ] {
            let spec = spec(text);
            let clip = ClipMaker::new(None, &spec).unwrap().make(&two(&spec)).unwrap();
            assert_eq!(clip[0].bytes().unwrap(), wanted, "{text}");
            assert_eq!(clip[0].desc(), &spec.desc);
        }
    }

    #[test]
    fn what_is_no_clip_is_refused() {
        let clip = spec("u8 1x2x3x1x2 ntchw");
        let frames = two(&clip);
        let maker = ClipMaker::new(None, &clip).unwrap();
        let error = maker.make(&frames[..1]).err().unwrap();
        assert!(error.message().contains("made of 2 frames of clip u8 1x3x1x2, and 1 are given"), "{error}");
        let other = of_bytes(&TensorDesc { dims: Dims::new(&[1, 3, 2, 1]), ..clip.of_frame().desc }, &[0; 6]);
        assert_eq!(maker.make(&[frames[0].clone(), other]).err().unwrap().kind(), ErrorKind::WrongType);
        assert!(maker.make(&frames).is_ok(), "it stays usable");
        for text in ["u8 1x3x4x4 nchw", "u8 1x3x257x1x1 ncthw", "u8 1x3x?x4x4 ncthw"] {
            let error = ClipMaker::new(None, &spec(text)).err().unwrap();
            assert!(error.message().contains("from 1 to 256 frames"), "{error}");
        }
    }

    #[test]
    fn clips_on_the_gpu_are_those_of_the_host() {
        let Some(context) = crate::test::gpu() else { return };
        for text in [
            "f32 1x3x16x112x112 ncthw",
            "f16 1x8x3x7x9 ntchw",
            "f16 1x3x5x7x9 ncthw",
            "u8 1x3x3x5x7 ncthw",
            "u8 1x256x2x2x3 nthwc",
            "f32 1x1x4x3x5 ncthw",
        ] {
            let colors = if text.starts_with("f32 1x1x") { "gray" } else { "rgb" };
            let spec: InputSpec = format!("cuda {text} {colors} stretch:0 scale:1 clip").parse().unwrap();
            let desc = spec.of_frame().desc;
            let bytes = desc.bytes().unwrap();
            let count = spec.frames().unwrap() as usize;
            let frame = |number: usize| (0..bytes).map(|at| (at * 31 + number * 101) as u8).collect::<Vec<u8>>();
            let on_host: Vec<_> = (0..count).map(|number| of_bytes(&desc, &frame(number))).collect();
            let pool = DevicePool::new(&context);
            let on_gpu = |number: usize| {
                let mut block = pool.take(bytes).unwrap();
                block.write(&frame(number)).unwrap();
                Arc::new(Tensors::new(vec![Tensor::on_device(desc.clone(), block)], None, None))
            };
            let on_gpu: Vec<_> = (0..count).map(on_gpu).collect();
            let wanted = ClipMaker::new(None, &spec).unwrap().make(&on_host).unwrap();
            let made = ClipMaker::new(Some(&context), &spec).unwrap().make(&on_gpu).unwrap();
            drop(on_gpu);
            made.wait().unwrap();
            assert!(made[0].device().unwrap().read().unwrap() == wanted[0].bytes().unwrap(), "{text}");
        }
    }

    /// The kernels as functions, by a C++ compiler (tests/fakes/kernels.cuh): `None` where there is none.
    fn compiled() -> Option<Library> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = scratch("clip-kernel");
        std::fs::copy(root.join("../tests/fakes/kernels.cuh"), folder.join("common.cuh")).unwrap();
        std::fs::copy(root.join("kernels/clip.cu"), folder.join("clip.cpp")).unwrap();
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++17", "-O1", "-shared", "-fPIC", "-w", "clip.cpp", "-o", "clip.so"]);
        match compiler.current_dir(&folder).status() {
            Ok(status) => assert!(status.success(), "{status}"),
            Err(error) => {
                println!("SKIP: the C++ compiler c++ cannot be started: {error}");
                return None;
            }
        }
        // SAFETY: it has nothing but the functions.
        Some(unsafe { Library::new(folder.join("clip.so")) }.unwrap())
    }

    #[test]
    fn the_kernels_lay_frames_as_the_host_does() {
        let Some(kernels) = compiled() else { return };
        // SAFETY: of that type in tests/fakes/kernels.cuh.
        let set_thread = unsafe { kernels.get::<extern "C" fn(u32, u32)>("set_thread") }.unwrap();
        for (chunks, count, bytes, unit) in
            [(3, 4, 64, 16), (1, 3, 48, 16), (3, 2, 20, 4), (3, 5, 7, 1), (1, 256, 16, 16)]
        {
            let layout = ClipLayout { frames: count, chunks, bytes };
            let desc = TensorDesc::new("frame", DType::U8, &[(chunks * bytes) as i64]);
            let content =
                |number: usize| (0..chunks * bytes).map(|at| (at * 7 + number * 13) as u8).collect::<Vec<u8>>();
            // Memory that begins at multiples of 16.
            let aligned = |bytes: &[u8]| {
                let mut words = vec![0u128; bytes.len().div_ceil(16)];
                bytemuck::cast_slice_mut::<u128, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
                words
            };
            let frames: Vec<Vec<u128>> = (0..count).map(|number| aligned(&content(number))).collect();
            let mut made = aligned(&vec![0; count * chunks * bytes]);
            let mut addresses = [0; MAX_FRAMES];
            addresses.iter_mut().zip(&frames).for_each(|(address, frame)| *address = frame.as_ptr() as u64);
            let (chosen, params) = ClipParams::new(&layout, addresses, made.as_mut_ptr() as u64);
            assert_eq!(chosen, unit);
            let name = format!("clip_{unit}");
            // SAFETY: the kernel takes these parameters, and the memory in them is there.
            let kernel = unsafe { kernels.get::<extern "C" fn(ClipParams)>(name.as_str()) }.unwrap();
            for (part, thread) in (0..chunks * count).flat_map(|part| (0..THREADS).map(move |thread| (part, thread))) {
                set_thread(thread, part as u32);
                kernel(params);
            }
            let on_host: Vec<_> = (0..count).map(|number| of_bytes(&desc, &content(number))).collect();
            let mut wanted = vec![0; count * chunks * bytes];
            layout.fill(&on_host, &mut wanted).unwrap();
            assert!(bytemuck::cast_slice::<u128, u8>(&made)[..wanted.len()] == wanted[..], "{layout:?}");
        }
    }

    /// What is queued is waited for where a call fails, and the frames stay until they are read.
    #[test]
    fn clips_wait_for_their_work() {
        let Some(fakes) = Fakes::of(module_path!(), "clips_wait_for_their_work") else { return };
        let context = fakes.context();
        let spec: InputSpec = "cuda f32 1x3x4x8x8 ncthw rgb stretch:0 scale:1 clip".parse().unwrap();
        let desc = spec.of_frame().desc;
        let pool = DevicePool::new(&context);
        let frame = || {
            let block = pool.take(desc.bytes().unwrap()).unwrap();
            Arc::new(Tensors::new(vec![Tensor::on_device(desc.clone(), block)], None, None))
        };
        let frames: Vec<_> = (0..4).map(|_| frame()).collect();
        let maker = ClipMaker::new(Some(&context), &spec).unwrap();
        fakes.each_call_fails("a clip", || maker.make(&frames));
        let clips = [(); 3].map(|()| maker.make(&frames).unwrap());
        drop(frames);
        drop(clips);
        assert_eq!(fakes.count(c"fake_pending"), 0);
        fakes.each_call_fails("the first clip", || {
            let frames = [(); 4].map(|()| frame());
            ClipMaker::new(Some(&context), &spec)?.make(&frames)
        });
    }
}
