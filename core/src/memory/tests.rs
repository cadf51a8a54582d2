// SPDX-License-Identifier: MPL-2.0
use std::sync::Mutex;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::cuda::driver::Stream;
use crate::test::gpu;

// ------------------------------------------------------------------------------------------- buffers

#[test]
fn host_memory_is_zeroed_aligned_and_typed() {
    let mut buffer = Buffer::host(24);
    assert_eq!((buffer.kind(), buffer.bytes(), buffer.address()), (MemoryKind::Host, 24, None));
    assert!(buffer.context().is_none());
    assert_eq!(buffer.as_bytes().unwrap(), [0; 24]);
    assert!((buffer.as_bytes().unwrap().as_ptr() as usize).is_multiple_of(64));
    buffer.as_mut_slice::<i64>().unwrap().copy_from_slice(&[1, 2, 3]);
    assert_eq!(buffer.as_slice::<i32>().unwrap(), [1, 0, 2, 0, 3, 0]);
    let error = Buffer::host(7).as_slice::<f32>().unwrap_err();
    assert_eq!(
        (error.kind(), error.message().as_str()),
        (ErrorKind::WrongType, "7 bytes are no whole number of f32 elements.")
    );
    assert!(Buffer::host(0).as_slice::<f32>().unwrap().is_empty());
}

#[test]
fn ranges_and_sizes_are_checked() {
    let mut buffer = Buffer::host(8);
    buffer.write(6, &[1, 2]).unwrap();
    for (at, count) in [(7, 2), (9, 0), (usize::MAX, 1), (0, 9)] {
        let mut bytes = vec![0; count];
        for error in [buffer.write(at, &bytes.clone()), buffer.read(at, &mut bytes)].map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::WrongType);
            assert!(error.message().contains(&format!("{count} bytes from {at} on, of 8")), "{error}");
        }
    }
    let error = buffer.copy_from(&Buffer::host(9)).unwrap_err();
    assert!(error.message().contains("9 bytes to 8"), "{error}");
    assert_eq!(buffer.as_bytes().unwrap(), [0, 0, 0, 0, 0, 0, 1, 2], "nothing was written");
}

#[test]
fn without_a_gpu_the_fallback_to_host_memory_is_reported_once() {
    let reported = AtomicBool::new(false);
    let (mut buffer, why) = Buffer::on_device_or_host(None, 3, &reported);
    let why = why.unwrap();
    assert_eq!(why.message(), "Using host memory in place of the GPU's: there is no CUDA context.");
    buffer.write(0, &[1, 2, 3]).unwrap();
    let (again, why) = Buffer::on_device_or_host(None, 3, &reported);
    assert_eq!((again.kind(), why.is_none()), (MemoryKind::Host, true));
}

#[test]
fn bytes_go_from_every_kind_to_every_other() {
    let Some(context) = gpu() else { return };
    let bytes: Vec<u8> = (0..1001).map(|i| (i * 7) as u8).collect();
    let new = |kind| match Buffer::new(kind, Some(&context), bytes.len()) {
        Err(error) if kind == MemoryKind::Unified => {
            crate::test::skip(&error);
            None
        }
        buffer => Some(buffer.unwrap()),
    };
    for from in MemoryKind::ALL {
        for to in MemoryKind::ALL {
            let (Some(mut from), Some(mut to)) = (new(from), new(to)) else { continue };
            from.write(0, &bytes).unwrap();
            to.copy_from(&from).unwrap();
            let mut found = vec![0; bytes.len()];
            to.read(0, &mut found).unwrap();
            assert!(found == bytes, "{from:?} to {to:?}");
            let mut part = [0; 3];
            to.read(500, &mut part).unwrap();
            assert_eq!(part, bytes[500..503]);
        }
    }
}

#[test]
fn the_host_cannot_read_device_memory_nor_the_gpu_all_host_memory() {
    let Some(context) = gpu() else { return };
    let mut device = Buffer::device(&context, 16).unwrap();
    assert!(device.as_bytes().is_none() && device.as_mut_bytes().is_none());
    assert!(device.as_slice::<f32>().unwrap_err().message().contains("does not see"));
    let addresses = |kind| Buffer::new(kind, Some(&context), 16).unwrap().address().is_some();
    assert_eq!([MemoryKind::Pinned, MemoryKind::Mapped, MemoryKind::Device].map(addresses), [false, true, true]);
    let (buffer, why) = Buffer::try_device(Some(&context), 16);
    assert_eq!((buffer.kind(), why.is_none()), (MemoryKind::Device, true));
}

