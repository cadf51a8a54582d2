// SPDX-License-Identifier: MPL-2.0
//! `batch-timeout=-1`: a batch runs as soon as the model is free, unless waiting pays.
//!
//! Where frames gather while the model runs, batches grow with the load by themselves, so there is nothing to wait for. Waiting pays
//! where a run costs much more than its frames do. A run of `n` frames takes `fixed + n · each`, which is learned from the runs. Of a
//! model that is free while `k` frames wait, and to which the next one comes after a time `t`:
//!
//! * **Latency.** Run at once, the `k` frames are done after a run of `k`, and the next one after that and a run of 1. Run together, all
//!   are done after `t` and a run of `k + 1`. That is sooner on average if `t < (fixed - k · each) / (k + 1)`.
//! * **A crowded GPU.** Runs of `k` frames that would keep it busy for more than [`CROWDED`] of its time leave too little of it to
//!   decoders, preprocessing and what comes behind. With each frame that joins a run, `fixed` is paid once less. So it pays if `t < fixed`.
//!
//! How long the next frame will take is the mean of what it took when as many frames waited: it tells streams that come on their own from
//! decoders that have no surfaces left, and from streams that all have a frame there, which give none until one of theirs is done. Such a
//! time counts as twice `fixed` at most, so that half of the waits must be worth it. A wait ends after the time that it can save: so it
//! never costs more than it can bring. And no frame waits longer than [`AUTO_LIMIT`] in all while the model is free, nor at all where the
//! next one is likely to come only after that.
//!
//! While the model runs, half a batch is queued behind the run, so that the GPU goes on at once: where frames come at any time, that is worth
//! paying `fixed` more often. But a run that fills the GPU may hold up the decoders, and once it has ended all of them give a frame: frames
//! come in bursts. A half that is queued takes from the decoders the pause in which the other half would have come, and then the next batch is
//! half a one, too. So where many streams come in bursts, half a batch waits for the other half.
//!
//! Where several runs are on the GPU at the same time, none of them can be timed alone, and nothing waits.
//!
//! On a CPU `fixed` is next to nothing, and so hardly anything waits there.

use std::time::{Duration, Instant};

/// How long a frame that is waited for waits for others to fill its batch, once the model could run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchTimeout {
    /// As long as waiting pays.
    Auto,
    Fixed(Duration),
}

impl From<Duration> for BatchTimeout {
    fn from(time: Duration) -> Self {
        BatchTimeout::Fixed(time)
    }
}

impl BatchTimeout {
    /// The longest time that it lets a frame wait.
    pub fn longest(self) -> Duration {
        match self {
            BatchTimeout::Auto => AUTO_LIMIT,
            BatchTimeout::Fixed(time) => time,
        }
    }
}

/// How long a frame waits at most while the model is free, where nobody says how long it may. A batch of 16 is full by then at 3,200 frames a second.
const AUTO_LIMIT: Duration = Duration::from_millis(5);

/// The share of the model's time from which on it is crowded.
const CROWDED: f64 = 0.85;

/// From which on frames come in bursts: the variance of the times between them over the square of their mean. That is 0 where they come at a
/// pace, and 1 where each comes at any time, as those of many cameras do.
const BURSTS: f64 = 2.0;

/// What is known of the frames that come to a model, and of its runs. All times are seconds.
pub(super) struct BatchPace {
    /// When the last frame came.
    last: Option<Instant>,
    /// From one frame to the next, of all streams.
    gap: Option<f64>,
    /// The same over a longer time, and its square: in the mean.
    gaps: Option<(f64, f64)>,
    /// Since when a batch could be run, with how many frames then, and no frame has come that could join them.
    open: Option<(Instant, usize)>,
    /// From there to the next frame, by the number of frames that waited, from 1 on.
    next: Vec<Option<f64>>,
    /// A wait was in vain, and no frame has come since then.
    is_missed: bool,
    costs: RunCosts,
    /// How long a frame waits at most.
    pub(super) limit: Duration,
}

/// How long runs take.
struct RunCosts {
    /// By their number of frames, from 1 on.
    of_frames: Vec<Option<f64>>,
    line: Option<CostLine>,
}

/// What a run takes whatever is in it, and for each frame.
#[derive(Clone, Copy)]
struct CostLine {
    fixed: f64,
    each: f64,
}

