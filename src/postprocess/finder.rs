//! From a model's outputs to boxes on the frame, with what is kept from frame to frame.

use std::path::PathBuf;
use std::sync::Arc;

use super::classes::{read_labels, thresholds};
use crate::core::cuda::driver::{Context, Stream, StreamRole};
use crate::core::error::Result;
use crate::core::tensor::{Tensor, TensorDesc, Tensors};
use crate::heads::{Decoder, Layout, Thresholds};
use crate::image::Detection;
use crate::image::geometry::Letterbox;
use crate::image::transform::InputTransform;
use crate::model::ModelInfo;
use crate::postprocess::kernel::{Boxes, Found};
use crate::postprocess::nms::Nms;

/// What the user says about boxes: the properties of trtnms, with the same defaults.
///
/// ```
/// use gsttrt::session::Wishes;
///
/// let wishes = Wishes { classes: "person,car".into(), score_threshold: 0.5, ..Wishes::default() };
/// assert_eq!((wishes.iou_threshold, wishes.max_detections), (0.45, 300));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Wishes {
    /// How the model writes them; `None` where that is to be recognised.
    pub layout: Option<Layout>,
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
    /// Most boxes kept in a frame, best scores first.
    pub max_detections: u32,
    /// Whether boxes of different classes suppress each other.
    pub class_agnostic: bool,
}

impl Default for Wishes {
    fn default() -> Self {
        Wishes {
            layout: None,
            label_file: None,
            score_threshold: 0.25,
            class_thresholds: String::new(),
            classes: String::new(),
            iou_threshold: 0.45,
            max_detections: 300,
            class_agnostic: false,
        }
    }
}

/// Made for one model; made again when its outputs change.
pub struct Finder {
    model: Arc<ModelInfo>,
    outputs: Vec<TensorDesc>,
    pub labels: Vec<String>,
    pub decoder: Decoder,
    wishes: Wishes,
    thresholds: Thresholds,
    nms: Nms,
    detections: Vec<Detection>,
    /// What finds the objects where the model's outputs are in GPU memory.
    boxes: Option<Boxes>,
    /// Where it does that, if not behind the model itself.
    stream: Option<Arc<Stream>>,
}

impl Finder {
    pub fn new(wishes: Wishes, model: &Arc<ModelInfo>, tensors: &[Tensor], letterbox: &Letterbox) -> Result<Self> {
        let labels = match &wishes.label_file {
            Some(path) => read_labels(path)?,
            None => model.labels.clone(),
        };
        let mut hints = model.hints((letterbox.tensor_width, letterbox.tensor_height));
        hints.classes = (!labels.is_empty()).then_some(labels.len());
        let outputs: Vec<TensorDesc> = tensors.iter().map(|tensor| tensor.desc().clone()).collect();
        let decoder = Decoder::new(wishes.layout, &outputs, &hints)?;
        let mut finder = Finder {
            model: model.clone(),
            outputs,
            labels,
            decoder,
            thresholds: Thresholds::uniform(wishes.score_threshold),
            nms: Nms::new(wishes.iou_threshold, wishes.max_detections as usize, wishes.class_agnostic),
            detections: Vec::new(),
            boxes: None,
            stream: None,
            wishes: wishes.clone(),
        };
        finder.adjust(wishes)?;
        Ok(finder)
    }

    /// Whether this was made for such outputs of that model.
    pub fn suits(&self, model: &Arc<ModelInfo>, tensors: &[Tensor]) -> bool {
        Arc::ptr_eq(&self.model, model)
            && self.outputs.len() == tensors.len()
            && self.outputs.iter().zip(tensors).all(|(desc, tensor)| desc == tensor.desc())
    }

    /// Takes over wishes that changed while playing. What cannot be taken over leaves everything as it was.
    pub fn adjust(&mut self, wishes: Wishes) -> Result<()> {
        let count = self.decoder.classes();
        self.thresholds =
            thresholds(wishes.score_threshold, &wishes.classes, &wishes.class_thresholds, &self.labels, count)?;
        self.nms.iou_threshold = wishes.iou_threshold;
        self.nms.max_detections = wishes.max_detections as usize;
        self.nms.class_agnostic = wishes.class_agnostic;
        self.wishes = wishes;
        Ok(())
    }

    /// Whether layout and labels are those of the wishes; [`Finder::adjust`] can change the rest.
    pub fn is_of(&self, wishes: &Wishes) -> bool {
        (wishes.layout, &wishes.label_file) == (self.wishes.layout, &self.wishes.label_file)
    }

    pub fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    /// The recipe that models of the forced layout usually want, if this one's input was made otherwise.
    pub fn doubted(&self, recipe: &InputTransform) -> Option<InputTransform> {
        let usual = self.model.recipe(Some(self.decoder.layout()));
        (self.wishes.layout.is_some() && usual != *recipe).then_some(usual)
    }

    /// Finds the objects of a frame; they stay here until the next one's. Where the tensors are in GPU memory, the host waits
    /// here for the boxes.
    pub fn find(&mut self, tensors: &Tensors, letterbox: &Letterbox) -> Result<()> {
        match tensors.first().and_then(Tensor::device) {
            Some(memory) => {
                let stream = self.stream(tensors, memory.context())?;
                self.queue(tensors, &stream)?;
                self.finish(letterbox)
            }
            None => {
                self.detections.clear();
                self.decoder.decode(tensors, &self.thresholds, &mut self.detections)?;
                match self.decoder.needs_nms() {
                    true => self.nms.suppress(&mut self.detections),
                    false => self.nms.rank(&mut self.detections),
                }
                self.place(letterbox);
                Ok(())
            }
        }
    }

    /// Where the objects of tensors in memory of that context are to be sought.
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

    /// Queues the search there, and says where to find what was found once the stream has come so far.
    pub fn queue(&mut self, tensors: &Tensors, stream: &Arc<Stream>) -> Result<Found> {
        let boxes = match &mut self.boxes {
            Some(boxes) if boxes.context() == stream.context() => boxes,
            other => other.insert(Boxes::new(stream.context(), &self.decoder)?),
        };
        if !tensors.stream().is_some_and(|made_on| Arc::ptr_eq(made_on, stream)) {
            tensors.ready().map_or(Ok(()), |ready| stream.wait(ready))?;
        }
        let begin = stream.begin_timing();
        boxes.launch(stream, &self.decoder.pick(tensors)?, &self.thresholds, &self.nms)?;
        stream.end_timing(begin);
        Ok(boxes.found())
    }

    /// Waits for what was queued on the stream, and takes over the objects.
    pub fn finish(&mut self, letterbox: &Letterbox) -> Result<()> {
        self.detections.clear();
        if let Some(boxes) = &mut self.boxes {
            self.detections.extend_from_slice(boxes.detections()?);
        }
        self.place(letterbox);
        Ok(())
    }

    /// From the tensor to the frame. What lies in the padding alone is no object of it.
    fn place(&mut self, letterbox: &Letterbox) {
        self.detections.retain_mut(|detection| {
            detection.bbox = letterbox.to_frame(&detection.bbox);
            detection.bbox.is_valid()
        });
    }

    /// The objects in pixels of the frame, the best score first.
    pub fn detections(&self) -> &[Detection] {
        &self.detections
    }
}
