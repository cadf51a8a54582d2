// SPDX-License-Identifier: MPL-2.0
//! Models without pictures, such as the text side of CLIP: each of their inputs gets a tensor of the caller. They run on the CPU.

use std::path::Path;
use std::sync::Arc;

use half::f16;

use super::host::HostNet;
use super::options::Options;
use super::{Backend, BackendPreference, CPU, Selection, choose};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{ModelFile, ModelInfo};
use crate::tensor::{DType, Dims, Tensor, TensorDesc};

/// A loaded network of such a model, in one thread.
pub trait TensorNet: Send {
    /// The outputs, in the model's order, of a tensor for each of its inputs, in their order.
    fn run(&mut self, inputs: &[&Tensor]) -> Result<Vec<Tensor>>;
}

impl<N: HostNet> TensorNet for N {
    fn run(&mut self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.infer(inputs)
    }
}

/// An ONNX file whose inputs are all tensors of the caller, and what will run it.
pub struct TensorModel {
    file: ModelFile,
    info: Arc<ModelInfo>,
    backend: &'static dyn Backend,
    /// Those that are next, should it fail to load the model.
    alternatives: Vec<&'static dyn Backend>,
    options: Options,
    /// Rows of the table that the numbers of an input choose from, in the order of the inputs.
    tables: Vec<Option<u64>>,
}

impl TensorModel {
    /// Reads the file's description. `Auto` is the same as `cpu` here.
    ///
    /// # Errors
    /// As [`LoadRequest::new`](super::LoadRequest::new); `Settings`, where the backend is one on a GPU.
    pub fn open(path: &Path, preference: BackendPreference, options: Options) -> Result<Self> {
        let file = ModelFile::new(path);
        let preference = match preference {
            BackendPreference::Auto => BackendPreference::Named(CPU),
            named => named,
        };
        let Selection { backend, others: alternatives, .. } = choose(preference, &file, &options)?;
        if backend.device(&options) != Device::Host {
            let what = format!("{} runs models of pictures only", backend.title());
            return Err(Error::new(ErrorKind::Settings, what).remedy("Use backend=cpu for this model"));
        }
        let contents = file.contents()?;
        let info = Arc::new(ModelInfo::of_tensors(&contents)?);
        let tables = info.tables(&contents)?;
        Ok(TensorModel { file, info, backend, alternatives, options, tables })
    }

    pub fn inputs(&self) -> &[TensorDesc] {
        &self.info.inputs
    }

    pub fn outputs(&self) -> &[TensorDesc] {
        &self.info.outputs
    }

    /// The rows of the table that the numbers of that input choose from, such as the embedding of tokens; `None` where the graph
    /// does not show one. Not every backend refuses numbers beyond it.
    pub fn table_rows(&self, input: usize) -> Option<u64> {
        self.tables.get(input).copied().flatten()
    }

    pub fn backend(&self) -> &'static dyn Backend {
        self.backend
    }

    /// Loads it for inputs of these dimensions, of which none is open, and gives the memory of the file back. Where the backend
    /// fails and the user has not named it, the next one takes its place, with a warning.
    ///
    /// # Errors
    /// `Model`, where none can load it; `Library`, where the backend runs models of pictures only.
    pub fn load(&self, dims: &[Dims]) -> Result<(Box<dyn TensorNet>, Option<Error>)> {
        let load = |backend: &dyn Backend| backend.load_for_tensors(&self.info, &self.file, dims, &self.options);
        let loaded = match load(self.backend) {
            Ok(net) => Ok((net, None)),
            Err(error) if error.kind() != ErrorKind::Model => Err(error),
            Err(error) => {
                let by_next = |backend: &&'static dyn Backend| Some((load(*backend).ok()?, *backend));
                match self.alternatives.iter().find_map(by_next) {
                    Some((net, backend)) => Ok((net, Some(self.replaced_by(backend, &error)))),
                    None => Err(error),
                }
            }
        };
        self.file.release();
        loaded
    }

    fn replaced_by(&self, backend: &dyn Backend, error: &Error) -> Error {
        let what = format!("Running the model on {} in place of {}", backend.title(), self.backend.title());
        let remedy = format!("Set backend={} to have it there at once", backend.name());
        Error::new(ErrorKind::Model, what).cause(error.as_clause()).remedy(remedy)
    }
}

