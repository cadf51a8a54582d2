// SPDX-License-Identifier: MPL-2.0
//! Windows with frames.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};

use gst::prelude::*;

use crate::chain::{self, element};
use crate::progress::Display;

/// Takes any sink that starts, and tries them all, of which some end the program where there is no screen for them, such as
/// that of DirectFB. On Linux the display tells which are meant.
const AUTO: &str = "autovideosink";

/// A kind of display of Linux.
struct DisplayKind {
    /// Which says that there is one.
    variable: &'static str,
    /// The sinks that show frames on it, the first one first.
    sinks: &'static [&'static str],
    /// Which has the first of them, in Debian.
    package: &'static str,
}

const DISPLAYS: [DisplayKind; 2] = [
    DisplayKind {
        variable: "DISPLAY",
        sinks: &["xvimagesink", "ximagesink", "glimagesink", "nveglglessink"],
        package: "gstreamer1.0-x",
    },
    DisplayKind {
        variable: "WAYLAND_DISPLAY",
        sinks: &["waylandsink", "glimagesink"],
        package: "gstreamer1.0-plugins-bad",
    },
];

impl DisplayKind {
    fn is_there(&self) -> bool {
        env::var_os(self.variable).is_some_and(|display| !display.is_empty())
    }

    /// Those that are installed. Who gives one no rank wants it not to be chosen.
    fn sinks(&self) -> Vec<&'static str> {
        let is_wanted =
            |sink: &&str| gst::ElementFactory::find(sink).is_some_and(|found| found.rank() > gst::Rank::NONE);
        self.sinks.iter().copied().filter(is_wanted).collect()
    }
}

pub fn has_display() -> bool {
    DISPLAYS.iter().any(DisplayKind::is_there)
}

/// A pipeline of its own, so that its end is not that of the frames that are read and written.
pub struct Window {
    pipeline: gst::Pipeline,
    source: gst_app::AppSrc,
    is_closed: AtomicBool,
}

impl Window {
    /// On the display that there is.
    ///
    /// # Errors
    /// Why there is no window, as a part of a sentence.
    pub fn on_display() -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Self::open(AUTO);
        }
        let mut reasons = Vec::new();
        for display in DISPLAYS.iter().filter(|display| display.is_there()) {
            let sinks = display.sinks();
            if sinks.is_empty() {
                let (variable, all, package) = (display.variable, display.sinks.join(", "), display.package);
                reasons.push(format!("{variable} is set, but none of {all} is installed: install {package}"));
            }
            for sink in sinks {
                match Self::open(sink) {
                    Ok(window) => return Ok(window),
                    Err(why) => reasons.push(format!("{sink} on the display of {}: {why}", display.variable)),
                }
            }
        }
        Err(match reasons.is_empty() {
            true => "there is no display, as neither DISPLAY nor WAYLAND_DISPLAY is set".into(),
            false => reasons.join("; "),
        })
    }

    /// With a sink of GStreamer.
    fn open(sink: &str) -> Result<Self, String> {
        let line = format!(
            "appsrc name=in format=time is-live=true max-buffers=2 max-bytes=0 leaky-type=downstream ! videoconvert \
             ! {sink} name=window sync=false"
        );
        let pipeline = chain::parse(&line).map_err(|failure| failure.to_string().trim_end_matches('.').to_string())?;
        let source = element(&pipeline, "in").downcast::<gst_app::AppSrc>().expect("it is an appsrc");
        let window = Window { pipeline, source, is_closed: AtomicBool::new(false) };
        let is_ready = window.pipeline.set_state(gst::State::Ready).is_ok();
        if !is_ready || sink == AUTO && !window.has_sink() {
            return Err("it cannot be opened".into());
        }
        window.pipeline.set_state(gst::State::Playing).map_err(|_| "its pipeline does not start")?;
        Ok(window)
    }

    /// Without a sink that works, autovideosink takes one that shows nothing.
    fn has_sink(&self) -> bool {
        let bin = element(&self.pipeline, "window").downcast::<gst::Bin>().expect("it is a bin");
        let is_fake = |child: &gst::Element| child.factory().is_some_and(|factory| factory.name().contains("fake"));
        !bin.children().is_empty() && !bin.children().iter().any(is_fake)
    }

    pub fn show(&self, sample: &gst::Sample) {
        let _ = self.source.push_sample(sample); // it is closed then
    }

    pub fn is_closed(&self, display: &Display, time: gst::ClockTime) -> bool {
        let bus = self.pipeline.bus().expect("a pipeline has a bus");
        // With a time of zero, timed_pop_filtered looks at nothing.
        let is_error = &[gst::MessageType::Error];
        if let Some(message) = bus.pop_filtered(is_error).or_else(|| bus.timed_pop_filtered(time, is_error))
            && let gst::MessageView::Error(error) = message.view()
        {
            let text = error.error().to_string();
            if !self.is_closed.swap(true, Ordering::Relaxed) && !text.to_ascii_lowercase().contains("closed") {
                display.line(&format!("Warning: the window has ended: {text}"));
            }
        }
        self.is_closed.load(Ordering::Relaxed)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::show::Screen;
    use super::*;
    use crate::wait::{LIMIT, wait_until};

    fn sample(format: &str) -> gst::Sample {
        let caps = gst::Caps::builder("video/x-raw").field("format", format).field("width", 8).field("height", 4);
        let caps = caps.field("framerate", gst::Fraction::new(30, 1)).build();
        let buffer = gst::Buffer::from_mut_slice(vec![0u8; 8 * 4 * 4]);
        gst::Sample::builder().caps(&caps).buffer(&buffer).build()
    }

    #[test]
    fn a_window_shows_frames_of_any_format_until_it_is_closed() {
        chain::start_gstreamer().unwrap();
        let window = Arc::new(Window::open("fakesink").unwrap());
        let screen = Screen::Window(window.clone());
        let (display, sink) = (Display::default(), element(&window.pipeline, "window"));
        let rendered = || sink.property::<gst::Structure>("stats").get::<u64>("rendered").unwrap();
        window.show(&sample("BGRx"));
        wait_until("one is shown", LIMIT, || rendered() == 1);
        screen.show_image(&sample("RGBA")).unwrap();
        wait_until("both are shown", LIMIT, || rendered() == 2);
        assert!(!screen.is_closed(&display) && !screen.wait(&display, Duration::ZERO));
        // As sinks say that a user has closed their window.
        gst::element_error!(sink, gst::ResourceError::NotFound, ("Output window was closed"));
        assert!(screen.is_closed(&display) && screen.wait(&display, Duration::ZERO));
        window.show(&sample("BGRx"));
    }

    #[test]
    fn a_window_that_cannot_be_is_an_error() {
        chain::start_gstreamer().unwrap();
        assert!(Window::open("nosuchsink").err().unwrap().contains("nosuchsink"));
    }
}
