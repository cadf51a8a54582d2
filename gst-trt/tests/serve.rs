// SPDX-License-Identifier: MPL-2.0
//! `gst-trt serve`: sources that share a model, fail and come back; reloads, recordings, and the end by a signal.

#[path = "serve/asks.rs"]
mod asks;
mod common;
#[path = "serve/objects.rs"]
mod objects;
#[cfg(feature = "otel")]
#[path = "serve/otel.rs"]
mod otel;
#[path = "serve/recordings.rs"]
mod recordings;
#[path = "serve/shards.rs"]
mod shards;
#[path = "serve/task.rs"]
mod task;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use common::kserve_server::{FakeServer, answers, served};
use common::service::{RtspServer, Service, ask, free_address};
use common::wait::{LIMIT, wait_until};
use common::{command, expect_failure, launch, path, run, sample, scratch, shapes, text};

/// A model, and all results of all sources to stdout. Every 30th frame is enough to be inferred.
fn head() -> String {
    format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\ninfer = \"interval=30\"\n\n\
         [[publish]]\nlocation = \"-\"\nadd-empty-results = true\n\n",
        shapes()
    )
}

fn source(name: &str, address: &str, more: &str) -> String {
    format!("[[source]]\nname = \"{name}\"\naddress = \"{address}\"\nbackoff-max = 1\n{more}\n\n")
}

/// A clip that goes on forever, at its own pace.
fn endless(name: &str) -> String {
    source(name, &sample(), "loop = true\nsync = true")
}

/// The frames of a source follow each other without a gap.
fn expect_no_gap(service: &Service, source: &str, last: &mut Option<u64>, count: usize) {
    for _ in 0..count {
        let frame = service.result(source)["frame"].as_u64().unwrap();
        assert!(last.is_none_or(|last| frame == last + 1), "{source}: {frame} after {last:?}");
        *last = Some(frame);
    }
}

/// What a thread keeps of freed memory would grow for half an hour. Who has set it is obeyed, and other tunables stay.
#[test]
#[cfg(target_env = "gnu")]
fn threads_keep_little_of_what_they_free() {
    for (number, set, want) in [
        (0, "", "glibc.malloc.tcache_max=128"),
        (1, "glibc.malloc.perturb=0", "glibc.malloc.perturb=0:glibc.malloc.tcache_max=128"),
        (2, "glibc.malloc.tcache_count=3", "glibc.malloc.tcache_count=3"),
    ] {
        let folder = scratch(&format!("serve-caches-{number}"));
        let service = Service::with(&folder, &(head() + &endless("one")), &[("GLIBC_TUNABLES", set)]);
        service.said("Started.");
        // glibc ends each tunable with NUL, as variables end.
        let environment = std::fs::read_to_string(service.proc("environ")).unwrap().replace('\0', ":");
        assert!(environment.contains(&format!("GLIBC_TUNABLES={want}:")), "{environment}");
        assert_eq!(environment.contains("tcache_max"), want.contains("tcache_max"), "{environment}");
        assert_eq!(std::fs::read_to_string(service.proc("comm")).unwrap(), "gst-trt\n");
        assert!(service.end().0.success());
    }
}

/// Where something takes the tunables away each time, as with capabilities of its file. Signals are held back until there are handlers.
#[test]
#[cfg(target_env = "gnu")]
fn a_program_that_has_begun_once_more_does_not_do_so_again() {
    let folder = scratch("serve-begun");
    let begun = "export GST_TRT_BEGUN_AGAIN=$$; exec env --block-signal=TERM \"$@\"";
    let service = Service::by_shell(&folder, &(head() + &endless("one")), begun);
    service.said("Started.");
    let environment = std::fs::read_to_string(service.proc("environ")).unwrap();
    assert!(environment.contains(&format!("GST_TRT_BEGUN_AGAIN={}\0", service.id())), "{environment}");
    assert!(!environment.contains("tcache_max"), "{environment}");
    assert!(service.end().0.success());
}

