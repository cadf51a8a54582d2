// SPDX-License-Identifier: MPL-2.0
//! What is wrong in a file, and what is said about it.

mod asks;
mod hidden;
mod identities;
mod mistakes;
mod model;
mod objects;
mod privacy;
mod shard;
mod tiles;
#[cfg(feature = "webrtc")]
mod webrtc;

use std::path::Path;
use std::time::Duration;

use super::{Config, Container};
use crate::chain;
use crate::npy_files::save_floats;
use crate::onnx_files::{F32, Graph};
use crate::scratch::scratch;
use crate::serve::archive::KeepLimits;
use crate::source::VideoAddress;
use crate::source::options::{RtpTransport, StreamOptions};

/// Who signs certificates, and none that anybody has.
pub const AUTHORITY: &str = include_str!("tests/ca.pem");

/// Writes a file in the place of the former one, as volumes of Kubernetes and editors do.
pub fn replace(file: &Path, content: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, content).unwrap();
    std::fs::rename(&new, file).unwrap();
}

fn shapes() -> String {
    of_tests("shapes.onnx")
}

fn of_tests(file: &str) -> String {
    format!("{}/../tests/models/{file}", env!("CARGO_MANIFEST_DIR"))
}

fn load(folder: &Path, name: &str, config: &[u8]) -> Result<Config, String> {
    chain::start_gstreamer().unwrap();
    let file = folder.join(name);
    std::fs::write(&file, config).unwrap();
    Config::load(&file).map_err(|failure| failure.to_string())
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
    let folder = scratch("config-defaults_and_names_are_resolved");
    let config = load(&folder, "right.toml", right().as_bytes()).unwrap();
    let source = &config.sources[0];
    assert_eq!((source.model.as_str(), source.address.shown().as_str()), ("m", "rtsp://***@camera/1"));
    assert_eq!(source.publish[0].name.as_deref(), Some("p"));
    let publish = &source.publish[0].properties;
    assert_eq!(publish.get("location"), Some(folder.join("s.jsonl").to_str().unwrap()));
    assert_eq!((publish.get("source-id"), publish.get("name")), (Some("s"), None));
    assert!(source.track.is_some() && source.analytics.is_some() && source.has_view);
    assert_eq!(source.record.as_ref().unwrap().folder, folder.join("r"));
    assert_eq!(config.http.unwrap().listen.to_string(), "127.0.0.1:8090");

    let off = right() + "track = false\nanalytics = false\nrecord = false\npublish = []\n";
    let config = load(&folder, "off.toml", off.as_bytes()).unwrap();
    let source = &config.sources[0];
    assert!(
        source.track.is_none() && source.analytics.is_none() && source.record.is_none() && source.publish.is_empty()
    );

    let own = right() + "track = {tracker = \"iou\"}\n[source.record]\nfolder = \"/own\"\npre-roll = 0.5\n";
    let config = load(&folder, "own.toml", own.as_bytes()).unwrap();
    let source = &config.sources[0];
    assert_eq!(source.track.as_ref().unwrap().get("tracker"), Some("iou"));
    assert_eq!(source.record.as_ref().unwrap().folder, Path::new("/own"));
}

#[test]
fn a_source_has_hours_and_a_gate() {
    let folder = scratch("config-a_source_has_hours_and_a_gate");
    let load = |keys: &str| load(&folder, "hours.toml", (right() + keys).as_bytes());
    let config = load("schedule = \"Mo-Fr 07:00-19:00\"\nmotion-gate = 0.001\n").unwrap();
    let source = &config.sources[0];
    assert_eq!(source.schedule.as_ref().unwrap().text(), "Mo-Fr 07:00-19:00");
    assert_eq!(source.motion_gate, Some(0.001));
    assert!(load("").unwrap().sources[0].schedule.is_none());
    for (keys, said) in [
        ("schedule = \"daily\"\n", "“daily” are no hours: write days and hours such as"),
        ("schedule = 7\n", "it is the number 7. Write a text in quotes"),
        ("motion-gate = 1.5\n", "a part of the picture, from 0 to 1"),
        ("motion-gate = -0.1\n", "a part of the picture, from 0 to 1"),
    ] {
        let error = load(keys).unwrap_err();
        assert!(error.contains(said) && error.contains("line 22"), "{keys}: {error}");
    }
}

