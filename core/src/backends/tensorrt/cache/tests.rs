// SPDX-License-Identifier: MPL-2.0
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;
use std::thread;

use super::*;

/// A folder of its own for each test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("gsttrt-cache-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Folder(folder)
    }

    fn cache(&self) -> Cache {
        Cache::open(Some(&self.0)).unwrap()
    }

    /// The one file with that extension.
    fn file(&self, extension: &str) -> PathBuf {
        let files = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn key() -> Key {
    Key {
        model: "/models/yolo 11n.onnx".into(),
        contents: "c0ffee".into(),
        library: "TensorRT 8.6.0".into(),
        gpu: "NVIDIA H200, compute capability 9.0".into(),
        precision: "fp16".into(),
        shapes: "images 1x3x640x640".into(),
        options: "optimization level 3".into(),
    }
}

static GO_ON: AtomicBool = AtomicBool::new(false);

fn find(cache: &Cache, key: &Key) -> Lookup {
    cache.find(key, &GO_ON, || panic!("no other process builds")).unwrap()
}

fn hit(cache: &Cache, key: &Key) -> Vec<u8> {
    match find(cache, key) {
        Lookup::Hit(engine) => engine.bytes,
        Lookup::Miss(slot) => panic!("{}", slot.why()),
    }
}

fn miss(cache: &Cache, key: &Key) -> BuildLock {
    match find(cache, key) {
        Lookup::Hit(_) => panic!("found"),
        Lookup::Miss(slot) => slot,
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn an_engine_is_found_again() {
    let folder = Folder::new("again");
    let cache = folder.cache();
    let slot = miss(&cache, &key());
    assert_eq!(slot.why(), "there is none for this model in the engine cache");
    slot.store(&EngineFile::new(b"an engine".to_vec())).unwrap();
    assert_eq!(hit(&cache, &key()), b"an engine");

    // The label is for people too.
    let label = fs::read_to_string(folder.file("txt")).unwrap();
    assert!(
        label.contains("\nmodel = /models/yolo 11n.onnx\n") && label.contains("\nlibrary = TensorRT 8.6.0\n"),
        "{label}"
    );
    assert!(folder.file("engine").file_name().unwrap().to_str().unwrap().starts_with("yolo_11n-"));
    // A copy of the model elsewhere is the same model.
    assert_eq!(hit(&cache, &Key { model: "/other/yolo 11n.onnx".into(), ..key() }), b"an engine");
    cache.forget(&key());
    miss(&cache, &key());
}

#[test]
fn the_name_of_an_entry_never_changes() {
    // Another name would make all users build again: raise the number in TITLE when that is meant.
    assert_eq!(key().name(), "yolo_11n-8dbde36a8c949c34");
}

#[test]
fn only_the_user_can_read_it() {
    let folder = Folder::new("modes");
    let cache = folder.cache();
    miss(&cache, &key()).store(&EngineFile::new(b"an engine".to_vec())).unwrap();
    assert_eq!(mode(&folder.0), 0o700);
    for extension in ["engine", "txt", "lock"] {
        assert_eq!(mode(&folder.file(extension)), 0o600, "{extension}");
    }
}

#[test]
fn a_broken_entry_is_built_again() {
    let folder = Folder::new("broken");
    let cache = folder.cache();
    let engine = b"an engine, some of which will be lost";
    let cut = |path: &Path, bytes: usize| fs::write(path, &fs::read(path).unwrap()[..bytes]).unwrap();
    type Damage<'a> = (&'a dyn Fn(&Path, &Path), &'a str);
    let breakages: [Damage; 7] = [
        (&|engine, _| cut(engine, 9), "it has 9 of its 37 bytes"),
        (
            &|engine, _| fs::write(engine, b"AN engine, some of which will be lost").unwrap(),
            "its contents have changed",
        ),
        (&|engine, _| fs::remove_file(engine).unwrap(), "it cannot be read: No such file"),
        (&|_, label| cut(label, 40), "its label is damaged"),
        (&|_, label| fs::write(label, b"").unwrap(), "its label is damaged"),
        (&|_, label| fs::write(label, [0xff; 400]).unwrap(), "its label is damaged"),
        (
            &|_, label| fs::write(label, fs::read_to_string(label).unwrap().replace("fp16", "int8")).unwrap(),
            "it was built with precision “int8”, and wanted is “fp16”",
        ),
    ];
    miss(&cache, &key()).store(&EngineFile::new(engine.to_vec())).unwrap();
    for (damage, words) in breakages {
        damage(&folder.file("engine"), &folder.file("txt"));
        let slot = miss(&cache, &key());
        assert!(slot.why().contains(" is broken: ") && slot.why().contains(words), "{} / {words}", slot.why());
        slot.store(&EngineFile::new(engine.to_vec())).unwrap();
        assert_eq!(hit(&cache, &key()), engine);
    }
}

#[test]
fn a_stale_entry_names_the_difference() {
    let folder = Folder::new("stale");
    let cache = folder.cache();
    miss(&cache, &key()).store(&EngineFile::new(b"an engine".to_vec())).unwrap();
    let changes = [
        (Key { contents: "beef".into(), ..key() }, "the model has changed since"),
        (
            Key { library: "TensorRT 10.13.3".into(), ..key() },
            "it was built by TensorRT 8.6.0, and here is TensorRT 10.13.3",
        ),
        (
            Key { gpu: "NVIDIA L4, compute capability 8.9".into(), ..key() },
            "it was built for NVIDIA H200, compute capability 9.0, and here is NVIDIA L4, compute capability 8.9",
        ),
        (Key { precision: "int8".into(), ..key() }, "it was built with precision “fp16”, and wanted is “int8”"),
        (
            Key { shapes: "images 1x3x320x320".into(), ..key() },
            "it was built with shapes “images 1x3x640x640”, and wanted is “images 1x3x320x320”",
        ),
        (
            Key { options: "optimization level 5".into(), ..key() },
            "it was built with options “optimization level 3”, and wanted is “optimization level 5”",
        ),
        (
            Key { contents: "beef".into(), library: "TensorRT 11.1".into(), ..key() },
            "the model has changed since; it was built by TensorRT 8.6.0, and here is TensorRT 11.1",
        ),
    ];
    for (wanted, words) in changes {
        assert_ne!(wanted.name(), key().name());
        let slot = miss(&cache, &wanted);
        assert!(
            slot.why().ends_with(&format!(" in the engine cache cannot be used: {words}")),
            "{} / {words}",
            slot.why()
        );
    }
    // Another model of that name is none of its business.
    let other = Key { model: "/elsewhere/yolo 11n.onnx".into(), contents: "beef".into(), ..key() };
    assert_eq!(miss(&cache, &other).why(), "there is none for this model in the engine cache");
    assert_eq!(hit(&cache, &key()), b"an engine");
}

#[test]
fn engines_of_former_contents_are_removed() {
    let folder = Folder::new("former");
    let cache = folder.cache();
    let (new, other_gpu) = (Key { contents: "beef".into(), ..key() }, Key { gpu: "NVIDIA L4".into(), ..key() });
    miss(&cache, &key()).store(&EngineFile::new(b"old".to_vec())).unwrap();
    miss(&cache, &other_gpu).store(&EngineFile::new(b"other".to_vec())).unwrap();
    miss(&cache, &new).store(&EngineFile::new(b"new".to_vec())).unwrap();
    miss(&cache, &key());
    assert_eq!((hit(&cache, &new), hit(&cache, &other_gpu)), (b"new".to_vec(), b"other".to_vec()));
}

#[test]
fn a_second_process_waits_and_uses_the_engine() {
    let folder = Folder::new("wait");
    let cache = folder.cache();
    let slot = miss(&cache, &key());
    let (sender, waits) = mpsc::channel();
    let second = thread::spawn({
        let cache = cache.clone();
        move || match cache.find(&key(), &GO_ON, || sender.send(()).unwrap()).unwrap() {
            Lookup::Hit(engine) => engine.bytes,
            Lookup::Miss(slot) => panic!("{}", slot.why()),
        }
    });
    waits.recv().unwrap();
    // Others are not held up.
    miss(&cache, &Key { precision: "fp32".into(), ..key() });
    slot.store(&EngineFile::new(b"an engine".to_vec())).unwrap();
    assert_eq!(second.join().unwrap(), b"an engine");
}

#[test]
fn a_second_process_builds_if_the_first_gives_up() {
    let folder = Folder::new("gives-up");
    let cache = folder.cache();
    let slot = miss(&cache, &key());
    let (sender, waits) = mpsc::channel();
    let second = thread::spawn({
        let cache = cache.clone();
        move || matches!(cache.find(&key(), &GO_ON, || sender.send(()).unwrap()).unwrap(), Lookup::Miss(_))
    });
    waits.recv().unwrap();
    drop(slot);
    assert!(second.join().unwrap());
}

#[test]
fn another_process_is_waited_for() {
    let folder = Folder::new("process");
    let cache = folder.cache();
    let lock = cache.path(&key(), "lock");
    let mut other = std::process::Command::new("flock")
        .args([&lock, Path::new("sh")])
        .args(["-c", "echo held; read line"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut [0; 5]).unwrap();

    let cancelled = AtomicBool::new(false);
    let found = cache.find(&key(), &cancelled, || cancelled.store(true, Ordering::Relaxed));
    assert!(found.is_err_and(|error| error.message().contains("was cancelled")));

    drop(other.stdin.take()); // it ends without having built anything
    other.wait().unwrap();
    miss(&cache, &key());
}

#[test]
fn folders_that_cannot_be_used_are_named() {
    let folder = Folder::new("unusable");
    fs::create_dir(&folder.0).unwrap();
    let file = folder.0.join("file");
    fs::write(&file, b"").unwrap();
    let error = Cache::open(Some(&file.join("below"))).unwrap_err();
    assert!(error.message().starts_with(&format!("Cannot use the engine cache {}", file.display())), "{error}");
    let error = Cache::open(Some(Path::new("/proc/engines"))).unwrap_err();
    assert!(error.message().contains("Engines are built again each time"), "{error}");

    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    let error = Cache::open(Some(&folder.0)).unwrap_err();
    assert!(error.message().contains("other users may write to it"), "{error}");
}

fn is_root() -> bool {
    // SAFETY: it only returns a number.
    unsafe { libc::geteuid() == 0 }
}

/// The error of opening a folder with that mode and that owner, if any.
fn opened(folder: &Path, mode: u32, owner: Option<u32>) -> Option<String> {
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    if let Some(owner) = owner {
        std::os::unix::fs::chown(folder, Some(owner), None).unwrap();
    }
    Cache::open(Some(folder)).err().map(|error| error.message())
}

const NOBODY: u32 = 65534;

#[test]
fn folders_that_others_may_change_are_refused() {
    let folder = Folder::new("trust");
    let inner = folder.0.join("inner");
    fs::create_dir_all(&inner).unwrap();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).unwrap();
    for mode in [0o700, 0o755] {
        assert_eq!(opened(&inner, mode, None), None);
    }
    for mode in [0o777, 0o1777, 0o775, 0o722] {
        let message = opened(&inner, mode, None).unwrap();
        assert!(message.contains("other users may write to it") && message.contains("set engine-cache"), "{message}");
    }
    // The parent may be renamed and replaced.
    assert_eq!(opened(&inner, 0o700, None), None);
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    let message = opened(&inner, 0o700, None).unwrap();
    assert!(message.contains("lies above it, and other users may write to it"), "{message}");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(opened(&inner, 0o700, None), None);

    let link = folder.0.join("link");
    std::os::unix::fs::symlink(&inner, &link).unwrap();
    let message = Cache::open(Some(&link)).unwrap_err().message();
    assert!(message.contains("it is a symbolic link"), "{message}");

    if !is_root() {
        println!("skipped: giving a folder to another user takes root");
        return;
    }
    let message = opened(&inner, 0o755, Some(NOBODY)).unwrap();
    assert!(message.contains("it belongs to another user"), "{message}");
    std::os::unix::fs::chown(&inner, Some(0), None).unwrap();
    std::os::unix::fs::chown(&folder.0, Some(NOBODY), None).unwrap();
    let message = opened(&inner, 0o700, None).unwrap();
    assert!(message.contains("lies above it, and it belongs to another user"), "{message}");
}

#[test]
fn files_that_others_wrote_are_no_engines() {
    let folder = Folder::new("planted");
    let cache = folder.cache();
    for extension in ["engine", "txt"] {
        miss(&cache, &key()).store(&EngineFile::new(b"an engine".to_vec())).unwrap();
        fs::set_permissions(folder.file(extension), fs::Permissions::from_mode(0o666)).unwrap();
        let slot = miss(&cache, &key());
        assert!(slot.why().contains("other users may write to it"), "{}", slot.why());
        slot.store(&EngineFile::new(b"an engine".to_vec())).unwrap();
        if is_root() {
            std::os::unix::fs::chown(folder.file(extension), Some(NOBODY), None).unwrap();
            let slot = miss(&cache, &key());
            assert!(slot.why().contains("it belongs to another user"), "{}", slot.why());
        } else {
            println!("skipped: giving a file to another user takes root");
        }
        cache.forget(&key());
    }
}

#[test]
fn planted_links_and_pipes_are_not_followed() {
    let folder = Folder::new("links");
    let cache = folder.cache();
    let target = folder.0.join("target");
    fs::write(&target, b"precious").unwrap();
    let link = |extension| std::os::unix::fs::symlink(&target, cache.path(&key(), extension)).unwrap();
    for extension in ["engine.tmp", "txt.tmp", "lock"] {
        link(extension);
    }
    miss(&cache, &key()).store(&EngineFile::new(b"an engine".to_vec())).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"precious");
    assert_eq!(hit(&cache, &key()), b"an engine");

    // An entry that is a link is none, even to a good one.
    let engine = folder.file("engine");
    fs::rename(&engine, folder.0.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(folder.0.join("elsewhere"), &engine).unwrap();
    assert!(miss(&cache, &key()).why().contains("it cannot be read"));

    // A pipe would be waited for.
    for extension in ["engine", "txt"] {
        let path = cache.path(&key(), extension);
        miss(&cache, &key()).store(&EngineFile::new(b"an engine".to_vec())).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let why = miss(&cache, &key()).why().to_string();
        assert!(why.contains("it is a pipe"), "{why}");
    }
}

/// As a child holds it that another thread has just forked.
#[test]
fn a_lock_ends_even_if_a_child_has_the_file() {
    let folder = Folder::new("inherited");
    let cache = folder.cache();
    let slot = miss(&cache, &key());
    let copy = slot._lock.as_ref().unwrap().0.try_clone().unwrap();
    drop(slot);
    miss(&cache, &key());
    drop(copy);
}

#[test]
fn a_read_only_cache_is_still_read() {
    let folder = Folder::new("read-only");
    let cache = folder.cache();
    miss(&cache, &key()).store(&EngineFile::new(b"an engine".to_vec())).unwrap();
    // For root, modes forbid nothing; folders with the names of the files do.
    let other = Key { precision: "fp32".into(), ..key() };
    for extension in ["lock", "engine.tmp"] {
        fs::create_dir(cache.path(&other, extension)).unwrap();
    }
    let error = miss(&cache, &other).store(&EngineFile::new(b"another".to_vec())).unwrap_err();
    assert!(error.message().starts_with("Cannot keep the engine in "), "{error}");
    assert_eq!(hit(&cache, &key()), b"an engine");
}

#[test]
fn timing_is_kept_for_each_library_and_gpu() {
    let folder = Folder::new("timing");
    let cache = folder.cache();
    let timing = cache.timing("TensorRT 8.6.0", "NVIDIA H200");
    assert_eq!(timing.load(), None);
    for bytes in [&b"first"[..], b"second, longer", b""] {
        timing.save(bytes).unwrap();
        assert_eq!(timing.load().as_deref(), Some(bytes));
    }
    timing.save(b"measurements").unwrap();
    assert_eq!(cache.timing("TensorRT 8.6.1", "NVIDIA H200").load(), None);
    assert_eq!(cache.timing("TensorRT 8.6.0", "NVIDIA H100").load(), None);
    let file = folder.file("cache");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    assert_eq!(timing.load(), None);
    fs::write(&file, b"short").unwrap();
    assert_eq!(timing.load(), None);
}

fn verdict(pictures: usize) -> Verdict {
    Verdict {
        faults: Vec::new(),
        reference: Ok("the CPU (rten)".into()),
        precision: "fp16".into(),
        pictures,
        runs: 30,
        largest_batch: 4,
        outputs: Vec::new(),
        results: Some((200, 199)),
        repair: None,
        milliseconds: 900,
    }
}

#[test]
fn a_verdict_is_kept_for_one_engine_and_goes_with_it() {
    let folder = Folder::new("verdict");
    let cache = folder.cache();
    let engine = EngineFile::new(b"an engine".to_vec());
    miss(&cache, &key()).store(&engine).unwrap();
    let kept = cache.verdict(&key(), &engine.sha256, "one by one");
    let load = |kept: &VerdictFile| kept.load(|| unreachable!("it was compared"));
    assert_eq!(load(&kept), None);
    kept.save(&verdict(4), "").unwrap();
    assert_eq!((load(&kept), mode(&folder.file("verdict"))), (Some(verdict(4)), 0o600));
    let other = EngineFile::new(b"another".to_vec());
    assert_eq!(load(&cache.verdict(&key(), &other.sha256, "one by one")), None);
    assert_eq!(load(&cache.verdict(&key(), &engine.sha256, "as a graph")), None);
    fs::write(folder.file("verdict"), "{").unwrap();
    assert_eq!(load(&kept), None, "damaged");
    kept.save(&verdict(4), "").unwrap();
    cache.forget(&key());
    assert_eq!(load(&kept), None);

    let of_file = |gpu: &str, runs: &str| cache.verdict_of_file(&engine.sha256, "TensorRT 8.6.0", gpu, runs);
    of_file("one", "1x3x8x8").save(&verdict(2), "").unwrap();
    of_file("one", "2x3x8x8").save(&verdict(3), "").unwrap();
    let load = |gpu, runs| load(&of_file(gpu, runs));
    assert_eq!([load("one", "1x3x8x8"), load("one", "2x3x8x8")], [Some(verdict(2)), Some(verdict(3))]);
    assert_eq!(load("other", "1x3x8x8"), None);
}

/// The next start would take as long otherwise, where nothing else can be found out.
#[test]
fn a_reference_that_fails_twice_is_given_up_until_there_is_another_one() {
    let folder = Folder::new("reference");
    let kept = folder.cache().verdict(&key(), "an engine", "one by one");
    let failed = |why: &str| Verdict { reference: Err(why.into()), ..verdict(0) };
    let load = |references: &str| kept.load(|| references.into());
    kept.save(&failed("out of memory"), "rten").unwrap();
    assert_eq!(load("rten"), None);
    kept.save(&failed("no such operator"), "rten").unwrap();
    assert_eq!(load("rten"), None, "it failed otherwise");
    kept.save(&failed("no such operator"), "rten").unwrap();
    assert_eq!([load("rten"), load("onnxruntime, rten")], [Some(failed("no such operator")), None]);
    kept.save(&verdict(4), "onnxruntime, rten").unwrap();
    assert_eq!(load("rten"), Some(verdict(4)), "it was compared");
    kept.save(&failed("a file"), "").unwrap();
    assert_eq!(load(""), Some(failed("a file")), "of an engine file nothing else can be found out");
}
