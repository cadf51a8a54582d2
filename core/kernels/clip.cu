// SPDX-License-Identifier: MPL-2.0
// clip: the tensors of several frames -> the tensor of a clip.
//   in   frames  their addresses, the oldest first; each has `chunks` chunks, one of each channel or one of all
//   out  clip    [chunks][frames] chunks: [C][T][H][W], or [T][C][H][W] and [T][H][W][C] where all channels are one chunk
//   grid y is the chunk, z the frame; the threads of all blocks of x stride over the units of a chunk
//   math none
//   reference implementation and launch src/image/clip/maker.rs, whose ClipParams mirrors the one here (2072 bytes)
#include "common.cuh"

inline constexpr uint32_t CLIP_THREADS = 256;
inline constexpr uint32_t CLIP_FRAMES = 256;

// As it is loaded and stored at once.
struct alignas(16) Sixteen {
    uint32_t words[4];
};

struct ClipParams {
    uint64_t frames[CLIP_FRAMES];
    uint64_t clip;
    uint64_t units; // of a chunk
    uint32_t count; // of the frames
    uint32_t unused;
};

static_assert(sizeof(ClipParams) == 2072, "mirrored in maker.rs");

template <typename Unit>
__device__ __forceinline__ void lay(const ClipParams& p) {
    const uint64_t chunk = blockIdx.y, frame = blockIdx.z;
    const Unit* from = reinterpret_cast<const Unit*>(p.frames[frame]) + chunk * p.units;
    Unit* to = reinterpret_cast<Unit*>(p.clip) + (chunk * p.count + frame) * p.units;
    const uint64_t threads = static_cast<uint64_t>(gridDim.x) * CLIP_THREADS;
    for (uint64_t at = static_cast<uint64_t>(blockIdx.x) * CLIP_THREADS + threadIdx.x; at < p.units; at += threads) to[at] = from[at];
}

extern "C" __global__ __launch_bounds__(CLIP_THREADS) void clip_16(const __grid_constant__ ClipParams p) { lay<Sixteen>(p); }
// Of chunks that do not begin at multiples of 16.
extern "C" __global__ __launch_bounds__(CLIP_THREADS) void clip_4(const __grid_constant__ ClipParams p) { lay<uint32_t>(p); }
extern "C" __global__ __launch_bounds__(CLIP_THREADS) void clip_1(const __grid_constant__ ClipParams p) { lay<uint8_t>(p); }
