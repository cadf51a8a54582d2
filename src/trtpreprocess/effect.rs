// SPDX-License-Identifier: MPL-2.0
//! What is set of trtpreprocess, and has no effect on the tensors that it makes.

use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::image::align::Align;
use gsttrt_core::image::geometry::ResizeMode;
use gsttrt_core::image::transform::InputSpec;
use gsttrt_core::options::names_of_set;

use super::objects::ObjectOptions;
use super::overrides::Tiling;
use super::settings::{PreprocessSettings, SETTINGS};

/// What properties of that name need to have an effect.
struct Need {
    properties: &'static [&'static str],
    what: &'static str,
    is_met: fn(&PreprocessSettings, &Tiling, ResizeMode) -> bool,
}

const NEEDS: [Need; 7] = [
    Need {
        properties: &["shortest-edge"],
        what: "resize=center-crop",
        is_met: |_, _, fit| fit == ResizeMode::CenterCrop,
    },
    Need {
        properties: &["pad-value"],
        what: "resize=letterbox or letterbox-top-left, or align=face, box or line",
        is_met: |settings, _, fit| {
            matches!(fit, ResizeMode::Letterbox | ResizeMode::LetterboxTopLeft) || settings.align != Align::None
        },
    },
    Need {
        properties: &["slice-overlap", "slice-frame"],
        what: "slices or slice-size",
        is_met: |_, tiling, _| matches!(tiling, Tiling::Slices(_)),
    },
    Need {
        properties: &["region-list"],
        what: "regions=list",
        is_met: |_, tiling, _| matches!(tiling, Tiling::List(_)),
    },
    Need {
        properties: &[
            "object-classes",
            "min-object-size",
            "object-padding",
            "max-objects",
            "reclassify-interval",
            "align",
        ],
        what: "regions=objects",
        is_met: |_, tiling, _| matches!(tiling, Tiling::Objects(_)),
    },
    Need {
        properties: &["motion-gate"],
        what: "regions=frame or list: objects are looked at by the trtpreprocess of the first model",
        is_met: |_, tiling, _| !matches!(tiling, Tiling::Objects(_)),
    },
    Need {
        properties: &["motion-threshold", "motion-refresh"],
        what: "motion-gate",
        is_met: |settings, tiling, _| settings.motion_gate > 0.0 && !matches!(tiling, Tiling::Objects(_)),
    },
];

/// A warning that names the properties without effect, if there are any. `fit` is how frames are laid into tensors.
pub fn without_effect(settings: &PreprocessSettings, tiling: &Tiling, fit: ResizeMode) -> Option<Error> {
    let unmet =
        |name| NEEDS.iter().find(|need| need.properties.contains(&name) && !(need.is_met)(settings, tiling, fit));
    let (names, needs): (Vec<_>, Vec<_>) = names_of_set(&SETTINGS, settings.clone())
        .filter_map(|name| Some((name, format!("{name} needs {}", unmet(name)?.what))))
        .unzip();
    let (has, them) = match names.len() {
        0 => return None,
        1 => ("has", "it"),
        _ => ("have", "them"),
    };
    Some(
        Error::new(ErrorKind::Settings, format!("{} {has} no effect", names.join(", ")))
            .cause(needs.join(", "))
            .remedy(format!("Set what is needed, or leave {them} unset")),
    )
}

/// A warning where the model takes lines of text of several widths, and none become such tensors.
pub fn without_widths(tiling: &Tiling, spec: &InputSpec) -> Option<Error> {
    // Of a frame, or of its first part, the shape decides on the width of all.
    let has_no_effect =
        matches!(tiling, Tiling::Objects(ObjectOptions { align, .. }) if !matches!(align, Align::Box | Align::Line));
    (spec.has_widths() && has_no_effect).then(|| {
        Error::new(ErrorKind::Settings, "max-input-width of trtinfer has no effect")
            .cause("all tensors have the width of input-size")
            .remedy("Set regions=objects align=line on trtpreprocess for lines of text, or leave max-input-width unset")
    })
}

#[cfg(test)]
mod tests {
    use gsttrt_core::image::slices::{Division, Slices};

    use super::*;

    #[test]
    fn widths_are_for_lines_of_text() {
        let many: InputSpec = "cpu f32 1x3x48x320 nchw bgr letterbox:0 scale:1 max-width:640 x".parse().unwrap();
        let objects = |align| Tiling::Objects(ObjectOptions { align, ..ObjectOptions::default() });
        let said = |tiling: &Tiling, spec: &InputSpec| without_widths(tiling, spec).is_some();
        assert!(
            !said(&objects(Align::Line), &many) && !said(&objects(Align::Box), &many) && !said(&Tiling::Frame, &many)
        );
        let slices = Slices { division: Division::Count(1, 8), overlap: 0.0, with_frame: false };
        assert!(!said(&Tiling::Slices(slices), &many), "they may be lines");
        assert!(said(&objects(Align::None), &many) && said(&objects(Align::Face), &many));
        let one = InputSpec { widest: 0, ..many };
        assert!(!said(&objects(Align::None), &one));
    }

    #[test]
    fn each_need_is_of_properties_and_can_be_met() {
        for name in NEEDS.iter().flat_map(|need| need.properties) {
            assert!(SETTINGS.iter().any(|setting| setting.spec.name == *name), "{name}");
        }
        let tilings = ["slices=2x1", "regions=list", "regions=objects", "motion-gate=0.5"].map(|text| {
            let mut settings = PreprocessSettings { region_list: "0,0,1,1".into(), ..PreprocessSettings::default() };
            let (name, value) = text.split_once('=').unwrap();
            let setting = SETTINGS.iter().find(|setting| setting.spec.name == name).unwrap();
            setting.parse(&mut settings, value).unwrap();
            let tiling = settings.read().unwrap().tiling;
            (settings, tiling)
        });
        let fits = [ResizeMode::Letterbox, ResizeMode::LetterboxTopLeft, ResizeMode::Stretch, ResizeMode::CenterCrop];
        for need in &NEEDS {
            let met =
                tilings.iter().flat_map(|(settings, tiling)| fits.map(|fit| (need.is_met)(settings, tiling, fit)));
            let met = met.filter(|is_met| *is_met).count();
            assert!(met > 0 && met < tilings.len() * fits.len(), "{}", need.what);
        }
    }
}
