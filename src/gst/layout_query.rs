// SPDX-License-Identifier: MPL-2.0
//! The query by which trtpreprocess learns which layout trtnms was given, since models of another layout want another input:
//! trtinfer knows the model file alone.

use gst::prelude::*;
use gsttrt_core::heads::{HeadFormat, layout_file};

const NAME: &str = "trt-layout";
const FIELD: &str = "layout";

/// The layout of the first trtnms downstream, if the user has chosen one.
pub fn ask(pad: &gst::Pad) -> Option<&'static HeadFormat> {
    let mut query = gst::query::Custom::new(gst::Structure::new_empty(NAME));
    let is_answered = pad.peer_query(&mut query);
    let name = query.structure()?.get::<Option<String>>(FIELD).ok().flatten();
    layout_file::of_key(&name.filter(|_| is_answered)?)
}

/// Answers, if that is what a query asks for; without a layout it is not passed on to another trtnms either.
pub fn answer(query: &mut gst::QueryRef, layout: impl FnOnce() -> Option<&'static HeadFormat>) -> bool {
    let gst::QueryViewMut::Custom(query) = query.view_mut() else { return false };
    let is_asked = query.structure().is_some_and(|structure| structure.name() == NAME);
    if is_asked {
        query.structure_mut().set(FIELD, layout().map(layout_file::key_of));
    }
    is_asked
}
