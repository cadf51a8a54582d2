// SPDX-License-Identifier: MPL-2.0
//! Frames to tensors: `kernels/preprocess.cuh`, and `kernels/antialias.cu` for what is resized with antialiasing. The
//! reference implementation is [`host`](crate::image::preprocess::host). The former computes the same positions, the latter takes
//! tables of it.

use crate::cuda::kernels::{
    ANTIALIAS, PREPROCESS_LUMA8, PREPROCESS_LUMA16, PREPROCESS_NV12, PREPROCESS_P010, PREPROCESS_PLANES8,
    PREPROCESS_PLANES16, PREPROCESS_RGB,
};
use bytemuck::{Pod, Zeroable, cast_slice};

use crate::image::device::{DevicePlane, DevicePlanes, check_planes};

use crate::cuda::driver::{Context, Function, Launch, Stream};
use crate::error::Result;
use crate::image::frame::{Colorimetry, PixelFormat};
use crate::image::geometry::{Letterbox, Rect};
use crate::image::preprocess::HostPreprocessor as Reference;
use crate::image::preprocess::antialias::{AntialiasSampler, TapAxis};
use crate::image::preprocess::color::{Convert, YuvToRgb};
use crate::image::preprocess::host::Samplers;
use crate::image::preprocess::sampler::{SampleAxis, SampledPlane, Sampler, Siting};
use crate::image::transform::{Colors, InputSpec, TensorLayout};
use crate::memory::{DeviceBlock, DevicePool};
use crate::tensor::DType;

/// Frames of one launch.
pub const MAX_BATCH: usize = 32;

/// Threads of a block, as in the kernel.
pub(super) const THREADS: (u32, u32) = (32, 4);
/// Rows of a block of padding.
const PADDED_ROWS: u32 = 32;

/// Planes of which every position falls on a sample: plane 0, and those of chroma.
const FIRST_ALONE: u32 = 1;
const OTHERS_ALONE: u32 = 2;

/// Turns frames of one format and size into one kind of tensor. Built once per caps; holds tables on the GPU, if there are some.
pub struct PreprocessKernel {
    functions: Functions,
    /// The same for chroma in pairs that are not aligned to both samples, which it reads one by one.
    one_by_one: Option<Functions>,
    parameters: PreprocessParams,
    format: PixelFormat,
    /// Width and height of the frames.
    size: (usize, usize),
    letterbox: Letterbox,
    /// What `parameters` has the addresses of.
    _tables: Option<DeviceBlock>,
    /// Bytes of an element.
    element: usize,
    bytes_read: (usize, usize),
}

/// A kernel for one frame, and for up to [`MAX_BATCH`].
struct Functions {
    one: PixelKernel,
    /// For one frame whose positions are [`steps`] apart, where a thread's columns can be written at once.
    steps: Option<PixelKernel>,
    batch: PixelKernel,
}

/// A kernel, and the columns and rows of the scaled frame that a thread of it makes.
struct PixelKernel {
    function: Function,
    columns: u32,
    rows: u32,
    /// Blocks of their own write the padding. Else those of the scaled frame do, if there is some.
    pads: bool,
}

/// `Frame` of the kernel.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct FrameView {
    planes: [u64; 3],
    tensor: u64,
    strides: [u32; 3],
    together: u32,
}

/// `Taps` of the kernel: what of an axis a position is made of, in plane 0 and in the others, as first sample, count,
/// and place of the first weight.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Taps {
    first: [u32; 3],
    others: [u32; 3],
    unused: [u32; 2],
}

/// What the kernel needs of the samplers. Without antialiasing there are no bytes: it computes positions.
struct Tables {
    bytes: Vec<u8>,
    /// Where the rows begin in it, behind the columns.
    rows: usize,
    first_step: u32,
    others_step: u32,
    alone: u32,
    bytes_read: (usize, usize),
}

/// `FrameParameters` of the kernels. Those for one frame are its beginning: a kernel takes no more than it has.
#[derive(Clone, Copy)]
#[repr(C)]
struct PreprocessParams {
    conversion: Conversion,
    sampling: Sampling,
    placement: ViewPlacement,
    /// The tables' addresses, or the [`steps`] along a row and down.
    columns: u64,
    rows: u64,
    frames: [FrameView; MAX_BATCH],
}

