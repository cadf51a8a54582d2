// SPDX-License-Identifier: MPL-2.0
//! Clips: the last frames of a stream together, or the last pictures of each object, for models that see several at once.

mod objects;

use std::sync::{Arc, Mutex};

use gsttrt_core::cuda::driver::Context;
use gsttrt_core::error::Result;
use gsttrt_core::image::clip::Clip;
use gsttrt_core::image::clip::maker::ClipMaker;
use gsttrt_core::image::clip::ring::ClipRing;
use gsttrt_core::image::clip::tracks::{GivenUpClips, TrackRings};
use gsttrt_core::image::transform::InputSpec;
use gsttrt_core::memory::BatchPool;
use gsttrt_core::tensor::Tensors;
use smallvec::SmallVec;

use crate::gst::meta::clip_input::{ClipInput, FullClip};
use crate::gst::missing_frames::MissingFrames;

/// Those of one stream. A frame may be tried again, for lack of memory: it comes once.
pub struct StreamClips {
    /// Of a clip.
    spec: InputSpec,
    frames: usize,
    step: u32,
    /// Of so many objects, if there is memory for them.
    objects: usize,
    rings: ClipRings,
    missing: MissingFrames,
    /// Whether the frame that is tried is one of a clip. Of objects each has a turn of its own.
    is_wanted: Option<bool>,
    /// Made with the first clip that is full, for frames in that context.
    maker: Option<Arc<Mutex<ClipMaker>>>,
    context: Option<Context>,
}

/// What is kept for the next clips.
enum ClipRings {
    Frames(ClipRing<ClipFrame>),
    Objects(TrackRings<ClipFrame>),
}

/// A frame of a clip, or the picture of an object in it.
struct ClipFrame {
    tensors: Arc<Tensors>,
    times: BeginEnd,
}

/// The pictures of all objects of a stream take no more bytes than this: the model says how many a clip has and how large they are, and
/// such a number must not be enough to fill the memory.
const MAX_BYTES: u64 = 6 << 30;

/// Of so many objects clips like that are kept, where so many are wanted. `memory` is that of the GPU that has them, of which half is left
/// to models and others: frames for which there is no memory wait, and none would come back from objects that stay.
pub fn most_objects(spec: &InputSpec, wanted: usize, memory: Option<usize>) -> usize {
    let bytes = spec.desc.bytes().and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(u64::MAX);
    let half = memory.and_then(|memory| u64::try_from(memory / 2).ok()).unwrap_or(u64::MAX);
    let most = usize::try_from(MAX_BYTES.min(half) / bytes.max(1)).unwrap_or(usize::MAX);
    wanted.min(most.max(1))
}

/// When a frame begins and ends, where that is known.
pub type BeginEnd = (Option<gst::ClockTime>, Option<gst::ClockTime>);

