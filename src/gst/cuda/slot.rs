// SPDX-License-Identifier: MPL-2.0
//! The CUDA context of an element: where it gets it from, and how its neighbours get it from there.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gst::prelude::*;
use gsttrt_core::cuda::driver::{self, Context};
use gsttrt_core::error::{Error, ErrorKind, Result};

use super::{CAT, CONTEXT_TYPE, MEMORY_FEATURE, library, pool, registry};

/// Holds the context that an element shares with the others of its pipeline, and those of other pipelines: contexts take
/// turns on a GPU, and work in one of them runs in parallel.
#[derive(Default)]
pub struct CudaContextSlot(Mutex<ContextState>);

#[derive(Default)]
struct ContextState {
    context: Option<Context>,
    /// Whether the element works in it. Else it was offered, by the pipeline or by a shared model, and the context that
    /// frames come from has precedence.
    is_in_use: bool,
}

impl CudaContextSlot {
    fn state(&self) -> MutexGuard<'_, ContextState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The context to work in: the one that is here already, that of the elements before, the application's, that of the
    /// elements behind, another pipeline's, or a new one that is then shared with all of them. `device` is the user's
    /// choice, -1 for none.
    ///
    /// # Errors
    /// `GstCudaLibrary` without CUDA, `Settings` for a device that is not there.
    pub fn ensure(&self, element: &impl IsA<gst::Element>, device: i32) -> Result<Context> {
        driver::available()?;
        if let Some(context) = self.in_use(device) {
            return Ok(context);
        }
        if library().is_err() {
            // No CUDA memory can arrive then, so no context has to be shared.
            return Ok(self.put(Context::of_process(device.max(0))?));
        }
        let element = element.upcast_ref();
        // Upstream first: elements downstream may have joined any context.
        let found = asked(element.sink_pads(), device)
            .or_else(|| self.offered(device))
            .or_else(|| asked(element.src_pads(), device))
            .or_else(|| self.given(element, device));
        let whose = if found.is_some() { "a context of the pipeline" } else { "the process's context" };
        gst::debug!(CAT, obj = element, "works in {whose}");
        match found {
            Some(context) => {
                // Applications ask the element for it.
                let known = element.context(CONTEXT_TYPE).and_then(|known| registry::shared(&known));
                if known.as_ref() != Some(&context)
                    && let Some(shared) = registry::share(&context)
                {
                    element.set_context(&shared);
                }
                Ok(self.put(context))
            }
            None => self.join_or_make(element, device),
        }
    }

    /// Hands a context out before the neighbours ask for one: when the element goes to READY, which those do that are in
    /// the pipeline by then, and before the decoder is there that decodebin plugs in. `makes` says that the element will
    /// need one in any case, so that one is made where there is none; else the process's is handed out, if it has one.
    pub fn hand_out(&self, element: &impl IsA<gst::Element>, device: i32, makes: bool) {
        let element = element.upcast_ref();
        if library().is_err() {
            return;
        }
        let device = if device < 0 { device_before(element).unwrap_or(-1) } else { device };
        if !makes && registry::find(device.max(0)).is_none() {
            return;
        }
        let found = self.given(element, device).or_else(|| self.offered(device));
        // What is wrong with the device is said when the element starts.
        if let Some(context) = found.or_else(|| registry::find_or_make(device).ok()) {
            gst::debug!(CAT, obj = element, "hands out the context of GPU {}", context.device());
            self.offer(&context, device);
            if !is_known_above(element, &context) {
                tell(element, &context);
            }
        }
    }

    /// The application's or the pipeline's.
    fn given(&self, element: &gst::Element, device: i32) -> Option<Context> {
        let fitting = |context: gst::Context| registry::shared(&context).filter(|context| fits(context, device));
        if let Some(context) = element.context(CONTEXT_TYPE).and_then(fitting) {
            return Some(context).filter(is_usable);
        }
        // Answers, if any, come by way of the element's set_context, which keeps them.
        let _ = element.post_message(gst::message::NeedContext::builder(CONTEXT_TYPE).src(element).build());
        element.context(CONTEXT_TYPE).and_then(fitting).filter(is_usable)
    }

    /// Another pipeline's, or a new one.
    fn join_or_make(&self, element: &gst::Element, device: i32) -> Result<Context> {
        let context = registry::find_or_make(device)?;
        tell(element, &context);
        Ok(self.put(context))
    }

