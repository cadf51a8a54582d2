//! The query by which trtpreprocess learns where the tensors of a batch are to lie side by side.

use gst::glib;
use gst::prelude::*;

use crate::memory::Slots;

const NAME: &str = "trt-slots";

#[derive(Clone, glib::Boxed)]
#[boxed_type(name = "GstTrtSlots")]
struct Answer(Slots);

/// Asks downstream.
pub fn ask(pad: &gst::Pad) -> Option<Slots> {
    let mut query = gst::query::Custom::new(gst::Structure::new_empty(NAME));
    let answered = pad.peer_query(&mut query);
    let answer = query.structure()?.get::<Answer>(NAME).ok();
    answer.filter(|_| answered).map(|Answer(slots)| slots)
}

/// Answers that query; false for others.
pub fn answer(query: &mut gst::QueryRef, slots: &Slots) -> bool {
    let gst::QueryViewMut::Custom(query) = query.view_mut() else { return false };
    let structure = query.structure_mut();
    let asked = structure.name() == NAME;
    if asked {
        structure.set(NAME, Answer(slots.clone()));
    }
    asked
}
