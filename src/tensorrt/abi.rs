//! The C++ objects of TensorRT, called by the numbers of their virtual functions.
//!
//! TensorRT has no C interface, and its C++ headers are of one version each. But what those headers compile to is small and
//! stays: a public object is `[vptr][implementation]`, its methods load a function from the implementation's table of virtual
//! functions and call it. The numbers of these functions are what every C++ program bakes in, so they are the same in all
//! releases of a [`Family`]; they are written down here, as far as they are used, beside what the functions take and return.
//!
//! This is for the Itanium C++ ABI: Linux, on x86-64 and on 64-bit Arm.
//!
//! Handles own their objects and delete them. Which object must outlive which is said at the functions that make them.

use std::ffi::{CStr, CString, c_char, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::tensor::{DType, Dims};

/// Releases of TensorRT that share their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// TensorRT 8.6.
    V8,
    V10,
    V11,
    /// TensorRT-RTX 1.3 and 1.4.
    RtxOld,
    /// TensorRT-RTX 1.5 and later.
    RtxNew,
}

impl Family {
    pub const ALL: [Family; 5] = [Family::V8, Family::V10, Family::V11, Family::RtxOld, Family::RtxNew];

    pub fn is_rtx(self) -> bool {
        matches!(self, Family::RtxOld | Family::RtxNew)
    }

    /// Every network has the types that its model file gives; there are no precision flags.
    pub fn is_strongly_typed(self) -> bool {
        self == Family::V11 || self.is_rtx()
    }

    /// Loggers and profilers are versioned interfaces, with more functions before theirs.
    pub fn has_versioned_logger(self) -> bool {
        matches!(self, Family::V11 | Family::RtxNew)
    }
}

/// Numbers by family, in the order of [`Family::ALL`].
type Numbers = [u8; 5];

/// There is none in that family.
const X: u8 = u8::MAX;

/// Rows that differ in no family.
const fn same(number: u8) -> Numbers {
    [number; 5]
}

fn number(numbers: Numbers, family: Family) -> Option<u8> {
    Some(numbers[family as usize]).filter(|&number| number != X)
}

/// Pointers below this are what a failed constructor leaves behind: null plus an offset.
const FIRST_PAGE: usize = 4096;

/// An object, and the family that says how to call it.
#[derive(Clone, Copy)]
struct Object {
    pointer: NonNull<c_void>,
    family: Family,
}

impl Object {
    /// # Safety
    /// `pointer` is a public object of that family, or null, or what is left of one that could not be made.
    unsafe fn new(pointer: *mut c_void, family: Family) -> Option<Self> {
        let pointer = NonNull::new(pointer).filter(|pointer| pointer.addr().get() >= FIRST_PAGE)?;
        Some(Object { pointer, family })
    }

    fn raw(self) -> *mut c_void {
        self.pointer.as_ptr()
    }

    /// The object itself, for interfaces that have no implementation behind them.
    fn own(self) -> *mut c_void {
        self.raw()
    }

    fn implementation(self) -> *mut c_void {
        // SAFETY: public objects are two pointers; the second is the implementation, in every version.
        unsafe { *self.raw().cast::<*mut c_void>().add(1) }
    }

    /// # Panics
    /// If the family has no such function: callers ask first where some have none.
    fn slot(self, name: &str, numbers: Numbers) -> usize {
        match number(numbers, self.family) {
            Some(number) => number.into(),
            None => panic!("{:?} has no {name}", self.family),
        }
    }
}

/// Calls a virtual function: the only place in this crate that does. Some of them may throw, hence `C-unwind`.
macro_rules! call {
    ($this:expr, $slot:expr, ($($type:ty),*) -> $result:ty, $($arg:expr),*) => {{
        let this: *mut c_void = $this;
        let table = *this.cast::<*const *const c_void>();
        let function: unsafe extern "C-unwind" fn(*mut c_void, $($type),*) -> $result =
            std::mem::transmute(*table.add($slot));
        function(this, $($arg),*)
    }};
}

