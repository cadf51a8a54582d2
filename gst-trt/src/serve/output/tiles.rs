// SPDX-License-Identifier: MPL-2.0
//! Many sources in one picture.
//!
//! Its time is that of the clock: a source that gives nothing is not waited for. What comes late is shown late.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gst::prelude::*;

use super::frames::input_line;
use crate::chain::element;

/// The most sources of a picture.
pub const MOST_TILES: usize = 64;
/// Pixels of a side of each of their places, at least.
pub const SMALLEST_TILE: u32 = 16;
/// How long the last frame of a source is seen. After that its place is dark, so that nobody takes it for what happens now.
const LAST_FRAME: Duration = Duration::from_secs(5);
/// How long a picture waits for the frames of sources.
const LATENCY: Duration = Duration::from_millis(100);
/// Pixels of a line of a box in the picture.
const LINE: u32 = 2;

/// One picture of many sources.
#[derive(Clone, Debug, PartialEq)]
pub struct TilesConfig {
    pub name: String,
    /// Names, in their order; `None` for all that there are.
    pub sources: Option<Vec<String>>,
    /// As many as rows, where it is left out.
    pub columns: Option<u32>,
    pub size: (u32, u32),
    /// Pictures a second.
    pub framerate: u32,
}

/// The place of a source, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    pub left: u32,
    pub top: u32,
    pub width: u32,
    pub height: u32,
}

impl Tile {
    pub fn shorter_side(&self) -> u32 {
        self.width.min(self.height)
    }
}

impl TilesConfig {
    /// The places of so many sources, row by row. All edges are even, as the colours of a video are.
    pub fn tiles(&self, count: usize) -> Vec<Tile> {
        let count = count.max(1) as u32;
        let columns = self.columns.unwrap_or_else(|| (1..=count).find(|n| n * n >= count).unwrap_or(count));
        let rows = count.div_ceil(columns);
        let edge = |length: u32, number: u32, of: u32| length / 2 * number / of * 2;
        let tile = |number: u32| {
            let (column, row) = (number % columns, number / columns);
            let (left, top) = (edge(self.size.0, column, columns), edge(self.size.1, row, rows));
            let (right, bottom) = (edge(self.size.0, column + 1, columns), edge(self.size.1, row + 1, rows));
            Tile { left, top, width: right - left, height: bottom - top }
        };
        (0..count).map(tile).collect()
    }

    /// The smallest place of so many sources.
    pub fn smallest(&self, count: usize) -> Option<Tile> {
        self.tiles(count).into_iter().min_by_key(Tile::shorter_side)
    }

    /// How many sources it has room for.
    pub fn room(&self) -> usize {
        let fits = |tile: Tile| tile.shorter_side() >= SMALLEST_TILE;
        (1..=MOST_TILES).take_while(|count| self.smallest(*count).is_some_and(fits)).count()
    }

    /// From frames of so many inputs to the picture. Each is drawn on as it is, as scaling would lose what was found, and made
    /// smaller before it is put in its place.
    pub(super) fn launch_line(&self, inputs: usize) -> String {
        let TilesConfig { size: (width, height), framerate, .. } = self;
        let tiles = self.tiles(inputs);
        // Where GPUs decode, frames may come in CUDA memory, of which videoconvert knows nothing.
        let download = gst::ElementFactory::find("cudadownload").map_or("", |_| "cudadownload !");
        let branches: String = (0..inputs)
            .zip(&tiles)
            .map(|(number, Tile { width, height, .. })| {
                format!(
                    "{} ! videorate drop-only=true max-rate={framerate} ! trtoverlay name=overlay{number} \
                     ! {download} videoconvert ! videoscale add-borders=false \
                     ! video/x-raw,format=I420,width=[2,{width},2],height=[2,{height},2],pixel-aspect-ratio=1/1 \
                     ! tiles.sink_{number} ",
                    input_line(number)
                )
            })
            .collect();
        // Without ignore-inactive-pads: with it, pictures come as fast as they can while one input has failed and the others have
        // not begun, and later ones are not due for a long time then.
        // Encoding has a thread of its own: where that is too slow, pictures are left out, and none is late.
        format!(
            "{branches} compositor name=tiles background=black force-live=true latency={} max-threads=1 \
             ! video/x-raw,format=I420,width={width},height={height},framerate={framerate}/1,pixel-aspect-ratio=1/1,\
             colorimetry=bt709 \
             ! queue leaky=downstream max-size-buffers=1 max-size-bytes=0 max-size-time=0",
            LATENCY.as_nanos()
        )
    }

    /// Puts each input in its place.
    pub(super) fn configure(&self, pipeline: &gst::Pipeline, inputs: usize) {
        let compositor = element(pipeline, "tiles");
        keep_order(&compositor.static_pad("src").expect("an always pad"));
        for (number, tile) in (0..inputs).zip(self.tiles(inputs)) {
            let pad = compositor.static_pad(&format!("sink_{number}")).expect("it was requested");
            pad.set_property("xpos", tile.left as i32);
            pad.set_property("ypos", tile.top as i32);
            pad.set_property("width", tile.width as i32);
            pad.set_property("height", tile.height as i32);
            pad.set_property_from_str("sizing-policy", "keep-aspect-ratio");
            pad.set_property("max-last-buffer-repeat", LAST_FRAME.as_nanos() as u64);
            keep_lines(&element(pipeline, &format!("overlay{number}")), tile);
        }
    }
}

