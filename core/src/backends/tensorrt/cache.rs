// SPDX-License-Identifier: MPL-2.0
//! The engine cache: built engines, found by what they were built for.
//!
//! Building takes minutes, and an engine is good only for the model, the TensorRT, the GPU and the options that it was built
//! with. [`Key`] holds all of that, and its hash names the entry, so that one for something else is never found by mistake.
//! An entry is two files: the engine as TensorRT wrote it, and a text next to it with what it was built for, how long it
//! is, and its SHA-256:
//!
//! ```text
//! ~/.cache/gst-plugin-trt/engines/
//!     yolo11n-0123456789abcdef.engine     the engine
//!     yolo11n-0123456789abcdef.txt        its label
//!     yolo11n-0123456789abcdef.verdict    whether it computes what the model says, as JSON
//!     yolo11n-0123456789abcdef.lock       held by the process that builds it; empty
//!     timing-….cache                      TensorRT's own measurements, which make the next build shorter
//! ```
//!
//! The label is written last and each file is renamed into place, so that a build that is interrupted at any point
//! leaves no entry that looks complete. Since engines are programs, only the user (or root) may own or change the
//! folder, each file in it, and the folders above; links are not followed.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::backends::verify::Verdict;
use crate::error::{Error, ErrorKind, Result};
use crate::files;

/// First line of every label; another number here invalidates all earlier entries.
const TITLE: &str = "gst-plugin-trt engine 1";

/// Another number here has all engines verified again.
const VERDICT_VERSION: u32 = 2;

/// How often a wait looks whether it is cancelled: whoever sets such a flag, as a handler of signals does, wakes nobody.
pub(in crate::backends) const CANCEL_INTERVAL: Duration = Duration::from_millis(50);

/// What an engine is built for: it is used again only where all of this is the same, except the model's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The model's file. Gives the entry its name, for people.
    pub model: PathBuf,
    /// Its [`fingerprint`](super::onnx::Onnx::fingerprint).
    pub contents: String,
    /// As in `TensorRT 8.6.0`.
    pub library: String,
    /// As in `NVIDIA H200, compute capability 9.0`.
    pub gpu: String,
    pub precision: String,
    /// As in `images 1x3x640x640`.
    pub shapes: String,
    /// All other options that change the engine.
    pub options: String,
}

