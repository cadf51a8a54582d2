// SPDX-License-Identifier: MPL-2.0
//! Clips: several frames of a stream, or several pictures of an object, as one tensor, for models that see what moves.
//!
//! Each frame is preprocessed once. Its tensor stays in a [`ring`] as long as a clip needs it, or in that of an object ([`tracks`]),
//! and a [`maker`] puts those of a clip together once a model is to see it.

pub mod maker;
pub mod ring;
pub mod tracks;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use half::f16;

use crate::error::{Error, ErrorKind, Result};
use crate::image::transform::{InputSpec, MAX_PIXELS};
use crate::tensor::{DType, Dims, Tensor, TensorDesc, Tensors};
use maker::ClipMaker;

/// Maximum frames of a clip, as in `kernels/clip.cu`.
pub const MAX_FRAMES: usize = 256;

/// Frames of a clip where neither the model nor the user says how many there are, as most models of actions have them.
pub const USUAL_FRAMES: usize = 16;

/// How many frames a clip has: as many as the model wants, or as the user says where it leaves that open.
///
/// # Errors
/// `Settings`, where the user says another number than the model, or a clip of so many is too long or too large. `spec` is what the
/// model wants.
pub fn frames_of(wanted: i64, frames: u32, spec: &InputSpec) -> Result<i64> {
    let frames = match (wanted, i64::from(frames)) {
        (Dims::DYNAMIC, 0) => USUAL_FRAMES as i64,
        (Dims::DYNAMIC, frames) => frames,
        (wanted, 0) => wanted,
        (wanted, frames) if wanted == frames => wanted,
        (wanted, frames) => {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("frames={frames}, and the model takes clips of {wanted} frames"),
            )
            .cause(format!("its input is {}", spec.desc))
            .remedy(format!(
                "Leave frames unset, or set frames={wanted}; or export the model with that number of frames"
            )));
        }
    };
    let (_, height, width) = spec.chw();
    let count = u64::try_from(frames).ok().filter(|count| (1..=MAX_FRAMES as u64).contains(count));
    if count.is_some_and(|count| count.saturating_mul(height as u64).saturating_mul(width as u64) <= MAX_PIXELS) {
        return Ok(frames);
    }
    Err(Error::new(ErrorKind::Settings, format!("Cannot make clips of {frames} frames of {width}x{height}"))
        .cause(format!("a clip has from 1 to {MAX_FRAMES} frames, and no more than {MAX_PIXELS} pixels in all of them"))
        .remedy("Set frames lower, or export the model for shorter clips or smaller frames"))
}

/// The tensor of a vector, as a step of a sequence: of such a description, whose numbers are f32 or f16.
///
/// # Errors
/// `WrongType`, where it has another number of them, or another type; as [`Tensor::fill`].
pub fn vector_tensor(vector: &[f32], desc: &TensorDesc) -> Result<Tensor> {
    let wanted: i64 = desc.dims.iter().product();
    if i64::try_from(vector.len()) != Ok(wanted) || !matches!(desc.dtype, DType::F32 | DType::F16) {
        let what = format!("A vector of {} numbers is not {desc}", vector.len());
        return Err(Error::new(ErrorKind::WrongType, what)
            .remedy("Use the model whose vectors the second one was trained with"));
    }
    let (name, dims) = (&desc.name, &desc.dims);
    Ok(match desc.dtype {
        DType::F16 => {
            Tensor::from_slice(name, dims, &vector.iter().map(|&value| f16::from_f32(value)).collect::<Vec<_>>())
        }
        _ => Tensor::from_slice(name, dims, vector),
    })
}

/// What is said where an option for clips is set, and the model takes one picture.
pub fn no_clips(option: &str, value: impl fmt::Display, spec: &InputSpec) -> Error {
    Error::new(ErrorKind::Settings, format!("{option}={value} is for models that see several frames at once"))
        .cause(format!("the input of this one is {}, which is one picture", spec.desc))
        .remedy(format!(
            "Leave {option} unset, or use a model whose input has 5 dimensions, such as 1x3x16x224x224 or 1x16x3x224x224"
        ))
}

