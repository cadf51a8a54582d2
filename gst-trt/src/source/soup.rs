// SPDX-License-Identifier: MPL-2.0
//! What keeps a fault of libsoup from ending the process.
//!
//! A request that is cancelled when its answer has come, and souphttpsrc has not taken it yet, is finished first and then the
//! answer's stream is closed, which libsoup before 3.7.1 does by way of a null pointer: its issue 418. Each stop of a source over
//! HTTP may meet that moment. So the stream of a request that is finished is not closed: nothing is left of it to close.

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Once, OnceLock};

use gst::glib::{ffi, gobject_ffi};
use libloading::os::unix::{Library, RTLD_NOW};

const LIBRARY: &str = "libsoup-3.0.so.0";
/// The first version that looks at the pointer.
const MENDED: (c_uint, c_uint, c_uint) = (3, 7, 1);
/// Only what is loaded already.
const RTLD_NOLOAD: i32 = libc::RTLD_NOLOAD;

type CloseFn = unsafe extern "C" fn(
    *mut gio_sys::GInputStream,
    *mut gio_sys::GCancellable,
    *mut *mut ffi::GError,
) -> ffi::gboolean;

/// What closes a stream in libsoup.
static CLOSE: OnceLock<CloseFn> = OnceLock::new();

/// Once there is a souphttpsrc, which has loaded libsoup. Of libsoup 2 there is nothing to do.
pub fn guard_answers() {
    static GUARD: Once = Once::new();
    GUARD.call_once(|| {
        // SAFETY: nothing is loaded that is not there.
        let Ok(library) = (unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_NOLOAD) }) else { return };
        // SAFETY: functions of libsoup's interface with these signatures.
        unsafe {
            let number = |name: &[u8]| library.get::<extern "C" fn() -> c_uint>(name).map_or(0, |number| number());
            let version = [c"soup_get_major_version", c"soup_get_minor_version", c"soup_get_micro_version"]
                .map(|name| number(name.to_bytes_with_nul()));
            if let Ok(message) = library.get::<extern "C" fn() -> ffi::GType>(b"soup_message_get_type\0")
                && version < <[c_uint; 3]>::from(MENDED)
            {
                hear_of_messages(message());
            }
        }
        std::mem::forget(library); // its functions are called from now on
    });
}

/// # Safety
/// It is the type of libsoup's messages.
unsafe fn hear_of_messages(message: ffi::GType) {
    // SAFETY: the class stays, as nobody gives its reference back, and the hooks are functions of the program.
    unsafe {
        gobject_ffi::g_type_class_ref(message);
        let hooks: [(_, gobject_ffi::GSignalEmissionHook); 2] =
            [(c"starting", Some(has_started)), (c"finished", Some(has_finished))];
        for (name, hook) in hooks {
            let signal = gobject_ffi::g_signal_lookup(name.as_ptr(), message);
            gobject_ffi::g_signal_add_emission_hook(signal, 0, hook, ptr::null_mut(), None);
        }
    }
}

/// What is set on a message that is finished.
fn mark() -> ffi::GQuark {
    static MARK: OnceLock<ffi::GQuark> = OnceLock::new();
    // SAFETY: a text that stays.
    *MARK.get_or_init(|| unsafe { ffi::g_quark_from_static_string(c"gst-trt-finished".as_ptr()) })
}

/// A message may be sent again.
unsafe extern "C" fn has_started(
    _: *mut gobject_ffi::GSignalInvocationHint,
    _: c_uint,
    values: *const gobject_ffi::GValue,
    _: *mut c_void,
) -> ffi::gboolean {
    // SAFETY: the first value of a signal is its object.
    unsafe { gobject_ffi::g_object_set_qdata(gobject_ffi::g_value_get_object(values), mark(), ptr::null_mut()) };
    ffi::GTRUE // the hook stays
}

unsafe extern "C" fn has_finished(
    _: *mut gobject_ffi::GSignalInvocationHint,
    _: c_uint,
    values: *const gobject_ffi::GValue,
    _: *mut c_void,
) -> ffi::gboolean {
    // SAFETY: as above. What the mark points to is not read.
    unsafe {
        guard_streams();
        gobject_ffi::g_object_set_qdata(gobject_ffi::g_value_get_object(values), mark(), ptr::dangling_mut());
    }
    ffi::GTRUE
}

