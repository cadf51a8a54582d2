// SPDX-License-Identifier: MPL-2.0
//! Frames with what was found, as they come: in a window, or as pictures in the terminal.

use std::env;
use std::io::{IsTerminal, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gst::prelude::*;
use gst_video::prelude::*;

use crate::chain::{self, element};
use crate::failure::Failure;
use crate::progress::Display;
use crate::terminal::screen::{Pixels, TerminalScreen};

/// The time between two pictures in a terminal, at least.
const PACE: gst::ClockTime = gst::ClockTime::from_mseconds(125);

/// Chooses a sink for the display that there is.
const SINK: &str = "autovideosink";

/// Where frames are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ShowPlace {
    /// A window where there is a display, else the terminal.
    Auto,
    Window,
    Terminal,
}

/// What shows the frames of a source.
#[derive(Clone)]
pub enum Screen {
    Window(Arc<Window>),
    Terminal(Arc<TerminalScreen>),
}

impl ShowPlace {
    /// A screen, of which windows are one for each source. The terminal is none where lines go to stdout.
    ///
    /// # Errors
    /// There is none.
    pub fn open(self, terminal: &Arc<TerminalScreen>, has_lines: bool) -> Result<Screen, Failure> {
        let no_terminal = match (has_lines, stdout().is_terminal()) {
            (true, _) => Some("standard output takes the lines of --json -"),
            (false, false) => Some("standard output is no terminal"),
            (false, true) => None,
        };
        let in_terminal = Screen::Terminal(terminal.clone());
        match (self, no_terminal) {
            (ShowPlace::Terminal, None) => Ok(in_terminal),
            (ShowPlace::Terminal, Some(why)) => {
                Err(format!("Cannot show pictures in the terminal: {why}. Leave --show out.").into())
            }
            (ShowPlace::Window, _) => Window::open(SINK)
                .map(|window| Screen::Window(Arc::new(window)))
                .map_err(|why| format!("Cannot open a window: {why}. --show=terminal shows pictures there.").into()),
            (ShowPlace::Auto, _) => match (Window::open(SINK), no_terminal) {
                (Ok(window), _) => Ok(Screen::Window(Arc::new(window))),
                (Err(_), None) => Ok(in_terminal),
                (Err(window), Some(terminal)) => Err(format!(
                    "Cannot show pictures: {window}, and {terminal}. Leave --show out: results are written to files then."
                )
                .into()),
            },
        }
    }
}

impl Screen {
    pub fn terminal(&self) -> Option<&Arc<TerminalScreen>> {
        match self {
            Screen::Window(_) => None,
            Screen::Terminal(terminal) => Some(terminal),
        }
    }

    /// The end of a launch line, behind frames in system memory. Frames of a file come at their own time.
    pub fn launch_line(&self, is_live: bool) -> String {
        let format = if self.terminal().is_some() { ",format=RGB" } else { "" };
        format!(
            "videoconvert name=shown ! appsink name=show caps=\"video/x-raw{format}\" sync={} async=false max-buffers=1 \
             drop={is_live} enable-last-sample=false",
            !is_live
        )
    }

    /// Takes the frames of such an end.
    pub fn connect(&self, pipeline: &gst::Pipeline) {
        if self.terminal().is_some() {
            pace(&element(pipeline, "shown").static_pad("sink").expect("an always pad"));
        }
        let screen = self.clone();
        let take = move |sink: &gst_app::AppSink| {
            screen.show(&sink.pull_sample().map_err(|_| gst::FlowError::Eos)?);
            Ok(gst::FlowSuccess::Ok)
        };
        let sink = element(pipeline, "show").downcast::<gst_app::AppSink>().expect("it is an appsink");
        sink.set_callbacks(gst_app::AppSinkCallbacks::builder().new_sample(take).build());
    }

    /// Shows a frame, of a terminal one in RGB.
    fn show(&self, sample: &gst::Sample) {
        match self {
            Screen::Window(window) => window.show(sample),
            Screen::Terminal(terminal) => draw(terminal, sample).unwrap_or_default(),
        }
    }

    /// Shows an image, which stays in a terminal.
    pub fn show_image(&self, sample: &gst::Sample) -> Result<(), Failure> {
        let Screen::Terminal(terminal) = self else {
            self.show(sample);
            return Ok(());
        };
        let caps = gst::Caps::builder("video/x-raw").field("format", "RGB").build();
        let sample = gst_video::convert_sample(sample, &caps, Some(gst::ClockTime::from_seconds(60)))
            .map_err(|error| format!("Cannot show the image: {error}."))?;
        self.show(&sample);
        terminal.keep();
        Ok(())
    }

