// SPDX-License-Identifier: MPL-2.0
//! One CUDA context for each GPU of the process, whoever comes first: an element of ours, a decoder, another pipeline, or a
//! session.
//!
//! What is here is weak: a context lives as long as somebody works in it. Contexts that others made are known once an
//! element of ours has seen them, in a message, in the answer to a query or with a frame.

use std::ffi::{c_int, c_uint};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gst::glib::translate::*;
use gst::prelude::*;
use gsttrt_core::cuda::driver::{self, Context, WeakContext};
use gsttrt_core::error::{Error, ErrorKind, Result};
use smallvec::SmallVec;

use super::{CONTEXT_TYPE, DEVICE_FIELD, GstCudaLibrary, library};

/// A GstCudaContext, as the owner of our [`Context`].
pub(super) struct ContextOwner(pub gst::Object);

/// All that elements of ours have seen, the oldest first. No context may be dropped while this is locked: CUDA may wait.
static SEEN: Mutex<Vec<WeakContext>> = Mutex::new(Vec::new());

/// Held while a context is looked for or else made, so that pipelines that start together make one.
static MAKING: Mutex<()> = Mutex::new(());

fn seen() -> MutexGuard<'static, Vec<WeakContext>> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Those that are in use. They stay so for as long as somebody has them.
pub fn alive() -> SmallVec<[Context; 4]> {
    seen().iter().filter_map(WeakContext::upgrade).collect()
}

/// What has failed where a context that is there is of no use: whoever else works in it.
const UNFIT: &str = "GPU work failed";

/// The first GPU that this process can use no more. Also those are asked that only others have worked on since, such as
/// decoders, which do not tell.
pub fn lost() -> Option<Error> {
    alive().iter().for_each(|context| drop(context.check(UNFIT)));
    driver::lost()
}

/// Lets sessions of this process work in the context that its pipelines have.
pub fn offer_to_sessions() {
    driver::find_contexts_by(find);
}

/// How many contexts the elements of this process work in, or have seen others work in: more than one for each GPU is
/// slow.
pub fn count() -> u64 {
    let alive = alive();
    let is_first = |(i, context): &(usize, &Context)| !alive[..*i].contains(context);
    alive.iter().enumerate().filter(is_first).count() as u64
}

/// Remembers a context that an element works in.
pub(super) fn note(context: &Context) {
    let alive = alive();
    let mut seen = seen();
    seen.retain(WeakContext::is_in_use);
    if !alive.iter().any(|known| known.is_same(context)) {
        seen.push(context.downgrade());
    }
}

/// The context that stands for a GstCudaContext; all elements get the same one, so that they share modules and events.
pub(super) fn of(object: &gst::Object) -> Result<Context> {
    let library = library()?;
    if let Some(context) = known(object) {
        return Ok(context); // for each frame, so without the other lock
    }
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    known(object).map_or_else(|| wrap(library, object), Ok)
}

fn known(object: &gst::Object) -> Option<Context> {
    let same = |context: &Context| context.owner::<ContextOwner>().is_some_and(|owner| owner.0 == *object);
    alive().into_iter().find(same)
}

fn wrap(library: &GstCudaLibrary, object: &gst::Object) -> Result<Context> {
    let device = object.property::<u32>(DEVICE_FIELD) as i32;
    // SAFETY: the object is a GstCudaContext, whose CUcontext lives as long as the object, which the owner keeps.
    let context = unsafe {
        let raw = (library.context_get_handle)(object.as_ptr());
        Context::wrap(raw, device, Box::new(ContextOwner(object.clone())))?
    };
    let _ = context.use_blocking_sync(); // all works without it
    note(&context);
    Ok(context)
}

/// A context on that GPU which somebody in this process works in already, and which can be given to GStreamer's elements.
pub fn find(device: i32) -> Option<Context> {
    let is_fit = |context: &Context| {
        context.device() == device && context.owner::<ContextOwner>().is_some() && context.check(UNFIT).is_ok()
    };
    alive().into_iter().find(is_fit)
}

/// The context of that GPU: the one that somebody in this process works in, else a new one. Negative numbers stand for
/// the first GPU.
///
/// # Errors
/// `Library` without CUDA, `Settings` for a device that is not there.
pub fn find_or_make(device: i32) -> Result<Context> {
    let (library, device) = (library()?, device.max(0));
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    match find(device) {
        Some(context) => Ok(context),
        None => make(library, device),
    }
}

fn make(library: &GstCudaLibrary, device: i32) -> Result<Context> {
    // A wrong number would only be logged.
    let count = driver::device_count()?;
    if device >= count {
        return Err(driver::no_device(device, count));
    }
    // A session, or another user of the driver in this library, has the primary one.
    let primary = Context::primary_in_use(device).filter(|context| context.check(UNFIT).is_ok());
    driver::check(device)?;
    let object = match &primary {
        // SAFETY: the library is loaded, and the context is on that device. The object keeps it, see below.
        Some(primary) => unsafe { (library.context_new_wrapped)(primary.raw(), device as c_int) },
        // SAFETY: the library is loaded and the device exists.
        None => unsafe { (library.context_new)(device as c_uint) },
    };
    if object.is_null() {
        return Err(Error::new(ErrorKind::Library, format!("Cannot start CUDA on device {device}"))
            .cause("gst_cuda_context_new failed")
            .remedy("Look at GST_DEBUG=cuda*:5; the GPU may be in exclusive use or out of memory"));
    }
    // SAFETY: a new object, ours alone.
    let object: gst::Object = unsafe { from_glib_full(object) };
    if let Some(primary) = primary {
        // SAFETY: nothing else has data of this name, so its type is always this one.
        unsafe { object.set_data("gsttrt-primary-context", primary) };
    }
    wrap(library, &object)
}

