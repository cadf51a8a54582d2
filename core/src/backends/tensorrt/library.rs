// SPDX-License-Identifier: MPL-2.0
//! Finds and opens TensorRT: the supported releases, the one on this machine, and its file names and versions.
//!
//! It is opened as [`dylib`] does it.

use std::ffi::{c_char, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use libloading::os::unix::Library as Dl;

use super::abi::{self, AbiVersion};
use super::header::Header;
use super::interfaces::{self, ErrorListener, Level, logger};
use super::version::{Product, Version};
use crate::cuda::driver;
use crate::dylib::{self, Attempts, LoadFailure, file_of, reason};
use crate::error::{Error, ErrorKind, Result};

/// Files of one release series.
struct Release {
    product: Product,
    major: u32,
    library: &'static str,
    parser: &'static str,
    /// RTX has no such library.
    plugins: Option<&'static str>,
}

const fn enterprise(major: u32, library: &'static str, parser: &'static str, plugins: &'static str) -> Release {
    Release { product: Product::TensorRt, major, library, parser, plugins: Some(plugins) }
}

/// In the order in which they are looked for, unless a plan needs another one.
static RELEASES: [Release; 4] = [
    enterprise(11, "libnvinfer.so.11", "libnvonnxparser.so.11", "libnvinfer_plugin.so.11"),
    enterprise(10, "libnvinfer.so.10", "libnvonnxparser.so.10", "libnvinfer_plugin.so.10"),
    enterprise(8, "libnvinfer.so.8", "libnvonnxparser.so.8", "libnvinfer_plugin.so.8"),
    Release {
        product: Product::Rtx,
        major: 1,
        library: "libtensorrt_rtx.so.1",
        parser: "libtensorrt_onnxparser_rtx.so.1",
        plugins: None,
    },
];

/// Runtimes without a builder, which run version-compatible plans only: taken where the user names them, not looked for.
const LEAN: [&str; 3] = ["libnvinfer_lean.so.11", "libnvinfer_lean.so.10", "libnvinfer_lean.so.8"];

/// The candidates for a plan: its own series first, then later ones, which run it if it was built version-compatible, then
/// the rest, whose errors name the plan's release. Without a plan all, newest first.
fn releases(plan: Option<&Header>) -> Vec<&'static Release> {
    let mut order: Vec<&Release> = RELEASES.iter().collect();
    if let Some(plan) = plan {
        let built = plan.version.major;
        order.sort_by_key(|candidate| {
            let other_product = candidate.product != plan.product;
            let older = candidate.major < built;
            (other_product, older, candidate.major.abs_diff(built))
        });
    }
    order
}

type GetVersion = unsafe extern "C" fn() -> i32;
type Create = unsafe extern "C-unwind" fn(logger: *mut c_void, version: i32) -> *mut c_void;
type CreateParser = unsafe extern "C-unwind" fn(network: *mut c_void, logger: *mut c_void, version: i32) -> *mut c_void;
type InitPlugins = unsafe extern "C-unwind" fn(logger: *mut c_void, namespace: *const c_char) -> bool;

/// An opened TensorRT.
pub struct Library {
    abi: AbiVersion,
    version: Version,
    /// As `getInferLibVersion` returns it, which the creating functions take.
    number: i32,
    /// The file that was loaded, if the loader knows it.
    path: PathBuf,
    create_runtime: Create,
    /// Lean runtimes have none.
    create_builder: Option<Create>,
    create_parser: OnceLock<Result<(CreateParser, i32)>>,
    plugins: OnceLock<()>,
}

/// All that were opened, each once.
static OPENED: Mutex<Vec<&'static Library>> = Mutex::new(Vec::new());

