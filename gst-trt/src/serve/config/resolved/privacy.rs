// SPDX-License-Identifier: MPL-2.0
//! What is hidden of the pictures of a source.

use gsttrt_core::analytics::parse;
use gsttrt_core::image::privacy::PolygonList;

use super::super::properties::{AnalyticsElement, ConfiguredElement, ElementProperties, PrivacyElement};
use super::super::wording::{self, KeyError, problem};

/// Checks that what is to be hidden is looked for in each frame, and that zones are there: else it would be seen. Frames in
/// which less than the gate moves are not inferred.
pub(super) fn check_privacy(
    privacy: &ElementProperties<PrivacyElement>,
    analytics: Option<&ElementProperties<AnalyticsElement>>,
    gate: f32,
) -> Result<(), KeyError> {
    let names = |key| privacy.get(key).unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty());
    if PrivacyElement::ONLY.iter().all(|key| names(key).next().is_none()) {
        return Err(problem("privacy", "[privacy] hides nothing: write blur, pixelate or mask"));
    }
    if let Some(key) = ["blur", "pixelate"].into_iter().find(|key| gate > 0.0 && names(key).next().is_some()) {
        let text = "what is smaller than motion-gate would be seen: leave motion-gate out, also of preprocess";
        return Err(problem(key, text));
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
