// SPDX-License-Identifier: MPL-2.0
//! The input transform: how a frame becomes the tensor that a model wants.
//!
//! [`InputSpec`] has both, tensor and transform. Its text form travels in the caps between trtinfer and trtpreprocess
//! (and shows in `gst-launch-1.0 -v`): `cpu f32 1x3x640x640 nchw rgb letterbox:114 scale:0.003921569 images`, with
//! `chroma:sited`, `shortest-edge:…`, `max-width:…`, `mean:…` and `std:…` before the name where they are wanted.

use std::fmt;
use std::str::FromStr;

use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::image::geometry::{Letterbox, Rect, ResizeMode};
use crate::options::{Choices, choices};
use crate::tensor::{DType, Dims, TensorDesc};

/// Which colours the channels hold, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Colors {
    #[default]
    Rgb,
    Bgr,
    Gray,
}

/// Whether channels are planes or lie together in each pixel; and of clips, whose frames are T, where those lie. Models of sequences
/// take T vectors of D numbers in place of pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TensorLayout {
    #[default]
    Nchw,
    Nhwc,
    Ncthw,
    Ntchw,
    Nthwc,
    /// A sequence of vectors, and one vector of it.
    Ntd,
    Nd,
}

/// Which chroma goes with a luma sample of 4:2:0 formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Chroma {
    /// The one sample that four pixels have in common, unchanged. OpenCV, swscale and videoconvert read frames so, and
    /// models are trained on what they read.
    #[default]
    Nearest,
    /// Interpolated between samples at the positions of the frame's chroma site.
    Sited,
}

choices! {
    Chroma, "GstTrtChromaSampling":
    Chroma::Nearest => "nearest" "The sample of its own block of 2x2 pixels, as OpenCV, swscale and videoconvert read frames"
    Chroma::Sited => "sited" "Interpolated between samples at the chroma-site of the caps"
}

/// What happens to pixels: an element of the tensor is `(sample × scale − mean) / std`, sample in 0..255.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputTransform {
    pub colors: Colors,
    pub chroma: Chroma,
    pub fit: ResizeMode,
    /// With [`ResizeMode::CenterCrop`], to how many pixels the shorter edge is resized before the middle is cut out:
    /// 256 for inputs of 224, as torchvision and timm do it; 0 for as many as the tensor has.
    pub shortest_edge: u32,
    /// Sample value of the padding, the same in each channel; normalised like any other.
    pub pad: u8,
    pub scale: f32,
    pub mean: [f32; 3],
    pub std: [f32; 3],
}

impl Default for InputTransform {
    /// Ultralytics' YOLO: RGB in 0..1, letterboxed with grey 114.
    fn default() -> Self {
        InputTransform {
            colors: Colors::Rgb,
            chroma: Chroma::Nearest,
            fit: ResizeMode::Letterbox,
            shortest_edge: 0,
            pad: 114,
            scale: 1.0 / 255.0,
            mean: [0.0; 3],
            std: [1.0; 3],
        }
    }
}

impl InputTransform {
    /// The same for a tensor of that type, with so many channels.
    #[doc(hidden)]
    pub fn of_tensor(mut self, dtype: DType, channels: usize) -> Self {
        if channels == 1 {
            self.colors = Colors::Gray;
        }
        if dtype == DType::U8 {
            self.scale = 1.0; // such models normalise by themselves
        }
        self
    }

    /// Factor and addend of each channel: element = sample × factor + addend.
    #[doc(hidden)]
    pub fn normalisation(&self) -> [(f32, f32); 3] {
        std::array::from_fn(|c| (self.scale / self.std[c], -self.mean[c] / self.std[c]))
    }

