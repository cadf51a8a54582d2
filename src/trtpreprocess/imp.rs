// SPDX-License-Identifier: MPL-2.0
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst::{Caps, PadDirection};
use gst_base::subclass::BaseTransformMode;
use gst_base::subclass::prelude::*;

use super::settings::{Overrides, PreprocessSettings};
use super::{ChromaSampling, Resize, TensorColors, TensorOrder, TensorType};
use crate::core::counters::{Span, Stats};
use crate::core::cuda::driver::Context;
use crate::core::device::Device;
use crate::core::error::{Error, ErrorKind, Result};
use crate::gst::batch_pool;
use crate::gst::cuda;
use crate::gst::cuda::CudaContextSlot;
use crate::gst::element::{Properties, VideoFilter, video_filter};
use crate::gst::held_frame::HeldFrames;
use crate::gst::meta::picture;
use crate::gst::meta::tensor::{Origin, Payload, TensorMeta};
use crate::gst::report::{Report, error_message};
use crate::gst::stats;
use crate::gst::video::{self, Format};
use crate::image::preprocess::Preprocessor;
use crate::image::transform::InputSpec;

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("trtpreprocess", gst::DebugColorFlags::empty(), Some("Frames to tensors"))
});

/// What set_caps() made.
struct PreprocessState {
    format: Format,
    spec: InputSpec,
    /// That of a GPU is made with the first frame, in its context.
    preprocessor: Option<Preprocessor>,
}

impl PreprocessState {
    fn is_on_gpu(&self) -> bool {
        self.spec.device == Device::Cuda
    }
}

/// No two of these are locked at a time.
#[derive(Default)]
pub struct TrtPreprocess {
    settings: Mutex<PreprocessSettings>,
    /// The settings as start() found them. Those that change later wait for the next start, so that a tensor is never half of
    /// each.
    overrides: Mutex<Option<Overrides>>,
    state: Mutex<Option<PreprocessState>>,
    /// Downstream has no model: frames pass without tensors.
    passes: AtomicBool,
    originals: Mutex<HeldFrames>,
    cuda: CudaContextSlot,
    stats: Stats,
    /// What was last said about caps. Upstream tries caps again with each event and frame, and once is enough.
    complaint: Mutex<Option<String>>,
}

impl TrtPreprocess {
    fn overrides(&self) -> Option<Overrides> {
        self.overrides.lock().unwrap().clone()
    }

    /// The tensor to name in the source's caps: what downstream asks for, else what the properties say by themselves. If
    /// they do not say enough, set_caps() complains.
    fn tensor(&self, caps: &Caps) -> Option<String> {
        let peer = self.obj().static_pad("src")?.peer_query_caps(Some(caps));
        let wanted = peer.iter().find_map(|structure| structure.get::<String>(video::TENSOR_FIELD).ok());
        wanted.or_else(|| Some(self.overrides().unwrap_or_default().apply(None, device_of(caps)).ok()?.to_string()))
    }

    fn configure(&self, incaps: &Caps, outcaps: &Caps) -> Result<PreprocessState> {
        let format = Format::from_caps(incaps)?;
        let wanted = video::tensor_of(outcaps)?;
        let spec = self.overrides().unwrap_or_default().apply(wanted.as_ref(), device_of(incaps))?;
        // Refuses what cannot be made, wherever that is.
        let on_host = Preprocessor::new(None, format.pixels, size_of_frames(&format), format.color, &spec)?;
        let preprocessor = match (spec.device == Device::Cuda, video::is_cuda(incaps)) {
            (true, _) => None,
            (false, true) => return Err(cuda_for_the_cpu()),
            (false, false) => Some(on_host),
        };
        Ok(PreprocessState { format, spec, preprocessor })
    }

