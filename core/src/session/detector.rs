// SPDX-License-Identifier: MPL-2.0
//! Frames in, objects out: what `trtpreprocess ! trtinfer ! trtnms` do with a frame in host memory.

use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

use super::{PostprocessOptions, Session, SessionOptions};
use crate::error::Result;
use crate::image::device::DevicePlanes;
use crate::image::frame::{Colorimetry, Frame, PixelFormat};
use crate::image::geometry::{BBox, Letterbox};
use crate::image::map::PixelMap;
use crate::image::masks::Mask;
use crate::image::preprocess::{MAX_SIDE, Preprocessor};
use crate::image::rotated::RotatedBox;
use crate::image::transform::{InputSpec, InputTransform};
use crate::image::{Candidate, label_text};
use crate::postprocess::{Instances, Postprocessor, RankedClass};
use crate::tensor::Tensors;

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
    /// For the input size that frames needed first, where that is not the size of `session`.
    fitted: Option<Session>,
    /// Whether it runs the model for the current kind of frames.
    is_fitted: bool,
    options: PostprocessOptions,
    /// The preprocessor for the current kind of frames.
    preprocessor: Option<(Source, Preprocessor)>,
    /// The postprocessor for the current outputs.
    postprocessor: Option<Postprocessor>,
}

/// A frame in GPU memory.
#[derive(Clone, Debug)]
pub struct DeviceFrame {
    pub format: PixelFormat,
    pub width: usize,
    pub height: usize,
    pub planes: DevicePlanes,
}

/// The kind of frames that a preprocessor is made for.
#[derive(Clone, Copy, PartialEq)]
struct Source {
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
    /// `Model`, if the file declares another task.
    pub fn new(session: Session, options: PostprocessOptions) -> Result<Self> {
        session.model().check_task()?;
        Ok(Detector::unchecked(session, options))
    }

    /// The same without a check of the task, for applications that check it later.
    #[doc(hidden)]
    pub fn unchecked(mut session: Session, options: PostprocessOptions) -> Self {
        if options.layout.is_some() {
            session.prepare_for(options.layout);
        }
        Detector { session, fitted: None, is_fitted: false, options, preprocessor: None, postprocessor: None }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
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
        (self.preprocessor, self.fitted, self.is_fitted) = (None, None, false);
    }

    /// Changes the options from the next frame on. Another layout brings the conversion that its models want.
    pub fn set_options(&mut self, options: PostprocessOptions) {
        if options.layout != self.options.layout {
            self.session.prepare_for(options.layout);
            (self.preprocessor, self.fitted, self.is_fitted) = (None, None, false);
        }
        self.options = options;
    }

