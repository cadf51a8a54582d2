// SPDX-License-Identifier: MPL-2.0
//! What to look at: files, folders of images, globs, URIs, cameras, standard input.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use gsttrt_core::redact::redacted;

use super::pattern::{find, is_pattern};
use super::picture::{IMAGES, has_ending, is_image};
use super::{VideoAddress, numbered_camera, path_of, path_text, refuse_mistyped, stream};
use crate::failure::Failure;
use crate::model_options::check_file;
use crate::terminal::print_error;

/// Endings of files that hold videos, of those that people have next to their pictures.
const VIDEOS: [&str; 19] = [
    "mp4", "mkv", "mov", "avi", "webm", "ts", "m4v", "mpg", "mpeg", "mts", "m2ts", "vob", "mxf", "dav", "3gp", "wmv",
    "flv", "h264", "h265",
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

/// The sources that the arguments name; images that follow each other become one source. No two have the same name. `@list.txt` stands
/// for the lines of that file. A video or an image of a list may be gone: it is named among the results, and the others go on.
///
/// # Errors
/// What is not there, or is neither video nor image.
pub fn sources(arguments: &[OsString]) -> Result<Vec<InputSource>, Failure> {
    let mut sources = Vec::new();
    for (argument, is_listed) in listed(arguments)? {
        let (count, images) = (sources.len(), sources.last().map_or(0, InputSource::images));
        add(&mut sources, &argument, is_listed)?;
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

/// The arguments, and the lines of files in the place of these, with whether they are such a line.
fn listed(arguments: &[OsString]) -> Result<Vec<(OsString, bool)>, Failure> {
    let mut all = Vec::new();
    for argument in arguments {
        let list = argument.as_bytes().strip_prefix(b"@").map(|name| Path::new(OsStr::from_bytes(name)));
        match list.filter(|_| !Path::new(argument).exists()) {
            Some(list) => {
                let read = fs::read(list);
                let read = read.map_err(|error| {
                    format!("Cannot read the list of sources {}: {error}. Check its path.", list.display())
                })?;
                let lines = read.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
                all.extend(lines.map(|line| (OsStr::from_bytes(line).to_owned(), true)));
            }
            None => all.push((argument.clone(), false)),
        }
    }
    if all.is_empty() {
        return Err("The list of sources is empty.".into());
    }
    Ok(all)
}

fn add(sources: &mut Vec<InputSource>, argument: &OsStr, is_listed: bool) -> Result<(), Failure> {
    let path = Path::new(argument);
    // Where it is no text, it is a path and nothing else.
    let text = argument.to_str().unwrap_or_default();
    let found = fs::metadata(path);
    if text == "-" {
        sources.push(InputSource::Video { name: "stdin".into(), address: VideoAddress::Stdin });
    } else if let Some((scheme, rest)) = text.split_once("://") {
        match scheme.to_ascii_lowercase().as_str() {
            "file" => return add(sources, path_of(text)?.as_os_str(), is_listed),
            scheme => {
                let (name, address) = stream(scheme, rest)?;
                sources.push(InputSource::Video { name, address });
            }
        }
    } else if path.is_dir() {
        sources.push(InputSource::Images { name: stem(path), files: images_in(path, true)?, starts: vec![0] });
    } else if found.is_ok() || path.is_symlink() {
        add_file(sources, path);
    } else if is_pattern(argument) {
        add_pattern(sources, argument)?;
    } else if is_listed && (is_image(path) || has_ending(path, &VIDEOS)) {
        add_file(sources, path);
    } else if let Some(camera) = numbered_camera(text) {
        if !camera.exists() {
            return Err(format!("There is no camera {}. {}", camera.display(), cameras()).into());
        }
        add_file(sources, &camera);
    } else {
        refuse_mistyped(text)?;
        let remedy = if path.starts_with("/dev") { cameras() } else { "Check the path.".into() };
        return Err(match found {
            Err(error) if ![io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
                format!("Cannot read {}: {error}.", redacted(&path_text(path))).into()
            }
            _ => format!("There is no file {}. {remedy}", redacted(&path_text(path))).into(),
        });
    }
    Ok(())
}

/// What cannot be read is a source, too: it is named among the results, and the others go on.
fn add_file(sources: &mut Vec<InputSource>, path: &Path) {
    let is_device = fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device());
    if is_device && path.starts_with("/dev") && is_camera(path) {
        sources.push(InputSource::Video { name: stem(path), address: VideoAddress::Camera(path.into()) });
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
}

/// Why a path that was found cannot be read; `None` where it may be.
pub fn unreadable(path: &Path) -> Option<String> {
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            return Some("it is a link to a file that is not there".into());
        }
        Err(error) => return Some(error.to_string()),
        Ok(found) => found.file_type(),
    };
    match fs::read_dir(path) {
        Err(error) if found.is_dir() => Some(format!("what is in this folder cannot be listed, {error}")),
        Ok(_) => Some("it is a folder".into()),
        Err(_) if found.is_file() || found.is_fifo() => None,
        Err(_) => Some(
            format!("it is a device or a socket, and of those only cameras are read. {}", cameras())
                .trim_end_matches('.')
                .into(),
        ),
    }
}

/// The files that a pattern finds. Folders are left out, and that is said where nothing in them is found.
fn add_pattern(sources: &mut Vec<InputSource>, pattern: &OsStr) -> Result<(), Failure> {
    let shown = redacted(&path_text(pattern.as_ref()));
    let mut found = find(pattern).map_err(|error| format!("Cannot use the pattern {shown}: {error}."))?;
    found.sort_by_cached_key(|path| natural(path));
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = found.into_iter().partition(|path| fs::read_dir(path).is_ok());
    files.iter().for_each(|file| add_file(sources, file));
    let is_below = shown.split('/').any(|part| part == "**"); // what is in the folders is found, too
    match (folders.first(), files.is_empty()) {
        (None, true) => Err(format!("No file matches the pattern {shown}. Check its folder.").into()),
        (Some(first), is_alone) if is_alone || !is_below => {
            let these = if folders.len() == 1 { "a folder" } else { "folders" };
            let first = path_text(first);
            let how = format!("Give '{first}/*' for the files in it, or '{first}/**/*' for those below it, too.");
            if is_alone {
                return Err(format!("The pattern {shown} finds {these} and no file. {how}").into());
            }
            print_error(&format!("Warning: The pattern {shown} finds {these}, such as {first}: left out. {how}"));
            Ok(())
        }
        _ => Ok(()),
    }
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

/// The pictures that were given, the images of the folders, and those that patterns find.
pub fn pictures_in(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in given {
        if path.is_dir() {
            files.extend(images_in(path, false)?);
        } else if is_pattern(path.as_os_str()) && !path.exists() {
            files.extend(images_of(path)?);
        } else {
            check_file(path)?;
            if has_ending(path, &VIDEOS) {
                return Err(format!("{} is a video. Give pictures, such as some of its frames.", path.display()).into());
            }
            files.push(path.clone());
        }
    }
    Ok(files)
}

/// The images that a pattern finds, in the order of numbers in their names.
fn images_of(pattern: &Path) -> Result<Vec<PathBuf>, Failure> {
    let shown = path_text(pattern);
    let found = find(pattern.as_os_str()).map_err(|error| format!("Cannot use the pattern {shown}: {error}."))?;
    let mut images: Vec<PathBuf> = found.into_iter().filter(|path| is_image(path) && !path.is_dir()).collect();
    if images.is_empty() {
        return Err(format!("No image matches the pattern {shown}. Images end in {}.", IMAGES.join(", ")).into());
    }
    images.sort_by_cached_key(|path| natural(path));
    Ok(images)
}

/// Whether it is a file, or a link to nothing, whose name is told with what is wrong. A pipe would be waited for.
pub(super) fn is_file(path: &Path) -> bool {
    path.is_file() || path.is_symlink() && !path.exists()
}

/// The images of a folder, not of folders in it, in the order of numbers in their names. `takes_videos` is whether videos can be given
/// instead.
pub(super) fn images_in(folder: &Path, takes_videos: bool) -> Result<Vec<PathBuf>, Failure> {
    let shown = folder.display();
    let entries = fs::read_dir(folder).map_err(|error| format!("Cannot read the folder {shown}: {error}."))?;
    let files = entries.map(|entry| Ok(entry?.path())).filter(|path| path.as_ref().map_or(true, |path| is_file(path)));
    let files: Vec<PathBuf> =
        files.collect::<io::Result<_>>().map_err(|error| format!("Cannot read the folder {shown}: {error}."))?;
    let mut images: Vec<PathBuf> = files.iter().filter(|path| is_image(path)).cloned().collect();
    images.sort_by_cached_key(|path| natural(path));
    let instead = match takes_videos {
        true => format!(" Give videos one by one, such as '{}'.", folder.join("*.mp4").display()),
        false => String::new(),
    };
    let videos = files.iter().filter(|path| has_ending(path, &VIDEOS)).count();
    match (images.is_empty(), files.len()) {
        (false, _) => {
            if videos > 0 {
                let these = if videos == 1 { "A video is".into() } else { format!("{videos} videos are") };
                print_error(&format!("Warning: {these} left out of the folder {shown}: its images are read.{instead}"));
            }
            Ok(images)
        }
        (true, 0) => {
            let how = match takes_videos {
                true => format!("a video, or a pattern, such as '{}'", folder.join("**/*.mp4").display()),
                false => format!("or a pattern, such as '{}'", folder.join("**/*.jpg").display()),
            };
            Err(format!("The folder {shown} is empty, or has nothing but folders. Give one with images, {how}.").into())
        }
        (true, count) => {
            let found = if count == 1 { "1 file is" } else { "files are" };
            let what = format!("There is no image in the folder {shown}, whose {found} of other kinds");
            Err(format!("{what}. Images end in {}.{instead}", IMAGES.join(", ")).into())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arguments: &[&str]) -> Vec<String> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
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
    fn a_list_stands_for_its_lines() {
        gst::init().unwrap();
        let folder = crate::scratch::scratch("source-list");
        let list = folder.join("list.txt");
        fs::write(&list, "rtsp://camera/a\n\n  rtsp://camera/b c\r\n-").unwrap();
        let argument = format!("@{}", list.display());
        let live = |name: &str, path: &str| format!("{name}: rtsp://camera/{path} live true");
        assert_eq!(
            names(&[&argument, "rtsp://camera/d"]),
            [live("a", "a"), live("b-c", "b c"), "stdin: standard input live false".into(), live("d", "d")]
        );
        let refused = |argument: &str| sources(&[argument.into()]).unwrap_err().to_string();
        fs::write(&list, "/nowhere/gone.mp4\n").unwrap();
        assert_eq!(names(&[&argument]), ["gone: /nowhere/gone.mp4 live false"]);
        assert_eq!(refused("/nowhere/gone.mp4"), "There is no file /nowhere/gone.mp4. Check the path.");
        fs::write(&list, "/nowhere/gone\n").unwrap();
        assert_eq!(refused(&argument), "There is no file /nowhere/gone. Check the path.");
        fs::write(&list, "\n").unwrap();
        assert_eq!(refused(&argument), "The list of sources is empty.");
        fs::remove_file(&list).unwrap();
        assert!(refused(&argument).starts_with("Cannot read the list of sources "), "{}", refused(&argument));
    }

    #[test]
    fn numbers_are_in_their_order() {
        let mut files = ["b.jpg", "a10.jpg", "a9.jpg", "a010.jpg", "a.jpg"].map(PathBuf::from);
        files.sort_by_cached_key(|path| natural(path));
        assert_eq!(files, ["a9.jpg", "a010.jpg", "a10.jpg", "a.jpg", "b.jpg"].map(PathBuf::from));
    }
}
