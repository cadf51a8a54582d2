// SPDX-License-Identifier: MPL-2.0
//! Cameras and pipes whose answers have no end, and hostile ones among others.

use super::*;

/// An RTSP server whose answer has a header without an end.
fn endless() -> u16 {
    serve(move |mut connection| {
        thread::spawn(move || {
            loop {
                let asked = request(&connection);
                let number = asked.lines().find_map(|line| line.strip_prefix("CSeq: ")).unwrap_or("0");
                let mut answer = format!("RTSP/1.0 200 OK\r\nCSeq: {number}\r\n");
                answer +=
                    if asked.starts_with("OPTIONS") { "Public: OPTIONS, DESCRIBE, SETUP, PLAY\r\n\r\n" } else { "X: " };
                if connection.write_all(answer.as_bytes()).is_err() || asked.is_empty() {
                    return;
                }
                if asked.starts_with("DESCRIBE") {
                    while connection.write_all(&[b'a'; 1 << 16]).is_ok() {}
                    return;
                }
            }
        });
    })
}

/// An RTSP server that answers with another address of its own, or with one that is none of RTSP.
fn leading_on(is_to_itself: bool) -> u16 {
    serve(move |mut connection| {
        let port = connection.local_addr().unwrap().port();
        let location =
            if is_to_itself { format!("rtspt://127.0.0.1:{port}/on") } else { "file:///etc/hostname".to_string() };
        loop {
            let asked = request(&connection);
            let number = asked.lines().find_map(|line| line.strip_prefix("CSeq: ")).unwrap_or("0");
            let answer = match asked.starts_with("DESCRIBE") {
                true => format!("RTSP/1.0 302 Found\r\nCSeq: {number}\r\nLocation: {location}\r\n\r\n"),
                false => format!("RTSP/1.0 200 OK\r\nCSeq: {number}\r\nPublic: OPTIONS, DESCRIBE, SETUP, PLAY\r\n\r\n"),
            };
            if asked.is_empty() || connection.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}

const VIDEO: &str = "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:v\r\n";

/// A camera with that many streams, the first of which is that one. It says how many it was asked for when they are to play,
/// and sends that without an end then.
fn of_streams(first: &'static str, count: usize, sent: &'static [u8], asked_for: Sender<usize>) -> u16 {
    let more = (0..count).map(|number| format!("m=audio 0 RTP/AVP 0\r\na=control:s{number}\r\n")).collect::<String>();
    let described = format!("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\n{first}{more}");
    serve(move |mut connection| {
        let mut asked = 0;
        loop {
            let request = request(&connection);
            let number = request.lines().find_map(|line| line.strip_prefix("CSeq: ")).unwrap_or("0");
            let (header, body) = match request.split(' ').next().unwrap_or_default() {
                "OPTIONS" => ("Public: OPTIONS, DESCRIBE, SETUP, PLAY".into(), ""),
                "DESCRIBE" => {
                    (format!("Content-Type: application/sdp\r\nContent-Length: {}", described.len()), &*described)
                }
                "SETUP" => {
                    asked += 1;
                    ("Session: 1\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1".into(), "")
                }
                "PLAY" => {
                    let _ = asked_for.send(asked); // only the first one is waited for
                    ("Session: 1".into(), "")
                }
                _ => ("Session: 1".into(), ""),
            };
            let answer = format!("RTSP/1.0 200 OK\r\nCSeq: {number}\r\n{header}\r\n\r\n{body}");
            if request.is_empty() || connection.write_all(answer.as_bytes()).is_err() {
                return;
            }
            while !sent.is_empty() && request.starts_with("PLAY") && connection.write_all(sent).is_ok() {}
        }
    })
}

/// Each stream would take a thread.
#[test]
fn a_camera_is_asked_for_one_stream_whatever_it_has() {
    let folder = scratch("camera-streams");
    let (asked_for, is_asked_for) = channel();
    let port = of_streams(VIDEO, 100, &[], asked_for.clone());
    let child = detect(&folder, &format!("rtspt://127.0.0.1:{port}/v"), &["--no-video"]);
    assert_eq!(is_asked_for.recv_timeout(LIMIT), Ok(1));
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    // One without a video has nothing to give.
    let address = format!("rtspt://127.0.0.1:{}/v", of_streams("", 2, &[], asked_for));
    let args = ["detect", &address, "--model", &shapes(), "--backend", "cpu", "--no-video"];
    expect_failure(&run(&folder, &args), &args, &["Cannot read rtspt://127.0.0.1:", "there is no video in it."]);
}

#[test]
fn a_camera_whose_answer_has_no_end_is_given_up() {
    let folder = scratch("camera-endless");
    let address = format!("rtspt://127.0.0.1:{}/v", endless());
    let args = ["detect", &address, "--model", &shapes(), "--backend", "cpu", "--no-video"];
    expect_failure(&run(&folder, &args), &args, &["Cannot read rtspt://127.0.0.1:", "its answer has no end."]);
}

/// rtspsrc follows each answer at once, and tells of none.
#[test]
fn a_camera_that_leads_on_and_on_is_given_up() {
    let folder = scratch("camera-leads-on");
    for is_to_itself in [true, false] {
        let address = format!("rtspt://127.0.0.1:{}/v", leading_on(is_to_itself));
        let args = ["detect", &address, "--model", &shapes(), "--backend", "cpu", "--no-video"];
        let said = "it answers with another address again and again (302).";
        expect_failure(&run(&folder, &args), &args, &["Cannot read rtspt://127.0.0.1:", said]);
    }
}

#[test]
fn ctrl_c_ends_a_camera_that_sends_something_else_than_a_video() {
    let folder = scratch("camera-no-packets");
    let (asked_for, is_asked_for) = channel();
    let port = of_streams(VIDEO, 0, &[b'a'; 1 << 16], asked_for);
    let child = detect(&folder, &format!("rtspt://127.0.0.1:{port}/v"), &["--no-video"]);
    is_asked_for.recv_timeout(LIMIT).unwrap();
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("was stopped before its first frame") && !said.contains("eft behind"), "{said}");
    assert_eq!(files(&folder), [""; 0]);
}

/// Its connection is cut: rtspsrc, which does not stop while it reads, would take a core for as long as the camera sends.
#[test]
fn of_a_camera_whose_answer_has_no_end_nothing_is_left_behind() {
    const TOKEN: &str = "0123456789abcdef-test";
    let folder = scratch("camera-left-behind");
    let (address, (asked_for, is_asked_for)) = (free_address(), channel());
    let config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\ninfer = \"interval=30\"\n\n\
         [[publish]]\nlocation = \"-\"\nadd-empty-results = true\n\n[http]\nlisten = \"{address}\"\ntoken = \"{TOKEN}\"\n\n\
         [[source]]\nname = \"street\"\naddress = \"{}\"\nloop = true\nsync = true\n\n\
         [[source]]\nname = \"answers\"\naddress = \"rtspt://127.0.0.1:{}/v\"\n\n\
         [[source]]\nname = \"plays\"\naddress = \"rtspt://127.0.0.1:{}/v\"\n",
        shapes(),
        sample(),
        endless(),
        of_streams(VIDEO, 0, &[b'a'; 1 << 16], asked_for),
    );
    let service = Service::start(&folder, &config);
    service.causes("the camera is asked to play", &is_asked_for);
    service.said("its answer has no end. [damaged]");
    assert_eq!(ask(&address, "DELETE", "/sources/plays", TOKEN, "").0, 204);
    assert_eq!(ask(&address, "GET", "/sources/plays", TOKEN, "").0, 404);
    service.result("street");
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("eft behind"), "{journal}");
}

