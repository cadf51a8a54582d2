// SPDX-License-Identifier: MPL-2.0
//! A model as it is configured, and the elements that run it.

use std::path::{Path, PathBuf};

use super::keys::RunsOn;
use super::properties::{ElementProperties, MatchElement};
use crate::assignments::assignments;
use crate::chain::ModelElements;
use crate::model_options::{ModelOptions, is_on_server};
use crate::serve::changes::Stamp;

#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    pub name: String,
    pub file: PathBuf,
    /// What the file was when it was asked for. With another content it is loaded again.
    pub stamp: Option<Stamp>,
    pub on: RunsOn,
    /// The property `object-classes` of a model on objects; all classes, where it is left out.
    pub classes: Option<String>,
    pub labels: Option<PathBuf>,
    pub layout_file: Option<PathBuf>,
    /// What these two files hold, and those of `input-values`, as a number. With other contents it is another model.
    pub contents: u64,
    pub backend: Option<String>,
    pub batch_size: u32,
    /// Further properties, as in a launch line.
    pub preprocess: String,
    pub infer: String,
    pub nms: String,
    /// Whether several sources had it when it was started.
    pub has_several: bool,
    /// What gives its objects names.
    pub matching: Option<ElementProperties<MatchElement>>,
}

impl ModelConfig {
    /// The elements that run it, as those that share it under that name need them.
    pub fn elements(&self) -> ModelElements {
        let has_names = self.matching.is_some();
        let ModelConfig { file, classes, labels, layout_file, backend, batch_size, preprocess, infer, nms, .. } =
            self.clone();
        let model = ModelOptions { model: file, labels, backend };
        // Before the user's own, which hold.
        let runs = if self.has_parallel_runs(&model) { "parallel-runs=0 " } else { "" };
        ModelElements {
            model,
            layout_file,
            object_classes: classes,
            queue: Some(batch_size),
            slices: None,
            preprocess,
            infer: format!("{runs}batch-size={batch_size} {infer}"),
            nms,
            has_names,
        }
    }

    /// Whether a CPU runs frames of several sources at the same time, one in each core: all of them together get more. A single source
    /// gets each result sooner if all cores work on one frame. Whoever sets how many threads compute says otherwise.
    fn has_parallel_runs(&self, model: &ModelOptions) -> bool {
        let sets_threads = || assignments(&self.infer).into_iter().any(|(name, _)| &self.infer[name] == "threads");
        self.has_several && !is_on_server(&self.file) && !sets_threads() && model.is_for_cpu(&self.infer)
    }

    /// The file with the names, if there is one.
    pub fn gallery(&self) -> Option<&Path> {
        self.matching.as_ref()?.get("gallery").map(Path::new)
    }

    /// The classes of objects that it sees, where they are chosen.
    pub fn chosen_classes(&self) -> impl Iterator<Item = &str> {
        self.classes.iter().flat_map(|classes| classes.split(','))
    }
}
