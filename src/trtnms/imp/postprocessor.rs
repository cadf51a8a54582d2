// SPDX-License-Identifier: MPL-2.0
//! How outputs get their postprocessor: one for each model, with the settings of the moment.

use std::sync::Arc;

use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gsttrt_core::backends::Interrupted;
use gsttrt_core::backends::batcher::PendingOutput;
use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::image::geometry::Letterbox;
use gsttrt_core::model::ModelInfo;
use gsttrt_core::postprocess::{PostprocessOptions, Postprocessor};
use gsttrt_core::tensor::{Tensor, Tensors};
use smallvec::SmallVec;

use super::super::objects::ObjectResults;
use super::super::settings::NmsSettings;
use super::{CAT, NmsState, TrtNms};
use crate::gst::meta::detection;
use crate::gst::meta::tensor::{ModelInputs, Payload, Tiles};
use crate::gst::report::Report;

impl TrtNms {
    /// The outputs of each picture with its place in the frame, once they are there, and the postprocessor for them.
    /// None if trtinfer skipped the frame.
    pub(super) fn prepare_outputs<'a>(
        &self,
        state: &mut NmsState,
        settings: &NmsSettings,
        payload: &'a Arc<Payload>,
        frame: &gst::BufferRef,
    ) -> Result<SmallVec<[(&'a Tensors, Letterbox); 1]>, Interrupted> {
        let Payload::Output { outputs, inputs, model } = &**payload else { return Ok(SmallVec::new()) };
        let (size, source) = (state.renderer.size(), &inputs.source);
        state.path.check_frame(self.obj().sink_pad(), frame, state.renderer.info(), source)?;
        let prepare = |(outputs, letterbox): (&'a PendingOutput, &Letterbox)| {
            Ok((outputs.wait(&self.waits)?, letterbox.scaled(source.size, size)))
        };
        let found = outputs.iter().zip(inputs.letterboxes()).map(prepare);
        let found = found.collect::<Result<SmallVec<[(&'a Tensors, Letterbox); 1]>, Interrupted>>()?;
        if state.postprocessor.as_ref().is_some_and(|postprocessor| !std::ptr::eq(postprocessor.model(), &**model)) {
            state.of_objects = ObjectResults::default(); // those of another model
        }
        let Some(&(first, letterbox)) = found.first() else { return Ok(found) };
        if let Some(memory) = first.first().and_then(Tensor::device) {
            self.cuda.follow(memory.context(), settings.cuda_device_id)?;
        }
        let NmsState { postprocessor, names, renderer, without_effect, has_new_classes, .. } = state;
        let options_changed = match postprocessor {
            Some(postprocessor) if postprocessor.matches(model, first, &letterbox) => {
                self.adjust(postprocessor, settings.options.clone().with_head_of(postprocessor.options()))
            }
            _ => {
                let options = settings.options_for_model()?;
                *names = detection::LabelQuarks::default();
                renderer.labels_change();
                *postprocessor = Some(self.postprocessor(options, model, first, &letterbox, inputs)?);
                *has_new_classes = true;
                true
            }
        };
        if options_changed && let Some(postprocessor) = postprocessor {
            let warning = postprocessor.without_effect(matches!(inputs.tiles, Tiles::Slices));
            warning.iter().filter(|_| warning != *without_effect).for_each(|warning| self.obj().post_warning(warning));
            *without_effect = warning;
        }
        Ok(found)
    }

    fn postprocessor(
        &self,
        options: PostprocessOptions,
        model: &Arc<ModelInfo>,
        tensors: &[Tensor],
        letterbox: &Letterbox,
        inputs: &ModelInputs,
    ) -> Result<Postprocessor, Error> {
        let postprocessor = Postprocessor::new(options, model, tensors, letterbox)?;
        let layout = postprocessor.decoder.format();
        gst::info!(CAT, imp = self, "{} is {layout}: {}", model.path.display(), layout.expects());
        if let Some(path) = &postprocessor.options().label_file
            && !model.labels.is_empty()
            && model.labels != postprocessor.labels
        {
            let note =
                format!("The names of classes are those in {}, not those in {}", path.display(), model.path.display());
            self.obj().post_info(&Error::new(ErrorKind::Settings, note));
        }
        let transform = &inputs.transform;
        postprocessor.hints(transform, inputs.is_normalised).for_each(|hint| self.obj().post_info(&hint));
        if let Some(usual) = postprocessor.transform_mismatch(transform) {
            let warning = Error::new(
                ErrorKind::WrongType,
                format!("Models of layout {layout} usually want another input than this one got"),
            )
            .remedy(format!("If boxes are wrong, set {} on trtpreprocess", usual.settings_unlike(transform)))
            .with_debug(format!("usual: {usual:?}, here: {transform:?}"));
            self.obj().post_warning(&warning);
        }
        Ok(postprocessor)
    }

    /// Passes settings that changed while playing to the postprocessor. A wrong value must not end a running pipeline:
    /// one warning is posted, and the properties return to the values in use. Returns whether others are in use now.
    fn adjust(&self, postprocessor: &mut Postprocessor, options: PostprocessOptions) -> bool {
        if *postprocessor.options() == options {
            return false;
        }
        let Err(error) = postprocessor.adjust(options.clone()) else { return true };
        let mut settings = self.settings.lock().unwrap();
        let wanted = settings.options.clone();
        if wanted.clone().with_head_of(&options) == options {
            settings.options = postprocessor.options().clone().with_head_of(&wanted);
        }
        drop(settings);
        self.obj().post_warning(&error.and_remedy("The settings stay as they were"));
        false
    }
}
