// SPDX-License-Identifier: MPL-2.0
//! Frames in `memory:NVMM`, as NVIDIA's own elements have them: those of DeepStream, and those of a Jetson.
//!
//! The buffer has one memory. Mapped, it is not a picture but an NvBufSurface, which describes a batch of pictures and says
//! where they are: in CUDA memory, in the memory of a Jetson's video hardware, or on the host. Only its description is
//! read here, by the layout in `nvbufsurface.h`; libnvbufsurface, opened at run time, is called where a picture must be
//! mapped. The fields in use lie at the same places in the headers of DeepStream 4 to 7 and of Jetson Linux 35 and 36
//! (JetPack 5 and 6); later fields took the places of reserved ones. The pages of DeepStream 8 and 9 list the same. Not
//! those of JetPack 4, which has other structures under the same name of caps.
//!
//! That the memory of such caps begins with an NvBufSurface is the promise of the caps, and the one thing that cannot be
//! checked.
//!
//! Pictures are there when the buffer comes: NVIDIA's elements wait for the GPU before they push. This was tested with a
//! stand-in for the library, and not run on a Jetson.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use gst::{ffi, glib};
use smallvec::SmallVec;

use crate::backends::dylib::{self, Attempts, LoadFailure};
use crate::core::cuda::driver::{Context, EglPicture, Fence};
use crate::core::error::{Error, ErrorKind, Result};
use crate::image::device::{DevicePlane, DevicePlanes};
use crate::image::frame::{PixelFormat, Plane};

/// The feature of caps whose frames lie in NVMM memory.
pub const MEMORY_FEATURE: &str = "memory:NVMM";

/// The names of the library. The last is where DeepStream puts it, in case that the loader does not look there.
const NAMES: [&str; 3] =
    ["libnvbufsurface.so", "libnvbufsurface.so.1.0.0", "/opt/nvidia/deepstream/deepstream/lib/libnvbufsurface.so"];

const MAX_PLANES: usize = 4;
/// `STRUCTURE_PADDING`: pointers at the end of each structure.
const PADDING: usize = 4;

/// `NvBufSurfacePlaneParams`
#[repr(C)]
#[derive(Clone, Copy)]
struct PlaneParams {
    num_planes: u32,
    width: [u32; MAX_PLANES],
    height: [u32; MAX_PLANES],
    pitch: [u32; MAX_PLANES],
    offset: [u32; MAX_PLANES],
    size: [u32; MAX_PLANES],
    bytes_per_pixel: [u32; MAX_PLANES],
    reserved: [*mut c_void; PADDING * MAX_PLANES],
}

/// `NvBufSurfaceMappedAddr`
#[repr(C)]
struct MappedAddresses {
    address: [*mut c_void; MAX_PLANES],
    egl_image: *mut c_void,
    reserved: [*mut c_void; PADDING],
}

/// `NvBufSurfaceParams`: one picture.
#[repr(C)]
struct SurfaceParams {
    width: u32,
    height: u32,
    pitch: u32,
    color_format: u32,
    layout: u32,
    descriptor: u64,
    data_size: u32,
    data: *mut c_void,
    planes: PlaneParams,
    mapped: MappedAddresses,
    /// Some of them have got a meaning.
    reserved: [*mut c_void; PADDING],
}

/// The part of `NvBufSurface` that is read.
#[repr(C)]
struct Surface {
    gpu: u32,
    batch_size: u32,
    filled: u32,
    /// A `bool` in C.
    is_contiguous: u8,
    memory_type: u32,
    list: *mut SurfaceParams,
}

const _: () = assert!(
    size_of::<PlaneParams>() == 232
        && size_of::<MappedAddresses>() == 72
        && std::mem::offset_of!(SurfaceParams, data) == 40
        && std::mem::offset_of!(SurfaceParams, planes) == 48
        && std::mem::offset_of!(SurfaceParams, mapped) == 280
        && std::mem::offset_of!(Surface, list) == 24
);

/// `NVBUF_LAYOUT_PITCH`: rows one behind the other.
const LAYOUT_PITCH: u32 = 0;
/// `NVBUF_MAP_READ`
const MAP_READ: c_int = 0;
/// All planes.
const ALL: c_int = -1;

