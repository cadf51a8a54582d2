// SPDX-License-Identifier: MPL-2.0
//! `GstTrtResultsMeta`: what takes the results of a frame to another process.
//!
//! Elements such as unixfdsink and cudaipcsink write the metas that have a serialiser, from GStreamer 1.24 on. Those of objects
//! have none. This one has: it knows nothing but the buffer that it is on, and writes what the other metas of that buffer hold
//! when it is asked. So it costs nothing where no such element is, and later changes are in it. In the other process
//! unixfdsrc asks it to read, and it attaches the same metas there. Earlier GStreamers do not have it.
//!
//! It is a GstCustomMeta, for cudaipcsink takes no other ones, with serialisers of its own.

use gst::glib::translate::*;

use super::{classification, events, map, text, unseen, vector, zones};

/// Registers the metas that another process may send, so that they can be read before a frame was seen here.
pub fn register() {
    classification::register();
    events::register();
    map::register();
    text::register();
    unseen::register();
    vector::register();
    zones::register();
    imp::registered();
}

/// Attaches the meta to a frame of that size, behind the metas that it is about.
pub fn attach(buffer: &mut gst::BufferRef, size: (u32, u32)) {
    let Some(registered) = imp::registered() else { return };
    // SAFETY: an info that is never freed; the buffer is only read.
    let api = unsafe { registered.info.as_ref().api };
    // SAFETY: as above.
    let is_there = unsafe { !gst::ffi::gst_buffer_get_meta(buffer.as_mut_ptr(), api).is_null() };
    if is_there {
        super::remove(buffer, |meta| meta.api().into_glib() == api);
    }
    imp::add(buffer, size);
}

/// The C side: layout, registration and callbacks.
mod imp {
    use std::ptr::{self, NonNull, null_mut};
    use std::slice;
    use std::sync::LazyLock;

    use gst::glib::ffi::{GFALSE, GQuark, GTRUE, gboolean, gpointer};
    use gst::glib::translate::*;
    use gst::{ffi, glib};

    use super::super::carried;

    /// Of the bytes. A process that knows another one only takes its own.
    const VERSION: u8 = 0;

    #[repr(C)]
    struct ResultsMeta {
        parent: ffi::GstCustomMeta,
        /// The one that it is on, which lives as long.
        buffer: *mut ffi::GstBuffer,
        /// Of the frame.
        size: (u32, u32),
    }

    #[derive(Clone, Copy)]
    pub(super) struct Registered {
        pub info: NonNull<ffi::GstMetaInfo>,
        /// What makes the structure that each GstCustomMeta has.
        init: ffi::GstMetaInitFunction,
    }

    // SAFETY: GStreamer never frees a registered info, and nobody changes it after this.
    unsafe impl Send for Registered {}
    // SAFETY: as above.
    unsafe impl Sync for Registered {}

    /// `None` before GStreamer 1.24, where infos have no serialisers.
    pub(super) fn registered() -> Option<&'static Registered> {
        static REGISTERED: LazyLock<Option<Registered>> =
            LazyLock::new(|| if gst::version() >= (1, 24, 0, 0) { register() } else { None });
        REGISTERED.as_ref()
    }

    fn register() -> Option<Registered> {
        // Without tags: it stays on the frame through all elements that change the picture.
        let mut tags = [ptr::null()];
        // SAFETY: the name is new, the tags end with NULL.
        let info = unsafe {
            ffi::gst_meta_register_custom(c"GstTrtResultsMeta".as_ptr(), tags.as_mut_ptr(), None, null_mut(), None)
        };
        let info = NonNull::new(info.cast_mut())?;
        // SAFETY: the info is in memory that GStreamer has allocated for it, and no buffer has such a meta yet. Size and callbacks
        // are those of ResultsMeta, which begins with a GstCustomMeta.
        unsafe {
            let to = info.as_ptr();
            let init_custom = (*to).init_func;
            (*to).size = size_of::<ResultsMeta>();
            (*to).init_func = Some(init);
            (*to).transform_func = Some(transform);
            (*to).serialize_func = Some(serialize);
            (*to).deserialize_func = Some(deserialize);
            Some(Registered { info, init: init_custom })
        }
    }

    pub(super) fn add(buffer: &mut gst::BufferRef, mut size: (u32, u32)) -> *mut ffi::GstMeta {
        let Some(Registered { info, .. }) = registered() else { return null_mut() };
        // SAFETY: the buffer is writable; init copies the size.
        unsafe { ffi::gst_buffer_add_meta(buffer.as_mut_ptr(), info.as_ptr(), (&raw mut size).cast()) }
    }

    /// By `add` the parameters are a size; a program that adds the meta by its name has none.
    unsafe extern "C" fn init(meta: *mut ffi::GstMeta, params: gpointer, buffer: *mut ffi::GstBuffer) -> gboolean {
        // SAFETY: the memory of the meta is not initialised yet but for its info, whose first callback makes the structure.
        unsafe {
            let size = if params.is_null() { (0, 0) } else { *params.cast::<(u32, u32)>() };
            let to = meta.cast::<ResultsMeta>();
            ptr::write(&raw mut (*to).buffer, buffer);
            ptr::write(&raw mut (*to).size, size);
            match registered().and_then(|registered| registered.init) {
                Some(init_custom) => init_custom(meta, null_mut(), buffer),
                None => GFALSE,
            }
        }
    }

    unsafe extern "C" fn transform(
        dest: *mut ffi::GstBuffer,
        meta: *mut ffi::GstMeta,
        _buffer: *mut ffi::GstBuffer,
        kind: GQuark,
        _data: gpointer,
    ) -> gboolean {
        static COPY: LazyLock<u32> =
            LazyLock::new(|| glib::Quark::from_static_str(glib::gstr!("gst-copy")).into_glib());
        if kind != *COPY {
            return GFALSE;
        }
        // SAFETY: GStreamer calls this with a writable dest, and a meta of ours.
        let (dest, size) = unsafe { (gst::BufferRef::from_mut_ptr(dest), (*meta.cast::<ResultsMeta>()).size) };
        super::attach(dest, size);
        GTRUE
    }

    unsafe extern "C" fn serialize(
        meta: *const ffi::GstMeta,
        data: *mut ffi::GstByteArrayInterface,
        version: *mut u8,
    ) -> gboolean {
        // SAFETY: a meta of ours, whose buffer it is on and so lives; it is only read.
        let bytes = unsafe {
            let meta = &*meta.cast::<ResultsMeta>();
            carried::bytes(gst::BufferRef::from_ptr(meta.buffer), meta.size)
        };
        // SAFETY: the array is of the caller, who may have none that grows. Behind `resize` there is room for the bytes, and the
        // length is set as GStreamer's own inline function sets it.
        unsafe {
            let (before, after) = ((*data).len, (*data).len + bytes.len());
            match (*data).resize {
                Some(resize) if resize(data, after) != GFALSE => {}
                _ => return GFALSE,
            }
            (*data).len = after;
            ptr::copy_nonoverlapping(bytes.as_ptr(), (*data).data.add(before), bytes.len());
            *version = VERSION;
        }
        GTRUE
    }

    unsafe extern "C" fn deserialize(
        _info: *const ffi::GstMetaInfo,
        buffer: *mut ffi::GstBuffer,
        data: *const u8,
        size: usize,
        version: u8,
    ) -> *mut ffi::GstMeta {
        // SAFETY: so many bytes of the caller, and its buffer, which is writable.
        let (bytes, buffer) = unsafe { (slice::from_raw_parts(data, size), gst::BufferRef::from_mut_ptr(buffer)) };
        let restored = if version == VERSION { carried::restore(buffer, bytes) } else { None };
        // Where it is none of ours, GStreamer logs it, and the frame goes on without.
        restored.map_or(null_mut(), |size| add(buffer, size))
    }
}