/// Of a video it is said after a while that it waits. Nothing of it is left behind.
#[test]
fn ctrl_c_ends_a_pipe_that_nobody_writes_to() {
    for (name, said) in [("a.ts", Some("Warning: a.ts has given no frame for 10 s.")), ("a.jpg", None)] {
        let folder = scratch(&format!("camera-pipe-{name}"));
        assert!(Command::new("mkfifo").arg(folder.join(name)).status().unwrap().success());
        let mut child = detect(&folder, name, &["--no-video"]);
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(errors.any(|line| line.starts_with("Loaded shapes-160.onnx")), "it waits for its input now");
        assert!(said.is_none_or(|said| errors.any(|line| line == said)), "{said:?}");
        signal(&child, libc::SIGINT);
        let rest: Vec<String> = errors.collect();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
        let (last, before) = rest.split_last().unwrap();
        assert!(
            last.starts_with("Error: ") && last.ends_with(" was stopped before its first frame was done."),
            "{rest:?}"
        );
        assert!(!before.iter().any(|line| line.contains("eft behind")), "{rest:?}");
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert_eq!(out, "");
        assert_eq!(files(&folder), [name]);
    }
}

/// Next to sources that lose nothing by them. `HOSTILE_SECONDS=60` goes on for so long, and prints figures.
#[test]
fn hostile_cameras_take_nothing_from_others() {
    const TOKEN: &str = "0123456789abcdef-test";
    /// Bytes that a source may take.
    const MEMORY: u64 = 64 << 20;
    let seconds = std::env::var("HOSTILE_SECONDS").map_or(0, |text| text.parse().expect("a number of seconds"));
    let folder = scratch("camera-hostile");
    let (address, server) = (free_address(), RtspServer::start(0, &["gate"]));
    let times: Vec<u64> = {
        let args = ["detect", &sample(), "--model", &shapes(), "--backend", "cpu", "--infer", "interval=300"];
        succeed(&folder, &[&args[..], &["--no-video", "--json", "times.jsonl"]].concat());
        lines(&folder.join("times.jsonl")).iter().map(|line| line["stream-time"].as_u64().unwrap()).collect()
    };
    // The queue of the camera has room for as long as the model may take.
    let mut config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\ninfer = \"interval=300\"\n\n\
         [[publish]]\nlocation = \"-\"\nadd-empty-results = true\n\n\
         [http]\nlisten = \"{address}\"\ntoken = \"{TOKEN}\"\n\n\
         [[source]]\nname = \"good-camera\"\naddress = \"rtspt://127.0.0.1:{}/gate\"\nmax-queued = 300\n\n",
        shapes(),
        server.port
    );
    let good = ["good-1", "good-2", "good-3"];
    for name in good {
        config += &format!("[[source]]\nname = \"{name}\"\naddress = \"{}\"\nloop = true\nsync = true\n\n", sample());
    }
    let service = Service::start(&folder, &config);
    let mut taken = 0;
    // The server goes on with the clip's frames without a gap, so that each has the time that its number gives, once GStreamer
    // knows how the clocks of both run: after some 40 frames.
    let step = (times[times.len() - 1] - times[0]) as f64 / (times.len() - 1) as f64;
    let first = (0..90).map(|_| service.result("good-camera")).last().unwrap()["stream-time"].as_u64().unwrap();
    let mut take = || {
        let line = service.result("good-camera");
        let sent = (line["stream-time"].as_u64().unwrap() - first) as f64 / step;
        assert_eq!(sent.round() as usize, taken + 1, "good-camera: frames were lost: {line}");

        for name in good {
            let line = service.result(name);
            assert_eq!(line["stream-time"], times[taken % times.len()], "{name}: frame {taken}: {line}");
        }
        taken += 1;
    };
    (0..30).for_each(|_| take());
    let memory = |name: &str| {
        let status = std::fs::read_to_string(service.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    };
    let before = memory("VmRSS");
    std::fs::write(service.proc("clear_refs"), "5").unwrap();

    let cameras = hostile_cameras::all(&folder);
    for HostileCamera { name, address, .. } in &cameras {
        config += &format!(
            "[[source]]\nname = \"{name}\"\naddress = \"{address}\"\ntimeout = 1\nbackoff-min = 0.1\nbackoff-max = 1\n\n"
        );
    }
    service.reload(&config);
    service.said("was read again");
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    let mut sources = Value::Null;
    let limit = LIMIT * 2 + Duration::from_secs(seconds);
    let has_failed = |source: &Value| !source["error"].is_null() || source["restarts"] != 0;
    wait_until("each hostile camera fails", limit, || {
        (0..10).for_each(|_| take());
        let asked = Instant::now();
        let (status, body) = ask(&address, "GET", "/sources", TOKEN, "");
        longest = longest.max(asked.elapsed());
        assert_eq!(status, 200);
        sources = serde_json::from_slice(&body).unwrap();
        let hostile =
            || sources.as_array().unwrap().iter().filter(|source| cameras.iter().any(|c| source["name"] == *c.name));
        if begun.elapsed() > LIMIT {
            let well: Vec<_> = hostile().filter(|source| !has_failed(source)).collect();
            assert!(well.is_empty(), "{well:#?}");
        }
        hostile().count() == cameras.len() && hostile().all(has_failed) && begun.elapsed().as_secs() >= seconds
    });
    (0..30).for_each(|_| take());
    let status_of = |name: &str| sources.as_array().unwrap().iter().find(|source| source["name"] == name).unwrap();
    let camera = status_of("good-camera");
    assert_eq!(
        (&camera["state"], &camera["restarts"], &camera["dropped"]),
        (&"running".into(), &0.into(), &0.into()),
        "{camera}"
    );
    let highest = memory("VmHWM").saturating_sub(before);
    let ending = Instant::now();
    let (status, journal) = service.end();
    if seconds > 0 {
        for camera in &cameras {
            let source = status_of(&camera.name);
            println!(
                "{}: {} restarts, {} left behind, {}",
                camera.name, source["restarts"], source["left-behind"], source["error"]
            );
        }
        println!(
            "{} hostile cameras, {taken} frames of each good source in {:.1} s, {} MiB more at most, {} MiB for each; longest answer \
             {:.1} ms; ended after {:.2} s",
            cameras.len(),
            begun.elapsed().as_secs_f64(),
            highest >> 20,
            (highest >> 20) / cameras.len() as u64,
            longest.as_secs_f64() * 1e3,
            ending.elapsed().as_secs_f64(),
        );
        println!("{journal}");
    }
    assert_eq!(status.code(), Some(0), "{journal}");
    // rtspsrc of GStreamer 1.22 says so, and means nothing by it, where a camera breaks off before it plays.
    let is_fault = |line: &str| line.contains("CRITICAL") && !line.contains("gst_event_set_seqnum: assertion");
    assert!(!journal.lines().any(is_fault) && !journal.contains("panicked"), "{journal}");
    assert!(highest < MEMORY * cameras.len() as u64, "{} MiB more", highest >> 20);
}
