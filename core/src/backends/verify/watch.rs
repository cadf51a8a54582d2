// SPDX-License-Identifier: MPL-2.0
//! Frames that are run on the CPU too while a model plays, to compare.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::judge::{Judge, on_host};
use super::results::Reader;
use super::{Tolerance, pictures};
use crate::backends::options::BackendOption;
use crate::backends::{Interrupter, LoadContext, LoadEvent, LoadRequest, ModelInstance, contained};
use crate::cuda::driver::Fence;
use crate::error::{Error, ErrorKind, Result};
use crate::image::geometry::Letterbox;
use crate::memory::Pool;
use crate::model::InputValues;
use crate::options::{OptionKind, OptionSpec, OptionValue};
use crate::tensor::Tensors;

pub static VERIFY_EVERY: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "verify-every",
        nick: "Verify every",
        blurb: "Seconds between two frames that another backend on the CPU runs too while they play, to compare (0 = none)",
        kind: OptionKind::UInt(0..=86_400),
    },
    default: OptionValue::UInt(0),
    is_in_key: false,
    insists: &[],
};

/// What was found in the frames that were compared.
#[derive(Debug, Default)]
pub struct Watch {
    compared: AtomicU64,
    differing: AtomicU64,
    /// The first one, until it is taken.
    warning: Mutex<Option<Error>>,
    /// A frame is still compared.
    is_busy: AtomicBool,
}

impl Watch {
    /// Frames that were compared.
    pub fn compared(&self) -> u64 {
        self.compared.load(Ordering::Relaxed)
    }

    /// Those among them whose results are others than the CPU's.
    pub fn differing(&self) -> u64 {
        self.differing.load(Ordering::Relaxed)
    }

    /// What is to be told; each is told once.
    pub fn take_warning(&self) -> Option<Error> {
        self.warning.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn tell(&self, warning: Error) {
        *self.warning.lock().unwrap_or_else(PoisonError::into_inner) = Some(warning);
    }
}

/// A picture, and what the model made of it.
struct Sample {
    picture: Arc<Tensors>,
    outputs: Tensors,
    values: Arc<InputValues>,
}

/// A model some of whose runs are compared.
struct WatchedModel {
    model: Box<dyn ModelInstance>,
    samples: Sender<Sample>,
    /// What goes into it besides pictures.
    values: Arc<InputValues>,
    watch: Arc<Watch>,
    every: Duration,
    next: Instant,
    /// Each place of a batch has its turn.
    turn: usize,
}

/// The model as it is, or one that compares a frame each so many seconds, as the options of the request say. Where there is
/// nothing to compare with, that is a warning.
///
/// # Errors
/// `Library`, where a thread cannot be started.
pub fn watched(
    model: Box<dyn ModelInstance>,
    request: &LoadRequest,
    loading: &LoadContext,
) -> Result<Box<dyn ModelInstance>> {
    let every = match request.number(&VERIFY_EVERY) {
        0 => return Ok(model),
        seconds => Duration::from_secs(seconds.into()),
    };
    match request.on_cpu().and_then(|reference| Reference::load(request, reference, loading)) {
        Ok(reference) => watch_by(model, reference, every),
        Err(error) => {
            let what =
                format!("Frames of {} are not compared with the CPU while they play", request.model().path.display());
            let warning = Error::new(ErrorKind::Settings, what).cause(error.as_clause()).remedy("Set verify-every=0");
            (loading.report)(LoadEvent::Warning(warning));
            Ok(model)
        }
    }
}

/// What the frames of a request are compared with.
pub struct Reference {
    request: LoadRequest,
    model: Box<dyn ModelInstance>,
    batch: usize,
    tolerance: &'static Tolerance,
    letterbox: Letterbox,
}

impl Reference {
    /// Loads it at once, as the file may be another one later.
    ///
    /// # Errors
    /// Where it cannot be loaded.
    pub fn load(request: &LoadRequest, reference: LoadRequest, loading: &LoadContext) -> Result<Self> {
        let tolerance = request.tolerance()?;
        let letterbox = pictures::tensors(&request.spec_on_host())?.1;
        let loading = LoadContext { report: &|_| {}, slots: None, contexts: 1, ..*loading };
        let (model, batch) =
            reference.or_others(&loading, |reference| Ok((reference.load(&loading)?, reference.batch)))?;
        Ok(Reference { request: request.clone(), model, batch, tolerance, letterbox })
    }

