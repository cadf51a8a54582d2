// SPDX-License-Identifier: MPL-2.0
//! Which objects of a frame become tensors of a second model.

use std::collections::HashSet;

use gsttrt_core::image::align::{Align, Crop, CropShape, FaceLandmarks};
use gsttrt_core::image::clip::tracks::{GivenUpClips, TrackRings};
use gsttrt_core::image::geometry::{BBox, Rect};
use gsttrt_core::image::overlay::Annotation;
use gsttrt_core::image::rotated::Corners;
use gsttrt_core::track::History;

use crate::gst::meta::read::MetaObjects;
use crate::gst::meta::tensor::{ObjectRegion, ObjectRegions, UnknownObjects};

/// The settings for objects as regions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectOptions {
    /// Names or ids of classes; all if it is empty.
    pub classes: Vec<String>,
    /// Minimum width and height in pixels of the frame.
    pub min_size: u32,
    /// Part of the box's width and height that is added on each side.
    pub padding: f32,
    /// Maximum number of objects of a frame.
    pub limit: usize,
    /// 1: each frame. 0: once for each id. Otherwise each so many frames.
    pub interval: u32,
    pub align: Align,
}

/// Selects the objects of one stream.
#[derive(Debug, Default)]
pub struct ObjectSelector {
    /// When an object was last looked at, and how large its box was then.
    looked_at: History<(u64, f32)>,
    /// Those that are looked at in this frame.
    now: Vec<u64>,
    /// The frame is tried again.
    is_again: bool,
    /// Those whose results were lost.
    unknown: UnknownObjects,
}

/// The objects of a frame.
#[derive(Debug, Default)]
pub struct ObjectSelection {
    pub objects: ObjectRegions,
    /// What becomes tensors.
    pub sources: Vec<Crop>,
    /// How many were too many.
    pub left_out: usize,
    /// With clips: whose pictures the sources are.
    pub pictures: Vec<ObjectPicture>,
    /// With clips: how many have no id, so that no picture of them is known again.
    pub without_id: usize,
}

/// A picture that is one of an object's clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectPicture {
    pub id: u64,
    /// The index of the object in the list.
    pub object: usize,
}

/// The objects that are wanted, each with its number and its box inside the frame.
type WantedObjects = Vec<(usize, BBox)>;

/// A box that has grown by this factor in area is looked at again.
const GROWN: f32 = 1.2;

impl ObjectSelector {
    /// The objects of a frame of that size that are wanted, and those of them that are looked at now: the largest
    /// first. Boxes that are no boxes, and parts of boxes outside the frame, are left out.
    pub fn select(&mut self, found: &MetaObjects, size: (u32, u32), options: &ObjectOptions) -> ObjectSelection {
        let (mut selection, wanted) = self.begin(found, size, options);
        let (now, frame): (u64, BBox) = (self.looked_at.frame(), Rect::from(size).into());
        for (number, bbox) in wanted {
            let track_id = found.annotations[number].track_id;
            let is_known = options.interval != 1
                && track_id.and_then(|id| self.looked_at.of(id)).is_some_and(|&(frame, area)| {
                    let is_recent = options.interval == 0 || now - frame < u64::from(options.interval);
                    is_recent && bbox.area() <= area * GROWN
                });
            if is_known || selection.sources.len() == options.limit {
                selection.objects.unseen.push(region(found, number));
            }
            let mut input = None;
            if !is_known {
                if selection.sources.len() == options.limit {
                    selection.left_out += 1;
                    continue;
                }
                input = Some(selection.sources.len());
                selection.sources.push(crop(found, number, &bbox, options, &frame));
                if let Some(id) = track_id {
                    self.looked_at.insert(id, (now, bbox.area()));
                    self.now.push(id);
                }
            }
            selection.objects.list.push(object(found, number, input));
        }
        selection
    }

