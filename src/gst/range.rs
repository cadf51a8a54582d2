// SPDX-License-Identifier: MPL-2.0
//! Numbers beyond the range of their property. GObject would keep the former value and print a line of its own, and a
//! pipeline would run with a threshold that nobody chose. Here the element is told: it does not start, or warns while it plays.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::ptr;
use std::sync::Mutex;

use gst::glib::translate::{IntoGlib, ToGlibPtr, from_glib, from_glib_none};
use gst::glib::{self, gobject_ffi};
use gst::prelude::*;
use gsttrt_core::error::{Error, ErrorKind};

use super::report::{Report, error_message};

/// The same property, whose element is given numbers beyond the range too.
pub fn taking_all(spec: glib::ParamSpec) -> glib::ParamSpec {
    let numbers = [
        glib::ParamSpecInt::static_type(),
        glib::ParamSpecUInt::static_type(),
        glib::ParamSpecUInt64::static_type(),
        glib::ParamSpecFloat::static_type(),
        glib::ParamSpecDouble::static_type(),
    ];
    let kind = spec.type_();
    if !numbers.contains(&kind) {
        return spec;
    }
    let text = |text: &str| CString::new(text).expect("declarations have no zero bytes");
    let (name, nick, blurb) = (text(spec.name()), text(spec.nick()), text(spec.blurb().unwrap_or_default()));
    let (own, size) = unchecked(kind);
    // SAFETY: the texts are copied. The new specification has the layout of the type that it is derived from, whose fields behind the
    // common ones are plain numbers: the range and the default.
    unsafe {
        let flags = spec.flags().bits();
        let made: *mut gobject_ffi::GParamSpec =
            gobject_ffi::g_param_spec_internal(own.into_glib(), name.as_ptr(), nick.as_ptr(), blurb.as_ptr(), flags)
                .cast();
        let common = size_of::<gobject_ffi::GParamSpec>();
        let from: *const gobject_ffi::GParamSpec = spec.to_glib_none().0;
        ptr::copy_nonoverlapping(from.cast::<u8>().add(common), made.cast::<u8>().add(common), size - common);
        from_glib_none(made)
    }
}

/// A type of properties that changes no value that it is given, derived from that one; and the size of both.
fn unchecked(kind: glib::Type) -> (glib::Type, usize) {
    unsafe extern "C" fn change_nothing(_: *mut gobject_ffi::GParamSpec, _: *mut gobject_ffi::GValue) -> i32 {
        0
    }
    unsafe extern "C" fn class_init(class: glib::ffi::gpointer, _: glib::ffi::gpointer) {
        // SAFETY: it is the class of a type of properties.
        unsafe { (*class.cast::<gobject_ffi::GParamSpecClass>()).value_validate = Some(change_nothing) }
    }
    static MADE: Mutex<()> = Mutex::new(());
    let name = format!("GstTrt{}", kind.name());
    // SAFETY: the type exists.
    let parent = unsafe {
        let mut query = std::mem::zeroed();
        gobject_ffi::g_type_query(kind.into_glib(), &mut query);
        query
    };
    let size = parent.instance_size as usize;
    let _one_at_a_time = MADE.lock().unwrap();
    if let Some(made) = glib::Type::from_name(&name) {
        return (made, size);
    }
    let name = CString::new(name).expect("names of types have no zero bytes");
    // SAFETY: name and sizes are those of a type derived from a class that can be derived from, with no fields of its own.
    let made = unsafe {
        from_glib(gobject_ffi::g_type_register_static_simple(
            kind.into_glib(),
            name.as_ptr(),
            parent.class_size,
            Some(class_init),
            parent.instance_size,
            None,
            0,
        ))
    };
    (made, size)
}

/// What is wrong with a value beyond the range of its property.
pub fn beyond(value: &glib::Value, spec: &glib::ParamSpec) -> Option<Error> {
    macro_rules! numbers {
        ($($spec:ident $type:ty)*) => {$(
            if let (Some(spec), Ok(number)) = (spec.downcast_ref::<glib::$spec>(), value.get::<$type>()) {
                let range = spec.minimum()..=spec.maximum();
                return (!range.contains(&number)).then(|| {
                    let (name, [from, to]) = (spec.name(), [range.start(), range.end()]);
                    let what = format!("{name} cannot be {number}");
                    Error::new(ErrorKind::Settings, what).remedy(format!("Set {name} to a number from {from} to {to}"))
                });
            }
        )*};
    }
    numbers! { ParamSpecInt i32 ParamSpecUInt u32 ParamSpecUInt64 u64 ParamSpecFloat f32 ParamSpecDouble f64 }
    None
}

/// Values that an element was given and cannot have, by the names of their properties.
#[derive(Default)]
pub struct RefusedValues(Mutex<BTreeMap<String, Error>>);

impl RefusedValues {
    /// The property keeps the value that it has. An element that is not started will not start.
    pub fn note(&self, element: &impl IsA<gst::Element>, property: &str, error: Error) {
        if element.upcast_ref::<gst::Element>().current_state() >= gst::State::Paused {
            element.post_warning(&error.and_remedy("It stays as it was"));
        } else {
            self.0.lock().unwrap().insert(property.into(), error);
        }
    }

    /// The property was given a value that it can have.
    pub fn forget(&self, property: &str) {
        self.0.lock().unwrap().remove(property);
    }

    /// # Errors
    /// While there are some; they are then on the bus.
    pub fn check(&self, element: &impl IsA<gst::Element>) -> Result<(), gst::StateChangeError> {
        let refused = self.0.lock().unwrap().clone();
        refused
            .values()
            .for_each(|error| element.upcast_ref::<gst::Element>().post_error_message(error_message(error)));
        if refused.is_empty() { Ok(()) } else { Err(gst::StateChangeError) }
    }
}
