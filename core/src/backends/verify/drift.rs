// SPDX-License-Identifier: MPL-2.0
//! What a changed copy of a model costs: its results on pictures of the user's, compared with those of the original.
//!
//! An object counts that either of them finds by the usual threshold; it is lost, or new, where the other one does not have it even
//! at a lower score. Scores near the threshold therefore do not count as a change.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::results::{FEWEST, again};
use super::{Difference, Tolerance};
use crate::backends::{LoadContext, LoadRequest, ModelInstance};
use crate::error::{Error, ErrorKind, Result};
use crate::image::geometry::Letterbox;
use crate::image::map::{MapKind, PixelMap};
use crate::postprocess::{Instances, PostprocessOptions, Postprocessor};
use crate::tensor::{Tensor, Tensors};

/// What was compared on all pictures.
#[derive(Clone, Debug, Default)]
pub struct Drift {
    pub pictures: usize,
    /// By the name of the output: `Difference::relative`, the worst of all pictures.
    pub outputs: BTreeMap<String, f32>,
    /// By class: objects, pictures of a classifier, or pixels. Empty where the head is not known, and of depths.
    pub classes: BTreeMap<u32, ClassDrift>,
    /// Pixels whose depth is another one, and all.
    pub depths: Option<(usize, usize)>,
}

/// What became of the results of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassDrift {
    /// In the original, ...
    pub wanted: usize,
    /// ... of which the copy does not have these.
    pub lost: usize,
    /// In the copy, ...
    pub found: usize,
    /// ... of which the original does not have these.
    pub new: usize,
}

impl ClassDrift {
    fn plus(self, other: Self) -> Self {
        ClassDrift {
            wanted: self.wanted + other.wanted,
            lost: self.lost + other.lost,
            found: self.found + other.found,
            new: self.new + other.new,
        }
    }

    /// The part of all results that only one of both has; 0 where there are none.
    pub fn loss(&self) -> f32 {
        (self.lost + self.new) as f32 / (self.wanted + self.found).max(1) as f32
    }
}

impl Drift {
    pub fn all(&self) -> ClassDrift {
        self.classes.values().fold(ClassDrift::default(), |sum, class| sum.plus(*class))
    }

    /// The part of the results that is another, or of those of the lost class; of outputs that cannot be read, their largest
    /// difference.
    pub fn loss(&self) -> f32 {
        if let Some((other, all)) = self.depths {
            return other as f32 / all.max(1) as f32;
        }
        match self.all() {
            ClassDrift { wanted: 0, found: 0, .. } => self.outputs.values().copied().fold(0.0, f32::max).min(1.0),
            all => all.loss().max(self.lost_class().map_or(0.0, |(_, loss)| loss)),
        }
    }

