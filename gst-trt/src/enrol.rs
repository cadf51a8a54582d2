// SPDX-License-Identifier: MPL-2.0
//! `gst-trt enrol`: names with vectors of pictures, in the file of a gallery.

use std::path::{Path, PathBuf};

use gsttrt_core::backends::BackendPreference;
use gsttrt_core::gallery::{GalleryEntry, file};
use gsttrt_core::image::frame::{Colorimetry, Frame};
use gsttrt_core::session::Detector;

use crate::chain::start_gstreamer;
use crate::failure::{Failure, Status};
use crate::model_options::{backend_words, backends, check_model, session_options};
use crate::progress::Display;
use crate::signals::Signals;
use crate::source::{pictures_in, still};
use crate::terminal::{print, print_error};
use crate::threads::Threads;

#[derive(clap::Args)]
#[command(after_help = "\
A picture shows one person or thing and little else, as the detector of the pipeline cuts it out. Several are better than one. \
A pipeline with trtmatch takes the change over within some seconds.\n\n\
Vectors of faces and people are personal data. Only this user may read a gallery that is made here.")]
pub struct EnrolArgs {
    /// Who or what the pictures show
    name: String,
    /// Pictures, and folders of them
    #[arg(required_unless_present = "remove", conflicts_with = "remove")]
    pictures: Vec<PathBuf>,
    /// The file with names and vectors; made where there is none
    #[arg(short, long, value_name = "FILE")]
    gallery: PathBuf,
    /// The model that gives the vectors, the same as in the pipeline
    #[arg(short, long, value_name = "FILE", required_unless_present = "remove")]
    model: Option<PathBuf>,
    /// What runs the model [default: auto, the GPU if it can]
    #[arg(long, value_name = "NAME", value_parser = backends())]
    backend: Option<String>,
    /// Properties of trtpreprocess, trtinfer and trtnms, as in the pipeline, such as "mean=0.5 std=0.5"
    #[arg(long, value_name = "PROPERTIES", default_value = "", hide_default_value = true)]
    options: String,
    /// Remove the name and all its vectors from the gallery
    #[arg(long)]
    remove: bool,
}

/// So many names are shown where one is not there.
const MOST_SHOWN: usize = 20;

pub fn run(args: &EnrolArgs, threads: &Threads) -> Result<Status, Failure> {
    match &args.model {
        _ if args.remove => remove(args),
        Some(model) => add(args, model, threads),
        None => Err("Give the model that makes vectors of the pictures, by --model.".into()),
    }
}

fn remove(args: &EnrolArgs) -> Result<Status, Failure> {
    let (name, gallery) = (&args.name, args.gallery.display());
    let names = file::read(&args.gallery)?.names().to_vec();
    if !names.contains(name) {
        let known = match &names[..] {
            [] => "nobody".into(),
            few if few.len() <= MOST_SHOWN => few.join(", "),
            many => format!("{} other names", many.len()),
        };
        return Err(format!("There is no {name} in the gallery {gallery}, which has {known}.").into());
    }
    let count = file::change(&args.gallery, |known| known != name, &[])?;
    print(&format!("{name}: {} removed from {gallery}", counted(count)))?;
    Ok(Status::Done)
}

fn add(args: &EnrolArgs, model: &Path, threads: &Threads) -> Result<Status, Failure> {
    check_model(model)?;
    start_gstreamer()?;
    let signals = Signals::listen_for_engines()?;
    let files = pictures_in(&args.pictures)?;
    let mut detector = open(args, model)?;
    let display = Display::default();
    let mut task = display.task("reading");
    let mut entries = Vec::new();
    for (number, picture) in files.iter().enumerate() {
        task.show(Some(number as f64 / files.len() as f64), || format!("{number} pictures"));
        let seen = still::see(picture, threads, &signals, |frame| vector(&mut detector, frame, picture));
        if let Some(signal) = signals.signal() {
            drop(task);
            print_error("It was stopped; the gallery is as it was.");
            return Ok(Status::Interrupted(signal));
        }
        match seen {
            Ok(vector) => entries.push(GalleryEntry::new(&args.name, &vector)?),
            // Of one picture. What is wrong with the model is wrong with all of them, and the last failure says it.
            Err(failure) if number + 1 == files.len() && entries.is_empty() => return Err(failure),
            Err(failure) => task.line(&format!("Warning: {failure}")),
        }
    }
    for note in detector.session().warnings().iter().chain(detector.session().notes()) {
        task.line(&format!("Note: {}", note.message()));
    }
    drop(task);
    file::change(&args.gallery, |_| true, &entries)?;
    let all = file::read(&args.gallery)?;
    let (name, gallery) = (&args.name, args.gallery.display());
    print(&format!(
        "{name}: {} of {} numbers written to {gallery}, which has {} of {}",
        counted(entries.len()),
        all.dims(),
        counted(all.len()),
        if all.names().len() == 1 { "1 name".into() } else { format!("{} names", all.names().len()) }
    ))?;
    Ok(Status::Done)
}

fn counted(vectors: usize) -> String {
    if vectors == 1 { "1 vector".into() } else { format!("{vectors} vectors") }
}

fn open(args: &EnrolArgs, model: &Path) -> Result<Detector, Failure> {
    let has_layout = args.options.split_whitespace().any(|word| word.starts_with("layout"));
    let own: Vec<String> = (!has_layout).then(|| "layout=embed".to_string()).into_iter().collect();
    let (mut options, postprocess) = session_options(&own, &[&args.options])?;
    if let Some(word) = backend_words().find(|word| args.backend.as_deref() == Some(word)) {
        options.backend = BackendPreference::from(word);
    }
    Ok(Detector::open(model, &options, postprocess)?)
}

/// The vector of a picture.
fn vector(detector: &mut Detector, frame: &Frame, picture: &Path) -> Result<Vec<f32>, Failure> {
    detector.detect(frame, Colorimetry::default())?;
    let vector = detector.vector().map(<[f32]>::to_vec);
    vector.ok_or_else(|| format!("The model gives no vector of {}. Use one that does.", picture.display()).into())
}