/// What `Sampling` of the kernels has besides `Conversion`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Sampling {
    samples: u32,
    other_samples: u32,
    sitings: [u32; 2],
}

/// `ViewPlacement` of the kernels.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct ViewPlacement {
    source: [u32; 4],
    place: [u32; 4],
}

/// `Conversion` of the kernels.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Conversion {
    tensor_width: u32,
    tensor_height: u32,
    first_step: u32,
    others_step: u32,
    alone: u32,
    to_gray: u32,
    reversed: u32,
    channels: u32,
    interleaved: u32,
    dtype: u32,
    matrix: [f32; 6],
    factor: [f32; 3],
    addend: [f32; 3],
    pad: f32,
}

const _: () = assert!(size_of::<Taps>() == 32);
const _: () = assert!(size_of::<FrameView>() == 48 && size_of::<Sampling>() == 16 && size_of::<ViewPlacement>() == 32);
const _: () = assert!(size_of::<Conversion>() == 92 && size_of::<PreprocessParams>() == MAX_BATCH * 48 + 160);

impl Sampling {
    /// Of the planes of such frames; there is a sampler for each that is read.
    pub(super) fn new(
        samplers: &[Sampler],
        format: PixelFormat,
        size: (usize, usize),
        color: Colorimetry,
        spec: &InputSpec,
    ) -> Self {
        let (first, others) = (&samplers[0], samplers.last().expect("a frame has a plane"));
        let samples = |sampler: &Sampler| (sampler.row_bytes / sampler.pixel) as u32;
        let planes = SampledPlane::all(format, size, color, &spec.transform);
        let sitings = planes.last().expect("as above").sitings;
        Sampling { samples: samples(first), other_samples: samples(others), sitings: sitings.map(siting_code) }
    }
}

impl ViewPlacement {
    /// Of that rectangle of a frame.
    pub(super) fn new(source: &Rect, letterbox: &Letterbox) -> Self {
        ViewPlacement {
            source: [source.left, source.top, source.width(), source.height()],
            place: [letterbox.x, letterbox.y, letterbox.width, letterbox.height],
        }
    }
}

/// `Siting` of the kernels. Planes with a sample for each pixel are not asked for theirs.
pub(super) fn siting_code(siting: Siting) -> u32 {
    match siting {
        Siting::Between(2, 1) => 1,
        Siting::Between(2, _) => 2,
        Siting::InCommon | Siting::Between(..) => 0,
    }
}

impl Conversion {
    /// As the reference implementation does it, with the bytes from a sample to the next in plane 0 and in the others, and the planes that
    /// are alone.
    pub(super) fn new(
        reference: &Reference,
        spec: &InputSpec,
        [first_step, others_step]: [u32; 2],
        alone: u32,
    ) -> Self {
        let (letterbox, colors) = (&reference.letterbox, spec.transform.colors);
        let matrix = match reference.convert {
            Convert::Rgb | Convert::RgbToGray => None,
            Convert::YuvToRgb(matrix) | Convert::Luma(matrix) => Some(matrix),
        };
        let samples_reversed = reference.format.rgb_offsets() == Some([2, 1, 0]);
        // What one of gray repeats in three channels.
        let channel = |c: usize| reference.channels.get(c).unwrap_or(&reference.channels[0]);
        Conversion {
            tensor_width: letterbox.tensor_width,
            tensor_height: letterbox.tensor_height,
            first_step,
            others_step,
            alone,
            to_gray: matches!(reference.convert, Convert::RgbToGray).into(),
            reversed: (samples_reversed != (colors == Colors::Bgr)).into(),
            channels: reference.channels.len() as u32,
            interleaved: (reference.order == TensorLayout::Nhwc).into(),
            dtype: match reference.dtype {
                DType::F16 => 1,
                DType::U8 => 2,
                _ => 0,
            },
            matrix: matrix.map_or([0.0; 6], |YuvToRgb { black, gain, r_cr, g_cb, g_cr, b_cb }| {
                [black, gain, r_cr, g_cb, g_cr, b_cb]
            }),
            factor: [0, 1, 2].map(|c| channel(c).factor),
            addend: [0, 1, 2].map(|c| channel(c).addend),
            pad: spec.transform.pad.into(),
        }
    }