impl Library {
    /// Opens TensorRT: the file or the one in the folder that the user `chose`, else what the system's loader finds
    /// (LD_LIBRARY_PATH first), else what lies in the folders where pip and NVIDIA's archives put it. `plan` is what is to
    /// be run, and its release comes first.
    ///
    /// A library runs code as soon as it is loaded. This function is not `unsafe`, because the path is usually a
    /// setting of the user, and a caller could not check it; but the source of the path must be trusted like that of a
    /// program.
    ///
    /// # Errors
    /// `Library`, with every name that was tried and why it was not taken.
    pub fn open(chosen: Option<&Path>, plan: Option<&Header>) -> Result<&'static Library> {
        match chosen {
            Some(file) if !file.is_dir() => Library::open_file(file),
            Some(folder) => Library::open_in(folder, plan),
            None => Library::find(plan),
        }
    }

    fn open_file(file: &Path) -> Result<&'static Library> {
        // A bare name is for the loader to find.
        let plain = file.parent().is_none_or(|parent| parent.as_os_str().is_empty());
        if !plain && !file.exists() {
            return Err(Error::new(ErrorKind::NotFound, format!("There is no TensorRT library {}", file.display()))
                .remedy("Set trt-library to libnvinfer.so.10 or the like, or to the folder that holds it"));
        }
        Library::load(file).map_err(|failure| {
            Error::new(ErrorKind::Library, format!("Cannot use the TensorRT library {}", file.display()))
                .cause(failure)
                .remedy("Set trt-library to libnvinfer.so.10 or the like, of TensorRT 8.6, 10, 11 or TensorRT-RTX 1.3 or later")
        })
    }

    fn open_in(folder: &Path, plan: Option<&Header>) -> Result<&'static Library> {
        let mut tried = Attempts::default();
        let full = releases(plan).into_iter().map(|candidate| candidate.library);
        for name in full.chain(LEAN) {
            let file = folder.join(name);
            if file.exists() {
                match Library::load(&file) {
                    Ok(library) => return Ok(library),
                    Err(failure) => tried.add(name, failure),
                }
            } else {
                tried.add(name, LoadFailure::Absent("not in this folder".into()));
            }
        }
        Err(tried.error(format!("There is no usable TensorRT in {}", folder.display()), REMEDY))
    }

    fn find(plan: Option<&Header>) -> Result<&'static Library> {
        let mut tried = Attempts::default();
        for candidate in releases(plan) {
            match Library::load(Path::new(candidate.library)) {
                Ok(library) => return Ok(library),
                Err(failure) => tried.add(candidate.library, failure),
            }
        }
        let folders = usual_folders();
        for candidate in releases(plan) {
            for file in folders.iter().map(|folder| folder.join(candidate.library)).filter(|file| file.exists()) {
                match Library::load(&file) {
                    Ok(library) => return Ok(library),
                    Err(failure) => tried.add(&file.to_string_lossy(), failure),
                }
            }
        }
        Err(tried.error("Cannot find TensorRT".into(), REMEDY))
    }

    /// Opens one file, or finds it already open.
    fn load(file: &Path) -> std::result::Result<&'static Library, LoadFailure> {
        let mut opened = OPENED.lock().unwrap();
        // SAFETY: running the library's initialisation is what the user asks for; TensorRT's does nothing but set up.
        let dl = unsafe { dylib::open(file) }?;
        // SAFETY: if there are functions of these names, they are TensorRT's, which have had these types since 8.
        let (get_version, create_runtime, create_builder) = unsafe {
            (
                dl.get::<GetVersion>(c"getInferLibVersion"),
                dl.get::<Create>(c"createInferRuntime_INTERNAL"),
                dl.get::<Create>(c"createInferBuilder_INTERNAL"),
            )
        };
        let (Ok(get_version), Ok(create_runtime)) = (get_version, create_runtime) else {
            return Err(LoadFailure::Unusable("it is not TensorRT's core library".into()));
        };
        if let Some(library) = opened.iter().find(|known| std::ptr::fn_addr_eq(known.create_runtime, *create_runtime)) {
            return Ok(library);
        }
        // SAFETY: a function without arguments.
        let number = unsafe { get_version() };
        let (abi, mut version) = recognise(number).map_err(LoadFailure::Unusable)?;
        // SAFETY: as above; not there in 8.
        version.build = unsafe { dl.get::<GetVersion>(c"getInferLibBuildVersion").ok().map(|build| build() as u32) };
        let path = file_of(*create_runtime as *const c_void).unwrap_or_else(|| file.to_path_buf());
        let library = Library {
            abi,
            version,
            number,
            path,
            create_runtime: *create_runtime,
            create_builder: create_builder.ok().map(|create| *create),
            create_parser: OnceLock::new(),
            plugins: OnceLock::new(),
        };
        let library: &'static Library = Box::leak(Box::new(library));
        interfaces::log(Level::Info, &format!("Opened {library}"));
        opened.push(library);
        Ok(library)
    }

    pub fn abi(&self) -> AbiVersion {
        self.abi
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// The file that was loaded.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it can build engines; lean runtimes cannot.
    pub fn has_builder(&self) -> bool {
        self.create_builder.is_some()
    }

    /// "TensorRT 10.16.1.11" or "TensorRT-RTX 1.7.1.116".
    pub fn name(&self) -> String {
        let lean = if self.has_builder() { "" } else { " (lean)" };
        format!("{} {}{lean}", self.product(), self.version)
    }

    pub fn product(&self) -> Product {
        if self.abi.is_rtx() { Product::Rtx } else { Product::TensorRt }
    }

    fn candidate(&self) -> &'static Release {
        let rtx = self.abi.is_rtx();
        let own =
            |candidate: &&Release| (candidate.product == Product::Rtx) == rtx && candidate.major == self.version.major;
        RELEASES.iter().find(own).expect("the ABI version is one of a candidate's")
    }

    /// Without a driver, TensorRT 8 crashes here and 11 returns nonsense. RTX needs none until it runs something.
    fn check_driver(&self) -> Result<()> {
        if self.abi.is_rtx() {
            Ok(())
        } else {
            driver::available().map_err(|error| error.about(&format!("Cannot start {}", self.name())))
        }
    }

    /// # Errors
    /// `Library` where TensorRT or the driver does not start.
    pub fn runtime(&'static self) -> Result<abi::Runtime> {
        self.check_driver()?;
        self.register_plugins();
        let heard = ErrorListener::listen();
        // SAFETY: the logger is of this ABI version and stays; a driver is there where one is needed.
        let runtime = unsafe {
            let runtime = (self.create_runtime)(logger(self.abi), self.number);
            abi::Runtime::from_raw(runtime, self.abi)
        };
        runtime.ok_or_else(|| self.does_not_start(&heard))
    }

    /// # Errors
    /// `Library` where TensorRT or the driver does not start, or this is a lean runtime.
    pub fn builder(&'static self) -> Result<abi::Builder> {
        let Some(create) = self.create_builder else {
            return Err(Error::new(ErrorKind::Library, format!("{} only runs engines", self.name()))
                .cause(format!("{} is a lean runtime, without a builder", self.path.display()))
                .remedy("Give an .engine file, or set trt-library to the full libnvinfer"));
        };
        self.check_driver()?;
        self.register_plugins();
        let heard = ErrorListener::listen();
        // SAFETY: as in `runtime`.
        let builder = unsafe { abi::Builder::from_raw(create(logger(self.abi), self.number), self.abi) };
        builder.ok_or_else(|| self.does_not_start(&heard))
    }

    fn does_not_start(&self, heard: &ErrorListener) -> Error {
        let what = format!("{} does not start", self.name());
        match self.broken_part(&heard.words()) {
            Some((part, failure)) => {
                let remedy = match failure {
                    LoadFailure::ExecutableStack(_) => {
                        "Start the program with GLIBC_TUNABLES=glibc.rtld.execstack=2 in its environment, which glibc 2.41 \
                         and later need for TensorRT 8, or use TensorRT 10 or later"
                    }
                    _ => "Install all of its parts, of one release",
                };
                Error::new(ErrorKind::Library, what).cause(format!("{part} cannot be loaded: {failure}")).remedy(remedy)
            }
            None => heard.error(ErrorKind::Library, what).remedy(format!(
                "Check that the driver is new enough for it and that its parts in {} are of one release",
                self.folder().display()
            )),
        }
    }

    /// The library that TensorRT logged that it could not load, and why: TensorRT does not log the reason.
    fn broken_part(&self, words: &str) -> Option<(String, LoadFailure)> {
        let (_, name) = words.split_once("Unable to load library: ")?;
        let name = name.split([')', ';', ' ']).next()?;
        // SAFETY: TensorRT would have loaded it too.
        let tried = unsafe { dylib::open(&self.folder().join(name)) };
        Some((name.to_string(), tried.err()?))
    }

    /// The ONNX parser next to this library.
    ///
    /// # Safety
    /// The network is of this library, and outlives the parser; the parser outlives all builds of the network.
    ///
    /// # Errors
    /// `Library` where there is none, or it needs what is missing.
    pub unsafe fn parser(&'static self, network: &abi::Network) -> Result<abi::Parser> {
        let (create, number) = self.create_parser.get_or_init(|| self.open_parser()).clone()?;
        let heard = ErrorListener::listen();
        // SAFETY: network and logger are of this ABI version.
        let parser = unsafe { abi::Parser::from_raw(create(network.as_raw(), logger(self.abi), number), self.abi) };
        parser.ok_or_else(|| self.does_not_start(&heard))
    }

    fn open_parser(&self) -> Result<(CreateParser, i32)> {
        // The parser of 8 needs this library, and finds it where it is open already.
        self.register_plugins();
        let name = self.candidate().parser;
        let failed = |reason: String| {
            Error::new(ErrorKind::Library, format!("{} cannot read ONNX here", self.name()))
                .cause(format!("its parser {name} does not load: {reason}"))
                .remedy(format!(
                    "Install the parser of the same release next to {}, with what it needs",
                    self.path.display()
                ))
        };
        let dl = self.open_part(name).map_err(failed)?;
        // SAFETY: functions of these names are the parser's, which have had these types since 8.
        unsafe {
            let create = dl.get::<CreateParser>(c"createNvOnnxParser_INTERNAL");
            let number = dl.get::<GetVersion>(c"getNvOnnxParserVersion").map_or(0, |version| version());
            Ok((*create.map_err(|error| failed(reason(error)))?, number))
        }
    }

    /// Models and plans may use TensorRT's own plugins. Once they are registered here they are for all; without them, other
    /// models still run.
    fn register_plugins(&self) {
        let Some(name) = self.candidate().plugins.filter(|_| self.has_builder()) else { return };
        self.plugins.get_or_init(|| {
            let registered = self.open_part(name).and_then(|dl| {
                // SAFETY: it has had this type since 8.
                let init = unsafe { dl.get::<InitPlugins>(c"initLibNvInferPlugins") }.map_err(reason)?;
                // SAFETY: the logger is of this ABI version and stays.
                match unsafe { init(logger(self.abi), c"".as_ptr()) } {
                    true => Ok(()),
                    false => Err("it does not start".into()),
                }
            });
            if let Err(reason) = registered {
                let line = format!("Models that use TensorRT's plugins will not run; {name} does not load: {reason}");
                interfaces::log(Level::Warning, &line);
            }
        });
    }

    /// Opens another library of the same release: the one next to this, else the one that the system has.
    fn open_part(&self, name: &str) -> std::result::Result<ManuallyDrop<Dl>, String> {
        let neighbour = self.folder().join(name);
        let file = if neighbour.exists() { neighbour } else { PathBuf::from(name) };
        // SAFETY: as in `load`.
        unsafe { dylib::open(&file) }.map_err(|failure| failure.to_string())
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.name(), self.path.display())
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Library({self})")
    }
}

