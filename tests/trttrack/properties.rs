// SPDX-License-Identifier: MPL-2.0
//! What each property of trttrack changes.

use super::*;

#[test]
fn each_property_counts() {
    const HERE: [f64; 2] = [100.0, 100.0];
    let last = |properties: &str, frames: &[&[Seen]]| {
        let mut clip = Clip::new(properties);
        frames.iter().map(|seen| clip.ids(seen)).last().unwrap()
    };
    let (sure, weak, faint) = (("a", 0.9, HERE), ("a", 0.3, HERE), ("a", 0.05, HERE));
    assert_eq!(last("", &[&[sure], &[weak]]), [1]);
    assert_eq!(last("", &[&[sure], &[faint]]), [0]);
    assert_eq!(last("low-thresh=0.01", &[&[sure], &[faint]]), [1]);
    assert_eq!(last("", &[&[weak]]), [0]);
    assert_eq!(last("track-thresh=0.2 det-thresh=0.2", &[&[weak]]), [1]);
    assert_eq!(last("track-thresh=0.2", &[&[weak]]), [0]);
    let far = ("a", 0.9, [115.0, 110.0]);
    assert_eq!(last("", &[&[sure], &[far]]), [1]);
    assert_eq!(last("match-thresh=0.5", &[&[sure], &[far]]), [0]);
    let less_sure = ("a", 0.6, [115.0, 100.0]);
    assert_eq!(last("match-thresh=0.6", &[&[sure], &[less_sure]]), [0]);
    assert_eq!(last("match-thresh=0.6 fuse-score=false", &[&[sure], &[less_sure]]), [1]);
    assert_eq!(last("", &[&[sure], &[("b", 0.9, HERE)]]), [0]);
    assert_eq!(last("per-class=false", &[&[sure], &[("b", 0.9, HERE)]]), [1]);
    for (properties, wanted) in [("", 1), ("iou-thresh=0.7", 0)] {
        assert_eq!(last(&format!("tracker=iou {properties}"), &[&[sure], &[far]]), [wanted]);
    }
    let late: &[&[Seen]] = &[&[], &[], &[], &[sure], &[sure], &[sure]];
    for (properties, wanted) in [("", 0), ("min-hits=2", 1)] {
        assert_eq!(last(&format!("tracker=ocsort {properties}"), late), [wanted]);
    }
    for (properties, wanted) in [("", 0), ("use-byte=true", 1)] {
        let fading: &[&[Seen]] = &[&[sure], &[sure], &[sure], &[sure], &[weak]];
        assert_eq!(last(&format!("tracker=ocsort {properties}"), fading), [wanted]);
    }
    // Which of two boxes continues an object, by its direction.
    let turn: [&[Seen]; 6] = [
        &[("a", 0.9, [100.0, 100.0])],
        &[("a", 0.9, [100.0, 108.0])],
        &[("a", 0.9, [100.0, 116.0])],
        &[("a", 0.9, [100.0, 124.0])],
        &[("a", 0.9, [108.0, 124.0])],
        &[("a", 0.9, [114.0, 124.0]), ("a", 0.9, [110.0, 132.0])],
    ];
    let forks = ["inertia=1 delta-t=1", "inertia=1 delta-t=3", "inertia=0"]
        .map(|properties| last(&format!("tracker=ocsort {properties}"), &turn));
    assert!(forks.iter().any(|fork| *fork != forks[0]), "{forks:?}");
    let others: &[Seen] = &[("a", 0.9, HERE), ("bb", 0.9, [300.0, 100.0]), ("ccc", 0.9, [500.0, 100.0])];
    assert_eq!(last("", &[others]), [1, 2, 3]);
    assert_eq!(last("classes=ccc,1", &[others]), [1, 0, 2]);
    assert_eq!(last("classes=\" ccc , 1 ,\"", &[others]), [1, 0, 2]);
    assert_eq!(last("classes=none", &[others]), [0, 0, 0]);
    assert_eq!(last("", &[&[sure], &[], &[], &[sure]]), [1]);
    assert_eq!(last("lost-after=50000000", &[&[sure], &[], &[], &[sure]]), [0]);
}

