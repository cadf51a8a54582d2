// SPDX-License-Identifier: MPL-2.0
//! `[class-attrs-all]`, `[class-attrs-N]` and `filter-out-class-ids`: which classes pass, and with which score.

use std::path::Path;

use gsttrt_core::heads;
use gsttrt_core::model::{ModelFile, ModelInfo, read_labels};

use super::ini::IniGroup;
use super::written::NoteKind::{Differs, NoEffect};
use super::written::{KnownKey, PropertyTexts, WrittenConfig};
use crate::failure::Failure;

/// Classes that are written down.
const MAX_CLASSES: u32 = 10_000;

const SIZES: &str = "objects are not filtered by their size or place";
const CLUSTERS: &str = "there is no clustering of boxes";
const DRAWN: &str = "a class has its own colour";
const KEYS: [KnownKey; 15] = [
    ("detected-min-w", Differs, SIZES),
    ("detected-min-h", Differs, SIZES),
    ("detected-max-w", Differs, SIZES),
    ("detected-max-h", Differs, SIZES),
    ("roi-top-offset", Differs, SIZES),
    ("roi-bottom-offset", Differs, SIZES),
    ("eps", Differs, "there is no clustering by DBSCAN"),
    ("dbscan-min-score", Differs, "there is no clustering by DBSCAN"),
    ("minBoxes", Differs, CLUSTERS),
    ("group-threshold", Differs, CLUSTERS),
    ("post-cluster-threshold", Differs, "there is one threshold, before boxes are suppressed"),
    ("nms-iou-threshold", Differs, "iou-threshold in nms is that of all classes, from [class-attrs-all]"),
    ("topk", Differs, "max-detections in nms is that of all classes together, from [class-attrs-all]"),
    ("border-color", NoEffect, DRAWN),
    ("bg-color", NoEffect, DRAWN),
];

/// What a model's groups say of its classes.
pub struct ClassSettings<'a> {
    file: &'a str,
    /// Of all classes that have none of their own.
    threshold: Option<f64>,
    /// Of `[class-attrs-N]`, by its N.
    of_classes: Vec<(&'a str, f64)>,
    filtered_out: Vec<&'a str>,
    iou_threshold: Option<f64>,
    most: Option<u32>,
}

/// What nvinfer takes where its file says nothing, by NVIDIA's documentation: DeepStream 6 to 9.
const SCORE_OF_NVINFER: f64 = 0.2;
const IOU_OF_NVINFER: f64 = 0.3;

/// No score is above 1: that is how a class is switched off there.
fn is_off(threshold: f64) -> bool {
    threshold >= 1.0
}

impl<'a> ClassSettings<'a> {
    /// # Errors
    /// A value is no number.
    pub fn read(
        file: &'a str,
        groups: &'a [IniGroup],
        property: &'a IniGroup,
        into: &mut WrittenConfig,
    ) -> Result<Self, Failure> {
        let filtered_out = property.list("filter-out-class-ids").unwrap_or_default();
        let (threshold, of_classes, iou_threshold, most) = (None, Vec::new(), None, None);
        let mut settings = ClassSettings { file, threshold, of_classes, filtered_out, iou_threshold, most };
        for group in groups {
            let Some(class) = group.name.strip_prefix("class-attrs-") else { continue };
            let old = group.number::<f64>("threshold")?;
            let threshold = group.number("pre-cluster-threshold")?.or(old);
            if class == "all" {
                settings.threshold = threshold;
                settings.iou_threshold = group.number("nms-iou-threshold")?;
                let most = group.number::<i64>("topk")?; // -1, which nvinfer has where it is not set, is no limit
                settings.most = most.and_then(|most| u32::try_from(most).ok()).filter(|most| *most > 0);
            } else {
                settings.of_classes.extend(threshold.map(|threshold| (class, threshold)));
            }
            into.note_unused(file, group, &KEYS);
        }
        Ok(settings)
    }

    /// What is not set is as nvinfer has it. Of a model that finds objects.
    pub fn with_defaults(self) -> Self {
        let threshold = self.threshold.or(Some(SCORE_OF_NVINFER));
        ClassSettings { threshold, iou_threshold: self.iou_threshold.or(Some(IOU_OF_NVINFER)), ..self }
    }

    /// Its own threshold counts more than that of boxes.
    pub fn of_classifier(self, threshold: Option<f64>) -> Self {
        ClassSettings { threshold: threshold.or(self.threshold), ..self }
    }

