// SPDX-License-Identifier: MPL-2.0
//! The WebRTC side of a service: what was found, drawn, as video for browsers. They ask for it by HTTP, in the manner of WHEP, and
//! all packets come and go through one UDP port.
//!
//! This end is "ICE lite": it answers whoever proves to know the session, and sends nothing to addresses that an offer names.
//!
//! * `offer`: what a viewer wants, and what it is answered. `candidates`: where it can reach this machine. `viewer`: what is done for
//!   one; `packet`: what it is sent. `port`: one thread, on which each viewer is a task. `crypto`: what all that is encrypted with.

mod candidates;
mod crypto;
mod offer;
mod packet;
mod port;
#[cfg(test)]
mod tests;
mod viewer;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::SockRef;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use super::control::{AcceptedOffer, OfferRefused, OutputControl, VideoControl};
use crate::failure::Failure;
use offer::RtcFactory;
use port::Viewers;
use viewer::{Viewer, ViewerTask};

/// Where packets come and go.
#[derive(Clone, Debug, PartialEq)]
pub struct WebrtcSettings {
    pub listen: SocketAddr,
    /// What viewers are told in place of the addresses of this machine. Port 0 is the one that is listened on.
    pub addresses: Vec<SocketAddr>,
}

/// What one viewer can take from the others.
#[derive(Clone, Copy, Debug)]
struct WebrtcLimits {
    viewers: usize,
    /// From the answer to the first packet.
    connect: Duration,
    /// For the packets that say farewell.
    end: Duration,
    /// Bytes that wait in the system, for all.
    unsent: usize,
}

impl Default for WebrtcLimits {
    fn default() -> Self {
        WebrtcLimits { viewers: 64, connect: Duration::from_secs(15), end: Duration::from_millis(300), unsent: 2 << 20 }
    }
}

/// Serves viewers until it is dropped.
pub struct WebrtcServer {
    address: SocketAddr,
    addresses: Vec<SocketAddr>,
    service: Arc<dyn OutputControl>,
    factory: RtcFactory,
    limits: WebrtcLimits,
    viewers: Arc<Viewers>,
    socket: Arc<tokio::net::UdpSocket>,
    places: Arc<Semaphore>,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Takes the port.
pub fn listen(settings: &WebrtcSettings) -> Result<UdpSocket, Failure> {
    let socket = UdpSocket::bind(settings.listen).map_err(|error| refused(settings, error))?;
    socket.set_nonblocking(true).map_err(|error| refused(settings, error))?;
    Ok(socket)
}

fn refused(settings: &WebrtcSettings, error: impl std::fmt::Display) -> Failure {
    let remedy = "Choose another address with listen in [webrtc], or end the program that has it";
    format!("Cannot serve WebRTC on UDP {}: {error}. {remedy}.", settings.listen).into()
}

/// Serves in a thread of its own.
pub fn start(
    settings: &WebrtcSettings,
    socket: UdpSocket,
    service: Arc<dyn OutputControl>,
) -> Result<WebrtcServer, Failure> {
    start_within(WebrtcLimits::default(), settings, socket, service)
}

fn start_within(
    limits: WebrtcLimits,
    settings: &WebrtcSettings,
    socket: UdpSocket,
    service: Arc<dyn OutputControl>,
) -> Result<WebrtcServer, Failure> {
    let cannot = |error| refused(settings, error);
    let address = socket.local_addr().map_err(cannot)?;
    // A key frame is sent at once, to all.
    let _ = SockRef::from(&socket).set_send_buffer_size(limits.unsent);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(cannot)?;
    let socket = {
        let _entered = runtime.enter();
        Arc::new(tokio::net::UdpSocket::from_std(socket).map_err(cannot)?)
    };
    let factory = RtcFactory::new().ok_or_else(|| refused(settings, "the system gives no random numbers"))?;
    let (viewers, places) = (Arc::new(Viewers::default()), Arc::new(Semaphore::new(limits.viewers)));
    let (stop, stopped) = oneshot::channel();
    let handle = runtime.handle().clone();
    let work = {
        let (socket, viewers, places) = (socket.clone(), viewers.clone(), places.clone());
        move || {
            runtime.block_on(async {
                port::serve(socket, &viewers, stopped).await;
                // All have a place again once they are gone.
                viewers.end_all();
                let all = places.acquire_many(limits.viewers as u32);
                let _ = tokio::time::timeout(limits.end, all).await; // the others are cut off
            });
        }
    };
    let thread = thread::Builder::new().name("webrtc".into()).spawn(work).map_err(cannot)?;
    Ok(WebrtcServer {
        address,
        addresses: settings.addresses.clone(),
        service,
        factory,
        limits,
        viewers,
        socket,
        places,
        runtime: handle,
        stop: Some(stop),
        thread: Some(thread),
    })
}

impl VideoControl for WebrtcServer {
    fn accept(&self, name: &str, offer: &str, local: IpAddr) -> Result<AcceptedOffer, OfferRefused> {
        let output = self.service.output(name).ok_or_else(|| {
            let text = format!("There is no video “{name}”. GET /sources lists the sources.");
            OfferRefused::Unknown(text)
        })?;
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            let number = self.limits.viewers;
            let text =
                format!("The video is refused: {number} viewers have one already. Close one, or ask for live.mjpeg.");
            return Err(OfferRefused::Crowded(text));
        };
        let candidates = candidates::candidates(&self.addresses, self.address, local, candidates::route);
        let (session, answer) = self.factory.accept(offer, &candidates)?;
        let name = crypto::random_name().ok_or_else(|| {
            OfferRefused::Crowded("The video is refused: the system gives no random numbers. Try it again.".into())
        })?;
        let viewer = Arc::new(Viewer::new(session.rtc, candidates));
        self.viewers.add(&name, viewer.clone());
        let leave = self.viewers.clone().leave_at_end(&name);
        let task =
            ViewerTask::new(viewer, output, self.socket.clone(), self.limits, (session.mid, session.payload_type));
        self.runtime.spawn(async move {
            task.work().await;
            drop((leave, place));
        });
        Ok(AcceptedOffer { session: name, answer })
    }

    fn end(&self, session: &str) -> bool {
        let viewer = self.viewers.remove(session);
        viewer.inspect(|viewer| viewer.end()).is_some()
    }

    fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for WebrtcServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
