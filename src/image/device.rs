//! One typed launch per kernel. Each has its Rust twin in [`vision`](crate::vision), to which it is equal in every bit.
//!
//! A kernel takes one structure by value, mirrored here field by field. The sources are in `kernels/`; `kernels/build.sh`
//! compiles them to the PTX that is embedded here.

pub mod overlay;
pub mod preprocess;

use std::ffi::CStr;

use smallvec::SmallVec;

use crate::core::error::{Error, ErrorKind, Result};
use crate::image::frame::PixelFormat;

/// PTX as the driver takes it: text that ends with NUL.
const fn text(ptx: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(ptx.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("PTX has no NUL but its last"),
    }
}

pub(crate) static DECODE: &CStr = text(concat!(include_str!("../../../kernels/ptx/decode.ptx"), "\0"));
pub(crate) static NMS: &CStr = text(concat!(include_str!("../../../kernels/ptx/nms.ptx"), "\0"));
pub(crate) static GATHER: &CStr = text(concat!(include_str!("../../../kernels/ptx/gather.ptx"), "\0"));
static OVERLAY: &CStr = text(concat!(include_str!("../../../kernels/ptx/overlay.ptx"), "\0"));
static PLAN: &CStr = text(concat!(include_str!("../../../kernels/ptx/plan.ptx"), "\0"));
static PREPROCESS: &CStr = text(concat!(include_str!("../../../kernels/ptx/preprocess.ptx"), "\0"));

/// A plane of a picture in device memory: its address, and bytes from one row to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevicePlane {
    pub address: u64,
    pub stride: usize,
}

/// The planes of a picture in device memory.
pub type DevicePlanes = SmallVec<[DevicePlane; 3]>;

/// Whether planes can be those of such a picture, as far as can be told from here.
fn check_planes(planes: &[DevicePlane], format: PixelFormat, width: usize, height: usize) -> Result<()> {
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
