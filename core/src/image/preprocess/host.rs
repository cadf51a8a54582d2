// SPDX-License-Identifier: MPL-2.0
//! Frame to tensor in one pass: resample, convert colours, normalise, write; padding included.
//!
//! # Arithmetic
//! Stated once, here. Everything is IEEE `f32`, each operation rounded by itself (no fused multiply-add), in this order,
//! so that a kernel that does the same is equal in every bit. For the element at column `i`, row `j` of the scaled frame
//! (which begins at `letterbox.x`, `letterbox.y` of the tensor):
//!
//! 1. **Position** in a plane, per axis, exact in integers (no side is above [`MAX_SIDE`], so 32 bits hold them). With `F`
//!    the source's side, `o` its start in the frame, `D` the scaled side, and `a` and `z` the samples of its first and last
//!    pixel, `o / s` and `(o + F − 1) / s`: `den = 2·s·D`, `num = max((2i + 1)·F + 2·o·D − c·D, a·den)`;
//!    `near = min(num / den, z)`, `far = min(near + 1, z)`, `weight = (num mod den) / den`, or 0 where near is far. So
//!    a part of the frame is read as if the frame ended at its edges. Here `s, c` is `1, 1` for full planes, `2, 2` for
//!    chroma between two luma samples and `2, 1` for chroma on the first of them. For full planes that is
//!    `(i + 0.5)·F/D − 0.5`: pixel centres, as OpenCV's `INTER_LINEAR`. Chroma of
//!    `Chroma::Nearest` is interpolated as if each pixel had a sample of its own, which is the one that
//!    it shares: with `near` and `weight` of full planes, `near / 2`, and `weight` where `near` is odd, else 0. What is
//!    linear may be exchanged, so this is the frame in RGB, interpolated; only what clamping and rounding each pixel
//!    would change is not done.
//!    `ResizeMode::CenterCrop` has no such position: `antialias` says which samples its elements are made of.
//! 2. **Sample**, with `lerp(a, b, w) = a + (b − a)·w`: along the row first, then between the two rows:
//!    `lerp(lerp(p[near][near], p[near][far], wx), lerp(p[far][near], p[far][far], wx), wy)`, bytes taken as 0..255 and
//!    the 16-bit words of P010 as `word / 256`, which is exact and puts black, white and grey where 8 bits have them.
//!    `ResizeMode::CenterCrop`: `Σ (Σ p[row][column]·down[row])·across[column]`, down each column first; sums begin
//!    with the first product and go on in the order of rows and of columns.
//! 3. **Colour** (`color`). YUV: `l = (y − black)·gain`, `cb = u − 128`, `cr = v − 128`, `r = l + cr·r_cr`,
//!    `g = (l + cb·g_cb) + cr·g_cr`, `b = l + cb·b_cb`. To gray: `l`; from RGB: `(r·0.299 + g·0.587) + b·0.114`. From
//!    gray: `l` in each channel. RGB is always full range; alpha is ignored.
//! 4. **Clamp** to 0..255, then `element = sample·factor + addend` of [`InputTransform::normalisation`].
//! 5. **Element**: f32 as it is; f16 rounded to nearest even; u8 rounded to nearest even and clamped.
//!
//! Padding is `pad·factor + addend`, and step 5.
//!
//! [`InputTransform::normalisation`]: crate::image::transform::InputTransform::normalisation

use bytemuck::cast_slice;
use half::f16;
use half::slice::HalfFloatSliceExt;

use super::antialias::AntialiasSampler;
use super::color::Convert;
use super::sampler::{SampledPlane, Sampler};
use crate::error::{Error, ErrorKind, Result};
use crate::image::frame::{Colorimetry, Frame, PixelFormat};
use crate::image::geometry::{Letterbox, Rect, ResizeMode};
use crate::image::transform::{InputSpec, TensorLayout};
use crate::tensor::DType;

/// Maximum pixels along a side of frame or tensor; beyond it positions exceed 32 bits.
pub const MAX_SIDE: usize = 1 << 15;

