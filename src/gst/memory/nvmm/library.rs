// SPDX-License-Identifier: MPL-2.0
//! libnvbufsurface, opened at run time, and the layout of what it describes: `nvbufsurface.h`.

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;

use gsttrt_core::dylib::{self, Attempts, LoadFailure};
use gsttrt_core::error::{Error, ErrorKind, Result};

/// The names of the library. The last is where DeepStream puts it, in case that the loader does not look there.
const NAMES: [&str; 3] =
    ["libnvbufsurface.so", "libnvbufsurface.so.1.0.0", "/opt/nvidia/deepstream/deepstream/lib/libnvbufsurface.so"];

pub const MAX_PLANES: usize = 4;
/// `STRUCTURE_PADDING`: pointers at the end of each structure.
pub const PADDING: usize = 4;

/// `NvBufSurfacePlaneParams`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PlaneParams {
    pub num_planes: u32,
    pub width: [u32; MAX_PLANES],
    pub height: [u32; MAX_PLANES],
    pub pitch: [u32; MAX_PLANES],
    pub offset: [u32; MAX_PLANES],
    pub size: [u32; MAX_PLANES],
    pub bytes_per_pixel: [u32; MAX_PLANES],
    pub reserved: [*mut c_void; PADDING * MAX_PLANES],
}

/// `NvBufSurfaceMappedAddr`
#[repr(C)]
pub struct MappedAddresses {
    pub address: [*mut c_void; MAX_PLANES],
    pub egl_image: *mut c_void,
    pub reserved: [*mut c_void; PADDING],
}

/// `NvBufSurfaceParams`: one picture.
#[repr(C)]
pub struct SurfaceParams {
    pub width: u32,
    pub height: u32,
    pub pitch: u32,
    pub color_format: u32,
    pub layout: u32,
    pub descriptor: u64,
    pub data_size: u32,
    pub data: *mut c_void,
    pub planes: PlaneParams,
    pub mapped: MappedAddresses,
    /// Some of them have got a meaning.
    pub reserved: [*mut c_void; PADDING],
}

/// The part of `NvBufSurface` that is read.
#[repr(C)]
pub struct Surface {
    pub gpu: u32,
    pub batch_size: u32,
    pub filled: u32,
    /// A `bool` in C.
    pub is_contiguous: u8,
    pub memory_type: u32,
    pub list: *mut SurfaceParams,
}

const _: () = assert!(
    size_of::<PlaneParams>() == 232
        && size_of::<MappedAddresses>() == 72
        && std::mem::offset_of!(SurfaceParams, data) == 40
        && std::mem::offset_of!(SurfaceParams, planes) == 48
        && std::mem::offset_of!(SurfaceParams, mapped) == 280
        && std::mem::offset_of!(Surface, list) == 24
);

/// `NVBUF_MAP_READ`
pub const MAP_READ: c_int = 0;
/// All planes.
pub const ALL: c_int = -1;

pub type MapPlanes = unsafe extern "C" fn(*mut Surface, index: c_int, plane: c_int, flags: c_int) -> c_int;
pub type OnPlanes = unsafe extern "C" fn(*mut Surface, index: c_int, plane: c_int) -> c_int;
pub type OnSurface = unsafe extern "C" fn(*mut Surface, index: c_int) -> c_int;

/// The functions of libnvbufsurface that are used. All return 0 if they succeed.
pub struct SurfaceLibrary {
    pub map: MapPlanes,
    pub unmap: OnPlanes,
    pub sync_for_cpu: OnPlanes,
    pub map_egl_image: OnSurface,
    pub unmap_egl_image: OnSurface,
}

/// Opens it, once.
pub fn library() -> Result<&'static SurfaceLibrary> {
    static LIBRARY: OnceLock<Result<SurfaceLibrary>> = OnceLock::new();
    LIBRARY.get_or_init(open).as_ref().map_err(Error::clone)
}

fn open() -> Result<SurfaceLibrary> {
    let mut attempts = Attempts::default();
    for name in NAMES {
        // SAFETY: NVIDIA's own library, which the elements that make such frames have loaded.
        match unsafe { dylib::open(Path::new(name)) }.and_then(|library| symbols(&library)) {
            Ok(library) => return Ok(library),
            Err(failure) => attempts.add(name, failure),
        }
    }
    Err(attempts.error(
        "Cannot find NvBufSurface, which frames in NVMM memory need".into(),
        "Install DeepStream, or nvidia-l4t-multimedia on a Jetson, and let LD_LIBRARY_PATH name the folder of \
         libnvbufsurface.so; without them, put nvvideoconvert ! video/x-raw before this element",
    ))
}

fn symbols(library: &libloading::os::unix::Library) -> std::result::Result<SurfaceLibrary, LoadFailure> {
    macro_rules! symbol {
        ($name:literal) => {
            // SAFETY: of that type in nvbufsurface.h.
            unsafe { library.get($name) }
                .map(|symbol| *symbol)
                .map_err(|error| LoadFailure::Unusable(dylib::reason(error)))
        };
    }
    Ok(SurfaceLibrary {
        map: symbol!(b"NvBufSurfaceMap\0")?,
        unmap: symbol!(b"NvBufSurfaceUnMap\0")?,
        sync_for_cpu: symbol!(b"NvBufSurfaceSyncForCpu\0")?,
        map_egl_image: symbol!(b"NvBufSurfaceMapEglImage\0")?,
        unmap_egl_image: symbol!(b"NvBufSurfaceUnMapEglImage\0")?,
    })
}

/// Whether frames in NVMM memory can be used on this machine.
///
/// # Errors
/// `Library`, with what is missing.
pub fn available() -> Result<()> {
    library().map(drop)
}

/// What a function of the library returned.
pub fn done(outcome: c_int, call: &str) -> Result<()> {
    if outcome == 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Run, "Cannot map a frame in NVMM memory")
        .cause(format!("{call} failed"))
        .remedy("Look at what libnvbufsurface wrote to standard error; put nvvideoconvert before trtpreprocess"))
}
