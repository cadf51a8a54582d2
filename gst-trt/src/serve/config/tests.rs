// SPDX-License-Identifier: MPL-2.0
//! What is wrong in a file, and what is said about it.

use std::path::{Path, PathBuf};

use super::Config;
use crate::chain;

fn shapes() -> String {
    format!("{}/../tests/models/shapes.onnx", env!("CARGO_MANIFEST_DIR"))
}

fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gst-trt-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn load(name: &str, config: &[u8]) -> Result<Config, String> {
    chain::start_gstreamer().unwrap();
    let file = folder().join(name);
    std::fs::write(&file, config).unwrap();
    let loaded = Config::load(&file).map_err(|failure| failure.to_string());
    std::fs::remove_file(&file).unwrap();
    loaded
}

/// A configuration that is right.
fn right() -> String {
    format!(
        "[[model]]\nname = \"m\"\nfile = \"{}\"\n\n[track]\n\n[analytics]\n\
         config = '{{\"tripwires\": [{{\"id\": \"g\", \"points\": [[0.5, 0], [0.5, 1]]}}]}}'\n\n\
         [[publish]]\nname = \"p\"\nlocation = \"{{source}}.jsonl\"\n\n[record]\nfolder = \"r\"\n\n[http]\n\n\
         [[source]]\nname = \"s\"\naddress = \"rtsp://me:secret@camera/1\"\n",
        shapes()
    )
}

#[test]
fn defaults_and_names_are_resolved() {
    let config = load("right.toml", right().as_bytes()).unwrap();
    let source = &config.sources[0];
    assert_eq!((source.model.as_str(), source.address.shown().as_str()), ("m", "rtsp://***@camera/1"));
    assert_eq!(source.publish[0].name.as_deref(), Some("p"));
    let publish = &source.publish[0].properties;
    assert_eq!(publish.get("location"), Some(folder().join("s.jsonl").to_str().unwrap()));
    assert_eq!((publish.get("source-id"), publish.get("name")), (Some("s"), None));
    assert!(source.track.is_some() && source.analytics.is_some() && source.has_view);
    assert_eq!(source.record.as_ref().unwrap().folder, folder().join("r"));
    assert_eq!(config.http.unwrap().listen.to_string(), "127.0.0.1:8090");

    let off = right() + "track = false\nanalytics = false\nrecord = false\npublish = []\n";
    let config = load("off.toml", off.as_bytes()).unwrap();
    let source = &config.sources[0];
    assert!(
        source.track.is_none() && source.analytics.is_none() && source.record.is_none() && source.publish.is_empty()
    );

    let own = right() + "track = {tracker = \"iou\"}\n[source.record]\nfolder = \"/own\"\npre-roll = 0.5\n";
    let config = load("own.toml", own.as_bytes()).unwrap();
    let source = &config.sources[0];
    assert_eq!(source.track.as_ref().unwrap().get("tracker"), Some("iou"));
    assert_eq!(source.record.as_ref().unwrap().folder, Path::new("/own"));
}

/// The folder that a service is started in may be any.
#[test]
fn files_of_destinations_are_in_the_folder_of_the_configuration() {
    let keys = ["password-file", "ca-file", "cert-file", "key-file"];
    let files: String = keys.iter().map(|key| format!("{key} = \"tls/{key}\"\n")).collect();
    let text = right().replace("location = \"{source}.jsonl\"\n", &format!("location = \"mqtts://server/t\"\n{files}"));
    let config = load("files.toml", text.as_bytes()).unwrap();
    let publish = &config.sources[0].publish[0].properties;
    assert_eq!(publish.get("location"), Some("mqtts://server/t"));
    for key in keys {
        assert_eq!(publish.get(key), folder().join("tls").join(key).to_str(), "{key}");
    }
}

