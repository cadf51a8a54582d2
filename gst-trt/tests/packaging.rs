// SPDX-License-Identifier: MPL-2.0
//! What packages bring besides the program: man pages, completions, a configuration, the unit. tests/packages.sh installs them.

mod common;
#[path = "packaging/monitoring.rs"]
mod monitoring;

use std::path::Path;
use std::process::{Command, Stdio};

use common::service::{Service, free_address};
use common::{expect_failure, files, path, run, sample, scratch, shapes, text};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gst-trt");

/// The names below “Commands:” of `gst-trt --help`.
fn commands(folder: &Path) -> Vec<String> {
    let help = run(folder, &["--help"]);
    let lines = text(&help.stdout).lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.map_while(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| *name != "help").map(String::from).collect()
}

/// What roff says of a page, and the page as it is shown; nothing where there is no man.
fn shown(page: &Path) -> Option<String> {
    let mut man = Command::new("man");
    man.args(["--warnings", "--encoding=UTF-8", "--local-file"]).arg(page).env("MANWIDTH", "10000");
    let output = man.env("LC_ALL", "C.UTF-8").stdin(Stdio::null()).output().ok()?;
    assert!(output.status.success() && output.stderr.is_empty(), "{}: {}", page.display(), text(&output.stderr));
    Some(text(&output.stdout).replace('‐', "-"))
}

#[test]
fn man_pages_say_what_help_says() {
    let folder = scratch("packaging-man");
    let output = Command::new(path("packaging/man.sh")).arg(PROGRAM).arg(folder.join("man1")).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let commands = commands(&folder);
    assert!(commands.iter().any(|name| name == "serve"), "{commands:?}");
    assert_eq!(files(&folder.join("man1")).len(), 1 + commands.len());
    for command in [""].into_iter().chain(commands.iter().map(String::as_str)) {
        let (words, name) = match command {
            "" => (vec!["--help"], "gst-trt".into()),
            command => (vec![command, "--help"], format!("gst-trt-{command}")),
        };
        let page = folder.join("man1").join(format!("{name}.1"));
        let Some(page) = shown(&page) else {
            eprintln!("SKIP: there is no man; install man-db");
            return;
        };
        // Without the spaces that set columns and justify lines.
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let page = plain(&page);
        for line in text(&run(&folder, &words).stdout).lines().map(plain) {
            let line = line.trim_start_matches("Usage: ").trim_end_matches(':');
            let is_there = page.to_lowercase().contains(&line.to_lowercase());
            assert!(is_there, "{name}: “{line}” is not in {page}");
        }
    }
}

/// As bash asks for them, for a command line whose last word is begun.
fn completed(script: &str, line: &[&str]) -> String {
    let asks = r#"source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _gst-trt "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"; echo "${COMPREPLY[@]}""#;
    let output = Command::new("bash").args(["-c", asks, "bash", script]).args(line).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_string()
}

#[test]
fn shells_complete_the_command_line() {
    let folder = scratch("packaging-completions");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = run(&folder, &["completions", shell]);
        let script = text(&output.stdout);
        for name in commands(&folder) {
            assert!(script.contains(&name), "{shell}: no {name}");
        }
        std::fs::write(folder.join(shell), script).unwrap();
    }
    let script = folder.join("bash").display().to_string();
    assert_eq!(completed(&script, &["gst-trt", "ser"]), "serve");
    assert_eq!(completed(&script, &["gst-trt", "serve", "--ch"]), "--check");
    assert_eq!(completed(&script, &["gst-trt", "build", "--precision", "fp"]), "fp32 fp16");
    let output = run(&folder, &["completions", "csh"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("possible values: bash, "), "{}", text(&output.stderr));
}