impl Key {
    /// The fields that must match, by their names in labels, in the order of messages.
    fn fields(&self) -> [(&'static str, String); 6] {
        [
            ("contents", &self.contents),
            ("library", &self.library),
            ("gpu", &self.gpu),
            ("precision", &self.precision),
            ("shapes", &self.shapes),
            ("options", &self.options),
        ]
        .map(|(name, value)| (name, one_line(value)))
    }

    /// The path of the model, as labels have it.
    fn model_path(&self) -> String {
        one_line(&self.model.display().to_string())
    }

    /// The entry's name without its extension, as in `yolo11n-0123456789abcdef`.
    fn name(&self) -> String {
        let mut hash = Sha256::new_with_prefix(TITLE);
        for (name, value) in self.fields() {
            hash.update(format!("\n{name} = {value}"));
        }
        format!("{}-{}", stem(&self.model), &hex(hash)[..16])
    }
}

/// The text next to an engine that describes it.
struct Label {
    model: String,
    /// Names and values of [`Key::fields`].
    fields: Vec<(String, String)>,
    bytes: u64,
    sha256: String,
}

impl Label {
    fn new(key: &Key, engine: &EngineFile) -> Self {
        Label {
            model: key.model_path(),
            fields: key.fields().map(|(name, value)| (name.to_string(), value)).into(),
            bytes: engine.bytes.len() as u64,
            sha256: engine.sha256.clone(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{TITLE}\nmodel = {}\n", self.model);
        for (name, value) in &self.fields {
            writeln!(text, "{name} = {value}").unwrap();
        }
        write!(text, "bytes = {}\nsha256 = {}\n", self.bytes, self.sha256).unwrap();
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields: Vec<(String, String)> = text
            .strip_prefix(TITLE)?
            .strip_prefix('\n')?
            .lines()
            .map(|line| line.split_once(" = ").map(|(name, value)| (name.into(), value.into())))
            .collect::<Option<_>>()?;
        let mut take = |wanted: &str| {
            let at = fields.iter().position(|(name, _)| name == wanted)?;
            Some(fields.remove(at).1)
        };
        let (model, bytes, sha256) = (take("model")?, take("bytes")?.parse().ok()?, take("sha256")?);
        Some(Label { model, fields, bytes, sha256 })
    }

    /// In which fields it differs from the key: name, the label's value, the wanted one.
    fn differences(&self, key: &Key) -> Vec<(&'static str, &str, String)> {
        let wanted = key.fields().into_iter();
        wanted.map(|(name, wanted)| (name, self.get(name), wanted)).filter(|(_, said, wanted)| said != wanted).collect()
    }

    /// The value of a field; empty where it is missing.
    fn get(&self, wanted: &str) -> &str {
        self.fields.iter().find(|(name, _)| name == wanted).map_or("", |(_, value)| value)
    }

    /// The differences as a clause: “it was built for …”. A damaged label may say anything, of any length.
    fn stale(&self, key: &Key) -> String {
        let reasons = self.differences(key).into_iter().map(|(name, said, wanted)| {
            let said = one_line(&said.chars().take(MAX_SAID).collect::<String>());
            match name {
                "contents" => "the model has changed since".to_string(),
                "library" => format!("it was built by {said}, and here is {wanted}"),
                "gpu" => format!("it was built for {said}, and here is {wanted}"),
                name => format!("it was built with {name} “{said}”, and wanted is “{wanted}”"),
            }
        });
        reasons.collect::<Vec<_>>().join("; ")
    }
}

/// A folder of engines.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// An engine as it lies in a file.
pub struct EngineFile {
    pub bytes: Vec<u8>,
    /// Of all bytes, in hexadecimal digits.
    pub sha256: String,
}

impl EngineFile {
    pub fn new(bytes: Vec<u8>) -> Self {
        let sha256 = sha256(&bytes);
        EngineFile { bytes, sha256 }
    }
}

/// What a [`Cache`] has for a key.
pub enum Lookup {
    Hit(EngineFile),
    /// Nothing that can be used; the holder of the lock builds it.
    Miss(BuildLock),
}

impl Cache {
    /// Opens the folder, and makes it with mode 0700 where it is missing; `None` is [`default_folder`].
    ///
    /// # Errors
    /// No reason not to build an engine: without a cache it is only built each time.
    pub fn open(folder: Option<&Path>) -> Result<Self> {
        let remedy = "Engines are built again each time; set engine-cache to a folder that only you can write to";
        let Some(folder) = folder.map(Path::to_path_buf).or_else(default_folder) else {
            return Err(Error::new(ErrorKind::Read, "There is no folder for an engine cache")
                .cause("neither HOME nor XDG_CACHE_HOME is set")
                .remedy(remedy));
        };
        let unusable = |cause: String| {
            let what = format!("Cannot use the engine cache {}", folder.display());
            Error::new(ErrorKind::Read, what).cause(cause).remedy(remedy)
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|error| unusable(error.to_string()))?;
        trusted_folder(&folder).map(|folder| Cache { folder }).map_err(unusable)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The engine for the key, or the right to build it.
    ///
    /// While another process or thread builds this very engine, it waits, after a call of `waiting`, until there is one or
    /// `cancelled` is set.
    ///
    /// # Errors
    /// Only when it was cancelled.
    pub fn find(&self, key: &Key, cancelled: &AtomicBool, waiting: impl FnOnce()) -> Result<Lookup> {
        // Usually it is there. An error may come from an entry that another process is writing, so it is read again below.
        if let Ok(engine) = self.read(key) {
            return Ok(Lookup::Hit(engine));
        }
        let lock = lock(&self.path(key, "lock"), cancelled, waiting)?;
        Ok(match self.read(key) {
            Ok(engine) => Lookup::Hit(engine),
            Err(why) => Lookup::Miss(BuildLock { cache: self.clone(), key: key.clone(), why, _lock: lock }),
        })
    }

    /// Removes an engine that TensorRT does not take, though it is what was stored; the next search misses it.
    pub fn forget(&self, key: &Key) {
        for extension in ["verdict", "txt", "engine"] {
            let _ = fs::remove_file(self.path(key, extension));
        }
    }

    /// Where the verdict on such runs of an engine of this key is, by the engine's SHA-256.
    pub fn verdict(&self, key: &Key, sha256: &str, runs: &str) -> VerdictFile {
        VerdictFile { path: self.path(key, "verdict"), engine: format!("{sha256}, {runs}") }
    }

    /// The same of an engine that came as a file, on that GPU with that library.
    pub fn verdict_of_file(&self, sha256: &str, library: &str, gpu: &str, runs: &str) -> VerdictFile {
        let engine = format!("{sha256}, {runs}");
        let hash = hex(Sha256::new_with_prefix(format!("{engine}\n{library}\n{gpu}")));
        VerdictFile { path: self.folder.join(format!("engine-{}.verdict", &hash[..16])), engine }
    }

    /// TensorRT's measurements for a library and a GPU, as [`Key`] writes them.
    pub fn timing(&self, library: &str, gpu: &str) -> TimingFile {
        let hash = hex(Sha256::new_with_prefix(format!("{library}\n{gpu}")));
        let name = format!("timing-{}-{}-{}", as_file_name(library), as_file_name(gpu), &hash[..8]);
        TimingFile { path: self.folder.join(name) }
    }

    fn path(&self, key: &Key, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", key.name()))
    }

    /// The engine, or why there is none that can be used.
    fn read(&self, key: &Key) -> std::result::Result<EngineFile, String> {
        let (label, engine) = (self.path(key, "txt"), self.path(key, "engine"));
        let name = engine.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let broken = |how: &str| format!("{name} in the engine cache is broken: {how}");
        let label = match read(&label, MAX_LABEL) {
            Ok(label) => String::from_utf8_lossy(&label).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.relative(key)),
            Err(error) => return Err(broken(&format!("its label cannot be read: {error}"))),
        };
        let label = Label::parse(&label).ok_or_else(|| broken("its label is damaged"))?;
        if !label.differences(key).is_empty() {
            return Err(broken(&label.stale(key)));
        }
        let unreadable = |error: io::Error| broken(&format!("it cannot be read: {error}"));
        let file = open(&engine).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        if length != label.bytes {
            return Err(broken(&format!("it has {length} of its {} bytes", label.bytes)));
        }
        let engine = EngineFile::new(files::read_bounded(file, length).map_err(unreadable)?);
        if engine.sha256 == label.sha256 {
            Ok(engine)
        } else {
            Err(broken("its contents have changed since it was written"))
        }
    }

    /// Why nothing has the key's name: the differences from the nearest engine of the same model.
    fn relative(&self, key: &Key) -> String {
        let nearest = self
            .labels(key)
            .filter(|(_, label)| label.model == key.model_path() || label.get("contents") == key.contents)
            .min_by_key(|(_, label)| label.differences(key).len());
        match nearest {
            None => "there is none for this model in the engine cache".to_string(),
            Some((path, label)) => {
                let name = path.with_extension("engine");
                let name = name.file_name().unwrap_or_default().to_string_lossy();
                format!("{name} in the engine cache cannot be used: {}", label.stale(key))
            }
        }
    }

    /// All labels of models of that name.
    fn labels(&self, key: &Key) -> impl Iterator<Item = (PathBuf, Label)> + use<> {
        let start = format!("{}-", stem(&key.model));
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        entries
            .filter(move |path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with(&start) && name.ends_with(".txt")
            })
            .filter_map(|path| {
                let label = Label::parse(&String::from_utf8_lossy(&read(&path, MAX_LABEL).ok()?))?;
                Some((path, label))
            })
    }

    /// Removes engines of earlier contents of the model's file, which cannot be needed again.
    fn remove_former(&self, key: &Key) {
        for (path, label) in self.labels(key) {
            let only_contents = matches!(label.differences(key)[..], [("contents", ..)]);
            if only_contents && label.model == key.model_path() {
                for extension in ["verdict", "txt", "engine", "lock"] {
                    let _ = fs::remove_file(path.with_extension(extension));
                }
            }
        }
    }
}

/// The lock for building an engine, and the path for it. Others that need the same engine wait until it is dropped.
pub struct BuildLock {
    cache: Cache,
    key: Key,
    why: String,
    /// `None` on a file system that cannot lock, or where nothing can be written.
    _lock: Option<Lock>,
}

impl BuildLock {
    /// Why the engine has to be built, as a sentence without its full stop, beginning in lower case.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Keeps the engine for the next time.
    ///
    /// # Errors
    /// No reason not to use the engine.
    pub fn store(self, engine: &EngineFile) -> Result<()> {
        let path = |extension| self.cache.path(&self.key, extension);
        write(&path("engine"), &engine.bytes)
            .and_then(|()| write(&path("txt"), Label::new(&self.key, engine).text().as_bytes()))
            .map_err(|error| {
                Error::new(ErrorKind::Read, format!("Cannot keep the engine in {}", self.cache.folder.display()))
                    .cause(error)
                    .remedy("It is built again the next time; make room there, or set engine-cache to another folder")
            })?;
        self.cache.remove_former(&self.key);
        Ok(())
    }
}

/// What was found out about an engine.
pub struct VerdictFile {
    path: PathBuf,
    /// Its SHA-256, and what it runs: of another engine of the same name, or of other runs, nothing was found out.
    engine: String,
}

impl VerdictFile {
    /// If there is one, of this version, and whole. `references` says what could compute the model on the CPU now: a verdict for which
    /// nothing did counts only where just these have failed, twice in the same way.
    pub fn load(&self, references: impl FnOnce() -> String) -> Option<Verdict> {
        let (verdict, failed) = self.read()?;
        (verdict.reference.is_ok() || failed == references()).then_some(verdict)
    }

