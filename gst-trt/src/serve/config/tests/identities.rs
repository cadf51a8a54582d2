// SPDX-License-Identifier: MPL-2.0
//! `[identities]`: one id for the same object on several sources.

use gsttrt_core::identity::{CameraLink, CameraPassage, IdentityOptions, links};

use super::{load, of_tests, right};
use crate::scratch::scratch;

const SECOND: u64 = 1_000_000_000;

fn on_objects(name: &str) -> String {
    format!("[[model]]\nname = \"{name}\"\nfile = \"{}\"\non = \"objects\"\n\n", of_tests("shapes-cls.onnx"))
}

/// Two sources, with a model on objects, and what is written of identities.
fn with(identities: &str, of_source: &str) -> String {
    let second = "[[source]]\nname = \"t\"\naddress = \"a.mp4\"\n";
    on_objects("reid") + identities + "\n" + &right() + of_source + second
}

#[test]
fn sources_share_identities() {
    let folder = scratch("config-sources_share_identities");
    let load = |text: &str| load(&folder, "shared.toml", text.as_bytes());
    let config = load(&with("[identities]", "")).unwrap();
    assert_eq!(config.identities.unwrap().options, IdentityOptions::default());
    assert!(config.sources.iter().all(|source| source.identities.as_deref() == Some("reid")));
    // A source without the model has none, and needs no ids.
    let config = load(&with("[identities]", "on-objects = []\ntrack = false\nanalytics = false\nrecord = false\n"));
    let of_sources: Vec<_> = config.unwrap().sources.into_iter().map(|source| source.identities).collect();
    assert_eq!(of_sources, [None, Some("reid".into())]);
    assert!(load(&with("", "")).unwrap().identities.is_none());

    let keys = "[identities]\nmodel = \"reid\"\nthreshold = 0.5\nmargin = 0\nlooks = 5\nmax-age = \"1d\"\n\
                max-identities = 50\n[[identities.links]]\nsources = [\"s\", \"t\"]\nmin-travel = \"5s\"\nmax-travel = 60\n";
    let config = load(
        &(with(keys, "")
            + "[[identities.links]]\nsources = [\"t\", \"u\"]\noverlap = true\n[[source]]\nname = \"u\"\naddress = \"b.mp4\"\n"),
    );
    let timed = CameraPassage { overlap: false, min_travel: 5 * SECOND, max_travel: Some(60 * SECOND) };
    let wanted = IdentityOptions {
        threshold: 0.5,
        margin: 0.0,
        looks: 5,
        max_age: 86_400 * SECOND,
        max_identities: 50,
        links: vec![
            CameraLink { cameras: vec!["s".into(), "t".into()], passage: timed },
            CameraLink {
                cameras: vec!["t".into(), "u".into()],
                passage: CameraPassage { overlap: true, ..CameraPassage::default() },
            },
        ],
    };
    let options = config.unwrap().identities.unwrap().options;
    assert_eq!((links::to_text(&options.links), options), ("s,t:5-60;t,u:overlap".into(), wanted));
}

#[test]
fn mistakes_in_identities_are_told() {
    let folder = scratch("config-mistakes_in_identities");
    let load = |text: &str| load(&folder, "shared.toml", text.as_bytes());
    let link = |keys: &str| format!("[identities]\n[[identities.links]]\n{keys}");
    for (identities, said) in [
        ("[identities]\ntreshold = 0.5", "line 7: there is no key “treshold” here; did you mean “threshold”?"),
        (
            "[[identities]]\nlooks = 1",
            "line 6: there is one table of that name. Write it in single brackets, as [identities]",
        ),
        ("[identities]\nmodel = \"red\"", "line 7: there is no model “red”; did you mean “reid”?"),
        ("[identities]\nmodel = \"m\"", "model “m” sees frames"),
        ("[identities]\nthreshold = 1.5", "line 7, threshold: it is a cosine, from 0 to 1"),
        ("[identities]\nthreshold = nan", "line 7, threshold: it is a cosine, from 0 to 1"),
        ("[identities]\nmargin = -0.1", "line 7, margin: it is a cosine, from 0 to 1"),
        ("[identities]\nlooks = 0", "line 7, looks: it is a number from 1 to 100"),
        ("[identities]\nmax-identities = 100001", "it is a number from 1 to 100000"),
        ("[identities]\nmax-age = 60", "a time is a text: write it with its unit"),
        (&link("sources = [\"s\", \"tt\"]"), "line 8, sources: there is no source “tt”"),
        (
            &link("sources = [\"s\"]"),
            "The link of the sources s makes no sense: the number of sources is 1, not 2 to 100",
        ),
        (&link("sources = [\"s\", \"s\"]"), "“s” is there twice"),
        (&link("sources = [\"s\", \"t\"]\noverlap = true\nmin-travel = 5"), "line 9: objects need no time"),
        (&link("sources = [\"s\", \"t\"]\nmin-travel = 5\nmax-travel = 4"), "the shortest time is longer"),
        (
            &link("sources = [\"s\", \"t\"]\n[[identities.links]]\nsources = [\"t\", \"s\"]"),
            "line 10: The link of the sources t,s",
        ),
    ] {
        let error = load(&with(identities, "")).unwrap_err();
        assert!(error.contains(said) && !error.contains("cameras"), "{identities}: {error}");
    }
    let without_ids = "track = false\nanalytics = false\nrecord = false\n";
    let error = load(&with("[identities]", without_ids)).unwrap_err();
    assert!(error.contains("[identities] needs the ids of [track]") && error.contains("“reid”"), "{error}");
    let error = load(&(on_objects("other") + &with("[identities]", ""))).unwrap_err();
    assert!(error.contains("several models see objects: set model"), "{error}");
    let error = load(&("[identities]\n".to_string() + &right())).unwrap_err();
    assert!(error.contains("line 1: it needs a [[model]] with on = \"objects\""), "{error}");
    // Elements share by it, which the service sets.
    let matching = on_objects("face").replace("\n\n", "\nmatch = { gallery = \"g.jsonl\", identities = \"x\" }\n\n");
    let error = load(&(matching + &right())).unwrap_err();
    assert!(error.contains("no key “identities”"), "{error}");
}
