// SPDX-License-Identifier: MPL-2.0
//! What trtnms will make of a model: its layout, and whether the labels fit.

use std::path::Path;

use gst::glib;
use gst::prelude::*;
use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::heads::{self, BackgroundClass, Decoder, HeadFormat, ModelHints, layout_file};
use gsttrt_core::model::ModelInfo;
use gsttrt_core::options::Choices;
use gsttrt_core::postprocess::options::AUTO;
use gsttrt_core::tensor::Dims;

/// What trtnms is told of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadSettings {
    /// `None` where it is to be recognised.
    pub layout: Option<&'static HeadFormat>,
    /// The key of the model that says so.
    key: &'static str,
    background: BackgroundClass,
}

/// Why a model cannot be used so.
pub struct UnfitHead {
    /// Which key of the model is wrong.
    pub key: &'static str,
    pub text: String,
    /// No frame changes it. Else what is open in the file may fit once it is known.
    pub is_certain: bool,
}

impl HeadSettings {
    /// Of a trtnms whose properties have been checked, and of the layout file of the model, if it has one.
    ///
    /// # Errors
    /// The layout file cannot be used, or there is a layout besides.
    pub fn of(nms: &gst::Element, file: Option<&Path>) -> Result<Self, Error> {
        let layout = nms.property::<Option<String>>("layout").unwrap_or_default();
        let background = nms.property_value("background-class");
        let word = glib::EnumValue::from_value(&background).map_or("", |(_, value)| value.nick());
        let named = Some(&*layout).filter(|layout| *layout != AUTO && !layout.is_empty());
        let layout = match (named, file) {
            (Some(layout), Some(file)) => {
                let what = format!("nms has layout={layout}, and layout-file is {}", file.display());
                return Err(Error::new(ErrorKind::Settings, what).remedy("Set one of them"));
            }
            (None, Some(file)) => Some(layout_file::of_file(file)?),
            (named, None) => named.and_then(|name| HeadFormat::of_name(name).ok()),
        };
        let background = BackgroundClass::of_word(word).unwrap_or_default();
        Ok(HeadSettings { layout, key: if file.is_some() { "layout-file" } else { "nms" }, background })
    }

    /// The head, and the number of its classes where that is known. `lines` are those of a label file.
    ///
    /// # Errors
    /// trtnms would refuse the model.
    pub fn find(
        &self,
        info: &ModelInfo,
        hints: ModelHints,
        lines: Option<usize>,
    ) -> Result<(&'static HeadFormat, Option<usize>), UnfitHead> {
        let task = info.check_task();
        let is_task = task.is_ok();
        let hints = ModelHints { background: self.background, ..hints };
        let found = task.and_then(|()| {
            let hints = ModelHints { classes: lines.or(hints.classes), ..hints.clone() };
            let found = heads::recognise_classes(self.layout, &info.outputs, &hints)?;
            // Where nothing is open, all can be known that is known with the first frame.
            if self.layout.is_some() && info.outputs.iter().all(|output| output.bytes().is_some()) {
                Decoder::new(self.layout, &info.outputs, &hints)?;
            }
            Ok(found)
        });
        found.map_err(|error| {
            // Names in the file of the model have not helped either where the layout is chosen.
            let without = ModelHints { classes: hints.classes.filter(|_| self.layout.is_none()), ..hints };
            let fits_without = || heads::recognise(self.layout, &info.outputs, &without).is_ok();
            let is_labels = is_task && lines.is_some() && fits_without();
            let is_open = |dims: &[i64]| dims.iter().skip(1).any(|&dim| dim == Dims::DYNAMIC);
            let is_known = info.outputs.iter().all(|output| !is_open(&output.dims));
            let key = match self.layout {
                _ if is_labels => "labels",
                Some(_) if is_task => self.key,
                _ => "file",
            };
            UnfitHead { key, text: error.message(), is_certain: is_labels || !is_task || is_known }
        })
    }
}
