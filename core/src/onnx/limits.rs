// SPDX-License-Identifier: MPL-2.0
//! Refuses models that would end the process or fill the memory: rten aborts where an allocation fails, and its planner
//! recurses for each node of a path; ONNX Runtime and OpenVINO allocate what a file asks for.
//!
//! A static check: sizes from a graph's constants are a lower bound, and sizes that are only known at run time are not
//! checked.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;

use super::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto,
    ValueInfoProto,
};
use crate::error::{Error, ErrorKind, Result};

/// Nodes of a graph, those in branches and loops included. Detectors have hundreds to some thousands, and the time that rten
/// takes to load a graph grows with the square: 20,000 take 7 s.
const MAX_NODES: usize = 20_000;

/// Elements of a tensor; 2 GiB in f32.
const MAX_ELEMENTS: f64 = (1u64 << 29) as f64;

/// What a resize may enlarge a tensor by; 64 in both directions.
const MAX_SCALE: f64 = 4096.0;

/// Padding at one end of an axis, where a window is not larger.
const MAX_PAD: i64 = 64;

/// Sides of windows of pooling, and what is added to an axis: pictures have no longer sides.
const MAX_WINDOW: i64 = 16384;

/// Calls of functions and branches within each other. Exporters have a function in another one for each module in another one.
const MAX_DEPTH: usize = 100;

/// Numbers in a constant that is looked at: more are no shape.
const MAX_CONSTANT: usize = 64;

/// Looks at the graph of a model; the number of nodes in it. Errors have a cause; the caller adds the file's name.
pub fn check(graph: &GraphProto) -> Result<usize> {
    let nodes = count(graph);
    check_count(nodes)?;
    Scope::default().check(graph)?;
    Ok(nodes)
}

fn check_count(nodes: usize) -> Result<()> {
    if nodes <= MAX_NODES {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Model, format!("its graph has {nodes} nodes, and the CPU takes {MAX_NODES}"))
        .remedy("Export the model with its loops kept as loops, or run it with TensorRT"))
}

/// Looks at a model for a library that also takes functions, sparse weights, and weights in attributes of nodes.
/// Returns what the file says of weights in other files.
pub fn check_whole(model: &ModelProto) -> Result<Vec<&StringStringEntryProto>> {
    let graph = model.graph.as_ref().expect("the caller has its graph");
    check(graph)?;
    let functions: HashMap<_, _> =
        model.functions.iter().map(|function| ((&*function.domain, &*function.name), function)).collect();
    let mut sizes = HashMap::new();
    check_count(expanded(&mut graph.node.iter(), &functions, &mut sizes, 0)?.nodes)?;
    let mut graphs = vec![graph];
    let mut bodies: Vec<&NodeProto> = Vec::new();
    for function in &model.functions {
        bodies.extend(&function.node);
        // Its inputs are not known; its constants are.
        let body = GraphProto { node: function.node.clone(), ..Default::default() };
        Scope::default().check(&body)?;
    }
    let mut entries = Vec::new();
    while let Some(graph) = graphs.pop() {
        entries.extend(graph.initializer.iter().flat_map(|weight| &weight.external_data));
        for node in graph.node.iter().chain(std::mem::take(&mut bodies)) {
            check_attributes(node)?;
            graphs.extend(node.graphs());
        }
        if !graph.sparse_initializer.is_empty() {
            return Err(sparse());
        }
    }
    Ok(entries)
}

/// Weights in attributes may not be in other files, and not sparse.
fn check_attributes(node: &NodeProto) -> Result<()> {
    let attributes = || node.attribute.iter();
    if attributes().any(|attribute| attribute.sparse_tensor.is_some() || !attribute.sparse_tensors.is_empty()) {
        return Err(sparse());
    }
    if attributes()
        .flat_map(|attribute| attribute.t.iter().chain(&attribute.tensors))
        .any(|t| !t.external_data.is_empty())
    {
        let what = format!("{} (“{}” in its graph) has a constant in another file", node.op_type, node.name);
        return Err(Error::new(ErrorKind::Model, what).remedy("Export the model as one file"));
    }
    Ok(())
}

