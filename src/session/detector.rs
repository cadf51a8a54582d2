//! Frames in, objects out: what `trtpreprocess ! trtinfer ! trtnms` do with a frame in host memory.

use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

use super::{Finder, Session, SessionOptions, Wishes};
use crate::core::error::Result;
use crate::core::memory::Pool;
use crate::core::tensor::{Tensor, TensorDesc, Tensors};
use crate::gst::meta::detection::label_text;
use crate::image::device::DevicePlanes;
use crate::image::frame::{Colorimetry, Frame, PixelFormat};
use crate::image::geometry::{BBox, Letterbox};
use crate::image::preprocess::HostPreprocessor;
use crate::image::preprocess::device::DevicePreprocessor;
use crate::image::transform::InputTransform;

/// An object in a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The class's name, or `#` and its id where it has none.
    pub label: String,
    pub class_id: u32,
    /// 0..1
    pub confidence: f32,
    /// In pixels of the frame, inside it.
    pub bbox: BBox,
}

/// A detection model with all around it: preprocessing, decoding, suppression.
///
/// ```
/// use gsttrt::session::{Detector, SessionOptions, Wishes};
/// use gsttrt::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
///
/// # fn main() -> gsttrt::core::error::Result<()> {
/// let wishes = Wishes { score_threshold: 0.5, ..Wishes::default() };
/// let mut detector = Detector::open("tests/models/shapes.onnx", &SessionOptions::default(), wishes)?;
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
    wishes: Wishes,
    /// Made for the frames that come.
    maker: Option<(Source, Preprocessor)>,
    /// Made for the outputs that come.
    finder: Option<Finder>,
}

/// A frame in GPU memory.
#[derive(Clone, Debug)]
pub struct DeviceFrame {
    pub format: PixelFormat,
    pub width: usize,
    pub height: usize,
    pub planes: DevicePlanes,
}

/// The frames that a maker is made for.
#[derive(Clone, Copy, PartialEq)]
struct Source {
    format: PixelFormat,
    size: (usize, usize),
    color: Colorimetry,
}

/// What makes the tensors, where the model wants them.
enum Preprocessor {
    Cpu { preprocess: Box<HostPreprocessor>, desc: TensorDesc, pool: Pool },
    Gpu(Box<DevicePreprocessor>),
}

impl Detector {
    /// Loads a detection model.
    ///
    /// # Errors
    /// As [`Session::open`] and [`Detector::new`].
    pub fn open(path: impl AsRef<Path>, options: &SessionOptions, wishes: Wishes) -> Result<Self> {
        Detector::new(Session::open(path, options)?, wishes)
    }

    /// Detects with a model that is loaded already.
    ///
    /// # Errors
    /// `Model`, where the file says that its task is another.
    pub fn new(session: Session, wishes: Wishes) -> Result<Self> {
        session.model().check_task()?;
        Ok(Detector::unchecked(session, wishes))
    }

