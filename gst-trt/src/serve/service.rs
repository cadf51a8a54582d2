// SPDX-License-Identifier: MPL-2.0
//! All sources and models, and what can be done to them while they run.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::config::{Config, ModelPlan, StreamPlan};
use super::control::{Control, ModelStatus, Refused, SourceStatus};
use super::log::say;
use super::model::{Model, ServedModel};
use super::stream::SourceStream;
use super::view;
use crate::failure::Failure;
use crate::model_options::check_file;

/// For all sources together to end, recordings and publishing with them.
const PATIENCE: Duration = Duration::from_secs(25);

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
        running.become_like(config)?;
        Ok(Service(Mutex::new(running)))
    }

    fn lock(&self) -> MutexGuard<'_, ServiceState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on as another configuration says. What is the same goes on without a break.
    pub fn reload(&self, config: Config) -> Result<(), Failure> {
        self.lock().become_like(config)
    }

    /// Ends everything: returns false where something does not end in time.
    pub fn stop(&self) -> bool {
        let mut running = self.lock();
        running.streams.drain(..).for_each(|stream| stream.stop());
        // They are released by the last source that has them.
        running.models.drain(..).for_each(|model| model.stop());
        running.alive = None;
        running.ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected)
    }
}

impl ServiceState {
    fn become_like(&mut self, mut config: Config) -> Result<(), Failure> {
        // HTTP stays as it was at the start, and so do the branches for its pictures.
        config.keep_http(&self.config);
        for plan in &config.models {
            self.set_model(plan)?;
        }
        self.streams.retain(|stream| {
            let stays = config.sources.iter().any(|plan| plan.name == stream.plan.name);
            if !stays {
                say(&stream.plan.name, "Removed.");
                stream.stop();
            }
            stays
        });
        for plan in &config.sources {
            self.set_source(plan.clone())?;
        }
        self.models.retain(|model| {
            let stays = config.models.iter().any(|plan| plan.name == model.shared.plan().name);
            if !stays {
                model.stop();
            }
            stays
        });
        let order = |name: &str| config.sources.iter().position(|plan| plan.name == name);
        self.streams.sort_by_key(|stream| order(&stream.plan.name));
        self.config = config;
        Ok(())
    }

    fn alive(&self) -> Result<Sender<()>, Failure> {
        self.alive.clone().ok_or_else(|| "The service ends.".into())
    }

    /// Starts a model, or changes it: another file takes over beside, and other settings are another model.
    fn set_model(&mut self, plan: &ModelPlan) -> Result<(), Failure> {
        let there = self.models.iter().position(|model| model.shared.plan().name == plan.name);
        let Some(position) = there else {
            self.number += 1;
            self.models.push(Model::start(plan.clone(), self.number, self.alive()?)?);
            return Ok(());
        };
        let now = self.models[position].shared.plan();
        if now == *plan {
            return Ok(());
        }
        if (ModelPlan { file: plan.file.clone(), ..now }) == *plan {
            self.models[position].replace(&plan.file);
            self.retry(&plan.name);
            return Ok(());
        }
        self.number += 1;
        let model = Model::start(plan.clone(), self.number, self.alive()?)?;
        for stream in self.streams.iter_mut().filter(|stream| stream.plan.model == plan.name) {
            stream.change(stream.plan.clone(), model.shared.clone());
        }
        std::mem::replace(&mut self.models[position], model).stop();
        Ok(())
    }

    fn set_source(&mut self, plan: StreamPlan) -> Result<(), Failure> {
        let model = self.model(&plan.model)?;
        match self.streams.iter_mut().find(|stream| stream.plan.name == plan.name) {
            Some(stream) if stream.plan == plan => {}
            Some(stream) => stream.change(plan, model),
            None => self.streams.push(SourceStream::start(plan, model, self.alive()?)?),
        }
        Ok(())
    }

    fn model(&self, name: &str) -> Result<Arc<ServedModel>, Failure> {
        let model = self.models.iter().find(|model| model.shared.plan().name == name);
        model.map(|model| model.shared.clone()).ok_or_else(|| format!("There is no model “{name}”.").into())
    }

    /// Sources that wait because of their model need not do so any longer.
    fn retry(&self, model: &str) {
        self.streams.iter().filter(|stream| stream.plan.model == model).for_each(SourceStream::retry);
    }

    fn stream(&self, name: &str) -> Result<usize, Refused> {
        let position = self.streams.iter().position(|stream| stream.plan.name == name);
        position.ok_or_else(|| Refused::Unknown(format!("There is no source “{name}”.")))
    }
}

impl Control for Service {
    fn sources(&self) -> Vec<SourceStatus> {
        self.lock().streams.iter().map(|stream| stream.meter.status(&stream.plan)).collect()
    }

    fn add_source(&self, source: &serde_json::Value) -> Result<(), Refused> {
        let mut running = self.lock();
        let plan =
            running.config.source(source).map_err(|problem| Refused::Invalid(format!("Cannot add it: {problem}")))?;
        if running.stream(&plan.name).is_ok() {
            return Err(Refused::Exists(format!("There is a source “{}” already.", plan.name)));
        }
        running.set_source(plan).map_err(|failure| Refused::Invalid(failure.to_string()))
    }

    fn remove_source(&self, name: &str) -> Result<(), Refused> {
        let mut running = self.lock();
        let position = running.stream(name)?;
        running.streams.remove(position).stop();
        say(name, "Removed.");
        Ok(())
    }

    fn models(&self) -> Vec<ModelStatus> {
        self.lock().models.iter().map(|model| model.shared.status()).collect()
    }

    fn replace_model(&self, name: &str, file: &Path) -> Result<(), Refused> {
        let running = self.lock();
        let model = running.models.iter().find(|model| model.shared.plan().name == name);
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
        if stream.plan.has_view {
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
