// SPDX-License-Identifier: MPL-2.0
//! Memory of a GPU that a server on this machine has open, for the tensors of a request.
//!
//! It is freed only once the server no longer has it, for until then it may be written: a request that had no answer may still be
//! worked on, by a server that is slow or whose connection was lost.

use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::address::ServerAddress;
use super::attempts::Attempt;
use super::client::{CallError, GrpcClient};
use super::messages::*;
use crate::backends::log::{Level, log};
use crate::cuda::driver::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Buffer;

/// CUDA shares memory in pieces of this size. In a smaller one the server would have other memory of this process, too.
const PIECE: usize = 2 << 20;
/// A server that keeps more than so many has a fault.
const MOST_KEPT: usize = 16;

/// Regions that a server did not give up before their owners ended, with its host and port. Whoever calls it next asks again.
static LEFT: Mutex<Vec<(String, CudaRegion)>> = Mutex::new(Vec::new());

/// A part of a GPU's memory, by the name that the server knows.
pub struct CudaRegion {
    name: String,
    memory: Buffer,
}

impl CudaRegion {
    fn new(context: &Context, bytes: usize) -> Result<Self> {
        let random = RandomState::new().hash_one(bytes);
        let name = format!("gst-trt-{}-{random:016x}", std::process::id());
        let memory = Buffer::device(context, bytes.max(1).next_multiple_of(PIECE))?;
        Ok(CudaRegion { name, memory })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn address(&self) -> u64 {
        self.memory.address().expect("it is of a GPU")
    }
}

/// What one caller has in common with a server.
pub struct CudaRegions {
    context: Context,
    /// On the connection of this number.
    registered: Option<(u64, CudaRegion)>,
    /// What the server may still have.
    stale: Vec<CudaRegion>,
}

impl CudaRegions {
    pub fn new(context: &Context) -> Self {
        CudaRegions { context: context.clone(), registered: None, stale: Vec::new() }
    }

    /// The region for the next request.
    pub fn registered(&self) -> Option<&CudaRegion> {
        self.registered.as_ref().map(|(_, region)| region)
    }

    /// Bytes of the GPU's memory.
    pub fn bytes(&self) -> usize {
        self.registered().into_iter().chain(&self.stale).map(|region| region.memory.bytes()).sum()
    }

    /// Makes and registers memory of at least so many bytes, unless there is some on this connection.
    pub fn register(
        &mut self,
        client: &mut GrpcClient,
        address: &ServerAddress,
        bytes: usize,
        deadline: Instant,
    ) -> Attempt<()> {
        let number = client.connect(deadline)?;
        if !client.is_local() {
            return Ok(Err(cannot_share(address, "the server is on another machine")));
        }
        if self.registered.as_ref().is_some_and(|(of, region)| *of == number && region.memory.bytes() >= bytes) {
            return Ok(Ok(()));
        }
        self.forget();
        self.stale.extend(take_left(&address.authority()));
        self.give_back(client, deadline)?;
        if self.stale.len() > MOST_KEPT {
            return Ok(Err(kept(address, self.stale.len())));
        }
        let made = CudaRegion::new(&self.context, bytes)
            .and_then(|region| Ok((self.context.ipc_handle(region.address())?, region)));
        let (handle, region) = match made {
            Ok(made) => made,
            Err(error) => return Ok(Err(error)),
        };
        let device = self.context.device();
        let request = CudaSharedMemoryRegisterRequest {
            name: region.name.clone(),
            raw_handle: handle.to_vec(),
            device_id: device.into(),
            byte_size: region.memory.bytes() as u64,
        };
        match client.describe::<EmptyMessage>("CudaSharedMemoryRegister", &request, deadline) {
            Ok(_) => {
                self.registered = Some((number, region));
                Ok(Ok(()))
            }
            Err(CallError::Refused(why)) => {
                self.stale.push(region);
                self.give_back(client, deadline)?;
                Ok(Err(cannot_share(address, format!("it refuses memory of GPU {device}, {why}"))))
            }
            Err(error) => {
                self.stale.push(region);
                Err(error)
            }
        }
    }

    /// The region is not used again.
    pub fn forget(&mut self) {
        self.stale.extend(self.registered.take().map(|(_, region)| region));
    }

    /// Frees what the server gives up.
    fn give_back(&mut self, client: &mut GrpcClient, deadline: Instant) -> std::result::Result<(), CallError> {
        let mut at = 0;
        while let Some(region) = self.stale.get(at) {
            if is_given_up(&region.name, client, deadline)? {
                self.stale.swap_remove(at);
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// Frees all, at the end. What a server does not give up is left for the next that calls it.
    pub fn end(&mut self, client: &mut GrpcClient, address: &ServerAddress) {
        const LIMIT: Duration = Duration::from_secs(1);
        self.forget();
        if self.stale.is_empty() {
            return;
        }
        let control = client.control().clone();
        let _running = control.begin(); // an interruption was of an earlier run
        let mut outcome = self.give_back(client, Instant::now() + LIMIT);
        if let Err(CallError::Lost(_)) = outcome {
            outcome = self.give_back(client, Instant::now() + LIMIT); // the connection had ended
        }
        if outcome.is_err() && client.has_ended(Instant::now() + LIMIT) {
            self.stale.clear();
        }
        if !self.stale.is_empty() {
            let bytes = self.bytes().div_ceil(1 << 20);
            log(
                Level::Warning,
                &format!("{address} has not given up {bytes} MiB of the GPU's memory, which stays taken"),
            );
            let left = self.stale.drain(..).map(|region| (address.authority(), region));
            LEFT.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
        }
    }
}

/// What was left for a server with that host and port.
fn take_left(authority: &str) -> Vec<CudaRegion> {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.extract_if(.., |(of, _)| of == authority).map(|(_, region)| region).collect()
}

/// Whether the server no longer has a region. One that it uses it may keep until the request that does so has ended, whatever it
/// answers; so it is asked whether it has.
fn is_given_up(name: &str, client: &mut GrpcClient, deadline: Instant) -> std::result::Result<bool, CallError> {
    let name = CudaRegionName { name: name.into() };
    match client.describe::<EmptyMessage>("CudaSharedMemoryUnregister", &name, deadline) {
        Ok(_) | Err(CallError::Refused(_)) => {}
        Err(error) => return Err(error),
    }
    match client.describe::<CudaSharedMemoryStatusResponse>("CudaSharedMemoryStatus", &name, deadline) {
        Ok(status) => Ok(!status.regions.contains_key(&name.name)),
        Err(CallError::Refused(_)) => Ok(true), // it knows none of that name
        Err(error) => Err(error),
    }
}

/// Why tensors cannot stay on the GPU.
#[track_caller]
pub fn cannot_share(address: &ServerAddress, why: impl Display) -> Error {
    Error::new(ErrorKind::Settings, format!("shared-memory=cuda cannot be with {address}")).cause(why).remedy(
        "It needs a server on this machine with that extension and the same GPU, in a container with --ipc=host and --pid=host; \
         or set shared-memory=auto",
    )
}

#[track_caller]
fn kept(address: &ServerAddress, count: usize) -> Error {
    Error::new(ErrorKind::Run, format!("{address} does not give up {count} parts of the GPU's memory"))
        .cause("requests of them had no answer, and it still has them")
        .remedy("Start the server again, and look into its log; or set shared-memory=auto")
}
