// SPDX-License-Identifier: MPL-2.0
//! Names of classes: from the metadata of the model or a label file, in any script, attached, drawn and published.

use crate::common::boxes::{GREY, Line, drawn, graph, model};
use crate::common::{init, scratch};

/// One box on even pixels.
const ONE: [[f32; 6]; 1] = [[20.0, 24.0, 44.0, 40.0, 0.9, 0.0]];

/// Of the classes 0, 0 and 2.
const ROWS: [[f32; 6]; 3] =
    [[8.0, 8.0, 24.0, 24.0, 0.9, 0.0], [12.0, 8.0, 28.0, 24.0, 0.7, 0.0], [40.0, 40.0, 56.0, 48.0, 0.3, 2.0]];

#[test]
fn classes_without_a_name_have_their_number() {
    let nameless = graph("output0", &ROWS).save(&scratch("nameless").join("boxes.onnx"));
    let mut line = Line::new(&nameless, "draw=false classes=0,2");
    assert_eq!(line.labels().join(" "), "#0 #0 #2");
}

#[test]
fn a_label_file_that_replaces_the_models_names_is_reported() {
    let folder = scratch("renamed");
    let model = model(&folder, &ONE);
    for (labels, count) in [("ant\nbee\ncat\n", 1), ("a\nb\nc\n", 0)] {
        let file = folder.join("labels.txt");
        std::fs::write(&file, labels).unwrap();
        let mut line = Line::new(&model, &format!("label-file={}", file.display()));
        line.found();
        let notes = line.notes();
        let reported = notes.iter().filter(|note| note.contains("labels.txt") && note.contains("boxes.onnx"));
        assert_eq!(reported.count(), count, "{notes:?}");
    }
}

/// Metadata as real files have it. What cannot be read costs the names, not the model, and a label file brings them.
#[test]
fn names_that_cannot_be_read_are_said_and_replaced() {
    let folder = scratch("unread-names");
    let file = folder.join("labels.txt");
    std::fs::write(&file, "ant\nbee\ncat\n").unwrap();
    let long = format!("['{}']", "x".repeat(100_000));
    let nested = format!("{}1{}", "[".repeat(30), "]".repeat(30));
    for (names, label, is_said) in [
        ("None", "#0", false),
        ("", "#0", false),
        ("{}", "#0", false),
        ("[]", "#0", false),
        ("{0: 7, 1: 8, 2: 9}", "7", false),
        ("{0: False, 1: True, 2: 'c'}", "False", false),
        ("{0: 'a', 5: 'b'}", "#0", true),
        ("{1: 'a', 2: 'b'}", "#0", true),
        ("{0: 'a', 1: ", "#0", true),
        ("{0: None}", "#0", true),
        ("person", "#0", true),
        (&long, "#0", true),
        (&nested, "#0", true),
    ] {
        let model = graph("output0", &ONE).metadata("names", names).save(&folder.join("named.onnx"));
        let said = |line: &Line| {
            let mut notes = line.notes();
            notes.retain(|note| note.contains("has no class names that can be read: names = “"));
            assert!(notes.iter().all(|note| note.contains("named.onnx") && note.contains("Set label-file on trtnms")));
            notes.len()
        };
        let start: String = names.chars().take(30).collect();
        let mut line = Line::new(&model, "draw=false");
        assert_eq!(line.labels(), [label], "{start}");
        assert_eq!((said(&line), line.said().len()), (usize::from(is_said), 0), "{start}");
        let mut line = Line::new(&model, &format!("draw=false label-file={}", file.display()));
        assert_eq!(line.labels(), ["ant"], "{start}");
        assert_eq!((said(&line), line.said().len()), (0, 0), "{start}");
    }
}

/// In Latin script, and in those that the letters of the overlay do not have.
const NAMES: [&str; 6] = ["größe", "łódź", "犬", "кот", "🐈‍⬛", "قطة"];