    /// Width and height of the tensor.
    pub(super) fn tensor_size(&self) -> (u32, u32) {
        (self.tensor_width, self.tensor_height)
    }
}

impl PreprocessKernel {
    /// For frames of `size`, width and height, and tensors of `spec`. `color` matters to YUV and gray formats.
    ///
    /// # Errors
    /// As the reference implementation; `Run`, where the GPU fails.
    pub fn new(
        context: &Context,
        format: PixelFormat,
        size: (usize, usize),
        color: Colorimetry,
        spec: &InputSpec,
    ) -> Result<PreprocessKernel> {
        PreprocessKernel::of_region(context, format, size, (size.0 as u32, size.1 as u32).into(), color, spec)
    }

    /// The same for a part of each frame, as [`HostPreprocessor::of_region`](Reference::of_region).
    ///
    /// # Errors
    /// As the reference implementation; `Run`, where the GPU fails.
    pub fn of_region(
        context: &Context,
        format: PixelFormat,
        size: (usize, usize),
        source: Rect,
        color: Colorimetry,
        spec: &InputSpec,
    ) -> Result<PreprocessKernel> {
        let reference = Reference::of_region(format, size, source, color, spec)?;
        let letterbox = reference.letterbox;
        let (tables, sampling) = match &reference.samplers {
            Samplers::Bilinear(samplers) => (bilinear(samplers), Sampling::new(samplers, format, size, color, spec)),
            Samplers::Antialiased(samplers) => (antialiased(samplers), Sampling::default()),
        };
        let block = match &tables.bytes[..] {
            [] => None,
            bytes => {
                let mut block = DevicePool::new(context).take(bytes.len())?;
                block.write(bytes)?;
                Some(block)
            }
        };
        let address = block.as_ref().map_or(0, DeviceBlock::address);

        let steps = match &reference.samplers {
            Samplers::Bilinear(samplers) => steps(samplers, &letterbox),
            Samplers::Antialiased(_) => None,
        };
        let [columns, rows] = steps.map_or([address, address + tables.rows as u64], |steps| steps.map(u64::from));
        let between = [tables.first_step, tables.others_step];
        let parameters = PreprocessParams {
            conversion: Conversion::new(&reference, spec, between, tables.alone),
            sampling,
            placement: ViewPlacement::new(&letterbox.source, &letterbox),
            columns,
            rows,
            frames: [FrameView::default(); MAX_BATCH],
        };

        let (functions, one_by_one) = match &reference.samplers {
            Samplers::Bilinear(samplers) => {
                let all = if samplers.len() > 1 { FIRST_ALONE | OTHERS_ALONE } else { FIRST_ALONE };
                let functions = |samples| Functions::bilinear(context, samples, tables.alone == all, steps.is_some());
                let (samples, one_by_one) = samples_of(format, samplers);
                // The latter are loaded although few streams need them: that a frame does is seen when it comes, and the whole
                // context would wait for the driver to compile them.
                (functions(samples)?, one_by_one.map(functions).transpose()?)
            }
            Samplers::Antialiased(samplers) => {
                let samples = samples_one_by_one(format, samplers.len(), samplers[0].channels());
                let function = context.module(ANTIALIAS)?.function(&format!("antialias_{samples}"))?;
                // It takes so long that the size of its parameters does not count.
                let any = || PixelKernel { function: function.clone(), columns: 1, rows: 1, pads: false };
                (Functions { one: any(), steps: None, batch: any() }, None)
            }
        };
        Ok(PreprocessKernel {
            bytes_read: tables.bytes_read,
            functions,
            one_by_one,
            parameters,
            format,
            size,
            letterbox,
            _tables: block,
            element: reference.dtype.size(),
        })
    }

    /// Where the frame lies in the tensor.
    pub fn letterbox(&self) -> &Letterbox {
        &self.letterbox
    }

    /// Bytes of a frame in the rows that are read, and in all rows of its planes that are.
    pub fn bytes_read(&self) -> (usize, usize) {
        self.bytes_read
    }

