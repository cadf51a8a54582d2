// SPDX-License-Identifier: MPL-2.0
//! The results of a frame as programs get them.

use super::{Detections, Detector, FrameClass, FrameResults, Keypoint, Object};
use crate::error::{Error, ErrorKind, Result};
use crate::image::map::PixelMap;
use crate::image::{Candidate, label_text};
use crate::postprocess::RankedClass;

impl Detector {
    /// The vector of the last frame.
    ///
    /// # Errors
    /// `Model`, where the model gives something else; `WrongType`, where its numbers make none.
    pub(in crate::session) fn require_vector(&self) -> Result<&[f32]> {
        if let Some(vector) = self.vector() {
            return Ok(vector);
        }
        let file = self.session.model().path.display();
        if let Some(processor) = self.postprocessor.as_ref().filter(|processor| !processor.is_embedding()) {
            let (format, what) = (processor.decoder.format(), format!("{file} gives no vectors"));
            return Err(Error::new(ErrorKind::Model, what)
                .cause(format!("its layout is {format}, for the task “{}”", format.task.name()))
                .remedy("Use a model that makes a vector of each picture, such as one for ReID or faces"));
        }
        let (cause, remedy) = match self.is_finite {
            true => ("all are 0, or too large", "Use another picture, and check mean and std"),
            false => ("some are infinite or NaN", "Set precision=fp32, or try the model with gst-trt verify"),
        };
        let what = format!("The numbers of {file} make no vector");
        Err(Error::new(ErrorKind::WrongType, what).cause(cause).remedy(remedy))
    }
}

impl<'a> Detections<'a> {
    pub(super) fn results(&self) -> FrameResults {
        FrameResults {
            objects: self.objects(),
            classes: self.classes(),
            vector: self.vector().map(<[f32]>::to_vec),
            text: self.text().map(|(text, confidence)| (text.to_string(), confidence)),
            map: self.map().cloned(),
        }
    }

    pub(super) fn classes(&self) -> Vec<FrameClass> {
        let class = |found: &RankedClass| FrameClass {
            label: label_text(self.labels, found.class).into_owned(),
            class_id: found.class,
            confidence: found.score,
        };
        self.instances.frame_classes().iter().map(class).collect()
    }

    pub(super) fn vector(&self) -> Option<&'a [f32]> {
        self.instances.frame_vector()
    }

    pub(super) fn text(&self) -> Option<(&'a str, f32)> {
        let found = self.instances.text.as_ref()?;
        Some((found.text.as_str(), found.confidence))
    }

    pub(super) fn map(&self) -> Option<&'a PixelMap> {
        self.instances.frame_map().filter(|map| !map.is_hidden)
    }

    pub(super) fn objects(&self) -> Vec<Object> {
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
