// SPDX-License-Identifier: MPL-2.0
//! What NVIDIA's management library tells of the GPUs. It comes with the driver, and is found at run time.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::OnceLock;

use gsttrt_core::dylib;
use libloading::os::unix::Symbol;

/// Bytes of a name, with its end.
const NAME: usize = 96;
const SUCCESS: c_int = 0;

type Device = *mut c_void;

/// A GPU, with what it tells of itself. Some GPUs leave some of it out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuReading {
    pub index: u32,
    pub name: String,
    pub uuid: String,
    /// Shares of the last second, 0 to 1.
    pub busy: Option<f64>,
    pub decoder_busy: Option<f64>,
    pub encoder_busy: Option<f64>,
    pub memory_used: Option<f64>,
    pub memory: Option<f64>,
    pub celsius: Option<f64>,
    pub watts: Option<f64>,
}

/// All GPUs; none where there is no library.
pub fn read() -> Vec<GpuReading> {
    ManagementLibrary::get().map(ManagementLibrary::read).unwrap_or_default()
}

/// As nvml.h has it.
#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

#[repr(C)]
#[derive(Default)]
struct MemoryUse {
    total: u64,
    free: u64,
    used: u64,
}

type ReadText = unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int;
type ReadNumber = unsafe extern "C" fn(Device, *mut c_uint) -> c_int;
/// The value, and the time over which it is taken.
type ReadSampled = unsafe extern "C" fn(Device, *mut c_uint, *mut c_uint) -> c_int;

struct ManagementLibrary {
    count: unsafe extern "C" fn(*mut c_uint) -> c_int,
    device: unsafe extern "C" fn(c_uint, *mut Device) -> c_int,
    name: ReadText,
    uuid: ReadText,
    utilization: unsafe extern "C" fn(Device, *mut Utilization) -> c_int,
    decoder: ReadSampled,
    encoder: ReadSampled,
    memory: unsafe extern "C" fn(Device, *mut MemoryUse) -> c_int,
    temperature: unsafe extern "C" fn(Device, c_uint, *mut c_uint) -> c_int,
    power: ReadNumber,
}

impl ManagementLibrary {
    /// Opened once; `None` where there is none, or it has other functions.
    fn get() -> Option<&'static Self> {
        static LIBRARY: OnceLock<Option<ManagementLibrary>> = OnceLock::new();
        LIBRARY.get_or_init(Self::open).as_ref()
    }

    fn open() -> Option<Self> {
        // SAFETY: NVIDIA's library may be loaded in any process.
        let library = unsafe { dylib::open(Path::new("libnvidia-ml.so.1")) }.ok()?;
        macro_rules! function {
            ($name:literal) => {{
                // SAFETY: the type of the field is that of the function in nvml.h, and the library is never closed.
                let symbol: Symbol<_> = unsafe { library.get(concat!($name, "\0").as_bytes()) }.ok()?;
                *symbol
            }};
        }
        let start: unsafe extern "C" fn() -> c_int = function!("nvmlInit_v2");
        let found = ManagementLibrary {
            count: function!("nvmlDeviceGetCount_v2"),
            device: function!("nvmlDeviceGetHandleByIndex_v2"),
            name: function!("nvmlDeviceGetName"),
            uuid: function!("nvmlDeviceGetUUID"),
            utilization: function!("nvmlDeviceGetUtilizationRates"),
            decoder: function!("nvmlDeviceGetDecoderUtilization"),
            encoder: function!("nvmlDeviceGetEncoderUtilization"),
            memory: function!("nvmlDeviceGetMemoryInfo"),
            temperature: function!("nvmlDeviceGetTemperature"),
            power: function!("nvmlDeviceGetPowerUsage"),
        };
        // SAFETY: it takes nothing, and comes before all others.
        (unsafe { start() } == SUCCESS).then_some(found)
    }

    fn read(&self) -> Vec<GpuReading> {
        let mut count = 0;
        // SAFETY: it writes a number.
        if unsafe { (self.count)(&raw mut count) } != SUCCESS {
            return Vec::new();
        }
        (0..count).filter_map(|index| self.device(index)).collect()
    }

    fn device(&self, index: c_uint) -> Option<GpuReading> {
        const OF_GPU: c_uint = 0; // NVML_TEMPERATURE_GPU
        let mut device: Device = std::ptr::null_mut();
        // SAFETY: it writes a handle.
        if unsafe { (self.device)(index, &raw mut device) } != SUCCESS {
            return None;
        }
        let text = |read: ReadText| {
            let mut bytes: [c_char; NAME] = [0; NAME];
            // SAFETY: it writes a text with its end, within the length that it is told; the last byte stays zero.
            let is_read = unsafe { read(device, bytes.as_mut_ptr(), NAME as c_uint - 1) } == SUCCESS;
            if !is_read {
                return String::new();
            }
            // SAFETY: the last byte is zero.
            unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_string_lossy().into_owned()
        };
        let number = |read: &dyn Fn(*mut c_uint) -> c_int| {
            let mut value = 0;
            (read(&raw mut value) == SUCCESS).then_some(f64::from(value))
        };
        let percent = |read: ReadSampled| {
            // SAFETY: it writes two numbers.
            number(&|value| unsafe { read(device, value, &mut 0) }).map(|percent| percent / 100.0)
        };
        let (mut utilization, mut memory) = (Utilization::default(), MemoryUse::default());
        // SAFETY: both write into structures of their types.
        let (has_utilization, has_memory) = unsafe {
            (
                (self.utilization)(device, &raw mut utilization) == SUCCESS,
                (self.memory)(device, &raw mut memory) == SUCCESS,
            )
        };
        let memory = has_memory.then_some(memory);
        Some(GpuReading {
            index,
            name: text(self.name),
            uuid: text(self.uuid),
            busy: has_utilization.then_some(f64::from(utilization.gpu) / 100.0),
            decoder_busy: percent(self.decoder),
            encoder_busy: percent(self.encoder),
            memory_used: memory.as_ref().map(|memory| memory.used as f64),
            memory: memory.as_ref().map(|memory| memory.total as f64),
            // SAFETY: it writes a number.
            celsius: number(&|value| unsafe { (self.temperature)(device, OF_GPU, value) }),
            // SAFETY: it writes a number.
            watts: number(&|value| unsafe { (self.power)(device, value) }).map(|milliwatts| milliwatts / 1e3),
        })
    }
}
