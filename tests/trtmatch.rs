// SPDX-License-Identifier: MPL-2.0
//! trtmatch: names for the vectors of objects, by a gallery that may change; metas only.

mod gpu_match;
mod identities;

use std::path::{Path, PathBuf};

use crate::common::boxes::{Line, SIDE, embedder, grey, model};
use crate::common::wait::{LIMIT, wait_until};
use crate::common::{launch, scratch};
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::gallery::{GalleryEntry, file};

const FRAME: u64 = 33_333_333;

/// Two names; Ada has two vectors.
const PEOPLE: [(&str, [f32; 3]); 3] = [("Ada", [1.0, 0.0, 0.0]), ("Bob", [0.0, 1.0, 0.0]), ("Ada", [0.0, 0.8, 0.6])];

/// Near to each of them, in between, and far from all.
const ADA: [f32; 3] = [2.0, 0.0, 0.0];
const BOB: [f32; 3] = [0.0, 1.0, 0.0];
const BETWEEN: [f32; 3] = [0.6, 0.8, 0.0];
const STRANGER: [f32; 3] = [0.0, 0.0, -1.0];

fn entry(&(name, vector): &(&str, [f32; 3])) -> GalleryEntry {
    GalleryEntry::new(name, &vector).unwrap()
}

fn add(path: &Path, people: &[(&str, [f32; 3])]) {
    let entries: Vec<GalleryEntry> = people.iter().map(entry).collect();
    file::change(path, |_| true, &entries).unwrap();
}

fn people(test: &str) -> PathBuf {
    let path = scratch(test).join("people.jsonl");
    add(&path, &PEOPLE);
    path
}

/// An object: its id, its vector, and whether that is of an earlier frame.
#[derive(Clone, Copy)]
struct Seen<'a> {
    id: Option<i32>,
    vector: Option<&'a [f32]>,
    is_held: bool,
    /// Width and height in pixels.
    size: (u32, u32),
}

fn seen(vector: &[f32]) -> Seen<'_> {
    Seen { id: None, vector: Some(vector), is_held: false, size: (40, 80) }
}

fn tracked(id: i32, vector: &[f32]) -> Seen<'_> {
    Seen { id: Some(id), ..seen(vector) }
}

/// A vector, as metas have it.
fn param_of(vector: &[f32]) -> gst::Structure {
    let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
    gst::Structure::builder("vector")
        .field("dims", vector.len() as u32)
        .field("values", gst::Buffer::from_slice(bytes))
        .build()
}

/// A frame without a picture: no element may read it.
fn frame(objects: &[Seen]) -> gst::Buffer {
    let mut buffer = gst::Buffer::new();
    for &Seen { id, vector, is_held, size: (width, height) } in objects {
        let mut region = VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "person", (0, 0, width, height));
        if let Some(id) = id {
            region.add_param(gst::Structure::builder("object_id").field("id", id).build());
        }
        if let Some(vector) = vector {
            let mut param = param_of(vector);
            if is_held {
                param.set("held", true);
            }
            region.add_param(param);
        }
    }
    buffer
}

/// Pushes frames one after another.
struct Clip {
    line: Line,
    frames: u64,
}

impl Clip {
    fn new(gallery: &Path, properties: &str) -> Self {
        let mut line = Line::parse(&format!("trtmatch gallery={} {properties}", gallery.display()));
        line.caps("NV12", 640, 480);
        Clip { line, frames: 0 }
    }

    fn push(&mut self, objects: &[Seen]) -> gst::Buffer {
        let mut buffer = frame(objects);
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_nseconds(self.frames * FRAME));
        self.frames += 1;
        self.line.push(buffer)
    }

    /// The name of each object; empty for none.
    fn names(&mut self, objects: &[Seen]) -> Vec<String> {
        names(&self.push(objects))
    }

    fn name(&mut self, object: Seen) -> String {
        self.names(&[object]).remove(0)
    }

    /// What was told since the last call: the id, its name and the one before.
    fn told(&self) -> Vec<(u64, Option<String>, Option<String>)> {
        let read = |message: gst::Structure| {
            assert_eq!(message.name(), "trt-match");
            assert_eq!(message.get::<&str>("label"), Ok("person"));
            assert_eq!(message.has_field("confidence"), message.has_field("name"));
            (message.get("track-id").unwrap(), message.get("name").ok(), message.get("before").ok())
        };
        self.line.messages().into_iter().map(read).collect()
    }
}

