// SPDX-License-Identifier: MPL-2.0
//! How much an engine may differ from the model in 32-bit floats on the CPU.

/// What is allowed at a precision.
#[derive(Debug, PartialEq)]
pub struct Tolerance {
    /// The precision, in messages.
    pub precision: &'static str,
    /// `Difference::relative` of each output.
    pub outputs: f32,
    /// The same of one picture's outputs from run to run, whatever place the picture has in whatever batch.
    pub runs: f32,
    /// The part of the results that must be found again.
    pub results: f32,
    /// A result is found again where a box of its class overlaps it so much (intersection over union), ...
    pub overlap: f32,
    /// ... and its score differs by no more than this part of it, or of [`Tolerance::SMALL_SCORE`].
    pub score: f32,
}

impl Tolerance {
    /// Scores below are compared as if they were this.
    pub const SMALL_SCORE: f32 = 0.05;

    /// Of 32-bit floats, whose products may have the 10 bits of TF32.
    pub const SINGLE: Self =
        Tolerance { precision: "fp32", outputs: 0.02, runs: 0.005, results: 0.98, overlap: 0.9, score: 0.05 };
    /// Of 16-bit floats.
    pub const HALF: Self =
        Tolerance { precision: "fp16", outputs: 0.05, runs: 0.02, results: 0.95, overlap: 0.8, score: 0.15 };
    /// Of those with 8 bits: as far from the model as the others may be.
    pub const BFLOAT: Self = Tolerance { precision: "bf16", ..Self::HALF };
    /// Of 8-bit integers.
    pub const EIGHT: Self =
        Tolerance { precision: "int8", outputs: 0.3, runs: 0.05, results: 0.75, overlap: 0.6, score: 0.4 };

    /// The same for one engine against itself.
    pub(super) fn of_runs(&self) -> Self {
        Tolerance { outputs: self.runs, results: 1.0 - (1.0 - self.results) / 2.0, ..*self }
    }
}