    /// The same for clips: of each object with an id those pictures are wanted that are to be in `rings`. Which objects the model sees
    /// is known once their clips are whole. Where there are too many, those come first whose clips have begun: objects of about the same
    /// size would take turns otherwise, and none would have a whole clip. Says which clips were given up because there are too many.
    pub fn select_for_clips<T>(
        &mut self,
        found: &MetaObjects,
        size: (u32, u32),
        options: &ObjectOptions,
        rings: &mut TrackRings<T>,
    ) -> (ObjectSelection, GivenUpClips) {
        let (mut selection, wanted) = self.begin(found, size, options);
        let frame: BBox = Rect::from(size).into();
        let (mut known, mut chosen, mut ids) = (HashSet::new(), Vec::new(), Vec::new());
        let limit = options.limit.min(rings.limit());
        let track_id = |number: usize| found.annotations[number].track_id;
        let has_begun = |(number, _): &(usize, BBox)| track_id(*number).is_some_and(|id| rings.has_begun(id));
        let (begun, others): (WantedObjects, WantedObjects) = wanted.into_iter().partition(has_begun);
        for (number, bbox) in begun.into_iter().chain(others) {
            let track_id = track_id(number);
            match track_id.filter(|&id| ids.len() < limit && known.insert(id)) {
                Some(id) => {
                    chosen.push((number, bbox));
                    ids.push(id);
                }
                None => {
                    selection.without_id += usize::from(track_id.is_none());
                    selection.left_out += usize::from(track_id.is_some());
                    selection.objects.unseen.push(region(found, number));
                }
            }
        }
        let given_up = rings.arrive(&ids);
        for ((number, bbox), id) in chosen.into_iter().zip(ids) {
            if rings.wants(id) {
                selection.sources.push(crop(found, number, &bbox, options, &frame));
                selection.pictures.push(ObjectPicture { id, object: selection.objects.list.len() });
            }
            let is_expected = self.looked_at.of(id).is_some();
            selection.objects.list.push(ObjectRegion { is_expected, ..object(found, number, None) });
        }
        (selection, given_up)
    }

    /// Nothing has become of the frame, for lack of memory: it comes again, and nobody has looked at its objects.
    pub fn try_again(&mut self) {
        self.is_again = true;
    }

    /// Whether the model is to see the clip of an object that is whole, and takes it that it does.
    pub fn looks_at_clip(&mut self, id: u64, interval: u32) -> bool {
        let now = self.looked_at.frame();
        let is_recent = |&(frame, _): &(u64, f32)| interval == 0 || now - frame < u64::from(interval);
        let is_known = interval != 1 && self.looked_at.of(id).is_some_and(is_recent);
        if !is_known {
            self.looked_at.insert(id, (now, 0.0));
        }
        !is_known
    }

    /// Another frame: the objects that are wanted of it, the largest first, and a selection that has none of them yet.
    fn begin(
        &mut self,
        found: &MetaObjects,
        size: (u32, u32),
        options: &ObjectOptions,
    ) -> (ObjectSelection, WantedObjects) {
        match std::mem::take(&mut self.is_again) {
            true => self.now.iter().for_each(|&id| self.looked_at.forget(id)),
            false => self.looked_at.advance(),
        }
        self.now.clear();
        self.unknown.take().into_iter().for_each(|id| self.looked_at.forget(id));
        let frame: BBox = Rect::from(size).into();
        let smallest = options.min_size.max(1) as f32;
        let is_large = |bbox: &BBox| bbox.width() >= smallest && bbox.height() >= smallest;
        let (mut wanted, small): (Vec<_>, Vec<_>) = (found.annotations.iter().enumerate())
            .filter(|(_, annotation)| annotation.bbox.is_valid() && options.wants(annotation))
            .map(|(number, annotation)| (number, annotation.bbox.clip(&frame)))
            .filter(|(_, bbox)| bbox.is_valid())
            .partition(|(_, bbox)| is_large(bbox));
        wanted.sort_by(|(a, first), (b, second)| second.area().total_cmp(&first.area()).then(a.cmp(b)));
        let mut selection = ObjectSelection::default();
        selection.objects.unknown = self.unknown.clone();
        selection.objects.are_aligned = options.align != Align::None;
        selection.objects.unseen = small.iter().map(|(number, _)| region(found, *number)).collect();
        (selection, wanted)
    }
}

impl ObjectSelection {
    /// With clips: those of the list that no clip shows are unseen.
    pub fn note_unseen(&mut self) {
        let unseen = self.objects.list.iter().filter(|object| object.input.is_none()).map(|object| object.region);
        self.objects.unseen.extend(unseen);
    }
}

