// SPDX-License-Identifier: MPL-2.0
//! A model on a server as a network: tensors in the host's memory out, tensors back.

use std::sync::Arc;
use std::time::Instant;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::SharedMemoryUse;
use super::answer::InferAnswer;
use super::attempts::{Attempt, Caller, until_answered};
use super::client::{CallError, GrpcClient, PREFIX};
use super::kept::KeptRegions;
use super::layout::{Layout, TensorPlace};
use super::marks::HostMarks;
use super::messages::*;
use super::remote::RemoteModel;
use super::shared_memory::{ForgottenRegion, SharedRegion};
use crate::backends::Interrupter;
use crate::backends::host::HostNet;
use crate::backends::log::{Level, log};
use crate::error::Result;
use crate::memory::Pool;
use crate::tensor::{Tensor, TensorDesc};

/// A model for one of the threads that call it.
pub struct ServerNet {
    model: Arc<RemoteModel>,
    client: GrpcClient,
    region: RegionState,
    /// What the server may still have.
    stale: KeptRegions<ForgottenRegion>,
    marks: HostMarks,
    pool: Pool,
}

/// The memory in common with the server.
enum RegionState {
    /// Not tried yet on this connection, or too small.
    None,
    /// On the connection of this number.
    Registered(u64, SharedRegion),
    /// It cannot be had.
    Refused,
}

impl ServerNet {
    pub fn new(model: Arc<RemoteModel>) -> Self {
        let client = GrpcClient::new(model.address.clone());
        let (stale, marks, pool) = (KeptRegions::default(), HostMarks::default(), Pool::default());
        ServerNet { model, client, region: RegionState::None, stale, marks, pool }
    }

    /// One attempt.
    fn attempt(&mut self, inputs: &[&Tensor], rows: usize, deadline: Instant) -> Attempt<Vec<Tensor>> {
        let layout = self.layout(inputs, rows, deadline)?;
        let shared = match (&self.region, &layout) {
            (RegionState::Registered(_, region), Some(layout)) => Some((region.key.as_str(), layout)),
            _ => None,
        };
        let descs: Vec<&TensorDesc> = inputs.iter().map(|tensor| tensor.desc()).collect();
        let mut message = self.model.request(&descs, shared).encode_to_vec();
        let mut heads = Vec::new();
        match (&layout, &mut self.region) {
            (Some(layout), RegionState::Registered(_, region)) => {
                for (tensor, &(at, _)) in inputs.iter().zip(&layout.inputs) {
                    region.write(at, tensor.bytes().unwrap_or_default());
                }
                self.marks.write(layout, region);
            }
            _ => {
                for tensor in inputs {
                    encode_key(RAW_INPUT_CONTENTS, WireType::LengthDelimited, &mut message);
                    encode_varint(tensor.bytes().unwrap_or_default().len() as u64, &mut message);
                    heads.push(std::mem::take(&mut message));
                }
            }
        }
        let parts: Vec<&[u8]> = match layout {
            Some(_) => vec![&message],
            None => {
                let bytes = inputs.iter().map(|tensor| tensor.bytes().unwrap_or_default());
                heads.iter().zip(bytes).flat_map(|(head, bytes)| [&head[..], bytes]).collect()
            }
        };
        let answer = self.client.call("ModelInfer", &parts, self.model.answer_limit(rows), deadline)?;
        let read = InferAnswer::of(&answer[PREFIX..])?;
        let outputs = self.model.info.outputs.iter().enumerate();
        let place = |at: usize| layout.as_ref().and_then(|layout| layout.outputs.get(at).copied());
        Ok(outputs.map(|(at, declared)| self.output((at, declared), &read, place(at))).collect())
    }

    /// The tensor of the output of that number, which may have a place in shared memory.
    fn output(
        &self,
        (index, declared): (usize, &TensorDesc),
        answer: &InferAnswer,
        place: Option<TensorPlace>,
    ) -> Result<Tensor> {
        let found = self.model.find(declared, answer)?;
        if let (Some(place), RegionState::Registered(_, region)) = (place, &self.region)
            && !found.is_sent()
        {
            found.check_length(&self.model, place.1)?;
            if self.marks.is_unchanged(index, place, region) {
                return Err(self.model.wrong(format!("output {} is neither in shared memory nor sent", found.desc)));
            }
            return Tensor::fill(&self.pool, found.desc, |bytes| {
                region.read(place.0, bytes);
                Ok(())
            });
        }
        let sent = found.sent(&self.model)?;
        Tensor::fill(&self.pool, found.desc, |bytes| {
            bytes.copy_from_slice(&sent);
            Ok(())
        })
    }

