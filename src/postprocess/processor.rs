// SPDX-License-Identifier: MPL-2.0
//! From a model's outputs to boxes on the frame, with the state that is kept from frame to frame.

use std::path::PathBuf;
use std::sync::Arc;

use super::Instances;
use super::classes::{read_labels, thresholds};
use super::classify::{ClassScores, Classifier};
use super::refine::{MaskFinder, gather};
use super::suppress::Nms;
use super::suppress::device::DeviceDecoder;
use crate::core::cuda::driver::{Context, Stream, StreamRole};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::tensor::{DType, Tensor, TensorDesc, Tensors};
use crate::heads::{Decoder, HeadFormat, Thresholds};
use crate::image::detections::DeviceDetections;
use crate::image::geometry::Letterbox;
use crate::image::keypoints::Keypoints;
use crate::image::masks::{MaskOutput, Masks};
use crate::image::transform::InputTransform;
use crate::model::ModelInfo;

/// The user's settings for results: the properties of trtnms, with the same defaults.
///
/// ```
/// use gsttrt::session::PostprocessOptions;
///
/// let mut options = PostprocessOptions::default();
/// options.classes = "person,car".into();
/// options.score_threshold = 0.5;
/// assert_eq!((options.iou_threshold, options.max_detections), (0.45, 300));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(not(feature = "internals"), non_exhaustive)]
pub struct PostprocessOptions {
    /// The model's head; `None` where that is to be recognised.
    pub layout: Option<&'static HeadFormat>,
    /// UTF-8 text with one class name a line; `None` for the names in the model file.
    pub label_file: Option<PathBuf>,
    /// 0..1; boxes with a lower score are dropped.
    pub score_threshold: f32,
    /// Score thresholds of single classes by name or id: `person=0.5,car=0.3`.
    pub class_thresholds: String,
    /// Names or ids of the classes to keep: `person,car`; empty for all.
    pub classes: String,
    /// 0..1; overlap (intersection over union) above which the weaker of two boxes is dropped.
    pub iou_threshold: f32,
    /// The maximum number of boxes kept in a frame, best scores first.
    pub max_detections: u32,
    /// Whether boxes of different classes suppress each other.
    pub class_agnostic: bool,
    /// What results contain of masks.
    #[doc(hidden)]
    pub mask_output: MaskOutput,
    /// The maximum number of classes that a classifier gives for a frame, best scores first.
    pub top_k: u32,
    /// What a classifier's output holds.
    pub class_scores: ClassScores,
}

impl Default for PostprocessOptions {
    fn default() -> Self {
        PostprocessOptions {
            layout: None,
            label_file: None,
            score_threshold: 0.25,
            class_thresholds: String::new(),
            classes: String::new(),
            iou_threshold: 0.45,
            max_detections: 300,
            class_agnostic: false,
            mask_output: MaskOutput::default(),
            top_k: 5,
            class_scores: ClassScores::Auto,
        }
    }
}

/// Made for one model; made again when its outputs change.
pub struct Postprocessor {
    model: Arc<ModelInfo>,
    outputs: Vec<TensorDesc>,
    /// Width and height of the model's input; boxes may be relative to it.
    input: (u32, u32),
    pub labels: Vec<String>,
    pub decoder: Decoder,
    options: PostprocessOptions,
    thresholds: Thresholds,
    nms: Nms,
    instances: Instances,
    masks: Option<MaskFinder>,
    /// Reads classes of the whole frame, if the model is a classifier.
    classifier: Option<Classifier>,
    /// Finds the objects if the model's outputs are in GPU memory.
    device: Option<DeviceDecoder>,
    /// The stream for that, if not the one of the model.
    stream: Option<Arc<Stream>>,
}

