// SPDX-License-Identifier: MPL-2.0
//! A model in 32-bit floats as one that computes in 16 bits, for libraries that take all types from the file.
//!
//! Inputs and outputs of the graph keep their types. A convolution or a product with weights computes in 16 bits; what follows goes
//! on so until a step that stays in f32, by [`exact`](super::exact). A step between stays in f32 as soon as one of its
//! inputs is: nothing is rounded twice. Where the types of two steps differ, a Cast is between them, once for each value.
//! Weights are converted here, each once, and those that 16 bits would change too much keep their step in f32.
//!
//! A value in 16 bits has a name of its own, so that branches, loops and outputs find what they name in f32.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use half::{bf16, f16};
use prost::Message;

use super::exact::{ExactLayers, StepWork, Steps};
use super::numbers;
use super::operators::{Operator, constant, is_of_onnx, operator, type_made};
use super::raw::{self, Part, RawGraph, RawModel, RawNode, RawValueInfo};
use super::{BFLOAT16, FLOAT, FLOAT16, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use crate::error::{Error, ErrorKind, Result};

/// A type of 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Half {
    /// 11 bits for each number, up to 65504.
    #[default]
    F16,
    /// 8 bits, and the range of f32.
    Bf16,
}

impl Half {
    pub const fn name(self) -> &'static str {
        match self {
            Half::F16 => "fp16",
            Half::Bf16 => "bf16",
        }
    }

    /// As `TensorProto.DataType`.
    const fn number(self) -> i32 {
        match self {
            Half::F16 => FLOAT16,
            Half::Bf16 => BFLOAT16,
        }
    }

    fn bits(self, number: f32) -> u16 {
        match self {
            Half::F16 => f16::from_f32(number).to_bits(),
            Half::Bf16 => bf16::from_f32(number).to_bits(),
        }
    }

    fn rounded(self, number: f32) -> f32 {
        match self {
            Half::F16 => f16::from_f32(number).to_f32(),
            Half::Bf16 => bf16::from_f32(number).to_f32(),
        }
    }
}

/// How a file is cast.
pub struct Casting<'a> {
    pub half: Half,
    pub exact: ExactLayers,
    /// Where the file is from, next to which weights may be.
    pub path: &'a Path,
    pub cancelled: &'a AtomicBool,
}

/// What came of it.
#[derive(Debug)]
pub struct Casted {
    pub onnx: Vec<u8>,
    /// Nodes that compute in 16 bits, of so many.
    pub nodes: usize,
    pub of: usize,
    /// Weights that would have lost too much.
    pub kept: Vec<String>,
}

/// What rounding may change of a weight: this part of its length. Of 4,768 weights of 36 trained and exported models it was 0.0002
/// in f16, at most 0.0004, and 0.0017 in bf16, at most 0.003. It grows where numbers are subnormal in f16, below 6e-5.
const MOST_LOST: f64 = 0.004;

/// Protobuf's own limit; TensorRT's parser and ONNX Runtime have it too.
const MAX_FILE: usize = i32::MAX as usize;

/// Casts a whole ONNX file, which `decoded` is. Nothing, where no step of it would be in 16 bits. Errors have a cause; the caller
/// adds the file's name.
///
/// # Errors
/// `Model`, where the file contradicts itself, or weights cannot be read; `Run`, when it was cancelled.
pub fn cast(file: Bytes, decoded: &ModelProto, how: &Casting<'_>) -> Result<Option<Casted>> {
    let Some(graph) = &decoded.graph else { return Ok(None) };
    let plan = CastPlan::of(graph, how)?;
    let nodes = plan.half.iter().filter(|&&half| half).count();
    if nodes == 0 {
        return Ok(None);
    }
    let broken = |error: prost::DecodeError| Error::new(ErrorKind::Model, "the graph cannot be read").cause(error);
    let mut model = RawModel::decode(file).map_err(broken)?;
    let raw = model.graph.take().unwrap_or_default();
    // Before version 4, each weight was an input too.
    model.ir_version = model.ir_version.max(4);
    let parts = plan.parts(raw).map_err(broken)?;
    let onnx = raw::write(&model, parts, MAX_FILE, |tensor, file| {
        numbers::read(tensor, how.path, how.cancelled, |floats| {
            file.extend(floats.iter().flat_map(|&float| how.half.bits(float).to_le_bytes()));
        })
    })?;
    let of = graph.node.len();
    Ok(Some(Casted { onnx, nodes, of, kept: plan.kept }))
}

