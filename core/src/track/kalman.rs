// SPDX-License-Identifier: MPL-2.0
//! Kalman filters of boxes that move with constant velocity.
//!
//! The noise of the papers' filters has no terms between the numbers of a box, so their 8x8 matrices separate into one
//! filter of position and velocity for each number. The results are the same.

use std::ops::RangeInclusive;

use crate::image::geometry::BBox;

/// One component of a box and its velocity, with their covariance.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimate {
    pub value: f64,
    pub velocity: f64,
    variance: f64,
    covariance: f64,
    velocity_variance: f64,
}

impl Estimate {
    pub fn new(value: f64, variance: f64, velocity_variance: f64) -> Self {
        Estimate { value, velocity: 0.0, variance, covariance: 0.0, velocity_variance }
    }

    /// One step of time, with the variance that it adds.
    pub fn predict(&mut self, variance: f64, velocity_variance: f64) {
        self.value += self.velocity;
        self.variance += 2.0 * self.covariance + self.velocity_variance + variance;
        self.covariance += self.velocity_variance;
        self.velocity_variance += velocity_variance;
    }

    /// Updates with a measurement of that variance.
    pub fn update(&mut self, measured: f64, variance: f64) {
        let total = self.variance + variance;
        let (gain, velocity_gain) = (self.variance / total, self.covariance / total);
        let innovation = measured - self.value;
        self.value += gain * innovation;
        self.velocity += velocity_gain * innovation;
        self.velocity_variance -= velocity_gain * self.covariance;
        self.covariance -= gain * self.covariance;
        self.variance -= gain * self.variance;
    }
}

/// The components of a box's state, which also determine their noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxState {
    /// Centre, width by height, height: SORT's and ByteTrack's.
    Xyah,
    /// Centre, width, height: BoT-SORT's.
    Xywh,
}

/// The standard deviation of a position, as a fraction of the box's size.
const PLACE: f64 = 1.0 / 20.0;
/// The same for a velocity, per step.
const VELOCITY: f64 = 1.0 / 160.0;

/// The standard deviation of a side where it is compared with another one's, as a fraction. With a tenth, more crowds are
/// confused in tests/track.
const SIZE: f64 = 0.06;

/// Where frames were skipped, and of objects that were lost: the largest squared distances of the matches after those by overlap.
/// DeepSORT's, 95 % of the boxes of an object that moves on as it did, and five standard deviations for one that has turned.
/// Matches by appearance may be as far apart as the latter.
pub const GATES: [f64; 2] = [9.4877, 25.0];

/// In how many frames, this one included, an object must have been missed to be found by distance where no frame is skipped. After
/// the last of them it may be some nine of its heights away. Later it could be anywhere, and any object of its size would get its id.
pub const FRAMES_LOST: RangeInclusive<u32> = 2..=31;

/// The filter of a box.
#[derive(Clone, Copy, Debug)]
pub struct BoxFilter {
    state: BoxState,
    numbers: [Estimate; 4],
}

/// Noise of the four components: position and velocity.
type Deviations = [(f64, f64); 4];

impl BoxFilter {
    pub fn new(state: BoxState, bbox: &BBox) -> Self {
        let measured = measure(state, bbox);
        let mut deviations = deviations(state, measured[2], measured[3]);
        for (number, (place, velocity)) in deviations.iter_mut().enumerate() {
            // The ratio has no additional noise at first.
            if state == BoxState::Xywh || number != 2 {
                (*place, *velocity) = (2.0 * *place, 10.0 * *velocity);
            }
        }
        let estimate = |number: usize| {
            let (place, velocity): (f64, f64) = deviations[number];
            Estimate::new(measured[number], place * place, velocity * velocity)
        };
        BoxFilter { state, numbers: [0, 1, 2, 3].map(estimate) }
    }

    /// One step of time. The size of an object that is not seen stays constant.
    pub fn predict(&mut self, is_seen: bool) {
        if !is_seen {
            self.numbers[3].velocity = 0.0;
            if self.state == BoxState::Xywh {
                self.numbers[2].velocity = 0.0;
            }
        }
        let deviations = deviations(self.state, self.numbers[2].value, self.numbers[3].value);
        for (number, (place, velocity)) in self.numbers.iter_mut().zip(deviations) {
            number.predict(place * place, velocity * velocity);
        }
    }

