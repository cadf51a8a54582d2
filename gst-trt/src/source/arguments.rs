// SPDX-License-Identifier: MPL-2.0
//! What to look at: files, folders of images, globs, URIs, cameras, standard input.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use gsttrt_core::redact::redacted;

use super::picture::{IMAGES, has_ending, is_image};
use super::{VideoAddress, numbered_camera, path_of, refuse_mistyped, stream};
use crate::failure::Failure;
use crate::terminal::print_error;

/// Endings of files that hold videos, of those that people have next to their pictures.
const VIDEOS: [&str; 16] = [
    "mp4", "mkv", "mov", "avi", "webm", "ts", "m4v", "mpg", "mpeg", "mts", "m2ts", "3gp", "wmv", "flv", "h264", "h265",
];

/// Something to look at, with a name for the files of its results.
#[derive(Debug)]
pub enum InputSource {
    /// Pictures of any size, each in a file.
    Images {
        name: String,
        files: Vec<PathBuf>,
        /// Where those of each argument begin.
        starts: Vec<usize>,
    },
    Video {
        name: String,
        address: VideoAddress,
    },
}

impl InputSource {
    fn images(&self) -> usize {
        match self {
            InputSource::Images { files, .. } => files.len(),
            InputSource::Video { .. } => 0,
        }
    }
}

/// The sources that the arguments name; images that follow each other become one source. No two have the same name.
///
/// # Errors
/// What is not there, or is neither video nor image.
pub fn sources(arguments: &[String]) -> Result<Vec<InputSource>, Failure> {
    let mut sources = Vec::new();
    for argument in arguments {
        let (count, images) = (sources.len(), sources.last().map_or(0, InputSource::images));
        add(&mut sources, argument)?;
        // Images of this argument that follow those of the one before.
        if let Some(InputSource::Images { starts, files, .. }) = sources.get_mut(count.wrapping_sub(1))
            && files.len() > images
        {
            starts.push(images);
        }
    }
    let mut used = BTreeMap::new();
    for source in &mut sources {
        let (InputSource::Images { name, .. } | InputSource::Video { name, .. }) = source;
        let count = used.entry(name.clone()).or_insert(0u32);
        *count += 1;
        if *count > 1 {
            name.push_str(&format!("-{count}"));
        }
    }
    Ok(sources)
}

fn add(sources: &mut Vec<InputSource>, argument: &str) -> Result<(), Failure> {
    let path = Path::new(argument);
    if argument == "-" {
        sources.push(InputSource::Video { name: "stdin".into(), address: VideoAddress::Stdin });
    } else if let Some((scheme, rest)) = argument.split_once("://") {
        match scheme.to_ascii_lowercase().as_str() {
            "file" => return add(sources, &path_of(argument)?),
            scheme => {
                let (name, address) = stream(scheme, rest)?;
                sources.push(InputSource::Video { name, address });
            }
        }
    } else if path.is_dir() {
        sources.push(InputSource::Images { name: stem(path), files: images_in(path)?, starts: vec![0] });
    } else if let Ok(found) = fs::metadata(path) {
        add_file(sources, path, found.file_type())?;
    } else if argument.contains(['*', '?', '[']) {
        for file in glob(argument)? {
            let kind = fs::metadata(&file).map_err(|error| format!("Cannot read {}: {error}.", file.display()))?;
            add_file(sources, &file, kind.file_type())?;
        }
    } else if let Some(camera) = numbered_camera(argument) {
        let found = fs::metadata(&camera);
        let found = found.map_err(|_| format!("There is no camera {}. {}", camera.display(), cameras()))?;
        add_file(sources, &camera, found.file_type())?;
    } else {
        refuse_mistyped(argument)?;
        let cameras = if argument.starts_with("/dev/") { format!(" {}", cameras()) } else { String::new() };
        return Err(format!("There is no file {}.{cameras}", redacted(argument)).into());
    }
    Ok(())
}

fn add_file(sources: &mut Vec<InputSource>, path: &Path, kind: fs::FileType) -> Result<(), Failure> {
    let shown = path.display();
    if kind.is_char_device() && path.starts_with("/dev") && is_camera(path) {
        sources.push(InputSource::Video { name: stem(path), address: VideoAddress::Camera(path.into()) });
    } else if kind.is_dir() {
        return Err(format!("{shown} is a folder among the files that the pattern finds. Give it by its name.").into());
    } else if !kind.is_file() && !kind.is_fifo() {
        return Err(format!("{shown} is a device, and only cameras are read. {}", cameras()).into());
    } else if is_image(path) {
        match sources.last_mut() {
            Some(InputSource::Images { name, files, .. }) => {
                files.push(path.into());
                let folder = path.canonicalize().ok().and_then(|path| Some(path.parent()?.to_path_buf()));
                *name = folder.map_or_else(|| name.clone(), |folder| stem(&folder));
            }
            _ => sources.push(InputSource::Images { name: stem(path), files: vec![path.into()], starts: vec![0] }),
        }
    } else {
        sources.push(InputSource::Video { name: stem(path), address: VideoAddress::File(path.into()) });
    }
    Ok(())
}

/// The name without its folder and its ending.
fn stem(path: &Path) -> String {
    let whole = path.canonicalize();
    let name = whole.as_deref().unwrap_or(path).file_stem().or(path.file_stem());
    name.map_or_else(|| "detected".into(), |name| name.to_string_lossy().into_owned())
}