/// A class: its handle, and a row for each function that is used. `safe` functions take and return numbers only, and may be
/// called whenever the object is alive; `raw` ones are wrapped by hand below.
macro_rules! class {
    (
        $(#[$doc:meta])*
        $name:ident $(<$life:lifetime>)? by $table:ident;
        safe { $( $(#[$safe_doc:meta])* $safe:ident($($safe_arg:ident: $safe_type:ty),*) -> $safe_result:ty = $safe_row:expr; )* }
        raw { $( $raw:ident($($raw_arg:ident: $raw_type:ty),*) -> $raw_result:ty = $raw_row:expr; )* }
    ) => {
        $(#[$doc])*
        pub struct $name $(<$life>)? (Object $(, PhantomData<&$life ()>)?);

        #[allow(dead_code, reason = "which classes need all of these differs")]
        impl $(<$life>)? $name $(<$life>)? {
            #[cfg(test)]
            const ROWS: &'static [(&'static str, Numbers)] =
                &[$((stringify!($safe), $safe_row),)* $((stringify!($raw), $raw_row),)*];

            pub fn family(&self) -> Family {
                self.0.family
            }

            /// The C++ object, for functions that take one.
            pub(super) fn as_raw(&self) -> *mut c_void {
                self.0.raw()
            }

            $(
                $(#[$safe_doc])*
                pub fn $safe(&self, $($safe_arg: $safe_type),*) -> $safe_result {
                    let slot = self.0.slot(concat!(stringify!($name), "::", stringify!($safe)), $safe_row);
                    // SAFETY: the object is alive, and the row says what the function takes and returns.
                    unsafe { call!(self.0.$table(), slot, ($($safe_type),*) -> $safe_result, $($safe_arg),*) }
                }
            )*

            $(
                /// # Safety
                /// The pointers are what the function of that name takes.
                unsafe fn $raw(&self, $($raw_arg: $raw_type),*) -> $raw_result {
                    let slot = self.0.slot(concat!(stringify!($name), "::", stringify!($raw)), $raw_row);
                    // SAFETY: the object is alive, the row says what the function takes and returns, the rest says the caller.
                    unsafe { call!(self.0.$table(), slot, ($($raw_type),*) -> $raw_result, $($raw_arg),*) }
                }
            )*
        }
    };
}

/// Handles that own their object. All of TensorRT's objects may be used by any one thread at a time.
macro_rules! owned {
    ($($name:ident deleted by $row:expr;)*) => {$(
        impl $name {
            /// # Safety
            /// `pointer` is an object of this class and family that nobody else deletes, or none at all.
            pub(super) unsafe fn from_raw(pointer: *mut c_void, family: Family) -> Option<Self> {
                // SAFETY: as the caller says.
                unsafe { Object::new(pointer, family) }.map($name)
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                let slot = self.0.slot(concat!(stringify!($name), "::delete"), $row);
                // SAFETY: the object is alive and ours.
                unsafe { call!(self.0.own(), slot, () -> (),) }
            }
        }

        // SAFETY: TensorRT ties no object to the thread that made it.
        unsafe impl Send for $name {}
    )*};
}

// Columns: 8.6, 10, 11, RTX 1.3 and 1.4, RTX from 1.5.

class! {
    /// Bytes that TensorRT allocated: a plan, a timing cache.
    HostMemory by implementation;
    safe {
        size() -> usize = same(3);
    }
    raw {
        data() -> *const u8 = same(2);
    }
}

class! {
    /// Makes engines of plans.
    Runtime by implementation;
    safe {
        set_dla_core(core: i32) -> () = [3, 5, 4, 5, 4];
        set_engine_host_code_allowed(allowed: bool) -> () = [20, 21, 20, 21, 20];
    }
    raw {
        // The third argument is read by 8 only: an IPluginFactory, null.
        deserialize_cuda_engine(plan: *const u8, size: usize, factory: *mut c_void) -> *mut c_void = [2, 3, 3, 3, 3];
    }
}

class! {
    /// A network for one GPU.
    Engine by implementation;
    safe {
        io_tensors() -> i32 = [45, 30, 26, 28, 26];
        optimization_profiles() -> i32 = [22, 10, 8, 8, 8];
        auxiliary_streams() -> i32 = [49, 33, 29, 31, 29];
    }
    raw {
        get_io_tensor_name(index: i32) -> *const c_char = [46, 31, 27, 29, 27];
        get_tensor_shape(name: *const c_char) -> RawDims = [34, 19, 15, 17, 15];
        get_tensor_data_type(name: *const c_char) -> i32 = [35, 20, 16, 18, 16];
        get_tensor_location(name: *const c_char) -> i32 = [36, 21, 17, 19, 17];
        is_shape_inference_io(name: *const c_char) -> bool = [37, 22, 18, 20, 18];
        get_tensor_io_mode(name: *const c_char) -> i32 = [38, 23, 19, 21, 19];
        get_tensor_format(name: *const c_char) -> i32 = [41, 26, 22, 24, 22];
        get_tensor_format_desc(name: *const c_char) -> *const c_char = [42, 27, 23, 25, 23];
        get_profile_shape(name: *const c_char, profile: i32, which: i32) -> RawDims = [44, 29, 25, 27, 25];
        get_device_memory_size() -> usize = [14, 7, X, X, X];
        get_device_memory_size_v2() -> i64 = [X, X, 44, 50, 44]; // in 10 only from 10.1
        get_name() -> *const c_char = [21, 9, 7, 7, 7];
        // The argument, not there in 8, says when the context's memory is allocated: 0, now.
        create_execution_context(strategy: i32) -> *mut c_void = [11, 5, 5, 5, 5];
    }
}

class! {
    /// What one run of an engine needs of its own.
    Context by implementation;
    safe {}
    raw {
        set_optimization_profile_async(profile: i32, stream: *mut c_void) -> bool = [25, 17, 16, 17, 16];
        set_input_shape(name: *const c_char, dims: *const RawDims) -> bool = [29, 21, 20, 21, 20];
        get_tensor_shape(name: *const c_char) -> RawDims = [30, 22, 21, 22, 21];
        set_tensor_address(name: *const c_char, address: *mut c_void) -> bool = [32, 24, 23, 24, 23];
        infer_shapes(most: i32, names: *mut *const c_char) -> i32 = [35, 28, 27, 28, 27];
        enqueue_v3(stream: *mut c_void) -> bool = [44, 37, 36, 37, 36];
    }
}

class! {
    /// Makes plans of networks.
    Builder by implementation;
    safe {
        /// Not in 11 and later RTX, where it would decide nothing.
        platform_has_fast_fp16() -> bool = [4, 2, X, 2, X];
        set_max_threads(threads: i32) -> bool = [20, 17, 14, 17, 14];
    }
    raw {
        create_network_v2(flags: u32) -> *mut c_void = [11, 8, 6, 8, 6];
        create_builder_config() -> *mut c_void = [9, 7, 5, 7, 5];
        create_optimization_profile() -> *mut c_void = [12, 9, 7, 9, 7];
        build_serialized_network(network: *mut c_void, config: *mut c_void) -> *mut c_void = [17, 14, 11, 14, 11];
    }
}

class! {
    /// How a network is to be built.
    Config by implementation;
    safe {
        /// Of 0 to 5: how long to search for fast kernels.
        set_builder_optimization_level(level: i32) -> () = [51, 47, 36, 36, 36];
        /// 0: all of the engine runs on the stream that it is given.
        set_max_aux_streams(streams: i32) -> () = [58, 54, 43, 43, 43];
        /// Bits: which libraries beside its own kernels TensorRT may use; 0 for none.
        set_tactic_sources(sources: u32) -> bool = [42, 38, 27, 27, 27];
        set_profiling_verbosity(verbosity: i32) -> () = [31, 27, 25, 25, 25];
        set_dla_core(core: i32) -> () = [22, 18, 16, 16, 16];
        /// 0: GPU, 1: DLA.
        set_default_device_type(device: i32) -> () = [24, 20, 18, 18, 18];
    }
    raw {
        set_flag_number(flag: i32) -> () = [15, 11, 9, 9, 9];
        get_flag_number(flag: i32) -> bool = [16, 12, 10, 10, 10];
        clear_flag_number(flag: i32) -> () = [14, 10, 8, 8, 8];
        set_memory_pool_limit(pool: i32, bytes: usize) -> () = [47, 43, 32, 32, 32];
        get_memory_pool_limit(pool: i32) -> usize = [48, 44, 33, 33, 33];
        add_optimization_profile(profile: *mut c_void) -> i32 = [29, 25, 23, 23, 23];
        create_timing_cache_of(bytes: *const u8, size: usize) -> *mut c_void = [44, 40, 29, 29, 29];
        set_timing_cache_to(cache: *mut c_void, ignore_mismatch: bool) -> bool = [45, 41, 30, 30, 30];
        set_hardware_compatibility_level(level: i32) -> () = [53, 49, 38, 38, 38];
        set_int8_calibrator_to(calibrator: *mut c_void) -> () = [8, 6, X, X, X];
        set_progress_monitor_to(monitor: *mut c_void) -> () = [X, 56, 45, 45, 45];
        set_nb_compute_capabilities(count: i32) -> bool = [X, X, X, 55, 55];
        set_compute_capability(capability: i32, index: i32) -> bool = [X, X, X, 57, 57];
    }
}

class! {
    /// Smallest, usual and largest dimensions of inputs. The builder owns it.
    Profile<'a> by implementation;
    safe {
        is_valid() -> bool = [9, 9, 7, 9, 7];
    }
    raw {
        set_dimensions_by_value(name: *const c_char, which: i32, dims: Dims32) -> bool = [2, X, X, X, X];
        set_dimensions(name: *const c_char, which: i32, dims: *const RawDims) -> bool = [X, 2, 2, 2, 2];
    }
}

class! {
    /// How long kernels took on this GPU.
    TimingCache by implementation;
    safe {}
    raw {
        serialize_bytes() -> *mut c_void = same(2);
    }
}

class! {
    /// A model, as the builder takes it.
    Network by implementation;
    safe {
        layers() -> i32 = [17, 12, 12, 12, 12];
        input_count() -> i32 = [19, 14, 14, 14, 14];
        output_count() -> i32 = [21, 16, 16, 16, 16];
    }
    raw {
        get_input(index: i32) -> *mut c_void = [20, 15, 15, 15, 15];
        get_output(index: i32) -> *mut c_void = [22, 17, 17, 17, 17];
    }
}

class! {
    /// An input or output of a network, which owns it.
    NetworkTensor<'a> by implementation;
    safe {
        /// Its values are dimensions of other tensors.
        is_shape_tensor() -> bool = [21, 21, 15, 12, 11];
    }
    raw {
        get_name() -> *const c_char = same(3);
        get_dimensions() -> RawDims = same(5);
        set_type(dtype: i32) -> () = [6, 6, X, 6, X];
        get_type() -> i32 = [7, 7, 6, 7, 6];
        set_allowed_formats(formats: u32) -> () = [19, 19, 13, 10, 9];
    }
}

class! {
    /// Reads ONNX into a network.
    Parser by own;
    safe {
        error_count() -> i32 = [6, 5, 3, 5, 3];
    }
    raw {
        parse_bytes(bytes: *const u8, size: usize, path: *const c_char) -> bool = same(0);
        get_error(index: i32) -> *mut c_void = [7, 6, 4, 6, 4];
    }
}

class! {
    /// What a parser did not like. The parser owns it.
    ParserError<'a> by own;
    safe {
        code() -> i32 = same(0);
        /// Index of the node in the graph, or -1.
        node() -> i32 = same(5);
    }
    raw {
        desc() -> *const c_char = same(1);
        node_name() -> *const c_char = [X, 6, 6, 6, 6];
        node_operator() -> *const c_char = [X, 7, 7, 7, 7];
    }
}

owned! {
    HostMemory deleted by same(1);
    Runtime deleted by same(1);
    Engine deleted by same(1);
    Context deleted by same(1);
    Builder deleted by same(1);
    Config deleted by same(1);
    TimingCache deleted by same(1);
    Network deleted by same(1);
    // In 8 its `destroy()`: the destructor itself moved between 8.6.0 and 8.6.1.
    Parser deleted by [5, 9, 7, 9, 7];
}

// Non-modifying calls, deserializing and making contexts are safe from several threads at once.
// SAFETY: so NVIDIA's documentation on thread safety says, of these two classes; nothing else is called on a shared one.
unsafe impl Sync for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Engine {}

/// Dims of 8.
#[derive(Clone, Copy)]
#[repr(C)]
struct Dims32 {
    count: i32,
    dims: [i32; MOST_DIMS],
}

/// Dims of 10 and later, and of RTX.
#[derive(Clone, Copy)]
#[repr(C)]
struct Dims64 {
    count: i32,
    dims: [i64; MOST_DIMS],
}

const MOST_DIMS: usize = 8;

/// Either. Both are larger than what registers return, so C++ writes them where the caller says, and a place for the larger
/// one will do for both.
#[derive(Clone, Copy)]
#[repr(C)]
union RawDims {
    narrow: Dims32,
    wide: Dims64,
}

const _: () = assert!(size_of::<Dims32>() == 36 && size_of::<Dims64>() == 72 && size_of::<RawDims>() == 72);

impl RawDims {
    /// `None` for more dimensions than TensorRT has, or ones that do not fit.
    fn new(dims: &[i64], family: Family) -> Option<Self> {
        let mut wide = Dims64 { count: i32::try_from(dims.len()).ok()?, dims: [0; MOST_DIMS] };
        wide.dims.get_mut(..dims.len())?.copy_from_slice(dims);
        if family != Family::V8 {
            return Some(RawDims { wide });
        }
        let mut narrow = Dims32 { count: wide.count, dims: [0; MOST_DIMS] };
        for (narrow, &wide) in narrow.dims.iter_mut().zip(dims) {
            *narrow = i32::try_from(wide).ok()?;
        }
        Some(RawDims { narrow })
    }

    /// `None` where TensorRT says that there is no such tensor, by a negative count.
    ///
    /// # Safety
    /// It is what that family wrote.
    unsafe fn read(&self, family: Family) -> Option<Dims> {
        // SAFETY: as the caller says.
        unsafe {
            match family {
                Family::V8 => {
                    let count = usize::try_from(self.narrow.count).ok()?;
                    Some(Dims(self.narrow.dims.get(..count)?.iter().map(|&dim| dim.into()).collect()))
                }
                _ => Some(Dims::new(self.wide.dims.get(..usize::try_from(self.wide.count).ok()?)?)),
            }
        }
    }
}

/// TensorRT's number of an element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataType(i32);

impl DataType {
    /// By number.
    const ALL: [(&'static str, Option<DType>); 12] = [
        ("f32", Some(DType::F32)),
        ("f16", Some(DType::F16)),
        ("i8", Some(DType::I8)),
        ("i32", Some(DType::I32)),
        ("bool", Some(DType::Bool)),
        ("u8", Some(DType::U8)),
        ("fp8", None),
        ("bf16", None),
        ("i64", Some(DType::I64)),
        ("int4", None),
        ("fp4", None),
        ("e8m0", None),
    ];

    /// `None` for types that our tensors do not have.
    pub fn dtype(self) -> Option<DType> {
        DataType::ALL.get(usize::try_from(self.0).ok()?)?.1
    }

    pub fn name(self) -> String {
        let known = usize::try_from(self.0).ok().and_then(|number| DataType::ALL.get(number));
        known.map_or_else(|| format!("element type {}", self.0), |(name, _)| name.to_string())
    }
}

impl From<DType> for DataType {
    fn from(dtype: DType) -> Self {
        let number = DataType::ALL.iter().position(|(_, known)| *known == Some(dtype));
        DataType(number.expect("TensorRT has every type of ours") as i32)
    }
}

/// What a build may do. Every family numbers them differently, and not all have all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuilderFlag {
    Fp16,
    Int8,
    GpuFallback,
    DisableTimingCache,
    Tf32,
    ObeyPrecisionConstraints,
    DirectIo,
    VersionCompatible,
    ExcludeLeanRuntime,
}

impl BuilderFlag {
    fn number(self, family: Family) -> Option<i32> {
        let numbers = match self {
            // RTX 1.3 and 1.4 have these two, but their networks are strongly typed all the same.
            BuilderFlag::Fp16 => [0, 0, X, X, X],
            BuilderFlag::Int8 => [1, 1, X, X, X],
            BuilderFlag::GpuFallback => same(3),
            BuilderFlag::DisableTimingCache => [6, 5, 5, 5, 5],
            BuilderFlag::Tf32 => [7, 6, 6, 6, 6],
            BuilderFlag::ObeyPrecisionConstraints => [10, 9, X, 9, X],
            BuilderFlag::DirectIo => [12, 11, 11, 11, 11],
            BuilderFlag::VersionCompatible => [15, 13, 12, 13, 12],
            BuilderFlag::ExcludeLeanRuntime => [16, 14, 13, 14, 13],
        };
        number(numbers, family).map(i32::from)
    }
}

/// On which other GPUs an engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hardware {
    /// The one that it was built on.
    Same = 0,
    AmperePlus = 1,
    /// From 10.9.
    SameComputeCapability = 2,
}

/// Which of a profile's dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Smallest = 0,
    Usual = 1,
    Largest = 2,
}

/// Memory for the builder's temporary results.
const WORKSPACE: i32 = 0;
/// The format of tensors that lie as their dimensions say, and its bit in a mask.
const LINEAR: i32 = 0;
const LINEAR_BIT: u32 = 1;

/// # Safety
/// `text` is null or a C string that lives at least as long as this call.
unsafe fn owned_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller says.
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
    /// # Safety
    /// The runtime outlives the engine. Plans hold code: this one comes from somebody the user trusts.
    pub unsafe fn deserialize(&self, plan: &[u8]) -> Option<Engine> {
        // SAFETY: the plan is read during the call only, and the engine becomes the caller's.
        unsafe {
            let engine = self.deserialize_cuda_engine(plan.as_ptr(), plan.len(), std::ptr::null_mut());
            Engine::from_raw(engine, self.family())
        }
    }
}

/// How a tensor is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    None,
    Input,
    Output,
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
        unsafe { self.get_tensor_shape(name.as_ptr()).read(self.family()) }
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
    pub fn profile_shape(&self, name: &CStr, profile: i32, extent: Extent) -> Option<Dims> {
        // SAFETY: as above.
        unsafe { self.get_profile_shape(name.as_ptr(), profile, extent as i32).read(self.family()) }
    }

    /// Bytes on the GPU that each context needs.
    pub fn device_memory(&self) -> u64 {
        // SAFETY: takes nothing.
        match self.family() {
            Family::V8 | Family::V10 => unsafe { self.get_device_memory_size() as u64 },
            _ => unsafe { self.get_device_memory_size_v2() }.try_into().unwrap_or(0),
        }
    }

    /// # Safety
    /// The engine outlives the context, and so does the CUDA context that is current now.
    pub unsafe fn create_context(&self) -> Option<Context> {
        // SAFETY: the context becomes the caller's.
        unsafe { Context::from_raw(self.create_execution_context(0), self.family()) }
    }
}

