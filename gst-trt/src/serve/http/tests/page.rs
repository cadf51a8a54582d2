// SPDX-License-Identifier: MPL-2.0
//! The status page in a browser.

use std::path::PathBuf;

use serde_json::json;

use super::browser::Browser;
use super::*;
use crate::scratch::scratch;

/// Frames of a video test source as JPEG.
fn pictures(pattern: &str) -> Vec<Bytes> {
    use gst::prelude::*;
    gst::init().unwrap();
    let line = format!(
        "videotestsrc num-buffers=30 pattern={pattern} ! video/x-raw,width=640,height=360 \
         ! jpegenc ! appsink name=out sync=false"
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let sink = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    let samples = std::iter::from_fn(|| sink.pull_sample().ok());
    let found =
        samples.map(|sample| Bytes::copy_from_slice(&sample.buffer().unwrap().map_readable().unwrap())).collect();
    pipeline.set_state(gst::State::Null).unwrap();
    found
}

pub fn camera(service: &FakeService, name: &str, pattern: &str) -> Camera {
    let pictures = pictures(pattern);
    Camera::new(service.frames(name), move |number| pictures[number as usize % pictures.len()].clone())
}

pub const CARD: &str =
    "(name => [...document.querySelectorAll('.source')].find(card => card.querySelector('h3').textContent === name))";

/// Fills a form as a user would, and sends it.
fn submit(browser: &mut Browser, form: &str, values: &[(&str, &str)]) {
    let fill: String = values
        .iter()
        .map(|(name, value)| format!("form.elements[{}].value = {};", json!(name), json!(value)))
        .collect();
    browser.evaluate(&format!("(() => {{ const form = {form}; {fill} form.requestSubmit(); return true; }})()"));
}

pub fn screenshot(browser: &mut Browser, file: PathBuf) {
    use std::process::{Command, Stdio};
    let data = browser.call("Page.captureScreenshot", json!({}))["data"].as_str().unwrap().to_string();
    let mut decode = Command::new("base64")
        .arg("-d")
        .stdin(Stdio::piped())
        .stdout(std::fs::File::create(file).unwrap())
        .spawn()
        .unwrap();
    decode.stdin.take().unwrap().write_all(data.as_bytes()).unwrap();
    assert!(decode.wait().unwrap().success());
}

#[test]
fn the_page_shows_and_changes_the_service() {
    let folder = scratch("http-page");
    let Some(mut browser) = Browser::start(&folder) else { return };
    let service = FakeService::new(&["door", "yard", "<b>gate</b>", "file"]);
    service.change("yard", |status| {
        let store = Published { sent: 5, dropped: 40, connected: false, ..published(None, "redis://store") };
        status.published.push(store);
        status.recording = true;
        status.asks.push(asked("A <b>van</b>."));
    });
    service.change("<b>gate</b>", |status| {
        status.state = State::Waiting;
        status.fps = 0.0;
        status.error =
            Some("Cannot read rtsp://gate/stream: connection refused. Look whether the camera is on.".into());
        status.cause = Some(Cause::Unreachable);
    });
    service.change("file", |status| {
        status.state = State::Ended;
        status.zones[0].objects = BTreeMap::from([("disc".into(), 0)]);
    });
    service.change("door", |status| {
        let zone = |name: &str, objects: &[(&str, u32)]| ZoneStatus {
            name: name.into(),
            objects: objects.iter().map(|(class, number)| (class.to_string(), *number)).collect(),
            entered: 0,
            left: 0,
            dwell: Histogram::new(STAYS),
        };
        status.zones = vec![zone("the hall", &[("box", 1200), ("bicycle", 0), ("disc", 2)]), zone("<i>yard</i>", &[])];
        status.lines.push(LineStatus { name: "exit".into(), forward: 1_234, backward: 0 });
    });
    {
        let mut models = service.models.lock().unwrap();
        let building = ModelStatus {
            name: "poses".into(),
            on: RunsOn::Objects,
            loaded: false,
            backend: None,
            progress: Some(0.4),
            ..models[0].clone()
        };
        models.push(building);
    }
    let _cameras = [("door", "smpte"), ("yard", "ball")].map(|(name, pattern)| camera(&service, name, pattern));
    let server = serve(&service);
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        json!({"width": 1280, "height": 1000, "deviceScaleFactor": 1, "mobile": false}),
    );
    browser.call("Page.navigate", json!({"url": format!("http://{}/", server.address())}));

    // What the service says, as text and never as HTML.
    browser.wait_for(
        "document.querySelectorAll('.source').length === 4 && document.querySelectorAll('#models tr').length === 2",
    );
    let text = browser.evaluate("document.body.innerText");
    let text = text.as_str().unwrap();
    for part in [
        "2 of 4 running",
        "● running",
        "▲ waiting to retry",
        "■ ended",
        "<b>gate</b>",
        "connection refused",
        "12 / 20 / 31 ms",
        "12,345",
        "crossed 17, entered 4",
        "In the hall\n1,200 box, 2 disc",
        "In <i>yard</i>\nnothing",
        "Across gate\n5 forward, 2 backward",
        "Asked what\n5 of 9 answered, 2 failed: A <b>van</b>.",
        "Across exit\n1,234 forward, 0 backward",
        "99 sent, 1 dropped",
        "5 sent, 40 dropped, not connected",
        "building 40 %",
        "poses on objects",
        "yolo11n.onnx",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Why a source does not play, and nothing of that where one does.
    let of_gate = |selector: &str| format!("{CARD}('<b>gate</b>').querySelector('{selector}')");
    assert_eq!(browser.evaluate(&format!("{}.textContent", of_gate(".cause"))), "unreachable");
    let summary = browser.evaluate("document.querySelector('#summary').textContent");
    assert!(summary.as_str().unwrap().ends_with("1 failed: unreachable"), "{summary}");
    let shown = "[...document.querySelectorAll('.failure')].filter((line) => line.offsetHeight > 0).length";
    assert_eq!(browser.evaluate(shown), 1);
    // The pictures change, those of sources that run.
    for name in ["door", "yard"] {
        let image = format!("{CARD}('{name}').querySelector('img')");
        browser.wait_for(&format!("{image}.naturalWidth === 640"));
        browser.evaluate(&format!("window.before = {image}.src"));
        browser.wait_for(&format!("{image}.src !== window.before"));
    }
    assert_eq!(browser.evaluate(&format!("{CARD}('file').querySelector('img').hasAttribute('src')")), false);
    for scheme in ["light", "dark"] {
        browser.call(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]}),
        );
        browser.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))");
        screenshot(&mut browser, folder.join(format!("{scheme}.png")));
    }

    // A live view, which is freed when it is closed.
    browser.evaluate(&format!("{CARD}('yard').querySelector('.picture').click()"));
    browser
        .wait_for("document.querySelector('#live').open && document.querySelector('#live img').naturalWidth === 640");
    screenshot(&mut browser, folder.join("live.png"));
    browser.evaluate("document.querySelector('#live button').click()");
    browser.wait_for("!document.querySelector('#live img').hasAttribute('src')");

    // Without the token, it is asked for; a wrong one is refused, and the page tells it.
    assert!(browser.errors.is_empty(), "{:?}", browser.errors);
    let add = "document.querySelector('#add form')";
    let new = [("name", "roof"), ("address", "rtsp://roof/1"), ("more", "{\"timeout\": 5}")];
    submit(&mut browser, add, &new);
    browser.wait_for("document.querySelector('#token').open");
    screenshot(&mut browser, folder.join("token.png"));
    let token = |browser: &mut Browser, token: &str| {
        let set = format!("document.querySelector('#token input').value = {}", json!(token));
        browser.evaluate(&format!("{set}; document.querySelector('#token button[value=keep]').click()"));
    };
    token(&mut browser, "wrong");
    browser.wait_for("document.querySelector('#message').textContent.includes('the token is wrong')");
    submit(&mut browser, add, &new);
    browser.wait_for("document.querySelector('#token').open");
    token(&mut browser, TOKEN);
    browser.wait_for(&format!("{CARD}('roof') !== undefined"));
    assert_eq!(service.names().last().unwrap(), "roof");
    submit(&mut browser, add, &[("name", "roof"), ("address", "rtsp://roof/1"), ("more", "{}")]);
    browser.wait_for("document.querySelector('#message').textContent.includes('already')");

    browser.evaluate(&format!("{CARD}('roof').querySelector('.remove').click()"));
    browser.wait_for(&format!("{CARD}('roof') === undefined"));
    assert!(!service.names().contains(&"roof".into()));
    submit(&mut browser, "document.querySelector('#models form')", &[("file", "better.onnx")]);
    browser.wait_for("document.querySelector('#models .file').textContent === 'better.onnx'");
    // It goes on without the source that is gone.
    browser.wait_for("document.querySelector('#summary').textContent.startsWith('2 of 4 running')");

    // Another cause comes, and goes with the first frame.
    service.change("<b>gate</b>", |status| status.cause = Some(Cause::Unauthorized));
    browser.wait_for(&format!("{}.textContent === 'unauthorized'", of_gate(".cause")));
    service.change("<b>gate</b>", |status| {
        (status.state, status.error, status.cause) = (State::Running, None, None);
    });
    browser.wait_for(&format!("{}.hidden", of_gate(".failure")));

    // Nothing of the page was refused by its policy, and the browser complained of the refused requests alone.
    let refused = |error: &&Value| error.to_string().contains("status of 4");
    assert!(browser.errors.iter().all(|error| refused(&error)), "{:?}", browser.errors);

    // Nobody looks any more.
    browser.call("Page.navigate", json!({"url": "about:blank"}));
    let frames = ["door", "yard"].map(|name| service.frames(name));
    until("freed", || frames.iter().all(|frames| frames.receiver_count() == 0));
}

