// SPDX-License-Identifier: MPL-2.0
//! Sizes of pictures as people write them: `"1280x720"`.

use serde::de::{self, Deserialize, Deserializer};

/// Pixels of a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PictureSize {
    pub width: u32,
    pub height: u32,
}

/// Pixels of a side.
const SIDES: std::ops::RangeInclusive<u32> = 64..=7680;

impl<'de> Deserialize<'de> for PictureSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form = "write its width and height, such as \"1280x720\"";
        let text =
            String::deserialize(deserializer).map_err(|_| de::Error::custom(format!("a size is a text: {form}")))?;
        let sides = text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
        let Some((width, height)) = sides else {
            let shown: String = text.chars().take(64).collect();
            return Err(de::Error::custom(format!("“{shown}” is no size of a picture: {form}")));
        };
        if [width, height].iter().any(|side| !SIDES.contains(side) || side % 2 == 1) {
            let (least, most) = SIDES.into_inner();
            return Err(de::Error::custom(format!("the sides of a picture are even, from {least} to {most} pixels")));
        }
        Ok(PictureSize { width, height })
    }
}
