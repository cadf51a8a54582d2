// SPDX-License-Identifier: MPL-2.0
//! What is set of postprocessing, and has no effect on what the model gives.

use super::PostprocessOptions;
use super::options::{MERGE_SETTINGS, SETTINGS};
use crate::error::{Error, ErrorKind};
use crate::heads::{Column, HeadFormat, Suppress, Task};
use crate::model::ModelInfo;
use crate::options::names_of_set;

/// What the options of that name are for.
struct Purpose {
    options: &'static [&'static str],
    what: &'static str,
    /// Of a head, and whether the model sees several slices of a frame.
    is_met: fn(&HeadFormat, bool) -> bool,
}

const PURPOSES: [Purpose; 15] = [
    Purpose { options: &["layout-file"], what: "models", is_met: |_, _| true },
    Purpose {
        options: &["score-threshold"],
        what: "models that give scores",
        is_met: |head, _| (!head.is_map() || head.task == Task::Anomaly) && !head.is_embedding(),
    },
    Purpose {
        options: &["class-thresholds"],
        what: "models that give scores of classes",
        is_met: |head, _| (!head.is_map() || head.task == Task::Anomaly) && !head.is_embedding() && !head.is_text(),
    },
    Purpose {
        options: &["label-file"],
        what: "models with classes, or with characters",
        is_met: |head, _| head.task != Task::Depth && !head.is_embedding(),
    },
    Purpose {
        options: &["classes"],
        what: "models with classes",
        is_met: |head, _| head.task != Task::Depth && !head.is_embedding() && !head.is_text(),
    },
    Purpose {
        options: &["iou-threshold"],
        what: "models whose boxes repeat each other",
        is_met: |head, _| head.has_boxes() && head.suppress() != Suppress::None,
    },
    Purpose {
        options: &["class-agnostic"],
        what: "models whose boxes repeat each other, and for slices",
        is_met: |head, slices| head.has_boxes() && (slices || head.suppress() != Suppress::None),
    },
    Purpose { options: &["max-detections"], what: "models that give boxes", is_met: |head, _| head.has_boxes() },
    Purpose {
        options: &["mask-output"],
        what: "models that give masks or maps",
        is_met: |head, _| head.has_prototypes() || head.maps().is_some() || head.is_map(),
    },
    Purpose {
        options: &["map-threshold"],
        what: "models that give a map of scores",
        is_met: |head, _| {
            let is_of_classes = head.task == Task::Semantic && head.outputs[0].columns == [Column::Classes];
            head.is_text_map() || head.is_map() && head.task == Task::Anomaly || is_of_classes
        },
    },
    Purpose {
        options: &["unclip-ratio", "use-dilation"],
        what: "models that give a map of texts",
        is_met: |head, _| head.is_text_map(),
    },
    Purpose {
        options: &["beam-width"],
        what: "models that read text in steps, with a blank",
        is_met: |head, _| head.is_text() && matches!(head.outputs[0].columns, [Column::Characters { .. }]),
    },
    Purpose { options: &["top-k"], what: "classifiers", is_met: |head, _| head.is_classifier() },
    Purpose {
        options: &["class-scores"],
        what: "classifiers, and models that read text",
        is_met: |head, _| head.is_classifier() || head.is_text(),
    },
    Purpose {
        options: &["background-class"],
        what: "models of the DETR family that give logits",
        is_met: |head, _| head.usual_background().is_some(),
    },
];

const OF_SLICES: Purpose = Purpose {
    options: &["merge", "merge-metric", "merge-threshold"],
    what: "slices and regions of a frame",
    is_met: |head, slices| head.has_boxes() && slices,
};

