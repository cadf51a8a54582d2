// SPDX-License-Identifier: MPL-2.0
//! Which function answers what.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};

use super::answer::{self, ApiError};
use super::{ServerState, entries, health, metrics, page, pictures, recordings, whep};

pub fn all(context: Arc<ServerState>) -> Router {
    let guarded = Router::new()
        .route("/sources", get(entries::sources).post(entries::add_source))
        .route("/sources/{name}", get(entries::source).delete(entries::remove_source))
        .route("/sources/{name}/snapshot.jpg", get(pictures::snapshot))
        .route("/sources/{name}/live.mjpeg", get(pictures::live))
        .route("/models", get(entries::models))
        .route("/models/{name}", put(entries::replace_model))
        .route("/galleries", get(entries::galleries))
        .route("/galleries/{name}/{person}", post(entries::enrol).delete(entries::forget))
        .route("/identities", get(entries::identities).delete(entries::forget_identities))
        .route("/identities/{id}", delete(entries::forget_identity))
        .route("/recordings", get(recordings::recordings))
        .route("/recordings/{file}", get(recordings::recording))
        .route("/snapshots", get(recordings::snapshots))
        .route("/snapshots/{file}", get(recordings::recording))
        .route("/metrics", get(metrics::metrics))
        .route_layer(middleware::from_fn_with_state(context.clone(), need_token));
    let videos = Router::new()
        .route("/sources/{name}/whep", post(whep::source).options(whep::options))
        .route("/tiles/{name}/whep", post(whep::tiles).options(whep::options))
        .route("/whep/{session}", delete(whep::end))
        .route_layer(middleware::from_fn_with_state(context.clone(), need_token_to_read));
    Router::new()
        .merge(guarded)
        .merge(videos)
        .merge(page::routes())
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .fallback(no_path)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(answer::BODY))
        .layer(middleware::from_fn_with_state(context.clone(), protect))
        .with_state(context)
}

async fn need_token(State(context): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    match context.access.check_token(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// A video is read, though it is asked for as if something was changed.
async fn need_token_to_read(State(context): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    match context.access.check_read(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// What holds for every request and every answer.
async fn protect(State(context): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let mut response = match context.access.check_origin(request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"gst-trt\""));
    }
    for (name, value) in [
        ("cache-control", "no-store"),
        ("content-security-policy", page::POLICY),
        ("cross-origin-resource-policy", "same-origin"), // no other site shows the pictures
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn no_path(uri: Uri) -> ApiError {
    let text = format!(
        "There is no {}. See /sources, /models, /galleries, /identities, /recordings, /snapshots, /metrics, /healthz, \
         /readyz and the page at /.",
        uri.path()
    );
    ApiError::new(StatusCode::NOT_FOUND, text)
}

async fn no_method(method: Method, uri: Uri) -> ApiError {
    let text = format!("{} does not take {method}. The Allow header of this answer lists what it takes.", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, text)
}
