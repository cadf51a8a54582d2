// SPDX-License-Identifier: MPL-2.0
//! The pages in docs/reference show what gst-inspect-1.0 shows of each element: a change there is a change for users.
//!
//! `UPDATE_SNAPSHOT=1 cargo nextest run reference::` rewrites them.

use std::fmt::Write;

use crate::common::elements::{ELEMENTS, factories, properties, values};
use gst::glib;
use gst::glib::subclass::{SignalId, SignalQuery};
use gst::prelude::*;

/// What the registry does not know: what an element posts, and which metas it reads and writes, with where that is
/// described.
const RESULTS: [(&str, &[(&str, &str)]); 8] = [
    (
        "trtpreprocess",
        &[
            (
                "reads",
                "with `regions=objects` `GstVideoRegionOfInterestMeta`: [a model on objects](../two-models.md#a-model-on-objects); for \
                 [sequences of vectors](../elements/trtpreprocess.md#sequences-of-vectors) its param `vector`, or `GstTrtVectorMeta`",
            ),
            ("writes", "the tensors, for trtinfer and trtnms only: [architecture](../architecture.md)"),
        ],
    ),
    (
        "trtinfer",
        &[
            ("posts", "progress messages while a model is loaded or its engine is built; warnings"),
            ("writes", "the outputs, for trtnms only; with `tensor-meta=true` also `GstTensorMeta`"),
        ],
    ),
    (
        "trtnms",
        &[
            ("posts", "`trt-detections`, with `post-messages=true`: [results](../metas.md#messages)"),
            (
                "writes",
                "`GstVideoRegionOfInterestMeta`, `GstTrtClassificationMeta`, `GstTrtTextMeta`, `GstTrtVectorMeta`, `GstTrtMapMeta`; from \
                 GStreamer 1.24 on `GstAnalyticsODMtd` and `GstAnalyticsClsMtd`, from 1.26 on `GstAnalyticsSegmentationMtd`: [results](../metas.md)",
            ),
        ],
    ),
    (
        "trttrack",
        &[
            ("posts", "`trt-detections`, with `post-messages=true`: [results](../metas.md#messages)"),
            (
                "reads",
                "the metas that [trtoverlay](trtoverlay.md) reads, and the param `vector` of `GstVideoRegionOfInterestMeta`",
            ),
            (
                "writes",
                "the param `object_id` of `GstVideoRegionOfInterestMeta`; from GStreamer 1.24 on `GstAnalyticsTrackingMtd`: \
                 [results](../metas.md)",
            ),
        ],
    ),
    (
        "trtmatch",
        &[
            ("posts", "`trt-match`, `trt-identity`: [trtmatch](../elements/trtmatch.md#messages)"),
            ("reads", "the params `vector` and `object_id` of `GstVideoRegionOfInterestMeta`"),
            (
                "writes",
                "the params `classification` and `identity` of `GstVideoRegionOfInterestMeta`; from GStreamer 1.24 on \
                 `GstAnalyticsClsMtd`: [results](../metas.md#classification)",
            ),
        ],
    ),
    (
        "trtanalytics",
        &[
            ("posts", "`trt-event`: [trtanalytics](../elements/trtanalytics.md#events)"),
            (
                "reads",
                "`GstVideoRegionOfInterestMeta` with ids; from GStreamer 1.24 on `GstAnalyticsODMtd` and `GstAnalyticsTrackingMtd`",
            ),
            (
                "writes",
                "`GstTrtEventMeta`, `GstTrtZoneMeta`, and the param `analytics` of `GstVideoRegionOfInterestMeta`: \
                 [trtanalytics](../elements/trtanalytics.md#metas)",
            ),
        ],
    ),
    (
        "trtoverlay",
        &[(
            "reads",
            "`GstVideoRegionOfInterestMeta`, `GstTrtClassificationMeta`, `GstTrtTextMeta`, `GstTrtMapMeta`, `GstTrtZoneMeta`; from \
             GStreamer 1.24 on `GstAnalyticsODMtd`, `GstAnalyticsTrackingMtd` and `GstAnalyticsClsMtd`, from 1.26 on `GstAnalyticsSegmentationMtd`: \
             [trtoverlay](../elements/trtoverlay.md#metas)",
        )],
    ),
    ("trtpublish", &[("reads", "the metas that [trtoverlay](trtoverlay.md) reads, and `GstTrtEventMeta`")]),
];

