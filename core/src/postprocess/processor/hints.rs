// SPDX-License-Identifier: MPL-2.0
//! What is guessed of a model, and what the user may have to set.

use super::Postprocessor;
use crate::error::{Error, ErrorKind};
use crate::heads::{self, BackgroundClass};
use crate::image::transform::InputTransform;
use crate::tensor::DType;

impl Postprocessor {
    /// What the user may have to set, if neither the model file nor the user contains it. `is_normalised`: the user has set mean or std,
    /// whatever to.
    pub fn hints(&self, transform: &InputTransform, is_normalised: bool) -> impl Iterator<Item = Error> {
        let names = self.labels.is_empty().then(|| self.model.names_error()).flatten();
        let unread = names.into_iter().chain(self.model.metadata_errors());
        let input = self.input_hint(transform).filter(|_| !is_normalised);
        let of_head = [input, self.background_hint(), self.layout_hint(), self.label_hint()];
        of_head.into_iter().flatten().chain(unread)
    }

    /// A warning where boxes that were found since this was last asked for have no known class: they are left out. An object may have
    /// several, as the head or slices of the frame give them.
    pub fn beyond_classes(&mut self) -> Option<Error> {
        let [count, id] = [self.lost.beyond, self.lost.greatest as usize];
        (self.lost.beyond, self.lost.greatest) = (0, 0);
        if count == 0 {
            return None;
        }
        let file = self.model.path.display();
        let are = if count == 1 { "box of a frame is" } else { "boxes of a frame are" };
        let what = format!("{file} finds class {id}, which is not known: {count} {are} left out");
        let (kind, cause, remedy) = match self.decoder.classes() {
            _ if self.decoder.is_too_coarse_for(id as u32) => (
                ErrorKind::Model,
                "its class ids are f16, which has no number for each of those from 2048 on".to_string(),
                "Export the model with outputs in f32, or with class ids as integers",
            ),
            Some(classes) => (
                ErrorKind::Settings,
                match classes {
                    1 => "class ids count from 0, and there is 1 label".to_string(),
                    _ => format!("class ids count from 0, and there are {classes} labels"),
                },
                "Set label-file on trtnms (labels in gst-trt serve) to the file that belongs to the model, one line for each \
                 class",
            ),
            None => (
                ErrorKind::Settings,
                format!("class ids stay below {}", self.decoder.class_limit()),
                "Set layout on trtnms to what the model gives",
            ),
        };
        Some(Error::new(kind, what).cause(cause).remedy(remedy))
    }

    /// For labels of a head whose class 0 is the background.
    fn label_hint(&self) -> Option<Error> {
        const BACKGROUND: [&str; 5] = ["background", "__background__", "bg", "n/a", "none"];
        let has_background = [&heads::torchvision::HEAD, &heads::openvino_ssd::HEAD].contains(&self.decoder.format());
        let first = self.labels.first().filter(|first| !BACKGROUND.contains(&&*first.to_lowercase()))?;
        has_background.then(|| {
            let (layout, file) = (self.decoder.format(), self.model.path.display());
            let note =
                format!("Class 0 of {file} is the background, as {layout} has it, and the first label is “{first}”");
            let remedy = "If names are those of their neighbours, begin the label file with a line for the background";
            Error::new(ErrorKind::Settings, note).remedy(remedy)
        })
    }

    /// For the input.
    fn input_hint(&self, transform: &InputTransform) -> Option<Error> {
        let is_known = self.model.is_by_ultralytics() || transform.mean != [0.0; 3] || transform.std != [1.0; 3];
        if is_known || self.model.takes_vectors() || self.model.image_input().dtype == DType::U8 {
            return None;
        }
        let remedy = self.decoder.format().input_note?;
        let file = self.model.path.display();
        let note = Error::new(ErrorKind::Settings, format!("{file} does not contain the normalisation of its input"));
        Some(note.remedy(remedy))
    }

    /// For a layout that was chosen by the dimensions alone.
    fn layout_hint(&self) -> Option<Error> {
        let others: Vec<&str> = self.decoder.doubt()?.iter().map(|format| format.name).collect();
        let (layout, file) = (self.decoder.format(), self.model.path.display());
        let others =
            if others.is_empty() { String::new() } else { format!("; it may be {} as well", others.join(" or ")) };
        let note = format!("{file} is taken for {layout} by the dimensions of its outputs alone{others}");
        let remedy = "If boxes or classes are wrong, set layout on trtnms; a label file may tell too";
        Some(Error::new(ErrorKind::Settings, note).remedy(remedy))
    }

    /// For the logits of a row.
    fn background_hint(&self) -> Option<Error> {
        let is_set = self.options.background_class != BackgroundClass::Auto || !self.labels.is_empty();
        if is_set || self.decoder.format().usual_background() != Some(true) {
            return None;
        }
        let (classes, file) = (self.decoder.classes()?, self.model.path.display());
        let taken = match self.decoder.background() {
            Some(slot) => format!("the last of {} logits is taken for that", slot + 1),
            None => format!("each of {classes} logits is taken for a class, as in RF-DETR's own checkpoints"),
        };
        let note = format!("{file} does not contain which logit is the background's: {taken}");
        let remedy = "If classes are wrong, set background-class to none, first or last, or set label-file (labels in gst-trt serve)";
        Some(Error::new(ErrorKind::Settings, note).remedy(remedy))
    }
}
