// SPDX-License-Identifier: MPL-2.0
//! The videos of the status page, in a browser.

use serde_json::json;

use super::browser::Browser;
use super::page::{CARD, camera, screenshot};
use super::*;
use crate::scratch::scratch;
use crate::serve::fakes::FakeOutputs;
use crate::serve::webrtc::{self, WebrtcSettings};

const OPEN: &str = "document.querySelector('#live').open";
const VIDEO: &str = "document.querySelector('#live video')";
const IMAGE: &str = "document.querySelector('#live img')";

fn open_page(browser: &mut Browser, server: &HttpServer, (width, height): (u32, u32)) {
    let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
    browser.call("Emulation.setDeviceMetricsOverride", size);
    browser.call("Page.navigate", json!({"url": format!("http://{}/", server.address())}));
    browser
        .wait_for(&format!("{CARD}('gate') !== undefined && {CARD}('gate').querySelector('img').naturalWidth === 640"));
}

fn open_live(browser: &mut Browser) {
    browser.evaluate(&format!("{CARD}('gate').querySelector('.picture').click()"));
    browser.wait_for(OPEN);
}

#[test]
fn the_page_shows_a_video_and_pictures_where_there_is_none() {
    let folder = scratch("http-video");
    let Some(mut browser) = Browser::start(&folder) else { return };
    let service = FakeService::new(&["gate"]);
    let _camera = camera(&service, "gate", "smpte");
    let outputs = FakeOutputs::new(&[]);
    outputs.add("gate", "ball");
    let webrtc = WebrtcSettings { listen: "0.0.0.0:0".parse().unwrap(), addresses: Vec::new() };
    let videos = webrtc::start(&webrtc, webrtc::listen(&webrtc).unwrap(), outputs.clone()).unwrap();
    let server = serve_videos(&settings("127.0.0.1:0", Some(TOKEN)), &service, Arc::new(videos));
    for (width, height) in [(1400, 1000), (390, 844)] {
        open_page(&mut browser, &server, (width, height));
        open_live(&mut browser);
        browser.wait_for(&format!("{VIDEO}.videoWidth === 320 && {VIDEO}.videoHeight === 240"));
        browser.evaluate(&format!("window.before = {VIDEO}.currentTime"));
        browser.wait_for(&format!("{VIDEO}.currentTime > window.before + 0.5"));
        assert_eq!(browser.evaluate(&format!("{IMAGE}.hidden && !{VIDEO}.hidden")), true);
        screenshot(&mut browser, folder.join(format!("video-{width}.png")));
        let page = browser.evaluate("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(page <= u64::from(width), "{width}: the page has a width of {page}");
        // It is ended with the view.
        browser.evaluate("document.querySelector('#live button').click()");
        browser.wait_for(&format!("!{OPEN} && {VIDEO}.srcObject === null"));
        until("nobody watches", || outputs.receivers("gate") == 0);
    }
    assert!(browser.errors.is_empty(), "{:?}", browser.errors);
    // Pictures take its place when it ends, and where there is none.
    open_live(&mut browser);
    browser.wait_for(&format!("{VIDEO}.videoWidth === 320"));
    outputs.remove("gate");
    browser.wait_for(&format!("{VIDEO}.hidden && !{IMAGE}.hidden && {IMAGE}.naturalWidth === 640"));
    screenshot(&mut browser, folder.join("pictures.png"));
    browser.evaluate("document.querySelector('#live button').click()");
    browser.wait_for(&format!("!{OPEN}"));
    open_live(&mut browser);
    browser.wait_for(&format!("{VIDEO}.hidden && !{IMAGE}.hidden && {IMAGE}.naturalWidth === 640"));
    browser.call("Page.navigate", json!({"url": "about:blank"}));
    drop(server);
    outputs.end();
}
