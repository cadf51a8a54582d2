// SPDX-License-Identifier: MPL-2.0
//! What is hidden on the GPU against the reference implementation on the CPU, bit by bit.
//!
//! Needs a GPU; prints SKIP where there is none, and fails instead with `REQUIRE_GPU=1`.

use std::sync::Arc;

use gsttrt_core::cuda::driver::{Context, Stream};
use gsttrt_core::image::device::DevicePlane;
use gsttrt_core::image::frame::{Colorimetry, FrameMut, PixelFormat, PlaneMut};
use gsttrt_core::image::geometry::BBox;
use gsttrt_core::image::overlay::Target;
use gsttrt_core::image::privacy::kernel::PrivacyKernel;
use gsttrt_core::image::privacy::{self, Effect, HiddenArea, QuadMask};
use gsttrt_core::memory::DevicePool;

use crate::common::gpu;
use crate::common::random::Random;

/// Areas over and beyond a frame, small and large.
fn areas(random: &mut Random, count: usize, (width, height): (u32, u32)) -> Vec<HiddenArea> {
    let mut area = || {
        let mut along = |side: u32| {
            let from = random.between(-0.2, 1.0) * side as f32;
            (from, from + random.between(0.0, 1.0).powi(3) * side as f32 * 1.3)
        };
        let ((x1, x2), (y1, y2)) = (along(width), along(height));
        let effect = random.one_of(&[Effect::Blur, Effect::Pixelate]);
        HiddenArea::new(BBox::new(x1, y1, x2, y2), effect, (width, height))
    };
    (0..count).filter_map(|_| area()).collect()
}

/// Polygons of any corners, of which some are in the frame.
fn mask(random: &mut Random, (width, height): (u32, u32)) -> Option<Arc<QuadMask>> {
    let mut polygon = || -> Vec<[f32; 2]> {
        let corners = 3 + random.below(6);
        (0..corners).map(|_| [width, height].map(|side| random.between(-0.3, 1.3) * side as f32)).collect()
    };
    let polygons: Vec<_> = (0..2).map(|_| polygon()).collect();
    QuadMask::new(&polygons, (width, height)).ok().map(Arc::new)
}

fn compare(context: &Context, random: &mut Random, format: PixelFormat, size: (u32, u32), counts: &[usize]) {
    let (pool, stream) = (DevicePool::new(context), Stream::new(context).unwrap());
    let (width, height) = (size.0 as usize, size.1 as usize);
    let color = Colorimetry { full_range: random.below(2) == 0, ..Colorimetry::default() };
    let mut kernel = PrivacyKernel::new(context, Target { format, width: size.0, height: size.1, color }).unwrap();
    // One kernel for all, as in a stream whose frames have more and fewer objects.
    for &count in counts {
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        for (row, rows) in format.planes(width, height) {
            let stride = (row + 2 * random.below(9)).next_multiple_of(2);
            places.push((bytes.len(), stride));
            bytes.extend((0..stride * rows).map(|_| random.next() as u8));
        }
        let areas = areas(random, count, size);
        let mask = if random.below(3) == 0 { None } else { mask(random, size) };
        let mut wanted = bytes.clone();
        let (mut rest, mut planes) = (&mut wanted[..], smallvec::SmallVec::new());
        for (number, &(start, stride)) in places.iter().enumerate() {
            let end = places.get(number + 1).map_or(bytes.len(), |plane| plane.0);
            let (data, after) = rest.split_at_mut(end - start);
            rest = after;
            planes.push(PlaneMut { data, stride });
        }
        privacy::hide(&mut FrameMut { format, width, height, color, planes }, &areas, mask.as_deref());
        let mut block = pool.take(bytes.len()).unwrap();
        block.write(&bytes).unwrap();
        let plane = |&(start, stride): &(usize, usize)| DevicePlane { address: block.address() + start as u64, stride };
        let planes: Vec<DevicePlane> = places.iter().map(plane).collect();
        // SAFETY: the block has the picture, and lives until the work is done.
        unsafe { kernel.launch(&stream, &planes, &areas, mask.as_ref()) }.unwrap();
        stream.synchronize().unwrap();
        let have = block.read().unwrap();
        let differ = have.iter().zip(&wanted).filter(|(have, wanted)| have != wanted).count();
        let has_mask = mask.is_some();
        assert_eq!(differ, 0, "{} {width}x{height}, mask: {has_mask}, {areas:?}", format.name());
    }
}

#[test]
fn random_areas_are_hidden_alike() {
    let Some(context) = gpu::context() else { return };
    let mut random = Random(5);
    for format in PixelFormat::ALL {
        for size in [(1, 1), (2, 3), (33, 17), (64, 48), (130, 51), (257, 3), (321, 243)] {
            for _ in 0..6 {
                let count = random.below(9);
                compare(&context, &mut random, format, size, &[count / 2, count, 0]);
            }
        }
    }
}

#[test]
fn many_and_great_areas_are_hidden_alike() {
    let Some(context) = gpu::context() else { return };
    let mut random = Random(6);
    for (format, size, count) in [
        (PixelFormat::Nv12, (1920, 1080), 20),
        (PixelFormat::P010, (1279, 719), 100),
        (PixelFormat::I420, (641, 361), 700),
        (PixelFormat::Bgra, (320, 180), 300),
        (PixelFormat::P010, (8192, 4320), 5),
        (PixelFormat::Gray8, (32768, 40), 9),
    ] {
        compare(&context, &mut random, format, size, &[count, 1]);
    }
}