impl Context {
    /// # Safety
    /// `stream` is a stream of the CUDA context that the context was made in.
    pub unsafe fn set_profile(&mut self, profile: i32, stream: *mut c_void) -> bool {
        // SAFETY: as the caller says.
        unsafe { self.set_optimization_profile_async(profile, stream) }
    }

    pub fn set_shape(&mut self, input: &CStr, dims: &[i64]) -> bool {
        let Some(dims) = RawDims::new(dims, self.family()) else { return false };
        // SAFETY: both are read during the call.
        unsafe { self.set_input_shape(input.as_ptr(), &dims) }
    }

    /// With the shapes that inputs have been given.
    pub fn shape(&self, name: &CStr) -> Option<Dims> {
        // SAFETY: names are read during the call.
        unsafe { self.get_tensor_shape(name.as_ptr()).read(self.family()) }
    }

    /// # Safety
    /// The memory is large enough for the tensor, and stays so until no queued run uses it.
    pub unsafe fn set_address(&mut self, name: &CStr, address: u64) -> bool {
        // SAFETY: as the caller says.
        unsafe { self.set_tensor_address(name.as_ptr(), address as usize as *mut c_void) }
    }

    /// The inputs that still lack a shape or values; `None` where TensorRT cannot tell, or the shapes contradict each other.
    pub fn missing(&mut self) -> Option<i32> {
        // SAFETY: with no room for names, none are written.
        let missing = unsafe { self.infer_shapes(0, std::ptr::null_mut()) };
        (missing >= 0).then_some(missing)
    }

