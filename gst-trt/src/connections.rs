// SPDX-License-Identifier: MPL-2.0
//! The connections of a pipeline to RTSP cameras, so that they can be looked at and cut.
//!
//! `gst_rtsp_connection_receive_usec` reads a message byte by byte, and cannot be cancelled within one. A camera whose header has
//! no end holds rtspsrc up there for as long as it sends, and takes a core of the machine. Nothing of rtspsrc leads to its socket.
//! GIO tells of each connection that is made, in the thread that makes it; just before, that thread has said with a progress
//! message that rtspsrc connects. Connections of HTTP are made so, too, and none may lead where the user has not led it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use gst::glib;
use gst::glib::gobject_ffi;
use gst::glib::translate::ToGlibPtr;
use gst::prelude::*;

use crate::local;
use crate::source::{VideoOffer, video_offer};

/// More than any camera answers until it is asked for a stream.
const MOST_ANSWERED: u64 = 256 << 10;
/// More connections than rtspsrc needs until a stream is set up, also where the camera leads to another one and wants a password.
const MOST_CONNECTED: u32 = 16;
/// More requests for streams than rtspsrc sends until it has those that are wanted, by all ways that it knows.
const MOST_ASKED: u32 = 64;

/// Why rtspsrc never comes to an end with a camera. It does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CameraFault {
    /// It has answered more than any does, and was not asked for a stream yet.
    Flood,
    /// It answers with an address, which is asked then, and so on.
    Redirects,
    /// It has none among its streams, so that rtspsrc waits for what it sends of others.
    NoVideo,
    /// It does not say how its video is asked for, so that rtspsrc waits for its sound.
    NoAddress,
    /// It has a video of that format, which no element reads.
    Unreadable(String),
    /// It does not say by which way it sends, and is asked again.
    NoTransport,
}

impl CameraFault {
    /// The end of a sentence.
    pub fn text(&self) -> Cow<'static, str> {
        let text = match self {
            CameraFault::Flood => "its answer has no end",
            CameraFault::Redirects => "it answers with another address again and again (302)",
            CameraFault::NoVideo => "there is no video in it",
            CameraFault::NoAddress => "its description (SDP) has no address of its video",
            CameraFault::NoTransport => "it does not answer how it sends its streams (SETUP)",
            CameraFault::Unreadable(format) => {
                return format!("GStreamer has no decoder for {format} here: install its plugin").into();
            }
        };
        text.into()
    }
}

#[derive(Clone, Default)]
pub struct Connections(Arc<Mutex<OpenSockets>>);

#[derive(Default)]
struct OpenSockets {
    sockets: Vec<RtspSocket>,
    /// How many were begun.
    connected: u32,
    /// Whether a stream was set up. Its video follows, which has no end.
    is_set_up: bool,
    /// The streams that were asked for since the last connection, and how often that was done.
    asked: BTreeSet<u32>,
    requests: u32,
    /// What is wrong with its description, once all streams are set up.
    described: Option<CameraFault>,
    is_cut: bool,
}

/// A GSocket, which its stream closes.
struct RtspSocket(glib::WeakRef<glib::Object>);

// SAFETY: references of GObject may be made and dropped in any thread, and of the socket its number alone is read.
unsafe impl Send for RtspSocket {}

thread_local! {
    /// Whose rtspsrc connects in this thread.
    static CONNECTING: RefCell<Weak<Mutex<OpenSockets>>> = const { RefCell::new(Weak::new()) };
}

impl Connections {
    /// Those that the elements of that pipeline will make.
    pub fn of(pipeline: &gst::Pipeline) -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(hear_of_connections);
        let connections = Connections::default();
        let bus = pipeline.bus().expect("a pipeline has a bus");
        bus.enable_sync_message_emission();
        let opened = Arc::downgrade(&connections.0);
        bus.connect_sync_message(Some("progress"), move |_, message| {
            if let Some(opened) = opened.upgrade() {
                Connections(opened).hear(message);
            }
        });
        connections
    }

    /// A message of the pipeline, in the thread that posts it. A handler that drops messages passes them on to here.
    pub fn hear(&self, message: &gst::Message) {
        let gst::MessageView::Progress(progress) = message.view() else { return };
        let Some((kind, code, text)) = content(progress) else { return };
        match (kind, code) {
            (gst::ProgressType::Continue, "connect") => {
                let mut opened = lock(&self.0);
                opened.connected += 1;
                opened.forget_requests();
                drop(opened);
                CONNECTING.set(Arc::downgrade(&self.0));
            }
            (gst::ProgressType::Continue, "request") => lock(&self.0).ask(text),
            (gst::ProgressType::Complete, "open") => {
                let offer = message.src().and_then(video_offer);
                lock(&self.0).describe(offer);
                CONNECTING.set(Weak::new());
            }
            _ => CONNECTING.set(Weak::new()),
        }
    }

    /// Why a camera will never send a video, if that is known.
    pub fn fault(&self) -> Option<CameraFault> {
        let opened = lock(&self.0);
        if let Some(fault) = &opened.described {
            return Some(fault.clone());
        }
        if opened.requests > MOST_ASKED {
            return Some(CameraFault::NoTransport);
        }
        if opened.is_set_up {
            return None;
        }
        let is_flooded = || opened.sockets.iter().any(|socket| socket.received() > MOST_ANSWERED);
        match opened.connected > MOST_CONNECTED {
            true => Some(CameraFault::Redirects),
            false => is_flooded().then_some(CameraFault::Flood),
        }
    }

    /// Cuts all, and those that are made from now on. Whoever reads from one meets an error at once.
    pub fn cut(&self) {
        let mut opened = lock(&self.0);
        opened.is_cut = true;
        opened.sockets.iter().for_each(RtspSocket::cut);
    }
}

