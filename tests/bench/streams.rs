// SPDX-License-Identifier: MPL-2.0
//! Streams of one clip at the same time, with a model for each and with one in common, against their two ceilings: decoding
//! alone, and the engine alone.
//!
//! `cargo bench --bench streams -- [CLIP [MODEL]] [streams=1,4,16,32] [batch=1,4,16] [seconds=4] [repeats=3] [live=30]
//! [batch-timeout=-1] [runs=1] [draw=true] [live-queue=true] [gpus=1] [decoded=false] [together=false] [decoder=PROPERTY=VALUE,…]
//! [preprocess=PROPERTY=VALUE,…] [nms=PROPERTY=VALUE,…] [second=MODEL] [second-batch=32] [second-runs=1]
//! [reclassify=1,0] [regions=PROPERTY=VALUE,…] [json=FILE] [PROPERTY=VALUE…]`
//!
//! Properties after `decoder=` are those of the decoders; other properties are those of trtinfer. H.264 of the clip is held
//! in memory and goes round and round. One pipeline has all streams, each with `appsrc ! DECODER ! trtpreprocess ! trtinfer ! queue ! trtnms ! fakesink`; DECODER is nvh264dec, where that
//! is not there avdec_h264. With `runs=2` a model that takes batches runs two of them at the same time. In rows “own” each stream
//! has a model, without batches; in those with a number all streams share one that takes batches of so many. Frames count between
//! the moment when all streams are warm and the end; each figure is the median of the repeats. With `gpus=2` every other stream
//! is decoded and inferred on the second one. With `decoded=true` streams are made of 16 frames that the decoder left in memory
//! before, all the same ones, which `draw=true` would have copied. `streams=` alone measures engines only, and `batch=` alone
//! decoding only.
//!
//! * decode: the same without our elements. engine: runs on batches of the clip's pictures that are there, fps of the best of
//!   1, 2 and 4 threads, each with an execution context of its own and two runs in flight. of ceiling: fps of the chain over the smaller of
//!   both. Where `preprocess=slices=3x2` makes slices, batches are of slices, and the engine's fps are its slices over those of a
//!   frame.
//! * both: with `together=true` also decoding and the engine at the same time, without our elements: a run for each batch of frames
//!   that came from the decoders. They share the GPU and its memory, so this may be less than either.
//! * CPU: seconds of the whole process for 1,000 frames, those beyond decoding alone, and those that threads spend in our
//!   elements. pools: the share of buffers that were there, once all is warm.
//! * threads: of the process, without those that feed the streams. contexts: of CUDA.
//! * GPU MiB: of the whole pipeline, and of its models alone: engines, and what they work in. fill: frames in a batch, and the
//!   share of batches that were run before they were full.
//! * live: each stream from a live source at that many frames a second, as a camera's are if the clip has no B-frames, and how
//!   long a frame takes from the decoder to trtnms' source pad, where the pace is kept; added: p99 of that beyond p99 of the
//!   engine alone on the smallest of the batches, one run at a time; and beyond that of as many engines, with frames at the same
//!   moments. Below: how long frames take up to each element, p50 and p99; how many came from the decoder close to the one
//!   before, which they then wait for; and how long a thread takes to wake up on this machine at that pace, as it must for what
//!   it waits for and for each queue. With `live-queue=false` there is none between trtinfer and trtnms then.
//!
//! * second: with a second model, which all streams share, on the objects of the first: `… trtnms ! trttrack ! trtpreprocess
//!   regions=objects ! trtinfer parallel-runs=1 ! trtnms`, with a row for each `reclassify-interval`. Its ceiling is decoding, or what one GPU has
//!   time for: a frame of the first engine, and as many pictures of the second as there are for a frame.
//!
//! A model whose batch is fixed to 1 gets an open one for this, in a copy below target/, if its graph is as plain as those of
//! tests/models; others must be exported with a dynamic batch. What fails is said in its row, and the others go on; the exit
//! status then is 1.

// Of `json!`, which takes three for each key: a row of a chain has 43.
#![recursion_limit = "256"]

