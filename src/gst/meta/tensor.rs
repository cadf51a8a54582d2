// SPDX-License-Identifier: MPL-2.0
//! [`TensorMeta`]: the tensors that are attached to a frame from trtpreprocess through trtinfer to trtnms.
//!
//! There is a payload for each model, which goes from its trtpreprocess to its trtnms independent of others between. A
//! model takes the input that was made last; the first trtnms takes the outputs of the first model.
//!
//! Payloads are shared, so that copying a buffer's metadata (`tee`, `make_writable`) copies a pointer. The meta has no
//! tags, so that all elements copy it, also those that convert or scale the frame: GStreamer drops metas with tags that an
//! element does not know. How the picture was changed is in the frame's [`geometry`].
//!
//! The GPU may still read a frame when its buffer is freed or returns to its pool. GStreamer frees metas before that,
//! so freeing this one waits for the GPU. So does moving it to a frame in other memory. Other holders of the payload
//! keep the tensors, but not the frame.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use gst::prelude::*;
use gsttrt_core::backends::batcher::PendingOutput;
use gsttrt_core::error::Result;
use gsttrt_core::image::geometry::Letterbox;
use gsttrt_core::image::transform::InputTransform;
use gsttrt_core::model::ModelInfo;
use gsttrt_core::tensor::{TensorDesc, Tensors};
use smallvec::SmallVec;

use crate::gst::held_frame::HeldFrame;
use crate::gst::meta::clip_input::{ClipInput, FullClip};
use crate::gst::meta::geometry::{self, TensorSource};

/// What a trtpreprocess made of a frame for one model.
#[derive(Debug)]
pub struct ModelInputs {
    /// One of the whole frame, or one of each region.
    pub list: SmallVec<[ModelInput; 1]>,
    pub tiles: Tiles,
    pub source: TensorSource,
    pub transform: InputTransform,
    /// Whether the user has set its mean or std.
    pub is_normalised: bool,
    pub original: Option<HeldFrame>,
    /// There is no motion in the frame: nothing was made of it, and the results of an earlier frame hold.
    pub still: Option<StillFrames>,
    /// For a model that sees clips. `list` has the tensor of this frame then, if it is one of a clip, or those of its objects that
    /// are.
    pub clip: Option<ClipInput>,
}

impl ModelInputs {
    /// Nothing was made of the frame.
    pub fn none(tiles: Tiles, source: TensorSource, transform: InputTransform, original: Option<HeldFrame>) -> Self {
        let (list, is_normalised) = (SmallVec::new(), false);
        ModelInputs { list, tiles, source, transform, is_normalised, original, still: None, clip: None }
    }

    /// What the model gets: that of a clip, or of the first picture. `None` where there is nothing of the frame.
    pub fn desc(&self) -> Option<&TensorDesc> {
        match &self.clip {
            Some(clip) => Some(&clip.desc),
            None => self.list.first().map(|input| input.tensors[0].desc()),
        }
    }

    /// Whether there is something to infer, or nothing was wanted: false for frames with which no clip ends. Of a frame the results of
    /// an object without a whole clip are those of before.
    pub fn is_complete(&self) -> bool {
        let is_of_objects = matches!(self.tiles, Tiles::Objects(_));
        self.clip.as_ref().is_none_or(|clip| is_of_objects || !clip.full.is_empty())
    }

    /// What the model is to see: a tensor of each picture, or of each clip.
    ///
    /// # Errors
    /// As [`Clip::tensors`](gsttrt_core::image::clip::Clip::tensors).
    pub fn pictures(&self) -> Result<SmallVec<[Arc<Tensors>; 1]>> {
        match &self.clip {
            Some(ClipInput { full, .. }) => full.iter().map(|full| full.clip.tensors().cloned()).collect(),
            None => Ok(self.list.iter().map(|input| input.tensors.clone()).collect()),
        }
    }

    /// Where in the frame each of the [pictures](ModelInputs::pictures) lies: of a clip the last one.
    pub fn letterboxes(&self) -> impl Iterator<Item = &Letterbox> {
        let clips = self.clip.as_ref().map(|clip| &clip.full[..]);
        let count = clips.map_or(self.list.len(), <[FullClip]>::len);
        let input = move |at: usize| clips.map_or(at, |clips| clips[at].input);
        (0..count).filter_map(move |at| Some(&self.list.get(input(at))?.letterbox))
    }
}

