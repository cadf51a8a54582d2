// SPDX-License-Identifier: MPL-2.0
//! What objects look like: a vector of each detection, and of each track a mean of those that it was seen with.

use super::TrackOptions;
use super::assignment::{Assignment, MAX_PAIRS};
use crate::vector::{normalise, product};

/// What a detection looks like. Vectors of one model can be compared.
#[derive(Clone, Copy, Debug)]
pub struct ObjectVector<'a> {
    /// Of the length 1.
    pub values: &'a [f32],
    /// A number of the model that gave it.
    pub model: u32,
}

/// Least weight of what a track looked like before, when it is seen again: that of Deep OC-SORT and BoostTrack.
pub const MEAN_WEIGHT: f32 = 0.95;

/// The weight of what a track looked like before it is seen with that score: 1 where the score is just enough.
pub fn mean_weight(score: f32, enough: f32) -> f32 {
    let certainty = if score > enough { ((score - enough) / (1.0 - enough)).min(1.0) } else { 0.0 };
    MEAN_WEIGHT + (1.0 - MEAN_WEIGHT) * (1.0 - certainty)
}

#[derive(Debug, Default)]
struct MeanVector {
    values: Vec<f32>,
    model: u32,
    is_taken: bool,
}

impl MeanVector {
    fn is_comparable(&self, vector: &ObjectVector) -> bool {
        (self.model, self.values.len()) == (vector.model, vector.values.len())
    }

    fn restart(&mut self, vector: &ObjectVector) {
        self.values.clear();
        self.values.extend_from_slice(vector.values);
        self.model = vector.model;
    }
}

/// The means of all tracks, each in a place that its track knows. It keeps its memory.
#[derive(Debug, Default)]
pub struct Appearances {
    is_used: bool,
    means: Vec<MeanVector>,
    /// Places that no track has.
    free: Vec<u32>,
    has_restarted: bool,
}

impl Appearances {
    /// With `is_used` false no track gets a mean, so all vectors are ignored.
    pub fn new(is_used: bool) -> Self {
        Appearances { is_used, ..Appearances::default() }
    }

    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// Whether a track was seen with a vector of another model than before, so that its mean has begun again.
    pub fn has_restarted(&self) -> bool {
        self.has_restarted
    }

    /// Gives the places of tracks that have ended to others.
    pub fn free_all_but(&mut self, taken: impl Iterator<Item = u32>) {
        self.means.iter_mut().for_each(|mean| mean.is_taken = false);
        taken.for_each(|place| self.means[place as usize].is_taken = true);
        self.free.clear();
        self.free.extend((0u32..).zip(&self.means).filter(|(_, mean)| !mean.is_taken).map(|(place, _)| place));
    }

    /// A track was seen with this vector, if there is one. `weight` is that of the vectors before.
    pub fn see(&mut self, place: &mut Option<u32>, vector: Option<ObjectVector>, weight: f32) {
        let Some(vector) = vector.filter(|_| self.is_used) else { return };
        let Some(known) = *place else {
            *place = Some(self.begin(&vector));
            return;
        };
        let mean = &mut self.means[known as usize];
        if mean.is_comparable(&vector) {
            let values = mean.values.iter_mut().zip(vector.values);
            values.for_each(|(value, new)| *value = weight * *value + (1.0 - weight) * new);
            // Opposite vectors have no mean.
            if !normalise(&mut mean.values) {
                mean.restart(&vector);
            }
        } else {
            mean.restart(&vector);
            self.has_restarted = true;
        }
    }

    /// The place of a new mean.
    fn begin(&mut self, vector: &ObjectVector) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.means.push(MeanVector::default());
            self.means.len() as u32 - 1
        });
        self.means[place as usize].restart(vector);
        place
    }

    /// The cosine of the angle between a track's mean and a vector; `None` where they cannot be compared.
    pub fn similarity(&self, place: Option<u32>, vector: Option<ObjectVector>) -> Option<f32> {
        let (mean, vector) = (&self.means[place? as usize], vector?);
        let is_comparable = mean.is_comparable(&vector);
        is_comparable.then(|| product(&mean.values, vector.values)).filter(|similarity| similarity.is_finite())
    }

    /// Whether a track and a detection do not look alike. Where that cannot be compared, they may.
    pub fn differ(&self, options: &TrackOptions, place: Option<u32>, vector: Option<ObjectVector>) -> bool {
        let farthest = f64::from(options.appearance_thresh);
        self.similarity(place, vector).is_some_and(|similarity| 1.0 - f64::from(similarity) >= farthest)
    }

    /// 1 less the cosine; infinite where they cannot be compared.
    pub fn distance(&self, place: Option<u32>, vector: Option<ObjectVector>) -> f64 {
        self.similarity(place, vector).map_or(f64::INFINITY, |similarity| 1.0 - f64::from(similarity))
    }
}

