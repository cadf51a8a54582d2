// SPDX-License-Identifier: MPL-2.0
//! Damaged entries of the engine cache: what is found is what was stored, and everything else is built again.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use gsttrt_core::backends::tensorrt::cache::{Cache, EngineFile, Key, Lookup};

use super::hostile::{damage, text};
use super::repeat;

const LABELS: [&str; 14] = [
    "gst-plugin-trt engine 1\n",
    "model",
    "contents",
    "library",
    "gpu",
    "bytes",
    "sha256",
    " = ",
    "\n",
    "0",
    "18446744073709551615",
    "-1",
    "\0",
    "\u{1b}[2J",
];

fn key() -> Key {
    Key {
        model: "/models/any.onnx".into(),
        contents: "c0ffee".into(),
        library: "TensorRT 8.6.0".into(),
        gpu: "NVIDIA H200, compute capability 9.0".into(),
        precision: "fp16".into(),
        shapes: "images 1x3x640x640".into(),
        options: "optimization level 3".into(),
    }
}

#[test]
fn labels_of_the_engine_cache() {
    // Not below the build's folder, which other users may be able to write to.
    let folder = std::env::temp_dir().join(format!("gsttrt-fuzz-cache-{}", std::process::id()));
    let cache = Cache::open(Some(&folder)).unwrap();
    let find = |key: &Key| cache.find(key, &AtomicBool::new(false), || panic!("nothing else builds")).unwrap();
    let Lookup::Miss(lock) = find(&key()) else { panic!("the folder is new") };
    let engine: Vec<u8> = (0..4096u32).map(|i| (i * 31) as u8).collect();
    lock.store(&EngineFile::new(engine.clone())).unwrap();
    let with = |extension: &str| {
        let mut files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        files.find(|file| file.extension() == Some(extension.as_ref())).unwrap()
    };
    let (label_file, engine_file) = (with("txt"), with("engine"));
    let label = fs::read(&label_file).unwrap();
    let others = [
        Key { gpu: "another".into(), ..key() },
        Key { contents: "decaf".into(), ..key() },
        Key { model: Path::new("/elsewhere/any.onnx").into(), ..key() },
    ];
    let mut hits = 0;
    repeat(1, |random| {
        let mut written = [label.clone(), engine.clone()];
        match random.below(8) {
            0 => {}
            1 => written[0] = text(random, &LABELS).into_bytes(),
            2 => {
                // A field of another value, which may be long.
                let value = text(random, &LABELS).replace('\n', " ");
                let label = String::from_utf8(written[0].clone()).unwrap();
                written[0] = label.replace(random.one_of(&["c0ffee", "fp16", "4096"]), &value).into_bytes();
            }
            3 => damage(random, &mut written[1]),
            _ => damage(random, &mut written[0]),
        }
        fs::write(&label_file, &written[0]).unwrap();
        fs::write(&engine_file, &written[1]).unwrap();
        for key in others.iter().chain([&key()]) {
            match find(key) {
                // Of a label, only the model's path does not count.
                Lookup::Hit(found) => {
                    assert_eq!(found.bytes, engine);
                    hits += 1;
                }
                Lookup::Miss(lock) => {
                    let why = lock.why();
                    assert!(!why.is_empty() && why.len() < 10_000, "{} bytes", why.len());
                    assert!(!why.contains(char::is_control), "{why:?}");
                }
            }
        }
    });
    fs::remove_dir_all(&folder).unwrap();
    assert!(hits > 0, "the undamaged entry is found");
}