/// A live view may be open for days, and waits four times a second.
#[test]
fn a_video_leaves_nothing_at_its_signal() {
    let folder = scratch("http-signal");
    let Some(mut browser) = Browser::start(&folder) else { return };
    let service = FakeService::new(&[]);
    let server = serve(&service);
    browser.call("Page.navigate", json!({"url": format!("http://{}/", server.address())}));
    browser.wait_for("document.querySelector('#no-sources')?.hidden === false");
    let left = browser.evaluate(
        "(async () => {
            const { showVideo } = await import('/video.js');
            window.RTCPeerConnection = class {
                connectionState = 'connected';
                localDescription = { sdp: '' };
                addTransceiver() {}
                addEventListener() {}
                async setLocalDescription() {}
                async setRemoteDescription() {}
                close() {}
            };
            const view = new AbortController();
            const { signal } = view;
            const [add, remove] = [signal.addEventListener.bind(signal), signal.removeEventListener.bind(signal)];
            let [heard, left, time] = [0, 0, 0];
            signal.addEventListener = (...all) => { heard += 1; left += 1; add(...all); };
            signal.removeEventListener = (...all) => { left -= 1; remove(...all); };
            const video = { srcObject: null, get currentTime() { if (time === 2) view.abort(); return time += 1; } };
            await showVideo('a', video, async () => new Response(''), signal);
            return heard > 1 ? left : -1;
        })()",
    );
    assert_eq!(left, 0);
}