    /// The context that others work in on the GPU of the element's pipeline, if they do. None is made, and nobody is asked for one.
    pub fn find(&self, element: &impl IsA<gst::Element>, device: i32) -> Option<Context> {
        if let Some(context) = self.in_use(device).or_else(|| self.offered(device)) {
            return Some(context);
        }
        let device = if device < 0 { device_before(element.upcast_ref()).unwrap_or(0) } else { device };
        registry::find(device).or_else(|| Context::primary_in_use(device))
    }

    fn in_use(&self, device: i32) -> Option<Context> {
        let state = self.state();
        state.context.clone().filter(|context| state.is_in_use && fits(context, device))
    }

    fn offered(&self, device: i32) -> Option<Context> {
        self.state().context.clone().filter(|context| fits(context, device))
    }

    fn put(&self, context: Context) -> Context {
        let before = {
            let mut state = self.state();
            state.is_in_use = true;
            state.context.replace(context.clone())
        };
        if !before.is_some_and(|before| before.is_same(&context)) {
            registry::note(&context);
        }
        context
    }

    /// What an element's `set_context` does: [`CudaContextSlot::offer`] with what is in there.
    pub fn set(&self, context: &gst::ContextRef, device: i32) {
        if let Some(context) = registry::shared(context) {
            self.offer(&context, device);
        }
    }

    /// Takes the context over if there is none yet and it is of the chosen device.
    pub fn offer(&self, context: &Context, device: i32) {
        let mut state = self.state();
        let has_one = state.context.as_ref().is_some_and(|own| fits(own, device));
        if !has_one && fits(context, device) {
            *state = ContextState { context: Some(context.clone()), is_in_use: false };
        }
    }

    /// Answers a neighbour's query for the context, which came to a pad of that direction; false where it is another
    /// query or there is none. Decoders ask when they open, before other elements have one: so those of one device
    /// share it, though a pipeline knows only one context for all devices.
    pub fn answer(
        &self,
        element: &impl IsA<gst::Element>,
        device: i32,
        direction: gst::PadDirection,
        query: &mut gst::QueryRef,
    ) -> bool {
        let gst::QueryViewMut::Context(query) = query.view_mut() else { return false };
        if query.context_type() != CONTEXT_TYPE || library().is_err() {
            return false;
        }
        let element = element.upcast_ref();
        let context = match direction {
            // It is asked in the direction in which the query goes, for the others would query back. Elements upstream
            // know where frames come from.
            gst::PadDirection::Src => self
                .in_use(device)
                .or_else(|| asked(element.sink_pads(), device))
                .or_else(|| self.offered(device))
                .or_else(|| self.given(element, device))
                .or_else(|| (device >= 0).then(|| self.join_or_make(element, device).ok()).flatten()),
            // A decoder, mostly. It takes none of another GPU, and goes on to make its own.
            _ => {
                let theirs = if device >= 0 { Some(device) } else { device_before(element) };
                let fitting = |context: &Context| theirs.is_none_or(|theirs| theirs == context.device());
                let own = self.offered(device).filter(fitting);
                own.or_else(|| self.given(element, device).filter(fitting)).or_else(|| match device {
                    0.. => self.join_or_make(element, device).ok(),
                    // It is not known yet where frames will come from.
                    _ => registry::find(theirs.unwrap_or(0)),
                })
            }
        };
        let Some(shared) = context.as_ref().and_then(registry::share) else { return false };
        gst::debug!(CAT, obj = element, "gives its context to a neighbour");
        query.set_context(&shared);
        true
    }

    /// Proposes a pool in CUDA memory in answer to an allocation query for CUDA memory. If it cannot be made, upstream
    /// makes its own. A pool that downstream has proposed stays, with enough buffers.
    pub fn propose(&self, element: &impl IsA<gst::Element>, device: i32, query: &mut gst::query::Allocation) {
        // Decoders that hand out their own surfaces have as many as the pool has buffers. Those in flight between here and
        // trtnms, and in the queues of a usual pipeline, must not be all there are.
        const IN_FLIGHT: u32 = 8;
        let (Some(caps), _) = query.get_owned() else { return };
        let is_cuda = caps.features(0).is_some_and(|features| features.contains(MEMORY_FEATURE));
        let Some(info) = is_cuda.then(|| gst_video::VideoInfo::from_caps(&caps).ok()).flatten() else { return };
        if let Some((Some(pool), size, min, max)) = query.allocation_pools().next() {
            let max = if max == 0 { 0 } else { max.max(IN_FLIGHT) };
            query.set_nth_allocation_pool(0, Some(&pool), size, min.max(IN_FLIGHT), max);
            return;
        }
        let made =
            self.ensure(element, device).and_then(|context| pool(&context, &caps, info.size() as u32, IN_FLIGHT));
        if let Ok((pool, size)) = made {
            query.add_allocation_pool(Some(&pool), size, IN_FLIGHT, 0);
            query.add_allocation_meta::<gst_video::VideoMeta>(None);
        }
    }

