// SPDX-License-Identifier: MPL-2.0
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst::{Caps, PadDirection};
use gst_base::subclass::BaseTransformMode;
use gst_base::subclass::base_transform::GenerateOutputSuccess;
use gst_base::subclass::prelude::*;
use gsttrt_core::counters::{Span, Stats};
use gsttrt_core::error::{ErrorKind, Result};
use gsttrt_core::image::map::PixelMap;
use gsttrt_core::image::overlay::{Annotation, Style};
use gsttrt_core::image::privacy::{HiddenArea, QuadMask};

use super::privacy::{Privacy, PrivacySettings};
use crate::gst::caps;
use crate::gst::classes_event;
use crate::gst::cuda;
use crate::gst::cuda::CudaContextSlot;
use crate::gst::element::{DrawRefusal, Properties, VideoFilter, video_filter};
use crate::gst::meta::map::maps;
use crate::gst::meta::read::annotations;
use crate::gst::meta::tensor::TensorMeta;
use crate::gst::meta::zones::boundaries;
use crate::gst::overlay::{
    OverlayRenderer, context_of, draw_labels_property, line_width_property, mask_alpha_property,
};
use crate::gst::property::{PropertyTable, property, text_property};
use crate::gst::report::{Report, error_message};
use crate::gst::stats;
use crate::gst::stream::CurrentSegment;

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("trtoverlay", gst::DebugColorFlags::empty(), Some("Boxes and labels on frames"))
});

/// The user's settings.
#[derive(Clone)]
struct OverlaySettings {
    /// Else only what is hidden changes.
    draw: bool,
    privacy: PrivacySettings,
    style: Style,
    draw_ids: bool,
    /// In frames.
    trail_length: u32,
    /// -1 takes frames of any GPU.
    cuda_device_id: i32,
    /// Takes the GPU's time for each frame.
    measure: bool,
}

impl Default for OverlaySettings {
    fn default() -> Self {
        OverlaySettings {
            draw: true,
            privacy: PrivacySettings::default(),
            style: Style::default(),
            draw_ids: true,
            trail_length: 0,
            cuda_device_id: -1,
            measure: false,
        }
    }
}

/// State since set_caps().
struct OverlayState {
    renderer: OverlayRenderer,
    /// Whether the warning that frames pass undrawn was posted.
    has_warned: bool,
}

/// Lock order: settings before state; settings are cloned, and never locked while a frame is handled.
#[derive(Default)]
pub struct TrtOverlay {
    settings: Mutex<OverlaySettings>,
    state: Mutex<Option<OverlayState>>,
    /// Since start(). The streaming thread takes it out for each frame.
    privacy: Mutex<Privacy>,
    segment: Mutex<CurrentSegment>,
    refusal: DrawRefusal,
    cuda: CudaContextSlot,
    stats: Stats,
    /// Objects that were hidden.
    hidden: AtomicU64,
}

impl TrtOverlay {
    /// Before a frame is changed.
    fn prepare(&self, frame: &gst::BufferRef, settings: &OverlaySettings) -> Result<()> {
        if let Some(context) = context_of(frame)? {
            self.cuda.follow(&context, settings.cuda_device_id)?;
        }
        TensorMeta::wait_for_readers(frame, None);
        Ok(())
    }

    /// Hides and draws what is on a frame.
    fn process(
        &self,
        state: &mut OverlayState,
        frame: &mut gst::Buffer,
        settings: &OverlaySettings,
    ) -> std::result::Result<(), gst::FlowError> {
        let stage = Span::begin(settings.measure);
        let annotations = annotations(frame, state.renderer.size());
        if let Err(error) = self.hide(&mut state.renderer, frame, &annotations, settings) {
            // No frame passes that shows what is to be hidden.
            self.obj().post_error(&error);
            return Err(gst::FlowError::Error);
        }
        if settings.draw {
            self.draw_all(state, frame, &annotations, settings)?;
        }
        self.stats.add(stage, annotations.len());
        Ok(())
    }

