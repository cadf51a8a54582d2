// SPDX-License-Identifier: MPL-2.0
//! Frames in NVMM memory, by the stand-in for libnvbufsurface in tests/fakes. Unit tests use this file too.

use std::ffi::{CString, c_char, c_int, c_long, c_uint, c_void};
use std::path::Path;
use std::sync::OnceLock;

use gst_video::prelude::*;
use gst_video::{VideoFrameRef, VideoInfo};
use libloading::Library;

#[allow(clippy::duplicate_mod)] // of the unit tests, too
#[path = "../../core/tests/common/compiled.rs"]
mod compiled;
#[allow(clippy::duplicate_mod)] // the same
#[path = "../../core/tests/common/scratch.rs"]
mod scratch;

/// `NVBUF_MEM_*`
pub const PINNED: c_int = 1;
pub const DEVICE: c_int = 2;
pub const UNIFIED: c_int = 3;
pub const SURFACE_ARRAY: c_int = 4;
pub const HANDLE: c_int = 5;
pub const SYSTEM: c_int = 6;

/// Which call of the library fails.
pub const NOTHING: c_int = 0;
pub const MAP: c_int = 1;
pub const SYNC: c_int = 2;
pub const EGL: c_int = 3;
pub const NO_ADDRESS: c_int = 4;
pub const NO_IMAGE: c_int = 5;

/// The stand-in, under the name by which the plugin finds it from now on in this process.
fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = scratch::scratch(&format!("nvbufsurface-{}", std::process::id()));
        let file = folder.join("libnvbufsurface.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes/nvbufsurface.c");
        compiled::library(&folder, "libnvbufsurface.so", &[source], &[]);
        // SAFETY: it does nothing when it is loaded.
        let library = unsafe { Library::new(&file) }.unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        library
    })
}

macro_rules! call {
    ($name:literal: fn($($type:ty),*) $(-> $result:ty)?, $($value:expr),*) => {
        // SAFETY: of that type in tests/fakes/nvbufsurface.c.
        unsafe { (library().get::<unsafe extern "C" fn($($type),*) $(-> $result)?>($name).unwrap())($($value),*) }
    };
}

/// Lets a call of the library fail from now on.
pub fn fail(what: c_int) {
    call!(b"fake_fail": fn(c_int), what)
}

/// Lets EGL images be block-linear from now on, or no more.
pub fn let_images_be_block_linear(are: bool) {
    call!(b"fake_egl_frame_type": fn(c_int), c_int::from(!are))
}

/// How often surfaces were mapped for the CPU, synchronised, and made EGL images.
pub fn counts() -> (c_long, c_long, c_long) {
    let maps = call!(b"fake_maps": fn() -> c_long,);
    (maps, call!(b"fake_syncs": fn() -> c_long,), call!(b"fake_images": fn() -> c_long,))
}

/// Fails unless all is unmapped and nothing was done that the library does not allow.
#[track_caller]
pub fn expect_nothing_open(what: &str) {
    let (mapped, wrong) = (call!(b"fake_mapped": fn() -> c_long,), call!(b"fake_wrong": fn() -> c_long,));
    assert_eq!((mapped, wrong), (0, 0), "{what}: what is mapped, and wrong calls");
}

/// A surface with one picture.
pub struct NvmmPicture(*mut c_void);

// SAFETY: the stand-in may be called by any thread.
unsafe impl Send for NvmmPicture {}
// SAFETY: as above.
unsafe impl Sync for NvmmPicture {}

