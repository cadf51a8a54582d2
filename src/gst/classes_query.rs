// SPDX-License-Identifier: MPL-2.0
//! The query by which trtinfer learns what trtnms is set to for classes, before it goes on with other words: a name that is missing
//! would end a pipeline that runs.

use gst::prelude::*;
use gsttrt_core::postprocess::PostprocessOptions;

const NAME: &str = "trt-class-options";

/// The options for classes of the first trtnms downstream; the others are not asked for.
pub fn ask(pad: &gst::Pad) -> Option<PostprocessOptions> {
    let mut query = gst::query::Custom::new(gst::Structure::new_empty(NAME));
    if !pad.peer_query(&mut query) {
        return None;
    }
    let structure = query.structure()?;
    let text = |field: &str| structure.get::<Option<String>>(field).ok().flatten();
    let mut options = PostprocessOptions::default();
    options.label_file = text("label-file").map(Into::into);
    options.classes = text("classes").unwrap_or_default();
    options.class_thresholds = text("class-thresholds").unwrap_or_default();
    Some(options)
}

/// Answers, if that is what a query asks for.
pub fn answer(query: &mut gst::QueryRef, options: impl FnOnce() -> PostprocessOptions) -> bool {
    let gst::QueryViewMut::Custom(query) = query.view_mut() else { return false };
    let is_asked = query.structure().is_some_and(|structure| structure.name() == NAME);
    if is_asked {
        let PostprocessOptions { label_file, classes, class_thresholds, .. } = options();
        let label_file = label_file.and_then(|path| path.into_os_string().into_string().ok());
        let structure = query.structure_mut();
        structure.set("label-file", label_file);
        structure.set("classes", classes);
        structure.set("class-thresholds", class_thresholds);
    }
    is_asked
}