    /// As properties of trtnms. `count` is the number of classes, where it is known.
    pub fn write(mut self, count: impl Fn() -> Option<u32>, nms: &mut PropertyTexts, into: &mut WrittenConfig) {
        let all_are_off = self.threshold.is_some_and(is_off);
        let is_any_out =
            !self.filtered_out.is_empty() || self.of_classes.iter().any(|(_, threshold)| is_off(*threshold));
        let known = (is_any_out || !self.of_classes.is_empty()).then(count).flatten();
        if let Some(count) = known {
            self.leave_out_unknown(count, into);
        }
        if let Some(threshold) = self.threshold.filter(|threshold| !is_off(*threshold)) {
            nms.set("score-threshold", threshold.max(0.0));
        }
        self.iou_threshold.iter().for_each(|iou| nms.set("iou-threshold", iou));
        self.most.iter().for_each(|most| nms.set("max-detections", most));
        let passes = |class: &str| {
            let own = self.of_classes.iter().rfind(|(of, _)| *of == class).map(|(_, threshold)| *threshold);
            !self.filtered_out.contains(&class) && !own.or(self.threshold).is_some_and(is_off)
        };
        // Here those are named that stay.
        let stay: Option<Vec<String>> = if all_are_off {
            Some(self.of_classes.iter().map(|(class, _)| class.to_string()).filter(|class| passes(class)).collect())
        } else if is_any_out {
            known
                .map(|count| (0..count.min(MAX_CLASSES)).map(|class| class.to_string()).filter(|c| passes(c)).collect())
        } else {
            None
        };
        // Without their number, thresholds keep all out but a score of 1.
        let is_named = stay.as_ref().is_some_and(|stay| !stay.is_empty());
        let thresholds = self.of_classes.iter().filter(|(_, threshold)| !is_named || !is_off(*threshold));
        let thresholds: Vec<String> =
            thresholds.map(|(class, threshold)| format!("{class}={}", threshold.clamp(0.0, 1.0))).collect();
        if !thresholds.is_empty() {
            nms.set("class-thresholds", thresholds.join(","));
        }
        match stay {
            Some(stay) if stay.is_empty() => {
                if all_are_off {
                    nms.set("score-threshold", 1);
                }
                let why = "no class is left: write those that stay as classes in nms";
                into.note(Differs, self.file, "property", "all classes", why);
            }
            Some(stay) => nms.set("classes", stay.join(",")),
            None if is_any_out => {
                const WHY: &str = "it is not known how many classes there are: write those that stay as classes in nms";
                for (class, threshold) in self.of_classes.iter().filter(|(_, threshold)| is_off(*threshold)) {
                    let group = format!("class-attrs-{class}");
                    into.note(Differs, self.file, &group, &format!("pre-cluster-threshold={threshold}"), WHY);
                }
                if !self.filtered_out.is_empty() {
                    into.note(Differs, self.file, "property", "filter-out-class-ids", WHY);
                }
            }
            None => {}
        }
    }

    /// Thresholds of classes that the model does not have, which are errors here.
    fn leave_out_unknown(&mut self, count: u32, into: &mut WrittenConfig) {
        let file = self.file;
        self.of_classes.retain(|(class, _)| {
            let is_known = class.parse::<u32>().is_ok_and(|class| class < count);
            if !is_known {
                let why = format!("there is no such class: there are {count}");
                into.note(NoEffect, file, &format!("class-attrs-{class}"), "all keys", &why);
            }
            is_known
        });
    }
}

/// How many classes a model has by its label file, else by its own file.
pub fn count(labels: Option<&str>, onnx: Option<&str>) -> Option<u32> {
    let of_labels = |file: &str| {
        let labels = read_labels(Path::new(file)).ok()?;
        // Those of a classifier are in one line there.
        (!labels.iter().any(|label| label.contains(';'))).then_some(labels.len())
    };
    let of_model = |file: &str| {
        let contents = ModelFile::new(Path::new(file)).contents().ok()?;
        let info = ModelInfo::of_onnx(&contents).ok()?;
        let hints = info.hints(info.image_size.unwrap_or_default());
        let found = heads::recognise_classes(None, &info.outputs, &hints).ok().and_then(|(_, classes)| classes);
        found.or(Some(info.labels.len()).filter(|labels| *labels > 0))
    };
    labels.and_then(of_labels).or_else(|| onnx.and_then(of_model)).and_then(|count| u32::try_from(count).ok())
}