#[test]
fn how_a_camera_is_read_is_said_by_its_source() {
    let folder = scratch("config-how_a_camera_is_read");
    let keys = "user = \"me@site\"\npassword-file = \"secret\"\ntransport = \"tcp\"\nlatency = \"150ms\"\n\
                keep-alive = false\ntls-validation = false\nlow-latency = true\n";
    std::fs::write(folder.join("secret"), "hush").unwrap();
    let text = right().replace("me:secret@", "") + keys;
    let source = load(&folder, "camera.toml", text.as_bytes()).unwrap().sources.remove(0);
    assert_eq!(source.address, VideoAddress::Uri("rtsp://me%40site:hush@camera/1".into()));
    let expected = StreamOptions {
        transport: RtpTransport::Tcp,
        latency: Some(Duration::from_millis(150)),
        keep_alive: false,
        tls_validation: false,
        ca_file: None,
        low_latency: true,
    };
    assert_eq!(source.stream, expected);
    let source = load(&folder, "plain.toml", right().as_bytes()).unwrap().sources.remove(0);
    assert_eq!(source.stream, StreamOptions::default());
}

#[test]
fn what_is_recorded_and_kept_is_said_in_one_table() {
    let folder = scratch("config-recorded_and_kept");
    let with = |keys: &str| {
        let text = right().replace("folder = \"r\"", &format!("folder = \"r\"\n{keys}"));
        load(&folder, "record.toml", text.as_bytes()).unwrap().sources.remove(0).record.unwrap()
    };
    let record = with("");
    assert_eq!((record.events, record.segment, record.keep), (Some(vec![]), None, KeepLimits::default()));
    assert_eq!((record.container, record.audio, record.pre_roll_bytes), (Container::Mp4, true, 32 << 20));
    let record = with(
        "continuous = true\nsegment = \"1min\"\nkeep = \"30d\"\nkeep-bytes = \"20GB\"\ntotal-bytes = \"1TiB\"\n\
         free-bytes = 5000000000\ncontainer = \"mkv\"\naudio = false\npre-roll-bytes = \"8MiB\"",
    );
    let keep = KeepLimits {
        age: Some(Duration::from_secs(30 * 86_400)),
        bytes: Some(20_000_000_000),
        total_bytes: Some(1 << 40),
        free_bytes: Some(5_000_000_000),
    };
    assert_eq!((record.events, record.segment, record.keep), (Some(vec![]), Some(Duration::from_secs(60)), keep));
    assert_eq!((record.container, record.audio, record.pre_roll_bytes), (Container::Mkv, false, 8 << 20));
    assert_eq!(with("continuous = true\nkeep = \"12h\"\nevents = []").events, None, "no files of events");
    // As the page has it.
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/recordings.md")).unwrap();
    let table =
        page.split("```toml\n").filter_map(|rest| rest.split("```").next()).find(|block| block.starts_with("[record]"));
    let keys = table.unwrap().split_once("folder = \"/var/lib/gst-trt/recordings\"\n").unwrap().1;
    assert_eq!(with(keys).keep.free_bytes, Some(20_000_000_000));
    // What is said for all holds for what is there of others, too.
    let text = right().replace("folder = \"r\"", "folder = \"r\"\nkeep = \"1d\"")
        + "[source.record]\nfolder = \"r\"\nkeep = \"2d\"\n";
    let config = load(&folder, "kept.toml", text.as_bytes()).unwrap();
    let kept = config.kept(config.sources.iter());
    let days = |limits: &KeepLimits| limits.age.unwrap().as_secs() / 86_400;
    let limits = &kept[&folder.join("r")];
    assert_eq!((kept.len(), days(&limits.of_others), days(&limits.of_sources["s"])), (1, 1, 2));
    // What is recorded all the time needs no events.
    let text =
        right().replace("folder = \"r\"", "folder = \"r\"\ncontinuous = true\nkeep = \"1d\"") + "analytics = false\n";
    let record = load(&folder, "all.toml", text.as_bytes()).unwrap().sources.remove(0).record.unwrap();
    assert_eq!((record.events, record.segment), (None, Some(Duration::from_secs(300))));
    // Kinds of events do.
    let warnings = |all: &str, source: &str| {
        let all = format!("folder = \"r\"\ncontinuous = true\nkeep = \"1d\"\n{all}");
        load(&folder, "kinds.toml", (right().replace("folder = \"r\"", &all) + source).as_bytes()).unwrap().warnings
    };
    let kinds = "events = [\"entered\"]\n";
    let own = format!("[source.record]\nfolder = \"own\"\ncontinuous = true\nkeep = \"1d\"\n{kinds}");
    for (all, source) in [(kinds, "analytics = false\n"), ("", &*format!("analytics = false\n{own}"))] {
        let warnings = warnings(all, source);
        assert!(matches!(&warnings[..], [only] if only.contains("no event is recorded")), "{warnings:?}");
    }
    for (all, source) in [(kinds, ""), ("", &*own), ("events = []\n", "analytics = false\n")] {
        assert_eq!(warnings(all, source), Vec::<String>::new());
    }
    // The length of files that there are none of.
    for (old, new, line) in [
        ("folder = \"r\"", "folder = \"r\"\nsegment = \"1min\"", "line 16, segment: "),
        ("name = \"s\"", "name = \"s\"\nrecord = {folder = \"own\", segment = \"1min\"}", "line 21, segment: "),
    ] {
        let warnings = load(&folder, "length.toml", right().replace(old, new).as_bytes()).unwrap().warnings;
        assert!(matches!(&warnings[..], [only] if only.contains(line) && only.contains("max-length")), "{warnings:?}");
    }
    let text = right() + "analytics = false\n";
    let error = load(&folder, "none.toml", text.as_bytes()).unwrap_err();
    assert!(error.contains("set continuous = true in [record]"), "{error}");
}

