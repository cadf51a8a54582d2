// SPDX-License-Identifier: MPL-2.0
//! The variables of the environment by which OpenTelemetry is configured in all programs. As its specification wants it, what
//! cannot be used of them is left out with a warning.

use std::path::PathBuf;
use std::time::Duration;

/// What they say.
#[derive(Debug, Default, PartialEq)]
pub struct OtelEnvironment {
    pub is_disabled: bool,
    pub endpoint: Option<String>,
    pub headers: Vec<(String, String)>,
    pub ca_file: Option<PathBuf>,
    pub timeout: Option<Duration>,
    pub metrics: Option<bool>,
    pub metric_export_interval: Option<Duration>,
    pub logs: Option<bool>,
    pub traces_sampling_ratio: Option<f64>,
    pub service_name: Option<String>,
    pub resource_attributes: Vec<(String, String)>,
    pub warnings: Vec<String>,
}

impl OtelEnvironment {
    /// By a function that knows the variables. An empty one counts as one that is not there.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let mut found = OtelEnvironment {
            is_disabled: get("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")),
            endpoint: get("OTEL_EXPORTER_OTLP_ENDPOINT"),
            ca_file: get("OTEL_EXPORTER_OTLP_CERTIFICATE").map(PathBuf::from),
            service_name: get("OTEL_SERVICE_NAME"),
            ..OtelEnvironment::default()
        };
        // No value is shown: it may be secret.
        let mut wrong =
            |name: &str, wanted: &str| found.warnings.push(format!("{name} is left out: it is no {wanted}"));
        let mut pairs_of = |name| {
            let text = get(name)?;
            let found = pairs(&text);
            if found.is_none() {
                wrong(name, "list such as key=value,key=value");
            }
            found
        };
        found.headers = pairs_of("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
        found.resource_attributes = pairs_of("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        let mut milliseconds = |name, most: u64| {
            let text = get(name)?;
            let time = text.trim().parse().ok().filter(|number| (100..=most).contains(number));
            if time.is_none() {
                wrong(name, &format!("number of milliseconds from 100 to {most}"));
            }
            time.map(Duration::from_millis)
        };
        found.timeout = milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", 600_000);
        found.metric_export_interval = milliseconds("OTEL_METRIC_EXPORT_INTERVAL", 86_400_000);
        let mut exporter = |name| {
            let text = get(name)?;
            let is_on = match text.trim() {
                "otlp" => Some(true),
                "none" => Some(false),
                _ => None,
            };
            if is_on.is_none() {
                wrong(name, "exporter of this program, which has otlp and none");
            }
            is_on
        };
        found.metrics = exporter("OTEL_METRICS_EXPORTER");
        found.logs = exporter("OTEL_LOGS_EXPORTER");
        let has_traces = exporter("OTEL_TRACES_EXPORTER");
        if get("OTEL_EXPORTER_OTLP_PROTOCOL").is_some_and(|text| text.trim() != "http/protobuf") {
            wrong("OTEL_EXPORTER_OTLP_PROTOCOL", "protocol of this program, which has http/protobuf");
        }
        let argument = get("OTEL_TRACES_SAMPLER_ARG");
        let ratio = argument.as_ref().map(|text| text.trim().parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)));
        found.traces_sampling_ratio = match get("OTEL_TRACES_SAMPLER").as_deref().map(str::trim) {
            _ if has_traces == Some(false) => Some(0.0),
            None => None,
            Some("always_on" | "parentbased_always_on") => Some(1.0),
            Some("always_off" | "parentbased_always_off") => Some(0.0),
            Some("traceidratio" | "parentbased_traceidratio") => match ratio {
                None => Some(1.0),
                Some(None) => {
                    wrong("OTEL_TRACES_SAMPLER_ARG", "ratio from 0 to 1");
                    Some(1.0)
                }
                Some(ratio) => ratio,
            },
            Some(_) => {
                wrong(
                    "OTEL_TRACES_SAMPLER",
                    "sampler of this program, which has always_on, always_off and traceidratio",
                );
                None
            }
        };
        found
    }
}

/// Keys and values as `key=value,key=value`, or one on each line. Values are decoded as those of addresses.
pub fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let parts = text.split([',', '\n']).map(str::trim).filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (key, value) = part.split_once('=')?;
        let (key, value) = (key.trim(), decoded(value.trim())?);
        (!key.is_empty()).then(|| (key.to_string(), value))
    };
    parts.map(pair).collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let code = if *first == b'%' { behind.first_chunk::<2>() } else { None };
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> OtelEnvironment {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        OtelEnvironment::read(find)
    }

    #[test]
    fn variables_are_those_of_the_specification() {
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), OtelEnvironment::default());
        let found = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%3Db%2C, x = 100%"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/etc/ca.pem"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "15000"),
            ("OTEL_METRICS_EXPORTER", "otlp"),
            ("OTEL_LOGS_EXPORTER", "none"),
            ("OTEL_SERVICE_NAME", "hall"),
            ("OTEL_RESOURCE_ATTRIBUTES", "site=north,floor=2"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ]);
        let pair = |key: &str, value: &str| (key.to_string(), value.to_string());
        let expected = OtelEnvironment {
            is_disabled: false,
            endpoint: Some("http://collector:4318".into()),
            headers: vec![pair("api-key", "a=b,"), pair("x", "100%")],
            ca_file: Some("/etc/ca.pem".into()),
            timeout: Some(Duration::from_millis(1500)),
            metrics: Some(true),
            metric_export_interval: Some(Duration::from_secs(15)),
            logs: Some(false),
            traces_sampling_ratio: Some(0.25),
            service_name: Some("hall".into()),
            resource_attributes: vec![pair("site", "north"), pair("floor", "2")],
            warnings: Vec::new(),
        };
        assert_eq!(found, expected);
        assert!(read(&[("OTEL_SDK_DISABLED", "True")]).is_disabled);
        for (sampler, ratio) in [("always_on", 1.0), ("parentbased_always_off", 0.0), ("traceidratio", 1.0)] {
            assert_eq!(read(&[("OTEL_TRACES_SAMPLER", sampler)]).traces_sampling_ratio, Some(ratio), "{sampler}");
        }
        assert_eq!(read(&[("OTEL_TRACES_EXPORTER", "none")]).traces_sampling_ratio, Some(0.0));
    }

    #[test]
    fn what_cannot_be_used_is_left_out_without_a_word_of_it() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_HEADERS", "hush"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "key=%FF"),
            ("OTEL_RESOURCE_ATTRIBUTES", "=hush"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "99"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "600001"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "10s"),
            ("OTEL_METRICS_EXPORTER", "prometheus"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ] {
            let found = read(&[(name, value)]);
            let [warning] = &found.warnings[..] else { panic!("{name}: {found:?}") };
            assert!(warning.starts_with(name) && !warning.contains("hush"), "{warning}");
            assert_eq!(OtelEnvironment { warnings: Vec::new(), ..found }, OtelEnvironment::default(), "{name}");
        }
        let found = read(&[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")]);
        assert_eq!((found.traces_sampling_ratio, found.warnings.len()), (Some(1.0), 1));
    }
}
