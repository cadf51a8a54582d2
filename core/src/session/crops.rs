// SPDX-License-Identifier: MPL-2.0
//! Vectors of parts of frames, such as the faces that another model has found.

use super::detector::{Detector, Source};
use crate::error::Result;
use crate::image::align::Crop;
use crate::image::frame::{Colorimetry, Frame};

impl Detector {
    /// The vector of a part of a frame, of the length 1.
    ///
    /// # Errors
    /// As [`Detector::detect`]; `Negotiation`, where the part is empty or not in the frame; `Model`, where the model gives something else
    /// than vectors; `WrongType`, where its numbers make none.
    #[doc(hidden)]
    pub fn vector_of(&mut self, frame: &Frame, color: Colorimetry, crop: &Crop) -> Result<Vec<f32>> {
        self.find_one(Source::of(frame, color), |preprocessor| {
            Ok(preprocessor.regions_of_host(frame, std::slice::from_ref(crop))?.remove(0))
        })?;
        self.require_vector().map(<[f32]>::to_vec)
    }
}
