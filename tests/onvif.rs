// SPDX-License-Identifier: MPL-2.0
//! What was found, as ONVIF's metadata: relationmeta2onvifmeta of gst-plugins-rs makes it of GStreamer's analytics metas.
//! tests/onvif has the plugin, which tests/compat.sh builds.
#![cfg(feature = "v1_24")]

use crate::common::{path, shapes};
use gst::prelude::*;

/// The texts of a frame.
fn frames(buffer: &gst::BufferRef) -> String {
    let meta = gst::meta::CustomMeta::from_buffer(buffer, "OnvifXMLFrameMeta").expect("each frame has it");
    let frames = meta.structure().get::<gst::BufferList>("frames").unwrap();
    frames.iter().map(|frame| String::from_utf8(frame.map_readable().unwrap().to_vec()).unwrap()).collect()
}

#[test]
fn objects_become_onvif_metadata() {
    crate::common::init();
    if gst::ElementFactory::find("relationmeta2onvifmeta").is_none() {
        return println!("SKIP: there is no relationmeta2onvifmeta; tests/compat.sh builds it");
    }
    let line = format!(
        "filesrc location={} ! decodebin ! trtpreprocess ! trtinfer model-file={} ! trtnms draw=false \
         ! relationmeta2onvifmeta ! appsink name=out sync=false",
        path("tests/data/sample.mp4"),
        shapes()
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let out = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let sample = out.pull_sample().unwrap();
    pipeline.set_state(gst::State::Null).unwrap();
    let (buffer, text) = (sample.buffer().unwrap(), frames(sample.buffer().unwrap()));
    let found: Vec<_> = buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>().collect();
    assert!(!found.is_empty());
    assert_eq!(text.matches("<tt:Object ").count(), found.len(), "{text}");
    for region in found {
        let (x, y, w, h) = region.rect();
        let place = [("left", x), ("top", y), ("right", x + w), ("bottom", y + h)];
        assert!(place.iter().all(|(side, at)| text.contains(&format!("{side}=\"{at}\""))), "{place:?} in {text}");
        assert!(text.contains(&format!(">{}</tt:Type>", region.roi_type())), "{text}");
    }
}
