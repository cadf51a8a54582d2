//! Cuts an ONNX file into parts at its NonMaxSuppression nodes.
//!
//! rten 0.27 does not do what ONNX says of that operator: it divides by the box around both boxes instead of their union,
//! and drops what a box overlaps that is itself dropped later. So we run what comes before by rten, suppress by
//! [`suppress`](super::suppress), and run the rest by rten again.
//!
//! The part that a node belongs to is the number of suppressions on the longest way to it from the inputs. Nodes, weights
//! and inputs keep their bytes; only the lists of them are written anew.

use std::collections::{BTreeSet, HashMap};

use prost::Message;

use crate::core::error::{Error, ErrorKind, Result};

/// The operator to cut at.
pub const OPERATOR: &str = "NonMaxSuppression";

/// A model of its own, and what to suppress when it has run.
#[derive(Debug, Default)]
pub struct Part {
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
    pub most: Option<String>,
    pub iou_threshold: Option<String>,
    pub score_threshold: Option<String>,
    pub selected: String,
    /// Boxes are centre x, centre y, width, height; else two opposite corners, y before x.
    pub centers: bool,
}

/// Cuts a whole ONNX file. Errors carry a cause; the caller says which file.
pub fn cut(bytes: &[u8]) -> Result<Vec<Part>> {
    let broken = |error: prost::DecodeError| Error::new(ErrorKind::Model, "the graph cannot be read").cause(error);
    let model = ModelProto::decode(bytes).map_err(broken)?;
    let graph = model.graph.clone().unwrap_or_default();
    let nodes = graph.node.iter().map(|raw| Node::decode(&raw[..])).collect::<std::result::Result<Vec<_>, _>>();
    let nodes = nodes.map_err(broken)?;
    if nodes.iter().flat_map(Node::inner).any(|node| node.op_type == OPERATOR) {
        return Err(Error::new(
            ErrorKind::Model,
            format!("{OPERATOR} in a branch or a loop is not supported by the CPU backend"),
        )
        .remedy("Export the model without suppression in its graph; trtnms does it"));
    }
    let named = |raw: &Vec<u8>| Named::decode(&raw[..]).unwrap_or_default().name;
    let weights: HashMap<String, &Vec<u8>> =
        graph.initializer.iter().map(|raw| (Weight::decode(&raw[..]).unwrap_or_default().name, raw)).collect();
    let inputs: HashMap<String, &Vec<u8>> = graph.input.iter().map(|raw| (named(raw), raw)).collect();
    let wanted: Vec<String> = graph.output.iter().map(named).collect();

    // Which part makes each value, and which part needs it.
    let mut made: HashMap<&String, usize> = HashMap::new();
    let mut parts: Vec<Part> = vec![Part::default()];
    let mut members: Vec<Vec<usize>> = vec![Vec::new()];
    for (index, node) in nodes.iter().enumerate() {
        let part = node.needs().filter_map(|name| made.get(name)).max().copied().unwrap_or(0);
        let suppresses = node.op_type == OPERATOR;
        if suppresses {
            parts[part].suppressions.push(node.suppression());
            if parts.len() == part + 1 {
                parts.push(Part::default());
                members.push(Vec::new());
            }
        } else {
            members[part].push(index);
        }
        let available = part + usize::from(suppresses);
        made.extend(node.output.iter().map(|name| (name, available)));
    }

    let of_part = |part: usize| members[part].iter().map(|&index| &nodes[index]);
    for part in 0..parts.len() {
        let own: BTreeSet<String> = of_part(part).flat_map(|node| node.output.iter().cloned()).collect();
        let later = (part + 1..parts.len()).flat_map(of_part).flat_map(Node::needs).chain(&wanted);
        let mut outputs: BTreeSet<String> = later.filter(|name| own.contains(*name)).cloned().collect();
        // A suppression's numbers are often weights, which only a part can tell.
        let told = |name: &&String| own.contains(*name) || weights.contains_key(*name);
        outputs.extend(parts[part].suppressions.iter().flat_map(Suppression::needs).filter(told).cloned());
        let needed: BTreeSet<String> =
            of_part(part).flat_map(Node::needs).cloned().chain(outputs.iter().cloned()).collect();
        let given = |name: &&String| {
            let outside = made.contains_key(*name) || inputs.contains_key(*name);
            outside && !own.contains(*name) && !weights.contains_key(*name)
        };
        let given: Vec<&String> = needed.iter().filter(given).collect();

        // Types of values between parts are found when they come.
        let untyped = |name: &String| Named { name: name.clone() }.encode_to_vec();
        let graph = GraphProto {
            node: members[part].iter().map(|&index| graph.node[index].clone()).collect(),
            name: graph.name.clone(),
            initializer: needed.iter().filter_map(|name| weights.get(name)).map(|raw| raw.to_vec()).collect(),
            input: given
                .iter()
                .map(|name| inputs.get(*name).map_or_else(|| untyped(name), |raw| raw.to_vec()))
                .collect(),
            output: outputs.iter().map(untyped).collect(),
        };
        parts[part].onnx = ModelProto { graph: Some(graph), ..model.clone() }.encode_to_vec();
        parts[part].inputs = given.into_iter().cloned().collect();
        parts[part].outputs = outputs.into_iter().collect();
    }
    Ok(parts)
}

