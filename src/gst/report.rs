//! Errors, warnings and notes of ours on the bus. What an [`ErrorKind`] is called in GStreamer is said here and nowhere else.

use gst::prelude::*;

use crate::core::error::{Error, ErrorKind};

/// Posts what our own code has to say about an element.
pub trait Report: IsA<gst::Element> {
    /// The element cannot go on.
    fn post_error(&self, error: &Error) {
        self.upcast_ref::<gst::Element>().post_error_message(error_message(error));
    }

    /// Something is not as it was asked for, and the element goes on.
    fn post_warning(&self, warning: &Error) {
        post(self.upcast_ref(), gst::ElementMessageType::Warning, warning);
    }

    /// Worth knowing. gst-launch-1.0 prints only the debug part of such a message, so the text is there too.
    fn post_info(&self, note: &Error) {
        let text = note.message();
        post(self.upcast_ref(), gst::ElementMessageType::Info, &note.clone().cause("").with_debug(text));
    }
}

impl<T: IsA<gst::Element>> Report for T {}

/// Domain and code of a kind, as `$code`.
macro_rules! by_kind {
    ($kind:expr, $code:ident => $work:expr) => {
        match $kind {
            ErrorKind::Settings => {
                let $code = gst::ResourceError::Settings;
                $work
            }
            ErrorKind::NotFound => {
                let $code = gst::ResourceError::NotFound;
                $work
            }
            ErrorKind::Read => {
                let $code = gst::ResourceError::OpenRead;
                $work
            }
            ErrorKind::Model | ErrorKind::Library => {
                let $code = gst::LibraryError::Init;
                $work
            }
            ErrorKind::Run => {
                let $code = gst::LibraryError::Failed;
                $work
            }
            ErrorKind::WrongType => {
                let $code = gst::StreamError::WrongType;
                $work
            }
            ErrorKind::Negotiation => {
                let $code = gst::CoreError::Negotiation;
                $work
            }
        }
    };
}

/// The message that `start()` returns, which the base class posts.
pub fn error_message(error: &Error) -> gst::ErrorMessage {
    let (text, place) = (error.message(), error.place());
    by_kind!(error.kind(), code => {
        gst::ErrorMessage::new(&code, Some(&text), error.debug_text(), place.file(), "", place.line())
    })
}

fn post(element: &gst::Element, kind: gst::ElementMessageType, error: &Error) {
    let (text, place) = (error.message(), error.place());
    by_kind!(error.kind(), code => {
        element.message_full(kind, code, Some(&text), error.debug_text(), place.file(), "", place.line());
    });
}

/// Whether a property may be set now. One that counts only from the next start on is refused while the element is in PAUSED or
/// PLAYING, with a warning: the property goes on saying what is in force.
pub fn may_set(element: &impl IsA<gst::Element>, property: &gst::glib::ParamSpec) -> bool {
    let flags = property.flags();
    let at_any_time = flags.contains(gst::PARAM_FLAG_MUTABLE_PLAYING) || flags.contains(gst::PARAM_FLAG_MUTABLE_PAUSED);
    let element = element.upcast_ref::<gst::Element>();
    if at_any_time || element.current_state() < gst::State::Paused {
        return true;
    }
    let name = property.name();
    let refused = Error::new(ErrorKind::Settings, format!("{name} stays as it is"))
        .cause(format!("{} is running", element.name()))
        .remedy(format!("Set {name} in the state NULL or READY"));
    element.post_warning(&refused);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_a_text_for_people_and_name_no_rust_types() {
        gst::init().unwrap();
        let element = gst::ElementFactory::make("identity").build().unwrap();
        let bus = gst::Bus::new();
        element.set_bus(Some(&bus));
        let error = Error::new(ErrorKind::Settings, "This is wrong").cause("line 1\nline 2").remedy("Do that");
        element.post_error(&error);
        element.post_warning(&error);
        element.post_info(&error);
        let mut said = Vec::new();
        while let Some(message) = bus.pop() {
            let (error, debug) = match message.view() {
                gst::MessageView::Error(error) => (error.error(), error.debug()),
                gst::MessageView::Warning(warning) => (warning.error(), warning.debug()),
                gst::MessageView::Info(info) => (info.error(), info.debug()),
                _ => continue,
            };
            assert_eq!(error.kind(), Some(gst::ResourceError::Settings));
            assert_eq!(error.message(), "This is wrong. Do that.");
            let debug = debug.unwrap().to_string();
            assert!(!debug.contains('<') && !debug.contains("::"), "{debug}");
            said.push(debug.lines().last().unwrap().to_string());
        }
        assert_eq!(said, ["line 2", "line 2", "This is wrong. Do that."]);
    }
}
