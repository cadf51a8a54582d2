// SPDX-License-Identifier: MPL-2.0
//! How many streams the service takes on this machine: more and more of one video, until one of them is too slow.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::round;
use crate::failure::{Failure, Status};
use crate::model_options::check_file;
use crate::serve::{StreamTrial, TrialModel, TrialReading};
use crate::signals::Signals;
use crate::terminal::print;
use crate::threads::Threads;

/// What each stream must have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StreamGoal {
    /// Frames a second.
    Fps(f64),
    /// The latency that 99 % of its frames keep to.
    P99(Duration),
}

/// Of the frames that are wanted, so many must come: 29.5 of 30 a second.
const SHARE: f64 = 59.0 / 60.0;
/// Frames of each stream in a measurement, at least.
const LEAST_FRAMES: f64 = 180.0;
/// So many may come just after its end, by chance.
const LAST_FRAMES: f64 = 1.0;
/// After a change, what has waited meanwhile is done then.
const SETTLE: Duration = Duration::from_secs(3);
/// Streams that were held up run ahead of their pace until they are in time again. So long is waited for that at most.
const CATCH_UP: Duration = Duration::from_secs(20);
/// Streams of which the first frame takes longer have come to nothing. The first stream waits for the model.
const START_LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const MOST_STREAMS: usize = 4096;
/// Of what is used up to that part, there is no more.
const FULL: f64 = 0.85;

pub fn goal(text: &str) -> Result<StreamGoal, String> {
    let wrong = || "write fps=30, or p99=50ms".to_string();
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let number = |text: &str, range: std::ops::RangeInclusive<f64>| {
        text.parse::<f64>().ok().filter(|number| range.contains(number)).ok_or_else(wrong)
    };
    match name {
        "fps" => number(value, 0.1..=1000.0).map(StreamGoal::Fps),
        "p99" => {
            let (number_text, unit) = match (value.strip_suffix("ms"), value.strip_suffix('s')) {
                (Some(number), _) => (number, 1e-3),
                (None, Some(number)) => (number, 1.0),
                (None, None) => return Err(format!("{}: a time has a unit, ms or s", wrong())),
            };
            number(number_text, 0.01..=1e6).map(|time| StreamGoal::P99(Duration::from_secs_f64(time * unit)))
        }
        _ => Err(wrong()),
    }
}

/// All that is wanted.
struct Goals {
    /// As many as a single stream has, where it is not said.
    fps: Option<f64>,
    p99: Option<f64>,
}

impl Goals {
    fn of(goals: &[StreamGoal]) -> Self {
        let mut all = Goals { fps: None, p99: None };
        for goal in goals {
            match goal {
                StreamGoal::Fps(fps) => all.fps = Some(*fps),
                StreamGoal::P99(time) => all.p99 = Some(time.as_secs_f64() * 1e3),
            }
        }
        all
    }

    fn text(&self) -> String {
        let fps = self.fps.map(|fps| format!("at {fps} frames/s"));
        let p99 = self.p99.map(|p99| format!("with a 99 % latency of {p99} ms at most"));
        let all: Vec<String> = fps.into_iter().chain(p99).collect();
        if all.is_empty() { "at the pace of the video".into() } else { all.join(" and ") }
    }
}

/// So many streams, measured.
struct Tried {
    streams: usize,
    /// Frames a second of the slowest one, and of all together.
    least: f64,
    all: f64,
    /// Milliseconds.
    p99: Option<f64>,
    /// Parts of what there is that were in use, with their names.
    used: Vec<(&'static str, f64)>,
    /// What keeps it from being enough.
    lacks: Option<Lack>,
}

/// Why so many streams are too many.
#[derive(Clone, Debug, PartialEq)]
enum Lack {
    Frames,
    Latency,
    /// One of them does not run.
    Failed(String),
}

impl Tried {
    fn of(before: &TrialReading, after: &TrialReading, seconds: f64, p99: Option<f64>, goals: &Goals) -> Self {
        let rates = before.frames.iter().zip(&after.frames).map(|(before, after)| (after - before) as f64 / seconds);
        let rates: Vec<f64> = rates.collect();
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let cores = thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        // Of several GPUs the one that has the most to do.
        let most = |part: &dyn Fn(&crate::serve::GpuReading) -> Option<f64>| {
            after.gpus.iter().filter_map(part).reduce(f64::max)
        };
        let used = [
            ("CPU", Some((after.cpu_seconds - before.cpu_seconds) / seconds / cores)),
            ("GPU", most(&|gpu| gpu.busy)),
            ("NVDEC", most(&|gpu| gpu.decoder_busy)),
            ("GPU memory", most(&|gpu| Some(gpu.memory_used? / gpu.memory?))),
        ];
        let used = used.into_iter().filter_map(|(name, part)| Some((name, part?))).collect();
        let p99 = p99.map(|p99| p99 * 1e3);
        let is_slow = goals.fps.is_some_and(|fps| least + LAST_FRAMES / seconds < fps * SHARE);
        let is_late = goals.p99.is_some_and(|most| p99.is_none_or(|p99| p99 > most));
        let lacks = if is_slow { Some(Lack::Frames) } else { is_late.then_some(Lack::Latency) };
        Tried { streams: rates.len(), least, all: rates.iter().sum(), p99, used, lacks }
    }

