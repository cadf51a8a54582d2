use std::path::PathBuf;
use std::sync::{LazyLock, Mutex};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::subclass::BaseTransformMode;
use gst_base::subclass::base_transform::{InputBuffer, PrepareOutputBufferSuccess};
use gst_base::subclass::prelude::*;

use super::LayoutChoice;
use super::detector::{Detector, Wishes};
use crate::error::{Error, Kind, Result};
use crate::meta::detection;
use crate::meta::tensor::{Payload, TensorMeta};
use crate::video::{self, Format, FramePool};
use crate::vision::Detection;
use crate::vision::overlay::{Overlay, Style};

static CAT: LazyLock<gst::DebugCategory> =
    LazyLock::new(|| gst::DebugCategory::new("trtnms", gst::DebugColorFlags::empty(), Some("Model outputs to boxes")));

/// What the user typed.
#[derive(Clone)]
struct Settings {
    layout: LayoutChoice,
    label_file: Option<PathBuf>,
    score_threshold: f32,
    class_thresholds: String,
    classes: String,
    iou_threshold: f32,
    max_detections: u32,
    class_agnostic: bool,
    draw: bool,
    draw_labels: bool,
    line_width: u32,
    post_messages: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            layout: LayoutChoice::Auto,
            label_file: None,
            score_threshold: 0.25,
            class_thresholds: String::new(),
            classes: String::new(),
            iou_threshold: 0.45,
            max_detections: 300,
            class_agnostic: false,
            draw: true,
            draw_labels: true,
            line_width: 0,
            post_messages: false,
        }
    }
}

impl Settings {
    fn wishes(&self) -> Wishes {
        Wishes {
            layout: self.layout.into(),
            label_file: self.label_file.clone(),
            score_threshold: self.score_threshold,
            class_thresholds: self.class_thresholds.clone(),
            classes: self.classes.clone(),
            iou_threshold: self.iou_threshold,
            max_detections: self.max_detections as usize,
            class_agnostic: self.class_agnostic,
        }
    }

    fn style(&self) -> Style {
        Style { labels: self.draw_labels, line_width: self.line_width }
    }
}

/// What set_caps() and the first frame made.
struct State {
    format: Format,
    detector: Option<Detector>,
    overlay: Overlay,
    pool: FramePool,
    /// Frames since the caps were set, those without tensors included.
    frames: u64,
}

/// Lock order: settings before state; settings are copied, and never locked while a frame is handled.
#[derive(Default)]
pub struct TrtNms {
    settings: Mutex<Settings>,
    state: Mutex<Option<State>>,
}

impl TrtNms {
    fn handle(&self, state: &mut State, buffer: &mut gst::BufferRef) -> Result<()> {
        let settings = self.settings.lock().unwrap().clone();
        let frame = state.frames;
        state.frames += 1;
        let Some(payload) = TensorMeta::take(buffer) else {
            return Err(missing("trtnms got a frame without tensors", "trtpreprocess ! trtinfer"));
        };
        let (tensors, letterbox, recipe, model) = match &*payload {
            Payload::Output { tensors, letterbox, recipe, model } => (tensors, letterbox, recipe, model),
            Payload::Skipped => return Ok(()),
            Payload::Input { .. } => return Err(missing("trtnms got a frame that no model has seen", "trtinfer")),
        };

        let wishes = settings.wishes();
        let detector = match &mut state.detector {
            Some(detector) if detector.suits(model, tensors) => {
                if *detector.wishes() != wishes
                    && let Err(error) = detector.adjust(wishes)
                {
                    // A slip of the hand in a running pipeline must not end it: say so once, and go on as before.
                    gst::element_imp_warning!(
                        self,
                        gst::ResourceError::Settings,
                        ("{error} The settings stay as they were.")
                    );
                    self.restore(detector.wishes());
                }
                detector
            }
            other => {
                let detector = Detector::new(wishes, model, tensors, letterbox)?;
                let layout = detector.decoder.layout();
                gst::info!(CAT, imp = self, "{} is {layout}: {}", model.path.display(), layout.expects());
                if settings.layout != LayoutChoice::Auto && layout.recipe() != *recipe {
                    gst::element_imp_warning!(
                        self,
                        gst::StreamError::Format,
                        ("Models of layout {layout} usually want another input than this one got. If boxes are wrong, set tensor-colors, scale and resize on trtpreprocess."),
                        ["usual: {:?}, here: {recipe:?}", layout.recipe()]
                    );
                }
                other.insert(detector)
            }
        };

        let labels = detector.labels.clone();
        let detections = detector.detect(tensors, letterbox)?;
        gst::trace!(CAT, imp = self, "frame {frame}: {} objects", detections.len());
        if settings.draw && !detections.is_empty() {
            let (overlay, style) = (&mut state.overlay, settings.style());
            state.format.draw(buffer, |frame| overlay.draw(frame, detections, &labels, &style))?;
        }
        detection::attach(buffer, detections, &labels, state.format.size());
        if settings.post_messages {
            self.post(buffer.pts(), frame, detections, &labels, state.format.size());
        }
        Ok(())
    }

