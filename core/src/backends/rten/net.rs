// SPDX-License-Identifier: MPL-2.0
//! A model as rten runs it: one part, or several with suppressions between them (see [`cut`](super::cut)).

use std::collections::{HashMap, HashSet};
use std::error::Error as _;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use rten::{LoadError, LoadErrorKind, ModelOptions, NodeId, Value, ValueOrView, ValueView};
use rten_tensor::prelude::*;

use super::suppress::{self, suppress};
use super::threads;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{FileContents, ModelInfo};
use crate::onnx::cut::{self, Suppression};
use crate::onnx::{GraphProto, MetadataEntry, NodeProto, defaults, limits, weights, without_metadata};

pub struct Net {
    parts: Vec<LoadedSubgraph>,
    nodes: usize,
}

struct LoadedSubgraph {
    net: rten::Model,
    inputs: Vec<(String, NodeId)>,
    outputs: Vec<(String, NodeId)>,
    suppressions: Vec<Suppression>,
}

impl Net {
    pub fn load(model: &ModelInfo, file: Arc<FileContents>) -> Result<Self> {
        let file = with_defaults(file)?;
        let graph = file.graph()?;
        check_windows(graph)?;
        let (nodes, has_loops) = (limits::check(graph)?, has_loops(graph));
        let names = |descs: &[crate::tensor::TensorDesc]| descs.iter().map(|desc| desc.name.clone()).collect();
        let weights = weights::read(&model.path, graph.initializer.iter().flat_map(|weight| &weight.external_data))?;
        let parts = if model.operators.contains(cut::OPERATOR) {
            cut::cut(file.bytes().clone(), graph)?
        } else {
            let (inputs, outputs) = (names(&model.inputs), names(&model.outputs));
            let onnx = match file.onnx()?.metadata_props.iter().all(MetadataEntry::is_text) {
                true => file.into_vec(),
                false => without_metadata(file.bytes().clone()),
            };
            vec![cut::Subgraph { onnx, inputs, outputs, suppressions: Vec::new() }]
        };
        on_a_deep_stack(nodes, || {
            let mut options = ModelOptions::with_all_ops();
            options.prepack_weights(true);
            // It would compute what depends on constants alone, and in threads that all loads share: as many loops that never end as
            // there are cores would stop each load that comes later.
            options.enable_optimization(!has_loops);
            for (name, weights) in weights {
                options.external_data(&name, weights);
            }
            let parts = parts.into_iter().map(|part| {
                let net = options.load(part.onnx).map_err(unloadable)?;
                if has_loops {
                    check_constants(&net)?;
                }
                LoadedSubgraph::new(net, part.inputs, part.outputs, part.suppressions)
            });
            Ok(Net { parts: parts.collect::<Result<_>>()?, nodes })
        })
    }

    /// Runs all parts; the result has the values of those names.
    pub fn run<'a>(
        &self,
        inputs: Vec<(&'a str, ValueView<'a>)>,
        threads: Option<usize>,
    ) -> Result<HashMap<String, Value>> {
        on_a_deep_stack(self.nodes, || self.run_here(inputs, threads))
    }

    fn run_here<'a>(
        &self,
        inputs: Vec<(&'a str, ValueView<'a>)>,
        threads: Option<usize>,
    ) -> Result<HashMap<String, Value>> {
        let inputs: HashMap<&str, ValueView> = inputs.into_iter().collect();
        let mut values: HashMap<String, Value> = HashMap::new();
        for part in &self.parts {
            let given = part.inputs.iter().filter_map(|(name, node)| {
                let value = inputs.get(name.as_str()).cloned().or_else(|| values.get(name).map(Value::as_view))?;
                Some((*node, ValueOrView::from(value)))
            });
            let nodes: Vec<NodeId> = part.outputs.iter().map(|(_, node)| *node).collect();
            let made = part.net.run(given.collect(), &nodes, Some(threads::options(threads))).map_err(|error| {
                Error::new(ErrorKind::Run, "the model does not run")
                    .cause(error)
                    .remedy("Check that the model was exported correctly and runs with inputs of this size")
            })?;
            values.extend(part.outputs.iter().map(|(name, _)| name.clone()).zip(made));
            for suppression in &part.suppressions {
                let selected = selected(suppression, &values).ok_or_else(|| {
                    Error::new(ErrorKind::Run, "the model does not run")
                        .cause(format!(
                            "{} has inputs that do not go together ({})",
                            cut::OPERATOR,
                            suppression.selected
                        ))
                        .remedy("Export the model without suppression in its graph; trtnms does it")
                })?;
                values.insert(suppression.selected.clone(), selected);
            }
        }
        Ok(values)
    }
}

/// Computes what depends on constants alone, in threads of its own: a model that would never end is never loaded.
fn check_constants(net: &rten::Model) -> Result<()> {
    let computed = net.partial_run(Vec::new(), net.output_ids(), Some(threads::own()));
    let failed = |error| Error::new(ErrorKind::Model, "its constants do not go together").cause(error);
    computed.map(drop).map_err(|error| failed(error).remedy("Export the model again; this file contradicts itself"))
}

