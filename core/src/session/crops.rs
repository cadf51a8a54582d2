// SPDX-License-Identifier: MPL-2.0
//! Vectors of parts of frames, such as the faces that another model has found.

use super::detector::{Detector, Source};
use crate::error::{Error, ErrorKind, Result};
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
        if self.sees_clips() {
            let file = self.session().model().path.display();
            return Err(Error::new(ErrorKind::Model, format!("{file} sees several frames at once"))
                .cause(format!("its input is {}", self.session().input()))
                .remedy("Use a model that makes a vector of each picture"));
        }
        self.takes_parts = true;
        self.find_one(Source::of(frame, color), |preprocessor| {
            Ok(preprocessor.regions_of_host(frame, std::slice::from_ref(crop))?.remove(0))
        })?;
        self.require_vector().map(<[f32]>::to_vec)
    }
}
