// SPDX-License-Identifier: MPL-2.0
//! [`GeometryMeta`]: where the picture that a tensor was made of lies in a frame, as the elements between have told.
//!
//! An element that changes the geometry tells metas about it, by their transform function: scaling in all releases, crops,
//! borders and flips by a matrix from GStreamer 1.28 on. It tells those metas whose tags say that they depend on the
//! geometry, and drops metas with tags that it cannot serve. So this meta has the tags, and is gone behind an element that
//! has not told what it did, while the tensors have none and stay: before 1.28 cudadownload would drop them as videoflip
//! would. `gst::path` decides about a frame that has tensors and no geometry.

use gst::prelude::*;
use gst_video::{VideoInfo, ffi as video};

/// The picture that a tensor was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorSource {
    /// Address of the trtpreprocess that made it.
    pub element: usize,
    /// Width and height.
    pub size: (u32, u32),
    /// Numerator and denominator of the pixels' aspect ratio.
    pub pixel_aspect: (i32, i32),
}

impl TensorSource {
    pub fn new(element: usize, info: &VideoInfo) -> Self {
        let aspect = info.par();
        TensorSource { element, size: (info.width(), info.height()), pixel_aspect: (aspect.numer(), aspect.denom()) }
    }

    /// Whether frames of such caps have the same display aspect ratio.
    pub fn has_shape_of(&self, info: &VideoInfo) -> bool {
        let aspect = info.par();
        have_one_shape(
            (self.size, self.pixel_aspect),
            ((info.width(), info.height()), (aspect.numer(), aspect.denom())),
        )
    }
}

/// Of two frames, by their sizes and the aspect ratios of their pixels.
fn have_one_shape(a: ((u32, u32), (i32, i32)), b: ((u32, u32), (i32, i32))) -> bool {
    let sides = |((width, height), (across, down)): ((u32, u32), (i32, i32))| {
        (i128::from(width) * i128::from(across), i128::from(height) * i128::from(down))
    };
    let ((a_width, a_height), (b_width, b_height)) = (sides(a), sides(b));
    a_width * b_height == b_width * a_height
}

/// By which points of one frame become those of another: rows of a matrix for (x, y, 1).
type Matrix = [[f64; 3]; 3];

const IDENTITY: Matrix = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];

/// What `second` does, and then `first`.
fn times(first: &Matrix, second: &Matrix) -> Matrix {
    let cell = |row: usize, column: usize| (0..3).map(|k| first[row][k] * second[k][column]).sum();
    std::array::from_fn(|row| std::array::from_fn(|column| cell(row, column)))
}

fn moved_by(x: i32, y: i32) -> Matrix {
    [[1.0, 0.0, f64::from(x)], [0.0, 1.0, f64::from(y)], [0.0, 0.0, 1.0]]
}

/// Where the picture of a source lies in a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// The address of the element that made the tensor.
    element: usize,
    /// Width and height of the source.
    source: (u32, u32),
    /// Width and height of the frame.
    pub size: (u32, u32),
    matrix: Matrix,
    /// A scaler has changed the display aspect ratio, and not told whether it stretched the picture or added borders.
    pub may_have_borders: bool,
}

/// What has become of the picture as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It fills the frame, as it filled the one that it comes from.
    Scaled,
    /// It is cropped, or has borders.
    Cropped,
    /// It is flipped, rotated or distorted.
    Turned,
}

impl Geometry {
    /// In the frame that the tensor was made of.
    fn of(source: &TensorSource) -> Self {
        let &TensorSource { element, size, .. } = source;
        Geometry { element, source: size, size, matrix: IDENTITY, may_have_borders: false }
    }

    pub fn change(&self) -> Change {
        let [[right, skew_x, left], [skew_y, down, top], bottom] = self.matrix;
        let is_affine = bottom == [0.0, 0.0, 1.0];
        if !is_affine || skew_x != 0.0 || skew_y != 0.0 || right <= 0.0 || down <= 0.0 {
            return Change::Turned;
        }
        // The picture's edges, a hundredth of a pixel from those of the frame for rounding.
        let is_whole = |start: f64, scale: f64, from: u32, to: u32| {
            start.abs() < 0.01 && (start + scale * f64::from(from) - f64::from(to)).abs() < 0.01
        };
        let fills =
            is_whole(left, right, self.source.0, self.size.0) && is_whole(top, down, self.source.1, self.size.1);
        if fills { Change::Scaled } else { Change::Cropped }
    }

