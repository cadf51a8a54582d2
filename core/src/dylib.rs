// SPDX-License-Identifier: MPL-2.0
//! What is common to the libraries that are found at run time: where they may lie, how they are opened, and what an
//! error says where none is found.
//!
//! A library that was opened stays open until the process ends: they keep threads and objects of their own. It is
//! opened lazily and for itself alone (RTLD_LAZY, RTLD_LOCAL), so that parts which are not used need nothing, and two
//! releases in one process do not take each other's symbols.

use std::error::Error as _;
use std::ffi::{CStr, c_void};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library as Dl, RTLD_LAZY, RTLD_LOCAL};

use crate::error::{Error, ErrorKind};

/// Opens a file, or what the system's loader finds under a bare name. It is never closed.
///
/// # Safety
/// Running the initialisation of that library is safe.
pub unsafe fn open(file: &Path) -> Result<ManuallyDrop<Dl>, LoadFailure> {
    wait_for_disk(file);
    // SAFETY: the caller's promise.
    let dl = in_english(|| unsafe { Dl::open(Some(file), RTLD_LAZY | RTLD_LOCAL) });
    dl.map(ManuallyDrop::new).map_err(|error| LoadFailure::of_loader(file, reason(error)))
}

/// What the loader says is looked at, so it says it in English, whatever language the program has chosen.
fn in_english<T>(load: impl FnOnce() -> T) -> T {
    // SAFETY: the name ends with a zero, and there is no locale that another one is made of.
    let english = unsafe { libc::newlocale(libc::LC_ALL_MASK, c"C".as_ptr(), ptr::null_mut()) };
    // SAFETY: it is of this thread until the other one is again; where there is none, nothing changes.
    let before = unsafe { libc::uselocale(english) };
    let loaded = load();
    // SAFETY: as above, and nobody uses it any more.
    unsafe {
        libc::uselocale(before);
        if !english.is_null() {
            libc::freelocale(english);
        }
    }
    loaded
}

/// Reads the beginning of the file. The loader holds a lock while it does so, which each new thread of the process needs, so
/// a disk that does not answer is waited for before. What is wrong with the file, the loader says better.
fn wait_for_disk(file: &Path) {
    let is_bare_name = file.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    if !is_bare_name && let Ok(mut file) = File::open(file) {
        let _ = file.read(&mut [0; 64]);
    }
}

/// The loader's own words.
pub fn reason(error: libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| source.to_string())
}

/// Why a library was not loaded, with the reason as text.
pub enum LoadFailure {
    /// There is no such file.
    Absent(String),
    /// It wants an executable stack, which glibc 2.41 and later refuse.
    ExecutableStack(String),
    /// It is there, but cannot be loaded or is not supported.
    Unusable(String),
}

impl LoadFailure {
    /// The loader returns nothing but a text. One about another file means that a dependency is missing, not `file`.
    pub fn of_loader(file: &Path, reason: String) -> Self {
        let name = file.file_name().and_then(|name| name.to_str());
        let is_of_file = name.is_none_or(|name| reason.contains(name));
        if reason.contains("executable stack") {
            LoadFailure::ExecutableStack(reason)
        } else if reason.contains("No such file") && is_of_file {
            LoadFailure::Absent(reason)
        } else {
            LoadFailure::Unusable(reason)
        }
    }
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (LoadFailure::Absent(reason) | LoadFailure::ExecutableStack(reason) | LoadFailure::Unusable(reason)) = self;
        f.write_str(reason)
    }
}

/// What was tried, and why it was not taken.
#[derive(Default)]
pub struct Attempts(Vec<(String, LoadFailure)>);

impl Attempts {
    pub fn add(&mut self, name: &str, failure: LoadFailure) {
        self.0.push((name.to_string(), failure));
    }

