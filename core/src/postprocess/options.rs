// SPDX-License-Identifier: MPL-2.0
//! What users set of postprocessing, and which option each field has.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::classes::{KnownClasses, thresholds};
use super::{ClassScores, MergeMethod, MergeMetric, MergeOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::heads::{self, BackgroundClass, HeadFormat, layout_file};
use crate::image::masks::MaskOutput;
use crate::model::{ModelInfo, read_characters, read_labels};
use crate::options::{Choices, OptionKind, OptionSpec, OptionValue, Setting, SettingField, check_numbers, setting};

/// The user's settings for results: the properties of trtnms, with the same defaults.
///
/// ```
/// use gsttrt_core::session::PostprocessOptions;
///
/// let mut options = PostprocessOptions::default();
/// options.classes = "person,car".into();
/// options.score_threshold = 0.5;
/// assert_eq!((options.iou_threshold, options.max_detections), (0.45, 300));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PostprocessOptions {
    /// The model's head; `None` where that is to be recognised. [`parse_options`](crate::session::parse_options) takes the
    /// text of a layout file for it too: `layout=` and the text.
    pub layout: Option<&'static HeadFormat>,
    /// A TOML file that describes the head.
    #[doc(hidden)]
    pub layout_file: Option<PathBuf>,
    /// UTF-8 text with one class name a line, or with one character a line for models that read text; `None` for the names in the
    /// model file.
    pub label_file: Option<PathBuf>,
    /// 0..1; boxes with a lower score are dropped. Of texts that are detected the default means 0.6, of their orientation 0.9, of
    /// anomalies more than 0.5.
    pub score_threshold: f32,
    /// Score thresholds of single classes by name or id: `person=0.5,car=0.3`.
    pub class_thresholds: String,
    /// Names or ids of the classes to keep: `person,car`; empty for all.
    pub classes: String,
    /// 0..1; overlap (intersection over union) above which the weaker of two boxes is dropped.
    pub iou_threshold: f32,
    /// The maximum number of boxes kept in a frame, best scores first.
    pub max_detections: u32,
    /// Whether boxes of different classes suppress each other.
    pub class_agnostic: bool,
    /// How objects of several regions of a frame become one.
    #[doc(hidden)]
    pub merge: MergeOptions,
    /// What results contain of masks.
    #[doc(hidden)]
    pub mask_output: MaskOutput,
    /// Of a map of a single class, the score above which a pixel is of it: 0 for logits, such as 0.5 for probabilities. Of a map of
    /// texts 0 means 0.3, of anomalies 0.5.
    #[doc(hidden)]
    pub map_threshold: f32,
    /// Boxes of texts grow on each side by their area times this, divided by their perimeter.
    #[doc(hidden)]
    pub unclip_ratio: f32,
    /// Whether each pixel of a text takes its neighbours to the right and below before boxes are made.
    #[doc(hidden)]
    pub use_dilation: bool,
    /// How many beginnings of a text are kept from step to step; 1 for the best character of each step.
    #[doc(hidden)]
    pub beam_width: u32,
    /// The maximum number of classes that a classifier gives for a frame, best scores first.
    pub top_k: u32,
    /// What a classifier's output holds.
    pub class_scores: ClassScores,
    /// Which logit of a row is the background's, for heads with logits.
    #[doc(hidden)]
    pub background_class: BackgroundClass,
}

impl Default for PostprocessOptions {
    fn default() -> Self {
        PostprocessOptions {
            layout: None,
            layout_file: None,
            label_file: None,
            score_threshold: 0.25,
            class_thresholds: String::new(),
            classes: String::new(),
            iou_threshold: 0.45,
            max_detections: 300,
            class_agnostic: false,
            merge: MergeOptions::default(),
            mask_output: MaskOutput::default(),
            map_threshold: 0.0,
            unclip_ratio: 1.5,
            use_dilation: false,
            beam_width: 1,
            top_k: 5,
            class_scores: ClassScores::Auto,
            background_class: BackgroundClass::Auto,
        }
    }
}

impl PostprocessOptions {
    /// These, but with the head and the labels of others: they count from a model's first frame on.
    #[doc(hidden)]
    pub fn with_head_of(self, other: &Self) -> Self {
        let PostprocessOptions { layout, background_class, ref layout_file, ref label_file, .. } = *other;
        let (layout_file, label_file) = (layout_file.clone(), label_file.clone());
        PostprocessOptions { layout, background_class, layout_file, label_file, ..self }
    }