fn sparse() -> Error {
    Error::new(ErrorKind::Model, "it has sparse weights").remedy("Export the model with dense weights")
}

/// What a graph becomes once each call of a function is replaced by its body.
#[derive(Clone, Copy, Default)]
struct Expanded {
    nodes: usize,
    /// Functions and branches within each other.
    height: usize,
}

fn expanded<'a>(
    nodes: &mut dyn Iterator<Item = &'a NodeProto>,
    functions: &HashMap<(&'a str, &'a str), &'a FunctionProto>,
    known: &mut HashMap<(&'a str, &'a str), Option<Expanded>>,
    depth: usize,
) -> Result<Expanded> {
    check_depth(depth)?;
    let mut all = Expanded::default();
    for node in nodes {
        let inner = expanded(&mut node.graphs().flat_map(|graph| &graph.node), functions, known, depth + 1)?;
        let name = (&*node.domain, &*node.op_type);
        let body = match (functions.get(&name), known.get(&name)) {
            (None, _) => Expanded { nodes: 1, height: 0 },
            (Some(_), Some(Some(known))) => *known,
            (Some(_), Some(None)) => {
                return Err(Error::new(ErrorKind::Model, format!("its function {} calls itself", name.1))
                    .remedy("Export the model again; this file contradicts itself"));
            }
            (Some(function), None) => {
                known.insert(name, None);
                let body = expanded(&mut function.node.iter(), functions, known, depth + 1)?;
                known.insert(name, Some(body));
                body
            }
        };
        let height = 1 + inner.height.max(body.height);
        // Of a function that is known, nothing else looks at it.
        check_depth(depth + height)?;
        all.nodes = all.nodes.saturating_add(inner.nodes).saturating_add(body.nodes);
        all.height = all.height.max(height);
    }
    Ok(all)
}

fn check_depth(depth: usize) -> Result<()> {
    if depth <= MAX_DEPTH {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Model, format!("its functions call each other more than {MAX_DEPTH} deep"))
        .remedy("Export the model with its functions inlined"))
}

/// What is known of the values of a graph.
#[derive(Default)]
struct Scope<'a> {
    /// Of the graph that this one is a branch or a loop of.
    outer: Option<&'a Scope<'a>>,
    constants: HashMap<String, Vec<f64>>,
    /// Elements, at least.
    sizes: HashMap<String, f64>,
}

fn refused(what: impl Display) -> Error {
    Error::new(ErrorKind::Model, format!("it asks for more memory than a detector needs: {what}"))
        .remedy("Export the model again; this file is damaged, or made to exhaust the memory")
}

