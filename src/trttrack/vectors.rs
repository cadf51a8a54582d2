// SPDX-License-Identifier: MPL-2.0
//! What the objects of a frame look like, in memory that is used again for the next frame.

use std::ops::Range;

use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::track::{ObjectVector, TrackInput};
use gsttrt_core::vector::normalise;

use crate::gst::meta::vector;

/// The vectors of the regions of a frame.
#[derive(Debug, Default)]
pub struct FrameVectors {
    /// The numbers of one vector after the other.
    values: Vec<f32>,
    /// For each region which numbers are its vector, and the quark of its model's name.
    regions: Vec<Option<(Range<usize>, u32)>>,
}

impl FrameVectors {
    pub fn clear(&mut self) {
        self.values.clear();
        self.regions.clear();
    }

    /// Reads those of a frame in place of others: of each region the vector of the first model, if that has looked at it in this frame.
    pub fn read(&mut self, frame: &gst::BufferRef) {
        self.clear();
        for region in frame.iter_meta::<VideoRegionOfInterestMeta>() {
            let begin = self.values.len();
            let found = vector::append_first(&region, &mut self.values);
            // That of a foreign element may have any length.
            let model =
                found.filter(|&(_, is_held)| !is_held && normalise(&mut self.values[begin..])).map(|(model, _)| model);
            if model.is_none() {
                self.values.truncate(begin);
            }
            self.regions.push(model.map(|model| (begin..self.values.len(), model)));
        }
    }

    /// That of a region.
    pub fn of(&self, region: usize) -> Option<ObjectVector<'_>> {
        let (range, model) = self.regions.get(region)?.clone()?;
        Some(ObjectVector { values: &self.values[range], model })
    }

    /// Whether any region has one.
    pub fn has_any(&self) -> bool {
        self.regions.iter().any(Option::is_some)
    }

    /// Of how many regions it is known whether they have one.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }
}

/// No inputs, in the memory of others: those of another frame borrow from other vectors.
pub fn recycled<'a>(mut inputs: Vec<TrackInput<'_>>) -> Vec<TrackInput<'a>> {
    inputs.clear();
    // Vectors of elements of one size are collected in place.
    inputs.into_iter().map(|_| -> TrackInput<'a> { unreachable!("none is left") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_those_of_this_frame_and_of_the_length_1() {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        let frame = buffer.get_mut().unwrap();
        for (values, is_held) in
            [(&[3.0f32, -4.0][..], false), (&[1.0][..], true), (&[0.0; 3][..], false), (&[2.0][..], false)]
        {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let mut param = gst::Structure::builder("vector")
                .field("dims", values.len() as u32)
                .field("values", gst::Buffer::from_slice(bytes))
                .build();
            if is_held {
                param.set("held", true);
            }
            VideoRegionOfInterestMeta::add(frame, "a", (0, 0, 1, 1)).add_param(param);
        }
        VideoRegionOfInterestMeta::add(frame, "a", (0, 0, 1, 1));
        let mut vectors = FrameVectors::default();
        for _ in 0..2 {
            vectors.read(frame);
            let found: Vec<Option<&[f32]>> =
                (0..6).map(|region| vectors.of(region).map(|found| found.values)).collect();
            assert_eq!(found, [Some(&[0.6, -0.8][..]), None, None, Some(&[1.0][..]), None, None]);
            assert_eq!((vectors.has_any(), vectors.regions()), (true, 5));
        }
        vectors.clear();
        assert_eq!((vectors.has_any(), vectors.regions()), (false, 0));
    }

    #[test]
    fn inputs_of_the_next_frame_have_the_memory_of_the_last_one() {
        let inputs: Vec<TrackInput<'_>> = Vec::with_capacity(100);
        let before = inputs.as_ptr().addr();
        let after = recycled(inputs);
        assert_eq!((after.as_ptr().addr(), after.capacity(), after.len()), (before, 100, 0));
    }
}