    /// Queues the making of a tensor, of which every element is written.
    ///
    /// # Errors
    /// `WrongType`, if these are not the planes of such a frame: their number, a stride below a row's bytes, or odd
    /// addresses of 16-bit samples. `Run`, where the GPU fails.
    ///
    /// # Safety
    /// The planes have the rows of a frame as given to [`PreprocessKernel::new`], `tensor` the bytes of its tensor and
    /// the alignment of its elements, and both stay so until the work is done. `self` lives until then too.
    pub unsafe fn launch(&self, stream: &Stream, planes: &[DevicePlane], tensor: u64) -> Result<()> {
        // SAFETY: the planes are of such a frame and the tensor has room, until the work is done.
        unsafe { self.launch_batch(stream, &[(planes.into(), tensor)]) }
    }

    /// The same for several frames, with one launch for each [`MAX_BATCH`] of them.
    ///
    /// # Errors
    /// As [`PreprocessKernel::launch`].
    ///
    /// # Safety
    /// As [`PreprocessKernel::launch`].
    pub unsafe fn launch_batch(&self, stream: &Stream, frames: &[(DevicePlanes, u64)]) -> Result<()> {
        for frames in frames.chunks(MAX_BATCH) {
            let mut parameters = self.parameters;
            let one_by_one =
                self.one_by_one.as_ref().filter(|_| !frames.iter().all(|(planes, _)| has_pairs(self.format, planes)));
            let functions = one_by_one.unwrap_or(&self.functions);
            let PixelKernel { function, columns, rows, pads } = match frames {
                [(_, tensor)] => {
                    let writes =
                        |kernel: &&PixelKernel| are_together(&self.letterbox, *tensor, self.element, kernel.columns);
                    functions.steps.as_ref().filter(writes).unwrap_or(&functions.one)
                }
                _ => &functions.batch,
            };
            for (view, (planes, tensor)) in parameters.frames.iter_mut().zip(frames) {
                *view = self.view(planes, *tensor, *columns)?;
            }
            let (width, height) = parameters.conversion.tensor_size();
            let down = if *pads {
                blocks(self.letterbox.height, height, *rows)
            } else {
                self.letterbox.height.div_ceil(THREADS.1 * rows)
            };
            let grid = (width.div_ceil(THREADS.0 * columns), down, frames.len() as u32);
            let shape = Launch { grid, block: (THREADS.0, THREADS.1, 1), shared: 0 };
            // SAFETY: the kernel takes these parameters, or their beginning. The tables live as long as `self`, and `view`
            // checked the planes, which stay with the tensors until the work is done.
            unsafe { stream.launch(function, shape, &parameters)? };
        }
        Ok(())
    }

    /// `columns` are those of a thread.
    fn view(&self, planes: &[DevicePlane], tensor: u64, columns: u32) -> Result<FrameView> {
        check_planes(planes, self.format, self.size.0, self.size.1)?;
        let all = three_planes(self.format, planes);
        Ok(FrameView {
            planes: all.map(|plane| plane.address),
            tensor,
            strides: all.map(|plane| plane.stride as u32),
            together: are_together(&self.letterbox, tensor, self.element, columns).into(),
        })
    }
}

impl Functions {
    /// For such samples, as [`samples_of`] names them, in frames of which `all_alone` tells whether each position falls on a sample,
    /// and `in_steps` whether those are [`steps`] apart.
    fn bilinear(context: &Context, samples: &str, all_alone: bool, in_steps: bool) -> Result<Self> {
        let module = context.module(match samples {
            "nv12" => PREPROCESS_NV12,
            "p010" => PREPROCESS_P010,
            "planes8" => PREPROCESS_PLANES8,
            "planes16" => PREPROCESS_PLANES16,
            "rgb" => PREPROCESS_RGB,
            "luma16" => PREPROCESS_LUMA16,
            _ => PREPROCESS_LUMA8,
        })?;
        let kernel = |kind: &str, columns, rows| -> Result<PixelKernel> {
            let function = module.function(&format!("preprocess_{kind}{samples}"))?;
            Ok(PixelKernel { function, columns, rows, pads: true })
        };
        // Columns and rows as in the kernels.
        let batch = if all_alone { kernel("alone_", 4, 4)? } else { kernel("batch_", 4, 2)? };
        let steps = in_steps.then(|| kernel("steps_", 4, 1)).transpose()?;
        let steps = steps.map(|kernel| PixelKernel { pads: false, ..kernel });
        Ok(Functions { one: kernel("", 2, 1)?, steps, batch })
    }
}

