// SPDX-License-Identifier: MPL-2.0
use std::sync::{LazyLock, Mutex};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst::{Caps, PadDirection};
use gst_base::subclass::BaseTransformMode;
use gst_base::subclass::base_transform::GenerateOutputSuccess;
use gst_base::subclass::prelude::*;

use crate::core::counters::{Span, Stats};
use crate::core::error::Result;
use crate::gst::cuda;
use crate::gst::cuda::CudaContextSlot;
use crate::gst::element::{Properties, VideoFilter, video_filter};
use crate::gst::meta::read::annotations;
use crate::gst::meta::tensor::TensorMeta;
use crate::gst::overlay::{
    OverlayRenderer, context_of, draw_labels_property, line_width_property, mask_alpha_property,
};
use crate::gst::report::Report;
use crate::gst::stats;
use crate::gst::video;
use crate::image::overlay::{Annotation, Style};

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("trtoverlay", gst::DebugColorFlags::empty(), Some("Boxes and labels on frames"))
});

/// What the user typed.
#[derive(Clone, Copy)]
struct OverlaySettings {
    style: Style,
    /// -1 takes frames of any GPU.
    cuda_device_id: i32,
    /// Takes the GPU's time for each frame.
    measure: bool,
}

impl Default for OverlaySettings {
    fn default() -> Self {
        OverlaySettings { style: Style::default(), cuda_device_id: -1, measure: false }
    }
}

/// What set_caps() made.
struct OverlayState {
    renderer: OverlayRenderer,
    /// Whether it was said that frames pass undrawn.
    has_warned: bool,
}

/// Lock order: settings before state; settings are copied, and never locked while a frame is handled.
#[derive(Default)]
pub struct TrtOverlay {
    settings: Mutex<OverlaySettings>,
    state: Mutex<Option<OverlayState>>,
    cuda: CudaContextSlot,
    stats: Stats,
}

impl TrtOverlay {
    fn draw(
        &self,
        renderer: &mut OverlayRenderer,
        frame: &mut gst::Buffer,
        annotations: &[Annotation],
        settings: &OverlaySettings,
    ) -> Result<()> {
        if let Some(context) = context_of(frame)? {
            self.cuda.follow(&context, settings.cuda_device_id)?;
        }
        TensorMeta::wait_for_readers(frame, None);
        renderer.annotate(frame, annotations, &settings.style)
    }
}

impl Properties for TrtOverlay {
    fn list() -> Vec<glib::ParamSpec> {
        vec![
            draw_labels_property("Write class, score and track at each box, where they are known"),
            line_width_property(),
            mask_alpha_property(),
            cuda::device_id_property(),
            stats::measure_property(),
            stats::property(
                "Frames, objects, and what drawing them costs: time on the host, waits for the GPU, bytes copied, use of the pool",
            ),
        ]
    }

    fn set(&self, name: &str, value: &glib::Value) {
        let OverlaySettings { style, cuda_device_id, measure } = &mut *self.settings.lock().unwrap();
        match name {
            "draw-labels" => style.labels = value.get().expect("checked by GObject"),
            "line-width" => style.line_width = value.get().expect("checked by GObject"),
            "mask-alpha" => style.mask_alpha = value.get().expect("checked by GObject"),
            "measure" => *measure = value.get().expect("checked by GObject"),
            "cuda-device-id" => *cuda_device_id = value.get().expect("checked by GObject"),
            other => unreachable!("property {other}"),
        }
    }

    fn get(&self, name: &str) -> glib::Value {
        if name == "stats" {
            let totals = self.stats.read();
            return stats::structure(&totals, [("frames", totals.done), ("objects", totals.objects)]).to_value();
        }
        let OverlaySettings { style, cuda_device_id, measure } = &*self.settings.lock().unwrap();
        match name {
            "draw-labels" => style.labels.to_value(),
            "line-width" => style.line_width.to_value(),
            "mask-alpha" => style.mask_alpha.to_value(),
            "measure" => measure.to_value(),
            "cuda-device-id" => cuda_device_id.to_value(),
            other => unreachable!("property {other}"),
        }
    }
}

video_filter! {
    TrtOverlay: "GstTrtOverlay",
    name: "Object detection: overlay (CUDA or CPU)",
    classification: "Filter/Effect/Video",
    description: "Draws the objects that metas tell of: boxes, classes, scores and tracks",
}

impl BaseTransformImpl for TrtOverlay {
    const MODE: BaseTransformMode = BaseTransformMode::AlwaysInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    fn start(&self) -> std::result::Result<(), gst::ErrorMessage> {
        self.stats.reset();
        Ok(())
    }

    fn stop(&self) -> std::result::Result<(), gst::ErrorMessage> {
        *self.state.lock().unwrap() = None;
        self.cuda.clear();
        Ok(())
    }

    fn query(&self, direction: PadDirection, query: &mut gst::QueryRef) -> bool {
        self.answer(direction, query)
    }

    fn transform_caps(&self, _direction: PadDirection, caps: &Caps, filter: Option<&Caps>) -> Option<Caps> {
        Some(video::filtered(video::usable(caps), filter))
    }

    fn set_caps(&self, incaps: &Caps, _outcaps: &Caps) -> std::result::Result<(), gst::LoggableError> {
        let format = self.format(*CAT, incaps)?;
        let mut state = self.state.lock().unwrap();
        let has_warned = state.as_ref().is_some_and(|state| state.has_warned);
        *state = Some(OverlayState { renderer: OverlayRenderer::new(format), has_warned });
        Ok(())
    }

    fn generate_output(&self) -> std::result::Result<GenerateOutputSuccess, gst::FlowError> {
        let Some(mut frame) = self.take_queued_buffer() else { return Ok(GenerateOutputSuccess::NoOutput) };
        let settings = *self.settings.lock().unwrap();
        let mut state = self.state.lock().unwrap();
        let OverlayState { renderer, has_warned } = state.as_mut().ok_or(gst::FlowError::NotNegotiated)?;
        let stage = Span::begin(settings.measure);
        let annotations = annotations(&frame, renderer.size());
        if !annotations.is_empty()
            && let Err(error) = self.draw(renderer, &mut frame, &annotations, &settings)
            && !std::mem::replace(has_warned, true)
        {
            self.obj().post_warning(&error.and_remedy("Frames that cannot be drawn on pass as they are"));
        }
        self.stats.add(stage, annotations.len());
        Ok(GenerateOutputSuccess::Buffer(frame))
    }
}