/// Of a stream whose frames without motion are not inferred. Who has no results that would hold asks for the next frame.
#[derive(Clone, Debug, Default)]
pub struct StillFrames(Arc<AtomicBool>);

impl StillFrames {
    /// The next frame is to be inferred, whether anything moves in it or not.
    pub fn ask_for_next(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether that was asked for since the last call.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Which parts of a frame the inputs show.
#[derive(Debug)]
pub enum Tiles {
    /// The whole frame, in one picture.
    Frame,
    /// Parts of the frame whose objects are merged.
    Slices,
    /// Objects of another model.
    Objects(ObjectRegions),
}

/// The objects of a frame that a second model looks at, or has looked at.
#[derive(Debug, Default)]
pub struct ObjectRegions {
    pub list: Vec<ObjectRegion>,
    pub unknown: UnknownObjects,
    /// The index of the region of each object that is meant and that no input shows: too many or too small ones, and those whose
    /// results of before hold. `None` for one without a region.
    pub unseen: Vec<Option<usize>>,
    /// They are turned upright, so what is found in them has no place in the frame.
    pub are_aligned: bool,
}

/// An object of another model.
#[derive(Clone, Debug)]
pub struct ObjectRegion {
    /// The index of its GstVideoRegionOfInterestMeta among those of the frame.
    pub region: Option<usize>,
    /// The index of its GstAnalyticsRelationMeta, and its id in it.
    pub analytics: Option<(usize, u32)>,
    pub track_id: Option<u64>,
    /// The index of its input; `None` if the results of an earlier frame hold.
    pub input: Option<usize>,
    /// The model was to look at it, now or before: there is a result, unless it was lost.
    pub is_expected: bool,
}

/// Ids of objects whose results trtnms does not have, as their frames were dropped on the way. trtpreprocess looks at
/// them again.
#[derive(Clone, Debug, Default)]
pub struct UnknownObjects(Arc<Mutex<Vec<u64>>>);

impl UnknownObjects {
    pub fn report(&self, id: u64) {
        self.0.lock().unwrap().push(id);
    }

    /// Those that were reported since the last call.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// The tensor made of a region of a frame.
#[derive(Clone, Debug)]
pub struct ModelInput {
    /// One.
    pub tensors: Arc<Tensors>,
    pub letterbox: Letterbox,
}

/// What is attached to a frame.
#[derive(Debug)]
pub enum Payload {
    /// The model's input, from trtpreprocess.
    Input(Arc<ModelInputs>),
    /// The model's outputs for each of the inputs, from trtinfer, or the items of batches where they will be computed.
    Output { outputs: SmallVec<[PendingOutput; 1]>, inputs: Arc<ModelInputs>, model: Arc<ModelInfo> },
    /// A frame that trtinfer skipped because of its `interval` or because nothing moves in it, with the tensors that the GPU
    /// may still be writing. `is_overdue`: it should have been inferred and came too late, so results of before are too old.
    Skipped { inputs: Arc<ModelInputs>, is_overdue: bool },
}

impl Payload {
    fn is_input(&self) -> bool {
        matches!(self, Payload::Input(_))
    }

    /// Whether the other is obsolete once this one is attached.
    fn replaces(&self, other: &Payload) -> bool {
        self.is_input() && other.is_input() || Arc::ptr_eq(self.inputs(), other.inputs())
    }

    /// What was made of the frame.
    pub fn inputs(&self) -> &Arc<ModelInputs> {
        match self {
            Payload::Input(inputs) | Payload::Skipped { inputs, .. } | Payload::Output { inputs, .. } => inputs,
        }
    }

    /// Waits until the GPU no longer reads the frame.
    fn wait_for_frame(&self) {
        // A failure of the GPU is an error where the results are read, and after one it reads nothing any more.
        self.inputs().list.iter().for_each(|input| drop(input.tensors.wait()));
        #[cfg(test)]
        tests::WAITS.with(|waits| waits.set(waits.get() + 1));
    }
}

/// A `GstMeta` that owns a share of each [`Payload`] of a frame.
#[repr(transparent)]
pub struct TensorMeta(imp::TensorMeta);

// SAFETY: the payload is Send and Sync, and a meta is only reached through its buffer.
unsafe impl Send for TensorMeta {}
// SAFETY: as above.
unsafe impl Sync for TensorMeta {}

impl TensorMeta {
    /// Attaches `payload` to the buffer, after those of other models. It replaces the payload that it was made from. An
    /// input replaces one that no model has taken.
    pub fn set(buffer: &mut gst::BufferRef, payload: Arc<Payload>) {
        let Some(mut meta) = buffer.meta_mut::<TensorMeta>() else { return imp::add(buffer, payload) };
        let payloads = &mut meta.0.payloads;
        let replaced = payloads.iter().position(|old| payload.replaces(old)).map(|old| payloads.remove(old));
        let obsolete = replaced.filter(|old| !Arc::ptr_eq(old.inputs(), payload.inputs()));
        payloads.push(payload);
        if let Some(obsolete) = obsolete {
            geometry::end(buffer, &obsolete.inputs().source);
            obsolete.wait_for_frame();
        }
    }

    /// The payload that was attached last. A frame with several models has more: see [`TensorMeta::input`] and
    /// [`TensorMeta::outputs`].
    pub fn get(buffer: &gst::BufferRef) -> Option<Arc<Payload>> {
        buffer.meta::<TensorMeta>()?.0.payloads.last().cloned()
    }

    /// The input that no model has taken yet.
    pub fn input(buffer: &gst::BufferRef) -> Option<Arc<Payload>> {
        buffer.meta::<TensorMeta>()?.0.payloads.iter().find(|payload| payload.is_input()).cloned()
    }

    /// The outputs of the first model whose results no trtnms has taken.
    pub fn outputs(buffer: &gst::BufferRef) -> Option<Arc<Payload>> {
        buffer.meta::<TensorMeta>()?.0.payloads.iter().find(|payload| !payload.is_input()).cloned()
    }

    /// Removes a payload from the buffer once the GPU no longer reads the frame for it.
    pub fn remove(buffer: &mut gst::BufferRef, payload: &Arc<Payload>) {
        geometry::end(buffer, &payload.inputs().source);
        let Some(mut meta) = buffer.meta_mut::<TensorMeta>() else { return };
        let payloads = &mut meta.0.payloads;
        if payloads.iter().all(|other| Arc::ptr_eq(other, payload)) {
            let _ = meta.remove(); // no lock flag is set on it
            return;
        }
        payloads.retain(|other| !Arc::ptr_eq(other, payload));
        payload.wait_for_frame();
    }

    /// Waits until the GPU no longer reads the frame, so that it may be drawn on. For work of `own` the caller waits
    /// otherwise.
    pub fn wait_for_readers(buffer: &gst::BufferRef, own: Option<&Arc<Payload>>) {
        let is_own = |payload: &&Arc<Payload>| own.is_some_and(|own| Arc::ptr_eq(own, payload));
        let meta = buffer.meta::<TensorMeta>();
        let payloads = meta.iter().flat_map(|meta| &meta.0.payloads);
        payloads.filter(|payload| !is_own(payload)).for_each(|payload| payload.wait_for_frame());
    }
}

// SAFETY: imp registers exactly this type for that API.
unsafe impl MetaAPI for TensorMeta {
    type GstType = imp::TensorMeta;

    fn meta_api() -> gst::glib::Type {
        imp::api_type()
    }
}

impl fmt::Debug for TensorMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TensorMeta").field(&self.0.payloads).finish()
    }
}

/// Whether the first buffer has all memory of the second, and so keeps it alive.
fn keeps_memory_of(copy: &gst::BufferRef, original: &gst::BufferRef) -> bool {
    original.iter_memories().all(|memory| copy.iter_memories().any(|kept| kept.as_ptr() == memory.as_ptr()))
}

/// The C side: layout, registration and callbacks.
mod imp {
    use std::ptr;
    use std::sync::{Arc, LazyLock};