impl Scope<'_> {
    fn constant_of(&self, name: &str) -> Option<&[f64]> {
        let outer = || self.outer.and_then(|outer| outer.constant_of(name));
        self.constants.get(name).map(Vec::as_slice).or_else(outer)
    }

    fn size_of(&self, name: &str) -> Option<f64> {
        let outer = || self.outer.and_then(|outer| outer.size_of(name));
        self.sizes.get(name).copied().or_else(outer)
    }

    fn check(&mut self, graph: &GraphProto) -> Result<()> {
        for tensor in &graph.initializer {
            self.constant(&tensor.name, tensor)?;
        }
        let inputs: HashSet<&str> = graph.input.iter().map(|input| input.name.as_str()).collect();
        for value in graph.input.iter().chain(&graph.output).chain(&graph.value_info) {
            let Some(elements) = elements(value) else { continue };
            if elements > MAX_ELEMENTS {
                return Err(refused(format!("the tensor {} has {elements:e} elements", value.name)));
            }
            if inputs.contains(value.name.as_str()) {
                self.sizes.entry(value.name.clone()).or_insert(elements);
            }
        }
        for node in &graph.node {
            let elements = self.node(node)?;
            if elements > MAX_ELEMENTS {
                let what = format!("{} (“{}” in its graph) makes {elements:e} elements", node.op_type, node.name);
                return Err(refused(what));
            }
            self.sizes.extend(node.output.iter().map(|name| (name.clone(), elements)));
            for inner in node.graphs() {
                Scope { outer: Some(&*self), ..Scope::default() }.check(inner)?;
            }
        }
        Ok(())
    }

    fn constant(&mut self, name: &str, tensor: &TensorProto) -> Result<()> {
        let elements = product(tensor.dims.iter().map(|&dim| dim as f64));
        if elements > 4.0 * MAX_ELEMENTS {
            return Err(refused(format!("the weight {name} has {elements:e} elements")));
        }
        self.sizes.insert(name.into(), elements);
        if elements <= MAX_CONSTANT as f64 {
            self.constants.insert(name.into(), values(tensor));
        }
        Ok(())
    }

    /// The elements of each of a node's outputs, at least.
    fn node(&mut self, node: &NodeProto) -> Result<f64> {
        let name = |i: usize| node.input.get(i).map(String::as_str).unwrap_or_default();
        let attribute = |name: &str| node.attribute.iter().find(|attribute| attribute.name == name);
        let numbers = |name: &str| attribute(name).map(numbers).unwrap_or_default();
        if node.op_type == "Constant" {
            let value = attribute("value").and_then(|value| value.t.as_ref());
            if let (Some(tensor), Some(output)) = (value, node.output.first()) {
                self.constant(output, tensor)?;
            } else if let Some(output) = node.output.first() {
                let values = ["value_int", "value_ints", "value_float", "value_floats"].map(&numbers);
                self.constants.insert(output.clone(), values.concat());
            }
        }
        let constant = |i: usize| self.constant_of(name(i)).unwrap_or_default();
        let size = |i: usize| self.size_of(name(i)).unwrap_or(1.0);
        let largest = || (0..node.input.len()).map(size).fold(0.0, f64::max);
        let of = |i: usize| product(constant(i).iter().copied());
        let too_much = |what: String| Err(refused(format!("{} (“{}” in its graph) {what}", node.op_type, node.name)));

        Ok(match node.op_type.as_str() {
            "ConstantOfShape" => of(0),
            "Expand" => of(1).max(size(0)),
            "Tile" => of(1) * size(0),
            "Range" => match (constant(0), constant(1), constant(2)) {
                ([start, ..], [limit, ..], [delta, ..]) => ((limit - start) / delta).max(0.0),
                _ => 1.0,
            },
            "OneHot" => size(0) * constant(1).first().copied().unwrap_or(1.0),
            "TopK" => match constant(1).first().copied().or_else(|| numbers("k").first().copied()) {
                Some(k) => k.max(1.0),
                None => 1.0,
            },
            "Resize" | "Upsample" => {
                let scales = if node.op_type == "Resize" && node.input.len() > 2 { of(2) } else { of(1) };
                let scales = if numbers("scales").is_empty() { scales } else { product(numbers("scales")) };
                if scales > MAX_SCALE {
                    return too_much(format!("enlarges a tensor {scales:e} times"));
                }
                if node.op_type == "Resize" && !name(3).is_empty() { of(3) } else { size(0) * scales }
            }
            "Pad" => {
                let pads = if node.input.len() > 1 { constant(1).to_vec() } else { numbers("pads") };
                if pads.iter().any(|&pad| pad > MAX_WINDOW as f64) {
                    return too_much(format!("pads by {pads:?}"));
                }
                let half = pads.len() / 2;
                let grown = (0..half).map(|i| 1.0 + (pads[i] + pads[i + half]).max(0.0));
                product(grown).max(size(0) + pads.iter().sum::<f64>().max(0.0))
            }
            "Conv" | "ConvTranspose" | "MaxPool" | "AveragePool" | "LpPool" | "ConvInteger" => {
                let kernel = numbers("kernel_shape");
                let pools = node.op_type.ends_with("Pool");
                if pools && kernel.iter().any(|&side| side > MAX_WINDOW as f64) {
                    return too_much(format!("has a window of {kernel:?}"));
                }
                let pads = numbers("pads");
                let dilations = numbers("dilations");
                let half = pads.len() / 2;
                for i in 0..half {
                    let dilation = dilations.get(i).copied().unwrap_or(1.0);
                    let window = kernel.get(i).map_or(1.0, |side| (side - 1.0) * dilation + 1.0);
                    // With no more than that, the result is hardly larger than what comes in.
                    let limit = (MAX_PAD * 2) as f64;
                    let pad = pads[i].max(0.0) + pads[i + half].max(0.0);
                    if pad > limit.max(window.min(MAX_WINDOW as f64)) {
                        return too_much(format!("pads by {pads:?}"));
                    }
                }
                if node.op_type == "ConvTranspose"
                    && numbers("strides").iter().chain(&numbers("output_padding")).any(|&side| side > MAX_PAD as f64)
                {
                    return too_much("has strides or output padding out of all proportion".into());
                }
                1.0
            }
            "Concat" => (0..node.input.len()).map(size).sum(),
            "Identity" | "Relu" | "LeakyRelu" | "Sigmoid" | "Tanh" | "Exp" | "Sqrt" | "Neg" | "Abs" | "Cast"
            | "Add" | "Sub" | "Mul" | "Div" | "Transpose" | "Reshape" | "Flatten" | "Unsqueeze" | "Squeeze"
            | "Softmax" | "Clip" => {
                let shaped = matches!(node.op_type.as_str(), "Reshape" | "Unsqueeze" | "Squeeze" | "Clip");
                if shaped { size(0) } else { largest() }
            }
            "Constant" => node.output.first().and_then(|name| self.sizes.get(name)).copied().unwrap_or(1.0),
            // Their results are smaller than what they are made of, or that is not known.
            _ => 1.0,
        })
    }
}

