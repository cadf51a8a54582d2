// SPDX-License-Identifier: MPL-2.0
//! A model as OpenVINO runs it. It reads inputs where they are, and writes outputs of a known size where they stay.

use std::ffi::{CString, c_char};
use std::iter;
use std::ptr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::super::exit::ExitGuard;
use super::super::host::HostNet;
use super::super::{Interrupter, LoadRequest};
use super::abi::{
    OvCompiled, OvDimension, OvFailure, OvGraph, OvObject, OvPartialShape, OvPort, OvRequest, OvShape, OvTensor,
};
use super::library::{OvLibrary, text};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{HostBlock, Pool, PooledBuffer};
use crate::model::{FileContents, ModelInfo};
use crate::onnx::{limits, weights};
use crate::tensor::{DType, Dims, Tensor, TensorDesc};

/// A compiled model in one of the threads that run it.
pub struct OvNet {
    library: &'static OvLibrary,
    model: Arc<ModelInfo>,
    /// All threads have it.
    compiled: Arc<OvObject<OvCompiled>>,
    /// The runs of this thread.
    request: Arc<OvObject<OvRequest>>,
    /// The outputs, with open dimensions where these are known after a run only.
    outputs: Arc<[TensorDesc]>,
    pool: Pool,
}

/// Name and value of a property, as OpenVINO spells them.
pub type Property = (&'static str, String);

/// As many as any device gets.
const MOST_PROPERTIES: usize = 6;

type Outcome<T> = std::result::Result<T, OvFailure>;

impl OvNet {
    /// Compiles a model for a device, and for inputs of these dimensions.
    pub fn load(
        library: &'static OvLibrary,
        model: &Arc<ModelInfo>,
        file: &FileContents,
        shapes: &[Vec<OvDimension>],
        device: &str,
        set: &[Property],
    ) -> Result<Self> {
        file.graph()?;
        let onnx = weights::inlined(&model.path, file.bytes(), &limits::check_whole(file.onnx()?)?)?;
        let _inside = ExitGuard::enter();
        let api = &library.api;
        // SAFETY: the function makes such objects, of bytes that it copies; there are no weights besides them.
        let graph = unsafe {
            let read = |made| {
                let read = api.core_read_model_from_memory_buffer;
                read(library.core(), onnx.as_ptr().cast(), onnx.len(), ptr::null(), made)
            };
            api.make(api.model_free, read).map_err(unloadable)?
        };
        drop(onnx);
        check_ports(library, &graph, model)?;
        reshape(library, &graph, shapes).map_err(unloadable)?;
        let compiled = compile(library, &graph, device, set).map_err(unloadable)?;
        let outputs = outputs(library, &compiled, model).map_err(unloadable)?;
        OvNet::of(library, model.clone(), Arc::new(compiled), outputs.into()).map_err(unloadable)
    }

    fn of(
        library: &'static OvLibrary,
        model: Arc<ModelInfo>,
        compiled: Arc<OvObject<OvCompiled>>,
        outputs: Arc<[TensorDesc]>,
    ) -> Outcome<Self> {
        let api = &library.api;
        // SAFETY: the functions make and release such objects.
        let request = unsafe {
            let create = |made| (api.compiled_model_create_infer_request)(compiled.as_ptr(), made);
            api.make(api.infer_request_free, create)?
        };
        Ok(OvNet { library, model, compiled, request: Arc::new(request), outputs, pool: Pool::default() })
    }

    /// The type that it computes in: `f32`, `bf16`, `f16`; empty where the device does not say it.
    pub fn precision(&self) -> String {
        let (api, key) = (&self.library.api, c"INFERENCE_PRECISION_HINT");
        // SAFETY: the function writes a text that is ours.
        let said =
            unsafe { api.text(|made| (api.compiled_model_get_property)(self.compiled.as_ptr(), key.as_ptr(), made)) };
        said.unwrap_or_default()
    }

    /// Computes a batch. Outputs whose size is known are in `room` then.
    fn run(&self, inputs: &[&Tensor], room: &mut [Option<PooledBuffer>]) -> Outcome<()> {
        let (api, request) = (&self.library.api, self.request.as_ptr());
        let (set_input, set_output) =
            (api.infer_request_set_input_tensor_by_index, api.infer_request_set_output_tensor_by_index);
        let _inside = ExitGuard::enter();
        for (index, tensor) in inputs.iter().enumerate() {
            let (desc, bytes) = (tensor.desc(), tensor.bytes().unwrap_or_default());
            let value = self.value(desc, bytes.as_ptr().cast_mut())?;
            // SAFETY: the memory stays during the run, which only reads it.
            unsafe { api.check(set_input(request, index, value.as_ptr()))? };
        }
        for (index, (desc, room)) in self.outputs.iter().zip(room).enumerate() {
            let Some(bytes) = room.as_mut().and_then(|room| room.as_mut_bytes()) else { continue };
            let value = self.value(desc, bytes.as_mut_ptr())?;
            // SAFETY: the memory stays until the next run has other memory, and is written during this one only.
            unsafe { api.check(set_output(request, index, value.as_ptr()))? };
        }
        // SAFETY: nothing else starts runs of this request. Its threads are those of the library, which this one waits for.
        unsafe {
            api.check((api.infer_request_start_async)(request))?;
            api.check((api.infer_request_wait)(request))
        }
    }

    /// Memory as a tensor, to be used as long as it is there.
    fn value(&self, desc: &TensorDesc, begin: *mut u8) -> Outcome<OvObject<OvTensor>> {
        let api = &self.library.api;
        let shape = OvShape { rank: desc.dims.len() as i64, dims: desc.dims.as_ptr().cast_mut() };
        let number = self.library.number(desc.dtype);
        // SAFETY: the dimensions live during the call, which only reads them; the memory has as many bytes as they say.
        unsafe {
            let create = |made| (api.tensor_create_from_host_ptr)(number, shape, begin.cast(), made);
            api.make(api.tensor_free, create)
        }
    }

    /// A copy of an output of the last run, whose memory the next one writes.
    fn copied(&self, index: usize, declared: &TensorDesc) -> Result<Tensor> {
        let api = &self.library.api;
        let failed = |failure| self.failed(failure);
        // SAFETY: the functions make and release such objects, and write what they say.
        let (tensor, dims, begin, bytes) = unsafe {
            let get = |made| (api.infer_request_get_output_tensor_by_index)(self.request.as_ptr(), index, made);
            let tensor = api.make(api.tensor_free, get).map_err(failed)?;
            let dims = api.dims(|made| (api.tensor_get_shape)(tensor.as_ptr(), made)).unwrap_or_default();
            let (mut begin, mut bytes) = (ptr::null_mut(), 0);
            api.check((api.tensor_get_byte_size)(tensor.as_ptr(), &mut bytes)).map_err(failed)?;
            if bytes > 0 {
                api.check((api.tensor_data)(tensor.as_ptr(), &mut begin)).map_err(failed)?;
            }
            (tensor, dims, begin.cast::<u8>().cast_const(), bytes)
        };
        let desc = TensorDesc::new(declared.name.as_str(), declared.dtype, &dims);
        if desc.bytes() != Some(bytes) {
            return Err(self.failed(OvFailure(format!("its output {desc} has {bytes} bytes"))));
        }
        let copy = Tensor::fill(&self.pool, desc, |copy| {
            if !begin.is_null() {
                // SAFETY: there are so many bytes as long as the tensor lives, and nothing writes them between runs.
                copy.copy_from_slice(unsafe { std::slice::from_raw_parts(begin, bytes) });
            }
            Ok(())
        });
        drop(tensor);
        copy
    }

    #[track_caller]
    fn failed(&self, failure: OvFailure) -> Error {
        Error::new(ErrorKind::Run, format!("OpenVINO failed to run {}", self.model.path.display()))
            .cause(failure.0)
            .remedy("Check that the model was exported correctly and runs with inputs of this size")
    }
}

impl HostNet for OvNet {
    fn infer(&mut self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let room = |desc: &TensorDesc| desc.bytes().filter(|&bytes| bytes > 0).map(|bytes| self.pool.take(bytes));
        let room = self.outputs.iter().map(|desc| room(desc).transpose());
        let mut room = room.collect::<Result<SmallVec<[Option<PooledBuffer>; 4]>>>()?;
        self.run(inputs, &mut room).map_err(|failure| self.failed(failure))?;
        let outputs = self.outputs.iter().zip(room).enumerate();
        let tensor = |(index, (desc, room)): (usize, (&TensorDesc, Option<PooledBuffer>))| match room {
            Some(room) => Ok(Tensor::on_host(desc.clone(), HostBlock::new(room))),
            None => self.copied(index, desc),
        };
        outputs.map(tensor).collect()
    }

    fn another(&self) -> Result<Self> {
        OvNet::of(self.library, self.model.clone(), self.compiled.clone(), self.outputs.clone()).map_err(unloadable)
    }

    /// Ends the run between two nodes of the graph.
    fn interrupter(&self) -> Option<Interrupter> {
        let (library, request) = (self.library, self.request.clone());
        Some(Arc::new(move || {
            // SAFETY: any thread may call it at any time; where nothing runs, it does nothing.
            let _ = unsafe { library.api.check((library.api.infer_request_cancel)(request.as_ptr())) };
        }))
    }
}

/// Inputs and outputs are told from each other by their places: they must be those of the file, and of its types.
fn check_ports(library: &OvLibrary, graph: &OvObject<OvGraph>, model: &ModelInfo) -> Result<()> {
    let api = &library.api;
    let (mut inputs, mut outputs) = (0, 0);
    // SAFETY: each writes a number.
    unsafe {
        api.check((api.model_inputs_size)(graph.as_ptr(), &mut inputs)).map_err(unloadable)?;
        api.check((api.model_outputs_size)(graph.as_ptr(), &mut outputs)).map_err(unloadable)?;
    }
    let refused = |what: String| {
        Error::new(ErrorKind::Model, what).remedy("Export the model again, or run it with backend=onnxruntime")
    };
    // Such outputs are filled with zeros, and the memory of the input with them.
    let is_input = |output: &&TensorDesc| model.inputs.iter().any(|input| input.name == output.name);
    if let Some(output) = model.outputs.iter().find(is_input) {
        return Err(refused(format!("its output {} is an input, which OpenVINO does not compute", output.name)));
    }
    if (inputs, outputs) != (model.inputs.len(), model.outputs.len()) {
        let (has, had) = (model.inputs.len(), model.outputs.len());
        let what = format!("it has {has} inputs and {had} outputs, of which OpenVINO makes {inputs} and {outputs}");
        return Err(refused(what));
    }
    let free = api.output_const_port_free;
    let input = |index| {
        // SAFETY: the functions make and release such objects.
        unsafe { api.make(free, |made| (api.model_const_input_by_index)(graph.as_ptr(), index, made)) }
    };
    let output = |index| {
        // SAFETY: as above.
        unsafe { api.make(free, |made| (api.model_const_output_by_index)(graph.as_ptr(), index, made)) }
    };
    let inputs = model.inputs.iter().enumerate().map(|(index, desc)| (desc, input(index)));
    let outputs = model.outputs.iter().enumerate().map(|(index, desc)| (desc, output(index)));
    for (desc, port) in inputs.chain(outputs) {
        if !is_of(library, &port.map_err(unloadable)?, desc.dtype).map_err(unloadable)? {
            return Err(refused(format!("OpenVINO gives {desc} another type than the file does")));
        }
    }
    Ok(())
}

fn is_of(library: &OvLibrary, port: &OvObject<OvPort>, dtype: DType) -> Outcome<bool> {
    let mut number = 0;
    // SAFETY: it writes a number.
    unsafe { library.api.check((library.api.port_get_element_type)(port.as_ptr(), &mut number))? };
    Ok(number == library.number(dtype))
}

/// The dimensions of all inputs. What is computed for one size is computed faster, so only the number of pictures is left
/// open, and that where there may be several, and the width of lines of text.
pub fn shapes(request: &LoadRequest) -> Result<Vec<Vec<OvDimension>>> {
    let LoadRequest { spec, batch, values, .. } = request;
    let model = request.model();
    let dims = |rows: usize, of_picture: Dims| -> Result<Vec<Dims>> {
        let picture = || {
            let mut dims = of_picture.clone();
            dims.0[0] = rows as i64;
            dims
        };
        let sides = model.side_inputs(spec, rows, values)?;
        Ok(sides.iter().map(|side| side.as_ref().map_or_else(picture, |tensor| tensor.desc().dims.clone())).collect())
    };
    let least = if model.image_input().dims[0] == Dims::DYNAMIC { 1 } else { *batch };
    let between = |(least, most): (Dims, Dims)| {
        least.iter().zip(most.iter()).map(|(&least, &most)| OvDimension { least, most }).collect::<Vec<_>>()
    };
    let (least, most) = (dims(least, spec.desc.dims.clone())?, dims(*batch, spec.largest_dims())?);
    Ok(least.into_iter().zip(most).map(between).collect())
}

/// The same of inputs of one size.
pub fn fixed_shapes(dims: &[Dims]) -> Vec<Vec<OvDimension>> {
    let fixed = |dims: &Dims| dims.iter().map(|&dim| OvDimension { least: dim, most: dim }).collect();
    dims.iter().map(fixed).collect()
}

/// Scalars stay as they are.
fn reshape(library: &OvLibrary, graph: &OvObject<OvGraph>, shapes: &[Vec<OvDimension>]) -> Outcome<()> {
    let shaped = shapes.iter().enumerate().filter(|(_, dims)| !dims.is_empty());
    let (ports, shapes): (Vec<usize>, Vec<OvPartialShape>) = shaped
        .map(|(port, dims)| {
            let rank = dims.len() as i64;
            let rank = OvDimension { least: rank, most: rank };
            (port, OvPartialShape { rank, dims: dims.as_ptr().cast_mut() })
        })
        .unzip();
    let api = &library.api;
    // SAFETY: as many shapes as ports, whose dimensions live during the call, which only reads them.
    unsafe {
        api.check((api.model_reshape_by_port_indexes)(graph.as_ptr(), ports.as_ptr(), shapes.as_ptr(), ports.len()))
    }
}

fn compile(
    library: &OvLibrary,
    graph: &OvObject<OvGraph>,
    device: &str,
    properties: &[Property],
) -> Outcome<OvObject<OvCompiled>> {
    let (api, device) = (&library.api, text(device));
    let texts: Vec<CString> = properties.iter().flat_map(|(name, value)| [text(name), text(value)]).collect();
    assert!(properties.len() <= MOST_PROPERTIES, "{properties:?}");
    let at = |index: usize| texts.get(index).map_or(ptr::null::<c_char>(), |text| text.as_ptr());
    // SAFETY: the function makes such objects. It reads as many texts as it is told, all of which live during the call.
    unsafe {
        let create = |made| {
            (api.core_compile_model)(
                library.core(),
                graph.as_ptr(),
                device.as_ptr(),
                texts.len(),
                made,
                at(0),
                at(1),
                at(2),
                at(3),
                at(4),
                at(5),
                at(6),
                at(7),
                at(8),
                at(9),
                at(10),
                at(11),
            )
        };
        api.make(api.compiled_model_free, create)
    }
}

/// The outputs of a compiled model, with their dimensions where it fixes all of an output.
fn outputs(library: &OvLibrary, compiled: &OvObject<OvCompiled>, model: &ModelInfo) -> Outcome<Vec<TensorDesc>> {
    let api = &library.api;
    let output = |(index, declared): (usize, &TensorDesc)| -> Outcome<TensorDesc> {
        // SAFETY: the functions make and release such objects, or write the dimensions.
        let dims = unsafe {
            let get = |made| (api.compiled_model_output_by_index)(compiled.as_ptr(), index, made);
            let port = api.make(api.output_const_port_free, get)?;
            api.dims(|made| (api.const_port_get_shape)(port.as_ptr(), made))
        };
        let dims = dims.unwrap_or_else(|| iter::repeat_n(Dims::DYNAMIC, declared.dims.len().max(1)).collect());
        Ok(TensorDesc::new(declared.name.as_str(), declared.dtype, &dims))
    };
    model.outputs.iter().enumerate().map(output).collect()
}

fn unloadable(failure: OvFailure) -> Error {
    Error::new(ErrorKind::Model, failure.0)
        .remedy("Export the model again, with another opset or without what is named here, or use backend=onnxruntime")
}
