// SPDX-License-Identifier: MPL-2.0
// overlay_*: outlines and tags of all boxes on a frame, as in paint.cuh. src/image/overlay/kernel.rs launches it.
#include "paint.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) overlay_nv12(const __grid_constant__ Parameters p) { overlay<Nv12, 0>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) overlay_p010(const __grid_constant__ Parameters p) { overlay<P010, 0>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) overlay_i420(const __grid_constant__ Parameters p) { overlay<I420, 0>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) overlay_packed1(const __grid_constant__ Parameters p) { overlay<Packed<1>, 0>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) overlay_packed3(const __grid_constant__ Parameters p) { overlay<Packed<3>, 0>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) overlay_packed4(const __grid_constant__ Parameters p) { overlay<Packed<4>, 0>(p); }
