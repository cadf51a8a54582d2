// SPDX-License-Identifier: MPL-2.0
//! GStreamer and its plugins.

use super::Component;

/// What users need: any of these elements is enough. Then what its lack costs, and the Debian package that has it.
type ElementGroup = (&'static str, &'static [&'static str], &'static str, &'static str);

const BASE: &str = "gstreamer1.0-plugins-base";
const GOOD: &str = "gstreamer1.0-plugins-good";
const BAD: &str = "gstreamer1.0-plugins-bad";
const UGLY: &str = "gstreamer1.0-plugins-ugly";
const X: &str = "gstreamer1.0-x";
const LIBAV: &str = "gstreamer1.0-libav";

static WANTED: [ElementGroup; 21] = [
    ("decodebin", &["decodebin"], "no file and no stream can be read", BASE),
    ("conversion", &["videoconvert"], "only formats that trtpreprocess takes can be used", BASE),
    ("scaling", &["videoscale"], "no annotated video", BASE),
    ("MP4 and MOV files", &["qtdemux"], "MP4 files cannot be read", GOOD),
    ("Matroska and WebM files", &["matroskademux"], "MKV and WebM files cannot be read", GOOD),
    ("AVI files", &["avidemux"], "AVI files cannot be read", GOOD),
    (
        "H.264 decoder",
        &["nvh264dec", "vah264dec", "avdec_h264", "openh264dec", "v4l2h264dec"],
        "H.264 cannot be read",
        LIBAV,
    ),
    (
        "H.265 decoder",
        &["nvh265dec", "vah265dec", "avdec_h265", "libde265dec", "v4l2h265dec"],
        "H.265 cannot be read",
        LIBAV,
    ),
    ("VP9 decoder", &["nvvp9dec", "vavp9dec", "vp9dec", "avdec_vp9"], "VP9 cannot be read", GOOD),
    ("AV1 decoder", &["nvav1dec", "vaav1dec", "dav1ddec", "av1dec", "avdec_av1"], "AV1 cannot be read", BAD),
    ("JPEG decoder", &["jpegdec", "nvjpegdec", "avdec_mjpeg"], "JPEG images and many cameras cannot be read", GOOD),
    ("PNG decoder", &["pngdec", "avdec_png"], "PNG images cannot be read", GOOD),
    ("H.264 parser", &["h264parse"], "no annotated video, and most MP4 files cannot be read", BAD),
    ("H.264 encoder", &["x264enc"], "no annotated video: use --no-video", UGLY),
    ("MP4 writer", &["mp4mux"], "no annotated video: use --no-video", GOOD),
    ("image writers", &["jpegenc"], "no annotated JPEG images", GOOD),
    ("RTSP", &["rtspsrc"], "rtsp:// cannot be read", GOOD),
    ("HTTP", &["souphttpsrc", "curlhttpsrc"], "http:// cannot be read", GOOD),
    ("cameras", &["v4l2src"], "/dev/video0 cannot be read", GOOD),
    (
        "windows",
        &["xvimagesink", "ximagesink", "glimagesink", "waylandsink"],
        "--show has only the terminal, and autovideosink shows nothing",
        X,
    ),
    ("rotation", &["videoflip"], "videos of phones cannot be turned upright", GOOD),
];

pub fn checks() -> Vec<Component> {
    let (major, minor, ..) = gst::version();
    let version = gst::version_string().to_string();
    let first = match (major, minor) >= (1, 20) {
        true => Component::there("GStreamer", "GStreamer", version),
        false => Component::missing("GStreamer", "GStreamer", version, "1.20 or later is needed: update it"),
    };
    std::iter::once(first).chain(WANTED.iter().map(check)).collect()
}

fn check(&(name, elements, costs, package): &ElementGroup) -> Component {
    let there: Vec<&str> =
        elements.iter().copied().filter(|element| gst::ElementFactory::find(element).is_some()).collect();
    if there.is_empty() {
        let what = format!("none of {}", elements.join(", "));
        Component::missing("GStreamer", name, what, format!("{costs}; install {package}"))
    } else {
        Component::there("GStreamer", name, there.join(", "))
    }
}
