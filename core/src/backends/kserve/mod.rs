// SPDX-License-Identifier: MPL-2.0
//! Models on a server that speaks the Open Inference Protocol, version 2 (KServe v2), by gRPC: Triton, OpenVINO Model Server,
//! MLServer, KServe. What a model takes and gives is read from the server; tensors go out and come back, and all else is done here
//! as with any model.
//!
//! The client is small and of this crate: one thread has one request at a time, and waits for it. tonic would bring 74 crates (42 s
//! to compile on one core), and h2 24 (19 s), with a runtime whose threads nothing here needs; prost is there for ONNX.
//!
//! ```text
//! address         grpc://host:8001/model/version
//! socket, http2   a connection with one request at a time; hpack and huffman are its headers
//! client          calls of gRPC, and how they fail
//! messages        what is said; answer reads what may be large where it lies
//! describe        what the server says of a model
//! remote          what a request of a model says, and checks of what comes; layout is where tensors lie in shared memory
//! attempts        a request until the time is over
//! net             runs on tensors of the host; shared_memory is that of the host
//! on_gpu          runs on tensors that stay on a GPU; regions are the memory there that the server has too
//! marks           tell whether the server writes memory that both have; kept is what it has not given up yet
//! ```

mod address;
mod answer;
mod attempts;
mod client;
mod datatype;
mod describe;
mod hpack;
mod http2;
mod huffman;
mod kept;
mod layout;
mod marks;
mod messages;
mod net;
mod on_gpu;
mod regions;
mod remote;
mod shared_memory;
mod socket;

use std::sync::Arc;
use std::time::Duration;

use self::address::ServerAddress;
use self::net::ServerNet;
use self::on_gpu::GpuModel;
use self::remote::RemoteModel;
use super::host::HostModel;
use super::options::{BackendOption, INPUT_VALUES, MAX_INPUT_WIDTH, Options};
use super::{Backend, LoadContext, LoadRequest, ModelInstance, OpenedModel, Unsupported};
use crate::choices;
use crate::cuda::driver::Context;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{ModelFile, ModelInfo};
use crate::options::{Choices, OptionKind, OptionSpec, OptionValue};

/// The backend.
pub struct KServe;

static REQUEST_TIMEOUT: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "request-timeout",
        nick: "Request timeout",
        blurb: "Milliseconds in which a server must have answered a request, with all attempts to reach it; then the frame has failed",
        kind: OptionKind::UInt(1..=3_600_000),
    },
    default: OptionValue::UInt(20_000),
    is_in_key: false,
    insists: &[],
};

static SHARED_MEMORY: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "shared-memory",
        nick: "Shared memory",
        blurb: "Whether a server on this machine gets tensors by shared memory, and by which",
        kind: SharedMemoryUse::KIND,
    },
    default: OptionValue::Choice("auto"),
    is_in_key: false,
    insists: &["on", "cuda"],
};

/// Whether tensors are in memory that the server has too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedMemoryUse {
    Auto,
    Off,
    On,
    Cuda,
}

choices! {
    SharedMemoryUse, "GstTrtSharedMemory":
    SharedMemoryUse::Auto => "auto" "Where the server is on this machine and takes it, else by the connection"
    SharedMemoryUse::Off => "off" "By the connection"
    SharedMemoryUse::On => "on" "By shared memory; it is an error where that cannot be"
    SharedMemoryUse::Cuda => "cuda" "In the memory of a GPU that the server uses too; it is an error where that cannot be"
}

fn shared_memory(options: &Options) -> SharedMemoryUse {
    SharedMemoryUse::of_word(options.word(&SHARED_MEMORY)).unwrap_or(SharedMemoryUse::Auto)
}

fn timeout(options: &Options) -> Duration {
    Duration::from_millis(u64::try_from(options.number(&REQUEST_TIMEOUT)).unwrap_or(1))
}

impl Backend for KServe {
    fn name(&self) -> &'static str {
        "kserve"
    }

    fn title(&self) -> &'static str {
        "a server (KServe v2)"
    }

    fn blurb(&self) -> &'static str {
        "A server with the protocol KServe v2, such as Triton, at an address like grpc://host:8001/model"
    }

    /// Where tensors are, whatever the server computes with.
    fn device(&self, options: &Options) -> Device {
        match shared_memory(options) {
            SharedMemoryUse::Cuda => Device::Cuda,
            SharedMemoryUse::Auto | SharedMemoryUse::Off | SharedMemoryUse::On => Device::Host,
        }
    }

    fn options(&self) -> &'static [&'static BackendOption] {
        static OPTIONS: [&BackendOption; 4] = [&REQUEST_TIMEOUT, &SHARED_MEMORY, &INPUT_VALUES, &MAX_INPUT_WIDTH];
        &OPTIONS
    }

    /// Whether the server is there is seen when it is asked for the model.
    fn probe(&self, file: &ModelFile, _: &Options) -> std::result::Result<(), Unsupported> {
        if !file.is_on_server() {
            let what = format!("{} is a file, and backend=kserve runs models on a server", file.path().display());
            let remedy = "Give an address like grpc://host:8001/model, or use another backend";
            return Err(Unsupported::Kind(Error::new(ErrorKind::Settings, what).remedy(remedy)));
        }
        ServerAddress::parse(file.path()).map(drop).map_err(Unsupported::Missing)
    }

    fn describe(&self, file: &ModelFile, options: &Options, _: Option<&Context>) -> Result<Arc<dyn OpenedModel>> {
        let address = Arc::new(ServerAddress::parse(file.path())?);
        let described = describe::describe(&address, timeout(options))?;
        let info = described.info(file.path())?;
        Ok(Arc::new(OpenedServer(Arc::new(RemoteModel {
            info: Arc::new(info),
            address,
            timeout: timeout(options),
            max_batch: described.max_batch,
            shared_memory: shared_memory(options),
            extensions: described.extensions,
            is_away: false.into(),
        }))))
    }

    /// The server may take its time.
    fn loads_to_describe(&self, _: &ModelFile) -> bool {
        true
    }

    fn takes_any_size(&self) -> bool {
        true
    }
}

/// A model that a server has described.
struct OpenedServer(Arc<RemoteModel>);

impl OpenedModel for OpenedServer {
    fn info(&self) -> &Arc<ModelInfo> {
        &self.0.info
    }

    /// The server has loaded it. Connections are made by the first requests.
    fn load(&self, request: &LoadRequest, _: &LoadContext) -> Result<Box<dyn ModelInstance>> {
        /// As many as are asked for where none are named: they wait for the server, and take no core.
        const REQUESTS: usize = 8;
        let RemoteModel { address, max_batch, .. } = &*self.0;
        if *max_batch > 0 && request.batch > *max_batch {
            let what = format!("batch-size is {}, and {address} takes {max_batch} pictures at most", request.batch);
            return Err(Error::new(ErrorKind::Settings, what).remedy(format!(
                "Set batch-size={max_batch} or less, or raise max_batch_size in the server's config.pbtxt"
            )));
        }
        let runs = match request.parallel_runs {
            0 => REQUESTS,
            runs => runs,
        };
        if let Some(cuda) = request.cuda.as_ref().filter(|_| request.device() == Device::Cuda) {
            return Ok(Box::new(GpuModel::new(&self.0, request, cuda, runs)?));
        }
        let model = HostModel::new(ServerNet::new(self.0.clone()), &request.with_parallel_runs(runs))?;
        Ok(Box::new(model))
    }
}
