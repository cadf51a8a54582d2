// SPDX-License-Identifier: MPL-2.0
//! Where OpenTelemetry's metrics, logs and traces go.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use gsttrt_core::redact::redacted;
use gsttrt_publish::address::Secret;
use gsttrt_publish::options::PublishOptions;
use gsttrt_publish::web::WebClient;

use super::super::keys::OtelKeys;
use super::super::otel_environment::{OtelEnvironment, pairs};
use super::super::wording::{KeyError, problem};
use super::super::{secrets, web_address};
use super::Config;

/// Of a collector on the same machine.
const ENDPOINT: &str = "http://localhost:4318";
/// One frame of a thousand.
const RATIO: f64 = 0.001;
/// Headers that belong to the request itself.
const OWN_HEADERS: [&str; 6] =
    ["content-type", "content-length", "content-encoding", "host", "connection", "transfer-encoding"];

#[derive(Clone, Debug, PartialEq)]
pub struct OtelConfig {
    /// Without the paths of the signals.
    pub endpoint: Secret,
    pub headers: Vec<(String, Secret)>,
    pub ca_file: Option<PathBuf>,
    /// Of that file, which is read once: another one is a change.
    pub ca_content: Option<u64>,
    /// For the whole of a request with its answer.
    pub timeout: Duration,
    /// `None` for no metrics.
    pub metric_export_interval: Option<Duration>,
    pub has_logs: bool,
    /// Part of all frames, 0 to 1.
    pub traces_sampling_ratio: f64,
    /// What this service is.
    pub resource: BTreeMap<String, String>,
}

impl OtelConfig {
    /// The endpoint as it may be shown.
    pub fn shown(&self) -> String {
        redacted(self.endpoint.reveal())
    }

    /// Whoever takes a signal, by its name.
    pub fn client(&self, signal: &str) -> gsttrt_core::error::Result<WebClient> {
        let options =
            PublishOptions { ca_file: self.ca_file.clone(), timeout: self.timeout, ..PublishOptions::default() };
        let url = format!("{}/v1/{signal}", self.endpoint.reveal().trim_end_matches('/'));
        WebClient::new(Secret::new(url), None, &options)
    }
}

impl Config {
    /// What `[otel]` says, the environment, and what of that is left out.
    pub(super) fn otel(
        &self,
        keys: &OtelKeys,
        environment: OtelEnvironment,
    ) -> Result<(Option<OtelConfig>, Vec<KeyError>), KeyError> {
        let is_disabled = environment.is_disabled;
        let mut warnings: Vec<String> = environment.warnings.clone();
        if is_disabled {
            warnings.push("OTEL_SDK_DISABLED is true, so nothing is sent".into());
        }
        let config = self.otel_config(keys, environment)?;
        let warnings = warnings.into_iter().map(|text| problem("endpoint", text)).collect();
        Ok((Some(config).filter(|_| !is_disabled), warnings))
    }