impl BatchPace {
    /// Of a model that takes so many frames at once.
    pub(super) fn new(size: usize) -> Self {
        let (next, costs) = (vec![None; size], RunCosts { of_frames: vec![None; size], line: None });
        BatchPace { last: None, gap: None, gaps: None, open: None, next, is_missed: false, costs, limit: AUTO_LIMIT }
    }

    /// So many frames come at the same time. `joins`: they can be run together with those that wait or have waited last.
    pub(super) fn came(&mut self, now: Instant, frames: usize, joins: bool) {
        /// The part that a frame has in the mean: some 32 frames are looked back on.
        const PART: f64 = 1.0 / 32.0;
        /// The same for bursts, of which there are several among so many frames.
        const PART_OF_BURSTS: f64 = 1.0 / 256.0;
        if frames == 0 {
            return;
        }
        if let Some(last) = self.last.replace(now) {
            let (time, count) = (now.saturating_duration_since(last).as_secs_f64(), frames as f64);
            let part = |of_one: f64| 1.0 - (1.0 - of_one).powi(frames.min(1 << 10) as i32);
            self.gap = Some(mean(self.gap, time / count, part(PART)));
            // A pause of all streams is none between bursts. Of frames that come together all but the first come after no time.
            let time = time.min(AUTO_LIMIT.as_secs_f64());
            let (gap, square) = (time / count, time * time / count);
            let (gaps, squares) = self.gaps.unwrap_or((gap, 2.0 * gap * gap));
            let part = part(PART_OF_BURSTS);
            self.gaps = Some((mean(Some(gaps), gap, part), mean(Some(squares), square, part)));
        }
        if joins {
            self.close(Some(now));
            self.is_missed = false;
        }
    }

    /// Other frames are to be run, and none has come that could have joined those before them.
    pub(super) fn turned(&mut self) {
        self.close(None);
    }

    /// The next frame has come, or does not come.
    fn close(&mut self, came: Option<Instant>) {
        let Some((open, frames)) = self.open.take() else { return };
        let most = self.costs.line.map_or(AUTO_LIMIT.as_secs_f64(), |line| 2.0 * line.fixed);
        let took = came.map_or(most, |came| came.saturating_duration_since(open).as_secs_f64().min(most));
        let next = &mut self.next[frames - 1];
        *next = Some(mean(*next, took, 1.0 / 8.0));
    }

    /// A run of so many frames has taken that long, with nothing before it that it had to wait for.
    pub(super) fn ran(&mut self, frames: usize, time: Duration) {
        self.costs.add(frames, time.as_secs_f64());
    }

    /// How long the next frame is waited for at most: the model is free, and so many frames wait, which it could have
    /// run for that long.
    pub(super) fn wait(&mut self, now: Instant, frames: usize, waited: Duration) -> Duration {
        if frames == 0 || frames >= self.next.len() {
            return Duration::ZERO;
        }
        self.open.get_or_insert((now, frames));
        let (Some(line), Some(next), false) = (self.costs.line, self.next[frames - 1], self.is_missed) else {
            return Duration::ZERO;
        };
        let saved = match self.is_crowded(line, frames) {
            true => line.fixed,
            false => (line.fixed - frames as f64 * line.each) / (frames + 1) as f64,
        };
        let left = self.limit.saturating_sub(waited);
        if next >= saved.min(left.as_secs_f64()) {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(saved).map_or(left, |saved| saved.min(left))
    }

    /// No frame has come in that time.
    pub(super) fn missed(&mut self) {
        self.is_missed = true;
    }

    /// Whether frames come many at a time, with pauses between.
    pub(super) fn comes_in_bursts(&self) -> bool {
        self.gaps.is_some_and(|(gap, square)| square > (1.0 + BURSTS) * gap * gap)
    }

    /// Whether runs of so many frames were timed.
    #[cfg(test)]
    pub(super) fn has_timed(&self, frames: usize) -> bool {
        self.costs.of_frames[frames - 1].is_some()
    }

    /// Whether runs of so many frames would take more of the model's time than they should.
    fn is_crowded(&self, line: CostLine, frames: usize) -> bool {
        let of_a_frame = line.fixed / frames as f64 + line.each;
        self.gap.is_some_and(|gap| of_a_frame > CROWDED * gap)
    }
}

impl RunCosts {
    fn add(&mut self, frames: usize, time: f64) {
        let Some(known) = frames.checked_sub(1).and_then(|at| self.of_frames.get_mut(at)) else { return };
        // What takes longer once, such as the first run, was held up by something else.
        let part = if known.is_some_and(|known| time < known) { 1.0 / 2.0 } else { 1.0 / 8.0 };
        *known = Some(mean(*known, time, part));
        self.line = self.fit();
    }

