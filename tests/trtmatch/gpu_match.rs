// SPDX-License-Identifier: MPL-2.0
//! A gallery on a GPU: the names of the CPU, also when its file changes.
//!
//! Needs a GPU; prints SKIP where there is none, and fails instead with `REQUIRE_GPU=1`.

use std::path::Path;

use super::{ADA, BETWEEN, BOB, Clip, STRANGER, add, params, people, seen, tracked};
use crate::common::random::Random;
use crate::common::wait::{LIMIT, wait_until};
use crate::common::{gpu, launch, scratch};
use gst::prelude::*;
use gsttrt_core::gallery::{GalleryEntry, file};

impl Clip {
    /// Vectors that the GPU has compared.
    fn on_gpu(&mut self) -> u64 {
        let stats: gst::Structure = self.line.element("trtmatch").property("stats");
        stats.get("compared-on-gpu").unwrap()
    }
}

#[test]
fn names_on_a_gpu_are_those_of_the_cpu() {
    let Some(_context) = gpu::context() else { return };
    let path = people("match-gpu-names");
    let objects = [seen(&ADA), seen(&BOB), seen(&BETWEEN), seen(&STRANGER), seen(&[0.0, 0.8, 0.6])];
    let found = ["cpu", "cuda"].map(|device| {
        let mut clip = Clip::new(&path, &format!("device={device} top-k=2 threshold=0.1"));
        let found = [params(&clip.push(&objects)), params(&clip.push(&[tracked(7, &BOB), tracked(8, &ADA)]))];
        let compared = if device == "cuda" { 5 + 2 } else { 0 };
        assert_eq!((clip.on_gpu(), clip.line.said().len()), (compared, 0), "{device}");
        found
    });
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0][0].iter().filter(|param| param.is_some()).count(), 4);
}

#[test]
fn a_gallery_that_changes_stays_on_the_gpu() {
    let Some(_context) = gpu::context() else { return };
    let path = people("match-gpu-changes");
    let mut clip = Clip::new(&path, "device=cuda");
    assert_eq!(clip.name(tracked(1, &STRANGER)), "");
    add(&path, &[("Eve", STRANGER)]);
    wait_until("the new name", LIMIT, || clip.name(tracked(1, &STRANGER)) == "Eve");
    file::change(&path, |name| name != "Eve", &[]).unwrap();
    wait_until("the removed name", LIMIT, || clip.name(tracked(1, &STRANGER)).is_empty());
    assert_eq!((clip.on_gpu(), clip.line.said()), (clip.frames, vec![]));
    file::change(&path, |_| false, &[]).unwrap();
    wait_until("an empty gallery", LIMIT, || clip.name(seen(&ADA)).is_empty());
    assert!(clip.line.wait_for_warning().contains("has no vectors"));
}

/// As many numbers as a GPU is worth.
fn large(path: &Path) -> Vec<f32> {
    let mut random = Random(4);
    let mut vector = || (0..1024).map(|_| random.unit() - 0.5).collect::<Vec<f32>>();
    let entries: Vec<GalleryEntry> =
        (0..1024).map(|at| GalleryEntry::new(&format!("n{at}"), &vector()).unwrap()).collect();
    file::change(path, |_| true, &entries).unwrap();
    entries[700].vector.clone()
}

/// It is copied while frames go on.
#[test]
fn a_large_gallery_goes_to_the_gpu_that_others_work_on() {
    let path = scratch("match-gpu-large").join("g.jsonl");
    let known = large(&path);
    let mut without = Clip::new(&path, "device=cpu");
    assert_eq!((without.name(seen(&known)), without.on_gpu()), ("n700".into(), 0));
    let Some(_context) = gpu::context() else { return };
    let mut clip = Clip::new(&path, "");
    wait_until("the GPU", LIMIT, || {
        assert_eq!(clip.name(seen(&known)), "n700");
        clip.on_gpu() > 0
    });
    let mut small = Clip::new(&people("match-gpu-small"), "");
    (0..20).for_each(|_| assert_eq!(small.name(seen(&ADA)), "Ada"));
    assert_eq!((small.on_gpu(), clip.line.said()), (0, vec![]));
}

#[test]
fn without_a_gpu_it_is_not_to_be_had() {
    if !gpu::is_hidden("trtmatch::gpu_match::without_a_gpu_it_is_not_to_be_had") {
        return;
    }
    let path = people("match-gpu-none");
    let line = |properties: &str| {
        let line = format!("videotestsrc num-buffers=1 ! trtmatch gallery={} {properties} ! fakesink", path.display());
        launch(&line)
    };
    line("device=cuda").expect_error("LibraryError::Init", &["Cannot use CUDA", "device=cpu"]);
    line("device=auto").expect_success();
    line("device=cpu cuda-device-id=3").expect_success();
}
