// SPDX-License-Identifier: MPL-2.0
//! Why a source gives no frames, as one of few kinds and as a sentence. GStreamer's elements tell a part of it in the kind of
//! their error, in its details and in its debug text; of what they do not tell, such as why there is no connection, it is
//! looked for where they have failed.

use std::ffi::CString;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use gsttrt_core::redact::printable;
use gsttrt_publish::address::Address;
use gsttrt_publish::handshake;
use serde::Serialize;

use crate::source::{RemoteHost, StreamOptions, VideoAddress, missing_decoder};
use crate::threads::Threads;

/// How long a name and a host may take to answer, until nothing more is said.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Schemes whose connections are encrypted from the first byte.
const ENCRYPTED: [&str; 8] = ["https", "icyx", "rtsps", "rtspst", "rtspsu", "rtspsh", "rtmps", "rtmpts"];
/// Characters of what a server or an element says.
const LONGEST: usize = 200;
/// Bytes of a password that is looked for in what a server says.
const SHORTEST_SECRET: usize = 4;

/// The kind of a failure. The set is closed: metrics have it as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// User and password are wrong or missing, or a file may not be read.
    Unauthorized,
    /// The host has no such stream, or there is no such file.
    NotFound,
    /// There is no way to the host, or nothing listens there.
    Unreachable,
    /// The certificate of the host is not trusted, or it speaks no TLS.
    Tls,
    /// The host answers with another error.
    Rejected,
    /// What comes has no video in it.
    NoVideo,
    /// GStreamer cannot read the format here.
    Unsupported,
    /// What comes is no valid video.
    Damaged,
    /// No frame for `timeout`.
    Stalled,
    /// A connection that was there has ended.
    Disconnected,
    /// What is done with the frames has failed: the model, the tracker, publishing.
    Processing,
    Other,
}

impl Cause {
    #[cfg(test)]
    const ALL: [Cause; 12] = [
        Cause::Unauthorized,
        Cause::NotFound,
        Cause::Unreachable,
        Cause::Tls,
        Cause::Rejected,
        Cause::NoVideo,
        Cause::Unsupported,
        Cause::Damaged,
        Cause::Stalled,
        Cause::Disconnected,
        Cause::Processing,
        Cause::Other,
    ];

    /// As it is serialized.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Unauthorized => "unauthorized",
            Cause::NotFound => "not-found",
            Cause::Unreachable => "unreachable",
            Cause::Tls => "tls",
            Cause::Rejected => "rejected",
            Cause::NoVideo => "no-video",
            Cause::Unsupported => "unsupported",
            Cause::Damaged => "damaged",
            Cause::Stalled => "stalled",
            Cause::Disconnected => "disconnected",
            Cause::Processing => "processing",
            Cause::Other => "other",
        }
    }
}

/// Why a source has failed.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceFailure {
    pub cause: Cause,
    /// What failed, why, and what to do.
    pub text: String,
}

impl fmt::Display for SourceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whose failure is looked into.
pub struct Suspect<'a> {
    pub address: &'a VideoAddress,
    pub stream: &'a StreamOptions,
    pub threads: &'a Threads,
    /// As the end of the program names it.
    pub subject: &'a str,
}

impl SourceFailure {
    pub fn new(cause: Cause, text: impl Into<String>) -> Self {
        SourceFailure { cause, text: text.into() }
    }

    /// What an element has posted.
    pub fn posted(error: &gst::message::Error, suspect: &Suspect<'_>) -> Self {
        let address = suspect.address;
        let text = without_password(address.sentence(error), address);
        if !address.is_of_reading(error) {
            return SourceFailure::new(Cause::Processing, text);
        }
        let detail = detail(error).map(|detail| without_password(detail, address));
        let (cause, is_certain) = kind(error, address.is_remote());
        let found = if is_certain { None } else { suspect.look() };
        match found {
            Some((cause, why)) => SourceFailure::new(cause, with(text, &why)),
            None if cause == Cause::Unauthorized && address.is_remote() => {
                let text = detail.map_or(text.clone(), |detail| with(text, &detail));
                SourceFailure::new(cause, format!("{text} Check user and password in the address."))
            }
            None => SourceFailure::new(cause, detail.map_or(text.clone(), |detail| with(text, &detail))),
        }
    }