    use gst::glib::translate::*;
    use gst::{ffi, glib};
    use smallvec::{SmallVec, smallvec};

    use super::Payload;

    #[repr(C)]
    pub struct TensorMeta {
        parent: ffi::GstMeta,
        /// In the order of the models, an input last.
        pub(super) payloads: Payloads,
    }

    /// One, unless there are several models.
    type Payloads = SmallVec<[Arc<Payload>; 1]>;

    pub(super) fn api_type() -> glib::Type {
        static TYPE: LazyLock<glib::Type> = LazyLock::new(|| {
            let tags = [ptr::null::<std::ffi::c_char>()];
            // SAFETY: the name is new, the tags end with NULL.
            unsafe {
                from_glib(ffi::gst_meta_api_type_register(c"GstTrtTensorMetaAPI".as_ptr(), tags.as_ptr() as *mut _))
            }
        });
        *TYPE
    }

    pub(super) fn add(buffer: &mut gst::BufferRef, payload: Arc<Payload>) {
        let payload = Arc::into_raw(payload);
        // SAFETY: the buffer is writable; init takes over the reference that `payload` stands for.
        unsafe {
            ffi::gst_buffer_add_meta(buffer.as_mut_ptr(), info(), payload as glib::ffi::gpointer);
        }
    }

