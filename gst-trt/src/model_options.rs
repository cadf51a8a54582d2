// SPDX-License-Identifier: MPL-2.0
//! The model, what is known of it in addition to its file, and the options that sessions have in common with the elements.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use gsttrt_core::backends::options::Options;
use gsttrt_core::backends::{BACKENDS, BackendPreference, PREFERENCE, Placement, all_options};
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::device::Device;
use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::model::ModelFile;
use gsttrt_core::options::{OptionKind, name_and_value};
use gsttrt_core::redact::redacted;
use gsttrt_core::session::{PostprocessOptions, SessionOptions, parse_options};

use crate::assignments::assignments;
use crate::failure::Failure;

/// The values of `backend`, as of trtinfer.
pub fn backend_words() -> impl Iterator<Item = &'static str> {
    let choices = match &PREFERENCE.kind {
        OptionKind::Choice { choices, .. } => *choices,
        _ => &[],
    };
    choices.iter().map(|choice| choice.word)
}

pub fn backends() -> PossibleValuesParser {
    PossibleValuesParser::new(backend_words())
}

#[derive(Args, Clone, Debug, Default)]
pub struct ModelOptions {
    /// The ONNX model, the TensorRT engine, or the address of a model on a server, like grpc://host:8001/model
    #[arg(short, long, value_name = "FILE")]
    pub model: PathBuf,
    /// Class names, one a line [default: names in the model file]
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// What runs the model [default: auto, the GPU if it can]
    #[arg(long, value_name = "NAME", value_parser = backends())]
    pub backend: Option<String>,
}

impl ModelOptions {
    /// Looks for the files before anything is started.
    pub fn check(&self) -> Result<(), Failure> {
        check_model(&self.model)?;
        self.labels.iter().try_for_each(|labels| check_file(labels))
    }

    /// What the backend lacks on this machine; nothing without one, which is the best that is here. `infer` are further properties of
    /// trtinfer, such as where its libraries are.
    pub fn missing(&self, infer: &str) -> Option<Error> {
        let word = backend_words().find(|word| self.backend.as_deref() == Some(word))?;
        Placement::new(&self.model, word.into(), backend_options(infer), || Context::primary(0)).err()
    }

    /// Whether the model will take tensors of the CPU; false where nothing can run it. `infer` are further properties of trtinfer.
    pub fn is_for_cpu(&self, infer: &str) -> bool {
        let preference = backend_words().find(|word| self.backend.as_deref() == Some(word));
        let preference = preference.map_or(BackendPreference::Auto, BackendPreference::from);
        // A context is wanted for a GPU only.
        let no_context = || Err(Error::new(ErrorKind::Library, "A GPU runs the model"));
        Placement::new(&self.model, preference, backend_options(infer), no_context).is_ok()
    }

    /// Whether the backend that is named, if one is, takes tensors of a GPU.
    pub fn may_be_for_gpu(&self, infer: &str) -> bool {
        let Some(name) = self.backend.as_deref() else { return true };
        let named = BACKENDS.iter().find(|backend| backend.name() == name);
        named.map_or(name == "auto", |backend| backend.device(&backend_options(infer)) == Device::Cuda)
    }
}

/// Those among properties of trtinfer that are options of backends. What cannot be read the element refuses.
fn backend_options(infer: &str) -> Options {
    let mut options = Options::default();
    for (name, value) in assignments(infer) {
        let name = infer[name].replace('_', "-");
        let Some(option) = all_options().find(|option| option.spec.name == name) else { continue };
        if let Ok(value) = option.spec.parse(infer[value].trim_matches(['"', '\''])) {
            options.set(option, value);
        }
    }
    options
}

/// A model is a file, or has an address on a server.
pub fn check_model(path: &Path) -> Result<(), Failure> {
    if !is_on_server(path) {
        return check_file(path);
    }
    let no_context = || Err(Error::new(ErrorKind::Library, "A server runs the model"));
    Placement::new(path, BackendPreference::Auto, Options::default(), no_context)?;
    Ok(())
}

/// Whether that is the address of a model on a server, and no path.
pub fn is_on_server(path: &Path) -> bool {
    ModelFile::new(path).is_on_server()
}

/// A path that is no file has an error of its own.
pub fn check_file(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    if path.is_file() {
        Ok(())
    } else if path.is_dir() {
        Err(format!("{shown} is a folder. Give a file.").into())
    } else if path.to_string_lossy().contains("://") {
        Err(format!("{} is a URI. Give a file.", redacted(&path.to_string_lossy())).into())
    } else if path.exists() {
        Err(format!("{shown} is a device or a pipe. Give a file.").into())
    } else {
        Err(format!("There is no file {shown}. Check the path.").into())
    }
}

