// SPDX-License-Identifier: MPL-2.0
//! Execution providers: what computes a model, or those parts of it that it can.

use std::ffi::{CString, c_char};

use super::abi::{OrtFailure, OrtObject, OrtSessionOptions};
use super::library::OrtLibrary;
use crate::error::{Error, ErrorKind, Result};

/// One of the user's list, like `openvino:device_type=GPU`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionProvider {
    /// As in the list: `openvino` for `OpenVINOExecutionProvider`.
    name: String,
    options: Vec<(String, String)>,
}

/// The end of all names that the library has.
const SUFFIX: &str = "ExecutionProvider";

/// Reads a list like `openvino:device_type=GPU,cpu`. What one does not take goes to the next, and the CPU takes all.
///
/// # Errors
/// `Settings`, where there is none of that name in the library.
pub fn parse(text: &str, library: &OrtLibrary) -> Result<Vec<ExecutionProvider>> {
    let wrong = |cause: String| {
        let known: Vec<String> = library.providers().iter().map(|name| short(name)).collect();
        Error::new(ErrorKind::Settings, format!("execution-providers={text} cannot be used"))
            .cause(cause)
            .remedy(format!("{} here has {}; others are in other builds of it", library.name(), known.join(", ")))
    };
    let read = |entry: &str| {
        let mut parts = entry.trim().split(':');
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        if name == "tensorrt" {
            return Err(wrong("TensorRT is a backend of its own: backend=tensorrt".into()));
        }
        if !library.providers().iter().any(|known| short(known) == name) {
            return Err(wrong(format!("there is no “{name}” in this library")));
        }
        let option = |part: &str| match part.split_once('=') {
            Some((key, value)) => Ok((key.to_string(), value.to_string())),
            None => Err(wrong(format!("“{part}” of {name} is not key=value"))),
        };
        let options = parts.map(option).collect::<Result<_>>()?;
        Ok(ExecutionProvider { name, options })
    };
    text.split(',').filter(|entry| !entry.trim().is_empty()).map(read).collect()
}

/// `OpenVINOExecutionProvider` as users write it.
fn short(name: &str) -> String {
    name.strip_suffix(SUFFIX).unwrap_or(name).to_ascii_lowercase()
}

impl ExecutionProvider {
    /// Adds it to those of a session.
    ///
    /// # Errors
    /// `Library`, where what it needs is not there.
    pub fn append(&self, library: &OrtLibrary, options: &OrtObject<OrtSessionOptions>) -> Result<()> {
        let missing = |failure: OrtFailure| {
            Error::new(ErrorKind::Library, format!("The execution provider {} does not start", self.name))
                .cause(failure.0)
                .remedy("Install the driver and the libraries that it needs, or leave it out of execution-providers")
        };
        match self.name.as_str() {
            "cpu" => Ok(()), // always the last
            "cuda" => self.append_cuda(library, options).map_err(missing),
            _ => self.append_by_name(library, options).map_err(missing),
        }
    }

    fn append_by_name(
        &self,
        library: &OrtLibrary,
        options: &OrtObject<OrtSessionOptions>,
    ) -> std::result::Result<(), OrtFailure> {
        let known = library.providers().iter().find(|known| short(known) == self.name);
        let own = known.map_or(self.name.as_str(), |known| known.strip_suffix(SUFFIX).unwrap_or(known));
        // It wants these otherwise than it lists them.
        let name = match self.name.as_str() {
            "xnnpack" | "azure" => self.name.to_ascii_uppercase(),
            _ => own.to_string(),
        };
        let (name, texts) = (text(&name), OptionTexts::new(&self.options));
        // SAFETY: the texts live during the call.
        unsafe {
            let (keys, values) = (texts.keys.as_ptr(), texts.values.as_ptr());
            let append = library.api.append_execution_provider;
            library.api.check(append(options.as_ptr(), name.as_ptr(), keys, values, texts.keys.len()))
        }
    }

    fn append_cuda(
        &self,
        library: &OrtLibrary,
        options: &OrtObject<OrtSessionOptions>,
    ) -> std::result::Result<(), OrtFailure> {
        let (api, texts) = (&library.api, OptionTexts::new(&self.options));
        // SAFETY: the functions make and release such objects; the texts live during the calls.
        unsafe {
            let cuda = api.make(api.release_cuda_provider_options, |made| (api.create_cuda_provider_options)(made))?;
            let (keys, values) = (texts.keys.as_ptr(), texts.values.as_ptr());
            api.check((api.update_cuda_provider_options)(cuda.as_ptr(), keys, values, texts.keys.len()))?;
            api.check((api.append_execution_provider_cuda)(options.as_ptr(), cuda.as_ptr()))
        }
    }
}

/// Options as the library takes them.
struct OptionTexts {
    _owned: Vec<CString>,
    keys: Vec<*const c_char>,
    values: Vec<*const c_char>,
}

impl OptionTexts {
    fn new(options: &[(String, String)]) -> Self {
        let owned: Vec<CString> = options.iter().flat_map(|(key, value)| [text(key), text(value)]).collect();
        let every = |first: usize| owned.iter().skip(first).step_by(2).map(|text| text.as_ptr()).collect();
        OptionTexts { keys: every(0), values: every(1), _owned: owned }
    }
}

/// Texts with a zero byte end there.
pub fn text(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).expect("it has no zero byte")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short() {
        assert_eq!(short("OpenVINOExecutionProvider"), "openvino");
        assert_eq!(short("CPUExecutionProvider"), "cpu");
        assert_eq!(text("a\0b").as_c_str(), c"a");
    }
}