/// The service of a fresh package shows its page, and what its configuration proposes is right.
#[test]
fn the_packaged_configuration_starts_and_its_examples_are_right() {
    let folder = scratch("packaging-config");
    let config = std::fs::read_to_string(path("packaging/config.toml")).unwrap();
    let (listen, address) = ("127.0.0.1:8090", free_address());
    assert!(config.contains(listen));
    let service = Service::start(&folder, &config.replace(listen, &address));
    service.said(&format!("Started. http://{address}/"));
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    // With all that it proposes, where the files are.
    let proposed = config.lines().map(|line| match line.strip_prefix('#') {
        Some(example) if !example.is_empty() && !example.starts_with(' ') => example,
        _ => line,
    });
    let proposed = proposed.collect::<Vec<_>>().join("\n");
    assert!(["[[source]]", "[[model]]", "[record]"].iter().all(|table| proposed.contains(table)), "{proposed}");
    let zones = r#"{"tripwires": [{"id": "gate", "points": [[0.5, 0], [0.5, 1]]}]}"#;
    std::fs::write(folder.join("zones.json"), zones).unwrap();
    let proposed = proposed
        .replace("/var/lib/gst-trt/yolo11n.onnx", &shapes())
        .replace("/etc/gst-trt/zones.json", "zones.json")
        .replace("/var/lib/gst-trt/events", "events")
        .replace("rtsp://camera.local/stream", &sample());
    std::fs::write(folder.join("config.toml"), &proposed).unwrap();
    let output = run(&folder, &["serve", "--check", "config.toml"]);
    assert!(output.status.success(), "{}\n{proposed}", text(&output.stderr));
    // Where a file is not there, that is said.
    std::fs::write(folder.join("config.toml"), proposed.replace(&shapes(), "/var/lib/gst-trt/yolo11n.onnx")).unwrap();
    let args = ["serve", "config.toml"];
    expect_failure(&run(&folder, &args), &args, &["config.toml", "/var/lib/gst-trt/yolo11n.onnx"]);
}

/// The values of a key in the unit.
fn unit(key: &str) -> Vec<String> {
    let unit = std::fs::read_to_string(path("packaging/gst-trt.service")).unwrap();
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).map(String::from).collect()
}

#[test]
fn the_unit_runs_as_a_user_that_can_read_the_configuration() {
    let sysusers = std::fs::read_to_string(path("packaging/gst-trt.sysusers")).unwrap();
    let [user] = &unit("User")[..] else { panic!("one user") };
    let state = format!("/var/lib/{}", unit("StateDirectory")[0]);
    assert!(
        sysusers.lines().any(|line| line.starts_with(&format!("u {user} ")) && line.ends_with(&state)),
        "{sysusers}"
    );
    // A user that comes and goes with the service belongs to no group that files could be given to.
    assert!(unit("DynamicUser").is_empty());
    let postinst = std::fs::read_to_string(path("packaging/postinst.sh")).unwrap();
    assert!(postinst.contains(&format!("chown root:{user} /etc/gst-trt")), "{postinst}");
    assert!(unit("ExecStart")[0].ends_with(" serve /etc/gst-trt/config.toml"));
}

/// ProtectClock implies DeviceAllow, with which systemd 249 refuses all devices that are not listed.
#[test]
fn the_unit_leaves_gpus_and_cameras_to_the_service() {
    for key in ["DeviceAllow", "DevicePolicy", "PrivateDevices", "ProtectClock", "MemoryDenyWriteExecute"] {
        assert!(unit(key).is_empty(), "{key}");
    }
    // Nobody can set the clock all the same.
    assert_eq!(unit("CapabilityBoundingSet"), [""]);
    assert_eq!(unit("SystemCallFilter"), ["@system-service"]);
}

#[test]
fn systemd_understands_the_unit() {
    let folder = scratch("packaging-unit");
    let text_of = std::fs::read_to_string(path("packaging/gst-trt.service")).unwrap();
    let file = folder.join("gst-trt.service");
    std::fs::write(&file, text_of.replace("/usr/local/bin/gst-trt", PROGRAM)).unwrap();
    match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output() {
        Ok(output) => {
            let said: Vec<_> = text(&output.stderr).lines().filter(|line| line.contains("gst-trt.service")).collect();
            assert!(output.status.success() && said.is_empty(), "{said:?}");
        }
        Err(error) => eprintln!("SKIP: there is no systemd-analyze: {error}"),
    }
}
