// SPDX-License-Identifier: MPL-2.0
//! GPUs that this process can use no more.
//!
//! After some errors, such as that of a kernel with a wrong address, every further call on that GPU returns the same one
//! until the process ends, or does not return. So the first one is kept here, and stands for all calls to come: nothing of
//! that GPU is used again, nothing is freed on it, and no new context is tried.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult::*;

use super::describe;
use crate::error::{Error, ErrorKind, Result};

/// What was lost, and who wants to know of it.
struct LostGpus {
    /// The first error of each, by CUDA's number of the GPU.
    errors: Vec<(i32, Error)>,
    notify: Vec<Notify>,
}

type Notify = Box<dyn Fn(&Error) + Send>;

static LOST: Mutex<LostGpus> = Mutex::new(LostGpus { errors: Vec::new(), notify: Vec::new() });
/// Whether there are any: calls look at no more than that as long as all is well.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The GPU whose context the thread has entered. The driver, asked after such an error, would not tell.
    static ENTERED: Cell<Option<i32>> = const { Cell::new(None) };
}

fn lock() -> MutexGuard<'static, LostGpus> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Errors after which the process can use the GPU no more. cuda.h says of most of them: "This leaves the process in an
/// inconsistent state and any further CUDA work will return the same error. To continue using CUDA, the process must be
/// terminated and relaunched." The others are of hardware, or of a driver that is gone.
const STICKY: [u32; 18] = [
    CUDA_ERROR_DEINITIALIZED as u32,
    CUDA_ERROR_DEVICE_UNAVAILABLE as u32, // said of a context that was there
    CUDA_ERROR_ECC_UNCORRECTABLE as u32,
    CUDA_ERROR_NVLINK_UNCORRECTABLE as u32,
    226, // CUDA_ERROR_CONTAINED, which came later than the names that are compiled in
    CUDA_ERROR_ILLEGAL_ADDRESS as u32,
    CUDA_ERROR_LAUNCH_TIMEOUT as u32,
    CUDA_ERROR_ASSERT as u32,
    CUDA_ERROR_HARDWARE_STACK_ERROR as u32,
    CUDA_ERROR_ILLEGAL_INSTRUCTION as u32,
    CUDA_ERROR_MISALIGNED_ADDRESS as u32,
    CUDA_ERROR_INVALID_ADDRESS_SPACE as u32,
    CUDA_ERROR_INVALID_PC as u32,
    CUDA_ERROR_LAUNCH_FAILED as u32,
    721, // CUDA_ERROR_TENSOR_MEMORY_LEAK
    CUDA_ERROR_MPS_CLIENT_TERMINATED as u32,
    CUDA_ERROR_EXTERNAL_DEVICE as u32,
    CUDA_ERROR_UNKNOWN as u32,
];

/// The thread works on that GPU until this is dropped.
pub(super) struct OnGpu(Option<i32>);

impl OnGpu {
    pub fn enter(gpu: i32) -> Self {
        OnGpu(ENTERED.replace(Some(gpu)))
    }
}

impl Drop for OnGpu {
    fn drop(&mut self) {
        ENTERED.set(self.0);
    }
}

/// # Errors
/// `DeviceLost`, where the GPU cannot be used any more: the error that said so first.
pub fn check(gpu: i32) -> Result<()> {
    if !ANY.load(Ordering::Relaxed) {
        return Ok(());
    }
    lock().errors.iter().find(|(lost, _)| *lost == gpu).map_or(Ok(()), |(_, error)| Err(error.clone()))
}

/// What an error of the driver means for the GPU that the thread works on: `None`, if no more than that a call failed.
#[track_caller]
pub(super) fn note(error: DriverError, what: &str) -> Option<Error> {
    let gpu = ENTERED.get().filter(|_| STICKY.contains(&(error.0 as u32)))?;
    let first = Error::new(ErrorKind::DeviceLost, what)
        .cause(format!("this process can use GPU {gpu} no more, after {}", describe(error)))
        .remedy(
            "Start the program again, CUDA does not recover within it; `dmesg | grep Xid` may tell what is wrong with the GPU",
        );
    Some(keep(gpu, first))
}