    /// Puts the two texts back that could not be taken over, so that properties say what is in force.
    fn restore(&self, wishes: &Wishes) {
        let mut settings = self.settings.lock().unwrap();
        settings.classes.clone_from(&wishes.classes);
        settings.class_thresholds.clone_from(&wishes.class_thresholds);
    }

    fn post(
        &self,
        pts: Option<gst::ClockTime>,
        frame: u64,
        detections: &[Detection],
        labels: &[String],
        size: (u32, u32),
    ) {
        let objects = detections.iter().map(|detection| {
            let bbox = &detection.bbox;
            gst::Structure::builder("detection")
                .field("label", detection::label_text(labels, detection.class))
                .field("class-id", detection.class)
                .field("confidence", f64::from(detection.score))
                .field("x", f64::from(bbox.x1))
                .field("y", f64::from(bbox.y1))
                .field("w", f64::from(bbox.width()))
                .field("h", f64::from(bbox.height()))
                .build()
                .to_send_value()
        });
        let structure = gst::Structure::builder("trt-detections")
            .field("pts", pts)
            .field("frame", frame)
            .field("width", size.0)
            .field("height", size.1)
            .field("detections", gst::Array::from_values(objects))
            .build();
        let message = gst::message::Element::builder(structure).src(&*self.obj()).build();
        let _ = self.obj().post_message(message);
    }

    fn report(&self, error: Error) -> gst::FlowError {
        self.obj().post_error_message(error.to_gst());
        gst::FlowError::Error
    }
}

fn missing(what: &str, elements: &str) -> Error {
    Error::new(Kind::WrongType, what)
        .cause(format!("{elements} is missing before trtnms in the launch line"))
        .remedy("The order is … ! trtpreprocess ! trtinfer ! trtnms ! …")
}

#[glib::object_subclass]
impl ObjectSubclass for TrtNms {
    const NAME: &'static str = "GstTrtNms";
    type Type = super::TrtNms;
    type ParentType = gst_base::BaseTransform;
}

