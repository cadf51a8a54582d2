// SPDX-License-Identifier: MPL-2.0
//! EGL images, as which the video hardware of a Jetson shows its frames to CUDA.
//!
//! cudarc has no bindings for `cudaEGL.h`. Its functions are taken from the driver when the first image comes.

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys;
use libloading::os::unix;
use smallvec::SmallVec;

use super::{Check, Context};
use crate::error::{Error, ErrorKind, Result};

/// `CU_EGL_FRAME_TYPE_PITCH`; the other type is a CUDA array, whose bytes have no rows.
const PITCH: c_uint = 1;

/// `CUeglFrame`, as in CUDA 8 to 13.
#[repr(C)]
struct CudaEglFrame {
    planes: [*mut c_void; 3],
    width: c_uint,
    height: c_uint,
    depth: c_uint,
    /// Of the first plane.
    pitch: c_uint,
    plane_count: c_uint,
    channels: c_uint,
    frame_type: c_uint,
    color_format: c_uint,
    array_format: c_uint,
}

const _: () = assert!(size_of::<CudaEglFrame>() == 64);

struct EglFunctions {
    register_image: unsafe extern "C" fn(*mut sys::CUgraphicsResource, *mut c_void, c_uint) -> sys::CUresult,
    get_frame: unsafe extern "C" fn(*mut CudaEglFrame, sys::CUgraphicsResource, c_uint, c_uint) -> sys::CUresult,
}

fn functions() -> Result<&'static EglFunctions> {
    static FUNCTIONS: OnceLock<std::result::Result<EglFunctions, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(find).as_ref().map_err(|cause| {
        Error::new(ErrorKind::Library, "The driver cannot share EGL images with CUDA")
            .cause(cause)
            .remedy("That is for frames of a Jetson's video hardware; use the libcuda.so of its own system")
    })
}

fn find() -> std::result::Result<EglFunctions, String> {
    // In the order of cudarc, so that it is the same file.
    let open = |name| {
        // SAFETY: the driver, which is loaded already.
        unsafe { unix::Library::open(Some(name), unix::RTLD_LAZY | unix::RTLD_LOCAL) }
    };
    let library = open("libcuda.so").or_else(|_| open("libcuda.so.1")).map_err(|error| error.to_string())?;
    let library = std::mem::ManuallyDrop::new(library);
    macro_rules! symbol {
        ($name:literal) => {
            // SAFETY: of that type in cudaEGL.h.
            unsafe { library.get($name) }.map(|symbol| *symbol).map_err(|error: libloading::Error| error.to_string())
        };
    }
    Ok(EglFunctions {
        register_image: symbol!(b"cuGraphicsEGLRegisterImage\0")?,
        get_frame: symbol!(b"cuGraphicsResourceGetMappedEglFrame\0")?,
    })
}

impl Context {
    /// Lets the GPU read an EGL image until the result is dropped. Dropping it does not wait for the GPU.
    ///
    /// # Errors
    /// `Library`, where the driver has no such functions; `Run`, where they fail.
    ///
    /// # Safety
    /// `image` is an `EGLImageKHR` that stays at least as long as the result.
    pub unsafe fn map_egl_image(&self, image: *mut c_void) -> Result<EglPicture> {
        let functions = functions()?;
        let _entered = self.enter()?;
        let mut resource = ptr::null_mut();
        // SAFETY: writes a handle; the image by the caller's promise. 0 is CU_GRAPHICS_MAP_RESOURCE_FLAGS_NONE.
        unsafe { (functions.register_image)(&mut resource, image, 0) }
            .result()
            .or_fail("Cannot register a frame of the video hardware with CUDA")?;
        let mut picture = EglPicture { resource, context: self.clone(), planes: None, pitch: 0 };
        // SAFETY: all zeros are a frame without planes.
        let mut frame: CudaEglFrame = unsafe { std::mem::zeroed() };
        // SAFETY: the resource was just registered, and the frame is written.
        unsafe { (functions.get_frame)(&mut frame, resource, 0, 0) }
            .result()
            .or_fail("Cannot see a frame of the video hardware with CUDA")?;
        if frame.frame_type == PITCH {
            let planes = frame.planes.iter().take(frame.plane_count as usize);
            picture.planes = Some(planes.map(|&plane| plane as u64).collect());
            picture.pitch = frame.pitch as usize;
        }
        Ok(picture)
    }
}

/// An EGL image that the GPU can read.
pub struct EglPicture {
    resource: sys::CUgraphicsResource,
    context: Context,
    /// The addresses of the planes; nothing where the image is block-linear.
    pub planes: Option<SmallVec<[u64; 3]>>,
    /// Bytes from one row of the first plane to the next.
    pub pitch: usize,
}

impl Drop for EglPicture {
    fn drop(&mut self) {
        let Ok(_entered) = self.context.enter() else { return };
        // SAFETY: it was registered, in this context. An error only comes where the context is lost.
        let freed = unsafe { sys::cuGraphicsUnregisterResource(self.resource) };
        let _ = freed.result().or_fail("Cannot give back a frame of the video hardware");
    }
}