    /// The properties of trtpreprocess, as in a launch line, that make this where `other` is made without them.
    #[doc(hidden)]
    pub fn settings_unlike(&self, other: &InputTransform) -> String {
        let channels = |values: [f32; 3]| values.map(|value| value.to_string()).join(",");
        let settings = [
            (self.colors != other.colors).then(|| format!("tensor-colors={}", self.colors.name())),
            (self.scale != other.scale).then(|| format!("scale={}", self.scale)),
            (self.fit != other.fit).then(|| format!("resize={}", self.fit.name())),
            (self.shortest_edge != other.shortest_edge).then(|| format!("shortest-edge={}", self.shortest_edge)),
            (self.pad != other.pad).then(|| format!("pad-value={}", self.pad)),
            (self.mean != other.mean).then(|| format!("mean={}", channels(self.mean))),
            (self.std != other.std).then(|| format!("std={}", channels(self.std))),
        ];
        settings.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// Widths of tensors between the narrowest and the widest are multiples of this, so that many lines have the same.
const WIDTH_STEP: u32 = 32;

/// Pixels of an input, in all frames of a clip: those of an 8K frame, whose tensor takes 400 MiB in f32. A size that is only in a
/// file's metadata must not be enough to fill the memory.
pub const MAX_PIXELS: u64 = 1 << 25;

/// The tensor that a model wants for a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSpec {
    /// Where the tensor must be.
    pub device: Device,
    /// Rank 4, 5 for a clip, or 3 for a sequence of vectors. Dimensions are fixed, but for the frames of a clip, or the vectors of a
    /// sequence, where the model leaves their number open.
    pub desc: TensorDesc,
    pub order: TensorLayout,
    pub transform: InputTransform,
    /// The width of the widest tensor for a line of text, where the model takes several; 0 where all have that of `desc`.
    pub widest: u32,
}

impl InputSpec {
    /// Whether lines of text become tensors of several widths.
    pub fn has_widths(&self) -> bool {
        let (_, _, width) = self.chw();
        self.widest as usize > width
    }

    /// The dimensions of the widest tensor.
    pub fn largest_dims(&self) -> Dims {
        let mut dims = self.desc.dims.clone();
        if let Some((_, w)) = self.order.sides().filter(|_| self.has_widths()) {
            dims.0[w] = self.widest.into();
        }
        dims
    }

    /// The width of the tensor for a line of text that has so many columns at its height.
    pub fn width_for(&self, columns: u32) -> u32 {
        let (_, _, width) = self.chw();
        let (least, most) = (width as u32, self.widest.max(width as u32));
        let stepped = columns.min(most).checked_next_multiple_of(WIDTH_STEP);
        stepped.map_or(most, |width| width.clamp(least, most))
    }

    /// Channels, height and width. A vector is one pixel, and its numbers are the channels.
    pub fn chw(&self) -> (usize, usize, usize) {
        let dim = |i: usize| self.desc.dims.get(i).copied().unwrap_or(0).max(0) as usize;
        let (height, width) = self.order.sides().map_or((1, 1), |(height, width)| (dim(height), dim(width)));
        (dim(self.order.channels()), height, width)
    }

    /// Whether it is of vectors in place of pictures.
    pub fn is_of_vectors(&self) -> bool {
        self.order.sides().is_none()
    }

    /// The frames of a clip, or the vectors of a sequence, [`Dims::DYNAMIC`] where their number is open; `None` for a picture.
    pub fn frames(&self) -> Option<i64> {
        self.desc.dims.get(self.order.frames()?).copied()
    }

    /// The same for clips of so many frames.
    ///
    /// # Panics
    /// If it is not for clips.
    pub fn with_frames(&self, frames: i64) -> Self {
        let mut spec = self.clone();
        spec.desc.dims.0[self.order.frames().expect("it is for clips")] = frames;
        spec
    }

    /// Of a clip, the tensor of one of its frames, and of a sequence that of a vector; a picture's own.
    pub fn of_frame(&self) -> Self {
        let (channels, height, width) = self.chw();
        let order = self.order.of_frame();
        let dims = order.dims(1, [channels, height, width].map(|side| side as i64));
        InputSpec { desc: TensorDesc { dims, ..self.desc.clone() }, order, ..self.clone() }
    }

