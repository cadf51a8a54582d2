// SPDX-License-Identifier: MPL-2.0
//! The known properties of an object that is drawn.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use super::color::{Rgb, class_color};
use crate::image::geometry::BBox;
use crate::image::keypoints::ObjectKeypoints;
use crate::image::masks::Mask;
use crate::image::rotated::Corners;

/// An object in a frame, from any source. Only the box is always known.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotation<'a> {
    /// Pixels of the frame.
    pub bbox: BBox,
    /// The corners of a rotated box, drawn in place of `bbox`.
    pub corners: Option<Corners>,
    /// Id of its class.
    pub class: Option<u32>,
    /// Name of its class; empty where it has none.
    pub label: Cow<'a, str>,
    /// 0..1.
    pub confidence: Option<f32>,
    /// The object's id in all frames.
    pub track_id: Option<u64>,
    /// In pixels of the frame.
    pub keypoints: Option<ObjectKeypoints<'a>>,
    pub mask: Option<Arc<Mask>>,
    /// What classifiers of objects have found.
    pub attributes: Vec<Attribute>,
    /// What else is written in its tag, such as the zones that it is in.
    pub notes: Vec<String>,
    /// It is a class of the whole frame: it has no box, and is written in the upper left corner.
    pub of_frame: bool,
}

/// A class or a text of an object, of a model that looks at objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    pub label: String,
    pub class: Option<u32>,
    /// 0..1
    pub confidence: Option<f32>,
    /// The label was read in the picture.
    pub is_text: bool,
    /// Of a clip: when it begins and ends, in nanoseconds of stream time.
    pub span: Option<[u64; 2]>,
}

impl<'a> Annotation<'a> {
    /// A class of the whole frame, of which only the name is known.
    pub fn of_frame(label: Cow<'a, str>) -> Self {
        Annotation {
            bbox: BBox::new(0.0, 0.0, 0.0, 0.0),
            corners: None,
            class: None,
            label,
            confidence: None,
            track_id: None,
            keypoints: None,
            mask: None,
            attributes: Vec::new(),
            notes: Vec::new(),
            of_frame: true,
        }
    }
}

impl Annotation<'_> {
    /// Whether this is the name of its class, or the number.
    pub fn is_called(&self, name: &str) -> bool {
        *name == self.label || name.parse().is_ok_and(|class: u32| self.class == Some(class))
    }

    /// By the id of the class. Without one by the label, so that each label has one colour in every frame and run.
    pub(super) fn color(&self) -> Rgb {
        class_color(self.class.unwrap_or_else(|| fnv1a(&self.label)))
    }

    /// "person 87% #12", or the parts of it that are known and wanted.
    pub(super) fn describe(&self, text: &mut String, with_id: bool) {
        text.clear();
        text.push_str(&self.label);
        if let (Some(class), true) = (self.class, text.is_empty()) {
            write!(text, "#{class}").expect("a String takes any text");
        }
        if let Some(confidence) = self.confidence {
            // NaN becomes 0.
            let percent = (confidence.clamp(0.0, 1.0) * 100.0).round() as u8;
            write!(text, "{}{percent}%", separator(text)).expect("a String takes any text");
        }
        for attribute in &self.attributes {
            write!(text, "{}{}", separator(text), attribute.label).expect("a String takes any text");
        }
        for note in &self.notes {
            write!(text, "{}{note}", separator(text)).expect("a String takes any text");
        }
        if let Some(track_id) = self.track_id.filter(|_| with_id) {
            write!(text, "{}#{track_id}", separator(text)).expect("a String takes any text");
        }
    }
}

fn separator(text: &str) -> &'static str {
    if text.is_empty() { "" } else { " " }
}

/// The hash FNV-1a of 32 bits. The standard library's may change with each release of Rust.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotation(label: &str, class: Option<u32>) -> Annotation<'_> {
        let bbox = BBox::new(0.0, 0.0, 8.0, 8.0);
        Annotation {
            bbox,
            corners: None,
            class,
            label: label.into(),
            confidence: None,
            track_id: None,
            keypoints: None,
            mask: None,
            attributes: Vec::new(),
            notes: Vec::new(),
            of_frame: false,
        }
    }

    #[test]
    fn the_text_says_what_is_known() {
        for (label, class, confidence, track_id, expected) in [
            ("person", Some(0), Some(0.874), Some(12), "person 87% #12"),
            ("person", None, None, None, "person"),
            ("", Some(7), Some(0.5), None, "#7 50%"),
            ("", None, Some(7.0), None, "100%"),
            ("", None, Some(f32::NAN), None, "0%"),
            ("", None, None, Some(3), "#3"),
            ("", None, None, None, ""),
        ] {
            let mut text = String::from("of the last one");
            Annotation { confidence, track_id, ..annotation(label, class) }.describe(&mut text, true);
            assert_eq!(text, expected);
            Annotation { confidence, track_id, ..annotation(label, class) }.describe(&mut text, false);
            assert_eq!(text, expected.split('#').next().filter(|_| track_id.is_some()).unwrap_or(expected).trim_end());
        }
    }

    #[test]
    fn attributes_follow_the_label() {
        let attribute = |label: &str| Attribute {
            label: label.into(),
            class: None,
            confidence: Some(0.5),
            is_text: false,
            span: None,
        };
        let attributes = vec![attribute("red"), attribute("round")];
        let mut text = String::new();
        let notes = vec!["door 4 s".to_string()];
        Annotation { attributes, notes, track_id: Some(7), ..annotation("disc", None) }.describe(&mut text, true);
        assert_eq!(text, "disc red round door 4 s #7");
    }

    #[test]
    fn a_label_has_one_color() {
        assert_eq!(annotation("cat", None).color(), annotation("cat", None).color());
        assert_ne!(annotation("cat", None).color(), annotation("dog", None).color());
        assert_eq!(annotation("cat", Some(3)).color(), class_color(3));
        // As published by the authors of the hash.
        assert_eq!((fnv1a(""), fnv1a("a"), fnv1a("foobar")), (0x811C_9DC5, 0xE40C_292C, 0xBF9C_F968));
    }
}