/// Of elements that a selector finds.
fn sizes(browser: &mut Browser, selector: &str, side: &str) -> Vec<f64> {
    let found = browser.evaluate(&format!(
        "[...document.querySelectorAll({})].map(element => element.getBoundingClientRect().{side})",
        json!(selector)
    ));
    found.as_array().unwrap().iter().map(|size| size.as_f64().unwrap()).collect()
}

#[test]
fn values_have_room_next_to_the_names_of_destinations() {
    let folder = scratch("http-published");
    let Some(mut browser) = Browser::start(&folder) else { return };
    let service = FakeService::new(&["door", "gate", "hall", "yard"]);
    let long = "mqtt://127.0.0.1:1883/cameras/gate-behind-the-house/detections";
    service.change("door", |status| status.published = vec![published(Some("lines"), "/var/lib/gst-trt/door.jsonl")]);
    service.change("gate", |status| status.published = vec![published(None, "/var/lib/gst-trt/recordings/gate.jsonl")]);
    service.change("hall", |status| {
        status.published = vec![published(None, long), published(Some("the-broker-in-the-cellar-of-the-house"), long)];
        status.published[0].connected = false;
    });
    service.change("yard", |status| {
        (status.state, status.cause) = (State::Waiting, Some(Cause::Unauthorized));
        status.error = Some(
            "Cannot read rtsp://***@yard.cameras.example/Streaming/Channels/101: Unauthorized (it answers 401 \
             Unauthorized). Check user and password in the address."
                .into(),
        );
    });
    let server = serve(&service);
    for (width, is_phone) in [(1280, false), (390, true)] {
        browser.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": is_phone}),
        );
        browser.call("Page.navigate", json!({"url": format!("http://{}/", server.address())}));
        browser.wait_for(
            "document.querySelectorAll('.source').length === 4 && document.querySelectorAll('#models tr').length === 1",
        );
        screenshot(&mut browser, folder.join(format!("{width}.png")));

        let text = browser.evaluate("document.body.innerText");
        let text = text.as_str().unwrap();
        for part in ["To lines", "To gate.jsonl", long, "To the-broker-in-the-cellar-of-the-house"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // The whole address is there for who wants it.
        let title = browser.evaluate(&format!("{CARD}('door').querySelector('dl').lastElementChild.title"));
        assert_eq!(title, "/var/lib/gst-trt/door.jsonl");

        let values = sizes(&mut browser, "dd", "width");
        assert!(values.len() >= 4 * 6 && values.iter().all(|width| *width >= 80.0), "{width}: {values:?}");
        let cells = sizes(&mut browser, "#models .file", "width");
        assert!(!cells.is_empty() && cells.iter().all(|width| *width >= 80.0), "{width}: {cells:?}");
        let fits = "[...document.querySelectorAll('.scroll, body')].every((box) => box.scrollWidth <= box.clientWidth)";
        assert_eq!(browser.evaluate(fits), true, "{width}: something is cut off at the right");
        let names = sizes(&mut browser, "dt", "width");
        assert!(names.iter().all(|width| *width >= 80.0), "{width}: {names:?}");
        let cards = sizes(&mut browser, ".source", "height");
        assert!(cards.iter().all(|height| *height <= 700.0), "{width}: {cards:?}");
        let summary = sizes(&mut browser, "#summary", "height");
        assert!(summary.iter().all(|height| *height <= 50.0), "{width}: {summary:?}");
        let page = browser.evaluate("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(page <= width, "{width}: the page has a width of {page}");
    }
}
