// SPDX-License-Identifier: MPL-2.0
//! Vectors of the whole picture, of the length 1.

mod device;

use crate::cuda::driver::Stream;
use crate::error::Result;
use crate::heads::{Decoder, number};
use crate::tensor::Tensor;
use crate::vector::normalise;
use device::DeviceVectorReader;

/// Reads the outputs of a model that gives vectors, each the one of a picture.
pub(super) struct VectorReader {
    /// Numbers of a vector.
    length: usize,
    /// For outputs in GPU memory.
    device: Option<DeviceVectorReader>,
}

impl VectorReader {
    /// `None` for models of other results.
    pub fn new(decoder: &Decoder) -> Option<Self> {
        Some(VectorReader { length: decoder.vector_length()?, device: None })
    }

    /// The vector of an output that is there, in host memory, and whether its numbers are finite. Empty where it has no length: one is
    /// not, or all are 0.
    pub fn read(&self, output: &Tensor) -> (Vec<f32>, bool) {
        let mut vector: Vec<f32> = (0..self.length).map(|at| number(output, at)).collect();
        let is_finite = vector.iter().all(|value| value.is_finite());
        if !normalise(&mut vector) {
            vector.clear();
        }
        (vector, is_finite)
    }

    /// The same of outputs in GPU memory, behind what was queued on the stream. Waits once for all of them, and returns in how many a
    /// number is not finite.
    ///
    /// # Errors
    /// `WrongType` for tensors that are not on this GPU, `Run` where CUDA fails.
    pub fn read_on(&mut self, stream: &Stream, outputs: &[&Tensor], found: &mut Vec<Vec<f32>>) -> Result<usize> {
        let device = match &mut self.device {
            Some(device) if device.context() == stream.context() => device,
            other => other.insert(DeviceVectorReader::new(stream.context(), self.length)?),
        };
        device.read(stream, outputs, found)
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::fakes::Fakes;
    use crate::heads::{ModelHints, embed};
    use crate::memory::DevicePool;
    use crate::tensor::{DType, TensorDesc};
    use crate::test::random::Random;

    fn reader(output: &Tensor) -> VectorReader {
        let hints = ModelHints { input: Some((64, 128)), ..ModelHints::default() };
        let decoder = Decoder::new(Some(&embed::HEAD), &[output.desc().clone()], &hints).unwrap();
        VectorReader::new(&decoder).unwrap()
    }

    fn read(output: &Tensor) -> (Vec<f32>, bool) {
        reader(output).read(output)
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

    /// A GPU gives the same bits, also of numbers that make no vector.
    #[test]
    fn vectors_on_a_gpu_are_those_of_the_host() {
        let Some(context) = crate::test::gpu() else { return };
        let (pool, stream) = (DevicePool::new(&context), Stream::new(&context).unwrap());
        let mut random = Random(6);
        for (length, count) in [(2, 3), (15, 5), (16, 1), (17, 2), (511, 4), (512, 20), (2048, 33), (4096, 2)] {
            for is_half in [false, true] {
                let outputs: Vec<Tensor> = (0..count)
                    .map(|at| {
                        let mut values: Vec<f32> = (0..length).map(|_| random.between(-9.0, 9.0)).collect();
                        let odd = [f32::NAN, f32::INFINITY, 1e30, 1e-30, 0.0];
                        match at % 6 {
                            0 => {}
                            5 => values.fill(0.0),
                            kind => values[random.below(length)] = odd[kind % odd.len()],
                        }
                        let dims = [1, length as i64];
                        match is_half {
                            false => Tensor::from_slice("o", &dims, &values),
                            true => {
                                let halves: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
                                Tensor::from_slice("o", &dims, &halves)
                            }
                        }
                    })
                    .collect();
                let on_gpu: Vec<Tensor> = outputs
                    .iter()
                    .map(|output| {
                        let bytes = output.bytes().unwrap();
                        let mut block = pool.take(bytes.len()).unwrap();
                        block.write(bytes).unwrap();
                        Tensor::on_device(output.desc().clone(), block)
                    })
                    .collect();
                let mut reader = reader(&outputs[0]);
                let (wanted, are_finite): (Vec<Vec<f32>>, Vec<bool>) = outputs.iter().map(|o| reader.read(o)).unzip();
                let mut found = Vec::new();
                let lost = reader.read_on(&stream, &on_gpu.iter().collect::<Vec<_>>(), &mut found).unwrap();
                let bits = |all: &[Vec<f32>]| -> Vec<Vec<u32>> {
                    all.iter().map(|vector| vector.iter().map(|value| value.to_bits()).collect()).collect()
                };
                assert_eq!(bits(&found), bits(&wanted), "{length} {count} {is_half}");
                assert_eq!(lost, are_finite.iter().filter(|is_finite| !**is_finite).count());
            }
        }
    }

    /// What is queued is waited for where a call fails. The kernel of the fakes does nothing, which is no vector.
    #[test]
    fn vectors_wait_for_their_work() {
        let Some(fakes) = Fakes::of(module_path!(), "vectors_wait_for_their_work") else { return };
        let (context, desc) = (fakes.context(), TensorDesc::new("o", DType::F32, &[1, 4]));
        let (pool, stream) = (DevicePool::new(&context), Stream::new(&context).unwrap());
        let output = Tensor::on_device(desc, pool.take(16).unwrap());
        let mut vectors = reader(&output);
        let read = |vectors: &mut VectorReader, count: usize| {
            let mut found = Vec::new();
            vectors.read_on(&stream, &vec![&output; count], &mut found).map(|_| found)
        };
        assert_eq!(read(&mut vectors, 2).unwrap(), [[0.0; 0]; 2]);
        fakes.each_call_fails("vectors", || read(&mut vectors, 2));
        fakes.each_call_fails("the first vectors", || read(&mut reader(&output), 3));
    }
}