/// A warning that names the options without effect, if there are any. `slices` is whether the model sees several slices of a
/// frame, whose objects are merged.
pub(super) fn without_effect(
    options: &PostprocessOptions,
    head: &HeadFormat,
    model: &ModelInfo,
    slices: bool,
) -> Option<Error> {
    let set = names_of_set(&SETTINGS, options.clone()).chain(names_of_set(&MERGE_SETTINGS, options.merge));
    let purpose = |name| PURPOSES.iter().chain([&OF_SLICES]).find(|purpose| purpose.options.contains(&name));
    let ignored: Vec<(&str, &str)> = set
        .filter_map(|name| Some((name, purpose(name)?)))
        .filter(|(_, purpose)| !(purpose.is_met)(head, slices))
        .map(|(name, purpose)| (name, purpose.what))
        .collect();
    let names: Vec<&str> = ignored.iter().map(|(name, _)| *name).collect();
    let (has, them) = match names.len() {
        0 => return None,
        1 => ("has", "it"),
        _ => ("have", "them"),
    };
    let purposes: Vec<String> = ignored.iter().map(|(name, what)| format!("{name} is for {what}")).collect();
    let cause = format!("{} is a model of the layout {head}, and {}", model.path.display(), purposes.join(", "));
    Some(
        Error::new(ErrorKind::Settings, format!("{} {has} no effect", names.join(", ")))
            .cause(cause)
            .remedy(format!("Leave {them} unset, or set layout on trtnms if that is another")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heads::HEADS;

    /// The options without effect, if all are set.
    fn ignored(head: &HeadFormat, slices: bool) -> Vec<&'static str> {
        let unmet = PURPOSES.iter().chain([&OF_SLICES]).filter(|purpose| !(purpose.is_met)(head, slices));
        unmet.flat_map(|purpose| purpose.options).copied().collect()
    }

    #[test]
    fn each_option_has_a_purpose_that_a_head_meets() {
        let settings = SETTINGS.iter().map(|setting| setting.spec.name);
        for name in settings.chain(MERGE_SETTINGS.iter().map(|setting| setting.spec.name)) {
            let known = PURPOSES.iter().chain([&OF_SLICES]).filter(|purpose| purpose.options.contains(&name));
            assert_eq!(known.count(), 1, "{name}");
            assert!(HEADS.iter().any(|head| !ignored(head, true).contains(&name)), "{name}");
        }
    }

    #[test]
    fn what_each_kind_of_model_ignores() {
        let of = |name: &str, slices| {
            let all = ignored(HeadFormat::of_name(name).unwrap(), slices);
            all.into_iter().filter(|name| !name.starts_with("merge")).collect::<Vec<_>>().join(" ")
        };
        let no_text = "unclip-ratio use-dilation beam-width";
        let no_classifier = format!("map-threshold {no_text} top-k class-scores background-class");
        for name in ["yolov8", "yolov5", "obb", "pose"] {
            assert_eq!(of(name, false), format!("mask-output {no_classifier}"), "{name}");
        }
        assert_eq!(of("segment", false), no_classifier);
        assert_eq!(of("end-to-end", false), format!("iou-threshold class-agnostic mask-output {no_classifier}"));
        assert_eq!(of("end-to-end", true), format!("iou-threshold mask-output {no_classifier}"));
        let unlike = format!("iou-threshold class-agnostic mask-output map-threshold {no_text} top-k class-scores");
        assert_eq!(of("rf-detr", false), unlike);
        let boxes = "iou-threshold class-agnostic max-detections";
        for name in ["classify", "text-orientation"] {
            let ignored = format!("{boxes} mask-output map-threshold {no_text} background-class");
            assert_eq!(of(name, false), ignored, "{name}");
        }
        assert_eq!(of("semantic", false), format!("score-threshold class-thresholds {boxes} {no_classifier}"));
        let of_scores =
            format!("score-threshold class-thresholds {boxes} {no_text} top-k class-scores background-class");
        assert_eq!(of("semantic-logits", false), of_scores);
        assert_eq!(of("anomaly", false), format!("{boxes} {no_text} top-k class-scores background-class"));
        assert_eq!(of("anomaly-score", false), format!("{boxes} mask-output {no_classifier}"));
        let of_classes = "score-threshold class-thresholds label-file classes";
        assert_eq!(of("depth", false), format!("{of_classes} {boxes} {no_classifier}"));
        assert_eq!(of("embed", false), format!("{of_classes} {boxes} mask-output {no_classifier}"));
        let ignored = "iou-threshold class-agnostic mask-output beam-width top-k class-scores background-class";
        assert_eq!(of("text-detect", false), ignored);
        for name in ["ctc", "ctc-time-first", "slots"] {
            let beam = if name == "slots" { " beam-width" } else { "" };
            let of_maps = format!("mask-output map-threshold unclip-ratio use-dilation{beam}");
            let ignored = format!("class-thresholds classes {boxes} {of_maps} top-k background-class");
            assert_eq!(of(name, false), ignored, "{name}");
        }
    }
}
