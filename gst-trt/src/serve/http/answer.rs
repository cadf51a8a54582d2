// SPDX-License-Identifier: MPL-2.0
//! Bodies and errors: JSON both ways.

use std::time::Duration;

use axum::body::{self, Body};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::serve::control::Refused;

/// Bytes of a request's body.
const BODY: usize = 64 << 10;

/// Why a request is not answered as wished: `{"error": "what failed, why, what to do"}`.
#[derive(Debug)]
pub struct Problem {
    pub status: StatusCode,
    pub text: String,
}

impl Problem {
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Problem { status, text: text.into() }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        json(self.status, &serde_json::json!({ "error": self.text }))
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Unknown(text) => Problem::new(StatusCode::NOT_FOUND, text),
            Refused::Exists(text) => Problem::new(StatusCode::CONFLICT, text),
            Refused::Invalid(text) => Problem::new(StatusCode::BAD_REQUEST, text),
        }
    }
}

pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => (status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The object in a request's body, which must come within a time.
pub async fn object(body: Body, time: Duration) -> Result<Map<String, Value>, Problem> {
    let bytes = match tokio::time::timeout(time, body::to_bytes(body, BODY)).await {
        Ok(Ok(bytes)) => bytes,
        // What to_bytes finds is a body that is too long, or a connection that ended, where nobody reads this.
        Ok(Err(_)) => {
            let text = format!("The body is not read: it may have {BODY} bytes. Send less, in one piece.");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        Err(_) => {
            let text = format!("The body did not come within {} s. Send it in one piece.", time.as_secs_f64());
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, text));
        }
    };
    let wrong = |why: String| Problem::new(StatusCode::BAD_REQUEST, why);
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(wrong("The body is no JSON object. Send one, such as {\"key\": \"value\"}.".into())),
        Err(error) => {
            Err(wrong(format!("The body is no JSON: {error}. Send an object, such as {{\"key\": \"value\"}}.")))
        }
    }
}
