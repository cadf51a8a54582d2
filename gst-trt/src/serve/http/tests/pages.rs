// SPDX-License-Identifier: MPL-2.0
//! docs/http.md: its commands run, and its tables are complete.

use std::process::Command;

use super::*;
use crate::scratch::scratch;

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/http.md")).unwrap()
}

#[test]
fn the_commands_run() {
    let service = FakeService::new(&["door"]);
    let _camera = Camera::new(service.frames("door"), |_| Bytes::from(vec![7; 50_000]));
    let server = serve(&service);
    let folder = scratch("http-commands");
    let page = page().replace("\\\n", " ");
    let blocks = page.split("```sh\n").skip(1).flat_map(|rest| rest.split("```").next().unwrap().lines());
    let commands: Vec<_> = blocks.filter(|line| line.starts_with("curl ")).collect();
    assert!(commands.len() >= 8, "{commands:?}");
    for line in commands {
        let command = line.replace("localhost:8090", &server.address().to_string());
        let output = Command::new("bash")
            .args(["-o", "pipefail", "-c", &command])
            .current_dir(&folder)
            .env("TOKEN", TOKEN)
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(std::fs::read(folder.join("door.jpg")).unwrap().len(), 50_000);
    assert_eq!(service.names(), ["door"], "what was added was removed");
    assert_eq!(service.models()[0].file, Path::new("better.onnx"));
}

#[test]
fn all_metrics_are_described() {
    let server = serve(&FakeService::new(&["door"]));
    let page = page();
    let metrics = get(&server, "/metrics").expect(200);
    for family in metrics.text().lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = family.split(' ').next().unwrap();
        let row = if name.starts_with("process_") { "process_*" } else { name };
        let has_row = page.lines().any(|line| line.starts_with(&format!("| `{row}`")));
        assert!(has_row, "docs/http.md lacks a row for {name}");
    }
}
