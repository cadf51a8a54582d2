// SPDX-License-Identifier: MPL-2.0
//! Models of `gst-trt serve` that see the objects of another one.

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;

use serde_json::Value;

use crate::common::models::{classifier, embedder, inner};
use crate::common::service::{Service, ask, free_address};
use crate::common::wait::{LIMIT, wait_until};
use crate::common::{path, scratch, shapes};
use crate::{endless, source};

const TOKEN: &str = "0123456789abcdef-test";

/// The detector of discs and boxes, and results of all sources to stdout.
fn detector(address: &str) -> String {
    format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"rten\"\ninfer = \"interval=10\"\n\n[track]\n\n\
         [[publish]]\nlocation = \"-\"\n\n[http]\nlisten = \"{address}\"\ntoken = \"{TOKEN}\"\n\n",
        shapes()
    )
}

fn on_objects(name: &str, file: &str, more: &str) -> String {
    format!("[[model]]\nname = \"{name}\"\nfile = \"{file}\"\non = \"objects\"\nbackend = \"rten\"\n{more}\n\n")
}

fn get(address: &str, path: &str) -> Value {
    serde_json::from_slice(&ask(address, "GET", path, "", "").1).unwrap()
}

/// Each object of a result with the labels of its attributes.
fn attributes(result: &Value) -> Vec<(String, Vec<String>)> {
    let label = |value: &Value| value["label"].as_str().unwrap().to_string();
    let object = |object: &Value| {
        (label(object), object["attributes"].as_array().into_iter().flatten().map(label).collect::<Vec<_>>())
    };
    result["detections"].as_array().unwrap().iter().map(object).collect()
}

/// Waits for a result of a source with a disc and a box of which this is true.
#[track_caller]
fn wait_for(service: &Service, source: &str, is_wanted: impl Fn(&str, &[String]) -> bool) {
    for _ in 0..2000 {
        let found = attributes(&service.result(source));
        let has = |class: &str| found.iter().any(|(label, _)| label == class);
        if has("disc") && has("box") && found.iter().all(|(label, attributes)| is_wanted(label, attributes)) {
            return;
        }
    }
    panic!("it never comes");
}

#[test]
fn one_model_on_objects_is_for_all_sources_and_changes_as_the_first_one() {
    let folder = scratch("serve-objects");
    let address = free_address();
    let first = classifier(&folder.join("first.onnx"), "bright", "dark");
    let other = classifier(&folder.join("other.onnx"), "light", "gloomy");
    let of_discs = on_objects("kinds", &first, "classes = [\"disc\"]");
    let sources = endless("one") + &endless("two");
    let service = Service::start(&folder, &(detector(&address) + &of_discs + &sources));
    let has_of = |labels: [&'static str; 2], class: &'static str| {
        move |label: &str, found: &[String]| match found {
            [] => label != class,
            [only] => label == class && labels.contains(&only.as_str()),
            _ => false,
        }
    };
    for name in ["one", "two"] {
        wait_for(&service, name, has_of(["bright", "dark"], "disc"));
        assert_eq!(get(&address, &format!("/sources/{name}"))["on-objects"], serde_json::json!(["kinds"]));
    }
    service.said("kinds: Loaded first.onnx");
    let models = get(&address, "/models");
    assert_eq!(
        (&models[0]["on"], &models[1]["on"], &models[1]["loaded"]),
        (&"frames".into(), &"objects".into(), &true.into())
    );
    assert!(models[1]["batches"]["frames"].as_u64() > Some(1), "objects of both: {models}");

    // Another file over HTTP takes over between two frames.
    let body = serde_json::json!({"file": other}).to_string();
    assert_eq!(ask(&address, "PUT", "/models/kinds", TOKEN, &body).0, 202);
    service.said("kinds: Loaded other.onnx");
    wait_for(&service, "one", has_of(["light", "gloomy"], "disc"));
    // The first one has to find objects for it.
    let (status, said) = ask(&address, "PUT", "/models/shapes", TOKEN, &body);
    let said = String::from_utf8(said).unwrap();
    assert!(status == 400 && said.contains("source “one”, on-objects: it finds no objects"), "{status} {said}");
    // Other classes by a reload, and a source without it.
    let of_boxes = of_discs.replace("disc", "box");
    service.reload(&(detector(&address) + &of_boxes + &sources));
    service.said("was read again");
    wait_for(&service, "two", has_of(["bright", "dark"], "box"));
    let without = endless("one").replace("loop = true", "loop = true\non-objects = []") + &endless("two");
    service.reload(&(detector(&address) + &of_boxes + &without));
    service.said("was read again");
    wait_for(&service, "one", |_, found| found.is_empty());
    wait_for(&service, "two", has_of(["bright", "dark"], "box"));
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("CRITICAL") && !journal.contains("WARNING"), "{journal}");
}

