// SPDX-License-Identifier: MPL-2.0
//! Pictures of a source: the next one, and all of them as they come.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::ServerState;
use super::answer::ApiError;
use super::entries::PathName;
use crate::serve::control::State as SourceState;

/// Between the pictures of a live view.
const BOUNDARY: &str = "gst-trt-frame";

/// The next picture, `None` once the source is removed. What came while the last one was sent is skipped, but for the
/// newest.
async fn next(frames: &mut watch::Receiver<Option<Bytes>>) -> Option<Bytes> {
    loop {
        frames.changed().await.ok()?;
        if let Some(picture) = frames.borrow_and_update().clone() {
            return Some(picture);
        }
    }
}

pub async fn snapshot(State(context): State<Arc<ServerState>>, PathName(name): PathName) -> Result<Response, ApiError> {
    let Ok(_place) = context.watchers.clone().try_acquire_owned() else {
        let number = context.limits.watchers;
        let text = format!("The picture is refused: {number} views and pictures are being sent. Close one.");
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text));
    };
    let mut frames = context.service.watch(&name)?;
    let why = match context.find(&name)?.state {
        SourceState::Ended => Some(
            "the file was read to its end. Remove the source, and add it again; with loop = true it begins again by itself",
        ),
        SourceState::Resting => Some("the source rests. Wait for its hours, or change its schedule"),
        _ => None,
    };
    if let Some(why) = why {
        return Err(ApiError::new(StatusCode::CONFLICT, format!("There is no picture of “{name}”: {why}.")));
    }
    // One from before the request may be old.
    frames.mark_unchanged();
    match tokio::time::timeout(context.limits.frame, next(&mut frames)).await {
        Ok(Some(picture)) => Ok(([(header::CONTENT_TYPE, "image/jpeg")], picture).into_response()),
        Ok(None) => {
            let text = format!("There is no picture of “{name}”: the source was removed. GET /sources lists them.");
            Err(ApiError::new(StatusCode::NOT_FOUND, text))
        }
        Err(_) => {
            let time = context.limits.frame.as_secs_f64();
            let text =
                format!("There is no picture of “{name}”: no frame came within {time} s. GET /sources/NAME tells why.");
            Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, text))
        }
    }
}

/// A live view, whose frames go to the client as fast as it takes them. Dropped with the connection.
struct View {
    frames: watch::Receiver<Option<Bytes>>,
    _place: OwnedSemaphorePermit,
    is_begun: bool,
}

impl View {
    /// Each part ends with the boundary of the next one: browsers show a picture when they have seen it.
    async fn part(mut self) -> Option<(Result<Bytes, std::convert::Infallible>, Self)> {
        let picture = next(&mut self.frames).await?;
        let begin = if self.is_begun { String::new() } else { format!("--{BOUNDARY}\r\n") };
        let head = format!("{begin}Content-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n", picture.len());
        let tail = format!("\r\n--{BOUNDARY}\r\n");
        self.is_begun = true;
        Some((Ok([head.as_bytes(), &picture, tail.as_bytes()].concat().into()), self))
    }
}

pub async fn live(State(context): State<Arc<ServerState>>, PathName(name): PathName) -> Result<Response, ApiError> {
    let Ok(_place) = context.watchers.clone().try_acquire_owned() else {
        let number = context.limits.watchers;
        let text = format!(
            "The live view is refused: there are {number} of them already. Close one, or ask for snapshot.jpg."
        );
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text));
    };
    let frames = context.service.watch(&name)?;
    let view = View { frames, _place, is_begun: false };
    let parts = Body::from_stream(stream::unfold(view, View::part));
    let kind = format!("multipart/x-mixed-replace; boundary={BOUNDARY}");
    Ok(([(header::CONTENT_TYPE, kind)], parts).into_response())
}
