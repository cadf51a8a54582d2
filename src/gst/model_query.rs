// SPDX-License-Identifier: MPL-2.0
//! The query by which trtpreprocess waits until the model downstream is read. It is asked in the streaming thread, before caps
//! are agreed on: a caps query itself never waits, since an application may ask one at any time.

use gst::prelude::*;

const NAME: &str = "trt-model";

/// Returns once the model downstream is read, cannot be, or the stream is flushed or stopped.
pub fn wait(pad: &gst::Pad) {
    let _ = pad.peer_query(&mut gst::query::Custom::new(gst::Structure::new_empty(NAME)));
}

/// Whether that is what a query asks for.
pub fn is_asked(query: &gst::QueryRef) -> bool {
    query.structure().is_some_and(|structure| structure.name() == NAME)
}