impl ObjectImpl for TrtNms {
    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
            let default = Settings::default();
            vec![
                glib::ParamSpecEnum::builder_with_default("layout", default.layout)
                    .nick("Layout")
                    .blurb("How the model writes its boxes")
                    .mutable_ready()
                    .build(),
                glib::ParamSpecString::builder("label-file")
                    .nick("Label file")
                    .blurb("UTF-8 text with one class name a line (unset = names from the model file)")
                    .mutable_ready()
                    .build(),
                glib::ParamSpecFloat::builder("score-threshold")
                    .nick("Score threshold")
                    .blurb("Boxes with a lower score are dropped")
                    .minimum(0.0)
                    .maximum(1.0)
                    .default_value(default.score_threshold)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecString::builder("class-thresholds")
                    .nick("Class thresholds")
                    .blurb("Score thresholds of single classes by name or id, like person=0.5,car=0.3")
                    .mutable_playing()
                    .build(),
                glib::ParamSpecString::builder("classes")
                    .nick("Classes")
                    .blurb("Names or ids of the classes to keep, like person,car (unset = all)")
                    .mutable_playing()
                    .build(),
                glib::ParamSpecFloat::builder("iou-threshold")
                    .nick("IoU threshold")
                    .blurb("Overlap (intersection over union) above which the weaker of two boxes is dropped")
                    .minimum(0.0)
                    .maximum(1.0)
                    .default_value(default.iou_threshold)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecUInt::builder("max-detections")
                    .nick("Maximum detections")
                    .blurb("Most boxes kept in a frame, best scores first")
                    .minimum(1)
                    .maximum(65536)
                    .default_value(default.max_detections)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecBoolean::builder("class-agnostic")
                    .nick("Class agnostic")
                    .blurb("Let boxes of different classes suppress each other")
                    .default_value(default.class_agnostic)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecBoolean::builder("draw")
                    .nick("Draw")
                    .blurb("Draw the boxes on the frame")
                    .default_value(default.draw)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecBoolean::builder("draw-labels")
                    .nick("Draw labels")
                    .blurb("Write class and score at each drawn box")
                    .default_value(default.draw_labels)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecUInt::builder("line-width")
                    .nick("Line width")
                    .blurb("Width of the outlines in pixels (0 = by the size of the frame)")
                    .maximum(64)
                    .default_value(default.line_width)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecBoolean::builder("post-messages")
                    .nick("Post messages")
                    .blurb("Post an element message named trt-detections for each frame")
                    .default_value(default.post_messages)
                    .mutable_playing()
                    .build(),
            ]
        });
        &PROPERTIES
    }

    fn set_property(&self, _id: usize, value: &glib::Value, pspec: &glib::ParamSpec) {
        gst::info!(CAT, imp = self, "{} = {value:?}", pspec.name());
        let mut settings = self.settings.lock().unwrap();
        let text = || value.get::<Option<String>>().expect("a string property").unwrap_or_default();
        match pspec.name() {
            "layout" => settings.layout = value.get().expect("checked by GObject"),
            "label-file" => settings.label_file = value.get::<Option<PathBuf>>().expect("checked by GObject"),
            "score-threshold" => settings.score_threshold = value.get().expect("checked by GObject"),
            "class-thresholds" => settings.class_thresholds = text(),
            "classes" => settings.classes = text(),
            "iou-threshold" => settings.iou_threshold = value.get().expect("checked by GObject"),
            "max-detections" => settings.max_detections = value.get().expect("checked by GObject"),
            "class-agnostic" => settings.class_agnostic = value.get().expect("checked by GObject"),
            "draw" => settings.draw = value.get().expect("checked by GObject"),
            "draw-labels" => settings.draw_labels = value.get().expect("checked by GObject"),
            "line-width" => settings.line_width = value.get().expect("checked by GObject"),
            "post-messages" => settings.post_messages = value.get().expect("checked by GObject"),
            other => unreachable!("property {other}"),
        }
    }

    fn property(&self, _id: usize, pspec: &glib::ParamSpec) -> glib::Value {
        let settings = self.settings.lock().unwrap();
        let text = |text: &String| (!text.is_empty()).then_some(text.as_str()).to_value();
        match pspec.name() {
            "layout" => settings.layout.to_value(),
            "label-file" => settings.label_file.as_deref().to_value(),
            "score-threshold" => settings.score_threshold.to_value(),
            "class-thresholds" => text(&settings.class_thresholds),
            "classes" => text(&settings.classes),
            "iou-threshold" => settings.iou_threshold.to_value(),
            "max-detections" => settings.max_detections.to_value(),
            "class-agnostic" => settings.class_agnostic.to_value(),
            "draw" => settings.draw.to_value(),
            "draw-labels" => settings.draw_labels.to_value(),
            "line-width" => settings.line_width.to_value(),
            "post-messages" => settings.post_messages.to_value(),
            other => unreachable!("property {other}"),
        }
    }
}