    /// The same for a tensor of another width and height. A vector has none.
    pub fn resized(&self, (width, height): (u32, u32)) -> Self {
        let mut spec = self.clone();
        if let Some((h, w)) = self.order.sides() {
            (spec.desc.dims.0[h], spec.desc.dims.0[w]) = (height.into(), width.into());
        }
        spec
    }

    /// Where a part of a frame, or the whole frame of that size, lies in the tensor.
    pub fn letterbox(&self, source: impl Into<Rect>) -> Letterbox {
        let (_, height, width) = self.chw();
        let tensor = (width as u32, height as u32);
        match self.transform.fit {
            ResizeMode::CenterCrop => Letterbox::center_crop(source, tensor, self.transform.shortest_edge),
            fit => Letterbox::new(source, tensor, fit),
        }
    }
}

impl Colors {
    #[doc(hidden)]
    pub const ALL: [Colors; 3] = [Colors::Rgb, Colors::Bgr, Colors::Gray];

    #[doc(hidden)]
    pub const fn name(self) -> &'static str {
        match self {
            Colors::Rgb => "rgb",
            Colors::Bgr => "bgr",
            Colors::Gray => "gray",
        }
    }

    #[doc(hidden)]
    pub const fn channels(self) -> usize {
        match self {
            Colors::Rgb | Colors::Bgr => 3,
            Colors::Gray => 1,
        }
    }
}

impl Chroma {
    #[doc(hidden)]
    pub const ALL: [Chroma; 2] = [Chroma::Nearest, Chroma::Sited];
}

impl TensorLayout {
    #[doc(hidden)]
    pub const ALL: [TensorLayout; 7] = [
        TensorLayout::Nchw,
        TensorLayout::Nhwc,
        TensorLayout::Ncthw,
        TensorLayout::Ntchw,
        TensorLayout::Nthwc,
        TensorLayout::Ntd,
        TensorLayout::Nd,
    ];

    /// Those of pictures, in which the frames of clips are made.
    #[doc(hidden)]
    pub const OF_PICTURES: [TensorLayout; 2] = [TensorLayout::Nchw, TensorLayout::Nhwc];

    /// Which dimensions are height and width; `None` for vectors.
    pub const fn sides(self) -> Option<(usize, usize)> {
        match self {
            TensorLayout::Nchw => Some((2, 3)),
            TensorLayout::Nhwc => Some((1, 2)),
            TensorLayout::Ncthw | TensorLayout::Ntchw => Some((3, 4)),
            TensorLayout::Nthwc => Some((2, 3)),
            TensorLayout::Ntd | TensorLayout::Nd => None,
        }
    }

    /// Which dimension is that of the channels, or of the numbers of a vector.
    pub const fn channels(self) -> usize {
        match self {
            TensorLayout::Nchw | TensorLayout::Ncthw | TensorLayout::Nd => 1,
            TensorLayout::Ntchw | TensorLayout::Ntd => 2,
            TensorLayout::Nhwc => 3,
            TensorLayout::Nthwc => 4,
        }
    }

    /// Which dimension is that of the frames of a clip, or of the vectors of a sequence; `None` for pictures.
    pub const fn frames(self) -> Option<usize> {
        match self {
            TensorLayout::Nchw | TensorLayout::Nhwc | TensorLayout::Nd => None,
            TensorLayout::Ntchw | TensorLayout::Nthwc | TensorLayout::Ntd => Some(1),
            TensorLayout::Ncthw => Some(2),
        }
    }

    /// That of one frame of a clip, or of one vector of a sequence; a picture's own.
    pub const fn of_frame(self) -> Self {
        match self {
            TensorLayout::Nchw | TensorLayout::Ncthw | TensorLayout::Ntchw => TensorLayout::Nchw,
            TensorLayout::Nhwc | TensorLayout::Nthwc => TensorLayout::Nhwc,
            TensorLayout::Ntd | TensorLayout::Nd => TensorLayout::Nd,
        }
    }

