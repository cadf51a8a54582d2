// SPDX-License-Identifier: MPL-2.0
//! Vectors: their length, their products, and as text.
//!
//! Products are added in one order everywhere: that of element `i` to sum `i % 16`, and the 16 sums by halves, each operation in
//! f32, without fused multiply-add. So vectors have the same bits on each machine, and compilers use wide registers.

use crate::base64;

/// Sums of a product.
pub const LANES: usize = 16;

/// So many numbers of a vector. The last ones of it are filled up with zeros, which change no sum.
pub type Lanes = [f32; LANES];

/// Scales numbers to a vector of the length 1: each is divided by the root of the sum of squares. False where there is none:
/// they are all 0, one is not finite, or their squares are beyond f32.
pub fn normalise(values: &mut [f32]) -> bool {
    let length = product(values, values).sqrt();
    let has_length = length.is_finite() && length > 0.0;
    if has_length {
        values.iter_mut().for_each(|value| *value /= length);
    }
    has_length
}

/// The sum of the products of two vectors: the cosine of the angle between them, if their length is 1.
pub fn product(a: &[f32], b: &[f32]) -> f32 {
    let length = a.len().min(b.len());
    let ((a, a_rest), (b, b_rest)) = (a[..length].as_chunks::<LANES>(), b[..length].as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    // Of a length that compilers know.
    for (a, b) in a.iter().zip(b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter_mut().zip(a_rest.iter().zip(b_rest)).for_each(|(sum, (a, b))| *sum += a * b);
    added(sums)
}

/// The sum of the sums, by halves.
#[inline(always)]
pub fn added(mut sums: Lanes) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        let (low, high) = sums.split_at_mut(half);
        low.iter_mut().zip(high).for_each(|(low, high)| *low += *high);
        half /= 2;
    }
    sums[0]
}

/// As base64 of f32, the lower bytes first.
pub fn to_text(values: &[f32]) -> String {
    base64::encode(&to_bytes(values))
}

/// `None` where it is not such a text.
pub fn of_text(text: &str) -> Option<Vec<f32>> {
    of_bytes(&base64::decode(text)?)
}

/// As f32, the lower bytes first.
pub fn to_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// `None` where these are not whole numbers of f32.
pub fn of_bytes(bytes: &[u8]) -> Option<Vec<f32>> {
    let (values, []) = bytes.as_chunks::<4>() else { return None };
    Some(values.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_the_length_1() {
        let mut vector = [3.0, 0.0, -4.0];
        assert!(normalise(&mut vector));
        assert_eq!(vector, [0.6, 0.0, -0.8]);
        let mut long: Vec<f32> = (0..515).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
        assert!(normalise(&mut long));
        let length = long.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>();
        assert!((length - 1.0).abs() < 1e-6, "{length}");
        for none in [&mut [][..], &mut [0.0; 20], &mut [1.0, f32::NAN], &mut [f32::INFINITY, 1.0], &mut [1e30, 1.0]] {
            assert!(!normalise(none), "{none:?}");
        }
    }

    #[test]
    fn products_are_added_in_their_order() {
        // In f32 a million and a thirty-second is a million: the order tells.
        let mut a = vec![0.0; 33];
        (a[0], a[16], a[32]) = (1e6, 0.031_25, -1e6);
        assert_eq!(product(&a, &[1.0; 33]), 0.0);
        (a[1], a[16]) = (0.031_25, 0.0);
        assert_eq!(product(&a, &[1.0; 33]), 0.031_25, "it is in another sum");
        assert_eq!(product(&[], &[]), 0.0);
    }

    #[test]
    fn texts_hold_all_bits() {
        let values = [1.0, -0.0, f32::MIN_POSITIVE, f32::INFINITY];
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&of_text(&to_text(&values)).unwrap()), bits(&values));
        assert_eq!(to_text(&[1.0]), "AACAPw==");
        assert_eq!([of_text("AAA="), of_text("?")], [None, None], "two bytes, and none");
    }
}
