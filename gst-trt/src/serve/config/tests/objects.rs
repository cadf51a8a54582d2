// SPDX-License-Identifier: MPL-2.0
//! Models that see the objects of another one.

use super::{load, of_tests, right};
use crate::scratch::scratch;
use crate::serve::config::ModelConfig;

#[test]
fn models_on_objects_are_of_sources() {
    use crate::serve::config::RunsOn;
    let folder = scratch("config-models_on_objects_are_of_sources");
    let model = |name: &str, file: &str, more: &str| {
        format!("[[model]]\nname = \"{name}\"\nfile = \"{}\"\non = \"objects\"\n{more}\n", of_tests(file))
    };
    let two = |more: &str, of_source: &str| {
        let kinds = model("kinds", "shapes-cls.onnx", "classes = [\"disc\", \"1\"]");
        load(&folder, "two.toml", (kinds + more + &right() + of_source).as_bytes())
    };
    let config = two("", "").unwrap();
    let [kinds, m] = &config.models[..] else { panic!("two models") };
    assert_eq!((kinds.on, kinds.classes.as_deref(), m.on), (RunsOn::Objects, Some("disc,1"), RunsOn::Frames));
    let source = &config.sources[0];
    assert_eq!((source.model.as_str(), &source.on_objects[..]), ("m", &["kinds".to_string()][..]));
    assert!(two("", "on-objects = []\n").unwrap().sources[0].on_objects.is_empty());
    // What a detector on objects finds can be seen by the next model, in the order in which a source names them.
    let inner = model("inner", "shapes.onnx", "classes = [\"box\"]")
        + &model("last", "shapes-cls.onnx", "classes = [\"disc\"]");
    assert_eq!(two(&inner, "").unwrap().sources[0].on_objects, ["kinds", "inner", "last"]);
    let ordered = two(&inner, "on-objects = [\"last\", \"kinds\"]\n").unwrap();
    assert_eq!(ordered.sources[0].on_objects, ["last", "kinds"]);

    let named = model("kinds", "shapes-cls.onnx", "match = { gallery = \"g.jsonl\", threshold = 0.6 }") + &right();
    let ada = "{\"name\": \"Ada\", \"vector\": [1, 0]}\n";
    std::fs::write(folder.join("g.jsonl"), ada).unwrap();
    std::fs::write(folder.join("broken.jsonl"), format!("{ada}Bob\n")).unwrap();
    let named = load(&folder, "named.toml", named.as_bytes()).unwrap();
    assert_eq!(named.models[0].gallery(), Some(&*folder.join("g.jsonl")));
    assert!(named.models[0].elements().has_names && !named.models[1].elements().has_names);

    let kinds = |line: &str| {
        let right = model("kinds", "shapes-cls.onnx", "").replace("on = \"objects\"", line) + &right();
        load(&folder, "kinds.toml", right.as_bytes()).unwrap_err()
    };
    for (line, said) in [
        ("on = \"object\"", "line 4, on: there is no value “object” here; did you mean “objects”?"),
        ("classes = [\"disc\"]", "line 4: they are the classes of objects"),
        ("on = \"objects\"\nclasses = []", "line 5: there is no class in it"),
        ("on = \"objects\"\nclasses = [\"a,b\"]", "“a,b” is no class"),
        ("on = \"objects\"\nclasses = [\"dis\"]", "no class “dis”; did you mean “disc”?"),
        ("on = \"objects\"\npreprocess = \"regions=list\"", "Use the key on"),
        ("on = \"objects\"\npreprocess = \"object-classes=disc\"", "Use the key classes"),
        ("on = \"objects\"\n[[model]]\nname = \"kinds\"\nfile = \"x.onnx\"", "there are two models “kinds”"),
        ("match = { gallery = \"g.jsonl\" }", "it gives objects names by the vectors of a model that sees them"),
        ("on = \"objects\"\nmatch = { threshold = 0.5 }", "it has no gallery"),
        ("on = \"objects\"\nmatch = { gallery = \"none.jsonl\" }", "none.jsonl"),
        ("on = \"objects\"\nmatch = { gallery = \"broken.jsonl\" }", "line 2 of the gallery"),
        ("on = \"objects\"\nmatch = { galery = \"g.jsonl\" }", "did you mean “gallery”?"),
        ("on = \"objects\"\nmatch = { gallery = \"g.jsonl\", post-messages = true }", "post-messages"),
        ("on = \"objects\"\nmatch = { gallery = \"g.jsonl\", threshold = 2.0 }", "threshold"),
    ] {
        let error = kinds(line);
        assert!(error.contains(said), "{line}: {error}");
    }
    for (more, of_source, said) in [
        ("", "on-objects = [\"kind\"]", "on-objects: there is no model “kind”; did you mean “kinds”?"),
        ("", "on-objects = [\"m\"]", "on-objects: model “m” sees frames"),
        ("", "on-objects = [\"kinds\", \"kinds\"]", "model “kinds” is there twice"),
        ("", "model = \"kinds\"", "model “kinds” sees objects: name it in on-objects"),
        (&model("maps", "shapes-sem.onnx", ""), "", ": it gives a map of the whole picture"),
    ] {
        let error = two(more, &format!("{of_source}\n")).unwrap_err();
        assert!(error.contains(said), "{of_source}: {error}");
    }
    // A source whose model finds no objects has none for others.
    let classifier = |of_source: &str| {
        let text = model("kinds", "shapes-cls.onnx", "") + &right().replace("shapes.onnx", "shapes-cls.onnx");
        load(&folder, "classifier.toml", (text + of_source).as_bytes())
    };
    assert!(classifier("").unwrap_err().contains("“m” finds none. Use one that does. Or set on-objects"));
    classifier("on-objects = []\n").unwrap();
    let alone = model("kinds", "shapes-cls.onnx", "") + "[[source]]\nname = \"s\"\naddress = \"a.mp4\"\n";
    let error = load(&folder, "alone.toml", alone.as_bytes()).unwrap_err();
    assert!(error.contains("a source needs a [[model]] without on = \"objects\""), "{error}");
}