fn params(buffer: &gst::BufferRef) -> Vec<Option<gst::Structure>> {
    let param = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
        let params: Vec<_> = meta.params().filter(|param| param.name() == "classification").collect();
        assert!(params.len() < 2, "{params:?}");
        params.first().map(|param| (*param).to_owned())
    };
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(param).collect()
}

fn names(buffer: &gst::BufferRef) -> Vec<String> {
    let name = |param: Option<gst::Structure>| param.map_or(String::new(), |param| param.get("label").unwrap());
    params(buffer).into_iter().map(name).collect()
}

// ------------------------------------------------------------------------------------------- names

#[test]
fn objects_have_the_most_similar_name() {
    let mut clip = Clip::new(&people("match-names"), "");
    let nothing = Seen { vector: None, ..seen(&ADA) };
    let all = [seen(&ADA), seen(&BOB), nothing, seen(&STRANGER), seen(&[0.0, 0.8, 0.6])];
    assert_eq!(clip.names(&all), ["Ada", "Bob", "", "", "Ada"]);
    let params = params(&clip.push(&all));
    let ada = params[0].as_ref().unwrap();
    assert_eq!((ada.get::<i32>("label_id"), ada.get::<&str>("model")), (Ok(0), Ok("people")));
    assert!((ada.get::<f64>("confidence").unwrap() - 1.0).abs() < 1e-6 && !ada.has_field("held"));
    assert_eq!((clip.told(), clip.line.said()), (vec![], vec![]), "nothing has an id");
    let stats: gst::Structure = clip.line.element("trtmatch").property("stats");
    assert_eq!((stats.get::<u64>("frames"), stats.get::<u64>("objects")), (Ok(2), Ok(6)));
}

#[test]
fn each_property_counts() {
    let path = people("match-properties");
    let name = |properties: &str, vector: &[f32]| Clip::new(&path, properties).name(seen(vector));
    assert_eq!(name("", &BETWEEN), "Bob");
    assert_eq!(name("threshold=0.79", &BETWEEN), "Bob");
    assert_eq!(name("threshold=0.81", &BETWEEN), "");
    // Ada is at 0.64.
    assert_eq!(name("margin=0.15", &BETWEEN), "Bob");
    assert_eq!(name("margin=0.17", &BETWEEN), "");
    for (properties, wanted) in [("", 1), ("top-k=2", 2), ("top-k=2 threshold=0.7", 1)] {
        let mut clip = Clip::new(&path, properties);
        let param = params(&clip.push(&[seen(&BETWEEN)])).remove(0).unwrap();
        assert_eq!(param.get::<gst::Array>("classes").unwrap().len(), wanted, "{properties}");
    }
    let mut clip = Clip::new(&path, "post-messages=false");
    assert_eq!(clip.name(tracked(1, &ADA)), "Ada");
    assert_eq!(clip.told(), []);
    // While it plays.
    let element = clip.line.element("trtmatch");
    assert_eq!(clip.name(seen(&BETWEEN)), "Bob");
    element.set_property("threshold", 0.9f32);
    assert_eq!(clip.name(seen(&BETWEEN)), "");
    element.set_property("gallery", "other.jsonl");
    assert_eq!(element.property::<String>("gallery"), path.display().to_string(), "it is in use");
}

#[test]
fn looks_at_an_object_vote() {
    let mut clip = Clip::new(&people("match-votes"), "");
    // The wrong name in three of ten looks.
    let looks = [&ADA, &BOB, &ADA, &ADA, &BOB, &ADA, &ADA, &BOB, &ADA, &ADA];
    let found: Vec<String> = looks.iter().map(|&look| clip.name(tracked(7, look))).collect();
    assert_eq!(found[2..], ["Ada"; 8]);
    let told = clip.told();
    assert_eq!(told[0], (7, Some("Ada".into()), None), "{told:?}");
    // Another object has votes of its own.
    assert_eq!(clip.names(&[tracked(7, &BOB), tracked(8, &BOB)]), ["Ada", "Bob"]);
    assert_eq!(clip.told(), [(8, Some("Bob".into()), None)]);
    // Who is not recognised any more loses the name.
    assert!((0..60).map(|_| clip.name(tracked(8, &STRANGER))).any(|name| name.is_empty()));
    assert_eq!(clip.told(), [(8, None, Some("Bob".into()))]);
}

