// SPDX-License-Identifier: MPL-2.0
//! Finds and opens ONNX Runtime, as [`dylib`] does it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use super::super::log::{Level, log};
use super::abi::{API_VERSION, OrtApi, OrtApiBase, OrtEnv};
use crate::dylib::{self, LibrarySearch, LoadFailure, file_of};
use crate::error::Result;

const REMEDY: &str = "Install ONNX Runtime 1.18 or later (pip install onnxruntime, or Microsoft's archive unpacked in \
                      /opt), activate the virtual environment that has it, or point to its libonnxruntime.so with ort-library or ORT_DYLIB_PATH";

/// By the variable of the environment with which programs in Rust are told where it is.
static SEARCH: LibrarySearch = LibrarySearch {
    title: "ONNX Runtime",
    variable: "ORT_DYLIB_PATH",
    names: &["libonnxruntime.so.1", "libonnxruntime.so"],
    folders: installed,
    files: files_in,
    remedy: REMEDY,
};

/// An opened ONNX Runtime.
pub struct OrtLibrary {
    pub api: OrtApi,
    env: NonNull<OrtEnv>,
    version: String,
    path: PathBuf,
    /// What it can run models with, as it spells them.
    providers: Vec<String>,
}

// SAFETY: a table of functions, and an environment that all threads may use.
unsafe impl Send for OrtLibrary {}
// SAFETY: as above.
unsafe impl Sync for OrtLibrary {}

/// All that were opened, each once.
static OPENED: Mutex<Vec<(usize, &'static OrtLibrary)>> = Mutex::new(Vec::new());

impl OrtLibrary {
    /// # Errors
    /// As [`LibrarySearch::open`].
    pub fn open(chosen: Option<&Path>) -> Result<&'static OrtLibrary> {
        SEARCH.open(chosen, OrtLibrary::load)
    }

    /// Opens one file, or finds it already open.
    fn load(file: &Path) -> std::result::Result<&'static OrtLibrary, LoadFailure> {
        let mut opened = OPENED.lock().unwrap();
        // SAFETY: running the library's initialisation is what the user asks for; ONNX Runtime's does nothing but set up.
        let dl = unsafe { dylib::open(file) }?;
        // SAFETY: if there is a function of this name, it is ONNX Runtime's, which has had this type since 1.0.
        let base = unsafe { dl.get::<unsafe extern "C" fn() -> *const OrtApiBase>(c"OrtGetApiBase") };
        let Ok(get_base) = base else { return Err(LoadFailure::Unusable("it is not ONNX Runtime".into())) };
        let address = *get_base as usize;
        if let Some((_, library)) = opened.iter().find(|(known, _)| *known == address) {
            return Ok(library);
        }
        // SAFETY: the base has these two functions in all releases. The second prints a line for versions that it does
        // not have, so the first is asked before.
        let (api, version) = unsafe {
            let base = &*get_base();
            let version = CStr::from_ptr((base.version)()).to_string_lossy().into_owned();
            if minor(&version).is_none_or(|minor| minor < API_VERSION) {
                let reason = format!("its version {version} is not supported, but 1.{API_VERSION} and later are");
                return Err(LoadFailure::Unusable(reason));
            }
            let table = (base.api)(API_VERSION);
            if table.is_null() {
                return Err(LoadFailure::Unusable(format!("its version {version} has no C API of 1.{API_VERSION}")));
            }
            (OrtApi::read(table), version)
        };
        let unusable = |failure: super::abi::OrtFailure| LoadFailure::Unusable(failure.0);
        let env = environment(&api).map_err(unusable)?;
        let providers = available_providers(&api).map_err(unusable)?;
        let path = file_of(address as *const c_void).unwrap_or_else(|| file.to_path_buf());
        let library: &'static OrtLibrary = Box::leak(Box::new(OrtLibrary { api, env, version, path, providers }));
        log(Level::Info, &format!("Opened {library}; execution providers: {}", library.providers.join(", ")));
        opened.push((address, library));
        Ok(library)
    }

    /// Lives as long as the process.
    pub fn env(&self) -> *const OrtEnv {
        self.env.as_ptr()
    }

    pub fn providers(&self) -> &[String] {
        &self.providers
    }

    /// "ONNX Runtime 1.32.0".
    pub fn name(&self) -> String {
        format!("ONNX Runtime {}", self.version)
    }
}

