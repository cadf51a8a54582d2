// SPDX-License-Identifier: MPL-2.0
//! All sources and models, and what can be done to them while they run.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::config::{Config, ModelConfig, SourceConfig};
use super::control::{Control, ModelStatus, Refused, SourceStatus};
use super::log::log;
use super::model::{Model, ServedModel};
use super::stream::SourceStream;
use super::view;
use crate::failure::Failure;
use crate::model_options::check_file;

/// How long all sources together may take to end, with recordings and publishing.
const STOP_TIMEOUT: Duration = Duration::from_secs(25);

pub struct Service(Mutex<ServiceState>);

struct ServiceState {
    config: Config,
    models: Vec<Model>,
    streams: Vec<SourceStream>,
    /// Of the model that was started last.
    number: u64,
    /// Each thread has a sender, which is dropped at its end.
    alive: Option<Sender<()>>,
    ended: Receiver<()>,
}

impl Service {
    pub fn start(config: Config) -> Result<Self, Failure> {
        let (alive, ended) = channel();
        let none = config.without_sources();
        let mut running = ServiceState {
            config: none,
            models: Vec::new(),
            streams: Vec::new(),
            number: 0,
            alive: Some(alive),
            ended,
        };
        running.apply(config)?;
        Ok(Service(Mutex::new(running)))
    }

    fn lock(&self) -> MutexGuard<'_, ServiceState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies another configuration. What is the same in both goes on without a break.
    pub fn reload(&self, config: Config) -> Result<(), Failure> {
        self.lock().apply(config)
    }

    /// Ends everything: returns false where something does not end in time.
    pub fn stop(&self) -> bool {
        let mut running = self.lock();
        running.streams.drain(..).for_each(|stream| stream.stop());
        // They are released by the last source that has them.
        running.models.drain(..).for_each(|model| model.stop());
        running.alive = None;
        running.ended.recv_timeout(STOP_TIMEOUT) == Err(RecvTimeoutError::Disconnected)
    }
}

impl ServiceState {
    fn apply(&mut self, mut config: Config) -> Result<(), Failure> {
        // HTTP stays as it was at the start, and so do the branches for its pictures.
        config.keep_http(&self.config);
        for model in &config.models {
            self.set_model(model)?;
        }
        self.streams.retain(|stream| {
            let stays = config.sources.iter().any(|source| source.name == stream.config.name);
            if !stays {
                log(&stream.config.name, "Removed.");
                stream.stop();
            }
            stays
        });
        for source in &config.sources {
            self.set_source(source.clone())?;
        }
        self.models.retain(|model| {
            let stays = config.models.iter().any(|wanted| wanted.name == model.shared.config().name);
            if !stays {
                model.stop();
            }
            stays
        });
        let order = |name: &str| config.sources.iter().position(|config| config.name == name);
        self.streams.sort_by_key(|stream| order(&stream.config.name));
        self.config = config;
        Ok(())
    }

    fn alive(&self) -> Result<Sender<()>, Failure> {
        self.alive.clone().ok_or_else(|| "The service ends.".into())
    }

    /// Starts a model, or changes it: another file is loaded in the background, and other settings are another model.
    fn set_model(&mut self, config: &ModelConfig) -> Result<(), Failure> {
        let there = self.models.iter().position(|model| model.shared.config().name == config.name);
        let Some(position) = there else {
            self.number += 1;
            self.models.push(Model::start(config.clone(), self.number, self.alive()?)?);
            return Ok(());
        };
        let now = self.models[position].shared.config();
        if now == *config {
            return Ok(());
        }
        if (ModelConfig { file: config.file.clone(), ..now }) == *config {
            self.models[position].replace(&config.file);
            self.retry(&config.name);
            return Ok(());
        }
        self.number += 1;
        let model = Model::start(config.clone(), self.number, self.alive()?)?;
        for stream in self.streams.iter_mut().filter(|stream| stream.config.model == config.name) {
            stream.change(stream.config.clone(), model.shared.clone());
        }
        std::mem::replace(&mut self.models[position], model).stop();
        Ok(())
    }

    fn set_source(&mut self, config: SourceConfig) -> Result<(), Failure> {
        let model = self.model(&config.model)?;
        match self.streams.iter_mut().find(|stream| stream.config.name == config.name) {
            Some(stream) if stream.config == config => {}
            Some(stream) => stream.change(config, model),
            None => self.streams.push(SourceStream::start(config, model, self.alive()?)?),
        }
        Ok(())
    }

    fn model(&self, name: &str) -> Result<Arc<ServedModel>, Failure> {
        let model = self.models.iter().find(|model| model.shared.config().name == name);
        model.map(|model| model.shared.clone()).ok_or_else(|| format!("There is no model “{name}”.").into())
    }

    /// Sources that wait because of their model need not do so any longer.
    fn retry(&self, model: &str) {
        self.streams.iter().filter(|stream| stream.config.model == model).for_each(SourceStream::retry);
    }

    fn stream(&self, name: &str) -> Result<usize, Refused> {
        let position = self.streams.iter().position(|stream| stream.config.name == name);
        position.ok_or_else(|| Refused::Unknown(format!("There is no source “{name}”.")))
    }
}

impl Control for Service {
    fn sources(&self) -> Vec<SourceStatus> {
        self.lock().streams.iter().map(|stream| stream.meter.status(&stream.config)).collect()
    }

    fn add_source(&self, source: &serde_json::Value) -> Result<(), Refused> {
        let mut running = self.lock();
        let config =
            running.config.source(source).map_err(|problem| Refused::Invalid(format!("Cannot add it: {problem}")))?;
        if running.stream(&config.name).is_ok() {
            return Err(Refused::Exists(format!("There is a source “{}” already.", config.name)));
        }
        running.set_source(config).map_err(|failure| Refused::Invalid(failure.to_string()))
    }

    fn remove_source(&self, name: &str) -> Result<(), Refused> {
        let mut running = self.lock();
        let position = running.stream(name)?;
        running.streams.remove(position).stop();
        log(name, "Removed.");
        Ok(())
    }

    fn models(&self) -> Vec<ModelStatus> {
        self.lock().models.iter().map(|model| model.shared.status()).collect()
    }

    fn replace_model(&self, name: &str, file: &Path) -> Result<(), Refused> {
        let running = self.lock();
        let model = running.models.iter().find(|model| model.shared.config().name == name);
        let model = model.ok_or_else(|| Refused::Unknown(format!("There is no model “{name}”.")))?;
        let file = running.config.path(file);
        check_file(&file).map_err(|failure| Refused::Invalid(failure.to_string()))?;
        model.replace(&file);
        running.retry(name);
        Ok(())
    }

    fn watch(&self, source: &str) -> Result<watch::Receiver<Option<Bytes>>, Refused> {
        let running = self.lock();
        let stream = &running.streams[running.stream(source)?];
        if stream.config.has_view {
            Ok(view::receive(&stream.pictures))
        } else {
            Err(Refused::Invalid("Pictures need [http] in the configuration.".into()))
        }
    }

    fn is_ready(&self) -> bool {
        let running = self.lock();
        running.models.iter().all(|model| model.shared.status().loaded)
            && running.streams.iter().all(|stream| stream.meter.is_settled())
    }
}
