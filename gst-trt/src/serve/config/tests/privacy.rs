// SPDX-License-Identifier: MPL-2.0
//! What is hidden and counted, and whether the model finds it.

use super::{load, of_tests, right, shapes};
use crate::scratch::scratch;
use crate::serve::config::ModelConfig;

#[test]
fn what_is_hidden_is_there() {
    let folder = scratch("config-what_is_hidden_is_there");
    let with = |table: &str| {
        let zones = "config = '{\"zones\": [{\"id\": \"room\", \"points\": [[0, 0], [1, 0], [1, 1]]}]}'";
        let start = right().find("config = '").unwrap();
        let end = start + right()[start..].find('\n').unwrap();
        right().replace(&right()[start..end], zones).replace("[record]", &format!("[privacy]\n{table}\n[record]"))
    };
    let load = |text: &str| load(&folder, "privacy.toml", text.as_bytes());
    for table in ["blur = \"disc, box\"\nmask = \"room\"", "pixelate = \"*\"", "mask = \"0,0,1,0,1,1\"", "blur = \"1\""]
    {
        let config = load(&with(table)).unwrap();
        assert!(config.sources[0].privacy.is_some(), "{table}");
    }
    let off = with("blur = \"disc\"") + "privacy = false\n";
    assert!(load(&off).unwrap().sources[0].privacy.is_none());
    let own = with("blur = \"disc\"") + "[source.privacy]\nmask = \"room\"\n";
    let config = load(&own).unwrap();
    let privacy = config.sources[0].privacy.as_ref().unwrap();
    assert_eq!((privacy.get("mask"), privacy.get("blur")), (Some("room"), None));
    for (table, said) in [
        ("", "hides nothing: write blur, pixelate or mask"),
        ("mask = \" , \"", "hides nothing"),
        ("blur = \"dics\"", "model “m”: there is no class “dics”; did you mean “disc”?"),
        ("pixelate = \"person\"", "model “m”: there is no class “person”. There are: "),
        ("mask = \"rom\"", "there is no zone “rom”; did you mean “room”?"),
        ("mask = \"0,0,1,0\"", "mask=0,0,1,0 cannot be read"),
        ("mask = \"0,0,1.01,0,1,1\"", "corner 2, 1.01,0, is beyond 1"),
        ("mask = \"0,0,0.5,0.5,1,1\"", "all corners are on one line"),
        ("blur = \"7\"", "model “m”: there is no class “7”. There are: "),
        ("blur = \"disc, 2\"", "model “m”: there is no class “2”"),
        ("draw = false", "there is no key “draw” here"),
        ("blurr = \"disc\"", "did you mean “blur”?"),
    ] {
        let error = load(&with(table)).unwrap_err();
        // The line below that of the table, and the key there.
        let key = table.split(' ').next().filter(|key| ["blur", "pixelate", "mask"].contains(key));
        let line = if table.is_empty() || said == "hides nothing" { "line 14" } else { "line 15" };
        assert!(error.contains(said) && error.contains(line), "{table}: {line}: {error}");
        assert!(said == "hides nothing" || key.is_none_or(|key| error.contains(key)), "{table}: {error}");
    }
    // Those of a source are its own.
    let own = with("mask = \"room\"") + "[source.privacy]\nblur = \"dics\"\n";
    let line = own.lines().position(|line| line == "blur = \"dics\"").unwrap() + 1;
    let error = load(&own).unwrap_err();
    assert!(error.contains(&format!("line {line}, blur: model “m”")), "{error}");
    let without = with("mask = \"room\"") + "analytics = false\nrecord = false\n";
    assert!(load(&without).unwrap_err().contains("names are those of zones of [analytics]"));
    let undrawn = with("mask = \"room\"").replace("[analytics]\n", "[analytics]\ndraw-zones = false\n");
    assert!(load(&undrawn).unwrap_err().contains("leave draw-zones = false out"));
}

