// SPDX-License-Identifier: MPL-2.0
//! The C++ objects of TensorRT, called by the numbers of their virtual functions.
//!
//! TensorRT has no C interface, and its C++ headers are of one version each. But what those headers compile to is small and
//! stays: a public object is `[vptr][implementation]`, its methods load a function from the implementation's table of
//! virtual functions and call it. The numbers of these functions are what every C++ program bakes in, so they are the
//! same in all releases of a [`AbiVersion`]; they are written down here, as far as they are used, next to what the
//! functions take and return.
//!
//! This is for the Itanium C++ ABI: Linux, on x86-64 and on 64-bit Arm.
//!
//! Here are the rows; `values` has the numbers and structures that they take, and `methods` what may be called from outside.
//!
//! Handles own their objects and delete them. Which object must outlive which is said at the functions that make them.

mod methods;
mod values;

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;

pub use values::{BuilderFlag, DataType, Hardware, IoMode, OptProfileSelector};
use values::{Dims32, RawDims};

/// Releases of TensorRT that share their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbiVersion {
    /// TensorRT 8.6.
    V8,
    V10,
    V11,
    /// TensorRT-RTX 1.3 and 1.4.
    RtxOld,
    /// TensorRT-RTX 1.5 and later.
    RtxNew,
}

impl AbiVersion {
    pub const ALL: [AbiVersion; 5] =
        [AbiVersion::V8, AbiVersion::V10, AbiVersion::V11, AbiVersion::RtxOld, AbiVersion::RtxNew];

    pub fn is_rtx(self) -> bool {
        matches!(self, AbiVersion::RtxOld | AbiVersion::RtxNew)
    }

    /// Every network has the types that its model file gives; there are no precision flags.
    pub fn is_strongly_typed(self) -> bool {
        self == AbiVersion::V11 || self.is_rtx()
    }

    /// Loggers and profilers are versioned interfaces, with more functions before theirs.
    pub fn has_versioned_logger(self) -> bool {
        matches!(self, AbiVersion::V11 | AbiVersion::RtxNew)
    }
}

/// Numbers by ABI version, in the order of [`AbiVersion::ALL`].
type VtableSlots = [u8; 5];

/// There is none in that ABI version.
const X: u8 = u8::MAX;

/// Rows that differ in no ABI version.
const fn same(number: u8) -> VtableSlots {
    [number; 5]
}

fn number(numbers: VtableSlots, abi: AbiVersion) -> Option<u8> {
    Some(numbers[abi as usize]).filter(|&number| number != X)
}

/// Pointers below this are what a failed constructor leaves behind: null plus an offset.
const FIRST_PAGE: usize = 4096;

/// An object, and the ABI version that determines how to call it.
#[derive(Clone, Copy)]
struct Interface {
    pointer: NonNull<c_void>,
    abi: AbiVersion,
}

impl Interface {
    /// # Safety
    /// `pointer` is a public object of that ABI version, or null, or what is left of one that could not be made.
    unsafe fn new(pointer: *mut c_void, abi: AbiVersion) -> Option<Self> {
        let pointer = NonNull::new(pointer).filter(|pointer| pointer.addr().get() >= FIRST_PAGE)?;
        Some(Interface { pointer, abi })
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
    /// If the ABI version has no such function: callers ask first where some have none.
    fn slot(self, name: &str, numbers: VtableSlots) -> usize {
        match number(numbers, self.abi) {
            Some(number) => number.into(),
            None => panic!("{:?} has no {name}", self.abi),
        }
    }
}

/// Calls a virtual function; all such calls of this crate are here. TensorRT catches exceptions itself and reports
/// errors by its logger and by what functions return. `C-unwind` makes it defined what happens should one get out
/// nevertheless, of a plugin perhaps: it unwinds up to the next `catch_unwind`, or to the C or GStreamer function that
/// called us, and the process is aborted there, for Rust cannot catch exceptions of C++. To make errors of them would
/// take a part in C++, and so a C++ compiler to build this crate.
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
        pub struct $name $(<$life>)? (Interface $(, PhantomData<&$life ()>)?);