fn is_camera(path: &Path) -> bool {
    let target = path.canonicalize().unwrap_or_else(|_| path.into()); // /dev/v4l/by-id has links
    target.file_name().is_some_and(|name| name.to_string_lossy().starts_with("video"))
}

/// Which cameras there are, in a sentence.
fn cameras() -> String {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| is_camera(path)).collect();
    found.sort_by_cached_key(|path| natural(path));
    let found: Vec<String> = found.iter().map(|path| path.display().to_string()).collect();
    match found.as_slice() {
        [] => "Cameras are /dev/video0 and so on; there is none.".into(),
        found => format!("Cameras are /dev/video0 and so on; there are: {}.", found.join(", ")),
    }
}

/// The images of a folder, not of folders in it, in the order of numbers in their names.
pub fn images_in(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let shown = folder.display();
    let entries = fs::read_dir(folder).map_err(|error| format!("Cannot read the folder {shown}: {error}."))?;
    let files: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()).collect();
    let mut images: Vec<PathBuf> = files.iter().filter(|path| is_image(path)).cloned().collect();
    images.sort_by_cached_key(|path| natural(path));
    let videos = files.iter().filter(|path| has_ending(path, &VIDEOS)).count();
    match (images.is_empty(), files.len()) {
        (false, _) => {
            if videos > 0 {
                let these = if videos == 1 { "A video is".into() } else { format!("{videos} videos are") };
                let how = format!("Give videos one by one, such as '{shown}/*.mp4'.");
                print_error(&format!("Warning: {these} left out of the folder {shown}: its images are read. {how}"));
            }
            Ok(images)
        }
        (true, 0) => Err(format!("The folder {shown} is empty. Give one with images, or a video.").into()),
        (true, count) => {
            let found = if count == 1 { "1 file is" } else { "files are" };
            let what = format!("There is no image in the folder {shown}, whose {found} of other kinds");
            let kinds = IMAGES.join(", ");
            Err(format!("{what}. Images end in {kinds}; give videos one by one, such as '{shown}/*.mp4'.").into())
        }
    }
}

/// A key by which 2.jpg comes before 10.jpg.
fn natural(path: &Path) -> Vec<(u128, String)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut parts = vec![(0, String::new())];
    let mut digits = String::new();
    for c in name.chars() {
        if c.is_ascii_digit() && digits.len() < 30 {
            digits.push(c);
            continue;
        }
        if !digits.is_empty() {
            parts.push((digits.parse().unwrap_or(u128::MAX), String::new()));
            digits.clear();
        }
        parts.last_mut().expect("it is never empty").1.push(c);
    }
    if !digits.is_empty() {
        parts.push((digits.parse().unwrap_or(u128::MAX), String::new()));
    }
    parts.push((0, name));
    parts
}

fn glob(pattern: &str) -> Result<Vec<PathBuf>, Failure> {
    let matches = glob::glob(pattern).map_err(|error| format!("Cannot use the pattern {pattern}: {error}."))?;
    let mut files: Vec<PathBuf> = matches.filter_map(Result::ok).collect();
    files.sort_by_cached_key(|path| natural(path));
    if files.is_empty() { Err(format!("No file matches the pattern {pattern}.").into()) } else { Ok(files) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arguments: &[&str]) -> Vec<String> {
        let arguments: Vec<String> = arguments.iter().map(|argument| argument.to_string()).collect();
        let name = |source: InputSource| match source {
            InputSource::Images { name, files, .. } => format!("{name}: {} images", files.len()),
            InputSource::Video { name, address } => format!("{name}: {} live {}", address.shown(), address.is_live()),
        };
        sources(&arguments).unwrap().into_iter().map(name).collect()
    }

    #[test]
    fn addresses_are_known_by_their_form() {
        gst::init().unwrap();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert_eq!(
            names(&["-", file, &format!("file://{file}"), "rtsp://me:secret@camera:554/live/one?x=1"]),
            [
                "stdin: standard input live false".to_string(),
                format!("Cargo: {file} live false"),
                format!("Cargo-2: {file} live false"),
                "one: rtsp://***@camera:554/live/one?x=1 live true".to_string(),
            ]
        );
        assert_eq!(names(&["rtsp://camera"]), ["camera: rtsp://camera live true"]);
        assert_eq!(names(&["RTSP://Camera/A"]), ["A: rtsp://Camera/A live true"]);
        assert_eq!(names(&[&format!("FILE://{file}")]), [format!("Cargo: {file} live false")]);
        assert_eq!(names(&["rtsp://me:p%2Fw@host/"]), ["host: rtsp://***@host/ live true"]);
        assert_eq!(names(&["rtsp://me:5/w@host/a"]), ["a: rtsp://***@host/a live true"]);
        assert_eq!(names(&["rtsp://host/user=me&password=x&channel=1"]), ["user----: rtsp://host/user=*** live true"]);
    }

    #[test]
    fn numbers_are_in_their_order() {
        let mut files = ["b.jpg", "a10.jpg", "a9.jpg", "a010.jpg", "a.jpg"].map(PathBuf::from);
        files.sort_by_cached_key(|path| natural(path));
        assert_eq!(files, ["a9.jpg", "a010.jpg", "a10.jpg", "a.jpg", "b.jpg"].map(PathBuf::from));
    }
}