/// A variable has at most 128 KiB, where a page has 4.
#[test]
#[cfg(target_env = "gnu")]
fn a_program_that_cannot_begin_once_more_goes_on_as_it_is() {
    let folder = scratch("serve-not-begun");
    let long = "glibc.malloc.perturb=".to_string() + &"0".repeat(131_020); // 15 bytes are left
    let service = Service::with(&folder, &(head() + &endless("one")), &[("GLIBC_TUNABLES", long.as_str())]);
    service.said("Started.");
    let status = std::fs::read_to_string(service.proc("status")).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    assert_ne!(ignored & 1 << (libc::SIGPIPE - 1), 0, "a reader that leaves must not end it: {status}");
    assert!(service.end().0.success());
}

#[test]
fn two_sources_share_a_model_and_end_cleanly() {
    let folder = scratch("serve-two");
    let files = "[[publish]]\nlocation = \"{source}.jsonl\"\nadd-empty-results = true\n\n";
    let config = head() + files + &source("one", &sample(), "") + &source("two", &sample(), "");
    let service = Service::start(&folder, &config);
    service.said("Loaded shapes-160.onnx");
    for frame in 0..300 {
        for name in ["one", "two"] {
            assert_eq!(service.result(name)["frame"], frame, "{name}");
        }
    }
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("CRITICAL") && !journal.contains("Loaded"), "the model is loaded once: {journal}");
    for name in ["one", "two"] {
        let lines = common::lines(&folder.join(format!("{name}.jsonl")));
        assert!(lines.iter().all(|line| line["source-id"] == name), "{}", lines[0]);
        assert!(lines.iter().any(|line| !line["detections"].as_array().unwrap().is_empty()));
        assert_eq!(lines.len(), 300);
    }
}

#[test]
fn a_model_may_be_on_a_server() {
    let folder = scratch("serve-server");
    let server = FakeServer::start(answers(served("shapes", &shapes())));
    let config = |address: &str| {
        let model = format!("[[model]]\nname = \"shapes\"\nfile = \"{address}\"\ninfer = \"interval=30\"\n\n");
        model + "[[publish]]\nlocation = \"-\"\nadd-empty-results = true\n\n" + &source("one", &sample(), "")
    };
    let service = Service::start(&folder, &config(&server.address("shapes")));
    let found: Vec<_> = (0..60).map(|_| service.result("one")["detections"].clone()).collect();
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(found.iter().any(|found| !found.as_array().unwrap().is_empty()), "{journal}");
    // Whether it is there is seen when a source begins.
    drop(server);
    let check = |address: &str| {
        std::fs::write(folder.join("other.toml"), config(address)).unwrap();
        run(&folder, &["serve", "--check", "other.toml"])
    };
    assert!(check("grpc://triton.local/shapes").status.success());
    let output = check("grpc://me:Zq9@triton.local/shapes");
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("file: Cannot use the address grpc://***@triton.local/shapes"),
        "{said}"
    );
    assert!(!said.contains("Zq9"), "{said}");
}

#[test]
fn a_camera_that_fails_comes_back_and_others_lose_nothing() {
    let folder = scratch("serve-rtsp");
    let server = RtspServer::start(0, &["gate"]);
    let port = server.port;
    let config = head() + &source("gate", &format!("rtspt://127.0.0.1:{port}/gate"), "timeout = 5") + &endless("file");
    let service = Service::start(&folder, &config);
    service.result("gate");
    let mut last = None;
    expect_no_gap(&service, "file", &mut last, 3);
    drop(server);
    service.said("connection refused");
    expect_no_gap(&service, "file", &mut last, 10);
    let server = RtspServer::start(port, &["gate"]);
    // Lines of both are in one stream: the first one of the camera is that of its new life.
    while service.result("gate")["frame"].as_u64().unwrap() > 5 {}
    service.said("gate: frames again, after ");
    drop(server);
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("file: "), "{journal}");
}

/// Not by each attempt of its source, and not by a source that has never given a frame.
#[test]
fn a_broker_that_is_away_is_told_of_once() {
    let folder = scratch("serve-broker");
    let mut server = RtspServer::start(0, &["gate"]);
    let port = server.port;
    let broker = "[[publish]]\nname = \"broker\"\nlocation = \"mqtt://127.0.0.1:1/t\"\nadd-empty-results = true\n\
                  flush-timeout = 0\n\n";
    let gate = source("gate", &format!("rtspt://127.0.0.1:{port}/gate"), "timeout = 5");
    let dead = source("dead", "rtspt://127.0.0.1:1/none", "backoff-min = 0.1");
    let service = Service::start(&folder, &(head() + broker + &gate + &dead));
    service.said("gate: Cannot connect to mqtt://127.0.0.1:1/t");
    for _ in 0..2 {
        drop(server);
        service.said(&format!("127.0.0.1:{port}/gate"));
        server = RtspServer::start(port, &["gate"]);
        while service.result("gate")["frame"].as_u64().unwrap() > 5 {}
    }
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("Cannot connect to mqtt"), "{journal}");
}