/// Blocks down a tensor of that height with a scaled picture of `scaled` rows, of which a thread makes so many: those of the picture, and
/// those of the padding behind them.
pub(super) fn blocks(scaled: u32, height: u32, rows: u32) -> u32 {
    scaled.div_ceil(THREADS.1 * rows) + (height - scaled).div_ceil(PADDED_ROWS)
}

/// The samples that a kernel reads, by the name of its entry; and those of the one for chroma in pairs that are not
/// aligned to both samples.
pub(super) fn samples_of(format: PixelFormat, samplers: &[Sampler]) -> (&'static str, Option<&'static str>) {
    match (format, samplers) {
        (PixelFormat::P010, [_]) => ("luma16", None),
        (PixelFormat::P010, _) => ("p010", Some("planes16")),
        (PixelFormat::Nv12, [_, _]) => ("nv12", Some("planes8")),
        (_, [_, _, _]) => ("planes8", None),
        (_, [pixels]) if pixels.offsets.len() == 3 => ("rgb", None),
        _ => ("luma8", None),
    }
}

/// The same for kernels that read pairs one by one, by the planes that are read, and the samples of a pixel in the first one.
pub(super) fn samples_one_by_one(format: PixelFormat, planes: usize, channels: usize) -> &'static str {
    match (format, planes) {
        (PixelFormat::P010, 1) => "luma16",
        (PixelFormat::P010, _) => "pairs16",
        (PixelFormat::Nv12, 2) => "pairs8",
        (_, 3) => "planes8",
        _ if channels == 3 => "rgb",
        _ => "luma8",
    }
}

/// Whether every pair of chroma lies where it can be read as one.
pub(super) fn has_pairs(format: PixelFormat, planes: &[DevicePlane]) -> bool {
    let pair = 2 * format.pixel_bytes();
    let is_aligned = |plane: &DevicePlane| (plane.address | plane.stride as u64).is_multiple_of(pair as u64);
    planes.get(1).is_some_and(is_aligned)
}

/// The planes as kernels take them. Reading chroma one by one takes the second samples of pairs for a plane of their
/// own; other kernels do not look there.
pub(super) fn three_planes(format: PixelFormat, planes: &[DevicePlane]) -> [DevicePlane; 3] {
    let [first, second] = [0, 1].map(|i| planes.get(i).copied().unwrap_or_default());
    let behind = DevicePlane { address: second.address + format.pixel_bytes() as u64, ..second };
    [first, second, planes.get(2).copied().unwrap_or(behind)]
}

/// Whether so many columns of a thread can be written at once, into a tensor at that address with elements of that many bytes.
pub(super) fn are_together(letterbox: &Letterbox, tensor: u64, element: usize, columns: u32) -> bool {
    letterbox.tensor_width.is_multiple_of(columns) && tensor.is_multiple_of(u64::from(columns) * element as u64)
}

fn bytes_read(sampler: &Sampler) -> (usize, usize) {
    let mut rows = vec![false; sampler.plane_rows];
    for (&near, &weight) in sampler.rows.near.iter().zip(&sampler.rows.weight) {
        rows[near as usize] = true;
        // Without weight the next one is not read.
        rows[near as usize + usize::from(weight != 0.0)] = true;
    }
    (sampler.row_bytes * rows.iter().filter(|&&read| read).count(), sampler.row_bytes * rows.len())
}

fn bilinear(samplers: &[Sampler]) -> Tables {
    let (first, others) = (&samplers[0], samplers.last().expect("a frame has a plane"));
    Tables {
        bytes: Vec::new(),
        rows: 0,
        first_step: step(first),
        others_step: step(others),
        alone: [(first, FIRST_ALONE), (others, OTHERS_ALONE)][..samplers.len().min(2)]
            .iter()
            .filter(|(sampler, _)| falls_on_samples(&sampler.columns) && falls_on_samples(&sampler.rows))
            .fold(0, |alone, (_, plane)| alone | plane),
        bytes_read: samplers.iter().map(bytes_read).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1)),
    }
}