/// What is far away is easily taken for another.
#[test]
fn a_small_look_does_not_outvote_a_large_one() {
    let mut clip = Clip::new(&people("match-sizes"), "");
    let small = |id, vector| Seen { size: (4, 8), ..tracked(id, vector) };
    assert_eq!(clip.name(small(7, &BOB)), "Bob");
    assert_eq!(clip.name(tracked(7, &ADA)), "Ada");
    for _ in 0..5 {
        assert_eq!(clip.name(small(7, &BOB)), "Ada");
        assert_eq!(clip.name(small(7, &STRANGER)), "Ada");
    }
    let ada = Some("Ada".to_string());
    let bob = Some("Bob".to_string());
    assert_eq!(clip.told(), [(7, bob.clone(), None), (7, ada, bob)]);
    // Foreign elements may give boxes without a size.
    assert_eq!(clip.name(Seen { size: (0, 0), ..tracked(8, &BOB) }), "Bob");
}

#[test]
fn names_stay_where_nobody_looks() {
    let mut clip = Clip::new(&people("match-held"), "");
    let held = |id, vector| Seen { is_held: true, ..tracked(id, vector) };
    let blind = |id| Seen { vector: None, ..tracked(id, &ADA) };
    assert_eq!(clip.names(&[tracked(1, &ADA), blind(2)]), ["Ada", ""]);
    for _ in 0..50 {
        // A vector of before is no look of its own.
        let found = params(&clip.push(&[held(1, &BOB), blind(1), blind(2)]));
        let names: Vec<Option<(String, bool)>> = found
            .into_iter()
            .map(|param| param.map(|param| (param.get("label").unwrap(), param.get("held").unwrap_or(false))))
            .collect();
        assert_eq!(names, [Some(("Ada".into(), true)), Some(("Ada".into(), true)), None]);
    }
    // Of an object that was never seen before, it is.
    assert_eq!(clip.name(held(3, &BOB)), "Bob");
    assert_eq!(clip.told().len(), 2);
    // Another part of the stream has other objects.
    clip.line.push_event(gst::event::FlushStart::new());
    clip.line.push_event(gst::event::FlushStop::new(true));
    clip.line.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    assert_eq!(clip.name(blind(1)), "");
}

// ------------------------------------------------------------------------------------------- the file

#[test]
fn the_file_is_read_again_when_it_changes() {
    let path = people("match-changes");
    let mut clip = Clip::new(&path, "");
    assert_eq!(clip.name(tracked(1, &STRANGER)), "");
    add(&path, &[("Eve", STRANGER)]);
    wait_until("the new name", LIMIT, || clip.name(tracked(1, &STRANGER)) == "Eve");
    assert_eq!(clip.told(), [(1, Some("Eve".into()), None)]);
    // Who is removed is forgotten, also where a track had the name.
    file::change(&path, |name| name != "Eve", &[]).unwrap();
    wait_until("the removed name", LIMIT, || clip.name(tracked(1, &STRANGER)).is_empty());
    assert_eq!(clip.name(seen(&ADA)), "Ada");
    assert_eq!(clip.line.said(), [""; 0]);
    file::change(&path, |_| false, &[]).unwrap();
    wait_until("an empty gallery", LIMIT, || clip.name(seen(&ADA)).is_empty());
    assert!(clip.line.wait_for_warning().contains("has no vectors, and all objects are unknown"));
}

