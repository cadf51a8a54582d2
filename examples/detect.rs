// SPDX-License-Identifier: MPL-2.0
//! Detects objects in a video file: writes an annotated MP4 and a JSON-lines file, shows progress, prints a summary.
//!
//! `pipelines/detect.sh` builds and runs it. It is also the example of an application: the pipeline is one launch line, and
//! detections are read from the buffers behind trtnms (see `detections`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gst::prelude::*;
use serde_json::{Value, json};

const USAGE: &str = "\
Usage: detect INPUT MODEL [options]

  --output FILE.mp4     annotated video (default: NAME-boxes.mp4)
  --json FILE.jsonl     detections, one JSON object a frame (default: NAME-boxes.jsonl)
  --labels FILE         class names, one a line (default: names in the model file)
  --backend NAME        auto, tensorrt, cpu, onnxruntime or rten (default: auto)
  --preprocess PROPS    further properties of trtpreprocess, as in gst-launch-1.0
  --infer PROPS         … of trtinfer
  --nms PROPS           … of trtnms, such as \"score-threshold=0.5 classes=person\"
  --no-video            write no annotated video
  --help                show this";

type Failure = Box<dyn std::error::Error>;

#[derive(Default)]
struct Options {
    input: PathBuf,
    model: PathBuf,
    output: Option<PathBuf>,
    json: PathBuf,
    labels: Option<PathBuf>,
    backend: Option<String>,
    preprocess: String,
    infer: String,
    nms: String,
}

impl Options {
    /// The files to write.
    fn results(&self) -> impl Iterator<Item = &PathBuf> {
        self.output.iter().chain([&self.json])
    }
}

/// Where a result is written until it is whole: half a file would look like one.
fn part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// `None` asks for help.
fn options() -> Result<Option<Options>, Failure> {
    use lexopt::prelude::*;

    let mut options = Options::default();
    let (mut paths, mut output, mut json, mut video) = (Vec::new(), None, None, true);
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(None),
            Long("output") => output = Some(PathBuf::from(args.value()?)),
            Long("json") => json = Some(PathBuf::from(args.value()?)),
            Long("labels") => options.labels = Some(args.value()?.into()),
            Long("backend") => options.backend = Some(args.value()?.string()?),
            Long("preprocess") => options.preprocess = args.value()?.string()?,
            Long("infer") => options.infer = args.value()?.string()?,
            Long("nms") => options.nms = args.value()?.string()?,
            Long("no-video") => video = false,
            Value(path) => paths.push(PathBuf::from(path)),
            other => return Err(other.unexpected().into()),
        }
    }
    let [input, model] =
        <[PathBuf; 2]>::try_from(paths).map_err(|_| "Give one INPUT and one MODEL; --help says more.")?;
    for path in [Some(&input), Some(&model), options.labels.as_ref()].into_iter().flatten() {
        check_file(path)?;
    }
    let name = input.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    options.output = video.then(|| output.unwrap_or_else(|| format!("{name}-boxes.mp4").into()));
    options.json = json.unwrap_or_else(|| format!("{name}-boxes.jsonl").into());
    let taken = [&input, &model].map(|path| path.canonicalize().ok());
    if let Some(path) = options.results().find(|path| taken.contains(&path.canonicalize().ok()) && path.exists()) {
        return Err(format!("{} would be overwritten; choose another name.", path.display()).into());
    }
    (options.input, options.model) = (input, model);
    Ok(Some(options))
}

/// A path that is no file has an error of its own.
fn check_file(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    if path.is_file() {
        Ok(())
    } else if path.is_dir() {
        Err(format!("{shown} is a folder. Give one file.").into())
    } else if path.to_string_lossy().contains("://") {
        Err(format!("{shown} is a URI, and only files are read here. README.md has launch lines for cameras and RTSP.")
            .into())
    } else if path.exists() {
        Err(format!(
            "{shown} is a device or a pipe, and only files are read here. README.md has launch lines for cameras."
        )
        .into())
    } else {
        Err(format!("There is no file {shown}.").into())
    }
}

