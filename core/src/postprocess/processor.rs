// SPDX-License-Identifier: MPL-2.0
//! From a model's outputs to boxes on the frame, with the state that is kept from frame to frame.

mod ahead;
mod hints;
mod whole;

use std::sync::Arc;

use super::anomaly::{self, ScoreReader};
use super::classes::{KnownClasses, thresholds};
use super::classify::Classifier;
use super::effect;
use super::map::MapFinder;
use super::merge::Merger;
use super::orientation;
use super::refine::{MaskFinder, gather};
use super::suppress::Nms;
use super::suppress::device::DeviceDecoder;
use super::text::TextReader;
use super::text_boxes::{TextBoxFinder, TextBoxRules, USUAL_PIXEL, USUAL_SCORE};
use super::vectors::VectorReader;
use super::{FoundText, Instances, PostprocessOptions};
use crate::cuda::driver::{Context, Fence, Stream, StreamRole};
use crate::error::{Error, ErrorKind, Result};
use crate::heads::{Decoder, Lost, Suppress, Task, Thresholds};
use crate::image::detections::DeviceDetections;
use crate::image::geometry::Letterbox;
use crate::image::keypoints::Keypoints;
use crate::image::map::{MapKind, PixelMap};
use crate::image::masks::{MaskOutput, Masks};
use crate::image::transform::InputTransform;
use crate::model::ModelInfo;
use crate::tensor::{Tensor, TensorDesc, Tensors};

/// Made for one model; made again when its outputs change.
pub struct Postprocessor {
    model: Arc<ModelInfo>,
    /// Width and height of the model's input; boxes may be relative to it.
    input: (u32, u32),
    pub labels: Vec<String>,
    pub decoder: Decoder,
    options: PostprocessOptions,
    /// Whether the options name the head, or a file that has it.
    is_chosen: bool,
    thresholds: Thresholds,
    nms: Nms,
    instances: Instances,
    /// Those of the regions of a frame, until they are merged.
    of_regions: Instances,
    merger: Merger,
    /// Whether masks of the GPU come to the host in any case.
    needs_mask_pixels: bool,
    masks: Option<MaskFinder>,
    /// Reads classes of the whole frame, if the model is a classifier.
    classifier: Option<Classifier>,
    /// Finds the map of the frame, if the model gives one.
    maps: Option<MapFinder>,
    /// Reads the score of the frame, if the model gives one, such as with its map.
    score: Option<ScoreReader>,
    /// Reads the vector of the frame, if the model gives one.
    vectors: Option<VectorReader>,
    /// Reads the text of the frame, if the model gives one.
    texts: Option<TextReader>,
    /// Finds the boxes of texts, if the model gives a map of them.
    text_boxes: Option<TextBoxFinder>,
    /// Finds the objects if the model's outputs are in GPU memory.
    device: Option<DeviceDecoder>,
    /// That of the frame before, in lists of frames: the search in the next one is queued before it is waited for.
    other_device: Option<DeviceDecoder>,
    /// The stream for that, if not the one of the model.
    stream: Option<Arc<Stream>>,
    /// What was left out, until it is asked for.
    lost: Lost,
    /// A score above 1 that an object has had, until it is asked for.
    above_one: Option<f32>,
}

/// Half precision and rounding leave a score a little above 1.
const MOST_SCORE: f32 = 1.01;