/// GStreamer looks through all its plugins first, which takes long where it has not done so before.
#[test]
fn a_reload_that_comes_before_the_start_ends_nothing() {
    let folder = scratch("serve-early");
    let registry = folder.join("registry.bin").display().to_string();
    let service = Service::with(&folder, &(head() + &endless("gate")), &[("GST_REGISTRY", &registry)]);
    let id = service.proc("").file_name().unwrap().to_owned();
    let children = service.proc("task").join(id).join("children");
    wait_until("the look through the plugins", LIMIT, || !std::fs::read_to_string(&children).unwrap().is_empty());
    service.signal(libc::SIGHUP);
    service.said("Started.");
    service.said("was read again");
    service.result("gate");
    assert_eq!(service.end().0.code(), Some(0));
}

/// Until there is something to end, the end is a clean one, too.
#[test]
fn a_signal_that_comes_before_the_start_ends_it_cleanly() {
    let folder = scratch("serve-early-end");
    let registry = folder.join("registry.bin").display().to_string();
    let service = Service::with(&folder, &(head() + &endless("gate")), &[("GST_REGISTRY", &registry)]);
    let id = service.proc("").file_name().unwrap().to_owned();
    let children = service.proc("task").join(id).join("children");
    wait_until("the look through the plugins", LIMIT, || !std::fs::read_to_string(&children).unwrap().is_empty());
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{status}: {journal}");
}

/// A file that takes long to read, as each source in it is checked.
#[test]
fn the_end_does_not_wait_for_a_reload() {
    let folder = scratch("serve-long-reload");
    let service = Service::start(&folder, &(head() + &endless("gate")));
    service.said("Started.");
    let many: String = (0..5000).map(|number| source(&format!("s{number}"), "rtsp://127.0.0.1:1/x", "")).collect();
    service.reload(&(head() + &many + &source("last", "rtsp://127.0.0.1:1/x", "model = \"none\"")));
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("Everything goes on as before") && !journal.contains("Left behind"), "{journal}");
}

#[test]
fn a_reload_changes_what_has_changed_and_nothing_else() {
    let (folder, address) = (scratch("serve-reload"), free_address());
    let head = || head() + &format!("[http]\nlisten = \"{address}\"\n\n");
    let is_refused = |value: &str| {
        let metrics = String::from_utf8(ask(&address, "GET", "/metrics", "", "").1).unwrap();
        metrics.lines().any(|line| line == format!("gst_trt_configuration_refused {value}"))
    };
    let config = head() + &endless("stays") + &endless("goes");
    let service = Service::start(&folder, &config);
    let mut last = None;
    expect_no_gap(&service, "stays", &mut last, 3);
    // A mistake changes nothing.
    service.reload(&config.replace("[[model]]", "[[modle]]"));
    let said = service.said("Everything goes on");
    assert!(said.contains("line 1: ") && said.contains("did you mean “model”?"), "{said}");
    assert!(is_refused("1"));
    expect_no_gap(&service, "stays", &mut last, 3);
    // Another file, one source fewer and one more.
    let other = folder.join("other.onnx");
    std::fs::copy(shapes(), &other).unwrap();
    let next = head().replace(&shapes(), "other.onnx") + &endless("stays") + &endless("comes");
    service.reload(&next);
    service.said("goes: Removed.");
    service.result("comes");
    service.said("Loaded other.onnx");
    assert!(is_refused("0"));
    expect_no_gap(&service, "stays", &mut last, 10);
    // A model that cannot be read leaves the other one.
    std::fs::write(folder.join("broken.onnx"), "no model").unwrap();
    service.reload(&next.replace("other.onnx", "broken.onnx"));
    let said = service.said("Everything goes on");
    assert!(said.contains("line 3: ") && said.contains("broken.onnx"), "{said}");
    expect_no_gap(&service, "stays", &mut last, 10);
    assert_eq!(service.end().0.code(), Some(0));
}

