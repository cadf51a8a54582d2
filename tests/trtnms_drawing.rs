// SPDX-License-Identifier: MPL-2.0
//! trtnms: what is drawn and what is copied.

use gst::prelude::*;
use gst_video::prelude::*;
use gst_video::{VideoFormat, VideoFrameRef, VideoInfo};
use gsttrt_core::image::frame::PixelFormat;

use crate::common::boxes::{GREY, Line, SIDE, address, found, grey, model};
use crate::common::scratch;

/// One box on even pixels.
const ONE: [[f32; 6]; 1] = [[20.0, 24.0, 44.0, 40.0, 0.9, 0.0]];

// ------------------------------------------------------------------------------------------- what is drawn

/// Whether a pixel lies on the outline of [`ONE`], `width` pixels wide, inside the box.
fn on_outline(x: u32, y: u32, width: u32) -> bool {
    let inside = |by: u32| (20 + by..44 - by).contains(&x) && (24 + by..40 - by).contains(&y);
    inside(0) && !inside(width)
}

fn bytes(buffer: &gst::BufferRef) -> Vec<u8> {
    buffer.map_readable().unwrap().to_vec()
}

/// For each component, the pixels that differ from [`GREY`], in pixels of the component.
fn changed(info: &VideoInfo, bytes: &[u8]) -> Vec<Vec<(u32, u32)>> {
    let component = |c: u8| {
        let pixels = (0..info.comp_height(c)).flat_map(|y| (0..info.comp_width(c)).map(move |x| (x, y)));
        let place = |x: u32, y: u32| {
            info.comp_offset(c) + y as usize * info.comp_stride(c) as usize + x as usize * info.comp_pstride(c) as usize
        };
        pixels.filter(|&(x, y)| bytes[place(x, y)] != GREY).collect()
    };
    (0..info.n_components() as u8).map(component).collect()
}

#[test]
fn the_outline_and_nothing_else_is_drawn_in_every_format() {
    let model = model(&scratch("outline"), &ONE);
    for (format, line_width) in PixelFormat::ALL.into_iter().zip([2, 4].into_iter().cycle()) {
        let mut line = Line::new(&model, &format!("draw-labels=false line-width={line_width}"));
        line.caps(format.name(), SIDE, SIDE);
        let info = VideoInfo::builder(VideoFormat::from_string(format.name()), SIDE, SIDE).build().unwrap();
        let drawn = line.push(grey(info.size() as u32));
        for (c, changed) in changed(&info, &bytes(&drawn)).into_iter().enumerate() {
            let step = SIDE / info.comp_width(c as u8);
            let all = (0..SIDE / step).flat_map(|y| (0..SIDE / step).map(move |x| (x, y)));
            let expected: Vec<_> = all.filter(|&(x, y)| on_outline(x * step, y * step, line_width)).collect();
            assert_eq!(changed, expected, "{} component {c}", format.name());
        }
    }
}

#[test]
fn drawing_changes_while_playing() {
    let mut line = Line::new(&model(&scratch("live-draw"), &ONE), "draw-labels=false line-width=2");
    let info = VideoInfo::builder(VideoFormat::Gray8, SIDE, SIDE).build().unwrap();
    line.caps("GRAY8", SIDE, SIDE);
    let mut off_the_outline = |property: &str, value: &str, width: u32| -> (usize, usize) {
        line.nms().set_property_from_str(property, value);
        let changed = changed(&info, &bytes(&line.push(grey(SIDE * SIDE)))).remove(0);
        let on = changed.iter().filter(|&&(x, y)| on_outline(x, y, width)).count();
        (on, changed.len() - on)
    };
    let outline = |width: usize| 24 * 16 - (24 - 2 * width) * (16 - 2 * width);
    assert_eq!(off_the_outline("line-width", "2", 2), (outline(2), 0));
    assert_eq!(off_the_outline("line-width", "5", 5), (outline(5), 0));
    assert_eq!(off_the_outline("line-width", "0", 2), (outline(2), 0), "0 is by the size of the frame");
    let (on, labels) = off_the_outline("draw-labels", "true", 2);
    assert!(on == outline(2) && labels > 50, "{on} {labels}");
    assert_eq!(off_the_outline("draw", "false", 2), (0, 0));
    assert_eq!(off_the_outline("draw", "true", 2), (on, labels));
}

// ------------------------------------------------------------------------------------------- what is copied

