// SPDX-License-Identifier: MPL-2.0
//! What is known of a model on a server: what a request of it says, what an answer must be, and what a failure is called.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::address::ServerAddress;
use super::answer::{self, AnswerOutput, InferAnswer};
use super::client::CallError;
use super::layout::{Layout, TensorPlace, parameters};
use super::messages::*;
use super::{SharedMemoryUse, datatype};
use crate::error::{Error, ErrorKind, Result};
use crate::model::ModelInfo;
use crate::tensor::{Dims, TensorDesc};

/// Bytes of an answer besides its tensors.
const SLACK: usize = 1 << 20;
/// Bytes of tensors whose size is known only with the answer.
const MAX_ANSWER: usize = 1 << 30;

/// What is known of a model on a server, and how it is called.
pub struct RemoteModel {
    pub info: Arc<ModelInfo>,
    pub address: Arc<ServerAddress>,
    /// For a request with all attempts.
    pub timeout: Duration,
    /// The pictures of a request that its configuration allows; 0 where it says nothing of batches.
    pub max_batch: usize,
    pub shared_memory: SharedMemoryUse,
    pub extensions: Extensions,
    /// Whether requests are tried again, which is said once for all that are in flight.
    pub is_away: AtomicBool,
}

/// Which of those that are used here the server has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extensions {
    pub system_shared_memory: bool,
    pub cuda_shared_memory: bool,
}

/// An output of an answer, of the type and the dimensions that were declared.
pub struct FoundOutput<'a> {
    pub desc: TensorDesc,
    bytes: usize,
    raw: Option<&'a [u8]>,
    contents: Option<&'a [u8]>,
}

impl RemoteModel {
    /// The request without bytes of tensors. They lie in a region of that name, or are sent.
    pub fn request(&self, inputs: &[&TensorDesc], shared: Option<(&str, &Layout)>) -> ModelInferRequest {
        let places = |of: fn(&Layout) -> &[TensorPlace], index: usize| -> HashMap<String, InferParameter> {
            let place = shared.and_then(|(region, layout)| Some((region, *of(layout).get(index)?)));
            place.map(|(region, place)| parameters(region, place)).unwrap_or_default()
        };
        let input = |(index, (declared, sent)): (usize, (&TensorDesc, &&TensorDesc))| InferInputTensor {
            name: declared.name.clone(),
            datatype: datatype::name(declared.dtype).into(),
            shape: sent.dims.to_vec(),
            parameters: places(|layout| &layout.inputs, index),
        };
        let output = |(index, declared): (usize, &TensorDesc)| InferRequestedOutputTensor {
            name: declared.name.clone(),
            parameters: places(|layout| &layout.outputs, index),
        };
        ModelInferRequest {
            model_name: self.address.model.clone(),
            model_version: self.address.version.clone(),
            inputs: self.info.inputs.iter().zip(inputs).enumerate().map(input).collect(),
            outputs: self.info.outputs.iter().enumerate().map(output).collect(),
        }
    }

    /// The bytes of each output for so many pictures, where all are known.
    pub fn output_sizes(&self, rows: usize) -> Option<Vec<usize>> {
        self.info.outputs.iter().map(|output| self.output_bytes(output, rows)).collect()
    }

    /// An open dimension in front is that of pictures where the server makes batches, and else any number of rows.
    fn output_bytes(&self, output: &TensorDesc, rows: usize) -> Option<usize> {
        let mut desc = output.clone();
        if let Some(first) = desc.dims.0.first_mut().filter(|first| **first == Dims::DYNAMIC && self.max_batch > 0) {
            *first = rows as i64;
        }
        desc.bytes()
    }

