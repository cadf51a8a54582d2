// SPDX-License-Identifier: MPL-2.0
//! `gst-trt detect --parquet`: the rows are what `--json` says of the same run.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::record::Field;
use serde_json::{Map, json};

use super::*;
use crate::common::onnx::BOOL;
use crate::common::path;
use crate::common::terminal::signal;

/// The rows of a table, with the names of its columns.
pub fn rows(file: &Path) -> Vec<Value> {
    let reader = SerializedFileReader::new(std::fs::File::open(file).unwrap()).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| fields(row.unwrap().get_column_iter())).collect()
}

fn fields<'a>(columns: impl Iterator<Item = (&'a String, &'a Field)>) -> Value {
    Value::Object(columns.map(|(name, field)| (name.clone(), value(field))).collect::<Map<_, _>>())
}

fn value(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Int(number) => (*number).into(),
        Field::Long(number) => (*number).into(),
        Field::Float(number) => (*number).into(), // NaN becomes null
        Field::Double(number) => (*number).into(),
        Field::Str(text) => text.as_str().into(),
        Field::Group(row) => fields(row.get_column_iter()),
        Field::ListInternal(list) => list.elements().iter().map(value).collect(),
        other => panic!("{other:?}"),
    }
}

/// An object of a line, as the columns of a row have it.
fn of_line(object: &Value) -> Value {
    const NAMES: [&str; 16] = [
        "label",
        "class-id",
        "confidence",
        "x",
        "y",
        "w",
        "h",
        "track-id",
        "angle",
        "corners",
        "keypoints",
        "mask-x",
        "mask-y",
        "mask-width",
        "mask-height",
        "mask-counts",
    ];
    NAMES.into_iter().map(|name| (name.replace('-', "_"), object[name].clone())).collect::<Map<_, _>>().into()
}

/// Lines have fewer digits.
fn are_same(row: &Value, line: &Value) -> bool {
    match (row, line) {
        (Value::Number(row), Value::Number(line)) => (row.as_f64().unwrap() - line.as_f64().unwrap()).abs() < 0.002,
        (Value::Array(row), Value::Array(line)) => {
            row.len() == line.len() && row.iter().zip(line).all(|(row, line)| are_same(row, line))
        }
        (row, line) => row == line,
    }
}

fn expect_same(row: &Value, line: &Value) {
    for (name, value) in line.as_object().unwrap() {
        assert!(are_same(&row[name], value), "{name}: {row} {line}");
    }
}

/// What all rows of a frame have.
fn of_frame(line: &Value, source: &str) -> Value {
    json!({
        "source": source,
        "frame": line["frame"],
        "time": line["stream-time"].as_u64().map(|time| time as f64 / 1e9),
        "width": line["width"],
        "height": line["height"],
        "error": null,
    })
}

#[test]
fn rows_are_the_objects_of_the_lines() {
    let folder = scratch("parquet-objects");
    let clip = |name: &str| path(&format!("tests/data/{name}.mp4"));
    let model = |name: &str| path(&format!("tests/models/{name}.onnx"));
    for (number, (clip, model, column)) in [
        (clip("sample"), shapes(), "track_id"),
        (clip("shapes"), model("shapes-seg"), "mask_counts"),
        (clip("shapes"), model("shapes-obb"), "corners"),
        (clip("pose"), model("figures-pose"), "keypoints"),
        (clip("classes"), model("shapes-cls"), "class_id"),
    ]
    .iter()
    .enumerate()
    {
        let (table, json) = (format!("{number}.parquet"), format!("{number}.jsonl"));
        let mut more = vec!["--frames", "4", "--backend", "rten", "--json", &json, "--parquet", &table];
        more.extend((*column == "track_id").then_some("--track"));
        let output = detect(&folder, clip, model, &more);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains(&format!("wrote       {table}")), "{}", text(&output.stdout));
        let rows = rows(&folder.join(&table));
        let source = std::path::absolute(clip).unwrap().display().to_string();
        let mut left = rows.iter();
        for line in lines(&folder.join(&json)) {
            for object in
                line["detections"].as_array().unwrap().iter().chain(line["classes"].as_array().into_iter().flatten())
            {
                let row = left.next().unwrap();
                expect_same(row, &of_frame(&line, &source));
                expect_same(row, &of_line(object));
            }
        }
        assert!(
            left.next().is_none() && rows.len() > 3 && rows.iter().any(|row| !row[column].is_null()),
            "{column}: {rows:?}"
        );
    }
    assert!(
        !files(&folder).iter().any(|file| file.ends_with(".mp4") || file.ends_with(".part")),
        "{:?}",
        files(&folder)
    );
}

