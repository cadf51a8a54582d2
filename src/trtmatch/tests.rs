// SPDX-License-Identifier: MPL-2.0
//! A gallery on a GPU that fails. The driver is that of tests/fakes and needs no GPU; its kernels do nothing, so they find nobody.

use std::path::{Path, PathBuf};
use std::sync::Once;

use gst::prelude::*;
use gst_check::Harness;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::error::Error;
use gsttrt_core::gallery::{GalleryEntry, file};

use crate::fakes::Fakes;
use crate::test::scratch;

const ADA: [f32; 3] = [1.0, 0.0, 0.0];

/// Frames with one object, which looks like Ada.
struct Clip {
    harness: Harness,
    bus: gst::Bus,
}

/// A gallery that has Ada.
fn people(test: &str) -> PathBuf {
    let path = scratch(test).join("people.jsonl");
    file::change(&path, |_| true, &[GalleryEntry::new("Ada", &ADA).unwrap()]).unwrap();
    path
}

impl Clip {
    fn new(test: &str, properties: &str) -> Self {
        Clip::of(&people(test), properties)
    }

    fn of(gallery: &Path, properties: &str) -> Self {
        static STARTED: Once = Once::new();
        STARTED.call_once(|| {
            gst::init().unwrap();
            crate::plugin_register_static().unwrap();
        });
        let line = format!("trtmatch name=match gallery={} {properties}", gallery.display());
        let (bin, bus) = (gst::parse::bin_from_description(&line, true).unwrap(), gst::Bus::new());
        bin.set_bus(Some(&bus));
        let mut harness = Harness::with_element(&bin, Some("sink"), Some("src"));
        harness.set_src_caps_str("video/x-raw,format=NV12,width=640,height=480,framerate=30/1");
        Clip { harness, bus }
    }

    /// Whether the object of the next frame has a name.
    fn is_named(&mut self) -> Result<bool, gst::FlowError> {
        let mut frame = gst::Buffer::new();
        let mut region = VideoRegionOfInterestMeta::add(frame.get_mut().unwrap(), "person", (0, 0, 40, 80));
        let bytes: Vec<u8> = ADA.iter().flat_map(|value| value.to_le_bytes()).collect();
        let vector =
            gst::Structure::builder("vector").field("dims", 3u32).field("values", gst::Buffer::from_slice(bytes));
        region.add_param(vector.build());
        self.harness.push(frame)?;
        let frame = self.harness.pull().expect("each frame comes out");
        let region = frame.meta::<VideoRegionOfInterestMeta>().unwrap();
        Ok(region.params().any(|param| param.name() == "classification"))
    }

    /// Vectors that the GPU has compared.
    fn on_gpu(&self) -> u64 {
        let bin = self.harness.element().unwrap().downcast::<gst::Bin>().unwrap();
        let stats: gst::Structure = bin.by_name("match").unwrap().property("stats");
        stats.get("compared-on-gpu").unwrap()
    }

    /// Errors and warnings since the last call.
    fn said(&self) -> Vec<String> {
        let pop = || self.bus.pop_filtered(&[gst::MessageType::Error, gst::MessageType::Warning]);
        let text = |message: gst::Message| match message.view() {
            gst::MessageView::Error(error) => error.error().to_string(),
            gst::MessageView::Warning(warning) => warning.error().to_string(),
            _ => unreachable!("filtered"),
        };
        std::iter::from_fn(pop).map(text).collect()
    }
}

#[test]
fn the_cpu_takes_over_where_a_gpu_fails() {
    let Some(fakes) = Fakes::of(module_path!(), "the_cpu_takes_over_where_a_gpu_fails") else { return };
    let mut clip = Clip::new("match-gpu-fails", "device=cuda");
    assert_eq!((clip.is_named(), clip.on_gpu()), (Ok(false), 1));
    fakes.fail(0);
    assert_eq!((clip.is_named(), clip.on_gpu()), (Ok(true), 1));
    assert!(fakes.has_failed());
    fakes.fail(-1);
    assert_eq!((clip.is_named(), clip.on_gpu()), (Ok(true), 1), "until the gallery changes");
    let said = clip.said();
    assert!(said.len() == 1 && said[0].contains("the CPU compares vectors with it"), "{said:?}");
    assert_eq!(fakes.count(c"fake_pending"), 0);
    // One that has no room is compared on the CPU from the start.
    fakes.lack(1);
    let mut clip = Clip::new("match-gpu-lacks", "device=cuda");
    assert_eq!((clip.is_named(), clip.on_gpu()), (Ok(true), 0));
    let said = clip.said();
    assert!(said.len() == 1 && said[0].contains("Free memory of the GPU"), "{said:?}");
}

/// Though others work on one.
#[test]
fn a_small_gallery_is_not_worth_a_gpu() {
    let Some(fakes) = Fakes::of(module_path!(), "a_small_gallery_is_not_worth_a_gpu") else { return };
    let _context = fakes.context();
    for properties in ["", "device=auto", "device=cpu"] {
        let mut clip = Clip::new("match-gpu-none", properties);
        assert_eq!((clip.is_named(), clip.on_gpu()), (Ok(true), 0), "{properties}");
        assert_eq!(clip.said(), [""; 0]);
    }
}

/// Though the gallery, and its copy on the GPU, are there once.
#[test]
fn elements_with_one_gallery_compare_where_each_is_set_to() {
    let Some(fakes) = Fakes::of(module_path!(), "elements_with_one_gallery_compare_where_each_is_set_to") else {
        return;
    };
    let path = people("match-gpu-shared");
    let mut first = Clip::of(&path, "device=cuda");
    // The second one needs no memory for another copy.
    fakes.lack(1);
    let mut second = Clip::of(&path, "device=cuda");
    fakes.lack(0);
    let [mut host, mut auto] = ["device=cpu", "device=auto"].map(|properties| Clip::of(&path, properties));
    for clip in [&mut first, &mut second] {
        assert_eq!((clip.is_named(), clip.on_gpu()), (Ok(false), 1));
    }
    for clip in [&mut host, &mut auto] {
        assert_eq!((clip.is_named(), clip.on_gpu()), (Ok(true), 0));
    }
    drop(first);
    assert_eq!((second.is_named(), second.on_gpu()), (Ok(false), 2), "it keeps the copy");
    for clip in [&second, &host, &auto] {
        assert_eq!(clip.said(), [""; 0]);
    }
    drop((second, host, auto));
    assert_eq!((fakes.count(c"fake_pending"), fakes.count(c"fake_busy_frees")), (0, 0));
}

#[test]
fn a_lost_gpu_ends_the_stream() {
    let Some(fakes) = Fakes::of(module_path!(), "a_lost_gpu_ends_the_stream") else { return };
    let mut clip = Clip::new("match-gpu-lost", "device=cuda");
    assert_eq!(clip.is_named(), Ok(false));
    fakes.break_gpu(700, 1);
    assert_eq!(clip.is_named(), Err(gst::FlowError::Error));
    let (said, lost) = (clip.said(), gsttrt_core::cuda::driver::lost().as_ref().map(Error::message));
    assert!(said.len() == 1 && Some(&said[0]) == lost.as_ref(), "{said:?}, {lost:?}");
    drop(clip);
    assert_eq!(fakes.calls_when_dead(), 0);
}