/// With the very first frame, which may come long after the start, compositor goes back to time 0 for one picture. Players would
/// wait there, or begin again: that picture is left out.
fn keep_order(pictures: &gst::Pad) {
    let last = Mutex::new(None::<gst::ClockTime>);
    pictures.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        let time = info.buffer().and_then(|picture| picture.pts());
        if time.is_some() && time <= *last {
            return gst::PadProbeReturn::Drop;
        }
        *last = time.or(*last);
        gst::PadProbeReturn::Ok
    });
}

/// Lines are as wide as they must be to be seen in the tile.
fn keep_lines(overlay: &gst::Element, tile: Tile) {
    let drawn = overlay.downgrade();
    let input = overlay.static_pad("sink").expect("an always pad");
    input.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        if let Some(event) = info.event()
            && let gst::EventView::Caps(caps) = event.view()
            && let Ok(info) = gst_video::VideoInfo::from_caps(caps.caps())
            && let Some(overlay) = drawn.upgrade()
        {
            let smaller = info.width().div_ceil(tile.width).max(info.height().div_ceil(tile.height));
            overlay.set_property("line-width", LINE * smaller);
        }
        gst::PadProbeReturn::Ok
    });
}

#[cfg(test)]
mod tests {
    use super::super::frames::{FrameHub, input_name};
    use super::*;
    use crate::chain;
    use crate::wait::{LIMIT, wait_until};

    /// Also with the first frame, which comes after some pictures.
    #[test]
    fn the_time_of_pictures_goes_on() {
        chain::start_gstreamer().unwrap();
        let config = TilesConfig { name: "all".into(), sources: None, columns: None, size: (64, 48), framerate: 25 };
        let line = format!("{} ! appsink name=out sync=false async=false", config.launch_line(1));
        let pipeline = chain::parse(&line).unwrap();
        config.configure(&pipeline, 1);
        let input = element(&pipeline, &input_name(0)).downcast::<gst_app::AppSrc>().unwrap();
        let out = element(&pipeline, "out").downcast::<gst_app::AppSink>().unwrap();
        let (hub, limit) = (FrameHub::default(), gst::ClockTime::from_seconds(60));
        let _attached = hub.attach(input);
        pipeline.set_state(gst::State::Playing).unwrap();
        let mut times = Vec::new();
        let mut is_bright = || {
            let sample = out.try_pull_sample(limit).expect("a picture");
            let picture = sample.buffer().unwrap();
            times.push(picture.pts().expect("it has a time"));
            picture.map_readable().unwrap()[0] > 100
        };
        assert!(!(0..5).any(|_| is_bright()));
        wait_until("frames are seen", LIMIT, || {
            hub.give();
            is_bright()
        });
        for _ in 0..5 {
            is_bright();
        }
        assert!(times.is_sorted_by(|one, next| one < next), "{times:?}");
        pipeline.set_state(gst::State::Null).unwrap();
    }

    fn tiles(columns: Option<u32>, size: (u32, u32), count: usize) -> Vec<(u32, u32, u32, u32)> {
        let config = TilesConfig { name: "all".into(), sources: None, columns, size, framerate: 15 };
        let corners = |tile: Tile| (tile.left, tile.top, tile.left + tile.width, tile.top + tile.height);
        config.tiles(count).into_iter().map(corners).collect()
    }

    #[test]
    fn tiles_fill_the_picture_row_by_row() {
        let size = (640, 360);
        assert_eq!(tiles(None, size, 1), [(0, 0, 640, 360)]);
        assert_eq!(tiles(None, size, 0), [(0, 0, 640, 360)], "a picture without a source is one, too");
        assert_eq!(tiles(None, size, 2), [(0, 0, 320, 360), (320, 0, 640, 360)]);
        assert_eq!(tiles(None, size, 3), [(0, 0, 320, 180), (320, 0, 640, 180), (0, 180, 320, 360)]);
        assert_eq!(tiles(Some(1), size, 2), [(0, 0, 640, 180), (0, 180, 640, 360)]);
        assert_eq!(tiles(Some(3), size, 2), [(0, 0, 212, 360), (212, 0, 426, 360)]);
        for count in 1..=MOST_TILES {
            let all = tiles(None, (642, 362), count);
            assert_eq!(all.len(), count);
            assert_eq!(all[0].0, 0);
            for (left, top, right, bottom) in &all {
                let edges = [left, top, right, bottom];
                assert!(edges.iter().all(|edge| *edge % 2 == 0), "{count}: {all:?}");
                assert!(left < right && top < bottom && *right <= 642 && *bottom <= 362, "{count}: {all:?}");
            }
            assert_eq!(all.iter().map(|tile| tile.2).max(), Some(642), "{count}");
            assert_eq!(all.iter().map(|tile| tile.3).max(), Some(362), "{count}");
        }
    }

    /// Sources may come at any time.
    #[test]
    fn places_of_all_sources_are_large_enough() {
        for (columns, size, room) in [
            (None, (1920, 1080), MOST_TILES),
            (None, (64, 48), 12),
            (Some(1), (640, 96), 6),
            (Some(16), (256, 64), MOST_TILES),
        ] {
            let config = TilesConfig { name: "all".into(), sources: None, columns, size, framerate: 15 };
            assert_eq!(config.room(), room, "{columns:?} {size:?}");
        }
    }
}
