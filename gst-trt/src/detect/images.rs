// SPDX-License-Identifier: MPL-2.0
//! Images of any size: each is decoded by a pipeline of its own, and all go through one chain.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use gst::prelude::*;

use super::lines::JsonLines;
use super::report::{Watched, watch};
use super::show::Screen;
use super::{Broken, Ended, Job, Setup, ending, whole_path};
use crate::chain::{self, element};
use crate::failure::Failure;
use crate::output::{cannot_make, cannot_make_folder, create_part, finish_part, part};
use crate::progress::TaskProgress;
use crate::source::{path_text, still};

/// Time from one image to the next, for trackers.
const STEP: gst::ClockTime = gst::ClockTime::from_mseconds(40);

pub fn run(
    job: &Job,
    name: &str,
    (files, starts): (&[PathBuf], &[usize]),
    setup: &Setup,
    common: Option<&Arc<JsonLines>>,
) -> Result<Ended, Broken> {
    let chain = setup.chain.for_throughput(setup.at_once > 1);
    let screen = setup.screen()?;
    let line = format!(
        "appsrc name=source format=time block=true max-buffers=2 max-bytes=0 ! {} ! queue max-size-buffers=2 \
         ! appsink name=out sync=false max-buffers=1 enable-last-sample=false",
        chain.launch_line(job.output.is_some() || screen.is_some())
    );
    let pipeline = chain::parse(&line)?;
    chain.configure(&pipeline);
    let names = result_names(files);
    if let Some(folder) = job.output.as_ref().filter(|_| !job.is_file) {
        if let Some(source) = overwritten(files, &names, folder) {
            let text = format!("{} would be overwritten; choose another name with --output.", source.display());
            return Err(text.into());
        }
        std::fs::create_dir_all(folder).map_err(|error| cannot_make_folder(folder, &error))?;
    }
    let own = job.json.as_deref().map(JsonLines::create).transpose()?.map(Arc::new);
    let lines = own.clone().or(common.cloned()).unwrap_or_else(|| JsonLines::nowhere().into());
    let all: Arc<[PathBuf]> = files.into();
    let origin = move |_: &gst::Pad, buffer: &gst::BufferRef| {
        (number(buffer).and_then(|number| Some(path_text(all.get(number)?))), None)
    };
    let report = watch(&pipeline, job, setup, lines.clone(), Box::new(origin));
    let run =
        ImageRun { pipeline: &pipeline, files, names, starts, job, setup, screen, report: &report, lines: &lines };
    let outcome = run.to_the_end(name);
    setup.keep_contexts();
    let stopped = pipeline.set_state(gst::State::Null).map_err(Failure::from);
    let finish = || stopped.and_then(|_| own.as_ref().map_or(Ok(()), |own| own.finish()));
    let outcome = outcome.and_then(|ended| finish().map(|()| ended).map_err(Broken::from));
    if outcome.is_err() {
        own.iter().for_each(|own| own.discard());
        // A folder stays where images are in it.
        job.output.iter().filter(|_| !job.is_file).for_each(|folder| drop(std::fs::remove_dir(folder)));
    }
    outcome
}

/// The number of the image that a frame is of.
fn number(buffer: &gst::BufferRef) -> Option<usize> {
    usize::try_from(buffer.pts()?.nseconds() / STEP.nseconds()).ok()
}

