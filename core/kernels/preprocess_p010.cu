// SPDX-License-Identifier: MPL-2.0
// preprocess of P010.
#include "preprocess.cuh"

PREPROCESS(p010, 12, 8, 10, uint16_t, 1, 2, 1)