impl NvmmPicture {
    /// Black or whatever zeros are, in that kind of memory.
    pub fn new(memory: c_int, info: &VideoInfo) -> Self {
        let (width, height) = (info.width(), info.height());
        let half = [width.div_ceil(2), height.div_ceil(2)];
        let (color, planes) = match info.format().to_str().as_str() {
            "NV12" => (6, vec![(width, height, 1), (half[0], half[1], 2)]),
            "P010_10LE" => (29, vec![(width, height, 2), (half[0], half[1], 4)]),
            "I420" => (2, vec![(width, height, 1), (half[0], half[1], 1), (half[0], half[1], 1)]),
            "RGBA" => (19, vec![(width, height, 4)]),
            "BGRA" => (20, vec![(width, height, 4)]),
            "RGBx" => (23, vec![(width, height, 4)]),
            "BGRx" => (24, vec![(width, height, 4)]),
            "RGB" => (27, vec![(width, height, 3)]),
            "BGR" => (28, vec![(width, height, 3)]),
            "GRAY8" => (1, vec![(width, height, 1)]),
            other => panic!("{other}"),
        };
        let widths: Vec<c_uint> = planes.iter().map(|plane| plane.0).collect();
        let heights: Vec<c_uint> = planes.iter().map(|plane| plane.1).collect();
        let bytes: Vec<c_uint> = planes.iter().map(|plane| plane.2).collect();
        NvmmPicture(call!(
            b"fake_surface_new": fn(c_int, c_int, c_uint, *const c_uint, *const c_uint, *const c_uint) -> *mut c_void,
            memory, color, planes.len() as c_uint, widths.as_ptr(), heights.as_ptr(), bytes.as_ptr()
        ))
    }

    /// The picture of a frame in system memory.
    pub fn of(memory: c_int, info: &VideoInfo, buffer: &gst::BufferRef) -> Self {
        let picture = NvmmPicture::new(memory, info);
        let frame = VideoFrameRef::from_buffer_ref_readable(buffer, info).unwrap();
        for plane in 0..info.n_planes() {
            let (to, pitch) = picture.plane(plane);
            let stride = info.stride()[plane as usize] as usize;
            let rows = frame.plane_data(plane).unwrap().chunks(frame.plane_stride()[plane as usize] as usize);
            for (y, row) in rows.enumerate().take(frame.plane_height(plane) as usize) {
                let length = stride.min(pitch).min(row.len());
                // SAFETY: the plane has so many rows of that pitch.
                unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), to.add(y * pitch), length) };
            }
        }
        picture
    }

    /// Where a plane begins, and the bytes from one row to the next.
    pub fn plane(&self, plane: u32) -> (*mut u8, usize) {
        let start = call!(b"fake_pixels": fn(*mut c_void, c_int) -> *mut u8, self.0, plane as c_int);
        (start, call!(b"fake_pitch": fn(*mut c_void, c_int) -> c_uint, self.0, plane as c_int) as usize)
    }

    /// All bytes of its planes, which lie one behind the other.
    pub fn pixels(&self) -> &[u8] {
        let bytes = call!(b"fake_bytes": fn(*mut c_void) -> usize, self.0);
        // SAFETY: there are so many, which stay as long as this.
        unsafe { std::slice::from_raw_parts(self.plane(0).0, bytes) }
    }

    /// With another value in a field of its structures; `[]` is for the second plane, or the only one.
    pub fn with(self, field: &str, value: u64) -> Self {
        let name = CString::new(field).unwrap();
        let known = call!(
            b"fake_set": fn(*mut c_void, *const c_char, u64) -> c_int,
            self.0, name.as_ptr(), value
        );
        assert_eq!(known, 1, "{field}");
        self
    }

    /// A buffer whose memory is the surface, as NVIDIA's elements make them.
    pub fn into_buffer(self) -> gst::Buffer {
        let mut buffer = gst::Buffer::new();
        buffer.get_mut().unwrap().append_memory(gst::Memory::from_slice(self));
        buffer
    }
}

impl AsRef<[u8]> for NvmmPicture {
    fn as_ref(&self) -> &[u8] {
        let size = call!(b"fake_surface_size": fn() -> usize,);
        // SAFETY: the structure stays as long as this.
        unsafe { std::slice::from_raw_parts(self.0.cast(), size) }
    }
}

impl Drop for NvmmPicture {
    fn drop(&mut self) {
        call!(b"fake_surface_free": fn(*mut c_void), self.0)
    }
}

/// The same caps for frames in NVMM memory, for which the library is there.
pub fn in_nvmm(caps: &gst::CapsRef) -> gst::Caps {
    let _ = library();
    let mut caps = caps.to_owned();
    caps.make_mut().set_features(0, Some(gst::CapsFeatures::new(["memory:NVMM"])));
    caps
}
