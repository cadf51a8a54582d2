// SPDX-License-Identifier: MPL-2.0
use super::super::config::RunsOn;
use super::*;

type End = fn(&mut ModelThread);

/// Else the next configuration would begin again what is under way, or would not end it.
#[test]
fn a_file_is_wanted_until_it_has_taken_over_or_does_not() {
    let config = ModelConfig {
        name: "m".into(),
        file: "a".into(),
        stamp: None,
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
    };
    let (model, events) = Model::new(config, 0, Vec::new());
    let shared = model.shared.clone();
    let mut thread = ModelThread { shared, events, gpus: BTreeSet::new(), replacing: None, former: None };
    let kept = |thread: &mut ModelThread| {
        thread.replacing = Some(("b".into(), Some("it is damaged".into())));
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
            thread.replacing = Some(("b".into(), None));
            assert_eq!(model.shared.wanted_file(), Path::new("b"));
            later.iter().for_each(|file| model.replace(Path::new(file), None));
            end(&mut thread);
            assert_eq!(model.shared.config().file, Path::new(in_use));
            assert_eq!(model.shared.wanted_file(), Path::new(later.unwrap_or(in_use)));
        }
    }
    // Another content at the same path cannot be used.
    model.replace(Path::new("a"), None);
    thread.replacing = Some(("a".into(), Some("it is damaged".into())));
    thread.file_changed(Some("a".into()));
    assert_eq!(model.shared.status().error.as_deref(), Some("it is damaged"));
    assert_eq!((thread.replacing, model.shared.wanted_file()), (None, PathBuf::from("a")));
}

#[test]
fn the_share_that_is_built_is_in_the_text() {
    assert_eq!(percent("Loading m.onnx: building the engine (42 %)"), Some(42.0));
    assert_eq!(percent("Loading m.onnx: building the engine"), None);
}
