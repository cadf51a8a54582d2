// SPDX-License-Identifier: MPL-2.0
//! Vectors of the whole picture, of the length 1. They are read on the host, also where the model has run on a GPU.

use crate::error::Result;
use crate::gallery::vector::normalise;
use crate::heads::{Decoder, number};
use crate::memory::Pool;
use crate::tensor::Tensor;

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

    /// The vector of an output that is there. Empty where it has no length: a number is not finite, or all are 0.
    ///
    /// # Errors
    /// `Run`, where CUDA fails.
    pub fn read(&self, output: &Tensor) -> Result<Vec<f32>> {
        let copy = match output.device() {
            Some(block) => Some(Tensor::fill(&self.pool, output.desc().clone(), |bytes| block.read_into(bytes))?),
            None => None,
        };
        let output = copy.as_ref().unwrap_or(output);
        let mut vector: Vec<f32> = (0..self.length).map(|at| number(output, at)).collect();
        if !normalise(&mut vector) {
            vector.clear();
        }
        Ok(vector)
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::heads::{ModelHints, embed};

    fn read(output: &Tensor) -> Vec<f32> {
        let hints = ModelHints { input: Some((64, 128)), ..ModelHints::default() };
        let decoder = Decoder::new(Some(&embed::HEAD), &[output.desc().clone()], &hints).unwrap();
        VectorReader::new(&decoder).unwrap().read(output).unwrap()
    }

    #[test]
    fn vectors_have_the_length_1() {
        assert_eq!(read(&Tensor::from_slice("o", &[1, 2], &[3f32, -4.0])), [0.6, -0.8]);
        assert_eq!(read(&Tensor::from_slice("o", &[1, 2, 1, 1], &[3f32, -4.0])), [0.6, -0.8]);
        let halves = [3f32, -4.0].map(f16::from_f32);
        assert_eq!(read(&Tensor::from_slice("o", &[1, 2], &halves)), [0.6, -0.8]);
        for none in [[0.0, 0.0], [f32::NAN, 1.0], [1.0, f32::INFINITY]] {
            assert_eq!(read(&Tensor::from_slice("o", &[1, 2], &none)), [0.0; 0], "{none:?}");
        }
    }
}
