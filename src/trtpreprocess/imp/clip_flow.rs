// SPDX-License-Identifier: MPL-2.0
//! When clips begin, go on and end.

use super::super::clips::StreamClips;
use super::super::counts::EndedClips;
use super::{PreprocessState, TrtPreprocess};

impl TrtPreprocess {
    /// Frames have other caps from now on. A clip goes on where its tensors are the same: frames of any size are scaled to them.
    pub(super) fn replace_state(&self, mut state: PreprocessState) {
        let before = self.state.lock().unwrap().take().and_then(|before| before.clips);
        let goes_on = |before: &StreamClips| state.clips.as_ref().is_some_and(|clips| clips.is_like(before));
        match before {
            Some(before) if goes_on(&before) => state.clips = Some(before.with_other_caps()),
            before => {
                let given_up = before.map(|mut before| before.begin_again());
                self.note_unfinished(given_up.unwrap_or_default());
            }
        }
        *self.state.lock().unwrap() = Some(state);
    }

    /// Whether a frame is one of a clip. It comes once, and may be tried again.
    pub(super) fn is_of_clip(&self, clips: &mut StreamClips, buffer: &gst::BufferRef) -> bool {
        clips.is_wanted().unwrap_or_else(|| {
            if self.stream.lock().unwrap().advance(buffer.pts()).is_cut {
                self.note_unfinished(clips.begin_again());
            }
            let is_marked = buffer.flags().contains(gst::BufferFlags::DISCONT);
            self.note_unfinished(clips.comes(buffer.pts(), is_marked));
            clips.is_wanted() == Some(true)
        })
    }

    /// Another part of the stream follows, or nothing: the frames of clips that are not full yet are given up. `None` for models of
    /// pictures.
    pub(super) fn end_clips(&self) -> Option<EndedClips> {
        let (given_up, ended) = {
            let mut state = self.state.lock().unwrap();
            let clips = state.as_mut()?.clips.as_mut()?;
            let given_up = clips.begin_again();
            let (frames, are_of_objects) = (clips.frames(), clips.are_of_objects());
            let are_of_vectors = clips.are_of_vectors();
            (given_up, EndedClips { kept: given_up.longest, frames, are_of_objects, are_of_vectors })
        };
        self.note_unfinished(given_up);
        Some(ended)
    }

    /// Whether a gap of that length may be in a clip: a packet that a camera has lost is one. The frames that are missing in it count
    /// with the next one that comes, like those that were dropped.
    pub(super) fn is_in_clip(&self, gap: Option<gst::ClockTime>) -> bool {
        let state = self.state.lock().unwrap();
        let clips = state.as_ref().and_then(|state| state.clips.as_ref());
        clips.zip(gap).is_some_and(|(clips, gap)| clips.outlast(gap))
    }
}