impl Postprocessor {
    pub fn new(
        options: PostprocessOptions,
        model: &Arc<ModelInfo>,
        tensors: &[Tensor],
        letterbox: &Letterbox,
    ) -> Result<Self> {
        let mut labels = options.labels()?.unwrap_or_else(|| model.labels.clone());
        let input = (letterbox.tensor_width, letterbox.tensor_height);
        let mut hints = model.hints(input);
        hints.classes = (!labels.is_empty()).then_some(labels.len());
        hints.background = options.background_class;
        let outputs: Vec<TensorDesc> = tensors.iter().map(|tensor| tensor.desc().clone()).collect();
        model.check_task()?;
        let chosen = options.head()?;
        let needs_keypoints = hints.task == "pose" || chosen.is_some_and(|layout| layout.task == Task::Pose);
        let keypoints_error = model.keypoints_error().filter(|_| needs_keypoints);
        let decoder = Decoder::new(chosen, &outputs, &hints).map_err(|error| keypoints_error.unwrap_or(error))?;
        let keypoints = match (decoder.keypoints(), decoder.format().keypoints_of(model.keypoints.as_ref())) {
            (Some(_), Some(keypoints)) => Some(Keypoints { model: Arc::new(keypoints.clone()), values: Vec::new() }),
            _ => None,
        };
        if labels.is_empty() && decoder.format().is_text_map() {
            labels = vec!["text".into()];
        }
        orientation::name_classes(&decoder, &mut labels)?;
        anomaly::name_class(&decoder, &mut labels)?;
        let rotated = decoder.format().is_rotated().then(Vec::new);
        let has_probabilities = model.has_probabilities(&decoder.first_output().name);
        let classifier = decoder.format().is_classifier();
        let classifier = classifier.then(|| Classifier::new(has_probabilities, decoder.classes().unwrap_or(0)));
        let score = ScoreReader::new(&decoder);
        let classes = (classifier.is_some() || score.is_some()).then(Vec::new);
        let maps = MapFinder::new(&decoder, labels.len())?;
        let map = maps.as_ref().map(MapFinder::map);
        let vectors = VectorReader::new(&decoder);
        let vector = vectors.as_ref().map(|_| Vec::new());
        let texts = TextReader::new(&decoder, &labels, has_probabilities)?;
        let text = texts.as_ref().map(|_| FoundText::default());
        let text_boxes = TextBoxFinder::new(&decoder, input);
        let masks = MaskFinder::new(&decoder, input);
        let found = masks.as_ref().map(|_| Masks::default());
        let instances =
            Instances { rotated, keypoints, masks: found, classes, vector, text, map, ..Instances::default() };
        let mut processor = Postprocessor {
            model: model.clone(),
            input,
            labels,
            decoder,
            thresholds: Thresholds::uniform(options.score_threshold),
            nms: Nms::new(options.iou_threshold, 0, options.class_agnostic),
            of_regions: instances.clone(),
            merger: Merger::default(),
            needs_mask_pixels: false,
            is_chosen: chosen.is_some(),
            instances,
            masks,
            classifier,
            maps,
            score,
            vectors,
            texts,
            text_boxes,
            device: None,
            other_device: None,
            stream: None,
            lost: Lost::default(),
            above_one: None,
            options: options.clone(),
        };
        processor.adjust(options)?;
        Ok(processor)
    }

    /// Whether this was made for such outputs of that model.
    pub fn matches(&self, model: &Arc<ModelInfo>, tensors: &[Tensor], letterbox: &Letterbox) -> bool {
        Arc::ptr_eq(&self.model, model)
            && self.input == (letterbox.tensor_width, letterbox.tensor_height)
            && self.decoder.pick(tensors).is_ok()
    }

    /// Takes over options that changed while playing. On errors everything stays as it was.
    pub fn adjust(&mut self, options: PostprocessOptions) -> Result<()> {
        options.check_numbers()?;
        // That of texts is another as long as the user sets none.
        let is_usual = options.score_threshold == PostprocessOptions::default().score_threshold;
        let least = match is_usual {
            true if self.finds_text() => USUAL_SCORE,
            true if self.finds_orientation() => orientation::USUAL_TURN,
            true if self.score.is_some() => anomaly::usual_score(&self.decoder),
            _ => options.score_threshold,
        };
        self.thresholds = thresholds(least, &options.classes, &options.class_thresholds, &self.known_classes())?;
        self.nms.iou_threshold = options.iou_threshold;
        let limit = options.max_detections as usize;
        self.nms.max_detections = self.decoder.rows().map_or(limit, |rows| limit.min(rows));
        self.nms.class_agnostic = options.class_agnostic;
        let is_usual = self.score.is_some() && options.map_threshold == PostprocessOptions::default().map_threshold;
        let pixel = if is_usual { anomaly::usual_pixel(&self.decoder) } else { options.map_threshold };
        if let Some(maps) = &mut self.maps {
            maps.keep(&self.thresholds, pixel);
        }
        let Instances { masks, map, .. } = &mut self.instances;
        if let Some(masks) = masks {
            masks.is_hidden = options.mask_output != MaskOutput::Objects;
            if options.mask_output != MaskOutput::Map {
                *map = None;
            } else if map.is_none() {
                *map = Some(PixelMap::new(MapKind::Objects));
            }
        }
        if let Some(map) = map {
            map.is_hidden = options.mask_output == MaskOutput::None;
        }
        self.options = options;
        Ok(())
    }