/// Family and version of the result of `getInferLibVersion`. The error is the reason alone.
fn recognise(number: i32) -> std::result::Result<(AbiVersion, Version), String> {
    let number = u32::try_from(number).unwrap_or(0);
    let version = match number {
        // Up to 8 majors count thousands, later ones and RTX's ten thousands; so the two products never meet.
        ..10_000 => Version { major: number / 1000, minor: number / 100 % 10, patch: number % 100, build: None },
        _ => Version { major: number / 10_000, minor: number / 100 % 100, patch: number % 100, build: None },
    };
    let abi = match (version.major, version.minor) {
        (8, 6) => AbiVersion::V8,
        (10, _) => AbiVersion::V10,
        (11, _) => AbiVersion::V11,
        (1, 3..=4) => AbiVersion::RtxOld,
        (1, 5..) => AbiVersion::RtxNew,
        _ => {
            return Err(format!(
                "its version {version} is not supported, but TensorRT 8.6, 10 and 11 and TensorRT-RTX 1.3 and later are"
            ));
        }
    };
    // RTX has changed its interface within a major version before.
    if abi == AbiVersion::RtxNew && version.minor > NEWEST_RTX {
        let line = format!("TensorRT-RTX {version} is newer than any that was tried, 1.{NEWEST_RTX}");
        interfaces::log(Level::Warning, &line);
    }
    Ok((abi, version))
}