/// What the second model finds is an object with a parent, which the third one sees.
#[test]
fn models_on_objects_follow_one_another() {
    let folder = scratch("serve-objects-three");
    let address = free_address();
    let plates = on_objects("plates", &inner(&folder.join("plates.onnx"), "plate"), "classes = [\"disc\"]");
    let kinds = on_objects("kinds", &classifier(&folder.join("k.onnx"), "bright", "dark"), "classes = [\"plate\"]");
    let service = Service::start(&folder, &(detector(&address) + &plates + &kinds + &endless("one")));
    let result = std::iter::from_fn(|| Some(service.result("one")))
        .take(2000)
        .find(|result| attributes(result).iter().any(|(label, found)| label == "plate" && found.len() == 1))
        .expect("a plate with its kind");
    let detections = result["detections"].as_array().unwrap();
    for object in detections {
        match object["label"].as_str().unwrap() {
            "plate" => assert_eq!(detections[object["parent"].as_u64().unwrap() as usize]["label"], "disc", "{result}"),
            _ => assert!(object.get("attributes").is_none(), "{result}"),
        }
    }
    assert_eq!(service.end().0.code(), Some(0));
}

/// Whoever is removed from the file of a gallery is no longer recognised.
#[test]
fn names_of_a_gallery_are_given_and_forgotten() {
    let folder = scratch("serve-objects-names");
    let address = free_address();
    let people = folder.join("people.jsonl");
    let line = |name: &str, vector: [i32; 3]| format!("{{\"name\": \"{name}\", \"vector\": {vector:?}}}\n");
    std::fs::write(&people, line("Ada", [1; 3]) + &line("Bob", [-1; 3])).unwrap();
    let more = "nms = \"layout=embed\"\nmatch = { gallery = \"people.jsonl\", threshold = 0.1 }";
    let looks = on_objects("looks", &embedder(&folder.join("looks.onnx")), more);
    let service = Service::start(&folder, &(detector(&address) + &looks + &endless("one")));
    wait_for(&service, "one", |_, names| names == ["Ada"]);
    let galleries = get(&address, "/galleries");
    assert_eq!((&galleries[0]["name"], &galleries[0]["vectors"]), (&"looks".into(), &2.into()), "{galleries}");
    assert_eq!(galleries[0]["names"], serde_json::json!(["Ada", "Bob"]));
    assert_eq!(ask(&address, "DELETE", "/galleries/looks/Ada", "", "").0, 401);
    assert_eq!(ask(&address, "DELETE", "/galleries/looks/Ada", TOKEN, "").0, 204);
    wait_for(&service, "one", |_, names| names.is_empty());
    assert_eq!(ask(&address, "DELETE", "/galleries/looks/Ada", TOKEN, "").0, 404);
    assert!(!std::fs::read_to_string(&people).unwrap().contains("Ada"));
    // Whoever is added is recognised.
    let add = |path: &str, token: &str, vector: &str| {
        let (status, text) = ask(&address, "POST", path, token, &format!("{{\"vector\": {vector}}}"));
        (status, String::from_utf8(text).unwrap())
    };
    assert_eq!(add("/galleries/looks/Eve", "", "[1, 1, 1]").0, 401);
    let refused = add("/galleries/looks/Eve", TOKEN, "[1, 1]");
    assert!(refused.0 == 400 && refused.1.contains("have 3 numbers, and the new ones 2"), "{refused:?}");
    assert_eq!(add("/galleries/shapes/Eve", TOKEN, "[1, 1, 1]").0, 404);
    let (status, added) = add("/galleries/looks/Eve", TOKEN, "[1, 1, 1]");
    assert_eq!(status, 201, "{added}");
    let added: Value = serde_json::from_str(&added).unwrap();
    assert_eq!(added, serde_json::json!({ "name": "Eve", "vectors": 2, "warning": null }));
    wait_for(&service, "one", |_, names| names == ["Eve"]);
    let (_, added) = add("/galleries/looks/Tom", TOKEN, "[2, 2, 2]");
    assert!(added.contains("“Eve” and “Tom” have the same vector"), "{added}");
    // Nobody is left who says how many numbers vectors have, but the model does.
    for name in ["Bob", "Eve", "Tom"] {
        assert_eq!(ask(&address, "DELETE", &format!("/galleries/looks/{name}"), TOKEN, "").0, 204);
    }
    let refused = add("/galleries/looks/Eve", TOKEN, "[1, 1]");
    assert!(refused.0 == 400 && refused.1.contains("has 2 numbers, and the model “looks” gives 3"), "{refused:?}");
    assert_eq!(add("/galleries/looks/Eve", TOKEN, "[1, 1, 1]").0, 201);
    std::fs::remove_file(&people).unwrap();
    let refused = add("/galleries/looks/Eve", TOKEN, "[1, 1, 1]");
    assert!(refused.0 == 400 && refused.1.contains("There is no gallery"), "{refused:?}");
    assert!(!people.exists(), "all others would be lost");
    assert_eq!(service.end().0.code(), Some(0));
}

