// SPDX-License-Identifier: MPL-2.0
//! `gst-trt enrol`: names with vectors of pictures, in the file of a gallery.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gsttrt_core::backends::BackendPreference;
use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::gallery::{GalleryEntry, file};
use gsttrt_core::image::align::{Crop, CropShape, FaceLandmarks};
use gsttrt_core::image::frame::{Colorimetry, Frame};
use gsttrt_core::image::geometry::Rect;
use gsttrt_core::image::keypoints::ObjectKeypoints;
use gsttrt_core::session::{Detector, KeypointShape, Object};

use crate::chain::start_gstreamer;
use crate::failure::{Failure, Status};
use crate::model_options::{backend_words, backends, check_model, session_options};
use crate::progress::Display;
use crate::signals::Signals;
use crate::source::{pictures_by_name, pictures_in, still};
use crate::terminal::{print, print_error};
use crate::threads::Threads;

#[derive(clap::Args)]
#[command(after_help = "\
A picture shows one person or thing and little else, as the detector of the pipeline cuts it out. With --detector it may show more \
around it: a face with five landmarks is cut as with align=face, anything else by its box. Several pictures are better than one. \
A pipeline with trtmatch takes the change over within some seconds.\n\n\
Vectors of faces and people are personal data. Only this user may read a gallery that is made here.")]
pub struct EnrolArgs {
    /// Who or what the pictures show
    #[arg(required_unless_present = "folder", conflicts_with = "folder")]
    name: Option<String>,
    /// Pictures, folders of them, and patterns such as 'photos/*.png'
    #[arg(required_unless_present_any = ["remove", "folder"], conflicts_with_all = ["remove", "folder"])]
    pictures: Vec<PathBuf>,
    /// A folder of many names, in place of NAME and PICTURES: pictures of each are in FOLDER/NAME, or one is FOLDER/NAME.jpg. These
    /// names get new vectors, and the others stay
    #[arg(long, value_name = "FOLDER", conflicts_with = "remove")]
    folder: Option<PathBuf>,
    /// The file with names and vectors; made where there is none
    #[arg(short, long, value_name = "FILE")]
    gallery: PathBuf,
    /// The model that gives the vectors, the same as in the pipeline
    #[arg(short, long, value_name = "FILE", required_unless_present = "remove")]
    model: Option<PathBuf>,
    /// The detector of the pipeline, which finds the one face or thing in each picture [default: the whole picture is taken]
    #[arg(long, value_name = "FILE", conflicts_with = "remove")]
    detector: Option<PathBuf>,
    /// What runs the models [default: auto, the GPU if it can]
    #[arg(long, value_name = "NAME", value_parser = backends())]
    backend: Option<String>,
    /// Properties as in the pipeline, such as "mean=0.5 std=0.5 resize=center-crop"
    #[arg(long, value_name = "PROPERTIES", default_value = "", hide_default_value = true)]
    options: String,
    /// The same of the detector, such as "classes=face score-threshold=0.5"
    #[arg(long, value_name = "PROPERTIES", default_value = "", hide_default_value = true, requires = "detector")]
    detector_options: String,
    /// Remove the name and all its vectors from the gallery
    #[arg(long)]
    remove: bool,
}

/// What to do where the model has the layout of something else.
const NO_VECTORS: &str = "Use a model that makes a vector of each picture, such as one for ReID or faces";

/// So many names are shown where one is not there.
const MOST_SHOWN: usize = 20;

pub fn run(args: &EnrolArgs, threads: &Threads) -> Result<Status, Failure> {
    match (&args.name, &args.model) {
        (Some(name), _) if args.remove => remove(args, name),
        (_, Some(model)) if !args.remove => add(args, model, threads),
        _ => Err("Give a name, and the model that makes vectors of the pictures, by --model.".into()),
    }
}

