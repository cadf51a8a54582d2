// SPDX-License-Identifier: MPL-2.0
//! How a camera is spoken to, and how its stream is decoded.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Duration;

use gst::glib;
use gst::glib::translate::from_glib_full;
use gst::prelude::*;

use crate::failure::Failure;

/// By what the packets of RTSP come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RtpTransport {
    /// UDP, and TCP where nothing comes.
    #[default]
    Auto,
    Tcp,
    Udp,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StreamOptions {
    pub transport: RtpTransport,
    /// For which packets that are late are waited for; what the element has, where it is left out.
    pub latency: Option<Duration>,
    /// Whether a session is kept alive by requests.
    pub keep_alive: bool,
    /// Whether the certificate of the camera must be right.
    pub tls_validation: bool,
    /// The authorities that sign certificates, instead of those of the system.
    pub ca_file: Option<PathBuf>,
    /// Whether the decoder gives each frame at once.
    pub low_latency: bool,
}

impl Default for StreamOptions {
    fn default() -> Self {
        StreamOptions {
            transport: RtpTransport::Auto,
            latency: None,
            keep_alive: true,
            tls_validation: true,
            ca_file: None,
            low_latency: false,
        }
    }
}

/// Settings of decoders that keep frames back, for other threads or for their order: those of NVDEC, and of FFmpeg.
const LOW_LATENCY: [(&str, &str); 3] = [("max-display-delay", "0"), ("low-latency", "true"), ("thread-type", "slice")];

impl StreamOptions {
    /// Sets what an element of the network has of it.
    pub fn configure_source(&self, source: &gst::Element) {
        let set = |name: &str, value: &str| {
            if source.find_property(name).is_some() {
                source.set_property_from_str(name, value);
            }
        };
        if source.factory().is_some_and(|factory| factory.name() == "rtspsrc") {
            match self.transport {
                RtpTransport::Auto => {}
                RtpTransport::Tcp => set("protocols", "tcp"),
                RtpTransport::Udp => set("protocols", "udp"),
            }
        }
        if let Some(latency) = self.latency {
            set("latency", &latency.as_millis().to_string());
        }
        if !self.keep_alive {
            set("do-rtsp-keep-alive", "false");
        }
        if !self.tls_validation {
            set("tls-validation-flags", "0");
            set("ssl-strict", "false");
        }
        if let Some(file) = &self.ca_file {
            if let Ok(authorities) = tls_database(file)
                && source.find_property("tls-database").is_some()
            {
                source.set_property("tls-database", authorities);
            }
            set("ssl-use-system-ca-file", "false");
        }
    }

    /// Sets what a decoder has of it.
    pub fn configure_decoder(&self, decoder: &gst::Element) {
        if !self.low_latency {
            return;
        }
        for (name, value) in LOW_LATENCY {
            if decoder.find_property(name).is_some() {
                decoder.set_property_from_str(name, value);
            }
        }
    }
}

/// Whether the file has certificates of authorities.
pub fn check_ca_file(file: &Path) -> Result<(), Failure> {
    tls_database(file).map(drop)
}

/// The authorities in a file.
fn tls_database(file: &Path) -> Result<glib::Object, Failure> {
    let cannot = |cause: &str| Failure::from(format!("cannot use the authorities in {}: {cause}", file.display()));
    let path = CString::new(file.as_os_str().as_bytes()).map_err(|_| cannot("there is a NUL in its name"))?;
    let mut error = ptr::null_mut();
    // SAFETY: the path ends with NUL. What comes back is a reference of our own, or an error of our own.
    unsafe {
        let found = gio_sys::g_tls_file_database_new(path.as_ptr(), &mut error);
        if found.is_null() {
            let error: glib::Error = from_glib_full(error);
            return Err(cannot(error.message()));
        }
        Ok(from_glib_full(found.cast::<glib::gobject_ffi::GObject>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::scratch;

    fn with(options: StreamOptions) -> gst::Element {
        gst::init().unwrap();
        let source = gst::ElementFactory::make("rtspsrc").build().unwrap();
        options.configure_source(&source);
        source
    }

    fn text(element: &gst::Element, name: &str) -> String {
        element.property_value(name).serialize().unwrap().to_string()
    }

    #[test]
    fn what_is_not_set_is_as_the_element_has_it() {
        gst::init().unwrap();
        let plain = gst::ElementFactory::make("rtspsrc").build().unwrap();
        let source = with(StreamOptions::default());
        for name in ["protocols", "latency", "do-rtsp-keep-alive", "tls-validation-flags"] {
            assert_eq!(text(&source, name), text(&plain, name), "{name}");
        }
    }

    #[test]
    fn each_option_is_set_on_the_element_of_the_network() {
        let default = StreamOptions::default;
        let tcp = with(StreamOptions { transport: RtpTransport::Tcp, ..default() });
        assert!(text(&tcp, "protocols").ends_with("TCP"), "{}", text(&tcp, "protocols"));
        let udp = with(StreamOptions { transport: RtpTransport::Udp, ..default() });
        assert!(text(&udp, "protocols").ends_with("UDP"), "{}", text(&udp, "protocols"));
        let latency = with(StreamOptions { latency: Some(Duration::from_millis(150)), ..default() });
        assert_eq!(latency.property::<u32>("latency"), 150);
        let silent = with(StreamOptions { keep_alive: false, ..default() });
        assert!(!silent.property::<bool>("do-rtsp-keep-alive"));
        let trusting = with(StreamOptions { tls_validation: false, ..default() });
        assert!(text(&trusting, "tls-validation-flags").ends_with("NO_FLAGS"));
        // Of HTTP.
        if let Ok(http) = gst::ElementFactory::make("souphttpsrc").build() {
            StreamOptions { tls_validation: false, ..default() }.configure_source(&http);
            assert!(!http.property::<bool>("ssl-strict"));
        }
    }

    #[test]
    fn a_file_of_authorities_is_checked() {
        let folder = scratch("options-ca");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("ca.pem");
        let wrong = |file: &Path| check_ca_file(file).unwrap_err().to_string();
        assert!(wrong(&file).contains("ca.pem: "), "{}", wrong(&file));
        let made = std::process::Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=test", "-keyout"])
            .arg(folder.join("key.pem"))
            .arg("-out")
            .arg(&file)
            .output()
            .expect("openssl is installed");
        assert!(made.status.success());
        check_ca_file(&file).unwrap();
        let source = with(StreamOptions { ca_file: Some(file), ..StreamOptions::default() });
        assert!(source.property::<Option<glib::Object>>("tls-database").is_some());
    }

    #[test]
    fn a_decoder_gives_frames_at_once_where_that_is_wanted() {
        gst::init().unwrap();
        let Ok(decoder) = gst::ElementFactory::make("avdec_h264").build() else {
            return eprintln!("SKIP: no avdec_h264 here");
        };
        let before = text(&decoder, "thread-type");
        StreamOptions::default().configure_decoder(&decoder);
        assert_eq!(text(&decoder, "thread-type"), before);
        StreamOptions { low_latency: true, ..StreamOptions::default() }.configure_decoder(&decoder);
        assert_eq!(text(&decoder, "thread-type").to_lowercase(), "slice");
    }
}
