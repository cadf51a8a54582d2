// SPDX-License-Identifier: MPL-2.0
//! What all our elements have in common: the class and its properties; and, if they use the GPU, a CUDA context that
//! they share with their neighbours.

use std::sync::atomic::{AtomicBool, Ordering};

use gst::prelude::*;
use gst_base::subclass::prelude::*;

use super::caps;
use super::cuda::CudaContextSlot;
use super::memory::nvmm;
use super::report::Report;
use super::video::Format;

/// An element that `video_filter` made.
pub trait VideoFilter: BaseTransformImpl {
    /// Where its CUDA context is, and the value of `cuda-device-id`.
    fn cuda(&self) -> (&CudaContextSlot, i32);

    /// Before a change of state: what others of the pipeline will ask for is handed out, where the process has it.
    fn prepare_state(&self, transition: gst::StateChange) {
        if transition == gst::StateChange::NullToReady {
            let (slot, device) = self.cuda();
            slot.hand_out(&*self.obj(), device, false);
        }
    }

    /// Answers a query that has come to a pad of that direction: for the CUDA context, else as the base class does.
    fn answer(&self, direction: gst::PadDirection, query: &mut gst::QueryRef) -> bool {
        let (slot, device) = self.cuda();
        slot.answer(&*self.obj(), device, direction, query)
            || BaseTransformImplExt::parent_query(self, direction, query)
    }

    /// The format of frames with such caps.
    ///
    /// # Errors
    /// As [`Format::from_caps`], and, if they are to be drawn on, [`Format::check_drawable`]; posted on the bus too.
    fn format(&self, log: gst::DebugCategory, caps: &gst::Caps, draw: bool) -> Result<Format, gst::LoggableError> {
        let format = Format::from_caps(caps);
        let format = format.and_then(|format| if draw { format.check_drawable().map(|()| format) } else { Ok(format) });
        format.map_err(|error| {
            self.obj().post_error(&error);
            gst::loggable_error!(log, "{error}")
        })
    }
}

/// What upstream was told of frames that cannot be drawn on, which it would report as "not negotiated". It offers them
/// again with each event and frame.
#[derive(Default)]
pub struct DrawRefusal {
    was_warned: AtomicBool,
    has_failed: AtomicBool,
}

impl DrawRefusal {
    /// The element starts again.
    pub fn reset(&self) {
        [&self.was_warned, &self.has_failed].into_iter().for_each(|said| said.store(false, Ordering::Relaxed));
    }

    /// Posts what to do, where nothing else is offered by a query that comes to the sink pad of an element that runs. Any program may ask
    /// what an element takes: one that does not run has refused nothing.
    pub fn explain(&self, element: &impl IsA<gst::Element>, query: &gst::QueryRef) {
        let is_refused = |caps: &&gst::CapsRef| !caps.is_empty() && caps::drawable(&(*caps).to_owned()).is_empty();
        let Some(offered) = caps::offered(query).filter(is_refused) else { return };
        let Some(sink) = element.static_pad("sink").filter(|pad| pad.is_active()) else { return };
        let error = || nvmm::not_drawable().with_debug(format!("offered: {offered}"));
        // A stream whose format is known has nothing else to offer. What is only one of several offers may yet be passed over, and what is
        // asked while frames come that can be drawn on may be a question only.
        let has_others = sink.current_caps().is_some_and(|caps| !caps::drawable(&caps).is_empty());
        if offered.is_fixed() && !has_others {
            if !self.has_failed.swap(true, Ordering::Relaxed) {
                element.post_error(&error());
            }
        } else if !self.was_warned.swap(true, Ordering::Relaxed) {
            element.post_warning(&error());
        }
    }
}

/// The properties of an element that are only read. The others are in its table `PROPERTIES`.
pub trait Properties {
    fn read_only() -> Vec<gst::glib::ParamSpec>;

    /// The value of one of them; nothing if the name is that of another property.
    fn read(&self, name: &str) -> Option<gst::glib::Value>;

    /// A property of the table has this new value.
    fn was_set(&self, _name: &str, _value: &gst::glib::Value) {}
}

