// SPDX-License-Identifier: MPL-2.0
//! Detections in GPU memory: suppression writes them, and the overlay reads them.

use std::mem::size_of;

use super::Candidate;
use super::geometry::Rect;

/// The detections of a frame, in GPU memory: their count, then each detection, in pixels of the model's input.
#[derive(Clone, Copy, Debug)]
pub struct DeviceDetections {
    pub address: u64,
    /// The maximum count.
    pub limit: usize,
    /// The address of the numbers that were gathered for them.
    pub gathered: Option<u64>,
    /// Whether some may be rotated.
    pub are_rotated: bool,
    pub masks: Option<DeviceMasks>,
}

/// The masks of the objects, in GPU memory.
#[derive(Clone, Copy, Debug)]
pub struct DeviceMasks {
    /// A [`MaskEntry`] for each object.
    pub entries: u64,
    /// Their pixels.
    pub bits: u64,
    /// A pixel of the model's input is as wide and high as 2 to the power of this of theirs.
    pub detail: u32,
}

/// Where a mask is: 32 bytes, the same for kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct MaskEntry {
    /// In pixels of the model's input, or of the masks' detail.
    pub rect: Rect,
    /// The index of its first word. Its rows are whole words, the left pixel in the lowest bit.
    pub first: u64,
    /// Whether a pixel is set.
    pub is_seen: u32,
    pub unused: u32,
}

const _: () = assert!(size_of::<MaskEntry>() == 32);

/// The header before the detections: their count, and what was lost.
pub(crate) const HEADER: usize = 16;

/// Bytes of detections: their count, then each detection.
pub(crate) fn found_size(detections: usize) -> usize {
    HEADER + detections * size_of::<Candidate>()
}

/// Detections in the layout of [`DeviceDetections`].
pub fn found_bytes(detections: &[Candidate]) -> Vec<u8> {
    let mut bytes = vec![0; found_size(detections.len())];
    let (header, rest) = bytes.split_at_mut(HEADER);
    header[..4].copy_from_slice(&(detections.len() as u32).to_ne_bytes());
    rest.copy_from_slice(bytemuck::cast_slice(detections));
    bytes
}
