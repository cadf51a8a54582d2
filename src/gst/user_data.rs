// SPDX-License-Identifier: MPL-2.0
//! GStreamer's own metas with user data of SEI, which h264parse reads and some encoders write. They came with 1.22. Their two
//! functions are the only ones of that release that the plugin calls, so they are found at run time: one build serves 1.20 too.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use gst::ffi::{GstBuffer, GstMeta};
use gst::glib;
use gst::glib::ffi::GType;
use gst::glib::translate::from_glib;
use gst::prelude::*;
use gst_video::ffi::GstVideoSEIUserDataUnregisteredMeta;
use libloading::os::unix;

/// A `GstVideoSEIUserDataUnregisteredMeta`.
#[repr(transparent)]
pub struct UserDataMeta(GstVideoSEIUserDataUnregisteredMeta);

// SAFETY: plain values, and bytes that are the meta's own.
unsafe impl Send for UserDataMeta {}
// SAFETY: as above.
unsafe impl Sync for UserDataMeta {}

// SAFETY: GStreamer registers exactly this type for that API.
unsafe impl MetaAPI for UserDataMeta {
    type GstType = GstVideoSEIUserDataUnregisteredMeta;

    /// Where GStreamer has none it is a type that no meta has. `INVALID` would be all metas.
    fn meta_api() -> glib::Type {
        // SAFETY: it takes nothing, and its result is a type.
        functions().map_or(glib::Type::UNIT, |functions| unsafe { from_glib((functions.api_get_type)()) })
    }
}

impl UserDataMeta {
    /// Gives a frame a copy of the data. False where GStreamer has no such metas, and where the data are empty.
    pub fn add(frame: &mut gst::BufferRef, uuid: &[u8; 16], data: &[u8]) -> bool {
        let Some(functions) = functions().filter(|_| !data.is_empty()) else { return false };
        // SAFETY: the frame is writable, and both places are read, as long as they are.
        let meta = unsafe { (functions.add)(frame.as_mut_ptr(), uuid.as_ptr(), data.as_ptr(), data.len()) };
        !meta.is_null()
    }

    /// Whose data they are.
    pub fn uuid(&self) -> [u8; 16] {
        self.0.uuid
    }

    /// The bytes behind the UUID.
    pub fn data(&self) -> &[u8] {
        if self.0.size == 0 || self.0.data.is_null() {
            return &[];
        }
        // SAFETY: GStreamer has so many bytes there, as long as the meta is.
        unsafe { std::slice::from_raw_parts(self.0.data, self.0.size) }
    }
}

/// Whether GStreamer has such metas.
pub fn available() -> bool {
    functions().is_some()
}

/// The functions of libgstvideo that are used.
struct UserDataFunctions {
    api_get_type: unsafe extern "C" fn() -> GType,
    add: unsafe extern "C" fn(*mut GstBuffer, uuid: *const u8, data: *const u8, size: usize) -> *mut GstMeta,
}

/// `None` before GStreamer 1.22.
fn functions() -> Option<&'static UserDataFunctions> {
    static FUNCTIONS: OnceLock<Option<UserDataFunctions>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| open().ok()).as_ref()
}

fn open() -> Result<UserDataFunctions, libloading::Error> {
    const NODELETE: c_int = 0x1000; // its types can never be taken back from GLib
    const NAME: &str = "libgstvideo-1.0.so.0";
    // SAFETY: this library is linked with it, so it is there already, and nothing runs that has not run.
    let library = unsafe { unix::Library::open(Some(NAME), unix::RTLD_NOW | unix::RTLD_LOCAL | NODELETE) };
    let library = ManuallyDrop::new(library?);
    // SAFETY: the types are those of the library's header, with `const` where it only reads.
    unsafe {
        Ok(UserDataFunctions {
            api_get_type: *library.get(b"gst_video_sei_user_data_unregistered_meta_api_get_type\0")?,
            add: *library.get(b"gst_buffer_add_video_sei_user_data_unregistered_meta\0")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_keeps_a_copy() {
        gst::init().unwrap();
        let mut frame = gst::Buffer::new();
        let own = frame.get_mut().unwrap();
        assert!(!UserDataMeta::add(own, &[7; 16], b""), "there is nothing to keep");
        let was_given = UserDataMeta::add(own, &[7; 16], b"one");
        assert_eq!(was_given, available());
        let found: Vec<_> = frame.iter_meta::<UserDataMeta>().map(|meta| (meta.uuid(), meta.data().to_vec())).collect();
        if !available() {
            assert!(gst::version() < (1, 22, 0, 0) && found.is_empty());
            return println!("SKIP: GStreamer has no user data in metas before 1.22");
        }
        assert_eq!(found, [([7; 16], b"one".to_vec())]);
        assert_eq!(UserDataMeta::meta_api().name(), "GstVideoSEIUserDataUnregisteredMetaAPI");
    }

    #[test]
    fn metas_of_another_kind_are_none() {
        gst::init().unwrap();
        let mut frame = gst::Buffer::new();
        gst_video::VideoRegionOfInterestMeta::add(frame.get_mut().unwrap(), "disc", (1, 2, 3, 4));
        assert_eq!(frame.iter_meta::<UserDataMeta>().count(), 0);
    }
}