/// Else nobody would see that a new source has nothing of them.
#[test]
fn each_file_of_a_model_finds_what_models_on_objects_see() {
    let folder = scratch("config-each_file_of_a_model_finds_what_models_on_objects_see");
    let kinds = format!("[[model]]\nname = \"kinds\"\nfile = \"{}\"\non = \"objects\"\n", of_tests("shapes-cls.onnx"));
    let with = |file: &str, of_source: &str| {
        let text = kinds.clone() + &right().replace("shapes.onnx", file) + of_source;
        load(&folder, "running.toml", text.as_bytes()).unwrap()
    };
    let keys = serde_json::json!({"name": "new", "address": "a.mp4"});
    let config = with("shapes.onnx", "");
    let used = config.models[1].clone();
    let classifier = ModelConfig { file: of_tests("shapes-cls.onnx").into(), ..used.clone() };
    assert_eq!(config.source(&keys, std::slice::from_ref(&used)).unwrap().on_objects, ["kinds"]);
    for running in [vec![classifier.clone()], vec![used.clone(), classifier]] {
        let error = config.source(&keys, &running).unwrap_err();
        assert!(error.contains("on-objects: model “kinds” sees objects, and “m” finds none"), "{error}");
    }
    // The other way round.
    let config = with("shapes-cls.onnx", "on-objects = []\n");
    assert!(config.source(&keys, &config.models).unwrap_err().contains("“m” finds none"));
    assert_eq!(config.source(&keys, &[used]).unwrap().on_objects, ["kinds"]);
}

/// Objects of all models can be hidden, and classes of classifiers are no objects.
#[test]
fn what_a_second_model_finds_can_be_hidden() {
    let folder = scratch("config-what_a_second_model_finds_can_be_hidden");
    let with = |file: &str, blur: &str| {
        let model = format!("[[model]]\nname = \"second\"\nfile = \"{}\"\non = \"objects\"\n", of_tests(file));
        let privacy = format!("[privacy]\nblur = \"{blur}\"\n");
        load(&folder, "hidden.toml", (model + &right().replace("[record]", &(privacy + "[record]"))).as_bytes())
    };
    with("figures-pose.onnx", "figure,disc").unwrap();
    let error = with("shapes-cls.onnx", "star").unwrap_err();
    assert!(error.contains("model “m”: there is no class “star”"), "{error}");
}

/// Each of them may leave out what another one finds.
#[test]
fn what_none_of_the_models_finds_is_an_error() {
    let folder = scratch("config-what_none_of_the_models_finds_is_an_error");
    let with = |nms: &str, file: &str, nms_of_second: &str, more: &str| {
        let second = format!(
            "[[model]]\nname = \"second\"\nfile = \"{}\"\non = \"objects\"\nnms = \"{nms_of_second}\"\n",
            of_tests(file)
        );
        let first = right().replace("\n\n[track]", &format!("\nnms = \"{nms}\"\n\n[track]"));
        load(&folder, "several.toml", (second + &first + more).as_bytes())
    };
    let counted = "[source.analytics]\nconfig = '{\"zones\": [{\"id\": \"room\", \"points\": [[0, 0], [1, 0], [1, 1]], \
                   \"classes\": [\"disc\"]}]}'\n";
    let [blur, all] = ["disc", "*"].map(|class| format!("privacy = {{blur = \"{class}\"}}\n"));
    for (nms, file, nms_of_second) in [
        ("classes=disc", "shapes-cls.onnx", ""),
        ("classes=box", "shapes-v8.onnx", ""),
        ("", "shapes-v8.onnx", "classes=box"),
    ] {
        with(nms, file, nms_of_second, &blur).unwrap_or_else(|error| panic!("{nms} {file}: {error}"));
    }
    with("classes=disc", "shapes-cls.onnx", "", counted).unwrap();
    for (nms, file, nms_of_second, more, said) in [
        ("classes=box", "shapes-cls.onnx", "", &*blur, "“m”: class “disc” is never found: add it to classes=box"),
        ("classes=box", "shapes-v8.onnx", "classes=box", &*blur, "model “second”: class “disc” is never found"),
        // Objects without ids are not counted.
        ("classes=box", "shapes-v8.onnx", "", counted, "classes of “room”: model “m”: class “disc” is never found"),
        ("hold-detections=false", "shapes-v8.onnx", "", &*all, "frames that it does not see would not be hidden"),
    ] {
        let error = with(nms, file, nms_of_second, more).expect_err(said);
        assert!(error.contains(said), "{nms} {file} {more}: {error}");
    }
}
