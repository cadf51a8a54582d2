// SPDX-License-Identifier: MPL-2.0
//! Writes out what ONNX files may leave to the defaults of operators, where rten 0.27 wants it in the file, or takes another default:
//! shapes of windows from weights, strides of pooling, and the axes of older versions of operators.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;

use super::operators::is_of_onnx;
use super::raw::{RawGraph, RawModel, RawNode};
use super::{AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto};
use crate::error::{Error, ErrorKind, Result};

/// Dimensions of a window that are written out; rten has those of one and two.
const MAX_WINDOW_DIMS: usize = 8;

/// The first version of ONNX's operators in which Softmax is along one axis. Before, all from its axis on are one.
const ONE_AXIS: i64 = 13;

/// The first version in which Concat has to say its axis.
const CONCAT_AXIS: i64 = 4;

/// `AttributeProto`, with the fields that are added here.
#[derive(Clone, PartialEq, Message)]
struct AddedAttribute {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(float, optional, tag = "2")]
    f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    i: Option<i64>,
    #[prost(int64, repeated, packed = "false", tag = "8")] // onnx.proto is proto2, and rten reads it so
    ints: Vec<i64>,
    #[prost(int32, tag = "20")]
    r#type: i32,
}

impl AddedAttribute {
    fn float(name: &str, f: f32) -> Self {
        AddedAttribute { name: name.into(), f: Some(f), r#type: 1, ..Default::default() }
    }

    fn int(name: &str, i: i64) -> Self {
        AddedAttribute { name: name.into(), i: Some(i), r#type: 2, ..Default::default() }
    }

    fn ints(name: &str, ints: Vec<i64>) -> Self {
        AddedAttribute { name: name.into(), ints, r#type: 7, ..Default::default() }
    }
}

/// The attributes of a `NodeProto` alone: behind its bytes, they are added to what it has.
#[derive(Clone, PartialEq, Message)]
struct AddedAttributes {
    #[prost(message, repeated, tag = "5")]
    attribute: Vec<AddedAttribute>,
}

/// `AttributeProto` with the graphs of a branch or a loop.
#[derive(Clone, PartialEq, Message)]
struct GraphAttribute {
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    #[prost(message, optional, tag = "6")]
    g: Option<RawGraph>,
    #[prost(message, repeated, tag = "11")]
    graphs: Vec<RawGraph>,
    #[prost(int32, tag = "20")]
    r#type: i32,
}

/// A whole ONNX file with the defaults written out, whose messages are `decoded`; `None` where it leaves none open. Errors have a cause;
/// the caller adds the file's name.
pub fn written_out(file: Bytes, decoded: &ModelProto) -> Result<Option<Vec<u8>>> {
    let Some(graph) = &decoded.graph else { return Ok(None) };
    let mut model = RawModel::decode(file).map_err(broken)?;
    let of_onnx = decoded.opset_import.iter().find(|opset| matches!(opset.domain.as_str(), "" | "ai.onnx"));
    let mut completion =
        Completion { opset: of_onnx.map_or(i64::MAX, |opset| opset.version), ranks: HashMap::new(), changed: false };
    if let Some(raw) = &mut model.graph {
        completion.graph(graph, raw)?;
    }
    if !completion.changed {
        return Ok(None);
    }
    let (length, mut whole) = (model.encoded_len(), Vec::new());
    if whole.try_reserve_exact(length).is_err() {
        let what = format!("there is no memory for its {} MiB with the defaults of its operators", length >> 20);
        return Err(Error::new(ErrorKind::Model, what).remedy("Free memory, or use a smaller model"));
    }
    model.encode(&mut whole).expect("a vector grows");
    Ok(Some(whole))
}

fn broken(error: prost::DecodeError) -> Error {
    Error::new(ErrorKind::Model, "the graph cannot be read").cause(error)
}

struct Completion<'a> {
    /// The version of ONNX's own operators.
    opset: i64,
    /// How many dimensions values have, where the file shows it. Graphs within others see those around them.
    ranks: HashMap<&'a str, usize>,
    changed: bool,
}

impl<'a> Completion<'a> {
    fn graph(&mut self, graph: &'a GraphProto, raw: &mut RawGraph) -> Result<()> {
        let declared = graph.input.iter().chain(&graph.value_info).chain(&graph.output);
        self.ranks.extend(declared.filter_map(|value| Some((value.name.as_str(), rank(value)?))));
        self.ranks.extend(graph.initializer.iter().map(|weight| (weight.name.as_str(), weight.dims.len())));
        let mut nodes: Vec<Bytes> = Vec::with_capacity(raw.node.len());
        for (node, bytes) in graph.node.iter().zip(std::mem::take(&mut raw.node)) {
            self.note_rank(node);
            if let Some(axis) = self.softmax_of_several(node) {
                nodes.extend(flattened(RawNode::decode(bytes).map_err(broken)?, axis));
                self.changed = true;
                continue;
            }
            let missing = self.missing(node);
            if !missing.is_empty() {
                let mut bytes = bytes.to_vec();
                AddedAttributes { attribute: missing }.encode(&mut bytes).expect("a vector grows");
                nodes.push(bytes.into());
                self.changed = true;
            } else if node.graphs().next().is_some() {
                nodes.push(self.with_graphs(node, bytes)?);
            } else {
                nodes.push(bytes);
            }
        }
        raw.node = nodes;
        Ok(())
    }

    /// A node whose branches or loops are completed.
    fn with_graphs(&mut self, node: &'a NodeProto, bytes: Bytes) -> Result<Bytes> {
        let mut raw = RawNode::decode(bytes).map_err(broken)?;
        for (attribute, bytes) in node.attribute.iter().zip(&mut raw.attribute) {
            if attribute.g.is_none() && attribute.graphs.is_empty() {
                continue;
            }
            let mut written = GraphAttribute::decode(bytes.clone()).map_err(broken)?;
            let raws = written.g.iter_mut().chain(&mut written.graphs);
            for (graph, raw) in attribute.g.iter().chain(&attribute.graphs).zip(raws) {
                self.graph(graph, raw)?;
            }
            *bytes = written.encode_to_vec().into();
        }
        Ok(raw.encode_to_vec().into())
    }

    /// Constants say it, and some operators keep it.
    fn note_rank(&mut self, node: &'a NodeProto) {
        let known = match node.op_type.as_str() {
            "Constant" => attribute(node, "value").and_then(|value| Some(value.t.as_ref()?.dims.len())),
            "Cast" | "DequantizeLinear" | "Identity" | "QuantizeLinear" => self.rank_of(node, 0),
            _ => None,
        };
        if let (true, Some(known), Some(output)) = (is_of_onnx(node), known, node.output.first()) {
            self.ranks.insert(output, known);
        }
    }

    fn rank_of(&self, node: &NodeProto, place: usize) -> Option<usize> {
        self.ranks.get(node.input.get(place)?.as_str()).copied()
    }

    fn missing(&self, node: &NodeProto) -> Vec<AddedAttribute> {
        let absent = |name: &str| attribute(node, name).is_none();
        match (node.op_type.as_str(), is_of_onnx(node)) {
            ("Conv" | "ConvInteger" | "ConvTranspose", true) if absent("kernel_shape") => self.missing_of_window(node),
            ("AveragePool" | "MaxPool", true) if absent("strides") => {
                let dims = attribute(node, "kernel_shape").map_or(0, |shape| shape.ints.len()).min(MAX_WINDOW_DIMS);
                vec![AddedAttribute::ints("strides", vec![1; dims])]
            }
            ("Concat", true) if self.opset < CONCAT_AXIS && absent("axis") => vec![AddedAttribute::int("axis", 1)],
            // rten takes the last one. A single scale has no axis.
            ("QuantizeLinear", true)
                if absent("axis") && self.rank_of(node, 0) != Some(1) && self.rank_of(node, 1) != Some(0) =>
            {
                vec![AddedAttribute::int("axis", 1)]
            }
            // ONNX Runtime's own.
            ("SkipLayerNormalization" | "SkipSimplifiedLayerNormalization", false)
                if node.domain == "com.microsoft" && absent("epsilon") =>
            {
                vec![AddedAttribute::float("epsilon", 1e-12)]
            }
            _ => Vec::new(),
        }
    }

    /// The shape of a convolution is that of its weights: behind the two dimensions of channels, or as its other attributes have it.
    fn missing_of_window(&self, node: &NodeProto) -> Vec<AddedAttribute> {
        let count = |name: &str| attribute(node, name).map(|attribute| attribute.ints.len());
        let of_tensor = |place: usize| self.rank_of(node, place)?.checked_sub(2);
        let dims = of_tensor(1).or_else(|| of_tensor(0)).or_else(|| count("strides")).or_else(|| count("dilations"));
        let dims = dims.or_else(|| Some(count("pads")? / 2)).filter(|dims| (1..=MAX_WINDOW_DIMS).contains(dims));
        // rten says what is wrong with it.
        let Some(dims) = dims else { return Vec::new() };
        let all = [("strides", dims, 1), ("dilations", dims, 1), ("pads", 2 * dims, 0)];
        let missing = all.into_iter().filter(|(name, ..)| attribute(node, name).is_none());
        missing.map(|(name, count, value)| AddedAttribute::ints(name, vec![value; count])).collect()
    }

    /// The axis of an old softmax over more than the last dimension, or one of which that is not known.
    fn softmax_of_several(&self, node: &NodeProto) -> Option<i64> {
        let is_softmax = is_of_onnx(node) && matches!(node.op_type.as_str(), "LogSoftmax" | "Softmax");
        if self.opset >= ONE_AXIS || !is_softmax {
            return None;
        }
        let axis = attribute(node, "axis").map_or(1, |axis| axis.i.unwrap_or(0));
        let last = self.rank_of(node, 0).map(|rank| rank as i64 - 1);
        let is_whole = !node.input.is_empty() && !node.output.is_empty();
        (is_whole && axis != -1 && last != Some(axis)).then_some(axis)
    }
}

fn attribute<'n>(node: &'n NodeProto, name: &str) -> Option<&'n AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}

fn rank(value: &ValueInfoProto) -> Option<usize> {
    Some(value.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref()?.dim.len())
}

/// A softmax over all dimensions from an axis on, in newer operators: they become one, and get their shape back.
fn flattened(softmax: RawNode, axis: i64) -> [Bytes; 4] {
    let RawNode { input, output, name, op_type, domain, .. } = softmax;
    let first = |names: Vec<String>| names.into_iter().next().unwrap_or_default();
    let (from, to) = (first(input), first(output));
    let [shape, rows, made] = ["shape", "rows", "softmax"].map(|what| format!("{to}/flattened/{what}"));
    let node = |op_type: Bytes, name: Bytes, input: &[&String], output: &String, attribute: Option<AddedAttribute>| {
        let node = RawNode {
            input: input.iter().copied().cloned().collect(),
            output: vec![output.clone()],
            name,
            op_type,
            attribute: attribute.iter().map(|attribute| attribute.encode_to_vec().into()).collect(),
            domain: domain.clone(),
        };
        Bytes::from(node.encode_to_vec())
    };
    // Dimensions of 0 are these, and not those of the rows.
    let as_they_are = AddedAttribute::int("allowzero", 1);
    [
        node("Shape".into(), Bytes::new(), &[&from], &shape, None),
        node("Flatten".into(), Bytes::new(), &[&from], &rows, Some(AddedAttribute::int("axis", axis))),
        node(op_type, name, &[&rows], &made, Some(AddedAttribute::int("axis", -1))),
        node("Reshape".into(), Bytes::new(), &[&made, &shape], &to, Some(as_they_are)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::options::Options;
    use crate::backends::{BackendPreference, TensorModel};
    use crate::onnx_files::{AttributeProto as TestAttribute, F32, Graph, I64, U8, body, int, ints};
    use crate::tensor::{Dims, Tensor};
    use crate::test::scratch;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn completed(graph: &Graph) -> Option<GraphProto> {
        let file = Bytes::from(graph.bytes());
        let whole = written_out(file.clone(), &ModelProto::decode(file).unwrap()).unwrap()?;
        ModelProto::decode(&whole[..]).unwrap().graph
    }

    /// The numbers of the first output, by rten.
    fn computed(name: &str, graph: &Graph, dims: &[i64], values: &[f32]) -> Vec<f32> {
        let file = scratch(name).join("m.onnx");
        graph.save(&file);
        let model = TensorModel::open(&file, BackendPreference::Named("rten"), Options::default()).unwrap();
        let (mut net, _) = model.load(&[Dims::new(dims)]).unwrap();
        let made = net.run(&[&Tensor::from_slice("x", dims, values)]).unwrap();
        made[0].as_slice::<f32>().unwrap().to_vec()
    }

    fn picture() -> Graph {
        Graph::new().input("x", F32, &["1", "1", "2", "3"])
    }

    const PICTURE: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

    #[test]
    fn windows_have_the_shape_of_their_weights() {
        let window = |op_type: &str, attributes: Vec<TestAttribute>| {
            picture()
                .weight("w", F32, &[1, 1, 2, 2], bytes(&[1.0, 0.0, 0.0, 1.0]))
                .node(op_type, &["x", "w"], &["y"], attributes)
                .output("y", F32, &["1", "1", "h", "w"])
        };
        let run = |name: &str, graph: Graph| computed(name, &graph, &[1, 1, 2, 3], &PICTURE);
        assert_eq!(run("open-conv", window("Conv", vec![])), [6.0, 8.0]);
        // One pixel behind the last row and column.
        let pads = vec![ints("pads", &[0, 0, 1, 1])];
        assert_eq!(run("open-conv-pads", window("Conv", pads)), [6.0, 8.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(run("open-conv-strides", window("Conv", vec![ints("strides", &[1, 2])])), [6.0]);
        let spread = [1.0, 2.0, 3.0, 0.0, 4.0, 6.0, 8.0, 3.0, 0.0, 4.0, 5.0, 6.0];
        assert_eq!(run("open-transpose", window("ConvTranspose", vec![])), spread);
    }

    #[test]
    fn windows_of_one_dimension_and_behind_other_operators_too() {
        let graph = Graph::new()
            .input("x", F32, &["1", "1", "4"])
            .weight("w", F32, &[1, 1, 2], bytes(&[1.0, 1.0]))
            .node("Identity", &["w"], &["same"], vec![])
            .node("Conv", &["x", "same"], &["y"], vec![])
            .output("y", F32, &["1", "1", "3"]);
        assert_eq!(computed("open-conv-1d", &graph, &[1, 1, 4], &[1.0, 2.0, 3.0, 4.0]), [3.0, 5.0, 7.0]);
    }

    #[test]
    fn pooling_goes_by_one_pixel() {
        let pool = |op_type: &str| {
            let shape = vec![ints("kernel_shape", &[2, 2])];
            picture().node(op_type, &["x"], &["y"], shape).output("y", F32, &["1", "1", "1", "2"])
        };
        assert_eq!(computed("open-max", &pool("MaxPool"), &[1, 1, 2, 3], &PICTURE), [5.0, 6.0]);
        assert_eq!(computed("open-average", &pool("AveragePool"), &[1, 1, 2, 3], &PICTURE), [3.0, 4.0]);
    }

    #[test]
    fn a_softmax_of_old_files_is_over_all_dimensions_from_its_axis_on() {
        let softmax = |opset: i64, attributes: Vec<TestAttribute>| {
            Graph::new()
                .opset(opset)
                .input("x", F32, &["1", "2", "1", "1"])
                .node("Softmax", &["x"], &["y"], attributes)
                .output("y", F32, &["1", "2", "1", "1"])
        };
        // The two have one sum, and each is e to the power of its number of it.
        let numbers = [0.0, 3.0f32.ln()];
        let close = |made: Vec<f32>, wanted: [f32; 2]| {
            assert!(made.iter().zip(wanted).all(|(made, wanted)| (made - wanted).abs() < 1e-6), "{made:?}");
        };
        close(computed("old-softmax", &softmax(12, vec![]), &[1, 2, 1, 1], &numbers), [0.25, 0.75]);
        close(computed("old-softmax-0", &softmax(12, vec![int("axis", 0)]), &[1, 2, 1, 1], &numbers), [0.25, 0.75]);
        close(computed("old-softmax-3", &softmax(12, vec![int("axis", 3)]), &[1, 2, 1, 1], &numbers), [1.0, 1.0]);
        close(computed("new-softmax", &softmax(13, vec![]), &[1, 2, 1, 1], &numbers), [1.0, 1.0]);
    }

    #[test]
    fn the_axis_of_quantising_is_that_of_channels() {
        let graph = picture()
            .weight("scale", F32, &[1], bytes(&[2.0]))
            .weight("zero", U8, &[1], vec![0])
            .node("QuantizeLinear", &["x", "scale", "zero"], &["q"], vec![])
            .node("DequantizeLinear", &["q", "scale", "zero"], &["y"], vec![])
            .output("y", F32, &["1", "1", "2", "3"]);
        let made = completed(&graph).unwrap();
        let axis = |place: usize| attribute(&made.node[place], "axis").and_then(|axis| axis.i);
        assert_eq!([axis(0), axis(1)], [Some(1), None]);
        assert_eq!(
            computed("open-axis", &graph, &[1, 1, 2, 3], &[2.0, 4.0, 6.0, 8.0, 10.0, 12.0]),
            [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
        );
        let single =
            picture().weight("scale", F32, &[], bytes(&[2.0])).node("QuantizeLinear", &["x", "scale"], &["q"], vec![]);
        assert!(completed(&single).is_none());
        let old = |opset: i64| {
            picture().opset(opset).node("Concat", &["x", "x"], &["y"], vec![]).output("y", F32, &["1", "2", "2", "3"])
        };
        let made = completed(&old(3)).unwrap();
        assert_eq!(attribute(&made.node[0], "axis").and_then(|axis| axis.i), Some(1));
        assert!(completed(&old(4)).is_none());
    }

    #[test]
    fn branches_and_loops_are_completed_too() {
        let branch = |attributes: Vec<TestAttribute>| {
            Graph::new().node("MaxPool", &["x"], &["pooled"], attributes).output("pooled", F32, &["1", "1", "1", "2"])
        };
        let (open, whole) = (ints("kernel_shape", &[2, 2]), ints("strides", &[1, 1]));
        let graph = |attributes: Vec<TestAttribute>| {
            picture()
                .weight("yes", crate::onnx_files::BOOL, &[], vec![1])
                .node(
                    "If",
                    &["yes"],
                    &["y"],
                    vec![
                        body("then_branch", branch(attributes)),
                        body("else_branch", branch(vec![open.clone(), whole.clone()])),
                    ],
                )
                .output("y", F32, &["1", "1", "1", "2"])
        };
        let made = completed(&graph(vec![open.clone()])).unwrap();
        let inner: Vec<&GraphProto> = made.node[0].graphs().collect();
        let strides = |graph: &GraphProto| attribute(&graph.node[0], "strides").unwrap().ints.clone();
        assert_eq!([strides(inner[0]), strides(inner[1])], [[1, 1], [1, 1]]);
        assert_eq!(completed(&graph(vec![open.clone(), whole.clone()])), None);
        assert_eq!(computed("open-branch", &graph(vec![open.clone()]), &[1, 1, 2, 3], &PICTURE), [5.0, 6.0]);
    }

    #[test]
    fn what_is_whole_or_cannot_be_known_stays() {
        let conv = |attributes: Vec<TestAttribute>| picture().node("Conv", &["x", "made"], &["y"], attributes);
        assert_eq!(completed(&conv(vec![ints("kernel_shape", &[2, 2])])), None);
        assert!(completed(&conv(vec![])).is_some(), "the input has two dimensions");
        let unknown = Graph::new().node("Conv", &["a", "b"], &["y"], vec![]).weight("shape", I64, &[1], vec![0; 8]);
        assert_eq!(completed(&unknown), None);
        let flat = Graph::new().weight("b", F32, &[1], vec![0; 4]).node("Conv", &["a", "b"], &["y"], vec![]);
        assert_eq!(completed(&flat), None);
    }
}