    /// Hides what nobody is to see, below all that is drawn.
    fn hide(
        &self,
        renderer: &mut OverlayRenderer,
        frame: &mut gst::Buffer,
        annotations: &[Annotation],
        settings: &OverlaySettings,
    ) -> Result<()> {
        let mut privacy = std::mem::take(&mut *self.privacy.lock().unwrap());
        if let Err(error) = privacy.follow(&settings.privacy) {
            let mut typed = self.settings.lock().unwrap();
            if typed.privacy == settings.privacy {
                typed.privacy = privacy.settings().clone();
            }
            drop(typed);
            self.obj().post_warning(&error.and_remedy("What it was to replace stays as it was"));
        }
        let hidden = self.find_hidden(&mut privacy, renderer.size(), frame, annotations);
        *self.privacy.lock().unwrap() = privacy;
        let (areas, mask) = hidden?;
        if areas.is_empty() && mask.is_none() {
            return Ok(());
        }
        self.prepare(frame, settings)?;
        renderer.hide(frame, &areas, mask.as_ref())?;
        self.hidden.fetch_add(areas.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn find_hidden(
        &self,
        privacy: &mut Privacy,
        size: (u32, u32),
        frame: &gst::BufferRef,
        annotations: &[Annotation],
    ) -> Result<(Vec<HiddenArea>, Option<Arc<QuadMask>>)> {
        privacy.check_classes()?;
        Ok((privacy.areas(frame, annotations, size), privacy.mask(frame, size)?.cloned()))
    }

    /// Draws what is on a frame. One that cannot be drawn on passes as it is.
    fn draw_all(
        &self,
        OverlayState { renderer, has_warned, .. }: &mut OverlayState,
        frame: &mut gst::Buffer,
        annotations: &[Annotation],
        settings: &OverlaySettings,
    ) -> std::result::Result<(), gst::FlowError> {
        let maps = maps(frame, renderer.size());
        renderer.follow(annotations, settings.trail_length, settings.draw_ids);
        renderer.bound(boundaries(frame, renderer.size()));
        if !(annotations.is_empty() && maps.is_empty() && !renderer.has_boundaries())
            && let Err(error) = self.draw(renderer, frame, annotations, &maps, settings)
        {
            if error.kind() == ErrorKind::DeviceLost {
                self.obj().post_error(&error);
                return Err(gst::FlowError::Error);
            }
            if !std::mem::replace(has_warned, true) {
                self.obj().post_warning(&error.and_remedy("Frames that cannot be drawn on pass as they are"));
            }
        }
        Ok(())
    }

    fn draw(
        &self,
        renderer: &mut OverlayRenderer,
        frame: &mut gst::Buffer,
        annotations: &[Annotation],
        maps: &[PixelMap],
        settings: &OverlaySettings,
    ) -> Result<()> {
        self.prepare(frame, settings)?;
        renderer.draw_maps(frame, maps.iter(), &settings.style)?;
        if annotations.is_empty() && !renderer.has_boundaries() {
            return Ok(());
        }
        renderer.annotate(frame, annotations, &settings.style)
    }
}

static PROPERTIES: LazyLock<PropertyTable<OverlaySettings>> = LazyLock::new(|| {
    let default = OverlaySettings::default();
    let text = |name: &'static str, nick: &'static str, blurb: &'static str| {
        glib::ParamSpecString::builder(name).nick(nick).blurb(blurb).mutable_playing().build()
    };
    PropertyTable::new(vec![
        property!(
            glib::ParamSpecBoolean::builder("draw")
                .nick("Draw")
                .blurb("Draw objects, maps and zones (false = only what blur, pixelate and mask hide)")
                .default_value(default.draw)
                .mutable_playing()
                .build(),
            draw
        ),
        text_property!(
            text(
                "blur",
                "Blur",
                "Classes of objects to blur, separated by commas: person,face (* = all; unset = none)"
            ),
            privacy.blur
        ),
        text_property!(
            text("pixelate", "Pixelate", "Classes of objects to pixelate, as of blur, on top of what is blurred"),
            privacy.pixelate
        ),
        text_property!(
            text(
                "mask",
                "Mask",
                "Zones of trtanalytics to blacken, separated by commas, or x and y of the corners of polygons, in parts of \
                 the frame or pixels: 0,0,0.5,0,0.5,0.25 (unset = none)"
            ),
            privacy.mask
        ),
        property!(draw_labels_property("Write class, score and track at each box, where they are known"), style.labels),
        property!(
            glib::ParamSpecBoolean::builder("draw-ids")
                .nick("Draw ids")
                .blurb("Write the id that a tracker gave an object, with draw-labels")
                .default_value(default.draw_ids)
                .mutable_playing()
                .build(),
            draw_ids
        ),
        property!(
            glib::ParamSpecUInt::builder("trail-length")
                .nick("Trail length")
                .blurb("Draw where objects with an id have been in so many frames (0 = no trails)")
                .maximum(1000)
                .default_value(default.trail_length)
                .mutable_playing()
                .build(),
            trail_length
        ),
        property!(line_width_property(), style.line_width),
        property!(mask_alpha_property(), style.mask_alpha),
        property!(cuda::device_id_property(), cuda_device_id),
        property!(stats::measure_property(), measure),
    ])
});

impl Properties for TrtOverlay {
    fn read_only() -> Vec<glib::ParamSpec> {
        vec![stats::property(
            "Frames, objects, those that were hidden, and what drawing costs: time on the host, waits for the GPU, bytes \
             copied, use of the pool",
        )]
    }

