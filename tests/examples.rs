// SPDX-License-Identifier: MPL-2.0
//! The examples that read detections, as programs: what they print of a clip, and that each failure ends with the text
//! of the error and without waiting forever. The same of the examples without a pipeline; tests/capi.rs tests what
//! those find, and gst-trt/tests run the program.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{launch, path, quick_shapes, registry, scratch, shapes};
use gsttrt_core::model::InputValues;

/// A program and the words before its own arguments.
struct Example {
    program: PathBuf,
    words: Vec<String>,
    folder: PathBuf,
}

/// Where cargo has put what it built: the plugin, and the examples in a folder of their own.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_path_buf()
}

fn compile(source: &Path, program: &Path) {
    let flags =
        Command::new("pkg-config").args(["--cflags", "--libs", "gstreamer-app-1.0", "gstreamer-video-1.0"]).output();
    let flags = String::from_utf8(flags.unwrap().stdout).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror"]).arg(source).args(flags.split_whitespace());
    assert!(compiler.arg("-o").arg(program).status().unwrap().success());
}

impl Example {
    /// `change` edits the source, where the language allows that without cargo.
    fn new(language: &str, test: &str, change: impl Fn(String) -> String) -> Self {
        let folder = scratch(&format!("examples-{test}-{language}"));
        let source = folder.join(format!("detections.{language}"));
        let text = std::fs::read_to_string(path(&format!("examples/detections.{language}"))).unwrap();
        std::fs::write(&source, change(text)).unwrap();
        let (program, words) = match language {
            // Debian's own interpreter is the one that has GStreamer's bindings.
            "py" => ("/usr/bin/python3".into(), vec![source.display().to_string()]),
            "c" => {
                compile(&source, &folder.join("detections"));
                (folder.join("detections"), vec![])
            }
            _ => (target().join("examples/detections"), vec![]),
        };
        Example { program, words, folder }
    }