/// The file with what rten wants in it. The one without is gone then.
fn with_defaults(file: Arc<FileContents>) -> Result<Arc<FileContents>> {
    file.graph()?;
    match defaults::written_out(file.bytes().clone(), file.onnx()?)? {
        Some(whole) => Ok(Arc::new(FileContents::of(file.path(), whole))),
        None => Ok(file),
    }
}

/// Refuses models of clips whose windows reach over frames: those of rten have one or two dimensions.
fn check_windows(graph: &GraphProto) -> Result<()> {
    const OPERATORS: [&str; 4] = ["Conv", "ConvTranspose", "MaxPool", "AveragePool"];
    // Convolutions may leave their shape to their weights, whose first two dimensions are channels.
    let weights = graph.initializer.iter().filter(|weights| weights.dims.len() > 4);
    let weights: HashSet<&str> = weights.map(|weights| &*weights.name).collect();
    let reaches_over_frames = |node: &&NodeProto| {
        let mut shapes = node.attribute.iter().filter(|attribute| attribute.name == "kernel_shape");
        OPERATORS.contains(&&*node.op_type)
            && (shapes.any(|shape| shape.ints.len() > 2)
                || node.input.get(1).is_some_and(|input| weights.contains(&**input)))
    };
    match graph.node.iter().find(reaches_over_frames) {
        None => Ok(()),
        Some(node) => Err(Error::new(ErrorKind::Model, format!("it has a {} of three dimensions", node.op_type))
            .remedy(
                "Install ONNX Runtime or OpenVINO, or run it on a GPU: rten has those of one and two dimensions only",
            )),
    }
}

/// Whether something in it may never end.
fn has_loops(graph: &GraphProto) -> bool {
    graph.node.iter().any(|node| node.op_type == "Loop" || node.graphs().any(has_loops))
}

/// rten recurses for each node on the longest path, so large graphs get a larger stack. Others run on the
/// caller's, without the cost of a thread.
fn on_a_deep_stack<T: Send>(nodes: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if nodes <= 1000 {
        return work();
    }
    // Only what is used of it takes memory.
    let stack = (8 << 20) + nodes * (16 << 10);
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("trt-cpu".into()).stack_size(stack).spawn_scoped(scope, work);
        let worker = worker.map_err(|error| {
            Error::new(ErrorKind::Run, format!("Cannot start a thread with a stack of {} MiB", stack >> 20))
                .cause(error)
                .remedy("Raise the limits for threads and memory of this process")
        })?;
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

impl LoadedSubgraph {
    fn new(
        net: rten::Model,
        inputs: Vec<String>,
        outputs: Vec<String>,
        suppressions: Vec<Suppression>,
    ) -> Result<Self> {
        let nodes = |names: Vec<String>| {
            let node = |name: String| match net.node_id(&name) {
                Ok(node) => Ok((name, node)),
                Err(error) => Err(Error::new(ErrorKind::Model, format!("there is no tensor {name} in the graph"))
                    .cause(error)
                    .remedy("Export the model again; this file contradicts itself")),
            };
            names.into_iter().map(node).collect::<Result<Vec<_>>>()
        };
        Ok(LoadedSubgraph { inputs: nodes(inputs)?, outputs: nodes(outputs)?, suppressions, net })
    }
}

fn selected(node: &Suppression, values: &HashMap<String, Value>) -> Option<Value> {
    let floats = |name: &str| match values.get(name)? {
        Value::FloatTensor(tensor) => Some(tensor.view()),
        _ => None,
    };
    let number = |name: &Option<String>| match values.get(name.as_deref()?)? {
        Value::FloatTensor(tensor) => tensor.iter().next().copied(),
        Value::Int32Tensor(tensor) => tensor.iter().next().map(|&value| value as f32),
        _ => None,
    };
    suppress(&suppress::Inputs {
        boxes: floats(&node.boxes)?.try_into().ok()?,
        scores: floats(&node.scores)?.try_into().ok()?,
        max_output: number(&node.max_output).unwrap_or(0.0) as usize,
        iou_threshold: number(&node.iou_threshold).unwrap_or(0.0),
        score_threshold: number(&node.score_threshold),
        centers: node.centers,
    })
}

fn unloadable(error: LoadError) -> Error {
    let cause = match (error.node(), error.source()) {
        (Some(node), Some(source)) => format!("{source} (“{node}” in its graph)"),
        _ => error.to_string(),
    };
    let remedy = match error.kind() {
        LoadErrorKind::OperatorInvalid => "Export the model without that operator, or with another opset",
        LoadErrorKind::ExternalDataError => "Copy the file with the weights again, or export the model as one file",
        _ => "Export the model again; this file contradicts itself",
    };
    Error::new(ErrorKind::Model, cause).remedy(remedy)
}
