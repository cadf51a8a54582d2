// SPDX-License-Identifier: MPL-2.0
//! The text of a whole frame, which messages alone have.

use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::postprocess::Postprocessor;

/// A warning for a model that reads whole frames, where nothing has its texts; `None` for other models.
pub fn unposted(postprocessor: &Postprocessor, posts_messages: bool) -> Option<Error> {
    if posts_messages || !postprocessor.reads_text() {
        return None;
    }
    let file = postprocessor.model().path.display();
    let what = format!("{file} reads the text of whole frames, and nothing has it: it is in messages on the bus alone");
    let remedy = "Set post-messages=true on trtnms, which gst-launch-1.0 -m prints; or let it read objects, by regions=objects on \
                  trtpreprocess; gst-trt detect writes texts of objects, with --on-objects";
    Some(Error::new(ErrorKind::Settings, what).remedy(remedy))
}
