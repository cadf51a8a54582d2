// SPDX-License-Identifier: MPL-2.0
//! Buffers with a grey picture, as metas carry masks and maps: GRAY8 or 16 bits, by their GstVideoMeta.

use gst_video::{VideoFormat, VideoFrameFlags, VideoMeta};
use gsttrt_core::image::map::PixelMap;

/// A picture of that format and size, whose rows have no padding. `None` where it has no pixel.
pub fn gray(pixels: Vec<u8>, format: VideoFormat, (width, height): (u32, u32)) -> Option<gst::Buffer> {
    let stride = pixels.len().checked_div(height as usize).filter(|&stride| stride > 0)?;
    let mut buffer = gst::Buffer::from_mut_slice(pixels);
    // The meta has to state that rows have no padding, because usually they have.
    let (buffer_ref, strides) = (buffer.get_mut().expect("just made"), [stride as i32]);
    VideoMeta::add_full(buffer_ref, VideoFrameFlags::empty(), format, width, height, &[0], &strides).ok()?;
    Some(buffer)
}

/// The values of a map, in 8 bits where they fit; then 255 is no class. `None` where they are not given.
pub fn picture(map: &PixelMap) -> Option<gst::Buffer> {
    let values = map.values();
    let (pixels, format) = if map.has_bytes() {
        (values.iter().map(|&value| value as u8).collect(), VideoFormat::Gray8)
    } else {
        (values.iter().flat_map(|value| value.to_le_bytes()).collect(), VideoFormat::Gray16Le)
    };
    gray(pixels, format, (map.width(), map.height())).filter(|_| !map.is_hidden)
}

/// The picture of that size whose rows are these bytes. `None` where they are of another size.
pub fn of_bytes(bytes: &gst::BufferRef, (width, height): (u32, u32)) -> Option<gst::Buffer> {
    let pixels = bytes.map_readable().ok()?.to_vec();
    let format = match pixels.len().checked_div(width as usize * height as usize) {
        Some(1) => VideoFormat::Gray8,
        Some(2) => VideoFormat::Gray16Le,
        _ => return None,
    };
    gray(pixels, format, (width, height))
}

/// The values of a picture, and its width and height; 255 of 8 bits becomes no class where these are classes.
pub fn values(picture: &gst::BufferRef, are_classes: bool) -> Option<(Vec<u16>, (u32, u32))> {
    let meta = picture.meta::<VideoMeta>()?;
    let (format, width, height) = (meta.format(), meta.width(), meta.height());
    let bytes = match format {
        VideoFormat::Gray8 => 1,
        VideoFormat::Gray16Le | VideoFormat::Gray16Be => 2,
        _ => return None,
    };
    let (start, stride) = (*meta.offset().first()?, usize::try_from(*meta.stride().first()?).ok()?);
    let row = (width as usize).checked_mul(bytes)?;
    let memory = picture.map_readable().ok()?;
    let mut values = Vec::new();
    for y in 0..height as usize {
        let at = y.checked_mul(stride)?.checked_add(start)?;
        let row = memory.get(at..at.checked_add(row)?)?;
        match format {
            VideoFormat::Gray8 if are_classes => {
                values
                    .extend(row.iter().map(|&value| if value == u8::MAX { PixelMap::NO_CLASS } else { value.into() }));
            }
            VideoFormat::Gray8 => values.extend(row.iter().map(|&value| u16::from(value))),
            VideoFormat::Gray16Le => values.extend(row.as_chunks().0.iter().map(|&value| u16::from_le_bytes(value))),
            _ => values.extend(row.as_chunks().0.iter().map(|&value| u16::from_be_bytes(value))),
        }
    }
    Some((values, (width, height)))
}