#[cfg(test)]
mod tests {
    use gst_video::VideoRegionOfInterestMeta;
    use libloading::os::unix;

    use super::*;
    use gst::glib;

    type Serialize = unsafe extern "C" fn(*const gst::ffi::GstMeta, *mut glib::ffi::GByteArray) -> glib::ffi::gboolean;
    type Deserialize =
        unsafe extern "C" fn(*mut gst::ffi::GstBuffer, *const u8, usize, *mut u32) -> *mut gst::ffi::GstMeta;

    /// As unixfdsink and unixfdsrc do.
    #[test]
    fn gstreamer_takes_results_to_another_buffer() {
        gst::init().unwrap();
        register();
        // SAFETY: functions of GStreamer's core, which is loaded, of the types in its header.
        let functions = unsafe {
            let core = unix::Library::open(Some("libgstreamer-1.0.so.0"), unix::RTLD_NOW).unwrap();
            core.get::<Serialize>(b"gst_meta_serialize_simple\0")
                .and_then(|serialize| Ok((*serialize, *core.get::<Deserialize>(b"gst_meta_deserialize\0")?)))
        };
        let mut sent = gst::Buffer::new();
        let to = sent.get_mut().unwrap();
        VideoRegionOfInterestMeta::add(to, "car", (1, 2, 3, 4));
        attach(to, (64, 48));
        attach(to, (64, 48)); // of a second model
        let Ok((serialize, deserialize)) = functions else {
            assert!(imp::registered().is_none() && sent.iter_meta::<gst::Meta>().count() == 1, "nothing is attached");
            return println!("SKIP: GStreamer has no serialisers of metas before 1.24");
        };
        assert_eq!(sent.iter_meta::<gst::Meta>().count(), 2);
        // The copy is what is asked, and has changed since.
        let mut copy = sent.copy();
        copy.get_mut().unwrap().meta_mut::<VideoRegionOfInterestMeta>().unwrap().set_rect((5, 6, 7, 8));
        let mut received = gst::Buffer::new();
        // SAFETY: metas of a buffer that lives, an array that is freed once, and a buffer that is ours alone.
        unsafe {
            let array = glib::ffi::g_byte_array_new();
            let metas: Vec<_> =
                copy.iter_meta::<gst::Meta>().filter(|meta| serialize(meta.as_ptr(), array) != 0).collect();
            assert_eq!(metas.len(), 1, "that of ours alone");
            let (data, size) = ((*array).data, (*array).len as usize);
            let mut consumed = 0;
            let buffer = received.get_mut().unwrap().as_mut_ptr();
            assert!(!deserialize(buffer, data, size, &mut consumed).is_null() && consumed as usize == size);
            glib::ffi::g_byte_array_unref(array);
        }
        let region = received.meta::<VideoRegionOfInterestMeta>().unwrap();
        assert_eq!((region.roi_type(), region.rect()), ("car", (5, 6, 7, 8)));
    }
}