/// Turns frames of one format and size into one kind of tensor. Built once per caps; holds all tables and scratch rows.
///
/// The CUDA kernels take their steps and the tables of antialiasing from here, so that both agree.
pub struct HostPreprocessor {
    pub(crate) format: PixelFormat,
    /// Width and height of the frames.
    pub(crate) size: (usize, usize),
    pub(crate) letterbox: Letterbox,
    pub(crate) dtype: DType,
    pub(crate) order: TensorLayout,
    pub(crate) samplers: Samplers,
    pub(crate) convert: Convert,
    pub(crate) channels: Vec<Channel>,
    /// The scaled frame's row, one line per channel of the planes, then of the colours.
    pub(super) samples: Vec<f32>,
    /// The tensor's row, all channels in its order; columns next to the frame hold padding from the start.
    elements: Vec<f32>,
    /// A row of padding as bytes of the tensor.
    padding: Vec<u8>,
    /// Elements of a row that lie together in the tensor: one channel's, or all.
    line: usize,
}

/// What resamples the planes, in the order of their channels.
pub(crate) enum Samplers {
    Bilinear(Vec<Sampler>),
    Antialiased(Vec<AntialiasSampler>),
}

/// One channel of the tensor: which line of samples it takes, and its normalisation.
pub(crate) struct Channel {
    pub from: usize,
    pub factor: f32,
    pub addend: f32,
}

impl HostPreprocessor {
    /// For frames of `width` × `height` and tensors of `spec`. `color` matters to YUV and gray formats.
    ///
    /// # Errors
    /// `Negotiation`, if frame or tensor is empty or has a side above [`MAX_SIDE`], or if no frame can become such a
    /// tensor: its rank is not 4, its batch not 1, its channels not those of the colours, its elements not f32, f16 or u8,
    /// or its scale, mean and std not finite numbers.
    pub fn new(
        format: PixelFormat,
        width: usize,
        height: usize,
        color: Colorimetry,
        spec: &InputSpec,
    ) -> Result<HostPreprocessor> {
        HostPreprocessor::of_region(format, (width, height), (width as u32, height as u32).into(), color, spec)
    }

    /// The same for a part of each frame: the tensor is the one that the frame would give if it ended at the edges of
    /// `source`. Where two pixels of `source` have a chroma sample in common with one outside, they keep it.
    ///
    /// # Errors
    /// As [`HostPreprocessor::new`]; `Negotiation`, if the part is empty or not in the frame.
    pub fn of_region(
        format: PixelFormat,
        (width, height): (usize, usize),
        source: Rect,
        color: Colorimetry,
        spec: &InputSpec,
    ) -> Result<HostPreprocessor> {
        check_size("frame", width, height)?;
        check_source(&source, width, height)?;
        check_spec(spec)?;
        let (dtype, order, colors) = (spec.desc.dtype, spec.order, spec.transform.colors);
        check_crop(spec, &source)?;
        let letterbox = spec.letterbox(source);
        let convert = Convert::new(format, color, colors);
        let channels: Vec<_> = convert
            .lines(colors)
            .iter()
            .zip(spec.transform.normalisation())
            .map(|(&from, (factor, addend))| Channel { from, factor, addend })
            .collect();

        let row = letterbox.tensor_width as usize;
        let line = if order == TensorLayout::Nchw { row } else { row * channels.len() };
        let mut elements = vec![0.0; row * channels.len()];
        for (i, element) in elements.iter_mut().enumerate() {
            let channel = if order == TensorLayout::Nchw { i / row } else { i % channels.len() };
            *element = channels[channel].element(spec.transform.pad.into());
        }
        let mut padding = vec![0; elements.len() * dtype.size()];
        encode(dtype, &elements, &mut padding);
        let samples = vec![0.0; 3 * letterbox.width as usize];
        let layouts = SampledPlane::all(format, (width, height), color, &spec.transform).into_iter();
        let samplers = match spec.transform.fit {
            ResizeMode::CenterCrop => {
                Samplers::Antialiased(layouts.map(|layout| AntialiasSampler::new(layout, &letterbox)).collect())
            }
            _ => Samplers::Bilinear(layouts.map(|layout| Sampler::new(layout, &letterbox)).collect()),
        };
        Ok(HostPreprocessor {
            format,
            size: (width, height),
            letterbox,
            dtype,
            order,
            samplers,
            convert,
            channels,
            samples,
            elements,
            padding,
            line,
        })
    }

    /// Where the frame lies in the tensor.
    pub fn letterbox(&self) -> &Letterbox {
        &self.letterbox
    }