#[test]
fn the_former_gallery_stays_where_the_new_one_is_wrong() {
    let path = people("match-former");
    let mut clip = Clip::new(&path, "");
    let mut say = |part: &str| {
        let mut said = Vec::new();
        wait_until(part, LIMIT, || {
            assert_eq!(clip.name(seen(&ADA)), "Ada");
            said.extend(clip.line.said());
            !said.is_empty()
        });
        assert!(said.len() == 1 && said[0].contains(part) && said[0].contains("former gallery stays"), "{said:?}");
    };
    let other = path.with_extension("other");
    std::fs::write(&other, "{\"name\": \"Ada\", \"vector\": [1, 0, 0]}\n{\"name\": \"Bob\"}\n").unwrap();
    std::fs::rename(&other, &path).unwrap();
    say("line 2");
    std::fs::remove_file(&path).unwrap();
    say("There is no gallery");
}

#[test]
fn names_that_cannot_be_told_apart_are_told_once() {
    let path = people("match-same-vector");
    let mut clip = Clip::new(&path, "");
    assert_eq!((clip.name(seen(&BOB)), clip.line.said()), ("Bob".into(), vec![]));
    // Half as long is the same vector.
    add(&path, &[("Eve", [0.0, 0.5, 0.0])]);
    let mut said = Vec::new();
    wait_until("a warning", LIMIT, || {
        assert_eq!(clip.name(seen(&BOB)), "Bob", "the first one");
        said.extend(clip.line.said());
        !said.is_empty()
    });
    assert!(
        said[0].contains("“Bob” and “Eve” have the same vector") && said[0].contains("is called “Bob”"),
        "{said:?}"
    );
    (0..9).for_each(|_| drop(clip.push(&[seen(&ADA)])));
    assert_eq!(clip.line.said(), [""; 0]);
    // At the start, too.
    let mut clip = Clip::new(&path, "");
    clip.push(&[]);
    assert_eq!(clip.line.said().len(), 1);
}

#[test]
fn mistakes_are_told() {
    let folder = scratch("match-mistakes");
    let line = |gallery: &str| launch(&format!("videotestsrc num-buffers=1 ! trtmatch {gallery} ! fakesink"));
    line("").expect_error("ResourceError::Settings", &["trtmatch has no gallery", "gst-trt enrol"]);
    let file = folder.join("g.jsonl");
    let set = format!("gallery={}", file.display());
    line(&set).expect_error("ResourceError::NotFound", &["There is no gallery"]);
    for (text, part) in [
        ("name,vector\n", "Cannot use line 1"),
        ("{\"name\": \"a\", \"vector\": [1, 2]}\n{\"name\": \"b\", \"vector\": [1]}\n", "those before have 2"),
        ("{\"name\": \"a\", \"vector\": [0, 0]}\n", "no length"),
    ] {
        std::fs::write(&file, text).unwrap();
        line(&set).expect_error("ResourceError::Settings", &[part]);
    }
    let folder = format!("gallery={}", folder.display());
    line(&folder).expect_error("ResourceError::OpenRead", &["it is a folder"]);
}

#[test]
fn what_nobody_can_be_recognised_by_is_told_once() {
    let path = people("match-nothing");
    let mut clip = Clip::new(&path, "");
    for _ in 0..100 {
        assert_eq!(clip.name(seen(&[1.0, 0.0])), "");
    }
    let said = clip.line.said();
    assert!(said.len() == 1 && said[0].contains("have 3 numbers, and those of objects have 2"), "{said:?}");
    let mut clip = Clip::new(&path, "");
    for _ in 0..100 {
        clip.push(&[]);
    }
    assert_eq!(clip.line.said(), [""; 0], "there are no objects");
    for _ in 0..100 {
        clip.push(&[Seen { vector: None, ..seen(&ADA) }]);
    }
    let said = clip.line.said();
    assert!(said.len() == 1 && said[0].contains("regions=objects"), "{said:?}");
    assert!(said[0].contains("set a smaller min-object-size"), "they may be too small: {said:?}");
    // Vectors that are none.
    let mut clip = Clip::new(&path, "");
    for odd in [[f32::NAN; 3], [0.0; 3], [f32::INFINITY, 0.0, 0.0]] {
        assert_eq!(clip.name(tracked(1, &odd)), "");
    }
    assert_eq!(clip.line.said(), [""; 0]);
}

