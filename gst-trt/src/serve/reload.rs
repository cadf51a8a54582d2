// SPDX-License-Identifier: MPL-2.0
//! The file is read again, in a thread of its own: whoever ends the service does not wait for that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::config::Config;
use super::log::{self, log, log_error, warn};
#[cfg(feature = "otel")]
use super::otel::Telemetry;
use super::place::ReplicaPlace;
use super::service::Service;
use super::{ServeArgs, shard_text};
use crate::failure::{Failure, contain};
use crate::threads::Threads;

/// Reads whenever it is asked to, until it is dropped.
pub struct Reloads {
    /// Has room for one: what is asked for while the file is read is done once more, afterwards.
    asked: SyncSender<()>,
    is_given_up: Arc<AtomicBool>,
}

impl Reloads {
    pub fn start(threads: &Threads, read: impl Fn(&AtomicBool) + Send + 'static) -> Result<Self, Failure> {
        let (asked, wanted) = sync_channel(1);
        let is_given_up = Arc::new(AtomicBool::new(false));
        let given_up = is_given_up.clone();
        threads.spawn("reload".into(), "the configuration", move || {
            while wanted.recv().is_ok() && !given_up.load(Ordering::Relaxed) {
                read(&given_up);
            }
        })?;
        Ok(Reloads { asked, is_given_up })
    }

    /// Never waits.
    pub fn ask(&self) {
        let _ = self.asked.try_send(()); // where one waits already, it is for both
    }
}

impl Drop for Reloads {
    fn drop(&mut self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}

/// What a reload changes and the end needs.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the file says, and what that counts for.
pub struct ConfigFile {
    pub args: ServeArgs,
    pub service: Arc<Service>,
    /// The configuration that the program was started with.
    pub at_start: Config,
    pub place: Arc<Mutex<ReplicaPlace>>,
    #[cfg(feature = "otel")]
    pub telemetry: Arc<Mutex<Telemetry>>,
}

impl ConfigFile {
    pub fn read(&self, is_given_up: &AtomicBool) {
        let read = contain(|| self.apply(is_given_up));
        if is_given_up.load(Ordering::Relaxed) {
            return; // the service ends
        }
        self.service.set_outdated(read.is_err());
        match read {
            Ok((warnings, told)) => {
                warnings.iter().for_each(|warning| warn("serve", warning));
                log("serve", &format!("{} was read again.{told}", self.args.config.display()));
            }
            Err(failure) => log_error("serve", &format!("{failure} Everything goes on as before.")),
        }
    }

    fn apply(&self, is_given_up: &AtomicBool) -> Result<(Vec<String>, String), Failure> {
        let config = Config::load_unless(&self.args.config, is_given_up)?;
        let warnings = config.warnings.clone();
        let settings = self.args.log_settings(&config);
        #[cfg(feature = "otel")]
        let otel = config.otel.clone();
        let mut place = locked(&self.place);
        let (other, told) = (place.other(&config)?, shard_text(&config) + &later_text(&config, &self.at_start));
        self.service.reload(config)?;
        other.into_iter().for_each(|other| *place = other);
        log::configure(settings);
        #[cfg(feature = "otel")]
        locked(&self.telemetry).change(otel.as_ref(), self.service.clone());
        Ok((warnings, told))
    }
}

/// What has changed, and is not taken over while the service runs.
fn later_text(config: &Config, at_start: &Config) -> String {
    match &config.changed_since(at_start)[..] {
        [] => String::new(),
        changed => format!(" Changed since the start, and taken over at the next one: {}.", changed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::wait::{LIMIT, wait_until};

    #[test]
    fn what_is_asked_for_meanwhile_is_done_once_more() {
        let threads = Threads::default();
        let (begin, begun) = channel();
        let (go_on, held) = channel::<()>();
        let held = Mutex::new(held);
        let read = move |_: &AtomicBool| {
            begin.send(()).unwrap();
            let _ = held.lock().unwrap().recv();
        };
        let reloads = Reloads::start(&threads, read).unwrap();
        reloads.ask();
        begun.recv_timeout(LIMIT).unwrap();
        (0..3).for_each(|_| reloads.ask());
        go_on.send(()).unwrap();
        begun.recv_timeout(LIMIT).unwrap();
        go_on.send(()).unwrap();
        drop(reloads);
        assert!(threads.wait(LIMIT).is_empty());
        assert!(begun.try_recv().is_err(), "three are one");
    }

    /// Whoever ends the service does not wait for what is being read.
    #[test]
    fn what_is_being_read_is_given_up() {
        let threads = Threads::default();
        let (begin, begun) = channel();
        let read = move |is_given_up: &AtomicBool| {
            begin.send(()).unwrap();
            wait_until("it is given up", LIMIT, || is_given_up.load(Ordering::Relaxed));
        };
        let reloads = Reloads::start(&threads, read).unwrap();
        reloads.ask();
        begun.recv_timeout(LIMIT).unwrap();
        reloads.ask();
        drop(reloads);
        assert!(threads.wait(LIMIT).is_empty());
        assert!(begun.try_recv().is_err(), "nothing is begun any more");
    }
}
