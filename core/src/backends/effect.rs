// SPDX-License-Identifier: MPL-2.0
//! What is set, and has no effect with the backend that runs the model.

use super::options::{BackendOption, Options};
use super::{BACKENDS, Backend, all_options};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::options::OptionValue;

/// A warning that names the options without effect, if there are any. `for_gpus` are those that are set of the ones that every
/// backend on a GPU heeds.
///
/// # Errors
/// `Settings`, where one of them must have its effect.
pub fn without_effect(options: &Options, for_gpus: &[&'static str], backend: &dyn Backend) -> Result<Option<Error>> {
    let ignored: Vec<&BackendOption> =
        all_options().filter(|option| options.has(option) && !backend.has(option)).collect();
    let for_gpus = if backend.device(options) == Device::Host { for_gpus } else { &[] };
    let heeds = |other: &&dyn Backend| {
        ignored.iter().any(|option| other.has(option)) || !for_gpus.is_empty() && other.device(options) == Device::Cuda
    };
    let owners: Vec<&dyn Backend> = BACKENDS.iter().copied().filter(heeds).collect();
    for option in &ignored {
        if let OptionValue::Choice(value) = options.get(option)
            && option.insists.contains(&value)
        {
            return Err(not_heeded(option, value, &owners, backend));
        }
    }
    let names: Vec<&str> = ignored.iter().map(|option| option.spec.name).chain(for_gpus.iter().copied()).collect();
    Ok((!names.is_empty()).then(|| ignored_options(&names, &owners, backend)))
}

fn not_heeded(option: &BackendOption, value: &str, owners: &[&dyn Backend], backend: &dyn Backend) -> Error {
    let name = option.spec.name;
    let what = format!("{name}={value} needs {}, and the model runs on {}", titles(owners), backend.title());
    Error::new(ErrorKind::Settings, what).remedy(format!("Set {name}={}, or {}", option.default, to_see_why(owners)))
}

fn ignored_options(names: &[&str], owners: &[&dyn Backend], backend: &dyn Backend) -> Error {
    let one = names.len() == 1;
    let (has, they, belong) = if one { ("has", "it", "belongs") } else { ("have", "they", "belong") };
    Error::new(ErrorKind::Settings, format!("{} {has} no effect", names.join(", ")))
        .cause(format!("the model runs on {}, and {they} {belong} to {}", backend.title(), titles(owners)))
        .remedy(format!("Set {}, or leave what is named here unset", to_see_why(owners)))
}

fn titles(owners: &[&dyn Backend]) -> String {
    owners.iter().map(|owner| owner.title()).collect::<Vec<_>>().join(" or ")
}

fn to_see_why(owners: &[&dyn Backend]) -> String {
    let set = owners.iter().map(|owner| format!("backend={} to see why {} does not run", owner.name(), owner.title()));
    set.collect::<Vec<_>>().join(", or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::{rten, tensorrt};

    fn with(values: &[(&str, &str)]) -> Options {
        let mut options = Options::default();
        for &(name, value) in values {
            let option = all_options().find(|option| option.spec.name == name).unwrap();
            options.set(option, option.spec.parse(value).unwrap());
        }
        options
    }

    #[test]
    fn options_that_a_backend_ignores_are_named() {
        let said = |values: &[(&str, &str)], for_gpus: &[&'static str], backend: &dyn Backend| {
            without_effect(&with(values), for_gpus, backend).unwrap().map(|warning| warning.message())
        };
        assert_eq!(said(&[("threads", "2")], &[], &rten::Rten), None);
        assert_eq!(said(&[("precision", "fp16")], &["cuda-device-id"], &tensorrt::TensorRt), None);
        let text = said(&[("precision", "fp16")], &["cuda-device-id"], &rten::Rten).unwrap();
        assert!(
            text.starts_with("precision, cuda-device-id have no effect: the model runs on the CPU (rten)"),
            "{text}"
        );
        assert!(text.contains("Set backend=tensorrt to see why TensorRT does not run"), "{text}");
        let text = said(&[("threads", "2")], &[], &tensorrt::TensorRt).unwrap();
        assert!(text.contains("threads has no effect") && text.contains("backend=rten"), "{text}");
        let text = said(&[], &["upload"], &rten::Rten).unwrap();
        assert!(text.starts_with("upload has no effect") && text.contains("belongs to TensorRT"), "{text}");
    }

    #[test]
    fn an_option_that_must_have_its_effect_is_an_error() {
        let error = without_effect(&with(&[("cuda-graph", "on")]), &[], &rten::Rten).unwrap_err();
        assert!(error.message().starts_with("cuda-graph=on needs TensorRT, and the model runs on the CPU"), "{error}");
        assert!(without_effect(&with(&[("cuda-graph", "off")]), &[], &rten::Rten).unwrap().is_some());
    }
}
