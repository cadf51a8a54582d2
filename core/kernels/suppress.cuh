// SPDX-License-Identifier: MPL-2.0
// What scan.cuh and lists.cuh share.
#pragma once

#include "iou.cuh"
#include "rank.cuh"

inline constexpr u32 STEP = 256;  // boxes of a step
inline constexpr u32 CANDIDATE_VECTORS = sizeof(Candidate) / sizeof(uint4);
