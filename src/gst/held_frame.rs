// SPDX-License-Identifier: MPL-2.0
//! Frames that another element still references when tensors are to be attached, such as a decoder's latest frame.
//! Downstream then gets a copy of the buffer, which shares its memory.
//!
//! The other reference is soon dropped, but the memory stays shared by two buffers. Drawing would then have to copy the
//! picture. And before GStreamer 1.24 a pool frees such a buffer when it returns, and allocates a new one for the next
//! frame: on a GPU both wait for all queued work, and block other threads' calls. So originals are kept while their
//! copies are downstream, and the element that draws swaps the original back in.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use gst::glib::translate::from_glib_none;
use gst::prelude::*;

use crate::gst::{cuda, meta};

/// The original of a copy that is downstream, until it is taken back.
#[derive(Clone, Debug)]
pub struct HeldFrame(Arc<Mutex<Option<gst::Buffer>>>);

impl HeldFrame {
    /// The original with all metas of its copy, if nothing else references either of them or their memory. The copy
    /// then has no memory any more.
    pub fn take_back(&self, copy: &mut gst::BufferRef) -> Option<gst::Buffer> {
        let mut kept = self.0.lock().unwrap();
        let mut original = kept.take_if(|original| original.is_writable() && is_of_these_two(original, copy))?;
        let target = original.get_mut().expect("just checked");
        let has_layout =
            target.iter_meta::<gst_video::VideoMeta>().any(|meta| meta.flags().contains(gst::MetaFlags::LOCKED));
        meta::remove(target, |meta| !meta::is_of_pool(meta));
        if meta::copy(copy, target).is_err() {
            *kept = Some(original);
            return None;
        }
        if has_layout {
            // The copy's meta is the same.
            meta::remove(target, meta::is_copied_layout);
        }
        copy.remove_all_memory();
        Some(original)
    }

    /// Drops the original if its memory is no longer shared; returns whether it is still needed.
    fn is_needed(&self) -> bool {
        let mut kept = self.0.lock().unwrap();
        kept.take_if(|original| original.is_all_memory_writable());
        kept.is_some()
    }
}

/// Whether both buffers have the same memory, and nothing else references it.
///
/// This depends on what GStreamer does from 1.22 to 1.28: each buffer that has a memory holds one reference to it, and
/// `gst_buffer_copy` shares memory and does not copy it. So two references to what two buffers have are theirs. Where a
/// later release holds one more, the count is never two and the original is never taken back: the picture is copied
/// before it is drawn on, as without all this. Were one of the two buffers to hold none, a third holder could be
/// overlooked, which the tests below would show.
fn is_of_these_two(original: &gst::BufferRef, copy: &gst::BufferRef) -> bool {
    let is_theirs = |(memory, same): (&gst::MemoryRef, &gst::MemoryRef)| {
        // SAFETY: the count is a public field of a structure that both buffers keep, and GStreamer accesses it by
        // atomic operations only.
        let count = unsafe { AtomicI32::from_ptr(&raw mut (*memory.as_ptr().cast_mut()).mini_object.refcount) };
        memory.as_ptr() == same.as_ptr() && count.load(Ordering::Acquire) == 2
    };
    original.n_memory() == copy.n_memory() && original.iter_memories().zip(copy.iter_memories()).all(is_theirs)
}

/// The originals of all copies that an element let go on.
#[derive(Default)]
pub struct HeldFrames(Vec<HeldFrame>);

impl HeldFrames {
    /// To be called before the frame is copied: keeps it if it will be, and drops originals that are no longer needed.
    pub fn keep(&mut self, frame: &gst::Buffer) {
        self.0.retain(HeldFrame::is_needed);
        if !frame.is_writable() && is_of_endless_gpu_pool(frame) {
            self.0.push(HeldFrame(Arc::new(Mutex::new(Some(frame.clone())))));
        }
    }