/// Keeps the first error of a GPU, and returns it.
fn keep(gpu: i32, error: Error) -> Error {
    let mut lost = lock();
    if let Some((_, known)) = lost.errors.iter().find(|(lost, _)| *lost == gpu) {
        return known.clone();
    }
    lost.errors.push((gpu, error.clone()));
    ANY.store(true, Ordering::Relaxed);
    lost.notify.iter().for_each(|notify| notify(&error));
    error
}

/// Nanoseconds that a wait on the host may take, by CUDA's number of the GPU: those of the shortest limit, or 0.
static WAIT_LIMITS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// All limits that count, with the GPU of each.
static ALL_LIMITS: Mutex<Vec<(i32, Duration)>> = Mutex::new(Vec::new());

/// Of a GPU beyond those none is kept.
fn limit_of(gpu: i32) -> Option<&'static AtomicU64> {
    WAIT_LIMITS.get(usize::try_from(gpu).ok()?)
}

/// A limit for waits on the host, which counts until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct WaitLimit {
    gpu: i32,
    length: Duration,
}

impl WaitLimit {
    pub(super) fn new(gpu: i32, length: Duration) -> Self {
        WaitLimit::change(gpu, |all| all.push((gpu, length)));
        WaitLimit { gpu, length }
    }

    pub fn length(&self) -> Duration {
        self.length
    }

    fn change(gpu: i32, change: impl FnOnce(&mut Vec<(i32, Duration)>)) {
        let mut all = ALL_LIMITS.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut all);
        let shortest = all.iter().filter(|(of, _)| *of == gpu).map(|(_, length)| *length).min();
        let nanoseconds = shortest.map_or(0, |length| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).max(1));
        if let Some(of_gpu) = limit_of(gpu) {
            of_gpu.store(nanoseconds, Ordering::Relaxed);
        }
    }
}

impl Drop for WaitLimit {
    fn drop(&mut self) {
        let own = (self.gpu, self.length);
        WaitLimit::change(self.gpu, |all| {
            if let Some(at) = all.iter().position(|limit| *limit == own) {
                all.swap_remove(at);
            }
        });
    }
}

pub(super) fn wait_limit(gpu: i32) -> Option<Duration> {
    let limit = limit_of(gpu)?.load(Ordering::Relaxed);
    (limit > 0).then(|| Duration::from_nanos(limit))
}

/// Work on that GPU has not ended in that time. There is no way to end it, and what follows waits for it.
pub(super) fn abandon(gpu: i32, limit: Duration) -> Error {
    let stuck = Error::new(ErrorKind::DeviceLost, format!("GPU work has not ended within {} s", limit.as_secs_f64()))
        .cause(format!("this process can use GPU {gpu} no more, since what is queued there waits for that work"))
        .remedy(
            "Start the program again. A model with a loop may never end: check it, and the GPU by `dmesg | grep Xid`. Where a run \
             may take so long, set run-timeout of trtinfer to more, or to 0",
        );
    keep(gpu, stuck)
}

/// The first error after which this process could not use a GPU any more. `None` as long as it can use all of them.
pub fn lost() -> Option<Error> {
    if !ANY.load(Ordering::Relaxed) {
        return None;
    }
    lock().errors.first().map(|(_, error)| error.clone())
}

/// From now on such a loss is told at once, by whichever thread meets it. `notify` only wakes somebody up: locks may be held.
pub fn when_lost(notify: impl Fn(&Error) + Send + 'static) {
    lock().notify.push(Box::new(notify));
}

#[cfg(test)]
mod tests {
    use cudarc::driver::sys::CUresult;

    use super::super::{Context, Stream, StreamRole};
    use super::*;
    use crate::fakes::Fakes;
    use crate::memory::DevicePool;

    /// The numbers are those of cuda.h.
    #[test]
    fn what_a_process_survives() {
        let Some(_fakes) = Fakes::of(module_path!(), "what_a_process_survives") else { return };
        let ends = |number: u32| {
            let gpu = OnGpu::enter(number as i32); // each another one
            // SAFETY: it is a number of this release of CUDA.
            let error = unsafe { std::mem::transmute::<u32, CUresult>(number) };
            let is_lost = note(DriverError(error), "It fails").is_some();
            drop(gpu);
            assert_eq!(check(number as i32).is_err(), is_lost);
            is_lost
        };
        let sticky = [4, 46, 214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719, 810, 911, 999];
        let others = [1, 2, 3, 100, 101, 200, 201, 209, 218, 222, 304, 400, 600, 701, 703, 709, 720, 801, 802, 900];
        assert!(sticky.into_iter().all(ends));
        assert!(!others.into_iter().any(ends));
        assert!(note(DriverError(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS), "It fails").is_none(), "of no GPU");
    }