    /// For who asks for the task only when something is to be detected.
    pub(crate) fn unchecked(session: Session, wishes: Wishes) -> Self {
        Detector { session, wishes, maker: None, finder: None }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// How a frame becomes the model's input, as the model wants it.
    pub fn recipe(&self) -> &InputTransform {
        &self.session.plan.spec.recipe
    }

    /// Prepares frames otherwise from the next one on, for models that do not say what they want; as the properties of
    /// trtpreprocess do. Who forces a layout may want [`Layout::recipe`](crate::heads::Layout::recipe).
    pub fn set_recipe(&mut self, recipe: InputTransform) {
        self.session.plan.spec.recipe = recipe;
        self.maker = None;
    }

    /// What counts from the next frame on.
    pub fn set_wishes(&mut self, wishes: Wishes) {
        self.wishes = wishes;
    }

    /// The objects in a frame, the best confidence first. `color` matters to YUV and gray formats.
    ///
    /// Tables are made for frames of one kind, so frames that alternate between formats or sizes take longer.
    ///
    /// # Errors
    /// `WrongType`, where the frame's planes do not hold its rows; `Negotiation`, where no tensor can be made of it;
    /// `Settings`, where the wishes do not suit the model or its layout is not recognised; `Run`, where running failed. The
    /// detector stays usable.
    pub fn detect(&mut self, frame: &Frame, color: Colorimetry) -> Result<Vec<Object>> {
        let maker = self.maker(Source { format: frame.format, size: (frame.width, frame.height), color })?;
        let (letterbox, picture) = (*maker.letterbox(), maker.of_host(frame)?);
        self.find(picture, letterbox)
    }

    /// The same for a frame in GPU memory, which is read where it is, behind all that is queued on `stream` so far: a
    /// `CUstream` or `cudaStream_t` of the GPU's primary context, NULL for the default one. When this returns, it has been
    /// read.
    ///
    /// # Safety
    /// `stream` is alive, and nobody writes the frame meanwhile.
    ///
    /// # Errors
    /// As [`Detector::detect`]; `WrongType`, where the planes are not memory of this GPU or too small; `Library`, where the
    /// model does not run on a GPU.
    pub unsafe fn detect_device(
        &mut self,
        frame: &DeviceFrame,
        color: Colorimetry,
        stream: *mut c_void,
    ) -> Result<Vec<Object>> {
        let DeviceFrame { format, width, height, ref planes } = *frame;
        let cuda = self.session.cuda()?.clone();
        let Preprocessor::Gpu(maker) = self.maker(Source { format, size: (width, height), color })? else {
            unreachable!("there is a context");
        };
        for (plane, (row, rows)) in planes.iter().zip(format.planes(width, height)) {
            let bytes = plane.stride.saturating_mul(rows.saturating_sub(1)).saturating_add(row);
            cuda.check_memory(plane.address, bytes)?;
        }
        // SAFETY: the stream as the caller says; the planes were checked, and stay until the boxes are found, for which the
        // host waits.
        let picture = unsafe {
            maker.stream().wait_for(stream)?;
            maker.of_gpu(planes)?
        };
        let letterbox = *maker.letterbox();
        self.find(picture, letterbox)
    }

    fn maker(&mut self, source: Source) -> Result<&mut Preprocessor> {
        let made = self.maker.take().filter(|(made_for, _)| *made_for == source);
        let made = made.map_or_else(|| Preprocessor::new(source, &self.session).map(|maker| (source, maker)), Ok)?;
        Ok(&mut self.maker.insert(made).1)
    }

    /// The objects in a picture.
    fn find(&mut self, picture: Tensors, letterbox: Letterbox) -> Result<Vec<Object>> {
        let outputs = self.session.infer(Arc::new(picture))?;
        let model = self.session.plan.model().clone();
        let finder = match &mut self.finder {
            Some(finder) if finder.suits(&model, &outputs) && finder.is_of(&self.wishes) => finder,
            other => other.insert(Finder::new(self.wishes.clone(), &model, &outputs, &letterbox)?),
        };
        if *finder.wishes() != self.wishes {
            finder.adjust(self.wishes.clone())?;
        }
        finder.find(&outputs, &letterbox)?;
        let object = |detection: &crate::image::Detection| Object {
            label: label_text(&finder.labels, detection.class),
            class_id: detection.class,
            confidence: detection.score,
            bbox: detection.bbox,
        };
        Ok(finder.detections().iter().map(object).collect())
    }
}

impl Preprocessor {
    fn new(source: Source, session: &Session) -> Result<Self> {
        let (Source { format, size, color }, spec) = (source, &session.plan.spec);
        Ok(match &session.plan.cuda {
            Some(cuda) => {
                let mut maker = DevicePreprocessor::new(cuda, format, size, color, spec)?;
                maker.set_upload(session.upload);
                Preprocessor::Gpu(Box::new(maker))
            }
            None => {
                let preprocess = Box::new(HostPreprocessor::new(format, size.0, size.1, color, spec)?);
                Preprocessor::Cpu { preprocess, desc: spec.desc.clone(), pool: Pool::default() }
            }
        })
    }

    fn of_host(&mut self, frame: &Frame) -> Result<Tensors> {
        match self {
            Preprocessor::Cpu { preprocess, desc, pool } => {
                let tensor = Tensor::fill(pool, desc.clone(), |bytes| preprocess.run(frame, bytes))?;
                Ok(Tensors::new(vec![tensor], None, None))
            }
            Preprocessor::Gpu(maker) => maker.of_host(frame),
        }
    }

    fn letterbox(&self) -> &Letterbox {
        match self {
            Preprocessor::Cpu { preprocess, .. } => preprocess.letterbox(),
            Preprocessor::Gpu(maker) => maker.letterbox(),
        }
    }
}
