// SPDX-License-Identifier: MPL-2.0
//! How trtpreprocess learns where the tensors of a batch are to lie side by side: from the ALLOCATION query, in which
//! trtinfer supports the tensor's meta, with the memory to make tensors in as its parameter.

use gst::glib;
use gst::prelude::*;
use gsttrt_core::memory::BatchPool;

use crate::gst::meta::tensor::TensorMeta;

/// Name of the parameter, and of its field.
const NAME: &str = "batch-pool";

#[derive(Clone, glib::Boxed)]
#[boxed_type(name = "GstTrtBatchPool")]
struct Proposed(BatchPool);

/// Asks downstream, once caps are known there.
pub fn ask(pad: &gst::Pad) -> Option<BatchPool> {
    let mut query = gst::query::Allocation::new(Some(&pad.current_caps()?), false);
    pad.peer_query(&mut query).then(|| proposed(&query)).flatten()
}

fn proposed(query: &gst::query::Allocation) -> Option<BatchPool> {
    let index = query.find_allocation_meta::<TensorMeta>()?;
    let (_, params) = query.allocation_metas().nth(index as usize)?;
    params?.get::<Proposed>(NAME).ok().map(|Proposed(pool)| pool)
}

/// Proposes this memory.
pub fn propose(query: &mut gst::query::Allocation, pool: &BatchPool) {
    let params = gst::Structure::builder(NAME).field(NAME, Proposed(pool.clone())).build();
    query.add_allocation_meta::<TensorMeta>(Some(&params));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::Fakes;

    #[test]
    fn what_is_proposed_is_found() {
        let Some(fakes) = Fakes::of(module_path!(), "what_is_proposed_is_found") else { return };
        gst::init().unwrap();
        let mut query = gst::query::Allocation::new(None, false);
        query.add_allocation_meta::<gst_video::VideoMeta>(None);
        assert!(proposed(&query).is_none());
        let pool = BatchPool::new(&fakes.context(), 512, 3);
        propose(&mut query, &pool);
        query.add_allocation_meta::<gst_video::VideoCropMeta>(None);
        assert!(proposed(&query).is_some_and(|found| found.is_like(&pool)));
    }
}
