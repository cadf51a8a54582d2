// SPDX-License-Identifier: MPL-2.0
//! What becomes of the program where a GPU fails, with the driver and TensorRT of tests/fakes, which fail as they are told.

mod common;

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use common::endless::give_way;
use common::fakes::Fakes;
use common::onnx::endless;
use common::service::{Service, ask, free_address};
use common::wait::{LIMIT, wait_until};
use common::{command, sample, scratch, shapes, text};
use serde_json::{Value, json};

const CAMERAS: [&str; 3] = ["door", "gate", "yard"];
const FRAME: u64 = 1_000_000_000 / 30;

/// A model on the GPU, cameras that publish to a pipe each, and HTTP.
fn config(fakes: &Fakes, address: &str) -> String {
    let cameras = CAMERAS.map(|name| camera(name, "gpu")).concat();
    format!(
        "[[model]]\nname = \"gpu\"\nfile = \"{}\"\nnms = \"layout=semantic-logits\"\n\n\
         [[publish]]\nlocation = \"{{source}}.pipe\"\nadd-empty-results = true\nmax-queued = 5000\n\n\
         [http]\nlisten = \"{address}\"\n\n{cameras}",
        fakes.engine("good.engine", true).display()
    )
}

fn camera(name: &str, model: &str) -> String {
    format!(
        "[[source]]\nname = \"{name}\"\naddress = \"{}\"\nmodel = \"{model}\"\nloop = true\nsync = true\n\n",
        sample()
    )
}

/// A named pipe that holds a few lines, so that the others wait in the service.
fn pipe(folder: &Path, camera: &str) -> File {
    let file = folder.join(format!("{camera}.pipe"));
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let pipe = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file).unwrap();
    // SAFETY: they take a file that is open, and numbers.
    unsafe {
        assert_eq!(libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 4096), 4096);
        assert_eq!(libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, 0), 0);
    }
    pipe
}

fn get(address: &str, path: &str) -> (u16, Value) {
    let (status, answer) = ask(address, "GET", path, "", "");
    (status, serde_json::from_slice(&answer).unwrap_or_default())
}

fn frames(address: &str, camera: &str) -> u64 {
    get(address, &format!("/sources/{camera}")).1["frames"].as_u64().unwrap_or(0)
}

/// The results that come out of a pipe until its writer has ended, of frames that follow each other.
fn results(pipe: File) -> Vec<Value> {
    let lines = BufReader::new(pipe).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    let lines: Vec<Value> = lines.collect();
    let times: Vec<u64> = lines.iter().map(|line| line["stream-time"].as_u64().unwrap()).collect();
    let follows = |pair: &[u64]| pair[1].abs_diff(pair[0] + FRAME) < FRAME / 2 || pair[1] == 0 && pair[0] > 290 * FRAME;
    assert!(times.windows(2).all(follows), "{times:?}");
    lines
}

/// What was found until then is not lost, and whoever asks is told why, until the end.
#[test]
fn a_lost_gpu_ends_the_service_once_all_is_published() {
    let folder = scratch("serve-gpu-lost");
    let (fakes, address) = (Fakes::new(&folder), free_address());
    let pipes = CAMERAS.map(|camera| pipe(&folder, camera));
    let service = Service::with(&folder, &config(&fakes, &address), &fakes.variables());
    service.said("Started.");
    for camera in CAMERAS {
        wait_until("frames", LIMIT, || frames(&address, camera) > 60);
    }
    assert_eq!(get(&address, "/healthz").0, 200);
    fakes.plan("break 700");
    wait_until("503", LIMIT, || get(&address, "/healthz").0 == 503);
    let (_, answer) = get(&address, "/healthz");
    let said = answer["error"].as_str().unwrap();
    assert!(said.contains("this process can use GPU 0 no more, after CUDA_ERROR_ILLEGAL_ADDRESS"), "{said}");
    assert_eq!(get(&address, "/readyz").0, 503);
    let counts = CAMERAS.map(|camera| frames(&address, camera));
    for (pipe, count) in pipes.into_iter().zip(counts) {
        let results = results(pipe);
        assert!(results.len() as u64 >= count, "{} of {count}", results.len());
    }
    let (status, journal) = service.ended();
    assert_eq!(status.code(), Some(75), "{journal}");
    assert_eq!(journal.matches("Ending with status 75").count(), 1, "{journal}");
    for camera in CAMERAS {
        let told =
            journal.lines().filter(|line| line.contains(camera) && line.contains("can use GPU 0 no more")).count();
        assert!(told <= 1, "{camera}: {journal}");
    }
    assert!(!journal.contains("panicked") && !journal.contains("Left behind"), "{journal}");
}