    fn plain(language: &str, test: &str) -> Self {
        Example::new(language, test, |text| text)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// `timeout` ends what waits forever with the status 124.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg("120").arg(&self.program).args(&self.words).args(arguments).current_dir(&self.folder);
        command.env("GST_PLUGIN_PATH", target()).env("GST_REGISTRY", registry());
        command
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    /// The first frames of the sample, under a name with a blank in it. Its header comes before its data.
    fn clip(&self, frames: usize) -> String {
        let clip = self.folder.join("a clip.mp4").display().to_string();
        launch(&format!(
            "filesrc location={} ! qtdemux ! h264parse ! identity eos-after={frames} ! mp4mux faststart=true ! filesink location=\"{clip}\"",
            path("tests/data/sample.mp4")
        ))
        .expect_success();
        clip
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn finds_objects(language: &str) {
    let example = Example::plain(language, "finds");
    let output = example.run(&[&example.clip(30), &quick_shapes()]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() > 60, "each of 30 frames has several objects: {said}");
    assert!(lines.iter().all(|line| line.starts_with("disc 0.") || line.starts_with("box 0.")), "{said}");
}

#[track_caller]
fn failures_are_said(language: &str) {
    let example = Example::plain(language, "fails");
    let (sample, model) = (path("tests/data/sample.mp4"), shapes());
    let words = example.file("bad.mp4", b"hello\n");
    // A file without a header would not do: decodebin of GStreamer 1.26 loses the error of qtdemux in 1 of 100 runs,
    // with no element of ours in the pipeline.
    let mut damaged = std::fs::read(example.clip(30)).unwrap();
    let data = damaged.windows(4).position(|word| word == b"mdat").unwrap() + 4;
    damaged[data..].fill(0);
    let damaged = example.file("damaged.mp4", &damaged);
    let junk = example.file("junk.onnx", b"junk");
    for (arguments, expected_text) in [
        (&[] as &[&str], "Usage: detections"),
        (&[&sample], "Usage: detections"),
        (&[&sample, "nope.onnx"], "There is no model file nope.onnx"),
        (&[&sample, &junk], "junk.onnx"),
        (&["nope.mp4", &model], "No such file \"nope.mp4\""),
        (&[&words, &model], "type of stream"),
        (&[&damaged, &model], "No valid frames"),
    ] {
        let output = example.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{language} {arguments:?}: {said}");
        assert!(said.contains(expected_text), "{language} {arguments:?}: {said}");
        let noise = ["CRITICAL", "Traceback", "panicked", "Error {"];
        assert!(!noise.iter().any(|word| said.contains(word)), "{language} {arguments:?}: {said}");
        assert_eq!(text(&output.stdout), "", "{language} {arguments:?}");
    }
}

/// GStreamer 1.22 copies the rectangles to a converted frame, without the parameters that hold the confidence.
#[track_caller]
fn lost_parameters_do_no_harm(language: &str) {
    let convert = |text: String| {
        let changed =
            text.replace("! trtnms draw=false !", "! trtnms draw=false ! videoconvert ! video/x-raw,format=BGR !");
        assert_ne!(text, changed);
        changed
    };
    let example = Example::new(language, "converted", convert);
    let output = example.run(&[&example.clip(30), &quick_shapes()]);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && errors.is_empty(), "{said}{errors}");
    assert!(said.lines().count() > 60, "{said}");
    let good = |line: &str| ["disc 0.", "box 0.", "disc ? (", "box ? ("].iter().any(|start| line.starts_with(start));
    assert!(said.lines().all(good) && !said.contains(" 0.00 "), "{said}");
}

#[test]
fn the_python_example_finds_objects() {
    finds_objects("py");
}

#[test]
fn the_c_example_finds_objects() {
    finds_objects("c");
}

#[test]
fn the_rust_example_finds_objects() {
    finds_objects("rs");
}

#[test]
fn the_python_example_reports_failures() {
    failures_are_said("py");
}

#[test]
fn the_c_example_reports_failures() {
    failures_are_said("c");
}

#[test]
fn the_rust_example_reports_failures() {
    failures_are_said("rs");
}

#[test]
fn the_python_example_takes_frames_that_were_converted() {
    lost_parameters_do_no_harm("py");
}

#[test]
fn the_c_example_takes_frames_that_were_converted() {
    lost_parameters_do_no_harm("c");
}

/// A warning may say why nothing is found.
#[track_caller]
fn warnings_are_printed(language: &str) {
    let change = |text: String| text.replace("! trtnms draw=false", "! trtnms draw=false top-k=3");
    let example = Example::new(language, "warns", change);
    let output = example.run(&[&example.clip(30), &quick_shapes()]);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("Warning: top-k has no effect"), "{language}: {said}");
}

#[test]
fn the_python_example_prints_warnings() {
    warnings_are_printed("py");
}

#[test]
fn the_c_example_prints_warnings() {
    warnings_are_printed("c");
}

#[test]
fn events_are_printed_from_the_bus_and_from_frames() {
    let mut example = Example::plain("py", "events");
    example.words = vec![path("examples/events.py")];
    let zones =
        br#"{"tripwires": [{"id": "x", "points": [[0.5, 0], [0.5, 1]]}, {"id": "y", "points": [[0, 0.5], [1, 0.5]]}],
        "zones": [{"id": "left", "points": [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]}]}"#;
    // Many of its discs enter the zone and cross the lines in that time.
    let (sample, model, zones) = (example.clip(90), quick_shapes(), example.file("zones.json", zones));
    let output = example.run(&[&sample, &model, &zones]);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && errors.is_empty(), "{said}{errors}");
    let of_frames = || said.lines().filter_map(|line| line.strip_prefix("frame ")?.split_once(": "));
    let on_bus: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("bus: ")).collect();
    assert!(of_frames().count() > 0 && of_frames().count() + on_bus.len() == said.lines().count(), "{said}");
    assert!(of_frames().all(|(number, event)| number.parse::<u32>().is_ok() && on_bus.contains(&event)), "{said}");
    assert!(on_bus.iter().all(|event| event.contains(", count ")), "{said}");
    for (arguments, expected_text) in [
        (&[] as &[&str], "Usage: events.py VIDEO MODEL ZONES"),
        (&[&sample, "nope.onnx", &zones], "There is no model file nope.onnx"),
        (&[&sample, &model, "nope.json"], "nope.json"),
    ] {
        let output = example.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains(expected_text) && !said.contains("Traceback"), "{arguments:?}: {said}");
    }
}

#[test]
fn crops_are_written_as_pictures() {
    let mut example = Example::plain("py", "crops");
    let (clip, crops) = (example.clip(30), example.folder.join("crops"));
    let objects = text(&example.run(&[&clip, &shapes()]).stdout).lines().count();
    example.words = vec![path("examples/crops.py")];
    let output = example.run(&[&clip, &shapes(), crops.to_str().unwrap()]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let files: Vec<PathBuf> = std::fs::read_dir(&crops).unwrap().map(|file| file.unwrap().path()).collect();
    // The frames are RGB here and YUV there, so an object near the threshold may be in one only.
    assert!(objects > 60 && files.len().abs_diff(objects) <= objects / 20, "{} crops of {objects}", files.len());
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(name.ends_with("-disc.jpg") || name.ends_with("-box.jpg"), "{name}");
        assert!(std::fs::read(&file).unwrap().starts_with(&[0xff, 0xd8, 0xff]), "{name} is no JPEG");
    }
    // A label with a slash is no folder.
    let mut model = std::fs::read(quick_shapes()).unwrap();
    let label = model.windows(6).position(|word| word == b"'disc'").unwrap();
    model[label + 2] = b'/';
    let (model, crops) = (example.file("slash.onnx", &model), example.folder.join("slash"));
    let output = example.run(&[&clip, &model, crops.to_str().unwrap()]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let mut names = std::fs::read_dir(&crops).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    assert!(names.any(|name| name.ends_with("-d-sc.jpg")));
    for (arguments, expected_text) in [
        (&[] as &[&str], "Usage: crops.py VIDEO MODEL FOLDER"),
        (&[&clip, "nope.onnx", "crops"], "There is no model file nope.onnx"),
        (&["nope.mp4", &shapes(), "crops"], "No such file \"nope.mp4\""),
    ] {
        let output = example.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains(expected_text) && !said.contains("Traceback"), "{arguments:?}: {said}");
    }
}

