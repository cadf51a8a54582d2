// SPDX-License-Identifier: MPL-2.0
//! What a publisher is told besides the address.

use std::path::PathBuf;
use std::time::Duration;

use gsttrt_core::options::choices;

use super::address::Secret;

/// What happens to a message that comes while as many wait as may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DropPolicy {
    #[default]
    Oldest,
    Newest,
    Block,
}

choices! {
    DropPolicy, "GstTrtPublishDrop":
    DropPolicy::Oldest => "oldest" "Drop the message that has waited longest"
    DropPolicy::Newest => "newest" "Drop the new message"
    DropPolicy::Block => "block" "Hold frames until there is room"
}

#[derive(Clone, Debug)]
pub struct PublishOptions {
    /// May have a password in it.
    pub location: Secret,
    pub password: Option<Secret>,
    pub password_file: Option<PathBuf>,
    /// Certificates, PEM: of the authorities that may sign the server's, and the client's own with its key.
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// Of each message, by which Kafka chooses a partition. It keeps the order of a partition alone.
    pub key: String,
    /// Bytes; 0 for no limit.
    pub max_file_size: u64,
    /// Full files that are kept.
    pub max_files: u32,
    /// Messages that are sent at once.
    pub max_batch: u32,
    /// Messages that may wait.
    pub max_queued: u32,
    pub drop: DropPolicy,
    /// For connecting with login, and for sending a batch with its answers.
    pub timeout: Duration,
    /// The longest time between two attempts to connect.
    pub max_reconnect_interval: Duration,
    /// At the end, for what is queued.
    pub flush_timeout: Duration,
}

impl Default for PublishOptions {
    fn default() -> Self {
        PublishOptions {
            location: Secret::default(),
            password: None,
            password_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            key: String::new(),
            max_file_size: 0,
            max_files: 9,
            max_batch: 100,
            max_queued: 1000,
            drop: DropPolicy::default(),
            timeout: Duration::from_secs(10),
            max_reconnect_interval: Duration::from_secs(10),
            flush_timeout: Duration::from_secs(5),
        }
    }
}