/// The camera sends by TCP alone.
#[test]
fn a_source_says_how_its_packets_come() {
    let folder = scratch("serve-transport");
    let server = RtspServer::start(0, &["tcp"]);
    let address = format!("rtsp://127.0.0.1:{}/tcp", server.port);
    let config = head()
        + &source("by-tcp", &address, "transport = \"tcp\"\nlatency = \"100ms\"")
        + &source("by-udp", &address, "transport = \"udp\"");
    let service = Service::start(&folder, &config);
    service.result("by-tcp");
    service.said("by-udp: Cannot read rtsp://");
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("by-tcp: Cannot"), "{journal}");
}

/// A file of strangers may have any number of them.
#[test]
fn a_sound_takes_no_thread() {
    let folder = scratch("serve-sounds");
    let sounds = "audiotestsrc num-buffers=5 ! audio/x-raw,rate=8000,channels=1 ! alawenc ! m. ".repeat(100);
    let video = format!("filesrc location={} ! qtdemux ! h264parse ! queue ! m.", sample());
    launch(&format!("matroskamux name=m ! filesink location={} {video} {sounds}", folder.join("sounds.mkv").display()));
    let service = Service::start(&folder, &(head() + &source("gate", "sounds.mkv", "loop = true\nsync = true")));
    service.result("gate");
    let threads = service.proc("task").read_dir().unwrap().count();
    assert!(threads < 50, "{threads}");
    assert_eq!(service.end().0.code(), Some(0));
}

#[test]
fn what_waits_for_its_file_begins_once_it_is_there() {
    let folder = scratch("serve-later");
    let service = Service::start(&folder, &(head() + &source("later", "later.mp4", "backoff-min = 0.1")));
    service.said("later: ");
    std::os::unix::fs::symlink(sample(), folder.join("later.mp4")).unwrap();
    assert_eq!(service.result("later")["frame"], 0);
    assert_eq!(service.end().0.code(), Some(0));
}

#[test]
fn http_shows_sources_and_pictures() {
    let folder = scratch("serve-http");
    let address = free_address();
    let config = head() + &format!("[http]\nlisten = \"{address}\"\n\n") + &endless("gate");
    let service = Service::start(&folder, &config);
    service.said("Started.");
    service.result("gate");
    let get = |path| match ask(&address, "GET", path, "", "") {
        (200, body) => body,
        (status, body) => panic!("{path}: {status}: {}", String::from_utf8_lossy(&body)),
    };
    let picture = get("/sources/gate/snapshot.jpg");
    assert!(picture.starts_with(&[0xff, 0xd8]) && picture.ends_with(&[0xff, 0xd9]), "{} bytes", picture.len());
    let sources: serde_json::Value = serde_json::from_slice(&get("/sources")).unwrap();
    let gate = sources.as_array().map_or(&sources["sources"][0], |sources| &sources[0]);
    assert_eq!((&gate["name"], &gate["state"]), (&"gate".into(), &"running".into()), "{sources}");
    assert!(gate["frames"].as_u64().unwrap() > 0 && gate["latency"]["p50"].as_f64().unwrap() > 0.0, "{sources}");
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("CRITICAL"), "{journal}");
}

/// Frames that keep the pace of their file wait for it before they are inferred, and not with their results.
#[test]
fn the_wait_for_the_clock_is_no_latency() {
    let folder = scratch("serve-latency");
    let address = free_address();
    // The queue has room for a second.
    let model = head().replace("interval=30", "interval=1000000");
    let source = source("gate", &sample(), "loop = true\nsync = true\nmax-queued = 30");
    let config = model + &format!("[http]\nlisten = \"{address}\"\n\n") + &source;
    let service = Service::start(&folder, &config);
    for _ in 0..20 {
        service.result("gate");
    }
    let begun = std::time::Instant::now();
    for _ in 0..75 {
        service.result("gate");
    }
    assert!(begun.elapsed().as_secs_f64() > 2.0, "it plays at its own pace: {:?}", begun.elapsed());
    let (_, sources) = ask(&address, "GET", "/sources", "", "");
    let sources: serde_json::Value = serde_json::from_slice(&sources).unwrap();
    let gate = sources.as_array().map_or(&sources["sources"][0], |sources| &sources[0]);
    let latency = gate["latency"]["p50"].as_f64().unwrap();
    assert!((0.0..0.1).contains(&latency), "{sources}");
    assert!(gate["latency-from-camera"].is_null(), "a file has no camera: {sources}");
    assert_eq!(service.end().0.code(), Some(0));
}