/// How many pixels of the frame lie from one position to the next, along a row and down, where all positions fall on samples that are
/// equally far from each other, the first in the middle of so many pixels. Two pixels and two rows have a sample of chroma in common.
/// `None` where they do not, or where the padding has so many more rows than the picture that the picture's threads take long for it.
fn steps(samplers: &[Sampler], letterbox: &Letterbox) -> Option<[u32; 2]> {
    let step = |start: u32, length: u32, scaled: u32, axis: fn(&Sampler) -> (&SampleAxis, u32)| {
        let step = length / scaled;
        let fits = |(plane, sampler): (usize, &Sampler)| {
            let (SampleAxis { near, weight }, unit) = axis(sampler);
            near.iter().zip(weight).zip(0..).all(|((&near, &weight), i)| {
                let pixel = start + step / 2 + i * step;
                let sample = near / unit + u32::from(weight == 1.0);
                (weight == 0.0 || weight == 1.0) && sample == if plane == 0 { pixel } else { pixel / 2 }
            })
        };
        samplers.iter().enumerate().all(fits).then_some(step)
    };
    let &Letterbox { source, width, height, tensor_height, .. } = letterbox;
    let across = step(source.left, source.width(), width, |sampler| (&sampler.columns, sampler.pixel as u32))?;
    let down = step(source.top, source.height(), height, |sampler| (&sampler.rows, 1))?;
    (tensor_height <= 8 * height).then_some([across, down])
}

fn antialiased(samplers: &[AntialiasSampler]) -> Tables {
    let (first, others) = (&samplers[0], samplers.last().expect("a frame has a plane"));
    let mut weights: Vec<f32> = Vec::new();
    // Weights lie behind both tables, and are counted from the beginning.
    let words = size_of::<Taps>() / size_of::<f32>();
    let behind = words * (first.columns.first.len() + first.rows.first.len());
    let mut runs = |axis: &TapAxis, unit: usize| -> Vec<[u32; 3]> {
        let begin = (behind + weights.len()) as u32;
        weights.extend_from_slice(&axis.weights);
        let places = axis.first.iter().zip(axis.start.windows(2));
        places.map(|(&first, places)| [first * unit as u32, places[1] - places[0], begin + places[0]]).collect()
    };
    let mut taps = |first: (&TapAxis, usize), others: (&TapAxis, usize)| -> Vec<Taps> {
        let (first, others) = (runs(first.0, first.1), runs(others.0, others.1));
        first.into_iter().zip(others).map(|(first, others)| Taps { first, others, unused: [0; 2] }).collect()
    };
    let columns = taps((&first.columns, first.pixel), (&others.columns, others.pixel));
    let rows = taps((&first.rows, 1), (&others.rows, 1));
    let read = |sampler: &AntialiasSampler| {
        let (begin, end) = sampler.rows.span();
        (end - begin) * sampler.row_bytes
    };
    let bytes_read = samplers.iter().map(read).sum();
    Tables {
        rows: size_of_val(&columns[..]),
        bytes: [cast_slice(&columns[..]), cast_slice(&rows[..]), cast_slice(&weights[..])].concat(),
        first_step: first.pixel as u32,
        others_step: others.pixel as u32,
        alone: 0,
        bytes_read: (bytes_read, bytes_read),
    }
}

/// Bytes from a sample to the next in its row; 0 where there is only one.
pub(super) fn step(sampler: &Sampler) -> u32 {
    if sampler.row_bytes > sampler.pixel { sampler.pixel as u32 } else { 0 }
}

/// Whether there is nothing to interpolate. A weight of 1 is that of a last sample, whose pair begins one before.
fn falls_on_samples(axis: &SampleAxis) -> bool {
    axis.weight.iter().all(|&weight| weight == 0.0 || weight == 1.0)
}

#[cfg(test)]
mod tests;