/// The index of the region of an object.
fn region(found: &MetaObjects, number: usize) -> Option<usize> {
    (number < found.regions).then_some(number)
}

fn object(found: &MetaObjects, number: usize, input: Option<usize>) -> ObjectRegion {
    let track_id = found.annotations[number].track_id;
    let (region, analytics) = (region(found, number), found.analytics[number]);
    ObjectRegion { region, analytics, track_id, input, is_expected: true }
}

/// What is cut out of the frame of an object with that box.
fn crop(found: &MetaObjects, number: usize, bbox: &BBox, options: &ObjectOptions, frame: &BBox) -> Crop {
    let source = padded(bbox, options.padding, frame);
    let shape = options.shape(&found.annotations[number], frame);
    Crop { shape, is_turned: found.turned[number], ..Crop::from(source) }
}

impl ObjectOptions {
    fn wants(&self, annotation: &Annotation) -> bool {
        self.classes.is_empty() || self.classes.iter().any(|name| annotation.is_called(name))
    }

    /// Whether faces are cut by their landmarks.
    pub fn aligns_faces(&self) -> bool {
        self.align == Align::Face
    }

    /// What an object is cut by in place of the rectangle around it.
    fn shape(&self, annotation: &Annotation, frame: &BBox) -> Option<CropShape> {
        match self.align {
            Align::None => None,
            Align::Face => annotation.keypoints.as_ref().and_then(FaceLandmarks::of).map(CropShape::Face),
            Align::Box | Align::Line => {
                let BBox { x1, y1, x2, y2 } = annotation.bbox;
                let corners = annotation.corners.unwrap_or([[x2, y2], [x2, y1], [x1, y1], [x1, y2]]);
                let corners = spread(&corners, self.padding);
                Some(if self.align == Align::Box { CropShape::Box(corners) } else { CropShape::line(&corners, frame) })
            }
        }
    }
}

/// The corners of a box that is larger by a part of its width and height on each side.
fn spread(corners: &Corners, padding: f32) -> Corners {
    let middle = [0, 1].map(|axis| (corners[0][axis] + corners[2][axis]) * 0.5);
    corners.map(|point| [0, 1].map(|axis| middle[axis] + (point[axis] - middle[axis]) * (1.0 + 2.0 * padding)))
}

/// Whole pixels that cover the box with its padding, in the frame.
fn padded(bbox: &BBox, padding: f32, frame: &BBox) -> Rect {
    let (across, down) = (bbox.width() * padding, bbox.height() * padding);
    BBox::new(bbox.x1 - across, bbox.y1 - down, bbox.x2 + across, bbox.y2 + down).clip(frame).pixels()
}

#[cfg(test)]
mod tests {
    use gsttrt_core::image::keypoints::{KeypointShape, ObjectKeypoints};

    use super::*;

