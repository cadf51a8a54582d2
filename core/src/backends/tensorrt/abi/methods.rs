// SPDX-License-Identifier: MPL-2.0
//! What the rows become for the rest of this crate: names are texts, dimensions are ours, and failures are `None` or false.

use std::ffi::{CStr, CString, c_char, c_void};
use std::marker::PhantomData;

use super::values::{LINEAR, LINEAR_BIT, WORKSPACE};
use super::*;
use crate::onnx::exact::StepWork;
use crate::tensor::{DType, Dims};

/// # Safety
/// `text` is null or a C string that lives at least as long as this call.
unsafe fn owned_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: it is not null, so it is a C string that lives as long as this call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl HostMemory {
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory belongs to this object and does not change.
        let data = unsafe { self.data() };
        match self.size() {
            size if data.is_null() || size == 0 => &[],
            // SAFETY: as above.
            size => unsafe { std::slice::from_raw_parts(data, size) },
        }
    }
}

impl Runtime {
    pub fn set_dla_core(&mut self, core: i32) {
        // SAFETY: takes a number; the exclusive reference excludes other calls.
        unsafe { self.set_dla_core_number(core) }
    }

    /// Version-compatible plans carry code for the host, which runs then.
    pub fn set_engine_host_code_allowed(&mut self, allowed: bool) {
        // SAFETY: takes a flag; the exclusive reference excludes other calls.
        unsafe { self.set_host_code_allowed(allowed) }
    }

    /// # Safety
    /// The runtime outlives the engine. Plans contain code: the user trusts the source of this one.
    pub unsafe fn deserialize(&self, plan: &[u8]) -> Option<Engine> {
        // SAFETY: the plan is read during the call only, and the engine becomes the caller's.
        unsafe {
            let engine = self.deserialize_cuda_engine(plan.as_ptr(), plan.len(), std::ptr::null_mut());
            Engine::from_raw(engine, self.abi())
        }
    }
}

impl Engine {
    /// The name that the network was given.
    pub fn name(&self) -> String {
        // SAFETY: the engine keeps its name.
        unsafe { owned_text(self.get_name()) }
    }

    pub fn io_tensor_name(&self, index: i32) -> Option<CString> {
        // SAFETY: null for wrong numbers, else text that the engine keeps.
        let name = unsafe { self.get_io_tensor_name(index) };
        // SAFETY: as above.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_owned())
    }

    /// As the model has them: open where a profile decides.
    pub fn tensor_shape(&self, name: &CStr) -> Option<Dims> {
        // SAFETY: names are read during the call.
        unsafe { self.get_tensor_shape(name.as_ptr()).read(self.abi()) }
    }

    pub fn tensor_data_type(&self, name: &CStr) -> DataType {
        // SAFETY: as above.
        DataType(unsafe { self.get_tensor_data_type(name.as_ptr()) })
    }

    pub fn tensor_io_mode(&self, name: &CStr) -> IoMode {
        // SAFETY: as above.
        match unsafe { self.get_tensor_io_mode(name.as_ptr()) } {
            1 => IoMode::Input,
            2 => IoMode::Output,
            _ => IoMode::None,
        }
    }

    /// Whether the tensor lies on the host, as those do whose values are dimensions.
    pub fn is_on_host(&self, name: &CStr) -> bool {
        // SAFETY: as above.
        unsafe { self.get_tensor_location(name.as_ptr()) == 1 || self.is_shape_inference_io(name.as_ptr()) }
    }

    /// `None` where the tensor lies as its dimensions say, else the words for how it lies.
    pub fn unusual_format(&self, name: &CStr) -> Option<String> {
        // SAFETY: as above; the engine keeps the text.
        unsafe {
            (self.get_tensor_format(name.as_ptr()) != LINEAR)
                .then(|| owned_text(self.get_tensor_format_desc(name.as_ptr())))
        }
    }