impl Postprocessor {
    pub fn new(
        options: PostprocessOptions,
        model: &Arc<ModelInfo>,
        tensors: &[Tensor],
        letterbox: &Letterbox,
    ) -> Result<Self> {
        let labels = match &options.label_file {
            Some(path) => read_labels(path)?,
            None => model.labels.clone(),
        };
        let input = (letterbox.tensor_width, letterbox.tensor_height);
        let mut hints = model.hints(input);
        hints.classes = (!labels.is_empty()).then_some(labels.len());
        let outputs: Vec<TensorDesc> = tensors.iter().map(|tensor| tensor.desc().clone()).collect();
        model.check_task()?;
        let decoder = Decoder::new(options.layout, &outputs, &hints)?;
        let keypoints = match (decoder.keypoints(), &model.keypoints) {
            (Some(_), Some(keypoints)) => Some(Keypoints { model: Arc::new(keypoints.clone()), values: Vec::new() }),
            _ => None,
        };
        let rotated = decoder.angles().map(|_| Vec::new());
        let classifier = decoder.format().is_classifier();
        let classifier = classifier.then(|| Classifier::new(model, &decoder.first_output().name));
        let classes = classifier.as_ref().map(|_| Vec::new());
        let masks = MaskFinder::new(&decoder, input);
        let found = masks.as_ref().map(|_| Masks::default());
        let instances = Instances { rotated, keypoints, masks: found, classes, ..Instances::default() };
        let mut processor = Postprocessor {
            model: model.clone(),
            outputs,
            input,
            labels,
            decoder,
            thresholds: Thresholds::uniform(options.score_threshold),
            nms: Nms::new(options.iou_threshold, options.max_detections as usize, options.class_agnostic),
            instances,
            masks,
            classifier,
            device: None,
            stream: None,
            options: options.clone(),
        };
        processor.adjust(options)?;
        Ok(processor)
    }

    /// Whether this was made for such outputs of that model.
    pub fn matches(&self, model: &Arc<ModelInfo>, tensors: &[Tensor], letterbox: &Letterbox) -> bool {
        Arc::ptr_eq(&self.model, model)
            && self.input == (letterbox.tensor_width, letterbox.tensor_height)
            && self.outputs.len() == tensors.len()
            && self.outputs.iter().zip(tensors).all(|(desc, tensor)| desc == tensor.desc())
    }

    /// Takes over options that changed while playing. On errors everything stays as it was.
    pub fn adjust(&mut self, options: PostprocessOptions) -> Result<()> {
        let count = self.decoder.classes();
        self.thresholds =
            thresholds(options.score_threshold, &options.classes, &options.class_thresholds, &self.labels, count)?;
        self.nms.iou_threshold = options.iou_threshold;
        self.nms.max_detections = options.max_detections as usize;
        self.nms.class_agnostic = options.class_agnostic;
        if let Some(masks) = &mut self.instances.masks {
            masks.is_hidden = options.mask_output == MaskOutput::None;
        }
        self.options = options;
        Ok(())
    }

    /// Whether head and labels are those of the options. [`Postprocessor::adjust`] can change the rest.
    pub fn has_same_head(&self, options: &PostprocessOptions) -> bool {
        (options.layout, &options.label_file) == (self.options.layout, &self.options.label_file)
    }

    pub fn options(&self) -> &PostprocessOptions {
        &self.options
    }

    /// The transform that models of the forced head usually need, if this one's input was made by another.
    pub fn transform_mismatch(&self, transform: &InputTransform) -> Option<InputTransform> {
        let usual = self.model.transform(Some(self.decoder.format()));
        // No head determines how chroma is read, and no classifier how its input is normalised.
        let usual = match self.is_classifier() {
            true => InputTransform { fit: usual.fit, ..*transform },
            false => InputTransform { chroma: transform.chroma, ..usual },
        };
        (self.options.layout.is_some() && usual != *transform).then_some(usual)
    }

    /// Whether the model gives classes of the whole frame. Then there is nothing to [`queue`](Self::queue).
    pub fn is_classifier(&self) -> bool {
        self.classifier.is_some()
    }

    /// What the user may have to set for a classifier's input, if neither the model file nor the user contains it.
    pub fn input_hint(&self, transform: &InputTransform) -> Option<Error> {
        let is_known = self.model.is_by_ultralytics() || transform.mean != [0.0; 3] || transform.std != [1.0; 3];
        if !self.is_classifier() || is_known || self.model.image_input().dtype == DType::U8 {
            return None;
        }
        let file = self.model.path.display();
        let note = Error::new(ErrorKind::Settings, format!("{file} does not contain the normalisation of its input"));
        Some(note.remedy(
            "For torchvision's and timm's ImageNet models, unless their graph does it, set \
             mean=0.485,0.456,0.406 std=0.229,0.224,0.225 on trtpreprocess, and their shortest-edge, such as 256 for an input of 224",
        ))
    }

