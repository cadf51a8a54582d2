// SPDX-License-Identifier: MPL-2.0
//! Boxes and rectangles, and the letterbox that maps boxes between model input and frame.

use bytemuck::{Pod, Zeroable};

/// Pixels from `left` and `top` to before `right` and `bottom`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Rect {
    pub left: u32,
    pub top: u32,
    pub right: u32,
    pub bottom: u32,
}

impl Rect {
    pub fn width(&self) -> u32 {
        self.right - self.left
    }

    pub fn height(&self) -> u32 {
        self.bottom - self.top
    }

    pub fn is_empty(&self) -> bool {
        self.left >= self.right || self.top >= self.bottom
    }

    /// The samples of 2 × 2 pixels that it touches.
    pub fn halved(&self) -> Self {
        Rect { left: self.left / 2, top: self.top / 2, right: self.right.div_ceil(2), bottom: self.bottom.div_ceil(2) }
    }
}

/// The whole of a picture of that width and height.
impl From<(u32, u32)> for Rect {
    fn from((right, bottom): (u32, u32)) -> Self {
        Rect { left: 0, top: 0, right, bottom }
    }
}

/// Left, top, right and bottom of a box in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BBox {
    pub x1: f32,
    pub y1: f32,
    pub x2: f32,
    pub y2: f32,
}

impl BBox {
    pub const fn new(x1: f32, y1: f32, x2: f32, y2: f32) -> Self {
        BBox { x1, y1, x2, y2 }
    }

    #[doc(hidden)]
    pub fn from_center(cx: f32, cy: f32, width: f32, height: f32) -> Self {
        let (dx, dy) = (width * 0.5, height * 0.5);
        BBox::new(cx - dx, cy - dy, cx + dx, cy + dy)
    }

    pub fn width(&self) -> f32 {
        self.x2 - self.x1
    }

    pub fn height(&self) -> f32 {
        self.y2 - self.y1
    }

    #[doc(hidden)]
    pub fn center(&self) -> (f32, f32) {
        ((self.x1 + self.x2) * 0.5, (self.y1 + self.y2) * 0.5)
    }

    #[doc(hidden)]
    pub fn area(&self) -> f32 {
        self.width() * self.height()
    }

    /// Finite, and wider and higher than nothing.
    #[doc(hidden)]
    pub fn is_valid(&self) -> bool {
        // NaN compares false; a difference of infinities is NaN or infinite.
        self.width() > 0.0 && self.height() > 0.0 && self.has_finite_size()
    }

    /// Whether width and height are finite, so all four numbers too.
    pub(crate) fn has_finite_size(&self) -> bool {
        self.width().is_finite() && self.height().is_finite()
    }

    /// Intersection over union; 0 where the boxes do not meet.
    #[doc(hidden)]
    pub fn iou(&self, other: &BBox) -> f32 {
        let width = self.x2.min(other.x2) - self.x1.max(other.x1);
        let height = self.y2.min(other.y2) - self.y1.max(other.y1);
        if width <= 0.0 || height <= 0.0 {
            return 0.0;
        }
        let overlap = width * height;
        overlap / (self.area() + other.area() - overlap)
    }

    /// The whole pixels that it touches, of a box that is inside a picture.
    #[doc(hidden)]
    pub fn pixels(&self) -> Rect {
        let &BBox { x1, y1, x2, y2 } = self;
        Rect { left: x1.floor() as u32, top: y1.floor() as u32, right: x2.ceil() as u32, bottom: y2.ceil() as u32 }
    }

    /// The part inside another, which is finite.
    #[doc(hidden)]
    pub fn clip(&self, to: &BBox) -> Self {
        let (x, y) = (|x: f32| x.clamp(to.x1, to.x2), |y: f32| y.clamp(to.y1, to.y2));
        BBox::new(x(self.x1), y(self.y1), x(self.x2), y(self.y2))
    }
}

impl From<Rect> for BBox {
    fn from(Rect { left, top, right, bottom }: Rect) -> Self {
        BBox::new(left as f32, top as f32, right as f32, bottom as f32)
    }
}

