// SPDX-License-Identifier: MPL-2.0
//! What elements behind trtnms learn of the classes that objects can have: those of the models before it, and of its own.

use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gsttrt_core::device::Device;
use gsttrt_core::heads;
use gsttrt_core::model::ModelInfo;
use gsttrt_core::postprocess::KnownClasses;
use gsttrt_core::tensor::Dims;

use super::super::settings::NmsSettings;
use super::{NmsState, TrtNms, has_objects_of_others};
use crate::gst::classes_event::ClassesOfModels;
use crate::gst::meta::tensor::Payload;

impl TrtNms {
    /// Tells downstream which classes objects have, when that has changed. Of objects that come from other elements nothing
    /// is known.
    pub(super) fn tell_classes(&self, are_of_others: bool, state: &mut NmsState) {
        let Some(postprocessor) = state.postprocessor.as_ref().filter(|_| state.has_new_classes) else { return };
        if are_of_others && !state.has_told_of_classes {
            return;
        }
        let own = postprocessor.has_boxes().then(|| postprocessor.known_classes());
        let before = state.classes_before.iter().flat_map(|ClassesOfModels(models)| models).cloned();
        let classes = ClassesOfModels(before.chain(own).collect());
        if state.told_before_run.take().is_none_or(|told| told != classes) {
            self.obj().src_pad().push_event(classes.event());
        }
        (state.has_new_classes, state.has_told_of_classes) = (false, true);
    }

    /// Tells downstream what the file of a model on objects says of its classes, until it has run. It may never run, as there may be no
    /// objects for it, and what is to be hidden behind it would be seen if its classes were waited for.
    pub(super) fn tell_before_run(
        &self,
        settings: &NmsSettings,
        payload: &Payload,
        frame: &gst::BufferRef,
        state: &mut NmsState,
    ) {
        let is_due = state.postprocessor.is_none() && state.has_new_classes;
        let Some(ClassesOfModels(before)) = state.classes_before.as_ref().filter(|_| is_due) else { return };
        let own = match payload {
            // Without boxes before it, it has nothing to look into.
            _ if before.is_empty() && !has_objects_of_others(frame) => Some(Vec::new()),
            Payload::Output { model, .. } if !before.is_empty() => classes_of_file(settings, model),
            _ => return,
        };
        state.has_new_classes = false; // until it runs
        let Some(own) = own else { return };
        let classes = ClassesOfModels(before.iter().cloned().chain(own).collect());
        self.obj().src_pad().push_event(classes.event());
        state.has_told_of_classes = true;
        state.told_before_run = Some(classes);
    }
}

/// The classes of the objects that a model finds, by its file; none of a model without boxes. `None` where only its outputs tell.
fn classes_of_file(settings: &NmsSettings, model: &ModelInfo) -> Option<Vec<KnownClasses>> {
    let options = settings.options_for_model().ok()?;
    let labels = options.labels().ok()?.unwrap_or_else(|| model.labels.clone());
    let (_, height, width) = model.input_spec(None, 1, Device::Host).ok()?.chw();
    let mut hints = model.hints((width as u32, height as u32));
    hints.classes = (!labels.is_empty()).then_some(labels.len());
    hints.background = options.background_class;
    let chosen = options.head().ok()?;
    let is_open = |dims: &[i64]| dims.iter().skip(1).any(|&dim| dim == Dims::DYNAMIC);
    if chosen.is_none() && model.outputs.iter().any(|output| is_open(&output.dims)) {
        return None;
    }
    let (format, count) = heads::recognise_classes(chosen, &model.outputs, &hints).ok()?;
    match format.has_boxes() {
        true if labels.is_empty() => None,
        true => Some(vec![KnownClasses { labels, count }]),
        false => Some(Vec::new()),
    }
}