impl StreamClips {
    /// `None` for the tensor of a picture. `objects`: they are of objects, of so many at most.
    pub fn new(spec: &InputSpec, step: u32, objects: Option<usize>) -> Option<Self> {
        let frames = usize::try_from(spec.frames()?).ok()?;
        let rings = match objects {
            Some(limit) => {
                let rings = TrackRings::new(frames, step, limit);
                ClipRings::Objects(if spec.is_of_vectors() { rings.of_vectors() } else { rings })
            }
            None => ClipRings::Frames(ClipRing::new(frames, step)),
        };
        Some(StreamClips {
            spec: spec.clone(),
            frames,
            step,
            objects: objects.unwrap_or_default(),
            rings,
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
        (&self.spec, self.step, self.are_of_objects()) == (&other.spec, other.step, other.are_of_objects())
    }

    /// Whether each object has clips of its own.
    pub fn are_of_objects(&self) -> bool {
        matches!(self.rings, ClipRings::Objects(_))
    }

    /// Whether they are sequences of vectors.
    pub fn are_of_vectors(&self) -> bool {
        self.spec.is_of_vectors()
    }

    /// The same for other caps of the frames. Where clips are to lie is asked again: another model may be there.
    pub fn with_other_caps(self) -> Self {
        StreamClips { maker: None, ..self }
    }

    /// Whether the frame is one of a clip; `None` before it has come.
    pub fn is_wanted(&self) -> Option<bool> {
        self.is_wanted
    }

    /// A frame comes. `is_marked`: it is the first one after others were dropped. Says which clips were given up because of it.
    pub fn comes(&mut self, pts: Option<gst::ClockTime>, is_marked: bool) -> GivenUpClips {
        let missing = self.missing.before(pts.map(gst::ClockTime::nseconds), is_marked);
        match &mut self.rings {
            ClipRings::Frames(ring) => {
                let arrival = ring.comes(missing);
                self.is_wanted = Some(arrival.is_wanted);
                arrival.ended.into()
            }
            ClipRings::Objects(rings) => {
                self.is_wanted = Some(true);
                rings.advance(missing)
            }
        }
    }

    /// Whether a clip lasts longer than that.
    pub fn outlast(&self, gap: gst::ClockTime) -> bool {
        let usual = self.missing.usual().unwrap_or(0);
        gap.nseconds() < usual.saturating_mul(u64::from(self.step)).saturating_mul(self.frames as u64)
    }

    /// The frame is between two of a clip, or has no object: nothing is made of it.
    pub fn pass(&mut self) -> ClipInput {
        self.ended(SmallVec::new())
    }

    /// The frame is done, and these clips end with it.
    fn ended(&mut self, full: SmallVec<[FullClip; 1]>) -> ClipInput {
        self.is_wanted = None;
        ClipInput { desc: self.spec.desc.clone(), full }
    }

    /// The frame that has come, and those behind it, are in that context. Says which clips were given up because the frames before
    /// were in another one.
    pub fn follow(&mut self, context: Option<&Context>) -> GivenUpClips {
        if self.context.as_ref() == context {
            return GivenUpClips::default();
        }
        (self.context, self.maker) = (context.cloned(), None);
        match &mut self.rings {
            ClipRings::Frames(ring) => ring.let_go().into(),
            ClipRings::Objects(rings) => {
                let memory = context.and_then(|context| context.memory().ok()).map(|(_, all)| all);
                rings.limit_to(most_objects(&self.spec, self.objects, memory));
                rings.clear_pictures()
            }
        }
    }

    /// What puts clips together. `slots` is asked where they are to lie, the first time.
    fn maker(&mut self, slots: impl FnOnce() -> Option<BatchPool>) -> Result<Arc<Mutex<ClipMaker>>> {
        if let Some(maker) = &self.maker {
            return Ok(maker.clone());
        }
        let mut maker = ClipMaker::new(self.context.as_ref(), &self.spec)?;
        slots().into_iter().for_each(|slots| maker.use_slots(slots));
        Ok(self.maker.insert(Arc::new(Mutex::new(maker))).clone())
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
        let is_next_full = matches!(&self.rings, ClipRings::Frames(ring) if ring.is_next_full());
        let maker = is_next_full.then(|| self.maker(slots)).transpose()?;
        let ClipRings::Frames(ring) = &mut self.rings else { return Ok(self.pass()) };
        let is_full = ring.push(ClipFrame { tensors: tensors.clone(), times });
        let kept: Vec<&ClipFrame> = ring.frames().collect();
        let full = maker.filter(|_| is_full).and_then(|maker| full_clip(&kept, &maker, 0));
        Ok(self.ended(full.into_iter().collect()))
    }

    /// The next frame has nothing to do with those before. Says which clips were given up.
    pub fn begin_again(&mut self) -> GivenUpClips {
        self.is_wanted = None;
        self.missing = MissingFrames::default();
        match &mut self.rings {
            ClipRings::Frames(ring) => ring.clear().into(),
            ClipRings::Objects(rings) => rings.clear(),
        }
    }
}

/// The clip of these frames, which came in this order. `input` is the index of the input that is the last one.
fn full_clip(kept: &[&ClipFrame], maker: &Arc<Mutex<ClipMaker>>, input: usize) -> Option<FullClip> {
    let (first, last) = (kept.first()?.times, kept.last()?.times);
    let frames = kept.iter().map(|frame| frame.tensors.clone());
    // A stream that plays backwards has the latest frame first. Models see what moves as it has moved.
    let is_backwards = first.0.zip(last.0).is_some_and(|(first, last)| first > last);
    let (clip, early, late) = match is_backwards {
        true => (Clip::new(frames.rev(), maker), last, first),
        false => (Clip::new(frames, maker), first, last),
    };
    Some(FullClip { clip, input, begin: early.0, end: late.1.or(late.0) })
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
        StreamClips::new(&spec, 1, None).unwrap()
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
        (clip.full.into_iter().next(), is_asked)
    }

    /// When a clip begins and ends, and what it shows.
    fn seen(full: FullClip) -> (u64, u64, Vec<f32>) {
        let pixels = full.clip.tensors().unwrap()[0].as_slice::<f32>().unwrap().to_vec();
        (full.begin.unwrap().mseconds(), full.end.unwrap().mseconds(), pixels)
    }

    #[test]
    fn there_is_an_end_to_the_memory_of_objects() {
        let most = |clip: &str, wanted: usize| {
            let spec: InputSpec = format!("cpu f32 {clip} rgb stretch:0 scale:1 clip").parse().unwrap();
            most_objects(&spec, wanted, None)
        };
        let usual = "1x3x16x224x224 ncthw";
        assert_eq!([most(usual, 300), most(usual, 2), most(usual, 65536)], [300, 2, 668]);
        // 384 MiB for each.
        assert_eq!([most("1x3x32x1024x1024 ncthw", 300), most("1x256x131072 ntd", 300)], [16, 48]);
        assert_eq!(most("1x256x9223372036854775807 ntd", 300), 1, "what no memory has");
    }

    /// The GPU has 1 GiB, and a clip takes 128 MiB.
    #[test]
    fn clips_of_objects_take_no_more_than_half_of_a_gpu() {
        let Some(fakes) = Fakes::of(module_path!(), "clips_of_objects_take_no_more_than_half_of_a_gpu") else {
            return;
        };
        let spec: InputSpec = "cuda f32 1x1x32x1024x1024 ncthw gray stretch:0 scale:1 clip".parse().unwrap();
        let limit = |wanted: usize, context: Option<&Context>| {
            let mut clips = StreamClips::new(&spec, 1, Some(wanted)).unwrap();
            clips.follow(context);
            let ClipRings::Objects(rings) = &clips.rings else { panic!("they are of objects") };
            rings.limit()
        };
        let context = fakes.context();
        assert_eq!([limit(300, Some(&context)), limit(3, Some(&context)), limit(30, None)], [4, 3, 30]);
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
        let mut clips = StreamClips { step: 2, rings: ClipRings::Frames(ClipRing::new(2, 2)), ..clips() };
        let mut kept = vec![];
        for frame in 0..5u16 {
            clips.comes(Some(gst::ClockTime::from_mseconds(u64::from(frame) * 40)), false);
            if clips.is_wanted() == Some(true) {
                assert_eq!(clips.follow(Some(&context)), GivenUpClips::default());
                kept.push(frame);
            }
            clips.pass();
        }
        assert_eq!(kept, [0, 2, 4]);
    }
}
