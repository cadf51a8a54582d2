// SPDX-License-Identifier: MPL-2.0
//! Models, and which of them a source has.

use std::hash::{DefaultHasher, Hash, Hasher};

use gst::prelude::*;
use gsttrt_core::files::read_regular;
use gsttrt_core::gallery::read_shared;

use super::super::head::HeadSettings;
use super::super::keys::{ModelKeys, RunsOn, SourceKeys};
use super::super::launch;
use super::super::model::ModelConfig;
use super::super::model_file::{ModelOutcome, ModelSettings};
use super::super::properties::{ElementProperties, MatchElement};
use super::super::wording::{self, KeyError, problem};
use super::Config;
use crate::model_options::{backend_words, check_file, check_model};
use crate::serve::changes::Stamp;

/// Of labels and of a layout. Longer ones are refused.
const MAX_TEXT: u64 = 16 << 20;
/// Of vectors of words. trtinfer takes no longer ones.
const MAX_VALUES: u64 = 256 << 20;

impl Config {
    /// A model, what it gives, and what may be wrong with it.
    pub(super) fn model(&self, keys: &ModelKeys) -> Result<(ModelConfig, ModelOutcome, Vec<KeyError>), KeyError> {
        let name = keys.name.0.clone();
        if self.models.iter().any(|other| other.name == name) {
            return Err(problem("name", format!("there are two models “{name}”")));
        }
        let file = self.path(&keys.file);
        let mut model = ModelConfig {
            name,
            // Before it is read: a change that comes between is seen later.
            stamp: Stamp::of(&file),
            file,
            on: keys.on,
            classes: classes(keys)?,
            labels: keys.labels.as_ref().map(|labels| self.folder.join(labels)),
            layout_file: keys.layout_file.as_ref().map(|file| self.folder.join(file)),
            contents: 0,
            backend: keys.backend.clone(),
            batch_size: keys.batch_size,
            preprocess: keys.preprocess.clone(),
            infer: keys.infer.clone(),
            nms: keys.nms.clone(),
            has_several: false, // sources come behind the models
            matching: self.matching(keys)?,
        };
        check_model(&model.file).map_err(|failure| problem("file", failure.to_string()))?;
        if let Some(labels) = &model.labels {
            check_file(labels).map_err(|failure| problem("labels", failure.to_string()))?;
        }
        if let Some(file) = &model.layout_file {
            check_file(file).map_err(|failure| problem("layout-file", failure.to_string()))?;
        }
        let mut contents = DefaultHasher::new();
        [&model.labels, &model.layout_file].map(|file| read_regular(file.as_ref()?, MAX_TEXT).ok()).hash(&mut contents);
        let backends: Vec<_> = backend_words().collect();
        if let Some(backend) = model.backend.as_deref().filter(|backend| !backends.contains(backend)) {
            return Err(problem("backend", wording::unknown_value(backend, &backends)));
        }
        if !(1..=1024).contains(&model.batch_size) {
            return Err(problem("batch-size", "a batch has 1 to 1024 frames"));
        }
        let mut elements = Vec::new();
        for (key, text) in [("preprocess", &mut model.preprocess), ("infer", &mut model.infer), ("nms", &mut model.nms)]
        {
            let (line, element) =
                launch::check(key, text, keys.on).map_err(|failure| problem(key, failure.to_string()))?;
            *text = launch::with_paths(line, &element, &self.folder);
            elements.push(element);
        }
        for file in launch::value_files(&elements[1], &self.folder) {
            read_regular(&file, MAX_VALUES).ok().hash(&mut contents);
        }
        model.contents = contents.finish();
        let head = HeadSettings::of(&elements[2], model.layout_file.as_deref());
        let settings = ModelSettings {
            file: &model.file,
            labels: model.labels.as_deref(),
            batch_size: model.batch_size as usize,
            input_size: elements[1].property::<Option<String>>("input-size").unwrap_or_default(),
            input_values: launch::input_values(&elements[1], &self.folder),
            head: head.map_err(|error| problem("layout-file", error.message()))?,
        };
        let (outcome, warnings) = settings.check()?;
        if model.on == RunsOn::Objects && outcome.is_map {
            let text = "it gives a map of the whole picture, and objects have none: set on = \"frames\"";
            return Err(problem("on", text));
        }
        Ok((model, outcome, warnings))
    }

    /// What gives the objects of a model names. Its gallery is read once, so that mistakes in it are told here.
    fn matching(&self, keys: &ModelKeys) -> Result<Option<ElementProperties<MatchElement>>, KeyError> {
        const KEY: &str = "match";
        let Some(mut matching) = keys.r#match.clone() else { return Ok(None) };
        if keys.on == RunsOn::Frames {
            let text = "it gives objects names by the vectors of a model that sees them: set on = \"objects\"";
            return Err(problem(KEY, text));
        }
        let Some(gallery) = matching.get("gallery").filter(|gallery| !gallery.is_empty()) else {
            let text = "it has no gallery: set gallery to a file with names and vectors, which gst-trt enrol makes";
            return Err(problem(KEY, text));
        };
        let gallery = self.folder.join(gallery);
        read_shared(&gallery).map_err(|error| problem(KEY, error.message()))?;
        matching.set("gallery", gallery.to_string_lossy().into_owned());
        Ok(Some(matching))
    }

