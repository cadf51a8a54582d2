// SPDX-License-Identifier: MPL-2.0
//! Masks of the kept boxes, found on the GPU: `kernels/masks.cu`, after suppression and in the same CUDA graph.
//!
//! The reference implementation is [`Masks::find`]. Both give the same pixels.

use bytemuck::cast_slice;

use crate::counters;
use crate::cuda::driver::{Context, Function, Launch};
use crate::cuda::graph::KernelNode;
use crate::cuda::kernels::MASKS;
use crate::error::{Error, ErrorKind, Result};
use crate::heads::{Decoder, MaskParts, MaskSource};
use crate::image::detections::{DeviceMasks, MaskEntry};
use crate::image::geometry::Rect;
use crate::image::masks::maps::MapOver;
use crate::image::masks::{Masks, PrototypeShape, words};
use crate::memory::{DeviceBlock, DevicePool, Mapped};
use crate::tensor::DType;

/// Blocks and threads, as in the kernels. Objects and their tiles share the blocks of `fill`.
const PLACE_THREADS: u32 = 512;
const FILL_THREADS: u32 = 128;
const FILL_TILES: u32 = 16;
const FILL_OBJECTS: usize = 300;
const GIVE_THREADS: u32 = 256;
const GIVE_BLOCKS: u32 = 64;
/// The header before the entries: how many words all masks have.
const HEADER: usize = 32;

/// `Parts` in the kernel.
fn code(parts: &MaskParts) -> u32 {
    match parts {
        MaskParts::Prototypes(_) => 0,
        MaskParts::Maps(MapOver::Input) => 1,
        MaskParts::Maps(MapOver::Box) => 2,
    }
}

/// Of `masks.cu`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) struct MaskParams {
    found: u64,
    prototypes: u64,
    coefficients: u64,
    entries: u64,
    bits: u64,
    words: u64,
    host_entries: u64,
    host_bits: u64,
    is_half: u32,
    count: u32,
    width: u32,
    height: u32,
    input: [u32; 2],
    limit: u32,
    parts: u32,
}

const _: () = assert!(size_of::<MaskParams>() == 96);

/// Owns the memory for it; nothing is allocated from frame to frame.
pub(super) struct DeviceMaskFinder {
    functions: [Function; 3],
    /// The index of the prototypes or maps among the outputs of the head.
    pub output: usize,
    /// See [`Letterbox::finer`](crate::image::geometry::Letterbox::finer).
    detail: u32,
    params: MaskParams,
    /// How many words all masks have, then their entries ([`MaskEntry`]).
    entries: DeviceBlock,
    bits: DeviceBlock,
    host_entries: Mapped,
    /// Allocated when the host wants masks.
    host_bits: Option<Mapped>,
}

impl DeviceMaskFinder {
    /// `found` is where suppression writes the kept boxes, at most `limit`. `None` for heads without masks.
    pub fn new(
        context: &Context,
        pool: &DevicePool,
        decoder: &Decoder,
        found: u64,
        limit: usize,
    ) -> Result<Option<Self>> {
        let Some(MaskSource { shape, output, parts }) = decoder.masks() else { return Ok(None) };
        let PrototypeShape { count, width, height } = shape;
        let (input_width, input_height) = decoder.head().input;
        let detail = if let MaskParts::Maps(over) = parts { over.detail(decoder.head().input) } else { 0 };
        let is_half = decoder.dtypes().nth(output) == Some(DType::F16);
        let params = MaskParams {
            found,
            is_half: is_half.into(),
            count: count as u32,
            width: width as u32,
            height: height as u32,
            input: [input_width << detail, input_height << detail],
            parts: code(&parts),
            ..MaskParams::default()
        };
        let module = context.module(MASKS)?;
        Ok(Some(DeviceMaskFinder {
            functions: [
                module.function("place_masks")?,
                module.function("fill_masks")?,
                module.function("give_masks")?,
            ],
            output,
            detail,
            params,
            entries: pool.take(entries_bytes(limit))?,
            bits: pool.take(bits_bytes(&params, limit)?)?,
            host_entries: Mapped::new(context, entries_bytes(limit))?,
            host_bits: None,
        }))
    }

    /// For the next launch: where prototypes or maps are, and coefficients or 0, how many boxes may be kept, and
    /// whether the host wants masks. Earlier launches are done.
    pub fn prepare(
        &mut self,
        context: &Context,
        pool: &DevicePool,
        [prototypes, coefficients]: [u64; 2],
        limit: usize,
        is_wanted: bool,
    ) -> Result<()> {
        let (entries, bits) = (entries_bytes(limit), bits_bytes(&self.params, limit)?);
        if self.entries.bytes() < entries || self.bits.bytes() < bits {
            // All of it or nothing: what is large enough now is not looked at for the next frame.
            let made = (pool.take(entries)?, pool.take(bits)?, Mapped::new(context, entries)?);
            (self.entries, self.bits, self.host_entries) = made;
        }
        if is_wanted && self.host_bits.as_ref().is_none_or(|host| host.bytes() < bits) {
            self.host_bits = None; // frees its memory before more is allocated
            self.host_bits = Some(Mapped::new(context, bits)?);
        }
        self.params = MaskParams {
            prototypes,
            coefficients,
            entries: self.entries.address() + HEADER as u64,
            bits: self.bits.address(),
            words: self.entries.address(),
            host_entries: self.host_entries.address(),
            host_bits: self.host_bits.as_ref().filter(|_| is_wanted).map_or(0, Mapped::address),
            limit: limit as u32,
            ..self.params
        };
        Ok(())
    }