    /// What the label file has, if one is set: names of classes, or the characters of a head that reads text.
    ///
    /// # Errors
    /// As [`PostprocessOptions::head`]; those of the file.
    #[doc(hidden)]
    pub fn labels(&self) -> Result<Option<Vec<String>>> {
        let reads_text = self.head()?.is_some_and(HeadFormat::is_text);
        let read = |path: &Path| if reads_text { read_characters(path) } else { read_labels(path) };
        self.label_file.as_deref().map(read).transpose()
    }

    /// Checks that they suit a model whose words become others: with the next frame it would be too late. `count` is how many words
    /// there were and are to be, where that is another number.
    ///
    /// # Errors
    /// `Settings`, where the label file is for another number, or a class that is chosen is none of the words.
    #[doc(hidden)]
    pub fn check_words(&self, former: &ModelInfo, next: &ModelInfo, count: Option<[usize; 2]>) -> Result<()> {
        // What is wrong with the file is told where it is used.
        let names = self.labels().ok().flatten();
        match (names, count) {
            (Some(names), Some([before, now])) if names.len() == before => {
                let what = format!("label-file of trtnms has {before} names, and the array is for {now} words");
                let remedy = "Leave label-file unset, and give the array a text file with the names of its words";
                Err(Error::new(ErrorKind::Settings, what).remedy(remedy))
            }
            (Some(_), _) => Ok(()),
            (None, _) if next.labels == former.labels => Ok(()),
            (None, _) => {
                let known = KnownClasses { labels: next.labels.clone(), count: None };
                thresholds(self.score_threshold, &self.classes, &self.class_thresholds, &known).map(drop)
            }
        }
    }

    /// # Errors
    /// `Settings`, where a number is out of its range, or NaN.
    pub(super) fn check_numbers(&self) -> Result<()> {
        check_numbers(&SETTINGS, self)?;
        check_numbers(&MERGE_SETTINGS, &self.merge)
    }

    /// The head that the user has chosen, by its name or in a file.
    ///
    /// # Errors
    /// `Settings`, where both are given; those of the file.
    #[doc(hidden)]
    pub fn head(&self) -> Result<Option<&'static HeadFormat>> {
        match (self.layout, &self.layout_file) {
            (Some(layout), Some(path)) => {
                let what = format!("layout is {layout}, and layout-file is {}", path.display());
                Err(Error::new(ErrorKind::Settings, what).remedy("Set one of them"))
            }
            (None, Some(path)) => layout_file::of_file(path).map(Some),
            (layout, None) => Ok(layout),
        }
    }
}

/// The value of `layout` that leaves the choice to the model.
pub const AUTO: &str = "auto";

/// The head, whose name elements keep until they know the model.
pub static LAYOUT: LazyLock<OptionSpec> = LazyLock::new(|| {
    OptionSpec {
    name: "layout",
    nick: "Layout",
    blurb: format!(
        "Output format of the model's detection head: {AUTO} (from names, shapes and metadata), the text of a layout file, {}",
        heads::names().join(", ")
    )
    .leak(),
    kind: OptionKind::Text,
}
});