/// A frame that another element still references, in the ways that happen.
fn shared_frames() -> [(&'static str, gst::Buffer, gst::Buffer); 2] {
    let (tee, decoder) = (grey(SIDE * SIDE * 3), grey(SIDE * SIDE * 3));
    [("the buffer has two owners", tee.clone(), tee), ("its memory has two owners", decoder.copy(), decoder)]
}

#[test]
fn shared_frames_are_copied_before_drawing() {
    let mut line = Line::new(&model(&scratch("shared"), &ONE), "");
    for (how, ours, theirs) in shared_frames() {
        let drawn = line.push(ours);
        assert!(bytes(&drawn).iter().any(|&byte| byte != GREY), "{how}");
        assert!(bytes(&theirs).iter().all(|&byte| byte == GREY), "{how}");
        assert_ne!(address(&drawn), address(&theirs), "{how}");
    }
}

#[test]
fn frames_are_not_copied_without_need() {
    let model = model(&scratch("no-copy"), &ONE);
    for nms in ["draw=false", "score-threshold=1", "classes=b"] {
        let mut line = Line::new(&model, nms);
        for (how, ours, theirs) in shared_frames() {
            assert_eq!(address(&line.push(ours)), address(&theirs), "{nms}: {how}");
        }
    }
    let mut line = Line::new(&model, "");
    let ours = grey(SIDE * SIDE * 3);
    let place = address(&ours);
    let drawn = line.push(ours);
    assert_eq!(address(&drawn), place, "nothing else references it");
    assert!(bytes(&drawn).iter().any(|&byte| byte != GREY));
}

#[test]
fn frames_without_inference_pass_untouched() {
    let model = model(&scratch("interval"), &ONE);
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} interval=3 ! trtnms post-messages=true hold-detections=false"
    ));
    for number in 0..7 {
        let theirs = grey(SIDE * SIDE * 3);
        let ours = line.push(theirs.clone());
        assert_eq!(found(&ours).len(), usize::from(number % 3 == 0), "{number}");
        assert_eq!(address(&ours) == address(&theirs), number % 3 != 0, "{number}");
        // But for the mark that nobody has seen them.
        let is_marked = gst::meta::CustomMeta::from_buffer(&ours, "GstTrtUnseenMeta").is_ok();
        assert_eq!(is_marked, number % 3 != 0, "{number}");
        assert_eq!(ours.iter_meta::<gst::Meta>().count() == usize::from(is_marked), number % 3 != 0, "{number}");
    }
    let numbers: Vec<u64> = line.messages().iter().map(|message| message.get("frame").unwrap()).collect();
    assert_eq!(numbers, [0, 3, 6]);
}

/// Demuxers and live sources send a segment again with what they learn on the way.
#[test]
fn boxes_are_held_until_another_part_of_the_stream_begins() {
    let model = model(&scratch("held"), &ONE);
    let mut line = Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} interval=100 ! trtnms"));
    assert_eq!((line.found().len(), line.found().len()), (1, 1));
    let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
    segment.set_stop(gst::ClockTime::from_seconds(9));
    line.push_event(gst::event::Segment::new(&segment));
    assert_eq!(line.found().len(), 1, "its end is known now");
    let inferred =
        |line: &mut Line| line.element("trtinfer").property::<gst::Structure>("stats").get::<u64>("inferred").unwrap();
    assert_eq!(inferred(&mut line), 1);
    segment.set_time(gst::ClockTime::from_seconds(3));
    line.push_event(gst::event::Segment::new(&segment));
    assert_eq!((line.found().len(), inferred(&mut line)), (1, 2), "it is another part, and has boxes of its own");
}

#[test]
fn copies_come_from_a_pool_that_stays_small() {
    let mut line = Line::new(&model(&scratch("pool"), &ONE), "");
    let mut places: Vec<usize> = Vec::new();
    for number in 0..20 {
        let theirs = match number % 2 {
            0 => grey(SIDE * SIDE * 3),
            _ => gst::Buffer::from_slice([GREY; (SIDE * SIDE * 3) as usize]), // read-only memory
        };
        places.push(address(&line.push(theirs.clone())));
    }
    places.sort_unstable();
    places.dedup();
    assert!(places.len() <= 2, "{places:?}");
}

#[test]
fn copies_keep_times_flags_and_metas() {
    let mut line = Line::new(&model(&scratch("metadata"), &ONE), "");
    let mut theirs = grey(SIDE * SIDE * 3);
    {
        let buffer = theirs.get_mut().unwrap();
        buffer.set_pts(gst::ClockTime::from_mseconds(40));
        buffer.set_dts(gst::ClockTime::from_mseconds(20));
        buffer.set_duration(gst::ClockTime::from_mseconds(33));
        buffer.set_offset(7);
        buffer.set_flags(gst::BufferFlags::MARKER | gst::BufferFlags::DISCONT);
        let caps = gst::Caps::builder("timestamp/x-unix").build();
        gst::ReferenceTimestampMeta::add(buffer, &caps, gst::ClockTime::from_seconds(5), None);
        gst_video::VideoRegionOfInterestMeta::add(buffer, "elsewhere", (1, 2, 3, 4)).set_id(9);
    }
    let ours = line.push(theirs.clone());
    assert_ne!(address(&ours), address(&theirs));
    assert_eq!((ours.pts(), ours.dts(), ours.duration()), (theirs.pts(), theirs.dts(), theirs.duration()));
    assert_eq!(ours.offset(), 7);
    assert!(ours.flags().contains(gst::BufferFlags::MARKER | gst::BufferFlags::DISCONT));
    assert_eq!(ours.meta::<gst::ReferenceTimestampMeta>().unwrap().timestamp(), gst::ClockTime::from_seconds(5));
    let ids: Vec<_> =
        ours.iter_meta::<gst_video::VideoRegionOfInterestMeta>().map(|meta| (meta.roi_type(), meta.id())).collect();
    assert_eq!(ids, [("elsewhere", 9), ("a", 10)], "ids stay distinct");
}