    fn preprocessor(&self, context: Option<&Context>, format: &Format, spec: &InputSpec) -> Result<Preprocessor> {
        let mut preprocessor = Preprocessor::new(context, format.pixels, size_of_frames(format), format.color, spec)?;
        if let Preprocessor::Device(device) = &mut preprocessor {
            device.set_upload(self.settings.lock().unwrap().upload);
            if let Some(slots) = self.obj().static_pad("src").and_then(|pad| batch_pool::ask(&pad)) {
                device.use_slots(slots);
            }
        }
        Ok(preprocessor)
    }

    fn payload(&self, state: &mut PreprocessState, buffer: &mut gst::BufferRef) -> Result<Payload> {
        let context = if state.is_on_gpu() { Some(self.context_for(buffer)?) } else { None };
        let PreprocessState { format, spec, preprocessor } = state;
        let preprocessor = match preprocessor.take().filter(|preprocessor| preprocessor.context() == context.as_ref()) {
            Some(made) => preprocessor.insert(made),
            None => preprocessor.insert(self.preprocessor(context.as_ref(), format, spec)?),
        };
        let on_gpu = if let Preprocessor::Device(_) = preprocessor { format.on_gpu(buffer, false)? } else { None };
        let tensors = match (on_gpu, &mut *preprocessor) {
            (Some(frame), Preprocessor::Device(device)) => {
                frame.order(device.stream())?;
                // SAFETY: `Format` checked the planes against their memory, and the buffer keeps it until its TensorMeta is
                // freed, which waits for the fence.
                unsafe { device.of_gpu(&frame.planes) }?
            }
            (_, preprocessor) => format.read(buffer, |frame| preprocessor.of_host(frame))?,
        };
        let letterbox = *preprocessor.letterbox();
        let original = self.originals.lock().unwrap().of(buffer);
        let origin = Origin { element: self.obj().as_ptr().addr(), size: format.size() };
        Ok(Payload::Input { tensors: Arc::new(tensors), origin, letterbox, transform: spec.transform, original })
    }

    /// The context of the frame's memory, else the pipeline's.
    fn context_for(&self, buffer: &gst::BufferRef) -> Result<Context> {
        let device = self.settings.lock().unwrap().cuda_device_id;
        match cuda::memory(buffer) {
            Some(memory) => {
                let context = memory.context()?;
                self.cuda.follow(&context, device)?;
                Ok(context)
            }
            None => self.cuda.ensure(&*self.obj(), device),
        }
    }

    /// Whether this was not yet said about the caps.
    fn is_new_complaint(&self, error: &Error) -> bool {
        let mut complaint = self.complaint.lock().unwrap();
        let said = complaint.replace(error.message());
        said != *complaint
    }

    /// CUDA memory alone is offered, and the model runs on the CPU.
    fn refusal_of_cuda(&self, offered: &gst::CapsRef) -> Option<Error> {
        let wanted = self.obj().static_pad("src")?.peer_query_caps(None);
        let for_cpu = !wanted.is_any() && !wanted.is_empty() && video::in_system_memory(&wanted) == wanted;
        (for_cpu && video::is_cuda(offered) && video::in_system_memory(&offered.to_owned()).is_empty())
            .then(cuda_for_the_cpu)
    }

    /// Posts what to do about frames that cannot be used: upstream only reports "not negotiated".
    fn explain_refusal(&self, offered: &gst::CapsRef) {
        if self.overrides().is_some()
            && let Some(error) = video::refusal(offered).or_else(|| self.refusal_of_cuda(offered))
            && self.is_new_complaint(&error)
        {
            let error = error.with_debug(format!("offered: {offered}"));
            // A stream whose format is known has nothing else to offer. What is only one of several offers may yet be passed over.
            if offered.is_fixed() {
                self.obj().post_error(&error);
            } else {
                self.obj().post_warning(&error);
            }
        }
    }
}

/// Where tensors of such frames are made, unless downstream asks for another device.
fn device_of(caps: &gst::CapsRef) -> Device {
    if video::is_cuda(caps) { Device::Cuda } else { Device::Host }
}

