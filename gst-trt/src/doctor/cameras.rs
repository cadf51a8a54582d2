// SPDX-License-Identifier: MPL-2.0
//! Cameras of this machine, as GStreamer lists them.

use std::collections::BTreeSet;

use gst::prelude::*;

use super::Component;

const GROUP: &str = "cameras";

pub fn checks() -> Vec<Component> {
    let monitor = gst::DeviceMonitor::new();
    monitor.add_filter(Some("Video/Source"), None);
    let mut seen = BTreeSet::new();
    let mut found: Vec<Component> = (monitor.devices().iter())
        .map(|device| Component::there(GROUP, name(device), shown(device)))
        .filter(|camera| seen.insert(camera.name.clone())) // several providers may list it
        .collect();
    if found.is_empty() {
        let costs = "gst-trt detect 0 has nothing to read; connect one, and add the user to the group video";
        found.push(Component::missing(GROUP, "cameras of this machine", "none", costs));
    }
    found
}

/// Its file, by which it is read, where it has one.
fn name(device: &gst::Device) -> String {
    let properties = device.properties();
    let path = ["device.path", "api.v4l2.path"].iter().find_map(|key| properties.as_ref()?.get::<String>(*key).ok());
    path.unwrap_or_else(|| device.display_name().into())
}

/// Its name, and the largest picture that it gives.
fn shown(device: &gst::Device) -> String {
    let caps = device.caps();
    let sizes = caps.iter().flat_map(|caps| caps.iter());
    let largest = sizes
        .filter_map(|caps| Some((caps.get::<i32>("width").ok()?, caps.get::<i32>("height").ok()?)))
        .max_by_key(|(width, height)| i64::from(*width) * i64::from(*height));
    let name = device.display_name();
    largest.map_or(name.to_string(), |(width, height)| format!("{name}, up to {width}x{height}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gst::glib;
    use gst::subclass::prelude::*;

    mod imp {
        use std::sync::LazyLock;

        use super::*;

        #[derive(Default)]
        pub struct TestCamera;

        #[glib::object_subclass]
        impl ObjectSubclass for TestCamera {
            const NAME: &'static str = "GstTrtTestCamera";
            type Type = super::TestCamera;
            type ParentType = gst::Device;
        }

        impl ObjectImpl for TestCamera {}
        impl GstObjectImpl for TestCamera {}
        impl DeviceImpl for TestCamera {}

        #[derive(Default)]
        pub struct TestCameras;

        #[glib::object_subclass]
        impl ObjectSubclass for TestCameras {
            const NAME: &'static str = "GstTrtTestCameras";
            type Type = super::TestCameras;
            type ParentType = gst::DeviceProvider;
        }

        impl ObjectImpl for TestCameras {}
        impl GstObjectImpl for TestCameras {}

        impl DeviceProviderImpl for TestCameras {
            fn metadata() -> Option<&'static gst::subclass::DeviceProviderMetadata> {
                static METADATA: LazyLock<gst::subclass::DeviceProviderMetadata> = LazyLock::new(|| {
                    gst::subclass::DeviceProviderMetadata::new("Test cameras", "Source/Video", "Lists one", "gst-trt")
                });
                Some(&METADATA)
            }

            fn probe(&self) -> Vec<gst::Device> {
                let size = |width: i32, height: i32| {
                    gst::Structure::builder("video/x-raw").field("width", width).field("height", height).build()
                };
                let caps = gst::Caps::from_iter([size(640, 480), size(1920, 1080), size(1280, 720)]);
                let path = gst::Structure::builder("v4l2").field("device.path", "/dev/video7").build();
                let camera = glib::Object::builder::<super::TestCamera>()
                    .property("display-name", "Webcam")
                    .property("device-class", "Video/Source")
                    .property("caps", caps)
                    .property("properties", path);
                vec![camera.build().upcast()]
            }
        }
    }

    glib::wrapper! {
        pub struct TestCamera(ObjectSubclass<imp::TestCamera>) @extends gst::Device, gst::Object;
    }

    glib::wrapper! {
        pub struct TestCameras(ObjectSubclass<imp::TestCameras>) @extends gst::DeviceProvider, gst::Object;
    }

    #[test]
    fn cameras_are_listed_by_their_files() {
        gst::init().unwrap();
        gst::DeviceProvider::register(None, "trttestcameras", gst::Rank::PRIMARY, TestCameras::static_type()).unwrap();
        let found = checks();
        let camera = found.iter().find(|camera| camera.name == "/dev/video7").expect("the test's camera");
        assert!(camera.is_there && camera.group == "cameras");
        assert_eq!(camera.found, "Webcam, up to 1920x1080");
    }
}