    /// `None` for numbers of profiles that there are not.
    pub fn profile_shape(&self, name: &CStr, profile: i32, extent: OptProfileSelector) -> Option<Dims> {
        // SAFETY: as above.
        unsafe { self.get_profile_shape(name.as_ptr(), profile, extent as i32).read(self.abi()) }
    }

    /// Bytes on the GPU that each context needs.
    pub fn device_memory(&self) -> u64 {
        match self.abi() {
            // SAFETY: takes nothing.
            AbiVersion::V8 | AbiVersion::V10 => unsafe { self.get_device_memory_size() as u64 },
            // SAFETY: as above.
            _ => unsafe { self.get_device_memory_size_v2() }.try_into().unwrap_or(0),
        }
    }

    /// # Safety
    /// The engine outlives the context, and so does the CUDA context that is current now.
    pub unsafe fn create_context(&self) -> Option<Context> {
        // SAFETY: the context becomes the caller's.
        unsafe { Context::from_raw(self.create_execution_context(0), self.abi()) }
    }
}

impl Context {
    /// # Safety
    /// `stream` is a stream of the CUDA context that the context was made in.
    pub unsafe fn set_profile(&mut self, profile: i32, stream: *mut c_void) -> bool {
        // SAFETY: the stream is of this context's CUDA context.
        unsafe { self.set_optimization_profile_async(profile, stream) }
    }

    pub fn set_shape(&mut self, input: &CStr, dims: &[i64]) -> bool {
        let Some(dims) = RawDims::new(dims, self.abi()) else { return false };
        // SAFETY: both are read during the call.
        unsafe { self.set_input_shape(input.as_ptr(), &dims) }
    }

    /// With the shapes that inputs have been given.
    pub fn shape(&self, name: &CStr) -> Option<Dims> {
        // SAFETY: names are read during the call.
        unsafe { self.get_tensor_shape(name.as_ptr()).read(self.abi()) }
    }

    /// # Safety
    /// The memory is large enough for the tensor, and stays so until no queued run uses it.
    pub unsafe fn set_address(&mut self, name: &CStr, address: u64) -> bool {
        // SAFETY: the memory holds the tensor until no queued run uses it. TensorRT only stores the address.
        unsafe { self.set_tensor_address(name.as_ptr(), address as usize as *mut c_void) }
    }

    /// The inputs that still lack a shape or values; `None` where TensorRT does not know them, or the shapes contradict
    /// each other.
    pub fn missing(&mut self) -> Option<i32> {
        // SAFETY: with no room for names, none are written.
        let missing = unsafe { self.infer_shapes(0, std::ptr::null_mut()) };
        (missing >= 0).then_some(missing)
    }

    /// # Safety
    /// `stream` is a stream of the CUDA context that the context was made in, which is current.
    pub unsafe fn enqueue(&mut self, stream: *mut c_void) -> bool {
        // SAFETY: the stream is of this context's CUDA context, which is current.
        unsafe { self.enqueue_v3(stream) }
    }
}

impl Builder {
    /// Precision flags decide the types of a weakly typed network, the model file those of a strongly typed one. From 11 on,
    /// and in RTX, all are strongly typed; in 8, none are.
    ///
    /// # Safety
    /// The builder outlives the network.
    pub unsafe fn network(&self, strongly_typed: bool) -> Option<Network> {
        let flags = match self.abi() {
            AbiVersion::V8 => 1,                              // explicit batch
            AbiVersion::V10 => 2 * u32::from(strongly_typed), // in 11 this bit means something else
            AbiVersion::V11 | AbiVersion::RtxOld | AbiVersion::RtxNew => 0,
        };
        // SAFETY: the network becomes the caller's.
        unsafe { Network::from_raw(self.create_network_v2(flags), self.abi()) }
    }

    /// # Safety
    /// The builder outlives the configuration.
    pub unsafe fn config(&self) -> Option<Config> {
        // SAFETY: the configuration becomes the caller's.
        unsafe { Config::from_raw(self.create_builder_config(), self.abi()) }
    }

