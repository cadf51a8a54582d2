// SPDX-License-Identifier: MPL-2.0
//! Clips: the last frames of a stream together, for models that see several at once.

use std::sync::{Arc, Mutex};

use gsttrt_core::cuda::driver::Context;
use gsttrt_core::error::Result;
use gsttrt_core::image::clip::Clip;
use gsttrt_core::image::clip::maker::ClipMaker;
use gsttrt_core::image::clip::ring::ClipRing;
use gsttrt_core::image::transform::InputSpec;
use gsttrt_core::memory::BatchPool;
use gsttrt_core::tensor::Tensors;

use crate::gst::meta::clip_input::{ClipInput, FullClip};
use crate::gst::missing_frames::MissingFrames;

/// Those of one stream. A frame may be tried again, for lack of memory: it comes once.
pub struct StreamClips {
    /// Of a clip.
    spec: InputSpec,
    frames: usize,
    step: u32,
    ring: ClipRing<ClipFrame>,
    missing: MissingFrames,
    /// Whether the frame that is tried is one of a clip.
    is_wanted: Option<bool>,
    /// Made with the first clip that is full, for frames in that context.
    maker: Option<Arc<Mutex<ClipMaker>>>,
    context: Option<Context>,
}

/// A frame of a clip.
struct ClipFrame {
    tensors: Arc<Tensors>,
    times: BeginEnd,
}

/// When a frame begins and ends, where that is known.
pub type BeginEnd = (Option<gst::ClockTime>, Option<gst::ClockTime>);

impl StreamClips {
    /// `None` for the tensor of a picture.
    pub fn new(spec: &InputSpec, step: u32) -> Option<Self> {
        let frames = usize::try_from(spec.frames()?).ok()?;
        Some(StreamClips {
            spec: spec.clone(),
            frames,
            step,
            ring: ClipRing::new(frames, step),
            missing: MissingFrames::default(),
            is_wanted: None,
            maker: None,
            context: None,
        })
    }

    /// Frames of a clip.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Whether clips of both are made of the same tensors, so that frames of other sizes go on with those before.
    pub fn is_like(&self, other: &StreamClips) -> bool {
        (&self.spec, self.step) == (&other.spec, other.step)
    }

    /// The same for other caps of the frames. Where clips are to lie is asked again: another model may be there.
    pub fn with_other_caps(self) -> Self {
        StreamClips { maker: None, ..self }
    }

    /// Whether the frame is one of a clip; `None` before it has come.
    pub fn is_wanted(&self) -> Option<bool> {
        self.is_wanted
    }

    /// A frame comes. `is_marked`: it is the first one after others were dropped. Says how many frames of a clip were given up
    /// because of it.
    pub fn comes(&mut self, pts: Option<gst::ClockTime>, is_marked: bool) -> Option<usize> {
        let missing = self.missing.before(pts.map(gst::ClockTime::nseconds), is_marked);
        let arrival = self.ring.comes(missing);
        self.is_wanted = Some(arrival.is_wanted);
        arrival.ended
    }

    /// Whether a clip lasts longer than that.
    pub fn outlast(&self, gap: gst::ClockTime) -> bool {
        let usual = self.missing.usual().unwrap_or(0);
        gap.nseconds() < usual.saturating_mul(u64::from(self.step)).saturating_mul(self.frames as u64)
    }

    /// The frame is between two of a clip: nothing is made of it.
    pub fn pass(&mut self) -> ClipInput {
        self.is_wanted = None;
        ClipInput { desc: self.spec.desc.clone(), full: None }
    }

    /// The frame that has come, and those behind it, are in that context. Says how many of a clip were given up because those before
    /// were in another one.
    pub fn follow(&mut self, context: Option<&Context>) -> Option<usize> {
        if self.context.as_ref() == context {
            return None;
        }
        (self.context, self.maker) = (context.cloned(), None);
        self.ring.let_go()
    }

    /// Takes the tensor of a frame that is one of a clip. `slots` is asked where clips are to lie.
    ///
    /// # Errors
    /// As [`ClipMaker::new`].
    pub fn take(
        &mut self,
        tensors: &Arc<Tensors>,
        times: BeginEnd,
        slots: impl FnOnce() -> Option<BatchPool>,
    ) -> Result<ClipInput> {
        if self.maker.is_none() && self.ring.is_next_full() {
            let mut maker = ClipMaker::new(self.context.as_ref(), &self.spec)?;
            slots().into_iter().for_each(|slots| maker.use_slots(slots));
            self.maker = Some(Arc::new(Mutex::new(maker)));
        }
        self.is_wanted = None;
        let is_full = self.ring.push(ClipFrame { tensors: tensors.clone(), times });
        let full = self.maker.as_ref().filter(|_| is_full).map(|maker| {
            let first = self.ring.frames().next().map_or(times, |first| first.times);
            let frames = self.ring.frames().map(|frame| frame.tensors.clone());
            // A stream that plays backwards has the latest frame first. Models see what moves as it has moved.
            let is_backwards = first.0.zip(times.0).is_some_and(|(first, last)| first > last);
            let (clip, early, late) = match is_backwards {
                true => (Clip::new(frames.rev(), maker), times, first),
                false => (Clip::new(frames, maker), first, times),
            };
            FullClip { clip, begin: early.0, end: late.1.or(late.0) }
        });
        Ok(ClipInput { desc: self.spec.desc.clone(), full })
    }

