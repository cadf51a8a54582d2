// SPDX-License-Identifier: MPL-2.0
//! What Prometheus' client libraries tell of a process, by the names that they use.

use std::fs;

use super::MetricKind::{self, Counter, Gauge};
use crate::serve::heap;

const CPU_SECONDS: &str = "process_cpu_seconds_total";

/// A metric without labels: its name, its type, what it is, and its value.
pub type ProcessMetric = (&'static str, MetricKind, &'static str, f64);

/// Seconds of the processor that the process has used.
pub fn cpu_seconds() -> Option<f64> {
    metrics().into_iter().find(|(name, ..)| *name == CPU_SECONDS).map(|(.., value)| value)
}

/// Those that the system tells.
pub fn metrics() -> Vec<ProcessMetric> {
    let mut found = Vec::new();
    // Of a sysconf that fails, the usual value.
    // SAFETY: it takes a number, and has no effect.
    let of_system = |name, usual: f64| match unsafe { libc::sysconf(name) } {
        ..=0 => usual,
        value => value as f64,
    };
    if let Ok(stat) = fs::read_to_string("/proc/self/stat") {
        let ticks = of_system(libc::_SC_CLK_TCK, 100.0);
        // Behind the name, which may have spaces: the state is the third field of proc(5).
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<f64>().ok());
        if let (Some(user), Some(system)) = (field(14), field(15)) {
            let help = "Seconds of the processor that the process has used.";
            found.push((CPU_SECONDS, Counter, help, (user + system) / ticks));
        }
        if let (Some(started), Some(boot)) = (field(22), boot_time()) {
            let help = "When the process was started, in seconds since 1970.";
            found.push(("process_start_time_seconds", Gauge, help, boot + started / ticks));
        }
        if let (Some(size), Some(resident)) = (field(23), field(24)) {
            let page = of_system(libc::_SC_PAGESIZE, 4096.0);
            found.push(("process_virtual_memory_bytes", Gauge, "Bytes of virtual memory.", size));
            found.push(("process_resident_memory_bytes", Gauge, "Bytes of memory that is in use.", resident * page));
        }
        if let Some(threads) = field(20) {
            found.push(("process_threads", Gauge, "Threads of the process.", threads));
        }
    }
    if let Some((in_use, held)) = heap::sizes() {
        found.push(("gst_trt_heap_in_use_bytes", Gauge, "Bytes that are allocated on the heap.", in_use));
        found.push(("gst_trt_heap_bytes", Gauge, "Bytes that the heap holds, with what was freed.", held));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One of them is that of the folder.
        found.push(("process_open_fds", Gauge, "Open file descriptors.", open.count().saturating_sub(1) as f64));
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it writes to a structure of its own type.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        let help = "File descriptors that may be open.";
        found.push(("process_max_fds", Gauge, help, limit.rlim_cur as f64));
    }
    found
}

/// Since 1970.
fn boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_are_told() {
        let found = metrics();
        let value = |name| found.iter().find(|(found, ..)| *found == name).unwrap_or_else(|| panic!("{name}")).3;
        assert!(value("process_resident_memory_bytes") > 1e6 && value("process_virtual_memory_bytes") > 1e6);
        assert!(value("process_open_fds") >= 3.0 && value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_threads") >= 1.0 && value("process_cpu_seconds_total") >= 0.0);
        if cfg!(target_env = "gnu") {
            let allocated = value("gst_trt_heap_in_use_bytes");
            let _more = std::hint::black_box(vec![1_u8; 1 << 20]);
            assert!(
                metrics().iter().any(|(name, .., bytes)| *name == "gst_trt_heap_in_use_bytes" && *bytes > allocated)
            );
            assert!(value("gst_trt_heap_bytes") >= allocated);
        }
        let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert!(value("process_start_time_seconds") <= now.as_secs_f64() + 1.0);
    }
}