    /// How many dimensions there are.
    const fn rank(self) -> usize {
        match self {
            TensorLayout::Nchw | TensorLayout::Nhwc => 4,
            TensorLayout::Ncthw | TensorLayout::Ntchw | TensorLayout::Nthwc => 5,
            TensorLayout::Ntd => 3,
            TensorLayout::Nd => 2,
        }
    }

    /// The dimensions of one picture, or of one clip of so many frames; of vectors that of one, or of so many.
    pub fn dims(self, frames: i64, [channels, height, width]: [i64; 3]) -> Dims {
        match self {
            TensorLayout::Nchw => Dims::new(&[1, channels, height, width]),
            TensorLayout::Nhwc => Dims::new(&[1, height, width, channels]),
            TensorLayout::Ncthw => Dims::new(&[1, channels, frames, height, width]),
            TensorLayout::Ntchw => Dims::new(&[1, frames, channels, height, width]),
            TensorLayout::Nthwc => Dims::new(&[1, frames, height, width, channels]),
            TensorLayout::Ntd => Dims::new(&[1, frames, channels]),
            TensorLayout::Nd => Dims::new(&[1, channels]),
        }
    }

    #[doc(hidden)]
    pub const fn name(self) -> &'static str {
        match self {
            TensorLayout::Nchw => "nchw",
            TensorLayout::Nhwc => "nhwc",
            TensorLayout::Ncthw => "ncthw",
            TensorLayout::Ntchw => "ntchw",
            TensorLayout::Nthwc => "nthwc",
            TensorLayout::Ntd => "ntd",
            TensorLayout::Nd => "nd",
        }
    }
}

impl ResizeMode {
    #[doc(hidden)]
    pub const ALL: [ResizeMode; 4] =
        [ResizeMode::Letterbox, ResizeMode::LetterboxTopLeft, ResizeMode::Stretch, ResizeMode::CenterCrop];

    #[doc(hidden)]
    pub const fn name(self) -> &'static str {
        match self {
            ResizeMode::Letterbox => "letterbox",
            ResizeMode::LetterboxTopLeft => "letterbox-top-left",
            ResizeMode::Stretch => "stretch",
            ResizeMode::CenterCrop => "center-crop",
        }
    }
}

impl fmt::Display for InputSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InputTransform { colors, chroma, fit, shortest_edge, pad, scale, mean, std } = &self.transform;
        write!(f, "{} {} {} ", self.device, self.desc.dtype, self.desc.dims)?;
        write!(f, "{} {} {}:{pad} scale:{scale}", self.order.name(), colors.name(), fit.name())?;
        if *chroma != Chroma::default() {
            write!(f, " chroma:{}", chroma.word())?;
        }
        if *shortest_edge != 0 {
            write!(f, " shortest-edge:{shortest_edge}")?;
        }
        if self.widest != 0 {
            write!(f, " max-width:{}", self.widest)?;
        }
        for (word, values, default) in [("mean", mean, 0.0), ("std", std, 1.0)] {
            if *values != [default; 3] {
                write!(f, " {word}:{}/{}/{}", values[0], values[1], values[2])?;
            }
        }
        // Last, because a tensor's name may hold anything.
        write!(f, " {}", self.desc.name)
    }
}

impl FromStr for InputSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).ok_or_else(|| {
            Error::new(ErrorKind::Negotiation, format!("The caps field tensor=“{text}” cannot be read"))
                .remedy("Use trtpreprocess and trtinfer of the same version")
        })
    }
}