/// What was measured and found on the frames so far.
struct Report {
    json: BufWriter<File>,
    frames: u64,
    first: Option<Instant>,
    last: Option<Instant>,
    /// When the frame that is on its way came to each stage; the three elements run in one thread.
    entered: [Option<Instant>; 3],
    stages: [Duration; 3],
    objects: BTreeMap<String, u64>,
    /// Whether the message of the next frame has `held`: its boxes are those of an earlier one.
    is_held: bool,
    failure: Option<String>,
}

const STAGES: [&str; 3] = ["preprocess", "infer", "nms"];

impl Report {
    fn new(json: File) -> Self {
        Report {
            json: BufWriter::new(json),
            frames: 0,
            first: None,
            last: None,
            entered: [None; 3],
            stages: [Duration::ZERO; 3],
            objects: BTreeMap::new(),
            is_held: false,
            failure: None,
        }
    }

    fn fps(&self) -> f64 {
        match (self.first, self.last) {
            (Some(first), Some(last)) if last > first => (self.frames - 1) as f64 / (last - first).as_secs_f64(),
            _ => 0.0,
        }
    }
}

/// The detections that trtnms attached to a buffer, in pixels of the frame.
fn detections(buffer: &gst::BufferRef, width: f64, height: f64) -> Vec<Value> {
    let metas = buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>();
    let detection = |meta: gst::MetaRef<gst_video::VideoRegionOfInterestMeta>| {
        let params = meta.param("detection")?;
        let [x1, y1, x2, y2] =
            ["x_min", "y_min", "x_max", "y_max"].map(|field| params.get::<f64>(field).unwrap_or(0.0));
        let round = |value: f64, digits: i32| (value * 10f64.powi(digits)).round() / 10f64.powi(digits);
        let mut detection = json!({
            "label": meta.roi_type(),
            "class-id": params.get::<i32>("label_id").ok()?,
            "confidence": round(params.get::<f64>("confidence").ok()?, 6),
            "x": round(x1 * width, 3),
            "y": round(y1 * height, 3),
            "w": round((x2 - x1) * width, 3),
            "h": round((y2 - y1) * height, 3),
        });
        let numbers = |params: &gst::StructureRef, field: &str| {
            let numbers = params.get::<gst::Array>(field).ok()?;
            numbers.iter().map(|number| Some(round(number.get().ok()?, 4))).collect::<Option<Value>>()
        };
        if let Some(params) = meta.param("rotation") {
            detection["angle"] = round(params.get::<f64>("angle").ok()?, 6).into();
            detection["corners"] = numbers(params, "corners")?;
        }
        if let Some(params) = meta.param("keypoints") {
            detection["keypoints"] = numbers(params, "keypoints")?;
            detection["keypoint-dims"] = params.get::<u32>("keypoint-dims").ok()?.into();
        }
        if let Some(params) = meta.param("mask") {
            for field in ["mask-x", "mask-y", "mask-width", "mask-height"] {
                detection[field] = params.get::<u32>(field).ok()?.into();
            }
            detection["mask-counts"] = params.get::<&str>("mask-counts").ok()?.into();
        }
        Some(detection)
    };
    metas.filter_map(detection).collect()
}

/// The classes of the frame as a whole, which classifiers tell, the best first.
fn classes(buffer: &gst::BufferRef) -> Option<Vec<Value>> {
    let meta = gst::meta::CustomMeta::from_buffer(buffer, "GstTrtClassificationMeta").ok()?;
    let class = |value: &gst::glib::SendValue| {
        let class = value.get::<gst::Structure>().ok()?;
        Some(json!({
            "label": class.get::<String>("label").ok()?,
            "class-id": class.get::<u32>("class-id").ok()?,
            "confidence": class.get::<f64>("confidence").ok()?,
        }))
    };
    meta.structure().get::<gst::Array>("classes").ok()?.iter().map(class).collect()
}

