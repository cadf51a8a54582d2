// SPDX-License-Identifier: MPL-2.0
//! Where a video comes from, and the elements that read it. `arguments`: what the command line names.

mod arguments;
mod by_name;
mod damage;
mod decode;
mod guard;
mod host;
mod jpeg;
pub mod options;
mod pattern;
mod picture;
mod soup;
pub mod still;
pub mod tap;
pub mod whole;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use gst::prelude::*;
use gsttrt::gst::cuda::registry;
use gsttrt_core::redact::redacted;

use crate::chain;
use crate::failure::Failure;
use crate::local;

use arguments::unreadable;
pub use arguments::{InputSource, pictures_in, sources};
pub use by_name::pictures_by_name;
pub use decode::{VideoOffer, missing_decoder, video_offer};
use decode::{convert, is_streaming, keep_to_gpu, look_after_decoders, look_after_source, read_pipe, take_video};
pub use guard::decodes_video;
pub use host::RemoteHost;
pub use options::StreamOptions;
use tap::{Tap, VideoTap};

/// Schemes whose frames come at their own time, and do not wait.
const LIVE: [&str; 16] = [
    "rtsp", "rtspt", "rtspu", "rtsph", "rtsps", "rtspst", "rtspsu", "rtspsh", "rtsp-sdp", "rtp", "udp", "srt", "rist",
    "rtmp", "rtmps", "v4l2",
];

/// Schemes that are HTTP, of which only the answer tells what comes.
const OF_HTTP: [&str; 4] = ["http", "https", "icy", "icyx"];

/// How a source is read.
#[derive(Clone, Default)]
pub struct ReadOptions {
    pub stream: StreamOptions,
    /// Where it is decoded, if that is chosen.
    pub gpu: Option<i32>,
    /// Whether a file of the web may be kept on the disk while it is read. Of an MP4 that is read from its beginning to its end
    /// only, qtdemux of GStreamer 1.22 loses the last frames.
    pub is_kept: bool,
    /// Who else gets its streams, as they are.
    pub tap: Option<Tap>,
}

/// Where a video comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VideoAddress {
    File(PathBuf),
    Uri(String),
    Camera(PathBuf),
    Stdin,
}

/// A file that can be read at once, which a pipe is not.
fn is_picture(path: &Path) -> bool {
    picture::is_image(path) && path.is_file()
}

fn is_http(uri: &str) -> bool {
    uri.split_once("://").is_some_and(|(scheme, _)| OF_HTTP.iter().any(|one| one.eq_ignore_ascii_case(scheme)))
}

/// Which has what it is given once.
fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// Whether it is a device, even if it is not there now. Files in memory are in this folder, too.
fn is_in_dev(path: &Path) -> bool {
    let is_file = fs::metadata(path).is_ok_and(|found| found.is_file() || found.file_type().is_fifo());
    path.starts_with("/dev") && !path.starts_with("/dev/shm") && !is_file
}

/// The camera that a bare number stands for, as in other programs.
fn numbered_camera(text: &str) -> Option<PathBuf> {
    let is_number = !text.is_empty() && text.len() < 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| PathBuf::from(format!("/dev/video{text}")))
}

