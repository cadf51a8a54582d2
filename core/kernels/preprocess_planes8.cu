// SPDX-License-Identifier: MPL-2.0
// preprocess of I420, and NV12 whose pairs of samples are not aligned.
#include "preprocess.cuh"

PREPROCESS(planes8, 1, 5, 10, uint8_t, 1, 1, 2)