    /// Writes every element of `tensor`: the bytes of a tensor as the specification describes it, at any address.
    ///
    /// # Errors
    /// `WrongType`, if the frame is not of the format and size given to [`HostPreprocessor::new`], if a plane is missing or
    /// shorter than its stride requires, or if the tensor has another size.
    pub fn run(&mut self, frame: &Frame, tensor: &mut [u8]) -> Result<()> {
        self.check(frame, tensor)?;
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            unsafe { self.write_avx2(frame, tensor) };
            return Ok(());
        }
        self.write(frame, tensor);
        Ok(())
    }

    /// Whether they are such a frame and the bytes of a tensor.
    pub(super) fn check(&self, frame: &Frame, tensor: &[u8]) -> Result<()> {
        frame.check(self.format, self.size.0, self.size.1)?;
        let bytes = self.padding.len() * self.letterbox.tensor_height as usize;
        if tensor.len() == bytes {
            return Ok(());
        }
        Err(Error::new(ErrorKind::WrongType, "Cannot write the tensor")
            .cause(format!("its memory has {} bytes, not {bytes}", tensor.len())))
    }

    /// [`HostPreprocessor::write`], with its loops compiled for AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn write_avx2(&mut self, frame: &Frame, tensor: &mut [u8]) {
        self.write(frame, tensor);
    }

    #[inline(always)]
    fn write(&mut self, frame: &Frame, tensor: &mut [u8]) {
        let Letterbox { y: top, height, tensor_height, .. } = self.letterbox;
        if let Samplers::Bilinear(samplers) = &mut self.samplers {
            samplers.iter_mut().for_each(Sampler::begin);
        }
        for y in 0..tensor_height {
            match y.checked_sub(top).filter(|&j| j < height) {
                Some(j) => self.write_row(frame, j as usize, y as usize, tensor),
                None => self.write_padding(y as usize, tensor),
            }
        }
    }

    /// Row `j` of the scaled frame into row `y` of the tensor.
    #[inline(always)]
    fn write_row(&mut self, frame: &Frame, j: usize, y: usize, tensor: &mut [u8]) {
        let width = self.letterbox.width as usize;
        let mut samples = &mut self.samples[..];
        match &mut self.samplers {
            Samplers::Bilinear(samplers) => {
                for sampler in samplers {
                    let (lines, rest) = samples.split_at_mut(sampler.channels() * width);
                    sampler.sample(frame, j, lines);
                    samples = rest;
                }
            }
            Samplers::Antialiased(samplers) => {
                for sampler in samplers {
                    let (lines, rest) = samples.split_at_mut(sampler.channels() * width);
                    sampler.sample(frame, j, lines);
                    samples = rest;
                }
            }
        }
        self.convert.apply(&mut self.samples, width);
        self.write_colors(y, tensor);
    }

    /// The row of colours in `samples` into row `y` of the tensor.
    #[inline(always)]
    pub(super) fn write_colors(&mut self, y: usize, tensor: &mut [u8]) {
        let (x, width) = (self.letterbox.x as usize, self.letterbox.width as usize);
        match (self.order, &self.channels[..]) {
            (TensorLayout::Nhwc, [a, b, c]) => {
                let lines =
                    a.line(&self.samples, width).zip(b.line(&self.samples, width)).zip(c.line(&self.samples, width));
                let pixels = &mut self.elements.as_chunks_mut().0[x..];
                pixels.iter_mut().zip(lines).for_each(|(pixel, ((a, b), c))| *pixel = [a, b, c]);
            }
            _ => {
                for (channel, elements) in self.channels.iter().zip(self.elements.chunks_exact_mut(self.line)) {
                    let line = channel.line(&self.samples, width);
                    elements[x..].iter_mut().zip(line).for_each(|(element, value)| *element = value);
                }
            }
        }
        let size = self.dtype.size();
        for (line, to) in self.elements.chunks_exact(self.line).zip(self.lines(y)) {
            encode(self.dtype, line, &mut tensor[to * size..][..line.len() * size]);
        }
    }

    fn write_padding(&self, y: usize, tensor: &mut [u8]) {
        let size = self.dtype.size();
        for (line, to) in self.padding.chunks_exact(self.line * size).zip(self.lines(y)) {
            tensor[to * size..][..line.len()].copy_from_slice(line);
        }
    }

    /// Where the lines of row `y` begin in the tensor, in elements.
    fn lines(&self, y: usize) -> impl Iterator<Item = usize> {
        let (line, height) = (self.line, self.letterbox.tensor_height as usize);
        (0..).map(move |plane| (plane * height + y) * line)
    }
}

impl Channel {
    /// The elements of its line among lines of `width` samples.
    #[inline(always)]
    fn line(&self, samples: &[f32], width: usize) -> impl Iterator<Item = f32> {
        samples[self.from * width..][..width].iter().map(|&sample| self.element(sample))
    }