#[path = "streams/arguments.rs"]
mod arguments;
#[path = "../common/awake.rs"]
mod awake;
#[path = "streams/clip.rs"]
mod clip;
#[path = "streams/engine.rs"]
mod engine;
#[allow(dead_code)] // the other benches use more of it
#[path = "streams/machine.rs"]
mod machine;
#[path = "streams/open_batch.rs"]
mod open_batch;
#[path = "streams/pictures.rs"]
mod pictures;
#[path = "streams/pipeline.rs"]
mod pipeline;
#[allow(dead_code)] // the tests use more of it
#[path = "../../core/tests/common/random.rs"]
mod random;
#[path = "streams/second.rs"]
mod second;
#[path = "streams/together.rs"]
mod together;

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

use arguments::Arguments;
use clip::{Clip, Held, queue};
use engine::Engine;
use gsttrt_core::backends::LoadContext;
use pipeline::{Figures, STAGES, Setup, run};
use serde_json::json;

const HEADINGS: &str = "streams  model      fps  ceiling   ratio  fill  late CPU/1000  beyond    ours  engines    room  GPU MiB live p50     p99   added  to all";

/// 0 of none.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// How long frames take up to each of [`STAGES`]: p50 and p99 in µs, medians of the runs.
fn stages(runs: &[Figures]) -> [[f64; 2]; STAGES.len()] {
    let quantile = |stage: usize, q| median(runs.iter().map(|run| run.latency[stage].value_at_quantile(q) as f64));
    std::array::from_fn(|stage| [0.5, 0.99].map(|q| quantile(stage, q)))
}

fn show_stages(when: &str, [made, queued, begun, _]: &[[f64; 2]; STAGES.len()]) {
    let shown = |[p50, p99]: &[f64; 2]| format!("{p50:.0}, {p99:.0}");
    let (made, queued, begun) = (shown(made), shown(queued), shown(begun));
    println!("{:>14}{when}: out of trtpreprocess after {made} µs, of trtinfer {queued}, into trtnms {begun}", "");
}

/// Streams that come at a pace, and keep it.
struct Live {
    /// Microseconds from the decoder to the end.
    p50: f64,
    p95: f64,
    p99: f64,
    stages: [[f64; 2]; STAGES.len()],
    close: f64,
    fill: f64,
    /// How long threads take to wake up at that pace, without our elements: p50 and p99 in µs.
    wakes: [u64; 2],
    /// p99 of as many engines with frames at the same moments. Frames of a batch wait for each other, so there it is no measure.
    engines_p99: Option<f64>,
}

/// An engine that has its tensors.
struct Alone {
    fps: f64,
    /// Microseconds of a run.
    p99: f64,
}

/// Decoding without anything behind it.
struct Decoding {
    fps: f64,
    /// Seconds for 1,000 frames.
    cpu: f64,
}

struct Bench {
    arguments: Arguments,
    clip: Clip,
    /// Pictures of the clip for each model.
    pictures: BTreeMap<String, Vec<Vec<u8>>>,
    /// By batch size.
    engines: BTreeMap<usize, Alone>,
    all_came_out: bool,
}

impl Bench {
    /// Prints and notes an error; the result without it.
    fn report<T>(&mut self, what: &str, outcome: Result<T, Box<dyn Error>>) -> Option<T> {
        let print = |error: Box<dyn Error>| {
            self.all_came_out = false;
            println!("{what}: {error}");
            self.arguments.note(json!({ "row": "failed", "what": what, "error": error.to_string() }));
        };
        outcome.map_err(print).ok()
    }

    fn engine(&self, model: &str, batch: usize) -> Result<Alone, Box<dyn Error>> {
        let Arguments { options, properties, length, repeats, .. } = &self.arguments;
        let engine = Engine::new(model, options, batch, &self.pictures[model])?;
        let measure = |threads, ahead| -> gsttrt_core::error::Result<Vec<_>> {
            (0..*repeats).map(|_| engine.measure(threads, ahead, *length / 2)).collect()
        };
        let fps = |threads| Ok(median(measure(threads, 1)?.iter().map(|(fps, _)| *fps)));
        let fps: Vec<f64> = [1, 2, 4].into_iter().map(fps).collect::<gsttrt_core::error::Result<_>>()?;
        let one_by_one = measure(1, 0)?;
        let quantile = |q| median(one_by_one.iter().map(|(_, times)| times.value_at_quantile(q) as f64));
        let (p50, p99) = (quantile(0.5), quantile(0.99));
        let [mib, room] = engine.loaded_mib(1, 1)?;
        println!(
            "engine, batch {batch:>2}: {:.0}, {:.0}, {:.0} fps in 1, 2, 4 threads; a run takes {p50:.0} µs, p99 {p99:.0} µs; \
             {mib:.0} MiB of GPU memory, and {room:.0} to work in",
            fps[0], fps[1], fps[2],
        );
        let best = fps.iter().copied().fold(0.0, f64::max);
        self.arguments.note(json!({
            "row": "engine", "model": model, "properties": properties, "batch": batch, "fps": best, "fps_of_threads": fps,
            "p50_us": p50, "p99_us": p99, "gpu_mib": mib, "room_mib": room,
        }));
        Ok(Alone { fps: best, p99 })
    }