/// The maps of classes, depths or objects, without their pixels, which are in the field `picture`.
fn maps(buffer: &gst::BufferRef) -> Option<Vec<Value>> {
    let meta = gst::meta::CustomMeta::from_buffer(buffer, "GstTrtMapMeta").ok()?;
    let region = |value: &gst::glib::SendValue| {
        let region = value.get::<gst::Structure>().ok()?;
        Some(json!({
            "label": region.get::<String>("label").ok()?,
            "class-id": region.get::<u32>("class-id").ok()?,
            "id": region.get::<u32>("id").ok()?,
            "share": region.get::<f64>("share").ok()?,
        }))
    };
    let map = |value: &gst::glib::SendValue| {
        let map = value.get::<gst::Structure>().ok()?;
        let mut found = json!({ "kind": map.get::<String>("kind").ok()? });
        for name in ["map-width", "map-height"] {
            found[name] = map.get::<u32>(name).ok()?.into();
        }
        for name in ["x", "y", "w", "h", "minimum", "maximum"] {
            map.get::<f64>(name).into_iter().for_each(|number| found[name] = number.into());
        }
        if let Ok(regions) = map.get::<gst::Array>("regions") {
            found["regions"] = regions.iter().map(region).collect::<Option<Vec<_>>>()?.into();
        }
        Some(found)
    };
    meta.structure().get::<gst::Array>("maps").ok()?.iter().map(map).collect()
}

fn pipeline(options: &Options) -> Result<gst::Pipeline, Failure> {
    let Options { preprocess, infer, nms, .. } = options;
    // Queues let decoding, inference and encoding run in parallel. H.264 in 4:2:0 needs even sizes.
    let tail = match options.output {
        Some(_) => {
            "videoconvert ! videoscale add-borders=false ! video/x-raw,width=[2,16384,2],height=[2,16384,2] \
             ! x264enc speed-preset=veryfast ! h264parse ! mp4mux ! filesink name=sink"
        }
        None => "fakesink name=sink sync=false",
    };
    // Where GPUs decode, frames may come in CUDA memory, of which videoconvert knows nothing.
    let download = match options.output.is_some() && gst::ElementFactory::find("cudadownload").is_some() {
        true => "cudadownload !",
        false => "",
    };
    let backend = options.backend.iter().map(|name| format!("backend={name}")).collect::<String>();
    let line = format!(
        "filesrc name=source ! decodebin name=decode  queue name=frames \
         ! trtpreprocess name=preprocess {preprocess} ! trtinfer name=infer {backend} {infer} \
         ! trtnms name=nms {nms} ! queue ! {download} {tail}"
    );
    let pipeline = gst::parse::launch(&line).map_err(|error| format!("Cannot make the pipeline: {error}."))?;
    let pipeline = pipeline.downcast::<gst::Pipeline>().expect("a launch line of several elements is a pipeline");
    let element = |name| pipeline.by_name(name).expect("named in the launch line");
    element("source").set_property("location", &options.input);
    element("infer").set_property("model-file", &options.model);
    // The JSON needs the messages, whatever the options for trtnms are.
    element("nms").set_property("post-messages", true);
    if let Some(labels) = &options.labels {
        element("nms").set_property("label-file", labels);
    }
    if let Some(output) = &options.output {
        element("sink").set_property("location", part(output));
    }
    take_video(&pipeline, &element("decode"), element("frames").static_pad("sink").expect("an always pad"));
    Ok(pipeline)
}

