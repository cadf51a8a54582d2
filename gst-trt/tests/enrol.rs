// SPDX-License-Identifier: MPL-2.0
//! `gst-trt enrol`: vectors of pictures in a gallery, and their end.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use common::models::{classifier, embedder, faces, inner, vector};
use common::{command, expect_failure, files, launch, picture, run, scratch, shapes, succeed, text};
use gsttrt_core::gallery::{Gallery, file};

/// A picture of one colour, as 0xAARRGGBB.
fn coloured(file: &Path, colour: u32) {
    launch(&format!(
        "videotestsrc num-buffers=1 pattern=solid-color foreground-color={colour} ! video/x-raw,format=RGB \
         ! pngenc ! filesink location={}",
        file.display()
    ));
}

fn gallery(folder: &Path) -> Gallery {
    file::read(&folder.join("people.jsonl")).unwrap()
}

#[test]
fn names_are_added_and_removed() {
    let folder = scratch("enrol");
    embedder(&folder.join("reid.onnx"));
    std::fs::create_dir(folder.join("photos")).unwrap();
    coloured(&folder.join("red.png"), 0xffff_0000);
    coloured(&folder.join("photos/1.png"), 0xff00_ff00);
    coloured(&folder.join("photos/2.png"), 0xff00_c800);
    std::fs::write(folder.join("photos/3.png"), "none").unwrap();
    let with = ["--model", "reid.onnx", "--gallery", "people.jsonl"];
    let shown = succeed(&folder, &[&["enrol", "Ada", "red.png"][..], &with].concat());
    let said = "Ada: 1 vector of 3 numbers written to people.jsonl, which has 1 vector of 1 name\n";
    assert_eq!(text(&shown.stdout), said);
    let shown = succeed(&folder, &[&["enrol", "Bob", "photos"][..], &with].concat());
    assert!(text(&shown.stdout).starts_with("Bob: 2 vectors of 3 numbers written"), "{shown:?}");
    assert!(text(&shown.stderr).contains("Warning: ") && text(&shown.stderr).contains("3.png"), "{shown:?}");
    let shown = succeed(&folder, &[&["enrol", "Eve", "photos/[12].png"][..], &with].concat());
    assert!(text(&shown.stdout).starts_with("Eve: 2 vectors of 3 numbers written"), "{shown:?}");
    succeed(&folder, &["enrol", "--remove", "Eve", "--gallery", "people.jsonl"]);
    let found = gallery(&folder);
    assert_eq!((found.names(), found.len()), (&["Ada".to_string(), "Bob".into()][..], 3));
    for (vector, name) in [([1.0, 0.0, 0.0], 0), ([0.0, 1.0, 0.0], 1)] {
        let best = found.find(&[&vector], 1)[0][0];
        assert!(best.name == name && best.similarity > 0.99, "{best:?}");
    }
    let remove = ["enrol", "--remove", "Bob", "--gallery", "people.jsonl"];
    assert_eq!(text(&succeed(&folder, &remove).stdout), "Bob: 2 vectors removed from people.jsonl\n");
    assert_eq!(gallery(&folder).names(), ["Ada"]);
    expect_failure(&run(&folder, &remove), &remove, &["There is no Bob in the gallery people.jsonl, which has Ada"]);
    assert_eq!(files(&folder), ["people.jsonl", "photos", "red.png", "reid.onnx"], "nothing is left over");
}

