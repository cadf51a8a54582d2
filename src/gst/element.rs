// SPDX-License-Identifier: MPL-2.0
//! What all our elements are: in-place transforms of video in any memory, which share a CUDA context with their neighbours.

use gst_base::subclass::prelude::*;

use super::cuda::CudaContextSlot;
use super::report::Report;
use super::video::Format;

/// An element that `video_filter` made.
pub trait VideoFilter: BaseTransformImpl {
    /// Where its CUDA context is, and the value of `cuda-device-id`.
    fn cuda(&self) -> (&CudaContextSlot, i32);

    /// Answers a query that has come to a pad of that direction: for the CUDA context, else as the base class does.
    fn answer(&self, direction: gst::PadDirection, query: &mut gst::QueryRef) -> bool {
        let (slot, device) = self.cuda();
        slot.answer(&*self.obj(), device, direction, query)
            || BaseTransformImplExt::parent_query(self, direction, query)
    }

    /// The format of frames with such caps.
    ///
    /// # Errors
    /// As [`Format::from_caps`]; posted on the bus too.
    fn format(&self, log: gst::DebugCategory, caps: &gst::Caps) -> Result<Format, gst::LoggableError> {
        Format::from_caps(caps).map_err(|error| {
            self.obj().post_error(&error);
            gst::loggable_error!(log, "{error}")
        })
    }
}

/// An element's properties, which `video_filter` makes GObject's. Names and values are checked when they come here.
pub trait Properties {
    fn list() -> Vec<gst::glib::ParamSpec>;
    fn set(&self, name: &str, value: &gst::glib::Value);
    fn get(&self, name: &str) -> gst::glib::Value;
}

/// Whether the frames of the new segment come behind those of the old one: demuxers and live sources send a segment again to say
/// where they are, or when its end is known.
pub fn continues(old: &gst::Segment, new: &gst::Segment) -> bool {
    let place =
        |segment: &gst::Segment| (segment.format(), segment.start(), segment.time(), segment.base(), segment.offset());
    let rates = |segment: &gst::Segment| (segment.rate(), segment.applied_rate());
    place(old) == place(new) && rates(old) == rates(new)
}

/// Makes an element of a structure in `imp` that has `settings` with a `cuda_device_id`, the slot `cuda`, and [`Properties`]. The module above
/// has the class, under the same name. `before_state_change` is a method that is called with each change of state.
macro_rules! video_filter {
    (
        $imp:ident: $class:literal,
        name: $name:literal,
        classification: $classification:literal,
        description: $description:literal,
        $(before_state_change: $before:ident,)?
    ) => {
        #[gst::glib::object_subclass]
        impl ObjectSubclass for $imp {
            const NAME: &'static str = $class;
            type Type = super::$imp;
            type ParentType = gst_base::BaseTransform;
        }

        impl ObjectImpl for $imp {
            fn properties() -> &'static [gst::glib::ParamSpec] {
                static PROPERTIES: LazyLock<Vec<gst::glib::ParamSpec>> = LazyLock::new($imp::list);
                &PROPERTIES
            }

            fn set_property(&self, _id: usize, value: &gst::glib::Value, property: &gst::glib::ParamSpec) {
                if $crate::gst::report::may_set(&*self.obj(), property) {
                    gst::info!(CAT, imp = self, "{} = {value:?}", property.name());
                    self.set(property.name(), value);
                }
            }

            fn property(&self, _id: usize, property: &gst::glib::ParamSpec) -> gst::glib::Value {
                self.get(property.name())
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
                $crate::gst::video::pad_templates()
            }

            fn set_context(&self, context: &gst::Context) {
                let (slot, device) = VideoFilter::cuda(self);
                slot.set(context, device);
                self.parent_set_context(context);
            }

            $(fn change_state(
                &self,
                transition: gst::StateChange,
            ) -> std::result::Result<gst::StateChangeSuccess, gst::StateChangeError> {
                self.$before(transition);
                self.parent_change_state(transition)
            })?
        }

        impl VideoFilter for $imp {
            fn cuda(&self) -> (&CudaContextSlot, i32) {
                (&self.cuda, self.settings.lock().unwrap().cuda_device_id)
            }
        }
    };
}
pub(crate) use video_filter;
