// SPDX-License-Identifier: MPL-2.0
//! How objects come from one camera to another.

use std::collections::HashMap;

use crate::error::{Error, ErrorKind, Result};

/// The name of the property.
pub const NAME: &str = "camera-links";

/// The word that the property has for what it links.
pub(super) const CAMERAS: &str = "cameras";

/// Links of a table.
const MAX_LINKS: usize = 10_000;
/// Cameras of a link.
const MAX_CAMERAS: usize = 100;
/// Bytes of a camera's name.
pub const MAX_NAME: usize = 256;
/// Seconds from one camera to another: a hundred years.
const MAX_SECONDS: f64 = 3.2e9;
const NANOSECONDS: f64 = 1e9;

/// Cameras that objects pass between, each with each.
#[derive(Clone, Debug, PartialEq)]
pub struct CameraLink {
    pub cameras: Vec<String>,
    pub passage: CameraPassage,
}

/// When an object may be seen by another camera.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CameraPassage {
    /// Both see the same place, so that an object may be in sight of both.
    pub overlap: bool,
    /// Nanoseconds from the last sight at the one to the first sight at the other, at least and at most.
    pub min_travel: u64,
    pub max_travel: Option<u64>,
}

/// Reads links like `gate,hall:5-120;hall,yard:overlap;yard,street:30-`: names of cameras, and the seconds from one to another, at
/// least and at most. Without times any will do.
///
/// # Errors
/// `Settings`, where they cannot be read.
pub fn parse(text: &str) -> Result<Vec<CameraLink>> {
    let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| link(part).map_err(|cause| unreadable(part, &cause))).collect()
}

fn unreadable(part: &str, cause: &str) -> Error {
    let shown: String = part.chars().take(64).collect();
    Error::new(ErrorKind::Settings, format!("{NAME}: “{shown}” cannot be read")).cause(cause).remedy(
        "Write the names of cameras, and how many seconds objects take from one to another, like \
         gate,hall:5-120;hall,yard:overlap",
    )
}

fn link(part: &str) -> std::result::Result<CameraLink, String> {
    let (names, rule) = part.split_once(':').unwrap_or((part, "0-"));
    let cameras: Vec<String> = names.split(',').map(|name| name.trim().to_string()).collect();
    let passage = match rule.trim() {
        "overlap" => CameraPassage { overlap: true, ..CameraPassage::default() },
        times => {
            let (least, most) = times.split_once('-').ok_or_else(|| format!("“{times}” is no time like 5-120"))?;
            let most = Some(most.trim()).filter(|most| !most.is_empty());
            CameraPassage {
                overlap: false,
                min_travel: nanoseconds(least)?,
                max_travel: most.map(nanoseconds).transpose()?,
            }
        }
    };
    Ok(CameraLink { cameras, passage })
}

fn nanoseconds(text: &str) -> std::result::Result<u64, String> {
    let seconds = text.trim().parse::<f64>().ok().filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds));
    seconds
        .map(|seconds| (seconds * NANOSECONDS).round() as u64)
        .ok_or_else(|| format!("“{text}” is no number of seconds"))
}

/// Links as they are read.
pub fn to_text(links: &[CameraLink]) -> String {
    let seconds = |nanoseconds: u64| (nanoseconds as f64 / NANOSECONDS).to_string();
    let link = |CameraLink { cameras, passage }: &CameraLink| {
        let rule = match passage {
            CameraPassage { overlap: true, .. } => "overlap".into(),
            CameraPassage { min_travel, max_travel, .. } => {
                format!("{}-{}", seconds(*min_travel), max_travel.map_or(String::new(), seconds))
            }
        };
        format!("{}:{rule}", cameras.join(","))
    };
    links.iter().map(link).collect::<Vec<_>>().join(";")
}

/// The rules of all pairs of cameras.
#[derive(Debug, Default)]
pub struct CameraPassages(HashMap<String, HashMap<String, CameraPassage>>);

impl CameraPassages {
    /// `cameras` is the word that the user has for them, such as sources.
    ///
    /// # Errors
    /// `Settings`, where a link is none, or a pair of cameras has two.
    pub fn new(links: &[CameraLink], cameras: &str) -> Result<CameraPassages> {
        if links.len() > MAX_LINKS {
            let what = format!("There are {} links of {cameras}, and {MAX_LINKS} is the most", links.len());
            return Err(Error::new(ErrorKind::Settings, what).remedy("Leave out those that any time will do for"));
        }
        let mut passages = CameraPassages::default();
        for link in links {
            passages.add(link, cameras).map_err(|cause| {
                let names: String = link.cameras.join(",").chars().take(64).collect();
                Error::new(ErrorKind::Settings, format!("The link of the {cameras} {names} makes no sense"))
                    .cause(cause)
                    .remedy(format!(
                        "Name two or more {cameras} in a link, each pair of them in one link alone, and the shortest time before \
                         the longest one"
                    ))
            })?;
        }
        Ok(passages)
    }

