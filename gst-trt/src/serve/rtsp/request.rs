// SPDX-License-Identifier: MPL-2.0
//! What a client sends: requests, and between them packets of RTCP.

/// Bytes of a request's first line and headers.
const HEAD: usize = 8 << 10;
/// Bytes of a request's body, which no request that is known here needs.
const BODY: usize = 64 << 10;

/// Bytes of a client, as they come.
#[derive(Default)]
pub struct RtspInput {
    bytes: Vec<u8>,
    /// Bytes to come that are of no use: of a body, or of a packet.
    skip: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub struct RtspRequest {
    pub method: String,
    pub uri: String,
    headers: Vec<(String, String)>,
}

/// It is no request of RTSP. What follows cannot be read either.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

impl RtspInput {
    pub fn push(&mut self, bytes: &[u8]) {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        self.bytes.extend_from_slice(&bytes[skipped..]);
    }

    fn take(&mut self, count: usize) {
        let there = count.min(self.bytes.len());
        self.bytes.drain(..there);
        self.skip = count - there;
    }

    /// The next request that is there as a whole.
    ///
    /// # Errors
    /// It is none, or too long.
    pub fn request(&mut self) -> Result<Option<RtspRequest>, Malformed> {
        loop {
            match self.bytes[..] {
                [] => return Ok(None),
                // A packet: its channel and its length.
                [b'$', _, high, low, ..] => self.take(4 + usize::from(u16::from_be_bytes([high, low]))),
                [b'$', ..] => return Ok(None),
                // Between messages.
                [b'\r' | b'\n', ..] => self.take(1),
                _ => break,
            }
        }
        let end = self.bytes.windows(4).take(HEAD).position(|four| four == b"\r\n\r\n");
        let Some(end) = end else { return if self.bytes.len() < HEAD { Ok(None) } else { Err(Malformed) } };
        let request = std::str::from_utf8(&self.bytes[..end]).ok().and_then(RtspRequest::parse).ok_or(Malformed)?;
        let body = match request.header("content-length").map(str::parse::<usize>) {
            None => 0,
            Some(Ok(length)) if length <= BODY => length,
            Some(_) => return Err(Malformed),
        };
        self.take(end + 4 + body);
        Ok(Some(request))
    }
}

impl RtspRequest {
    fn parse(head: &str) -> Option<Self> {
        let mut lines = head.split("\r\n");
        let words: Vec<&str> = lines.next()?.split(' ').collect();
        let [method, uri, "RTSP/1.0"] = words[..] else { return None };
        let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic());
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            let is_plain = is_word(name) && !value.chars().any(char::is_control);
            is_plain.then(|| (name.to_ascii_lowercase(), value.trim().to_string()))
        };
        let headers = lines.map(header).collect::<Option<Vec<_>>>()?;
        (is_word(method) && is_word(uri)).then(|| RtspRequest { method: method.into(), uri: uri.into(), headers })
    }

    /// The value of a header, by its name in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The first part of the path: what is asked for.
    pub fn name(&self) -> &str {
        let path = self.uri.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, path)| path);
        path.split(['/', '?']).next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(parts: &[&[u8]]) -> Result<Vec<RtspRequest>, Malformed> {
        let (mut input, mut found) = (RtspInput::default(), Vec::new());
        for part in parts {
            input.push(part);
            while let Some(request) = input.request()? {
                found.push(request);
            }
        }
        Ok(found)
    }

    #[test]
    fn requests_come_in_any_parts_between_packets() {
        let bytes = b"$\x01\x00\x05$$$$$OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n\r\n$\x01\x00\x00\
                      GET_PARAMETER rtsp://h:1/gate/video?x RTSP/1.0\r\nCSeq:2\r\nContent-Length: 3\r\n\r\nabcPLAY rtsp://h/gate RTSP/1.0\r\n\r\n";
        for size in [1, 2, 3, 7, 50, bytes.len()] {
            let parts: Vec<&[u8]> = bytes.chunks(size).collect();
            let found = requests(&parts).unwrap();
            let shown: Vec<_> = found.iter().map(|one| (&*one.method, one.name(), one.header("cseq"))).collect();
            let expected = [("OPTIONS", "", Some("1")), ("GET_PARAMETER", "gate", Some("2")), ("PLAY", "gate", None)];
            assert_eq!(shown, expected, "{size}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let long = [b"OPTIONS * RTSP/1.0\r\nX: ".to_vec(), vec![b'a'; HEAD]].concat();
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
            b"OPTIONS *\r\n\r\n",
            b"OPTIONS  * RTSP/1.0\r\n\r\n",
            b"OPTIONS * RTSP/1.0\r\nno header\r\n\r\n",
            b"OPTIONS * RTSP/1.0\r\nCSeq: 1\nX: 2\r\n\r\n",
            b"OPTIONS * RTSP/1.0\r\nContent-Length: -1\r\n\r\n",
            b"OPTIONS * RTSP/1.0\r\nContent-Length: 99999999999999999999\r\n\r\n",
            b"OPTIONS * RTSP/1.0\r\nContent-Length: 2147483647\r\n\r\n",
            b"\xff\xfe * RTSP/1.0\r\n\r\n",
            &long,
        ] {
            assert_eq!(requests(&[bytes]), Err(Malformed), "{}", String::from_utf8_lossy(bytes));
        }
        // What is still to come may be right.
        assert_eq!(requests(&[&long[..HEAD - 1]]), Ok(vec![]));
    }
}