/// The class of the streams is there with the first of them.
fn guard_streams() {
    if CLOSE.get().is_some() {
        return;
    }
    // SAFETY: the class is one of GIO's streams and stays, as nobody gives its reference back. The place of a function in it is
    // written as a whole, by one thread.
    unsafe {
        let stream = gobject_ffi::g_type_from_name(c"SoupClientInputStream".as_ptr());
        if stream == gobject_ffi::G_TYPE_INVALID {
            return;
        }
        let class = gobject_ffi::g_type_class_ref(stream).cast::<gio_sys::GInputStreamClass>();
        let Some(close) = (*class).close_fn else { return };
        CLOSE.get_or_init(|| {
            let place = (&raw mut (*class).close_fn).cast::<*mut c_void>();
            AtomicPtr::from_ptr(place).store(close_unless_finished as *mut c_void, Ordering::Release);
            close
        });
    }
}

unsafe extern "C" fn close_unless_finished(
    stream: *mut gio_sys::GInputStream,
    cancellable: *mut gio_sys::GCancellable,
    error: *mut *mut ffi::GError,
) -> ffi::gboolean {
    // SAFETY: libsoup's streams have their message as a property, and the function is that of their class.
    unsafe {
        let mut message: *mut gobject_ffi::GObject = ptr::null_mut();
        gobject_ffi::g_object_get(stream.cast(), c"message".as_ptr(), &raw mut message, ptr::null::<c_void>());
        let is_finished = !message.is_null() && !gobject_ffi::g_object_get_qdata(message, mark()).is_null();
        if !message.is_null() {
            gobject_ffi::g_object_unref(message);
        }
        match CLOSE.get() {
            Some(close) if !is_finished => close(stream, cancellable, error),
            _ => ffi::GTRUE,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    type New = unsafe extern "C" fn() -> *mut c_void;
    type NewMessage = unsafe extern "C" fn(*const i8, *const i8) -> *mut c_void;
    type Send = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut c_void) -> *mut gio_sys::GInputStream;

    #[test]
    fn a_stream_that_is_finished_is_not_closed() {
        gst::init().unwrap();
        let _source = gst::ElementFactory::make("souphttpsrc").build().unwrap();
        guard_answers();
        // SAFETY: as above.
        let Ok(library) = (unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_NOLOAD) }) else { return };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = CString::new(format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let server = thread::spawn(move || {
            for connection in listener.incoming().take(2) {
                let mut connection = connection.unwrap();
                let lines = BufReader::new(connection.try_clone().unwrap()).lines();
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
                connection.write_all(answer).unwrap();
            }
        });
        // SAFETY: functions of libsoup with these signatures, and objects that live until the end.
        unsafe {
            let session = library.get::<New>(b"soup_session_new\0").unwrap()();
            let send = library.get::<Send>(b"soup_session_send\0").unwrap();
            for _ in 0..2 {
                let message = library.get::<NewMessage>(b"soup_message_new\0").unwrap();
                let message = message(c"GET".as_ptr(), address.as_ptr());
                let stream = send(session, message, ptr::null_mut(), ptr::null_mut());
                let mut text = [0; 8];
                let read = |text: &mut [u8]| {
                    gio_sys::g_input_stream_read(
                        stream,
                        text.as_mut_ptr().cast(),
                        text.len(),
                        ptr::null_mut(),
                        ptr::null_mut(),
                    )
                };
                assert_eq!((read(&mut text), &text[..3]), (3, &b"abc"[..]));
                assert_eq!(gio_sys::g_input_stream_close(stream, ptr::null_mut(), ptr::null_mut()), ffi::GTRUE);
                // Once more: libsoup before 3.7.1 would end the process here.
                let class = (*stream.cast::<gobject_ffi::GTypeInstance>()).g_class;
                let close = (*class.cast::<gio_sys::GInputStreamClass>()).close_fn.unwrap();
                assert_eq!(close(stream, ptr::null_mut(), ptr::null_mut()), ffi::GTRUE);
                gobject_ffi::g_object_unref(stream.cast());
                gobject_ffi::g_object_unref(message.cast());
            }
        }
        server.join().unwrap();
    }
}