    /// No frame for so long. Where none has come since the start, the way to the camera may be the cause.
    pub fn silence(suspect: &Suspect<'_>, limit: Duration, has_frames: bool) -> Self {
        let text = format!("{} gave no frame for {} s.", suspect.address.shown(), limit.as_secs_f64());
        let found = if has_frames { None } else { suspect.look() };
        match found {
            Some((cause, why)) => SourceFailure::new(cause, with(text, &why)),
            None => SourceFailure::new(Cause::Stalled, text),
        }
    }
}

/// The sentence with its cause.
fn with(sentence: String, cause: &str) -> String {
    let sentence = sentence.trim_end_matches('.');
    if sentence.contains(cause) { format!("{sentence}.") } else { format!("{sentence} ({cause}).") }
}

/// The kind by what GStreamer says, and whether that is certain.
fn kind(error: &gst::message::Error, is_remote: bool) -> (Cause, bool) {
    use gst::{ResourceError as Resource, StreamError as Stream};
    if let Some(status) = status(error) {
        let cause = match status {
            401 | 403 | 407 => Cause::Unauthorized,
            404 | 410 => Cause::NotFound,
            _ => Cause::Rejected,
        };
        return (cause, true);
    }
    let posted = error.error();
    if posted.matches(gst::CoreError::MissingPlugin) {
        let listed = error.debug().unwrap_or_default();
        let cause = if missing_decoder(&listed).is_some() { Cause::Unsupported } else { Cause::NoVideo };
        return (cause, true);
    }
    // rtspsrc has no kind of its own for it.
    if error.debug().is_some_and(|debug| debug.ends_with("SDP contains no streams")) {
        return (Cause::NoVideo, true);
    }
    if let Some(kind) = posted.kind::<Resource>() {
        return match kind {
            Resource::NotAuthorized => (Cause::Unauthorized, true),
            Resource::NotFound => (Cause::NotFound, !is_remote),
            Resource::Busy | Resource::Settings => (Cause::Rejected, true),
            Resource::OpenRead | Resource::OpenWrite | Resource::OpenReadWrite | Resource::Failed if !is_remote => {
                (Cause::Other, false)
            }
            _ if is_remote => (Cause::Disconnected, false),
            _ => (Cause::Damaged, true),
        };
    }
    match posted.kind::<Stream>() {
        Some(Stream::Failed) if is_wiring(error) => (Cause::Other, true),
        Some(Stream::Failed) if is_remote => (Cause::Disconnected, false),
        Some(Stream::Failed | Stream::Decode | Stream::Demux | Stream::Format) => (Cause::Damaged, true),
        Some(Stream::WrongType) => (Cause::NoVideo, true),
        Some(Stream::TypeNotFound | Stream::CodecNotFound | Stream::Decrypt | Stream::DecryptNokey) => {
            (Cause::Unsupported, true)
        }
        _ => (Cause::Other, true),
    }
}

/// Whether frames were not taken, which is no fault of what gave them.
fn is_wiring(error: &gst::message::Error) -> bool {
    let flow = error.details().and_then(|details| details.get::<i32>("flow-return").ok());
    flow == Some(gst::ffi::GST_FLOW_NOT_NEGOTIATED) || flow == Some(gst::ffi::GST_FLOW_NOT_LINKED)
}

/// The status of an answer of HTTP or RTSP. Lower numbers are libsoup's own, of connections.
fn status(error: &gst::message::Error) -> Option<u32> {
    let details = error.details()?;
    let status = ["rtsp-status-code", "http-status-code"].iter().find_map(|name| details.get::<u32>(*name).ok());
    status.filter(|status| *status >= 300)
}