    /// `remedy` says what to install.
    #[track_caller]
    pub fn error(self, what: String, remedy: &str) -> Error {
        let names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        // A file that is there but cannot be used comes first.
        let found = self.0.iter().find(|(_, failure)| !matches!(failure, LoadFailure::Absent(_)));
        let headline = match found {
            Some((name, reason)) => format!("{what}: {name} cannot be used, {reason}"),
            None => format!("{what} (tried {})", names.join(", ")),
        };
        let reasons: Vec<String> = self.0.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
        // Its line break keeps the list out of the message, see `Error::message`.
        Error::new(ErrorKind::Library, headline).cause(format!("tried\n{}", reasons.join("\n"))).remedy(remedy)
    }
}

/// How a library is looked for: the file, or the one in the folder, that the user chose or that the environment names, else what the
/// system's loader finds, else what lies in the folders where it is usually installed.
///
/// A library runs code as soon as it is loaded: the source of the path must be trusted like that of a program.
pub struct LibrarySearch {
    /// Its name, in messages.
    pub title: &'static str,
    /// The variable of the environment that names it.
    pub variable: &'static str,
    /// What the system's loader may know it as.
    pub names: &'static [&'static str],
    /// The folders where it is usually installed.
    pub folders: fn() -> Vec<PathBuf>,
    /// What may be it in a folder.
    pub files: fn(&Path) -> Vec<PathBuf>,
    /// What to install, for errors.
    pub remedy: &'static str,
}

impl LibrarySearch {
    /// The first file that `load` takes.
    ///
    /// # Errors
    /// `Library`, with every name that was tried and why it was not taken.
    pub fn open<L>(&self, chosen: Option<&Path>, load: impl Fn(&Path) -> Result<L, LoadFailure>) -> Result<L, Error> {
        let named = || std::env::var_os(self.variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        match chosen.map(Path::to_path_buf).or_else(named) {
            Some(folder) if folder.is_dir() => {
                let what = format!("There is no usable {} in {}", self.title, folder.display());
                self.first((self.files)(&folder), what, load)
            }
            Some(file) => load(&file).map_err(|failure| {
                let what = format!("Cannot use the {} library {}", self.title, file.display());
                Error::new(ErrorKind::Library, what).cause(failure).remedy(self.remedy)
            }),
            None => {
                let installed = (self.folders)().into_iter().flat_map(|folder| (self.files)(&folder));
                let files = self.names.iter().map(PathBuf::from).chain(installed);
                self.first(files, format!("Cannot find {}", self.title), load)
            }
        }
    }

    fn first<L>(
        &self,
        files: impl IntoIterator<Item = PathBuf>,
        what: String,
        load: impl Fn(&Path) -> Result<L, LoadFailure>,
    ) -> Result<L, Error> {
        let mut tried = Attempts::default();
        for file in files {
            match load(&file) {
                Ok(library) => return Ok(library),
                Err(failure) => tried.add(&file.to_string_lossy(), failure),
            }
        }
        Err(tried.error(what, self.remedy))
    }
}

/// The folders in which pip puts packages: of the virtual environment, of the user, and of the system.
pub fn python_packages() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os).map(PathBuf::from).collect();
    roots.extend(std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local")));
    roots.extend(["/usr/local", "/usr"].map(PathBuf::from));
    let pythons = roots.iter().flat_map(|root| entries(&root.join("lib"), |name| name.starts_with("python3")));
    pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name))).collect()
}

/// Folders `lib` of archives that were unpacked where administrators do so, and whose name begins with that, in lower case.
pub fn unpacked_archives(name: &str) -> Vec<PathBuf> {
    let archives = ["/opt", "/usr/local"].map(Path::new).into_iter();
    let archives = archives.flat_map(|root| newest_first(root, |entry| entry.to_lowercase().starts_with(name)));
    archives.map(|archive| archive.join("lib")).collect()
}

/// What is in a folder under names that are wanted, the newest release first. A name without a number comes before them: who has
/// made that link or folder means it.
pub fn newest_first(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut paths = entries(folder, is_wanted);
    paths.sort_by_key(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let parts = name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u64>().ok());
        let numbers: Vec<u64> = parts.collect();
        (!numbers.is_empty(), std::cmp::Reverse(numbers))
    });
    paths
}