/// The color formats of a pixel format: `NVBUF_COLOR_FORMAT_*` for each colorimetry. Which one it is says the caps'
/// colorimetry, as for frames in any other memory.
fn color_formats(format: PixelFormat) -> &'static [u32] {
    match format {
        PixelFormat::Gray8 => &[1],
        PixelFormat::I420 => &[2, 4, 31, 32, 35],
        PixelFormat::Nv12 => &[6, 7, 33, 34, 36],
        PixelFormat::Rgba => &[19],
        PixelFormat::Bgra => &[20],
        PixelFormat::Rgbx => &[23],
        PixelFormat::Bgrx => &[24],
        PixelFormat::Rgb => &[27],
        PixelFormat::Bgr => &[28],
        PixelFormat::P010 => &[29, 37, 38, 39, 40],
    }
}

type MapPlanes = unsafe extern "C" fn(*mut Surface, index: c_int, plane: c_int, flags: c_int) -> c_int;
type OnPlanes = unsafe extern "C" fn(*mut Surface, index: c_int, plane: c_int) -> c_int;
type OnSurface = unsafe extern "C" fn(*mut Surface, index: c_int) -> c_int;

/// The functions of libnvbufsurface that are used. All return 0 if they succeed.
struct SurfaceLibrary {
    map: MapPlanes,
    unmap: OnPlanes,
    sync_for_cpu: OnPlanes,
    map_egl_image: OnSurface,
    unmap_egl_image: OnSurface,
}

/// Opens it, once.
fn library() -> Result<&'static SurfaceLibrary> {
    static LIBRARY: OnceLock<Result<SurfaceLibrary>> = OnceLock::new();
    LIBRARY.get_or_init(open).as_ref().map_err(Error::clone)
}