fn page(factory: &gst::ElementFactory) -> String {
    let name = factory.name();
    let mut page = format!(
        "# {name}\n\n{}. {}.\n\n[How and why](../elements/{name}.md). `gst-inspect-1.0 {name}` shows the same; this page is made from the \
         element. Do not edit it.\n",
        factory.metadata("long-name").unwrap(),
        factory.metadata("description").unwrap()
    );
    let properties = properties(factory);
    page.push_str("\n## Properties\n\n| property | type | default | set in | |\n|---|---|---|---|---|\n");
    for property in &properties {
        let (kind, default) = kind(property);
        let (name, text) = (property.name(), cell(property.blurb().unwrap_or_default()));
        writeln!(page, "| `{name}` | {kind} | {default} | {} | {text} |", access(property)).unwrap();
    }
    for property in properties.iter().filter(|property| !values(property).is_empty()) {
        let name = property.name();
        writeln!(page, "\n### Values of {name}\n\n| `{name}` | |\n|---|---|").unwrap();
        for value in values(property) {
            writeln!(page, "| `{}` | {} |", value.nick(), cell(value.name())).unwrap();
        }
    }
    let signals = signals(factory);
    if !signals.is_empty() {
        page.push_str("\n## Signals\n\n| signal | arguments | returns | |\n|---|---|---|---|\n");
    }
    for signal in signals {
        let arguments: Vec<_> = signal.param_types().iter().map(|kind| format!("`{}`", kind.type_())).collect();
        let (name, returned) = (signal.signal_name(), signal.return_type().type_());
        let returned = if returned == glib::Type::UNIT { String::new() } else { format!("`{returned}`") };
        let action = if signal.flags().contains(glib::SignalFlags::ACTION) { "emitted by the application" } else { "" };
        writeln!(page, "| `{name}` | {} | {returned} | {action} |", arguments.join(", ")).unwrap();
    }
    page.push_str("\n## Messages and metas\n\n| | |\n|---|---|\n");
    let (_, results) = RESULTS.iter().find(|(element, _)| *element == name).expect("each element has a row");
    results.iter().for_each(|(does, what)| writeln!(page, "| {does} | {what} |").unwrap());
    page.push_str("\n## Pads\n");
    for template in factory.static_pad_templates() {
        let presence = format!("{:?}", template.presence()).to_lowercase();
        let (name, direction) = (template.name_template(), format!("{:?}", template.direction()).to_lowercase());
        writeln!(page, "\n`{name}`, a {direction} pad, {presence} there:\n\n```text\n{}```", caps(&template.caps()))
            .unwrap();
    }
    page
}

/// Text in a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('>', "&gt;")
}

fn caps(caps: &gst::Caps) -> String {
    let mut text = String::new();
    for (structure, features) in caps.iter_with_features() {
        writeln!(text, "{}({features})", structure.name()).unwrap();
        for (field, value) in structure.iter() {
            writeln!(text, "  {field}: {}", value.serialize().unwrap().replace("(string)", "")).unwrap();
        }
    }
    if caps.is_any() { "ANY\n".into() } else { text }
}

/// Type with range, and default, of a property.
fn kind(property: &glib::ParamSpec) -> (String, String) {
    fn number<T: std::fmt::Debug + PartialEq>(
        name: &str,
        (low, high): (T, T),
        whole: (T, T),
        default: T,
    ) -> (String, String) {
        let range = match (low == whole.0, high == whole.1) {
            (true, true) => String::new(),
            (false, true) => format!(" from {low:?}"),
            (true, false) => format!(" to {high:?}"),
            (false, false) => format!(", {low:?} to {high:?}"),
        };
        (format!("{name}{range}"), format!("`{default:?}`"))
    }
    macro_rules! numbers {
        ($($spec:ident $type:ident $name:literal)*) => {$(
            if let Some(spec) = property.downcast_ref::<glib::$spec>() {
                return number($name, (spec.minimum(), spec.maximum()), ($type::MIN, $type::MAX), spec.default_value());
            }
        )*};
    }
    numbers! { ParamSpecInt i32 "int" ParamSpecUInt u32 "unsigned int" ParamSpecUInt64 u64 "unsigned 64-bit int" ParamSpecFloat f32 "float" ParamSpecDouble f64 "double" }
    let default = property.default_value();
    match property.value_type() {
        glib::Type::BOOL => ("boolean".into(), format!("`{}`", default.get::<bool>().unwrap())),
        glib::Type::STRING => (
            "string".into(),
            default.get::<Option<String>>().unwrap().map_or(String::new(), |text| format!("`{text}`")),
        ),
        kind if kind.is_a(glib::Type::ENUM) => {
            let (_, value) = glib::EnumValue::from_value(default).unwrap();
            (format!("[{kind}](#values-of-{})", property.name()), format!("`{}`", value.nick()))
        }
        kind => (kind.to_string(), String::new()),
    }
}

fn access(property: &glib::ParamSpec) -> &'static str {
    let flags = property.flags();
    if !flags.contains(glib::ParamFlags::READABLE) {
        // Only what nobody may read.
        assert_eq!(property.name(), "password");
        "NULL, READY; never read"
    } else if !flags.contains(glib::ParamFlags::WRITABLE) {
        "read only"
    } else if flags.contains(gst::PARAM_FLAG_MUTABLE_PLAYING) {
        "any state"
    } else if flags.contains(gst::PARAM_FLAG_MUTABLE_PAUSED) {
        "NULL to PAUSED"
    } else {
        assert!(flags.contains(gst::PARAM_FLAG_MUTABLE_READY), "{} does not say when it may be set", property.name());
        "NULL, READY"
    }
}

