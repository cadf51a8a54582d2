// SPDX-License-Identifier: MPL-2.0
//! The slot of a row's logits that is no class.

use crate::error::{Error, ErrorKind, Result};
use crate::options::{Choices, choices};

/// RF-DETR's own checkpoints have the classes of COCO by their ids there, 0 to 90, and no background.
const COCO_IDS: usize = 91;

/// Which logit of a row is that of the background. Model files do not contain it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackgroundClass {
    /// What agrees with the number of labels; without labels, what models of that layout usually have.
    #[default]
    Auto,
    None,
    First,
    Last,
}

choices! {
    BackgroundClass, "GstTrtBackgroundClass":
    BackgroundClass::Auto => "auto" "By the labels, else as usual for the layout"
    BackgroundClass::None => "none" "Each logit is of a class"
    BackgroundClass::First => "first" "The first logit is the background's"
    BackgroundClass::Last => "last" "The last logit is the background's"
}

impl BackgroundClass {
    /// The background's slot among `slots` logits, if it has one. `is_usual` tells whether models of the layout have one.
    ///
    /// # Errors
    /// `Settings`, where no slot is left for a class.
    pub(super) fn slot(self, slots: usize, labels: Option<usize>, is_usual: bool) -> Result<Option<usize>> {
        let last = slots.checked_sub(1);
        let slot = match (self, labels) {
            (BackgroundClass::None, _) => None,
            (BackgroundClass::First, _) => Some(0),
            (BackgroundClass::Last, _) => last,
            (BackgroundClass::Auto, Some(labels)) if is_usual => last.filter(|_| labels != slots),
            (BackgroundClass::Auto, _) => last.filter(|_| is_usual && slots != COCO_IDS),
        };
        match slot {
            Some(_) if slots < 2 => Err(Error::new(
                ErrorKind::Settings,
                format!("background-class={} leaves no class of {slots} logit a row", self.word()),
            )
            .remedy("Set background-class=none on trtnms")),
            slot => Ok(slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_decide_then_the_layout() {
        let auto = |slots, labels, is_usual| BackgroundClass::Auto.slot(slots, labels, is_usual).unwrap();
        assert_eq!(auto(3, Some(3), true), None);
        assert_eq!(auto(3, Some(2), true), Some(2));
        assert_eq!(auto(3, None, true), Some(2));
        assert_eq!(auto(91, None, true), None);
        assert_eq!(auto(91, Some(90), true), Some(90));
        assert_eq!(auto(3, None, false), None);
        assert_eq!(auto(3, Some(2), false), None, "then the number of labels is an error");
    }

    #[test]
    fn the_user_decides_before() {
        assert_eq!(BackgroundClass::None.slot(3, Some(2), true).unwrap(), None);
        assert_eq!(BackgroundClass::First.slot(3, Some(3), false).unwrap(), Some(0));
        assert_eq!(BackgroundClass::Last.slot(91, None, true).unwrap(), Some(90));
        for background in [BackgroundClass::First, BackgroundClass::Last] {
            let error = background.slot(1, None, true).unwrap_err();
            assert!(error.message().contains("leaves no class"), "{error}");
        }
        assert_eq!(BackgroundClass::None.slot(1, None, true).unwrap(), None);
    }
}
