// SPDX-License-Identifier: MPL-2.0
//! The properties of trtnms.

use std::sync::LazyLock;

use gsttrt_core::error::Error;
use gsttrt_core::heads::HeadFormat;
use gsttrt_core::image::overlay::Style;
use gsttrt_core::options::{OptionKind, Setting, setting};
use gsttrt_core::postprocess::options::{AUTO, LAYOUT, MERGE_SETTINGS, SETTINGS};
use gsttrt_core::postprocess::{PostprocessOptions, read_class_thresholds};

use crate::gst::options::{self, MUTABLE_PLAYING};
use crate::gst::overlay::{draw_labels_property, line_width_property, mask_alpha_property};
use crate::gst::property::{PropertyTable, property};
use crate::gst::{cuda, stats};

/// The user's settings.
#[derive(Clone)]
pub struct NmsSettings {
    /// The name of a head, the text of a layout file, or `auto`. Looked up with the first frame of a model.
    pub layout: String,
    pub options: PostprocessOptions,
    pub draw: bool,
    pub style: Style,
    /// Repeats the last detections on frames that are skipped.
    pub hold_detections: bool,
    pub post_messages: bool,
    /// -1 follows the pipeline.
    pub cuda_device_id: i32,
    /// Takes the GPU's time for each frame.
    pub measure: bool,
}

impl Default for NmsSettings {
    fn default() -> Self {
        NmsSettings {
            layout: AUTO.into(),
            options: PostprocessOptions::default(),
            draw: true,
            style: Style::default(),
            hold_detections: true,
            post_messages: false,
            cuda_device_id: -1,
            measure: false,
        }
    }
}

impl NmsSettings {
    /// The options for a model's first frame, with what can be checked without the model.
    ///
    /// # Errors
    /// `Settings`, where there is no such head, and where the layout file, the labels or thresholds cannot be read.
    pub fn options_for_model(&self) -> Result<PostprocessOptions, Error> {
        read_class_thresholds(&self.options.class_thresholds)?;
        let mut options = self.options.clone();
        options.layout = self.layout()?;
        // They are read again with the model, whose classes they must match.
        options.labels()?;
        Ok(options)
    }

    /// The head that the user has chosen, by its name or in a file, if any.
    ///
    /// # Errors
    /// `Settings`, where there is no such head; those of the file.
    pub fn head(&self) -> Result<Option<&'static HeadFormat>, Error> {
        let mut options = self.options.clone();
        options.layout = self.layout()?;
        options.head()
    }

    /// The head that the user has named, if any.
    ///
    /// # Errors
    /// `Settings`, where there is no such head.
    fn layout(&self) -> Result<Option<&'static HeadFormat>, Error> {
        let name = Some(self.layout.as_str()).filter(|name| !name.is_empty() && *name != AUTO);
        name.map(HeadFormat::of_name).transpose()
    }
}

static DRAW: Setting<NmsSettings> = setting!("draw", "Draw", "Draw the boxes on the frame", OptionKind::Flag, draw);

static HOLD_DETECTIONS: Setting<NmsSettings> = setting!(
    "hold-detections",
    "Hold detections",
    "On frames that trtinfer skips (interval), repeat the last detections, marked as held",
    OptionKind::Flag,
    hold_detections
);

static POST_MESSAGES: Setting<NmsSettings> = setting!(
    "post-messages",
    "Post messages",
    "Post an element message trt-detections for each frame: stream-time, frame, width, height, held, count, and \
     detections with label, class-id, confidence, x, y, w, h",
    OptionKind::Flag,
    post_messages
);

pub static PROPERTIES: LazyLock<PropertyTable<NmsSettings>> = LazyLock::new(|| {
    let own = |setting: &Setting<NmsSettings>| options::property(setting, MUTABLE_PLAYING, |settings| settings);
    let mut properties = vec![own(&Setting { spec: &LAYOUT, field: |settings| &mut settings.layout })];
    properties
        .extend(options::properties(&SETTINGS, MUTABLE_PLAYING, |settings: &mut NmsSettings| &mut settings.options));
    properties.extend(options::properties(&MERGE_SETTINGS, MUTABLE_PLAYING, |settings: &mut NmsSettings| {
        &mut settings.options.merge
    }));
    properties.extend([
        own(&DRAW),
        property!(draw_labels_property("Write class and score at each drawn box"), style.labels),
        property!(line_width_property(), style.line_width),
        property!(mask_alpha_property(), style.mask_alpha),
        own(&HOLD_DETECTIONS),
        own(&POST_MESSAGES),
        property!(cuda::device_id_property(), cuda_device_id),
        property!(stats::measure_property(), measure),
    ]);
    PropertyTable::new(properties)
});