    /// Takes the pictures of a model from the clip, as for batches of so many, if that was not done yet.
    fn take_pictures(&mut self, model: &str, batch: usize) -> Result<(), Box<dyn Error>> {
        if self.pictures.contains_key(model) {
            return Ok(());
        }
        let Arguments { properties, preprocess, .. } = &self.arguments;
        let infer = format!("model-file={model} batch-size={batch} {properties}");
        let pictures = pictures::of(&self.clip, preprocess, &infer)?;
        self.pictures.insert(model.into(), pictures);
        Ok(())
    }

    /// Runs of so many streams through `elements`, at that pace.
    fn runs(&self, streams: usize, elements: &str, pace: u32) -> Result<Vec<Figures>, String> {
        let setup = Setup {
            clip: &self.clip,
            streams,
            gpus: self.arguments.gpus,
            elements,
            pace,
            length: self.arguments.length,
            gate: None,
        };
        (0..self.arguments.repeats).map(|_| run(setup)).collect()
    }

    fn decoding(&self, streams: usize) -> Result<Decoding, Box<dyn Error>> {
        let runs = self.runs(streams, "", 0)?;
        let figure = |get: fn(&Figures) -> f64| median(runs.iter().map(get));
        let (fps, cpu, mib) = (figure(|run| run.fps), figure(|run| run.cpu), figure(|run| run.gpu_mib));
        println!("{streams:>7}{:>7}{fps:>9.0}{:>29}{cpu:>9.2}{:>17}{mib:>9.0}", "decode", "", "");
        let row = json!({
            "row": "decode", "streams": streams, "gpus": self.arguments.gpus, "decoded": self.arguments.decoded, "fps": fps,
            "cpu_s_per_1000": cpu, "gpu_mib": mib,
        });
        self.arguments.note(row);
        Ok(Decoding { fps, cpu })
    }

    /// Streams at the pace, if there is one and they keep it: what cannot has whatever waits before it in its latency.
    fn live(
        &self,
        streams: usize,
        elements: &str,
        engine: &Engine,
        batch: usize,
    ) -> Result<Option<Live>, Box<dyn Error>> {
        let Arguments { live: pace, length, repeats, .. } = self.arguments;
        if pace == 0 {
            return Ok(None);
        }
        let runs = self.runs(streams, elements, pace)?;
        let figure = |get: fn(&Figures) -> f64| median(runs.iter().map(get));
        let frames = |fps: f64| fps * length.as_secs_f64();
        if frames(figure(|run| run.fps)) < 0.97 * frames(f64::from(pace) * streams as f64) - streams as f64 {
            return Ok(None);
        }
        let stages @ [.., [p50, p99]] = stages(&runs);
        let p95 = median(runs.iter().map(|run| run.latency[STAGES.len() - 1].value_at_quantile(0.95) as f64));
        let engines = || Ok(engine.measure_live(streams, pace, length)?.value_at_quantile(0.99) as f64);
        let engines_p99 = match batch {
            1 => Some(median((0..repeats).map(|_| engines()).collect::<gsttrt_core::error::Result<Vec<_>>>()?)),
            _ => None,
        };
        let woken = machine::wakes(streams, pace);
        let wakes = [0.5, 0.99].map(|q| woken.value_at_quantile(q));
        Ok(Some(Live {
            p50,
            p95,
            p99,
            stages,
            close: figure(|run| run.close),
            fill: figure(Figures::fill),
            wakes,
            engines_p99,
        }))
    }