/// What an element says besides its sentence: the answer of the host, or the end of its debug text.
pub fn detail(error: &gst::message::Error) -> Option<String> {
    if let Some(status) = status(error) {
        let reason = error.details().and_then(|details| details.get::<String>("rtsp-status-reason").ok());
        let reason = reason.map_or(String::new(), |reason| format!(" {}", printable(&reason, LONGEST)));
        return Some(format!("it answers {status}{reason}"));
    }
    let debug = error.debug()?;
    // The file, the line, the function and the element come before.
    let (_, said) = debug.rsplit_once(":\n")?;
    let said = said.trim().trim_end_matches('.');
    // Numbers of flows say nothing, and what has an address in it may have a password.
    let is_wanted = !said.is_empty()
        && !said.contains(['\n', '@'])
        && !said.contains("://")
        && !said.contains(" (): /") // the place of another element
        && !said.starts_with("streaming stopped")
        && !said.starts_with("no suitable plugins")
        && !said.starts_with("Missing decoder: "); // the sentence names what is needed of it
    is_wanted.then(|| printable(said, LONGEST))
}

/// A server may say back what it was sent. Of fewer characters a password would be found in any text.
fn without_password(text: String, address: &VideoAddress) -> String {
    let VideoAddress::Uri(uri) = address else { return text };
    let Some((scheme, rest)) = uri.split_once("://") else { return text };
    let userinfo = rest.rsplit_once('@').and_then(|(userinfo, _)| userinfo.split_once(':'));
    let decoded = Address::parse(uri, &[scheme]).ok().and_then(|address| address.password);
    let secrets = [userinfo.map(|(_, password)| password), decoded.as_ref().map(|password| password.reveal())];
    let secrets = secrets.into_iter().flatten().filter(|secret| secret.len() >= SHORTEST_SECRET);
    secrets.fold(text, |text, secret| text.replace(secret, "***"))
}

impl Suspect<'_> {
    /// What is wrong with the way to it, looked for in a thread of its own: the system's search for a name cannot be stopped.
    fn look(&self) -> Option<(Cause, String)> {
        let (sender, found) = channel();
        let (address, stream) = (self.address.clone(), self.stream.clone());
        let search = move || {
            let _ = sender.send(search(&address, &stream));
        };
        self.threads.spawn("src-cause".into(), self.subject, search).ok()?;
        found.recv_timeout(TIMEOUT).ok()?
    }
}

/// `None` where nothing is wrong.
fn search(address: &VideoAddress, stream: &StreamOptions) -> Option<(Cause, String)> {
    match address {
        VideoAddress::Uri(uri) => {
            let scheme = uri.split_once("://")?.0.to_ascii_lowercase();
            let host = address.host()?;
            let unreachable = connection(&host).map(|why| (Cause::Unreachable, why));
            let is_checked = ENCRYPTED.contains(&&*scheme) && stream.tls_validation;
            unreachable.or_else(|| is_checked.then(|| encryption(&host, stream.ca_file.as_deref()))?)
        }
        VideoAddress::File(path) => permission(path, libc::R_OK),
        VideoAddress::Camera(path) => permission(path, libc::R_OK | libc::W_OK),
        VideoAddress::Stdin => None,
    }
}

fn permission(path: &Path, mode: i32) -> Option<(Cause, String)> {
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: it takes a string that ends, and keeps nothing.
    let is_refused = unsafe { libc::access(name.as_ptr(), mode) } != 0;
    let is_refused = is_refused && io::Error::last_os_error().kind() == ErrorKind::PermissionDenied;
    is_refused.then(|| (Cause::Unauthorized, "the user of this program may not open it: check its permissions".into()))
}

fn connection(RemoteHost { name, port }: &RemoteHost) -> Option<String> {
    let Ok(mut found) = (name.as_str(), *port).to_socket_addrs() else {
        return Some(format!("there is no host {name}: check the name, and the DNS server"));
    };
    let error = TcpStream::connect_timeout(&found.next()?, TIMEOUT / 3).err()?;
    Some(match error.kind() {
        ErrorKind::ConnectionRefused => {
            format!("connection refused: nothing listens at port {port} of {name}")
        }
        ErrorKind::TimedOut => format!("{name} does not answer at port {port}"),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => format!("no route to {name}"),
        _ => error.to_string(),
    })
}

