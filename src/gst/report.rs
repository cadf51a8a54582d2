// SPDX-License-Identifier: MPL-2.0
//! Errors, warnings and notes of ours on the bus. This is the only place that maps an [`ErrorKind`] to GStreamer's
//! domains and codes.

use std::path::Path;
use std::sync::Mutex;

use gst::glib::WeakRef;
use gst::prelude::*;
use gsttrt_core::error::{Error, ErrorKind};

/// Errors that were posted on behalf of each pipeline, as long as it is there: itself, and the error's number. Streams
/// that share a model all meet its failure.
static POSTED: Mutex<Vec<(WeakRef<gst::Object>, u64)>> = Mutex::new(Vec::new());

/// The outermost bin that contains the element.
fn pipeline_of(element: &gst::Element) -> gst::Object {
    let mut object = element.clone().upcast::<gst::Object>();
    while let Some(parent) = object.parent() {
        object = parent;
    }
    object
}

/// Notes that this error is posted for the pipeline; false where it was before.
fn is_new(pipeline: &gst::Object, error: &Error) -> bool {
    // Dropped behind the lock: one of them may be the last reference, and what ends with it may come here again.
    let mut pipelines = Vec::new();
    let mut posted = POSTED.lock().unwrap();
    posted.retain(|(by, _)| {
        by.upgrade().is_some_and(|by| {
            pipelines.push(by);
            true
        })
    });
    let is_there = posted.iter().zip(&pipelines).any(|((_, id), by)| *id == error.id() && by == pipeline);
    if !is_there {
        posted.push((pipeline.downgrade(), error.id()));
    }
    drop(posted);
    !is_there
}

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
            ErrorKind::WrongType => {
                let $code = gst::StreamError::WrongType;
                $work
            }
            ErrorKind::Negotiation => {
                let $code = gst::CoreError::Negotiation;
                $work
            }
            ErrorKind::DeviceLost => {
                let $code = gst::ResourceError::Failed;
                $work
            }
            // Run, and what later releases of the core may add.
            _ => {
                let $code = gst::LibraryError::Failed;
                $work
            }
        }
    };
}

/// Posts messages about an element.
pub trait Report: IsA<gst::Element> {
    /// The element cannot go on. Where another element of this pipeline has posted this same error, it is not posted again.
    fn post_error(&self, error: &Error) {
        let element = self.upcast_ref::<gst::Element>();
        if is_new(&pipeline_of(element), error) {
            element.post_error_message(error_message(error));
        }
    }

    /// The same for a model file, which is the field `file` of the message's details.
    fn post_error_of(&self, error: &Error, model: &Path) {
        let element = self.upcast_ref::<gst::Element>();
        if !is_new(&pipeline_of(element), error) {
            return;
        }
        let details = gst::Structure::builder("details").field("file", model.display().to_string()).build();
        let (kind, text, (file, line)) = (gst::ElementMessageType::Error, error.message(), location(error));
        by_kind!(error.kind(), code => {
            element.message_full_with_details(kind, code, Some(&text), error.debug_text(), file, "", line, details);
        });
    }

    /// The element was stopped: once its pipeline is started again, an error that is still there is posted again.
    fn forget_errors(&self) {
        let pipeline = pipeline_of(self.upcast_ref());
        let mut others = Vec::new();
        let mut posted = POSTED.lock().unwrap();
        posted.retain(|(by, _)| {
            by.upgrade().is_some_and(|by| {
                let is_other = by != pipeline;
                others.push(by);
                is_other
            })
        });
        drop(posted);
    }

    /// Something is not as configured, and the element goes on.
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

/// Where an error was noticed, within the crate: the debug part begins with it, and the machine that built the plugin is no
/// concern of its users.
fn location(error: &Error) -> (&'static str, u32) {
    let location = error.location();
    let file = location.file();
    (file.rsplit_once("src/").map_or(file, |(_, file)| file), location.line())
}

/// The message that `start()` returns, which the base class posts.
pub fn error_message(error: &Error) -> gst::ErrorMessage {
    let (text, (file, line)) = (error.message(), location(error));
    by_kind!(error.kind(), code => gst::ErrorMessage::new(&code, Some(&text), error.debug_text(), file, "", line))
}

fn post(element: &gst::Element, kind: gst::ElementMessageType, error: &Error) {
    let (text, (file, line)) = (error.message(), location(error));
    by_kind!(error.kind(), code => {
        element.message_full(kind, code, Some(&text), error.debug_text(), file, "", line);
    });
}

/// Whether a property may be set now. One that counts only from the next start on is refused while the element is in
/// PAUSED or PLAYING, with a warning: the property keeps the value that is in use.
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

/// A property that is not set, as the text for it is none: it keeps its value.
pub fn no_text(element: &impl IsA<gst::Element>, name: &str) {
    let refused = Error::new(ErrorKind::Settings, format!("{name} stays as it is"))
        .cause("what it was set to is not text in UTF-8")
        .remedy("Convert that to UTF-8");
    element.post_warning(&refused);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_posted_once_until_the_pipeline_stops() {
        gst::init().unwrap();
        let [pipeline, other] = [(); 2].map(|()| {
            let pipeline = gst::Pipeline::new();
            let inner = gst::Bin::new();
            let elements = [(); 3].map(|()| gst::ElementFactory::make("identity").build().unwrap());
            inner.add(&elements[0]).unwrap();
            pipeline.add_many([&elements[1], &elements[2], inner.upcast_ref()]).unwrap();
            (pipeline, elements)
        });
        let heard = |pipeline: &gst::Pipeline| {
            let bus = pipeline.bus().unwrap();
            std::iter::from_fn(|| bus.pop_filtered(&[gst::MessageType::Error])).count()
        };
        let error = Error::new(ErrorKind::Run, "It fails");
        let same = Error::new(ErrorKind::Run, "It fails");
        let post_all = |error: &Error| [&pipeline, &other].map(|(_, all)| all.iter().for_each(|e| e.post_error(error)));
        post_all(&error.clone().remedy("Do that"));
        post_all(&error);
        assert_eq!([heard(&pipeline.0), heard(&other.0)], [1, 1]);
        post_all(&same);
        assert_eq!([heard(&pipeline.0), heard(&other.0)], [1, 1], "it is another one");
        pipeline.1[0].forget_errors();
        post_all(&error);
        assert_eq!([heard(&pipeline.0), heard(&other.0)], [1, 0]);
    }

    /// Another one may come to lie where it lay.
    #[test]
    fn a_pipeline_leaves_nothing() {
        gst::init().unwrap();
        let error = Error::new(ErrorKind::Run, "It fails");
        for _ in 0..20 {
            let element = gst::ElementFactory::make("identity").build().unwrap();
            let bus = gst::Bus::new();
            element.set_bus(Some(&bus));
            element.post_error(&error);
            element.post_error(&error);
            let heard = std::iter::from_fn(|| bus.pop_filtered(&[gst::MessageType::Error])).count();
            assert_eq!(heard, 1);
        }
        let element = gst::ElementFactory::make("identity").build().unwrap();
        element.post_error(&error);
        assert_eq!(POSTED.lock().unwrap().iter().filter(|(_, id)| *id == error.id()).count(), 1);
    }

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
            assert!(debug.starts_with("gst/report.rs("), "where in the crate: {debug}");
            said.push(debug.lines().last().unwrap().to_string());
        }
        assert_eq!(said, ["line 2", "line 2", "This is wrong. Do that."]);
    }
}