fn open() -> Result<SurfaceLibrary> {
    let mut attempts = Attempts::default();
    for name in NAMES {
        // SAFETY: NVIDIA's own library, which the elements that make such frames have loaded.
        match unsafe { dylib::open(Path::new(name)) }.and_then(symbols) {
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

fn symbols(library: &'static libloading::os::unix::Library) -> std::result::Result<SurfaceLibrary, LoadFailure> {
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

/// The error for an element that is to draw on such frames.
pub fn not_drawable() -> Error {
    Error::new(ErrorKind::Negotiation, "Cannot draw on frames in NVMM memory")
        .cause("they are only read")
        .remedy("Put nvvideoconvert ! video/x-raw before trtpreprocess, or set draw=false on trtnms")
}

fn unusable(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::WrongType, "Cannot use a frame in NVMM memory")
        .cause(cause.into())
        .remedy("Look for an element upstream that sends buffers that contradict its caps")
}

fn block_linear() -> Error {
    Error::new(ErrorKind::WrongType, "Cannot use a frame in NVMM memory")
        .cause("it is block-linear, in the order of the video hardware, not row by row")
        .remedy("Put nvvideoconvert bl-output=false before trtpreprocess, on a Jetson also nvvidconv bl-output=false")
}

/// Where a picture is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PictureMemory {
    /// Memory of a GPU.
    Device,
    /// Of the host, and the GPU reads it.
    Pinned,
    /// Of both.
    Unified,
    /// Of a Jetson's video hardware. It has no address until it is mapped.
    Hardware,
    System,
}

impl PictureMemory {
    /// `NvBufSurfaceMemType`
    fn of(memory_type: u32, has_address: bool) -> Option<Self> {
        Some(match memory_type {
            // The usual memory of the machine.
            0 if has_address => PictureMemory::Device,
            0 | 4 | 5 => PictureMemory::Hardware,
            1 => PictureMemory::Pinned,
            2 => PictureMemory::Device,
            3 => PictureMemory::Unified,
            6 => PictureMemory::System,
            _ => return None,
        })
    }
}

/// Where a plane is in a picture: its place, where the picture has one address, and how far it reaches.
struct SurfacePlane {
    offset: usize,
    stride: usize,
    /// Up to the end of the last row.
    bytes: usize,
}

/// A frame in NVMM memory that was found to be what its caps say.
pub struct NvmmFrame<'a> {
    surface: *mut Surface,
    params: *mut SurfaceParams,
    memory: PictureMemory,
    gpu: i32,
    /// NULL where it has none until it is mapped.
    data: *mut c_void,
    planes: SmallVec<[SurfacePlane; 3]>,
    /// Keeps the two structures.
    _mapped: MappedSurface<'a>,
}

impl<'a> NvmmFrame<'a> {
    /// Reads the description of a frame of that format, width and height.
    ///
    /// # Errors
    /// `WrongType`, where the buffer has another picture, several, or none.
    pub fn of(buffer: &'a gst::BufferRef, format: PixelFormat, (width, height): (u32, u32)) -> Result<Self> {
        let (mapped, surface) = MappedSurface::of(buffer)?;
        // SAFETY: it is not NULL, aligned and long enough, and mapped until `mapped` is dropped. By the caps it is one.
        let Surface { gpu, batch_size, filled, memory_type, list, .. } = unsafe { surface.read() };
        if batch_size != 1 || filled > 1 {
            return Err(Error::new(ErrorKind::WrongType, "Cannot use a batch of frames in NVMM memory")
                .cause(format!("the buffer has room for {batch_size} frames, and {filled} are in it"))
                .remedy(
                    "Put nvstreamdemux before trtpreprocess; trtinfer batch-size makes batches of the frames of \
                     several streams by itself",
                ));
        }
        if list.is_null() || !list.is_aligned() {
            return Err(unusable("its list of pictures is missing"));
        }
        // SAFETY: by the batch size there is one, which the surface keeps. Only what is not written by mapping is read.
        let (size, color_format, layout, data, data_size, params) = unsafe {
            let params = &raw const *list;
            (
                ((*params).width, (*params).height),
                (*params).color_format,
                (*params).layout,
                (*params).data,
                (*params).data_size as usize,
                (*params).planes,
            )
        };
        if !color_formats(format).contains(&color_format) {
            let name = format.name();
            return Err(unusable(format!("its NvBufSurfaceColorFormat is {color_format}, and its caps say {name}")));
        }
        if size.0 < width || size.1 < height {
            return Err(unusable(format!("it has {}x{} pixels, and its caps say {width}x{height}", size.0, size.1)));
        }
        let memory = PictureMemory::of(memory_type, !data.is_null())
            .ok_or_else(|| unusable(format!("its NvBufSurfaceMemType {memory_type} is not known")))?;
        if layout != LAYOUT_PITCH {
            return Err(block_linear());
        }
        if memory != PictureMemory::Hardware && data.is_null() {
            return Err(unusable("its picture has no address"));
        }
        let rows = format.planes(width as usize, height as usize);
        let planes = planes(&params, &rows, (memory != PictureMemory::Hardware).then_some(data_size))?;
        // A Jetson has one GPU, and this number means nothing there.
        let gpu = if memory == PictureMemory::Hardware { 0 } else { i32::try_from(gpu).unwrap_or(i32::MAX) };
        Ok(NvmmFrame { surface, params: list, memory, gpu, data, planes, _mapped: mapped })
    }

    /// The GPU that can read it; none where it is in memory of the host alone.
    pub fn gpu(&self) -> Option<i32> {
        (self.memory != PictureMemory::System).then_some(self.gpu)
    }

    /// Maps the picture for the CPU while it is read.
    ///
    /// # Errors
    /// `WrongType`, where it is in memory of a GPU; `Run`, where the library fails.
    pub fn read<T>(&self, read: impl FnOnce(SmallVec<[Plane; 3]>) -> Result<T>) -> Result<T> {
        let needs_mapping = match self.memory {
            PictureMemory::Device => {
                return Err(Error::new(ErrorKind::WrongType, "The CPU cannot read a frame in NVMM memory")
                    .cause("it is in memory of a GPU")
                    .remedy(
                        "Put nvvideoconvert ! video/x-raw before trtpreprocess, or let the model run on the GPU with \
                         backend=tensorrt",
                    ));
            }
            PictureMemory::Pinned | PictureMemory::System => false,
            PictureMemory::Unified | PictureMemory::Hardware => true,
        };
        let _open = needs_mapping.then(|| OpenMapping::new(self, MappedFor::Host)).transpose()?;
        if self.memory == PictureMemory::Hardware {
            // SAFETY: the surface is mapped.
            done(unsafe { (library()?.sync_for_cpu)(self.surface, 0, ALL) }, "NvBufSurfaceSyncForCpu")?;
        }
        let plane = |(index, plane): (usize, &SurfacePlane)| {
            let start = if needs_mapping {
                // SAFETY: the structure stays, and other threads do not write it while this mapping is open.
                unsafe { (*self.params).mapped.address[index].cast::<u8>() }
            } else {
                // SAFETY: `planes` found the offset to lie within the picture.
                unsafe { self.data.cast::<u8>().add(plane.offset) }
            };
            if start.is_null() {
                return Err(unusable(format!("NvBufSurfaceMap gave no address for plane {index}")));
            }
            // SAFETY: `planes` found so many bytes from there on, which stay mapped until `_open` is dropped.
            let data = unsafe { std::slice::from_raw_parts(start, plane.bytes) };
            Ok(Plane { data, stride: plane.stride })
        };
        read(self.planes.iter().enumerate().map(plane).collect::<Result<_>>()?)
    }

    /// Maps the picture for the GPU of that context, which is the primary one; nothing where the GPU cannot read it.
    ///
    /// # Errors
    /// `WrongType`, where it is not there; `Run`, where the library or CUDA fails.
    pub fn on_gpu(self, context: &Context) -> Result<Option<NvmmOnGpu<'a>>> {
        let address = match self.memory {
            PictureMemory::System => return Ok(None),
            PictureMemory::Hardware => return self.on_gpu_as_egl_image(context).map(Some),
            PictureMemory::Device => {
                let bytes = self.planes.iter().map(|plane| plane.offset + plane.bytes).max().unwrap_or(0);
                let checked = context.check_memory(self.data as u64, bytes);
                checked.map_err(|error| error.about("Cannot use a frame in NVMM memory"))?;
                self.data as u64
            }
            PictureMemory::Pinned | PictureMemory::Unified => {
                let address = context.address_of_pinned(self.data.cast())?;
                address.ok_or_else(|| unusable("the GPU does not know the address of its picture"))?
            }
        };
        if context.is_of_another(address)? {
            return Err(Error::new(ErrorKind::WrongType, "Cannot use a frame in NVMM memory")
                .cause("it was allocated in another CUDA context than the primary one")
                .remedy("Put nvvideoconvert before trtpreprocess, which copies it"));
        }
        let plane = |plane: &SurfacePlane| DevicePlane { address: address + plane.offset as u64, stride: plane.stride };
        Ok(Some(NvmmOnGpu { planes: self.planes.iter().map(plane).collect(), egl: None, _frame: self }))
    }

    fn on_gpu_as_egl_image(self, context: &Context) -> Result<NvmmOnGpu<'a>> {
        let open = OpenMapping::new(&self, MappedFor::EglImage)?;
        // SAFETY: the structure stays, and other threads do not write it while this mapping is open.
        let image = unsafe { (*self.params).mapped.egl_image };
        if image.is_null() {
            return Err(unusable("NvBufSurfaceMapEglImage gave no image"));
        }
        // SAFETY: the image stays until `open` is dropped, which is after the picture.
        let picture = unsafe { context.map_egl_image(image) }?;
        let addresses = picture.planes.as_ref().ok_or_else(block_linear)?;
        let is_whole = addresses.len() == self.planes.len() && addresses.iter().all(|&address| address != 0);
        if !is_whole || self.planes.first().is_none_or(|plane| plane.stride != picture.pitch) {
            let (count, pitch) = (addresses.len(), picture.pitch);
            return Err(unusable(format!("its EGL image has {count} planes and rows of {pitch} bytes")));
        }
        let plane = |(&address, plane): (&u64, &SurfacePlane)| DevicePlane { address, stride: plane.stride };
        let planes = addresses.iter().zip(&self.planes).map(plane).collect();
        Ok(NvmmOnGpu { planes, egl: Some((picture, open)), _frame: self })
    }
}