/// Links the first video stream that the decoder finds. It is an error if there is none.
///
/// Frames go straight in, so that those in CUDA memory stay there, unless they lie where the model does not run, are of a
/// format that needs conversion, or have to be rotated, as those of phones.
fn take_video(pipeline: &gst::Pipeline, decode: &gst::Element, sink: gst::Pad) {
    let (link, pipeline) = (sink.clone(), pipeline.downgrade());
    decode.connect_pad_added(move |decode, pad| {
        let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
        if link.is_linked() || !caps.structure(0).is_some_and(|caps| caps.name().starts_with("video/")) {
            return;
        }
        let (fits, rotated) = (link.query_caps(None).can_intersect(&caps), is_rotated(pad));
        let linked = match pipeline.upgrade() {
            Some(pipeline) if rotated || !fits => convert(&pipeline, pad, &link, rotated),
            _ => pad.link(&link).map(drop).map_err(Failure::from),
        };
        if let Err(error) = linked {
            gst::element_error!(decode, gst::StreamError::Format, ("its video cannot be used: {}", error));
        }
    });
    decode.connect_no_more_pads(move |decode| {
        if !sink.is_linked() {
            gst::element_error!(decode, gst::StreamError::WrongType, ("there is no video in it."));
        }
    });
}

/// Whether a tag asks for the picture to be rotated or mirrored. decodebin shows a pad as soon as its caps are known, and
/// decoders pass tags on after the caps, so the tags are looked for where they enter the decoder.
fn is_rotated(pad: &gst::Pad) -> bool {
    let target = pad.downcast_ref::<gst::GhostPad>().and_then(|pad| pad.target());
    let decoder = target.and_then(|pad| pad.parent_element());
    let pads = decoder.into_iter().flat_map(|decoder| decoder.sink_pads());
    let mut tags = pads.flat_map(|pad| (0..).map_while(move |index| pad.sticky_event::<gst::event::Tag>(index)));
    tags.any(|event| {
        let orientation = event.tag().get::<gst::tags::ImageOrientation>();
        orientation.is_some_and(|orientation| orientation.get() != "rotate-0")
    })
}

/// Links with a conversion in between, from CUDA memory too where it exists, that turns frames upright where they are not.
fn convert(pipeline: &gst::Pipeline, pad: &gst::Pad, sink: &gst::Pad, rotated: bool) -> Result<(), Failure> {
    let download = gst::ElementFactory::find("cudadownload").map_or("", |_| "cudadownload !");
    let flip = if rotated { "! videoflip video-direction=auto" } else { "" };
    let convert = gst::parse::bin_from_description(&format!("{download} videoconvert {flip}"), true)?;
    pipeline.add(&convert)?;
    let end = |name| convert.static_pad(name).expect("asked for");
    end("src").link(sink)?;
    pad.link(&end("sink"))?;
    convert.sync_state_with_parent()?;
    Ok(())
}

/// When the frame is shown, counted from the start of the file: files may begin their own time stamps anywhere.
fn stream_time(pad: &gst::Pad, buffer: &gst::BufferRef) -> Option<gst::ClockTime> {
    let event = pad.sticky_event::<gst::event::Segment>(0)?;
    event.segment().downcast_ref::<gst::ClockTime>()?.to_stream_time(buffer.pts())
}