/// Minor version of the newest TensorRT-RTX whose interface was checked.
const NEWEST_RTX: u32 = 7;

const REMEDY: &str = "Install TensorRT 8.6, 10, 11 or TensorRT-RTX, or point to it with trt-library or \
                      LD_LIBRARY_PATH; pip puts it into site-packages/tensorrt_libs";

/// Every TensorRT that [`Library::open`] would find, opened; where one cannot be, its name and why. Those that are not
/// there are left out.
pub fn installed() -> Vec<std::result::Result<&'static Library, (PathBuf, String)>> {
    let names = || RELEASES.iter().map(|release| release.library);
    let by_loader = names().map(PathBuf::from);
    let folders = usual_folders();
    let by_folder =
        folders.iter().flat_map(|folder| names().map(|name| folder.join(name))).filter(|file| file.exists());
    let mut found: Vec<std::result::Result<&'static Library, _>> = Vec::new();
    for file in by_loader.chain(by_folder) {
        match Library::load(&file) {
            Ok(library) if found.iter().flatten().any(|known| std::ptr::eq(*known, library)) => {}
            Ok(library) => found.push(Ok(library)),
            Err(LoadFailure::Absent(_)) => {}
            Err(failure) => found.push(Err((file, failure.to_string()))),
        }
    }
    found
}

