// SPDX-License-Identifier: MPL-2.0
//! If any call of the driver fails, work that was enqueued before is waited for, so that no memory is released while it is in use. The
//! driver and TensorRT are those of tests/fakes, and need no GPU.

use std::ffi::{CStr, c_char, c_int, c_long};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::{env, fs};

use libloading::Library;

use crate::backends::options::Options;
use crate::backends::{BackendPreference, LoadContext, LoadRequest, ModelInstance};
use crate::core::cuda::driver::{Context, Stream};
use crate::core::dtype::DType;
use crate::core::error::Result;
use crate::core::memory::{DeviceBlock, DevicePool};
use crate::core::tensor::{Tensor, TensorDesc, Tensors};
use crate::heads::{Decoder, ModelHints, Thresholds, end_to_end};
use crate::image::device::DevicePlane;
use crate::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use crate::image::preprocess::device::DevicePreprocessor;
use crate::postprocess::suppress::Nms;
use crate::postprocess::suppress::device::DeviceDecoder;

/// The fakes of this process.
struct Fakes {
    folder: PathBuf,
    driver: Library,
}

impl Fakes {
    /// Runs a test again, in a process that loads the fakes instead of the driver and TensorRT. They are there in that process alone.
    fn of(test: &str) -> Option<Self> {
        const FOLDER: &str = "GSTTRT_FAKES";
        if let Some(folder) = env::var_os(FOLDER) {
            // SAFETY: it is the fake driver, which does nothing when it is loaded.
            let driver = unsafe { Library::new("libcuda.so") }.unwrap();
            return Some(Fakes { folder: folder.into(), driver });
        }
        let folder = env::temp_dir().join(format!("gsttrt-fakes-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes");
        let compile = |source: &str, library: &str, needed: &[&str]| {
            let mut cc = Command::new("cc");
            cc.args(["-shared", "-fPIC", "-std=gnu11", "-o", library]).arg(format!("-Wl,-soname,{library}"));
            cc.arg(sources.join(source)).args(needed).current_dir(&folder);
            assert!(cc.status().unwrap().success(), "{source}");
        };
        compile("cuda.c", "libcuda.so", &[]);
        compile("tensorrt.c", "libnvinfer.so.10", &["-L.", "-lcuda"]);
        let mut again = Command::new(env::current_exe().unwrap());
        let (_, module) = module_path!().split_once("::").unwrap();
        again.args(["--exact", &format!("{module}::{test}"), "--nocapture"]);
        let others = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let paths = env::join_paths([folder.clone()].into_iter().chain(env::split_paths(&others))).unwrap();
        let output = again.env(FOLDER, &folder).env("LD_LIBRARY_PATH", paths).output().unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        println!("{said}");
        None
    }

    fn context(&self) -> Context {
        let context = Context::primary(0).unwrap();
        assert_eq!(context.device_name().unwrap(), "Fake");
        context
    }

    /// Lets the call after so many fail; none with -1.
    fn fail(&self, after: c_long) {
        // SAFETY: of this type in tests/fakes/cuda.c.
        unsafe { self.driver.get::<unsafe extern "C" fn(c_long)>(c"fake_fail").unwrap()(after) }
    }

    fn has_failed(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.driver.get::<unsafe extern "C" fn() -> c_int>(c"fake_has_failed").unwrap()() != 0 }
    }

    fn last_call(&self) -> String {
        // SAFETY: as above; the text is a constant.
        let text = unsafe {
            CStr::from_ptr(self.driver.get::<unsafe extern "C" fn() -> *const c_char>(c"fake_last_call").unwrap()())
        };
        text.to_str().unwrap().into()
    }

    fn count(&self, what: &CStr) -> c_long {
        // SAFETY: as above.
        unsafe { self.driver.get::<unsafe extern "C" fn() -> c_long>(what).unwrap()() }
    }

    /// Does some work again and again, and lets one call of the driver fail each time, until each has. What the work gives is dropped.
    fn each_call_fails<T>(&self, what: &str, mut work: impl FnMut() -> Result<T>) {
        let mut errors = 0;
        for after in 0.. {
            self.fail(after);
            let outcome = work().map(drop);
            let (has_failed, call) = (self.has_failed(), self.last_call());
            self.fail(-1);
            assert_eq!(self.count(c"fake_pending"), 0, "{what}: nothing has waited where {call} failed: {outcome:?}");
            assert_eq!(self.count(c"fake_busy_frees"), 0, "{what}: memory was freed too early where {call} failed");
            if !has_failed {
                outcome.unwrap();
                println!("{what}: {after} calls, {errors} errors");
                assert!(errors > 0);
                return;
            }
            errors += usize::from(outcome.is_err());
        }
    }
}

fn block(context: &Context, bytes: usize) -> DeviceBlock {
    DevicePool::new(context).take(bytes).unwrap()
}

