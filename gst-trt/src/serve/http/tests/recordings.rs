// SPDX-License-Identifier: MPL-2.0
//! The list of recordings, and their files in parts.

use super::*;
use crate::scratch::scratch;
use crate::serve::archive::{Kind, Recording, UtcTime};

/// Two sources, an hour after another, with a file of a hundred bytes.
fn recorded(test: &str) -> (Arc<FakeService>, Recording) {
    let folder = scratch(&format!("http-{test}"));
    std::fs::create_dir_all(&folder).unwrap();
    let service = FakeService::new(&[]);
    let recording = |source: &str, hour: u64, event: &str| {
        let begin = UtcTime::parse("2026-11-24T08:00:00Z").unwrap().0 + hour * 3_600_000_000_000;
        let event = |track: u64| serde_json::json!({"event": event, "track-id": track, "identity": hour + track});
        let events = [1, 2, 1].map(|track| event(track).as_object().unwrap().clone()).to_vec();
        let (begin, end) = (UtcTime(begin), UtcTime(begin + 60_000_000_000));
        Recording {
            file: format!("{source}-{hour}.mp4"),
            source: source.into(),
            kind: Kind::Event,
            begin,
            end,
            bytes: 100,
            events,
            object: None,
        }
    };
    let all = [recording("gate", 0, "entered"), recording("yard", 1, "crossed"), recording("gate", 2, "crossed")];
    std::fs::write(folder.join(&all[0].file), (0..100u8).collect::<Vec<_>>()).unwrap();
    *service.recorded.lock().unwrap() = (folder, all.to_vec());
    (service, all[0].clone())
}

fn files(answer: &HttpAnswer) -> Vec<String> {
    answer.json().as_array().unwrap().iter().map(|one| one["file"].as_str().unwrap().into()).collect()
}

#[test]
fn recordings_are_found_by_source_time_and_event() {
    let (service, first) = recorded("recordings");
    let server = serve(&service);
    for (query, expected) in [
        ("", &["gate-2.mp4", "yard-1.mp4", "gate-0.mp4"][..]),
        ("?source=gate", &["gate-2.mp4", "gate-0.mp4"]),
        ("?source=none", &[]),
        ("?event=crossed", &["gate-2.mp4", "yard-1.mp4"]),
        ("?event=crossed&source=gate", &["gate-2.mp4"]),
        ("?identity=2", &["yard-1.mp4", "gate-0.mp4"]),
        ("?identity=4&event=crossed", &["gate-2.mp4"]),
        ("?identity=5", &[]),
        ("?limit=1", &["gate-2.mp4"]),
        // What has a part in that time.
        ("?from=2026-11-24T09:00:30Z", &["gate-2.mp4", "yard-1.mp4"]),
        ("?to=2026-11-24T09:00:30Z", &["yard-1.mp4", "gate-0.mp4"]),
        ("?from=2026-11-24T09:00:30Z&to=2026-11-24T10%3A30%3A00%2B01%3A00", &["yard-1.mp4"]),
        ("?from=2026-11-24T11:00:00Z", &[]),
    ] {
        assert_eq!(files(&get(&server, &format!("/recordings{query}")).expect(200)), expected, "{query}");
    }
    let entry = &get(&server, "/recordings?to=2026-11-24T08:30:00Z").expect(200).json()[0];
    assert_eq!(entry["begin"], "2026-11-24T08:00:00.000Z");
    assert_eq!(entry["events"][0]["event"], "entered");
    assert_eq!((&entry["kind"], &entry["bytes"], &entry["file"]), (&"event".into(), &100.into(), &first.file.into()));
    for (query, said) in [
        ("?from=yesterday", "The time of from is not understood"),
        ("?to=2026-11-24T25:00:00Z", "The time of to is not understood"),
        ("?limit=0", "A limit is 1 to 10000"),
        ("?limit=many", "its keys are source,"),
        ("?identity=Ada", "identity and limit are whole numbers"),
        ("?identity=1&identity=2", "each of them once"),
        ("?sources=gate", "its keys are source,"),
    ] {
        get(&server, &format!("/recordings{query}")).expect_error(400, &[said]);
    }
}

#[test]
fn a_recording_is_sent_in_the_parts_that_are_asked_for() {
    let (service, first) = recorded("parts");
    let server = serve(&service);
    let path = format!("/recordings/{}", first.file);
    let all: Vec<u8> = (0..100).collect();
    let whole = get(&server, &path).expect(200);
    assert_eq!(whole.body, all);
    for line in ["content-type: video/mp4", "accept-ranges: bytes", "content-length: 100", "etag: \""] {
        assert!(whole.head.contains(line), "{line}: {}", whole.head);
    }
    let part = |range: &str| request(&server, "GET", &path, &[("Range", range)], "");
    for (range, expected, said) in [
        ("bytes=0-9", &all[..10], "bytes 0-9/100"),
        ("bytes=90-", &all[90..], "bytes 90-99/100"),
        ("bytes=50-1000", &all[50..], "bytes 50-99/100"),
        ("bytes=-1", &all[99..], "bytes 99-99/100"),
    ] {
        let answer = part(range).expect(206);
        assert_eq!(answer.body, expected, "{range}");
        assert!(answer.head.contains(&format!("content-range: {said}")), "{}", answer.head);
    }
    let outside = part("bytes=100-");
    assert!(outside.head.contains("content-range: bytes */100"), "{}", outside.head);
    outside.expect_error(416, &["100 bytes"]);
    assert_eq!(part("bytes=0-1,5-6").expect(200).body, all, "several parts are the whole");
    // A player that goes on with a file learns that it is another one.
    let tag = whole.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_string();
    let resumed = |tag: &str| request(&server, "GET", &path, &[("Range", "bytes=5-5"), ("If-Range", tag)], "");
    assert_eq!(resumed(&tag).expect(206).body, [5]);
    assert_eq!(resumed("\"other\"").expect(200).body, all);
    let head = request(&server, "HEAD", &path, &[], "").expect(200);
    assert!(head.body.is_empty() && head.head.contains("content-length: 100"), "{}", head.head);
    get(&server, "/recordings/none.mp4").expect_error(404, &["none.mp4"]);
    get(&server, "/recordings/yard-1.mp4").expect_error(404, &["yard-1.mp4"]);
    get(&server, "/recordings/..%2F..%2Fetc%2Fpasswd").expect_error(404, &["GET /recordings"]);
}

