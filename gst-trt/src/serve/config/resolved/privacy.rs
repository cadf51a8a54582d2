// SPDX-License-Identifier: MPL-2.0
//! What is hidden of the pictures of a source.

use gsttrt_core::analytics::parse;
use gsttrt_core::image::privacy::PolygonList;

use super::super::properties::{AnalyticsElement, ConfiguredElement, ElementProperties, PrivacyElement};
use super::super::wording::{self, KeyError, problem};
use super::Config;

impl Config {
    /// Checks that what is to be hidden is there: else it would be seen.
    pub(super) fn check_privacy(
        &self,
        privacy: &ElementProperties<PrivacyElement>,
        analytics: Option<&ElementProperties<AnalyticsElement>>,
        model: &str,
        on_objects: &[String],
    ) -> Result<(), KeyError> {
        let names =
            |key| privacy.get(key).unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty());
        if PrivacyElement::ONLY.iter().all(|key| names(key).next().is_none()) {
            return Err(problem("privacy", "[privacy] hides nothing: write blur, pixelate or mask"));
        }
        let classes = self.classes_of_objects(std::iter::once(model).chain(on_objects.iter().map(String::as_str)));
        for key in ["blur", "pixelate"] {
            let is_known = |name: &str| {
                name == "*"
                    || name.parse::<u32>().is_ok()
                    || classes.as_ref().is_none_or(|classes| classes.contains(&name))
            };
            if let Some(unknown) = names(key).find(|name| !is_known(name)) {
                let known = classes.into_iter().flatten();
                return Err(problem(
                    key,
                    format!("model “{model}”: {}", wording::unknown_name("class", unknown, known)),
                ));
            }
        }
        let mask = privacy.get("mask").unwrap_or_default();
        if PolygonList::is_meant(mask) {
            return PolygonList::parse(mask).map(drop).map_err(|error| problem("mask", error.message()));
        }
        let mut wanted = names("mask").peekable();
        if wanted.peek().is_none() {
            return Ok(());
        }
        let Some(analytics) = analytics else {
            return Err(problem(
                "mask",
                "names are those of zones of [analytics], which is not there: add it, or write polygons",
            ));
        };
        if analytics.get("draw-zones") == Some("false") {
            return Err(problem("mask", "it needs the zones on frames: leave draw-zones = false out of [analytics]"));
        }
        // It was read before.
        let stream = analytics.get("config-stream").and_then(|number| number.parse().ok()).unwrap_or_default();
        let zones = parse::parse(analytics.get("config").unwrap_or_default(), stream).map(|config| config.zones);
        let zones = zones.map_err(|error| problem("mask", error.message()))?;
        let known = || zones.iter().map(|zone| zone.name.as_str());
        match wanted.find(|name| known().all(|zone| zone != *name)) {
            Some(unknown) => Err(problem("mask", wording::unknown_name("zone", unknown, known()))),
            None => Ok(()),
        }
    }
}