    /// Steps of time with a detector. `may_turn`: an object that is not seen may have another velocity when it comes back.
    pub fn advance(&mut self, steps: u32, is_seen: bool, may_turn: bool) {
        for _ in 0..steps {
            if may_turn && !is_seen {
                self.coast();
            } else {
                self.predict(is_seen);
            }
        }
    }

    /// One step in which nothing is known of the object: without a detector, or hidden. The size stays constant, and the position
    /// gets no noise of its own. Only the velocity may change until the next detection; its noise is three times that of the papers
    /// for detected frames, and no less for narrow boxes. Less gives worse results in tests/track if only each fifth frame is detected.
    pub fn coast(&mut self) {
        self.numbers[2].velocity = 0.0;
        self.numbers[3].velocity = 0.0;
        let deviations = deviations(self.state, self.numbers[2].value, self.numbers[3].value);
        let of_height = VELOCITY * self.numbers[3].value;
        let least = [of_height, of_height, 0.0, 0.0];
        for ((number, (_, velocity)), least) in self.numbers.iter_mut().zip(deviations).zip(least) {
            number.predict(0.0, (3.0 * velocity.max(least)).powi(2));
        }
    }

    pub fn update(&mut self, bbox: &BBox) {
        let measured = measure(self.state, bbox);
        let mut deviations = deviations(self.state, self.numbers[2].value, self.numbers[3].value);
        if self.state == BoxState::Xyah {
            deviations[2].0 = 1e-1;
        }
        for (number, (measured, (place, _))) in self.numbers.iter_mut().zip(measured.into_iter().zip(deviations)) {
            number.update(measured, place * place);
        }
    }

    /// Moves the box, and leaves its velocity.
    pub fn shift(&mut self, by: [f64; 2]) {
        self.numbers.iter_mut().zip(by).for_each(|(number, by)| number.value += by);
    }

    /// The squared Mahalanobis distance of a measured box from the predicted one. Sizes may differ by little, however
    /// long the object was not seen: the filter foresees none, and its variances would tell no boxes apart.
    pub fn distance(&self, bbox: &BBox) -> f64 {
        let measured = measure(BoxState::Xywh, bbox);
        let [left, top, right, bottom] = self.edges();
        let [x, y] = self.variances();
        let predicted = [(left + right) / 2.0, (top + bottom) / 2.0, right - left, bottom - top];
        let variances = [x, y, (predicted[2] * SIZE).powi(2), (predicted[3] * SIZE).powi(2)];
        (0..4).map(|number| (measured[number] - predicted[number]).powi(2) / variances[number]).sum()
    }

    /// The predicted box, and beyond it as far as the centres of boxes lie that are not farther than this squared distance.
    pub fn reach(&self, distance: f64) -> [f64; 4] {
        let [across, down] = self.variances().map(|variance| (variance * distance).sqrt());
        let [left, top, right, bottom] = self.edges();
        [left - across, top - down, right + across, bottom + down]
    }

    /// The variances of a measured centre about the predicted one.
    fn variances(&self) -> [f64; 2] {
        let deviations = deviations(self.state, self.numbers[2].value, self.numbers[3].value);
        [0, 1].map(|number| self.numbers[number].variance + deviations[number].0.powi(2))
    }

    /// Left, top, right and bottom.
    pub fn edges(&self) -> [f64; 4] {
        let [x, y, width, height] = self.numbers.map(|number| number.value);
        let width = if self.state == BoxState::Xyah { width * height } else { width };
        let (left, top) = (x - width / 2.0, y - height / 2.0);
        [left, top, left + width, top + height]
    }
}

/// BoostTrack's filter: centre, height, and width by height, each with a velocity. Its noise is in pixels, whatever the size of the
/// object.
#[derive(Clone, Copy, Debug)]
pub struct HeightFilter([Estimate; 4]);

impl HeightFilter {
    pub fn new(edges: &[f64; 4]) -> Self {
        HeightFilter(Self::measure(edges).map(|value| Estimate::new(value, 10.0, 10_000.0)))
    }

    fn measure([left, top, right, bottom]: &[f64; 4]) -> [f64; 4] {
        let (width, height) = (right - left, bottom - top);
        [left + width / 2.0, top + height / 2.0, height, width / (height + 1e-6)]
    }

    /// One step of time.
    pub fn predict(&mut self) {
        self.0.iter_mut().for_each(|number| number.predict(1.0, 0.01));
    }

