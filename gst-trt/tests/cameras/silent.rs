// SPDX-License-Identifier: MPL-2.0
//! Cameras, servers and pipes that send nothing, or nothing more, are given up after a time.

use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::record::RowAccessor;

use super::*;

/// How many rows of a source have no error, and the errors of the others.
fn rows_of(table: &Path, source: &str) -> (usize, Vec<String>) {
    let reader = SerializedFileReader::new(std::fs::File::open(table).unwrap()).unwrap();
    let columns = reader.metadata().file_metadata().schema().get_fields();
    let place = |name: &str| columns.iter().position(|column| column.name() == name).unwrap();
    let (source_at, error_at) = (place("source"), place("error"));
    let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap);
    let own: Vec<_> = rows.filter(|row| row.get_string(source_at).unwrap().ends_with(source)).collect();
    let errors: Vec<String> = own.iter().filter_map(|row| row.get_string(error_at).ok().cloned()).collect();
    (own.len() - errors.len(), errors)
}

/// Connections to it are made, and never answered.
fn silent() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn sources_that_send_nothing_are_rows_with_an_error() {
    let folder = scratch("silent");
    assert!(Command::new("mkfifo").arg(folder.join("pipe.ts")).status().unwrap().success());
    let (_listener, port) = silent();
    let (rtsp, http) = (format!("rtspt://127.0.0.1:{port}/street"), format!("http://127.0.0.1:{port}/yard.mp4"));
    let args =
        ["detect", &rtsp, &http, "pipe.ts", &sample(), "--model", &shapes(), "--backend", "cpu", "--frames", "2"];
    let more = ["--rows", "frames", "--parquet", "found.parquet", "--timeout", "0.5"];
    let args = [&args[..], &more].concat();
    expect_failure(&run(&folder, &args), &args, &["3 of 4 sources have no results; the others are done."]);
    let table = folder.join("found.parquet");
    for source in [&rtsp, &http, "pipe.ts"] {
        let (frames, errors) = rows_of(&table, source);
        assert_eq!((frames, errors.len()), (0, 1), "{source}: {errors:?}");
        let end = ": no frame came for 0.5 s. Check what sends it; --timeout gives it more time.";
        assert!(errors[0].starts_with("Cannot read ") && errors[0].ends_with(end), "{errors:?}");
    }
    assert_eq!(rows_of(&table, "sample.mp4"), (2, vec![]));
}

/// Files have a limit of their own, which is none of a pipe.
#[test]
fn a_pipe_with_the_name_of_a_picture_is_given_up_at_its_time() {
    let folder = scratch("silent-picture");
    assert!(Command::new("mkfifo").arg(folder.join("pipe.jpg")).status().unwrap().success());
    let args = ["detect", "pipe.jpg", "--model", &shapes(), "--backend", "cpu", "--no-video", "--timeout", "0.5"];
    let says = "Cannot read pipe.jpg: no frame came for 0.5 s. Check what sends it; --timeout gives it more time.";
    expect_failure(&run(&folder, &args), &args, &[says]);
}

/// What it has sent until then is kept.
#[test]
fn a_camera_that_falls_silent_keeps_its_frames() {
    let folder = scratch("silent-later");
    let (next, told) = channel();
    let port = camera(pictures(&folder, &[(320, 180)]), "frame", true, told);
    (0..4).for_each(|_| next.send(()).unwrap());
    let address = format!("http://127.0.0.1:{port}/");
    let args =
        ["detect", &address, "--model", &shapes(), "--backend", "cpu", "--output", "found.mkv", "--timeout", "4000ms"];
    let args = [&args[..], &["--rows", "frames", "--parquet", "found.parquet"]].concat();
    let says = ["Cannot read http://127.0.0.1:", " to its end: no frame came for 4 s.", "until then is written."];
    expect_failure(&run(&folder, &args), &args, &says);
    let (frames, errors) = rows_of(&folder.join("found.parquet"), &address);
    // Where the model is slower than the camera, new frames have taken the place of old ones.
    assert!(frames >= 1 && errors.len() == 1, "{frames} {errors:?}");
    launch(&format!("filesrc location={} ! decodebin ! fakesink", folder.join("found.mkv").display()));
    drop(next);
}

#[test]
fn a_source_is_waited_for_without_an_end_where_that_is_wanted() {
    let folder = scratch("silent-endless");
    let (next, told) = channel();
    let port = camera(pictures(&folder, &[(320, 180)]), "frame", true, told);
    let mut child =
        detect(&folder, &format!("http://127.0.0.1:{port}/"), &["--no-video", "--json", "-", "--timeout", "0"]);
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(errors.any(|line| line.ends_with("has given no frame for 10 s.")), "it waits");
    (0..3).for_each(|_| next.send(()).unwrap());
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(out.next().is_some_and(|line| line.is_ok()), "its frames are still taken");
    signal(&child, libc::SIGINT);
    let (_, rest) = (out.count(), errors.collect::<Vec<_>>());
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest:?}");
    drop(next);
}
