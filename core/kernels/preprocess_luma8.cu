// SPDX-License-Identifier: MPL-2.0
// preprocess of GRAY8, and of the luma of NV12 and I420.
#include "preprocess.cuh"

PREPROCESS(luma8, 1, 1, 1, uint8_t, 1)
