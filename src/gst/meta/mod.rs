// SPDX-License-Identifier: MPL-2.0
//! What our elements attach to buffers: tensors for each other, detections for all elements. And the copying of metas
//! where a frame continues in another buffer.

pub mod attributes;
mod carried;
pub mod classification;
pub mod clip_input;
pub mod detection;
pub mod events;
pub mod frame_mark;
pub mod geometry;
mod gray;
pub mod gst_tensor;
pub mod identity;
pub mod map;
pub mod orientation;
mod packed;
pub mod read;
pub mod record;
mod relations;
pub mod results;
mod segmentation;
mod structure;
pub mod tensor;
pub mod text;
pub mod track;
pub mod unseen;
pub mod vector;
pub mod zones;

use std::ops::ControlFlow;

use gst::buffer::BufferMetaForeachAction::{Keep, Remove};
use gst::glib;
use gst::meta::{Iterated, MetaRefMut};
use gst::prelude::*;

/// Copies times, flags and metas, except those that keep the memory of the other buffer.
pub(crate) fn copy(from: &gst::BufferRef, to: &mut gst::BufferRef) -> Result<(), glib::BoolError> {
    // Deep, because a meta that only keeps the other buffer's memory alive is not needed here.
    from.copy_into(to, gst::BUFFER_COPY_METADATA | gst::BufferCopyFlags::DEEP, ..)
}

type AnyMeta<'a> = MetaRefMut<'a, gst::Meta, Iterated>;

/// Whether the meta is pooled: it stays on the buffer each time that its pool hands the buffer out.
pub(crate) fn is_of_pool(meta: &AnyMeta) -> bool {
    meta.flags().contains(gst::MetaFlags::LOCKED)
}

/// Whether the meta describes the planes of a buffer, and comes from another one.
pub(crate) fn is_copied_layout(meta: &AnyMeta) -> bool {
    meta.api() == gst_video::VideoMeta::meta_api() && !is_of_pool(meta)
}

/// Removes the metas for which `is_it` is true.
pub(crate) fn remove(buffer: &mut gst::BufferRef, is_it: impl Fn(&AnyMeta) -> bool) {
    buffer.foreach_meta_mut(|meta| ControlFlow::Continue(if is_it(&meta) { Remove } else { Keep }));
}
