// SPDX-License-Identifier: MPL-2.0
//! What is hidden of each frame: objects by their classes, zones by their names, and polygons.

use std::sync::Arc;

use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::image::geometry::{BBox, Rect};
use gsttrt_core::image::overlay::Annotation;
use gsttrt_core::image::privacy::{Effect, HiddenArea, PolygonList, QuadMask};

use crate::gst::classes_event::{ALL, ClassesOfModels};
use crate::gst::meta::{unseen, zones};

/// Corners in pixels.
type Polygon = Vec<[f32; 2]>;

/// What the user typed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrivacySettings {
    /// Classes, separated by commas.
    pub blur: String,
    pub pixelate: String,
    /// Zones, separated by commas, or polygons.
    pub mask: String,
}

/// The same, read, for frames of one size.
#[derive(Default)]
pub struct Privacy {
    settings: PrivacySettings,
    /// By class. What comes later lies on top.
    hidden: Vec<(Effect, Vec<String>)>,
    mask: MaskedParts,
    /// The last corners, and the quads of them.
    masked: Option<(Vec<Polygon>, Arc<QuadMask>)>,
    /// Those that objects can have, where that is known, and whether the names above were looked up in them.
    classes: Option<ClassesOfModels>,
    are_checked: bool,
}

#[derive(Default)]
enum MaskedParts {
    #[default]
    Nothing,
    Zones(Vec<String>),
    Polygons(PolygonList),
}

impl Privacy {
    /// # Errors
    /// `Settings`, if the polygons cannot be read.
    pub fn new(settings: &PrivacySettings) -> Result<Self> {
        let mask = match &*settings.mask {
            text if text.trim().is_empty() => MaskedParts::Nothing,
            text if PolygonList::is_meant(text) => MaskedParts::Polygons(PolygonList::parse(text)?),
            text => MaskedParts::Zones(names(text)),
        };
        let hidden = [(Effect::Blur, names(&settings.blur)), (Effect::Pixelate, names(&settings.pixelate))];
        let hidden = hidden.into_iter().filter(|(_, names)| !names.is_empty()).collect();
        Ok(Privacy { settings: settings.clone(), hidden, mask, ..Privacy::default() })
    }

    /// Takes in what the user typed since.
    ///
    /// # Errors
    /// `Settings`, if the polygons cannot be read, or no object can have a class: those of before stay, and all else counts.
    pub fn follow(&mut self, settings: &PrivacySettings) -> Result<()> {
        if self.settings == *settings {
            return Ok(());
        }
        let (mut wanted, mut wrong) = (settings.clone(), Ok(()));
        if let Err(unreadable) = Privacy::new(&wanted) {
            (wanted.mask, wrong) = (self.settings.mask.clone(), Err(unreadable));
        }
        let mut next = Privacy { classes: self.classes.clone(), ..Privacy::new(&wanted)? };
        if self.are_checked
            && let Err(unknown) = next.check_classes()
        {
            let PrivacySettings { blur, pixelate, .. } = self.settings.clone();
            let wanted = PrivacySettings { blur, pixelate, mask: wanted.mask };
            next = Privacy { classes: next.classes, ..Privacy::new(&wanted)? };
            wrong = wrong.and(Err(unknown));
        }
        *self = next;
        wrong
    }

    /// Objects have these classes from now on.
    pub fn know(&mut self, classes: ClassesOfModels) {
        (self.classes, self.are_checked) = (Some(classes), false);
    }

    /// Looks the names up in the classes that objects can have, once these are known.
    ///
    /// # Errors
    /// `Settings`, if no object can have one of them: what is meant would not be hidden.
    pub fn check_classes(&mut self) -> Result<()> {
        let Some(classes) = self.classes.as_ref().filter(|_| !self.are_checked) else { return Ok(()) };
        for (effect, names) in &self.hidden {
            let property = match effect {
                Effect::Blur => "blur",
                Effect::Pixelate => "pixelate",
            };
            names.iter().try_for_each(|name| classes.check_or_all(property, name))?;
        }
        self.are_checked = true;
        Ok(())
    }

    pub fn settings(&self) -> &PrivacySettings {
        &self.settings
    }

    /// What is hidden of a frame of that size: objects, or all of it, where it may show others.
    pub fn areas(&self, frame: &gst::BufferRef, objects: &[Annotation], size: (u32, u32)) -> Vec<HiddenArea> {
        if unseen::is_marked(frame) {
            let all =
                self.hidden.iter().filter_map(|(effect, _)| HiddenArea::new(Rect::from(size).into(), *effect, size));
            return all.collect();
        }
        // They may show what is named.
        let unseen: Vec<BBox> = unseen::marked_regions(frame).map(BBox::from).collect();
        let areas = self.hidden.iter().flat_map(|(effect, names)| {
            let is_named = |object: &Annotation| names.iter().any(|name| name == ALL || object.is_called(name));
            let named = objects.iter().filter(move |object| !object.of_frame && is_named(object));
            let named = named.filter_map(move |object| HiddenArea::of(object, *effect, size));
            named.chain(unseen.iter().filter_map(move |bbox| HiddenArea::new(*bbox, *effect, size)))
        });
        areas.collect()
    }