    fn object([x1, y1, x2, y2]: [f32; 4], label: &'static str, track_id: Option<u64>) -> Annotation<'static> {
        let bbox = BBox::new(x1, y1, x2, y2);
        Annotation { bbox, class: Some(7), track_id, of_frame: false, ..Annotation::of_frame(label.into()) }
    }

    fn objects(annotations: Vec<Annotation<'static>>) -> MetaObjects {
        let regions = annotations.len();
        MetaObjects { regions, analytics: vec![None; regions], turned: vec![false; regions], annotations }
    }

    fn options() -> ObjectOptions {
        ObjectOptions { min_size: 16, limit: 300, interval: 1, ..ObjectOptions::default() }
    }

    fn sources(found: &MetaObjects, options: &ObjectOptions) -> Vec<[u32; 4]> {
        let selection = ObjectSelector::default().select(found, (640, 480), options);
        let edges = |Crop { source, .. }: &Crop| [source.left, source.top, source.right, source.bottom];
        selection.sources.iter().map(edges).collect()
    }

    #[test]
    fn each_option_shows() {
        let found = objects(vec![
            object([10.5, 20.5, 40.5, 50.5], "disc", None),
            object([100.0, 100.0, 200.0, 200.0], "box", None),
            object([300.0, 300.0, 308.0, 400.0], "disc", None),
            object([620.0, 400.0, 700.0, 500.0], "disc", None),
        ]);
        let [small, large, thin, outer] =
            [[10, 20, 41, 51], [100, 100, 200, 200], [300, 300, 308, 400], [620, 400, 640, 480]];
        let named = |classes: &[&str]| classes.iter().map(|class| class.to_string()).collect();
        for (options, wanted) in [
            (options(), vec![large, outer, small]),
            (ObjectOptions { classes: named(&["disc"]), ..options() }, vec![outer, small]),
            (ObjectOptions { classes: named(&["box", "7"]), ..options() }, vec![large, outer, small]),
            (ObjectOptions { classes: named(&["cat"]), ..options() }, vec![]),
            (ObjectOptions { min_size: 8, ..options() }, vec![large, outer, small, thin]),
            (ObjectOptions { min_size: 21, ..options() }, vec![large, small]),
            (ObjectOptions { limit: 1, ..options() }, vec![large]),
            (ObjectOptions { padding: 0.5, min_size: 30, ..options() }, vec![[50, 50, 250, 250], [0, 5, 56, 66]]),
        ] {
            assert_eq!(sources(&found, &options), wanted, "{options:?}");
        }
        let few = ObjectOptions { limit: 1, ..options() };
        let selection = ObjectSelector::default().select(&found, (640, 480), &few);
        assert_eq!((selection.left_out, selection.objects.unseen), (2, vec![Some(2), Some(3), Some(0)]));
    }

    #[test]
    fn faces_are_cut_by_their_landmarks() {
        let points: Vec<f32> = (0..10).map(|at| 20.0 + at as f32).collect();
        let with = |values: &[f32]| {
            let shape = KeypointShape { count: values.len() as u16 / 2, dims: 2 };
            let keypoints = Some(ObjectKeypoints { shape, values: values.to_vec().into() });
            Annotation { keypoints, ..object([10.0, 10.0, 50.0, 50.0], "face", None) }
        };
        let (face, partial) = (with(&points), with(&points[..8]));
        let other = object([10.0, 10.0, 50.0, 50.0], "face", None);
        let shape = |face: Annotation<'static>, align: Align| {
            let options = ObjectOptions { align, ..options() };
            let selection = ObjectSelector::default().select(&objects(vec![face]), (640, 480), &options);
            assert_eq!(selection.objects.are_aligned, align != Align::None);
            assert_eq!(selection.sources[0].source, Rect { left: 10, top: 10, right: 50, bottom: 50 });
            selection.sources[0].shape
        };
        let wanted = FaceLandmarks([[20.0, 21.0], [22.0, 23.0], [24.0, 25.0], [26.0, 27.0], [28.0, 29.0]]);
        assert_eq!(shape(face.clone(), Align::Face), Some(CropShape::Face(wanted)));
        assert_eq!(shape(face, Align::None), None);
        assert_eq!([partial, other].map(|object| shape(object, Align::Face)), [None, None]);
    }

    #[test]
    fn boxes_are_cut_by_their_corners() {
        let upright = object([10.0, 10.0, 50.0, 30.0], "text", None);
        let corners = [[50.0, 20.0], [30.0, 10.0], [10.0, 20.0], [30.0, 30.0]];
        let rotated = Annotation { corners: Some(corners), ..upright.clone() };
        let shapes = |padding: f32| {
            let options = ObjectOptions { align: Align::Box, padding, ..options() };
            let found = objects(vec![upright.clone(), rotated.clone()]);
            let selection = ObjectSelector::default().select(&found, (640, 480), &options);
            selection.sources.iter().map(|crop| crop.shape.unwrap()).collect::<Vec<_>>()
        };
        let as_box = [[50.0, 30.0], [50.0, 10.0], [10.0, 10.0], [10.0, 30.0]];
        assert_eq!(shapes(0.0), [as_box, corners].map(CropShape::Box));
        let larger = [[70.0, 40.0], [70.0, 0.0], [-10.0, 0.0], [-10.0, 40.0]];
        assert_eq!(shapes(0.5)[0], CropShape::Box(larger));
        let lines = ObjectOptions { align: Align::Line, ..options() };
        let selection = ObjectSelector::default().select(&objects(vec![rotated]), (640, 480), &lines);
        assert_eq!(selection.sources[0].shape, Some(CropShape::Line(corners)));
    }