/// Watches frames enter and leave the three elements.
fn watch(pipeline: &gst::Pipeline, json: File) -> Arc<Mutex<Report>> {
    let report = Arc::new(Mutex::new(Report::new(json)));
    for (stage, name) in STAGES.into_iter().enumerate() {
        let pad =
            pipeline.by_name(name).and_then(|element| element.static_pad("sink")).expect("named in the launch line");
        let report = report.clone();
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            report.lock().unwrap().entered[stage] = Some(Instant::now());
            gst::PadProbeReturn::Ok
        });
    }

    // Of a frame without boxes, only the message has `held`. It is posted just before the frame goes on.
    let shared = report.clone();
    pipeline.bus().expect("a pipeline has a bus").set_sync_handler(move |_, message| {
        let content = message.structure().filter(|content| content.name() == "trt-detections");
        let Some(content) = content else { return gst::BusSyncReply::Pass };
        shared.lock().unwrap().is_held = content.get("held").unwrap_or_default();
        gst::BusSyncReply::Drop
    });

    let shared = report.clone();
    let pad = pipeline.by_name("nms").and_then(|nms| nms.static_pad("src")).expect("named in the launch line");
    pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        let mut report = shared.lock().unwrap();
        let (Some(buffer), Some(caps)) = (info.buffer(), pad.current_caps()) else { return gst::PadProbeReturn::Ok };
        let now = Instant::now();
        // The first frame waits for the model to load, which is no stage's time.
        if report.frames > 0
            && let [Some(preprocess), Some(infer), Some(nms)] = report.entered
        {
            for (total, took) in report.stages.iter_mut().zip([infer - preprocess, nms - infer, now - nms]) {
                *total += took;
            }
        }
        let size = |field| caps.structure(0).and_then(|caps| caps.get::<i32>(field).ok()).unwrap_or(0);
        let (width, height) = (size("width"), size("height"));
        let detections = detections(buffer, width.into(), height.into());
        let classes = classes(buffer);
        for detection in detections.iter().chain(classes.iter().flatten().take(1)) {
            *report.objects.entry(detection["label"].as_str().unwrap_or_default().to_string()).or_default() += 1;
        }
        let is_held = std::mem::take(&mut report.is_held);
        let mut line = json!({
            "stream-time": stream_time(pad, buffer).map(|time| time.nseconds()),
            "frame": report.frames,
            "width": width,
            "height": height,
            "held": is_held,
            "detections": detections,
        });
        if let Some(classes) = classes {
            line["classes"] = classes.into();
        }
        if let Some(maps) = maps(buffer) {
            line["maps"] = maps.into();
        }
        if let Err(error) = writeln!(report.json, "{line}") {
            report.failure = Some(format!("Cannot write the JSON file: {error}."));
        }
        report.frames += 1;
        report.first.get_or_insert(now);
        report.last = Some(now);
        gst::PadProbeReturn::Ok
    });
    report
}

/// Runs to the end of the file; the error is the first that an element posts.
fn run(pipeline: &gst::Pipeline, input: &Path, report: &Mutex<Report>) -> Result<(), Failure> {
    let bus = pipeline.bus().expect("a pipeline has a bus");
    // An error message is more specific than the failed state change, so it is looked for first.
    let started = pipeline.set_state(gst::State::Playing);
    let terminal = std::io::stderr().is_terminal();
    let (mut shown, mut quiet) = (Instant::now(), 0);
    loop {
        let message = bus.timed_pop(gst::ClockTime::from_mseconds(200));
        match message.as_ref().map(|message| message.view()) {
            Some(gst::MessageView::Eos(_)) => break,
            Some(gst::MessageView::Error(error)) => return Err(sentence(error, input).into()),
            Some(gst::MessageView::Warning(warning)) => eprintln!("Warning: {}", warning.error()),
            Some(gst::MessageView::Info(info)) => eprintln!("{}", info.error()),
            Some(gst::MessageView::Progress(progress)) => eprintln!("{}", progress.get().2),
            None if started.is_err() => return Err("The pipeline does not start.".into()),
            // Once may be just before its last message.
            None if gave_up(pipeline) => quiet += 1,
            _ => quiet = 0,
        }
        if quiet > 1 {
            return Err(format!("Cannot read {}: it is damaged, or cut off.", input.display()).into());
        }
        if let Some(failure) = report.lock().unwrap().failure.take() {
            return Err(failure.into());
        }
        if shown.elapsed() >= Duration::from_millis(if terminal { 250 } else { 5000 }) {
            shown = Instant::now();
            show(pipeline, report, terminal);
        }
    }
    if terminal {
        eprint!("\r\x1b[K");
    }
    let mut report = report.lock().unwrap();
    report.json.flush().map_err(|error| format!("Cannot write the JSON file: {error}."))?;
    match report.frames {
        0 => Err("There is no video in the input.".into()),
        _ => Ok(()),
    }
}

/// Whether nothing in decodebin reads the file any more, though no video came out of it.
///
/// decodebin drops the errors of an element that it is starting. A demuxer reads in a thread of its own, so an error in the
/// first bytes may fall into that time; then there is neither an error nor an end of the stream.
fn gave_up(pipeline: &gst::Pipeline) -> bool {
    let element = |name| pipeline.by_name(name).expect("named in the launch line");
    let decode = element("decode").downcast::<gst::Bin>().expect("decodebin is a bin");
    let mut pads = decode.children().into_iter().flat_map(|element| element.pads());
    let reads = pads.any(|pad| pad.task_state() == gst::TaskState::Started);
    !reads && !element("frames").static_pad("sink").is_some_and(|pad| pad.is_linked())
}