/// The options of texts like `precision=fp16 optimization-level=5`, in the quotes of a shell, with those in `own`,
/// which are one option each.
pub fn session_options(own: &[String], texts: &[&str]) -> Result<(SessionOptions, PostprocessOptions), Failure> {
    let mut words = own.to_vec();
    for text in texts {
        words.extend(words_of(text)?);
    }
    Ok(parse_options(words.iter().map(String::as_str))?)
}

/// The words of a text in the quotes of a shell.
fn words_of(text: &str) -> Result<Vec<String>, Failure> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let parsed = gst::glib::shell_parse_argv(text);
    let parsed = parsed.map_err(|error| format!("Cannot read the options “{text}”: {error}."))?;
    Ok(parsed.into_iter().map(|word| word.to_string_lossy().into_owned()).collect())
}

/// The options that a subcommand makes use of, where these are not all.
pub struct HeededOptions {
    /// How the subcommand is called.
    pub subcommand: &'static str,
    /// Why others have no effect, behind its name.
    pub which: &'static str,
    /// Whether the option of that name has an effect.
    pub heeds: fn(&str) -> bool,
}

impl HeededOptions {
    /// The same as [`session_options`]. An option without effect is refused by its name: it would be believed to count.
    pub fn read(&self, own: &[String], text: &str) -> Result<SessionOptions, Failure> {
        let (options, _) = session_options(own, &[text])?;
        let mut ignored: Vec<String> = Vec::new();
        for word in words_of(text)? {
            let (name, _) = name_and_value(&word)?;
            if !(self.heeds)(name) && !ignored.iter().any(|known| known == name) {
                ignored.push(name.to_string());
            }
        }
        let (has, them) = match ignored.len() {
            0 => return Ok(options),
            1 => ("has", "it"),
            _ => ("have", "them"),
        };
        let (names, HeededOptions { subcommand, which, .. }) = (ignored.join(", "), self);
        Err(format!("{names} {has} no effect in gst-trt {subcommand}, which {which}. Leave {them} out.").into())
    }
}

/// Width and height like `1920x1080`.
pub fn parse_size(text: &str) -> Result<(u32, u32), String> {
    let size = text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    size.filter(|(width, height)| (1..=16384).contains(width) && (1..=16384).contains(height))
        .ok_or_else(|| "give width and height from 1 to 16384, like 1920x1080".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_without_effect_are_refused_by_name() {
        let heeds = |name: &str| ["threads", "frames"].contains(&name);
        let heeded = HeededOptions { subcommand: "ask", which: "runs nothing", heeds };
        let said = |text: &str| heeded.read(&[], text).map_err(|failure| failure.to_string());
        assert_eq!(said("threads=2 'frames=8'").map(|options| options.frames), Ok(8));
        assert_eq!(said(" ").map(|options| options.frames), Ok(0));
        for (text, says) in [
            ("threads=2 interval=3", "interval has no effect in gst-trt ask, which runs nothing. Leave it out."),
            (
                "mean=0.5 interval=3 interval=4 top-k=1",
                "mean, interval, top-k have no effect in gst-trt ask, which runs nothing. Leave them out.",
            ),
        ] {
            assert_eq!(said(text).map(drop), Err(says.to_string()));
        }
        let unknown = said("colour=red interval=3").unwrap_err();
        assert!(unknown.contains("There is no option “colour”"), "{unknown}");
    }

    #[test]
    fn tensors_for_a_server_are_where_the_properties_say() {
        let model = |backend: Option<&str>| ModelOptions {
            model: "grpc://localhost/m".into(),
            backend: backend.map(String::from),
            ..ModelOptions::default()
        };
        for (infer, on_gpu) in [
            ("", false),
            ("shared-memory=on threads=2", false),
            ("threads=2 shared-memory=cuda", true),
            ("shared_memory=\"cuda\"", true),
            ("shared-memory=gpu", false), // which trtinfer refuses
        ] {
            assert_eq!(
                [None, Some("auto"), Some("kserve")].map(|name| model(name).is_for_cpu(infer)),
                [!on_gpu; 3],
                "{infer}"
            );
            assert_eq!(model(Some("kserve")).may_be_for_gpu(infer), on_gpu, "{infer}");
            let others = [None, Some("auto"), Some("tensorrt"), Some("cpu"), Some("rten")];
            let may = others.map(|name| model(name).may_be_for_gpu(infer));
            assert_eq!(may, [true, true, true, false, false], "{infer}");
        }
    }
}