    #[test]
    fn what_is_upside_down_is_known_of_the_object() {
        let mut found =
            objects(vec![object([10.0, 10.0, 50.0, 30.0], "text", None), object([0.0, 0.0, 99.0, 99.0], "", None)]);
        found.turned[0] = true;
        let options = ObjectOptions { align: Align::Box, ..options() };
        let selection = ObjectSelector::default().select(&found, (640, 480), &options);
        let turned: Vec<bool> = selection.sources.iter().map(|crop| crop.is_turned).collect();
        assert_eq!(turned, [false, true], "the larger one comes first");
    }

    #[test]
    fn pictures_for_clips_are_of_objects_with_ids() {
        let found = objects(vec![
            object([100.0, 100.0, 200.0, 200.0], "person", Some(3)),
            object([100.0, 100.0, 190.0, 190.0], "person", None),
            object([0.0, 0.0, 80.0, 80.0], "person", Some(3)),
            object([0.0, 0.0, 70.0, 70.0], "person", Some(4)),
            object([0.0, 0.0, 60.0, 60.0], "person", Some(5)),
        ]);
        let (mut selector, mut rings) = (ObjectSelector::default(), TrackRings::new(2, 2, 2));
        let options = ObjectOptions { limit: 2, ..options() };
        let mut pictures = |rings: &mut TrackRings<u64>| {
            rings.advance(0);
            let (mut selection, given_up) = selector.select_for_clips(&found, (640, 480), &options, rings);
            assert_eq!(given_up, GivenUpClips::default());
            assert_eq!((selection.without_id, selection.left_out), (1, 2), "the second of an id is one of them");
            let listed: Vec<_> =
                selection.objects.list.iter().map(|object| (object.region, object.track_id, object.input)).collect();
            assert_eq!(listed, [(Some(0), Some(3), None), (Some(3), Some(4), None)]);
            assert_eq!(selection.sources.len(), selection.pictures.len());
            for picture in &selection.pictures {
                rings.push(picture.id, 0);
            }
            selection.note_unseen();
            let mut unseen = selection.objects.unseen;
            unseen.sort_unstable();
            assert_eq!(unseen, [0, 1, 2, 3, 4].map(Some));
            selection.pictures
        };
        let both = [ObjectPicture { id: 3, object: 0 }, ObjectPicture { id: 4, object: 1 }];
        assert_eq!([0; 3].map(|_| pictures(&mut rings)), [both.to_vec(), vec![], both.to_vec()]);
    }

    #[test]
    fn clips_that_have_begun_go_on_where_objects_are_too_many() {
        // There is memory for fewer of them than are wanted.
        let (mut selector, mut rings) = (ObjectSelector::default(), TrackRings::new(3, 1, 2));
        let options = ObjectOptions { limit: 3, ..options() };
        // The objects whose clips are whole, and how many objects are left out.
        let mut next = |sides: [f32; 3]| {
            let object = |(id, side): (usize, f32)| object([0.0, 0.0, side, side], "person", Some(id as u64));
            let found = objects(sides.into_iter().enumerate().map(object).collect());
            rings.advance(0);
            let (selection, given_up) = selector.select_for_clips(&found, (640, 480), &options, &mut rings);
            assert_eq!(given_up, GivenUpClips::default());
            let mut whole: Vec<u64> = selection.pictures.iter().map(|picture| picture.id).collect();
            whole.retain(|&id| rings.push(id, ()));
            (whole, selection.left_out)
        };
        // Each of them is the smallest once.
        let found = [[50.0, 51.0, 52.0], [52.0, 50.0, 51.0], [51.0, 52.0, 50.0]].map(&mut next);
        assert_eq!(found, [(vec![], 1), (vec![], 1), (vec![1, 2], 1)]);
        // One is gone, and the one that was too many takes its place.
        assert_eq!(next([60.0, 0.0, 50.0]), (vec![2], 0));
    }

    #[test]
    fn clips_are_looked_at_when_it_is_time() {
        for (interval, wanted) in [(1, [true; 4]), (0, [true, false, false, false]), (2, [true, false, true, false])] {
            let (mut selector, mut rings) = (ObjectSelector::default(), TrackRings::<()>::new(1, 1, 9));
            let found = objects(vec![object([0.0, 0.0, 50.0, 50.0], "", Some(3))]);
            let look = |_| {
                let (selection, _) = selector.select_for_clips(&found, (640, 480), &options(), &mut rings);
                (selection.objects.list[0].is_expected, selector.looks_at_clip(3, interval))
            };
            let (are_expected, looks): (Vec<bool>, Vec<bool>) = [0; 4].map(look).into_iter().unzip();
            assert_eq!((are_expected, looks), (vec![false, true, true, true], wanted.to_vec()), "{interval}");
        }
    }