    /// Where tensors lie in memory that the server has too, which is made and registered here; `None` where they are sent.
    fn layout(
        &mut self,
        inputs: &[&Tensor],
        rows: usize,
        deadline: Instant,
    ) -> std::result::Result<Option<Layout>, CallError> {
        const MOST: usize = 256 << 20;
        let use_it = self.model.shared_memory;
        if use_it == SharedMemoryUse::Off || matches!(self.region, RegionState::Refused) {
            return Ok(None);
        }
        let number = self.client.connect(deadline)?;
        if let RegionState::Registered(of, _) = &self.region
            && *of != number
        {
            self.forget();
        }
        let in_front = || inputs.iter().map(|tensor| tensor.bytes().unwrap_or_default().len());
        let behind = self.model.output_sizes(rows).unwrap_or_default();
        // Outputs that are too large come with the answer.
        let layout = Layout::new(in_front(), behind, MOST).or_else(|| Layout::new(in_front(), [], MOST));
        let why = if !self.model.extensions.system_shared_memory {
            Err(CallError::refused("the server does not have the extension system_shared_memory"))
        } else if !self.client.is_local() {
            Err(CallError::refused("the server is on another machine"))
        } else if let Some(layout) = &layout {
            self.register(layout.bytes, number, deadline)
        } else {
            Err(CallError::refused(format!("tensors of {} bytes are too many", in_front().sum::<usize>())))
        };
        match why {
            Ok(()) => Ok(layout),
            Err(CallError::Refused(_, why)) if use_it == SharedMemoryUse::Auto => {
                log(
                    Level::Info,
                    &format!("{} gets tensors by its connection, not by shared memory: {why}", self.model.address),
                );
                self.region = RegionState::Refused;
                Ok(None)
            }
            Err(CallError::Refused(_, why)) => Err(CallError::refused(format!("shared-memory=on cannot be, {why}"))),
            Err(error) => Err(error),
        }
    }

    /// Memory of at least so many bytes that the server has.
    fn register(&mut self, bytes: usize, number: u64, deadline: Instant) -> std::result::Result<(), CallError> {
        if matches!(&self.region, RegionState::Registered(_, region) if region.bytes() >= bytes) {
            return Ok(());
        }
        self.forget();
        if let Some(count) = self.stale.give_back(&mut self.client, deadline)? {
            return Err(CallError::refused(format!("the server does not give up {count} parts of shared memory")));
        }
        let region = SharedRegion::new(bytes)
            .map_err(|error| CallError::refused(format!("no shared memory of {bytes} bytes can be had: {error}")))?;
        let (name, key) = (region.key.clone(), region.key.clone());
        let request = SystemSharedMemoryRegisterRequest { name, key, offset: 0, byte_size: region.bytes() as u64 };
        let done = self.client.describe::<EmptyMessage>("SystemSharedMemoryRegister", &request, deadline);
        region.hide();
        if let Err(error) = done {
            if !matches!(error, CallError::Refused(..)) {
                self.stale.push(region.forget()); // the server may have it
            }
            return Err(error);
        }
        self.region = RegionState::Registered(number, region);
        Ok(())
    }
}

impl Caller for ServerNet {
    fn model(&self) -> &Arc<RemoteModel> {
        &self.model
    }

    fn client(&mut self) -> &mut GrpcClient {
        &mut self.client
    }

    fn has_region(&self) -> bool {
        matches!(self.region, RegionState::Registered(..))
    }

    fn forget(&mut self) {
        if let RegionState::Registered(_, region) = std::mem::replace(&mut self.region, RegionState::None) {
            self.stale.push(region.forget());
        }
    }
}

impl HostNet for ServerNet {
    fn infer(&mut self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let pictures = inputs[self.model.info.image_index()];
        let rows = pictures.desc().dims.first().map_or(1, |&rows| rows as usize);
        until_answered(self, |net, deadline| net.attempt(inputs, rows, deadline))
    }

    fn another(&self) -> Result<Self> {
        Ok(ServerNet::new(self.model.clone()))
    }

    fn interrupter(&self) -> Option<Interrupter> {
        Some(self.client.interrupter())
    }
}

impl Drop for ServerNet {
    fn drop(&mut self) {
        self.forget();
        self.stale.end(&mut self.client);
    }
}