fn parse(text: &str) -> Option<InputSpec> {
    let mut rest = text;
    let mut word = || {
        let (word, tail) = rest.split_once(' ')?;
        rest = tail;
        Some(word)
    };
    let device: Device = word()?.parse().ok()?;
    let dtype: DType = word()?.parse().ok()?;
    let dims: Dims = word()?.parse().ok()?;
    let order = word()?;
    // One vector is a step of a sequence: no model asks for it.
    let order = TensorLayout::ALL.into_iter().find(|o| o.name() == order && *o != TensorLayout::Nd)?;
    let colors = word()?;
    let colors = Colors::ALL.into_iter().find(|c| c.name() == colors)?;
    let (fit, pad) = word()?.split_once(':')?;
    let fit = ResizeMode::ALL.into_iter().find(|f| f.name() == fit)?;
    let mut transform = InputTransform { colors, fit, pad: pad.parse().ok()?, ..InputTransform::default() };
    transform.scale = word()?.strip_prefix("scale:")?.parse().ok()?;
    if let Some(tail) = rest.strip_prefix("chroma:") {
        let (name, tail) = tail.split_once(' ')?;
        transform.chroma = Chroma::of_word(name)?;
        rest = tail;
    }
    if let Some(tail) = rest.strip_prefix("shortest-edge:") {
        let (edge, tail) = tail.split_once(' ')?;
        transform.shortest_edge = edge.parse().ok()?;
        rest = tail;
    }
    let mut widest = 0;
    if let Some(tail) = rest.strip_prefix("max-width:") {
        let (width, tail) = tail.split_once(' ')?;
        widest = width.parse().ok()?;
        rest = tail;
    }
    for (prefix, values) in [("mean:", &mut transform.mean), ("std:", &mut transform.std)] {
        if let Some(tail) = rest.strip_prefix(prefix) {
            let (triple, tail) = tail.split_once(' ')?;
            *values = parse_triple(triple, '/')?;
            rest = tail;
        }
    }
    let desc = TensorDesc { name: rest.to_string(), dtype, dims };
    (desc.dims.len() == order.rank()).then_some(InputSpec { device, desc, order, transform, widest })
}

/// Width and height from `640x480`; `None` from nothing. `property` is named in the error.
pub fn parse_size(property: &str, text: &str) -> Result<Option<(u32, u32)>> {
    pair(text).ok_or_else(|| {
        Error::new(ErrorKind::Settings, format!("{property}={text} is no size"))
            .remedy("Write width and height like 640x640, each from 1 to 16384")
    })
}

/// Columns and rows from `3x2`, likewise.
pub fn parse_grid(property: &str, text: &str) -> Result<Option<(u32, u32)>> {
    pair(text).ok_or_else(|| {
        Error::new(ErrorKind::Settings, format!("{property}={text} is not columns and rows"))
            .remedy("Write them like 3x2, each from 1 to 16384")
    })
}

/// Two numbers from `3x2`, `Some(None)` from nothing, and `None` from anything else.
fn pair(text: &str) -> Option<Option<(u32, u32)>> {
    if text.is_empty() {
        return Some(None);
    }
    let (first, second) = text.split_once('x')?;
    let (first, second) = (first.parse().ok()?, second.parse().ok()?);
    let is_possible = |number: u32| (1..=16384).contains(&number);
    (is_possible(first) && is_possible(second)).then_some(Some((first, second)))
}

