// SPDX-License-Identifier: MPL-2.0
//! `gst-trt detect`: annotated videos and images, JSON lines, and a table.

mod images;
mod lines;
mod objects;
mod outcome;
mod report;
mod said;
mod show;
mod silence;
mod table;
mod video;
mod window;

use std::any::Any;
use std::collections::HashSet;
use std::ffi::OsString;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use gsttrt::gst::cuda::registry;
use gsttrt_core::backends::tensorrt::EngineKeeper;
use signal_hook::consts::SIGPIPE;

use crate::chain::{self, InferenceElements, ModelElements};
use crate::failure::{Failure, Status};
use crate::launch_text::{by_stage, check_taken};
use crate::model_options::{ModelOptions, check_model};
use crate::output::{cannot_make_folder, place, replaceable};
use crate::progress::Display;
use crate::serve::parse_time;
use crate::signals::Signals;
use crate::source::{InputSource, VideoAddress, path_text, sources};
use crate::terminal::screen::TerminalScreen;
use crate::threads::Threads;
use images::ImageFolders;
use lines::JsonLines;
use outcome::{Broken, BrokenKind, Ended, conclude};
use report::DetectReport;
use said::SaidTexts;
use show::{Screen, ShowPlace};
use table::{ParquetTable, RowSubject};

const EXAMPLES: &str = "\
Examples:
  gst-trt detect street.mp4 --model yolo11n.onnx
  gst-trt detect photos/ --model yolo11n.onnx --output found/
  gst-trt detect 0 --model yolo11n.onnx --show
  gst-trt detect rtsp://camera/stream --model yolo11n.onnx --track --no-video --json - | jq .detections
  gst-trt detect 'archive/**/*.mp4' --model yolo11n.onnx --parquet found.parquet
  gst-trt detect 'archive/**/*.mp4' --model yolo11n.onnx --parquet found.parquet --at-once 8
  gst-trt detect aerial.mp4 --model yolo11n.onnx --slices 3x2 --nms score-threshold=0.4
  gst-trt detect street.mp4 --model yolo11n.onnx --track --on-objects colors.onnx --object-options object-classes=car

Properties of --preprocess, --infer and --nms are those of the elements: docs/elements.md.";

const TRACKERS: [&str; 7] = ["bytetrack", "botsort-iou", "ocsort", "iou", "botsort", "deepocsort", "boosttrack"];

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct DetectArgs {
    /// Video files, images, folders of images, 'patterns*.jpg', URIs such as rtsp://, cameras such as /dev/video0 or 0; -
    /// is stdin; @list.txt stands for the lines of that file
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<OsString>,
    #[command(flatten)]
    model: ModelOptions,
    /// The annotated video (.mp4, .mkv), or the folder of annotated images or of several videos [default: NAME-boxes.mp4,
    /// NAME-boxes]
    #[arg(short, long, value_name = "PATH", conflicts_with = "no_video")]
    output: Option<PathBuf>,
    /// One JSON object a frame, of all sources; - is stdout [default: NAME-boxes.jsonl]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A new file with a table of all sources. Other files are written only with --output and --json
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
    /// What a row of the table is of; of tracks, --track is bytetrack if it is not given [default: objects]
    #[arg(long, value_enum, value_name = "ROWS", requires = "parquet")]
    rows: Option<RowSubject>,
    /// Write no annotated video and no annotated images
    #[arg(long)]
    no_video: bool,
    /// Show frames with what was found, in a window or, without a display, as pictures in the terminal. Files are written
    /// only with --output and --json [places: window, terminal]
    #[arg(long, value_enum, value_name = "PLACE", num_args = 0..=1, require_equals = true, default_missing_value = "auto",
          hide_possible_values = true)]
    show: Option<ShowPlace>,
    /// Give objects ids that stay the same from frame to frame [trackers: bytetrack, botsort-iou, ocsort, iou, boosttrack;
    /// botsort and deepocsort compare the vectors of models on objects, and boosttrack those that there are]
    #[arg(long, value_name = "TRACKER", num_args = 0..=1, require_equals = true, default_missing_value = "bytetrack",
          value_parser = TRACKERS, hide_possible_values = true)]
    track: Option<String>,
    /// Columns and rows of slices that the model sees one by one, for small objects
    #[arg(long, value_name = "COLUMNSxROWS")]
    slices: Option<String>,
    /// Stop after so many frames of each source
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    frames: Option<u64>,
    /// Seconds without a frame after which a camera, a pipe or an address of the network is given up; 0 is never
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = parse_timeout)]
    timeout: Duration,
    /// Files that are read at the same time. They share the model, and fill its batches together
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256),
          conflicts_with = "show")]
    at_once: u16,
    /// Further properties of trtpreprocess, as in gst-launch-1.0
    #[arg(long, value_name = "PROPERTIES", default_value = "", hide_default_value = true)]
    preprocess: String,
    /// … of trtinfer, such as "interval=2 precision=fp16"
    #[arg(long, value_name = "PROPERTIES", default_value = "", hide_default_value = true)]
    infer: String,
    /// … of trtnms, such as "score-threshold=0.5 classes=person"
    #[arg(long, value_name = "PROPERTIES", default_value = "", hide_default_value = true)]
    nms: String,
    /// A model that sees each object as a picture of its own, such as a classifier of cars; may be repeated
    #[arg(long, value_name = "FILE")]
    on_objects: Vec<PathBuf>,
    /// Properties of its elements, such as "object-classes=car label-file=colors.txt"; of several models in their order
    #[arg(long, value_name = "PROPERTIES", requires = "on_objects")]
    object_options: Vec<String>,
    /// Write vectors too: into the JSON lines as base64, and into the table of --parquet as lists of numbers
    #[arg(long)]
    vectors: bool,
}