/// The names that a graph gives to constants in f32.
#[derive(Default)]
struct Constants<'a> {
    tensors: HashMap<&'a str, Cow<'a, TensorProto>>,
    /// Values that are a constant of another name, by Identity nodes.
    same: HashMap<&'a str, &'a str>,
}

impl<'a> Constants<'a> {
    fn of(graph: &'a GraphProto) -> Self {
        let weights = graph.initializer.iter().filter(|weight| weight.data_type == FLOAT);
        let mut tensors: HashMap<_, _> = weights.map(|weight| (weight.name.as_str(), Cow::Borrowed(weight))).collect();
        let mut same = HashMap::new();
        for node in graph.node.iter().filter(|node| is_of_onnx(node)) {
            let ([output], input) = (&node.output[..], node.input.first().map(String::as_str)) else { continue };
            match (node.op_type.as_str(), input) {
                ("Constant", _) => {
                    let made = constant(node).filter(|tensor| tensor.data_type == FLOAT);
                    tensors.extend(made.map(|tensor| (output.as_str(), Cow::Owned(tensor))));
                }
                ("Identity", Some(input)) => {
                    let root = same.get(input).copied().unwrap_or(input);
                    if tensors.contains_key(root) {
                        same.insert(output.as_str(), root);
                    }
                }
                _ => {}
            }
        }
        Constants { tensors, same }
    }

    /// The name of the constant that a value is.
    fn root(&self, name: &'a str) -> Option<&'a str> {
        let name = self.same.get(name).copied().unwrap_or(name);
        self.tensors.contains_key(name).then_some(name)
    }
}

/// Whether a node is in 16 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeType {
    Single,
    Half,
    /// It computes with constants only: as those that use it.
    AsUsed,
}

/// What is cast in a graph.
struct CastPlan<'a> {
    graph: &'a GraphProto,
    how: &'a Casting<'a>,
    operators: Vec<Option<Operator>>,
    types: Types<'a>,
    /// Which node makes a value.
    makers: Makers<'a>,
    constants: Constants<'a>,
    /// Which nodes compute in 16 bits.
    half: Vec<bool>,
    /// The values that are wanted as they are.
    wanted: HashSet<&'a str>,
    /// Those that are wanted in 16 bits, and their names then.
    twins: HashMap<&'a str, String>,
    /// The weights that lose too much.
    kept: Vec<String>,
}

impl<'a> CastPlan<'a> {
    fn of(graph: &'a GraphProto, how: &'a Casting<'a>) -> Result<Self> {
        let (types, makers) = types(graph)?;
        let mut plan = CastPlan {
            graph,
            how,
            operators: graph.node.iter().map(operator).collect(),
            types,
            makers,
            constants: Constants::of(graph),
            half: Vec::new(),
            wanted: HashSet::new(),
            twins: HashMap::new(),
            kept: Vec::new(),
        };
        let exact = plan.steps().exact(how.exact.at_least_sensitive());
        let is_able = plan.able(&exact)?;
        plan.half = plan.choose(&is_able);
        plan.find_uses();
        Ok(plan)
    }

    /// Whether the node makes a constant, which has no work of its own.
    fn is_constant(&self, index: usize) -> bool {
        self.graph.node[index].output.first().is_some_and(|output| self.constants.root(output).is_some())
    }