    /// # Safety
    /// `stream` is a stream of the CUDA context that the context was made in, which is current.
    pub unsafe fn enqueue(&mut self, stream: *mut c_void) -> bool {
        // SAFETY: as the caller says.
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
        let flags = match self.family() {
            Family::V8 => 1,                              // explicit batch
            Family::V10 => 2 * u32::from(strongly_typed), // in 11 this bit means something else
            Family::V11 | Family::RtxOld | Family::RtxNew => 0,
        };
        // SAFETY: the network becomes the caller's.
        unsafe { Network::from_raw(self.create_network_v2(flags), self.family()) }
    }

    /// # Safety
    /// The builder outlives the configuration.
    pub unsafe fn config(&self) -> Option<Config> {
        // SAFETY: the configuration becomes the caller's.
        unsafe { Config::from_raw(self.create_builder_config(), self.family()) }
    }

    pub fn profile(&self) -> Option<Profile<'_>> {
        // SAFETY: the profile is the builder's, for as long as that lives.
        unsafe { Object::new(self.create_optimization_profile(), self.family()) }
            .map(|object| Profile(object, PhantomData))
    }

    /// Takes seconds to many minutes.
    pub fn build(&mut self, network: &mut Network, config: &mut Config) -> Option<HostMemory> {
        // SAFETY: both are alive; the plan becomes ours.
        unsafe { HostMemory::from_raw(self.build_serialized_network(network.as_raw(), config.as_raw()), self.family()) }
    }
}