    /// The original of a copy, if it is kept here, and so no longer by the copy itself.
    pub fn of(&self, copy: &mut gst::BufferRef) -> Option<HeldFrame> {
        let has_same = |frame: &gst::Buffer| {
            copy.n_memory() > 0 && frame.n_memory() > 0 && frame.peek_memory(0).as_ptr() == copy.peek_memory(0).as_ptr()
        };
        let original = self.0.iter().rfind(|original| original.0.lock().unwrap().as_ref().is_some_and(has_same))?;
        meta::remove(copy, |meta| meta.api() == gst::ParentBufferMeta::meta_api());
        Some(original.clone())
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Whether it is GPU memory of a pool that has as many as are needed. From one that has only so many, the last one that
/// is kept might be the one that the decoder waits for.
fn is_of_endless_gpu_pool(frame: &gst::Buffer) -> bool {
    // SAFETY: a field that does not change while the buffer is referenced, which keeps its pool.
    let pool: Option<gst::BufferPool> = unsafe { from_glib_none((*frame.as_ptr()).pool) };
    let has_no_end = |pool: gst::BufferPool| pool.config().params().is_some_and(|(.., max)| max == 0);
    cuda::memory(frame).is_some() && pool.is_some_and(has_no_end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gst_video::VideoMeta;

    fn frame() -> (gst::BufferPool, gst::Buffer) {
        gst::init().unwrap();
        let info = gst_video::VideoInfo::builder(gst_video::VideoFormat::Nv12, 64, 48).build().unwrap();
        let pool = gst_video::VideoBufferPool::new().upcast::<gst::BufferPool>();
        let mut config = pool.config();
        config.set_params(Some(&info.to_caps().unwrap()), info.size() as u32, 0, 0);
        config.add_option(gst_video::BUFFER_POOL_OPTION_VIDEO_META.as_ref());
        pool.set_config(config).unwrap();
        pool.set_active(true).unwrap();
        let frame = pool.acquire_buffer(None).unwrap();
        (pool, frame)
    }

    fn kept(frame: gst::Buffer) -> HeldFrames {
        HeldFrames(vec![HeldFrame(Arc::new(Mutex::new(Some(frame))))])
    }

    #[test]
    fn the_original_replaces_its_copy() {
        let (_pool, frame) = frame();
        let memory = frame.peek_memory(0).as_ptr();
        let mut copy = frame.copy();
        let originals = kept(frame);
        let copied = copy.get_mut().unwrap();
        copied.set_pts(gst::ClockTime::SECOND);
        gst_video::VideoCropMeta::add(copied, (1, 2, 3, 4));
        let original = originals.of(copied).unwrap().take_back(copied).unwrap();

        assert_eq!(original.peek_memory(0).as_ptr(), memory);
        assert_eq!((copy.n_memory(), original.n_memory()), (0, 1));
        assert!(original.is_writable() && original.is_all_memory_writable());
        assert_eq!(original.pts(), Some(gst::ClockTime::SECOND));
        assert_eq!(original.meta::<gst_video::VideoCropMeta>().unwrap().rect(), (1, 2, 3, 4));
        assert_eq!(original.iter_meta::<VideoMeta>().count(), 1);
        assert_eq!(original.iter_meta::<gst::ParentBufferMeta>().count(), 0);
        assert!(!originals.0[0].is_needed());
    }

    #[test]
    fn frames_that_others_reference_are_not_changed() {
        let (_pool, frame) = frame();
        let mut copy = frame.copy();
        let originals = kept(frame.clone());
        let copied = copy.get_mut().unwrap();
        let original = originals.of(copied).unwrap();
        assert!(original.take_back(copied).is_none(), "the decoder has it");
        drop(frame);
        let another = copied.copy();
        assert!(original.take_back(copied).is_none(), "another branch has its memory");
        drop(another);
        assert!(original.is_needed());
        assert!(original.take_back(copied).is_some());
        assert!(original.take_back(copied).is_none(), "once");
        assert!(originals.of(gst::Buffer::new().get_mut().unwrap()).is_none());
    }

    #[test]
    fn originals_without_copies_return_to_their_pool() {
        let (pool, frame) = frame();
        let buffer = frame.as_ptr();
        let mut copy = frame.copy();
        let mut originals = kept(frame);
        let original = originals.of(copy.get_mut().unwrap()).unwrap();
        assert!(original.is_needed());
        drop(copy);
        originals.0.retain(HeldFrame::is_needed);
        assert!(originals.0.is_empty() && original.0.lock().unwrap().is_none());
        assert_eq!(pool.acquire_buffer(None).unwrap().as_ptr(), buffer);
    }

    #[test]
    fn only_gpu_memory_of_endless_pools_is_kept() {
        let (_pool, frame) = frame();
        let mut originals = HeldFrames::default();
        originals.keep(&frame);
        let second = frame.clone();
        originals.keep(&second);
        assert!(originals.0.is_empty());
    }
}
