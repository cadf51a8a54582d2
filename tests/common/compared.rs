// SPDX-License-Identifier: MPL-2.0
//! Models that two backends run, and how far apart their outputs are.

use std::path::Path;
use std::sync::Arc;

use gsttrt_core::backends::{LoadContext, LoadRequest, ModelInstance};
use gsttrt_core::error::Result;
use gsttrt_core::memory::Pool;
use gsttrt_core::session::parse_options;
use gsttrt_core::tensor::{DType, Tensor, Tensors};

pub const RTEN: &[&str] = &["backend=rten"];

/// All models of this repository.
pub const MODELS: [&str; 10] = [
    "shapes",
    "shapes-v8",
    "shapes-e2e",
    "shapes-f16",
    "shapes-seg",
    "shapes-obb",
    "shapes-cls",
    "shapes-sem",
    "figures-pose",
    "rooms-depth",
];

pub fn request(model: &str, options: &[impl AsRef<str>], batch: usize) -> Result<LoadRequest> {
    let (options, _) = parse_options(options.iter().map(AsRef::as_ref))?;
    let no_gpu = || unreachable!("it is no GPU");
    LoadRequest::new(Path::new(model), options.backend, options.input_size, batch, options.options, no_gpu)
}

/// A loaded model, and a picture for it.
pub fn load(model: &str, options: &[impl AsRef<str>]) -> Result<(Box<dyn ModelInstance>, Arc<Tensors>)> {
    let request = request(model, options, 1)?;
    let instance = request.load(&LoadContext::silent())?;
    Ok((instance, picture(&request, 7)))
}

/// Soft shapes, which differ by `seed`.
pub fn picture(request: &LoadRequest, seed: usize) -> Arc<Tensors> {
    let desc = request.spec.desc.clone();
    let (_, height, width) = request.spec.chw();
    let across: Vec<f32> = (0..width).map(|x| ((x * (seed + 3)) as f32 / 61.0).sin()).collect();
    let down: Vec<f32> = (0..height).map(|y| ((y * (seed + 1)) as f32 / 47.0).cos()).collect();
    let value = |at: usize| 0.5 + 0.5 * (across[at % width] * down[at / width % height]);
    let tensor = Tensor::fill(&Pool::default(), desc.clone(), |bytes| {
        match desc.dtype {
            DType::F32 => bytemuck::cast_slice_mut(bytes).iter_mut().enumerate().for_each(|(at, v)| *v = value(at)),
            DType::F16 => bytemuck::cast_slice_mut::<_, half::f16>(bytes)
                .iter_mut()
                .enumerate()
                .for_each(|(at, v)| *v = half::f16::from_f32(value(at))),
            _ => bytes.iter_mut().enumerate().for_each(|(at, v)| *v = (value(at) * 255.0) as u8),
        }
        Ok(())
    });
    Arc::new(Tensors::new(vec![tensor.unwrap()], None, None))
}

pub fn run(model: &str, options: &[impl AsRef<str>]) -> Result<Vec<Tensor>> {
    let (mut instance, picture) = load(model, options)?;
    instance.run(&[picture])?.remove(0).into_ready()
}

pub fn numbers(tensor: &Tensor) -> Vec<f32> {
    match tensor.desc().dtype {
        DType::F32 => tensor.as_slice::<f32>().unwrap().to_vec(),
        DType::F16 => tensor.as_slice::<half::f16>().unwrap().iter().map(|value| value.to_f32()).collect(),
        DType::I64 => tensor.as_slice::<i64>().unwrap().iter().map(|&value| value as f32).collect(),
        DType::I32 => tensor.as_slice::<i32>().unwrap().iter().map(|&value| value as f32).collect(),
        _ => tensor.bytes().unwrap().iter().map(|&value| value.into()).collect(),
    }
}

/// The largest difference of two outputs, in shares of the largest number.
#[track_caller]
pub fn difference(one: &Tensor, other: &Tensor) -> f32 {
    assert_eq!(one.desc(), other.desc());
    let (one, other) = (numbers(one), numbers(other));
    let largest = one.iter().fold(1e-6f32, |most, value| most.max(value.abs()));
    one.iter().zip(&other).fold(0.0f32, |most, (a, b)| most.max((a - b).abs())) / largest
}