/// Names in the folder of results, each once: JPEG and PNG files keep theirs, others become PNG. Of files of one name in several
/// folders, those behind the first have a number.
fn result_names(files: &[PathBuf]) -> Vec<PathBuf> {
    let plain = |file: &PathBuf| {
        let name = Path::new(file.file_name().unwrap_or_default());
        let is_kept = ["jpg", "jpeg", "jpe", "png"].contains(&ending(name).as_str());
        if is_kept { name.to_path_buf() } else { name.with_added_extension("png") }
    };
    let names: Vec<PathBuf> = files.iter().map(plain).collect();
    let all: HashSet<&PathBuf> = names.iter().collect();
    let mut counts = HashMap::<&PathBuf, u32>::new();
    let mut found = Vec::with_capacity(names.len());
    for name in &names {
        let count = counts.entry(name).or_default();
        *count += 1;
        let mut given = name.clone();
        if *count > 1 {
            given = with_number(name, *count);
        }
        // Another file has that name itself.
        while *count > 1 && all.contains(&given) {
            *count += 1;
            given = with_number(name, *count);
        }
        found.push(given);
    }
    found
}

/// The folders that images of sources are in, each with the number of the only source that has some there; `None` where several have.
pub struct ImageFolders(HashMap<PathBuf, Option<usize>>);

impl ImageFolders {
    pub fn of<'a>(sources: impl Iterator<Item = (usize, &'a [PathBuf])>) -> Self {
        let mut folders = HashMap::new();
        for (source, files) in sources {
            let parents: HashSet<&Path> = files.iter().map(|file| folder_of(file)).collect();
            for folder in parents.into_iter().filter_map(|parent| parent.canonicalize().ok()) {
                let only = folders.entry(folder).or_insert(Some(source));
                *only = only.filter(|only| *only == source);
            }
        }
        ImageFolders(folders)
    }

    /// Whether another source has images in that folder. One that is to be made has none.
    pub fn has_others(&self, folder: &Path, source: usize) -> bool {
        let only = folder.canonicalize().ok().and_then(|folder| self.0.get(&folder).copied());
        only.is_some_and(|only| only != Some(source))
    }
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The first source whose place one of these results would take in the folder.
fn overwritten(files: &[PathBuf], names: &[PathBuf], folder: &Path) -> Option<PathBuf> {
    let there = folder.canonicalize().ok()?; // a folder that is to be made has no sources
    let mut parents = HashMap::<&Path, bool>::new();
    let mut sources = HashSet::<&OsStr>::new();
    for file in files {
        let parent = folder_of(file);
        let is_of_folder = || parent.canonicalize().is_ok_and(|parent| parent == there);
        if *parents.entry(parent).or_insert_with(is_of_folder) {
            sources.extend(file.file_name());
        }
    }
    names.iter().find(|name| sources.contains(name.as_os_str())).map(|name| folder.join(name))
}

/// The name with a number before its ending.
fn with_number(name: &Path, number: u32) -> PathBuf {
    let mut stem = name.file_stem().unwrap_or_default().to_os_string();
    stem.push(format!("-{number}"));
    name.extension().map_or_else(|| PathBuf::from(&stem), |ending| Path::new(&stem).with_added_extension(ending))
}

struct ImageRun<'a> {
    pipeline: &'a gst::Pipeline,
    files: &'a [PathBuf],
    /// Of their results.
    names: Vec<PathBuf>,
    /// Where those of each argument begin, in their order.
    starts: &'a [usize],
    job: &'a Job,
    setup: &'a Setup,
    screen: Option<Screen>,
    report: &'a Watched,
    lines: &'a JsonLines,
}