/// The picture row by row, wherever its rows lie.
fn picture(buffer: &gst::BufferRef, info: &VideoInfo) -> Vec<u8> {
    let frame = VideoFrameRef::from_buffer_ref_readable(buffer, info).unwrap();
    let rows = |plane: u32| {
        let (stride, data) = (frame.plane_stride()[plane as usize] as usize, frame.plane_data(plane).unwrap());
        data.chunks(stride).take((SIDE >> plane) as usize).flat_map(|row| row[..SIDE as usize].to_vec())
    };
    (0..2).flat_map(rows).collect()
}

#[test]
fn padded_frames_are_drawn_on_and_copied_alike() {
    let mut line = Line::new(&model(&scratch("padded"), &ONE), "");
    line.caps("NV12", SIDE, SIDE);
    let info = VideoInfo::builder(VideoFormat::Nv12, SIDE, SIDE).build().unwrap();
    let expected = picture(&line.push(grey(SIDE * SIDE * 3 / 2)), &info);

    // 16 bytes before the picture, 32 after each row and between the planes, all of them no grey.
    let (stride, start, rows) = (SIDE as usize + 32, 16, SIDE as usize);
    let chroma = start + rows * stride + 32;
    let mut padded = vec![200; chroma + rows / 2 * stride];
    for row in (0..rows).map(|y| start + y * stride).chain((0..rows / 2).map(|y| chroma + y * stride)) {
        padded[row..row + SIDE as usize].fill(GREY);
    }
    for (copied, mut buffer) in
        [(false, gst::Buffer::from_mut_slice(padded.clone())), (true, gst::Buffer::from_slice(padded))]
    {
        let place = address(&buffer);
        gst_video::VideoMeta::add_full(
            buffer.get_mut().unwrap(),
            gst_video::VideoFrameFlags::empty(),
            VideoFormat::Nv12,
            SIDE,
            SIDE,
            &[start, chroma],
            &[stride as i32; 2],
        )
        .unwrap();
        let drawn = line.push(buffer);
        assert!(picture(&drawn, &info) == expected, "copied: {copied}");
        assert_eq!(address(&drawn) != place, copied);
        assert_eq!(drawn.size() == info.size(), copied, "copies are laid out as the caps say");
    }
    let next = line.push(gst::Buffer::from_slice([GREY; (SIDE * SIDE * 3 / 2) as usize]));
    assert!(picture(&next, &info) == expected, "and the next without padding");
}

#[test]
fn a_tee_behind_the_model_leaves_the_other_branch_alone() {
    let model = model(&scratch("tee"), &ONE);
    crate::common::init();
    let pipeline = gst::parse::launch(&format!(
        "videotestsrc num-buffers=10 pattern=solid-color foreground-color=0xff555555 ! video/x-raw,format=GRAY8,width=64,height=64 \
         ! trtpreprocess ! trtinfer model-file={model} ! tee name=t \
         t. ! queue ! trtnms ! appsink name=drawn sync=false t. ! queue ! appsink name=plain sync=false"
    ));
    let pipeline = pipeline.unwrap().downcast::<gst::Pipeline>().unwrap();
    let pictures = ["drawn", "plain"].map(|name| {
        let pictures = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let sink = pipeline.by_name(name).unwrap().downcast::<gst_app::AppSink>().unwrap();
        let kept = pictures.clone();
        let new_sample = move |sink: &gst_app::AppSink| {
            kept.lock().unwrap().push(bytes(sink.pull_sample().unwrap().buffer().unwrap()));
            Ok(gst::FlowSuccess::Ok)
        };
        sink.set_callbacks(gst_app::AppSinkCallbacks::builder().new_sample(new_sample).build());
        pictures
    });
    crate::common::run(&pipeline).expect_success();
    let [drawn, plain] = pictures.map(|pictures| std::mem::take(&mut *pictures.lock().unwrap()));
    assert_eq!((drawn.len(), plain.len()), (10, 10));
    let uniform = |picture: &Vec<u8>| picture.iter().all(|byte| byte == &picture[0]);
    assert!(plain.iter().all(uniform));
    assert!(drawn.iter().all(|picture| !uniform(picture) && picture == &drawn[0]));
}
