// SPDX-License-Identifier: MPL-2.0
//! Which track gets which detection.
//!
//! The assignment with the smallest sum of costs. A pair at or above the limit is not possible, and leaving both
//! unmatched costs the limit. That is the result of LAPJV with a cost limit, which the authors of the papers use.
//! Tracks and detections that do not overlap have no pair, so the matrix is a list of pairs, and each track is matched
//! by a shortest augmenting path through them.

/// The maximum number of pairs of a row; those of the smallest costs are kept. Only thousands of overlapping boxes have
/// more.
pub const MAX_PAIRS: usize = 128;

/// No row, or no column.
pub const NONE: u32 = u32::MAX;

/// A possible pair of a row, which is not stored here.
#[derive(Clone, Copy, Debug)]
struct Edge {
    column: u32,
    /// The cost less the limit, so below 0.
    cost: f64,
}

/// Rows with their possible columns. It keeps its memory.
#[derive(Debug, Default)]
pub struct Assignment {
    edges: Vec<Edge>,
    /// The index at which the edges of each row begin, and the end of the last row.
    starts: Vec<u32>,
    limit: f64,
    /// The last columns are one for each row, which means unmatched.
    columns: u32,
    row_potential: Vec<f64>,
    column_potential: Vec<f64>,
    column_of: Vec<u32>,
    row_of: Vec<u32>,
    distance: Vec<f64>,
    came_from: Vec<u32>,
    is_done: Vec<bool>,
    reached: Vec<u32>,
}

impl Assignment {
    /// Removes all rows. Pairs at or above `limit` are left out.
    pub fn begin(&mut self, columns: usize, limit: f64) {
        self.edges.clear();
        self.starts.clear();
        self.starts.push(0);
        self.columns = columns as u32;
        self.limit = limit;
    }

    /// Adds a pair to the current row.
    pub fn pair(&mut self, column: u32, cost: f64) {
        if cost < self.limit {
            self.edges.push(Edge { column, cost: cost - self.limit });
        }
    }

    pub fn end_row(&mut self) {
        let row = &mut self.edges[*self.starts.last().expect("the first is there") as usize..];
        if row.len() > MAX_PAIRS {
            row.select_nth_unstable_by(MAX_PAIRS, |a, b| a.cost.total_cmp(&b.cost).then(a.column.cmp(&b.column)));
            let surplus = row.len() - MAX_PAIRS;
            self.edges.truncate(self.edges.len() - surplus);
        }
        self.starts.push(self.edges.len() as u32);
    }

    pub fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// The column of a row, if it is matched.
    pub fn column(&self, row: usize) -> Option<usize> {
        Some(self.column_of[row]).filter(|&column| column < self.columns).map(|column| column as usize)
    }

    /// The row of a column, if it is matched.
    pub fn row(&self, column: usize) -> Option<usize> {
        Some(self.row_of[column]).filter(|&row| row != NONE).map(|row| row as usize)
    }

    /// The pairs that are matched, as what these lists have at the indices that rows and columns are.
    pub fn matches(&self, rows: &[u32], columns: &[u32]) -> impl Iterator<Item = (u32, u32)> {
        let pair = |(row, &of_row): (usize, &u32)| Some((of_row, columns[self.column(row)?]));
        rows.iter().enumerate().filter_map(pair)
    }

    /// Removes what is matched from the lists whose indices rows and columns are.
    pub fn keep_unmatched(&self, rows: &mut Vec<u32>, columns: &mut Vec<u32>) {
        let mut row = 0..;
        rows.retain(|_| self.column(row.next().expect("endless")).is_none());
        let mut column = 0..;
        columns.retain(|_| self.row(column.next().expect("endless")).is_none());
    }

    pub fn solve(&mut self) {
        let rows = self.rows();
        let columns = self.columns as usize + rows;
        refill(&mut self.row_potential, rows, 0.0);
        refill(&mut self.column_potential, columns, 0.0);
        refill(&mut self.column_of, rows, NONE);
        refill(&mut self.row_of, columns, NONE);
        refill(&mut self.distance, columns, f64::INFINITY);
        refill(&mut self.came_from, columns, NONE);
        refill(&mut self.is_done, columns, false);
        self.reached.reserve(columns); // a path reaches each of them once at the most
        (0..rows as u32).for_each(|row| self.place(row));
    }

