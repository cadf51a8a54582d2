// SPDX-License-Identifier: MPL-2.0
//! Secrets that stand in a wrong place, or are of a wrong kind: nobody is told.

use super::{load, right};
use crate::scratch::scratch;

#[test]
fn a_mistyped_destination_does_not_tell_its_password() {
    let folder = scratch("config-a_mistyped_destination_does_not_tell_its_password");
    let with = |location: &str, more: &str| {
        let text = right().replace("{source}.jsonl", location) + more;
        load(&folder, "mistyped.toml", text.as_bytes())
    };
    for location in ["mqtt//me:hush@h/t", "mqtt:/me:hush@h/t", "mqtt:me:hush@h/t", "MQTT:/me:hush@h/t"] {
        let error = with(location, "").unwrap_err();
        assert!(error.contains("line 12, location: ***@h/t is no address"), "{location}: {error}");
        assert!(error.contains("did you mean “mqtt://***@h/t”?"), "{location}: {error}");
    }
    // Of an unknown word it is a file.
    for location in ["mqt:/me:hush@h/t", "mqt//me:hush@h/t"] {
        let warnings = with(location, "").unwrap().warnings;
        assert!(matches!(&warnings[..], [only] if only.contains("there is no folder ***@h. ")), "{warnings:?}");
        let error = with(location, "\n[[source]]\nname = \"t\"\naddress = \"b.mp4\"\n").unwrap_err();
        assert!(error.contains("location: ***@h/t is the file of several sources"), "{location}: {error}");
    }
}

#[test]
fn a_secret_of_another_kind_is_not_told() {
    let folder = scratch("config-a_secret_of_another_kind_is_not_told");
    let wrong = |tables: &str| load(&folder, "kind.toml", right().replace("[http]", tables).as_bytes()).unwrap_err();
    for (tables, said) in [
        ("[http]\ntoken = 1234567890123456", "line 18, token: Write a text in quotes."),
        ("[rtsp]\npassword = 1234567890123456", "line 18, password: Write a text in quotes."),
        ("[[ask]]\napi-key = 1234567890123456", "line 18, api-key: Write a text in quotes."),
    ] {
        let error = wrong(tables);
        assert!(error.contains(said) && !error.contains("1234"), "{tables}: {error}");
    }
    if cfg!(feature = "otel") {
        let error = wrong("[otel]\nheaders = \"Authorization=Bearer hush, expected hush\"");
        assert!(error.contains("line 18, headers: Write a table with keys.") && !error.contains("hush"), "{error}");
        let error = wrong("[otel]\nheaders = {x-team = 1234}");
        assert!(error.contains("line 18, x-team: Write a text in quotes.") && !error.contains("1234"), "{error}");
    }
}