#[test]
fn names_in_any_script_are_attached_and_published_as_they_are() {
    let folder = scratch("scripts");
    for (at, name) in NAMES.iter().enumerate() {
        let escaped: String = name.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        let file = folder.join("labels.txt");
        // As Windows' editor writes it.
        std::fs::write(&file, format!("\u{feff}{name}\r\nb\r\n")).unwrap();
        let named = graph("output0", &ONE).metadata("names", &format!("{{0: '{name}', 1: 'b'}}"));
        let json = graph("output0", &ONE).metadata("names", &format!("[\"{escaped}\", \"b\"]"));
        let nameless = graph("output0", &ONE);
        let label_file = format!("label-file={}", file.display());
        for (how, graph, nms) in [("python", named, ""), ("json", json, ""), ("file", nameless, &label_file)] {
            let model = graph.save(&folder.join(format!("{how}.onnx")));
            let published = folder.join(format!("{at}-{how}.jsonl"));
            let mut line = Line::parse(&format!(
                "trtpreprocess ! trtinfer model-file={model} ! trtnms post-messages=true {nms} ! trtpublish location={}",
                published.display()
            ));
            assert_eq!(line.labels(), [*name], "{how}");
            let posted = line.messages().into_iter().find(|message| message.name() == "trt-detections").unwrap();
            let detections: gst::Array = posted.get("detections").unwrap();
            let detection: gst::Structure = detections[0].get().unwrap();
            assert_eq!(detection.get::<String>("label").as_deref(), Ok(*name), "{how}");
            line.push_event(gst::event::Eos::new());
            let text = std::fs::read_to_string(&published).unwrap();
            let message: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            assert!(text.contains(name) || message.to_string().contains(name), "{how}: {text}");
        }
    }
}

/// Letters that the font lacks are drawn as question marks, one for each.
#[test]
fn what_the_font_lacks_is_drawn_as_question_marks() {
    init();
    let folder = scratch("glyphs");
    let picture = |name: &str| {
        let graph = graph("output0", &[[4.0, 40.0, 60.0, 60.0, 0.9, 0.0]]).metadata("names", &format!("['{name}']"));
        let model = graph.save(&folder.join("named.onnx"));
        drawn(&format!("trtpreprocess ! trtinfer model-file={model} ! trtnms"), "RGB", (320, 240))
    };
    assert_eq!(picture("犬x"), picture("?x"));
    assert_eq!(picture("кот"), picture("???"));
    assert_ne!(picture("größe"), picture("gr??e"));
    assert!(picture("größe").iter().any(|&sample| sample != GREY));
}

/// Metadata in another encoding cost the names at most, never the model.
#[test]
fn text_that_is_not_utf_8_is_told() {
    let folder = scratch("latin1");
    let latin1 = b"{0: 'Stra\xdfe', 1: 'b'}";
    let file = folder.join("labels.txt");
    std::fs::write(&file, "straße\nb\n").unwrap();
    for (key, is_said) in [("names", true), ("comment", false)] {
        let model = graph("output0", &ONE).metadata_bytes(key, latin1).save(&folder.join("latin1.onnx"));
        let mut line = Line::new(&model, "layout=end-to-end");
        assert_eq!(line.labels(), ["#0"], "{key}");
        let notes = line.notes();
        let wanted = "no class names that can be read: names = “{0: 'Stra\u{fffd}e', 1: 'b'}”, which is not UTF-8. Set label-file";
        assert_eq!((notes.len(), line.said().len()), (usize::from(is_said), 0), "{notes:?}");
        assert!(notes.iter().all(|note| note.contains(wanted)), "{notes:?}");
        let mut line = Line::new(&model, &format!("layout=end-to-end label-file={}", file.display()));
        assert_eq!(line.labels(), ["straße"], "{key}");
        assert_eq!((line.notes().len(), line.said().len()), (0, 0), "{key}");
    }
}
