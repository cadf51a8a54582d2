// SPDX-License-Identifier: MPL-2.0
//! The folder in which OpenVINO keeps what it has compiled, in that of the engines. It finds by itself what is for a model,
//! a device and its own release, and removes nothing.
//!
//! It writes a file where it stays, and over one that is there. Another process that reads it meanwhile, or has it mapped, would
//! have a part of it, or zeros for weights. So a model is compiled for the first time by one process at a time. An empty file tells
//! the others that it was; they do not wait for each other.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};

use crate::backends::tensorrt::cache::{CANCEL_INTERVAL, Cache};
use crate::dylib::entries;
use crate::error::{Error, ErrorKind, Result};
use crate::files;

/// Models that are kept.
const MOST: usize = 64;

/// How long another process may take. One that hangs is not waited for any longer.
const LONGEST: Duration = Duration::from_secs(60);

/// The folder, in that of the engines, which only this user may change. `None` where there is none: then each load compiles.
pub fn folder(engines: Option<&Path>) -> Option<PathBuf> {
    let folder = Cache::open(engines).ok()?.folder().join("openvino");
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    Some(folder)
}

/// A name for a model, and for what it is compiled for.
pub fn name(model: &[u8], how: &str) -> String {
    let hash = Sha256::new_with_prefix(how).chain_update([0u8]).chain_update(model).finalize();
    hash.iter().take(8).fold(String::new(), |name, byte| name + &format!("{byte:02x}"))
}

/// A model is being compiled for the first time, until this is dropped.
pub struct FirstCompilation {
    lock: File,
    ready: PathBuf,
}

/// Waits until no other process compiles the model of that name. Nothing where it was compiled before, where it takes another one too
/// long, where files cannot be locked, or once it is cancelled.
pub fn begin(folder: &Path, name: &str, longest: Duration, cancelled: &AtomicBool) -> Option<FirstCompilation> {
    let [ready, path] = ["ready", "lock"].map(|extension| folder.join(format!("{name}.{extension}")));
    let begun = Instant::now();
    while !ready.exists() && !cancelled.load(Ordering::Relaxed) {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let file = files::open_regular_with(options, &path, libc::O_NOFOLLOW).ok()?;
        match file.try_lock() {
            // Whoever had it may have ended meanwhile.
            Ok(()) => return (!ready.exists()).then_some(FirstCompilation { lock: file, ready }),
            Err(TryLockError::Error(_)) => return None,
            Err(TryLockError::WouldBlock) => {}
        }
        let left = longest.saturating_sub(begun.elapsed());
        if !files::wait_until_unlocked(file, left.min(CANCEL_INTERVAL)).ok()? && left <= CANCEL_INTERVAL {
            return None;
        }
    }
    None
}

impl FirstCompilation {
    /// It has succeeded.
    pub fn end(self) {
        let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.ready);
        let _ = fs::remove_file(self.ready.with_extension("lock"));
    }
}

impl Drop for FirstCompilation {
    fn drop(&mut self) {
        let _ = self.lock.unlock(); // also where a child of this process has not yet closed its copy of the file
    }
}

/// Compiles a model by `compile`, as the only process that does so for the first time.
///
/// # Errors
/// Those of `compile`; `Run`, where it is cancelled before that.
pub fn compiling<T>(
    folder: &Path,
    name: &str,
    cancelled: &AtomicBool,
    compile: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let first = begin(folder, name, LONGEST, cancelled);
    if cancelled.load(Ordering::Relaxed) {
        return Err(Error::new(ErrorKind::Run, "Waiting for another process to compile the model was cancelled"));
    }
    let compiled = compile();
    if let (Some(first), true) = (first, compiled.is_ok()) {
        first.end();
    }
    compiled
}

/// Removes what was compiled first, where there is much.
pub fn trim(folder: &Path) {
    let made = |path: PathBuf| Some((fs::metadata(&path).ok()?.modified().ok()?, path));
    let mut models: Vec<(SystemTime, PathBuf)> =
        entries(folder, |name| name.ends_with(".blob")).into_iter().filter_map(made).collect();
    models.sort();
    let mut removed = models.iter().rev().skip(MOST).peekable();
    if removed.peek().is_some() {
        // Which of them it was is not known.
        for ready in entries(folder, |name| name.ends_with(".ready")) {
            let _ = fs::remove_file(ready);
        }
    }
    for (_, path) in removed {
        let _ = fs::remove_file(path); // another process may have done so
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::scratch;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    #[test]
    fn the_models_that_were_compiled_last_are_kept() {
        let folder = scratch("openvino-compiled");
        let second = |number: u64| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number);
        for number in 0..MOST as u64 + 3 {
            let file = fs::File::create(folder.join(format!("{number}.blob"))).unwrap();
            file.set_modified(second(number)).unwrap();
        }
        fs::write(folder.join("other"), "").unwrap();
        fs::write(folder.join("0.ready"), "").unwrap();
        trim(&folder);
        let kept = entries(&folder, |_| true);
        assert_eq!(kept.len(), MOST + 1);
        assert!(["0.blob", "1.blob", "2.blob"].iter().all(|name| !folder.join(name).exists()));
    }

    #[test]
    fn a_model_is_compiled_for_the_first_time_by_one_at_a_time() {
        let folder = scratch("openvino-first");
        let (one, other) = (name(b"model", "for a CPU"), name(b"model", "for a GPU"));
        assert!(one.len() == 16 && one != other && one == name(b"model", "for a CPU"));
        let first = begin(&folder, &one, LONGEST, &GO_ON).unwrap();
        assert!(begin(&folder, &other, LONGEST, &GO_ON).is_some(), "it is another one");
        assert!(begin(&folder, &one, Duration::from_millis(1), &GO_ON).is_none(), "it takes too long");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| begin(&folder, &one, LONGEST, &GO_ON).is_none());
            first.end();
            assert!(second.join().unwrap(), "it need not wait any longer");
        });
        assert!(folder.join(format!("{one}.ready")).exists());
        // One that fails leaves the next one its turn.
        for succeeds in [false, true] {
            let compiled = compiling(&folder, &other, &GO_ON, || {
                assert!(begin(&folder, &other, Duration::ZERO, &GO_ON).is_none());
                if succeeds { Ok(()) } else { Err(Error::new(ErrorKind::Model, "It is broken")) }
            });
            assert_eq!(compiled.is_ok(), succeeds);
            assert_eq!(folder.join(format!("{other}.ready")).exists(), succeeds);
        }
    }

    #[test]
    fn a_load_that_is_cancelled_waits_for_no_other_process() {
        let folder = scratch("openvino-cancelled");
        let name = name(b"model", "for a CPU");
        let _first = begin(&folder, &name, LONGEST, &GO_ON).unwrap();
        let cancelled = AtomicBool::new(false);
        let compile = || -> Result<()> { panic!("nobody wants it any more") };
        std::thread::scope(|scope| {
            let second = scope.spawn(|| compiling(&folder, &name, &cancelled, compile));
            cancelled.store(true, Ordering::Relaxed);
            let error = second.join().unwrap().unwrap_err();
            assert!(error.message().contains("was cancelled"), "{error}");
        });
    }
}
