// SPDX-License-Identifier: MPL-2.0
//! Memory that a server may still have. A request without an answer may still be worked on, by a server that is slow or whose
//! connection was lost. So the server is asked until it has given the memory up: by who registered it, or by who comes next.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::client::{CallError, GrpcClient, NOT_FOUND, UNIMPLEMENTED};
use super::messages::*;
use crate::backends::log::{Level, log};

/// A server that keeps more than so many of one caller has a fault.
const MOST_OF_ONE: usize = 16;
/// So has one that keeps more of callers that have ended. Twice what `parallel-runs` may be.
const MOST_LEFT: usize = 128;

/// Memory that a server knows by a name.
pub trait ServerRegion: Sized + 'static {
    /// How the names of its methods in the protocol begin.
    const METHODS: &'static str;
    /// What it is, for people.
    const KIND: &'static str;

    fn name(&self) -> &str;

    fn bytes(&self) -> usize;

    /// Those that servers have not given up before their owners ended, with the server's host and port.
    fn left() -> &'static Mutex<Vec<(String, Self)>>;
}

/// What a server may still have of one caller.
pub struct KeptRegions<R>(Vec<R>);

impl<R> Default for KeptRegions<R> {
    fn default() -> Self {
        KeptRegions(Vec::new())
    }
}

impl<R: ServerRegion> KeptRegions<R> {
    pub fn push(&mut self, region: R) {
        self.0.push(region);
    }

    pub fn bytes(&self) -> usize {
        self.0.iter().map(R::bytes).sum()
    }

    /// Drops what the server gives up, also of callers that have ended. Returns how many it keeps where that is too many.
    pub fn give_back(&mut self, client: &mut GrpcClient, deadline: Instant) -> Result<Option<usize>, CallError> {
        drop_given_up(&mut self.0, client, deadline)?;
        let authority = client.address().authority();
        let mut left = take_left::<R>(&authority);
        let outcome = drop_given_up(&mut left, client, deadline);
        let (own, others) = (self.0.len(), left.len());
        leave(&authority, left);
        outcome.map(|()| (own > MOST_OF_ONE || others > MOST_LEFT).then_some(own + others))
    }

    /// Gives all back, at the end. What a server does not give up is left for the next that calls it.
    pub fn end(&mut self, client: &mut GrpcClient) {
        const LIMIT: Duration = Duration::from_secs(1);
        if self.0.is_empty() {
            return;
        }
        let (control, address) = (client.control().clone(), client.address().clone());
        let _running = control.begin(); // an interruption was of an earlier run
        let mut outcome = self.give_back(client, Instant::now() + LIMIT);
        if let Err(CallError::Lost(_)) = outcome {
            outcome = self.give_back(client, Instant::now() + LIMIT); // the connection had ended
        }
        if outcome.is_err() && client.has_ended(Instant::now() + LIMIT) {
            self.0.clear();
            drop(take_left::<R>(&address.authority()));
        }
        if !self.0.is_empty() {
            let (bytes, kind) = (self.bytes().div_ceil(1 << 20), R::KIND);
            log(Level::Warning, &format!("{address} has not given up {bytes} MiB of {kind}, which stays taken"));
            leave(&address.authority(), self.0.drain(..));
        }
    }
}

/// What was left for a server with that host and port.
fn take_left<R: ServerRegion>(authority: &str) -> Vec<R> {
    let mut left = R::left().lock().unwrap_or_else(PoisonError::into_inner);
    left.extract_if(.., |(of, _)| of == authority).map(|(_, region)| region).collect()
}

fn leave<R: ServerRegion>(authority: &str, regions: impl IntoIterator<Item = R>) {
    let mut left = R::left().lock().unwrap_or_else(PoisonError::into_inner);
    left.extend(regions.into_iter().map(|region| (authority.to_string(), region)));
}

/// After an error, those that were not asked about stay.
fn drop_given_up<R: ServerRegion>(
    regions: &mut Vec<R>,
    client: &mut GrpcClient,
    deadline: Instant,
) -> Result<(), CallError> {
    let mut at = 0;
    while let Some(region) = regions.get(at) {
        if is_given_up(region, client, deadline)? {
            regions.swap_remove(at);
        } else {
            at += 1;
        }
    }
    Ok(())
}

/// Whether the server no longer has a region. One that it uses it may keep until the request that does so has ended, whatever it
/// answers; so it is asked whether it has.
fn is_given_up<R: ServerRegion>(region: &R, client: &mut GrpcClient, deadline: Instant) -> Result<bool, CallError> {
    let name = RegionName { name: region.name().into() };
    let method = |what: &str| format!("{}{what}", R::METHODS);
    let says_so = match client.describe::<EmptyMessage>(&method("Unregister"), &name, deadline) {
        Ok(_) | Err(CallError::Refused(NOT_FOUND, _)) => true,
        Err(CallError::Refused(..)) => false,
        Err(error) => return Err(error),
    };
    match client.describe::<SharedMemoryStatusResponse>(&method("Status"), &name, deadline) {
        Ok(status) => Ok(!status.regions.contains_key(&name.name)),
        Err(CallError::Refused(NOT_FOUND, _)) => Ok(true),
        Err(CallError::Refused(UNIMPLEMENTED, _)) => Ok(says_so),
        Err(CallError::Refused(..)) => Ok(false), // it does not say
        Err(error) => Err(error),
    }
}
