// SPDX-License-Identifier: MPL-2.0
//! Where the results of a source go.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gsttrt_core::json::{RepeatedKey, repeated_key};
use gsttrt_core::redact::redacted;
use gsttrt_core::words::nearest;
use gsttrt_publish::address::Address;
use gsttrt_publish::destinations;
use gsttrt_publish::options::PublishOptions;

use super::super::properties::{ElementProperties, PublishElement};
use super::super::wording::{KeyError, problem};
use super::super::{secrets, wording};
use super::{Config, SourceConfig, folders};

/// A destination of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishConfig {
    pub name: Option<String>,
    pub properties: ElementProperties<PublishElement>,
    /// Where it is a file, by whatever name.
    file: Option<PathBuf>,
    /// Of the files with its password and its certificates, which are read once: others make another destination.
    contents: Vec<Option<u64>>,
}

impl Config {
    /// The destinations of a source.
    pub(super) fn publish(&self, source: &str, names: Option<&[String]>) -> Result<Vec<PublishConfig>, KeyError> {
        let all = || self.keys.publish.iter();
        let known = || all().filter_map(|publish| publish.get("name"));
        if let Some(unknown) = names.into_iter().flatten().find(|name| !known().any(|known| known == *name)) {
            return Err(problem("publish", wording::unknown_name("publish", unknown, known())));
        }
        let is_wanted = |publish: &&ElementProperties<PublishElement>| match names {
            None => true,
            Some(names) => publish.get("name").is_some_and(|name| names.iter().any(|wanted| wanted == name)),
        };
        all().filter(is_wanted).map(|publish| self.destination(publish, source)).collect()
    }

    /// A destination as that source has it.
    fn destination(
        &self,
        publish: &ElementProperties<PublishElement>,
        source: &str,
    ) -> Result<PublishConfig, KeyError> {
        let mut publish = publish.clone();
        let name = publish.remove("name");
        publish
            .change(|text| secrets::expand_address(&text.replace("{source}", source)))
            .map_err(|text| problem("location", text))?;
        if publish.get("source-id").is_none() {
            publish.set("source-id", source.into());
        }
        let location = publish.get("location").unwrap_or_default();
        refuse_mistyped(location)?;
        if let Some(path) = file_of(location) {
            publish.set("location", self.folder.join(path).to_string_lossy().into_owned());
        } else if let Some(path) = path_behind("unix:", location) {
            let path = self.folder.join(path).to_string_lossy().replace('%', "%25");
            publish.set("location", format!("unix:{path}"));
        }
        let mut contents = Vec::new();
        for key in ["password-file", "ca-file", "cert-file", "key-file"] {
            if let Some(path) = publish.get(key).map(|path| self.folder.join(path)) {
                contents.push(secrets::content_of(&path));
                publish.set(key, path.to_string_lossy().into_owned());
            }
        }
        let file = publish.get("location").and_then(file_of).map(|path| place_of(Path::new(&path)));
        Ok(PublishConfig { name, properties: publish, file, contents })
    }

    /// Checks all that is known of a destination before it is connected. Returns what may be right later.
    pub(super) fn check_publish(
        &self,
        number: usize,
        publish: &ElementProperties<PublishElement>,
    ) -> Result<Vec<KeyError>, KeyError> {
        let location = publish.get("location").unwrap_or_default();
        if location.is_empty() {
            return Err(problem("location", "the key location is missing"));
        }
        refuse_misspelt_source(location)?;
        let name = publish.get("name");
        if name.is_some_and(|name| name.trim().is_empty() || name.len() > 64 || name.chars().any(char::is_control)) {
            return Err(problem("name", "a name has 1 to 64 bytes, and no control characters"));
        }
        if name.is_some() && self.keys.publish[..number].iter().any(|other| other.get("name") == name) {
            return Err(problem("name", format!("there are two destinations “{}”", name.unwrap_or_default())));
        }
        if let Some(tags) = publish.get("tags").filter(|tags| !tags.trim().is_empty()) {
            serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(tags).map_err(|error| {
                problem("tags", format!("it is no JSON object: {error}. Write it like {{\"site\": \"north\"}}"))
            })?;
            if let Some(repeated) = repeated_key(tags.as_bytes()) {
                return Err(problem("tags", format!("{repeated}. {}", RepeatedKey::REMEDY)));
            }
        }
        let properties = self.destination(publish, "source")?.properties;
        let location = properties.get("location").unwrap_or_default();
        if let Some(path) = file_of(location) {
            return check_file_location(Path::new(&path));
        }
        let path = |key| properties.get(key).map(PathBuf::from);
        let options = PublishOptions {
            location: location.into(),
            password_file: path("password-file"),
            ca_file: path("ca-file"),
            cert_file: path("cert-file"),
            key_file: path("key-file"),
            ..PublishOptions::default()
        };
        destinations::open(&options).map_err(|error| problem("location", error.message()))?;
        Ok(Vec::new())
    }
}

