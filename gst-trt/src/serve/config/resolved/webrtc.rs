// SPDX-License-Identifier: MPL-2.0
//! Where browsers get videos from.

use super::super::wording::{KeyError, problem};
use super::Config;
use crate::serve::webrtc::WebrtcSettings;

impl Config {
    pub(super) fn webrtc_settings(&self) -> Result<Option<WebrtcSettings>, KeyError> {
        let Some(keys) = &self.keys.webrtc else { return Ok(None) };
        if self.keys.http.is_none() {
            return Err(problem("listen", "browsers ask for videos by HTTP, and there is no [http]: add it"));
        }
        let addresses = keys.addresses.iter().map(|address| address.0).collect();
        Ok(Some(WebrtcSettings { listen: keys.listen, addresses }))
    }
}
