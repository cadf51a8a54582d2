// SPDX-License-Identifier: MPL-2.0
//! Pictures that are cut out of a few frames, as JPEG: a branch of the tee `out`, which costs nothing while nobody wants one.
//!
//! It comes behind `[privacy]`, so it shows no more than the page. No frame waits for it: where pictures take longer than
//! frames, old ones make room.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use gst::prelude::*;

use super::log::warn;
use crate::chain::element;
use crate::failure::Failure;

/// Frames that wait to be cut. Each keeps a buffer of the decoder, of which there are not many.
const MAX_FRAMES: usize = 2;
/// Pixels that a side of a picture has at least, where the frame has them: less shows nothing, and some encoders refuse it.
const MIN_SIDE: u32 = 32;
/// Pictures begin at such a pixel: of some formats, one value of colour is that of four pixels, or of lines of two fields.
const ALIGNED: u32 = 4;
/// No encoder takes longer that works.
const ENCODE_LIMIT: gst::ClockTime = gst::ClockTime::from_seconds(5);

/// A part of a frame, in its pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    pub x: f64,
    pub y: f64,
    pub w: f64,
    pub h: f64,
}

impl Region {
    /// With that part of its sides more on each of them, as whole pixels of the frame: x, y, width and height. `None` where
    /// nothing of it is in the frame.
    fn pixels(&self, margin: f64, (width, height): (u32, u32)) -> Option<(u32, u32, u32, u32)> {
        let along = |begin: f64, length: f64, frame: u32| {
            let length = length.max(0.0);
            let (mut begin, mut end) = (begin - length * margin, begin + length * (1.0 + margin));
            if !(begin.is_finite() && end.is_finite()) || end <= 0.0 || begin >= f64::from(frame) {
                return None;
            }
            let least = f64::from(MIN_SIDE.min(frame));
            let missing = (least - (end - begin)).max(0.0) / 2.0;
            (begin, end) = (begin - missing, end + missing);
            let moved = (-begin).max(0.0) - (end - f64::from(frame)).max(0.0);
            // Where a side was too short, it is moved into the frame; else it is cut off.
            (begin, end) = if missing > 0.0 { (begin + moved, end + moved) } else { (begin, end) };
            let (begin, end) = (begin.max(0.0) as u32 / ALIGNED * ALIGNED, (end.ceil() as u32).min(frame));
            (end > begin).then_some((begin, end - begin))
        };
        let (x, w) = along(self.x, self.w, width)?;
        let (y, h) = along(self.y, self.h, height)?;
        Some((x, y, w, h))
    }
}

/// A picture that is wanted of a frame.
pub struct Cut {
    /// The whole frame, where it is left out.
    pub region: Option<Region>,
    /// What is shown around it, as a part of its sides.
    pub margin: f64,
    /// Pixels of its longer side, at most.
    pub max_side: u32,
    /// What is done with it. Dropped, where there is no picture.
    pub give: Box<dyn FnOnce(Bytes) + Send>,
}

/// What is wanted of frames on their way, by numbers that these have as their offsets. Times do not tell them apart: some cameras give
/// none, or the same one twice.
#[derive(Default)]
struct WantedCuts {
    number: u64,
    cuts: VecDeque<(u64, Vec<Cut>)>,
}

impl WantedCuts {
    /// Returns the number of the frame.
    fn add(&mut self, cuts: Vec<Cut>) -> u64 {
        // Those before the ones in the queue, in the appsink and in work are gone.
        while self.cuts.len() > MAX_FRAMES + 2 {
            self.cuts.pop_front();
        }
        self.number += 1;
        self.cuts.push_back((self.number, cuts));
        self.number
    }

    /// What is wanted of a frame. Those before it were dropped on the way.
    fn take(&mut self, number: u64) -> Vec<Cut> {
        let position = self.cuts.iter().position(|(of, _)| *of == number);
        position.and_then(|position| self.cuts.drain(..=position).next_back()).map(|(_, cuts)| cuts).unwrap_or_default()
    }
}

pub fn launch_line(download: &str) -> String {
    format!(
        "out. ! queue name=cut leaky=downstream max-size-buffers={MAX_FRAMES} max-size-bytes=0 max-size-time=0 \
         ! {download} appsink name=cuts sync=false async=false max-buffers=1 drop=true enable-last-sample=false"
    )
}