    fn add(&mut self, CameraLink { cameras, passage }: &CameraLink, called: &str) -> std::result::Result<(), String> {
        if !(2..=MAX_CAMERAS).contains(&cameras.len()) {
            return Err(format!("the number of {called} is {}, not 2 to {MAX_CAMERAS}", cameras.len()));
        }
        if let Some(name) = cameras.iter().find(|name| name.is_empty() || name.len() > MAX_NAME) {
            return Err(format!("a name has {} bytes, not 1 to {MAX_NAME}", name.len()));
        }
        if passage.max_travel.is_some_and(|most| most < passage.min_travel) {
            return Err("the shortest time is longer than the longest one".into());
        }
        for (number, one) in cameras.iter().enumerate() {
            for other in &cameras[..number] {
                if one == other {
                    return Err(format!("“{one}” is there twice"));
                }
                for (from, to) in [(one, other), (other, one)] {
                    let of_camera = self.0.entry(from.clone()).or_default();
                    if of_camera.insert(to.clone(), *passage).is_some() {
                        return Err(format!("“{from}” and “{to}” have another link already"));
                    }
                }
            }
        }
        Ok(())
    }

    /// That of two cameras, in whatever order.
    pub fn between(&self, one: &str, other: &str) -> CameraPassage {
        self.0.get(one).and_then(|of_camera| of_camera.get(other)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn passages(text: &str) -> Result<CameraPassages> {
        parse(text).and_then(|links| CameraPassages::new(&links, CAMERAS))
    }

    #[test]
    fn links_say_how_long_it_takes() {
        let text = "gate,hall:5-120;hall,yard:overlap;a,b,c:0.5-";
        let links = parse(&format!(" {}; ", text.replace(',', " , "))).unwrap();
        assert_eq!(to_text(&links), text);
        let passages = CameraPassages::new(&links, CAMERAS).unwrap();
        let timed = CameraPassage { overlap: false, min_travel: 5 * SECOND, max_travel: Some(120 * SECOND) };
        assert_eq!([passages.between("gate", "hall"), passages.between("hall", "gate")], [timed; 2]);
        assert!(passages.between("yard", "hall").overlap);
        for (one, other) in [("a", "b"), ("c", "a"), ("b", "c")] {
            assert_eq!(passages.between(one, other).min_travel, SECOND / 2, "{one} {other}");
        }
        for (one, other) in [("gate", "yard"), ("a", "gate"), ("x", "y")] {
            assert_eq!(passages.between(one, other), CameraPassage::default(), "{one} {other}");
        }
        assert_eq!(to_text(&parse("a,b").unwrap()), "a,b:0-", "any time will do");
        assert!(parse(" ; ").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_link_is_told() {
        for (text, said) in [
            ("a,b:5", "“5” is no time like 5-120"),
            ("a,b:x-9", "“x” is no number of seconds"),
            ("a,b:-5-9", "“” is no number of seconds"),
            ("a,b:1-NaN", "“NaN” is no number of seconds"),
            ("a,b:1-inf", "“inf” is no number of seconds"),
            ("a,b:1-9e99", "“9e99” is no number of seconds"),
            ("a,b:over", "“over” is no time"),
            ("a", "The link of the cameras a makes no sense: the number of cameras is 1, not 2 to 100"),
            ("a,", "a name has 0 bytes"),
            ("a,a", "“a” is there twice"),
            ("a,b:9-5", "the shortest time is longer"),
            ("a,b:0-;b,a:overlap", "have another link already"),
        ] {
            let error = passages(text).unwrap_err();
            assert!(error.message().contains(said), "{text}: {error}");
            assert_eq!(error.kind(), ErrorKind::Settings);
        }
        let long = format!("{},b", "n".repeat(MAX_NAME + 1));
        assert!(passages(&long).is_err());
        let many: Vec<String> = (0..=MAX_CAMERAS).map(|number| number.to_string()).collect();
        assert!(passages(&many.join(",")).is_err());
        let many: Vec<String> = (0..=MAX_LINKS).map(|number| format!("{number},x")).collect();
        assert!(passages(&many.join(";")).is_err());
        let links = [parse("a").unwrap(), parse(&many.join(";")).unwrap()];
        for (links, said) in links.iter().zip(["The link of the sources a", "There are 10001 links of sources"]) {
            let error = CameraPassages::new(links, "sources").unwrap_err().message();
            assert!(error.starts_with(said) && !error.contains("camera"), "{error}");
        }
    }
}