    /// The next frame has nothing to do with those before. Says how many were kept where they never became a clip.
    pub fn begin_again(&mut self) -> Option<usize> {
        self.is_wanted = None;
        self.missing = MissingFrames::default();
        self.ring.clear()
    }
}

/// When a frame begins and ends: by its duration, or else by the frame rate of its caps.
pub fn times(buffer: &gst::BufferRef, info: &gst_video::VideoInfo) -> BeginEnd {
    let rate = info.fps();
    let by_rate = || {
        let (frames, seconds) = (u64::try_from(rate.numer()).ok()?, u64::try_from(rate.denom()).ok()?);
        (seconds * 1_000_000_000).checked_div(frames).map(gst::ClockTime::from_nseconds)
    };
    let begin = buffer.pts();
    let end = begin.and_then(|begin| begin.checked_add(buffer.duration().or_else(by_rate)?));
    (begin, end)
}

#[cfg(test)]
mod tests {
    use gsttrt_core::tensor::Tensor;

    use super::*;
    use crate::fakes::Fakes;

    /// Clips of two frames.
    fn clips() -> StreamClips {
        let spec: InputSpec = "cpu f32 1x1x2x1x1 ncthw gray stretch:0 scale:1 clip".parse().unwrap();
        StreamClips::new(&spec, 1).unwrap()
    }

    /// The clip that ends with the next frame, and whether it was asked where clips are to lie. The frame begins at that time in
    /// milliseconds, lasts for 40, and has the time as its pixel.
    fn next(clips: &mut StreamClips, begin: u16) -> (Option<FullClip>, bool) {
        let time = |ms: u16| Some(gst::ClockTime::from_mseconds(ms.into()));
        let pixel = Tensor::from_slice("clip", &[1, 1, 1, 1], &[f32::from(begin)]);
        let frame = Arc::new(Tensors::new(vec![pixel], None, None));
        let mut is_asked = false;
        clips.comes(time(begin), false);
        let slots = || {
            is_asked = true;
            None
        };
        let clip = clips.take(&frame, (time(begin), time(begin + 40)), slots).unwrap();
        (clip.full, is_asked)
    }

    /// When a clip begins and ends, and what it shows.
    fn seen(full: FullClip) -> (u64, u64, Vec<f32>) {
        let pixels = full.clip.tensors().unwrap()[0].as_slice::<f32>().unwrap().to_vec();
        (full.begin.unwrap().mseconds(), full.end.unwrap().mseconds(), pixels)
    }

    #[test]
    fn clips_run_forwards_also_where_the_stream_plays_backwards() {
        let wanted = [(0, 80, vec![0.0, 40.0]), (40, 120, vec![40.0, 80.0])];
        let mut forwards = clips();
        assert!(next(&mut forwards, 0).0.is_none());
        assert_eq!([40, 80].map(|begin| seen(next(&mut forwards, begin).0.unwrap())), wanted);
        let mut backwards = clips();
        assert!(next(&mut backwards, 80).0.is_none());
        let mut found = [40, 0].map(|begin| seen(next(&mut backwards, begin).0.unwrap()));
        found.reverse();
        assert_eq!(found, wanted);
    }

    #[test]
    fn where_clips_are_to_lie_is_asked_once_for_the_same_caps() {
        let mut first = clips();
        assert_eq!([0, 40, 80].map(|begin| next(&mut first, begin).1), [false, true, false]);
        let mut second = first.with_other_caps();
        let (clip, is_asked) = next(&mut second, 120);
        assert_eq!((clip.map(seen), is_asked), (Some((80, 160, vec![80.0, 120.0])), true), "the clip goes on");
        assert!(!next(&mut second, 160).1);
    }

    #[test]
    fn the_step_counts_from_the_first_frame_in_a_context() {
        let Some(fakes) = Fakes::of(module_path!(), "the_step_counts_from_the_first_frame_in_a_context") else {
            return;
        };
        let context = fakes.context();
        let mut clips = StreamClips { step: 2, ring: ClipRing::new(2, 2), ..clips() };
        let mut kept = vec![];
        for frame in 0..5u16 {
            clips.comes(Some(gst::ClockTime::from_mseconds(u64::from(frame) * 40)), false);
            if clips.is_wanted() == Some(true) {
                assert_eq!(clips.follow(Some(&context)), None);
                kept.push(frame);
            }
            clips.pass();
        }
        assert_eq!(kept, [0, 2, 4]);
    }
}