/// Else nothing is ever sent, and nothing says why.
#[test]
fn messages_need_what_they_are_about() {
    let folder = scratch("config-messages_need_what_they_are_about");
    let with = |per: &str, source: &str| {
        let text = right().replace("name = \"p\"", &format!("name = \"p\"\nper = \"{per}\"")) + "record = false\n";
        load(&folder, "about.toml", (text + source).as_bytes())
    };
    for (per, source, said) in [
        ("event", "analytics = false\n", "[[publish]] with per = \"event\" needs the events of [analytics]: add it"),
        (
            "object",
            "track = false\nanalytics = false\n",
            "[[publish]] with per = \"object\" needs the ids of [track]: add it",
        ),
    ] {
        assert_eq!(with(per, "").unwrap().sources[0].publish.len(), 1);
        assert!(with(per, source).unwrap_err().contains(said), "{per}");
        // A source may do without that destination.
        assert!(with(per, &format!("{source}publish = []\n")).is_ok(), "{per}");
        assert!(with("frame", source).is_ok(), "{per}");
    }
}

/// The folder that a service is started in may be any.
#[test]
fn files_of_destinations_are_in_the_folder_of_the_configuration() {
    let folder = scratch("config-files_of_destinations_are_in_the_folder_of_the_configuration");
    let with = |keys: &str| {
        right().replace("location = \"{source}.jsonl\"\n", &format!("location = \"mqtts://me@server/t\"\n{keys}"))
    };
    std::fs::write(folder.join("secret"), "hush").unwrap();
    let config = load(&folder, "files.toml", with("password-file = \"secret\"\n").as_bytes()).unwrap();
    let publish = &config.sources[0].publish[0].properties;
    assert_eq!(publish.get("location"), Some("mqtts://me@server/t"));
    assert_eq!(publish.get("password-file"), folder.join("secret").to_str());
    for keys in ["password-file = \"tls/none\"\n", "ca-file = \"tls/none\"\n"] {
        let error = load(&folder, "files.toml", with(keys).as_bytes()).unwrap_err();
        assert!(
            error.contains("line 12, location: ") && error.contains(folder.join("tls/none").to_str().unwrap()),
            "{error}"
        );
    }
}