/// How a frame is laid into the model's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ResizeMode {
    /// Aspect kept, frame in the middle, padding on both sides.
    #[default]
    Letterbox,
    /// Aspect kept, frame at the top left, padding at the right or the bottom.
    LetterboxTopLeft,
    /// Aspect not kept, no padding.
    Stretch,
    /// Aspect kept, no padding: resized with antialiasing until the frame covers the tensor, which shows its middle. What
    /// torchvision's `Resize` and `CenterCrop` make for classifiers.
    CenterCrop,
}

/// Where a frame, or a part of it, lies in the model's input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Letterbox {
    /// The part of the frame that the tensor is made of.
    pub source: Rect,
    /// Where that part lies in the picture that boxes are mapped to: the frame, or what a scaler made of it.
    pub place: BBox,
    pub tensor_width: u32,
    pub tensor_height: u32,
    /// Left and top of the scaled source in the tensor, and its size there.
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
    /// Width and height of the whole scaled frame. Greater than those above only where it is cropped; then `place` is
    /// the part of `source` that is seen.
    pub whole: (u32, u32),
}

impl Letterbox {
    /// `source` is the part of the frame, or the size of the whole frame; sizes are (width, height), all above 0.
    /// Rounding is that of Ultralytics' `LetterBox`: the scaled size is rounded to the nearest pixel, and of an odd
    /// number of padding pixels the greater half goes to the right and the bottom.
    pub fn new(source: impl Into<Rect>, tensor: (u32, u32), fit: ResizeMode) -> Self {
        let source = source.into();
        let (source_width, source_height) = (source.width(), source.height());
        let (tensor_width, tensor_height) = tensor;
        let (width, height) = match fit {
            ResizeMode::Stretch => tensor,
            ResizeMode::CenterCrop => return Letterbox::center_crop(source, tensor, 0),
            ResizeMode::Letterbox | ResizeMode::LetterboxTopLeft => {
                let ratio = f64::min(
                    f64::from(tensor_width) / f64::from(source_width),
                    f64::from(tensor_height) / f64::from(source_height),
                );
                // Half to even, as Python rounds; never less than one pixel nor more than there is room for.
                let scaled = |size: u32, room: u32| ((f64::from(size) * ratio).round_ties_even() as u32).clamp(1, room);
                (scaled(source_width, tensor_width), scaled(source_height, tensor_height))
            }
        };
        let (x, y) = match fit {
            ResizeMode::Letterbox => ((tensor_width - width) / 2, (tensor_height - height) / 2),
            ResizeMode::LetterboxTopLeft | ResizeMode::Stretch | ResizeMode::CenterCrop => (0, 0),
        };
        let whole = (width, height);
        Letterbox { source, place: source.into(), tensor_width, tensor_height, x, y, width, height, whole }
    }

    /// The same for a tensor that is as wide and high as 2 to the power of `detail` of this one.
    pub(crate) fn finer(&self, detail: u32) -> Self {
        let finer = |length: u32| length << detail;
        Letterbox {
            tensor_width: finer(self.tensor_width),
            tensor_height: finer(self.tensor_height),
            x: finer(self.x),
            y: finer(self.y),
            width: finer(self.width),
            height: finer(self.height),
            whole: (finer(self.whole.0), finer(self.whole.1)),
            ..*self
        }
    }

    /// The middle of `source`, scaled so that its shorter edge is `shortest_edge` pixels, or so that it just covers the
    /// tensor where that is 0. Rounding is torchvision's: the longer edge is rounded down, and half a pixel of the
    /// offset to an even one.
    pub fn center_crop(source: impl Into<Rect>, tensor: (u32, u32), shortest_edge: u32) -> Self {
        let source = source.into();
        let (whole_width, whole_height) = Letterbox::resized(&source, tensor, shortest_edge);
        let whole = (whole_width.max(tensor.0), whole_height.max(tensor.1));
        let letterbox = Letterbox { whole, ..Letterbox::new(source, tensor, ResizeMode::Stretch) };
        let (left, top) = letterbox.crop_offset();
        let along = |start: u32, length: u32, at: u32, whole: u32| {
            (f64::from(start) + f64::from(at) * f64::from(length) / f64::from(whole)) as f32
        };
        let x = |at| along(source.left, source.width(), at, whole.0);
        let y = |at| along(source.top, source.height(), at, whole.1);
        Letterbox { place: BBox::new(x(left), y(top), x(left + tensor.0), y(top + tensor.1)), ..letterbox }
    }