    /// Bytes that an answer may have.
    pub fn answer_limit(&self, rows: usize) -> usize {
        let sizes = self.output_sizes(rows);
        let sum = sizes.and_then(|sizes| sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size)));
        sum.map_or(MAX_ANSWER, |bytes| bytes.min(MAX_ANSWER)) + SLACK
    }

    /// An output of an answer.
    ///
    /// # Errors
    /// `Run`, where it is missing, or another tensor than was declared.
    pub fn find<'a>(&self, declared: &TensorDesc, answer: &InferAnswer<'a>) -> Result<FoundOutput<'a>> {
        let place = answer.outputs.iter().position(|output| output.name == declared.name);
        let Some(place) = place else { return Err(self.wrong(format!("output {} is missing", declared.name))) };
        let AnswerOutput { datatype, shape, contents, .. } = &answer.outputs[place];
        let desc = TensorDesc::new(declared.name.as_str(), declared.dtype, shape);
        if *datatype != datatype::name(declared.dtype) || !desc.dims.is_static() || !desc.dims.fits(&declared.dims) {
            let datatype = crate::redact::printable(datatype, 20);
            return Err(self.wrong(format!("output {declared} comes as {datatype} {}", desc.dims)));
        }
        let bytes = desc.bytes().ok_or_else(|| self.wrong(format!("output {desc} is too large")))?;
        Ok(FoundOutput { desc, bytes, raw: answer.raw.get(place).copied(), contents: *contents })
    }

    /// An answer that is not what the server says of its model.
    #[track_caller]
    pub fn wrong(&self, cause: String) -> Error {
        Error::new(ErrorKind::Run, format!("{} answers something else than it says of itself", self.address))
            .cause(cause)
            .remedy("Check the model's configuration on the server. If it was changed, start the pipeline again")
    }

    /// The error of a call whose time is over, or that is not worth another attempt.
    #[track_caller]
    pub fn failed(&self, error: &CallError, last: Option<&str>) -> Error {
        let (what, seconds) = (&self.address, self.timeout.as_secs_f64());
        match error {
            CallError::Late | CallError::Lost(_) => {
                let lost = match error {
                    CallError::Lost(why) => Some(why.as_str()),
                    _ => last,
                };
                Error::new(ErrorKind::Run, format!("{what} has not answered within {seconds} s"))
                    .cause(lost.unwrap_or("the request was sent, and no answer came"))
                    .remedy("Check that the server runs, and how much it has to do; or set request-timeout to more")
            }
            CallError::Interrupted => {
                Error::new(ErrorKind::Run, format!("A request of {what} was given up")).cause("its stream has stopped")
            }
            CallError::Refused(_, why) => Error::new(ErrorKind::Run, format!("{what} refuses a request"))
                .cause(why)
                .remedy("Check the model on the server, and its log"),
            CallError::Garbage(why) => {
                Error::new(ErrorKind::Run, format!("{what} gives no answer of the protocol KServe v2"))
                    .cause(why)
                    .remedy("Check that this is the server's port for gRPC, and what is between here and there")
            }
        }
    }
}

impl<'a> FoundOutput<'a> {
    /// Whether its bytes are in the answer.
    pub fn is_sent(&self) -> bool {
        self.contents.is_some() || self.raw.is_some_and(|raw| !raw.is_empty())
    }

    /// # Errors
    /// `Run`, where it has not so many bytes.
    pub fn check_length(&self, model: &RemoteModel, have: usize) -> Result<()> {
        let FoundOutput { desc, bytes: wanted, .. } = self;
        if have == *wanted {
            return Ok(());
        }
        Err(model.wrong(format!("output {desc} has {have} bytes in place of {wanted}")))
    }

    /// The bytes that the answer has of it.
    ///
    /// # Errors
    /// `Run`, where there are none, or not as many as its dimensions say.
    pub fn sent(&self, model: &RemoteModel) -> Result<Cow<'a, [u8]>> {
        if let Some(raw) = self.raw {
            return self.check_length(model, raw.len()).map(|()| Cow::Borrowed(raw));
        }
        let elements = self.contents.and_then(|contents| answer::elements(contents, &self.desc));
        let missing = || model.wrong(format!("output {} has no bytes, or not as many", self.desc));
        elements.map(Cow::Owned).ok_or_else(missing)
    }
}