#[test]
fn making_tensors() {
    let Some(fakes) = Fakes::of("making_tensors") else { return };
    let context = fakes.context();
    let spec = "cuda f32 1x3x32x32 nchw rgb letterbox:114 scale:0.003921569 images".parse().unwrap();
    let new = || DevicePreprocessor::new(&context, PixelFormat::Nv12, (64, 48), Colorimetry::default(), &spec);
    let bytes = vec![128; 64 * 48 * 3 / 2];
    let (luma, chroma) = bytes.split_at(64 * 48);
    let planes = [luma, chroma].map(|data| Plane { data, stride: 64 });
    let frame = Frame { format: PixelFormat::Nv12, width: 64, height: 48, planes: planes.into_iter().collect() };
    let mut preprocessor = new().unwrap();
    fakes.each_call_fails("a frame of the host", || preprocessor.of_host(&frame));
    let memory = block(&context, bytes.len());
    let planes = [0, 64 * 48].map(|offset| DevicePlane { address: memory.address() + offset, stride: 64 });
    // SAFETY: the planes are of such a frame, and stay.
    fakes.each_call_fails("a frame of the GPU", || unsafe { preprocessor.of_gpu(&planes) });
    fakes.each_call_fails("the first frame", || new()?.of_host(&frame));
}

#[test]
fn finding_boxes() {
    let Some(fakes) = Fakes::of("finding_boxes") else { return };
    let context = fakes.context();
    let desc = TensorDesc::new("output0", DType::F32, &[1, 8, 6]);
    let output = Tensor::on_device(desc.clone(), block(&context, desc.bytes().unwrap()));
    let hints = ModelHints { input: Some((64, 64)), classes: Some(2), ..ModelHints::default() };
    let decoder = Decoder::new(Some(&end_to_end::HEAD), &[desc], &hints).unwrap();
    let (stream, nms) = (Arc::new(Stream::new(&context).unwrap()), Nms::new(0.5, 8, false));
    // What a frame that failed has enqueued is waited for by the next one, or by the drop.
    fakes.each_call_fails("a frame", || {
        let mut device = DeviceDecoder::new(&context, &decoder)?;
        device.launch(&stream, &[&output], &Thresholds::new(vec![0.5, 0.5], 0.5), &nms)?;
        device.detections().map(drop)
    });
    let mut device = DeviceDecoder::new(&context, &decoder).unwrap();
    fakes.each_call_fails("the frame after one that failed", || {
        let mut launch = |threshold| {
            device.launch(&stream, &[&output], &Thresholds::new(vec![threshold; 2], threshold), &nms)?;
            device.detections().map(drop)
        };
        let failed = launch(0.25);
        launch(0.5).and(failed)
    });
}

/// The engine of tests/fakes/tensorrt.c.
fn load(fakes: &Fakes, context: &Context, batch: usize) -> Result<Box<dyn ModelInstance>> {
    let mut plan = [0; 64];
    plan[..4].copy_from_slice(b"ftrt");
    (plan[16], plan[24], plan[25]) = (64, 10, 16);
    let file = fakes.folder.join("any.engine");
    fs::write(&file, plan).unwrap();
    let tensorrt = BackendPreference::Named("tensorrt");
    let request = LoadRequest::new(&file, tensorrt, None, batch, Options::default(), || Ok(context.clone()))?;
    request.load(&LoadContext::silent())
}

#[test]
fn running_engines() {
    let Some(fakes) = Fakes::of("running_engines") else { return };
    let context = fakes.context();
    let desc = TensorDesc::new("images", DType::F32, &[1, 3, 8, 8]);
    let picture = || {
        let tensor = Tensor::on_device(desc.clone(), DevicePool::new(&context).take(desc.bytes().unwrap())?);
        Ok(Arc::new(Tensors::new(vec![tensor], None, None)))
    };
    let pictures = [(); 2].map(|()| picture().unwrap());
    let (stream, output) = (Stream::new(&context).unwrap(), block(&context, desc.bytes().unwrap()));
    for batch in [1, 2] {
        let mut model = load(&fakes, &context, batch).unwrap();
        for count in 1..=batch {
            // Runs are counted, captured and launched, behind one of a picture that is new.
            for run in ["first", "second", "third"] {
                let what = format!("the {run} runs of {count} pictures, a batch has {batch}");
                fakes.each_call_fails(&what, || Ok([model.run(&[picture()?])?, model.run(&pictures[..count])?]));
            }
        }
        for stream in [None, Some(stream.raw())] {
            let address = pictures[0][0].device().unwrap().address();
            // SAFETY: the memory has the tensors' sizes and stays; the stream is of this context.
            let mut run = || unsafe { model.run_at(address, &[output.address()], stream) }?.wait();
            fakes.each_call_fails(&format!("a caller's memory, stream {}", stream.is_some()), &mut run);
        }
        fakes.each_call_fails("loading", || load(&fakes, &context, batch));
    }
}