impl DetectArgs {
    /// Whether files are written only where they are asked for.
    fn has_own_end(&self) -> bool {
        self.show.is_some() || self.parquet.is_some()
    }

    /// The tracker that is wanted: rows of tracks need one.
    fn tracker(&self) -> Option<String> {
        let is_needed = self.rows == Some(RowSubject::Tracks);
        self.track.clone().or(is_needed.then(|| TRACKERS[0].to_string()))
    }

    /// Whether lines go to standard output.
    fn has_lines_on_stdout(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }

    /// The failure of sources, with the option that one of them was probably meant for: a value that may be left out needs
    /// an equals sign.
    fn with_meant_option(&self, failure: Failure) -> Failure {
        let is_given = |value: &str| self.sources.iter().any(|source| source == value) && !Path::new(value).exists();
        let tracker = TRACKERS.into_iter().find(|value| self.track.is_some() && is_given(value));
        let place = ["window", "terminal"].into_iter().find(|value| self.show.is_some() && is_given(value));
        match tracker.map(|value| ("track", value)).or(place.map(|value| ("show", value))) {
            Some((option, value)) => format!("{failure} If {value} is not a source, write --{option}={value}.").into(),
            None => failure,
        }
    }

    /// Vectors are in lines and tables alone.
    fn check_vectors(&self) -> Result<(), Failure> {
        let are_written = self.show.is_none() || self.json.is_some() || self.parquet.is_some();
        if are_written || !self.vectors {
            return Ok(());
        }
        let text = "Frames that are shown have no vectors: add --json FILE or --parquet FILE, or leave --vectors out.";
        Err(text.into())
    }

    /// The models that see objects.
    fn on_objects(&self) -> Result<Vec<ModelElements>, Failure> {
        let (models, options) = (&self.on_objects, &self.object_options);
        if options.len() > models.len() {
            let text = "There are more --object-options than --on-objects: write one text for each model.";
            return Err(text.into());
        }
        let of_model = |(number, file): (usize, &PathBuf)| -> Result<ModelElements, Failure> {
            let text = options.get(number).map_or("", String::as_str);
            let [preprocess, infer, nms] =
                by_stage(text, &TAKEN_ON_OBJECTS).map_err(|failure| format!("--object-options: {failure}"))?;
            // Before the user's own, which hold.
            let backend = self.model.backend.as_ref().map_or_else(String::new, |backend| format!("backend={backend} "));
            let model = ModelOptions { model: file.clone(), ..ModelOptions::default() };
            Ok(ModelElements { model, preprocess, infer: backend + &infer, nms, ..ModelElements::default() })
        };
        models.iter().enumerate().map(of_model).collect()
    }
}

/// Properties of the elements of the first model that are set here.
const TAKEN: [(&str, &str); 2] = [("name", "Leave it out"), ("model-file", "Use --model")];
/// … of a model on objects.
const TAKEN_ON_OBJECTS: [(&str, &str); 3] =
    [("name", "Leave it out"), ("model-file", "Use --on-objects"), ("regions", "They are the objects")];