    fn otel_config(&self, keys: &OtelKeys, environment: OtelEnvironment) -> Result<OtelConfig, KeyError> {
        if keys.protocol.as_ref().is_some_and(|protocol| protocol != "http/protobuf") {
            let text = "the protocol is \"http/protobuf\". Collectors take it on port 4318, and gRPC on another one";
            return Err(problem("protocol", text));
        }
        let expand = |key, text: &str| secrets::expand(text).map_err(|text| problem(key, text));
        let written = keys.endpoint.as_ref().map(|text| expand("endpoint", text)).transpose()?;
        let is_written = written.is_some() || environment.endpoint.is_none();
        let endpoint = written.or(environment.endpoint).unwrap_or_else(|| ENDPOINT.into());
        let checked = web_address::split("endpoint", endpoint.trim(), "headers or headers-file", ENDPOINT);
        checked.map_err(
            |problem| if is_written { problem } else { of_variable("OTEL_EXPORTER_OTLP_ENDPOINT", problem) },
        )?;
        let ca_file = keys.ca_file.as_ref().map(|file| self.folder.join(file));
        let ca_file = ca_file.or(environment.ca_file.filter(|_| endpoint.starts_with("https://")));
        if ca_file.is_some() && !endpoint.starts_with("https://") {
            return Err(problem("ca-file", "only addresses of https:// have certificates"));
        }
        let timeout = keys.timeout.map(|timeout| timeout.0).or(environment.timeout).unwrap_or(Duration::from_secs(10));
        if timeout < Duration::from_millis(100) || timeout > Duration::from_secs(600) {
            return Err(problem("timeout", "a request may take 0.1 s to 10 min"));
        }
        let interval = keys.metric_export_interval.map(|interval| interval.0).or(environment.metric_export_interval);
        let interval = interval.unwrap_or(Duration::from_secs(60));
        if interval < Duration::from_millis(100) || interval > Duration::from_secs(86_400) {
            return Err(problem("metric-export-interval", "metrics are sent each 0.1 s to 1 day"));
        }
        let ratio = keys.traces_sampling_ratio.or(environment.traces_sampling_ratio).unwrap_or(RATIO);
        if !(0.0..=1.0).contains(&ratio) {
            return Err(problem("traces-sampling-ratio", "it is a part of all frames, from 0 to 1. 0.001 is usual"));
        }
        let mut resource: BTreeMap<String, String> = environment.resource_attributes.into_iter().collect();
        resource.extend(environment.service_name.map(|name| ("service.name".into(), name)));
        for (name, value) in &keys.resource_attributes {
            if name.is_empty() {
                return Err(problem("resource-attributes", "an attribute has a name"));
            }
            resource.insert(name.clone(), expand("resource-attributes", value)?);
        }
        let name = keys.service_name.as_ref().map(|name| expand("service-name", name)).transpose()?;
        resource.extend(name.map(|name| ("service.name".into(), name)));
        let config = OtelConfig {
            endpoint: Secret::new(endpoint.trim()),
            headers: self.otel_headers(keys, environment.headers)?,
            ca_content: ca_file.as_deref().and_then(secrets::content_of),
            ca_file,
            timeout,
            metric_export_interval: keys.metrics.or(environment.metrics).unwrap_or(true).then_some(interval),
            has_logs: keys.logs.or(environment.logs).unwrap_or(true),
            traces_sampling_ratio: ratio,
            resource,
        };
        let key = if config.ca_file.is_some() { "ca-file" } else { "endpoint" };
        config.client("metrics").map_err(|error| problem(key, error.message()))?;
        Ok(config)
    }

    /// Those of the environment, where the configuration has none of that name.
    fn otel_headers(
        &self,
        keys: &OtelKeys,
        environment: Vec<(String, String)>,
    ) -> Result<Vec<(String, Secret)>, KeyError> {
        let mut headers: BTreeMap<String, String> = BTreeMap::new();
        let mut add = |key, name: &str, value: String| {
            let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            if name.is_empty() || !name.chars().all(is_token) {
                return Err(problem(key, "the name of a header has letters, digits and -"));
            }
            let name = name.to_ascii_lowercase();
            if OWN_HEADERS.contains(&name.as_str()) {
                return Err(problem(key, format!("the header {name} belongs to the request itself")));
            }
            // The value may be secret.
            if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
                return Err(problem(key, format!("the value of {name} has characters that a header must not have")));
            }
            headers.insert(name, value);
            Ok(())
        };
        let added = environment.into_iter().try_for_each(|(name, value)| add("headers", &name, value));
        added.map_err(|problem| of_variable("OTEL_EXPORTER_OTLP_HEADERS", problem))?;
        if let Some(file) = &keys.headers_file {
            let text = self.secret("headers-file", file)?;
            let found = pairs(&text);
            let found =
                found.ok_or_else(|| problem("headers-file", "it has lines such as name=value, and no others"))?;
            found.into_iter().try_for_each(|(name, value)| add("headers-file", &name, value))?;
        }
        for (name, value) in &keys.headers {
            add("headers", name, secrets::expand(value).map_err(|text| problem("headers", text))?)?;
        }
        Ok(headers.into_iter().map(|(name, value)| (name, Secret::new(value))).collect())
    }
}