    /// # Errors
    /// No reason not to use the engine: it is only verified again.
    pub fn save(&self, verdict: &Verdict, references: &str) -> io::Result<()> {
        // What failed once, such as for lack of memory, is tried again, and what fails again in the same way is not.
        let is_again = self.read().is_some_and(|(former, _)| former.reference == verdict.reference);
        let failed = if is_again { references } else { "" };
        let (engine, verdict) = (&self.engine, verdict.to_json());
        let value = json!({"version": VERDICT_VERSION, "engine": engine, "failed": failed, "verdict": verdict});
        write(&self.path, value.to_string().as_bytes())
    }

    /// The verdict, and the references that have failed.
    fn read(&self) -> Option<(Verdict, String)> {
        let value: Value = serde_json::from_slice(&read(&self.path, MAX_LABEL).ok()?).ok()?;
        let is_of_it = value["engine"] == self.engine.as_str() && value["version"] == VERDICT_VERSION;
        let verdict = Verdict::from_json(&value["verdict"]).filter(|_| is_of_it)?;
        Some((verdict, value["failed"].as_str()?.into()))
    }
}

/// TensorRT's timing cache for one library and GPU, shared by all models.
pub struct TimingFile {
    path: PathBuf,
}

impl TimingFile {
    /// What was saved last, if it is whole.
    pub fn load(&self) -> Option<Vec<u8>> {
        let file = read(&self.path.with_added_extension("cache"), MAX_TIMING).ok()?;
        // It begins with the hash of the rest, so that TensorRT never sees a damaged one.
        let (hash, timing) = file.split_at_checked(Sha256::output_size())?;
        (Sha256::digest(timing)[..] == *hash).then(|| timing.to_vec())
    }