impl Config {
    /// False where the family has no such flag.
    #[must_use]
    pub fn set(&mut self, flag: BuilderFlag, on: bool) -> bool {
        let Some(number) = flag.number(self.family()) else { return false };
        // SAFETY: the number is one of the family's.
        unsafe {
            match on {
                true => self.set_flag_number(number),
                false => self.clear_flag_number(number),
            }
        }
        true
    }

    pub fn is_set(&self, flag: BuilderFlag) -> bool {
        // SAFETY: the number is one of the family's.
        flag.number(self.family()).is_some_and(|number| unsafe { self.get_flag_number(number) })
    }

    /// Most bytes of GPU memory for temporary results.
    pub fn set_workspace(&mut self, bytes: usize) {
        // SAFETY: takes numbers.
        unsafe { self.set_memory_pool_limit(WORKSPACE, bytes) }
    }

    pub fn workspace(&self) -> usize {
        // SAFETY: takes a number.
        unsafe { self.get_memory_pool_limit(WORKSPACE) }
    }

    /// The number of the profile, `None` where it is not valid.
    pub fn add_profile(&mut self, profile: &Profile<'_>) -> Option<i32> {
        // SAFETY: the profile is alive.
        let number = unsafe { self.add_optimization_profile(profile.as_raw()) };
        (number >= 0).then_some(number)
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
        unsafe { TimingCache::from_raw(self.create_timing_cache_of(bytes.as_ptr(), bytes.len()), self.family()) }
    }

