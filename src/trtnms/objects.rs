// SPDX-License-Identifier: MPL-2.0
//! What a classifier has found in the objects of a first model.

use gsttrt_core::error::Result;
use gsttrt_core::postprocess::{Postprocessor, RankedClass};
use gsttrt_core::tensor::Tensors;
use gsttrt_core::track::History;

use crate::gst::meta::attributes;
use crate::gst::meta::tensor::ObjectRegions;

/// The classes of objects, those with ids also for frames in which they are not looked at.
#[derive(Debug, Default)]
pub struct ObjectClasses {
    known: History<Vec<RankedClass>>,
    /// Of the inputs of a frame.
    found: Vec<Vec<RankedClass>>,
}

impl ObjectClasses {
    /// Classifies the inputs of a frame.
    ///
    /// # Errors
    /// As [`Postprocessor::classify`].
    pub fn find(&mut self, postprocessor: &mut Postprocessor, inputs: &[&Tensors]) -> Result<()> {
        postprocessor.classify(inputs, &mut self.found)
    }

    /// Attaches the classes of all objects to their metas, and returns how many have some.
    pub fn attach(
        &mut self,
        buffer: &mut gst::BufferRef,
        objects: &ObjectRegions,
        labels: &[String],
        model: &str,
    ) -> usize {
        let ObjectClasses { known, found } = self;
        known.advance();
        let mut count = 0;
        for object in &objects.list {
            let now = object.input.and_then(|input| found.get(input));
            let is_held = now.is_none();
            if let (Some(classes), Some(id)) = (now, object.track_id) {
                known.insert(id, classes.clone());
            }
            let classes = now.or_else(|| known.of(object.track_id?));
            let Some(classes) = classes else {
                object.track_id.into_iter().for_each(|id| objects.unknown.report(id));
                continue;
            };
            attributes::attach(buffer, object, classes, labels, model, is_held);
            count += 1;
        }
        found.clear();
        count
    }
}