    pub fn profile(&self) -> Option<Profile<'_>> {
        // SAFETY: the profile is the builder's, for as long as that lives.
        unsafe { Interface::new(self.create_optimization_profile(), self.abi()) }
            .map(|object| Profile(object, PhantomData))
    }

    /// Takes seconds to many minutes. `None` also where one of them is of another ABI version.
    pub fn build(&mut self, network: &mut Network, config: &mut Config) -> Option<HostMemory> {
        if [network.abi(), config.abi()] != [self.abi(); 2] {
            return None;
        }
        // SAFETY: both are alive and of this ABI version; the plan becomes ours.
        unsafe { HostMemory::from_raw(self.build_serialized_network(network.as_raw(), config.as_raw()), self.abi()) }
    }
}

impl Config {
    /// False where the ABI version has no such flag.
    #[must_use]
    pub fn set(&mut self, flag: BuilderFlag, on: bool) -> bool {
        let Some(number) = flag.number(self.abi()) else { return false };
        // SAFETY: the number is one of the ABI version's.
        unsafe { if on { self.set_flag_number(number) } else { self.clear_flag_number(number) } }
        true
    }

    pub fn is_set(&self, flag: BuilderFlag) -> bool {
        // SAFETY: the number is one of the ABI version's.
        flag.number(self.abi()).is_some_and(|number| unsafe { self.get_flag_number(number) })
    }

    /// Maximum bytes of GPU memory for temporary results.
    pub fn set_workspace(&mut self, bytes: usize) {
        // SAFETY: takes numbers.
        unsafe { self.set_memory_pool_limit(WORKSPACE, bytes) }
    }

    pub fn workspace(&self) -> usize {
        // SAFETY: takes a number.
        unsafe { self.get_memory_pool_limit(WORKSPACE) }
    }

    /// The number of the profile, `None` where it is not valid, or of another ABI version.
    pub fn add_profile(&mut self, profile: &Profile<'_>) -> Option<i32> {
        if profile.abi() != self.abi() {
            return None;
        }
        // SAFETY: the profile is alive and of this ABI version.
        let number = unsafe { self.add_optimization_profile(profile.as_raw()) };
        (number >= 0).then_some(number)
    }

    /// Lets several contexts of the engine have the same profile; in families other than 8 they may anyhow.
    pub fn share_profiles(&mut self) {
        const PROFILE_SHARING_0806: i32 = 2;
        if self.abi() == AbiVersion::V8 {
            // SAFETY: takes a number, which is one of the ABI version's.
            unsafe { self.set_preview_feature(PROFILE_SHARING_0806, true) }
        }
    }

    pub fn set_hardware_compatibility(&mut self, level: Hardware) {
        // SAFETY: takes a number.
        unsafe { self.set_hardware_compatibility_level(level as i32) }
    }

    /// A timing cache of these bytes, or an empty one of none.
    ///
    /// # Safety
    /// The configuration's builder outlives the cache.
    pub unsafe fn timing_cache(&self, bytes: &[u8]) -> Option<TimingCache> {
        // SAFETY: the bytes are copied; the cache becomes the caller's.
        unsafe { TimingCache::from_raw(self.create_timing_cache_of(bytes.as_ptr(), bytes.len()), self.abi()) }
    }

    /// False where the cache is of another GPU or version.
    ///
    /// # Safety
    /// The cache is of this ABI version, and outlives all builds with this configuration.
    #[must_use]
    pub unsafe fn set_timing_cache(&mut self, cache: &TimingCache) -> bool {
        // SAFETY: both are of one ABI version, and the cache outlives the builds.
        unsafe { self.set_timing_cache_to(cache.as_raw(), false) }
    }

