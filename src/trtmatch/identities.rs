// SPDX-License-Identifier: MPL-2.0
//! Ids of objects over several cameras.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::identity::links::{self, MAX_NAME};
use gsttrt_core::identity::{
    Identities, IdentityChange, IdentityOptions, JoinedCamera, ObjectLook, SeenFrame, SeenObject,
};
use gsttrt_core::image::overlay::Annotation;

use super::settings::MatchSettings;
use super::{look_quality, sharing};
use crate::gst::meta::identity;
use crate::gst::meta::read::MetaObjects;
use crate::gst::meta::vector::AttachedVector;
use crate::gst::stream::StreamFrame;

/// A stream of a camera that shares a table with others.
pub struct CameraIdentities {
    pub table: Arc<Identities>,
    joined: JoinedCamera,
    /// Names of the table and of the camera.
    name: String,
    camera: String,
    /// Names or ids; empty for all.
    classes: String,
}

/// What was found in a frame.
pub struct IdentifiedObjects {
    /// Whether the object of each region has an id.
    pub have_ids: Vec<bool>,
    /// Of those with another id than before.
    pub told: Vec<gst::Structure>,
    pub warning: Option<Error>,
}

impl CameraIdentities {
    /// Joins the table that is named there, if there is one. `element` is the name of the camera where none is set.
    ///
    /// # Errors
    /// `Settings`, where a name is too long, links make no sense, or others share the table with other properties.
    pub fn join(settings: &MatchSettings, element: &str) -> Result<Option<Self>> {
        let MatchSettings { identities: name, camera, identity, camera_links, identity_classes, .. } = settings;
        if name.is_empty() {
            return Ok(None);
        }
        let camera = if camera.is_empty() { element } else { camera.as_str() };
        for (property, name) in [("identities", name.as_str()), ("camera", camera)] {
            if name.len() > MAX_NAME {
                let what = format!("{property} has {} bytes, and {MAX_NAME} is the most", name.len());
                return Err(Error::new(ErrorKind::Settings, what).remedy("Give it a shorter name"));
            }
        }
        let options = IdentityOptions { links: links::parse(camera_links)?, ..identity.clone() };
        let table = sharing::join(name, options)?;
        Ok(Some(CameraIdentities {
            joined: table.join(camera),
            table,
            name: name.clone(),
            camera: camera.into(),
            classes: identity_classes.clone(),
        }))
    }

    /// Another part of the stream, or another stream, follows.
    pub fn reset(&mut self) {
        self.joined.cut();
    }

    fn wants(&self, annotation: &Annotation) -> bool {
        let mut words = self.classes.split(',').map(str::trim).filter(|word| !word.is_empty()).peekable();
        words.peek().is_none() || words.any(|word| annotation.is_called(word))
    }

    /// Gives ids to the objects of a frame, whose regions have these vectors. `now` is its time on the clock of the pipeline, in
    /// nanoseconds.
    pub fn identify(
        &mut self,
        frame: &mut gst::Buffer,
        at: &StreamFrame,
        now: u64,
        (objects, vectors): (&MetaObjects, &[Vec<AttachedVector>]),
    ) -> IdentifiedObjects {
        let tracked = (0..vectors.len()).filter_map(|region| {
            let annotation = &objects.annotations[region];
            annotation.track_id.filter(|_| self.wants(annotation)).map(|track| (region, track))
        });
        let tracked: Vec<(usize, u64)> = tracked.collect();
        let models: Vec<Vec<Cow<str>>> =
            vectors.iter().map(|all| all.iter().map(AttachedVector::model_name).collect()).collect();
        let looks: Vec<Vec<ObjectLook>> = tracked
            .iter()
            .map(|&(region, _)| {
                let all = vectors[region].iter().zip(&models[region]).filter(|(vector, _)| !vector.is_held);
                all.map(|(vector, model)| ObjectLook { values: &vector.values, model }).collect()
            })
            .collect();
        let seen: Vec<SeenObject> = tracked
            .iter()
            .zip(&looks)
            .map(|(&(region, track), looks)| {
                let annotation = &objects.annotations[region];
                SeenObject { track, label: &annotation.label, quality: look_quality(annotation), looks }
            })
            .collect();
        let SeenFrame { ids, changes, warning } = self.joined.see(&seen, now, Instant::now());
        let mut of_regions = vec![None; vectors.len()];
        for (&(region, _), id) in tracked.iter().zip(ids) {
            of_regions[region] = id;
        }
        if of_regions.iter().any(Option::is_some) {
            identity::attach(frame.make_mut(), &of_regions, &self.name);
        }
        let told = changes.iter().map(|change| self.message(at, &seen[change.object], change)).collect();
        IdentifiedObjects { have_ids: of_regions.iter().map(Option::is_some).collect(), told, warning }
    }

    /// The element message about an object that has another id than before.
    fn message(&self, frame: &StreamFrame, object: &SeenObject, change: &IdentityChange) -> gst::Structure {
        let mut content = gst::Structure::builder("trt-identity")
            .field("stream-time", frame.stream_time)
            .field("frame", frame.number)
            .field("camera", self.camera.as_str())
            .field("track-id", object.track)
            .field("label", object.label)
            .build();
        if let Some(id) = change.id {
            content.set("identity", id);
        }
        if let Some(similarity) = change.similarity {
            content.set("similarity", f64::from(similarity.clamp(0.0, 1.0)));
        }
        if let Some(before) = change.before {
            content.set("before", before);
        }
        content
    }
}
