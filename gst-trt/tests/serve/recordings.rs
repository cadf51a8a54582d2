// SPDX-License-Identifier: MPL-2.0
//! What `gst-trt serve` records: around events and all the time, after a kill, and on disks that are full or fail.

use crate::common::jpeg::picture_of;
use crate::common::service::{RtspServer, Service, ask, free_address};
use crate::common::wait::{LIMIT, wait_until};
use crate::common::{files, launch, packet_times, packets, sample, scratch, shapes};
use crate::{endless, head, source};

/// Zones of the whole picture, and recordings of what enters them, with further keys.
fn recording(keys: &str) -> String {
    head().replace("interval=30", "interval=1")
        + "[track]\n\n[analytics]\nconfig = '{\"zones\": [{\"id\": \"all\", \"points\": [[0,0],[1,0],[1,1],[0,1]]}]}'\n\n\
           [record]\nfolder = \"events\"\nevents = [\"entered\"]\n"
        + keys
        + "\n\n"
}

#[test]
fn recordings_begin_before_the_event_and_are_whole() {
    let folder = scratch("serve-record");
    // The clip's discs cross the middle all the time.
    let config = recording("pre-roll = 1\npost-roll = 0.5") + &source("gate", &sample(), "");
    let service = Service::start(&folder, &config);
    service.said("gate: Recorded ");
    // One that is being written when the end comes is whole, too.
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    let mut names = files(&folder.join("events"));
    names.retain(|name| name != "index.jsonl");
    assert!(
        !names.is_empty() && names.iter().all(|name| name.starts_with("gate-") && name.ends_with(".mp4")),
        "{names:?}"
    );
    for name in names {
        let video = folder.join("events").join(name);
        let shown = launch(&format!(
            "filesrc location={} ! decodebin ! videoconvert ! trtpreprocess ! trtinfer model-file={} interval=1000 backend=cpu \
             ! trtnms post-messages=true hold-detections=true draw=false ! fakesink",
            video.display(),
            shapes()
        ));
        assert!(!shown.is_empty(), "{} has no frames", video.display());
    }
}

/// As by a power cut: what was recorded can be played up to two seconds before.
#[test]
fn a_recording_that_is_killed_can_be_played() {
    for container in ["mp4", "mkv"] {
        let folder = scratch(&format!("serve-killed-{container}"));
        let config = recording(&format!("post-roll = 60\ncontainer = \"{container}\"")) + &endless("gate");
        let config = config.replace("interval=1", "interval=30"); // the first event is enough
        let service = Service::start(&folder, &config);
        while service.result("gate")["frame"] != 240 {}
        service.signal(libc::SIGKILL);
        assert_eq!(service.ended().0.code(), None);
        let names = files(&folder.join("events"));
        let [name] = &names[..] else { panic!("{names:?}") };
        assert!(name.ends_with(&format!(".{container}.part")), "{name}");
        let frames = packets(&folder.join("events").join(name), "video");
        assert!(frames > 240 - 60, "{name} has {frames} frames");
    }
}

/// The camera's own stream, which is neither decoded nor encoded for that.
#[test]
fn a_camera_is_recorded_with_its_sound() {
    let folder = scratch("serve-sound");
    let server = RtspServer::start(0, &["sound"]);
    let address = format!("rtspt://127.0.0.1:{}/sound", server.port);
    let service = Service::start(&folder, &(recording("pre-roll = 1\npost-roll = 2") + &source("gate", &address, "")));
    service.said("gate: Recorded ");
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    let names = files(&folder.join("events"));
    let file = folder.join("events").join(&names[0]);
    let (frames, sounds) = (packets(&file, "video"), packets(&file, "audio"));
    assert!(frames >= 60 && sounds >= 15, "{names:?}: {frames} frames, {sounds} sounds; {journal}");
    // The camera has no second sound, nor is anything of it decoded or encoded.
    assert!(!journal.contains("encoded"), "{journal}");
    // RTSP does not say when its B-frames are decoded. They last as long as they did, which is a thirtieth of a second.
    let times = packet_times(&file, "video");
    assert!(times.iter().any(|(pts, dts)| pts > dts) && times.iter().all(|(pts, dts)| pts >= dts), "{times:?}");
    let shown: std::collections::BTreeSet<_> = times.iter().map(|(pts, _)| *pts).collect();
    let length = *shown.last().unwrap() - *shown.first().unwrap();
    assert!(
        shown.len() == times.len() && length / shown.len() as u64 <= gst::ClockTime::from_mseconds(40),
        "{times:?}"
    );
}