/// As trtpublish takes them, but from the folder of the configuration on.
#[test]
fn addresses_of_files_and_sockets_are_decoded() {
    // The path of a socket has 107 bytes at most.
    let folder = scratch("config-local");
    let with = |location: &str| load(&folder, "local.toml", right().replace("{source}.jsonl", location).as_bytes());
    let in_folder = |name: &str| folder.join(name).to_str().unwrap().to_string();
    for (location, wanted) in [
        ("file:a%20b.jsonl", in_folder("a b.jsonl")),
        ("file:///a%25.jsonl", "/a%.jsonl".into()),
        ("a%20b.jsonl", in_folder("a%20b.jsonl")),
        ("unix:a%25b", format!("unix:{}", in_folder("a%25b"))),
        ("unix:/run/a", "unix:/run/a".into()),
    ] {
        let config = with(location).unwrap_or_else(|error| panic!("{location}: {error}"));
        assert_eq!(config.sources[0].publish[0].properties.get("location"), Some(&*wanted), "{location}");
    }
    for (location, said) in
        [("file://host/a.jsonl", "file:// names a host"), ("sei:", "set sei = true in [rtsp]"), ("unix:", "no path")]
    {
        let error = with(location).unwrap_err();
        assert!(error.contains("line 12") && error.contains(said), "{location}: {error}");
    }
}

/// Permissions make no text of it.
#[test]
fn zones_that_are_no_text_are_told() {
    let folder = scratch("config-zones_that_are_no_text_are_told");
    std::fs::write(folder.join("zones.json"), b"{\xFF}").unwrap();
    let text = right() + "analytics = {config-file = \"zones.json\"}\n";
    let error = load(&folder, "config.toml", text.as_bytes()).unwrap_err();
    assert!(
        error.contains("zones.json is not a text in UTF-8. Save it as one") && !error.contains("permissions"),
        "{error}"
    );
}

/// They are read once, as a destination is opened.
#[test]
fn another_password_in_the_file_of_a_destination_is_a_change() {
    let folder = scratch("config-another_password_in_the_file_of_a_destination_is_a_change");
    let keys = "location = \"mqtts://me@server/t\"\npassword-file = \"secret\"\n";
    let text = right().replace("location = \"{source}.jsonl\"\n", keys);
    let with = |password: &str| {
        replace(&folder.join("secret"), password);
        load(&folder, "password.toml", text.as_bytes()).unwrap().sources.remove(0)
    };
    let before = with("hush");
    assert!(with("hush") == before, "another file with the same content is none");
    let after = with("another one");
    assert!(before != after && before.publish[0].properties == after.publish[0].properties);
}

