// SPDX-License-Identifier: MPL-2.0
//! A model as ONNX Runtime runs it. Tensors are not copied: it reads inputs where they are, and outputs stay in its memory.

use std::ffi::{CString, c_char, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;

use super::super::Interrupter;
use super::super::exit::ExitGuard;
use super::super::host::HostNet;
use super::abi::{OrtFailure, OrtMemoryInfo, OrtObject, OrtRunOptions, OrtSession, OrtSessionOptions, OrtValue};
use super::library::OrtLibrary;
use super::providers::{ExecutionProvider, text};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{HostBlock, Pool};
use crate::model::{FileContents, ModelInfo};
use crate::onnx::{limits, weights};
use crate::tensor::{DType, Tensor, TensorDesc};

/// A session in one of the threads that run it.
pub struct OrtNet {
    library: &'static OrtLibrary,
    model: Arc<ModelInfo>,
    /// May be run by several threads at once.
    session: Arc<OrtObject<OrtSession>>,
    memory: OrtObject<OrtMemoryInfo>,
    inputs: Vec<CString>,
    outputs: Vec<CString>,
    control: Arc<RunControl>,
    /// For outputs that ONNX Runtime leaves in memory of an input.
    pool: Pool,
}

/// By which another thread ends a run.
struct RunControl {
    library: &'static OrtLibrary,
    options: OrtObject<OrtRunOptions>,
    runs: Mutex<bool>,
}

type Values = SmallVec<[OrtObject<OrtValue>; 4]>;

impl OrtNet {
    pub fn load(
        library: &'static OrtLibrary,
        model: &Arc<ModelInfo>,
        file: &FileContents,
        threads: usize,
        providers: &[ExecutionProvider],
    ) -> Result<Self> {
        file.graph()?;
        let external = weights::read(&model.path, limits::check_whole(file.onnx()?)?.into_iter())?;
        let _inside = ExitGuard::enter();
        let options = session_options(library, threads, &external).map_err(unloadable)?;
        providers.iter().try_for_each(|provider| provider.append(library, &options))?;
        let api = &library.api;
        let bytes = file.bytes();
        // SAFETY: the functions make and release such objects; the file's bytes and its weights, which are copied, live
        // during the call.
        let session = unsafe {
            let create = |made| {
                let begin = bytes.as_ptr().cast();
                (api.create_session_from_array)(library.env(), begin, bytes.len(), options.as_ptr(), made)
            };
            api.make(api.release_session, create).map_err(unloadable)?
        };
        OrtNet::of(library, model.clone(), Arc::new(session)).map_err(unloadable)
    }

    fn of(
        library: &'static OrtLibrary,
        model: Arc<ModelInfo>,
        session: Arc<OrtObject<OrtSession>>,
    ) -> std::result::Result<Self, OrtFailure> {
        const DEVICE_ALLOCATOR: i32 = 0;
        const DEFAULT_MEMORY: i32 = 0;
        let api = &library.api;
        // SAFETY: the functions make and release such objects.
        let (memory, run_options) = unsafe {
            let memory = |made| (api.create_cpu_memory_info)(DEVICE_ALLOCATOR, DEFAULT_MEMORY, made);
            let run_options = |made| (api.create_run_options)(made);
            (api.make(api.release_memory_info, memory)?, api.make(api.release_run_options, run_options)?)
        };
        let names = |descs: &[TensorDesc]| descs.iter().map(|desc| text(&desc.name)).collect();
        Ok(OrtNet {
            library,
            session,
            memory,
            inputs: names(&model.inputs),
            outputs: names(&model.outputs),
            control: Arc::new(RunControl { library, options: run_options, runs: Mutex::new(false) }),
            model,
            pool: Pool::default(),
        })
    }

    /// The tensor's memory as a value, to be used as long as the tensor is there.
    fn value(&self, tensor: &Tensor) -> std::result::Result<OrtObject<OrtValue>, OrtFailure> {
        let (desc, bytes) = (tensor.desc(), tensor.bytes().unwrap_or_default());
        let api = &self.library.api;
        // SAFETY: inputs are only read; the library checks that dimensions and type make so many bytes.
        unsafe {
            let create = |made| {
                let begin = bytes.as_ptr().cast_mut().cast::<c_void>();
                let (dims, rank) = (desc.dims.as_ptr(), desc.dims.len());
                let of_data = api.create_tensor_with_data_as_ort_value;
                of_data(self.memory.as_ptr(), begin, bytes.len(), dims, rank, number(desc.dtype), made)
            };
            api.make(api.release_value, create)
        }
    }

    fn run(&self, inputs: &Values) -> std::result::Result<Values, OrtFailure> {
        let names =
            |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<SmallVec<[*const c_char; 4]>>();
        let (input_names, output_names) = (names(&self.inputs), names(&self.outputs));
        let values: SmallVec<[*const OrtValue; 4]> = inputs.iter().map(|value| value.as_ptr().cast_const()).collect();
        let mut made: SmallVec<[*mut OrtValue; 4]> = SmallVec::from_elem(ptr::null_mut(), output_names.len());
        let api = &self.library.api;
        let _running = self.control.begin();
        let _inside = ExitGuard::enter();
        // SAFETY: as many names as values; null stands for outputs that the library allocates.
        let outcome = unsafe {
            api.check((api.run)(
                self.session.as_ptr(),
                self.control.options.as_ptr(),
                input_names.as_ptr(),
                values.as_ptr(),
                values.len(),
                output_names.as_ptr(),
                output_names.len(),
                made.as_mut_ptr(),
            ))
        };
        // SAFETY: those that it made are ours.
        let own = |value| unsafe { OrtObject::from_raw(value, api.release_value) };
        let made: Values = made.into_iter().filter_map(NonNull::new).map(own).collect();
        outcome?;
        if made.len() < output_names.len() {
            return Err(OrtFailure("an output was not computed".into()));
        }
        Ok(made)
    }

    /// An output, which keeps the value. Where it is memory of an input, it is copied, for that will be written again.
    fn tensor(&self, declared: &TensorDesc, value: OrtObject<OrtValue>, inputs: &[&Tensor]) -> Result<Tensor> {
        let described = self.describe(&value).map_err(|failure| self.failed(failure))?;
        let Some((dims, begin)) = described
            .filter(|(desc, _)| desc.dtype == number(declared.dtype))
            .map(|(shape, begin)| (shape.dims, begin))
        else {
            let what = format!(
                "The model declares its output {} as {} and computes another type",
                declared.name, declared.dtype
            );
            return Err(Error::new(ErrorKind::Run, what).remedy("Export the model again, so that both agree"));
        };
        let desc = TensorDesc::new(declared.name.as_str(), declared.dtype, &dims);
        let bytes = desc.bytes().ok_or_else(|| self.failed(OrtFailure(format!("its output {desc} is too large"))))?;
        let begin = NonNull::new(begin).filter(|_| bytes > 0).unwrap_or(NonNull::<u64>::dangling().cast());
        let is_input = |tensor: &&Tensor| {
            tensor.bytes().is_some_and(|bytes| bytes.as_ptr_range().contains(&begin.as_ptr().cast_const()))
        };
        let is_shared = inputs.iter().any(is_input);
        let owner = Arc::new((value, self.session.clone()));
        // SAFETY: the value has so many bytes, which stay as long as it does; nothing writes them once the run is over.
        let block = unsafe { HostBlock::foreign(begin, bytes, owner) };
        if is_shared {
            return Tensor::fill(&self.pool, desc, |copy| {
                copy.copy_from_slice(block.bytes());
                Ok(())
            });
        }
        Ok(Tensor::on_host(desc, block))
    }

    /// Type, dimensions and memory of a value; `None` where it is no tensor.
    fn describe(&self, value: &OrtObject<OrtValue>) -> std::result::Result<Option<(ValueShape, *mut u8)>, OrtFailure> {
        let api = &self.library.api;
        let (mut is_tensor, mut dtype, mut rank, mut begin) = (0, 0, 0, ptr::null_mut());
        // SAFETY: each writes one number, or as many as there are dimensions; the description is released.
        unsafe {
            api.check((api.is_tensor)(value.as_ptr(), &mut is_tensor))?;
            if is_tensor == 0 {
                return Ok(None);
            }
            let info =
                api.make(api.release_tensor_info, |made| (api.get_tensor_type_and_shape)(value.as_ptr(), made))?;
            api.check((api.get_tensor_element_type)(info.as_ptr(), &mut dtype))?;
            api.check((api.get_dimensions_count)(info.as_ptr(), &mut rank))?;
            let mut dims = SmallVec::from_elem(0, rank);
            api.check((api.get_dimensions)(info.as_ptr(), dims.as_mut_ptr(), rank))?;
            api.check((api.get_tensor_mutable_data)(value.as_ptr(), &mut begin))?;
            Ok(Some((ValueShape { dtype, dims }, begin.cast())))
        }
    }

    #[track_caller]
    fn failed(&self, failure: OrtFailure) -> Error {
        Error::new(ErrorKind::Run, format!("ONNX Runtime failed to run {}", self.model.path.display()))
            .cause(failure.0)
            .remedy("Check that the model was exported correctly and runs with inputs of this size")
    }
}

struct ValueShape {
    dtype: i32,
    dims: SmallVec<[i64; 6]>,
}

impl HostNet for OrtNet {
    fn infer(&mut self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let values = inputs.iter().map(|tensor| self.value(tensor)).collect::<std::result::Result<Values, _>>();
        let made = values.and_then(|values| self.run(&values)).map_err(|failure| self.failed(failure))?;
        let outputs = self.model.outputs.iter().zip(made);
        outputs.map(|(declared, value)| self.tensor(declared, value, inputs)).collect()
    }

    fn another(&self) -> Result<Self> {
        OrtNet::of(self.library, self.model.clone(), self.session.clone()).map_err(unloadable)
    }

    fn interrupter(&self) -> Option<Interrupter> {
        let control = self.control.clone();
        Some(Arc::new(move || control.interrupt()))
    }
}

impl RunControl {
    /// A run begins, which lasts until the result is dropped.
    fn begin(&self) -> OngoingRun<'_> {
        *self.runs.lock().unwrap() = true;
        OngoingRun(self)
    }

    /// Ends the run, if there is one, between two nodes of the graph.
    fn interrupt(&self) {
        let runs = self.runs.lock().unwrap();
        if *runs {
            // SAFETY: it sets a flag, which a run reads.
            let status = unsafe { (self.library.api.run_options_set_terminate)(self.options.as_ptr()) };
            // SAFETY: that was a function of this table. It does not fail for options that are there.
            let _ = unsafe { self.library.api.check(status) };
        }
    }
}

