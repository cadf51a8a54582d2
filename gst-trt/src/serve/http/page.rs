// SPDX-License-Identifier: MPL-2.0
//! The status page. It has no data in it: its script asks for them.

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::routing::get;

use super::ServerState;

/// Nothing but the files here runs or is shown, in no frame of another site. Pictures become `blob:` addresses.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; \
                          base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub fn routes() -> Router<Arc<ServerState>> {
    let files = [
        ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
        ("/status.js", "text/javascript; charset=utf-8", include_str!("page/status.js")),
        ("/pictures.js", "text/javascript; charset=utf-8", include_str!("page/pictures.js")),
        ("/status.css", "text/css; charset=utf-8", include_str!("page/status.css")),
        ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ];
    files.into_iter().fold(Router::new(), |router, (path, kind, text)| {
        router.route(path, get(async move || ([(header::CONTENT_TYPE, kind)], text)))
    })
}