#[test]
fn properties_of_boosttrack_count() {
    const HERE: [f64; 2] = [100.0, 100.0];
    let sure = ("a", 0.9, HERE);
    // The ids of the last frame, after ten of that object.
    let last = |properties: &str, frames: &[&[Seen]]| {
        let mut clip = Clip::new(&format!("tracker=boosttrack {properties}"));
        (0..10).for_each(|_| assert_eq!(clip.ids(&[sure]), [1], "{properties}"));
        frames.iter().map(|seen| clip.ids(seen)).last().unwrap()
    };
    let weak: &[Seen] = &[("a", 0.3, HERE)];
    for (properties, wanted) in [
        ("", 1),
        ("use-dlo-boost=false", 0),
        ("use-vt=false", 0),
        ("use-vt=false det-thresh=0.5", 1),
        ("use-vt=false use-sb=false", 1),
        ("use-vt=false use-sb=false dlo-boost-coef=0.5", 0),
        ("low-thresh=0.4", 0),
    ] {
        assert_eq!(last(properties, &[weak]), [wanted], "{properties}");
    }
    let weak_aside: &[Seen] = &[("a", 0.3, [102.0, 100.0])];
    for (properties, wanted) in [("", 1), ("use-rich-s=false", 0)] {
        assert_eq!(last(&format!("use-vt=false use-sb=false {properties}"), &[weak_aside]), [wanted], "{properties}");
    }
    // One that is first seen faintly, far from the other one.
    let with_far = [0.3, 0.9, 0.9, 0.9].map(|score| [sure, ("a", score, [500.0, 300.0])]);
    let frames: Vec<&[Seen]> = with_far.iter().map(|seen| &seen[..]).collect();
    for (properties, wanted) in [("", [1, 2]), ("use-duo-boost=false", [1, 0])] {
        assert_eq!(last(properties, &frames), wanted, "{properties}");
    }
    // The one that is lower overlaps by 73 of 87 pixels, and the one to the right, which is nearer, by 36 of 44.
    let two: &[Seen] = &[("a", 0.9, [104.0, 100.0]), ("a", 0.9, [100.0, 107.0])];
    for (properties, wanted) in [("", [1, 0]), ("lambda-mhd=0", [0, 1]), ("iou-thresh=0.83", [0, 1])] {
        assert_eq!(last(properties, &[two]), wanted, "{properties}");
    }
    for (properties, wanted) in [("lambda-iou=0", 2), ("lambda-iou=2", 1)] {
        let mut clip = Clip::new(&format!("tracker=boosttrack lambda-mhd=0 lambda-shape=0 {properties}"));
        (0..10).for_each(|_| assert_eq!(clip.ids(&[sure, ("a", 0.9, [116.0, 100.0])]), [1, 2]));
        (0..6).for_each(|_| assert_eq!(clip.ids(&[sure]), [1]));
        // A little nearer to the one that was not seen, and that is not sure to be there.
        assert_eq!(clip.ids(&[("a", 0.9, [109.0, 100.0])]), [wanted], "{properties}");
    }
}

/// The ids of two objects that walk towards each other, turn where they meet, and walk back. They do not look alike.
fn ids_after_turning(properties: &str) -> Vec<i32> {
    let mut clip = Clip::new(properties);
    let mut given = Vec::new();
    for at in -50..=40i32 {
        let apart = 4.0 * f64::from(at.abs());
        let seen = [("a", 0.9, [300.0 - apart, 200.0]), ("a", 0.9, [300.0 + apart, 204.0])];
        // The length of foreign vectors may be any.
        let buffer = with_vectors(frame(&seen, false), &[[1.0, 0.0], [0.0, 7.0]], "reid", false);
        given = ids(&clip.push(buffer));
    }
    assert_eq!(clip.line.said(), [""; 0]);
    given
}

