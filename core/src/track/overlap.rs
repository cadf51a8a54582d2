// SPDX-License-Identifier: MPL-2.0
//! Which boxes overlap which others.

/// Left, top, right and bottom.
pub type Edges = [f64; 4];

pub fn center(edges: &Edges) -> [f64; 2] {
    [(edges[0] + edges[2]) / 2.0, (edges[1] + edges[3]) / 2.0]
}

/// Intersection over union; 0 where one of the boxes is invalid.
pub fn iou(a: &Edges, b: &Edges) -> f64 {
    let (width, height) = (a[2].min(b[2]) - a[0].max(b[0]), a[3].min(b[3]) - a[1].max(b[1]));
    if !(width > 0.0 && height > 0.0) {
        return 0.0;
    }
    let area = |edges: &Edges| (edges[2] - edges[0]) * (edges[3] - edges[1]);
    let intersection = width * height;
    // A comparison with NaN is false.
    Some(intersection / (area(a) + area(b) - intersection)).filter(|ratio| *ratio > 0.0).unwrap_or(0.0)
}

/// Boxes from left to right, so that those that overlap another are found without comparing all.
#[derive(Debug, Default)]
pub struct Neighbours {
    /// Left edges with the indices of the boxes.
    lefts: Vec<(f64, u32)>,
    widest: f64,
}

impl Neighbours {
    /// Takes in the boxes with these indices.
    pub fn fill(&mut self, boxes: impl Iterator<Item = (u32, Edges)>) {
        self.lefts.clear();
        self.widest = 0.0;
        for (number, edges) in boxes {
            self.lefts.push((edges[0], number));
            self.widest = self.widest.max(edges[2] - edges[0]);
        }
        self.lefts.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }

    /// The indices of those that may overlap a box.
    pub fn near(&self, edges: &Edges) -> impl Iterator<Item = u32> {
        let (from, to) = (edges[0] - self.widest, edges[2]);
        let first = self.lefts.partition_point(|&(left, _)| left < from);
        self.lefts[first..].iter().take_while(move |&&(left, _)| left < to).map(|&(_, number)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_neighbour_is_missed(boxes in proptest::collection::vec((0.0..99f64, 0.0..99f64, 0.1..40f64, 0.1..40f64), 1..30)) {
            let edges: Vec<Edges> = boxes.iter().map(|&(x, y, w, h)| [x, y, x + w, y + h]).collect();
            let mut neighbours = Neighbours::default();
            neighbours.fill((0..).zip(edges.iter().copied()));
            for one in &edges {
                let near: Vec<u32> = neighbours.near(one).collect();
                for (number, other) in (0..).zip(&edges) {
                    prop_assert!(iou(one, other) == 0.0 || near.contains(&number));
                }
            }
        }
    }

    #[test]
    fn what_is_no_box_overlaps_nothing() {
        let whole = [0.0, 0.0, 10.0, 10.0];
        assert_eq!(iou(&whole, &whole), 1.0);
        assert_eq!(iou(&whole, &[5.0, 0.0, 15.0, 10.0]), 1.0 / 3.0);
        for none in [[5.0, 5.0, 5.0, 9.0], [6.0, 6.0, 4.0, 9.0], [f64::NAN; 4], [10.0, 0.0, 20.0, 10.0]] {
            assert_eq!(iou(&whole, &none), 0.0, "{none:?}");
        }
    }
}