/// What trtnms drops is never hidden, and what it does not repeat is seen in between.
#[test]
fn a_model_finds_what_is_hidden_and_counted() {
    let folder = scratch("config-a_model_finds_what_is_hidden_and_counted");
    let model = |file: &str, nms: &str, table: &str| {
        let file = format!("{}/../tests/models/{file}.onnx", env!("CARGO_MANIFEST_DIR"));
        let text = right().replace(&shapes(), &file).replace("\n\n[track]", &format!("\nnms = \"{nms}\"\n\n[track]"));
        load(&folder, "finds.toml", text.replace("[record]", &format!("[privacy]\n{table}\n[record]")).as_bytes())
    };
    for (file, nms, table) in [
        ("shapes", "classes=disc", "blur = \"disc\""),
        ("shapes", "classes=box", "blur = \"*\""),
        ("shapes", "score-threshold=1", "blur = \"disc\""),
        ("shapes", "hold-detections=false", "mask = \"0,0,1,0,1,1\""),
        ("shapes-cls", "", "mask = \"0,0,1,0,1,1\""),
        ("shapes-seg", "", "pixelate = \"*\""),
    ] {
        model(file, nms, table).unwrap_or_else(|error| panic!("{file} {nms} {table}: {error}"));
    }
    for (file, nms, table, said) in [
        (
            "shapes",
            "classes=box",
            "blur = \"disc\"",
            "blur: model “m”: class “disc” is never found: add it to classes=box",
        ),
        ("shapes", "classes=0", "pixelate = \"1\"", "class “1” is never found: add it to classes=0"),
        ("shapes", "hold-detections=false", "blur = \"*\"", "leave hold-detections=false out"),
        ("shapes-cls", "", "blur = \"*\"", "it has no boxes"),
        ("shapes-sem", "", "pixelate = \"disc\"", "it has no boxes"),
        ("rooms-depth", "", "blur = \"*\"", "it has no boxes"),
        ("shapes-cls", "layout=classify", "blur = \"*\"", "it has no boxes"),
    ] {
        let error = model(file, nms, table).expect_err(table);
        assert!(error.contains(said) && error.contains("line 16, "), "{file} {nms} {table}: {error}");
    }

    let zones = |classes: &str| {
        let zones = format!(
            "config = '{{\"zones\": [{{\"id\": \"room\", \"points\": [[0, 0], [1, 0], [1, 1]], \"classes\": {classes}}}]}}'"
        );
        let start = right().find("config = '").unwrap();
        let end = start + right()[start..].find('\n').unwrap();
        load(&folder, "zones.toml", right().replace(&right()[start..end], &zones).as_bytes())
    };
    zones("[\"disc\", 1]").unwrap();
    for (classes, said) in [("[\"dics\"]", "did you mean “disc”?"), ("[2]", "no class “2”")] {
        let error = zones(classes).unwrap_err();
        assert!(error.contains("line 8, config: classes of “room”: model “m”: ") && error.contains(said), "{error}");
    }
}

/// A gate passes over frames in which somebody small moves.
#[test]
fn what_is_hidden_is_looked_for_in_each_frame() {
    let folder = scratch("config-what_is_hidden_is_looked_for_in_each_frame");
    let with = |gate_of_model: &str, keys: &str| {
        let text = right().replace("\n\n[track]", &format!("\npreprocess = \"{gate_of_model}\"\n\n[track]"));
        load(&folder, "gate.toml", (text + keys).as_bytes())
    };
    for (gate_of_model, keys) in [
        ("", "motion-gate = 0.0\nprivacy = {blur = \"disc\"}\n"),
        ("motion-gate=0.01", "motion-gate = 0.0\nprivacy = {blur = \"disc\"}\n"),
        ("motion-gate=0.01", "privacy = {mask = \"0,0,1,0,1,1\"}\n"),
    ] {
        with(gate_of_model, keys).unwrap_or_else(|error| panic!("{gate_of_model} {keys}: {error}"));
    }
    for (gate_of_model, keys) in [
        ("", "motion-gate = 0.001\nprivacy = {blur = \"disc\"}\n"),
        ("motion-gate=0.01", "privacy = {pixelate = \"*\"}\n"),
    ] {
        let error = with(gate_of_model, keys).expect_err(keys);
        assert!(error.contains("leave motion-gate out"), "{gate_of_model} {keys}: {error}");
    }
}

/// Which of them the frames of a new source are for is not known.
#[test]
fn each_file_of_a_model_finds_what_a_new_source_hides() {
    let folder = scratch("config-each_file_of_a_model_finds_what_a_new_source_hides");
    let config = load(&folder, "files.toml", right().as_bytes()).unwrap();
    let used = config.models[0].clone();
    let wanted = ModelConfig { file: of_tests("shapes-cls.onnx").into(), ..used.clone() };
    let keys = serde_json::json!({"name": "new", "address": "a.mp4", "privacy": {"blur": "*"}});
    config.source(&keys, std::slice::from_ref(&used)).unwrap();
    for running in [[used.clone(), wanted.clone()], [wanted, used]] {
        let error = config.source(&keys, &running).unwrap_err();
        assert!(error.contains("it has no boxes"), "{error}");
    }
}
