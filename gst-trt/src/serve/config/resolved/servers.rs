// SPDX-License-Identifier: MPL-2.0
//! Where the service listens, with its passwords, which stays as it was at the start.

use std::path::{Path, PathBuf};

use super::super::keys::{HttpKeys, RtspKeys};
use super::super::secrets;
use super::super::wording::{KeyError, problem};
use super::Config;
use crate::serve::http::{self, HttpSettings};
use crate::serve::rtsp::{self, RtspSettings};

impl Config {
    pub(super) fn http_settings(&self) -> Result<Option<HttpSettings>, KeyError> {
        let Some(HttpKeys { listen, token, token_file }) = &self.keys.http else { return Ok(None) };
        let token = self.own_secret(("token", token), ("token-file", token_file))?;
        let settings = HttpSettings { listen: *listen, token };
        http::check(&settings).map_err(|failure| problem("token", failure.to_string()))?;
        Ok(Some(settings))
    }

    pub(super) fn rtsp_settings(&self) -> Result<Option<RtspSettings>, KeyError> {
        let Some(RtspKeys { listen, user, password, password_file, .. }) = &self.keys.rtsp else { return Ok(None) };
        let user = secrets::expand(user).map_err(|text| problem("user", text))?;
        let password = self.own_secret(("password", password), ("password-file", password_file))?;
        let settings = RtspSettings { listen: *listen, user, password };
        rtsp::check(&settings).map_err(|(key, failure)| problem(key, failure.to_string()))?;
        Ok(Some(settings))
    }

    /// A password or a token of this service, which stands in the file or in one of its own.
    fn own_secret(
        &self,
        (key, text): (&'static str, &Option<String>),
        (file_key, file): (&'static str, &Option<PathBuf>),
    ) -> Result<Option<String>, KeyError> {
        match (text, file) {
            (Some(_), Some(_)) => Err(problem(key, format!("there is {file_key}, too: one of both is enough"))),
            (Some(text), None) => secrets::expand(text).map(Some).map_err(|text| problem(key, text)),
            (None, Some(file)) => self.secret(file_key, file).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// What a file with a password or a token says.
    pub(super) fn secret(&self, key: &'static str, file: &Path) -> Result<String, KeyError> {
        let file = secrets::expand(&file.to_string_lossy()).map_err(|text| problem(key, text))?;
        secrets::read(&self.folder.join(file)).map_err(|text| problem(key, text))
    }

    /// With HTTP, RTSP and WebRTC as in another one.
    pub fn keep_servers(&mut self, other: &Config) {
        (self.http, self.rtsp, self.has_sei) = (other.http.clone(), other.rtsp.clone(), other.has_sei);
        #[cfg(feature = "webrtc")]
        {
            self.webrtc = other.webrtc.clone();
        }
        self.has_outputs = other.has_outputs;
        let (has_view, has_output) = (self.http.is_some(), self.has_outputs);
        if !has_output {
            self.tiles.clear();
        }
        for source in &mut self.sources {
            (source.has_view, source.has_output, source.has_sei) = (has_view, has_output, self.has_sei);
        }
    }

    /// What is other than in the configuration of the start, and counts from the next start on.
    pub fn changed_since(&self, start: &Config) -> Vec<&'static str> {
        let compared = [
            ("gpus", self.gpus != start.gpus),
            ("[http]", self.http != start.http),
            ("[rtsp]", self.rtsp != start.rtsp || self.has_sei != start.has_sei),
            #[cfg(feature = "webrtc")]
            ("[webrtc]", self.webrtc != start.webrtc),
        ];
        compared.into_iter().filter(|(_, has_changed)| *has_changed).map(|(name, _)| name).collect()
    }
}