    /// Width and height that the source is scaled to before the middle is cut out of it.
    pub(crate) fn resized(source: &Rect, (width, height): (u32, u32), shortest_edge: u32) -> (u32, u32) {
        let (from_width, from_height) = (source.width(), source.height());
        let along = |side: u32, length: u32, of: u32| {
            (u64::from(side) * u64::from(length) / u64::from(of)).min(u64::from(u32::MAX)) as u32
        };
        let by_width = along(width, from_height, from_width);
        match shortest_edge {
            0 if by_width >= height => (width, by_width),
            0 => (along(height, from_width, from_height), height),
            edge if from_width <= from_height => (edge, along(edge, from_height, from_width)),
            edge => (along(edge, from_width, from_height), edge),
        }
    }

    /// Left and top of the part of the scaled frame that is in the tensor.
    pub fn crop_offset(&self) -> (u32, u32) {
        let half = |whole: u32, seen: u32| (f64::from(whole - seen) / 2.0).round_ties_even() as u32;
        (half(self.whole.0, self.width), half(self.whole.1, self.height))
    }

    /// The same where boxes are mapped to a picture of size `to`, to which the frame of size `from` was scaled.
    pub fn scaled(&self, from: (u32, u32), to: (u32, u32)) -> Self {
        // Exact for the whole frame.
        let along = |at: f32, from: u32, to: u32| (f64::from(at) * f64::from(to) / f64::from(from)) as f32;
        let (x, y) = (|at| along(at, from.0, to.0), |at| along(at, from.1, to.1));
        let BBox { x1, y1, x2, y2 } = self.place;
        Letterbox { place: BBox::new(x(x1), y(y1), x(x2), y(y2)), ..*self }
    }

    /// Width and height of the smallest tensor, with sides that `stride` divides, in which a frame is as large as in one of
    /// `largest`, to a pixel: of a wide frame the height is less. That is Ultralytics' `rect`.
    pub fn smallest_tensor(frame: (u32, u32), largest: (u32, u32), stride: u32) -> (u32, u32) {
        let Letterbox { width, height, .. } = Letterbox::new(frame, largest, ResizeMode::Letterbox);
        (width.next_multiple_of(stride).min(largest.0), height.next_multiple_of(stride).min(largest.1))
    }

    /// Whether the source is as wide for its height in the tensor, and in the picture that boxes are mapped to, as it
    /// is, but for rounding.
    pub fn keeps_aspect(&self) -> bool {
        if self.whole != (self.width, self.height) {
            let [place_width, place_height] = [self.place.width(), self.place.height()].map(f64::from);
            let apart = (place_width * f64::from(self.height) - place_height * f64::from(self.width)).abs();
            return apart <= place_width.max(place_height);
        }
        let Letterbox { width, height, .. } =
            Letterbox::new(self.source, (self.tensor_width, self.tensor_height), ResizeMode::Letterbox);
        let [source_width, source_height] = [self.source.width(), self.source.height()].map(f64::from);
        let [place_width, place_height] = [self.place.width(), self.place.height()].map(f64::from);
        // A scaler makes whole pixels.
        let apart = (place_width * source_height - place_height * source_width).abs();
        (width, height) == (self.width, self.height) && apart <= source_width.max(source_height)
    }

    /// Pixels of the frame for one of the tensor, across and down.
    pub fn scale(&self) -> (f32, f32) {
        (self.place.width() / self.width as f32, self.place.height() / self.height as f32)
    }

    /// From pixels of the tensor to pixels of the frame, inside the source.
    pub fn point_to_frame(&self, (x, y): (f32, f32)) -> (f32, f32) {
        let point = self.to_frame(&BBox::new(x, y, x, y));
        (point.x1, point.y1)
    }