/// Seconds, or a time with its unit as in the configuration of the service.
fn parse_timeout(text: &str) -> Result<Duration, String> {
    let seconds = || Duration::try_from_secs_f64(text.trim().parse().ok()?).ok();
    let time = seconds().or_else(|| parse_time(text)).filter(|time| time.as_secs() <= 1_000_000);
    let time = time.filter(|time| time.is_zero() || *time >= Duration::from_millis(1));
    time.ok_or_else(|| "give seconds, such as 120 or 0.5, or a time with its unit, such as 2min; 0 is never".into())
}

/// What all sources have in common.
struct Setup {
    chain: InferenceElements,
    frames: Option<u64>,
    /// Sources with an end that are read at the same time.
    at_once: usize,
    /// For which a source may give no frame; without an end where it is 0.
    timeout: Duration,
    table: Option<Arc<ParquetTable>>,
    /// Whether lines have vectors.
    vectors: bool,
    /// Where frames are shown.
    show: Option<ShowSettings>,
    signals: Signals,
    display: Display,
    said: SaidTexts,
    threads: Threads,
    /// Those of the first source, for all: to make one takes longer than a short clip.
    contexts: OnceLock<Box<dyn Any + Send + Sync>>,
}

struct ShowSettings {
    place: ShowPlace,
    terminal: Arc<TerminalScreen>,
    has_lines: bool,
}

impl Setup {
    /// The failure of the table.
    fn check_table(&self) -> Result<(), Failure> {
        self.table.as_ref().map_or(Ok(()), |table| table.check())
    }

    /// The failure of models on objects, of which the first model finds none.
    fn check_objects(&self, report: &DetectReport) -> Result<(), Failure> {
        if report.is_of_whole_frames && !self.chain.on_objects.is_empty() {
            return Err(objects::no_objects(&self.chain));
        }
        Ok(())
    }

    /// Called while the source's pipeline still has them.
    fn keep_contexts(&self) {
        self.contexts.get_or_init(|| Box::new(registry::alive()));
    }

    /// What shows a source, where that is wanted.
    fn screen(&self) -> Result<Option<Screen>, Failure> {
        self.show.as_ref().map(ShowSettings::open).transpose()
    }
}

impl ShowSettings {
    fn open(&self) -> Result<Screen, Failure> {
        self.place.open(&self.terminal, self.has_lines)
    }
}

/// A source, and where its results go.
struct Job {
    source: InputSource,
    /// A file for a video, a folder for images; or a file for the one image, if `is_file`.
    output: Option<PathBuf>,
    is_file: bool,
    /// `None` where one file is for all sources.
    json: Option<PathBuf>,
    /// Whether lines say which source they are of.
    is_named: bool,
    /// Its number, and how many there are, of several.
    place: Option<(usize, usize)>,
}

impl Job {
    /// As messages name it.
    fn shown(&self) -> String {
        match &self.source {
            InputSource::Video { address, .. } => address.shown(),
            InputSource::Images { name, .. } => name.clone(),
        }
    }

    /// As the rows of a table name it: images have a name each.
    fn table_name(&self) -> Option<String> {
        match &self.source {
            InputSource::Video { address: VideoAddress::File(path), .. } => Some(whole_path(path)),
            InputSource::Video { address, .. } => Some(address.shown()),
            InputSource::Images { .. } => None,
        }
    }

    /// It may have no end, and runs next to others.
    fn is_endless(&self) -> bool {
        matches!(&self.source, InputSource::Video { address, .. } if address.is_remote())
    }
}

/// The path from the root, which is the same for readers in other folders.
fn whole_path(path: &Path) -> String {
    path_text(&std::path::absolute(path).unwrap_or_else(|_| path.into()))
}

