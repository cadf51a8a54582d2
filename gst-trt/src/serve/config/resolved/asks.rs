// SPDX-License-Identifier: MPL-2.0
//! What is asked about pictures, and whom.

use std::path::PathBuf;
use std::time::Duration;

use gsttrt_core::analytics::parse;
use gsttrt_core::redact::redacted;
use gsttrt_publish::address::Secret;
use gsttrt_publish::options::PublishOptions;
use gsttrt_publish::web::WebClient;

use super::super::keys::{AskKeys, AskedPicture};
use super::super::properties::{AnalyticsElement, ElementProperties};
use super::super::rate::Rate;
use super::super::wording::{KeyError, problem};
use super::super::{secrets, web_address, wording};
use super::recordings::EVENTS;
use super::{Config, SourceConfig};

/// What an API of this kind is called behind its version.
const PATH: &str = "/chat/completions";
/// Bytes of a question, so that it is no file by mistake.
const MAX_QUESTION: usize = 16 << 10;

/// A question about the objects of some events.
#[derive(Clone, Debug, PartialEq)]
pub struct AskConfig {
    pub name: String,
    /// Of the API, with its path.
    pub url: Secret,
    pub model: String,
    pub question: String,
    /// Kinds, names of zones and lines, and classes; empty for all.
    pub events: Vec<String>,
    pub names: Vec<String>,
    pub classes: Vec<String>,
    pub picture: AskedPicture,
    /// Pixels of the picture's longer side.
    pub max_size: u32,
    /// Of each source.
    pub at_most: Rate,
    pub max_queued: usize,
    /// For the whole of a request with its answer.
    pub timeout: Duration,
    /// 0 leaves it to the server.
    pub max_tokens: u32,
    pub api_key: Option<Secret>,
    pub ca_file: Option<PathBuf>,
    /// Of that file, which is read once: another one makes another question.
    pub ca_content: Option<u64>,
}

impl AskConfig {
    /// The address as it may be shown.
    pub fn shown(&self) -> String {
        redacted(self.url.reveal())
    }

    /// Whoever is asked.
    pub fn client(&self) -> gsttrt_core::error::Result<WebClient> {
        let options =
            PublishOptions { ca_file: self.ca_file.clone(), timeout: self.timeout, ..PublishOptions::default() };
        let authorization = self.api_key.as_ref().map(|key| Secret::new(format!("Bearer {}", key.reveal())));
        WebClient::new(self.url.clone(), authorization, &options)
    }
}

impl Config {
    /// The questions about a source.
    pub(super) fn asks(&self, names: Option<&[String]>) -> Result<Vec<AskConfig>, KeyError> {
        let known = || self.asks.iter().map(|ask| ask.name.as_str());
        if let Some(unknown) = names.into_iter().flatten().find(|name| !known().any(|known| known == *name)) {
            return Err(problem("ask", wording::unknown_name("ask", unknown, known())));
        }
        let is_wanted = |ask: &&AskConfig| names.is_none_or(|names| names.contains(&ask.name));
        Ok(self.asks.iter().filter(is_wanted).cloned().collect())
    }

    pub(super) fn ask(&self, keys: &AskKeys) -> Result<AskConfig, KeyError> {
        let name = keys.name.0.clone();
        if self.asks.iter().any(|other| other.name == name) {
            return Err(problem("name", format!("there are two questions “{name}”")));
        }
        let url = secrets::expand(&keys.url).map_err(|text| problem("url", text))?;
        for (key, what, list) in
            [("events", "event", &keys.events), ("names", "name", &keys.names), ("classes", "class", &keys.classes)]
        {
            wording::check_list(key, what, list.as_deref())?;
        }
        let events = keys.events.clone().unwrap_or_default();
        if let Some(unknown) = events.iter().find(|event| !EVENTS.contains(&event.as_str())) {
            return Err(problem("events", wording::unknown_name("event", unknown, EVENTS.into_iter())));
        }
        for (key, text) in [("model", &keys.model), ("question", &keys.question)] {
            if text.trim().is_empty() || text.len() > MAX_QUESTION {
                return Err(problem(key, format!("it has 1 to {MAX_QUESTION} bytes")));
            }
        }
        if !(32..=4096).contains(&keys.max_size) {
            return Err(problem("max-size", "the longer side of a picture has 32 to 4096 pixels"));
        }
        if !(1..=100).contains(&keys.max_queued) {
            return Err(problem("max-queued", "1 to 100 pictures wait"));
        }
        if keys.timeout.0 < Duration::from_millis(100) || keys.timeout.0 > Duration::from_secs(600) {
            return Err(problem("timeout", "an answer may take 0.1 s to 10 min"));
        }
        let api_key = match (&keys.api_key, &keys.api_key_file) {
            (Some(_), Some(_)) => return Err(problem("api-key", "there is api-key-file, too: one of both is enough")),
            (Some(key), None) => Some(("api-key", secrets::expand(key).map_err(|text| problem("api-key", text))?)),
            (None, Some(file)) => Some(("api-key-file", self.secret("api-key-file", file)?)),
            (None, None) => None,
        };
        if let Some((key, text)) = &api_key
            && (text.is_empty() || !text.bytes().all(|byte| (0x21..0x7F).contains(&byte)))
        {
            return Err(problem(key, "a key is one line without spaces, as the server gives it"));
        }
        let ca_file = keys.ca_file.as_ref().map(|file| self.folder.join(file));
        let ask = AskConfig {
            name,
            url: address(&url)?,
            model: keys.model.clone(),
            question: keys.question.clone(),
            events,
            names: keys.names.clone().unwrap_or_default(),
            classes: keys.classes.clone().unwrap_or_default(),
            picture: keys.picture,
            max_size: keys.max_size,
            at_most: keys.at_most,
            max_queued: keys.max_queued as usize,
            timeout: keys.timeout.0,
            max_tokens: keys.max_tokens,
            api_key: api_key.map(|(_, key)| Secret::new(key)),
            ca_content: ca_file.as_deref().and_then(secrets::content_of),
            ca_file,
        };
        if ask.ca_file.is_some() && !ask.url.reveal().starts_with("https://") {
            return Err(problem("ca-file", "only addresses of https:// have certificates"));
        }
        let key = if ask.ca_file.is_some() { "ca-file" } else { "url" };
        ask.client().map_err(|error| problem(key, error.message()))?;
        Ok(ask)
    }