/// A run, as long as it lives.
struct OngoingRun<'a>(&'a RunControl);

impl Drop for OngoingRun<'_> {
    fn drop(&mut self) {
        let RunControl { library, options, runs } = self.0;
        let mut runs = runs.lock().unwrap();
        *runs = false;
        // SAFETY: as in `interrupt`.
        let _ = unsafe { library.api.check((library.api.run_options_unset_terminate)(options.as_ptr())) };
    }
}

fn session_options(
    library: &OrtLibrary,
    threads: usize,
    external: &[(String, Vec<u8>)],
) -> std::result::Result<OrtObject<OrtSessionOptions>, OrtFailure> {
    let api = &library.api;
    let names: Vec<CString> = external.iter().map(|(name, _)| text(name)).collect();
    let names: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let contents: Vec<*const c_char> = external.iter().map(|(_, bytes)| bytes.as_ptr().cast()).collect();
    let sizes: Vec<usize> = external.iter().map(|(_, bytes)| bytes.len()).collect();
    // SAFETY: the functions make and release such objects; the texts live during the calls, the weights until the
    // session is made.
    unsafe {
        let options = api.make(api.release_session_options, |made| (api.create_session_options)(made))?;
        let threads = i32::try_from(threads).unwrap_or(i32::MAX);
        api.check((api.set_intra_op_num_threads)(options.as_ptr(), threads))?;
        api.check((api.set_inter_op_num_threads)(options.as_ptr(), 1))?;
        let set = |key: &std::ffi::CStr, value: &std::ffi::CStr| {
            api.check((api.add_session_config_entry)(options.as_ptr(), key.as_ptr(), value.as_ptr()))
        };
        // Threads that wait for work in a loop take the cores from what else is in a pipeline.
        set(c"session.intra_op.allow_spinning", c"0")?;
        if !external.is_empty() {
            let add = api.add_external_initializers_from_files_in_memory;
            api.check(add(options.as_ptr(), names.as_ptr(), contents.as_ptr(), sizes.as_ptr(), sizes.len()))?;
        }
        Ok(options)
    }
}

fn unloadable(failure: OrtFailure) -> Error {
    Error::new(ErrorKind::Model, failure.0)
        .remedy("Export the model again, with another opset or without what is named here")
}

/// `ONNXTensorElementDataType`.
fn number(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
    }
}
