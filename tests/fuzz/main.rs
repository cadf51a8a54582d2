// SPDX-License-Identifier: MPL-2.0
//! Damaged and hostile inputs of every kind: each is used or refused, and none may panic, abort or hang.
//!
//! A few seconds for each kind; `FUZZ_SECONDS=600 cargo test --test fuzz` runs longer, and `FUZZ_SEED=7` with other
//! inputs. Models are run in a child process, since what rten does with them may end it: the file that did is named and
//! kept.

mod c_library;
#[path = "../common/mod.rs"]
mod common;
mod engine_cache;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use gsttrt_core::backends::options::Options;
use gsttrt_core::backends::tensorrt::builder::{ExactLayers, Half};
use gsttrt_core::backends::tensorrt::header::Header;
use gsttrt_core::backends::tensorrt::onnx::Onnx;
use gsttrt_core::backends::{BackendPreference, LoadContext, LoadRequest};
use gsttrt_core::device::Device;
use gsttrt_core::dlpack::{self, DlDataType, DlDevice, DlTensor, Managed};
use gsttrt_core::error::Result;
use gsttrt_core::memory::Pool;
use gsttrt_core::model::{FileContents, ModelInfo};
use gsttrt_core::session::{Detector, parse_options};
use gsttrt_core::tensor::{Tensor, Tensors};

use common::hostile::{self, LITERALS, damage, picture, text};
use common::random::Random;
use common::scratch;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// Repeats something, with other numbers each time, until the time is over.
fn repeat(seconds: u64, mut work: impl FnMut(&mut Random)) {
    let until = Instant::now() + Duration::from_secs(setting("FUZZ_SECONDS", seconds));
    let mut random = Random(setting("FUZZ_SEED", 1));
    let mut count = 0;
    while count < 20 || Instant::now() < until {
        work(&mut random);
        count += 1;
    }
    println!("{count} inputs");
}

#[test]
fn metadata_of_models() {
    let file = scratch("fuzz-metadata").join("metadata.onnx");
    repeat(2, |random| {
        let mut graph = picture().constant("output0", &[1, 1, 6], &[0.0; 6]);
        for key in ["names", "stride", "imgsz", "task", "args", "end2end", "description"] {
            if random.below(2) == 0 {
                graph = graph.metadata(key, &text(random, &LITERALS));
            }
        }
        graph.save(&file);
        if let Ok(model) = ModelInfo::read(&file) {
            model.hints((8, 8));
            let _ = model.input_spec(None, 1, Device::Host);
        } else {
            assert!(ModelInfo::read(&file).unwrap_err().message().len() < 10_000);
        }
    });
}

#[test]
fn headers_of_engines() {
    let json = br#"{"task": "detect", "names": {"0": "a"}, "stride": 32}"#;
    let mut plan = vec![0; 128];
    plan[..4].copy_from_slice(b"ftrt");
    (plan[8], plan[16]) = (2, 128);
    let whole = [&(json.len() as u32).to_le_bytes()[..], json, &plan].concat();
    repeat(1, |random| {
        let mut bytes = if random.below(2) == 0 { whole.clone() } else { plan.clone() };
        damage(random, &mut bytes);
        if let Ok(header) = Header::read(&bytes) {
            assert!(header.plan.end <= bytes.len());
            let _ = ModelInfo::of_engine(Path::new("x"), Vec::new(), Vec::new(), header.metadata.as_deref());
        }
        let _ = ModelInfo::of_engine(Path::new("x"), Vec::new(), Vec::new(), Some(&text(random, &LITERALS)));
    });
}

#[test]
fn label_files_and_options() {
    let folder = scratch("fuzz-labels");
    let labels = folder.join("labels.txt");
    let model = picture().constant("output0", &[1, 1, 6], &[0.0; 6]).save(&folder.join("model.onnx"));
    let names = [
        "backend",
        "input-size",
        "precision",
        "engine-build",
        "optimization-level",
        "workspace-mib",
        "upload",
        "layout",
        "score-threshold",
        "class-thresholds",
        "classes",
        "iou-threshold",
        "max-detections",
        "class-agnostic",
        "none",
    ];
    let pieces =
        ["cpu", "auto", "=", ",", "0", "1", "0.5", "-1", "nan", "inf", "1e39", "x", "640x640", "true", "a", "\0", " "];
    repeat(2, |random| {
        let bytes = text(random, &["a", "b c", "\n", "\r\n", "\u{feff}", "\0", "é", " ", "\t", "xxxxxxxx"]);
        let mut bytes = bytes.into_bytes();
        damage(random, &mut bytes);
        std::fs::write(&labels, bytes).unwrap();
        let mut options = vec!["backend=rten".to_string(), format!("label-file={}", labels.display())];
        if random.below(2) == 0 {
            options.push(format!("{}={}", random.one_of(&names), text(random, &pieces)));
        }
        let opened = parse_options(options.iter().map(String::as_str))
            .and_then(|(options, wishes)| Detector::open(&model, &options, wishes));
        if let Err(error) = opened {
            assert!(error.message().len() < 10_000 && !error.message().contains('\0'));
        }
    });
}

