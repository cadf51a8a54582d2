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

mod library;
mod mapping;
#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::marker::PhantomData;

use gst::{ffi, glib};
use gsttrt_core::cuda::driver::{Context, EglPicture, Fence};
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::image::device::{DevicePlane, DevicePlanes};
use gsttrt_core::image::frame::{PixelFormat, Plane};
use smallvec::SmallVec;

use self::library::{ALL, PlaneParams, Surface, SurfaceParams, done, library};
use self::mapping::{MappedFor, OpenMapping};

pub use self::library::available;

/// The feature of caps whose frames lie in NVMM memory.
pub const MEMORY_FEATURE: &str = "memory:NVMM";

/// `NVBUF_LAYOUT_PITCH`: rows one behind the other.
const LAYOUT_PITCH: u32 = 0;
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
        // What later releases of the core may add is not known here, and refused.
        _ => &[],
    }
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
        let _open = needs_mapping.then(|| self.map(MappedFor::Host)).transpose()?;
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
    pub fn on_gpu(&self, context: &Context) -> Result<Option<NvmmOnGpu<'_>>> {
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
        Ok(Some(NvmmOnGpu { planes: self.planes.iter().map(plane).collect(), egl: None, _frame: PhantomData }))
    }

    fn map(&self, view: MappedFor) -> Result<OpenMapping> {
        // SAFETY: the surface has one picture, and the buffer keeps both; what is mapped is dropped before this.
        unsafe { OpenMapping::new(self.surface, self.params, view) }
    }

    fn on_gpu_as_egl_image(&self, context: &Context) -> Result<NvmmOnGpu<'_>> {
        let open = self.map(MappedFor::EglImage)?;
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
        Ok(NvmmOnGpu { planes, egl: Some((picture, open)), _frame: PhantomData })
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
    // Drop order: the picture that CUDA has, then the image that it is made of.
    egl: Option<(EglPicture, OpenMapping)>,
    /// What both are part of.
    _frame: PhantomData<&'a NvmmFrame<'a>>,
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