/// Where the planes are, of which these are the bytes of a row and the rows. `data_size` is how many bytes the picture
/// has, where it has one address; else each plane has its own size.
fn planes(
    params: &PlaneParams,
    rows: &[(usize, usize)],
    data_size: Option<usize>,
) -> Result<SmallVec<[SurfacePlane; 3]>> {
    if params.num_planes as usize != rows.len() {
        return Err(unusable(format!("it has {} planes, and its caps say {}", params.num_planes, rows.len())));
    }
    let plane = |(index, &(row, rows)): (usize, &(usize, usize))| {
        let [width, height, stride, offset, size, pixel] =
            [&params.width, &params.height, &params.pitch, &params.offset, &params.size, &params.bytes_per_pixel]
                .map(|values| values[index] as usize);
        let bytes = stride * (rows - 1) + row; // 32 bits each, so it does not overflow
        let has_rows = stride >= row && width * pixel >= row && height >= rows;
        let has_bytes = data_size.map_or(bytes <= size, |size| offset.saturating_add(bytes) <= size);
        if !has_rows || !has_bytes {
            return Err(unusable(format!(
                "plane {index} has {width}x{height} pixels of {pixel} bytes, rows of {stride} bytes and {size} bytes \
                 at {offset} of {data_size:?}, and {rows} rows of {row} bytes are needed"
            )));
        }
        Ok(SurfacePlane { offset, stride, bytes })
    };
    rows.iter().enumerate().map(plane).collect()
}