    /// Whether nobody sees it any more. Says what is wrong with the window, unless it was closed.
    pub fn is_closed(&self, display: &Display) -> bool {
        match self {
            Screen::Window(window) => window.is_closed(display, gst::ClockTime::ZERO),
            Screen::Terminal(terminal) => terminal.is_gone(),
        }
    }

    /// Waits for the user to close the window, but not longer. Pictures in a terminal stay.
    pub fn wait(&self, display: &Display, time: Duration) -> bool {
        match self {
            Screen::Window(window) => window.is_closed(display, gst::ClockTime::try_from(time).unwrap_or_default()),
            Screen::Terminal(_) => true,
        }
    }
}

/// Lets frames through that are some time behind the last one.
fn pace(pad: &gst::Pad) {
    let last = Mutex::new(None::<gst::ClockTime>);
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = info.buffer().and_then(|buffer| buffer.pts());
        let is_due = match (*last, now) {
            (Some(last), Some(now)) => now < last || now - last >= PACE,
            _ => true,
        };
        if !is_due {
            return gst::PadProbeReturn::Drop;
        }
        *last = now;
        gst::PadProbeReturn::Ok
    });
}

fn draw(terminal: &TerminalScreen, sample: &gst::Sample) -> Option<()> {
    let info = gst_video::VideoInfo::from_caps(sample.caps()?).ok()?;
    let frame = gst_video::VideoFrameRef::from_buffer_ref_readable(sample.buffer()?, &info).ok()?;
    let aspect = f64::from(info.par().numer()) / f64::from(info.par().denom().max(1));
    let (width, height) = (info.width() as usize, info.height() as usize);
    let stride = usize::try_from(frame.plane_stride()[0]).ok()?;
    terminal.draw(&Pixels { data: frame.plane_data(0).ok()?, stride, width, height, aspect });
    Some(())
}

/// A pipeline of its own, so that its end is not that of the frames that are read and written.
pub struct Window {
    pipeline: gst::Pipeline,
    source: gst_app::AppSrc,
    is_closed: AtomicBool,
}

impl Window {
    /// With a sink of GStreamer.
    ///
    /// # Errors
    /// Why there is none, as a part of a sentence.
    fn open(sink: &str) -> Result<Self, String> {
        let has_display = ["WAYLAND_DISPLAY", "DISPLAY"].iter().any(|name| env::var_os(name).is_some());
        if sink == SINK && !has_display && cfg!(target_os = "linux") {
            return Err("there is no display, as neither DISPLAY nor WAYLAND_DISPLAY is set".into());
        }
        let line = format!(
            "appsrc name=in format=time is-live=true max-buffers=2 max-bytes=0 leaky-type=downstream ! videoconvert \
             ! {sink} name=window sync=false"
        );
        let pipeline = chain::parse(&line).map_err(|failure| failure.to_string().trim_end_matches('.').to_string())?;
        let source = element(&pipeline, "in").downcast::<gst_app::AppSrc>().expect("it is an appsrc");
        let window = Window { pipeline, source, is_closed: AtomicBool::new(false) };
        let is_ready = window.pipeline.set_state(gst::State::Ready).is_ok();
        if !is_ready || sink == SINK && !window.has_sink() {
            return Err("no video sink of GStreamer can use the display".into());
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

    fn show(&self, sample: &gst::Sample) {
        let _ = self.source.push_sample(sample); // it is closed then
    }

    fn is_closed(&self, display: &Display, time: gst::ClockTime) -> bool {
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
        screen.show(&sample("BGRx"));
        wait_until("one is shown", LIMIT, || rendered() == 1);
        screen.show_image(&sample("RGBA")).unwrap();
        wait_until("both are shown", LIMIT, || rendered() == 2);
        assert!(!screen.is_closed(&display) && !screen.wait(&display, Duration::ZERO));
        // As sinks say that a user has closed their window.
        gst::element_error!(sink, gst::ResourceError::NotFound, ("Output window was closed"));
        assert!(screen.is_closed(&display) && screen.wait(&display, Duration::ZERO));
        screen.show(&sample("BGRx"));
    }

    #[test]
    fn a_window_that_cannot_be_is_an_error() {
        chain::start_gstreamer().unwrap();
        assert!(Window::open("nosuchsink").err().unwrap().contains("nosuchsink"));
    }
}
