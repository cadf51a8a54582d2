// SPDX-License-Identifier: MPL-2.0
//! What messages on the bus say.

/// The kind and the text of a progress message. [`gst::message::Progress::get`] would copy both of its texts and free
/// neither.
pub fn progress(message: &gst::message::Progress) -> Option<(gst::ProgressType, &str)> {
    let structure = message.structure()?;
    Some((structure.get("type").ok()?, structure.get("text").ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_message_has_its_kind_and_text() {
        gst::init().unwrap();
        let message =
            gst::message::Progress::builder(gst::ProgressType::Complete, "model-load", "Loaded a.onnx").build();
        let gst::MessageView::Progress(message) = message.view() else { panic!("{message:?}") };
        assert_eq!(progress(message), Some((gst::ProgressType::Complete, "Loaded a.onnx")));
    }
}
