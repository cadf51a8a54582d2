// SPDX-License-Identifier: MPL-2.0
//! Runs that never end, in tests of what is done about them.

use std::time::Duration;
use std::{fs, thread};

/// The threads of a process in which rten has computed for 0.2 s.
fn busy(process: u32) -> Option<Vec<u32>> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let is_busy = |task: &fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let Some((name, rest)) = stat.rsplit_once(") ") else { return false };
        let ticks = rest.split(' ').nth(11).and_then(|ticks| ticks.parse::<u64>().ok());
        name.contains("(rten-") && ticks.is_some_and(|ticks| ticks > 20)
    };
    Some(tasks.flatten().filter(is_busy).filter_map(|task| task.file_name().to_str()?.parse().ok()).collect())
}

/// Whether a run in that process has lasted longer than reading a model does.
pub fn runs(process: u32) -> bool {
    busy(process).is_some_and(|threads| !threads.is_empty())
}

/// From now on, what runs in that process without an end gets the processor only where nobody else wants it. Such a test waits for a
/// limit of seconds, and the tests that run at the same time do not wait with it.
pub fn give_way(process: u32) {
    thread::spawn(move || {
        while let Some(threads) = busy(process) {
            for thread in threads {
                // SAFETY: it takes numbers. A thread that has ended is an error, which changes nothing.
                unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, 19) };
            }
            thread::park_timeout(Duration::from_millis(100));
        }
    });
}