    /// The same for a box.
    pub fn to_frame(self, bbox: &BBox) -> BBox {
        let (scale_x, scale_y) = self.scale();
        let x = |x: f32| (x - self.x as f32) * scale_x + self.place.x1;
        let y = |y: f32| (y - self.y as f32) * scale_y + self.place.y1;
        BBox::new(x(bbox.x1), y(bbox.y1), x(bbox.x2), y(bbox.y2)).clip(&self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_frames_are_padded_above_and_below() {
        let letterbox = Letterbox::new((1920, 1080), (640, 640), ResizeMode::Letterbox);
        assert_eq!((letterbox.x, letterbox.y, letterbox.width, letterbox.height), (0, 140, 640, 360));
        let corner = Letterbox::new((1920, 1080), (640, 640), ResizeMode::LetterboxTopLeft);
        assert_eq!((corner.x, corner.y, corner.width, corner.height), (0, 0, 640, 360));
        let stretch = Letterbox::new((1920, 1080), (640, 640), ResizeMode::Stretch);
        assert_eq!((stretch.x, stretch.y, stretch.width, stretch.height), (0, 0, 640, 640));
        assert!(letterbox.keeps_aspect() && corner.keeps_aspect() && !stretch.keeps_aspect());
        assert!(Letterbox::new((1280, 720), (640, 360), ResizeMode::Stretch).keeps_aspect());
        for (to, keeps_aspect) in [((960, 540), true), ((854, 480), true), ((1920, 540), false), ((640, 640), false)] {
            assert_eq!(letterbox.scaled((1920, 1080), to).keeps_aspect(), keeps_aspect, "{to:?}");
        }
    }

    #[test]
    fn odd_padding_is_greater_at_the_end() {
        let letterbox = Letterbox::new((100, 51), (100, 100), ResizeMode::Letterbox);
        assert_eq!((letterbox.y, letterbox.height), (24, 51));
    }

    /// Sizes and offsets of torchvision's `Resize` and `CenterCrop`.
    #[test]
    fn the_middle_is_cut_out() {
        for (frame, tensor, shortest, whole, offset) in [
            ((1920, 1080), (224, 224), 0, (398, 224), (87, 0)),
            ((1080, 1920), (224, 224), 0, (224, 398), (0, 87)),
            ((1920, 1080), (224, 224), 256, (455, 256), (116, 16)),
            ((640, 480), (224, 224), 0, (298, 224), (37, 0)),
            ((101, 67), (32, 32), 33, (49, 33), (8, 0)),
            ((64, 64), (64, 64), 0, (64, 64), (0, 0)),
            ((100, 50), (64, 48), 0, (96, 48), (16, 0)),
            ((1, 8192), (32, 32), 0, (32, 262144), (0, 131056)),
        ] {
            let letterbox = Letterbox::center_crop(frame, tensor, shortest);
            assert_eq!((letterbox.whole, letterbox.crop_offset()), (whole, offset), "{frame:?}");
            assert_eq!((letterbox.x, letterbox.y, letterbox.width, letterbox.height), (0, 0, tensor.0, tensor.1));
            assert!(letterbox.keeps_aspect(), "{frame:?}");
        }
        let letterbox = Letterbox::new((1920, 1080), (224, 224), ResizeMode::CenterCrop);
        let all = letterbox.to_frame(&BBox::new(0.0, 0.0, 224.0, 224.0));
        assert!((all.x1 - 419.7).abs() < 0.1 && (all.x2 - 1500.3).abs() < 0.1, "{all:?}");
        assert_eq!((all.y1, all.y2), (0.0, 1080.0));
        let half = letterbox.scaled((1920, 1080), (960, 540));
        assert!(half.keeps_aspect() && (half.place.x1 - all.x1 / 2.0).abs() < 1e-3, "{half:?}");
        assert!(!letterbox.scaled((1920, 1080), (960, 1080)).keeps_aspect());
    }

    #[test]
    fn extreme_frames_keep_a_pixel() {
        let letterbox = Letterbox::new((1, 8192), (512, 512), ResizeMode::Letterbox);
        assert_eq!((letterbox.width, letterbox.height), (1, 512));
    }

    /// The sizes that Ultralytics' LetterBox(auto=True) gives.
    #[test]
    fn the_smallest_tensor_is_a_rectangle() {
        for (frame, largest, stride, tensor) in [
            ((1920, 1080), (640, 640), 32, (640, 384)),
            ((1080, 1920), (640, 640), 32, (384, 640)),
            ((854, 470), (320, 320), 32, (320, 192)),
            ((640, 480), (640, 640), 32, (640, 480)),
            ((500, 500), (640, 640), 32, (640, 640)),
            ((1920, 1080), (640, 640), 64, (640, 384)),
            ((1920, 1080), (448, 256), 32, (448, 256)),
            ((1080, 1920), (448, 256), 32, (160, 256)),
            ((8192, 1), (640, 640), 32, (640, 32)),
            ((1, 1), (32, 32), 32, (32, 32)),
        ] {
            let found = Letterbox::smallest_tensor(frame, largest, stride);
            assert_eq!(found, tensor, "{frame:?} in {largest:?}");
            let (in_square, in_rectangle) =
                [largest, found].map(|tensor| Letterbox::new(frame, tensor, ResizeMode::Letterbox)).into();
            let scaled = |letterbox: Letterbox| (letterbox.width, letterbox.height);
            assert_eq!(scaled(in_square), scaled(in_rectangle), "{frame:?} in {largest:?}");
        }
    }

    #[test]
    fn boxes_return_to_the_frame() {
        let letterbox = Letterbox::new((1920, 1080), (640, 640), ResizeMode::Letterbox);
        assert_eq!(letterbox.to_frame(&BBox::new(0.0, 140.0, 640.0, 500.0)), BBox::new(0.0, 0.0, 1920.0, 1080.0));
        assert_eq!(letterbox.to_frame(&BBox::new(10.0, 0.0, 20.0, 150.0)), BBox::new(30.0, 0.0, 60.0, 30.0));
    }

    #[test]
    fn boxes_of_a_region_return_to_the_frame() {
        let source = Rect { left: 101, top: 33, right: 161, bottom: 63 };
        let region = Letterbox::new(source, (60, 60), ResizeMode::Letterbox);
        let cropped = Letterbox::new((60, 30), (60, 60), ResizeMode::Letterbox);
        assert_eq!((region.x, region.y, region.width, region.height), (0, 15, 60, 30));
        for bbox in [BBox::new(3.5, 20.0, 9.0, 30.25), BBox::new(-4.0, 0.0, 99.0, 60.0)] {
            let (found, of_crop) = (region.to_frame(&bbox), cropped.to_frame(&bbox));
            assert_eq!(found, BBox::new(of_crop.x1 + 101.0, of_crop.y1 + 33.0, of_crop.x2 + 101.0, of_crop.y2 + 33.0));
            assert_eq!(region.point_to_frame((bbox.x1, bbox.y1)), (found.x1, found.y1));
        }
        assert_eq!(region.to_frame(&BBox::new(-4.0, 0.0, 99.0, 60.0)), source.into(), "inside what the model saw");
        // The frame of 640x360 has become one of 320x720.
        let scaled = region.scaled((640, 360), (320, 720));
        assert_eq!(scaled.to_frame(&BBox::new(0.0, 15.0, 60.0, 45.0)), BBox::new(50.5, 66.0, 80.5, 126.0));
    }

    #[test]
    fn the_whole_frame_is_scaled_exactly() {
        for (from, to) in [((1919, 1079), (641, 3)), ((7, 32767), (32767, 11))] {
            let letterbox = Letterbox::new(from, (640, 640), ResizeMode::Letterbox);
            assert_eq!(letterbox.scaled(from, to).place, Rect::from(to).into());
            assert_eq!(letterbox.scaled(from, from), letterbox);
        }
    }

    #[test]
    fn iou_of_halves() {
        let (a, b) = (BBox::new(0.0, 0.0, 2.0, 1.0), BBox::new(1.0, 0.0, 3.0, 1.0));
        assert_eq!(a.iou(&b), 1.0 / 3.0);
        assert_eq!(a.iou(&BBox::new(2.0, 0.0, 3.0, 1.0)), 0.0);
    }

    #[test]
    fn empty_and_nan_are_no_boxes() {
        let bad = [
            BBox::new(1.0, 1.0, 1.0, 2.0),
            BBox::new(2.0, 1.0, 1.0, 2.0),
            BBox::new(f32::NAN, 0.0, 1.0, 1.0),
            BBox::new(0.0, 0.0, f32::INFINITY, 1.0),
            BBox::new(f32::NEG_INFINITY, 0.0, f32::INFINITY, 1.0),
        ];
        assert!(bad.iter().all(|bbox| !bbox.is_valid()));
        assert!(BBox::new(0.0, 0.0, 1.0, 1.0).is_valid());
    }
}