    /// All streams through all elements; returns frames a second. Each with a model of its own, or with one that takes batches of `shared`.
    fn chain(&self, streams: usize, shared: Option<usize>, decoding: &Decoding) -> Result<f64, Box<dyn Error>> {
        let Arguments {
            model,
            properties,
            options,
            timeout,
            contexts,
            draw,
            preprocess,
            nms,
            gpus,
            decoded,
            live_queue,
            repeats,
            ..
        } = &self.arguments;
        let (batch, engines, sharing) = match shared {
            Some(batch) => {
                let runs = if batch > 1 { format!("parallel-runs={contexts}") } else { String::new() };
                (batch, 1, format!("shared-model=streams batch-size={batch} batch-timeout={timeout} {runs}"))
            }
            None => (1, streams, String::new()),
        };
        // In all queues together, a batch of each run can wait for its end while the next one gathers.
        let room = queue(((contexts + 1) * batch).div_ceil(streams).max(4));
        let elements = |room: &str| {
            format!(
                "! trtpreprocess {preprocess} ! trtinfer model-file={model} {properties} {sharing} {room} \
                 ! trtnms draw={draw} {nms}"
            )
        };
        let with_queue = elements(&format!("! {room}"));
        let flat_out = self.runs(streams, &with_queue, 0)?;
        let engine_alone = Engine::new(model, options, batch, &self.pictures[model])?;
        let live_elements = if *live_queue { with_queue } else { elements("") };
        let live = self.live(streams, &live_elements, &engine_alone, batch)?;

        let figure = |get: fn(&Figures) -> f64| median(flat_out.iter().map(get));
        let (fps, cpu, mib) = (figure(|run| run.fps), figure(|run| run.cpu), figure(|run| run.gpu_mib));
        let (fill, late) = (figure(Figures::fill), figure(Figures::late));
        let contexts = match shared {
            Some(1) => LoadContext::SHARED_CONTEXTS,
            Some(_) => *contexts,
            None => 1,
        };
        let [engines_mib, room_mib] = engine_alone.loaded_mib(engines, contexts)?;
        // Slices are several pictures of a frame.
        let pictures = match preprocess.as_str() {
            "" => 1.0,
            _ => figure(|run| run.pictures).round().max(1.0),
        };
        let engine = self.engines[&batch].fps * *gpus as f64 / pictures;
        let (ceiling, beyond) = (decoding.fps.min(engine), cpu - decoding.cpu);
        let each: [f64; 3] = std::array::from_fn(|i| median(flat_out.iter().map(|run| run.ours[i])));
        let ours: f64 = each.iter().sum();

        let least = self.engines.values().next().map_or(0.0, |engine| engine.p99);
        let (p50, p99) = live.as_ref().map(|live| (live.p50, live.p99)).unzip();
        let engines_p99 = live.as_ref().and_then(|live| live.engines_p99);
        let added = p99.map(|p99| p99 - least);
        let added_to_all = p99.zip(engines_p99).map(|(p99, engines)| p99 - engines);

        let shown = |figure: Option<f64>| figure.map_or("-".into(), |figure| format!("{figure:.0}"));
        println!(
            "{streams:>7}{:>7}{fps:>9.0}{ceiling:>9.0}{:>8.3}{fill:>6.1}{:>5.0}%{cpu:>9.2}{beyond:>8.2}{ours:>8.2}\
             {engines_mib:>9.0}{room_mib:>8.0}{mib:>9.0}{:>9}{:>8}{:>8}{:>8}",
            shared.map_or("own".into(), |batch| batch.to_string()),
            fps / ceiling,
            100.0 * late,
            shown(p50),
            shown(p99),
            shown(added),
            shown(added_to_all),
        );
        let [hits, misses] = [0, 1].map(|i| flat_out.iter().map(|run| run.pools[i]).sum::<u64>());
        let pools = hits as f64 / (hits + misses).max(1) as f64;
        let (threads, cuda_contexts) = (figure(|run| run.threads), figure(|run| run.contexts));
        println!(
            "{:>14}CPU/1000 of trtpreprocess {:.3}, trtinfer {:.3}, trtnms {:.3}; pools {:.2} %; {threads:.0} threads, CUDA contexts {cuda_contexts:.0}",
            "",
            each[0],
            each[1],
            each[2],
            100.0 * pools,
        );
        let flat_stages = stages(&flat_out);
        show_stages("flat out", &flat_stages);
        if let Some(Live { stages, close, wakes: [p50, p99], .. }) = &live {
            show_stages("live", stages);
            let close = 100.0 * close;
            println!("{:>14}live: {close:.1} % come close behind another; a thread wakes in {p50}, {p99} µs", "");
        }
        self.arguments.note(json!({
            "cpu_ours_s_per_1000": ours, "cpu_of_each_s_per_1000": each, "pool_hits": pools,
            "row": "chain", "model": model, "properties": properties, "preprocess": preprocess, "pictures": pictures, "nms": nms,
            "streams": streams, "gpus": gpus, "decoded": decoded,
            "shared": shared.is_some(), "batch": batch, "batch_timeout": timeout, "repeats": repeats, "fps": fps, "decode_fps": decoding.fps, "engine_fps": engine,
            "of_ceiling": fps / ceiling, "cpu_s_per_1000": cpu, "cpu_beyond_decode_s_per_1000": beyond, "gpu_mib": mib,
            "engines_mib": engines_mib, "room_mib": room_mib, "fill": fill, "late": late, "places_p50_p99_us": flat_stages,
            "live": self.arguments.live, "live_kept": live.is_some(), "live_queue": live_queue,
            "live_fill": live.as_ref().map(|live| live.fill), "live_close": live.as_ref().map(|live| live.close),
            "live_stages_p50_p99_us": live.as_ref().map(|live| live.stages),
            "threads": threads, "cuda_contexts": cuda_contexts, "live_p95_us": live.as_ref().map(|live| live.p95),
            "thread_wakes_p50_p99_us": live.as_ref().map(|live| live.wakes),
            "live_p50_us": p50, "live_p99_us": p99, "added_p99_us": added,
            "engines_live_p99_us": engines_p99, "added_to_all_p99_us": added_to_all,
        }));
        Ok(fps)
    }