#[test]
fn a_mistake_is_named_with_its_line() {
    // Each replaces a part of the right one: what is said, and in which line.
    for (number, (old, new, line, said)) in [
        ("[[model]]", "[[modle]]", 1, "no key “modle” here; did you mean “model”?"),
        ("[[model]]", "[model]", 1, "expected a sequence"),
        ("[[source]]", "[source]", 19, "expected a sequence"),
        ("name = \"m\"", "nmae = \"m\"", 2, "did you mean “name”?"),
        ("name = \"m\"", "", 1, "the key name is missing"),
        ("name = \"m\"", "name = 3", 2, "expected a string"),
        ("name = \"m\"", "name = \"../m\"", 2, "a name has 1 to 64 letters"),
        ("name = \"m\"", "name = \"m\"\nname = \"n\"", 3, "duplicate key"),
        ("name = \"m\"", "name = \"m\"\nbatch-size = 0", 3, "1 to 1024"),
        ("name = \"m\"", "name = \"m\"\nbatch-size = -1", 3, "invalid value"),
        ("name = \"m\"", "name = \"m\"\nbatch_size = 4", 3, "did you mean “batch-size”?"),
        ("name = \"m\"", "name = \"m\"\nbackend = \"tensort\"", 3, "There are: auto"),
        ("name = \"m\"", "name = \"m\"\nlabels = \"none.txt\"", 3, "There is no file"),
        ("name = \"m\"", "name = \"m\"\ninfer = \"intervall=2\"", 3, "did you mean “interval”?"),
        ("name = \"m\"", "name = \"m\"\nnms = \"colour=red\"", 3, "no property \"colour\""),
        ("name = \"m\"", "name = \"m\"\nnms = \"draw=false ! identity\"", 3, "a text of properties"),
        ("shapes.onnx", "none.onnx", 3, "There is no file"),
        ("[track]", "[track]\ntrack-tresh = 0.5", 6, "did you mean “track-thresh”?"),
        ("[track]", "[track]\ntrack-thresh = 5", 6, "out of its range"),
        (
            "[track]",
            "[track]\ntracker = \"sort\"",
            6,
            "no value “sort” here; did you mean “ocsort”? The values are: bytetrack,",
        ),
        ("[track]", "[track]\ntracker = \"deepsort\"", 6, "bytetrack, botsort-iou, ocsort, iou"),
        ("[track]", "[track]\ntrack-thresh = \"high\"", 6, "it cannot be “high”"),
        ("[track]", "[track]\ntracker = []", 6, "expected a text, a number, true or false"),
        ("[track]", "[track]\nname = \"x\"", 6, "no key “name”"),
        ("[track]", "", 19, "[analytics] needs the ids of [track]"),
        ("\"tripwires\"", "\"tripwire\"", 8, "tripwires"),
        ("config = ", "config-file = \"none.json\"\nconfig = ", 9, "one of both"),
        ("[0.5, 1]", "[0.5]", 8, ""),
        ("location = ", "locaton = ", 12, "did you mean “location”?"),
        ("location = \"{source}.jsonl\"", "", 10, "the key location is missing"),
        ("name = \"p\"", "name = \"p\"\nmax-queued = 0", 12, "out of its range"),
        ("name = \"p\"", "name = \"p\"\ndrop = \"all\"", 12, "there is no value “all” here"),
        ("folder = \"r\"", "folder = \"r\"\npre-roll = -1", 16, "0 to 1000000 seconds"),
        ("folder = \"r\"", "folder = \"r\"\npre-roll = nan", 16, "0 to 1000000 seconds"),
        ("folder = \"r\"", "folder = \"r\"\nevents = [\"crosed\"]", 16, "did you mean “crossed”?"),
        ("folder = \"r\"", "folder = \"r\"\nmax-length = 0", 16, "at least 1 second"),
        ("folder = \"r\"", "folder = 7", 15, "expected path string"),
        ("[http]", "[http]\nlisten = \"here\"", 18, "“here” is no address with a port. Write it like 127.0.0.1:8090"),
        ("[http]", "[http]\nlisten = \"8091\"", 18, "Write it like 127.0.0.1:8091"),
        ("[http]", "[http]\nlisten = \":8091\"", 18, "Write it like 127.0.0.1:8091"),
        ("[http]", "[http]\nlisten = \"localhost:8091\"", 18, "Write it like 127.0.0.1:8091"),
        ("[http]", "[http]\nlisten = \"0.0.0.0\"", 18, "Write it like 0.0.0.0:8090"),
        ("[http]", "[http]\nlisten = 8091", 18, "Write it like 127.0.0.1:8090"),
        ("[http]", "[http]\ntokn = \"here\"", 18, "did you mean “token”?"),
        ("address = \"rtsp://me:secret@camera/1\"", "", 19, "the key address is missing"),
        ("rtsp://me", "rstp://me", 21, "no element here for such an address"),
        ("rtsp://me:secret@camera/1", "", 21, "Give a file"),
        ("name = \"s\"", "name = \"s\"\nmodel = \"n\"", 21, "no model “n”"),
        ("name = \"s\"", "name = \"s\"\nmodel = [1]", 21, "expected a string"),
        ("name = \"s\"", "name = \"s\"\nloop = true", 21, "only files have loop"),
        ("name = \"s\"", "name = \"s\"\nsync = true", 21, "only files have sync"),
        ("name = \"s\"", "name = \"s\"\ntimeout = 0", 21, "above 0"),
        ("name = \"s\"", "name = \"s\"\ntimeout = \"ten\"", 21, "a time is a number of seconds, such as 10 or 0.5"),
        ("name = \"s\"", "name = \"s\"\nmax-queued = 0", 21, "1 to 1024 frames"),
        ("name = \"s\"", "name = \"s\"\nbackoff-max = 0.1", 21, "not below backoff-min"),
        ("name = \"s\"", "name = \"s\"\npublish = [\"q\"]", 21, "no publish “q”"),
        ("name = \"s\"", "name = \"s\"\nrecord = 1", 21, "expected true, false or a table"),
        ("name = \"s\"", "name = \"s\"\ntrack = {tracker = 1.5}", 21, "there is no value “1.5” here"),
        ("name = \"s\"", "name = \"s\"\nanalytics = {config-file = \"none.json\"}", 19, "cannot read"),
        ("name = \"s\"", "name = \"s", 20, ""),
        ("name = \"s\"", "name = ", 20, ""),
        ("name = \"s\"", "name", 20, ""),
        ("[http]", "[http", 17, ""),
        ("[http]", "\u{0}", 17, ""),
    ]
    .into_iter()
    .enumerate()
    {
        let config = right().replacen(old, new, 1);
        assert_ne!(config, right(), "{old}");
        let error = load(&format!("wrong-{number}.toml"), config.as_bytes()).expect_err(new);
        assert!(
            [":", ","].iter().any(|end| error.contains(&format!("wrong-{number}.toml: line {line}{end}"))),
            "{new}: line {line}: {error}"
        );
        assert!(error.contains(said), "{new}: {said}: {error}");
        assert!(!error.contains("secret") && !error.contains('\n'), "{new}: {error}");
    }
}

