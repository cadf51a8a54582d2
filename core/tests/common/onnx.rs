// SPDX-License-Identifier: MPL-2.0
//! Writes small ONNX files, so that tests say in place which model they mean.
//!
//! ```ignore
//! Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("output0", &[1, 2, 6], &values).save(&path);
//! ```

use std::path::Path;

use prost::Message;

pub const F32: i32 = 1;
pub const U8: i32 = 2;
pub const I8: i32 = 3;
pub const I32: i32 = 6;
pub const I64: i32 = 7;
pub const STRING: i32 = 8;
pub const BOOL: i32 = 9;
pub const F16: i32 = 10;
pub const F64: i32 = 11;
pub const BF16: i32 = 16;

/// A graph in the making.
#[derive(Default)]
pub struct Graph {
    model: ModelProto,
}

impl Graph {
    pub fn new() -> Self {
        let opset = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
        let model =
            ModelProto { ir_version: 8, opset_import: opset, graph: Some(GraphProto::default()), ..Default::default() };
        Graph { model }
    }

    /// With another version of ONNX's own operators than 17.
    pub fn opset(mut self, version: i64) -> Self {
        self.model.opset_import[0].version = version;
        self
    }

    /// A graph from a file, if it has nothing that this cannot write.
    pub fn load(path: &str) -> Self {
        let bytes = std::fs::read(path).unwrap();
        Graph { model: ModelProto::decode(&bytes[..]).unwrap() }
    }

    /// The same for batches of that many, where inputs, outputs and reshapes say 1.
    pub fn with_batch(mut self, batch: &str) -> Self {
        let graph = self.graph();
        for value in graph.input.iter_mut().chain(&mut graph.output) {
            let shape = value.r#type.as_mut().and_then(|t| t.tensor_type.as_mut()).and_then(|t| t.shape.as_mut());
            shape.unwrap().dim[0] = dimension(batch);
        }
        let shapes: Vec<&String> =
            graph.node.iter().filter(|node| node.op_type == "Reshape").map(|node| &node.input[1]).collect();
        for weight in graph.initializer.iter_mut().filter(|weight| shapes.contains(&&weight.name)) {
            // The batch is what the input has, by 0; -1 says so of one dimension only.
            let (shape, _) = weight.raw_data.as_mut().unwrap().as_chunks_mut();
            let others_are_open = shape[1..].contains(&(-1i64).to_le_bytes());
            shape[0] = if others_are_open { 0i64 } else { -1 }.to_le_bytes();
        }
        self
    }

    fn graph(&mut self) -> &mut GraphProto {
        self.model.graph.as_mut().unwrap()
    }

    /// An input; dimensions that are no numbers are open.
    pub fn input(mut self, name: &str, elem_type: i32, dims: &[&str]) -> Self {
        self.graph().input.push(value(name, elem_type, dims));
        self
    }

    /// Declares an output that some node makes.
    pub fn output(mut self, name: &str, elem_type: i32, dims: &[&str]) -> Self {
        self.graph().output.push(value(name, elem_type, dims));
        self
    }

    /// So that others can be declared.
    pub fn without_outputs(mut self) -> Self {
        self.graph().output.clear();
        self
    }

    pub fn node(mut self, op_type: &str, inputs: &[&str], outputs: &[&str], attributes: Vec<AttributeProto>) -> Self {
        let strings = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        self.graph().node.push(NodeProto {
            name: format!("node_{}", outputs.join("_")),
            op_type: op_type.into(),
            input: strings(inputs),
            output: strings(outputs),
            attribute: attributes,
        });
        self
    }

    /// An output that is always the same: an f32 tensor.
    pub fn constant(mut self, name: &str, dims: &[i64], values: &[f32]) -> Self {
        let weight = format!("{name}_value");
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self = self.weight(&weight, F32, dims, raw);
        let texts: Vec<String> = dims.iter().map(i64::to_string).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.node("Identity", &[&weight], &[name], Vec::new()).output(name, F32, &texts)
    }

    /// A weight, as its little-endian bytes.
    pub fn weight(mut self, name: &str, data_type: i32, dims: &[i64], raw_data: Vec<u8>) -> Self {
        let weight = TensorProto {
            dims: dims.to_vec(),
            data_type,
            name: name.into(),
            raw_data: Some(raw_data),
            ..Default::default()
        };
        self.graph().initializer.push(weight);
        self
    }

    /// One f32 weight that lies in another file.
    pub fn external_weight(mut self, name: &str, file: &str) -> Self {
        let entry = |(key, text): (&str, &str)| StringStringEntryProto { key: key.into(), value: text.into() };
        self = self.weight(name, F32, &[1], Vec::new());
        let weight = self.graph().initializer.last_mut().unwrap();
        weight.raw_data = None;
        weight.external_data = [("location", file), ("offset", "0"), ("length", "4")].map(entry).into();
        weight.data_location = 1;
        self
    }

