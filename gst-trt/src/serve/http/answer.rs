// SPDX-License-Identifier: MPL-2.0
//! Bodies and errors: JSON both ways.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gsttrt_core::json::{RepeatedKey, repeated_key};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::serve::config;
use crate::serve::control::{OfferRefused, Refused};

/// Bytes of a request's body.
pub const BODY: usize = 64 << 10;

/// Why a request is not answered as wished: `{"error": "what failed, why, what to do"}`.
#[derive(Debug)]
pub struct ApiError {
    pub status: StatusCode,
    pub text: String,
}

impl ApiError {
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        ApiError { status, text: text.into() }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        json(self.status, &serde_json::json!({ "error": self.text }))
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Unknown(text) => ApiError::new(StatusCode::NOT_FOUND, text),
            Refused::Exists(text) => ApiError::new(StatusCode::CONFLICT, text),
            Refused::Invalid(text) => ApiError::new(StatusCode::BAD_REQUEST, text),
            Refused::Busy(text) => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text),
            Refused::Failed(text) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, text),
        }
    }
}

impl From<OfferRefused> for ApiError {
    fn from(refused: OfferRefused) -> Self {
        match refused {
            OfferRefused::Unknown(text) => ApiError::new(StatusCode::NOT_FOUND, text),
            OfferRefused::Malformed(text) => ApiError::new(StatusCode::BAD_REQUEST, text),
            OfferRefused::Unsupported(text) => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, text),
            OfferRefused::Crowded(text) => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text),
        }
    }
}

pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    written(status, serde_json::to_vec(value))
}

/// What was written as JSON, in another thread where it is long.
pub fn written(status: StatusCode, text: serde_json::Result<Vec<u8>>) -> Response {
    match text {
        Ok(text) => (status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Of a request that came while there are many: for its body.
#[derive(Clone, Copy)]
pub struct Hurry(pub Duration);

fn too_long() -> ApiError {
    let text = format!("The body is too long: it may have {BODY} bytes. Send less.");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text)
}

/// How long the body is to be, where the request says so.
fn length(request: &Request) -> Option<u64> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// A request's body, which must come within a time. One that is to be too long is not waited for.
pub async fn body(request: Request, time: Duration) -> Result<Bytes, ApiError> {
    if length(&request).is_some_and(|length| length > BODY as u64) {
        return Err(too_long());
    }
    let time = request.extensions().get::<Hurry>().map_or(time, |Hurry(limit)| time.min(*limit));
    match tokio::time::timeout(time, Bytes::from_request(request, &())).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => Err(too_long()),
        Ok(Err(_)) => {
            let text = "The body is broken: it is not as long, or not in such chunks, as it says. Send it again.";
            Err(ApiError::new(StatusCode::BAD_REQUEST, text))
        }
        Err(_) => {
            let text = format!("The body did not come within {} s. Send it in one piece.", time.as_secs_f64());
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, text))
        }
    }
}

/// The object in a request's body.
pub async fn object(request: Request, time: Duration) -> Result<Map<String, Value>, ApiError> {
    let bytes = body(request, time).await?;
    let wrong = |why: String| ApiError::new(StatusCode::BAD_REQUEST, why);
    match serde_json::from_slice(&bytes) {
        Ok(_) if std::str::from_utf8(&bytes).is_ok_and(|text| config::nul(text).is_some()) => {
            Err(wrong("A text in the body has a NUL character. Send it without.".into()))
        }
        Ok(Value::Object(object)) => match repeated_key(&bytes) {
            Some(repeated) => Err(wrong(format!("The body cannot be used: {repeated}. {}.", RepeatedKey::REMEDY))),
            None => Ok(object),
        },
        Ok(_) => Err(wrong("The body is no JSON object. Send one, such as {\"key\": \"value\"}.".into())),
        Err(error) => {
            Err(wrong(format!("The body is no JSON: {error}. Send an object, such as {{\"key\": \"value\"}}.")))
        }
    }
}