    pub fn params(&self) -> &MaskParams {
        &self.params
    }

    /// In the order in which they run.
    pub fn calls(&self) -> [KernelNode<'_>; 3] {
        let objects = (self.params.limit as usize).clamp(1, FILL_OBJECTS) as u32;
        let shapes =
            [((1, 1, 1), PLACE_THREADS), ((FILL_TILES, objects, 1), FILL_THREADS), ((GIVE_BLOCKS, 1, 1), GIVE_THREADS)];
        std::array::from_fn(|i| {
            let (grid, threads) = shapes[i];
            let shape = Launch { grid, block: (threads, 1, 1), shared: 0 };
            KernelNode::new(&self.functions[i], shape, &self.params)
        })
    }

    /// Where the masks are in GPU memory.
    pub fn found(&self) -> DeviceMasks {
        DeviceMasks { entries: self.params.entries, bits: self.params.bits, detail: self.detail }
    }

    /// Those of so many boxes, once the work is done; their pixels, if the host wanted them.
    pub fn take(&self, kept: usize, to: &mut Masks) {
        let (entries, words) = self.kept(kept);
        let bits: &[u32] = match &self.host_bits {
            Some(host) if self.params.host_bits != 0 => cast_slice(&host.host()[..words * size_of::<u32>()]),
            _ => &[],
        };
        counters::downloaded(size_of_val(entries) + size_of_val(bits));
        to.adopt(entries.iter().map(|entry| (entry.rect, entry.first as usize, entry.is_seen != 0)), bits, self.detail);
    }

    /// Copies the pixels of so many masks, which the host did not want before, and waits for the copy.
    pub fn read(&self, kept: usize, to: &mut Masks) -> Result<()> {
        let (_, words) = self.kept(kept);
        let mut bits = vec![0u32; words];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut bits);
        self.bits.read_into(bytes)?;
        to.set_bits(bits);
        Ok(())
    }

    /// The entries, and how many words the masks have.
    fn kept(&self, kept: usize) -> (&[MaskEntry], usize) {
        let entries: &[MaskEntry] = cast_slice(&self.host_entries.host()[..kept * size_of::<MaskEntry>()]);
        let end = entries.last().map_or(0, |entry| entry.first as usize + words_of(&entry.rect));
        (entries, end)
    }
}

/// Of a mask.
fn words_of(rect: &Rect) -> usize {
    if rect.is_empty() { 0 } else { words(rect.width()) * rect.height() as usize }
}

fn entries_bytes(limit: usize) -> usize {
    HEADER + limit * size_of::<MaskEntry>()
}

/// Room for so many masks of the whole input.
fn bits_bytes(params: &MaskParams, limit: usize) -> Result<usize> {
    let [width, height] = params.input;
    let all = limit.checked_mul(words(width) * height as usize * size_of::<u32>());
    all.map(|bytes| bytes.max(size_of::<u32>())).ok_or_else(|| {
        Error::new(ErrorKind::Settings, format!("{limit} masks of {width}x{height} pixels are more than memory holds"))
            .remedy("Set max-detections to fewer")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::Fakes;
    use crate::heads::{ModelHints, segment};
    use crate::tensor::TensorDesc;

    /// The kernels write as many entries as there may be boxes.
    #[test]
    fn room_that_was_not_made_is_made_for_the_next_frame() {
        let Some(fakes) = Fakes::of(module_path!(), "room_that_was_not_made_is_made_for_the_next_frame") else {
            return;
        };
        let (context, many) = (fakes.context(), 2000);
        let pool = DevicePool::new(&context);
        let outputs = [("output0", &[1, 38, 84][..]), ("output1", &[1, 32, 16, 16])];
        let outputs = outputs.map(|(name, dims)| TensorDesc::new(name, DType::F32, dims));
        let hints = ModelHints { input: Some((64, 64)), classes: Some(2), ..ModelHints::default() };
        let decoder = Decoder::new(Some(&segment::HEAD), &outputs, &hints).unwrap();
        let mut failures = 0;
        for after in 0.. {
            let mut finder = DeviceMaskFinder::new(&context, &pool, &decoder, 0, 1).unwrap().unwrap();
            let mut prepare = || finder.prepare(&context, &pool, [0; 2], many, true);
            fakes.fail(after);
            let prepared = prepare();
            fakes.fail(-1);
            prepare().unwrap();
            let sizes = [finder.entries.bytes(), finder.host_entries.bytes()];
            assert!(sizes.iter().all(|&bytes| bytes >= entries_bytes(many)), "{after}: {sizes:?}");
            failures += usize::from(prepared.is_err());
            if prepared.is_ok() {
                break;
            }
        }
        assert!(failures >= 3, "{failures}");
    }
}
