// SPDX-License-Identifier: MPL-2.0
use std::thread;

use super::*;
use crate::cuda::driver::Stream;
use crate::fakes::Fakes;
use crate::memory::DevicePool;

/// To a consumer without a stream.
fn export(tensor: &Tensor, keep: Box<dyn Send + Sync>) -> NonNull<Managed> {
    // SAFETY: there is no stream.
    unsafe { super::export(tensor, keep, Consumer::Unknown) }
}

/// Counts its drops.
struct Keep(Arc<AtomicUsize>);

impl Drop for Keep {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn drops() -> (Arc<AtomicUsize>, Box<Keep>) {
    let drops = Arc::<AtomicUsize>::default();
    (drops.clone(), Box::new(Keep(drops)))
}

#[test]
fn a_round_trip_is_the_same_memory() {
    let tensor = Tensor::from_slice("ours", &[1, 2, 3], &[1i32, 2, 3, 4, 5, 6]);
    let (drops, keep) = drops();
    let managed = export(&tensor, keep);
    // SAFETY: just exported, and consumed once.
    let back = unsafe { import(managed, "theirs") }.unwrap();
    assert_eq!(back.desc().to_string(), "theirs i32 1x2x3");
    assert_eq!(back.bytes().unwrap().as_ptr(), tensor.bytes().unwrap().as_ptr());
    assert_eq!(back.as_slice::<i32>().unwrap(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    let row = back.row(0);
    drop(back);
    assert_eq!(drops.load(Ordering::Relaxed), 0, "a row keeps it");
    drop(row);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn every_type_and_rank_goes_there_and_back() {
    for dtype in DType::ALL {
        for dims in [&[][..], &[0, 3], &[2], &[1, 1, 1, 2]] {
            let desc = TensorDesc::new("t", dtype, dims);
            let tensor = Tensor::fill(&crate::memory::Pool::default(), desc.clone(), |_| Ok(())).unwrap();
            let managed = export(&tensor, Box::new(()));
            // SAFETY: as above.
            assert_eq!(*unsafe { import(managed, "t") }.unwrap().desc(), desc);
        }
    }
}

/// NumPy and PyTorch write any stride there.
#[test]
fn strides_of_dimensions_of_one_mean_nothing() {
    let tensor = Tensor::from_slice("t", &[1, 3, 1], &[1f32, 2.0, 3.0]);
    for mut strides in [[3i64, 1, 1], [7, 1, 0], [0, 1, -5]] {
        let mut managed = export(&tensor, Box::new(()));
        // SAFETY: ours until it is imported, which is done once; the strides live until then.
        let taken = unsafe {
            managed.as_mut().view.strides = strides.as_mut_ptr();
            import(managed, "t")
        };
        assert_eq!(taken.unwrap().as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0], "{strides:?}");
    }
}

/// As frameworks give a part of a tensor.
#[test]
fn elements_begin_at_the_offset() {
    let tensor = Tensor::from_slice("t", &[4], &[1i32, 2, 3, 4]);
    let mut managed = export(&tensor, Box::new(()));
    let mut shape = [2i64];
    // SAFETY: ours until it is imported, which is done once; the shape lives until then.
    let taken = unsafe {
        let view = &mut managed.as_mut().view;
        (view.byte_offset, view.shape) = (8, shape.as_mut_ptr());
        import(managed, "t")
    };
    assert_eq!(taken.unwrap().as_slice::<i32>().unwrap(), [3, 4]);
}

#[test]
fn tensors_that_cannot_be_imported_are_left_alone() {
    let tensor = Tensor::from_slice("t", &[2, 3], &[0f32; 6]);
    let mut strides = [[3i64, 1], [1, 2], [6, 2]];
    let mut wide = [i64::MAX, 8];
    let mut negative = [-2i64, 3];
    let change = |change: &mut dyn FnMut(&mut DlTensor), says: &str| {
        let (drops, keep) = drops();
        let mut managed = export(&tensor, keep);
        // SAFETY: ours until it is imported, or freed.
        unsafe {
            change(&mut managed.as_mut().view);
            let taken = import(managed, "t");
            match (says, taken) {
                ("", taken) => drop(taken.unwrap()),
                (says, taken) => {
                    let error = taken.unwrap_err();
                    assert!(error.message().contains(says), "{says}: {error}");
                    assert_eq!(drops.load(Ordering::Relaxed), 0, "{says}");
                    free(managed.as_ptr());
                }
            }
            assert_eq!(drops.load(Ordering::Relaxed), 1, "{says}");
        }
    };
    change(&mut |_| {}, "");
    change(&mut |view| view.strides = strides[0].as_mut_ptr(), "");
    change(&mut |view| view.strides = strides[1].as_mut_ptr(), "strides are [1, 2]");
    change(&mut |view| view.strides = strides[2].as_mut_ptr(), "strides are [6, 2]");
    change(&mut |view| view.shape = ptr::null_mut(), "shape is NULL");
    change(&mut |view| view.shape = wide.as_mut_ptr(), "dimensions are");
    change(&mut |view| view.shape = negative.as_mut_ptr(), "dimensions are [-2, 3]");
    change(&mut |view| view.rank = -1, "-1 dimensions");
    change(&mut |view| view.data = ptr::null_mut(), "data is NULL");
    change(&mut |view| view.byte_offset = 2, "not aligned");
    change(&mut |view| view.byte_offset = u64::MAX, "not aligned");
    change(&mut |view| view.dtype.bits = 64, "elements are of");
    change(&mut |view| view.dtype.lanes = 4, "elements are of");
    change(&mut |view| view.device.kind = 10, "type 10");
    if crate::cuda::driver::available().is_err() {
        change(&mut |view| view.device.kind = CUDA, "Cannot use CUDA");
    }
}

#[test]
fn memory_of_the_gpu_goes_there_and_back() {
    let Some(context) = crate::test::gpu() else { return };
    let block = crate::memory::DevicePool::new(&context).take(24).unwrap();
    let address = block.address();
    let tensor = Tensor::on_device(TensorDesc::new("t", DType::F32, &[2, 3]), block);
    let managed = export(&tensor, Box::new(()));
    // SAFETY: as above; nothing is queued on it.
    let back = unsafe { import(managed, "t") }.unwrap();
    assert_eq!((back.device().unwrap().address(), back.device().unwrap().context()), (address, &context));
    let mut managed = export(&tensor, Box::new(()));
    // SAFETY: refused, then freed.
    unsafe {
        managed.as_mut().view.device.id = 99;
        assert!(import(managed, "t").unwrap_err().message().contains("no CUDA device 99"));
        free(managed.as_ptr());
    }
}

#[test]
fn dlpack_1_flags_read_only_memory() {
    assert_eq!(
        [std::mem::offset_of!(DlManagedVersioned, flags), std::mem::offset_of!(DlManagedVersioned, view)],
        [24, 32]
    );
    let tensor = Tensor::from_slice("t", &[2], &[1f32, 2.0]);
    for (read_only, flags) in [(true, READ_ONLY), (false, 0)] {
        let (drops, keep) = drops();
        // SAFETY: no stream is used; what was just exported is there until its deleter is called, once.
        unsafe {
            let managed = export_versioned(&tensor, keep, Consumer::Unknown, read_only);
            let DlManagedVersioned { version, flags: said, view, deleter, .. } = managed.as_ref();
            assert_eq!((*version, *said, view.rank), ([1, 0], flags, 1));
            assert_eq!(view.data.cast_const().cast(), tensor.bytes().unwrap().as_ptr());
            deleter.unwrap()(managed.as_ptr());
        }
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }
}

/// A consumer that still reads when it deletes the tensor.
#[test]
fn memory_of_the_gpu_returns_behind_the_work_of_its_consumer() {
    let Some(context) = crate::test::gpu() else { return };
    const BYTES: usize = 64 << 20;
    let (pool, stream) =
        (crate::memory::DevicePool::new(&context), crate::cuda::driver::Stream::new(&context).unwrap());
    let target = pool.take(BYTES).unwrap();
    for consumer in [Consumer::Stream(stream.raw()), Consumer::Unknown] {
        let block = pool.take(BYTES).unwrap();
        let address = block.address();
        let tensor = Tensor::on_device(TensorDesc::new("t", DType::U8, &[BYTES as i64]), block);
        // SAFETY: the stream outlives the tensor, which is deleted once.
        let managed = unsafe { super::export(&tensor, Box::new(()), consumer) };
        drop(tensor);
        // SAFETY: both blocks are as large, and stay until the copies are done.
        (0..200).for_each(|_| unsafe { stream.copy((&context, address), target.address(), BYTES) }.unwrap());
        let read = stream.record().unwrap();
        // SAFETY: ours, once.
        unsafe { free(managed.as_ptr()) };
        assert!(consumer != Consumer::Unknown || read.is_passed(), "the host has waited");
        let next = pool.take(BYTES).unwrap();
        assert!(next.address() != address || read.is_passed(), "it is still read");
        stream.synchronize().unwrap();
    }
}

/// As where CuPy works with a default stream for each thread, and a thread that collects garbage deletes the tensor.
#[test]
fn the_default_stream_of_a_thread_is_none_of_another() {
    const TEST: &str = "the_default_stream_of_a_thread_is_none_of_another";
    let Some(fakes) = Fakes::of(module_path!(), TEST) else { return };
    let context = fakes.context();
    let (pool, stream) = (DevicePool::new(&context), Stream::new(&context).unwrap());
    let target = pool.take(64).unwrap();
    let has_waited = |is_elsewhere: bool| {
        let tensor = Tensor::on_device(TensorDesc::new("t", DType::U8, &[64]), pool.take(64).unwrap());
        let consumer = Consumer::Stream(ptr::without_provenance_mut(PER_THREAD));
        // SAFETY: that stream is always there, and the tensor is deleted once.
        let managed = Imported(unsafe { super::export(&tensor, Box::new(()), consumer) });
        // SAFETY: so many bytes are there, and stay until the work is done.
        unsafe { stream.clear(target.address(), 64) }.unwrap();
        if is_elsewhere {
            thread::scope(|scope| scope.spawn(move || drop(managed)).join()).unwrap();
        } else {
            drop(managed);
        }
        let is_done = fakes.count(c"fake_pending") == 0;
        stream.synchronize().unwrap();
        is_done
    };
    assert!(!has_waited(false), "its fence is enough");
    assert!(has_waited(true), "the host waits for all work");
}

/// Also where the system gives its own number to a later one.
#[test]
fn no_two_threads_have_one_number() {
    let numbers: Vec<usize> = (0..4).map(|_| thread::spawn(this_thread).join().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]), "{numbers:?}");
    assert_eq!(this_thread(), this_thread());
}