/// Width and height.
fn size_of_frames(format: &Format) -> (usize, usize) {
    (format.info.width() as usize, format.info.height() as usize)
}

fn cuda_for_the_cpu() -> Error {
    Error::new(ErrorKind::Negotiation, "Cannot use frames in CUDA memory")
        .cause("the model runs on the CPU")
        .remedy("Put cudadownload before trtpreprocess, or let the model run on the GPU with backend=tensorrt")
}

impl Properties for TrtPreprocess {
    fn list() -> Vec<glib::ParamSpec> {
        let default = PreprocessSettings::default();
        vec![
            glib::ParamSpecEnum::builder_with_default("resize", default.resize)
                .nick("Resize")
                .blurb("How the frame is laid into the tensor")
                .mutable_ready()
                .build(),
            glib::ParamSpecUInt::builder("shortest-edge")
                .nick("Shortest edge")
                .blurb("With resize=center-crop: pixels of the frame's shorter edge before the middle is cut out, 256 for many inputs of 224 (0 = as the model wants it, else as many as the tensor has)")
                .maximum(16384)
                .default_value(default.shortest_edge)
                .mutable_ready()
                .build(),
            glib::ParamSpecInt::builder("pad-value")
                .nick("Padding value")
                .blurb("Sample value of the letterbox padding (-1 = as the model wants it)")
                .minimum(-1)
                .maximum(255)
                .default_value(default.pad_value)
                .mutable_ready()
                .build(),
            glib::ParamSpecEnum::builder_with_default("tensor-colors", default.colors)
                .nick("Tensor colors")
                .blurb("Colors in the channels of the tensor")
                .mutable_ready()
                .build(),
            glib::ParamSpecEnum::builder_with_default("chroma-sampling", default.chroma_sampling)
                .nick("Chroma sampling")
                .blurb("Which chroma goes with each luma sample of NV12, P010_10LE and I420 frames")
                .mutable_ready()
                .build(),
            glib::ParamSpecFloat::builder("scale")
                .nick("Scale")
                .blurb("Factor of the samples: tensor = (sample * scale - mean) / std, with samples of 0..255 (0 = as the model wants it)")
                .minimum(0.0)
                .maximum(f32::MAX)
                .default_value(default.scale)
                .mutable_ready()
                .build(),
            glib::ParamSpecString::builder("mean")
                .nick("Mean")
                .blurb("Mean to subtract: tensor = (sample * scale - mean) / std; one number, or one per channel like 0.485,0.456,0.406 (unset = as the model wants it)")
                .mutable_ready()
                .build(),
            glib::ParamSpecString::builder("std")
                .nick("Standard deviation")
                .blurb("Standard deviation to divide by: tensor = (sample * scale - mean) / std; one number, or one per channel like 0.229,0.224,0.225 (unset = as the model wants it)")
                .mutable_ready()
                .build(),
            glib::ParamSpecEnum::builder_with_default("tensor-order", default.order)
                .nick("Tensor order")
                .blurb("Order of the tensor's dimensions")
                .mutable_ready()
                .build(),
            glib::ParamSpecEnum::builder_with_default("tensor-type", default.dtype)
                .nick("Tensor type")
                .blurb("Type of the tensor's elements")
                .mutable_ready()
                .build(),
            glib::ParamSpecString::builder("tensor-size")
                .nick("Tensor size")
                .blurb("Width and height of the tensor like 640x640 (unset = as the model wants it)")
                .mutable_ready()
                .build(),
            glib::ParamSpecEnum::builder_with_default("upload", default.upload)
                .nick("Upload")
                .blurb("How frames in system memory come to the GPU")
                .mutable_ready()
                .build(),
            cuda::device_id_property(),
            stats::measure_property(),
            stats::property("Frames, and what making their tensors costs: time on the host, waits for the GPU, bytes copied, use of the pool"),
        ]
    }