    /// What is black on a frame of that size.
    ///
    /// # Errors
    /// `Settings`, if a zone is not on the frame, or a polygon not in it: what is asked for would not be hidden.
    pub fn mask(&mut self, frame: &gst::BufferRef, size: (u32, u32)) -> Result<Option<&Arc<QuadMask>>> {
        let polygons = match &self.mask {
            MaskedParts::Nothing => return Ok(None),
            MaskedParts::Polygons(list) => list.of(size),
            MaskedParts::Zones(names) => zones_called(names, frame, size)?,
        };
        self.masked.take_if(|(of, _)| *of != polygons);
        Ok(Some(match &mut self.masked {
            Some((_, mask)) => mask,
            none => {
                let mask = Arc::new(QuadMask::new(&polygons, size)?);
                &none.insert((polygons, mask)).1
            }
        }))
    }
}

fn names(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect()
}

fn zones_called(names: &[String], frame: &gst::BufferRef, size: (u32, u32)) -> Result<Vec<Polygon>> {
    let all = zones::polygons(frame, size);
    let corners = |name: &String| {
        let found: Vec<_> = all.iter().filter(|(zone, _)| zone == name).map(|(_, corners)| corners.clone()).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let known: Vec<&str> = all.iter().map(|(zone, _)| &**zone).collect();
        let there = if known.is_empty() { "no zones".into() } else { format!("these zones: {}", known.join(", ")) };
        Err(Error::new(ErrorKind::Settings, format!("The zone “{name}” of mask is not on the frame"))
            .cause(format!("the frame has {there}"))
            .remedy(
                "Zones come from trtanalytics before trtoverlay, with draw-zones=true. Or write the corners: \
                 mask=0,0,0.5,0,0.5,0.25",
            ))
    };
    Ok(names.iter().map(corners).collect::<Result<Vec<_>>>()?.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn privacy(blur: &str, pixelate: &str, mask: &str) -> Result<Privacy> {
        Privacy::new(&PrivacySettings { blur: blur.into(), pixelate: pixelate.into(), mask: mask.into() })
    }

    #[test]
    fn classes_are_named_or_numbered_or_all() {
        let object = |label: &'static str, class| Annotation {
            bbox: gsttrt_core::image::geometry::BBox::new(1.0, 1.0, 9.0, 9.0),
            class,
            of_frame: false,
            ..Annotation::of_frame(label.into())
        };
        let objects = [object("person", Some(0)), object("face", None), object("", Some(7)), object("*", None)];
        gst::init().unwrap();
        let frame = gst::Buffer::new();
        let count = |blur, pixelate| privacy(blur, pixelate, "").unwrap().areas(&frame, &objects, (64, 64)).len();
        for (blur, expected) in
            [("", 0), (" , ", 0), ("person", 1), ("person, face", 2), ("7", 1), ("Person", 0), ("*", 4), ("cat", 0)]
        {
            assert_eq!((count(blur, ""), count("", blur)), (expected, expected), "{blur}");
        }
        assert_eq!(count("person", "*"), 5, "both, and the second lies on top");
        let of_frame = [Annotation::of_frame("person".into())];
        assert!(privacy("*", "", "").unwrap().areas(&frame, &of_frame, (64, 64)).is_empty());
    }

    #[test]
    fn another_mask_is_made_where_corners_change() {
        gst::init().unwrap();
        let frame = gst::Buffer::new();
        let mut privacy = privacy("", "", "0,0,1,0,1,1").unwrap();
        let first = privacy.mask(&frame, (64, 64)).unwrap().unwrap().clone();
        assert!(Arc::ptr_eq(&first, privacy.mask(&frame, (64, 64)).unwrap().unwrap()));
        assert!(!Arc::ptr_eq(&first, privacy.mask(&frame, (64, 32)).unwrap().unwrap()));
    }

    #[test]
    fn a_mask_that_cannot_be_read_leaves_that_of_before() {
        let mut privacy = privacy("face", "", "0,0,1,0,1,1").unwrap();
        let wrong = PrivacySettings { mask: "0,0,1".into(), blur: "person".into(), ..PrivacySettings::default() };
        assert!(privacy.follow(&wrong).unwrap_err().message().contains("3 corners or more"));
        assert_eq!((&*privacy.settings().mask, &*privacy.settings().blur), ("0,0,1,0,1,1", "person"));
    }
}
