// SPDX-License-Identifier: MPL-2.0
//! Texts of the whole frame, in a `GstCustomMeta` called [`NAME`], whose structure has an array `texts` of structures, one for each model
//! that has read something.
//!
//! A structure has `text` and `confidence`, and `held` where it is the text of an earlier frame.

use std::sync::Once;

use gst::meta::CustomMeta;
use gsttrt_core::image::overlay::Annotation;
use gsttrt_core::postprocess::Instances;

pub const NAME: &str = "GstTrtTextMeta";

/// Registers the meta, once in a program.
pub fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // Without tags: it stays on the frame through all elements that change the picture.
        if !CustomMeta::is_registered(NAME) {
            CustomMeta::register_simple(NAME);
        }
    });
}

/// Attaches the text of a frame behind those of other models. Nothing is attached where nothing was read.
pub fn attach(buffer: &mut gst::BufferRef, instances: &Instances, is_held: bool) {
    let Some(found) = instances.frame_text() else { return };
    register();
    let mut text = gst::Structure::builder("text")
        .field("text", &*found.text)
        .field("confidence", f64::from(found.confidence))
        .build();
    if is_held {
        text.set("held", true);
    }
    let is_there = CustomMeta::from_buffer(buffer, NAME).is_ok();
    let meta = if is_there { CustomMeta::from_mut_buffer(buffer, NAME) } else { CustomMeta::add(buffer, NAME) };
    let Ok(mut meta) = meta else { return };
    let all = meta.mut_structure();
    let before = all.get::<gst::Array>("texts").unwrap_or_default();
    let before = before.iter().filter_map(|value| value.get::<gst::Structure>().ok());
    all.set("texts", gst::Array::new(before.chain([text])));
}

/// A text of a whole frame, as some element has attached it.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameText {
    pub text: String,
    /// 0..1.
    pub confidence: Option<f64>,
    /// It is that of an earlier frame.
    pub is_held: bool,
}

/// The texts of a frame, one for each model, in their order. What is not as described above is left out.
pub fn of_frame(buffer: &gst::BufferRef) -> Vec<FrameText> {
    register();
    let meta = CustomMeta::from_buffer(buffer, NAME).ok();
    let all = meta.and_then(|meta| meta.structure().get::<gst::Array>("texts").ok()).unwrap_or_default();
    let read = |value: &gst::glib::SendValue| {
        let found = value.get::<gst::Structure>().ok()?;
        let text = found.get::<String>("text").ok().filter(|text| !text.is_empty())?;
        let confidence = found.get::<f64>("confidence").ok().filter(|confidence| confidence.is_finite());
        Some(FrameText { text, confidence, is_held: found.get("held") == Ok(true) })
    };
    all.iter().filter_map(read).collect()
}

/// The annotations for the texts of the whole frame.
pub fn annotations(buffer: &gst::BufferRef) -> Vec<Annotation<'static>> {
    let annotation = |FrameText { text, confidence, .. }: FrameText| Annotation {
        confidence: confidence.map(|confidence| confidence as f32),
        ..Annotation::of_frame(text.into())
    };
    of_frame(buffer).into_iter().map(annotation).collect()
}

#[cfg(test)]
mod tests {
    use gsttrt_core::postprocess::FoundText;

    use super::*;

    fn found(text: &str, confidence: f32) -> Instances {
        Instances { text: Some(FoundText { text: text.into(), confidence }), ..Instances::default() }
    }

    #[test]
    fn texts_are_read_as_they_were_attached() {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        assert_eq!(of_frame(&buffer), []);
        let to = buffer.get_mut().unwrap();
        attach(to, &found("", 0.0), false);
        assert!(CustomMeta::from_buffer(to, NAME).is_err(), "nothing was read");
        attach(to, &Instances::default(), false);
        attach(to, &found("AB 12", 0.5), false);
        attach(to, &found("\"é\", [x]", 0.75), true);
        let wanted = [("AB 12", 0.5, false), ("\"é\", [x]", 0.75, true)].map(|(text, confidence, is_held)| FrameText {
            text: text.into(),
            confidence: Some(confidence),
            is_held,
        });
        assert_eq!(of_frame(&buffer), wanted);
        let drawn = annotations(&buffer);
        assert!(drawn.iter().all(|annotation| annotation.of_frame && annotation.class.is_none()));
        assert_eq!(drawn.iter().map(|annotation| &*annotation.label).collect::<Vec<_>>(), ["AB 12", "\"é\", [x]"]);
    }

    #[test]
    fn what_others_have_attached_is_left_out_where_it_is_no_text() {
        gst::init().unwrap();
        register();
        let mut buffer = gst::Buffer::new();
        let mut meta = CustomMeta::add(buffer.get_mut().unwrap(), NAME).unwrap();
        let odd = [
            gst::Structure::builder("text").field("text", 7i32).build(),
            gst::Structure::new_empty("text"),
            gst::Structure::builder("text").field("text", "a").field("confidence", f64::NAN).build(),
        ];
        meta.mut_structure().set("texts", gst::Array::new(odd));
        assert_eq!(of_frame(&buffer), [FrameText { text: "a".into(), confidence: None, is_held: false }]);
    }
}
