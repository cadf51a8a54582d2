// SPDX-License-Identifier: MPL-2.0
//! Names of objects, by a gallery that may change.

use std::path::Path;
use std::sync::{Arc, Weak};

use gsttrt_core::cuda::driver::Context;
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::gallery::{
    DeviceMatcher, Gallery, GalleryInUse, Likeness, MatchOptions, Votes, WatchedGallery, recognised,
};
use gsttrt_core::postprocess::RankedClass;
use gsttrt_core::track::History;
use gsttrt_core::vector::normalise;

use super::look_quality;
use crate::gst::meta::attributes;
use crate::gst::meta::read::MetaObjects;
use crate::gst::meta::tensor::ObjectRegion;
use crate::gst::meta::vector::AttachedVector;
use crate::gst::stream::StreamFrame;

/// A gallery, and what is known of objects by it.
pub struct ObjectNames {
    watched: WatchedGallery,
    /// The file's name without its ending, which is that of the attributes.
    name: String,
    /// What the numbers of names in `tracks` are of. Not kept between frames: a camera that gives none for hours would keep the memory
    /// of a former one.
    gallery: Weak<Gallery>,
    tracks: History<TrackName>,
    has_told_of_dims: bool,
    /// Where a gallery is on a GPU. Stays, as its memory does.
    matcher: Option<DeviceMatcher>,
    /// Until the gallery changes.
    has_gpu_failed: bool,
    /// A GPU to compare on is still to be looked for.
    seeks_gpu: bool,
}

/// For each region whose vector is looked at, the names that it is most like.
type Looks = Vec<Option<Vec<Likeness>>>;

/// What is known of an object with an id.
#[derive(Debug, Default)]
struct TrackName {
    votes: Votes,
    /// The number of the name that was told.
    told: Option<u32>,
}

/// What was found in a frame.
pub struct NamedObjects {
    /// Whether the object of each region has a name.
    pub are_named: Vec<bool>,
    /// Of those with another name than before.
    pub told: Vec<gst::Structure>,
    /// Vectors that a GPU has compared.
    pub on_gpu: usize,
    pub warnings: Vec<Error>,
}

/// Names that vectors are most like, how many of these a GPU has compared, and why none could.
#[derive(Default)]
struct ComparedVectors {
    names: Vec<Vec<Likeness>>,
    on_gpu: usize,
    warning: Option<Error>,
}

impl ObjectNames {
    /// # Errors
    /// As [`WatchedGallery::open`].
    pub fn open(path: &Path) -> Result<Self> {
        let watched = WatchedGallery::open(path)?;
        Ok(ObjectNames {
            gallery: Arc::downgrade(&watched.get().gallery),
            watched,
            name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            tracks: History::default(),
            has_told_of_dims: false,
            matcher: None,
            has_gpu_failed: false,
            seeks_gpu: false,
        })
    }

    /// From now on a GPU compares vectors with any gallery, if it has room for that.
    pub fn use_gpu(&self, context: &Context) {
        self.watched.use_gpu(context, true);
    }

    /// The GPU that the pipeline works on, if there is one, is to compare vectors with large galleries.
    pub fn seek_gpu(&mut self) {
        self.seeks_gpu = true;
    }

    /// Looks for that GPU, once.
    pub fn find_gpu(&mut self, find: impl FnOnce() -> Option<Context>) {
        if std::mem::take(&mut self.seeks_gpu)
            && let Some(context) = find()
        {
            self.watched.use_gpu(&context, false);
        }
    }

    pub fn gallery(&self) -> Arc<Gallery> {
        self.watched.get().gallery
    }

    /// Another part of the stream, or another stream, follows.
    pub fn reset(&mut self) {
        self.tracks = History::default();
    }

    /// What was wrong with the file of the gallery.
    pub fn take_warning(&self) -> Option<Error> {
        self.watched.take_warning()
    }

