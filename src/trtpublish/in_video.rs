// SPDX-License-Identifier: MPL-2.0
//! `location=sei:`: messages travel in the video. Before the encoder a frame is given its messages, as metas that encoders copy;
//! behind it they are written into the H.264.

use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_publish::formats::{self, PublishFormat};
use gsttrt_publish::record::{PublishSource, Record};

use super::MessageSubject;
use super::settings::PublishSettings;
use crate::gst::{sei, user_data};

/// What is the same for all messages.
#[derive(Clone, Debug)]
pub struct MessagesInVideo {
    format: PublishFormat,
    source: PublishSource,
}

impl MessagesInVideo {
    /// # Errors
    /// Settings do not go together, or GStreamer has no metas for messages.
    pub fn new(settings: &PublishSettings) -> Result<Self> {
        if settings.wanted.per == MessageSubject::Object {
            return Err(Error::new(
                ErrorKind::Settings,
                "per=object has no place in the video: an object is gone then",
            )
            .remedy("Set per=frame or per=event, or another location"));
        }
        let options = &settings.options;
        let files = [&options.password_file, &options.ca_file, &options.cert_file, &options.key_file];
        if options.password.is_some() || files.into_iter().any(Option::is_some) {
            return Err(Error::new(
                ErrorKind::Settings,
                "A password or certificate is set, but location=sei: is no server",
            )
            .remedy("Leave password, password-file, ca-file, cert-file and key-file unset"));
        }
        if !user_data::available() {
            return Err(no_metas());
        }
        Ok(MessagesInVideo { format: settings.format, source: settings.source()? })
    }

    /// Gives a raw frame messages of these records, and writes those of an encoded one, which has no records. Returns how many
    /// that were, and how many are too long.
    pub fn process(&self, frame: &mut gst::Buffer, records: Option<Vec<Record>>) -> (usize, usize) {
        let Some(records) = records else { return (sei::write_attached(frame), 0) };
        let all = records.len();
        let attach =
            |record: &Record| sei::attach(frame.make_mut(), &formats::message(self.format, record, &self.source));
        let given = records.iter().map(attach).filter(|is_given| *is_given).count();
        (given, all - given)
    }
}

fn no_metas() -> Error {
    let found = gst::version_string();
    Error::new(ErrorKind::Library, format!("location=sei: needs GStreamer 1.22 or later, and this is {found}"))
        .remedy("Update GStreamer, or set another location, such as a file")
}

pub fn not_raw() -> Error {
    Error::new(ErrorKind::Negotiation, "The frames are H.264, which has no results in metas").remedy(
        "Put trtpublish before the encoder. With location=sei: it writes the results into H.264, behind the encoder",
    )
}

pub fn too_long() -> Error {
    Error::new(ErrorKind::Run, format!("A message is longer than the {} KiB that a frame takes", sei::LONGEST >> 10))
        .remedy("Such messages are left out, and stats counts them as rejected. Fewer objects make them shorter")
}