    /// Names of the inputs of all nodes of that type, at that place.
    pub fn inputs_of(&self, op_type: &str, place: usize) -> Vec<String> {
        let nodes = self.model.graph.iter().flat_map(|graph| &graph.node);
        nodes.filter(|node| node.op_type == op_type).map(|node| node.input[place].clone()).collect()
    }

    /// Gives these inputs another name, where they have that one.
    pub fn renamed_inputs(mut self, op_type: &str, place: usize, name: &str, other: &str) -> Self {
        let nodes = self.graph().node.iter_mut().filter(|node| node.op_type == op_type && node.input[place] == name);
        nodes.for_each(|node| node.input[place] = other.into());
        self
    }

    /// Adds a node before all others.
    pub fn node_first(self, op_type: &str, inputs: &[&str], output: &str, attributes: Vec<AttributeProto>) -> Self {
        self.node_at(0, op_type, inputs, output, attributes)
    }

    /// Adds a node behind the one that makes a value, or before all others for an input.
    pub fn node_behind(
        mut self,
        made: &str,
        op_type: &str,
        inputs: &[&str],
        output: &str,
        attributes: Vec<AttributeProto>,
    ) -> Self {
        let maker = self.graph().node.iter().position(|node| node.output.iter().any(|name| name == made));
        self.node_at(maker.map_or(0, |maker| maker + 1), op_type, inputs, output, attributes)
    }

    fn node_at(
        self,
        place: usize,
        op_type: &str,
        inputs: &[&str],
        output: &str,
        attributes: Vec<AttributeProto>,
    ) -> Self {
        let mut graph = self.node(op_type, inputs, &[output], attributes);
        let node = graph.graph().node.pop().unwrap();
        graph.graph().node.insert(place, node);
        graph
    }

    /// Dimensions and numbers of an f32 weight.
    pub fn floats(&self, name: &str) -> (Vec<i64>, Vec<f32>) {
        let mut weights = self.model.graph.iter().flat_map(|graph| &graph.initializer);
        let weight = weights.find(|weight| weight.name == name).unwrap();
        let raw = weight.raw_data.as_ref().unwrap().as_chunks::<4>().0;
        (weight.dims.clone(), raw.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    pub fn without_weight(mut self, name: &str) -> Self {
        self.graph().initializer.retain(|weight| weight.name != name);
        self
    }

    pub fn metadata(self, key: &str, text: &str) -> Self {
        self.metadata_bytes(key, text.as_bytes())
    }

    /// The same in any encoding.
    pub fn metadata_bytes(mut self, key: &str, text: &[u8]) -> Self {
        self.model.metadata_props.push(MetadataEntry { key: key.into(), value: text.into() });
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.model.encode_to_vec()
    }

    /// Writes the file and returns its path as text.
    pub fn save(&self, path: &Path) -> String {
        std::fs::write(path, self.bytes()).unwrap();
        path.display().to_string()
    }
}

/// Attribute `name` with the number `i`, as Cast's `to`.
pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), i, r#type: 2, ..Default::default() }
}

/// Attribute `name` with the number `f`, as LeakyRelu's `alpha`.
pub fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { name: name.into(), f, r#type: 1, ..Default::default() }
}

/// Attribute `name` with the numbers `ints`, as Conv's `strides`.
pub fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { name: name.into(), ints: ints.to_vec(), r#type: 7, ..Default::default() }
}