    /// Whether head and labels are those of the options. [`Postprocessor::adjust`] can change the rest.
    pub fn has_same_head(&self, options: &PostprocessOptions) -> bool {
        let head = |of: &PostprocessOptions| (of.layout, of.background_class);
        let files = |of: &PostprocessOptions| (of.layout_file.clone(), of.label_file.clone());
        head(options) == head(&self.options) && files(options) == files(&self.options)
    }

    /// The classes that it finds.
    pub fn known_classes(&self) -> KnownClasses {
        KnownClasses { labels: self.labels.clone(), count: self.decoder.classes() }
    }

    pub fn options(&self) -> &PostprocessOptions {
        &self.options
    }

    /// The model that it was made for.
    pub fn model(&self) -> &ModelInfo {
        &self.model
    }

    /// The transform that models of the forced head usually need, if this one's input was made by another.
    pub fn transform_mismatch(&self, transform: &InputTransform) -> Option<InputTransform> {
        let usual = self.model.transform(Some(self.decoder.format()));
        // No head determines how chroma is read, and not all how their input is normalised.
        let usual = match self.decoder.format().input_note {
            Some(_) if self.is_classifier() => InputTransform { fit: usual.fit, ..*transform },
            Some(_) if self.has_map() || self.is_embedding() || self.reads_text() => *transform,
            Some(_) => InputTransform { chroma: transform.chroma, mean: transform.mean, std: transform.std, ..usual },
            None => InputTransform { chroma: transform.chroma, ..usual },
        };
        (self.is_chosen && usual != *transform).then_some(usual)
    }

    /// Whether the model gives classes of the whole picture, or the score of one, and neither boxes nor a map.
    pub fn is_classifier(&self) -> bool {
        self.classifier.is_some() || self.decoder.format().is_score()
    }

    /// Whether the model gives a vector of the whole picture, and no boxes.
    pub fn is_embedding(&self) -> bool {
        self.vectors.is_some()
    }

    /// Whether the model gives the text of the whole picture, and no boxes.
    pub fn reads_text(&self) -> bool {
        self.texts.is_some()
    }

    /// Whether the model gives a map of texts, whose boxes are found on the host: there is nothing to [`queue`](Self::queue).
    pub fn finds_text(&self) -> bool {
        self.text_boxes.is_some()
    }

    /// Whether the model gives a map and no boxes. Then there is nothing to [`queue`](Self::queue), but a
    /// [map](Self::queue_map).
    pub fn has_map(&self) -> bool {
        self.maps.is_some()
    }

    /// The number of classes of the map.
    pub fn map_classes(&self) -> u32 {
        self.maps.as_ref().map_or(0, MapFinder::classes)
    }

    /// Whether the model gives boxes. If not, there is nothing to [`queue`](Self::queue).
    pub fn has_boxes(&self) -> bool {
        self.decoder.format().has_boxes()
    }

    /// A warning of options that have no effect on what the model gives, if there are any. `slices` is whether the model sees
    /// several slices of a frame.
    pub fn without_effect(&self, slices: bool) -> Option<Error> {
        effect::without_effect(&self.options, self.decoder.format(), &self.model, slices)
    }