    /// The line through all that is known, by least squares. Each number of frames counts once, however often it was run. It takes no
    /// longer than a larger one has taken: the first run may have been slow, and none of its size may come again.
    fn fit(&self) -> Option<CostLine> {
        let mut least = f64::INFINITY;
        let of_larger_first = self.of_frames.iter().enumerate().rev();
        let known: Vec<(f64, f64)> = of_larger_first
            .filter_map(|(at, time)| {
                least = least.min((*time)?);
                Some(((at + 1) as f64, least))
            })
            .collect();
        if known.len() < 2 {
            return None;
        }
        let count = known.len() as f64;
        let sums = known.iter().fold((0.0, 0.0), |(n, time), &(more, took)| (n + more, time + took));
        let (middle, height) = (sums.0 / count, sums.1 / count);
        let above: f64 = known.iter().map(|&(n, time)| (n - middle) * (time - height)).sum();
        let spread: f64 = known.iter().map(|&(n, _)| (n - middle).powi(2)).sum();
        let each = (above / spread).max(0.0);
        Some(CostLine { fixed: (height - middle * each).max(0.0), each })
    }
}

/// An exponentially weighted mean, with the part that the newest value has.
fn mean(before: Option<f64>, value: f64, part: f64) -> f64 {
    before.map_or(value, |before| before + part * (value - before))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(time: u64) -> Duration {
        Duration::from_micros(time)
    }

    /// A model whose runs take 240 µs and 140 µs for each frame, as YOLOv8s does on an H200, and how frames come to it.
    struct Scene {
        pace: BatchPace,
        now: Instant,
    }

    impl Scene {
        fn of(fixed: u64, each: u64) -> Self {
            let mut pace = BatchPace::new(16);
            (1..=16).for_each(|frames| pace.ran(frames, micros(fixed + frames as u64 * each)));
            Scene { pace, now: Instant::now() }
        }

        /// So many frames, each `gap` µs after the one before. Each finds the model free, with 1 frame that waits, 2, and so on up to 15.
        fn come(&mut self, frames: usize, gap: u64) {
            for at in 0..frames {
                let _ = self.wait(1 + at % 15);
                self.now += micros(gap);
                self.pace.came(self.now, 1, true);
            }
        }

        /// One frame after each of these times.
        fn come_after(&mut self, micros_before: impl IntoIterator<Item = u64>) {
            for time in micros_before {
                self.now += micros(time);
                self.pace.came(self.now, 1, true);
            }
        }

        fn wait(&mut self, frames: usize) -> u64 {
            self.pace.wait(self.now, frames, Duration::ZERO).as_micros() as u64
        }
    }

    #[test]
    fn nothing_waits_before_runs_and_frames_are_known() {
        let mut scene = Scene { pace: BatchPace::new(16), now: Instant::now() };
        scene.come(100, 10);
        assert_eq!(scene.wait(1), 0, "no run");
        scene.pace.ran(4, micros(800));
        assert_eq!(scene.wait(1), 0, "what a frame costs is not known by runs of one size");
        assert_eq!(Scene::of(240, 140).wait(1), 0, "no frames");
    }

    #[test]
    fn cameras_do_not_wait_for_each_other_unless_their_frames_come_together() {
        let mut scene = Scene::of(240, 140);
        scene.come(300, 520); // 64 at 30 frames a second
        assert_eq!(scene.wait(1), 0);
        // (240 - 140) / 2 µs are saved for each of two frames, and nothing with two that wait: 240 < 2 · 140.
        scene.come(15, 33_000);
        scene.come(24 * 15, 20);
        scene.pace.gap = Some(520e-6);
        assert_eq!([scene.wait(1), scene.wait(2)], [50, 0]);
    }

    #[test]
    fn files_wait_until_their_runs_leave_some_of_the_gpu() {
        let mut scene = Scene::of(240, 140);
        scene.come(300, 190); // 16 at 330 frames a second
        // 240 / k + 140 µs of 190 µs are 85 % with k = 11.16.
        let waits: Vec<bool> = (1..=16).map(|frames| scene.wait(frames) > 0).collect();
        assert_eq!(waits.iter().filter(|waits| **waits).count(), 11);
        assert!(waits[..11].iter().all(|waits| *waits), "{waits:?}");
        assert_eq!(scene.wait(1), 240, "for the time that it saves");
    }

    #[test]
    fn a_model_that_cannot_keep_up_waits_until_its_batch_is_full() {
        let mut scene = Scene::of(240, 140);
        scene.come(300, 100);
        assert!((1..16).all(|frames| scene.wait(frames) == 240));
        assert_eq!(scene.wait(16), 0);
    }

    #[test]
    fn one_stream_does_not_wait_for_its_own_next_frame() {
        let mut scene = Scene::of(240, 140);
        scene.come(300, 1275); // 784 frames a second
        assert_eq!(scene.wait(1), 0);
    }

    /// Decoders without a free surface give a frame only once a run is done: each frame that was waited for has come too late.
    #[test]
    fn frames_that_come_only_after_a_run_are_not_waited_for() {
        let mut scene = Scene::of(240, 140);
        scene.come(300, 100);
        assert!(scene.wait(8) > 0);
        for _ in 0..40 {
            let _ = scene.wait(8);
            scene.now += micros(240 + 8 * 140);
            (0..8).for_each(|_| scene.pace.came(scene.now, 1, true));
        }
        assert_eq!(scene.wait(8), 0);
        assert!(scene.wait(7) > 0, "fewer are");
        scene.come(300, 100);
        assert!(scene.wait(8) > 0, "with more surfaces they are again");
    }

    /// Four streams, each of which has one frame in work, and a batch that has room for 16.
    #[test]
    fn a_batch_that_cannot_have_more_frames_does_not_wait_for_them() {
        let mut scene = Scene::of(240, 20);
        for _ in 0..40 {
            for frames in 1..4 {
                let _ = scene.wait(frames);
                scene.now += micros(20);
                scene.pace.came(scene.now, 1, true);
            }
            let _ = scene.wait(4);
            scene.now += micros(240 + 4 * 20);
            scene.pace.came(scene.now, 1, true);
        }
        scene.pace.gap = Some(50e-6);
        assert_eq!([scene.wait(3), scene.wait(4)], [240, 0]);
    }

    #[test]
    fn frames_of_another_batch_are_not_waited_for() {
        let mut scene = Scene::of(240, 140);
        scene.come(300, 100);
        assert_eq!(scene.wait(1), 240);
        for _ in 0..40 {
            scene.pace.came(scene.now, 1, false);
            scene.pace.turned();
            let _ = scene.wait(1);
            scene.now += micros(100);
        }
        assert_eq!(scene.wait(1), 0);
        scene.pace.turned();
        scene.pace.turned(); // nothing waits
        assert_eq!(scene.wait(2), 240, "of more frames nothing else is known");
    }

    #[test]
    fn a_wait_in_vain_is_not_tried_again_before_another_frame_has_come() {
        let mut scene = Scene::of(240, 140);
        scene.come(300, 100);
        assert_eq!(scene.wait(4), 240);
        scene.now += micros(240);
        scene.pace.missed();
        assert_eq!(scene.wait(4), 0);
        scene.pace.came(scene.now, 1, false);
        assert_eq!(scene.wait(4), 0, "nor before one that can join");
        scene.pace.came(scene.now, 1, true);
        assert_eq!(scene.wait(5), 240);
    }

    #[test]
    fn no_frame_waits_longer_than_the_limit() {
        let mut scene = Scene::of(240, 140);
        scene.come(300, 50);
        let mut wait = |waited| scene.pace.wait(scene.now, 4, waited);
        assert_eq!(wait(AUTO_LIMIT - micros(100)), micros(100));
        assert_eq!(wait(AUTO_LIMIT), Duration::ZERO);
        assert_eq!(wait(Duration::from_secs(9)), Duration::ZERO);
        let mut slow = Scene::of(60_000, 100);
        slow.come(300, 100);
        assert_eq!(slow.wait(4) as u128, AUTO_LIMIT.as_micros(), "whatever a run costs");
        slow.come(300, 8000);
        assert_eq!(slow.wait(4), 0, "what comes after that is not waited for, though a run costs more");
    }

    #[test]
    fn on_a_cpu_nothing_waits() {
        let mut scene = Scene::of(0, 30_000);
        scene.come(300, 1000);
        assert!((1..=16).all(|frames| scene.wait(frames) == 0));
    }

    #[test]
    fn one_slow_run_does_not_count_as_the_cost_of_runs() {
        let mut pace = BatchPace::new(4);
        pace.ran(1, Duration::from_secs(3)); // the first one
        (0..24).for_each(|_| pace.ran(1, micros(400)));
        pace.ran(4, micros(1000));
        pace.ran(0, micros(1));
        pace.ran(5, micros(1)); // there are none of these
        let CostLine { fixed, each } = pace.costs.line.unwrap();
        assert!((fixed - 200e-6).abs() < 2e-6 && (each - 200e-6).abs() < 2e-6, "{fixed} {each}");
    }

    /// No run of its size may come again, which would tell.
    #[test]
    fn a_slow_run_takes_no_longer_than_one_of_more_frames() {
        let mut pace = BatchPace::new(16);
        pace.ran(1, Duration::from_secs(3));
        (2..=16).for_each(|frames| pace.ran(frames as usize, micros(240 + 140 * frames)));
        let CostLine { fixed, each } = pace.costs.line.unwrap();
        assert!((200e-6..300e-6).contains(&fixed) && (130e-6..145e-6).contains(&each), "{fixed} {each}");
    }

    /// Of 16 decoders that go on once a run has ended: 16 frames, and none for 2.5 ms.
    fn burst(at: usize) -> u64 {
        if at.is_multiple_of(16) { 2500 } else { 20 }
    }

    #[test]
    fn decoders_that_a_run_holds_up_give_frames_in_bursts() {
        let mut scene = Scene::of(240, 140);
        assert!(!scene.pace.comes_in_bursts(), "nothing is known");
        scene.come_after((0..160).map(burst));
        assert!(scene.pace.comes_in_bursts());
        scene.come(1000, 190);
        assert!(!scene.pace.comes_in_bursts(), "they are held up no more");
        scene.come_after((0..160).map(burst));
        assert!(scene.pace.comes_in_bursts(), "they are again");
    }

    /// The times between their frames are as those of any events that know nothing of each other.
    #[test]
    fn many_cameras_give_frames_at_any_time() {
        // Each of 1,024 parts of all times once, in no order.
        let part = |at: u64| ((at * 397 % 1024) as f64 + 0.5) / 1024.0;
        for mean in [520.0, 260.0, 190.0] {
            let mut scene = Scene::of(240, 140);
            for _ in 0..4 {
                scene.come_after((0..1024).map(|at| (-mean * part(at).ln()) as u64));
                assert!(!scene.pace.comes_in_bursts(), "{mean} {:?}", scene.pace.gaps);
            }
        }
    }

    #[test]
    fn frames_in_twos_and_one_long_pause_are_no_bursts() {
        let mut scene = Scene::of(240, 140);
        scene.come_after((0..1000).map(|at| if at % 2 == 0 { 380 } else { 0 }));
        assert!(!scene.pace.comes_in_bursts());
        let mut scene = Scene::of(240, 140);
        scene.come_after((0..1000).map(|_| 190));
        scene.come_after([60_000_000]);
        scene.come_after((0..100).map(|_| 190));
        assert!(!scene.pace.comes_in_bursts(), "{:?}", scene.pace.gaps);
    }

    #[test]
    fn pictures_that_come_together_count_as_so_many_frames() {
        let (mut one, mut four) = (Scene::of(240, 140), Scene::of(240, 140));
        for _ in 0..100 {
            one.now += micros(100);
            one.pace.came(one.now, 1, true);
            four.now += micros(400);
            four.pace.came(four.now, 4, true);
        }
        let gaps = [one, four].map(|scene| scene.pace.gap.unwrap());
        assert!(gaps.iter().all(|gap| (gap - 100e-6).abs() < 1e-9), "{gaps:?}");
    }
}
