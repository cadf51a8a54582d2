// SPDX-License-Identifier: MPL-2.0
//! `gst-trt serve`: many sources under one roof, for months.
//!
//! * `config`: the file. `service`: all sources and models. `control`: what others may ask of it.
//!   `http`, `rtsp`, `webrtc`: how they ask. `sockets`: their connections.
//! * `gpus`: where sources are. `model`: a model that sources share. `stream`: a source. `trial`: more and more of them.
//!   `identities`: objects that several sources see.
//!   `record`, `view`, `output`: what becomes of frames besides publishing; `tiles`: those of many in one picture; `encoder`: what encodes them; `cut`, `snapshot`, `ask`: pictures that are
//!   cut out of them, kept, and asked about.
//!   `archive`: what there is of recordings. `heap`: what keeps memory flat while sources come and go.
//!   `changes`: of the file, and `reload`: what reads it then. `place`: which of several services this one is.
//!   `log`, `metrics`, `histogram`, `otel`: what is told of all that. `disk`: how much room there is for it.

mod archive;
mod ask;
mod changes;
mod config;
mod control;
mod cut;
mod disk;
mod encoder;
#[cfg(test)]
mod fakes;
mod galleries;
mod gpus;
mod heap;
mod histogram;
mod http;
mod identities;
mod log;
mod metrics;
mod model;
#[cfg(feature = "otel")]
mod otel;
mod output;
mod place;
mod record;
mod reload;
mod rtsp;
mod service;
mod snapshot;
mod sockets;
mod stream;
mod tiles;
mod trial;
mod view;
#[cfg(feature = "webrtc")]
mod webrtc;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use gsttrt_core::cuda::driver;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::chain;
use crate::failure::{Failure, Status, contain};
use crate::terminal::{print, print_error};
use crate::threads::Threads;
use changes::{FileWatch, Stamp};
use config::Config;
pub use config::{HeadSettings, ModelOutcome, ModelSettings, NAME_FORM, is_config_name, parse_time};
use control::VideoControl;
use gpus::Gpus;
use log::{LogFormat, LogSettings, log, log_error, warn};
pub use metrics::gpu::GpuReading;
#[cfg(feature = "otel")]
use otel::Telemetry;
use place::ReplicaPlace;
use reload::{ConfigFile, Reloads};
use service::{END, Service};
pub use trial::{StreamTrial, TrialModel, TrialReading};

const EXAMPLES: &str = "\
Examples:
  gst-trt serve --check config.toml
  gst-trt serve config.toml

SIGHUP reads the file again, SIGTERM and Ctrl+C end it cleanly. It ends by itself, with status 75, where the GPU is lost to this
process, so that whoever started it starts it again. The file is described in docs/serve.md.";

#[derive(Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// What runs, in TOML
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Only check the file
    #[arg(long)]
    check: bool,
    /// Read the file again whenever it has changed, as at SIGHUP
    #[arg(long)]
    watch: bool,
    /// How lines of the log are written, instead of what [log] says
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

impl ServeArgs {
    fn log_settings(&self, config: &Config) -> LogSettings {
        LogSettings { format: self.log_format.unwrap_or(config.log.format), ..config.log }
    }
}