/// An RTSP camera reports its clock, by which the time of capture is known.
#[test]
fn latency_is_from_the_camera_too() {
    let server = RtspServer::start(0, &["gate"]);
    let folder = scratch("serve-camera-latency");
    let address = free_address();
    let camera = source("gate", &format!("rtspt://127.0.0.1:{}/gate", server.port), "");
    let model = head().replace("interval=30", "interval=1000000");
    let service = Service::start(&folder, &(model + &format!("[http]\nlisten = \"{address}\"\n\n") + &camera));
    let begun = std::time::Instant::now();
    let [decoder, camera] = loop {
        service.result("gate");
        let (_, sources) = ask(&address, "GET", "/sources", "", "");
        let sources: serde_json::Value = serde_json::from_slice(&sources).unwrap();
        let gate = sources.as_array().map_or(&sources["sources"][0], |sources| &sources[0]);
        let found = ["latency", "latency-from-camera"].map(|name| gate[name]["p50"].as_f64());
        if let [Some(decoder), Some(camera)] = found {
            break [decoder, camera];
        }
        assert!(begun.elapsed().as_secs() < 40, "{sources}");
    };
    assert!(decoder > 0.0 && camera > 0.0 && camera < 30.0, "{decoder}, {camera}");
    assert_eq!(service.end().0.code(), Some(0));
}

#[test]
fn the_page_has_a_configuration_that_runs() {
    let folder = scratch("serve-docs");
    let page = std::fs::read_to_string(path("docs/serve.md")).unwrap();
    let config = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    std::os::unix::fs::symlink(shapes(), folder.join("yolo11n.onnx")).unwrap();
    std::os::unix::fs::symlink(sample(), folder.join("street.mp4")).unwrap();
    std::fs::write(folder.join("config.toml"), config).unwrap();
    let output = run(&folder, &["serve", "--check", "config.toml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Without the camera of the page, and at a free port.
    let config = config.replace("127.0.0.1:8090", &free_address());
    let service = Service::start(&folder, &config);
    service.said("Started.");
    let results = folder.join("street.jsonl");
    wait_until("results", LIMIT, || results.metadata().is_ok_and(|file| file.len() > 0));
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
}

/// Root may write everywhere, so it is another user's service then.
#[test]
fn a_check_tells_where_the_user_may_not_write() {
    let folder = scratch("serve-check-rights");
    let closed = folder.join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, Permissions::from_mode(0o555)).unwrap();
    let config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\n\n[[publish]]\nlocation = \"closed/{{source}}.jsonl\"\n\n\
         [record]\nfolder = \"closed/events\"\ncontinuous = true\nkeep = \"1d\"\n\n[[source]]\nname = \"gate\"\naddress = \"{}\"\n\n\
         [[source]]\nname = \"yard\"\naddress = \"{}\"\nrecord = {{folder = \"closed/yard\", continuous = true, keep = \"1d\"}}\n",
        shapes(),
        sample(),
        sample()
    );
    std::fs::write(folder.join("config.toml"), config).unwrap();
    let mut check = command(&folder);
    check.args(["serve", "--check", "config.toml"]);
    // SAFETY: it only reads.
    if unsafe { libc::geteuid() } == 0 {
        check.uid(65534).gid(65534);
    }
    let output = check.output().unwrap();
    let warnings = text(&output.stderr);
    let said =
        |key: &str| warnings.matches(&format!("{key}: this user may not write to {}. ", closed.display())).count();
    assert_eq!((said("location"), said("folder")), (1, 2), "{warnings}");
    expect_failure(&output, &["--check"], &["3 parts of it do not work now"]);
}