    fn computes(&self, index: usize, place: usize) -> bool {
        self.operators[index].is_some_and(|operator| operator.inputs.contains(place))
    }

    fn makes(&self, index: usize, place: usize) -> bool {
        self.operators[index].is_some_and(|operator| operator.outputs.contains(place))
    }

    /// The inputs in whose type a node computes.
    fn inputs(&self, index: usize) -> impl Iterator<Item = &'a str> {
        let inputs = self.graph.node[index].input.iter().enumerate();
        let computed = inputs.filter(move |(place, name)| !name.is_empty() && self.computes(index, *place));
        computed.map(|(_, name)| name.as_str())
    }

    /// The outputs that have this type too.
    fn outputs(&self, index: usize) -> impl Iterator<Item = &'a str> {
        let outputs = self.graph.node[index].output.iter().enumerate();
        let made = outputs.filter(move |(place, name)| !name.is_empty() && self.makes(index, *place));
        made.map(|(_, name)| name.as_str())
    }

    /// Whether a node computes in f32 now.
    fn is_single(&self, index: usize) -> bool {
        let mut inputs = self.inputs(index).peekable();
        inputs.peek().is_some() && inputs.all(|name| self.types.get(name) == Some(&FLOAT)) && !self.is_constant(index)
    }

    fn steps(&self) -> Steps {
        /// Such as the mean of YOLO's distribution of a side: no work to speak of, and the last one before a box.
        const FEW_WEIGHTS: usize = 64;
        let work = |index: usize| {
            let Some(operator) = self.operators[index].filter(|_| self.is_single(index)) else {
                return StepWork::Other;
            };
            if operator.work != StepWork::Weighted {
                return operator.work;
            }
            let weights = self.inputs(index).filter_map(|name| self.constants.root(name));
            match weights.map(|name| numbers::count(&self.constants.tensors[name]).unwrap_or(usize::MAX)).max() {
                Some(count) if count <= FEW_WEIGHTS => StepWork::Light,
                Some(_) => StepWork::Weighted,
                None => StepWork::Product,
            }
        };
        let maker = |name: &String| self.makers.get(name.as_str()).copied();
        Steps {
            work: (0..self.graph.node.len()).map(work).collect(),
            before: self.graph.node.iter().map(|node| node.input.iter().filter_map(maker).collect()).collect(),
            last: self.graph.output.iter().filter_map(|output| maker(&output.name)).collect(),
        }
    }

    /// Which nodes can compute in 16 bits: their numbers are f32 now, and their constants remain what they are.
    fn able(&mut self, exact: &[bool]) -> Result<Vec<bool>> {
        let mut fits: HashMap<&str, bool> = HashMap::new();
        let mut able = vec![false; exact.len()];
        for index in (0..exact.len()).filter(|&index| !exact[index]) {
            let is_light = self.operators[index].is_some_and(|operator| operator.work != StepWork::Sensitive);
            if !is_light || !self.is_single(index) {
                continue;
            }
            able[index] = true;
            let constants: Vec<&str> = self.inputs(index).filter_map(|name| self.constants.root(name)).collect();
            for name in constants {
                if !fits.contains_key(name) {
                    let fit = loses_little(&self.constants.tensors[name], self.how)?;
                    self.kept.extend((!fit).then(|| name.to_string()));
                    fits.insert(name, fit);
                }
                able[index] &= fits[name];
            }
        }
        Ok(able)
    }

    fn choose(&self, able: &[bool]) -> Vec<bool> {
        let mut choices = vec![NodeType::Single; able.len()];
        for index in (0..able.len()).filter(|&index| able[index]) {
            let is_heavy = self.operators[index].is_some_and(|operator| operator.work == StepWork::Weighted);
            let computed = self.inputs(index).filter(|name| self.constants.root(name).is_none());
            let made = |name: &str| self.makers.get(name).map_or(NodeType::Single, |&maker| choices[maker]);
            let made: Vec<NodeType> = computed.map(made).collect();
            choices[index] = match made.iter().all(|&choice| choice == NodeType::AsUsed) {
                true => NodeType::AsUsed,
                false if is_heavy || !made.contains(&NodeType::Single) => NodeType::Half,
                false => NodeType::Single,
            };
        }
        // From the last to the first, so that those that use a value are known.
        let mut in_single: HashSet<&str> = self.named_in_single().collect();
        let mut in_half: HashSet<&str> = HashSet::new();
        for index in (0..able.len()).rev() {
            if choices[index] == NodeType::AsUsed {
                let uses_half = self.outputs(index).any(|name| in_half.contains(name));
                let uses_single = self.outputs(index).any(|name| in_single.contains(name));
                choices[index] = if uses_half && !uses_single { NodeType::Half } else { NodeType::Single };
            }
            for (place, name) in self.graph.node[index].input.iter().enumerate() {
                let is_half = choices[index] == NodeType::Half && self.computes(index, place);
                if is_half { &mut in_half } else { &mut in_single }.insert(name);
            }
        }
        choices.into_iter().map(|choice| choice == NodeType::Half).collect()
    }

    /// What the outputs of the graph, and branches and loops, name.
    fn named_in_single(&self) -> impl Iterator<Item = &'a str> {
        let outputs = self.graph.output.iter().map(|output| output.name.as_str());
        outputs.chain(self.graph.node.iter().flat_map(inside))
    }

    fn find_uses(&mut self) {
        let nodes = &self.graph.node;
        let mut names: HashSet<&str> = self.types.keys().copied().chain(nodes.iter().flat_map(inside)).collect();
        names.extend(nodes.iter().flat_map(|node| node.input.iter().chain(&node.output)).map(String::as_str));
        let mut wanted: HashSet<&str> = self.named_in_single().collect();
        let mut twins: HashMap<&str, String> = HashMap::new();
        let mut taken = HashSet::new();
        let mut twin = |name: &'a str| {
            let name = self.constants.root(name).unwrap_or(name);
            twins.entry(name).or_insert_with(|| {
                let mut twin = format!("{name}_{}", self.how.half.name());
                while names.contains(twin.as_str()) || !taken.insert(twin.clone()) {
                    twin.push('_');
                }
                twin
            });
        };
        for (index, node) in nodes.iter().enumerate().filter(|(index, _)| !self.is_constant(*index)) {
            for (place, name) in node.input.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
                if self.half[index] && self.computes(index, place) {
                    twin(name);
                } else {
                    wanted.insert(name);
                }
            }
            if self.half[index] {
                self.outputs(index).for_each(&mut twin);
            }
        }
        // What such a constant is made of, from the last to the first.
        for (_, node) in nodes.iter().enumerate().rev().filter(|(index, _)| self.is_constant(*index)) {
            if node.output.iter().any(|name| wanted.contains(name.as_str())) {
                wanted.extend(node.input.iter().map(String::as_str));
            }
        }
        (self.wanted, self.twins) = (wanted, twins);
    }

    fn twin(&self, name: &'a str) -> Option<&String> {
        self.twins.get(self.constants.root(name).unwrap_or(name))
    }

    /// The graph in its new form.
    fn parts(&self, raw: RawGraph) -> std::result::Result<Vec<Part<&TensorProto>>, prost::DecodeError> {
        let single = FLOAT;
        let half = self.how.half.number();
        let message = |field: u32| move |bytes: Bytes| Part::Message(field, bytes);
        let mut parts = vec![Part::Message(NAME, raw.name)];
        // Files of IR version 3 have weights among the inputs: one that is there in 16 bits alone would be an input without a value.
        let is_gone = |weight: &&TensorProto| weight.data_type == FLOAT && !self.wanted.contains(weight.name.as_str());
        let gone: HashSet<&str> =
            self.graph.initializer.iter().filter(is_gone).map(|weight| weight.name.as_str()).collect();
        let inputs = self.graph.input.iter().zip(raw.input).filter(|(input, _)| !gone.contains(input.name.as_str()));
        parts.extend(inputs.map(|(_, bytes)| bytes).map(message(INPUT)));
        parts.extend(raw.output.into_iter().map(message(OUTPUT)));
        parts.extend(raw.sparse_initializer.into_iter().map(message(SPARSE_INITIALIZER)));

        for (weight, bytes) in self.graph.initializer.iter().zip(raw.initializer) {
            let name = weight.name.as_str();
            if weight.data_type != FLOAT || self.wanted.contains(name) {
                parts.push(Part::Message(INITIALIZER, bytes));
            }
            if weight.data_type == FLOAT {
                parts.extend(self.half_weight(name));
            }
        }
        let inputs = self.graph.input.iter().map(|input| input.name.as_str());
        let inputs = inputs.filter(|name| self.constants.root(name).is_none());
        parts.extend(inputs.filter_map(|name| self.twin(name).map(|twin| cast_node(name, twin, half))));
        for (index, (node, bytes)) in self.graph.node.iter().zip(raw.node).enumerate() {
            if self.is_constant(index) {
                let is_wanted = node.output.iter().any(|name| self.wanted.contains(name.as_str()));
                parts.extend(is_wanted.then_some(Part::Message(NODE, bytes)));
                parts.extend(node.output.iter().filter_map(|name| self.half_weight(name)));
                continue;
            }
            if !self.half[index] {
                parts.push(Part::Message(NODE, bytes));
                let casts = node.output.iter().filter_map(|name| Some(cast_node(name, self.twin(name)?, half)));
                parts.extend(casts);
                continue;
            }
            let mut raw = RawNode::decode(bytes)?;
            for (place, name) in raw.input.iter_mut().enumerate() {
                if let Some(twin) = self.twin(&node.input[place]).filter(|_| self.computes(index, place)) {
                    name.clone_from(twin);
                }
            }
            for (place, name) in raw.output.iter_mut().enumerate() {
                if self.makes(index, place) && !name.is_empty() {
                    name.clone_from(&self.twins[name.as_str()]);
                }
            }
            parts.push(Part::Message(NODE, raw.encode_to_vec().into()));
            let wanted = self.outputs(index).filter(|name| self.wanted.contains(name));
            parts.extend(wanted.map(|name| cast_node(&self.twins[name], name, single)));
        }
        for (value, bytes) in self.graph.value_info.iter().zip(raw.value_info) {
            let name = value.name.as_str();
            let is_half = self.makers.get(name).is_some_and(|&maker| self.half[maker]);
            if let Some(twin) = self.twins.get(name).filter(|_| is_half) {
                let mut info = RawValueInfo::decode(bytes.clone())?;
                if let Some(tensor) = info.r#type.as_mut().and_then(|of| of.tensor_type.as_mut()) {
                    (info.name, tensor.elem_type) = (twin.clone(), half);
                    parts.push(Part::Message(VALUE_INFO, info.encode_to_vec().into()));
                }
            }
            if !is_half || self.wanted.contains(name) {
                parts.push(Part::Message(VALUE_INFO, bytes));
            }
        }
        Ok(parts)
    }

    /// A constant in 16 bits, where one is wanted and has this name.
    fn half_weight(&self, name: &str) -> Option<Part<&TensorProto>> {
        let tensor = &**self.constants.tensors.get(name)?;
        let (dims, twin) = (tensor.dims.clone(), self.twins.get(name)?.clone());
        let header = TensorProto { dims, data_type: self.how.half.number(), name: twin, ..Default::default() };
        let count = numbers::count(tensor).expect("its numbers were looked at");
        Some(Part::Weight(header.encode_to_vec(), 2 * count, tensor))
    }
}