    /// Finds the objects of a frame; they stay here until those of the next. If the tensors are in GPU memory, the host waits
    /// here for the boxes.
    pub fn find(&mut self, tensors: &Tensors, letterbox: &Letterbox) -> Result<()> {
        if let (Some(classifier), Some(classes)) = (&mut self.classifier, &mut self.instances.classes) {
            let output = self.decoder.pick(tensors)?[0];
            tensors.wait()?;
            let count = self.decoder.classes().unwrap_or(0);
            let PostprocessOptions { class_scores, top_k, .. } = self.options;
            return classifier.classify(output, count, class_scores, &self.thresholds, top_k as usize, classes);
        }
        match tensors.first().and_then(Tensor::device) {
            Some(memory) => {
                let stream = self.stream(tensors, memory.context())?;
                self.queue(tensors, &stream)?;
                self.finish(letterbox)
            }
            None => {
                self.instances.clear();
                let boxes = &mut self.instances.boxes;
                self.decoder.decode(tensors, &self.thresholds, boxes)?;
                self.nms.run(self.decoder.format().suppress(), boxes);
                if let (Some((_, view)), Some(keypoints)) = (self.decoder.keypoints(), &mut self.instances.keypoints) {
                    gather(&view, self.decoder.pick(tensors)?[view.output], boxes, &mut keypoints.values);
                }
                if let (Some(finder), Some(masks)) = (&mut self.masks, &mut self.instances.masks) {
                    finder.find(&self.decoder.pick(tensors)?, boxes, masks)?;
                }
                self.map_to_frame(letterbox)
            }
        }
    }

    /// The stream on which the objects of tensors in memory of that context are found.
    pub fn stream(&mut self, tensors: &Tensors, context: &Context) -> Result<Arc<Stream>> {
        if let Some(stream) = tensors.stream().filter(|stream| stream.context() == context) {
            return Ok(stream.clone());
        }
        let stream = match self.stream.take().filter(|stream| stream.context() == context) {
            Some(stream) => stream,
            None => Arc::new(Stream::of(context, StreamRole::Boxes)?),
        };
        Ok(self.stream.insert(stream).clone())
    }

    /// Queues the search on that stream, and returns where the detections are once the stream has reached this point.
    pub fn queue(&mut self, tensors: &Tensors, stream: &Arc<Stream>) -> Result<DeviceDetections> {
        let device = match &mut self.device {
            Some(device) if device.context() == stream.context() => device,
            other => other.insert(DeviceDecoder::new(stream.context(), &self.decoder)?),
        };
        if !tensors.stream().is_some_and(|made_on| Arc::ptr_eq(made_on, stream)) {
            tensors.ready().map_or(Ok(()), |ready| stream.wait(ready))?;
        }
        let begin = stream.begin_timing();
        device.wants_masks = self.options.mask_output != MaskOutput::None;
        device.launch(stream, &self.decoder.pick(tensors)?, &self.thresholds, &self.nms)?;
        stream.end_timing(begin);
        Ok(device.found())
    }

    /// Waits for the work queued on the stream, and takes over the objects.
    pub fn finish(&mut self, letterbox: &Letterbox) -> Result<()> {
        self.instances.clear();
        if let Some(device) = &mut self.device {
            self.instances.boxes.extend_from_slice(device.detections()?);
            if let Some(keypoints) = &mut self.instances.keypoints {
                keypoints.values.extend_from_slice(device.gathered()?);
            }
            if let Some(masks) = &mut self.instances.masks {
                device.masks(masks)?;
            }
        }
        self.map_to_frame(letterbox)
    }

    /// Copies masks to the host that were found on the GPU and are only drawn there: some frames are drawn on by the host.
    pub fn fetch_masks(&mut self) -> Result<()> {
        match (&mut self.instances.masks, &mut self.device) {
            (Some(masks), Some(device)) if masks.lacks_bits() => device.read_masks(masks),
            _ => Ok(()),
        }
    }

    fn map_to_frame(&mut self, letterbox: &Letterbox) -> Result<()> {
        if self.instances.rotated.is_some() && !letterbox.keeps_aspect() {
            let Letterbox { source, place, width, height, .. } = letterbox;
            let [from, in_tensor, to] = [
                [source.width() as f32, source.height() as f32],
                [*width as f32, *height as f32],
                [place.width(), place.height()],
            ]
            .map(|[width, height]| format!("{width}x{height}"));
            let (cause, remedy) = if to == from {
                (format!("it was stretched from {from} to {in_tensor}"), "Set resize=letterbox on trtpreprocess")
            } else {
                (
                    format!("from {from} it was scaled to {in_tensor} for the model and to {to} since"),
                    "Set resize=letterbox on trtpreprocess, and keep the aspect ratio where frames are scaled",
                )
            };
            return Err(Error::new(ErrorKind::Settings, "Rotated boxes cannot be mapped back to the frame")
                .cause(cause)
                .remedy(remedy));
        }
        self.instances.map_to_frame(letterbox);
        Ok(())
    }

    /// The objects in pixels of the frame, the best score first.
    pub fn instances(&self) -> &Instances {
        &self.instances
    }
}
