// SPDX-License-Identifier: MPL-2.0
//! The status page. It has no data in it: its scripts ask for them.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::ServerState;

/// Nothing but the files here runs or is shown, in no frame of another site. Pictures become `blob:` addresses.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; \
                          base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What the page says where there are no videos.
const NO_VIDEOS: &str = "name=\"videos\" content=\"none\"";

pub fn routes() -> Router<Arc<ServerState>> {
    let files = [
        ("/status.js", "text/javascript; charset=utf-8", include_str!("page/status.js")),
        ("/pictures.js", "text/javascript; charset=utf-8", include_str!("page/pictures.js")),
        ("/video.js", "text/javascript; charset=utf-8", include_str!("page/video.js")),
        ("/status.css", "text/css; charset=utf-8", include_str!("page/status.css")),
        ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ];
    files.into_iter().fold(Router::new().route("/", get(index)), |router, (path, kind, text)| {
        router.route(path, get(async move || ([(header::CONTENT_TYPE, kind)], text)))
    })
}

/// With what the script cannot know before it asks, and would be refused.
async fn index(State(context): State<Arc<ServerState>>) -> Response {
    let mut text = include_str!("page/index.html").to_string();
    if context.videos.is_some() {
        text = text.replace(NO_VIDEOS, "name=\"videos\" content=\"webrtc\"");
    }
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}