/// Checks that the source has what messages are about: else nothing would ever be sent.
pub(super) fn check_subjects(publish: &[PublishConfig], has_track: bool, has_analytics: bool) -> Result<(), KeyError> {
    for (subject, needed, has) in
        [("event", "the events of [analytics]", has_analytics), ("object", "the ids of [track]", has_track)]
    {
        let is_about_it = |publish: &PublishConfig| publish.properties.get("per") == Some(subject);
        if !has && publish.iter().any(is_about_it) {
            let text = format!(
                "[[publish]] with per = \"{subject}\" needs {needed}: add it, or leave that destination out of publish here"
            );
            return Err(problem("publish", text));
        }
    }
    Ok(())
}

/// It would be taken for the path of a file, with the password of an address in it.
fn refuse_mistyped(location: &str) -> Result<(), KeyError> {
    let meant = destinations::words().into_iter().find_map(|word| {
        let (begin, rest) = location.split_at_checked(word.len())?;
        let is_begun = rest.starts_with("//") || rest.starts_with(':') && !rest.starts_with("://");
        let address = || format!("{word}://{}", rest.trim_start_matches([':', '/']));
        (is_begun && begin.eq_ignore_ascii_case(word)).then(address)
    });
    let Some(meant) = meant else { return Ok(()) };
    let text = format!("{} is no address; did you mean “{}”?", redacted(location), redacted(&meant));
    Err(problem("location", text))
}

/// It would be a part of a topic or of the name of a file, which all sources have in common.
fn refuse_misspelt_source(location: &str) -> Result<(), KeyError> {
    // What follows a dollar is a variable of the environment.
    let parts = location.split('{').zip(location.split('{').skip(1));
    let mut names = parts.filter(|(before, _)| !before.ends_with('$')).filter_map(|(_, rest)| rest.split_once('}'));
    match names.any(|(name, _)| name != "source" && nearest(name, &["source"]).is_some()) {
        true => Err(problem("location", "what stands in braces is not known; did you mean “{source}”?")),
        false => Ok(()),
    }
}

/// Checks a file for results. Returns what may be right later.
fn check_file_location(path: &Path) -> Result<Vec<KeyError>, KeyError> {
    let shown = shown(path);
    if path.is_dir() {
        let text = format!("{} is a folder. Write a file in it, such as {{source}}.jsonl", shown.display());
        return Err(problem("location", text));
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    if folder.is_dir() {
        return Ok(folders::doubt(folder).into_iter().map(|text| problem("location", text)).collect());
    }
    let folder = shown.parent().unwrap_or(&shown).display();
    Ok(vec![problem("location", format!("there is no folder {folder}. Make it, or write to another one"))])
}

/// A path without what looks like a password: it may be meant as an address.
fn shown(path: &Path) -> PathBuf {
    redacted(&path.to_string_lossy()).into()
}

/// Several would write over each other's lines.
pub fn check_files<'a>(sources: impl Iterator<Item = &'a SourceConfig>) -> Result<(), KeyError> {
    let mut seen = BTreeSet::new();
    for file in sources.flat_map(|source| &source.publish).filter_map(|publish| publish.file.as_ref()) {
        if !seen.insert(file) {
            let shown = shown(file);
            let shown = shown.display();
            let text = format!("{shown} is the file of several sources: write {{source}} where their names belong");
            return Err(problem("location", text));
        }
    }
    Ok(())
}

/// A path by which a file can be told from others: two names of one file give the same.
fn place_of(path: &Path) -> PathBuf {
    let in_folder = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(in_folder).unwrap_or_else(|| path.components().collect())
}

/// The path of a location that is a file.
fn file_of(location: &str) -> Option<String> {
    if location.starts_with("file:") {
        return path_behind("file:", location);
    }
    let is_path = !["-", "sei:"].contains(&location) && !location.contains("://") && !location.starts_with("unix:");
    is_path.then(|| location.into())
}

/// The path behind a word, as trtpublish takes it. What is wrong there, that says.
fn path_behind(word: &str, location: &str) -> Option<String> {
    let address = location.starts_with(word).then(|| Address::parse(location, &[]).ok());
    address.flatten().map(|address| address.path)
}
