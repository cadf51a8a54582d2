// SPDX-License-Identifier: MPL-2.0
//! Polygons, and the quads of a frame that they touch.

use crate::error::{Error, ErrorKind, Result};
use crate::image::geometry::Rect;

/// Polygons of a property at most.
const MAX_POLYGONS: usize = 64;

/// Polygons, in pixels or in parts of the frame.
#[derive(Clone, Debug, PartialEq)]
pub struct PolygonList(Vec<Vec<[f64; 2]>>);

impl PolygonList {
    /// Whether a text is meant to be one: it has nothing but numbers.
    pub fn is_meant(text: &str) -> bool {
        let mut words = text.split([',', ';']).map(str::trim).filter(|word| !word.is_empty()).peekable();
        words.peek().is_some() && words.all(|word| word.parse::<f64>().is_ok())
    }

    /// x and y of each corner, separated by commas, and polygons by semicolons: `0,0,0.5,0,0.5,0.25;…`. Where none of
    /// them is above 1 they are parts of the frame's width and height, else pixels.
    ///
    /// # Errors
    /// `Settings`, if it cannot be read.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |cause: String| {
            Error::new(ErrorKind::Settings, format!("mask={text} cannot be read")).cause(cause).remedy(
                "Write x and y of each corner in parts of the frame or in pixels, and a semicolon between two polygons, like \
                 0,0,0.5,0,0.5,0.25;10,20,90,20,90,80. Or write names of zones of trtanalytics",
            )
        };
        let polygon = |part: &str| {
            let numbers: Option<Vec<f64>> =
                part.split(',').map(|number| number.trim().parse().ok().filter(|at: &f64| at.is_finite())).collect();
            let numbers = numbers.ok_or_else(|| wrong(format!("“{part}” are not numbers")))?;
            match numbers.as_chunks::<2>() {
                (corners, []) if corners.len() >= 3 => match doubt(corners) {
                    Some(cause) => Err(wrong(format!("of “{part}” {cause}"))),
                    None => Ok(corners.to_vec()),
                },
                _ => Err(wrong(format!("“{part}” has {} numbers, not x and y of 3 corners or more", numbers.len()))),
            }
        };
        let parts: Vec<&str> = text.split(';').map(str::trim).filter(|part| !part.is_empty()).collect();
        match parts.len() {
            1..=MAX_POLYGONS => Ok(PolygonList(parts.into_iter().map(polygon).collect::<Result<_>>()?)),
            count => Err(wrong(format!("it has {count} polygons, not 1 to {MAX_POLYGONS}"))),
        }
    }

    /// Their corners in pixels of a frame of that width and height.
    pub fn of(&self, (width, height): (u32, u32)) -> Vec<Vec<[f32; 2]>> {
        let place = |corners: &Vec<[f64; 2]>| {
            let [across, down] = if are_parts(corners) { [width, height].map(f64::from) } else { [1.0; 2] };
            corners.iter().map(|[x, y]| [(x * across) as f32, (y * down) as f32]).collect()
        };
        self.0.iter().map(place).collect()
    }
}

fn are_parts(corners: &[[f64; 2]]) -> bool {
    corners.as_flattened().iter().all(|&at| at <= 1.0)
}

/// What cannot be meant of corners, whatever the size of the frame.
fn doubt(corners: &[[f64; 2]]) -> Option<String> {
    let corner = |is_it: &dyn Fn(f64) -> bool| {
        let number = corners.iter().position(|corner| corner.iter().any(|&at| is_it(at)))?;
        let [x, y] = corners[number];
        Some(format!("corner {}, {x},{y},", number + 1))
    };
    let [least, greatest] = [f64::min as fn(f64, f64) -> f64, f64::max]
        .map(|pick| [0, 1].map(|axis| corners.iter().map(|corner| corner[axis]).reduce(pick).unwrap_or_default()));
    let is_tiny = greatest.iter().all(|&at| at <= 2.0);
    if let Some(beyond) = corner(&|at| at > 1.0) {
        // Of pixels, nobody writes a part of the first one.
        if let Some(part) = corner(&|at| at > 0.0 && at < 1.0) {
            return Some(format!("{part} is in parts of the frame, and {beyond} in pixels"));
        }
        if is_tiny {
            let text = format!(
                "{beyond} is beyond 1, the edge of the frame, and in pixels the polygon is too small to be meant"
            );
            return Some(text);
        }
    }
    let [first, ..] = corners else { return None };
    let is_before = greatest.iter().any(|&at| at <= 0.0);
    if is_before || are_parts(corners) && least.iter().any(|&at| at >= 1.0) {
        return Some("all corners are at the edge of the frame or outside".into());
    }
    let from_first = |corner: &[f64; 2]| [corner[0] - first[0], corner[1] - first[1]];
    let along = corners.iter().map(from_first).find(|way| *way != [0.0; 2]).unwrap_or_default();
    let is_on_line = |corner: &[f64; 2]| {
        let way = from_first(corner);
        (along[0] * way[1] - along[1] * way[0]).abs() < 1e-9
    };
    corners.iter().all(is_on_line).then(|| "all corners are on one line".into())
}

/// Quads of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuadMask {
    pub(super) rect: Rect,
    /// Rows of whole words, the left quad in the lowest bit.
    pub(super) bits: Vec<u32>,
}

