// SPDX-License-Identifier: MPL-2.0
//! Motion on the GPU against the reference implementation on the CPU: the same cells change in each frame.
//!
//! Needs a GPU; prints SKIP where there is none, and fails instead with `REQUIRE_GPU=1`.

use gsttrt_core::cuda::driver::Stream;
use gsttrt_core::image::device::DevicePlane;
use gsttrt_core::image::frame::{Frame, PixelFormat, Plane};
use gsttrt_core::image::motion::{HostMotion, MotionKernel};
use gsttrt_core::memory::DevicePool;

use crate::common::gpu;
use crate::common::random::Random;

#[test]
fn the_same_cells_change_on_both() {
    let Some(context) = gpu::context() else { return };
    let (pool, stream) = (DevicePool::new(&context), Stream::new(&context).unwrap());
    let mut random = Random(8);
    for format in PixelFormat::ALL {
        for size in [(1, 1), (7, 9), (64, 48), (129, 65), (641, 361), (1920, 1080), (32768, 5)] {
            let (mut host, mut kernel) = (HostMotion::new(size), MotionKernel::new(&context, format, size).unwrap());
            let threshold = random.one_of(&[1, 5, 12, 255]);
            let (mut bytes, mut places) = (Vec::new(), Vec::new());
            for (row, rows) in format.planes(size.0, size.1) {
                let stride = (row + 2 * random.below(9)).next_multiple_of(2);
                places.push((bytes.len(), stride, rows));
                bytes.extend((0..stride * rows).map(|_| random.next() as u8));
            }
            for number in 0..6 {
                // A part of the picture changes, by much or little.
                let from = random.below(bytes.len());
                let to = from + random.below(bytes.len() - from);
                let by = random.one_of(&[1u8, 9, 100]);
                bytes[from..to].iter_mut().for_each(|byte| *byte = byte.wrapping_add(by));
                let plane = |&(start, stride, rows): &(usize, usize, usize)| Plane {
                    data: &bytes[start..][..stride * rows],
                    stride,
                };
                let planes = places.iter().map(plane).collect();
                let wanted = host.changed(&Frame { format, width: size.0, height: size.1, planes }, threshold);
                let mut block = pool.take(bytes.len()).unwrap();
                block.write(&bytes).unwrap();
                let plane = |&(start, stride, _): &(usize, usize, usize)| DevicePlane {
                    address: block.address() + start as u64,
                    stride,
                };
                let planes: Vec<DevicePlane> = places.iter().map(plane).collect();
                // SAFETY: the block has the picture, and stays.
                let have = unsafe { kernel.changed(&stream, &planes, threshold) }.unwrap();
                assert_eq!(have, wanted, "{} {size:?}, frame {number}", format.name());
                assert_eq!(wanted.is_none(), number == 0);
            }
        }
    }
}
