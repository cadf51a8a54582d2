// SPDX-License-Identifier: MPL-2.0
//! Streams that are not as others.

use super::*;

/// Some cameras have none, and their events are none the less.
#[test]
fn an_event_of_a_frame_without_a_time_is_recorded() {
    let config = config("no-times", 60.0, 60.0);
    let clip = clip(&config, 50, "x264enc key-int-max=25 tune=zerolatency", "", "mp4mux");
    let threads = Threads::default();
    let archives = Archives::new(&threads);
    let disk = Disk::new(&archives.at(&config.folder), "gate", &threads);
    play_times(1, &clip, &Recorder::new(disk, &config, false), &[20], false);
    archives.close();
    assert!(threads.wait(LIMIT).is_empty());
    assert_eq!(packets(&only_file(&config.folder), "video").1.len(), 50);
}

/// A camera that is set to another size again and again: each file has one, and no frame is lost.
#[test]
fn ten_sizes_are_ten_recordings() {
    let config = RecordConfig { events: None, segment: Some(Duration::from_secs(60)), ..config("ten-sizes", 0.0, 0.0) };
    let all = config.folder.with_file_name("all.h264");
    let mut stream = Vec::new();
    for number in 0..10 {
        let part = config.folder.with_file_name("part.h264");
        let (width, height) = (64 + 32 * (number % 5), 48 + 16 * (number % 3));
        let line = format!(
            "videotestsrc num-buffers=12 ! video/x-raw,format=I420,width={width},height={height},framerate=25/1 \
             ! x264enc tune=zerolatency key-int-max=12 ! video/x-h264,stream-format=byte-stream ! filesink location={}",
            part.display()
        );
        run_to_end(&chain::parse(&line).unwrap());
        stream.extend(std::fs::read(part).unwrap());
    }
    std::fs::write(&all, stream).unwrap();
    record(&config, &all, &[]);
    let counts: Vec<usize> = files(&config.folder).iter().map(|file| packets(file, "video").1.len()).collect();
    assert_eq!(counts, [12; 10]);
}