    /// What there is no more of.
    fn bound(&self) -> &str {
        let fullest = self.used.iter().filter(|(_, part)| *part >= FULL).max_by(|one, other| one.1.total_cmp(&other.1));
        match (&self.lacks, fullest) {
            (Some(Lack::Failed(why)), _) => why,
            (_, Some((name, _))) => name,
            (Some(Lack::Latency), None) => "latency",
            _ => "one thread or the model's turn: neither CPU nor GPU is full",
        }
    }

    fn text(&self) -> String {
        let p99 = self.p99.map_or(String::new(), |p99| format!(", 99 % latency {p99:.1} ms"));
        let used: String = self.used.iter().map(|(name, part)| format!(", {name} {:.0} %", part * 100.0)).collect();
        let verdict = match &self.lacks {
            None => String::new(),
            Some(Lack::Frames) => ": too slow".into(),
            Some(Lack::Latency) => ": too late".into(),
            Some(Lack::Failed(why)) => format!(": {why}"),
        };
        format!(
            "{:>5} streams: {:.2} frames/s of the slowest, {:.0} of all{p99}{used}{verdict}",
            self.streams, self.least, self.all
        )
    }

    fn json(&self) -> Value {
        let used: serde_json::Map<String, Value> =
            self.used.iter().map(|(name, part)| (name.to_lowercase().replace(' ', "-"), round(*part).into())).collect();
        json!({ "streams": self.streams, "fps-least": round(self.least), "fps-all": round(self.all),
                "p99-ms": self.p99.map(round), "used": used, "enough": self.lacks.is_none() })
    }
}

/// The next number to try: twice as many until that is too much, and then between what is enough and what is not.
fn next(enough: usize, too_many: Option<usize>) -> Option<usize> {
    match too_many {
        None => Some((enough * 2).clamp(1, MOST_STREAMS)).filter(|next| *next > enough),
        // To a part that another run would find otherwise.
        Some(too_many) if too_many - enough <= 1.max(enough / 50) => None,
        Some(too_many) => Some(enough.midpoint(too_many)),
    }
}

struct Search<'a> {
    trial: StreamTrial,
    goals: Goals,
    /// Frames a second of the first stream while it is alone.
    pace: Option<f64>,
    duration: Duration,
    signals: &'a Signals,
}

impl Search<'_> {
    /// `None` after a signal.
    fn pause(&self, time: Duration) -> Option<()> {
        self.signals.wait(time).is_none().then_some(())
    }

    /// Returns when nothing is done any more that has waited. `None` after a signal.
    fn settle(&self, streams: usize) -> Option<()> {
        const WINDOW: Duration = Duration::from_secs(1);
        self.pause(SETTLE)?;
        let Some(pace) = self.pace else { return Some(()) };
        let (most, begun) = (pace * streams as f64 * 1.01 + LAST_FRAMES, Instant::now());
        loop {
            let (before, since) = (self.trial.read(), Instant::now());
            self.pause(WINDOW)?;
            let (after, seconds) = (self.trial.read(), since.elapsed().as_secs_f64());
            let frames = |reading: &TrialReading| reading.frames.iter().sum::<u64>() as f64;
            if (frames(&after) - frames(&before)) / seconds <= most || begun.elapsed() > CATCH_UP {
                return Some(());
            }
        }
    }

    /// So many streams. `None` after a signal.
    fn measure(&mut self, streams: usize) -> Result<Option<Tried>, Failure> {
        self.trial.set(streams)?;
        let begun = Instant::now();
        let failed = loop {
            match self.trial.all_run() {
                Ok(true) => break None,
                // What has no frames is too slow.
                Ok(false) if streams > 1 && begun.elapsed() > START_LIMIT => break None,
                Ok(false) => {}
                // Such as the memory for one more decoder.
                Err(failure) if streams > 1 => break Some(failure.to_string()),
                Err(failure) => return Err(failure),
            }
            if self.pause(POLL_INTERVAL).is_none() {
                return Ok(None);
            }
        };
        let time = self.goals.fps.map_or(0.0, |fps| LEAST_FRAMES / fps).min(60.0);
        let time = self.duration.max(Duration::from_secs_f64(time));
        if self.settle(streams).is_none() {
            return Ok(None);
        }
        let (before, begun) = (self.trial.read(), Instant::now());
        if self.pause(time).is_none() {
            return Ok(None);
        }
        let (after, p99) = (self.trial.read(), self.trial.p99_since(begun));
        let mut tried = Tried::of(&before, &after, begun.elapsed().as_secs_f64(), p99, &self.goals);
        tried.lacks = failed.map(Lack::Failed).or(tried.lacks);
        Ok(Some(tried))
    }

    /// All that was tried, and how many streams are enough.
    fn run(&mut self, is_quiet: bool) -> Result<Option<(Vec<Tried>, usize)>, Failure> {
        let (mut tries, mut enough, mut too_many) = (Vec::new(), 0, None);
        while let Some(streams) = next(enough, too_many) {
            let Some(mut tried) = self.measure(streams)? else { return Ok(None) };
            self.pace.get_or_insert(tried.least);
            if self.goals.fps.is_none() {
                // Of a video at its own pace a single stream has all, or the model is too slow for one.
                self.goals.fps = Some(round(tried.least));
                tried.lacks = tried.lacks.filter(|_| self.goals.p99.is_some());
            }
            if !is_quiet {
                print(&tried.text())?;
            }
            match tried.lacks {
                None => enough = streams,
                Some(_) => too_many = Some(streams),
            }
            tries.push(tried);
        }
        Ok(Some((tries, enough)))
    }
}

