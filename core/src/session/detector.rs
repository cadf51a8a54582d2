// SPDX-License-Identifier: MPL-2.0
//! Frames in, objects out: what `trtpreprocess ! trtinfer ! trtnms` do with a frame in host memory.

mod clips;
mod lists;
mod results;
#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

use super::{PostprocessOptions, Session, SessionOptions, tell};
use crate::error::Result;
use crate::heads::{HeadFormat, recognise};
use crate::image::device::DevicePlanes;
use crate::image::frame::{Colorimetry, Frame, PixelFormat};
use crate::image::geometry::{BBox, Letterbox};
use crate::image::map::PixelMap;
use crate::image::masks::Mask;
use crate::image::preprocess::{MAX_SIDE, Preprocessor};
use crate::image::rotated::RotatedBox;
use crate::image::transform::{InputSpec, InputTransform};
use crate::memory::BatchPool;
use crate::postprocess::{Instances, Postprocessor};
use crate::tensor::Tensors;
use clips::DetectorClips;

/// An object in a frame.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Object {
    /// The class's name, or `#` and its id where it has none.
    pub label: String,
    pub class_id: u32,
    /// 0..1
    pub confidence: f32,
    /// In pixels of the frame, inside it.
    pub bbox: BBox,
    /// Its rotated box, if the model has such; `bbox` is the upright box around it then.
    pub rotated: Option<RotatedBox>,
    /// In the order of the model's keypoints; empty if it has none.
    pub keypoints: Vec<Keypoint>,
    /// If the model gives masks.
    pub mask: Option<Mask>,
}

/// A class that a frame as a whole belongs to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FrameClass {
    /// The class's name, or `#` and its id where it has none.
    pub label: String,
    pub class_id: u32,
    /// 0..1
    pub confidence: f32,
}

/// A keypoint of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Keypoint {
    /// In pixels of the frame, inside it.
    pub x: f32,
    pub y: f32,
    /// 0..1; `None` if the model does not report it.
    pub visibility: Option<f32>,
}

/// What was found in a frame of several.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FrameResults {
    /// As of [`Detector::detect`].
    pub objects: Vec<Object>,
    /// As of [`Detector::classes`].
    pub classes: Vec<FrameClass>,
    /// As of [`Detector::vector`].
    pub vector: Option<Vec<f32>>,
    /// As of [`Detector::text`].
    pub text: Option<(String, f32)>,
    /// As of [`Detector::map`].
    pub map: Option<PixelMap>,
}

/// The results of a frame, valid until the next one.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct Detections<'a> {
    /// By descending confidence, in pixels of the frame.
    pub instances: &'a Instances,
    /// Names of all classes, by id; empty if neither the model nor a file has any.
    pub labels: &'a [String],
}

/// A detection model with preprocessing, decoding and non-maximum suppression.
///
/// ```
/// use gsttrt_core::session::{Detector, parse_options};
/// use gsttrt_core::frame::{Colorimetry, Frame, PixelFormat, Plane};
///
/// # fn main() -> gsttrt_core::error::Result<()> {
/// let (options, postprocess) = parse_options(["score-threshold=0.5"])?;
/// let mut detector = Detector::open("../tests/models/shapes.onnx", &options, postprocess)?;
///
/// let pixels = vec![128u8; 640 * 360 * 3];
/// let planes = [Plane { data: &pixels, stride: 640 * 3 }].into_iter().collect();
/// let frame = Frame { format: PixelFormat::Rgb, width: 640, height: 360, planes };
/// for object in detector.detect(&frame, Colorimetry::default())? {
///     println!("{} {:.2} {:?}", object.label, object.confidence, object.bbox);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Detector {
    session: Session,
    /// Whether the user has chosen the conversion of frames.
    has_own_transform: bool,
    /// Whether parts of frames are cut out, such as faces, which are then upright.
    pub(super) takes_parts: bool,
    /// The tensor that frames needed first, where that is not the one of `session`, and where the backend is loaded for one size.
    fitted_spec: Option<InputSpec>,
    /// For that tensor, once there was such a frame.
    fitted: Option<Session>,
    /// Whether it runs the model for the current kind of frames.
    is_fitted: bool,
    /// Whether the numbers of the last frame are finite.
    is_finite: bool,
    /// Whether there is a warning of numbers that are not finite.
    has_told_of_scores: bool,
    /// The same of scores above 1.
    has_told_of_large_scores: bool,
    /// The same of class ids that are not known.
    has_told_of_ids: bool,
    options: PostprocessOptions,
    /// The preprocessor for the current kind of frames.
    preprocessor: Option<(Source, Preprocessor)>,
    /// Where the tensors of a batch are neighbours.
    rows: Option<BatchPool>,
    /// The postprocessor for the current outputs.
    postprocessor: Option<Postprocessor>,
    /// With a model that sees clips.
    clips: Option<DetectorClips>,
    /// The results of the last frame, if no clip ends with it: there are none.
    between: Option<Instances>,
}

