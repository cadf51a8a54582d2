// SPDX-License-Identifier: MPL-2.0
//! GstAnalyticsRelationMeta: what a frame's metadata are, how they relate, and adding to them. Without GStreamer's analytics
//! library frames have none.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};

use gst::glib::Quark;
use gst::glib::ffi::{GFALSE, GQuark, gboolean};
use gst::glib::translate::{IntoGlib, IntoGlibPtr, from_glib_full};
use gsttrt_core::image::geometry::BBox;
use gsttrt_core::image::rotated::RotatedBox;

use crate::gst::analytics::{AnalyticsLibrary, Mtd, MtdType, RelationMeta, ShapeFunctions, library};

/// The meta of a frame, to be read.
pub struct Relations<'a> {
    library: &'static AnalyticsLibrary,
    meta: NonNull<RelationMeta>,
    /// Keeps the meta.
    buffer: PhantomData<&'a gst::BufferRef>,
}

/// The same, to be added to.
pub struct RelationsMut<'a>(Relations<'a>);

/// What metadata are of.
#[derive(Clone, Copy, Debug)]
pub enum Metadata {
    /// GstAnalyticsODMtd.
    Object,
    /// GstAnalyticsClsMtd.
    Classes,
    /// GstAnalyticsTrackingMtd.
    Tracking,
    /// GstAnalyticsSegmentationMtd, since 1.26.
    Segmentation,
}

/// GstAnalyticsRelTypes.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Relation {
    Contain = 4,
    RelateTo = 8,
    NToN = 16,
}

/// GstSegmentationType.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub enum SegmentationKind {
    Semantic = 0,
    Instance = 1,
}

/// Where an object is, in pixels of the frame.
#[derive(Clone, Copy, Debug)]
pub struct ObjectPlace {
    /// Left, top, width and height.
    pub rect: [i32; 4],
    pub confidence: f32,
}

fn done(result: gboolean) -> Option<()> {
    (result != GFALSE).then_some(())
}

impl<'a> Relations<'a> {
    /// All of a frame; usually it has one or none.
    pub fn of(buffer: &'a gst::BufferRef) -> impl Iterator<Item = Relations<'a>> {
        let library = library();
        let mut state = null_mut();
        std::iter::from_fn(move || {
            let library = library?;
            // SAFETY: the buffer is only read; `state` is null at first and then what the call before left. Metas of this API
            // are of this structure.
            let meta = unsafe {
                let api = (library.relations.gst_analytics_relation_meta_api_get_type)();
                gst::ffi::gst_buffer_iterate_meta_filtered(buffer.as_ptr().cast_mut(), &mut state, api)
            };
            Some(Relations { library, meta: NonNull::new(meta)?.cast(), buffer: PhantomData })
        })
    }

    fn mtd(&self, id: u32) -> Mtd {
        Mtd { id, meta: self.meta.as_ptr() }
    }

    /// `None` where this GStreamer does not have it.
    fn type_of(&self, what: Metadata) -> Option<MtdType> {
        let functions = &self.library.relations;
        // SAFETY: they take nothing, and return the address of a constant.
        unsafe {
            Some(match what {
                Metadata::Object => (functions.gst_analytics_od_mtd_get_mtd_type)(),
                Metadata::Classes => (functions.gst_analytics_cls_mtd_get_mtd_type)(),
                Metadata::Tracking => (functions.gst_analytics_tracking_mtd_get_mtd_type)(),
                Metadata::Segmentation => (self.shapes()?.gst_analytics_segmentation_mtd_get_mtd_type)(),
            })
        }
    }

    fn shapes(&self) -> Option<&'static ShapeFunctions> {
        self.library.shapes.as_ref()
    }

    /// The ids of all metadata of a kind.
    pub fn all(&self, what: Metadata) -> impl Iterator<Item = u32> {
        let (mut state, mut found, kind) = (null_mut(), self.mtd(0), self.type_of(what));
        let next = self.library.relations.gst_analytics_relation_meta_iterate;
        std::iter::from_fn(move || {
            // SAFETY: the meta is alive and is only read; `state` is null at first and then what the call before left.
            unsafe { done(next(self.meta.as_ptr(), &mut state, kind?, &mut found)).map(|()| found.id) }
        })
    }

    /// The ids of those to which a metadata has such a relation.
    pub fn related(&self, id: u32, relation: Relation, what: Metadata) -> Vec<u32> {
        let (mut state, mut found) = (null_mut(), self.mtd(0));
        let Some(kind) = self.type_of(what) else { return Vec::new() };
        let next = self.library.relations.gst_analytics_relation_meta_get_direct_related;
        let meta = self.meta.as_ptr();
        // SAFETY: as above.
        let next = || unsafe { done(next(meta, id, relation as u32, kind, &mut state, &mut found)).map(|()| found.id) };
        std::iter::from_fn(next).collect()
    }