    /// False where the cache is of another GPU or version.
    ///
    /// # Safety
    /// The cache outlives all builds with this configuration.
    #[must_use]
    pub unsafe fn set_timing_cache(&mut self, cache: &TimingCache) -> bool {
        // SAFETY: as the caller says.
        unsafe { self.set_timing_cache_to(cache.as_raw(), false) }
    }

    /// False where the family has no progress monitors: 8.
    ///
    /// # Safety
    /// `monitor` is an IProgressMonitor and outlives all builds with this configuration.
    #[must_use]
    pub unsafe fn set_progress_monitor(&mut self, monitor: *mut c_void) -> bool {
        let has = self.family() != Family::V8;
        if has {
            // SAFETY: as the caller says.
            unsafe { self.set_progress_monitor_to(monitor) };
        }
        has
    }

    /// False where the family calibrates nothing: 11 and RTX.
    ///
    /// # Safety
    /// `calibrator` is an IInt8Calibrator of this family and outlives all builds with this configuration.
    #[must_use]
    pub unsafe fn set_int8_calibrator(&mut self, calibrator: *mut c_void) -> bool {
        let has = matches!(self.family(), Family::V8 | Family::V10);
        if has {
            // SAFETY: as the caller says.
            unsafe { self.set_int8_calibrator_to(calibrator) };
        }
        has
    }

