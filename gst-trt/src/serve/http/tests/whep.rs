// SPDX-License-Identifier: MPL-2.0
//! How videos are asked for: what is passed on, and what is refused before.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::*;

const SDP: (&str, &str) = ("Content-Type", "application/sdp");

/// Videos that are none.
#[derive(Default)]
struct FakeVideos {
    sessions: Mutex<BTreeSet<String>>,
    asked: Mutex<Vec<(String, String, IpAddr)>>,
    refusal: Mutex<Option<OfferRefused>>,
}

impl VideoControl for FakeVideos {
    fn accept(&self, name: &str, offer: &str, local: IpAddr) -> Result<AcceptedOffer, OfferRefused> {
        self.asked.lock().unwrap().push((name.into(), offer.into(), local));
        if let Some(refusal) = self.refusal.lock().unwrap().take() {
            return Err(refusal);
        }
        let session = format!("session-{}", self.asked.lock().unwrap().len());
        self.sessions.lock().unwrap().insert(session.clone());
        Ok(AcceptedOffer { session, answer: "v=0\r\n".into() })
    }

    fn end(&self, session: &str) -> bool {
        self.sessions.lock().unwrap().remove(session)
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], 1).into()
    }
}

fn location(answer: &HttpAnswer) -> String {
    let line = answer.head.lines().find_map(|line| line.strip_prefix("location: "));
    line.unwrap_or_else(|| panic!("{answer:?}")).to_string()
}

#[test]
fn a_video_is_asked_for_and_ended() {
    let (service, videos) = (FakeService::new(&["the door"]), Arc::new(FakeVideos::default()));
    let server = serve_videos(&settings("127.0.0.1:0", None), &service, videos.clone());
    let kinds = ["application/sdp", "Application/SDP; charset=utf-8"];
    for (path, kind) in ["/sources/the%20door/whep", "/tiles/wall/whep"].into_iter().zip(kinds) {
        let answer = request(&server, "POST", path, &[("Content-Type", kind)], "v=0\r\no=me").expect(201);
        assert!(answer.head.contains("content-type: application/sdp"), "{}", answer.head);
        assert_eq!(answer.text(), "v=0\r\n");
        let session = location(&answer);
        // There is nothing to add to an offer, and nothing to read but the answer.
        for method in ["PATCH", "GET", "PUT", "POST"] {
            let answer = request(&server, method, &session, &[SDP], "");
            assert!(answer.head.contains("allow: delete"), "{}", answer.head);
            answer.expect_error(405, &[method]);
        }
        request(&server, "DELETE", &session, &[], "").expect(200);
        request(&server, "DELETE", &session, &[], "").expect_error(404, &["it has ended"]);
    }
    let asked = videos.asked.lock().unwrap();
    let local: IpAddr = [127, 0, 0, 1].into();
    assert_eq!(asked[0], ("the door".into(), "v=0\r\no=me".into(), local));
    assert_eq!(asked[1].0, "wall");
    let options = request(&server, "OPTIONS", "/sources/door/whep", &[], "").expect(204);
    assert!(options.head.contains("accept-post: application/sdp"), "{}", options.head);
}

#[test]
fn what_is_no_offer_is_refused() {
    let (service, videos) = (FakeService::new(&["door"]), Arc::new(FakeVideos::default()));
    let server = serve_videos(&settings("127.0.0.1:0", None), &service, videos.clone());
    let post = |path: &str, headers: &[(&str, &str)], body: &str| request(&server, "POST", path, headers, body);
    let path = "/sources/door/whep";
    post("/sources/yard/whep", &[SDP], "v=0").expect_error(404, &["no source “yard”"]);
    post("/tiles/door/whep", &[SDP], "v=0").expect_error(404, &["“door” is a source"]);
    // It would take seconds to read.
    post(path, &[SDP], &"a=x\r\n".repeat(1001)).expect_error(413, &["more than 1000 lines"]);
    for headers in [&[][..], &[("Content-Type", "application/json")], &[("Content-Type", "")]] {
        post(path, headers, "v=0").expect_error(415, &["Content-Type: application/sdp"]);
    }
    post(path, &[SDP], &"a".repeat(65_537)).expect_error(413, &["65536 bytes"]);
    let bytes = [
        b"POST /sources/door/whep HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".as_slice(),
        b"Content-Type: application/sdp\r\nContent-Length: 2\r\n\r\n\xff\xfe",
    ];
    let answer = exchange(server.address(), &bytes.concat(), false);
    HttpAnswer::parse(&answer).unwrap().expect_error(400, &["no text in UTF-8"]);
    assert!(videos.asked.lock().unwrap().is_empty());
    for (refusal, status) in [
        (OfferRefused::Unknown("Why 1.".into()), 404),
        (OfferRefused::Malformed("Why 2.".into()), 400),
        (OfferRefused::Unsupported("Why 3.".into()), 422),
        (OfferRefused::Crowded("Why 4.".into()), 503),
    ] {
        *videos.refusal.lock().unwrap() = Some(refusal);
        post(path, &[SDP], "v=0").expect_error(status, &["Why"]);
    }
    // Another web site that the user visits gets none, and ends none.
    let foreign = ("Sec-Fetch-Site", "cross-site");
    post(path, &[SDP, foreign], "v=0").expect_error(403, &["another web site"]);
    request(&server, "DELETE", "/whep/session-1", &[foreign], "").expect_error(403, &["another web site"]);
    // A service without videos says so, and its page knows it.
    let without = serve(&service);
    request(&without, "POST", path, &[SDP], "v=0").expect_error(404, &["[webrtc] is not in the configuration"]);
    request(&without, "OPTIONS", path, &[], "").expect_error(404, &["[webrtc]"]);
    assert!(get(&without, "/").text().contains("name=\"videos\" content=\"none\""));
    assert!(get(&server, "/").text().contains("name=\"videos\" content=\"webrtc\""));
}

/// As pictures are: on localhost all may see them, beyond those with the token.
#[test]
fn beyond_localhost_videos_need_the_token() {
    let (service, videos) = (FakeService::new(&["door"]), Arc::new(FakeVideos::default()));
    let server = serve_videos(&settings("0.0.0.0:0", Some(TOKEN)), &service, videos.clone());
    let address = ([127, 0, 0, 1], server.address().port()).into();
    let ask = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: cameras\r\nConnection: close\r\nContent-Length: 3\r\n");
        HttpAnswer::parse(&exchange(address, format!("{head}{lines}\r\nv=0").as_bytes(), false)).unwrap()
    };
    let bearer = format!("Bearer {TOKEN}");
    let with_token = [SDP, ("Authorization", bearer.as_str())];
    for (method, path) in [("POST", "/sources/door/whep"), ("POST", "/tiles/wall/whep"), ("DELETE", "/whep/session-1")]
    {
        let answer = ask(method, path, &[SDP]);
        assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
        answer.expect_error(401, &["needs the token"]);
        ask(method, path, &[SDP, ("Authorization", "Bearer no")]).expect_error(401, &["the token is wrong"]);
    }
    assert!(videos.asked.lock().unwrap().is_empty());
    let session = location(&ask("POST", "/sources/door/whep", &with_token).expect(201));
    ask("DELETE", &session, &with_token).expect(200);
}