    /// # Errors
    /// Not needed for correctness: the next build only takes longer.
    pub fn save(&self, timing: &[u8]) -> io::Result<()> {
        // Two builders may end at the same moment; the last one's measurements stay.
        let lock = open_lock(&self.path.with_added_extension("lock"));
        let _lock = lock.and_then(|file| file.lock().map(|()| Lock(file)));
        write(&self.path.with_added_extension("cache"), &[&Sha256::digest(timing)[..], timing].concat())
    }
}

/// `$XDG_CACHE_HOME/gst-plugin-trt/engines`, or the same in `~/.cache`.
pub fn default_folder() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(caches.join("gst-plugin-trt").join("engines"))
}

/// Takes the lock, or waits for it. `None` where the file system has no locks or nothing can be written: then two may build
/// the same engine, and the last one's stays.
fn lock(path: &Path, cancelled: &AtomicBool, waiting: impl FnOnce()) -> Result<Option<Lock>> {
    let mut waiting = Some(waiting);
    while !cancelled.load(Ordering::Relaxed) {
        let Ok(file) = open_lock(path) else { return Ok(None) };
        match file.try_lock() {
            Ok(()) => return Ok(Some(Lock(file))),
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) => {}
        }
        if let Some(waiting) = waiting.take() {
            waiting();
        } else if files::wait_until_unlocked(file, CANCEL_INTERVAL).is_err() {
            return Ok(None);
        }
    }
    Err(Error::new(ErrorKind::Run, "Waiting for the engine that another process builds was cancelled"))
}