    /// The ids of those that belong to a metadata: elements do not agree by which relation.
    pub fn belonging_to(&self, id: u32, what: Metadata) -> Vec<u32> {
        [Relation::Contain, Relation::RelateTo].map(|relation| self.related(id, relation, what)).concat()
    }

    /// Where an object is.
    pub fn place(&self, object: u32) -> Option<ObjectPlace> {
        let (mtd, [mut x, mut y, mut width, mut height], mut confidence) = (self.mtd(object), [0; 4], 0.0);
        // SAFETY: the meta is alive, and the id is that of one of its objects; writes into the variables.
        done(unsafe {
            let get = self.library.relations.gst_analytics_od_mtd_get_location;
            get(&mtd, &mut x, &mut y, &mut width, &mut height, &mut confidence)
        })?;
        Some(ObjectPlace { rect: [x, y, width, height], confidence })
    }

    /// An object's box before it is turned, and by how much; `None` where it is not.
    pub fn rotated(&self, object: u32) -> Option<RotatedBox> {
        let (mtd, [mut x, mut y, mut width, mut height]) = (self.mtd(object), [0; 4]);
        let (mut angle, mut confidence) = (0.0, 0.0);
        let get = self.shapes()?.gst_analytics_od_mtd_get_oriented_location;
        // SAFETY: as above.
        done(unsafe { get(&mtd, &mut x, &mut y, &mut width, &mut height, &mut angle, &mut confidence) })?;
        let [x, y, width, height] = [x, y, width, height].map(|number| number as f32);
        let bbox = BBox::new(x, y, x + width, y + height);
        (angle != 0.0 && angle.is_finite()).then_some(RotatedBox { bbox, angle })
    }

    /// The quark of an object's label. Any number may be there, 0 too.
    pub fn label(&self, object: u32) -> GQuark {
        // SAFETY: the meta is alive, and the id is that of one of its objects.
        unsafe { (self.library.relations.gst_analytics_od_mtd_get_obj_type)(&self.mtd(object)) }
    }

    /// The quarks and the confidences of classes.
    pub fn classes(&self, id: u32) -> Vec<(GQuark, f32)> {
        let (functions, mtd) = (&self.library.relations, self.mtd(id));
        // SAFETY: the meta is alive, and the id is that of one of its classifications, which has so many classes.
        unsafe {
            let at = |index| {
                let quark = (functions.gst_analytics_cls_mtd_get_quark)(&mtd, index);
                (quark, (functions.gst_analytics_cls_mtd_get_level)(&mtd, index))
            };
            (0..(functions.gst_analytics_cls_mtd_get_length)(&mtd)).map(at).collect()
        }
    }

    /// The number of a track.
    pub fn track(&self, id: u32) -> Option<u64> {
        self.track_info(id).map(|[number, ..]| number)
    }

    /// When its object was seen first and last.
    pub fn track_times(&self, id: u32) -> Option<[u64; 2]> {
        self.track_info(id).map(|[_, first, last]| [first, last])
    }

    fn track_info(&self, id: u32) -> Option<[u64; 3]> {
        let (mut number, mut first, mut last, mut is_lost) = (0, 0, 0, 0);
        let get = self.library.relations.gst_analytics_tracking_mtd_get_info;
        // SAFETY: the meta is alive, and the id is that of one of its trackings; writes into the variables.
        done(unsafe { get(&self.mtd(id), &mut number, &mut first, &mut last, &mut is_lost) })?;
        Some([number, first, last])
    }

    /// The picture of a segmentation, and the left, top, width and height that it fills on the frame.
    pub fn picture(&self, id: u32) -> Option<(gst::Buffer, [f64; 4])> {
        let (mut x, mut y, mut width, mut height) = (0, 0, 0, 0);
        let get = self.shapes()?.gst_analytics_segmentation_mtd_get_mask;
        // SAFETY: the meta is alive, and the id is that of one of its segmentations. The buffer is ours then.
        let buffer: Option<gst::Buffer> =
            unsafe { from_glib_full(get(&self.mtd(id), &mut x, &mut y, &mut width, &mut height)) };
        Some((buffer?, [x.into(), y.into(), width.into(), height.into()]))
    }
}

impl<'a> Deref for RelationsMut<'a> {
    type Target = Relations<'a>;

    fn deref(&self) -> &Relations<'a> {
        &self.0
    }
}

/// Adding fails only without memory, and where this GStreamer has no such metadata. All return the id of what was added.
impl<'a> RelationsMut<'a> {
    /// The first of a frame: readers use one only. `None` where there is none.
    pub fn first(buffer: &'a mut gst::BufferRef) -> Option<Self> {
        let Relations { library, meta, .. } = Relations::of(buffer).next()?;
        Some(RelationsMut(Relations { library, meta, buffer: PhantomData }))
    }