#[test]
fn a_folder_has_pictures_of_many_names() {
    let folder = scratch("enrol-folder");
    embedder(&folder.join("reid.onnx"));
    for name in ["people/Ada", "people/Eve", "people/Kim", "people/.old", "empty", "lonely/Ada", "odd/\u{202e}a\nb"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
    }
    coloured(&folder.join("people/Ada/1.png"), 0xffff_0000);
    coloured(&folder.join("people/Ada/2.png"), 0xffc8_0000);
    coloured(&folder.join("people/Bob.png"), 0xff00_ff00);
    coloured(&folder.join("people/.old/1.png"), 0xff00_00ff);
    std::fs::write(folder.join("people/Eve/1.png"), "none").unwrap();
    std::fs::write(folder.join("people/notes.txt"), "none").unwrap();
    std::fs::write(folder.join("odd/\u{202e}a\nb/1.png"), "none").unwrap();
    std::os::unix::fs::symlink("nothing.png", folder.join("people/Ada/3.png")).unwrap();
    let before = "{\"name\": \"Ada\", \"vector\": [0, 0, 1]}\n{\"name\": \"Eve\", \"vector\": [0, 1, 1]}\n";
    std::fs::write(folder.join("people.jsonl"), before).unwrap();
    let with = ["--model", "reid.onnx", "--gallery", "people.jsonl"];
    // The second time as the first one.
    for _ in 0..2 {
        let shown = succeed(&folder, &[&["enrol", "--folder", "people"][..], &with].concat());
        let said = "2 names: 3 vectors of 3 numbers written to people.jsonl, which has 4 vectors of 3 names\n";
        assert_eq!(text(&shown.stdout), said);
        assert!(text(&shown.stderr).contains("Warning: The folder people/Kim is empty"), "{shown:?}");
        assert!(text(&shown.stderr).contains("Warning: There is no vector of Eve, and the gallery keeps"), "{shown:?}");
        let found = gallery(&folder);
        assert_eq!(found.names(), ["Eve", "Ada", "Bob"]);
        for (vector, name) in [([1.0, 0.0, 0.0], 1), ([0.0, 1.0, 0.0], 2)] {
            let best = found.find(&[&vector], 1)[0][0];
            assert!(best.name == name && best.similarity > 0.99, "{best:?}");
        }
    }
    let before = std::fs::read(folder.join("people.jsonl")).unwrap();
    for (given, says) in [
        ("empty", "There are neither images nor folders of them in empty. Give each name a folder, such as empty/Ada"),
        ("lonely", "The folder lonely/Ada is empty"),
        ("reid.onnx", "Cannot read the folder reid.onnx: Not a directory"),
        ("none", "Cannot read the folder none: No such file"),
        ("odd", r#"Cannot use the name "\u{202e}a\nb": "#),
    ] {
        let args = [&["enrol", "--folder", given][..], &with].concat();
        expect_failure(&run(&folder, &args), &args, &[says]);
    }
    for given in [&["enrol", "Ada", "--folder", "people"][..], &["enrol", "--remove", "--folder", "people"]] {
        assert_eq!(run(&folder, &[given, &with].concat()).status.code(), Some(2), "{given:?}");
    }
    assert_eq!(std::fs::read(folder.join("people.jsonl")).unwrap(), before);
}

/// Names are written as text. The names of pictures may be any bytes.
#[test]
fn a_name_that_is_not_utf_8_is_told() {
    let folder = scratch("enrol-bytes");
    embedder(&folder.join("reid.onnx"));
    coloured(&folder.join("red.png"), 0xffff_0000);
    let (odd, picture) = (OsStr::from_bytes(b"caf\xe9"), OsStr::from_bytes(b"caf\xe9.png"));
    let (people, alone) = (folder.join("people"), folder.join("alone"));
    for part in [people.join("Ada"), people.join(odd), alone.join(odd)] {
        std::fs::create_dir_all(part).unwrap();
    }
    let pictures = [people.join(odd).join("1.png"), alone.join(odd).join("1.png"), people.join("Ada").join(picture)];
    for copy in pictures.into_iter().chain([people.join(picture), folder.join(picture)]) {
        std::fs::copy(folder.join("red.png"), copy).unwrap();
    }
    let with = ["--model", "reid.onnx", "--gallery", "people.jsonl"];
    let shown = succeed(&folder, &[&["enrol", "--folder", "people"][..], &with].concat());
    let said = "1 name: 1 vector of 3 numbers written to people.jsonl, which has 1 vector of 1 name\n";
    assert_eq!(text(&shown.stdout), said);
    for left_out in ["people/caf\\xe9", "people/caf\\xe9.png"] {
        let said = format!("Warning: {left_out} is left out: its name is not UTF-8. Rename it.\n");
        assert!(text(&shown.stderr).contains(&said), "{shown:?}");
    }
    let args = [&["enrol", "--folder", "alone"][..], &with].concat();
    expect_failure(&run(&folder, &args), &args, &["alone/caf\\xe9 is left out: its name is not UTF-8. Rename it."]);
    let shown = command(&folder).args(["enrol", "Ada"]).arg(picture).args(with).output().unwrap();
    assert!(shown.status.success(), "{shown:?}");
    assert!(text(&shown.stdout).ends_with("which has 2 vectors of 1 name\n"), "{shown:?}");
    let before = std::fs::read(folder.join("people.jsonl")).unwrap();
    let add = [OsStr::new("enrol"), odd, OsStr::new("red.png"), OsStr::new("--model"), OsStr::new("reid.onnx")];
    let remove = [OsStr::new("enrol"), OsStr::new("--remove"), odd];
    for args in [&add[..], &remove] {
        let refused = command(&folder).args(args).args(["--gallery", "people.jsonl"]).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains("UTF-8"), "{refused:?}");
    }
    assert_eq!(std::fs::read(folder.join("people.jsonl")).unwrap(), before);
}

