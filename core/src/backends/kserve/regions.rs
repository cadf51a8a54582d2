// SPDX-License-Identifier: MPL-2.0
//! Memory of a GPU that a server on this machine has open, for the tensors of a request.
//!
//! It is freed only once the server no longer has it, for until then it may be written.

use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::Instant;

use super::address::ServerAddress;
use super::attempts::Attempt;
use super::client::{CallError, GrpcClient};
use super::kept::{KeptRegions, ServerRegion};
use super::messages::*;
use crate::cuda::driver::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Buffer;

/// CUDA shares memory in pieces of this size. In a smaller one the server would have other memory of this process, too.
const PIECE: usize = 2 << 20;

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

    pub fn address(&self) -> u64 {
        self.memory.address().expect("it is of a GPU")
    }
}

impl ServerRegion for CudaRegion {
    const METHODS: &'static str = "CudaSharedMemory";
    const KIND: &'static str = "the GPU's memory";

    fn name(&self) -> &str {
        &self.name
    }

    fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    fn left() -> &'static Mutex<Vec<(String, Self)>> {
        static LEFT: Mutex<Vec<(String, CudaRegion)>> = Mutex::new(Vec::new());
        &LEFT
    }
}

/// What one caller has in common with a server.
pub struct CudaRegions {
    context: Context,
    /// On the connection of this number.
    registered: Option<(u64, CudaRegion)>,
    /// What the server may still have.
    stale: KeptRegions<CudaRegion>,
}

impl CudaRegions {
    pub fn new(context: &Context) -> Self {
        CudaRegions { context: context.clone(), registered: None, stale: KeptRegions::default() }
    }

    /// The region for the next request.
    pub fn registered(&self) -> Option<&CudaRegion> {
        self.registered.as_ref().map(|(_, region)| region)
    }

    /// Bytes of the GPU's memory.
    pub fn bytes(&self) -> usize {
        self.registered().map_or(0, CudaRegion::bytes) + self.stale.bytes()
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
        if self.registered.as_ref().is_some_and(|(of, region)| *of == number && region.bytes() >= bytes) {
            return Ok(Ok(()));
        }
        self.forget();
        if let Some(count) = self.stale.give_back(client, deadline)? {
            return Ok(Err(kept(address, count)));
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
            byte_size: region.bytes() as u64,
        };
        match client.describe::<EmptyMessage>("CudaSharedMemoryRegister", &request, deadline) {
            Ok(_) => {
                self.registered = Some((number, region));
                Ok(Ok(()))
            }
            Err(CallError::Refused(_, why)) => {
                self.stale.push(region);
                self.stale.give_back(client, deadline)?;
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
        if let Some((_, region)) = self.registered.take() {
            self.stale.push(region);
        }
    }

    /// Frees all, at the end, but for what the server keeps.
    pub fn end(&mut self, client: &mut GrpcClient) {
        self.forget();
        self.stale.end(client);
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