/// Fields of `GraphProto`.
const NODE: u32 = 1;
const NAME: u32 = 2;
const INITIALIZER: u32 = 5;
const INPUT: u32 = 11;
const OUTPUT: u32 = 12;
const VALUE_INFO: u32 = 13;
const SPARSE_INITIALIZER: u32 = 15;

fn cast_node<T>(from: &str, into: &str, number: i32) -> Part<T> {
    /// `AttributeProto`; readers want the type of the attribute too.
    #[derive(Clone, PartialEq, Message)]
    struct IntAttribute {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(int64, tag = "3")]
        i: i64,
        #[prost(int32, tag = "20")]
        kind: i32,
    }
    const INT: i32 = 2;
    let to = IntAttribute { name: "to".into(), i: number.into(), kind: INT };
    let node = RawNode {
        input: vec![from.into()],
        output: vec![into.into()],
        name: Bytes::from(format!("{into} by a cast")),
        op_type: Bytes::from_static(b"Cast"),
        attribute: vec![to.encode_to_vec().into()],
        ..Default::default()
    };
    Part::Message(NODE, node.encode_to_vec().into())
}

/// Names that branches and loops of a node use; some are their own.
fn inside(node: &NodeProto) -> Vec<&str> {
    let mut names = Vec::new();
    let mut graphs: Vec<&GraphProto> = node.graphs().collect();
    while let Some(graph) = graphs.pop() {
        names.extend(graph.output.iter().map(|output| output.name.as_str()));
        for node in &graph.node {
            names.extend(node.input.iter().map(String::as_str));
            graphs.extend(node.graphs());
        }
    }
    names
}

