// SPDX-License-Identifier: MPL-2.0
//! Fixed rectangles of frames.

use super::geometry::Rect;
use super::slices::MAX_REGIONS;
use crate::error::{Error, ErrorKind, Result};

/// No rectangle is smaller than that, unless it is of parts of the frame.
const FEWEST_PIXELS: f64 = 2.0;

/// Rectangles, in pixels or in parts of the frame.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionList(Vec<[f64; 4]>);

impl RegionList {
    /// Left, top, right and bottom of each, separated by commas, and rectangles by semicolons:
    /// `0,0,640,360;0.5,0.5,1,1`. Where none of the four is above 1 they are parts of the frame's width and height,
    /// else pixels.
    ///
    /// # Errors
    /// `Settings`, if it cannot be read, or has none or more than [`MAX_REGIONS`].
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |cause: String| {
            Error::new(ErrorKind::Settings, format!("region-list={text} cannot be read")).cause(cause).remedy(
                "Write left, top, right and bottom of each rectangle in pixels or in parts of the frame, like \
                 0,0,640,360;0.5,0.5,1,1",
            )
        };
        let rectangle = |part: &str| {
            let edges: Option<Vec<f64>> = part.split(',').map(|edge| edge.trim().parse().ok()).collect();
            let edges: Option<[f64; 4]> = edges.and_then(|edges| edges.try_into().ok());
            let edges = edges
                .filter(|[left, top, right, bottom]| left >= &0.0 && top >= &0.0 && left < right && top < bottom)
                .filter(|edges| edges.iter().all(|edge| edge.is_finite()))
                .ok_or_else(|| wrong(format!("“{part}” is not a rectangle")))?;
            // A part that is a little above 1 would make a pixel of the corner of it.
            let greatest = edges[2].max(edges[3]);
            if greatest > 1.0 && greatest < FEWEST_PIXELS {
                return Err(wrong(format!(
                    "of “{part}” the greatest number is {greatest}, which is neither a part nor pixels"
                )));
            }
            Ok(edges)
        };
        let parts: Vec<&str> = text.split(';').map(str::trim).filter(|part| !part.is_empty()).collect();
        let list = parts.into_iter().map(rectangle).collect::<Result<Vec<_>>>()?;
        match list.len() {
            1..=MAX_REGIONS => Ok(RegionList(list)),
            count => Err(wrong(format!("it has {count} rectangles, not 1 to {MAX_REGIONS}"))),
        }
    }

    /// The rectangles of a frame of that width and height, in whole pixels that cover them.
    ///
    /// # Errors
    /// `Settings`, if one is not in the frame.
    pub fn of(&self, (width, height): (u32, u32)) -> Result<Vec<Rect>> {
        let rect = |edges: &[f64; 4]| {
            let is_share = edges.iter().all(|&edge| edge <= 1.0);
            let along = |edge: f64, side: u32| if is_share { edge * f64::from(side) } else { edge };
            let [left, top, right, bottom] = *edges;
            let [left, right] = [along(left, width).floor(), along(right, width).ceil()];
            let [top, bottom] = [along(top, height).floor(), along(bottom, height).ceil()];
            if right > f64::from(width) || bottom > f64::from(height) {
                return Err(Error::new(ErrorKind::Settings, "A rectangle of region-list is not in the frame")
                    .cause(format!(
                        "it is from {left},{top} to {right},{bottom}, and the frame has {width}x{height} pixels"
                    ))
                    .remedy(
                        "Set region-list on trtpreprocess to rectangles in the frame, or to parts of it from 0 to 1",
                    ));
            }
            let [left, top, right, bottom] = [left, top, right, bottom].map(|edge| edge as u32);
            Ok(Rect { left, top, right, bottom })
        };
        self.0.iter().map(rect).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_and_parts_are_rectangles() {
        let list = RegionList::parse("0,0,640,360; 0.5, 0.25,1,1;10.5,20.5,30.5,40.5;").unwrap();
        let edges = |rect: &Rect| [rect.left, rect.top, rect.right, rect.bottom];
        let rects: Vec<_> = list.of((1280, 720)).unwrap().iter().map(edges).collect();
        assert_eq!(rects, [[0, 0, 640, 360], [640, 180, 1280, 720], [10, 20, 31, 41]]);
    }

    #[test]
    fn mistakes_are_named() {
        let many = "0,0,1,1;".repeat(65);
        for text in [
            "",
            ";",
            "1,2,3",
            "1,2,3,4,5",
            "a,0,1,1",
            "0,0,nan,1",
            "0,0,inf,1",
            "5,5,5,9",
            "9,0,1,9",
            "-1,0,5,5",
            "0,0,1.5,1",
            &many,
        ] {
            let error = RegionList::parse(text).unwrap_err();
            assert!(error.message().contains("region-list="), "{text}: {error}");
        }
        let error = RegionList::parse("0,0,641,10").unwrap().of((640, 480)).unwrap_err();
        assert!(error.message().contains("0,0 to 641,10") && error.message().contains("640x480"), "{error}");
    }
}
