// SPDX-License-Identifier: MPL-2.0
use std::collections::BTreeMap;

use gsttrt_core::model::ModelInfo;
use gsttrt_core::tensor::{DType, TensorDesc};

use super::super::config::{Config, RunsOn};
use super::super::identities::tests::served;
use super::*;
use crate::scratch::scratch;

type End = fn(&mut ModelThread);

fn config(path: &str, stamp: &Option<Stamp>) -> ModelConfig {
    ModelConfig {
        name: "m".into(),
        file: path.into(),
        stamp: stamp.clone(),
        on: RunsOn::Frames,
        classes: None,
        labels: None,
        layout_file: None,
        contents: 0,
        backend: None,
        batch_size: 1,
        preprocess: String::new(),
        infer: String::new(),
        nms: String::new(),
        has_several: false,
        matching: None,
    }
}

/// One with the file “a”, and what its thread does.
fn model(stamp: &Option<Stamp>) -> (Model, ModelThread) {
    let (model, events) = Model::new(config("a", stamp), 0, Vec::new());
    let (shared, gpus) = (model.shared.clone(), BTreeSet::new());
    let thread = ModelThread { shared, events, gpus, replacing: None, former: None, has_loaded: false, again: None };
    (model, thread)
}

fn file(path: &str, stamp: &Option<Stamp>) -> StampedFile {
    StampedFile::of(&config(path, stamp))
}

/// Of two contents of a file.
fn stamps(test: &str) -> [Option<Stamp>; 2] {
    let file = scratch(test).join("a");
    ["1", "22"].map(|content| {
        std::fs::write(&file, content).unwrap();
        Stamp::of(&file)
    })
}

/// Else the next configuration would begin again what is under way, or would not end it.
#[test]
fn a_file_is_wanted_until_it_has_taken_over_or_does_not() {
    let (model, mut thread) = model(&None);
    let kept = |thread: &mut ModelThread| {
        thread.replacing = Some((file("b", &None), Some("it is damaged".into())));
        thread.file_changed(Some("a".into()));
    };
    let ends: [(End, &str); 3] = [
        (|thread| assert!(thread.has_taken_over(Path::new("b"))), "b"),
        (|thread| assert!(thread.other_file().is_some()), "b"),
        (kept, "a"),
    ];
    for (end, in_use) in ends {
        for later in [None, Some("c")] {
            model.replace(Path::new("b"), None);
            thread.replacing = Some((file("b", &None), None));
            assert_eq!(model.shared.wanted_file(), file("b", &None));
            later.iter().for_each(|path| model.replace(Path::new(path), None));
            end(&mut thread);
            assert_eq!(model.shared.config().file, Path::new(in_use));
            assert_eq!(model.shared.wanted_file(), file(later.unwrap_or(in_use), &None));
        }
    }
    // Another content at the same path cannot be used.
    model.replace(Path::new("a"), None);
    thread.replacing = Some((file("a", &None), Some("it is damaged".into())));
    thread.file_changed(Some("a".into()));
    assert_eq!(model.shared.status().error.as_deref(), Some("it is damaged"));
    assert_eq!((thread.replacing, model.shared.wanted_file()), (None, file("a", &None)));
}

/// Else SIGHUP would not try again what has failed, or would load again what is in use.
#[test]
fn a_file_that_is_in_use_is_known_by_its_content() {
    let [first, second] = stamps("model-a_file_that_is_in_use_is_known_by_its_content");
    let (model, mut thread) = model(&first);
    let is_other = |path: &str, stamp: &Option<Stamp>| model.shared.is_other_file(&config(path, stamp));
    for path in ["a", "b"] {
        model.replace(Path::new(path), second.clone());
        assert!(!is_other(path, &second), "it is under way");
        thread.replacing = Some((file(path, &second), Some("there is no memory for both".into())));
        thread.file_changed(Some("a".into()));
        assert!(is_other(path, &second) && !is_other("a", &first), "{path}");
    }
    model.replace(Path::new("a"), second.clone());
    thread.replacing = Some((file("a", &second), None));
    // Sources that are added look for those of the configuration.
    assert_eq!(model.shared.configs(), [config("a", &first), config("a", &second)]);
    assert!(thread.has_taken_over(Path::new("a")));
    assert_eq!(model.shared.configs(), [config("a", &second)]);
    assert!(is_other("a", &first) && !is_other("a", &second));
}