/// The signals that the element itself brings.
fn signals(factory: &gst::ElementFactory) -> Vec<SignalQuery> {
    use glib::translate::{IntoGlib, from_glib};
    let mut count = 0;
    // SAFETY: the type is loaded; the list has that many ids, and is ours to free.
    let ids: Vec<SignalId> = unsafe {
        let list = glib::gobject_ffi::g_signal_list_ids(factory.element_type().into_glib(), &mut count);
        let ids = (0..count as usize).map(|at| from_glib(*list.add(at))).collect();
        glib::ffi::g_free(list.cast());
        ids
    };
    ids.into_iter().map(|id| id.query()).collect()
}

#[test]
fn pages_show_the_elements_as_they_are() {
    let mut stale = String::new();
    for factory in factories() {
        let path = crate::common::path(&format!("docs/reference/{}.md", factory.name()));
        let found = page(&factory);
        if std::env::var_os("UPDATE_SNAPSHOT").is_some() {
            std::fs::write(&path, &found).unwrap();
        }
        let difference = difference(&std::fs::read_to_string(&path).unwrap_or_default(), &found);
        if !difference.is_empty() {
            writeln!(stale, "{path}:\n{difference}").unwrap();
        }
    }
    assert!(stale.is_empty(), "UPDATE_SNAPSHOT=1 cargo nextest run reference:: takes this over:\n{stale}");
}

/// No page of an element that is gone.
#[test]
fn there_are_two_pages_for_each_element() {
    for folder in ["docs/reference", "docs/elements"] {
        let mut pages: Vec<_> =
            std::fs::read_dir(crate::common::path(folder)).unwrap().map(|page| page.unwrap().path()).collect();
        pages.sort();
        let mut wanted =
            ELEMENTS.map(|name| std::path::PathBuf::from(crate::common::path(&format!("{folder}/{name}.md"))));
        wanted.sort();
        assert_eq!(pages, wanted);
    }
}

/// What a reader looks for is at the same place in each, and no cell of a table is a page of its own.
#[test]
fn the_pages_of_the_elements_have_one_shape() {
    for element in ELEMENTS {
        let page = std::fs::read_to_string(crate::common::path(&format!("docs/elements/{element}.md"))).unwrap();
        assert!(page.starts_with(&format!("# {element}\n\n")), "{element}");
        let headings: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings[..5], ["Where it runs", "Caps", "Properties", "Messages", "Metas"], "{element}");
        assert_eq!(headings.last(), Some(&"Example"), "{element}");
        assert!(page.contains(&format!("(../reference/{element}.md)")), "{element} names all properties");
        for cell in page.lines().filter(|line| line.starts_with('|')).flat_map(|row| row.split('|')) {
            assert!(cell.chars().count() <= 200, "{element}: a sentence of its own, not a cell: {cell}");
        }
    }
}

/// What the tables of messages and metas name is in the page of the element too.
#[test]
fn messages_and_metas_are_described() {
    for (element, results) in RESULTS {
        let page = std::fs::read_to_string(crate::common::path(&format!("docs/elements/{element}.md"))).unwrap();
        let words = results.iter().flat_map(|(_, what)| what.split('`').skip(1).step_by(2));
        for name in words.filter(|word| word.starts_with("Gst") || word.starts_with("trt-")) {
            assert!(page.contains(name), "docs/elements/{element}.md does not say what {name} is");
        }
    }
}

/// The lines between equal beginnings and equal ends, marked as in a diff.
fn difference(expected: &str, found: &str) -> String {
    let (expected, found): (Vec<_>, Vec<_>) = (expected.lines().collect(), found.lines().collect());
    let start = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
    let (expected, found) = (&expected[start..], &found[start..]);
    let end = expected.iter().rev().zip(found.iter().rev()).take_while(|(a, b)| a == b).count();
    let lines = |sign: char, lines: &[&str]| lines.iter().map(|line| format!("{sign}{line}\n")).collect::<String>();
    let text = lines('-', &expected[..expected.len() - end]) + &lines('+', &found[..found.len() - end]);
    if text.is_empty() { text } else { format!("@@ line {} @@\n{text}", start + 1) }
}

#[test]
fn differences_show_the_lines_that_differ() {
    assert_eq!(difference("a\nb\nc\n", "a\nb\nc\n"), "");
    assert_eq!(difference("a\nb\nc\n", "a\nx\nc\n"), "@@ line 2 @@\n-b\n+x\n");
    assert_eq!(difference("a\na\n", "a\na\na\n"), "@@ line 3 @@\n+a\n");
    assert_eq!(difference("", "a\n"), "@@ line 1 @@\n+a\n");
}
