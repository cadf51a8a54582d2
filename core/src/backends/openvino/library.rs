// SPDX-License-Identifier: MPL-2.0
//! Finds and opens OpenVINO, as [`dylib`] does it.

use std::ffi::{CString, c_int};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Mutex;

use super::super::log::{Level, log};
use super::abi::{OvApi, OvCore, OvDevices, OvFailure, OvObject, OvShape, OvVersion, copied};
use crate::dylib::{self, LibrarySearch, LoadFailure, entries, file_of, newest_first};
use crate::error::Result;
use crate::tensor::DType;

const REMEDY: &str = "Install OpenVINO 2024.3 or later (pip install openvino, or Intel's archive unpacked in \
                      /opt/intel), activate the virtual environment that has it, or point to its libopenvino_c.so with \
                      openvino-library or INTEL_OPENVINO_DIR";

/// By the variable of the environment that OpenVINO's own setupvars.sh sets.
static SEARCH: LibrarySearch = LibrarySearch {
    title: "OpenVINO",
    variable: "INTEL_OPENVINO_DIR",
    names: &["libopenvino_c.so"],
    folders: installed,
    files: files_in,
    remedy: REMEDY,
};

/// An opened OpenVINO.
pub struct OvLibrary {
    pub api: OvApi,
    core: OvObject<OvCore>,
    version: String,
    path: PathBuf,
    numbers: TypeNumbers,
}

/// All that were opened, each once.
static OPENED: Mutex<Vec<(usize, &'static OvLibrary)>> = Mutex::new(Vec::new());

impl OvLibrary {
    /// # Errors
    /// As [`LibrarySearch::open`].
    pub fn open(chosen: Option<&Path>) -> Result<&'static OvLibrary> {
        SEARCH.open(chosen, OvLibrary::load)
    }

    /// Opens one file, or finds it already open.
    fn load(file: &Path) -> std::result::Result<&'static OvLibrary, LoadFailure> {
        let mut opened = OPENED.lock().unwrap();
        // SAFETY: running the library's initialisation is what the user asks for; OpenVINO's does nothing but set up.
        let dl = unsafe { dylib::open(file) }?;
        // SAFETY: no other library has functions of these names.
        let api = unsafe { OvApi::read(&dl) }.map_err(|missing| {
            LoadFailure::Unusable(format!("it is not OpenVINO 2024.3 or later: it has no function {missing}"))
        })?;
        let address = api.core_create as usize;
        if let Some((_, library)) = opened.iter().find(|(known, _)| *known == address) {
            return Ok(library);
        }
        let unusable = |failure: OvFailure| LoadFailure::Unusable(failure.0);
        let version = version(&api).map_err(unusable)?;
        // SAFETY: the functions make and release such objects.
        let core = unsafe { api.make(api.core_free, |made| (api.core_create)(made)) }.map_err(unusable)?;
        let numbers = TypeNumbers::of(&api).ok_or_else(|| {
            LoadFailure::Unusable(format!("the types of its version {version} have other numbers than are known here"))
        })?;
        let path = file_of(address as *const _).unwrap_or_else(|| file.to_path_buf());
        let library: &'static OvLibrary = Box::leak(Box::new(OvLibrary { api, core, version, path, numbers }));
        log(Level::Info, &format!("Opened {library}"));
        opened.push((address, library));
        Ok(library)
    }

    /// Lives as long as the process.
    pub fn core(&self) -> *const OvCore {
        self.core.as_ptr()
    }

    /// "OpenVINO 2026.4.0".
    pub fn name(&self) -> String {
        format!("OpenVINO {}", self.version)
    }

    /// Its number of a type.
    pub fn number(&self, dtype: DType) -> c_int {
        self.numbers.of_type(dtype)
    }

    /// The devices that it finds here, such as CPU and GPU. Takes some time, since it looks for all of them.
    pub fn devices(&self) -> Vec<String> {
        let mut devices = OvDevices { names: ptr::null_mut(), count: 0 };
        // SAFETY: it writes so many C strings, which are given back once they are copied.
        unsafe {
            if self.api.check((self.api.core_get_available_devices)(self.core(), &mut devices)).is_err() {
                return Vec::new();
            }
            let names = (0..devices.count).map(|i| copied(*devices.names.add(i))).collect();
            (self.api.available_devices_free)(&mut devices);
            names
        }
    }

    /// What a device is, such as the model of the CPU.
    pub fn device_name(&self, device: &str) -> String {
        let (name, key) = (text(device), c"FULL_DEVICE_NAME");
        let api = &self.api;
        // SAFETY: the texts live during the call, which writes one that is ours.
        let said = unsafe { api.text(|made| (api.core_get_property)(self.core(), name.as_ptr(), key.as_ptr(), made)) };
        said.unwrap_or_else(|_| device.to_string())
    }
}

