// SPDX-License-Identifier: MPL-2.0
//! Clips of the objects of a stream: of each with an id its last pictures.

use gsttrt_core::error::Result;
use gsttrt_core::image::clip::tracks::GivenUpClips;
use gsttrt_core::memory::BatchPool;
use smallvec::SmallVec;

use super::super::objects::{ObjectOptions, ObjectSelection, ObjectSelector};
use super::{BeginEnd, ClipFrame, ClipRings, StreamClips, full_clip};
use crate::gst::meta::clip_input::{ClipInput, FullClip};
use crate::gst::meta::read::MetaObjects;
use crate::gst::meta::tensor::ModelInput;

impl StreamClips {
    /// The objects of a frame that has come, and those of them whose pictures are kept. Says which clips were given up because there
    /// are too many objects.
    pub fn select(
        &mut self,
        selector: &mut ObjectSelector,
        found: &MetaObjects,
        size: (u32, u32),
        options: &ObjectOptions,
    ) -> (ObjectSelection, GivenUpClips) {
        match &mut self.rings {
            ClipRings::Objects(rings) => selector.select_for_clips(found, size, options, rings),
            ClipRings::Frames(_) => (selector.select(found, size, options), GivenUpClips::default()),
        }
    }

    /// Whether the vector that an object has in this frame is one of its sequence.
    pub fn is_step(&self, id: u64) -> bool {
        matches!(&self.rings, ClipRings::Objects(rings) if rings.is_step(id))
    }

    /// These objects have vectors that are none of their sequences.
    pub fn pass_vectors(&mut self, ids: &[u64]) {
        if let ClipRings::Objects(rings) = &mut self.rings {
            ids.iter().for_each(|&id| rings.pass(id));
        }
    }

    /// Takes the tensors of a selection's pictures, which are these inputs, and gives the clips that the model is to see: of each object
    /// whose clip is whole, in each frame or as seldom as the options say. `slots` is asked where clips are to lie.
    ///
    /// # Errors
    /// As [`ClipMaker::new`](gsttrt_core::image::clip::maker::ClipMaker::new).
    pub fn take_objects(
        &mut self,
        inputs: &[ModelInput],
        (selection, selector): (&mut ObjectSelection, &mut ObjectSelector),
        times: BeginEnd,
        interval: u32,
        slots: impl FnOnce() -> Option<BatchPool>,
    ) -> Result<ClipInput> {
        let is_next_full = match &self.rings {
            ClipRings::Objects(rings) => selection.pictures.iter().any(|picture| rings.is_next_full(picture.id)),
            ClipRings::Frames(_) => false,
        };
        // Before anything is kept: a frame for which there is no memory is tried again.
        let maker = is_next_full.then(|| self.maker(slots)).transpose()?;
        let ClipRings::Objects(rings) = &mut self.rings else { return Ok(self.pass()) };
        let mut full: SmallVec<[FullClip; 1]> = SmallVec::new();
        for (number, (picture, input)) in selection.pictures.iter().zip(inputs).enumerate() {
            let is_full = rings.push(picture.id, ClipFrame { tensors: input.tensors.clone(), times });
            let Some(maker) = maker.as_ref().filter(|_| is_full && selector.looks_at_clip(picture.id, interval)) else {
                continue;
            };
            let kept: Vec<&ClipFrame> = rings.pictures(picture.id).collect();
            if let Some(clip) = full_clip(&kept, maker, number) {
                let object = &mut selection.objects.list[picture.object];
                (object.input, object.is_expected) = (Some(full.len()), true);
                full.push(clip);
            }
        }
        selection.note_unseen();
        Ok(self.ended(full))
    }
}
