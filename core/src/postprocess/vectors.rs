// SPDX-License-Identifier: MPL-2.0
//! Vectors of the whole picture, of the length 1. They are read on the host, also where the model has run on a GPU.

use super::text::host_copy;
use crate::error::Result;
use crate::heads::{Decoder, number};
use crate::memory::Pool;
use crate::tensor::Tensor;
use crate::vector::normalise;

/// Reads the outputs of a model that gives vectors, each the one of a picture.
pub(super) struct VectorReader {
    /// Numbers of a vector.
    length: usize,
    /// For outputs in GPU memory.
    pool: Pool,
}

impl VectorReader {
    /// `None` for models of other results.
    pub fn new(decoder: &Decoder) -> Option<Self> {
        Some(VectorReader { length: decoder.vector_length()?, pool: Pool::default() })
    }

    /// The vector of an output that is there, and whether its numbers are finite. Empty where it has no length: one is not, or all
    /// are 0.
    ///
    /// # Errors
    /// `Run`, where CUDA fails.
    pub fn read(&self, output: &Tensor) -> Result<(Vec<f32>, bool)> {
        let copy = host_copy(output, &self.pool)?;
        let output = copy.as_ref().unwrap_or(output);
        let mut vector: Vec<f32> = (0..self.length).map(|at| number(output, at)).collect();
        let is_finite = vector.iter().all(|value| value.is_finite());
        if !normalise(&mut vector) {
            vector.clear();
        }
        Ok((vector, is_finite))
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::heads::{ModelHints, embed};

    fn read(output: &Tensor) -> (Vec<f32>, bool) {
        let hints = ModelHints { input: Some((64, 128)), ..ModelHints::default() };
        let decoder = Decoder::new(Some(&embed::HEAD), &[output.desc().clone()], &hints).unwrap();
        VectorReader::new(&decoder).unwrap().read(output).unwrap()
    }

    #[test]
    fn vectors_have_the_length_1() {
        let found = (vec![0.6, -0.8], true);
        assert_eq!(read(&Tensor::from_slice("o", &[1, 2], &[3f32, -4.0])), found);
        assert_eq!(read(&Tensor::from_slice("o", &[1, 2, 1, 1], &[3f32, -4.0])), found);
        let halves = [3f32, -4.0].map(f16::from_f32);
        assert_eq!(read(&Tensor::from_slice("o", &[1, 2], &halves)), found);
        for (none, is_finite) in [([0.0, 0.0], true), ([f32::NAN, 1.0], false), ([1.0, f32::INFINITY], false)] {
            assert_eq!(read(&Tensor::from_slice("o", &[1, 2], &none)), (Vec::new(), is_finite), "{none:?}");
        }
    }
}
