// SPDX-License-Identifier: MPL-2.0
// clip: the tensors of several frames -> the tensor of a clip.
//   in   frames  their addresses, the oldest first; each has chunks, one of each channel or one of all
//   out  clip    of each chunk that of each frame: [C][T][H][W]; or [T][C][H][W] and [T][H][W][C], where all channels are one chunk
//   grid y is the chunk of a frame, in the order of the clip; the threads of all blocks of it stride over its units
//   math none
//   reference implementation and launch src/image/clip/maker.rs, whose ClipParams mirrors the one here (2064 bytes)
#include "common.cuh"

inline constexpr uint32_t CLIP_THREADS = 256;
inline constexpr uint32_t CLIP_FRAMES = 256;

// Loaded and stored at once.
struct alignas(16) Sixteen {
    uint32_t words[4];
};

struct ClipParams {
    uint64_t frames[CLIP_FRAMES];
    uint64_t clip;
    uint32_t units;  // of a chunk
    uint32_t count;  // of the frames
};

static_assert(sizeof(ClipParams) == 2064, "mirrored in maker.rs");

template <typename Unit>
__device__ __forceinline__ void lay(const ClipParams& p) {
    const uint32_t part = blockIdx.y, chunk = part / p.count, frame = part % p.count;
    const Unit* from = reinterpret_cast<const Unit*>(p.frames[frame]) + static_cast<uint64_t>(chunk) * p.units;
    Unit* to = reinterpret_cast<Unit*>(p.clip) + static_cast<uint64_t>(part) * p.units;
    const uint32_t first = blockIdx.x * CLIP_THREADS + threadIdx.x, step = gridDim.x * CLIP_THREADS;
    for (uint32_t at = first; at < p.units; at += step) to[at] = from[at];
}

extern "C" __global__ __launch_bounds__(CLIP_THREADS) void clip_16(ClipParams p) { lay<Sixteen>(p); }
// Of chunks whose bytes are no multiple of 16.
extern "C" __global__ __launch_bounds__(CLIP_THREADS) void clip_4(ClipParams p) { lay<uint32_t>(p); }
extern "C" __global__ __launch_bounds__(CLIP_THREADS) void clip_1(ClipParams p) { lay<uint8_t>(p); }
