// SPDX-License-Identifier: MPL-2.0
//! Frames with what was found, as they come: in a window, or as pictures in the terminal.

use std::io::{IsTerminal, stdout};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gst::prelude::*;
use gst_video::prelude::*;

use super::window::{self, Window};
use crate::chain::element;
use crate::failure::Failure;
use crate::progress::Display;
use crate::terminal::print_error;
use crate::terminal::screen::{Pixels, TerminalScreen};

/// The time between two pictures in a terminal, at least.
const PACE: gst::ClockTime = gst::ClockTime::from_mseconds(125);

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
            (ShowPlace::Window, _) => Window::on_display()
                .map(|window| Screen::Window(Arc::new(window)))
                .map_err(|why| format!("Cannot open a window: {why}. --show=terminal shows pictures there.").into()),
            (ShowPlace::Auto, _) => match (Window::on_display(), no_terminal) {
                (Ok(window), _) => Ok(Screen::Window(Arc::new(window))),
                (Err(window), None) => {
                    if window::has_display() {
                        print_error(&format!("Warning: No window: {window}. Pictures are shown in the terminal."));
                    }
                    Ok(in_terminal)
                }
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
            return gst::PadProbeReturn::Handled; // of Drop, GStreamer 1.22 complains where a buffer comes in
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