/// The frames of a clip, whose tensor is made the first time that it is asked for: of most clips nobody asks, since a model
/// sees one each so many frames.
pub struct Clip {
    /// The oldest first.
    frames: Box<[Arc<Tensors>]>,
    maker: Arc<Mutex<ClipMaker>>,
    made: OnceLock<Arc<Tensors>>,
}

impl Clip {
    /// Of tensors of the kind and number that `maker` is for, the oldest first.
    pub fn new(frames: impl IntoIterator<Item = Arc<Tensors>>, maker: &Arc<Mutex<ClipMaker>>) -> Self {
        Clip { frames: frames.into_iter().collect(), maker: maker.clone(), made: OnceLock::new() }
    }

    /// Its tensor. On a GPU it may be ready later.
    ///
    /// # Errors
    /// As [`ClipMaker::make`].
    pub fn tensors(&self) -> Result<&Arc<Tensors>> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let maker = self.maker.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have made it meanwhile, as of a branch behind a tee.
        if self.made.get().is_none() {
            let made = Arc::new(maker.make(&self.frames)?);
            let _ = self.made.set(made); // the maker is locked, so it is the first one
        }
        Ok(self.made.get().expect("just made"))
    }
}

impl fmt::Debug for Clip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clip({} frames)", self.frames.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_become_steps_of_a_sequence() {
        let spec: InputSpec = "cpu f16 1x2x3 ntd rgb stretch:0 scale:1 steps".parse().unwrap();
        let desc = spec.of_frame().desc;
        let steps = [[0.5, -0.25, 1.0], [0.0, 2.0, -4.0]]
            .map(|vector| Arc::new(Tensors::new(vec![vector_tensor(&vector, &desc).unwrap()], None, None)));
        let sequence = ClipMaker::new(None, &spec).unwrap().make(&steps).unwrap();
        assert_eq!(sequence[0].desc(), &spec.desc);
        let values: Vec<f32> = sequence[0].as_slice::<f16>().unwrap().iter().map(|value| value.to_f32()).collect();
        assert_eq!(values, [0.5, -0.25, 1.0, 0.0, 2.0, -4.0]);
        let said = vector_tensor(&[1.0; 4], &desc).unwrap_err().message();
        assert!(said.contains("A vector of 4 numbers is not steps f16 1x3"), "{said}");
        let bytes = TensorDesc { dtype: DType::U8, ..desc };
        assert!(vector_tensor(&[1.0; 3], &bytes).is_err());
    }

    #[test]
    fn clips_that_are_too_long_or_too_large_are_refused() {
        let frames = |dims: &str, frames: u32| {
            let text = format!("cpu f32 {dims} ncthw rgb stretch:0 scale:1 clip");
            let spec: InputSpec = text.parse().unwrap();
            frames_of(spec.frames().unwrap(), frames, &spec).map_err(|error| error.message())
        };
        assert_eq!([frames("1x3x?x64x64", 0), frames("1x3x?x64x64", 256)], [Ok(16), Ok(256)]);
        assert_eq!([frames("1x3x8x64x64", 0), frames("1x3x8x64x64", 8)], [Ok(8), Ok(8)]);
        assert_eq!(frames("1x3x?x1024x1024", 32), Ok(32));
        for (dims, given, what) in [
            ("1x3x?x1024x1024", 33, "33 frames of 1024x1024"),
            ("1x3x300x8x8", 0, "300 frames of 8x8"),
            ("1x3x99999999999x8x8", 0, "99999999999 frames of 8x8"),
            ("1x3x0x8x8", 0, "0 frames of 8x8"),
        ] {
            let said = frames(dims, given).unwrap_err();
            assert!(said.starts_with(&format!("Cannot make clips of {what}")), "{said}");
        }
    }
}
