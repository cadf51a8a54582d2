// SPDX-License-Identifier: MPL-2.0
//! An element that gets its CUDA context as the decoders of nvcodec do, by the same functions of libgstcuda, and that
//! makes a frame in CUDA memory of each buffer.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};

use gst::glib::translate::*;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst::{ffi, glib};
use gsttrt_core::cuda::driver::Context;
use libloading::os::unix::Library;

use super::super::{pool, registry};

type Slot = *mut *mut ffi::GstObject;

/// The three functions of libgstcuda that such elements call.
struct Functions {
    ensure: unsafe extern "C" fn(*mut ffi::GstElement, c_int, Slot) -> glib::ffi::gboolean,
    set: unsafe extern "C" fn(*mut ffi::GstElement, *mut ffi::GstContext, c_int, Slot) -> glib::ffi::gboolean,
    answer: unsafe extern "C" fn(*mut ffi::GstElement, *mut ffi::GstQuery, *mut c_void) -> glib::ffi::gboolean,
}

static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| {
    // SAFETY: the library is loaded already, and never closed; the types are those of its headers.
    unsafe {
        let library = std::mem::ManuallyDrop::new(Library::new("libgstcuda-1.0.so.0").unwrap());
        Functions {
            ensure: *library.get(b"gst_cuda_ensure_element_context\0").unwrap(),
            set: *library.get(b"gst_cuda_handle_set_context\0").unwrap(),
            answer: *library.get(b"gst_cuda_handle_context_query\0").unwrap(),
        }
    }
});

/// A GstCudaContext, which is never freed, as it is written without a lock while an element opens.
struct Found(std::cell::UnsafeCell<*mut ffi::GstObject>);

// SAFETY: it is written in one change of state, or before, and read after it.
unsafe impl Send for Found {}
// SAFETY: as above.
unsafe impl Sync for Found {}

impl Default for Found {
    fn default() -> Self {
        Found(null_mut::<ffi::GstObject>().into())
    }
}

#[derive(Default)]
pub struct FakeDecoder {
    found: Found,
    device: AtomicU32,
    pool: Mutex<Option<gst::BufferPool>>,
}

const CAPS: &str = "video/x-raw(memory:CUDAMemory),format=NV12,width=64,height=64,framerate=25/1";

impl FakeDecoder {
    fn device(&self) -> i32 {
        self.device.load(Ordering::Relaxed) as i32
    }

    fn element(&self) -> *mut ffi::GstElement {
        self.obj().upcast_ref::<gst::Element>().to_glib_none().0
    }

    fn context(&self) -> Context {
        // SAFETY: the element is open, and has one.
        registry::of(&unsafe { from_glib_none(*self.found.0.get()) }).unwrap()
    }

    fn decode(&self, buffer: &gst::BufferRef) -> Result<gst::FlowSuccess, gst::FlowError> {
        let src = self.obj().static_pad("src").unwrap();
        let mut frames = self.pool.lock().unwrap();
        let frames = frames.get_or_insert_with(|| {
            let caps = CAPS.parse().unwrap();
            src.push_event(gst::event::Caps::new(&caps));
            let segment = gst::FormattedSegment::<gst::ClockTime>::new();
            src.push_event(gst::event::Segment::new(&segment));
            let (pool, _) = pool(&self.context(), &caps, 64 * 64 * 3 / 2, 4).unwrap();
            pool.set_active(true).unwrap();
            pool
        });
        let mut frame = frames.acquire_buffer(None)?;
        frame.get_mut().unwrap().set_pts(buffer.pts().or(Some(gst::ClockTime::ZERO)));
        src.push(frame)
    }
}

#[glib::object_subclass]
impl ObjectSubclass for FakeDecoder {
    const NAME: &'static str = "GstTrtFakeDecoder";
    type Type = FakeDecoderElement;
    type ParentType = gst::Element;
}

glib::wrapper! {
    pub struct FakeDecoderElement(ObjectSubclass<FakeDecoder>) @extends gst::Element, gst::Object;
}