    /// Behind an element that has scaled the frame.
    fn scaled(&self, told: &video::GstVideoMetaTransform) -> Option<Self> {
        // SAFETY: GStreamer passes both for the time of the call.
        let (from, to) = unsafe { (told.in_info.as_ref()?, told.out_info.as_ref()?) };
        let (before, after) = (size_of(from)?, size_of(to)?);
        let scale = |after: u32, before: u32| f64::from(after) / f64::from(before);
        let mut matrix = IDENTITY;
        (matrix[0][0], matrix[1][1]) = (scale(after.0, before.0), scale(after.1, before.1));
        let keeps_shape = have_one_shape((before, (from.par_n, from.par_d)), (after, (to.par_n, to.par_d)));
        let moved = self.behind(before, after, &matrix)?;
        Some(Geometry { may_have_borders: self.may_have_borders || !keeps_shape, ..moved })
    }

    /// Behind an element that has done what the matrix says.
    fn transformed(&self, told: &video::GstVideoMetaTransformMatrix) -> Option<Self> {
        // SAFETY: as above.
        let (from, to) = unsafe { (told.in_info.as_ref()?, told.out_info.as_ref()?) };
        let (taken, put) = (&told.in_rectangle, &told.out_rectangle);
        let matrix: Matrix =
            std::array::from_fn(|row| std::array::from_fn(|column| told.matrix[3 * row + column].into()));
        let matrix = times(&moved_by(put.x, put.y), &times(&matrix, &moved_by(-taken.x, -taken.y)));
        let matrix = if matrix.as_flattened().iter().all(|value| value.is_finite()) { matrix } else { return None };
        self.behind(size_of(from)?, size_of(to)?, &matrix)
    }

    /// Nothing where the change is that of another frame: then something between has not told what it did.
    fn behind(&self, before: (u32, u32), after: (u32, u32), matrix: &Matrix) -> Option<Self> {
        (before == self.size).then(|| Geometry { size: after, matrix: times(matrix, &self.matrix), ..*self })
    }
}

fn size_of(info: &video::GstVideoInfo) -> Option<(u32, u32)> {
    let side = |side| u32::try_from(side).ok().filter(|&side| side > 0);
    Some((side(info.width)?, side(info.height)?))
}

/// A `GstMeta` with a [`Geometry`]: one for each element that has made tensors of the frame.
#[repr(transparent)]
pub struct GeometryMeta(imp::GeometryMeta);

// SAFETY: plain values.
unsafe impl Send for GeometryMeta {}
// SAFETY: as above.
unsafe impl Sync for GeometryMeta {}

// SAFETY: imp registers exactly this type for that API.
unsafe impl MetaAPI for GeometryMeta {
    type GstType = imp::GeometryMeta;

    fn meta_api() -> gst::glib::Type {
        imp::api_type()
    }
}

/// A tensor was made of this frame.
pub fn begin(buffer: &mut gst::BufferRef, source: &TensorSource) {
    end(buffer, source);
    imp::add(buffer, Geometry::of(source));
}

/// Where the picture of that source lies in the frame; nothing where an element on the way has not told.
pub fn told(buffer: &gst::BufferRef, source: &TensorSource) -> Option<Geometry> {
    let mut all = buffer.iter_meta::<GeometryMeta>().map(|meta| meta.0.geometry);
    all.find(|geometry| geometry.element == source.element && geometry.source == source.size)
}

/// The tensor of that source is not wanted any more.
pub fn end(buffer: &mut gst::BufferRef, source: &TensorSource) {
    use std::ops::ControlFlow;

    use gst::buffer::BufferMetaForeachAction::{Keep, Remove};
    buffer.foreach_meta_mut(|mut meta| {
        let own = meta.downcast_mut::<GeometryMeta>();
        let is_it = own.is_some_and(|meta| meta.0.geometry.element == source.element);
        ControlFlow::Continue(if is_it { Remove } else { Keep })
    });
}