    fn all(&mut self) {
        let Arguments { model, clip, repeats, streams, batches, .. } = &self.arguments;
        println!("{model}, {clip}; medians of {repeats}");
        let (model, streams, batches) = (model.clone(), streams.clone(), batches.clone());
        for batch in batches {
            let taken = self.take_pictures(&model, batch);
            let outcome = taken.and_then(|()| self.engine(&model, batch));
            let alone = self.report(&format!("engine, batch {batch}"), outcome);
            self.engines.extend(alone.map(|alone| (batch, alone)));
        }
        let second = self.arguments.second.clone().and_then(|second| {
            let taken = self.take_pictures(&second.model, second.batch);
            let outcome = taken.and_then(|()| self.engine(&second.model, second.batch));
            self.report("engine of the second model", outcome).map(|alone| (second, alone))
        });
        if !streams.is_empty() {
            println!("{HEADINGS}");
        }
        for streams in streams {
            let outcome = self.decoding(streams);
            let Some(decoding) = self.report(&format!("{streams} streams, decoding"), outcome) else { continue };
            let own = self.engines.contains_key(&1).then_some(None);
            let shared: Vec<Option<usize>> = own.into_iter().chain(self.engines.keys().copied().map(Some)).collect();
            for batch in self.engines.keys().copied().filter(|_| self.arguments.together).collect::<Vec<_>>() {
                let outcome = self.together(streams, batch, &decoding);
                self.report(&format!("{streams} streams, decoding and batches of {batch} at the same time"), outcome);
            }
            for shared in shared {
                let outcome = self.chain(streams, shared, &decoding);
                let kind =
                    shared.map_or("models of their own".into(), |batch| format!("a model for batches of {batch}"));
                let plain = self.report(&format!("{streams} streams, {kind}"), outcome);
                let (Some(plain), Some(batch), Some((second, alone))) = (plain, shared, &second) else { continue };
                for interval in &second.intervals {
                    let chain = second::Chain {
                        streams,
                        batch,
                        interval: *interval,
                        second,
                        alone,
                        decoding: &decoding,
                        plain,
                    };
                    let outcome = self.second(chain);
                    self.report(&format!("{streams} streams, second model, reclassify-interval={interval}"), outcome);
                }
            }
        }
    }
}

/// Whether all rows came out.
fn measure() -> Result<bool, Box<dyn Error>> {
    gst::init()?;
    gsttrt::plugin_register_static()?;
    let mut arguments = Arguments::parse()?;
    arguments.model = open_batch::of(&arguments.model)?;
    if let Some(second) = &mut arguments.second {
        second.model = open_batch::of(&second.model)?;
    }
    let held = if arguments.decoded { Held::Frames(16) } else { Held::Coded };
    let clip = Clip::read(&arguments.clip, held, &arguments.decoder)?;
    let (pictures, engines) = Default::default();
    let mut bench = Bench { arguments, clip, pictures, engines, all_came_out: true };
    bench.all();
    Ok(bench.all_came_out)
}

fn main() -> ExitCode {
    match measure() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