/// The status says why. It takes the three seconds that a service waits for another program.
#[test]
fn a_gallery_that_cannot_be_changed_now_is_told() {
    let folder = scratch("serve-objects-held");
    let address = free_address();
    let (people, new) = (folder.join("people.jsonl"), folder.join("people.jsonl.new"));
    std::fs::write(&people, "{\"name\": \"Ada\", \"vector\": [1, 1, 1]}\n").unwrap();
    let more = "nms = \"layout=embed\"\nmatch = { gallery = \"people.jsonl\", threshold = 0.1 }";
    let looks = on_objects("looks", &embedder(&folder.join("looks.onnx")), more);
    let service = Service::start(&folder, &(detector(&address) + &looks + &endless("one")));
    service.said("Started.");
    let vector = "{\"vector\": [1, 1, 1]}";
    let change = |method: &str, name: &str| {
        let body = if method == "POST" { vector } else { "" };
        let (status, text) = ask(&address, method, &format!("/galleries/looks/{name}"), TOKEN, body);
        (status, String::from_utf8(text).unwrap())
    };
    // A folder has the place of the new file.
    std::fs::create_dir(&new).unwrap();
    for (method, name) in [("POST", "Eve"), ("DELETE", "Ada")] {
        let (status, text) = change(method, name);
        assert!(status == 500 && text.contains("Cannot write the gallery"), "{method}: {status}: {text}");
    }
    std::fs::remove_dir(&new).unwrap();
    let by_another = || {
        let file = File::create(&new).unwrap();
        file.lock().unwrap();
        file
    };
    let before = std::fs::read(&people).unwrap();
    let other = by_another();
    let (status, text) = change("POST", "Eve");
    assert!(status == 503 && text.contains("another program is changing it"), "{status}: {text}");
    assert_eq!(std::fs::read(&people).unwrap(), before);
    drop(other);
    assert_eq!(change("POST", "Eve").0, 201);

    // The end comes when what waits for another program is done.
    let waits = || {
        let tasks = std::fs::read_dir(service.proc("task")).unwrap().flatten();
        let mut names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
        names.any(|name| name == "trt-lock\n")
    };
    wait_until("no thread waits any more", LIMIT, || !waits());
    let other = by_another();
    let mut client = TcpStream::connect(&address).unwrap();
    let length = vector.len();
    write!(
        client,
        "POST /galleries/looks/Kim HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Length: {length}\r\n\r\n{vector}"
    )
    .unwrap();
    wait_until("the change waits", LIMIT, waits);
    service.signal(libc::SIGTERM);
    service.said("Ending.");
    drop(other);
    let (status, journal) = service.ended();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(std::fs::read_to_string(&people).unwrap().contains("Kim") && !new.exists(), "{journal}");
}

