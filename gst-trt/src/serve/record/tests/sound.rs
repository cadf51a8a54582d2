// SPDX-License-Identifier: MPL-2.0
//! Recordings of frames with their sound.

use super::*;

/// The sound of the source is in the file, where its container takes it.
#[test]
fn sound_is_recorded_with_its_frames() {
    const OPUS: &str = "audiotestsrc num-buffers=400 ! audio/x-raw,rate=48000,channels=1 ! opusenc ! opusparse";
    const MP3: &str = "audiotestsrc num-buffers=345 ! audio/x-raw,rate=44100,channels=1 ! lamemp3enc ! mpegaudioparse";
    const ALAW: &str = "audiotestsrc num-buffers=62 ! audio/x-raw,rate=8000,channels=1 ! alawenc";
    for (number, (name, sound, container, is_there)) in [
        ("audio/mpeg", AAC, Container::Mp4, true),
        ("audio/mpeg", AAC, Container::Mkv, true),
        ("audio/mpeg", MP3, Container::Mp4, true),
        ("audio/mpeg", MP3, Container::Mkv, true),
        ("audio/x-opus", OPUS, Container::Mp4, true),
        ("audio/x-alaw", ALAW, Container::Mkv, true),
        ("audio/x-alaw", ALAW, Container::Mp4, false),
    ]
    .into_iter()
    .enumerate()
    {
        let config = RecordConfig { container, ..config(&format!("sound-{number}"), 1.0, 0.5) };
        if sound == MP3 && gst::ElementFactory::find("lamemp3enc").is_none() {
            eprintln!("SKIP: no lamemp3enc here");
            continue;
        }
        let clip = clip(&config, 200, H264, sound, "matroskamux");
        record(&config, &clip, &[100]);
        let file = only_file(&config.folder);
        assert_eq!(packets(&file, "video").1.len(), 112 - 60 + 1, "{name}");
        let (caps, written) = packets(&file, "audio");
        assert_eq!(caps.as_deref() == Some(name), is_there, "{name} {container:?}: {caps:?}");
        let (_, sent) = packets(&clip, "audio");
        assert!(written.iter().all(|packet| sent.iter().any(|sent| sent.1 == packet.1)), "{name}");
        // Two seconds of eight.
        assert_eq!(written.len() * 5 > sent.len(), is_there, "{name}: {} of {}", written.len(), sent.len());
    }
    let config = RecordConfig { audio: false, ..config("sound-off", 1.0, 0.5) };
    let clip = clip(&config, 200, H264, AAC, "matroskamux");
    record(&config, &clip, &[100]);
    assert!(packets(&only_file(&config.folder), "audio").1.is_empty(), "it was not wanted");
}

/// A container waits for all its streams, and a microphone may fail.
#[test]
fn sound_that_ends_does_not_hold_up_its_frames() {
    let config = config("sound-ends", 1.0, 60.0);
    let short = AAC.replace("345", "140"); // a player takes a shorter one for a preview
    let clip = clip(&config, 200, H264, &short, "matroskamux");
    let threads = Threads::default();
    // As of a camera, there is no end of the sound, and the file is looked at before its own.
    let (given, written) = std::sync::mpsc::channel();
    let archives = Archives::new(&threads);
    let disk = Disk::by(&archives.at(&config.folder), "gate", &threads, move |folder, source, kind, format, first| {
        std::fs::create_dir_all(folder).unwrap();
        let _ = given.send(format.audio.is_some());
        RecordingFile::create(folder, source, kind, format, first)
    });
    play(&clip, &Recorder::new(disk, &config, false), &[30]);
    archives.close();
    assert!(threads.wait(LIMIT).is_empty());
    assert!(written.recv().unwrap(), "it began with sound");
    let file = only_file(&config.folder);
    assert_eq!(packets(&file, "video").1.len(), 200);
    assert!((130..=141).contains(&packets(&file, "audio").1.len()));
}

/// Also what is recorded all the time, from the first frame on; and each time that a file is played, though its sound is
/// read before its frames are encoded.
#[test]
fn the_first_file_has_sound_and_each_after_a_loop() {
    for draw in [false, true] {
        let config = RecordConfig {
            segment: Some(Duration::from_secs(60)),
            draw,
            copies: !draw,
            ..config(&format!("loop-{draw}"), 1.0, 0.5)
        };
        let clip = clip(&config, 200, H264, AAC, "mp4mux");
        let threads = Threads::default();
        let archives = Archives::new(&threads);
        let disk = Disk::new(&archives.at(&config.folder), "gate", &threads);
        // Of the first frame, before there is a file.
        play_times(3, &clip, &Recorder::new(disk, &config, false), &[0], true);
        archives.close();
        assert!(threads.wait(LIMIT).is_empty());
        let is_event = |file: &PathBuf| !file.to_str().unwrap().ends_with("-continuous.mp4");
        let (events, segments): (Vec<_>, Vec<_>) = files(&config.folder).into_iter().partition(is_event);
        let counts: Vec<_> = segments.iter().map(|file| packets(file, "video").1.len()).collect();
        assert_eq!((counts, events.len()), (vec![200; 3], 1), "{draw}");
        let sounds: Vec<_> = segments.iter().map(|file| packets(file, "audio").1.len()).collect();
        assert!(sounds.iter().all(|count| *count > 250), "{draw}: {sounds:?}");
        assert!(!packets(&events[0], "audio").1.is_empty(), "{draw}");
        let index = std::fs::read_to_string(config.folder.join("index.jsonl")).unwrap();
        assert_eq!(index.matches("\"entered\"").count(), 2, "it is noted with both: {index}");
    }
}