#[test]
fn two_names_of_one_picture_are_told() {
    let folder = scratch("enrol-twice");
    embedder(&folder.join("reid.onnx"));
    coloured(&folder.join("red.png"), 0xffff_0000);
    coloured(&folder.join("green.png"), 0xff00_ff00);
    let enrol = |name: &str, picture: &str| {
        let shown = succeed(&folder, &["enrol", name, picture, "--model", "reid.onnx", "--gallery", "people.jsonl"]);
        text(&shown.stderr).to_string()
    };
    for (name, picture) in [("Ada", "red.png"), ("Ada", "red.png"), ("Bob", "green.png")] {
        let said = enrol(name, picture);
        assert!(!said.contains("Warning"), "{said}");
    }
    let said = enrol("Eve", "red.png");
    assert!(said.contains("Warning: In the gallery people.jsonl “Ada” and “Eve” have the same vector"), "{said}");
    assert!(said.contains("is called “Ada”.") && said.contains("gst-trt enrol --remove"), "{said}");
    assert_eq!(gallery(&folder).names().len(), 3, "it is there");
}

/// A face of a detector: its box, score, class, and where ArcFace's picture of it of 56x56 pixels begins.
fn face([left, top]: [f32; 2], score: f32) -> [f32; 16] {
    let points = [38.2946, 51.6963, 73.5318, 51.5014, 56.0252, 71.7366, 41.5493, 92.3655, 70.7299, 92.2041];
    let box_and_class = [8.0, 16.0, 40.0, 48.0, score, 0.0];
    std::array::from_fn(|at| match at.checked_sub(6) {
        None => box_and_class[at],
        Some(number) => points[number] * 0.5 + if number % 2 == 0 { left } else { top },
    })
}

#[test]
fn a_detector_cuts_out_the_one_that_is_meant() {
    let folder = scratch("enrol-detector");
    embedder(&folder.join("reid.onnx"));
    coloured(&folder.join("red.png"), 0xffff_0000);
    // The picture is 320x240, and five times as large as in the detector. Of the face a third is left of it.
    faces(&folder.join("faces.onnx"), &[face([-19.0, 8.0], 0.9)]);
    inner(&folder.join("box.onnx"), "cup");
    let vector = |detector: &str| {
        let gallery = folder.join("people.jsonl");
        let _ = std::fs::remove_file(&gallery);
        let args = ["enrol", "Ada", "red.png", "-m", "reid.onnx", "-g", "people.jsonl", "--detector", detector];
        // So that black is a colour, too.
        succeed(&folder, &[&args[..], &["--options", "mean=-1", "--detector-options", "score-threshold=0.5"]].concat());
        self::gallery(&folder).find(&[&[1.0, 0.0, 0.0]], 1)[0][0].similarity
    };
    // Red alone is 2, 1, 1.
    let by_box = vector("box.onnx");
    assert!((by_box - 2.0 / 6f32.sqrt()).abs() < 0.01, "{by_box}");
    let by_landmarks = vector("faces.onnx");
    assert!((0.7..0.78).contains(&by_landmarks), "{by_landmarks}: with what is outside of the picture, which is black");

    let args = ["enrol", "Ada", "red.png", "-m", "reid.onnx", "-g", "g.jsonl", "--detector", "several.onnx"];
    for (rows, said) in [
        (&[face([0.0, 8.0], 0.1)][..], "several.onnx finds nothing in red.png"),
        (&[face([0.0, 8.0], 0.9), face([8.0, 8.0], 0.8)][..], "several.onnx finds 2 objects in red.png"),
    ] {
        faces(&folder.join("several.onnx"), rows);
        expect_failure(&run(&folder, &args), &args, &[said]);
        assert!(!folder.join("g.jsonl").exists(), "{said}");
    }
}

