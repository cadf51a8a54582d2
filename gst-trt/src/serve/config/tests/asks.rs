// SPDX-License-Identifier: MPL-2.0
//! Questions to a model that sees.

use std::time::Duration;

use super::{AUTHORITY, load, replace, right};
use crate::scratch::scratch;

/// A configuration that is right, with a question of these keys.
fn asking(keys: &str) -> String {
    right().replace(
        "[record]",
        &format!(
            "[[ask]]\nname = \"what\"\nurl = \"http://h:1\"\nmodel = \"v\"\nquestion = \"Is it?\"\n{keys}\n\n[record]"
        ),
    )
}

#[test]
fn sources_choose_what_is_asked() {
    let folder = scratch("config-sources_choose_what_is_asked");
    let load = |text: String| load(&folder, "ask.toml", text.as_bytes());
    std::fs::write(folder.join("key"), "sk-hush\n").unwrap();
    let keys = "api-key-file = \"key\"\nnames = [\"g\"]\nclasses = [\"disc\"]\nat-most = \"2/h\"\npicture = \"frame\"";
    let asks = load(asking(keys)).unwrap().sources[0].asks.clone();
    assert_eq!((asks.len(), asks[0].shown().as_str()), (1, "http://h:1/v1/chat/completions"));
    assert_eq!((asks[0].at_most.number, asks[0].at_most.each), (2, Duration::from_secs(3600)));
    assert_eq!(asks[0].api_key.as_ref().map(|key| key.reveal()), Some("sk-hush"));
    assert!(!format!("{asks:?}").contains("hush"), "{asks:?}");
    assert!(load(asking("") + "ask = []\n").unwrap().sources[0].asks.is_empty());
    assert_eq!(load(asking("") + "ask = [\"what\"]\n").unwrap().sources[0].asks[0].name, "what");
    // What only the sources have that are asked about.
    let two = asking("names = [\"gg\"]") + "ask = []\n\n[[source]]\nname = \"t\"\naddress = \"rtsp://camera/2\"\n";
    assert!(load(two.clone()).unwrap_err().contains("there is no zone or line “gg”. There are: g."));
    let zones =
        "[source.analytics]\nconfig = '{\"tripwires\": [{\"id\": \"gg\", \"points\": [[0.5, 0], [0.5, 1]]}]}'\n";
    assert_eq!(load(two + zones).unwrap().sources[1].asks.len(), 1);
    for (keys, source, line, said) in [
        ("events = [\"crosed\"]", "", 19, "did you mean “crossed”?"),
        ("events = []", "", 19, "there is no event in it. Leave it out for all."),
        ("names = []", "", 19, "there is no name in it"),
        ("classes = []", "", 19, "there is no class in it"),
        ("names = [\"gate\"]", "", 19, "there is no zone or line “gate”. There are: g."),
        ("classes = [\"dics\"]", "", 19, "there is no class “dics”; did you mean “disc”?"),
        ("at-most = \"6/minute\"", "", 19, "“6/minute” is no rate from 1 to 1000: write it like \"6/min\""),
        ("at-most = 6", "", 19, "a rate is a text: write it like \"6/min\""),
        ("picture = \"objet\"", "", 19, "did you mean “object”?"),
        ("max-size = 9", "", 19, "32 to 4096 pixels"),
        ("max-queued = 0", "", 19, "1 to 100 pictures wait"),
        ("timeout = 0", "", 19, "an answer may take 0.1 s to 10 min"),
        ("timeout = \"11min\"", "", 19, "an answer may take 0.1 s to 10 min"),
        ("api-key = \"${NO_SUCH_VARIABLE}\"", "", 19, "the environment has no variable NO_SUCH_VARIABLE"),
        ("api-key = \"sk hush\"", "", 19, "a key is one line without spaces"),
        ("api-key-file = \"none\"", "", 19, "cannot read"),
        ("api-key = \"a\"\napi-key-file = \"key\"", "", 19, "one of both is enough"),
        ("ca-file = \"ca.pem\"", "", 19, "only addresses of https:// have certificates"),
        (
            "[[ask]]\nname = \"what\"\nurl = \"http://h\"\nmodel = \"v\"\nquestion = \"?\"",
            "",
            20,
            "two questions “what”",
        ),
        ("", "ask = [\"wat\"]\n", 29, "there is no ask “wat”; did you mean “what”?"),
        ("", "analytics = false\nrecord = false\n", 26, "[[ask]] needs the events of [analytics]"),
    ] {
        let error = load(asking(keys) + source).expect_err(keys);
        assert!(error.contains(said) && error.contains(&format!("line {line}")), "{keys}{source}: {error}");
        assert!(!error.contains("hush"), "{error}");
    }
    for (url, said) in [
        ("h:1", "it is no web address. Write it like http://localhost:11434"),
        ("http://me:hush@h", "Write api-key or api-key-file instead"),
    ] {
        let error = load(asking("").replace("http://h:1", url)).unwrap_err();
        assert!(error.contains(said) && error.contains("line 16, url: ") && !error.contains("hush"), "{error}");
    }
}

/// They are read once, with the first question.
#[test]
fn another_content_of_the_certificates_is_another_question() {
    let folder = scratch("config-another_content_of_the_certificates_is_another_question");
    let with = |content: &str| {
        replace(&folder.join("ca.pem"), content);
        let text = asking("ca-file = \"ca.pem\"").replace("http://h:1", "https://h:1");
        load(&folder, "certificates.toml", text.as_bytes()).unwrap().sources.remove(0)
    };
    let before = with(AUTHORITY);
    assert!(with(AUTHORITY) == before, "another file with the same content is none");
    let after = with(&AUTHORITY.repeat(2));
    assert!(before != after && before.asks[0].ca_file == after.asks[0].ca_file);
}