    #[test]
    fn the_shortest_limit_counts_as_long_as_it_is_there() {
        const GPU: i32 = 63; // no other test has so many
        let of = |seconds| WaitLimit::new(GPU, Duration::from_secs(seconds));
        let seconds = || wait_limit(GPU).map(|limit| limit.as_secs());
        let (long, short) = (of(9), of(2));
        assert_eq!(seconds(), Some(2));
        drop(short);
        assert_eq!(seconds(), Some(9));
        let another = of(9);
        drop(long);
        assert_eq!(seconds(), Some(9));
        drop(another);
        assert_eq!(seconds(), None);
    }

    /// In exclusive mode a GPU is for one program at a time, and free again when that has ended.
    #[test]
    fn a_gpu_that_another_program_has_is_not_lost() {
        let Some(fakes) = Fakes::of(module_path!(), "a_gpu_that_another_program_has_is_not_lost") else { return };
        fakes.refuse_contexts(46);
        let error = Context::primary(0).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Run, "{error}");
        assert!(error.message().contains("Another program has the GPU for itself"), "{error}");
        assert!(lost().is_none());
        fakes.refuse_contexts(0);
        fakes.context().memory().unwrap();
    }

    #[test]
    fn a_lost_gpu_is_left_alone() {
        let Some(fakes) = Fakes::of(module_path!(), "a_lost_gpu_is_left_alone") else { return };
        let told = std::sync::Arc::new(Mutex::new(Vec::new()));
        let to = told.clone();
        when_lost(move |error| to.lock().unwrap().push(error.message()));
        let context = fakes.context();
        let (stream, other) = (Stream::new(&context).unwrap(), Stream::of(&context, StreamRole::Paint).unwrap());
        let pool = DevicePool::new(&context);
        let block = pool.take(1 << 20).unwrap();
        // SAFETY: the block has so many bytes, and is used by nothing else.
        let clear = || unsafe { stream.clear(block.address(), 1 << 20) };
        let fence = stream.record().unwrap();
        // A call that fails is no end.
        fakes.fail(0);
        let error = clear().unwrap_err();
        assert_eq!((error.kind(), error.is_out_of_memory()), (ErrorKind::Run, false), "{error}");
        fakes.lack(1);
        let error = pool.take(1 << 21).unwrap_err();
        assert_eq!((error.kind(), error.is_out_of_memory()), (ErrorKind::Run, true), "{error}");
        assert!(lost().is_none());
        clear().unwrap();
        // Work is queued, and fails later.
        fakes.break_gpu(700, 1);
        clear().unwrap();
        let first = stream.synchronize().unwrap_err();
        assert_eq!(first.kind(), ErrorKind::DeviceLost);
        let text = first.message();
        let begin = "GPU work failed: this process can use GPU 0 no more, after CUDA_ERROR_ILLEGAL_ADDRESS (";
        assert!(text.starts_with(begin) && text.contains("Start the program again"), "{text}");
        assert!(text.contains("`dmesg | grep Xid`"), "{text}");
        // All that comes is the first error again, whatever is asked of which object; nothing is asked of the driver.
        let later = [
            clear(),
            other.synchronize(),
            other.record().map(drop),
            fence.wait(),
            pool.take(1 << 22).map(drop),
            context.memory().map(drop),
            context.device_name().map(drop),
            context.with(|| ()),
            Context::primary(0).map(drop),
            Stream::new(&context).map(drop),
        ];
        later.into_iter().for_each(|outcome| assert_eq!(outcome.unwrap_err().id(), first.id()));
        assert!(fence.is_passed(), "who waits does not wait forever");
        drop((block, pool, fence, stream, other, context));
        assert_eq!(fakes.calls_when_dead(), 0);
        assert_eq!(lost().map(|error| error.id()), Some(first.id()));
        assert_eq!(*told.lock().unwrap(), [text]);
    }
}