fn encryption(RemoteHost { name, port }: &RemoteHost, ca_file: Option<&Path>) -> Option<(Cause, String)> {
    let error = handshake::check(name, *port, ca_file, TIMEOUT / 3).err()?;
    let why = printable(&error.to_string(), LONGEST);
    let remedy = match ca_file {
        None => "add the authority that has signed it, or the certificate itself, to the certificates of this system, or name \
                 a file of it as ca-file of the source in a configuration"
            .to_string(),
        Some(file) => format!("put the authority that has signed it, or the certificate itself, into {}", file.display()),
    };
    let text = format!(
        "no TLS with {name}: {why}; where the certificate is right, {remedy}; with tls-validation = false any is taken, and \
         nobody knows who sends the pictures"
    );
    Some((Cause::Tls, text))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::LazyLock;

    use super::*;

    /// As an element that reads a source posts it.
    fn posted(error: gst::message::ErrorBuilder<'_>) -> gst::Message {
        let reader = gst::Bin::with_name("decode");
        error.src(&reader).build()
    }

    fn suspect<'a>(address: &'a VideoAddress, threads: &'a Threads) -> Suspect<'a> {
        static STREAM: LazyLock<StreamOptions> = LazyLock::new(StreamOptions::default);
        Suspect { address, stream: &STREAM, threads, subject: "the source gate" }
    }

    fn failure(message: &gst::Message, uri: &str) -> SourceFailure {
        let gst::MessageView::Error(error) = message.view() else { panic!("{message:?}") };
        let (address, threads) = (VideoAddress::Uri(uri.into()), Threads::default());
        let failure = SourceFailure::posted(error, &suspect(&address, &threads));
        assert!(threads.wait(Duration::from_secs(60)).is_empty());
        failure
    }

    #[test]
    fn names_are_those_of_the_status() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
        }
    }

    #[test]
    fn the_cause_is_said_without_a_password() {
        gst::init().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let open = || posted(gst::message::Error::builder(gst::ResourceError::OpenReadWrite, "Could not open."));
        let refused = failure(&open(), &format!("rtsp://me:hush@127.0.0.1:{port}/x"));
        assert_eq!(refused.cause, Cause::Unreachable);
        let end = format!("Could not open (connection refused: nothing listens at port {port} of 127.0.0.1).");
        assert!(refused.text.ends_with(&end) && !refused.text.contains("hush"), "{refused}");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = failure(&open(), &format!("rtsp://{}/x", listener.local_addr().unwrap()));
        assert_eq!((there.cause, there.text.ends_with("Could not open.")), (Cause::Disconnected, true), "{there}");
    }

    #[test]
    fn what_the_host_answers_is_told() {
        gst::init().unwrap();
        let answer = |status: u32, reason: &str| {
            let details = gst::Structure::builder("details");
            let details = details.field("rtsp-status-code", status).field("rtsp-status-reason", reason).build();
            posted(gst::message::Error::builder(gst::ResourceError::Read, "Unhandled error").details(details))
        };
        for (status, reason, cause, said) in [
            (401, "Unauthorized", Cause::Unauthorized, "(it answers 401 Unauthorized). Check user and password"),
            (403, "no h%75sh, no hush", Cause::Unauthorized, "(it answers 403 no ***, no ***)."),
            (404, "Not Found", Cause::NotFound, "(it answers 404 Not Found)."),
            (503, "B\u{1b}usy\n", Cause::Rejected, "(it answers 503 B usy)."),
        ] {
            let failure = failure(&answer(status, reason), "rtsp://me:h%75sh@camera/x");
            assert!(failure.cause == cause && failure.text.contains(said), "{failure:?}");
        }
    }

    #[test]
    fn the_end_of_the_debug_text_is_told_unless_it_has_an_address() {
        gst::init().unwrap();
        let said = |debug: &str| {
            let error = gst::message::Error::builder(gst::ResourceError::Settings, "Could not set settings.");
            failure(&posted(error.debug(debug)), "rtsp://me:hush@camera/x").text
        };
        let end = |text: &str| text.split_once("Could not set settings").unwrap().1.to_string();
        let place = "../gst/rtsp/gstrtspsrc.c(7429): setup (): /GstPipeline:p/GstRTSPSrc:source:\n";
        assert_eq!(
            end(&said(&format!("{place}Server did not select transport."))),
            " (Server did not select transport)."
        );
        let other = "../gst/rtsp/gstrtspsrc.c(7894): start (): /GstPipeline:p/GstRTSPSrc:source";
        let missing = "Missing decoder: A-Law (audio/x-alaw)";
        for hidden in ["URL: http://me:hush@h/x", "me@h", "streaming stopped, reason error (-5)", missing, other, ""] {
            assert_eq!(end(&said(&format!("{place}{hidden}"))), ".");
        }
        assert_eq!(end(&said(&format!("{place}the password hush is wrong"))), " (the password *** is wrong).");
    }

    #[test]
    fn kinds_are_those_of_gstreamer() {
        gst::init().unwrap();
        let missing = |what: &str| {
            gst::message::Error::builder(gst::CoreError::MissingPlugin, "A plug-in is missing.").debug(what).build()
        };
        let stream = |kind| gst::message::Error::builder(kind, "It is so.").build();
        let described = |what: &str| {
            let debug = format!("gstrtspsrc.c(7843): start (): /GstPipeline:p/GstRTSPSrc:source:\n{what}");
            let error = gst::message::Error::builder(gst::ResourceError::Settings, "Could not get settings.");
            error.debug(&debug).build()
        };
        for (message, cause) in [
            (described("SDP contains no streams"), Cause::NoVideo),
            (described("Server did not select transport."), Cause::Rejected),
            (missing("Missing decoder: VP9 (video/x-vp9)\n"), Cause::Unsupported),
            (missing("Missing decoder: A-Law (audio/x-alaw)\n"), Cause::NoVideo),
            (missing("Missing decoder: application/x-rtp (application/x-rtp, media=(string)audio)\n"), Cause::NoVideo),
            (
                missing("Missing decoder: application/x-rtp (application/x-rtp, media=(string)video)\n"),
                Cause::Unsupported,
            ),
            (stream(gst::StreamError::WrongType), Cause::NoVideo),
            (stream(gst::StreamError::TypeNotFound), Cause::Unsupported),
            (stream(gst::StreamError::Demux), Cause::Damaged),
            (stream(gst::StreamError::Encode), Cause::Other),
        ] {
            let gst::MessageView::Error(error) = message.view() else { panic!("{message:?}") };
            assert_eq!(kind(error, true), (cause, true), "{message:?}");
        }
    }

    /// rtspsrc waits for a host that does not answer longer than a source may be silent.
    #[test]
    fn silence_from_the_start_may_be_that_of_the_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let threads = Threads::default();
        for (address, has_frames, cause) in
            [(gone, false, Cause::Unreachable), (gone, true, Cause::Stalled), (there, false, Cause::Stalled)]
        {
            let uri = VideoAddress::Uri(format!("rtsp://me:hush@{address}/x"));
            let failure = SourceFailure::silence(&suspect(&uri, &threads), Duration::from_millis(1500), has_frames);
            assert_eq!(failure.cause, cause, "{failure}");
            assert!(failure.text.contains("gave no frame for 1.5 s") && !failure.text.contains("hush"), "{failure}");
        }
        assert!(threads.wait(Duration::from_secs(60)).is_empty());
    }

    #[test]
    fn what_fails_behind_the_source_is_not_its_own() {
        gst::init().unwrap();
        let element = gst::ElementFactory::make("identity").name("infer").build().unwrap();
        let message =
            gst::message::Error::builder(gst::StreamError::Failed, "The model is gone.").src(&element).build();
        assert_eq!(failure(&message, "rtsp://camera/"), SourceFailure::new(Cause::Processing, "The model is gone."));
    }
}
