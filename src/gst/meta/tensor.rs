//! [`TensorMeta`]: the tensors that ride on a frame from trtpreprocess through trtinfer to trtnms.
//!
//! The payload is shared, so that copying a buffer's metadata (`tee`, `make_writable`) copies a pointer. The meta has no
//! tags: it says how the tensor relates to the frame it was made of, so elements that convert or scale the frame may keep it.

use std::fmt;
use std::sync::Arc;

use gst::prelude::*;

use super::original::HeldFrame;
use crate::backends::batcher::PendingOutput;
use crate::core::tensor::Tensors;
use crate::image::geometry::Letterbox;
use crate::image::transform::InputTransform;
use crate::model::ModelInfo;

/// What rides on a frame.
#[derive(Debug)]
pub enum Payload {
    /// The model's input, one tensor, from trtpreprocess.
    Input { tensors: Arc<Tensors>, letterbox: Letterbox, recipe: InputTransform, original: Option<HeldFrame> },
    /// The model's outputs, from trtinfer, or the place in a batch where they will be computed.
    Output {
        outputs: PendingOutput,
        letterbox: Letterbox,
        recipe: InputTransform,
        model: Arc<ModelInfo>,
        original: Option<HeldFrame>,
    },
    /// A frame that trtinfer let pass, as its `interval` says, with what the GPU may still be writing.
    Skipped { input: Arc<Tensors> },
}

/// A `GstMeta` that owns a share of a [`Payload`].
#[repr(transparent)]
pub struct TensorMeta(imp::TensorMeta);

// SAFETY: the payload is Send and Sync, and a meta is only reached through its buffer.
unsafe impl Send for TensorMeta {}
unsafe impl Sync for TensorMeta {}

impl TensorMeta {
    /// Hangs `payload` on the buffer, in place of any that hung there.
    pub fn set(buffer: &mut gst::BufferRef, payload: Arc<Payload>) {
        TensorMeta::take(buffer);
        imp::add(buffer, payload);
    }

    /// The payload, left where it is.
    pub fn get(buffer: &gst::BufferRef) -> Option<Arc<Payload>> {
        buffer.meta::<TensorMeta>().map(|meta| meta.0.payload.clone())
    }

    /// The payload, removed from the buffer.
    pub fn take(buffer: &mut gst::BufferRef) -> Option<Arc<Payload>> {
        let meta = buffer.meta_mut::<TensorMeta>()?;
        let payload = meta.0.payload.clone();
        meta.remove().ok()?;
        Some(payload)
    }
}

// SAFETY: imp registers exactly this type for that API.
unsafe impl MetaAPI for TensorMeta {
    type GstType = imp::TensorMeta;

    fn meta_api() -> gst::glib::Type {
        imp::api_type()
    }
}

impl fmt::Debug for TensorMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TensorMeta").field(&self.0.payload).finish()
    }
}

/// The C side: layout, registration and callbacks.
mod imp {
    use std::ptr;
    use std::sync::{Arc, LazyLock};

    use gst::glib::translate::*;
    use gst::{ffi, glib};

    use super::Payload;

    #[repr(C)]
    pub struct TensorMeta {
        parent: ffi::GstMeta,
        pub(super) payload: Arc<Payload>,
    }

    pub(super) fn api_type() -> glib::Type {
        static TYPE: LazyLock<glib::Type> = LazyLock::new(|| {
            let tags = [ptr::null::<std::ffi::c_char>()];
            // SAFETY: the name is new, the tags end with NULL.
            unsafe {
                from_glib(ffi::gst_meta_api_type_register(c"GstTrtTensorMetaAPI".as_ptr(), tags.as_ptr() as *mut _))
            }
        });
        *TYPE
    }

    pub(super) fn add(buffer: &mut gst::BufferRef, payload: Arc<Payload>) {
        let payload = Arc::into_raw(payload);
        // SAFETY: the buffer is writable; init takes over the reference that `payload` stands for.
        unsafe {
            ffi::gst_buffer_add_meta(buffer.as_mut_ptr(), info(), payload as glib::ffi::gpointer);
        }
    }