/// By the names of values.
type Types<'a> = HashMap<&'a str, i32>;
type Makers<'a> = HashMap<&'a str, usize>;

/// The types of values, and the nodes that make them. What is not known has none.
fn types(graph: &GraphProto) -> Result<(Types<'_>, Makers<'_>)> {
    fn declared(value: &ValueInfoProto) -> Option<(&str, i32)> {
        Some((value.name.as_str(), value.r#type.as_ref()?.tensor_type.as_ref()?.elem_type))
    }
    let named: Types = graph.value_info.iter().filter_map(declared).collect();
    let mut types: Types = graph.input.iter().filter_map(declared).collect();
    let twice = |name: &str| {
        Error::new(ErrorKind::Model, format!("the value “{name}” is made twice"))
            .remedy("Export the model again; this file contradicts itself")
    };
    let mut weights = HashSet::new();
    for weight in &graph.initializer {
        if !weights.insert(weight.name.as_str()) {
            return Err(twice(&weight.name));
        }
        types.insert(&weight.name, weight.data_type);
    }
    let given: HashSet<&str> = types.keys().copied().collect();
    let mut makers = HashMap::new();
    for (index, node) in graph.node.iter().enumerate() {
        for (place, name) in node.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            if given.contains(name.as_str()) || makers.insert(name.as_str(), index).is_some() {
                return Err(twice(name));
            }
            let of_input = |place: usize| types.get(node.input.get(place)?.as_str()).copied();
            let made = type_made(node, place, of_input).or_else(|| named.get(name.as_str()).copied());
            types.extend(made.map(|made| (name.as_str(), made)));
        }
    }
    Ok((types, makers))
}

/// Whether a constant is nearly the same in 16 bits.
fn loses_little(tensor: &TensorProto, how: &Casting<'_>) -> Result<bool> {
    let (mut length, mut lost, mut overflows) = (0.0, 0.0, false);
    numbers::read(tensor, how.path, how.cancelled, |floats| {
        for &float in floats.iter().filter(|float| float.is_finite()) {
            let difference = f64::from(how.half.rounded(float)) - f64::from(float);
            overflows |= difference.is_infinite();
            length += f64::from(float).powi(2);
            lost += difference.powi(2);
        }
    })?;
    Ok(!overflows && lost <= MOST_LOST.powi(2) * length)
}

#[cfg(test)]
mod tests;