/// The C side: layout, registration and callbacks.
mod imp {
    use std::ptr;
    use std::sync::LazyLock;

    use gst::glib::translate::*;
    use gst::{ffi, glib};
    use gst_video::ffi as video;

    use super::Geometry;

    #[repr(C)]
    pub struct GeometryMeta {
        parent: ffi::GstMeta,
        pub(super) geometry: Geometry,
    }

    pub(super) fn api_type() -> glib::Type {
        static TYPE: LazyLock<glib::Type> = LazyLock::new(|| {
            // With a tag more, videoscale would not tell; with fewer, videoflip would copy the meta and say nothing.
            let tags = [c"video".as_ptr(), c"orientation".as_ptr(), c"size".as_ptr(), ptr::null()];
            // SAFETY: the name is new, the tags end with NULL.
            unsafe {
                let name = c"GstTrtGeometryMetaAPI".as_ptr();
                from_glib(ffi::gst_meta_api_type_register(name, tags.as_ptr().cast_mut()))
            }
        });
        *TYPE
    }

    pub(super) fn add(buffer: &mut gst::BufferRef, geometry: Geometry) {
        // SAFETY: the buffer is writable, and `init` copies the geometry.
        unsafe {
            let params = (&raw const geometry).cast_mut().cast();
            ffi::gst_buffer_add_meta(buffer.as_mut_ptr(), info(), params);
        }
    }

    fn info() -> *const ffi::GstMetaInfo {
        struct GeometryInfo(ptr::NonNull<ffi::GstMetaInfo>);
        // SAFETY: GStreamer never changes or frees a registered info.
        unsafe impl Send for GeometryInfo {}
        // SAFETY: as above.
        unsafe impl Sync for GeometryInfo {}

        static INFO: LazyLock<GeometryInfo> = LazyLock::new(|| {
            let (api, name) = (api_type().into_glib(), c"GstTrtGeometryMeta".as_ptr());
            // SAFETY: size and callbacks are those of GeometryMeta.
            let info = unsafe {
                ffi::gst_meta_register(api, name, size_of::<GeometryMeta>(), Some(init), None, Some(transform))
            };
            GeometryInfo(ptr::NonNull::new(info.cast_mut()).expect("GstTrtGeometryMeta is registered once"))
        });
        INFO.0.as_ptr()
    }

    unsafe extern "C" fn init(
        meta: *mut ffi::GstMeta,
        params: glib::ffi::gpointer,
        _buffer: *mut ffi::GstBuffer,
    ) -> glib::ffi::gboolean {
        // SAFETY: only `add` makes this meta, and passes a geometry; the memory of the meta is not initialised yet.
        unsafe { ptr::write(&raw mut (*meta.cast::<GeometryMeta>()).geometry, *params.cast::<Geometry>()) }
        glib::ffi::GTRUE
    }

    /// The quarks by which GStreamer names what has happened to a frame.
    struct Quarks {
        copy: u32,
        scale: u32,
        /// Since 1.28. Quarks are names, so it is there in earlier releases too, and nobody says it.
        matrix: u32,
    }