/// Of dimensions; those that are open count as 1.
fn product(dims: impl IntoIterator<Item = f64>) -> f64 {
    dims.into_iter().map(|dim| if dim < 0.0 { 1.0 } else { dim }).product()
}

/// Nodes, those in branches and loops included.
fn count(graph: &GraphProto) -> usize {
    graph.node.iter().map(|node| 1 + node.graphs().map(count).sum::<usize>()).sum()
}

/// The numbers of an attribute.
fn numbers(attribute: &AttributeProto) -> Vec<f64> {
    let ints = attribute.i.iter().chain(&attribute.ints).map(|&int| int as f64);
    ints.chain(attribute.f.iter().chain(&attribute.floats).map(|&float| float.into())).collect()
}

/// The numbers of a constant.
fn values(tensor: &TensorProto) -> Vec<f64> {
    let (words, _) = tensor.raw_data.as_chunks::<4>();
    let (doubles, _) = tensor.raw_data.as_chunks::<8>();
    match tensor.data_type {
        1 if !tensor.float_data.is_empty() => tensor.float_data.iter().map(|&value| value.into()).collect(),
        6 if !tensor.int32_data.is_empty() => tensor.int32_data.iter().map(|&value| value.into()).collect(),
        7 if !tensor.int64_data.is_empty() => tensor.int64_data.iter().map(|&value| value as f64).collect(),
        1 => words.iter().map(|word| f32::from_le_bytes(*word).into()).collect(),
        6 => words.iter().map(|word| i32::from_le_bytes(*word).into()).collect(),
        7 => doubles.iter().map(|word| i64::from_le_bytes(*word) as f64).collect(),
        _ => Vec::new(),
    }
}