    /// A new one; `None` where GStreamer has none.
    pub fn add(buffer: &'a mut gst::BufferRef) -> Option<Self> {
        let library = library()?;
        // SAFETY: the buffer is writable, which `mut` says.
        let meta = unsafe { (library.relations.gst_buffer_add_analytics_relation_meta)(buffer.as_mut_ptr()) };
        Some(RelationsMut(Relations { library, meta: NonNull::new(meta)?, buffer: PhantomData }))
    }

    pub fn add_object(
        &mut self,
        label: Quark,
        ObjectPlace { rect: [x, y, width, height], confidence }: ObjectPlace,
    ) -> Option<u32> {
        let (mut added, add) = (self.mtd(0), self.library.relations.gst_analytics_relation_meta_add_od_mtd);
        // SAFETY: the meta is alive and writable.
        let result = unsafe { add(self.meta.as_ptr(), label.into_glib(), x, y, width, height, confidence, &mut added) };
        done(result).map(|()| added.id)
    }

    /// The same for a box that is rotated about its centre, clockwise as here.
    pub fn add_rotated(&mut self, label: Quark, rotated: &RotatedBox, confidence: f32) -> Option<u32> {
        let (mut added, bbox) = (self.mtd(0), &rotated.bbox);
        let [x, y, width, height] = [bbox.x1, bbox.y1, bbox.width(), bbox.height()].map(|value| value.round() as i32);
        let add = self.shapes()?.gst_analytics_relation_meta_add_oriented_od_mtd;
        let (label, width, height) = (label.into_glib(), width.max(1), height.max(1));
        // SAFETY: as above.
        let result =
            unsafe { add(self.meta.as_ptr(), label, x, y, width, height, rotated.angle, confidence, &mut added) };
        done(result).map(|()| added.id)
    }

    pub fn add_classes(&mut self, classes: impl IntoIterator<Item = (Quark, f32)>) -> Option<u32> {
        let (mut labels, mut levels): (Vec<GQuark>, Vec<f32>) =
            classes.into_iter().map(|(label, level)| (label.into_glib(), level)).unzip();
        let (mut added, add) = (self.mtd(0), self.library.relations.gst_analytics_relation_meta_add_cls_mtd);
        // SAFETY: as above; both arrays have that length and are copied.
        let result =
            unsafe { add(self.meta.as_ptr(), levels.len(), levels.as_mut_ptr(), labels.as_mut_ptr(), &mut added) };
        done(result).map(|()| added.id)
    }

    /// A track, and the times in nanoseconds when its object was seen first and last.
    pub fn add_track(&mut self, number: u64, first_seen: u64, last_seen: u64) -> Option<u32> {
        let (mut added, functions) = (self.mtd(0), &self.library.relations);
        // SAFETY: as above, and the tracking is the one that was just added.
        unsafe {
            let add = functions.gst_analytics_relation_meta_add_tracking_mtd;
            done(add(self.meta.as_ptr(), number, first_seen, &mut added))?;
            (functions.gst_analytics_tracking_mtd_update_last_seen)(&mut added, last_seen);
        }
        Some(added.id)
    }

    /// A picture, which has a GstVideoMeta, with the values of its regions, on this left, top, width and height of the frame.
    pub fn add_segmentation(
        &mut self,
        picture: gst::Buffer,
        kind: SegmentationKind,
        regions: &mut [u32],
        [x, y, width, height]: [u32; 4],
    ) -> Option<u32> {
        let (mut added, add) = (self.mtd(0), self.shapes()?.gst_analytics_relation_meta_add_segmentation_mtd);
        let (meta, count) = (self.meta.as_ptr(), regions.len());
        let (picture, regions) = (picture.into_glib_ptr(), regions.as_mut_ptr());
        // SAFETY: as above; it takes over the buffer and copies the regions.
        let result =
            unsafe { add(meta, picture, kind as i32, count, regions, x as i32, y as i32, width, height, &mut added) };
        done(result).map(|()| added.id)
    }

    pub fn relate(&mut self, relation: Relation, from: u32, to: u32) {
        let set = self.library.relations.gst_analytics_relation_meta_set_relation;
        // SAFETY: as above; ids that are not there are refused.
        unsafe { set(self.meta.as_ptr(), relation as u32, from, to) };
    }
}

/// Removes all of a frame.
pub fn remove(buffer: &mut gst::BufferRef) {
    if let Some(library) = library() {
        // SAFETY: it takes nothing.
        let api = unsafe { (library.relations.gst_analytics_relation_meta_api_get_type)() };
        super::remove(buffer, |meta| meta.api().into_glib() == api);
    }
}
