// SPDX-License-Identifier: MPL-2.0
//! Detectors whose model sees several frames at once: those of one stream, in the order of the calls.

use std::sync::Arc;

use super::{Detections, Detector, Source};
use crate::error::Result;
use crate::image::clip::maker::ClipMaker;
use crate::image::clip::ring::ClipRing;
use crate::image::preprocess::Preprocessor;
use crate::image::transform::InputSpec;
use crate::postprocess::Instances;
use crate::tensor::Tensors;

/// The clips of a stream.
pub(super) struct DetectorClips {
    /// Of a clip.
    spec: InputSpec,
    maker: ClipMaker,
    /// With the numbers of the frames.
    ring: ClipRing<(u64, Arc<Tensors>)>,
    /// Frames that have come.
    count: u64,
    /// Frames since the last one with results; there was none, at first.
    passed: Option<u32>,
    /// The numbers of the first and the last frame of the last clip that the model has seen.
    seen: Option<(u64, u64)>,
}

impl Detector {
    /// Whether the model sees several frames at once.
    pub(in crate::session) fn sees_clips(&self) -> bool {
        self.session.request.spec.frames().is_some()
    }

    /// The frames of another stream follow, or those of another part of it: with a model that sees clips the next frame is the first
    /// of one.
    #[doc(hidden)]
    pub fn begin_clip(&mut self) {
        self.clips = None;
    }

    /// The numbers of the first and the last frame of the clip that the last results are of, counted from 0 since
    /// [`Detector::begin_clip`]; `None` where the last frame has no results of a clip.
    #[doc(hidden)]
    pub fn clip_frames(&self) -> Option<(u64, u64)> {
        self.clips.as_ref().filter(|_| self.between.is_none())?.seen
    }

    /// What is in the clip that ends with a frame; nothing where none does, or where the interval lets it pass. The frame is read when
    /// this returns.
    pub(super) fn find_in_clip(
        &mut self,
        source: Source,
        make: impl FnOnce(&mut Preprocessor) -> Result<Tensors>,
    ) -> Result<Detections<'_>> {
        self.between = Some(Instances::default());
        let interval = self.session.wishes.interval.max(1);
        let clips = self.clips_of(source.size)?;
        let number = clips.count;
        clips.count += 1;
        let passed = clips.passed.map_or(interval, |passed| passed.saturating_add(1));
        clips.passed = Some(passed);
        if clips.ring.comes(0).is_wanted {
            let picture = self.picture(source, make)?;
            picture.tensors.wait()?; // the ring keeps the tensor, but not what it is made of
            let clips = self.clips_of(source.size)?;
            if clips.ring.push((number, picture.tensors)) && passed >= interval {
                let frames: Vec<Arc<Tensors>> = clips.ring.frames().map(|(_, tensors)| tensors.clone()).collect();
                let first = clips.ring.frames().next().map_or(number, |(first, _)| *first);
                let clip = Arc::new(clips.maker.make(&frames)?);
                (clips.passed, clips.seen) = (Some(0), Some((first, number)));
                let outputs = self.infer(std::slice::from_ref(&clip))?.remove(0);
                self.between = None;
                return self.find(&outputs, &picture.letterbox);
            }
        }
        Ok(self.last().expect("there is nothing between two clips"))
    }

    /// The clips of frames of that size. Those of another size go on with them, unless the model has another tensor for them.
    fn clips_of(&mut self, size: (usize, usize)) -> Result<&mut DetectorClips> {
        let spec = self.spec_for(size);
        let clips = match self.clips.take().filter(|clips| clips.spec == spec) {
            Some(clips) => clips,
            None => {
                let maker = ClipMaker::new(self.session.request.cuda.as_ref(), &spec)?;
                let frames = spec.frames().and_then(|frames| usize::try_from(frames).ok()).unwrap_or(1);
                let ring = ClipRing::new(frames, self.session.wishes.frame_step);
                DetectorClips { spec, maker, ring, count: 0, passed: None, seen: None }
            }
        };
        Ok(self.clips.insert(clips))
    }
}
