// SPDX-License-Identifier: MPL-2.0
//! Memory that a server on this machine has in common with this process, for the tensors of a request. The server finds it by its
//! name when it is registered, and keeps it; then the name is removed, so that no file is left where a process is killed. The memory
//! is then still the server's, until that ends.

use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use super::kept::ServerRegion;

/// Where the C library's `shm_open` has them.
const FOLDER: &str = "/dev/shm";

/// A part of the machine's memory, which others may read and write at any time: bytes are only copied.
pub struct SharedRegion {
    /// As `shm_open` takes it.
    pub key: String,
    begin: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory, of which the fields are only addresses.
unsafe impl Send for SharedRegion {}

/// Memory that is no longer used here. The server may still have it.
pub struct ForgottenRegion {
    key: String,
    bytes: usize,
}

impl ServerRegion for ForgottenRegion {
    const METHODS: &'static str = "SystemSharedMemory";
    const KIND: &'static str = "shared memory";

    fn name(&self) -> &str {
        &self.key
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn left() -> &'static Mutex<Vec<(String, Self)>> {
        static LEFT: Mutex<Vec<(String, ForgottenRegion)>> = Mutex::new(Vec::new());
        &LEFT
    }
}

impl SharedRegion {
    /// # Errors
    /// Where there is too little of such memory, as in containers.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let random = RandomState::new().hash_one(bytes);
        let key = format!("/gst-trt-{}-{random:016x}", std::process::id());
        let bytes = bytes.max(1);
        let path = path_of(&key);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        let length = libc::off_t::try_from(bytes).map_err(io::Error::other);
        // SAFETY: a file of ours. Memory that is not there would be missed at the first write, which ends the process.
        let mapped = length.and_then(|length| match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
            0 => {
                let access = libc::PROT_READ | libc::PROT_WRITE;
                // SAFETY: new memory of this file, which has so many bytes.
                let begin =
                    unsafe { libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
                let begin = NonNull::new(begin.cast()).filter(|_| begin != libc::MAP_FAILED);
                begin.ok_or_else(io::Error::last_os_error)
            }
            code => Err(io::Error::from_raw_os_error(code)),
        });
        match mapped {
            Ok(begin) => Ok(SharedRegion { key, begin, bytes }),
            Err(error) => {
                let _ = fs::remove_file(&path); // it is of no use
                Err(error)
            }
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn forget(self) -> ForgottenRegion {
        ForgottenRegion { key: self.key.clone(), bytes: self.bytes }
    }

    /// Nobody else can find it any more.
    pub fn hide(&self) {
        let _ = fs::remove_file(path_of(&self.key)); // again where it was removed
    }

    /// # Panics
    /// If they do not lie within.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.bytes));
        // SAFETY: within the memory, which no reference of Rust's is of.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.begin.as_ptr().add(at), bytes.len()) }
    }

    /// # Panics
    /// If they do not lie within.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.bytes));
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(self.begin.as_ptr().add(at), bytes.as_mut_ptr(), bytes.len()) }
    }
}

fn path_of(key: &str) -> PathBuf {
    PathBuf::from(format!("{FOLDER}{key}"))
}

impl Drop for SharedRegion {
    fn drop(&mut self) {
        self.hide();
        // SAFETY: mapped in `new`, and no longer used.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_find_it_by_its_name_until_it_is_hidden() {
        let mut region = SharedRegion::new(5000).unwrap();
        region.write(4096, b"tensor");
        let path = path_of(&region.key);
        let seen = fs::read(&path).unwrap();
        assert_eq!((seen.len(), &seen[4096..4102]), (5000, &b"tensor"[..]));
        fs::write(&path, [7; 5000]).unwrap();
        let mut bytes = [0; 10];
        region.read(4990, &mut bytes);
        assert_eq!(bytes, [7; 10]);
        region.hide();
        assert!(!path.exists());
        let other = SharedRegion::new(1).unwrap();
        let path = path_of(&other.key);
        drop(other);
        assert!(!path.exists());
        assert!(SharedRegion::new(usize::MAX / 2).is_err());
    }
}