    fn set(&self, name: &str, value: &glib::Value) {
        let mut settings = self.settings.lock().unwrap();
        let text = || value.get::<Option<String>>().expect("a string property").unwrap_or_default();
        match name {
            "resize" => settings.resize = value.get::<Resize>().expect("checked by GObject"),
            "shortest-edge" => settings.shortest_edge = value.get().expect("checked by GObject"),
            "pad-value" => settings.pad_value = value.get().expect("checked by GObject"),
            "tensor-colors" => settings.colors = value.get::<TensorColors>().expect("checked by GObject"),
            "chroma-sampling" => settings.chroma_sampling = value.get::<ChromaSampling>().expect("checked by GObject"),
            "scale" => settings.scale = value.get().expect("checked by GObject"),
            "mean" => settings.mean = text(),
            "std" => settings.std = text(),
            "tensor-order" => settings.order = value.get::<TensorOrder>().expect("checked by GObject"),
            "tensor-type" => settings.dtype = value.get::<TensorType>().expect("checked by GObject"),
            "tensor-size" => settings.size = text(),
            "measure" => settings.measure = value.get().expect("checked by GObject"),
            "upload" => settings.upload = value.get().expect("checked by GObject"),
            "cuda-device-id" => settings.cuda_device_id = value.get().expect("checked by GObject"),
            other => unreachable!("property {other}"),
        }
    }

    fn get(&self, name: &str) -> glib::Value {
        if name == "stats" {
            let totals = self.stats.read();
            return stats::structure(&totals, [("frames", totals.done)]).to_value();
        }
        let settings = self.settings.lock().unwrap();
        let text = |text: &String| (!text.is_empty()).then_some(text.as_str()).to_value();
        match name {
            "resize" => settings.resize.to_value(),
            "shortest-edge" => settings.shortest_edge.to_value(),
            "pad-value" => settings.pad_value.to_value(),
            "tensor-colors" => settings.colors.to_value(),
            "chroma-sampling" => settings.chroma_sampling.to_value(),
            "scale" => settings.scale.to_value(),
            "mean" => text(&settings.mean),
            "std" => text(&settings.std),
            "tensor-order" => settings.order.to_value(),
            "tensor-type" => settings.dtype.to_value(),
            "tensor-size" => text(&settings.size),
            "measure" => settings.measure.to_value(),
            "upload" => settings.upload.to_value(),
            "cuda-device-id" => settings.cuda_device_id.to_value(),
            other => unreachable!("property {other}"),
        }
    }
}

video_filter! {
    TrtPreprocess: "GstTrtPreprocess",
    name: "Object detection: preprocessing (CUDA or CPU)",
    classification: "Filter/Converter/Video",
    description: "Turns each frame into the input tensor of a model",
}

impl BaseTransformImpl for TrtPreprocess {
    const MODE: BaseTransformMode = BaseTransformMode::AlwaysInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    /// The picture's caps are the same on both sides; those of the source also name the tensor.
    ///
    /// The base class asks the peer only while caps are open, and fixed video caps are closed but for the tensor. So it is
    /// asked here.
    fn transform_caps(&self, direction: PadDirection, caps: &Caps, filter: Option<&Caps>) -> Option<Caps> {
        let mut caps = video::without_tensor(&video::usable(caps));
        if direction == PadDirection::Sink
            && caps.is_fixed()
            && let Some(tensor) = self.tensor(&caps)
        {
            caps.make_mut().set(video::TENSOR_FIELD, tensor);
        }
        Some(video::filtered(caps, filter))
    }

    fn query(&self, direction: PadDirection, query: &mut gst::QueryRef) -> bool {
        if direction == PadDirection::Sink {
            match query.view() {
                gst::QueryView::Caps(query) => query.filter().into_iter().for_each(|caps| self.explain_refusal(caps)),
                gst::QueryView::AcceptCaps(query) => self.explain_refusal(query.caps()),
                _ => {}
            }
        }
        self.answer(direction, query)
    }