/// Three finite numbers, or one for all three.
pub fn parse_triple(text: &str, separator: char) -> Option<[f32; 3]> {
    let mut values = text.split(separator).map(|value| value.trim().parse().ok().filter(|v: &f32| v.is_finite()));
    let first = values.next()??;
    let Some(second) = values.next() else { return Some([first; 3]) };
    let third = values.next()??;
    values.next().is_none().then_some([first, second?, third])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> InputSpec {
        InputSpec {
            device: Device::Host,
            desc: TensorDesc::new("images", DType::F32, &[1, 3, 480, 640]),
            order: TensorLayout::Nchw,
            transform: InputTransform::default(),
            widest: 0,
        }
    }

    #[test]
    fn text_form_round_trips() {
        let text = "cpu f32 1x3x480x640 nchw rgb letterbox:114 scale:0.003921569 images";
        assert_eq!(spec().to_string(), text);
        assert_eq!(text.parse::<InputSpec>().unwrap(), spec());

        let mut other = spec();
        other.desc.name = "input tensor:0".into();
        other.desc.dtype = DType::F16;
        other.transform = InputTransform {
            colors: Colors::Bgr,
            chroma: Chroma::Sited,
            fit: ResizeMode::CenterCrop,
            shortest_edge: 700,
            pad: 0,
            scale: 1.0,
            mean: [103.53, 116.28, 123.675],
            std: [57.375, 57.12, 58.395],
        };
        assert_eq!(other.to_string().parse::<InputSpec>().unwrap(), other);
        other.widest = 1280;
        assert_eq!(other.to_string().parse::<InputSpec>().unwrap(), other);
    }

    #[test]
    fn broken_text_is_an_error() {
        for text in [
            "",
            "cpu",
            "cpu f32 1x3 nchw rgb letterbox:114 scale:1 x",
            "cpu f32 1x3x4x4 nchw rgb letterbox scale:1 x",
            "cpu f32 1x3x4x4 nchw rgb letterbox:0 scale:1 chroma:odd x",
            "cpu f32 1x3x4x4 nchw rgb center-crop:0 scale:1 shortest-edge:-1 x",
            "cpu f32 1x3x4x4 nchw rgb letterbox:0 scale:1 max-width:wide x",
            "cpu f32 1x3x4x4 ncthw rgb letterbox:0 scale:1 x",
            "cpu f32 1x3x8x4x4 nchw rgb letterbox:0 scale:1 x",
            "cpu f32 1x512 nd rgb letterbox:0 scale:1 x",
        ] {
            assert!(text.parse::<InputSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn chw_follows_the_order() {
        assert_eq!(spec().chw(), (3, 480, 640));
        assert_eq!(spec().resized((32, 64)).chw(), (3, 64, 32));
        let mut nhwc = spec();
        nhwc.order = TensorLayout::Nhwc;
        nhwc.desc.dims = Dims::new(&[1, 480, 640, 3]);
        assert_eq!(nhwc.chw(), (3, 480, 640));
        assert_eq!(nhwc.resized((32, 64)).chw(), (3, 64, 32));
    }

    #[test]
    fn lines_have_widths_in_steps_within_the_bounds() {
        let narrow = InputSpec { widest: 1000, ..spec() };
        let widths = [0, 640, 641, 672, 999, u32::MAX].map(|columns| narrow.width_for(columns));
        assert_eq!(widths, [640, 640, 672, 672, 1000, 1000]);
        let any = InputSpec { widest: u32::MAX, ..spec() };
        assert_eq!(any.width_for(u32::MAX), u32::MAX, "a step more is no number of 32 bits");
    }

    #[test]
    fn clips_have_frames() {
        for (dims, order, frame) in [
            ("1x3x16x48x64", "ncthw", "1x3x48x64 nchw"),
            ("1x16x3x48x64", "ntchw", "1x3x48x64 nchw"),
            ("1x16x48x64x3", "nthwc", "1x48x64x3 nhwc"),
        ] {
            let text = |shape: &str| format!("cpu f32 {shape} rgb stretch:114 scale:1 clip");
            let clip: InputSpec = text(&format!("{dims} {order}")).parse().unwrap();
            assert_eq!((clip.chw(), clip.frames()), ((3, 48, 64), Some(16)), "{order}");
            assert_eq!(clip.of_frame().to_string(), text(frame));
            assert_eq!(clip.resized((32, 8)).chw(), (3, 8, 32), "{order}");
            let open = clip.with_frames(Dims::DYNAMIC);
            assert_eq!(open.to_string(), text(&format!("{} {order}", dims.replace("16", "?"))));
            assert_eq!(open.to_string().parse::<InputSpec>().unwrap(), open);
            assert_eq!(open.with_frames(16), clip);
        }
        assert_eq!((spec().frames(), spec().of_frame()), (None, spec()));
    }

    #[test]
    fn triples_are_one_or_three_numbers() {
        assert_eq!(parse_triple("0.5", ','), Some([0.5; 3]));
        assert_eq!(parse_triple("1, 2, 3", ','), Some([1.0, 2.0, 3.0]));
        for text in ["", "1,2", "1,2,3,4", "a", "inf"] {
            assert_eq!(parse_triple(text, ','), None, "{text}");
        }
    }
}