    /// RTX: the GPU generations to build for, like 86 for 8.6; without, the GPU of this machine. False where one is not
    /// supported, or the family builds for this machine's GPU only.
    #[must_use]
    pub fn set_compute_capabilities(&mut self, capabilities: &[i32]) -> bool {
        self.family().is_rtx()
            // SAFETY: takes numbers.
            && unsafe { self.set_nb_compute_capabilities(capabilities.len() as i32) }
            && (0..).zip(capabilities).all(|(i, &capability)| unsafe { self.set_compute_capability(capability, i) })
    }
}

impl Profile<'_> {
    #[must_use]
    pub fn set(&mut self, input: &CStr, extent: Extent, dims: &[i64]) -> bool {
        let Some(dims) = RawDims::new(dims, self.family()) else { return false };
        // SAFETY: name and dimensions are read during the call. 8 takes the dimensions by value.
        unsafe {
            match self.family() {
                Family::V8 => self.set_dimensions_by_value(input.as_ptr(), extent as i32, dims.narrow),
                _ => self.set_dimensions(input.as_ptr(), extent as i32, &dims),
            }
        }
    }
}

impl TimingCache {
    pub fn serialize(&self) -> Option<HostMemory> {
        // SAFETY: the bytes become ours.
        unsafe { HostMemory::from_raw(self.serialize_bytes(), self.family()) }
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

    /// # Safety
    /// `pointer` is a tensor of this network, or null.
    unsafe fn tensor(&self, pointer: *mut c_void) -> Option<NetworkTensor<'_>> {
        // SAFETY: as the caller says.
        unsafe { Object::new(pointer, self.family()) }.map(|object| NetworkTensor(object, PhantomData))
    }
}

