// SPDX-License-Identifier: MPL-2.0
//! Videos in browsers: what can be written, and what is wrong.

use super::*;
use crate::serve::webrtc::WebrtcSettings;

#[test]
fn browsers_have_videos() {
    let folder = scratch("config-browsers_have_videos");
    let load = |text: &str| load(&folder, "webrtc.toml", text.as_bytes());
    let with = |keys: &str| right() + "[webrtc]\n" + keys;
    let config = load(&with("")).unwrap();
    let default = WebrtcSettings { listen: "0.0.0.0:8189".parse().unwrap(), addresses: Vec::new() };
    assert_eq!(config.webrtc, Some(default));
    let keys = "listen = \"[::]:9000\"\naddresses = [\"203.0.113.7\", \"198.51.100.1:8189\", \"2001:db8::1\"]\n";
    let webrtc = load(&with(keys)).unwrap().webrtc.unwrap();
    let addresses: Vec<_> = webrtc.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(webrtc.listen, "[::]:9000".parse().unwrap());
    assert_eq!(addresses, ["203.0.113.7:0", "198.51.100.1:8189", "[2001:db8::1]:0"]);
    // Videos are made for them even without RTSP, and what was so at the start stays so.
    let (mut without, with) = (load(&right()).unwrap(), load(&with("")).unwrap());
    assert!(with.rtsp.is_none() && with.sources.iter().all(|source| source.has_output));
    assert!(without.sources.iter().all(|source| !source.has_output));
    without.keep_servers(&with);
    assert!(without.webrtc == with.webrtc && without.sources.iter().all(|source| source.has_output));
}

#[test]
fn what_browsers_cannot_reach_is_named_with_its_line() {
    let folder = scratch("config-what_browsers_cannot_reach");
    let first = right().lines().count();
    for (keys, said) in [
        ("listen = \"8189\"", "“8189” is no address with a port"),
        ("addresses = \"203.0.113.7\"", "Write a list"),
        ("addresses = [\"camera.local\"]", "“camera.local” is no address in numbers: write it like 203.0.113.7"),
        ("addresses = [\"0.0.0.0\"]", "nobody can be reached at “0.0.0.0”"),
        ("addresses = [\"224.0.0.1:1\"]", "nobody can be reached at “224.0.0.1:1”"),
        ("address = \"203.0.113.7\"", "address"),
    ] {
        let text = right() + "[webrtc]\n" + keys + "\n";
        let error = load(&folder, "webrtc.toml", text.as_bytes()).unwrap_err();
        assert!(error.contains(said) && error.contains(&format!("line {}", first + 2)), "{keys}: {error}");
    }
    let error = load(&folder, "webrtc.toml", right().replace("[http]", "[webrtc]").as_bytes()).unwrap_err();
    assert!(error.contains("there is no [http]: add it"), "{error}");
}
