// SPDX-License-Identifier: MPL-2.0
//! What encodes frames as H.264 here, for recordings and for those who watch.

/// The encoders in the order in which they are chosen, with their properties: a key frame a second at 30 frames a second, no
/// frame that waits for a later one, and one thread each, as there are many sources.
const ENCODERS: [(&str, &str); 3] = [
    ("nvh264enc", "gop-size=30 bframes=0"),
    ("x264enc", "speed-preset=veryfast tune=zerolatency key-int-max=30 threads=1"),
    ("openh264enc", "gop-size=30 complexity=low multi-thread=1"),
];

fn found() -> Option<(&'static str, &'static str)> {
    ENCODERS.into_iter().find(|(name, _)| gst::ElementFactory::find(name).is_some())
}

/// Why nothing can be encoded here.
pub fn missing() -> Option<String> {
    let names = ENCODERS.map(|(name, _)| name).join(", ");
    found().is_none().then(|| {
        format!(
            "GStreamer has none of {names} here, to encode H.264: install the plugin of one, such as gstreamer1.0-plugins-ugly"
        )
    })
}

/// From frames, wherever they are, to H.264.
pub fn launch_line() -> String {
    // Where GPUs decode, frames may come in CUDA memory, of which videoconvert knows nothing.
    let download = gst::ElementFactory::find("cudadownload").map_or("", |_| "cudadownload !");
    // Its absence is an error that names it.
    let (name, properties) = found().unwrap_or(ENCODERS[1]);
    format!(
        "{download} videoconvert ! videoscale add-borders=false \
         ! video/x-raw,format=I420,width=[2,16384,2],height=[2,16384,2] ! {name} {properties}"
    )
}
