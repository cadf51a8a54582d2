// SPDX-License-Identifier: MPL-2.0
//! Sequences: the vectors that a first model has attached to frames or to their objects, as the input of a second model. What is a
//! picture of a clip elsewhere is a vector here.

use std::sync::Arc;

use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::error::Result;
use gsttrt_core::image::clip::vector_tensor;
use gsttrt_core::image::geometry::{Letterbox, Rect, ResizeMode};
use gsttrt_core::memory::DevicePool;
use gsttrt_core::tensor::{Tensor, TensorDesc, Tensors};
use smallvec::SmallVec;

use super::super::clips;
use super::super::overrides::Tiling;
use super::{PreprocessState, TrtPreprocess};
use crate::gst::meta::clip_input::ClipInput;
use crate::gst::meta::geometry::TensorSource;
use crate::gst::meta::read;
use crate::gst::meta::tensor::{ModelInput, ModelInputs, Payload, Tiles};
use crate::gst::meta::vector::{self, AttachedVector};

/// The inputs that are made of a frame, and the sequences that end with it.
type FrameSequences = (SmallVec<[ModelInput; 1]>, ClipInput, Tiles);

impl TrtPreprocess {
    /// What a model of sequences gets of a frame.
    ///
    /// # Errors
    /// As [`vector_tensor`]; `Run`, where the GPU fails or has no memory.
    pub(super) fn sequences(
        &self,
        state: &mut PreprocessState,
        buffer: &mut gst::BufferRef,
        source: TensorSource,
    ) -> Result<Option<Payload>> {
        let context = match state.is_on_gpu() {
            true => Some(self.context_for(&state.format.locate(buffer)?)?),
            false => None,
        };
        let is_there = |pool: &DevicePool| context.as_ref() == Some(pool.context());
        if !state.uploads.as_ref().is_some_and(is_there) {
            state.uploads = context.as_ref().map(DevicePool::new);
        }
        let made = match state.tiling {
            Tiling::Objects(_) => self.of_objects(state, buffer, context.as_ref())?,
            _ => self.of_frame(state, buffer, context.as_ref())?,
        };
        let Some((list, clip, tiles)) = made else { return Ok(None) };
        let original = self.originals.lock().unwrap().of(buffer);
        let none = ModelInputs::none(tiles, source, state.spec.transform, original);
        Ok(Some(Payload::Input(Arc::new(ModelInputs { list, clip: Some(clip), ..none }))))
    }

    /// Of the vectors of frames. A frame without a new one is no step: the model that makes them has not seen it.
    fn of_frame(
        &self,
        state: &mut PreprocessState,
        buffer: &gst::BufferRef,
        context: Option<&Context>,
    ) -> Result<Option<FrameSequences>> {
        let PreprocessState { format, spec, clips, uploads, .. } = state;
        let Some(clips) = clips else { return Ok(None) };
        let vectors = vector::of_frame(buffer);
        let vector = self.new_vector(&vectors, &spec.desc);
        let mut list: SmallVec<[ModelInput; 1]> = SmallVec::new();
        let Some(vector) = vector.filter(|_| self.is_of_clip(clips, buffer)) else {
            return Ok(Some((list, clips.pass(), Tiles::Frame)));
        };
        let tensors = step(&vector.values, &spec.desc, uploads.as_ref())?;
        self.note_unfinished(clips.follow(context));
        let clip = clips.take(&tensors, clips::times(buffer, &format.info), || self.slots())?;
        self.clips.lock().unwrap().full += clip.full.len() as u64;
        list.push(ModelInput { tensors, letterbox: letterbox(format.size()) });
        Ok(Some((list, clip, Tiles::Frame)))
    }

    /// Of the vectors of each object.
    fn of_objects(
        &self,
        state: &mut PreprocessState,
        buffer: &gst::BufferRef,
        context: Option<&Context>,
    ) -> Result<Option<FrameSequences>> {
        let PreprocessState { format, spec, clips, selector, tiling, uploads, .. } = state;
        let (Some(clips), Tiling::Objects(options)) = (clips, &*tiling) else { return Ok(None) };
        let size = format.size();
        // The frame comes, once.
        self.is_of_clip(clips, buffer);
        let (mut selection, given_up) = clips.select(selector, &read::objects(buffer, size), size, options);
        self.note_unfinished(given_up);
        self.note_objects(&selection, options);
        let regions: Vec<Vec<AttachedVector>> = match selection.pictures.is_empty() {
            true => Vec::new(),
            false => buffer.iter_meta::<VideoRegionOfInterestMeta>().map(|region| vector::of_region(&region)).collect(),
        };
        let mut list: SmallVec<[ModelInput; 1]> = SmallVec::new();
        let mut passed = Vec::new();
        let pictures = std::mem::take(&mut selection.pictures);
        for (picture, crop) in pictures.into_iter().zip(std::mem::take(&mut selection.sources)) {
            let region = selection.objects.list[picture.object].region;
            let vectors = region.and_then(|region| regions.get(region)).map_or(&[][..], |vectors| &vectors[..]);
            let Some(vector) = self.new_vector(vectors, &spec.desc) else { continue };
            if !clips.is_step(picture.id) {
                passed.push(picture.id);
                continue;
            }
            let tensors = step(&vector.values, &spec.desc, uploads.as_ref())?;
            list.push(ModelInput { tensors, letterbox: letterbox(crop.source) });
            selection.pictures.push(picture);
        }
        self.note_unfinished(clips.follow(context));
        let times = clips::times(buffer, &format.info);
        let chosen = (&mut selection, selector);
        let clip = clips.take_objects(&list, chosen, times, options.interval, || self.slots())?;
        clips.pass_vectors(&passed); // last: a frame for which there is no memory is tried again
        self.clips.lock().unwrap().full += clip.full.len() as u64;
        Ok(Some((list, clip, Tiles::Objects(selection.objects))))
    }

    /// The last of these vectors that has as many numbers as the model takes, and is not that of an earlier frame.
    fn new_vector<'a>(&self, vectors: &'a [AttachedVector], desc: &TensorDesc) -> Option<&'a AttachedVector> {
        let length = desc.dims.last().and_then(|&length| usize::try_from(length).ok()).unwrap_or(0);
        let found = vectors.iter().rfind(|vector| vector.values.len() == length);
        let lengths = vectors.last().map(|vector| vector.values.len());
        let is_time = self.clips.lock().unwrap().note_vectors(length, found.is_some(), lengths);
        if is_time {
            self.warn_of_lacks();
        }
        found.filter(|vector| !vector.is_held)
    }
}

/// The tensor of a vector, in the memory that the model reads.
fn step(vector: &[f32], desc: &TensorDesc, uploads: Option<&DevicePool>) -> Result<Arc<Tensors>> {
    let mut tensor = vector_tensor(vector, desc)?;
    if let (Some(pool), Some(bytes)) = (uploads, tensor.bytes()) {
        let mut block = pool.take(bytes.len())?;
        block.write(bytes)?;
        tensor = Tensor::on_device(desc.clone(), block);
    }
    Ok(Arc::new(Tensors::new(vec![tensor], None, None)))
}

/// Where a vector is of: it has no pixels of its own.
fn letterbox(source: impl Into<Rect>) -> Letterbox {
    Letterbox::new(source, (1, 1), ResizeMode::Stretch)
}