#[test]
fn snapshots_have_a_folder_and_limits() {
    let folder = scratch("config-snapshots_have_a_folder_and_limits");
    let with = |keys: &str| right().replace("[record]", &format!("[snapshots]\n{keys}\n\n[record]"));
    let load = |text: String| load(&folder, "snapshots.toml", text.as_bytes());
    assert!(load(right()).unwrap().sources[0].snapshots.is_none());
    let keys = "folder = \"p\"\nclasses = [\"disc\"]\nkeep = \"2d\"\ntotal-bytes = \"1GB\"";
    let source = &load(with(keys)).unwrap().sources[0];
    let snapshots = source.snapshots.as_ref().unwrap();
    assert_eq!((&snapshots.folder, snapshots.min_confidence), (&folder.join("p"), 0.5));
    assert_eq!((snapshots.at_most.number, snapshots.max_size), (60, 768));
    assert_eq!(snapshots.keep.total_bytes, Some(1_000_000_000));
    assert_eq!(source.folders(), [folder.join("r"), folder.join("p")]);
    assert!(load(with(keys) + "snapshots = false\n").unwrap().sources[0].snapshots.is_none());
    let kept = "folder = \"p\"\nkeep = \"2d\"";
    // By other names.
    std::fs::create_dir(folder.join("r")).unwrap();
    std::os::unix::fs::symlink("r", folder.join("link")).unwrap();
    for (keys, source, line, said) in [
        ("folder = \"p\"".to_string(), "", 15, "Say what is kept: keep, keep-bytes, total-bytes or free-bytes"),
        (kept.replace("\"p\"", "\"r\""), "", 15, "recordings go to "),
        (kept.replace("\"p\"", "\"link/../r\""), "", 15, "recordings go to "),
        (kept.replace("\"p\"", "\"link\""), "", 15, "recordings go to "),
        (format!("{kept}\nclasses = []"), "", 17, "there is no class in it. Leave it out for all."),
        (format!("{kept}\nclasses = [\"dics\"]"), "", 0, "there is no class “dics”; did you mean “disc”?"),
        (format!("{kept}\nmin-confidence = 50"), "", 17, "a confidence is 0 to 1"),
        (format!("{kept}\nmax-size = 5000"), "", 17, "32 to 4096 pixels"),
        (format!("{kept}\nat-most = \"all\""), "", 17, "“all” is no rate"),
        (kept.into(), "track = false\nanalytics = false\nrecord = false\n", 0, "[snapshots] needs the ids of [track]"),
    ] {
        let error = load(with(&keys) + source).expect_err(&keys);
        assert!(error.contains(said) && (line == 0 || error.contains(&format!("line {line}"))), "{keys}: {error}");
    }
}

#[test]
fn a_source_that_comes_later_is_checked_alike() {
    let folder = scratch("config-a_source_that_comes_later_is_checked_alike");
    let config = load(&folder, "later.toml", right().as_bytes()).unwrap();
    let source = config.source(&serde_json::json!({"name": "new", "address": "a.mp4", "loop": true}), &[]).unwrap();
    assert_eq!((source.name.as_str(), source.model.as_str(), source.is_loop), ("new", "m", true));
    for (keys, said) in [
        (serde_json::json!({"name": "new"}), "the key address is missing"),
        (serde_json::json!({"name": "new", "adress": "a"}), "did you mean “address”?"),
        (serde_json::json!({"name": "a/b", "address": "a"}), "a name has"),
        (serde_json::json!({"name": "a", "address": "a", "model": "n"}), "no model “n”"),
        (serde_json::json!({"name": "a", "address": 7}), "address: it is the number 7"),
        (
            serde_json::json!({"name": "a", "address": "a", "loop": "yes"}),
            "loop: it is the text \"yes\". Write true or",
        ),
        (serde_json::json!({"name": "a", "address": "a", "privacy": {"foo": 1}}), "privacy: there is no key “foo”"),
        (serde_json::json!([1]), "Write"),
        (serde_json::json!(null), "it is null"),
    ] {
        let error = config.source(&keys, &[]).unwrap_err();
        let is_sentence = error.ends_with(['.', '?']) || error.contains("The keys are: ");
        assert!(error.contains(said) && is_sentence, "{keys}: {error}");
    }
}

