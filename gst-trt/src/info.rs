// SPDX-License-Identifier: MPL-2.0
//! `gst-trt info`: what a model file says, which layout is recognised and why, and what is missing. Or the draft of a layout file.

use std::path::PathBuf;
use std::sync::Arc;

use gsttrt_core::backends::tensorrt::header::Header;
use gsttrt_core::backends::{BackendPreference, LoadRequest, Placement};
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::device::Device;
use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::heads::{self, ModelHints, Recognised, layout_file};
use gsttrt_core::image::clip::USUAL_FRAMES;
use gsttrt_core::image::transform::InputSpec;
use gsttrt_core::model::{ModelFile, ModelInfo};
use gsttrt_core::session::parse_options;
use gsttrt_core::tensor::{Dims, TensorDesc};
use serde_json::{Value, json};

use crate::failure::{Failure, Status};
use crate::model_options::check_model;
use crate::terminal::print;

/// Class names that are shown of many.
const SHOWN: usize = 12;

/// The task of models that read text.
const TEXT: &str = "text";

#[derive(clap::Args)]
pub struct InfoArgs {
    /// The ONNX model, the TensorRT engine, or the address of a model on a server, like grpc://host:8001/model
    model: PathBuf,
    /// The same as JSON
    #[arg(long)]
    json: bool,
    /// Instead of that, a first draft of a layout file for the model, as TOML: what is recognised, else what its outputs look like
    #[arg(long, conflicts_with = "json")]
    explain_layout: bool,
}

pub fn run(args: &InfoArgs) -> Result<Status, Failure> {
    check_model(&args.model)?;
    if args.explain_layout {
        let model = model_of(&ModelFile::new(&args.model))?;
        print(layout_file::draft(&model.outputs, &hints(&model).0)?.trim_end())?;
        return Ok(Status::Done);
    }
    let info = read(&ModelFile::new(&args.model))?;
    if args.json {
        print(&format!("{info:#}"))?
    } else {
        print(&text(&info))?
    }
    Ok(Status::Done)
}

/// What a file says, or a server of its model. Of an engine only TensorRT can tell.
fn model_of(file: &ModelFile) -> Result<Arc<ModelInfo>, Failure> {
    if file.is_on_server() {
        return on_server(file);
    }
    if !file.is_engine() {
        return Ok(Arc::new(ModelInfo::of_onnx(&*file.contents()?)?));
    }
    Ok(of_engine(file)?.model().clone())
}

fn on_server(file: &ModelFile) -> Result<Arc<ModelInfo>, Failure> {
    let (options, _) = parse_options([])?;
    let no_context = || Err(Error::new(ErrorKind::Library, "A server runs the model"));
    Ok(Placement::new(file.path(), BackendPreference::Auto, options.options, no_context)?.info()?)
}

/// Its code runs only where the user allows it, and there is no such question here.
fn of_engine(file: &ModelFile) -> Result<LoadRequest, Error> {
    let (options, _) = parse_options([])?;
    let tensorrt = BackendPreference::Named("tensorrt");
    LoadRequest::new(file.path(), tensorrt, None, 1, options.options, || Context::primary(0))
}

/// What helps to recognise the layout, and the tensor that the model takes.
fn hints(model: &ModelInfo) -> (ModelHints, Result<InputSpec, Error>) {
    let batch = model.image_input().dims.first().and_then(|&rows| usize::try_from(rows).ok());
    let spec = model.input_spec(None, batch.unwrap_or(1), Device::Host);
    let mut hints = model.hints(model.image_size.unwrap_or_default());
    hints.input = match &spec {
        Ok(spec) => {
            let (_, height, width) = spec.chw();
            Some((width as u32, height as u32))
        }
        Err(_) => model.image_size,
    };
    (hints, spec)
}