/// All other options but those of [`MergeOptions`].
pub static SETTINGS: [Setting<PostprocessOptions>; 16] = [
    setting!(
        "layout-file",
        "Layout file",
        "TOML file that describes the outputs of a model whose layout is not known here (unset = by layout)",
        OptionKind::Path,
        layout_file
    ),
    setting!(
        "label-file",
        "Label file",
        "UTF-8 text with one class name a line, for models that read text one character (unset = as in the model file)",
        OptionKind::Path,
        label_file
    ),
    setting!(
        "score-threshold",
        "Score threshold",
        "Boxes with a lower score are dropped (of layout=text-detect the default means 0.6, of text-orientation 0.9, \
         of anomalies more than 0.5)",
        OptionKind::Float(0.0..=1.0),
        score_threshold
    ),
    setting!(
        "class-thresholds",
        "Class thresholds",
        "Score thresholds of single classes by name or id, like person=0.5,car=0.3",
        OptionKind::Text,
        class_thresholds
    ),
    setting!(
        "classes",
        "Classes",
        "Names or ids of the classes to keep, like person,car (unset = all)",
        OptionKind::Text,
        classes
    ),
    setting!(
        "iou-threshold",
        "IoU threshold",
        "Overlap (intersection over union) above which the weaker of two boxes is dropped",
        OptionKind::Float(0.0..=1.0),
        iou_threshold
    ),
    setting!(
        "max-detections",
        "Maximum detections",
        "Maximum boxes of a frame; those with the best scores are kept",
        OptionKind::UInt(1..=65536),
        max_detections
    ),
    setting!(
        "class-agnostic",
        "Class agnostic",
        "Let boxes of different classes suppress each other",
        OptionKind::Flag,
        class_agnostic
    ),
    setting!(
        "mask-output",
        "Mask output",
        "What metas and messages contain of the masks of segmentation models",
        MaskOutput::KIND,
        mask_output
    ),
    setting!(
        "map-threshold",
        "Map threshold",
        "Score above which a pixel is of the class, where a map has a single one: 0 for logits, such as 0.5 for probabilities \
         (of layout=text-detect 0 means 0.3, of anomaly 0.5)",
        OptionKind::Float(-1000.0..=1000.0),
        map_threshold
    ),
    setting!(
        "unclip-ratio",
        "Unclip ratio",
        "Boxes of layout=text-detect grow on each side by their area times this, divided by their perimeter, as in PP-OCR",
        OptionKind::Float(0.0..=10.0),
        unclip_ratio
    ),
    setting!(
        "use-dilation",
        "Use dilation",
        "With layout=text-detect: each pixel of a text takes its neighbours to the right and below before boxes are made, as in \
         RapidOCR",
        OptionKind::Flag,
        use_dilation
    ),
    setting!(
        "beam-width",
        "Beam width",
        "Beginnings of a text that layout=ctc and ctc-time-first keep from step to step; their ways are added up (1 = the best \
         character of each step)",
        OptionKind::UInt(1..=100),
        beam_width
    ),
    setting!(
        "top-k",
        "Top k",
        "Maximum classes that a classifier gives for a frame; those with the best scores are kept",
        OptionKind::UInt(1..=65536),
        top_k
    ),
    setting!(
        "class-scores",
        "Class scores",
        "What the output of a classifier, or of a model that reads text, holds",
        ClassScores::KIND,
        class_scores
    ),
    setting!(
        "background-class",
        "Background class",
        "Which of a row's logits is the background's, for models of the DETR family whose file does not contain it",
        BackgroundClass::KIND,
        background_class
    ),
];

/// How objects of several slices become one; sessions do not slice.
pub static MERGE_SETTINGS: [Setting<MergeOptions>; 3] = [
    setting!(
        "merge",
        "Merge",
        "What becomes of an object that several slices have found, of all but the best one",
        MergeMethod::KIND,
        method
    ),
    setting!(
        "merge-metric",
        "Merge metric",
        "How the overlap of boxes of different slices is measured",
        MergeMetric::KIND,
        metric
    ),
    setting!(
        "merge-threshold",
        "Merge threshold",
        "Overlap from which on boxes of a class, found in different slices, are one object",
        OptionKind::Float(0.0..=1.0),
        threshold
    ),
];

impl SettingField for Option<&'static HeadFormat> {
    fn value(&self) -> OptionValue {
        OptionValue::Text(self.map_or(AUTO, |head| head.name).into())
    }

    fn set(&mut self, _name: &str, value: OptionValue) -> Result<()> {
        let name = value.to_string();
        *self = if name == AUTO { None } else { Some(HeadFormat::of_name(&name)?) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of the numbers.
    type NumberOf = fn(&mut PostprocessOptions) -> &mut f32;

    /// As those of texts are.
    #[test]
    fn numbers_of_a_program_are_checked() {
        let fields: [(&str, NumberOf); 5] = [
            ("score-threshold", |options| &mut options.score_threshold),
            ("iou-threshold", |options| &mut options.iou_threshold),
            ("map-threshold", |options| &mut options.map_threshold),
            ("unclip-ratio", |options| &mut options.unclip_ratio),
            ("merge-threshold", |options| &mut options.merge.threshold),
        ];
        for (name, field) in fields {
            let mut options = PostprocessOptions::default();
            options.check_numbers().unwrap();
            for wrong in [f32::NAN, f32::INFINITY, -1e6] {
                *field(&mut options) = wrong;
                let message = options.check_numbers().unwrap_err().message();
                assert!(message.contains(name) && message.contains("a number from"), "{message}");
            }
        }
    }
}