    fn info() -> *const ffi::GstMetaInfo {
        struct Info(ptr::NonNull<ffi::GstMetaInfo>);
        // SAFETY: GStreamer never changes or frees a registered info.
        unsafe impl Send for Info {}
        // SAFETY: as above.
        unsafe impl Sync for Info {}

        static INFO: LazyLock<Info> = LazyLock::new(|| {
            // SAFETY: size and callbacks are those of TensorMeta.
            let info = unsafe {
                ffi::gst_meta_register(
                    api_type().into_glib(),
                    c"GstTrtTensorMeta".as_ptr(),
                    size_of::<TensorMeta>(),
                    Some(init),
                    Some(free),
                    Some(transform),
                )
            };
            Info(ptr::NonNull::new(info.cast_mut()).expect("GstTrtTensorMeta is registered once"))
        });
        INFO.0.as_ptr()
    }

    unsafe extern "C" fn init(
        meta: *mut ffi::GstMeta,
        params: glib::ffi::gpointer,
        _buffer: *mut ffi::GstBuffer,
    ) -> glib::ffi::gboolean {
        // SAFETY: only `add` makes this meta, and passes an Arc; the memory of the meta is not initialised yet.
        unsafe {
            let payload = Arc::from_raw(params as *const Payload);
            ptr::write(&raw mut (*meta.cast::<TensorMeta>()).payloads, smallvec![payload]);
        }
        glib::ffi::GTRUE
    }

    unsafe extern "C" fn free(meta: *mut ffi::GstMeta, _buffer: *mut ffi::GstBuffer) {
        // SAFETY: `init` wrote the payloads, and nothing uses the meta after this.
        unsafe {
            let payloads = &raw mut (*meta.cast::<TensorMeta>()).payloads;
            (*payloads).iter().for_each(|payload| payload.wait_for_frame());
            ptr::drop_in_place(payloads);
        }
    }

