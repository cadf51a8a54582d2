// SPDX-License-Identifier: MPL-2.0
//! Pictures in GPU memory.

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind, Result};
use crate::image::frame::PixelFormat;

/// A plane of a picture in device memory: its address, and bytes from one row to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevicePlane {
    pub address: u64,
    pub stride: usize,
}

/// The planes of a picture in device memory.
pub type DevicePlanes = SmallVec<[DevicePlane; 3]>;

/// Checks that planes can be those of such a picture, as far as addresses and strides show.
pub(crate) fn check_planes(planes: &[DevicePlane], format: PixelFormat, width: usize, height: usize) -> Result<()> {
    let wrong =
        |cause: String| Err(Error::new(ErrorKind::WrongType, "Cannot use the frame in GPU memory").cause(cause));
    let wanted = format.planes(width, height);
    if planes.len() != wanted.len() {
        return wrong(format!("it has {} planes, not {}", planes.len(), wanted.len()));
    }
    for (i, (plane, (row, _))) in planes.iter().zip(wanted).enumerate() {
        if plane.stride < row || u32::try_from(plane.stride).is_err() {
            return wrong(format!("rows of plane {i} have {row} bytes, and the next begins after {}", plane.stride));
        }
        if format == PixelFormat::P010 && (plane.address % 2 != 0 || plane.stride % 2 != 0) {
            return wrong(format!("plane {i} has words at odd addresses"));
        }
    }
    Ok(())
}