impl NetworkTensor<'_> {
    pub fn name(&self) -> CString {
        // SAFETY: the network keeps the name, which is not null.
        unsafe { CStr::from_ptr(self.get_name()) }.to_owned()
    }

    pub fn dims(&self) -> Option<Dims> {
        // SAFETY: it is what this family wrote.
        unsafe { self.get_dimensions().read(self.family()) }
    }

    pub fn data_type(&self) -> DataType {
        // SAFETY: takes nothing.
        DataType(unsafe { self.get_type() })
    }

    /// False where the model file alone decides: 11 and later RTX.
    #[must_use]
    pub fn set_data_type(&mut self, dtype: DType) -> bool {
        let can = !matches!(self.family(), Family::V11 | Family::RtxNew);
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
    /// `path` is where the model comes from: weights may lie beside it. The network refers to memory of the parser, which must
    /// therefore be there until the plan is built.
    pub fn parse(&mut self, onnx: &[u8], path: &CStr) -> bool {
        // SAFETY: both are read during the call.
        unsafe { self.parse_bytes(onnx.as_ptr(), onnx.len(), path.as_ptr()) }
    }

    /// What it did not like.
    pub fn errors(&self) -> impl Iterator<Item = ParserError<'_>> {
        // SAFETY: errors are the parser's, for as long as that lives and parses nothing else.
        let error = |index| unsafe { Object::new(self.get_error(index), self.family()) };
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
    pub fn place(&self) -> (String, String) {
        match self.family() {
            Family::V8 => Default::default(),
            // SAFETY: as above.
            _ => unsafe { (owned_text(self.node_name()), owned_text(self.node_operator())) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wrong number would call another function, so what can be checked without TensorRT is.
    #[test]
    fn rows_are_plausible() {
        let classes = [
            ("HostMemory", 2, HostMemory::ROWS),
            ("Runtime", 2, Runtime::ROWS),
            ("Engine", 2, Engine::ROWS),
            ("Context", 2, Context::ROWS),
            ("Builder", 2, Builder::ROWS),
            ("Config", 2, Config::ROWS),
            ("Profile", 2, Profile::ROWS),
            ("TimingCache", 2, TimingCache::ROWS),
            ("Network", 2, Network::ROWS),
            ("NetworkTensor", 2, NetworkTensor::ROWS),
            ("Parser", 0, Parser::ROWS),
            ("ParserError", 0, ParserError::ROWS),
        ];
        for (class, first, rows) in classes {
            assert!(!rows.is_empty());
            for family in Family::ALL {
                let mut numbers: Vec<u8> = rows.iter().filter_map(|(_, row)| number(*row, family)).collect();
                let count = numbers.len();
                numbers.sort();
                numbers.dedup();
                assert_eq!(numbers.len(), count, "{class} has two functions of one number in {family:?}");
                // An implementation's first two are its destructors.
                assert!(numbers.first().is_none_or(|&lowest| lowest >= first), "{class} in {family:?}");
                assert!(numbers.last().is_none_or(|&highest| highest < 64), "{class} in {family:?}");
            }
        }
    }

    /// Interfaces only grow at their ends and lose functions: within a class, families keep the order of what they share.
    #[test]
    fn families_agree_on_the_order() {
        let classes = [Runtime::ROWS, Context::ROWS, Network::ROWS, Parser::ROWS, ParserError::ROWS];
        for rows in classes {
            for pair in [Family::V10, Family::V11, Family::RtxOld, Family::RtxNew].windows(2) {
                let shared = |family| {
                    let both = rows.iter().filter(|(_, row)| pair.iter().all(|&f| number(*row, f).is_some()));
                    let mut both: Vec<_> = both.collect();
                    both.sort_by_key(|(_, row)| number(*row, family));
                    both.into_iter().map(|(name, _)| *name).collect::<Vec<_>>()
                };
                assert_eq!(shared(pair[0]), shared(pair[1]), "{pair:?}");
            }
        }
    }

    #[test]
    fn dims_round_trip() {
        for family in Family::ALL {
            let raw = RawDims::new(&[1, 3, -1, 640], family).unwrap();
            // SAFETY: made for that family just above.
            assert_eq!(unsafe { raw.read(family) }, Some(Dims::new(&[1, 3, -1, 640])));
            assert!(RawDims::new(&[1; 9], family).is_none());
        }
        assert!(RawDims::new(&[1 << 40], Family::V8).is_none());
        let none = RawDims { wide: Dims64 { count: -1, dims: [0; 8] } };
        // SAFETY: as above.
        assert_eq!(unsafe { none.read(Family::V10) }, None);
    }

    #[test]
    fn types_have_numbers_and_names() {
        for dtype in DType::ALL {
            assert_eq!(DataType::from(dtype).dtype(), Some(dtype));
            assert_eq!(DataType::from(dtype).name(), dtype.name());
        }
        assert_eq!(DataType(7).dtype(), None);
        assert_eq!(DataType(7).name(), "bf16");
        assert_eq!(DataType(99).name(), "element type 99");
    }
}
