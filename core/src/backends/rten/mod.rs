// SPDX-License-Identifier: MPL-2.0
//! Models on the CPU, by rten.
//!
//! rten computes in f32 and i32: f16, i64 and bool go in and come out converted, so that tensors have the types that the model
//! file declares. It allocates its intermediate tensors itself, for each run.

mod net;
mod suppress;
mod threads;

use std::sync::Arc;

use half::slice::HalfFloatSliceExt;
use rten::{Value, ValueView};
use rten_tensor::TensorView;
use rten_tensor::prelude::*;

use super::host::{HostModel, HostNet, THREADS, parallel_runs, wanted_threads};
use super::options::{BackendOption, INPUT_VALUES, MAX_INPUT_WIDTH, Options};
use super::{
    Backend, LoadContext, LoadRequest, ModelInstance, OpenedModel, TensorNet, Unsupported, contained, refuse_others,
};
use crate::cuda::driver::Context;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Pool;
use crate::model::{FileContents, ModelFile, ModelInfo};
use crate::tensor::{DType, Dims, Element, Tensor, TensorDesc};
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
        static OPTIONS: [&BackendOption; 3] = [&THREADS, &INPUT_VALUES, &MAX_INPUT_WIDTH];
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

    fn load_for_tensors(
        &self,
        info: &Arc<ModelInfo>,
        file: &ModelFile,
        _dims: &[Dims],
        options: &Options,
    ) -> Result<Box<dyn TensorNet>> {
        let contents = file.contents()?;
        file.release(); // rten takes the bytes over
        Ok(Box::new(Cpu::load(info, contents, wanted_threads(options))?))
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
        let threads = self.threads.map(|each| each * parallel_runs(request));
        Ok(Box::new(HostModel::new(Cpu::load(model, contents, threads)?, request)?))
    }
}

struct Cpu {
    model: Arc<ModelInfo>,
    net: Arc<Net>,
    /// Of all runs at the same time, which share them.
    threads: Option<usize>,
    /// Of each input.
    converted: Vec<Converted>,
    pool: Pool,
}

/// The numbers of a tensor in a type that rten computes in, where its own is another.
#[derive(Default)]
struct Converted {
    floats: Vec<f32>,
    integers: Vec<i32>,
}

impl Converted {
    /// The tensor as rten takes it: in its own memory, if it can be.
    fn view<'a>(&'a mut self, tensor: &'a Tensor) -> ValueView<'a> {
        let shape: Vec<usize> = tensor.desc().dims.iter().map(|&dim| dim as usize).collect();
        match tensor.desc().dtype {
            DType::U8 => TensorView::from_data(&shape, typed::<u8>(tensor)).into(),
            DType::I8 => TensorView::from_data(&shape, typed::<i8>(tensor)).into(),
            DType::I32 => TensorView::from_data(&shape, typed::<i32>(tensor)).into(),
            DType::F32 => TensorView::from_data(&shape, typed::<f32>(tensor)).into(),
            DType::F16 => {
                self.floats.resize(shape.iter().product(), 0.0);
                typed::<half::f16>(tensor).convert_to_f32_slice(&mut self.floats);
                TensorView::from_data(&shape, &self.floats[..]).into()
            }
            DType::I64 => {
                let narrow = |&value: &i64| value.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
                self.integers.clear();
                self.integers.extend(typed::<i64>(tensor).iter().map(narrow));
                TensorView::from_data(&shape, &self.integers[..]).into()
            }
            DType::Bool => {
                let bytes = tensor.bytes().unwrap_or_default();
                self.integers.clear();
                self.integers.extend(bytes.iter().map(|&byte| i32::from(byte != 0)));
                TensorView::from_data(&shape, &self.integers[..]).into()
            }
        }
    }
}

impl Cpu {
    fn load(model: &Arc<ModelInfo>, contents: Arc<FileContents>, threads: Option<usize>) -> Result<Self> {
        let what = format!("The CPU backend cannot load {}", model.path.display());
        let load = || Net::load(model, contents).map_err(|error| error.about(&what));
        let net = Arc::new(contained(ErrorKind::Model, &what, load)?);
        Ok(Cpu { model: model.clone(), net, threads, converted: Vec::new(), pool: Pool::default() })
    }
}

impl HostNet for Cpu {
    fn another(&self) -> Result<Self> {
        let Cpu { model, net, threads, .. } = self;
        let (model, net) = (model.clone(), net.clone());
        Ok(Cpu { model, net, threads: *threads, converted: Vec::new(), pool: Pool::default() })
    }

    fn infer(&mut self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let Cpu { model, net, threads, converted, pool } = self;
        let is_wide = |tensor: &&&Tensor| {
            tensor.desc().dtype == DType::I64 && typed::<i64>(tensor).iter().any(|&value| i32::try_from(value).is_err())
        };
        if let Some(tensor) = inputs.iter().find(is_wide) {
            let what = format!(
                "The input {} has a number beyond 32 bits, and rten computes with those only",
                tensor.desc().name
            );
            let remedy = "Give smaller numbers, or install ONNX Runtime or OpenVINO";
            return Err(Error::new(ErrorKind::Settings, what).remedy(remedy));
        }
        converted.resize_with(inputs.len(), Converted::default);
        let names = model.inputs.iter().map(|desc| desc.name.as_str());
        let views = inputs.iter().zip(converted).map(|(tensor, converted)| converted.view(tensor));
        let inputs: Vec<(&str, ValueView)> = names.zip(views).collect();
        let what = format!("The CPU backend failed to run {}", model.path.display());
        let run = || net.run(inputs, *threads).map_err(|error| error.about(&what));
        let mut values = contained(ErrorKind::Run, &what, run)?;
        let outputs = model.outputs.iter().map(|desc| match values.remove(&desc.name) {
            Some(value) => to_tensor(pool, desc, value),
            None => Err(Error::new(ErrorKind::Run, &what).cause(format!("it did not compute {}", desc.name))),
        });
        outputs.collect()
    }
}

/// The elements of a tensor whose type the caller has checked.
fn typed<T: Element>(tensor: &Tensor) -> &[T] {
    tensor.as_slice().unwrap_or_default()
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
