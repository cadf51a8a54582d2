// SPDX-License-Identifier: MPL-2.0
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::fakes::Fakes;
use crate::gallery::GalleryEntry;
use crate::test::{LIMIT, scratch, wait_until};

/// Each name has a vector of its own.
fn add(path: &Path, name: &str) {
    let vector = [1.0, f32::from(name.as_bytes()[0])];
    file::change(path, |_| true, &[GalleryEntry::new(name, &vector).unwrap()]).unwrap();
}

fn open(path: &Path) -> WatchedGallery {
    WatchedGallery::open_every(path, Duration::from_millis(1)).unwrap()
}

/// One whose thread does not look at the file while a test takes.
fn open_still(path: &Path) -> WatchedGallery {
    WatchedGallery::open_every(path, Duration::from_secs(3600)).unwrap()
}

/// Looks at the file as the thread does, until what has changed is settled.
fn look(watched: &WatchedGallery, seen: &mut SeenFile) {
    watched.watch.look(seen);
    if seen.former.is_empty() {
        watched.watch.look(seen);
    }
}

fn names(watched: &WatchedGallery) -> Vec<String> {
    watched.get().gallery.names().to_vec()
}

fn have_one(a: &WatchedGallery, b: &WatchedGallery) -> bool {
    Arc::ptr_eq(&a.get().gallery, &b.get().gallery)
}

fn said(watched: &WatchedGallery) -> String {
    watched.take_warning().map(|warning| warning.message()).unwrap_or_default()
}

#[test]
fn changes_of_the_file_are_taken_over() {
    let path = scratch("gallery-watched").join("g.jsonl");
    assert_eq!(WatchedGallery::open(&path).err().unwrap().kind(), ErrorKind::NotFound);
    add(&path, "ada");
    let watched = open(&path);
    let before = watched.get().gallery;
    assert_eq!(before.names(), ["ada"]);
    add(&path, "bob");
    wait_until("another gallery", LIMIT, || names(&watched).len() == 2);
    assert!(!Arc::ptr_eq(&before, &watched.get().gallery));
    assert_eq!(before.names(), ["ada"], "who has it may go on with it");
    assert!(watched.take_warning().is_none());
    file::change(&path, |_| false, &[]).unwrap();
    wait_until("an empty gallery", LIMIT, || watched.get().gallery.is_empty());
    let warning = || watched.take_warning().map(|warning| warning.message());
    let mut said = None;
    wait_until("a warning", LIMIT, || {
        said = warning();
        said.is_some()
    });
    assert!(said.as_ref().is_some_and(|said| said.contains("all objects are unknown")), "{said:?}");
}

#[test]
fn galleries_are_copied_to_a_gpu_that_takes_them() {
    let Some(fakes) = Fakes::of(module_path!(), "galleries_are_copied_to_a_gpu_that_takes_them") else { return };
    let (path, context) = (scratch("gallery-on-gpu").join("g.jsonl"), fakes.context());
    add(&path, "ada");
    let watched = open(&path);
    watched.use_gpu(&context, false);
    add(&path, "bob");
    wait_until("another gallery", LIMIT, || names(&watched).len() == 2);
    assert!(watched.get().on_gpu.is_none(), "it is too small");
    // The one that is there at once, and each that comes then before it is there.
    watched.use_gpu(&context, true);
    assert!(watched.get().on_gpu.is_some_and(|on_gpu| *on_gpu.context() == context));
    add(&path, "eve");
    wait_until("the next gallery", LIMIT, || names(&watched).len() == 3);
    assert!(watched.get().on_gpu.is_some() && watched.take_warning().is_none());
    // One for which there is no room stays on the host, and the next one is tried again.
    fakes.lack(1);
    add(&path, "kim");
    wait_until("a gallery on the host", LIMIT, || names(&watched).len() == 4);
    let warning = watched.take_warning().unwrap().message();
    assert!(watched.get().on_gpu.is_none() && warning.contains("the CPU compares vectors with it"), "{warning}");
    add(&path, "pat");
    wait_until("a gallery on the GPU", LIMIT, || names(&watched).len() == 5);
    assert!(watched.get().on_gpu.is_some() && watched.take_warning().is_none());
    drop(watched);
    assert_eq!((fakes.count(c"fake_pending"), fakes.count(c"fake_busy_frees")), (0, 0));
}