/// A frame in GPU memory.
#[derive(Clone, Debug)]
pub struct DeviceFrame {
    pub format: PixelFormat,
    pub width: usize,
    pub height: usize,
    pub planes: DevicePlanes,
}

/// The tensor of a frame, and where the frame is in it.
struct Picture {
    tensors: Arc<Tensors>,
    letterbox: Letterbox,
}

/// The kind of frames that a preprocessor is made for.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Source {
    format: PixelFormat,
    size: (usize, usize),
    color: Colorimetry,
}

impl Detector {
    /// Loads a detection model.
    ///
    /// # Errors
    /// As [`Session::open`] and [`Detector::new`].
    pub fn open(path: impl AsRef<Path>, options: &SessionOptions, postprocess: PostprocessOptions) -> Result<Self> {
        Detector::new(Session::open(path, options)?, postprocess)
    }

    /// Detects with a loaded model.
    ///
    /// # Errors
    /// `Model`, if the file declares another task; those of a layout file.
    pub fn new(session: Session, options: PostprocessOptions) -> Result<Self> {
        session.model().check_task()?;
        options.head()?;
        Ok(Detector::unchecked(session, options))
    }

    /// The same without a check of the task, for applications that check it later.
    #[doc(hidden)]
    pub fn unchecked(mut session: Session, options: PostprocessOptions) -> Self {
        // A file that cannot be read is an error with the first frame.
        if let Ok(Some(layout)) = options.head() {
            session.prepare_for(Some(layout));
        }
        Detector {
            session,
            has_own_transform: false,
            takes_parts: false,
            fitted_spec: None,
            fitted: None,
            is_fitted: false,
            is_finite: true,
            has_told_of_scores: false,
            has_told_of_large_scores: false,
            has_told_of_ids: false,
            options,
            preprocessor: None,
            rows: None,
            postprocessor: None,
            clips: None,
            between: None,
        }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// What the outputs of the model are, where that is known before the first frame.
    #[doc(hidden)]
    pub fn layout(&self) -> Option<&'static HeadFormat> {
        let (_, height, width) = self.session.request.spec.chw();
        let mut hints = self.session.model().hints((width as u32, height as u32));
        if let Some(labels) = self.options.labels().ok()? {
            hints.classes = (!labels.is_empty()).then_some(labels.len());
        }
        hints.background = self.options.background_class;
        recognise(self.options.head().ok()?, &self.session.outputs, &hints).ok()
    }

    /// How a frame is converted to the model's input; by default as the model file has it, or as models of the layout in the
    /// options want it.
    pub fn transform(&self) -> &InputTransform {
        &self.session.request.spec.transform
    }

    /// Changes the conversion from the next frame on, for models whose file does not describe it, as the properties of
    /// trtpreprocess do.
    pub fn set_transform(&mut self, transform: InputTransform) {
        self.session.request.spec.transform = transform;
        self.has_own_transform = true;
        self.forget_input();
    }

    /// What was made for frames so far is for another conversion.
    fn forget_input(&mut self) {
        (self.preprocessor, self.fitted_spec, self.fitted, self.is_fitted) = (None, None, None, false);
        (self.rows, self.clips) = (None, None);
    }

    /// Changes the options from the next frame on. Another layout brings the conversion that its models want.
    pub fn set_options(&mut self, options: PostprocessOptions) {
        let layout = |of: &PostprocessOptions| (of.layout, of.layout_file.clone());
        if layout(&options) != layout(&self.options) {
            self.session.prepare_for(options.head().ok().flatten());
            self.has_own_transform = false;
            self.forget_input();
        }
        self.options = options;
    }

    /// Width and height of the model's input for frames of that size. Frames with the same one can be run together.
    #[doc(hidden)]
    pub fn input_size_for(&mut self, frame: (usize, usize)) -> (usize, usize) {
        let (_, height, width) = self.spec_for(frame).chw();
        (width, height)
    }

