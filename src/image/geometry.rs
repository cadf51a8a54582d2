//! Boxes, and the letterbox that maps them between model input and frame.

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

    pub fn center(&self) -> (f32, f32) {
        ((self.x1 + self.x2) * 0.5, (self.y1 + self.y2) * 0.5)
    }

    pub fn area(&self) -> f32 {
        self.width() * self.height()
    }

    /// Finite, and wider and higher than nothing.
    pub fn is_valid(&self) -> bool {
        // NaN compares false; a difference of infinities is NaN or infinite.
        self.width() > 0.0 && self.height() > 0.0 && self.width().is_finite() && self.height().is_finite()
    }

    /// Intersection over union; 0 where the boxes do not meet.
    pub fn iou(&self, other: &BBox) -> f32 {
        let width = self.x2.min(other.x2) - self.x1.max(other.x1);
        let height = self.y2.min(other.y2) - self.y1.max(other.y1);
        if width <= 0.0 || height <= 0.0 {
            return 0.0;
        }
        let overlap = width * height;
        overlap / (self.area() + other.area() - overlap)
    }

    /// The part inside a picture of that size.
    pub fn clip(&self, width: f32, height: f32) -> Self {
        BBox::new(
            self.x1.clamp(0.0, width),
            self.y1.clamp(0.0, height),
            self.x2.clamp(0.0, width),
            self.y2.clamp(0.0, height),
        )
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
}

/// Where a frame lies in the model's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letterbox {
    pub frame_width: u32,
    pub frame_height: u32,
    pub tensor_width: u32,
    pub tensor_height: u32,
    /// Left and top of the scaled frame in the tensor, and its size there.
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
}

impl Letterbox {
    /// Sizes are (width, height), all above 0. Rounding is that of Ultralytics' `LetterBox`: the scaled size is rounded to
    /// the nearest pixel, and of an odd number of padding pixels the greater half goes to the right and the bottom.
    pub fn new(frame: (u32, u32), tensor: (u32, u32), fit: ResizeMode) -> Self {
        let (frame_width, frame_height) = frame;
        let (tensor_width, tensor_height) = tensor;
        let (width, height) = match fit {
            ResizeMode::Stretch => tensor,
            ResizeMode::Letterbox | ResizeMode::LetterboxTopLeft => {
                let ratio = f64::min(
                    f64::from(tensor_width) / f64::from(frame_width),
                    f64::from(tensor_height) / f64::from(frame_height),
                );
                // Half to even, as Python rounds; never less than one pixel nor more than there is room for.
                let scaled = |size: u32, room: u32| ((f64::from(size) * ratio).round_ties_even() as u32).clamp(1, room);
                (scaled(frame_width, tensor_width), scaled(frame_height, tensor_height))
            }
        };
        let (x, y) = match fit {
            ResizeMode::Letterbox => ((tensor_width - width) / 2, (tensor_height - height) / 2),
            ResizeMode::LetterboxTopLeft | ResizeMode::Stretch => (0, 0),
        };
        Letterbox { frame_width, frame_height, tensor_width, tensor_height, x, y, width, height }
    }

    /// Width and height of the smallest tensor, with sides that `stride` divides, in which a frame is as large as in one of
    /// `largest`, to a pixel: of a wide frame the height is less. That is Ultralytics' `rect`.
    pub fn smallest_tensor(frame: (u32, u32), largest: (u32, u32), stride: u32) -> (u32, u32) {
        let Letterbox { width, height, .. } = Letterbox::new(frame, largest, ResizeMode::Letterbox);
        (width.next_multiple_of(stride).min(largest.0), height.next_multiple_of(stride).min(largest.1))
    }

    /// Whether the frame is as wide for its height in the tensor as it is, but for rounding.
    pub fn keeps_aspect(&self) -> bool {
        let (frame, tensor) = ((self.frame_width, self.frame_height), (self.tensor_width, self.tensor_height));
        let Letterbox { width, height, .. } = Letterbox::new(frame, tensor, ResizeMode::Letterbox);
        (width, height) == (self.width, self.height)
    }

    /// Pixels of the frame for one of the tensor, across and down.
    pub fn scale(&self) -> (f32, f32) {
        (self.frame_width as f32 / self.width as f32, self.frame_height as f32 / self.height as f32)
    }

    /// The same for a point.
    pub fn point_to_frame(&self, (x, y): (f32, f32)) -> (f32, f32) {
        let (scale_x, scale_y) = self.scale();
        let (x, y) = ((x - self.x as f32) * scale_x, (y - self.y as f32) * scale_y);
        (x.clamp(0.0, self.frame_width as f32), y.clamp(0.0, self.frame_height as f32))
    }

    /// From pixels of the tensor to pixels of the frame, clipped to it.
    pub fn to_frame(&self, bbox: &BBox) -> BBox {
        let (scale_x, scale_y) = self.scale();
        let (x, y) = (self.x as f32, self.y as f32);
        BBox::new((bbox.x1 - x) * scale_x, (bbox.y1 - y) * scale_y, (bbox.x2 - x) * scale_x, (bbox.y2 - y) * scale_y)
            .clip(self.frame_width as f32, self.frame_height as f32)
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
    }

    #[test]
    fn odd_padding_is_greater_at_the_end() {
        let letterbox = Letterbox::new((100, 51), (100, 100), ResizeMode::Letterbox);
        assert_eq!((letterbox.y, letterbox.height), (24, 51));
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
    fn iou_of_halves() {
        let (a, b) = (BBox::new(0.0, 0.0, 2.0, 1.0), BBox::new(1.0, 0.0, 3.0, 1.0));
        assert_eq!(a.iou(&b), 1.0 / 3.0);
        assert_eq!(a.iou(&BBox::new(2.0, 0.0, 3.0, 1.0)), 0.0);
    }

    #[test]
    fn nothing_and_nan_are_no_boxes() {
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