/// The kind, the code and the text of a progress message. [`gst::message::Progress::get`] would copy its texts and free none.
fn content(message: &gst::message::Progress) -> Option<(gst::ProgressType, &str, &str)> {
    let structure = message.structure()?;
    Some((structure.get("type").ok()?, structure.get("code").ok()?, structure.get("text").ok()?))
}

fn lock(opened: &Mutex<OpenSockets>) -> MutexGuard<'_, OpenSockets> {
    opened.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpenSockets {
    /// A request is sent: for a stream, or to play.
    fn ask(&mut self, text: &str) {
        self.is_set_up = true;
        if let Some(number) = text.strip_prefix("SETUP stream ").and_then(|number| number.parse().ok()) {
            self.requests += 1;
            // So few are wanted.
            if self.asked.len() < MOST_ASKED as usize {
                self.asked.insert(number);
            }
        }
    }

    fn forget_requests(&mut self) {
        self.asked.clear();
        self.requests = 0;
    }

    /// The camera has described its streams, and those that are wanted are set up.
    fn describe(&mut self, offer: Option<VideoOffer>) {
        self.described = match offer {
            Some(VideoOffer::Nothing) => Some(CameraFault::NoVideo),
            Some(VideoOffer::Unreadable(format)) => Some(CameraFault::Unreadable(format)),
            // Where others were asked for: their requests may have other words in a later GStreamer.
            Some(VideoOffer::Stream(number)) if !self.asked.is_empty() && !self.asked.contains(&number) => {
                Some(CameraFault::NoAddress)
            }
            _ => None,
        };
        self.forget_requests();
    }

    fn add(&mut self, socket: RtspSocket) {
        if self.is_cut {
            socket.cut();
        }
        self.sockets.retain(|socket| socket.0.upgrade().is_some());
        self.sockets.push(socket);
    }
}

impl RtspSocket {
    /// Does something with its number, while it is not closed.
    fn with(&self, work: impl FnOnce(c_int)) {
        let Some(socket) = self.0.upgrade() else { return };
        // SAFETY: only sockets are put here.
        let number = unsafe { gio_sys::g_socket_get_fd(socket.as_ptr().cast()) };
        if number >= 0 {
            work(number);
        }
    }

    /// The bytes that have come, as the kernel counts them.
    fn received(&self) -> u64 {
        let mut bytes = 0;
        self.with(|number| {
            // SAFETY: it is made of numbers.
            let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
            let mut size = size_of_val(&info) as libc::socklen_t;
            // SAFETY: no more is written than that size.
            let asked = unsafe {
                libc::getsockopt(number, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut size)
            };
            if asked == 0 {
                bytes = info.tcpi_bytes_received;
            }
        });
        bytes
    }

    /// Drops also what has come and was not read: megabytes, which take seconds byte by byte.
    fn cut(&self) {
        self.with(|number| {
            let none = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
            // SAFETY: an address of that size, which ends a connection of TCP.
            unsafe {
                libc::connect(number, &none, size_of_val(&none) as libc::socklen_t);
                libc::shutdown(number, libc::SHUT_RDWR);
            }
        });
    }
}

/// From now on, each connection that GIO makes is noted with those whose rtspsrc connects in that thread.
fn hear_of_connections() {
    // SAFETY: the class stays, as nobody gives its reference back, and the hook is a function of the program.
    unsafe {
        let client = gio_sys::g_socket_client_get_type();
        gobject_ffi::g_type_class_ref(client);
        let event = gobject_ffi::g_signal_lookup(c"event".as_ptr(), client);
        gobject_ffi::g_signal_add_emission_hook(event, 0, Some(note), std::ptr::null_mut(), None);
    }
}