/// Attribute `name` with a graph, as Loop's `body`.
pub fn body(name: &str, graph: Graph) -> AttributeProto {
    let graph = graph.model.graph.map(|graph| GraphProto { name: name.into(), ..graph });
    AttributeProto { name: name.into(), g: graph, r#type: 5, ..Default::default() }
}

/// A model over batches of pictures of that size, whose only output takes hours to compute: by loops within a loop,
/// from its input, or from nothing but constants.
pub fn endless(batch: &str, side: &str, constant: bool) -> Graph {
    let loop_body = |steps: Graph| {
        steps
            .input("step", I64, &[])
            .input("go", BOOL, &[])
            .input("before", F32, &["n", "1", "6"])
            .node("Identity", &["go"], &["on"], vec![])
            .output("on", BOOL, &[])
            .output("after", F32, &["n", "1", "6"])
    };
    let inner = loop_body(Graph::new().node("Neg", &["before"], &["after"], vec![]));
    let outer = loop_body(Graph::new().node("Loop", &["", "go", "before"], &["after"], vec![body("body", inner)]));
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let graph = Graph::new()
        .input("images", F32, &[batch, "3", side, side])
        .weight("start", F32, &[1, 1, 6], floats(&[1.0; 6]))
        .weight("always", BOOL, &[], vec![1]);
    let graph = if constant {
        graph.node("Identity", &["start"], &["first"], vec![])
    } else {
        graph
            .node("ReduceMean", &["images"], &["rows"], vec![ints("axes", &[2]), int("keepdims", 0)])
            .node("ReduceMean", &["rows"], &["mean"], vec![ints("axes", &[1, 2]), int("keepdims", 1)])
            .node("Add", &["mean", "start"], &["first"], vec![])
    };
    graph.node("Loop", &["", "always", "first"], &["output0"], vec![body("body", outer)]).output(
        "output0",
        F32,
        &[batch, "1", "6"],
    )
}

fn value(name: &str, elem_type: i32, dims: &[&str]) -> ValueInfoProto {
    let shape = Some(TensorShapeProto { dim: dims.iter().map(|text| dimension(text)).collect() });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type: Some(TensorType { elem_type, shape }) }) }
}

fn dimension(text: &str) -> Dimension {
    match text.parse() {
        Ok(number) => Dimension { dim_value: Some(number), dim_param: None },
        Err(_) => Dimension { dim_value: None, dim_param: Some(text.to_string()) },
    }
}

// Field numbers are those of onnx.proto3.

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(int64, tag = "1")]
    ir_version: i64,
    #[prost(message, repeated, tag = "8")]
    opset_import: Vec<OperatorSetIdProto>,
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "14")]
    metadata_props: Vec<MetadataEntry>,
}

#[derive(Clone, PartialEq, Message)]
struct OperatorSetIdProto {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(int64, tag = "2")]
    version: i64,
}

#[derive(Clone, PartialEq, Message)]
struct MetadataEntry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct StringStringEntryProto {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    node: Vec<NodeProto>,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "5")]
    initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    input: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    output: Vec<ValueInfoProto>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    output: Vec<String>,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    op_type: String,
    #[prost(message, repeated, tag = "5")]
    attribute: Vec<AttributeProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(float, tag = "2")]
    f: f32,
    #[prost(int64, tag = "3")]
    i: i64,
    #[prost(bytes = "vec", tag = "4")]
    s: Vec<u8>,
    #[prost(message, optional, tag = "6")]
    g: Option<GraphProto>,
    #[prost(int64, repeated, packed = "false", tag = "8")]
    ints: Vec<i64>,
    #[prost(int32, tag = "20")]
    r#type: i32,
}

#[derive(Clone, PartialEq, Message)]
struct TensorProto {
    #[prost(int64, repeated, packed = "false", tag = "1")] // onnx.proto is proto2, and rten reads it so
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(string, tag = "8")]
    name: String,
    #[prost(bytes = "vec", optional, tag = "9")]
    raw_data: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "13")]
    external_data: Vec<StringStringEntryProto>,
    #[prost(int32, tag = "14")]
    data_location: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ValueInfoProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    r#type: Option<TypeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeProto {
    #[prost(message, optional, tag = "1")]
    tensor_type: Option<TensorType>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorType {
    #[prost(int32, tag = "1")]
    elem_type: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<TensorShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorShapeProto {
    #[prost(message, repeated, tag = "1")]
    dim: Vec<Dimension>,
}

/// A oneof in the schema; exactly one field is set.
#[derive(Clone, PartialEq, Message)]
struct Dimension {
    #[prost(int64, optional, tag = "1")]
    dim_value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    dim_param: Option<String>,
}

/// A model over 64x64 for batches of that many, with one box whose score is the brightness of the picture.
pub fn brightness(batch: &str) -> Graph {
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Graph::new()
        .input("images", F32, &[batch, "3", "64", "64"])
        .weight("place", F32, &[1, 1, 6], floats(&[8.0, 8.0, 40.0, 40.0, 0.0, 0.0]))
        .weight("score", F32, &[1, 1, 6], floats(&[0.0, 0.0, 0.0, 0.0, 1.0, 0.0]))
        .weight("rows", I64, &[3], [-1i64, 1, 1].iter().flat_map(|dim| dim.to_le_bytes()).collect())
        .node("ReduceMean", &["images"], &["mean"], vec![ints("axes", &[1, 2, 3]), int("keepdims", 0)])
        .node("Reshape", &["mean", "rows"], &["column"], vec![])
        .node("Mul", &["column", "score"], &["scored"], vec![])
        .node("Add", &["scored", "place"], &["output0"], vec![])
        .output("output0", F32, &[batch, "1", "6"])
        .metadata("names", "{0: 'a'}")
}
