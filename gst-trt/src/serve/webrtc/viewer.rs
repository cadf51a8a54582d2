// SPDX-License-Identifier: MPL-2.0
//! One viewer: what it sends, and the packets that it is sent. The video begins when it has connected: until then nothing is encoded
//! for it.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures_util::future::{Either, pending, select};
use str0m::media::{Mid, Pt};
use str0m::net::{Protocol, Receive, Transmit};
use str0m::rtp::RtpWrite;
use str0m::{Event, IceConnectionState, Input, Output as RtcOutput, Rtc};
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::sleep_until;

use super::WebrtcLimits;
use super::packet::RtpPart;
use crate::failure::contain;
use crate::serve::log::log_error;
use crate::serve::output::{Output, RtpUnit};

/// Bytes of a packet that str0m sends. Those of the output are shorter.
const LONGEST: usize = 1500;

/// The end of a connection, where its packets arrive.
pub struct Viewer {
    rtc: Mutex<Rtc>,
    /// What the viewer was told of this machine.
    candidates: Vec<SocketAddr>,
    changed: Notify,
    is_ending: AtomicBool,
}

impl Viewer {
    pub fn new(rtc: Rtc, candidates: Vec<SocketAddr>) -> Self {
        Viewer { rtc: Mutex::new(rtc), candidates, changed: Notify::new(), is_ending: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Rtc> {
        self.rtc.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is told farewell, and then gone.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Returns whether the datagram is of this viewer.
    pub fn take(&self, source: SocketAddr, datagram: &[u8]) -> bool {
        // The system does not say to which of its addresses it came. It is answered from there in any case.
        let same = self.candidates.iter().find(|address| address.is_ipv4() == source.is_ipv4());
        let Some(destination) = same.or(self.candidates.first()) else { return false };
        let mut rtc = self.lock();
        // All viewers have this thread: what a datagram finds wrong in the library ends its own viewer alone.
        let is_taken = contain(|| {
            let Ok(receive) = Receive::new(Protocol::Udp, source, *destination, datagram) else { return Ok(false) };
            let input = Input::Receive(Instant::now(), receive);
            let is_accepted = rtc.accepts(&input);
            if is_accepted {
                // What is wrong in a datagram is no concern of those before and after it: others could have sent it.
                let _ = rtc.handle_input(input);
            }
            Ok(is_accepted)
        });
        drop(rtc);
        if let Err(failure) = &is_taken {
            log_error("webrtc", &failure.to_string());
            self.is_ending.store(true, Ordering::Relaxed);
        }
        if matches!(is_taken, Ok(false)) {
            return false;
        }
        self.changed.notify_one();
        true
    }
}

/// What is done for it until it goes.
pub struct ViewerTask {
    viewer: Arc<Viewer>,
    output: Output,
    socket: Arc<UdpSocket>,
    limits: WebrtcLimits,
    /// The part of the session, and the payload type, that its video has.
    mid: Mid,
    payload_type: Pt,
    /// `None` before it has connected, and once there is nothing more.
    units: Option<Receiver<Arc<RtpUnit>>>,
    is_connected: bool,
    /// A decoder can begin, or go on, with a key frame only.
    waits_for_key: bool,
    /// Of the next packet. Packets that are left out leave no gap.
    sequence: u64,
}

enum ViewerEvent {
    Unit(Arc<RtpUnit>),
    /// Units were lost, as packets are sent too slowly.
    Missed,
    /// There is nothing more to watch.
    End,
    /// The viewer has sent something, or is to end.
    Changed,
    Timeout,
}

/// What str0m wants to be done.
#[derive(Default)]
struct Wishes {
    transmits: Vec<Transmit>,
    events: Vec<Event>,
    /// When it wants to be asked again; `None` once it has ended.
    next: Option<Instant>,
}

impl ViewerTask {
    pub fn new(
        viewer: Arc<Viewer>,
        output: Output,
        socket: Arc<UdpSocket>,
        limits: WebrtcLimits,
        (mid, payload_type): (Mid, Pt),
    ) -> Self {
        ViewerTask {
            viewer,
            output,
            socket,
            limits,
            mid,
            payload_type,
            units: None,
            is_connected: false,
            waits_for_key: true,
            sequence: 1,
        }
    }

    /// Serves it to its end.
    pub async fn work(mut self) {
        let mut until = Some(Instant::now() + self.limits.connect);
        let (mut is_over, mut is_closing) = (false, false);
        loop {
            let wishes = self.wishes();
            for transmit in &wishes.transmits {
                send(&self.socket, transmit.destination, &transmit.contents).await;
            }
            for event in wishes.events {
                is_over |= !self.follow(event);
            }
            let Some(next) = wishes.next else { return };
            if self.is_connected && !is_closing {
                until = None;
            }
            is_over |= self.viewer.is_ending.load(Ordering::Relaxed);
            if is_over && !is_closing {
                (is_closing, self.units) = (true, None);
                until = Some(Instant::now() + self.limits.end);
                if self.viewer.lock().close().is_err() {
                    return;
                }
                continue;
            }
            match self.event(until.map_or(next, |until| until.min(next))).await {
                ViewerEvent::Unit(unit) => self.write(&unit),
                ViewerEvent::Missed => {
                    self.waits_for_key = true;
                    self.output.ask_for_key_frame();
                }
                ViewerEvent::End => is_over = true,
                ViewerEvent::Changed => {}
                ViewerEvent::Timeout => {
                    let now = Instant::now();
                    if until.is_some_and(|until| until <= now) {
                        return;
                    }
                    let _ = self.viewer.lock().handle_input(Input::Timeout(now)); // an end is seen above
                }
            }
        }
    }

    fn wishes(&self) -> Wishes {
        let mut wishes = Wishes::default();
        let mut rtc = self.viewer.lock();
        while rtc.is_alive() {
            match rtc.poll_output() {
                Ok(RtcOutput::Transmit(transmit)) => wishes.transmits.push(transmit),
                Ok(RtcOutput::Event(event)) => wishes.events.push(event),
                Ok(RtcOutput::Timeout(next)) => {
                    wishes.next = Some(next).filter(|_| rtc.is_alive());
                    break;
                }
                Err(_) => break,
            }
        }
        wishes
    }

    /// Returns whether the viewer goes on.
    fn follow(&mut self, event: Event) -> bool {
        match event {
            Event::Connected if !self.is_connected => {
                self.is_connected = true;
                self.units = self.output.watch().ok();
                self.units.is_some()
            }
            Event::KeyframeRequest(_) => {
                self.output.ask_for_key_frame();
                true
            }
            // Nothing has come from it for some seconds.
            Event::IceConnectionStateChange(IceConnectionState::Disconnected) => false,
            _ => true,
        }
    }

    async fn event(&mut self, until: Instant) -> ViewerEvent {
        let unit = async {
            match &mut self.units {
                Some(units) => units.recv().await,
                None => pending().await,
            }
        };
        let (changed, timeout) = (pin!(self.viewer.changed.notified()), pin!(sleep_until(until.into())));
        match select(select(changed, timeout), pin!(unit)).await {
            Either::Left((Either::Left(_), _)) => ViewerEvent::Changed,
            Either::Left((Either::Right(_), _)) => ViewerEvent::Timeout,
            Either::Right((Ok(unit), _)) => ViewerEvent::Unit(unit),
            Either::Right((Err(RecvError::Lagged(_)), _)) => ViewerEvent::Missed,
            Either::Right((Err(RecvError::Closed), _)) => ViewerEvent::End,
        }
    }

    fn write(&mut self, unit: &RtpUnit) {
        self.waits_for_key &= !unit.is_key;
        if self.waits_for_key {
            return;
        }
        let now = Instant::now();
        let mut rtc = self.viewer.lock();
        let parts = unit.packets.iter().filter_map(|packet| RtpPart::of(packet));
        for part in parts.filter(|part| part.payload.len() <= LONGEST) {
            let mut direct = rtc.direct_api();
            let Some(stream) = direct.stream_tx_by_mid(self.mid, None) else { return };
            let packet = RtpWrite::new(self.payload_type, self.sequence.into(), part.timestamp, now, part.payload);
            stream.write_rtp(packet.marker(part.marker).nackable(true));
            self.sequence += 1;
        }
        let _ = rtc.handle_input(Input::Timeout(now)); // an end is seen by `work`
    }
}

/// Sends it. What the network does not take is lost, as it may be anywhere on the way.
async fn send(socket: &UdpSocket, destination: SocketAddr, datagram: &[u8]) {
    let is_six = socket.local_addr().is_ok_and(|address| address.is_ipv6());
    let address = match destination.ip() {
        IpAddr::V4(four) if is_six => four.to_ipv6_mapped().into(),
        address => address,
    };
    let _ = socket.send_to(datagram, (address, destination.port())).await;
}