/// A path as text; bytes that are none are by their numbers, so that no two are the same.
pub fn path_text(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

fn path_of(uri: &str) -> Result<PathBuf, Failure> {
    let wrong = |what: &str| Failure::from(format!("Cannot use {}: {what}.", redacted(uri)));
    let (path, host) =
        gst::glib::filename_from_uri(uri).map_err(|error| wrong(&error.to_string().replace(uri, &redacted(uri))))?;
    if host.is_some_and(|host| !host.is_empty() && host != "localhost") {
        return Err(wrong("it is a file of another host. Such an address begins with file:///"));
    }
    Ok(path)
}

/// What is no file, and has a part of `rtsp://`.
fn refuse_mistyped(text: &str) -> Result<(), Failure> {
    let is_begun =
        |word: &&str| text.strip_prefix(*word).is_some_and(|rest| rest.starts_with(':') || rest.starts_with("//"));
    match host::schemes().find(is_begun) {
        Some(word) => Err(format!("Cannot read {}: such an address begins with {word}://.", redacted(text)).into()),
        None => Ok(()),
    }
}

/// A stream, named after the last part of its path. The scheme is in small letters.
fn stream(scheme: &str, rest: &str) -> Result<(String, VideoAddress), Failure> {
    let uri = &*format!("{scheme}://{rest}");
    let shown = redacted(uri);
    if local::SCHEMES.contains(&scheme) {
        return Err(format!("Cannot read {shown}: {scheme}:// is on this machine. Give the path of a file.").into());
    }
    if rest.contains("***") {
        return Err(
            format!("Cannot read {shown}: *** stands for what is not shown of an address. Write it as it is.").into()
        );
    }
    host::host(scheme, rest).map_err(|what| format!("Cannot read {shown}: {what}."))?;
    if gst::Element::make_from_uri(gst::URIType::Src, uri, None).is_err() {
        return Err(
            format!("Cannot read {shown}: GStreamer has no element here for such an address ({scheme}://).").into()
        );
    }
    // No password is in the name of a file.
    let plain = shown.split_once("://").map_or(&*shown, |(_, rest)| rest).trim_start_matches("***@");
    let plain = plain.split(['?', '#']).next().unwrap_or_default();
    let name = match plain.trim_end_matches('/').rsplit_once('/') {
        Some((_, last)) => Path::new(last).file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        None => plain.trim_end_matches('/').to_string(),
    };
    let kept = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = name.chars().map(kept).collect();
    let name = if name.is_empty() { scheme.to_string() } else { name };
    Ok((name, VideoAddress::Uri(uri.into())))
}

impl VideoAddress {
    /// A video that may come and go: what is not there now is no error. Relative paths begin at the folder.
    ///
    /// # Errors
    /// It is an address that GStreamer has no element for.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, Failure> {
        let path = match text.split_once("://") {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("file") => path_of(text)?,
            Some((scheme, rest)) => return stream(&scheme.to_ascii_lowercase(), rest).map(|(_, address)| address),
            None if text.is_empty() || text == "-" => {
                return Err(
                    "Give a file, an address such as rtsp://camera/stream, or a camera such as /dev/video0.".into()
                );
            }
            None => {
                let path = folder.join(text);
                match numbered_camera(text) {
                    _ if path.exists() => path,
                    Some(camera) => camera,
                    None => {
                        refuse_mistyped(text)?;
                        path
                    }
                }
            }
        };
        Ok(if is_in_dev(&path) { VideoAddress::Camera(path) } else { VideoAddress::File(path) })
    }

    /// Whether a file can be read at all, before elements are made for it.
    ///
    /// # Errors
    /// Of a link that leads nowhere, and of what is no file.
    pub fn check(&self) -> Result<(), Failure> {
        let VideoAddress::File(path) = self else { return Ok(()) };
        unreadable(path).map_or(Ok(()), |why| Err(format!("Cannot read {}: {why}.", self.shown()).into()))
    }

    /// Whether its frames come at their own time, so that those which come too early for the model are lost. Of HTTP only
    /// the answer tells: [`VideoAddress::runs_live`].
    pub fn is_live(&self) -> bool {
        match self {
            VideoAddress::File(_) | VideoAddress::Stdin => false,
            VideoAddress::Camera(_) => true,
            VideoAddress::Uri(uri) => uri.split_once("://").is_some_and(|(scheme, _)| LIVE.contains(&scheme)),
        }
    }

    /// The same for a pipeline of it that runs.
    pub fn runs_live(&self, pipeline: &gst::Pipeline) -> bool {
        let has_camera =
            || pipeline.iterate_all_by_element_factory_name("multipartdemux").next().is_ok_and(|found| found.is_some());
        self.is_live() || self.is_http() && has_camera()
    }

    /// Whether it may have no end.
    pub fn is_remote(&self) -> bool {
        matches!(self, VideoAddress::Uri(_) | VideoAddress::Camera(_))
    }

    /// Whether it may send nothing without an end: not a file, and not standard input, which waits for people.
    pub fn may_be_silent(&self) -> bool {
        self.is_remote() || matches!(self, VideoAddress::File(path) if is_pipe(path))
    }

    pub fn is_rtsp(&self) -> bool {
        matches!(self, VideoAddress::Uri(uri) if uri.starts_with("rtsp"))
    }

    fn is_http(&self) -> bool {
        matches!(self, VideoAddress::Uri(uri) if is_http(uri))
    }

    /// What it connects to, by TCP, where that is clear.
    pub fn host(&self) -> Option<RemoteHost> {
        let VideoAddress::Uri(uri) = self else { return None };
        let (scheme, rest) = uri.split_once("://")?;
        host::host(scheme, rest).ok()?
    }

    /// As messages show it: without a password.
    pub fn shown(&self) -> String {
        match self {
            VideoAddress::File(path) | VideoAddress::Camera(path) => path_text(path),
            VideoAddress::Stdin => "standard input".into(),
            VideoAddress::Uri(uri) => redacted(uri),
        }
    }

    /// Adds elements, named `decode` and what is before it, whose first video goes to `sink`. It is an error on the bus
    /// if there is none. The pipeline has the CUDA context of the others of this process then, which the decoder takes.
    pub fn connect(&self, pipeline: &gst::Pipeline, sink: gst::Pad, options: &ReadOptions) -> Result<(), Failure> {
        registry::give(pipeline, options.gpu);
        if let VideoAddress::Uri(_) = self {
            let host = self.host();
            local::name_host(host.as_ref().map(|host| (host.name.as_str(), host.port)));
        }
        let video = options.tap.as_ref().filter(|tap| tap.video).map(|tap| VideoTap::new(&tap.sink));
        let audio = options.tap.as_ref().filter(|tap| tap.audio);
        let make = |factory: &str, name: &str| {
            let element = gst::ElementFactory::make(factory).name(name).build();
            element.map_err(|_| Failure::from(format!("GStreamer has no element {factory}: install its plugin.")))
        };
        let picture = match self {
            VideoAddress::File(path) => Some(path).filter(|path| is_picture(path)),
            _ => None,
        };
        let decode = match self {
            VideoAddress::Uri(uri) => {
                let decode = make("uridecodebin", "decode")?;
                decode.set_property("uri", uri);
                look_after_source(&decode, &options.stream, audio.is_some());
                if self.is_http() {
                    guard::look_after_http(decode.downcast_ref().expect("it is a bin"), &sink);
                    // Only what has an end.
                    decode.set_property("download", options.is_kept);
                    if options.is_kept {
                        guard::read_whole(decode.downcast_ref().expect("it is a bin"));
                    }
                }
                pipeline.add(&decode)?;
                decode
            }
            VideoAddress::File(_) | VideoAddress::Camera(_) | VideoAddress::Stdin => {
                let source = match self {
                    VideoAddress::Camera(path) => {
                        let source = make("v4l2src", "source")?;
                        source.set_property("device", path);
                        source
                    }
                    VideoAddress::File(path) if is_picture(path) => {
                        if let Some(missing) = whole::missing(path) {
                            return Err(format!("Cannot read {}: it is cut off, {missing}.", self.shown()).into());
                        }
                        // Some decoders want a picture whole. The location is a pattern for numbers.
                        let source = make("multifilesrc", "source")?;
                        let bytes = path.as_os_str().as_bytes().iter();
                        let location: Vec<u8> =
                            bytes.flat_map(|&byte| vec![byte; 1 + usize::from(byte == b'%')]).collect();
                        source.set_property("location", PathBuf::from(OsString::from_vec(location)));
                        source.set_property("num-buffers", 1);
                        source
                    }
                    VideoAddress::File(path) if is_pipe(path) => {
                        let source = make("fdsrc", "source")?;
                        read_pipe(&source, path).map_err(|error| format!("Cannot read {}: {error}.", self.shown()))?;
                        source
                    }
                    VideoAddress::File(path) => {
                        let source = make("filesrc", "source")?;
                        source.set_property("location", path);
                        source
                    }
                    _ => make("fdsrc", "source")?,
                };
                if picture.is_some_and(|path| picture::needs_pixbuf(path)) {
                    let decode = make(picture::PIXBUF, "decode")?;
                    guard::refuse_large(&decode, &decode, self.is_remote());
                    pipeline.add_many([&source, &decode])?;
                    source.link(&decode)?;
                    video.iter().for_each(|video| video.choose(pipeline, None));
                    return convert(pipeline, &decode.static_pad("src").expect("an always pad"), &sink, false);
                }
                let decode = make("decodebin", "decode")?;
                if let VideoAddress::File(path) = self
                    && path.is_file()
                    && !is_picture(path)
                    && let Some(missing) = whole::missing(path)
                {
                    guard::warn_of_missing(&decode, format!("{} is cut off: {missing}.", self.shown()));
                }
                pipeline.add_many([&source, &decode])?;
                source.link(&decode)?;
                decode
            }
        };
        // No thread and no decoder for sound, of which there may be any number.
        decode.set_property("expose-all-streams", false);
        decode.set_property("caps", gst::Caps::builder("video/x-raw").any_features().build());
        picture::put_parser_first(&decode, picture.is_some());
        guard::look_after_frames(decode.downcast_ref().expect("it is a bin"), &self.shown(), self.is_remote());
        if let Some(gpu) = options.gpu {
            keep_to_gpu(&decode, gpu);
        }
        guard::warn_of_lost_frames(decode.downcast_ref().expect("it is a bin"), &self.shown());
        look_after_decoders(decode.downcast_ref().expect("it is a bin"), &options.stream, self.is_live());
        if let Some(audio) = audio {
            tap::follow_audio(pipeline, &decode, &audio.sink);
        }
        take_video(pipeline, &decode, sink, video);
        Ok(())
    }

    /// Whether nothing reads the file any more, though no video came out of it to the pad `sink`.
    ///
    /// decodebin drops the errors of an element that it is starting. A demuxer reads in a thread of its own, so an
    /// error in the first bytes may fall into that time; then there is neither an error nor an end of the stream.
    pub fn gave_up(&self, pipeline: &gst::Pipeline, sink: &gst::Pad) -> bool {
        if !matches!(self, VideoAddress::File(_)) {
            return false;
        }
        let Some(decode) = pipeline.by_name("decode").and_downcast::<gst::Bin>() else { return false };
        let elements = decode.children().into_iter().chain(pipeline.by_name("source"));
        let mut pads = elements.flat_map(|element| element.pads());
        let reads = pads.any(|pad| pad.task_state() == gst::TaskState::Started || is_streaming(&pad));
        !reads && !sink.is_linked()
    }

    /// The text of an error message, in one sentence.
    pub fn sentence(&self, error: &gst::message::Error) -> String {
        let mut text = error.error().to_string();
        if error.error().matches(gst::CoreError::MissingPlugin) && self.is_of_reading(error) {
            text = match missing_decoder(&error.debug().unwrap_or_default()) {
                Some(format) => format!("GStreamer has no decoder for {format} here: install its plugin."),
                None => "there is no video in it.".into(),
            };
        }
        // An element that passes on the error of another one has the debug text of that behind it.
        if text.contains('\n') {
            text = text.split_once(".: ").map_or(text.replace('\n', " "), |(said, _)| format!("{said}."));
        }
        if let VideoAddress::Uri(uri) = self {
            text = text.replace(uri, &self.shown());
        }
        if !self.is_of_reading(error) {
            return chain::sentence(error);
        }
        // Demuxers do not tell this: without its index, an MP4 has no streams for them.
        let cut = match self {
            VideoAddress::File(path) if path.is_file() => whole::missing(path),
            _ => None,
        };
        let cut = cut.map_or(String::new(), |missing| format!("it is cut off, {missing}. Copy or record it again. "));
        format!("Cannot read {}: {cut}{text}", self.shown())
    }

    /// Whether the source failed, and not what is done with its frames.
    pub fn is_of_reading(&self, error: &gst::message::Error) -> bool {
        self.is_of_reading_at(error.src())
    }

    /// The same of what an element has posted.
    pub fn is_of_reading_at(&self, element: Option<&gst::Object>) -> bool {
        let path = element.map(|element| element.path_string()).unwrap_or_default();
        [":decode", ":source"].iter().any(|name| path.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_element_can_read_is_refused() {
        gst::init().unwrap();
        for (address, said) in [
            ("rtsp://h:99999/x", "Cannot read rtsp://h:99999/x: its port is no number from 1 to 65535."),
            ("HTTP://", "Cannot read http://: it has no host."),
            (
                "rtsp://me:hu/sh@h/x",
                "Cannot read rtsp://***@h/x: its port is no number from 1 to 65535. In a password, ",
            ),
            ("rtsp://***@h/x", "Cannot read rtsp://***@h/x: *** stands for what is not shown of an address."),
            ("rtsp:/me:hush@h/x", "Cannot read ***@h/x: such an address begins with rtsp://."),
            ("rtsp//h/x", "Cannot read rtsp//h/x: such an address begins with rtsp://."),
            ("http:h", "Cannot read http:h: such an address begins with http://."),
            ("fd://0", "Cannot read fd://0: fd:// is on this machine. Give the path of a file."),
            ("multifile:///a.jpg", "is on this machine"),
            ("resource:///a", "is on this machine"),
            ("xyz://h/x", "no element here for such an address (xyz://)"),
            (" rtsp://h/x", "no element here for such an address"),
            ("file://h/x", "Cannot use file://h/x: it is a file of another host."),
        ] {
            for error in [
                sources(&[address.into()]).map(drop).expect_err(address).to_string(),
                VideoAddress::parse(address, Path::new("/nowhere")).map(drop).expect_err(address).to_string(),
            ] {
                assert!(error.contains(said) && !error.contains("hush"), "{address}: {error}");
            }
        }
    }

    #[test]
    fn the_decoder_that_is_missing_is_one_of_videos() {
        let sound =
            "no suitable plugins found:\nMissing decoder: A-Law (audio/x-alaw, rate=(int)8000, channels=(int)1)\n";
        let video = "Missing decoder: VP9 (video/x-vp9, width=(int)320, framerate=(fraction)30/1)\n";
        assert_eq!(missing_decoder(sound), None);
        assert_eq!(missing_decoder(&format!("{sound}{video}")), Some("VP9"));
        let packets = |media: &str| {
            let caps = format!("application/x-rtp, media=(string){media}, encoding-name=(string)ODD, ssrc=(uint)7");
            format!("Missing decoder: application/x-rtp ({caps})\n")
        };
        assert_eq!(missing_decoder(&packets("video")), Some("ODD"));
        assert_eq!(missing_decoder(&packets("audio")), None);
        assert_eq!(missing_decoder(""), None);
    }

    #[test]
    fn cameras_and_files_in_memory_are_told_apart() {
        let parse = |text: &str| VideoAddress::parse(text, Path::new("/nowhere")).unwrap();
        for path in ["/dev/video0", "/dev/video99", "/dev/v4l/by-id/usb-x"] {
            assert_eq!(parse(path), VideoAddress::Camera(path.into()));
        }
        for path in ["/dev/shm/a.mp4", "/dev/shm"] {
            assert_eq!(parse(path), VideoAddress::File(path.into()));
        }
    }
}