/// A track and a detection that may be one object by their boxes.
#[derive(Clone, Copy, Debug)]
struct WeighedPair {
    column: u32,
    /// How well their boxes agree.
    gain: f64,
    similarity: Option<f32>,
}

/// Pairs of tracks and detections by boxes and appearance, weighed as Deep OC-SORT does (Maggiolino et al., ICIP 2023): appearance
/// counts more where the best two of a track, or of a detection, differ more. It keeps its memory.
#[derive(Debug, Default)]
pub struct WeighedPairs {
    pairs: Vec<WeighedPair>,
    /// The index at which the pairs of each row end.
    ends: Vec<u32>,
    /// The largest two similarities of each row and of each column; 0 where there are fewer.
    of_rows: Vec<[f32; 2]>,
    of_columns: Vec<[f32; 2]>,
}

impl WeighedPairs {
    /// Removes all rows.
    pub fn begin(&mut self, columns: usize) {
        self.pairs.clear();
        self.ends.clear();
        self.of_rows.clear();
        self.of_columns.clear();
        self.of_columns.resize(columns, [0.0; 2]);
    }

    /// Adds a pair to the current row.
    pub fn pair(&mut self, column: u32, gain: f64) {
        self.pairs.push(WeighedPair { column, gain, similarity: None });
    }

    /// Compares the appearance of those pairs of the row whose boxes agree best.
    pub fn end_row(&mut self, similarity: impl Fn(u32) -> Option<f32>) {
        let start = self.ends.last().map_or(0, |&end| end as usize);
        let row = &mut self.pairs[start..];
        if row.len() > MAX_PAIRS {
            row.select_nth_unstable_by(MAX_PAIRS, |a, b| b.gain.total_cmp(&a.gain).then(a.column.cmp(&b.column)));
            self.pairs.truncate(start + MAX_PAIRS);
        }
        let mut of_row = [0.0; 2];
        for pair in &mut self.pairs[start..] {
            pair.similarity = similarity(pair.column);
            if let Some(similarity) = pair.similarity {
                enter(&mut of_row, similarity);
                enter(&mut self.of_columns[pair.column as usize], similarity);
            }
        }
        self.of_rows.push(of_row);
        self.ends.push(self.pairs.len() as u32);
    }

    /// Adds all pairs to an assignment.
    pub fn assign(&self, options: &TrackOptions, assignment: &mut Assignment) {
        let (weight, most) = (f64::from(options.w_association_emb), f64::from(options.aw_param));
        let difference = |[first, second]: [f32; 2]| f64::from(first - second).min(most);
        let mut start = 0;
        for (&end, &of_row) in self.ends.iter().zip(&self.of_rows) {
            for &WeighedPair { column, gain, similarity } in &self.pairs[start..end as usize] {
                let appearance = similarity.map_or(0.0, |similarity| {
                    let boost = (difference(of_row) + difference(self.of_columns[column as usize])) / 2.0;
                    (weight + boost) * f64::from(similarity)
                });
                assignment.pair(column, -(gain + appearance));
            }
            assignment.end_row();
            start = end as usize;
        }
    }
}