    pub(super) fn names(&self, on: RunsOn) -> impl Iterator<Item = &str> {
        self.models.iter().filter(move |model| model.on == on).map(|model| model.name.as_str())
    }

    /// A model by its name, which must be on that.
    pub(super) fn named(&self, key: &'static str, name: &str, on: RunsOn) -> Result<&ModelConfig, KeyError> {
        let unknown = || problem(key, wording::unknown_name("model", name, self.names(on)));
        let model = self.models.iter().find(|model| model.name == name).ok_or_else(unknown)?;
        match (on, model.on == on) {
            (_, true) => Ok(model),
            (RunsOn::Frames, false) => Err(problem(
                key,
                format!("model “{name}” sees objects: name it in on-objects, and here one that sees frames"),
            )),
            (RunsOn::Objects, false) => {
                Err(problem(key, format!("model “{name}” sees frames: give it on = \"objects\", or leave it out here")))
            }
        }
    }

    /// The model that sees the frames of a source.
    pub(super) fn model_of_frames(&self, keys: &SourceKeys) -> Result<String, KeyError> {
        let mut names = self.names(RunsOn::Frames);
        match (&keys.model, names.next(), names.next()) {
            (Some(model), ..) => self.named("model", model, RunsOn::Frames).map(|model| model.name.clone()),
            (None, Some(only), None) => Ok(only.into()),
            (None, None, _) if self.models.is_empty() => Err(problem("name", "a source needs a [[model]]")),
            (None, None, _) => Err(problem("name", "a source needs a [[model]] without on = \"objects\"")),
            (None, Some(_), Some(_)) => {
                Err(problem("name", "there are several models, so a source needs the key model"))
            }
        }
    }

    /// The models that see the objects of a source, in their order. What they are to look for is there. `finds_none` tells whether a
    /// file of the first one finds no objects.
    pub(super) fn models_on_objects(
        &self,
        keys: &SourceKeys,
        first: &str,
        finds_none: bool,
    ) -> Result<Vec<String>, KeyError> {
        const KEY: &str = "on-objects";
        let wanted: Vec<&str> = match &keys.on_objects {
            Some(names) => names.iter().map(String::as_str).collect(),
            None => self.names(RunsOn::Objects).collect(),
        };
        let mut before = vec![first];
        for name in wanted {
            let model = self.named(KEY, name, RunsOn::Objects)?;
            if before.contains(&name) {
                return Err(problem(KEY, format!("model “{name}” is there twice")));
            }
            let otherwise = "Or set on-objects of this source to the models that are for it";
            if finds_none {
                let text =
                    format!("model “{name}” sees objects, and “{first}” finds none. Use one that does. {otherwise}");
                return Err(problem(KEY, text));
            }
            let classes = self.classes_of_objects(before.iter().copied());
            let is_known = |class: &&str| {
                class.parse::<u32>().is_ok() || classes.as_ref().is_none_or(|classes| classes.contains(class))
            };
            if let Some(unknown) = model.chosen_classes().find(|class| !is_known(class)) {
                let what = wording::unknown_name("class", unknown, classes.into_iter().flatten());
                return Err(problem(KEY, format!("model “{name}” sees objects of a class: {what} {otherwise}")));
            }
            before.push(name);
        }
        Ok(before.split_off(1).into_iter().map(String::from).collect())
    }

    /// The classes of the objects that models find together. `None` where those of one of them are not known.
    pub(super) fn classes_of_objects<'a>(&'a self, models: impl Iterator<Item = &'a str>) -> Option<Vec<&'a str>> {
        let mut found = Vec::new();
        for outcome in models.filter_map(|model| self.outcomes.get(model)).filter(|outcome| outcome.may_give_objects) {
            if outcome.classes.is_empty() {
                return None;
            }
            found.extend(outcome.classes.iter().map(String::as_str));
        }
        Some(found)
    }
}

/// As the element takes them.
fn classes(keys: &ModelKeys) -> Result<Option<String>, KeyError> {
    let Some(classes) = &keys.classes else { return Ok(None) };
    if keys.on == RunsOn::Frames {
        let text = "they are the classes of objects that a model sees: set on = \"objects\". Classes that a model is to find \
                    are in nms, such as nms = \"classes=person\"";
        return Err(problem("classes", text));
    }
    if classes.is_empty() {
        return Err(problem("classes", "there is no class in it. Leave it out for all classes"));
    }
    let names: Vec<&str> = classes.iter().map(|class| class.trim()).collect();
    match names.iter().find(|name| name.is_empty() || name.contains(',')) {
        Some(name) => {
            Err(problem("classes", format!("“{name}” is no class: write a name or an id in quotes for each")))
        }
        None => Ok(Some(names.join(","))),
    }
}