/// Before a picture is read.
#[test]
fn a_detector_that_finds_no_objects_is_refused() {
    let folder = scratch("enrol-no-detector");
    embedder(&folder.join("reid.onnx"));
    classifier(&folder.join("classes.onnx"), "bright", "dark");
    std::fs::write(folder.join("broken.png"), "no picture").unwrap();
    let args = ["enrol", "Ada", "broken.png", "-m", "reid.onnx", "-g", "people.jsonl", "--detector", "classes.onnx"];
    let output = run(&folder, &args);
    let said = [
        "classes.onnx finds no objects: its outputs are those of the layout classify. Give --detector a model that finds",
    ];
    expect_failure(&output, &args, &said);
    assert!(!text(&output.stderr).contains("broken.png") && !folder.join("people.jsonl").exists());
}

#[test]
fn what_is_wrong_with_the_model_is_said_once() {
    let folder = scratch("enrol-model");
    std::fs::create_dir(folder.join("photos")).unwrap();
    coloured(&folder.join("photos/1.png"), 0xffff_0000);
    coloured(&folder.join("photos/2.png"), 0xff00_ff00);
    classifier(&folder.join("classes.onnx"), "bright", "dark");
    vector(&folder.join("nan.onnx"), &[1.0, f32::NAN, 1.0]);
    for (model, is_of_pictures, said) in [
        (&["-m", "classes.onnx"][..], false, "Use a model that makes a vector of each picture"),
        (&["-m", "classes.onnx", "--options", "layout=auto"], false, "classes.onnx gives no vectors: its layout is"),
        (&["-m", "nan.onnx"], true, "nan.onnx make no vector: some are infinite or NaN"),
    ] {
        let args = [&["enrol", "Ada", "photos", "-g", "g.jsonl"][..], model].concat();
        let output = run(&folder, &args);
        expect_failure(&output, &args, &[said]);
        assert_eq!(text(&output.stderr).contains("Warning: "), is_of_pictures, "{output:?}");
    }
}

#[test]
fn what_is_wrong_is_told_and_changes_nothing() {
    let folder = scratch("enrol-wrong");
    embedder(&folder.join("reid.onnx"));
    picture(&folder.join("a.png"), 64, 48);
    coloured(&folder.join("black.png"), 0xff00_0000);
    std::fs::write(folder.join("other.jsonl"), "{\"name\": \"Ada\", \"vector\": [1, 0]}\n").unwrap();
    std::fs::write(folder.join("broken.jsonl"), "Ada\n").unwrap();
    std::fs::write(folder.join("a.mp4"), "not read").unwrap();
    std::fs::create_dir(folder.join("none")).unwrap();
    let shapes = shapes();
    for (args, parts) in [
        (
            &["enrol", "Ada", "a.png", "-m", "reid.onnx", "-g", "other.jsonl"][..],
            &["have 2 numbers, and the new ones 3"][..],
        ),
        (&["enrol", "Ada", "a.png", "-m", "reid.onnx", "-g", "broken.jsonl"], &["line 1 of the gallery broken.jsonl"]),
        (&["enrol", "Ada", "a.png", "-m", "reid.onnx", "-g", "no/g.jsonl"], &["Cannot write the gallery no/g.jsonl"]),
        (&["enrol", "Ada", "none.png", "-m", "reid.onnx", "-g", "g.jsonl"], &["There is no file none.png"]),
        (
            &["enrol", "Ada", "black.png", "-m", "reid.onnx", "-g", "g.jsonl"],
            &["Cannot use black.png: ", "make no vector: all are 0, or too large. Use another picture"],
        ),
        (&["enrol", "Ada", "a.mp4", "-m", "reid.onnx", "-g", "g.jsonl"], &["a.mp4 is a video. Give pictures"]),
        (&["enrol", "Ada", "none", "-m", "reid.onnx", "-g", "g.jsonl"], &["nothing but folders", "'none/**/*.jpg'"]),
        (&["enrol", "Ada", "*.jpg", "-m", "reid.onnx", "-g", "g.jsonl"], &["No image matches the pattern *.jpg"]),
        (&["enrol", "Ada", "a.png", "-m", &shapes, "-g", "g.jsonl"], &["layout=embed"]),
        (&["enrol", "a\nb", "a.png", "-m", "reid.onnx", "-g", "g.jsonl"], &["control characters"]),
        (&["enrol", "--remove", "Ada", "-g", "g.jsonl"], &["There is no gallery g.jsonl"]),
    ] {
        expect_failure(&run(&folder, args), args, parts);
        assert!(!folder.join("g.jsonl").exists(), "{args:?}");
    }
    for args in [&["enrol", "Ada", "-g", "g.jsonl"][..], &["enrol", "Ada", "a.png"], &["enrol"]] {
        assert_eq!(run(&folder, args).status.code(), Some(2), "{args:?}");
    }
}
