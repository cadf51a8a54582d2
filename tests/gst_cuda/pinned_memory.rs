// SPDX-License-Identifier: MPL-2.0
//! Pinned memory, in which frames for the GPU are made.

use super::*;

/// Whether an address of the host is in page-locked memory, by the driver.
fn is_pinned(context: &Context, buffer: &gst::BufferRef) -> bool {
    use cudarc::driver::sys;
    let mapped = buffer.map_readable().unwrap();
    let mut kind = 0u32;
    // SAFETY: writes a number of that size.
    let ask = || unsafe {
        sys::cuPointerGetAttribute(
            (&raw mut kind).cast(),
            sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            mapped.as_ptr() as u64,
        )
    };
    let known = context.with(ask).unwrap();
    known == sys::CUresult::CUDA_SUCCESS && kind == sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32
}

#[test]
fn frames_for_the_gpu_are_made_in_pinned_memory() {
    if !gpu_or_skip() {
        return;
    }
    let context = CudaContextSlot::default().ensure(&lonely(), -1).unwrap();
    for name in ["NV12", "I420", "RGB"] {
        let line = |place: &str| {
            format!(
                "videotestsrc pattern=ball num-buffers=20 ! video/x-raw,format={name},width=322,height=242 ! trtpreprocess ! \
                 capsfilter caps=\"video/x-raw,tensor=(string)\\\"{place} f16 1x3x64x96 nchw rgb letterbox:114 scale:0.003921569 images\\\"\""
            )
        };
        let (gpu, cpu) = (Line::new(&line("cuda")), Line::new(&line("cpu")));
        for (i, (_, buffer)) in gpu.frames().enumerate() {
            let (_, expected) = cpu.frame().unwrap();
            assert!(is_pinned(&context, &buffer), "{name}: frame {i}");
            assert!(!is_pinned(&context, &expected));
            assert!(with_tensor(&buffer, |tensor| tensor.device().is_some()));
            assert!(tensor_bytes(&buffer) == tensor_bytes(&expected), "{name}: frame {i}");
        }
        assert!(cpu.frame().is_none());
    }
}

#[test]
fn frames_read_in_place_become_the_same_tensors() {
    if !gpu_or_skip() {
        return;
    }
    let line = |upload: &str, between: &str| {
        Line::new(&format!(
            "videotestsrc pattern=ball num-buffers=20 ! video/x-raw,format=NV12,width=322,height=242 {between} ! \
             trtpreprocess name=preprocess upload={upload} ! \
             capsfilter caps=\"video/x-raw,tensor=(string)\\\"cuda f16 1x3x64x96 nchw rgb letterbox:114 scale:0.003921569 images\\\"\""
        ))
    };
    let (copied, mapped, auto) = (line("copy", ""), line("mapped", ""), line("auto", ""));
    let uploaded = |line: &Line| {
        let stats = line.element("preprocess").property::<gst::Structure>("stats");
        stats.get::<u64>("bytes-uploaded").unwrap()
    };
    let mut at_first = None;
    for (i, (_, buffer)) in copied.frames().enumerate() {
        for other in [&mapped, &auto] {
            let (_, expected) = other.frame().unwrap();
            assert!(tensor_bytes(&buffer) == tensor_bytes(&expected), "frame {i}");
        }
        at_first.get_or_insert_with(|| uploaded(&mapped));
    }
    assert!(uploaded(&copied) > 20 * 322 * 242);
    let tables = (at_first.unwrap(), uploaded(&mapped));
    assert!(
        tables.0 < 322 * 242 && tables.0 == tables.1,
        "only the kernel's tables, and nothing of any frame: {tables:?}"
    );

    // Memory that the GPU does not see, unless it sees all of the host's.
    let line = line("mapped", "! identity drop-allocation=true");
    while line.out.pull_sample().is_ok() {}
    if let Some(message) = line.pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Error]) {
        let gst::MessageView::Error(error) = message.view() else { unreachable!("filtered") };
        let said = error.error().to_string();
        assert!(said.contains("cannot read the frame in place") && said.contains("upload=auto"), "{said}");
    }
}

#[test]
fn pinned_memory_is_proposed_only_instead_of_system_memory() {
    if !gpu_or_skip() {
        return;
    }
    let context = CudaContextSlot::default().ensure(&lonely(), -1).unwrap();
    let caps: gst::Caps = "video/x-raw,format=NV12,width=64,height=48,framerate=1/1".parse().unwrap();
    let proposed = |query: &gst::query::Allocation| {
        let allocator = query.allocation_params().next().and_then(|(allocator, _)| allocator);
        allocator.is_some_and(|allocator| allocator.is::<pinned::PinnedAllocator>())
    };
    let mut query = gst::query::Allocation::new(Some(&caps), true);
    pinned::propose(&context, &mut query);
    assert!(proposed(&query) && query.allocation_pools().count() == 1);

    // An encoder that only wants so many frames.
    let mut query = gst::query::Allocation::new(Some(&caps), true);
    query.add_allocation_pool(gst::BufferPool::NONE, 5000, 7, 0);
    query.add_allocation_param(gst::Allocator::NONE, gst::AllocationParams::new(gst::MemoryFlags::empty(), 31, 16, 64));
    pinned::propose(&context, &mut query);
    assert!(proposed(&query));
    let (pool, size, least, _) = query.allocation_pools().next().unwrap();
    assert_eq!((size, least), (5000, 7));
    let pool = pool.unwrap();
    pool.set_active(true).unwrap();
    let buffer = pool.acquire_buffer(None).unwrap();
    assert!(is_pinned(&context, &buffer));
    assert_eq!(buffer.map_readable().unwrap().as_ptr() as usize % 16, 0);
    drop(buffer);
    pool.set_active(false).unwrap();

    // Memory of another allocator.
    let mut query = gst::query::Allocation::new(Some(&caps), true);
    query.add_allocation_pool(Some(&gst::BufferPool::new()), 5000, 7, 0);
    pinned::propose(&context, &mut query);
    assert!(!proposed(&query));
    let mut cuda = caps.clone();
    cuda.make_mut().set_features_simple(Some(gst::CapsFeatures::new(["memory:CUDAMemory"])));
    let mut query = gst::query::Allocation::new(Some(&cuda), true);
    pinned::propose(&context, &mut query);
    assert!(!proposed(&query) && query.allocation_pools().count() == 0);
}