#[test]
fn each_property_of_appearance_counts() {
    let (kept, switched) = ([1, 2], [2, 1]);
    for (properties, wanted) in [
        ("botsort-iou", switched),
        ("botsort", kept),
        ("botsort proximity-thresh=0.2", switched),
        ("botsort appearance-thresh=0", switched),
        ("ocsort", switched),
        ("deepocsort", kept),
        ("deepocsort w-association-emb=0 aw-param=0", switched),
        ("deepocsort w-association-emb=1 aw-param=0", kept),
        ("deepocsort w-association-emb=0.1 aw-param=0", switched),
        ("deepocsort w-association-emb=0.1 aw-param=1", kept),
        ("boosttrack", kept),
        ("boosttrack lambda-emb=0", switched),
        ("boosttrack lambda-emb=0.1", switched),
        ("boosttrack lambda-emb=0.6", kept),
    ] {
        assert_eq!(ids_after_turning(&format!("tracker={properties}")), wanted, "{properties}");
    }
}

#[test]
fn lost_objects_that_turned_are_found_unless_that_is_off() {
    for tracker in ["bytetrack", "botsort-iou", "ocsort", "botsort", "deepocsort", "boosttrack"] {
        for (reassociate, wanted) in [(true, 1), (false, 2)] {
            let mut clip = Clip::new(&format!("tracker={tracker} reassociate={reassociate}"));
            (0..40).map(f64::from).for_each(|at| assert_eq!(clip.ids(&[("a", 0.9, [100.0 + 3.0 * at, 200.0])]), [1]));
            (0..12).for_each(|_| drop(clip.ids(&[])));
            // It is looked for at 256.
            let given = (0..4).map(f64::from).map(|at| clip.ids(&[("a", 0.9, [178.0 - 3.0 * at, 200.0])])).last();
            assert_eq!(given, Some(vec![wanted]), "{tracker}, reassociate={reassociate}");
        }
    }
}

/// All would be left out, and nobody would know why.
#[test]
fn classes_that_no_model_before_has_are_told_once() {
    let folder = scratch("track-classes");
    let model = model(&folder, &[[8.0, 12.0, 32.0, 32.0, 0.9, 0.0]]);
    let embedder = crate::common::boxes::embedder(&folder, "1");
    let frame = || grey(SIDE * SIDE * 3);
    for (behind, property) in [
        ("trttrack name=behind classes=a,nosuch,2".to_string(), "classes"),
        (
            format!(
                "trtpreprocess name=behind regions=objects object-classes=a,nosuch ! trtinfer model-file={embedder} ! trtnms"
            ),
            "object-classes",
        ),
        ("trtmatch name=behind identities=track-classes identity-classes=nosuch,a".to_string(), "identity-classes"),
    ] {
        let mut line =
            Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false ! {behind}"));
        (0..3).for_each(|_| drop(line.push(frame())));
        // The event comes again.
        let sink = line.by_name("behind").static_pad("sink").unwrap();
        let source = sink.peer().unwrap();
        source.unlink(&sink).unwrap();
        source.link(&sink).unwrap();
        line.push(frame());
        let said = line.said();
        let wanted = format!("{property}: the model has no class “nosuch”: its classes are a, b, c");
        let told: Vec<&String> = said.iter().filter(|text| text.contains("no class")).collect();
        assert!(matches!(&told[..], [only] if only.contains(&wanted)), "{behind}: {said:?}");
    }
    // While playing, too. Names of before are not told again.
    let mut line =
        Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false ! trttrack classes=a"));
    line.push(frame());
    assert_eq!(line.said(), [""; 0]);
    line.element("trttrack").set_property("classes", "b,cat");
    (0..2).for_each(|_| drop(line.push(frame())));
    assert!(matches!(&line.said()[..], [only] if only.contains("“cat”") && only.ends_with("is followed.")));
    line.element("trttrack").set_property_from_str("track-thresh", "0.7");
    line.push(frame());
    assert_eq!(line.said(), [""; 0]);
    // Of other elements' objects nothing is known.
    let mut clip = Clip::new("classes=nosuch");
    clip.ids(&[("a", 0.9, [100.0, 100.0])]);
    assert_eq!(clip.line.said(), [""; 0]);
}