/// The text of an error message, in one sentence.
fn sentence(error: &gst::message::Error, input: &Path) -> String {
    let text = error.error().to_string();
    let path = error.src().map(|source| source.path_string()).unwrap_or_default();
    match error.src().map(|source| source.name()) {
        Some(name) if STAGES.contains(&name.as_str()) => text, // the messages of our elements are complete
        _ if path.contains(":decode") => format!("Cannot read {}: {text}", input.display()),
        name => format!("{}: {text}", name.unwrap_or_default()),
    }
}

fn show(pipeline: &gst::Pipeline, report: &Mutex<Report>, terminal: bool) {
    let position = pipeline.query_position::<gst::ClockTime>();
    let duration = pipeline.query_duration::<gst::ClockTime>();
    let report = report.lock().unwrap();
    let percent = match (position, duration) {
        (Some(position), Some(duration)) if !duration.is_zero() => {
            format!(", {:3.0} %", 100.0 * position.nseconds() as f64 / duration.nseconds() as f64)
        }
        _ => String::new(),
    };
    let line = format!("{} frames, {:.1} fps{percent}", report.frames, report.fps());
    if terminal { eprint!("\r\x1b[K{line}") } else { eprintln!("{line}") }
}

fn summary(options: &Options, report: &Report) {
    println!("frames      {}", report.frames);
    println!("fps         {:.1}", report.fps());
    let frames = report.frames.saturating_sub(1).max(1) as f64;
    for (name, total) in STAGES.into_iter().zip(report.stages) {
        println!("{name:<11} {:.2} ms", total.as_secs_f64() * 1e3 / frames);
    }
    let objects: Vec<String> = report.objects.iter().map(|(label, count)| format!("{label} {count}")).collect();
    println!("detections  {}", if objects.is_empty() { "none".into() } else { objects.join(", ") });
    for path in options.results() {
        println!("wrote       {}", path.display());
    }
}

/// The GPU's decoders before all others: in GStreamer 1.22 they rank like those of the CPU, and come later in the alphabet.
fn prefer_gpu_decoders() {
    let decoders = gst::ElementFactory::factories_with_type(
        gst::ElementFactoryType::DECODER | gst::ElementFactoryType::MEDIA_VIDEO,
        gst::Rank::PRIMARY,
    );
    for factory in decoders.into_iter().filter(|factory| factory.plugin_name().is_some_and(|name| name == "nvcodec")) {
        factory.set_rank(gst::Rank::PRIMARY + 2);
    }
}

fn detect(options: &Options) -> Result<(), Failure> {
    gst::init()?;
    gsttrt::plugin_register_static()?;
    if !matches!(options.backend.as_deref(), Some("cpu" | "onnxruntime" | "rten")) {
        prefer_gpu_decoders();
    }
    let pipeline = pipeline(options)?;
    let json = File::create(part(&options.json));
    let json = json.map_err(|error| format!("Cannot write {}: {error}.", options.json.display()))?;
    let report = watch(&pipeline, json);
    let outcome = run(&pipeline, &options.input, &report);
    pipeline.set_state(gst::State::Null)?;
    if outcome.is_err() {
        options.results().for_each(|path| drop(std::fs::remove_file(part(path))));
        return outcome;
    }
    for path in options.results() {
        std::fs::rename(part(path), path).map_err(|error| format!("Cannot write {}: {error}.", path.display()))?;
    }
    summary(options, &report.lock().unwrap());
    Ok(())
}

fn main() -> ExitCode {
    let outcome = match options() {
        Ok(None) => {
            println!("{USAGE}");
            Ok(())
        }
        Ok(Some(options)) => detect(&options),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}
