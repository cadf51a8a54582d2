// SPDX-License-Identifier: MPL-2.0
//! The elements of the plugin, as GStreamer's registry knows them.

use gst::glib;
use gst::prelude::*;

/// In the order in which they come in a pipeline.
pub const ELEMENTS: [&str; 8] =
    ["trtpreprocess", "trtinfer", "trtnms", "trttrack", "trtmatch", "trtanalytics", "trtoverlay", "trtpublish"];

pub fn factories() -> impl Iterator<Item = gst::ElementFactory> {
    super::init();
    ELEMENTS.into_iter().map(|name| gst::ElementFactory::find(name).unwrap().load().unwrap())
}

/// The properties that the element itself brings.
pub fn properties(factory: &gst::ElementFactory) -> Vec<glib::ParamSpec> {
    let class = glib::object::Class::<gst::Element>::from_type(factory.element_type()).unwrap();
    class.list_properties().into_iter().filter(|property| property.owner_type() == factory.element_type()).collect()
}

/// The values of an enum; none of another type.
pub fn values(property: &glib::ParamSpec) -> Vec<glib::EnumValue> {
    let class = glib::EnumClass::with_type(property.value_type());
    class.map_or(Vec::new(), |class| class.values().to_vec())
}