pub fn run(args: &ServeArgs, threads: &Threads) -> Result<Status, Failure> {
    if !args.check {
        heap::limit_caches();
    }
    heap::limit_arenas();
    // Before all that takes time: without a handler SIGHUP ends a program, and whoever has just started it may send one.
    let mut signals = Signals::new([SIGHUP]).map_err(no_signals)?;
    let is_starting = Arc::new(AtomicBool::new(true));
    if !args.check {
        listen_to_end(&signals, &is_starting)?;
        heap::release_signals();
    }
    // Before it is read: a change that comes between is seen later.
    let known = Stamp::of(&args.config);
    gpus::show(&args.config)?;
    chain::start_gstreamer()?;
    let config = contain(|| Config::load(&args.config))?;
    if args.check {
        return check(&args.config, &config);
    }
    chain::prefer_gpu_decoders();
    let (http, rtsp, at_start) = (config.http.clone(), config.rtsp.clone(), config.without_sources());
    #[cfg(feature = "webrtc")]
    let webrtc = config.webrtc.clone();
    log::configure(args.log_settings(&config));
    #[cfg(feature = "otel")]
    let telemetry = Arc::new(Mutex::new(Telemetry::new(config.otel.as_ref())));
    config.warnings.iter().for_each(|warning| warn("serve", warning));
    // Taken until all has ended, whoever changes it.
    let place = Arc::new(Mutex::new(ReplicaPlace::default().other(&config)?.unwrap_or_default()));
    let shard = shard_text(&config);
    // Whichever source meets it first. The loop below ends then.
    let handle = signals.handle();
    driver::when_lost(move |_| handle.close());
    // An address that is taken is said before anything is loaded.
    let http = http.map(|settings| http::listen(&settings).map(|listener| (settings, listener))).transpose()?;
    let rtsp = rtsp.map(|settings| rtsp::listen(&settings).map(|listener| (settings, listener))).transpose()?;
    #[cfg(feature = "webrtc")]
    let webrtc = webrtc.map(|settings| webrtc::listen(&settings).map(|socket| (settings, socket))).transpose()?;
    let (gpus, warning) = Gpus::find(config.gpus.as_ref());
    warning.iter().for_each(|warning| warn("serve", warning));
    // From now on there is something to end, which a signal must not do half-way.
    is_starting.store(false, Ordering::SeqCst);
    let service = Arc::new(Service::start(config, gpus, threads)?);
    #[cfg(feature = "otel")]
    reload::locked(&telemetry).send(service.clone());
    let mut started = format!("Started.{shard}");
    let start_servers = || -> Result<_, Failure> {
        #[cfg(feature = "webrtc")]
        let browsers = webrtc
            .map(|(settings, socket)| webrtc::start(&settings, socket, service.clone()))
            .transpose()?
            .map(|server| Arc::new(server) as Arc<dyn VideoControl>);
        #[cfg(not(feature = "webrtc"))]
        let browsers: Option<Arc<dyn VideoControl>> = None;
        let at = browsers.as_ref().map(|browsers| browsers.address());
        let server = http.map(|(settings, listener)| http::start(&settings, listener, service.clone(), browsers));
        let videos = rtsp.map(|(settings, listener)| rtsp::start(&settings, listener, service.clone()));
        let (server, videos) = (server.transpose()?, videos.transpose()?);
        started.extend(server.iter().map(|server| format!(" http://{}/", server.address())));
        started.extend(videos.iter().map(|videos| format!(" rtsp://{}/", videos.address())));
        started.extend(at.map(|address| format!(" WebRTC on UDP {address}")));
        Ok((server, videos))
    };
    // Dropped, they answer no more; what they have asked for is done then.
    let (server, videos) = start_servers().inspect_err(|_| drop(service.stop(Instant::now() + END)))?;
    log("serve", &started);
    let raise = || drop(signal_hook::low_level::raise(SIGHUP));
    let watch = args.watch.then(|| FileWatch::start(&args.config, known, threads, raise)).transpose();
    let watch = watch.inspect_err(|_| drop(service.stop(Instant::now() + END)))?;
    let file = ConfigFile {
        args: args.clone(),
        service: service.clone(),
        at_start,
        place: place.clone(),
        #[cfg(feature = "otel")]
        telemetry: telemetry.clone(),
    };
    let trimming = heap::Trimming::start(threads).inspect_err(|_| drop(service.stop(Instant::now() + END)))?;
    let reloads = Reloads::start(threads, move |is_given_up| file.read(is_given_up));
    let reloads = reloads.inspect_err(|_| drop(service.stop(Instant::now() + END)))?;
    let is_asked_to_end = signals.forever().any(|signal| {
        if signal == SIGHUP {
            reloads.ask();
        }
        signal != SIGHUP
    });
    // One time for all that ends: limits of their own would add up.
    let asked = Instant::now();
    drop((watch, reloads, trimming));
    if let Some(error) = driver::lost().filter(|_| !is_asked_to_end) {
        log_error("serve", &format!("{error} Ending with status {}.", Status::GpuLost.code()));
        #[cfg(feature = "otel")]
        reload::locked(&telemetry).prepare_end(asked + END);
        service.stop(asked + END);
        drop(server); // until then, it tells why
        galleries::wait_for_changes(asked + END);
        #[cfg(feature = "otel")]
        reload::locked(&telemetry).end();
        return Ok(Status::GpuLost);
    }
    log("serve", "Ending.");
    #[cfg(feature = "otel")]
    reload::locked(&telemetry).prepare_end(asked + END);
    drop((server, videos));
    service.stop(asked + END);
    galleries::wait_for_changes(asked + END);
    #[cfg(feature = "otel")]
    reload::locked(&telemetry).end();
    Ok(Status::Done) // it ends whatever is left behind
}

