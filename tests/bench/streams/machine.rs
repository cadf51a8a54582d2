// SPDX-License-Identifier: MPL-2.0
//! What a process takes of the machine, and how soon that lets its threads run.

use std::sync::LazyLock;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use gsttrt_core::cuda::driver::Context;
use hdrhistogram::Histogram;

/// Seconds of all its threads on the CPU.
pub fn cpu_seconds() -> f64 {
    // SAFETY: writes a plain struct.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Nanoseconds of the calling thread on the CPU.
pub fn thread_cpu() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a plain struct.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// MiB in use on the first GPU, by all processes; 0 without one.
pub fn gpu_mib() -> f64 {
    // Kept, because a context takes memory itself, and time.
    static GPU: LazyLock<Option<Context>> = LazyLock::new(|| Context::primary(0).ok());
    let memory = GPU.as_ref().and_then(|gpu| gpu.memory().ok());
    memory.map_or(0.0, |(free, all)| (all - free) as f64 / f64::from(1 << 20))
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).expect("Linux has it").count()
}

/// Threads of the process.
pub fn threads() -> usize {
    entries("/proc/self/task")
}

/// Files that the process has open.
pub fn files() -> usize {
    entries("/proc/self/fd")
}

/// Microseconds that threads take to wake up once there is something for them, where each of so many gets something so often.
pub fn wakes(threads: usize, pace: u32) -> Histogram<u64> {
    let period = Duration::from_secs(1) / pace;
    let one = |number: usize| {
        thread::sleep(period.mul_f64(number as f64 / threads as f64)); // they do not all wake together
        let (send, come) = channel::<Instant>();
        let sleeper = thread::spawn(move || come.into_iter().map(|sent| sent.elapsed()).collect::<Vec<_>>());
        for _ in 0..pace {
            thread::sleep(period);
            send.send(Instant::now()).expect("it waits");
        }
        drop(send);
        sleeper.join().expect("it does not panic")
    };
    let mut took = Histogram::new(3).expect("three digits are allowed");
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|number| scope.spawn(move || one(number))).collect();
        let times = all.into_iter().flat_map(|thread| thread.join().expect("it does not panic"));
        times.for_each(|time| took.saturating_record(time.as_micros() as u64));
    });
    took
}
