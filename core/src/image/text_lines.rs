// SPDX-License-Identifier: MPL-2.0
//! How wide the tensors of lines of text are, for models that take any width.
//!
//! A line is as high as the tensor and keeps its aspect, so a long one needs a wide tensor. What a model reads depends a little on the
//! padding, so that is as in PP-OCR: lines are sorted by their aspects, and six at a time have the width of the widest of them. It is a
//! multiple of 32 pixels, so that lines of many frames have the same and are run together.

use super::align::Crop;
use super::transform::InputSpec;

/// PP-OCR's `rec_batch_num`.
const LINES_AT_ONCE: usize = 6;

/// Gives each box of a frame its width, where the model takes several.
pub fn choose_widths(crops: &mut [Crop], spec: &InputSpec) {
    if !spec.has_widths() {
        return;
    }
    let (_, height, _) = spec.chw();
    let aspect_of = |crop: &Crop| crop.shape.as_ref()?.aspect();
    let mut lines: Vec<(f64, usize)> =
        crops.iter().enumerate().filter_map(|(at, crop)| Some((aspect_of(crop)?, at))).collect();
    lines.sort_by(|(a, first), (b, second)| a.total_cmp(b).then(first.cmp(second)));
    for group in lines.chunks(LINES_AT_ONCE) {
        let widest = group.last().map_or(0.0, |(aspect, _)| *aspect);
        let width = spec.width_for((height as f64 * widest).ceil() as u32);
        group.iter().for_each(|(_, at)| crops[*at].width = Some(width));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::align::CropShape;
    use crate::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
    use crate::image::geometry::{BBox, Rect};
    use crate::image::preprocess::Preprocessor;
    use crate::image::rotated::RotatedBox;

    fn line(width: f32, height: f32) -> Crop {
        let bbox = BBox::from_center(500.0, 500.0, width, height);
        let shape = Some(CropShape::Line(RotatedBox { bbox, angle: 0.0 }.corners()));
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
    fn six_lines_are_as_wide_as_the_widest_of_them() {
        let lines = [150.0, 60.0, 125.0, 120.0, 110.0, 70.0, 40.0].map(|width| (width, 10.0));
        // Alone, the two widest have 736 and 608.
        assert_eq!(widths(MANY, &lines), [736, 608, 608, 608, 608, 608, 608].map(Some));
        assert_eq!(widths(MANY, &lines[1..]), [Some(608); 6]);
        assert_eq!(widths(MANY, &[lines[0], (0.5, 0.5), lines[6]]), [Some(736), None, Some(736)]);
    }

    #[test]
    fn tensors_have_their_widths_and_lie_as_they_read() {
        let spec: InputSpec = "cpu u8 1x1x16x64 nchw gray letterbox:7 scale:1 max-width:128 x".parse().unwrap();
        let (width, height) = (128, 48);
        let pixels: Vec<u8> = (0..width * height).map(|at| (at * at * 7 % 251) as u8).collect();
        let planes = [Plane { data: &pixels[..], stride: width }].into_iter().collect();
        let frame = Frame { format: PixelFormat::Gray8, width, height, planes };
        let color = Colorimetry { full_range: true, ..Colorimetry::default() };
        // A line that is as large as its tensor, and one that is as wide as the frame.
        let at = |x: f32, y: f32, width: f32| {
            let bbox = BBox::from_center(x, y, width, 16.0);
            Crop { shape: Some(CropShape::Box(RotatedBox { bbox, angle: 0.0 }.corners())), ..line(1.0, 1.0) }
        };
        let mut crops = vec![at(32.0, 8.0, 64.0), at(64.0, 32.0, 128.0)];
        crops.extend(crops.clone().into_iter().map(|crop| Crop { is_turned: true, ..crop }));
        crops.chunks_mut(1).for_each(|crop| choose_widths(crop, &spec));
        let mut preprocessor = Preprocessor::new(None, frame.format, (width, height), color, &spec).unwrap();
        let tensors = preprocessor.regions_of_host(&frame, &crops).unwrap();
        let dims: Vec<String> = tensors.iter().map(|tensors| tensors[0].desc().dims.to_string()).collect();
        assert_eq!(dims, ["1x1x16x64", "1x1x16x128", "1x1x16x64", "1x1x16x128"]);
        let bytes = |at: usize| tensors[at][0].bytes().unwrap().to_vec();
        let rows = |top: usize, columns: usize| -> Vec<u8> {
            (top..top + 16).flat_map(|row| &pixels[row * width..][..columns]).copied().collect()
        };
        assert!(bytes(0) == rows(0, 64) && bytes(1) == rows(24, 128));
        let backwards = |at: usize| bytes(at).into_iter().rev().collect::<Vec<u8>>();
        assert!(backwards(2) == bytes(0) && backwards(3) == bytes(1), "those that are upside down begin at their end");
    }
}