#[test]
fn tensors_of_other_frameworks() {
    repeat(1, |random| {
        let rank = random.below(6);
        let mut shape: Vec<i64> =
            (0..rank).map(|_| random.one_of(&[0, 1, 2, 3, -1, i64::MAX, i64::MIN, 1 << 33])).collect();
        let mut strides = shape.clone();
        let mut data = vec![0u64; 64];
        let view = DlTensor {
            data: if random.below(8) == 0 { ptr::null_mut() } else { data.as_mut_ptr().cast() },
            device: DlDevice { kind: random.one_of(&[1, 1, 1, 2, 3, 99, -1]), id: random.one_of(&[0, -1, 7]) },
            rank: random.one_of(&[rank as i32, rank as i32, rank as i32, -1, i32::MIN]),
            dtype: DlDataType {
                code: random.one_of(&[0, 1, 2, 2, 6, 255]),
                bits: random.one_of(&[0, 7, 8, 16, 32, 64]),
                lanes: random.one_of(&[0, 1, 1, 1, 2]),
            },
            shape: if random.below(9) == 0 { ptr::null_mut() } else { shape.as_mut_ptr() },
            strides: if random.below(2) == 0 { ptr::null_mut() } else { strides.as_mut_ptr() },
            byte_offset: random.one_of(&[0, 0, 1, 64, u64::MAX]),
        };
        let mut managed = Managed { view, context: ptr::null_mut(), deleter: None };
        // SAFETY: shape and strides have as many entries as the rank, or are NULL; what is imported is dropped before
        // they are, unread.
        drop(unsafe { dlpack::import(NonNull::from(&mut managed), "fuzz") });
    });
}

fn run_once(file: &Path) -> Result<Vec<Tensor>> {
    let cpu = BackendPreference::Named("rten");
    let request = LoadRequest::new(file, cpu, None, 1, Options::default(), || unreachable!("it is no GPU"))?;
    let mut backend = request.load(&LoadContext::silent())?;
    let picture = Tensor::fill(&Pool::default(), request.spec.desc, |_| Ok(()))?;
    backend.run(&[Arc::new(Tensors::new(vec![picture], None, None))])?.remove(0).into_ready()
}

/// The child of the test below.
#[test]
fn models_named_in_the_environment() {
    for file in std::env::var("FUZZ_FILES").iter().flat_map(|files| files.split(':')) {
        let outcome = run_once(Path::new(file));
        println!("{file}: {}", outcome.map_or_else(|error| error.message(), |_| "runs".into()));
        for half in [Half::F16, Half::Bf16] {
            let go_on = AtomicBool::new(false);
            let cast = Onnx::read(Path::new(file)).and_then(|onnx| onnx.cast(half, ExactLayers::Head, &go_on));
            if let (Ok(Some(cast)), Ok(_)) = (cast, ModelInfo::read(Path::new(file))) {
                let cast = FileContents::of(Path::new(file), cast);
                ModelInfo::of_onnx(&cast).expect("what can be read can be read again");
            }
        }
    }
}

/// How a child ended that was given these files.
enum End {
    Well,
    Aborted,
    Panicked,
    Hung,
}

fn child(files: &[PathBuf], timeout: Duration) -> End {
    let files = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(":");
    // What a failed allocation is should not depend on the machine.
    let mut child = Command::new("prlimit")
        .arg("--as=6442450944")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "models_named_in_the_environment"])
        .env("FUZZ_FILES", files)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + timeout;
    loop {
        match child.try_wait().unwrap() {
            Some(status) if status.success() => return End::Well,
            Some(status) if status.signal().is_some() => return End::Aborted,
            Some(_) => return End::Panicked,
            None if Instant::now() > until => {
                let _ = child.kill();
                let _ = child.wait();
                return End::Hung;
            }
            None => std::thread::park_timeout(Duration::from_millis(2)),
        }
    }
}

#[test]
fn model_files() {
    let folder = scratch("fuzz-models");
    assert!(Command::new("mkfifo").arg(folder.join("pipe.data")).status().unwrap().success());
    std::fs::File::create(folder.join("hole.data")).unwrap().set_len(1 << 40).unwrap();
    let (mut tried, mut aborted, mut panicked, mut hung) = (0, 0, 0, 0);
    repeat(15, |random| {
        let files: Vec<PathBuf> = (0..20).map(|i| folder.join(format!("{i}.onnx"))).collect();
        files.iter().for_each(|file| std::fs::write(file, hostile::finite_model(random)).unwrap());
        tried += files.len();
        if matches!(child(&files, Duration::from_secs(40)), End::Well) {
            return;
        }
        for file in &files {
            let (count, how) = match child(std::slice::from_ref(file), Duration::from_secs(20)) {
                End::Well => continue,
                End::Aborted => (&mut aborted, "aborts"),
                End::Panicked => (&mut panicked, "panics"),
                End::Hung => (&mut hung, "hangs"),
            };
            *count += 1;
            let kept = file.with_file_name(format!("{how}-{count}.onnx"));
            std::fs::copy(file, &kept).unwrap();
            println!("{} {how}", kept.display());
        }
    });
    println!("{tried} model files: {aborted} aborts, {panicked} panics, {hung} hangs");
    assert_eq!((aborted, panicked, hung), (0, 0, 0));
}