impl fmt::Display for OrtLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.name(), self.path.display())
    }
}

impl fmt::Debug for OrtLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OrtLibrary({self})")
    }
}

/// Of a version like 1.32.0, where that is one of the series 1.
fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("1.")?.split('.').next()?.parse().ok()
}

/// Where pip and Microsoft's archives put it.
fn installed() -> Vec<PathBuf> {
    let packages = dylib::python_packages().into_iter().map(|packages| packages.join("onnxruntime/capi"));
    packages.chain(dylib::unpacked_archives("onnxruntime")).collect()
}

/// Wheels have the library under its full version.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    dylib::entries(folder, |name| name.starts_with("libonnxruntime.so"))
}

/// The environment of all sessions, of which the library has one. It is never released: a run that does not end may use it.
fn environment(api: &OrtApi) -> std::result::Result<NonNull<OrtEnv>, super::abi::OrtFailure> {
    const WARNING: c_int = 2;
    let mut env = ptr::null_mut();
    // SAFETY: the texts live during the call, the function as long as the process.
    unsafe {
        let status =
            (api.create_env_with_custom_logger)(log_line, ptr::null_mut(), WARNING, c"gsttrt".as_ptr(), &mut env);
        api.check(status)?;
    }
    NonNull::new(env).ok_or_else(|| super::abi::OrtFailure("it has no environment".into()))
}

fn available_providers(api: &OrtApi) -> std::result::Result<Vec<String>, super::abi::OrtFailure> {
    let (mut names, mut count) = (ptr::null_mut(), 0);
    // SAFETY: it writes a list of so many C strings, which is given back once they are copied.
    unsafe {
        api.check((api.get_available_providers)(&mut names, &mut count))?;
        let name = |i: usize| CStr::from_ptr(*names.add(i)).to_string_lossy().into_owned();
        let copied = (0..usize::try_from(count).unwrap_or(0)).map(name).collect();
        api.check((api.release_available_providers)(names, count))?;
        Ok(copied)
    }
}

unsafe extern "C" fn log_line(
    _: *mut c_void,
    severity: c_int,
    _: *const c_char,
    _: *const c_char,
    _: *const c_char,
    message: *const c_char,
) {
    let level = match severity {
        0 => Level::Verbose,
        1 => Level::Info,
        2 => Level::Warning,
        _ => Level::Error,
    };
    // SAFETY: messages are C strings that live as long as this call.
    log(level, unsafe { CStr::from_ptr(message) }.to_string_lossy().trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_of_the_series_1() {
        let known = [("1.18.0", Some(18)), ("1.32.0", Some(32)), ("1.20", Some(20)), ("2.0.0", None), ("", None)];
        for (text, expected) in known {
            assert_eq!(minor(text), expected, "{text}");
        }
    }

    #[test]
    fn other_libraries_are_refused() {
        let error = OrtLibrary::open(Some(Path::new("libc.so.6"))).unwrap_err();
        assert!(error.message().contains("it is not ONNX Runtime"), "{error}");
        let error = OrtLibrary::open(Some(Path::new("/nowhere/libonnxruntime.so"))).unwrap_err();
        assert!(
            error.message().contains("/nowhere/libonnxruntime.so") && error.message().contains("pip install"),
            "{error}"
        );
        let empty = crate::test::scratch("no-onnxruntime");
        let error = OrtLibrary::open(Some(&empty)).unwrap_err();
        assert!(error.message().contains("no usable ONNX Runtime in"), "{error}");
    }
}