/// Else the first content would be taken for the second one, which would be loaded no more.
#[test]
fn another_content_waits_until_the_first_one_is_loaded() {
    chain::start_gstreamer().unwrap();
    let [first, second] = stamps("model-another_content_waits_until_the_first_one_is_loaded");
    let (model, mut thread) = model(&first);
    let infer = gst::ElementFactory::make("trtinfer").build().unwrap();
    let kept = || Some(KeptElements(vec![infer.clone()]));
    let asked = || infer.property::<Option<PathBuf>>("model-file");
    let ask = |thread: &mut ModelThread, path: &str, stamp: &Option<Stamp>| {
        model.replace(Path::new(path), stamp.clone());
        assert!(thread.replace(file(path, stamp), kept()).is_some());
    };
    ask(&mut thread, "a", &second);
    assert_eq!((asked(), model.shared.wanted_file()), (None, file("a", &second)));
    assert!(thread.loaded(Path::new("a"), kept()).is_some(), "it is the first content");
    assert_eq!((asked(), model.shared.configs()[0].clone()), (Some("a".into()), config("a", &first)));
    assert!(thread.loaded(Path::new("a"), kept()).is_none(), "the elements go, and there is no GPU for others");
    assert_eq!(model.shared.configs(), [config("a", &second)]);
    // Another file need not wait, and what was asked for before does not come behind it.
    thread.has_loaded = false;
    ask(&mut thread, "a", &first);
    ask(&mut thread, "b", &first);
    assert_eq!((asked(), &thread.again), (Some("b".into()), &None));
    assert!(thread.loaded(Path::new("b"), kept()).is_none());
    assert_eq!(model.shared.configs(), [config("b", &first)]);
    // What is loaded fails, and what is there now is read.
    thread.has_loaded = false;
    ask(&mut thread, "b", &second);
    assert!(thread.other_file().is_some());
    assert_eq!((model.shared.configs(), &thread.again), (vec![config("b", &second)], &None));
    assert!(thread.other_file().is_none(), "once");
}

/// Else objects would be compared with vectors of two models.
#[test]
fn another_file_has_no_identities() {
    let [first, second] = stamps("model-another_file_has_no_identities");
    for (of, known) in [("reid", 0), ("faces", 2)] {
        let (model, mut thread) = model(&first);
        let (identities, table) = served();
        model.shared.set_identities(identities.of(of));
        model.replace(Path::new("a"), second.clone());
        thread.replacing = Some((file("a", &second), None));
        assert_eq!((thread.has_taken_over(Path::new("b")), table.counts().known), (false, 2));
        assert_eq!((thread.has_taken_over(Path::new("a")), table.counts().known), (true, known), "{of}");
    }
}

/// Else vectors of a file that does not take over would be taken, or those of the one in use refused.
#[test]
fn the_length_of_vectors_is_that_of_the_file_in_use() {
    chain::start_gstreamer().unwrap();
    let (model, mut thread) = model(&None);
    let read = |path: &str, task: &str, numbers: i64| {
        let inputs = vec![TensorDesc::new("images", DType::F32, &[-1, 3, 16, 16])];
        let outputs = vec![TensorDesc::new("vector", DType::F32, &[-1, numbers])];
        let metadata = BTreeMap::from([("task".to_string(), task.to_string())]);
        let info = ModelInfo::of_server(Path::new(path), String::new(), inputs, outputs, metadata).unwrap();
        model.shared.check_info(&info).unwrap();
        model.shared.vector_length()
    };
    assert_eq!(model.shared.vector_length(), None, "nothing is read yet");
    assert_eq!(read("a", "classify", 3), None);
    assert_eq!(read("a", "embed", 3), Some(3));
    model.replace(Path::new("b"), None);
    thread.replacing = Some((file("b", &None), None));
    assert_eq!(read("b", "embed", 5), None, "it is not in use");
    assert!(thread.has_taken_over(Path::new("b")));
    assert_eq!(model.shared.vector_length(), Some(5));
}

/// Else zones would never count, and models on objects would never see one.
#[test]
fn another_file_finds_what_sources_with_models_on_objects_need() {
    chain::start_gstreamer().unwrap();
    let folder = scratch("model-another_file_finds_what_sources_with_models_on_objects_need");
    let of_tests = |name: &str| PathBuf::from(format!("{}/../tests/models/{name}.onnx", env!("CARGO_MANIFEST_DIR")));
    let text = format!(
        "[[model]]\nname = \"m\"\nfile = {:?}\n\n[[model]]\nname = \"kinds\"\nfile = {:?}\non = \"objects\"\n\n\
         [track]\n\n[privacy]\nblur = \"disc\"\n\n[analytics]\nconfig = '{{\"zones\": [{{\"id\": \"room\", \
         \"points\": [[0, 0], [1, 0], [1, 1]], \"classes\": [\"disc\"]}}]}}'\n\n\
         [[source]]\nname = \"s\"\naddress = \"a.mp4\"\n",
        of_tests("shapes"),
        of_tests("shapes-cls")
    );
    let file = folder.join("config.toml");
    std::fs::write(&file, text).unwrap();
    let config = Config::load(&file).unwrap();
    let (model, _asked) = Model::idle(config.models[0].clone());
    model.shared.set_sources(config.sources.iter().cloned().map(Arc::new).collect());
    let refused = |name: &str| {
        let before = model.shared.check_file(&of_tests(name)).unwrap_err().to_string();
        [before, model.shared.check_info(&ModelInfo::read(&of_tests(name)).unwrap()).unwrap_err().message()]
    };
    model.shared.check_file(&of_tests("shapes-v8")).unwrap();
    for said in refused("figures-pose") {
        assert!(said.contains("source “s”, analytics: classes of “room”: model “m”: there is no class"), "{said}");
    }
    for said in refused("shapes-cls") {
        assert!(said.contains("source “s”, on-objects: it finds no objects"), "{said}");
    }
}

#[test]
fn the_share_that_is_built_is_in_the_text() {
    assert_eq!(percent("Loading m.onnx: building the engine (42 %)"), Some(42.0));
    assert_eq!(percent("Loading m.onnx: building the engine"), None);
}
