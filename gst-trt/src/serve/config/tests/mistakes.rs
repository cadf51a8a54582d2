// SPDX-License-Identifier: MPL-2.0
//! Mistakes: what is said, and in which line they are.

use super::{load, right};
use crate::scratch::scratch;

#[test]
fn a_mistake_is_named_with_its_line() {
    let folder = scratch("config-a_mistake_is_named_with_its_line");
    // Each replaces a part of the right one: what is said, and in which line.
    for (number, (old, new, line, said)) in [
        ("[[model]]", "[[modle]]", 1, "no key “modle” here; did you mean “model”?"),
        ("[[model]]", "[model]", 1, "double brackets"),
        ("[[source]]", "[source]", 19, "double brackets"),
        ("name = \"m\"", "nmae = \"m\"", 2, "did you mean “name”?"),
        ("name = \"m\"", "", 1, "the key name is missing"),
        ("name = \"m\"", "name = 3", 2, "it is the number 3. Write a text in quotes"),
        ("name = \"m\"", r#"name = "m\u0000""#, 2, "a text has a NUL character"),
        ("name = \"m\"", "name = \"../m\"", 2, "a name has 1 to 64 ASCII letters"),
        ("name = \"s\"", "name = \"Hütte\"", 20, "ASCII letters (a to z, A to Z), digits"),
        ("name = \"m\"", "name = \"m\"\nname = \"n\"", 3, "is there twice. Write it once."),
        ("[track]", "[track]\n[track]", 6, "is there twice. Write it once."),
        ("name = \"m\"", "name = \"m\"\nbatch-size = 0", 3, "1 to 1024"),
        (
            "name = \"m\"",
            "name = \"m\"\nbatch-size = -1",
            3,
            "it cannot be the number -1. Write a whole number from 0 on",
        ),
        ("name = \"m\"", "name = \"m\"\nbatch_size = 4", 3, "did you mean “batch-size”?"),
        ("name = \"m\"", "name = \"m\"\nbackend = \"tensort\"", 3, "did you mean “tensorrt”? The values are: auto"),
        ("name = \"m\"", "name = \"m\"\nlabels = \"none.txt\"", 3, "There is no file"),
        ("name = \"m\"", "name = \"m\"\ninfer = \"intervall=2\"", 3, "did you mean “interval”?"),
        ("name = \"m\"", "name = \"m\"\nnms = \"colour=red\"", 3, "no property \"colour\""),
        ("name = \"m\"", "name = \"m\"\nnms = \"draw=false ! identity\"", 3, "a text of properties"),
        (
            "name = \"m\"",
            "name = \"m\"\nnms = \"score-threshold=50\"",
            3,
            "score-threshold is a number from 0 to 1, not “50”",
        ),
        ("name = \"m\"", "name = \"m\"\ninfer = \"interval=-1\"", 3, "interval is a whole number from 0"),
        ("name = \"m\"", "name = \"m\"\nnms = \"classes=disc,person\"", 3, "classes: the model has no class “person”"),
        (
            "name = \"m\"",
            "name = \"m\"\nnms = \"class-thresholds=car=0.5\"",
            3,
            "class-thresholds: the model has no class “car”",
        ),
        ("name = \"m\"", "name = \"m\"\nnms = \"\\u0001\"", 3, "control characters"),
        ("name = \"m\"", "name = \"m\"\npreprocess = \"\\u001b[31m=1\"", 3, "control characters"),
        ("name = \"m\"", "name = \"m\"\nnms = \"name=q\"", 3, "name is set by the service"),
        ("name = \"m\"", "name = \"m\"\ninfer = \"model-file=x.onnx\"", 3, "Use the key file"),
        ("name = \"m\"", "name = \"m\"\nbatch-size = 8", 3, "batch-size is 8, but the model takes batches of 1"),
        ("name = \"m\"", "name = \"m\"\nbatch-size = 8", 3, "Set batch-size=1 in [[model]], or export the model"),
        ("name = \"m\"", "name = \"m\"\nbatch-size = \"8\"", 3, "it is the text \"8\". Write a whole number"),
        ("shapes.onnx", "none.onnx", 3, "There is no file"),
        ("[track]", "[track]\ntrack-tresh = 0.5", 6, "did you mean “track-thresh”?"),
        ("[track]", "[track]\ntrack-thresh = 5", 6, "out of its range: it is a number from 0 to 1."),
        (
            "[track]",
            "[track]\ntracker = \"sort\"",
            6,
            "no value “sort” here; did you mean “ocsort”? The values are: bytetrack,",
        ),
        ("[track]", "[track]\ntracker = \"deepsort\"", 6, "bytetrack, botsort-iou, ocsort, iou"),
        ("[track]", "[track]\ntrack-thresh = \"high\"", 6, "it cannot be “high”"),
        ("[track]", "[track]\ntracker = []", 6, "it is a list. Write a text, a number, true or false"),
        ("[track]", "[track]\nname = \"x\"", 6, "no key “name”"),
        ("[track]", "", 8, "[analytics] needs the ids of [track]"),
        (
            "[track]",
            "[track]\nlost-after = 2",
            6,
            "2 without a unit is less than a millisecond: write it with its unit",
        ),
        ("[track]", "[track]\nlost-after = \"long\"", 6, "“long” is no time: write it with its unit, such as \"2s\""),
        ("[track]", "[track]\nlost-after = 0.5", 6, "“0.5” is no time"),
        ("[track]", "[track]\n\n[track.more]\nx = 1", 7, "no key “more”"),
        ("\"tripwires\"", "\"tripwire\"", 8, "tripwires"),
        ("config = ", "config-file = \"none.json\"\nconfig = ", 9, "one of both"),
        ("[0.5, 1]", "[0.5]", 8, ""),
        ("location = ", "locaton = ", 12, "did you mean “location”?"),
        ("location = \"{source}.jsonl\"", "", 10, "the key location is missing"),
        ("name = \"p\"", "name = \"p\"\nmax-queued = 0", 12, "out of its range: it is a whole number from 1 to "),
        ("name = \"p\"", "name = \"p\"\ndrop = \"all\"", 12, "there is no value “all” here"),
        (
            "name = \"p\"",
            "name = \"p\"\nmax-file-size = \"1 box\"",
            12,
            "“1 box” is no size: write it with its unit, such as \"500MB\"",
        ),
        ("folder = \"r\"", "folder = \"r\"\npre-roll = -1", 16, "0 to 1000000 seconds"),
        ("folder = \"r\"", "folder = \"r\"\npre-roll = nan", 16, "0 to 1000000 seconds"),
        ("folder = \"r\"", "folder = \"r\"\nevents = [\"crosed\"]", 16, "did you mean “crossed”?"),
        ("folder = \"r\"", "folder = \"r\"\nmax-length = 0", 16, "at least 1 second"),
        ("folder = \"r\"", "folder = \"r\"\npre-roll-bytes = 5", 16, "1MiB to 4GiB"),
        ("folder = \"r\"", "folder = \"r\"\npre-roll-bytes = \"5 boxes\"", 16, "“5 boxes” is no size"),
        ("folder = \"r\"", "folder = \"r\"\ncontainer = \"avi\"", 16, "The values are: mp4, mkv"),
        ("folder = \"r\"", "folder = \"r\"\nkeep-bytes = true", 16, "it is true. Write a size, such as \"500MB\""),
        ("folder = \"r\"", "folder = \"r\"\ncontinuous = true", 16, "Say what is kept: keep, keep-bytes,"),
        ("folder = \"r\"", "folder = \"r\"\ncontinuous = true\nkeep = \"a while\"", 17, "such as \"30d\" or \"12h\""),
        ("folder = \"r\"", "folder = \"r\"\nkeep = 30", 16, "a time is a text"),
        ("folder = \"r\"", "folder = \"r\"\nsegment = 0", 16, "at least 1 second"),
        ("name = \"s\"", "name = \"s\"\ntransport = \"pigeon\"", 21, "The values are: auto, tcp, udp"),
        ("name = \"s\"", "name = \"s\"\nuser = \"me\"", 21, "user needs an address without one"),
        ("name = \"s\"", "name = \"s\"\nca-file = \"none.pem\"", 21, "cannot use the authorities in"),
        ("name = \"s\"", "name = \"s\"\nlatency = \"1\"", 21, "“1” is no time"),
        ("rtsp://me:secret@camera/1\"", "rtspt://camera/1\"\ntransport = \"udp\"", 22, "says already how it comes"),
        ("rtsp://me:secret@camera/1\"", "a.mp4\"\ntransport = \"udp\"", 22, "only addresses of RTSP have transport"),
        ("rtsp://me:secret@camera/1\"", "a.mp4\"\ntls-validation = false", 22, "only addresses of the network have"),
        ("folder = \"r\"", "folder = 7", 15, "it is the number 7. Write a path in quotes"),
        ("folder = \"r\"", "folder = \"r\"\nevents = []", 16, "there is no event in it. Leave it out for all."),
        ("folder = \"r\"", "folder = \"r\"\npre-roll = \"5 parsecs\"", 16, "“5 parsecs” is no time"),
        ("folder = \"r\"", "folder = \"r\"\npre-roll = \"10us\"", 16, "a millisecond or more"),
        ("name = \"p\"", "name = \" \"", 11, "a name has 1 to 64 bytes"),
        ("name = \"p\"", "name = \"\\u001b\"", 11, "no control characters"),
        ("folder = \"r\"", "folder = \"\"", 15, "is no folder"),
        ("folder = \"r\"", "folder = \"/dev/null/events\"", 15, "/dev/null is no folder"),
        (
            "location = \"{source}.jsonl\"",
            "location = \"/proc/self\"",
            12,
            "/proc/self is a folder. Write a file in it",
        ),
        ("rtsp://me:secret@camera/1", "/proc/self", 21, "/proc/self is a folder. A source is one file"),
        ("location = \"{source}.jsonl\"", "location = \"mqtt//h/t\"", 12, "did you mean “mqtt://h/t”?"),
        ("location = \"{source}.jsonl\"", "location = \"mqtt://h\"", 12, "topic"),
        ("location = \"{source}.jsonl\"", "location = \"mqtt://h/{sorce}\"", 12, "did you mean “{source}”?"),
        ("location = \"{source}.jsonl\"", "location = \"{source}/{source_id}\"", 12, "did you mean “{source}”?"),
        ("location = \"{source}.jsonl\"", "location = \"mqt://h/t\"", 12, "nothing is known about mqt://"),
        ("name = \"p\"", "name = \"p\"\ntags = \"north\"", 12, "it is no JSON object"),
        (
            "name = \"p\"",
            "name = \"p\"\ntags = '{\"site\": 1, \"site\": 2}'",
            12,
            "it has the key \"site\" twice. Write it once",
        ),
        ("name = \"p\"", "name = \"p\"\npublish-every = 5", 12, "less than a millisecond"),
        ("[http]", "[http]\nlisten = \"0.0.0.0:8090\"", 17, "without a token everyone"),
        ("[http]", "[http]\ntoken = \"short\"", 18, "16 or more"),
        ("[http]", "[log]\nformat = \"jsn\"\n[http]", 18, "did you mean “json”? The values are: text, json"),
        ("[http]", "[log]\nlevle = \"info\"\n[http]", 18, "did you mean “level”?"),
        ("[http]", "[http]\ntoken-file = \"none\"", 18, "cannot read"),
        ("[http]", "[http]\ntoken = \"${NO_SUCH_VARIABLE}\"", 18, "no variable NO_SUCH_VARIABLE"),
        ("rtsp://me:secret", "rtsp://me:${NO_SUCH_VARIABLE}", 21, "no variable NO_SUCH_VARIABLE"),
        ("rtsp://me:secret", "rtsp://me:\\u001b", 21, "control characters"),
        ("name = \"s\"", "name = \"s\"\npassword-file = \"none\"", 21, "cannot read"),
        ("[http]", "[http]\nlisten = \"here\"", 18, "“here” is no address with a port. Write it like 127.0.0.1:8090"),
        ("[http]", "[http]\nlisten = \"8091\"", 18, "Write it like 127.0.0.1:8091"),
        ("[http]", "[http]\nlisten = \":8091\"", 18, "Write it like 127.0.0.1:8091"),
        ("[http]", "[http]\nlisten = \"localhost:8091\"", 18, "Write it like 127.0.0.1:8091"),
        ("[http]", "[http]\nlisten = \"0.0.0.0\"", 18, "Write it like 0.0.0.0:8090"),
        ("[http]", "[http]\nlisten = \"::1:8091\"", 18, "Write it like [::1]:8091"),
        ("[http]", "[http]\nlisten = \":::8091\"", 18, "Write it like [::]:8091"),
        ("[http]", "[http]\nlisten = \"::1\"", 18, "Write it like [::1]:8090"),
        ("[http]", "[http]\nlisten = 8091", 18, "Write it like 127.0.0.1:8090"),
        // As another version may have them.
        ("[http]", "[htp]", 17, "did you mean “http”?"),
        ("[[model]]", "version = 2\n[[model]]", 1, "version"),
        ("[[model]]", "[[later]]\nx = 1\n[[model]]", 1, "later"),
        ("[http]", "[http]\ntokn = \"here\"", 18, "did you mean “token”?"),
        ("[http]", "[rtsp]\nlisten = \"0.0.0.0\"", 18, "Write it like 0.0.0.0:8554"),
        ("[http]", "[rtsp]\nlisten = \"0.0.0.0:8554\"", 17, "without a password everyone"),
        ("[http]", "[rtsp]\npassword = \"short\"", 18, "16 or more"),
        ("[http]", "[rtsp]\npassword-file = \"none\"", 18, "cannot read"),
        ("[http]", "[rtsp]\nuser = \"a b\"", 18, "The user in [rtsp] is not usable"),
        ("[http]", "[rtsp]\npasword = \"here\"", 18, "did you mean “password”?"),
        ("address = \"rtsp://me:secret@camera/1\"", "", 19, "the key address is missing"),
        ("rtsp://me", "rstp://me", 21, "no element here for such an address"),
        (
            "camera/1",
            "camera:99999/1",
            21,
            "source “s”: Cannot read rtsp://***@camera:99999/1: its port is no number from 1 to 65535.",
        ),
        ("@camera/1", "@", 21, "source “s”: Cannot read rtsp://***@: it has no host."),
        ("rtsp://", "rtsp:/", 21, "source “s”: Cannot read ***@camera/1: such an address begins with rtsp://."),
        ("rtsp://me:secret@camera/1", "", 21, "Give a file"),
        ("name = \"s\"", "name = \"s\"\nmodel = \"n\"", 21, "no model “n”"),
        ("name = \"s\"", "name = \"s\"\nmodel = [1]", 21, "it is a list. Write a text in quotes"),
        ("name = \"s\"", "name = \"s\"\nloop = true", 21, "only files have loop"),
        ("name = \"s\"", "name = \"s\"\nsync = true", 21, "only files have sync"),
        ("name = \"s\"", "name = \"s\"\ntimeout = 0", 21, "above 0"),
        (
            "name = \"s\"",
            "name = \"s\"\ntimeout = \"ten\"",
            21,
            "“ten” is no time: write it with its unit, such as \"2s\"",
        ),
        ("name = \"s\"", "name = \"s\"\nmax-queued = 0", 21, "1 to 1024 frames"),
        (
            "name = \"s\"",
            "name = \"s\"\nmax-queued = 18446744073709551616",
            21,
            "it is the number 18446744073709551616. Write a whole number from 0 on",
        ),
        (
            "name = \"s\"",
            "name = \"s\"\nmotion-gate = \"1%\"",
            21,
            "it is the text \"1%\". Write a number, such as 0.001",
        ),
        ("name = \"s\"", "name = \"s\"\nbackoff-max = 0.1", 21, "not below backoff-min"),
        ("name = \"s\"", "name = \"s\"\npublish = [\"q\"]", 21, "no publish “q”"),
        (
            "name = \"s\"",
            "name = \"s\"\nprivacy = true",
            21,
            "true is [privacy], and there is none: add it, or write a table",
        ),
        ("name = \"s\"", "name = \"s\"\nrecord = true\nsnapshots = true", 22, "true is [snapshots], and there is none"),
        ("name = \"s\"", "name = \"s\"\nrecord = 1", 21, "it is the number 1. Write true, false or a table"),
        ("name = \"s\"", "name = \"s\"\ntrack = {tracker = 1.5}", 21, "there is no value “1.5” here"),
        ("name = \"s\"", "name = \"s\"\nanalytics = {config-file = \"none.json\"}", 21, "Check its path"),
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
        let error = load(&folder, &format!("wrong-{number}.toml"), config.as_bytes()).expect_err(new);
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
    let folder = scratch("config-names_are_given_once");
    let twice = right() + "\n[[source]]\nname = \"s\"\naddress = \"b.mp4\"\n";
    assert!(
        load(&folder, "twice.toml", twice.as_bytes()).unwrap_err().contains("line 24, name: there are two sources “s”")
    );
    let one_file = right().replace("{source}", "all") + "\n[[source]]\nname = \"t\"\naddress = \"b.mp4\"\n";
    let error = load(&folder, "one-file.toml", one_file.as_bytes()).unwrap_err();
    assert!(error.contains("line 12") && error.contains("write {source}"), "{error}");
    // By other names.
    std::os::unix::fs::symlink("all.jsonl", folder.join("link.jsonl")).unwrap();
    std::fs::create_dir(folder.join("sub")).unwrap();
    for other in ["./all.jsonl", "sub/../all.jsonl", "file:all.jsonl", "nowhere/.//x.jsonl", "link.jsonl"] {
        let first = if other.starts_with("nowhere") { "nowhere/x.jsonl" } else { "all.jsonl" };
        if other == "link.jsonl" {
            std::fs::write(folder.join("all.jsonl"), "").unwrap();
        }
        let aliases = right().replace("{source}.jsonl", first)
            + &format!("publish = [\"p\"]\n\n[[publish]]\nname = \"q\"\nlocation = \"{other}\"\n")
            + "\n[[source]]\nname = \"t\"\naddress = \"b.mp4\"\npublish = [\"q\"]\n";
        let error = load(&folder, "aliases.toml", aliases.as_bytes()).expect_err(other);
        assert!(error.contains("write {source}"), "{other}: {error}");
    }
}

#[test]
fn random_bytes_are_an_error() {
    let folder = scratch("config-random_bytes_are_an_error");
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
        if let Err(error) = load(&folder, &format!("random-{round}.toml"), &bytes) {
            assert!(
                error.starts_with("Cannot use ") && error.ends_with(['.', '?']) || error.contains("The keys are"),
                "{error}"
            );
        }
    }
}