        #[allow(dead_code, reason = "which classes need all of these differs")]
        impl $(<$life>)? $name $(<$life>)? {
            #[cfg(test)]
            const ROWS: &'static [(&'static str, VtableSlots)] =
                &[$((stringify!($safe), $safe_row),)* $((stringify!($raw), $raw_row),)*];

            pub fn abi(&self) -> AbiVersion {
                self.0.abi
            }

            /// The C++ object, for functions that take one.
            pub(super) fn as_raw(&self) -> *mut c_void {
                self.0.raw()
            }

            $(
                $(#[$safe_doc])*
                pub fn $safe(&self, $($safe_arg: $safe_type),*) -> $safe_result {
                    let slot = self.0.slot(concat!(stringify!($name), "::", stringify!($safe)), $safe_row);
                    // SAFETY: the object is alive, and the row has the function's parameters and result.
                    unsafe { call!(self.0.$table(), slot, ($($safe_type),*) -> $safe_result, $($safe_arg),*) }
                }
            )*

            $(
                /// # Safety
                /// The pointers are what the function of that name takes.
                unsafe fn $raw(&self, $($raw_arg: $raw_type),*) -> $raw_result {
                    let slot = self.0.slot(concat!(stringify!($name), "::", stringify!($raw)), $raw_row);
                    // SAFETY: the object is alive, the row has the function's parameters and result, and the pointers
                    // are valid for it.
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
            /// `pointer` is null, or an object of this class and ABI version that nothing else deletes.
            pub(super) unsafe fn from_raw(pointer: *mut c_void, abi: AbiVersion) -> Option<Self> {
                // SAFETY: it is null or an object of this class and ABI version, which is the result's alone to delete.
                unsafe { Interface::new(pointer, abi) }.map($name)
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
    safe {}
    raw {
        set_dla_core_number(core: i32) -> () = [3, 5, 4, 5, 4];
        set_host_code_allowed(allowed: bool) -> () = [20, 21, 20, 21, 20];
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
        // The argument, not there in 8, is when the context's memory is allocated: 0, now.
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
        infer_shapes(count: i32, names: *mut *const c_char) -> i32 = [35, 28, 27, 28, 27];
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
        dla_cores() -> i32 = [7, 5, 3, 5, 3];
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
        /// Bits: which libraries in addition to its own kernels TensorRT may use; 0 for none.
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
        set_preview_feature(feature: i32, on: bool) -> () = [49, 45, 34, 34, 34];
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
        get_layer(index: i32) -> *mut c_void = [18, 13, 13, 13, 13];
    }
}

class! {
    /// A step of a network, which owns it. Strongly typed families are not asked for them.
    Layer<'a> by implementation;
    safe {}
    raw {
        get_type() -> i32 = [2, 2, X, X, X];
        get_nb_inputs() -> i32 = [5, 5, X, X, X];
        get_input(index: i32) -> *mut c_void = [6, 6, X, X, X];
        get_nb_outputs() -> i32 = [7, 7, X, X, X];
        get_output(index: i32) -> *mut c_void = [8, 8, X, X, X];
        set_precision(dtype: i32) -> () = [10, 10, X, X, X];
        set_output_type(index: i32, dtype: i32) -> () = [14, 14, X, X, X];
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
// SAFETY: NVIDIA documents these two classes as thread-safe. What changes a runtime takes `&mut`, so on a shared one only
// deserializing can be called.
unsafe impl Sync for Runtime {}
// SAFETY: as above; of an engine, all that can be called asks, or makes a context.
unsafe impl Sync for Engine {}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object of one release that is passed to another one's is refused; otherwise a wrong function would be called.
    #[test]
    fn objects_of_two_families_are_not_mixed() {
        use std::mem::ManuallyDrop;
        let pointer = std::ptr::without_provenance_mut(FIRST_PAGE);
        // SAFETY: nothing is called on these, as they are refused, and they are not deleted.
        let (mut builder, mut network, mut config, profile) = unsafe {
            (
                ManuallyDrop::new(Builder::from_raw(pointer, AbiVersion::V10).unwrap()),
                ManuallyDrop::new(Network::from_raw(pointer, AbiVersion::V8).unwrap()),
                ManuallyDrop::new(Config::from_raw(pointer, AbiVersion::V10).unwrap()),
                Profile(Interface::new(pointer, AbiVersion::V11).unwrap(), PhantomData),
            )
        };
        assert!(builder.build(&mut network, &mut config).is_none());
        assert!(config.add_profile(&profile).is_none());
    }

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
            ("Layer", 2, Layer::ROWS),
            ("NetworkTensor", 2, NetworkTensor::ROWS),
            ("Parser", 0, Parser::ROWS),
            ("ParserError", 0, ParserError::ROWS),
        ];
        for (class, first, rows) in classes {
            assert!(!rows.is_empty());
            for abi in AbiVersion::ALL {
                let mut numbers: Vec<u8> = rows.iter().filter_map(|(_, row)| number(*row, abi)).collect();
                let count = numbers.len();
                numbers.sort();
                numbers.dedup();
                assert_eq!(numbers.len(), count, "{class} has two functions of one number in {abi:?}");
                // An implementation's first two are its destructors.
                assert!(numbers.first().is_none_or(|&lowest| lowest >= first), "{class} in {abi:?}");
                assert!(numbers.last().is_none_or(|&highest| highest < 64), "{class} in {abi:?}");
            }
        }
    }

    /// Interfaces only grow at their ends and lose functions: within a class, families keep the order of what they share.
    #[test]
    fn families_agree_on_the_order() {
        let classes = [Runtime::ROWS, Context::ROWS, Network::ROWS, Parser::ROWS, ParserError::ROWS];
        for rows in classes {
            for pair in [AbiVersion::V10, AbiVersion::V11, AbiVersion::RtxOld, AbiVersion::RtxNew].windows(2) {
                let shared = |abi| {
                    let both = rows.iter().filter(|(_, row)| pair.iter().all(|&f| number(*row, f).is_some()));
                    let mut both: Vec<_> = both.collect();
                    both.sort_by_key(|(_, row)| number(*row, abi));
                    both.into_iter().map(|(name, _)| *name).collect::<Vec<_>>()
                };
                assert_eq!(shared(pair[0]), shared(pair[1]), "{pair:?}");
            }
        }
    }
}
