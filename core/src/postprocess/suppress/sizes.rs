// SPDX-License-Identifier: MPL-2.0
//! How much `kernels/nms.cu` compares in which way, and the memory for it.

/// Boxes that have a column of the bit matrix, boxes of a step of the suppression, and words that a block fills at a time, each for
/// four rows.
pub(super) const WINDOW: usize = 8192;
const STEP: usize = 256;
pub(super) const FILLED: usize = 16;
/// Candidates that a block compares with all better ones at a time, bytes of the list of each, and the most that have lists.
pub(super) const LISTED: usize = 8;
pub(super) const LIST: usize = 128;
const MOST_COMPARED: usize = 8192;

/// As much of an overlap as it has to differ from the threshold's part of the whole area for the kernel not to divide. The quotient is
/// rounded by a 10,000,000th at most, and the product too. Infinity where thresholds are not usual: it divides always.
pub(super) fn margin(threshold: f32) -> f32 {
    if (1e-3..=1.0).contains(&threshold) { 1e-5 } else { f32::INFINITY }
}

/// So many candidates are compared with all better ones, which takes time with their square; more are suppressed by the matrix, which
/// takes longer to decide. Few multiprocessors share the work: there that is less.
pub(super) fn compared(multiprocessors: usize) -> usize {
    (multiprocessors * 32 / 512 * 512).clamp(512, MOST_COMPARED)
}

/// Boxes that have a row of the bit matrix where at most `limit` are kept: whole steps of them. A row holds what repeats its box, and
/// serves only if the box is kept. Nearly all kept boxes are among the best ones; what repeats another one is found without a row,
/// which takes longer than to read one, but to fill rows for all takes longest.
pub(super) fn matrix_rows(limit: usize) -> usize {
    (limit + limit / 2).next_multiple_of(STEP).clamp(2 * STEP, WINDOW)
}

/// Rows of a step have a bit for each box from the step's first one on, in words of 64.
pub(super) fn matrix_bytes(boxes: usize) -> usize {
    (0..boxes).step_by(STEP).map(|first| STEP * (boxes - first).div_ceil(64) * 8).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_matrix_are_whole_steps_in_the_window() {
        for (limit, rows) in [(0, 512), (300, 512), (500, 768), (5461, 8192), (25_200, 8192)] {
            assert_eq!(matrix_rows(limit), rows, "{limit}");
        }
    }

    #[test]
    fn more_multiprocessors_compare_more_candidates() {
        for (multiprocessors, candidates) in [(0, 512), (8, 512), (40, 1024), (132, 4096), (1000, 8192)] {
            assert_eq!(compared(multiprocessors), candidates, "{multiprocessors}");
        }
    }

    #[test]
    fn thresholds_that_are_not_usual_are_compared_with_quotients() {
        for threshold in [f32::NAN, f32::NEG_INFINITY, -1.0, 0.0, 1e-4, 1.001, f32::INFINITY] {
            assert_eq!(margin(threshold), f32::INFINITY, "{threshold}");
        }
        assert_eq!([1e-3, 0.5, 1.0].map(margin), [1e-5; 3]);
    }
}
