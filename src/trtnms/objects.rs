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

/// Has trtpreprocess look again at objects whose inputs no model has seen, for trtinfer has passed over their frame. The model has seen
/// so many inputs.
pub fn report_passed(objects: &ObjectRegions, seen: usize) {
    let is_passed = |object: &&ObjectRegion| object.input.is_some_and(|input| input >= seen);
    let ids = objects.list.iter().filter(is_passed).filter_map(|object| object.track_id);
    ids.for_each(|id| objects.unknown.report(id));
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
                object.track_id.filter(|_| object.is_expected).into_iter().for_each(|id| objects.unknown.report(id));
                continue;
            };
            attach(object, result, is_held);
            count += 1;
        }
        found.clear();
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object with that id.
    fn object(id: u64, input: Option<usize>, is_expected: bool) -> ObjectRegion {
        ObjectRegion { region: None, analytics: None, track_id: Some(id), input, is_expected }
    }

    fn objects(list: Vec<ObjectRegion>) -> ObjectRegions {
        ObjectRegions { list, ..ObjectRegions::default() }
    }

    #[test]
    fn objects_are_looked_at_again_where_their_inputs_were_passed_over() {
        let without_id = ObjectRegion { track_id: None, ..object(0, Some(1), true) };
        let objects =
            objects(vec![object(1, Some(1), true), object(2, Some(0), true), object(3, None, true), without_id]);
        for (seen, wanted) in [(0, vec![1, 2]), (1, vec![1]), (2, vec![])] {
            report_passed(&objects, seen);
            assert_eq!(objects.unknown.take(), wanted, "{seen}");
        }
    }

    #[test]
    fn what_no_model_was_to_look_at_is_not_lost() {
        let mut results = KnownResults { found: vec!["one"], ..KnownResults::default() };
        let list = vec![object(1, Some(0), true), object(2, None, true), object(3, None, false)];
        let (objects, mut given) = (objects(list), Vec::new());
        let count = results.give(&objects, |object, found, is_held| given.push((object.track_id, *found, is_held)));
        assert_eq!((count, given), (1, vec![(Some(1), "one", false)]));
        assert_eq!(objects.unknown.take(), [2], "the other one has no whole clip yet");
    }
}
