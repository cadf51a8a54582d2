//! What all our elements are: in-place transforms of video in any memory, which share a CUDA context with their neighbours.

use gst_base::subclass::prelude::*;

use super::cuda::CudaContextSlot;
use super::report::Report;
use super::video::Format;

/// An element of [`video_filter`].
pub trait VideoFilter: BaseTransformImpl {
    /// Where its CUDA context is, and the `cuda-device-id` that is wished.
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

/// Makes an element of a structure in `imp` that has `settings` with a `cuda_device_id`, and the slot `cuda`. The module above
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
