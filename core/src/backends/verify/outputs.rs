// SPDX-License-Identifier: MPL-2.0
//! How far a tensor is from another one.

use std::borrow::Cow;

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::tensor::{DType, Dims, Tensor};

/// Axes with more entries are pixels or rows, not kinds of numbers.
const MAX_CHANNELS: usize = 512;
/// Numbers of a kind that are less than this in the mean are nearly none: their differences are measured by this.
const FLOOR: f64 = 1e-5;

/// The difference of a tensor's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// The root of the mean square of the differences, as a part of that of the numbers themselves. Numbers of one kind are
    /// taken together, such as the scores of a class; this is that of the kind that differs most. Of integers, no more than the
    /// part of them that differs. Infinite where there are more or fewer numbers.
    pub relative: f32,
    /// How many numbers are not finite where the others are, or are finite where they are not.
    pub not_finite: usize,
}

impl Difference {
    pub fn between(found: &Tensor, wanted: &Tensor) -> Self {
        let (Some(numbers), Some(others)) = (numbers(found), numbers(wanted)) else { return Difference::default() };
        if numbers.len() != others.len() {
            return Difference { relative: f32::INFINITY, not_finite: 0 };
        }
        let (count, inner) = channels(&wanted.desc().dims);
        let mut sums = vec![(0.0f64, 0.0f64, 0usize); count];
        let mut not_finite = 0;
        for (index, (number, other)) in numbers.iter().zip(others.iter()).enumerate() {
            if !(number.is_finite() && other.is_finite()) {
                let is_same = number == other || number.is_nan() && other.is_nan();
                not_finite += usize::from(!is_same);
                continue;
            }
            let (differences, squares, numbers) = &mut sums[index / inner % count];
            *differences += (f64::from(*number) - f64::from(*other)).powi(2);
            *squares += f64::from(*other).powi(2);
            *numbers += 1;
        }
        let relative = |&(differences, squares, numbers): &(f64, f64, usize)| {
            let root = |sum: f64| (sum / numbers.max(1) as f64).sqrt();
            root(differences) / root(squares).max(FLOOR)
        };
        let relative = sums.iter().map(relative).fold(0.0, f64::max) as f32;
        if matches!(wanted.desc().dtype, DType::F32 | DType::F16) {
            return Difference { relative, not_finite };
        }
        // Of ids each is wholly another one, however near; of rounded numbers each may be the next one.
        let unlike = numbers.iter().zip(others.iter()).filter(|(number, other)| number != other).count();
        Difference { relative: relative.min(unlike as f32 / others.len().max(1) as f32), not_finite }
    }

    /// The larger one of both.
    pub fn or(self, other: Self) -> Self {
        Difference { relative: self.relative.max(other.relative), not_finite: self.not_finite.max(other.not_finite) }
    }
}

/// The number of kinds of numbers that a tensor has, and how many numbers lie side by side of each: along its shortest axis,
/// if that is one of attributes.
fn channels(dims: &Dims) -> (usize, usize) {
    let axes = dims.iter().enumerate().skip(1).filter(|(_, length)| **length > 1);
    let wide = axes.clone().count();
    let shortest =
        axes.min_by_key(|(_, length)| **length).filter(|(_, length)| wide > 1 && **length <= MAX_CHANNELS as i64);
    match shortest {
        Some((axis, length)) => {
            (*length as usize, dims.iter().skip(axis + 1).map(|&length| length.max(1) as usize).product())
        }
        None => (1, 1),
    }
}

/// `None` of a tensor in GPU memory.
fn numbers(tensor: &Tensor) -> Option<Cow<'_, [f32]>> {
    if let Some(numbers) = tensor.as_slice::<f32>() {
        return Some(numbers.into());
    }
    if let Some(numbers) = tensor.as_slice::<f16>() {
        return Some(numbers.to_f32_vec().into());
    }
    if let Some(numbers) = tensor.as_slice::<i64>() {
        return Some(numbers.iter().map(|&number| number as f32).collect());
    }
    if let Some(numbers) = tensor.as_slice::<i32>() {
        return Some(numbers.iter().map(|&number| number as f32).collect());
    }
    // Of one byte each, or as bytes.
    tensor.bytes().map(|bytes| bytes.iter().map(|&byte| byte.into()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(change: impl Fn(usize, usize, f32) -> f32) -> Tensor {
        let number = |row: usize, column: usize| [300.0, 0.5][column] + row as f32 * [1.0, 0.001][column];
        let numbers = (0..200).map(|index| change(index / 2, index % 2, number(index / 2, index % 2)));
        Tensor::from_slice("rows", &[1, 100, 2], &numbers.collect::<Vec<f32>>())
    }

    #[test]
    fn a_kind_of_small_numbers_counts_as_much_as_one_of_large_ones() {
        let wanted = rows(|_, _, number| number);
        let same = Difference::between(&wanted, &wanted);
        assert_eq!(same, Difference::default());
        let scores = rows(|_, column, number| if column == 1 { number * 1.2 } else { number });
        let found = Difference::between(&scores, &wanted);
        assert!((found.relative - 0.2).abs() < 1e-3, "{found:?}");
        let sides = rows(|_, column, number| if column == 0 { number * 0.9 } else { number });
        let found = Difference::between(&sides, &wanted);
        assert!((found.relative - 0.1).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn numbers_that_are_not_finite_are_counted_where_they_should_be() {
        let wanted = rows(|row, _, number| if row == 7 { f32::INFINITY } else { number });
        let found = rows(|row, column, number| match (row, column) {
            (7, 0) | (9, 0) => f32::NAN,
            (10, 1) => f32::INFINITY,
            _ => number,
        });
        let four = Difference { relative: 0.0, not_finite: 4 };
        assert_eq!(Difference::between(&found, &wanted), four, "one is not even the same infinity");
        assert_eq!(Difference::between(&wanted, &found), four, "the same the other way round");
        assert_eq!(Difference::between(&found, &found), Difference::default());
    }

    #[test]
    fn other_dimensions_and_other_integers_are_wrong() {
        let [two, three] = [2, 3].map(|count| Tensor::from_slice("t", &[1, count], &vec![0.0f32; count as usize]));
        assert_eq!(Difference::between(&two, &three).relative, f32::INFINITY);
        let ids = |change: i64| Tensor::from_slice("t", &[1, 4], &[7, 900, 3 + change, 40]);
        let of = |found: &Tensor, wanted: &Tensor| Difference::between(found, wanted).relative;
        assert_eq!([of(&ids(0), &ids(0)), of(&ids(5000), &ids(0))], [0.0, 0.25], "one of four ids");
        let rounded = |by: u8| Tensor::from_slice("t", &[1, 3], &[200 + by, 100 + by, 50 + by]);
        assert!(of(&rounded(1), &rounded(0)) < 0.01);
    }

    #[test]
    fn attributes_are_the_shortest_axis() {
        let of = |dims: &[i64]| channels(&Dims(dims.into()));
        assert_eq!(of(&[1, 84, 8400]), (84, 8400));
        assert_eq!(of(&[1, 8400, 7]), (7, 1));
        assert_eq!(of(&[1, 32, 160, 160]), (32, 160 * 160));
        assert_eq!([of(&[1, 1000]), of(&[1, 1, 518, 518 * 2]), of(&[])], [(1, 1); 3]);
    }
}