#[test]
fn a_wrong_configuration_is_one_sentence() {
    let folder = scratch("serve-wrong");
    std::fs::write(folder.join("config.toml"), "[[source]]\nname = \"a\"\nadress = \"b\"\n").unwrap();
    for args in [&["serve", "config.toml"][..], &["serve", "--check", "config.toml"]] {
        expect_failure(&run(&folder, args), args, &["config.toml", "line 3", "adress", "did you mean “address”?"]);
    }
    let args = ["serve", "none.toml"];
    expect_failure(&run(&folder, &args), &args, &["Cannot read none.toml", "Check its path and permissions."]);
    assert!(!Path::new("none.toml").exists());
}

/// What is true of the configuration is said by --check, at the start and by a reload, by the same words.
#[test]
fn a_check_tells_what_does_not_work_now() {
    let folder = scratch("serve-check");
    let check = |config: &str| {
        std::fs::write(folder.join("config.toml"), config).unwrap();
        run(&folder, &["serve", "--check", "config.toml"])
    };
    let absent = head() + &source("gate", "nofile.mp4", "");
    let output = check(&absent);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let warning = stderr.lines().find_map(|line| line.strip_prefix("Warning: ")).expect("a warning");
    assert!(warning.contains("address: there is no file ") && warning.contains("nofile.mp4"), "{warning}");
    expect_failure(&output, &["--check"], &["can be used, but a part of it does not work now"]);
    let service = Service::start(&folder, &absent);
    service.said(warning);
    service.said("Started.");
    // Nothing that a text has in it is obeyed by the terminal, and nothing ends the service.
    for nms in ["\\u0007", "\\u001b[2J=1"] {
        let wrong = absent.replace("infer = ", &format!("nms = \"{nms}\"\ninfer = "));
        service.reload(&wrong);
        let said = service.said("Everything goes on");
        assert!(said.contains("control characters") && !said.contains('\u{1b}'), "{said}");
        std::fs::write(folder.join("config.toml"), &wrong).unwrap();
        let output = run(&folder, &["serve", "--check", "config.toml"]);
        expect_failure(&output, &["--check"], &["nms: it has control characters"]);
    }
    service.reload(&absent);
    service.said("was read again");
    assert_eq!(service.end().0.code(), Some(0));
}

#[test]
fn zones_and_lines_are_counted_over_http() {
    let folder = scratch("serve-zones");
    let address = free_address();
    let config = head().replace("interval=30", "interval=1")
        + "[track]\n\n[analytics]\nconfig = '{\"zones\": [{\"id\": \"all\", \"points\": [[0,0],[1,0],[1,1],[0,1]]}], \
           \"tripwires\": [{\"id\": \"middle\", \"points\": [[0.5, 0], [0.5, 1]]}, \
           {\"id\": \"edge\", \"points\": [[0, 0], [0, 0.01]]}]}'\n\n"
        + &format!("[http]\nlisten = \"{address}\"\n\n")
        + &endless("gate");
    let service = Service::start(&folder, &config);
    service.said("Started.");
    let gate = || {
        let (_, gate) = ask(&address, "GET", "/sources/gate", "", "");
        serde_json::from_slice::<serde_json::Value>(&gate).unwrap()
    };
    wait_until("counts", LIMIT, || {
        let gate = gate();
        let line = |name: &str| gate["lines"].as_array().unwrap().iter().find(|line| line["name"] == name).cloned();
        let crossed = |line: serde_json::Value| line["forward"].as_u64().unwrap() + line["backward"].as_u64().unwrap();
        gate["zones"][0]["objects"].as_object().is_some_and(|objects| !objects.is_empty())
            && line("middle").map(crossed) > Some(0)
            && line("edge").map(crossed) == Some(0)
    });
    let metrics = String::from_utf8(ask(&address, "GET", "/metrics", "", "").1).unwrap();
    for part in [
        "gst_trt_zone_objects{source=\"gate\",zone=\"all\",class=\"",
        "gst_trt_crossings_total{source=\"gate\",line=\"edge\",direction=\"forward\"} 0\n",
        "gst_trt_crossings_total{source=\"gate\",line=\"middle\",direction=\"backward\"} ",
        "gst_trt_last_frame_timestamp_seconds{source=\"gate\"} ",
        "gst_trt_latency_seconds_count{source=\"gate\"} ",
        "gst_trt_latency_seconds_bucket{source=\"gate\",le=\"+Inf\"} ",
        "gst_trt_zone_passages_total{source=\"gate\",zone=\"all\",direction=\"in\"} ",
        "gst_trt_zone_dwell_seconds_count{source=\"gate\",zone=\"all\"} ",
        "gst_trt_model_runs_total{model=\"shapes\"} ",
        "process_resident_memory_bytes ",
    ] {
        assert!(metrics.contains(part), "{part}\n{metrics}");
    }
    assert_eq!(service.end().0.code(), Some(0));
}