impl QuadMask {
    /// The quads of a frame of that size that polygons touch: their corners are finite numbers of pixels. Where the edges of
    /// one cross, it is inside what an odd number of them surrounds, as of zones.
    ///
    /// # Errors
    /// `Settings`, if a polygon has a corner that is no number, or is not in the frame at all: so nothing would be hidden.
    pub fn new(polygons: &[Vec<[f32; 2]>], size: (u32, u32)) -> Result<Self> {
        let rect = Rect::from(size).halved();
        let mut mask = QuadMask { rect, bits: vec![0; words(rect.width()) * rect.height() as usize] };
        for polygon in polygons {
            let unusable =
                |cause: String| Error::new(ErrorKind::Settings, "A polygon of mask cannot be used").cause(cause);
            if !polygon.as_flattened().iter().all(|at| at.is_finite()) {
                return Err(unusable("a corner is no number".into()).remedy("Write finite numbers"));
            }
            if !mask.add(polygon) {
                let (width, height) = size;
                return Err(unusable(format!("it is not in the frame of {width}x{height} pixels: {polygon:?}"))
                    .remedy("Write corners in the frame, or parts of it from 0 to 1"));
            }
        }
        mask.trim();
        Ok(mask)
    }

    /// Adds a polygon, and returns whether it touches any quad.
    fn add(&mut self, polygon: &[[f32; 2]]) -> bool {
        let corners: Vec<[f64; 2]> = polygon.iter().map(|corner| corner.map(f64::from)).collect();
        let edges = || corners.iter().zip(corners.iter().cycle().skip(1));
        let [top, bottom] = [f64::min as fn(f64, f64) -> f64, f64::max]
            .map(|pick| corners.iter().map(|[_, y]| *y).reduce(pick).unwrap_or_default());
        let height = f64::from(self.rect.height());
        let rows = (top / 2.0).floor().clamp(0.0, height) as u32..(bottom / 2.0).ceil().clamp(0.0, height) as u32;
        let mut is_seen = false;
        for row in rows {
            let (above, below) = (f64::from(row) * 2.0, f64::from(row) * 2.0 + 2.0);
            // What an edge crosses is touched.
            for ([ax, ay], [bx, by]) in edges() {
                if ay.max(*by) <= above || ay.min(*by) >= below {
                    continue;
                }
                let x_at =
                    |y: f64| if ay == by { *bx } else { ax + (bx - ax) * ((y - ay) / (by - ay)).clamp(0.0, 1.0) };
                let ends = if ay == by { [*ax, *bx] } else { [x_at(above), x_at(below)] };
                is_seen |= self.set(row, ends[0].min(ends[1]), ends[0].max(ends[1]));
            }
            // What no edge crosses is inside if its middle is.
            let middle = above + 1.0;
            let crossed = edges().filter(|([_, ay], [_, by])| (*ay <= middle) != (*by <= middle));
            let mut crossings: Vec<f64> =
                crossed.map(|([ax, ay], [bx, by])| ax + (bx - ax) * ((middle - ay) / (by - ay))).collect();
            crossings.sort_by(f64::total_cmp);
            for [from, to] in crossings.as_chunks().0 {
                is_seen |= self.set(row, *from, *to);
            }
        }
        is_seen
    }

    /// Sets the quads of a row between two places in pixels, and returns whether there are any.
    fn set(&mut self, row: u32, from: f64, to: f64) -> bool {
        let width = f64::from(self.rect.width());
        let quads = (from / 2.0).floor().clamp(0.0, width) as u32..(to / 2.0).ceil().clamp(0.0, width) as u32;
        let stride = words(self.rect.width());
        let bits = &mut self.bits[row as usize * stride..][..stride];
        quads.clone().for_each(|quad| bits[(quad / u32::BITS) as usize] |= 1 << (quad % u32::BITS));
        !quads.is_empty()
    }

    /// Leaves out rows above and below all quads.
    fn trim(&mut self) {
        let stride = words(self.rect.width());
        let is_used = |row: &[u32]| row.iter().any(|&word| word != 0);
        let rows = || self.bits.chunks(stride.max(1));
        let (Some(first), Some(last)) = (rows().position(is_used), rows().rposition(is_used)) else {
            *self = QuadMask::default();
            return;
        };
        self.bits = self.bits[first * stride..(last + 1) * stride].to_vec();
        (self.rect.top, self.rect.bottom) = (first as u32, last as u32 + 1);
    }

    /// The numbers of the rows, and runs of quads in each.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u32, Vec<[u32; 2]>)> {
        let stride = words(self.rect.width()).max(1);
        (self.rect.top..).zip(self.bits.chunks(stride)).map(|(top, bits)| {
            let is_set = |quad: u32| bits[(quad / u32::BITS) as usize] >> (quad % u32::BITS) & 1 == 1;
            let mut runs: Vec<[u32; 2]> = Vec::new();
            for quad in (0..self.rect.width()).filter(|&quad| is_set(quad)) {
                match runs.last_mut().filter(|run| run[1] == quad) {
                    Some(run) => run[1] += 1,
                    None => runs.push([quad, quad + 1]),
                }
            }
            (top, runs)
        })
    }
}

fn words(width: u32) -> usize {
    width.div_ceil(u32::BITS) as usize
}