    /// The objects in a frame, by descending confidence. `color` is used for YUV and gray formats.
    ///
    /// Tables are computed for each new format or size, so frames that alternate between them take longer.
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
        let preprocessor =
            self.preprocessor(Source { format: frame.format, size: (frame.width, frame.height), color })?;
        let (letterbox, picture) = (*preprocessor.letterbox(), preprocessor.of_host(frame)?);
        self.find(picture, letterbox)
    }

    /// The same for a frame in GPU memory, which is read in place, after the work enqueued on `stream` so far. `stream`
    /// is a `CUstream` or `cudaStream_t` of the GPU's primary context, or NULL for the default stream. The frame has
    /// been read when this returns.
    ///
    /// # Safety
    /// `stream` stays until this returns. Nothing writes the frame until then, except the work that `stream` already has.
    ///
    /// # Errors
    /// As [`Detector::detect`]; `WrongType` also if the planes are not memory of this GPU; `Library` if the model does
    /// not run on a GPU.
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
        let DeviceFrame { format, width, height, ref planes } = *frame;
        let cuda = self.session.cuda()?.clone();
        let Preprocessor::Device(preprocessor) = self.preprocessor(Source { format, size: (width, height), color })?
        else {
            unreachable!("there is a context");
        };
        for (plane, (row, rows)) in planes.iter().zip(format.planes(width, height)) {
            let bytes = plane.stride.saturating_mul(rows.saturating_sub(1)).saturating_add(row);
            cuda.check_memory(plane.address, bytes)?;
        }
        // SAFETY: the stream is of this context, and stays: this function asks for both. The driver knows the planes as
        // memory of this context. They are read before this function returns: `find` waits for the boxes, and on errors
        // the drop of `picture` waits for its fence.
        let picture = unsafe {
            preprocessor.stream().wait_for(stream)?;
            preprocessor.of_gpu(planes)?
        };
        let letterbox = *preprocessor.letterbox();
        self.find(picture, letterbox)
    }

    /// The classes of the last frame as a whole, by descending confidence, if the model is a classifier. Such models find no
    /// objects.
    pub fn classes(&self) -> Vec<FrameClass> {
        let Some(processor) = &self.postprocessor else { return Vec::new() };
        let class = |found: &RankedClass| FrameClass {
            label: label_text(&processor.labels, found.class).into_owned(),
            class_id: found.class,
            confidence: found.score,
        };
        processor.instances().frame_classes().iter().map(class).collect()
    }

    /// The map of the last frame, if the model gives a class or a depth for each pixel, or if the option
    /// `mask-output=map` asks for the objects of pixels.
    pub fn map(&self) -> Option<&PixelMap> {
        self.postprocessor.as_ref()?.instances().frame_map().filter(|map| !map.is_hidden)
    }

    fn preprocessor(&mut self, source: Source) -> Result<&mut Preprocessor> {
        let made = match self.preprocessor.take().filter(|(made_for, _)| *made_for == source) {
            Some(made) => made,
            None => {
                let Source { format, size, color } = source;
                let (session, spec) = self.fit(size)?;
                let mut made = Preprocessor::new(session.request.cuda.as_ref(), format, size, color, &spec)?;
                if let Preprocessor::Device(device) = &mut made {
                    device.set_upload(session.upload);
                }
                (source, made)
            }
        };
        Ok(&mut self.preprocessor.insert(made).1)
    }

    /// The session for frames of that size, and the tensor that they become.
    fn fit(&mut self, (width, height): (usize, usize)) -> Result<(&Session, InputSpec)> {
        let request = &self.session.request;
        // Frames beyond these limits are refused by the preprocessor.
        let side = |side: usize| side.clamp(1, MAX_SIDE) as u32;
        let spec = request.spec_for((side(width), side(height)));
        let needs_another = request.waits_for_frames() && spec != request.spec;
        if needs_another && self.fitted.is_none() {
            self.fitted = Some(self.session.for_tensor(spec.clone())?);
        }
        // It is loaded for one size. Frames of a third shape are scaled to the size that takes all.
        let fitted = self.fitted.as_ref().filter(|fitted| needs_another && fitted.request.spec == spec);
        self.is_fitted = fitted.is_some();
        let spec = if needs_another && !self.is_fitted { request.spec.clone() } else { spec };
        Ok((fitted.unwrap_or(&self.session), spec))
    }

    /// The objects in a picture.
    fn find(&mut self, picture: Tensors, letterbox: Letterbox) -> Result<Detections<'_>> {
        let outputs =
            self.fitted.as_mut().filter(|_| self.is_fitted).unwrap_or(&mut self.session).infer(Arc::new(picture))?;
        let model = self.session.request.model().clone();
        let fits =
            |made: &Postprocessor| made.matches(&model, &outputs, &letterbox) && made.has_same_head(&self.options);
        let processor = match self.postprocessor.take().filter(fits) {
            Some(made) => made,
            None => Postprocessor::new(self.options.clone(), &model, &outputs, &letterbox)?,
        };
        let processor = self.postprocessor.insert(processor);
        if *processor.options() != self.options {
            processor.adjust(self.options.clone())?;
        }
        processor.find(&outputs, &letterbox)?;
        Ok(Detections { instances: processor.instances(), labels: &processor.labels })
    }
}

impl Detections<'_> {
    fn objects(&self) -> Vec<Object> {
        let Detections { instances, labels } = *self;
        let point = |point: &[f32]| Keypoint { x: point[0], y: point[1], visibility: point.get(2).copied() };
        let keypoints = |object: usize| match &instances.keypoints {
            Some(points) => points.of(object).chunks_exact(points.model.shape.dims.into()).map(point).collect(),
            None => Vec::new(),
        };
        let object = |(i, candidate): (usize, &Candidate)| Object {
            label: label_text(labels, candidate.class).into_owned(),
            class_id: candidate.class,
            confidence: candidate.score,
            bbox: candidate.bbox,
            rotated: instances.rotated_box(i),
            keypoints: keypoints(i),
            mask: instances.mask(i),
        };
        instances.boxes.iter().enumerate().map(object).collect()
    }
}