/// A picture that the GPU can read, until this is dropped.
pub struct NvmmOnGpu<'a> {
    pub planes: DevicePlanes,
    // Drop order: the picture that CUDA has, the image that it is made of, then what both are part of.
    egl: Option<(EglPicture, OpenMapping)>,
    _frame: NvmmFrame<'a>,
}

impl NvmmOnGpu<'_> {
    /// Ends this once the GPU has read the picture, where it is only there while it is mapped.
    ///
    /// # Errors
    /// As [`Fence::wait`].
    pub fn end(self, read: Option<&Fence>) -> Result<()> {
        match (&self.egl, read) {
            (Some(_), Some(read)) => read.wait(),
            _ => Ok(()),
        }
    }
}

/// The memory of a buffer, mapped.
struct MappedSurface<'a> {
    info: ffi::GstMapInfo,
    _memory: PhantomData<&'a gst::BufferRef>,
}

impl<'a> MappedSurface<'a> {
    fn of(buffer: &'a gst::BufferRef) -> Result<(Self, *mut Surface)> {
        if buffer.n_memory() != 1 {
            return Err(unusable(format!("the buffer has {} memories, not one", buffer.n_memory())));
        }
        let mut info = std::mem::MaybeUninit::<ffi::GstMapInfo>::zeroed();
        // SAFETY: the buffer keeps the memory; `info` is written on success.
        let mapped = unsafe {
            let memory = buffer.peek_memory(0).as_mut_ptr();
            ffi::gst_memory_map(memory, info.as_mut_ptr(), ffi::GST_MAP_READ)
        };
        if mapped == glib::ffi::GFALSE {
            return Err(unusable("its memory cannot be read"));
        }
        // SAFETY: mapping succeeded.
        let mapped = MappedSurface { info: unsafe { info.assume_init() }, _memory: PhantomData };
        let (surface, size) = (mapped.info.data.cast::<Surface>(), mapped.info.size);
        if surface.is_null() || !surface.is_aligned() || size < size_of::<Surface>() {
            return Err(unusable(format!("its memory of {size} bytes holds no NvBufSurface")));
        }
        Ok((mapped, surface))
    }
}

impl Drop for MappedSurface<'_> {
    fn drop(&mut self) {
        // SAFETY: it was mapped, and the buffer is still borrowed.
        unsafe { ffi::gst_memory_unmap(self.info.memory, &mut self.info) }
    }
}

/// For whom a surface is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MappedFor {
    Host,
    EglImage,
}

/// A surface that is mapped, and for how many threads.
struct SharedMapping {
    surface: usize,
    view: MappedFor,
    users: usize,
    /// Another element had mapped it, which also unmaps it.
    is_theirs: bool,
}

/// The library writes addresses into the surface, and takes them away when it is unmapped. The threads behind a tee have
/// the same surface, so the first one maps it and the last one unmaps it. The lock is held while the library does so.
static SHARED: Mutex<Vec<SharedMapping>> = Mutex::new(Vec::new());

/// A surface that is mapped, until this is dropped.
struct OpenMapping {
    surface: *mut Surface,
    view: MappedFor,
}