#[test]
fn a_lost_gpu_has_a_status_of_its_own() {
    let folder = scratch("program-gpu-lost");
    let fakes = Fakes::new(&folder);
    let engine = fakes.engine("good.engine", true);
    let engine = engine.to_str().unwrap();
    fakes.plan("break 719");
    let (clip, infer) = (sample(), ["--infer", "verify=off"]);
    let detect =
        ["detect", &clip, "--model", engine, "--no-video", "--json", "out.jsonl", "--nms", "layout=semantic-logits"];
    for args in [&detect[..], &["verify", engine], &["bench", engine]] {
        let mut program = command(&folder);
        program.envs(fakes.variables()).args(args);
        if args[0] != "verify" {
            program.args(infer);
        }
        let output = program.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(75), "{args:?}: {said}");
        assert!(said.contains("can use GPU 0 no more, after CUDA_ERROR_LAUNCH_FAILED"), "{args:?}: {said}");
        assert!(said.contains("Start the program again"), "{args:?}: {said}");
    }
    fakes.plan("");
    let output = command(&folder).envs(fakes.variables()).args(detect).args(infer).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// A model in the fakes' GPU with further properties, and one on the CPU. Cameras publish to standard output.
fn two_models(fakes: &Fakes, address: &str, infer: &str) -> String {
    format!(
        "[[model]]\nname = \"gpu\"\nfile = \"{}\"\nnms = \"layout=semantic-logits\"\ninfer = \"{infer}\"\n\n\
         [[model]]\nname = \"cpu\"\nfile = \"{}\"\nbackend = \"rten\"\ninfer = \"interval=30 threads=1\"\n\n\
         [[publish]]\nlocation = \"-\"\nadd-empty-results = true\n\n[http]\nlisten = \"{address}\"\n\n",
        fakes.engine("good.engine", true).display(),
        shapes()
    )
}

/// The next results of a camera follow each other.
fn expect_no_gap(service: &Service, camera: &str, last: &mut Option<u64>) {
    for _ in 0..30 {
        let time = service.result(camera)["stream-time"].as_u64().unwrap();
        let follows = |last: u64| time.abs_diff(last + FRAME) < FRAME / 2 || time == 0 && last > 290 * FRAME;
        assert!(last.is_none_or(follows), "{camera}: {time} after {last:?}");
        *last = Some(time);
    }
}

/// It waits, and all others play on.
#[test]
fn a_camera_that_finds_no_memory_waits_for_it() {
    let folder = scratch("serve-gpu-memory");
    let (fakes, address) = (Fakes::new(&folder), free_address());
    let config = two_models(&fakes, &address, "") + &camera("door", "gpu") + &camera("gate", "cpu");
    let service = Service::with(&folder, &config, &fakes.variables());
    service.said("Started.");
    let mut last = [None; 2];
    let mut play_on = || {
        expect_no_gap(&service, "door", &mut last[0]);
        expect_no_gap(&service, "gate", &mut last[1]);
    };
    play_on();
    fakes.plan("lack");
    service.reload(&(config.clone() + &camera("yard", "gpu")));
    service.said("yard: Frames wait until the GPU has memory for them: Cannot allocate");
    (0..3).for_each(|_| play_on());
    assert_eq!(frames(&address, "yard"), 0);
    fakes.plan("");
    wait_until("frames once there is memory", LIMIT, || frames(&address, "yard") > 30);
    play_on();
    for name in ["door", "gate", "yard"] {
        let status = get(&address, &format!("/sources/{name}")).1;
        assert_eq!((&status["restarts"], &status["dropped"]), (&json!(0), &json!(0)), "{status}");
    }
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
    assert!(!journal.contains("Frames wait"), "it was said once: {journal}");
}

