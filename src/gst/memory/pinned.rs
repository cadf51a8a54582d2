// SPDX-License-Identifier: MPL-2.0
//! System memory that the GPU copies from by itself: what software decoders upstream are offered to decode into.
//!
//! Out of ordinary memory the driver first copies a frame, with the CPU, into page-locked memory of its own. A frame that
//! lies in page-locked memory from the start needs none of that. Only an allocator is ours: the pool is GStreamer's, which
//! gives decoders the strides and the padding they want.

use gst::glib;
use gst::glib::subclass::prelude::*;
use gst::prelude::*;
use gsttrt_core::cuda::driver::Context;

glib::wrapper! {
    /// Allocates page-locked system memory, or ordinary memory where there is no more of it.
    pub struct PinnedAllocator(ObjectSubclass<imp::PinnedAllocator>) @extends gst::Allocator, gst::Object;
}

impl PinnedAllocator {
    pub fn new(context: &Context) -> Self {
        let allocator: Self = glib::Object::new();
        let _ = allocator.imp().context.set(context.clone());
        allocator
    }
}

/// Proposes page-locked memory in answer to an allocation query for system memory, unless downstream has proposed its own
/// already. Whether frames may have a GstVideoMeta, and so padding, is left to downstream.
pub fn propose(context: &Context, query: &mut gst::query::Allocation) {
    propose_memory(&PinnedAllocator::new(context), query);
}

fn propose_memory(allocator: &PinnedAllocator, query: &mut gst::query::Allocation) {
    let (Some(caps), _) = query.get_owned() else { return };
    let in_system_memory =
        caps.features(0).is_some_and(|features| features.is_equal(&gst::CAPS_FEATURES_MEMORY_SYSTEM_MEMORY));
    let info = in_system_memory.then(|| gst_video::VideoInfo::from_caps(&caps).ok()).flatten();
    let Some(size) = info.and_then(|info| u32::try_from(info.size()).ok()) else { return };

    let asked = query.allocation_params().next();
    let (theirs, params) = asked.clone().unwrap_or_default();
    let pool = query.allocation_pools().next();
    let (their_pool, their_size, min, max) = pool.clone().unwrap_or_default();
    let plain = |pool: gst::BufferPool| pool.type_() == gst_video::VideoBufferPool::static_type();
    if theirs.is_some() || !their_pool.is_none_or(plain) {
        return;
    }

    let ours = gst_video::VideoBufferPool::new();
    let size = size.max(their_size);
    let mut config = ours.config();
    config.set_params(Some(&caps), size, min, max);
    config.set_allocator(Some(allocator), Some(&params));
    if ours.set_config(config).is_err() {
        return;
    }
    // First, because elements that decide look no further. The allocator too, which many give to the pool again.
    match asked {
        Some(_) => query.set_nth_allocation_param(0, Some(allocator), params),
        None => query.add_allocation_param(Some(allocator), params),
    }
    match pool {
        Some(_) => query.set_nth_allocation_pool(0, Some(&ours), size, min, max),
        None => query.add_allocation_pool(Some(&ours), size, min, max),
    }
}

mod imp {
    use std::ptr;
    use std::sync::{LazyLock, OnceLock};

    use gst::glib::translate::*;
    use gst::prelude::*;
    use gst::subclass::prelude::*;
    use gst::{ffi, glib};
    use gsttrt_core::cuda::driver::Context;
    use gsttrt_core::error::{Error, ErrorKind, Result};
    use gsttrt_core::memory::Mapped;