impl ImageRun<'_> {
    fn to_the_end(&self, name: &str) -> Result<Ended, Broken> {
        let started = self.pipeline.set_state(gst::State::Playing);
        let task = self.setup.display.one_of(name, self.job.place);
        let broken = AtomicUsize::new(0);
        let source = element(self.pipeline, "source").downcast::<gst_app::AppSrc>().expect("it is an appsrc");
        thread::scope(|scope| {
            let feeder = scope.spawn(|| {
                let fed = if started.is_ok() { self.feed(&source, &broken) } else { Ok(()) };
                let _ = source.end_of_stream(); // it has ended already where this fails
                fed
            });
            let taken = self.take(task, started.is_err());
            let _ = self.pipeline.set_state(gst::State::Null); // ends the feeder's wait
            let fed = feeder.join().unwrap_or_else(|_| Err("A thread has panicked.".into()));
            taken.and_then(|()| fed.map_err(Broken::unreadable))
        })?;
        let (report, broken) = (self.report.lock().clone(), broken.into_inner());
        let asked = self.asked();
        let signal = self.setup.signals.signal().filter(|_| report.frames as usize + broken < asked);
        match report.frames {
            0 if broken > 0 && signal.is_none() => {
                Err(Broken::unreadable(format!("None of {broken} images can be read.")))
            }
            0 => Err(Broken::stopped(name)),
            _ => Ok(Ended { report, signal, lost: None, broken, images: self.files.len() }),
        }
    }

    /// How many images are wanted.
    fn asked(&self) -> usize {
        let ends = self.starts.iter().skip(1).copied().chain([self.files.len()]);
        let counts = self.starts.iter().zip(ends).map(|(start, end)| end - start);
        counts.map(|count| self.setup.frames.map_or(count, |limit| count.min(limit as usize))).sum()
    }

    /// Reads the images, and gives them to the chain.
    fn feed(&self, source: &gst_app::AppSrc, broken: &AtomicUsize) -> Result<(), Failure> {
        let formats = chain::host_formats()?;
        let mut good = 0;
        for (number, file) in self.files.iter().enumerate() {
            if self.setup.signals.signal().is_some() || self.is_closed() {
                break;
            }
            if self.starts.binary_search(&number).is_ok() {
                good = 0;
            }
            if self.setup.frames.is_some_and(|limit| good >= limit) {
                continue;
            }
            let Setup { timeout, threads, signals, .. } = self.setup;
            let sample = match still::decode(file, &formats, Some(*timeout), threads, signals) {
                Err(_) if self.setup.signals.signal().is_some() => break,
                Ok(sample) => sample,
                Err(failure) => {
                    if let Some(table) = &self.setup.table {
                        table.end(&whole_path(file), Some(&failure.to_string()));
                    }
                    if self.files.len() == 1 {
                        return Err(failure);
                    }
                    self.setup.display.line(&format!("Warning: {failure}"));
                    broken.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            };
            let (Some(caps), Some(mut buffer)) = (sample.caps_owned(), sample.buffer_owned()) else { continue };
            drop(sample);
            let frame = buffer.make_mut();
            frame.set_pts(STEP * number as u64);
            frame.set_dts(gst::ClockTime::NONE);
            frame.set_duration(STEP);
            if source.push_sample(&gst::Sample::builder().caps(&caps).buffer(&buffer).build()).is_err() {
                return Ok(()); // it ends, and the bus says why
            }
            good += 1;
        }
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.screen.as_ref().is_some_and(|screen| screen.is_closed(&self.setup.display))
    }

    /// The last image is shown until the user closes its window.
    fn wait_for_window(&self) {
        let is_over = |screen: &Screen| screen.wait(&self.setup.display, Duration::from_millis(100));
        while self.setup.signals.signal().is_none() && self.screen.as_ref().is_some_and(|screen| !is_over(screen)) {}
    }

    /// Takes the frames with their results.
    fn take(&self, mut task: TaskProgress, failed: bool) -> Result<(), Broken> {
        let out = element(self.pipeline, "out").downcast::<gst_app::AppSink>().expect("it is an appsink");
        let bus = self.pipeline.bus().expect("a pipeline has a bus");
        let asked = self.asked();
        loop {
            let sample = out.try_pull_sample(gst::ClockTime::from_mseconds(if failed { 0 } else { 100 }));
            while let Some(message) = bus.pop() {
                match message.view() {
                    gst::MessageView::Error(error) => return Err(chain::sentence(error).into()),
                    _ => self.setup.said.show(&task, &message),
                }
            }
            if failed {
                return Err("The pipeline does not start.".into());
            }
            self.lines.check()?;
            self.setup.check_table()?;
            self.setup.check_objects(&self.report.lock())?;
            match sample {
                Some(sample) => {
                    self.write(&sample)?;
                    self.screen.iter().try_for_each(|screen| screen.show_image(&sample))?;
                }
                None if out.is_eos() => {
                    self.wait_for_window();
                    return Ok(());
                }
                None if self.setup.signals.signal().is_some() && self.report.lock().frames == 0 => return Ok(()),
                None => {}
            }
            let report = self.report.lock().clone();
            let part = report.frames as f64 / asked as f64;
            task.show(Some(part), || format!("{} images, {:.1} a second", report.frames, report.fps()));
        }
    }

    /// Writes the image with its results next to others.
    fn write(&self, sample: &gst::Sample) -> Result<(), Failure> {
        let Some(output) = &self.job.output else { return Ok(()) };
        let of_number = |number: usize| Some((self.files.get(number)?, self.names.get(number)?));
        let Some((file, name)) = sample.buffer().and_then(number).and_then(of_number) else { return Ok(()) };
        let to = if self.job.is_file { output.clone() } else { output.join(name) };
        let kind = if ending(&to) == "png" { "image/png" } else { "image/jpeg" };
        let failed = |why: &dyn std::fmt::Display| Failure::from(format!("Cannot write {}: {why}.", to.display()));
        if to.canonicalize().is_ok_and(|to| file.canonicalize().is_ok_and(|file| to == file)) {
            return Err(format!("{} would be overwritten; choose another name with --output.", to.display()).into());
        }
        let caps = gst::Caps::new_empty_simple(kind);
        let encoded = gst_video::convert_sample(sample, &caps, Some(gst::ClockTime::from_seconds(60)));
        let encoded = encoded.map_err(|error| failed(&error))?;
        let bytes = encoded.buffer().and_then(|buffer| buffer.map_readable().ok());
        let bytes = bytes.ok_or_else(|| failed(&"the encoder gave nothing"))?;
        let written = create_part(&to).and_then(|mut file| {
            let finished = file.write_all(&bytes).and_then(|()| finish_part(&to));
            finished.inspect_err(|_| drop(std::fs::remove_file(part(&to))))
        });
        written.map_err(|error| cannot_make(&to, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::scratch;

    /// By whichever path a folder is named, and however many sources there are.
    #[test]
    fn folders_know_which_sources_have_images_there() {
        let folder = scratch("images-folders");
        ["a", "b", "c"].iter().for_each(|name| std::fs::create_dir(folder.join(name)).unwrap());
        let files = |names: &[&str]| names.iter().map(|name| folder.join(name)).collect::<Vec<PathBuf>>();
        let sources = [files(&["a/1.jpg", "a/2.jpg", "b/1.jpg"]), files(&["a/../b/3.jpg"]), files(&["gone/1.jpg"])];
        let folders = ImageFolders::of(sources.iter().map(Vec::as_slice).enumerate());
        let has_others = |name: &str| [0, 1, 2].map(|source| folders.has_others(&folder.join(name), source));
        assert_eq!(has_others("a"), [false, true, true]);
        assert_eq!(has_others("c/../b"), [true; 3], "two have some");
        assert_eq!((has_others("c"), has_others("gone")), ([false; 3], [false; 3]));
    }

    #[test]
    fn results_of_one_name_do_not_take_the_place_of_each_other() {
        let given =
            ["a/1.jpg", "b/1.jpg", "b/1-2.jpg", "c/1.jpg", "a/x.webp", "a/x.webp.png", "b/n.o.PNG", "c/n.o.PNG"];
        let names = result_names(&given.map(PathBuf::from));
        let wanted = ["1.jpg", "1-3.jpg", "1-2.jpg", "1-4.jpg", "x.webp.png", "x.webp-2.png", "n.o.PNG", "n.o-2.PNG"];
        assert_eq!(names, wanted.map(PathBuf::from));
    }
}
