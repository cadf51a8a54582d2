// SPDX-License-Identifier: MPL-2.0
//! Models on the CPU, by rten.
//!
//! rten computes in f32 and i32: f16 goes in and comes out converted, i64 and bool come out widened and narrowed, so that
//! tensors have the types that the model file declares. It allocates its intermediate tensors itself, for each run.

mod net;
mod suppress;
mod threads;

use std::sync::Arc;

use half::slice::HalfFloatSliceExt;
use rten::{Value, ValueView};
use rten_tensor::prelude::*;
use rten_tensor::{Tensor as RtenTensor, TensorView};

use super::host::{HostModel, HostNet, THREADS, parallel_runs, wanted_threads};
use super::options::{BackendOption, INPUT_VALUES, Options};
use super::{Backend, LoadContext, LoadRequest, ModelInstance, OpenedModel, Unsupported, contained, refuse_others};
use crate::cuda::driver::Context;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Pool;
use crate::model::{ModelFile, ModelInfo};
use crate::tensor::{DType, Element, Tensor, TensorDesc};
use net::Net;

/// The backend.
pub struct Rten;

impl Backend for Rten {
    fn name(&self) -> &'static str {
        "rten"
    }

    fn title(&self) -> &'static str {
        "the CPU (rten)"
    }

    fn blurb(&self) -> &'static str {
        "CPU without further libraries, by rten"
    }

    fn device(&self, _: &Options) -> Device {
        Device::Host
    }

    fn options(&self) -> &'static [&'static BackendOption] {
        static OPTIONS: [&BackendOption; 2] = [&THREADS, &INPUT_VALUES];
        &OPTIONS
    }

    /// It is always there.
    fn probe(&self, file: &ModelFile, _options: &Options) -> std::result::Result<(), Unsupported> {
        refuse_others(file, "the CPU")
    }

    fn describe(&self, file: &ModelFile, options: &Options, _: Option<&Context>) -> Result<Arc<dyn OpenedModel>> {
        let info = Arc::new(ModelInfo::of_onnx(&*file.contents()?)?);
        Ok(Arc::new(RtenModel { info, threads: wanted_threads(options) }))
    }

    fn takes_any_size(&self) -> bool {
        true
    }

    fn run_was_abandoned(&self) {
        threads::replace();
    }
}

/// A model that is described.
struct RtenModel {
    info: Arc<ModelInfo>,
    threads: Option<usize>,
}

impl OpenedModel for RtenModel {
    fn info(&self) -> &Arc<ModelInfo> {
        &self.info
    }

    fn load(&self, request: &LoadRequest, _: &LoadContext) -> Result<Box<dyn ModelInstance>> {
        let (model, contents) = (&self.info, request.file.contents()?);
        request.release_file(); // rten takes the bytes over
        let what = format!("The CPU backend cannot load {}", model.path.display());
        let load = || Net::load(model, contents).map_err(|error| error.about(&what));
        let net = Arc::new(contained(ErrorKind::Model, &what, load)?);
        let threads = self.threads.map(|each| each * parallel_runs(request));
        let cpu = Cpu { model: model.clone(), net, threads, widened: Vec::new(), pool: Pool::default() };
        Ok(Box::new(HostModel::new(cpu, request)?))
    }
}

struct Cpu {
    model: Arc<ModelInfo>,
    net: Arc<Net>,
    /// Of all runs at the same time, which share them.
    threads: Option<usize>,
    /// The pictures in f32, where the model wants f16.
    widened: Vec<f32>,
    pool: Pool,
}

impl HostNet for Cpu {
    fn another(&self) -> Result<Self> {
        let Cpu { model, net, threads, .. } = self;
        let (model, net) = (model.clone(), net.clone());
        Ok(Cpu { model, net, threads: *threads, widened: Vec::new(), pool: Pool::default() })
    }