#[test]
fn names_are_given_once() {
    let twice = right() + "\n[[source]]\nname = \"s\"\naddress = \"b.mp4\"\n";
    assert!(load("twice.toml", twice.as_bytes()).unwrap_err().contains("line 24, name: there are two sources “s”"));
    let one_file = right().replace("{source}", "all") + "\n[[source]]\nname = \"t\"\naddress = \"b.mp4\"\n";
    let error = load("one-file.toml", one_file.as_bytes()).unwrap_err();
    assert!(error.contains("line 12") && error.contains("write {source}"), "{error}");
}

#[test]
fn random_bytes_are_an_error() {
    let right = right().into_bytes();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for round in 0..150 {
        let bytes: Vec<u8> = match round % 3 {
            0 => (0..next() % 300).map(|_| next() as u8).collect(),
            // Cut off, and with a wrong byte in it.
            1 => right[..(next() % right.len() as u64) as usize].to_vec(),
            _ => {
                let mut bytes = right.clone();
                let position = (next() % bytes.len() as u64) as usize;
                bytes[position] = next() as u8;
                bytes
            }
        };
        if let Err(error) = load(&format!("random-{round}.toml"), &bytes) {
            assert!(
                error.starts_with("Cannot use ") && error.ends_with(['.', '?']) || error.contains("The keys are"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_source_that_comes_later_is_checked_alike() {
    let config = load("later.toml", right().as_bytes()).unwrap();
    let source = config.source(&serde_json::json!({"name": "new", "address": "a.mp4", "loop": true})).unwrap();
    assert_eq!((source.name.as_str(), source.model.as_str(), source.is_loop), ("new", "m", true));
    for (keys, said) in [
        (serde_json::json!({"name": "new"}), "the key address is missing"),
        (serde_json::json!({"name": "new", "adress": "a"}), "did you mean “address”?"),
        (serde_json::json!({"name": "a/b", "address": "a"}), "a name has"),
        (serde_json::json!({"name": "a", "address": "a", "model": "n"}), "no model “n”"),
        (serde_json::json!([1]), "expected"),
        (serde_json::json!(null), "invalid type"),
    ] {
        let error = config.source(&keys).unwrap_err();
        assert!(error.contains(said), "{keys}: {error}");
    }
}