pub fn run(
    model: &TrialModel<'_>,
    video: &Path,
    goals: &[StreamGoal],
    duration: Duration,
    as_json: bool,
    signals: &Signals,
    threads: &Threads,
) -> Result<Status, Failure> {
    check_file(video)?;
    let trial = StreamTrial::start(model, video, threads)?;
    let mut search = Search { trial, goals: Goals::of(goals), pace: None, duration, signals };
    let found = search.run(as_json);
    let Search { trial, goals, .. } = search;
    trial.stop();
    let Some((tries, enough)) = found? else {
        return Ok(Status::Interrupted(signals.signal().unwrap_or_default()));
    };
    let limit = tries.iter().filter(|tried| tried.lacks.is_some()).min_by_key(|tried| tried.streams);
    let bound = limit.map(Tried::bound);
    if as_json {
        let tries: Vec<Value> = tries.iter().map(Tried::json).collect();
        let goal = json!({ "fps": goals.fps, "p99-ms": goals.p99 });
        print(&format!(
            "{:#}",
            json!({ "model": model.file.display().to_string(), "video": video.display().to_string(), "goal": goal,
                    "max-streams": enough, "bound": bound, "tried": tries })
        ))?;
    } else {
        let bound = bound.map_or(String::new(), |bound| format!(" What there is no more of: {bound}."));
        print(&format!("{enough} streams of {} {}.{bound}", video.display(), goals.text()))?;
    }
    Ok(Status::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_read() {
        assert_eq!(goal("fps=30"), Ok(StreamGoal::Fps(30.0)));
        assert_eq!(goal("p99=50ms"), Ok(StreamGoal::P99(Duration::from_millis(50))));
        assert_eq!(goal("p99=0.5s"), Ok(StreamGoal::P99(Duration::from_millis(500))));
        for text in ["", "fps", "fps=", "fps=0", "fps=nan", "p99=50", "p99=-1ms", "p50=1ms"] {
            assert!(goal(text).unwrap_err().starts_with("write fps=30, or p99=50ms"), "{text}");
        }
    }

    /// The numbers that are tried where so many streams are enough.
    fn tried(most: usize) -> (Vec<usize>, usize) {
        let (mut all, mut enough, mut too_many) = (Vec::new(), 0, None);
        while let Some(streams) = next(enough, too_many) {
            all.push(streams);
            if streams <= most { enough = streams } else { too_many = Some(streams) }
        }
        (all, enough)
    }

    #[test]
    fn the_largest_number_is_found_in_few_steps() {
        for most in 0..50 {
            assert_eq!(tried(most).1, most);
        }
        assert_eq!(tried(5), (vec![1, 2, 4, 8, 6, 5], 5));
        for most in [128, 251, 1000] {
            let (all, found) = tried(most);
            assert!(found <= most && most - found <= 1.max(most / 50) && all.len() < 18, "{most}: {all:?}");
        }
        assert_eq!(tried(usize::MAX).1, MOST_STREAMS);
    }

    #[test]
    fn what_is_used_up_is_named() {
        let reading =
            |frames: u64, cpu_seconds| TrialReading { frames: vec![frames, frames * 2], cpu_seconds, gpus: Vec::new() };
        let cores = thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let goals = Goals { fps: Some(30.0), p99: Some(50.0) };
        let of =
            |frames, cpu: f64, p99| Tried::of(&reading(0, 0.0), &reading(frames, cpu * cores), 1.0, Some(p99), &goals);
        let enough = of(30, 0.5, 0.04);
        assert_eq!((enough.least, enough.all, &enough.lacks), (30.0, 90.0, &None));
        assert_eq!((of(28, 0.95, 0.04).lacks, of(28, 0.95, 0.04).bound()), (Some(Lack::Frames), "CPU"));
        assert_eq!((of(30, 0.5, 0.06).lacks, of(30, 0.5, 0.06).bound()), (Some(Lack::Latency), "latency"));
        assert_eq!(of(29, 0.5, 0.04).lacks, None, "one may come just after the end");
        assert!(of(28, 0.5, 0.04).bound().starts_with("one thread"));
        assert!(
            enough
                .text()
                .contains("2 streams: 30.00 frames/s of the slowest, 90 of all, 99 % latency 40.0 ms, CPU 50 %")
        );
    }
}