#[test]
fn rows_are_of_frames_or_tracks_where_that_is_wanted() {
    let folder = scratch("parquet-rows");
    let run = |rows: &str, more: &[&str]| {
        let (table, json) = (format!("{rows}.parquet"), format!("{rows}.jsonl"));
        let args = ["--frames", "9", "--infer", "interval=4", "--json", &json, "--parquet", &table, "--rows", rows];
        let output = detect(&folder, &sample(), &shapes(), &[&args[..], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        (self::rows(&folder.join(table)), lines(&folder.join(json)))
    };
    let source = std::path::absolute(sample()).unwrap().display().to_string();
    // The last two frames have no object.
    let (frames, lines) = run("frames", &["--nms", "hold-detections=false"]);
    assert_eq!((frames.len(), lines.len()), (9, 9));
    for (row, line) in frames.iter().zip(&lines) {
        let objects = line["detections"].as_array().unwrap();
        expect_same(row, &of_frame(line, &source));
        assert_eq!(row["count"], objects.len());
        assert_eq!(row["objects"].as_array().unwrap().len(), objects.len());
        row["objects"].as_array().unwrap().iter().zip(objects).for_each(|(row, line)| expect_same(row, &of_line(line)));
    }
    let counts: Vec<_> = frames.iter().map(|row| row["count"].as_i64().unwrap()).collect();
    assert!(counts[0] > 0 && counts[1] == 0, "{counts:?}");

    let (tracks, lines) = run("tracks", &[]);
    let objects: Vec<(&Value, &Value)> = lines
        .iter()
        .flat_map(|line| line["detections"].as_array().unwrap().iter().map(move |object| (line, object)))
        .collect();
    assert!(tracks.len() > 3, "{tracks:?}");
    for track in &tracks {
        let seen: Vec<_> = objects.iter().filter(|(_, object)| object["track-id"] == track["track_id"]).collect();
        let confidence = |(_, object): &(&Value, &Value)| object["confidence"].as_f64().unwrap();
        let best = seen
            .iter()
            .copied()
            .reduce(|best, other| if confidence(other) > confidence(best) { other } else { best })
            .unwrap();
        let mean = seen.iter().map(|seen| confidence(seen)).sum::<f64>() / seen.len() as f64;
        let (first, last) = (seen[0].0, seen.last().unwrap().0);
        let time = |line: &Value| line["stream-time"].as_u64().unwrap() as f64 / 1e9;
        let wanted = json!({
            "source": source, "label": best.1["label"], "class_id": best.1["class-id"], "frames": seen.len(),
            "first_frame": first["frame"], "last_frame": last["frame"], "first_time": time(first), "last_time": time(last),
            "mean_confidence": mean, "best_frame": best.0["frame"], "best_time": time(best.0), "confidence": confidence(best),
            "x": best.1["x"], "y": best.1["y"], "w": best.1["w"], "h": best.1["h"], "width": 640, "height": 360, "error": null,
        });
        expect_same(track, &wanted);
    }
}

/// What models on objects say, as the lists of a row have it.
fn said_of(object: &Value) -> Value {
    let said = object["attributes"].as_array();
    let list = |name: &str| -> Value {
        said.map(|said| said.iter().map(|attribute| attribute[name].clone()).collect::<Vec<_>>()).into()
    };
    json!({
        "attributes": list("label"),
        "attribute_class_ids": list("class-id"),
        "attribute_confidences": list("confidence"),
    })
}

#[test]
fn what_models_on_objects_say_has_columns() {
    let folder = scratch("parquet-on-objects");
    let kinds = classifier(&folder.join("kinds.onnx"), "bright", "dark");
    let reader = reader(&folder.join("reader.onnx"));
    let vectors = embedder(&folder.join("reid.onnx"));
    let models = [
        ["--on-objects", &kinds, "--object-options", "object-classes=disc"],
        ["--on-objects", &reader, "--object-options", "object-classes=disc"],
        ["--on-objects", &vectors, "--object-options", "layout=embed object-classes=box"],
    ];
    let run = |rows: &str, more: &[&str]| {
        let (table, json) = (format!("{rows}.parquet"), format!("{rows}.jsonl"));
        let files = ["--backend", "rten", "--frames", "8", "--json", &json, "--parquet", &table, "--rows", rows];
        let output = detect(&folder, &sample(), &shapes(), &[&files[..], &models.concat(), more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        (self::rows(&folder.join(table)), lines(&folder.join(json)))
    };
    let (rows, lines_of_objects) = run("objects", &["--vectors"]);
    let objects: Vec<&Value> =
        lines_of_objects.iter().flat_map(|line| line["detections"].as_array().unwrap()).collect();
    assert_eq!(rows.len(), objects.len());
    let (mut classes, mut texts, mut with_vector) = (0, 0, 0);
    for (row, object) in rows.iter().zip(objects) {
        expect_same(row, &of_line(object));
        expect_same(row, &said_of(object));
        let list = |name: &str| row[name].as_array().into_iter().flatten();
        for (label, class) in list("attributes").zip(list("attribute_class_ids")) {
            // A text has no class.
            assert_eq!(class.is_null(), label == "Hi", "{row}");
            *(if label == "Hi" { &mut texts } else { &mut classes }) += 1;
        }
        let wanted = object["vectors"][0].as_str().map(|text| gsttrt_core::vector::of_text(text).unwrap());
        let wanted: Option<Vec<f64>> = wanted.map(|numbers| numbers.into_iter().map(f64::from).collect());
        let found: Option<Vec<f64>> =
            row["vector"].as_array().map(|numbers| numbers.iter().map(|number| number.as_f64().unwrap()).collect());
        assert_eq!(found, wanted, "{row}");
        with_vector += usize::from(!row["vector"].is_null());
    }
    assert!(classes > 0 && texts > 0 && with_vector > 0, "{classes} {texts} {with_vector}");

    let (frames, lines) = run("frames", &[]);
    for (row, line) in frames.iter().zip(&lines) {
        for (row, line) in row["objects"].as_array().unwrap().iter().zip(line["detections"].as_array().unwrap()) {
            expect_same(row, &of_line(line));
            expect_same(row, &said_of(line));
            assert!(row["vector"].is_null(), "they were not wanted: {row}");
        }
    }

    let (tracks, lines) = run("tracks", &[]);
    assert!(tracks.iter().any(|track| !track["attributes"].is_null()), "{tracks:?}");
    for track in &tracks {
        let mut objects = lines.iter().flat_map(|line| line["detections"].as_array().unwrap());
        let last = objects.rfind(|object| object["track-id"] == track["track_id"]).unwrap();
        expect_same(track, &said_of(last));
    }
}

#[test]
fn vectors_of_whole_frames_are_rows_without_a_box() {
    let folder = scratch("parquet-vectors");
    let vectors = embedder(&folder.join("reid.onnx"));
    common::picture(&folder.join("picture.png"), 64, 48);
    let run = |more: &[&str]| {
        let given = ["--backend", "rten", "--nms", "layout=embed", "--parquet", "found.parquet"];
        detect(&folder, "picture.png", &vectors, &[&given[..], more].concat())
    };
    let refused = run(&[]);
    assert!(text(&refused.stderr).contains("reid.onnx says has no column"), "{}", text(&refused.stderr));
    let output = run(&["--vectors"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = rows(&folder.join("found.parquet"));
    let [row] = &rows[..] else { panic!("{rows:?}") };
    let length: f64 = row["vector"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap().powi(2)).sum();
    assert!((length - 1.0).abs() < 1e-5 && row["label"].is_null() && row["x"].is_null(), "{row}");
}

/// What would be lost without a word is an error.
#[test]
fn a_table_has_the_vectors_of_one_model() {
    let folder = scratch("parquet-two-vectors");
    let vectors = embedder(&folder.join("reid.onnx"));
    let other = embedder(&folder.join("faces.onnx"));
    // Also where each object has one.
    for (first, second) in [("", ""), (" object-classes=disc", " object-classes=box")] {
        let options = [first, second].map(|classes| format!("layout=embed{classes}"));
        let models = [
            ["--on-objects", &vectors, "--object-options", &options[0]],
            ["--on-objects", &other, "--object-options", &options[1]],
        ];
        let more = ["--backend", "rten", "--frames", "2", "--vectors", "--parquet", "found.parquet"];
        let output = detect(&folder, &sample(), &shapes(), &[&more[..], &models.concat()].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
        assert!(text(&output.stderr).contains("Several models give vectors"), "{}", text(&output.stderr));
        assert!(!files(&folder).iter().any(|file| file.contains("parquet")), "{:?}", files(&folder));
    }
}

#[test]
fn what_cannot_be_read_is_a_row_with_its_error() {
    let folder = scratch("parquet-unreadable");
    std::fs::create_dir(folder.join("archive")).unwrap();
    std::fs::copy(sample(), folder.join("archive/good.mp4")).unwrap();
    let whole = std::fs::read(sample()).unwrap();
    std::fs::write(folder.join("archive/cut.mp4"), &whole[..whole.len() / 2]).unwrap();
    std::fs::write(folder.join("archive/words.mp4"), "hello").unwrap();
    common::picture(&folder.join("archive/picture.jpg"), 64, 48);
    std::fs::write(folder.join("archive/bad.jpg"), "hello").unwrap();
    let shown = |name: &str| std::path::absolute(folder.join("archive").join(name)).unwrap().display().to_string();
    let shapes = shapes();
    let args = ["detect", "archive/*", "--model", &shapes, "--frames", "2", "--rows", "frames", "--parquet"];
    let output = common::run(&folder, &[&args[..], &["found.parquet"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let rows = rows(&folder.join("found.parquet"));
    let of = |name: &str| rows.iter().filter(|row| row["source"] == shown(name)).collect::<Vec<_>>();
    for (name, frames, part) in [
        ("good.mp4", 2, ""),
        ("picture.jpg", 1, ""),
        ("cut.mp4", 0, "Cannot read archive/cut.mp4"),
        ("words.mp4", 0, "Cannot read archive/words.mp4"),
        ("bad.jpg", 0, "Cannot read archive/bad.jpg"),
    ] {
        let errors: Vec<_> = of(name).iter().filter_map(|row| row["error"].as_str()).collect();
        assert_eq!(of(name).len() - errors.len(), frames, "{name}: {rows:?}");
        assert_eq!(errors.len(), usize::from(!part.is_empty()), "{name}: {rows:?}");
        assert!(errors.iter().all(|error| error.contains(part)), "{errors:?}");
    }
    let picture = of("picture.jpg")[0];
    assert_eq!((&picture["frame"], &picture["time"], &picture["width"]), (&0.into(), &Value::Null, &64.into()));
    assert!(text(&output.stderr).contains("sources have no results") || text(&output.stderr).contains("images"));
    assert_eq!(files(&folder), ["archive", "found.parquet"], "other files are written only where that is asked for");

    // Nothing can be read: the table says so.
    let args = ["detect", "archive/words.mp4", "--model", &shapes, "--parquet", "nothing.parquet"];
    expect_failure(&common::run(&folder, &args), &args, &["Cannot read archive/words.mp4"]);
    let rows = self::rows(&folder.join("nothing.parquet"));
    assert_eq!((rows.len(), &rows[0]["source"]), (1, &shown("words.mp4").into()));
}

/// Rows of several lie between each other; those of each one are what they are one after the other.
#[test]
fn videos_that_are_read_at_the_same_time_have_the_same_rows() {
    let folder = scratch("parquet-at-once");
    let archive = folder.join("archive");
    std::fs::create_dir(&archive).unwrap();
    for number in 1..=5 {
        symlink(std::fs::canonicalize(sample()).unwrap(), archive.join(format!("{number}.mp4"))).unwrap();
    }
    std::fs::write(archive.join("3-words.mp4"), "hello").unwrap();
    let shapes = shapes();
    let run = |table: &str, at_once: &str| {
        let args = ["detect", "archive/*", "--model", &shapes, "--backend", "rten", "--frames", "3", "--track"];
        let output = common::run(&folder, &[&args[..], &["--at-once", at_once, "--parquet", table]].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("Cannot read archive/3-words.mp4"), "{}", text(&output.stderr));
        let mut of_each: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for row in rows(&folder.join(table)) {
            of_each.entry(row["source"].as_str().unwrap().to_string()).or_default().push(row);
        }
        of_each
    };
    let (in_turn, at_once) = (run("in-turn.parquet", "1"), run("at-once.parquet", "3"));
    assert_eq!(in_turn.len(), 6, "{in_turn:?}");
    assert!(in_turn.keys().eq(at_once.keys()), "{at_once:?}");
    for (source, wanted) in &in_turn {
        let found = &at_once[source];
        assert_eq!(found.len(), wanted.len(), "{source}: {found:?}");
        found.iter().zip(wanted).for_each(|(row, wanted)| expect_same(row, wanted));
    }
}

/// Tracks are kept by the name of their source until it ends.
#[test]
fn a_video_that_is_given_twice_is_read_twice_in_turn() {
    let folder = scratch("parquet-twice");
    let (sample, shapes) = (sample(), shapes());
    for (at_once, is_told) in [("1", false), ("8", true)] {
        let table = format!("{at_once}.parquet");
        let args = ["detect", &sample, &sample, "--model", &shapes, "--backend", "rten", "--frames", "2"];
        let output =
            succeed(&folder, &[&args[..], &["--at-once", at_once, "--rows", "frames", "--parquet", &table]].concat());
        let said = text(&output.stderr);
        let warning = "sample.mp4 is given twice, so --at-once 8 has no effect: files are read one after the other.";
        assert_eq!(said.contains("Warning: ") && said.contains(warning), is_told, "{said}");
        let frames: Vec<i64> = rows(&folder.join(&table)).iter().map(|row| row["frame"].as_i64().unwrap()).collect();
        assert_eq!(frames, [0, 1, 0, 1]);
    }
}

/// Its rows come up to where it ends. If no more is wanted than is there, nothing is missing.
#[test]
fn a_video_that_is_cut_off_has_rows_and_an_error() {
    let folder = scratch("parquet-cut");
    let whole = folder.join("whole.mp4");
    launch(&format!(
        "filesrc location={} ! qtdemux ! h264parse ! mp4mux faststart=true ! filesink location={}",
        sample(),
        whole.display()
    ));
    let bytes = std::fs::read(&whole).unwrap();
    let there = bytes.len() / 2;
    std::fs::write(folder.join("cut.mp4"), &bytes[..there]).unwrap();
    let run = |table: &str, more: &[&str]| {
        let given = ["--infer", "interval=100", "--rows", "frames", "--parquet", table];
        let output = detect(&folder, "cut.mp4", &shapes(), &[&given[..], more].concat());
        (output, rows(&folder.join(table)))
    };
    let (output, all) = run("all.parquet", &[]);
    let said = format!("Cannot read cut.mp4 to its end: {there} of {} bytes are there.", bytes.len());
    expect_failure(&output, &["cut.mp4"], &[&said, "What was found until then is written"]);
    let (errors, frames): (Vec<&Value>, Vec<&Value>) = all.iter().partition(|row| row["error"].is_string());
    assert!((100..300).contains(&frames.len()), "{}", frames.len());
    assert!(matches!(errors[..], [row] if row["error"].as_str().unwrap().starts_with(&said)), "{errors:?}");
    let (output, some) = run("some.parquet", &["--frames", "9"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(some.len() == 9 && some.iter().all(|row| row["error"].is_null()), "{some:?}");
}

/// Whatever bytes are in its name, wherever it leads, and whatever it is.
#[test]
fn each_name_that_a_pattern_finds_has_a_row() {
    let folder = scratch("parquet-names");
    let archive = folder.join("archive");
    std::fs::create_dir_all(archive.join("below/empty.mp4")).unwrap();
    let video = |name: &[u8]| symlink(std::fs::canonicalize(sample()).unwrap(), archive.join(OsStr::from_bytes(name)));
    for name in [&b"good.mp4"[..], b"caf\xe9.mp4", b"caf\xe8.mp4", b"below/deep.mp4"] {
        video(name).unwrap();
    }
    common::picture(&archive.join("good.jpg"), 64, 48);
    std::fs::copy(archive.join("good.jpg"), archive.join(OsStr::from_bytes(b"caf\xe9.jpg"))).unwrap();
    for name in ["gone.mp4", "gone.jpg"] {
        symlink("nowhere", archive.join(name)).unwrap();
    }
    symlink("loop.mp4", archive.join("loop.mp4")).unwrap();
    symlink("..", archive.join("below/up")).unwrap();
    let _socket = UnixListener::bind(archive.join("socket.mp4")).unwrap();
    let shapes = shapes();
    let args = ["detect", "archive/**/*", "--model", &shapes, "--frames", "2", "--rows", "frames", "--parquet"];
    let output = common::run(&folder, &[&args[..], &["found.parquet"]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let link = "it is a link to a file that is not there.";
    let rows = rows(&folder.join("found.parquet"));
    for (name, frames, part) in [
        ("good.mp4", 2, ""),
        ("caf\\xe9.mp4", 2, ""),
        ("caf\\xe8.mp4", 2, ""),
        ("below/deep.mp4", 2, ""),
        ("good.jpg", 1, ""),
        ("caf\\xe9.jpg", 1, ""),
        ("gone.mp4", 0, link),
        ("gone.jpg", 0, link),
        ("loop.mp4", 0, "Cannot read archive/loop.mp4: "),
        ("socket.mp4", 0, "it is a device or a socket"),
    ] {
        let source = std::path::absolute(folder.join("archive").join(name)).unwrap().display().to_string();
        let own: Vec<_> = rows.iter().filter(|row| row["source"] == source).collect();
        let errors: Vec<_> = own.iter().filter_map(|row| row["error"].as_str()).collect();
        assert_eq!(own.len() - errors.len(), frames, "{name}: {rows:?}");
        assert_eq!(errors.len(), usize::from(!part.is_empty()), "{name}: {rows:?}");
        assert!(errors.iter().all(|error| error.contains(part) && said.contains(error)), "{errors:?}: {said}");
    }
    assert_eq!(rows.len(), 4 * 2 + 2 + 4, "each is read once, though a link leads up again: {rows:?}");
}

/// It is no file, and not left out without a word.
#[test]
fn a_folder_that_a_pattern_finds_is_named() {
    let folder = scratch("parquet-folders");
    std::fs::create_dir_all(folder.join("archive/goodies")).unwrap();
    common::picture(&folder.join("archive/good.jpg"), 64, 48);
    let shapes = shapes();
    let args = |pattern: &'static str| {
        ["detect", pattern, "--model", &shapes, "--backend", "cpu", "--parquet", "found.parquet"]
    };
    let output = succeed(&folder, &args("archive/good*"));
    let warning = "Warning: The pattern archive/good* finds a folder, such as archive/goodies: left out. Give 'archive/goodies/*'";
    assert!(text(&output.stderr).contains(warning), "{}", text(&output.stderr));
    std::fs::remove_file(folder.join("found.parquet")).unwrap();
    let output = succeed(&folder, &args("archive/**/good*"));
    assert!(!text(&output.stderr).contains("left out"), "{}", text(&output.stderr));
    expect_failure(
        &common::run(&folder, &args("archive/goodi*")),
        &[],
        &["finds a folder and no file. Give 'archive/goodies/*'"],
    );
}

/// A terminal that is closed sends SIGHUP, and its shell another one: what was found until then is there.
#[test]
fn the_table_of_a_terminal_that_is_closed_is_written() {
    let folder = scratch("parquet-hangup");
    let args = ["detect", &sample(), "--model", &shapes(), "--backend", "cpu", "--json", "-"];
    let mut program = command(&folder);
    program.args(args).args(["--rows", "frames", "--parquet", "found.parquet"]);
    let mut program = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(program.stdout.take().unwrap()).lines();
    (0..3).for_each(|_| drop(out.next().unwrap().unwrap()));
    signal(&program, libc::SIGHUP);
    signal(&program, libc::SIGHUP);
    let lines = 3 + out.count();
    let output = program.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + libc::SIGHUP), "{}", text(&output.stderr));
    assert_eq!(files(&folder), ["found.parquet"]);
    assert_eq!(rows(&folder.join("found.parquet")).len(), lines);
    assert!(lines < 300, "{lines}");
}

/// Their maps are left out.
#[test]
fn anomalies_have_rows_of_their_scores() {
    let folder = scratch("parquet-anomalies");
    let model = Graph::new()
        .input("input", F32, &["1", "3", "64", "64"])
        .weight("half", F32, &[1], 0.5f32.to_le_bytes().into())
        .constant("pred_score", &[1], &[0.75])
        .node("Greater", &["pred_score", "half"], &["pred_label"], vec![])
        .output("pred_label", BOOL, &["1"])
        .constant("anomaly_map", &[1, 1, 8, 8], &[0.25; 64])
        .node("Greater", &["anomaly_map", "half"], &["pred_mask"], vec![])
        .output("pred_mask", BOOL, &["1", "1", "8", "8"])
        .save(&folder.join("anomaly.onnx"));
    let args =
        |table: &str| ["detect", &sample(), "--model", &model, "--frames", "2", "--parquet", table].map(String::from);
    let run = |table: &str, more: &[&str]| {
        let args = args(table);
        let args: Vec<&str> = args.iter().map(String::as_str).chain(more.iter().copied()).collect();
        (common::run(&folder, &args), args.join(" "))
    };
    let (output, line) = run("map.parquet", &[]);
    expect_failure(&output, &[&line], &["a map for each frame", "mask-output=none"]);
    let (output, line) = run("map.parquet", &["--json", "map.jsonl"]);
    expect_failure(&output, &[&line], &["a map for each frame", "in place of --parquet"]);
    let (output, line) = run("scores.parquet", &["--nms", "mask-output=none score-threshold=0"]);
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    let rows = rows(&folder.join("scores.parquet"));
    assert!(rows.len() == 2 && rows.iter().all(|row| row["label"] == "anomaly"), "{rows:?}");
    assert_eq!(files(&folder), ["anomaly.onnx", "scores.parquet"]);
}

#[test]
fn a_table_that_cannot_be_written_is_said_at_once() {
    let folder = scratch("parquet-failures");
    std::fs::write(folder.join("there.parquet"), "kept").unwrap();
    let map = path("tests/models/shapes-sem.onnx");
    let (sample, shapes) = (sample(), shapes());
    for (model, table, parts) in [
        (&shapes, "there.parquet", &["there.parquet already", "Give another name"][..]),
        (&shapes, "-", &["Cannot write Parquet to standard output", "found.parquet"]),
        (&shapes, ".", &["it is a folder"]),
        (&shapes, "/dev/full", &["it is a device or a pipe"]),
        (&shapes, "none/found.parquet", &["there is no folder none"]),
        (&sample, "found.parquet", &["sample.mp4"]),
        (&map, "map.parquet", &["a map for each frame", "--json", "mask-output=none"]),
    ] {
        let args = ["detect", &sample, "--model", model, "--frames", "3", "--parquet", table];
        let output = common::run(&folder, &args);
        expect_failure(&output, &args, parts);
        if *model == map {
            assert_eq!(text(&output.stderr).lines().count(), 1, "nothing is loaded: {}", text(&output.stderr));
        }
        assert_eq!(files(&folder), ["there.parquet"], "{table}");
    }
    assert_eq!(std::fs::read_to_string(folder.join("there.parquet")).unwrap(), "kept");
    // One of two files cannot be made: the other is not left behind.
    let args = ["detect", &sample, "--model", &shapes, "--parquet", "found.parquet", "--json", "none/found.jsonl"];
    expect_failure(&common::run(&folder, &args), &args, &["none/found.jsonl"]);
    assert_eq!(files(&folder), ["there.parquet"]);
    let args = ["detect", &sample, "--model", &shapes, "--rows", "tracks"];
    let output = common::run(&folder, &args);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("--parquet"), "{}", text(&output.stderr));
}
