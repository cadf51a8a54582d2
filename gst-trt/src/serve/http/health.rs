// SPDX-License-Identifier: MPL-2.0
//! `/healthz`: it answers, and can use its GPUs. `/readyz`: all models are loaded, and each source has given a frame or was found to fail.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::json;

use super::ServerState;
use super::answer;
use crate::serve::control::{Control, State as SourceState};

/// Asks the service, so that one that is stuck does not pass for healthy.
pub async fn healthz(State(context): State<Arc<ServerState>>) -> Response {
    context.service.is_ready();
    match context.service.lost_gpu() {
        Some(error) => answer::json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": error })),
        None => answer::json(StatusCode::OK, &json!({ "status": "ok" })),
    }
}

pub async fn readyz(State(context): State<Arc<ServerState>>, headers: HeaderMap) -> Response {
    if context.service.is_ready() {
        return answer::json(StatusCode::OK, &json!({ "status": "ready" }));
    }
    let reasons = if context.access.may_read(&headers) {
        reasons(&*context.service)
    } else {
        vec!["only a request with the token is told why".to_string()]
    };
    let text = format!("The service is not ready: {}. Try again later.", reasons.join("; "));
    answer::json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": text, "reasons": reasons }))
}

fn reasons(service: &dyn Control) -> Vec<String> {
    let models =
        service.models().into_iter().filter(|model| !model.loaded).map(|model| match (&model.error, model.progress) {
            (Some(error), _) => format!("the model “{}” is not loaded: {}", model.name, error.trim_end_matches('.')),
            (None, Some(part)) => {
                format!("the engine of the model “{}” is built to {:.0} %", model.name, part * 100.0)
            }
            (None, None) => format!("the model “{}” is being loaded", model.name),
        });
    let sources = service.sources().into_iter().filter(|source| source.state == SourceState::Connecting);
    let sources = sources.map(|source| format!("the source “{}” has given no frame yet", source.name));
    let lost = service.lost_gpu().map(|error| error.trim_end_matches('.').to_string());
    lost.into_iter().chain(models).chain(sources).collect()
}
