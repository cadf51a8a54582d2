// SPDX-License-Identifier: MPL-2.0
//! Elements that read and write metas. They pass frames in any memory, and do not look at the pixels.

use gst_base::subclass::prelude::*;
use gsttrt_core::error::{Error, Result};

/// What such an element does; the macro `meta_filter` makes the element.
pub trait MetaFilter: BaseTransformImpl {
    /// What it knows from the start to the stop; it has the [`VideoStream`](super::stream::VideoStream) as `stream`.
    type State;

    /// The state for a stream that starts.
    fn open(&self) -> Result<Self::State>;

    /// The stream has stopped; the state is still there.
    fn close(&self) {}

    /// The frames have another size from now on. Returns a warning.
    fn resized(_state: &mut Self::State) -> Option<Error> {
        None
    }

    /// An event has come from upstream. `is_cut` tells whether another part of the stream, or another stream, follows.
    fn see_event(&self, event: &gst::Event, is_cut: bool);

    /// Reads and writes the metas of a frame.
    fn process(&self, frame: &mut gst::Buffer) -> std::result::Result<(), gst::FlowError>;
}

/// Makes an `element_class` of a [`MetaFilter`] that has `stats`, and its state as
/// `state: Mutex<Option<State>>`.
macro_rules! meta_filter {
    (
        $imp:ident: $class:literal,
        factory: $factory:literal,
        name: $name:literal,
        classification: $classification:literal,
        description: $description:literal,
        pads: $pads:expr,
        $(signals: $signals:ident,)?
        $(before_state_change: $before:ident,)?
    ) => {
        $crate::gst::element::element_class! {
            $imp: $class,
            name: $name,
            classification: $classification,
            description: $description,
            pads: $pads,
            $(signals: $signals,)?
            $(before_state_change: $before,)?
            element: {}
        }

        impl BaseTransformImpl for $imp {
            const MODE: gst_base::subclass::BaseTransformMode = gst_base::subclass::BaseTransformMode::AlwaysInPlace;
            const PASSTHROUGH_ON_SAME_CAPS: bool = false;
            const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

            fn start(&self) -> std::result::Result<(), gst::ErrorMessage> {
                self.stats.reset();
                let state = self.open().map_err(|error| $crate::gst::report::error_message(&error))?;
                *self.state.lock().unwrap() = Some(state);
                Ok(())
            }

            fn stop(&self) -> std::result::Result<(), gst::ErrorMessage> {
                self.close();
                *self.state.lock().unwrap() = None;
                Ok(())
            }

            /// Buffers pass as they are, so those of downstream's pool do too.
            fn propose_allocation(
                &self,
                _decide_query: Option<&gst::query::Allocation>,
                query: &mut gst::query::Allocation,
            ) -> std::result::Result<(), gst::LoggableError> {
                self.parent_propose_allocation(None, query)
            }

            fn sink_event(&self, event: gst::Event) -> bool {
                // Other events overtake the frames, and must not wait for the thread that handles one.
                let is_cut = event.is_serialized()
                    && self.state.lock().unwrap().as_mut().is_some_and(|state| state.stream.is_cut(&event));
                self.see_event(&event, is_cut);
                self.parent_sink_event(event)
            }

            fn set_caps(&self, incaps: &gst::Caps, _outcaps: &gst::Caps) -> std::result::Result<(), gst::LoggableError> {
                let taken = match self.state.lock().unwrap().as_mut() {
                    Some(state) => state.stream.set_caps(incaps, $factory).map(|is_another| {
                        is_another.then(|| <$imp as MetaFilter>::resized(state)).flatten()
                    }),
                    None => return Err(gst::loggable_error!(CAT, "caps before the start")),
                };
                let warning = taken.map_err(|error| {
                    self.obj().post_error(&error);
                    gst::loggable_error!(CAT, "{error}")
                })?;
                warning.iter().for_each(|warning| self.obj().post_warning(warning));
                Ok(())
            }

            fn generate_output(
                &self,
            ) -> std::result::Result<
                gst_base::subclass::base_transform::GenerateOutputSuccess,
                gst::FlowError,
            > {
                use gst_base::subclass::base_transform::GenerateOutputSuccess;
                let Some(mut frame) = self.take_queued_buffer() else { return Ok(GenerateOutputSuccess::NoOutput) };
                MetaFilter::process(self, &mut frame)?;
                Ok(GenerateOutputSuccess::Buffer(frame))
            }
        }
    };
}
pub(crate) use meta_filter;