/// Two cameras see the same place, so that what is in one of them is in the other.
#[test]
fn objects_have_one_id_on_all_sources() {
    let folder = scratch("serve-objects-identities");
    let address = free_address();
    let looks = on_objects("looks", &embedder(&folder.join("looks.onnx")), "nms = \"layout=embed\"");
    let identities = |keys: &str| {
        format!(
            "[identities]\nlooks = 1\nmargin = 0\n{keys}\n[[identities.links]]\nsources = [\"one\", \"two\"]\noverlap = true\n\n"
        )
    };
    let zone = "[analytics]\nconfig = '{\"zones\": [{\"id\": \"all\", \"points\": [[0,0],[1,0],[1,1],[0,1]]}]}'\n\n";
    let config =
        |keys: &str| detector(&address) + &looks + zone + &identities(keys) + &endless("one") + &endless("two");
    let service = Service::start(&folder, &config(""));
    let ids = |source: &str| {
        let result = service.result(source);
        let objects = result["detections"].as_array().unwrap().iter();
        objects.filter_map(|object| object["identity"].as_u64()).collect::<Vec<u64>>()
    };
    let listed = || get(&address, "/identities").as_array().unwrap().clone();
    let of_both = |listed: Vec<Value>| listed.into_iter().find(|found| found["sources"].as_array().unwrap().len() == 2);
    let shared = (0..2000).find_map(|_| {
        let _ = (ids("one"), ids("two"));
        of_both(listed())
    });
    let shared = shared.expect("an object of both sources");
    // What happens to an object is told with its id.
    let has_event = |result: Value| {
        result["events"].as_array().is_some_and(|events| events.iter().any(|event| event["identity"].is_u64()))
    };
    assert!((0..2000).any(|_| has_event(service.result("two"))), "no event has an id");
    assert!(shared["label"].is_string() && shared["first-seen"].as_f64() <= shared["last-seen"].as_f64(), "{shared}");
    let metrics = String::from_utf8(ask(&address, "GET", "/metrics", "", "").1).unwrap();
    assert!(metrics.lines().any(|line| line.starts_with("gst_trt_identity_matches_total ")), "{metrics}");
    // A change of the keys goes on with the ids that were given.
    let given = |text: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix("gst_trt_identities_total "));
        line.unwrap().parse().unwrap()
    };
    service.reload(&config("threshold = 0.6"));
    service.said("was read again");
    let later = String::from_utf8(ask(&address, "GET", "/metrics", "", "").1).unwrap();
    assert!(given(&later) >= given(&metrics), "{later}");
    // Who is forgotten has another id when he is seen again.
    assert_eq!(ask(&address, "DELETE", "/identities", "", "").0, 401);
    assert_eq!(ask(&address, "DELETE", "/identities", TOKEN, "").0, 204);
    let before = given(&later);
    assert!((0..2000).any(|_| ids("one").iter().any(|id| *id > before)), "nobody is known again");
    assert!(listed().iter().all(|found| found["id"].as_u64() > Some(before)));
    assert_eq!(ask(&address, "DELETE", "/identities/0", TOKEN, "").0, 404);
    // Another content of the model's file may give other vectors.
    std::fs::rename(embedder(&folder.join("next.onnx")), folder.join("looks.onnx")).unwrap();
    service.reload(&config("threshold = 0.6"));
    service.said("was read again");
    service.said("All objects of [identities] are forgotten");
    // Without the table nobody has an id.
    service.reload(&(detector(&address) + &looks + &endless("one") + &endless("two")));
    service.said("was read again");
    let is_plain = |result: Value| {
        let objects = result["detections"].as_array().unwrap();
        objects.len() > 1 && objects.iter().all(|object| object.get("identity").is_none())
    };
    assert!((0..2000).any(|_| is_plain(service.result("two"))), "there are ids");
    assert!(listed().is_empty());
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("CRITICAL"), "{journal}");
}

/// It is one of the models that the service waits for, and that says what is wrong with it.
#[test]
fn a_model_on_objects_that_cannot_be_loaded_is_told() {
    let folder = scratch("serve-objects-broken");
    let address = free_address();
    let file = classifier(&folder.join("k.onnx"), "bright", "dark");
    let config =
        detector(&address) + &on_objects("kinds", &file, "") + &source("one", &path("tests/data/sample.mp4"), "");
    let with_gpu = config.replace("on = \"objects\"\nbackend = \"rten\"", "on = \"objects\"\nbackend = \"tensorrt\"");
    let service =
        Service::with(&folder, &with_gpu, &[("GSTTRT_TENSORRT", "/nonexistent"), ("CUDA_VISIBLE_DEVICES", "")]);
    service.said("ERROR kinds: ");
    let (status, ready) = ask(&address, "GET", "/readyz", "", "");
    let ready = String::from_utf8(ready).unwrap();
    assert!(status == 503 && ready.contains("the model “kinds” is not loaded"), "{ready}");
    assert_eq!(get(&address, "/models")[1]["loaded"], false);
    service.reload(&config);
    service.result("one");
    assert_eq!(service.end().0.code(), Some(0));
}