    /// What is wrong with the outputs.
    fn fault(&mut self, Sample { picture, outputs, values }: Sample) -> Result<Option<String>> {
        self.model.set_values(&values)?;
        if !Arc::ptr_eq(self.request.values(), &values)
            && let Some(request) = self.request.with_values(&values)?
        {
            self.request = request; // with as many labels
        }
        let pool = Pool::default();
        let outputs = on_host(&pool, outputs)?;
        let picture = Arc::new(on_host(&pool, picture.share())?);
        // A model that fixes its batch gets a whole one.
        let wanted = self.model.run(&vec![picture; self.batch])?.remove(0);
        let mut reader = Reader::new(self.request.model(), &wanted, &self.letterbox);
        let mut read = |outputs: &Tensors| reader.as_mut().and_then(|reader| reader.read(outputs));
        let (found, expected) = (read(&outputs), read(&wanted));
        let mut judge = Judge::new(self.tolerance);
        judge.against_reference(&outputs, &wanted, found.as_ref().zip(expected.as_ref()), "a frame that played");
        Ok(judge.faults.into_iter().next())
    }

    /// Compares samples until the model is dropped.
    fn compare(mut self, samples: &Receiver<Sample>, watch: &Watch) {
        let file = self.request.model().path.display().to_string();
        let what = format!("A frame of {file} cannot be compared with the CPU");
        for sample in samples {
            match contained(ErrorKind::Run, &what, || self.fault(sample)) {
                Ok(None) => {}
                Ok(Some(fault)) => {
                    if watch.differing.fetch_add(1, Ordering::Relaxed) == 0 {
                        let what = format!("{file} computes something else than the CPU while it plays");
                        let remedy = "Try it with gst-trt verify. It is said once; stats of trtinfer counts the frames";
                        watch.tell(Error::new(ErrorKind::Model, what).cause(fault).remedy(remedy));
                    }
                }
                Err(error) => return watch.tell(error.about(&what)),
            }
            watch.compared.fetch_add(1, Ordering::Relaxed);
            watch.is_busy.store(false, Ordering::Release);
        }
    }
}

/// The model, of which a frame is compared each so long.
///
/// # Errors
/// `Library`, where a thread cannot be started.
pub fn watch_by(
    model: Box<dyn ModelInstance>,
    reference: Reference,
    every: Duration,
) -> Result<Box<dyn ModelInstance>> {
    let watch = Arc::<Watch>::default();
    let (samples, taken) = channel();
    let (of_thread, values) = (watch.clone(), reference.request.values().clone());
    thread::Builder::new()
        .name("trt-verify".into())
        .spawn(move || reference.compare(&taken, &of_thread))
        .map_err(|error| Error::new(ErrorKind::Library, "Cannot start a thread that compares frames").cause(error))?;
    Ok(Box::new(WatchedModel { model, samples, values, watch, every, next: Instant::now() + every, turn: 0 }))
}

impl ModelInstance for WatchedModel {
    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        let outputs = self.model.run(pictures)?;
        let now = Instant::now();
        // A sample that nobody takes must not be made: dropping it would wait for the GPU.
        if now >= self.next && !outputs.is_empty() && !self.watch.is_busy.swap(true, Ordering::Acquire) {
            let place = self.turn % outputs.len();
            let (picture, values) = (pictures[place].clone(), self.values.clone());
            let sample = Sample { picture, outputs: outputs[place].share(), values };
            (self.next, self.turn) = (now + self.every, self.turn + 1);
            let _ = self.samples.send(sample); // it has ended with an error, which was told
        }
        Ok(outputs)
    }

    fn set_values(&mut self, values: &Arc<InputValues>) -> Result<()> {
        self.model.set_values(values)?;
        self.values = values.clone();
        Ok(())
    }

    /// It is no frame, and is not compared.
    fn try_values(&mut self, values: &Arc<InputValues>, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        self.model.try_values(values, pictures)
    }

    fn only_queues(&self) -> bool {
        self.model.only_queues()
    }

    fn runs_at_once(&self) -> usize {
        self.model.runs_at_once()
    }

    unsafe fn run_at(&mut self, picture: u64, outputs: &[u64], stream: Option<*mut c_void>) -> Result<Fence> {
        // SAFETY: the caller promises the same. The memory is the caller's, and may be others' when it could be compared.
        unsafe { self.model.run_at(picture, outputs, stream) }
    }

    fn working_bytes(&self) -> u64 {
        self.model.working_bytes()
    }

    fn interrupter(&self) -> Option<Interrupter> {
        self.model.interrupter()
    }

    fn take_others(&mut self) -> Vec<Box<dyn ModelInstance>> {
        self.model.take_others()
    }

    fn watch(&self) -> Option<&Arc<Watch>> {
        Some(&self.watch)
    }
}