/// What is recorded all the time, with its index, survives the end of the program.
#[test]
fn a_service_that_was_killed_finds_its_recordings_again() {
    let folder = scratch("serve-again");
    let address = free_address();
    let config = head()
        + "[record]\nfolder = \"all\"\ncontinuous = true\nsegment = \"3s\"\nkeep = \"1d\"\n\n"
        + &format!("[http]\nlisten = \"{address}\"\n\n")
        + &endless("gate");
    let service = Service::start(&folder, &config);
    service.said("gate: Recorded ");
    while service.result("gate")["frame"] != 200 {} // in the middle of a segment, as each 120th frame is a key frame
    service.signal(libc::SIGKILL);
    assert_eq!(service.ended().0.code(), None);
    let is_part = |name: &String| name.ends_with(".part");
    let left: Vec<_> = files(&folder.join("all")).into_iter().filter(is_part).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let service = Service::start(&folder, &config);
    let list = || {
        let (status, body) = ask(&address, "GET", "/recordings?source=gate", "", "");
        assert_eq!(status, 200);
        serde_json::from_slice::<Vec<serde_json::Value>>(&body).unwrap()
    };
    service.said("Started.");
    let whole = left[0].trim_end_matches(".part");
    wait_until("it is found", LIMIT, || list().iter().any(|recording| recording["file"] == whole));
    for recording in list() {
        let name = recording["file"].as_str().unwrap();
        assert_eq!((&recording["kind"], &recording["source"]), (&"continuous".into(), &"gate".into()));
        let file = folder.join("all").join(name);
        assert!(packets(&file, "video") > 30, "{name}");
        let (status, body) = ask(&address, "GET", &format!("/recordings/{name}"), "", "");
        assert_eq!((status, body.len() as u64), (200, std::fs::metadata(&file).unwrap().len()), "{name}");
    }
    assert_eq!(service.end().0.code(), Some(0));
}

/// Of each object that is gone there is its best picture, in which hidden parts are hidden; at the end of a file of all.
#[test]
fn snapshots_of_objects_are_written_and_listed() {
    let folder = scratch("serve-snapshots");
    let address = free_address();
    let config = head().replace("interval=30", "interval=3")
        + "[track]\n\n[snapshots]\nfolder = \"pictures\"\nclasses = [\"disc\"]\nmin-confidence = 0.3\nkeep = \"1d\"\n\n"
        + &format!("[http]\nlisten = \"{address}\"\n\n")
        + &source("gate", &sample(), "")
        + &source("hidden", &sample(), "privacy = {mask = \"0,0,1,0,1,1,0,1\"}");
    let service = Service::start(&folder, &config);
    service.said("Started.");
    let list = |source: &str| {
        let (status, body) = ask(&address, "GET", &format!("/snapshots?source={source}&label=disc"), "", "");
        assert_eq!(status, 200);
        serde_json::from_slice::<Vec<serde_json::Value>>(&body).unwrap()
    };
    ["gate", "hidden"].iter().for_each(|source| wait_until(source, LIMIT, || !list(source).is_empty()));
    let [seen, hidden] = ["gate", "hidden"].map(|source| {
        let one = &list(source)[0];
        let object = &one["object"];
        assert!(object["track-id"].as_u64().is_some() && object["w"].as_f64().unwrap() > 1.0, "{one}");
        let name = one["file"].as_str().unwrap();
        let (status, jpeg) = ask(&address, "GET", &format!("/snapshots/{name}"), "", "");
        assert_eq!((status, &jpeg), (200, &std::fs::read(folder.join("pictures").join(name)).unwrap()));
        picture_of(&jpeg).2
    });
    assert!(hidden < 20.0 && hidden * 2.0 < seen, "{hidden} and {seen}");
    let (_, metrics) = ask(&address, "GET", "/metrics", "", "");
    let metrics = String::from_utf8(metrics).unwrap();
    assert!(metrics.contains("gst_trt_snapshots_total{source=\"gate\"} "), "{metrics}");
    assert!(metrics.contains("gst_trt_disk_free_bytes{folder="), "{metrics}");
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("left behind") && !journal.contains("Cannot"), "{journal}");
    let names = files(&folder.join("pictures"));
    let index = std::fs::read_to_string(folder.join("pictures/index.jsonl")).unwrap();
    let is_listed = |name: &&String| name.as_str() == "index.jsonl" || index.contains(name.as_str());
    assert!(names.iter().all(|name| is_listed(&name)), "{names:?}: {index}");
}

