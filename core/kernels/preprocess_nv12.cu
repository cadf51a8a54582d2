// SPDX-License-Identifier: MPL-2.0
// preprocess of NV12.
#include "preprocess.cuh"

PREPROCESS(nv12, 12, 8, 10, uint8_t, 1, 2, 1)