#[test]
fn a_gpu_that_does_not_get_on_ends_the_service() {
    let folder = scratch("serve-gpu-stuck");
    let (fakes, address) = (Fakes::new(&folder), free_address());
    let config =
        two_models(&fakes, &address, "run-timeout=300000000") + &camera("door", "gpu") + &camera("yard", "gpu");
    let service = Service::with(&folder, &config, &fakes.variables());
    service.said("Started.");
    for camera in ["door", "yard"] {
        wait_until("frames", LIMIT, || frames(&address, camera) > 30);
    }
    fakes.plan("stick");
    service.said("Ending with status 75");
    let (status, journal) = service.ended();
    assert_eq!(status.code(), Some(75), "{journal}");
    assert!(!journal.contains("panicked") && !journal.contains("Left behind"), "{journal}");
}

/// Its cameras are started again, with the model loaded again, and the others do not notice.
#[test]
fn a_model_whose_run_does_not_end_is_loaded_again() {
    let folder = scratch("serve-run-timeout");
    let address = free_address();
    let file = endless("1", "64", false).save(&folder.join("endless.onnx"));
    let config = format!(
        "[[model]]\nname = \"endless\"\nfile = \"{file}\"\nbackend = \"rten\"\ninfer = \"run-timeout=200000000 threads=2\"\n\n\
         [[model]]\nname = \"good\"\nfile = \"{}\"\nbackend = \"rten\"\ninfer = \"interval=30 threads=1\"\n\n\
         [[publish]]\nlocation = \"-\"\nadd-empty-results = true\n\n[http]\nlisten = \"{address}\"\n\n\
         {}backoff-max = 0.5\n\n{}",
        shapes(),
        camera("stuck", "endless").trim_end().to_owned() + "\n",
        camera("gate", "good")
    );
    let service = Service::start(&folder, &config);
    give_way(service.id());
    service.said("Started.");
    let mut last = None;
    expect_no_gap(&service, "gate", &mut last);
    for _ in 0..2 {
        service.said("endless.onnx has not ended within 0.2 s");
        service.said("Loaded endless.onnx");
        expect_no_gap(&service, "gate", &mut last);
    }
    let gate = get(&address, "/sources/gate").1;
    assert_eq!((&gate["restarts"], &gate["dropped"]), (&json!(0), &json!(0)), "{gate}");
    assert_eq!(get(&address, "/healthz").0, 200);
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
}

/// Sources are spread over the GPUs that there are, and the model is on each of them.
#[test]
fn sources_are_spread_over_gpus() {
    let folder = scratch("serve-gpus");
    let (fakes, address) = (Fakes::for_gstreamer(&folder), free_address());
    let config = |cameras: &[&str]| {
        let cameras: String = cameras.iter().map(|name| camera(name, "gpu")).collect();
        format!("gpus = \"all\"\n{}{cameras}", two_models(&fakes, &address, ""))
    };
    let gpus = |names: &[&str]| -> Vec<Value> {
        let gpu = |name: &&str| get(&address, &format!("/sources/{name}")).1["cuda-device-id"].clone();
        names.iter().map(gpu).collect()
    };
    let all = CAMERAS;
    let variables = [&fakes.variables()[..], &[("GSTTRT_FAKE_GPUS", "2")]].concat();
    let service = Service::with(&folder, &config(&all), &variables);
    service.said("Started.");
    for camera in all {
        wait_until("frames", LIMIT, || frames(&address, camera) > 30);
    }
    assert_eq!(gpus(&all), [0, 1, 0]);
    let metrics = String::from_utf8(ask(&address, "GET", "/metrics", "", "").1).unwrap();
    if gst::version() < (1, 24, 0, 0) {
        assert!(metrics.contains("gst_trt_cuda_contexts 2\n"), "{metrics}");
    } else {
        println!("SKIP: GStreamer takes more of a driver than tests/fakes has, so all is on the first GPU");
    }
    assert!(metrics.contains("gst_trt_source_gpu{source=\"gate\"} 1\n"), "{metrics}");
    // Those that stay do not move; the next one comes where there are the fewest.
    let mut last = None;
    expect_no_gap(&service, "yard", &mut last);
    service.reload(&config(&["yard", "gate", "attic", "cellar"]));
    service.said("was read again");
    for camera in ["attic", "cellar"] {
        wait_until("frames", LIMIT, || frames(&address, camera) > 30);
    }
    assert_eq!(gpus(&["yard", "gate", "attic", "cellar"]), [0, 1, 0, 1]);
    expect_no_gap(&service, "yard", &mut last);
    // Another model takes over on both.
    let other = fakes.engine("other.engine", true);
    service.reload(&config(&["yard", "gate"]).replace("good.engine", "other.engine"));
    let is_other = || get(&address, "/models").1[0]["file"] == other.to_str().unwrap();
    wait_until("the other model", LIMIT, is_other);
    let counts = ["yard", "gate"].map(|camera| frames(&address, camera));
    for (camera, count) in ["yard", "gate"].into_iter().zip(counts) {
        wait_until("frames of the other model", LIMIT, || frames(&address, camera) > count + 30);
        assert_eq!(get(&address, &format!("/sources/{camera}")).1["restarts"], 0);
    }
    let (status, journal) = service.end();
    assert_eq!(status.code(), Some(0), "{journal}");
}

