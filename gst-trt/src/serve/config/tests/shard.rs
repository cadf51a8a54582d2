// SPDX-License-Identifier: MPL-2.0
//! What is left of a file for one of several replicas.

use super::{load, right};
use crate::scratch::scratch;

/// Sources `s`, `cam-0` to `cam-5`, and pictures of some of them. The source `cam-5` is a file that is not there.
fn of_replica(ordinal: u32) -> String {
    let sources: String = (0..6)
        .map(|number| format!("[[source]]\nname = \"cam-{number}\"\naddress = \"/none/{number}.mp4\"\n"))
        .collect();
    let tiles = |name: &str, sources: &str| format!("[[rtsp.tiles]]\nname = \"{name}\"\nsources = {sources}\n");
    let tiles =
        tiles("both", "[\"cam-2\", \"cam-4\"]") + &tiles("one", "[\"cam-4\"]") + "[[rtsp.tiles]]\nname = \"all\"\n";
    format!("shard = \"{ordinal}/2\"\n{}{sources}[rtsp]\n{tiles}", right())
}

#[test]
fn each_replica_keeps_what_concerns_its_sources() {
    let folder = scratch("config-each_replica_keeps_what_concerns_its_sources");
    let replicas = [0, 1].map(|ordinal| load(&folder, "shard.toml", of_replica(ordinal).as_bytes()).unwrap());
    let names = replicas.each_ref().map(|config| config.sources.iter().map(|source| &*source.name).collect::<Vec<_>>());
    assert_eq!(names.concat().len(), 7);
    assert!(names[0].contains(&"cam-2") && names[1].contains(&"cam-4"), "{names:?}");
    assert_eq!(replicas.each_ref().map(|config| config.sources.len() + config.elsewhere), [7, 7]);
    let tiles = replicas
        .each_ref()
        .map(|config| config.tiles.iter().map(|tiles| (&*tiles.name, tiles.sources.clone())).collect::<Vec<_>>());
    let named = |name: &str| Some(vec![name.to_string()]);
    assert_eq!(tiles[0], [("both", named("cam-2")), ("all", None)]);
    assert_eq!(tiles[1], [("both", named("cam-4")), ("one", named("cam-4")), ("all", None)]);
    // Each warns of its own files.
    let warned = |config: &super::Config, name: &str| {
        let file = format!("/none/{}.mp4", name.trim_start_matches("cam-"));
        config.warnings.iter().any(|warning| warning.contains(&file))
    };
    assert!(warned(&replicas[1], "cam-4") && !warned(&replicas[0], "cam-4"), "{:?}", replicas[0].warnings);
}

#[test]
fn mistakes_are_found_by_all_replicas() {
    let folder = scratch("config-mistakes_are_found_by_all_replicas");
    for ordinal in [0, 1] {
        let twice = of_replica(ordinal).replace("name = \"cam-3\"", "name = \"cam-4\"");
        let error = load(&folder, "shard.toml", twice.as_bytes()).unwrap_err();
        assert!(error.contains("there are two sources “cam-4”"), "{error}");
        let error = load(&folder, "shard.toml", of_replica(ordinal).replace("/2\"", "/two\"").as_bytes()).unwrap_err();
        assert!(error.contains(&format!("shard.toml: line 1: “{ordinal}/two” is no shard.")), "{error}");
    }
}
