// SPDX-License-Identifier: MPL-2.0
//! docs/tasks/service.md: its steps, one after the other, lead where it says.

use std::process::Command;

use crate::common::service::{Service, ask, free_address};
use crate::common::wait::{LIMIT, wait_until};
use crate::common::{lines, path, sample, scratch, shapes, succeed, text};

/// The blocks of a language, in their order.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(fence.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

fn words(line: &str) -> Vec<String> {
    let words = gst::glib::shell_parse_argv(line).unwrap();
    words.into_iter().map(|word| word.into_string().unwrap()).collect()
}

#[test]
fn the_steps_of_the_page_make_a_service_that_records_and_alerts() {
    let folder = scratch("serve-task");
    std::os::unix::fs::symlink(sample(), folder.join("street.mp4")).unwrap();
    std::os::unix::fs::symlink(shapes(), folder.join("yolo11n.onnx")).unwrap();
    let page = std::fs::read_to_string(path("docs/tasks/service.md")).unwrap();
    let [tables, another] = blocks(&page, "toml")[..] else { panic!("{page}") };
    let tables = tables.replace("person", "disc"); // what the model of the tests finds
    let address = free_address();
    let (mut service, mut asked) = (None, 0);
    for line in blocks(&page, "sh").into_iter().flat_map(str::lines) {
        let words = words(line);
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["gst-trt", "serve", "--watch", file] => {
                let config = std::fs::read_to_string(folder.join(file)).unwrap();
                let started = Service::watching(&folder, &config, &[]);
                started.said("Started.");
                service = Some(started);
            }
            ["gst-trt", ref args @ ..] => {
                succeed(&folder, args);
                if args[0] == "init" {
                    let file = folder.join("config.toml");
                    let config = std::fs::read_to_string(&file).unwrap() + &tables;
                    std::fs::write(&file, config.replace("127.0.0.1:8090", &address)).unwrap();
                }
            }
            ["curl", ..] => {
                let line = line.replace("localhost:8090", &address);
                let output = Command::new("bash").args(["-c", &line]).current_dir(&folder).output().unwrap();
                assert!(output.status.success(), "{line}: {}", text(&output.stderr));
                asked += 1;
            }
            _ => panic!("{line} is not run"),
        }
    }
    let service = service.expect("the page starts it");
    assert_eq!(asked, 3);
    service.said("source2: Recorded ");
    let alerts = folder.join("alerts-source2.jsonl");
    wait_until("alerts", LIMIT, || alerts.metadata().is_ok_and(|file| file.len() > 0));
    let config = std::fs::read_to_string(folder.join("config.toml")).unwrap();
    service.write(&(config + "\n" + another));
    service.said("was read again");
    let (status, sources) = ask(&address, "GET", "/sources", "", "");
    assert!(status == 200 && text(&sources).contains("\"yard\""), "{}", text(&sources));
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    let is_of_page = |name: &serde_json::Value| name == "middle" || name == "door";
    assert!(lines(&alerts).iter().all(|line| is_of_page(&line["event"]["name"])), "{journal}");
    assert!(folder.join("source2.jsonl").metadata().unwrap().len() > 0);
}