    #[inline(always)]
    fn element(&self, sample: f32) -> f32 {
        sample.clamp(0.0, 255.0) * self.factor + self.addend
    }
}

/// Elements as bytes of the tensor.
#[inline(always)]
fn encode(dtype: DType, elements: &[f32], bytes: &mut [u8]) {
    match dtype {
        DType::F16 => {
            // By way of the stack, because the bytes may lie at an odd address.
            let mut halves = [f16::ZERO; 128];
            for (elements, bytes) in elements.chunks(halves.len()).zip(bytes.chunks_mut(2 * halves.len())) {
                let halves = &mut halves[..elements.len()];
                halves.convert_from_f32_slice(elements);
                bytes.copy_from_slice(cast_slice(halves));
            }
        }
        DType::U8 => {
            // A number of 0..255 added to 1.5 · 2^23 is rounded to a whole one, which the lowest byte then holds; several
            // times faster than rounding and converting.
            const WHOLE: f32 = 12582912.0;
            for (byte, element) in bytes.iter_mut().zip(elements) {
                *byte = (element.clamp(0.0, 255.0) + WHOLE).to_bits() as u8;
            }
        }
        _ => bytes.copy_from_slice(cast_slice(elements)),
    }
}

fn check_size(what: &str, width: usize, height: usize) -> Result<()> {
    if (1..=MAX_SIDE).contains(&width) && (1..=MAX_SIDE).contains(&height) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Negotiation, format!("Cannot preprocess a {what} of {width}x{height} pixels"))
        .remedy(format!("Use sides between 1 and {MAX_SIDE}")))
}

pub(super) fn check_source(source: &Rect, width: usize, height: usize) -> Result<()> {
    let Rect { left, top, right, bottom } = *source;
    if !source.is_empty() && right as usize <= width && bottom as usize <= height {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Negotiation, "Cannot preprocess a part of the frame")
        .cause(format!("it is from {left},{top} to {right},{bottom}, and the frame has {width}x{height} pixels"))
        .remedy("Use a rectangle in the frame that has at least one pixel"))
}

/// Refuses frames that are resized to less than the tensor.
fn check_crop(spec: &InputSpec, source: &Rect) -> Result<()> {
    let (_, height, width) = spec.chw();
    let edge = spec.transform.shortest_edge;
    if spec.transform.fit != ResizeMode::CenterCrop || edge == 0 {
        return Ok(());
    }
    let (whole_width, whole_height) = Letterbox::resized(source, (width as u32, height as u32), edge);
    if whole_width as usize >= width && whole_height as usize >= height {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Negotiation, format!("Cannot cut {width}x{height} pixels out of the resized frame"))
        .cause(format!("shortest-edge={edge} makes it {whole_width}x{whole_height}"))
        .remedy("Set shortest-edge on trtpreprocess to the tensor's greater side or more, or leave it unset"))
}

fn check_spec(spec: &InputSpec) -> Result<()> {
    let InputSpec { desc, transform, .. } = spec;
    let wrong = |cause: String, remedy: &str| {
        Err(Error::new(ErrorKind::Negotiation, format!("Cannot make the tensor {desc} of a frame"))
            .cause(cause)
            .remedy(remedy))
    };
    if desc.dims.len() != 4 || desc.dims[0] != 1 {
        return wrong("its dimensions are not one image".into(), "Use a model whose input is 1xCxHxW or 1xHxWxC");
    }
    if !matches!(desc.dtype, DType::F32 | DType::F16 | DType::U8) {
        return wrong(format!("elements are {}", desc.dtype), "Use a model whose input is f32, f16 or u8");
    }
    let (channels, height, width) = spec.chw();
    if channels != transform.colors.channels() {
        let (name, wanted) = (transform.colors.name(), transform.colors.channels());
        return wrong(
            format!("{name} has {wanted} channels, the tensor {channels}"),
            "Use rgb or bgr with 3 channels, gray with 1; or check whether channels come first (nchw) or last (nhwc)",
        );
    }
    let normalisation = transform.normalisation();
    if normalisation.iter().any(|(factor, addend)| !factor.is_finite() || !addend.is_finite()) {
        return wrong(
            format!(
                "scale {}, mean {:?} and std {:?} make no finite numbers",
                transform.scale, transform.mean, transform.std
            ),
            "Use finite numbers, and a std that is not 0",
        );
    }
    check_size("tensor", width, height)
}

#[cfg(test)]
mod tests;
