// SPDX-License-Identifier: MPL-2.0
//! Why a source gives no frames, as the log, HTTP and metrics name it.

use super::*;

/// An HTTP server with that answer to everything.
fn web(head: &str, body: Vec<u8>) -> u16 {
    let answer = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    serve(move |mut connection| {
        request(&connection);
        let _ = connection.write_all(&[answer.as_bytes(), &body].concat()); // it has gone
    })
}

/// An RTSP server that describes no stream, and answers that instead.
fn rtsp(answer: &'static str) -> u16 {
    serve(move |mut connection| {
        loop {
            let asked = request(&connection);
            let number = asked.lines().find_map(|line| line.strip_prefix("CSeq: ")).unwrap_or("0");
            let answer =
                if asked.starts_with("OPTIONS") { "200 OK\r\nPublic: OPTIONS, DESCRIBE, SETUP, PLAY" } else { answer };
            let answer = format!("RTSP/1.0 {answer}\r\nCSeq: {number}\r\n\r\n");
            if asked.is_empty() || connection.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}

/// What a camera answers who wants a stream by TCP.
const BY_TCP: &str = "RTP/AVP/TCP;unicast;interleaved=0-1";

/// An RTSP server that describes its streams so, sends them by that way, and sends nothing of them.
fn describing(sdp: &'static str, transport: &'static str) -> u16 {
    serve(move |mut connection| {
        loop {
            let asked = request(&connection);
            let number = asked.lines().find_map(|line| line.strip_prefix("CSeq: ")).unwrap_or("0");
            let answer = match asked.split(' ').next().unwrap_or_default() {
                "OPTIONS" => "Public: OPTIONS, DESCRIBE, SETUP, PLAY\r\n\r\n".to_string(),
                "DESCRIBE" => format!("Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{sdp}", sdp.len()),
                "SETUP" => format!("Session: 1\r\nTransport: {transport}\r\n\r\n"),
                _ => "Session: 1\r\n\r\n".into(),
            };
            let answer = format!("RTSP/1.0 200 OK\r\nCSeq: {number}\r\n{answer}");
            if asked.is_empty() || connection.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}

/// A server with TLS whose certificate no authority has signed.
struct UntrustedServer {
    child: Child,
    port: u16,
}

impl UntrustedServer {
    fn start(folder: &Path) -> Self {
        UntrustedServer::of_script(folder, "tests/common/https_server.py").0
    }

    /// With what it prints.
    fn of_script(folder: &Path, script: &str) -> (Self, BufReader<ChildStdout>) {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]);
        openssl.args([
            "-subj",
            "/CN=camera",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            "key",
            "-out",
            "pem",
        ]);
        let output = openssl.current_dir(folder).output().expect("openssl is installed");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut server = Command::new("/usr/bin/python3");
        server.arg(path(script)).args(["pem", "key"]).current_dir(folder);
        let mut child = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        let mut printed = BufReader::new(child.stdout.take().unwrap());
        printed.read_line(&mut line).unwrap();
        (UntrustedServer { child, port: line.trim().parse().expect("it prints its port") }, printed)
    }
}

impl Drop for UntrustedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn causes_are_one_of_a_few_words_in_log_http_and_metrics() {
    let folder = scratch("camera-causes");
    launch(&format!(
        "audiotestsrc num-buffers=50 ! audio/x-raw,format=S16LE ! wavenc ! filesink location={}",
        folder.join("sound.wav").display()
    ));
    let untrusted = UntrustedServer::start(&folder);
    let ca = scratch("camera-causes-trusted");
    let trusted = UntrustedServer::start(&ca);
    let ca_file = format!("ca-file = \"{}\"\n", ca.join("pem").display());
    let later = free_address();
    let (next, told) = channel();
    next.send(()).unwrap(); // one picture, and then no more
    let frozen = camera(pictures(&folder, &[(320, 180)]), "frame", true, told);
    const CHALLENGE: &str = "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"camera\"";
    let sources = [
        ("http-401", format!("http://me:hush-hush@127.0.0.1:{}/x", web(CHALLENGE, Vec::new())), "unauthorized"),
        ("http-403", format!("http://me:hush-hush@127.0.0.1:{}/x", web("403 No", Vec::new())), "unauthorized"),
        ("rtsp-401", format!("rtspt://me:hush-hush@127.0.0.1:{}/x", rtsp(CHALLENGE)), "unauthorized"),
        ("rtsp-403", format!("rtspt://me:hush-hush@127.0.0.1:{}/x", rtsp("403 No, hush-hush")), "unauthorized"),
        ("http-404", format!("http://me:hush-hush@127.0.0.1:{}/x", web("404 Not Found", Vec::new())), "not-found"),
        ("rtsp-404", format!("rtspt://me:hush-hush@127.0.0.1:{}/x", rtsp("404 Not Found")), "not-found"),
        ("http-503", format!("http://me:hush-hush@127.0.0.1:{}/x", web("503 Busy", Vec::new())), "rejected"),
        ("rtsp-503", format!("rtspt://me:hush-hush@127.0.0.1:{}/x", rtsp("503 Busy")), "rejected"),
        ("file", "gone.mp4".into(), "not-found"),
        ("http-closed", format!("http://me:hush-hush@{}/x", free_address()), "unreachable"),
        ("later", format!("rtspt://me:hush-hush@{later}/clip"), "unreachable"),
        ("no-host", "rtspt://me:hush-hush@camera.invalid/x".into(), "unreachable"),
        ("https", format!("https://me:hush-hush@127.0.0.1:{}/x", untrusted.port), "tls"),
        ("rtsps", format!("rtspst://me:hush-hush@127.0.0.1:{}/x", untrusted.port), "tls"),
        // It is trusted, and speaks no RTSP.
        ("rtsps-of-ca", format!("rtspst://me:hush-hush@127.0.0.1:{}/x", trusted.port), "disconnected"),
        ("rtsps-of-any", format!("rtspst://me:hush-hush@127.0.0.1:{}/x", trusted.port), "disconnected"),
        (
            "sound",
            format!("http://127.0.0.1:{}/x", web("200 OK", std::fs::read(folder.join("sound.wav")).unwrap())),
            "no-video",
        ),
        ("garbage", format!("http://127.0.0.1:{}/x", web("200 OK", vec![0xA5; 5000])), "unsupported"),
        ("frozen", format!("http://127.0.0.1:{frozen}/x"), "stalled"),
    ];
    let address = free_address();
    let mut config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\n\n[http]\nlisten = \"{address}\"\n\n",
        shapes()
    );
    for (name, location, _) in &sources {
        let timeout = if *name == "frozen" { "1s" } else { "60s" };
        let trust = match *name {
            "rtsps-of-ca" => &*ca_file,
            "rtsps-of-any" => "tls-validation = false\n",
            _ => "",
        };
        config += &format!(
            "[[source]]\nname = \"{name}\"\naddress = \"{location}\"\ntimeout = \"{timeout}\"\nbackoff-max = \"500ms\"\n{trust}\n"
        );
    }
    let service = Service::start(&folder, &config);
    service.said("Started.");
    let all = || {
        let (_, sources) = ask(&address, "GET", "/sources", "", "");
        text(&sources).to_string()
    };
    let source = |name: &str| {
        let sources: Value = serde_json::from_str(&all()).unwrap();
        sources.as_array().unwrap().iter().find(|source| source["name"] == name).unwrap().clone()
    };
    for (name, _, cause) in &sources {
        wait_until(&format!("{name} is {cause}"), LIMIT, || source(name)["cause"] == *cause);
        let found = source(name);
        assert!(found["failures"][*cause].as_u64() > Some(0), "{found}");
        let said = service.said(&format!(" ERROR {name}: "));
        assert!(said.ends_with(&format!("[{cause}]")), "{said}");
        assert!(!said.contains("hush-hush"), "{said}");
    }
    assert!(source("rtsp-503")["error"].as_str().unwrap().contains("(it answers 503 Busy)"), "{}", source("rtsp-503"));
    let metrics = String::from_utf8(ask(&address, "GET", "/metrics", "", "").1).unwrap();
    for (name, _, cause) in sources.iter().filter(|(name, ..)| *name != "frozen") {
        for part in [
            format!("gst_trt_source_failing{{source=\"{name}\",cause=\"{cause}\"}} 1\n"),
            format!("gst_trt_source_failures_total{{source=\"{name}\",cause=\"{cause}\"}} "),
        ] {
            assert!(metrics.contains(&part), "{part}\n{metrics}");
        }
    }
    let _camera = RtspServer::start(later.rsplit_once(':').unwrap().1.parse().unwrap(), &["clip"]);
    wait_until("it runs", LIMIT, || source("later")["state"] == "running");
    let found = source("later");
    assert_eq!((&found["cause"], &found["error"]), (&Value::Null, &Value::Null), "{found}");
    assert!(found["failures"]["unreachable"].as_u64() > Some(0), "{found}");
    let told = all() + &metrics;
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(![told, journal].iter().any(|text| text.contains("hush-hush")), "a password is told");
}

/// A description of a camera with these streams.
fn sdp(streams: &[&str]) -> &'static str {
    format!("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\n{}", streams.concat()).leak()
}

/// Also where the sound is wanted for recordings, and the camera sends none of it: its description tells.
#[test]
fn a_camera_whose_video_will_never_come_is_told_at_once() {
    const SOUND: &str = "m=audio 0 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\na=control:s1\r\n";
    const VIDEO: &str = "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:s0\r\n";
    const NO_ADDRESS: &str = "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n";
    const NO_FORMAT: &str = "m=video 0 RTP/AVP 96\r\na=control:s0\r\n";
    const ODD: &str = "m=video 0 RTP/AVP 96\r\na=rtpmap:96 ODD/90000\r\na=control:s0\r\n";
    let folder = scratch("camera-without-video");
    let address = free_address();
    let sources = [
        ("sound", sdp(&[SOUND]), BY_TCP, "no-video"),
        ("nothing", sdp(&[]), BY_TCP, "no-video"),
        ("no-sdp", "a page of text\r\n", BY_TCP, "no-video"),
        ("no-format", sdp(&[NO_FORMAT, SOUND]), BY_TCP, "no-video"),
        ("no-address", sdp(&[NO_ADDRESS, SOUND]), BY_TCP, "damaged"),
        ("odd-format", sdp(&[ODD]), BY_TCP, "unsupported"),
        // rtspsrc asks again and again.
        ("odd-transport", sdp(&[VIDEO]), "by pigeon", "damaged"),
    ];
    let mut config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\n\n[http]\nlisten = \"{address}\"\n\n\
         [record]\nfolder = \"all\"\ncontinuous = true\nsegment = \"1s\"\nkeep-bytes = 1\n\n",
        shapes()
    );
    for (name, sdp, transport, _) in sources {
        let port = describing(sdp, transport);
        config +=
            &format!("[[source]]\nname = \"{name}\"\naddress = \"rtspt://127.0.0.1:{port}/x\"\ntimeout = \"60s\"\n\n");
    }
    let service = Service::start(&folder, &config);
    service.said("Started.");
    for (name, _, _, cause) in sources {
        let said = service.said(&format!(" ERROR {name}: Cannot read rtspt://127.0.0.1:"));
        assert!(said.ends_with(&format!("[{cause}]")), "{said}");
    }
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    // Without recordings nothing of it is asked for.
    for (stream, said) in [(SOUND, "there is no video in it."), (ODD, "GStreamer has no decoder for ODD here")] {
        let camera = format!("rtspt://127.0.0.1:{}/x", describing(sdp(&[stream]), BY_TCP));
        let args = ["detect", &camera, "--model", &shapes(), "--backend", "cpu", "--no-video", "--json", "out.jsonl"];
        expect_failure(&run(&folder, &args), &args, &["Cannot read rtspt://127.0.0.1:", said]);
    }
}

/// A source that takes any certificate does not open the way to the same server for those that do not, by a session of TLS that is
/// resumed.
#[test]
fn no_source_speaks_to_a_server_whose_certificate_it_has_not_seen() {
    let (folder, other) = (scratch("camera-tickets"), scratch("camera-tickets-of-others"));
    let (server, printed) = UntrustedServer::of_script(&folder, "tests/common/tls_words.py");
    drop(UntrustedServer::start(&other)); // for its certificate
    let address = free_address();
    let mut config = format!(
        "[[model]]\nname = \"shapes\"\nfile = \"{}\"\nbackend = \"cpu\"\n\n[http]\nlisten = \"{address}\"\n\n",
        shapes()
    );
    let of_other = format!("ca-file = \"{}\"", other.join("pem").display());
    let kinds = [("any", "tls-validation = false"), ("own", "ca-file = \"pem\""), ("strict", ""), ("other", &of_other)];
    for (scheme, (kind, trust)) in ["rtspst", "https"].into_iter().flat_map(|scheme| kinds.map(|kind| (scheme, kind))) {
        config += &format!(
            "[[source]]\nname = \"{kind}-{scheme}\"\naddress = \"{scheme}://127.0.0.1:{}/{kind}\"\nbackoff-max = \"500ms\"\n{trust}\n\n",
            server.port
        );
    }
    let service = Service::start(&folder, &config);
    service.said("Started.");
    let (sender, asked) = channel();
    thread::spawn(move || printed.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut said = Vec::new();
    // Each of these has had tickets then.
    for wanted in ["OPTIONS ", "GET /any", "/own"].repeat(3) {
        loop {
            said.push(asked.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("{wanted} is not asked for: {said:?}")));
            if said.last().unwrap().contains(wanted) {
                break;
            }
        }
    }
    let failures = |name: &str| {
        let (_, sources) = ask(&address, "GET", "/sources", "", "");
        let sources: Value = serde_json::from_slice(&sources).unwrap();
        let source = sources.as_array().unwrap().iter().find(|source| source["name"] == name).unwrap().clone();
        source["failures"]["tls"].as_u64().unwrap_or(0)
    };
    for name in ["strict-rtspst", "strict-https", "other-rtspst", "other-https"] {
        let before = failures(name);
        wait_until(&format!("{name} fails again"), LIMIT, || failures(name) >= before + 3);
    }
    said.extend(asked.try_iter());
    assert!(!said.iter().any(|line| line.contains("strict") || line.contains("other")), "{said:?}");
    let told = service.said(" ERROR strict-rtspst: ");
    for part in ["signed itself", "ca-file", "tls-validation = false", "[tls]"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(service.end().0.code(), Some(0));
}
