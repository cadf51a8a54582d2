// SPDX-License-Identifier: MPL-2.0
//! The program in a terminal of its own, and signals to it.

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::path::Path;
use std::process::{Child, Stdio};

use super::command;
use super::wait::{LIMIT, wait_until};

/// `detect …` in a terminal of that size, without a display: how it ends, and what it has written there.
pub fn in_terminal(folder: &Path, args: &[&str], columns: u16, rows: u16) -> (Option<i32>, String) {
    in_terminal_with(folder, args, &[], (columns, rows))
}

/// The same with variables of the environment.
pub fn in_terminal_with(
    folder: &Path,
    args: &[&str],
    variables: &[(&str, &str)],
    (columns, rows): (u16, u16),
) -> (Option<i32>, String) {
    let (mut ours, mut its) = (0, 0);
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: it writes two descriptors, and reads the size; both are ours then.
    let (mut ours, its) = unsafe {
        let opened =
            libc::openpty(&raw mut ours, &raw mut its, std::ptr::null_mut(), std::ptr::null(), &raw const size);
        assert_eq!(opened, 0);
        (File::from_raw_fd(ours), File::from_raw_fd(its))
    };
    let mut command = command(folder);
    command.arg("detect").args(args).env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    command.envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(its.try_clone().unwrap()).stderr(its);
    let mut child = command.spawn().unwrap();
    drop(command); // its descriptors of the terminal, so that reading comes to an end
    let mut drawn = Vec::new();
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = ours.read(&mut part) {
        drawn.extend_from_slice(&part[..count]);
    }
    (child.wait().unwrap().code(), String::from_utf8(drawn).unwrap())
}

pub fn signal(child: &Child, signal: i32) {
    // SAFETY: it is our child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// Returns once the program listens to SIGTERM, and so to SIGINT, for which it listens first.
pub fn wait_for_handlers(child: &Child) {
    wait_until("it listens to signals", LIMIT, || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
        u64::from_str_radix(caught, 16).unwrap_or(0) >> (libc::SIGTERM - 1) & 1 == 1
    });
}