/// The numbers of a tensor of floats in the memory of the host, in 32 bits; `None` of others.
pub fn floats(tensor: &Tensor) -> Option<Vec<f32>> {
    match tensor.desc().dtype {
        DType::F32 => tensor.as_slice::<f32>().map(<[f32]>::to_vec),
        DType::F16 => Some(tensor.as_slice::<f16>()?.iter().map(|value| value.to_f32()).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx_files::{F32, Graph, I32, I64, int};
    use crate::test::scratch;

    #[test]
    fn each_input_gets_a_tensor_of_the_caller() {
        let file = scratch("tensor-model").join("m.onnx");
        let table = [0.5f32, 1.5, 2.5].iter().flat_map(|value| value.to_le_bytes()).collect();
        Graph::new()
            .input("input_ids", I64, &["n", "2"])
            .input("attention_mask", I32, &["n", "2"])
            .weight("table", F32, &[3, 1], table)
            .node("Gather", &["table", "input_ids"], &["vectors"], vec![])
            .node("Cast", &["input_ids"], &["short"], vec![int("to", I32.into())])
            .node("Mul", &["short", "attention_mask"], &["kept"], vec![])
            .output("vectors", F32, &["n", "2", "1"])
            .output("kept", I32, &["n", "2"])
            .save(&file);
        let model = TensorModel::open(&file, BackendPreference::Named("rten"), Options::default()).unwrap();
        assert_eq!([model.table_rows(0), model.table_rows(1), model.table_rows(2)], [Some(3), None, None]);
        let inputs: Vec<String> = model.inputs().iter().map(TensorDesc::to_string).collect();
        assert_eq!(inputs, ["input_ids i64 ?x2", "attention_mask i32 ?x2"]);
        let dims = Dims::new(&[2, 2]);
        let (mut net, warning) = model.load(&[dims.clone(), dims]).unwrap();
        assert_eq!(warning, None);
        let mask = Tensor::from_slice("attention_mask", &[2, 2], &[1i32, 1, 0, 1]);
        // One tensor after the other.
        for (ids, vectors, kept) in [
            ([2i64, 0, 1, 1], [2.5f32, 0.5, 1.5, 1.5], [2, 0, 0, 1]),
            ([0, 0, 2, 2], [0.5, 0.5, 2.5, 2.5], [0, 0, 0, 2]),
        ] {
            let made = net.run(&[&Tensor::from_slice("input_ids", &[2, 2], &ids), &mask]).unwrap();
            assert_eq!(made[0].as_slice::<f32>().unwrap(), vectors);
            assert_eq!(made[1].as_slice::<i32>().unwrap(), kept);
        }
    }

    #[test]
    fn floats_of_16_bits_are_widened() {
        let halves = [0.5f32, -2.0].map(f16::from_f32);
        assert_eq!(floats(&Tensor::from_slice("o", &[1, 2], &halves)), Some(vec![0.5, -2.0]));
        assert_eq!(floats(&Tensor::from_slice("o", &[1, 2], &[0.5f32, -2.0])), Some(vec![0.5, -2.0]));
        assert_eq!(floats(&Tensor::from_slice("o", &[1, 2], &[1i64, 2])), None);
    }

    #[test]
    fn a_model_without_inputs_is_refused() {
        let file = scratch("tensor-model-empty").join("m.onnx");
        Graph::new().constant("vectors", &[1, 2], &[0.5, 1.5]).save(&file);
        let error =
            TensorModel::open(&file, BackendPreference::Auto, Options::default()).err().expect("it has no inputs");
        assert!(error.message().contains("m.onnx: it has no inputs. Export it with its inputs"), "{error}");
    }
}