/// What is in a folder under names that are wanted, sorted.
pub fn entries(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let wanted = entries.filter(|entry| is_wanted(&entry.file_name().to_string_lossy()));
    let mut paths: Vec<PathBuf> = wanted.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The file that an address was loaded from.
#[allow(clippy::not_unsafe_ptr_arg_deref)] // dladdr compares the address, it reads nothing there
pub fn file_of(address: *const c_void) -> Option<PathBuf> {
    // SAFETY: writes into the structure, whose zeros mean nothing; the name it points at stays while the file is loaded.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let name = CStr::from_ptr(info.dli_fname).to_str().ok()?;
        Some(Path::new(name).canonicalize().unwrap_or_else(|_| name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs in a process of its own, which chooses a language as gst-launch-1.0 does.
    #[test]
    fn a_missing_library_is_missing_in_any_language() {
        const IS_GERMAN: &str = "GSTTRT_TEST_GERMAN";
        if std::env::var_os(IS_GERMAN).is_none() {
            let mut test = std::process::Command::new(std::env::current_exe().unwrap());
            test.args(["--exact", "dylib::tests::a_missing_library_is_missing_in_any_language", "--nocapture"]);
            let output = test.env(IS_GERMAN, "1").env("LC_ALL", "C.UTF-8").env("LANGUAGE", "de").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
            return println!("{said}");
        }
        // SAFETY: no other thread of this process asks for the language now.
        unsafe { libc::setlocale(libc::LC_ALL, c"".as_ptr()) };
        let file = Path::new("libnowhere.so.1");
        // SAFETY: there is none.
        let said = || unsafe { Dl::open(Some(file), RTLD_LAZY) }.map(drop).map_err(reason).unwrap_err();
        let before = said();
        if before.contains("No such file") {
            return println!("SKIP: the system speaks English alone");
        }
        // SAFETY: as above.
        let failure = unsafe { open(file) }.err().unwrap();
        assert!(matches!(failure, LoadFailure::Absent(_)), "{failure}");
        assert_eq!(said(), before, "the language is that of the program");
    }

    #[test]
    fn the_newest_release_comes_first() {
        let folder = crate::test::scratch("dylib-releases");
        for name in ["TensorRT-10.3.0.26", "TensorRT-10.13.3.9", "TensorRT-8.6.1.6", "tensorrt", "other-99"] {
            std::fs::create_dir(folder.join(name)).unwrap();
        }
        let found = newest_first(&folder, |name| name.to_lowercase().starts_with("tensorrt"));
        let names = ["tensorrt", "TensorRT-10.13.3.9", "TensorRT-10.3.0.26", "TensorRT-8.6.1.6"];
        assert_eq!(found, names.map(|name| folder.join(name)));
    }

    #[test]
    fn a_missing_library_is_named() {
        let missing = |name: &str, file: &str| {
            let reason = format!("{file}: cannot open shared object file: No such file or directory");
            LoadFailure::of_loader(Path::new(name), reason)
        };
        let mut tried = Attempts::default();
        tried.add("libnvinfer.so.11", missing("libnvinfer.so.11", "libnvinfer.so.11"));
        let error = tried.error("Cannot find TensorRT".into(), "Install it");
        assert!(error.message().starts_with("Cannot find TensorRT (tried libnvinfer.so.11). Install it"), "{error}");

        let mut tried = Attempts::default();
        tried.add("libnvinfer.so.11", missing("libnvinfer.so.11", "libnvinfer.so.11"));
        tried.add("/x/libnvinfer.so.10", missing("/x/libnvinfer.so.10", "libcudart.so.12"));
        let error = tried.error("Cannot find TensorRT".into(), "Install it");
        assert!(
            error.message().contains("/x/libnvinfer.so.10 cannot be used, libcudart.so.12: cannot open"),
            "{error}"
        );
        assert!(error.cause_text().contains("libnvinfer.so.11: "), "{}", error.cause_text());
        let reason = "libnvinfer_builder_resource.so.8: cannot enable executable stack as shared object requires";
        let failure = LoadFailure::of_loader(Path::new("libnvinfer_builder_resource.so.8"), reason.into());
        assert!(matches!(failure, LoadFailure::ExecutableStack(_)), "{failure}");
    }
}