/// `choose` says what is wanted of a frame of that size, in the thread of the frame. The pictures are made in another one.
pub fn connect(
    pipeline: &gst::Pipeline,
    source: &str,
    choose: impl Fn(&gst::BufferRef, (u32, u32)) -> Vec<Cut> + Send + Sync + 'static,
) {
    let wanted = Arc::new(Mutex::new(WantedCuts::default()));
    let entered = wanted.clone();
    // The tee's own pad: GStreamer 1.22 complains of a buffer that is dropped as it comes in.
    let branch = element(pipeline, "cut").static_pad("sink").and_then(|sink| sink.peer());
    branch.expect("it is linked to the tee").add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        let Some(gst::PadProbeData::Buffer(buffer)) = &mut info.data else { return gst::PadProbeReturn::Ok };
        let cuts = choose(buffer, frame_size(pad).unwrap_or_default());
        if cuts.is_empty() {
            return gst::PadProbeReturn::Drop;
        }
        let number = entered.lock().unwrap_or_else(PoisonError::into_inner).add(cuts);
        buffer.make_mut().set_offset(number);
        gst::PadProbeReturn::Ok
    });
    let (source, said) = (source.to_string(), Mutex::new(None::<String>));
    let take = move |sink: &gst_app::AppSink| {
        let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
        let number = sample.buffer().map_or(u64::MAX, gst::BufferRef::offset);
        let cuts = wanted.lock().unwrap_or_else(PoisonError::into_inner).take(number);
        for cut in cuts {
            match picture(&sample, &cut) {
                Ok(picture) => (cut.give)(picture),
                Err(failure) => {
                    let text = format!("Cannot make a picture of a frame: {failure}");
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    if said.as_ref() != Some(&text) {
                        warn(&source, &text);
                    }
                    *said = Some(text);
                }
            }
        }
        Ok(gst::FlowSuccess::Ok)
    };
    let sink = element(pipeline, "cuts").downcast::<gst_app::AppSink>().expect("it is an appsink");
    sink.set_callbacks(gst_app::AppSinkCallbacks::builder().new_sample(take).build());
}

fn frame_size(pad: &gst::Pad) -> Option<(u32, u32)> {
    let caps = pad.current_caps()?;
    let side = |name| caps.structure(0)?.get::<i32>(name).ok()?.try_into().ok();
    Some((side("width")?, side("height")?))
}

/// A part of a frame as a frame: its pixels stay where they are, and a meta says where that is.
fn part_of(
    frame: &gst::BufferRef,
    caps: &gst::CapsRef,
    info: &gst_video::VideoInfo,
    (x, y, width, height): (u32, u32, u32, u32),
) -> Result<(gst::Buffer, gst::Caps), Failure> {
    let format = info.format_info();
    if format.is_complex() || format.is_tiled() || format.has_palette() {
        return Err(format!("Nothing is cut out of frames in the format {}.", format.name()).into());
    }
    let meta = frame.meta::<gst_video::VideoMeta>();
    let (mut offsets, strides) = match &meta {
        Some(meta) => (meta.offset().to_vec(), meta.stride().to_vec()),
        None => (info.offset().to_vec(), info.stride().to_vec()),
    };
    for (plane, offset) in offsets.iter_mut().enumerate() {
        let component = format.plane().iter().position(|of| *of as usize == plane).ok_or("A plane has no pixels.")?;
        let (down, across) = (y >> format.h_sub()[component], x >> format.w_sub()[component]);
        let begin = i64::from(down) * i64::from(strides[plane])
            + i64::from(across) * i64::from(format.pixel_stride()[component]);
        *offset = offset.checked_add_signed(begin as isize).ok_or("A plane begins before the frame.")?;
    }
    let mut part = frame.copy_region(gst::BufferCopyFlags::MEMORY, ..)?;
    let none = gst_video::VideoFrameFlags::empty();
    gst_video::VideoMeta::add_full(part.make_mut(), none, info.format(), width, height, &offsets, &strides)?;
    let mut caps = caps.to_owned();
    caps.make_mut().set("width", width as i32);
    caps.make_mut().set("height", height as i32);
    Ok((part, caps))
}

