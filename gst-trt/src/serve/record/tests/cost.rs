// SPDX-License-Identifier: MPL-2.0
//! What recording takes of the processor.

use super::*;
use crate::serve::metrics::process::cpu_seconds;

/// Of all threads of this program.
fn used() -> f64 {
    cpu_seconds().unwrap()
}

/// What recording takes of the CPU, copied and encoded, printed:
/// `cargo nextest run --release --run-ignored only --no-capture -E 'test(cpu_of_24_cameras)'`
#[test]
#[ignore = "it measures, for three minutes"]
fn cpu_of_24_cameras() {
    const CAMERAS: usize = 24;
    // What starts and ends the recordings is little of it.
    const SECONDS: u64 = 30;
    let config = RecordConfig { events: None, segment: Some(Duration::from_secs(300)), ..config("cpu", 0.0, 0.0) };
    // One with as many bits as a camera has, by filling up, and one as it is.
    let made = |name: &str, more: &str| {
        let clip = config.folder.with_file_name(name);
        let pipeline = chain::parse(&format!(
            "videotestsrc num-buffers={} pattern=smpte horizontal-speed=10 \
             ! video/x-raw,format=I420,width=1920,height=1080,framerate=25/1 \
             ! x264enc speed-preset=ultrafast tune=zerolatency key-int-max=50 bitrate=4000 {more} ! h264parse ! mp4mux \
             ! filesink location={}",
            25 * SECONDS,
            clip.display()
        ));
        run_to_end(&pipeline.unwrap());
        clip
    };
    let (clip, easy) = (made("1080p.mp4", "option-string=nal-hrd=cbr:filler=1"), made("easy.mp4", ""));
    let bytes = std::fs::metadata(&clip).unwrap().len();
    println!("the stream has {:.1} Mbit/s", bytes as f64 * 8e-6 / SECONDS as f64);

    // The cameras alone, and with their recordings.
    let cameras = |recorded: bool| {
        let threads = Threads::default();
        let archives = Archives::new(&threads);
        let mut recorders = Vec::new();
        let begun = used();
        let pipelines: Vec<_> = (0..CAMERAS)
            .map(|number| {
                let line = format!(
                    "filesrc location={} ! qtdemux ! h264parse ! identity name=decoder ! fakesink sync=true",
                    clip.display()
                );
                let pipeline = chain::parse(&line).unwrap();
                if recorded {
                    let disk = Disk::new(&archives.at(&config.folder), &format!("camera{number}"), &threads);
                    let recorder = Recorder::new(disk, &config, true);
                    let tap = crate::source::tap::VideoTap::new(&recorder.tap().sink);
                    let decoder = element(&pipeline, "decoder");
                    tap.follow(&decoder.static_pad("sink").unwrap());
                    pipeline.set_state(gst::State::Paused).unwrap();
                    let _ = pipeline.state(ClockTime::from_seconds(60));
                    tap.choose(&pipeline, Some(&decoder));
                    recorders.push(recorder);
                }
                pipeline.set_state(gst::State::Playing).unwrap();
                pipeline
            })
            .collect();
        for pipeline in &pipelines {
            let _ = pipeline.bus().unwrap().timed_pop_filtered(ClockTime::from_seconds(120), &[gst::MessageType::Eos]);
        }
        recorders.iter().for_each(Recorder::finish);
        archives.close();
        assert!(threads.wait(LIMIT).is_empty());
        let taken = used() - begun;
        for pipeline in &pipelines {
            pipeline.set_state(gst::State::Null).unwrap();
        }
        taken
    };
    let (alone, copied) = (cameras(false), cameras(true));
    let written: u64 = files(&config.folder).iter().map(|file| std::fs::metadata(file).unwrap().len()).sum();
    assert_eq!(written / bytes, CAMERAS as u64, "all of it is written");
    let copying = (copied - alone) / SECONDS as f64;

    // One camera, as fast as it goes: decoded, and decoded and encoded.
    let decoded = |encode: &str| {
        let begun = used();
        let line =
            format!("filesrc location={} ! qtdemux ! h264parse ! avdec_h264 ! {encode} fakesink", easy.display());
        run_to_end(&chain::parse(&line).unwrap());
        used() - begun
    };
    let convert = "videoconvert ! videoscale ! video/x-raw,format=I420";
    let encode =
        format!("{convert} ! x264enc speed-preset=veryfast tune=zerolatency key-int-max=30 threads=1 ! h264parse !");
    let encoding = (decoded(&encode) - decoded("")) / SECONDS as f64 * CAMERAS as f64;
    println!("{CAMERAS} cameras of 1080p25: cameras alone {:.3} cores", alone / SECONDS as f64);
    println!("copying {copying:.3} cores, encoding {encoding:.1} cores: {:.0} times", encoding / copying);
}