/// Where it says what it does: as a person, a program and journald want it.
#[test]
fn lines_of_the_log_are_for_their_reader() {
    use std::os::unix::fs::MetadataExt;
    let folder = scratch("serve-log");
    let run = |log: &str, args: &[&str]| {
        std::fs::write(folder.join("config.toml"), format!("[http]\nlisten = \"127.0.0.1:0\"\n\n{log}")).unwrap();
        let written = std::fs::File::create(folder.join("written")).unwrap();
        let place = written.metadata().unwrap();
        let mut command = common::command(&folder);
        command.args(["serve", "config.toml"]).args(args).stderr(written);
        let is_journal = args.is_empty() && log.is_empty();
        command.env("JOURNAL_STREAM", format!("{}:{}", place.dev(), place.ino() + u64::from(!is_journal)));
        let mut child = command.spawn().unwrap();
        let lines = || std::fs::read_to_string(folder.join("written")).unwrap();
        wait_until("it has started", LIMIT, || lines().contains("Started.") || child.try_wait().unwrap().is_some());
        // SAFETY: it is our child, which has not been waited for unless it has failed.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        assert_eq!(child.wait().unwrap().code(), Some(0), "{}", lines());
        lines()
    };
    let text = run("[log]\nlevel = \"info\"\n", &[]);
    assert!(text.lines().all(|line| line.starts_with("20") && line.contains("Z INFO serve: ")), "{text}");
    let journal = run("", &[]);
    assert!(journal.lines().all(|line| line.starts_with("<6>serve: ")), "{journal}");
    for json in [run("[log]\nformat = \"json\"\n", &[]), run("[log]\nformat = \"text\"\n", &["--log-format", "json"])] {
        let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines[0]["message"].as_str().unwrap().starts_with("Started. http://127.0.0.1:"), "{json}");
        assert!(lines.iter().all(|line| line["level"] == "info" && line["name"] == "serve"), "{json}");
    }
}

/// What is said of the model has its name, whichever of its sources' elements say it, and a broker that is away is told of once, however often a camera is tried.
#[test]
fn nothing_is_said_again_and_again() {
    let folder = scratch("serve-journal");
    let address = free_address();
    let model = head()
        .replace(
            "backend = \"cpu\"\ninfer = \"interval=30\"",
            "infer = \"interval=30 precision=fp16\"\nnms = \"top-k=3\"",
        )
        .replace("location = \"-\"", "location = \"mqtt://127.0.0.1:1/t\"");
    let source =
        source("gate", "broken.mp4", "backoff-min = \"1ms\"").replace("backoff-max = 1\n", "backoff-max = \"1ms\"\n");
    std::fs::write(folder.join("broken.mp4"), "no video").unwrap();
    let config =
        model + &format!("[http]\nlisten = \"{address}\"\n\n") + &source + &endless("stays") + &endless("stays-too");
    let service = Service::start(&folder, &config);
    for text in ["precision has no effect", "Running the model on the CPU", "top-k has no effect"] {
        let line = service.said(text);
        assert!(line.contains(" shapes: "), "{line}");
    }
    let restarts = || {
        let (_, gate) = ask(&address, "GET", "/sources/gate", "", "");
        serde_json::from_slice::<serde_json::Value>(&gate).unwrap()["restarts"].as_u64().unwrap()
    };
    wait_until("attempts", LIMIT, || restarts() > 30);
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    let count = |text: &str| journal.lines().filter(|line| line.contains(" gate: ") && line.contains(text)).count();
    assert!(count("mqtt://") <= 1 && count("Cannot read") <= 1, "{journal}");
    assert!(!journal.contains("Running the model"), "it was said once: {journal}");
    assert!(!journal.contains("has no effect"), "it was said once: {journal}");
}
