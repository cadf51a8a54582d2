// SPDX-License-Identifier: MPL-2.0
//! Several services with one file, each of which runs a part of its sources.

use serde_json::Value;

use crate::common::service::{Service, ask, free_address};
use crate::common::wait::{LIMIT, wait_until};
use crate::common::{run, scratch, text};
use crate::{endless, expect_no_gap, head};

const TOKEN: &str = "0123456789abcdef-test";

/// Six sources for so many replicas. Those of two tests have other names, because replicas of one machine know each other by them.
fn config(address: &str, replicas: u32) -> String {
    of("cam", address, replicas)
}

fn of(name: &str, address: &str, replicas: u32) -> String {
    let sources: String = (0..6).map(|number| endless(&format!("{name}-{number}"))).collect();
    let http = format!("[http]\nlisten = \"{address}\"\ntoken = \"{TOKEN}\"\n\n");
    format!("shard = \"${{POD_INDEX}}/{replicas}\"\n\n{}{http}{sources}", head())
}

fn names(address: &str) -> Vec<String> {
    let sources: Value = serde_json::from_slice(&ask(address, "GET", "/sources", "", "").1).unwrap();
    sources.as_array().unwrap().iter().map(|source| source["name"].as_str().unwrap().to_string()).collect()
}

#[test]
fn each_source_is_at_one_replica_and_those_that_stay_lose_nothing() {
    let (folders, addresses) = (["shards-0", "shards-1"].map(scratch), [free_address(), free_address()]);
    let first = Service::watching(&folders[0], &config(&addresses[0], 1), &[("POD_INDEX", "0")]);
    first.said("Started. Shard 0/1: 6 of 6 sources.");
    // By the rule, three of them stay.
    let (all, mut last) = (names(&addresses[0]), None);
    expect_no_gap(&first, "cam-2", &mut last, 3);
    let second = Service::watching(&folders[1], &config(&addresses[1], 2), &[("POD_INDEX", "1")]);
    second.said("Started. Shard 1/2: 3 of 6 sources.");
    // Nobody sends a signal.
    first.write(&config(&addresses[0], 2));
    first.said("was read again. Shard 0/2: 3 of 6 sources.");
    let (own, others) = (names(&addresses[0]), names(&addresses[1]));
    let mut both = [own.clone(), others.clone()].concat();
    both.sort();
    assert_eq!(both, all);
    expect_no_gap(&first, "cam-2", &mut last, 10);
    second.result(&others[0]);

    let body = format!("{{\"name\": \"new\", \"address\": \"{}\"}}", crate::sample());
    let (status, answer) = ask(&addresses[0], "POST", "/sources", TOKEN, &body);
    let answer = String::from_utf8(answer).unwrap();
    assert!(status == 400 && answer.contains("this is replica 0 of 2"), "{status} {answer}");

    // A replica that is taken away has nothing left until it ends.
    second.write(&config(&addresses[1], 1));
    second.said("there is no replica 1 of 1: it has no sources");
    first.write(&config(&addresses[0], 1));
    wait_until("all sources at one replica", LIMIT, || names(&addresses[0]) == all && names(&addresses[1]).is_empty());
    expect_no_gap(&first, "cam-2", &mut last, 3);
    assert_eq!((first.end().0.code(), second.end().0.code()), (Some(0), Some(0)));
}

#[test]
fn one_ordinal_is_taken_once() {
    let folders = ["shards-first", "shards-twin"].map(scratch);
    let address = free_address();
    let first = Service::watching(&folders[0], &of("twin", &address, 2), &[("POD_INDEX", "1")]);
    first.said("Started.");
    let twin = Service::watching(&folders[1], &of("twin", &free_address(), 2), &[("POD_INDEX", "1")]);
    let (status, journal) = twin.ended();
    assert_eq!(status.code(), Some(1), "{journal}");
    assert!(
        journal.contains("Another gst-trt serve on this machine is shard 1/2 of the same sources already"),
        "{journal}"
    );
    // It goes on, and a change of the file that is wrong does not take its place away.
    first.write(&of("twin", "no address", 3));
    first.said("Everything goes on as before.");
    let is_there = |name: &String| name.starts_with("twin-");
    first.result(&names(&address).into_iter().find(is_there).unwrap());
    assert_eq!(first.end().0.code(), Some(0));
    // The place is free again.
    let twin = Service::with(&folders[1], &of("twin", &free_address(), 2), &[("POD_INDEX", "1")]);
    twin.said("Started. Shard 1/2: 3 of 6 sources.");
}

#[test]
fn a_check_says_which_part_is_here() {
    let folder = scratch("shards-check");
    std::fs::write(folder.join("config.toml"), config(&free_address(), 2).replace("${POD_INDEX}", "1")).unwrap();
    let output = run(&folder, &["serve", "--check", "config.toml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "config.toml is right: sources 3, models 1. Shard 1/2: 3 of 6 sources.\n");
    for (shard, said) in [
        ("1/0", "config.toml: line 1: “1/0” is no shard. Write the ordinal of this replica"),
        ("${NO_SUCH_INDEX}/2", "the environment has no variable NO_SUCH_INDEX"),
    ] {
        std::fs::write(folder.join("config.toml"), config(&free_address(), 2).replace("${POD_INDEX}/2", shard))
            .unwrap();
        let output = run(&folder, &["serve", "--check", "config.toml"]);
        assert!(!output.status.success() && text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
}
