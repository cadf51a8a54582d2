// SPDX-License-Identifier: MPL-2.0
//! Connections: each is a task on one thread, and ends when the client is too slow.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};

use super::answer::Hurry;
use super::whep::LocalAddress;
use super::{ServerState, routes};
use crate::serve::log::log_error;
use crate::serve::sockets::{hear_out, limit_stall};

/// Bytes of a request's first line and headers.
const HEAD: usize = 16 << 10;
/// When no connection can be accepted, for lack of file descriptors most likely.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers until `stopped`, or its sender is dropped.
pub async fn serve(listener: std::net::TcpListener, context: Arc<ServerState>, stopped: oneshot::Receiver<()>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return log_error("serve", &format!("HTTP is not served: {error}.")),
    };
    tokio::spawn(accept(listener, context));
    let _ = stopped.await;
}

async fn accept(listener: TcpListener, context: Arc<ServerState>) {
    let limits = context.limits;
    let http = |head| {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(head).max_header_size(HEAD).max_buf_size(4 * HEAD);
        http
    };
    let (patient, crowded) = (http(limits.head), http(limits.crowded));
    let places = Arc::new(Semaphore::new(limits.connections));
    let service = TowerToHyperService::new(routes::all(context));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let waiting = places.clone();
        let is_crowded = move || waiting.available_permits() < limits.connections / 2;
        let (http, stalled) = if is_crowded() { (&crowded, limits.crowded) } else { (&patient, limits.stalled) };
        limit_stall(&stream, stalled);
        let local = stream.local_addr().ok().map(|address| LocalAddress(address.ip()));
        let service = service.clone();
        let answer = service_fn(move |mut request: Request<Incoming>| {
            if let Some(local) = local {
                request.extensions_mut().insert(local);
            }
            if is_crowded() {
                request.extensions_mut().insert(Hurry(limits.crowded));
            }
            let (answer, is_crowded) = (service.call(request), is_crowded.clone());
            async move {
                let mut answer = answer.await?;
                // Who asks again and again would keep its place.
                if is_crowded() {
                    answer.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
                }
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        let connection = http.serve_connection(TokioIo::new(stream), answer);
        tokio::spawn(async move {
            // Clients that go away in the middle are no concern of ours. One may still send what is refused.
            if let Ok(ended) = connection.without_shutdown().await {
                hear_out(ended.io.into_inner()).await;
            }
            drop(place);
        });
    }
}
