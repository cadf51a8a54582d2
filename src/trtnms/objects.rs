// SPDX-License-Identifier: MPL-2.0
//! What a second model has found in the objects of a first one: their classes, their orientation, their vectors or their texts.

use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::postprocess::{ClipSpan, FoundText, Postprocessor, RankedClass};
use gsttrt_core::tensor::Tensors;
use gsttrt_core::track::History;

use crate::gst::meta::tensor::{ObjectRegion, ObjectRegions};
use crate::gst::meta::{attributes, orientation, vector};

/// Results of objects, those with ids also for frames in which they are not looked at. A model gives one kind of them.
#[derive(Debug, Default)]
pub struct ObjectResults {
    classes: KnownResults<ObjectClasses>,
    /// Of the inputs of a frame, until they have their time.
    ranked: Vec<Vec<RankedClass>>,
    vectors: KnownResults<Vec<f32>>,
    texts: KnownResults<FoundText>,
}

/// The classes of an object, and the time of the clip that the model saw, if it sees clips.
#[derive(Clone, Debug)]
struct ObjectClasses {
    ranked: Vec<RankedClass>,
    span: Option<ClipSpan>,
}

#[derive(Debug)]
struct KnownResults<T> {
    known: History<T>,
    /// Of the inputs of a frame.
    found: Vec<T>,
}

impl<T> Default for KnownResults<T> {
    fn default() -> Self {
        KnownResults { known: History::default(), found: Vec::new() }
    }
}

impl ObjectResults {
    /// Looks at the inputs of a frame. `spans` are the times of clips, where they are such.
    ///
    /// # Errors
    /// As [`Postprocessor::classify`].
    pub fn find(
        &mut self,
        postprocessor: &mut Postprocessor,
        inputs: &[&Tensors],
        spans: &[Option<ClipSpan>],
    ) -> Result<()> {
        if postprocessor.is_embedding() {
            postprocessor.embed(inputs, &mut self.vectors.found)
        } else if postprocessor.reads_text() {
            postprocessor.read_texts(inputs, &mut self.texts.found)
        } else {
            postprocessor.classify(inputs, &mut self.ranked)?;
            let spans = spans.iter().copied().chain(std::iter::repeat(None));
            self.classes.found.clear();
            self.classes
                .found
                .extend(self.ranked.drain(..).zip(spans).map(|(ranked, span)| ObjectClasses { ranked, span }));
            Ok(())
        }
    }

    /// Attaches what `postprocessor` has found of all objects to their metas, and returns how many have something.
    pub fn attach(
        &mut self,
        buffer: &mut gst::BufferRef,
        objects: &ObjectRegions,
        postprocessor: &Postprocessor,
    ) -> usize {
        let model = postprocessor.model().path.file_stem().unwrap_or_default().to_string_lossy();
        if postprocessor.is_embedding() {
            self.vectors.give(objects, |object, found, is_held| {
                vector::attach(buffer, object, found, &model, is_held);
            })
        } else if postprocessor.reads_text() {
            self.texts.give(objects, |object, found, is_held| {
                attributes::attach_text(buffer, object, found, &model, is_held);
            })
        } else if postprocessor.finds_orientation() {
            self.classes.give(objects, |object, found, is_held| {
                let best = found.ranked.first().and_then(|best| Some((postprocessor.degrees_of(best.class)?, best)));
                if let Some((degrees, best)) = best {
                    orientation::attach(buffer, object, degrees, best, &model, is_held);
                }
            })
        } else {
            self.classes.give(objects, |object, found, is_held| {
                let ObjectClasses { ranked, span } = found;
                attributes::attach(buffer, object, (ranked, *span), &postprocessor.labels, &model, is_held);
            })
        }
    }
}

/// Of a model that finds places in pictures that are turned.
pub fn places_are_lost(layout: &str) -> Error {
    Error::new(ErrorKind::Settings, "What is found in objects that are turned upright has no place in the frame")
        .cause(format!("the model gives boxes by its layout {layout}, and trtpreprocess turns objects by align"))
        .remedy("Leave align unset on trtpreprocess, or use a model that gives classes, vectors or texts")
}

impl<T: Clone> KnownResults<T> {
    /// Calls a function with each object of which something is known, that, and whether it is of an earlier frame. Returns how many
    /// these are.
    fn give(&mut self, objects: &ObjectRegions, mut attach: impl FnMut(&ObjectRegion, &T, bool)) -> usize {
        let KnownResults { known, found } = self;
        known.advance();
        let mut count = 0;
        for object in &objects.list {
            let now = object.input.and_then(|input| found.get(input));
            let is_held = now.is_none();
            if let (Some(now), Some(id)) = (now, object.track_id) {
                known.insert(id, now.clone());
            }
            let Some(result) = now.or_else(|| known.of(object.track_id?)) else {
                object.track_id.into_iter().for_each(|id| objects.unknown.report(id));
                continue;
            };
            attach(object, result, is_held);
            count += 1;
        }
        found.clear();
        count
    }
}
