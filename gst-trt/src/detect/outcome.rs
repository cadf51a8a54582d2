// SPDX-License-Identifier: MPL-2.0
//! How sources end, what is said of it, and the status.

use super::report::DetectReport;
use super::{DetectArgs, Job};
use crate::failure::{Failure, Status};
use crate::signals::Signals;
use crate::terminal::{print, print_error};

/// How a source ended.
pub struct Ended {
    pub report: DetectReport,
    pub signal: Option<i32>,
    /// Why a source that has no end has come to one, or why one that has an end was not read to it. What was found until then
    /// is there.
    pub lost: Option<Failure>,
    /// Images that cannot be read.
    pub broken: usize,
    pub images: usize,
}

/// Why a source has no results.
pub struct Broken {
    pub failure: Failure,
    pub kind: BrokenKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BrokenKind {
    /// It cannot be read; others may be.
    Unreadable,
    /// A signal came before its first frame was done.
    Stopped,
    Other,
}

impl Broken {
    pub fn unreadable(failure: impl Into<Failure>) -> Self {
        Broken { failure: failure.into(), kind: BrokenKind::Unreadable }
    }

    pub fn stopped(source: &str) -> Self {
        let failure = format!("{source} was stopped before its first frame was done.");
        Broken { failure: failure.into(), kind: BrokenKind::Stopped }
    }
}

impl<T: Into<Failure>> From<T> for Broken {
    fn from(failure: T) -> Self {
        Broken { failure: failure.into(), kind: BrokenKind::Other }
    }
}

/// Prints what was done, and says how it ended.
pub fn conclude(
    jobs: &[Job],
    ends: Vec<Option<Result<Ended, Broken>>>,
    args: &DetectArgs,
    signals: &Signals,
) -> Result<Status, Failure> {
    let is_piped = args.has_lines_on_stdout();
    let (mut broken, mut images, mut signal) = (0, 0, None);
    let (mut failures, mut lost, mut not_begun) = (Vec::new(), Vec::new(), Vec::new());
    for (job, end) in jobs.iter().zip(ends) {
        match end {
            Some(Ok(ended)) => {
                let summary = ended.report.summary(job, args);
                if is_piped {
                    print_error(&summary)
                } else {
                    print(&summary)?
                }
                broken += ended.broken;
                images += ended.images;
                signal = signal.or(ended.signal);
                lost.extend(ended.lost);
            }
            Some(Err(error)) => failures.push(error),
            None => not_begun.push(job),
        }
    }
    // Without a signal, a failure is why.
    if let (Some(_), [first, ..]) = (signals.signal(), &not_begun[..]) {
        failures.push(match not_begun.len() {
            1 => Broken::stopped(&first.shown()),
            count => {
                let failure = format!("{count} of {} sources were not begun.", jobs.len()).into();
                Broken { failure, kind: BrokenKind::Stopped }
            }
        });
    }
    let is_any_done = jobs.len() > failures.len() + not_begun.len();
    let others = if is_any_done { "; the others are done" } else { "" };
    let is_stopped = failures.iter().any(|failure: &Broken| failure.kind == BrokenKind::Stopped);
    // What is wrong with the model or the machine is the last word.
    failures.sort_by_key(|failure| failure.kind == BrokenKind::Other);
    let count = failures.len();
    let last = failures.pop().map(|last| match last.kind {
        BrokenKind::Unreadable if jobs.len() > 1 => {
            failures.push(last);
            format!("{count} of {} sources have no results{others}.", jobs.len()).into()
        }
        _ => last.failure,
    });
    failures.iter().for_each(|other| print_error(&format!("Warning: {}", other.failure)));
    match (last, signals.signal()) {
        (Some(last), Some(signal)) if is_stopped => {
            print_error(&format!("Error: {last}"));
            return Ok(Status::Interrupted(signal));
        }
        (Some(last), _) => return Err(last),
        (None, _) => {}
    }
    match (lost.pop(), lost.len() + 1) {
        (Some(lost), 1) if jobs.len() == 1 => return Err(lost),
        (Some(_), count) => {
            let was = if count == 1 { "was" } else { "were" };
            let what = format!(
                "{count} of {} sources {was} lost or cut off; what was found until then is written.",
                jobs.len()
            );
            return Err(what.into());
        }
        (None, _) => {}
    }
    if broken > 0 {
        return Err(format!("{broken} of {images} images cannot be read; the others are done.").into());
    }
    Ok(signal.map_or(Status::Done, Status::Interrupted))
}