/// Pictures are in a list of their own.
#[test]
fn snapshots_are_found_by_their_class_and_sent() {
    let (service, first) = recorded("snapshots");
    let snapshot = |name: &str, label: &str, id: u64| Recording {
        file: name.into(),
        kind: Kind::Snapshot,
        object: serde_json::json!({"track-id": 7, "label": label, "identity": id}).as_object().cloned(),
        events: Vec::new(),
        ..first.clone()
    };
    {
        let recorded = &mut *service.recorded.lock().unwrap();
        recorded.1.extend([snapshot("a.jpg", "disc", 5), snapshot("b.jpg", "box", 6)]);
        std::fs::write(recorded.0.join("a.jpg"), [0xFF, 0xD8]).unwrap();
    }
    let server = serve(&service);
    for (query, expected) in [
        ("", &["a.jpg", "b.jpg"][..]),
        ("?label=box", &["b.jpg"]),
        ("?identity=5", &["a.jpg"]),
        ("?identity=2", &[]),
        ("?source=gate&label=disc", &["a.jpg"]),
        ("?source=yard", &[]),
        ("?limit=1", &["a.jpg"]),
        ("?to=2026-11-24T07:00:00Z", &[]),
    ] {
        assert_eq!(files(&get(&server, &format!("/snapshots{query}")).expect(200)), expected, "{query}");
    }
    assert_eq!(files(&get(&server, "/recordings").expect(200)).len(), 3);
    let entry = &get(&server, "/snapshots").expect(200).json()[0];
    assert_eq!((&entry["kind"], &entry["object"]["track-id"]), (&"snapshot".into(), &7.into()));
    let picture = get(&server, "/snapshots/a.jpg").expect(200);
    assert!(picture.head.contains("content-type: image/jpeg"), "{}", picture.head);
    assert_eq!(picture.body, [0xFF, 0xD8]);
    get(&server, "/snapshots/b.jpg").expect_error(404, &["b.jpg is gone", "/snapshots"]);
    get(&server, "/snapshots?event=x").expect_error(400, &["source, label, identity, from, to and limit"]);
    get(&server, "/snapshots?limit=0").expect_error(400, &["A limit is 1 to 10000"]);
}

/// Else those that many clients ask for would take more memory than there is.
#[test]
fn few_lists_are_made_at_the_same_time() {
    let (service, _) = recorded("lists");
    let limits = ClientLimits { lists: 1, frame: Duration::from_millis(30), ..ClientLimits::default() };
    let server = serve_within(limits, &service);
    let (answers, answered) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let disk = service.recorded.lock().unwrap();
        for path in ["/recordings", "/snapshots"] {
            let (server, answers) = (&server, answers.clone());
            scope.spawn(move || answers.send(get(server, path)).unwrap());
        }
        // One of them waits for the disk.
        answered.recv_timeout(LIMIT).unwrap().expect_error(503, &["1 of them are being made", "for less: limit,"]);
        drop(disk);
        answered.recv_timeout(LIMIT).unwrap().expect(200);
    });
    get(&server, "/recordings").expect(200);
}

/// Somebody has put something else in a file's place.
#[test]
fn a_link_is_no_recording() {
    let (service, first) = recorded("link");
    let file = service.recorded.lock().unwrap().0.join(&first.file);
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
    let server = serve(&service);
    get(&server, &format!("/recordings/{}", first.file)).expect_error(404, &["is gone"]);
}

/// Beyond localhost they need the token, as all that is read.
#[test]
fn recordings_are_behind_the_token() {
    let (service, first) = recorded("token");
    let server = start_within(ClientLimits::default(), &settings("0.0.0.0:0", Some(TOKEN)), service).unwrap();
    let address = format!("127.0.0.1:{}", server.address().port());
    let lists = ["/recordings", "/snapshots"].map(String::from);
    for path in lists.into_iter().chain([format!("/recordings/{}", first.file)]) {
        let ask = |more: &str| {
            let text = format!("GET {path} HTTP/1.1\r\nHost: camera.local\r\nConnection: close\r\n{more}\r\n");
            HttpAnswer::parse(&exchange(address.parse().unwrap(), text.as_bytes(), false)).unwrap().status
        };
        assert_eq!(ask(""), 401, "{path}");
        assert_eq!(ask(&format!("Authorization: Bearer {TOKEN}\r\n")), 200, "{path}");
    }
}
