// SPDX-License-Identifier: MPL-2.0
// preprocess of the luma of P010.
#include "preprocess.cuh"

PREPROCESS(luma16, 1, 1, 1, uint16_t, 1)