    /// There was no memory for what is made of them.
    #[test]
    fn objects_of_a_frame_that_is_tried_again_are_looked_at() {
        let found =
            objects(vec![object([0.0, 0.0, 50.0, 50.0], "", Some(3)), object([0.0, 0.0, 40.0, 40.0], "", None)]);
        for (interval, wanted) in [(0, [2, 1, 1]), (1, [2, 2, 2]), (2, [2, 1, 2])] {
            let (mut selector, options) = (ObjectSelector::default(), ObjectOptions { interval, ..options() });
            let look = |selector: &mut ObjectSelector| selector.select(&found, (640, 480), &options).sources.len();
            let looked = wanted.map(|_| {
                let first = look(&mut selector);
                selector.try_again();
                assert_eq!(look(&mut selector), first, "{interval}");
                first
            });
            assert_eq!(looked, wanted, "{interval}");
        }
    }

    /// Metas of other elements may hold anything.
    #[test]
    fn what_is_no_box_is_left_out() {
        let (nan, far) = (f32::NAN, f32::INFINITY);
        for edges in [
            [nan, 0.0, 100.0, 100.0],
            [0.0, 0.0, nan, nan],
            [50.0, 50.0, 10.0, 100.0],
            [-far, 0.0, far, 100.0],
            [700.0, 500.0, 900.0, 900.0],
            [-300.0, -300.0, -100.0, -100.0],
            [5.0, 5.0, 5.0, 5.0],
        ] {
            assert_eq!(sources(&objects(vec![object(edges, "", None)]), &options()), [[0; 4]; 0], "{edges:?}");
        }
        let one = ObjectOptions { min_size: 1, ..options() };
        assert_eq!(sources(&objects(vec![object([9.0, 9.0, 10.0, 10.0], "", None)]), &one), [[9, 9, 10, 10]]);
        let huge = objects(vec![object([-1e9, -1e9, 1e9, 1e9], "", None)]);
        assert_eq!(sources(&huge, &options()), [[0, 0, 640, 480]]);
    }

    #[test]
    fn objects_with_ids_are_looked_at_again_when_it_is_time() {
        let at = |side: f32| objects(vec![object([100.0, 100.0, 100.0 + side, 100.0 + side], "", Some(3))]);
        let looked = |interval: u32, sides: &[f32]| {
            let (mut selector, options) = (ObjectSelector::default(), ObjectOptions { interval, ..options() });
            let look = |&side: &f32| selector.select(&at(side), (640, 480), &options).objects.list[0].input.is_some();
            sides.iter().map(look).collect::<Vec<_>>()
        };
        assert_eq!(looked(1, &[50.0; 4]), [true; 4]);
        assert_eq!(looked(0, &[50.0; 4]), [true, false, false, false]);
        assert_eq!(looked(2, &[50.0; 5]), [true, false, true, false, true]);
        // From 2500 pixels to 2916, which is less than a fifth more, then to 3136, then smaller.
        assert_eq!(looked(0, &[50.0, 54.0, 56.0, 50.0]), [true, false, true, false]);
        let (mut selector, once) = (ObjectSelector::default(), ObjectOptions { interval: 0, ..options() });
        let mut look = || selector.select(&at(50.0), (640, 480), &once).objects;
        let first = look();
        assert!(first.list[0].input.is_some() && first.unseen.is_empty());
        let held = look();
        assert!(held.list[0].input.is_none() && held.unseen == [Some(0)]);
        held.unknown.report(3);
        assert!(look().list[0].input.is_some(), "its result was lost");
        // Without an id nothing is known of it.
        let mut selector = ObjectSelector::default();
        let once = ObjectOptions { interval: 0, ..options() };
        for _ in 0..2 {
            let found = objects(vec![object([100.0, 100.0, 150.0, 150.0], "", None)]);
            assert_eq!(selector.select(&found, (640, 480), &once).sources.len(), 1);
        }
    }
}