    /// Zones, lines and classes that no source has would never be asked about.
    pub(super) fn check_asked(&self, ask: &AskConfig) -> Result<(), KeyError> {
        let sources: Vec<&SourceConfig> =
            self.sources.iter().filter(|source| source.asks.iter().any(|asked| asked.name == ask.name)).collect();
        if sources.is_empty() {
            return Ok(()); // they come later
        }
        let names: Vec<String> =
            sources.iter().filter_map(|source| source.analytics.as_ref()).flat_map(names).collect();
        if let Some(unknown) = ask.names.iter().find(|name| !names.contains(name)) {
            let text = wording::unknown_name("zone or line", unknown, names.iter().map(String::as_str));
            return Err(problem("names", text));
        }
        // Of some model file they are not known.
        let models = sources.iter().flat_map(|source| source.models());
        let Some(classes) = self.classes_of_objects(models) else { return Ok(()) };
        let known = || classes.iter().copied();
        match ask.classes.iter().find(|class| !known().any(|known| known == class.as_str())) {
            Some(unknown) => Err(problem("classes", wording::unknown_name("class", unknown, known()))),
            None => Ok(()),
        }
    }
}

/// What zones, lines and directions are called.
fn names(analytics: &ElementProperties<AnalyticsElement>) -> Vec<String> {
    let stream = analytics.get("config-stream").and_then(|number| number.parse().ok()).unwrap_or_default();
    let Ok(config) = parse::parse(analytics.get("config").unwrap_or_default(), stream) else { return Vec::new() };
    let zones = config.zones.into_iter().map(|zone| zone.name);
    let lines = config.tripwires.into_iter().map(|line| line.name);
    zones.chain(lines).chain(config.directions.into_iter().map(|direction| direction.name)).collect()
}

/// The address of the API: as it is written, or with the usual path.
fn address(url: &str) -> Result<Secret, KeyError> {
    let (host, path) = web_address::split("url", url, "api-key or api-key-file", "http://localhost:11434/v1")?;
    let path = path.trim_end_matches('/');
    let is_version = |part: &str| {
        part.strip_prefix('v')
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let path = match path.rsplit('/').next() {
        _ if path.ends_with(PATH) => path.to_string(),
        Some(last) if is_version(last) => format!("{path}{PATH}"),
        _ => format!("{path}/v1{PATH}"),
    };
    Ok(Secret::new(format!("{host}{path}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_usual_path() {
        for (url, expected) in [
            ("http://localhost:11434", "http://localhost:11434/v1/chat/completions"),
            ("https://api.example.com/v1/", "https://api.example.com/v1/chat/completions"),
            ("http://[::1]:8000/v3", "http://[::1]:8000/v3/chat/completions"),
            ("http://h/openai/v1", "http://h/openai/v1/chat/completions"),
            ("http://h/proxy", "http://h/proxy/v1/chat/completions"),
            ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
        ] {
            assert_eq!(
                address(url).map(|url| url.reveal().to_string()).map_err(|error| error.text),
                Ok(expected.into())
            );
        }
        for (url, said) in [
            ("localhost:11434", "no web address"),
            ("ftp://h", "no web address"),
            ("http://me:pw@h", "a user or a password"),
            ("http://h/?key=1", "no ? and #"),
            ("http://", "no host"),
            ("http://:80/", "no host"),
            ("http://a b", "no spaces"),
        ] {
            let Err(error) = address(url) else { panic!("{url}") };
            assert!(error.text.contains(said) && !error.text.contains("pw"), "{url}: {}", error.text);
        }
    }
}