/// Makes the GObject class of a structure in `imp` that has `settings`, their table `PROPERTIES`, the debug category
/// `CAT`, and [`Properties`]. The module above has the wrapper, under the same name. `signals` is a function that
/// returns its signals, `before_state_change` a method that is called with each change of state, and `element` has more
/// methods of `ElementImpl`.
macro_rules! element_class {
    (
        $imp:ident: $class:literal,
        name: $name:literal,
        classification: $classification:literal,
        description: $description:literal,
        pads: $pads:expr,
        $(signals: $signals:ident,)?
        $(before_state_change: $before:ident,)?
        element: { $($element:tt)* }
    ) => {
        #[gst::glib::object_subclass]
        impl ObjectSubclass for $imp {
            const NAME: &'static str = $class;
            type Type = super::$imp;
            type ParentType = gst_base::BaseTransform;
        }

        impl ObjectImpl for $imp {
            fn properties() -> &'static [gst::glib::ParamSpec] {
                static SPECS: LazyLock<Vec<gst::glib::ParamSpec>> = LazyLock::new(|| {
                    let read_only = <$imp as $crate::gst::element::Properties>::read_only();
                    PROPERTIES.specs().chain(read_only).collect()
                });
                &SPECS
            }

            $(fn signals() -> &'static [gst::glib::subclass::Signal] {
                $signals()
            })?

            fn set_property(&self, _id: usize, value: &gst::glib::Value, property: &gst::glib::ParamSpec) {
                let name = property.name();
                if !PROPERTIES.can_be(name, value) {
                    return $crate::gst::report::no_text(&*self.obj(), name);
                }
                if $crate::gst::report::may_set(&*self.obj(), property) {
                    let shown = {
                        let mut settings = self.settings.lock().unwrap();
                        PROPERTIES.set(&mut settings, name, value);
                        // As it is shown, which a password is not.
                        PROPERTIES.get(&settings, name)
                    };
                    gst::info!(CAT, imp = self, "{name} = {shown:?}");
                    $crate::gst::element::Properties::was_set(self, name, value);
                }
            }

            fn property(&self, _id: usize, property: &gst::glib::ParamSpec) -> gst::glib::Value {
                let name = property.name();
                $crate::gst::element::Properties::read(self, name)
                    .unwrap_or_else(|| PROPERTIES.get(&self.settings.lock().unwrap(), name))
            }
        }

        impl GstObjectImpl for $imp {}

        impl ElementImpl for $imp {
            fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
                static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
                    let authors = env!("CARGO_PKG_AUTHORS");
                    gst::subclass::ElementMetadata::new($name, $classification, $description, authors)
                });
                Some(&METADATA)
            }

            fn pad_templates() -> &'static [gst::PadTemplate] {
                $pads
            }

            $(fn change_state(
                &self,
                transition: gst::StateChange,
            ) -> std::result::Result<gst::StateChangeSuccess, gst::StateChangeError> {
                self.$before(transition);
                self.parent_change_state(transition)
            })?

            $($element)*
        }
    };
}
pub(crate) use element_class;

/// Makes an `element_class` that shares a CUDA context: its `settings` have a `cuda_device_id`, and `cuda` is the slot.
/// A `prepare_state` of its own is called in place of that of [`VideoFilter`].
macro_rules! video_filter {
    (
        $imp:ident: $class:literal,
        name: $name:literal,
        classification: $classification:literal,
        description: $description:literal,
    ) => {
        $crate::gst::element::element_class! {
            $imp: $class,
            name: $name,
            classification: $classification,
            description: $description,
            pads: $crate::gst::caps::pad_templates(),
            before_state_change: prepare_state,
            element: {
                fn set_context(&self, context: &gst::Context) {
                    let (slot, device) = VideoFilter::cuda(self);
                    slot.set(context, device);
                    self.parent_set_context(context);
                }
            }
        }

        impl VideoFilter for $imp {
            fn cuda(&self) -> (&CudaContextSlot, i32) {
                (&self.cuda, self.settings.lock().unwrap().cuda_device_id)
            }
        }
    };
}
pub(crate) use video_filter;
