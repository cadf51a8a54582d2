//! A model as rten runs it: one part, or several with suppressions between them (see [`cut`](super::cut)).

use std::collections::HashMap;
use std::error::Error as _;

use rten::{LoadError, LoadErrorKind, ModelOptions, NodeId, Value, ValueOrView, ValueView};
use rten_tensor::prelude::*;

use super::cut::{self, Suppression};
use super::suppress::{self, suppress};
use crate::core::error::{Error, ErrorKind, Result};
use crate::model::{ModelInfo, unreadable};

pub struct Net {
    parts: Vec<Part>,
}

struct Part {
    net: rten::Model,
    inputs: Vec<(String, NodeId)>,
    outputs: Vec<(String, NodeId)>,
    suppressions: Vec<Suppression>,
}

impl Net {
    pub fn load(model: &ModelInfo) -> Result<Self> {
        let path = model.path.as_path();
        let names = |descs: &[crate::core::tensor::TensorDesc]| descs.iter().map(|desc| desc.name.clone()).collect();
        let read = || std::fs::read(path).map_err(|error| unreadable(path, error));
        let mut options = ModelOptions::with_all_ops();
        options.prepack_weights(true);
        if model.operators.contains(cut::OPERATOR) {
            let parts = cut::cut(&read()?)?.into_iter().map(|part| {
                let net = options.load(part.onnx).map_err(unloadable)?;
                Part::new(net, part.inputs, part.outputs, part.suppressions)
            });
            return Ok(Net { parts: parts.collect::<Result<_>>()? });
        }
        // rten knows a file by its name, and only then finds weights that lie beside it.
        let net = match path.extension() {
            Some(extension) if extension.eq_ignore_ascii_case("onnx") => options.load_file(path),
            _ => options.load(read()?),
        };
        let part = Part::new(net.map_err(unloadable)?, names(&model.inputs), names(&model.outputs), Vec::new())?;
        Ok(Net { parts: vec![part] })
    }

    /// Runs all parts; the result has the values of those names.
    pub fn run<'a>(&self, inputs: Vec<(&'a str, ValueView<'a>)>) -> Result<HashMap<String, Value>> {
        let inputs: HashMap<&str, ValueView> = inputs.into_iter().collect();
        let mut values: HashMap<String, Value> = HashMap::new();
        for part in &self.parts {
            let given = part.inputs.iter().filter_map(|(name, node)| {
                let value = inputs.get(name.as_str()).cloned().or_else(|| values.get(name).map(Value::as_view))?;
                Some((*node, ValueOrView::from(value)))
            });
            let nodes: Vec<NodeId> = part.outputs.iter().map(|(_, node)| *node).collect();
            let made = part.net.run(given.collect(), &nodes, None).map_err(|error| {
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

impl Part {
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
        Ok(Part { inputs: nodes(inputs)?, outputs: nodes(outputs)?, suppressions, net })
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
        most: number(&node.most).unwrap_or(0.0) as usize,
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
        LoadErrorKind::ExternalDataError => {
            "Keep the file with the weights beside the model, under the name that it was exported with"
        }
        _ => "Export the model again; this file contradicts itself",
    };
    Error::new(ErrorKind::Model, cause).remedy(remedy)
}