/// GStreamer's own conversion of a picture.
fn picture(sample: &gst::Sample, cut: &Cut) -> Result<Bytes, Failure> {
    let caps = sample.caps().ok_or("The frame has no format.")?;
    let info = gst_video::VideoInfo::from_caps(caps)?;
    let frame = sample.buffer().ok_or("There is no frame.")?;
    let size_of_frame = (info.width(), info.height());
    let whole = (0, 0, info.width(), info.height());
    let part = cut.region.and_then(|region| region.pixels(cut.margin, size_of_frame)).unwrap_or(whole);
    let (buffer, caps) = part_of(frame, caps, &info, part)?;
    let (width, height) = size(part, info.par(), cut.max_side);
    let jpeg = gst::Caps::builder("image/jpeg")
        .field("width", width)
        .field("height", height)
        .field("pixel-aspect-ratio", gst::Fraction::new(1, 1))
        .build();
    let cropped = gst::Sample::builder().caps(&caps).buffer(&buffer).build();
    let encoded = gst_video::convert_sample(&cropped, &jpeg, Some(ENCODE_LIMIT))?;
    let map = encoded.buffer().and_then(|buffer| buffer.map_readable().ok()).ok_or("The encoder gave nothing.")?;
    Ok(Bytes::copy_from_slice(&map))
}

