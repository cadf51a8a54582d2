// SPDX-License-Identifier: MPL-2.0
// preprocess of P010 whose pairs of samples are not aligned.
#include "preprocess.cuh"

PREPROCESS(planes16, 1, 5, 10, uint16_t, 1, 1, 2)