/// As others take it over; `None` for contexts that are not GStreamer's.
pub(super) fn share(context: &Context) -> Option<gst::Context> {
    let ContextOwner(object) = context.owner()?;
    // SAFETY: the object is a GstCudaContext; the result is ours.
    library().ok().map(|library| unsafe { from_glib_full((library.context_new_cuda_context)(object.as_ptr())) })
}

/// What is in a context that others share: `None` where it is of another type, or has none in it.
pub(super) fn shared(context: &gst::ContextRef) -> Option<Context> {
    if context.context_type() != CONTEXT_TYPE {
        return None;
    }
    let object = context.structure().get::<gst::Object>(CONTEXT_TYPE).ok()?;
    // Any application can make a context of that type with any content.
    if object.type_().name() != "GstCudaContext" {
        return None;
    }
    of(&object).ok()
}

/// The GPU that an element is for, by its property, or its name, as decoders have it; `None` where it does not say.
pub(super) fn device_of(element: &gst::Element) -> Option<i32> {
    let Some(property) = element.find_property(DEVICE_FIELD) else { return named_device(&element.factory()?.name()) };
    if !property.flags().contains(gst::glib::ParamFlags::READABLE) {
        return None;
    }
    let value = element.property_value(DEVICE_FIELD);
    let device = value.get::<i32>().ok().or_else(|| value.get::<u32>().ok()?.try_into().ok());
    device.filter(|device| *device >= 0)
}

/// The GPU that a decoder of NVIDIA is for, by the name of its factory, such as `nvh264device1dec`; `None` for those of others.
pub fn device_of_decoder(factory: &gst::ElementFactory) -> Option<i32> {
    let is_nvidia = factory.plugin_name().is_some_and(|plugin| plugin == "nvcodec");
    is_nvidia.then(|| named_device(&factory.name()).unwrap_or(0))
}

/// The GPU in the name of an element.
fn named_device(factory: &str) -> Option<i32> {
    let (_, device) = factory.strip_prefix("nv")?.split_once("device")?;
    let digits = device.find(|c: char| !c.is_ascii_digit()).unwrap_or(device.len());
    device[..digits].parse().ok()
}

/// The CUDA context that all pipelines of this process are to share on that GPU, for `Element::set_context`: the one
/// that is in use there, else a new one, which lives as long as somebody has it.
///
/// Pipelines with a `trtinfer` whose model runs on the GPU give it to their decoders themselves. It is for pipelines without:
///
/// ```no_run
/// use gst::prelude::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let player = gst::ElementFactory::make("playbin3").build()?;
/// player.set_context(&gsttrt::cuda_context(0)?); // before it goes to READY
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Library` where there is no NVIDIA driver or no libgstcuda, `Settings` for a device that is not there.
pub fn cuda_context(device: u32) -> Result<gst::Context> {
    let context = find_or_make(i32::try_from(device).unwrap_or(i32::MAX))?;
    Ok(share(&context).expect("it is GStreamer's"))
}

/// Answers an element's NEED_CONTEXT message for a CUDA context with that of its GPU, or of `gpu` where it names none; false
/// where it asks for another context, or there is none. What asks will make its own otherwise, so one is made where there is none.
pub fn answer_message(message: &gst::MessageRef, gpu: i32) -> bool {
    let gst::MessageView::NeedContext(need) = message.view() else { return false };
    if need.context_type() != CONTEXT_TYPE {
        return false;
    }
    let Some(element) = message.src().and_then(|source| source.downcast_ref::<gst::Element>()) else { return false };
    let found = find_or_make(device_of(element).unwrap_or(gpu)).ok().as_ref().and_then(share);
    if let Some(context) = &found {
        element.set_context(context);
    }
    found.is_some()
}

/// Gives a pipeline that is to start the context of that GPU. Without one it is the context which others of the process work in on
/// the first GPU, if they do.
pub fn give(pipeline: &impl IsA<gst::Element>, gpu: Option<i32>) {
    let context = gpu.map_or_else(|| find(0), |gpu| find_or_make(gpu).ok());
    if let Some(context) = context.as_ref().and_then(share) {
        pipeline.set_context(&context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoders_of_other_gpus_have_its_number_in_their_name() {
        let names = ["nvh264device1dec", "nvh265device12dec", "nvh264dec", "nvdevicedec", "somedevice3"];
        assert_eq!(names.map(named_device), [Some(1), Some(12), None, None, None]);
    }
}
