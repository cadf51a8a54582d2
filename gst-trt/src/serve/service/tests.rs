// SPDX-License-Identifier: MPL-2.0
//! What a service does with configurations, sources and models.

use std::path::Path;

use super::*;
use crate::chain;
use crate::scratch::scratch;

const LIMIT: Duration = Duration::from_secs(60);

fn config(folder: &Path, text: &str) -> Config {
    chain::start_gstreamer().unwrap();
    std::fs::create_dir_all(folder).unwrap();
    let shapes = format!("{}/../tests/models/shapes.onnx", env!("CARGO_MANIFEST_DIR"));
    let file = folder.join("config.toml");
    let models = text.replace("MODEL", &format!("file = \"{shapes}\"\nbackend = \"rten\""));
    std::fs::write(&file, models).unwrap();
    Config::load(&file).unwrap()
}

fn names(service: &Service) -> (Vec<String>, Vec<String>) {
    let models = service.models().into_iter().map(|model| model.name).collect();
    (models, service.sources().into_iter().map(|source| source.name).collect())
}

/// Lines of two sources in one file could not be told from each other, and one would rename it under the other.
#[test]
fn a_source_that_is_added_does_not_write_to_the_file_of_another() {
    let folder = scratch("service-added");
    let text = "[[model]]\nname = \"m\"\nMODEL\n[[publish]]\nname = \"p\"\nlocation = \"all.jsonl\"\n\
                [[publish]]\nname = \"own\"\nlocation = \"{source}.jsonl\"\n\
                [[source]]\nname = \"a\"\naddress = \"a.mp4\"\n";
    let service = Service::start(config(&folder, text), Gpus::default(), &Threads::default()).unwrap();
    let add = |publish: &str| {
        let keys = serde_json::json!({"name": "b", "address": "b.mp4", "publish": [publish]});
        service.add_source(&keys)
    };
    let Err(Refused::Invalid(text)) = add("p") else { panic!("it was added") };
    assert!(text.contains("all.jsonl is the file of several sources") && text.ends_with('.'), "{text}");
    assert_eq!(names(&service).1, ["a"]);
    add("own").unwrap_or_else(|_| panic!("it has a file of its own"));
    assert!(service.stop(Instant::now() + LIMIT).is_empty());
}

/// An engine is built for minutes: that is neither begun again nor forgotten.
#[test]
fn a_file_that_is_to_take_over_counts() {
    let folder = scratch("service-a_file_that_is_to_take_over_counts");
    let file = |name: &str| PathBuf::from(format!("{}/../tests/models/{name}.onnx", env!("CARGO_MANIFEST_DIR")));
    let with = |name: &str| {
        let model = format!("[[model]]\nname = \"m\"\nfile = {:?}\nbackend = \"rten\"\n", file(name));
        config(&folder, &format!("{model}[http]\n"))
    };
    let (model, asked) = Model::idle(with("shapes").models[0].clone());
    let nothing = with("shapes").without_sources();
    let service = Service::start(nothing, Gpus::default(), &Threads::default()).unwrap();
    service.lock().models.push(model);
    for name in ["shapes-v8", "shapes-v8", "shapes"] {
        service.reload(with(name)).unwrap();
    }
    assert_eq!(asked(), [file("shapes-v8"), file("shapes")]);
    // Another content at the same path counts, too.
    let copy = folder.join("m.onnx");
    let of_copy = || {
        let model = format!("[[model]]\nname = \"m\"\nfile = {copy:?}\nbackend = \"rten\"\n");
        config(&folder, &format!("{model}[http]\n"))
    };
    for name in ["shapes", "shapes-v8"] {
        std::fs::copy(file(name), &copy).unwrap();
        (0..2).for_each(|_| service.reload(of_copy()).unwrap());
    }
    assert_eq!(asked(), [copy.clone(), copy.clone()]);
    // What it does not find cannot be hidden.
    assert_eq!(service.replace_model("m", &file("shapes-cls")), Ok(()));
    let hidden = serde_json::json!({"name": "a", "address": "a.mp4", "privacy": {"blur": "*"}});
    let Err(Refused::Invalid(text)) = service.add_source(&hidden) else { panic!("it was added") };
    assert!(text.contains("it has no boxes"), "{text}");
    assert!(service.stop(Instant::now() + LIMIT).is_empty());
}