#[test]
fn a_time_has_one_unit_wherever_it_is_written() {
    let folder = scratch("config-a_time_has_one_unit_wherever_it_is_written");
    let config = right()
        .replace("[track]", "[track]\nlost-after = \"2s\"")
        .replace("name = \"p\"", "name = \"p\"\npublish-every = \"500ms\"\ntimeout = \"1.5s\"\nmax-file-size = \"1MB\"")
        .replace("folder = \"r\"", "folder = \"r\"\npre-roll = \"0.1min\"\npost-roll = 3")
        .replace("name = \"m\"", "name = \"m\"\ninfer = \"batch-timeout=20ms\"")
        + "timeout = \"2500ms\"\nbackoff-min = 0\n";
    let config = load(&folder, "times.toml", config.as_bytes()).unwrap();
    let source = &config.sources[0];
    assert_eq!(source.track.as_ref().unwrap().get("lost-after"), Some("2000000000"));
    let publish = &source.publish[0].properties;
    assert_eq!((publish.get("publish-every"), publish.get("timeout")), (Some("500000000"), Some("1500000000")));
    assert_eq!(publish.get("max-file-size"), Some("1000000"));
    let record = source.record.as_ref().unwrap();
    assert_eq!((record.pre_roll.as_secs(), record.post_roll.as_secs()), (6, 3));
    assert_eq!((source.timeout.as_millis(), source.backoff.0.as_millis()), (2500, 0));
    assert_eq!(config.models[0].infer, "batch-timeout=20000");
}

#[test]
fn what_counts_from_the_next_start_on_is_named() {
    let folder = scratch("config-what_counts_from_the_next_start_on");
    let load = |text: String| load(&folder, "start.toml", text.as_bytes()).unwrap();
    let start = load(right() + "[rtsp]\n");
    let same = right().replace("name = \"s\"", "name = \"t\"") + "[rtsp]\n[[rtsp.tiles]]\nname = \"all\"\n";
    assert_eq!(load(same).changed_since(&start), [""; 0], "sources and tiles are taken over");
    let other = right().replace("[http]", "[http]\nlisten = \"127.0.0.1:8099\"") + "[rtsp]\nsei = true\n";
    assert_eq!(load("gpus = [1]\n".to_string() + &other).changed_since(&start), ["gpus", "[http]", "[rtsp]"]);
    assert_eq!(load(right()).changed_since(&start), ["[rtsp]"]);
    assert_eq!(load(right() + "[rtsp]\n").changed_since(&start.without_sources()), [""; 0]);
}

/// Secrets come from files and the environment, and are in no error.
#[test]
fn secrets_need_not_stand_in_the_file() {
    let folder = scratch("config-secrets_need_not_stand_in_the_file");
    std::fs::write(folder.join("password"), "p@ss/word\n").unwrap();
    std::fs::write(folder.join("token"), "0123456789abcdef-file\n").unwrap();
    let config = right()
        .replace("rtsp://me:secret@", "rtsp://me@")
        .replace("[http]", "[http]\ntoken-file = \"token\"")
        .replace("{source}.jsonl", "${CARGO_MANIFEST_DIR}/{source}.jsonl")
        + "password-file = \"password\"\n";
    let config = load(&folder, "secrets.toml", config.as_bytes()).unwrap();
    let source = &config.sources[0];
    assert_eq!(source.address, crate::source::VideoAddress::Uri("rtsp://me:p%40ss%2Fword@camera/1".into()));
    assert_eq!(source.address.shown(), "rtsp://***@camera/1");
    assert_eq!(config.http.unwrap().token.as_deref(), Some("0123456789abcdef-file"));
    let location = source.publish[0].properties.get("location").unwrap();
    assert_eq!(location, format!("{}/s.jsonl", std::env::var("CARGO_MANIFEST_DIR").unwrap()));
}

/// What may come later does not keep the service from starting, and is told.
#[test]
fn what_is_not_there_yet_is_a_warning() {
    let folder = scratch("config-what_is_not_there_yet_is_a_warning");
    let config =
        |old: &str, new: &str| load(&folder, "later.toml", right().replace(old, new).as_bytes()).unwrap().warnings;
    assert_eq!(config("[http]", "[http]"), Vec::<String>::new());
    for (old, new, line, said) in [
        ("rtsp://me:secret@camera/1", "nofile.mp4", "line 21, address: ", "there is no file"),
        (
            "{source}.jsonl",
            "/nonexistent/dir/{source}.jsonl",
            "line 12, location: ",
            "there is no folder /nonexistent/dir",
        ),
        // Whoever has all rights cannot write there either.
        ("folder = \"r\"", "folder = \"/proc/rec\"", "line 15: ", "/proc"),
        ("{source}.jsonl", "/proc/{source}.jsonl", "line 12, location: ", "/proc"),
    ] {
        let warnings = config(old, new);
        assert!(matches!(&warnings[..], [only] if only.contains(line) && only.contains(said)), "{warnings:?}");
    }
}