fn read(file: &ModelFile) -> Result<Value, Failure> {
    if file.is_on_server() {
        let mut info = json!({ "file": file.path().display().to_string(), "kind": "server" });
        describe(&mut info, &*on_server(file)?);
        return Ok(info);
    }
    let contents = file.contents()?;
    let mut info = json!({ "file": file.path().display().to_string(), "bytes": contents.bytes().len() });
    if !file.is_engine() {
        let model = ModelInfo::of_onnx(&contents)?;
        let (ir, opsets) = contents.onnx_versions()?;
        info["kind"] = "onnx".into();
        info["ir-version"] = ir.into();
        let opsets = opsets
            .into_iter()
            .map(|(domain, version)| (if domain.is_empty() { "ai.onnx".into() } else { domain }, version.into()));
        info["opset"] = Value::Object(opsets.collect());
        describe(&mut info, &model);
        return Ok(info);
    }
    let header = Header::read(contents.bytes())
        .map_err(|error| error.about(&format!("Cannot use the engine {}", file.path().display())))?;
    info["kind"] = "engine".into();
    info["built-by"] = header.builder().into();
    info["version-compatible"] = header.carries_runtime.into();
    if !header.compute_capabilities.is_empty() {
        let capabilities = header.compute_capabilities.iter();
        info["compute-capabilities"] = capabilities.map(|c| format!("{}.{}", c / 10, c % 10)).collect();
    }
    match of_engine(file) {
        Ok(request) => describe(&mut info, request.model()),
        Err(error) => {
            info["metadata"] = header.metadata.and_then(|text| serde_json::from_str::<Value>(&text).ok()).into();
            let what = format!("inputs and outputs, which only TensorRT can read: {}", error.message());
            info["missing"] = json!([{ "what": what, "property": Value::Null }]);
        }
    }
    Ok(info)
}

/// Adds what the file says itself, what is recognised of it, and what is missing.
fn describe(info: &mut Value, model: &ModelInfo) {
    info["producer"] = model.producer.clone().into();
    info["task"] = model.task.clone().into();
    info["stride"] = model.stride.into();
    info["image-size"] = model.image_size.map(|(width, height)| json!([width, height])).into();
    info["labels"] = model.labels.clone().into();
    if let Some(keypoints) = &model.keypoints {
        let shape = keypoints.shape;
        info["keypoints"] = json!({ "count": shape.count, "dims": shape.dims, "names": keypoints.names });
    }
    info["inputs"] = model.inputs.iter().map(tensor).collect();
    info["outputs"] = model.outputs.iter().map(tensor).collect();
    let batch = model.image_input().dims.first().copied().filter(|&rows| rows != Dims::DYNAMIC);
    info["batch"] = batch.into();
    let mut missing = Vec::new();
    let (hints, spec) = hints(model);
    match &spec {
        Ok(spec) => {
            info["input"] = spec.to_string().into();
            info["takes-any-size"] = model.adaptive_stride().is_some().into();
        }
        Err(error) => missing.push(of_error(error, "input-size")),
    }
    if model.has_open_frames() {
        let what = format!("how many frames a clip has: {USUAL_FRAMES} are taken");
        missing.push(json!({ "what": what, "property": "frames of trtpreprocess" }));
    }
    missing.extend(model.unknown_inputs().map(|input| {
        let property = format!("input-values of trtinfer, like input-values={}=words.npy", input.name);
        json!({ "what": format!("what goes into {input}, such as vectors of words"), "property": property })
    }));
    let found = model.check_task().and_then(|()| heads::explain(&model.outputs, &hints));
    match &found {
        Ok(found) => recognised(info, model, found, &mut missing),
        Err(error) => {
            missing.push(of_error(error, "layout, or layout-file, of which --explain-layout writes a draft"));
            if model.task.as_deref() == Some(TEXT) {
                missing.extend(no_names(model, TEXT));
            }
        }
    }
    missing.extend(model.metadata_errors().map(|error| json!({ "what": error.message(), "property": Value::Null })));
    info["metadata"] = json!(model.metadata);
    info["missing"] = missing.into();
}

fn recognised(info: &mut Value, model: &ModelInfo, found: &Recognised, missing: &mut Vec<Value>) {
    let outputs: Vec<&str> = found.outputs.iter().map(|&index| model.outputs[index].name.as_str()).collect();
    info["layout"] = json!({
        "name": found.format.name,
        "about": found.format.about,
        "task": found.format.task.name(),
        "outputs": outputs,
        "classes": found.classes,
        "needs-nms": found.format.needs_nms,
        "why": found.reason,
    });
    missing.extend(no_names(model, found.format.task.name()));
    let is_known = model.metadata.get("author").is_some_and(|author| author == "Ultralytics");
    if let Some(note) = found.format.input_note.filter(|_| !is_known && !model.takes_vectors()) {
        missing.push(json!({ "what": format!("how its input is normalised. {note}"), "property": "mean and std of trtpreprocess" }));
    }
}