    /// False where the ABI version has no progress monitors: 8.
    ///
    /// # Safety
    /// `monitor` is an IProgressMonitor and outlives all builds with this configuration.
    #[must_use]
    pub unsafe fn set_progress_monitor(&mut self, monitor: *mut c_void) -> bool {
        let has = self.abi() != AbiVersion::V8;
        if has {
            // SAFETY: it is an IProgressMonitor, which outlives the builds.
            unsafe { self.set_progress_monitor_to(monitor) };
        }
        has
    }

    /// False where the ABI version calibrates nothing: 11 and RTX.
    ///
    /// # Safety
    /// `calibrator` is an IInt8Calibrator of this ABI version and outlives all builds with this configuration.
    #[must_use]
    pub unsafe fn set_int8_calibrator(&mut self, calibrator: *mut c_void) -> bool {
        let has = matches!(self.abi(), AbiVersion::V8 | AbiVersion::V10);
        if has {
            // SAFETY: it is an IInt8Calibrator of this ABI version, which outlives the builds.
            unsafe { self.set_int8_calibrator_to(calibrator) };
        }
        has
    }

    /// RTX: the GPU generations to build for, like 86 for 8.6; without, the GPU of this machine. False where one is not
    /// supported, or the ABI version builds for this machine's GPU only.
    #[must_use]
    pub fn set_compute_capabilities(&mut self, capabilities: &[i32]) -> bool {
        // SAFETY: both take numbers.
        let set = || unsafe {
            self.set_nb_compute_capabilities(capabilities.len() as i32)
                && (0..).zip(capabilities).all(|(i, &capability)| self.set_compute_capability(capability, i))
        };
        self.abi().is_rtx() && set()
    }
}

impl Profile<'_> {
    #[must_use]
    pub fn set(&mut self, input: &CStr, extent: OptProfileSelector, dims: &[i64]) -> bool {
        let Some(dims) = RawDims::new(dims, self.abi()) else { return false };
        // SAFETY: name and dimensions are read during the call. 8 takes the dimensions by value.
        unsafe {
            match self.abi() {
                AbiVersion::V8 => self.set_dimensions_by_value(input.as_ptr(), extent as i32, dims.narrow),
                _ => self.set_dimensions(input.as_ptr(), extent as i32, &dims),
            }
        }
    }
}

impl TimingCache {
    pub fn serialize(&self) -> Option<HostMemory> {
        // SAFETY: the bytes become ours.
        unsafe { HostMemory::from_raw(self.serialize_bytes(), self.abi()) }
    }
}

impl Network {
    pub fn inputs(&self) -> impl Iterator<Item = NetworkTensor<'_>> {
        // SAFETY: tensors are the network's, for as long as that lives.
        (0..self.input_count()).filter_map(|index| unsafe { self.tensor(self.get_input(index)) })
    }

    pub fn outputs(&self) -> impl Iterator<Item = NetworkTensor<'_>> {
        // SAFETY: as above.
        (0..self.output_count()).filter_map(|index| unsafe { self.tensor(self.get_output(index)) })
    }

    /// In the order in which the parser made them.
    pub fn steps(&self) -> impl Iterator<Item = Layer<'_>> {
        // SAFETY: layers are the network's, for as long as that lives.
        let layer = |index| unsafe { Interface::new(self.get_layer(index), self.abi()) };
        (0..self.layers()).filter_map(layer).map(|object| Layer(object, PhantomData))
    }

    /// # Safety
    /// `pointer` is a tensor of this network, or null.
    unsafe fn tensor(&self, pointer: *mut c_void) -> Option<NetworkTensor<'_>> {
        // SAFETY: the pointer is null or a tensor of this network, which the result borrows.
        unsafe { Interface::new(pointer, self.abi()) }.map(|object| NetworkTensor(object, PhantomData))
    }
}

impl<'a> Layer<'a> {
    pub fn work(&self) -> StepWork {
        // SAFETY: takes nothing.
        values::work_of_layer(unsafe { self.get_type() }, self.abi())
    }