/// Where pip and NVIDIA's archives put TensorRT, which the system's loader does not search.
fn usual_folders() -> Vec<PathBuf> {
    // The last is where wheels of 8.6 have it.
    let wheels = ["tensorrt_libs", "tensorrt_rtx_libs", "tensorrt"];
    let packages = dylib::python_packages();
    let mut folders: Vec<PathBuf> =
        packages.iter().flat_map(|packages| wheels.map(|name| packages.join(name))).collect();
    folders.extend(dylib::unpacked_archives("tensorrt"));
    folders.retain(|folder| folder.is_dir());
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_families() {
        let known = [
            (8600, AbiVersion::V8, "8.6.0"),
            (8601, AbiVersion::V8, "8.6.1"),
            (100001, AbiVersion::V10, "10.0.1"),
            (101601, AbiVersion::V10, "10.16.1"),
            (110400, AbiVersion::V11, "11.4.0"),
            (10300, AbiVersion::RtxOld, "1.3.0"),
            (10400, AbiVersion::RtxOld, "1.4.0"),
            (10500, AbiVersion::RtxNew, "1.5.0"),
            (10701, AbiVersion::RtxNew, "1.7.1"),
            (11200, AbiVersion::RtxNew, "1.12.0"),
        ];
        for (number, abi, text) in known {
            let (found, version) = recognise(number).unwrap();
            assert_eq!((found, version.to_string().as_str()), (abi, text));
        }
        for (number, text) in
            [(8503, "8.5.3"), (7203, "7.2.3"), (10200, "1.2.0"), (120000, "12.0.0"), (90100, "9.1.0"), (-1, "0.0.0")]
        {
            let reason = recognise(number).unwrap_err();
            assert!(reason.contains(&format!("version {text} is not supported")), "{reason}");
        }
    }

    fn plan(product: Product, major: u32) -> Header {
        Header::of(product, Version { major, minor: 0, patch: 0, build: Some(1) })
    }

    #[test]
    fn a_plan_selects_its_release() {
        let order =
            |plan: Option<Header>| releases(plan.as_ref()).iter().map(|candidate| candidate.major).collect::<Vec<_>>();
        assert_eq!(order(None), [11, 10, 8, 1]);
        assert_eq!(order(Some(plan(Product::TensorRt, 8))), [8, 10, 11, 1]);
        assert_eq!(order(Some(plan(Product::TensorRt, 10))), [10, 11, 8, 1]);
        assert_eq!(order(Some(plan(Product::Rtx, 1))), [1, 8, 10, 11]);
    }

    #[test]
    fn other_libraries_are_refused() {
        let error = Library::open(Some(Path::new("libc.so.6")), None).unwrap_err();
        assert!(error.message().contains("it is not TensorRT's core library"), "{error}");
        let error = Library::open(Some(Path::new("/nowhere/libnvinfer.so.10")), None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let empty = crate::test::scratch("no-tensorrt");
        let error = Library::open(Some(&empty), None).unwrap_err();
        assert!(error.cause_text().contains("libnvinfer_lean.so.8: not in this folder"), "{}", error.cause_text());
    }
}
