// SPDX-License-Identifier: MPL-2.0
//! Heads from files: what a [`HeadFormat`] says, as TOML that users write.
//!
//! `read` makes a draft of the text, and knows the line of each value; `columns` reads what a row holds; `check` refuses what
//! does not belong together, so that whatever passes can be decoded like the heads in this crate. `write` goes the other way.
//! What of a file must agree with a model is compared in `declared.rs`, where the model is known.

mod check;
mod columns;
mod draft;
mod read;
mod table;
mod write;

use std::path::Path;
use std::sync::Mutex;

use super::{Dim, HeadFormat, HeadSizes, OutputSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::files;
use read::LayoutDraft;
use table::LayoutText;

pub(super) use columns::word_of;
pub use draft::draft;
pub use write::to_toml;

/// Bytes of a layout file.
const MAX_TEXT: u64 = 64 << 10;

/// Heads of different texts in a process: they stay until it ends, as models may use them.
const MAX_HEADS: usize = 1024;

/// The key of a model's metadata with the text of a layout file.
pub(crate) const METADATA_KEY: &str = "gsttrt";

/// What errors call texts that are in no file.
pub(crate) const OF_METADATA: &str = "the model's metadata (key gsttrt)";
pub(super) const OF_OPTION: &str = "the text in layout";

/// What a file says of a head, besides what each head says.
#[derive(Debug)]
pub struct LayoutFile {
    /// What it is called: the layout file with its path, or [`OF_METADATA`].
    pub(crate) source: String,
    /// Dimensions of each output, where they are given; -1 is open.
    pub(super) shapes: Vec<Option<Vec<i64>>>,
    /// Of raw scores of anomalies.
    pub(crate) anomaly: Option<AnomalyRange>,
}

/// What raw scores of anomalies mean, as Anomalib 1 writes it into `metadata.json` next to a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AnomalyRange {
    /// From which on a picture is an anomaly.
    pub image_threshold: f32,
    /// The same of a pixel of the map, if there is one.
    pub pixel_threshold: Option<f32>,
    /// The least and the greatest score of a picture in the validation.
    pub min: f32,
    pub max: f32,
}

/// A head that was read, and the text that it was read from.
struct KnownText {
    source: String,
    text: String,
    head: &'static HeadFormat,
}

static KNOWN: Mutex<Vec<KnownText>> = Mutex::new(Vec::new());

/// The head in a file. The same file gives the same head for as long as its text stays the same.
///
/// # Errors
/// `NotFound` and `Read`, where there is no such file or it cannot be read; `Settings`, where it does not describe a head.
pub fn of_file(path: &Path) -> Result<&'static HeadFormat> {
    let source = format!("the layout file {}", path.display());
    let bytes = files::read_regular(path, MAX_TEXT).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::new(ErrorKind::NotFound, format!("There is no {}", &source[4..]))
            .remedy("Check the path given as layout-file"),
        // Of a file that can be read.
        std::io::ErrorKind::FileTooLarge => Error::new(ErrorKind::Settings, format!("Cannot use {source}"))
            .cause(error)
            .remedy("Give a layout file, which describes one head in a few lines. Is it a model, or a picture?"),
        _ => Error::new(ErrorKind::Read, format!("Cannot read {source}"))
            .cause(error)
            .remedy("Set layout-file to a TOML file that this user may read"),
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|&&byte| byte == b'\n').count() + 1;
        Error::new(ErrorKind::Settings, format!("Cannot use {source}"))
            .cause(format!("line {line} is not UTF-8"))
            .remedy("Save it as UTF-8")
    })?;
    of_text(&source, &text)
}

/// The head that a text describes; `source` is what errors call it.
///
/// # Errors
/// `Settings`, where it describes none, with the line.
pub fn of_text(source: &str, text: &str) -> Result<&'static HeadFormat> {
    let same = |known: &&KnownText| known.text == text && known.source == source;
    if let Some(known) = KNOWN.lock().unwrap().iter().find(same) {
        return Ok(known.head);
    }
    if text.len() as u64 > MAX_TEXT {
        return Err(Error::new(ErrorKind::Settings, format!("Cannot use {source}"))
            .cause(format!("it is larger than {} KiB", MAX_TEXT >> 10))
            .remedy(
                "It describes one head, for which a few lines do: leave out comments and outputs that are not read",
            ));
    }
    let read = LayoutText { source, text };
    let draft = LayoutDraft::read(read)?;
    check::check(&draft)?;
    let mut known = KNOWN.lock().unwrap();
    // Another thread may have read it meanwhile.
    if let Some(known) = known.iter().find(same) {
        return Ok(known.head);
    }
    if known.len() >= MAX_HEADS {
        return Err(Error::new(ErrorKind::Settings, format!("Cannot use {source}"))
            .cause(format!("this process has read {MAX_HEADS} different layouts, and keeps all of them"))
            .remedy("Start the program again"));
    }
    let head = leak(draft, source);
    known.push(KnownText { source: source.into(), text: text.into(), head });
    Ok(head)
}

/// A word by which [`of_key`] finds a head in this process.
pub fn key_of(head: &'static HeadFormat) -> String {
    let place = KNOWN.lock().unwrap().iter().position(|known| known.head == head);
    place.map_or_else(|| head.name.to_string(), |place| format!("#{place}"))
}

/// The head of a word of [`key_of`].
pub fn of_key(key: &str) -> Option<&'static HeadFormat> {
    match key.strip_prefix('#') {
        Some(place) => KNOWN.lock().unwrap().get(place.parse::<usize>().ok()?).map(|known| known.head),
        None => HeadFormat::of_name(key).ok(),
    }
}

/// A head that stays, as those in this crate do.
fn leak(draft: LayoutDraft, source: &str) -> &'static HeadFormat {
    fn text(text: String) -> &'static str {
        Box::leak(text.into_boxed_str())
    }
    let holds = columns::in_words(draft.outputs.iter().flat_map(|output| &output.columns));
    let mut shapes = Vec::new();
    let outputs: Vec<OutputSpec> = draft
        .outputs
        .into_iter()
        .map(|output| {
            shapes.push(output.shape);
            let dims: &'static [Dim] = Vec::leak(output.dims);
            OutputSpec { name: text(output.name), class: output.class, dims, columns: Vec::leak(output.columns) }
        })
        .collect();
    let file = LayoutFile { source: source.into(), shapes, anomaly: draft.anomaly };
    let sizes = HeadSizes {
        classes: draft.counts.classes,
        coefficients: draft.counts.coefficients,
        grid: draft.grid,
        keypoints: draft.keypoints,
    };
    Box::leak(Box::new(HeadFormat {
        name: text(draft.name),
        about: text(draft.about),
        task: draft.task,
        outputs: Vec::leak(outputs),
        holds: text(holds),
        input: draft.input,
        input_note: None,
        needs_nms: draft.suppress.is_some_and(|suppress| suppress != super::Suppress::None),
        sizes: Box::leak(Box::new(sizes)),
        file: Some(Box::leak(Box::new(file))),
        likely: |_| None,
        #[cfg(test)]
        gold: |_| unreachable!("it is computed for the heads of this crate"),
    }))
}

#[cfg(test)]
mod tests;