impl OpenMapping {
    fn new(frame: &NvmmFrame, view: MappedFor) -> Result<Self> {
        let library = library()?;
        let surface = frame.surface;
        let mut shared = SHARED.lock().unwrap();
        let is_it = |mapping: &&mut SharedMapping| mapping.surface == surface.addr() && mapping.view == view;
        if let Some(mapping) = shared.iter_mut().find(is_it) {
            mapping.users += 1;
            return Ok(OpenMapping { surface, view });
        }
        // SAFETY: the frame keeps the structures, and what is mapped by this process is locked.
        let (is_theirs, outcome, call) = unsafe {
            let mapped = &raw const (*frame.params).mapped;
            match view {
                MappedFor::Host if !(*mapped).address[0].is_null() => (true, 0, ""),
                MappedFor::Host => (false, (library.map)(surface, 0, ALL, MAP_READ), "NvBufSurfaceMap"),
                MappedFor::EglImage if !(*mapped).egl_image.is_null() => (true, 0, ""),
                MappedFor::EglImage => (false, (library.map_egl_image)(surface, 0), "NvBufSurfaceMapEglImage"),
            }
        };
        done(outcome, call)?;
        shared.push(SharedMapping { surface: surface.addr(), view, users: 1, is_theirs });
        Ok(OpenMapping { surface, view })
    }
}

impl Drop for OpenMapping {
    fn drop(&mut self) {
        let mut shared = SHARED.lock().unwrap();
        let is_it = |mapping: &SharedMapping| mapping.surface == self.surface.addr() && mapping.view == self.view;
        let Some(index) = shared.iter().position(is_it) else { return };
        shared[index].users -= 1;
        if shared[index].users > 0 {
            return;
        }
        let mapping = shared.swap_remove(index);
        if let (false, Ok(library)) = (mapping.is_theirs, library()) {
            // SAFETY: it was mapped, and what made this keeps the surface. Nothing can be done about a failure.
            let _ = unsafe {
                match self.view {
                    MappedFor::Host => (library.unmap)(self.surface, 0, ALL),
                    MappedFor::EglImage => (library.unmap_egl_image)(self.surface, 0),
                }
            };
        }
    }
}

/// What a function of the library returned.
fn done(outcome: c_int, call: &str) -> Result<()> {
    if outcome == 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Run, "Cannot map a frame in NVMM memory")
        .cause(format!("{call} failed"))
        .remedy("Look at what libnvbufsurface wrote to standard error; put nvvideoconvert before trtpreprocess"))
}

#[cfg(test)]
#[path = "../../../tests/common/nvmm.rs"]
#[allow(dead_code)] // the integration tests use the rest
mod stand_in;

#[cfg(test)]
mod tests {
    use gst::prelude::*;
    use gst_video::VideoInfo;

    use super::stand_in::*;
    use super::*;
    use crate::fakes::Fakes;

    /// NV12 64x48
    fn caps_and_info() -> (gst::Caps, VideoInfo) {
        gst::init().unwrap();
        let caps: gst::Caps = "video/x-raw,format=NV12,width=64,height=48,framerate=30/1".parse().unwrap();
        let info = VideoInfo::from_caps(&caps).unwrap();
        (in_nvmm(&caps), info)
    }