/// Keeps the largest two.
fn enter(largest: &mut [f32; 2], value: f32) {
    if value > largest[0] {
        *largest = [value, largest[0]];
    } else if value > largest[1] {
        largest[1] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f32]) -> Option<ObjectVector<'_>> {
        Some(ObjectVector { values, model: 1 })
    }

    #[test]
    fn a_mean_follows_the_vectors_of_its_track() {
        let mut appearances = Appearances::new(true);
        let mut place = None;
        appearances.see(&mut place, None, 0.9);
        assert_eq!((place, appearances.similarity(place, of(&[1.0, 0.0]))), (None, None));
        appearances.see(&mut place, of(&[1.0, 0.0]), 0.9);
        assert_eq!(appearances.similarity(place, of(&[0.6, 0.8])), Some(0.6));
        assert_eq!(appearances.similarity(place, None), None);
        let mut last = 1.0;
        for _ in 0..60 {
            appearances.see(&mut place, of(&[0.0, 1.0]), 0.9);
            let distance = appearances.distance(place, of(&[0.0, 1.0]));
            assert!(distance < last, "{distance} {last}");
            last = distance;
        }
        assert!(last < 1e-3, "{last}");
        // Their mean has no length.
        appearances.see(&mut place, of(&[1.0, 0.0]), 0.0);
        appearances.see(&mut place, of(&[-1.0, 0.0]), 0.5);
        assert_eq!(appearances.similarity(place, of(&[-1.0, 0.0])), Some(1.0));
        assert!(!appearances.has_restarted());
    }

    #[test]
    fn no_score_counts_more_than_1() {
        assert_eq!(mean_weight(0.5, 0.5), 1.0);
        for (score, enough) in [(1.0, 0.5), (9.0, 0.5), (f32::INFINITY, 0.5), (2.0, 1.0)] {
            assert_eq!(mean_weight(score, enough), MEAN_WEIGHT, "{score} {enough}");
        }
    }

    #[test]
    fn vectors_of_another_model_begin_a_mean_again() {
        for (values, model) in [(&[1.0, 0.0][..], 2), (&[1.0, 0.0, 0.0][..], 1)] {
            let mut appearances = Appearances::new(true);
            let mut place = None;
            appearances.see(&mut place, of(&[1.0, 0.0]), 0.9);
            let other = Some(ObjectVector { values, model });
            assert_eq!(appearances.distance(place, other), f64::INFINITY);
            assert!(!appearances.has_restarted());
            appearances.see(&mut place, other, 0.9);
            assert_eq!(appearances.similarity(place, other), Some(1.0));
            assert_eq!(appearances.similarity(place, of(&[1.0, 0.0])), None);
            assert!(appearances.has_restarted());
        }
    }

    #[test]
    fn what_is_no_vector_is_not_compared_and_is_forgotten() {
        let mut appearances = Appearances::new(true);
        let mut place = None;
        for none in [&[f32::NAN, 0.0][..], &[f32::INFINITY, 0.0]] {
            appearances.see(&mut place, of(none), 0.9);
            assert_eq!(appearances.similarity(place, of(&[1.0, 0.0])), None, "{none:?}");
            appearances.see(&mut place, of(&[1.0, 0.0]), 0.9);
            assert_eq!(appearances.similarity(place, of(&[1.0, 0.0])), Some(1.0), "{none:?}");
        }
    }

    #[test]
    fn places_of_ended_tracks_are_taken_again() {
        let mut appearances = Appearances::new(true);
        let mut places = [None; 3];
        places.iter_mut().for_each(|place| appearances.see(place, of(&[1.0, 0.0]), 0.9));
        assert_eq!(places, [Some(0), Some(1), Some(2)]);
        appearances.free_all_but([0, 2].into_iter());
        let mut place = None;
        appearances.see(&mut place, of(&[0.0, 1.0]), 0.9);
        assert_eq!((place, appearances.similarity(place, of(&[0.0, 1.0]))), (Some(1), Some(1.0)));
        let mut unused = Appearances::new(false);
        unused.see(&mut place, of(&[0.0, 1.0]), 0.9);
        assert_eq!(unused.means.len(), 0);
    }

    /// Two tracks and two detections whose boxes agree equally well.
    fn columns(similarities: [[Option<f32>; 2]; 2], w_association_emb: f32, aw_param: f32) -> [Option<usize>; 2] {
        let options = TrackOptions { w_association_emb, aw_param, ..TrackOptions::default() };
        let (mut pairs, mut assignment) = (WeighedPairs::default(), Assignment::default());
        pairs.begin(2);
        for (row, of_row) in similarities.into_iter().enumerate() {
            // By boxes alone, each is matched with the detection of its number.
            (0..2).for_each(|column| pairs.pair(column, if column as usize == row { 0.6 } else { 0.5 }));
            pairs.end_row(|column| of_row[column as usize]);
        }
        assignment.begin(2, 0.0);
        pairs.assign(&options, &mut assignment);
        assignment.solve();
        [0, 1].map(|row| assignment.column(row))
    }

    #[test]
    fn appearance_counts_more_where_it_tells_more() {
        let (by_boxes, crossed) = ([Some(0), Some(1)], [Some(1), Some(0)]);
        assert_eq!(columns([[None; 2]; 2], 1.0, 1.0), by_boxes);
        let clear = [[Some(0.1), Some(0.9)], [Some(0.9), Some(0.1)]];
        assert_eq!(columns(clear, 0.75, 0.5), crossed);
        assert_eq!(columns(clear, 0.0, 0.0), by_boxes);
        assert_eq!(columns(clear, 0.1, 0.0), by_boxes, "0.6 and 0.01 are more than 0.5 and 0.09");
        assert_eq!(columns(clear, 0.1, 0.5), crossed, "and less than 0.5 and 0.54");
        let alike = [[Some(0.85), Some(0.9)], [Some(0.9), Some(0.85)]];
        assert_eq!(columns(alike, 0.75, 0.5), by_boxes, "they tell little, and boxes tell more");
    }
}
