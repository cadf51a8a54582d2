//! `trtnms`: turns a model's outputs into boxes on the frame.
//!
//! It decodes the head, drops the repeated boxes, maps the others to pixels of the frame, hangs them on the buffer as metas
//! that other elements and applications read (see [`meta::detection`](crate::gst::meta::detection)), and draws them.
//!
//! Elements may stand between trtpreprocess and trtnms. Queues, converters and elements that only scale the picture are followed:
//! boxes are in pixels of the frame that trtnms gets. Where the picture is cropped, flipped, rotated, given borders or composed
//! with others, the pipeline ends with an error that names the element; such elements belong before trtpreprocess or behind trtnms.
//!
//! A detection, wherever it is written:
//!
//! | | bus message, JSON lines | ROI meta | GstAnalyticsODMtd |
//! |---|---|---|---|
//! | class | `label`, `class-id` | type; `label_id` in `detection` | type |
//! | confidence, 0..1 | `confidence` | `confidence` | confidence |
//! | box | `x`, `y`, `w`, `h`: pixels of the frame, as floats | whole pixels that cover it; `x_min`, `y_min`, `x_max`, `y_max`: 0..1 of the frame | whole pixels that cover it |
//! | of an earlier frame | `held` of the frame | `held` | |
//!
//! With `post-messages=true` there is an element message `trt-detections` for each frame that has detections or could have:
//! `stream-time` (ns), `frame` (counted from 0, over all frames), `width`, `height`, `held`, `count`, and `detections`, an array of
//! structures, which is left out where the count is 0.
//!
//! Frames that trtinfer skips (`interval`) repeat the last detections and are `held`, unless `hold-detections=false`.
//!
//! ```text
//! gst-launch-1.0 videotestsrc ! trtpreprocess ! trtinfer model-file=yolo11n.onnx ! trtnms classes=person,car class-thresholds=car=0.5 ! videoconvert ! autovideosink
//! ```

mod drawing;
mod imp;

use gst::glib;
use gst::prelude::*;

use crate::heads::Layout;

glib::wrapper! {
    pub struct TrtNms(ObjectSubclass<imp::TrtNms>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

/// How the model writes its boxes; nicks are the names in [`Layout`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstTrtLayout")]
pub enum LayoutChoice {
    #[default]
    #[enum_value(name = "Recognized by names, shapes and metadata", nick = "auto")]
    Auto,
    #[enum_value(name = "YOLOv5, v6, v7: [N,A,5+classes]", nick = "yolov5")]
    Yolov5,
    #[enum_value(name = "YOLOv8, v9, 11, 12, v5u: [N,4+classes,A]", nick = "yolov8")]
    Yolov8,
    #[enum_value(name = "The same, transposed: [N,A,4+classes]", nick = "yolov8-transposed")]
    Yolov8Transposed,
    #[enum_value(name = "YOLOv10, YOLO26, exports with NMS: [N,K,6]", nick = "end-to-end")]
    EndToEnd,
    #[enum_value(name = "YOLOX, undecoded grid: [N,A,5+classes]", nick = "yolox")]
    Yolox,
    #[enum_value(name = "EfficientNMS: num_dets, det_boxes, det_scores, det_classes", nick = "efficientnms")]
    EfficientNms,
    #[enum_value(name = "RT-DETR, D-FINE: labels, boxes, scores", nick = "detr")]
    Detr,
    #[enum_value(name = "RT-DETR by Ultralytics before 8.4: [N,K,4+classes]", nick = "detr-ultralytics")]
    DetrUltralytics,
    #[enum_value(name = "RT-DETR by Ultralytics: [N,K,6]", nick = "detr-topk")]
    DetrTopK,
    #[enum_value(name = "SSD: detection_boxes, _classes, _scores, num_detections", nick = "ssd")]
    Ssd,
    #[enum_value(name = "DeepStream-Yolo: [N,A,6]", nick = "deepstream-yolo")]
    DeepstreamYolo,
}

const LAYOUTS: [(LayoutChoice, Layout); Layout::ALL.len()] = [
    (LayoutChoice::Yolov5, Layout::Yolov5),
    (LayoutChoice::Yolov8, Layout::Yolov8),
    (LayoutChoice::Yolov8Transposed, Layout::Yolov8Transposed),
    (LayoutChoice::EndToEnd, Layout::EndToEnd),
    (LayoutChoice::Yolox, Layout::Yolox),
    (LayoutChoice::EfficientNms, Layout::EfficientNms),
    (LayoutChoice::Detr, Layout::Detr),
    (LayoutChoice::DetrUltralytics, Layout::DetrUltralytics),
    (LayoutChoice::DetrTopK, Layout::DetrTopK),
    (LayoutChoice::Ssd, Layout::Ssd),
    (LayoutChoice::DeepstreamYolo, Layout::DeepstreamYolo),
];

impl From<LayoutChoice> for Option<Layout> {
    fn from(choice: LayoutChoice) -> Self {
        LAYOUTS.into_iter().find(|pair| pair.0 == choice).map(|pair| pair.1)
    }
}

impl From<Option<Layout>> for LayoutChoice {
    fn from(layout: Option<Layout>) -> Self {
        LAYOUTS.into_iter().find(|pair| Some(pair.1) == layout).map_or(LayoutChoice::Auto, |pair| pair.0)
    }
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "trtnms", gst::Rank::NONE, TrtNms::static_type())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_can_be_chosen_by_its_name() {
        let class = glib::EnumClass::new::<LayoutChoice>();
        let chosen = class.values().iter().filter_map(|value| {
            let layout = Option::<Layout>::from(value.to_value(&class).get::<LayoutChoice>().unwrap())?;
            assert_eq!(value.nick(), layout.name());
            assert_eq!(Option::<Layout>::from(LayoutChoice::from(Some(layout))), Some(layout));
            Some(layout)
        });
        assert_eq!(chosen.collect::<Vec<_>>(), Layout::ALL);
    }
}