impl Suppression {
    fn needs(&self) -> impl Iterator<Item = &String> {
        let optional = [&self.most, &self.iou_threshold, &self.score_threshold].into_iter().flatten();
        [&self.boxes, &self.scores].into_iter().chain(optional)
    }
}

impl Node {
    /// Names of the values that the node reads, those that its branches and loops take from outside included.
    fn needs(&self) -> impl Iterator<Item = &String> {
        let inner = self.inner().into_iter().flat_map(|node| &node.input);
        let results = self.attribute.iter().flat_map(Attribute::graphs).flat_map(|graph| &graph.output);
        self.input.iter().chain(inner).chain(results.map(|value| &value.name))
    }

    /// The nodes of its branches and loops, at any depth.
    fn inner(&self) -> Vec<&Node> {
        let direct = self.attribute.iter().flat_map(Attribute::graphs).flat_map(|graph| &graph.node);
        direct.flat_map(|node| std::iter::once(node).chain(node.inner())).collect()
    }

    fn suppression(&self) -> Suppression {
        let input = |i: usize| self.input.get(i).filter(|name| !name.is_empty()).cloned();
        Suppression {
            boxes: input(0).unwrap_or_default(),
            scores: input(1).unwrap_or_default(),
            most: input(2),
            iou_threshold: input(3),
            score_threshold: input(4),
            selected: self.output.first().cloned().unwrap_or_default(),
            centers: self.attribute.iter().any(|attribute| attribute.name == "center_point_box" && attribute.i == 1),
        }
    }
}

impl Attribute {
    fn graphs(&self) -> impl Iterator<Item = &Subgraph> {
        self.g.iter().chain(&self.graphs)
    }
}

// Field numbers are those of onnx.proto3. Fields that stay as they are, are bytes here.

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(int64, tag = "1")]
    ir_version: i64,
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphProto>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    opset_import: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "25")]
    functions: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct GraphProto {
    #[prost(bytes = "vec", repeated, tag = "1")]
    node: Vec<Vec<u8>>,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(bytes = "vec", repeated, tag = "5")]
    initializer: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "11")]
    input: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "12")]
    output: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(string, repeated, tag = "1")]
    input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    output: Vec<String>,
    #[prost(string, tag = "4")]
    op_type: String,
    #[prost(message, repeated, tag = "5")]
    attribute: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int64, tag = "3")]
    i: i64,
    #[prost(message, optional, tag = "6")]
    g: Option<Subgraph>,
    #[prost(message, repeated, tag = "11")]
    graphs: Vec<Subgraph>,
}

#[derive(Clone, PartialEq, Message)]
struct Subgraph {
    #[prost(message, repeated, tag = "1")]
    node: Vec<Node>,
    #[prost(message, repeated, tag = "12")]
    output: Vec<Named>,
}

/// `ValueInfoProto`, as far as it is needed.
#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

/// `TensorProto`, likewise.
#[derive(Clone, PartialEq, Message)]
struct Weight {
    #[prost(string, tag = "8")]
    name: String,
}
