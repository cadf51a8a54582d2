// SPDX-License-Identifier: MPL-2.0
//! Calls of the driver that fail because a test wants them to. Of the calling thread only.

use std::cell::Cell;

use crate::error::{Error, ErrorKind, Result};

thread_local! {
    static NEXT: Cell<Option<(&'static str, u32)>> = const { Cell::new(None) };
    static SYNCHRONIZED: Cell<u32> = const { Cell::new(0) };
}

/// Lets a call of that name fail, after so many of them have gone well.
pub(crate) fn fail(call: &'static str, after: u32) {
    NEXT.set(Some((call, after)));
}

/// Whether this call fails.
pub(in crate::cuda) fn check(call: &str) -> Result<()> {
    match NEXT.get() {
        Some((name, 0)) if name == call => {
            NEXT.set(None);
            Err(Error::new(ErrorKind::Run, format!("The test lets {call} fail")))
        }
        Some((name, after)) if name == call => {
            NEXT.set(Some((name, after - 1)));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A stream was waited for because its work had no fence.
pub(super) fn synchronized() {
    SYNCHRONIZED.set(SYNCHRONIZED.get() + 1);
}

/// How often since this was last asked.
pub(crate) fn take_synchronized() -> u32 {
    SYNCHRONIZED.replace(0)
}