    pub fn update(&mut self, edges: &[f64; 4]) {
        let noise = [1.0, 1.0, 10.0, 0.01];
        for ((number, measured), noise) in self.0.iter_mut().zip(Self::measure(edges)).zip(noise) {
            number.update(measured, noise);
        }
    }

    /// Moves the box, and leaves its velocity.
    pub fn shift(&mut self, by: [f64; 2]) {
        self.0.iter_mut().zip(by).for_each(|(number, by)| number.value += by);
    }

    /// The squared Mahalanobis distance of a box from the predicted one, by the variances of the latter alone.
    pub fn distance(&self, edges: &[f64; 4]) -> f64 {
        let numbers = self.0.iter().zip(Self::measure(edges));
        numbers.map(|(number, measured)| (measured - number.value).powi(2) / number.variance).sum()
    }

    /// The predicted box, and beyond it as far as the centres of boxes lie that are not farther than this squared distance.
    pub fn reach(&self, distance: f64) -> [f64; 4] {
        let [across, down] = [0, 1].map(|number: usize| (self.0[number].variance * distance).sqrt());
        let [left, top, right, bottom] = self.edges();
        [left - across, top - down, right + across, bottom + down]
    }

    /// Left, top, right and bottom.
    pub fn edges(&self) -> [f64; 4] {
        let [x, y, height, ratio] = self.0.map(|number| number.value);
        let width = height * ratio.max(0.0);
        [x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0]
    }
}

fn measure(state: BoxState, bbox: &BBox) -> [f64; 4] {
    let [left, top, width, height] = [
        f64::from(bbox.x1),
        f64::from(bbox.y1),
        f64::from(bbox.x2) - f64::from(bbox.x1),
        f64::from(bbox.y2) - f64::from(bbox.y1),
    ];
    let third = if state == BoxState::Xyah { width / height } else { width };
    [left + width / 2.0, top + height / 2.0, third, height]
}