/// A lock that ends with this value, even where a child of this process has not yet closed its copy of the file.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    match create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open_with(OpenOptions::new().write(true), path),
        created => created,
    }
}

/// A file that was not there before, and no link.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)
}

/// More than labels and TensorRT's measurements take.
const MAX_LABEL: u64 = 64 << 10;
const MAX_TIMING: u64 = 256 << 20;
/// Characters of a field of a label in a message.
const MAX_SAID: usize = 400;

fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    files::read_bounded(open(path)?, limit)
}

/// Opens a file of the cache for reading, if only the user can have written it.
fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path)
}

fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = files::open_regular_with(options, path, libc::O_NOFOLLOW)?;
    match distrust(&file.metadata()?) {
        None => Ok(file),
        Some(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
    }
}

/// The folder without links in its path, or why engines in it cannot be trusted.
fn trusted_folder(folder: &Path) -> std::result::Result<PathBuf, String> {
    let text = |error: io::Error| error.to_string();
    if fs::symlink_metadata(folder).map_err(text)?.is_symlink() {
        return Err("it is a symbolic link".into());
    }
    let folder = folder.canonicalize().map_err(text)?;
    if let Some(why) = distrust(&fs::symlink_metadata(&folder).map_err(text)?) {
        return Err(format!("{why}, and engines are programs"));
    }
    // A user who may rename a folder above can replace it by another one.
    for parent in folder.ancestors().skip(1) {
        let metadata = fs::symlink_metadata(parent).map_err(text)?;
        let sticky = metadata.mode() & 0o1000 != 0;
        // Many systems give each user a group of that user alone, with the same number.
        let private = metadata.mode() & 0o002 == 0 && metadata.gid() == metadata.uid();
        let why = foreign(&metadata).or_else(|| writable(&metadata).filter(|_| !sticky && !private));
        if let Some(why) = why {
            return Err(format!("{} lies above it, and {why}", parent.display()));
        }
    }
    Ok(folder)
}

/// Why something may have been written by another user.
fn distrust(metadata: &Metadata) -> Option<&'static str> {
    foreign(metadata).or_else(|| writable(metadata))
}

fn foreign(metadata: &Metadata) -> Option<&'static str> {
    // SAFETY: it only returns a number.
    let user = unsafe { libc::geteuid() };
    (![0, user].contains(&metadata.uid())).then_some("it belongs to another user")
}

fn writable(metadata: &Metadata) -> Option<&'static str> {
    (metadata.mode() & 0o022 != 0).then_some("other users may write to it")
}

/// Writes the whole file or nothing. The caller holds a lock, so nothing else writes to the same temporary file.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_added_extension("tmp");
    // One that was left behind, or a link.
    let _ = fs::remove_file(&temporary);
    let written = create(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    match written {
        // The new name is on the disk only when its folder is.
        Ok(()) => File::open(path.parent().unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()),
        Err(error) => {
            let _ = fs::remove_file(&temporary);
            Err(error)
        }
    }
}

/// Of all bytes, in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(Sha256::new_with_prefix(bytes))
}

pub(super) fn hex(hash: Sha256) -> String {
    hash.finalize().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Labels have one line for each value.
fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "?")
}

/// The model's name, as a part of file names.
fn stem(model: &Path) -> String {
    as_file_name(&model.file_stem().unwrap_or_default().to_string_lossy())
}

/// A text as a part of file names: at most 64 letters, digits, dots, dashes and underscores.
fn as_file_name(text: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    text.chars().take(64).map(allowed).collect()
}

#[cfg(test)]
mod tests;