    unsafe extern "C" fn transform(
        dest: *mut ffi::GstBuffer,
        meta: *mut ffi::GstMeta,
        buffer: *mut ffi::GstBuffer,
        _kind: glib::ffi::GQuark,
        _data: glib::ffi::gpointer,
    ) -> glib::ffi::gboolean {
        // SAFETY: GStreamer calls this with a writable dest, another buffer, and a meta of ours that is attached to that.
        let (payloads, dest, buffer) = unsafe {
            let payloads = (*meta.cast::<TensorMeta>()).payloads.clone();
            (payloads, gst::BufferRef::from_mut_ptr(dest), gst::BufferRef::from_ptr(buffer))
        };
        if !super::keeps_memory_of(dest, buffer) {
            payloads.iter().for_each(|payload| payload.wait_for_frame());
        }
        payloads.into_iter().for_each(|payload| super::TensorMeta::set(dest, payload));
        glib::ffi::GTRUE
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;
    use std::time::Duration;

    use gsttrt_core::backends::ModelInstance;
    use gsttrt_core::backends::batcher::{Batcher, CancelToken};
    use gsttrt_core::image::geometry::ResizeMode;
    use gsttrt_core::tensor::Tensor;

    use super::*;

    thread_local! {
        /// How often this thread waited until the GPU had read a frame.
        pub(super) static WAITS: Cell<u32> = const { Cell::new(0) };
    }

    /// The same since the last call.
    fn waits() -> u32 {
        WAITS.with(Cell::take)
    }

    fn payload() -> Arc<Payload> {
        let tensors = Arc::new(Tensors::new(vec![Tensor::from_slice("images", &[1], &[1.0f32])], None, None));
        let letterbox = Letterbox::new((4, 2), (8, 8), ResizeMode::Letterbox);
        let source = TensorSource { element: 0, size: (4, 2), pixel_aspect: (1, 1) };
        Arc::new(Payload::Input(Arc::new(ModelInputs {
            list: [ModelInput { tensors, letterbox }].into_iter().collect(),
            ..ModelInputs::none(Tiles::Frame, source, InputTransform::default(), None)
        })))
    }

    #[test]
    fn travels_with_copies_and_is_freed_with_the_last() {
        gst::init().unwrap();
        let payload = payload();
        let mut buffer = gst::Buffer::new();
        TensorMeta::set(buffer.get_mut().unwrap(), payload.clone());
        let copy = buffer.copy();
        let mut second = copy.copy();
        assert_eq!(Arc::strong_count(&payload), 4);
        assert!(Arc::ptr_eq(&TensorMeta::get(&copy).unwrap(), &payload));

        TensorMeta::remove(second.get_mut().unwrap(), &payload);
        assert!(TensorMeta::get(&second).is_none() && second.iter_meta::<TensorMeta>().count() == 0);
        TensorMeta::remove(second.get_mut().unwrap(), &payload);
        drop((buffer, copy, second));
        assert_eq!(Arc::strong_count(&payload), 1);
    }

    fn skipped(input: &Arc<Payload>) -> Arc<Payload> {
        Arc::new(Payload::Skipped { inputs: input.inputs().clone(), is_overdue: false })
    }

    /// Those on the buffer, in their order.
    fn payloads(buffer: &gst::BufferRef) -> Vec<*const Payload> {
        buffer
            .iter_meta::<TensorMeta>()
            .flat_map(|meta| meta.0.payloads.iter().map(Arc::as_ptr).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn an_input_that_no_model_takes_is_replaced() {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        let second = payload();
        TensorMeta::set(buffer.get_mut().unwrap(), payload());
        TensorMeta::set(buffer.get_mut().unwrap(), second.clone());
        assert_eq!(payloads(&buffer), [Arc::as_ptr(&second)]);
        assert_eq!(buffer.iter_meta::<TensorMeta>().count(), 1);
    }

    #[test]
    fn each_model_has_a_payload_of_its_own() {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        let inputs = [payload(), payload(), payload()];
        let outputs = inputs.each_ref().map(skipped);
        for (input, output) in inputs.iter().zip(&outputs).take(2) {
            let buffer = buffer.get_mut().unwrap();
            TensorMeta::set(buffer, input.clone());
            assert!(Arc::ptr_eq(&TensorMeta::input(buffer).unwrap(), input));
            TensorMeta::set(buffer, output.clone());
            assert!(TensorMeta::input(buffer).is_none());
        }
        TensorMeta::set(buffer.get_mut().unwrap(), inputs[2].clone());
        let copy = buffer.copy();
        let [first, second, _] = outputs.each_ref().map(Arc::as_ptr);
        for buffer in [&buffer, &copy] {
            assert_eq!(payloads(buffer), [first, second, Arc::as_ptr(&inputs[2])]);
        }
        let buffer = buffer.get_mut().unwrap();
        for output in &outputs[..2] {
            let taken = TensorMeta::outputs(buffer).unwrap();
            assert!(Arc::ptr_eq(&taken, output));
            TensorMeta::remove(buffer, &taken);
        }
        assert!(TensorMeta::outputs(buffer).is_none() && TensorMeta::input(buffer).is_some());
        assert_eq!(payloads(&copy).len(), 3);
    }

    /// Another model may still have its tensor made of the frame.
    #[test]
    fn a_frame_is_drawn_on_once_no_other_model_reads_it() {
        let mut buffer = with_memory();
        let (input, other) = (payload(), payload());
        let first = skipped(&input);
        let buffer = buffer.get_mut().unwrap();
        TensorMeta::set(buffer, input);
        TensorMeta::set(buffer, first.clone());
        TensorMeta::wait_for_readers(buffer, Some(&first));
        assert_eq!(waits(), 0);
        TensorMeta::set(buffer, other);
        TensorMeta::wait_for_readers(buffer, Some(&first));
        assert_eq!(waits(), 1);
        TensorMeta::remove(buffer, &first);
        assert_eq!(waits(), 1);
    }

    fn with_memory() -> gst::Buffer {
        gst::init().unwrap();
        gst::Buffer::with_size(4).unwrap()
    }

    #[test]
    fn copies_in_other_memory_wait_for_the_gpu() {
        let mut buffer = with_memory();
        TensorMeta::set(buffer.get_mut().unwrap(), payload());
        let metas = gst::BUFFER_COPY_METADATA;

        let same = buffer.copy();
        assert_eq!(waits(), 0, "the copy keeps the memory");
        let mut other = with_memory();
        buffer.copy_into(other.get_mut().unwrap(), metas, ..).unwrap();
        assert_eq!(waits(), 1, "the frame's own memory may be used again");
        let deep = buffer.copy_deep().unwrap();
        assert_eq!(waits(), 1);
        assert!([&same, &other, &deep].iter().all(|buffer| TensorMeta::get(buffer).is_some()));
    }

    #[test]
    fn frames_are_given_back_once_the_gpu_has_read_them() {
        gst::init().unwrap();
        let payload = payload();
        let pool = gst::BufferPool::new();
        let mut config = pool.config();
        config.set_params(None, 4, 1, 1);
        pool.set_config(config).unwrap();
        pool.set_active(true).unwrap();
        let mut buffer = pool.acquire_buffer(None).unwrap();
        TensorMeta::set(buffer.get_mut().unwrap(), payload.clone());
        assert_eq!(waits(), 0);
        drop(buffer); // another thread may still hold the payload, as `payload` does here
        assert_eq!(waits(), 1);
        let buffer = pool.acquire_buffer(None).unwrap();
        assert!(TensorMeta::get(&buffer).is_none());
        pool.set_active(false).unwrap();
    }

    #[test]
    fn what_is_made_of_the_same_tensor_is_not_waited_for() {
        let input = payload();
        let output = skipped(&input);
        let mut buffer = with_memory();
        let buffer = buffer.get_mut().unwrap();
        TensorMeta::set(buffer, input);
        TensorMeta::set(buffer, output);
        assert_eq!(waits(), 0, "trtinfer goes on at once");
        let (second, third) = (payload(), payload());
        TensorMeta::set(buffer, second);
        assert_eq!(waits(), 0, "another model's is next to it");
        TensorMeta::set(buffer, third);
        assert_eq!(waits(), 1, "an input that no model has taken");
    }

    /// A stream that is flushed returns its frames, while a batch that another stream runs may still hold their tensors.
    #[test]
    fn frames_that_left_a_batch_wait_for_the_gpu() {
        struct Idle;
        impl ModelInstance for Idle {
            fn run(&mut self, _: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
                unreachable!("no batch is full")
            }
        }
        let input = payload();
        let inputs = input.inputs().clone();
        let held = inputs.list[0].tensors.clone();
        let batcher = Arc::new(Batcher::new(Box::new(Idle), 2, Duration::from_secs(600)).unwrap());
        let (pictures, token) = ([held.clone()].into_iter(), CancelToken::default());
        let outputs = batcher.submit(7, pictures, &Arc::default(), &Arc::default(), &token).unwrap();
        let shapes = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/shapes.onnx");
        let model = Arc::new(ModelInfo::read(Path::new(shapes)).unwrap());
        let mut buffer = with_memory();
        let output = Payload::Output { outputs, inputs, model };
        TensorMeta::set(buffer.get_mut().unwrap(), Arc::new(output));
        batcher.leave(7);
        assert_eq!(waits(), 0);
        drop(buffer);
        assert_eq!(waits(), 1);
    }
}
