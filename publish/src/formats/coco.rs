// SPDX-License-Identifier: MPL-2.0
//! `coco`: the results of a frame as an array of COCO's results. Those of all frames together are what pycocotools'
//! `loadRes` reads.

use gsttrt_core::image::masks::Mask;
use serde_json::{Value, json};

use super::{round, rounded};
use crate::record::{FrameRecord, ObjectRecord, PublishSource};

pub fn frame(record: &FrameRecord, _source: &PublishSource) -> Value {
    record.objects.iter().map(|object| result(object, record)).collect()
}

fn result(object: &ObjectRecord, record: &FrameRecord) -> Value {
    let annotation = &object.annotation;
    let bbox = &annotation.bbox;
    let mut fields = json!({
        "image_id": record.number,
        "category_id": annotation.class,
        "bbox": rounded(&[bbox.x1, bbox.y1, bbox.width(), bbox.height()], 3),
        "score": round(annotation.confidence.unwrap_or(1.0), 6),
    });
    if let Some(id) = object.identity {
        fields["identity"] = id.into(); // which readers of COCO pass over
    }
    if let Some(keypoints) = &annotation.keypoints {
        let dims = usize::from(keypoints.shape.dims);
        let points = keypoints.values.chunks_exact(dims);
        // The third number is there in all results of COCO.
        let all = points.flat_map(|point| [point[0], point[1], point.get(2).copied().unwrap_or(1.0)]);
        fields["keypoints"] = rounded(&all.collect::<Vec<_>>(), 3);
    }
    if let Some(mask) = &annotation.mask {
        let (width, height) = record.size;
        fields["segmentation"] = json!({ "size": [height, width], "counts": counts(mask, record.size) });
    }
    fields
}

/// The run lengths of the whole frame: those of a mask are of its rectangle.
fn counts(mask: &Mask, (width, height): (u32, u32)) -> String {
    let (width, height) = (width as usize, height as usize);
    let mut pixels = vec![false; width * height];
    let rect = mask.rect();
    for y in rect.top..rect.bottom.min(height as u32) {
        for x in rect.left..rect.right.min(width as u32) {
            pixels[y as usize * width + x as usize] = mask.contains(x, y);
        }
    }
    let right_bottom = (width as u32, height as u32);
    Mask::of(gsttrt_core::image::geometry::Rect::from(right_bottom), &pixels).counts()
}
