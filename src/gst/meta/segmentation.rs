// SPDX-License-Identifier: MPL-2.0
//! `GstAnalyticsSegmentationMtd`, which the bindings do not wrap: the mask of one object, as GStreamer's own decoder of
//! segmentation models writes it.

use gst_video::{VideoFormat, VideoFrameFlags, VideoMeta};

use crate::image::masks::Mask;

/// A picture of the mask's rectangle in 8 bits: `region` where pixels are the object's, else 0. `None` where there are none.
pub fn picture(mask: &Mask, region: u8) -> Option<gst::Buffer> {
    let (width, height) = (mask.rect().width(), mask.rect().height());
    let mut pixels = mask.to_bytes();
    if pixels.is_empty() {
        return None;
    }
    pixels.iter_mut().for_each(|pixel| *pixel &= region);
    let mut buffer = gst::Buffer::from_mut_slice(pixels);
    // Rows have no padding. The meta has to state that, because usually they have.
    let (buffer_ref, strides) = (buffer.get_mut().expect("just made"), [width as i32]);
    VideoMeta::add_full(buffer_ref, VideoFrameFlags::empty(), VideoFormat::Gray8, width, height, &[0], &strides)
        .ok()?;
    Some(buffer)
}

/// Adds the mask of an object; `region` is the value of its pixels. Returns the id of the added metadata.
#[cfg(feature = "v1_26")]
pub fn add_instance(
    relations: &mut gst::MetaRefMut<'_, gst_analytics::AnalyticsRelationMeta, gst::meta::Standalone>,
    mask: &Mask,
    region: u8,
) -> Option<u32> {
    use gst::glib::translate::{IntoGlibPtr, from_glib};
    use gst_analytics::ffi;

    let rect = mask.rect();
    let picture = picture(mask, region)?;
    let mut regions = [0, region.into()];
    let mut added = ffi::GstAnalyticsSegmentationMtd { id: 0, meta: std::ptr::null_mut() };
    // SAFETY: the meta exists and is writable; it takes over the buffer, which has a GstVideoMeta, and copies the regions.
    let is_added: bool = unsafe {
        from_glib(ffi::gst_analytics_relation_meta_add_segmentation_mtd(
            relations.as_mut_ptr(),
            picture.into_glib_ptr(),
            ffi::GST_SEGMENTATION_TYPE_INSTANCE,
            regions.len(),
            regions.as_mut_ptr(),
            rect.left as i32,
            rect.top as i32,
            rect.width(),
            rect.height(),
            &mut added,
        ))
    };
    is_added.then_some(added.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::geometry::Rect;

    #[test]
    fn a_picture_has_the_pixels_of_its_mask() {
        gst::init().unwrap();
        let rect = Rect { left: 5, top: 2, right: 8, bottom: 4 };
        let mask = Mask::of(rect, &[true, false, true, false, false, true]);
        let buffer = picture(&mask, 7).unwrap();
        assert_eq!(buffer.map_readable().unwrap().as_slice(), [7, 0, 7, 0, 0, 7]);
        let meta = buffer.meta::<VideoMeta>().unwrap();
        assert_eq!((meta.format(), meta.width(), meta.height(), meta.stride()), (VideoFormat::Gray8, 3, 2, &[3][..]));
        assert!(picture(&Mask::default(), 7).is_none());
    }
}
