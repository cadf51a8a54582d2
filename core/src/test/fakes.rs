// SPDX-License-Identifier: MPL-2.0
//! A driver and a TensorRT for tests, which need no GPU.

use std::ffi::{CStr, c_char, c_int, c_long};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use libloading::Library;

use crate::cuda::driver::Context;
use crate::error::Result;
use crate::test::{library, scratch};

/// CUDA and TensorRT of tests/fakes, which need no GPU.
pub(crate) struct Fakes {
    pub folder: PathBuf,
    driver: Library,
    tensorrt: Library,
}

impl Fakes {
    /// Runs a test again, in a process that finds the fakes in place of the driver and TensorRT. They are there in that
    /// process alone.
    pub fn of(module: &str, test: &str) -> Option<Self> {
        Fakes::with(module, test, &[], &[])
    }

    /// The same with a driver that GStreamer's CUDA library takes too, for so many GPUs.
    pub fn for_gstreamer(module: &str, test: &str, gpus: u32) -> Option<Self> {
        Fakes::with(module, test, &["gstcuda.c"], &[("GSTTRT_FAKE_GPUS", &gpus.to_string())])
    }

    fn with(module: &str, test: &str, more: &[&str], environment: &[(&str, &str)]) -> Option<Self> {
        const FOLDER: &str = "GSTTRT_FAKES";
        if let Some(folder) = env::var_os(FOLDER) {
            // SAFETY: they are the fakes, which do nothing when they are loaded.
            let [driver, tensorrt] =
                ["libcuda.so", "libnvinfer.so.10"].map(|name| unsafe { Library::new(name) }.unwrap());
            return Some(Fakes { folder: folder.into(), driver, tensorrt });
        }
        let folder = scratch(&format!("fakes-{test}"));
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("tests/fakes"));
        let sources = sources.into_iter().find(|folder| folder.is_dir()).expect("tests run in a checkout");
        let driver: Vec<PathBuf> = ["cuda.c"].iter().chain(more).map(|file| sources.join(file)).collect();
        library(&folder, "libcuda.so", &driver, &[]);
        // GStreamer's CUDA library looks for this name. It needs more than cuda.c has, and so stays out, also where there
        // is a driver, unless it is given that.
        std::os::unix::fs::symlink("libcuda.so", folder.join("libcuda.so.1")).unwrap();
        library(&folder, "libnvinfer.so.10", &[sources.join("tensorrt.c")], &["-L.", "-lcuda"]);
        let mut again = Command::new(env::current_exe().unwrap());
        let (_, module) = module.split_once("::").unwrap();
        again.args(["--exact", &format!("{module}::{test}"), "--nocapture"]);
        let others = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let paths = env::join_paths([folder.clone()].into_iter().chain(env::split_paths(&others))).unwrap();
        again.envs(environment.iter().copied());
        // Verdicts on engines are not kept in the user's cache; what GStreamer knows of its plugins is there as usual.
        let caches = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let caches = caches.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache"))).unwrap_or_default();
        let usual = caches.join(format!("gstreamer-1.0/registry.{}.bin", env::consts::ARCH));
        // Plugins are not looked at again: nvcodec, with the fake driver and a real decoder, may not come back.
        let registry = env::var_os("GST_REGISTRY").unwrap_or(usual.into());
        again.env("XDG_CACHE_HOME", &folder).env("GST_REGISTRY", registry);
        let output = again.env(FOLDER, &folder).env("LD_LIBRARY_PATH", paths).output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        println!("{said}");
        None
    }

    pub fn context(&self) -> Context {
        let context = Context::primary(0).unwrap();
        assert_eq!(context.device_name().unwrap(), "Fake");
        context
    }

    /// Lets the call after so many fail; none with -1.
    pub fn fail(&self, after: c_long) {
        // SAFETY: of this type in tests/fakes/cuda.c.
        unsafe { self.driver.get::<unsafe extern "C" fn(c_long)>(c"fake_fail").unwrap()(after) }
    }

    /// The GPU is lost with that error: at once with 0, at TensorRT's next run with -1, else with so many pieces of work.
    pub fn break_gpu(&self, error: c_int, after: c_long) {
        // SAFETY: as above.
        unsafe { self.driver.get::<unsafe extern "C" fn(c_int, c_long)>(c"fake_break").unwrap()(error, after) }
    }

    /// The primary context is refused with that error; with 0 it is not.
    pub fn refuse_contexts(&self, error: c_int) {
        // SAFETY: as above.
        unsafe { self.driver.get::<unsafe extern "C" fn(c_int)>(c"fake_refuse_contexts").unwrap()(error) }
    }

    /// How often a lost GPU was used by those who knew.
    pub fn calls_when_dead(&self) -> c_long {
        self.count(c"fake_calls_when_dead")
    }

    /// Whether work that is queued from now on waits.
    pub fn stick(&self, stuck: bool) {
        // SAFETY: as above.
        unsafe { self.driver.get::<unsafe extern "C" fn(c_long)>(c"fake_stick").unwrap()(stuck.into()) }
    }

    /// So many allocations find no memory.
    pub fn lack(&self, allocations: c_long) {
        // SAFETY: as above.
        unsafe { self.driver.get::<unsafe extern "C" fn(c_long)>(c"fake_lack").unwrap()(allocations) }
    }

    pub fn has_failed(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.driver.get::<unsafe extern "C" fn() -> c_int>(c"fake_has_failed").unwrap()() != 0 }
    }

    pub fn last_call(&self) -> String {
        // SAFETY: as above; the text is a constant.
        let text = unsafe {
            CStr::from_ptr(self.driver.get::<unsafe extern "C" fn() -> *const c_char>(c"fake_last_call").unwrap()())
        };
        text.to_str().unwrap().into()
    }

    /// Says that there are so many bytes of a GPU's memory, of its primary context or of another one.
    pub fn memory(&self, start: *const u8, bytes: usize, device: c_int, is_of_another: bool) {
        let name = c"fake_memory";
        // SAFETY: as above.
        unsafe {
            let say = self.driver.get::<unsafe extern "C" fn(*const u8, usize, c_int, c_int)>(name).unwrap();
            say(start, bytes, device, is_of_another.into())
        }
    }

    pub fn count(&self, what: &CStr) -> c_long {
        // SAFETY: as above.
        unsafe { self.driver.get::<unsafe extern "C" fn() -> c_long>(what).unwrap()() }
    }

    /// Does some work again and again, and lets one call of the driver fail each time, until each has. What the work
    /// gives is dropped.
    pub fn each_call_fails<T>(&self, what: &str, mut work: impl FnMut() -> Result<T>) {
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

    /// Writes an engine for the fake TensorRT.
    pub fn engine(&self) -> PathBuf {
        self.engine_named("any.engine", false)
    }

    /// The same with that name. One that is quick is deserialised at once, even where others wait.
    pub fn engine_named(&self, name: &str, is_quick: bool) -> PathBuf {
        let mut plan = [0; 64];
        plan[..4].copy_from_slice(b"ftrt");
        (plan[16], plan[24], plan[25], plan[63]) = (64, 10, 16, is_quick.into());
        self.written(name, &plan)
    }

    /// An engine with an input of so many numbers in addition to the picture. Its runs fail where the first one is below 0.
    pub fn engine_with_values(&self, count: u8) -> PathBuf {
        let mut plan = fs::read(self.engine_named("values.engine", true)).unwrap();
        plan[61] = count;
        self.written("values.engine", &plan)
    }

    /// The same with two profiles, of which the second one takes so many numbers.
    pub fn engine_with_profiles(&self, count: u8) -> PathBuf {
        let mut plan = fs::read(self.engine_with_values(count)).unwrap();
        plan[60] = 2;
        self.written("profiles.engine", &plan)
    }

    /// In one step: an element may be reading what the file was before.
    fn written(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let (file, unfinished) = (self.folder.join(name), self.folder.join("unfinished"));
        fs::write(&unfinished, bytes).unwrap();
        fs::rename(&unfinished, &file).unwrap();
        file
    }

    /// An engine for pictures whose sides are 32 or 64, and which says that any multiple of 32 will do.
    pub fn open_engine(&self) -> PathBuf {
        let file = self.engine_named("open.engine", false);
        let mut plan = fs::read(&file).unwrap();
        plan[62] = 1;
        let metadata = br#"{"stride": 32, "imgsz": [64, 64], "task": "detect"}"#;
        let prefix = (metadata.len() as u32).to_le_bytes();
        self.written("open.engine", &[&prefix[..], metadata, &plan].concat())
    }

    /// Whether deserialising an engine waits.
    pub fn hold(&self, hold: bool) {
        // SAFETY: of this type in tests/fakes/tensorrt.c.
        unsafe { self.tensorrt.get::<unsafe extern "C" fn(c_long)>(c"fake_hold").unwrap()(hold.into()) }
    }

    /// Whether it fails.
    pub fn refuse(&self, refuse: bool) {
        // SAFETY: as above.
        unsafe { self.tensorrt.get::<unsafe extern "C" fn(c_long)>(c"fake_refuse").unwrap()(refuse.into()) }
    }

    /// What is wrong with outputs, by the number that tests/fakes/tensorrt.c has for it.
    pub fn wrong(&self, kind: c_long) {
        // SAFETY: as above.
        unsafe { self.tensorrt.get::<unsafe extern "C" fn(c_long)>(c"fake_wrong").unwrap()(kind) }
    }

    /// Returns once so many engines have been asked for, and says how many.
    pub fn engines(&self, at_least: c_long) -> c_long {
        // SAFETY: as above.
        unsafe { self.tensorrt.get::<unsafe extern "C" fn(c_long) -> c_long>(c"fake_engines").unwrap()(at_least) }
    }
}