impl ObjectImpl for FakeDecoder {
    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<[glib::ParamSpec; 1]> =
            LazyLock::new(|| [glib::ParamSpecUInt::builder("cuda-device-id").build()]);
        &*PROPERTIES
    }

    fn set_property(&self, _id: usize, value: &glib::Value, _property: &glib::ParamSpec) {
        self.device.store(value.get().unwrap(), Ordering::Relaxed);
    }

    fn property(&self, _id: usize, _property: &glib::ParamSpec) -> glib::Value {
        self.device.load(Ordering::Relaxed).to_value()
    }

    fn constructed(&self) {
        self.parent_constructed();
        let template = |name| self.obj().pad_template(name).unwrap();
        let sink = gst::Pad::builder_from_template(&template("sink"))
            .chain_function(|_, parent, buffer| {
                let element = parent.and_then(|parent| parent.downcast_ref::<FakeDecoderElement>()).unwrap();
                element.imp().decode(&buffer)
            })
            .event_function(|pad, parent, event| match event.type_() {
                gst::EventType::Caps | gst::EventType::Segment => true,
                _ => gst::Pad::event_default(pad, parent, event),
            })
            .build();
        let src = gst::Pad::builder_from_template(&template("src"))
            .query_function(|pad, parent, query| {
                let element = parent.and_then(|parent| parent.downcast_ref::<FakeDecoderElement>()).unwrap();
                element.imp().answer(query) || gst::Pad::query_default(pad, parent, query)
            })
            .build();
        self.obj().add_pad(&sink).unwrap();
        self.obj().add_pad(&src).unwrap();
    }
}

impl FakeDecoder {
    fn answer(&self, query: &mut gst::QueryRef) -> bool {
        if query.type_() != gst::QueryType::Context {
            return false;
        }
        // SAFETY: the element and the query are alive, and the context, if there is one, is.
        unsafe {
            (FUNCTIONS.answer)(self.element(), query.as_mut_ptr(), (*self.found.0.get()).cast()) != glib::ffi::GFALSE
        }
    }
}

impl GstObjectImpl for FakeDecoder {}

impl ElementImpl for FakeDecoder {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> =
            LazyLock::new(|| gst::subclass::ElementMetadata::new("Decoder", "Codec/Decoder/Video", "For tests", "us"));
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<[gst::PadTemplate; 2]> = LazyLock::new(|| {
            let template = |name, direction, caps: &str| {
                gst::PadTemplate::new(name, direction, gst::PadPresence::Always, &caps.parse().unwrap()).unwrap()
            };
            [template("sink", gst::PadDirection::Sink, "video/x-fake"), template("src", gst::PadDirection::Src, CAPS)]
        });
        &*TEMPLATES
    }

    fn change_state(&self, transition: gst::StateChange) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
        if transition == gst::StateChange::NullToReady {
            // SAFETY: the slot is the one that `set_context` writes, as the function asks for.
            let opened = unsafe { (FUNCTIONS.ensure)(self.element(), self.device(), self.found.0.get()) };
            if opened == glib::ffi::GFALSE {
                return Err(gst::StateChangeError);
            }
        }
        let changed = self.parent_change_state(transition)?;
        if transition == gst::StateChange::ReadyToNull {
            // SAFETY: nothing else uses it now; the reference is ours.
            unsafe {
                let found: Option<gst::Object> = from_glib_full(*self.found.0.get());
                *self.found.0.get() = null_mut();
                drop(found);
            }
        }
        if transition == gst::StateChange::PausedToReady
            && let Some(pool) = self.pool.lock().unwrap().take()
        {
            let _ = pool.set_active(false);
        }
        Ok(changed)
    }

    fn set_context(&self, context: &gst::Context) {
        // SAFETY: the element is alive, and the slot is its own.
        unsafe { (FUNCTIONS.set)(self.element(), context.to_glib_none().0, self.device(), self.found.0.get()) };
        self.parent_set_context(context);
    }
}

/// `fakecudadec`, which decodebin takes.
pub fn register() {
    gst::Element::register(None, "fakecudadec", gst::Rank::PRIMARY, FakeDecoderElement::static_type()).unwrap();
}