impl GstObjectImpl for TrtNms {}

impl ElementImpl for TrtNms {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "TensorRT detection decoder",
                "Filter/Analyzer/Video",
                "Turns the outputs of a detection model into boxes: decodes, suppresses, attaches and draws them",
                env!("CARGO_PKG_REPOSITORY"),
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(video::pad_templates);
        &TEMPLATES
    }
}

impl BaseTransformImpl for TrtNms {
    const MODE: BaseTransformMode = BaseTransformMode::AlwaysInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    fn start(&self) -> std::result::Result<(), gst::ErrorMessage> {
        // Only to fail early: it is read again with the model, whose classes it must match.
        let label_file = self.settings.lock().unwrap().label_file.clone();
        label_file.map_or(Ok(()), |path| super::classes::read_labels(&path).map(drop)).map_err(|error| error.to_gst())
    }

    fn stop(&self) -> std::result::Result<(), gst::ErrorMessage> {
        *self.state.lock().unwrap() = None;
        Ok(())
    }

    fn transform_caps(
        &self,
        _direction: gst::PadDirection,
        caps: &gst::Caps,
        filter: Option<&gst::Caps>,
    ) -> Option<gst::Caps> {
        let caps = video::without_tensor(&video::usable(caps));
        Some(match filter {
            Some(filter) => filter.intersect_with_mode(&caps, gst::CapsIntersectMode::First),
            None => caps,
        })
    }

    fn set_caps(&self, incaps: &gst::Caps, _outcaps: &gst::Caps) -> std::result::Result<(), gst::LoggableError> {
        let made = Format::from_caps(incaps).and_then(|format| Ok((FramePool::new(&format)?, format)));
        let (pool, format) = made.map_err(|error| {
            self.obj().post_error_message(error.to_gst());
            gst::loggable_error!(CAT, "{error}")
        })?;
        let mut state = self.state.lock().unwrap();
        let (detector, frames) = state.take().map_or((None, 0), |old| (old.detector, old.frames));
        *state = Some(State { format, detector, overlay: Overlay::default(), pool, frames });
        Ok(())
    }

    /// A frame that others share is copied before it is drawn on, into a pool of our own: decoders keep the frames that they
    /// predict from, so this is the usual case and must not allocate.
    fn prepare_output_buffer(
        &self,
        inbuf: InputBuffer,
    ) -> std::result::Result<PrepareOutputBufferSuccess, gst::FlowError> {
        let draw = self.settings.lock().unwrap().draw;
        let buffer: &gst::BufferRef = match &inbuf {
            InputBuffer::Writable(buffer) => buffer,
            InputBuffer::Readable(buffer) => buffer,
        };
        let skipped = matches!(TensorMeta::get(buffer).as_deref(), Some(Payload::Skipped));
        let shared = !buffer.is_all_memory_writable();
        if !draw || skipped || (!shared && matches!(inbuf, InputBuffer::Writable(_))) {
            return self.parent_prepare_output_buffer(inbuf);
        }
        let state = self.state.lock().unwrap();
        let state = state.as_ref().ok_or(gst::FlowError::NotNegotiated)?;
        let copy = state.pool.copy(buffer).map_err(|error| self.report(error))?;
        Ok(PrepareOutputBufferSuccess::Buffer(copy))
    }

    fn transform_ip(&self, buffer: &mut gst::BufferRef) -> std::result::Result<gst::FlowSuccess, gst::FlowError> {
        let mut state = self.state.lock().unwrap();
        let state = state.as_mut().ok_or(gst::FlowError::NotNegotiated)?;
        self.handle(state, buffer).map_err(|error| self.report(error))?;
        Ok(gst::FlowSuccess::Ok)
    }
}