#[test]
fn device_memory_replaces_unified_memory() {
    let Some(context) = gpu() else { return };
    let is_there = Buffer::unified(&context, 16).is_ok();
    let (buffer, why) = Buffer::try_unified(&context, 16).unwrap();
    assert_eq!(buffer.kind(), if is_there { MemoryKind::Unified } else { MemoryKind::Device });
    assert_eq!(why.is_none(), is_there);
}

#[test]
fn a_fallback_is_reported_once() {
    let reported = AtomicBool::new(false);
    let want = |there: Result<&'static str>| or_else(there, "Using the other", &reported, || "the other");
    assert!(matches!(want(Ok("it")), ("it", None)));
    let missing = || Err(Error::new(ErrorKind::Library, "there is none"));
    let ("the other", Some(why)) = want(missing()) else { panic!("it is reported") };
    assert_eq!(why.message(), "Using the other: there is none.");
    assert!(matches!(want(missing()), ("the other", None)));
}

#[test]
fn an_allocation_that_is_too_large_falls_back() {
    let Some(context) = gpu() else { return };
    let (_, all) = context.memory().unwrap();
    assert!(Buffer::device(&context, all * 2).unwrap_err().message().contains("GPU memory"));
    assert!(Pool::new(MemoryKind::Device, &context, Limits::NONE).take(all * 2).is_err());
}

#[test]
fn buffers_of_two_gpus_are_copied_to_each_other() {
    let Some(one) = gpu() else { return };
    let Ok(other) = Context::primary(1) else {
        println!("There is one GPU; copies between two were not tried.");
        return;
    };
    let (mut from, mut to) = (Buffer::device(&one, 64).unwrap(), Buffer::device(&other, 64).unwrap());
    from.write(0, &[7; 64]).unwrap();
    to.copy_from(&from).unwrap();
    let mut found = [0; 64];
    to.read(0, &mut found).unwrap();
    assert_eq!(found, [7; 64]);
}

// ------------------------------------------------------------------------------------------- pools

fn address(lease: &PooledBuffer) -> usize {
    lease.as_bytes().unwrap().as_ptr() as usize
}

#[test]
fn buffers_come_back() {
    let pool = Pool::default();
    let first = address(&pool.take(1000).unwrap());
    let again = pool.take(990).unwrap();
    assert_eq!((address(&again), again.bytes()), (first, 990), "the same memory for nearly the same size");
    let other = pool.take(1000).unwrap();
    assert_ne!(address(&other), first);
    assert_eq!(
        pool.stats(),
        PoolStats { hits: 1, misses: 2, in_use: 2, in_use_bytes: 2048, idle_bytes: 0, peak_bytes: 2048 }
    );
    drop((again, other));
    assert_eq!((pool.stats().in_use, pool.stats().idle_bytes), (0, 2048));
    let clone = pool.clone();
    clone.clear();
    assert_eq!(pool.stats().idle_bytes, 0);
    let lease = pool.take(1000).unwrap();
    drop((pool, clone));
    drop(lease); // a buffer may outlive its pool
}

#[test]
fn what_a_burst_has_left_is_freed_one_by_one() {
    let pool = Pool::default();
    drop((0..10).map(|_| pool.take(1000).unwrap()).collect::<Vec<_>>());
    drop(pool.take(5000).unwrap());
    let idle = |pool: &Pool| pool.stats().idle_bytes;
    assert_eq!(idle(&pool), 10 * 1024 + pool::class(5000));
    let mut seen = vec![idle(&pool)];
    for _ in 0..20_000 {
        drop((pool.take(1000).unwrap(), pool.take(1000).unwrap()));
        seen.push(idle(&pool));
    }
    assert_eq!(idle(&pool), 2 * 1024, "those that are used stay");
    assert_eq!(pool.stats().misses, 11);
    seen.dedup();
    assert_eq!(seen.len(), 10, "one at a time: {seen:?}");
}