#[test]
fn names_are_texts_and_nothing_else() {
    let path = scratch("match-odd-names").join("g.jsonl");
    let odd = ["%s%n%d", "../../etc/passwd", "<b>&amp;", "日本語 \"q\" \\ ;"];
    let vectors = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-1.0, 0.0, 0.0]];
    let all: Vec<(&str, [f32; 3])> = odd.into_iter().zip(vectors).collect();
    add(&path, &all);
    let mut clip = Clip::new(&path, "");
    let objects: Vec<Seen> = all.iter().zip(1..).map(|((_, vector), id)| tracked(id, vector)).collect();
    assert_eq!(clip.names(&objects), odd);
    let told: Vec<Option<String>> = clip.told().into_iter().map(|(_, name, _)| name).collect();
    assert_eq!(told, odd.map(|name| Some(name.to_string())));
}

/// A tracker that compares vectors gives a crowd its ids, and the gallery its names.
#[test]
fn a_thousand_objects_of_a_frame_are_followed_and_named() {
    const COUNT: usize = 1000;
    const NAMES: usize = 50;
    let path = scratch("match-thousand").join("people.jsonl");
    let look =
        |number: usize| -> Vec<f32> { (0..NAMES).map(|at| if at == number % NAMES { 1.0 } else { 0.0 }).collect() };
    let name = |number: usize| format!("n{}", number % NAMES);
    let known: Vec<GalleryEntry> =
        (0..NAMES).map(|number| GalleryEntry::new(&name(number), &look(number)).unwrap()).collect();
    file::change(&path, |_| true, &known).unwrap();
    let mut line = Line::parse(&format!("trttrack tracker=botsort ! trtmatch gallery={}", path.display()));
    line.caps("NV12", 1920, 2304);
    let wanted: Vec<String> = (0..COUNT).map(name).collect();
    for number in 0..3 {
        let mut buffer = gst::Buffer::new();
        let frame = buffer.get_mut().unwrap();
        frame.set_pts(gst::ClockTime::from_nseconds(number * FRAME));
        for object in 0..COUNT {
            let (column, row) = (object as u32 % 40, object as u32 / 40);
            let mut region = VideoRegionOfInterestMeta::add(frame, "person", (48 * column, 90 * row, 40, 80));
            region.add_param(param_of(&look(object)));
        }
        assert_eq!(names(&line.push(buffer)), wanted, "frame {number}");
    }
    let told = line.messages().into_iter().filter(|message| message.name() == "trt-match");
    let mut ids: Vec<u64> = told.map(|message| message.get("track-id").unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), COUNT, "each once, with an id of its own");
    assert_eq!(line.said(), [""; 0]);
    let stats: gst::Structure = line.element("trtmatch").property("stats");
    assert_eq!(stats.get::<u64>("objects"), Ok(3 * COUNT as u64));
}

// ------------------------------------------------------------------------------------------- the whole chain

#[test]
fn names_are_found_from_pictures() {
    let folder = scratch("match-chain");
    let first = model(&folder, &[[0.0, 0.0, 32.0, 32.0, 0.9, 0.0], [36.0, 0.0, 60.0, 20.0, 0.7, 1.0]]);
    let (second, gallery) = (embedder(&folder, "n"), folder.join("colours.jsonl"));
    // The picture is grey.
    add(&gallery, &[("grey", [1.0, 1.0, 1.0]), ("red", [1.0, 0.0, 0.0])]);
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={first} ! trtnms draw=false ! trttrack ! trtpreprocess regions=objects \
         reclassify-interval=3 ! trtinfer model-file={second} ! trtnms ! trtmatch gallery={} ! trtpublish location={}",
        gallery.display(),
        folder.join("results.jsonl").display()
    ));
    for number in 0..9 {
        let found = names(&line.push(grey(SIDE * SIDE * 3)));
        assert_eq!(found, ["grey", "grey"], "frame {number}");
    }
    let told = line.messages().into_iter().filter(|message| message.name() == "trt-match");
    assert!(told.count() >= 2);
    assert_eq!(line.said(), [""; 0]);
    drop(line);
    let lines = std::fs::read_to_string(folder.join("results.jsonl")).unwrap();
    assert_eq!(lines.matches(r#""attributes":[{"label":"grey""#).count(), 18, "{lines}");
}
