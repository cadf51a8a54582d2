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

/// The elements of a launch line between a test's hands, and their bus, which has their messages from the first on: a
/// model may have been loaded before the harness of a line without a bus could be given one.
pub fn harness(elements: &str) -> (gst_check::Harness, gst::Bus) {
    let bin = gst::parse::bin_from_description(elements, true).unwrap();
    let bus = gst::Bus::new();
    bin.set_bus(Some(&bus));
    (gst_check::Harness::with_element(&bin, Some("sink"), Some("src")), bus)
}
