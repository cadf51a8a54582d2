// SPDX-License-Identifier: MPL-2.0
//! What trtpreprocess says: of what is missing before it, of what has no effect, and of frames that it cannot use.

use std::sync::atomic::Ordering;

use gst::prelude::*;
use gst::subclass::prelude::*;
use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::image::clip::tracks::GivenUpClips;
use gsttrt_core::image::preprocess::device::Upload;

use super::super::counts::EndedClips;
use super::super::effect;
use super::super::objects::{ObjectOptions, ObjectSelection};
use super::super::settings::{PreprocessSettings, Regions};
use super::{PreprocessState, TrtPreprocess, cuda_for_the_cpu};
use crate::gst::caps;
use crate::gst::classes_event;
use crate::gst::report::Report;

impl TrtPreprocess {
    /// Counts the objects of a frame.
    pub(super) fn note_objects(&self, selection: &ObjectSelection, options: &ObjectOptions) {
        let is_time = self.counts.lock().unwrap().note(selection, options);
        let lacks_ids = self.clips.lock().unwrap().note_objects(selection);
        if is_time || lacks_ids {
            self.warn_of_lacks();
        }
    }

    /// Warns once where no frame so far had an object, and no trtnms before this would attach any, where no object had landmarks, and
    /// where clips are of objects and none had an id, or of vectors and there was none.
    pub(super) fn warn_of_lacks(&self) {
        let (objects, landmarks) = {
            let mut counts = self.counts.lock().unwrap();
            (counts.lack_of_objects(), counts.lack_of_landmarks())
        };
        let objects = objects.filter(|_| !self.has_trtnms_before());
        let (ids, vectors) = {
            let mut clips = self.clips.lock().unwrap();
            (clips.lack_of_ids(), clips.lack_of_vectors())
        };
        let all = objects.iter().chain(&landmarks).chain(&ids).chain(&vectors);
        all.for_each(|warning| self.obj().post_warning(warning));
    }

    /// Warns of classes to look at that no model before this finds, where an event tells what these find.
    pub(super) fn warn_of_classes(&self, event: &gst::EventRef) {
        let Some(known) = classes_event::read(event) else { return };
        let PreprocessSettings { regions, object_classes, .. } = self.settings.lock().unwrap().clone();
        let wanted = if regions == Regions::Objects { object_classes.as_str() } else { "" };
        let consequence = "Nothing of that class is looked at";
        let unknown = self.checked_classes.lock().unwrap().warnings(known, "object-classes", wanted, consequence);
        unknown.iter().for_each(|warning| self.obj().post_warning(warning));
    }

    fn has_trtnms_before(&self) -> bool {
        let mut pad = self.obj().static_pad("sink");
        while let Some(element) = pad.and_then(|pad| pad.peer()?.parent_element()) {
            if element.type_().name() == "GstTrtNms" {
                return true;
            }
            pad = element.static_pad("sink");
        }
        false
    }

    /// Counts clips that were given up.
    pub(super) fn note_unfinished(&self, given_up: GivenUpClips) {
        self.clips.lock().unwrap().note_given_up(given_up);
    }

    /// Warns at the end of a stream that gave no whole clip.
    pub(super) fn warn_of_short_stream(&self, ended: Option<EndedClips>) {
        let warning = ended.and_then(|ended| self.clips.lock().unwrap().lack_of_frames(ended));
        warning.iter().for_each(|warning| self.obj().post_warning(warning));
    }

    /// Warns once where `upload` is set and frames are not uploaded.
    pub(super) fn warn_of_upload(&self, state: &PreprocessState, caps: &gst::CapsRef) {
        let (cause, remedy) = match (state.is_on_gpu(), caps::is_cuda(caps)) {
            (false, _) => {
                ("the model runs on the CPU", "Set backend=tensorrt on trtinfer to see why TensorRT does not run")
            }
            (true, true) => ("frames come in CUDA memory", "Leave upload unset"),
            (true, false) => return,
        };
        let is_set = self.settings.lock().unwrap().upload != Upload::default();
        if is_set && !self.has_warned_of_upload.swap(true, Ordering::Relaxed) {
            let what = Error::new(ErrorKind::Settings, "upload has no effect").cause(cause);
            self.obj().post_warning(&what.remedy(remedy));
        }
    }

    /// Warns once of properties without effect.
    pub(super) fn warn_of_effect(&self, state: &PreprocessState) {
        let settings = self.settings.lock().unwrap().clone();
        let of_properties = effect::without_effect(&settings, &state.tiling, state.spec.transform.fit);
        if let Some(warning) = of_properties.or_else(|| effect::without_widths(&state.tiling, &state.spec))
            && !self.has_warned_of_effect.swap(true, Ordering::Relaxed)
        {
            self.obj().post_warning(&warning);
        }
    }

    /// Whether this error about the caps was not posted yet.
    pub(super) fn is_new_caps_error(&self, error: &Error) -> bool {
        let mut last_caps_error = self.last_caps_error.lock().unwrap();
        let said = last_caps_error.replace(error.message());
        said != *last_caps_error
    }

    /// CUDA memory alone is offered, and the model runs on the CPU.
    fn refusal_of_cuda(&self, offered: &gst::CapsRef) -> Option<Error> {
        let wanted = self.obj().static_pad("src")?.peer_query_caps(None);
        let for_cpu = !wanted.is_any() && !wanted.is_empty() && caps::without_cuda(&wanted) == wanted;
        (for_cpu && caps::is_cuda(offered) && caps::without_cuda(&offered.to_owned()).is_empty()).then(cuda_for_the_cpu)
    }

    /// Posts what to do about frames that cannot be used: upstream only reports "not negotiated".
    pub(super) fn explain_refusal(&self, offered: &gst::CapsRef) {
        if self.overrides().is_some()
            && let Some(error) = caps::refusal(offered).or_else(|| self.refusal_of_cuda(offered))
            && self.is_new_caps_error(&error)
        {
            let error = error.with_debug(format!("offered: {offered}"));
            // A stream whose format is known has nothing else to offer. What is only one of several offers may yet be
            // passed over.
            if offered.is_fixed() {
                self.obj().post_error(&error);
            } else {
                self.obj().post_warning(&error);
            }
        }
    }
}
