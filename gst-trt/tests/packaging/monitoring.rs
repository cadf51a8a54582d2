// SPDX-License-Identifier: MPL-2.0
//! The alerts and the dashboard name only what the service gives, and Prometheus understands all of it.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

use super::common::service::{Service, ask, free_address};
use super::common::{path, scratch, text};

const RULES: &str = "packaging/prometheus/gst-trt.rules.yml";
const DASHBOARD: &str = "packaging/grafana/gst-trt.json";

/// Of the alerts: each is on one line.
fn alerts() -> Vec<String> {
    let rules = std::fs::read_to_string(path(RULES)).unwrap();
    let found: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ").map(String::from)).collect();
    assert_eq!(found.len(), rules.matches("- alert: ").count());
    found
}

fn dashboard() -> Value {
    serde_json::from_str(&std::fs::read_to_string(path(DASHBOARD)).unwrap()).unwrap()
}

/// Of its panels and its variables.
fn shown(dashboard: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{value}")).to_string();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter(|panel| panel["type"] != "row").flat_map(|panel| panel["targets"].as_array().unwrap());
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter().filter(|found| found["type"] == "query");
    targets.map(|target| text(&target["expr"])).chain(variables.map(|found| text(&found["query"]["query"]))).collect()
}

/// The names of metrics in an expression.
fn named(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("gst_trt_") || word.starts_with("process_"))
}

#[test]
fn alerts_and_dashboard_name_what_the_service_gives() {
    let folder = scratch("packaging-metrics");
    let address = free_address();
    let service = Service::start(&folder, &format!("[http]\nlisten = \"{address}\"\n"));
    service.said("Started.");
    let metrics = String::from_utf8(ask(&address, "GET", "/metrics", "", "").1).unwrap();
    let mut given = BTreeSet::new();
    // Families without a sample are told of, too.
    for (name, kind) in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')) {
        let endings: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        given.extend(endings.iter().map(|ending| format!("{name}{ending}")));
    }
    let expressions = [alerts(), shown(&dashboard())].concat();
    assert!(expressions.len() > 30);
    let unknown: Vec<_> =
        expressions.iter().flat_map(|expression| named(expression)).filter(|name| !given.contains(*name)).collect();
    assert!(unknown.is_empty(), "{unknown:?} of {given:?}");
    assert_eq!(service.end().0.code(), Some(0));
}

#[test]
fn panels_of_the_dashboard_do_not_overlap_and_have_their_own_numbers() {
    let dashboard = dashboard();
    assert!(dashboard["uid"] == "gst-trt" && dashboard["schemaVersion"].as_u64() > Some(30));
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let side = |name: &str| panel["gridPos"][name].as_u64().unwrap_or_else(|| panic!("{panel}"));
        assert!(side("x") + side("w") <= 24, "{panel}");
        for y in side("y")..side("y") + side("h") {
            assert!((side("x")..side("x") + side("w")).all(|x| taken.insert((x, y))), "{panel}");
        }
        assert!(!panel["title"].as_str().unwrap().is_empty(), "{panel}");
    }
}

fn promtool(args: &[&str]) -> Option<Output> {
    let output = Command::new("promtool").args(args).output().ok();
    if output.is_none() {
        println!("SKIP: promtool is not installed.");
    }
    output
}

#[test]
fn prometheus_understands_the_alerts_and_the_dashboard() {
    let folder = scratch("packaging-promtool");
    let tests = path("packaging/prometheus/gst-trt.rules.test.yml");
    // What the panels show, as rules.
    let recorded = shown(&dashboard()).into_iter().filter(|expression| !expression.starts_with("label_values"));
    let recorded = recorded.zip(1..).map(|(expression, number)| {
        let expression = expression.replace("$__rate_interval", "5m");
        serde_json::json!({"record": format!("panel:{number}"), "expr": expression})
    });
    // JSON is YAML.
    let rules = serde_json::json!({"groups": [{"name": "panels", "rules": recorded.collect::<Vec<_>>()}]});
    let panels = folder.join("panels.yml");
    std::fs::write(&panels, rules.to_string()).unwrap();
    let checks =
        [["check", "rules", &path(RULES)], ["check", "rules", panels.to_str().unwrap()], ["test", "rules", &tests]];
    for args in checks {
        let Some(output) = promtool(&args) else { return };
        assert!(output.status.success(), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    }
}