/// What is being written is not removed, and all before it is.
#[test]
fn old_recordings_make_room_for_new_ones() {
    let folder = scratch("serve-room");
    let config = head()
        + "[record]\nfolder = \"all\"\ncontinuous = true\nsegment = \"1s\"\nkeep-bytes = 1\n\n"
        + &source("gate", &sample(), "loop = true");
    std::fs::create_dir(folder.join("all")).unwrap();
    std::fs::write(folder.join("all/holiday.mp4"), "not ours").unwrap();
    let service = Service::start(&folder, &config);
    let mut removed = Vec::new();
    for _ in 0..3 {
        let said = service.said("gate: Recorded ");
        let path = said.split("Recorded ").nth(1).unwrap().trim_end_matches('.').to_string();
        removed.push(std::path::PathBuf::from(path));
    }
    wait_until("they are removed", LIMIT, || removed.iter().all(|file| !file.exists()));
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(folder.join("all/holiday.mp4").exists());
}

/// Where nothing can be recorded that is said once, and once more where it comes again.
#[test]
fn a_disk_that_fails_again_is_told_of_again() {
    let folder = scratch("serve-disk");
    let config = recording("pre-roll = 0\npost-roll = 0.1") + &source("gate", &sample(), "loop = true");
    let events = folder.join("events");
    let service = Service::start(&folder, &config);
    for _ in 0..2 {
        service.said("gate: Recorded ");
        wait_until("the folder is a file", LIMIT, || {
            let _ = std::fs::remove_dir_all(&events);
            std::fs::write(&events, "no folder").is_ok()
        });
        // What was being written has no place any more.
        service.said("gate: Cannot ");
        std::fs::remove_file(&events).unwrap();
    }
    assert_eq!(service.end().0.code(), Some(0));
}

/// Each event opens a file, and none of them becomes whole.
#[test]
fn a_full_disk_is_told_of_once() {
    let folder = scratch("serve-full");
    let config = head().replace("interval=30", "interval=5")
        + "[track]\n\n[analytics]\nconfig = '{\"zones\": [{\"id\": \"all\", \"points\": [[0,0],[1,0],[1,1],[0,1]]}]}'\n\n\
           [record]\nfolder = \"events\"\npre-roll = 0\npost-roll = 0.1\n\n"
        + &source("gate", &sample(), "sync = true");
    let service = Service::with_small_files(&folder, &config, 4096);
    while service.result("gate")["frame"] != 280 {}
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("Recorded"), "{journal}");
    assert_eq!(journal.matches("gate: Cannot write ").count(), 1, "{journal}");
    assert_eq!(files(&folder.join("events")), Vec::<String>::new(), "what is not whole is not left there");
}
