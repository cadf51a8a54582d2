// SPDX-License-Identifier: MPL-2.0
//! As `nanodet`, but from the corner of a cell, on strides 8, 16, 32, 64, as nanodet/model/head/nanodet_plus_head.py reads them.

use super::{BoxEncoding, Column, HeadFormat, ROWS_OF_COLUMNS, floats, nanodet};

pub static HEAD: HeadFormat = HeadFormat {
    name: "nanodet-plus",
    about: "NanoDet-Plus",
    outputs: &[floats("", ROWS_OF_COLUMNS, &[Column::Classes, Column::Box(BoxEncoding::CornerDistances)])],
    likely: |candidate| nanodet::likely(candidate, &[8, 16, 32, 64]),
    #[cfg(test)]
    gold: |make| nanodet::gold(make, 6, [0.5, 0.5, 1.0, 1.0], [12.0, 4.0, 24.0, 16.0]),
    ..nanodet::HEAD
};
