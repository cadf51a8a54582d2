// SPDX-License-Identifier: MPL-2.0
//! How a browser asks for a video: WHEP (draft-ietf-wish-whep). An offer is posted, and what ends the video is the address in the
//! answer. The answer has all candidates, so there is nothing to add later.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::ServerState;
use super::answer::{ApiError, body};
use super::entries::PathName;
use crate::serve::control::VideoControl;

/// What offers and answers are written in.
const SDP: &str = "application/sdp";
/// Of an offer. Browsers have some hundred for a video.
const MOST_LINES: usize = 1000;

/// The address of this machine to which a client has connected.
#[derive(Clone, Copy, Debug)]
pub struct LocalAddress(pub IpAddr);

impl ServerState {
    fn videos(&self) -> Result<Arc<dyn VideoControl>, ApiError> {
        self.videos.clone().ok_or_else(|| {
            let text =
                "There are no videos by WebRTC: [webrtc] is not in the configuration. Add it, or ask for live.mjpeg.";
            ApiError::new(StatusCode::NOT_FOUND, text)
        })
    }

    async fn offer(&self, name: String, local: Option<LocalAddress>, request: Request) -> Result<Response, ApiError> {
        let videos = self.videos()?;
        check_kind(request.headers())?;
        let offer = body(request, self.limits.body).await?;
        let offer = String::from_utf8(offer.into()).map_err(|_| {
            let text = "The offer cannot be read: it is no text in UTF-8. Send an SDP offer.";
            ApiError::new(StatusCode::BAD_REQUEST, text)
        })?;
        if offer.lines().count() > MOST_LINES {
            let text =
                format!("The offer is refused: it has more than {MOST_LINES} lines. Ask for one video, and no sound.");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        let local =
            local.map_or(Ipv4Addr::LOCALHOST.into(), |LocalAddress(address): LocalAddress| -> IpAddr { address });
        // Of a thousand lines it takes a tenth of a second.
        let accepted = self.in_background(move |_| Ok(videos.accept(&name, &offer, local))).await??;
        let headers =
            [(header::CONTENT_TYPE, SDP.to_string()), (header::LOCATION, format!("/whep/{}", accepted.session))];
        Ok((StatusCode::CREATED, headers, accepted.answer).into_response())
    }
}

fn check_kind(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    if kind.is_some_and(|kind| kind.eq_ignore_ascii_case(SDP)) {
        return Ok(());
    }
    let text = format!("The offer is refused: the body must be SDP. Send the header Content-Type: {SDP}.");
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
}

pub async fn source(
    State(context): State<Arc<ServerState>>,
    PathName(name): PathName,
    local: Option<Extension<LocalAddress>>,
    request: Request,
) -> Result<Response, ApiError> {
    context.find(&name)?;
    context.offer(name, local.map(|Extension(local)| local), request).await
}

pub async fn tiles(
    State(context): State<Arc<ServerState>>,
    PathName(name): PathName,
    local: Option<Extension<LocalAddress>>,
    request: Request,
) -> Result<Response, ApiError> {
    if context.find(&name).is_ok() {
        let text = format!("“{name}” is a source. Ask for /sources/NAME/whep.");
        return Err(ApiError::new(StatusCode::NOT_FOUND, text));
    }
    context.offer(name, local.map(|Extension(local)| local), request).await
}

pub async fn options(State(context): State<Arc<ServerState>>) -> Result<Response, ApiError> {
    context.videos()?;
    Ok((StatusCode::NO_CONTENT, [("accept-post", SDP), ("allow", "OPTIONS, POST")]).into_response())
}

pub async fn end(State(context): State<Arc<ServerState>>, PathName(session): PathName) -> Result<StatusCode, ApiError> {
    if context.videos()?.end(&session) {
        return Ok(StatusCode::OK);
    }
    let text = "There is no such video: it has ended. Ask for a new one at /sources/NAME/whep.";
    Err(ApiError::new(StatusCode::NOT_FOUND, text))
}