/// Says what is left behind, as the log is written.
pub fn log_left(text: &str) {
    log_error("serve", text);
}

/// What does not work now of a file that is right.
pub fn warnings(file: &Path) -> Result<Vec<String>, Failure> {
    contain(|| Config::load(file)).map(|config| config.warnings)
}

/// Says whether the file is right. What keeps a part of it from working does not keep the service from starting.
fn check(file: &Path, config: &Config) -> Result<Status, Failure> {
    let mut warnings = config.warnings.clone();
    // The start finds these where it uses a GPU, and loads the models.
    warnings.extend(Gpus::find(config.gpus.as_ref()).1);
    warnings.extend(config.models.iter().filter_map(|model| {
        let elements = model.elements();
        let missing = elements.model.missing(&elements.infer)?;
        Some(format!("model “{}”: {}", model.name, missing.message()))
    }));
    warnings.extend(config.models.iter().filter_map(|model| {
        let needs_gpu = model.matching.as_ref()?.get("device") == Some("cuda");
        let missing = needs_gpu.then(driver::device_count)?.err()?.and_remedy("With device = \"cpu\" it needs none");
        Some(format!("model “{}”, match: {}", model.name, missing.message()))
    }));
    warnings.iter().for_each(|warning| print_error(&format!("Warning: {warning}")));
    let (shown, count) = (file.display(), warnings.len());
    if count > 0 {
        let parts = if count == 1 { "a part of it does".into() } else { format!("{count} parts of it do") };
        return Err(format!("{shown} can be used, but {parts} not work now: the warnings tell.").into());
    }
    let (sources, models, shard) = (config.sources.len(), config.models.len(), shard_text(config));
    print(&format!("{shown} is right: sources {sources}, models {models}.{shard}"))?;
    Ok(Status::Done)
}

/// Which part of the sources is here, where others are elsewhere.
fn shard_text(config: &Config) -> String {
    let Some(shard) = config.shard else { return String::new() };
    let own = config.sources.len();
    format!(" Shard {shard}: {own} of {} sources.", own + config.elsewhere)
}

/// The first SIGINT or SIGTERM asks for a clean end, the second one ends the program at once. While it starts there is nothing to
/// end yet, and so the first one does that.
fn listen_to_end(signals: &Signals, is_starting: &Arc<AtomicBool>) -> Result<(), Failure> {
    let is_ending = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 0, is_starting.clone()).map_err(no_signals)?;
        // First what looks at the flag, then what sets it.
        flag::register_conditional_shutdown(signal, 128 + signal, is_ending.clone()).map_err(no_signals)?;
        flag::register(signal, is_ending.clone()).map_err(no_signals)?;
        signals.handle().add_signal(signal).map_err(no_signals)?;
    }
    Ok(())
}

fn no_signals(error: std::io::Error) -> Failure {
    format!("Cannot listen to signals: {error}.").into()
}