#[test]
fn a_file_is_read_when_it_is_whole_or_changes_without_an_end() {
    let at = |seconds: i64, inode: u64| {
        Some(FileMark { seconds, nanoseconds: 0, changed: (0, 0), length: 1, device: 0, inode })
    };
    let mut seen = SeenFile::new(at(0, 1));
    let mut due = |now| seen.is_due(now);
    assert_eq!([at(0, 1), at(1, 1), at(1, 1), at(1, 1)].map(&mut due), [false, false, true, false]);
    let replaced = [at(2, 2), at(3, 3), at(3, 3)].map(&mut due);
    assert_eq!(replaced, [true, true, false], "each time another is in its place");
    let written = [4, 5, 6, 7, 8, 9, 10, 11].map(|seconds| due(at(seconds, 3)));
    assert_eq!(written, [false, false, false, true, false, false, false, true]);
    assert_eq!([None, None, None, at(11, 3), at(11, 3)].map(&mut due), [false, true, false, false, true]);
}

#[test]
fn a_file_whose_rights_change_is_another() {
    let path = scratch("gallery-rights").join("g.jsonl");
    add(&path, "ada");
    let before = FileMark::of(&path).unwrap();
    // The clock of the file system may stand still for some milliseconds.
    wait_until("another time of change", LIMIT, || {
        fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        FileMark::of(&path).unwrap() != before
    });
}

/// A folder in the place of the file cannot be read.
#[test]
fn a_file_that_cannot_be_read_is_tried_again_and_said_once() {
    let path = scratch("gallery-again").join("g.jsonl");
    add(&path, "ada");
    let watched = open_still(&path);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let mut seen = SeenFile::new(None);
    seen.last = FileMark::of(&path);
    let mut look = || {
        watched.watch.look(&mut seen);
        watched.take_warning().map(|warning| warning.kind())
    };
    assert_eq!([look(), look(), look()], [Some(ErrorKind::Read), None, None]);
    fs::remove_dir(&path).unwrap();
    add(&path, "bob");
    // The mark of this very file may be known already: it is read nevertheless.
    seen.read = FileMark::of(&path);
    seen.last = seen.read;
    watched.watch.look(&mut seen);
    assert_eq!(names(&watched), ["bob"]);
    assert!(seen.unreadable.is_none());
}

#[test]
fn the_former_gallery_stays_where_a_new_one_cannot_be_used() {
    let path = scratch("gallery-former").join("g.jsonl");
    add(&path, "ada");
    let watched = open(&path);
    let mut said = String::new();
    let mut is_said = |part: &str| {
        wait_until(part, LIMIT, || {
            said = watched.take_warning().map(|warning| warning.message()).unwrap_or_default();
            said.contains(part)
        });
        assert!(said.contains("The former gallery stays"), "{said}");
        assert_eq!(names(&watched), ["ada"]);
    };
    let other = path.with_extension("other");
    fs::write(&other, "name,vector\n").unwrap();
    fs::rename(&other, &path).unwrap();
    is_said("Cannot use line 1");
    fs::remove_file(&path).unwrap();
    is_said("There is no gallery");
    add(&path, "bob");
    wait_until("another gallery", LIMIT, || names(&watched) == ["bob"]);
}

#[test]
fn those_who_have_a_file_share_what_is_read() {
    let folder = scratch("gallery-shared");
    let (path, other, link) = (folder.join("g.jsonl"), folder.join("other.jsonl"), folder.join("link.jsonl"));
    add(&path, "ada");
    fs::copy(&path, &other).unwrap();
    symlink("g.jsonl", &link).unwrap();
    let [a, b, of_link, of_other] = [&path, &path, &link, &other].map(|path| open(path));
    assert!(Arc::ptr_eq(&a.watch, &b.watch), "one thread looks at it");
    assert!(have_one(&a, &b) && have_one(&a, &of_link) && !have_one(&a, &of_other));
    add(&path, "bob");
    wait_until("one gallery of all", LIMIT, || names(&a).len() == 2 && have_one(&a, &b) && have_one(&a, &of_link));
    assert_eq!(names(&of_other), ["ada"]);
    // The link leads elsewhere: who has that follows it, and the others stay.
    fs::remove_file(&link).unwrap();
    symlink("other.jsonl", &link).unwrap();
    wait_until("the gallery that the link leads to", LIMIT, || have_one(&of_link, &of_other));
    assert!(have_one(&a, &b) && names(&a).len() == 2);
    // The last one frees it.
    let gallery = Arc::downgrade(&a.get().gallery);
    drop(a);
    assert!(gallery.upgrade().is_some());
    drop(b);
    wait_until("the end of the gallery", LIMIT, || gallery.upgrade().is_none());
}

