// SPDX-License-Identifier: MPL-2.0
//! The query by which trtpreprocess learns where the tensors of a batch are to lie side by side.

use gst::glib;
use gst::prelude::*;
use gsttrt_core::memory::BatchPool;

const NAME: &str = "trt-slots";

#[derive(Clone, glib::Boxed)]
#[boxed_type(name = "GstTrtSlots")]
struct Answer(BatchPool);

/// Asks downstream.
pub fn ask(pad: &gst::Pad) -> Option<BatchPool> {
    let mut query = gst::query::Custom::new(gst::Structure::new_empty(NAME));
    let answered = pad.peer_query(&mut query);
    let answer = query.structure()?.get::<Answer>(NAME).ok();
    answer.filter(|_| answered).map(|Answer(slots)| slots)
}

/// Whether that query is answered; `None` for other queries. It goes no further: behind a model without slots there may be
/// another one, with slots for tensors of its own.
pub fn answer(query: &mut gst::QueryRef, slots: Option<&BatchPool>) -> Option<bool> {
    let gst::QueryViewMut::Custom(query) = query.view_mut() else { return None };
    let structure = query.structure_mut();
    if structure.name() != NAME {
        return None;
    }
    if let Some(slots) = slots {
        structure.set(NAME, Answer(slots.clone()));
    }
    Some(slots.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_queries_are_not_answered() {
        gst::init().unwrap();
        let mut query = gst::query::Custom::new(gst::Structure::new_empty(NAME));
        assert_eq!(answer(&mut query, None), Some(false));
        let mut query = gst::query::Custom::new(gst::Structure::new_empty("another"));
        assert_eq!(answer(&mut query, None), None);
        assert_eq!(answer(&mut gst::query::Latency::new(), None), None);
    }
}