    pub fn inputs(&self) -> impl Iterator<Item = NetworkTensor<'a>> {
        // SAFETY: takes nothing; tensors are the network's. Inputs that are left out are null.
        let count = unsafe { self.get_nb_inputs() };
        // SAFETY: as above.
        let tensor = |index| unsafe { Interface::new(self.get_input(index), self.abi()) };
        (0..count).filter_map(tensor).map(|object| NetworkTensor(object, PhantomData))
    }

    pub fn outputs(&self) -> impl Iterator<Item = NetworkTensor<'a>> {
        // SAFETY: as above.
        let count = unsafe { self.get_nb_outputs() };
        // SAFETY: as above.
        let tensor = |index| unsafe { Interface::new(self.get_output(index), self.abi()) };
        (0..count).filter_map(tensor).map(|object| NetworkTensor(object, PhantomData))
    }

    /// Asks it to compute and write these, which [`BuilderFlag::PreferPrecisionConstraints`] makes TensorRT heed.
    pub fn prefer(&mut self, dtype: DType) {
        let number = DataType::from(dtype).0;
        // SAFETY: these take numbers, and the indices are those of outputs.
        unsafe {
            self.set_precision(number);
            (0..self.get_nb_outputs()).for_each(|index| self.set_output_type(index, number));
        }
    }
}

impl NetworkTensor<'_> {
    /// A number that no other tensor of its network has.
    pub fn identity(&self) -> usize {
        self.0.pointer.addr().get()
    }

    pub fn name(&self) -> CString {
        // SAFETY: the network keeps the name, which is not null.
        unsafe { CStr::from_ptr(self.get_name()) }.to_owned()
    }

    pub fn dims(&self) -> Option<Dims> {
        // SAFETY: it is what this ABI version wrote.
        unsafe { self.get_dimensions().read(self.abi()) }
    }

    pub fn data_type(&self) -> DataType {
        // SAFETY: takes nothing.
        DataType(unsafe { self.get_type() })
    }

    /// False where the model file alone decides: 11 and later RTX.
    #[must_use]
    pub fn set_data_type(&mut self, dtype: DType) -> bool {
        let can = !matches!(self.abi(), AbiVersion::V11 | AbiVersion::RtxNew);
        if can {
            // SAFETY: takes a number.
            unsafe { self.set_type(DataType::from(dtype).0) };
        }
        can
    }

    /// The tensor must lie as its dimensions say.
    pub fn set_linear(&mut self) {
        // SAFETY: takes a number.
        unsafe { self.set_allowed_formats(LINEAR_BIT) }
    }
}

impl Parser {
    /// `path` is where the model comes from: weights may lie next to it. The network refers to memory of the parser,
    /// which must therefore be there until the plan is built.
    pub fn parse(&mut self, onnx: &[u8], path: &CStr) -> bool {
        // SAFETY: both are read during the call.
        unsafe { self.parse_bytes(onnx.as_ptr(), onnx.len(), path.as_ptr()) }
    }

    /// What it did not like.
    pub fn errors(&self) -> impl Iterator<Item = ParserError<'_>> {
        // SAFETY: errors are the parser's, for as long as that lives and parses nothing else.
        let error = |index| unsafe { Interface::new(self.get_error(index), self.abi()) };
        (0..self.error_count()).filter_map(error).map(|object| ParserError(object, PhantomData))
    }
}

impl ParserError<'_> {
    /// The parser's words.
    pub fn description(&self) -> String {
        // SAFETY: the error keeps its text.
        unsafe { owned_text(self.desc()) }
    }

    /// Name and operator of the node; empty in 8, which has only its number.
    pub fn node_and_operator(&self) -> (String, String) {
        match self.abi() {
            AbiVersion::V8 => Default::default(),
            // SAFETY: as above.
            _ => unsafe { (owned_text(self.node_name()), owned_text(self.node_operator())) },
        }
    }
}