#[test]
fn large_buffers_of_a_burst_are_freed_sooner() {
    let pool = Pool::default();
    let large = 64 << 20;
    drop((0..3).map(|_| pool.take(large).unwrap()).collect::<Vec<_>>());
    drop((0..3).map(|_| pool.take(1000).unwrap()).collect::<Vec<_>>());
    for _ in 0..2_000 {
        drop(pool.take(large).unwrap());
    }
    assert_eq!(pool.stats().idle_bytes, large + 3 * 1024, "the small ones stay");
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let pool = Pool::host(Limits::NONE);
    let error = pool.take(isize::MAX as usize).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Run);
    assert!(error.message().starts_with("Cannot allocate 8796093022208 MiB of memory: "), "{error}");
    assert_eq!(pool.stats().in_use_bytes, 0);
    pool.take(1).unwrap();
}

#[test]
fn limits_hold() {
    let pool = Pool::host(Limits { in_use: 4096, idle: 2048 });
    let leases: Vec<PooledBuffer> = (0..4).map(|_| pool.take(1024).unwrap()).collect();
    let error = pool.take(1).map(drop).unwrap_err();
    assert!(error.message().contains("host memory is exhausted: 4096 bytes are in use, of 4096"), "{error}");
    let last = address(&leases[3]);
    drop(leases); // in order
    assert_eq!(pool.stats(), PoolStats { misses: 4, idle_bytes: 2048, peak_bytes: 4096, ..PoolStats::default() });
    assert_eq!(address(&pool.take(1024).unwrap()), last, "the first ones were freed");
    assert!(pool.take(usize::MAX - 5).is_err());

    // Also for a buffer that is there already.
    let pool = Pool::host(Limits { in_use: 2048, idle: usize::MAX });
    drop([pool.take(1024).unwrap(), pool.take(1024).unwrap()]);
    let all = pool.take(2048).unwrap();
    assert!(pool.take(1024).is_err());
    drop(all);
    pool.take(1024).unwrap();

    let nothing = Pool::host(Limits::NO_REUSE);
    (0..3).for_each(|_| drop(nothing.take(10).unwrap()));
    assert_eq!((nothing.stats().hits, nothing.stats().idle_bytes), (0, 0));
    assert_eq!(nothing.stats().hit_rate(), 0.0);
}

#[test]
fn memory_without_a_gpu_is_refused() {
    for kind in MemoryKind::ALL.into_iter().filter(|&kind| kind != MemoryKind::Host) {
        let error = Buffer::new(kind, None, 10).unwrap_err();
        assert!(error.message().contains(&format!("no {kind} memory without a CUDA context")), "{error}");
    }
}

#[test]
fn threads_never_get_the_same_buffer() {
    let (pool, held) = (Pool::default(), Mutex::new(std::collections::BTreeSet::new()));
    thread::scope(|scope| {
        for i in 0..4usize {
            let (pool, held) = (&pool, &held);
            scope.spawn(move || {
                for j in 0..500 {
                    let lease = pool.take(100 + (i * j) % 3 * 1000).unwrap();
                    assert!(held.lock().unwrap().insert(address(&lease)));
                    held.lock().unwrap().remove(&address(&lease));
                }
            });
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.hits + stats.misses, stats.in_use), (2000, 0));
    assert!(stats.hit_rate() > 0.9, "{stats:?}");
}

#[test]
fn a_buffer_waits_for_the_work_that_uses_it() {
    let Some(context) = gpu() else { return };
    let (pool, stream) = (Pool::new(MemoryKind::Device, &context, Limits::NONE), Stream::new(&context).unwrap());
    let mut lease = pool.take(1 << 20).unwrap();
    let first = lease.address();
    lease.release_after(stream.record().unwrap());
    drop(lease);
    stream.synchronize().unwrap();
    assert_eq!(pool.take(1 << 20).unwrap().address(), first, "it is passed");
}

proptest! {
    #[test]
    fn classes_waste_no_more_than_an_eighth(bytes in 1usize..1 << 40) {
        let class = pool::class(bytes);
        prop_assert!(class >= bytes && class.is_multiple_of(256));
        prop_assert!(class - bytes <= (bytes / 8).max(256), "{class}");
        prop_assert_eq!(pool::class(class), class);
    }
}