/// `GSocketClient::event`, whose values are the client, what happens, where it connects to, and the connection.
unsafe extern "C" fn note(
    _: *mut gobject_ffi::GSignalInvocationHint,
    count: c_uint,
    values: *const gobject_ffi::GValue,
    _: *mut c_void,
) -> glib::ffi::gboolean {
    // SAFETY: so many values, which live during the call.
    let values = unsafe { std::slice::from_raw_parts(values.cast::<glib::Value>(), count as usize) };
    // SAFETY: the value of an event is an enumeration.
    let event = unsafe { gobject_ffi::g_value_get_enum(values[1].to_glib_none().0) };
    if event == gio_sys::G_SOCKET_CLIENT_CONNECTED
        && let Ok(connection) = values[3].get::<glib::Object>()
        && connection.type_().is_a(connection_type())
    {
        // SAFETY: it is such a connection, whose socket lives as long as it.
        let socket: glib::Object = unsafe {
            let socket = gio_sys::g_socket_connection_get_socket(connection.as_ptr().cast());
            glib::translate::from_glib_none(socket.cast::<gobject_ffi::GObject>())
        };
        let socket = RtspSocket(socket.downgrade());
        if leads_here(&connection, &values[2]) {
            socket.cut(); // nothing was asked yet
        } else if let Some(opened) = CONNECTING.with_borrow(Weak::upgrade) {
            lock(&opened).add(socket);
        }
    }
    glib::ffi::GTRUE // it stays
}

/// Whether it is a connection to this machine, or on the link that it is on, which the user has not named: something of the
/// network has led to it. Whoever is to reach all by a proxy reaches that first.
fn leads_here(connection: &glib::Object, target: &glib::Value) -> bool {
    const PROXIES: [&str; 6] = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
    let Ok(target) = target.get::<glib::Object>() else { return false };
    // SAFETY: types can be asked for at any time. It is such a connection, and the address is ours.
    let (inet, network, address) = unsafe {
        let address = gio_sys::g_socket_connection_get_remote_address(connection.as_ptr().cast(), std::ptr::null_mut());
        let address: Option<glib::Object> = glib::translate::from_glib_full(address.cast::<gobject_ffi::GObject>());
        let inet: glib::Type = glib::translate::from_glib(gio_sys::g_inet_socket_address_get_type());
        let network: glib::Type = glib::translate::from_glib(gio_sys::g_network_address_get_type());
        (inet, network, address)
    };
    let Some(address) = address.filter(|address| address.type_().is_a(inet) && target.type_().is_a(network)) else {
        return false;
    };
    // SAFETY: both are of these types, and what is read lives as long as they do.
    let (is_near, name, port) = unsafe {
        let ip = gio_sys::g_inet_socket_address_get_address(address.as_ptr().cast());
        let is_link = gio_sys::g_inet_address_get_is_link_local(ip) != 0;
        let name = gio_sys::g_network_address_get_hostname(target.as_ptr().cast());
        let port = gio_sys::g_network_address_get_port(target.as_ptr().cast());
        (is_link || gio_sys::g_inet_address_get_is_loopback(ip) != 0, CStr::from_ptr(name).to_string_lossy(), port)
    };
    is_near && !local::is_named(&name, port) && !PROXIES.iter().any(|name| std::env::var_os(name).is_some())
}

fn connection_type() -> glib::Type {
    // SAFETY: types can be asked for at any time.
    unsafe { glib::translate::from_glib(gio_sys::g_socket_connection_get_type()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(kind: gst::ProgressType, code: &str, text: &str) -> gst::Message {
        gst::message::Progress::builder(kind, code, text).build()
    }

    #[test]
    fn a_camera_that_is_asked_again_and_again_is_known() {
        gst::init().unwrap();
        let connections = Connections::default();
        let ask = |times: u32| {
            (0..times)
                .for_each(|_| connections.hear(&progress(gst::ProgressType::Continue, "request", "SETUP stream 0")));
            connections.fault()
        };
        assert_eq!(ask(MOST_ASKED), None);
        connections.hear(&progress(gst::ProgressType::Continue, "connect", "Connecting"));
        assert_eq!(ask(MOST_ASKED), None, "by another connection");
        connections.hear(&progress(gst::ProgressType::Complete, "open", "Opened Stream"));
        assert_eq!(ask(MOST_ASKED), None, "it has answered");
        assert_eq!(ask(1), Some(CameraFault::NoTransport));
    }

    #[test]
    fn a_video_that_is_never_asked_for_is_known() {
        for (asked, offer, fault) in [
            (&[0, 1][..], VideoOffer::Stream(0), None),
            (&[1], VideoOffer::Stream(0), Some(CameraFault::NoAddress)),
            (&[], VideoOffer::Stream(0), None),
            (&[1], VideoOffer::Nothing, Some(CameraFault::NoVideo)),
            (&[0], VideoOffer::Unreadable("ODD".into()), Some(CameraFault::Unreadable("ODD".into()))),
        ] {
            let mut opened = OpenSockets::default();
            asked.iter().for_each(|number| opened.ask(&format!("SETUP stream {number}")));
            opened.ask("Sending PLAY request");
            opened.describe(Some(offer.clone()));
            assert_eq!(opened.described, fault, "{asked:?} {offer:?}");
        }
    }
}