    /// The class that loses most, and its loss, where that is more than half: next to many results of other classes it would not
    /// show. A class with less than a hundredth of the results, or with few, may lose them by chance.
    pub fn lost_class(&self) -> Option<(u32, f32)> {
        let all = self.all();
        let counts = |class: &ClassDrift| {
            let size = class.wanted.max(class.found);
            size >= FEWEST && 100 * size >= all.wanted.max(all.found)
        };
        let losses = self.classes.iter().filter(|(_, class)| counts(class)).map(|(&id, class)| (id, class.loss()));
        losses.filter(|(_, loss)| *loss > 0.5).max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// Whether results were compared, and not numbers alone.
    pub fn has_results(&self) -> bool {
        self.depths.is_some() || !self.classes.is_empty()
    }
}

/// Compares a copy with its original, picture by picture.
///
/// # Errors
/// As of loading and running them.
pub fn drift(
    copy: &LoadRequest,
    original: &LoadRequest,
    pictures: impl Iterator<Item = Result<(Tensor, Letterbox)>>,
    loading: &LoadContext,
) -> Result<Drift> {
    let (mut copy_model, mut original_model) = (copy.load(loading)?, original.load(loading)?);
    let mut found = Drift::default();
    let mut readers: Option<[Postprocessor; 2]> = None;
    for picture in pictures {
        let (picture, letterbox) = picture?;
        if loading.is_cancelled() {
            return Err(Error::new(ErrorKind::Run, "The comparison was cancelled"));
        }
        let mut outputs = [&mut copy_model, &mut original_model].into_iter().map(|model| run(model.as_mut(), &picture));
        let (Some(outputs), Some(wanted)) = (outputs.next().transpose()?, outputs.next().transpose()?) else {
            continue;
        };
        found.pictures += 1;
        for (output, wanted) in outputs.iter().zip(wanted.iter()) {
            let difference = Difference::between(output, wanted);
            let relative = if difference.not_finite > 0 { f32::INFINITY } else { difference.relative };
            let worst = found.outputs.entry(wanted.desc().name.clone()).or_default();
            *worst = worst.max(relative);
        }
        if readers.is_none() {
            readers = readers_of(original, &wanted, &letterbox);
        }
        let Some([one, other]) = &mut readers else { continue };
        if one.find(&outputs, &letterbox).is_ok() && other.find(&wanted, &letterbox).is_ok() {
            found.add(one.instances(), other.instances());
        }
    }
    Ok(found)
}

/// Scores by which objects count, and those by which they are there at all.
const USUAL: f32 = 0.25;
const LOW: f32 = 0.15;

fn readers_of(original: &LoadRequest, outputs: &[Tensor], letterbox: &Letterbox) -> Option<[Postprocessor; 2]> {
    let options = || PostprocessOptions { score_threshold: LOW, top_k: 1, ..PostprocessOptions::default() };
    let reader = || Postprocessor::new(options(), original.model(), outputs, letterbox).ok();
    let readers = [reader()?, reader()?];
    readers[0].decoder.doubt().is_none().then_some(readers)
}

fn run(model: &mut dyn ModelInstance, picture: &Tensor) -> Result<Tensors> {
    let picture = Arc::new(Tensors::new(vec![picture.row(0)], None, None));
    let outputs = model.run(&[picture])?.pop().expect("one picture has one set of outputs");
    Ok(Tensors::new(outputs.into_ready()?, None, None))
}

impl Drift {
    fn add(&mut self, found: &Instances, wanted: &Instances) {
        if let (Some(classes), Some(others)) = (&found.classes, &wanted.classes) {
            let class = classes.first().map(|class| class.class);
            let other = others.first().map(|class| class.class);
            self.count(other, class == other, |drift| (&mut drift.wanted, &mut drift.lost));
            self.count(class, class == other, |drift| (&mut drift.found, &mut drift.new));
        } else if let (Some(map), Some(other)) = (&found.map, &wanted.map) {
            self.add_maps(map, other);
        } else {
            let has = |one: &Instances, other: &Instances| again(other, one, &Tolerance::EIGHT, one.len());
            for (index, is_there) in has(wanted, found).into_iter().enumerate() {
                let class = Some(wanted.boxes[index].class).filter(|_| wanted.boxes[index].score >= USUAL);
                self.count(class, is_there, |drift| (&mut drift.wanted, &mut drift.lost));
            }
            for (index, is_there) in has(found, wanted).into_iter().enumerate() {
                let class = Some(found.boxes[index].class).filter(|_| found.boxes[index].score >= USUAL);
                self.count(class, is_there, |drift| (&mut drift.found, &mut drift.new));
            }
        }
    }

    fn count(&mut self, class: Option<u32>, is_there: bool, of: impl Fn(&mut ClassDrift) -> (&mut usize, &mut usize)) {
        let Some(class) = class else { return };
        let (all, missing) = of(self.classes.entry(class).or_default());
        *all += 1;
        *missing += usize::from(!is_there);
    }

    fn add_maps(&mut self, map: &PixelMap, other: &PixelMap) {
        if let (MapKind::Depth { .. }, MapKind::Depth { .. }) = (map.kind(), other.kind()) {
            let same = super::results::compare_maps(map, other, &Tolerance::EIGHT);
            let (before, all) = self.depths.unwrap_or_default();
            self.depths = Some((before + same.sought - same.found, all + same.sought));
            return;
        }
        for (&value, &wanted) in map.values().iter().zip(other.values()) {
            self.count(Some(wanted.into()), value == wanted, |drift| (&mut drift.wanted, &mut drift.lost));
            self.count(Some(value.into()), value == wanted, |drift| (&mut drift.found, &mut drift.new));
        }
    }
}
