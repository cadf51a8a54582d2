// SPDX-License-Identifier: MPL-2.0
//! Packets and results that come in an order of their own: a frame each second.

use super::*;
use crate::serve::archive::Recording;

fn picture(config: &RecordConfig) -> Vec<u8> {
    packets(&clip(config, 1, "jpegenc", "", "matroskamux"), "video").1.remove(0).1
}

fn packet(picture: &[u8], caps: &gst::Caps, second: u64) -> Packet {
    let time = Duration::from_secs(second);
    Packet {
        medium: Medium::Video,
        caps: caps.clone(),
        buffer: gst::Buffer::from_slice(picture.to_vec()),
        pts: nanoseconds(time),
        dts: None,
        is_key: true,
        is_cut: false,
        arrived: (Duration::from_secs(1_700_000_000) + time).as_nanos() as u64,
        came: std::time::Instant::now() + time,
    }
}

/// The frame of that second has its results; with them, what has happened at these times in milliseconds.
fn see(recorder: &Recorder, second: u64, happened: &[u64]) {
    let time = ClockTime::from_seconds(second);
    let event = |milliseconds: &u64| {
        let at = ClockTime::from_mseconds(*milliseconds);
        Map::from_iter([
            ("event".to_string(), "entered".into()),
            ("stream-time".to_string(), time.nseconds().into()),
            ("event-time".to_string(), at.nseconds().into()),
        ])
    };
    recorder.lock().frame_done(Some(time), happened.iter().map(event).collect());
}

/// That many recordings of what comes, in their order.
fn recordings(config: &RecordConfig, count: usize, come: impl FnOnce(&Recorder)) -> Vec<Recording> {
    let threads = Threads::default();
    let archives = Archives::new(&threads);
    let recorder = Recorder::new(Disk::new(&archives.at(&config.folder), "gate", &threads), config, true);
    come(&recorder);
    recorder.finish();
    wait_until("they are whole", LIMIT, || archives.recordings().len() == count);
    let recordings = archives.recordings();
    archives.close();
    assert!(threads.wait(LIMIT).is_empty());
    recordings
}

/// As of a camera whose resolution is changed: the rest of the post-roll is in another file.
#[test]
fn what_is_wanted_goes_on_in_another_format() {
    let config = RecordConfig { container: Container::Mkv, ..config("another-format", 0.0, 4.0) };
    let picture = picture(&config);
    let before = gst::Caps::new_empty_simple("image/jpeg");
    let after = gst::Caps::builder("image/jpeg").field("width", 64).field("height", 48).build();
    let recordings = recordings(&config, 2, |recorder| {
        for second in 0..9 {
            recorder.take(packet(&picture, if second < 4 { &before } else { &after }, second));
            see(recorder, second, if second == 2 { &[2000] } else { &[] });
        }
    });
    let frames = |recording: &Recording| packets(&config.folder.join(&recording.file), "video").1.len();
    let found: Vec<_> = recordings.iter().map(|recording| (frames(recording), recording.events.len())).collect();
    assert_eq!(found, [(2, 1), (3, 0)]);
}

/// Packets come before their results, and those that have to be encoded after them.
#[test]
fn what_has_happened_is_noted_with_the_file_of_its_time() {
    let config = RecordConfig {
        events: None,
        segment: Some(Duration::from_secs(2)),
        container: Container::Mkv,
        ..config("news", 0.0, 0.0)
    };
    let (picture, caps) = (picture(&config), gst::Caps::new_empty_simple("image/jpeg"));
    let recordings = recordings(&config, 4, |recorder| {
        let take = |second| recorder.take(packet(&picture, &caps, second));
        (0..4).for_each(take);
        see(recorder, 2, &[1700]);
        see(recorder, 5, &[4700, 5000]);
        (4..8).for_each(take);
        see(recorder, 7, &[]);
    });
    let noted: Vec<_> = recordings.iter().map(|recording| recording.events.len()).collect();
    assert_eq!(noted, [1, 0, 2, 0]);
}

/// Of a camera that gives each frame the same time. Its files end all the same, by the clock.
#[test]
fn a_time_that_stands_still_makes_no_endless_file() {
    let config = RecordConfig {
        events: None,
        segment: Some(Duration::from_secs(2)),
        container: Container::Mkv,
        ..config("standing", 0.0, 0.0)
    };
    let (picture, caps) = (picture(&config), gst::Caps::new_empty_simple("image/jpeg"));
    let recordings = recordings(&config, 3, |recorder| {
        (0..12).for_each(|second| recorder.take(Packet { pts: 0, ..packet(&picture, &caps, second) }));
    });
    let frames = recordings.iter().map(|recording| packets(&config.folder.join(&recording.file), "video").1.len());
    assert_eq!(frames.collect::<Vec<_>>(), [4; 3], "twice the length by the clock");
}

/// Nor does an event that is never past by its time.
#[test]
fn an_event_of_a_time_that_stands_still_has_an_end() {
    let config = RecordConfig { container: Container::Mkv, ..config("standing-event", 0.0, 1.0) };
    let (picture, caps) = (picture(&config), gst::Caps::new_empty_simple("image/jpeg"));
    let recordings = recordings(&config, 1, |recorder| {
        let take = |second| recorder.take(Packet { pts: 0, ..packet(&picture, &caps, second) });
        (0..3).for_each(take);
        see(recorder, 0, &[0]);
        assert!(recorder.is_recording());
        (3..20).for_each(take);
        assert!(!recorder.is_recording());
    });
    assert_eq!(recordings[0].events.len(), 1);
}

/// A file that is larger than what is kept would be removed once it is whole.
#[test]
fn no_file_is_larger_than_a_part_of_what_is_kept() {
    let config = RecordConfig {
        events: None,
        segment: Some(Duration::from_secs(3600)),
        keep: KeepLimits { bytes: Some(400_000), ..KeepLimits::default() },
        container: Container::Mkv,
        ..config("parts", 0.0, 0.0)
    };
    let (picture, caps) = (picture(&config), gst::Caps::new_empty_simple("image/jpeg"));
    let of_file = 100_000_usize.div_ceil(picture.len());
    let frames = |recordings: &[Recording]| -> Vec<usize> {
        recordings.iter().map(|one| packets(&config.folder.join(&one.file), "video").1.len()).collect()
    };
    let all = recordings(&config, 3, |recorder| {
        (0..=2 * of_file as u64).for_each(|second| recorder.take(packet(&picture, &caps, second)));
    });
    assert_eq!(frames(&all), [of_file, of_file, 1]);
    // Where no other key frame comes it ends, and the next key frame begins another one.
    let key = 3 * of_file as u64;
    let all = recordings(&config, 5, |recorder| {
        let take = |second| {
            let is_key = second == 0 || second == key;
            recorder.take(Packet { is_key, ..packet(&picture, &caps, 10_000 + second) });
        };
        (0..=key).for_each(take);
    });
    let counts = frames(&all);
    assert!((of_file..=2 * of_file).contains(&counts[3]) && counts[4] == 1, "{counts:?}");
}