    /// Finds a column for a row, and others for the rows that had it, along the cheapest path.
    fn place(&mut self, root: u32) {
        self.row_potential[root as usize] = self.cheapest(root);
        let (mut row, mut length) = (root, 0.0);
        let end = loop {
            self.reach_from(row, length);
            let nearest = self.reached.iter().copied().filter(|&column| !self.is_done[column as usize]);
            let nearest = nearest.min_by(|&a, &b| self.distance[a as usize].total_cmp(&self.distance[b as usize]));
            // Each row has a column of its own, which means unmatched.
            let column = nearest.expect("a column that no row has") as usize;
            length = self.distance[column];
            if self.row_of[column] == NONE {
                break column;
            }
            self.is_done[column] = true;
            row = self.row_of[column];
        };
        self.row_potential[root as usize] += length;
        for &column in &self.reached {
            let column = column as usize;
            if self.is_done[column] {
                let change = length - self.distance[column];
                self.column_potential[column] -= change;
                self.row_potential[self.row_of[column] as usize] += change;
            }
            (self.distance[column], self.is_done[column]) = (f64::INFINITY, false);
        }
        self.reached.clear();
        let mut column = end as u32;
        while column != NONE {
            let row = self.came_from[column as usize];
            self.row_of[column as usize] = row;
            // The root had no column.
            column = std::mem::replace(&mut self.column_of[row as usize], column);
        }
    }

    fn edges_of(&self, row: u32) -> std::ops::Range<usize> {
        self.starts[row as usize] as usize..self.starts[row as usize + 1] as usize
    }

    fn cheapest(&self, row: u32) -> f64 {
        let costs = self.edges[self.edges_of(row)].iter();
        let costs = costs.map(|edge| edge.cost - self.column_potential[edge.column as usize]);
        costs.fold(0.0, f64::min)
    }

    fn reach_from(&mut self, row: u32, length: f64) {
        let nothing = Edge { column: self.columns + row, cost: 0.0 };
        for at in self.edges_of(row).chain([usize::MAX]) {
            let edge = self.edges.get(at).copied().unwrap_or(nothing);
            let column = edge.column as usize;
            if self.is_done[column] {
                continue;
            }
            let distance = length + edge.cost - self.row_potential[row as usize] - self.column_potential[column];
            if distance < self.distance[column] {
                if self.distance[column] == f64::INFINITY {
                    self.reached.push(edge.column);
                }
                (self.distance[column], self.came_from[column]) = (distance, row);
            }
        }
    }
}

fn refill<T: Clone>(values: &mut Vec<T>, count: usize, value: T) {
    values.clear();
    values.resize(count, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The smallest sum over all assignments, tried one by one.
    fn best(costs: &[Vec<f64>], limit: f64, taken: &mut Vec<bool>) -> f64 {
        let Some((row, rest)) = costs.split_first() else { return 0.0 };
        let mut least = best(rest, limit, taken);
        for (column, cost) in row.iter().enumerate() {
            if *cost < limit && !taken[column] {
                taken[column] = true;
                least = least.min(cost - limit + best(rest, limit, taken));
                taken[column] = false;
            }
        }
        least
    }

    fn solve(assignment: &mut Assignment, costs: &[Vec<f64>], columns: usize, limit: f64) {
        assignment.begin(columns, limit);
        for row in costs {
            row.iter().zip(0..).for_each(|(&cost, column)| assignment.pair(column, cost));
            assignment.end_row();
        }
        assignment.solve();
    }

    proptest! {
        #[test]
        fn no_assignment_is_cheaper(
            (columns, costs) in (0..6usize).prop_flat_map(|columns| {
                let row = proptest::collection::vec(prop_oneof![0.0..1.0f64, Just(0.5), Just(1.0)], columns);
                (Just(columns), proptest::collection::vec(row, 0..6))
            }),
            limit in 0.3..1.0f64,
        ) {
            let mut assignment = Assignment::default();
            // Earlier contents have no effect.
            solve(&mut assignment, &[vec![0.1, 0.2], vec![0.1, 0.9]], 2, 0.8);
            solve(&mut assignment, &costs, columns, limit);
            let mut sum = 0.0;
            for (row, costs) in costs.iter().enumerate() {
                if let Some(column) = assignment.column(row) {
                    prop_assert_eq!(assignment.row(column), Some(row));
                    prop_assert!(costs[column] < limit);
                    sum += costs[column] - limit;
                }
            }
            let rows = (0..columns).filter(|&column| assignment.row(column).is_some()).count();
            let taken = (0..costs.len()).filter(|&row| assignment.column(row).is_some()).count();
            prop_assert_eq!(rows, taken);
            let wanted = best(&costs, limit, &mut vec![false; columns]);
            prop_assert!((sum - wanted).abs() < 1e-9, "{sum} {wanted}");
        }
    }
}