    fn info() -> *const ffi::GstMetaInfo {
        struct Info(ptr::NonNull<ffi::GstMetaInfo>);
        // SAFETY: GStreamer never changes or frees a registered info.
        unsafe impl Send for Info {}
        unsafe impl Sync for Info {}

        static INFO: LazyLock<Info> = LazyLock::new(|| {
            // SAFETY: size and callbacks are those of TensorMeta.
            let info = unsafe {
                ffi::gst_meta_register(
                    api_type().into_glib(),
                    c"GstTrtTensorMeta".as_ptr(),
                    size_of::<TensorMeta>(),
                    Some(init),
                    Some(free),
                    Some(transform),
                )
            };
            Info(ptr::NonNull::new(info.cast_mut()).expect("GstTrtTensorMeta is registered once"))
        });
        INFO.0.as_ptr()
    }

    unsafe extern "C" fn init(
        meta: *mut ffi::GstMeta,
        params: glib::ffi::gpointer,
        _buffer: *mut ffi::GstBuffer,
    ) -> glib::ffi::gboolean {
        // SAFETY: only `add` makes this meta, and hands over an Arc; the memory of the meta is not initialised yet.
        unsafe {
            let payload = Arc::from_raw(params as *const Payload);
            ptr::write(&raw mut (*meta.cast::<TensorMeta>()).payload, payload);
        }
        glib::ffi::GTRUE
    }

    unsafe extern "C" fn free(meta: *mut ffi::GstMeta, _buffer: *mut ffi::GstBuffer) {
        // SAFETY: `init` wrote the payload, and nobody uses the meta after this.
        unsafe { ptr::drop_in_place(&raw mut (*meta.cast::<TensorMeta>()).payload) }
    }

    unsafe extern "C" fn transform(
        dest: *mut ffi::GstBuffer,
        meta: *mut ffi::GstMeta,
        _buffer: *mut ffi::GstBuffer,
        _kind: glib::ffi::GQuark,
        _data: glib::ffi::gpointer,
    ) -> glib::ffi::gboolean {
        // SAFETY: GStreamer calls this with a writable dest and a meta of ours. Copying and scaling alike share the payload.
        unsafe {
            let payload = (*meta.cast::<TensorMeta>()).payload.clone();
            super::TensorMeta::set(gst::BufferRef::from_mut_ptr(dest), payload);
        }
        glib::ffi::GTRUE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tensor::Tensor;
    use crate::image::geometry::ResizeMode;

    fn payload() -> Arc<Payload> {
        Arc::new(Payload::Input {
            tensors: Arc::new(Tensors::new(vec![Tensor::from_slice("images", &[1], &[1.0f32])], None, None)),
            letterbox: Letterbox::new((4, 2), (8, 8), ResizeMode::Letterbox),
            recipe: InputTransform::default(),
            original: None,
        })
    }

    #[test]
    fn travels_with_copies_and_is_freed_with_the_last() {
        gst::init().unwrap();
        let payload = payload();
        let mut buffer = gst::Buffer::new();
        TensorMeta::set(buffer.get_mut().unwrap(), payload.clone());
        let copy = buffer.copy();
        let mut second = copy.copy();
        assert_eq!(Arc::strong_count(&payload), 4);
        assert!(Arc::ptr_eq(&TensorMeta::get(&copy).unwrap(), &payload));

        assert!(TensorMeta::take(second.get_mut().unwrap()).is_some());
        assert!(TensorMeta::take(second.get_mut().unwrap()).is_none());
        drop((buffer, copy, second));
        assert_eq!(Arc::strong_count(&payload), 1);
    }

    #[test]
    fn a_second_payload_replaces_the_first() {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        TensorMeta::set(buffer.get_mut().unwrap(), payload());
        TensorMeta::set(buffer.get_mut().unwrap(), payload());
        assert_eq!(buffer.iter_meta::<TensorMeta>().count(), 1);
    }
}