    fn read(&self, name: &str) -> Option<glib::Value> {
        (name == "stats").then(|| {
            let totals = self.stats.read();
            let hidden = self.hidden.load(Ordering::Relaxed);
            let counts = [("frames", totals.done), ("objects", totals.objects), ("hidden", hidden)];
            stats::structure(&totals, counts).to_value()
        })
    }
}

video_filter! {
    TrtOverlay: "GstTrtOverlay",
    name: "Object detection: overlay (CUDA or CPU)",
    classification: "Filter/Effect/Video",
    description: "Draws the objects of metas: boxes, classes, scores and tracks; blurs, pixelates and masks",
}

impl BaseTransformImpl for TrtOverlay {
    const MODE: BaseTransformMode = BaseTransformMode::AlwaysInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    fn start(&self) -> std::result::Result<(), gst::ErrorMessage> {
        let settings = self.settings.lock().unwrap().privacy.clone();
        *self.privacy.lock().unwrap() = Privacy::new(&settings).map_err(|error| error_message(&error))?;
        self.stats.reset();
        self.hidden.store(0, Ordering::Relaxed);
        self.refusal.reset();
        Ok(())
    }

    fn stop(&self) -> std::result::Result<(), gst::ErrorMessage> {
        *self.state.lock().unwrap() = None;
        *self.segment.lock().unwrap() = CurrentSegment::default();
        self.cuda.clear();
        Ok(())
    }

    fn query(&self, direction: PadDirection, query: &mut gst::QueryRef) -> bool {
        if direction == PadDirection::Sink {
            self.refusal.explain(&*self.obj(), query);
        }
        self.answer(direction, query)
    }

    fn transform_caps(&self, _direction: PadDirection, caps: &Caps, filter: Option<&Caps>) -> Option<Caps> {
        Some(caps::filtered(caps::drawable(&caps::usable(caps)), filter))
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        let is_cut = self.segment.lock().unwrap().is_cut(&event);
        if is_cut && let Some(state) = self.state.lock().unwrap().as_mut() {
            state.renderer.end_trails();
        }
        if let Some(classes) = classes_event::read(&event) {
            self.privacy.lock().unwrap().know(classes);
        }
        self.parent_sink_event(event)
    }

    fn set_caps(&self, incaps: &Caps, _outcaps: &Caps) -> std::result::Result<(), gst::LoggableError> {
        let format = self.format(*CAT, incaps, true)?;
        let mut state = self.state.lock().unwrap();
        let has_warned = state.as_ref().is_some_and(|state| state.has_warned);
        *state = Some(OverlayState { renderer: OverlayRenderer::new(format), has_warned });
        Ok(())
    }

    fn generate_output(&self) -> std::result::Result<GenerateOutputSuccess, gst::FlowError> {
        let Some(mut frame) = self.take_queued_buffer() else { return Ok(GenerateOutputSuccess::NoOutput) };
        let settings = self.settings.lock().unwrap().clone();
        // Taken out, so that it is not locked when a warning is posted.
        let mut state = self.state.lock().unwrap().take().ok_or(gst::FlowError::NotNegotiated)?;
        let outcome = self.process(&mut state, &mut frame, &settings);
        // Also behind an error: a seek goes on with the same caps.
        *self.state.lock().unwrap() = Some(state);
        outcome.map(|()| GenerateOutputSuccess::Buffer(frame))
    }
}
