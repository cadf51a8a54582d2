// SPDX-License-Identifier: MPL-2.0
// regions: rectangles of one frame -> tensors, all in one launch: slices, or crops of objects.
//   in    planes of a frame, as for preprocess
//   out   a tensor for each rectangle, as of preprocess
//   grid  as of preprocess for the rectangle with the most blocks, but a thread writes ROWS rows; blockIdx.z is the rectangle
//   math  equal to the reference implementation for each rectangle, bit by bit
//   launched by src/image/preprocess/region_kernel.rs, which mirrors Parameters
#include "positions.cuh"

inline constexpr uint32_t MAX_REGIONS = 64;
// Of a thread. More rows make large rectangles faster, and a few small ones slower.
inline constexpr uint32_t COLUMNS = 2, ROWS = 2;

struct Region {
    uint8_t *tensor;
    ViewPlacement placement;
    uint32_t together; // as of Frame
    uint32_t unused;
};

struct Parameters : Sampling {
    uint32_t strides[3];
    const uint8_t *planes[3];
    Region regions[MAX_REGIONS];
};

template <typename Sample, uint32_t FIRST, uint32_t OTHERS = 1, uint32_t PLANES = 0>
__device__ inline void preprocess_region(const Parameters &p) {
    const Region &region = p.regions[blockIdx.z];
    const Frame frame = {{p.planes[0], p.planes[1], p.planes[2]},
                         region.tensor,
                         {p.strides[0], p.strides[1], p.strides[2]},
                         region.together};
    preprocess_block<COLUMNS, ROWS, Sample, FIRST, OTHERS, PLANES, 0>(p, frame, region.placement);
}

extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) regions_nv12(const __grid_constant__ Parameters p) {
    preprocess_region<uint8_t, 1, 2, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) regions_p010(const __grid_constant__ Parameters p) {
    preprocess_region<uint16_t, 1, 2, 1>(p);
}
// I420, and NV12 and P010 whose pairs of samples are not aligned.
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) regions_planes8(const __grid_constant__ Parameters p) {
    preprocess_region<uint8_t, 1, 1, 2>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) regions_planes16(const __grid_constant__ Parameters p) {
    preprocess_region<uint16_t, 1, 1, 2>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) regions_rgb(const __grid_constant__ Parameters p) {
    preprocess_region<uint8_t, 3>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) regions_luma8(const __grid_constant__ Parameters p) {
    preprocess_region<uint8_t, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) regions_luma16(const __grid_constant__ Parameters p) {
    preprocess_region<uint16_t, 1>(p);
}