    /// Finds the objects of a frame; they stay here until those of the next. If the tensors are in GPU memory, the host
    /// waits here for the boxes.
    pub fn find(&mut self, tensors: &Tensors, letterbox: &Letterbox) -> Result<()> {
        if self.is_classifier() {
            let mut found = Vec::new();
            self.classify(&[tensors], &mut found)?;
            self.instances.classes = found.pop();
            return Ok(());
        }
        if self.is_embedding() {
            let mut found = Vec::new();
            self.embed(&[tensors], &mut found)?;
            self.instances.vector = found.pop();
            return Ok(());
        }
        if self.reads_text() {
            let mut found = Vec::new();
            self.read_texts(&[tensors], &mut found)?;
            self.instances.text = found.pop();
            return Ok(());
        }
        if self.maps.is_some() {
            return self.find_map(tensors, letterbox);
        }
        if let Some(finder) = &mut self.text_boxes {
            let output = self.decoder.pick(tensors)?[0];
            tensors.wait()?;
            self.instances.clear();
            let pixel = Some(self.options.map_threshold).filter(|&threshold| threshold != 0.0).unwrap_or(USUAL_PIXEL);
            let PostprocessOptions { unclip_ratio: growth, use_dilation: dilates, .. } = self.options;
            let boxes = &mut self.instances.boxes;
            self.lost.not_finite +=
                finder.find(output, &TextBoxRules { pixel, growth, dilates }, &self.thresholds, boxes)?;
            self.nms.run(Suppress::None, boxes);
            return self.map_to_frame(letterbox);
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
                self.lost += self.decoder.decode_counted(tensors, &self.thresholds, boxes)?;
                self.nms.run(self.decoder.format().suppress(), boxes);
                if let (true, Some(keypoints)) = (self.decoder.has_cell_keypoints(), &mut self.instances.keypoints) {
                    self.decoder.cell_keypoints(tensors, boxes, &mut keypoints.values)?;
                } else if let (Some((_, view)), Some(keypoints)) =
                    (self.decoder.keypoints(), &mut self.instances.keypoints)
                {
                    gather(&view, self.decoder.pick(tensors)?[view.output], boxes, &mut keypoints.values);
                }
                if let (Some(finder), Some(masks)) = (&mut self.masks, &mut self.instances.masks) {
                    finder.find(&self.decoder.pick(tensors)?, boxes, masks)?;
                }
                self.map_to_frame(letterbox)
            }
        }
    }

    fn find_map(&mut self, tensors: &Tensors, letterbox: &Letterbox) -> Result<()> {
        if let Some(memory) = tensors.first().and_then(Tensor::device) {
            let stream = self.stream(tensors, memory.context())?;
            let queued = self.queue_map(tensors, letterbox, &stream);
            stream.synchronize()?; // also where only a part was queued
            queued?;
            self.finish_map();
            return Ok(());
        }
        let outputs = self.decoder.pick(tensors)?;
        tensors.wait()?;
        if let (Some(finder), Some(map)) = (&self.maps, &mut self.instances.map) {
            finder.find(outputs[0], letterbox, map)?;
            self.lost.not_finite += map.not_finite();
        }
        let score = self.score.as_ref().map(|reader| reader.read(&outputs));
        self.take_score(score);
        Ok(())
    }

    /// Queues the search for the map of a frame on that stream, and returns the address of its values once the stream
    /// has reached this point. `None` for models without.
    pub fn queue_map(&mut self, tensors: &Tensors, letterbox: &Letterbox, stream: &Arc<Stream>) -> Result<Option<u64>> {
        let outputs = self.decoder.pick(tensors)?;
        let (Some(finder), Some(map)) = (&mut self.maps, &mut self.instances.map) else { return Ok(None) };
        stream.wait_for_all(fence_of_another_stream(tensors, stream).into_iter())?;
        let begin = stream.begin_timing();
        let values = finder.queue(stream, outputs[0], letterbox, map)?;
        self.score.as_mut().map_or(Ok(()), |score| score.queue(stream, &outputs))?;
        stream.end_timing(begin);
        Ok(Some(values))
    }

    /// Takes over the map once that work is done.
    pub fn finish_map(&mut self) {
        if let (Some(finder), Some(map)) = (&self.maps, &mut self.instances.map) {
            finder.finish(map);
            self.lost.not_finite += map.not_finite();
        }
        let score = self.score.as_ref().map(ScoreReader::copied);
        self.take_score(score);
    }

    /// The same for a frame of which the model has seen several regions: the tensors and the letterbox of each. Objects that
    /// regions have in common are merged.
    ///
    /// # Errors
    /// As [`Postprocessor::find`]; `Settings` for models without boxes, and for one map of all masks.
    pub fn find_in_regions<'a>(&mut self, regions: impl Iterator<Item = (&'a Tensors, &'a Letterbox)>) -> Result<()> {
        self.check_regions()?;
        self.needs_mask_pixels = true;
        let mut all = std::mem::take(&mut self.of_regions);
        all.clear();
        let found = regions.into_iter().try_for_each(|(tensors, letterbox)| {
            self.find(tensors, letterbox)?;
            all.append(&self.instances);
            Ok(())
        });
        let PostprocessOptions { merge, class_agnostic, max_detections, .. } = &self.options;
        self.merger.merge(&mut all, merge, *class_agnostic, *max_detections as usize);
        self.take_merged(all);
        found
    }

    /// The same for objects of another model, with the ids of their regions. What is found in an object belongs to it,
    /// and is not merged.
    ///
    /// # Errors
    /// As [`Postprocessor::find`].
    pub fn find_in_objects<'a>(
        &mut self,
        objects: impl Iterator<Item = (&'a Tensors, &'a Letterbox, i32)>,
    ) -> Result<()> {
        self.check_regions()?;
        self.needs_mask_pixels = true;
        let mut all = std::mem::take(&mut self.of_regions);
        all.clear();
        let mut parents = Vec::new();
        let found = objects.into_iter().try_for_each(|(tensors, letterbox, parent)| {
            self.find(tensors, letterbox)?;
            all.append(&self.instances);
            parents.resize(all.len(), parent);
            Ok(())
        });
        all.parents = Some(parents);
        self.take_merged(all);
        found
    }

    /// Refuses what has no meaning for several regions of a frame.
    fn check_regions(&self) -> Result<()> {
        let file = self.model.path.display();
        let whole =
            "Leave slices, slice-size and regions of trtpreprocess unset, or give trtinfer a model that finds objects";
        let (what, remedy) = if self.is_classifier() {
            (format!("{file} classifies pictures, and slices are for objects"), whole)
        } else if self.is_embedding() {
            (format!("{file} gives a vector of a picture, and slices are for objects"), whole)
        } else if self.reads_text() {
            (format!("{file} reads the text of a picture, and slices are for objects"), whole)
        } else if self.has_map() {
            (format!("{file} gives a map of the whole picture, and slices and regions are for objects"), whole)
        } else if self.masks.is_some() && self.options.mask_output == MaskOutput::Map {
            let what =
                "mask-output=map is for models that see the whole frame at once, and this one sees several regions";
            (what.into(), "Set mask-output=objects on trtnms")
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Settings, what).remedy(remedy))
    }

    /// Takes over the objects of several regions.
    fn take_merged(&mut self, mut all: Instances) {
        if let Some(masks) = &mut all.masks {
            masks.is_hidden = self.options.mask_output != MaskOutput::Objects;
        }
        self.of_regions = std::mem::replace(&mut self.instances, all);
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
        stream.wait_for_all(fence_of_another_stream(tensors, stream).into_iter())?;
        let begin = stream.begin_timing();
        // A map of masks needs their pixels too.
        device.wants_masks = self.needs_mask_pixels || self.options.mask_output != MaskOutput::None;
        device.launch(stream, &self.decoder.pick(tensors)?, &self.thresholds, &self.nms)?;
        stream.end_timing(begin);
        Ok(device.found())
    }

    /// Waits for the work queued on the stream, and takes over the objects.
    pub fn finish(&mut self, letterbox: &Letterbox) -> Result<()> {
        self.instances.clear();
        if let Some(device) = &mut self.device {
            self.instances.boxes.extend_from_slice(device.detections()?);
            self.lost += device.lost()?;
            if let Some(keypoints) = &mut self.instances.keypoints {
                keypoints.values.extend_from_slice(device.gathered()?);
            }
            if let Some(masks) = &mut self.instances.masks {
                device.masks(masks)?;
            }
        }
        self.map_to_frame(letterbox)
    }

    /// Copies masks and maps to the host that were found on the GPU and are only drawn there: some frames are drawn on
    /// by the host.
    pub fn fetch_masks(&mut self) -> Result<()> {
        if let (Some(finder), Some(map)) = (&self.maps, &mut self.instances.map) {
            return finder.fetch(map);
        }
        match (&mut self.instances.masks, &mut self.device) {
            (Some(masks), Some(device)) if masks.lacks_bits() => device.read_masks(masks),
            _ => Ok(()),
        }
    }

    fn map_to_frame(&mut self, letterbox: &Letterbox) -> Result<()> {
        let best = self.instances.boxes.iter().map(|object| object.score).fold(0.0, f32::max);
        self.above_one = Some(best).filter(|score| *score > MOST_SCORE).or(self.above_one);
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
        let Instances { boxes, masks, map, .. } = &mut self.instances;
        if let (Some(map), Some(masks)) = (map, masks) {
            map.find_objects(masks, boxes.iter().map(|object| object.class), letterbox);
        }
        Ok(())
    }

    /// A warning where numbers that were read since this was last asked for are not finite: nothing is found there.
    pub fn not_finite(&mut self) -> Option<Error> {
        let count = std::mem::take(&mut self.lost.not_finite);
        let file = self.model.path.display();
        let of = match (self.has_map() || self.score.is_some(), self.is_embedding()) {
            (true, _) => "values",
            (_, true) => "vectors",
            _ => "rows",
        };
        let what = || format!("{file} gives numbers that are not finite, in {count} {of} of a frame");
        let warning = || {
            Error::new(ErrorKind::Model, what())
                .cause("numbers have left the range of its precision, or the file is damaged; nothing is found there")
                .remedy("Set precision=fp32 on trtinfer, or try the model with gst-trt verify")
        };
        (count > 0).then(warning)
    }

    /// A warning where objects that were found since this was last asked for have scores that cannot be.
    pub fn above_one(&mut self) -> Option<Error> {
        let score = self.above_one.take()?;
        if self.score.is_some() {
            return Some(anomaly::not_normalised(&self.model.path, score));
        }
        let (file, format) = (self.model.path.display(), self.decoder.format());
        let remedy = match format.file {
            Some(file) => format!(
                "Compare columns and encoding in {} with what the model's exporter says; of logits the column is logits",
                file.source
            ),
            None => {
                "Set layout on trtnms to what the model gives, or describe it in a layout file, of which gst-trt info \
                     --explain-layout writes a draft"
                    .into()
            }
        };
        let what = format!("{file} gives scores above 1 as {format} reads it, such as {score}");
        let warning = Error::new(ErrorKind::Model, what);
        Some(
            warning
                .cause("scores lie in 0..1, so these are logits, pixels or numbers of another column")
                .remedy(remedy),
        )
    }

    /// The objects in pixels of the frame, the best score first.
    pub fn instances(&self) -> &Instances {
        &self.instances
    }
}

/// What has to be waited for before these outputs are read on that stream.
fn fence_of_another_stream<'a>(tensors: &'a Tensors, stream: &Arc<Stream>) -> Option<&'a Fence> {
    tensors.ready().filter(|_| !tensors.stream().is_some_and(|made_on| Arc::ptr_eq(made_on, stream)))
}