/// The names that the file lacks for results of that task: of classes, or of the characters of a text.
fn no_names(model: &ModelInfo, task: &str) -> Option<Value> {
    if !model.labels.is_empty() || ["depth", "anomaly", "embed", "text-detect"].contains(&task) {
        return None;
    }
    let unread = model.names_error().map(|error| format!(", since {}", error.as_clause())).unwrap_or_default();
    let what = match task {
        TEXT => format!("the dictionary, with a character a line, without which no text is read{unread}"),
        // By its dimensions alone, it may as well give vectors.
        "classify" if model.task.is_none() => format!(
            "class names: classes are called #0, #1 and so on{unread}. If it gives a vector, as models of ReID do, set layout=embed on trtnms"
        ),
        _ => format!("class names: objects are called #0, #1 and so on{unread}"),
    };
    Some(json!({ "what": what, "property": "label-file of trtnms, or --labels" }))
}

fn of_error(error: &Error, property: &str) -> Value {
    json!({ "what": error.message(), "property": property })
}

fn tensor(desc: &TensorDesc) -> Value {
    let dims = desc.dims.iter().map(|&dim| if dim == Dims::DYNAMIC { Value::Null } else { dim.into() });
    json!({ "name": desc.name, "type": desc.dtype.to_string(), "dims": dims.collect::<Value>() })
}

// ------------------------------------------------------------------------------------------- text

fn text(info: &Value) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let mib = info["bytes"].as_f64().unwrap_or(0.0) / f64::from(1 << 20);
    let by = match &info["producer"] {
        Value::String(name) if !name.is_empty() => format!(", by {name}"),
        _ => String::new(),
    };
    let kind = match info["kind"].as_str() {
        Some("engine") => format!("engine of {}", word(&info["built-by"])),
        _ => {
            let opsets = info["opset"].as_object().into_iter().flatten();
            let opsets: Vec<String> = opsets.map(|(domain, version)| format!("{domain} {version}")).collect();
            format!("ONNX, IR version {}, opset {}", info["ir-version"], opsets.join(", "))
        }
    };
    rows.push(match info["kind"].as_str() {
        Some("server") => ("model", format!("{}{by}", word(&info["file"]))),
        _ => ("file", format!("{}, {mib:.1} MiB, {kind}{by}", word(&info["file"]))),
    });
    for (name, key) in [("inputs", "inputs"), ("outputs", "outputs")] {
        for tensor in info[key].as_array().into_iter().flatten() {
            let dims = tensor["dims"].as_array().into_iter().flatten();
            let dims: Vec<String> = dims.map(|dim| dim.as_i64().map_or("?".into(), |dim| dim.to_string())).collect();
            rows.push((name, format!("{} {} {}", word(&tensor["name"]), word(&tensor["type"]), dims.join("x"))));
        }
    }
    if let Some(input) = info["input"].as_str() {
        let any = if info["takes-any-size"] == true { ", or any smaller size that frames need" } else { "" };
        rows.push(("takes", format!("{input}{any}")));
    }
    for key in ["task", "stride"] {
        if !info[key].is_null() {
            rows.push((key, info[key].as_str().map_or_else(|| info[key].to_string(), String::from)));
        }
    }
    if let [width, height] = info["image-size"].as_array().map_or(&[][..], Vec::as_slice) {
        rows.push(("image size", format!("{width}x{height}")));
    }
    let labels: Vec<String> = info["labels"].as_array().into_iter().flatten().map(word).collect();
    if !labels.is_empty() {
        let more = if labels.len() > SHOWN { ", …" } else { "" };
        let name = if info["layout"]["task"] == TEXT { "characters" } else { "classes" };
        rows.push((name, format!("{}: {}{more}", labels.len(), labels[..labels.len().min(SHOWN)].join(", "))));
    }
    if let Value::Object(keypoints) = &info["keypoints"] {
        rows.push(("keypoints", format!("{} of {} numbers", keypoints["count"], keypoints["dims"])));
    }
    if let Value::Object(layout) = &info["layout"] {
        rows.push(("layout", format!("{}: {}", word(&layout["name"]), word(&layout["about"]))));
        rows.push(("", format!("because: {}", word(&layout["why"]))));
    }
    let missing: Vec<&Value> = info["missing"].as_array().into_iter().flatten().collect();
    for gap in &missing {
        let property = gap["property"].as_str().map(|property| format!(" [{property}]")).unwrap_or_default();
        rows.push(("missing", format!("{}{property}", word(&gap["what"]).trim_end_matches('.'))));
    }
    if missing.is_empty() {
        rows.push(("missing", "nothing".into()));
    }
    let mut last = "";
    let rows = rows.iter().map(|(name, value)| {
        let shown = if *name == last { "" } else { name };
        last = name;
        format!("{shown:<11} {value}")
    });
    rows.collect::<Vec<_>>().join("\n")
}