    /// The objects in a frame, by descending confidence. `color` is used for YUV and gray formats.
    ///
    /// Tables are computed for each new format or size, so frames that alternate between them take longer.
    ///
    /// A model that sees clips gets the frames of one stream, in the order of the calls. Frames with which no clip ends have no
    /// results.
    ///
    /// # Errors
    /// * `WrongType`: the frame's planes are smaller than its rows.
    /// * `Negotiation`: the frame cannot be converted to the model's input.
    /// * `Settings`: the options do not match the model, or its layout is not recognised.
    /// * `Run`: running failed.
    ///
    /// The detector stays usable.
    pub fn detect(&mut self, frame: &Frame, color: Colorimetry) -> Result<Vec<Object>> {
        self.detect_instances(frame, color).map(|found| found.objects())
    }

    /// The same as one structure of arrays.
    ///
    /// # Errors
    /// As [`Detector::detect`].
    #[doc(hidden)]
    pub fn detect_instances(&mut self, frame: &Frame, color: Colorimetry) -> Result<Detections<'_>> {
        self.find_one(Source::of(frame, color), |preprocessor| preprocessor.of_host(frame))
    }

    /// What is in several frames, which may differ in format and size. They are run in batches of [`Session::batch_size`]:
    /// those that come to the same size of the model's input, which are all where the file fixes that. The results are in the
    /// order of the frames, and those of [`Detector::detect`].
    ///
    /// ```
    /// use gsttrt_core::frame::{Colorimetry, Frame, PixelFormat, Plane};
    /// use gsttrt_core::session::{Detector, parse_options};
    ///
    /// # fn main() -> gsttrt_core::error::Result<()> {
    /// let (options, postprocess) = parse_options(["batch-size=1"])?; // more, where the model has a dynamic batch
    /// let mut detector = Detector::open("../tests/models/shapes-cls.onnx", &options, postprocess)?;
    ///
    /// let pixels = vec![128u8; 640 * 360 * 3];
    /// let planes = [Plane { data: &pixels, stride: 640 * 3 }].into_iter().collect();
    /// let frame = Frame { format: PixelFormat::Rgb, width: 640, height: 360, planes };
    /// let frames = vec![(frame, Colorimetry::default()); 6];
    /// for results in detector.detect_batch(&frames)? {
    ///     println!("{} objects, {} classes", results.objects.len(), results.classes.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Detector::detect`]; the text begins with `frames[3]` where one of them is wrong. Then there are no results.
    pub fn detect_batch(&mut self, frames: &[(Frame, Colorimetry)]) -> Result<Vec<FrameResults>> {
        let mut results = vec![None; frames.len()];
        self.detect_batch_instances(frames, |index, found| results[index] = Some(found.results()))?;
        Ok(results.into_iter().flatten().collect())
    }

    /// The same as structures of arrays: `found` is called with the number of each frame, not in their order.
    ///
    /// # Errors
    /// As [`Detector::detect_batch`].
    #[doc(hidden)]
    pub fn detect_batch_instances(
        &mut self,
        frames: &[(Frame, Colorimetry)],
        found: impl FnMut(usize, Detections<'_>),
    ) -> Result<()> {
        let sources: Vec<Source> = frames.iter().map(|(frame, color)| Source::of(frame, *color)).collect();
        self.find_all(&sources, |preprocessor, numbers| lists::of_host(preprocessor, frames, numbers), found)
    }

    /// The same for a frame in GPU memory, which is read in place, after the work enqueued on `stream` so far. `stream`
    /// is a `CUstream` or `cudaStream_t` of the GPU's primary context, or NULL for the default stream. The frame has
    /// been read when this returns.
    ///
    /// # Safety
    /// `stream` stays until this returns. Nothing writes the frame until then, except the work that `stream` already has.
    ///
    /// # Errors
    /// As [`Detector::detect`]; `WrongType` also if the planes are not memory of this GPU, or of another context than the session's, as
    /// [`Session::run_device`] says; `Library` if the model does not run on a GPU.
    pub unsafe fn detect_device(
        &mut self,
        frame: &DeviceFrame,
        color: Colorimetry,
        stream: *mut c_void,
    ) -> Result<Vec<Object>> {
        // SAFETY: this function asks the same of frame and stream.
        unsafe { self.detect_device_instances(frame, color, stream) }.map(|found| found.objects())
    }

    /// The same as one structure of arrays.
    ///
    /// # Safety
    /// As for [`Detector::detect_device`].
    ///
    /// # Errors
    /// As [`Detector::detect_device`].
    #[doc(hidden)]
    pub unsafe fn detect_device_instances(
        &mut self,
        frame: &DeviceFrame,
        color: Colorimetry,
        stream: *mut c_void,
    ) -> Result<Detections<'_>> {
        let cuda = self.session.cuda()?.clone();
        self.find_one(Source::of_device(frame, color), |preprocessor| {
            // SAFETY: this function asks the same of frame and stream as `of_device`; `find_one` waits for the boxes.
            let made = unsafe { lists::of_device(preprocessor, &cuda, &[(0, frame)], stream) };
            made.map(|mut made| made.remove(0)).map_err(|wrong| wrong.error)
        })
    }

    /// As [`Detector::detect_batch_instances`], of frames in GPU memory, which are read in place, after the work enqueued on
    /// `stream` so far. They have been read when this returns.
    ///
    /// # Safety
    /// As for [`Detector::detect_device`].
    ///
    /// # Errors
    /// As [`Detector::detect_batch`] and [`Detector::detect_device`].
    #[doc(hidden)]
    pub unsafe fn detect_device_batch_instances(
        &mut self,
        frames: &[(DeviceFrame, Colorimetry)],
        stream: *mut c_void,
        found: impl FnMut(usize, Detections<'_>),
    ) -> Result<()> {
        let cuda = self.session.cuda()?.clone();
        let sources: Vec<Source> = frames.iter().map(|(frame, color)| Source::of_device(frame, *color)).collect();
        let make = |made: &mut Preprocessor, numbers: &[usize]| {
            let alike: Vec<(usize, &DeviceFrame)> = numbers.iter().map(|&number| (number, &frames[number].0)).collect();
            // SAFETY: as above; `find_all` waits for the boxes of all frames, and where it fails for the work that reads them.
            unsafe { lists::of_device(made, &cuda, &alike, stream) }
        };
        self.find_all(&sources, make, found)
    }

    /// The classes of the last frame as a whole, by descending confidence, if the model is a classifier; of a model of anomalies the
    /// one class `anomaly` with its score. Such models find no objects.
    pub fn classes(&self) -> Vec<FrameClass> {
        self.last().map_or_else(Vec::new, |found| found.classes())
    }

    /// The vector of the last frame, of the length 1, if the model gives vectors: those of similar pictures have a product near 1.
    /// Such models find no objects.
    pub fn vector(&self) -> Option<&[f32]> {
        self.last()?.vector()
    }

    /// The text of the last frame with its confidence, 0..1, if the model reads text; empty where it has read nothing. Such models find
    /// no objects.
    pub fn text(&self) -> Option<(&str, f32)> {
        self.last()?.text()
    }

    /// The map of the last frame, if the model gives a class or a depth for each pixel, or if the option
    /// `mask-output=map` asks for the objects of pixels.
    pub fn map(&self) -> Option<&PixelMap> {
        self.last()?.map()
    }

    /// The results of the last frame.
    fn last(&self) -> Option<Detections<'_>> {
        if let Some(instances) = &self.between {
            return Some(Detections { instances, labels: &[] });
        }
        let processor = self.postprocessor.as_ref()?;
        Some(Detections { instances: processor.instances(), labels: &processor.labels })
    }

    fn preprocessor(&mut self, source: Source) -> Result<&mut Preprocessor> {
        let made = match self.preprocessor.take().filter(|(made_for, _)| *made_for == source) {
            Some(made) => made,
            None => {
                let Source { format, size, color } = source;
                let (session, spec) = self.fit(size)?;
                let mut made = Preprocessor::new(session.request.cuda.as_ref(), format, size, color, &spec.of_frame())?;
                if let Preprocessor::Device(device) = &mut made {
                    device.set_upload(session.upload);
                }
                (source, made)
            }
        };
        Ok(&mut self.preprocessor.insert(made).1)
    }

    /// The tensor that frames of that size become.
    fn spec_for(&mut self, (width, height): (usize, usize)) -> InputSpec {
        // Frames beyond these limits are refused by the preprocessor.
        let side = |side: usize| side.clamp(1, MAX_SIDE) as u32;
        let request = &self.session.request;
        let spec = request.spec_for((side(width), side(height)));
        if !request.waits_for_frames() || spec == request.spec {
            return spec;
        }
        // It is loaded for one more size. Frames of a third shape are scaled to the size that takes all.
        let fitted = self.fitted_spec.get_or_insert_with(|| spec.clone());
        if *fitted == spec { spec } else { request.spec.clone() }
    }

    /// The session for frames of that size, and the tensor that they become.
    fn fit(&mut self, size: (usize, usize)) -> Result<(&Session, InputSpec)> {
        let spec = self.spec_for(size);
        self.is_fitted = self.fitted_spec.as_ref() == Some(&spec);
        if self.is_fitted && self.fitted.is_none() {
            self.fitted = Some(self.session.for_tensor(spec.clone())?);
        }
        Ok((self.fitted.as_ref().filter(|_| self.is_fitted).unwrap_or(&self.session), spec))
    }

    /// What is in one frame.
    pub(super) fn find_one(
        &mut self,
        source: Source,
        make: impl FnOnce(&mut Preprocessor) -> Result<Tensors>,
    ) -> Result<Detections<'_>> {
        if self.sees_clips() {
            return self.find_in_clip(source, make);
        }
        let picture = self.picture(source, make)?;
        let outputs = self.infer(std::slice::from_ref(&picture.tensors))?.remove(0);
        self.find(&outputs, &picture.letterbox)
    }

    /// The tensor of a frame.
    fn picture(&mut self, source: Source, make: impl FnOnce(&mut Preprocessor) -> Result<Tensors>) -> Result<Picture> {
        let preprocessor = self.preprocessor(source)?;
        preprocessor.set_row(None);
        Ok(Picture { letterbox: *preprocessor.letterbox(), tensors: Arc::new(make(preprocessor)?) })
    }

    /// What runs the model on pictures of the current size.
    fn running(&mut self) -> &mut Session {
        self.fitted.as_mut().filter(|_| self.is_fitted).unwrap_or(&mut self.session)
    }

    /// Runs the model on pictures of the current size.
    fn infer(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        let outputs = self.running().infer(pictures);
        // It is the same model to who asks for warnings.
        let of_fitted = self.fitted.iter_mut().flat_map(|fitted| fitted.warnings.drain(..));
        tell(&mut self.session.warnings, of_fitted);
        outputs
    }

    /// The objects of a picture.
    fn find(&mut self, outputs: &Tensors, letterbox: &Letterbox) -> Result<Detections<'_>> {
        let mut processor = self.take_postprocessor(outputs, letterbox)?;
        let outcome = processor.find(outputs, letterbox);
        if outcome.is_ok() {
            self.watch_scores(&mut processor);
        }
        self.postprocessor = Some(processor);
        outcome?;
        Ok(self.last().expect("just found"))
    }

    /// The postprocessor for such outputs, with the options as they are now. It goes back to `postprocessor`.
    fn take_postprocessor(&mut self, outputs: &Tensors, letterbox: &Letterbox) -> Result<Postprocessor> {
        let model = self.session.request.model().clone();
        let fits = |made: &Postprocessor| made.matches(&model, outputs, letterbox) && made.has_same_head(&self.options);
        let mut processor = match self.postprocessor.take().filter(fits) {
            Some(made) => made,
            None => {
                let made = Postprocessor::new(self.options.clone(), &model, outputs, letterbox)?;
                let is_normalised = self.has_own_transform || self.session.wishes.is_normalised();
                let hints = made.hints(&self.session.request.spec.transform, is_normalised);
                tell(&mut self.session.notes, hints);
                tell(&mut self.session.warnings, made.without_effect(false));
                let Session { wishes, request, warnings, .. } = &mut self.session;
                tell(warnings, wishes.without_effect(&request.spec.transform, self.takes_parts));
                made
            }
        };
        if *processor.options() != self.options {
            if let Err(error) = processor.adjust(self.options.clone()) {
                self.postprocessor = Some(processor);
                return Err(error);
            }
            tell(&mut self.session.warnings, processor.without_effect(false));
        }
        Ok(processor)
    }

    /// Takes over what is to be told of the numbers that were just read.
    fn watch_scores(&mut self, processor: &mut Postprocessor) {
        let not_finite = processor.not_finite();
        self.is_finite = not_finite.is_none();
        if let Some(warning) = not_finite
            && !std::mem::replace(&mut self.has_told_of_scores, true)
        {
            tell(&mut self.session.warnings, [warning]);
        }
        if let Some(warning) = processor.above_one()
            && !std::mem::replace(&mut self.has_told_of_large_scores, true)
        {
            tell(&mut self.session.warnings, [warning]);
        }
        if let Some(warning) = processor.beyond_classes()
            && !std::mem::replace(&mut self.has_told_of_ids, true)
        {
            tell(&mut self.session.warnings, [warning]);
        }
    }
}

impl Source {
    pub(super) fn of(frame: &Frame, color: Colorimetry) -> Self {
        Source { format: frame.format, size: (frame.width, frame.height), color }
    }

    fn of_device(frame: &DeviceFrame, color: Colorimetry) -> Self {
        Source { format: frame.format, size: (frame.width, frame.height), color }
    }
}
