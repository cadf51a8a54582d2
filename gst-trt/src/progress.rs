// SPDX-License-Identifier: MPL-2.0
//! Progress on stderr: a bar on a terminal, else a line from time to time. Where pictures are shown, it is below them.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::terminal::screen::TerminalScreen;
use crate::terminal::{plain, print_error};

/// Without a terminal, the time between two lines.
const QUIET: Duration = Duration::from_secs(5);

/// The bars of all that runs side by side.
#[derive(Clone, Default)]
pub struct Display {
    bars: MultiProgress,
    /// What has the terminal instead of bars.
    screen: Option<Arc<TerminalScreen>>,
}

impl Display {
    /// With pictures.
    pub fn below(screen: &Arc<TerminalScreen>) -> Self {
        Display { screen: Some(screen.clone()), ..Display::default() }
    }

    pub fn task(&self, name: &str) -> TaskProgress {
        self.one_of(name, None)
    }

    /// Of several that follow each other: its number, and how many they are.
    pub fn one_of(&self, name: &str, place: Option<(usize, usize)>) -> TaskProgress {
        let is_terminal = self.screen.is_some() || std::io::stderr().is_terminal();
        let has_bar = is_terminal && self.screen.is_none();
        let bar = if has_bar { self.bars.add(ProgressBar::new(100)) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{prefix} {bar:30} {percent:>3} %  {msg}");
        bar.set_style(style.expect("the template is valid"));
        let place = place.map(|(number, count)| format!("{number}/{count} {name}"));
        bar.set_prefix(place.clone().unwrap_or_else(|| name.into()));
        let subject = place.map_or_else(String::new, |place| place + ": ");
        TaskProgress { display: self.clone(), bar, is_terminal, subject, shown: Instant::now() }
    }

    /// A line that stays, above the bars.
    pub fn line(&self, text: &str) {
        match &self.screen {
            Some(screen) => screen.line(text),
            None => self.bars.suspend(|| print_error(text)),
        }
    }
}

/// The progress of one task.
pub struct TaskProgress {
    display: Display,
    bar: ProgressBar,
    is_terminal: bool,
    /// What lines begin with where there are several.
    subject: String,
    shown: Instant,
}

impl TaskProgress {
    /// Shows how much is done, in 0..1 if that is known, and how it goes.
    pub fn show(&mut self, part: Option<f64>, state: impl FnOnce() -> String) {
        if self.shown.elapsed() < if self.is_terminal { Duration::from_millis(250) } else { QUIET } {
            return;
        }
        self.shown = Instant::now();
        if let Some(screen) = &self.display.screen {
            let part = part.map_or_else(String::new, |part| format!(", {:.0} %", part * 100.0));
            return screen.set_status(format!("{}: {}{part}", self.bar.prefix(), state()));
        }
        match (self.is_terminal, part) {
            (true, Some(part)) => {
                self.bar.set_position((part.clamp(0.0, 1.0) * 100.0) as u64);
                self.bar.set_message(plain(&state()).into_owned());
            }
            (true, None) => {
                let style = ProgressStyle::with_template("{prefix} {spinner} {msg}");
                self.bar.set_style(style.expect("the template is valid"));
                self.bar.set_message(plain(&state()).into_owned());
                self.bar.tick();
            }
            (false, Some(part)) => print_error(&format!("{}{}, {:3.0} %", self.subject, state(), part * 100.0)),
            (false, None) => print_error(&format!("{}{}", self.subject, state())),
        }
    }

    /// What is to be read now, and stays.
    pub fn line(&self, text: &str) {
        self.display.line(text);
    }
}

impl Drop for TaskProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
