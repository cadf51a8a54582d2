// SPDX-License-Identifier: MPL-2.0
//! The GPU: its driver, GStreamer's plugin for it, TensorRT, and what runs models.

use gsttrt_core::backends::options::Options;
use gsttrt_core::backends::tensorrt::{cache, library};
use gsttrt_core::backends::{BACKENDS, Unsupported};
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::model::ModelFile;
use gsttrt_core::session::GpuStatus;

use super::Component;

/// Elements of nvcodec, and what they are for.
static NVCODEC: [(&str, &[&str], &str); 3] = [
    (
        "GPU decoders",
        &["nvh264dec", "nvh265dec", "nvvp9dec", "nvav1dec"],
        "frames are decoded on the CPU and copied to the GPU",
    ),
    ("GPU encoders", &["nvh264enc", "nvh265enc", "nvav1enc"], "videos are encoded on the CPU"),
    ("GPU conversion", &["cudaupload", "cudadownload", "cudaconvert"], "frames cannot stay on the GPU in launch lines"),
];

/// Libraries of the driver that GStreamer's plugin loads.
static OF_DRIVER: [(&str, &str, &str); 2] = [
    ("NVDEC", "libnvcuvid.so.1", "GStreamer's plugin nvcodec has no elements without it"),
    ("NVENC", "libnvidia-encode.so.1", "videos are encoded on the CPU"),
];

pub fn checks() -> Vec<Component> {
    let mut checks = vec![driver()];
    let status = GpuStatus::detect();
    if let GpuStatus::Available(count) = status {
        checks.extend((0..count).map(device));
    }
    let has_gpu = matches!(status, GpuStatus::Available(_));
    checks.extend(OF_DRIVER.iter().map(|&(name, file, costs)| library_of_driver(name, file, costs)));
    checks.extend(NVCODEC.iter().map(|&(name, elements, costs)| nvcodec(name, elements, costs, has_gpu)));
    checks.push(match gsttrt::gst::cuda::available() {
        Ok(()) => Component::there("GPU", "libgstcuda", "it is there"),
        Err(error) => {
            Component::missing("GPU", "libgstcuda", error.as_clause(), "frames in CUDA memory cannot be used")
        }
    });
    checks.extend(tensorrt());
    checks.extend(BACKENDS.iter().map(|backend| {
        let name = format!("backend={}", backend.name());
        // One for servers takes an address alone. Nothing is sent there.
        let model = if backend.name() == "kserve" { "grpc://localhost:8001/model" } else { "model.onnx" };
        match backend.probe(&ModelFile::new(model.as_ref()), &Options::default()) {
            Ok(_) => Component::there("what runs models", name, backend.blurb()),
            Err(Unsupported::Kind(error) | Unsupported::Missing(error)) => {
                let costs = match backend.name() {
                    "openvino" => "models on an x86 CPU may run slower, with another backend; pip install openvino",
                    "onnxruntime" => "models on the CPU run 2 to 6 times slower, with rten; pip install onnxruntime",
                    _ => "models run on the CPU",
                };
                Component::missing("what runs models", name, error.as_clause(), costs)
            }
        }
    }));
    checks
}

fn driver() -> Component {
    let costs = "models run on the CPU, which is far slower; install NVIDIA's driver 535 or later, or, in a \
                 container, start it with the GPU";
    match GpuStatus::detect() {
        GpuStatus::Available(count) => {
            let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
            let is_version = |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
            let version = version.as_deref().and_then(|text| text.lines().next()?.split_whitespace().find(is_version));
            let version = version.map_or_else(|| "of unknown version".into(), |version| format!("version {version}"));
            Component::there("GPU", "NVIDIA driver", format!("{version}, GPUs: {count}"))
        }
        missing => Component::missing("GPU", "NVIDIA driver", missing.to_string(), costs),
    }
}

fn device(index: u32) -> Component {
    let name = format!("GPU {index}");
    let ask = || {
        let context = Context::primary(index as i32)?;
        let (model, (major, minor)) = (context.device_name()?, context.compute_capability()?);
        let (free, all) = context.memory()?;
        Ok::<_, gsttrt_core::error::Error>((model, major, minor, free >> 20, all >> 20))
    };
    match ask() {
        Ok((model, major, minor, free, all)) => {
            let found = format!("{model}, compute capability {major}.{minor}, {free} of {all} MiB free");
            match (major, minor) >= (7, 5) {
                true => Component::there("GPU", name, found),
                false => Component::missing("GPU", name, found, "a GPU of the Turing generation or later is needed"),
            }
        }
        Err(error) => Component::missing("GPU", name, error.as_clause(), "it cannot be used"),
    }
}

fn library_of_driver(name: &str, file: &str, costs: &str) -> Component {
    // SAFETY: it is the driver's, whose initialisation does nothing else; it is closed again unused.
    match unsafe { libloading::Library::new(file) } {
        Ok(_) => Component::there("GPU", name, file),
        Err(_) => {
            let remedy = "it comes with the driver; in a container, NVIDIA_DRIVER_CAPABILITIES needs video";
            Component::missing("GPU", name, format!("no {file}"), format!("{costs}; {remedy}"))
        }
    }
}

fn nvcodec(name: &str, elements: &[&str], costs: &str, has_gpu: bool) -> Component {
    let is_there = |element: &&str| gst::ElementFactory::find(element).is_some();
    let there: Vec<&str> = elements.iter().copied().filter(is_there).collect();
    if !there.is_empty() {
        return Component::there("GPU", name, there.join(", "));
    }
    let plugin = gst::Registry::get().find_plugin("nvcodec").is_some();
    let remedy = match (plugin, has_gpu) {
        (false, _) => "install gstreamer1.0-plugins-bad",
        (true, true) => "GStreamer may remember a machine without a GPU: remove ~/.cache/gstreamer-1.0",
        (true, false) => "its plugin nvcodec is there, and needs a GPU with its driver",
    };
    Component::missing("GPU", name, format!("none of {}", elements.join(", ")), format!("{costs}; {remedy}"))
}

fn tensorrt() -> Vec<Component> {
    let mut checks: Vec<Component> = library::installed()
        .into_iter()
        .map(|found| match found {
            Ok(library) => {
                let builder = if library.has_builder() { "" } else { ", without a builder" };
                Component::there("TensorRT", library.name(), format!("{}{builder}", library.path().display()))
            }
            Err((file, reason)) => {
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                Component::missing("TensorRT", name, format!("{}: {reason}", file.display()), "this one is not used")
            }
        })
        .collect();
    if !checks.iter().any(|check| check.is_there) {
        let costs = "models run on the CPU; install TensorRT 8.6, 10, 11 or RTX, such as libnvinfer10 or pip's \
                     tensorrt, or set trt-library";
        checks.push(Component::missing(
            "TensorRT",
            "TensorRT",
            "none is found by the loader or where pip puts it",
            costs,
        ));
    }
    if let Some(folder) = cache::default_folder() {
        let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let sizes = files.filter_map(|file| Some(file.metadata().ok()?.len()));
        let (count, bytes) = sizes.fold((0u64, 0u64), |(count, bytes), size| (count + 1, bytes + size));
        let found = format!("{}, {count} files, {} MiB", folder.display(), bytes >> 20);
        checks.push(Component::there("TensorRT", "cache of engines", found));
    }
    checks
}