fn deviations(state: BoxState, third: f64, height: f64) -> Deviations {
    let (of_height, of_third) = ((PLACE * height, VELOCITY * height), (PLACE * third, VELOCITY * third));
    match state {
        BoxState::Xyah => [of_height, of_height, (1e-2, 1e-5), of_height],
        BoxState::Xywh => [of_third, of_height, of_third, of_height],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_that_moves_steadily_is_predicted() {
        for state in [BoxState::Xyah, BoxState::Xywh] {
            let at = |step: i32| {
                let step = step as f32;
                BBox::from_center(100.0 + 3.0 * step, 200.0 - 2.0 * step, 40.0 + 0.2 * step, 80.0 + 0.4 * step)
            };
            let mut filter = BoxFilter::new(state, &at(0));
            for step in 1..60 {
                filter.predict(true);
                filter.update(&at(step));
            }
            (60..65).for_each(|_| filter.predict(true));
            let (have, wanted) = (filter.edges(), at(64));
            let wanted = [wanted.x1, wanted.y1, wanted.x2, wanted.y2].map(f64::from);
            assert!(have.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1.0), "{state:?}: {have:?} {wanted:?}");
        }
    }

    #[test]
    fn a_filter_of_heights_predicts_and_measures_distances() {
        let at = |step: f64| {
            let [x, y, height] = [100.0 + 3.0 * step, 200.0 - 2.0 * step, 80.0 + 0.4 * step];
            [x - height / 4.0, y - height / 2.0, x + height / 4.0, y + height / 2.0]
        };
        let mut filter = HeightFilter::new(&at(0.0));
        filter.predict();
        // It may be anywhere near after one look: the variances of the places are 10 + 10,000 + 1.
        let aside = at(0.0).map(|edge| edge + 50.0);
        assert!((filter.distance(&aside) - 2.0 * 2500.0 / 10_011.0).abs() < 1e-9, "{}", filter.distance(&aside));
        let reach = filter.reach(4.0);
        // The ratio of sides has 1e-6 in its divisor.
        assert!((at(0.0)[0] - reach[0] - 2.0 * 10_011f64.sqrt()).abs() < 1e-6, "{reach:?}");
        filter.update(&at(1.0));
        for step in 2..60 {
            filter.predict();
            filter.update(&at(f64::from(step)));
        }
        filter.predict();
        let (have, wanted) = (filter.edges(), at(60.0));
        assert!(have.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 0.5), "{have:?} {wanted:?}");
        assert!(filter.distance(&wanted) < 0.5, "{}", filter.distance(&wanted));
        assert!(filter.distance(&wanted.map(|edge| edge + 10.0)) > 13.3, "it has been seen often, so this is far");
        filter.shift([5.0, -5.0]);
        let moved = [have[0] + 5.0, have[1] - 5.0, have[2] + 5.0, have[3] - 5.0];
        assert!(filter.edges().iter().zip(moved).all(|(a, b)| (a - b).abs() < 1e-9));
    }

    /// The matrices of the papers, written out.
    #[test]
    fn one_filter_for_each_component_is_the_whole_filter() {
        const N: usize = 8;
        type Matrix = [[f64; N]; N];
        let multiply = |a: &Matrix, b: &Matrix| -> Matrix {
            std::array::from_fn(|i| std::array::from_fn(|j| (0..N).map(|k| a[i][k] * b[k][j]).sum()))
        };
        let transpose = |a: &Matrix| -> Matrix { std::array::from_fn(|i| std::array::from_fn(|j| a[j][i])) };
        let step: Matrix =
            std::array::from_fn(|i| std::array::from_fn(|j| if i == j || j == i + 4 { 1.0 } else { 0.0 }));
        let first = BBox::new(10.0, 20.0, 50.0, 100.0);
        let mut filter = BoxFilter::new(BoxState::Xyah, &first);
        let z = measure(BoxState::Xyah, &first);
        let mut mean: [f64; N] = std::array::from_fn(|i| if i < 4 { z[i] } else { 0.0 });
        let initial = [8.0, 8.0, 1e-2, 8.0, 5.0, 5.0, 1e-5, 5.0];
        let mut p: Matrix =
            std::array::from_fn(|i| std::array::from_fn(|j| if i == j { initial[i] * initial[i] } else { 0.0 }));
        for bbox in [BBox::new(14.0, 21.0, 55.0, 104.0), BBox::new(17.0, 22.5, 58.0, 103.0)] {
            let (place, velocity) = (mean[3] / 20.0, mean[3] / 160.0);
            let noise = [place, place, 1e-2, place, velocity, velocity, 1e-5, velocity];
            mean = std::array::from_fn(|i| (0..N).map(|k| step[i][k] * mean[k]).sum());
            p = multiply(&multiply(&step, &p), &transpose(&step));
            (0..N).for_each(|i| p[i][i] += noise[i] * noise[i]);
            let place = mean[3] / 20.0;
            let noise = [place, place, 1e-1, place];
            // Gauss-Jordan on the measured part.
            let mut s: [[f64; 8]; 4] = std::array::from_fn(|i| {
                std::array::from_fn(|j| match j {
                    j if j >= 4 => f64::from(u8::from(j - 4 == i)),
                    j => p[i][j] + if i == j { noise[i] * noise[i] } else { 0.0 },
                })
            });
            for pivot in 0..4 {
                let scale = s[pivot][pivot];
                s[pivot].iter_mut().for_each(|value| *value /= scale);
                let row = s[pivot];
                for other in (0..4).filter(|&other| other != pivot) {
                    let factor = s[other][pivot];
                    s[other].iter_mut().zip(row).for_each(|(value, of)| *value -= factor * of);
                }
            }
            let gain: [[f64; 4]; N] =
                std::array::from_fn(|i| std::array::from_fn(|j| (0..4).map(|k| p[i][k] * s[k][4 + j]).sum()));
            let z = measure(BoxState::Xyah, &bbox);
            let before = p;
            let innovation: [f64; 4] = std::array::from_fn(|i| z[i] - mean[i]);
            for i in 0..N {
                mean[i] += (0..4).map(|k| gain[i][k] * innovation[k]).sum::<f64>();
                for j in 0..N {
                    p[i][j] -= (0..4).map(|k| gain[i][k] * before[k][j]).sum::<f64>();
                }
            }
            filter.predict(true);
            filter.update(&bbox);
            for (number, estimate) in filter.numbers.iter().enumerate() {
                assert!((estimate.value - mean[number]).abs() < 1e-9, "{number}");
                assert!((estimate.velocity - mean[number + 4]).abs() < 1e-9, "{number}");
                assert!((estimate.variance - p[number][number]).abs() < 1e-9, "{number}");
                assert!((estimate.covariance - p[number][number + 4]).abs() < 1e-9, "{number}");
            }
        }
    }
}
