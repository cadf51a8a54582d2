// SPDX-License-Identifier: MPL-2.0
//! `gst-trt detect` on pictures of each kind, whole, cut off and damaged: the right picture, or an error that says why.

mod common;

use std::path::Path;

use common::models::inner;
use common::{expect_failure, files, jpeg, launch, lines, path, picture, pixels, run, scratch, shapes, succeed, text};

/// Red, green, blue and grey, in four quarters.
const COLOURS: [[u8; 3]; 4] = [[200, 40, 40], [40, 180, 60], [40, 60, 200], [128, 128, 128]];

const SHADES: [[u8; 3]; 4] = [[40; 3], [100; 3], [160; 3], [220; 3]];

/// Of two colours alone.
const DARK: [[u8; 3]; 4] = [[0; 3], [0; 3], [255; 3], [255; 3]];

/// `detect` without a box in what it writes.
fn plain<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let args = ["detect", "--model", model, "--backend", "cpu", "--nms", "draw=false", "--json", "out.jsonl"];
    [&args[..], more].concat()
}

#[test]
fn pictures_of_each_kind_have_their_colours() {
    let folder = scratch("pictures");
    let made = path("gst-trt/tests/data/pictures");
    let names = files(Path::new(&made));
    assert!(names.len() > 30, "{names:?}");
    let mut wrong = Vec::new();
    // No box is drawn, so a model that computes nothing will do.
    let model = inner(&folder.join("inner.onnx"), "disc");
    for name in names.iter().filter(|name| !name.ends_with(".gif")) {
        let _ = std::fs::remove_file(folder.join("out.png"));
        let output = run(&folder, &plain(&model, &[&format!("{made}/{name}"), "--output", "out.png"]));
        if !output.status.success() {
            wrong.push(format!("{name}: {}", text(&output.stderr)));
            continue;
        }
        let kind = name.split(['-', '.']).next().unwrap();
        let expected = match kind {
            "colour" => COLOURS,
            "grey" => SHADES,
            _ => DARK,
        };
        let (width, height, found) = pixels(&folder.join("out.png"));
        assert_eq!((width, height), (64, 48), "{name}");
        for (corner, expected) in [(12, 16), (12, 48), (36, 16), (36, 48)].into_iter().zip(expected) {
            let at = (corner.0 * width + corner.1) * 3;
            let found = &found[at..at + 3];
            if found.iter().zip(expected).any(|(found, expected)| found.abs_diff(expected) > 12) {
                wrong.push(format!("{name}: {found:?} at {corner:?}, and not {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Each of them half.
#[test]
fn pictures_that_are_cut_off_are_named_and_counted() {
    let folder = scratch("pictures-cut");
    let made = path("gst-trt/tests/data/pictures");
    let names = files(Path::new(&made));
    // Half of two pages is a whole one.
    let is_cut = |name: &&String| !name.ends_with(".gif") && *name != "colour-pages.tif";
    let names: Vec<&String> = names.iter().filter(is_cut).collect();
    for name in &names {
        let bytes = std::fs::read(format!("{made}/{name}")).unwrap();
        std::fs::write(folder.join(name), &bytes[..bytes.len() / 2]).unwrap();
    }
    picture(&folder.join("whole.jpg"), 64, 48);
    let model = shapes();
    let args = plain(&model, &[".", "--output", "out"]);
    let output = run(&folder, &args);
    let (count, all) = (names.len(), names.len() + 1);
    expect_failure(&output, &args, &[&format!("{count} of {all} images cannot be read; the others are done.")]);
    for name in names {
        assert!(
            text(&output.stderr).contains(&format!("Warning: Cannot read ./{name}: ")),
            "{name}: {}",
            text(&output.stderr)
        );
    }
    assert_eq!(files(&folder.join("out")), ["whole.jpg"]);
}

#[test]
fn a_picture_of_gigabytes_is_refused() {
    let folder = scratch("pictures-large");
    let bomb = jpeg::of_size(jpeg::of(&folder, 64, 48), 65535, 65535);
    std::fs::write(folder.join("bomb.jpg"), bomb).unwrap();
    let model = shapes();
    let args = plain(&model, &["bomb.jpg", "--no-video"]);
    expect_failure(&run(&folder, &args), &args, &["Cannot read bomb.jpg: its frames have 65535x65535 pixels"]);
}

#[test]
fn gif_files_come_to_their_end() {
    let folder = scratch("pictures-gif");
    for (name, frames) in [("colour.gif", 1), ("colour-animated.gif", 2)] {
        let file = path(&format!("gst-trt/tests/data/pictures/{name}"));
        succeed(&folder, &plain(&shapes(), &[&file, "--output", "out.mp4"]));
        assert_eq!(lines(&folder.join("out.jsonl")).len(), frames, "{name}");
        launch(&format!("filesrc location={} ! decodebin ! fakesink", folder.join("out.mp4").display()));
        std::fs::write(folder.join("cut.gif"), &std::fs::read(&file).unwrap()[..100]).unwrap();
        let model = shapes();
        let args = plain(&model, &["cut.gif", "--no-video"]);
        expect_failure(&run(&folder, &args), &args, &["Cannot read cut.gif: "]);
    }
}

#[test]
fn videos_in_a_folder_of_pictures_are_said() {
    let folder = scratch("pictures-videos");
    picture(&folder.join("a.jpg"), 64, 48);
    for name in ["b.MP4", "c.mkv", "notes.txt"] {
        std::fs::write(folder.join(name), "not read").unwrap();
    }
    let output = succeed(&folder, &plain(&shapes(), &[".", "--no-video"]));
    let expected = "Warning: 2 videos are left out of the folder .: its images are read. Give videos one by one, such as './*.mp4'.";
    assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
}