fn remove(args: &EnrolArgs, name: &str) -> Result<Status, Failure> {
    let gallery = args.gallery.display();
    let names = file::read(&args.gallery)?.names().to_vec();
    if !names.iter().any(|known| known == name) {
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

/// What makes the vector of a picture.
struct Eyes {
    vectors: Detector,
    /// What cuts out the one that is meant, with its file.
    finder: Option<(Detector, PathBuf)>,
}

fn add(args: &EnrolArgs, model: &Path, threads: &Threads) -> Result<Status, Failure> {
    [model].into_iter().chain(args.detector.as_deref()).try_for_each(check_model)?;
    start_gstreamer()?;
    let signals = Signals::listen_for_engines()?;
    let names = match (&args.folder, &args.name) {
        (Some(folder), _) => pictures_by_name(folder)?,
        (None, name) => vec![(name.clone().unwrap_or_default(), pictures_in(&args.pictures)?)],
    };
    let mut files: Vec<(&str, &Path)> = Vec::new();
    for (name, pictures) in &names {
        GalleryEntry::new(name, &[1.0]).map_err(|error| error.about(&format!("Cannot use the name {name:?}")))?;
        files.extend(pictures.iter().map(|picture| (name.as_str(), picture.as_path())));
    }
    // Before all the work.
    let known = file::check_change(&args.gallery, |_| true)?;
    let mut eyes = Eyes::open(args, model)?;
    let display = Display::default();
    let mut task = display.task("reading");
    let mut entries = Vec::new();
    for (number, &(name, picture)) in files.iter().enumerate() {
        task.show(Some(number as f64 / files.len() as f64), || format!("{number} pictures"));
        let seen = still::see(picture, threads, &signals, |frame| Ok(eyes.vector(frame, picture)));
        if let Some(signal) = signals.signal() {
            drop(task);
            print_error("It was stopped; the gallery is as it was.");
            return Ok(Status::Interrupted(signal));
        }
        match seen.unwrap_or_else(|failure| Err(NoVector::OfPicture(failure))) {
            Ok(vector) => {
                // Where all of them are replaced, the change itself tells.
                if let Some(known) = known.filter(|&known| args.folder.is_none() && known != vector.len()) {
                    return Err(file::of_another_model(&args.gallery, known, vector.len()).into());
                }
                entries.push(GalleryEntry::new(name, &vector)?);
            }
            Err(NoVector::OfAll(failure)) => return Err(failure),
            Err(NoVector::OfPicture(failure)) if number + 1 == files.len() && entries.is_empty() => {
                return Err(failure);
            }
            Err(NoVector::OfPicture(failure)) => task.line(&format!("Warning: {failure}")),
        }
    }
    for session in eyes.detectors().map(Detector::session) {
        for note in session.warnings().iter().chain(session.notes()) {
            task.line(&format!("Note: {}", note.message()));
        }
    }
    let seen: BTreeSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    for (name, _) in names.iter().filter(|(name, _)| !seen.contains(name.as_str())) {
        task.line(&format!("Warning: There is no vector of {name}, and the gallery keeps what it has of that name."));
    }
    drop(task);
    // With a folder the same command can be given again.
    let keeps = |known: &str| args.folder.is_none() || !seen.contains(known);
    let all = file::change_and_keep(&args.gallery, keeps, &entries)?.gallery;
    if let Some(warning) = file::shared_vector_of(&args.gallery, &all, |name| seen.contains(name)) {
        print_error(&format!("Warning: {}", warning.message()));
    }
    let gallery = args.gallery.display();
    print(&format!(
        "{}: {} of {} numbers written to {gallery}, which has {} of {}",
        args.name.clone().unwrap_or_else(|| named(seen.len())),
        counted(entries.len()),
        all.dims(),
        counted(all.len()),
        named(all.names().len())
    ))?;
    Ok(Status::Done)
}

fn counted(vectors: usize) -> String {
    if vectors == 1 { "1 vector".into() } else { format!("{vectors} vectors") }
}

fn named(names: usize) -> String {
    if names == 1 { "1 name".into() } else { format!("{names} names") }
}

/// Why there is no vector.
enum NoVector {
    /// Other pictures may have one.
    OfPicture(Failure),
    /// No picture has one.
    OfAll(Failure),
}

impl NoVector {
    /// What a model says of a picture. What is wrong with the model itself is so with each of them.
    fn new(error: Error, picture: &Path) -> Self {
        match error.kind() {
            ErrorKind::WrongType | ErrorKind::Negotiation => {
                NoVector::OfPicture(error.about(&format!("Cannot use {}", picture.display())).into())
            }
            _ => NoVector::OfAll(error.into()),
        }
    }
}

impl Eyes {
    fn open(args: &EnrolArgs, model: &Path) -> Result<Self, Failure> {
        let has_layout = args.options.split_whitespace().any(|word| word.starts_with("layout"));
        let own: Vec<String> = (!has_layout).then(|| "layout=embed".to_string()).into_iter().collect();
        let finder = |file: &PathBuf| {
            let detector = open(args, file, &[], &args.detector_options)?;
            match detector.layout() {
                Some(layout) if !layout.has_boxes() => Err(no_objects(file, layout.name)),
                _ => Ok((detector, file.clone())),
            }
        };
        Ok(Eyes {
            vectors: open(args, model, &own, &args.options)?,
            finder: args.detector.as_ref().map(finder).transpose()?,
        })
    }

    fn detectors(&self) -> impl Iterator<Item = &Detector> {
        [&self.vectors].into_iter().chain(self.finder.as_ref().map(|(finder, _)| finder))
    }

    /// The vector of a picture.
    fn vector(&mut self, frame: &Frame, picture: &Path) -> Result<Vec<f32>, NoVector> {
        let color = Colorimetry::default();
        let crop = match &mut self.finder {
            Some((finder, file)) => {
                let found = finder.detect(frame, color).map_err(|error| NoVector::new(error, picture))?;
                crop(&found, picture, file).map_err(NoVector::OfPicture)?
            }
            None => Crop::from(Rect::from((frame.width as u32, frame.height as u32))),
        };
        let vector = self.vectors.vector_of(frame, color, &crop);
        vector.map_err(|error| match error.kind() {
            // It is the layout of vectors that does not fit.
            ErrorKind::Settings => NoVector::OfAll(error.remedy(NO_VECTORS).into()),
            _ => NoVector::new(error, picture),
        })
    }
}

fn open(args: &EnrolArgs, model: &Path, own: &[String], options: &str) -> Result<Detector, Failure> {
    let (mut options, postprocess) = session_options(own, &[options])?;
    if let Some(word) = backend_words().find(|word| args.backend.as_deref() == Some(word)) {
        options.backend = BackendPreference::from(word);
    }
    Ok(Detector::open(model, &options, postprocess)?)
}

/// The detector is none.
fn no_objects(detector: &Path, layout: &str) -> Failure {
    let detector = detector.display();
    let remedy = "Give --detector a model that finds faces or things, or leave it out: whole pictures are taken then. If the layout is \
                  wrong, set layout in --detector-options";
    format!("{detector} finds no objects: its outputs are those of the layout {layout}. {remedy}.").into()
}

/// The one that a detector has found in a picture, as trtpreprocess cuts it with align=face.
fn crop(objects: &[Object], picture: &Path, detector: &Path) -> Result<Crop, Failure> {
    let (picture, detector) = (picture.display(), detector.display());
    match objects {
        [object] => {
            let values: Vec<f32> = object.keypoints.iter().flat_map(|point| [point.x, point.y]).collect();
            let shape = KeypointShape { count: object.keypoints.len() as u16, dims: 2 };
            let landmarks = FaceLandmarks::of(&ObjectKeypoints { shape, values: values.into() });
            Ok(Crop { shape: landmarks.map(CropShape::Face), ..Crop::from(object.bbox.pixels()) })
        }
        [] => Err(format!("{detector} finds nothing in {picture}. Give a picture that shows the one you add.").into()),
        all => {
            let count = all.len();
            let remedy = "Cut out the one that you add, or set classes or score-threshold in --detector-options";
            Err(format!("{detector} finds {count} objects in {picture}. {remedy}.").into())
        }
    }
}
