// SPDX-License-Identifier: MPL-2.0
//! Models on the CPU, by rten.
//!
//! rten computes in f32 and i32: f16 goes in and comes out converted, i64 and bool come out widened and narrowed, so that
//! tensors have the types that the model file declares. It allocates its intermediate tensors itself, for each run.

mod cut;
mod limits;
mod net;
mod suppress;
mod threads;

use std::sync::Arc;

use half::slice::HalfFloatSliceExt;
use rten::{Value, ValueView};
use rten_tensor::prelude::*;
use rten_tensor::{Tensor as RtenTensor, TensorView};

use super::options::Options;
use super::{Backend, LoadContext, LoadRequest, ModelInstance, OpenedModel, Unsupported, check_rows, contained};
use crate::core::cuda::driver::Context;
use crate::core::device::Device;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::memory::Pool;
use crate::core::tensor::{DType, Dims, Element, Tensor, TensorDesc, Tensors};
use crate::image::transform::InputSpec;
use crate::model::{FileContents, ModelFile, ModelInfo};
use net::Net;

/// The backend.
pub struct Rten;

impl Backend for Rten {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn title(&self) -> &'static str {
        "the CPU"
    }

    fn blurb(&self) -> &'static str {
        "CPU, without further libraries"
    }

    fn device(&self) -> Device {
        Device::Host
    }

    /// It is always there, and slower than any GPU.
    fn probe(&self, file: &ModelFile, _options: &Options) -> std::result::Result<u32, Unsupported> {
        if !file.is_engine() {
            return Ok(1);
        }
        let what = format!("{} is a TensorRT engine, which the CPU cannot run", file.path().display());
        Err(Unsupported::Kind(
            Error::new(ErrorKind::Settings, what)
                .remedy("Give the .onnx file that the engine was built from, or use backend=tensorrt"),
        ))
    }

    fn describe(&self, file: &ModelFile, _options: &Options, _: Option<&Context>) -> Result<Arc<dyn OpenedModel>> {
        Ok(Arc::new(RtenModel(Arc::new(ModelInfo::of_onnx(&*file.contents()?)?))))
    }

    fn takes_any_size(&self) -> bool {
        true
    }

    fn run_was_abandoned(&self) {
        threads::replace();
    }
}

/// A model that is described.
struct RtenModel(Arc<ModelInfo>);

impl OpenedModel for RtenModel {
    fn info(&self) -> &Arc<ModelInfo> {
        &self.0
    }

    fn load(&self, request: &LoadRequest, _: &LoadContext) -> Result<Box<dyn ModelInstance>> {
        let contents = request.file.contents()?;
        request.file.release(); // rten takes the bytes over
        Ok(Box::new(Cpu::open(self.0.clone(), contents, &request.spec, request.batch)?))
    }
}

struct Cpu {
    model: Arc<ModelInfo>,
    spec: InputSpec,
    net: Net,
    /// Pictures of a batch, where the file fixes that.
    fixed: Option<usize>,
    /// What goes in beside the pictures, in the order of the model's inputs and for that many of them; `None` for the
    /// pictures.
    side_inputs: (usize, Vec<Option<Value>>),
    /// The pictures in f32, where the model wants f16.
    widened: Vec<f32>,
    pool: Pool,
}

impl Cpu {
    fn open(model: Arc<ModelInfo>, file: Arc<FileContents>, spec: &InputSpec, batch: usize) -> Result<Self> {
        let what = format!("The CPU backend cannot load {}", model.path.display());
        let net = contained(ErrorKind::Model, &what, || Net::load(&model, file).map_err(|error| error.about(&what)))?;
        let mut cpu = Cpu {
            fixed: (model.image_input().dims[0] != Dims::DYNAMIC).then_some(batch),
            model,
            spec: spec.clone(),
            net,
            side_inputs: Default::default(),
            widened: Vec::new(),
            pool: Pool::default(),
        };
        cpu.make_side_inputs(cpu.fixed.unwrap_or(1))?;
        Ok(cpu)
    }

    fn make_side_inputs(&mut self, rows: usize) -> Result<()> {
        if self.side_inputs.0 != rows {
            let made = self.model.side_inputs(&self.spec, rows)?;
            self.side_inputs = (rows, made.iter().map(|tensor| tensor.as_ref().map(to_value)).collect());
        }
        Ok(())
    }

    /// The outputs of a batch.
    fn infer(&mut self, batch: &Tensor) -> Result<Vec<Tensor>> {
        let shape: Vec<usize> = batch.desc().dims.iter().map(|&dim| dim as usize).collect();
        self.make_side_inputs(shape[0])?;
        let view: ValueView = match batch.desc().dtype {
            DType::U8 => TensorView::from_data(&shape, typed::<u8>(batch)).into(),
            DType::F16 => {
                self.widened.resize(shape.iter().product(), 0.0);
                typed::<half::f16>(batch).convert_to_f32_slice(&mut self.widened);
                TensorView::from_data(&shape, &self.widened[..]).into()
            }
            _ => TensorView::from_data(&shape, typed::<f32>(batch)).into(),
        };
        let inputs = self.model.inputs.iter().zip(&self.side_inputs.1).map(|(desc, side)| {
            let value = side.as_ref().map_or_else(|| view.clone(), Value::as_view);
            (desc.name.as_str(), value)
        });
        let what = format!("The CPU backend failed to run {}", self.model.path.display());
        let mut values =
            contained(ErrorKind::Run, &what, || self.net.run(inputs.collect()).map_err(|error| error.about(&what)))?;
        let outputs = self.model.outputs.iter().map(|desc| match values.remove(&desc.name) {
            Some(value) => to_tensor(&self.pool, desc, value),
            None => Err(Error::new(ErrorKind::Run, &what).cause(format!("it did not compute {}", desc.name))),
        });
        outputs.collect()
    }
}

impl ModelInstance for Cpu {
    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        let rows = self.fixed.unwrap_or(pictures.len());
        if let ([picture], 1) = (pictures, rows) {
            return Ok(vec![Tensors::new(self.infer(&picture[0])?, None, None)]);
        }
        // All have one size, which may be another than that of the batch before.
        let mut desc = pictures[0][0].desc().clone();
        desc.dims.0[0] = rows as i64;
        let batch = Tensor::fill(&self.pool, desc, |bytes| {
            let size = bytes.len() / rows;
            for (row, picture) in bytes.chunks_mut(size).zip(pictures) {
                row.copy_from_slice(picture[0].bytes().unwrap_or_default());
            }
            bytes[size * pictures.len()..].fill(0);
            Ok::<_, Error>(())
        })?;
        let outputs = self.infer(&batch)?;
        outputs.iter().try_for_each(|output| check_rows(output.desc(), rows))?;
        let frame = |row| Tensors::new(outputs.iter().map(|output| output.row(row)).collect(), None, None);
        Ok((0..pictures.len()).map(frame).collect())
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