/// A package stands for open_clip: the vector of a text is its length and the number of its blanks.
const OPEN_CLIP: &str = "
import numpy

class Vectors(numpy.ndarray):
    detach = float = lambda self: self
    numpy = lambda self: numpy.asarray(self)

class Network:
    eval = lambda self: self
    encode_text = lambda self, tokens: numpy.array(tokens, 'float32').view(Vectors)

def create_model(name, pretrained):
    assert (name, pretrained) == ('tiny', 'none')
    return Network()

def get_tokenizer(name):
    return lambda words: [[len(word), word.count(' ')] for word in words]
";

#[test]
fn words_become_vectors_and_names() {
    let folder = scratch("examples-words");
    std::fs::write(folder.join("open_clip.py"), OPEN_CLIP).unwrap();
    std::fs::write(folder.join("transformers.py"), "raise ImportError('No module named transformers')").unwrap();
    let out = folder.join("words.npy").display().to_string();
    let run_to = |out: &str, arguments: &[&str]| {
        let mut python = Command::new("/usr/bin/python3");
        python.arg(path("examples/words.py")).arg(out).args(arguments).env("PYTHONPATH", &folder).output().unwrap()
    };
    let run = |arguments: &[&str]| run_to(&out, arguments);
    let output = run(&["red  car", "dog", "--text-model", "open_clip:tiny/none", "--count", "3"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_to_string(folder.join("words.txt")).unwrap(), "red car\ndog\n-\n");
    let file = std::fs::read(&out).unwrap();
    assert!(text(&file).contains("'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 2)"), "{}", text(&file));
    let numbers: Vec<f32> = file[file.len() - 24..].as_chunks::<4>().0.iter().map(|&n| f32::from_le_bytes(n)).collect();
    assert_eq!(numbers[2..4], [1.0, 0.0], "vectors have the length 1");
    InputValues::read(&format!("txt_feats={out}")).unwrap();
    for (arguments, says) in [
        (
            &["dog"] as &[&str],
            "No module named transformers. For the text model openai/clip-vit-base-patch32: pip install",
        ),
        (&["dog", " "], "a word is empty"),
        (&["dog", "cat", "--count", "1"], "2 words are given, and --count is 1"),
        (&["dog", "cat", "--count", "0"], "2 words are given, and --count is 0"),
        (&["dog", "--text-model", "none.onnx"], "none.onnx"),
    ] {
        let output = run(arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(says) && !said.contains("Traceback"), "{said}");
    }
    let place = |name: &str| folder.join(name).display().to_string();
    // Where NumPy is missing.
    let without = folder.join("without");
    std::fs::create_dir(&without).unwrap();
    std::fs::write(without.join("numpy.py"), "raise ImportError('No module named numpy')").unwrap();
    let mut python = Command::new("/usr/bin/python3");
    let output =
        python.arg(path("examples/words.py")).args([&out, "dog"]).env("PYTHONPATH", &without).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(said, "Error: No module named numpy. The vectors are an array of NumPy: pip install numpy\n");
    std::fs::create_dir(place("dir.npy")).unwrap();
    for (out, says) in [
        (place("dir.npy"), "dir.npy is a folder"),
        (place("none/words.npy"), "there is no folder"),
        ("/proc/words.npy".into(), "Error: cannot write /proc/words.npy: "),
    ] {
        let output = run_to(&out, &["dog", "--text-model", "open_clip:tiny/none"]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(says) && !said.contains("Traceback"), "{said}");
    }
    assert!(!folder.join("dir.txt").exists());
}

#[test]
fn python_without_bindings_prints_what_is_missing() {
    let example = Example::plain("py", "bare");
    // `-S` leaves out the folder in which Debian installs modules.
    let words = ["-S", &example.words[0], "a.mp4", "m.onnx"];
    let output = Command::new(&example.program).args(words).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("python3-gi") && !said.contains("Traceback"), "{said}");
}

