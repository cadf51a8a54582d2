// SPDX-License-Identifier: MPL-2.0
//! What makes the tensors of the regions of a frame, kept from frame to frame.

use crate::error::Result;
use crate::image::geometry::Rect;

/// One for each region in their order, made again where the region is another one than in the frame before.
pub(super) struct ByRegion<T>(Vec<(Rect, T)>);

impl<T> Default for ByRegion<T> {
    fn default() -> Self {
        ByRegion(Vec::new())
    }
}

impl<T> ByRegion<T> {
    pub fn of(&mut self, index: usize, region: Rect, make: impl FnOnce() -> Result<T>) -> Result<&mut T> {
        if self.0.get(index).is_none_or(|(made_for, _)| *made_for != region) {
            let made = (region, make()?);
            match self.0.get_mut(index) {
                Some(other) => *other = made,
                None => self.0.push(made),
            }
        }
        let at = index.min(self.0.len() - 1);
        Ok(&mut self.0[at].1)
    }
}
