// SPDX-License-Identifier: MPL-2.0
//! The bench's command line.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::time::Duration;

use gsttrt_core::session::{SessionOptions, parse_options};
use serde_json::Value;

const HELP: &str = "CLIP and MODEL come first; then streams=, batch=, seconds=, repeats=, live=, batch-timeout=, runs=, draw=, live-queue=, gpus=, decoded=, together=, decoder=, preprocess=, nms=, second=, second-batch=, second-runs=, reclassify=, regions=, json=, and trtinfer's properties";

/// What the bench is called with.
pub struct Arguments {
    pub clip: String,
    pub model: String,
    pub streams: Vec<usize>,
    pub batches: Vec<usize>,
    pub length: Duration,
    pub repeats: usize,
    pub live: u32,
    /// `batch-timeout` of trtinfer where it batches.
    pub timeout: i32,
    /// `parallel-runs` of trtinfer where it batches.
    pub contexts: usize,
    pub draw: bool,
    /// Whether there is a queue between trtinfer and trtnms where frames come at their own pace.
    pub live_queue: bool,
    /// GPUs that streams are dealt out to.
    pub gpus: usize,
    /// Streams are of frames that are there, of nothing that is to be decoded.
    pub decoded: bool,
    /// Whether decoding and the engine are measured at the same time, too.
    pub together: bool,
    /// Of the decoders.
    pub decoder: String,
    /// Of the first trtpreprocess.
    pub preprocess: String,
    /// Of trtnms, besides `draw`.
    pub nms: String,
    /// What is behind the first model.
    pub second: Option<Second>,
    pub json: Option<File>,
    /// Of trtinfer.
    pub properties: String,
    pub options: SessionOptions,
}

/// A second model, on the objects of the first.
#[derive(Clone)]
pub struct Second {
    pub model: String,
    pub batch: usize,
    /// Runs of it at the same time.
    pub runs: usize,
    /// A row for each `reclassify-interval` of trtpreprocess.
    pub intervals: Vec<usize>,
    /// Of trtpreprocess besides.
    pub regions: String,
}

impl Arguments {
    pub fn parse() -> Result<Self, Box<dyn Error>> {
        let given: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
        let (settings, files): (Vec<_>, Vec<_>) = given.into_iter().partition(|text| text.contains('='));
        let file = |i: usize, sample| {
            files.get(i).cloned().unwrap_or_else(|| format!("{}/tests/{sample}", env!("CARGO_MANIFEST_DIR")))
        };
        let mut parsed = Arguments {
            clip: file(0, "data/sample.mp4"),
            model: file(1, "models/shapes.onnx"),
            streams: vec![1, 4, 16, 32],
            batches: vec![1, 4, 16],
            length: Duration::from_secs(4),
            repeats: 3,
            live: 30,
            timeout: -1,
            contexts: 1,
            draw: true,
            live_queue: true,
            gpus: 1,
            decoded: false,
            together: false,
            decoder: String::new(),
            preprocess: String::new(),
            nms: String::new(),
            second: None,
            json: None,
            properties: String::new(),
            options: SessionOptions::default(),
        };
        let mut second =
            Second { model: String::new(), batch: 32, runs: 1, intervals: vec![1, 0], regions: String::new() };
        let mut properties = Vec::new();
        for setting in &settings {
            let (name, text) = setting.split_once('=').expect("partitioned by it");
            let wrong = |error: &dyn Error| format!("{setting} cannot be read: {error}. {HELP}.");
            let number = || text.parse::<u32>().map_err(|error| wrong(&error));
            let list = || -> Result<Vec<usize>, _> {
                let numbers = text.split(',').filter(|number| !number.is_empty());
                numbers.map(|number| number.parse().map_err(|error| wrong(&error))).collect()
            };
            match name {
                "streams" => parsed.streams = list()?,
                "batch" => parsed.batches = list()?,
                "seconds" => parsed.length = Duration::try_from_secs_f64(text.parse()?)?,
                "repeats" => parsed.repeats = number()?.max(1) as usize,
                "live" => parsed.live = number()?,
                "batch-timeout" => parsed.timeout = text.parse().map_err(|error| wrong(&error))?,
                "runs" => parsed.contexts = number()?.max(1) as usize,
                "draw" => parsed.draw = text.parse().map_err(|error| wrong(&error))?,
                "live-queue" => parsed.live_queue = text.parse().map_err(|error| wrong(&error))?,
                "decoded" => parsed.decoded = text.parse().map_err(|error| wrong(&error))?,
                "together" => parsed.together = text.parse().map_err(|error| wrong(&error))?,
                "decoder" => parsed.decoder = text.replace(',', " "),
                "gpus" => parsed.gpus = number()?.max(1) as usize,
                "preprocess" => parsed.preprocess = text.replace(',', " "),
                "nms" => parsed.nms = text.replace(',', " "),
                "second" => second.model = text.into(),
                "second-batch" => second.batch = number()?.max(1) as usize,
                "second-runs" => second.runs = number()?.max(1) as usize,
                "reclassify" => second.intervals = list()?,
                "regions" => second.regions = text.replace(',', " "),
                "json" => parsed.json = Some(File::create(text).map_err(|error| wrong(&error))?),
                _ => properties.push(setting.as_str()),
            }
        }
        // A run there is of as many frames as a batch has, and on one GPU.
        if parsed.together && (parsed.gpus > 1 || parsed.decoded || !parsed.preprocess.is_empty()) {
            return Err(
                "together=true does not go with gpus=, decoded=true or preprocess=: leave one of both out.".into()
            );
        }
        parsed.second = Some(second).filter(|second| !second.model.is_empty());
        parsed.options = parse_options(properties.iter().copied())?.0;
        parsed.properties = properties.join(" ");
        Ok(parsed)
    }

    /// A line of JSON for the file, if there is to be one.
    pub fn note(&self, line: Value) {
        if let Some(mut json) = self.json.as_ref() {
            writeln!(json, "{line}").expect("the file can be written");
        }
    }
}
