//! Frames that somebody else still holds, as decoders do with the one they have just decoded, and that go on as copies.

use gst::glib::translate::from_glib_none;
use gst::prelude::*;

use crate::cuda;

/// The originals of such copies, as long as those live, for both have the same memory.
///
/// Before GStreamer 1.24, pools throw away what comes back to them while a copy lives, and allocate anew for the next frame. In
/// GPU memory both wait until the GPU has done all that it was given, and other threads' calls wait with them. Later versions
/// keep originals by themselves.
#[derive(Default)]
pub struct Originals(Vec<gst::Buffer>);

impl Originals {
    /// Keeps the frame if it needs that, and lets go those whose memory is theirs alone again. To be called before the frame is
    /// copied.
    pub fn keep(&mut self, frame: &gst::Buffer) {
        self.0.retain(|original| !original.is_all_memory_writable());
        if gst::version() < (1, 24, 0, 0) && !frame.is_writable() && is_of_endless_gpu_pool(frame) {
            self.0.push(frame.clone());
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Whether it is GPU memory of a pool that has as many as are needed. From one that has only so many, the last one that is kept
/// might be the one that the decoder waits for.
fn is_of_endless_gpu_pool(frame: &gst::Buffer) -> bool {
    // SAFETY: a field that does not change while somebody has the buffer, which keeps its pool.
    let pool: Option<gst::BufferPool> = unsafe { from_glib_none((*frame.as_ptr()).pool) };
    let has_no_end = |pool: gst::BufferPool| pool.config().params().is_some_and(|(.., most)| most == 0);
    cuda::gst::memory(frame).is_some() && pool.is_some_and(has_no_end)
}
