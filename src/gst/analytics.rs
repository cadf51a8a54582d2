// SPDX-License-Identifier: MPL-2.0
//! GStreamer's analytics library, found at run time: it is there from 1.24 on, and one build of the plugin serves every
//! GStreamer. Functions and types are as its headers have them; those of later releases are missing in earlier ones.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use gst::ffi::{GstBuffer, GstClockTime};
use gst::glib::ffi::{GQuark, GType, gboolean};
use libloading::os::unix;

/// A GstAnalyticsRelationMeta.
#[repr(C)]
pub struct RelationMeta {
    _private: [u8; 0],
}

/// A GstAnalyticsMtd, and each of its kinds: a number within a relation meta.
#[repr(C)]
pub struct Mtd {
    pub id: c_uint,
    pub meta: *mut RelationMeta,
}

/// A GstTensor.
#[repr(C)]
pub struct GstTensor {
    _private: [u8; 0],
}

/// A GstTensorMeta.
#[repr(C)]
pub struct GstTensorMeta {
    _private: [u8; 0],
}

/// The number of a kind of metadata.
pub type MtdType = usize;

/// Functions of one release.
macro_rules! functions {
    ($(#[$about:meta])* $table:ident { $($name:ident($($argument:ty),*) $(-> $result:ty)?;)* }) => {
        $(#[$about])*
        pub struct $table {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $table {
            /// An error names the first that is missing.
            fn of(library: &unix::Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of the library's headers.
                unsafe { Ok($table { $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)* }) }
            }
        }
    };
}

functions! {
    /// Since 1.24.
    RelationFunctions {
        gst_analytics_relation_meta_api_get_type() -> GType;
        gst_buffer_add_analytics_relation_meta(*mut GstBuffer) -> *mut RelationMeta;
        gst_analytics_relation_meta_iterate(*mut RelationMeta, *mut *mut c_void, MtdType, *mut Mtd) -> gboolean;
        gst_analytics_relation_meta_get_direct_related(*mut RelationMeta, c_uint, c_uint, MtdType, *mut *mut c_void, *mut Mtd) -> gboolean;
        gst_analytics_relation_meta_set_relation(*mut RelationMeta, c_uint, c_uint, c_uint) -> gboolean;
        gst_analytics_relation_meta_add_od_mtd(*mut RelationMeta, GQuark, c_int, c_int, c_int, c_int, f32, *mut Mtd) -> gboolean;
        gst_analytics_relation_meta_add_cls_mtd(*mut RelationMeta, usize, *mut f32, *mut GQuark, *mut Mtd) -> gboolean;
        gst_analytics_relation_meta_add_tracking_mtd(*mut RelationMeta, u64, GstClockTime, *mut Mtd) -> gboolean;
        gst_analytics_od_mtd_get_mtd_type() -> MtdType;
        gst_analytics_od_mtd_get_location(*const Mtd, *mut c_int, *mut c_int, *mut c_int, *mut c_int, *mut f32) -> gboolean;
        gst_analytics_od_mtd_get_obj_type(*const Mtd) -> GQuark;
        gst_analytics_cls_mtd_get_mtd_type() -> MtdType;
        gst_analytics_cls_mtd_get_length(*const Mtd) -> usize;
        gst_analytics_cls_mtd_get_level(*const Mtd, usize) -> f32;
        gst_analytics_cls_mtd_get_quark(*const Mtd, usize) -> GQuark;
        gst_analytics_tracking_mtd_get_mtd_type() -> MtdType;
        gst_analytics_tracking_mtd_get_info(*const Mtd, *mut u64, *mut GstClockTime, *mut GstClockTime, *mut gboolean) -> gboolean;
        gst_analytics_tracking_mtd_update_last_seen(*mut Mtd, GstClockTime) -> gboolean;
    }
}

functions! {
    /// Since 1.26: what has a shape.
    ShapeFunctions {
        gst_analytics_relation_meta_add_oriented_od_mtd(*mut RelationMeta, GQuark, c_int, c_int, c_int, c_int, f32, f32, *mut Mtd) -> gboolean;
        gst_analytics_od_mtd_get_oriented_location(*const Mtd, *mut c_int, *mut c_int, *mut c_int, *mut c_int, *mut f32, *mut f32) -> gboolean;
        gst_analytics_relation_meta_add_segmentation_mtd(*mut RelationMeta, *mut GstBuffer, c_int, usize, *mut c_uint, c_int, c_int, c_uint, c_uint, *mut Mtd) -> gboolean;
        gst_analytics_segmentation_mtd_get_mtd_type() -> MtdType;
        gst_analytics_segmentation_mtd_get_mask(*const Mtd, *mut c_int, *mut c_int, *mut c_uint, *mut c_uint) -> *mut GstBuffer;
    }
}

functions! {
    /// Since 1.26: a model's outputs.
    TensorFunctions {
        gst_buffer_add_tensor_meta(*mut GstBuffer) -> *mut GstTensorMeta;
        gst_tensor_meta_set(*mut GstTensorMeta, c_uint, *mut *mut GstTensor);
        gst_tensor_new_simple(GQuark, c_int, *mut GstBuffer, c_int, usize, *mut usize) -> *mut GstTensor;
    }
}

/// The library, with what its release has.
pub struct AnalyticsLibrary {
    pub relations: RelationFunctions,
    pub shapes: Option<ShapeFunctions>,
    pub tensors: Option<TensorFunctions>,
    _library: ManuallyDrop<unix::Library>,
}

// SAFETY: functions that any thread may call.
unsafe impl Send for AnalyticsLibrary {}
// SAFETY: as above.
unsafe impl Sync for AnalyticsLibrary {}

/// `None` where GStreamer has none.
pub fn library() -> Option<&'static AnalyticsLibrary> {
    static LIBRARY: OnceLock<Option<AnalyticsLibrary>> = OnceLock::new();
    LIBRARY.get_or_init(|| open().ok()).as_ref()
}

fn open() -> Result<AnalyticsLibrary, libloading::Error> {
    const NODELETE: c_int = 0x1000; // its types can never be taken back from GLib
    const NAME: &str = "libgstanalytics-1.0.so.0";
    // SAFETY: GStreamer's own library, which registers types when they are asked for and no more.
    let library = unsafe { unix::Library::open(Some(NAME), unix::RTLD_NOW | unix::RTLD_LOCAL | NODELETE) };
    let library = ManuallyDrop::new(library?);
    Ok(AnalyticsLibrary {
        relations: RelationFunctions::of(&library)?,
        shapes: ShapeFunctions::of(&library).ok(),
        tensors: TensorFunctions::of(&library).ok(),
        _library: library,
    })
}