/// Else a source that comes while a file is read would have a model that does not find what it hides.
#[test]
fn a_file_that_is_to_take_over_is_checked_for_what_came_meanwhile() {
    let folder = scratch("service-a_file_that_is_to_take_over_is_checked_for_what_came_meanwhile");
    let with = || config(&folder, "[[model]]\nname = \"m\"\nMODEL\n[http]\n");
    let file = |name: &str| PathBuf::from(format!("{}/../tests/models/{name}.onnx", env!("CARGO_MANIFEST_DIR")));
    let (model, asked) = Model::idle(with().models[0].clone());
    let service = Service::start(with().without_sources(), Gpus::default(), &Threads::default()).unwrap();
    service.lock().models.push(model);
    service.reload(with()).unwrap();
    let check = || service.check_other_file("m", &file("shapes-cls")).unwrap();
    let checked = check();
    let hidden = serde_json::json!({"name": "a", "address": "a.mp4", "privacy": {"blur": "*"}});
    assert_eq!(service.add_source(&hidden), Ok(()));
    assert_eq!(service.put_file("m", &checked), Ok(false));
    let Err(Refused::Invalid(text)) = service.replace_model("m", &file("shapes-cls")) else { panic!("it is put") };
    assert!(text.contains("source “a”, blur: model “m”: it has no boxes"), "{text}");
    assert_eq!(service.remove_source("a"), Ok(()));
    let checked = check();
    service.reload(with()).unwrap();
    assert_eq!((service.put_file("m", &checked), asked()), (Ok(false), Vec::new()));
    assert_eq!((service.put_file("m", &check()), asked()), (Ok(true), vec![file("shapes-cls")]));
    assert!(service.stop(Instant::now() + LIMIT).is_empty());
}

/// Threads of a busy machine come late to their ends: the times that add up leave more than half a second to them.
#[test]
fn the_times_of_the_end_leave_room() {
    const LAST_REQUEST: Duration = Duration::from_millis(200);
    let all = END + LAST_REQUEST + crate::LAST_THREADS;
    assert!(all <= Duration::from_millis(4400), "{all:?}");
}

/// Neither a model nor a source of a configuration is there if one of them cannot be started.
#[test]
fn a_configuration_is_applied_as_a_whole_or_not_at_all() {
    let folder = scratch("service-applied");
    let source = |name: &str, model: &str| {
        format!(
            "[[source]]\nname = \"{name}\"\naddress = \"{name}.mp4\"\nmodel = \"{model}\"\nbackoff-min = \"1h\"\nbackoff-max = \"1h\"\n"
        )
    };
    let first = "[[model]]\nname = \"m\"\nMODEL\n".to_string() + &source("stays", "m") + &source("goes", "m");
    let next =
        "[[model]]\nname = \"m\"\nbatch-size = 1\ninfer = \"interval=2\"\nMODEL\n[[model]]\nname = \"n\"\nMODEL\n"
            .to_string()
            + &source("comes", "n")
            + &source("stays", "m");
    let service = Service::start(config(&folder, &first), Gpus::default(), &Threads::default()).unwrap();
    let before = (vec!["m".to_string()], vec!["stays".to_string(), "goes".to_string()]);
    assert_eq!(names(&service), before);
    for more in 0..3 {
        let running = service.threads.wait(Duration::ZERO).len();
        service.threads.limit(Some(running + more));
        let failure = service.reload(config(&folder, &next)).unwrap_err().to_string();
        assert!(failure.contains("Cannot start a thread for "), "{failure}");
        service.threads.limit(None);
        assert_eq!(names(&service), before, "{more}");
        let stays = |service: &Service| service.lock().model("m").unwrap().config().infer.clone();
        assert_eq!(stays(&service), "");
        // What was started for it ends.
        let ended = std::time::Instant::now() + LIMIT;
        while service.threads.wait(Duration::from_millis(1)).len() > 3 {
            assert!(std::time::Instant::now() < ended);
        }
    }
    service.reload(config(&folder, &next)).unwrap();
    let after = (vec!["m".to_string(), "n".to_string()], vec!["comes".to_string(), "stays".to_string()]);
    assert_eq!(names(&service), after);
    // A source that comes later is one of the new configuration.
    let later = serde_json::json!({
        "name": "later", "address": "later.mp4", "model": "n", "backoff-min": "1h", "backoff-max": "1h",
    });
    assert_eq!(service.add_source(&later), Ok(()));
    assert!(service.stop(Instant::now() + LIMIT).is_empty());
    assert!(service.reload(config(&folder, &next)).unwrap_err().to_string().contains("The service ends"));
}