    /// From now on works in the context of the frames that arrive.
    ///
    /// # Errors
    /// `Settings`, if the user wants another device.
    pub fn follow(&self, context: &Context, device: i32) -> Result<()> {
        if device >= 0 && device != context.device() {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("cuda-device-id is {device}, and frames come from GPU {}", context.device()),
            )
            .remedy(
                "Set the same cuda-device-id on all elements, or -1; between two GPUs put cudadownload ! cudaupload",
            ));
        }
        if !self.in_use(device).is_some_and(|own| own.is_same(context)) {
            self.put(context.clone());
        }
        Ok(())
    }

    /// Takes over the primary context of a GPU, in which NVIDIA's own elements work, by their number of the GPU.
    ///
    /// # Errors
    /// `Settings`, if the user wants another device, or there is no such GPU.
    pub fn follow_primary(&self, gpu: i32, device: i32) -> Result<Context> {
        if device >= 0 && device != gpu {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("cuda-device-id is {device}, and frames come from GPU {gpu}"),
            )
            .remedy("Set the same cuda-device-id on all elements, or -1, and the same gpu-id on those before"));
        }
        if let Some(context) = self.in_use(gpu).filter(Context::is_primary) {
            return Ok(context);
        }
        let count = driver::device_count()?;
        if gpu >= count {
            let what = format!("Frames come from GPU {gpu}, and this process sees {count}");
            return Err(Error::new(ErrorKind::Settings, what)
                .remedy("Set gpu-id of the elements before to one of them, or make the GPU visible to this process"));
        }
        Ok(self.put(Context::primary(gpu)?))
    }

    /// Forgets the context; another start may find another one.
    pub fn clear(&self) {
        let former = std::mem::take(&mut *self.state());
        drop(former); // not under the lock
    }
}

fn fits(context: &Context, device: i32) -> bool {
    device < 0 || context.device() == device
}

fn is_usable(context: &Context) -> bool {
    context.check("GPU work failed").is_ok()
}

/// What the elements behind these pads answer.
fn asked(pads: Vec<gst::Pad>, device: i32) -> Option<Context> {
    pads.iter().find_map(|pad| {
        let mut query = gst::query::Context::new(CONTEXT_TYPE);
        let answer = pad.peer_query(&mut query).then(|| query.context_owned()).flatten()?;
        registry::shared(&answer).filter(|context| fits(context, device))
    })
}

/// The GPU of the first element before this one that says so, such as a decoder.
fn device_before(element: &gst::Element) -> Option<i32> {
    const FAR: usize = 16; // also where pads are linked in a circle
    let before = |element: &gst::Element| element.sink_pads().first()?.peer()?.parent_element();
    std::iter::successors(before(element), before).take(FAR).find_map(|before| registry::device_of(&before))
}

/// Whether a bin that the element is in has that context, and so all that comes into the bin.
fn is_known_above(element: &gst::Element, context: &Context) -> bool {
    let bins = std::iter::successors(element.parent(), |bin| bin.parent());
    bins.filter_map(|bin| bin.downcast::<gst::Element>().ok()?.context(CONTEXT_TYPE))
        .any(|known| registry::shared(&known).is_some_and(|known| known == *context))
}

/// Lets the element itself, its pipeline and the application know of the context.
fn tell(element: &gst::Element, context: &Context) {
    let Some(shared) = registry::share(context) else { return };
    // The pipeline knows one, and those who are on its GPU need it; those of another one are asked by their neighbours.
    let others = element.context(CONTEXT_TYPE).and_then(|context| registry::shared(&context));
    let is_of_other_gpu = others.is_some_and(|others| others.device() != context.device());
    element.set_context(&shared);
    if !is_of_other_gpu {
        let _ = element.post_message(gst::message::HaveContext::builder(shared).src(element).build());
    }
}