    /// The gallery of this frame. Where it is another one, numbers of names are of the one before, and whoever was removed from it is
    /// forgotten.
    fn follow_gallery(&mut self) -> GalleryInUse {
        let now = self.watched.get();
        if !std::ptr::eq(self.gallery.as_ptr(), Arc::as_ptr(&now.gallery)) {
            let gallery = Arc::downgrade(&now.gallery);
            (self.gallery, self.has_told_of_dims, self.has_gpu_failed) = (gallery, false, false);
            self.reset();
        }
        now
    }

    /// For each region of the frame its last vector that may be one of the gallery's, and of vectors that may not, the numbers
    /// that one has.
    fn fitting<'a>(
        gallery: &Gallery,
        vectors: &'a [Vec<AttachedVector>],
    ) -> (Vec<Option<&'a AttachedVector>>, Option<usize>) {
        let mut other = None;
        let fitting = |all: &'a Vec<AttachedVector>| {
            let found = all.iter().rfind(|vector| vector.values.len() == gallery.dims());
            if found.is_none() {
                other = other.or(all.first().map(|vector| vector.values.len()));
            }
            found.filter(|_| !gallery.is_empty())
        };
        let fitting = vectors.iter().map(fitting).collect();
        (fitting, other)
    }

    /// The names that vectors are most like, by the GPU where this element has the gallery on one, else by the CPU.
    ///
    /// # Errors
    /// `DeviceLost`, where the GPU cannot be used any more. Where it fails otherwise, the CPU takes over.
    fn compare(&mut self, now: &GalleryInUse, vectors: &[&[f32]], most: usize) -> Result<ComparedVectors> {
        let warning = match self.compare_on_gpu(now, vectors, most) {
            Ok(Some(names)) => return Ok(ComparedVectors { names, on_gpu: vectors.len(), warning: None }),
            Ok(None) => None,
            Err(error) if error.kind() == ErrorKind::DeviceLost => return Err(error),
            Err(error) => {
                self.has_gpu_failed = true;
                Some(error.and_remedy("Until the gallery changes, the CPU compares vectors with it"))
            }
        };
        Ok(ComparedVectors { names: now.gallery.find(vectors, most), on_gpu: 0, warning })
    }

    /// `None` where this element has the gallery on no GPU. Others may have it on one.
    fn compare_on_gpu(
        &mut self,
        now: &GalleryInUse,
        vectors: &[&[f32]],
        most: usize,
    ) -> Result<Option<Vec<Vec<Likeness>>>> {
        let Some(on_gpu) = now.on_gpu.as_ref().filter(|_| !self.has_gpu_failed) else { return Ok(None) };
        let matcher = match &mut self.matcher {
            Some(matcher) => matcher,
            none => none.insert(DeviceMatcher::new(on_gpu.context())?),
        };
        matcher.find(&now.gallery, vectors, most).map(Some)
    }

    /// Looks at the vectors of this frame, and at those kept of an earlier one where their object is not known yet.
    ///
    /// # Errors
    /// As [`ObjectNames::compare`].
    fn look(
        &mut self,
        now: &GalleryInUse,
        objects: &MetaObjects,
        vectors: Vec<Option<&AttachedVector>>,
        most: usize,
    ) -> Result<(Looks, ComparedVectors)> {
        let mut found = vec![None; vectors.len()];
        let mut looks: Vec<(usize, Vec<f32>)> = Vec::new();
        for (at, vector) in vectors.into_iter().enumerate() {
            let Some(vector) = vector else { continue };
            let is_known = |id| self.tracks.of(id).is_some();
            if vector.is_held && objects.annotations[at].track_id.is_some_and(is_known) {
                continue;
            }
            // That of a foreign element may have any length.
            let mut values = vector.values.clone();
            if normalise(&mut values) {
                looks.push((at, values));
            }
        }
        if looks.is_empty() {
            return Ok((found, ComparedVectors::default()));
        }
        let values: Vec<&[f32]> = looks.iter().map(|(_, values)| values.as_slice()).collect();
        let mut compared = self.compare(now, &values, most)?;
        for (names, (at, _)) in compared.names.drain(..).zip(&looks) {
            found[*at] = Some(names);
        }
        Ok((found, compared))
    }

    /// Names the objects of a frame, whose regions have these vectors.
    ///
    /// # Errors
    /// `DeviceLost`, where the GPU cannot be used any more.
    pub fn name_objects(
        &mut self,
        options: &MatchOptions,
        frame: &mut gst::Buffer,
        at: &StreamFrame,
        (objects, vectors): (&MetaObjects, &[Vec<AttachedVector>]),
    ) -> Result<NamedObjects> {
        let now = self.follow_gallery();
        let gallery: &Gallery = &now.gallery;
        let (fitting, other) = ObjectNames::fitting(gallery, vectors);
        let of_another_model = self.of_another_model(gallery, other);
        let (looks, compared) = self.look(&now, objects, fitting, (options.top_k as usize).max(2))?;
        self.tracks.advance();
        let mut named = NamedObjects {
            are_named: vec![false; looks.len()],
            told: Vec::new(),
            on_gpu: compared.on_gpu,
            warnings: of_another_model.into_iter().chain(compared.warning).collect(),
        };
        for (region, look) in looks.iter().enumerate() {
            let annotation = &objects.annotations[region];
            let names = look.as_ref().map(|found| recognised(found, options));
            let decided: Vec<Likeness> = match (annotation.track_id, names) {
                (None, names) => names.unwrap_or_default().to_vec(),
                (Some(id), None) if self.tracks.of(id).is_none() => continue,
                (Some(id), names) => {
                    let track = self.tracks.entry(id);
                    let quality = look_quality(annotation);
                    names.into_iter().for_each(|names| track.votes.add(names, options.threshold, quality));
                    let decided: Vec<Likeness> = track.votes.decision().take(options.top_k as usize).collect();
                    let name = decided.first().map(|found| found.name);
                    let before = std::mem::replace(&mut track.told, name);
                    if before != name {
                        named.told.push(message(at, id, &annotation.label, decided.first(), before, gallery));
                    }
                    decided
                }
            };
            let object = ObjectRegion {
                region: Some(region),
                analytics: objects.analytics[region],
                track_id: annotation.track_id,
                input: None,
                is_expected: true,
            };
            let class = |found: &Likeness| RankedClass { class: found.name, score: found.similarity.clamp(0.0, 1.0) };
            let classes: Vec<RankedClass> = decided.iter().map(class).collect();
            if !classes.is_empty() {
                named.are_named[region] = true;
                let (names, is_held) = (gallery.names(), look.is_none());
                attributes::attach(frame.make_mut(), &object, (&classes, None), names, &self.name, is_held);
            }
        }
        Ok(named)
    }

    /// A warning where objects have vectors of another model than the gallery, which have that many numbers.
    fn of_another_model(&mut self, gallery: &Gallery, other: Option<usize>) -> Option<Error> {
        let other = other.filter(|_| !gallery.is_empty() && !self.has_told_of_dims)?;
        self.has_told_of_dims = true;
        let (name, known) = (&self.name, gallery.dims());
        let what = format!("The vectors of the gallery {name} have {known} numbers, and those of objects have {other}");
        Some(Error::new(ErrorKind::Settings, what).remedy(
            "Make the gallery with the model of this pipeline: gst-trt enrol --model. These objects stay unknown",
        ))
    }
}

/// The element message about an object that has another name than before.
fn message(
    frame: &StreamFrame,
    id: u64,
    label: &str,
    found: Option<&Likeness>,
    before: Option<u32>,
    gallery: &Gallery,
) -> gst::Structure {
    let name = |number: u32| gallery.names()[number as usize].as_str();
    let mut content = gst::Structure::builder("trt-match")
        .field("stream-time", frame.stream_time)
        .field("frame", frame.number)
        .field("track-id", id)
        .field("label", label)
        .build();
    if let Some(found) = found {
        content.set("name", name(found.name));
        content.set("confidence", f64::from(found.similarity.clamp(0.0, 1.0)));
    }
    if let Some(before) = before {
        content.set("before", name(before));
    }
    content
}
