// SPDX-License-Identifier: MPL-2.0
// preprocess of RGB and its relatives.
#include "preprocess.cuh"

PREPROCESS(rgb, 1, 5, 8, uint8_t, 3)