/// Width and height of the picture of a part, with square pixels.
fn size((_, _, width, height): (u32, u32, u32, u32), pixel: gst::Fraction, max_side: u32) -> (i32, i32) {
    let aspect = f64::from(pixel.numer().max(1)) / f64::from(pixel.denom().max(1));
    let (width, height) = (f64::from(width) * aspect, f64::from(height));
    let scale = (f64::from(max_side) / width.max(height)).min(1.0);
    let side = |length: f64| (length * scale).round().clamp(1.0, f64::from(max_side)) as i32;
    (side(width), side(height))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::chain;
    use crate::wait::LIMIT;

    fn region(x: f64, y: f64, w: f64, h: f64) -> Region {
        Region { x, y, w, h }
    }

    #[test]
    fn a_region_is_in_the_frame() {
        for (of, margin, expected) in [
            (region(100.0, 50.0, 100.0, 40.0), 0.0, Some((100, 48, 100, 42))),
            (region(100.0, 50.0, 100.0, 40.0), 0.1, Some((88, 44, 122, 50))),
            (region(-20.0, 50.2, 100.0, 40.2), 0.0, Some((0, 48, 80, 43))),
            (region(600.0, 300.0, 100.0, 100.0), 0.0, Some((600, 300, 40, 60))),
            // Too small ones have something around them.
            (region(100.0, 100.0, 2.0, 40.0), 0.0, Some((84, 100, 33, 40))),
            (region(1.0, 359.0, 1.0, 1.0), 0.0, Some((0, 328, 32, 32))),
            (region(700.0, 50.0, 10.0, 10.0), 0.0, None),
            (region(10.0, -50.0, 10.0, 10.0), 0.0, None),
            (region(f64::NAN, 0.0, 10.0, 10.0), 0.0, None),
            (region(0.0, 0.0, f64::INFINITY, 10.0), 0.0, None),
        ] {
            assert_eq!(of.pixels(margin, (640, 360)), expected, "{of:?}");
        }
        // A frame that is smaller than that.
        assert_eq!(region(3.0, 3.0, 1.0, 1.0).pixels(0.0, (16, 8)), Some((0, 0, 16, 8)));
    }

    #[test]
    fn a_picture_keeps_its_sides() {
        let square = gst::Fraction::new(1, 1);
        assert_eq!(size((0, 0, 640, 360), square, 320), (320, 180));
        assert_eq!(size((0, 0, 100, 400), square, 200), (50, 200));
        assert_eq!(size((0, 0, 64, 36), square, 320), (64, 36), "nothing is enlarged");
        assert_eq!(size((0, 0, 720, 576), gst::Fraction::new(64, 45), 2000), (1024, 576));
        assert_eq!(size((0, 0, 4000, 1), square, 100), (100, 1));
    }

    /// Of the second frame two pictures are wanted, of the others none.
    #[test]
    fn what_is_wanted_of_a_frame_is_cut_out_of_it() {
        chain::start_gstreamer().unwrap();
        for format in ["I420", "NV12", "YUY2", "RGB", "BGRx", "GRAY8", "P010_10LE", "Y41B"] {
            let line = format!(
                "videotestsrc num-buffers=3 pattern=smpte ! video/x-raw,format={format},width=640,height=360,framerate=25/1 \
                 ! tee name=out out. ! fakesink sync=false async=false {}",
                launch_line("")
            );
            let pipeline = chain::parse(&line).unwrap();
            let (given, pictures) = channel();
            connect(&pipeline, "gate", move |buffer, frame| {
                assert_eq!(frame, (640, 360));
                if buffer.pts() != Some(gst::ClockTime::from_mseconds(40)) {
                    return Vec::new();
                }
                let cut = |region: Option<Region>| {
                    let given = given.clone();
                    Cut { region, margin: 0.0, max_side: 320, give: Box::new(move |jpeg| drop(given.send(jpeg))) }
                };
                // The first bar of seven is gray; below it are others.
                vec![cut(None), cut(Some(region(12.0, 12.0, 72.0, 100.0)))]
            });
            pipeline.set_state(gst::State::Playing).unwrap();
            let sizes = [(320, 180), (72, 100)];
            for (number, (width, height)) in sizes.into_iter().enumerate() {
                let jpeg = pictures.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{format}: {error}"));
                let decoded = decode(&jpeg);
                let caps = decoded.caps().unwrap().structure(0).unwrap();
                assert_eq!((caps.get("width"), caps.get("height")), (Ok(width), Ok(height)), "{format}");
                let map = decoded.buffer().unwrap().map_readable().unwrap();
                let (least, most) = map.iter().fold((255, 0), |(a, b), x| (*x.min(&a), *x.max(&b)));
                assert_eq!(most - least > 60, number == 0, "{format}: {least} to {most}");
            }
            pipeline.set_state(gst::State::Null).unwrap();
            assert!(pictures.try_recv().is_err());
        }
    }

    /// Whatever is dropped on the way, and though no frame has a time.
    #[test]
    fn each_picture_is_that_of_its_own_frame() {
        chain::start_gstreamer().unwrap();
        let line = format!(
            "appsrc name=in format=time caps=video/x-raw,format=GRAY8,width=1280,height=720,framerate=25/1 \
             ! tee name=out out. ! fakesink sync=false async=false {}",
            launch_line("")
        );
        let pipeline = chain::parse(&line).unwrap();
        let (given, pictures) = channel();
        connect(&pipeline, "gate", move |frame, _| {
            let (level, given) = (frame.map_readable().unwrap()[0], given.clone());
            let give = Box::new(move |jpeg| drop(given.send((level, jpeg))));
            vec![Cut { region: None, margin: 0.0, max_side: 320, give }]
        });
        let input = element(&pipeline, "in").downcast::<gst_app::AppSrc>().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        for number in 0..40u8 {
            input.push_buffer(gst::Buffer::from_mut_slice(vec![20 + 5 * number; 1280 * 720])).unwrap();
        }
        input.end_of_stream().unwrap();
        let end = pipeline.bus().unwrap().timed_pop_filtered(
            gst::ClockTime::from_seconds(LIMIT.as_secs()),
            &[gst::MessageType::Eos, gst::MessageType::Error],
        );
        assert!(matches!(end.as_ref().map(|end| end.type_()), Some(gst::MessageType::Eos)), "{end:?}");
        pipeline.set_state(gst::State::Null).unwrap();
        let found: Vec<(u8, Bytes)> = pictures.try_iter().collect();
        assert!(!found.is_empty());
        for (level, jpeg) in found {
            let decoded = decode(&jpeg);
            let map = decoded.buffer().unwrap().map_readable().unwrap();
            assert!(map[1000].abs_diff(level) < 3, "{} instead of {level}", map[1000]);
        }
    }

    /// The gray picture of a JPEG.
    fn decode(jpeg: &[u8]) -> gst::Sample {
        let line = "appsrc name=in ! jpegdec ! videoconvert ! video/x-raw,format=GRAY8 ! appsink name=out sync=false";
        let pipeline = chain::parse(line).unwrap();
        let input = element(&pipeline, "in").downcast::<gst_app::AppSrc>().unwrap();
        let output = element(&pipeline, "out").downcast::<gst_app::AppSink>().unwrap();
        input.set_caps(Some(&gst::Caps::builder("image/jpeg").build()));
        pipeline.set_state(gst::State::Playing).unwrap();
        input.push_buffer(gst::Buffer::from_slice(jpeg.to_vec())).unwrap();
        input.end_of_stream().unwrap();
        let sample = output.try_pull_sample(gst::ClockTime::from_seconds(LIMIT.as_secs())).unwrap();
        pipeline.set_state(gst::State::Null).unwrap();
        sample
    }
}