/// What is wrong with a variable of the environment.
fn of_variable(name: &str, problem: KeyError) -> KeyError {
    KeyError { text: format!("{name}: {}", problem.text), ..problem }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::chain;
    use crate::scratch::scratch;
    use crate::serve::config::tests::{AUTHORITY, replace};

    fn load(folder: &Path, table: &str) -> Result<Config, String> {
        chain::start_gstreamer().unwrap();
        let file = folder.join("otel.toml");
        std::fs::write(&file, format!("[http]\n\n[otel]\n{table}\n")).unwrap();
        Config::load(&file).map_err(|failure| failure.to_string())
    }

    fn otel(folder: &Path, table: &str, environment: OtelEnvironment) -> OtelConfig {
        let config = load(folder, table).unwrap_or_else(|error| panic!("{table}: {error}"));
        let keys = config.keys.otel.clone().unwrap();
        config.otel(&keys, environment).unwrap_or_else(|error| panic!("{table}: {}", error.text)).0.unwrap()
    }

    #[test]
    fn the_environment_says_what_the_file_leaves_out() {
        let folder = scratch("config-otel");
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        let plain = otel(&folder, "", OtelEnvironment::default());
        let expected = OtelConfig {
            endpoint: Secret::new("http://localhost:4318"),
            headers: Vec::new(),
            ca_file: None,
            ca_content: None,
            timeout: Duration::from_secs(10),
            metric_export_interval: Some(Duration::from_secs(60)),
            has_logs: true,
            traces_sampling_ratio: 0.001,
            resource: BTreeMap::new(),
        };
        assert_eq!(plain, expected);
        let environment = || OtelEnvironment {
            endpoint: Some("http://collector:4318/".into()),
            headers: vec![pair("Api-Key", "of the environment"), pair("x", "1")],
            // It is of a server that needs none.
            ca_file: Some("/no/such.pem".into()),
            timeout: Some(Duration::from_secs(1)),
            metrics: Some(false),
            metric_export_interval: Some(Duration::from_secs(5)),
            logs: Some(false),
            traces_sampling_ratio: Some(0.5),
            service_name: Some("hall".into()),
            resource_attributes: vec![pair("service.name", "hidden"), pair("site", "north"), pair("floor", "2")],
            ..OtelEnvironment::default()
        };
        let secret = |name: &str, value: &str| (name.to_string(), Secret::new(value));
        let said = otel(&folder, "", environment());
        let expected = OtelConfig {
            endpoint: Secret::new("http://collector:4318/"),
            headers: vec![secret("api-key", "of the environment"), secret("x", "1")],
            ca_file: None,
            ca_content: None,
            timeout: Duration::from_secs(1),
            metric_export_interval: None,
            has_logs: false,
            traces_sampling_ratio: 0.5,
            resource: [("service.name", "hall"), ("site", "north"), ("floor", "2")]
                .map(|(name, value)| pair(name, value))
                .into(),
        };
        assert_eq!(said, expected);
        std::fs::write(folder.join("headers"), "authorization=Bearer%20hush\ny=2\n").unwrap();
        let table = "endpoint = \"http://prometheus:9090/api/v1/otlp\"\nprotocol = \"http/protobuf\"\n\
                     headers = {API-KEY = \"${PATH}\"}\nheaders-file = \"headers\"\ntimeout = \"2s\"\nmetrics = true\n\
                     metric-export-interval = \"15s\"\nlogs = true\ntraces-sampling-ratio = 0\nservice-name = \"gate\"\n\
                     resource-attributes = {site = \"south\", \"a.b\" = \"${PATH}\"}";
        let path = std::env::var("PATH").unwrap();
        let expected = OtelConfig {
            endpoint: Secret::new("http://prometheus:9090/api/v1/otlp"),
            headers: vec![
                secret("api-key", &path),
                secret("authorization", "Bearer hush"),
                secret("x", "1"),
                secret("y", "2"),
            ],
            ca_file: None,
            ca_content: None,
            timeout: Duration::from_secs(2),
            metric_export_interval: Some(Duration::from_secs(15)),
            has_logs: true,
            traces_sampling_ratio: 0.0,
            resource: [("service.name", "gate"), ("site", "south"), ("floor", "2"), ("a.b", &path)]
                .map(|(name, value)| pair(name, value))
                .into(),
        };
        assert_eq!(otel(&folder, table, environment()), expected);
        // Whoever prints it prints no secret.
        assert!(!format!("{expected:?}").contains("hush"));

        let config = load(&folder, "").unwrap();
        let off = OtelEnvironment { is_disabled: true, warnings: vec!["X is left out".into()], ..environment() };
        let keys = config.keys.otel.clone().unwrap();
        let Ok((None, warnings)) = config.otel(&keys, off) else { panic!("it is off") };
        let texts: Vec<_> = warnings.iter().map(|warning| warning.text.as_str()).collect();
        assert_eq!(texts, ["X is left out", "OTEL_SDK_DISABLED is true, so nothing is sent"]);
    }

    #[test]
    fn another_content_of_its_certificates_is_a_change() {
        let folder = scratch("config-otel-certificates");
        let with = |content: &str| {
            replace(&folder.join("ca.pem"), content);
            otel(&folder, "endpoint = \"https://h\"\nca-file = \"ca.pem\"", OtelEnvironment::default())
        };
        let before = with(AUTHORITY);
        assert!(with(AUTHORITY) == before, "another file with the same content is none");
        let after = with(&AUTHORITY.repeat(2));
        assert!(before != after && before.ca_file == after.ca_file);
    }

    #[test]
    fn a_mistake_in_a_variable_is_named_by_it() {
        let config = load(&scratch("config-otel-variables"), "").unwrap();
        let keys = config.keys.otel.clone().unwrap();
        let header = |name: &str, value: &str| vec![(name.to_string(), value.to_string())];
        for (environment, said) in [
            (
                OtelEnvironment { endpoint: Some("collector:4317".into()), ..OtelEnvironment::default() },
                "OTEL_EXPORTER_OTLP_ENDPOINT: it is no web address",
            ),
            (
                OtelEnvironment { headers: header("a b", "hush"), ..OtelEnvironment::default() },
                "OTEL_EXPORTER_OTLP_HEADERS: the name of a header",
            ),
        ] {
            let Err(error) = config.otel(&keys, environment) else { panic!("{said}") };
            assert!(error.text.contains(said) && !error.text.contains("hush"), "{}", error.text);
        }
    }

    #[test]
    fn a_mistake_in_it_is_named_and_shows_no_secret() {
        let folder = scratch("config-otel-wrong");
        std::fs::write(folder.join("headers"), "hush").unwrap();
        for (table, said) in [
            ("endpoint = \"localhost:4318\"", "no web address. Write it like http://localhost:4318"),
            ("endpoint = \"http://me:hush@h\"", "Write headers or headers-file instead"),
            ("endpoint = \"http://h/?key=hush\"", "no ? and #"),
            ("endpoint = \"${NO_SUCH_VARIABLE}\"", "the environment has no variable NO_SUCH_VARIABLE"),
            ("protocol = \"grpc\"", "the protocol is \"http/protobuf\""),
            ("headers = {\"a b\" = \"hush\"}", "the name of a header has letters"),
            ("headers = {Content-Type = \"hush\"}", "the header content-type belongs to the request"),
            ("headers = {x = \"hush\\n\"}", "the value of x has characters"),
            ("headers = {x = \"${NO_SUCH_VARIABLE}\"}", "no variable NO_SUCH_VARIABLE"),
            ("headers-file = \"none\"", "cannot read"),
            ("headers-file = \"headers\"", "it has lines such as name=value"),
            ("ca-file = \"ca.pem\"", "only addresses of https:// have certificates"),
            ("endpoint = \"https://h\"\nca-file = \"none.pem\"", "none.pem"),
            ("timeout = 0.05", "0.1 s to 10 min"),
            ("metric-export-interval = \"10ms\"", "each 0.1 s to 1 day"),
            ("traces-sampling-ratio = 1.5", "from 0 to 1"),
            ("traces-sampling-ratio = nan", "from 0 to 1"),
            ("resource-attributes = {\"\" = \"x\"}", "an attribute has a name"),
            ("endpont = \"x\"", "did you mean “endpoint”?"),
        ] {
            let Err(error) = load(&folder, table) else { panic!("{table}") };
            assert!(error.contains(said) && error.contains("line ") && !error.contains("hush"), "{table}: {error}");
        }
    }
}
