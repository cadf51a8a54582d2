// SPDX-License-Identifier: MPL-2.0
//! Cuts an ONNX file into parts at its NonMaxSuppression nodes.
//!
//! rten 0.27 computes that operator otherwise than ONNX defines it: it divides by the box around both boxes instead of
//! their union, and drops what a box overlaps that is itself dropped later. So we run what comes before by rten, suppress by
//! `suppress` of the backend, and run the rest by rten again.
//!
//! The part that a node belongs to is the number of suppressions on the longest way to it from the inputs. Nodes, weights
//! and inputs keep their bytes; only the lists of them are rewritten.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use prost::Message;

use super::raw::{RawGraph, RawModel};
use super::{GraphProto, NodeProto, ValueInfoProto};
use crate::error::{Error, ErrorKind, Result};

/// The operator to cut at.
pub const OPERATOR: &str = "NonMaxSuppression";

/// A model of its own, and what to suppress when it has run.
#[derive(Debug, Default)]
pub struct Subgraph {
    pub onnx: Vec<u8>,
    /// Names of values that earlier parts, suppressions or the picture provide.
    pub inputs: Vec<String>,
    /// Names of values that later parts, suppressions or the model's user want.
    pub outputs: Vec<String>,
    pub suppressions: Vec<Suppression>,
}

/// A NonMaxSuppression node: names of its inputs and its output.
#[derive(Clone, Debug, Default)]
pub struct Suppression {
    pub boxes: String,
    pub scores: String,
    pub max_output: Option<String>,
    pub iou_threshold: Option<String>,
    pub score_threshold: Option<String>,
    pub selected: String,
    /// Boxes are centre x, centre y, width, height; else two opposite corners, y before x.
    pub centers: bool,
}

/// Cuts a whole ONNX file, whose graph is `decoded`. Errors have a cause; the caller adds the file's name.
pub fn cut(file: Bytes, decoded: &GraphProto) -> Result<Vec<Subgraph>> {
    let broken = |error: prost::DecodeError| Error::new(ErrorKind::Model, "the graph cannot be read").cause(error);
    // Its texts are of no use here, and rten refuses those that are none.
    let RawModel { ir_version, graph, opset_import, functions, .. } = RawModel::decode(file).map_err(broken)?;
    let model = RawModel { ir_version, opset_import, functions, ..Default::default() };
    let graph = graph.unwrap_or_default();
    let nodes = &decoded.node;
    if nodes.iter().flat_map(inner).any(|node| node.op_type == OPERATOR) {
        return Err(Error::new(
            ErrorKind::Model,
            format!("{OPERATOR} in a branch or a loop is not supported by the CPU backend"),
        )
        .remedy("Export the model without suppression in its graph; trtnms does it"));
    }
    let weights: HashMap<&String, &Bytes> =
        decoded.initializer.iter().map(|weight| &weight.name).zip(&graph.initializer).collect();
    let inputs: HashMap<&String, &Bytes> = decoded.input.iter().map(|value| &value.name).zip(&graph.input).collect();

    // Which part makes each value, and which part needs it.
    let mut made: HashMap<&String, usize> = HashMap::new();
    let mut parts: Vec<Subgraph> = vec![Subgraph::default()];
    let mut members: Vec<Vec<usize>> = vec![Vec::new()];
    for (index, node) in nodes.iter().enumerate() {
        let part = needs(node).filter_map(|name| made.get(name)).max().copied().unwrap_or(0);
        let suppresses = node.op_type == OPERATOR;
        if suppresses {
            parts[part].suppressions.push(suppression(node));
            if parts.len() == part + 1 {
                parts.push(Subgraph::default());
                members.push(Vec::new());
            }
        } else {
            members[part].push(index);
        }
        let available = part + usize::from(suppresses);
        made.extend(node.output.iter().map(|name| (name, available)));
    }

    let of_part = |part: usize| members[part].iter().map(|&index| &nodes[index]);
    // The last part that needs each value.
    let mut last: HashMap<&String, usize> = HashMap::new();
    for part in 0..parts.len() {
        last.extend(of_part(part).flat_map(needs).map(|name| (name, part)));
    }
    let wanted: HashSet<&String> = decoded.output.iter().map(|value| &value.name).collect();
    for part in 0..parts.len() {
        let own: BTreeSet<String> = of_part(part).flat_map(|node| node.output.iter().cloned()).collect();
        let later = |name: &&String| last.get(name).is_some_and(|&last| last > part) || wanted.contains(name);
        let mut outputs: BTreeSet<String> = own.iter().filter(later).cloned().collect();
        // A suppression's numbers are often weights, whose values only a part of the graph can output.
        let is_known = |name: &&String| own.contains(*name) || weights.contains_key(*name);
        outputs.extend(parts[part].suppressions.iter().flat_map(Suppression::needs).filter(is_known).cloned());
        let needed: BTreeSet<String> = of_part(part).flat_map(needs).cloned().chain(outputs.iter().cloned()).collect();
        let given = |name: &&String| {
            let outside = made.contains_key(*name) || inputs.contains_key(*name);
            outside && !own.contains(*name) && !weights.contains_key(*name)
        };
        let given: Vec<&String> = needed.iter().filter(given).collect();

        // Types of values between parts are found when they come.
        let untyped = |name: &String| Bytes::from(ValueInfoProto { name: name.clone(), r#type: None }.encode_to_vec());
        let graph = RawGraph {
            node: members[part].iter().map(|&index| graph.node[index].clone()).collect(),
            name: graph.name.clone(),
            initializer: needed.iter().filter_map(|name| weights.get(name)).map(|&raw| raw.clone()).collect(),
            input: given
                .iter()
                .map(|name| inputs.get(name).map_or_else(|| untyped(name), |&raw| raw.clone()))
                .collect(),
            output: outputs.iter().map(untyped).collect(),
            ..Default::default()
        };
        parts[part].onnx = RawModel { graph: Some(graph), ..model.clone() }.encode_to_vec();
        parts[part].inputs = given.into_iter().cloned().collect();
        parts[part].outputs = outputs.into_iter().collect();
    }
    Ok(parts)
}

impl Suppression {
    fn needs(&self) -> impl Iterator<Item = &String> {
        let optional = [&self.max_output, &self.iou_threshold, &self.score_threshold].into_iter().flatten();
        [&self.boxes, &self.scores].into_iter().chain(optional)
    }
}

/// Names of the values that a node reads, those that its branches and loops take from outside included.
fn needs(node: &NodeProto) -> impl Iterator<Item = &String> {
    let inner = inner(node).into_iter().flat_map(|node| &node.input);
    let results = node.graphs().flat_map(|graph| &graph.output);
    node.input.iter().chain(inner).chain(results.map(|value| &value.name))
}

/// The nodes of its branches and loops, at any depth.
fn inner(node: &NodeProto) -> Vec<&NodeProto> {
    let direct = node.graphs().flat_map(|graph| &graph.node);
    direct.flat_map(|node| std::iter::once(node).chain(inner(node))).collect()
}

/// The attributes and inputs of a node of our operator.
fn suppression(node: &NodeProto) -> Suppression {
    let input = |i: usize| node.input.get(i).filter(|name| !name.is_empty()).cloned();
    Suppression {
        boxes: input(0).unwrap_or_default(),
        scores: input(1).unwrap_or_default(),
        max_output: input(2),
        iou_threshold: input(3),
        score_threshold: input(4),
        selected: node.output.first().cloned().unwrap_or_default(),
        centers: node.attribute.iter().any(|attribute| attribute.name == "center_point_box" && attribute.i == Some(1)),
    }
}