    unsafe extern "C" fn transform(
        dest: *mut ffi::GstBuffer,
        meta: *mut ffi::GstMeta,
        _buffer: *mut ffi::GstBuffer,
        kind: glib::ffi::GQuark,
        data: glib::ffi::gpointer,
    ) -> glib::ffi::gboolean {
        static QUARKS: LazyLock<Quarks> = LazyLock::new(|| {
            let quark = |name: &'static glib::GStr| glib::Quark::from_static_str(name).into_glib();
            Quarks {
                copy: quark(glib::gstr!("gst-copy")),
                scale: quark(glib::gstr!("gst-video-scale")),
                matrix: quark(glib::gstr!("gst-video-matrix")),
            }
        });
        // SAFETY: GStreamer calls this with a meta of ours, and with what that kind of change comes with.
        let geometry = unsafe {
            let geometry = (*meta.cast::<GeometryMeta>()).geometry;
            match kind {
                // A part of the bytes is not the picture.
                _ if kind == QUARKS.copy => {
                    let is_part =
                        data.cast::<ffi::GstMetaTransformCopy>().as_ref().is_some_and(|copy| copy.region != 0);
                    (!is_part).then_some(geometry)
                }
                _ if kind == QUARKS.scale => {
                    data.cast::<video::GstVideoMetaTransform>().as_ref().and_then(|told| geometry.scaled(told))
                }
                _ if kind == QUARKS.matrix => data
                    .cast::<video::GstVideoMetaTransformMatrix>()
                    .as_ref()
                    .and_then(|told| geometry.transformed(told)),
                _ => None,
            }
        };
        let Some(geometry) = geometry else { return glib::ffi::GFALSE };
        // SAFETY: `dest` is writable.
        add(unsafe { gst::BufferRef::from_mut_ptr(dest) }, geometry);
        glib::ffi::GTRUE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(width: u32, height: u32, aspect: (i32, i32)) -> VideoInfo {
        gst::init().unwrap();
        let aspect = gst::Fraction::new(aspect.0, aspect.1);
        VideoInfo::builder(gst_video::VideoFormat::Rgb, width, height).par(aspect).build().unwrap()
    }

    fn source() -> TensorSource {
        TensorSource::new(7, &info(640, 360, (1, 1)))
    }

    /// What an element tells a meta.
    fn tell<T>(from: &gst::BufferRef, kind: &'static gst::glib::GStr, data: &T) -> gst::Buffer {
        let mut to = gst::Buffer::new();
        let kind = gst::glib::Quark::from_static_str(kind);
        for meta in from.iter_meta::<GeometryMeta>() {
            // SAFETY: as GStreamer's own elements call it, with the data of that kind.
            unsafe {
                let meta = (&raw const meta.0).cast_mut().cast::<gst::ffi::GstMeta>();
                let transform = (*(*meta).info).transform_func.unwrap();
                let to = to.get_mut().unwrap().as_mut_ptr();
                let data = std::ptr::from_ref(data).cast_mut().cast();
                transform(to, meta, from.as_mut_ptr(), gst::glib::translate::IntoGlib::into_glib(kind), data);
            }
        }
        to
    }

    fn scale(frame: &gst::BufferRef, from: &VideoInfo, to: &VideoInfo) -> gst::Buffer {
        use gst::glib::translate::ToGlibPtr;
        let pointer = |info: &VideoInfo| info.to_glib_none().0.cast_mut();
        let told = video::GstVideoMetaTransform { in_info: pointer(from), out_info: pointer(to) };
        tell(frame, gst::glib::gstr!("gst-video-scale"), &told)
    }

    type Rect = (i32, i32, i32, i32);

    fn matrix(
        frame: &gst::BufferRef,
        (from, taken): (&VideoInfo, Rect),
        (to, put): (&VideoInfo, Rect),
        matrix: [f32; 9],
    ) -> gst::Buffer {
        use gst::glib::translate::ToGlibPtr;
        let rectangle = |(x, y, w, h)| video::GstVideoRectangle { x, y, w, h };
        let told = video::GstVideoMetaTransformMatrix {
            in_info: from.to_glib_none().0,
            in_rectangle: rectangle(taken),
            out_info: to.to_glib_none().0,
            out_rectangle: rectangle(put),
            matrix,
        };
        tell(frame, gst::glib::gstr!("gst-video-matrix"), &told)
    }

    fn diagonal(x: f32, y: f32) -> [f32; 9] {
        [x, 0.0, 0.0, 0.0, y, 0.0, 0.0, 0.0, 1.0]
    }

    fn frame() -> gst::Buffer {
        gst::init().unwrap();
        let mut frame = gst::Buffer::with_size(100).unwrap();
        begin(frame.get_mut().unwrap(), &source());
        frame
    }

    fn change(frame: &gst::BufferRef) -> Option<(Change, (u32, u32))> {
        told(frame, &source()).map(|geometry| (geometry.change(), geometry.size))
    }

    #[test]
    fn copies_keep_it_and_parts_do_not() {
        let frame = frame();
        let whole = Some((Change::Scaled, (640, 360)));
        assert_eq!(change(&frame), whole);
        assert_eq!(change(&frame.copy()), whole);
        assert_eq!(change(&frame.copy_deep().unwrap()), whole);
        let copy = |range: std::ops::Range<usize>| frame.copy_region(gst::BUFFER_COPY_ALL, range).unwrap();
        assert_eq!(change(&copy(0..100)), whole);
        assert_eq!(change(&copy(10..100)), None);
        let other = TensorSource { element: 8, ..source() };
        assert_eq!(told(&frame, &other), None, "of another trtpreprocess");
        let other = TensorSource { size: (64, 64), ..source() };
        assert_eq!(told(&frame, &other), None, "of an earlier frame");
    }

    #[test]
    fn scaling_is_followed_there_and_back() {
        let (large, small, square) = (info(640, 360, (1, 1)), info(320, 180, (1, 1)), info(320, 320, (1, 1)));
        let half = scale(&frame(), &large, &small);
        assert_eq!(change(&half), Some((Change::Scaled, (320, 180))));
        assert_eq!(change(&scale(&half, &small, &large)), Some((Change::Scaled, (640, 360))));
        assert_eq!(change(&scale(&half, &large, &small)), None, "the frame that was scaled had another size");
        // Whether there are borders is not said.
        let geometry = |frame: &gst::BufferRef| told(frame, &source()).unwrap();
        assert!(!geometry(&half).may_have_borders);
        let stretched = scale(&half, &small, &square);
        assert!(geometry(&stretched).may_have_borders);
        assert!(geometry(&scale(&stretched, &square, &small)).may_have_borders, "also where it is undone");
        let wide = info(320, 360, (2, 1));
        assert!(!geometry(&scale(&frame(), &large, &wide)).may_have_borders, "the pixels are wider instead");
    }

    #[test]
    fn a_matrix_says_what_scaling_cannot() {
        let (large, small) = (info(640, 360, (1, 1)), info(320, 180, (1, 1)));
        let all = |info: &VideoInfo| (0, 0, info.width() as i32, info.height() as i32);
        let frame = frame();
        let half = matrix(&frame, (&large, all(&large)), (&small, all(&small)), diagonal(0.5, 0.5));
        assert_eq!(change(&half), Some((Change::Scaled, (320, 180))));
        let after = |to: &VideoInfo, taken, put, by| change(&matrix(&frame, (&large, taken), (to, put), by)).unwrap().0;
        assert_eq!(after(&small, (100, 50, 320, 180), all(&small), diagonal(1.0, 1.0)), Change::Cropped);
        assert_eq!(after(&large, all(&large), (160, 0, 320, 360), diagonal(0.5, 1.0)), Change::Cropped, "borders");
        let flips = [
            [-1.0, 0.0, 639.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
            [0.0, -1.0, 359.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0],
            [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.001, 0.0, 1.0],
        ];
        for flip in flips {
            assert_eq!(after(&large, all(&large), all(&large), flip), Change::Turned);
        }
        let crop = matrix(&frame, (&large, (0, 0, 320, 180)), (&small, all(&small)), diagonal(1.0, 1.0));
        let scaled = scale(&crop, &small, &large);
        assert_eq!(change(&scaled), Some((Change::Cropped, (640, 360))), "a scaler makes up for the size");
        let broken = diagonal(f32::NAN, 1.0);
        assert_eq!(change(&matrix(&frame, (&large, all(&large)), (&large, all(&large)), broken)), None);
    }

    #[test]
    fn each_tensor_has_its_own() {
        let mut buffer = scale(&frame(), &info(640, 360, (1, 1)), &info(320, 180, (1, 1)));
        let second = TensorSource::new(8, &info(320, 180, (1, 1)));
        let buffer = buffer.get_mut().unwrap();
        begin(buffer, &second);
        begin(buffer, &second);
        assert_eq!(buffer.iter_meta::<GeometryMeta>().count(), 2);
        assert_eq!(told(buffer, &second).unwrap().change(), Change::Scaled);
        end(buffer, &source());
        assert!(told(buffer, &source()).is_none() && told(buffer, &second).is_some());
    }
}