/// The ending of a name, in small letters.
fn ending(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

pub fn run(args: &DetectArgs, threads: &Threads) -> Result<Status, Failure> {
    args.model.check()?;
    args.on_objects.iter().try_for_each(|model| check_model(model))?;
    for (option, text) in [("preprocess", &args.preprocess), ("infer", &args.infer), ("nms", &args.nms)] {
        check_taken(text, &TAKEN).map_err(|failure| format!("--{option}: {failure}"))?;
    }
    args.check_vectors()?;
    let signals = Signals::listen()?;
    chain::start_gstreamer()?;
    if args.model.may_be_for_gpu(&args.infer) {
        chain::prefer_gpu_decoders();
    }
    let first = ModelElements {
        model: args.model.clone(),
        slices: args.slices.clone(),
        preprocess: args.preprocess.clone(),
        infer: args.infer.clone(),
        nms: args.nms.clone(),
        ..ModelElements::default()
    };
    let chain = InferenceElements { first, track: args.tracker(), on_objects: args.on_objects()? };
    let sources = sources(&args.sources).map_err(|failure| args.with_meant_option(failure))?;
    let jobs = jobs(args, sources)?;
    let (show, display) = show(args, &jobs)?;
    let (threads, contexts, said) = (threads.clone(), OnceLock::new(), SaidTexts::default());
    // The launch line's mistakes first, before a file is made.
    let trial = chain::parse(&format!("fakesrc ! {} ! fakesink", chain.launch_line(true)))?;
    chain.configure(&trial);
    objects::check(args, &chain, &trial)?;
    let subject = args.rows.unwrap_or(RowSubject::Objects);
    let table = args.parquet.as_deref().map(|path| ParquetTable::create(path, subject)).transpose()?.map(Arc::new);
    let (frames, timeout, vectors) = (args.frames, args.timeout, args.vectors);
    let at_once = at_once(args, &jobs, &display);
    let setup =
        Setup { chain, frames, at_once, timeout, table, vectors, show, signals, display, said, threads, contexts };
    let common = args.json.as_deref().map(JsonLines::create).transpose();
    let common = common.inspect_err(|_| setup.table.iter().for_each(|table| table.discard()))?.map(Arc::new);
    // Each source has a pipeline of its own, which would load it again.
    let engines = (jobs.len() > 1).then(EngineKeeper::new);
    let ends = run_all(&jobs, &setup, common.as_ref());
    drop(engines);
    if common.as_ref().is_some_and(|lines| lines.has_lost_its_reader()) {
        setup.table.iter().for_each(|table| table.discard());
        return Ok(Status::Interrupted(SIGPIPE));
    }
    let is_any_done = ends.iter().any(|end| end.as_ref().is_some_and(Result::is_ok));
    // A table lists what cannot be read, even if nothing can be.
    let is_unreadable =
        |end: &Option<Result<Ended, Broken>>| matches!(end, Some(Err(broken)) if broken.kind == BrokenKind::Unreadable);
    let written = match &setup.table {
        Some(table) if is_any_done || ends.iter().any(is_unreadable) => table.finish(),
        Some(table) => {
            table.discard();
            Ok(())
        }
        None => Ok(()),
    };
    match common {
        Some(lines) if is_any_done => lines.finish()?,
        Some(lines) => lines.discard(),
        None => {}
    }
    written?;
    conclude(&jobs, ends, args, &setup.signals)
}

/// How many sources with an end may be read at the same time. Tracks are kept by the name of their source until it ends, so where one is
/// named twice, it is read twice in turn.
fn at_once(args: &DetectArgs, jobs: &[Job], display: &Display) -> usize {
    let mut seen = HashSet::new();
    let twice = jobs.iter().find(|job| job.table_name().is_some_and(|name| !seen.insert(name)));
    let Some(twice) = twice else { return usize::from(args.at_once).min(jobs.len()) };
    if args.at_once > 1 {
        let (shown, count) = (twice.shown(), args.at_once);
        display.line(&format!(
            "Warning: {shown} is given twice, so --at-once {count} has no effect: files are read one after the other. Give each of them \
             once."
        ));
    }
    1
}

/// Where frames are shown, and where progress is then.
fn show(args: &DetectArgs, jobs: &[Job]) -> Result<(Option<ShowSettings>, Display), Failure> {
    let Some(place) = args.show else { return Ok((None, Display::default())) };
    let has_lines = args.has_lines_on_stdout();
    let mut show = ShowSettings { place, terminal: Arc::default(), has_lines };
    let opened = show.open()?;
    let Some(terminal) = opened.terminal() else {
        show.place = ShowPlace::Window;
        return Ok((Some(show), Display::default()));
    };
    if jobs.iter().filter(|job| job.is_endless()).count() > 1 {
        let text = "A terminal shows one camera or stream at a time. Give one of them, or use --show=window.";
        return Err(text.into());
    }
    show.place = ShowPlace::Terminal;
    let display = Display::below(terminal);
    Ok((Some(show), display))
}

/// Where the results of each source go.
fn jobs(args: &DetectArgs, sources: Vec<InputSource>) -> Result<Vec<Job>, Failure> {
    let several = sources.len() > 1;
    let is_file = match (&args.output, sources.as_slice()) {
        (Some(path), [source]) => is_file(path, source)?,
        (Some(path), [_, _, ..]) if reads_as_file(path) => {
            let shown = path.display();
            return Err(
                format!("Cannot write the results of several sources to the file {shown}: give a folder.").into()
            );
        }
        _ => false,
    };
    let count = sources.len();
    let jobs: Vec<Job> = sources
        .into_iter()
        .zip(1..)
        .map(|(source, number)| {
            let (name, is_images, ending) = match &source {
                InputSource::Images { name, .. } => (name, true, "-boxes"),
                InputSource::Video { name, .. } => (name, false, "-boxes.mp4"),
            };
            let output = match &args.output {
                Some(folder) if several => folder.join(format!("{name}{ending}")),
                Some(path) => path.clone(),
                None => format!("{name}{ending}").into(),
            };
            let on_request = args.has_own_end();
            let json = (args.json.is_none() && !on_request).then(|| format!("{name}-boxes.jsonl").into());
            let is_written = !args.no_video && (!on_request || args.output.is_some());
            let output = if !is_written || is_images && !is_file { output } else { replaceable(&output)? };
            let place = several.then_some((number, count));
            Ok(Job {
                output: is_written.then_some(output),
                is_file,
                json,
                is_named: several || is_images,
                place,
                source,
            })
        })
        .collect::<Result<_, Failure>>()?;
    let labels = args.model.labels.as_deref();
    let files = jobs.iter().flat_map(|job| match &job.source {
        InputSource::Images { files, .. } => files.iter().map(PathBuf::as_path).collect(),
        InputSource::Video { address: VideoAddress::File(path), .. } => vec![path.as_path()],
        InputSource::Video { .. } => Vec::new(),
    });
    let models = [&args.model.model].into_iter().chain(&args.on_objects).map(PathBuf::as_path);
    let taken: HashSet<PathBuf> =
        files.chain(models).chain(labels).filter_map(|path| path.canonicalize().ok()).collect();
    let results = jobs.iter().flat_map(|job| job.output.iter().chain(&job.json)).chain(&args.json).chain(&args.parquet);
    let mut places = HashSet::new();
    for path in results {
        if path.canonicalize().is_ok_and(|path| taken.contains(&path)) {
            return Err(format!("{} would be overwritten; choose another name.", path.display()).into());
        }
        if !places.insert(place(path)) {
            return Err(format!("Two results would be written to {}; choose another name.", path.display()).into());
        }
    }
    // They would be read as the pictures of that source, or replace them.
    let folders = ImageFolders::of(jobs.iter().enumerate().filter_map(|(at, job)| match &job.source {
        InputSource::Images { files, .. } => Some((at, files.as_slice())),
        InputSource::Video { .. } => None,
    }));
    for (at, job) in jobs.iter().enumerate() {
        let InputSource::Images { name, .. } = &job.source else { continue };
        let Some(folder) = job.output.as_ref().filter(|_| !job.is_file) else { continue };
        if folders.has_others(folder, at) {
            let shown = folder.display();
            let text = format!("The images of {name} would be written to {shown}, where those of another source are");
            return Err(format!("{text}; choose another name with --output.").into());
        }
    }
    if let (true, Some(folder)) = (several, &args.output) {
        std::fs::create_dir_all(folder).map_err(|error| cannot_make_folder(folder, &error))?;
    }
    Ok(jobs)
}

/// The endings of images and of videos that are written.
const OF_IMAGES: [&str; 4] = ["jpg", "jpeg", "jpe", "png"];
const OF_VIDEOS: [&str; 2] = ["mp4", "mkv"];

/// The endings of other files, which nobody wants for a folder.
const OF_OTHERS: [&str; 9] = ["avi", "bmp", "gif", "jp2", "mov", "tif", "tiff", "webm", "webp"];

/// Whether a path of no folder has the ending of a file.
fn reads_as_file(path: &Path) -> bool {
    let ending = ending(path);
    !path.is_dir() && [&OF_IMAGES[..], &OF_VIDEOS, &OF_OTHERS].iter().any(|of| of.contains(&ending.as_str()))
}

/// Whether the path of --output is a file for the one source, and not a folder for images.
fn is_file(path: &Path, source: &InputSource) -> Result<bool, Failure> {
    let (shown, ending) = (path.display(), ending(path));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_there = folder.is_none_or(Path::is_dir);
    match source {
        InputSource::Video { .. } if !OF_VIDEOS.contains(&ending.as_str()) => {
            let endings = OF_VIDEOS.map(|ending| format!(".{ending}")).join(" or ");
            Err(format!("Cannot write {shown}: the annotated video ends in {endings}.").into())
        }
        InputSource::Images { files, .. } if OF_IMAGES.contains(&ending.as_str()) && !path.is_dir() => {
            match files.len() {
                1 if is_there => Ok(true),
                1 => Err(format!("Cannot write {shown}: its folder is not there.").into()),
                count => Err(format!("Cannot write {count} images to the file {shown}: give a folder.").into()),
            }
        }
        InputSource::Images { .. } if OF_VIDEOS.contains(&ending.as_str()) && !path.is_dir() => {
            Err(format!("Cannot write images to the video {shown}: give a folder.").into())
        }
        InputSource::Images { .. } if OF_OTHERS.contains(&ending.as_str()) && !path.is_dir() => {
            let how = "images are written as .jpg or .png. Give one image such a name, or give a folder";
            Err(format!("Cannot write {shown}: {how}.").into())
        }
        InputSource::Images { .. } => Ok(false),
        InputSource::Video { .. } if path.is_dir() => Err(format!("Cannot write {shown}: it is a folder.").into()),
        InputSource::Video { .. } if !is_there => Err(format!("Cannot write {shown}: its folder is not there.").into()),
        InputSource::Video { .. } => Ok(true),
    }
}

/// Runs sources of the network and cameras side by side, for they may have no end. Of the others so many are in work at the same time,
/// and the next one is begun when one has ended. `None` for those that were not begun.
fn run_all(jobs: &[Job], setup: &Setup, common: Option<&Arc<JsonLines>>) -> Vec<Option<Result<Ended, Broken>>> {
    let one = |job: &Job| {
        let end = match &job.source {
            InputSource::Video { name, address } => video::run(job, name, address, setup, common),
            InputSource::Images { name, files, starts } => images::run(job, name, (files, starts), setup, common),
        };
        if let (Some(table), Some(name)) = (&setup.table, job.table_name()) {
            let error = match &end {
                Ok(ended) => ended.lost.as_ref(),
                Err(broken) => Some(&broken.failure).filter(|_| broken.kind != BrokenKind::Stopped),
            };
            table.end(&name, error.map(|error| error.to_string()).as_deref());
        }
        end
    };
    let files: Vec<(usize, &Job)> = jobs.iter().enumerate().filter(|(_, job)| !job.is_endless()).collect();
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let in_turn = || {
        let mut ends = Vec::new();
        while !is_over.load(Ordering::Relaxed) && setup.signals.signal().is_none() {
            let Some(&(number, job)) = files.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let end = one(job);
            if matches!(&end, Err(broken) if broken.kind != BrokenKind::Unreadable) {
                is_over.store(true, Ordering::Relaxed);
            }
            ends.push((number, end));
        }
        ends
    };
    thread::scope(|scope| {
        let live: Vec<_> = jobs.iter().map(|job| job.is_endless().then(|| scope.spawn(|| one(job)))).collect();
        let others: Vec<_> = (1..setup.at_once.min(files.len())).map(|_| scope.spawn(in_turn)).collect();
        let mut ended = in_turn();
        for thread in others {
            ended.extend(thread.join().unwrap_or_else(|payload| resume_unwind(payload)));
        }
        let mut ends: Vec<Option<Result<Ended, Broken>>> = jobs.iter().map(|_| None).collect();
        for (number, end) in ended {
            ends[number] = Some(end);
        }
        for (end, thread) in ends.iter_mut().zip(live) {
            if let Some(thread) = thread {
                *end = Some(thread.join().unwrap_or_else(|_| Err("A thread has panicked.".into())));
            }
        }
        ends
    })
}
