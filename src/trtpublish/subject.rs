// SPDX-License-Identifier: MPL-2.0
//! Whether there is what messages are about. Without it nothing is ever sent, and nothing else would tell why.

use gst::prelude::*;
use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_publish::record::FrameRecord;

use super::ending::whole_pipeline;
use super::{MessageSubject, TrtPublish};
use crate::gst::awaited::{Awaited, FRAMES_WITHOUT};

/// What messages are about.
#[derive(Debug, Default)]
pub struct AwaitedSubject(Awaited);

impl AwaitedSubject {
    /// Takes in a frame.
    pub fn see(&mut self, per: MessageSubject, frame: &FrameRecord) {
        let has_id = || frame.objects.iter().any(|object| object.annotation.track_id.is_some());
        let (may_have, has) = match per {
            MessageSubject::Frame => return,
            MessageSubject::Event => (true, !frame.events.is_empty()),
            MessageSubject::Object => (!frame.objects.is_empty(), has_id()),
        };
        self.0.see(has, may_have);
    }

    /// Whether it has not come for long; true once.
    pub fn take_overdue(&mut self) -> bool {
        self.0.take_overdue()
    }
}

/// A warning that names what is missing. Events may just be rare, where an element gives them.
pub fn missing(per: MessageSubject, element: &TrtPublish) -> Option<Error> {
    let (what, needed) = match per {
        MessageSubject::Frame => return None,
        MessageSubject::Event if has_analytics(element) => return None,
        MessageSubject::Event => {
            ("have no event, and there is no trtanalytics in this pipeline", "trttrack ! trtanalytics")
        }
        MessageSubject::Object => ("with objects have no ids", "trttrack, or another tracker,"),
    };
    let what = format!("Nothing is published: the first {FRAMES_WITHOUT} frames {what}");
    Some(Error::new(ErrorKind::Settings, what).remedy(format!("Put {needed} before trtpublish, or set per=frame")))
}

fn has_analytics(element: &TrtPublish) -> bool {
    whole_pipeline(element).is_some_and(|pipeline| {
        let mut all = pipeline.iterate_all_by_element_factory_name("trtanalytics");
        all.next().is_ok_and(|found| found.is_some())
    })
}