/// Each source of the model would fail.
#[test]
fn labels_have_as_many_lines_as_the_model_has_classes() {
    let folder = scratch("config-labels_have_as_many_lines_as_the_model_has_classes");
    let with = |labels: &str| {
        std::fs::write(folder.join("labels.txt"), labels).unwrap();
        let config = right().replace("name = \"m\"", "name = \"m\"\nlabels = \"labels.txt\"");
        load(&folder, "labels.toml", config.as_bytes())
    };
    let error = with("one\ntwo\nthree\n").unwrap_err();
    assert!(error.contains("line 3: ") && error.contains("against 3 labels"), "{error}");
    assert_eq!(with("one\ntwo\n").unwrap().warnings, Vec::<String>::new());
}

/// At SIGHUP they count, and the words in the configuration are the same. Words that the model cannot have are an error before anything
/// that runs is touched.
#[test]
fn with_other_words_in_the_same_file_it_is_another_model() {
    let folder = scratch("config-with_other_words_in_the_same_file_it_is_another_model");
    let model = Graph::load(&shapes()).input("txt_feats", F32, &["1", "words", "2"]).save(&folder.join("words.onnx"));
    let of = |infer: &str| {
        let config = right().replace(&shapes(), &model).replace("name = \"m\"", &format!("name = \"m\"\n{infer}"));
        load(&folder, "words.toml", config.as_bytes()).map(|mut config| config.models.remove(0))
    };
    let with = |vectors: &[f32], names: &str| {
        save_floats(&folder.join("words.npy"), &[1, 2, vectors.len() / 2], vectors);
        std::fs::write(folder.join("words.txt"), names).unwrap();
        of("infer = \"input-values=txt_feats=words.npy\"")
    };
    let former = with(&[1.0, 0.0, 0.0, 1.0], "car\ndog\n").unwrap();
    assert_eq!(with(&[1.0, 0.0, 0.0, 1.0], "car\ndog\n").unwrap(), former);
    assert_ne!(with(&[0.0, 1.0, 0.0, 1.0], "car\ndog\n").unwrap(), former);
    assert_ne!(with(&[1.0, 0.0, 0.0, 1.0], "dog\ncar\n").unwrap(), former);
    for (error, said) in [
        (of("infer = \"input-values=feats=words.npy\"").unwrap_err(), "it has no such input"),
        (with(&[1.0; 6], "car\ndog\n").unwrap_err(), "does not fit its input txt_feats"),
        (with(&[1.0; 4], "car\n").unwrap_err(), "has 1 names"),
        (of("infer = \"input-values=txt_feats=none.npy\"").unwrap_err(), "There is no file "),
        (of("").unwrap_err(), "Set input-values to a file with it"),
    ] {
        assert!(error.contains(said) && error.ends_with('.'), "{said}: {error}");
    }
}

#[test]
fn a_model_is_read() {
    let folder = scratch("config-a_model_is_read");
    std::fs::write(folder.join("random.onnx"), [7; 3000]).unwrap();
    let error = load(&folder, "random.toml", right().replace(&shapes(), "random.onnx").as_bytes()).unwrap_err();
    assert!(error.contains("line 3: ") && error.contains("random.onnx"), "{error}");
}

#[test]
fn an_empty_file_is_nothing_to_do() {
    let folder = scratch("config-an_empty_file_is_nothing_to_do");
    for text in ["", "\n# later\n", "[track]\n"] {
        let error = load(&folder, "empty.toml", text.as_bytes()).unwrap_err();
        assert!(error.contains("there is nothing to do"), "{error}");
    }
}