#[test]
fn who_comes_later_has_the_file_as_it_is_and_a_change_is_read_once() {
    let path = scratch("gallery-later").join("g.jsonl");
    add(&path, "ada");
    let first = open_still(&path);
    let before = FoundGallery::read(&path).unwrap();
    add(&path, "bob");
    let second = open_still(&path);
    assert!(Arc::ptr_eq(&first.watch, &second.watch));
    assert_eq!((names(&first).len(), names(&second).len()), (1, 2));
    // What the thread began to read before is no longer what the file is.
    assert!(second.user.take_over(&CheckedGallery { found: before, warning: None }).is_none());
    // It takes what the second one has read.
    let has = second.get().gallery;
    let mut seen = SeenFile::new(None);
    look(&first, &mut seen);
    assert!(have_one(&first, &second) && Arc::ptr_eq(&has, &first.get().gallery));
    assert_eq!(seen.former.len(), 1, "the second one had it already");
    assert_eq!((said(&first), said(&second)), (String::new(), String::new()));
    // Each is told what is wrong, and nobody can come.
    fs::write(&path, "name,vector\n").unwrap();
    assert!(WatchedGallery::open(&path).err().unwrap().message().contains("Cannot use line 1"));
    look(&first, &mut seen);
    for watched in [&first, &second] {
        let said = said(watched);
        assert!(said.contains("Cannot use line 1") && said.contains("The former gallery stays"), "{said}");
        assert_eq!(names(watched), ["ada", "bob"]);
    }
    // Also of what can be used.
    fs::write(&path, "").unwrap();
    look(&first, &mut seen);
    let third = open_still(&path);
    for watched in [&first, &second, &third] {
        let said = said(watched);
        assert!(said.contains("all objects are unknown") && have_one(watched, &first), "{said}");
    }
}

#[test]
fn a_copy_on_a_gpu_is_shared_and_freed_by_the_last_one() {
    let Some(fakes) = Fakes::of(module_path!(), "a_copy_on_a_gpu_is_shared_and_freed_by_the_last_one") else { return };
    let (path, context) = (scratch("gallery-copy-shared").join("g.jsonl"), fakes.context());
    add(&path, "ada");
    let [a, b, host] = [(); 3].map(|()| open_still(&path));
    a.use_gpu(&context, true);
    b.use_gpu(&context, true);
    let copy = |watched: &WatchedGallery| watched.get().on_gpu;
    let is_shared = || Arc::ptr_eq(&copy(&a).unwrap(), &copy(&b).unwrap()) && copy(&host).is_none();
    assert!(is_shared());
    let former = Arc::downgrade(&copy(&a).unwrap());
    add(&path, "bob");
    let mut seen = SeenFile::new(None);
    look(&a, &mut seen);
    assert!(is_shared() && have_one(&a, &host));
    assert!(former.upgrade().is_some(), "a frame may still be compared with it");
    a.watch.look(&mut seen);
    assert!(former.upgrade().is_none());
    // Where there is no room for one of them, that one alone is on the host.
    fakes.lack(1);
    add(&path, "eve");
    look(&a, &mut seen);
    assert!(copy(&a).is_none() && said(&a).contains("the CPU compares vectors with it"));
    assert!(copy(&b).is_some() && said(&b).is_empty() && said(&host).is_empty());
    add(&path, "kim");
    look(&a, &mut seen);
    assert!(is_shared());
    // It is freed with the last one who compares there, though another one has the gallery.
    let last = Arc::downgrade(&copy(&a).unwrap());
    drop(seen);
    drop(a);
    assert!(last.upgrade().is_some());
    drop(b);
    assert!(last.upgrade().is_none() && host.get().gallery.on_gpu(&context).is_none());
    assert_eq!((fakes.count(c"fake_pending"), fakes.count(c"fake_busy_frees")), (0, 0));
}