impl fmt::Display for OvLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.name(), self.path.display())
    }
}

impl fmt::Debug for OvLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OvLibrary({self})")
    }
}

/// Texts with a zero byte end there.
pub fn text(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).expect("it has no zero byte")
}

/// Where pip, Intel's archives and packages of distributions put it.
fn installed() -> Vec<PathBuf> {
    let packages = dylib::python_packages().into_iter().map(|packages| packages.join("openvino/libs"));
    let archives = newest_first(Path::new("/opt/intel"), |name| name.starts_with("openvino"));
    let system = ["/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
    packages.chain(archives).chain(system.map(PathBuf::from)).collect()
}

/// Wheels have the library under its version alone, and archives in a folder for each kind of CPU.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let inner = entries(&folder.join("runtime/lib"), |_| true);
    let folders = std::iter::once(folder.to_path_buf()).chain(inner);
    folders.flat_map(|folder| entries(&folder, |name| name.starts_with("libopenvino_c.so"))).collect()
}

/// "2026.4.0" of "2026.4.0-20123-abcdef".
fn version(api: &OvApi) -> std::result::Result<String, OvFailure> {
    let mut version = OvVersion { build: ptr::null(), description: ptr::null() };
    // SAFETY: it writes two C strings, which are given back once one is copied.
    unsafe {
        api.check((api.get_openvino_version)(&mut version))?;
        let build = copied(version.build);
        (api.version_free)(&mut version);
        Ok(build.split('-').next().unwrap_or_default().to_string())
    }
}

/// The numbers of types. Releases count them from 1 or from 2 on, and have put some among the integers without a sign.
struct TypeNumbers {
    bool: c_int,
    u8: c_int,
}

impl TypeNumbers {
    /// The first type of a byte is the boolean one, and the first behind the integers with a sign is u8. `None` where others
    /// have other sizes than they should.
    fn of(api: &OvApi) -> Option<Self> {
        const MOST: c_int = 32;
        let first_of_a_byte = |from: c_int| (from..MOST).find(|&number| bytes_of_eight(api, number) == Some(8));
        let bool = first_of_a_byte(0)?;
        let mut numbers = TypeNumbers { bool, u8: bool };
        numbers.u8 = first_of_a_byte(numbers.of_type(DType::I64) + 1)?;
        let is_as_said = |dtype: &DType| bytes_of_eight(api, numbers.of_type(*dtype)) == Some(8 * dtype.size());
        DType::ALL.iter().all(is_as_said).then_some(numbers)
    }

    /// `ov_element_type_e`: bool, bf16, f16, f32, f64, i4, i8, i16, i32, i64 follow each other.
    fn of_type(&self, dtype: DType) -> c_int {
        match dtype {
            DType::Bool => self.bool,
            DType::F16 => self.bool + 2,
            DType::F32 => self.bool + 3,
            DType::I8 => self.bool + 6,
            DType::I32 => self.bool + 8,
            DType::I64 => self.bool + 9,
            DType::U8 => self.u8,
        }
    }
}

/// The bytes of eight numbers of that type.
fn bytes_of_eight(api: &OvApi, number: c_int) -> Option<usize> {
    let mut eight = 8;
    let shape = OvShape { rank: 1, dims: &mut eight };
    let mut bytes = 0;
    // SAFETY: the functions make and release such objects; the dimension lives during the call, which only reads it.
    unsafe {
        let tensor = api.make(api.tensor_free, |made| (api.tensor_create)(number, shape, made)).ok()?;
        api.check((api.tensor_get_byte_size)(tensor.as_ptr(), &mut bytes)).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_libraries_are_refused() {
        let error = OvLibrary::open(Some(Path::new("libc.so.6"))).unwrap_err();
        assert!(error.message().contains("it is not OpenVINO 2024.3 or later"), "{error}");
        let error = OvLibrary::open(Some(Path::new("/nowhere/libopenvino_c.so"))).unwrap_err();
        assert!(
            error.message().contains("/nowhere/libopenvino_c.so") && error.message().contains("pip install openvino"),
            "{error}"
        );
        let empty = crate::test::scratch("no-openvino");
        let error = OvLibrary::open(Some(&empty)).unwrap_err();
        assert!(error.message().contains("no usable OpenVINO in"), "{error}");
    }

    #[test]
    fn wheels_and_archives_are_found() {
        let folder = crate::test::scratch("openvino-files");
        let inner = folder.join("runtime/lib/intel64");
        std::fs::create_dir_all(&inner).unwrap();
        let files = [folder.join("libopenvino_c.so.2640"), inner.join("libopenvino_c.so")];
        files.iter().for_each(|file| std::fs::write(file, "").unwrap());
        std::fs::write(folder.join("libopenvino.so.2640"), "").unwrap();
        assert_eq!(files_in(&folder), files);
    }
}