    /// Answers trtnms with the position of its points in the picture here.
    fn src_event(&self, event: gst::Event) -> bool {
        picture::answer(&event, self.obj().upcast_ref()) || self.parent_src_event(event)
    }

    fn set_caps(&self, incaps: &Caps, outcaps: &Caps) -> std::result::Result<(), gst::LoggableError> {
        let passes = video::has_no_tensor(outcaps);
        self.passes.store(passes, Ordering::Relaxed);
        if passes {
            *self.state.lock().unwrap() = None;
            return Ok(());
        }
        let state = self.configure(incaps, outcaps).map_err(|error| {
            if self.is_new_complaint(&error) {
                self.obj().post_error(&error);
            }
            gst::loggable_error!(CAT, "{error}")
        })?;
        gst::info!(CAT, imp = self, "{} of {} into {}", state.format.pixels.name(), incaps, state.spec);
        *self.state.lock().unwrap() = Some(state);
        *self.complaint.lock().unwrap() = None;
        Ok(())
    }

    /// The picture here is the one that the caps describe, so upstream must not leave cropping to downstream.
    fn propose_allocation(
        &self,
        decide_query: Option<&gst::query::Allocation>,
        query: &mut gst::query::Allocation,
    ) -> std::result::Result<(), gst::LoggableError> {
        // Fails where downstream has no wishes, which is no reason to have none here.
        let _ = self.parent_propose_allocation(decide_query, query);
        let device = self.settings.lock().unwrap().cuda_device_id;
        self.cuda.propose(&*self.obj(), device, query);
        let on_gpu = self.state.lock().unwrap().as_ref().is_some_and(PreprocessState::is_on_gpu);
        if on_gpu && let Ok(context) = self.cuda.ensure(&*self.obj(), device) {
            crate::gst::memory::pinned::propose(&context, query);
        }
        if let Some(index) = query.find_allocation_meta::<gst_video::VideoCropMeta>() {
            query.remove_nth_allocation_meta(index);
        }
        Ok(())
    }

    fn submit_input_buffer(
        &self,
        is_discont: bool,
        inbuf: gst::Buffer,
    ) -> std::result::Result<gst::FlowSuccess, gst::FlowError> {
        self.originals.lock().unwrap().keep(&inbuf);
        self.parent_submit_input_buffer(is_discont, inbuf)
    }

    fn transform_ip(&self, buffer: &mut gst::BufferRef) -> std::result::Result<gst::FlowSuccess, gst::FlowError> {
        let stage = Span::begin(self.settings.lock().unwrap().measure);
        let payload = match self.state.lock().unwrap().as_mut() {
            Some(state) => self.payload(state, buffer),
            None if self.passes.load(Ordering::Relaxed) => return Ok(gst::FlowSuccess::Ok),
            None => return Err(gst::FlowError::NotNegotiated),
        };
        let payload = payload.map_err(|error: Error| {
            self.obj().post_error(&error);
            gst::FlowError::Error
        })?;
        TensorMeta::set(buffer, Arc::new(payload));
        self.stats.add(stage, 0);
        Ok(gst::FlowSuccess::Ok)
    }

    fn start(&self) -> std::result::Result<(), gst::ErrorMessage> {
        let overrides = self.settings.lock().unwrap().read().map_err(|error| error_message(&error))?;
        *self.overrides.lock().unwrap() = Some(overrides);
        self.stats.reset();
        *self.complaint.lock().unwrap() = None;
        Ok(())
    }

    fn stop(&self) -> std::result::Result<(), gst::ErrorMessage> {
        *self.overrides.lock().unwrap() = None;
        *self.state.lock().unwrap() = None;
        self.originals.lock().unwrap().clear();
        self.cuda.clear();
        Ok(())
    }
}
