// SPDX-License-Identifier: MPL-2.0
//! Sessions of TLS are not resumed by the elements that read from the network.
//!
//! GIO's TLS with GnuTLS keeps the tickets of servers by address, port and name, for all connections of the process, and a
//! connection that resumes such a session has no certificate looked at. So a source that takes any certificate, or that has other
//! authorities, would open the way to an untrusted server for all others.

/// What GIO's TLS reads when its first connection is made.
const PRIORITY: &str = "G_TLS_GNUTLS_PRIORITY";
/// What it has where that is not set.
const USUAL: &str = "NORMAL:%COMPAT";
const NO_TICKETS: &str = "%NO_TICKETS";

/// Called before any thread has been started.
pub fn refuse_to_resume() {
    let wanted = without_tickets(std::env::var(PRIORITY).ok());
    // SAFETY: there is no other thread yet that could read the environment.
    unsafe { std::env::set_var(PRIORITY, wanted) };
}

fn without_tickets(priority: Option<String>) -> String {
    let priority = priority.filter(|text| !text.is_empty()).unwrap_or_else(|| USUAL.into());
    if priority.split(':').any(|part| part == NO_TICKETS) { priority } else { format!("{priority}:{NO_TICKETS}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_stays_and_tickets_are_refused_once() {
        for (set, wanted) in [
            (None, "NORMAL:%COMPAT:%NO_TICKETS"),
            (Some(""), "NORMAL:%COMPAT:%NO_TICKETS"),
            (Some("SECURE256"), "SECURE256:%NO_TICKETS"),
            (Some("NORMAL:%NO_TICKETS_TLS12"), "NORMAL:%NO_TICKETS_TLS12:%NO_TICKETS"),
            (Some("NORMAL:%NO_TICKETS:%COMPAT"), "NORMAL:%NO_TICKETS:%COMPAT"),
        ] {
            assert_eq!(without_tickets(set.map(String::from)), wanted);
        }
    }
}