    fn infer(&mut self, batch: &Tensor, sides: &[Option<Tensor>]) -> Result<Vec<Tensor>> {
        let shape: Vec<usize> = batch.desc().dims.iter().map(|&dim| dim as usize).collect();
        let view: ValueView = match batch.desc().dtype {
            DType::U8 => TensorView::from_data(&shape, typed::<u8>(batch)).into(),
            DType::F16 => {
                self.widened.resize(shape.iter().product(), 0.0);
                typed::<half::f16>(batch).convert_to_f32_slice(&mut self.widened);
                TensorView::from_data(&shape, &self.widened[..]).into()
            }
            _ => TensorView::from_data(&shape, typed::<f32>(batch)).into(),
        };
        let sides: Vec<Option<Value>> = sides.iter().map(|side| side.as_ref().map(to_value)).collect();
        let inputs = self.model.inputs.iter().zip(&sides).map(|(desc, side)| {
            let value = side.as_ref().map_or_else(|| view.clone(), Value::as_view);
            (desc.name.as_str(), value)
        });
        let what = format!("The CPU backend failed to run {}", self.model.path.display());
        let run = || self.net.run(inputs.collect(), self.threads).map_err(|error| error.about(&what));
        let mut values = contained(ErrorKind::Run, &what, run)?;
        let outputs = self.model.outputs.iter().map(|desc| match values.remove(&desc.name) {
            Some(value) => to_tensor(&self.pool, desc, value),
            None => Err(Error::new(ErrorKind::Run, &what).cause(format!("it did not compute {}", desc.name))),
        });
        outputs.collect()
    }
}

/// The elements of a tensor whose type the caller has checked.
fn typed<T: Element>(tensor: &Tensor) -> &[T] {
    tensor.as_slice().unwrap_or_default()
}

fn to_value(tensor: &Tensor) -> Value {
    let shape: Vec<usize> = tensor.desc().dims.iter().map(|&dim| dim as usize).collect();
    match tensor.desc().dtype {
        DType::I64 => {
            let narrow: Vec<i32> = typed::<i64>(tensor).iter().map(|&value| value as i32).collect();
            RtenTensor::from_data(&shape, narrow).into()
        }
        DType::I32 => RtenTensor::from_data(&shape, typed::<i32>(tensor).to_vec()).into(),
        DType::U8 => RtenTensor::from_data(&shape, typed::<u8>(tensor).to_vec()).into(),
        DType::F16 => RtenTensor::from_data(&shape, typed::<half::f16>(tensor).to_f32_vec()).into(),
        _ => RtenTensor::from_data(&shape, typed::<f32>(tensor).to_vec()).into(),
    }
}

/// Copies what rten computed into a pooled tensor of the declared type.
fn to_tensor(pool: &Pool, declared: &TensorDesc, value: Value) -> Result<Tensor> {
    let shape: Vec<i64> = value.shape().iter().map(|&dim| dim as i64).collect();
    let desc = TensorDesc::new(declared.name.as_str(), declared.dtype, &shape);
    let unexpected = || {
        let (declared, computed) = (declared.dtype, value.dtype());
        Error::new(
            ErrorKind::Run,
            format!("The model declares its output {} as {declared} and computes {computed}", desc.name),
        )
        .remedy("Export the model again, so that both agree")
    };
    let copy = |bytes: &mut [u8]| {
        match (declared.dtype, &value) {
            (DType::F32, Value::FloatTensor(tensor)) => bytes.copy_from_slice(bytemuck::cast_slice(&tensor.to_slice())),
            (DType::F16, Value::FloatTensor(tensor)) => {
                bytemuck::cast_slice_mut::<_, half::f16>(bytes).convert_from_f32_slice(&tensor.to_slice())
            }
            (DType::I32, Value::Int32Tensor(tensor)) => bytes.copy_from_slice(bytemuck::cast_slice(&tensor.to_slice())),
            (DType::I64, Value::Int32Tensor(tensor)) => {
                let wide = bytemuck::cast_slice_mut::<_, i64>(bytes).iter_mut();
                wide.zip(tensor.iter()).for_each(|(wide, &value)| *wide = value.into());
            }
            (DType::Bool, Value::Int32Tensor(tensor)) => {
                bytes.iter_mut().zip(tensor.iter()).for_each(|(byte, &value)| *byte = (value != 0).into());
            }
            (DType::I8, Value::Int8Tensor(tensor)) => bytes.copy_from_slice(bytemuck::cast_slice(&tensor.to_slice())),
            (DType::U8, Value::UInt8Tensor(tensor)) => bytes.copy_from_slice(&tensor.to_slice()),
            _ => return Err(unexpected()),
        }
        Ok(())
    };
    Tensor::fill(pool, desc.clone(), copy)
}