/// How many elements a value has by the graph's description.
fn elements(value: &ValueInfoProto) -> Option<f64> {
    let dims = &value.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref()?.dim;
    Some(product(dims.iter().map(|dim| dim.dim_value.map_or(1.0, |dim| dim as f64))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::{TensorType, TypeProto};

    fn ints(name: &str, values: &[i64]) -> AttributeProto {
        AttributeProto { name: name.into(), ints: values.into(), ..Default::default() }
    }

    fn weight(name: &str, values: &[i64]) -> TensorProto {
        let (dims, int64_data) = (vec![values.len() as i64], values.to_vec());
        TensorProto { name: name.into(), data_type: 7, dims, int64_data, ..Default::default() }
    }

    fn node(op_type: &str, input: &[&str], output: &str, attribute: Vec<AttributeProto>) -> NodeProto {
        let input = input.iter().map(|name| name.to_string()).collect();
        NodeProto {
            op_type: op_type.into(),
            input,
            output: vec![output.into()],
            attribute,
            name: "n".into(),
            ..Default::default()
        }
    }

    fn checked(node: Vec<NodeProto>, initializer: Vec<TensorProto>) -> Result<usize> {
        let graph = GraphProto { node, initializer, ..Default::default() };
        check(&graph)
    }

    #[test]
    fn large_constants_are_refused() {
        let huge = 1i64 << 40;
        for (op, input, attributes, weights) in [
            ("ConstantOfShape", &["w"][..], vec![], vec![weight("w", &[huge])]),
            ("Expand", &["x", "w"], vec![], vec![weight("w", &[1 << 20, 1 << 20])]),
            ("Tile", &["x", "w"], vec![], vec![weight("w", &[huge])]),
            ("Range", &["z", "w", "one"], vec![], vec![weight("z", &[0]), weight("w", &[huge]), weight("one", &[1])]),
            ("OneHot", &["x", "w", "v"], vec![], vec![weight("w", &[huge])]),
            ("TopK", &["x", "w"], vec![], vec![weight("w", &[huge])]),
            ("Resize", &["x", "", "", "w"], vec![], vec![weight("w", &[1, 1, 1 << 20, 1 << 20])]),
            ("Resize", &["x", "", "w"], vec![], vec![weight("w", &[1, 1, 99, 99])]),
            ("Tile", &["r", "w"], vec![], vec![weight("w", &[huge])]),
            ("Pad", &["x", "w"], vec![], vec![weight("w", &[0, 0, 1 << 20, 0, 0, 1 << 20])]),
            ("Conv", &["x", "w"], vec![ints("pads", &[70, 0, 70, 0])], vec![]),
            ("MaxPool", &["x"], vec![ints("kernel_shape", &[3, 3]), ints("pads", &[1 << 20; 4])], vec![]),
            ("MaxPool", &["x"], vec![ints("kernel_shape", &[1 << 30, 1])], vec![]),
            ("ConvTranspose", &["x", "w"], vec![ints("strides", &[1 << 20, 1])], vec![]),
        ] {
            // What comes in from an operator that is not looked into has one element at least.
            let nodes = vec![node("Gather", &["x"], "r", vec![]), node(op, input, "y", attributes)];
            let error = checked(nodes, weights).unwrap_err();
            assert!(error.message().contains(op) && error.message().contains("Export the model again"), "{error}");
        }
        // Of many elements, few tiles are too many.
        let large = || node("ConstantOfShape", &["w"], "r", vec![]);
        for (op, more) in [("Tile", 1), ("Tile", 3), ("Expand", 3)] {
            let weights = vec![weight("w", &[1 << 28]), weight("t", &[more])];
            let found = checked(vec![large(), node(op, &["r", "t"], "y", vec![])], weights);
            let is_refused = found.is_err_and(|error| error.message().contains(op));
            assert_eq!(is_refused, op == "Tile" && more == 3, "{op} {more}");
        }
        // Each doubles what is there.
        let doubled = (0..40).map(|i| {
            let (from, to) = (format!("c{i}"), format!("c{}", i + 1));
            node("Concat", &[&from, &from], &to, vec![ints("axis", &[0])])
        });
        let error = checked(doubled.collect(), vec![weight("c0", &[1, 2])]).unwrap_err();
        assert!(error.message().contains("Concat"), "{error}");
    }

    fn function(name: &str, node: Vec<NodeProto>) -> FunctionProto {
        FunctionProto { name: name.into(), domain: "own".into(), node }
    }

    fn call(name: &str) -> NodeProto {
        NodeProto { domain: "own".into(), ..node(name, &["x"], "y", vec![]) }
    }

    /// The error of a model of these functions, which calls f0, and has this attribute.
    fn whole(functions: Vec<FunctionProto>, attribute: AttributeProto) -> Result<usize> {
        let nodes = vec![call("f0"), node("Constant", &[], "z", vec![attribute])];
        let graph = Some(GraphProto { node: nodes, ..Default::default() });
        check_whole(&ModelProto { graph, functions, ..Default::default() }).map(|entries| entries.len())
    }

    #[test]
    fn functions_count_as_often_as_they_are_called() {
        let doubling = |depth: usize| {
            let body = |i: usize| if i < depth { vec![call(&format!("f{}", i + 1)); 2] } else { vec![] };
            (0..=depth).map(|i| function(&format!("f{i}"), body(i))).collect::<Vec<_>>()
        };
        assert!(whole(doubling(4), ints("i", &[])).is_ok());
        // Each walk along them is short, because what follows is known already.
        let chain = |depth: usize| {
            let body = |i: usize| if i < depth { vec![call(&format!("f{}", i + 1))] } else { vec![] };
            let functions = (0..=depth).map(|i| function(&format!("f{i}"), body(i))).collect::<Vec<_>>();
            let nodes = (0..=depth).rev().step_by(50).map(|i| call(&format!("f{i}"))).collect();
            let graph = Some(GraphProto { node: nodes, ..Default::default() });
            check_whole(&ModelProto { graph, functions, ..Default::default() }).map(drop)
        };
        assert!(chain(90).is_ok());
        let error = chain(300).unwrap_err();
        assert!(error.message().contains("call each other more than 100 deep"), "{error}");
        let leaf = |mut functions: Vec<FunctionProto>| {
            functions.last_mut().unwrap().node = vec![node("Relu", &["x"], "y", vec![])];
            functions
        };
        assert!(whole(leaf(doubling(13)), ints("i", &[])).is_ok());
        let error = whole(leaf(doubling(60)), ints("i", &[])).unwrap_err();
        assert!(error.message().contains("nodes, and the CPU takes"), "{error}");
        let error = whole(vec![function("f0", vec![call("f1")]), function("f1", vec![call("f0")])], ints("i", &[]));
        assert!(error.unwrap_err().message().contains("calls itself"));
        let chain = (0..20_000).map(|i| function(&format!("f{i}"), vec![call(&format!("f{}", i + 1))])).collect();
        assert!(whole(chain, ints("i", &[])).unwrap_err().message().contains("call each other more than 100 deep"));
        let huge = vec![node("ConstantOfShape", &["w"], "y", vec![])];
        let constant = AttributeProto { t: Some(weight("w", &[1 << 40])), name: "value".into(), ..Default::default() };
        let huge = [vec![node("Constant", &[], "w", vec![constant])], huge].concat();
        assert!(whole(vec![function("f0", huge)], ints("i", &[])).unwrap_err().message().contains("more memory"));
    }

    #[test]
    fn constants_in_other_files_or_sparse_ones_are_refused() {
        let entry = StringStringEntryProto { key: "location".into(), value: "/etc/passwd".into() };
        let outside = TensorProto { external_data: vec![entry], ..weight("w", &[1]) };
        let attribute = AttributeProto { tensors: vec![outside.clone()], ..Default::default() };
        let own = vec![function("f0", vec![])];
        assert!(whole(own.clone(), attribute).unwrap_err().message().contains("constant in another file"));
        let inside = vec![function(
            "f0",
            vec![node("Constant", &[], "y", vec![AttributeProto { t: Some(outside.clone()), ..Default::default() }])],
        )];
        assert!(whole(inside, ints("i", &[])).unwrap_err().message().contains("constant in another file"));
        let sparse = AttributeProto { sparse_tensor: Some(Default::default()), ..Default::default() };
        assert!(whole(own.clone(), sparse).unwrap_err().message().contains("sparse"));
        let graph = GraphProto { initializer: vec![outside], ..Default::default() };
        let nested = AttributeProto { g: Some(graph), ..Default::default() };
        assert_eq!(whole(own, nested).unwrap(), 1, "to be checked as those of the graph");
    }

    #[test]
    fn usual_graphs_pass() {
        let pool = vec![ints("kernel_shape", &[13, 13]), ints("pads", &[6; 4])];
        let nodes = vec![
            node("MaxPool", &["x"], "y", pool),
            node("Conv", &["y", "k"], "z", vec![ints("kernel_shape", &[3, 3]), ints("pads", &[1; 4])]),
            node("Resize", &["z", "", "scales"], "u", vec![]),
            node("Tile", &["u", "tiles"], "t", vec![]),
            node("TopK", &["t", "k"], "v", vec![]),
        ];
        let weights = vec![weight("scales", &[1, 1, 2, 2]), weight("tiles", &[1, 8400, 4]), weight("k", &[300])];
        assert_eq!(checked(nodes, weights).unwrap(), 5);
    }

    #[test]
    fn branches_know_the_constants_around_them() {
        let tile = |count: i64| {
            let inner = GraphProto { node: vec![node("Tile", &["x", "w"], "y", vec![])], ..Default::default() };
            let branch = |graph| AttributeProto { g: Some(graph), ..Default::default() };
            let outer = GraphProto { node: vec![node("If", &["c"], "z", vec![branch(inner)])], ..Default::default() };
            checked(vec![node("If", &["c"], "z", vec![branch(outer)])], vec![weight("w", &[count])])
        };
        assert_eq!(tile(4).unwrap(), 3);
        assert!(tile(1 << 40).unwrap_err().message().contains("Tile"));
    }

    /// What is known of the values around a branch is not copied for each.
    #[test]
    fn many_branches_and_many_weights_take_no_long_time() {
        let branch = AttributeProto { g: Some(GraphProto::default()), ..Default::default() };
        let names = (0..MAX_NODES).map(|at| format!("w{at}"));
        let weights = names.map(|name| TensorProto { name, ..TensorProto::default() }).collect();
        let nodes = vec![node("If", &["c"], "z", vec![branch]); MAX_NODES];
        assert_eq!(checked(nodes, weights).unwrap(), MAX_NODES);
        let tensor = TensorType { elem_type: 1, shape: Some(Default::default()) };
        let of_tensor = Some(TypeProto { tensor_type: Some(tensor) });
        let value = |at: usize| ValueInfoProto { name: format!("x{at}"), r#type: of_tensor.clone() };
        let mut graph = GraphProto { input: (0..MAX_NODES).map(value).collect(), ..Default::default() };
        graph.value_info.clone_from(&graph.input);
        assert_eq!(check(&graph).unwrap(), 0);
    }

    #[test]
    fn the_number_of_nodes_is_limited() {
        let chain = |count: usize| checked(vec![node("Relu", &["x"], "x", vec![]); count], Vec::new());
        assert_eq!(chain(MAX_NODES).unwrap(), MAX_NODES);
        assert!(chain(MAX_NODES + 1).unwrap_err().message().contains("20001 nodes"));
    }
}
