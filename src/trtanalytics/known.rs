// SPDX-License-Identifier: MPL-2.0
//! Who the objects of events are: their attributes, such as their names by a gallery, and their ids over cameras. Some events are
//! told when their object is gone.

use std::collections::HashMap;

use gsttrt_core::analytics::AnalyticsEvent;
use gsttrt_core::image::overlay::{Annotation, Attribute};

use crate::gst::meta::{attributes, identity, track};

/// An object with an id as it was last seen.
#[derive(Debug)]
struct KnownObject {
    attributes: Vec<Attribute>,
    identity: Option<u64>,
    last_seen: u64,
}

/// The objects with ids of which there is something to tell. What was removed since, such as a name from its gallery, is not kept.
#[derive(Debug, Default)]
pub struct KnownObjects(HashMap<u64, KnownObject>);

impl KnownObjects {
    /// Takes in the objects of a frame at `now`, the first of which are those of its regions.
    pub fn see(&mut self, frame: &gst::BufferRef, annotations: Vec<Annotation>, now: u64) {
        let mut identities = identity::of_regions(frame);
        identities.resize(annotations.len(), None);
        let mut predicted: Vec<bool> = track::region_facts(frame).map(|facts| facts.is_predicted).collect();
        predicted.resize(annotations.len(), false);
        let objects = annotations.into_iter().zip(identities).zip(predicted);
        // Of several objects with one id the first counts, as in events.
        for ((Annotation { track_id, mut attributes, .. }, mut identity), is_predicted) in objects.rev() {
            let Some(id) = track_id else { continue };
            // Nobody may have looked at an object that is only predicted, so that what it lacks was not taken back.
            if let Some(before) = self.0.remove(&id).filter(|_| is_predicted) {
                identity = identity.or(before.identity);
                if attributes.is_empty() {
                    attributes = before.attributes;
                }
            }
            if !attributes.is_empty() || identity.is_some() {
                self.0.insert(id, KnownObject { attributes, identity, last_seen: now });
            }
        }
    }

    /// Forgets those that were not seen for longer than that: no event is about them any more.
    pub fn forget(&mut self, now: u64, lost_after: u64) {
        self.0.retain(|_, object| now.saturating_sub(object.last_seen) <= lost_after);
    }

    /// Another part of the stream, or another stream, follows.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds to an event who its object is: `identity` and `attributes`, where they are known.
    pub fn describe(&self, event: &AnalyticsEvent, content: &mut gst::Structure) {
        let Some(object) = event.object.and_then(|object| self.0.get(&object.id)) else { return };
        if let Some(id) = object.identity {
            content.set("identity", id);
        }
        if !object.attributes.is_empty() {
            content.set("attributes", attributes::structures(&object.attributes));
        }
    }
}

#[cfg(test)]
mod tests {
    use gst_video::VideoRegionOfInterestMeta;

    use super::*;
    use crate::gst::meta::read;

    #[test]
    fn who_is_gone_is_known_for_a_time() {
        gst::init().unwrap();
        let mut known = KnownObjects::default();
        let mut see = |ids: &[(i32, u64)], now: u64| {
            let mut buffer = gst::Buffer::new();
            let frame = buffer.get_mut().unwrap();
            for &(id, _) in ids {
                let mut region = VideoRegionOfInterestMeta::add(frame, "person", (0, 0, 9, 9));
                region.add_param(gst::Structure::builder("object_id").field("id", id).build());
            }
            let identities: Vec<Option<u64>> = ids.iter().map(|&(_, id)| Some(id).filter(|id| *id > 0)).collect();
            identity::attach(frame, &identities, "site");
            known.see(frame, read::objects(frame, (16, 16)).annotations, now);
            known.forget(now, 10);
            let mut left: Vec<_> = known.0.iter().map(|(id, object)| (*id, object.identity)).collect();
            left.sort_unstable();
            left
        };
        assert_eq!(see(&[(1, 7), (2, 8), (2, 9), (3, 0)], 0), [(1, Some(7)), (2, Some(8))]);
        assert_eq!(see(&[(2, 0)], 10), [(1, Some(7))], "nobody knows who 2 is now");
        assert_eq!(see(&[(3, 4)], 11), [(3, Some(4))]);
        known.clear();
        assert!(known.0.is_empty());
    }

    #[test]
    fn who_is_only_predicted_stays_known() {
        gst::init().unwrap();
        let mut known = KnownObjects::default();
        let mut see = |identity: Option<u64>, is_predicted: bool, now: u64| {
            let mut buffer = gst::Buffer::new();
            let frame = buffer.get_mut().unwrap();
            {
                let mut region = VideoRegionOfInterestMeta::add(frame, "person", (0, 0, 9, 9));
                region.add_param(gst::Structure::builder("object_id").field("id", 1i32).build());
                region.add_param(gst::Structure::builder("detection").field("predicted", is_predicted).build());
            }
            identity::attach(frame, &[identity], "site");
            known.see(frame, read::objects(frame, (16, 16)).annotations, now);
            known.forget(now, 10);
            known.0.get(&1).and_then(|object| object.identity)
        };
        assert_eq!(see(Some(7), false, 0), Some(7));
        assert_eq!(see(None, true, 10), Some(7), "nobody has looked");
        assert_eq!(see(None, true, 20), Some(7), "it is in sight");
        assert_eq!(see(Some(8), true, 30), Some(8));
        assert_eq!(see(None, false, 31), None, "nobody knows who it is now");
    }
}