    fn frame(buffer: &gst::BufferRef) -> NvmmFrame<'_> {
        NvmmFrame::of(buffer, PixelFormat::Nv12, (64, 48)).unwrap()
    }

    /// Its planes.
    fn planes_of(picture: &NvmmPicture) -> DevicePlanes {
        let plane = |(start, stride): (*mut u8, usize)| DevicePlane { address: start as u64, stride };
        [0, 1].map(|index| plane(picture.plane(index))).into_iter().collect()
    }

    #[test]
    fn planes_on_a_gpu() {
        let Some(fakes) = Fakes::of(module_path!(), "planes_on_a_gpu") else { return };
        let (context, (_, info)) = (fakes.context(), caps_and_info());
        let on_gpu = |picture: NvmmPicture| {
            let buffer = picture.into_buffer();
            let planes = frame(&buffer).on_gpu(&context).map(|mapped| mapped.map(|mapped| mapped.planes.clone()));
            assert_eq!(fakes.count(c"fake_registered"), 0);
            expect_nothing_open("a frame");
            planes
        };
        for memory in [SURFACE_ARRAY, DEVICE, PINNED, UNIFIED] {
            let picture = NvmmPicture::new(memory, &info);
            let planes = planes_of(&picture);
            let (start, bytes) = (planes[0].address as *const u8, 256 * (48 + 24));
            fakes.memory(start, bytes, 0, false);
            assert_eq!(on_gpu(picture).unwrap(), Some(planes), "{memory}");
        }
        assert_eq!(on_gpu(NvmmPicture::new(SYSTEM, &info)).unwrap(), None, "it is uploaded");

        let picture = || {
            let picture = NvmmPicture::new(DEVICE, &info);
            let start = planes_of(&picture)[0].address as *const u8;
            (picture, start)
        };
        let refused = |picture: NvmmPicture, part: &str| {
            let error = on_gpu(picture).unwrap_err();
            assert!(error.kind() == ErrorKind::WrongType && error.message().contains(part), "{part}: {error}");
        };
        let (other, start) = picture();
        fakes.memory(start, 256 * (48 + 24), 3, false);
        refused(other, "memory of GPU 3, not of GPU 0");
        let (other, start) = picture();
        fakes.memory(start, 256 * (48 + 24), 0, true);
        refused(other, "another CUDA context");
        let (short, start) = picture();
        fakes.memory(start, 256 * (48 + 23), 0, false);
        assert!(on_gpu(short).is_err(), "memory that ends before the picture");
        fakes.memory(start, 0, 0, false);
        refused(NvmmPicture::new(UNIFIED, &info), "does not know the address");

        let_images_be_block_linear(true);
        refused(NvmmPicture::new(SURFACE_ARRAY, &info), "bl-output=false");
        let_images_be_block_linear(false);
    }

    /// As a Jetson has them, through the whole element; each call of the driver fails once, then those of the library.
    #[test]
    fn frames_of_the_video_hardware() {
        let Some(fakes) = Fakes::of(module_path!(), "frames_of_the_video_hardware") else { return };
        let (caps, info) = caps_and_info();
        crate::plugin_register_static().unwrap();
        let mut harness = gst_check::Harness::new_parse("trtpreprocess tensor-size=32x32");
        harness.set_src_caps(caps);
        let mut push = || {
            let pushed = harness.push(NvmmPicture::new(SURFACE_ARRAY, &info).into_buffer());
            expect_nothing_open("a frame that was pushed");
            assert_eq!(fakes.count(c"fake_registered"), 0);
            assert_eq!(fakes.count(c"fake_pending"), 0, "the picture is gone, so it was waited for");
            let pushed = pushed.map_err(|flow| Error::new(ErrorKind::Run, flow.to_string()));
            pushed.map(|_| drop(harness.pull().unwrap()))
        };
        push().unwrap();
        fakes.each_call_fails("a frame of the video hardware", &mut push);
        for what in [EGL, NO_IMAGE] {
            fail(what);
            push().unwrap_err();
            fail(NOTHING);
        }
        push().unwrap();
        let (maps, _, images) = counts();
        assert!(maps == 0 && images > 4, "{maps} {images}");
    }

    /// The memory stays with the buffer, which waits for the GPU.
    #[test]
    fn frames_in_memory_of_a_gpu_are_not_waited_for() {
        let Some(fakes) = Fakes::of(module_path!(), "frames_in_memory_of_a_gpu_are_not_waited_for") else { return };
        let (caps, info) = caps_and_info();
        crate::plugin_register_static().unwrap();
        let mut harness = gst_check::Harness::new_parse("trtpreprocess tensor-size=32x32");
        harness.set_src_caps(caps);
        let picture = NvmmPicture::new(DEVICE, &info);
        fakes.memory(planes_of(&picture)[0].address as *const u8, 256 * (48 + 24), 0, false);
        harness.push(picture.into_buffer()).unwrap();
        assert!(fakes.count(c"fake_pending") > 0);
        drop(harness.pull().unwrap());
        assert_eq!(fakes.count(c"fake_pending"), 0);
        assert_eq!(counts(), (0, 0, 0), "it has an address");
        for (gpu, part) in [(1, "GPU 1, and this process sees 1"), (u32::MAX.into(), "this process sees 1")] {
            let bus = gst::Bus::new();
            harness.element().unwrap().set_bus(Some(&bus));
            let picture = NvmmPicture::new(DEVICE, &info).with("gpuId", gpu);
            assert_eq!(harness.push(picture.into_buffer()), Err(gst::FlowError::Error));
            let message = bus.pop_filtered(&[gst::MessageType::Error]).unwrap();
            let gst::MessageView::Error(error) = message.view() else { unreachable!("filtered") };
            assert!(error.error().to_string().contains(part), "{error:?}");
        }
        expect_nothing_open("memory of a GPU");
    }
}
