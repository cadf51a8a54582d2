// SPDX-License-Identifier: MPL-2.0
//! The place of a replica: two services on a machine that run the same part of the same sources would do everything twice.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::config::Config;
use crate::failure::Failure;

/// A place that is taken, until it is dropped or the process ends.
#[derive(Default)]
pub struct ReplicaPlace {
    key: Option<String>,
    /// A name that one process of a machine can have. Nothing is to be heard there.
    _taken: Option<UnixListener>,
}

impl ReplicaPlace {
    /// The place that a configuration describes, where it is another one than this.
    pub fn other(&self, config: &Config) -> Result<Option<Self>, Failure> {
        let key = config.shard_key();
        if key == self.key {
            return Ok(None);
        }
        let take = |key| SocketAddr::from_abstract_name(key).and_then(|name| UnixListener::bind_addr(&name));
        let taken = key.as_ref().map(take).transpose().map_err(|error| {
            let shard = config.shard.map(|shard| shard.to_string()).unwrap_or_default();
            match error.kind() {
                ErrorKind::AddrInUse => format!(
                    "Another gst-trt serve on this machine is shard {shard} of the same sources already. Give each replica \
                     an ordinal of its own in shard, or end the other one."
                ),
                _ => format!("Cannot find out whether another gst-trt serve is shard {shard}, too: {error}."),
            }
        })?;
        Ok(Some(ReplicaPlace { key, _taken: taken }))
    }
}