/// As with `| head -n 1`, whose reader leaves first. That is no failure to talk of.
#[track_caller]
fn ends_silently_without_a_reader(command: &mut Command) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    // `timeout` and shells report the signal as a status.
    let ended = output.status.signal().map_or(output.status.code(), |signal| Some(128 + signal));
    assert!(matches!(ended, Some(0 | SIGPIPE)), "{command:?}: {:?}, {}", output.status, text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{command:?}");
}

/// 128 and the number of the signal.
const SIGPIPE: i32 = 141;

#[test]
fn the_reader_of_an_example_may_leave_first() {
    let model = quick_shapes();
    for language in ["py", "c", "rs"] {
        let example = Example::plain(language, "reader");
        ends_silently_without_a_reader(example.command(&[&example.clip(30), &model]).env("PYTHONUNBUFFERED", "1"));
    }
    let example = Example::plain("py", "reader-tensors");
    let (clip, library) = (example.clip(30), target().join("libgsttrt_capi.so").display().to_string());
    // A white disc on grey.
    let is_in_disc = |x: usize, y: usize| x.abs_diff(160).pow(2) + y.abs_diff(160).pow(2) < 3600;
    let pixels = (0..320 * 320).flat_map(|at| [if is_in_disc(at % 320, at / 320) { 255u8 } else { 96 }; 3]);
    let picture = example.file("disc.ppm", &b"P6 320 320 255\n".iter().copied().chain(pixels).collect::<Vec<_>>());
    for arguments in
        [vec!["examples/tensors.py", &library, &clip, &model], vec!["examples/session.py", &model, &library]]
    {
        let mut python = Command::new("/usr/bin/python3");
        python.arg(path(arguments[0])).args(&arguments[1..]).env("GST_PLUGIN_PATH", target());
        ends_silently_without_a_reader(python.env("GST_REGISTRY", registry()));
    }
    ends_silently_without_a_reader(Command::new(target().join("examples/session")).args([&model, &picture]));
}

/// What a program prints that must fail.
#[track_caller]
fn failure(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!said.contains("Traceback") && !said.contains("panicked") && !said.contains("Error {"), "{said}");
    said
}

#[test]
fn the_session_examples_report_failures() {
    let folder = scratch("examples-session");
    let library = target().join("libgsttrt_capi.so");
    let c = folder.join("session");
    let built = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-I", &path("capi/include"), &path("examples/session.c"), "-o"])
        .args([&c, &library])
        .status();
    assert!(built.unwrap().success());
    let rust = target().join("examples/session");

    let file = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.join(name), bytes).unwrap();
        folder.join(name).display().to_string()
    };
    let good = file("good.ppm", &[b"P6\n# a comment\n2 1\n255\n", &[0; 6][..]].concat());
    let cut = file("cut.ppm", b"P6 640 360 255\n...");
    let words = file("words.ppm", b"hello\n");
    let huge = file("huge.ppm", b"P6 4294967295 4294967295 255\n");
    let model = shapes();
    for program in [&c, &rust] {
        for (arguments, expected_text) in [
            (&[] as &[&str], "Usage: session MODEL PICTURE.ppm"),
            (&["nope.onnx", &good], "Error: There is no model file nope.onnx"),
            (&[&model, "nope.ppm"], "nope.ppm"),
            (&[&model, &cut], "Error: "),
            (&[&model, &words], "words.ppm is no binary PPM picture"),
            (&[&model, &huge], "Error: "),
        ] {
            let said = failure(Command::new(program).args(arguments).env("LD_LIBRARY_PATH", target()));
            assert!(said.contains(expected_text), "{arguments:?}: {said}");
        }
        let found = Command::new(program).args([&model, &good]).env("LD_LIBRARY_PATH", target()).output().unwrap();
        assert!(found.status.success(), "{}", text(&found.stderr));
    }

    let python = |script: &str, arguments: &[&str]| {
        failure(Command::new("/usr/bin/python3").arg(path(script)).args(arguments).env("GST_PLUGIN_PATH", target()))
    };
    assert!(python("examples/session.py", &[]).contains("Usage: session.py MODEL [LIBRARY]"));
    assert!(python("examples/session.py", &[&model, "/nope.so"]).contains("/nope.so"));
    let said = python("examples/session.py", &[&model, "/nope.so"]);
    assert!(said.contains("in a checkout target/release/libgsttrt_capi.so"), "{said}");
    assert!(
        python("examples/session.py", &["nope.onnx", library.to_str().unwrap()]).contains("no model file nope.onnx")
    );
    assert!(python("examples/tensors.py", &[]).contains("Usage: tensors.py LIBRARY CLIP MODEL"));
}
