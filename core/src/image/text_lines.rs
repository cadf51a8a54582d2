// SPDX-License-Identifier: MPL-2.0
//! How wide the tensors of lines of text are, for models that take any width.
//!
//! A line is as high as the tensor and keeps its aspect, so a long one needs a wide tensor. Pictures of one width are run together, so
//! lines of similar widths take that of the widest of them: they are padded by less than a quarter.

use super::align::{Crop, CropShape, Similarity};
use super::transform::InputSpec;

/// Gives each box of a frame its width, where the model takes several.
pub fn choose_widths(crops: &mut [Crop], spec: &InputSpec) {
    if !spec.has_widths() {
        return;
    }
    let (_, height, _) = spec.chw();
    let width_of = |crop: &Crop| match &crop.shape {
        Some(CropShape::Box(corners)) => Some(spec.width_for(Similarity::columns_of_box(corners, height as u32)?)),
        _ => None,
    };
    let mut wanted: Vec<(u32, usize)> =
        crops.iter().enumerate().filter_map(|(at, crop)| Some((width_of(crop)?, at))).collect();
    wanted.sort_unstable_by(|a, b| b.cmp(a));
    let mut of_group = 0;
    for (width, at) in wanted {
        let is_similar = 5 * u64::from(width) >= 4 * u64::from(of_group);
        if of_group == 0 || !is_similar {
            of_group = width;
        }
        crops[at].width = Some(of_group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::geometry::{BBox, Rect};
    use crate::image::rotated::RotatedBox;

    fn line(width: f32, height: f32) -> Crop {
        let bbox = BBox::from_center(500.0, 500.0, width, height);
        let shape = Some(CropShape::Box(RotatedBox { bbox, angle: 0.0 }.corners()));
        Crop { shape, ..Crop::from(Rect { left: 0, top: 0, right: 9, bottom: 9 }) }
    }

    fn widths(spec: &str, lines: &[(f32, f32)]) -> Vec<Option<u32>> {
        let spec: InputSpec = spec.parse().unwrap();
        let mut crops: Vec<Crop> = lines.iter().map(|&(width, height)| line(width, height)).collect();
        choose_widths(&mut crops, &spec);
        let sizes = crops.iter().map(|crop| crop.size(&spec));
        assert!(sizes.zip(&crops).all(|(size, crop)| size == (crop.width.unwrap_or(320), 48)));
        crops.iter().map(|crop| crop.width).collect()
    }

    const ONE: &str = "cpu f32 1x3x48x320 nchw bgr letterbox-top-left:127 scale:0.003921569 x";
    const MANY: &str = "cpu f32 1x3x48x320 nchw bgr letterbox-top-left:127 scale:0.003921569 max-width:1000 x";

    #[test]
    fn lines_are_as_wide_as_they_need_within_what_the_model_takes() {
        // 48 rows: 12 times as wide as high is 576 columns.
        assert_eq!(widths(MANY, &[(120.0, 10.0)]), [Some(576)]);
        assert_eq!(widths(MANY, &[(121.0, 10.0)]), [Some(608)], "in steps of 32");
        assert_eq!(widths(MANY, &[(10.0, 10.0)]), [Some(320)]);
        assert_eq!(widths(MANY, &[(900.0, 10.0)]), [Some(1000)]);
        assert_eq!(widths(MANY, &[(10.0, 121.0)]), [Some(608)], "it stands");
        assert_eq!(widths(MANY, &[(0.5, 0.5)]), [None], "smaller than a pixel");
        assert_eq!(widths(ONE, &[(120.0, 10.0)]), [None]);
    }

    #[test]
    fn similar_lines_are_as_wide_as_the_widest_of_them() {
        let lines = [(150.0, 10.0), (60.0, 10.0), (125.0, 10.0), (120.0, 10.0), (110.0, 10.0), (70.0, 10.0)];
        // Alone they have 736, 320, 608, 576, 544 and 352. Of 736 at least 589 are similar, of 576 at least 461.
        assert_eq!(widths(MANY, &lines), [736, 352, 736, 576, 576, 352].map(Some));
    }
}