#[test]
fn gpus_that_are_not_there_are_told_of() {
    let folder = scratch("serve-gpus-missing");
    let (fakes, address) = (Fakes::for_gstreamer(&folder), free_address());
    let config = |gpus: &str| format!("gpus = {gpus}\n{}{}", two_models(&fakes, &address, ""), camera("door", "gpu"));
    let expect_checked = |config: &str, variables: &[(&str, &str)], said: &str| {
        std::fs::write(folder.join("config.toml"), config).unwrap();
        let mut check = command(&folder);
        check.args(["serve", "--check", "config.toml"]).envs(variables.iter().copied());
        let output = check.output().unwrap();
        let stderr = text(&output.stderr);
        assert!(output.status.success() == said.is_empty() && stderr.contains(said), "{said}: {stderr}");
    };
    expect_checked(&config("\"all\""), &fakes.variables(), "");
    expect_checked(&config("[0, 3]"), &fakes.variables(), "gpus names 0, 3, and CUDA shows 1 of 2");
    let service = Service::with(&folder, &config("[0, 3]"), &fakes.variables());
    service.said("gpus names 0, 3, and CUDA shows 1 of 2");
    wait_until("frames", LIMIT, || frames(&address, "door") > 30);
    let visible = std::fs::read_to_string(service.proc("environ")).unwrap_or_default();
    assert!(!visible.contains("CUDA_VISIBLE_DEVICES"), "it is of the process itself");
    assert_eq!(service.end().0.code(), Some(0));
    // None at all: the model on the CPU runs all the same.
    let none = [&fakes.variables()[..], &[("GSTTRT_FAKE_GPUS", "0")]].concat();
    let on_cpu = config("\"all\"").replace("\"gpu\"\nloop", "\"cpu\"\nloop");
    expect_checked(&on_cpu, &none, "gpus: there is none here, so all is on the CPU");
    let named = config("\"all\"").replace("nms = \"layout", "backend = \"tensorrt\"\nnms = \"layout");
    expect_checked(&named, &fakes.variables(), "");
    expect_checked(&named, &none, "model “gpu”: ");
    let service = Service::with(&folder, &on_cpu, &none);
    service.said("gpus: there is none here, so all is on the CPU");
    wait_until("frames", LIMIT, || frames(&address, "door") > 30);
    assert_eq!(get(&address, "/sources/door").1["cuda-device-id"], Value::Null);
    assert_eq!(service.end().0.code(), Some(0));
    let visible = [&fakes.variables()[..], &[("CUDA_VISIBLE_DEVICES", "1")]].concat();
    let service = Service::with(&folder, &config("[0]"), &visible);
    let (status, journal) = service.ended();
    assert!(
        status.code() == Some(1) && journal.contains("CUDA_VISIBLE_DEVICES=1 in the environment does, too"),
        "{journal}"
    );
    for (gpus, said) in [
        ("\"al\"", "gpus are \"all\", or a list of numbers or UUIDs"),
        ("[]", "gpus are \"all\", or a list"),
        ("[0, \"GPU-1\"]", "all of one kind"),
        ("[\"GPU-1\", \"GPU-1\"]", "gpus names GPU-1 twice"),
        ("[-1]", "gpus are \"all\""),
        ("[\"x,1\"]", "gpus are \"all\""),
    ] {
        std::fs::write(folder.join("config.toml"), config(gpus)).unwrap();
        let output = command(&folder).args(["serve", "--check", "config.toml"]).output().unwrap();
        assert!(
            output.status.code() == Some(1) && text(&output.stderr).contains(said),
            "{gpus}: {}",
            text(&output.stderr)
        );
    }
}
