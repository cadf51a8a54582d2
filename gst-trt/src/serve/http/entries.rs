// SPDX-License-Identifier: MPL-2.0
//! Sources, models, galleries and objects of several sources: listed, added, removed, replaced.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path as Segments, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use gsttrt_core::gallery::{GalleryEntry, file};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ServerState;
use super::answer::{ApiError, json, object};
use crate::serve::control::{Control, Refused, SourceStatus};

/// The name in the path, or a pair of them, which may be any texts in percent-encoding.
pub struct PathName<T = String>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathName<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Segments::<T>::from_request_parts(parts, state).await {
            Ok(Segments(name)) => Ok(PathName(name)),
            Err(_) => {
                let text = "The name in the address is no text. Write it in UTF-8, in percent-encoding.";
                Err(ApiError::new(StatusCode::BAD_REQUEST, text))
            }
        }
    }
}

impl ServerState {
    pub fn find(&self, name: &str) -> Result<SourceStatus, ApiError> {
        let found = self.service.sources().into_iter().find(|source| source.name == name);
        found.ok_or_else(|| {
            let text = format!("There is no source “{name}”. GET /sources lists them.");
            ApiError::new(StatusCode::NOT_FOUND, text)
        })
    }
}

impl ServerState {
    /// Something that looks at files, which a disk may hold up, without holding up other requests.
    pub async fn in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Control) -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, ApiError> {
        let service = self.service.clone();
        match tokio::task::spawn_blocking(move || work(&*service)).await {
            Ok(done) => Ok(done?),
            Err(_) => {
                let text = "The request failed by a fault of the program. The journal has what it says.";
                Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, text))
            }
        }
    }
}

pub async fn sources(State(context): State<Arc<ServerState>>) -> Response {
    json(StatusCode::OK, &context.service.sources())
}

pub async fn source(State(context): State<Arc<ServerState>>, PathName(name): PathName) -> Result<Response, ApiError> {
    Ok(json(StatusCode::OK, &context.find(&name)?))
}

pub async fn add_source(State(context): State<Arc<ServerState>>, request: Request) -> Result<Response, ApiError> {
    let source = Value::Object(object(request, context.limits.body).await?);
    let name = source["name"].as_str().unwrap_or_default().to_string();
    context.in_background(move |service| service.add_source(&source)).await?;
    match context.find(&name) {
        Ok(status) => {
            let location = format!("/sources/{}", encoded(&name));
            Ok(([(header::LOCATION, location)], json(StatusCode::CREATED, &status)).into_response())
        }
        // Removed by another client since.
        Err(_) => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

pub async fn remove_source(
    State(context): State<Arc<ServerState>>,
    PathName(name): PathName,
) -> Result<StatusCode, ApiError> {
    context.service.remove_source(&name)?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn models(State(context): State<Arc<ServerState>>) -> Response {
    json(StatusCode::OK, &context.service.models())
}

pub async fn replace_model(
    State(context): State<Arc<ServerState>>,
    PathName(name): PathName,
    request: Request,
) -> Result<Response, ApiError> {
    let wish = object(request, context.limits.body).await?;
    let file = match (wish.get("file"), wish.len()) {
        (Some(Value::String(file)), 1) if !file.is_empty() => PathBuf::from(file),
        _ => {
            let text = "The model is not replaced: the body has one key, file, with a path. Send {\"file\": \"PATH\"}.";
            return Err(ApiError::new(StatusCode::BAD_REQUEST, text));
        }
    };
    let wanted = name.clone();
    context.in_background(move |service| service.replace_model(&wanted, &file)).await?;
    let model = context.service.models().into_iter().find(|model| model.name == name);
    // It is loaded in the background.
    Ok(json(StatusCode::ACCEPTED, &model))
}

pub async fn galleries(State(context): State<Arc<ServerState>>) -> Result<Response, ApiError> {
    let galleries = context.in_background(|service| Ok(service.galleries())).await?;
    Ok(json(StatusCode::OK, &galleries))
}

/// Adds a vector to a name of a gallery.
pub async fn enrol(
    State(context): State<Arc<ServerState>>,
    PathName((gallery, name)): PathName<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let wish = object(request, context.limits.body).await?;
    let wrong = |why: &str| {
        let remedy = "Send {\"vector\": [0.1, 0.2]} with all numbers of the model, or base64 of them as 32-bit floats";
        ApiError::new(StatusCode::BAD_REQUEST, format!("Nothing is added: {why}. {remedy}."))
    };
    let vector = match (wish.get("vector"), wish.len()) {
        (Some(vector), 1) => file::numbers(vector).map_err(wrong)?,
        _ => return Err(wrong("the body has one key, vector")),
    };
    let entry = GalleryEntry::new(&name, &vector);
    let entry = entry.map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, error.message()))?;
    let added = context.in_background(move |service| service.enrol(&gallery, &entry)).await?;
    Ok(json(StatusCode::CREATED, &added))
}

/// Removes a name from a gallery.
pub async fn forget(
    State(context): State<Arc<ServerState>>,
    PathName((gallery, name)): PathName<(String, String)>,
) -> Result<StatusCode, ApiError> {
    context.in_background(move |service| service.forget(&gallery, &name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn identities(State(context): State<Arc<ServerState>>) -> Response {
    json(StatusCode::OK, &context.service.identities().list())
}

/// Forgets an object.
pub async fn forget_identity(
    State(context): State<Arc<ServerState>>,
    PathName(id): PathName,
) -> Result<StatusCode, ApiError> {
    let identities = context.service.identities();
    if id.parse::<u64>().is_ok_and(|id| identities.forget(id)) {
        return Ok(StatusCode::NO_CONTENT);
    }
    let text = format!("There is no object with the id “{id}”. GET /identities lists them.");
    Err(ApiError::new(StatusCode::NOT_FOUND, text))
}

/// Forgets all objects.
pub async fn forget_identities(State(context): State<Arc<ServerState>>) -> StatusCode {
    context.service.identities().forget_all();
    StatusCode::NO_CONTENT
}

/// As a segment of a path.
fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let write = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(write).collect()
}