    static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
        gst::DebugCategory::new("trtpinned", gst::DebugColorFlags::empty(), Some("Page-locked system memory"))
    });

    /// How such memory is called in logs.
    const MEMORY_TYPE: &std::ffi::CStr = c"GstTrtPinnedMemory";

    #[derive(Default)]
    pub struct PinnedAllocator {
        pub(super) context: OnceLock<Context>,
    }

    impl PinnedAllocator {
        fn pinned(&self, size: usize, params: &gst::AllocationParams) -> Result<gst::Memory> {
            let all = size.checked_add(params.prefix()).and_then(|size| size.checked_add(params.padding()));
            let (Some(context), Some(all)) = (self.context.get(), all) else {
                return Err(Error::new(ErrorKind::Run, format!("Cannot allocate {size} bytes of pinned memory")));
            };
            // Pages have a larger alignment than any parameters ask for, and are zeroed, as flags of the parameters may
            // ask for.
            let mut memory = gst::Memory::from_mut_slice(PinnedBytes(Mapped::new(context, all)?));
            let inner = memory.get_mut().expect("it was just made");
            inner.resize(params.prefix()..params.prefix() + size);
            Ok(memory)
        }
    }

    /// What the memory owns.
    struct PinnedBytes(Mapped);

    impl AsMut<[u8]> for PinnedBytes {
        fn as_mut(&mut self) -> &mut [u8] {
            self.0.host_mut()
        }
    }

    #[glib::object_subclass]
    impl ObjectSubclass for PinnedAllocator {
        const NAME: &'static str = "GstTrtPinnedAllocator";
        type Type = super::PinnedAllocator;
        type ParentType = gst::Allocator;
    }

    impl ObjectImpl for PinnedAllocator {
        fn constructed(&self) {
            self.parent_constructed();
            let allocator: *mut ffi::GstAllocator = self.obj().upcast_ref::<gst::Allocator>().to_glib_none().0;
            // SAFETY: the object is not shared yet, and the text is static.
            unsafe { (*allocator).mem_type = MEMORY_TYPE.as_ptr() };
        }
    }

    impl GstObjectImpl for PinnedAllocator {}

    // SAFETY: what is returned is a new memory; it is of another allocator, which is the one that frees it.
    unsafe impl AllocatorImpl for PinnedAllocator {
        unsafe fn alloc(&self, size: usize, params: &gst::AllocationParams) -> *mut ffi::GstMemory {
            match self.pinned(size, params) {
                Ok(memory) => memory.into_glib_ptr(),
                Err(error) => {
                    gst::warning!(CAT, imp = self, "{error} Frames go to the GPU by way of the CPU.");
                    // SAFETY: the system's own allocator takes any size.
                    unsafe { ffi::gst_allocator_alloc(ptr::null_mut(), size, params.as_ptr().cast_mut()) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Needs no GPU: without a context the allocator hands out ordinary memory.
    #[test]
    fn software_decoders_take_what_is_proposed() {
        gst::init().unwrap();
        if gst::ElementFactory::find("avdec_h264").is_none() {
            return println!("SKIP: there is no avdec_h264");
        }
        let clip = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/sample.mp4");
        let line =
            format!("filesrc location={clip} ! qtdemux ! h264parse ! avdec_h264 ! fakesink name=sink num-buffers=9");
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let sink = pipeline.by_name("sink").unwrap().static_pad("sink").unwrap();
        let allocator: PinnedAllocator = glib::Object::new();
        sink.add_probe(gst::PadProbeType::QUERY_DOWNSTREAM, move |_, info| {
            match info.query_mut().map(|q| q.view_mut()) {
                Some(gst::QueryViewMut::Allocation(query)) => {
                    query.add_allocation_meta::<gst_video::VideoMeta>(None);
                    propose_memory(&allocator, query);
                    gst::PadProbeReturn::Handled
                }
                _ => gst::PadProbeReturn::Ok,
            }
        });
        // Of each frame, the allocator that its pool takes memory from.
        let seen = Arc::new(Mutex::new(Vec::new()));
        let see = seen.clone();
        sink.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            let pool = info.buffer().and_then(|buffer| {
                // SAFETY: a buffer keeps its pool.
                unsafe { glib::translate::from_glib_none::<_, Option<gst::BufferPool>>((*buffer.as_ptr()).pool) }
            });
            let allocator = pool.and_then(|pool| pool.config().allocator()).and_then(|(allocator, _)| allocator);
            see.lock().unwrap().push(allocator.map(|allocator| allocator.type_()));
            gst::PadProbeReturn::Ok
        });
        pipeline.set_state(gst::State::Playing).unwrap();
        let bus = pipeline.bus().unwrap();
        let end = [gst::MessageType::Eos, gst::MessageType::Error];
        let end = bus.timed_pop_filtered(gst::ClockTime::from_seconds(30), &end).unwrap();
        pipeline.set_state(gst::State::Null).unwrap();
        assert_eq!(end.type_(), gst::MessageType::Eos, "{end:?}");
        let seen = seen.lock().unwrap();
        // A frame that the decoder still predicts from comes in a buffer of no pool, which shares its memory.
        let ours = Some(PinnedAllocator::static_type());
        assert!(seen.len() >= 9 && seen[0] == ours, "{seen:?}");
        assert!(seen.iter().all(|seen| seen.is_none() || *seen == ours), "{seen:?}");
    }
}
